/* How is a node drained, or brought back? Another child's part, for commands and shared directories
 * hang too: count, if there is room drain, and where nodes can only be counted, count again. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define COMMAND_MS 5000
#define SETTLE_MS  1100 /* until the second of the own drain is over */
#define SIZE_FILE  "size"
#define SIZE_AGE_S 3600

struct acting {
    const struct program *program;
    struct shared *shared;
    struct slurm_tools tools;
    struct xc_rules limits; /* breaker alone is filled */
    struct xc_breaker_who who;
    struct xc_ledger ledger;
    char *ledger_file;
    char **class_nodes;
};

static void sleep_ms(unsigned ms)
{
    struct timespec wait = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&wait, &wait) < 0 && errno == EINTR)
        ;
}

static void trouble(struct acting *a, enum priority priority, const struct xc_error *error,
                    const char *so)
{
    char text[sizeof *error];
    say(a->shared, priority, "%s; %s", xc_error_text(error, text, sizeof text), so);
}

/* ---- Slurm's commands ---------------------------------------------------------------------------------- */

/* Sets the node's state; reason NULL: none. */
static int set_state(struct acting *a, const char *state, const char *reason,
                     struct xc_error *error)
{
    char name[300], state_word[32], reason_word[XC_REASON_MAX + 16];
    snprintf(name, sizeof name, "nodename=%s", a->program->node);
    snprintf(state_word, sizeof state_word, "state=%s", state);
    snprintf(reason_word, sizeof reason_word, "reason=%s", reason ? reason : "");
    const char *argv[] = {a->tools.scontrol,           "update", name, state_word,
                          reason ? reason_word : NULL, NULL};
    return run_command(argv, a->program->slurm_conf, COMMAND_MS, NULL, error);
}

/* All nodes, or (alone) this one. */
static int look(struct acting *a, bool alone, struct xc_drains *out, struct xc_error *error)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    const char *argv[] = {a->tools.sinfo,   "-h", "-N", "-o", "%N|%T|%H|%E", alone ? "-n" : NULL,
                          a->program->node, NULL};
    *out = (struct xc_drains){0};
    if (run_command(argv, a->program->slurm_conf, COMMAND_MS, &text, error) < 0)
        return -1;
    return xc_drains_parse(text.data ? text.data : "", a->class_nodes, out, error);
}

/* The node as it is now: ACT_NONE when it is not drained. A drain of ours that the ledger does not know
 * (we were killed in between, the disk was full) is taken into it, or the node never came back. */
static enum act drained_already(struct acting *a, const struct xc_drains *drains)
{
    struct xc_error error = {0};
    const struct xc_drained *me = xc_drains_find(drains, a->program->node);
    if (!me)
        return ACT_NONE;
    if (!xc_starts(me->reason, XC_REASON_PREFIX))
        return ACT_FOREIGN;
    if (!a->ledger.drained && a->ledger_file) {
        xc_ledger_drained(&a->ledger, me->reason, a->shared->checks, (int64_t)time(NULL));
        if (xc_ledger_write(&a->ledger, a->ledger_file, &error) < 0)
            trouble(a, SAY_WARNING, &error, "nobody will know that we have drained this node");
    }
    return ACT_ALREADY;
}

/* ---- after a refusal ------------------------------------------------------------------------------------ */

static void wait_from_now(struct acting *a, unsigned seconds, bool of_job, const char *why)
{
    struct xc_error error = {0};
    if (backoff_begin(a->program, a->shared, seconds, of_job, why, &error) < 0)
        trouble(a, SAY_WARNING, &error, "the next run asks again at once");
}

/* Whether it is too early to ask again. */
static bool is_waiting(struct acting *a)
{
    char why[500];
    unsigned left = backoff_left(a->program, a->shared, why, sizeof why);
    if (left == 0)
        return false;
    say(a->shared, SAY_ERROR, "%s is not drained, and asks again in %u s: %s. It would be: %s",
        a->program->node, left, why, a->shared->reason);
    return true;
}

/* ---- counting ---------------------------------------------------------------------------------------------- */

