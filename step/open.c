/* What is to be done for this step? Decided once, in slurmstepd, before anything of the user runs:
 * policy, words, what the user asked of Slurm himself, the machine. Nothing here fails the launch. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define SHORT 512

static bool from_env(const struct xc_step_host *host, const char *name, char *buffer, size_t size)
{
    return host->get(host->ctx, name, buffer, size) == 0 && buffer[0];
}

/* Something went wrong that leaves the step without what the policy promises. */
static void trouble(struct xc_step *step, const struct xc_error *error)
{
    char text[sizeof *error];
    step->failed = true;
    tell(step, "%s: %s%s", step->node_name, xc_error_text(error, text, sizeof text),
         step->refuse || step->words.strict ? "" : "; running unbound");
}

/* ---- policy -------------------------------------------------------------------------------------------- */

/* Rules for this node and job; words are cut down to what the user may. The job's facts come from its
 * environment, which its user can write: they may change placement, never the cpuset (`mode` here is
 * the node's). */
static void rules_for_job(struct xc_step *step, const struct xc_policy *policy,
                          const struct xc_step_host *host)
{
    char partition[SHORT], account[SHORT], qos[SHORT], reservation[SHORT], user[SHORT], name[SHORT];
    struct xc_job_facts job = {.job_nodes = step->nnodes};
    if (from_env(host, "SLURM_JOB_PARTITION", partition, sizeof partition))
        job.partition = partition;
    if (from_env(host, "SLURM_JOB_ACCOUNT", account, sizeof account))
        job.account = account;
    if (from_env(host, "SLURM_JOB_QOS", qos, sizeof qos))
        job.qos = qos;
    if (from_env(host, "SLURM_JOB_RESERVATION", reservation, sizeof reservation))
        job.reservation = reservation;
    if (from_env(host, "SLURM_JOB_USER", user, sizeof user))
        job.user = user;
    if (from_env(host, "SLURM_JOB_NAME", name, sizeof name))
        job.job_name = name;
    struct xc_error error = {0};
    if (xc_plan_rules(policy, step->node, step->node_name, &job, NULL, &step->rules, &error) < 0) {
        trouble(step, &error);
        return;
    }
    xc_autofree char *dropped = xc_words_permit(&step->words, step->rules->bind.users_may);
    if (dropped)
        tell(step, "the site's policy does not let users say %s: dropped", dropped);
    if (!step->words.profile[0])
        return;
    struct xc_rules *with = NULL;
    if (xc_plan_rules(policy, step->node, step->node_name, &job, step->words.profile, &with,
                      &error) < 0) {
        step->failed |= step->words.strict;
        tell(step, "%s; bound without it", error.message);
        return;
    }
    xc_rules_free(step->rules);
    step->rules = with;
}

static void compare_hash(struct xc_step *step, const struct xc_step_host *host, const char *mine)
{
    char submitted[32];
    if (from_env(host, "XCLOUD_POLICY_HASH", submitted, sizeof submitted) &&
        !xc_streq(submitted, mine))
        tell(step, "%s: its policy (%s) is not the submit host's (%.16s)", step->node_name, mine,
             submitted);
}

static void load_policy(struct xc_step *step, const struct xc_places *places,
                        const struct xc_step_host *host, char hash[17])
{
    struct xc_policy *policy = NULL;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    if (xc_policy_load(places, &policy, &source, &error) < 0) {
        step->rules = xc_rules_builtin();
        if (error.code != XC_ENOENT)
            trouble(step, &error);
        else if (step->words.given)
            tell(step, "%s has no policy (%s): nothing is set", step->node_name,
                 places->policy ? places->policy : XC_POLICY_FILE);
        return;
    }
    if (source.last_good)
        tell(step, "%s: the last good policy is used: %s", step->node_name, source.live_error);
    memcpy(hash, xc_policy_hash(policy), 17);
    compare_hash(step, host, hash);
    if (xc_plan_rules(policy, step->node, step->node_name, NULL, NULL, &step->node_rules, &error) <
        0)
        trouble(step, &error);
    rules_for_job(step, policy, host);
    bool asked = step->words.verbose != XC_QUIET || step->words.explain || step->words.dry;
    if (asked && step->rules && step->rules->unmatched_warn && xc_policy_nclasses(policy) > 0)
        tell(step, "%s: no class of the policy matches this node: its defaults hold",
             step->node_name);
    if (!step->rules)
        step->rules = xc_rules_builtin();
    else if (step->node_rules)
        step->exclude =
            step->node_rules->mode == XC_MODE_BIND || step->node_rules->mode == XC_MODE_ENFORCE;
    xc_policy_free(policy);
    xc_policy_source_clear(&source);
}

