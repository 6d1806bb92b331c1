/* What does a YAML document say, and where does it say it? */
#include <string.h>
#include <strings.h>

#include <yaml.h>

#include "yaml.h"

struct building {
    yaml_parser_t parser;
    const char *name, *text;
    size_t length;
    unsigned nodes;
    struct xc_error *error;
};

static int fail_at(const struct building *b, size_t line, size_t column, const char *format, ...)
    xc_printf(4, 5);

/* libyaml counts from 0, people from 1. */
static int fail_at(const struct building *b, size_t line, size_t column, const char *format, ...)
{
    char where[256], message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(where, sizeof where, "%.220s:%zu:%zu", b->name, line + 1, column + 1);
    return xc_error_set(b->error, XC_EINPUT, where, "%s", message);
}

static int fail_mark(const struct building *b, yaml_mark_t mark, const char *message)
{
    return fail_at(b, mark.line, mark.column, "%s", message);
}

/* The reader knows a byte's number alone. */
static int reader_failed(const struct building *b, const char *problem)
{
    size_t line = 0, column = 0;
    for (size_t i = 0; i < b->parser.problem_offset && i < b->length; i++) {
        column++;
        if (b->text[i] == '\n') {
            line++;
            column = 0;
        }
    }
    return fail_at(b, line, column, "%s; expected UTF-8 text", problem);
}

/* The byte at a mark; a mark counts characters. */
static char byte_at(const struct building *b, yaml_mark_t mark)
{
    const char *at = b->text, *end = b->text + b->length;
    for (size_t line = 0; line < mark.line && at < end; at++)
        line += *at == '\n';
    for (size_t column = 0; column < mark.column && at < end; column++)
        do
            at++;
        while (at < end && ((unsigned char)*at & 0xc0) == 0x80);
    return at < end ? *at : '\0';
}

/* libyaml says what it did not find; this is what a person wrote or forgot. */
static const char *way_out(const char *problem, const char *context)
{
    static const struct {
        const char *words, *expected;
    } ways[] = {
        {"a flow mapping", "} at its end, and quotes around texts that hold , : # [ ] { or }"},
        {"a flow sequence", "] at its end, and quotes around texts that hold , : # [ ] { or }"},
        {"a simple key", "KEY: VALUE, with a blank behind the colon"},
        {"a quoted scalar", "its closing quote"},
        {"a block", "lines of one level to begin in the same column"},
        {"mapping values", "lines of one level to begin in the same column, and quotes around "
                           "texts that hold a colon and a blank"},
    };
    for (size_t i = 0; i < XC_COUNT(ways); i++)
        if (strstr(context, ways[i].words) || strstr(problem, ways[i].words))
            return ways[i].expected;
    return "YAML";
}

static int scanner_failed(const struct building *b, const char *problem)
{
    const yaml_parser_t *p = &b->parser;
    yaml_mark_t here = p->problem_mark, start = p->context_mark;
    const char *context = p->context ? p->context : "";
    char byte = byte_at(b, here), begins[64] = "";
    if (strstr(problem, "cannot start any token") && byte == '\t')
        return fail_mark(b, here,
                         "a tab stands here; expected blanks: YAML indents with nothing else");
    if (strstr(problem, "cannot start any token") && byte > ' ' && byte < 127)
        return fail_at(b, here.line, here.column, "no text begins with %c; expected it in quotes",
                       byte);
    if (*context && start.line != here.line)
        snprintf(begins, sizeof begins, " that begins at %zu:%zu", start.line + 1,
                 start.column + 1);
    return fail_at(b, here.line, here.column, "%s%s%s%s; expected %s", problem, *context ? " " : "",
                   context, begins, way_out(problem, context));
}

static int parser_failed(const struct building *b)
{
    const yaml_parser_t *p = &b->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return xc_error_nomem(b->error);
    const char *problem = p->problem ? p->problem : "unknown problem";
    if (p->error == YAML_READER_ERROR)
        return reader_failed(b, problem);
    return scanner_failed(b, problem);
}

static int next(struct building *b, yaml_event_t *event)
{
    return yaml_parser_parse(&b->parser, event) ? 0 : parser_failed(b);
}

