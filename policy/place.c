/* Where is the policy, and is it switched off? libc and base/ alone: the plugin in srun asks too. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "place.h"

#define SLURM_CONF   "/etc/slurm/slurm.conf"
#define CONFIGLESS   "/run/slurm/conf"
#define SLURMD_CACHE "/var/spool/slurmd/conf-cache"

/* "" for the live machine. */
static const char *prefix_of(const struct xc_places *places)
{
    return places->prefix ? places->prefix : "";
}

char *pol_path(const struct xc_places *places, const char *directory, const char *name)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s%s%s", prefix_of(places), directory, *name ? "/" : "", name);
    return xc_text_take(&text);
}

/* ---- the live file ----------------------------------------------------------------------------------- */

/* A path of ours with the directory of slurm.conf in front. */
static char *beside_slurm_conf(const char *conf, const char *prefix)
{
    const char *slash = strrchr(conf, '/');
    if (!slash)
        return NULL;
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, prefix);
    xc_text_add_n(&text, conf, (size_t)(slash - conf));
    xc_text_add(&text, "/" XC_POLICY_IN_SLURM);
    return xc_text_take(&text);
}

/* The index-th place where a policy may be; NULL after the last, with *end set. */
static char *candidate(const struct xc_places *places, unsigned index, bool *end)
{
    static const char *const caches[] = {CONFIGLESS, SLURMD_CACHE};
    if (places->policy) { /* told where: nowhere else */
        *end = index > 0;
        return *end ? NULL : strdup(places->policy);
    }
    if (index == 0)
        return pol_path(places, XC_POLICY_FILE, "");
    if (index == 1)
        return places->slurm_conf ? beside_slurm_conf(places->slurm_conf, "")
                                  : beside_slurm_conf(SLURM_CONF, prefix_of(places));
    *end = places->slurm_conf || index - 2 >= XC_COUNT(caches);
    return *end ? NULL : pol_path(places, caches[index - 2], XC_POLICY_IN_SLURM);
}

char *pol_read_live(const struct xc_places *places, char **path, size_t *length,
                    struct xc_error *error)
{
    bool end = false;
    for (unsigned index = 0; !end; index++) {
        char *file = candidate(places, index, &end);
        if (!file)
            continue;
        struct xc_error why = {0};
        char *text = xc_read_trusted(file, XC_POLICY_LIMIT, length, &why);
        if (text || why.code != XC_ENOENT) {
            if (!text && error)
                *error = why;
            *path = file;
            return text;
        }
        free(file);
    }
    if (places->policy)
        xc_error_set(error, XC_ENOENT, places->policy, "there is no such policy");
    else
        xc_error_set(error, XC_ENOENT, XC_POLICY_FILE, "there is no policy");
    return NULL;
}

void pol_hash(const void *bytes, size_t length, char hash[17])
{
    snprintf(hash, 17, "%016" PRIx64, xc_hash64(bytes, length));
}

int xc_policy_live_hash(const struct xc_places *places, char hash[17], struct xc_error *error)
{
    xc_autofree char *path = NULL;
    size_t length;
    xc_autofree char *text = pol_read_live(places, &path, &length, error);
    if (!text)
        return -1;
    pol_hash(text, length, hash);
    return 0;
}

const char *xc_policy_disabled(const struct xc_places *places)
{
    static const char *const switches[] = {"/etc/xcloud/disabled", "/run/xcloud/disabled"};
    for (size_t i = 0; i < XC_COUNT(switches); i++) {
        xc_autofree char *path = pol_path(places, switches[i], "");
        struct stat st;
        /* anybody who can make a file there is root; its content does not matter */
        if (path && lstat(path, &st) == 0)
            return switches[i];
    }
    return NULL;
}
