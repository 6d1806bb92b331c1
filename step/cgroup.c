/* Which cgroup holds the tasks of this step, which CPUs has it, and how is it narrowed?
 *
 * Paths are never made up, they are read from /proc/PID/cgroup: Slurm 26.05 names jobs by SLUID, and
 * a multiple-slurmd build puts the node's name in. What is narrowed is the step's own directory: on
 * v1 `…/step_S` (Slurm gives the directories below it to the user, who could step out of them), on v2
 * `…/step_S/user`. The job's cpuset is never touched: every later step rewrites it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define EVICTIONS_MAX 10000 /* directories of a user's in a step that has not begun */

/* ---- small files --------------------------------------------------------------------------------- */

static char *read_at(int dir_fd, const char *name, struct xc_error *error)
{
    xc_autoclose int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        xc_error_errno(error, name, "cannot open it");
        return NULL;
    }
    return xc_read_fd(fd, name, XC_READ_LIMIT, NULL, error);
}

static int read_set_at(int dir_fd, const char *name, struct xc_set *out, struct xc_error *error)
{
    xc_autofree char *list = read_at(dir_fd, name, error);
    return list ? xc_set_parse_list(out, list, name, error) : -1;
}

static int write_set_at(int dir_fd, const char *name, const struct xc_set *set,
                        struct xc_error *error)
{
    xc_autofree char *list = xc_set_format(set);
    xc_autoclose int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
    if (!list)
        return xc_error_nomem(error);
    if (fd < 0)
        return xc_error_errno(error, name, "cannot open it for writing");
    size_t length = strlen(list);
    if (write(fd, list, length) != (ssize_t)length)
        return xc_error_errno(error, name, "cannot write it");
    return 0;
}

/* ---- finding it ------------------------------------------------------------------------------------ */

/* The path on the line of /proc/PID/cgroup for cpuset (v1) or for the unified hierarchy, or NULL. */
static char *own_path(char *lines, bool v1)
{
    for (char *line; (line = strsep(&lines, "\n"));) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        bool wanted = v1 ? xc_streq(controllers, "cpuset") || xc_starts(controllers, "cpuset,") ||
                               strstr(controllers, ",cpuset")
                         : xc_starts(line, "0:") && *controllers == '\0';
        if (wanted)
            return path;
    }
    return NULL;
}

/* "step_0", "step_batch", "step_0+1" (a heterogeneous job's component). */
static bool is_step_name(const struct xc_step *step, const char *name, size_t length)
{
    char want[32];
    const char *word = step_kind_word(step->kind);
    if (word)
        snprintf(want, sizeof want, "step_%s", word);
    else
        snprintf(want, sizeof want, "step_%u", step->step_id);
    size_t have = strlen(want);
    return length >= have && memcmp(name, want, have) == 0 && (length == have || name[have] == '+');
}

/* Cuts path behind this step's own component; false when it has none. */
static bool cut_at_step(const struct xc_step *step, char *path, bool *deep)
{
    for (char *part = path; *part;) {
        while (*part == '/')
            part++;
        size_t length = strcspn(part, "/");
        if (is_step_name(step, part, length)) {
            *deep = part[length] != '\0';
            part[length] = '\0';
            return true;
        }
        part += length;
    }
    return false;
}

static char *read_proc_cgroup(const struct xc_step *step, pid_t pid, struct xc_error *error)
{
    char name[64];
    if (pid > 0)
        snprintf(name, sizeof name, "%d/cgroup", (int)pid);
    else
        snprintf(name, sizeof name, "self/cgroup");
    return read_at(step->proc_fd, name, error);
}

static int open_cpuset(int mount_fd, const char *path, const char *below, const char *probe,
                       struct step_cpuset *out, struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", path + strspn(path, "/"), below);
    out->path = xc_text_take(&text);
    if (!out->path)
        return xc_error_nomem(error);
    out->fd = openat(mount_fd, out->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out->fd >= 0 && faccessat(out->fd, probe, F_OK, 0) < 0) { /* controller not enabled here */
        close(out->fd);
        out->fd = -1;
    }
    return 0;
}

