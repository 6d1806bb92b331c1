/* What does each task find in its environment? The policy's variables with ${...} filled in, the NIC
 * lists, CUDA_VISIBLE_DEVICES when GPUs are restricted, and XCLOUD_PLAN for the workers of a task that
 * has several GPUs. */
#include <string.h>

#include "work.h"

/* ---- values ---------------------------------------------------------------------------------------- */

/* Fills in ${cores} ${gpus} ${nics} ${local_rank}; another ${...} stays as it is. NULL: no memory. */
static char *fill_in(const char *value, const struct xc_plan_task *task, size_t rank)
{
    const struct {
        const char *word;
        size_t number;
    } known[] = {{"${cores}", task->cores},
                 {"${gpus}", task->ngpus},
                 {"${nics}", task->nnics},
                 {"${local_rank}", rank}};
    struct xc_text text = XC_TEXT_INIT;
    while (*value) {
        size_t plain = strcspn(value, "$");
        xc_text_add_n(&text, value, plain);
        value += plain;
        if (!*value)
            break;
        size_t i = 0;
        while (i < XC_COUNT(known) && !xc_starts(value, known[i].word))
            i++;
        if (i < XC_COUNT(known)) {
            xc_text_addf(&text, "%zu", known[i].number);
            value += strlen(known[i].word);
        } else {
            xc_text_add_n(&text, value++, 1);
        }
    }
    return xc_text_take(&text);
}

static int add_env(struct xc_plan_task *task, const char *name, char *value, enum xc_env_set set,
                   unsigned line)
{
    struct xc_plan_env *env = realloc(task->env, (task->nenv + 1) * sizeof *env);
    if (!env) {
        free(value);
        return -1;
    }
    task->env = env;
    env[task->nenv++] =
        (struct xc_plan_env){.name = name, .value = value, .set = set, .line = line};
    return 0;
}

static bool ruled(const struct xc_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->nenv; i++)
        if (xc_streq(rules->env[i].name, name))
            return true;
    return false;
}

/* ---- NIC lists ------------------------------------------------------------------------------------ */

static void add_port(struct xc_text *text, const struct xc_nic *nic)
{
    xc_text_addf(text, "%s%s:%d",
                 text->length > 0 && text->data[text->length - 1] != '=' ? "," : "", nic->rdma,
                 nic->port);
}

/* All rails, in rail order: the same on every node, whatever this step has. Kept in *list. */
static char *job_list(const struct work *work, const char *start, char **list)
{
    if (*list)
        return strdup(*list);
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, start);
    for (size_t i = 0; i < work->nrails; i++)
        add_port(&text, &work->node->nics[work->rails[i]]);
    *list = xc_text_take(&text);
    return *list ? strdup(*list) : NULL;
}

static char *own_list(const struct work *work, const struct xc_plan_nic *nics, size_t count)
{
    struct xc_text text = XC_TEXT_INIT;
    for (size_t i = 0; i < count; i++)
        add_port(&text, &work->node->nics[nics[i].nic]);
    return xc_text_take(&text);
}

/* NCCL reads a name as a prefix unless '=' comes first; NVSHMEM knows no such sign. UCX takes the
 * rank's own devices, and so does a variable that we do not know. */
static char *export_value(struct work *work, const char *name, const struct xc_plan_nic *nics,
                          size_t count)
{
    if (xc_streq(name, "NCCL_IB_HCA"))
        return job_list(work, "=", &work->exact);
    if (xc_streq(name, "NVSHMEM_HCA_LIST"))
        return job_list(work, "", &work->plain);
    return own_list(work, nics, count);
}

static int add_exports(struct work *work, struct xc_plan_task *task)
{
    char **names = work->rules->nics.export_;
    for (; names && *names && task->nnics > 0; names++) {
        if (ruled(work->rules, *names))
            continue;
        char *value = export_value(work, *names, task->nics, task->nnics);
        if (!value || add_env(task, *names, value, XC_ENV_DEFAULT, 0) < 0)
            return -1;
    }
    return 0;
}

