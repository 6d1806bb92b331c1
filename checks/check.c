/* Which checks are there, which of them run, and what may the policy say to them? */
#include <ctype.h>

#include "live.h"

/* ---- the table ---------------------------------------------------------------------------------- */

static const struct xc_check *const *const families[] = {
    chk_cpu,       chk_numa, chk_host, chk_environment, chk_grace,     chk_gpu,
    chk_gpuhealth, chk_nic,  chk_dcb,  chk_topo,        chk_container, chk_nccl,
    chk_slurm,     chk_exec, chk_self, chk_inside,
};

size_t xc_check_all(const struct xc_check **out, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < XC_COUNT(families); i++)
        for (const struct xc_check *const *check = families[i]; *check; check++) {
            if (count < size)
                out[count] = *check;
            count++;
        }
    return count;
}

#define CHECKS_MAX 128

const struct xc_check *xc_check_find(const char *id)
{
    const struct xc_check *all[CHECKS_MAX];
    size_t count = xc_check_all(all, CHECKS_MAX);
    for (size_t i = 0; i < count && i < CHECKS_MAX; i++)
        if (xc_streq(all[i]->id, id) || (chk_is_program(all[i]) && chk_names_program(id)))
            return all[i];
    return NULL;
}

const char *xc_check_verdict_name(enum xc_check_verdict verdict)
{
    static const char *const names[] = {"n/a", "pass", "unknown", "warn", "fail"};
    return names[verdict];
}

/* ---- the policy's words against the table --------------------------------------------------------- */

static const struct xc_check_param *find_param(const struct xc_check *check, const char *name)
{
    for (const struct xc_check_param *p = check->params; p && p->name; p++)
        if (xc_streq(p->name, name))
            return p;
    return NULL;
}

static bool is_bool(const char *value, bool *out)
{
    static const char *const yes[] = {"on", "yes", "true"}, *const no[] = {"off", "no", "false"};
    for (size_t i = 0; i < XC_COUNT(yes); i++) {
        if (strcasecmp(value, yes[i]) == 0) {
            *out = true;
            return true;
        }
        if (strcasecmp(value, no[i]) == 0) {
            *out = false;
            return true;
        }
    }
    return false;
}

/* "5" and "5%" */
static bool is_number(const char *value, long *out)
{
    char digits[24];
    size_t length = strlen(value);
    if (length > 0 && value[length - 1] == '%')
        length--;
    if (length == 0 || length >= sizeof digits)
        return false;
    memcpy(digits, value, length);
    digits[length] = '\0';
    return xc_to_long(digits, 0, 1000000000000L, out);
}

static bool is_cpus(const char *value)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY, out = XC_SET_EMPTY;
    struct xc_cpulist list = {.text = (char *)value};
    xc_set_add_range(&online, 0, XC_SET_LIMIT - 1);
    return xc_cpulist_resolve(&list, &online, &out, NULL, NULL) == 0;
}

static bool is_word(const char *words, const char *value)
{
    xc_autonames char **names = xc_names_split(words);
    for (char **name = names; name && *name; name++)
        if (strcasecmp(*name, value) == 0)
            return true;
    return false;
}

static const char *type_words(const struct xc_check_param *param)
{
    static const char *const words[] = {NULL,         "on or off",       "a number",
                                        "a CPU list", "a list of names", "a text"};
    return param->type == XC_PARAM_WORD ? param->words : words[param->type];
}

static bool value_fits(const struct xc_check_param *param, const char *value)
{
    bool yes;
    long number;
    switch (param->type) {
    case XC_PARAM_WORD:
        return is_word(param->words, value);
    case XC_PARAM_BOOL:
        return is_bool(value, &yes);
    case XC_PARAM_NUMBER:
        return is_number(value, &number);
    case XC_PARAM_CPUS:
        return is_cpus(value);
    default:
        return *value != '\0';
    }
}

const char *xc_check_nearest(const char *id)
{
    const struct xc_check *all[CHECKS_MAX];
    const char *names[CHECKS_MAX + 1] = {0};
    size_t count = xc_check_all(all, CHECKS_MAX);
    for (size_t i = 0; i < count && i < CHECKS_MAX; i++)
        names[i] = all[i]->id;
    return xc_nearest(id, names);
}

static int unknown_check(const struct xc_check_rule *rule, const char *where,
                         struct xc_error *error)
{
    const char *near = xc_check_nearest(rule->id);
    return xc_error_set(error, XC_EINPUT, where,
                        "there is no check \"%.60s\"%s%s%s; xcloud check --list lists them",
                        rule->id, near ? "; did you mean \"" : "", near ? near : "",
                        near ? "\"?" : "");
}

