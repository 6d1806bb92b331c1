/* What does slurm.conf say about one node? NodeName lines alone, with DEFAULT lines, Include,
 * continuation and comments as Slurm reads them; everything else in the file is passed over. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "policy.h"

#define INCLUDE_DEPTH 8

enum {
    CPU_SPEC_LIST,
    CORE_SPEC_COUNT,
    SOCKETS,
    SOCKETS_PER_BOARD,
    BOARDS,
    CORES_PER_SOCKET,
    THREADS_PER_CORE,
    CPUS,
    FEATURES,
    NODE_KEYS
};

static const struct {
    const char *name;
    int key;
} node_keys[] = {
    {"CpuSpecList", CPU_SPEC_LIST},
    {"CoreSpecCount", CORE_SPEC_COUNT},
    {"Sockets", SOCKETS},
    {"SocketsPerBoard", SOCKETS_PER_BOARD},
    {"Boards", BOARDS},
    {"CoresPerSocket", CORES_PER_SOCKET},
    {"ThreadsPerCore", THREADS_PER_CORE},
    {"CPUs", CPUS},
    {"Features", FEATURES},
    {"Feature", FEATURES},
};

struct values {
    char *text[NODE_KEYS];
};

struct conf {
    struct xc_root *root;
    const char *node_name;
    char *directory; /* of the main file: relative includes start there */
    struct values defaults, node;
    bool found, spec_cores_first;
    unsigned line;   /* of the node's line */
    char where[256]; /* file:line of the node's line */
    struct xc_error *error;
};

static void clear_values(struct values *values)
{
    for (int i = 0; i < NODE_KEYS; i++)
        free(values->text[i]);
    *values = (struct values){0};
}

static int set_value(struct values *values, int key, const char *text, struct xc_error *error)
{
    char *copy = strdup(text);
    if (!copy)
        return xc_error_nomem(error);
    free(values->text[key]);
    values->text[key] = copy;
    return 0;
}

/* ---- one line -------------------------------------------------------------------------------- */

/* Takes KEY=VALUE off *at, in place; the value may be in double quotes. False at the end. */
static bool take_pair(char **at, char **key, char **value)
{
    char *p = *at + strspn(*at, " \t");
    if (!*p)
        return false;
    *key = p;
    p += strcspn(p, "= \t");
    char *end = p;
    p += strspn(p, " \t");
    if (*p != '=') { /* a word without a value: Slurm has none that matter here */
        *at = p;
        *value = end; /* "" */
        *end = '\0';
        return true;
    }
    *end = '\0';
    p++;
    p += strspn(p, " \t");
    if (*p == '"') {
        *value = ++p;
        p += strcspn(p, "\"");
    } else {
        *value = p;
        p += strcspn(p, " \t");
    }
    *at = *p ? p + 1 : p;
    *p = '\0';
    return true;
}

static int key_of(const char *name)
{
    for (size_t i = 0; i < XC_COUNT(node_keys); i++)
        if (strcasecmp(node_keys[i].name, name) == 0)
            return node_keys[i].key;
    return -1;
}

/* The other way to say the same: two ways to reserve cores, two to count sockets. */
static int rival_of(int key)
{
    switch (key) {
    case CPU_SPEC_LIST:
        return CORE_SPEC_COUNT;
    case CORE_SPEC_COUNT:
        return CPU_SPEC_LIST;
    case SOCKETS:
        return SOCKETS_PER_BOARD;
    case SOCKETS_PER_BOARD:
        return SOCKETS;
    default:
        return key;
    }
}

/* Lays what a line says over what is there already; a key takes its rival away. */
static int lay_over(struct values *under, const struct values *over, struct xc_error *error)
{
    for (int i = 0; i < NODE_KEYS; i++) {
        int rival = rival_of(i);
        if (!over->text[i])
            continue;
        if (set_value(under, i, over->text[i], error) < 0)
            return -1;
        if (rival != i && !over->text[rival]) {
            free(under->text[rival]);
            under->text[rival] = NULL;
        }
    }
    return 0;
}

