/* Where does a PCI function hang, and near which CPUs? */
#include <string.h>

#include "reader.h"

/* ---- one function ---------------------------------------------------------------------------------- */

static uint32_t read_hex(struct node_reader *reader, const char *path, const char *file, long max)
{
    long value;
    return xc_root_read_long(reader->root, &value, "%s/%s", path, file) && value >= 0 &&
                   value <= max
               ? (uint32_t)value
               : 0;
}

static uint32_t read_speed(struct node_reader *reader, const char *path, const char *file)
{
    xc_autofree char *text = xc_root_read_line(reader->root, "%s/%s", path, file);
    return text ? node_thousandths(text) : 0;
}

/* More than 32 lanes (the kernel says 63 or 255) is a function without a link. */
static uint16_t read_width(struct node_reader *reader, const char *path, const char *file)
{
    return (uint16_t)read_hex(reader, path, file, 32);
}

/* The memory node with CPUs that is nearest to one that has none, by the SLIT. */
static int32_t nearest_with_cpus(const struct node_reader *reader, size_t from)
{
    int32_t best = XC_NONE;
    uint16_t distance = 255;
    for (size_t i = 0; i < reader->nnumas; i++) {
        uint16_t d = reader->distance[from * reader->nnumas + i];
        if (reader->numas[i].ncpus > 0 && d < distance) {
            best = reader->numas[i].os;
            distance = d;
        }
    }
    return best;
}

/* The one memory node on which all CPUs of a list are, or XC_NONE. */
static int32_t node_of_cpus(const struct node_reader *reader, const struct xc_set *cpus)
{
    int32_t numa = XC_NONE;
    for (ssize_t os = xc_set_next(cpus, 0); os >= 0; os = xc_set_next(cpus, (size_t)os + 1)) {
        int32_t index = node_cpu_index(reader, (size_t)os);
        if (index < 0 || reader->cpus[index].numa == XC_NONE)
            continue;
        if (numa != XC_NONE && numa != reader->cpus[index].numa)
            return XC_NONE;
        numa = reader->cpus[index].numa;
    }
    return numa;
}

int32_t node_pci_numa(struct node_reader *reader, const char *path)
{
    long raw;
    if (!xc_root_read_long(reader->root, &raw, "%s/numa_node", path) || raw < 0)
        return XC_NONE;
    for (size_t i = 0; i < reader->nnumas; i++) {
        if (reader->numas[i].os != raw)
            continue;
        if (reader->numas[i].ncpus > 0)
            return reader->numas[i].os;
        xc_autoset struct xc_set local = XC_SET_EMPTY;
        int32_t numa = XC_NONE;
        if (xc_root_read_set(reader->root, &local, "%s/local_cpulist", path))
            numa = node_of_cpus(reader, &local);
        return numa != XC_NONE ? numa : nearest_with_cpus(reader, i);
    }
    return XC_NONE;
}

/* ---- the way to it --------------------------------------------------------------------------------- */

static int32_t find(const struct node_reader *reader, const struct xc_bdf *bdf)
{
    for (size_t i = reader->npci; i-- > 0;)
        if (xc_bdf_compare(&reader->pci[i].bdf, bdf) == 0)
            return (int32_t)i;
    return XC_NONE;
}

