/* How is one of Slurm's commands run by root? By its absolute path, nearly without an environment,
 * with an end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config.h"

#include "internal.h"

#define OUTPUT_LIMIT (64u << 20)

/* ---- where they are ------------------------------------------------------------------------------------ */

static const char *const places[] = {
#ifdef XC_SCONTROL
    XC_SCONTROL,
#endif
    "/usr/bin/scontrol",
    "/usr/local/bin/scontrol",
    "/opt/slurm/bin/scontrol",
    "/opt/slurm/current/bin/scontrol",
    "/usr/sbin/scontrol",
};

static int usable(const char *path, struct xc_error *error)
{
    xc_autoclose int fd = xc_open_trusted(path, error);
    return fd < 0 ? -1 : 0;
}

/* sinfo is beside scontrol. */
static void beside(const char *scontrol, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(scontrol, '/');
    snprintf(out, size, "%.*s%s", (int)(slash - scontrol) + 1, scontrol, name);
}

int find_tools(const char *wanted, struct slurm_tools *out, struct xc_error *error)
{
    out->scontrol[0] = out->sinfo[0] = '\0';
    if (*wanted) {
        if (wanted[0] != '/')
            return xc_error_set(error, XC_EINPUT, wanted, "expected an absolute path");
        beside(wanted, "sinfo", out->sinfo, sizeof out->sinfo);
        snprintf(out->scontrol, sizeof out->scontrol, "%s", wanted);
        return usable(wanted, error);
    }
    struct xc_error why = {0};
    for (size_t i = 0; i < XC_COUNT(places); i++) {
        if (usable(places[i], &why) == 0) {
            snprintf(out->scontrol, sizeof out->scontrol, "%s", places[i]);
            beside(places[i], "sinfo", out->sinfo, sizeof out->sinfo);
            return 0;
        }
        if (why.code != XC_ENOENT)
            break; /* it is there and nobody's whom root trusts */
    }
    if (why.code == XC_ENOENT)
        return xc_error_set(error, XC_ENOENT, NULL,
                            "scontrol is in none of the usual places; the policy can name it: "
                            "checks: self.scontrol: path:");
    if (error)
        *error = why;
    return -1;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static _Noreturn void exec_command(const char *const *argv, const char *slurm_conf, int output)
{
    char conf[4200];
    const char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s", NULL, NULL};
    if (slurm_conf && snprintf(conf, sizeof conf, "SLURM_CONF=%s", slurm_conf) < (int)sizeof conf)
        env[3] = conf;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(127);
    execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
    _exit(127);
}

/* Until its end, the limit or the time. 0 or -1. */
static int read_all(int fd, int64_t end, struct xc_text *out)
{
    char bytes[65536];
    for (;;) {
        int64_t left = end - xc_now_ms();
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&poller, 1, (int)left) == 0)
            return -1;
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (got > 0 && out->length + (size_t)got <= OUTPUT_LIMIT)
            xc_text_add_n(out, bytes, (size_t)got);
    }
}

/* Waits for the end of the process until the time. */
static bool reaped(pid_t pid, int64_t end, int *status)
{
    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return got == pid;
        if (xc_now_ms() >= end)
            return false;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static int failed(const char *path, int status, const struct xc_text *output,
                  struct xc_error *error)
{
    char first[200];
    snprintf(first, sizeof first, "%.*s", output->data ? (int)strcspn(output->data, "\n") : 0,
             output->data ? output->data : "");
    if (WIFSIGNALED(status))
        return xc_error_set(error, XC_ESYS, path, "it was ended by signal %d", WTERMSIG(status));
    return xc_error_set(error, XC_ESYS, path, "it ended with status %d%s%s", WEXITSTATUS(status),
                        *first ? ": " : "", first);
}

int run_command(const char *const *argv, const char *slurm_conf, unsigned timeout_ms,
                struct xc_text *out, struct xc_error *error)
{
    int pipe_fd[2], status = 0;
    struct xc_text none = XC_TEXT_INIT, *text = out ? out : &none;
    if (usable(argv[0], error) < 0)
        return -1;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return xc_error_errno(error, argv[0], "cannot make a pipe");
    int64_t end = xc_now_ms() + timeout_ms;
    pid_t pid = fork();
    if (pid == 0)
        exec_command(argv, slurm_conf, pipe_fd[1]);
    close(pipe_fd[1]);
    int rc = pid < 0 ? xc_error_errno(error, argv[0], "cannot start it") : 0;
    bool ended = rc == 0 && read_all(pipe_fd[0], end, text) == 0 && reaped(pid, end, &status);
    close(pipe_fd[0]);
    if (rc == 0 && !ended) {
        kill(pid, SIGKILL);
        reaped(pid, xc_now_ms() + 100, &status);
        rc = xc_error_set(error, XC_ESYS, argv[0], "no answer within %u ms", timeout_ms);
    } else if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        rc = failed(argv[0], status, text, error);
    }
    if (rc == 0 && text->failed)
        rc = xc_error_nomem(error);
    xc_text_free(&none);
    return rc;
}
