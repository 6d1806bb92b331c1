/* Keeping housekeeping free: the step's cpuset is narrowed when its last task has been forked.
 *
 * Slurm sets each task's mask just before that task's own post_fork: narrowing earlier would make the
 * next mask EINVAL, and the launch would fail. The tasks wait on a pipe of Slurm's until all
 * post_forks are through, so what is written into the table here is complete when they read it.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

static void say(struct xc_step *step, const char *format, ...) xc_printf(2, 3);

/* A line for task 0; the tasks are forked already, so it goes through the table. */
static void say(struct xc_step *step, const char *format, ...)
{
    char *message = step->table.head->message;
    size_t size = sizeof step->table.head->message, used = strlen(message);
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    xc_autofree char *line = xc_text_take(&text);
    snprintf(message + used, size - used, "xcloud-bind: %s: %s\n", step->node_name,
             line ? line : "out of memory");
}

static void say_error(struct xc_step *step, const struct xc_error *error)
{
    char text[sizeof *error];
    step->table.head->flags |= TABLE_FAILED;
    say(step, "%s", xc_error_text(error, text, sizeof text));
}

/* Kernels before 6.2 forget a task's mask when its cpuset changes: each mask is taken before and given
 * again as far as it still fits. */
struct masks {
    struct xc_set *set;
    unsigned count;
};

static struct masks masks_take(const struct xc_step *step)
{
    struct masks masks = {.set = calloc(step->ntasks ? step->ntasks : 1, sizeof *masks.set)};
    for (; masks.set && masks.count < step->ntasks; masks.count++)
        xc_affinity_get(table_slot(&step->table, masks.count)->pid, &masks.set[masks.count]);
    return masks;
}

static void masks_give(const struct xc_step *step, struct masks *masks,
                       const struct xc_set *allowed)
{
    for (unsigned i = 0; i < masks->count; i++) {
        xc_set_and(&masks->set[i], allowed);
        xc_affinity_set(table_slot(&step->table, i)->pid,
                        xc_set_empty(&masks->set[i]) ? allowed : &masks->set[i]);
    }
}

static void masks_free(struct masks *masks)
{
    for (unsigned i = 0; i < masks->count; i++)
        xc_set_free(&masks->set[i]);
    free(masks->set);
}

/* What Slurm's masks give the tasks together: without ConstrainCores that is what the step has. */
static void given_by_masks(const struct xc_step *step, struct xc_set *cpus)
{
    struct masks masks = masks_take(step);
    for (unsigned i = 0; i < masks.count; i++)
        xc_set_or(cpus, &masks.set[i]);
    masks_free(&masks);
}

static int allowed_by_masks(const struct xc_step *step, struct xc_set *cpus, struct xc_set *mems)
{
    given_by_masks(step, cpus);
    if (step->ntasks == 0)
        xc_node_online(step->node, cpus);
    xc_node_cpu_numas(step->node, mems);
    return cpus->failed || mems->failed ? -1 : 0;
}

/* The others' CPUs are not this step's, though its cpuset has them too. */
static void keep_to(struct xc_set *cpus, const struct xc_set *given)
{
    if (xc_set_intersects(cpus, given))
        xc_set_and(cpus, given);
}

/* Whether so many housekeeping CPUs are in the step that taking them out would leave ranks without
 * their minimum; the plan says so to the user. */
static bool leaves_enough(struct xc_step *step, const struct xc_set *allowed,
                          struct xc_set *housekeeping)
{
    struct xc_request request = {
        .node = step->node,
        .rules = step->node_rules,
        .cpus = allowed,
        .ntasks = step->ntasks ? step->ntasks : 1,
        .terse = true,
    };
    struct xc_plan *plan = NULL;
    struct xc_error error = {0};
    if (xc_plan_make(&request, &plan, &error) < 0) {
        say_error(step, &error);
        return false;
    }
    bool enough = plan->narrowed;
    if (!enough && xc_set_intersects(allowed, housekeeping))
        for (size_t i = 0; i < plan->nnotes && step->ntasks == 0; i++)
            say(step, "%s", plan->notes[i].text);
    xc_plan_free(plan);
    return enough;
}

/* Adds up to count whole cores of spare, the highest first: Slurm fills a job from the lowest. */
static void add_cores(const struct xc_node *node, const struct xc_set *spare, unsigned count,
                      struct xc_set *out)
{
    xc_autofree bool *taken = calloc(node->ncores + 1, sizeof *taken);
    for (size_t i = node->ncpus; taken && i-- > 0;) {
        int core = node->cpus[i].core;
        if (core < 0 || !xc_set_has(spare, (size_t)node->cpus[i].os) || (!taken[core] && !count))
            continue;
        count -= !taken[core];
        taken[core] = true;
        xc_set_add(out, (size_t)node->cpus[i].os);
    }
}

/* What the step's cpuset is to be. A step that Slurm has put on housekeeping CPUs so that too little
 * would be left of it gets other cores of its own job instead; false: its job has none, nothing can be
 * taken. One step left on them would be the way there for all of its user's work. */
