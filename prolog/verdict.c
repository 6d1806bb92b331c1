/* What follows from a run's findings? A drain that is wished for, a mark for the job, words for people,
 * and whether a drained node may come back. Nothing is done here: that is act.c's. */
#include <string.h>
#include <time.h>

#include "work.h"

#define WARNINGS_MAX 5 /* told to a job's user */

/* ---- draining ------------------------------------------------------------------------------------------------ */

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
        work_trouble(work, &error, "the job's steps are not told");
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

/* Seconds after a drain: no prolog of a job that was there before it begins any more. */
#define SETTLED_S 60

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
            work_trouble(work, &error, "what was drained here is not known");
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
        work_trouble(work, &error, "the count of clean runs is lost");
}

/* ---- files of a run ------------------------------------------------------------------------------------------- */

static void write_file(struct work *work, const char *path, struct xc_text *text)
{
    struct xc_error error = {0};
    size_t length = text->length;
    xc_autofree char *bytes = xc_text_take(text);
    if (bytes && path && xc_write_atomic(path, bytes, length, 0644, &error) < 0)
        work_trouble(work, &error, "the results of this run are not kept there");
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
        counters_prune(shared->state);
        rc = xc_check_state_write(&work->next, shared->pending, &error);
        if (rc < 0)
            shared->pending[0] = '\0';
    } else {
        shared->pending[0] = '\0';
        rc = counters_keep(&work->next, shared->state, &error);
    }
    if (rc < 0)
        work_trouble(work, &error, "the counters of this run are lost");
}

void work_conclude(struct work *work)
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
