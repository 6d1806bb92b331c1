/* Which CPUs are there, and which of them share a core, a package, an L3? */
#include <string.h>

#include "reader.h"

#define CPU "/sys/devices/system/cpu"

int32_t node_cpu_index(const struct node_reader *reader, size_t os)
{
    return os < reader->ncpu_index ? reader->cpu_index[os] : XC_NONE;
}

static int make_cpus(struct node_reader *reader, const struct xc_set *present,
                     const struct xc_set *online, const struct xc_set *isolated)
{
    size_t count = xc_set_count(present), top = 0;
    for (ssize_t os = xc_set_next(present, 0); os >= 0; os = xc_set_next(present, (size_t)os + 1))
        top = (size_t)os + 1;
    reader->cpus = calloc(count, sizeof *reader->cpus);
    reader->cpu_index = malloc(top * sizeof *reader->cpu_index);
    if (!reader->cpus || !reader->cpu_index)
        return xc_error_nomem(reader->error);
    for (size_t i = 0; i < top; i++)
        reader->cpu_index[i] = XC_NONE;
    reader->ncpu_index = top;
    for (ssize_t os = xc_set_next(present, 0); os >= 0; os = xc_set_next(present, (size_t)os + 1)) {
        uint32_t flags = (xc_set_has(online, (size_t)os) ? XC_CPU_ONLINE : 0u) |
                         (xc_set_has(isolated, (size_t)os) ? XC_CPU_ISOLATED : 0u);
        reader->cpu_index[os] = (int32_t)reader->ncpus;
        reader->cpus[reader->ncpus++] = (struct xc_cpu){.os = (int32_t)os,
                                                        .core = XC_NONE,
                                                        .package = XC_NONE,
                                                        .numa = XC_NONE,
                                                        .l3 = XC_NONE,
                                                        .flags = flags};
    }
    return 0;
}

static int read_present(struct node_reader *reader)
{
    xc_autoset struct xc_set present = XC_SET_EMPTY, online = XC_SET_EMPTY, isolated = XC_SET_EMPTY;
    int has_present = node_read_set(reader, &present, false, CPU "/present");
    int has_online = node_read_set(reader, &online, false, CPU "/online");
    int has_isolated = node_read_set(reader, &isolated, false, CPU "/isolated");
    if (has_present < 0 || has_online < 0 || has_isolated < 0)
        return -1;
    if (!has_online)
        xc_set_copy(&online, &present); /* a kernel without CPU hotplug */
    xc_set_or(&present, &online);
    if (present.failed || online.failed)
        return xc_error_nomem(reader->error);
    if (xc_set_empty(&online))
        return xc_error_set(reader->error, XC_EINPUT, CPU "/present",
                            "it names no CPU: %s is no machine's root", xc_root_name(reader->root));
    return make_cpus(reader, &present, &online, &isolated);
}

/* Reads who shares something with a CPU from the first file that is there: a list under one of two
 * names (the second is older), then masks. Only the members that are online and not yet in a group
 * (member() is XC_NONE) count, so that files that contradict each other still give a partition. */
static int read_group(struct node_reader *reader, const struct xc_cpu *cpu,
                      const char *const names[2], struct xc_set *out)
{
    for (int mask = 0; mask <= 1; mask++)
        for (int name = 0; name < 2; name++) {
            int found = node_read_set(reader, out, mask, CPU "/cpu%d/topology/%s%s", cpu->os,
                                      names[name], mask ? "" : "_list");
            if (found < 0)
                return -1;
            if (found && xc_set_has(out, (size_t)cpu->os))
                return 1;
        }
    xc_set_clear(out);
    return 0;
}

static struct xc_cpu *online_cpu(struct node_reader *reader, size_t os)
{
    int32_t index = node_cpu_index(reader, os);
    struct xc_cpu *cpu = index >= 0 ? &reader->cpus[index] : NULL;
    return cpu && (cpu->flags & XC_CPU_ONLINE) ? cpu : NULL;
}

