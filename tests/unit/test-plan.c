/* Is the plan right? Machines are built here in a few lines each; the invariants are then asked of many
 * random machines and requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <xcloud/plan.h>

/* ---- a small machine builder ----------------------------------------------------------------------- */

#define BOX_CPUS  4096
#define BOX_NUMAS 64
#define BOX_PCI   160

struct box {
    struct xc_node node;
    struct xc_cpu cpus[BOX_CPUS];
    struct xc_numa numas[BOX_NUMAS];
    uint16_t distance[BOX_NUMAS * BOX_NUMAS];
    struct xc_pci pci[BOX_PCI];
    struct xc_gpu gpus[32];
    struct xc_nic nics[64];
    struct xc_rules rules;
    int all[32]; /* 0, 1, 2, ... */
};

/* packages x numas nodes of `cores` cores; Linux numbers first threads first. */
static struct box *box_new(int packages, int numas, int cores, int threads)
{
    struct box *box = calloc(1, sizeof *box);
    assert_non_null(box);
    int nnumas = packages * numas, ncores = nnumas * cores;
    for (int i = 0; i < ncores * threads; i++) {
        int core = i % ncores, numa = core / cores;
        box->cpus[i] = (struct xc_cpu){.os = i,
                                       .core = core,
                                       .package = numa / numas,
                                       .numa = numa,
                                       .l3 = numa,
                                       .thread = i / ncores,
                                       .flags = XC_CPU_ONLINE};
    }
    for (int i = 0; i < nnumas; i++) {
        box->numas[i] = (struct xc_numa){.os = i, .ncpus = (uint32_t)(cores * threads)};
        for (int j = 0; j < nnumas; j++)
            box->distance[i * nnumas + j] = i == j ? 10 : i / numas == j / numas ? 12 : 32;
    }
    for (int i = 0; i < 32; i++)
        box->all[i] = i;
    box->node = (struct xc_node){.arch = "x86_64",
                                 .ncpus = (size_t)(ncores * threads),
                                 .ncores = (size_t)ncores,
                                 .npackages = (size_t)packages,
                                 .nnumas = (size_t)nnumas,
                                 .cpus = box->cpus,
                                 .numas = box->numas,
                                 .distance = box->distance,
                                 .pci = box->pci,
                                 .gpus = box->gpus,
                                 .nics = box->nics};
    box->rules.cpus.whole_cores = true;
    box->rules.bind.gpus = XC_GPUS_ORDER;
    box->rules.bind.smt = XC_SMT_ALL;
    box->rules.bind.memory = XC_MEMORY_PREFERRED;
    return box;
}

static int box_pci(struct box *box, int numa, int parent, uint32_t root)
{
    size_t index = box->node.npci++;
    box->pci[index] = (struct xc_pci){.bdf = {.bus = (uint8_t)(index + 1)},
                                      .parent = parent,
                                      .numa = numa,
                                      .root = root,
                                      .vendor = 0x15b3,
                                      .device = 0x1021};
    return (int)index;
}

/* A switch with a GPU and some NICs, in a root complex of its own. gpu and nics may be 0. */
static void box_switch(struct box *box, int numa, int gpus, int nics)
{
    int up = box_pci(box, numa, XC_NONE, (uint32_t)box->node.npci);
    uint32_t root = (uint32_t)up;
    int sw = box_pci(box, numa, up, root);
    for (int i = 0; i < gpus; i++)
        box->gpus[box->node.ngpus++] = (struct xc_gpu){
            .pci = box_pci(box, numa, sw, root), .minor = (int)box->node.ngpus, .numa = numa};
    for (int i = 0; i < nics; i++) {
        struct xc_nic *nic = &box->nics[box->node.nnics];
        *nic = (struct xc_nic){.pci = box_pci(box, numa, sw, root),
                               .numa = numa,
                               .port = 1,
                               .state = XC_PORT_ACTIVE,
                               .link = XC_NIC_INFINIBAND};
        snprintf(nic->rdma, sizeof nic->rdma, "mlx5_%zu", box->node.nnics++);
    }
}

static struct box *hgx(void)
{
    struct box *box = box_new(2, 1, 56, 2);
    for (int i = 0; i < 8; i++)
        box_switch(box, i / 4, 1, 1);
    return box;
}

static struct box *a100(void)
{
    static const int numas[] = {3, 1, 7, 5};
    struct box *box = box_new(2, 4, 16, 2);
    for (int i = 0; i < 4; i++)
        box_switch(box, numas[i], 2, 2);
    return box;
}

