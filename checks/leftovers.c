/* Has somebody else this job's GPUs open? By the device's number, whatever a process calls it, and
 * unless it may: another running job's, or a daemon of the site's that no user can pass for. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "work.h"

static const struct xc_check_param leftovers_params[] = {
    {"except", XC_PARAM_NAMES,
     "nvidia-persiste*,nv-fabricmanag*,nv-hostengine*,nvidia-imex*,dcgm*,nvidia-dcgm*,xcloud*",
     "daemons that may have a GPU open: root's processes by name (15 characters), others by their "
     "system service",
     NULL},
    {0},
};

/* ---- which GPU a process has open ---------------------------------------------------------------- */

/* The job's GPU with this minor: its index in the node, or -1. */
static int job_gpu(const struct xc_check_input *in, long minor)
{
    for (size_t i = 0; i < in->job->ngpus; i++) {
        int gpu = in->job->gpus[i];
        if (gpu >= 0 && (size_t)gpu < in->node->ngpus && in->node->gpus[gpu].minor == minor)
            return gpu;
    }
    return -1;
}

/* The GPU of the job that a process of a described machine has open. */
static int described_gpu(const struct xc_check_input *in, const char *pid)
{
    xc_autonames char **fds = xc_root_list(in->root, "/proc/%s/fd", pid);
    int gpu = -1;
    for (char **fd = fds; fd && *fd && gpu < 0; fd++) {
        xc_autofree char *path = xc_root_canonical(in->root, "/proc/%s/fd/%s", pid, *fd);
        long minor;
        if (path && xc_starts(path, "/dev/nvidia") && xc_to_long(path + 11, 0, 4095, &minor))
            gpu = job_gpu(in, minor);
    }
    return gpu;
}

#define NVIDIA_MAJOR 195
#define OPENED_MAX   400000 /* of all processes: a user must not keep a prolog busy */

/* With O_PATH anybody gets a descriptor, and opens nothing. */
static bool only_path(const char *pid, const char *fd)
{
    char name[64], text[256] = "";
    snprintf(name, sizeof name, "/proc/%.16s/fdinfo/%.16s", pid, fd);
    xc_autoclose int info = open(name, O_RDONLY | O_CLOEXEC);
    const char *flags =
        info >= 0 && read(info, text, sizeof text - 1) > 0 ? strstr(text, "flags:") : NULL;
    return !flags || (strtoul(flags + 6, NULL, 8) & O_PATH);
}

/* The job's GPUs as the kernel numbers devices: asked once, and not for each descriptor. */
struct device {
    unsigned major, minor;
    int gpu;
};
struct devices {
    struct device *list;
    size_t count;
};

static bool find_devices(const struct xc_check_input *in, struct devices *out)
{
    *out = (struct devices){.list = calloc(in->job->ngpus, sizeof *out->list)};
    for (size_t i = 0; out->list && i < in->job->ngpus; i++) {
        struct statx node;
        char name[32];
        int gpu = in->job->gpus[i];
        if (gpu < 0 || (size_t)gpu >= in->node->ngpus || in->node->gpus[gpu].minor < 0)
            continue;
        struct device *device = &out->list[out->count++];
        *device = (struct device){NVIDIA_MAJOR, (unsigned)in->node->gpus[gpu].minor, gpu};
        snprintf(name, sizeof name, "/dev/nvidia%u", device->minor);
        if (statx(AT_FDCWD, name, AT_STATX_DONT_SYNC, STATX_TYPE, &node) == 0 &&
            S_ISCHR(node.stx_mode)) {
            device->major = node.stx_rdev_major;
            device->minor = node.stx_rdev_minor;
        }
    }
    return out->list;
}

/* The GPU that a descriptor is, by its device number. Its path is its user's: a process in a mount
 * namespace of its own calls things as it likes, and following the name may hang. */
static int device_gpu(const struct devices *devices, int fds, const char *pid, const char *fd)
{
    struct statx st;
    if (statx(fds, fd, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0 ||
        !S_ISCHR(st.stx_mode))
        return -1;
    for (size_t i = 0; i < devices->count; i++)
        if (st.stx_rdev_major == devices->list[i].major &&
            st.stx_rdev_minor == devices->list[i].minor && !only_path(pid, fd))
            return devices->list[i].gpu;
    return -1;
}

/* The same on this machine; *left: descriptors that may still be looked at. */
static int live_gpu(const struct devices *devices, const char *pid, size_t *left)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *dir = opendir(path);
    int gpu = -1;
    for (struct dirent *entry; dir && gpu < 0 && *left > 0 && (entry = readdir(dir)); --*left)
        if (entry->d_name[0] != '.')
            gpu = device_gpu(devices, dirfd(dir), pid, entry->d_name);
    if (dir)
        closedir(dir);
    return gpu;
}

