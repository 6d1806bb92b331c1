/* How often did what happen? Counters of this boot in a small file, and Prometheus' view of them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/step.h>

#include "internal.h"

const char *program_word(enum xc_program kind)
{
    static const char *const words[] = {"prolog", "epilog", "health"};
    return words[kind];
}

/* ---- counting ------------------------------------------------------------------------------------------ */

#define LOCK_TRIES 200
#define LOCK_MS    5

/* The parent counts too, and waits for nobody: who holds it may hang. */
static int lock_tally(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    for (unsigned tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || tries == LOCK_TRIES) {
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_MS * 1000000L}, NULL);
    }
    return fd;
}

static void change(const struct program *program, const char *name, int64_t value, bool adds)
{
    xc_autofree char *path = run_path(program, "tally"),
                     *lock_path = run_path(program, "tally.lock");
    if (!path || !lock_path)
        return;
    xc_autoclose int lock = lock_tally(lock_path);
    if (lock < 0)
        return;
    struct xc_check_state old = {0}, new = {0};
    int64_t before = 0;
    xc_check_state_read(path, &old, NULL);
    for (size_t i = 0; i < old.count; i++)
        if (xc_streq(old.counters[i].name, name))
            before = old.counters[i].value;
        else
            xc_check_state_set(&new, old.counters[i].value, "%s", old.counters[i].name);
    xc_check_state_set(&new, adds ? before + value : value, "%s", name);
    xc_check_state_write(&new, path, NULL); /* a lost count is no trouble */
    xc_check_state_clear(&old);
    xc_check_state_clear(&new);
}

void tally_add(const struct program *program, const char *name, int64_t value)
{
    change(program, name, value, true);
}

void tally_put(const struct program *program, const char *name, int64_t value)
{
    change(program, name, value, false);
}

/* ---- telling -------------------------------------------------------------------------------------------- */

static const struct {
    const char *key, *metric, *type, *help;
} series[] = {
    {"runs", "xcloud_runs_total", "counter", "runs of the program since boot"},
    {"would_drain", "xcloud_would_drain_total", "counter",
     "runs that would have drained the node: mode, arming or the last good policy kept it"},
    {"drained", "xcloud_drained_total", "counter", "drains of this node since boot"},
    {"breaker", "xcloud_breaker_refused_total", "counter",
     "drains that the breaker has refused, or that nobody could count"},
    {"failed", "xcloud_drain_failed_total", "counter", "drains that scontrol did not do"},
    {"resumed", "xcloud_resumed_total", "counter", "times that the node was brought back"},
    {"late", "xcloud_late_total", "counter", "runs that were ended at the deadline"},
    {"crashed", "xcloud_crashed_total", "counter", "runs that have crashed"},
    {"at", "xcloud_run_timestamp_seconds", "gauge", "when the program ran last"},
    {"us", "xcloud_run_microseconds", "gauge", "how long the last run took"},
};

static void add_series(const struct xc_check_state *tally, size_t index, struct xc_text *out)
{
    bool head = false;
    for (enum xc_program kind = XC_PROLOG; kind <= XC_HEALTH; kind++) {
        char name[64];
        int64_t value;
        snprintf(name, sizeof name, "%s.%s", program_word(kind), series[index].key);
        if (!xc_check_state_get(tally, name, &value))
            continue;
        if (!head)
            xc_text_addf(out, "# HELP %s %s\n# TYPE %s %s\n", series[index].metric,
                         series[index].help, series[index].metric, series[index].type);
        head = true;
        xc_text_addf(out, "%s{program=\"%s\"} %" PRId64 "\n", series[index].metric,
                     program_word(kind), value);
    }
}

static void add_state(const struct program *program, const struct shared *shared,
                      struct xc_text *out)
{
    struct xc_ledger ledger = {0};
    xc_autofree char *path = ledger_path(program);
    if (path)
        xc_ledger_read(path, &ledger, NULL);
    xc_text_addf(out,
                 "# HELP xcloud_drained 1: drained by xcloud, and not brought back by it\n"
                 "# TYPE xcloud_drained gauge\nxcloud_drained %d\n"
                 "# HELP xcloud_would_drain 1: the last run of the program would have drained\n"
                 "# TYPE xcloud_would_drain gauge\nxcloud_would_drain{program=\"%s\"} %d\n",
                 ledger.drained, program_word(program->kind), shared->wish == WISH_WOULD);
    if (shared->hash[0])
        xc_text_addf(out,
                     "# HELP xcloud_policy_info the policy in force\n"
                     "# TYPE xcloud_policy_info gauge\n"
                     "xcloud_policy_info{sha=\"%s\",mode=\"%s\",class=\"%s\",armed=\"%d\"} 1\n",
                     shared->hash, shared->mode, shared->class_name, shared->armed);
}

static void add_steps(const struct program *program, struct xc_text *out)
{
    uint64_t results[XC_STEP_RESULTS];
    xc_autofree char *path = run_path(program, "steps.count");
    if (!path || xc_step_counts(path, results) < 0)
        return;
    xc_text_add(out, "# HELP xcloud_steps_total steps since boot, by what they came to\n"
                     "# TYPE xcloud_steps_total counter\n");
    for (enum xc_step_result i = 0; i < XC_STEP_RESULTS; i++)
        xc_text_addf(out, "xcloud_steps_total{result=\"%s\"} %" PRIu64 "\n", xc_step_result_name(i),
                     results[i]);
}

/* "/x/node.prom" has "/x/node-acts.prom" beside it. */
static char *acts_path(const char *textfile)
{
    struct xc_text text = XC_TEXT_INIT;
    size_t length = strlen(textfile);
    bool prom = length > 5 && xc_streq(textfile + length - 5, ".prom");
    xc_text_add_n(&text, textfile, prom ? length - 5 : length);
    xc_text_add(&text, "-acts.prom");
    return xc_text_take(&text);
}

int metrics_write(const struct program *program, const struct shared *shared,
                  struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    struct xc_check_state tally = {0};
    xc_autofree char *path = acts_path(shared->textfile), *from = run_path(program, "tally");
    if (from)
        xc_check_state_read(from, &tally, NULL);
    add_state(program, shared, &text);
    add_steps(program, &text);
    for (size_t i = 0; i < XC_COUNT(series); i++)
        add_series(&tally, i, &text);
    xc_check_state_clear(&tally);
    size_t length = text.length;
    xc_autofree char *bytes = xc_text_take(&text);
    return path && bytes ? xc_write_atomic(path, bytes, length, 0644, error)
                         : xc_error_nomem(error);
}