static void box_housekeeping(struct box *box, const char *list)
{
    struct xc_set set = XC_SET_EMPTY;
    assert_int_equal(xc_set_parse_list(&set, list, NULL, NULL), 0);
    for (size_t i = 0; i < box->node.ncpus; i++)
        if (xc_set_has(&set, i))
            box->cpus[i].flags |= XC_CPU_SLURM_SPEC;
    xc_set_free(&set);
    box->rules.cpus.housekeeping = XC_HK_SLURM;
}

static struct xc_request box_request(struct box *box, unsigned ntasks)
{
    return (struct xc_request){.node = &box->node,
                               .rules = &box->rules,
                               .ntasks = ntasks,
                               .visible = {.gpus = box->all, .count = box->node.ngpus}};
}

static struct xc_plan *planned(const struct xc_request *request)
{
    struct xc_plan *plan = NULL;
    struct xc_error error = {0};
    if (xc_plan_make(request, &plan, &error) < 0)
        fail_msg("%s", error.message);
    return plan;
}

static void expect_set(const struct xc_set *set, const char *expected)
{
    char *text = xc_set_format(set);
    assert_string_equal(text, expected);
    free(text);
}

static const char *note_with(const struct xc_plan *plan, enum xc_note_kind kind, const char *part)
{
    for (size_t i = 0; i < plan->nnotes; i++)
        if (plan->notes[i].kind == kind && strstr(plan->notes[i].text, part))
            return plan->notes[i].text;
    return NULL;
}

static const char *env_of(const struct xc_plan_task *task, const char *name)
{
    for (size_t i = 0; i < task->nenv; i++)
        if (xc_streq(task->env[i].name, name))
            return task->env[i].value;
    return NULL;
}

/* ---- cases ------------------------------------------------------------------------------------------ */

static void housekeeping_stays_free_and_ranks_share_the_rest(void **state)
{
    (void)state;
    struct box *box = hgx();
    box_housekeeping(box, "0-7,56-63");
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->housekeeping, "0-7,56-63,112-119,168-175");
    assert_true(plan->narrowed);
    expect_set(&plan->tasks[0].cpus, "8-19,120-131");
    expect_set(&plan->tasks[4].cpus, "64-75,176-187");
    for (int i = 0; i < 8; i++) {
        const struct xc_plan_task *task = &plan->tasks[i];
        assert_int_equal(task->cores, 12);
        assert_false(xc_set_intersects(&task->cpus, &plan->housekeeping));
        expect_set(&task->mems, i < 4 ? "0" : "1");
        assert_int_equal(task->mem_mode, XC_MEMORY_PREFERRED);
        assert_int_equal(task->ngpus, 1);
        assert_int_equal(task->gpus[0], i);
        assert_int_equal(task->nnics, 1);
        assert_int_equal(task->nics[0].nic, i);
        assert_int_equal(task->nics[0].path, XC_PATH_PIX);
    }
    assert_true(xc_set_empty(&plan->unused));
    xc_plan_free(plan);
    free(box);
}

static void all_cores_are_used_where_gpus_sit_on_half_of_the_nodes(void **state)
{
    (void)state;
    struct box *box = a100();
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    static const char *const mems[] = {"2-3", "2-3", "0-1", "0-1", "6-7", "6-7", "4-5", "4-5"};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(plan->tasks[i].cores, 16);
        expect_set(&plan->tasks[i].mems, mems[i]);
        struct xc_set own = XC_SET_EMPTY;
        xc_node_numa_cpus(&box->node, box->gpus[i].numa, &own);
        assert_int_equal(xc_set_common(&own, &plan->tasks[i].cpus), 16); /* 8 cores, 2 threads */
        xc_set_free(&own);
    }
    assert_true(xc_set_empty(&plan->unused));
    xc_plan_free(plan);
    free(box);
}

static void tasks_share_gpus_in_contiguous_groups(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_request request = box_request(box, 3);
    struct xc_plan *plan = planned(&request);
    static const size_t counts[] = {3, 3, 2};
    int next = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(plan->tasks[i].ngpus, counts[i]);
        for (size_t k = 0; k < counts[i]; k++)
            assert_int_equal(plan->tasks[i].gpus[k], next++);
    }
    expect_set(&plan->tasks[0].mems, "0");
    expect_set(&plan->tasks[1].mems, "0-1");
    xc_plan_free(plan);
    request.ntasks = 18; /* 3 3 2 2 2 2 2 2 */
    plan = planned(&request);
    static const int gpus[] = {0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
    for (int i = 0; i < 18; i++)
        assert_int_equal(plan->tasks[i].gpus[0], gpus[i]);
    xc_plan_free(plan);
    free(box);
}

