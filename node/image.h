/* The flat form of struct xc_node: what the snapshot file holds, and what every struct xc_node that
 * node/ makes points into, read or mapped alike. */
#ifndef XCLOUD_NODE_IMAGE_H
#define XCLOUD_NODE_IMAGE_H

#include <xcloud/node.h>

#define XC_NODE_CPUS_MAX  XC_SET_LIMIT
#define XC_NODE_NUMAS_MAX 1024 /* the kernel's MAX_NUMNODES on its largest configurations */
#define XC_NODE_PCI_MAX   8192
#define XC_NODE_GPUS_MAX  1024
#define XC_NODE_NICS_MAX  4096
#define XC_NODE_DEPTH_MAX 64 /* bridges above a device */

/* node's arrays and values as one block on the heap. */
int xc_node_image(const struct xc_node *node, void **bytes, size_t *length, struct xc_error *error);
/* A node whose arrays are in bytes, after every count, index and string in it was checked. `mapped`:
 * the block is a mapping of length bytes, else it is on the heap; on success it belongs to the node.
 * where: for errors. */
int xc_node_adopt(void *bytes, size_t length, bool mapped, const char *where, struct xc_node **out,
                  struct xc_error *error);

#endif
