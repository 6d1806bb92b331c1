/* Does a Grace node translate addresses as fast as it can, with the pages that it should have? */
#include "work.h"

/* Grace's core, Neoverse V2, whatever a hypervisor calls the machine. Others have it too (Graviton4,
 * Axion), but not beside NVIDIA's GPUs. */
static bool is_v2_with_gpus(const struct xc_check_input *in)
{
    xc_autofree char *cpuinfo = xc_root_read(in->root, NULL, NULL, "/proc/cpuinfo");
    const char *part = cpuinfo ? strstr(cpuinfo, "CPU part") : NULL;
    unsigned number;
    return part && sscanf(part, "CPU part : %x", &number) == 1 && number == 0xd4f &&
           chk_has_nvidia(in);
}

static bool is_grace(const struct xc_check_input *in)
{
    static const char *const names[] = {"*Grace*", "*GB200*", "*GB300*", "*GH200*"};
    bool named = xc_streq(in->node->vendor, "NVIDIA");
    for (size_t i = 0; i < XC_COUNT(names); i++)
        named |= xc_glob(names[i], in->node->product);
    return chk_arm(in) && (named || is_v2_with_gpus(in));
}

static bool elsewhere(struct xc_findings *out, bool here)
{
    if (!here)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this is no Grace machine");
    return !here;
}

/* ---- grace.cmdqv ------------------------------------------------------------------------------------ */

static size_t count_prefixed(const struct xc_check_input *in, const char *directory,
                             const char *prefix)
{
    xc_autonames char **names = xc_root_list(in->root, "%s", directory);
    size_t count = 0;
    for (char **name = names; name && *name; name++)
        count += xc_starts(*name, prefix);
    return count;
}

static const char *refusal(const char *log)
{
    static const char *const texts[] = {
        "Falling back to standard SMMU CMDQ", "Detected disable_cmdqv=true",
        "tegra241_cmdqv: failed to enable", "unexpected error reported. vintf_map"};
    for (size_t i = 0; log && i < XC_COUNT(texts); i++)
        if (strstr(log, texts[i]))
            return texts[i];
    return NULL;
}

static bool switched_off(const struct xc_check_input *in)
{
    xc_autofree char *flag =
        xc_root_read_line(in->root, "/sys/module/arm_smmu_v3/parameters/disable_cmdqv");
    return flag && (flag[0] == 'Y' || flag[0] == '1');
}

static void no_hardware(const struct xc_check_input *in, struct xc_findings *out, size_t smmus)
{
    if (in->node->environment != XC_BARE && smmus > 0)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "a CMDQV for each SMMU",
                                   .hint = "the hypervisor must offer it: QEMU -device "
                                           "arm-smmuv3,accel=on,cmdqv=on"},
                "the hypervisor gives this machine %zu SMMUs and no CMDQV (NVDA200C)", smmus);
    else if (in->node->environment == XC_BARE)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "NVDA200C for each SMMU",
                                   .hint = "update the SBIOS, which describes it in ACPI"},
                "the firmware describes no CMDQV (NVDA200C)");
    else
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine has no SMMU");
}

static void run_cmdqv(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t devices = count_prefixed(in, "/sys/bus/acpi/devices", "NVDA200C");
    size_t smmus = count_prefixed(in, "/sys/class/iommu", "smmu3");
    const char *log = in->live ? in->live->log : NULL, *why;
    if (elsewhere(out, is_grace(in) || (chk_arm(in) && devices > 0)))
        return;
    if (devices == 0) {
        no_hardware(in, out, smmus);
        return;
    }
    struct chk_words words = {.want = "in use",
                              .hint = "a kernel with CONFIG_TEGRA241_CMDQV (6.12, or NVIDIA's), "
                                      "without arm-smmu-v3.disable_cmdqv"};
    if (switched_off(in)) {
        chk_say(out, chk_bad(in), words, "arm_smmu_v3's disable_cmdqv switches it off");
        return;
    }
    if ((why = refusal(log))) {
        chk_say(out, chk_bad(in), words, "the kernel's log says: %s", why);
        return;
    }
    xc_autofree char *interrupts = xc_root_read(in->root, NULL, NULL, "/proc/interrupts");
    if ((interrupts && strstr(interrupts, "tegra241-cmdqv")) ||
        (log && strstr(log, "found companion CMDQV device")))
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "CMDQV is in use, %zu devices", devices);
    else
        chk_say(
            out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "journalctl -k -b | grep -i cmdqv"},
            "%zu CMDQV devices; neither log nor interrupts tell whether they are used", devices);
}

static const struct xc_check cmdqv = {
    .id = "grace.cmdqv",
    .code = "GRC01",
    .what = "the SMMUs' CMDQV is there and in use",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .needs = XC_NEEDS_LOG,
    .on_fail = XC_FAIL_WARN,
    .run = run_cmdqv,
};

/* ---- grace.iommu -------------------------------------------------------------------------------------- */

static const struct xc_check_param iommu_params[] = {
    {"types", XC_PARAM_NAMES, "identity,DMA-FQ",
     "accepted types of the IOMMU groups of GPUs and compute NICs", NULL},
    {0},
};

