/* How is the system written? Files of the kernel, drop-ins for systemd, systemctl, masks of threads. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

char *host_below(const struct xc_host_input *in, const char *path)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", in->prefix, path);
    return xc_text_take(&text);
}

/* ---- the real system ----------------------------------------------------------------------------- */

/* In one write: the kernel takes a value as a whole or not at all. */
static int live_write(void *ctx, const char *path, const char *text)
{
    (void)ctx;
    char line[8192];
    int length = snprintf(line, sizeof line, "%s\n", text);
    if (length < 0 || (size_t)length >= sizeof line)
        return -EMSGSIZE;
    xc_autoclose int fd = open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t wrote = write(fd, line, (size_t)length);
    return wrote < 0 ? -errno : wrote != length ? -EIO : 0;
}

static const char *systemctl_path(void)
{
    static const char *const places[] = {"/usr/bin/systemctl", "/bin/systemctl"};
    for (size_t i = 0; i < XC_COUNT(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

#define SYSTEMCTL_LIMIT_S 90

static int wait_for(pid_t pid, const char *verb, struct xc_error *error)
{
    struct timespec now, start;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got < 0 && errno != EINTR)
            return xc_error_errno(error, "systemctl", "cannot wait for it");
        if (got == pid)
            break;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > SYSTEMCTL_LIMIT_S) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return xc_error_set(error, XC_ESYS, "systemctl", "%s took more than %d s", verb,
                                SYSTEMCTL_LIMIT_S);
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return xc_error_set(error, XC_ESYS, "systemctl", "%s failed; its own words are above", verb);
}

static int live_systemctl(void *ctx, const char *verb, const char *unit, struct xc_error *error)
{
    (void)ctx;
    const char *path = systemctl_path();
    if (!path)
        return xc_error_set(error, XC_ENOENT, "systemctl", "it is not there");
    const char *argv[] = {"systemctl", verb, unit, NULL};
    char *environment[] = {NULL};
    pid_t pid;
    int rc = posix_spawn(&pid, path, NULL, NULL, (char *const *)(uintptr_t)argv, environment);
    if (rc != 0) {
        errno = rc;
        return xc_error_errno(error, path, "cannot start it");
    }
    return wait_for(pid, verb, error);
}

static int live_bind(void *ctx, int tid, const struct xc_set *cpus)
{
    (void)ctx;
    return xc_affinity_set(tid, cpus);
}

const struct xc_host_system *xc_host_live(void)
{
    static const struct xc_host_system live = {
        .write = live_write, .systemctl = live_systemctl, .bind = live_bind};
    return &live;
}

/* ---- what the parts write ------------------------------------------------------------------------- */

int host_write_file(const struct xc_host_input *in, const char *path, const char *text)
{
    xc_autofree char *full = host_below(in, path);
    return full ? in->system->write(in->system->ctx, full, text) : -ENOMEM;
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, (size_t)(slash - path)) : NULL;
}

int host_write_dropin(const struct xc_host_input *in, const char *path, const char *text,
                      struct xc_error *error)
{
    xc_autofree char *full = host_below(in, path);
    xc_autofree char *directory = full ? directory_of(full) : NULL;
    if (!directory)
        return xc_error_nomem(error);
    if (xc_make_dirs(directory, 0755, error) < 0)
        return -1;
    return xc_write_atomic(full, text, strlen(text), 0644, error);
}

int host_remove_dropin(const struct xc_host_input *in, const char *path, struct xc_error *error)
{
    xc_autofree char *full = host_below(in, path);
    xc_autofree char *directory = full ? directory_of(full) : NULL;
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, "%s", path);
    if (!directory)
        return xc_error_nomem(error);
    int rc = text && xc_starts(text, HOST_MARK);
    if (rc && unlink(full) < 0 && errno != ENOENT)
        return xc_error_errno(error, full, "cannot remove it");
    rmdir(directory); /* empty: we made it; else it holds what the site put there */
    return rc;
}

int host_lock(const struct xc_host_input *in, struct xc_error *error)
{
    xc_autofree char *directory = host_below(in, XC_RUN_DIR);
    xc_autofree char *path = host_below(in, XC_RUN_DIR "/host.lock");
    if (!directory || !path)
        return xc_error_nomem(error);
    if (xc_make_dirs(directory, 0755, error) < 0)
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return xc_error_errno(error, path, "cannot open it");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return xc_error_set(error, XC_ESYS, path,
                            "another xcloud host apply or undo runs; wait for its end");
    }
    return fd;
}