static void gpus_keep_the_order_that_the_program_sees(void **state)
{
    (void)state;
    struct box *box = hgx();
    static const int order[] = {6, 1};
    struct xc_request request = box_request(box, 2);
    request.visible = (struct xc_gpu_list){.gpus = order, .count = 2};
    box->rules.bind.gpus = XC_GPUS_RESTRICT;
    struct xc_plan *plan = planned(&request);
    assert_int_equal(plan->tasks[0].gpus[0], 6);
    expect_set(&plan->tasks[0].mems, "1");
    expect_set(&plan->tasks[1].mems, "0");
    assert_string_equal(env_of(&plan->tasks[0], "CUDA_VISIBLE_DEVICES"), "0");
    assert_string_equal(env_of(&plan->tasks[1], "CUDA_VISIBLE_DEVICES"), "1");
    xc_plan_free(plan);
    box->gpus[1].mig = 1;
    plan = planned(&request);
    assert_null(env_of(&plan->tasks[1], "CUDA_VISIBLE_DEVICES"));
    assert_non_null(note_with(plan, XC_NOTE_WARN, "MIG"));
    xc_plan_free(plan);
    free(box);
}

static void one_task_for_all_gpus_is_left_wide_and_carries_shares(void **state)
{
    (void)state;
    struct box *box = hgx();
    box_housekeeping(box, "0-7,56-63");
    static char *exports[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES", NULL};
    box->rules.nics.export_ = exports;
    struct xc_env_rule rule = {
        .name = "OMP_NUM_THREADS", .value = "${cores}", .set = XC_ENV_DEFAULT, .line = 9};
    box->rules.env = &rule;
    box->rules.nenv = 1;
    struct xc_request request = box_request(box, 1);
    struct xc_plan *plan = planned(&request);
    assert_int_equal(plan->tasks[0].cores, 96);
    assert_int_equal(plan->tasks[0].mem_mode, XC_MEMORY_NONE);
    assert_true(xc_set_empty(&plan->tasks[0].mems));
    static const char start[] =
        "1;cpus=8-19,120-131 mems=0 mem=preferred OMP_NUM_THREADS?=12?96 "
        "UCX_NET_DEVICES?=mlx5_0:1?mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,"
        "mlx5_7:1;cpus=20-31,132-143 ";
    assert_memory_equal(plan->shares, start, sizeof start - 1);
    assert_string_equal(env_of(&plan->tasks[0], "XCLOUD_PLAN"), plan->shares);
    assert_string_equal(env_of(&plan->tasks[0], "NCCL_IB_HCA"),
                        "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1");
    xc_plan_free(plan);
    free(box);
}

static void variables_are_filled_in(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_env_rule rules[] = {
        {.name = "A", .value = "c${cores}g${gpus}n${nics}r${local_rank}", .line = 3},
        {.name = "B", .value = "$x${other}$", .set = XC_ENV_FORCE, .line = 4},
        {.name = "C", .set = XC_ENV_FORBID, .line = 5}};
    box->rules.env = rules;
    box->rules.nenv = 3;
    struct xc_request request = box_request(box, 4);
    struct xc_plan *plan = planned(&request);
    const struct xc_plan_task *task = &plan->tasks[2];
    assert_string_equal(env_of(task, "A"), "c28g2n2r2");
    assert_string_equal(env_of(task, "B"), "$x${other}$");
    assert_null(env_of(task, "C"));
    assert_int_equal(task->env[2].set, XC_ENV_FORBID);
    assert_int_equal(task->env[1].line, 4);
    xc_plan_free(plan);
    free(box);
}

static void nics_are_selected_and_only_active_ones_used(void **state)
{
    (void)state;
    struct box *box = hgx();
    static char *exports[] = {"NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES", NULL};
    static char *not_[] = {"mlx5_7", NULL}, *names[] = {"mlx5_[", NULL}, *pci[] = {"15b3:*", NULL};
    box->rules.nics.pci = pci;
    box->rules.nics.not_ = not_;
    box->rules.nics.export_ = exports;
    box->nics[3].state = XC_PORT_DOWN;
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_WARN, "mlx5_3 is DOWN: left out"));
    assert_null(note_with(plan, XC_NOTE_WARN, "mlx5_7"));
    assert_string_equal(env_of(&plan->tasks[0], "NCCL_IB_HCA"),
                        "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_4:1,mlx5_5:1,mlx5_6:1");
    assert_string_equal(env_of(&plan->tasks[7], "NVSHMEM_HCA_LIST"),
                        "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_4:1,mlx5_5:1,mlx5_6:1");
    assert_string_equal(env_of(&plan->tasks[1], "UCX_NET_DEVICES"), "mlx5_1:1");
    assert_int_equal(plan->tasks[3].nics[0].path, XC_PATH_NODE);
    xc_plan_free(plan);
    box->rules.nics.names = names;
    plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_WARN, "matches none"));
    assert_int_equal(plan->tasks[0].nnics, 0);
    assert_null(env_of(&plan->tasks[0], "NCCL_IB_HCA"));
    xc_plan_free(plan);
    free(box);
}

