/* Does Slurm hold its part: reserved CPUs, cgroups, the plugin's place, what a failure does? Files
 * alone, no question to slurmctld. */
#include <ctype.h>

#include "conf.h"

struct slurm {
    char *path;
    struct chk_conf conf;
};

static void clear_slurm(struct slurm *slurm)
{
    free(slurm->path);
    chk_conf_clear(&slurm->conf);
}
#define autoslurm xc_cleanup(clear_slurm)

/* False: n/a or unknown is said. */
static bool read_slurm(const struct xc_check_input *in, struct xc_findings *out,
                       struct slurm *slurm)
{
    slurm->path = chk_slurm_conf(in);
    if (!slurm->path) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there is no slurm.conf");
        return false;
    }
    if (chk_conf_read(in->root, slurm->path, CHK_INCLUDES, &slurm->conf) && slurm->conf.count > 0)
        return true;
    chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = slurm->path},
            "slurm.conf is not readable or says nothing");
    return false;
}

static bool is_yes(const char *value)
{
    return value && (strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0 ||
                     xc_streq(value, "1"));
}

/* ---- slurm.cpuspec ----------------------------------------------------------------------------------- */

/* A captured machine's leaves them out. */
static bool names_nodes(const struct xc_check_input *in, const char *path)
{
    struct chk_conf chk_autoconf conf = {0};
    return !chk_conf_read(in->root, path, CHK_INCLUDES, &conf) || chk_conf_get(&conf, "NodeName");
}

static void run_cpuspec(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY, reserved = XC_SET_EMPTY,
                             open = XC_SET_EMPTY;
    xc_autofree char *path = chk_slurm_conf(in);
    if (!path) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there is no slurm.conf");
        return;
    }
    if (!names_nodes(in, path)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this slurm.conf says nothing of nodes");
        return;
    }
    if (!chk_housekeeping(in, out, &housekeeping))
        return;
    xc_node_flagged(in->node, XC_CPU_SLURM_SPEC, &reserved);
    xc_set_copy(&open, &housekeeping);
    xc_set_andnot(&open, &reserved);
    xc_autofree char *device = chk_cpus(&open);
    if (!xc_set_empty(&open)) {
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .want = "reserved by CpuSpecList",
                                   .hint = "xcloud policy slurm-conf prints the words for the "
                                           "NodeName line; slurmctld must read them again"},
                "Slurm gives these housekeeping CPUs to jobs%s",
                xc_set_empty(&reserved) ? ": nothing is reserved for this node" : "");
        return;
    }
    xc_set_andnot(&reserved, &housekeeping);
    xc_autofree char *lost = chk_cpus(&reserved);
    if (!xc_set_empty(&reserved))
        chk_say(out, XC_CHECK_WARN,
                (struct chk_words){.device = lost,
                                   .hint = "abstract ids are not the kernel's: xcloud policy "
                                           "slurm-conf prints the right ones"},
                "Slurm reserves CPUs that are no housekeeping: jobs never get them");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "Slurm reserves the housekeeping CPUs");
}

static const struct xc_check cpuspec = {
    .id = "slurm.cpuspec",
    .code = "SLM01",
    .what = "CpuSpecList or CoreSpecCount reserves the housekeeping CPUs",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_cpuspec,
};

/* ---- slurm.constrain ---------------------------------------------------------------------------------- */

static void constrained(const struct xc_check_input *in, struct xc_findings *out,
                        const struct chk_conf *cgroup, const char *key, const char *why)
{
    const char *value = chk_conf_get(cgroup, key);
    char hint[96];
    snprintf(hint, sizeof hint, "%s=yes in cgroup.conf", key);
    if (!is_yes(value))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "cgroup.conf", .want = "yes", .hint = hint},
                "%s is %s: %s", key, value ? value : "not said", why);
}

static void run_constrain(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    chk_autoconf struct chk_conf cgroup = {0};
    size_t before = out->count;
    if (!read_slurm(in, out, &slurm))
        return;
    const char *plugins = chk_conf_get(&slurm.conf, "TaskPlugin");
    xc_autofree char *path = chk_beside(slurm.path, "cgroup.conf");
    if (!chk_list_has(plugins, "task/cgroup") && !chk_list_has(plugins, "cgroup"))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "slurm.conf",
                                   .want = "task/cgroup,task/affinity",
                                   .hint = "TaskPlugin=task/cgroup,task/affinity"},
                "TaskPlugin is %s: steps have no cpuset, and housekeeping CPUs cannot be kept",
                plugins ? plugins : "not said");
    if (!path || !chk_conf_read(in->root, path, CHK_INCLUDES, &cgroup))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "cgroup.conf", .hint = "ConstrainCores=yes"},
                "there is no cgroup.conf beside slurm.conf");
    else {
        constrained(in, out, &cgroup, "ConstrainCores", "steps are not confined to their CPUs");
        if (in->node->ngpus > 0)
            constrained(in, out, &cgroup, "ConstrainDevices",
                        "jobs can open GPUs that are not theirs");
    }
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "steps are confined by cgroups");
}

