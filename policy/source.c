/* May root believe the policy, and what holds while it does not load? */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "place.h"
#include "policy.h"

#define LAST_GOOD "policy.good"
#define ARMED     "armed"
#define SEEN      "seen"
#define SMALL     4096

void xc_policy_source_clear(struct xc_policy_source *source)
{
    if (!source)
        return;
    free(source->path);
    free(source->live_error);
    *source = (struct xc_policy_source){0};
}

/* ---- what we keep ---------------------------------------------------------------------------- */

/* Writes a file of ours below /var/lib/xcloud, or, on a diskless node, below /run/xcloud. */
static int keep(const struct xc_places *places, const char *name, const char *bytes, size_t length,
                struct xc_error *error)
{
    static const char *const directories[] = {XC_STATE_DIR, XC_RUN_DIR};
    struct xc_error why = {0};
    for (size_t i = 0; i < XC_COUNT(directories); i++) {
        xc_autofree char *directory = pol_path(places, directories[i], "");
        xc_autofree char *file = pol_path(places, directories[i], name);
        if (!directory || !file)
            return xc_error_nomem(error);
        if (xc_make_dirs(directory, 0755, &why) == 0 &&
            xc_write_atomic(file, bytes, length, 0644, &why) == 0) {
            /* an older copy on the other side must not win */
            xc_autofree char *other = pol_path(places, directories[1 - i], name);
            if (other && i == 0)
                unlink(other);
            return 0;
        }
    }
    if (error)
        *error = why;
    return -1;
}

/* A file of ours: /run first, since it is only there when /var could not be written. */
static char *kept(const struct xc_places *places, const char *name, size_t limit, size_t *length,
                  char **path, struct xc_error *error)
{
    static const char *const directories[] = {XC_RUN_DIR, XC_STATE_DIR};
    for (size_t i = 0; i < XC_COUNT(directories); i++) {
        xc_autofree char *file = pol_path(places, directories[i], name);
        struct xc_error why = {0};
        char *text = NULL;
        /* most are missing: their path need not be judged for that */
        if (file && access(file, F_OK) < 0)
            xc_error_errno(&why, file, "cannot open it");
        else if (file)
            text = xc_read_trusted(file, limit, length, &why);
        if (text && path) {
            *path = file;
            file = NULL;
        }
        if (text)
            return text;
        if (error)
            *error = why;
    }
    return NULL;
}

/* When a run first loaded the policy with that hash: the line "HASH UNIXTIME". */
static bool seen_since(char *seen, const char *hash, long *since)
{
    return seen && xc_starts(seen, hash) && seen[16] == ' ' &&
           xc_to_long(xc_trim(seen + 17), 1, __LONG_MAX__, since);
}

int xc_policy_keep(const struct xc_places *places, const char *text, size_t length,
                   struct xc_error *error)
{
    char hash[17];
    pol_hash(text, length, hash);
    if (keep(places, LAST_GOOD, text, length, error) < 0)
        return -1;
    /* arm_after counts from here; the same bytes installed again do not start it anew */
    size_t size;
    xc_autofree char *seen = kept(places, SEEN, SMALL, &size, NULL, NULL);
    long since;
    if (seen_since(seen, hash, &since) && since <= time(NULL)) /* else a clock was wrong then */
        return 0;
    char line[64];
    int count = snprintf(line, sizeof line, "%s %lld\n", hash, (long long)time(NULL));
    return keep(places, SEEN, line, (size_t)count, error);
}

int xc_policy_arm(const struct xc_places *places, const char *hash, struct xc_error *error)
{
    char line[20];
    if (strlen(hash) != 16 || strspn(hash, "0123456789abcdef") != 16)
        return xc_error_set(error, XC_EINPUT, NULL, "\"%.32s\" is no policy's hash", hash);
    int count = snprintf(line, sizeof line, "%s\n", hash);
    return keep(places, ARMED, line, (size_t)count, error);
}

/* Seconds after which a new policy arms itself; 0: never. */
static unsigned arm_after(const struct xc_policy *policy)
{
    unsigned seconds = 0;
    const char *text = xc_yaml_text(policy->tree, "arm_after");
    return text && pol_seconds(text, &seconds) ? seconds : 0;
}

static bool is_armed(const struct xc_places *places, const struct xc_policy *policy)
{
    size_t length;
    xc_autofree char *armed = kept(places, ARMED, SMALL, &length, NULL, NULL);
    if (armed && xc_starts(armed, policy->hash))
        return true;
    unsigned after = arm_after(policy);
    xc_autofree char *seen = kept(places, SEEN, SMALL, &length, NULL, NULL);
    long since;
    if (!after || !seen_since(seen, policy->hash, &since))
        return false;
    return time(NULL) >= since && time(NULL) - since >= (time_t)after;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_last_good(const struct xc_places *places, struct xc_policy **out,
                          struct xc_policy_source *source, const struct xc_error *live,
                          struct xc_error *error)
{
    char text[sizeof(struct xc_error)];
    size_t length;
    struct xc_error why;
    char *path = NULL;
    xc_autofree char *good = kept(places, LAST_GOOD, XC_POLICY_LIMIT, &length, &path, NULL);
    if (!good || xc_policy_parse(good, length, path, out, &why) < 0) {
        free(path);
        if (error)
            *error = *live;
        return -1;
    }
    free(source->path);
    source->path = path;
    source->last_good = true;
    source->live_error = strdup(xc_error_text(live, text, sizeof text));
    if (!source->live_error) {
        xc_policy_free(*out);
        xc_policy_source_clear(source);
        return xc_error_nomem(error);
    }
    return 0;
}

int xc_policy_load(const struct xc_places *places, struct xc_policy **out,
                   struct xc_policy_source *source, struct xc_error *error)
{
    struct xc_error live = {0};
    struct xc_policy_source none = {0};
    size_t length;
    *source = none;
    xc_autofree char *text = pol_read_live(places, &source->path, &length, &live);
    if (text && xc_policy_parse(text, length, source->path, out, &live) == 0) {
        source->armed = is_armed(places, *out);
        return 0;
    }
    /* no policy at all is a decision, not an accident: no copy may outlive it */
    if (live.code == XC_ENOENT && !places->policy) {
        if (error)
            *error = live;
        return -1;
    }
    int rc = load_last_good(places, out, source, &live, error);
    if (rc < 0)
        xc_policy_source_clear(source);
    return rc;
}
