/* How fast may each core run, and do some have priority turbo?
 *
 * Intel's Priority Core Turbo (SST-TF) has no file that says which cores have it. Linux shows the
 * result in the highest performance of ACPI CPPC, in the base frequency, or in the maximum frequency.
 * The rule: taking these files in this order, the first in which the cores fall into two groups
 * decides. Two groups means: sorted by value there is a step of at least 10 %, and at most half of
 * the cores lie above the largest such step; those have priority. A file that some core lacks, or
 * that is equal everywhere, decides nothing. A site that knows better says so in its policy. */
#include <string.h>

#include "reader.h"

#define CPU "/sys/devices/system/cpu"

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The lowest value of the upper group; 0: there are no two groups. */
static uint32_t upper_group(const uint32_t *values, uint32_t *sorted, size_t count)
{
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    if (count == 0 || sorted[0] == 0)
        return 0;
    uint32_t lowest = 0;
    uint64_t best = 1100; /* thousandths of the value below */
    for (size_t i = 1; i < count; i++) {
        uint64_t ratio = (uint64_t)sorted[i] * 1000 / sorted[i - 1];
        if (ratio >= best && count - i <= count / 2) {
            best = ratio + 1;
            lowest = sorted[i];
        }
    }
    return lowest;
}

/* values[core] from a file of each core's first CPU; 0 where it has none. */
static void read_values(struct node_reader *reader, const char *file, uint32_t *values)
{
    memset(values, 0, reader->ncores * sizeof *values);
    for (size_t i = 0; i < reader->ncpus; i++) {
        const struct xc_cpu *cpu = &reader->cpus[i];
        long value;
        if (cpu->core < 0 || cpu->thread != 0)
            continue;
        if (xc_root_read_long(reader->root, &value, CPU "/cpu%d/%s", cpu->os, file) && value > 0 &&
            value <= UINT32_MAX)
            values[cpu->core] = (uint32_t)value;
        else if (i == 0)
            return; /* the first core lacks it: this machine has no such file */
    }
}

static void mark(struct node_reader *reader, const uint32_t *values, uint32_t lowest)
{
    for (size_t i = 0; i < reader->ncpus; i++) {
        struct xc_cpu *cpu = &reader->cpus[i];
        if (cpu->core >= 0 && values[cpu->core] >= lowest)
            cpu->flags |= XC_CPU_PRIORITY;
    }
}

int node_read_speeds(struct node_reader *reader)
{
    static const char *const files[] = {"acpi_cppc/highest_perf", "cpufreq/base_frequency",
                                        "cpufreq/cpuinfo_max_freq"};
    xc_autofree uint32_t *values = malloc(2 * reader->ncores * sizeof *values);
    if (!values)
        return xc_error_nomem(reader->error);
    uint32_t lowest = 0;
    for (size_t file = 0; file < XC_COUNT(files); file++) {
        read_values(reader, files[file], values);
        if (lowest == 0) {
            lowest = upper_group(values, values + reader->ncores, reader->ncores);
            if (lowest)
                mark(reader, values, lowest);
        }
    }
    for (size_t i = 0; i < reader->ncpus; i++) /* the last file read is the maximum frequency */
        if (reader->cpus[i].core >= 0)
            reader->cpus[i].max_khz = values[reader->cpus[i].core];
    return 0;
}
