/* What do the three programs have in common? Options, the environment that slurmd gives, one child
 * that looks, if it must be one that acts, and the exit status that Slurm understands. */
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config.h"

#include "internal.h"

#define DEADLINE_MS        2000  /* until the policy has its say */
#define HEALTH_DEADLINE_MS 45000 /* slurmd ends a health check after 60 s */
#define ACT_DEADLINE_MS    20000 /* three commands, and some waiting */

/* ---- options --------------------------------------------------------------------------------------------- */

static const char *const names[] = {"xcloud-prolog", "xcloud-epilog", "xcloud-health"};

static int usage(const struct program *program, FILE *out, int rc)
{
    fprintf(out,
            "usage: %s [--policy FILE] [--prefix DIR] [--node NAME]%s\n"
            "  Slurm's %s. Without options the policy is looked for in the usual places.\n"
            "  --policy FILE    this policy\n"
            "  --prefix DIR     what is kept in /run, /var and /etc is below DIR\n"
            "  --node NAME      instead of SLURMD_NODENAME\n",
            program->name,
            program->kind == XC_HEALTH ? "\n       [--textfile FILE] [--report]" : " [--report]",
            program->kind == XC_PROLOG   ? "Prolog="
            : program->kind == XC_EPILOG ? "Epilog="
                                         : "HealthCheckProgram=, or run by a timer or NHC");
    if (program->kind == XC_HEALTH)
        fputs("  --textfile FILE  Prometheus' file of this run\n", out);
    fputs("  --report         say what is wrong, with status 1, and do nothing about it\n", out);
    return rc;
}

enum { POLICY = 256, PREFIX, NODE, TEXTFILE, REPORT, HELP, SHOW_VERSION };

static int take_option(struct program *program, int option)
{
    switch (option) {
    case POLICY:
        program->policy = optarg;
        return 0;
    case PREFIX:
        program->prefix = optarg;
        return 0;
    case NODE:
        snprintf(program->node, sizeof program->node, "%s", optarg);
        return 0;
    case TEXTFILE:
        program->textfile = optarg;
        return 0;
    case REPORT:
        program->report = true;
        return 0;
    case HELP:
        program->help = true;
        return 0;
    case SHOW_VERSION:
        program->version = true;
        return 0;
    default:
        return usage(program, stderr, 2);
    }
}

/* Slurm starts the programs in a directory of its own. */
static bool absolute(const struct program *program, const char *option, const char *path)
{
    if (!path || path[0] == '/')
        return true;
    fprintf(stderr, "%s: %s is \"%s\"; expected an absolute path\n", program->name, option, path);
    return false;
}

static int parse(struct program *program, int argc, char **argv)
{
    static const struct option options[] = {
        {"policy", required_argument, NULL, POLICY},
        {"prefix", required_argument, NULL, PREFIX},
        {"node", required_argument, NULL, NODE},
        {"report", no_argument, NULL, REPORT},
        {"help", no_argument, NULL, HELP},
        {"version", no_argument, NULL, SHOW_VERSION},
        {"textfile", required_argument, NULL, TEXTFILE},
        {0},
    };
    int option, rc = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1)
        rc = take_option(program, option);
    if (rc == 0 && optind < argc)
        fprintf(stderr, "%s: \"%s\" is too much: there are options alone\n", program->name,
                argv[optind]);
    if (rc == 0 && (optind < argc || (program->textfile && program->kind != XC_HEALTH)))
        rc = usage(program, stderr, 2);
    if (rc == 0 && !(absolute(program, "--policy", program->policy) &&
                     absolute(program, "--prefix", program->prefix) &&
                     absolute(program, "--textfile", program->textfile)))
        rc = 2;
    return rc;
}

/* ---- the environment --------------------------------------------------------------------------------------- */

static const char *from_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static long number_from_env(const char *name)
{
    long number;
    const char *value = from_env(name);
    return value && xc_to_long(value, 1, 4294967295l, &number) ? number : 0;
}

/* What slurmd says of the job, from the controller's signed word. The job's name is not taken: its
 * user chooses it, and could choose not to be checked. */
