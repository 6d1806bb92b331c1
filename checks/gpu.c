/* Are all GPUs there by three ways, well connected, with the right driver? No NVML: what can hang with
 * a GPU is for health. */
#include <ctype.h>
#include <inttypes.h>

#include "links.h"

#define DRIVER "/proc/driver/nvidia"

static const char *gpu_bdf(const struct xc_check_input *in, size_t gpu, char text[XC_BDF_TEXT])
{
    return xc_bdf_text(&in->node->pci[in->node->gpus[gpu].pci].bdf, text);
}

static bool no_gpus(const struct xc_check_input *in, struct xc_findings *out)
{
    if (in->node->ngpus == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine has no GPUs");
    return in->node->ngpus == 0;
}

/* ---- gpu.count --------------------------------------------------------------------------------------- */

static const struct xc_check_param count_params[] = {
    {"count", XC_PARAM_NUMBER, NULL, "GPUs; default: expect: gpus: count", NULL},
    {0},
};

static const char gone_hint[] =
    "look for Xid 79 and AER errors in the kernel's log; power-cycle the node, then reseat the GPU";

/* A function that is off the bus answers every read with ones. All of its configuration space would be a
 * thousand questions to it, each an exit to the hypervisor in a virtual machine: 30 ms. */
static bool is_off_the_bus(const struct xc_check_input *in, const char *bdf)
{
    unsigned char first[4];
    return xc_root_read_start(in->root, first, sizeof first, "/sys/bus/pci/devices/%s/config",
                              bdf) == 4 &&
           memcmp(first, "\xff\xff\xff\xff", 4) == 0;
}

/* What the driver says of a GPU: "" when it has it, else why not. */
static const char *driver_lacks(const struct xc_check_input *in, const char *bdf)
{
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, DRIVER "/gpus/%s/information", bdf);
    if (!text)
        return "the driver does not have it";
    const char *excluded = strstr(text, "GPU Excluded:");
    if (excluded && strncmp(excluded + 13 + strspn(excluded + 13, " \t"), "Yes", 3) == 0)
        return "it is excluded (NVreg_ExcludedGpus)";
    return "";
}

static size_t count_devices(const struct xc_check_input *in, bool *known)
{
    xc_autonames char **names = xc_root_list(in->root, "/dev");
    size_t count = 0;
    bool any = false;
    for (char **name = names; name && *name; name++) {
        any |= xc_starts(*name, "nvidia");
        count += xc_starts(*name, "nvidia") && isdigit((unsigned char)(*name)[6]);
    }
    /* a captured machine may have no /dev at all; a pod has its own GPUs' alone */
    *known = (any || xc_root_is_live(in->root)) && in->node->environment != XC_POD;
    return count;
}

static size_t each_gpu(const struct xc_check_input *in, struct xc_findings *out, bool driver)
{
    size_t good = 0;
    for (size_t i = 0; i < in->node->ngpus; i++) {
        char bdf[XC_BDF_TEXT];
        gpu_bdf(in, i, bdf);
        const char *why = driver ? driver_lacks(in, bdf) : "";
        if (!xc_root_exists(in->root, "/sys/bus/pci/devices/%s", bdf))
            why = "it is gone from PCI";
        else if (is_off_the_bus(in, bdf))
            why = "it has fallen off the bus: configuration space reads as ones";
        good += !*why;
        if (*why)
            chk_say(
                out, XC_CHECK_FAIL,
                (struct chk_words){.device = bdf, .want = "a GPU that answers", .hint = gone_hint},
                "%s", why);
    }
    return good;
}

static void wrong_model(const struct xc_check_input *in, struct xc_findings *out)
{
    uint16_t vendor = in->rules->expect.gpu_vendor, device = in->rules->expect.gpu_device;
    char want[16];
    snprintf(want, sizeof want, "%04x:%04x", vendor, device);
    for (size_t i = 0; vendor && i < in->node->ngpus; i++) {
        const struct xc_pci *pci = &in->node->pci[in->node->gpus[i].pci];
        char bdf[XC_BDF_TEXT];
        if (pci->vendor != vendor || (device && pci->device != device))
            chk_say(
                out, XC_CHECK_FAIL,
                (struct chk_words){.device = gpu_bdf(in, i, bdf),
                                   .want = want,
                                   .hint = "expect: gpus: model, or the node's class, is wrong"},
                "it is %04x:%04x", pci->vendor, pci->device);
    }
}

