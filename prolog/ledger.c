/* What have we drained here, and may it come back? The node's own memory, so that a healthy run asks
 * nobody. */
#include <inttypes.h>
#include <string.h>

#include <xcloud/prolog.h>

#define HEAD  "xcloud-drained 1"
#define LIMIT 65536

/* ---- the file ----------------------------------------------------------------------------------------- */

static bool take_time(const char *text, int64_t *out)
{
    long number;
    if (!xc_to_long(text, 0, __LONG_MAX__, &number))
        return false;
    *out = number;
    return true;
}

static bool take_line(char *line, struct xc_ledger *out)
{
    char *value = strchr(line, ' ');
    long number;
    if (!value)
        return false;
    *value++ = '\0';
    if (xc_streq(line, "reason")) {
        out->drained = true;
        return snprintf(out->reason, sizeof out->reason, "%s", value) < (int)sizeof out->reason;
    }
    if (xc_streq(line, "checks"))
        return snprintf(out->checks, sizeof out->checks, "%s", value) < (int)sizeof out->checks;
    if (xc_streq(line, "clean")) {
        if (!xc_to_long(value, 0, 1000000, &number))
            return false;
        out->clean = (unsigned)number;
        return true;
    }
    if (xc_streq(line, "bad"))
        return take_time(value, &out->last_bad);
    if (xc_streq(line, "lemon")) {
        out->lemon = xc_streq(value, "1");
        return true;
    }
    if (xc_streq(line, "past")) {
        size_t i = 0;
        while (i < XC_LEDGER_PAST && out->past[i])
            i++;
        return i == XC_LEDGER_PAST || take_time(value, &out->past[i]);
    }
    return false;
}

int xc_ledger_read(const char *path, struct xc_ledger *out, struct xc_error *error)
{
    *out = (struct xc_ledger){0};
    size_t length;
    xc_autofree char *text = xc_read_trusted(path, LIMIT, &length, error);
    if (!text)
        return -1;
    char *rest = text, *line = strsep(&rest, "\n");
    if (!xc_streq(line, HEAD))
        return xc_error_set(error, XC_EINPUT, path, "it does not begin with \"" HEAD "\"");
    for (unsigned number = 2; (line = strsep(&rest, "\n")); number++)
        if (*line && !take_line(line, out)) {
            *out = (struct xc_ledger){0};
            return xc_error_set(error, XC_EINPUT, path, "line %u is none of a drain record",
                                number);
        }
    return 0;
}

int xc_ledger_write(const struct xc_ledger *ledger, const char *path, struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, HEAD "\n");
    if (ledger->drained)
        xc_text_addf(&text, "reason %s\nchecks %s\nclean %u\nbad %" PRId64 "\nlemon %d\n",
                     ledger->reason, ledger->checks, ledger->clean, ledger->last_bad,
                     ledger->lemon);
    for (size_t i = 0; i < XC_LEDGER_PAST && ledger->past[i]; i++)
        xc_text_addf(&text, "past %" PRId64 "\n", ledger->past[i]);
    size_t length = text.length;
    xc_autofree char *bytes = xc_text_take(&text);
    return bytes ? xc_write_atomic(path, bytes, length, 0644, error) : xc_error_nomem(error);
}

void xc_ledger_drained(struct xc_ledger *ledger, const char *reason, const char *checks,
                       int64_t now)
{
    ledger->drained = true;
    ledger->clean = 0;
    ledger->lemon = false;
    ledger->last_bad = now;
    snprintf(ledger->reason, sizeof ledger->reason, "%s", reason);
    snprintf(ledger->checks, sizeof ledger->checks, "%s", checks);
    memmove(&ledger->past[1], &ledger->past[0], (XC_LEDGER_PAST - 1) * sizeof ledger->past[0]);
    ledger->past[0] = now;
}

/* ---- coming back ---------------------------------------------------------------------------------------- */

/* Whether each check that had failed is one that the policy lists. */
static bool all_listed(char *const *listed, const char *checks)
{
    xc_autonames char **failed = xc_names_split(checks);
    if (!listed || !failed || !*failed)
        return false;
    for (char **check = failed; *check; check++) {
        char *const *one = listed;
        while (*one && !xc_streq(*one, *check))
            one++;
        if (!*one)
            return false;
    }
    return true;
}

static unsigned drains_within(const struct xc_ledger *ledger, int64_t now, unsigned seconds)
{
    unsigned count = 0;
    for (size_t i = 0; i < XC_LEDGER_PAST && ledger->past[i]; i++)
        count += now - ledger->past[i] < (int64_t)seconds;
    return count;
}

/* A clock that was wrong and is right again leaves times that have not come: no node waits for those. */
static void leave_future(struct xc_ledger *ledger, int64_t now)
{
    if (ledger->last_bad > now)
        ledger->last_bad = now;
    for (size_t i = 0; i < XC_LEDGER_PAST; i++)
        if (ledger->past[i] > now)
            ledger->past[i] = now;
}

enum xc_resume xc_resume_judge(const struct xc_rules *rules, struct xc_ledger *ledger, bool clean,
                               bool unclear, int64_t now)
{
    if (!ledger->drained)
        return XC_RESUME_NOTHING;
    leave_future(ledger, now);
    if (!clean && !unclear) {
        ledger->clean = 0;
        ledger->last_bad = now;
    } else if (clean && !unclear) {
        ledger->clean++;
    }
    if (!all_listed(rules->resume.checks, ledger->checks))
        return XC_RESUME_OFF;
    if (!clean || unclear || ledger->clean < rules->resume.after ||
        now - ledger->last_bad < (int64_t)rules->resume.quiet_s)
        return XC_RESUME_WAIT;
    if (rules->resume.lemon &&
        drains_within(ledger, now, rules->resume.lemon_s) >= rules->resume.lemon)
        return XC_RESUME_LEMON;
    return XC_RESUME_NOW;
}
