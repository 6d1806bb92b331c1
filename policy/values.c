/* How is one value of the policy read? Each reader judges a node of the tree, puts its meaning into
 * r->rules and the one way to write it into r->said, or says where it is wrong and what was
 * expected. The same readers serve the check of a file and the rules of a node. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "policy.h"

/* ---- errors and words ------------------------------------------------------------------------ */

static int bad_at(struct pol_reading *r, unsigned line, unsigned column, const char *format,
                  va_list args)
{
    char where[256], message[sizeof((struct xc_error *)0)->message];
    snprintf(where, sizeof where, "%.220s:%u:%u", r->name, line, column);
    vsnprintf(message, sizeof message, format, args);
    return xc_error_set(r->error, XC_EINPUT, where, "%s", message);
}

int pol_bad(struct pol_reading *r, const struct xc_yaml *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bad_at(r, node->line, node->column, format, args);
    va_end(args);
    return -1;
}

int pol_bad_key(struct pol_reading *r, const struct xc_yaml *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bad_at(r, node->key_line, node->key_column, format, args);
    va_end(args);
    return -1;
}

/* What stands there, for a message: its text in quotes, or "a list". */
static const char *shown(const struct xc_yaml *node, char buffer[80])
{
    if (node->kind != XC_YAML_SCALAR || xc_yaml_is_null(node))
        snprintf(buffer, 80, "%s", xc_yaml_kind_name(node));
    else
        snprintf(buffer, 80, "\"%.60s\"", node->text);
    return buffer;
}

/* "KEY is VALUE; expected …" */
static int expected(struct pol_reading *r, const struct xc_yaml *node, const char *what)
{
    char text[80];
    return pol_bad(r, node, "%s is %s; expected %s", r->key->name, shown(node, text), what);
}

#define CHOICES_MAX 16

static int bad_choice(struct pol_reading *r, const struct xc_yaml *node,
                      const struct pol_choice *choices)
{
    const char *names[CHOICES_MAX + 1] = {0};
    char text[80];
    xc_autotext struct xc_text list = XC_TEXT_INIT;
    for (size_t i = 0; choices[i].name && i < CHOICES_MAX; i++) {
        names[i] = choices[i].name;
        xc_text_addf(&list, "%s%s", i == 0 ? "" : choices[i + 1].name ? ", " : " or ", names[i]);
    }
    const char *near = node->text && !xc_yaml_is_null(node) ? xc_nearest(node->text, names) : NULL;
    return pol_bad(r, node, "%s is %s; expected %s%s%s%s", r->key->name, shown(node, text),
                   list.data ? list.data : "", near ? "; did you mean \"" : "", near ? near : "",
                   near ? "\"?" : "");
}

int pol_choose(struct pol_reading *r, const struct xc_yaml *node, const struct pol_choice *choices,
               const char *yes, const char *no, int *out)
{
    bool value;
    const char *word = node->text;
    if (node->kind != XC_YAML_SCALAR)
        return bad_choice(r, node, choices);
    if (xc_yaml_is_bool(node, &value) && (value ? yes : no))
        word = value ? yes : no;
    for (; choices->name; choices++)
        if (xc_streq(choices->name, word)) {
            *out = choices->value;
            xc_text_add(&r->said, choices->name);
            return 0;
        }
    return bad_choice(r, node, r->key->choices ? r->key->choices : choices);
}

static void *member(const struct pol_reading *r)
{
    return (char *)r->rules + r->key->offset;
}

int pol_read_choice(struct pol_reading *r, const struct xc_yaml *node)
{
    int value;
    if (pol_choose(r, node, r->key->choices, r->key->yes, r->key->no, &value) < 0)
        return -1;
    if (r->key->stored)
        memcpy(member(r), &value, sizeof value);
    return 0;
}