static bool choose_cpus(struct xc_step *step, const struct xc_set *allowed,
                        const struct xc_set *job, struct xc_set *housekeeping, struct xc_set *keep)
{
    xc_set_copy(keep, allowed);
    xc_set_andnot(keep, housekeeping);
    if (leaves_enough(step, allowed, housekeeping))
        return true;
    xc_autoset struct xc_set spare = XC_SET_EMPTY, away = XC_SET_EMPTY;
    xc_set_copy(&spare, job);
    xc_set_andnot(&spare, allowed);
    xc_set_andnot(&spare, housekeeping);
    xc_set_copy(&away, allowed);
    xc_set_and(&away, housekeeping);
    if (xc_set_empty(&spare))
        return false;
    add_cores(step->node, &spare, xc_node_count_cores(step->node, &away), keep);
    xc_autofree char *was = xc_set_format(&away), *is = xc_set_format(keep);
    say(step, "Slurm put this step on housekeeping CPUs %s: it runs on CPUs %s of its job",
        was ? was : "?", is ? is : "?");
    return !keep->failed;
}

static void exclude(struct xc_step *step, struct step_cpuset *cpuset, const struct xc_set *job,
                    struct xc_set *allowed, struct xc_set *housekeeping, struct xc_set *mems)
{
    struct xc_error error = {0};
    xc_autoset struct xc_set keep = XC_SET_EMPTY;
    if (!step->exclude || !xc_set_intersects(allowed, housekeeping) ||
        !choose_cpus(step, allowed, job, housekeeping, &keep))
        return;
    if (cpuset->fd < 0) {
        step->table.head->flags |= XC_REC_NO_CPUSET;
        say(step, "this step has no cpuset (ConstrainCores=no?): housekeeping CPUs are kept free "
                  "by affinity alone, which a program can undo");
        return;
    }
    struct masks masks = masks_take(step);
    if (cpuset_set(cpuset, &keep, &error) < 0) {
        say_error(step, &error);
    } else {
        step->table.head->flags |= XC_REC_NARROWED;
        cpuset_effective(cpuset, allowed, mems, NULL);
    }
    masks_give(step, &masks, allowed);
    masks_free(&masks);
}

static void finish(struct xc_step *step, pid_t pid)
{
    struct step_cpuset cpuset;
    struct xc_error error = {0};
    xc_autoset struct xc_set allowed = XC_SET_EMPTY, mems = XC_SET_EMPTY;
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY, job = XC_SET_EMPTY;
    xc_autoset struct xc_set given = XC_SET_EMPTY, own = XC_SET_EMPTY;
    if (cpuset_find(step, pid, &cpuset, &error) < 0)
        say_error(step, &error);
    int rc = cpuset.fd >= 0 ? cpuset_effective(&cpuset, &allowed, &mems, &error) : -1;
    if (rc < 0)
        rc = allowed_by_masks(step, &allowed, &mems);
    else if (cpuset_constrained(&cpuset))
        cpuset_job_cpus(&cpuset, &job);
    else
        given_by_masks(step, &given);
    xc_set_copy(&own, &allowed);
    keep_to(&own, &given);
    table_put_set(&step->table, TABLE_ALLOWED, &own);
    const struct xc_rules *rules = step->exclude ? step->node_rules : step->rules;
    if (rc == 0 && xc_plan_housekeeping(step->node, rules, &housekeeping, NULL, &error) < 0)
        say_error(step, &error);
    exclude(step, &cpuset, &job, &allowed, &housekeeping, &mems);
    keep_to(&allowed, &given);
    xc_set_andnot(&job, &allowed);
    xc_set_andnot(&job, &housekeeping);
    step->table.head->job_cores = xc_node_count_cores(step->node, &job);
    table_put_set(&step->table, TABLE_TRAINING, &allowed);
    table_put_set(&step->table, TABLE_HOUSEKEEPING, &housekeeping);
    table_put_mems(&step->table, &mems);
    cpuset_close(&cpuset);
}

/* With the first task: what comes later would have all CPUs until the last one is forked. */
static void take_back(struct xc_step *step, pid_t pid)
{
    struct step_cpuset cpuset;
    if (!step->exclude)
        return;
    int rc = cpuset_find(step, pid, &cpuset, NULL) < 0 ? 0 : cpuset_take_back(&cpuset);
    if (rc > 0)
        say(step, "directories that somebody had made in this step's cpuset were removed");
    if (rc < 0)
        step->table.head->flags |= TABLE_DENIED;
    cpuset_close(&cpuset);
}

void step_post_fork(struct xc_step *step, const struct xc_step_host *host, int local_id, pid_t pid)
{
    int64_t began = xc_now_us();
    if (!step->active || !step->node)
        return;
    struct table_head *head = step->table.head;
    if (local_id >= 0 && (unsigned)local_id < step->ntasks) {
        table_slot(&step->table, (unsigned)local_id)->pid = pid;
        step->forked++;
    }
    if (step->forked <= 1)
        take_back(step, pid);
    if (step->forked == step->ntasks) {
        finish(step, pid);
        if (step->kind == XC_STEP_EXTERN && head->message[0])
            host->log(head->message); /* no task could say it */
    }
    head->post_fork_us += (uint32_t)(xc_now_us() - began);
}
