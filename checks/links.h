/* PCIe links, for GPUs and NICs alike. */
#ifndef XCLOUD_CHECKS_LINKS_H
#define XCLOUD_CHECKS_LINKS_H

#include "work.h"

struct chk_link {
    const struct xc_pci *pci; /* the lower end */
    char bdf[XC_BDF_TEXT];
    unsigned hop;                /* 0: the device's own link */
    uint32_t width, mts;         /* now; 0: not known */
    uint32_t max_width, max_mts; /* what both ends can */
};
/* Every link from a device to the root complex that is not seen yet (npci flags). */
void chk_links_walk(const struct xc_check_input *in, int32_t pci, bool *seen,
                    void (*judge)(const struct chk_link *, void *), void *data);

/* The widest and fastest of the devices of the same kind. */
struct chk_best {
    uint32_t width, mts;
};
void chk_links_best(const struct xc_check_input *in, const int32_t *devices, size_t count,
                    struct chk_best *best);

extern const struct xc_check_param chk_link_params[];
/* Judges the links of these devices (indices into node->pci) and of all bridges above them. */
void chk_links_run(const struct xc_check_input *in, struct xc_findings *out, const int32_t *devices,
                   size_t count);

#endif