/* ---- who may ------------------------------------------------------------------------------------- */

/* All four of its user ids: a setuid program that a user has started keeps his in one. */
static bool is_roots(const char *status)
{
    const char *ids = status ? strstr(status, "\nUid:") : NULL;
    unsigned long real, effective, saved, file;
    return ids && sscanf(ids, "\nUid: %lu %lu %lu %lu", &real, &effective, &saved, &file) == 4 &&
           real == 0 && effective == 0 && saved == 0 && file == 0;
}

/* The job whose cgroup a path is below, as slurmstepd makes them: SLURM/uid_N/job_N (v1) and
 * SLURMSTEPD.scope/job_N (v2). 0: none. What is below a user's own slice has names of his, and
 * so has what is below a step: the first one counts. */
static uint32_t job_of_path(const char *path)
{
    const char *job = strstr(path, "/job_"), *parent = job;
    if (!job || xc_starts(path, "/user.slice/"))
        return 0;
    while (parent > path && parent[-1] != '/')
        parent--;
    size_t length = (size_t)(job - parent);
    bool scope = length >= 16 && strncmp(job - 16, "slurmstepd.scope", 16) == 0;
    return scope || strncmp(parent, "uid_", 4) == 0 ? (uint32_t)strtoul(job + 5, NULL, 10) : 0;
}

/* Slurm 26.05 names a job's cgroup by its SLUID: SLURMSTEPD.scope/s1A2B3C4D5E (v2). */
static void sluid_of_path(const char *path, char *sluid, size_t size)
{
    static const char scope[] = "slurmstepd.scope/";
    const char *name = strstr(path, scope), *end;
    if (!name || xc_starts(path, "/user.slice/"))
        return;
    name += strlen(scope);
    for (end = name + (*name == 's'); isupper((unsigned char)*end) || isdigit((unsigned char)*end);)
        end++;
    if (end > name + 1 && (!*end || *end == '/') && (size_t)(end - name) < size)
        snprintf(sluid, size, "%.*s", (int)(end - name), name);
}

/* The unit of a path below system.slice; false: it is none. */
static bool service_of_path(const char *path, char *unit, size_t size)
{
    const char *end = strstr(path, ".service");
    if (!xc_starts(path, "/system.slice/") || !end || (end[8] && end[8] != '/'))
        return false;
    const char *start = end;
    while (start[-1] != '/')
        start--;
    snprintf(unit, size, "%.*s", (int)(end - start) + 8, start);
    return true;
}

/* Where a process is, from /proc/PID/cgroup: its job by number (0: none) or SLUID, and its service ("":
 * none). */
struct where {
    uint32_t job;
    char sluid[32], service[128];
};

static void find_where(const struct xc_check_input *in, const char *pid, struct where *out)
{
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, "/proc/%s/cgroup", pid);
    char *rest = text, *line;
    *out = (struct where){0};
    while (text && (line = strsep(&rest, "\n"))) {
        const char *path = strchr(line, ':');
        path = path ? strchr(path + 1, ':') : NULL;
        if (!path)
            continue;
        uint32_t job = job_of_path(path + 1);
        if (job)
            out->job = job;
        if (!out->sluid[0])
            sluid_of_path(path + 1, out->sluid, sizeof out->sluid);
        if (!out->service[0])
            service_of_path(path + 1, out->service, sizeof out->service);
    }
}

/* Jobs that run here: those that have a slurmstepd, which says so in its title and, where jobs have
 * SLUIDs, is in its job's cgroup. Asked when the first process of a job has a GPU open. */
struct running_job {
    uint32_t id;
    char sluid[32];
};
struct running {
    bool known;
    struct running_job *jobs;
    size_t count;
};

static uint32_t job_of_daemon(const struct xc_check_input *in, const char *pid)
{
    unsigned job = 0;
    xc_autofree char *name = xc_root_read_line(in->root, "/proc/%s/comm", pid);
    if (!xc_streq(name, "slurmstepd"))
        return 0;
    xc_autofree char *status = xc_root_read(in->root, NULL, NULL, "/proc/%s/status", pid);
    if (!is_roots(status)) /* its title is its own, and is read from its memory */
        return 0;
    xc_autofree char *title = xc_root_read(in->root, NULL, NULL, "/proc/%s/cmdline", pid);
    return title && sscanf(title, "slurmstepd: [%u.", &job) == 1 ? job : 0;
}

