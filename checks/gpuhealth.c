/* What do the driver's own library and DCGM say of the GPUs, their NVLinks and their fabric? */
#include <ctype.h>
#include <inttypes.h>

#include "live.h"

#define GPUS_MAX 64

/* The name of NVML's GPU in findings: its PCI address, else "gpuN". */
static const char *name_of(const char *text, unsigned index, char name[XC_BDF_TEXT])
{
    char who[16], bdf[32];
    struct xc_bdf parsed;
    snprintf(who, sizeof who, "gpu %u", index);
    if (chk_live_value(text, who, "bdf", bdf, sizeof bdf) && xc_bdf_parse(bdf, &parsed))
        return xc_bdf_text(&parsed, name);
    snprintf(name, XC_BDF_TEXT, "gpu%u", index);
    return name;
}

static bool gpu_number(const char *text, unsigned index, const char *key, int64_t *value)
{
    char who[16];
    snprintf(who, sizeof who, "gpu %u", index);
    return chk_live_number(text, who, key, value);
}

static unsigned count_of(const char *text)
{
    int64_t count = 0;
    return chk_live_number(text, "nvml", "count", &count) && count > 0 && count <= GPUS_MAX
               ? (unsigned)count
               : 0;
}

/* ---- NVML's errors -------------------------------------------------------------------------------- */

static const struct code { /* nvmlReturn_t */
    int64_t code;
    enum xc_check_verdict verdict;
    const char *what, *hint;
} codes[] = {
    {4, XC_CHECK_UNKNOWN, "no permission", "run it as root, outside a job's device cgroup"},
    {9, XC_CHECK_FAIL, "the driver is not loaded",
     "modprobe nvidia; dmesg | grep NVRM says why it would not"},
    {14, XC_CHECK_FAIL, "the GPU's InfoROM is corrupt", "power-cycle the node; else replace it"},
    {15, XC_CHECK_FAIL, "the GPU is lost", "power-cycle the node, then reseat the GPU"},
    {16, XC_CHECK_FAIL, "the GPU needs a reset", "drain the node and run nvidia-smi --gpu-reset"},
    {17, XC_CHECK_UNKNOWN, "the operating system is in the way",
     "run it as root, outside a job's device cgroup"},
    {18, XC_CHECK_FAIL, "the library and the loaded driver are of different versions",
     "reboot, or unload and load the nvidia modules: the packages were upgraded under a loaded "
     "driver"},
};

static void say_code(const struct xc_check_input *in, struct xc_findings *out, const char *device,
                     const char *call, int64_t code)
{
    const char *hint = "nvidia-smi -q, and dmesg | grep NVRM, may say more";
    for (size_t i = 0; i < XC_COUNT(codes); i++)
        if (codes[i].code == code) {
            chk_say(out, codes[i].verdict,
                    (struct chk_words){.device = device, .hint = codes[i].hint}, "%s (%s)",
                    codes[i].what, call);
            return;
        }
    /* 999, unknown error: in a pod its cgroup may do that, elsewhere the driver is broken */
    bool broken = code == 999 && in->node->environment != XC_POD;
    chk_say(out, broken ? XC_CHECK_FAIL : XC_CHECK_UNKNOWN,
            (struct chk_words){.device = device, .hint = hint}, "NVML error %" PRId64 " (%s)", code,
            call);
}

/* The library has not come so far that it tells of GPUs: said here, false. */
static bool is_up(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                  bool say)
{
    char words[400];
    int64_t code;
    if (chk_live_value(text, "nvml", "load_error", words, sizeof words)) {
        bool absent = strstr(words, "No such file") != NULL;
        if (say || absent)
            chk_say(out, absent ? XC_CHECK_UNKNOWN : XC_CHECK_FAIL,
                    (struct chk_words){.hint = absent ? "install the driver's libraries"
                                                      : "the file is broken: install the driver's "
                                                        "libraries again"},
                    "libnvidia-ml.so.1 does not load: %s", words);
        else
            chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "see gpu.health");
        return false;
    }
    if (!chk_live_number(text, "nvml", "init_error", &code) &&
        !chk_live_number(text, "nvml", "count_error", &code))
        return true;
    if (say)
        say_code(in, out, NULL, "nvmlInit", code);
    else
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "see gpu.health");
    return false;
}

/* ---- gpu.health ------------------------------------------------------------------------------------ */

