/* How are findings told: to people, to a drain reason, to programs, to Prometheus? */
#include <inttypes.h>

#include "live.h"

static const char *const loud_names[] = {"N/A", "PASS", "UNKNOWN", "WARN", "FAIL"};

void xc_finding_line(const struct xc_finding *finding, struct xc_text *out)
{
    xc_text_addf(out, "%-7s %s", loud_names[finding->verdict], finding->check->id);
    if (*finding->device)
        xc_text_addf(out, " %s", finding->device);
    xc_text_addf(out, ": %s", finding->actual);
    if (*finding->expected && finding->verdict != XC_CHECK_PASS)
        xc_text_addf(out, "; want %s", finding->expected);
    if (*finding->hint && finding->verdict != XC_CHECK_PASS)
        xc_text_addf(out, ". %s", finding->hint);
    xc_text_addf(out, " [%s]\n", finding->check->code);
}

void xc_finding_reason(const struct xc_finding *finding, char *buffer, size_t size)
{
    char code[16];
    int tail = snprintf(code, sizeof code, " [%s]", finding->check->code);
    int length = snprintf(buffer, size, "%s%s%s: %s%s%s", finding->check->id,
                          *finding->device ? " " : "", finding->device, finding->actual,
                          *finding->expected ? ", want " : "", finding->expected);
    size_t end = (size_t)length < size ? (size_t)length : size - 1;
    if (size <= (size_t)tail)
        return;
    if (end > size - 1 - (size_t)tail)
        end = size - 1 - (size_t)tail;
    while (end > 0 && ((unsigned char)buffer[end] & 0xc0) == 0x80)
        end--; /* not in the middle of a character */
    memcpy(buffer + end, code, (size_t)tail + 1);
    for (char *c = buffer; *c; c++)
        if (*c == '\'')
            *c = ' ';
}

static void count_line(const struct xc_findings *findings, struct xc_text *out)
{
    xc_text_addf(
        out, "%zu failed, %zu warned, %zu unknown, %zu passed, %zu n/a\n",
        xc_findings_count(findings, XC_CHECK_FAIL), xc_findings_count(findings, XC_CHECK_WARN),
        xc_findings_count(findings, XC_CHECK_UNKNOWN), xc_findings_count(findings, XC_CHECK_PASS),
        xc_findings_count(findings, XC_CHECK_NA));
}

void xc_findings_text(const struct xc_findings *findings, bool all, struct xc_text *out)
{
    static const enum xc_check_verdict order[] = {XC_CHECK_FAIL, XC_CHECK_WARN, XC_CHECK_UNKNOWN,
                                                  XC_CHECK_PASS, XC_CHECK_NA};
    size_t shown = all ? XC_COUNT(order) : 3;
    for (size_t v = 0; v < shown; v++)
        for (size_t i = 0; i < findings->count; i++)
            if (findings->list[i].verdict == order[v])
                xc_finding_line(&findings->list[i], out);
    count_line(findings, out);
}

static const char *on_fail_name(enum xc_on_fail on_fail)
{
    static const char *const names[] = {"ignore", "warn", "refuse", "drain"};
    return names[on_fail];
}

static void about_json(const struct xc_check_about *about, struct xc_json *json)
{
    xc_json_int(json, "schema", 1);
    if (about && about->node)
        xc_json_string(json, "node", about->node);
    if (about && about->boot_id && *about->boot_id)
        xc_json_string(json, "boot_id", about->boot_id);
    if (about && about->policy_hash)
        xc_json_string(json, "policy", about->policy_hash);
    if (about && about->class_name)
        xc_json_string(json, "class", about->class_name);
    if (about && about->time)
        xc_json_int(json, "time", about->time);
}

static enum xc_check_verdict worst(const struct xc_findings *findings)
{
    enum xc_check_verdict verdict = XC_CHECK_NA;
    for (size_t i = 0; i < findings->count; i++)
        if (findings->list[i].verdict > verdict)
            verdict = findings->list[i].verdict;
    return verdict;
}

