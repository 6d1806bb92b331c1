/* A task binds itself: the last thing before the program, as the user, inside the container.
 *
 * Every task makes the plan for the whole node from the same inputs (the table, the snapshot, the
 * policy) and takes its own part: nothing but the GPUs that each one sees has to be told around.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define WAIT_US 1000000 /* for the other tasks' GPUs, and for their read-backs before a table */

/* ---- the plan --------------------------------------------------------------------------------------- */

struct task {
    struct xc_step *step;
    const struct xc_step_host *host;
    unsigned id;
    struct table_slot *slot;
    struct xc_plan *plan; /* for all tasks of the node */
    struct xc_gpu_list *lists;
    struct xc_text lines;      /* this task's own report */
    struct xc_text topo_lines; /* of the topology file: the same for all tasks of a container */
    bool alone;                /* this task says them though it is not the first */
    bool trouble;              /* something could not be done as asked */
    unsigned waited_us;        /* for the other tasks to come */
    bool unproven; /* the policy wants the topology file, and this task does not have it */
};

static void publish_gpus(struct task *task)
{
    size_t ngpus = task->step->node->ngpus;
    int *mine = calloc(ngpus + 1, sizeof *mine);
    if (!mine)
        return;
    size_t count = task_gpus(task->step, task->host, mine);
    int32_t *out = slot_visible(&task->step->table, task->id);
    for (size_t i = 0; i < count; i++)
        out[i] = mine[i];
    task->slot->nvisible = (uint32_t)count;
    free(mine);
    slot_publish(task->slot, 1);
}

/* The lists of all tasks; those that have not come in time are taken to see what this one sees. */
static int gather_gpus(struct task *task)
{
    const struct table *table = &task->step->table;
    task->lists = calloc(task->step->ntasks, sizeof *task->lists);
    if (!task->lists)
        return -1;
    int64_t began = xc_now_us();
    bool came = task->step->ntasks == 1 || table_wait(table, 1, WAIT_US);
    task->waited_us = (unsigned)(xc_now_us() - began);
    if (!came)
        xc_text_addf(&task->lines,
                     "xcloud-bind: %s: not all tasks came in time; rank %u takes their GPUs to be "
                     "its own\n",
                     task->step->node_name, task->id);
    for (unsigned i = 0; i < task->step->ntasks; i++) {
        unsigned from = atomic_load(&table_slot(table, i)->seen) >= 1 ? i : task->id;
        task->lists[i].gpus = slot_visible(table, from);
        /* that task's word, which is not believed */
        uint32_t count = table_slot(table, from)->nvisible;
        task->lists[i].count = count < table->head->max_gpus ? count : table->head->max_gpus;
    }
    return 0;
}

static bool same_lists(const struct task *task)
{
    const struct xc_gpu_list *first = &task->lists[0];
    for (unsigned i = 1; i < task->step->ntasks; i++)
        if (task->lists[i].count != first->count ||
            (first->count &&
             memcmp(task->lists[i].gpus, first->gpus, first->count * sizeof *first->gpus) != 0))
            return false;
    return true;
}

/* Whether this node's first task tells more than what went wrong. */
static bool speaks(const struct task *task)
{
    const struct xc_words *words = &task->step->words;
    bool wanted = words->verbose != XC_QUIET || words->explain || words->dry;
    return wanted && (task->step->node_index == 0 || words->verbose == XC_VERBOSE_ALL);
}

static int make_plan(struct task *task, struct xc_error *error)
{
    struct xc_step *step = task->step;
    publish_gpus(task);
    if (gather_gpus(task) < 0)
        return xc_error_nomem(error);
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, mems = XC_SET_EMPTY;
    table_get_set(&step->table, TABLE_TRAINING, &cpus);
    table_get_mems(&step->table, &mems);
    struct xc_request request = {
        .node = step->node,
        .rules = step->rules,
        .words = &step->words,
        .cpus = &cpus,
        .mems = &mems,
        .ntasks = step->ntasks,
        .job_cores = step->table.head->job_cores,
        .terse = task->id != 0 || !speaks(task),
        .env_of = task->id + 1,
    };
    if (same_lists(task))
        request.visible = task->lists[0];
    else
        request.tasks = task->lists;
    return xc_plan_make(&request, &task->plan, error);
}

/* ---- setting and reading back ------------------------------------------------------------------------------ */

static void problem(struct task *task, const char *format, ...) xc_printf(2, 3);