static void driver_is_missing(const struct xc_check_input *in, struct xc_findings *out)
{
    chk_say(out, XC_CHECK_FAIL,
            (struct chk_words){.want = "loaded",
                               .hint = "modprobe nvidia; dmesg | grep NVRM says why it would not"},
            "the NVIDIA driver is not loaded, %zu GPUs are on PCI", in->node->ngpus);
}

static void run_count(const struct xc_check_input *in, struct xc_findings *out)
{
    long want = (long)in->rules->expect.gpu_count;
    char text[24];
    bool asked = chk_param_number(in, "count", &want) || in->rules->expect.has_gpus, known;
    bool driver = chk_has_nvidia(in) && xc_root_exists(in->root, DRIVER "/gpus");
    size_t before = out->count, devices = count_devices(in, &known);
    snprintf(text, sizeof text, "%ld", want);
    if (!asked && no_gpus(in, out))
        return;
    if (asked && (size_t)want != in->node->ngpus)
        chk_say(out, XC_CHECK_FAIL, (struct chk_words){.want = text, .hint = gone_hint},
                "%zu GPUs are on PCI", in->node->ngpus);
    if (chk_has_nvidia(in) && !driver && in->node->ngpus > 0)
        driver_is_missing(in, out);
    size_t good = each_gpu(in, out, driver);
    wrong_model(in, out);
    if (driver && known && devices != good)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = "/dev",
                                   .hint = "nvidia-modprobe -u -c=0, or nvidia-persistenced"},
                "%zu of %zu GPUs have a device file /dev/nvidiaN", devices, in->node->ngpus);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu GPUs on PCI%s%s", in->node->ngpus,
                driver ? ", in the driver" : "", driver && known ? " and in /dev" : "");
}

static const struct xc_check count = {
    .id = "gpu.count",
    .code = "GPU01",
    .what = "all GPUs are on PCI, in the driver and in /dev, of the right model",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = count_params,
    .run = run_count,
};

/* ---- gpu.pcie ------------------------------------------------------------------------------------------ */

static void run_pcie(const struct xc_check_input *in, struct xc_findings *out)
{
    if (no_gpus(in, out))
        return;
    xc_autofree int32_t *devices = calloc(in->node->ngpus, sizeof *devices);
    if (!devices) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < in->node->ngpus; i++)
        devices[i] = in->node->gpus[i].pci;
    chk_links_run(in, out, devices, in->node->ngpus);
}

static const struct xc_check pcie = {
    .id = "gpu.pcie",
    .code = "GPU02",
    .what = "the PCIe links of GPUs, up to the root, are as wide and fast as both ends can",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = chk_link_params,
    .run = run_pcie,
};

/* ---- gpu.mig ------------------------------------------------------------------------------------------------- */

static const struct xc_check_param mig_params[] = {
    {"split", XC_PARAM_BOOL, "off", "whether GPUs must be split into instances", NULL},
    {0},
};

static void run_mig(const struct xc_check_input *in, struct xc_findings *out)
{
    bool want = chk_param_bool(in, "split");
    size_t before = out->count, split = 0;
    if (chk_no_nvidia(in, out) || no_gpus(in, out))
        return;
    for (size_t i = 0; i < in->node->ngpus; i++) {
        bool mig = in->node->gpus[i].mig;
        char bdf[XC_BDF_TEXT];
        split += mig;
        if (mig != want)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = gpu_bdf(in, i, bdf),
                                       .want = mig ? "MIG off" : "MIG on",
                                       .hint = mig ? "nvidia-smi -i GPU -mig 0"
                                                   : "nvidia-smi -i GPU -mig 1, then mig -cgi"},
                    "it is %s into GPU instances", mig ? "split" : "not split");
    }
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu of %zu GPUs are split", split,
                in->node->ngpus);
}

static const struct xc_check mig = {
    .id = "gpu.mig",
    .code = "GPU05",
    .what = "GPUs are split into instances, or not, as wanted",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = mig_params,
    .run = run_mig,
};

/* ---- gpu.driver ----------------------------------------------------------------------------------------------- */

static const struct xc_check_param driver_params[] = {
    {"version", XC_PARAM_NAMES, NULL, "accepted versions of the driver, * and ? in them", NULL},
    {0},
};