static const struct xc_check_param health_params[] = {
    {"ecc", XC_PARAM_NUMBER, "0",
     "uncorrected ECC errors since the driver was loaded that are borne", NULL},
    {"remapped", XC_PARAM_NUMBER, NULL,
     "rows remapped after uncorrected errors that are borne; default: any number", NULL},
    {"hang", XC_PARAM_WORD, "unknown", "what a GPU is whose driver does not answer in time",
     "unknown,fail"},
    {0},
};

static void recovery(struct xc_findings *out, const char *device, int64_t action)
{
    static const struct {
        const char *what, *hint;
    } actions[] = {
        {"the GPU must be reset", "drain the node and run nvidia-smi --gpu-reset"},
        {"the node must be rebooted", "drain the node and reboot it"},
        {"peer-to-peer traffic must be drained, then the GPU reset",
         "drain the node and reboot it"},
        {"the GPU must be drained and reset", "drain the node and run nvidia-smi --gpu-reset"},
    };
    if (action <= 0)
        return;
    bool known = (size_t)action <= XC_COUNT(actions);
    chk_say(out, XC_CHECK_FAIL,
            (struct chk_words){.device = device,
                               .want = "no recovery action",
                               .hint = known ? actions[action - 1].hint : "nvidia-smi -q"},
            "the driver says: %s", known ? actions[action - 1].what : "an action we do not know");
}

static void memory(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                   unsigned gpu, const char *device)
{
    int64_t value;
    long most = 0;
    if (gpu_number(text, gpu, "remap_failure", &value) && value > 0)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device,
                                   .hint = "its memory has no spare rows left: replace the GPU"},
                "a row of its memory could not be remapped");
    if (gpu_number(text, gpu, "remap_pending", &value) && value > 0)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device,
                                   .hint = "drain the node and run nvidia-smi --gpu-reset"},
                "a row remap is pending: bad memory is in use until the GPU is reset");
    if (gpu_number(text, gpu, "ecc_uncorrected", &value) && chk_param_number(in, "ecc", &most) &&
        value > most)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device,
                                   .hint = "a GPU reset sets it to 0; when it comes again, replace "
                                           "the GPU"},
                "%" PRId64 " uncorrected ECC errors since the driver was loaded; %ld are borne",
                value, most);
    if (chk_param_number(in, "remapped", &most) &&
        gpu_number(text, gpu, "remap_uncorrected", &value) && value > most)
        chk_say(out, XC_CHECK_FAIL, (struct chk_words){.device = device, .hint = "replace the GPU"},
                "%" PRId64 " rows are remapped after uncorrected errors; %ld are borne", value,
                most);
}

/* "gpu 3 error_handle 15": the errors of its calls. */
static void errors(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                   unsigned gpu, const char *device)
{
    char start[32];
    int64_t said[8];
    size_t nsaid = 0;
    int length = snprintf(start, sizeof start, "gpu %u error_", gpu);
    for (const char *line = text; line && *line && nsaid < XC_COUNT(said);
         line += strcspn(line, "\n"), line += *line == '\n') {
        char call[32];
        int64_t code;
        if (strncmp(line, start, (size_t)length) != 0 ||
            sscanf(line + length, "%31s %" SCNd64, call, &code) != 2)
            continue;
        size_t i = 0;
        while (i < nsaid && said[i] != code)
            i++;
        if (i == nsaid) { /* a lost GPU gives the same error to each call */
            said[nsaid++] = code;
            say_code(in, out, device, call, code);
        }
    }
}

static void hung(const struct xc_check_input *in, struct xc_findings *out, const char *device)
{
    xc_autofree char *why = chk_live_trouble(in, XC_PROBE_NVML);
    const char *word = chk_param(in, "hang");
    chk_say(out, word && strcasecmp(word, "fail") == 0 ? XC_CHECK_FAIL : XC_CHECK_UNKNOWN,
            (struct chk_words){.device = device,
                               .hint = "nvidia-smi may hang, too; dmesg | grep NVRM; reboot"},
            "the driver did not answer: %s", why && *why ? why : "it ended early");
}

static void one_gpu(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                    unsigned gpu)
{
    char device[XC_BDF_TEXT];
    int64_t value;
    name_of(text, gpu, device);
    errors(in, out, text, gpu, device);
    if (gpu_number(text, gpu, "recovery", &value))
        recovery(out, device, value);
    memory(in, out, text, gpu, device);
    if (gpu_number(text, gpu, "asked", &value) && !gpu_number(text, gpu, "answered", &value) &&
        !gpu_number(text, gpu, "error_handle", &value))
        hung(in, out, device);
}

