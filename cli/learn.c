/* xcloud policy learn: which class would this node be, if everything about it were right? */
#include <ctype.h>
#include <string.h>
#include <time.h>

#include <xcloud/check.h>

#include "cli.h"

struct learn {
    const char *machine, *node, *class_name;
    long deadline_ms;
    struct xc_root *root;
    struct xc_node *n;
    char name[256];
    struct xc_check_live live;
    char **dropped; /* checks that this node does not pass when they are asked for */
    size_t ndropped;
};

/* ---- words of YAML ---------------------------------------------------------------------------------- */

/* A double-quoted text; what is not printable is left out. */
static void quoted(struct xc_text *out, const char *text)
{
    xc_text_add(out, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            xc_text_add(out, "\\");
        if ((unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f)
            xc_text_add_n(out, c, 1);
    }
    xc_text_add(out, "\"");
}

/* "SYS-821GE-TNHR-H200" to "sys-821ge-tnhr-h200" */
static void class_name(const struct learn *l, char *name, size_t size)
{
    const char *from = l->class_name ? l->class_name : l->n->product;
    size_t used = 0;
    for (const char *c = from; *c && used + 1 < size && used < 40; c++) {
        bool word = isalnum((unsigned char)*c) || *c == '_' || *c == '.';
        if (word)
            name[used++] = (char)tolower((unsigned char)*c);
        else if (used > 0 && name[used - 1] != '-')
            name[used++] = '-';
    }
    while (used > 0 && name[used - 1] == '-')
        used--;
    name[used] = '\0';
    if (used == 0)
        snprintf(name, size, "node");
}

/* ---- what is expected ------------------------------------------------------------------------------- */

static void match(const struct learn *l, struct xc_text *out)
{
    xc_text_add(out, "    match: { ");
    if (*l->n->product) {
        xc_text_add(out, "product: ");
        quoted(out, l->n->product);
        if (*l->n->vendor) {
            xc_text_add(out, ", vendor: ");
            quoted(out, l->n->vendor);
        }
    } else {
        xc_text_add(out, "nodes: ");
        quoted(out, l->name);
    }
    xc_text_add(out, " } # or nodes: \"gpu[001-064]\"\n");
}

/* The rails: RDMA ports a switch or two from a GPU; without such the fastest kind. */
struct rails {
    bool *is; /* nnics */
    size_t count;
    uint16_t vendor, device; /* of all of them; 0: they differ */
    uint32_t rate, link;     /* 0: they differ */
};

static bool near_a_gpu(const struct xc_node *n, size_t nic)
{
    for (size_t i = 0; i < n->ngpus; i++)
        if (n->nics[nic].pci >= 0 &&
            xc_node_path(n, n->nics[nic].pci, n->gpus[i].pci) <= XC_PATH_PXB)
            return true;
    return false;
}

static bool is_rdma(const struct xc_nic *nic)
{
    return nic->rdma[0] && nic->pci >= 0;
}

static bool usable(const struct xc_nic *nic)
{
    return is_rdma(nic) && nic->state == XC_PORT_ACTIVE;
}

static void find_rails(const struct xc_node *n, struct rails *r)
{
    uint32_t best = 0;
    for (size_t i = 0; i < n->nnics; i++)
        if (is_rdma(&n->nics[i]) && near_a_gpu(n, i)) /* one that is down is missed, not left out */
            r->is[i] = ++r->count > 0;
    for (size_t i = 0; r->count == 0 && i < n->nnics; i++)
        if (usable(&n->nics[i]) && n->nics[i].rate_mbps > best)
            best = n->nics[i].rate_mbps;
    for (size_t i = 0; best > 0 && i < n->nnics; i++)
        if (usable(&n->nics[i]) && n->nics[i].rate_mbps == best)
            r->is[i] = ++r->count > 0;
    bool first = true;
    for (size_t i = 0; i < n->nnics; i++) {
        if (!r->is[i])
            continue;
        const struct xc_nic *nic = &n->nics[i];
        const struct xc_pci *pci = &n->pci[nic->pci];
        if (first) {
            r->vendor = pci->vendor;
            r->device = pci->device;
            r->rate = nic->rate_mbps;
            r->link = nic->link;
        }
        first = false;
        if (pci->vendor != r->vendor || pci->device != r->device)
            r->vendor = r->device = 0;
        r->rate = nic->rate_mbps == r->rate ? r->rate : 0;
        r->link = nic->link == r->link ? r->link : 0;
    }
}

static const char *link_word(uint32_t link)
{
    return link == XC_NIC_INFINIBAND ? "infiniband" : link == XC_NIC_ETHERNET ? "ethernet" : NULL;
}

static void expect_gpus(const struct xc_node *n, struct xc_text *out)
{
    const struct xc_pci *first = n->ngpus ? &n->pci[n->gpus[0].pci] : NULL;
    bool same = first != NULL;
    for (size_t i = 0; i < n->ngpus; i++)
        same &= n->pci[n->gpus[i].pci].vendor == first->vendor &&
                n->pci[n->gpus[i].pci].device == first->device;
    if (n->ngpus == 0 || n->ngpus > 64)
        return;
    xc_text_addf(out, "      gpus: { count: %zu", n->ngpus);
    if (same)
        xc_text_addf(out, ", model: \"%04x:%04x\"", first->vendor, first->device);
    xc_text_add(out, " }\n");
}

static void expect(const struct learn *l, const struct rails *r, struct xc_text *out)
{
    xc_autoset struct xc_set numas = XC_SET_EMPTY;
    xc_node_cpu_numas(l->n, &numas);
    xc_text_add(out, "    expect:\n");
    expect_gpus(l->n, out);
    xc_text_addf(out, "      numa_nodes: %zu\n", xc_set_count(&numas));
    if (r->count == 0 || r->count > 64)
        return;
    xc_text_addf(out, "      nics: { count: %zu", r->count);
    if (r->rate >= 1000)
        xc_text_addf(out, ", rate: %uGb/s", r->rate / 1000);
    if (link_word(r->link))
        xc_text_addf(out, ", link: %s", link_word(r->link));
    xc_text_add(out, " }\n");
}

/* A NIC that the other words would take for a rail. */
static bool must_be_excluded(const struct xc_node *n, const struct rails *r, size_t nic)
{
    const struct xc_nic *one = &n->nics[nic];
    if (r->is[nic] || !one->rdma[0])
        return false;
    bool pci = r->vendor == 0 || (one->pci >= 0 && n->pci[one->pci].vendor == r->vendor &&
                                  n->pci[one->pci].device == r->device);
    return pci && (r->link == 0 || one->link == r->link);
}

static void nics(const struct learn *l, const struct rails *r, struct xc_text *out)
{
    const char *comma = "", *separator = "";
    if (r->count == 0)
        return;
    xc_text_add(out, "    nics:\n      compute: { ");
    if (r->vendor) {
        xc_text_addf(out, "pci: \"%04x:%04x\"", r->vendor, r->device);
        separator = ", ";
    }
    if (link_word(r->link)) {
        xc_text_addf(out, "%slink: %s", separator, link_word(r->link));
        separator = ", ";
    }
    for (size_t i = 0; i < l->n->nnics; i++)
        if (must_be_excluded(l->n, r, i)) {
            xc_text_addf(out, "%s%s", *comma ? "" : separator, *comma ? comma : "not: [");
            quoted(out, l->n->nics[i].rdma);
            comma = ", ";
        }
    xc_text_addf(out, "%s } # the rails; storage NICs stay out\n", *comma ? "]" : "");
}

static void cpus(const struct learn *l, struct xc_text *out)
{
    xc_autoset struct xc_set reserved = XC_SET_EMPTY;
    xc_node_flagged(l->n, XC_CPU_SLURM_SPEC, &reserved);
    if (xc_set_empty(&reserved))
        xc_text_add(out, "    cpus: { housekeeping: none } # SITE: which CPUs are the host's own? "
                         "\"0-3,56-59\"\n");
    else
        xc_text_add(out, "    cpus: { housekeeping: slurm } # what CpuSpecList reserves\n");
}

static void topo(const struct learn *l, struct xc_text *out)
{
    if (xc_root_exists(l->root, "/etc/nccl/topo.xml"))
        xc_text_add(out, "    topo: { file: /etc/nccl/topo.xml }\n");
    else if (l->n->environment == XC_VM && l->n->ngpus > 1)
        xc_text_add(out,
                    "    # SITE: topo: { file: /etc/nccl/topo.xml } from the provider, or xcloud "
                    "topo generate\n");
}

/* ---- what is checked -------------------------------------------------------------------------------- */

static bool is_dropped(const struct learn *l, const char *id)
{
    for (size_t i = 0; i < l->ndropped; i++)
        if (xc_streq(l->dropped[i], id))
            return true;
    return false;
}

/* What a check asks for on this node, where that can be read off it. */
static void parameters(const struct learn *l, const struct xc_finding *f, struct xc_text *out)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    unsigned count;
    double gib;
    xc_node_online(l->n, &online);
    if (xc_streq(f->check->id, "cpu.count"))
        xc_text_addf(out, "count: %zu, cores: %u, sockets: %zu, ", xc_set_count(&online),
                     xc_node_count_cores(l->n, &online), l->n->npackages);
    else if (xc_streq(f->check->id, "cpu.cstate") && f->expected[0] == 'C')
        xc_text_addf(out, "deepest: %s, ", f->expected); /* so that one that goes is missed */
    else if (xc_streq(f->check->id, "mem.total") && sscanf(f->actual, "%lf GiB", &gib) == 1 &&
             gib >= 1)
        xc_text_addf(out, "total: %.0f, ", gib);
    else if (xc_streq(f->check->id, "gpu.nvlink") &&
             sscanf(f->actual, "%u NVLinks are up at each", &count) == 1)
        xc_text_addf(out, "links: %u, ", count);
    else if (xc_streq(f->check->id, "host.environment"))
        xc_text_addf(out, "is: %s, ", xc_environment_name(l->n->environment));
}