static int read_cores(struct node_reader *reader)
{
    static const char *const names[2] = {"core_cpus", "thread_siblings"};
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    for (size_t i = 0; i < reader->ncpus; i++) {
        struct xc_cpu *cpu = &reader->cpus[i];
        if (!(cpu->flags & XC_CPU_ONLINE) || cpu->core >= 0)
            continue;
        if (read_group(reader, cpu, names, &set) < 0)
            return -1;
        xc_set_add(&set, (size_t)cpu->os);
        int32_t thread = 0;
        for (ssize_t os = xc_set_next(&set, 0); os >= 0; os = xc_set_next(&set, (size_t)os + 1)) {
            struct xc_cpu *member = online_cpu(reader, (size_t)os);
            if (member && member->core < 0) {
                member->core = (int32_t)reader->ncores;
                member->thread = thread++;
            }
        }
        reader->ncores++;
    }
    return set.failed ? xc_error_nomem(reader->error) : 0;
}

/* Without lists or masks: the CPUs with this one's physical_package_id. */
static void same_package_id(struct node_reader *reader, const struct xc_cpu *cpu,
                            struct xc_set *out)
{
    long id, other;
    bool known =
        xc_root_read_long(reader->root, &id, CPU "/cpu%d/topology/physical_package_id", cpu->os);
    for (size_t i = 0; i < reader->ncpus; i++) {
        const struct xc_cpu *candidate = &reader->cpus[i];
        if (!(candidate->flags & XC_CPU_ONLINE) || candidate->package >= 0)
            continue;
        bool has = xc_root_read_long(reader->root, &other,
                                     CPU "/cpu%d/topology/physical_package_id", candidate->os);
        if (has == known && (!known || id == other))
            xc_set_add(out, (size_t)candidate->os);
    }
}

static int read_packages(struct node_reader *reader)
{
    static const char *const names[2] = {"package_cpus", "core_siblings"};
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    for (size_t i = 0; i < reader->ncpus; i++) {
        struct xc_cpu *cpu = &reader->cpus[i];
        if (!(cpu->flags & XC_CPU_ONLINE) || cpu->package >= 0)
            continue;
        int found = read_group(reader, cpu, names, &set);
        if (found < 0)
            return -1;
        if (!found)
            same_package_id(reader, cpu, &set);
        xc_set_add(&set, (size_t)cpu->os);
        for (ssize_t os = xc_set_next(&set, 0); os >= 0; os = xc_set_next(&set, (size_t)os + 1)) {
            struct xc_cpu *member = online_cpu(reader, (size_t)os);
            if (member && member->package < 0)
                member->package = (int32_t)reader->npackages;
        }
        reader->npackages++;
    }
    return set.failed ? xc_error_nomem(reader->error) : 0;
}

#define CACHES_MAX 16

/* The index directory of a CPU's L3, tried first where the last CPU had it; XC_NONE: no L3. */
static int find_l3(struct node_reader *reader, int os, int guess)
{
    for (int i = -1; i < CACHES_MAX; i++) {
        long level;
        int index = i < 0 ? guess : i;
        if (xc_root_read_long(reader->root, &level, CPU "/cpu%d/cache/index%d/level", os, index)) {
            if (level == 3)
                return index;
        } else if (i >= 0) {
            break;
        }
    }
    return XC_NONE;
}

static int read_l3(struct node_reader *reader)
{
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    int guess = 3;
    for (size_t i = 0; i < reader->ncpus; i++) {
        struct xc_cpu *cpu = &reader->cpus[i];
        if (!(cpu->flags & XC_CPU_ONLINE) || cpu->l3 >= 0)
            continue;
        int index = find_l3(reader, cpu->os, guess);
        if (index < 0)
            continue;
        guess = index;
        int found = node_read_set(reader, &set, false, CPU "/cpu%d/cache/index%d/shared_cpu_list",
                                  cpu->os, index);
        if (found == 0)
            found = node_read_set(reader, &set, true, CPU "/cpu%d/cache/index%d/shared_cpu_map",
                                  cpu->os, index);
        if (found < 0)
            return -1;
        if (!found || !xc_set_has(&set, (size_t)cpu->os))
            continue;
        for (ssize_t os = xc_set_next(&set, 0); os >= 0; os = xc_set_next(&set, (size_t)os + 1)) {
            struct xc_cpu *member = online_cpu(reader, (size_t)os);
            if (member && member->l3 < 0)
                member->l3 = (int32_t)reader->nl3;
        }
        reader->nl3++;
    }
    return set.failed ? xc_error_nomem(reader->error) : 0;
}

int node_read_cpus(struct node_reader *reader)
{
    if (read_present(reader) < 0 || read_cores(reader) < 0 || read_packages(reader) < 0)
        return -1;
    return read_l3(reader);
}
