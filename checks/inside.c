/* Is what a process of a job sees, in its container, what it needs: CPUs, memory, GPUs, HCAs, the
 * topology file, the others of its job? */
#include <inttypes.h>

#include <xcloud/nccl.h>
#include <xcloud/topo.h>

#include "live.h"

static const char *look(const struct xc_check_input *in, struct xc_findings *out)
{
    return chk_live_text(in, out, XC_PROBE_INSIDE, NULL);
}

/* A variable of the process; false: it is not set. */
static bool variable(const char *text, const char *name, char *value, size_t size)
{
    char who[80];
    snprintf(who, sizeof who, "env %s", name);
    return chk_live_value(text, who, "=", value, size);
}

static long number_of(const char *text, const char *name, long otherwise)
{
    char value[32];
    long number;
    return variable(text, name, value, sizeof value) && xc_to_long(value, 0, 1L << 40, &number)
               ? number
               : otherwise;
}

/* "inside KIND NAME opens", or why it does not. */
struct seen {
    size_t opens, fails;
    char first[64], why[80]; /* of those that do not open */
};
static void count_seen(const char *text, const char *kind, struct seen *seen)
{
    char start[32], name[64];
    *seen = (struct seen){0};
    size_t length = (size_t)snprintf(start, sizeof start, "inside %s ", kind);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *rest = line + length;
        if (strncmp(line, start, length) != 0 || sscanf(rest, "%63s", name) != 1 ||
            rest[strlen(name)] != ' ')
            continue;
        rest += strlen(name) + 1;
        if (strncmp(rest, "opens\n", 6) == 0) {
            seen->opens++;
        } else if (seen->fails++ == 0) {
            snprintf(seen->first, sizeof seen->first, "%s", name);
            snprintf(seen->why, sizeof seen->why, "%.*s", (int)strcspn(rest, "\n"), rest);
        }
    }
}

static bool set_of(const char *text, const char *key, struct xc_set *set)
{
    char list[2000];
    return chk_live_value(text, "inside process", key, list, sizeof list) &&
           xc_set_parse_list(set, list, key, NULL) == 0;
}

/* ---- inside.affinity -------------------------------------------------------------------------------- */

static void numas_of(const struct xc_check_input *in, const struct xc_set *cpus, struct xc_set *out)
{
    for (size_t i = 0; i < in->node->ncpus; i++)
        if (in->node->cpus[i].numa >= 0 && xc_set_has(cpus, (size_t)in->node->cpus[i].os))
            xc_set_add(out, (size_t)in->node->cpus[i].numa);
}

static void run_affinity(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, numas = XC_SET_EMPTY;
    struct seen gpus;
    const char *text = look(in, out);
    if (!text)
        return;
    if (!set_of(text, "cpus", &cpus) || xc_set_empty(&cpus)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "the kernel does not tell the CPUs");
        return;
    }
    count_seen(text, "gpu", &gpus);
    numas_of(in, &cpus, &numas);
    unsigned cores = xc_node_count_cores(in->node, &cpus);
    xc_autofree char *device = chk_cpus(&cpus), *nodes = xc_set_format(&numas);
    struct chk_words words = {.device = device};
    if (cores == 1 && in->node->ncores >= 8) {
        words.hint = "srun -c, or --exclusive: a rank with one core waits for it all the time";
        chk_say(out, chk_bad(in), words, "one core of %zu", in->node->ncores);
    } else if (gpus.opens == 1 && xc_set_count(&numas) > 1) {
        words.hint = "srun --xcloud-bind, or --cpu-bind";
        chk_say(out, chk_bad(in), words, "one GPU, and CPUs of NUMA nodes %s: it is not bound",
                nodes);
    } else {
        char count[48] = "";
        if (cores > 0)
            snprintf(count, sizeof count, ", %u cores", cores);
        chk_say(out, XC_CHECK_PASS, words, "%zu CPUs%s%s%s", xc_set_count(&cpus), count,
                nodes && *nodes ? ", NUMA node " : "", nodes ? nodes : "");
    }
}

static const struct xc_check affinity = {
    .id = "inside.affinity",
    .code = "INS01",
    .what = "a process has the CPUs of its share",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_affinity,
};

/* ---- inside.memory ---------------------------------------------------------------------------------- */