static const struct xc_check constrain = {
    .id = "slurm.constrain",
    .code = "SLM02",
    .what = "task/cgroup with ConstrainCores and, with GPUs, ConstrainDevices",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_constrain,
};

/* ---- slurm.plugstack ----------------------------------------------------------------------------------- */

struct stack {
    struct xc_root *root;
    unsigned lines;
    unsigned bind, pyxis; /* the number of their line in the order of reading; 0: not there */
    bool optional;
    char plugin[256];
};

static void read_stack(struct stack *stack, const char *path, unsigned depth);

/* "include /etc/slurm/plugstack.conf.d/ *.conf": * and ? in the last component. */
static void include_stack(struct stack *stack, const char *from, const char *pattern,
                          unsigned depth)
{
    xc_autofree char *full = *pattern == '/' ? strdup(pattern) : chk_beside(from, pattern);
    char *slash = full ? strrchr(full, '/') : NULL;
    if (!slash || depth >= 8)
        return;
    if (!strpbrk(slash, "*?")) {
        read_stack(stack, full, depth + 1);
        return;
    }
    *slash = '\0';
    xc_autonames char **names = xc_root_list(stack->root, "%s", *full ? full : "/");
    for (char **name = names; name && *name; name++)
        if (xc_glob(slash + 1, *name)) {
            xc_autofree char *file = NULL;
            struct xc_text text = XC_TEXT_INIT;
            xc_text_addf(&text, "%s/%s", full, *name);
            file = xc_text_take(&text);
            if (file)
                read_stack(stack, file, depth + 1);
        }
}

static void stack_line(struct stack *stack, const char *from, char *line, unsigned depth)
{
    line[strcspn(line, "#")] = '\0';
    char *rest = xc_trim(line), *word = strsep(&rest, " \t");
    if (!word || !*word || !rest)
        return;
    rest += strspn(rest, " \t");
    if (strcasecmp(word, "include") == 0) {
        include_stack(stack, from, rest, depth);
        return;
    }
    char *plugin = strsep(&rest, " \t");
    stack->lines++;
    if (strstr(plugin, "xcloud_bind")) {
        stack->bind = stack->lines;
        stack->optional = strcasecmp(word, "optional") == 0;
        snprintf(stack->plugin, sizeof stack->plugin, "%s", plugin);
    } else if (strstr(plugin, "pyxis")) {
        stack->pyxis = stack->lines;
    }
}

static void read_stack(struct stack *stack, const char *path, unsigned depth)
{
    xc_autofree char *text = xc_root_read(stack->root, NULL, NULL, "%s", path);
    char *rest = text, *line;
    while (text && (line = strsep(&rest, "\n")))
        stack_line(stack, path, line, depth);
}

static void judge_stack(const struct xc_check_input *in, struct xc_findings *out,
                        const struct stack *stack)
{
    size_t before = out->count;
    if (!stack->optional)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = "optional",
                                   .hint = "write optional: a required plugin that does not match "
                                           "Slurm's release stops every srun and slurmd"},
                "xcloud_bind.so is not optional");
    if (stack->pyxis > stack->bind)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = "a line after pyxis",
                                   .hint = "move it down: before pyxis it looks at the host's "
                                           "files, not at the container's"},
                "xcloud_bind.so is before pyxis");
    if (*stack->plugin == '/' && !xc_root_exists(in->root, "%s", stack->plugin))
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = stack->plugin,
                                   .hint = "install xcloud-bind on this node, too"},
                "the plugin is not there");
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "optional%s",
                stack->pyxis ? ", after pyxis" : "");
}

static void run_plugstack(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    if (!read_slurm(in, out, &slurm))
        return;
    const char *said = chk_conf_get(&slurm.conf, "PlugStackConfig");
    xc_autofree char *path = said ? strdup(said) : chk_beside(slurm.path, "plugstack.conf");
    struct stack stack = {.root = in->root};
    if (path)
        read_stack(&stack, path, 0);
    if (stack.bind)
        judge_stack(in, out, &stack);
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = path,
                                   .hint = "optional xcloud_bind.so, after pyxis's line; on login "
                                           "nodes too"},
                "%s", stack.lines ? "xcloud_bind.so is not in it" : "it is not there or empty");
}

