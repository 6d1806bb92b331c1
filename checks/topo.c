/* Is the NCCL topology file there that the policy names, and root's? */
#include "work.h"

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

/* Present, some XML of NCCL's, and nobody but root can change it: it is read in every job. */
static void judge(const struct xc_check_input *in, struct xc_findings *out, const char *file)
{
    struct xc_error error = {0};
    size_t length;
    xc_autofree char *text = xc_root_read(in->root, &length, &error, "%s", file);
    struct chk_words words = {
        .device = file,
        .want = "root's file, readable by all",
        .hint = "install it from the provider or from xcloud, mode 0644, owner root"};
    if (!text) {
        chk_say(out, XC_CHECK_FAIL, words, "%s",
                error.code == XC_ENOENT ? "the topology file is not there" : error.message);
        return;
    }
    if (!strstr(text, "<system")) {
        chk_say(out, XC_CHECK_FAIL, words,
                length ? "it is no topology of NCCL's: there is no <system> in it" : "it is empty");
        return;
    }
    int rc = xc_root_trusted(in->root, file, &error);
    if (rc < 0 && error.code == XC_EOWNER)
        chk_say(out, XC_CHECK_FAIL, words, "not root alone can write it: %s", error.message);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.device = file}, "%zu bytes%s", length,
                rc < 0 ? "; its owner is not known here" : ", root's");
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
    .what = "NCCL's topology file is there, readable and root's",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_file,
};

const struct xc_check *const chk_topo[] = {&file, NULL};
