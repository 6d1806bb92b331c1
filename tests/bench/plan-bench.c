/* How long does a plan take? 16 tasks on 512 CPUs in 8 NUMA nodes with 16 GPUs and 16 NICs, and larger.
 * Prints one line a case: the median of many runs, as the step engine would make them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xcloud/plan.h>

#define RUNS 501

struct machine {
    struct xc_node node;
    struct xc_cpu *cpus;
    struct xc_numa *numas;
    uint16_t *distance;
    struct xc_pci *pci;
    struct xc_gpu *gpus;
    struct xc_nic *nics;
    int *all;
};

static int add_pci(struct machine *machine, int numa, int parent, uint32_t root)
{
    size_t index = machine->node.npci++;
    machine->pci[index] = (struct xc_pci){.bdf = {.domain = root, .bus = (uint8_t)index},
                                          .parent = parent,
                                          .numa = numa,
                                          .root = root << 8,
                                          .vendor = 0x15b3};
    return (int)index;
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        abort();
    return memory;
}

/* Each GPU has a switch with a NIC, as on an HGX board. */
static void add_devices(struct machine *machine, int nnumas, int ngpus)
{
    for (int i = 0; i < ngpus; i++) {
        int numa = i * nnumas / ngpus, up = add_pci(machine, numa, XC_NONE, (uint32_t)i);
        int down = add_pci(machine, numa, up, (uint32_t)i);
        machine->gpus[i] = (struct xc_gpu){
            .pci = add_pci(machine, numa, down, (uint32_t)i), .minor = i, .numa = numa};
        machine->nics[i] = (struct xc_nic){.pci = add_pci(machine, numa, down, (uint32_t)i),
                                           .numa = numa,
                                           .port = 1,
                                           .state = XC_PORT_ACTIVE};
        snprintf(machine->nics[i].rdma, sizeof machine->nics[i].rdma, "mlx5_%d", i);
        machine->all[i] = i;
    }
}

static struct machine make(int nnumas, int cores, int ngpus)
{
    int ncores = nnumas * cores, ncpus = 2 * ncores;
    struct machine m = {.cpus = need((size_t)ncpus, sizeof *m.cpus),
                        .numas = need((size_t)nnumas, sizeof *m.numas),
                        .distance = need((size_t)(nnumas * nnumas), sizeof *m.distance),
                        .pci = need((size_t)ngpus * 4, sizeof *m.pci),
                        .gpus = need((size_t)ngpus, sizeof *m.gpus),
                        .nics = need((size_t)ngpus, sizeof *m.nics),
                        .all = need((size_t)ngpus, sizeof *m.all)};
    for (int i = 0; i < ncpus; i++)
        m.cpus[i] = (struct xc_cpu){.os = i,
                                    .core = i % ncores,
                                    .package = i % ncores / cores * 2 / nnumas,
                                    .numa = i % ncores / cores,
                                    .thread = i / ncores,
                                    .flags = XC_CPU_ONLINE};
    for (int i = 0; i < nnumas; i++) {
        m.numas[i] = (struct xc_numa){.os = i, .ncpus = (uint32_t)cores * 2};
        for (int j = 0; j < nnumas; j++)
            m.distance[i * nnumas + j] = i == j ? 10 : i * 2 / nnumas == j * 2 / nnumas ? 12 : 32;
    }
    m.node = (struct xc_node){.ncpus = (size_t)ncpus,
                              .ncores = (size_t)ncores,
                              .npackages = 2,
                              .nnumas = (size_t)nnumas,
                              .ngpus = (size_t)ngpus,
                              .nnics = (size_t)ngpus};
    add_devices(&m, nnumas, ngpus);
    m.node.cpus = m.cpus;
    m.node.numas = m.numas;
    m.node.distance = m.distance;
    m.node.pci = m.pci;
    m.node.gpus = m.gpus;
    m.node.nics = m.nics;
    return m;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void bench(const char *name, int nnumas, int cores, int ngpus, unsigned ntasks)
{
    struct machine m = make(nnumas, cores, ngpus);
    static char *export[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES", NULL};
    struct xc_env_rule rule = {.name = "OMP_NUM_THREADS", .value = "${cores}", .line = 1};
    struct xc_rules rules = {.cpus.whole_cores = true,
                             .bind = {.memory = XC_MEMORY_PREFERRED, .min_share = 2},
                             .nics.export_ = export,
                             .env = &rule,
                             .nenv = 1};
    struct xc_request request = {.node = &m.node,
                                 .rules = &rules,
                                 .ntasks = ntasks,
                                 .visible = {.gpus = m.all, .count = (size_t)ngpus}};
    double *times = need(RUNS, sizeof *times);
    for (size_t i = 0; i < RUNS; i++) {
        struct xc_plan *plan = NULL;
        double start = now();
        if (xc_plan_make(&request, &plan, NULL) < 0)
            abort();
        times[i] = now() - start;
        xc_plan_free(plan);
    }
    qsort(times, RUNS, sizeof *times, ascending);
    printf("%-44s median %7.1f us, 95%% %7.1f us\n", name, times[RUNS / 2], times[RUNS * 95 / 100]);
    free(times);
    free(m.cpus);
    free(m.numas);
    free(m.distance);
    free(m.pci);
    free(m.gpus);
    free(m.nics);
    free(m.all);
}

int main(void)
{
    bench("8 tasks, 224 CPUs, 2 nodes, 8 GPUs", 2, 56, 8, 8);
    bench("16 tasks, 512 CPUs, 8 nodes, 16 GPUs", 8, 32, 16, 16);
    bench("1 task, 512 CPUs, 8 nodes, 16 GPUs", 8, 32, 16, 1);
    if (getenv("BIG")) bench("256 tasks, 2048 CPUs, 32 nodes, 16 GPUs", 32, 32, 16, 256);
    return 0;
}
