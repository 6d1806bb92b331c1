/* Is the NCCL topology file there that the policy names, will NCCL take it, does it say the truth about
 * this machine, and does it reach containers? */
#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xcloud/topo.h>

#include "live.h"

/* Where NCCL looks without NCCL_TOPO_FILE. */
#define NCCL_DEFAULT "/var/run/nvidia-topologyd/virtualTopology.xml"

static void not_said(const struct xc_check_input *in, struct xc_findings *out)
{
    bool hidden = in->node->environment != XC_BARE && in->node->ngpus > 1;
    if (hidden && !xc_root_exists(in->root, NCCL_DEFAULT))
        chk_say(out, XC_CHECK_WARN,
                (struct chk_words){.want = "topo: file: in the policy",
                                   .hint = "the provider has a file for this kind of machine; "
                                           "without it NCCL takes GPUs and NICs for far apart"},
                "this machine hides its PCI tree and NCCL gets no topology file");
    else
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "the policy names no topology file");
}

static void must_not(const struct xc_check_input *in, struct xc_findings *out)
{
    if (xc_root_exists(in->root, NCCL_DEFAULT))
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = NCCL_DEFAULT,
                                   .want = "none",
                                   .hint = "take it away: NCCL reads it without being asked"},
                "there is a topology file, and the policy wants none");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "there is none, as wanted");
}

#define FINDINGS_SAID 4 /* of a file: the rest is counted */

static void say_findings(const struct xc_check_input *in, struct xc_findings *out, const char *file,
                         const struct xc_topo_findings *found)
{
    unsigned said = 0;
    for (int errors = 1; errors >= 0; errors--)
        for (size_t i = 0; i < found->count && said < FINDINGS_SAID; i++) {
            const struct xc_topo_finding *f = &found->items[i];
            char device[300];
            if (f->error != (errors == 1))
                continue;
            snprintf(device, sizeof device, "%.250s:%u", file, f->line);
            chk_say(out, f->error ? XC_CHECK_FAIL : XC_CHECK_WARN,
                    (struct chk_words){.device = f->line ? device : file, .hint = f->fix},
                    "%s%s (%s)", f->refused ? "NCCL refuses the file, and every job with it: " : "",
                    f->what, f->id);
            said++;
        }
    unsigned all = found->errors + found->warnings;
    if (all > said)
        chk_say(out, found->errors > said ? XC_CHECK_FAIL : XC_CHECK_WARN,
                (struct chk_words){.device = file,
                                   .hint = in->node->boot_id[0] ? "xcloud topo verify lists all"
                                                                : "xcloud topo verify --machine"},
                "%u more errors and warnings", all - said);
}

/* Present, taken by NCCL, true of this machine, and nobody but root can change it: it is read in every
 * job. */
static void judge(const struct xc_check_input *in, struct xc_findings *out, const char *file)
{
    struct xc_error error = {0};
    struct xc_topo_findings found = {0};
    size_t length, before = out->count;
    xc_autofree char *text = xc_root_read(in->root, &length, &error, "%s", file);
    struct chk_words words = {
        .device = file,
        .want = "it owned by root and readable by all",
        .hint = "xcloud topo generate makes it, or the provider has it; mode 0644"};
    if (!text) {
        chk_say(out, XC_CHECK_FAIL, words, "%s",
                error.code == XC_ENOENT ? "the topology file is not there" : error.message);
        return;
    }
    int rc = xc_root_trusted(in->root, file, &error);
    if (rc < 0 && error.code == XC_EOWNER)
        chk_say(out, XC_CHECK_FAIL, words, "not root alone can write it: %s", error.message);
    if (xc_topo_verify(text, length, in->node, in->rules, &found, &error) < 0)
        chk_say(out, XC_CHECK_FAIL, words, "%s", error.message);
    say_findings(in, out, file, &found);
    xc_topo_findings_clear(&found);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.device = file},
                "NCCL takes it and it is true of this machine%s",
                rc < 0 ? "; its owner is not known here" : "");
}

static void run_file(const struct xc_check_input *in, struct xc_findings *out)
{
    if (in->rules->topo.none)
        must_not(in, out);
    else if (in->rules->topo.file)
        judge(in, out, in->rules->topo.file);
    else
        not_said(in, out);
}

