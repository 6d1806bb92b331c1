/* Where may a process run, and how is it told? Straight to the kernel: a set is the kernel's mask
 * already, and libc's cpu_set_t has a fixed size. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <xcloud/base.h>

#define WORD_BITS  (8 * sizeof(unsigned long))
#define MASK_WORDS (XC_SET_LIMIT / WORD_BITS)

/* Highest first: the set grows once. */
void xc_set_take_mask(struct xc_set *set, const unsigned long *mask, size_t words)
{
    xc_set_clear(set);
    for (size_t w = words; w-- > 0;)
        for (unsigned long rest = mask[w]; rest; rest &= rest - 1)
            xc_set_add(set, w * WORD_BITS + (size_t)__builtin_ctzl(rest));
}

int xc_affinity_get(pid_t pid, struct xc_set *cpus)
{
    unsigned long mask[MASK_WORDS]; /* of which the kernel writes as much as it has CPUs */
    long bytes = syscall(SYS_sched_getaffinity, pid, sizeof mask, mask);
    if (bytes < 0) {
        xc_set_clear(cpus);
        return -errno;
    }
    xc_set_take_mask(cpus, mask, (size_t)bytes / sizeof *mask);
    return 0;
}

int xc_affinity_set(pid_t pid, const struct xc_set *cpus)
{
    return syscall(SYS_sched_setaffinity, pid, cpus->nwords * sizeof *cpus->words, cpus->words) < 0
               ? -errno
               : 0;
}
