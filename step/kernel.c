/* What does the kernel say of a task's memory, and how is it told? Everything that is set is read back
 * by the caller. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#define WORD_BITS (8 * sizeof(unsigned long))
/* get_mempolicy refuses more than a page, and fills the mask to its last bit */
#define NODE_WORDS (4096 / WORD_BITS)

static int set_policy(int mode, const struct xc_set *mems)
{
    unsigned long bits = mems ? mems->nwords * 8 * sizeof *mems->words + 1 : 0;
    return syscall(SYS_set_mempolicy, mode, mems ? mems->words : NULL, bits) < 0 ? -errno : 0;
}

static int set_preferred(const struct xc_set *mems)
{
    int rc = set_policy(MPOL_PREFERRED_MANY, mems); /* Linux 5.15 */
    if (rc == 0 || xc_set_count(mems) == 0)
        return rc;
    xc_autoset struct xc_set first = XC_SET_EMPTY;
    xc_set_add(&first, (size_t)xc_set_next(mems, 0));
    return first.failed ? -ENOMEM : set_policy(MPOL_PREFERRED, &first);
}

int task_set_memory(enum xc_memory mode, const struct xc_set *mems)
{
    switch (mode) {
    case XC_MEMORY_PREFERRED:
        return set_preferred(mems);
    case XC_MEMORY_BIND:
        return set_policy(MPOL_BIND, mems);
    case XC_MEMORY_INTERLEAVE:
        return set_policy(MPOL_INTERLEAVE, mems);
    case XC_MEMORY_NONE:
    case XC_MEMORY_UNSET:
        break;
    }
    return set_policy(MPOL_DEFAULT, NULL);
}

int task_get_memory(enum xc_memory *mode, struct xc_set *mems)
{
    unsigned long mask[NODE_WORDS] = {0};
    int policy = 0;
    int rc = syscall(SYS_get_mempolicy, &policy, mask, 8 * sizeof mask, NULL, 0) < 0 ? -errno : 0;
    xc_set_take_mask(mems, mask, rc == 0 ? NODE_WORDS : 0);
    policy &= ~(MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING);
    *mode = policy == MPOL_PREFERRED || policy == MPOL_PREFERRED_MANY ? XC_MEMORY_PREFERRED
            : policy == MPOL_BIND                                     ? XC_MEMORY_BIND
            : policy == MPOL_INTERLEAVE                               ? XC_MEMORY_INTERLEAVE
                                                                      : XC_MEMORY_NONE;
    return rc;
}
