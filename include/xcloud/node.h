/* node: what is this machine?
 *
 * struct xc_node describes one machine: made from sysfs and procfs below a root (the live machine, a
 * captured directory or archive) by programs, written as a flat snapshot, and mapped read-only by
 * steps. All records have a fixed size and refer to each other by index, so that the snapshot is the
 * arrays themselves. The reader (node/) needs libc; making it from an archive needs libarchive;
 * comparing it with hwloc needs hwloc. Only the questions and the snapshot run inside slurmstepd.
 */
#ifndef XCLOUD_NODE_H
#define XCLOUD_NODE_H

#include <xcloud/base.h>

#define XC_NONE (-1) /* an index or number that is not there or not known */

/* ---- records ----------------------------------------------------------------------------------- */

struct xc_bdf {
    uint32_t domain;
    uint8_t bus, device, function, pad;
};
#define XC_BDF_TEXT 24 /* bytes for "dddd:bb:dd.f" (domains of VMs may have 5 or more digits) */
bool xc_bdf_parse(const char *text, struct xc_bdf *out); /* any case, 4 to 8 digits of domain */
const char *xc_bdf_text(const struct xc_bdf *bdf, char text[XC_BDF_TEXT]); /* lower case, >= 4 digits */
int xc_bdf_compare(const struct xc_bdf *a, const struct xc_bdf *b);

enum {
    XC_CPU_ONLINE = 1 << 0,
    XC_CPU_PRIORITY = 1 << 1,   /* Priority Core Turbo / SST-TF: turbo above the others */
    XC_CPU_SLURM_SPEC = 1 << 2, /* reserved by CpuSpecList/CoreSpecCount (OS numbering already) */
    XC_CPU_ISOLATED = 1 << 3,   /* /sys/devices/system/cpu/isolated */
};
struct xc_cpu {      /* ascending by os; every CPU that the kernel lists as present */
    int32_t os;      /* the kernel's number */
    int32_t core;    /* 0..ncores-1, in the order of each core's lowest CPU. A CPU that is offline
                        has none, nor any of the next four: XC_NONE, thread 0 */
    int32_t package; /* 0..npackages-1, the same way */
    int32_t numa;    /* OS number of its NUMA node, XC_NONE unknown */
    int32_t l3;      /* dense; XC_NONE: no L3 known */
    int32_t thread;  /* position within its core: 0 is the first sibling */
    uint32_t flags;  /* XC_CPU_* */
    uint32_t max_khz;
};
struct xc_numa { /* ascending by os */
    int32_t os;
    uint32_t ncpus; /* 0: memory only (GPU or CXL memory), never used for placement */
    uint64_t memory;
};
struct xc_pci {     /* ascending by BDF: GPUs, NICs and every bridge above them */
    struct xc_bdf bdf;
    int32_t parent; /* index of the bridge above, XC_NONE directly below the root complex */
    int32_t numa;   /* OS number of a node with CPUs: where sysfs names a memory-only node, the
                       nearest to that; XC_NONE unknown (-1 in sysfs is unknown, never node 0) */
    uint32_t root;  /* the root complex: domain << 8 | bus of its "pciDDDD:BB" directory */
    uint32_t class; /* 24 bits, e.g. 0x030200 */
    uint16_t vendor, device;
    uint16_t width, max_width;       /* lanes; 0 unknown */
    uint32_t speed_mts, max_speed_mts; /* MT/s a lane: 32000 for "32.0 GT/s PCIe"; 0 unknown */
};
#define XC_UUID_TEXT 48
struct xc_gpu {    /* ascending by BDF: the order of NVML, and of CUDA with PCI_BUS_ID */
    int32_t pci;   /* index into pci[] */
    int32_t minor; /* /dev/nvidiaN; XC_NONE unknown */
    int32_t numa;  /* OS number of a node with CPUs, XC_NONE unknown */
    uint32_t mig;  /* 1: it is split into GPU instances (MIG mode without one does not show) */
    char uuid[XC_UUID_TEXT]; /* "GPU-…" or "" */
};
enum xc_port_state { XC_PORT_UNKNOWN, XC_PORT_DOWN, XC_PORT_INIT, XC_PORT_ARMED, XC_PORT_ACTIVE };
enum { XC_NIC_INFINIBAND = 1, XC_NIC_ETHERNET = 2 };
struct xc_nic {    /* one RDMA port, or one netdev without RDMA (port 0); ascending by BDF, port */
    int32_t pci;       /* XC_NONE: none (a software RDMA device on a virtual netdev) */
    int32_t numa;
    int32_t port;      /* RDMA port number; 0: no RDMA device */
    uint32_t state;    /* enum xc_port_state */
    uint32_t rate_mbps;
    uint32_t link;     /* XC_NIC_* or 0 */
    char rdma[64];     /* "mlx5_0" (IB_DEVICE_NAME_MAX), "" without RDMA */
    char netdev[16];   /* "ib0" (IFNAMSIZ) or "" */
};

enum xc_environment { XC_BARE, XC_VM, XC_POD };

struct xc_node {
    char boot_id[40];    /* of the boot that it describes; "" for a packed machine */
    char product[64];    /* DMI product_name */
    char vendor[64];     /* DMI sys_vendor */
    char arch[16];       /* "x86_64", "aarch64" */
    char cpu_vendor[16]; /* x86 alone: CPUID's "GenuineIntel"; "" when not known */
    uint32_t cpu_family, cpu_model; /* x86 alone: as /proc/cpuinfo counts them */
    char features[1024]; /* Slurm's, as slurm.conf lists them: "a,b"; "" when not known */
    enum xc_environment environment;
    int64_t made_at, dynamic_at; /* Unix time: all of it; ports, MIG and online CPUs */
    size_t ncpus, ncores, npackages, nl3, nnumas, npci, ngpus, nnics;
    const struct xc_cpu *cpus;
    const struct xc_numa *numas;
    const uint16_t *distance; /* nnumas x nnumas, the kernel's SLIT; 10 is local */
    const struct xc_pci *pci;
    const struct xc_gpu *gpus;
    const struct xc_nic *nics;
    /* private to node/ */
    void *storage;
    size_t mapped; /* bytes mapped, 0: storage is on the heap */
};
void xc_node_free(struct xc_node *node);