int cpuset_find(const struct xc_step *step, pid_t pid, struct step_cpuset *out,
                struct xc_error *error)
{
    *out = (struct step_cpuset){.fd = -1};
    xc_autofree char *lines = read_proc_cgroup(step, pid, error);
    if (!lines)
        return -1;
    xc_autofree char *again = strdup(lines);
    if (!again)
        return xc_error_nomem(error);
    char *path = step->cpuset_v1_fd >= 0 ? own_path(lines, true) : NULL;
    if (path && cut_at_step(step, path, &out->deep)) {
        out->v1 = true;
        return open_cpuset(step->cpuset_v1_fd, path, "", "cpuset.cpus", out, error);
    }
    path = step->cgroup_v2_fd >= 0 ? own_path(again, false) : NULL;
    if (path && cut_at_step(step, path, &out->deep))
        return open_cpuset(step->cgroup_v2_fd, path, "/user", "cpuset.cpus.effective", out, error);
    return 0;
}

void cpuset_close(struct step_cpuset *cpuset)
{
    if (cpuset->fd >= 0)
        close(cpuset->fd);
    free(cpuset->path);
    *cpuset = (struct step_cpuset){.fd = -1};
}

/* ---- reading and narrowing ------------------------------------------------------------------------------ */

int cpuset_effective(const struct step_cpuset *cpuset, struct xc_set *cpus, struct xc_set *mems,
                     struct xc_error *error)
{
    const char *cpu_file = cpuset->v1 ? "cpuset.effective_cpus" : "cpuset.cpus.effective";
    const char *mem_file = cpuset->v1 ? "cpuset.effective_mems" : "cpuset.mems.effective";
    if (read_set_at(cpuset->fd, cpu_file, cpus, error) < 0)
        return xc_error_wrap(error, "the step's cpuset %s", cpuset->path);
    if (mems && read_set_at(cpuset->fd, mem_file, mems, error) < 0)
        return xc_error_wrap(error, "the step's cpuset %s", cpuset->path);
    return 0;
}

bool cpuset_constrained(const struct step_cpuset *cpuset)
{
    static const char *const files[] = {"cpuset.cpus", "../cpuset.cpus", "../../cpuset.cpus"};
    for (size_t i = 0; !cpuset->v1 && i < XC_COUNT(files); i++) {
        xc_autofree char *text = read_at(cpuset->fd, files[i], NULL);
        if (text && *xc_trim(text))
            return true;
    }
    return cpuset->v1;
}

void cpuset_job_cpus(const struct step_cpuset *cpuset, struct xc_set *cpus)
{
    const char *file = cpuset->v1 ? "../cpuset.effective_cpus" : "../../cpuset.cpus.effective";
    if (read_set_at(cpuset->fd, file, cpus, NULL) < 0)
        xc_set_clear(cpus);
}

/* v1 demands that a directory's CPUs contain those of the ones below it: depth first. */
static int narrow_below(int dir_fd, const struct xc_set *keep, unsigned depth,
                        struct xc_error *error)
{
    int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir || depth > 8) {
        if (dir)
            closedir(dir);
        else if (copy >= 0)
            close(copy);
        return xc_error_set(error, XC_ESYS, NULL,
                            depth > 8 ? "its directories are more than 8 deep"
                                      : "cannot list its directories");
    }
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        xc_autoclose int child =
            openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child < 0)
            continue; /* gone meanwhile */
        rc = narrow_below(child, keep, depth + 1, error);
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        if (rc == 0 && read_set_at(child, "cpuset.cpus", &cpus, NULL) == 0 &&
            !xc_set_empty(&cpus) && !xc_set_subset(&cpus, keep)) {
            xc_set_and(&cpus, keep);
            rc = write_set_at(child, "cpuset.cpus", xc_set_empty(&cpus) ? keep : &cpus, error);
        }
    }
    closedir(dir);
    return rc;
}

