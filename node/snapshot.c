/* How does a machine's description get from the program that reads it to the steps that use it?
 *
 * As a file that is the arrays themselves behind one header. It is trusted for its owner, and all the
 * same nothing in it is used before it was checked: a torn or stale file must not crash slurmstepd. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"

enum part { CPUS, NUMAS, DISTANCE, PCI, GPUS, NICS, PARTS };

static const char magic[8] = "XCNODE\r\n";
#define VERSION    3u
#define ORDER_MARK 0x01020304u /* reads differently on the other byte order */
#define ALIGN      64u

struct header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t size; /* of all of it */
    char boot_id[40], product[64], vendor[64], arch[16], cpu_vendor[16], features[1024];
    uint32_t environment, cpu_family, cpu_model, pad;
    int64_t made_at, dynamic_at;
    uint64_t ncores, npackages, nl3;
    struct {
        uint64_t count, offset;
        uint64_t record; /* its size: a build with other records is another version */
    } parts[PARTS];
};

static const size_t record_size[PARTS] = {
    sizeof(struct xc_cpu), sizeof(struct xc_numa), sizeof(uint16_t),
    sizeof(struct xc_pci), sizeof(struct xc_gpu),  sizeof(struct xc_nic),
};
static const size_t count_max[PARTS] = {
    XC_NODE_CPUS_MAX, XC_NODE_NUMAS_MAX, (size_t)XC_NODE_NUMAS_MAX *XC_NODE_NUMAS_MAX,
    XC_NODE_PCI_MAX,  XC_NODE_GPUS_MAX,  XC_NODE_NICS_MAX,
};

