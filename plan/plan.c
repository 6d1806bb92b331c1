/* Who goes where? Puts a plan together: housekeeping, GPUs, cores, memory, NICs, environment, and
 * says why. Pure: nothing here asks the system. */
#include <inttypes.h>
#include <string.h>

#include "work.h"

/* ---- housekeeping and training ------------------------------------------------------------------- */

static int listed_housekeeping(const struct xc_node *node, const struct xc_rules *rules,
                               struct xc_set *out, struct xc_error *error)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(node, &online);
    if (xc_cpulist_resolve(&rules->cpus.housekeeping_list, &online, out, "cpus.housekeeping",
                           error) < 0)
        return -1;
    return online.failed ? xc_error_nomem(error) : 0;
}

/* A line about listed CPUs that the machine lacks, or NULL ("all" and "!" name none). */
static char *note_missing(const struct xc_node *node, const struct xc_cpulist *list)
{
    xc_autoset struct xc_set missing = XC_SET_EMPTY, online = XC_SET_EMPTY;
    xc_node_online(node, &online);
    if (xc_set_parse_list(&missing, list->text, NULL, NULL) < 0)
        return NULL;
    xc_set_andnot(&missing, &online);
    if (xc_set_empty(&missing))
        return NULL;
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, "the policy's housekeeping CPUs ");
    xc_text_add_set(&text, &missing);
    xc_text_add(&text, " are not online on this machine");
    return xc_text_take(&text);
}

int xc_plan_housekeeping(const struct xc_node *node, const struct xc_rules *rules,
                         struct xc_set *out, char **note, struct xc_error *error)
{
    xc_set_clear(out);
    if (note)
        *note = NULL;
    if (rules->cpus.housekeeping == XC_HK_NONE)
        return 0;
    if (rules->cpus.housekeeping == XC_HK_LIST) {
        if (listed_housekeeping(node, rules, out, error) < 0)
            return -1;
        if (note)
            *note = note_missing(node, &rules->cpus.housekeeping_list);
    } else {
        xc_node_flagged(node, XC_CPU_SLURM_SPEC, out);
        if (xc_set_empty(out) && note) {
            *note =
                strdup("no CPUs are kept free: slurm.conf reserves none on this node "
                       "(CpuSpecList, CoreSpecCount), and `cpus: housekeeping:` asks for those");
            if (!*note)
                return xc_error_nomem(error);
        }
    }
    if (rules->cpus.whole_cores)
        xc_node_whole_cores(node, out);
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(node, &online);
    xc_set_and(out, &online);
    return out->failed ? xc_error_nomem(error) : 0;
}

static int find_housekeeping(struct work *work, struct xc_error *error)
{
    char *note;
    if (xc_plan_housekeeping(work->node, work->rules, &work->plan->housekeeping, &note, error) < 0)
        return -1;
    if (note)
        add_note(work, XC_NOTE_INFO, XC_NONE, "%s", note);
    free(note);
    return 0;
}

/* The request's CPUs that are online. */
static int find_allowed(const struct work *work, struct xc_set *out, struct xc_error *error)
{
    xc_node_online(work->node, out);
    if (work->request->cpus)
        xc_set_and(out, work->request->cpus);
    if (out->failed)
        return xc_error_nomem(error);
    if (xc_set_empty(out))
        return xc_error_set(error, XC_EINPUT, NULL,
                            "none of the CPUs asked for is online on this machine");
    return 0;
}

/* Whether the step has every core of the machine that is not reserved anyway. */
static bool whole_machine(const struct work *work, const struct xc_set *allowed)
{
    xc_autoset struct xc_set others = XC_SET_EMPTY, reserved = XC_SET_EMPTY;
    xc_node_online(work->node, &others);
    xc_set_andnot(&others, allowed);
    xc_set_andnot(&others, &work->plan->housekeeping);
    xc_node_flagged(work->node, XC_CPU_SLURM_SPEC, &reserved);
    return xc_set_subset(&others, &reserved);
}

/* Whether the step may lose its housekeeping CPUs. On a whole machine always, if anything is left. A
 * part of one keeps them when it would otherwise fall below min_share; not when it was below before
 * (--overcommit), or more tasks would be the way onto housekeeping CPUs. */
