/* Which control groups hold the host's own, and do jobs live in the way? */
#include <ctype.h>

#include "work.h"

#define SYSTEM_SLICE HOST_CGROUP "/system.slice"
#define SLICE_DEPTH  8 /* slices within slices; systemd itself makes two or three */

bool host_cgroup2(struct xc_root *root)
{
    return xc_root_exists(root, HOST_CGROUP "/cgroup.controllers");
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && xc_streq(text + length - tail, end);
}

/* A list of names that grows; ended by NULL. */
struct names {
    char **list;
    size_t count, size;
    bool failed;
};

static void add_name(struct names *names, char *name)
{
    if (names->count + 1 >= names->size) {
        size_t size = names->size ? 2 * names->size : 64;
        char **list = realloc(names->list, size * sizeof *list);
        if (!list) {
            free(name);
            names->failed = true;
            return;
        }
        names->list = list;
        names->size = size;
    }
    names->failed |= !name;
    names->list[names->count] = name;
    if (name)
        names->list[++names->count] = NULL;
}

static char **take_names(struct names *names)
{
    if (!names->failed && !names->list)
        names->list = calloc(1, sizeof *names->list);
    if (names->failed)
        xc_names_free(&names->list);
    return names->list;
}

static void walk(struct xc_root *root, const char *directory, unsigned depth, struct names *names)
{
    xc_autonames char **entries = xc_root_list(root, HOST_CGROUP "/%s", directory);
    for (char **entry = entries; entry && *entry; entry++) {
        bool service = ends(*entry, ".service"), slice = ends(*entry, ".slice");
        if (!service && !slice)
            continue;
        struct xc_text path = XC_TEXT_INIT;
        xc_text_addf(&path, "%s%s%s", directory, *directory ? "/" : "", *entry);
        char *full = xc_text_take(&path);
        if (slice && full && depth < SLICE_DEPTH)
            walk(root, full, depth + 1, names);
        if (service)
            add_name(names, full);
        else
            free(full);
    }
}

char **host_service_cgroups(struct xc_root *root)
{
    struct names names = {0};
    walk(root, "", 0, &names);
    return take_names(&names);
}

/* slurmd's scope may be in any slice (cgroup.conf: CgroupSlice=), and slurmd too. */
static bool has_jobs(struct xc_root *root, const char *slice, unsigned depth)
{
    xc_autonames char **entries = xc_root_list(root, HOST_CGROUP "/%s", slice);
    for (char **entry = entries; entry && *entry; entry++) {
        if (ends(*entry, "slurmstepd.scope") || xc_streq(*entry, "slurmstepd.scope") ||
            xc_streq(*entry, "slurmd.service") || xc_starts(*entry, "slurmd@"))
            return true;
        if (!ends(*entry, ".slice") || depth >= SLICE_DEPTH)
            continue;
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/%s", slice, *entry);
        xc_autofree char *path = xc_text_take(&text);
        if (!path || has_jobs(root, path, depth + 1)) /* without memory: not narrowed */
            return true;
    }
    return false;
}

char **host_top_cgroups(struct xc_root *root, const char *except, const struct host_units *units)
{
    struct names names = {0};
    xc_autonames char **entries = xc_root_list(root, HOST_CGROUP);
    for (char **entry = entries; entry && *entry; entry++)
        if ((ends(*entry, ".slice") || xc_streq(*entry, "init.scope")) &&
            !xc_streq(*entry, "system.slice") && !host_matches(except, *entry) &&
            !host_units_put_jobs_into(units, *entry) && !has_jobs(root, *entry, 0))
            add_name(&names, strdup(*entry));
    return take_names(&names);
}

/* ---- processes ------------------------------------------------------------------------------------- */

static bool has_controller(struct xc_root *root, const char *directory)
{
    xc_autofree char *line = xc_root_read_line(root, "%s/cgroup.subtree_control", directory);
    for (char *word = line, *next; word; word = next) {
        next = strchr(word, ' ');
        if (next)
            *next++ = '\0';
        if (xc_streq(word, "cpuset"))
            return true;
    }
    return false;
}

