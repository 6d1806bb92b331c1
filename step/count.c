/* How did the steps of this boot end up: bound, unbound after all, left alone, refused? Four numbers in a
 * file that slurmstepd maps for a moment when a step ends, and that metrics read. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define MAGIC "xccount"

struct counts {
    char magic[8];
    _Atomic uint64_t results[XC_STEP_RESULTS];
};

const char *xc_step_result_name(enum xc_step_result result)
{
    static const char *const names[] = {"bound", "fallback", "off", "refused"};
    return names[result];
}

/* Of all its tasks; what they wrote into their slots is not believed for more than a count. */
static enum xc_step_result result_of(const struct xc_step *step)
{
    uint32_t flags = 0;
    for (unsigned i = 0; i < step->ntasks; i++)
        flags |= table_slot(&step->table, i)->flags;
    if (step->marked || (flags & XC_REC_REFUSED))
        return XC_STEP_REFUSED;
    if (flags & (XC_REC_PLACED | XC_REC_MEMORY))
        return XC_STEP_BOUND;
    return step->failed || (step->table.head->flags & TABLE_FAILED) ? XC_STEP_FALLBACK
                                                                    : XC_STEP_OFF;
}

void step_count(const struct xc_step *step)
{
    struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s%s", step->machine ? step->machine : "", XC_STEP_COUNTS_FILE);
    xc_autofree char *path = xc_text_take(&name);
    if (!path || step->ntasks == 0)
        return;
    xc_autoclose int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct counts)) < 0)
        return;
    struct counts *counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counts == MAP_FAILED)
        return;
    memcpy(counts->magic, MAGIC, sizeof counts->magic);
    atomic_fetch_add(&counts->results[result_of(step)], 1);
    munmap(counts, sizeof *counts);
}

int xc_step_counts(const char *path, uint64_t results[XC_STEP_RESULTS])
{
    struct counts counts;
    xc_autoclose int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || read(fd, &counts, sizeof counts) != (ssize_t)sizeof counts ||
        memcmp(counts.magic, MAGIC, sizeof counts.magic) != 0)
        return -1;
    for (size_t i = 0; i < XC_STEP_RESULTS; i++)
        results[i] = atomic_load(&counts.results[i]);
    return 0;
}
