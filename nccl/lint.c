/* Which of the variables do something else than their author believes? */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xcloud/nccl.h>
#include <xcloud/plan.h>

struct lint {
    const struct xc_nccl_input *in;
    struct xc_nccl_findings *out;
};

static struct xc_nccl_finding *add(struct lint *lint, const struct xc_nccl_value *value, bool error)
{
    struct xc_nccl_findings *out = lint->out;
    if (out->count == out->size) {
        size_t size = out->size ? 2 * out->size : 8;
        struct xc_nccl_finding *list = realloc(out->list, size * sizeof *list);
        if (!list) {
            out->failed = true;
            return NULL;
        }
        out->list = list;
        out->size = size;
    }
    struct xc_nccl_finding *finding = &out->list[out->count++];
    *finding = (struct xc_nccl_finding){.name = value->name, .error = error};
    return finding;
}

static void say(struct lint *lint, const struct xc_nccl_value *value, bool error, const char *fix,
                const char *format, ...) xc_printf(5, 6);

static void say(struct lint *lint, const struct xc_nccl_value *value, bool error, const char *fix,
                const char *format, ...)
{
    struct xc_nccl_finding *finding = add(lint, value, error);
    if (!finding)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(finding->what, sizeof finding->what, format, args);
    va_end(args);
    xc_plain(finding->what);
    snprintf(finding->fix, sizeof finding->fix, "%s", fix);
}

static const struct xc_nccl_value *get(const struct lint *lint, const char *name)
{
    return xc_nccl_get(lint->in->values, name);
}

static bool is_said(const struct lint *lint, const struct xc_nccl_value *value)
{
    for (size_t i = 0; i < lint->out->count; i++)
        if (xc_streq(lint->out->list[i].name, value->name))
            return true;
    return false;
}

static bool is(const struct xc_nccl_value *value, const char *wanted)
{
    return value && xc_streq(value->value, wanted);
}

/* ---- one variable by the table ------------------------------------------------------------------------- */

/* Variables that plugins read, by how they begin: no table has them all. */
static bool of_a_plugin(const char *name)
{
    static const char *const prefixes[] = {
        "NCCL_IBEXT_",    "NCCL_SHARP_", "NCCL_UCX_",        "NCCL_FASTRAK_", "NCCL_SHIMNET_",
        "NCCL_GPUVIZ_",   "NCCL_TESTS_", "NCCL_INSPECTOR_",  "NCCL_PROFILE_", "NCCL_GIB_",
        "NCCL_TELEMETRY", "NCCL_TUNER_", "NCCL_NET_PLUGIN_", "NCCL_PLUGIN_",  "NCCL_TCPX"};
    for (size_t i = 0; i < XC_COUNT(prefixes); i++)
        if (xc_starts(name, prefixes[i]))
            return true;
    return false;
}

static void unknown(struct lint *lint, const struct xc_nccl_value *value)
{
    const struct xc_nccl_variable *table;
    size_t count = xc_nccl_variables(&table);
    const char **names = calloc(count + 1, sizeof *names);
    if (!names) {
        lint->out->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++)
        names[i] = table[i].name;
    const char *near = xc_nearest(value->name, names);
    char fix[160] = "";
    if (near) /* a file's line is cut at its first =, and no blank is taken off */
        snprintf(fix, sizeof fix, "did you mean %s?%s", near,
                 strpbrk(value->name, " \t") ? " A blank before = is a part of the name" : "");
    say(lint, value, true, fix, "no NCCL from 2.8 to 2.30 knows it: it does nothing");
    free(names);
}

static void by_release(struct lint *lint, const struct xc_nccl_value *value,
                       const struct xc_nccl_variable *known)
{
    char have[XC_NCCL_RELEASE_TEXT], then[XC_NCCL_RELEASE_TEXT];
    unsigned release = lint->in->release;
    if (release && known->since > release)
        say(lint, value, true, "", "NCCL %s does not know it yet; it came with %s",
            xc_nccl_release_text(release, have), xc_nccl_release_text(known->since, then));
    else if (known->gone && (!release || known->gone <= release))
        say(lint, value, true, known->note, "NCCL no longer reads it since %s",
            xc_nccl_release_text(known->gone, then));
}

