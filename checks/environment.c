/* Is this bare metal, a virtual machine or a pod, and did anybody want that? */
#include "work.h"

static const struct xc_check_param environment_params[] = {
    {"is", XC_PARAM_WORD, "any", "what the node must be", "any,bare,vm,pod"},
    {0},
};

static void run_environment(const struct xc_check_input *in, struct xc_findings *out)
{
    static const char *const words[] = {"bare metal", "a virtual machine", "a pod or container"};
    const char *want = chk_param(in, "is"), *vendor = in->node->vendor,
               *product = in->node->product;
    const char *is = xc_environment_name(in->node->environment);
    bool wrong = want && strcasecmp(want, "any") != 0 && strcasecmp(want, is) != 0;
    chk_say(out, wrong ? chk_bad(in) : XC_CHECK_PASS,
            (struct chk_words){.want = wrong ? want : NULL,
                               .hint = "what it hides is n/a: C-states, clocks, the PCI tree"},
            "%s%s%s%s%s", words[in->node->environment], *vendor || *product ? ": " : "", vendor,
            *vendor && *product ? " " : "", product);
}

static const struct xc_check environment = {
    .id = "host.environment",
    .code = "HST08",
    .what = "bare metal, a virtual machine or a pod, as wanted",
    .at = XC_AT_BOOT | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = environment_params,
    .run = run_environment,
};

const struct xc_check *const chk_environment[] = {&environment, NULL};