static bool is_one_of(const char *list, const char *word)
{
    xc_autonames char **names = list ? xc_names_split(list) : NULL;
    for (char **name = names; name && *name; name++)
        if (strcasecmp(*name, word) == 0)
            return true;
    return false;
}

struct groups {
    size_t seen, bad;
    struct xc_text devices;
    char type[32];
};

static void clear_groups(struct groups *groups)
{
    xc_text_free(&groups->devices);
}

static void judge_group(const struct xc_check_input *in, int32_t pci, struct groups *groups)
{
    char bdf[XC_BDF_TEXT];
    if (pci < 0)
        return;
    xc_bdf_text(&in->node->pci[pci].bdf, bdf);
    xc_autofree char *type =
        xc_root_read_line(in->root, "/sys/bus/pci/devices/%s/iommu_group/type", bdf);
    if (!type)
        return;
    groups->seen++;
    if (is_one_of(chk_param(in, "types"), type))
        return;
    xc_text_addf(&groups->devices, "%s%s", groups->bad++ ? "," : "", bdf);
    snprintf(groups->type, sizeof groups->type, "%s", type);
}

static void run_iommu(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_cleanup(clear_groups) struct groups groups = {0};
    if (elsewhere(out, is_grace(in)))
        return;
    for (size_t i = 0; i < in->node->ngpus; i++)
        judge_group(in, in->node->gpus[i].pci, &groups);
    for (size_t i = 0; i < in->node->nnics; i++)
        if (chk_is_rail(in, i))
            judge_group(in, in->node->nics[i].pci, &groups);
    if (groups.seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "no GPU or compute NIC is behind an IOMMU");
    else if (groups.bad > 0)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = groups.devices.data ? groups.devices.data : "",
                                   .want = chk_param(in, "types"),
                                   .hint = "iommu.passthrough=1, or iommu.strict=0, on the "
                                           "kernel's command line: strict translation makes 2.8 M "
                                           "I/Os a second of 16.5 M"},
                "the IOMMU group's type is %s", groups.type);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu devices", groups.seen);
}

static const struct xc_check iommu = {
    .id = "grace.iommu",
    .code = "GRC02",
    .what = "GPUs and NICs are not behind strict address translation",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = iommu_params,
    .run = run_iommu,
};

/* ---- grace.page_size -------------------------------------------------------------------------------------- */

static const struct xc_check_param page_params[] = {
    {"kib", XC_PARAM_NUMBER, "64", "KiB of a page", NULL},
    {0},
};

/* A page table of one page holds page/8 entries, so a huge page of the middle level is page^2/8. */
static long page_kib(const struct xc_check_input *in)
{
    long huge;
    if (!xc_root_read_long(in->root, &huge, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"))
        return 0;
    for (long kib = 4; kib <= 64; kib *= 4)
        if (huge == kib * 1024 * kib * 1024 / 8)
            return kib;
    return 0;
}

static void run_page(const struct xc_check_input *in, struct xc_findings *out)
{
    long want = 64, have = page_kib(in);
    char text[32];
    if (elsewhere(out, is_grace(in)))
        return;
    chk_param_number(in, "kib", &want);
    snprintf(text, sizeof text, "%ld KiB", want);
    if (have == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "getconf PAGE_SIZE"},
                "hpage_pmd_size does not tell the page size");
    else if (have != want)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = text, .hint = "boot the 64k flavour of the kernel"},
                "pages have %ld KiB", have);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "pages have %ld KiB", have);
}

static const struct xc_check page_size = {
    .id = "grace.page_size",
    .code = "GRC03",
    .what = "pages of 64 KiB",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = page_params,
    .run = run_page,
};

/* ---- grace.init_on_alloc ------------------------------------------------------------------------------------ */

/* 1 on, 0 off, -1 not known. Without the word the kernel's configuration has the say. */
static int init_on_alloc(const struct xc_check_input *in)
{
    xc_autofree char *value = NULL;
    bool known;
    if (chk_cmdline(in, "init_on_alloc", &value, &known))
        return xc_streq(value, "0") || xc_streq(value, "off") || xc_streq(value, "n") ? 0 : 1;
    xc_autofree char *release = xc_root_read_line(in->root, "/proc/sys/kernel/osrelease");
    xc_autofree char *config =
        release ? xc_root_read(in->root, NULL, NULL, "/boot/config-%s", release) : NULL;
    if (!known || !config)
        return -1;
    return strstr(config, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y") != NULL;
}

static void run_init(const struct xc_check_input *in, struct xc_findings *out)
{
    if (elsewhere(out, is_grace(in)))
        return;
    int on = init_on_alloc(in);
    if (on < 0)
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.hint = "say init_on_alloc=0 on the kernel's command line"},
                "init_on_alloc is not on the command line, and /boot has no configuration");
    else if (on)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "off",
                                   .hint = "init_on_alloc=0 on the kernel's command line"},
                "the kernel clears all memory that it allocates (init_on_alloc)");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "init_on_alloc is off");
}

static const struct xc_check init = {
    .id = "grace.init_on_alloc",
    .code = "GRC04",
    .what = "the kernel does not clear memory that drivers overwrite anyway",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_init,
};

const struct xc_check *const chk_grace[] = {&cmdqv, &iommu, &page_size, &init, NULL};
