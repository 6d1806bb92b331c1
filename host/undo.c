/* How does the host get back what it had before apply? From the record; what somebody has changed since is
 * left as it is. */
#include <errno.h>

#include "work.h"

#define IRQS "/proc/irq/"

struct undo {
    const struct xc_host_input *in;
    struct xc_host_report *report;
    struct host_state state;
};

/* What a person calls it: the unit, "24 eth0-rx-0", "default". */
static char *name_of(const struct host_record *record)
{
    struct xc_text text = XC_TEXT_INIT;
    const char *path = record->path, *slash;
    int length;
    switch (record->kind) {
    case HOST_CPUSET: /* …/UNIT/cpuset.cpus */
        slash = strrchr(path, '/');
        length = (int)(slash - path);
        while (length > 0 && path[length - 1] != '/')
            length--;
        xc_text_addf(&text, "%.*s", (int)(slash - path) - length, path + length);
        break;
    case HOST_THREAD:
        xc_text_addf(&text, "thread %s", path);
        break;
    case HOST_FILE:
        if (*record->tag)
            xc_text_addf(&text, "%.*s %s", (int)strspn(path + strlen(IRQS), "0123456789"),
                         path + strlen(IRQS), record->tag);
        else
            xc_text_add(&text, record->part == XC_HOST_IRQS ? "default" : "unbound work");
        break;
    case HOST_DROPIN:
        xc_text_add(&text, path);
        break;
    }
    return xc_text_take(&text);
}

/* The set that a record's `was` means; an absent or empty cpuset is the empty set. */
static void parse_was(const struct host_record *record, struct xc_set *out)
{
    if (xc_streq(record->was, "-"))
        return;
    if ((host_is_mask(record->path) ? xc_set_parse_mask(out, record->was, NULL, NULL)
                                    : xc_set_parse_list(out, record->was, NULL, NULL)) < 0)
        xc_set_clear(out);
}

static void say(struct undo *undo, const struct host_record *record, enum xc_host_outcome outcome,
                const struct xc_set *now, const char *why)
{
    xc_autoset struct xc_set was = XC_SET_EMPTY;
    if (record->kind != HOST_DROPIN)
        parse_was(record, &was);
    xc_autofree char *name = name_of(record), *before = xc_set_format(now);
    xc_autofree char *after = outcome == XC_HOST_KEPT ? NULL : xc_set_format(&was);
    undo->report->failed |= !name;
    host_say(undo->report, record->part, outcome, name, before, after ? after : before, "%s", why);
}

/* ---- one thing --------------------------------------------------------------------------------------- */

/* A cpuset with processes in it cannot be made empty again: all CPUs that there can ever be say the same. */
static int write_back(struct undo *undo, const struct host_record *record)
{
    int rc = host_write_file(undo->in, record->path, xc_streq(record->was, "-") ? "" : record->was);
    if (rc != -ENOSPC || record->kind != HOST_CPUSET)
        return rc;
    xc_autofree char *all = xc_root_read_line(undo->in->root, "/sys/devices/system/cpu/possible");
    return all ? host_write_file(undo->in, record->path, all) : rc;
}

static void restore(struct undo *undo, const struct host_record *record)
{
    xc_autoset struct xc_set was = XC_SET_EMPTY, is = XC_SET_EMPTY;
    if (host_read_back(undo->in, record->path, &is) < 0)
        return; /* the unit has ended, the device is gone */
    parse_was(record, &was);
    if (xc_set_equal(&was, &is)) {
        say(undo, record, XC_HOST_RESTORED, &is, "");
        return;
    }
    if (xc_set_empty(&is) || !xc_set_subset(&is, &undo->state.cpus)) {
        say(undo, record, XC_HOST_KEPT, &is, "somebody has changed it since apply");
        return;
    }
    if (undo->in->dry) {
        say(undo, record, XC_HOST_WOULD, &is, "");
        return;
    }
    int rc = write_back(undo, record);
    say(undo, record, rc < 0 ? XC_HOST_REFUSED : XC_HOST_RESTORED, &is,
        rc < 0 ? strerror(-rc) : "");
}

