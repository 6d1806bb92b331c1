/* The plan room's own shapes: one plan in the making, and the steps that fill it in. */
#ifndef XCLOUD_PLAN_WORK_H
#define XCLOUD_PLAN_WORK_H

#include <xcloud/plan.h>

/* One place for a NIC: a rank's GPU, or a rank without one (gpu XC_NONE). */
struct slot {
    int gpu;
    struct xc_plan_nic *nics;
    size_t nnics;
};

struct work {
    const struct xc_request *request;
    const struct xc_node *node;
    const struct xc_rules *rules;
    enum xc_gpus gpus;
    enum xc_smt smt;
    enum xc_memory memory;
    struct xc_plan *plan;
    unsigned training_cores;
    char *exact, *plain;       /* the job-wide NIC list with and without '=', once made */
    struct xc_gpu_list *lists; /* ntasks; they point into the request or into nothing */
    int *rails;                /* indices into node->nics: the compute NICs, in rail order */
    size_t nrails;
    struct slot *slots; /* of task 0, then of task 1, ... */
    size_t *first_slot; /* ntasks + 1 */
    bool failed;        /* an allocation failed */
};

/* cores.c: shares the usable CPUs of `cpus` out to n tasks with these GPUs; fills in cpus, cores,
 * priority. -1: no memory. */
int share_cores(const struct work *work, const struct xc_set *cpus, const struct xc_gpu_list *lists,
                size_t n, struct xc_plan_task *tasks);
/* Sorted OS numbers of the CPUs that count as priority cores under the rules. */
int priority_cpus(const struct work *work, struct xc_set *out, struct xc_error *error);
/* The CPU with that number, or NULL. Numbers are dense on most machines: no search there. */
static inline const struct xc_cpu *find_cpu(const struct xc_node *node, ssize_t os)
{
    if ((size_t)os < node->ncpus && node->cpus[os].os == os)
        return &node->cpus[os];
    int index = xc_node_cpu_index(node, (int)os);
    return index < 0 ? NULL : &node->cpus[index];
}

/* devices.c */
int share_gpus(struct work *work, struct xc_error *error); /* lists, and tasks' gpus */
void share_memory(const struct work *work, struct xc_plan_task *task);
int share_nics(struct work *work, struct xc_error *error); /* rails, slots, tasks' nics */

/* env.c: everything that a task's environment gets, XCLOUD_PLAN included. */
int make_environment(struct work *work, struct xc_error *error);

/* plan.c */
void add_note(struct work *work, enum xc_note_kind kind, int task, const char *format, ...)
    xc_printf(4, 5);
void add_why(struct work *work, struct xc_plan_task *task, const char *format, ...) xc_printf(3, 4);
bool had_before(const struct xc_plan *plan, size_t rank, int gpu); /* a lower rank has this GPU */
void task_clear(struct xc_plan_task *task);

#endif
