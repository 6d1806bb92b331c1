/* Which OS CPUs does slurm.conf reserve?
 *
 * Slurm counts abstract CPUs: socket by socket, core by core, thread by thread, in the order in which
 * hwloc's tree holds the cores. CpuSpecList names such numbers and always reserves the whole cores
 * they are on; CoreSpecCount takes the highest core of the highest socket, then the highest of the
 * next lower socket, and so round the sockets (spec_cores_first: from the lowest core of the lowest
 * socket on).
 *
 * What a socket and a core are for that is what slurm.conf says, not what the machine has: with
 * ThreadsPerCore=1 on a machine of two threads a "core" is one thread, and reserving it leaves its
 * sibling to jobs. So is CPUs=N alone: N sockets of one core. The tables of test-node.c are what
 * slurmd 22.05 says that it reserves ("Reserved machine CPU IDs") on the same machines. */
#include <string.h>

#include <xcloud/policy.h>

#include "image.h"

/* A core's place in the tree: the lowest core of each group it is in, outermost group first. */
struct place {
    int32_t package, outer, inner, core;
};

struct cores {
    struct place *order; /* ncores of them, as Slurm counts */
    size_t count, threads;
};

static void free_cores(struct cores *cores)
{
    free(cores->order);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int32_t left[] = {x->package, x->outer, x->inner, x->core};
    const int32_t right[] = {y->package, y->outer, y->inner, y->core};
    for (size_t i = 0; i < XC_COUNT(left); i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static int32_t numa_group(const struct xc_node *node, const struct xc_cpu *cpu)
{
    return xc_node_numa_index(node, cpu->numa);
}

static int32_t l3_group(const struct xc_node *node, const struct xc_cpu *cpu)
{
    (void)node;
    return cpu->l3;
}

/* lowest[group] is the lowest core of each group. A core in no group stands for itself. */
static int32_t lowest_core(int32_t *lowest, int32_t group, int32_t core)
{
    if (group < 0)
        return core;
    if (lowest[group] < 0)
        lowest[group] = core;
    return lowest[group];
}

static void fill_places(const struct xc_node *node, struct cores *cores, int32_t *lowest,
                        size_t ngroups)
{
    /* a few L3s in many nodes are the outer groups, many L3s the inner ones */
    bool l3_outside = node->nl3 < node->nnumas;
    int32_t *lowest_inner = lowest + ngroups;
    memset(lowest, 0xff, 2 * ngroups * sizeof *lowest);
    for (size_t i = 0; i < node->ncpus; i++) {
        const struct xc_cpu *cpu = &node->cpus[i];
        if (cpu->core < 0 || cpu->thread != 0)
            continue;
        int32_t numa = numa_group(node, cpu), l3 = l3_group(node, cpu);
        cores->order[cpu->core] = (struct place){
            .package = cpu->package,
            .outer = lowest_core(lowest, l3_outside ? l3 : numa, cpu->core),
            .inner = lowest_core(lowest_inner, l3_outside ? numa : l3, cpu->core),
            .core = cpu->core,
        };
    }
}

/* Threads of a core; all must have as many, Slurm has one number for a node. */
static int count_threads(const struct xc_node *node, struct cores *cores, struct xc_error *error)
{
    xc_autofree size_t *threads = calloc(node->ncores, sizeof *threads);
    if (!threads)
        return xc_error_nomem(error);
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].core >= 0)
            threads[node->cpus[i].core]++;
    for (size_t i = 1; i < node->ncores; i++)
        if (threads[i] != threads[0])
            return xc_error_set(error, XC_ENOTSUP, NULL,
                                "Slurm's CPU numbers are not known where cores have different "
                                "numbers of threads (%zu and %zu)",
                                threads[0], threads[i]);
    cores->threads = threads[0];
    return 0;
}

static int make_cores(const struct xc_node *node, struct cores *cores, struct xc_error *error)
{
    cores->count = node->ncores;
    if (node->ncores == 0 || node->npackages == 0)
        return xc_error_set(error, XC_EINPUT, NULL, "the machine has no core");
    size_t ngroups = (node->nl3 > node->nnumas ? node->nl3 : node->nnumas) + 1;
    xc_autofree int32_t *lowest = malloc(2 * ngroups * sizeof *lowest);
    cores->order = calloc(node->ncores, sizeof *cores->order);
    if (!lowest || !cores->order)
        return xc_error_nomem(error);
    if (count_threads(node, cores, error) < 0)
        return -1;
    fill_places(node, cores, lowest, ngroups);
    qsort(cores->order, cores->count, sizeof *cores->order, by_place);
    return 0;
}

/* ---- what slurm.conf counts ------------------------------------------------------------------------ */

struct geometry {
    size_t sockets, cores, threads; /* cores a socket, threads a core */
    bool ids_are_cores;             /* CPUs= counts cores, and so does CpuSpecList */
};

static int geometry_of(const struct xc_node *node, const struct cores *cores,
                       const struct xc_slurm_node *slurm, struct geometry *out,
                       struct xc_error *error)
{
    size_t has = cores->count * cores->threads;
    if (!slurm->sockets && !slurm->cores_per_socket && !slurm->threads_per_core && !slurm->cpus) {
        *out = (struct geometry){node->npackages, cores->count / node->npackages, cores->threads,
                                 false};
    } else { /* Slurm's own defaults */
        size_t per_socket = slurm->cores_per_socket ? slurm->cores_per_socket : 1;
        size_t threads = slurm->threads_per_core ? slurm->threads_per_core : 1;
        size_t sockets = slurm->sockets                       ? slurm->sockets
                         : slurm->cpus > per_socket * threads ? slurm->cpus / (per_socket * threads)
                                                              : 1;
        *out = (struct geometry){sockets, per_socket, threads, false};
    }
    out->ids_are_cores = slurm->cpus && slurm->cpus <= out->sockets * out->cores;
    if (out->sockets > has || out->cores > has || out->threads > has ||
        out->sockets * out->cores * out->threads > has)
        return xc_error_set(
            error, XC_EINPUT, NULL,
            "slurm.conf counts %zu sockets of %zu cores of %zu threads, the machine "
            "has %zu CPUs",
            out->sockets, out->cores, out->threads, has);
    return 0;
}