/* NCCL reads numbers with strtoll: of a word comes 0, of "2x" comes 2. */
static void as_number(struct lint *lint, const struct xc_nccl_value *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(value->value, &end, 0);
    if (*value->value && (*end || end == value->value))
        say(lint, value, true, "", "\"%.40s\" is no whole number: NCCL reads %lld", value->value,
            number);
}

static bool debugging(const struct xc_nccl_value *value, const struct xc_nccl_variable *known)
{
    if (xc_streq(value->name, "NCCL_DEBUG"))
        return strcasecmp(value->value, "INFO") == 0 || strcasecmp(value->value, "TRACE") == 0 ||
               strcasecmp(value->value, "ABORT") == 0;
    if (xc_streq(value->name, "NCCL_DEBUG_SUBSYS"))
        return true;
    return (known->flags & XC_NCCL_DEBUG) && !xc_streq(value->value, "0");
}

static void by_table(struct lint *lint, const struct xc_nccl_value *value)
{
    const struct xc_nccl_variable *known = xc_nccl_find(value->name);
    if (!known) {
        if (!of_a_plugin(value->name))
            unknown(lint, value);
        return;
    }
    if (known->flags & XC_NCCL_OTHER) {
        if (strstr(known->note, "TORCH_"))
            say(lint, value, true, "", "%s", known->note);
        return;
    }
    by_release(lint, value, known);
    if (known->flags & XC_NCCL_NUMBER)
        as_number(lint, value);
    if (debugging(value, known))
        say(lint, value, false, "take it away for production", "%s",
            *known->note && !xc_streq(value->name, "NCCL_DEBUG") ? known->note
                                                                 : "for finding faults");
    else if ((known->flags & XC_NCCL_TUNING) && !is_said(lint, value))
        say(lint, value, false, "keep it only with a measurement on this fabric", "%s",
            *known->note ? known->note : "in the place of what NCCL works out for each machine");
}

/* ---- values that have a meaning of their own -------------------------------------------------------------- */

static void levels(struct lint *lint, const char *name)
{
    const struct xc_nccl_value *value = get(lint, name);
    if (value && strspn(value->value, "0123456789") == strlen(value->value) && *value->value)
        say(lint, value, false, "LOC, NVL, PIX, PXB, PHB or SYS",
            "the numbers are old, and their meaning has changed between releases");
}

/* NCCL_ALGO and NCCL_PROTO: "Ring,Tree", "^LL128", "AllReduce:Tree;Broadcast:^NVLS" (parseList of NCCL's
 * src/graph/tuning.cc; the words of 2.30, most of which are as old as the variables). */
static void enabled(struct lint *lint, const char *name, const char *const *words)
{
    static const char *const calls[] = {"Broadcast",     "Reduce",    "AllGather",
                                        "ReduceScatter", "AllReduce", NULL};
    const struct xc_nccl_value *value = get(lint, name);
    const char *at = value ? value->value : "";
    while (*at) {
        at += *at == '^';
        size_t length = strcspn(at, ",;:");
        const char *const *known = at[length] == ':' ? calls : words;
        char word[32], fix[80];
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        while (*known && strcasecmp(*known, word) != 0)
            known++;
        if (length > 0 && !*known) {
            const char *near = xc_nearest(word, at[length] == ':' ? calls : words);
            snprintf(fix, sizeof fix, near ? "did you mean %s?" : "", near);
            say(lint, value, true, fix,
                "\"%s\" is none of its words: NCCL ends the job (before 2.24: does without it)",
                word);
            return;
        }
        at += length + (at[length] != '\0');
    }
}

