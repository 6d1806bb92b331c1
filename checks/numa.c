/* Is the memory all there, divided as it should be, and left alone by the kernel? */
#include <inttypes.h>

#include "work.h"

#define NODES "/sys/devices/system/node"

/* ---- numa.nodes ----------------------------------------------------------------------------------- */

static const struct xc_check_param nodes_params[] = {
    {"count", XC_PARAM_NUMBER, NULL, "NUMA nodes with CPUs; default: expect: numa_nodes", NULL},
    {0},
};

/* A node of the kernel that is not whole: CPUs and memory belong together on these machines. */
static void bare_nodes(const struct xc_check_input *in, struct xc_findings *out)
{
    for (size_t i = 0; i < in->node->nnumas; i++) {
        const struct xc_numa *numa = &in->node->numas[i];
        char device[24];
        snprintf(device, sizeof device, "node%d", numa->os);
        if (numa->ncpus > 0 && numa->memory == 0)
            chk_say(out, XC_CHECK_WARN,
                    (struct chk_words){.device = device,
                                       .hint = "a socket without memory: look for DIMMs that "
                                               "failed training in the BMC's log"},
                    "it has CPUs and no memory");
    }
}

static void run_nodes(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set nodes = XC_SET_EMPTY;
    long want = (long)in->rules->expect.numa_nodes;
    char text[48];
    xc_node_cpu_numas(in->node, &nodes);
    size_t have = xc_set_count(&nodes), before = out->count;
    bool asked = chk_param_number(in, "count", &want) || want > 0;
    snprintf(text, sizeof text, "%ld", want);
    if (asked && (size_t)want != have)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = text,
                                   .hint = "set Sub-NUMA Clustering (Intel) or Nodes Per Socket "
                                           "(AMD) in the BIOS; a plan for one shape is wrong for "
                                           "the other"},
                "%zu NUMA nodes with CPUs on %zu sockets", have, in->node->npackages);
    bare_nodes(in, out);
    if (out->count != before)
        return;
    if (have == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "the kernel shows no NUMA nodes");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0},
                "%zu NUMA nodes with CPUs on %zu sockets", have, in->node->npackages);
}

static const struct xc_check nodes = {
    .id = "numa.nodes",
    .code = "NUM01",
    .what = "as many NUMA nodes as expected (SNC, NPS)",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = nodes_params,
    .run = run_nodes,
};

/* ---- numa.balancing, numa.reclaim: a number that must be one ---------------------------------------------- */

static void sysctl_is(const struct xc_check_input *in, struct xc_findings *out, const char *path,
                      const char *name, const char *hint)
{
    long have, want = 0;
    char text[24];
    chk_param_number(in, "value", &want);
    snprintf(text, sizeof text, "%ld", want);
    if (!xc_root_read_long(in->root, &have, "%s", path)) {
        if (xc_root_exists(in->root, "%s", path))
            chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "%s is no number", path);
        else
            chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this kernel has no %s", name);
        return;
    }
    if (have == want)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s is %ld", name, have);
    else
        chk_say(out, chk_bad(in), (struct chk_words){.want = text, .hint = hint}, "%s is %ld", name,
                have);
}

static const struct xc_check_param balancing_params[] = {
    {"value", XC_PARAM_NUMBER, "0", "kernel.numa_balancing", NULL},
    {0},
};

static void run_balancing(const struct xc_check_input *in, struct xc_findings *out)
{
    sysctl_is(
        in, out, "/proc/sys/kernel/numa_balancing", "kernel.numa_balancing",
        "sysctl kernel.numa_balancing=0: it unmaps pages of bound tasks to see who uses them, "
        "and stalls them by milliseconds");
}

static const struct xc_check balancing = {
    .id = "numa.balancing",
    .code = "NUM02",
    .what = "the kernel does not migrate pages of bound tasks",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = balancing_params,
    .run = run_balancing,
};

static const struct xc_check_param reclaim_params[] = {
    {"value", XC_PARAM_NUMBER, "0", "vm.zone_reclaim_mode", NULL},
    {0},
};

static void run_reclaim(const struct xc_check_input *in, struct xc_findings *out)
{
    sysctl_is(in, out, "/proc/sys/vm/zone_reclaim_mode", "vm.zone_reclaim_mode",
              "sysctl vm.zone_reclaim_mode=0: otherwise a full node throws its page cache away "
              "before the other node's free memory is used");
}

static const struct xc_check reclaim = {
    .id = "numa.reclaim",
    .code = "NUM03",
    .what = "a full node uses other nodes' memory before it reclaims its own",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = reclaim_params,
    .run = run_reclaim,
};

/* ---- mem.total ------------------------------------------------------------------------------------------------ */

static const struct xc_check_param total_params[] = {
    {"total", XC_PARAM_NUMBER, NULL, "GiB of the machine", NULL},
    {"node", XC_PARAM_NUMBER, NULL, "GiB of each NUMA node with CPUs", NULL},
    {"tolerance", XC_PARAM_NUMBER, "5%", "what may be missing: kernel, crashkernel, firmware",
     NULL},
    {0},
};

