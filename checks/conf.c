/* What do configuration files of KEY=VALUE lines say? */
#include <ctype.h>

#include "conf.h"

#define INCLUDE_DEPTH 8

void chk_conf_clear(struct chk_conf *conf)
{
    for (size_t i = 0; i < conf->count; i++) {
        free(conf->pairs[i].key);
        free(conf->pairs[i].value);
    }
    free(conf->pairs);
    *conf = (struct chk_conf){0};
}

static void add_pair(struct chk_conf *conf, const char *key, const char *value)
{
    if (conf->count == conf->size) {
        size_t size = conf->size ? 2 * conf->size : 64;
        struct chk_pair *pairs = realloc(conf->pairs, size * sizeof *pairs);
        if (!pairs) {
            conf->failed = true;
            return;
        }
        conf->pairs = pairs;
        conf->size = size;
    }
    struct chk_pair pair = {.key = strdup(key), .value = strdup(value)};
    if (!pair.key || !pair.value) {
        free(pair.key);
        free(pair.value);
        conf->failed = true;
        return;
    }
    conf->pairs[conf->count++] = pair;
}

static char *unquoted(char *value)
{
    size_t length = strlen(value);
    if (length >= 2 && (*value == '"' || *value == '\'') && value[length - 1] == *value) {
        value[length - 1] = '\0';
        value++;
    }
    return value;
}

static bool read_into(struct xc_root *root, const char *path, unsigned how, unsigned depth,
                      struct chk_conf *out);

static void include(struct xc_root *root, const char *path, const char *name, unsigned how,
                    unsigned depth, struct chk_conf *out)
{
    xc_autofree char *full = *name == '/' ? strdup(name) : chk_beside(path, name);
    if (full && depth < INCLUDE_DEPTH)
        read_into(root, full, how, depth + 1, out);
}

static void take_line(struct xc_root *root, const char *path, char *line, unsigned how,
                      unsigned depth, struct chk_conf *out)
{
    line[strcspn(line, "#")] = '\0';
    char *key = xc_trim(line);
    size_t length = strcspn(key, how & CHK_BLANK ? "= \t" : "=");
    if ((how & CHK_INCLUDES) && strncasecmp(key, "include", 7) == 0 &&
        isspace((unsigned char)key[7])) {
        include(root, path, xc_trim(key + 8), how, depth, out);
        return;
    }
    if (!*key || !key[length])
        return;
    char *value = key + length;
    bool blank = *value != '=';
    *value++ = '\0';
    value += strspn(value, " \t");
    if (blank && *value == '=')
        value++;
    add_pair(out, xc_trim(key), unquoted(xc_trim(value)));
}

/* Lines that end in a backslash go on in the next one. */
static void join_lines(char *text)
{
    for (char *p = text; (p = strstr(p, "\\\n")); p += 2)
        memset(p, ' ', 2);
}

static bool read_into(struct xc_root *root, const char *path, unsigned how, unsigned depth,
                      struct chk_conf *out)
{
    xc_autofree char *text = xc_root_read(root, NULL, NULL, "%s", path);
    if (!text)
        return false;
    join_lines(text);
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        take_line(root, path, line, how, depth, out);
    return true;
}

bool chk_conf_read(struct xc_root *root, const char *path, unsigned how, struct chk_conf *out)
{
    *out = (struct chk_conf){0};
    return read_into(root, path, how, 0, out) && !out->failed;
}

const char *chk_conf_get(const struct chk_conf *conf, const char *key)
{
    for (size_t i = conf->count; i-- > 0;)
        if (strcasecmp(conf->pairs[i].key, key) == 0)
            return conf->pairs[i].value;
    return NULL;
}

bool chk_list_has(const char *list, const char *word)
{
    xc_autonames char **names = list ? xc_names_split(list) : NULL;
    for (char **name = names; name && *name; name++)
        if (strcasecmp(xc_trim(*name), word) == 0)
            return true;
    return false;
}

char *chk_slurm_conf(const struct xc_check_input *in)
{
    static const char *const places[] = {
        "/etc/slurm/slurm.conf",
        "/run/slurm/conf/slurm.conf",
        "/var/spool/slurmd/conf-cache/slurm.conf",
        "/var/lib/slurm/slurmd/conf-cache/slurm.conf",
    };
    if (in->slurm_conf)
        return xc_root_exists(in->root, "%s", in->slurm_conf) ? strdup(in->slurm_conf) : NULL;
    for (size_t i = 0; i < XC_COUNT(places); i++)
        if (xc_root_exists(in->root, "%s", places[i]))
            return strdup(places[i]);
    return NULL;
}

char *chk_beside(const char *conf, const char *name)
{
    const char *slash = strrchr(conf, '/');
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%.*s/%s", slash ? (int)(slash - conf) : 0, conf, name);
    return xc_text_take(&text);
}