static int unknown_param(const struct xc_check *check, const char *id, const char *key,
                         const char *where, struct xc_error *error)
{
    const char *names[32] = {"on_fail"};
    size_t count = 1;
    xc_autotext struct xc_text list = XC_TEXT_INIT;
    xc_text_add(&list, "on_fail");
    for (const struct xc_check_param *p = check->params; p && p->name && count < 31; p++) {
        names[count++] = p->name;
        xc_text_addf(&list, ", %s", p->name);
    }
    const char *near = xc_nearest(key, names);
    return xc_error_set(error, XC_EINPUT, where, "%.60s has no \"%.60s\"%s%s%s; it has %s", id, key,
                        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                        list.data ? list.data : "on_fail");
}

static int validate_program(const struct xc_check_rule *rule, const char *where,
                            struct xc_error *error)
{
    for (size_t i = 0; i < rule->nkeys; i++)
        if (xc_streq(rule->keys[i], "path") && rule->values[i][0] == '/')
            return 0;
    return xc_error_set(error, XC_EINPUT, where,
                        "%.60s needs path:, the absolute path of a program", rule->id);
}

static int unfit(const char *id, const struct xc_check_param *param, const char *value,
                 const char *where, struct xc_error *error)
{
    if (param->type != XC_PARAM_NUMBER)
        return xc_error_set(error, XC_EINPUT, where, "%.60s: %s: \"%.60s\"; expected %s", id,
                            param->name, value, type_words(param));
    return xc_error_set(error, XC_EINPUT, where,
                        "%.60s: %s: \"%.60s\"; expected a number without a unit (%s)", id,
                        param->name, value, param->meaning);
}

static int validate_rule(const struct xc_check_rule *rule, const char *where,
                         struct xc_error *error)
{
    const struct xc_check *check = xc_check_find(rule->id);
    if (!check)
        return unknown_check(rule, where, error);
    for (size_t i = 0; i < rule->nkeys; i++) {
        const struct xc_check_param *param = find_param(check, rule->keys[i]);
        if (!param)
            return unknown_param(check, rule->id, rule->keys[i], where, error);
        if (!value_fits(param, rule->values[i]))
            return unfit(rule->id, param, rule->values[i], where, error);
    }
    return chk_is_program(check) ? validate_program(rule, where, error) : 0;
}

int xc_check_validate(const struct xc_rules *rules, const char *policy, struct xc_error *error)
{
    for (size_t i = 0; i < rules->nchecks; i++) {
        char where[256];
        snprintf(where, sizeof where, "%s:%u", policy ? policy : "policy", rules->checks[i].line);
        if (validate_rule(&rules->checks[i], where, error) < 0)
            return -1;
    }
    return 0;
}

/* ---- parameters ----------------------------------------------------------------------------------- */

const struct xc_check_rule *chk_rule_of(const struct xc_rules *rules, const char *id)
{
    for (size_t i = 0; i < rules->nchecks; i++)
        if (xc_streq(rules->checks[i].id, id))
            return &rules->checks[i];
    return NULL;
}

static const char *rule_value(const struct xc_check_input *in, const char *name)
{
    const struct xc_check_param *param = find_param(in->check, name);
    for (size_t i = 0; in->rule && param && i < in->rule->nkeys; i++)
        if (xc_streq(in->rule->keys[i], name) && value_fits(param, in->rule->values[i]))
            return in->rule->values[i];
    return NULL;
}

bool chk_given(const struct xc_check_input *in, const char *name)
{
    return rule_value(in, name) != NULL;
}

const char *chk_param(const struct xc_check_input *in, const char *name)
{
    const char *value = rule_value(in, name);
    const struct xc_check_param *param = find_param(in->check, name);
    return value ? value : param ? param->builtin : NULL;
}

bool chk_param_bool(const struct xc_check_input *in, const char *name)
{
    const char *value = chk_param(in, name);
    bool yes = false;
    return value && is_bool(value, &yes) && yes;
}

bool chk_param_number(const struct xc_check_input *in, const char *name, long *out)
{
    const char *value = chk_param(in, name);
    return value && is_number(value, out);
}

enum xc_check_verdict chk_bad(const struct xc_check_input *in)
{
    return in->rule ? XC_CHECK_FAIL : XC_CHECK_WARN;
}

/* ---- findings ------------------------------------------------------------------------------------- */

#define TEXT_MAX 400

/* Files, names and policies may hold anything: what could end a string or a line somewhere is left
 * out, and a finding's texts can be put anywhere. Apostrophes stay between letters. */
