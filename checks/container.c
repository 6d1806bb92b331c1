/* Will enroot start containers as training needs them, with this machine's NICs? */
#include "conf.h"

#define ENROOT "/etc/enroot"

/* enroot reads enroot.conf and then enroot.conf.d/ *.conf; the later one wins. */
static void read_enroot(const struct xc_check_input *in, struct chk_conf *base,
                        struct chk_conf *more, size_t size, size_t *used)
{
    chk_conf_read(in->root, ENROOT "/enroot.conf", CHK_BLANK, base);
    xc_autonames char **names = xc_root_list(in->root, ENROOT "/enroot.conf.d");
    *used = 0;
    for (char **name = names; name && *name && *used < size; name++)
        if (xc_glob("*.conf", *name)) {
            struct xc_text text = XC_TEXT_INIT;
            xc_text_addf(&text, ENROOT "/enroot.conf.d/%s", *name);
            xc_autofree char *path = xc_text_take(&text);
            if (path)
                chk_conf_read(in->root, path, CHK_BLANK, &more[(*used)++]);
        }
}

#define MORE_MAX 16

static void wants_yes(const struct xc_check_input *in, struct xc_findings *out,
                      const struct chk_conf *base, const struct chk_conf *more, size_t used,
                      const char *key)
{
    const char *value = chk_conf_get(base, key);
    char hint[96];
    for (size_t i = 0; i < used; i++)
        if (chk_conf_get(&more[i], key))
            value = chk_conf_get(&more[i], key);
    snprintf(hint, sizeof hint, "%s yes in " ENROOT "/enroot.conf", key);
    if (!value || strcasecmp(value, "yes") != 0)
        chk_say(out, chk_bad(in), (struct chk_words){.device = key, .want = "yes", .hint = hint},
                "%s is %s", key, value ? value : "not said");
}

/* A variable that a file of environ.d gives to every container; on the heap. */
static char *environment_value(const struct xc_check_input *in, const char *key)
{
    xc_autonames char **names = xc_root_list(in->root, ENROOT "/environ.d");
    char *value = NULL;
    for (char **name = names; name && *name; name++) {
        chk_autoconf struct chk_conf conf = {0};
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, ENROOT "/environ.d/%s", *name);
        xc_autofree char *path = xc_text_take(&text);
        if (!path || !xc_glob("*.env", *name) || !chk_conf_read(in->root, path, 0, &conf) ||
            !chk_conf_get(&conf, key))
            continue;
        free(value);
        value = strdup(chk_conf_get(&conf, key));
    }
    return value;
}

static bool has_rdma(const struct xc_check_input *in, const char *name, bool exact)
{
    for (size_t i = 0; i < in->node->nnics; i++) {
        const char *have = in->node->nics[i].rdma;
        if (*have && (exact ? xc_streq(have, name) : xc_starts(have, name)))
            return true;
    }
    return false;
}

/* "=mlx5_0:1,mlx5_1", "^mlx5_2", "mlx5": as NCCL reads it. */
static void check_hca(const struct xc_check_input *in, struct xc_findings *out, const char *list)
{
    bool exact = *list == '=', without = *list == '^';
    list += exact || without;
    exact |= *list == '=';
    list += without && *list == '=';
    xc_autonames char **names = xc_names_split(list);
    for (char **name = names; name && *name; name++) {
        (*name)[strcspn(*name, ":")] = '\0';
        if (!has_rdma(in, *name, exact))
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = *name,
                                       .hint = "correct NCCL_IB_HCA in " ENROOT "/environ.d, or "
                                               "leave it to the policy: nics: export:"},
                    "NCCL_IB_HCA names an RDMA device that this machine does not have");
    }
}

static void run_enroot(const struct xc_check_input *in, struct xc_findings *out)
{
    chk_autoconf struct chk_conf base = {0};
    struct chk_conf more[MORE_MAX] = {0};
    size_t used, before = out->count;
    if (!xc_root_exists(in->root, ENROOT "/enroot.conf")) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "enroot is not installed");
        return;
    }
    read_enroot(in, &base, more, MORE_MAX, &used);
    wants_yes(in, out, &base, more, used, "ENROOT_ROOTFS_WRITABLE");
    wants_yes(in, out, &base, more, used, "ENROOT_REMAP_ROOT");
    for (size_t i = 0; i < used; i++)
        chk_conf_clear(&more[i]);
    xc_autofree char *hca = environment_value(in, "NCCL_IB_HCA");
    if (hca)
        check_hca(in, out, hca);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "enroot.conf%s",
                hca ? " and NCCL_IB_HCA fit this machine" : " is as it should be");
}

static const struct xc_check enroot = {
    .id = "container.enroot",
    .code = "CTR01",
    .what = "enroot's configuration and environment fit training and this machine",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_enroot,
};

const struct xc_check *const chk_container[] = {&enroot, NULL};