static const struct xc_check_param memory_params[] = {
    {"shm", XC_PARAM_NUMBER, "1024", "least MiB of /dev/shm", NULL},
    {0},
};

static void run_memory(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, mems = XC_SET_EMPTY, numas = XC_SET_EMPTY;
    char memlock[32] = "";
    int64_t shm = 0;
    long least = 0;
    size_t before = out->count;
    const char *text = look(in, out);
    if (!text)
        return;
    bool known = set_of(text, "mems", &mems) && set_of(text, "cpus", &cpus);
    numas_of(in, &cpus, &numas);
    if (known && !xc_set_empty(&numas) && !xc_set_intersects(&numas, &mems))
        chk_say(out, chk_bad(in),
                (struct chk_words){.hint = "a cpuset keeps its memory away from its CPUs"},
                "its CPUs and the memory that it may use are on different NUMA nodes");
    if (chk_live_value(text, "inside limit", "memlock", memlock, sizeof memlock) &&
        !xc_streq(memlock, "unlimited"))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "ulimit -l",
                                   .want = "unlimited",
                                   .hint =
                                       "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf and "
                                       "LimitMEMLOCK=infinity in slurmd.service"},
                "%s bytes can be locked: RDMA registers more", memlock);
    chk_param_number(in, "shm", &least);
    if (chk_live_number(text, "inside process", "shm", &shm) && shm / (1 << 20) < least)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "/dev/shm",
                                   .hint = "docker's --shm-size; enroot shows the host's"},
                "%" PRId64 " MiB; NCCL and data loaders want %ld", shm / (1 << 20), least);
    xc_autofree char *nodes = xc_set_format(&mems);
    if (out->count == before)
        chk_say(out, *memlock ? XC_CHECK_PASS : XC_CHECK_UNKNOWN, (struct chk_words){0},
                "memory of NUMA node %s, ulimit -l %s, /dev/shm %" PRId64 " MiB",
                nodes && *nodes ? nodes : "?", *memlock ? memlock : "?", shm / (1 << 20));
}

static const struct xc_check memory = {
    .id = "inside.memory",
    .code = "INS02",
    .what = "a process may use the memory near it, lock it, and share it",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .params = memory_params,
    .run = run_memory,
};

/* ---- inside.gpus ------------------------------------------------------------------------------------ */

/* Whether the job, or its image, says that there should be GPUs. */
static bool wants_gpus(const char *text)
{
    static const char *const names[] = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES",
                                        "NVIDIA_VISIBLE_DEVICES"};
    char value[200];
    for (size_t i = 0; i < XC_COUNT(names); i++)
        if (variable(text, names[i], value, sizeof value) && *value && !xc_streq(value, "void") &&
            !xc_streq(value, "none") && !xc_streq(value, "NoDevFiles"))
            return true;
    return false;
}

static size_t listed(const char *text, const char *name)
{
    char value[900];
    size_t count = 0;
    if (!variable(text, name, value, sizeof value))
        return 0;
    xc_autonames char **all = xc_names_split(value);
    while (all && all[count])
        count++;
    return count;
}

static void run_gpus(const struct xc_check_input *in, struct xc_findings *out)
{
    struct seen gpus, control;
    size_t before = out->count;
    const char *text = look(in, out);
    if (!text)
        return;
    count_seen(text, "gpu", &gpus);
    count_seen(text, "control", &control);
    size_t cuda = listed(text, "CUDA_VISIBLE_DEVICES");
    struct chk_words words = {.hint = "the image needs NVIDIA_VISIBLE_DEVICES and enroot's or "
                                      "docker's NVIDIA hook; the job needs --gpus"};
    if (gpus.opens == 0 && !wants_gpus(text)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "this process has no GPUs and asks for none");
        return;
    }
    if (gpus.opens == 0)
        chk_say(out, XC_CHECK_FAIL, words, "GPUs are asked for and none can be opened%s%s",
                gpus.fails ? ": " : "", gpus.why);
    else if (cuda > gpus.opens)
        chk_say(out, XC_CHECK_FAIL, words, "CUDA_VISIBLE_DEVICES lists %zu GPUs, %zu can be opened",
                cuda, gpus.opens);
    if (gpus.opens > 0 && control.fails > 0) {
        words.device = control.first;
        chk_say(out, XC_CHECK_FAIL, words, "it does not open: %s", control.why);
    } else if (gpus.opens > 0 && control.opens < 2) {
        chk_say(out, XC_CHECK_FAIL, words, "/dev/nvidiactl or /dev/nvidia-uvm is not there");
    }
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu GPUs can be opened%s", gpus.opens,
                gpus.fails ? ", those of others cannot" : "");
}

