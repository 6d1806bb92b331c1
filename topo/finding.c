/* What was found: kept, sorted, and said as text or JSON. */
#include <ctype.h>
#include <string.h>

#include "topo.h"

void xc_topo_findings_clear(struct xc_topo_findings *findings)
{
    free(findings->items);
    *findings = (struct xc_topo_findings){0};
}

static struct xc_topo_finding *add(struct xc_topo_findings *findings)
{
    size_t n = findings->count;
    if ((n & (n - 1)) == 0) {
        struct xc_topo_finding *items = realloc(findings->items, (n ? 2 * n : 8) * sizeof *items);
        if (!items) {
            findings->failed = true;
            return NULL;
        }
        findings->items = items;
    }
    findings->items[n] = (struct xc_topo_finding){0};
    findings->count = n + 1;
    return &findings->items[n];
}

/* Whether there is one already at this place (a second reading finds the first one's again), and
 * how many there are of this id and weight. */
static bool known(const struct xc_topo_findings *findings, const char *id, bool error,
                  struct topo_place place, size_t *same)
{
    *same = 0;
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_topo_finding *f = &findings->items[i];
        if (!xc_streq(f->id, id))
            continue;
        if (place.line && f->refused && f->line == place.line && f->column == place.column)
            return true;
        *same += f->error == error;
    }
    return false;
}

struct xc_topo_finding *topo_found(struct xc_topo_findings *findings, const char *id,
                                   enum topo_weight weight, struct topo_place place,
                                   const char *format, ...)
{
    bool error = weight != TOPO_WARNING;
    size_t same;
    if (known(findings, id, error, place, &same))
        return NULL;
    error ? findings->errors++ : findings->warnings++;
    if (same >= XC_TOPO_SAME) {
        findings->not_kept++;
        return NULL;
    }
    struct xc_topo_finding *f = add(findings);
    if (!f)
        return NULL;
    snprintf(f->id, sizeof f->id, "%s", id);
    f->error = error;
    f->refused = weight == TOPO_REFUSED;
    f->line = place.line;
    f->column = place.column;
    va_list args;
    va_start(args, format);
    vsnprintf(f->what, sizeof f->what, format, args);
    va_end(args);
    return f;
}

void topo_nccl(struct xc_topo_finding *finding, const char *format, ...)
{
    if (!finding)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(finding->nccl, sizeof finding->nccl, format, args);
    va_end(args);
}

void topo_fix(struct xc_topo_finding *finding, const char *format, ...)
{
    if (!finding)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(finding->fix, sizeof finding->fix, format, args);
    va_end(args);
}

/* Place first, those without one last; then id, which makes the order that of no qsort. */
static int by_place(const void *a, const void *b)
{
    const struct xc_topo_finding *x = a, *y = b;
    unsigned xl = x->line - 1, yl = y->line - 1; /* 0 becomes the largest */
    if (xl != yl)
        return xl < yl ? -1 : 1;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    int order = strcmp(x->id, y->id);
    return order ? order : strcmp(x->what, y->what);
}

void topo_sort(struct xc_topo_findings *findings)
{
    if (findings->count)
        qsort(findings->items, findings->count, sizeof *findings->items, by_place);
}

bool xc_topo_refused(const struct xc_topo_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (findings->items[i].refused)
            return true;
    return false;
}

const char *topo_shown(const char *text, char buffer[TOPO_SHOWN])
{
    size_t n = 0;
    buffer[n++] = '"';
    for (; *text && n < TOPO_SHOWN - 8; text++)
        buffer[n++] = (char)(isprint((unsigned char)*text) ? *text : '?');
    if (*text)
        for (int i = 0; i < 3; i++)
            buffer[n++] = '.';
    buffer[n++] = '"';
    buffer[n] = '\0';
    return buffer;
}

void xc_topo_findings_text(const struct xc_topo_findings *findings, const char *name,
                           struct xc_text *out)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_topo_finding *f = &findings->items[i];
        if (f->line)
            xc_text_addf(out, "%s:%u:%u: ", name, f->line, f->column);
        else
            xc_text_addf(out, "%s: ", name);
        xc_text_addf(out, "%s %s: %s", f->error ? "error" : "warning", f->id, f->what);
        if (*f->nccl)
            xc_text_addf(out, "; NCCL would %s", f->nccl);
        if (*f->fix)
            xc_text_addf(out, "; fix: %s", f->fix);
        xc_text_add(out, "\n");
    }
    if (findings->not_kept)
        xc_text_addf(out, "%s: %u more like these\n", name, findings->not_kept);
}

void xc_topo_findings_json(const struct xc_topo_findings *findings, const char *name,
                           struct xc_text *out)
{
    struct xc_json json;
    xc_json_begin(&json, out, true);
    xc_json_object(&json, NULL);
    xc_json_string(&json, "file", name);
    xc_json_int(&json, "errors", findings->errors);
    xc_json_int(&json, "warnings", findings->warnings);
    xc_json_bool(&json, "refused", xc_topo_refused(findings));
    xc_json_array(&json, "findings");
    for (size_t i = 0; i < findings->count; i++) {
        const struct xc_topo_finding *f = &findings->items[i];
        xc_json_object(&json, NULL);
        xc_json_string(&json, "id", f->id);
        xc_json_string(&json, "severity", f->error ? "error" : "warning");
        xc_json_bool(&json, "refused", f->refused);
        xc_json_int(&json, "line", f->line);
        xc_json_int(&json, "column", f->column);
        xc_json_string(&json, "what", f->what);
        xc_json_string(&json, "nccl", *f->nccl ? f->nccl : NULL);
        xc_json_string(&json, "fix", *f->fix ? f->fix : NULL);
        xc_json_end(&json, '}');
    }
    xc_json_end(&json, ']');
    xc_json_end(&json, '}');
    xc_text_add(out, "\n");
}
