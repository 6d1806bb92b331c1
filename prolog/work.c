/* Is this node fit? The child's part: it reads everything, may hang doing so, and leaves what it found
 * in the shared memory. It drains nothing. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/plan.h>

#include "work.h"

#define HEALTH_PROBE_MS 20000 /* for devices and site programs, all at once */
#define LIVE_MAX_AGE_US (15ll * 60 * 1000000)

void work_trouble(struct work *work, const struct xc_error *error, const char *so)
{
    char text[sizeof *error];
    say(work->shared, SAY_ERROR, "%s; %s", xc_error_text(error, text, sizeof text), so);
}

/* ---- the policy ---------------------------------------------------------------------------------------- */

/* Whether this text is the policy that was loaded: somebody may have written another one since. */
static bool is_loaded(const struct work *work, const char *text, size_t length)
{
    struct xc_policy *policy = NULL;
    bool same = xc_policy_parse(text, length, work->source.path, &policy, NULL) == 0 &&
                xc_streq(xc_policy_hash(policy), work->shared->hash);
    xc_policy_free(policy);
    return same;
}

/* The first run that sees a policy that loads keeps it: from then on arm_after counts. */
static void keep_good(struct work *work)
{
    size_t length, kept_length;
    struct xc_error error = {0};
    if (work->source.last_good || work->program->report)
        return;
    xc_autofree char *text = xc_read_trusted(work->source.path, XC_POLICY_LIMIT, &length, NULL);
    static const char *const places[] = {XC_RUN_DIR, XC_STATE_DIR};
    for (size_t i = 0; text && i < XC_COUNT(places); i++) {
        xc_autotext struct xc_text path = XC_TEXT_INIT;
        xc_text_addf(&path, "%s%s/policy.good", work->places.prefix, places[i]);
        xc_autofree char *kept =
            path.failed ? NULL : xc_read_trusted(path.data, XC_POLICY_LIMIT, &kept_length, NULL);
        if (kept && kept_length == length && memcmp(kept, text, length) == 0)
            return;
        if (kept)
            break;
    }
    if (text && is_loaded(work, text, length) &&
        xc_policy_keep(&work->places, text, length, &error) < 0)
        work_trouble(work, &error, "no copy of the policy is kept");
}

/* Whether nobody has said it since the boot: /run is of one. */
static bool first_of_boot(const struct program *program, const char *name)
{
    xc_autofree char *path = run_path(program, name);
    xc_autoclose int fd =
        path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644) : -1;
    return fd >= 0 || errno != EEXIST;
}

/* 1: there is none. */
static int load_policy(struct work *work)
{
    struct xc_error error = {0};
    const struct program *p = work->program;
    work->places = (struct xc_places){
        .prefix = p->prefix ? p->prefix : "", .policy = p->policy, .slurm_conf = p->slurm_conf};
    const char *disabled = xc_policy_disabled(&work->places);
    if (disabled) {
        say(work->shared, SAY_NOTICE, "switched off by %s: nothing is checked", disabled);
        return 1;
    }
    if (xc_policy_load(&work->places, &work->policy, &work->source, &error) == 0) {
        snprintf(work->shared->hash, sizeof work->shared->hash, "%s", xc_policy_hash(work->policy));
        work->shared->armed = work->source.armed && !work->source.last_good;
        if (work->source.last_good)
            say(work->shared, SAY_ERROR, "the last good policy is used, and drains no node: %s",
                work->source.live_error);
        return 0;
    }
    if (error.code == XC_ENOENT && !p->policy) {
        if (p->report || first_of_boot(p, "no-policy"))
            say(work->shared, SAY_WARNING,
                "%s: nothing is checked on this node. \"xcloud policy learn\" writes a first one "
                "from a good node; see xcloud-policy(5)",
                error.message);
        return 1;
    }
    work_trouble(work, &error, "nothing is checked, and no node is drained");
    return -1;
}

static int make_rules(struct work *work, struct xc_error *error)
{
    struct xc_rules *rules = NULL;
    if (xc_plan_rules(work->policy, work->node, work->program->node, &work->program->facts, NULL,
                      &rules, error) < 0)
        return -1;
    xc_rules_free(work->rules);
    work->rules = rules;
    return 0;
}

/* ---- the machine ---------------------------------------------------------------------------------------- */