static void take_environment(struct program *program)
{
    const char *node = from_env("SLURMD_NODENAME");
    if (!program->node[0] && node)
        snprintf(program->node, sizeof program->node, "%s", node);
    if (!program->node[0] && gethostname(program->node, sizeof program->node - 1) == 0)
        program->node[strcspn(program->node, ".")] = '\0';
    program->slurm_conf = from_env("SLURM_CONF");
    if (program->kind == XC_HEALTH)
        return;
    program->job = (uint32_t)number_from_env("SLURM_JOB_ID");
    program->job_gpus = from_env("SLURM_JOB_GPUS");
    program->facts = (struct xc_job_facts){
        .partition = from_env("SLURM_JOB_PARTITION"),
        .account = from_env("SLURM_JOB_ACCOUNT"),
        .qos = from_env("SLURM_JOB_QOS"),
        .reservation = from_env("SLURM_JOB_RESERVATION"),
        .user = from_env("SLURM_JOB_USER"),
        .job_nodes = (unsigned)number_from_env("SLURM_JOB_NUM_NODES"),
    };
}

/* It becomes a word of a command and a part of paths. */
static bool node_name_ok(const char *name)
{
    return name[0] && name[0] != '-' && name[0] != '.' &&
           name[strspn(
               name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

/* ---- paths ---------------------------------------------------------------------------------------------------- */

char *run_path(const struct program *program, const char *name)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s" XC_RUN_DIR "/%s", program->prefix ? program->prefix : "", name);
    return xc_text_take(&text);
}

char *ledger_path(const struct program *program)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s" XC_STATE_DIR, program->prefix ? program->prefix : "");
    xc_autofree char *directory = xc_text_take(&text);
    if (!directory)
        return NULL;
    xc_make_dirs(directory, 0755, NULL);
    if (access(directory, W_OK) < 0) /* diskless */
        return run_path(program, "drained");
    xc_text_addf(&text, "%s/drained", directory);
    return xc_text_take(&text);
}

void use_housekeeping(const char *list)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!*list || xc_set_parse_list(&cpus, list, NULL, NULL) < 0)
        return;
    xc_affinity_set(0, &cpus);
}

/* ---- the children ------------------------------------------------------------------------------------------------ */

static void say_late(const struct program *program, struct shared *shared,
                     const struct xc_guard *guard, bool stuck)
{
    const char *dies = stuck ? ", and not even SIGKILL ends it" : "";
    const char *in = guard->hangs_in[0] ? ", it hangs in " : "";
    if (shared->wish == WISH_DRAIN && shared->finished)
        say(shared, SAY_ERROR, "%s %s: no answer within %u ms%s%s%s. It would be: %s",
            program->node, shared->allowed ? "may be drained, and is not used" : "is not drained",
            *guard->deadline_ms, in, guard->hangs_in, dies, shared->reason);
    else
        say(shared, SAY_ERROR, "no answer within %u ms%s%s: nothing is known of this node%s%s",
            *guard->deadline_ms, in, guard->hangs_in, dies,
            program->kind == XC_HEALTH ? "" : ", and the job goes on");
}

/* Who does not die is remembered: the child itself, and what it has started to ask devices. */
static void remember_left(const struct program *program, struct shared *shared,
                          const struct xc_guard *guard, bool stuck)
{
    struct xc_error error = {0};
    char text[sizeof error];
    xc_autofree char *file = run_path(program, "stuck");
    for (unsigned i = 0; file && i < guard->nleft; i++) {
        bool itself = stuck && guard->left[i] == guard->child;
        const char *what = !itself              ? "a question to a device"
                           : guard->hangs_in[0] ? guard->hangs_in
                                                : "?";
        if (!itself)
            say(shared, SAY_ERROR,
                "process %d, a question to a device, does not end; no other is asked until it "
                "does",
                (int)guard->left[i]);
        if (xc_stuck_remember(file, guard->left[i], itself, what, &error) < 0)
            say(shared, SAY_ERROR, "%s", xc_error_text(&error, text, sizeof text));
    }
}

/* Runs one of the two; whether it came to its end. */
static bool run_child(const struct program *program, struct shared *shared, void (*work)(void *),
                      const volatile unsigned *deadline_ms)
{
    struct job job = {.program = program, .shared = shared};
    struct xc_guard guard = {
        .work = work, .arg = &job, .title = program->name, .deadline_ms = deadline_ms};
    struct xc_error error = {0};
    char text[sizeof error], name[64];
    enum xc_guard_end end = xc_guard_run(&guard, &error);
    remember_left(program, shared, &guard, end == XC_GUARD_STUCK);
    if (end == XC_GUARD_DONE)
        return true;
    bool late = end == XC_GUARD_LATE || end == XC_GUARD_STUCK;
    if (end == XC_GUARD_FAILED)
        say(shared, SAY_ERROR, "%s: nothing is known of this node",
            xc_error_text(&error, text, sizeof text));
    else if (late)
        say_late(program, shared, &guard, end == XC_GUARD_STUCK);
    else
        say(shared, SAY_ERROR, "it has crashed (status 0x%x): nothing is known of this node",
            (unsigned)guard.status);
    snprintf(name, sizeof name, "%s.%s", program_word(program->kind), late ? "late" : "crashed");
    tally_add(program, name, 1);
    return false;
}