static const struct xc_check plugstack = {
    .id = "slurm.plugstack",
    .code = "SLM03",
    .what = "the plugin is in plugstack.conf: optional, after pyxis, installed",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_plugstack,
};

/* ---- slurm.kill_on_bad_exit ------------------------------------------------------------------------------ */

static void run_kill(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    if (!read_slurm(in, out, &slurm))
        return;
    const char *value = chk_conf_get(&slurm.conf, "KillOnBadExit");
    if (is_yes(value))
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "KillOnBadExit=1");
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "1",
                                   .hint = "KillOnBadExit=1: when one task is refused or dies the "
                                           "others wait in NCCL for nothing"},
                "KillOnBadExit is %s", value ? value : "not said (0)");
}

static const struct xc_check kill_on_bad_exit = {
    .id = "slurm.kill_on_bad_exit",
    .code = "SLM04",
    .what = "a step ends when one of its tasks does",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_kill,
};

/* ---- slurm.prolog_flags ------------------------------------------------------------------------------------ */

static const struct xc_check_param flags_params[] = {
    {"require", XC_PARAM_NAMES, "Alloc,Contain", "PrologFlags that must be there", NULL},
    {"nohold", XC_PARAM_BOOL, "on", "whether SchedulerParameters needs nohold_on_prolog_fail",
     NULL},
    {0},
};

/* Some flags bring others with them. */
static bool has_flag(const char *flags, const char *flag)
{
    static const char *const with_alloc[] = {"Contain", "DeferBatch", "NoHold", "X11", "RunInJob"};
    if (chk_list_has(flags, flag))
        return true;
    for (size_t i = 0; strcasecmp(flag, "Alloc") == 0 && i < XC_COUNT(with_alloc); i++)
        if (chk_list_has(flags, with_alloc[i]))
            return true;
    return strcasecmp(flag, "Contain") == 0 &&
           (chk_list_has(flags, "X11") || chk_list_has(flags, "RunInJob"));
}

static const char *flag_hint(const char *flag)
{
    if (strcasecmp(flag, "Alloc") == 0)
        return "without Alloc the prolog runs at the first step, not at allocation";
    if (strcasecmp(flag, "Contain") == 0)
        return "Contain makes a job's cgroup when it is allocated, as pam_slurm_adopt needs; it "
               "brings Alloc; where it is not wanted, require: Alloc";
    return "PrologFlags= in slurm.conf";
}

static void run_flags(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    size_t before = out->count;
    if (!read_slurm(in, out, &slurm))
        return;
    const char *flags = chk_conf_get(&slurm.conf, "PrologFlags");
    xc_autonames char **wanted = xc_names_split(chk_param(in, "require"));
    for (char **flag = wanted; flag && *flag; flag++)
        if (!has_flag(flags, *flag))
            chk_say(out, chk_bad(in), (struct chk_words){.device = *flag, .hint = flag_hint(*flag)},
                    "PrologFlags is %s", flags ? flags : "not said");
    if (chk_param_bool(in, "nohold") &&
        !chk_list_has(chk_conf_get(&slurm.conf, "SchedulerParameters"), "nohold_on_prolog_fail") &&
        !chk_list_has(flags, "NoHold"))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "nohold_on_prolog_fail",
                                   .hint = "SchedulerParameters=nohold_on_prolog_fail"},
                "jobs whose prolog failed are requeued and held until somebody releases them");
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "PrologFlags=%s", flags ? flags : "");
}

static const struct xc_check prolog_flags = {
    .id = "slurm.prolog_flags",
    .code = "SLM05",
    .what = "the prolog runs at allocation, and its failure does not hold jobs",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = flags_params,
    .run = run_flags,
};

/* ---- slurm.topology ------------------------------------------------------------------------------------------ */

static void run_topology(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    if (!read_slurm(in, out, &slurm))
        return;
    const char *plugin = chk_conf_get(&slurm.conf, "TopologyPlugin");
    xc_autofree char *conf = chk_beside(slurm.path, "topology.conf");
    xc_autofree char *yaml = chk_beside(slurm.path, "topology.yaml");
    bool has_file = (conf && xc_root_exists(in->root, "%s", conf)) ||
                    (yaml && xc_root_exists(in->root, "%s", yaml));
    bool flat = !plugin || strcasestr(plugin, "none") || strcasestr(plugin, "default") ||
                strcasestr(plugin, "flat");
    if (flat)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "topology/tree or topology/block",
                                   .hint =
                                       "TopologyPlugin=topology/tree and a topology.conf: large "
                                       "jobs are spread over leaf switches without it"},
                "TopologyPlugin is %s", plugin ? plugin : "not said");
    else if (!has_file)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "scontrol show topology"},
                "%s, and topology.conf is not on this node", plugin);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s", plugin);
}

