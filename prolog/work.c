/* Is this node fit? The child's part: it reads everything, may hang doing so, and leaves what it found
 * in the shared memory. It drains nothing. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/plan.h>

#include "internal.h"

#define HEALTH_PROBE_MS 20000 /* for devices and site programs, all at once */
#define LIVE_MAX_AGE_US (15ll * 60 * 1000000)
#define WARNINGS_MAX    5 /* told to a job's user */

struct work {
    const struct program *program;
    struct shared *shared;
    struct xc_places places;
    struct xc_policy *policy;
    struct xc_policy_source source;
    struct xc_rules *rules;
    struct xc_root *root;
    struct xc_node *node;
    bool live_root;
    struct xc_check_live live;
    struct xc_check_state previous, next;
    struct xc_findings findings;
    int *job_gpus;
    struct xc_check_job job;
};

static void trouble(struct work *work, const struct xc_error *error, const char *so)
{
    char text[sizeof *error];
    say(work->shared, SAY_ERROR, "%s; %s", xc_error_text(error, text, sizeof text), so);
}

/* ---- the policy ---------------------------------------------------------------------------------------- */

/* The first run that sees a policy that loads keeps it: from then on arm_after counts. */
static void keep_good(struct work *work)
{
    size_t length, kept_length;
    struct xc_error error = {0};
    if (work->source.last_good || work->program->report)
        return;
    xc_autofree char *text = xc_read_trusted(work->source.path, XC_POLICY_LIMIT, &length, NULL);
    static const char *const places[] = {XC_RUN_DIR, XC_STATE_DIR};
    for (size_t i = 0; text && i < XC_COUNT(places); i++) {
        xc_autotext struct xc_text path = XC_TEXT_INIT;
        xc_text_addf(&path, "%s%s/policy.good", work->places.prefix, places[i]);
        xc_autofree char *kept =
            path.failed ? NULL : xc_read_trusted(path.data, XC_POLICY_LIMIT, &kept_length, NULL);
        if (kept && kept_length == length && memcmp(kept, text, length) == 0)
            return;
        if (kept)
            break;
    }
    if (text && xc_policy_keep(&work->places, text, length, &error) < 0)
        trouble(work, &error, "no copy of the policy is kept");
}

/* Whether nobody has said it since the boot: /run is of one. */
static bool first_of_boot(const struct program *program, const char *name)
{
    xc_autofree char *path = run_path(program, name);
    xc_autoclose int fd =
        path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644) : -1;
    return fd >= 0 || errno != EEXIST;
}

/* 1: there is none. */
static int load_policy(struct work *work)
{
    struct xc_error error = {0};
    const struct program *p = work->program;
    work->places = (struct xc_places){
        .prefix = p->prefix ? p->prefix : "", .policy = p->policy, .slurm_conf = p->slurm_conf};
    const char *disabled = xc_policy_disabled(&work->places);
    if (disabled) {
        say(work->shared, SAY_NOTICE, "switched off by %s: nothing is checked", disabled);
        return 1;
    }
    if (xc_policy_load(&work->places, &work->policy, &work->source, &error) == 0) {
        snprintf(work->shared->hash, sizeof work->shared->hash, "%s", xc_policy_hash(work->policy));
        work->shared->armed = work->source.armed && !work->source.last_good;
        if (work->source.last_good)
            say(work->shared, SAY_ERROR, "the last good policy is used, and drains no node: %s",
                work->source.live_error);
        return 0;
    }
    if (error.code == XC_ENOENT && !p->policy) {
        if (p->report || first_of_boot(p, "no-policy"))
            say(work->shared, SAY_WARNING,
                "%s: nothing is checked on this node. \"xcloud policy learn\" writes a first one "
                "from a good node; see xcloud-policy(5)",
                error.message);
        return 1;
    }
    trouble(work, &error, "nothing is checked, and no node is drained");
    return -1;
}

static int make_rules(struct work *work, struct xc_error *error)
{
    struct xc_rules *rules = NULL;
    if (xc_plan_rules(work->policy, work->node, work->program->node, &work->program->facts, NULL,
                      &rules, error) < 0)
        return -1;
    xc_rules_free(work->rules);
    work->rules = rules;
    return 0;
}

/* ---- the machine ---------------------------------------------------------------------------------------- */

