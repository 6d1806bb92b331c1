/* What has changed on a machine since its description was made? Ports, MIG, online CPUs and Slurm's
 * reservation are read again; the rest stays as long as a machine is booted. */
#include <string.h>
#include <time.h>

#include "reader.h"

/* Arrays that may be written, with what node has. */
static int copy_arrays(struct node_reader *reader, const struct xc_node *node)
{
    reader->cpus = calloc(node->ncpus + 1, sizeof *reader->cpus);
    reader->numas = calloc(node->nnumas + 1, sizeof *reader->numas);
    reader->distance = calloc(node->nnumas * node->nnumas + 1, sizeof *reader->distance);
    reader->pci = calloc(node->npci + 1, sizeof *reader->pci);
    reader->gpus = calloc(node->ngpus + 1, sizeof *reader->gpus);
    reader->nics = calloc(node->nnics + 1, sizeof *reader->nics);
    if (!reader->cpus || !reader->numas || !reader->distance || !reader->pci || !reader->gpus ||
        !reader->nics)
        return xc_error_nomem(reader->error);
    memcpy(reader->cpus, node->cpus, node->ncpus * sizeof *reader->cpus);
    memcpy(reader->numas, node->numas, node->nnumas * sizeof *reader->numas);
    memcpy(reader->distance, node->distance,
           node->nnumas * node->nnumas * sizeof *reader->distance);
    memcpy(reader->pci, node->pci, node->npci * sizeof *reader->pci);
    memcpy(reader->gpus, node->gpus, node->ngpus * sizeof *reader->gpus);
    memcpy(reader->nics, node->nics, node->nnics * sizeof *reader->nics);
    reader->ncpus = node->ncpus;
    reader->ncores = node->ncores;
    reader->npackages = node->npackages;
    reader->nl3 = node->nl3;
    reader->nnumas = node->nnumas;
    reader->npci = node->npci;
    reader->ngpus = node->ngpus;
    reader->nnics = node->nnics;
    return 0;
}

/* Whether the same CPUs are online; another one's core and caches are not known here. */
static bool same_cpus(struct node_reader *reader, const struct xc_node *node)
{
    xc_autoset struct xc_set before = XC_SET_EMPTY, now = XC_SET_EMPTY;
    xc_node_online(node, &before);
    return xc_root_read_set(reader->root, &now, "/sys/devices/system/cpu/online") &&
           xc_set_equal(&before, &now);
}

static bool has_rdma(const struct xc_node *node, const char *name)
{
    for (size_t i = 0; i < node->nnics; i++)
        if (xc_streq(node->nics[i].rdma, name))
            return true;
    return false;
}

/* Whether each GPU and NIC is still there, and no RDMA device is new. */
static bool same_devices(struct node_reader *reader, const struct xc_node *node)
{
    char bdf[XC_BDF_TEXT];
    for (size_t i = 0; i < node->ngpus; i++)
        if (!xc_root_exists(reader->root, "/sys/bus/pci/devices/%s",
                            xc_bdf_text(&node->pci[node->gpus[i].pci].bdf, bdf)))
            return false;
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (!xc_root_exists(reader->root, "/sys/class/%s/%s", nic->rdma[0] ? "infiniband" : "net",
                            nic->rdma[0] ? nic->rdma : nic->netdev))
            return false;
    }
    xc_autonames char **names = xc_root_list(reader->root, "/sys/class/infiniband");
    for (char **name = names; name && *name; name++)
        if (!has_rdma(node, *name))
            return false;
    return true;
}

int xc_node_refresh(struct xc_root *root, const struct xc_node_options *options,
                    const struct xc_node *node, struct xc_node **out, struct xc_error *error)
{
    struct node_reader reader = {.root = root, .error = error};
    if (!same_cpus(&reader, node) || !same_devices(&reader, node))
        return 1;
    int rc = copy_arrays(&reader, node);
    if (rc == 0) {
        for (size_t i = 0; i < reader.nnics; i++)
            node_read_port(&reader, &reader.nics[i]);
        for (size_t i = 0; i < reader.ngpus; i++)
            node_read_mig(&reader, &reader.gpus[i]);
        for (size_t i = 0; i < reader.ncpus; i++)
            reader.cpus[i].flags &= ~(uint32_t)XC_CPU_SLURM_SPEC;
        if (options && options->slurm)
            rc = node_mark_slurm(&reader, options->slurm);
    }
    if (rc == 0) {
        struct xc_node head = *node;
        head.dynamic_at = (int64_t)time(NULL);
        node_copy_features(options ? options->slurm : NULL, &head);
        rc = node_finish(&reader, &head, out);
    }
    node_free_reader(&reader);
    return rc;
}
