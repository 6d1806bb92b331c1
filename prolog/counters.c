/* Which counters does the next run start from? Several prologs may run at once: the one that began
 * last has seen the most. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "internal.h"

static int lock_beside(const char *path)
{
    xc_autotext struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s.lock", path);
    int fd = name.failed ? -1 : open(name.data, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
        ;
    return fd;
}

int counters_keep(const struct xc_check_state *state, const char *path, struct xc_error *error)
{
    xc_autoclose int lock = lock_beside(path);
    struct xc_check_state there = {0};
    bool later = xc_check_state_read(path, &there, NULL) == 0 &&
                 xc_streq(there.boot_id, state->boot_id) && there.at_us > state->at_us;
    xc_check_state_clear(&there);
    return later ? 0 : xc_check_state_write(state, path, error);
}

int counters_take(const char *pending, const char *path, struct xc_error *error)
{
    struct xc_check_state state = {0};
    int rc = xc_check_state_read(pending, &state, error);
    if (rc == 0)
        rc = counters_keep(&state, path, error);
    xc_check_state_clear(&state);
    unlink(pending);
    return rc;
}

/* Of "PATH.PID" files, that of a run which somebody has killed. */
static bool is_orphan(const char *name, const char *base)
{
    size_t length = strlen(base);
    long pid;
    return strncmp(name, base, length) == 0 && name[length] == '.' &&
           xc_to_long(name + length + 1, 1, INT32_MAX, &pid) && kill((pid_t)pid, 0) < 0 &&
           errno == ESRCH;
}

void counters_prune(const char *path)
{
    xc_autofree char *directory = strdup(path);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (!slash)
        return;
    *slash = '\0';
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_orphan(entry->d_name, slash + 1))
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}
