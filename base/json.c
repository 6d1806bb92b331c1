/* JSON for programs: commas, quotes and escapes in one place. */
#include <inttypes.h>

#include <xcloud/base.h>

void xc_json_begin(struct xc_json *json, struct xc_text *out, bool pretty)
{
    *json = (struct xc_json){.out = out, .pretty = pretty};
}

static void quoted(struct xc_text *out, const char *string)
{
    xc_text_add(out, "\"");
    for (; *string; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '"' || c == '\\')
            xc_text_addf(out, "\\%c", c);
        else if (c == '\n')
            xc_text_add(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            xc_text_addf(out, "\\u%04x", c);
        else
            xc_text_add_n(out, string, 1);
    }
    xc_text_add(out, "\"");
}

static void newline(struct xc_json *json)
{
    if (json->pretty)
        xc_text_addf(json->out, "\n%*s", (int)json->depth * 2, "");
}

static void start(struct xc_json *json, const char *key)
{
    if (json->comma)
        xc_text_add(json->out, ",");
    if (json->depth > 0)
        newline(json);
    if (key) {
        quoted(json->out, key);
        xc_text_add(json->out, json->pretty ? ": " : ":");
    }
    json->comma = true;
}

static void open_bracket(struct xc_json *json, const char *key, const char *bracket)
{
    start(json, key);
    xc_text_add(json->out, bracket);
    json->depth++;
    json->comma = false;
}

void xc_json_object(struct xc_json *json, const char *key)
{
    open_bracket(json, key, "{");
}

void xc_json_array(struct xc_json *json, const char *key)
{
    open_bracket(json, key, "[");
}

void xc_json_end(struct xc_json *json, char bracket)
{
    json->depth--;
    if (json->comma)
        newline(json);
    xc_text_addf(json->out, "%c", bracket);
    json->comma = true;
    if (json->depth == 0 && json->pretty)
        xc_text_add(json->out, "\n");
}

void xc_json_string(struct xc_json *json, const char *key, const char *value)
{
    start(json, key);
    if (value)
        quoted(json->out, value);
    else
        xc_text_add(json->out, "null");
}

void xc_json_int(struct xc_json *json, const char *key, int64_t value)
{
    start(json, key);
    xc_text_addf(json->out, "%" PRId64, value);
}

void xc_json_bool(struct xc_json *json, const char *key, bool value)
{
    start(json, key);
    xc_text_add(json->out, value ? "true" : "false");
}

void xc_json_set(struct xc_json *json, const char *key, const struct xc_set *set)
{
    start(json, key);
    xc_text_add(json->out, "\"");
    xc_text_add_set(json->out, set);
    xc_text_add(json->out, "\"");
}
