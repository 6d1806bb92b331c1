/* How is a machine read, live or captured, without leaving its root? */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <xcloud/base.h>

struct xc_root {
    const struct xc_root_ops *ops;
    void *self;
    char *name;
};

int xc_root_new(const struct xc_root_ops *ops, void *self, const char *name, struct xc_root **out,
                struct xc_error *error)
{
    struct xc_root *root = malloc(sizeof *root);
    char *copy = strdup(name);
    if (!root || !copy) {
        free(root);
        free(copy);
        return xc_error_nomem(error);
    }
    *root = (struct xc_root){.ops = ops, .self = self, .name = copy};
    *out = root;
    return 0;
}

void xc_root_close(struct xc_root *root)
{
    if (!root)
        return;
    if (root->ops->close)
        root->ops->close(root->self);
    free(root->name);
    free(root);
}

void xc_root_close_ptr(struct xc_root **root)
{
    xc_root_close(*root);
}

const char *xc_root_name(const struct xc_root *root)
{
    return root->name;
}

/* ---- directories ------------------------------------------------------------------------------- */

struct directory {
    int fd;       /* AT_FDCWD: the live machine, paths are opened as they are */
    char *prefix; /* canonical path of fd, to be cut off canonical paths; NULL: live */
};

#define TRIES_MAX 100000

/* A rename or mount anywhere on the system while the kernel walks over ".." makes it answer EAGAIN:
 * it cannot say then that the walk stayed inside. */
static int open_below(const struct directory *dir, const char *path, int flags)
{
    if (dir->fd == AT_FDCWD)
        return open(path, flags | O_CLOEXEC);
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    long fd;
    unsigned tries = 0;
    do
        fd = syscall(SYS_openat2, dir->fd, path, &how, sizeof how);
    while (fd < 0 && errno == EAGAIN && ++tries < TRIES_MAX);
    return (int)fd;
}

/* A regular file, or -errno. */
static int open_file(void *self, const char *path)
{
    /* O_NONBLOCK: a captured machine may hold a FIFO */
    int fd = open_below(self, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int failed = fd < 0 || fstat(fd, &st) < 0 ? errno : 0;
    if (!failed && !S_ISREG(st.st_mode))
        failed = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (failed && fd >= 0)
        close(fd);
    return failed ? -failed : fd;
}

static ssize_t directory_start(void *self, const char *path, void *buffer, size_t size)
{
    xc_autoclose int fd = open_file(self, path);
    ssize_t got = fd;
    while (fd >= 0 && (got = read(fd, buffer, size)) < 0 && errno == EINTR)
        ;
    return fd >= 0 && got < 0 ? -errno : got;
}

static int directory_read(void *self, const char *path, size_t limit, char **out, size_t *length)
{
    xc_autoclose int fd = open_file(self, path);
    if (fd < 0)
        return fd;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    int rc = xc_text_read(&text, fd, limit); /* sysfs and procfs do not know their sizes */
    if (rc < 0)
        return rc;
    *length = text.length;
    *out = xc_text_take(&text);
    return *out ? 0 : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

static int directory_list(void *self, const char *path, char ***names)
{
    int fd = open_below(self, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -errno;
    xc_cleanup(close_dir) DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -ENOMEM;
    }
    size_t count = 0, size = 16;
    xc_autonames char **list = calloc(size, sizeof *list);
    struct dirent *entry;
    while (list && (entry = readdir(dir))) {
        if (xc_streq(entry->d_name, ".") || xc_streq(entry->d_name, ".."))
            continue;
        if (count + 1 == size) {
            char **larger = realloc(list, 2 * size * sizeof *list);
            if (!larger)
                return -ENOMEM;
            list = larger;
            size *= 2;
        }
        list[count] = strdup(entry->d_name);
        if (!list[count])
            return -ENOMEM;
        list[++count] = NULL;
    }
    if (!list)
        return -ENOMEM;
    qsort(list, count, sizeof *list, by_name);
    *names = list;
    list = NULL;
    return 0;
}

/* The path behind an O_PATH descriptor, as the kernel names it. */
static char *fd_path(int fd)
{
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0)
        return NULL;
    target[length] = '\0';
    return strdup(target);
}

static int directory_canonical(void *self, const char *path, char **out)
{
    struct directory *dir = self;
    xc_autoclose int fd = open_below(dir, path, O_PATH);
    if (fd < 0)
        return -errno;
    xc_autofree char *full = fd_path(fd);
    if (!full)
        return -ENOMEM;
    size_t skip = dir->prefix ? strlen(dir->prefix) : 0;
    if (skip && !xc_starts(full, dir->prefix))
        return -EXDEV;
    *out = strdup(full[skip] ? full + skip : "/");
    return *out ? 0 : -ENOMEM;
}

static int directory_trusted(void *self, const char *path)
{
    xc_autoclose int fd = open_below(self, path, O_PATH);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    bool owned = st.st_uid == 0 || st.st_uid == geteuid();
    return owned && S_ISREG(st.st_mode) && !(st.st_mode & (S_IWGRP | S_IWOTH)) ? 0 : -EPERM;
}

static void directory_close(void *self)
{
    struct directory *dir = self;
    if (dir->fd >= 0)
        close(dir->fd);
    free(dir->prefix);
    free(dir);
}

static const struct xc_root_ops directory_ops = {
    .read = directory_read,
    .start = directory_start,
    .list = directory_list,
    .canonical = directory_canonical,
    .trusted = directory_trusted,
    .close = directory_close,
};

static int open_base(struct directory *dir, const char *path, struct xc_error *error)
{
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0)
        return xc_error_errno(error, path, "cannot open the machine's root directory");
    dir->prefix = fd_path(dir->fd);
    if (!dir->prefix)
        return xc_error_errno(error, path, "cannot tell its path");
    int probe = open_below(dir, "/", O_PATH);
    if (probe < 0)
        return xc_error_set(error, XC_ENOTSUP, path,
                            "this kernel has no openat2 (Linux 5.6): only the live machine or an "
                            "archive can be read");
    close(probe);
    return 0;
}

