/* What will NCCL see? The tree that it builds from the file, with the bandwidth of each link as it
 * counts it, and how far each GPU is from each NIC. */
#include <string.h>

#include "topo.h"

static bool same_bdf(const struct xc_node *node, int pci, const char *busid)
{
    struct xc_bdf bdf;
    return pci >= 0 && xc_bdf_parse(busid, &bdf) && xc_bdf_compare(&node->pci[pci].bdf, &bdf) == 0;
}

static enum topo_class class_of(const struct topo_showing *s, int i)
{
    const struct topo_element *e = &s->tree->elements[i];
    const char *class = topo_value(e, "class");
    bool known;
    for (int c = e->first; c >= 0; c = s->tree->elements[c].next)
        if (s->tree->elements[c].kind == TOPO_NIC)
            return TOPO_IS_NIC;
        else if (s->tree->elements[c].kind == TOPO_GPU)
            return TOPO_IS_GPU;
    return class ? topo_class_of(class, &known) : TOPO_IS_SWITCH;
}

/* "gpu0", "mlx5_0", else the bus id. */
const char *topo_device(const struct topo_showing *s, int i, char buffer[TOPO_SHOWN])
{
    const char *busid = topo_value(&s->tree->elements[i], "busid");
    busid = busid ? busid : "?";
    snprintf(buffer, TOPO_SHOWN, "%.60s", busid);
    for (size_t g = 0; s->node && g < s->node->ngpus; g++)
        if (same_bdf(s->node, s->node->gpus[g].pci, busid))
            snprintf(buffer, TOPO_SHOWN, "gpu%zu", g);
    for (size_t n = s->node ? s->node->nnics : 0; n-- > 0;)
        if (same_bdf(s->node, s->node->nics[n].pci, busid))
            snprintf(buffer, TOPO_SHOWN, "%s",
                     s->node->nics[n].rdma[0] ? s->node->nics[n].rdma : s->node->nics[n].netdev);
    return buffer;
}

/* ---- the tree ------------------------------------------------------------------------------------ */

static void show_link(const struct topo_showing *s, const struct topo_element *e)
{
    const char *speed = topo_value(e, "link_speed"), *width = topo_value(e, "link_width");
    bool known;
    if (!speed) {
        xc_text_add(s->out, "  link as NCCL finds it");
        return;
    }
    long lanes = width ? strtol(width, NULL, 0) : 0;
    unsigned units = topo_speed(speed, &known);
    xc_text_addf(s->out, "  %.1f GB/s%s",
                 topo_gbytes(units, lanes > 0 && lanes <= 64 ? (unsigned)lanes : 16),
                 known ? "" : " (Gen3: its link_speed is not in NCCL's table)");
}

static void show_pci(const struct topo_showing *s, int i)
{
    static const char *const words[] = {"switch", "NVSwitch", "CPU", "GPU", "NIC"};
    const struct topo_element *e = &s->tree->elements[i];
    char name[TOPO_SHOWN];
    const char *busid = topo_value(e, "busid");
    busid = busid ? busid : "?";
    xc_text_addf(s->out, "%s %.60s", words[class_of(s, i)], busid);
    topo_device(s, i, name);
    if (!xc_streq(name, busid))
        xc_text_addf(s->out, " %s", name);
    show_link(s, e);
}

void topo_describe(const struct topo_showing *s, int i)
{
    const struct topo_element *e = &s->tree->elements[i];
    if (e->kind == TOPO_CPU) {
        const char *numaid = topo_value(e, "numaid"), *affinity = topo_value(e, "affinity");
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        xc_text_addf(s->out, "NUMA node %.20s", numaid ? numaid : "?");
        if (affinity && xc_set_parse_mask(&cpus, affinity, "affinity", NULL) == 0) {
            xc_text_add(s->out, "  CPUs ");
            xc_text_add_set(s->out, &cpus);
        }
    } else if (e->kind == TOPO_PCI) {
        show_pci(s, i);
    } else if (e->kind == TOPO_NET) {
        const char *name = topo_value(e, "name");
        xc_text_addf(s->out, "net %.60s", name ? name : "?");
    } else {
        xc_text_add(s->out, topo_name(e->kind));
    }
}