/* nodes: of the cluster; 0: unknown. */
static enum act refused(struct acting *a, enum xc_breaker_word word,
                        const struct xc_breaker *breaker, const struct xc_breaker_seen *seen,
                        size_t nodes)
{
    char text[400];
    unsigned wait = xc_breaker_wait_s(nodes, random_number());
    xc_breaker_text(word, breaker, seen, &a->who, text, sizeof text);
    say(a->shared, SAY_ERROR, "%s is not drained, the breaker is open: %s. It would be: %s",
        a->program->node, text, a->shared->reason);
    /* in a shared directory the refused are counted, too: within the window they say so again */
    if (a->shared->directory[0] && wait > breaker->window_s / 2)
        wait = breaker->window_s / 2;
    wait_from_now(a, wait, word == XC_FULL_JOB, text);
    return ACT_REFUSED;
}

static enum act uncounted(struct acting *a, const struct xc_error *error)
{
    trouble(a, SAY_ERROR, error, "drained nodes cannot be counted, so this one is not drained");
    say(a->shared, SAY_ERROR, "it would be: %s", a->shared->reason);
    return ACT_UNCOUNTED;
}

/* The controller does not answer: it is not asked by every job's prolog. */
static enum act unanswered(struct acting *a, const struct xc_error *error)
{
    wait_from_now(a, xc_breaker_wait_s(0, random_number()), false,
                  "drained nodes could not be counted");
    return uncounted(a, error);
}

static enum act drain_failed(struct acting *a, const struct xc_error *error)
{
    trouble(a, SAY_ERROR, error, "Slurm is left to drain the node by itself (Prolog error)");
    return ACT_FAILED;
}

/* The own drain was one too many. */
static enum act undo(struct acting *a)
{
    struct xc_error error = {0};
    if (set_state(a, "undrain", NULL, &error) < 0)
        trouble(a, SAY_ERROR, &error, "the node stays drained beyond the breaker's limit");
    return ACT_REFUSED;
}

static void limits_of(struct acting *a, const struct xc_drains *drains, struct xc_breaker *out)
{
    xc_breaker_limits(&a->limits, drains->nodes, a->class_nodes ? drains->class_nodes : 0,
                      a->program->facts.job_nodes, out);
}

/* After the own drain: did others drain themselves at the same moment, and were they first? */
static enum act recount(struct acting *a, struct xc_breaker *breaker)
{
    xc_cleanup(xc_drains_clear) struct xc_drains drains = {0};
    struct xc_error error = {0};
    struct xc_breaker_seen seen;
    sleep_ms(SETTLE_MS);
    if (look(a, false, &drains, &error) < 0) {
        undo(a);
        return unanswered(a, &error);
    }
    const struct xc_drained *me = xc_drains_find(&drains, a->program->node);
    enum xc_breaker_word word = xc_breaker_after(breaker, &a->who, &drains, &seen);
    if (word == XC_MAY_DRAIN || !me || !xc_streq(me->reason, a->shared->reason))
        return ACT_DRAINED;
    undo(a);
    return refused(a, word, breaker, &seen, drains.nodes);
}

static enum act drain_counting(struct acting *a)
{
    xc_cleanup(xc_drains_clear) struct xc_drains drains = {0};
    struct xc_breaker breaker;
    struct xc_error error = {0};
    struct xc_breaker_seen seen;
    if (look(a, false, &drains, &error) < 0)
        return unanswered(a, &error);
    enum act already = drained_already(a, &drains);
    if (already != ACT_NONE)
        return already;
    limits_of(a, &drains, &breaker);
    enum xc_breaker_word word =
        xc_breaker_before(&breaker, &a->who, &drains, (int64_t)time(NULL), &seen);
    if (word != XC_MAY_DRAIN)
        return refused(a, word, &breaker, &seen, drains.nodes);
    a->shared->allowed = true;
    if (set_state(a, "drain", a->shared->reason, &error) < 0)
        return drain_failed(a, &error);
    return recount(a, &breaker);
}

/* ---- slots ------------------------------------------------------------------------------------------------- */

