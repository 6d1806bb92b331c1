/* Could we act if we had to: drain a node, narrow a cpuset, remember? Better known before than then. */
#include "conf.h"

/* ---- self.scontrol ---------------------------------------------------------------------------------- */

static const struct xc_check_param scontrol_params[] = {
    {"path", XC_PARAM_TEXT, NULL, "where scontrol is; default: the usual places", NULL},
    {0},
};

static void run_scontrol(const struct xc_check_input *in, struct xc_findings *out)
{
    static const char *const places[] = {"/usr/bin/scontrol", "/usr/local/bin/scontrol",
                                         "/opt/slurm/bin/scontrol",
                                         "/opt/slurm/current/bin/scontrol", "/usr/sbin/scontrol"};
    const char *path = chk_param(in, "path"), *found = NULL;
    xc_autofree char *conf = chk_slurm_conf(in);
    if (!conf) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there is no slurm.conf");
        return;
    }
    if (path && xc_root_exists(in->root, "%s", path))
        found = path;
    for (size_t i = 0; !path && !found && i < XC_COUNT(places); i++)
        if (xc_root_exists(in->root, "%s", places[i]))
            found = places[i];
    if (found)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s", found);
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = path,
                                   .hint = "say its path in the policy: self.scontrol: path:"},
                "scontrol is not there: a node could not be drained with a reason");
}

static const struct xc_check scontrol = {
    .id = "self.scontrol",
    .code = "SLF01",
    .what = "scontrol is there, for draining with a reason",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = scontrol_params,
    .run = run_scontrol,
};

/* ---- self.cgroup ------------------------------------------------------------------------------------ */

/* "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0": the options of the last mount of that kind there. */
static bool mounted_read_only(const char *mounts, const char *kind, const char *what)
{
    xc_autofree char *copy = mounts ? strdup(mounts) : NULL;
    char *rest = copy, *line;
    bool read_only = false;
    while (copy && (line = strsep(&rest, "\n"))) {
        char device[128], point[256], type[32], options[512];
        if (sscanf(line, "%127s %255s %31s %511s", device, point, type, options) == 4 &&
            xc_streq(type, kind) && strstr(point, "/sys/fs/cgroup") == point &&
            (!*what || strstr(options, what)))
            read_only = chk_list_has(options, "ro");
    }
    return read_only;
}

static void run_cgroup(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autofree char *controllers =
        xc_root_read_line(in->root, "/sys/fs/cgroup/cgroup.controllers");
    xc_autofree char *mounts = xc_root_read(in->root, NULL, NULL, "/proc/mounts");
    bool v1 = xc_root_exists(in->root, "/sys/fs/cgroup/cpuset/cpuset.cpus");
    struct chk_words words = {.want = "a cpuset that can be written",
                              .hint = "steps are then bound by affinity alone; mount the cpuset "
                                      "controller, in a pod with a writable cgroup"};
    xc_autofree char *conf = chk_slurm_conf(in);
    if (!controllers && !v1)
        chk_say(out, conf ? XC_CHECK_UNKNOWN : XC_CHECK_NA, words, "no cgroups are to be seen%s",
                conf ? "" : ", and there is no slurm.conf: no steps run here");
    else if (controllers && !strstr(controllers, "cpuset"))
        chk_say(out, chk_bad(in), words, "the cpuset controller is not in cgroup v2");
    else if (mounted_read_only(mounts, controllers ? "cgroup2" : "cgroup",
                               controllers ? "" : "cpuset"))
        chk_say(out, chk_bad(in), words, "cgroups are mounted read-only");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "cpuset of cgroup %s",
                controllers ? "v2" : "v1");
}

static const struct xc_check cgroup = {
    .id = "self.cgroup",
    .code = "SLF02",
    .what = "cpusets are there and can be written",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_cgroup,
};

/* ---- self.state ------------------------------------------------------------------------------------- */

/* The programs believe nothing that others may have written. */
static bool believed(const struct xc_check_input *in, struct xc_findings *out, const char *file)
{
    struct xc_error error = {0};
    if (xc_root_trusted(in->root, file, &error) == 0 || error.code != XC_EOWNER)
        return true;
    chk_say(
        out, chk_bad(in),
        (struct chk_words){.device = file, .hint = "chown root and chmod go-w, all of its path"},
        "what is kept there is not believed: %s", error.message);
    return false;
}

static void run_state(const struct xc_check_input *in, struct xc_findings *out)
{
    bool disk = xc_root_exists(in->root, XC_STATE_DIR),
         memory = xc_root_exists(in->root, XC_RUN_DIR);
    bool good = (!disk || believed(in, out, XC_CHECK_STATE_FILE)) &
                (!memory || believed(in, out, XC_RUN_DIR "/tally"));
    if (!good)
        return;
    if (disk || memory)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s", disk ? XC_STATE_DIR : XC_RUN_DIR);
    else
        chk_say(out, chk_bad(in),
                (struct chk_words){.hint = "mkdir -m 755 " XC_STATE_DIR "; it is made by xcloud "
                                           "policy install, too"},
                "neither " XC_STATE_DIR " nor " XC_RUN_DIR " is there: counters and the last good "
                "policy are not kept");
}

static const struct xc_check state = {
    .id = "self.state",
    .code = "SLF03",
    .what = "there is a place for counters and the last good policy",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_state,
};

const struct xc_check *const chk_self[] = {&scontrol, &cgroup, &state, NULL};