static unsigned gib(uint64_t bytes)
{
    return (unsigned)((bytes + (1u << 29)) >> 30);
}

static bool too_little(uint64_t bytes, uint64_t want, long tolerance)
{
    return bytes < want / 100 * (uint64_t)(tolerance < 100 ? 100 - tolerance : 0);
}

static const char dimm_hint[] = "look for a DIMM that is missing or failed training: BMC log, "
                                "dmidecode -t memory, /sys/devices/system/edac/mc";

static void say_missing(const struct xc_check_input *in, struct xc_findings *out,
                        const char *device, uint64_t have, uint64_t want)
{
    char text[32];
    snprintf(text, sizeof text, "%u GiB", gib(want));
    chk_say(out, chk_bad(in), (struct chk_words){.device = device, .want = text, .hint = dimm_hint},
            "%u GiB of memory", gib(have));
}

/* Without a number from the policy nodes are compared: one that is short has lost a DIMM. */
static void each_node(const struct xc_check_input *in, struct xc_findings *out, long tolerance)
{
    uint64_t want = 0;
    long asked;
    if (chk_param_number(in, "node", &asked))
        want = (uint64_t)asked << 30;
    else
        for (size_t i = 0; i < in->node->nnumas; i++)
            if (in->node->numas[i].ncpus > 0 && in->node->numas[i].memory > want)
                want = in->node->numas[i].memory;
    for (size_t i = 0; i < in->node->nnumas; i++) {
        const struct xc_numa *numa = &in->node->numas[i];
        char device[24];
        snprintf(device, sizeof device, "node%d", numa->os);
        if (numa->ncpus > 0 && numa->memory > 0 && too_little(numa->memory, want, tolerance))
            say_missing(in, out, device, numa->memory, want);
    }
}

static void run_total(const struct xc_check_input *in, struct xc_findings *out)
{
    long tolerance = 5, asked;
    uint64_t total = 0;
    size_t before = out->count;
    chk_param_number(in, "tolerance", &tolerance);
    for (size_t i = 0; i < in->node->nnumas; i++)
        if (in->node->numas[i].ncpus > 0) /* GPU and CXL memory does not count */
            total += in->node->numas[i].memory;
    if (total == 0) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "no node tells its memory (%s)",
                NODES "/node*/meminfo");
        return;
    }
    if (chk_param_number(in, "total", &asked) &&
        too_little(total, (uint64_t)asked << 30, tolerance))
        say_missing(in, out, "", total, (uint64_t)asked << 30);
    each_node(in, out, tolerance);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%u GiB", gib(total));
}

static const struct xc_check total = {
    .id = "mem.total",
    .code = "MEM01",
    .what = "no DIMM is missing: total, and each NUMA node",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = total_params,
    .run = run_total,
};

/* ---- mem.edac --------------------------------------------------------------------------------------------------- */

static const struct xc_check_param edac_params[] = {
    {"most", XC_PARAM_NUMBER, "100",
     "correctable errors of a controller between two runs that are "
     "accepted; uncorrectable ones never are",
     NULL},
    {0},
};

#define EDAC "/sys/devices/system/edac/mc"

/* The DIMM with the most errors of a kind: its label is what a technician needs. On the heap. */
static char *worst_dimm(const struct xc_check_input *in, const char *mc, const char *file)
{
    xc_autonames char **dimms = xc_root_list(in->root, EDAC "/%s", mc);
    char *label = NULL;
    long most = 0, errors;
    for (char **dimm = dimms; dimm && *dimm; dimm++) {
        if ((!xc_starts(*dimm, "dimm") && !xc_starts(*dimm, "rank")) ||
            !xc_root_read_long(in->root, &errors, EDAC "/%s/%s/%s", mc, *dimm, file) ||
            errors <= most)
            continue;
        most = errors;
        free(label);
        label = xc_root_read_line(in->root, EDAC "/%s/%s/dimm_label", mc, *dimm);
    }
    return label;
}

static void say_errors(const struct xc_check_input *in, struct xc_findings *out, const char *mc,
                       bool fatal, int64_t delta)
{
    xc_autofree char *label = worst_dimm(in, mc, fatal ? "dimm_ue_count" : "dimm_ce_count");
    chk_say(out, fatal ? XC_CHECK_FAIL : chk_bad(in),
            (struct chk_words){.device = mc, .hint = "replace the DIMM that the BMC's log names"},
            "%" PRId64 " %s memory errors since the last run%s%s", delta,
            fatal ? "uncorrectable" : "correctable", label ? ", most in " : "", label ? label : "");
}

static size_t controller(const struct xc_check_input *in, struct xc_findings *out, const char *mc,
                         long most)
{
    long corrected, fatal;
    int64_t delta;
    size_t known = 0;
    if (xc_root_read_long(in->root, &fatal, EDAC "/%s/ue_count", mc) &&
        chk_delta(in, fatal, &delta, "edac.%s.ue", mc)) {
        known = 1;
        if (delta > 0)
            say_errors(in, out, mc, true, delta);
    }
    if (xc_root_read_long(in->root, &corrected, EDAC "/%s/ce_count", mc) &&
        chk_delta(in, corrected, &delta, "edac.%s.ce", mc)) {
        known = 1;
        if (delta > most)
            say_errors(in, out, mc, false, delta);
    }
    return known;
}

