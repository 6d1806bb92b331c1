/* How is the host brought to what the policy asks? First all is looked at, then what is there is recorded,
 * then it is written, and read back. */
#include <errno.h>
#include <unistd.h>

#include <xcloud/check.h>
#include <xcloud/plan.h>

#include "work.h"

/* ---- what the parts ask ------------------------------------------------------------------------------ */

const char *host_param(const struct xc_host_input *in, const char *check, const char *name)
{
    const struct xc_check *known = xc_check_find(check);
    for (size_t i = 0; i < in->rules->nchecks; i++) {
        const struct xc_check_rule *rule = &in->rules->checks[i];
        for (size_t k = 0; xc_streq(rule->id, check) && k < rule->nkeys; k++)
            if (xc_streq(rule->keys[k], name))
                return rule->values[k];
    }
    for (const struct xc_check_param *p = known ? known->params : NULL; p && p->name; p++)
        if (xc_streq(p->name, name))
            return p->builtin;
    return NULL;
}

bool host_matches(const char *patterns, const char *name)
{
    xc_autonames char **list = patterns ? xc_names_split(patterns) : NULL;
    for (char **one = list; one && *one; one++)
        if (xc_glob(*one, name))
            return true;
    return false;
}

static char *copy(const char *text, bool *failed)
{
    char *out = text ? strdup(text) : NULL;
    *failed |= text && !out;
    return out;
}

void host_change(struct host *host, const struct host_change *change)
{
    if (host->count == host->size) {
        size_t size = host->size ? 2 * host->size : 64;
        struct host_change *changes = realloc(host->changes, size * sizeof *changes);
        if (!changes) {
            host->failed = true;
            return;
        }
        host->changes = changes;
        host->size = size;
    }
    host->changes[host->count++] = (struct host_change){.kind = change->kind,
                                                        .part = change->part,
                                                        .path = copy(change->path, &host->failed),
                                                        .what = copy(change->what, &host->failed),
                                                        .was = copy(change->was, &host->failed),
                                                        .want = copy(change->want, &host->failed),
                                                        .tag = copy(change->tag, &host->failed),
                                                        .is_so = change->is_so};
}

void host_want_dropin(struct host *host, enum xc_host_what part, const char *unit, const char *name,
                      const char *text)
{
    xc_autotext struct xc_text path = XC_TEXT_INIT;
    xc_text_addf(&path, HOST_DROPIN_DIR "/%s.d/%s", unit, name);
    host->failed |= path.failed;
    if (path.failed)
        return;
    xc_autofree char *was = xc_root_read(host->in->root, NULL, NULL, "%s", path.data);
    for (size_t i = 0; i < host->count; i++)
        if (xc_streq(host->changes[i].path, path.data))
            return;
    host_change(host, &(struct host_change){.kind = HOST_DROPIN,
                                            .part = part,
                                            .path = path.data,
                                            .what = (char *)(uintptr_t)unit,
                                            .want = (char *)(uintptr_t)text,
                                            .is_so = xc_streq(was, text)});
}

/* ---- a run ------------------------------------------------------------------------------------------- */

static void host_clear(struct host *host)
{
    for (size_t i = 0; i < host->count; i++) {
        free(host->changes[i].path);
        free(host->changes[i].what);
        free(host->changes[i].was);
        free(host->changes[i].want);
        free(host->changes[i].tag);
    }
    free(host->changes);
    free(host->cpus);
    host_state_clear(&host->state);
    xc_set_free(&host->housekeeping);
    xc_set_free(&host->training);
    xc_set_free(&host->online);
}

static int nothing(struct xc_host_report *report, const char *why, struct xc_error *error)
{
    report->why = strdup(why);
    return report->why ? 1 : xc_error_nomem(error);
}

/* 1: there is nothing to do, and the report says why. */
static int tell_cpus(struct host *host, struct xc_error *error)
{
    const struct xc_rules *rules = host->in->rules;
    xc_autofree char *note = NULL;
    if (xc_plan_housekeeping(host->in->node, rules, &host->housekeeping, &note, error) < 0)
        return -1;
    if (note &&
        rules->cpus.housekeeping == XC_HK_LIST) /* a slip would put the host on fewer CPUs */
        return xc_error_set(error, XC_EINPUT, "cpus.housekeeping", "%s", note);
    xc_node_online(host->in->node, &host->online);
    xc_set_and(&host->housekeeping, &host->online);
    xc_set_copy(&host->training, &host->online);
    xc_set_andnot(&host->training, &host->housekeeping);
    if (host->housekeeping.failed || host->training.failed)
        return xc_error_nomem(error);
    if (xc_set_empty(&host->housekeeping))
        return nothing(host->report,
                       note ? note : "the policy has no housekeeping CPUs: nothing to do", error);
    if (xc_set_empty(&host->training))
        return nothing(host->report, "all CPUs are housekeeping: nothing to do", error);
    if (rules->cpus.host == 0)
        return nothing(host->report, "the policy asks for nothing (cpus: host:): nothing to do",
                       error);
    host->cpus = xc_set_format(&host->housekeeping);
    host->report->housekeeping = xc_set_format(&host->housekeeping);
    return host->cpus && host->report->housekeeping ? 0 : xc_error_nomem(error);
}