static bool has_topo_file(const struct xc_rules *rules)
{
    return rules->topo.file && !rules->topo.none;
}

/* The topology file, by its name on the node. What an image or the user says instead is for the step
 * to weigh, which sees it. */
static int add_topo_file(struct work *work, struct xc_plan_task *task)
{
    const struct xc_rules *rules = work->rules;
    if (!has_topo_file(rules))
        return 0;
    char *value = strdup(rules->topo.file);
    enum xc_env_set set = rules->topo.over_image == XC_TOPO_KEEP ? XC_ENV_DEFAULT : XC_ENV_FORCE;
    return value ? add_env(task, "NCCL_TOPO_FILE", value, set, rules->topo.line) : -1;
}

/* ---- gpus=restrict -------------------------------------------------------------------------------- */

/* A rank's GPUs as positions in what it sees, which is how CUDA counts them. MIG instances have names
 * that a machine's description does not hold: those are left as they are, and it is said. */
static int add_restriction(struct work *work, size_t rank, size_t position)
{
    struct xc_plan_task *task = &work->plan->tasks[rank];
    if (work->gpus != XC_GPUS_RESTRICT || work->request->tasks || task->ngpus == 0)
        return 0;
    struct xc_text text = XC_TEXT_INIT;
    for (size_t i = 0; i < task->ngpus; i++) {
        if (work->node->gpus[task->gpus[i]].mig) {
            xc_text_free(&text);
            if (had_before(work->plan, rank, task->gpus[i]))
                return 0;
            add_note(work, XC_NOTE_WARN, (int)rank,
                     "gpus=restrict: GPU %d is split (MIG) and its instances are named by UUID: "
                     "CUDA_VISIBLE_DEVICES is left as it is",
                     task->gpus[i]);
            return 0;
        }
        xc_text_addf(&text, "%s%zu", i ? "," : "", position + i);
    }
    char *value = xc_text_take(&text);
    return value ? add_env(task, "CUDA_VISIBLE_DEVICES", value, XC_ENV_FORCE, 0) : -1;
}

/* Where a rank's list starts among the visible GPUs. */
static size_t position_of(const struct work *work, size_t rank)
{
    const struct xc_gpu_list *list = &work->lists[rank];
    return list->count ? (size_t)(list->gpus - work->request->visible.gpus) : 0;
}

/* ---- XCLOUD_PLAN ---------------------------------------------------------------------------------- */

/* Blanks and ';' separate, '?' tells the task's value from the worker's. */
static bool safe(const char *value)
{
    return strpbrk(value, " \t\n;?") == NULL;
}

