/* What does a drain reason say, and what can be read from other nodes' reasons? */
#include <string.h>

#include <xcloud/prolog.h>

/* ---- ours ------------------------------------------------------------------------------------------- */

/* Slurm's tools, shells and text files see it: one line without what could end a string. */
static void sanitize(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || strchr("\"'`\\|$", *c))
            *c = ' ';
}

/* Cuts at a character's start. */
static void cut(char *text, size_t length)
{
    if (strlen(text) <= length)
        return;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    text[length] = '\0';
}

void xc_reason_make(char reason[XC_REASON_MAX], const char *finding, const char *class_name,
                    uint32_t job)
{
    char tail[128], head[XC_REASON_MAX], *code = NULL;
    bool has_class = class_name && *class_name;
    if (job)
        snprintf(tail, sizeof tail, " (%.63s, job %u)", has_class ? class_name : "-", job);
    else
        snprintf(tail, sizeof tail, " (%.63s)", has_class ? class_name : "-");
    snprintf(head, sizeof head, "%s", finding);
    sanitize(head);
    cut(head, sizeof head - 1);
    /* the code at its end stays whatever is cut */
    char kept[20] = "";
    code = strrchr(head, '[');
    if (code && strlen(code) < sizeof kept && code > head) {
        snprintf(kept, sizeof kept, "%s", code);
        code[-1] = '\0';
    }
    size_t room = XC_REASON_MAX - 1 - strlen(XC_REASON_PREFIX) - strlen(tail) - strlen(kept) - 1;
    cut(head, room);
    snprintf(reason, XC_REASON_MAX, XC_REASON_PREFIX "%s%s%s%s", head, *kept ? " " : "", kept,
             tail);
}

/* ---- others' ------------------------------------------------------------------------------------------ */

static bool copy_until(char *out, size_t size, const char *from, const char *stop)
{
    size_t length = strcspn(from, stop);
    if (length == 0 || length >= size || !from[length])
        return false;
    snprintf(out, size, "%.*s", (int)length, from);
    return true;
}

/* "xcloud: … [GPU01] (hgx-h100, job 4711)": from its end, since the fact may hold anything. */
static bool take_ours(struct xc_drained *drained)
{
    const char *open = strrchr(drained->reason, '('), *code = NULL;
    if (!xc_starts(drained->reason, XC_REASON_PREFIX) || !open)
        return false;
    for (const char *c = drained->reason; c < open; c++)
        if (*c == '[')
            code = c;
    if (!code || !copy_until(drained->code, sizeof drained->code, code + 1, "]") ||
        !copy_until(drained->class_name, sizeof drained->class_name, open + 1, ",)"))
        return false;
    if (xc_streq(drained->class_name, "-"))
        drained->class_name[0] = '\0';
    const char *job = strstr(open, ", job ");
    drained->job = job ? (uint32_t)strtoul(job + 6, NULL, 10) : 0;
    return true;
}

void xc_drains_clear(struct xc_drains *drains)
{
    for (size_t i = 0; i < drains->count; i++) {
        free(drains->list[i].node);
        free(drains->list[i].reason);
    }
    free(drains->list);
    *drains = (struct xc_drains){0};
}

static int by_node(const void *a, const void *b)
{
    return strcmp(((const struct xc_drained *)a)->node, ((const struct xc_drained *)b)->node);
}

const struct xc_drained *xc_drains_find(const struct xc_drains *drains, const char *node)
{
    struct xc_drained key = {.node = (char *)(uintptr_t)node};
    return drains->count ? bsearch(&key, drains->list, drains->count, sizeof key, by_node) : NULL;
}

static bool in_class(char *const *lists, const char *node)
{
    for (; lists && *lists; lists++)
        if (xc_hostlist_has(*lists, node, NULL) == 1)
            return true;
    return false;
}

struct parsing {
    struct xc_drains *out;
    char *const *class_nodes;
    char **names; /* seen, for the count; pointers into the text */
    size_t nnames;
};

static int add_drained(struct xc_drains *out, const char *node, const char *reason, int64_t at)
{
    if ((out->count & (out->count + 1)) == 0) {
        struct xc_drained *list = realloc(out->list, (2 * out->count + 2) * sizeof *list);
        if (!list)
            return -1;
        out->list = list;
    }
    struct xc_drained *drained = &out->list[out->count];
    *drained = (struct xc_drained){.node = strdup(node), .reason = strdup(reason), .at = at};
    if (!drained->node || !drained->reason) {
        free(drained->node);
        free(drained->reason);
        return -1;
    }
    out->count++;
    drained->ours = take_ours(drained);
    return 0;
}

/* "gpu1|drained|1764500000|reason"; a reason may hold bars. */
static int take_line(struct parsing *parsing, char *line, struct xc_error *error)
{
    char *state = strchr(line, '|'), *at = state ? strchr(state + 1, '|') : NULL,
         *reason = at ? strchr(at + 1, '|') : NULL;
    if (!reason)
        return xc_error_set(error, XC_EINPUT, "sinfo", "\"%.60s\" is no line about a node", line);
    *state++ = *at++ = *reason++ = '\0';
    parsing->names[parsing->nnames++] = line;
    if (!xc_starts(state, "drain")) /* drained, draining; "drained*" does not answer */
        return 0;
    return add_drained(parsing->out, line, reason, strtoll(at, NULL, 10)) < 0
               ? xc_error_nomem(error)
               : 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A node of two partitions has two lines. */
static void drop_doubles(struct parsing *parsing)
{
    struct xc_drains *out = parsing->out;
    qsort(parsing->names, parsing->nnames, sizeof *parsing->names, by_text);
    for (size_t i = 0; i < parsing->nnames; i++)
        if (i == 0 || strcmp(parsing->names[i], parsing->names[i - 1]) != 0) {
            out->nodes++;
            out->class_nodes += in_class(parsing->class_nodes, parsing->names[i]);
        }
    if (out->count == 0)
        return;
    qsort(out->list, out->count, sizeof *out->list, by_node);
    size_t kept = 1;
    for (size_t i = 1; i < out->count; i++) {
        if (strcmp(out->list[i].node, out->list[kept - 1].node) == 0) {
            free(out->list[i].node);
            free(out->list[i].reason);
        } else {
            out->list[kept++] = out->list[i];
        }
    }
    out->count = kept;
}

int xc_drains_parse(const char *text, char *const *class_nodes, struct xc_drains *out,
                    struct xc_error *error)
{
    *out = (struct xc_drains){0};
    size_t lines = 1;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    xc_autofree char *copy = strdup(text);
    xc_autofree char **names = calloc(lines, sizeof *names);
    if (!copy || !names)
        return xc_error_nomem(error);
    struct parsing parsing = {.out = out, .class_nodes = class_nodes, .names = names};
    char *rest = copy, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line && take_line(&parsing, line, error) < 0) {
            xc_drains_clear(out);
            return -1;
        }
    if (parsing.nnames == 0)
        return xc_error_set(error, XC_EINPUT, "sinfo", "it names no node");
    drop_doubles(&parsing);
    return 0;
}
