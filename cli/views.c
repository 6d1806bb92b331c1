/* How is a whole check told in one line, to Nagios, or in the order of NVIDIA's prescreen? */
#include <string.h>

#include "views.h"

static enum xc_check_verdict worst_of(const struct xc_findings *findings)
{
    enum xc_check_verdict verdict = XC_CHECK_NA;
    for (size_t i = 0; i < findings->count; i++)
        if (findings->list[i].verdict > verdict)
            verdict = findings->list[i].verdict;
    return verdict;
}

static const struct xc_finding *first_of(const struct xc_findings *findings,
                                         enum xc_check_verdict verdict)
{
    for (size_t i = 0; i < findings->count; i++)
        if (findings->list[i].verdict == verdict)
            return &findings->list[i];
    return NULL;
}

static const char *loud(enum xc_check_verdict verdict)
{
    static const char *const names[] = {"N/A", "PASS", "UNKNOWN", "WARN", "FAIL"};
    return names[verdict];
}

void view_no_certificate(struct xc_text *out)
{
    xc_text_add(out, "A pass is no certificate: only the workload proves it.\n");
}

/* ---- one line --------------------------------------------------------------------------------------- */

static void counts(const struct xc_findings *findings, struct xc_text *out)
{
    static const struct {
        enum xc_check_verdict verdict;
        const char *word;
    } words[] = {{XC_CHECK_FAIL, "failed"},
                 {XC_CHECK_WARN, "warned"},
                 {XC_CHECK_UNKNOWN, "unknown"},
                 {XC_CHECK_PASS, "passed"},
                 {XC_CHECK_NA, "n/a"}};
    for (size_t i = 0; i < XC_COUNT(words); i++)
        xc_text_addf(out, "%s%zu %s", i ? ", " : "", xc_findings_count(findings, words[i].verdict),
                     words[i].word);
}

/* The first of the worst, when it is worth telling. */
static void headline(const struct xc_findings *findings, struct xc_text *out)
{
    enum xc_check_verdict worst = worst_of(findings);
    const struct xc_finding *first = worst > XC_CHECK_PASS ? first_of(findings, worst) : NULL;
    if (!first)
        return;
    xc_text_addf(out, "; %s%s%s: %s", first->check->id, *first->device ? " " : "", first->device,
                 first->actual);
    size_t more = xc_findings_count(findings, worst) - 1;
    if (more > 0)
        xc_text_addf(out, " (+%zu)", more);
}

void view_brief(const struct xc_findings *findings, const char *node, struct xc_text *out)
{
    xc_text_addf(out, "%s: %s: ", node, loud(worst_of(findings)));
    counts(findings, out);
    headline(findings, out);
    xc_text_add(out, "\n");
}

/* ---- Nagios ----------------------------------------------------------------------------------------- */

int view_nagios(const struct xc_findings *findings, struct xc_text *out)
{
    static const char *const words[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};
    static const int states[] = {3, 0, 3, 1, 2}; /* n/a alone: nothing is known */
    xc_autotext struct xc_text line = XC_TEXT_INIT;
    int state = states[worst_of(findings)];
    xc_text_addf(&line, "XCLOUD %s - ", words[state]);
    counts(findings, &line);
    headline(findings, &line);
    for (char *c = line.data; c && *c; c++)
        if (*c == '|') /* what comes behind it is performance data */
            *c = '/';
    out->failed |= line.failed;
    xc_text_add(out, line.data ? line.data : "");
    xc_text_addf(
        out, " | failed=%zu;;0 warned=%zu;0 unknown=%zu passed=%zu na=%zu\n",
        xc_findings_count(findings, XC_CHECK_FAIL), xc_findings_count(findings, XC_CHECK_WARN),
        xc_findings_count(findings, XC_CHECK_UNKNOWN), xc_findings_count(findings, XC_CHECK_PASS),
        xc_findings_count(findings, XC_CHECK_NA));
    return state;
}

/* ---- NVIDIA's prescreen ------------------------------------------------------------------------------ */