/* checks_root with the node's name for %n; "/" without. On the heap. */
static char *root_of(const struct work *work)
{
    struct xc_text text = XC_TEXT_INIT;
    const char *at = work->rules->checks_root;
    if (!at)
        return strdup("/");
    for (; *at; at++) {
        if (at[0] == '%' && at[1] == 'n') {
            xc_text_add(&text, work->program->node);
            at++;
        } else {
            xc_text_add_n(&text, at, 1);
        }
    }
    return xc_text_take(&text);
}

/* The programs leave the training CPUs as soon as they know which these are. */
static void leave_training(struct work *work)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!work->live_root || !work->node || make_rules(work, NULL) < 0 ||
        xc_plan_housekeeping(work->node, work->rules, &cpus, NULL, NULL) < 0 || xc_set_empty(&cpus))
        return;
    xc_autofree char *list = xc_set_format(&cpus);
    if (!list || strlen(list) >= sizeof work->shared->housekeeping)
        return;
    use_housekeeping(list);
    strcpy(work->shared->housekeeping, list);
}

/* A reservation of another machine's slurm.conf keeps nothing else from being known. */
static int read_all(struct work *work, const struct xc_slurm_node *slurm, struct xc_error *error)
{
    struct xc_node_options options = {.slurm = slurm};
    if (xc_node_read(work->root, &options, &work->node, error) == 0)
        return 0;
    options.slurm = NULL;
    return slurm ? xc_node_read(work->root, &options, &work->node, error) : -1;
}

/* The snapshot of this boot with its changing part read again, or all of it anew. */
static int refresh(struct work *work, const char *file, const struct xc_slurm_node *slurm,
                   struct xc_error *error)
{
    xc_autofree char *boot = xc_root_read_line(work->root, "/proc/sys/kernel/random/boot_id");
    struct xc_node *old = NULL;
    if (xc_snapshot_map(file, boot ? boot : "", &old, NULL) < 0)
        return read_all(work, slurm, error);
    work->node = old;
    leave_training(work);
    work->node = NULL;
    struct xc_node_options options = {.slurm = slurm};
    int rc = xc_node_refresh(work->root, &options, old, &work->node, NULL);
    xc_node_free(old);
    if (rc == 0)
        return 0;
    work->node = NULL;
    return read_all(work, slurm, error);
}

static void write_snapshot(struct work *work, const char *file)
{
    struct xc_error error = {0};
    xc_autofree char *directory = strdup(file);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (slash)
        *slash = '\0';
    if (!slash || xc_make_dirs(directory, 0755, &error) < 0 ||
        xc_snapshot_write(work->node, file, &error) < 0)
        trouble(work, &error, "the steps see an older snapshot");
}

static int open_machine(struct work *work, struct xc_error *error)
{
    xc_autofree char *path = root_of(work);
    if (!path)
        return xc_error_nomem(error);
    work->live_root = xc_streq(path, "/");
    if (!work->live_root)
        say(work->shared, SAY_NOTICE, "checks_root: the machine in %s is checked, not this one",
            path);
    if (xc_root_open_dir(path, &work->root, error) < 0)
        return -1;
    struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s" XC_SNAPSHOT_FILE, work->live_root ? work->places.prefix : path);
    xc_autofree char *file = xc_text_take(&name);
    struct xc_slurm_node slurm = {0};
    const char *conf = work->live_root ? work->program->slurm_conf : NULL;
    bool known =
        xc_slurm_conf_node(work->root, conf, work->program->node, &slurm, NULL) == 0 && slurm.found;
    int rc = file ? refresh(work, file, known ? &slurm : NULL, error) : xc_error_nomem(error);
    xc_slurm_node_clear(&slurm);
    if (rc < 0)
        return -1;
    if (!work->shared->housekeeping[0])
        leave_training(work);
    if (!work->program->report)
        write_snapshot(work, file);
    return make_rules(work, error);
}

/* ---- the checks ------------------------------------------------------------------------------------------- */

static void take_job_gpus(struct work *work)
{
    xc_autonames char **names =
        work->program->job_gpus ? xc_names_split(work->program->job_gpus) : NULL;
    work->job_gpus = calloc(work->node->ngpus + 1, sizeof *work->job_gpus);
    work->job = (struct xc_check_job){.id = work->program->job, .gpus = work->job_gpus};
    for (char **name = names; work->job_gpus && name && *name; name++)
        for (size_t i = 0; i < work->node->ngpus; i++) {
            long minor;
            bool known = false;
            for (size_t j = 0; j < work->job.ngpus; j++)
                known |= work->job_gpus[j] == (int)i;
            if (!known && xc_to_long(*name, 0, 4096, &minor) &&
                work->node->gpus[i].minor == (int)minor)
                work->job_gpus[work->job.ngpus++] = (int)i;
        }
}