static char *clean(const char *text)
{
    size_t length = text ? strnlen(text, TEXT_MAX) : 0;
    while (text && length == TEXT_MAX && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not in the middle of a character */
    char *copy = malloc(length + 1), *to = copy;
    for (size_t i = 0; copy && i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool apostrophe = c == '\'' && i > 0 && isalpha((unsigned char)text[i - 1]) &&
                          isalpha((unsigned char)text[i + 1]);
        if (c < 0x20 || c == 0x7f)
            *to++ = ' ';
        else if (apostrophe || !strchr("\"'`\\", c))
            *to++ = text[i];
    }
    if (copy)
        *to = '\0';
    return copy;
}

static struct xc_finding *new_finding(struct xc_findings *out)
{
    if (out->count == out->size) {
        size_t size = out->size ? 2 * out->size : 64;
        struct xc_finding *list = realloc(out->list, size * sizeof *list);
        if (!list)
            return NULL;
        out->list = list;
        out->size = size;
    }
    return &out->list[out->count];
}

static void free_finding(struct xc_finding *finding)
{
    free(finding->device);
    free(finding->expected);
    free(finding->actual);
    free(finding->hint);
}

void chk_say(struct xc_findings *out, enum xc_check_verdict verdict, struct chk_words words,
             const char *format, ...)
{
    xc_autotext struct xc_text actual = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&actual, format, args);
    va_end(args);
    struct xc_finding *finding = actual.failed ? NULL : new_finding(out);
    if (!finding) {
        out->failed = true;
        return;
    }
    const struct xc_check_input *in = out->input;
    *finding = (struct xc_finding){
        .check = in->check,
        .verdict = verdict,
        .on_fail = in->rule ? in->rule->on_fail : in->check->on_fail,
        .device = clean(words.device),
        .expected = clean(words.want),
        .actual = clean(actual.data),
        .hint = clean(words.hint),
    };
    if (finding->device && finding->expected && finding->actual && finding->hint) {
        out->count++;
    } else {
        free_finding(finding);
        out->failed = true;
    }
}

void xc_findings_clear(struct xc_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        free_finding(&findings->list[i]);
    free(findings->list);
    *findings = (struct xc_findings){0};
}

size_t xc_findings_count(const struct xc_findings *findings, enum xc_check_verdict verdict)
{
    size_t count = 0;
    for (size_t i = 0; i < findings->count; i++)
        count += findings->list[i].verdict == verdict;
    return count;
}

/* ---- running -------------------------------------------------------------------------------------- */

static bool family_is(const char *id, const char *family)
{
    size_t length = strlen(family);
    return strncmp(id, family, length) == 0 && id[length] == '.';
}

static bool selected(const struct xc_check_input *in, const char *const *only)
{
    if (!only) {
        enum xc_on_fail on_fail = in->rule ? in->rule->on_fail : in->check->on_fail;
        bool skip = in->rules->checks_skip && in->at == XC_AT_PROLOG;
        return (in->check->at & (unsigned)in->at) && on_fail != XC_FAIL_IGNORE && !skip;
    }
    for (; *only; only++)
        if (xc_streq(*only, in->check->id) || family_is(in->check->id, *only) ||
            (in->rule && xc_streq(*only, in->rule->id)))
            return true;
    return false;
}

/* The entry of the policy that a check runs with; a check that runs programs has one for each. NULL
 * behind the last, but for a check that the policy does not name: that runs once, without. */
static bool next_rule(const struct xc_check *check, const struct xc_rules *rules, size_t *at,
                      const struct xc_check_rule **rule)
{
    bool first = *at == 0;
    *rule = NULL;
    if (!chk_is_program(check)) {
        *rule = chk_rule_of(rules, check->id);
        *at = SIZE_MAX;
        return first;
    }
    for (size_t i = first ? 0 : *at - 1; *at != SIZE_MAX && i < rules->nchecks; i++)
        if (chk_names_program(rules->checks[i].id)) {
            *rule = &rules->checks[i];
            *at = i + 2;
            return true;
        }
    *at = SIZE_MAX;
    return first;
}

unsigned chk_probes_of(const struct xc_check_input *input, const char *const *only)
{
    const struct xc_check *all[CHECKS_MAX];
    size_t count = xc_check_all(all, CHECKS_MAX);
    unsigned probes = 0;
    for (size_t i = 0; i < count && i < CHECKS_MAX; i++) {
        struct xc_check_input in = *input;
        in.check = all[i];
        for (size_t at = 0; next_rule(all[i], in.rules, &at, &in.rule);)
            if (selected(&in, only))
                probes |= all[i]->probes;
    }
    return probes;
}

static void run_one(struct xc_check_input *in, struct xc_findings *findings)
{
    size_t before = findings->count;
    findings->input = in;
    in->check->run(in, findings);
    if (findings->count == before)
        chk_say(findings, XC_CHECK_PASS, (struct chk_words){0}, "ok");
    findings->input = NULL;
}

int xc_check_run(const struct xc_check_input *input, const char *const *only,
                 struct xc_findings *findings, struct xc_error *error)
{
    const struct xc_check *all[CHECKS_MAX];
    size_t count = xc_check_all(all, CHECKS_MAX);
    if (input->next)
        snprintf(input->next->boot_id, sizeof input->next->boot_id, "%s", input->node->boot_id);
    for (size_t i = 0; i < count && i < CHECKS_MAX; i++) {
        struct xc_check_input in = *input;
        in.check = all[i];
        for (size_t at = 0; next_rule(all[i], in.rules, &at, &in.rule);)
            if (selected(&in, only))
                run_one(&in, findings);
    }
    return findings->failed || (input->next && input->next->failed) ? xc_error_nomem(error) : 0;
}