static void problem(struct task *task, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_text_addf(&task->lines, "xcloud-bind: %s: rank %u: ", task->step->node_name, task->id);
    xc_text_addv(&task->lines, format, args);
    xc_text_add(&task->lines, "\n");
    va_end(args);
    task->trouble = true;
}

static void bind_cpus(struct task *task, const struct xc_plan_task *mine, struct xc_set *now)
{
    int rc = xc_affinity_set(0, &mine->cpus);
    xc_affinity_get(0, now);
    xc_autofree char *want = xc_set_format(&mine->cpus), *have = xc_set_format(now);
    if (rc < 0)
        problem(task, "cannot be bound to CPUs %s: %s; it runs on %s", want ? want : "?",
                strerror(-rc), have ? have : "?");
    else if (!xc_set_equal(now, &mine->cpus))
        problem(task, "was to be bound to CPUs %s, the kernel made it %s", want ? want : "?",
                have ? have : "?");
    else
        task->slot->flags |= XC_REC_PLACED;
}

static void bind_memory(struct task *task, const struct xc_plan_task *mine)
{
    if (mine->mem_mode == XC_MEMORY_NONE || mine->mem_mode == XC_MEMORY_UNSET)
        return;
    int rc = task_set_memory(mine->mem_mode, &mine->mems);
    xc_autofree char *want = xc_set_format(&mine->mems);
    if (rc < 0)
        problem(task,
                "memory policy %s of NUMA node %s cannot be set: %s; memory is left as it was",
                xc_memory_name(mine->mem_mode), want ? want : "?", strerror(-rc));
    else
        task->slot->flags |= XC_REC_MEMORY;
}

static void record_task(struct task *task, const struct xc_plan_task *mine)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, mems = XC_SET_EMPTY;
    enum xc_memory mode = XC_MEMORY_NONE;
    xc_affinity_get(0, &cpus);
    task_get_memory(&mode, &mems);
    slot_put(&task->step->table, task->id, &cpus, &mems);
    task->slot->mem_mode = (uint32_t)mode;
    task->slot->ngpus = (uint32_t)mine->ngpus;
    int32_t *gpus = slot_gpus(&task->step->table, task->id),
            *nics = slot_nics(&task->step->table, task->id);
    for (size_t i = 0; i < mine->ngpus; i++)
        gpus[i] = mine->gpus[i];
    size_t most = task->step->table.head->max_nics;
    task->slot->nnics = (uint32_t)(mine->nnics < most ? mine->nnics : most);
    for (size_t i = 0; i < task->slot->nnics; i++)
        nics[i] = mine->nics[i].nic;
}

/* ---- telling ------------------------------------------------------------------------------------------------- */

static void add_notes(const struct task *task, struct xc_text *out)
{
    const struct xc_step *step = task->step;
    if (step->observe && !speaks(task))
        return; /* an observing site tells nobody who has not asked */
    for (size_t i = 0; i < task->plan->nnotes; i++) {
        const struct xc_note *note = &task->plan->notes[i];
        /* hints once a job and never in a batch script, which has the whole job by nature */
        bool hint = step->node_index == 0 && step->kind == XC_STEP_TASKS && step->place;
        if ((note->kind == XC_NOTE_HINT && !hint) ||
            (note->kind == XC_NOTE_INFO && !(speaks(task) && step->words.explain)))
            continue;
        xc_text_addf(out, "xcloud-bind: %s: %s\n", step->node_name, note->text);
    }
}

static void add_why(const struct task *task, bool reasons, struct xc_text *out)
{
    const struct table_head *head = task->step->table.head;
    for (unsigned i = 0; reasons && i < task->plan->ntasks; i++)
        for (char **why = task->plan->tasks[i].why; why && *why; why++)
            xc_text_addf(out, "rank %u: %s\n", i, *why);
    xc_text_addf(out, "hooks took %u us in slurmstepd (%u before, %u after the fork), rank 0 %u us",
                 head->open_us + head->post_fork_us, head->open_us, head->post_fork_us,
                 task->slot->init_us);
    if (task->step->ntasks > 1)
        xc_text_addf(out, " and %u us until the others had come", task->waited_us);
    xc_text_add(out, "\n");
}