static bool same_interrupt(const struct undo *undo, const struct host_record *record)
{
    const char *number = record->path + strlen(IRQS);
    if (!*record->tag)
        return true;
    xc_autofree char *action = xc_root_read_line(undo->in->root, "/sys/kernel/irq/%.*s/actions",
                                                 (int)strcspn(number, "/"), number);
    return xc_streq(action, record->tag);
}

/* Since Linux 6.2 a thread gets its own mask back with its cpuset; before, it has to be given back. */
static void restore_thread(struct undo *undo, const struct host_record *record)
{
    xc_autoset struct xc_set was = XC_SET_EMPTY, is = XC_SET_EMPTY;
    xc_autofree char *start = host_thread_started(undo->in->root, record->path);
    long tid;
    if (!xc_streq(start, record->tag) || !xc_to_long(record->path, 1, INT32_MAX, &tid) ||
        !host_thread_cpus(undo->in->root, record->path, &is))
        return; /* it has ended */
    parse_was(record, &was);
    int rc = 0;
    if (undo->in->dry && !xc_set_equal(&was, &is)) {
        say(undo, record, XC_HOST_WOULD, &is, "");
        return;
    }
    if (!xc_set_equal(&was, &is))
        rc = undo->in->system->bind(undo->in->system->ctx, (int)tid, &was);
    if (rc != -ESRCH)
        say(undo, record, rc < 0 ? XC_HOST_REFUSED : XC_HOST_RESTORED, &is,
            rc < 0 ? strerror(-rc) : "");
}

/* A unit that was started after apply has no record: it had nothing, and gets nothing. */
static void restore_later(struct undo *undo, char *const *cgroups)
{
    for (char *const *cgroup = cgroups; cgroup && *cgroup; cgroup++) {
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, HOST_CGROUP "/%s/cpuset.cpus", *cgroup);
        xc_autofree char *path = xc_text_take(&text);
        xc_autoset struct xc_set is = XC_SET_EMPTY;
        if (!path || host_state_find(&undo->state, HOST_CPUSET, path) ||
            !xc_root_read_set(undo->in->root, &is, "%s", path) || xc_set_empty(&is) ||
            !xc_set_subset(&is, &undo->state.cpus))
            continue;
        struct host_record none = {.kind = HOST_CPUSET,
                                   .part = XC_HOST_SERVICES,
                                   .path = path,
                                   .was = (char *)(uintptr_t) "-",
                                   .tag = (char *)(uintptr_t) ""};
        restore(undo, &none);
    }
}

/* ---- all ------------------------------------------------------------------------------------------------ */

static bool has_kind(const struct undo *undo, enum host_kind kind)
{
    for (size_t i = 0; i < undo->state.count; i++)
        if (undo->state.records[i].kind == kind)
            return true;
    return false;
}

static void tell_systemd(struct undo *undo)
{
    const struct xc_host_system *system = undo->in->system;
    struct xc_error error = {0};
    char text[sizeof error];
    struct xc_set none = XC_SET_EMPTY;
    bool irqbalance = false;
    for (size_t i = 0; i < undo->state.count; i++) {
        const struct host_record *record = &undo->state.records[i];
        if (record->kind != HOST_DROPIN)
            continue;
        irqbalance |= record->part == XC_HOST_IRQS;
        if (undo->in->dry && xc_root_exists(undo->in->root, "%s", record->path))
            say(undo, record, XC_HOST_WOULD, &none, "taken away");
        if (!undo->in->dry && host_remove_dropin(undo->in, record->path, &error) < 0)
            say(undo, record, XC_HOST_REFUSED, &none, xc_error_text(&error, text, sizeof text));
    }
    if (undo->in->dry)
        return;
    if (system->systemctl(system->ctx, "daemon-reload", NULL, &error) < 0 ||
        (irqbalance && host_irqbalance_is_stale(undo->in->root, "") &&
         system->systemctl(system->ctx, "try-restart", "irqbalance.service", &error) < 0))
        host_say(undo->report, XC_HOST_SERVICES, XC_HOST_REFUSED, "systemctl", "", "", "%s",
                 xc_error_text(&error, text, sizeof text));
}