static void two_rails_a_gpu_and_shared_gpus_split_them(void **state)
{
    (void)state;
    struct box *box = box_new(2, 1, 64, 1);
    for (int i = 0; i < 8; i++)
        box_switch(box, i / 4, 1, 2);
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(plan->tasks[i].nnics, 2);
        assert_int_equal(plan->tasks[i].nics[0].nic, 2 * i);
        assert_int_equal(plan->tasks[i].nics[1].nic, 2 * i + 1);
    }
    xc_plan_free(plan);
    request.ntasks = 16;
    plan = planned(&request);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(plan->tasks[i].nnics, 1);
        assert_int_equal(plan->tasks[i].nics[0].nic, i);
    }
    xc_plan_free(plan);
    free(box);
}

static void equally_near_nics_go_to_different_ranks(void **state)
{
    (void)state;
    struct box *box = a100();
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(plan->tasks[i].nnics, 1);
        assert_int_equal(plan->tasks[i].nics[0].nic, i);
    }
    xc_plan_free(plan);
    static const int odd[] = {1, 0}; /* both may have 0 and 1; each keeps its own rail */
    request.visible = (struct xc_gpu_list){.gpus = odd, .count = 2};
    request.ntasks = 2;
    plan = planned(&request);
    assert_int_equal(plan->tasks[0].nics[0].nic, 1);
    assert_int_equal(plan->tasks[1].nics[0].nic, 0);
    xc_plan_free(plan);
    free(box);
}

static void without_gpus_ranks_are_spread(void **state)
{
    (void)state;
    struct box *box = box_new(2, 4, 8, 2);
    struct xc_request request = box_request(box, 4);
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->tasks[0].cpus, "0-15,64-79");
    expect_set(&plan->tasks[0].mems, "0-1");
    expect_set(&plan->tasks[3].cpus, "48-63,112-127");
    xc_plan_free(plan);
    request.ntasks = 16;
    plan = planned(&request);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(plan->tasks[i].cores, 4);
        assert_int_equal(xc_set_count(&plan->tasks[i].mems), 1);
        assert_true(xc_set_has(&plan->tasks[i].mems, (size_t)i / 2));
    }
    xc_plan_free(plan);
    free(box);
}

static void housekeeping_cpus_that_are_not_there_are_named(void **state)
{
    (void)state;
    struct box *box = hgx();
    char list[] = "0-7,5000";
    box->rules.cpus.housekeeping = XC_HK_LIST;
    box->rules.cpus.housekeeping_list.text = list;
    struct xc_request request = box_request(box, 2);
    struct xc_plan *plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_INFO, "CPUs 5000 are not online"));
    expect_set(&plan->housekeeping, "0-7,112-119");
    xc_plan_free(plan);
    free(box);
}

static void a_step_is_not_narrowed_below_its_min_share(void **state)
{
    (void)state;
    struct box *box = hgx();
    box_housekeeping(box, "0-7");
    box->rules.bind.min_share = 2;
    struct xc_set cpus = XC_SET_EMPTY;
    assert_int_equal(xc_set_parse_list(&cpus, "6-9,118-121", NULL, NULL), 0);
    struct xc_request request = box_request(box, 2);
    request.cpus = &cpus;
    struct xc_plan *plan = planned(&request);
    assert_true(xc_set_equal(&plan->training, &cpus));
    assert_false(plan->narrowed);
    assert_non_null(note_with(plan, XC_NOTE_WARN, "2 of 4 cores would be left"));
    xc_plan_free(plan);
    box->rules.bind.min_share = 1;
    plan = planned(&request);
    expect_set(&plan->training, "8-9,120-121");
    assert_true(plan->narrowed);
    xc_plan_free(plan);
    /* the whole machine is narrowed all the same, and that it is not enough is said */
    box->rules.bind.min_share = 500;
    request.cpus = NULL;
    plan = planned(&request);
    assert_true(plan->narrowed);
    assert_non_null(note_with(plan, XC_NOTE_WARN, "less than the policy's min_share of 500"));
    xc_plan_free(plan);
    xc_set_free(&cpus);
    free(box);
}