static bool may_narrow(const struct work *work, const struct xc_set *allowed, unsigned left,
                       size_t need)
{
    if (left == 0)
        return false;
    return left >= need || whole_machine(work, allowed) ||
           xc_node_count_cores(work->node, allowed) < need;
}

/* Housekeeping is taken out, unless too little would be left; that is said with numbers. */
static int find_training(struct work *work, struct xc_error *error)
{
    struct xc_plan *plan = work->plan;
    xc_autoset struct xc_set allowed = XC_SET_EMPTY;
    if (find_allowed(work, &allowed, error) < 0)
        return -1;
    xc_set_copy(&plan->training, &allowed);
    xc_set_andnot(&plan->training, &plan->housekeeping);
    size_t taken = xc_set_common(&allowed, &plan->housekeeping);
    unsigned left = xc_node_count_cores(work->node, &plan->training);
    size_t need = (size_t)work->rules->bind.min_share * plan->ntasks;
    if (taken > 0 && !may_narrow(work, &allowed, left, need)) {
        xc_set_copy(&plan->training, &allowed);
        add_note(work, XC_NOTE_WARN, XC_NONE,
                 "housekeeping CPUs are not taken out: %u of %u cores would be left, and %u task%s "
                 "need%s %zu (min_share %u)",
                 left, xc_node_count_cores(work->node, &allowed), plan->ntasks,
                 plan->ntasks == 1 ? "" : "s", plan->ntasks == 1 ? "s" : "",
                 need ? need : (size_t)plan->ntasks, work->rules->bind.min_share);
    }
    left = work->training_cores = xc_node_count_cores(work->node, &plan->training);
    if (work->rules->bind.min_share > 1 && left < need)
        add_note(work, XC_NOTE_WARN, XC_NONE,
                 "%u core%s for %u task%s: less than the policy's min_share of %u", left,
                 left == 1 ? "" : "s", plan->ntasks, plan->ntasks == 1 ? "" : "s",
                 work->rules->bind.min_share);
    plan->narrowed =
        !xc_set_equal(&plan->training, work->request->cpus ? work->request->cpus : &allowed);
    return plan->training.failed ? xc_error_nomem(error) : 0;
}

/* ---- notes and reasons ------------------------------------------------------------------------------ */

void add_note(struct work *work, enum xc_note_kind kind, int task, const char *format, ...)
{
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    struct xc_plan *plan = work->plan;
    char *line = xc_text_take(&text);
    struct xc_note *notes = realloc(plan->notes, (plan->nnotes + 1) * sizeof *notes);
    if (notes)
        plan->notes = notes;
    if (!line || !notes) {
        free(line);
        work->failed = true;
        return;
    }
    notes[plan->nnotes++] = (struct xc_note){.kind = kind, .task = task, .text = line};
}

void add_why(struct work *work, struct xc_plan_task *task, const char *format, ...)
{
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    char *line = xc_text_take(&text);
    size_t count = 0;
    while (task->why && task->why[count])
        count++;
    char **why = realloc(task->why, (count + 2) * sizeof *why);
    if (why)
        task->why = why;
    if (!line || !why) {
        free(line);
        work->failed = true;
        return;
    }
    why[count] = line;
    why[count + 1] = NULL;
}

/* "GPU 0 0000:1b:00.0 is on NUMA 0"; of several: "GPUs 0-3 are on NUMA 0". */
static void why_gpu(struct work *work, struct xc_plan_task *task, const struct xc_set *gpus,
                    int numa)
{
    char place[64], bdf[XC_BDF_TEXT] = "?";
    if (numa == XC_NONE)
        snprintf(place, sizeof place, "on an unknown NUMA node");
    else
        snprintf(place, sizeof place, "on NUMA %d", numa);
    if (task->ngpus > 1) {
        xc_autofree char *list = xc_set_format(gpus);
        bool one = xc_set_count(gpus) == 1;
        add_why(work, task, "GPU%s %s %s %s", one ? "" : "s", list ? list : "?", one ? "is" : "are",
                place);
        return;
    }
    int pci = work->node->gpus[task->gpus[0]].pci;
    if (pci >= 0)
        xc_bdf_text(&work->node->pci[pci].bdf, bdf);
    add_why(work, task, "GPU %d %s is %s", task->gpus[0], bdf, place);
}