static void words(struct lint *lint)
{
    static const char *const algorithms[] = {"Tree", "Ring",     "CollNetDirect", "CollNetChain",
                                             "NVLS", "NVLSTree", "PAT",           NULL};
    static const char *const protocols[] = {"LL", "LL128", "Simple", NULL};
    enabled(lint, "NCCL_ALGO", algorithms);
    enabled(lint, "NCCL_PROTO", protocols);
}

static void contradictions(struct lint *lint)
{
    const struct xc_nccl_value *cumem = get(lint, "NCCL_CUMEM_ENABLE"),
                               *mnnvl = get(lint, "NCCL_MNNVL_ENABLE"),
                               *ib = get(lint, "NCCL_IB_DISABLE"), *hca = get(lint, "NCCL_IB_HCA"),
                               *split = get(lint, "NCCL_IB_SPLIT_DATA_ON_QPS"),
                               *qps = get(lint, "NCCL_IB_QPS_PER_CONNECTION");
    if (is(cumem, "0") && is(mnnvl, "1"))
        say(lint, mnnvl, true, "take NCCL_CUMEM_ENABLE=0 away",
            "NCCL_CUMEM_ENABLE=0 takes away what multi-node NVLink needs");
    if (is(ib, "1") && hca)
        say(lint, hca, true, "", "NCCL_IB_DISABLE=1: RDMA is not used, whatever is listed here");
    else if (is(ib, "1"))
        say(lint, ib, false, "take it away on a node with RDMA",
            "RDMA is not used: sockets instead");
    if (is(split, "1") && (!qps || is(qps, "1")))
        say(lint, split, false, "", "does nothing with one QP (NCCL_IB_QPS_PER_CONNECTION)");
    levels(lint, "NCCL_NET_GDR_LEVEL");
    levels(lint, "NCCL_P2P_LEVEL");
}

/* ---- CPUs ----------------------------------------------------------------------------------------------------- */

static void cpus(struct lint *lint)
{
    const struct xc_nccl_value *ignore = get(lint, "NCCL_IGNORE_CPU_AFFINITY"),
                               *proxy = get(lint, "NCCL_PROXY_CPUSET");
    if (lint->in->cpus && is(ignore, "1"))
        say(lint, ignore, true, "take it away: this task is bound",
            "NCCL's threads leave the CPUs that the task was given");
    if (!proxy)
        return;
    if (strchr(proxy->value, '-')) {
        say(lint, proxy, true, "write each CPU: 8,9,10",
            "of a range (\"%.40s\") NCCL reads the first number alone", proxy->value);
        return;
    }
    for (const char *at = proxy->value; lint->in->cpus && *at;) {
        char *end;
        unsigned long cpu = strtoul(at, &end, 10);
        if (end == at)
            break;
        if (!xc_set_has(lint->in->cpus, cpu)) {
            say(lint, proxy, true, "", "CPU %lu is none of this task's", cpu);
            break;
        }
        at = *end == ',' ? end + 1 : end;
        if (at == end)
            break;
    }
}

/* ---- adapters --------------------------------------------------------------------------------------------------- */

static const struct xc_nic *port_named(const struct xc_node *node, const char *name, bool exact,
                                       size_t *matches)
{
    const struct xc_nic *first = NULL;
    *matches = 0;
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (!nic->rdma[0] || !(exact ? xc_streq(nic->rdma, name) : xc_starts(nic->rdma, name)))
            continue;
        first = first ? first : nic;
        *matches += 1;
    }
    return first;
}

static void one_adapter(struct lint *lint, const struct xc_nccl_value *value, char *entry,
                        bool exact, bool without)
{
    size_t matches, same;
    entry[strcspn(entry, ":")] = '\0';
    const struct xc_nic *nic = port_named(lint->in->node, entry, exact, &matches);
    if (!nic && !without)
        say(lint, value, true, "xcloud plan shows what they are called",
            "this node has no adapter %.60s", entry);
    else if (nic && !exact && xc_streq(nic->rdma, entry)) {
        port_named(lint->in->node, entry, true, &same);
        if (matches > same)
            say(lint, value, true, without ? "write ^= first" : "write = before the list",
                "%.60s is a prefix: it takes %zu adapters", entry, matches);
    }
}