/* What only running something tells: health asks, and keeps it; the others take what it has kept, and
 * ask when there is nothing. */
static void fill_live(struct work *work, const struct xc_check_input *input)
{
    xc_autofree char *file = run_path(work->program, "live");
    struct xc_error error = {0};
    xc_check_live_read(work->root, &work->live);
    if (!file)
        return;
    bool loaded = (work->program->kind != XC_HEALTH || work->shared->no_probe) && work->live_root &&
                  xc_check_live_load(file, LIVE_MAX_AGE_US, &work->live, &error) == 0;
    if (loaded || work->shared->no_probe)
        return;
    if (work->program->kind == XC_HEALTH) {
        xc_check_live_probe(input, HEALTH_PROBE_MS, &work->live);
        if (work->live_root && !work->program->report &&
            xc_check_live_save(&work->live, file, &error) < 0)
            trouble(work, &error, "the prolog asks the devices itself");
    } else {
        xc_check_live_probe(input, work->shared->deadline_ms / 2, &work->live);
    }
}

static enum xc_check_at at_of(enum xc_program kind)
{
    static const enum xc_check_at ats[] = {XC_AT_PROLOG, XC_AT_EPILOG, XC_AT_HEALTH};
    return ats[kind];
}

static int run_checks(struct work *work, struct xc_error *error)
{
    if (xc_check_validate(work->rules, work->source.path, error) < 0)
        return -1;
    work->next.at_us = xc_boottime_us();
    xc_check_state_read(work->shared->state, &work->previous, NULL);
    take_job_gpus(work);
    struct xc_check_input input = {
        .root = work->root,
        .node = work->node,
        .rules = work->rules,
        .node_name = work->program->node,
        .slurm_conf = work->live_root ? work->program->slurm_conf : NULL,
        .at = at_of(work->program->kind),
        .live = &work->live,
        .previous = &work->previous,
        .next = &work->next,
        .job = work->program->kind == XC_HEALTH ? NULL : &work->job,
    };
    if (work->rules->checks_skip && input.at == XC_AT_PROLOG)
        return 0;
    fill_live(work, &input);
    return xc_check_run(&input, NULL, &work->findings, error);
}

/* ---- what follows ------------------------------------------------------------------------------------------ */

static bool bad(const struct xc_finding *finding, enum xc_on_fail on_fail)
{
    return finding->verdict == XC_CHECK_FAIL && finding->on_fail == on_fail;
}