/* CpuSpecList: abstract CPU numbers to positions of cores. */
static int from_list(const struct geometry *geometry, const struct xc_slurm_node *slurm,
                     struct xc_set *out, struct xc_error *error)
{
    size_t total = geometry->sockets * geometry->cores;
    size_t threads = geometry->ids_are_cores ? 1 : geometry->threads;
    const struct xc_set *list = &slurm->cpu_spec_list;
    for (ssize_t id = xc_set_next(list, 0); id >= 0; id = xc_set_next(list, (size_t)id + 1)) {
        if ((size_t)id / threads >= total)
            return xc_error_set(error, XC_EINPUT, NULL,
                                "slurm.conf's CpuSpecList names CPU %zd, but it numbers %zu cores "
                                "0-%zu",
                                id, total, total * threads - 1);
        xc_set_add(out, (size_t)id / threads);
    }
    return 0;
}

/* CoreSpecCount: round the sockets from one end. */
static int from_count(const struct geometry *geometry, const struct xc_slurm_node *slurm,
                      struct xc_set *out, struct xc_error *error)
{
    size_t sockets = geometry->sockets, per_socket = geometry->cores;
    size_t wanted = slurm->core_spec_count;
    if (wanted >= sockets * per_socket)
        return xc_error_set(error, XC_EINPUT, NULL,
                            "slurm.conf's CoreSpecCount=%zu leaves none of %zu cores", wanted,
                            sockets * per_socket);
    for (size_t core = 0; core < per_socket; core++)
        for (size_t socket = 0; socket < sockets && wanted > 0; socket++, wanted--) {
            size_t c = slurm->spec_cores_first ? core : per_socket - 1 - core;
            size_t s = slurm->spec_cores_first ? socket : sockets - 1 - socket;
            xc_set_add(out, s * per_socket + c);
        }
    return 0;
}

/* ---- the CPUs --------------------------------------------------------------------------------------- */

/* OS CPUs of slurm.conf's cores in `positions`: their threads are the next abstract CPUs, counted
 * over the machine's own cores. */
static int to_cpus(const struct xc_node *node, const struct cores *cores,
                   const struct geometry *geometry, const struct xc_set *positions,
                   struct xc_set *out, struct xc_error *error)
{
    xc_autofree int32_t *os = calloc(cores->count * cores->threads, sizeof *os);
    if (!os)
        return xc_error_nomem(error);
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].core >= 0 && (size_t)node->cpus[i].thread < cores->threads)
            os[(size_t)node->cpus[i].core * cores->threads + (size_t)node->cpus[i].thread] =
                node->cpus[i].os;
    for (ssize_t p = xc_set_next(positions, 0); p >= 0; p = xc_set_next(positions, (size_t)p + 1))
        for (size_t thread = 0; thread < geometry->threads; thread++) {
            size_t id = (size_t)p * geometry->threads + thread;
            size_t core = (size_t)cores->order[id / cores->threads].core;
            xc_set_add(out, (size_t)os[core * cores->threads + id % cores->threads]);
        }
    return positions->failed || out->failed ? xc_error_nomem(error) : 0;
}

int xc_node_slurm_spec(const struct xc_node *node, const struct xc_slurm_node *slurm,
                       struct xc_set *out, struct xc_error *error)
{
    xc_cleanup(free_cores) struct cores cores = {0};
    xc_autoset struct xc_set positions = XC_SET_EMPTY;
    struct geometry geometry;
    xc_set_clear(out);
    bool listed = !xc_set_empty(&slurm->cpu_spec_list);
    if (!listed && slurm->core_spec_count == 0)
        return 0;
    if (make_cores(node, &cores, error) < 0 ||
        geometry_of(node, &cores, slurm, &geometry, error) < 0)
        return -1;
    int rc = listed ? from_list(&geometry, slurm, &positions, error)
                    : from_count(&geometry, slurm, &positions, error);
    return rc < 0 ? -1 : to_cpus(node, &cores, &geometry, &positions, out, error);
}

int xc_node_abstract_ids(const struct xc_node *node, const struct xc_set *os, struct xc_set *out,
                         struct xc_error *error)
{
    xc_cleanup(free_cores) struct cores cores = {0};
    xc_autoset struct xc_set held = XC_SET_EMPTY;
    xc_set_clear(out);
    for (ssize_t cpu = xc_set_next(os, 0); cpu >= 0; cpu = xc_set_next(os, (size_t)cpu + 1)) {
        int index = xc_node_cpu_index(node, (int)cpu);
        if (index < 0 || node->cpus[index].core < 0)
            return xc_error_set(error, XC_EINPUT, NULL, "CPU %zd is not there or offline", cpu);
        xc_set_add(&held, (size_t)node->cpus[index].core);
    }
    if (make_cores(node, &cores, error) < 0)
        return -1;
    for (size_t position = 0; position < cores.count; position++)
        if (xc_set_has(&held, (size_t)cores.order[position].core))
            xc_set_add_range(out, position * cores.threads, (position + 1) * cores.threads - 1);
    return held.failed || out->failed ? xc_error_nomem(error) : 0;
}
