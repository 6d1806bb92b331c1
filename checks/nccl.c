/* Does /etc/nccl.conf say something else than the policy, and is the host's NCCL one that it allows? */
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

void chk_nccl_say(struct xc_findings *out, const struct xc_nccl_input *input,
                  enum xc_check_verdict verdict, bool errors_alone)
{
    struct xc_nccl_findings wrong = {0};
    if (!input->values->failed && xc_nccl_lint(input, &wrong, NULL) == 0)
        for (size_t i = 0; i < wrong.count; i++)
            if ((wrong.list[i].error || !errors_alone) &&
                !xc_streq(wrong.list[i].name, "NCCL")) /* its release has checks of its own */
                chk_say(out, verdict,
                        (struct chk_words){.device = wrong.list[i].name, .hint = wrong.list[i].fix},
                        "%s", wrong.list[i].what);
    xc_nccl_findings_clear(&wrong);
}

/* What NCCL does not take as it is meant; the policy says nothing of it. */
static void against_nccl(struct xc_findings *out, const struct chk_conf *conf)
{
    struct xc_nccl_values values = {0};
    for (size_t i = 0; i < conf->count; i++)
        xc_nccl_add(&values, conf->pairs[i].key, conf->pairs[i].value, FILE_NAME);
    chk_nccl_say(out, &(struct xc_nccl_input){.values = &values}, XC_CHECK_WARN, true);
    xc_nccl_values_clear(&values);
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
    against_nccl(out, &conf);
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

/* ---- nccl.version ------------------------------------------------------------------------------------- */

/* The release in a library's own name: libnccl.so.2 is a link to libnccl.so.2.28.9 where a package has
 * put it. Reading the library takes longer than a prolog may. */
static unsigned library_release(struct xc_root *root, char **path)
{
    for (const char *const *directory = xc_nccl_directories; *directory; directory++) {
        *path = xc_root_canonical(root, "%s/" XC_NCCL_SONAME, *directory);
        const char *name = *path ? strrchr(*path, '/') : NULL;
        if (name && xc_starts(name, "/libnccl.so."))
            return xc_nccl_library_named(*path);
        free(*path);
        *path = NULL;
    }
    return 0;
}

static void run_version(const struct xc_check_input *in, struct xc_findings *out)
{
    const char *wanted = in->rules->nccl_version;
    char text[XC_NCCL_RELEASE_TEXT];
    bool allows = true;
    struct xc_error error = {0};
    xc_autofree char *path = NULL;
    unsigned release = library_release(in->root, &path);
    if (!path)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "the host has no NCCL of its own");
    else if (release == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "xcloud nccl --library says it"},
                "%s does not say its release", path);
    else if (wanted && xc_nccl_allows(wanted, release, &allows, &error) < 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "%s", error.message);
    else if (!allows)
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = path,
                                   .want = wanted,
                                   .hint = "install a release that the policy allows"},
                "NCCL %s", xc_nccl_release_text(release, text));
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "NCCL %s%s",
                xc_nccl_release_text(release, text), wanted ? "" : "; the policy asks for none");
}

static const struct xc_check version_check = {
    .id = "nccl.version",
    .code = "NCL02",
    .what = "the host's NCCL is a release that the policy allows (nccl: version)",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_version,
};

const struct xc_check *const chk_nccl[] = {&conf_check, &version_check, NULL};