/* on, off, and auto for what is on where it applies. */
int pol_read_flag(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value, is_auto = xc_streq(node->text, "auto") && xc_streq(r->key->builtin, "auto");
    if (!is_auto && !xc_yaml_is_bool(node, &value))
        return expected(r, node, xc_streq(r->key->builtin, "auto") ? "auto or off" : "on or off");
    value = is_auto || value;
    memcpy(member(r), &value, sizeof value);
    xc_text_add(&r->said, !value ? "off" : xc_streq(r->key->builtin, "auto") ? "auto" : "on");
    return 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

const char *pol_text(struct pol_reading *r, const struct xc_yaml *node, const char *what)
{
    char text[80];
    bool value;
    if (node->kind != XC_YAML_SCALAR || xc_yaml_is_null(node)) {
        pol_bad(r, node, "%.60s is %s; expected a text", what, shown(node, text));
        return NULL;
    }
    if (!node->quoted && (xc_yaml_is_bool(node, &value) || !pol_number_is_stable(node->text))) {
        pol_bad(r, node,
                "%.60s is %s, which other YAML programs read as %s and write differently; expected "
                "it in quotes",
                what, shown(node, text),
                xc_yaml_is_bool(node, &value) ? "true or false" : "a number");
        return NULL;
    }
    return node->text;
}

int pol_read_text(struct pol_reading *r, const struct xc_yaml *node)
{
    const char *text = pol_text(r, node, r->key->name);
    if (!text)
        return -1;
    xc_text_add(&r->said, text);
    return *text ? 0 : expected(r, node, "a text");
}

int pol_read_name(struct pol_reading *r, const struct xc_yaml *node)
{
    const char *text = pol_text(r, node, r->key->name);
    if (!text)
        return -1;
    return pol_name_ok(text) ? 0 : expected(r, node, "a name of letters, digits, '_', '.' or '-'");
}

static char *joined(char **strings)
{
    struct xc_text text = XC_TEXT_INIT;
    for (size_t i = 0; strings[i]; i++)
        xc_text_addf(&text, "%s%s", i ? "," : "", strings[i]);
    return xc_text_take(&text);
}

char **pol_strings(struct pol_reading *r, const struct xc_yaml *node,
                   int (*check)(struct pol_reading *, const struct xc_yaml *))
{
    if (node->kind == XC_YAML_MAP) {
        expected(r, node, "a text or a list of them");
        return NULL;
    }
    size_t count = node->kind == XC_YAML_LIST ? node->nchildren : 1;
    char **strings = calloc(count + 1, sizeof *strings);
    for (size_t i = 0; strings && i < count; i++) {
        const struct xc_yaml *item = node->kind == XC_YAML_LIST ? &node->children[i] : node;
        const char *text = pol_text(r, item, r->key->name);
        if (!text || (check && check(r, item) < 0)) {
            xc_names_free(&strings);
            return NULL;
        }
        strings[i] = strdup(text);
        if (!strings[i]) {
            xc_names_free(&strings);
            break;
        }
    }
    if (!strings)
        xc_error_nomem(r->error);
    return strings;
}

/* Strings into the member of the key, and their list into said. */
static int store_strings(struct pol_reading *r, char **strings)
{
    xc_autofree char *all = strings ? joined(strings) : NULL;
    if (!strings)
        return -1;
    if (!all) {
        xc_names_free(&strings);
        return xc_error_nomem(r->error);
    }
    xc_text_add(&r->said, *all ? all : "none");
    if (!r->key->stored || !strings[0]) /* an empty list is none, as if nobody had said it */
        xc_names_free(&strings);
    if (!r->key->stored)
        return 0;
    char ***slot = member(r);
    xc_names_free(slot);
    *slot = strings;
    return 0;
}

static int check_pattern(struct pol_reading *r, const struct xc_yaml *node)
{
    return *node->text ? 0 : expected(r, node, "a name, * and ? allowed");
}

/* Of match: and when:, which are compared when a node or a job is known. */
int pol_read_patterns(struct pol_reading *r, const struct xc_yaml *node)
{
    char **strings = pol_strings(r, node, check_pattern);
    if (strings && !strings[0]) {
        xc_names_free(&strings);
        return expected(r, node, "at least one name: an empty list matches nothing");
    }
    return store_strings(r, strings);
}

int pol_read_strings(struct pol_reading *r, const struct xc_yaml *node)
{
    return store_strings(r, pol_strings(r, node, check_pattern));
}

static int check_hostlist(struct pol_reading *r, const struct xc_yaml *node)
{
    const char *problem = pol_hostlist_problem(node->text);
    return problem
               ? pol_bad(r, node,
                         "nodes is \"%.100s\": %s; expected a host list as gpu[001-064,070],login*",
                         node->text, problem)
               : 0;
}

int pol_read_nodes(struct pol_reading *r, const struct xc_yaml *node)
{
    char **strings = pol_strings(r, node, check_hostlist);
    if (strings && !strings[0]) {
        xc_names_free(&strings);
        return expected(r, node, "at least one node: an empty list matches nothing");
    }
    return store_strings(r, strings);
}

static int check_environment(struct pol_reading *r, const struct xc_yaml *node)
{
    static const struct pol_choice environments[] = {{"bare", 0}, {"vm", 1}, {"pod", 2}, {0}};
    for (const struct pol_choice *e = environments; e->name; e++)
        if (xc_streq(e->name, node->text))
            return 0;
    return bad_choice(r, node, environments);
}

int pol_read_environment(struct pol_reading *r, const struct xc_yaml *node)
{
    return store_strings(r, pol_strings(r, node, check_environment));
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int read_count(struct pol_reading *r, const struct xc_yaml *node, long max, unsigned *out)
{
    long value;
    char what[64];
    snprintf(what, sizeof what, "a number from 1 to %ld", max);
    if (node->kind != XC_YAML_SCALAR || !xc_to_long(node->text, 1, max, &value))
        return expected(r, node, what);
    if (!node->quoted && !pol_number_is_stable(node->text))
        return expected(r, node, "a decimal number without leading zeros");
    *out = (unsigned)value;
    xc_text_addf(&r->said, "%ld", value);
    return 0;
}

int pol_read_version(struct pol_reading *r, const struct xc_yaml *node)
{
    return xc_streq(node->text, "1") ? 0
                                     : expected(r, node, "1, the only one that this program knows");
}

int pol_read_gpu_count(struct pol_reading *r, const struct xc_yaml *node)
{
    r->rules->expect.has_gpus = true;
    return read_count(r, node, 64, &r->rules->expect.gpu_count);
}

int pol_read_numa_nodes(struct pol_reading *r, const struct xc_yaml *node)
{
    return read_count(r, node, 1024, &r->rules->expect.numa_nodes);
}

int pol_read_nic_count(struct pol_reading *r, const struct xc_yaml *node)
{
    r->rules->expect.has_nics = true;
    return read_count(r, node, 256, &r->rules->expect.nic_count);
}

int pol_read_nic_link(struct pol_reading *r, const struct xc_yaml *node)
{
    r->rules->expect.has_nics = true;
    return pol_read_choice(r, node);
}

int pol_read_nic_rate(struct pol_reading *r, const struct xc_yaml *node)
{
    unsigned mbps;
    r->rules->expect.has_nics = true;
    if (node->kind != XC_YAML_SCALAR || !pol_rate(node->text, &mbps))
        return expected(r, node, "a rate with its unit, as 400Gb/s");
    r->rules->expect.nic_rate_mbps = mbps;
    if (mbps % 1000)
        xc_text_addf(&r->said, "%u Mb/s", mbps);
    else
        xc_text_addf(&r->said, "%u Gb/s", mbps / 1000);
    return 0;
}

int pol_read_gpu_model(struct pol_reading *r, const struct xc_yaml *node)
{
    r->rules->expect.has_gpus = true;
    if (node->kind == XC_YAML_SCALAR &&
        pol_gpu_model(node->text, &r->rules->expect.gpu_vendor, &r->rules->expect.gpu_device)) {
        xc_text_addf(&r->said, "%04x:%04x", r->rules->expect.gpu_vendor,
                     r->rules->expect.gpu_device);
        return 0;
    }
    xc_autotext struct xc_text what = XC_TEXT_INIT;
    xc_text_add(&what, "PCI vendor:device as \"10de:2330\" (lspci -n shows it), or one of ");
    pol_add_gpu_models(&what);
    return expected(r, node, what.data ? what.data : "");
}

int pol_read_duration(struct pol_reading *r, const struct xc_yaml *node)
{
    unsigned seconds;
    if (node->kind != XC_YAML_SCALAR || !pol_seconds(node->text, &seconds))
        return expected(r, node, "a time with its unit: 90s, 15m, 24h or 7d");
    if (r->key->stored)
        memcpy(member(r), &seconds, sizeof seconds);
    xc_text_addf(&r->said, "%s", node->text);
    return 0;
}

/* Slurm's own patience with a node is tens of seconds (MessageTimeout). */
int pol_read_deadline(struct pol_reading *r, const struct xc_yaml *node)
{
    unsigned seconds;
    if (node->kind != XC_YAML_SCALAR || !pol_seconds(node->text, &seconds) || seconds < 1 ||
        seconds > 30)
        return expected(r, node, "a time from 1s to 30s");
    r->rules->programs.deadline_s = seconds;
    xc_text_addf(&r->said, "%s", node->text);
    return 0;
}

int pol_read_jitter(struct pol_reading *r, const struct xc_yaml *node)
{
    unsigned seconds = 0;
    bool none = node->kind == XC_YAML_SCALAR && xc_streq(node->text, "0s");
    if (node->kind != XC_YAML_SCALAR || (!none && !pol_seconds(node->text, &seconds)) ||
        seconds > 60)
        return expected(r, node, "a time from 0s to 60s");
    r->rules->programs.jitter_s = seconds;
    xc_text_addf(&r->said, "%s", node->text);
    return 0;
}

int pol_read_arm_after(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value;
    if (xc_yaml_is_bool(node, &value) && !value) {
        xc_text_add(&r->said, "off");
        return 0;
    }
    unsigned seconds;
    if (node->kind != XC_YAML_SCALAR || !pol_seconds(node->text, &seconds))
        return expected(r, node, "a time with its unit as 24h or 7d, or off");
    xc_text_addf(&r->said, "%s", node->text);
    return 0;
}

int pol_read_comparison(struct pol_reading *r, const struct xc_yaml *node)
{
    if (node->kind != XC_YAML_SCALAR || !pol_compare_ok(node->text))
        return expected(r, node, "comparisons in quotes, as \">= 8\" or \">= 8, < 64\"");
    xc_text_add(&r->said, node->text);
    return 0;
}

int pol_read_nccl_version(struct pol_reading *r, const struct xc_yaml *node)
{
    if (node->kind != XC_YAML_SCALAR || !pol_version_ok(node->text))
        return expected(r, node, "comparisons in quotes, as \">= 2.27, != 2.28.3\"");
    char *copy = strdup(node->text);
    if (!copy)
        return xc_error_nomem(r->error);
    free(r->rules->nccl_version);
    r->rules->nccl_version = copy;
    xc_text_add(&r->said, copy);
    return 0;
}

int pol_read_limit(struct pol_reading *r, const struct xc_yaml *node)
{
    struct xc_limit limit;
    if (node->kind != XC_YAML_SCALAR || !pol_limit(node->text, &limit))
        return expected(r, node, "a number of nodes or a share of them: 4, 1% or 8 or 1%");
    memcpy(member(r), &limit, sizeof limit);
    xc_text_add(&r->said, node->text);
    return 0;
}

int pol_read_min_share(struct pol_reading *r, const struct xc_yaml *node)
{
    char number[16];
    long cores = 0;
    bool value;
    size_t digits = node->kind == XC_YAML_SCALAR ? strspn(node->text, "0123456789") : 0;
    const char *unit = digits ? node->text + digits + strspn(node->text + digits, " ") : "";
    bool none = xc_streq(node->text, "none") || (xc_yaml_is_bool(node, &value) && !value);
    snprintf(number, sizeof number, "%.*s", (int)(digits < 15 ? digits : 15),
             digits ? node->text : "");
    if (!none && (!(xc_streq(unit, "core") || xc_streq(unit, "cores")) ||
                  !xc_to_long(number, 1, 1024, &cores)))
        return expected(r, node, "cores with their unit, as 2 cores; or none");
    r->rules->bind.min_share = (unsigned)cores;
    if (none)
        xc_text_add(&r->said, "none");
    else
        xc_text_addf(&r->said, "%ld core%s", cores, cores == 1 ? "" : "s");
    return 0;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

#define CPULIST_EXPECTED "a list of CPUs in quotes as \"0-7,56-63\", \"!8-15\" or all"

/* Text of a list, written as one text or as a YAML list of numbers and ranges; NULL: error. */
static char *cpulist(struct pol_reading *r, const struct xc_yaml *node, const char *words)
{
    char **strings = pol_strings(r, node, NULL);
    char *all = strings ? joined(strings) : NULL;
    xc_names_free(&strings);
    if (!all)
        return NULL;
    static const char *const known[] = {"slurm", "none", "all", "auto", "off", NULL};
    const char *problem = pol_cpulist_problem(all), *near = xc_nearest(all, known);
    if (!problem)
        return all;
    pol_bad(r, node, "%s is \"%.80s\": %s; expected %s%s%s%s%s", r->key->name, all, problem, words,
            CPULIST_EXPECTED, near && strstr(words, near) ? "; did you mean \"" : "",
            near && strstr(words, near) ? near : "", near && strstr(words, near) ? "\"?" : "");
    free(all);
    return NULL;
}

static bool empty_list(const struct xc_yaml *node)
{
    return node->kind == XC_YAML_LIST && node->nchildren == 0;
}

static int keep_cpulist(struct pol_reading *r, const struct xc_yaml *node, const char *words,
                        struct xc_cpulist *list)
{
    char *text = cpulist(r, node, words);
    if (!text)
        return -1;
    free(list->text);
    list->text = text;
    xc_text_add(&r->said, text);
    return 0;
}

int pol_read_housekeeping(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value;
    if (xc_streq(node->text, "slurm")) {
        r->rules->cpus.housekeeping = XC_HK_SLURM;
        xc_text_add(&r->said, "slurm");
        return 0;
    }
    if (xc_streq(node->text, "none") || empty_list(node) ||
        (xc_yaml_is_bool(node, &value) && !value)) {
        r->rules->cpus.housekeeping = XC_HK_NONE;
        xc_text_add(&r->said, "none");
        return 0;
    }
    if (xc_yaml_is_bool(node, &value))
        return expected(r, node, "slurm, none, or " CPULIST_EXPECTED);
    r->rules->cpus.housekeeping = XC_HK_LIST;
    return keep_cpulist(r, node, "slurm, none, or ", &r->rules->cpus.housekeeping_list);
}

int pol_read_priority(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value, is_bool = xc_yaml_is_bool(node, &value);
    if (is_bool || xc_streq(node->text, "auto") || xc_streq(node->text, "none") ||
        empty_list(node)) {
        bool on = is_bool ? value : xc_streq(node->text, "auto");
        r->rules->cpus.priority = on ? XC_PRIORITY_AUTO : XC_PRIORITY_OFF;
        xc_text_add(&r->said, on ? "auto" : "off");
        return 0;
    }
    r->rules->cpus.priority = XC_PRIORITY_LIST;
    return keep_cpulist(r, node, "auto, off, or ", &r->rules->cpus.priority_list);
}

/* ---- lists of known words -------------------------------------------------------------------- */

/* Or-s the values of a list of words, in any order, into *out. One word may stand alone. */
static int read_bits(struct pol_reading *r, const struct xc_yaml *node,
                     const struct pol_choice *choices, const char *no, unsigned *out)
{
    unsigned bits = 0;
    size_t count = node->kind == XC_YAML_LIST ? node->nchildren : 1;
    if (node->kind == XC_YAML_MAP)
        return bad_choice(r, node, choices);
    for (size_t i = 0; i < count; i++) {
        const struct xc_yaml *item = node->kind == XC_YAML_LIST ? &node->children[i] : node;
        const char *word = item->text;
        bool value;
        if (no && xc_yaml_is_bool(item, &value) && !value)
            word = no;
        const struct pol_choice *choice = choices;
        while (choice->name && !xc_streq(choice->name, word))
            choice++;
        if (!choice->name)
            return bad_choice(r, item, choices);
        bits |= (unsigned)choice->value;
    }
    *out = bits;
    for (; choices->name; choices++)
        if (bits & (unsigned)choices->value)
            xc_text_addf(&r->said, "%s%s", r->said.length ? "," : "", choices->name);
    if (!bits)
        xc_text_add(&r->said, "none");
    return 0;
}

int pol_read_host(struct pol_reading *r, const struct xc_yaml *node)
{
    static const struct pol_choice words[] = {{"services", XC_HOST_SERVICES},
                                              {"irqs", XC_HOST_IRQS},
                                              {"workqueues", XC_HOST_WORKQUEUES},
                                              {0}};
    static const struct xc_yaml nothing = {.kind = XC_YAML_LIST};
    bool value;
    if (xc_streq(node->text, "none") || (xc_yaml_is_bool(node, &value) && !value))
        node = &nothing;
    return read_bits(r, node, words, NULL, &r->rules->cpus.host);
}

int pol_read_users_may(struct pol_reading *r, const struct xc_yaml *node)
{
    static const struct pol_choice words[] = {{"disable", XC_MAY_DISABLE}, {"smt", XC_MAY_SMT},
                                              {"memory", XC_MAY_MEMORY},   {"gpus", XC_MAY_GPUS},
                                              {"profile", XC_MAY_PROFILE}, {0}};
    bool value;
    unsigned all = XC_MAY_DISABLE | XC_MAY_SMT | XC_MAY_MEMORY | XC_MAY_GPUS | XC_MAY_PROFILE;
    if (xc_yaml_is_bool(node, &value)) /* nothing at all, or the word off? */
        return expected(r, node, "a list: [] for nothing, [disable] for off alone");
    if (xc_streq(node->text, "all") || xc_streq(node->text, "none")) {
        r->rules->bind.users_may = xc_streq(node->text, "all") ? all : 0;
        xc_text_add(&r->said,
                    all == r->rules->bind.users_may ? "disable,smt,memory,gpus,profile" : "none");
        return 0;
    }
    return read_bits(r, node, words, "disable", &r->rules->bind.users_may);
}

static int check_export(struct pol_reading *r, const struct xc_yaml *node)
{
    if (pol_known_export(node->text))
        return 0;
    const char *near = xc_nearest(node->text, pol_exports);
    return pol_bad(r, node,
                   "export names \"%.60s\"; expected NCCL_IB_HCA, UCX_NET_DEVICES or "
                   "NVSHMEM_HCA_LIST (others go under env)%s%s%s",
                   node->text, near ? "; did you mean \"" : "", near ? near : "",
                   near ? "\"?" : "");
}

int pol_read_export(struct pol_reading *r, const struct xc_yaml *node)
{
    return store_strings(r, pol_strings(r, node, check_export));
}

/* "15b3:1021" or "15b3:*" */
static int check_pci(struct pol_reading *r, const struct xc_yaml *node)
{
    size_t length = strlen(node->text), vendor = strspn(node->text, "0123456789abcdefABCDEF");
    const char *device = node->text + vendor + 1;
    if (vendor == 4 && node->text[4] == ':' &&
        (xc_streq(device, "*") || (length == 9 && strspn(device, "0123456789abcdefABCDEF") == 4)))
        return 0;
    return expected(r, node, "PCI vendor:device as \"15b3:1021\" or \"15b3:*\"");
}

/* In small letters, as the ids that it is compared with are written. */
int pol_read_pci(struct pol_reading *r, const struct xc_yaml *node)
{
    char **strings = pol_strings(r, node, check_pci);
    for (char **string = strings; string && *string; string++)
        for (char *c = *string; *c; c++)
            *c = (char)tolower((unsigned char)*c);
    return store_strings(r, strings);
}

/* ---- the topology file, resume, the environment ---------------------------------------------- */

int pol_read_path(struct pol_reading *r, const struct xc_yaml *node)
{
    if (node->kind != XC_YAML_SCALAR || node->text[0] != '/' || strlen(node->text) > 1000 ||
        strpbrk(node->text, "\n\r\t\"'\\`"))
        return expected(r, node, "an absolute path without quotes and line breaks");
    char *copy = strdup(node->text), **slot = member(r);
    if (!copy)
        return xc_error_nomem(r->error);
    free(*slot);
    *slot = copy;
    xc_text_add(&r->said, copy);
    return 0;
}

int pol_read_topo_file(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value;
    bool none = xc_streq(node->text, "none") || (xc_yaml_is_bool(node, &value) && !value);
    if (!none &&
        (node->kind != XC_YAML_SCALAR || node->text[0] != '/' || strstr(node->text, "/../") ||
         strlen(node->text) > 1000 || strpbrk(node->text, "\n\r\t\\,: ")))
        return expected(r, node,
                        "an absolute path without blanks, commas, colons and backslashes, or none");
    char *copy = none ? NULL : strdup(node->text);
    if (!none && !copy)
        return xc_error_nomem(r->error);
    free(r->rules->topo.file);
    r->rules->topo.file = copy;
    r->rules->topo.none = none;
    r->rules->topo.line = none ? 0 : node->line;
    xc_text_add(&r->said, none ? "none" : copy);
    return 0;
}

/* "3 clean runs", "3 drains in 7d": the number, the words, then a time or (seconds NULL) nothing. */
static bool counted(const char *text, const char *words, unsigned *count, unsigned *seconds)
{
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || digits > 4 || !xc_starts(text + digits, words))
        return false;
    const char *rest = text + digits + strlen(words);
    *count = (unsigned)strtoul(text, NULL, 10);
    return seconds ? pol_seconds(rest, seconds) : *rest == '\0';
}

static const char *const resume_keys[] = {"checks", "after", "quiet", "lemon", NULL};

static int resume_member(struct pol_reading *r, const struct xc_yaml *child)
{
    struct xc_rules *rules = r->rules;
    if (xc_streq(child->key, "checks")) {
        char **ids = pol_strings(r, child, NULL);
        xc_names_free(&rules->resume.checks);
        rules->resume.checks = ids;
        for (size_t i = 0; ids && ids[i]; i++)
            if (!pol_check_id_ok(ids[i]))
                return pol_bad(r, child, "\"%.60s\" is no check; expected family.name as cpu.turbo",
                               ids[i]);
        return ids ? 0 : -1;
    }
    if (xc_streq(child->key, "after"))
        return counted(child->text, " clean runs", &rules->resume.after, NULL)
                   ? 0
                   : pol_bad(r, child, "after is no count; expected as 3 clean runs");
    if (xc_streq(child->key, "quiet"))
        return child->text && pol_seconds(child->text, &rules->resume.quiet_s)
                   ? 0
                   : pol_bad(r, child, "quiet is no time; expected one with its unit, as 15m");
    if (xc_streq(child->key, "lemon"))
        return counted(child->text, " drains in ", &rules->resume.lemon, &rules->resume.lemon_s)
                   ? 0
                   : pol_bad(r, child, "lemon is no limit; expected as 3 drains in 7d");
    const char *near = xc_nearest(child->key, resume_keys);
    return pol_bad_key(
        r, child, "unknown key \"%.60s\" in resume; expected checks, after, quiet, lemon%s%s%s",
        child->key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* The keys in a fixed order, whatever the file's is. */
static void say_resume(struct pol_reading *r, const struct xc_yaml *child)
{
    if (!child)
        return;
    xc_text_addf(&r->said, "%s%s: %s", r->said.length ? ", " : "", child->key,
                 child->text ? child->text : "");
    for (size_t i = 0; i < child->nchildren; i++)
        xc_text_addf(&r->said, "%s%s", i ? " " : "", child->children[i].text);
}

int pol_read_resume(struct pol_reading *r, const struct xc_yaml *node)
{
    bool value;
    if (xc_yaml_is_bool(node, &value) && !value) {
        xc_text_add(&r->said, "off");
        return 0;
    }
    if (node->kind != XC_YAML_MAP)
        return expected(
            r, node,
            "off, or { checks: […], after: 3 clean runs, quiet: 15m, lemon: 3 drains in 7d }");
    /* built in, where resume is asked for */
    r->rules->resume.after = 3;
    r->rules->resume.quiet_s = 15 * 60;
    r->rules->resume.lemon = 3;
    r->rules->resume.lemon_s = 7 * 24 * 3600;
    for (size_t i = 0; i < node->nchildren; i++)
        if (resume_member(r, &node->children[i]) < 0)
            return -1;
    for (const char *const *key = resume_keys; *key; key++)
        say_resume(r, xc_yaml_get(node, *key));
    return xc_yaml_get(node, "checks")
               ? 0
               : pol_bad(r, node, "resume has no checks; expected the ones that may resume a node");
}

int pol_read_env_value(struct pol_reading *r, const struct xc_yaml *node)
{
    static const char *const known[] = {"cores}", "gpus}", "nics}", "local_rank}", NULL};
    const char *text = pol_text(r, node, node->key ? node->key : "value");
    if (!text)
        return -1;
    if (strlen(text) > 4096 || strpbrk(text, "\n\r"))
        return pol_bad(r, node, "the value is too long or has several lines; expected one line");
    for (const char *at = strstr(text, "${"); at; at = strstr(at + 2, "${")) {
        const char *const *name = known;
        while (*name && !xc_starts(at + 2, *name))
            name++;
        if (!*name)
            return pol_bad(r, node,
                           "\"%.*s\" stands for nothing; expected ${cores}, ${gpus}, ${nics} or "
                           "${local_rank}",
                           (int)strcspn(at, "}") + (strchr(at, '}') ? 1 : 0) > 40
                               ? 40
                               : (int)strcspn(at, "}") + (strchr(at, '}') ? 1 : 0),
                           at);
    }
    return 0;
}
