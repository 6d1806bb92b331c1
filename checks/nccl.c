/* Does /etc/nccl.conf say something else than the policy? */
#include "conf.h"

#define FILE_NAME "/etc/nccl.conf"

static void against_rule(const struct xc_check_input *in, struct xc_findings *out,
                         const struct chk_conf *conf, const struct xc_env_rule *rule)
{
    const char *have = chk_conf_get(conf, rule->name);
    if (!have)
        return;
    if (rule->set == XC_ENV_FORBID)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = rule->name,
                                   .want = "not set",
                                   .hint = "take the line out of " FILE_NAME
                                           ": NCCL reads it behind the environment's back"},
                FILE_NAME " sets %s=%s, which the policy forbids", rule->name, have);
    else if (rule->value && !strstr(rule->value, "${") && !xc_streq(rule->value, have))
        chk_say(out, chk_bad(in),
                (struct chk_words){
                    .device = rule->name,
                    .want = rule->value,
                    .hint = "one place for each setting: take the line out of " FILE_NAME},
                FILE_NAME " sets %s=%s", rule->name, have);
}

static void run_conf(const struct xc_check_input *in, struct xc_findings *out)
{
    chk_autoconf struct chk_conf conf = {0};
    size_t before = out->count;
    struct xc_error error = {0};
    if (!xc_root_exists(in->root, FILE_NAME)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "there is no " FILE_NAME);
        return;
    }
    if (!chk_conf_read(in->root, FILE_NAME, 0, &conf)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, FILE_NAME " is not readable");
        return;
    }
    for (size_t i = 0; i < in->rules->nenv; i++)
        against_rule(in, out, &conf, &in->rules->env[i]);
    const char *topo = chk_conf_get(&conf, "NCCL_TOPO_FILE");
    if (topo && (in->rules->topo.none || in->rules->topo.file) &&
        !xc_streq(topo, in->rules->topo.file))
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = "NCCL_TOPO_FILE",
                                   .want = in->rules->topo.none ? "not set" : in->rules->topo.file,
                                   .hint = "take the line out of " FILE_NAME},
                FILE_NAME " names another topology file: %s", topo);
    if (xc_root_trusted(in->root, FILE_NAME, &error) < 0 && error.code == XC_EOWNER)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = FILE_NAME,
                                   .want = "root's",
                                   .hint = "chown root " FILE_NAME "; chmod 0644 " FILE_NAME},
                "%s", error.message);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu settings, none against the policy",
                conf.count);
}

static const struct xc_check conf_check = {
    .id = "nccl.conf",
    .code = "NCL01",
    .what = "/etc/nccl.conf does not contradict the policy",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_conf,
};

const struct xc_check *const chk_nccl[] = {&conf_check, NULL};