/* A GPU that the driver lost, or one that is closed to us: a job's device cgroup, a pod with its share. */
static void fewer(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                  unsigned count)
{
    int64_t closed;
    if (chk_live_number(text, "nvml", "closed", &closed))
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.hint = "run it outside of jobs and containers"},
                "NVML knows %u of the %zu GPUs that are on PCI; %" PRId64
                " are closed to this process",
                count, in->node->ngpus, closed);
    else if (in->node->environment != XC_POD)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.hint = "nvidia-smi -L, and dmesg | grep NVRM"},
                "NVML knows %u of the %zu GPUs that are on PCI", count, in->node->ngpus);
    else if (count == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "NVML knows no GPU here");
}

static void run_health(const struct xc_check_input *in, struct xc_findings *out)
{
    bool whole;
    int64_t value;
    size_t before = out->count;
    if (chk_no_nvidia(in, out))
        return;
    const char *text = chk_live_text(in, out, XC_PROBE_NVML, &whole);
    if (!text || !is_up(in, out, text, true))
        return;
    unsigned count = count_of(text);
    if (!whole && !chk_live_number(text, "nvml", "count", &value))
        hung(in, out, NULL);
    else if (count < in->node->ngpus)
        fewer(in, out, text, count);
    for (unsigned i = 0; i < count; i++)
        one_gpu(in, out, text, i);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0},
                "%u GPUs: no recovery action, no remap, ECC within bounds", count);
}

static const struct xc_check health = {
    .id = "gpu.health",
    .code = "GPU09",
    .what = "the driver asks for no reset, remap or repair of a GPU (NVML)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_NVML,
    .on_fail = XC_FAIL_WARN,
    .params = health_params,
    .run = run_health,
};

/* ---- gpu.nvlink ------------------------------------------------------------------------------------ */

static const struct xc_check_param nvlink_params[] = {
    {"links", XC_PARAM_NUMBER, NULL,
     "NVLinks up at each GPU; default: as many as its siblings have", NULL},
    {"errors", XC_PARAM_NUMBER, "100",
     "replays, CRC, receive and FEC errors of a link between two runs that are borne", NULL},
    {"recoveries", XC_PARAM_NUMBER, "0", "recoveries of a link between two runs that are borne",
     NULL},
    {0},
};

struct links {
    size_t up[GPUS_MAX], down[GPUS_MAX], most;
    int first_down[GPUS_MAX];
};

/* "link GPU:LINK KEY VALUE" */
static bool take_link(const char *line, unsigned *gpu, unsigned *link, char key[32], int64_t *value)
{
    return sscanf(line, "link %u:%u %31s %" SCNd64, gpu, link, key, value) == 4 &&
           *gpu < GPUS_MAX && *link < 1024;
}

static void count_links(const char *text, struct links *links)
{
    *links = (struct links){0};
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned gpu, link;
        char key[32];
        int64_t value;
        if (!take_link(line, &gpu, &link, key, &value) || !xc_streq(key, "up"))
            continue;
        if (value == 0 && links->down[gpu]++ == 0)
            links->first_down[gpu] = (int)link;
        links->up[gpu] += value != 0;
        if (links->up[gpu] > links->most)
            links->most = links->up[gpu];
    }
}

/* Counters of a link that grew by more than is borne since the last run. */
static void link_errors(const struct xc_check_input *in, struct xc_findings *out, const char *text)
{
    long errors_borne = 0, recoveries_borne = 0;
    chk_param_number(in, "errors", &errors_borne);
    chk_param_number(in, "recoveries", &recoveries_borne);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned gpu, link;
        char key[32], bdf[XC_BDF_TEXT], device[XC_BDF_TEXT + 16];
        int64_t value, delta;
        if (!take_link(line, &gpu, &link, key, &value) || xc_streq(key, "up"))
            continue;
        name_of(text, gpu, bdf);
        if (!chk_delta(in, value, &delta, "nvlink.%s.%u.%s", bdf, link, key))
            continue;
        if (delta <= (xc_starts(key, "recovery") ? recoveries_borne : errors_borne))
            continue;
        snprintf(device, sizeof device, "%s link %u", bdf, link);
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .hint = "nvidia-smi nvlink -e; reseat the GPU or its tray when "
                                           "it goes on"},
                "%" PRId64 " %s errors since the last run", delta, key);
    }
}