static void one_core_of_many_gets_a_hint(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_set cpus = XC_SET_EMPTY;
    xc_set_add(&cpus, 3);
    struct xc_request request = box_request(box, 1);
    request.cpus = &cpus;
    request.visible.count = 1;
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->tasks[0].cpus, "3");
    assert_non_null(note_with(plan, XC_NOTE_HINT, "--exclusive"));
    xc_plan_free(plan);
    request.job_cores = 11;
    plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_HINT, "the job's 12 cores on this node: srun -c 24"));
    xc_plan_free(plan);
    request.cpus = NULL;
    plan = planned(&request);
    assert_null(note_with(plan, XC_NOTE_HINT, "srun"));
    xc_plan_free(plan);
    xc_set_free(&cpus);
    free(box);
}

static void a_remote_gpu_is_said_and_bound_to_what_is_allowed(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_set cpus = XC_SET_EMPTY;
    xc_set_add_range(&cpus, 0, 15);
    static const int gpus[] = {0, 4};
    struct xc_request request = box_request(box, 2);
    request.cpus = &cpus;
    request.visible = (struct xc_gpu_list){.gpus = gpus, .count = 2};
    struct xc_plan *plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_WARN, "GPU 4 is remote"));
    assert_null(note_with(plan, XC_NOTE_WARN, "GPU 0 is remote"));
    assert_int_equal(plan->tasks[1].cores, 8);
    expect_set(&plan->tasks[1].mems, "0");
    xc_plan_free(plan);
    xc_set_free(&cpus);
    free(box);
}

static void isolated_tasks_get_a_hint(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_gpu_list tasks[] = {{.gpus = &box->all[5], .count = 1},
                                  {.gpus = &box->all[2], .count = 1}};
    struct xc_request request = box_request(box, 2);
    request.tasks = tasks;
    struct xc_plan *plan = planned(&request);
    assert_non_null(note_with(plan, XC_NOTE_HINT, "allow-task-sharing"));
    expect_set(&plan->tasks[0].mems, "1");
    xc_plan_free(plan);
    tasks[1].gpus = &box->all[5];
    plan = planned(&request);
    assert_null(note_with(plan, XC_NOTE_HINT, "allow-task-sharing"));
    assert_int_equal(plan->tasks[1].gpus[0], 5);
    xc_plan_free(plan);
    free(box);
}

static void memory_only_nodes_and_forbidden_ones_are_never_used(void **state)
{
    (void)state;
    struct box *box = box_new(2, 1, 72, 1);
    for (int i = 0; i < 4; i++)
        box_switch(box, i / 2, 1, 1);
    box->numas[2] = (struct xc_numa){.os = 2};
    box->numas[3] = (struct xc_numa){.os = 10};
    static const uint16_t slit[] = {10, 40, 80, 80, 40, 10, 80, 80, 80, 80, 10, 80, 80, 80, 80, 10};
    memcpy(box->distance, slit, sizeof slit);
    box->node.nnumas = 4;
    struct xc_set mems = XC_SET_EMPTY;
    xc_set_add_range(&mems, 1, 10);
    struct xc_request request = box_request(box, 4);
    struct xc_plan *plan = planned(&request);
    for (int i = 0; i < 4; i++)
        expect_set(&plan->tasks[i].mems, i < 2 ? "0" : "1");
    xc_plan_free(plan);
    request.mems = &mems;
    plan = planned(&request);
    assert_int_equal(plan->tasks[0].mem_mode, XC_MEMORY_NONE);
    assert_true(xc_set_empty(&plan->tasks[0].mems));
    expect_set(&plan->tasks[3].mems, "1");
    xc_plan_free(plan);
    xc_set_free(&mems);
    free(box);
}

static void every_rank_gets_its_priority_cores(void **state)
{
    (void)state;
    struct box *box = box_new(2, 1, 64, 2);
    for (int i = 0; i < 8; i++)
        box_switch(box, i / 4, 1, 1);
    for (size_t i = 0; i < box->node.ncpus; i++)
        if (box->cpus[i].core % 16 < 2)
            box->cpus[i].flags |= XC_CPU_PRIORITY;
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->tasks[0].priority, "0-1,128-129");
    expect_set(&plan->tasks[0].cpus, "0-15,128-143");
    expect_set(&plan->tasks[5].priority, "80-81,208-209");
    xc_plan_free(plan);
    request.ntasks = 3;
    plan = planned(&request);
    for (int i = 0; i < 3; i++)
        assert_in_range(xc_set_count(&plan->tasks[i].priority), 10, 12);
    xc_plan_free(plan);
    box->rules.cpus.priority = XC_PRIORITY_OFF;
    plan = planned(&request);
    assert_true(xc_set_empty(&plan->tasks[0].priority));
    xc_plan_free(plan);
    free(box);
}