static const struct xc_check file = {
    .id = "topo.file",
    .code = "TOP01",
    .what = "NCCL's topology file is there, root's, taken by NCCL and true of this machine",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_file,
};

/* ---- topo.hook -------------------------------------------------------------------------------------- */

#define HOOK "/etc/enroot/hooks.d/50-xcloud.sh"

static const struct xc_check_param hook_params[] = {
    {"path", XC_PARAM_TEXT, HOOK, "the hook, in hooks.d of enroot's ENROOT_SYSCONF_PATH", NULL},
    {0},
};

static bool has_enroot(const struct xc_check_input *in)
{
    return xc_root_exists(in->root, "/etc/enroot/enroot.conf") ||
           xc_root_exists(in->root, "/usr/bin/enroot");
}

static void dry_run(const struct xc_check_input *in, struct xc_findings *out, const char *path)
{
    struct chk_words words = {.device = path,
                              .want = "exit 0",
                              .hint =
                                  "install etc/enroot/hooks.d/50-xcloud.sh of xcloud-bind again"};
    char value[300];
    int64_t status;
    const char *text = chk_live_text(in, out, XC_PROBE_HOOK, NULL);
    if (!text)
        return;
    if (chk_live_value(text, "hook", "refused", value, sizeof value))
        chk_say(out, XC_CHECK_FAIL, words, "it was not run: %s", value);
    else if (!chk_live_number(text, "hook", "exit", &status))
        chk_say(out, XC_CHECK_UNKNOWN, words, "a dry run of it did not end in time");
    else if (status != 0)
        chk_say(out, XC_CHECK_FAIL, words,
                "a dry run of it ends with %" PRId64 ": no container would start", status);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.device = path},
                "it is there, and a dry run of it ends well");
}

static void run_hook(const struct xc_check_input *in, struct xc_findings *out)
{
    const char *path = chk_param(in, "path");
    struct xc_error error = {0};
    if (!in->rules->topo.file) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "the policy names no topology file");
        return;
    }
    if (!has_enroot(in)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "enroot is not installed");
        return;
    }
    if (!xc_root_exists(in->root, "%s", path)) {
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = path,
                                   .want = "xcloud-bind's hook",
                                   .hint = "install etc/enroot/hooks.d/50-xcloud.sh there, mode "
                                           "0755; without it containers do not see the file"},
                "the enroot hook is not there");
        return;
    }
    if (xc_root_trusted(in->root, path, &error) < 0 && error.code == XC_EOWNER) {
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = path, .hint = "chown root, chmod 755"},
                "not root alone can write it: %s", error.message);
        return;
    }
    dry_run(in, out, path);
}

bool chk_hook_wanted(const struct xc_check_input *input)
{
    return input->rules->topo.file && has_enroot(input);
}

/* Without XCLOUD_TOPO_FILE in its environment the hook ends at once, with 0. */
int chk_probe_hook(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    struct xc_check_input in = *input;
    in.check = xc_check_find("topo.hook");
    in.rule = chk_rule_of(input->rules, "topo.hook");
    struct xc_command program = {.path = chk_param(&in, "path")};
    if (!input->rules->topo.file || access(program.path, F_OK) < 0) {
        chk_probe_line(out, "end");
        return 0;
    }
    xc_commands_run(&program, 1, deadline_ms > 200 ? deadline_ms - 100 : deadline_ms);
    if (!program.child.started)
        chk_probe_line(out, "hook refused %s", program.error.message);
    else if (program.child.ended)
        chk_probe_line(out, "hook exit %d",
                       WIFEXITED(program.child.status) ? WEXITSTATUS(program.child.status)
                                                       : 128 + WTERMSIG(program.child.status));
    chk_probe_line(out, "end");
    free(program.child.text);
    return 0;
}

static const struct xc_check hook = {
    .id = "topo.hook",
    .code = "TOP02",
    .what = "enroot's hook for the topology file is there, root's, and ends well",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_HOOK,
    .on_fail = XC_FAIL_WARN,
    .params = hook_params,
    .run = run_hook,
};

const struct xc_check *const chk_topo[] = {&file, &hook, NULL};