/* ---- what Slurm is told ------------------------------------------------------------------------------------------- */

static int drain_status(const struct program *program, const struct shared *shared, bool came_back)
{
    /* not counted in time: not drained. Counted, then no end: it may be drained, so it is not used */
    if (!came_back)
        return shared->allowed;
    switch (shared->act) {
    case ACT_DRAINED:
    case ACT_ALREADY:
    case ACT_FOREIGN:
        return 1;
    case ACT_FAILED:
        return 1;
    default:
        return program->kind == XC_HEALTH;
    }
}

static int act(const struct program *program, struct shared *shared)
{
    bool drains = shared->wish == WISH_DRAIN;
    if (!drains && shared->resume != XC_RESUME_NOW && !shared->may_be_back)
        return program->report && shared->wish == WISH_WOULD;
    shared->act_deadline_ms = ACT_DEADLINE_MS + shared->jitter_ms;
    bool came_back = run_child(program, shared, act_run, &shared->act_deadline_ms);
    if (!came_back && shared->pending[0])
        unlink(shared->pending); /* the next run sees the failure again */
    return drains ? drain_status(program, shared, came_back) : 0;
}

static void count_run(const struct program *program, int64_t took_us)
{
    char name[64];
    snprintf(name, sizeof name, "%s.runs", program_word(program->kind));
    tally_add(program, name, 1);
    snprintf(name, sizeof name, "%s.at", program_word(program->kind));
    tally_put(program, name, (int64_t)time(NULL));
    snprintf(name, sizeof name, "%s.us", program_word(program->kind));
    tally_put(program, name, took_us);
}

static int fill_shared(const struct program *program, struct shared *shared)
{
    xc_autofree char *state = run_path(program, "counters.");
    xc_autofree char *directory = run_path(program, "");
    if (!state || !directory || strlen(state) + sizeof "prolog.4294967295" > sizeof shared->state)
        return -1;
    xc_make_dirs(directory, 0755, NULL); /* what cannot be written there is said then */
    snprintf(shared->state, sizeof shared->state, "%s%s", state, program_word(program->kind));
    snprintf(shared->pending, sizeof shared->pending, "%s.%d", shared->state, (int)getpid());
    snprintf(shared->textfile, sizeof shared->textfile, "%s",
             program->textfile ? program->textfile : "");
    shared->deadline_ms = program->kind == XC_HEALTH ? HEALTH_DEADLINE_MS : DEADLINE_MS;
    return 0;
}

static int run(const struct program *program, struct shared *shared)
{
    struct xc_stuck still;
    int64_t began = xc_now_us();
    xc_autofree char *stuck = run_path(program, "stuck");
    if (program->kind == XC_EPILOG)
        mark_remove(program);
    if (stuck && xc_stuck_still(stuck, &still)) {
        say(shared, SAY_ERROR, "%s: an earlier run still hangs (%s)",
            still.run ? "nothing is checked" : "devices are not asked", still.text);
        if (still.run)
            return 0;
        shared->no_probe = true;
    }
    int rc = 0;
    if (run_child(program, shared, work_run, &shared->deadline_ms) && shared->finished)
        rc = act(program, shared);
    if (!program->report)
        count_run(program, xc_now_us() - began);
    if (program->kind == XC_HEALTH && shared->textfile[0] && !program->report)
        metrics_write(program, shared, NULL);
    return rc;
}

int xc_program_main(enum xc_program kind, int argc, char **argv)
{
    struct program program = {.kind = kind, .name = names[kind]};
    umask(022);
    int rc = parse(&program, argc, argv);
    if (rc || program.help)
        return rc ? rc : usage(&program, stdout, 0);
    if (program.version) {
        printf("%s " PACKAGE_VERSION "\n", program.name);
        return 0;
    }
    take_environment(&program);
    struct shared *shared = xc_guard_share(sizeof *shared);
    if (!shared || fill_shared(&program, shared) < 0 || !node_name_ok(program.node)) {
        fprintf(stderr, "%s: %s: nothing is checked\n", program.name,
                shared ? "the node's name or the prefix cannot be used" : "out of memory");
        return kind == XC_HEALTH && program.report ? 2 : 0;
    }
    rc = run(&program, shared);
    say_all(&program, shared);
    return rc;
}