/* What one event may not carry: an anchor, or a tag that changes how a value is read. */
static int check_decoration(const struct building *b, yaml_mark_t mark, const yaml_char_t *anchor,
                            const yaml_char_t *tag, bool plain_allowed)
{
    if (anchor)
        return fail_at(b, mark.line, mark.column,
                       "the anchor \"&%.60s\" is refused; expected each value written out",
                       (const char *)anchor);
    if (tag && !(plain_allowed && strcmp((const char *)tag, "!") == 0) &&
        strcmp((const char *)tag, YAML_STR_TAG) != 0 &&
        strcmp((const char *)tag, YAML_MAP_TAG) != 0 &&
        strcmp((const char *)tag, YAML_SEQ_TAG) != 0)
        return fail_at(b, mark.line, mark.column,
                       "the tag \"%.60s\" is refused; expected a value without a tag",
                       (const char *)tag);
    return 0;
}

static int read_scalar(const struct building *b, const yaml_event_t *event, struct xc_yaml *node)
{
    yaml_mark_t mark = event->start_mark;
    if (check_decoration(b, mark, event->data.scalar.anchor, event->data.scalar.tag, true) < 0)
        return -1;
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (memchr(value, '\0', length))
        return fail_mark(b, mark, "a NUL byte inside a text is refused");
    node->kind = XC_YAML_SCALAR;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || event->data.scalar.tag;
    node->text = strndup(value, length);
    return node->text ? 0 : xc_error_nomem(b->error);
}

static int read_node(struct building *b, const yaml_event_t *event, unsigned depth,
                     struct xc_yaml *node);

static struct xc_yaml *add_child(const struct building *b, struct xc_yaml *parent)
{
    /* doubles at powers of two: the count alone says how much room there is */
    size_t n = parent->nchildren;
    if ((n & (n - 1)) == 0) {
        struct xc_yaml *more = realloc(parent->children, (n ? 2 * n : 1) * sizeof *more);
        if (!more) {
            xc_error_nomem(b->error);
            return NULL;
        }
        parent->children = more;
    }
    struct xc_yaml *child = &parent->children[parent->nchildren++];
    *child = (struct xc_yaml){0};
    return child;
}

static int read_key(const struct building *b, const yaml_event_t *event, struct xc_yaml *map,
                    struct xc_yaml *child)
{
    yaml_mark_t mark = event->start_mark;
    if (event->type != YAML_SCALAR_EVENT)
        return fail_mark(b, mark, "a key is no text; expected a word before the colon");
    struct xc_yaml key = {0};
    if (read_scalar(b, event, &key) < 0)
        return -1;
    child->key = key.text;
    child->key_line = (unsigned)mark.line + 1;
    child->key_column = (unsigned)mark.column + 1;
    for (size_t i = 0; i + 1 < map->nchildren; i++)
        if (xc_streq(map->children[i].key, child->key))
            return fail_at(b, mark.line, mark.column,
                           "the key \"%.80s\" is here twice; line %u has it first", child->key,
                           map->children[i].key_line);
    return 0;
}

static int read_map(struct building *b, unsigned depth, struct xc_yaml *node)
{
    for (;;) {
        yaml_event_t event;
        if (next(b, &event) < 0)
            return -1;
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        struct xc_yaml *child = add_child(b, node);
        int rc = child ? read_key(b, &event, node, child) : -1;
        yaml_event_delete(&event);
        if (rc < 0 || next(b, &event) < 0)
            return -1;
        rc = read_node(b, &event, depth + 1, child);
        yaml_event_delete(&event);
        if (rc < 0)
            return -1;
    }
}

static int read_list(struct building *b, unsigned depth, struct xc_yaml *node)
{
    for (;;) {
        yaml_event_t event;
        if (next(b, &event) < 0)
            return -1;
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        struct xc_yaml *child = add_child(b, node);
        int rc = child ? read_node(b, &event, depth + 1, child) : -1;
        yaml_event_delete(&event);
        if (rc < 0)
            return -1;
    }
}