static void add_housekeeping(const struct task *task, struct xc_text *out)
{
    const struct xc_step *step = task->step;
    xc_autoset struct xc_set hk = XC_SET_EMPTY, allowed = XC_SET_EMPTY;
    table_get_set(&step->table, TABLE_HOUSEKEEPING, &hk);
    table_get_set(&step->table, TABLE_ALLOWED, &allowed);
    xc_autofree char *all = xc_set_format(&hk);
    if (step->table.head->flags & XC_REC_NARROWED)
        xc_text_addf(out, "housekeeping %s kept free by the step's cpuset\n", all ? all : "?");
    else if (!xc_set_empty(&hk) && !xc_set_intersects(&hk, &allowed))
        xc_text_addf(out, "housekeeping %s was not given by Slurm\n", all ? all : "?");
}

/* Local task 0 speaks for its node: once every task has read back, or has not in time. */
static void speak(struct task *task, const struct xc_text *environment)
{
    struct xc_step *step = task->step;
    xc_autotext struct xc_text out = XC_TEXT_INIT;
    bool table = speaks(task);
    xc_text_add(&out, step->told.data ? step->told.data : "");
    xc_text_add(&out, step->table.head->message);
    devices_report(step, task->plan, &out);
    if (!(table && step->words.explain)) /* which says more of it */
        nccl_judge(step, task->host, &out);
    bool planned = table && (step->words.dry || step->observe); /* with its notes and reasons */
    if (!planned)
        add_notes(task, &out);
    if (table && step->observe)
        xc_text_addf(&out, "mode observe: nothing is set on %s; this would be\n", step->node_name);
    else if (table && !step->place)
        xc_text_addf(&out, "xcloud-bind: %s: not bound%s: this is what Slurm has set\n",
                     step->node_name, step->words.off ? " (off)" : "");
    if (planned) {
        xc_plan_table(task->plan, step->node, &out);
    } else if (table) {
        if (step->ntasks == 1 || table_wait(&step->table, 2, WAIT_US))
            report_bound(step, task->plan, &out);
        else
            xc_text_addf(&out, "xcloud-bind: %s: not all tasks came in time to be shown\n",
                         step->node_name);
        add_housekeeping(task, &out);
        if (task->slot->flags & XC_REC_TOPO)
            xc_text_addf(&out, "NCCL's topology file opens%s\n",
                         step->topo.container ? " inside the container" : "");
    }
    if (table && step->words.explain) {
        add_why(task, !planned && step->place, &out); /* of what is not set there are none */
        if (environment->length)
            xc_text_addf(&out, "environment of rank 0:\n%s", environment->data);
        nccl_report(step, task->host, &task->plan->tasks[task->id], &out);
    }
    report_write(&out);
}

/* ---- task_init ------------------------------------------------------------------------------------------------- */

/* mine NULL: there is no plan, and the topology file is all that can be seen to. */
static void set_environment(struct task *task, const struct xc_plan_task *mine, bool set,
                            struct xc_text *report)
{
    struct xc_step *step = task->step;
    struct env_writer writer;
    container_find(step);
    if (env_begin(&writer, task->host, set, report) < 0)
        return;
    if (mine)
        env_plan(&writer, mine, step->place, step->rules->bind.torchrun ? step->topo.exec : NULL,
                 step->topo.path ? "NCCL_TOPO_FILE" : NULL); /* topo_apply's */
    task->unproven = !topo_apply(step, &writer, task->slot, &task->topo_lines);
    topo_apptainer(step, &writer, task->slot);
    env_end(&writer);
}

static void set_all(struct task *task, struct xc_text *environment)
{
    struct xc_step *step = task->step;
    const struct xc_plan_task *mine = &task->plan->tasks[task->id];
    bool set = !step->observe && !step->words.dry;
    xc_autoset struct xc_set now = XC_SET_EMPTY;
    if (set && step->place)
        bind_cpus(task, mine, &now);
    if (set && step->memory)
        bind_memory(task, mine);
    if (step->environment)
        set_environment(task, mine, set, environment);
    record_task(task, mine);
}

static void task_clear(struct task *task)
{
    xc_text_free(&task->topo_lines);
    xc_plan_free(task->plan);
    free(task->lists);
    xc_text_free(&task->lines);
}

/* What every task of the node knows alike: all refuse, so that no rank is left waiting. */
static bool node_trouble(const struct task *task)
{
    const struct xc_step *step = task->step;
    if (step->failed || step->table.head->flags & TABLE_FAILED)
        return true;
    for (size_t i = 0; step->words.strict && task->plan && i < task->plan->nnotes; i++)
        if (task->plan->notes[i].kind == XC_NOTE_WARN)
            return true;
    return false;
}