static bool refused(const struct host *host, enum xc_host_what part)
{
    for (size_t i = 0; i < host->report->count; i++)
        if (host->report->rows[i].part == part && host->report->rows[i].outcome == XC_HOST_REFUSED)
            return true;
    return false;
}

/* Drop-ins of an earlier apply that the policy or the units no longer ask for go. */
static void plan_leftovers(struct host *host)
{
    for (size_t i = 0; i < host->state.count; i++) {
        const struct host_record *record = &host->state.records[i];
        bool wanted = record->kind != HOST_DROPIN || refused(host, record->part) ||
                      !(host->in->rules->cpus.host & (unsigned)record->part);
        for (size_t k = 0; k < host->count && !wanted; k++)
            wanted = xc_streq(host->changes[k].path, record->path);
        if (!wanted && xc_root_exists(host->in->root, "%s", record->path))
            host_change(host, &(struct host_change){.kind = HOST_DROPIN,
                                                    .part = record->part,
                                                    .path = record->path,
                                                    .what = record->path});
    }
}

static void say_what_is_no_longer_asked(struct host *host)
{
    static const enum xc_host_what parts[] = {XC_HOST_SERVICES, XC_HOST_IRQS, XC_HOST_WORKQUEUES};
    for (size_t p = 0; p < XC_COUNT(parts); p++) {
        bool any = false;
        for (size_t i = 0; i < host->state.count; i++)
            any |= host->state.records[i].part == parts[p];
        if (any && !(host->in->rules->cpus.host & (unsigned)parts[p]))
            host_say(host->report, parts[p], XC_HOST_KEPT, xc_host_part_name(parts[p]), "", "",
                     "set earlier, and the policy no longer asks for it: xcloud host undo, then "
                     "apply");
    }
}

static int plan(struct host *host, struct xc_error *error)
{
    unsigned asked = host->in->rules->cpus.host;
    if (asked & XC_HOST_SERVICES)
        host_plan_services(host);
    if (asked & XC_HOST_IRQS)
        host_plan_irqs(host);
    if (asked & XC_HOST_WORKQUEUES)
        host_plan_workqueues(host);
    plan_leftovers(host);
    say_what_is_no_longer_asked(host);
    return host->failed || host->report->failed ? xc_error_nomem(error) : 0;
}

/* A drop-in is worth a row when it names CPUs; the exceptions show in the rows of their units. */
static bool tells_cpus(const struct host_change *change)
{
    return change->kind == HOST_DROPIN && change->want && strstr(change->want, "AllowedCPUs=");
}

/* A row names CPUs as a list, whatever the file holds. */
static void say_change(struct host *host, const struct host_change *change,
                       enum xc_host_outcome outcome, const char *now, const char *why)
{
    xc_autoset struct xc_set was = XC_SET_EMPTY;
    xc_autofree char *list = NULL;
    if (change->kind == HOST_FILE && host_is_mask(change->path) &&
        xc_set_parse_mask(&was, change->was, NULL, NULL) == 0) {
        xc_set_and(&was, &host->online);
        list = xc_set_format(&was);
    }
    const char *before = list ? list : xc_streq(change->was, "-") ? "" : change->was;
    host_say(host->report, change->part, outcome, change->what, before, now ? now : before, "%s",
             why);
}

static void say_would(struct host *host)
{
    for (size_t i = 0; i < host->count; i++) {
        const struct host_change *change = &host->changes[i];
        if (change->is_so)
            continue;
        if (change->kind != HOST_DROPIN)
            say_change(host, change, XC_HOST_WOULD, host->cpus, "");
        else if (tells_cpus(change))
            host_say(host->report, change->part, XC_HOST_WOULD, change->what, "", host->cpus,
                     "for what starts later");
    }
    if (host->stale_irqbalance)
        host_say(host->report, XC_HOST_IRQS, XC_HOST_WOULD, "irqbalance", "", "",
                 "restarted with the training CPUs banned");
}

/* ---- writing ----------------------------------------------------------------------------------------- */

static int record(struct host *host, struct xc_error *error)
{
    bool any = false;
    for (size_t i = 0; i < host->count; i++) {
        const struct host_change *change = &host->changes[i];
        if (change->is_so)
            continue;
        any = true;
        host_state_add(&host->state, change->kind, change->part, change->path, change->was,
                       change->tag);
    }
    if (!any)
        return 0;
    xc_set_or(&host->state.cpus, &host->housekeeping);
    return host_state_write(host->in, &host->state, error);
}