/* Before Linux 6.2 a process loses its mask when it gets a cpuset: tasks that Slurm has bound by
 * affinity alone would run anywhere. With Slurm's own scope the controller is on already. */
bool host_jobs_in_the_way(struct xc_root *root)
{
    if (has_controller(root, HOST_CGROUP) && has_controller(root, SYSTEM_SLICE))
        return false;
    xc_autonames char **names = xc_root_list(root, "/proc");
    for (char **name = names; name && *name; name++) {
        if (!isdigit((unsigned char)**name))
            continue;
        xc_autofree char *command = xc_root_read_line(root, "/proc/%s/comm", *name);
        if (command && xc_starts(command, "slurmstepd"))
            return true;
    }
    return false;
}

/* The 22nd field of /proc/TID/stat, which tells one thread from a later one with its number. */
char *host_thread_started(struct xc_root *root, const char *tid)
{
    xc_autofree char *line = xc_root_read_line(root, "/proc/%s/stat", tid);
    char *at = line ? strrchr(line, ')') : NULL;
    for (unsigned field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strndup(at + 1, strcspn(at + 1, " ")) : NULL;
}

bool host_thread_cpus(struct xc_root *root, const char *tid, struct xc_set *cpus)
{
    xc_autofree char *status = xc_root_read(root, NULL, NULL, "/proc/%s/status", tid);
    const char *key = "\nCpus_allowed_list:";
    char *list = status ? strstr(status, key) : NULL;
    if (!list)
        return false;
    list += strlen(key);
    list += strspn(list, " \t");
    list[strcspn(list, "\n")] = '\0';
    return xc_set_parse_list(cpus, list, NULL, NULL) == 0;
}

static void record_process(struct host *host, const char *pid, const struct xc_set *group)
{
    struct xc_root *root = host->in->root;
    xc_autonames char **threads = xc_root_list(root, "/proc/%s/task", pid);
    for (char **thread = threads; thread && *thread; thread++) {
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        if (!host_thread_cpus(root, *thread, &cpus) || xc_set_equal(&cpus, group))
            continue;
        xc_autofree char *start = host_thread_started(root, *thread), *list = xc_set_format(&cpus);
        if (start && list)
            host_state_add(&host->state, HOST_THREAD, XC_HOST_SERVICES, *thread, list, start);
    }
}

/* The cgroup v2 path of a process without its first slash; NULL: none, or it has ended. */
static char *cgroup_of(struct xc_root *root, const char *pid)
{
    xc_autofree char *text = xc_root_read(root, NULL, NULL, "/proc/%s/cgroup", pid);
    char *path = text ? strstr(text, "0::/") : NULL;
    if (!path || (path != text && path[-1] != '\n'))
        return NULL;
    path += 4;
    return strndup(path, strcspn(path, "\n"));
}

static bool is_in(const char *path, const char *cgroup)
{
    size_t length = strlen(cgroup);
    return strncmp(path, cgroup, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* What a process may use in its cgroup: where the controller is not on, what the nearest one above says. */
static void group_cpus(struct host *host, char *path, struct xc_set *cpus)
{
    for (char *slash = path; slash; slash = strrchr(path, '/')) {
        if (slash != path)
            *slash = '\0';
        if (xc_root_read_set(host->in->root, cpus, HOST_CGROUP "/%s/cpuset.cpus.effective", path))
            return;
        xc_set_clear(cpus);
    }
    xc_set_copy(cpus, &host->online);
}

void host_record_threads(struct host *host, char *const *cgroups)
{
    struct xc_root *root = host->in->root;
    xc_autonames char **names = xc_root_list(root, "/proc");
    for (char **name = names; name && *name; name++) {
        xc_autofree char *path = isdigit((unsigned char)**name) ? cgroup_of(root, *name) : NULL;
        for (char *const *cgroup = cgroups; path && *cgroup; cgroup++) {
            xc_autoset struct xc_set group = XC_SET_EMPTY;
            if (!is_in(path, *cgroup))
                continue;
            group_cpus(host, path, &group);
            record_process(host, *name, &group);
            break;
        }
    }
}