static const struct step {
    const char *number, *looks_at; /* what the prescreen prints */
    const char *checks;            /* what we say to it */
} steps[] = {
    {"1a", "lscpu", "cpu.count"},
    {"1b", "governor", "cpu.turbo,cpu.power,cpu.throttle,cpu.priority"},
    {"1c", "C-states", "cpu.cstate,cpu.cstate_reached"},
    {"2", "lspci", "gpu.count,gpu.pcie,nic.count,nic.pcie"},
    {"3", "numactl -H", "numa.nodes,mem.total,mem.edac"},
    {"4", "kernel command line", "host.cmdline,grace.init_on_alloc"},
    {"5", "virtualization", "host.environment,topo.file"},
    {"6", "page size", "grace.page_size,mem.thp"},
    {"7", "SMMU", "grace.cmdqv,grace.iommu"},
    {"8", "nvidia-smi, NVLink, fabric",
     "gpu.driver,gpu.health,gpu.xid,gpu.mig,gpu.nvlink,gpu.fabric,gpu.dcgm"},
    {"9", "NUMA balancing", "numa.balancing,numa.reclaim"},
    {"10", "HCAs, IBGDA", "nic.port,nic.flaps,nic.mtu,nic.pfc,nic.ecn,gpu.gdr"},
    {"11", "Slurm topology, PMIx", "slurm.topology,slurm.pmix"},
    {"12", "enroot", "container.enroot,topo.hook,nccl.conf"},
    {"13", "in a container",
     "gpu.imex,inside.gpus,inside.hcas,inside.imex,inside.topo,"
     "inside.rendezvous,inside.affinity"},
};

char **view_exemplar_checks(bool inside)
{
    xc_autotext struct xc_text list = XC_TEXT_INIT;
    for (size_t i = 0; i < XC_COUNT(steps); i++)
        xc_text_addf(&list, "%s%s", i ? "," : "", steps[i].checks);
    char **all = list.failed ? NULL : xc_names_split(list.data), **to = all;
    for (char **from = all; from && *from; from++) {
        if (!inside && xc_starts(*from, "inside."))
            free(*from);
        else
            *to++ = *from;
    }
    if (all)
        *to = NULL;
    return all;
}

static bool names(const char *list, const char *id)
{
    size_t length = strlen(id);
    for (const char *at = list; (at = strstr(at, id)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

static void finding_text(const struct xc_finding *f, struct xc_text *out)
{
    xc_text_addf(out, "%s%s%s: %s", f->check->id, *f->device ? " " : "", f->device, f->actual);
    if (f->verdict > XC_CHECK_PASS && *f->expected)
        xc_text_addf(out, "; want %s", f->expected);
    if (f->verdict > XC_CHECK_PASS && *f->hint)
        xc_text_addf(out, ". %s", f->hint);
    xc_text_addf(out, " [%s]\n", f->check->code);
}

/* A step's verdict is its worst finding's; then what else is not as it should be. */
static void one_step(const struct xc_findings *findings, const struct step *step,
                     struct xc_text *out)
{
    const struct xc_finding *first = NULL;
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        if (names(step->checks, f->check->id) && (!first || f->verdict > first->verdict))
            first = f;
    }
    xc_text_addf(out, "%-3s %-7s %-27s ", step->number, loud(first ? first->verdict : XC_CHECK_NA),
                 step->looks_at);
    if (first)
        finding_text(first, out);
    else
        xc_text_add(out, "nothing has looked\n");
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_finding *f = &findings->list[i];
        if (f == first || !names(step->checks, f->check->id) || f->verdict <= XC_CHECK_PASS)
            continue;
        xc_text_addf(out, "    %-7s %-27s ", loud(f->verdict), "");
        finding_text(f, out);
    }
}

void view_exemplar(const struct xc_findings *findings, struct xc_text *out)
{
    bool inside = false;
    for (size_t i = 0; i < XC_COUNT(steps); i++)
        one_step(findings, &steps[i], out);
    for (size_t i = 0; i < findings->count; i++)
        inside |= xc_starts(findings->list[i].check->id, "inside.");
    if (!inside)
        xc_text_add(out, "    Step 13 in full: srun --container-image=… xcloud check --exemplar "
                         "--inside\n");
    counts(findings, out);
    xc_text_add(out, "\n");
}