/* The first word like 580.159.04 of the line "NVRM version: …". On the heap. */
static char *module_version(const char *text)
{
    const char *line = text ? strstr(text, "NVRM version:") : NULL;
    for (const char *p = line; p && *p && *p != '\n'; p++) {
        size_t length = strspn(p, "0123456789.");
        if (isdigit((unsigned char)*p) && length >= 5 && memchr(p, '.', length) &&
            !isalnum((unsigned char)p[-1]) && (p[length] == ' ' || p[length] == '\n'))
            return strndup(p, length);
        p += length ? length - 1 : 0;
    }
    return NULL;
}

/* The version that libnvidia-ml.so's file name has; the newest by name. On the heap. */
static char *library_version(const struct xc_check_input *in)
{
    static const char *const places[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib64", "/usr/lib",
                                         "/usr/local/nvidia/lib64"}; /* the last: in pods */
    static const char prefix[] = "libnvidia-ml.so.";
    char *found = NULL;
    for (size_t i = 0; i < XC_COUNT(places) && !found; i++) {
        xc_autonames char **names = xc_root_list(in->root, "%s", places[i]);
        for (char **name = names; name && *name; name++)
            if (xc_starts(*name, prefix) && strchr(*name + sizeof prefix - 1, '.')) {
                free(found);
                found = strdup(*name + sizeof prefix - 1);
            }
    }
    return found;
}

static bool version_matches(const char *list, const char *version)
{
    xc_autonames char **names = xc_names_split(list);
    for (char **name = names; name && *name; name++)
        if (xc_glob(*name, version))
            return true;
    return false;
}

static void run_driver(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count;
    if (chk_no_nvidia(in, out))
        return;
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, DRIVER "/version");
    xc_autofree char *module = module_version(text), *library = library_version(in);
    const char *want = chk_param(in, "version");
    if (!module) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "cat " DRIVER "/version"},
                "the driver does not tell its version");
        return;
    }
    if (want && !version_matches(want, module))
        chk_say(out, chk_bad(in), (struct chk_words){.want = want, .hint = "install that driver"},
                "the driver is %s", module);
    if (library && !xc_streq(library, module))
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = module,
                                   .hint = "reboot, or unload and load the nvidia modules: the "
                                           "packages were upgraded under a loaded driver"},
                "libnvidia-ml is %s, the loaded driver is another", library);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "driver %s%s", module,
                library ? " and its library" : "; no library is to be seen");
}

static const struct xc_check driver = {
    .id = "gpu.driver",
    .code = "GPU06",
    .what = "the loaded driver is the one whose library is installed",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = driver_params,
    .run = run_driver,
};

/* ---- gpu.imex -------------------------------------------------------------------------------------------------- */

static const struct xc_check_param imex_params[] = {
    {"channels", XC_PARAM_NUMBER, NULL, "least number of IMEX channels in /dev", NULL},
    {"daemon", XC_PARAM_BOOL, "off", "whether nvidia-imex must run", NULL},
    {0},
};

static bool runs(const struct xc_check_input *in, const char *prefix)
{
    xc_autonames char **names = xc_root_list(in->root, "/proc");
    for (char **pid = names; pid && *pid; pid++) {
        if (!isdigit((unsigned char)**pid))
            continue;
        xc_autofree char *name = xc_root_read_line(in->root, "/proc/%s/comm", *pid);
        if (name && xc_starts(name, prefix))
            return true;
    }
    return false;
}

static void run_imex(const struct xc_check_input *in, struct xc_findings *out)
{
    long want = 1;
    size_t have = 0, before = out->count;
    bool asked = chk_param_number(in, "channels", &want), daemon = chk_param_bool(in, "daemon");
    xc_autonames char **names = xc_root_list(in->root, "/dev/nvidia-caps-imex-channels");
    if (!names && !asked && !daemon) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "this machine has no IMEX channels (multi-node NVLink)");
        return;
    }
    char text[24];
    snprintf(text, sizeof text, "%ld", want);
    for (char **name = names; name && *name; name++)
        have += xc_starts(*name, "channel");
    if (have < (size_t)want)
        chk_say(
            out, chk_bad(in),
            (struct chk_words){.want = text,
                               .hint = "NVreg_CreateImexChannel0=1, or Slurm's switch/nvidia_imex"},
            "%zu IMEX channels", have);
    if (daemon && !runs(in, "nvidia-imex"))
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "running", .hint = "systemctl start nvidia-imex"},
                "nvidia-imex does not run");
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu channels", have);
}