/* Root's, on every node, and nobody else writes in it. */
static int open_slots(const char *path, struct xc_error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        xc_error_errno(error, path, "cannot open the breaker's directory");
    } else if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH))) {
        xc_error_set(error, XC_EOWNER, path, "root must own it, and nobody else write in it");
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Numbers of nodes, for shares: kept in the directory for an hour, so that a storm of failures does
 * not become one of questions. */
static void count_nodes(struct acting *a, int dir_fd, struct xc_drains *sizes)
{
    struct xc_error error = {0};
    struct stat st;
    char name[128], text[64] = "";
    bool shares = a->limits.breaker.cluster.percent || a->limits.breaker.class_.percent;
    if (!shares)
        return;
    snprintf(name, sizeof name, SIZE_FILE ".%s", a->shared->class_name);
    xc_autoclose int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && time(NULL) - st.st_mtime < SIZE_AGE_S &&
        read(fd, text, sizeof text - 1) > 0 &&
        sscanf(text, "%zu %zu", &sizes->nodes, &sizes->class_nodes) == 2)
        return;
    if (look(a, false, sizes, &error) < 0) {
        trouble(a, SAY_WARNING, &error, "a share of nodes is taken to be one node");
        return;
    }
    xc_autotext struct xc_text path = XC_TEXT_INIT;
    xc_text_addf(&path, "%s/%s", a->shared->directory, name);
    int length = snprintf(text, sizeof text, "%zu %zu\n", sizes->nodes, sizes->class_nodes);
    if (!path.failed)
        xc_write_atomic(path.data, text, (size_t)length, 0644, NULL);
}

static enum act drain_with_slot(struct acting *a)
{
    xc_cleanup(xc_drains_clear) struct xc_drains me = {0}, sizes = {0};
    struct xc_error error = {0};
    struct xc_breaker breaker;
    struct xc_slots slots;
    struct xc_breaker_seen seen;
    xc_autoclose int fd = open_slots(a->shared->directory, &error);
    if (fd < 0)
        return uncounted(a, &error);
    if (a->tools.sinfo[0] && look(a, true, &me, NULL) == 0) {
        enum act already = drained_already(a, &me);
        if (already != ACT_NONE)
            return already;
    }
    count_nodes(a, fd, &sizes);
    limits_of(a, &sizes, &breaker);
    int word = xc_slots_take(fd, &breaker, &a->who, &slots, &seen, &error);
    if (word < 0)
        return uncounted(a, &error);
    if (word != XC_MAY_DRAIN)
        return refused(a, (enum xc_breaker_word)word, &breaker, &seen, sizes.nodes);
    a->shared->allowed = true;
    if (set_state(a, "drain", a->shared->reason, &error) < 0)
        return drain_failed(a, &error);
    return ACT_DRAINED;
}

/* ---- draining ------------------------------------------------------------------------------------------------ */

static void after_drain(struct acting *a)
{
    struct shared *shared = a->shared;
    struct xc_error error = {0};
    xc_ledger_drained(&a->ledger, shared->reason, shared->checks, (int64_t)time(NULL));
    if (xc_ledger_write(&a->ledger, a->ledger_file, &error) < 0)
        trouble(a, SAY_WARNING, &error, "nobody will know that we have drained this node");
    say(shared, SAY_ERROR, "%s is drained: %s", a->program->node, shared->reason);
}

/* The counters of a failed run count from when it has led to something. */
static void keep_counters(struct acting *a, bool led_to_something)
{
    struct shared *shared = a->shared;
    if (!shared->pending[0])
        return;
    if (led_to_something)
        counters_take(shared->pending, shared->state, NULL);
    else
        unlink(shared->pending);
    shared->pending[0] = '\0';
}

static void count_act(const struct acting *a)
{
    static const char *const names[] = {[ACT_DRAINED] = "drained",
                                        [ACT_REFUSED] = "breaker",
                                        [ACT_UNCOUNTED] = "breaker",
                                        [ACT_FAILED] = "failed",
                                        [ACT_FORGOTTEN] = NULL};
    char name[64];
    if (!names[a->shared->act])
        return;
    snprintf(name, sizeof name, "%s.%s", program_word(a->program->kind), names[a->shared->act]);
    tally_add(a->program, name, 1);
}

static enum act try_to_drain(struct acting *a)
{
    struct xc_error error = {0};
    if (find_tools(a->shared->scontrol, &a->tools, &error) < 0 && !a->shared->directory[0])
        return uncounted(a, &error);
    return a->shared->directory[0] ? drain_with_slot(a) : drain_counting(a);
}

static void drain(struct acting *a, bool waits)
{
    struct shared *shared = a->shared;
    shared->act = waits ? ACT_REFUSED : try_to_drain(a);
    bool done = shared->act == ACT_DRAINED;
    if (done)
        after_drain(a);
    if (shared->act == ACT_FOREIGN)
        say(shared, SAY_NOTICE, "%s is drained by somebody else, which is left as it is",
            a->program->node);
    keep_counters(a, done || shared->act == ACT_ALREADY || shared->act == ACT_FAILED);
    if (shared->act != ACT_REFUSED && shared->act != ACT_UNCOUNTED)
        backoff_end(a->program);
    count_act(a);
}

