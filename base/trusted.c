/* Is this file one that root may believe? And: how is a file of ours replaced? */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/base.h>

#define LINKS_MAX 40 /* as the kernel */

static bool trusted_owner(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* A directory on the way. In a sticky one others may add names, but cannot replace those of root,
 * and every component's owner is checked: /tmp and ConfigMap volumes (1777) are on this side. */
static int judge_directory(const struct stat *st, const char *path, struct xc_error *error)
{
    if (!trusted_owner(st->st_uid))
        return xc_error_set(error, XC_EOWNER, path,
                            "a directory on its path belongs to uid %u; root must own all of it",
                            (unsigned)st->st_uid);
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) && !(st->st_mode & S_ISVTX))
        return xc_error_set(error, XC_EOWNER, path,
                            "a directory on its path is writable by group or others (mode %04o)",
                            (unsigned)st->st_mode & 07777u);
    return 0;
}

static int judge_file(const struct stat *st, const char *path, struct xc_error *error)
{
    if (!S_ISREG(st->st_mode))
        return xc_error_set(error, XC_EOWNER, path, "it is not a regular file");
    if (!trusted_owner(st->st_uid))
        return xc_error_set(error, XC_EOWNER, path, "it belongs to uid %u; root must own it",
                            (unsigned)st->st_uid);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return xc_error_set(error, XC_EOWNER, path,
                            "it is writable by group or others (mode %04o); chmod go-w mends it",
                            (unsigned)st->st_mode & 07777u);
    return 0;
}

struct walk {
    const char *path; /* as asked for, for errors */
    char rest[PATH_MAX];
    int dir;
    unsigned links;
};

/* Puts a link's target in front of the rest of the path. */
static int follow_link(struct walk *walk, const char *name, const struct stat *st,
                       struct xc_error *error)
{
    if (!trusted_owner(st->st_uid))
        return xc_error_set(error, XC_EOWNER, walk->path, "a link on its path belongs to uid %u",
                            (unsigned)st->st_uid);
    if (++walk->links > LINKS_MAX)
        return xc_error_set(error, XC_EINPUT, walk->path, "too many symbolic links");
    char target[PATH_MAX], joined[sizeof walk->rest];
    ssize_t length = readlinkat(walk->dir, name, target, sizeof target - 1);
    if (length < 0)
        return xc_error_errno(error, walk->path, "cannot read a link on its path");
    target[length] = '\0';
    if ((size_t)length + strlen(walk->rest) + 2 > sizeof joined)
        return xc_error_set(error, XC_EINPUT, walk->path, "the path is too long");
    memcpy(joined, target, (size_t)length);
    joined[length] = '/';
    memcpy(joined + length + 1, walk->rest, strlen(walk->rest) + 1);
    memcpy(walk->rest, joined, (size_t)length + 1 + strlen(joined + length + 1) + 1);
    if (target[0] != '/')
        return 0;
    int top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return xc_error_errno(error, "/", "cannot open it");
    close(walk->dir);
    walk->dir = top;
    return 0;
}

/* Takes the next component off the rest into name; false at the end. */
static bool next_component(struct walk *walk, char name[NAME_MAX + 1])
{
    char *start = walk->rest;
    while (*start == '/')
        start++;
    size_t length = strcspn(start, "/");
    if (length == 0 || length > NAME_MAX)
        return false;
    memcpy(name, start, length);
    name[length] = '\0';
    char *after = start + length;
    while (*after == '/')
        after++;
    memmove(walk->rest, after, strlen(after) + 1);
    return true;
}

/* One component: steps into a directory, follows a link, or opens the file into *file. */
static int step(struct walk *walk, const char *name, int *file, struct xc_error *error)
{
    struct stat st;
    bool last = walk->rest[0] == '\0';
    int flags = last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY;
    int fd = openat(walk->dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int number = errno; /* a link is one reason */
        if (fstatat(walk->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            return follow_link(walk, name, &st, error);
        errno = number;
        return xc_error_errno(error, walk->path, "cannot open it");
    }
    if (fstat(fd, &st) < 0) {
        close(fd);
        return xc_error_errno(error, walk->path, "cannot look at it");
    }
    if ((last ? judge_file : judge_directory)(&st, walk->path, error) < 0) {
        close(fd);
        return -1;
    }
    if (last) {
        *file = fd;
    } else {
        close(walk->dir);
        walk->dir = fd;
    }
    return 0;
}

int xc_open_trusted(const char *path, struct xc_error *error)
{
    struct walk walk = {.path = path};
    if (path[0] != '/' || strlen(path) >= sizeof walk.rest)
        return xc_error_set(error, XC_EINPUT, path, "expected an absolute path");
    memcpy(walk.rest, path, strlen(path) + 1);
    walk.dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (walk.dir < 0)
        return xc_error_errno(error, "/", "cannot open it");
    int file = -1, rc = 0;
    char name[NAME_MAX + 1];
    while (file < 0 && rc == 0) {
        if (!next_component(&walk, name))
            rc = xc_error_set(error, XC_EINPUT, path, "it names no file");
        else
            rc = step(&walk, name, &file, error);
    }
    close(walk.dir);
    return rc == 0 ? file : -1;
}

char *xc_read_fd(int fd, const char *name, size_t limit, size_t *length, struct xc_error *error)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    int rc = xc_text_read(&text, fd, limit);
    if (rc == -EFBIG) {
        xc_error_set(error, XC_EINPUT, name, "it is larger than %zu bytes", limit);
        return NULL;
    }
    if (rc < 0) {
        errno = -rc;
        xc_error_errno(error, name, "cannot read it");
        return NULL;
    }
    if (length)
        *length = text.length;
    char *content = xc_text_take(&text);
    if (!content)
        xc_error_nomem(error);
    return content;
}

char *xc_read_trusted(const char *path, size_t limit, size_t *length, struct xc_error *error)
{
    xc_autoclose int fd = xc_open_trusted(path, error);
    return fd < 0 ? NULL : xc_read_fd(fd, path, limit, length, error);
}

int xc_make_dirs(const char *path, mode_t mode, struct xc_error *error)
{
    xc_autofree char *copy = strdup(path);
    if (!copy)
        return xc_error_nomem(error);
    for (char *slash = strchr(copy + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return xc_error_errno(error, copy, "cannot make the directory");
        if (!slash)
            return 0;
        *slash = '/';
    }
}

static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t wrote = write(fd, bytes, length);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        bytes += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

int xc_write_atomic(const char *path, const void *bytes, size_t length, mode_t mode,
                    struct xc_error *error)
{
    struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s.XXXXXX", path);
    xc_autofree char *temporary = xc_text_take(&name);
    if (!temporary)
        return xc_error_nomem(error);
    xc_autoclose int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return xc_error_errno(error, path, "cannot make a temporary file beside it");
    if (write_all(fd, bytes, length) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
        rename(temporary, path) < 0) {
        int rc = xc_error_errno(error, path, "cannot write it");
        unlink(temporary);
        return rc;
    }
    return 0;
}