/* Each check that passes here, and no other finding of it does not. */
static void checks(const struct learn *l, const struct xc_findings *findings, struct xc_text *out)
{
    bool any = false;
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        bool passes = f->verdict == XC_CHECK_PASS && !is_dropped(l, f->check->id);
        for (size_t k = 0; passes && k < findings->count; k++)
            if (findings->list[k].check == f->check && findings->list[k].verdict != XC_CHECK_PASS)
                passes = false;
        for (size_t k = 0; passes && k < i; k++)
            passes = findings->list[k].check != f->check;
        if (!passes)
            continue;
        if (!any)
            xc_text_add(out, "    checks: # what this node passes; drain, for what must not run\n");
        any = true;
        xc_text_addf(out, "      %s: { ", f->check->id);
        parameters(l, f, out);
        xc_text_add(out, "on_fail: warn }\n");
    }
}

/* What is not as it should be, for the person who reads the policy. */
static void remarks(const struct xc_findings *findings, struct xc_text *out)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        if (f->verdict >= XC_CHECK_WARN)
            xc_text_addf(out, "# Not learnt: %s%s%s: %s [%s]\n", f->check->id,
                         *f->device ? " " : "", f->device, f->actual, f->check->code);
    }
}

/* ---- the policy ------------------------------------------------------------------------------------- */