/* An exact list in another order than the node's rails: NCCL pairs adapters of nodes by position. */
static void rail_order(struct lint *lint, const struct xc_nccl_value *value, char **names)
{
    size_t last = 0, rank;
    for (char **name = names; *name; name++) {
        for (rank = 0; rank < lint->in->node->nnics; rank++)
            if (xc_streq(lint->in->node->nics[rank].rdma, *name))
                break;
        if (rank < last) {
            say(lint, value, false, "the same order as the PCI addresses, on every node",
                "not in the order of the rails at %.60s: nodes pair adapters by position", *name);
            return;
        }
        last = rank;
    }
}

static void adapters(struct lint *lint)
{
    const struct xc_nccl_value *value = get(lint, "NCCL_IB_HCA");
    if (!value || !lint->in->node || !*value->value)
        return;
    bool without = value->value[0] == '^', exact = value->value[without] == '=';
    xc_autonames char **names = xc_names_split(value->value + without + exact);
    if (!names) {
        lint->out->failed = true;
        return;
    }
    size_t count = 0;
    for (; names[count]; count++)
        one_adapter(lint, value, names[count], exact, without);
    if (count > 32)
        say(lint, value, true, "", "%zu entries; NCCL reads the first 32", count);
    if (exact && !without)
        rail_order(lint, value, names);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

static void topology(struct lint *lint)
{
    const struct xc_nccl_value *value = get(lint, "NCCL_TOPO_FILE");
    const struct xc_rules *rules = lint->in->rules;
    if (value && rules && rules->topo.none)
        say(lint, value, true, "take it away",
            "this class of node must have none (topo.file: none)");
}

static void release(struct lint *lint)
{
    const struct xc_rules *rules = lint->in->rules;
    static const struct xc_nccl_value none = {.name = (char *)"NCCL"};
    char text[XC_NCCL_RELEASE_TEXT];
    bool allows = true;
    if (rules && rules->nccl_version && lint->in->release &&
        xc_nccl_allows(rules->nccl_version, lint->in->release, &allows, NULL) == 0 && !allows)
        say(lint, &none, true, "", "the library is %s; the policy wants %s",
            xc_nccl_release_text(lint->in->release, text), rules->nccl_version);
}

/* What is wrong before what should be looked at, each in its order. */
static void worst_first(struct xc_nccl_findings *findings)
{
    size_t wrong = 0;
    for (size_t i = 0; i < findings->count; i++) {
        struct xc_nccl_finding one = findings->list[i];
        if (!one.error)
            continue;
        memmove(&findings->list[wrong + 1], &findings->list[wrong],
                (i - wrong) * sizeof *findings->list);
        findings->list[wrong++] = one;
    }
}

int xc_nccl_lint(const struct xc_nccl_input *input, struct xc_nccl_findings *out,
                 struct xc_error *error)
{
    struct lint lint = {.in = input, .out = out};
    release(&lint);
    words(&lint);
    for (size_t i = 0; i < input->values->count; i++)
        if (xc_starts(input->values->list[i].name, "NCCL_"))
            by_table(&lint, &input->values->list[i]);
    contradictions(&lint);
    cpus(&lint);
    adapters(&lint);
    topology(&lint);
    worst_first(out);
    return out->failed ? xc_error_nomem(error) : 0;
}

void xc_nccl_findings_clear(struct xc_nccl_findings *findings)
{
    free(findings->list);
    *findings = (struct xc_nccl_findings){0};
}

void xc_nccl_findings_text(const struct xc_nccl_findings *findings, struct xc_text *out)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_nccl_finding *finding = &findings->list[i];
        xc_text_add(out, finding->error ? "WRONG " : "CHECK ");
        xc_text_add_plain(out, finding->name, 80);
        xc_text_addf(out, ": %s%s%s\n", finding->what, *finding->fix ? "; " : "", finding->fix);
    }
}
