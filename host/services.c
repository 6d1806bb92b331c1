/* Which units go to the housekeeping CPUs, and how? systemd is told by drop-ins for a type of unit, which
 * hold for what is started later too. system.slice itself stays as it is: jobs live in it. */
#include "work.h"

#define SYSTEMD_DIR "/run/systemd/system" /* sd_booted(3) */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- drop-ins ---------------------------------------------------------------------------------------- */

static void want_cpus(struct host *host, const char *unit, const char *section)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, HOST_MARK "[%s]\nAllowedCPUs=%s\n", section, host->cpus);
    host->failed |= text.failed;
    if (!text.failed)
        host_want_dropin(host, XC_HOST_SERVICES, unit, HOST_DROPIN_NAME, text.data);
}

/* A drop-in of the same name that is nearer to the unit takes the place of the one for its type. */
static void want_exception(struct host *host, const char *unit)
{
    host_want_dropin(host, XC_HOST_SERVICES, unit, HOST_DROPIN_NAME,
                     HOST_MARK "# in place of service.d's: this unit keeps the CPUs it has\n");
}

static void want_service_dropins(struct host *host, const struct host_units *units)
{
    const struct host_unit *all = host_units_find(units, ".service");
    if (all && all->pinned) {
        host_say(host->report, XC_HOST_SERVICES, XC_HOST_KEPT, "service.d", "", "",
                 "the site's own drop-in for all services says AllowedCPUs= or CPUAffinity=");
        return;
    }
    want_cpus(host, "service", "Service");
    want_exception(host, "slurmd.service");
    want_exception(host, "slurmd@.service");
    for (size_t i = 0; i < units->count; i++) {
        const char *dot = strrchr(units->list[i].name, '.');
        if (dot && xc_streq(dot, ".service") && (units->list[i].pinned || units->list[i].jobs))
            want_exception(host, units->list[i].name);
    }
}

static void want_top_dropins(struct host *host, const struct host_units *units, char *const *tops)
{
    static const char *const always[] = {"init.scope", "machine.slice", "user.slice"};
    for (size_t i = 0; i < XC_COUNT(always); i++) {
        const struct host_unit *unit = host_units_find(units, always[i]);
        if ((!unit || !unit->pinned) && !host_units_put_jobs_into(units, always[i]))
            want_cpus(host, always[i], i == 0 ? "Scope" : "Slice");
    }
    for (char *const *top = tops; *top; top++) {
        const struct host_unit *unit = host_units_find(units, *top);
        bool told = false;
        for (size_t i = 0; i < XC_COUNT(always); i++)
            told |= xc_streq(*top, always[i]);
        if (!told && (!unit || !unit->pinned))
            want_cpus(host, *top, "Slice");
    }
}

/* ---- cgroups ------------------------------------------------------------------------------------------ */

static char *cpuset_path(const char *cgroup)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, HOST_CGROUP "/%s/cpuset.cpus", cgroup);
    return xc_text_take(&text);
}

static char *effective(const struct host *host, const char *cgroup)
{
    return xc_root_read_line(host->in->root, HOST_CGROUP "/%s/cpuset.cpus.effective", cgroup);
}

static void keep(struct host *host, const char *cgroup, const struct host_unit *unit)
{
    xc_autofree char *cpus = effective(host, cgroup);
    host_say(host->report, XC_HOST_SERVICES, XC_HOST_KEPT, base_name(cgroup), cpus, cpus, "%s",
             unit && unit->pinned ? "its unit says AllowedCPUs= or CPUAffinity="
                                  : "it starts jobs");
}

/* True: it is narrowed, or has to be; its threads are looked at. */
static bool plan_cgroup(struct host *host, const struct host_units *units, const char *cgroup)
{
    const char *name = base_name(cgroup);
    const struct host_unit *unit = host_units_find(units, name);
    if (host_unit_starts_jobs(units, name) || (unit && unit->pinned)) {
        keep(host, cgroup, unit);
        return false;
    }
    xc_autofree char *path = cpuset_path(cgroup), *now = effective(host, cgroup);
    if (!path) {
        host->failed = true;
        return false;
    }
    xc_autofree char *was = xc_root_read_line(host->in->root, "%s", path);
    bool so = xc_streq(was, host->cpus) && xc_streq(now, host->cpus);
    host_change(host, &(struct host_change){.kind = HOST_CPUSET,
                                            .part = XC_HOST_SERVICES,
                                            .path = path,
                                            .what = (char *)(uintptr_t)cgroup,
                                            .was = was ? was : (char *)(uintptr_t) "-",
                                            .want = host->cpus,
                                            .is_so = so});
    if (so)
        host_say(host->report, XC_HOST_SERVICES, XC_HOST_IS_SO, name, now, now, "%s", "");
    return !so;
}