static void run_nvlink(const struct xc_check_input *in, struct xc_findings *out)
{
    struct links links;
    long want = 0;
    size_t before = out->count;
    bool asked = chk_param_number(in, "links", &want), whole;
    if (chk_no_nvidia(in, out))
        return;
    const char *text = chk_live_text(in, out, XC_PROBE_NVML, &whole);
    if (!text || !is_up(in, out, text, false))
        return;
    count_links(text, &links);
    if (!asked && links.most == 0) { /* a card without a bridge has links, and none is up */
        chk_say(out, whole ? XC_CHECK_NA : XC_CHECK_UNKNOWN, (struct chk_words){0},
                "no NVLink is up, and the policy asks for none");
        return;
    }
    unsigned count = count_of(text);
    for (unsigned i = 0; i < count; i++) {
        char device[XC_BDF_TEXT], number[24];
        int64_t answered;
        size_t least = asked ? (size_t)want : links.most;
        if (!gpu_number(text, i, "answered", &answered) || links.up[i] >= least)
            continue; /* gpu.health tells of one that does not answer */
        snprintf(number, sizeof number, "%zu", least);
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = name_of(text, i, device),
                                   .want = number,
                                   .hint = "nvidia-smi nvlink -s; reset the GPUs, restart the "
                                           "fabric manager, then reseat"},
                "%zu NVLinks are up, %zu are down", links.up[i], links.down[i]);
    }
    link_errors(in, out, text);
    if (out->count == before)
        chk_say(out, whole ? XC_CHECK_PASS : XC_CHECK_UNKNOWN, (struct chk_words){0},
                "%zu NVLinks are up at each of %u GPUs%s", links.most, count,
                chk_has_previous(in) ? "" : "; their errors are compared from the next run on");
}

static const struct xc_check nvlink = {
    .id = "gpu.nvlink",
    .code = "GPU10",
    .what = "every GPU has its NVLinks up, and they make no new errors (NVML)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_NVML,
    .on_fail = XC_FAIL_WARN,
    .params = nvlink_params,
    .run = run_nvlink,
};

/* ---- gpu.fabric ------------------------------------------------------------------------------------ */

static const struct xc_check_param fabric_params[] = {
    {"state", XC_PARAM_WORD, "auto",
     "completed: every GPU must be registered with the NVLink fabric; auto: where there is one",
     "auto,completed"},
    {0},
};

enum { FABRIC_NONE = 0, FABRIC_NOT_STARTED = 1, FABRIC_IN_PROGRESS = 2, FABRIC_COMPLETED = 3 };

/* Pairs of bits: 1 is true, 2 false. */
static void fabric_health(struct xc_findings *out, const char *device, int64_t mask)
{
    static const struct {
        unsigned shift;
        const char *what;
    } bits[] = {{0, "its NVLink bandwidth is degraded"},
                {2, "a route recovery is under way"},
                {4, "a route is unhealthy"},
                {6, "an access timeout is being recovered"}};
    if (mask < 0)
        return;
    for (size_t i = 0; i < XC_COUNT(bits); i++)
        if (((mask >> bits[i].shift) & 3) == 1)
            chk_say(out, XC_CHECK_FAIL,
                    (struct chk_words){.device = device,
                                       .hint = "nvidia-smi -q -d FABRIC; ask whoever runs the "
                                               "NVLink switches"},
                    "%s", bits[i].what);
    if (((mask >> 8) & 15) > 1)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device, .hint = "nvidia-smi -q -d FABRIC"},
                "the fabric is wrongly configured (%" PRId64 ")", (mask >> 8) & 15);
}

static void fabric_state(struct xc_findings *out, const char *text, unsigned gpu, int64_t state)
{
    char device[XC_BDF_TEXT];
    int64_t value;
    struct chk_words words = {
        .device = name_of(text, gpu, device),
        .want = "registered",
        .hint = "systemctl status nvidia-fabricmanager; on NVL72 the NVLink switches' fabric "
                "manager and nvidia-imex"};
    if (state == FABRIC_NONE)
        chk_say(out, XC_CHECK_FAIL, words, "it has no NVLink fabric");
    else if (state == FABRIC_NOT_STARTED)
        chk_say(out, XC_CHECK_FAIL, words, "it is not registered with the NVLink fabric");
    else if (state == FABRIC_IN_PROGRESS)
        chk_say(out, XC_CHECK_UNKNOWN, words, "it is being registered with the NVLink fabric");
    else if (gpu_number(text, gpu, "fabric_status", &value) && value != 0)
        chk_say(out, XC_CHECK_FAIL, words, "its registration failed: NVML error %" PRId64, value);
    else if (gpu_number(text, gpu, "fabric_health", &value))
        fabric_health(out, device, value);
}

