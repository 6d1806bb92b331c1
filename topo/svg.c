/* What will NCCL see, as a picture: the boxes of its tree in each other, and below them how far each GPU
 * is from each NIC. */
#include <string.h>

#include "topo.h"

#define MARGIN  16
#define ROW     26 /* an element's line */
#define GAP     4
#define INDENT  14
#define WIDTH   760
#define CELL    64
#define HEADING 130 /* of a distance's row */

struct picture {
    struct topo_showing showing; /* out: the picture */
    int y[TOPO_ELEMENTS], height[TOPO_ELEMENTS];
};

static void escaped(struct xc_text *out, const char *string)
{
    for (; *string; string++) {
        unsigned char c = (unsigned char)*string;
        if (strchr("<>&\"", c))
            xc_text_addf(out, "&#%u;", c);
        else
            xc_text_addf(out, "%c", c >= 0x20 && c < 0x7f ? c : '?');
    }
}

static void box(const struct picture *p, int x, int y, int width, int height, const char *fill)
{
    xc_text_addf(p->showing.out,
                 "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
                 "stroke=\"#444\"/>\n",
                 x, y, width, height, fill);
}

static void label(const struct picture *p, int x, int y, const char *text)
{
    xc_text_addf(p->showing.out, "<text x=\"%d\" y=\"%d\">", x, y);
    escaped(p->showing.out, text);
    xc_text_add(p->showing.out, "</text>\n");
}

/* Children come after their parents, so that going from the end gives each its height after all that
 * is in it, and going from the start each its place after what it is in. */
static void lay_out(struct picture *p)
{
    const struct topo_element *all = p->showing.tree->elements;
    for (int i = p->showing.tree->count - 1; i >= 0; i--) {
        p->height[i] = all[i].first >= 0 ? ROW : ROW - GAP;
        for (int c = all[i].first; c >= 0; c = all[c].next)
            p->height[i] += p->height[c] + GAP;
    }
    p->y[0] = MARGIN - ROW; /* <system> is no box */
    for (int i = 0; i < p->showing.tree->count; i++) {
        int y = p->y[i] + ROW;
        for (int c = all[i].first; c >= 0; c = all[c].next) {
            p->y[c] = y;
            y += p->height[c] + GAP;
        }
    }
}

static int depth_of(const struct topo_tree *tree, int i)
{
    int depth = -1; /* <system> is no box */
    for (int p = tree->elements[i].parent; p >= 0; p = tree->elements[p].parent)
        depth++;
    return depth;
}

static const char *colour_of(const struct topo_tree *tree, int i)
{
    static const char *const colours[TOPO_KINDS] = {[TOPO_CPU] = "#eef2f7",
                                                    [TOPO_GPU] = "#cde8c4",
                                                    [TOPO_NIC] = "#fbe3c0",
                                                    [TOPO_NET] = "#fbe3c0"};
    const struct topo_element *e = &tree->elements[i];
    const char *class = topo_value(e, "class");
    bool known;
    if (e->kind != TOPO_PCI)
        return colours[e->kind] ? colours[e->kind] : "#fff";
    switch (class ? topo_class_of(class, &known) : TOPO_IS_SWITCH) {
    case TOPO_IS_GPU:
        return "#cde8c4";
    case TOPO_IS_NIC:
        return "#fbe3c0";
    default:
        return "#fff";
    }
}

static int draw_tree(const struct picture *p)
{
    const struct topo_tree *tree = p->showing.tree;
    for (int i = 0; i < tree->count; i++) {
        xc_autotext struct xc_text text = XC_TEXT_INIT;
        struct topo_showing one = {.tree = tree, .node = p->showing.node, .out = &text};
        int x = MARGIN + depth_of(tree, i) * INDENT;
        if (tree->elements[i].kind == TOPO_SYSTEM)
            continue;
        int width = WIDTH - 2 * depth_of(tree, i) * INDENT;
        width = width > INDENT ? width : INDENT;
        topo_describe(&one, i);
        box(p, x, p->y[i], width, p->height[i], colour_of(tree, i));
        label(p, x + 6, p->y[i] + 16, text.data ? text.data : "");
    }
    return p->y[0] + p->height[0] + ROW;
}

static const char *path_colour(enum xc_path path)
{
    static const char *const colours[] = {"#7fc97f", "#bfe5bf", "#fdd28a", "#fdd28a", "#f4a6a6"};
    return colours[path];
}

/* Returns where it ends; *width: what it needs. */
static int draw_distances(const struct picture *p, int y, int *width)
{
    int gpus[TOPO_ELEMENTS], nics[TOPO_ELEMENTS];
    size_t ngpus = topo_devices(&p->showing, TOPO_IS_GPU, gpus);
    size_t nnics = topo_devices(&p->showing, TOPO_IS_NIC, nics);
    char name[TOPO_SHOWN];
    if (!ngpus || !nnics)
        return y;
    *width = HEADING + (int)nnics * CELL;
    for (size_t n = 0; n < nnics; n++)
        label(p, MARGIN + HEADING + (int)n * CELL, y, topo_device(&p->showing, nics[n], name));
    y += 6;
    for (size_t g = 0; g < ngpus; g++, y += ROW) {
        label(p, MARGIN, y + 17, topo_device(&p->showing, gpus[g], name));
        for (size_t n = 0; n < nnics; n++) {
            enum xc_path path = topo_path(p->showing.tree, gpus[g], nics[n]);
            int x = MARGIN + HEADING + (int)n * CELL;
            box(p, x, y, CELL - GAP, ROW - GAP, path_colour(path));
            label(p, x + 8, y + 16, xc_path_name(path));
        }
    }
    return y;
}

int xc_topo_svg(const char *bytes, size_t length, const struct xc_node *node, struct xc_text *out,
                struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    xc_autotext struct xc_text body = XC_TEXT_INIT;
    if (topo_need(bytes, length, &tree, error) < 0)
        return -1;
    struct picture p = {.showing = {.tree = &tree, .node = node, .out = &body}};
    int width = 0;
    lay_out(&p);
    int height = draw_distances(&p, draw_tree(&p), &width) + MARGIN;
    width = (width > WIDTH ? width : WIDTH) + 2 * MARGIN;
    xc_text_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                 width, height);
    out->failed |= body.failed;
    xc_text_add(out, body.data ? body.data : "");
    xc_text_add(out, "</svg>\n");
    return out->failed ? xc_error_nomem(error) : 0;
}