/* ---- what is placed ------------------------------------------------------------------------------------------ */

/* A --cpu-bind that says where: map, mask, ldom, rank or none. srun's own copy is in the environment
 * until slurmstepd overwrites it just before task_init. */
static bool placed_by_user(const struct xc_step_host *host, const char *variable, char *type,
                           size_t size)
{
    if (!from_env(host, variable, type, size))
        return false;
    type[strcspn(type, ":")] = '\0';
    /* "threads,map_cpu": where tasks go, then how */
    for (const char *word = type; word; word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL)
        if (xc_starts(word, "map") || xc_starts(word, "mask") || xc_starts(word, "rank") ||
            xc_starts(word, "none") || xc_starts(word, "local") || xc_starts(word, "prefer"))
            return true;
    return strstr(type, "ldom") != NULL;
}

static void decide(struct xc_step *step, const struct xc_step_host *host, bool option_on)
{
    const struct xc_rules *rules = step->rules;
    step->observe = !step->exclude || rules->mode == XC_MODE_OBSERVE;
    bool wanted =
        rules->bind.when == XC_DEFAULT_AUTO || (rules->bind.when == XC_DEFAULT_ASK && option_on);
    if (option_on && rules->bind.when == XC_DEFAULT_NEVER)
        tell(step, "the site's policy never binds this job: --xcloud-bind has no effect");
    if (step->words.off)
        wanted = false;
    step->place = step->memory = step->environment = wanted;
    char type[SHORT];
    bool mine = option_on && !step->words.off;
    if (placed_by_user(host, "SLURM_CPU_BIND_TYPE", type, sizeof type) && wanted) {
        step->place = mine;
        if (mine)
            tell(step, "--xcloud-bind replaces --cpu-bind=%s", type);
        else
            tell(step, "--cpu-bind=%s is kept: Slurm's masks stand (--xcloud-bind replaces them)",
                 type);
    }
    if (placed_by_user(host, "SLURM_MEM_BIND_TYPE", type, sizeof type) && wanted) {
        step->memory = mine;
        tell(step, mine ? "--xcloud-bind replaces --mem-bind=%s" : "--mem-bind=%s is kept", type);
    }
}

/* A wrapper that binds by itself goes on working, and undoes ours. */
static void look_at_program(struct xc_step *step)
{
    const char *program = step->program ? strrchr(step->program, '/') : NULL;
    program = program ? program + 1 : step->program;
    if (step->place && program && (xc_streq(program, "numactl") || xc_streq(program, "taskset")))
        tell(step, "the program is %s: what it binds replaces this binding", program);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

static int open_below(const struct xc_step *step, const char *path)
{
    xc_autofree char *name = step_below(step, path);
    if (!name)
        return -1;
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(name, flags);
    if (fd < 0 && xc_make_dirs(name, 0755, NULL) == 0) /* the first step of this boot */
        fd = open(name, flags);
    return fd;
}

static void open_directories(struct xc_step *step)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    step->proc_fd = open("/proc", flags);
    step->cpuset_v1_fd = open("/sys/fs/cgroup/cpuset", flags);
    /* hybrid: v2 beside v1 */
    step->cgroup_v2_fd = open("/sys/fs/cgroup/unified", flags);
    if (step->cgroup_v2_fd < 0 && step->cpuset_v1_fd < 0)
        step->cgroup_v2_fd = open("/sys/fs/cgroup", flags);
    step->records_fd = open_below(step, XC_RECORD_DIR);
}

static void take_words(struct xc_step *step, const struct xc_step_start *start)
{
    if (!start->option_given)
        return;
    struct xc_error error = {0};
    if (xc_words_parse(start->option, &step->words, &error) == 0)
        return;
    /* srun refuses a wrong word; this one came past it, by the environment */
    step->words = (struct xc_words){.given = true};
    tell(step, "%s: the option is ignored", error.message);
}

