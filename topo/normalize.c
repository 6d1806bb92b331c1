/* How does a dump of NCCL become a site's file? Its cpu and pci elements, in its order, without what
 * one run saw: GPUs, NICs, ports, NVLinks, the host's hash, links that said nothing. */
#include <string.h>

#include "topo.h"

/* An error that the new file will not have. */
static bool mended(const struct xc_topo_finding *f)
{
    return xc_streq(f->id, "D8") || xc_streq(f->id, "D9");
}

int topo_need(const char *bytes, size_t length, struct topo_tree *tree, struct xc_error *error)
{
    struct xc_topo_findings findings = {0};
    int rc = topo_lint(bytes, length, tree, &findings, error);
    for (size_t i = 0; rc == 0 && i < findings.count; i++) {
        const struct xc_topo_finding *f = &findings.items[i];
        if (!f->error || (mended(f) && !f->refused))
            continue;
        rc = xc_error_set(error, XC_EINPUT, NULL, "line %u, column %u: %s: %s", f->line, f->column,
                          f->id, f->what);
    }
    xc_topo_findings_clear(&findings);
    return rc;
}

static void write_attribute(struct xc_text *out, const char *key, const char *value)
{
    char quote = strchr(value, '"') ? '\'' : '"';
    xc_text_addf(out, " %s=%c%s%c", key, quote, value, quote);
}

static int write_busid(struct xc_text *out, const char *busid, struct xc_error *error)
{
    char meant[XC_BDF_TEXT], shown[TOPO_SHOWN];
    if (topo_busid_ok(busid)) {
        write_attribute(out, "busid", busid);
    } else if (topo_busid_meant(busid, meant)) {
        write_attribute(out, "busid", meant);
    } else {
        return xc_error_set(error, XC_EINPUT, NULL, "busid %s: which device is meant is not clear",
                            topo_shown(busid, shown));
    }
    return 0;
}

static void write_speed(struct xc_text *out, const char *speed)
{
    bool known;
    topo_speed(speed, &known);
    const char *meant = known ? speed : topo_speed_text(topo_speed_meant(speed));
    if (meant) /* else it said nothing: NCCL looks itself */
        write_attribute(out, "link_speed", meant);
}

static int write_attributes(const struct topo_element *e, struct xc_text *out,
                            struct xc_error *error)
{
    for (const char *const *key = topo_attributes(e->kind); *key; key++) {
        const char *value = topo_value(e, *key);
        if (!value || xc_streq(*key, "host_hash"))
            continue;
        if (xc_streq(*key, "busid")) {
            if (write_busid(out, value, error) < 0)
                return -1;
        } else if (xc_streq(*key, "link_speed")) {
            write_speed(out, value);
        } else if (!xc_streq(*key, "link_width") || strtol(value, NULL, 0) != 0) {
            write_attribute(out, *key, value);
        }
    }
    return 0;
}

static int next_kept(const struct topo_tree *tree, int i)
{
    while (i >= 0 && tree->elements[i].kind != TOPO_CPU && tree->elements[i].kind != TOPO_PCI)
        i = tree->elements[i].next;
    return i;
}

/* Down, along and up again without calling itself: a file may be 255 deep. */
static int write_tree(const struct topo_tree *tree, struct xc_text *out, struct xc_error *error)
{
    unsigned depth = 0;
    int i = 0;
    while (i >= 0) {
        const struct topo_element *e = &tree->elements[i];
        int first = next_kept(tree, e->first), next;
        xc_text_addf(out, "%*s<%s", (int)depth * 2, "", topo_name(e->kind));
        if (write_attributes(e, out, error) < 0)
            return -1;
        xc_text_add(out, first >= 0 ? ">\n" : "/>\n");
        if (first >= 0) {
            depth++;
            i = first;
            continue;
        }
        while ((next = next_kept(tree, tree->elements[i].next)) < 0) {
            i = tree->elements[i].parent;
            if (i < 0)
                return 0;
            depth--;
            xc_text_addf(out, "%*s</%s>\n", (int)depth * 2, "", topo_name(tree->elements[i].kind));
        }
        i = next;
    }
    return 0;
}

/* What is mended may become what is there already: 004D:… and 004d:… are one device. */
static int still_right(const struct xc_text *text, struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    struct xc_error why = {0};
    if (topo_need(text->data, text->length, &tree, &why) == 0)
        return 0;
    return xc_error_set(error, why.code, NULL, "once it is normal, %s", why.message);
}

int xc_topo_normalize(const char *bytes, size_t length, struct xc_text *out, struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    if (topo_need(bytes, length, &tree, error) < 0 || write_tree(&tree, &text, error) < 0)
        return -1;
    if (text.failed)
        return xc_error_nomem(error);
    if (still_right(&text, error) < 0)
        return -1;
    xc_text_add(out, text.data);
    return out->failed ? xc_error_nomem(error) : 0;
}