static int take_node(struct conf *conf, const char *names, char *rest, const char *file,
                     unsigned line)
{
    char where[256];
    snprintf(where, sizeof where, "%.220s:%u", file, line);
    bool is_default = strcasecmp(names, "DEFAULT") == 0;
    if (!is_default) {
        if (conf->found)
            return 0;
        int has = xc_hostlist_has(names, conf->node_name, conf->error);
        if (has < 0 && conf->error)
            snprintf(conf->error->where, sizeof conf->error->where, "%s", where);
        if (has <= 0)
            return has;
    }
    struct values own = {0};
    char *key, *value;
    int rc = 0;
    while (rc == 0 && take_pair(&rest, &key, &value)) {
        int index = key_of(key);
        if (index >= 0)
            rc = set_value(&own, index, value, conf->error);
    }
    if (rc == 0 && !is_default)
        rc = lay_over(&conf->node, &conf->defaults, conf->error);
    if (rc == 0)
        rc = lay_over(is_default ? &conf->defaults : &conf->node, &own, conf->error);
    clear_values(&own);
    if (rc < 0 || is_default)
        return rc;
    conf->found = true;
    conf->line = line;
    snprintf(conf->where, sizeof conf->where, "%s", where);
    return 0;
}

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list) {
        size_t here = strcspn(list, ",");
        if (here == length && strncasecmp(list, word, length) == 0)
            return true;
        list += here + (list[here] == ',');
    }
    return false;
}

static int read_file(struct conf *conf, const char *path, unsigned depth);

static int include(struct conf *conf, const char *name, unsigned depth, const char *file,
                   unsigned line)
{
    char where[256];
    snprintf(where, sizeof where, "%.220s:%u", file, line);
    if (depth >= INCLUDE_DEPTH)
        return xc_error_set(conf->error, XC_EINPUT, where, "files are included deeper than %d",
                            INCLUDE_DEPTH);
    struct xc_text path = XC_TEXT_INIT;
    if (name[0] == '/')
        xc_text_add(&path, name);
    else
        xc_text_addf(&path, "%s/%s", conf->directory, name);
    xc_autofree char *full = xc_text_take(&path);
    if (!full)
        return xc_error_nomem(conf->error);
    int rc = read_file(conf, full, depth + 1);
    return rc < 0 ? xc_error_wrap(conf->error, "included at %s", where) : 0;
}

static int take_line(struct conf *conf, char *text, const char *file, unsigned line, unsigned depth)
{
    static const char word[] = "include";
    text = xc_trim(text);
    if (strncasecmp(text, word, sizeof word - 1) == 0 &&
        isblank((unsigned char)text[sizeof word - 1]))
        return include(conf, xc_trim(text + sizeof word), depth, file, line);
    char *key, *value;
    if (!take_pair(&text, &key, &value))
        return 0;
    if (strcasecmp(key, "NodeName") == 0)
        return take_node(conf, value, text, file, line);
    if (strcasecmp(key, "SlurmdParameters") == 0 || strcasecmp(key, "SchedulerParameters") == 0)
        conf->spec_cores_first |= has_word(value, "spec_cores_first");
    return 0;
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Cuts a comment off: from a '#' that no backslash stands before. */
static void cut_comment(char *line)
{
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || c[-1] != '\\')) {
            *c = '\0';
            return;
        }
}

/* Joins lines that end with a backslash. *at moves on; the line number is that of the first. */
static char *logical_line(char **at, unsigned *number)
{
    struct xc_text joined = XC_TEXT_INIT;
    while (**at) {
        char *line = *at;
        size_t length = strcspn(line, "\n");
        *at = line + length + (line[length] == '\n');
        line[length] = '\0';
        ++*number;
        cut_comment(line);
        length = strlen(line);
        while (length > 0 && isspace((unsigned char)line[length - 1]))
            length--;
        if (length == 0 || line[length - 1] != '\\') {
            xc_text_add_n(&joined, line, length);
            break;
        }
        xc_text_add_n(&joined, line, length - 1);
        xc_text_add(&joined, " ");
    }
    return xc_text_take(&joined);
}