static const struct xc_check gpus = {
    .id = "inside.gpus",
    .code = "INS03",
    .what = "a process can open its GPUs",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_gpus,
};

/* ---- inside.hcas ------------------------------------------------------------------------------------ */

/* "=mlx5_0:1,mlx5_1" names devices that are there, or not. */
static void named_hcas(const struct xc_check_input *in, struct xc_findings *out, const char *text)
{
    char value[900];
    if (!variable(text, "NCCL_IB_HCA", value, sizeof value) || *value == '^')
        return;
    xc_autonames char **names = xc_names_split(value + (*value == '='));
    for (char **name = names; name && *name; name++) {
        (*name)[strcspn(*name, ":")] = '\0';
        bool found = false;
        xc_autonames char **all = xc_root_list(in->root, "/sys/class/infiniband");
        for (char **one = all; one && *one && !found; one++)
            found = *value == '=' ? xc_streq(*one, *name) : xc_starts(*one, *name);
        if (!found)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = *name, .hint = "set NCCL_IB_HCA for this node"},
                    "NCCL_IB_HCA names it and it is not there: NCCL goes on without it");
    }
}

static void run_hcas(const struct xc_check_input *in, struct xc_findings *out)
{
    struct seen hcas;
    size_t before = out->count;
    const char *text = look(in, out);
    if (!text)
        return;
    xc_autonames char **all = xc_root_list(in->root, "/sys/class/infiniband");
    bool any = all && *all, several = number_of(text, "SLURM_NNODES", 1) > 1;
    count_seen(text, "hca", &hcas);
    struct chk_words words = {.hint = "enroot: MELLANOX_VISIBLE_DEVICES in environ.d; docker: "
                                      "--device /dev/infiniband; NCCL falls back to TCP"};
    if (!any && hcas.opens + hcas.fails == 0) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine has no RDMA devices");
        return;
    }
    if (hcas.opens == 0)
        chk_say(out, several ? XC_CHECK_FAIL : chk_bad(in), words,
                "RDMA devices are there and none can be opened%s%s", hcas.fails ? ": " : "",
                hcas.why);
    named_hcas(in, out, text);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu RDMA devices can be opened",
                hcas.opens);
}

static const struct xc_check hcas = {
    .id = "inside.hcas",
    .code = "INS04",
    .what = "a process can open the RDMA devices that its variables name",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_hcas,
};

/* ---- inside.imex ------------------------------------------------------------------------------------ */

static void run_imex(const struct xc_check_input *in, struct xc_findings *out)
{
    struct seen channels;
    const char *text = look(in, out);
    if (!text)
        return;
    count_seen(text, "imex", &channels);
    struct chk_words words = {.hint = "Slurm's switch/nvidia_imex, or enroot's hook for "
                                      "/dev/nvidia-caps-imex-channels"};
    bool grace = chk_arm(in) && chk_has_nvidia(in) && in->node->ngpus >= 2;
    if (channels.opens > 0)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu IMEX channels can be opened",
                channels.opens);
    else if (channels.fails > 0)
        chk_say(out, XC_CHECK_FAIL, words, "no IMEX channel can be opened: %s", channels.why);
    else if (grace)
        chk_say(out, chk_bad(in), words, "there is no IMEX channel: NVLink ends at this node");
    else
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there are no IMEX channels here");
}

static const struct xc_check imex = {
    .id = "inside.imex",
    .code = "INS05",
    .what = "a process can open its IMEX channel (multi-node NVLink)",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_imex,
};

/* ---- inside.topo ------------------------------------------------------------------------------------ */