static void why_gpus(struct work *work, struct xc_plan_task *task)
{
    for (size_t i = 0; i < task->ngpus; i++) {
        int numa = work->node->gpus[task->gpus[i]].numa;
        bool before = false;
        for (size_t k = 0; k < i; k++)
            before |= work->node->gpus[task->gpus[k]].numa == numa;
        if (before)
            continue;
        xc_autoset struct xc_set gpus = XC_SET_EMPTY;
        for (size_t k = i; k < task->ngpus; k++)
            if (work->node->gpus[task->gpus[k]].numa == numa)
                xc_set_add(&gpus, (size_t)task->gpus[k]);
        work->failed |= gpus.failed;
        why_gpu(work, task, &gpus, numa);
    }
    if (task->ngpus == 0)
        add_why(work, task, "no GPU: ranks are spread along the NUMA nodes");
}

/* How many of a task's cores are on each NUMA node, by the node's index. NULL: no memory. */
static unsigned *count_by_numa(const struct xc_node *node, const struct xc_set *cpus)
{
    unsigned *counts = calloc(node->nnumas + 1, sizeof *counts);
    xc_autofree unsigned char *seen = calloc(node->ncores + 1, 1);
    for (ssize_t os = xc_set_next(cpus, 0); counts && seen && os >= 0;
         os = xc_set_next(cpus, (size_t)os + 1)) {
        const struct xc_cpu *cpu = find_cpu(node, os);
        if (!cpu || cpu->core < 0 || (size_t)cpu->core >= node->ncores || seen[cpu->core])
            continue;
        seen[cpu->core] = 1;
        int index = xc_node_numa_index(node, cpu->numa);
        if (index >= 0)
            counts[index]++;
    }
    if (!seen) {
        free(counts);
        return NULL;
    }
    return counts;
}

/* "12 of 80 training cores, 8 on NUMA 2, 4 on NUMA 3" */
static void why_cores(struct work *work, struct xc_plan_task *task, unsigned training)
{
    xc_autofree unsigned *counts = count_by_numa(work->node, &task->cpus);
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%u of %u training core%s", task->cores, training,
                 training == 1 ? "" : "s");
    for (size_t i = 0; counts && i < work->node->nnumas; i++)
        if (counts[i])
            xc_text_addf(&text, ", %u on NUMA %d", counts[i], work->node->numas[i].os);
    if (work->smt == XC_SMT_FIRST)
        xc_text_add(&text, ", first threads only");
    if (!xc_set_empty(&task->priority))
        xc_text_addf(&text, ", %u of them priority cores",
                     xc_node_count_cores(work->node, &task->priority));
    xc_autofree char *line = xc_text_take(&text);
    add_why(work, task, "%s", line ? line : "");
    work->failed |= !line || !counts;
}

static const char *path_words(const struct work *work, const struct xc_plan_task *task,
                              const struct xc_plan_nic *nic)
{
    static const char *const words[] = {
        "one switch away", "several switches away", "through the host bridge",
        "through another host bridge of the NUMA node", "on another NUMA node"};
    if (task->ngpus == 0 && nic->path == XC_PATH_NODE)
        return "on a NUMA node of its cores";
    bool unknown = work->node->nics[nic->nic].numa == XC_NONE;
    for (size_t i = 0; i < task->ngpus; i++)
        unknown |= work->node->gpus[task->gpus[i]].numa == XC_NONE;
    return nic->path == XC_PATH_SYS && unknown ? "at an unknown distance" : words[nic->path];
}

/* NICs of one path together: "mlx5_0, mlx5_1 one switch away (PIX)". */
static void why_nics(struct work *work, struct xc_plan_task *task)
{
    for (int path = XC_PATH_PIX; path <= XC_PATH_SYS; path++) {
        struct xc_text names = XC_TEXT_INIT;
        const struct xc_plan_nic *last = NULL;
        for (size_t i = 0; i < task->nnics; i++) {
            if ((int)task->nics[i].path != path)
                continue;
            xc_text_addf(&names, "%s%s", last ? ", " : "",
                         work->node->nics[task->nics[i].nic].rdma);
            last = &task->nics[i];
        }
        xc_autofree char *list = xc_text_take(&names);
        work->failed |= !list;
        if (last && list)
            add_why(work, task, "%s %s (%s)", list, path_words(work, task, last),
                    xc_path_name(last->path));
    }
}