/* Units that the site has pinned since apply keep what they have. */
static void restore_units(struct undo *undo)
{
    for (size_t i = 0; i < undo->state.count; i++)
        if (undo->state.records[i].kind == HOST_CPUSET)
            restore(undo, &undo->state.records[i]);
    struct host_units units = {0};
    host_units_read(undo->in->root, &units);
    xc_autonames char **services = host_service_cgroups(undo->in->root);
    size_t kept = 0;
    for (char **service = services; service && *service; service++) {
        const char *slash = strrchr(*service, '/');
        const struct host_unit *unit = host_units_find(&units, slash ? slash + 1 : *service);
        char *name = *service;
        *service = NULL;
        if (unit && unit->pinned)
            free(name);
        else
            services[kept++] = name;
    }
    restore_later(undo, services);
    char *slices[] = {(char *)(uintptr_t) "machine.slice", (char *)(uintptr_t) "user.slice", NULL};
    restore_later(undo, slices);
    host_units_clear(&units);
}

/* On cgroup v1 what PID 1 has started since apply has its mask, and no record. */
static void restore_later_thread(void *ctx, const char *unit, const char *tid)
{
    struct undo *undo = ctx;
    xc_autoset struct xc_set is = XC_SET_EMPTY, all = XC_SET_EMPTY;
    long number;
    if (host_state_find(&undo->state, HOST_THREAD, tid) || undo->in->dry ||
        !xc_to_long(tid, 1, INT32_MAX, &number) || !host_thread_cpus(undo->in->root, tid, &is) ||
        !xc_set_subset(&is, &undo->state.cpus) ||
        !xc_root_read_set(undo->in->root, &all, "/sys/devices/system/cpu/possible"))
        return;
    int rc = undo->in->system->bind(undo->in->system->ctx, (int)number, &all);
    xc_autofree char *now = xc_set_format(&is), *list = xc_set_format(&all);
    if (rc != -ESRCH)
        host_say(undo->report, XC_HOST_SERVICES, rc < 0 ? XC_HOST_REFUSED : XC_HOST_RESTORED, unit,
                 now, list, "%s", rc < 0 ? strerror(-rc) : "");
}

static void restore_threads_of_v1(struct undo *undo)
{
    struct host_units units = {0};
    if (host_cgroup2(undo->in->root))
        return;
    host_units_read(undo->in->root, &units);
    host_each_thread(undo->in->root, &units, restore_later_thread, undo);
    host_units_clear(&units);
}

static void carry_out(struct undo *undo)
{
    if (has_kind(undo, HOST_DROPIN)) {
        tell_systemd(undo);
        restore_units(undo);
        restore_threads_of_v1(undo);
    }
    for (size_t i = 0; i < undo->state.count; i++) {
        const struct host_record *record = &undo->state.records[i];
        if (record->kind == HOST_THREAD)
            restore_thread(undo, record);
        else if (record->kind == HOST_FILE && same_interrupt(undo, record))
            restore(undo, record);
    }
}

static int run(struct undo *undo, struct xc_error *error)
{
    xc_autoclose int lock = undo->in->dry ? -1 : host_lock(undo->in, error);
    if ((!undo->in->dry && lock < 0) || host_state_read(undo->in, &undo->state, error) < 0)
        return -1;
    if (undo->state.count == 0) {
        undo->report->why = strdup("nothing has been set since the boot");
        return undo->report->why ? 0 : xc_error_nomem(error);
    }
    carry_out(undo);
    if (undo->report->failed)
        return xc_error_nomem(error);
    if (undo->in->dry || xc_host_report_count(undo->report, XC_HOST_REFUSED) > 0)
        return 0; /* what was refused can be tried again */
    return host_state_remove(undo->in, error);
}

int xc_host_undo(const struct xc_host_input *input, struct xc_host_report *report,
                 struct xc_error *error)
{
    struct undo undo = {.in = input, .report = report};
    report->dry = input->dry;
    int rc = run(&undo, error);
    host_state_clear(&undo.state);
    return rc;
}
