/* Where does a step get its machine from? A snapshot of this boot; when there is none, `xcloud
 * snapshot` makes it, once: the only thing that is ever started from slurmstepd. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define MAKER          XC_BINDIR "/xcloud"
#define MAKER_LIMIT_US 5000000

/* This boot's id; a captured machine (tests) need not have one. */
static bool boot_id(const struct xc_step *step, char id[64])
{
    xc_autofree char *path = step_below(step, "/proc/sys/kernel/random/boot_id");
    xc_autoclose int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd < 0 ? -1 : read(fd, id, 63);
    if (length <= 0)
        return false;
    id[length] = '\0';
    id[strcspn(id, "\n")] = '\0';
    return true;
}

/* waitpid with a deadline; the child is killed when it passes. said: what it wrote to stderr. */
static int wait_for(pid_t pid, int said, struct xc_error *error)
{
    int64_t until = xc_now_us() + MAKER_LIMIT_US;
    int status;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got < 0 && errno != EINTR)
            return xc_error_errno(error, MAKER, "cannot wait for it");
        if (got == pid)
            break;
        if (xc_now_us() > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return xc_error_set(error, XC_ESYS, MAKER " snapshot", "it took more than 5 s");
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    char line[400];
    ssize_t length = read(said, line, sizeof line - 1);
    line[length > 0 ? length : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return xc_error_set(error, XC_ESYS, MAKER " snapshot", "it failed: %s",
                        line[0] ? line : "it did not say why");
}

static int spawn(char *const argv[], struct xc_error *error)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    int said[2];
    if (pipe2(said, O_CLOEXEC | O_NONBLOCK) < 0)
        return xc_error_errno(error, MAKER, "cannot start it");
    posix_spawn_file_actions_init(&files);
    for (int fd = 0; fd <= 1; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, said[1], 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none); /* slurmstepd blocks most signals */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const char *conf = getenv("SLURM_CONF"); /* slurmstepd's own, not the job's */
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "SLURM_CONF=%s", conf ? conf : "");
    xc_autofree char *variable = xc_text_take(&text);
    char *environment[] = {conf ? variable : NULL, NULL};
    pid_t pid;
    int rc = posix_spawn(&pid, MAKER, &files, &attributes, argv, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(said[1]);
    errno = rc;
    rc = rc ? xc_error_errno(error, MAKER, "cannot start it") : wait_for(pid, said[0], error);
    close(said[0]);
    return rc;
}

static int make(const struct xc_step *step, const char *path, struct xc_error *error)
{
    /* root runs it: what it runs must be root's */
    xc_autoclose int trusted = xc_open_trusted(MAKER, error);
    if (trusted < 0)
        return -1;
    char *argv[] = {(char *)(uintptr_t) "xcloud",
                    (char *)(uintptr_t) "snapshot",
                    (char *)(uintptr_t) "-o",
                    (char *)(uintptr_t)path,
                    (char *)(uintptr_t) "--node",
                    step->node_name,
                    step->machine ? (char *)(uintptr_t) "--machine" : NULL,
                    step->machine,
                    NULL};
    return spawn(argv, error);
}

int step_snapshot(const struct xc_step *step, struct xc_node **out, struct xc_error *error)
{
    char id[64];
    const char *boot = boot_id(step, id) ? id : NULL;
    xc_autofree char *path = step_below(step, XC_SNAPSHOT_FILE);
    if (!path)
        return xc_error_nomem(error);
    if (xc_snapshot_map(path, boot, out, NULL) == 0)
        return 0;
    if (make(step, path, error) < 0 || xc_snapshot_map(path, boot, out, error) < 0)
        return xc_error_wrap(error, "there is no snapshot of this machine");
    return 0;
}