/* ---- a directory that others are at ------------------------------------------------------------------------ */

static int open_directory(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The name of some directory in it; false: there is none. */
static bool any_directory(int dir_fd, char name[NAME_MAX + 1])
{
    int copy = open_directory(dir_fd, ".");
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    bool found = false;
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        found = entry->d_type == DT_DIR && entry->d_name[0] != '.';
        if (found)
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    else if (copy >= 0)
        close(copy);
    return found;
}

static void move_processes(int from, int to)
{
    xc_autofree char *pids = read_at(from, "cgroup.procs", NULL);
    char *rest = pids;
    for (char *pid; (pid = strsep(&rest, "\n"));) {
        xc_autoclose int fd = openat(to, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || (*pid && write(fd, pid, strlen(pid)) < 0))
            continue; /* it has ended meanwhile */
    }
}

/* Removes one directory that has none in it; its processes go up into the step. */
static bool evict_one(int step_fd)
{
    char name[NAME_MAX + 1], below[NAME_MAX + 1];
    int at = open_directory(step_fd, "."), child;
    if (at < 0 || !any_directory(at, name)) {
        if (at >= 0)
            close(at);
        return false;
    }
    while ((child = open_directory(at, name)) >= 0) {
        if (fchown(child, 0, 0) < 0 || !any_directory(child, below)) {
            move_processes(child, step_fd);
            close(child);
            break;
        }
        close(at);
        at = child;
        memcpy(name, below, sizeof name);
    }
    bool gone = unlinkat(at, name, AT_REMOVEDIR) == 0;
    close(at);
    return gone;
}

int cpuset_take_back(const struct step_cpuset *cpuset)
{
    char name[NAME_MAX + 1];
    if (!cpuset->v1 || cpuset->fd < 0 || cpuset->deep)
        return 0;
    if (fchown(cpuset->fd, 0, 0) < 0) /* from now on nothing new comes */
        return -1;
    if (!any_directory(cpuset->fd, name))
        return 0;
    for (unsigned tries = 0; tries < EVICTIONS_MAX && any_directory(cpuset->fd, name); tries++)
        evict_one(cpuset->fd);
    return any_directory(cpuset->fd, name) ? -1 : 1;
}

static int set_all(const struct step_cpuset *cpuset, const struct xc_set *was,
                   const struct xc_set *keep, struct xc_error *error)
{
    xc_autoset struct xc_set both = XC_SET_EMPTY;
    xc_set_copy(&both, was);
    xc_set_or(&both, keep);
    if (both.failed)
        return xc_error_nomem(error);
    /* what is below must fit before and after: wide first when something is added */
    if (cpuset->v1 && !xc_set_subset(keep, was) &&
        write_set_at(cpuset->fd, "cpuset.cpus", &both, error) < 0)
        return -1;
    if (cpuset->v1 && narrow_below(cpuset->fd, keep, 0, error) < 0)
        return -1;
    return write_set_at(cpuset->fd, "cpuset.cpus", keep, error);
}

int cpuset_set(const struct step_cpuset *cpuset, const struct xc_set *keep, struct xc_error *error)
{
    xc_autoset struct xc_set was = XC_SET_EMPTY, now = XC_SET_EMPTY;
    if (xc_set_empty(keep))
        return xc_error_set(error, XC_EINPUT, cpuset->path, "nothing would be left of it");
    if (cpuset_effective(cpuset, &was, NULL, error) < 0)
        return -1;
    if (set_all(cpuset, &was, keep, error) < 0)
        return xc_error_wrap(error, "cannot change the step's cpuset %s", cpuset->path);
    if (cpuset_effective(cpuset, &now, NULL, error) < 0)
        return -1;
    if (!xc_set_subset(&now, keep)) {
        xc_autofree char *list = xc_set_format(&now);
        return xc_error_set(error, XC_ESYS, cpuset->path,
                            "the kernel made it CPUs %s although it took the change",
                            list ? list : "?");
    }
    return 0;
}