static void add_check(char *list, size_t size, const char *id)
{
    size_t used = strlen(list), length = strlen(id);
    for (const char *at = list; (at = strstr(at, id)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
            return;
    snprintf(list + used, size - used, "%s%s", used ? "," : "", id);
}

static const char *mode_name(enum xc_mode mode)
{
    static const char *const names[] = {"observe", "bind", "enforce"};
    return names[mode];
}

/* Why a failure leads to nothing; NULL: it does lead to something. */
static const char *held_back(const struct work *work)
{
    return work->program->report                  ? "--report"
           : work->rules->mode == XC_MODE_OBSERVE ? "mode observe"
           : work->rules->mode == XC_MODE_BIND    ? "mode bind"
           : work->source.last_good               ? "the live policy does not load"
           : !work->source.armed                  ? "the policy is not armed (xcloud policy arm)"
                                                  : NULL;
}

static void copy_limits(struct work *work)
{
    struct shared *shared = work->shared;
    const struct xc_rules *rules = work->rules;
    shared->cluster = rules->breaker.cluster;
    shared->class_ = rules->breaker.class_;
    shared->job = rules->breaker.job;
    shared->window_s = rules->breaker.window_s;
    shared->jitter_ms = rules->programs.jitter_s * 1000;
    snprintf(shared->directory, sizeof shared->directory, "%s",
             rules->breaker.directory ? rules->breaker.directory : "");
    size_t used = 0;
    for (char **list = rules->class_nodes; list && *list; list++) {
        int length =
            snprintf(shared->class_nodes + used, sizeof shared->class_nodes - used, "%s\n", *list);
        if (length < 0 || used + (size_t)length >= sizeof shared->class_nodes) {
            used = 0; /* its size is not known then: a share of it is one node */
            break;
        }
        used += (size_t)length;
    }
    shared->class_nodes[used] = '\0';
    for (size_t i = 0; i < rules->nchecks; i++)
        for (size_t j = 0; j < rules->checks[i].nkeys; j++)
            if (xc_streq(rules->checks[i].id, "self.scontrol") &&
                xc_streq(rules->checks[i].keys[j], "path"))
                snprintf(shared->scontrol, sizeof shared->scontrol, "%s",
                         rules->checks[i].values[j]);
}

static void say_finding(struct work *work, const struct xc_finding *finding, enum priority priority,
                        const char *so)
{
    xc_autotext struct xc_text line = XC_TEXT_INIT;
    xc_finding_line(finding, &line);
    say(work->shared, priority, "%s%s", line.data ? xc_trim(line.data) : finding->check->id, so);
}

/* --report: everything that is wrong, what would have the worst consequence first. */
static void say_report(struct work *work)
{
    static const struct {
        enum xc_check_verdict verdict;
        enum xc_on_fail on_fail;
        enum priority priority;
        const char *so;
    } levels[] = {
        {XC_CHECK_FAIL, XC_FAIL_DRAIN, SAY_ERROR, " (on_fail: drain)"},
        {XC_CHECK_FAIL, XC_FAIL_REFUSE, SAY_ERROR, " (on_fail: refuse)"},
        {XC_CHECK_FAIL, XC_FAIL_WARN, SAY_WARNING, " (on_fail: warn)"},
        {XC_CHECK_WARN, XC_FAIL_DRAIN, SAY_NOTICE, ""},
        {XC_CHECK_WARN, XC_FAIL_REFUSE, SAY_NOTICE, ""},
        {XC_CHECK_WARN, XC_FAIL_WARN, SAY_NOTICE, ""},
    };
    for (size_t level = 0; level < XC_COUNT(levels); level++)
        for (size_t i = 0; i < work->findings.count; i++) {
            const struct xc_finding *finding = &work->findings.list[i];
            if (finding->verdict == levels[level].verdict &&
                finding->on_fail == levels[level].on_fail)
                say_finding(work, finding, levels[level].priority, levels[level].so);
        }
}

/* A drain: the first finding gives the reason, all give the list. */
static void wish_drain(struct work *work)
{
    struct shared *shared = work->shared;
    const struct xc_finding *first = NULL;
    for (size_t i = 0; i < work->findings.count; i++) {
        const struct xc_finding *finding = &work->findings.list[i];
        if (!bad(finding, XC_FAIL_DRAIN))
            continue;
        if (!first)
            first = finding;
        add_check(shared->checks, sizeof shared->checks, finding->check->id);
        if (!work->program->report)
            say_finding(work, finding, SAY_ERROR, "");
    }
    if (!first)
        return;
    char reason[XC_REASON_MAX];
    xc_finding_reason(first, reason, sizeof reason);
    snprintf(shared->code, sizeof shared->code, "%s", first->check->code);
    xc_reason_make(shared->reason, reason, shared->class_name, work->program->job);
    const char *why = held_back(work);
    shared->wish = why ? WISH_WOULD : WISH_DRAIN;
    if (why && !work->program->report)
        say(shared, SAY_WARNING, "%s would be drained, and is not (%s): %s", work->program->node,
            why, shared->reason);
}

/* What the steps of the job are told, or refused for. */
static void mark_job(struct work *work)
{
    xc_autotext struct xc_text marks = XC_TEXT_INIT;
    const char *why = held_back(work);
    struct xc_error error = {0};
    unsigned warnings = 0;
    if (work->program->kind != XC_PROLOG || work->program->job == 0)
        return;
    for (size_t i = 0; i < work->findings.count; i++) {
        const struct xc_finding *finding = &work->findings.list[i];
        char text[300];
        xc_finding_reason(finding, text, sizeof text);
        if (bad(finding, XC_FAIL_REFUSE) && why)
            say(work->shared, SAY_WARNING, "job %u would be refused, and is not (%s): %s",
                work->program->job, why, text);
        else if (bad(finding, XC_FAIL_REFUSE)) {
            say(work->shared, SAY_WARNING, "job %u is refused here: %s", work->program->job, text);
            xc_text_addf(&marks, "refuse %s\n", text);
        } else if (bad(finding, XC_FAIL_WARN) && work->rules->mode != XC_MODE_OBSERVE &&
                   warnings++ < WARNINGS_MAX)
            xc_text_addf(&marks, "warn %s\n", text);
    }
    if (mark_write(work->program, marks.data ? marks.data : "", &error) < 0)
        trouble(work, &error, "the job's steps are not told");
}

/* What could not be told, in one line. */
static void say_unknown(struct work *work)
{
    xc_autotext struct xc_text list = XC_TEXT_INIT;
    unsigned count = 0;
    for (size_t i = 0; i < work->findings.count; i++) {
        const struct xc_finding *finding = &work->findings.list[i];
        if (finding->verdict != XC_CHECK_UNKNOWN || finding->on_fail < XC_FAIL_REFUSE)
            continue;
        xc_text_addf(&list, "%s%s: %s", count ? "; " : "", finding->check->id, finding->actual);
        count++;
    }
    if (count && list.data)
        say(work->shared, SAY_WARNING, "%u check%s could not tell, which is no failure: %s", count,
            count == 1 ? "" : "s", list.data);
}

/* ---- health: coming back ------------------------------------------------------------------------------------ */

/* Of the checks that had failed: did each pass, or could one not tell? */
static void look_at_drained(const struct work *work, const char *checks, bool *clean, bool *unclear)
{
    xc_autonames char **names = xc_names_split(checks);
    *clean = names && *names;
    *unclear = false;
    for (char **name = names; name && *name; name++) {
        bool found = false;
        for (size_t i = 0; i < work->findings.count; i++) {
            const struct xc_finding *finding = &work->findings.list[i];
            if (!xc_streq(finding->check->id, *name))
                continue;
            found = true;
            *clean &= finding->verdict <= XC_CHECK_UNKNOWN;
            *unclear |= finding->verdict != XC_CHECK_PASS;
        }
        *unclear |= !found;
    }
    for (size_t i = 0; i < work->findings.count; i++)
        *clean &= !bad(&work->findings.list[i], XC_FAIL_DRAIN);
}

#define SETTLED_S                                                                                  \
    60 /* after a drain, no prolog of a job that was there before it begins any more */

/* Drained nodes get no jobs: a prolog since our drain says that somebody has brought the node back. */
static bool job_since(const struct work *work, const struct xc_ledger *ledger)
{
    struct xc_check_state tally = {0};
    int64_t at = 0;
    xc_autofree char *path = run_path(work->program, "tally");
    if (path && xc_check_state_read(path, &tally, NULL) == 0)
        xc_check_state_get(&tally, "prolog.at", &at);
    xc_check_state_clear(&tally);
    return at > ledger->past[0] + SETTLED_S;
}

static void judge_resume(struct work *work)
{
    xc_autofree char *path = ledger_path(work->program);
    struct xc_ledger ledger;
    struct xc_error error = {0};
    bool clean, unclear;
    if (work->program->kind != XC_HEALTH || work->program->report || !path)
        return;
    if (xc_ledger_read(path, &ledger, &error) < 0) {
        if (error.code != XC_ENOENT)
            trouble(work, &error, "what was drained here is not known");
        return;
    }
    if (!ledger.drained)
        return;
    look_at_drained(work, ledger.checks, &clean, &unclear);
    work->shared->resume =
        xc_resume_judge(work->rules, &ledger, clean, unclear, (int64_t)time(NULL));
    if (work->shared->resume == XC_RESUME_LEMON && !ledger.lemon) {
        say(work->shared, SAY_WARNING,
            "%s is mended and stays drained: it was drained %u times or more lately (resume: "
            "lemon); scontrol update nodename=%s state=resume brings it back",
            work->program->node, work->rules->resume.lemon, work->program->node);
        ledger.lemon = true;
    }
    if (work->shared->resume == XC_RESUME_NOW && held_back(work))
        work->shared->resume = XC_RESUME_OFF;
    work->shared->may_be_back = job_since(work, &ledger);
    if (xc_ledger_write(&ledger, path, &error) < 0)
        trouble(work, &error, "the count of clean runs is lost");
}

/* ---- files of a run ------------------------------------------------------------------------------------------- */

static void write_file(struct work *work, const char *path, struct xc_text *text)
{
    struct xc_error error = {0};
    size_t length = text->length;
    xc_autofree char *bytes = xc_text_take(text);
    if (bytes && path && xc_write_atomic(path, bytes, length, 0644, &error) < 0)
        trouble(work, &error, "the results of this run are not kept there");
}

static void write_results(struct work *work)
{
    struct xc_check_about about = {.node = work->program->node,
                                   .boot_id = work->node->boot_id,
                                   .policy_hash = work->shared->hash,
                                   .class_name = work->rules->class_name,
                                   .time = (int64_t)time(NULL)};
    struct xc_text json = XC_TEXT_INIT, prometheus = XC_TEXT_INIT;
    char name[32];
    snprintf(name, sizeof name, "%s.json", program_word(work->program->kind));
    xc_autofree char *path = run_path(work->program, name);
    xc_findings_json(&work->findings, &about, &json);
    write_file(work, path, &json);
    if (work->program->kind == XC_HEALTH && work->shared->textfile[0]) {
        xc_findings_prometheus(&work->findings, &about, &prometheus);
        write_file(work, work->shared->textfile, &prometheus);
    }
}

/* Where a failure waits for its drain, the counters wait too: the next run is to see it again. */
static void keep_counters(struct work *work)
{
    struct xc_error error = {0};
    struct shared *shared = work->shared;
    int rc = 0;
    if (work->rules->checks_skip && work->program->kind == XC_PROLOG)
        return;
    if (shared->wish == WISH_DRAIN) {
        rc = xc_check_state_write(&work->next, shared->pending, &error);
        if (rc < 0)
            shared->pending[0] = '\0';
    } else {
        shared->pending[0] = '\0';
        rc = counters_keep(&work->next, shared->state, &error);
    }
    if (rc < 0)
        trouble(work, &error, "the counters of this run are lost");
}

static void conclude(struct work *work)
{
    const struct xc_rules *rules = work->rules;
    struct shared *shared = work->shared;
    snprintf(shared->mode, sizeof shared->mode, "%s", mode_name(rules->mode));
    snprintf(shared->class_name, sizeof shared->class_name, "%s",
             rules->class_name ? rules->class_name : "");
    if (!shared->textfile[0] && rules->programs.textfile)
        snprintf(shared->textfile, sizeof shared->textfile, "%s", rules->programs.textfile);
    copy_limits(work);
    if (work->program->report)
        say_report(work);
    wish_drain(work);
    say_unknown(work);
    if (work->program->report)
        return;
    mark_job(work);
    judge_resume(work);
    keep_counters(work);
    write_results(work);
    char name[64];
    snprintf(name, sizeof name, "%s.would_drain", program_word(work->program->kind));
    if (shared->wish == WISH_WOULD)
        tally_add(work->program, name, 1);
}

/* ---- where we keep things ---------------------------------------------------------------------------------------- */

/* What others can write is not believed when it is read; why nothing is remembered must be said. */
static void judge_directory(struct work *work, const char *name)
{
    struct stat st;
    xc_autotext struct xc_text path = XC_TEXT_INIT;
    xc_text_addf(&path, "%s%s", work->program->prefix ? work->program->prefix : "", name);
    if (path.failed || stat(path.data, &st) < 0)
        return; /* what could not be written there is said then */
    if (S_ISDIR(st.st_mode) && (st.st_uid == 0 || st.st_uid == geteuid()) &&
        !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return;
    say(work->shared, SAY_WARNING,
        "%s belongs to uid %u, mode %04o: what is kept there is not believed; chown root and chmod "
        "755 mend it",
        path.data, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777u);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static void work_clear(struct work *work)
{
    xc_findings_clear(&work->findings);
    xc_check_live_clear(&work->live);
    xc_check_state_clear(&work->previous);
    xc_check_state_clear(&work->next);
    xc_rules_free(work->rules);
    xc_node_free(work->node);
    xc_root_close(work->root);
    xc_policy_free(work->policy);
    xc_policy_source_clear(&work->source);
    free(work->job_gpus);
}

static void check_all(struct work *work)
{
    struct xc_error error = {0};
    judge_directory(work, XC_RUN_DIR);
    judge_directory(work, XC_STATE_DIR);
    if (load_policy(work) != 0)
        return;
    if (make_rules(work, &error) < 0) {
        trouble(work, &error, "nothing is checked, and no node is drained");
        return;
    }
    if (work->program->kind != XC_HEALTH)
        work->shared->deadline_ms = work->rules->programs.deadline_s * 1000;
    if (open_machine(work, &error) < 0 || run_checks(work, &error) < 0) {
        trouble(work, &error, "nothing is known of this node, and it is not drained");
        return;
    }
    keep_good(work);
    conclude(work);
}

void work_run(void *arg)
{
    struct job *job = arg;
    struct work work = {.program = job->program, .shared = job->shared, .live.dma_latency_us = -1};
    check_all(&work);
    work_clear(&work);
    job->shared->finished = true;
}