int xc_root_open_dir(const char *path, struct xc_root **out, struct xc_error *error)
{
    struct directory *dir = calloc(1, sizeof *dir);
    if (!dir)
        return xc_error_nomem(error);
    dir->fd = AT_FDCWD;
    if (!xc_streq(path, "/") && open_base(dir, path, error) < 0) {
        directory_close(dir);
        return -1;
    }
    if (xc_root_new(&directory_ops, dir, path, out, error) < 0) {
        directory_close(dir);
        return -1;
    }
    return 0;
}

bool xc_root_is_live(const struct xc_root *root)
{
    return root->ops == &directory_ops && ((struct directory *)root->self)->fd == AT_FDCWD;
}

/* ---- what readers call ----------------------------------------------------------------------------- */

static char *path_of(const char *format, va_list args)
{
    struct xc_text path = XC_TEXT_INIT;
    xc_text_addv(&path, format, args);
    return xc_text_take(&path);
}

static char *read_file(struct xc_root *root, const char *path, size_t *length,
                       struct xc_error *error)
{
    char *content = NULL;
    size_t got;
    int rc = root->ops->read(root->self, path, XC_READ_LIMIT, &content, &got);
    if (rc < 0) {
        errno = -rc;
        xc_error_errno(error, path, "cannot read it");
        return NULL;
    }
    if (length)
        *length = got;
    return content;
}

ssize_t xc_root_read_start(struct xc_root *root, void *buffer, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    if (!path)
        return -1;
    if (root->ops->start) {
        ssize_t got = root->ops->start(root->self, path, buffer, size);
        return got < 0 ? -1 : got;
    }
    size_t length;
    xc_autofree char *content = read_file(root, path, &length, NULL);
    if (!content)
        return -1;
    memcpy(buffer, content, length < size ? length : size);
    return (ssize_t)(length < size ? length : size);
}

char *xc_root_read(struct xc_root *root, size_t *length, struct xc_error *error, const char *format,
                   ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    if (!path) {
        xc_error_nomem(error);
        return NULL;
    }
    return read_file(root, path, length, error);
}

bool xc_root_read_long(struct xc_root *root, long *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    xc_autofree char *content = path ? read_file(root, path, NULL, NULL) : NULL;
    if (!content)
        return false;
    char *number = xc_trim(content), *end;
    errno = 0;
    long value = strtol(number, &end, 0);
    if (errno != 0 || end == number || *end)
        return false;
    *out = value;
    return true;
}

char *xc_root_read_line(struct xc_root *root, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    char *content = path ? read_file(root, path, NULL, NULL) : NULL;
    if (content)
        content[strcspn(content, "\n")] = '\0';
    return content;
}

bool xc_root_read_set(struct xc_root *root, struct xc_set *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    xc_autofree char *content = path ? read_file(root, path, NULL, NULL) : NULL;
    return content && xc_set_parse_list(out, content, path, NULL) == 0;
}

char **xc_root_list(struct xc_root *root, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    char **names = NULL;
    return path && root->ops->list(root->self, path, &names) == 0 ? names : NULL;
}

char *xc_root_canonical(struct xc_root *root, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    char *out = NULL;
    return path && root->ops->canonical(root->self, path, &out) == 0 ? out : NULL;
}

bool xc_root_exists(struct xc_root *root, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *path = path_of(format, args);
    va_end(args);
    char *out = NULL;
    bool exists = path && root->ops->canonical(root->self, path, &out) == 0;
    free(out);
    return exists;
}

int xc_root_trusted(struct xc_root *root, const char *path, struct xc_error *error)
{
    if (xc_root_is_live(root)) {
        xc_autoclose int fd = xc_open_trusted(path, error);
        return fd < 0 ? -1 : 0;
    }
    if (!root->ops->trusted)
        return xc_error_set(error, XC_ENOTSUP, path, "an archive does not tell who owns it");
    int rc = root->ops->trusted(root->self, path);
    if (rc == -EPERM)
        return xc_error_set(error, XC_EOWNER, path, "others than root can write it");
    errno = -rc;
    return rc < 0 ? xc_error_errno(error, path, "cannot look at it") : 0;
}