static size_t align(size_t offset)
{
    return (offset + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void fill_header(const struct xc_node *node, struct header *header)
{
    memset(header, 0, sizeof *header);
    memcpy(header->magic, magic, sizeof magic);
    header->version = VERSION;
    header->byte_order = ORDER_MARK;
    memcpy(header->boot_id, node->boot_id, sizeof header->boot_id);
    memcpy(header->product, node->product, sizeof header->product);
    memcpy(header->vendor, node->vendor, sizeof header->vendor);
    memcpy(header->arch, node->arch, sizeof header->arch);
    memcpy(header->cpu_vendor, node->cpu_vendor, sizeof header->cpu_vendor);
    header->cpu_family = node->cpu_family;
    header->cpu_model = node->cpu_model;
    memcpy(header->features, node->features, sizeof header->features);
    header->environment = (uint32_t)node->environment;
    header->made_at = node->made_at;
    header->dynamic_at = node->dynamic_at;
    header->ncores = node->ncores;
    header->npackages = node->npackages;
    header->nl3 = node->nl3;
}

int xc_node_image(const struct xc_node *node, void **bytes, size_t *length, struct xc_error *error)
{
    const void *const arrays[PARTS] = {node->cpus, node->numas, node->distance,
                                       node->pci,  node->gpus,  node->nics};
    const size_t counts[PARTS] = {node->ncpus, node->nnumas, node->nnumas * node->nnumas,
                                  node->npci,  node->ngpus,  node->nnics};
    struct header header;
    fill_header(node, &header);
    size_t end = align(sizeof header);
    for (size_t part = 0; part < PARTS; part++) {
        header.parts[part].count = counts[part];
        header.parts[part].offset = end;
        header.parts[part].record = record_size[part];
        end = align(end + counts[part] * record_size[part]);
    }
    header.size = end;
    char *block = calloc(1, end);
    if (!block)
        return xc_error_nomem(error);
    memcpy(block, &header, sizeof header);
    for (size_t part = 0; part < PARTS; part++)
        if (counts[part])
            memcpy(block + header.parts[part].offset, arrays[part],
                   counts[part] * record_size[part]);
    *bytes = block;
    *length = end;
    return 0;
}

int xc_snapshot_write(const struct xc_node *node, const char *path, struct xc_error *error)
{
    xc_autofree void *bytes = NULL;
    size_t length;
    if (xc_node_image(node, &bytes, &length, error) < 0)
        return -1;
    return xc_write_atomic(path, bytes, length, 0644, error);
}

/* ---- checking ------------------------------------------------------------------------------------- */

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

/* What is wrong with the header, or NULL. */
static const char *check_header(const struct header *header, size_t length)
{
    if (memcmp(header->magic, magic, sizeof magic) != 0)
        return "it is no snapshot of a node";
    if (header->byte_order != ORDER_MARK)
        return "it was written on a machine with another byte order";
    if (header->version != VERSION)
        return "it was written by another version";
    if (header->size != length)
        return "it is cut short or has something behind it";
    if (!terminated(header->boot_id, sizeof header->boot_id) ||
        !terminated(header->product, sizeof header->product) ||
        !terminated(header->vendor, sizeof header->vendor) ||
        !terminated(header->arch, sizeof header->arch) ||
        !terminated(header->cpu_vendor, sizeof header->cpu_vendor) ||
        !terminated(header->features, sizeof header->features))
        return "a text in it has no end";
    if (header->environment > XC_POD)
        return "its environment is unknown";
    for (size_t part = 0; part < PARTS; part++) {
        uint64_t count = header->parts[part].count, offset = header->parts[part].offset;
        if (header->parts[part].record != record_size[part])
            return "it was written by another version (its records differ)";
        if (count > count_max[part] || offset % ALIGN || offset < sizeof *header ||
            offset > length || count * record_size[part] > length - offset)
            return "an array lies outside of it";
    }
    if (header->parts[DISTANCE].count != header->parts[NUMAS].count * header->parts[NUMAS].count)
        return "its distances do not fit its memory nodes";
    if (header->ncores > XC_NODE_CPUS_MAX || header->npackages > XC_NODE_CPUS_MAX ||
        header->nl3 > XC_NODE_CPUS_MAX)
        return "it counts too many cores";
    return NULL;
}

static bool index_ok(int32_t index, size_t count)
{
    return index == XC_NONE || (index >= 0 && (size_t)index < count);
}

static bool numa_ok(const struct xc_node *node, int32_t os)
{
    return os == XC_NONE || xc_node_numa_index(node, os) >= 0;
}

static const char *check_numas(const struct xc_node *node)
{
    for (size_t i = 0; i < node->nnumas; i++)
        if (node->numas[i].os < 0 || node->numas[i].os >= XC_SET_LIMIT ||
            (i > 0 && node->numas[i].os <= node->numas[i - 1].os) ||
            node->numas[i].ncpus > node->ncpus)
            return "a memory node's number is wrong";
    return NULL;
}

static const char *check_cpus(const struct xc_node *node)
{
    for (size_t i = 0; i < node->ncpus; i++) {
        const struct xc_cpu *cpu = &node->cpus[i];
        if (cpu->os < 0 || cpu->os >= XC_SET_LIMIT || (i > 0 && cpu->os <= cpu[-1].os))
            return "a CPU's number is wrong";
        if (!index_ok(cpu->core, node->ncores) || !index_ok(cpu->package, node->npackages) ||
            !index_ok(cpu->l3, node->nl3) || !numa_ok(node, cpu->numa) || cpu->thread < 0 ||
            (size_t)cpu->thread >= node->ncpus)
            return "a CPU's core, package, L3 or memory node is not there";
        if ((cpu->flags & XC_CPU_ONLINE) && (cpu->core < 0 || cpu->package < 0))
            return "a CPU is online without a core";
    }
    return NULL;
}

static const char *check_pci(const struct xc_node *node)
{
    for (size_t i = 0; i < node->npci; i++) {
        const struct xc_pci *pci = &node->pci[i];
        if (i > 0 && xc_bdf_compare(&pci[-1].bdf, &pci->bdf) >= 0)
            return "its PCI devices are out of order";
        if (!index_ok(pci->parent, node->npci) || !numa_ok(node, pci->numa))
            return "a PCI device's bridge or memory node is not there";
    }
    for (size_t i = 0; i < node->npci; i++) {
        unsigned depth = 0;
        for (int32_t up = node->pci[i].parent; up >= 0; up = node->pci[up].parent)
            if (++depth > XC_NODE_DEPTH_MAX)
                return "its PCI bridges run in a circle";
    }
    return NULL;
}

static const char *check_devices(const struct xc_node *node)
{
    for (size_t i = 0; i < node->ngpus; i++) {
        const struct xc_gpu *gpu = &node->gpus[i];
        if (gpu->pci < 0 || (size_t)gpu->pci >= node->npci || gpu->minor < XC_NONE ||
            !numa_ok(node, gpu->numa) || !terminated(gpu->uuid, sizeof gpu->uuid))
            return "a GPU's PCI device, minor, memory node or UUID is wrong";
    }
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (!index_ok(nic->pci, node->npci) || !numa_ok(node, nic->numa) || nic->port < 0 ||
            nic->state > XC_PORT_ACTIVE || nic->link > XC_NIC_ETHERNET ||
            !terminated(nic->rdma, sizeof nic->rdma) ||
            !terminated(nic->netdev, sizeof nic->netdev))
            return "a NIC's PCI device, memory node, port or name is wrong";
    }
    return NULL;
}

static void fill_node(struct xc_node *node, const struct header *header, const char *block)
{
    memcpy(node->boot_id, header->boot_id, sizeof node->boot_id);
    memcpy(node->product, header->product, sizeof node->product);
    memcpy(node->vendor, header->vendor, sizeof node->vendor);
    memcpy(node->arch, header->arch, sizeof node->arch);
    memcpy(node->cpu_vendor, header->cpu_vendor, sizeof node->cpu_vendor);
    node->cpu_family = header->cpu_family;
    node->cpu_model = header->cpu_model;
    memcpy(node->features, header->features, sizeof node->features);
    node->environment = (enum xc_environment)header->environment;
    node->made_at = header->made_at;
    node->dynamic_at = header->dynamic_at;
    node->ncores = header->ncores;
    node->npackages = header->npackages;
    node->nl3 = header->nl3;
    node->ncpus = header->parts[CPUS].count;
    node->nnumas = header->parts[NUMAS].count;
    node->npci = header->parts[PCI].count;
    node->ngpus = header->parts[GPUS].count;
    node->nnics = header->parts[NICS].count;
    node->cpus = (const void *)(block + header->parts[CPUS].offset);
    node->numas = (const void *)(block + header->parts[NUMAS].offset);
    node->distance = (const void *)(block + header->parts[DISTANCE].offset);
    node->pci = (const void *)(block + header->parts[PCI].offset);
    node->gpus = (const void *)(block + header->parts[GPUS].offset);
    node->nics = (const void *)(block + header->parts[NICS].offset);
}

int xc_node_adopt(void *bytes, size_t length, bool mapped, const char *where, struct xc_node **out,
                  struct xc_error *error)
{
    struct header header;
    if (length < sizeof header)
        return xc_error_set(error, XC_EINPUT, where, "it is too short for a snapshot");
    memcpy(&header, bytes, sizeof header);
    const char *wrong = check_header(&header, length);
    if (wrong)
        return xc_error_set(error, XC_EINPUT, where, "%s", wrong);
    struct xc_node *node = calloc(1, sizeof *node);
    if (!node)
        return xc_error_nomem(error);
    fill_node(node, &header, bytes);
    wrong = check_numas(node);
    if (!wrong)
        wrong = check_cpus(node);
    if (!wrong)
        wrong = check_pci(node);
    if (!wrong)
        wrong = check_devices(node);
    if (wrong) {
        free(node);
        return xc_error_set(error, XC_EINPUT, where, "%s", wrong);
    }
    node->storage = bytes;
    node->mapped = mapped ? length : 0;
    *out = node;
    return 0;
}

void xc_node_free(struct xc_node *node)
{
    if (!node)
        return;
    if (node->mapped)
        munmap(node->storage, node->mapped);
    else
        free(node->storage);
    free(node);
}

/* ---- mapping -------------------------------------------------------------------------------------- */

int xc_snapshot_map(const char *path, const char *boot_id, struct xc_node **out,
                    struct xc_error *error)
{
    xc_autoclose int fd = xc_open_trusted(path, error);
    struct stat st;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return xc_error_errno(error, path, "cannot look at it");
    if (st.st_size < (off_t)sizeof(struct header) || st.st_size > (off_t)XC_MACHINE_LIMIT)
        return xc_error_set(error, XC_EINPUT, path, "its size is not that of a snapshot");
    size_t length = (size_t)st.st_size;
    void *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return xc_error_errno(error, path, "cannot map it");
    struct xc_node *node;
    if (xc_node_adopt(bytes, length, true, path, &node, error) < 0) {
        munmap(bytes, length);
        return -1;
    }
    if (boot_id && !xc_streq(boot_id, node->boot_id)) {
        xc_node_free(node);
        return xc_error_set(error, XC_EINPUT, path, "it was written in another boot");
    }
    *out = node;
    return 0;
}