static void show_tree(const struct topo_showing *s)
{
    unsigned depth = 0;
    const struct topo_element *all = s->tree->elements;
    for (int i = 0; i >= 0 && i < s->tree->count;) {
        if (all[i].kind != TOPO_SYSTEM) {
            xc_text_addf(s->out, "%*s", ((int)depth - 1) * 2, "");
            topo_describe(s, i);
            xc_text_add(s->out, "\n");
        }
        if (all[i].first >= 0) {
            depth++;
            i = all[i].first;
            continue;
        }
        while (all[i].next < 0) {
            i = all[i].parent;
            if (i < 0)
                return;
            depth--;
        }
        i = all[i].next;
    }
}

/* ---- distances ------------------------------------------------------------------------------------ */

/* As NCCL counts: through one switch, through several, through the CPU, between CPUs. */
enum xc_path topo_path(const struct topo_tree *tree, int a, int b)
{
    const struct topo_element *all = tree->elements;
    int up = 0;
    for (int i = all[a].parent; i >= 0; i = all[i].parent, up++) {
        int down = 0;
        for (int j = all[b].parent; j >= 0; j = all[j].parent, down++) {
            if (i != j)
                continue;
            if (all[i].kind == TOPO_PCI)
                return up + down == 0 ? XC_PATH_PIX : XC_PATH_PXB;
            return all[i].kind == TOPO_CPU ? XC_PATH_PHB : XC_PATH_SYS;
        }
    }
    return XC_PATH_SYS;
}

size_t topo_devices(const struct topo_showing *s, enum topo_class class, int out[TOPO_ELEMENTS])
{
    size_t count = 0;
    for (int i = 0; i < s->tree->count; i++)
        if (s->tree->elements[i].kind == TOPO_PCI && class_of(s, i) == class)
            out[count++] = i;
    return count;
}

static void show_distances(const struct topo_showing *s)
{
    int gpus[TOPO_ELEMENTS], nics[TOPO_ELEMENTS];
    size_t ngpus = topo_devices(s, TOPO_IS_GPU, gpus), nnics = topo_devices(s, TOPO_IS_NIC, nics);
    char name[TOPO_SHOWN];
    int width = 0;
    for (size_t n = 0; n < nnics; n++) {
        int length = (int)strlen(topo_device(s, nics[n], name));
        width = length > width ? length : width;
    }
    if (!ngpus || !nnics)
        return;
    xc_text_addf(s->out, "\n%-14s", "");
    for (size_t n = 0; n < nnics; n++)
        xc_text_addf(s->out, n + 1 < nnics ? "%-*s  " : "%.*s", n + 1 < nnics ? width : TOPO_SHOWN,
                     topo_device(s, nics[n], name));
    xc_text_add(s->out, "\n");
    for (size_t g = 0; g < ngpus; g++) {
        xc_text_addf(s->out, "%-14s", topo_device(s, gpus[g], name));
        for (size_t n = 0; n < nnics; n++)
            xc_text_addf(s->out, n + 1 < nnics ? "%-*s  " : "%.*s",
                         n + 1 < nnics ? width : TOPO_SHOWN,
                         xc_path_name(topo_path(s->tree, gpus[g], nics[n])));
        xc_text_add(s->out, "\n");
    }
}

static bool in_file(const struct topo_showing *s, int pci)
{
    for (int i = 0; i < s->tree->count; i++) {
        const char *busid = topo_value(&s->tree->elements[i], "busid");
        if (s->tree->elements[i].kind == TOPO_PCI && busid && same_bdf(s->node, pci, busid))
            return true;
    }
    return false;
}

static void show_missing(const struct topo_showing *s)
{
    char bdf[XC_BDF_TEXT];
    for (size_t g = 0; s->node && g < s->node->ngpus; g++)
        if (!in_file(s, s->node->gpus[g].pci))
            xc_text_addf(s->out,
                         "gpu%zu %s is not in the file: NCCL places it as the kernel does\n", g,
                         xc_bdf_text(&s->node->pci[s->node->gpus[g].pci].bdf, bdf));
}

int xc_topo_show(const char *bytes, size_t length, const struct xc_node *node, struct xc_text *out,
                 struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    if (topo_need(bytes, length, &tree, error) < 0)
        return -1;
    struct topo_showing s = {.tree = &tree, .node = node, .out = out};
    show_tree(&s);
    show_distances(&s);
    show_missing(&s);
    return out->failed ? xc_error_nomem(error) : 0;
}