/* checks_root with the node's name for %n; "/" without. On the heap. */
static char *root_of(const struct work *work)
{
    struct xc_text text = XC_TEXT_INIT;
    const char *at = work->rules->checks_root;
    if (!at)
        return strdup("/");
    for (; *at; at++) {
        if (at[0] == '%' && at[1] == 'n') {
            xc_text_add(&text, work->program->node);
            at++;
        } else {
            xc_text_add_n(&text, at, 1);
        }
    }
    return xc_text_take(&text);
}

/* The programs leave the training CPUs as soon as they know which these are. */
static void leave_training(struct work *work)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!work->live_root || !work->node || make_rules(work, NULL) < 0 ||
        xc_plan_housekeeping(work->node, work->rules, &cpus, NULL, NULL) < 0 || xc_set_empty(&cpus))
        return;
    xc_autofree char *list = xc_set_format(&cpus);
    if (!list || strlen(list) >= sizeof work->shared->housekeeping)
        return;
    use_housekeeping(list);
    strcpy(work->shared->housekeeping, list);
}

/* A reservation of another machine's slurm.conf keeps nothing else from being known. */
static int read_all(struct work *work, const struct xc_slurm_node *slurm, struct xc_error *error)
{
    struct xc_node_options options = {.slurm = slurm};
    if (xc_node_read(work->root, &options, &work->node, error) == 0)
        return 0;
    options.slurm = NULL;
    return slurm ? xc_node_read(work->root, &options, &work->node, error) : -1;
}

/* The snapshot of this boot with its changing part read again, or all of it anew. */
static int refresh(struct work *work, const char *file, const struct xc_slurm_node *slurm,
                   struct xc_error *error)
{
    xc_autofree char *boot = xc_root_read_line(work->root, "/proc/sys/kernel/random/boot_id");
    struct xc_node *old = NULL;
    if (xc_snapshot_map(file, boot ? boot : "", &old, NULL) < 0)
        return read_all(work, slurm, error);
    work->node = old;
    leave_training(work);
    work->node = NULL;
    struct xc_node_options options = {.slurm = slurm};
    int rc = xc_node_refresh(work->root, &options, old, &work->node, NULL);
    xc_node_free(old);
    if (rc == 0)
        return 0;
    work->node = NULL;
    return read_all(work, slurm, error);
}

static void write_snapshot(struct work *work, const char *file)
{
    struct xc_error error = {0};
    xc_autofree char *directory = strdup(file);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (slash)
        *slash = '\0';
    if (!slash || xc_make_dirs(directory, 0755, &error) < 0 ||
        xc_snapshot_write(work->node, file, &error) < 0)
        work_trouble(work, &error, "the steps see an older snapshot");
}

static int open_machine(struct work *work, struct xc_error *error)
{
    xc_autofree char *path = root_of(work);
    if (!path)
        return xc_error_nomem(error);
    work->live_root = xc_streq(path, "/");
    if (!work->live_root)
        say(work->shared, SAY_NOTICE, "checks_root: the machine in %s is checked, not this one",
            path);
    if (xc_root_open_dir(path, &work->root, error) < 0)
        return -1;
    struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s" XC_SNAPSHOT_FILE, work->live_root ? work->places.prefix : path);
    xc_autofree char *file = xc_text_take(&name);
    struct xc_slurm_node slurm = {0};
    const char *conf = work->live_root ? work->program->slurm_conf : NULL;
    bool known =
        xc_slurm_conf_node(work->root, conf, work->program->node, &slurm, NULL) == 0 && slurm.found;
    int rc = file ? refresh(work, file, known ? &slurm : NULL, error) : xc_error_nomem(error);
    xc_slurm_node_clear(&slurm);
    if (rc < 0)
        return -1;
    if (!work->shared->housekeeping[0])
        leave_training(work);
    if (!work->program->report)
        write_snapshot(work, file);
    return make_rules(work, error);
}

/* ---- the checks ------------------------------------------------------------------------------------------- */

static void take_job_gpus(struct work *work)
{
    xc_autonames char **names =
        work->program->job_gpus ? xc_names_split(work->program->job_gpus) : NULL;
    work->job_gpus = calloc(work->node->ngpus + 1, sizeof *work->job_gpus);
    work->job = (struct xc_check_job){.id = work->program->job, .gpus = work->job_gpus};
    for (char **name = names; work->job_gpus && name && *name; name++)
        for (size_t i = 0; i < work->node->ngpus; i++) {
            long minor;
            bool known = false;
            for (size_t j = 0; j < work->job.ngpus; j++)
                known |= work->job_gpus[j] == (int)i;
            if (!known && xc_to_long(*name, 0, 4096, &minor) &&
                work->node->gpus[i].minor == (int)minor)
                work->job_gpus[work->job.ngpus++] = (int)i;
        }
}