static void explain(struct work *work)
{
    for (size_t i = 0; i < work->plan->ntasks; i++) {
        struct xc_plan_task *task = &work->plan->tasks[i];
        why_gpus(work, task);
        why_cores(work, task, work->training_cores);
        why_nics(work, task);
        if (task->mem_mode == XC_MEMORY_NONE && work->memory != XC_MEMORY_NONE)
            add_why(work, task,
                    work->plan->ntasks == 1 && task->ngpus > 1
                        ? "memory is left alone: one task has all GPUs, its workers are "
                          "bound by xcloud-exec"
                        : "memory is left alone: no NUMA node of its cores is allowed");
    }
}

/* ---- notes that mend --------------------------------------------------------------------------------- */

/* One core of many: no -c, no --exclusive; the commonest mistake. */
static void note_one_core(struct work *work)
{
    const struct xc_plan *plan = work->plan;
    unsigned training = work->training_cores, online, free_cores;
    if (training / plan->ntasks > 1)
        return;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_node_online(work->node, &cpus);
    online = xc_node_count_cores(work->node, &cpus);
    xc_set_andnot(&cpus, &plan->housekeeping);
    free_cores = xc_node_count_cores(work->node, &cpus);
    work->failed |= cpus.failed;
    unsigned job = work->request->job_cores ? training + work->request->job_cores : 0;
    unsigned could = (job ? job : free_cores) / plan->ntasks;
    if (training < plan->ntasks && could < 2)
        add_note(work, XC_NOTE_HINT, XC_NONE, "%u tasks share %u core%s", plan->ntasks, training,
                 training == 1 ? "" : "s");
    if (could < 2)
        return;
    const char *who = plan->ntasks == 1 ? "the task has" : "each rank has";
    size_t threads = free_cores ? xc_set_count(&cpus) / free_cores : 1;
    struct xc_text amount = XC_TEXT_INIT;
    if (training < plan->ntasks)
        xc_text_addf(&amount, "%u tasks share %u core%s", plan->ntasks, training,
                     training == 1 ? "" : "s");
    else
        xc_text_addf(&amount, "%s only 1", who);
    xc_autofree char *start = xc_text_take(&amount);
    if (!start)
        work->failed = true;
    else if (job)
        add_note(work, XC_NOTE_HINT, XC_NONE,
                 "%s of the job's %u cores on this node: srun -c %zu gives %u%s", start, job,
                 could * threads, could, plan->ntasks > 1 ? " to each" : "");
    else
        add_note(work, XC_NOTE_HINT, XC_NONE,
                 "%s of %u cores: srun --exclusive, or -c %zu, gives %u%s", start, online,
                 could * threads, could, plan->ntasks > 1 ? " to each" : "");
}

/* memory=bind never takes other memory: what there is, before the kernel kills for it. */
static void note_bound_memory(struct work *work)
{
    const struct xc_node *node = work->node;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < work->plan->ntasks; i++) {
        const struct xc_plan_task *task = &work->plan->tasks[i];
        uint64_t bytes = 0;
        if (task->mem_mode != XC_MEMORY_BIND)
            continue;
        for (size_t n = 0; n < node->nnumas; n++)
            if (xc_set_has(&task->mems, (size_t)node->numas[n].os))
                bytes += node->numas[n].memory;
        least = bytes < least ? bytes : least;
    }
    if (least != UINT64_MAX)
        add_note(work, XC_NOTE_HINT, XC_NONE,
                 "memory=bind: the kernel kills a task that needs more than its NUMA nodes have, "
                 "%" PRIu64 " MiB for all that run there; memory=preferred takes other memory then",
                 least >> 20);
}

static void note_isolated(struct work *work)
{
    const struct xc_request *request = work->request;
    if (!request->tasks || request->ntasks < 2)
        return;
    for (size_t i = 0; i < request->ntasks; i++) {
        if (request->tasks[i].count != 1)
            return;
        for (size_t j = 0; j < i; j++)
            if (request->tasks[j].gpus[0] == request->tasks[i].gpus[0])
                return;
    }
    add_note(work, XC_NOTE_HINT, XC_NONE,
             "each rank sees one GPU alone: NVLink between them cannot be used. --gres=gpu:%u "
             "without --gpus-per-task or --gpu-bind, or --gres-flags=allow-task-sharing, mends it",
             request->ntasks);
}