void xc_findings_json(const struct xc_findings *findings, const struct xc_check_about *about,
                      struct xc_text *out)
{
    struct xc_json json;
    xc_json_begin(&json, out, true);
    xc_json_object(&json, NULL);
    about_json(about, &json);
    xc_json_string(&json, "verdict", xc_check_verdict_name(worst(findings)));
    xc_json_array(&json, "findings");
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        xc_json_object(&json, NULL);
        xc_json_string(&json, "check", f->check->id);
        xc_json_string(&json, "code", f->check->code);
        xc_json_string(&json, "verdict", xc_check_verdict_name(f->verdict));
        xc_json_string(&json, "on_fail", on_fail_name(f->on_fail));
        xc_json_string(&json, "device", *f->device ? f->device : NULL);
        xc_json_string(&json, "actual", f->actual);
        xc_json_string(&json, "expected", *f->expected ? f->expected : NULL);
        xc_json_string(&json, "hint", *f->hint ? f->hint : NULL);
        xc_json_end(&json, '}');
    }
    xc_json_end(&json, ']');
    xc_json_end(&json, '}');
}

/* ---- Prometheus ------------------------------------------------------------------------------------ */

/* Findings have no quotes, backslashes or newlines in their texts already. */
static void label(struct xc_text *out, const char *value)
{
    for (const char *c = value; *c; c++)
        xc_text_add_n(out, *c == '"' || *c == '\\' || *c == '\n' ? "." : c, 1);
}

/* One series a check and device: a second one of the same name would make the whole file invalid. The
 * worst counts. */
static bool is_said(const struct xc_findings *findings, size_t index)
{
    const struct xc_finding *f = &findings->list[index];
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *other = &findings->list[i];
        if (i != index && other->check == f->check && xc_streq(other->device, f->device) &&
            (other->verdict > f->verdict || (other->verdict == f->verdict && i < index)))
            return true;
    }
    return false;
}

void xc_findings_prometheus(const struct xc_findings *findings, const struct xc_check_about *about,
                            struct xc_text *out)
{
    static const int numbers[] = {4, 0, 3, 1, 2};
    xc_text_add(out, "# HELP xcloud_check_status 0 pass, 1 warn, 2 fail, 3 unknown, 4 n/a\n"
                     "# TYPE xcloud_check_status gauge\n");
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        if (is_said(findings, i))
            continue;
        xc_text_addf(out, "xcloud_check_status{check=\"%s\",code=\"%s\",on_fail=\"%s\",device=\"",
                     f->check->id, f->check->code, on_fail_name(f->on_fail));
        label(out, f->device);
        xc_text_addf(out, "\"} %d\n", numbers[f->verdict]);
    }
    if (about && about->time)
        xc_text_addf(out,
                     "# HELP xcloud_check_run_timestamp_seconds when the checks ran\n"
                     "# TYPE xcloud_check_run_timestamp_seconds gauge\n"
                     "xcloud_check_run_timestamp_seconds %" PRId64 "\n",
                     about->time);
    if (about && about->policy_hash) {
        xc_text_add(out, "# HELP xcloud_check_policy_info the policy of the last run\n"
                         "# TYPE xcloud_check_policy_info gauge\n"
                         "xcloud_check_policy_info{hash=\"");
        label(out, about->policy_hash);
        xc_text_add(out, "\",class=\"");
        label(out, about->class_name ? about->class_name : "");
        xc_text_add(out, "\"} 1\n");
    }
}

/* ---- the table of checks ---------------------------------------------------------------------------- */

static const struct {
    unsigned bit;
    const char *name;
} places[] = {{XC_AT_BOOT, "boot"},
              {XC_AT_HEALTH, "health"},
              {XC_AT_PROLOG, "prolog"},
              {XC_AT_EPILOG, "epilog"},
              {XC_AT_INSIDE, "inside"}},
  needs[] = {{XC_NEEDS_ROOT, "root"},
             {XC_NEEDS_PREVIOUS, "previous"},
             {XC_NEEDS_LOG, "log"},
             {XC_NEEDS_JOB, "job"}};
static const char *const costs[] = {"files", "device", "scan"};

static void add_places(const struct xc_check *check, struct xc_text *out)
{
    const char *comma = "";
    for (size_t i = 0; i < XC_COUNT(places); i++)
        if (check->at & places[i].bit) {
            xc_text_addf(out, "%s%s", comma, places[i].name);
            comma = ",";
        }
}

static void add_needs(const struct xc_check *check, struct xc_text *out)
{
    const char *comma = "";
    for (size_t i = 0; i < XC_COUNT(needs); i++)
        if (check->needs & needs[i].bit) {
            xc_text_addf(out, "%s%s", comma, needs[i].name);
            comma = ",";
        }
    for (size_t i = 0; chk_probes[i].name; i++)
        if (check->probes & chk_probes[i].bit) {
            xc_text_addf(out, "%s%s", comma, chk_probes[i].name);
            comma = ",";
        }
}