/* Why the task may not begin; NULL: it may. */
static const char *refusal(const struct task *task, bool common)
{
    const struct xc_step *step = task->step;
    if (step->table.head->flags & TABLE_DENIED)
        return "the binding is not what was asked for (housekeeping CPUs could not be kept free)";
    if (task->unproven)
        return "the program would not find the NCCL topology file (the policy's topo.proof: "
               "refuse)";
    if ((common || task->trouble) && step->words.strict)
        return "the binding is not what was asked for (--xcloud-bind=strict)";
    if ((common || task->trouble) && step->refuse)
        return "the binding is not what was asked for (the policy's on_error: refuse)";
    return NULL;
}

static enum xc_verdict verdict(struct task *task)
{
    const struct xc_step *step = task->step;
    if (step->words.dry)
        return XC_DONE;
    bool common = node_trouble(task);
    const char *why = refusal(task, common);
    if (!why)
        return XC_GO;
    if (task->id == 0 || task->alone || (!common && !task->unproven)) {
        xc_autotext struct xc_text out = XC_TEXT_INIT;
        xc_text_addf(&out, "xcloud-bind: %s: refused: %s\n", step->node_name, why);
        report_write(&out);
    }
    task->slot->flags |= XC_REC_REFUSED;
    return XC_REFUSE;
}

/* What is wrong with the topology file is the same for all tasks of a container: task 0 says it, and
 * another one only when task 0 has no trouble with it. */
static void say_topo(struct task *task)
{
    if (!task->topo_lines.length)
        return;
    struct table_slot *first = table_slot(&task->step->table, 0);
    if (task->id != 0) {
        bool came = slot_wait(first, 2, xc_now_us() + WAIT_US);
        task->alone = !came || (first->flags & XC_REC_TOPO);
    }
    if (task->id == 0 || task->alone)
        report_write(&task->topo_lines);
}

/* Nothing could be planned: task 0 says what was told so far. */
static enum xc_verdict without_plan(struct task *task, const struct xc_error *error)
{
    struct xc_step *step = task->step;
    xc_autotext struct xc_text environment = XC_TEXT_INIT;
    task->trouble = error->code != XC_OK;
    slot_publish(task->slot, 1);
    if (step->ntasks > 1 && step->topo.container)
        table_wait(&step->table, 1, WAIT_US);
    if (step->environment)
        set_environment(task, NULL, !step->observe && !step->words.dry, &environment);
    slot_publish(task->slot, 2);
    if (task->id == 0) {
        char text[sizeof *error];
        xc_autotext struct xc_text out = XC_TEXT_INIT;
        xc_text_add(&out, step->told.data ? step->told.data : "");
        xc_text_add(&out, step->table.head->message);
        if (error->code != XC_OK)
            xc_text_addf(&out, "xcloud-bind: %s: %s%s\n", step->node_name,
                         xc_error_text(error, text, sizeof text),
                         step->refuse || step->words.strict ? "" : "; running unbound");
        report_write(&out);
    }
    say_topo(task);
    return verdict(task);
}

enum xc_verdict step_task_init(struct xc_step *step, const struct xc_step_host *host, int local_id)
{
    int64_t began = xc_now_us();
    if (!step->active && local_id == 0)
        report_write(&step->told);
    if (!step->active || local_id < 0 || (unsigned)local_id >= step->ntasks)
        return XC_GO;
    if (step->marked)
        return step_refuse_marked(step, local_id);
    struct task task = {.step = step, .host = host, .id = (unsigned)local_id};
    struct xc_error error = {0};
    table_protect(&step->table);
    task.slot = table_slot(&step->table, task.id);
    container_enter(step, local_id); /* before the others are told that this task has come */
    if (!step->node || make_plan(&task, &error) < 0) {
        enum xc_verdict answer = without_plan(&task, &error);
        task_clear(&task);
        return answer;
    }
    xc_autotext struct xc_text environment = XC_TEXT_INIT;
    set_all(&task, &environment);
    task.slot->init_us = (uint32_t)(xc_now_us() - began) - task.waited_us;
    slot_publish(task.slot, 2);
    if (task.id == 0)
        speak(&task, &environment);
    report_write(&task.lines);
    say_topo(&task);
    enum xc_verdict answer = verdict(&task);
    task_clear(&task);
    return answer;
}