static int read_node(struct building *b, const yaml_event_t *event, unsigned depth,
                     struct xc_yaml *node)
{
    yaml_mark_t mark = event->start_mark;
    node->line = (unsigned)mark.line + 1;
    node->column = (unsigned)mark.column + 1;
    if (depth > XC_YAML_DEPTH)
        return fail_at(b, mark.line, mark.column, "it is nested deeper than %d levels",
                       XC_YAML_DEPTH);
    if (++b->nodes > XC_YAML_NODES)
        return fail_at(b, mark.line, mark.column, "it has more than %d values", XC_YAML_NODES);
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(b, event, node);
    case YAML_MAPPING_START_EVENT:
        node->kind = XC_YAML_MAP;
        return check_decoration(b, mark, event->data.mapping_start.anchor,
                                event->data.mapping_start.tag, false) < 0
                   ? -1
                   : read_map(b, depth, node);
    case YAML_SEQUENCE_START_EVENT:
        node->kind = XC_YAML_LIST;
        return check_decoration(b, mark, event->data.sequence_start.anchor,
                                event->data.sequence_start.tag, false) < 0
                   ? -1
                   : read_list(b, depth, node);
    case YAML_ALIAS_EVENT:
        return fail_at(b, mark.line, mark.column,
                       "the alias \"*%.60s\" is refused; expected each value written out (a text "
                       "that starts with * must be in quotes)",
                       (const char *)event->data.alias.anchor);
    default:
        return fail_mark(b, mark, "unexpected YAML; expected a value");
    }
}

/* STREAM-START, DOCUMENT-START, one node, DOCUMENT-END, STREAM-END. */
static int read_stream(struct building *b, struct xc_yaml *top)
{
    yaml_event_t event;
    for (;;) {
        if (next(b, &event) < 0)
            return -1;
        yaml_event_type_t type = event.type;
        if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT)
            break;
        yaml_event_delete(&event);
    }
    if (event.type == YAML_STREAM_END_EVENT) {
        yaml_event_delete(&event);
        return fail_at(b, 0, 0, "it is empty; expected YAML");
    }
    int rc = read_node(b, &event, 1, top);
    yaml_event_delete(&event);
    if (rc < 0 || next(b, &event) < 0)
        return -1;
    yaml_event_delete(&event); /* the document's end: the parser allows nothing else here */
    if (next(b, &event) < 0)
        return -1;
    if (event.type != YAML_STREAM_END_EVENT)
        rc = fail_mark(b, event.start_mark, "a second document starts here; expected one document");
    yaml_event_delete(&event);
    return rc;
}

int xc_yaml_parse(const char *text, size_t length, const char *name, struct xc_yaml **out,
                  struct xc_error *error)
{
    struct building b = {.name = name, .text = text, .length = length, .error = error};
    struct xc_yaml *top = calloc(1, sizeof *top);
    if (!top || !yaml_parser_initialize(&b.parser)) {
        free(top);
        return xc_error_nomem(error);
    }
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, length);
    int rc = read_stream(&b, top);
    yaml_parser_delete(&b.parser);
    if (rc < 0)
        xc_yaml_free(top);
    else
        *out = top;
    return rc;
}

static void clear(struct xc_yaml *node)
{
    for (size_t i = 0; i < node->nchildren; i++)
        clear(&node->children[i]);
    free(node->children);
    free(node->text);
    free(node->key);
}

void xc_yaml_free(struct xc_yaml *tree)
{
    if (!tree)
        return;
    clear(tree);
    free(tree);
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct xc_yaml *xc_yaml_get(const struct xc_yaml *node, const char *key)
{
    if (!node || node->kind != XC_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < node->nchildren; i++)
        if (xc_streq(node->children[i].key, key))
            return &node->children[i];
    return NULL;
}

const char *xc_yaml_text(const struct xc_yaml *node, const char *key)
{
    const struct xc_yaml *value = xc_yaml_get(node, key);
    return value && !xc_yaml_is_null(value) ? value->text : NULL;
}

bool xc_yaml_long(const struct xc_yaml *node, const char *key, long *out)
{
    const char *text = xc_yaml_text(node, key);
    return text && xc_to_long(text, -__LONG_MAX__ - 1, __LONG_MAX__, out);
}

bool xc_yaml_is_null(const struct xc_yaml *node)
{
    return node->kind == XC_YAML_SCALAR && !node->quoted &&
           (!*node->text || xc_streq(node->text, "~") || strcasecmp(node->text, "null") == 0);
}

bool xc_yaml_is_bool(const struct xc_yaml *node, bool *value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    if (node->kind != XC_YAML_SCALAR)
        return false;
    for (size_t i = 0; i < XC_COUNT(words); i++)
        if (strcasecmp(node->text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    return false;
}

const char *xc_yaml_kind_name(const struct xc_yaml *node)
{
    return node->kind == XC_YAML_MAP    ? "a mapping"
           : node->kind == XC_YAML_LIST ? "a list"
           : xc_yaml_is_null(node)      ? "nothing"
                                        : "text";
}