static int add_function(struct node_reader *reader, const char *path, const struct xc_bdf *bdf,
                        int32_t parent, uint32_t root, int32_t *index)
{
    *index = find(reader, bdf);
    if (*index >= 0)
        return 0;
    if (reader->npci >= XC_NODE_PCI_MAX)
        return xc_error_set(reader->error, XC_EINPUT, path, "more than %d PCI devices",
                            XC_NODE_PCI_MAX);
    struct xc_pci *array =
        node_grow(reader, reader->pci, reader->npci, &reader->pci_size, sizeof *array);
    if (!array)
        return -1;
    reader->pci = array;
    *index = (int32_t)reader->npci;
    array[reader->npci++] = (struct xc_pci){
        .bdf = *bdf,
        .parent = parent,
        .root = root,
        .numa = node_pci_numa(reader, path),
        .class = read_hex(reader, path, "class", 0xffffff),
        .vendor = (uint16_t)read_hex(reader, path, "vendor", 0xffff),
        .device = (uint16_t)read_hex(reader, path, "device", 0xffff),
        .width = read_width(reader, path, "current_link_width"),
        .max_width = read_width(reader, path, "max_link_width"),
        .speed_mts = read_speed(reader, path, "current_link_speed"),
        .max_speed_mts = read_speed(reader, path, "max_link_speed"),
    };
    return 0;
}

/* "pciDDDD:BB" as domain << 8 | bus. */
static bool root_complex(const char *name, uint32_t *root)
{
    char text[XC_BDF_TEXT];
    struct xc_bdf bdf;
    if (!xc_starts(name, "pci") ||
        snprintf(text, sizeof text, "%s:00.0", name + 3) >= XC_BDF_TEXT ||
        !xc_bdf_parse(text, &bdf))
        return false;
    *root = bdf.domain << 8 | bdf.bus;
    return true;
}

int node_pci_add(struct node_reader *reader, const char *path, int32_t *index)
{
    xc_autofree char *copy = strdup(path);
    if (!copy)
        return xc_error_nomem(reader->error);
    int32_t parent = XC_NONE;
    uint32_t root = 0;
    unsigned depth = 0;
    bool inside =
        false; /* below a root complex; a virtual one may be nested in another bus's path */
    *index = XC_NONE;
    for (char *start = copy; *start;) {
        while (*start == '/')
            start++;
        char *end = start + strcspn(start, "/"), kept = *end;
        struct xc_bdf bdf;
        *end = '\0';
        if (root_complex(start, &root)) {
            inside = true;
            parent = XC_NONE;
        } else if (inside && xc_bdf_parse(start, &bdf)) {
            if (++depth > XC_NODE_DEPTH_MAX)
                return xc_error_set(reader->error, XC_EINPUT, path, "more than %d bridges",
                                    XC_NODE_DEPTH_MAX);
            if (add_function(reader, copy, &bdf, parent, root, index) < 0)
                return -1;
            parent = *index;
        }
        *end = kept;
        start = end;
    }
    return 0;
}

/* ---- order ------------------------------------------------------------------------------------------ */

struct place {
    struct xc_bdf bdf;
    size_t was;
};

static int by_bdf(const void *a, const void *b)
{
    return xc_bdf_compare(&((const struct place *)a)->bdf, &((const struct place *)b)->bdf);
}

static int32_t moved(const int32_t *now, int32_t index)
{
    return index < 0 ? XC_NONE : now[index];
}

int node_pci_sort(struct node_reader *reader)
{
    size_t count = reader->npci;
    if (count == 0)
        return 0;
    xc_autofree struct place *places = calloc(count, sizeof *places);
    xc_autofree int32_t *now = calloc(count, sizeof *now);
    struct xc_pci *sorted = calloc(count, sizeof *sorted);
    if (!places || !now || !sorted) {
        free(sorted);
        return xc_error_nomem(reader->error);
    }
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place){.bdf = reader->pci[i].bdf, .was = i};
    qsort(places, count, sizeof *places, by_bdf);
    for (size_t i = 0; i < count; i++)
        now[places[i].was] = (int32_t)i;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = reader->pci[places[i].was];
        sorted[i].parent = moved(now, sorted[i].parent);
    }
    for (size_t i = 0; i < reader->ngpus; i++)
        reader->gpus[i].pci = moved(now, reader->gpus[i].pci);
    for (size_t i = 0; i < reader->nnics; i++)
        reader->nics[i].pci = moved(now, reader->nics[i].pci);
    free(reader->pci);
    reader->pci = sorted;
    return 0;
}