static void find_running(const struct xc_check_input *in, char *const *pids,
                         struct running *running)
{
    size_t count = 0;
    for (char *const *pid = pids; *pid; pid++)
        count++;
    running->jobs = calloc(count + 1, sizeof *running->jobs);
    for (char *const *pid = pids; running->jobs && *pid; pid++) {
        struct where where;
        uint32_t id = isdigit((unsigned char)**pid) ? job_of_daemon(in, *pid) : 0;
        if (!id)
            continue;
        struct running_job *job = &running->jobs[running->count++];
        find_where(in, *pid, &where);
        job->id = id;
        memcpy(job->sluid, where.sluid, sizeof job->sluid);
    }
    running->known = true;
}

/* Whether a process of a job is one of another job, which runs. */
static bool others(const struct xc_check_input *in, char *const *pids, const struct where *where,
                   struct running *running)
{
    if (!running->known)
        find_running(in, pids, running);
    for (size_t i = 0; i < running->count; i++) {
        const struct running_job *job = &running->jobs[i];
        bool same = where->job ? job->id == where->job : xc_streq(job->sluid, where->sluid);
        if (same && job->id != in->job->id)
            return true;
    }
    return false;
}

static bool is_listed(const struct xc_check_input *in, const char *name)
{
    xc_autonames char **list = xc_names_split(chk_param(in, "except"));
    for (char **one = list; one && *one; one++)
        if (xc_glob(*one, name))
            return true;
    return false;
}

/* Any user can name a process; he can neither make it root's nor put it into a system service. */
static bool may(const struct xc_check_input *in, char *const *pids, const char *pid,
                const char *name, struct running *running)
{
    struct where where;
    find_where(in, pid, &where);
    if (where.job || where.sluid[0])
        return others(in, pids, &where, running);
    if (where.service[0] && is_listed(in, where.service))
        return true;
    if (!is_listed(in, name))
        return false;
    xc_autofree char *status = xc_root_read(in->root, NULL, NULL, "/proc/%s/status", pid);
    return is_roots(status);
}

/* ---- the check ----------------------------------------------------------------------------------- */

static void look_at(const struct xc_check_input *in, char *const *pids, const char *pid, int gpu,
                    struct running *running, struct xc_findings *out)
{
    char bdf[XC_BDF_TEXT];
    xc_autofree char *name = xc_root_read_line(in->root, "/proc/%s/comm", pid);
    if (!name || may(in, pids, pid, name, running))
        return;
    xc_bdf_text(&in->node->pci[in->node->gpus[gpu].pci].bdf, bdf);
    chk_say(out, XC_CHECK_FAIL,
            (struct chk_words){.device = bdf,
                               .hint = "kill it; if it does not die, its GPU needs a reset"},
            "process %s (%s) of somebody else has it open", name, pid);
}

static void run_leftovers(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count, left = OPENED_MAX;
    if (!in->job || in->job->ngpus == 0) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there is no job with GPUs");
        return;
    }
    bool live = xc_root_is_live(in->root);
    struct devices devices = {0};
    struct running running = {0};
    if (live && !find_devices(in, &devices)) {
        out->failed = true;
        return;
    }
    xc_autonames char **names = xc_root_list(in->root, "/proc");
    for (char **pid = names; pid && *pid; pid++) {
        if (!isdigit((unsigned char)**pid))
            continue;
        int gpu = live ? live_gpu(&devices, *pid, &left) : described_gpu(in, *pid);
        if (gpu >= 0)
            look_at(in, names, *pid, gpu, &running, out);
    }
    free(devices.list);
    free(running.jobs);
    if (left == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0},
                "processes have more than %d files open: not all were looked at", OPENED_MAX);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "nobody has the job's %zu GPUs open",
                in->job->ngpus);
}

const struct xc_check chk_gpu_leftovers = {
    .id = "gpu.leftovers",
    .code = "GPU04",
    .what = "no process of an earlier job has this job's GPUs open",
    .cost = XC_COST_SCAN,
    .at = XC_AT_PROLOG | XC_AT_EPILOG,
    .needs = XC_NEEDS_ROOT | XC_NEEDS_JOB,
    .on_fail = XC_FAIL_WARN,
    .params = leftovers_params,
    .run = run_leftovers,
};
