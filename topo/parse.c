/* How does NCCL read the file? The same decisions, character by character, as its parser makes
 * (src/graph/xml.cc, NCCL 2.30): what it refuses is refused here, at the same place. Nothing here
 * calls itself, so that no nesting is too deep. */
#include <string.h>

#include "topo.h"

/* ---- what may stand where -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned children; /* bits of topo_kind */
    const char *attributes[18];
} kinds[TOPO_KINDS] = {
    [TOPO_SYSTEM] = {"system", 1 << TOPO_CPU, {"version", "name"}},
    [TOPO_CPU] = {"cpu",
                  1 << TOPO_PCI | 1 << TOPO_NIC,
                  {"numaid", "affinity", "arch", "vendor", "familyid", "modelid", "host_hash"}},
    [TOPO_PCI] = {"pci",
                  1 << TOPO_PCI | 1 << TOPO_GPU | 1 << TOPO_NIC | 1 << TOPO_PCILINK,
                  {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device",
                   "link_speed", "link_width"}},
    [TOPO_GPU] = {"gpu", 1 << TOPO_NVLINK | 1 << TOPO_C2C, {"dev", "sm", "rank", "gdr", "mlopart"}},
    [TOPO_NIC] = {"nic", 1 << TOPO_NET, {NULL}},
    [TOPO_NET] = {"net",
                  0,
                  {"name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll",
                   "net", "gin", "rma", "rail", "plane", "keep"}},
    [TOPO_NVLINK] = {"nvlink", 0, {"target", "count", "tclass"}},
    [TOPO_C2C] = {"c2c", 0, {"bw", "count"}},
    [TOPO_PCILINK] = {"pcilink", 0, {"target"}},
};

const char *topo_name(enum topo_kind kind)
{
    return kind < TOPO_KINDS ? kinds[kind].name : "at the top of the file";
}

bool topo_belongs(enum topo_kind parent, enum topo_kind child)
{
    if (parent >= TOPO_KINDS)
        return child == TOPO_SYSTEM;
    return child < TOPO_KINDS && (kinds[parent].children >> child & 1);
}

const char *const *topo_attributes(enum topo_kind kind)
{
    return kinds[kind].attributes;
}

static enum topo_kind kind_of(const char *name)
{
    enum topo_kind kind = 0;
    while (kind < TOPO_KINDS && !xc_streq(kinds[kind].name, name))
        kind++;
    return kind;
}

const struct topo_attr *topo_attr(const struct topo_element *element, const char *key)
{
    for (unsigned i = 0; i < element->nattrs; i++)
        if (xc_streq(element->attrs[i].key, key))
            return &element->attrs[i];
    return NULL;
}

const char *topo_value(const struct topo_element *element, const char *key)
{
    const struct topo_attr *attr = topo_attr(element, key);
    return attr ? attr->value : NULL;
}

void topo_tree_free(struct topo_tree *tree)
{
    for (int i = 0; i < tree->count; i++)
        free(tree->elements[i].attrs);
    free(tree->elements);
    *tree = (struct topo_tree){0};
}

/* ---- characters ------------------------------------------------------------------------------------ */

enum tag_type { TAG_NONE, TAG_OPEN, TAG_CLOSE, TAG_SINGLE };

struct reader {
    const char *bytes;
    size_t length, at;
    struct topo_place place, was; /* of the character at `at`, and of the one before it */
    bool lenient;
    struct topo_tree *tree;
    struct xc_topo_findings *findings;
    struct topo_element tag; /* the one being read; its attrs has TOPO_ATTRS + 1 */
    char name[TOPO_STRING + 1];
    enum tag_type type;
    int head;         /* the known element that is open, XC_NONE */
    unsigned unknown; /* unknown elements that are open below it */
    struct topo_place unknown_place;
    char unknown_name[TOPO_STRING + 1];
};

static struct xc_topo_finding *refuse(struct reader *r, const char *id, struct topo_place place,
                                      const char *what)
{
    r->tree->refused = true;
    struct xc_topo_finding *f = topo_found(r->findings, id, TOPO_REFUSED, place, "%s", what);
    topo_nccl(f, "refuse the file and end every job");
    return f;
}