/* ---- coming back --------------------------------------------------------------------------------------------- */

/* Whether the node is drained by us still, for the reason that the ledger has. -1: nobody can tell. */
static int is_ours(struct acting *a, struct xc_error *error)
{
    xc_cleanup(xc_drains_clear) struct xc_drains drains = {0};
    if (find_tools(a->shared->scontrol, &a->tools, error) < 0 || look(a, true, &drains, error) < 0)
        return -1;
    const struct xc_drained *me = xc_drains_find(&drains, a->program->node);
    return me && xc_streq(me->reason, a->ledger.reason);
}

/* It is not drained any more, by us or for our reason. */
static void forget(struct acting *a, enum act act)
{
    struct xc_error error = {0};
    a->shared->act = act;
    a->ledger.drained = false;
    if (xc_ledger_write(&a->ledger, a->ledger_file, &error) < 0)
        trouble(a, SAY_WARNING, &error, "the record of our drain stays");
    tally_add(a->program, act == ACT_RESUMED ? "health.resumed" : "health.forgotten", 1);
    if (act == ACT_FORGOTTEN)
        say(a->shared, SAY_NOTICE, "%s is not drained by us any more: its state is left as it is",
            a->program->node);
}

static void resume(struct acting *a)
{
    struct xc_error error = {0};
    int ours = is_ours(a, &error);
    if (ours < 0 || (ours && set_state(a, "resume", NULL, &error) < 0)) {
        trouble(a, SAY_WARNING, &error, "the node could come back, and is left as it is");
        return;
    }
    if (ours)
        say(a->shared, SAY_NOTICE, "%s is back after %u clean runs; it was drained for %s",
            a->program->node, a->ledger.clean, a->ledger.checks);
    forget(a, ours ? ACT_RESUMED : ACT_FORGOTTEN);
}

/* A job runs here: has somebody brought the node back? */
static void look_again(struct acting *a)
{
    if (a->ledger.drained && is_ours(a, NULL) == 0)
        forget(a, ACT_FORGOTTEN);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* One of a node's programs acts at a time. */
static int lock(const struct program *program)
{
    xc_autofree char *path = run_path(program, "act.lock");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
        ;
    return fd;
}

static char **lines_of(const char *text)
{
    size_t count = 0;
    for (const char *c = text; *c; c++)
        count += *c == '\n';
    char **lines = count ? calloc(count + 1, sizeof *lines) : NULL;
    for (size_t i = 0; lines && i < count; i++) {
        size_t length = strcspn(text, "\n");
        lines[i] = strndup(text, length);
        text += length + 1;
    }
    return lines;
}

void act_run(void *arg)
{
    struct job *job = arg;
    struct shared *shared = job->shared;
    struct acting a = {.program = job->program, .shared = shared};
    use_housekeeping(shared->housekeeping);
    a.who = (struct xc_breaker_who){.node = job->program->node,
                                    .class_name = shared->class_name,
                                    .code = shared->code,
                                    .job = job->program->job};
    a.limits.breaker.cluster = shared->cluster;
    a.limits.breaker.class_ = shared->class_;
    a.limits.breaker.job = shared->job;
    a.limits.breaker.window_s = shared->window_s;
    a.class_nodes = lines_of(shared->class_nodes);
    a.ledger_file = ledger_path(job->program);
    bool drains = shared->wish == WISH_DRAIN, waits = drains && is_waiting(&a);
    if (drains && !waits && shared->jitter_ms) /* the more fail at once, the more they are spread */
        sleep_ms((unsigned)(random_number() % shared->jitter_ms));
    xc_autoclose int lock_fd = lock(job->program);
    if (a.ledger_file)
        xc_ledger_read(a.ledger_file, &a.ledger, NULL);
    if (drains) /* another may have asked meanwhile */
        drain(&a, waits || is_waiting(&a));
    else if (shared->resume == XC_RESUME_NOW)
        resume(&a);
    else
        look_again(&a);
    if (shared->textfile[0])
        metrics_write(job->program, shared, NULL);
    free(a.ledger_file);
    xc_names_free(&a.class_nodes);
}