static void smt_first_takes_one_thread_a_core(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_words words = {.smt = XC_SMT_FIRST, .memory = XC_MEMORY_BIND};
    struct xc_set cpus = XC_SET_EMPTY; /* core 0 may be used by its second thread alone */
    xc_set_add_range(&cpus, 1, 223);
    struct xc_request request = box_request(box, 8);
    request.words = &words;
    request.cpus = &cpus;
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->tasks[0].cpus, "1-13,112");
    expect_set(&plan->unused, "113-223");
    assert_int_equal(plan->tasks[0].mem_mode, XC_MEMORY_BIND);
    xc_plan_free(plan);
    xc_set_free(&cpus);
    free(box);
}

static void more_tasks_than_cores_share_whole_cores(void **state)
{
    (void)state;
    struct box *box = box_new(1, 1, 2, 2);
    struct xc_request request = box_request(box, 5);
    struct xc_plan *plan = planned(&request);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(plan->tasks[i].cores, 1);
        assert_int_equal(xc_set_count(&plan->tasks[i].cpus), 2);
    }
    assert_true(xc_set_empty(&plan->unused));
    xc_plan_free(plan);
    free(box);
}

static void the_last_rank_is_not_starved(void **state)
{
    (void)state;
    /* ranks 0 and 1 are as near to node 1 as to node 2, rank 2 is at home on node 1 */
    struct box *box = box_new(1, 3, 4, 1);
    static const uint16_t slit[] = {10, 12, 12, 12, 10, 20, 12, 20, 10};
    memcpy(box->distance, slit, sizeof slit);
    box_switch(box, 0, 2, 0);
    box_switch(box, 1, 1, 0);
    struct xc_request request = box_request(box, 3);
    struct xc_plan *plan = planned(&request);
    expect_set(&plan->tasks[2].cpus, "4-7");
    expect_set(&plan->tasks[0].cpus, "0-1,8-9");
    expect_set(&plan->tasks[1].cpus, "2-3,10-11");
    xc_plan_free(plan);
    free(box);
}

static void json_and_picture_escape_what_they_are_given(void **state)
{
    (void)state;
    struct box *box = hgx();
    box_housekeeping(box, "0-7,56-63");
    snprintf(box->nics[0].rdma, sizeof box->nics[0].rdma, "<&\">\x01\xff");
    struct xc_request request = box_request(box, 8);
    struct xc_plan *plan = planned(&request);
    struct xc_text text = XC_TEXT_INIT;
    xc_plan_svg(plan, &box->node, "<script>&\"", &text);
    char *svg = xc_text_take(&text);
    assert_non_null(strstr(svg, "&lt;script&gt;&amp;&quot;: 8 tasks"));
    assert_non_null(strstr(svg, ">&lt;&amp;&quot;&gt;?"
                                "?<"));
    assert_null(strstr(svg, "<script"));
    free(svg);
    struct xc_json json;
    xc_json_begin(&json, &text, false);
    xc_plan_json(plan, &box->node, "a \"b\"", &json);
    char *out = xc_text_take(&text);
    static const char start[] =
        "{\"machine\":\"a \\\"b\\\"\",\"housekeeping\":\"0-7,56-63,112-119,168-175\",\"tasks\":["
        "{\"local_rank\":0,\"cpus\":\"8-19,120-131\",\"cores\":12,\"mems\":\"0\","
        "\"mem_mode\":\"preferred\",\"gpus\":[{\"index\":0,\"bdf\":\"0000:03:00.0\",\"numa\":0}],"
        "\"nics\":[{\"name\":\"<&\\\">\\u0001";
    assert_memory_equal(out, start, sizeof start - 1);
    free(out);
    xc_plan_free(plan);
    free(box);
}

static void wrong_requests_are_errors(void **state)
{
    (void)state;
    struct box *box = hgx();
    struct xc_plan *plan = NULL;
    struct xc_error error = {0};
    struct xc_request request = box_request(box, 0);
    assert_int_equal(xc_plan_make(&request, &plan, &error), -1);
    request = box_request(box, 2);
    static const int none[] = {8};
    request.visible = (struct xc_gpu_list){.gpus = none, .count = 1};
    assert_int_equal(xc_plan_make(&request, &plan, &error), -1);
    assert_non_null(strstr(error.message, "no GPU 8"));
    struct xc_set cpus = XC_SET_EMPTY;
    xc_set_add(&cpus, 999);
    request = box_request(box, 2);
    request.cpus = &cpus;
    assert_int_equal(xc_plan_make(&request, &plan, &error), -1);
    assert_non_null(strstr(error.message, "online"));
    xc_set_free(&cpus);
    free(box);
}