static const struct xc_check imex = {
    .id = "gpu.imex",
    .code = "GPU07",
    .what = "multi-node NVLink has its channels and its daemon",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = imex_params,
    .run = run_imex,
};

/* ---- gpu.gdr --------------------------------------------------------------------------------------------------- */

static const struct xc_check_param gdr_params[] = {
    {"path", XC_PARAM_WORD, "any", "how NICs reach GPU memory", "any,peermem,dmabuf"},
    {"gdrcopy", XC_PARAM_BOOL, "off", "whether gdrdrv must be loaded", NULL},
    {"ibgda", XC_PARAM_BOOL, "off", "whether GPUs must be able to ring NICs' doorbells", NULL},
    {0},
};

static void ibgda(const struct xc_check_input *in, struct xc_findings *out, bool gdrdrv)
{
    xc_autofree char *params = xc_root_read(in->root, NULL, NULL, DRIVER "/params");
    bool mapping = params && strstr(params, "PeerMappingOverride=1");
    if (!mapping && !gdrdrv)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "ibgda",
                                   .want = "PeerMappingOverride=1 or gdrdrv",
                                   .hint = "options nvidia NVreg_RegistryDwords="
                                           "PeerMappingOverride=1, and NVreg_EnableStreamMemOPs=1"},
                "GPUs cannot ring NIC doorbells (IBGDA)");
}

/* A module of it, which the RDMA stack knows: where that keeps a list, a module that is loaded and not
 * in it does nothing. */
static bool is_registered(const struct xc_check_input *in)
{
    static const char peers[] = "/sys/kernel/mm/memory_peers";
    if (!xc_root_exists(in->root, "/sys/module/nvidia_peermem") &&
        !xc_root_exists(in->root, "/sys/module/nv_peer_mem"))
        return false;
    return !xc_root_exists(in->root, "%s", peers) || xc_root_exists(in->root, "%s/nv_mem", peers) ||
           xc_root_exists(in->root, "%s/nv_mem_nc", peers);
}

static void run_gdr(const struct xc_check_input *in, struct xc_findings *out)
{
    const char *path = chk_param(in, "path");
    size_t before = out->count;
    if (chk_no_nvidia(in, out))
        return;
    xc_autofree char *version = xc_root_read(in->root, NULL, NULL, DRIVER "/version");
    bool loaded = is_registered(in);
    bool dmabuf = version && strstr(version, "Open Kernel Module");
    bool gdrdrv = xc_root_exists(in->root, "/sys/module/gdrdrv");
    if (!version) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "the driver is not loaded");
        return;
    }
    bool good = strcasecmp(path, "peermem") == 0  ? loaded
                : strcasecmp(path, "dmabuf") == 0 ? dmabuf
                                                  : loaded || dmabuf;
    if (!good)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = path,
                                   .hint =
                                       "modprobe nvidia_peermem, or the open kernel modules "
                                       "(dma-buf): without either NCCL copies through the host"},
                "NICs cannot reach GPU memory that way: nvidia_peermem is %sloaded, the driver is "
                "%s",
                loaded ? "" : "not ", dmabuf ? "the open one" : "not the open one");
    if (chk_param_bool(in, "gdrcopy") && !gdrdrv)
        chk_say(
            out, chk_bad(in),
            (struct chk_words){.device = "gdrcopy", .want = "loaded", .hint = "modprobe gdrdrv"},
            "gdrdrv is not loaded");
    if (chk_param_bool(in, "ibgda"))
        ibgda(in, out, gdrdrv);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "by %s",
                loaded ? "nvidia_peermem" : "dma-buf");
}

static const struct xc_check gdr = {
    .id = "gpu.gdr",
    .code = "GPU08",
    .what = "NICs reach GPU memory without the host (peermem, dma-buf, gdrdrv, IBGDA)",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = gdr_params,
    .run = run_gdr,
};

const struct xc_check *const chk_gpu[] = {
    &count, &pcie, &chk_gpu_xid, &chk_gpu_leftovers, &mig, &driver, &imex, &gdr, NULL};
