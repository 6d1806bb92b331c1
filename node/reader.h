/* How a machine's description grows while it is read: arrays of records with indices that stay, one
 * file a part of the machine. Everything comes through the root, so that the live machine, a
 * directory and an archive in memory are read by the same code. */
#ifndef XCLOUD_NODE_READER_H
#define XCLOUD_NODE_READER_H

#include "image.h"

struct node_reader {
    struct xc_root *root;
    struct xc_error *error;
    struct xc_cpu *cpus;
    size_t ncpus;
    int32_t *cpu_index; /* by OS number, XC_NONE: not present */
    size_t ncpu_index;
    size_t ncores, npackages, nl3;
    struct xc_numa *numas;
    size_t nnumas;
    uint16_t *distance;
    struct xc_pci *pci; /* in the order found, until node_pci_sort */
    size_t npci, pci_size;
    struct xc_gpu *gpus;
    size_t ngpus, gpus_size;
    struct xc_nic *nics;
    size_t nnics, nics_size;
};

/* Each returns 0, or -1 with reader->error set. In this order. */
int node_read_cpus(struct node_reader *reader);  /* cpu.c: present, online, cores, packages, L3 */
int node_read_numas(struct node_reader *reader); /* numa.c: memory nodes and whose CPUs are whose */
int node_read_speeds(struct node_reader *reader); /* speed.c: frequencies, priority cores */
int node_read_gpus(struct node_reader *reader, const struct xc_gpu_kind *kinds, size_t nkinds);
int node_read_nics(struct node_reader *reader); /* nic.c */
int node_pci_sort(struct node_reader *reader);  /* pci.c: by BDF, indices everywhere follow */

/* read.c: flags the CPUs that slurm.conf reserves; and the finished arrays as a node of one block. */
int node_mark_slurm(struct node_reader *reader, const struct xc_slurm_node *slurm);
void node_copy_features(const struct xc_slurm_node *slurm, struct xc_node *node);
int node_finish(struct node_reader *reader, struct xc_node *head, struct xc_node **out);
void node_free_reader(struct node_reader *reader);

/* The GPU kinds of /etc/xcloud/gpu-kinds below the root, or *kinds NULL. */
int node_gpu_kinds(struct node_reader *reader, struct xc_gpu_kind **kinds, size_t *nkinds);

/* The parts that change while a machine runs, for `xcloud snapshot --refresh`. */
void node_read_mig(struct node_reader *reader, struct xc_gpu *gpu);
void node_read_port(struct node_reader *reader, struct xc_nic *nic);

/* The record of the PCI function that a canonical /sys/devices path leads to or through, made with
 * the bridges above it when it is new; XC_NONE when the path has none. -1: error. */
int node_pci_add(struct node_reader *reader, const char *path, int32_t *index);
/* The memory node with CPUs that a PCI function is near: numa_node, or, when that has no CPUs, the
 * nearest that has. XC_NONE when the kernel does not know. */
int32_t node_pci_numa(struct node_reader *reader, const char *path);

/* A file as a set: 1 read, 0 missing, -1 malformed (error). mask: the file holds a mask. */
int node_read_set(struct node_reader *reader, struct xc_set *out, bool mask, const char *format,
                  ...) xc_printf(4, 5);
/* Index of the CPU with that OS number, or XC_NONE. */
int32_t node_cpu_index(const struct node_reader *reader, size_t os);
/* "32.0 GT/s PCIe" * 1000: a decimal number with at most three digits behind its point; 0: none. */
uint32_t node_thousandths(const char *text);
/* Room for one more record of element bytes in *array; NULL without memory (error). */
void *node_grow(struct node_reader *reader, void *array, size_t count, size_t *size,
                size_t element);

#endif
