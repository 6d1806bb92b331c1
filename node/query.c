/* What does a machine answer? Questions to a struct xc_node that is already there; libc alone. */
#include <ctype.h>
#include <string.h>

#include "image.h"

/* ---- PCI addresses ------------------------------------------------------------------------------- */

/* A hexadecimal number of min to max digits; the end of it, or NULL. */
static const char *take_hex(const char *text, size_t min, size_t max, uint32_t *out)
{
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < max && isxdigit((unsigned char)text[digits]); digits++) {
        int c = tolower((unsigned char)text[digits]);
        value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (digits < min)
        return NULL;
    *out = value;
    return text + digits;
}

bool xc_bdf_parse(const char *text, struct xc_bdf *out)
{
    uint32_t domain, bus, device, function;
    const char *at = take_hex(text, 4, 8, &domain);
    if (!at || *at++ != ':' || !(at = take_hex(at, 2, 2, &bus)) || *at++ != ':' ||
        !(at = take_hex(at, 2, 2, &device)) || *at++ != '.' ||
        !(at = take_hex(at, 1, 1, &function)) || *at || device > 31 || function > 7)
        return false;
    *out = (struct xc_bdf){.domain = domain,
                           .bus = (uint8_t)bus,
                           .device = (uint8_t)device,
                           .function = (uint8_t)function};
    return true;
}

const char *xc_bdf_text(const struct xc_bdf *bdf, char text[XC_BDF_TEXT])
{
    snprintf(text, XC_BDF_TEXT, "%04x:%02x:%02x.%x", bdf->domain, bdf->bus, bdf->device,
             bdf->function);
    return text;
}

static int compare(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

int xc_bdf_compare(const struct xc_bdf *a, const struct xc_bdf *b)
{
    int order = compare(a->domain, b->domain);
    if (order == 0)
        order = compare(a->bus, b->bus);
    if (order == 0)
        order = compare(a->device, b->device);
    return order ? order : compare(a->function, b->function);
}

/* ---- CPUs and memory nodes ------------------------------------------------------------------------ */

/* bsearch over records that start with their OS number. */
static int by_os(const void *key, const void *record)
{
    int32_t wanted = *(const int32_t *)key, os;
    memcpy(&os, record, sizeof os);
    return (wanted > os) - (wanted < os);
}

int xc_node_cpu_index(const struct xc_node *node, int os)
{
    if (node->ncpus == 0)
        return XC_NONE;
    const struct xc_cpu *cpu = bsearch(&(int32_t){os}, node->cpus, node->ncpus, sizeof *cpu, by_os);
    return cpu ? (int)(cpu - node->cpus) : XC_NONE;
}

int xc_node_numa_index(const struct xc_node *node, int os)
{
    if (node->nnumas == 0)
        return XC_NONE;
    const struct xc_numa *numa =
        bsearch(&(int32_t){os}, node->numas, node->nnumas, sizeof *numa, by_os);
    return numa ? (int)(numa - node->numas) : XC_NONE;
}

int xc_node_max_cpu(const struct xc_node *node)
{
    return node->ncpus ? node->cpus[node->ncpus - 1].os : XC_NONE;
}

void xc_node_flagged(const struct xc_node *node, uint32_t flag, struct xc_set *out)
{
    xc_set_clear(out);
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].flags & flag)
            xc_set_add(out, (size_t)node->cpus[i].os);
}

void xc_node_online(const struct xc_node *node, struct xc_set *out)
{
    xc_node_flagged(node, XC_CPU_ONLINE, out);
}

void xc_node_numa_cpus(const struct xc_node *node, int numa_os, struct xc_set *out)
{
    xc_set_clear(out);
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].numa == numa_os && numa_os != XC_NONE)
            xc_set_add(out, (size_t)node->cpus[i].os);
}

void xc_node_cpu_numas(const struct xc_node *node, struct xc_set *out)
{
    xc_set_clear(out);
    for (size_t i = 0; i < node->nnumas; i++)
        if (node->numas[i].ncpus > 0)
            xc_set_add(out, (size_t)node->numas[i].os);
}

