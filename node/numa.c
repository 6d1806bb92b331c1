/* Which memory nodes are there, how far apart, and which CPUs are on them? */
#include <string.h>

#include "reader.h"

#define NODE "/sys/devices/system/node"

/* Bytes of "…MemTotal: N kB" in a meminfo, 0 unknown. */
static uint64_t total_memory(char *meminfo)
{
    char *at = meminfo ? strstr(meminfo, "MemTotal:") : NULL;
    if (!at)
        return 0;
    at += strlen("MemTotal:");
    at[strcspn(at, "\n")] = '\0';
    char *end;
    unsigned long long kib = strtoull(xc_trim(at), &end, 10);
    return xc_streq(xc_trim(end), "kB") && kib < UINT64_MAX / 1024 ? kib * 1024 : 0;
}

/* A kernel without NUMA has no such directory; all is on node 0, as it says in Mems_allowed. */
static int without_numa(struct node_reader *reader)
{
    xc_autofree char *meminfo = xc_root_read(reader->root, NULL, NULL, "/proc/meminfo");
    reader->numas = calloc(1, sizeof *reader->numas);
    reader->distance = calloc(1, sizeof *reader->distance);
    if (!reader->numas || !reader->distance)
        return xc_error_nomem(reader->error);
    reader->nnumas = 1;
    reader->distance[0] = 10;
    reader->numas[0].memory = total_memory(meminfo);
    for (size_t i = 0; i < reader->ncpus; i++)
        if (reader->cpus[i].flags & XC_CPU_ONLINE) {
            reader->cpus[i].numa = 0;
            reader->numas[0].ncpus++;
        }
    return 0;
}

static int read_cpulist(struct node_reader *reader, struct xc_numa *numa, struct xc_set *set)
{
    int found = node_read_set(reader, set, false, NODE "/node%d/cpulist", numa->os);
    if (found == 0)
        found = node_read_set(reader, set, true, NODE "/node%d/cpumap", numa->os);
    if (found <= 0)
        return found;
    for (ssize_t os = xc_set_next(set, 0); os >= 0; os = xc_set_next(set, (size_t)os + 1)) {
        int32_t index = node_cpu_index(reader, (size_t)os);
        if (index >= 0 && (reader->cpus[index].flags & XC_CPU_ONLINE) &&
            reader->cpus[index].numa == XC_NONE) {
            reader->cpus[index].numa = numa->os;
            numa->ncpus++;
        }
    }
    return 0;
}

/* A row of the SLIT has one number for each node that is online. Another count, or a number that is
 * none, makes the row unknown. */
static void read_distances(struct node_reader *reader, size_t row)
{
    uint16_t *to = &reader->distance[row * reader->nnumas];
    xc_autofree char *line =
        xc_root_read_line(reader->root, NODE "/node%d/distance", reader->numas[row].os);
    size_t count = 0;
    char *save = NULL;
    for (char *word = line ? strtok_r(line, " \t", &save) : NULL; word;
         word = strtok_r(NULL, " \t", &save), count++) {
        long value;
        if (count >= reader->nnumas || !xc_to_long(word, 1, 65535, &value))
            break;
        to[count] = (uint16_t)value;
        if (count + 1 == reader->nnumas && !strtok_r(NULL, " \t", &save))
            return;
    }
    for (size_t i = 0; i < reader->nnumas; i++)
        to[i] = i == row ? 10 : 255;
}

int node_read_numas(struct node_reader *reader)
{
    xc_autoset struct xc_set nodes = XC_SET_EMPTY, cpus = XC_SET_EMPTY;
    int found = node_read_set(reader, &nodes, false, NODE "/online");
    if (found < 0)
        return -1;
    if (!found)
        return without_numa(reader);
    size_t count = xc_set_count(&nodes);
    if (count == 0 || count > XC_NODE_NUMAS_MAX)
        return xc_error_set(reader->error, XC_EINPUT, NODE "/online",
                            "%zu memory nodes are not believable", count);
    reader->numas = calloc(count, sizeof *reader->numas);
    reader->distance = calloc(count * count, sizeof *reader->distance);
    if (!reader->numas || !reader->distance)
        return xc_error_nomem(reader->error);
    for (ssize_t os = xc_set_next(&nodes, 0); os >= 0; os = xc_set_next(&nodes, (size_t)os + 1))
        reader->numas[reader->nnumas++].os = (int32_t)os;
    for (size_t i = 0; i < count; i++) {
        struct xc_numa *numa = &reader->numas[i];
        xc_autofree char *meminfo =
            xc_root_read(reader->root, NULL, NULL, NODE "/node%d/meminfo", numa->os);
        numa->memory = total_memory(meminfo);
        if (read_cpulist(reader, numa, &cpus) < 0)
            return -1;
        read_distances(reader, i);
    }
    return cpus.failed ? xc_error_nomem(reader->error) : 0;
}
