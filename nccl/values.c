/* What will each variable be, and who says so? */
#include <stdlib.h>
#include <string.h>

#include <xcloud/nccl.h>

bool xc_nccl_is_ours(const char *name)
{
    return xc_starts(name, "NCCL_") || xc_starts(name, "UCX_") || xc_starts(name, "NVSHMEM_");
}

static struct xc_nccl_value *find(const struct xc_nccl_values *values, const char *name)
{
    for (size_t i = 0; i < values->count; i++)
        if (xc_streq(values->list[i].name, name))
            return &values->list[i];
    return NULL;
}

const struct xc_nccl_value *xc_nccl_get(const struct xc_nccl_values *values, const char *name)
{
    return find(values, name);
}

static void value_clear(struct xc_nccl_value *value)
{
    free(value->name);
    free(value->value);
    free(value->from);
    free(value->behind);
}

/* Of one that is set already: told of where it differs. */
static void add_behind(struct xc_nccl_values *values, struct xc_nccl_value *first,
                       const char *value, const char *from)
{
    struct xc_text text = XC_TEXT_INIT;
    if (xc_streq(first->value, value))
        return;
    if (first->behind)
        xc_text_addf(&text, "%s; ", first->behind);
    xc_text_addf(&text, "%s says %s", from, value);
    char *behind = xc_text_take(&text);
    values->failed |= !behind;
    if (behind) {
        free(first->behind);
        first->behind = behind;
    }
}

void xc_nccl_add(struct xc_nccl_values *values, const char *name, const char *value,
                 const char *from)
{
    if (!xc_nccl_is_ours(name) || values->failed)
        return;
    struct xc_nccl_value *first = find(values, name);
    if (first) {
        add_behind(values, first, value, from);
        return;
    }
    if (values->count == values->size) {
        size_t size = values->size ? 2 * values->size : 32;
        struct xc_nccl_value *list = realloc(values->list, size * sizeof *list);
        if (!list) {
            values->failed = true;
            return;
        }
        values->list = list;
        values->size = size;
    }
    struct xc_nccl_value *added = &values->list[values->count++];
    *added =
        (struct xc_nccl_value){.name = strdup(name), .value = strdup(value), .from = strdup(from)};
    values->failed |= !added->name || !added->value || !added->from;
}

void xc_nccl_add_file(struct xc_nccl_values *values, const char *text, size_t length,
                      const char *from)
{
    unsigned line = 0;
    for (const char *at = text, *end = text + length; at < end; line++) {
        size_t left = (size_t)(end - at);
        const char *newline = memchr(at, '\n', left);
        size_t bytes = newline ? (size_t)(newline - at) : left;
        const char *equals = *at == '#' ? NULL : memchr(at, '=', bytes);
        if (equals) {
            xc_autofree char *name = strndup(at, (size_t)(equals - at));
            xc_autofree char *value = strndup(equals + 1, bytes - (size_t)(equals - at) - 1);
            struct xc_text place = XC_TEXT_INIT;
            xc_text_addf(&place, "%s line %u", from, line + 1);
            xc_autofree char *where = xc_text_take(&place);
            values->failed |= !name || !value || !where;
            if (!values->failed)
                xc_nccl_add(values, name, value, where);
        }
        at += bytes + 1;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct xc_nccl_value *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void xc_nccl_sort(struct xc_nccl_values *values)
{
    if (values->count > 1 && !values->failed)
        qsort(values->list, values->count, sizeof *values->list, by_name);
}

void xc_nccl_values_clear(struct xc_nccl_values *values)
{
    for (size_t i = 0; i < values->count; i++)
        value_clear(&values->list[i]);
    free(values->list);
    *values = (struct xc_nccl_values){0};
}

void xc_nccl_text(const struct xc_nccl_values *values, struct xc_text *out)
{
    for (size_t i = 0; i < values->count; i++) {
        const struct xc_nccl_value *value = &values->list[i];
        xc_text_add_plain(out, value->name, 256);
        xc_text_add(out, "=");
        xc_text_add_plain(out, value->value, 512);
        xc_text_addf(out, "  (%s%s", value->from,
                     value->evidence_missing ? ", without evidence" : "");
        if (value->behind) {
            xc_text_add(out, "; ");
            xc_text_add_plain(out, value->behind, 512);
        }
        xc_text_add(out, ")\n");
    }
}