static void add_params(const struct xc_check *check, struct xc_text *out)
{
    for (const struct xc_check_param *p = check->params; p && p->name; p++)
        xc_text_addf(out, "%s%s%s%s", p == check->params ? "" : " ", p->name, p->builtin ? "=" : "",
                     !p->builtin                ? ""
                     : strlen(p->builtin) <= 24 ? p->builtin
                                                : "…");
}

static void list_text(const struct xc_check *const *all, size_t count, struct xc_text *out)
{
    static const char *const heads[] = {"code",  "check",      "cost", "runs at",
                                        "needs", "parameters", "what"};
    xc_autotable struct xc_table table;
    xc_table_begin(&table, XC_COUNT(heads));
    xc_table_row(&table);
    for (size_t i = 0; i < XC_COUNT(heads); i++)
        xc_table_cell(&table, i, "%s", heads[i]);
    for (size_t i = 0; i < count; i++) {
        xc_autotext struct xc_text at = XC_TEXT_INIT, params = XC_TEXT_INIT, need = XC_TEXT_INIT;
        add_places(all[i], &at);
        add_needs(all[i], &need);
        add_params(all[i], &params);
        out->failed |= at.failed || params.failed || need.failed;
        xc_table_row(&table);
        xc_table_cell(&table, 0, "%s", all[i]->code);
        xc_table_cell(&table, 1, "%s", all[i]->id);
        xc_table_cell(&table, 2, "%s", costs[all[i]->cost]);
        xc_table_cell(&table, 3, "%s", at.data ? at.data : "");
        xc_table_cell(&table, 4, "%s", need.data ? need.data : "");
        xc_table_cell(&table, 5, "%s", params.data ? params.data : "");
        xc_table_cell(&table, 6, "%s", all[i]->what);
    }
    xc_table_write(&table, out);
}

static void params_json(const struct xc_check *check, struct xc_json *json)
{
    static const char *const types[] = {"word", "bool", "number", "cpus", "names", "text"};
    xc_json_array(json, "parameters");
    for (const struct xc_check_param *p = check->params; p && p->name; p++) {
        xc_json_object(json, NULL);
        xc_json_string(json, "name", p->name);
        xc_json_string(json, "type", types[p->type]);
        xc_json_string(json, "default", p->builtin);
        xc_json_string(json, "meaning", p->meaning);
        if (p->words)
            xc_json_string(json, "words", p->words);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void list_json(const struct xc_check *const *all, size_t count, struct xc_text *out)
{
    struct xc_json json;
    xc_json_begin(&json, out, true);
    xc_json_array(&json, NULL);
    for (size_t i = 0; i < count; i++) {
        const struct xc_check *check = all[i];
        char family[32];
        snprintf(family, sizeof family, "%.*s", (int)strcspn(check->id, "."), check->id);
        xc_json_object(&json, NULL);
        xc_json_string(&json, "id", check->id);
        xc_json_string(&json, "family", family);
        xc_json_string(&json, "code", check->code);
        xc_json_string(&json, "what", check->what);
        xc_json_string(&json, "cost", costs[check->cost]);
        xc_json_array(&json, "at");
        for (size_t j = 0; j < XC_COUNT(places); j++)
            if (check->at & places[j].bit)
                xc_json_string(&json, NULL, places[j].name);
        xc_json_end(&json, ']');
        xc_json_array(&json, "needs");
        for (size_t j = 0; j < XC_COUNT(needs); j++)
            if (check->needs & needs[j].bit)
                xc_json_string(&json, NULL, needs[j].name);
        for (size_t j = 0; chk_probes[j].name; j++)
            if (check->probes & chk_probes[j].bit)
                xc_json_string(&json, NULL, chk_probes[j].name);
        xc_json_end(&json, ']');
        xc_json_string(&json, "on_fail", on_fail_name(check->on_fail));
        params_json(check, &json);
        xc_json_end(&json, '}');
    }
    xc_json_end(&json, ']');
}

void xc_check_list(bool json, struct xc_text *out)
{
    const struct xc_check *all[256];
    size_t count = xc_check_all(all, XC_COUNT(all));
    if (count > XC_COUNT(all))
        count = XC_COUNT(all);
    if (json)
        list_json(all, count, out);
    else
        list_text(all, count, out);
}
