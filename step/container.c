/* How do the topology file and xcloud-exec get into a container that no hook has prepared?
 *
 * A container that runs already and is entered (pyxis, --container-name), or a node without the enroot
 * hook: root takes detached mounts of both files in the task's process before the container plugin
 * has it, and the task, inside, puts them where they belong. That takes no rights but those that a
 * task has in its container's user namespace, and needs Linux 5.12 (mount_setattr).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/mount.h>)
#include <linux/mount.h>
#endif

#include "internal.h"

#ifndef MS_PRIVATE
#define MS_PRIVATE (1 << 18) /* <sys/mount.h>, which does not go with <linux/mount.h> */
#endif

/* ---- namespaces ------------------------------------------------------------------------------------ */

/* "mnt:[4026531841]": less work for the kernel than stat. */
static unsigned long namespace_of(const char *link)
{
    char text[64];
    ssize_t length = readlink(link, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *number = strchr(text, '[');
    return number ? strtoul(number + 1, NULL, 10) : 0;
}

static struct step_ns namespaces(void)
{
    return (struct step_ns){.mount = namespace_of("/proc/self/ns/mnt"),
                            .user = namespace_of("/proc/self/ns/user")};
}

/* ---- on the host, as root ---------------------------------------------------------------------------- */

#if defined MOUNT_ATTR_RDONLY && defined SYS_open_tree && defined SYS_mount_setattr
static int detached_mount(int fd, bool executable)
{
    int mount =
        (int)syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr attributes = {
        .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                    (executable ? 0 : MOUNT_ATTR_NOEXEC),
        .propagation = MS_PRIVATE,
    };
    if (mount >= 0 &&
        syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) {
        close(mount);
        return -1;
    }
    return mount;
}

static int attach(int mount, const char *path)
{
    return (int)syscall(SYS_move_mount, mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}
#else
static int detached_mount(int fd, bool executable)
{
    (void)fd;
    (void)executable;
    return -1;
}

static int attach(int mount, const char *path)
{
    (void)mount;
    (void)path;
    errno = ENOSYS;
    return -1;
}
#endif

/* Whether a task may have GPUs for several workers, which xcloud-exec would bind. */
static bool may_have_workers(const struct xc_step *step)
{
    return step->rules->bind.torchrun && step->environment && !step->observe && step->node &&
           step->ntasks < step->node->ngpus;
}

void container_prepare(struct xc_step *step, int local_id, bool in_container)
{
    if (!step->active)
        return;
    step->topo.ns = namespaces();
    if (!in_container || local_id != 0)
        return;
    step->topo.imex = devices_imex(step);
    if (step->topo.fd >= 0)
        step->topo.mount = detached_mount(step->topo.fd, false);
    if (may_have_workers(step)) {
        xc_autoclose int fd = xc_open_trusted(STEP_EXEC, NULL);
        if (fd >= 0)
            step->topo.exec_mount = detached_mount(fd, true);
    }
}

/* ---- inside, as the user ------------------------------------------------------------------------------ */

/* Makes the directories and an empty file to mount on; what is there already is left as it is. */
static bool make_target(const char *path)
{
    xc_autofree char *directory = strdup(path);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (!slash)
        return false;
    *slash = '\0';
    if (*directory && xc_make_dirs(directory, 0755, NULL) < 0)
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EEXIST;
    close(fd);
    return true;
}

/* Where the container's root cannot be written and lacks the target: its tmpfs (enroot's fstab). The
 * last one may be the host's /tmp, which all users share: each has one of his own. */
static const char *const elsewhere[] = {"/run/xcloud", "/var/run/xcloud", "/tmp/.xcloud-"};

static size_t elsewhere_directory(const struct xc_step *step, size_t index, char *out, size_t size)
{
    bool shared = index == XC_COUNT(elsewhere) - 1;
    return (size_t)(shared ? snprintf(out, size, "%s%u", elsewhere[index], step->uid)
                           : snprintf(out, size, "%s", elsewhere[index]));
}

void container_elsewhere(const struct xc_step *step, const char *path, size_t index, char *out,
                         size_t size)
{
    const char *name = strrchr(path, '/');
    size_t used = elsewhere_directory(step, index, out, size);
    if (used < size)
        snprintf(out + used, size - used, "%s", name ? name : path);
}

/* Whether nobody else can exchange what is there: the directory is this user's alone, and nobody else
 * can exchange that. A file with a mount on it goes, mount and all, with a directory of another's. Users
 * whom the container does not know all look like nobody: but only its owner can write there. */
static bool is_ours(const struct xc_step *step, size_t index)
{
    char path[64];
    struct stat own, parent;
    elsewhere_directory(step, index, path, sizeof path);
    if (lstat(path, &own) < 0)
        return false;
    bool writable = access(path, W_OK) == 0;
    *strrchr(path, '/') = '\0';
    return S_ISDIR(own.st_mode) && own.st_uid == geteuid() && !(own.st_mode & 022) && writable &&
           stat(path, &parent) == 0 && (!(parent.st_mode & 022) || (parent.st_mode & S_ISVTX));
}

/* The directory first: what is made in another's could be anywhere. */
static bool make_elsewhere(const struct xc_step *step, size_t index, const char *path)
{
    char directory[64];
    elsewhere_directory(step, index, directory, sizeof directory);
    return (mkdir(directory, 0755) == 0 || errno == EEXIST) && is_ours(step, index) &&
           make_target(path);
}

static bool place_elsewhere(const struct xc_step *step, int mount, const char *path)
{
    char other[STEP_PLACED];
    bool done = false;
    for (size_t i = 0; !done && i < CONTAINER_ELSEWHERE; i++) {
        container_elsewhere(step, path, i, other, sizeof other);
        done = make_elsewhere(step, i, other) && attach(mount, other) == 0;
    }
    return done;
}

static bool place_there(int mount, const char *path)
{
    return make_target(path) && attach(mount, path) == 0;
}

/* Where xcloud-exec is: at its own place, or where a task has put it. */
static bool find_exec(struct xc_step *step)
{
    snprintf(step->topo.exec, sizeof step->topo.exec, "%s", STEP_EXEC);
    bool found = access(step->topo.exec, X_OK) == 0;
    for (size_t i = 0; !found && i < CONTAINER_ELSEWHERE; i++) {
        if (!is_ours(step, i))
            continue;
        container_elsewhere(step, STEP_EXEC, i, step->topo.exec, sizeof step->topo.exec);
        found = access(step->topo.exec, X_OK) == 0;
    }
    return found;
}

/* The topology file where the site has it; xcloud-exec, which nobody but PYTHON_EXEC names, rather in the
 * container's memory: what is made on its disk takes longer than all else of a task. */
static void place(struct xc_step *step)
{
    int *file = &step->topo.mount, *exec = &step->topo.exec_mount;
    char why[STEP_WHY];
    if (*file >= 0 && !topo_file_good(step->topo.path, step->topo.fd, why) &&
        !place_there(*file, step->topo.path))
        place_elsewhere(step, *file, step->topo.path);
    if (*exec >= 0 && !find_exec(step) && !place_elsewhere(step, *exec, STEP_EXEC))
        place_there(*exec, STEP_EXEC);
}

void container_enter(struct xc_step *step, int local_id)
{
    _Static_assert(CONTAINER_ELSEWHERE == XC_COUNT(elsewhere), "internal.h counts them");
    struct step_ns now = namespaces();
    step->topo.container = now.user != step->topo.ns.user || now.mount != step->topo.ns.mount;
    if (local_id == 0 && step->topo.container)
        place(step);
    xc_close_ptr(&step->topo.mount);
    xc_close_ptr(&step->topo.exec_mount);
    step->topo.mount = step->topo.exec_mount = -1;
}

/* Which of the places has it: all tasks look, since one of them has placed it for all. */
void container_find(struct xc_step *step)
{
    char why[STEP_WHY], other[STEP_PLACED];
    if (!step->topo.container) {
        snprintf(step->topo.exec, sizeof step->topo.exec, "%s", STEP_EXEC);
        return;
    }
    if (may_have_workers(step))
        find_exec(step);
    if (!step->topo.path || step->topo.fd < 0 ||
        topo_file_good(step->topo.path, step->topo.fd, why))
        return;
    for (size_t i = 0; i < CONTAINER_ELSEWHERE; i++) {
        container_elsewhere(step, step->topo.path, i, other, sizeof other);
        if (is_ours(step, i) && topo_file_good(other, step->topo.fd, why)) {
            memcpy(step->topo.placed, other, sizeof other);
            return;
        }
    }
}