static int run_checks(const struct learn *l, const struct xc_rules *rules,
                      struct xc_findings *findings, struct xc_error *error)
{
    struct xc_check_input input = {.root = l->root,
                                   .node = l->n,
                                   .rules = rules,
                                   .node_name = l->name,
                                   .at = XC_AT_CLI,
                                   .live = &l->live};
    return xc_check_run(&input, NULL, findings, error);
}

static void write_policy(const struct learn *l, const struct xc_findings *findings,
                         struct xc_text *out)
{
    struct rails rails = {.is = calloc(l->n->nnics + 1, sizeof(bool))};
    char name[64], day[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (!rails.is) {
        out->failed = true;
        return;
    }
    if (gmtime_r(&now, &tm))
        strftime(day, sizeof day, "%Y-%m-%d", &tm);
    find_rails(l->n, &rails);
    class_name(l, name, sizeof name);
    xc_text_add(out, "# Learnt by xcloud policy learn from ");
    quoted(out, l->name);
    xc_text_addf(out, ", %s. Nothing is bound and nothing drained: mode observe.\n", day);
    xc_text_add(out,
                "# Read it, and say what no node knows: the lines with SITE, mode, and on_fail.\n");
    remarks(findings, out);
    xc_text_addf(out, "version: 1\nmode: observe\n\nclasses:\n  - name: %s\n", name);
    match(l, out);
    xc_text_add(out, "    mode: observe # bind: bind jobs; enforce: and drain\n");
    expect(l, &rails, out);
    cpus(l, out);
    nics(l, &rails, out);
    topo(l, out);
    checks(l, findings, out);
    xc_text_add(out, "\nunmatched: warn\n");
    free(rails.is);
}

/* The rules that a text gives this node: the proof that it is a policy. */
static int resolve(const struct learn *l, const char *text, struct xc_rules **rules,
                   struct xc_error *error)
{
    cli_autopolicy struct xc_policy *policy = NULL;
    struct xc_who who = {.node = l->name,
                         .product = l->n->product,
                         .vendor = l->n->vendor,
                         .environment = xc_environment_name(l->n->environment)};
    if (xc_policy_parse(text, strlen(text), "learnt", &policy, error) < 0 ||
        xc_policy_resolve(policy, &who, NULL, NULL, rules, error) < 0)
        return -1;
    if (!(*rules)->class_name)
        return xc_error_set(error, XC_EINPUT, NULL, "the learnt class does not match its node");
    return xc_check_validate(*rules, "learnt", error);
}

static void drop(struct learn *l, const char *id)
{
    char **more = realloc(l->dropped, (l->ndropped + 1) * sizeof *more);
    if (!more)
        return;
    l->dropped = more;
    more[l->ndropped] = strdup(id);
    l->ndropped += more[l->ndropped] != NULL;
}

/* Holds the policy against its own node; entries that it does not pass are left out of the next one.
 * 1: some were. */
static int prove(struct learn *l, const char *text, struct xc_findings *findings,
                 struct xc_error *error)
{
    cli_autorules struct xc_rules *rules = NULL;
    size_t before = l->ndropped;
    if (resolve(l, text, &rules, error) < 0 || run_checks(l, rules, findings, error) < 0)
        return -1;
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        bool named = false;
        for (size_t k = 0; k < rules->nchecks; k++)
            named |= xc_streq(rules->checks[k].id, f->check->id);
        if (f->verdict == XC_CHECK_FAIL && named && !is_dropped(l, f->check->id))
            drop(l, f->check->id);
    }
    return l->ndropped > before;
}