unsigned xc_node_count_cores(const struct xc_node *node, const struct xc_set *set)
{
    xc_autofree unsigned char *seen = calloc(node->ncores + 1, 1);
    unsigned count = 0;
    for (size_t i = 0; seen && i < node->ncpus; i++) {
        int core = node->cpus[i].core;
        if (core < 0 || (size_t)core >= node->ncores || seen[core] ||
            !xc_set_has(set, (size_t)node->cpus[i].os))
            continue;
        seen[core] = 1;
        count++;
    }
    return count;
}

void xc_node_whole_cores(const struct xc_node *node, struct xc_set *set)
{
    xc_autoset struct xc_set cores = XC_SET_EMPTY;
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].core >= 0 && xc_set_has(set, (size_t)node->cpus[i].os))
            xc_set_add(&cores, (size_t)node->cpus[i].core);
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].core >= 0 && xc_set_has(&cores, (size_t)node->cpus[i].core))
            xc_set_add(set, (size_t)node->cpus[i].os);
    set->failed |= cores.failed;
}

unsigned xc_node_distance(const struct xc_node *node, int from, int to)
{
    int row = xc_node_numa_index(node, from), column = xc_node_numa_index(node, to);
    if (row < 0 || column < 0)
        return 255;
    if (row == column)
        return 10;
    return node->distance[(size_t)row * node->nnumas + (size_t)column];
}

/* ---- PCI distance ---------------------------------------------------------------------------------- */

#define DEPTH_MAX XC_NODE_DEPTH_MAX

/* Bridges above index, nearest first; how many. */
static size_t ancestors(const struct xc_node *node, int index, int above[DEPTH_MAX])
{
    size_t count = 0;
    for (int up = node->pci[index].parent; up >= 0 && count < DEPTH_MAX; up = node->pci[up].parent)
        above[count++] = up;
    return count;
}

static bool same_device(const struct xc_bdf *a, const struct xc_bdf *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device;
}

/* Within one hierarchy. A switch shows as two bridges, its upstream and a downstream port; so one
 * switch or less lies between when both reach the common bridge in two steps. */
static bool common_bridge(const struct xc_node *node, int a, int b, enum xc_path *path)
{
    int above_a[DEPTH_MAX], above_b[DEPTH_MAX];
    size_t count_a = ancestors(node, a, above_a), count_b = ancestors(node, b, above_b);
    for (size_t i = 0; i < count_a; i++)
        for (size_t j = 0; j < count_b; j++)
            if (above_a[i] == above_b[j]) {
                *path = i < 2 && j < 2 ? XC_PATH_PIX : XC_PATH_PXB;
                return true;
            }
    return false;
}

enum xc_path xc_node_path(const struct xc_node *node, int pci_a, int pci_b)
{
    if (pci_a < 0 || pci_b < 0 || (size_t)pci_a >= node->npci || (size_t)pci_b >= node->npci)
        return XC_PATH_SYS;
    const struct xc_pci *a = &node->pci[pci_a], *b = &node->pci[pci_b];
    enum xc_path path;
    if (pci_a == pci_b || same_device(&a->bdf, &b->bdf))
        return XC_PATH_PIX;
    if (common_bridge(node, pci_a, pci_b, &path))
        return path;
    if (a->root == b->root)
        return XC_PATH_PHB;
    return a->numa != XC_NONE && a->numa == b->numa ? XC_PATH_NODE : XC_PATH_SYS;
}

/* ---- names ----------------------------------------------------------------------------------------- */

const char *xc_path_name(enum xc_path path)
{
    static const char *const names[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};
    return (size_t)path < XC_COUNT(names) ? names[path] : "?";
}

const char *xc_environment_name(enum xc_environment environment)
{
    static const char *const names[] = {"bare", "vm", "pod"};
    return (size_t)environment < XC_COUNT(names) ? names[environment] : "?";
}