static int read_file(struct conf *conf, const char *path, unsigned depth)
{
    xc_autofree char *text = xc_root_read(conf->root, NULL, conf->error, "%s", path);
    if (!text)
        return -1;
    unsigned number = 0;
    for (char *at = text; *at;) {
        unsigned first = number + 1;
        xc_autofree char *line = logical_line(&at, &number);
        if (!line)
            return xc_error_nomem(conf->error);
        if (take_line(conf, line, path, first, depth) < 0)
            return -1;
    }
    return 0;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int number_of(const struct conf *conf, int key, unsigned *out)
{
    long value;
    const char *text = conf->node.text[key];
    if (!text)
        return 0;
    if (!xc_to_long(text, 0, 65535, &value))
        return xc_error_set(conf->error, XC_EINPUT, conf->where,
                            "\"%.40s\" is no number; expected one as CoreSpecCount=2", text);
    *out = (unsigned)value;
    return 0;
}

static int features_of(const struct conf *conf, char ***out)
{
    const char *text = conf->node.text[FEATURES] ? conf->node.text[FEATURES] : "";
    size_t count = 2;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    char **features = calloc(count, sizeof *features);
    if (!features)
        return xc_error_nomem(conf->error);
    for (size_t i = 0; *text;) {
        size_t length = strcspn(text, ",");
        if (length > 0 && !(features[i++] = strndup(text, length))) {
            xc_names_free(&features);
            return xc_error_nomem(conf->error);
        }
        text += length + (text[length] == ',');
    }
    *out = features;
    return 0;
}

static int answer(const struct conf *conf, struct xc_slurm_node *out)
{
    unsigned boards = 0, per_board = 0;
    out->found = conf->found;
    out->spec_cores_first = conf->spec_cores_first;
    out->line = conf->line;
    if (!conf->found)
        return 0;
    const char *list = conf->node.text[CPU_SPEC_LIST];
    if ((list && xc_set_parse_list(&out->cpu_spec_list, list, conf->where, conf->error) < 0) ||
        number_of(conf, CORE_SPEC_COUNT, &out->core_spec_count) < 0 ||
        number_of(conf, SOCKETS, &out->sockets) < 0 || number_of(conf, BOARDS, &boards) < 0 ||
        number_of(conf, SOCKETS_PER_BOARD, &per_board) < 0 ||
        number_of(conf, CORES_PER_SOCKET, &out->cores_per_socket) < 0 ||
        number_of(conf, THREADS_PER_CORE, &out->threads_per_core) < 0 ||
        number_of(conf, CPUS, &out->cpus) < 0 || features_of(conf, &out->features) < 0)
        return -1;
    if (per_board)
        out->sockets = per_board * (boards ? boards : 1);
    return out->cpu_spec_list.failed ? xc_error_nomem(conf->error) : 0;
}

static const char *default_conf(struct xc_root *root)
{
    static const char *const places[] = {
        "/etc/slurm/slurm.conf",
        "/run/slurm/conf/slurm.conf", /* configless: slurmd's link to its cache, then the cache */
        "/var/spool/slurmd/conf-cache/slurm.conf",
        "/var/lib/slurm/slurmd/conf-cache/slurm.conf",
    };
    for (size_t i = 0; i < XC_COUNT(places); i++)
        if (xc_root_exists(root, "%s", places[i]))
            return places[i];
    return places[0];
}

int xc_slurm_conf_node(struct xc_root *root, const char *conf_path, const char *node_name,
                       struct xc_slurm_node *out, struct xc_error *error)
{
    const char *path = conf_path ? conf_path : default_conf(root);
    struct xc_slurm_node none = {0};
    *out = none;
    const char *slash = strrchr(path, '/');
    struct conf conf = {
        .root = root,
        .node_name = node_name,
        .directory = slash ? strndup(path, (size_t)(slash - path)) : strdup(""),
        .error = error,
    };
    int rc = conf.directory ? read_file(&conf, path, 0) : xc_error_nomem(error);
    if (rc == 0)
        rc = answer(&conf, out);
    if (rc < 0)
        xc_slurm_node_clear(out);
    clear_values(&conf.defaults);
    clear_values(&conf.node);
    free(conf.directory);
    return rc;
}

void xc_slurm_node_clear(struct xc_slurm_node *node)
{
    xc_set_free(&node->cpu_spec_list);
    xc_names_free(&node->features);
    *node = (struct xc_slurm_node){0};
}