/* ---- invariants ---------------------------------------------------------------------------------------- */

static uint64_t seed = 20261130;

static int pick(int low, int high)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int)((seed >> 33) % (uint64_t)(high - low + 1));
}

static size_t cores_of(const struct box *box, const struct xc_set *cpus, struct xc_set *cores)
{
    xc_set_clear(cores);
    for (size_t i = 0; i < box->node.ncpus; i++)
        if (xc_set_has(cpus, (size_t)box->cpus[i].os))
            xc_set_add(cores, (size_t)box->cpus[i].core);
    return xc_set_count(cores);
}

static void check_plan(const struct box *box, const struct xc_request *request,
                       const struct xc_plan *plan)
{
    struct xc_set cores = XC_SET_EMPTY, seen = XC_SET_EMPTY, with_cpus = XC_SET_EMPTY;
    size_t total = cores_of(box, &plan->training, &cores), low = SIZE_MAX, high = 0;
    size_t plow = SIZE_MAX, phigh = 0, gpu = 0;
    assert_true(total > 0);
    xc_node_cpu_numas(&box->node, &with_cpus);
    for (unsigned i = 0; i < plan->ntasks; i++) {
        const struct xc_plan_task *task = &plan->tasks[i];
        assert_false(xc_set_empty(&task->cpus));
        assert_true(xc_set_subset(&task->cpus, &plan->training));
        assert_true(xc_set_subset(&task->priority, &task->cpus));
        assert_true(xc_set_subset(&task->mems, &with_cpus));
        assert_true(xc_set_empty(&task->mems) == (task->mem_mode == XC_MEMORY_NONE));
        size_t count = cores_of(box, &task->cpus, &cores), fast;
        assert_int_equal(count, task->cores);
        if (plan->ntasks <= total) {
            assert_false(xc_set_intersects(&seen, &cores)); /* no core in two tasks */
            xc_set_or(&seen, &cores);
            fast = cores_of(box, &task->priority, &cores);
            plow = fast < plow ? fast : plow;
            phigh = fast > phigh ? fast : phigh;
        }
        low = count < low ? count : low;
        high = count > high ? count : high;
        for (size_t k = 0; k < task->ngpus && plan->ntasks <= request->visible.count; k++)
            assert_int_equal(task->gpus[k], request->visible.gpus[gpu++]);
    }
    assert_true(high - low <= 1);
    if (plan->ntasks <= total) {
        assert_true(phigh - plow <= 1);
        assert_int_equal(xc_set_count(&seen), total);
    }
    xc_set_free(&cores);
    xc_set_free(&seen);
    xc_set_free(&with_cpus);
}

/* From the nearest of a task's GPUs; 0 when their places are unknown: then all nodes are alike. */
static unsigned gpu_distance(const struct box *box, const struct xc_plan_task *task, int numa)
{
    unsigned best = 0;
    for (size_t k = 0; k < task->ngpus; k++) {
        int from = box->gpus[task->gpus[k]].numa;
        unsigned distance = from == XC_NONE ? 0 : xc_node_distance(&box->node, from, numa);
        if (distance && (!best || distance < best))
            best = distance;
    }
    return best;
}

/* No two tasks could swap cores and both together be nearer to their GPUs. Priority cores are shared
 * out apart, so only their like is swapped. */
static void check_nearness(const struct box *box, const struct xc_plan *plan)
{
    for (unsigned a = 0; a < plan->ntasks; a++)
        for (unsigned b = 0; b < a; b++)
            for (size_t i = 0; i < box->node.ncpus; i++)
                for (size_t j = 0; j < box->node.ncpus && xc_set_has(&plan->tasks[a].cpus, i);
                     j++) {
                    const struct xc_plan_task *ta = &plan->tasks[a], *tb = &plan->tasks[b];
                    if (!xc_set_has(&tb->cpus, j) ||
                        xc_set_has(&ta->priority, i) != xc_set_has(&tb->priority, j))
                        continue;
                    int g = box->cpus[i].numa, h = box->cpus[j].numa;
                    assert_true(gpu_distance(box, ta, g) + gpu_distance(box, tb, h) <=
                                gpu_distance(box, ta, h) + gpu_distance(box, tb, g));
                }
}