bool had_before(const struct xc_plan *plan, size_t rank, int gpu)
{
    for (size_t j = 0; j < rank; j++)
        for (size_t k = 0; k < plan->tasks[j].ngpus; k++)
            if (plan->tasks[j].gpus[k] == gpu)
                return true;
    return false;
}

/* A rank's GPUs of one NUMA node none of whose CPUs may be used. */
static void note_remote(struct work *work, size_t rank, int numa)
{
    const struct xc_plan_task *task = &work->plan->tasks[rank];
    xc_autoset struct xc_set gpus = XC_SET_EMPTY;
    for (size_t k = 0; k < task->ngpus; k++)
        if (work->node->gpus[task->gpus[k]].numa == numa &&
            !had_before(work->plan, rank, task->gpus[k]))
            xc_set_add(&gpus, (size_t)task->gpus[k]);
    if (xc_set_empty(&gpus))
        return;
    work->failed |= gpus.failed;
    xc_autofree char *cpus = xc_set_format(&task->cpus), *list = xc_set_format(&gpus);
    bool one = xc_set_count(&gpus) == 1;
    add_note(work, XC_NOTE_WARN, (int)rank,
             "GPU%s %s %s remote: no CPU of %s NUMA node %d may be used; rank %zu runs on CPU%s %s",
             one ? "" : "s", list ? list : "?", one ? "is" : "are", one ? "its" : "their", numa,
             rank, xc_set_count(&task->cpus) == 1 ? "" : "s", cpus ? cpus : "?");
}

static void note_remotes(struct work *work)
{
    xc_autofree unsigned *training = count_by_numa(work->node, &work->plan->training);
    work->failed |= !training;
    for (size_t i = 0; training && i < work->plan->ntasks; i++)
        for (size_t n = 0; n < work->node->nnumas; n++)
            if (training[n] == 0)
                note_remote(work, i, work->node->numas[n].os);
}

static int package_of(const struct xc_node *node, int numa)
{
    for (size_t i = 0; i < node->ncpus; i++)
        if (node->cpus[i].numa == numa)
            return node->cpus[i].package;
    return XC_NONE;
}

/* Whether a task has cores on its GPUs' sockets and on others as well. */
static bool crosses(const struct work *work, const struct xc_plan_task *task)
{
    const struct xc_node *node = work->node;
    xc_autoset struct xc_set own = XC_SET_EMPTY;
    for (size_t k = 0; k < task->ngpus; k++) {
        int numa = node->gpus[task->gpus[k]].numa;
        int package = numa == XC_NONE ? XC_NONE : package_of(node, numa);
        if (package == XC_NONE)
            return false;
        xc_set_add(&own, (size_t)package);
    }
    bool inside = false, outside = false;
    for (ssize_t os = xc_set_next(&task->cpus, 0); os >= 0 && task->ngpus;
         os = xc_set_next(&task->cpus, (size_t)os + 1)) {
        const struct xc_cpu *cpu = find_cpu(node, os);
        if (!cpu || cpu->package < 0)
            continue;
        bool here = xc_set_has(&own, (size_t)cpu->package);
        inside |= here;
        outside |= !here;
    }
    return inside && outside;
}

static void note_crossing(struct work *work)
{
    xc_autoset struct xc_set ranks = XC_SET_EMPTY;
    for (size_t i = 0; i < work->plan->ntasks; i++)
        if (crosses(work, &work->plan->tasks[i]))
            xc_set_add(&ranks, i);
    size_t count = xc_set_count(&ranks);
    xc_autofree char *list = xc_set_format(&ranks);
    work->failed |= ranks.failed || !list;
    if (count && list)
        add_note(work, XC_NOTE_INFO, XC_NONE,
                 "rank%s %s also ha%s cores of another socket than %s GPU's, so that all cores are "
                 "used and the shares are equal",
                 count == 1 ? "" : "s", list, count == 1 ? "s" : "ve",
                 count == 1 ? "its" : "their");
}

/* ---- putting it together ------------------------------------------------------------------------------ */

static void choose(struct work *work)
{
    const struct xc_words *words = work->request->words;
    const struct xc_rules *rules = work->rules;
    work->gpus = words && words->gpus != XC_GPUS_UNSET ? words->gpus : rules->bind.gpus;
    work->smt = words && words->smt != XC_SMT_UNSET ? words->smt : rules->bind.smt;
    work->memory = words && words->memory != XC_MEMORY_UNSET ? words->memory : rules->bind.memory;
    if (work->memory == XC_MEMORY_UNSET)
        work->memory = XC_MEMORY_PREFERRED;
}