/* ---- questions (libc alone) ---------------------------------------------------------------------- */

int xc_node_cpu_index(const struct xc_node *node, int os);   /* index of the CPU with that number */
int xc_node_numa_index(const struct xc_node *node, int os);
int xc_node_max_cpu(const struct xc_node *node);             /* highest OS number */
void xc_node_online(const struct xc_node *node, struct xc_set *out);
void xc_node_flagged(const struct xc_node *node, uint32_t flag, struct xc_set *out);
void xc_node_numa_cpus(const struct xc_node *node, int numa_os, struct xc_set *out);
/* NUMA nodes that have CPUs (OS numbers). */
void xc_node_cpu_numas(const struct xc_node *node, struct xc_set *out);
/* Cores that have a CPU in set. */
unsigned xc_node_count_cores(const struct xc_node *node, const struct xc_set *set);
/* Adds to set every sibling of the CPUs in it. */
void xc_node_whole_cores(const struct xc_node *node, struct xc_set *set);
/* SLIT distance between OS node numbers; 10 the same, 255 unknown. */
unsigned xc_node_distance(const struct xc_node *node, int from, int to);

/* How near two PCI functions are, in the words of nvidia-smi topo and NCCL. */
enum xc_path {
    XC_PATH_PIX,  /* the same device, or at most one switch between them */
    XC_PATH_PXB,  /* several switches, no host bridge */
    XC_PATH_PHB,  /* through the host bridge they share */
    XC_PATH_NODE, /* host bridges of one NUMA node */
    XC_PATH_SYS   /* between NUMA nodes, or unknown */
};
enum xc_path xc_node_path(const struct xc_node *node, int pci_a, int pci_b);
const char *xc_path_name(enum xc_path path);
const char *xc_environment_name(enum xc_environment environment);

/* ---- the snapshot (libc alone) ---------------------------------------------------------------------- */

#define XC_SNAPSHOT_FILE "/run/xcloud/node.snapshot"

/* Writes node atomically, mode 0644. */
int xc_snapshot_write(const struct xc_node *node, const char *path, struct xc_error *error);
/* Maps a snapshot read-only. It must be a regular file of root (or of the caller) that others cannot
 * write; every count, offset and index is checked before use. boot_id not NULL: another boot's
 * snapshot is XC_EINPUT. */
int xc_snapshot_map(const char *path, const char *boot_id, struct xc_node **out,
                    struct xc_error *error);

/* ---- making it (programs) ----------------------------------------------------------------------------- */

/* What stands for a GPU: PCI class prefix and vendor. The list is data, so that a test machine's
 * display controllers can stand for GPUs. NULL: those of /etc/xcloud/gpu-kinds below the root, without
 * that file NVIDIA (10de) display (03....) controllers. */
struct xc_gpu_kind {
    uint16_t vendor;      /* 0: any */
    uint32_t class, mask; /* (device class & mask) == class */
};
struct xc_node_options {
    const struct xc_gpu_kind *kinds;
    size_t nkinds;
    /* OS-independent description of what Slurm reserves (policy.h: struct xc_slurm_node), or NULL. */
    const struct xc_slurm_node *slurm;
};
int xc_node_read(struct xc_root *root, const struct xc_node_options *options, struct xc_node **out,
                 struct xc_error *error);
/* A copy of node with ports, MIG, online CPUs and Slurm's reservation (options->slurm, NULL: none)
 * read again. 1: something else has changed (a CPU, a GPU or a NIC came or went), which xc_node_read
 * must read. */
int xc_node_refresh(struct xc_root *root, const struct xc_node_options *options,
                    const struct xc_node *node, struct xc_node **out, struct xc_error *error);
/* Parses "10de:03,1234:0380,*:12" (vendor:class prefix in hex). */
int xc_gpu_kinds_parse(const char *text, struct xc_gpu_kind **kinds, size_t *count,
                       struct xc_error *error);
/* Makes out (OS CPUs) from what slurm.conf says in abstract ids. */
int xc_node_slurm_spec(const struct xc_node *node, const struct xc_slurm_node *slurm,
                       struct xc_set *out, struct xc_error *error);
/* The inverse, for the NodeName line: abstract ids of the cores that hold the OS CPUs in set. */
int xc_node_abstract_ids(const struct xc_node *node, const struct xc_set *os, struct xc_set *out,
                         struct xc_error *error);

/* A root from "/", a directory, or a tar archive (any compression that libarchive reads), which is
 * held in memory and never unpacked; larger ones than limit bytes unpacked are refused. A single top
 * directory in the archive ("dgx-h100/sys/…") is stepped into. */
#define XC_MACHINE_LIMIT (256u << 20)
int xc_machine_open(const char *path, size_t limit, struct xc_root **out, struct xc_error *error);
/* Writes the machine below root as a tar.xz archive to fd, without serials, MACs, GUIDs, UUIDs and
 * host names. */
int xc_machine_capture(struct xc_root *root, int fd, struct xc_error *error);
/* Compares with what hwloc finds on the live machine or in a directory: one line for each difference
 * into report (none: they agree). */
int xc_node_compare_hwloc(const struct xc_node *node, const char *directory, struct xc_text *report,
                          struct xc_error *error);

#endif