static struct box *random_box(void)
{
    int packages = pick(1, 2), numas = pick(1, 4);
    struct box *box = box_new(packages, numas, pick(1, 12), pick(1, 2));
    int switches = pick(0, 8);
    for (int i = 0; i < switches; i++)
        box_switch(box, pick(-1, packages * numas - 1), pick(0, 2), pick(0, 2));
    for (size_t i = 0; i < box->node.ncpus; i++) {
        if (pick(0, 15) == 0 && i > 0)
            box->cpus[i].flags = 0;
        if (pick(0, 5) == 0)
            box->cpus[i].flags |= XC_CPU_PRIORITY;
    }
    for (size_t i = 0; i < box->node.nnics; i++)
        if (pick(0, 7) == 0)
            box->nics[i].state = XC_PORT_DOWN;
    box->rules.cpus.housekeeping = pick(0, 1) ? XC_HK_SLURM : XC_HK_NONE;
    for (size_t i = 0; i < box->node.ncpus; i++)
        if (pick(0, 7) == 0)
            box->cpus[i].flags |= XC_CPU_SLURM_SPEC;
    box->rules.bind.min_share = (unsigned)pick(0, 2);
    box->rules.bind.smt = pick(0, 3) ? XC_SMT_ALL : XC_SMT_FIRST;
    return box;
}

static void invariants_hold_for_random_machines_and_requests(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct box *box = random_box();
        struct xc_set cpus = XC_SET_EMPTY;
        for (size_t i = 0; i < box->node.ncpus; i++)
            if (pick(0, 3))
                xc_set_add(&cpus, i);
        xc_set_add(&cpus, 0);
        int gpus[32];
        size_t count = 0;
        for (size_t i = 0; i < box->node.ngpus; i++)
            if (pick(0, 2))
                gpus[count++] = (int)i;
        struct xc_request request = box_request(box, (unsigned)pick(1, 20));
        request.visible = (struct xc_gpu_list){.gpus = gpus, .count = count};
        request.cpus = pick(0, 1) ? &cpus : NULL;
        struct xc_plan *plan = planned(&request);
        check_plan(box, &request, plan);
        if (round % 10 == 0 && count > 0)
            check_nearness(box, plan);
        xc_plan_free(plan);
        xc_set_free(&cpus);
        free(box);
    }
}

static void large_machines_are_no_exception(void **state)
{
    (void)state;
    struct box *box = box_new(8, 4, 32, 2); /* 2048 CPUs */
    for (int i = 0; i < 16; i++)
        box_switch(box, 2 * i, 1, 1);
    static const unsigned tasks[] = {1, 16, 256, 1023};
    for (size_t i = 0; i < XC_COUNT(tasks); i++) {
        struct xc_request request = box_request(box, tasks[i]);
        struct xc_plan *plan = planned(&request);
        check_plan(box, &request, plan);
        xc_plan_free(plan);
    }
    free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(housekeeping_stays_free_and_ranks_share_the_rest),
        cmocka_unit_test(all_cores_are_used_where_gpus_sit_on_half_of_the_nodes),
        cmocka_unit_test(tasks_share_gpus_in_contiguous_groups),
        cmocka_unit_test(gpus_keep_the_order_that_the_program_sees),
        cmocka_unit_test(one_task_for_all_gpus_is_left_wide_and_carries_shares),
        cmocka_unit_test(variables_are_filled_in),
        cmocka_unit_test(nics_are_selected_and_only_active_ones_used),
        cmocka_unit_test(two_rails_a_gpu_and_shared_gpus_split_them),
        cmocka_unit_test(equally_near_nics_go_to_different_ranks),
        cmocka_unit_test(without_gpus_ranks_are_spread),
        cmocka_unit_test(housekeeping_cpus_that_are_not_there_are_named),
        cmocka_unit_test(a_step_is_not_narrowed_below_its_min_share),
        cmocka_unit_test(one_core_of_many_gets_a_hint),
        cmocka_unit_test(a_remote_gpu_is_said_and_bound_to_what_is_allowed),
        cmocka_unit_test(isolated_tasks_get_a_hint),
        cmocka_unit_test(memory_only_nodes_and_forbidden_ones_are_never_used),
        cmocka_unit_test(every_rank_gets_its_priority_cores),
        cmocka_unit_test(smt_first_takes_one_thread_a_core),
        cmocka_unit_test(more_tasks_than_cores_share_whole_cores),
        cmocka_unit_test(the_last_rank_is_not_starved),
        cmocka_unit_test(json_and_picture_escape_what_they_are_given),
        cmocka_unit_test(wrong_requests_are_errors),
        cmocka_unit_test(invariants_hold_for_random_machines_and_requests),
        cmocka_unit_test(large_machines_are_no_exception),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