static bool shares_name(const char *name)
{
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

static void add_variable(struct xc_text *text, const char *name, enum xc_env_set set,
                         const char *worker, const char *task)
{
    if (xc_streq(worker, task) || !shares_name(name) || !safe(worker) || !safe(task))
        return;
    if (set == XC_ENV_FORCE)
        xc_text_addf(text, " %s=%s", name, worker);
    else if (set == XC_ENV_DEFAULT)
        xc_text_addf(text, " %s?=%s?%s", name, worker, task);
}

/* What differs between the worker and the task that starts it. */
static void add_variables(struct work *work, struct xc_text *text, const struct xc_plan_task *task,
                          const struct xc_plan_task *worker, const struct slot *slot, size_t rank)
{
    for (size_t i = 0; i < task->nenv; i++) {
        const struct xc_plan_env *env = &task->env[i];
        if (!env->value)
            continue;
        char *value = NULL;
        if (env->line == 0 && slot->nnics > 0 && !xc_streq(env->name, "CUDA_VISIBLE_DEVICES")) {
            value = export_value(work, env->name, slot->nics, slot->nnics);
            text->failed |= !value;
        }
        for (size_t k = 0; env->line && k < work->rules->nenv && !value; k++)
            if (work->rules->env[k].line == env->line && work->rules->env[k].value &&
                xc_streq(work->rules->env[k].name, env->name)) {
                value = fill_in(work->rules->env[k].value, worker, rank);
                text->failed |= !value;
            }
        if (value)
            add_variable(text, env->name, env->set, value, env->value);
        free(value);
    }
}

static void add_share(struct work *work, struct xc_text *text, size_t task,
                      const struct xc_plan_task *worker, size_t index)
{
    xc_text_add(text, ";cpus=");
    xc_text_add_set(text, &worker->cpus);
    if (worker->mem_mode != XC_MEMORY_NONE) {
        xc_text_add(text, " mems=");
        xc_text_add_set(text, &worker->mems);
    }
    xc_text_addf(text, " mem=%s", xc_memory_name(worker->mem_mode));
    add_variables(work, text, &work->plan->tasks[task], worker,
                  &work->slots[work->first_slot[task] + index], index);
}

/* The plan that one worker a GPU would have on the task's own cores. NULL: no memory. */
static char *make_shares(struct work *work, size_t index)
{
    const struct xc_plan_task *task = &work->plan->tasks[index];
    size_t n = task->ngpus;
    struct xc_plan_task *workers = calloc(n, sizeof *workers);
    struct xc_gpu_list *lists = calloc(n, sizeof *lists);
    struct xc_text text = XC_TEXT_INIT;
    text.failed = !workers || !lists;
    for (size_t i = 0; !text.failed && i < n; i++)
        lists[i] = (struct xc_gpu_list){.gpus = &task->gpus[i], .count = 1};
    if (!text.failed && share_cores(work, &task->cpus, lists, n, workers) < 0)
        text.failed = true;
    xc_text_add(&text, XC_SHARES_VERSION);
    for (size_t i = 0; !text.failed && i < n; i++) {
        const struct slot *slot = &work->slots[work->first_slot[index] + i];
        share_memory(work, &workers[i]);
        workers[i].ngpus = 1;
        workers[i].nnics = slot->nnics;
        add_share(work, &text, index, &workers[i], i);
        text.failed |= workers[i].mems.failed;
        workers[i].nnics = 0;
    }
    for (size_t i = 0; workers && i < n; i++)
        task_clear(&workers[i]);
    free(workers);
    free(lists);
    return xc_text_take(&text);
}

static int add_shares(struct work *work, size_t rank)
{
    struct xc_plan_task *task = &work->plan->tasks[rank];
    if (task->ngpus < 2)
        return 0;
    char *shares = make_shares(work, rank);
    if (!shares)
        return -1;
    if (!work->plan->shares && !(work->plan->shares = strdup(shares))) {
        free(shares);
        return -1;
    }
    return add_env(task, "XCLOUD_PLAN", shares, XC_ENV_FORCE, 0);
}

/* ---- all of it ------------------------------------------------------------------------------------- */

static int task_environment(struct work *work, size_t rank)
{
    struct xc_plan_task *task = &work->plan->tasks[rank];
    for (size_t i = 0; i < work->rules->nenv; i++) {
        const struct xc_env_rule *rule = &work->rules->env[i];
        if (xc_streq(rule->name, "NCCL_TOPO_FILE") && has_topo_file(work->rules))
            continue; /* topo: says it, and has it proven */
        char *value = rule->value ? fill_in(rule->value, task, rank) : NULL;
        if ((rule->value && !value) || add_env(task, rule->name, value, rule->set, rule->line) < 0)
            return -1;
    }
    if (add_topo_file(work, task) < 0 || add_exports(work, task) < 0 ||
        add_restriction(work, rank, position_of(work, rank)) < 0)
        return -1;
    return add_shares(work, rank);
}

int make_environment(struct work *work, struct xc_error *error)
{
    size_t only = work->request->env_of;
    for (size_t i = 0; i < work->plan->ntasks; i++) {
        bool wanted = !only || i == only - 1;
        /* what a task is told of another one's restriction, each of them must know */
        if ((wanted ? task_environment(work, i) : add_restriction(work, i, position_of(work, i))) <
            0)
            return xc_error_nomem(error);
    }
    return 0;
}
