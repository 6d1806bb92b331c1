/* What is told of an apply or undo? */
#include "work.h"

const char *xc_host_outcome_name(enum xc_host_outcome outcome)
{
    static const char *const names[] = {"refused", "kept",     "excused", "would",
                                        "set",     "restored", "is so"};
    return (size_t)outcome < XC_COUNT(names) ? names[outcome] : "";
}

const char *xc_host_part_name(enum xc_host_what part)
{
    switch (part) {
    case XC_HOST_SERVICES:
        return "services";
    case XC_HOST_IRQS:
        return "irqs";
    case XC_HOST_WORKQUEUES:
        return "workqueues";
    }
    return "";
}

static void clear_row(struct xc_host_row *row)
{
    free(row->what);
    free(row->was);
    free(row->now);
    free(row->why);
}

void xc_host_report_clear(struct xc_host_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        clear_row(&report->rows[i]);
    free(report->rows);
    free(report->housekeeping);
    free(report->why);
    *report = (struct xc_host_report){0};
}

size_t xc_host_report_count(const struct xc_host_report *report, enum xc_host_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < report->count; i++)
        count += report->rows[i].outcome == outcome;
    return count;
}

/* Names of units and interrupts are whatever somebody has chosen: no control characters get out. */
static char *clean(const char *text)
{
    return xc_plain(strdup(text ? text : ""));
}

void host_say(struct xc_host_report *report, enum xc_host_what part, enum xc_host_outcome outcome,
              const char *what, const char *was, const char *now, const char *why, ...)
{
    if (report->count == report->size) {
        size_t size = report->size ? 2 * report->size : 32;
        struct xc_host_row *rows = realloc(report->rows, size * sizeof *rows);
        if (!rows) {
            report->failed = true;
            return;
        }
        report->rows = rows;
        report->size = size;
    }
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, why);
    xc_text_addv(&text, why, args);
    va_end(args);
    xc_autofree char *words = xc_text_take(&text);
    struct xc_host_row *row = &report->rows[report->count];
    *row = (struct xc_host_row){.part = part,
                                .outcome = outcome,
                                .what = clean(what),
                                .was = clean(was),
                                .now = clean(now),
                                .why = clean(words)};
    if (!words || !row->what || !row->was || !row->now || !row->why) {
        clear_row(row);
        report->failed = true;
        return;
    }
    report->count++;
}

/* ---- for people ------------------------------------------------------------------------------------ */

/* Each interrupt that the kernel spreads is somewhere else: where does not matter. */
static bool same(const struct xc_host_row *a, const struct xc_host_row *b)
{
    return a->part == b->part && a->outcome == b->outcome && xc_streq(a->why, b->why) &&
           (a->outcome == XC_HOST_EXCUSED ||
            (xc_streq(a->was, b->was) && xc_streq(a->now, b->now)));
}

#define NAMES_SHOWN 4

/* "munge.service, cron.service and 30 more" */
static void group_names(const struct xc_host_report *report, size_t first, bool *told,
                        struct xc_text *names)
{
    size_t count = 0;
    for (size_t i = first; i < report->count; i++) {
        if (told[i] || !same(&report->rows[first], &report->rows[i]))
            continue;
        told[i] = true;
        if (++count <= NAMES_SHOWN)
            xc_text_addf(names, "%s%s", count > 1 ? ", " : "", report->rows[i].what);
    }
    if (count > NAMES_SHOWN)
        xc_text_addf(names, " and %zu more", count - NAMES_SHOWN);
}

static void add_rows(const struct xc_host_report *report, enum xc_host_outcome outcome, bool *told,
                     struct xc_table *table)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct xc_host_row *row = &report->rows[i];
        if (told[i] || row->outcome != outcome)
            continue;
        xc_autotext struct xc_text names = XC_TEXT_INIT;
        group_names(report, i, told, &names);
        xc_table_row(table);
        xc_table_cell(table, 0, "%s", xc_host_part_name(row->part));
        xc_table_cell(table, 1, "%s",
                      outcome == XC_HOST_WOULD ? "would set" : xc_host_outcome_name(outcome));
        xc_table_cell(table, 2, "%s", outcome == XC_HOST_EXCUSED ? "" : row->was);
        xc_table_cell(table, 3, "%s", outcome == XC_HOST_EXCUSED ? "" : row->now);
        xc_table_cell(table, 4, "%s%s%s", names.data ? names.data : "", *row->why ? ": " : "",
                      row->why);
    }
}

static void add_counts(const struct xc_host_report *report, struct xc_text *out)
{
    bool any = false;
    for (int i = XC_HOST_IS_SO; i >= 0; i--) {
        enum xc_host_outcome outcome = (enum xc_host_outcome)i;
        size_t count = xc_host_report_count(report, outcome);
        if (count == 0)
            continue;
        xc_text_addf(out, "%s%zu %s", any ? ", " : "", count,
                     outcome == XC_HOST_WOULD   ? "would be set"
                     : outcome == XC_HOST_IS_SO ? "are so already"
                                                : xc_host_outcome_name(outcome));
        any = true;
    }
    if (any)
        xc_text_add(out, "\n");
}

void xc_host_report_text(const struct xc_host_report *report, struct xc_text *out)
{
    if (report->housekeeping)
        xc_text_addf(out, "housekeeping CPUs %s\n", report->housekeeping);
    if (report->why)
        xc_text_addf(out, "%s\n", report->why);
    if (report->count == 0)
        return;
    xc_autofree bool *told = calloc(report->count, sizeof *told);
    xc_autotable struct xc_table table;
    xc_table_begin(&table, 5);
    xc_table_row(&table);
    static const char *const heads[] = {"PART", "OUTCOME", "WAS", "NOW", "WHAT"};
    for (size_t i = 0; i < XC_COUNT(heads); i++)
        xc_table_cell(&table, i, "%s", heads[i]);
    for (int i = 0; told && i <= XC_HOST_IS_SO; i++)
        add_rows(report, (enum xc_host_outcome)i, told, &table);
    xc_table_write(&table, out);
    add_counts(report, out);
    out->failed |= !told || report->failed;
}

/* ---- for programs ---------------------------------------------------------------------------------- */

void xc_host_report_json(const struct xc_host_report *report, struct xc_text *out)
{
    struct xc_json json;
    xc_json_begin(&json, out, true);
    xc_json_object(&json, NULL);
    xc_json_string(&json, "housekeeping", report->housekeeping);
    xc_json_string(&json, "note", report->why);
    xc_json_bool(&json, "dry", report->dry);
    xc_json_array(&json, "rows");
    for (size_t i = 0; i < report->count; i++) {
        const struct xc_host_row *row = &report->rows[i];
        xc_json_object(&json, NULL);
        xc_json_string(&json, "part", xc_host_part_name(row->part));
        xc_json_string(&json, "outcome", xc_host_outcome_name(row->outcome));
        xc_json_string(&json, "what", row->what);
        xc_json_string(&json, "was", row->was);
        xc_json_string(&json, "now", row->now);
        xc_json_string(&json, "why", row->why);
        xc_json_end(&json, '}');
    }
    xc_json_end(&json, ']');
    xc_json_end(&json, '}');
    xc_text_add(out, "\n");
    out->failed |= report->failed;
}