static struct xc_step *copy_start(const struct xc_step_start *start)
{
    struct xc_step *step = calloc(1, sizeof *step);
    if (!step)
        return NULL;
    step->proc_fd = step->cpuset_v1_fd = step->cgroup_v2_fd = step->records_fd = -1;
    step->topo.fd = step->topo.mount = step->topo.exec_mount = -1;
    step->node_name = strdup(start->node_name ? start->node_name : "localhost");
    step->program = start->program ? strdup(start->program) : NULL;
    step->machine = start->machine ? strdup(start->machine) : NULL;
    step->job_id = start->job_id;
    step->step_id = start->step_id;
    step->uid = start->uid;
    step->kind = start->kind;
    step->ntasks = start->kind == XC_STEP_EXTERN ? 0 : start->ntasks;
    step->nnodes = start->nnodes;
    step->node_index = start->node_index;
    step->refuse = start->on_error_refuse;
    if (!step->node_name) {
        step_close(step, NULL);
        return NULL;
    }
    return step;
}

/* What the user said, for `xcloud job`: printable. */
static void put_words(struct table_head *head, const char *option)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_text_add_plain(&text, option, sizeof head->words - 1);
    snprintf(head->words, sizeof head->words, "%s", text.data ? text.data : "");
}

static void fill_table(struct xc_step *step, const struct xc_step_start *start, const char *hash)
{
    struct xc_error error = {0};
    char name[64];
    const char *word = step_kind_word(step->kind);
    if (word)
        snprintf(name, sizeof name, "%u.%s", step->job_id, word);
    else
        snprintf(name, sizeof name, "%u.%u", step->job_id, step->step_id);
    if (table_make(&step->table, step->records_fd, name, step->ntasks, step->node, &error) < 0) {
        trouble(step, &error);
        step->place = step->memory = false;
        return;
    }
    struct table_head *head = step->table.head;
    head->job_id = step->job_id;
    head->step_id = step->step_id;
    head->uid = step->uid;
    head->kind = (uint32_t)step->kind;
    head->flags = step->observe ? XC_REC_OBSERVE : 0;
    snprintf(head->node_name, sizeof head->node_name, "%s", step->node_name);
    snprintf(head->class_name, sizeof head->class_name, "%s",
             step->rules->class_name ? step->rules->class_name : "");
    memcpy(head->policy_hash, hash, sizeof head->policy_hash);
    if (start->option_given)
        put_words(head, start->option ? start->option : "on");
}

static void prepare(struct xc_step *step, const struct xc_step_start *start,
                    const struct xc_places *places, const struct xc_step_host *host)
{
    char hash[17] = "";
    take_words(step, start);
    bool option_on = step->words.given && !step->words.off;
    open_directories(step);
    struct xc_error error = {0};
    if (step_snapshot(step, &step->node, &error) < 0)
        trouble(step, &error);
    load_policy(step, places, host, hash);
    if (!step->rules)
        return;
    step->refuse |= step->rules->bind.on_error == XC_ON_ERROR_REFUSE;
    decide(step, host, option_on);
    if (!step->node)
        step->place = step->memory = false;
    look_at_program(step);
    env_forget_outer(host);
    topo_forget_outer(host);
    nccl_open(step, host);
    topo_open(step, host);
    fill_table(step, start, hash);
}

struct xc_step *step_open(const struct xc_step_start *start, const struct xc_step_host *host)
{
    int64_t began = xc_now_us();
    struct xc_step *step = copy_start(start);
    if (!step)
        return NULL;
    struct xc_places places = {.prefix = start->machine ? start->machine : "",
                               .policy = start->policy,
                               .slurm_conf = getenv("SLURM_CONF")};
    const char *disabled = xc_policy_disabled(&places);
    if (disabled && start->option_given)
        tell(step, "%s: switched off here by %s", step->node_name, disabled);
    if (disabled)
        return step; /* not active */
    step->active = true;
    prepare(step, start, &places, host);
    step_marks(step);
    if (!step->rules || !step->table.head)
        step->active = false; /* no memory */
    step->open_us = (unsigned)(xc_now_us() - began);
    if (step->table.head)
        step->table.head->open_us = step->open_us;
    return step;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void step_close(struct xc_step *step, const struct xc_step_host *host)
{
    (void)host;
    if (!step)
        return;
    if (step->table.head) {
        step->table.head->ended_at = time(NULL);
        step_count(step);
        if (step->table.file)
            records_prune(step->records_fd);
    }
    table_unmap(&step->table);
    xc_node_free(step->node);
    xc_rules_free(step->rules);
    xc_rules_free(step->node_rules);
    xc_text_free(&step->told);
    topo_close(step);
    nccl_close(step);
    close_fd(step->proc_fd);
    close_fd(step->cpuset_v1_fd);
    close_fd(step->cgroup_v2_fd);
    close_fd(step->records_fd);
    free(step->node_name);
    free(step->program);
    free(step->machine);
    free(step);
}