static void run_edac(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autonames char **names = xc_root_list(in->root, EDAC);
    size_t before = out->count, seen = 0, known = 0;
    long most = 100;
    chk_param_number(in, "most", &most);
    for (char **name = names; name && *name; name++)
        if (xc_starts(*name, "mc") && (*name)[2] >= '0' && (*name)[2] <= '9') {
            seen++;
            known += controller(in, out, *name, most);
        }
    if (out->count != before)
        return;
    if (seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "no EDAC driver counts memory errors here");
    else if (known == 0)
        chk_first_run(in, out, "an earlier run of this boot is needed");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu memory controllers", seen);
}

static const struct xc_check edac = {
    .id = "mem.edac",
    .code = "MEM02",
    .what = "no new memory errors since the last run",
    .at = XC_AT_HEALTH | XC_AT_EPILOG | XC_AT_CLI,
    .needs = XC_NEEDS_PREVIOUS,
    .on_fail = XC_FAIL_WARN,
    .params = edac_params,
    .run = run_edac,
};

/* ---- mem.thp ----------------------------------------------------------------------------------------------------- */

static const struct xc_check_param thp_params[] = {
    {"enabled", XC_PARAM_WORD, "any", "transparent_hugepage/enabled; any: madvise or always",
     "any,always,madvise,never"},
    {"defrag", XC_PARAM_WORD, "any", "transparent_hugepage/defrag; any: all but always",
     "any,always,defer,defer+madvise,madvise,never"},
    {0},
};

#define THP "/sys/kernel/mm/transparent_hugepage"

static void thp_file(const struct xc_check_input *in, struct xc_findings *out, const char *file,
                     const char *refused, const char *others)
{
    xc_autofree char *text = xc_root_read_line(in->root, THP "/%s", file);
    xc_autofree char *have = chk_bracketed(text);
    const char *want = chk_param(in, file);
    bool any = xc_streq(want, "any");
    char hint[128];
    snprintf(hint, sizeof hint, "echo %s > " THP "/%s", any ? "madvise" : want, file);
    if (!have)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, THP "/%s has no chosen word", file);
    else if (any ? xc_streq(have, refused) : !xc_streq(have, want))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = file, .want = any ? others : want, .hint = hint},
                "transparent_hugepage/%s is %s", file, have);
}

static void run_thp(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count;
    if (!xc_root_exists(in->root, THP "/enabled")) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "this kernel has no transparent huge pages");
        return;
    }
    thp_file(in, out, "enabled", "never", "madvise or always");
    if (xc_root_exists(in->root, THP "/defrag"))
        thp_file(in, out, "defrag", "always", "defer, madvise or never");
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "as it should be");
}

static const struct xc_check thp = {
    .id = "mem.thp",
    .code = "MEM03",
    .what = "transparent huge pages are there, and page faults do not wait for compaction",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = thp_params,
    .run = run_thp,
};

/* ---- mem.hugepages ------------------------------------------------------------------------------------------------ */

static const struct xc_check_param hugepages_params[] = {
    {"pages", XC_PARAM_NUMBER, "0", "reserved huge pages of the default size that are wanted",
     NULL},
    {0},
};

/* "Hugetlb:  1024 kB": all sizes together; -1: the file does not say. */
static int64_t meminfo_kib(const char *text, const char *key)
{
    const char *at = text ? strstr(text, key) : NULL;
    long long value;
    return at && sscanf(at + strlen(key), " %lld", &value) == 1 && value >= 0 ? value : -1;
}

static void run_hugepages(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, "/proc/meminfo");
    int64_t have = meminfo_kib(text, "HugePages_Total:"), all = meminfo_kib(text, "Hugetlb:");
    long want = 0;
    char number[24];
    chk_param_number(in, "pages", &want);
    snprintf(number, sizeof number, "%ld", want);
    if (have < 0)
        chk_say(out, text ? XC_CHECK_NA : XC_CHECK_UNKNOWN, (struct chk_words){0},
                "/proc/meminfo does not count huge pages");
    else if (have != want)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = number, .hint = "sysctl vm.nr_hugepages"},
                "%" PRId64 " huge pages are reserved (%" PRId64 " MiB in all sizes)", have,
                all < 0 ? 0 : all / 1024);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%" PRId64 " reserved", have);
}

static const struct xc_check hugepages = {
    .id = "mem.hugepages",
    .code = "MEM04",
    .what = "as many huge pages are reserved as wanted",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = hugepages_params,
    .run = run_hugepages,
};

const struct xc_check *const chk_numa[] = {&nodes, &balancing, &reclaim,   &total,
                                           &edac,  &thp,       &hugepages, NULL};
