/* topo: is the NCCL topology file right, and what would a right one be?
 *
 * NCCL reads the file with a parser of its own, which is no XML parser: it refuses what XML allows
 * (a prolog, a tab, a line break between attributes), ends every job then, and takes without a word
 * much that is wrong (a link speed in another spelling is PCIe Gen3). lint reads the file as NCCL
 * does; verify holds it against the machine; generate and normalize write one.
 *
 * Pure: bytes and struct xc_node in, findings or bytes out. libc alone; it runs in the prolog.
 */
#ifndef XCLOUD_TOPO_H
#define XCLOUD_TOPO_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>

#define XC_TOPO_LIMIT (1u << 20) /* bytes of a file; NCCL takes 255 elements, some 100 KiB at most */

/* What is found in a file or between it and a machine. Ids are stable: D1 to D14 (the file alone), L1
 * to L16 (the machine). xcloud-topo(7) lists them. */
struct xc_topo_finding {
    char id[4];
    bool error;   /* else a warning */
    bool refused; /* NCCL refuses the file: every job that is given it ends at its start */
    unsigned line, column; /* counted from 1, columns in bytes; 0: about no place in the file */
    char what[320], nccl[320], fix[256]; /* what is wrong, what NCCL does with it, how to mend it */
};
/* At most XC_TOPO_SAME of an id are kept; the others are counted. */
#define XC_TOPO_SAME 10
struct xc_topo_findings {
    struct xc_topo_finding *items; /* in the order of the file, those about no place last */
    size_t count;
    unsigned errors, warnings; /* all, those that were not kept too */
    unsigned not_kept;
    bool failed; /* no memory: sticks, and the functions below return -1 */
};
void xc_topo_findings_clear(struct xc_topo_findings *findings);
/* "NAME:LINE:COLUMN: error D8: …; NCCL would …; fix: …", a line each. */
void xc_topo_findings_text(const struct xc_topo_findings *findings, const char *name,
                           struct xc_text *out);
void xc_topo_findings_json(const struct xc_topo_findings *findings, const char *name,
                           struct xc_text *out);
/* Whether NCCL refuses the file. */
bool xc_topo_refused(const struct xc_topo_findings *findings);

/* The file alone. 0 whatever is found; -1 without memory, or when it is larger than XC_TOPO_LIMIT. */
int xc_topo_lint(const char *bytes, size_t length, struct xc_topo_findings *findings,
                 struct xc_error *error);
/* The same, and then the file against the machine, unless NCCL refuses it anyway. rules NULL: every
 * port that is up is one that NCCL will use; else the compute NICs. */
int xc_topo_verify(const char *bytes, size_t length, const struct xc_node *node,
                   const struct xc_rules *rules, struct xc_topo_findings *findings,
                   struct xc_error *error);

/* A file for the node. rules->topo.map says what the machine's PCI does not; rules NULL: none. GPUs
 * and (compute) NICs whose NUMA node is known neither to the kernel nor to the map are XC_EINPUT.
 * The same input gives the same bytes. */
int xc_topo_generate(const struct xc_node *node, const struct xc_rules *rules, struct xc_text *out,
                     struct xc_error *error);
/* A site's file out of what NCCL wrote with NCCL_TOPO_DUMP_FILE, or of any file that lint takes: cpu
 * and pci elements alone, without what is one run's. */
int xc_topo_normalize(const char *bytes, size_t length, struct xc_text *out,
                      struct xc_error *error);
/* The tree that NCCL builds from the file, with bandwidths, and how far each GPU is from each NIC in
 * it. node, which may be NULL, adds names (gpu0, mlx5_0) and what is missing. */
int xc_topo_show(const char *bytes, size_t length, const struct xc_node *node, struct xc_text *out,
                 struct xc_error *error);
/* The same as a picture. */
int xc_topo_svg(const char *bytes, size_t length, const struct xc_node *node, struct xc_text *out,
                struct xc_error *error);

#endif