/* What only running something tells: health asks, and keeps it; the others take what it has kept, and
 * ask when there is nothing. */
static void fill_live(struct work *work, const struct xc_check_input *input)
{
    xc_autofree char *file = run_path(work->program, "live");
    struct xc_error error = {0};
    xc_check_live_read(work->root, &work->live);
    if (!file)
        return;
    bool loaded = (work->program->kind != XC_HEALTH || work->shared->no_probe) && work->live_root &&
                  xc_check_live_load(file, LIVE_MAX_AGE_US, &work->live, &error) == 0;
    if (loaded || work->shared->no_probe)
        return;
    if (work->program->kind == XC_HEALTH) {
        xc_check_live_probe(input, HEALTH_PROBE_MS, &work->live);
        if (work->live_root && !work->program->report &&
            xc_check_live_save(&work->live, file, &error) < 0)
            work_trouble(work, &error, "the prolog asks the devices itself");
    } else {
        xc_check_live_probe(input, work->shared->deadline_ms / 2, &work->live);
    }
}

static enum xc_check_at at_of(enum xc_program kind)
{
    static const enum xc_check_at ats[] = {XC_AT_PROLOG, XC_AT_EPILOG, XC_AT_HEALTH};
    return ats[kind];
}

static int run_checks(struct work *work, struct xc_error *error)
{
    if (xc_check_validate(work->rules, work->source.path, error) < 0)
        return -1;
    work->next.at_us = xc_boottime_us();
    xc_check_state_read(work->shared->state, &work->previous, NULL);
    take_job_gpus(work);
    struct xc_check_input input = {
        .root = work->root,
        .node = work->node,
        .rules = work->rules,
        .node_name = work->program->node,
        .slurm_conf = work->live_root ? work->program->slurm_conf : NULL,
        .at = at_of(work->program->kind),
        .live = &work->live,
        .previous = &work->previous,
        .next = &work->next,
        .job = work->program->kind == XC_HEALTH ? NULL : &work->job,
    };
    if (work->rules->checks_skip && input.at == XC_AT_PROLOG)
        return 0;
    fill_live(work, &input);
    return xc_check_run(&input, NULL, &work->findings, error);
}

/* ---- where we keep things ---------------------------------------------------------------------------------------- */

/* What others can write is not believed when it is read; why nothing is remembered must be said. */
static void judge_directory(struct work *work, const char *name)
{
    struct stat st;
    xc_autotext struct xc_text path = XC_TEXT_INIT;
    xc_text_addf(&path, "%s%s", work->program->prefix ? work->program->prefix : "", name);
    if (path.failed || stat(path.data, &st) < 0)
        return; /* what could not be written there is said then */
    if (S_ISDIR(st.st_mode) && (st.st_uid == 0 || st.st_uid == geteuid()) &&
        !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return;
    say(work->shared, SAY_WARNING,
        "%s belongs to uid %u, mode %04o: what is kept there is not believed; chown root and chmod "
        "755 mend it",
        path.data, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777u);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static void work_clear(struct work *work)
{
    xc_findings_clear(&work->findings);
    xc_check_live_clear(&work->live);
    xc_check_state_clear(&work->previous);
    xc_check_state_clear(&work->next);
    xc_rules_free(work->rules);
    xc_node_free(work->node);
    xc_root_close(work->root);
    xc_policy_free(work->policy);
    xc_policy_source_clear(&work->source);
    free(work->job_gpus);
}

static void check_all(struct work *work)
{
    struct xc_error error = {0};
    judge_directory(work, XC_RUN_DIR);
    judge_directory(work, XC_STATE_DIR);
    if (load_policy(work) != 0)
        return;
    if (make_rules(work, &error) < 0) {
        work_trouble(work, &error, "nothing is checked, and no node is drained");
        return;
    }
    if (work->program->kind != XC_HEALTH)
        work->shared->deadline_ms = work->rules->programs.deadline_s * 1000;
    if (open_machine(work, &error) < 0 || run_checks(work, &error) < 0) {
        work_trouble(work, &error, "nothing is known of this node, and it is not drained");
        return;
    }
    keep_good(work);
    work_conclude(work);
}

void work_run(void *arg)
{
    struct job *job = arg;
    struct work work = {.program = job->program, .shared = job->shared, .live.dma_latency_us = -1};
    check_all(&work);
    work_clear(&work);
    job->shared->finished = true;
}
