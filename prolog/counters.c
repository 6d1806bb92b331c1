/* Which counters does the next run start from? Several prologs may run at once: the one that began
 * last has seen the most. */
#include <errno.h>
#include <fcntl.h>
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