static int check_request(const struct xc_request *request, struct xc_error *error)
{
    if (!request->node || !request->rules)
        return xc_error_set(error, XC_EINPUT, NULL, "a plan needs a machine and rules");
    if (request->ntasks < 1)
        return xc_error_set(error, XC_EINPUT, NULL, "a plan needs at least one task");
    if (request->node->ncpus == 0)
        return xc_error_set(error, XC_EINPUT, NULL, "this machine's description has no CPUs");
    return 0;
}

static void find_unused(struct work *work)
{
    struct xc_plan *plan = work->plan;
    xc_set_copy(&plan->unused, &plan->training);
    for (size_t i = 0; i < plan->ntasks; i++)
        xc_set_andnot(&plan->unused, &plan->tasks[i].cpus);
}

/* A program that drives all GPUs alone starts its workers itself: nothing is narrowed for it. */
static void share_memories(struct work *work)
{
    struct xc_plan *plan = work->plan;
    for (size_t i = 0; i < plan->ntasks; i++) {
        struct xc_plan_task *task = &plan->tasks[i];
        if (plan->ntasks == 1 && task->ngpus > 1)
            task->mem_mode = XC_MEMORY_NONE;
        else
            share_memory(work, task);
        work->failed |= task->mems.failed;
    }
}

static int fill(struct work *work, struct xc_error *error)
{
    struct xc_plan *plan = work->plan;
    if (find_housekeeping(work, error) < 0 || find_training(work, error) < 0 ||
        share_gpus(work, error) < 0)
        return -1;
    /* the list of priority CPUs may be wrong: ask while an error can be told */
    xc_autoset struct xc_set priority = XC_SET_EMPTY;
    if (priority_cpus(work, &priority, error) < 0)
        return -1;
    if (share_cores(work, &plan->training, work->lists, plan->ntasks, plan->tasks) < 0)
        return xc_error_nomem(error);
    share_memories(work);
    if (share_nics(work, error) < 0 || make_environment(work, error) < 0)
        return -1;
    note_remotes(work);
    note_one_core(work);
    note_isolated(work);
    note_bound_memory(work);
    if (!work->request->terse) {
        note_crossing(work);
        find_unused(work);
        explain(work);
    }
    return work->failed || plan->unused.failed ? xc_error_nomem(error) : 0;
}

static void work_free(struct work *work)
{
    size_t nslots = work->first_slot ? work->first_slot[work->request->ntasks] : 0;
    for (size_t i = 0; i < nslots; i++)
        free(work->slots[i].nics);
    free(work->slots);
    free(work->first_slot);
    free(work->rails);
    free(work->lists);
    free(work->exact);
    free(work->plain);
}

int xc_plan_make(const struct xc_request *request, struct xc_plan **out, struct xc_error *error)
{
    if (check_request(request, error) < 0)
        return -1;
    struct xc_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return xc_error_nomem(error);
    plan->ntasks = request->ntasks;
    plan->tasks = calloc(request->ntasks, sizeof *plan->tasks);
    struct work work = {
        .request = request, .node = request->node, .rules = request->rules, .plan = plan};
    choose(&work);
    int rc = plan->tasks ? fill(&work, error) : xc_error_nomem(error);
    work_free(&work);
    if (rc < 0) {
        xc_plan_free(plan);
        return -1;
    }
    *out = plan;
    return 0;
}

void task_clear(struct xc_plan_task *task)
{
    xc_set_free(&task->cpus);
    xc_set_free(&task->priority);
    xc_set_free(&task->mems);
    free(task->gpus);
    free(task->nics);
    for (size_t i = 0; i < task->nenv; i++)
        free(task->env[i].value);
    free(task->env);
    xc_names_free(&task->why);
}

void xc_plan_free(struct xc_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; plan->tasks && i < plan->ntasks; i++)
        task_clear(&plan->tasks[i]);
    free(plan->tasks);
    for (size_t i = 0; i < plan->nnotes; i++)
        free(plan->notes[i].text);
    free(plan->notes);
    free(plan->shares);
    xc_set_free(&plan->housekeeping);
    xc_set_free(&plan->training);
    xc_set_free(&plan->unused);
    free(plan);
}
