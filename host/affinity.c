/* What can be done where systemd cannot narrow units, on cgroup v1? The threads of services that run are
 * bound one by one. PID 1 is bound too: what it starts later inherits its mask, but for slurmd, which is
 * given all CPUs by name. */
#include <ctype.h>

#include "work.h"

/* The unit that systemd keeps a process in; NULL: none of the host's own. On the heap. */
static char *unit_of(struct xc_root *root, const char *pid)
{
    xc_autofree char *text = xc_root_read(root, NULL, NULL, "/proc/%s/cgroup", pid);
    const char *key = ":name=systemd:/";
    char *path = text ? strstr(text, key) : NULL;
    if (!path || strstr(text, "/job_")) /* Slurm's directory in any hierarchy */
        return NULL;
    path += strlen(key);
    path[strcspn(path, "\n")] = '\0';
    if (xc_starts(path, "init.scope") || xc_starts(path, "user.slice") ||
        xc_starts(path, "machine.slice"))
        return strndup(path, strcspn(path, "/"));
    char *end = strstr(path, ".service");
    if (!xc_starts(path, "system.slice/") || !end || (end[8] != '/' && end[8] != '\0'))
        return NULL; /* a scope: a container's, or Slurm's */
    end[8] = '\0';
    return strdup(strrchr(path, '/') + 1);
}

static bool is_kept(const struct host_units *units, const char *name)
{
    const struct host_unit *unit = host_units_find(units, name);
    return host_unit_starts_jobs(units, name) || (unit && unit->pinned);
}

void host_each_thread(struct xc_root *root, const struct host_units *units,
                      void (*each)(void *ctx, const char *unit, const char *tid), void *ctx)
{
    xc_autonames char **names = xc_root_list(root, "/proc");
    for (char **name = names; name && *name; name++) {
        xc_autofree char *unit = isdigit((unsigned char)**name) ? unit_of(root, *name) : NULL;
        xc_autofree char *command = unit ? xc_root_read_line(root, "/proc/%s/comm", *name) : NULL;
        if (!unit || !command || is_kept(units, unit) || xc_streq(command, "slurmd") ||
            xc_starts(command, "slurmstepd"))
            continue;
        xc_autonames char **threads = xc_root_list(root, "/proc/%s/task", *name);
        for (char **thread = threads; thread && *thread; thread++)
            each(ctx, unit, *thread);
    }
}

static void plan_thread(void *ctx, const char *unit, const char *tid)
{
    struct host *host = ctx;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_autofree char *start = host_thread_started(host->in->root, tid);
    if (!start || !host_thread_cpus(host->in->root, tid, &cpus) ||
        xc_set_subset(&cpus, &host->housekeeping))
        return;
    xc_autofree char *was = xc_set_format(&cpus);
    host->failed |= !was;
    if (was)
        host_change(host, &(struct host_change){.kind = HOST_THREAD,
                                                .part = XC_HOST_SERVICES,
                                                .path = (char *)(uintptr_t)tid,
                                                .what = (char *)(uintptr_t)unit,
                                                .was = was,
                                                .want = host->cpus,
                                                .tag = start});
}

static void want_all_cpus(struct host *host, const char *unit)
{
    xc_autofree char *online = xc_set_format(&host->online);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, HOST_MARK "[Service]\nCPUAffinity=%s\n", online ? online : "");
    host->failed |= !online || text.failed;
    if (!host->failed)
        host_want_dropin(host, XC_HOST_SERVICES, unit, HOST_DROPIN_NAME, text.data);
}

void host_plan_affinity(struct host *host, const struct host_units *units)
{
    static const char *const slurmd[] = {"slurmd.service", "slurmd@.service"};
    for (size_t i = 0; i < XC_COUNT(slurmd); i++) {
        const struct host_unit *unit = host_units_find(units, slurmd[i]);
        if (!unit || !unit->pinned)
            want_all_cpus(host, slurmd[i]);
    }
    for (size_t i = 0; i < units->count; i++)
        if (units->list[i].jobs && !units->list[i].pinned)
            want_all_cpus(host, units->list[i].name);
    host_each_thread(host->in->root, units, plan_thread, host);
    host_say(
        host->report, XC_HOST_SERVICES, XC_HOST_KEPT, "cgroup v1", "", "",
        "services are bound by affinity alone, which they can undo; AllowedCPUs= needs cgroup v2");
}

void host_bind_thread(struct host *host, const struct host_change *change)
{
    struct xc_root *root = host->in->root;
    const struct xc_host_system *system = host->in->system;
    xc_autoset struct xc_set is = XC_SET_EMPTY;
    xc_autofree char *start = host_thread_started(root, change->path);
    long tid;
    if (!xc_streq(start, change->tag) || !xc_to_long(change->path, 1, INT32_MAX, &tid))
        return; /* it has ended */
    int rc = system->bind(system->ctx, (int)tid, &host->housekeeping);
    xc_autofree char *now = host_thread_cpus(root, change->path, &is) ? xc_set_format(&is) : NULL;
    if (!now)
        return;
    bool so = rc == 0 && xc_set_subset(&is, &host->housekeeping);
    host_say(host->report, change->part, so ? XC_HOST_SET : XC_HOST_REFUSED, change->what,
             change->was, now, "%s", rc < 0 ? strerror(-rc) : "");
}