static bool write_dropins(struct host *host)
{
    bool any = false;
    for (size_t i = 0; i < host->count; i++) {
        const struct host_change *change = &host->changes[i];
        struct xc_error error = {0};
        if (change->kind == HOST_CPUSET)
            any |= !change->is_so; /* a run that was killed before systemd was told */
        if (change->kind != HOST_DROPIN || change->is_so)
            continue;
        int rc = change->want ? host_write_dropin(host->in, change->path, change->want, &error)
                              : host_remove_dropin(host->in, change->path, &error);
        any = true;
        if (rc < 0)
            host_say(host->report, change->part, XC_HOST_REFUSED, change->what, "", "", "%s",
                     error.message);
        else if (tells_cpus(change))
            host_say(host->report, change->part, XC_HOST_SET, change->what, "", host->cpus,
                     "for what starts later");
    }
    return any;
}

static void tell_systemd(struct host *host)
{
    const struct xc_host_system *system = host->in->system;
    struct xc_error error = {0};
    char text[sizeof error];
    if (write_dropins(host) && system->systemctl(system->ctx, "daemon-reload", NULL, &error) < 0)
        host_say(host->report, XC_HOST_SERVICES, XC_HOST_REFUSED, "daemon-reload", "", "", "%s",
                 xc_error_text(&error, text, sizeof text));
    host_judge_services(host);
    if (!host->stale_irqbalance)
        return;
    if (system->systemctl(system->ctx, "try-restart", "irqbalance.service", &error) < 0)
        host_say(host->report, XC_HOST_IRQS, XC_HOST_REFUSED, "irqbalance", "", "", "%s",
                 xc_error_text(&error, text, sizeof text));
    else
        host_say(host->report, XC_HOST_IRQS, XC_HOST_SET, "irqbalance", "", "",
                 "restarted with the training CPUs banned");
}

bool host_is_mask(const char *path)
{
    static const char *const masks[] = {"/default_smp_affinity", "/cpumask"};
    for (size_t i = 0; i < XC_COUNT(masks); i++) {
        size_t length = strlen(path), tail = strlen(masks[i]);
        if (length >= tail && xc_streq(path + length - tail, masks[i]))
            return true;
    }
    return false;
}

int host_read_back(const struct xc_host_input *in, const char *path, struct xc_set *out)
{
    xc_autofree char *text = xc_root_read_line(in->root, "%s", path);
    if (!text)
        return -1;
    return host_is_mask(path) ? xc_set_parse_mask(out, text, path, NULL)
                              : xc_set_parse_list(out, text, path, NULL);
}

static const char *why_not(const struct host_change *change, int number)
{
    if (change->tag && number == ENOSPC)
        return "no vector is left on these CPUs: fewer queues (ethtool -L), or more housekeeping "
               "CPUs";
    return strerror(number);
}

static void write_file(struct host *host, const struct host_change *change)
{
    xc_autoset struct xc_set is = XC_SET_EMPTY;
    int rc = host_write_file(host->in, change->path, change->want);
    if (change->tag && (rc == -EIO || rc == -EPERM)) {
        say_change(host, change, XC_HOST_EXCUSED, NULL, "the kernel spreads it itself");
        return;
    }
    if (rc < 0) {
        say_change(host, change, XC_HOST_REFUSED, NULL, why_not(change, -rc));
        return;
    }
    bool read = host_read_back(host->in, change->path, &is) == 0;
    xc_set_and(&is, &host->online);
    xc_autofree char *now = xc_set_format(&is);
    bool so = read && xc_set_subset(&is, &host->housekeeping);
    say_change(host, change, so ? XC_HOST_SET : XC_HOST_REFUSED, now,
               so ? "" : "the kernel took it, and says otherwise");
}

static void carry_out(struct host *host)
{
    tell_systemd(host);
    for (size_t i = 0; i < host->count; i++)
        if (host->changes[i].kind == HOST_FILE)
            write_file(host, &host->changes[i]);
        else if (host->changes[i].kind == HOST_THREAD)
            host_bind_thread(host, &host->changes[i]);
}

static int run(struct host *host, struct xc_error *error)
{
    int rc = tell_cpus(host, error);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    xc_autoclose int lock = host->in->dry ? -1 : host_lock(host->in, error);
    if (!host->in->dry && lock < 0)
        return -1;
    if (host_state_read(host->in, &host->state, error) < 0 || plan(host, error) < 0)
        return -1;
    if (host->in->dry) {
        say_would(host);
    } else {
        if (record(host, error) < 0)
            return -1;
        carry_out(host);
    }
    return host->report->failed ? xc_error_nomem(error) : 0;
}

int xc_host_apply(const struct xc_host_input *input, struct xc_host_report *report,
                  struct xc_error *error)
{
    struct host host = {.in = input, .report = report};
    report->dry = input->dry;
    int rc = run(&host, error);
    host_clear(&host);
    return rc;
}