static void lint(const struct xc_check_input *in, struct xc_findings *out, const char *path)
{
    struct xc_error error = {0};
    struct xc_topo_findings found = {0};
    size_t length;
    struct chk_words words = {.device = path};
    xc_autofree char *bytes = xc_root_read(in->root, &length, &error, "%s", path);
    if (!bytes) {
        words.hint = "NCCL says nothing and goes on without it; mount the file at that path";
        chk_say(out, XC_CHECK_FAIL, words, "NCCL_TOPO_FILE does not open here: %s",
                error.code == XC_ENOENT ? "it is not there" : error.message);
        return;
    }
    if (xc_topo_lint(bytes, length, &found, &error) < 0) {
        chk_say(out, XC_CHECK_FAIL, words, "%s", error.message);
    } else if (found.errors > 0) {
        size_t i = 0;
        while (i + 1 < found.count && !found.items[i].error)
            i++;
        words.hint = found.items[i].fix;
        chk_say(out, XC_CHECK_FAIL, words, "%s%s (%s)",
                xc_topo_refused(&found) ? "NCCL refuses it, and every job with it: " : "",
                found.items[i].what, found.items[i].id);
    } else {
        chk_say(out, XC_CHECK_PASS, words, "NCCL_TOPO_FILE opens and NCCL takes it");
    }
    xc_topo_findings_clear(&found);
}

static void run_topo(const struct xc_check_input *in, struct xc_findings *out)
{
    char path[900], want[900];
    const char *text = look(in, out);
    if (!text)
        return;
    if (variable(text, "NCCL_TOPO_FILE", path, sizeof path) && *path)
        lint(in, out, path);
    else if (variable(text, "XCLOUD_TOPO_FILE", want, sizeof want) && *want)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = want,
                                   .hint = "the image or the script takes it away; the enroot hook "
                                           "sets it"},
                "NCCL_TOPO_FILE is not set, and the policy wants it");
    else if (in->node->environment == XC_VM && in->node->ngpus > 1)
        chk_say(out, XC_CHECK_WARN,
                (struct chk_words){.hint = "the provider has a file for this kind of machine"},
                "NCCL_TOPO_FILE is not set, and this virtual machine hides its PCI tree");
    else
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "NCCL_TOPO_FILE is not set");
}

static const struct xc_check topo = {
    .id = "inside.topo",
    .code = "INS06",
    .what = "the NCCL topology file opens where the process runs, and NCCL takes it",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_topo,
};

/* ---- inside.nccl ------------------------------------------------------------------------------------ */

/* 0: there is no library, or it does not say. */
static unsigned library_release(const char *text)
{
    char release[32];
    return chk_live_value(text, "inside nccl", "release", release, sizeof release)
               ? xc_nccl_release(release)
               : 0;
}

static void run_nccl(const struct xc_check_input *in, struct xc_findings *out)
{
    char path[900], rule[256], release[XC_NCCL_RELEASE_TEXT];
    bool allows = true;
    struct xc_error error = {0};
    const char *text = look(in, out);
    if (!text)
        return;
    unsigned have = library_release(text);
    xc_nccl_release_text(have, release);
    /* a container shows no policy: there the step's variable says what it wants */
    const char *wanted = in->rules->nccl_version;
    if (!wanted && variable(text, "XCLOUD_NCCL_VERSION", rule, sizeof rule) && *rule)
        wanted = rule;
    struct chk_words words = {.device = path, .want = wanted};
    if (!chk_live_value(text, "inside nccl", "path", path, sizeof path))
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "there is no libnccl.so.2 in the usual places: a program brings its own, or none");
    else if (have == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = path},
                "it does not say its release");
    else if (wanted && xc_nccl_allows(wanted, have, &allows, &error) < 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "%s", error.message);
    else if (!allows)
        chk_say(out, XC_CHECK_FAIL, words, "NCCL %s", release);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.device = path}, "NCCL %s%s", release,
                wanted ? "" : "; the policy asks for none");
}

static const struct xc_check nccl = {
    .id = "inside.nccl",
    .code = "INS09",
    .what = "the NCCL that a process would load is a release that the policy allows",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_nccl,
};

/* ---- inside.rendezvous ------------------------------------------------------------------------------ */