static const struct xc_check topology = {
    .id = "slurm.topology",
    .code = "SLM06",
    .what = "Slurm knows the network's topology",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_topology,
};

/* ---- slurm.pmix ------------------------------------------------------------------------------------------------ */

static char *plugin_dir(const struct xc_check_input *in, const struct chk_conf *conf)
{
    static const char *const places[] = {"/usr/lib/x86_64-linux-gnu/slurm-wlm",
                                         "/usr/lib/aarch64-linux-gnu/slurm-wlm",
                                         "/usr/lib64/slurm",
                                         "/usr/lib/slurm",
                                         "/usr/local/lib/slurm",
                                         "/opt/slurm/lib/slurm"};
    const char *said = chk_conf_get(conf, "PluginDir");
    if (said)
        return strndup(said, strcspn(said, ":"));
    for (size_t i = 0; i < XC_COUNT(places); i++)
        if (xc_root_exists(in->root, "%s", places[i]))
            return strdup(places[i]);
    return NULL;
}

static void run_pmix(const struct xc_check_input *in, struct xc_findings *out)
{
    autoslurm struct slurm slurm = {0};
    if (!read_slurm(in, out, &slurm))
        return;
    xc_autofree char *directory = plugin_dir(in, &slurm.conf);
    xc_autonames char **names = directory ? xc_root_list(in->root, "%s", directory) : NULL;
    for (char **name = names; name && *name; name++)
        if (xc_glob("mpi_pmix*.so", *name)) {
            chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s is there", *name);
            return;
        }
    if (!names)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "srun --mpi=list"},
                "Slurm's plugin directory is not to be seen");
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "mpi_pmix.so",
                                   .hint = "build Slurm with PMIx, or install its package"},
                "%s has no PMIx", directory);
}

static const struct xc_check pmix = {
    .id = "slurm.pmix",
    .code = "SLM07",
    .what = "srun can start MPI programs with PMIx",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_pmix,
};

/* ---- slurm.programs -------------------------------------------------------------------------------------------- */

/* A path of slurm.conf: the file is there, or its last part, with * and ?, names one that is. */
static bool is_there(struct xc_root *root, const char *path)
{
    xc_autofree char *directory = strdup(path);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (!slash)
        return true; /* not a path that we can follow */
    *slash = '\0';
    xc_autonames char **names = xc_root_list(root, "%s", *directory ? directory : "/");
    for (char **name = names; name && *name; name++)
        if (xc_glob(slash + 1, *name))
            return true;
    return xc_root_exists(root, "%s", path);
}

static void run_programs(const struct xc_check_input *in, struct xc_findings *out)
{
    static const char *const keys[] = {"Prolog", "Epilog", "TaskProlog", "TaskEpilog",
                                       "HealthCheckProgram"};
    autoslurm struct slurm slurm = {0};
    size_t before = out->count, seen = 0;
    if (!read_slurm(in, out, &slurm))
        return;
    for (size_t i = 0; i < slurm.conf.count; i++) {
        const struct chk_pair *pair = &slurm.conf.pairs[i];
        bool ours = false;
        for (size_t k = 0; k < XC_COUNT(keys); k++)
            ours |= strcasecmp(pair->key, keys[k]) == 0;
        if (!ours || pair->value[0] != '/')
            continue;
        seen++;
        if (!is_there(in->root, pair->value))
            chk_say(out, XC_CHECK_FAIL,
                    (struct chk_words){.device = pair->key,
                                       .hint =
                                           "a prolog that is not there drains the node with the "
                                           "first job: install it, or take the line out"},
                    "%s is not on this node", pair->value);
    }
    if (seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "slurm.conf names no programs");
    else if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu of slurm.conf are here", seen);
}

static const struct xc_check programs = {
    .id = "slurm.programs",
    .code = "SLM08",
    .what = "the prolog, epilog and health check that slurm.conf names are on the node",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_programs,
};

const struct xc_check *const chk_slurm[] = {
    &cpuspec, &constrain, &plugstack, &kill_on_bad_exit, &prolog_flags, &topology,
    &pmix,    &programs,  NULL};