static void plan_cgroups(struct host *host, const struct host_units *units, char **cgroups)
{
    size_t kept = 0;
    for (char **cgroup = cgroups; *cgroup; cgroup++) {
        char *name = *cgroup;
        *cgroup = NULL;
        if (plan_cgroup(host, units, name))
            cgroups[kept++] = name;
        else
            free(name);
    }
    host_record_threads(host, cgroups);
}

/* ---- the part ------------------------------------------------------------------------------------------ */

static void refuse(struct host *host, const char *why)
{
    host_say(host->report, XC_HOST_SERVICES, XC_HOST_REFUSED, "services", "", "", "%s", why);
}

static void judge_system_slice(struct host *host)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!host_read_cpus(host, &cpus, HOST_CGROUP "/system.slice/cpuset.cpus.effective") ||
        xc_set_subset(&host->online, &cpus))
        return;
    xc_autofree char *text = xc_set_format(&cpus);
    host_say(host->report, XC_HOST_SERVICES, XC_HOST_KEPT, "system.slice", text, text,
             "the site has narrowed it, and with it every job in it; narrow its services instead");
}

void host_plan_services(struct host *host)
{
    struct xc_root *root = host->in->root;
    if (!xc_root_exists(root, SYSTEMD_DIR)) {
        refuse(host, "this host does not run systemd: start its daemons with taskset");
        return;
    }
    if (!host_cgroup2(root)) {
        struct host_units known = {0};
        host_units_read(root, &known);
        host->failed |= known.failed;
        host_plan_affinity(host, &known);
        host_units_clear(&known);
        return;
    }
    if (host_jobs_in_the_way(root)) {
        refuse(host, "jobs run, and turning the cpuset controller on would unbind them: again when "
                     "the node is idle");
        return;
    }
    struct host_units units = {0};
    host_units_read(root, &units);
    xc_autonames char **tops =
        host_top_cgroups(root, host_param(host->in, "host.slices", "except"), &units);
    xc_autonames char **services = host_service_cgroups(root);
    host->failed |= units.failed || !tops || !services;
    if (!host->failed) {
        judge_system_slice(host);
        want_service_dropins(host, &units);
        want_top_dropins(host, &units, tops);
        plan_cgroups(host, &units, services);
        plan_cgroups(host, &units, tops);
    }
    host_units_clear(&units);
}

/* ---- afterwards ---------------------------------------------------------------------------------------- */

static void judge_init(struct host *host)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!host_thread_cpus(host->in->root, "1", &cpus))
        return;
    xc_autofree char *text = xc_set_format(&cpus);
    bool so = xc_set_subset(&cpus, &host->housekeeping);
    if (!so)
        host_say(host->report, XC_HOST_SERVICES, XC_HOST_REFUSED, "PID 1", text, text,
                 "init.scope did not take it there: CPUAffinity= in system.conf does, at the next "
                 "boot");
}

void host_judge_services(struct host *host)
{
    bool any = false;
    for (size_t i = 0; i < host->count; i++) {
        const struct host_change *change = &host->changes[i];
        if (change->kind != HOST_CPUSET)
            continue;
        any = true;
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        xc_autofree char *now = effective(host, change->what);
        if (change->is_so ||
            (!now && !xc_root_exists(host->in->root, HOST_CGROUP "/%s", change->what)))
            continue; /* it has ended */
        bool so = now && xc_set_parse_list(&cpus, now, NULL, NULL) == 0 &&
                  xc_set_subset(&cpus, &host->housekeeping);
        host_say(host->report, XC_HOST_SERVICES, so ? XC_HOST_SET : XC_HOST_REFUSED,
                 base_name(change->what), xc_streq(change->was, "-") ? "" : change->was, now, "%s",
                 so ? "" : "systemd has not narrowed it: AllowedCPUs= needs systemd 244");
    }
    if (any)
        judge_init(host);
}