static void run_rendezvous(const struct xc_check_input *in, struct xc_findings *out)
{
    char address[300] = "", port[32] = "";
    const char *text = look(in, out);
    if (!text)
        return;
    variable(text, "MASTER_ADDR", address, sizeof address);
    variable(text, "MASTER_PORT", port, sizeof port);
    if (*address && *port)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "MASTER_ADDR %s, MASTER_PORT %s",
                address, port);
    else if (number_of(text, "SLURM_NTASKS", 1) < 2)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this job has one task");
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "MASTER_ADDR and MASTER_PORT",
                                   .hint = "enroot's 50-slurm-pytorch.sh hook sets them, or the "
                                           "job's script"},
                "%s is not set", *address ? "MASTER_PORT" : "MASTER_ADDR");
}

static const struct xc_check rendezvous = {
    .id = "inside.rendezvous",
    .code = "INS07",
    .what = "ranks know where to meet (MASTER_ADDR, MASTER_PORT)",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_rendezvous,
};

/* ---- inside.env ------------------------------------------------------------------------------------- */

/* What spoils a job's speed, is often forgotten in an image or a script, and is right for NCCL. */
static const struct {
    const char *name, *value, *what;
} slow[] = {
    {"NCCL_NET_GDR_LEVEL", "LOC", "NICs do not reach GPU memory"},
    {"NCCL_NVLS_ENABLE", "0", "NVLink SHARP is off"},
    {"CUDA_LAUNCH_BLOCKING", "1", "every kernel is waited for"},
};

/* What NCCL does not take as it is meant, or only for finding faults. */
static void against_nccl(const struct xc_check_input *in, struct xc_findings *out, const char *text)
{
    struct xc_nccl_values values = {0};
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        char name[64], value[900];
        if (sscanf(line, "env %63[A-Z0-9a-z_] = %899[^\n]", name, value) == 2)
            xc_nccl_add(&values, name, value, "environment");
    }
    struct xc_nccl_input input = {
        .values = &values, .release = library_release(text), .node = in->node, .rules = in->rules};
    chk_nccl_say(out, &input, chk_bad(in), false);
    xc_nccl_values_clear(&values);
}

/* What the policy wants of a variable, against what the process has. */
static void against_policy(const struct xc_check_input *in, struct xc_findings *out,
                           const char *text)
{
    char value[900];
    for (size_t i = 0; i < in->rules->nenv; i++) {
        const struct xc_env_rule *rule = &in->rules->env[i];
        bool set = variable(text, rule->name, value, sizeof value);
        bool plain = rule->value && !strstr(rule->value, "${");
        struct chk_words words = {.device = rule->name};
        if (rule->set == XC_ENV_FORBID && set) {
            chk_say(out, XC_CHECK_FAIL, words, "it is %s, and the policy forbids it", value);
        } else if (rule->set == XC_ENV_FORCE && plain && (!set || !xc_streq(value, rule->value))) {
            words.want = rule->value;
            words.hint = "the image or the script changes it behind the policy's back";
            chk_say(out, XC_CHECK_FAIL, words, "it is %s", set ? value : "not set");
        }
    }
}

static void run_env(const struct xc_check_input *in, struct xc_findings *out)
{
    char value[900];
    size_t before = out->count;
    const char *text = look(in, out);
    if (!text)
        return;
    for (size_t i = 0; i < XC_COUNT(slow); i++)
        if (variable(text, slow[i].name, value, sizeof value) &&
            strcasecmp(value, slow[i].value) == 0)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = slow[i].name, .hint = "unset it"}, "it is %s: %s",
                    value, slow[i].what);
    against_nccl(in, out, text);
    against_policy(in, out, text);
    if (out->count > before)
        return;
    size_t count = 0;
    for (const char *line = text; (line = strstr(line, "env NCCL_")); line++)
        count++;
    chk_say(out, XC_CHECK_PASS, (struct chk_words){0},
            "%zu NCCL variables, none that slows it down", count);
}

static const struct xc_check env = {
    .id = "inside.env",
    .code = "INS08",
    .what = "no variable of the process slows it down or is against the policy",
    .at = XC_AT_INSIDE,
    .probes = XC_PROBE_INSIDE,
    .on_fail = XC_FAIL_WARN,
    .run = run_env,
};

const struct xc_check *const chk_inside[] = {&affinity, &memory,     &gpus, &hcas, &imex,
                                             &topo,     &rendezvous, &env,  &nccl, NULL};