/* The next character, or false at the end. */
static bool next(struct reader *r, char *c)
{
    if (r->at == r->length)
        return false;
    *c = r->bytes[r->at++];
    r->was = r->place;
    if (*c == '\n') {
        r->place.line++;
        r->place.column = 1;
    } else {
        r->place.column++;
    }
    return true;
}

/* The same inside a tag, where the end is an error. */
static bool need(struct reader *r, char *c)
{
    if (next(r, c))
        return true;
    topo_fix(refuse(r, "D13", r->place, "the file ends inside a tag"), "write the file whole");
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_blanks(struct reader *r)
{
    char c;
    while (r->at < r->length && is_blank(r->bytes[r->at]))
        next(r, &c);
}

static bool ahead(const struct reader *r, const char *text)
{
    size_t length = strlen(text);
    return r->length - r->at >= length && memcmp(r->bytes + r->at, text, length) == 0;
}

/* What stands where NCCL wants a blank, '/' or '>'. */
static bool unexpected(struct reader *r, struct topo_place place, char c)
{
    static const char tab[] = "a tab inside a tag", line[] = "a line break inside a tag";
    if (c == '\t' || c == '\n' || c == '\r') {
        struct xc_topo_finding *f = refuse(r, "D2", place, c == '\t' ? tab : line);
        topo_fix(f, "put the tag on one line, one blank between attributes");
    } else if (c == '?') {
        topo_fix(refuse(r, "D1", r->tag.place, "an XML prolog (<?…?>)"), "take it out");
    } else {
        char what[80];
        snprintf(what, sizeof what, "'%c' where a blank, '/' or '>' belongs", c >= ' ' ? c : '?');
        topo_fix(refuse(r, "D13", place, what), "one blank between attributes, '>' at the end");
    }
    return false;
}

/* ---- tokens ---------------------------------------------------------------------------------------- */

static bool too_long(struct reader *r, struct topo_place place, const char *what)
{
    char text[80];
    snprintf(text, sizeof text, "%s of more than %d characters", what, TOPO_STRING - 1);
    topo_fix(refuse(r, "D5", place, text), "write it shorter");
    return false;
}

/* A value and the character behind it. */
static bool read_value(struct reader *r, char *value, char *last)
{
    struct topo_place place = r->place, start;
    char quote, c;
    if (r->lenient && r->at < r->length && is_blank(r->bytes[r->at])) {
        topo_fix(refuse(r, "D3", place, "a blank behind '='"), "write name=\"value\"");
        skip_blanks(r);
    }
    if (!need(r, &quote))
        return false;
    if (quote != '"' && quote != '\'') {
        bool blank = is_blank(quote);
        struct xc_topo_finding *f = refuse(r, blank ? "D3" : "D13", place,
                                           blank ? "a blank behind '='" : "a value without quotes");
        topo_fix(f, "write name=\"value\"");
        return false;
    }
    start = r->place;
    int o = 0;
    do {
        if (!need(r, &c))
            return false;
        value[o] = c;
        if (o == TOPO_STRING)
            return too_long(r, start, "a value");
        o++;
    } while (c != quote);
    value[o - 1] = '\0';
    return need(r, last);
}

/* A name up to a blank, '>', '/' or a line's end; with value not NULL also "name=value". *equals:
 * it had a value. */
static bool read_token(struct reader *r, char *name, char *value, bool *equals, char *last)
{
    struct topo_place start = r->place;
    int o = 0;
    char c;
    for (*equals = false;;) {
        struct topo_place place = r->place;
        if (!need(r, &c))
            return false;
        if (c == '=') {
            name[o] = '\0';
            *equals = true;
            if (value)
                return read_value(r, value, last);
            const char *tab = memchr(name, '\t', (size_t)o);
            if (tab)
                place.column = start.column + (unsigned)(tab - name);
            bool comment = xc_starts(name, "!--");
            topo_fix(refuse(r, tab ? "D2" : "D13", place,
                            tab       ? "a tab inside a tag"
                            : comment ? "a comment whose first word has an '='"
                                      : "an '=' in the name of an element"),
                     comment ? "put a blank behind <!--" : "one blank behind the element's name");
            return false;
        }
        name[o] = c;
        if (o == TOPO_STRING)
            return too_long(r, start, "a name");
        o++;
        if (c == ' ' || c == '>' || c == '/' || c == '\n' || c == '\r' || (r->lenient && c == '\t'))
            break;
    }
    name[o - 1] = '\0';
    *last = c;
    return true;
}

/* Up to "-->". start: what the element's name had behind "!--"; c: what ended it. */
static bool skip_comment(struct reader *r, const char *start, char c)
{
    struct topo_place place = r->tag.place;
    char end[3] = {'.', '.', '.'};
    for (;; start++) {
        end[0] = end[1];
        end[1] = end[2];
        end[2] = *start ? *start : c;
        if (!*start)
            break;
    }
    while (memcmp(end, "-->", 3) != 0) {
        if (!next(r, &c)) {
            topo_fix(refuse(r, "D13", place, "a comment without an end"), "end it with -->");
            return false;
        }
        end[0] = end[1];
        end[1] = end[2];
        end[2] = c;
    }
    return true;
}

/* ---- tags ------------------------------------------------------------------------------------------ */

/* Lenient: whatever blanks there are, and blanks around '='. */
static bool lenient_attribute(struct reader *r, struct topo_attr *attr, char *c)
{
    if (!read_token(r, attr->key, attr->value, &attr->equals, c))
        return false;
    size_t at = r->at;
    struct topo_place place = r->place;
    if (attr->equals || !is_blank(*c))
        return true;
    skip_blanks(r);
    if (ahead(r, "=")) {
        next(r, c);
        attr->equals = true;
        if (r->at < r->length && !is_blank(r->bytes[r->at])) {
            struct xc_topo_finding *f =
                topo_found(r->findings, "D3", TOPO_ERROR, place, "a blank before '='");
            topo_nccl(f, "take the value for one without a name");
            topo_fix(f, "write name=\"value\"");
        }
        return read_value(r, attr->value, c);
    }
    r->at = at;
    r->place = place;
    return true;
}

static bool lenient_attributes(struct reader *r, char *c)
{
    while (is_blank(*c)) {
        if (*c != ' ')
            unexpected(r, r->was, *c);
        struct topo_place place = r->place;
        skip_blanks(r);
        if (r->place.line != place.line)
            unexpected(r, place, '\n');
        if (ahead(r, ">") || ahead(r, "/"))
            return next(r, c);
        struct topo_attr *attr = &r->tag.attrs[r->tag.nattrs];
        attr->place = r->place;
        attr->value[0] = '\0';
        if (!lenient_attribute(r, attr, c))
            return false;
        if (r->tag.nattrs < TOPO_ATTRS)
            r->tag.nattrs++;
    }
    return true;
}

static bool read_attributes(struct reader *r, char *c)
{
    if (r->lenient)
        return lenient_attributes(r, c);
    while (*c == ' ') {
        struct topo_attr *attr = &r->tag.attrs[r->tag.nattrs];
        attr->place = r->place;
        attr->value[0] = '\0';
        if (!read_token(r, attr->key, attr->value, &attr->equals, c))
            return false;
        if (r->tag.nattrs == TOPO_ATTRS)
            r->tag.extra++;
        else
            r->tag.nattrs++;
    }
    return true;
}

/* A closing tag's name, behind "</". */
static bool read_closing(struct reader *r)
{
    struct topo_place place = r->place;
    bool equals;
    char c;
    r->type = TAG_CLOSE;
    if (!read_token(r, r->name, NULL, &equals, &c))
        return false;
    if (c == '>')
        return true;
    char what[128], name[TOPO_SHOWN];
    snprintf(what, sizeof what, "more than a name in the closing tag %s",
             topo_shown(r->name, name));
    topo_fix(refuse(r, "D13", place, what), "write </name>");
    return false;
}

/* What is no tag at all between tags. */
static bool no_tag(struct reader *r, struct topo_place place, char c)
{
    if (c == '\t') {
        topo_fix(refuse(r, "D2", place, "a tab between tags"), "indent with blanks");
    } else if (place.line == 1 && place.column == 1 && (unsigned char)c >= 0x80) {
        topo_fix(refuse(r, "D1", place, "a byte order mark"), "save the file without it");
    } else {
        char what[80];
        snprintf(what, sizeof what, "text between tags ('%c')", c >= ' ' && c < 127 ? c : '?');
        topo_fix(refuse(r, "D13", place, what), "take it out; comments are <!-- … -->");
    }
    return false;
}

/* Lenient: over a byte order mark, tabs, a prolog and a document type. */
static void skip_foreign(struct reader *r)
{
    char c;
    if (r->at == 0 && ahead(r, "\xEF\xBB\xBF"))
        for (int i = 0; i < 3; i++)
            next(r, &c);
    for (;;) {
        skip_blanks(r);
        if (!ahead(r, "<?") && !ahead(r, "<!D"))
            return;
        topo_fix(refuse(r, "D1", r->place,
                        ahead(r, "<?") ? "an XML prolog (<?…?>)" : "a document type (<!DOCTYPE>)"),
                 "take it out");
        while (next(r, &c) && c != '>')
            ;
    }
}

/* The next tag into r->tag, r->name and r->type; comments are skipped. False: refused. */
static bool read_tag(struct reader *r)
{
    for (;;) {
        char c = ' ';
        bool equals;
        r->type = TAG_NONE;
        if (r->lenient)
            skip_foreign(r);
        struct topo_place place = r->place;
        while (c == ' ' || c == '\n' || c == '\r') {
            place = r->place;
            if (!next(r, &c))
                return true;
        }
        if (c != '<')
            return no_tag(r, place, c);
        r->tag.place = place;
        r->tag.nattrs = r->tag.extra = 0;
        if (!read_token(r, r->name, NULL, &equals, &c))
            return false;
        if (xc_starts(r->name, "!--")) {
            if (!skip_comment(r, r->name + 3, c))
                return false;
            continue;
        }
        if (!*r->name && c == '/')
            return read_closing(r);
        r->type = TAG_OPEN;
        if (!read_attributes(r, &c))
            return false;
        if (c == '/') {
            char rest[TOPO_STRING + 1];
            r->type = TAG_SINGLE;
            if (!read_token(r, rest, NULL, &equals, &c))
                return false;
        }
        return c == '>' || unexpected(r, r->was, c);
    }
}

/* ---- the tree -------------------------------------------------------------------------------------- */

/* The tag becomes an element of the tree, below the one that is open. */
static bool keep(struct reader *r, enum topo_kind kind)
{
    struct topo_tree *tree = r->tree;
    struct topo_element *e = &tree->elements[tree->count];
    *e = r->tag;
    e->kind = kind;
    e->parent = r->head;
    e->first = e->last = e->next = XC_NONE;
    e->attrs = malloc((e->nattrs + 1) * sizeof *e->attrs);
    if (!e->attrs) {
        tree->failed = true;
        return false;
    }
    memcpy(e->attrs, r->tag.attrs, e->nattrs * sizeof *e->attrs);
    if (r->head >= 0) {
        struct topo_element *parent = &tree->elements[r->head];
        if (parent->last >= 0)
            tree->elements[parent->last].next = tree->count;
        else
            parent->first = tree->count;
        parent->last = tree->count;
    }
    tree->count++;
    return true;
}

/* NCCL reads an int with strtol and looks at nothing else. */
static bool version_ok(struct reader *r)
{
    const char *text = topo_value(&r->tag, "version");
    char shown[TOPO_SHOWN], what[160];
    if (text && (int)strtol(text, NULL, 0) == 1)
        return true;
    if (text)
        snprintf(what, sizeof what, "version is %s", topo_shown(text, shown));
    else
        snprintf(what, sizeof what, "<system> has no version");
    topo_fix(refuse(r, "D4", r->tag.place, what), "<system version=\"1\">");
    return r->lenient;
}

static const char *nearest_element(const char *name)
{
    const char *names[TOPO_KINDS + 1] = {0};
    for (int i = 0; i < TOPO_KINDS; i++)
        names[i] = kinds[i].name;
    return xc_nearest(name, names);
}

/* An element that NCCL skips, with all that is in it; whoever closes it. */
static bool open_unknown(struct reader *r)
{
    char name[TOPO_SHOWN];
    enum topo_kind parent = r->head >= 0 ? r->tree->elements[r->head].kind : TOPO_UNKNOWN;
    enum topo_kind kind = kind_of(r->name);
    if (r->unknown == 0) {
        r->unknown_place = r->tag.place;
        snprintf(r->unknown_name, sizeof r->unknown_name, "%s", r->name);
    }
    if (r->unknown == 0 && kind < TOPO_KINDS) {
        struct xc_topo_finding *f =
            topo_found(r->findings, "D7", TOPO_ERROR, r->tag.place, "<%s> %s%s%s", r->name,
                       parent < TOPO_KINDS ? "below <" : "", topo_name(parent),
                       parent < TOPO_KINDS ? ">" : "");
        topo_nccl(f, "skip it and all that is in it");
        topo_fix(f, "put it where it belongs, see xcloud-topo(7)");
    } else if (r->unknown == 0 && *r->name != '!') {
        struct xc_topo_finding *f =
            topo_found(r->findings, "D6", TOPO_WARNING, r->tag.place, "the element %s is unknown",
                       topo_shown(r->name, name));
        topo_nccl(f, "skip it and all that is in it");
        const char *near = f ? nearest_element(r->name) : NULL;
        topo_fix(f, near ? "did you mean <%s>?" : "take it out", near);
    }
    if (r->type == TAG_SINGLE)
        return true;
    if (++r->unknown <= TOPO_UNNESTED)
        return true;
    topo_fix(refuse(r, "D5", r->tag.place, "unknown elements nested thousands deep"),
             "take them out");
    return false;
}

static bool take_tag(struct reader *r)
{
    struct topo_element *head = r->head >= 0 ? &r->tree->elements[r->head] : NULL;
    if (r->type == TAG_CLOSE && r->unknown) {
        r->unknown--;
        return true;
    }
    if (r->type == TAG_CLOSE && head) {
        if (xc_streq(r->name, topo_name(head->kind))) {
            r->head = head->parent;
            return true;
        }
        char what[200], name[TOPO_SHOWN];
        snprintf(what, sizeof what, "<%s> of line %u is closed with %s", topo_name(head->kind),
                 head->place.line, topo_shown(r->name, name));
        topo_fix(refuse(r, "D13", r->tag.place, what), "</%s>", topo_name(head->kind));
        return false;
    }
    enum topo_kind kind = kind_of(r->name);
    if (r->unknown)
        return r->type == TAG_SINGLE || open_unknown(r);
    if (!topo_belongs(head ? head->kind : TOPO_UNKNOWN, kind))
        return open_unknown(r);
    if (kind == TOPO_SYSTEM && !version_ok(r))
        return false;
    if (!keep(r, kind))
        return false;
    if (r->type != TAG_SINGLE)
        r->head = r->tree->count - 1;
    return true;
}

/* The end: whether all that was opened is closed. */
static void at_end(struct reader *r)
{
    char what[200], name[TOPO_SHOWN];
    if (r->unknown && (*r->unknown_name == '!' || *r->unknown_name == '?')) {
        topo_fix(refuse(r, "D1", r->unknown_place, "a document type or prolog (<!…>, <?…>)"),
                 "take it out");
    } else if (r->unknown) {
        snprintf(what, sizeof what, "the element %s is not closed",
                 topo_shown(r->unknown_name, name));
        topo_fix(refuse(r, "D13", r->unknown_place, what), "close it, or take it out");
    } else if (r->head >= 0) {
        const struct topo_element *head = &r->tree->elements[r->head];
        snprintf(what, sizeof what, "<%s> is not closed: the file ends", topo_name(head->kind));
        topo_fix(refuse(r, "D13", head->place, what), "write the file whole");
    }
}

static bool too_many(struct reader *r)
{
    char what[96];
    snprintf(what, sizeof what, "more than %d elements", TOPO_ELEMENTS - 1);
    topo_fix(refuse(r, "D5", r->place, what),
             "keep cpu and pci elements alone: xcloud topo normalize");
    return false;
}

void topo_read(const char *bytes, size_t length, bool lenient, struct topo_tree *tree,
               struct xc_topo_findings *findings)
{
    struct topo_attr *attrs = calloc(TOPO_ATTRS + 1, sizeof *attrs);
    struct reader r = {.bytes = bytes,
                       .length = length,
                       .place = {1, 1},
                       .lenient = lenient,
                       .tree = tree,
                       .findings = findings,
                       .tag.attrs = attrs,
                       .head = XC_NONE};
    *tree = (struct topo_tree){.elements = calloc(TOPO_ELEMENTS, sizeof *tree->elements)};
    tree->failed = !attrs || !tree->elements;
    while (!tree->failed) {
        if (tree->count == TOPO_ELEMENTS ? !too_many(&r) : !read_tag(&r))
            break;
        if (r.type == TAG_NONE) {
            at_end(&r);
            break;
        }
        if (!take_tag(&r))
            break;
    }
    free(attrs);
}