/* GPUs of one node in different cliques cannot reach each other by NVLink. */
static void cliques(const struct xc_check_input *in, struct xc_findings *out, const char *text,
                    unsigned count)
{
    int64_t first = -1, clique;
    for (unsigned i = 0; i < count; i++) {
        if (!gpu_number(text, i, "fabric_clique", &clique))
            continue;
        char device[XC_BDF_TEXT];
        if (first >= 0 && clique != first)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = name_of(text, i, device),
                                       .hint = "nvidia-smi -q -d FABRIC; the partitions of the "
                                               "NVLink switches are not as they should be"},
                    "it is in clique %" PRId64 " of the fabric, others of this node in %" PRId64,
                    clique, first);
        first = first < 0 ? clique : first;
    }
}

/* Before Hopper a GPU does not say whether it is registered; the daemon must run. */
static void old_fabric(const struct xc_check_input *in, struct xc_findings *out)
{
    bool switches = xc_root_exists(in->root, "/dev/nvidia-nvswitchctl");
    bool manager = xc_root_exists(in->root, "/run/nvidia-fabricmanager/nv-fabricmanager.pid") ||
                   xc_root_exists(in->root, "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid");
    if (!switches)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine has no NVLink fabric");
    else if (!manager)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "running",
                                   .hint = "systemctl start nvidia-fabricmanager; its version must "
                                           "be the driver's"},
                "there are NVSwitches and the fabric manager does not run");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "the fabric manager runs");
}

static void run_fabric(const struct xc_check_input *in, struct xc_findings *out)
{
    const char *word = chk_param(in, "state");
    bool asked = word && strcasecmp(word, "completed") == 0, any = false, whole;
    size_t before = out->count;
    int64_t state;
    if (chk_no_nvidia(in, out))
        return;
    const char *text = chk_live_text(in, out, XC_PROBE_NVML, &whole);
    if (!text || !is_up(in, out, text, false))
        return;
    unsigned count = count_of(text);
    for (unsigned i = 0; i < count; i++)
        any |= gpu_number(text, i, "fabric_state", &state) && state != FABRIC_NONE;
    if (!any && !asked) {
        old_fabric(in, out);
        return;
    }
    for (unsigned i = 0; i < count; i++)
        if (gpu_number(text, i, "fabric_state", &state))
            fabric_state(out, text, i, state);
    cliques(in, out, text, count);
    if (out->count == before)
        chk_say(out, whole && any ? XC_CHECK_PASS : XC_CHECK_UNKNOWN, (struct chk_words){0},
                any ? "%u GPUs are registered with the NVLink fabric"
                    : "none of %u GPUs says whether it is registered with the fabric",
                count);
}

static const struct xc_check fabric = {
    .id = "gpu.fabric",
    .code = "GPU11",
    .what = "GPUs behind NVSwitches are registered with the fabric and it is healthy (NVML)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_NVML,
    .on_fail = XC_FAIL_WARN,
    .params = fabric_params,
    .run = run_fabric,
};

/* ---- gpu.dcgm -------------------------------------------------------------------------------------- */

static void run_dcgm(const struct xc_check_input *in, struct xc_findings *out)
{
    char words[400] = "", first[400] = "";
    if (chk_no_nvidia(in, out))
        return;
    bool said = in->live && in->live->dcgm;
    if (said ? chk_live_value(in->live->dcgm, "dcgm", "absent", words, sizeof words)
             : !xc_root_exists(in->root, "/usr/bin/dcgmi")) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "DCGM is not installed");
        return;
    }
    const char *text = chk_live_text(in, out, XC_PROBE_DCGM, NULL);
    if (!text)
        return;
    chk_live_value(text, "dcgm", "incident", first, sizeof first);
    if (!chk_live_value(text, "dcgm", "overall", words, sizeof words)) {
        bool off = strstr(text, "watches not enabled") != NULL;
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.hint = off ? "dcgmi health -s a, once after the start of "
                                                 "nv-hostengine"
                                               : "systemctl status nvidia-dcgm"},
                "dcgmi health tells nothing%s%s", *first ? ": " : "", first);
    } else if (xc_streq(words, "Healthy")) {
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "DCGM says Healthy");
    } else {
        chk_say(out, xc_streq(words, "Failure") ? XC_CHECK_FAIL : XC_CHECK_WARN,
                (struct chk_words){.want = "Healthy", .hint = "dcgmi health -c says where"},
                "DCGM says %s%s%s", words, *first ? ": " : "", first);
    }
}

static const struct xc_check dcgm = {
    .id = "gpu.dcgm",
    .code = "GPU12",
    .what = "DCGM's health watches, where its host engine runs, have nothing to say",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_DCGM,
    .on_fail = XC_FAIL_WARN,
    .run = run_dcgm,
};

const struct xc_check *const chk_gpuhealth[] = {&health, &nvlink, &fabric, &dcgm, NULL};