static void tell(const struct xc_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        xc_autotext struct xc_text line = XC_TEXT_INIT;
        if (findings->list[i].verdict != XC_CHECK_FAIL)
            continue;
        xc_finding_line(&findings->list[i], &line);
        fputs(line.data ? line.data : "", stderr);
    }
    fputs("xcloud policy learn: this node is not good: mend it, or learn from another\n", stderr);
}

static char *policy_text(const struct learn *l, const struct xc_findings *findings)
{
    struct xc_text out = XC_TEXT_INIT;
    write_policy(l, findings, &out);
    return xc_text_take(&out);
}

/* What the checks find when the node's GPUs and NICs are expected, and none is asked for by name. */
static int look(struct learn *l, struct xc_findings *findings, struct xc_error *error)
{
    cli_autorules struct xc_rules *rules = NULL;
    xc_autofree char *text = policy_text(l, findings);
    if (!text)
        return xc_error_nomem(error);
    if (resolve(l, text, &rules, error) < 0)
        return -1;
    struct xc_check_input input = {
        .root = l->root, .node = l->n, .rules = rules, .at = XC_AT_CLI, .live = &l->live};
    xc_check_live_read(l->root, &l->live);
    if (l->deadline_ms > 0)
        xc_check_live_probe(&input, (unsigned)l->deadline_ms, &l->live);
    return run_checks(l, rules, findings, error);
}

static int learn(struct learn *l)
{
    struct xc_error error = {0};
    struct xc_findings first = {0}, last = {0};
    xc_autofree char *text = NULL;
    int again = look(l, &first, &error) < 0 ? -1 : 1;
    while (again > 0) {
        free(text);
        text = policy_text(l, &first);
        xc_findings_clear(&last);
        again = text ? prove(l, text, &last, &error) : xc_error_nomem(&error);
    }
    int rc = again < 0 ? cli_fail(&error) : 0;
    if (rc == 0) {
        fputs(text, stdout);
        rc = fflush(stdout) == EOF ? 2 : xc_findings_count(&last, XC_CHECK_FAIL) > 0;
    }
    if (rc == 1)
        tell(&last);
    xc_findings_clear(&first);
    xc_findings_clear(&last);
    return rc;
}

/* ---- words ------------------------------------------------------------------------------------------ */

static const char help[] =
    "usage: xcloud policy learn [--machine DIR|ARCHIVE] [--node NAME] [--name CLASS]\n"
    "                           [--deadline SECONDS]\n"
    "  A policy with one class, mode observe, that says what this good node is. Exit status:\n"
    "  0, 1 the node fails checks whatever the policy says, 2 usage or input.\n";

static int open_node(struct learn *l)
{
    struct xc_error error = {0};
    const char *name = cli_node_name(l->machine, l->node, l->name, sizeof l->name);
    if (name != l->name)
        snprintf(l->name, sizeof l->name, "%s", name);
    return cli_open_machine(l->machine, l->node, &l->root, &l->n, &error) < 0 ? cli_fail(&error)
                                                                              : 0;
}

int cli_learn(int argc, char **argv)
{
    struct learn l = {.deadline_ms = 5000, .live.dma_latency_us = -1};
    const char *deadline = NULL;
    const struct cli_option options[] = {{"machine", .text = &l.machine},
                                         {"node", .text = &l.node},
                                         {"name", .text = &l.class_name},
                                         {"deadline", .text = &deadline},
                                         {0}};
    int rc = cli_options("policy", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    if (optind < argc)
        return cli_usage("policy", "learn: \"%.60s\" is too much", argv[optind]);
    if (cli_deadline("policy", deadline, &l.deadline_ms) != 0)
        return 2;
    rc = open_node(&l);
    if (rc == 0)
        rc = learn(&l);
    xc_check_live_clear(&l.live);
    xc_node_free(l.n);
    xc_root_close(l.root);
    for (size_t i = 0; i < l.ndropped; i++)
        free(l.dropped[i]);
    free(l.dropped);
    return rc;
}
