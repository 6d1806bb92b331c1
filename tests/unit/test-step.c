/* Does the engine do in its four hooks what step.h says? Without Slurm: the test is the host, a
 * generated machine is the node, and forked children are the tasks. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../step/internal.h"

#define JOB    77
#define STEP   4242 /* no step of a Slurm that the test may run in */
#define TASKS  2
#define TEXT   8192
#define NOBODY 65534
#define NO_HK  "version: 1\nmode: bind\ndefaults:\n  cpus: {housekeeping: none}\n"
#define BIND   NO_HK "  bind: {memory: none}\n"
#define RECORD "77.4242"

/* ---- files ----------------------------------------------------------------------------------------- */

static char scratch[64];

/* A path below the scratch directory; a few of them are alive at a time. */
static const char *at(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s", at(name));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(xc_make_dirs(path, 0755, NULL), 0);
    struct xc_error error = {0};
    if (xc_write_atomic(at(name), text, strlen(text), 0644, &error) < 0)
        fail_msg("%s: %s", error.where, error.message);
}

static void run(const char *format, ...) xc_printf(1, 2);

static void run(const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static void slurp(const char *name, char text[TEXT])
{
    xc_autoclose int fd = open(at(name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t length = read(fd, text, TEXT - 1);
    assert_true(length >= 0);
    text[length] = '\0';
}

/* The machine: 2 CPUs, 2 NUMA nodes, 2 GPUs that sit crosswise, and its snapshot. */
static int make_node(void **state)
{
    (void)state;
    umask(022);
    strcpy(scratch, "/tmp/xcloud-step.XXXXXX");
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0)
        return -1;
    run("%s/tests/machines/make-machine two-node-2cpu %s", XC_SRCDIR, at("node"));
    put("node/dev/nvidia0", "");
    put("node/dev/nvidia1", "");
    run("chmod 666 %s/node/dev/nvidia*; mkdir -p %s/node/run/xcloud", scratch, scratch);
    xc_autoroot struct xc_root *root = NULL;
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    if (xc_machine_open(at("node"), XC_MACHINE_LIMIT, &root, &error) < 0 ||
        xc_node_read(root, NULL, &node, &error) < 0 ||
        xc_snapshot_write(node, at("node/run/xcloud/node.snapshot"), &error) < 0) {
        print_error("%s: %s\n", error.where, error.message);
        return -1;
    }
    xc_node_free(node);
    return 0;
}

static int remove_node(void **state)
{
    (void)state;
    run("rm -rf %s", scratch);
    return 0;
}

/* Each test starts without switches, kept policies and records. */
static int clean(void **state)
{
    (void)state;
    run("cd %s && rm -rf policy.yaml node/etc/xcloud node/var/lib/xcloud node/run/xcloud/steps "
        "node/run/xcloud/disabled node/run/xcloud/policy.good",
        scratch);
    return 0;
}

/* ---- the host --------------------------------------------------------------------------------------- */

struct variable {
    char name[40], value[600];
    bool present;
};
struct world {
    struct variable env[32];
};
static char logged[TEXT];

static struct variable *find(struct world *world, const char *name, bool make)
{
    for (size_t i = 0; i < XC_COUNT(world->env); i++) {
        struct variable *v = &world->env[i];
        if (xc_streq(v->name, name))
            return v;
        if (!v->name[0]) {
            snprintf(v->name, sizeof v->name, "%s", make ? name : "");
            return make ? v : NULL;
        }
    }
    return NULL;
}

static int host_get(void *ctx, const char *name, char *buffer, size_t size)
{
    struct variable *v = find(ctx, name, false);
    if (!v || !v->present || strlen(v->value) >= size)
        return -1;
    strcpy(buffer, v->value);
    return 0;
}

static int host_set(void *ctx, const char *name, const char *value)
{
    struct variable *v = find(ctx, name, true);
    if (!v || strlen(value) >= sizeof v->value)
        return -1;
    snprintf(v->value, sizeof v->value, "%s", value);
    v->present = true;
    return 0;
}

static int host_unset(void *ctx, const char *name)
{
    struct variable *v = find(ctx, name, false);
    if (v)
        v->present = false;
    return 0;
}

static void host_log(const char *line)
{
    snprintf(logged, sizeof logged, "%s", line);
}

static struct xc_step_host host_of(struct world *world)
{
    return (struct xc_step_host){
        .ctx = world, .get = host_get, .set = host_set, .unset = host_unset, .log = host_log};
}

/* ---- a launch ---------------------------------------------------------------------------------------- */

struct launch {
    const char *policy;         /* its text; NULL: there is none */
    const char *option;         /* the option's value; NULL: not given */
    struct xc_step_start start; /* what differs from the usual one */
    const char *env[6][2];      /* of the step */
    const char *gpus[TASKS];    /* CUDA_VISIBLE_DEVICES of each task */
    bool late;                  /* the second task never comes to task_init */
    bool container;             /* a container plugin has the task before task_init */
    const char *hides;          /* and this directory is empty in it */
    const char *image[2];       /* a variable that the image sets */
    /* what came of it */
    struct world world;        /* the step's environment after open */
    struct world after[TASKS]; /* each task's */
    char said[TASKS][TEXT];    /* each task's stderr */
    char cpus[TASKS][64];      /* each task's mask */
    int verdict[TASKS];
    struct xc_record record;
    bool recorded;
};

/* The task, as slurmstepd's child: waits until all post_forks are through, then as the user. */
static void play_task(struct launch *launch, struct xc_step *step, int id, int gate)
{
    char name[32], go;
    snprintf(name, sizeof name, "said.%d", id);
    int said = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    snprintf(name, sizeof name, "after.%d", id);
    int after = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (said < 0 || after < 0 || dup2(said, STDERR_FILENO) < 0 || read(gate, &go, 1) != 0)
        _exit(99);
    xc_step_api(XC_STEP_ABI)->task_privileged(step, id, launch->container);
    if (launch->container && unshare(CLONE_NEWNS) < 0)
        _exit(96);
    if (launch->hides && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                          mount("none", at(launch->hides), "tmpfs", 0, "mode=755") < 0))
        _exit(95);
    if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(98);
    struct xc_step_host host = host_of(&launch->world);
    if (launch->gpus[id])
        host_set(&launch->world, "CUDA_VISIBLE_DEVICES", launch->gpus[id]);
    if (launch->image[0])
        host_set(&launch->world, launch->image[0], launch->image[1]);
    if (launch->late && id > 0)
        _exit(0);
    enum xc_verdict verdict = xc_step_api(XC_STEP_ABI)->task_init(step, &host, id);
    if (write(after, &launch->world, sizeof launch->world) != (ssize_t)sizeof launch->world)
        _exit(97);
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_affinity_get(0, &cpus);
    xc_autofree char *list = xc_set_format(&cpus);
    dprintf(after, "%s", list);
    _exit((int)verdict);
}

static void collect(struct launch *launch, int id, int status)
{
    char name[32];
    assert_true(WIFEXITED(status));
    launch->verdict[id] = WEXITSTATUS(status);
    snprintf(name, sizeof name, "said.%d", id);
    slurp(name, launch->said[id]);
    snprintf(name, sizeof name, "after.%d", id);
    xc_autoclose int fd = open(at(name), O_RDONLY | O_CLOEXEC);
    if (read(fd, &launch->after[id], sizeof launch->after[id]) > 0 &&
        read(fd, launch->cpus[id], sizeof launch->cpus[id] - 1) < 0)
        fail();
}

static struct xc_step_start usual_start(const struct launch *launch)
{
    struct xc_step_start start = launch->start;
    start.node_name = "n1";
    start.job_id = JOB;
    start.step_id = STEP;
    start.uid = NOBODY;
    start.ntasks = start.kind == XC_STEP_EXTERN ? 0 : TASKS;
    start.nnodes = start.nnodes ? start.nnodes : 1;
    start.option_given = launch->option != NULL;
    start.option = launch->option;
    start.policy = start.policy ? start.policy : at("policy.yaml");
    start.machine = at("node");
    return start;
}

static void run_tasks(struct launch *launch, struct xc_step *step)
{
    const struct xc_step_api *api = xc_step_api(XC_STEP_ABI);
    struct xc_step_host host = host_of(&launch->world);
    pid_t pids[TASKS];
    int gate[2];
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    fflush(NULL);
    for (int i = 0; i < TASKS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            close(gate[1]);
            play_task(launch, step, i, gate[0]);
        }
        api->post_fork(step, &host, i, pids[i]);
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < TASKS; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        collect(launch, i, status);
    }
}

static void take_record(struct launch *launch)
{
    xc_autoclose int dir = open(at("node/run/xcloud/steps"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    launch->recorded = dir >= 0 && xc_record_read(dir, RECORD, &launch->record, NULL) == 0;
}

static void play(struct launch *launch)
{
    if (launch->policy)
        put("policy.yaml", launch->policy);
    for (size_t i = 0; i < XC_COUNT(launch->env) && launch->env[i][0]; i++)
        host_set(&launch->world, launch->env[i][0], launch->env[i][1]);
    const struct xc_step_api *api = xc_step_api(XC_STEP_ABI);
    struct xc_step_start start = usual_start(launch);
    struct xc_step_host host = host_of(&launch->world);
    logged[0] = '\0';
    struct xc_step *step = api->open(&start, &host);
    assert_non_null(step);
    if (start.kind == XC_STEP_EXTERN)
        api->post_fork(step, &host, XC_NONE, 0);
    else
        run_tasks(launch, step);
    api->close(step, &host);
    take_record(launch);
}

static void finish(struct launch *launch)
{
    xc_record_clear(&launch->record);
}

#define with_launch(name, ...) xc_cleanup(finish) struct launch name = {__VA_ARGS__}

static const char *value(struct launch *launch, int task, const char *name)
{
    struct variable *v = find(&launch->after[task], name, false);
    return v && v->present ? v->value : NULL;
}

static void says(const struct launch *launch, int task, const char *part)
{
    if (!strstr(launch->said[task], part))
        fail_msg("task %d said:\n%smissing: %s", task, launch->said[task], part);
}

static void is_silent(const struct launch *launch)
{
    assert_string_equal(launch->said[0], "");
    assert_string_equal(launch->said[1], "");
}

static void is_bound(const struct launch *launch)
{
    for (int i = 0; i < TASKS; i++) { /* GPU 0 is at node 1, and crosswise */
        assert_int_equal(launch->verdict[i], XC_GO);
        if (!xc_streq(launch->cpus[i], i == 0 ? "1" : "0"))
            fail_msg("task %d is on %s and said:\n%s", i, launch->cpus[i], launch->said[i]);
    }
}

static void is_unbound(const struct launch *launch)
{
    for (int i = 0; i < TASKS; i++)
        assert_string_equal(launch->cpus[i], "0-1");
}

/* The tasks get CPUs 0 and 1 of the host that the test runs on. */
static int two_cpus(void **state)
{
    clean(state);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    CPU_SET(1, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        return 0; /* the test skips */
    return 0;
}

static void need_two_cpus(void)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_affinity_get(0, &cpus);
    if (!xc_set_has(&cpus, 0) || !xc_set_has(&cpus, 1)) {
        print_message("this host lacks CPUs 0 and 1\n");
        skip();
    }
}

/* ---- binding ------------------------------------------------------------------------------------------ */

static void the_library_speaks_one_abi(void **state)
{
    (void)state;
    assert_non_null(xc_step_api(XC_STEP_ABI));
    assert_int_equal(xc_step_api(XC_STEP_ABI)->abi, XC_STEP_ABI);
    assert_null(xc_step_api(XC_STEP_ABI + 1));
    assert_null(xc_step_api(0));
}

static void each_task_is_bound_beside_its_gpu_and_recorded(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND);
    play(&launch);
    is_bound(&launch);
    is_silent(&launch);
    assert_true(launch.recorded);
    const struct xc_record *record = &launch.record;
    assert_int_equal(record->job_id, JOB);
    assert_int_equal(record->step_id, STEP);
    assert_int_equal(record->uid, NOBODY);
    assert_int_equal(record->kind, XC_STEP_TASKS);
    assert_int_equal(record->stepd_pid, getpid());
    assert_true(record->ended_at >= record->started_at && record->started_at > 0);
    assert_string_equal(record->node_name, "n1");
    assert_int_equal(strlen(record->policy_hash), 16);
    assert_int_equal(record->flags, XC_REC_PLACED);
    assert_int_equal(record->ntasks, TASKS);
    assert_int_equal(xc_set_count(&record->allowed), 2);
    for (int i = 0; i < TASKS; i++) {
        const struct xc_record_task *task = &record->tasks[i];
        assert_true(task->done && task->pid > 0);
        assert_int_equal(xc_set_count(&task->cpus), 1);
        assert_true(xc_set_has(&task->cpus, (size_t)(1 - i)));
        assert_int_equal(task->ngpus, 1);
        assert_int_equal(task->gpus[0], i);
    }
}

static void tasks_that_see_different_gpus_follow_their_own(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .gpus = {"1", "0"});
    play(&launch);
    assert_string_equal(launch.cpus[0], "0");
    assert_string_equal(launch.cpus[1], "1");
    assert_int_equal(launch.record.tasks[0].gpus[0], 1);
    assert_int_equal(launch.record.tasks[1].gpus[0], 0);
}

#define UUID "GPU-5ec2e7a1-dead-4bee-8f00-00000000000"
static void gpus_and_mig_instances_are_known_by_uuid(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(whole, .policy = BIND,
                .gpus = {UUID "1", "GPU-5ec2e7a1-dead-4bee-8f00-000000000000"});
    play(&whole);
    assert_int_equal(whole.record.tasks[0].gpus[0], 1);
    assert_int_equal(whole.record.tasks[1].gpus[0], 0);
    /* two instances of one GPU are its GPU, once; an unknown one ends the list, as CUDA does */
    with_launch(
        old, .policy = BIND,
        .gpus = {"MIG-" UUID "1/1/0, MIG-" UUID "1/2/0", "MIG-" UUID "0/1/0,MIG-GPU-0/1/0,1"});
    play(&old);
    assert_int_equal(old.record.tasks[0].ngpus, 1);
    assert_int_equal(old.record.tasks[0].gpus[0], 1);
    assert_int_equal(old.record.tasks[1].ngpus, 1);
    assert_int_equal(old.record.tasks[1].gpus[0], 0);
    assert_string_equal(old.cpus[0], "0");
    assert_string_equal(old.cpus[1], "1");
    /* instances with UUIDs of their own: what can be opened is shared out by rank */
    with_launch(
        new, .policy = BIND,
        .gpus = {"MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", UUID "1,MIG-c6d4f1ef-42e4-5de3"});
    play(&new);
    assert_int_equal(new.record.tasks[0].gpus[0], 0);
    assert_int_equal(new.record.tasks[1].gpus[0], 1);
}

static void memory_follows_the_gpu_and_is_read_back(void **state)
{
    (void)state;
    need_two_cpus();
    xc_autoset struct xc_set zero = XC_SET_EMPTY, now = XC_SET_EMPTY;
    enum xc_memory mode;
    xc_set_add(&zero, 0);
    int rc = task_set_memory(XC_MEMORY_PREFERRED, &zero);
    task_set_memory(XC_MEMORY_NONE, NULL);
    if (rc < 0 || task_get_memory(&mode, &now) < 0)
        skip(); /* a kernel without NUMA, a container that may not */
    with_launch(launch, .policy = NO_HK "  bind: {memory: preferred}\n");
    play(&launch);
    is_bound(&launch);
    const struct xc_record_task *task =
        &launch.record.tasks[1]; /* on node 0, which every host has */
    assert_int_equal(task->mem_mode, XC_MEMORY_PREFERRED);
    assert_true(xc_set_equal(&task->mems, &zero));
    assert_string_equal(launch.said[1], "");
    task = &launch.record.tasks[0]; /* on node 1: as asked, or left alone and said */
    if (task->mem_mode == XC_MEMORY_PREFERRED)
        assert_true(xc_set_has(&task->mems, 1));
    else
        says(&launch, 0, "memory policy preferred of NUMA node 1 cannot be set");
}

static void a_task_that_does_not_come_is_not_waited_for_long(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .late = true);
    int64_t began = xc_now_us();
    play(&launch);
    assert_in_range(xc_now_us() - began, 900000, 5000000);
    says(&launch, 0, "not all tasks came in time");
    assert_string_equal(launch.cpus[0], "1");
    assert_true(launch.record.tasks[0].done);
    assert_false(launch.record.tasks[1].done);
}

static void an_id_that_is_no_task_of_the_step_is_left_alone(void **state)
{
    (void)state;
    put("policy.yaml", BIND);
    const struct xc_step_api *api = xc_step_api(XC_STEP_ABI);
    struct launch launch = {0};
    struct xc_step_host host = host_of(&launch.world);
    struct xc_step_start start = usual_start(&launch);
    struct xc_step *step = api->open(&start, &host);
    api->post_fork(step, &host, 99, 1);
    assert_int_equal(api->task_init(step, &host, -1), XC_GO);
    assert_int_equal(api->task_init(step, &host, TASKS), XC_GO);
    api->close(step, &host);
    api->close(NULL, &host);
}

/* ---- what switches it off -------------------------------------------------------------------------------- */

static void a_kill_switch_stops_everything(void **state)
{
    (void)state;
    need_two_cpus();
    static const char *const switches[] = {"node/etc/xcloud/disabled", "node/run/xcloud/disabled"};
    for (size_t i = 0; i < XC_COUNT(switches); i++) {
        clean(state);
        put(switches[i], "");
        with_launch(launch, .policy = BIND, .option = "verbose", .start.on_error_refuse = true);
        play(&launch);
        is_unbound(&launch);
        says(&launch, 0, "n1: switched off here by"); /* to those who asked for something */
        assert_int_equal(launch.verdict[0], XC_GO);
        assert_false(launch.recorded);
        with_launch(unasked, .policy = BIND, .start.on_error_refuse = true);
        play(&unasked);
        is_unbound(&unasked);
        is_silent(&unasked);
    }
}

static void observe_sets_nothing_and_says_so_when_asked(void **state)
{
    (void)state;
    need_two_cpus();
    const char *policy = "version: 1\nmode: observe\ndefaults:\n  cpus: {housekeeping: none}\n"
                         "  env: {A: {value: 1, set: force}}\n";
    with_launch(launch, .policy = policy, .option = "verbose");
    play(&launch);
    is_unbound(&launch);
    says(&launch, 0, "mode observe: nothing is set on n1");
    says(&launch, 0, "0000:1");
    assert_string_equal(launch.said[1], "");
    assert_null(value(&launch, 0, "A"));
    assert_true(launch.record.flags & XC_REC_OBSERVE);
}

/* ---- policies that do not load ------------------------------------------------------------------------------ */

static void without_a_policy_nothing_is_set(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(silent, .policy = NULL);
    play(&silent);
    is_unbound(&silent);
    is_silent(&silent);
    with_launch(asked, .option = "on");
    play(&asked);
    is_unbound(&asked);
    says(&asked, 0, "no policy");
    assert_int_equal(asked.verdict[0], XC_GO);
}

static void a_broken_policy_is_named_and_the_job_runs_unbound(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = "version: 1\nmode: bnd\n");
    play(&launch);
    is_unbound(&launch);
    says(&launch, 0, "policy.yaml:2:");
    says(&launch, 0, "running unbound");
    assert_string_equal(launch.said[1], "");
    assert_int_equal(launch.verdict[0], XC_GO);
    with_launch(refused, .policy = "version: 1\nmode: bnd\n", .start.on_error_refuse = true);
    play(&refused);
    assert_int_equal(refused.verdict[0], XC_REFUSE);
    assert_int_equal(refused.verdict[1], XC_REFUSE); /* no rank is left waiting for another */
    says(&refused, 0, "refused");
    with_launch(strict, .policy = "version: 1\nmode: bnd\n", .option = "strict");
    play(&strict);
    assert_int_equal(strict.verdict[0], XC_REFUSE);
    says(&strict, 0, "policy.yaml:2:");
    assert_null(strstr(strict.said[0], "running unbound"));
}

static void a_policy_that_is_not_roots_is_not_believed(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    need_two_cpus();
    put("policy.yaml", BIND);
    assert_int_equal(chown(at("policy.yaml"), NOBODY, NOBODY), 0);
    with_launch(owned, .policy = NULL);
    play(&owned);
    is_unbound(&owned);
    says(&owned, 0, "belongs to uid 65534");
    assert_int_equal(chown(at("policy.yaml"), 0, 0), 0);
    assert_int_equal(chmod(at("policy.yaml"), 0666), 0);
    with_launch(open_to_all, .policy = NULL);
    play(&open_to_all);
    is_unbound(&open_to_all);
    says(&open_to_all, 0, "writable by group or others");
}

static void the_last_good_policy_stands_in_for_a_broken_one(void **state)
{
    (void)state;
    need_two_cpus();
    struct xc_error error = {0};
    struct xc_places places = {.prefix = at("node")};
    assert_int_equal(xc_policy_keep(&places, BIND, strlen(BIND), &error), 0);
    with_launch(launch, .policy = "version: 1\nmode: bnd\n");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "the last good policy is used");
    says(&launch, 0, "policy.yaml:2:");
}

static void another_policy_than_at_submission_is_told(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .env = {{"XCLOUD_POLICY_HASH", "0123456789abcdef"}});
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "is not the submit host's (0123456789abcdef)");
}

static void without_a_snapshot_that_can_be_made_the_job_runs_unbound(void **state)
{
    (void)state;
    need_two_cpus();
    char snapshot[512];
    snprintf(snapshot, sizeof snapshot, "%s", at("node/run/xcloud/node.snapshot"));
    run("mv %s %s.away; ln -s /proc/version %s", snapshot, snapshot, snapshot);
    with_launch(launch, .policy = BIND);
    if (access(XC_BINDIR "/xcloud", F_OK) < 0)
        play(&launch);
    run("mv %s.away %s", snapshot, snapshot);
    if (access(XC_BINDIR "/xcloud", F_OK) == 0)
        skip(); /* an installed one would make it */
    is_unbound(&launch);
    says(&launch, 0, "there is no snapshot of this machine");
    says(&launch, 0, "running unbound");
    assert_int_equal(launch.verdict[0], XC_GO);
}

/* ---- words --------------------------------------------------------------------------------------------------- */

static void verbose_shows_the_masks_as_read_back(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .option = "verbose");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "CPU Affinity");
    says(&launch, 0, "n1    0     0 0000:1");
    says(&launch, 0, "n1    1     1 0000:2");
    assert_string_equal(launch.said[1], "");
}

static void only_the_first_node_speaks_unless_all_are_asked(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(second, .policy = BIND, .option = "verbose", .start.node_index = 1,
                .start.nnodes = 2);
    play(&second);
    is_bound(&second);
    is_silent(&second);
    with_launch(all, .policy = BIND, .option = "verbose=all", .start.node_index = 1,
                .start.nnodes = 2);
    play(&all);
    says(&all, 0, "CPU Affinity");
}

static void dry_shows_the_plan_and_ends_the_task_before_it_runs(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .option = "dry");
    play(&launch);
    assert_int_equal(launch.verdict[0], XC_DONE);
    assert_int_equal(launch.verdict[1], XC_DONE);
    is_unbound(&launch);
    says(&launch, 0, "0000:1");
}

static void explain_gives_reasons_environment_and_time(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = NO_HK "  bind: {memory: none}\n  env: {A: 5}\n",
                .option = "explain");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "rank 0: ");
    says(&launch, 0, "us in slurmstepd");
    says(&launch, 0, "A=5 (policy line");
}

static void a_wrong_word_is_ignored_with_a_line(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .option = "verbos");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "the option is ignored");
}

static void off_and_words_that_are_not_permitted(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(off, .policy = BIND, .option = "off");
    play(&off);
    is_unbound(&off);
    is_silent(&off);
    assert_int_equal(off.record.flags, 0);
    with_launch(denied, .policy = NO_HK "  bind: {memory: none, users_may: [memory]}\n",
                .option = "off");
    play(&denied);
    is_bound(&denied);
    says(&denied, 0, "does not let users say off: dropped");
}

static void ask_binds_with_the_option_never_not_even_then(void **state)
{
    (void)state;
    need_two_cpus();
    const char *ask = NO_HK "  bind: {memory: none, default: ask}\n";
    with_launch(unasked, .policy = ask);
    play(&unasked);
    is_unbound(&unasked);
    with_launch(asked, .policy = ask, .option = "");
    play(&asked);
    is_bound(&asked);
    with_launch(never, .policy = NO_HK "  bind: {memory: none, default: never}\n", .option = "on");
    play(&never);
    is_unbound(&never);
    says(&never, 0, "never binds");
}

static void strict_refuses_what_others_are_only_told(void **state)
{
    (void)state;
    need_two_cpus();
    const char *policy = NO_HK "  bind: {memory: none}\n  nics: {compute: {pci: \"15b3:ffff\"}}\n";
    with_launch(told, .policy = policy);
    play(&told);
    is_bound(&told);
    says(&told, 0, "matches none of this machine's 2 NICs");
    with_launch(strict, .policy = policy, .option = "strict");
    play(&strict);
    assert_int_equal(strict.verdict[0], XC_REFUSE);
    assert_int_equal(strict.verdict[1], XC_REFUSE);
    says(&strict, 0, "refused");
    says(&strict, 0, "strict");
    assert_string_equal(strict.said[1], ""); /* once a node */
    with_launch(fine, .policy = BIND, .option = "strict");
    play(&fine);
    is_bound(&fine);
}

/* ---- what the user asked of Slurm himself ------------------------------------------------------------------------ */

static void a_placement_of_the_users_is_kept(void **state)
{
    (void)state;
    need_two_cpus();
    static const char *const placed[] = {
        "map_cpu:", "mask_cpu:0x1,0x2", "map_ldom:0", "rank", "rank_ldom",
        "none",     "threads,map_cpu:"};
    for (size_t i = 0; i < XC_COUNT(placed); i++) {
        with_launch(launch, .policy = BIND, .env = {{"SLURM_CPU_BIND_TYPE", placed[i]}});
        play(&launch);
        is_unbound(&launch);
        says(&launch, 0, "is kept");
    }
    static const char *const automatic[] = {"", "cores", "threads", "sockets", "cores,"};
    for (size_t i = 0; i < XC_COUNT(automatic); i++) {
        with_launch(launch, .policy = BIND, .env = {{"SLURM_CPU_BIND_TYPE", automatic[i]}});
        play(&launch);
        is_bound(&launch);
        is_silent(&launch);
    }
}

static void the_option_replaces_a_placement_and_says_so(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .option = "on",
                .env = {{"SLURM_CPU_BIND_TYPE", "map_cpu:0,1"}});
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "--xcloud-bind replaces --cpu-bind=map_cpu");
}

static void a_program_that_binds_by_itself_is_named(void **state)
{
    (void)state;
    need_two_cpus();
    with_launch(launch, .policy = BIND, .start.program = "/usr/bin/numactl");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "the program is numactl");
}

/* ---- environment ---------------------------------------------------------------------------------------------------- */

static void environment_rules_do_what_they_say(void **state)
{
    (void)state;
    need_two_cpus();
    const char *policy = NO_HK "  bind: {memory: none}\n"
                               "  env:\n"
                               "    A_NEW: {value: site, set: default}\n"
                               "    A_KEPT: {value: site, set: default}\n"
                               "    A_FORCED: {value: site, set: force}\n"
                               "    A_GONE: {set: forbid}\n"
                               "    A_WARNED: {value: site, set: warn}\n"
                               "    A_CORES: \"${cores}\"\n";
    with_launch(
        launch, .policy = policy, .option = "explain",
        .env = {{"A_KEPT", "job"}, {"A_FORCED", "job"}, {"A_GONE", "job"}, {"A_WARNED", "job"}});
    play(&launch);
    is_bound(&launch);
    for (int i = 0; i < TASKS; i++) {
        assert_string_equal(value(&launch, i, "A_NEW"), "site");
        assert_string_equal(value(&launch, i, "A_KEPT"), "job");
        assert_string_equal(value(&launch, i, "A_FORCED"), "site");
        assert_null(value(&launch, i, "A_GONE"));
        assert_string_equal(value(&launch, i, "A_WARNED"), "job");
        assert_string_equal(value(&launch, i, "A_CORES"), "1");
        const char *ours = value(&launch, i, "XCLOUD_ENV");
        assert_non_null(ours);
        assert_non_null(strstr(ours, "A_NEW="));
        assert_non_null(strstr(ours, "A_FORCED="));
        assert_null(strstr(ours, "A_KEPT"));
    }
    says(&launch, 0, "A_KEPT=job kept");
    says(&launch, 0, "A_FORCED=site (policy line 9, was job)");
    says(&launch, 0, "A_GONE=job taken away");
    says(&launch, 0, "A_WARNED=job where policy line 11 wants site");
}

static void a_variable_that_cannot_be_set_is_told_and_is_not_ours(void **state)
{
    (void)state;
    need_two_cpus();
    struct xc_text policy = XC_TEXT_INIT; /* longer than this host takes */
    xc_text_add(&policy, NO_HK "  bind: {memory: none}\n  env: {LONG: \"");
    for (int i = 0; i < 700; i++)
        xc_text_add(&policy, "x");
    xc_text_add(&policy, "\"}\n");
    xc_autofree char *text = xc_text_take(&policy);
    with_launch(launch, .policy = text, .option = "explain");
    play(&launch);
    is_bound(&launch);
    says(&launch, 0, "LONG: cannot be set");
    assert_null(value(&launch, 0, "LONG"));
    const char *ours = value(&launch, 0, "XCLOUD_ENV");
    assert_true(!ours || !strstr(ours, "LONG"));
}

static void what_an_outer_step_set_is_forgotten_what_the_user_changed_is_his(void **state)
{
    (void)state;
    need_two_cpus();
    /* FNV-1a of "a" and of "foobar" */
    const char *ours = "OURS=af63dc4c8601ec8c,CHANGED=85944171f73967e8,GONE=af63dc4c8601ec8c,junk";
    with_launch(launch, .policy = BIND,
                .env = {{"OURS", "a"}, {"CHANGED", "mine"}, {"XCLOUD_ENV", ours}});
    play(&launch);
    is_bound(&launch);
    struct variable *v = find(&launch.world, "OURS", false);
    assert_false(v->present);
    assert_string_equal(value(&launch, 0, "CHANGED"), "mine");
    const char *now = value(&launch, 0, "XCLOUD_ENV");
    assert_true(!now || !strstr(now, "OURS"));
}

/* ---- housekeeping without a cpuset; the extern step ------------------------------------------------------------------- */

static void without_a_cpuset_housekeeping_is_kept_free_by_affinity(void **state)
{
    (void)state;
    need_two_cpus();
    const char *policy = "version: 1\nmode: bind\ndefaults:\n  cpus: {housekeeping: \"0\"}\n"
                         "  bind: {memory: none}\n";
    with_launch(launch, .policy = policy);
    play(&launch);
    says(&launch, 0, "this step has no cpuset");
    assert_string_equal(launch.cpus[0], "1");
    assert_string_equal(launch.cpus[1], "1");
    assert_true(launch.record.flags & XC_REC_NO_CPUSET);
    assert_true(xc_set_has(&launch.record.housekeeping, 0));
    with_launch(outside, .policy = policy, .start.kind = XC_STEP_EXTERN);
    play(&outside);
    assert_non_null(strstr(logged, "this step has no cpuset"));
}

/* ---- records ------------------------------------------------------------------------------------------------------------ */

static int records_dir(void)
{
    int dir = open(at("node/run/xcloud/steps"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    return dir;
}

/* Reads whatever is there; it may be refused, and must not crash or leave anything. */
static void read_anything(int dir, const char *name)
{
    struct xc_record record;
    struct xc_error error = {0};
    if (xc_record_read(dir, name, &record, &error) < 0) {
        assert_int_not_equal(error.code, XC_OK);
        assert_null(record.tasks);
    }
    xc_record_clear(&record);
}

static void a_damaged_record_never_crashes_its_reader(void **state)
{
    (void)state;
    with_launch(launch, .policy = BIND);
    play(&launch);
    assert_true(launch.recorded);
    xc_autoclose int dir = records_dir();
    xc_autoclose int fd = openat(dir, RECORD, O_RDWR | O_CLOEXEC);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    xc_autofree unsigned char *bytes = malloc((size_t)st.st_size);
    assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    for (off_t i = 0; i < st.st_size; i++)
        for (size_t f = 0; f < XC_COUNT(flips); f++) {
            unsigned char wrong = bytes[i] ^ flips[f];
            assert_int_equal(pwrite(fd, &wrong, 1, i), 1);
            read_anything(dir, RECORD);
            assert_int_equal(pwrite(fd, &bytes[i], 1, i), 1);
        }
    for (off_t length = st.st_size - 1; length >= 0; length--) {
        struct xc_record record;
        assert_int_equal(ftruncate(fd, length), 0);
        assert_int_equal(xc_record_read(dir, RECORD, &record, NULL), -1);
    }
    assert_int_equal(pwrite(fd, bytes, (size_t)st.st_size, 0), st.st_size);
    assert_int_equal(pwrite(fd, "", 1, st.st_size), 1); /* a byte too many */
    struct xc_record record;
    assert_int_equal(xc_record_read(dir, RECORD, &record, NULL), -1);
}

static void what_is_no_record_is_refused(void **state)
{
    (void)state;
    put("node/run/xcloud/steps/empty", "");
    put("node/run/xcloud/steps/real", "not a record\n");
    run("cd %s/node/run/xcloud/steps && ln -s real link && mkdir dir && mkfifo fifo", scratch);
    xc_autoclose int dir = records_dir();
    static const struct {
        const char *name;
        enum xc_code code;
    } cases[] = {{"empty", XC_EINPUT}, {"real", XC_EINPUT}, {"link", XC_ESYS},
                 {"dir", XC_EINPUT},   {"fifo", XC_EINPUT}, {"none", XC_ENOENT}};
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_record record;
        struct xc_error error = {0};
        assert_int_equal(xc_record_read(dir, cases[i].name, &record, &error), -1);
        assert_int_equal(error.code, cases[i].code);
    }
}

static void the_newest_records_stay_and_those_of_running_steps(void **state)
{
    (void)state;
    with_launch(launch, .policy = BIND);
    play(&launch);
    xc_autoclose int dir = records_dir();
    struct table_head head;
    xc_autoclose int fd = openat(dir, RECORD, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, &head, sizeof head), sizeof head);
    for (int i = 0; i < XC_RECORDS_KEPT + 20; i++) { /* older than ours, number 0 the oldest */
        char name[32];
        snprintf(name, sizeof name, "1.%d", i);
        head.ended_at = i < 2 ? 0 : 1;
        head.stepd_pid = i == 0 ? getpid() : INT32_MAX; /* 0 runs, 1 was killed */
        xc_autoclose int out = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(write(out, &head, sizeof head), sizeof head);
        struct timespec when[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        assert_int_equal(futimens(out, when), 0);
    }
    records_prune(dir);
    assert_int_equal(faccessat(dir, RECORD, F_OK, 0), 0);
    assert_int_equal(faccessat(dir, "1.0", F_OK, 0), 0);  /* it runs */
    assert_int_equal(faccessat(dir, "1.1", F_OK, 0), -1); /* its slurmstepd is gone */
    assert_int_equal(faccessat(dir, "1.20", F_OK, 0), -1);
    assert_int_equal(faccessat(dir, "1.21", F_OK, 0), 0); /* the 63 newest beside ours */
    records_prune(-1);
}

/* ---- cgroups --------------------------------------------------------------------------------------------------------------- */

struct cgroups {
    struct xc_step step;
    struct step_cpuset found;
    struct xc_error error;
    int rc;
};

static int open_at(const char *name)
{
    int fd = open(at(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* A node whose process 123 has these lines in /proc/123/cgroup, with one cpuset directory. */
static void look(struct cgroups *look, const char *lines, const char *directory)
{
    run("rm -rf %s/cg && mkdir -p %s/cg/v1 %s/cg/v2 %s/cg/proc/123", scratch, scratch, scratch,
        scratch);
    put("cg/proc/123/cgroup", lines);
    if (directory) {
        char name[400];
        snprintf(name, sizeof name, "cg/%s/%s", directory,
                 xc_starts(directory, "v1") ? "cpuset.cpus" : "cpuset.cpus.effective");
        put(name, "0-3\n");
    }
    look->step.proc_fd = open_at("cg/proc");
    look->step.cpuset_v1_fd = open_at("cg/v1");
    look->step.cgroup_v2_fd = open_at("cg/v2");
    look->rc = cpuset_find(&look->step, 123, &look->found, &look->error);
}

static void look_away(struct cgroups *look)
{
    cpuset_close(&look->found);
    close(look->step.proc_fd);
    close(look->step.cpuset_v1_fd);
    close(look->step.cgroup_v2_fd);
}

struct path_case {
    enum xc_step_kind kind;
    uint32_t step_id;
    const char *lines;
    const char *directory; /* that exists, "v1/…" or "v2/…" */
    bool found;
};

static void check_path(const struct path_case *c)
{
    xc_cleanup(look_away) struct cgroups cg = {.step = {.kind = c->kind, .step_id = c->step_id}};
    look(&cg, c->lines, c->directory);
    assert_int_equal(cg.rc, 0);
    if ((cg.found.fd >= 0) != c->found)
        fail_msg("%s: %s", c->lines, c->found ? "not found" : "found");
    if (c->found) {
        assert_string_equal(cg.found.path, c->directory + 3);
        assert_int_equal(cg.found.v1, xc_starts(c->directory, "v1"));
    }
}

#define V1(path) "12:memory:/\n7:cpuset:" path "\n3:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/z\n"
#define V2(path) "0::" path "\n"

static void the_steps_directory_is_found_in_every_layout(void **state)
{
    (void)state;
    static const struct path_case cases[] = {
        {0, 0, V1("/slurm/uid_1000/job_5/step_0/task_1"), "v1/slurm/uid_1000/job_5/step_0", true},
        {0, 0, V1("/slurm/uid_1000/job_5/step_0"), "v1/slurm/uid_1000/job_5/step_0", true},
        {0, 7, V1("/slurm_n1/uid_0/job_5/step_7"), "v1/slurm_n1/uid_0/job_5/step_7", true},
        {0, 0, "4:cpu,cpuset,memory:/slurm/job_5/step_0/t\n", "v1/slurm/job_5/step_0", true},
        {0, 0, "4:cpuset,cpu:/slurm/job_5/step_0/t\n", "v1/slurm/job_5/step_0", true},
        {0, 0, V2("/system.slice/slurmstepd.scope/job_5/step_0/user/task_0"),
         "v2/system.slice/slurmstepd.scope/job_5/step_0/user", true},
        {0, 3, V2("/system.slice/n1_slurmstepd.scope/s1A2B3C4D5E/step_3/user/task_0"),
         "v2/system.slice/n1_slurmstepd.scope/s1A2B3C4D5E/step_3/user", true},
        {0, 0, V2("/s/job_5/step_0+1/user/task_0"), "v2/s/job_5/step_0+1/user", true},
        {XC_STEP_BATCH, 0, V2("/s/job_5/step_batch/user/task_0"), "v2/s/job_5/step_batch/user",
         true},
        {XC_STEP_INTERACTIVE, 0, V2("/s/job_5/step_interactive/user/task_0"),
         "v2/s/job_5/step_interactive/user", true},
        {XC_STEP_EXTERN, 0, V2("/s/job_5/step_extern/user/task_special"),
         "v2/s/job_5/step_extern/user", true},
        /* not ours: another step, another kind, a step whose name ours starts with, or the reverse */
        {0, 1, V2("/s/job_5/step_10/user/task_0"), "v2/s/job_5/step_10/user", false},
        {0, 10, V2("/s/job_5/step_1/user/task_0"), "v2/s/job_5/step_1/user", false},
        {XC_STEP_BATCH, 0, V2("/s/job_5/step_0/user"), "v2/s/job_5/step_0/user", false},
        {0, 0, V2("/s/job_5/xstep_0/user"), "v2/s/job_5/xstep_0/user", false},
        /* a directory that the user has made below his step and named like it: the outer one counts */
        {0, 0, V1("/slurm/job_5/step_0/step_0/task_0"), "v1/slurm/job_5/step_0", true},
        {0, 1, V1("/slurm/job_5/step_1/x/step_1"), "v1/slurm/job_5/step_1", true},
        /* no step at all, or no cpuset */
        {0, 0, V2("/user.slice/session.scope"), NULL, false},
        {0, 0, V2("/s/job_5/step_0/user/task_0"), NULL, false},
        {0, 0, "", NULL, false},
        {0, 0, "nonsense\n::\n:\n0:\n", NULL, false},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++)
        check_path(&cases[i]);
}

static void a_step_directory_without_the_controller_is_no_cpuset(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    look(&cg, V2("/s/job_5/step_0/user/task_0"), "v2/s/job_5/step_0/user");
    assert_true(cg.found.fd >= 0);
    cpuset_close(&cg.found);
    assert_int_equal(unlink(at("cg/v2/s/job_5/step_0/user/cpuset.cpus.effective")), 0);
    assert_int_equal(cpuset_find(&cg.step, 123, &cg.found, &cg.error), 0);
    assert_int_equal(cg.found.fd, -1);
}

static void a_cpuset_that_slurm_has_not_set_is_told_from_one_that_it_has(void **state)
{
    (void)state;
    static const char *const files[] = {"cg/v2/s/job_5/cpuset.cpus",
                                        "cg/v2/s/job_5/step_0/cpuset.cpus",
                                        "cg/v2/s/job_5/step_0/user/cpuset.cpus"};
    for (size_t i = 0; i < XC_COUNT(files); i++) {
        xc_cleanup(look_away) struct cgroups cg = {0};
        look(&cg, V2("/s/job_5/step_0/user/task_0"), "v2/s/job_5/step_0/user");
        assert_false(cpuset_constrained(&cg.found));
        for (size_t k = 0; k < XC_COUNT(files); k++)
            put(files[k], "\n");
        assert_false(cpuset_constrained(&cg.found));
        put(files[i], "0-3\n");
        assert_true(cpuset_constrained(&cg.found));
    }
    xc_cleanup(look_away) struct cgroups v1 = {0};
    look(&v1, V1("/slurm/job_5/step_0/task_0"), "v1/slurm/job_5/step_0");
    assert_true(cpuset_constrained(&v1.found));
}

static void a_link_in_place_of_the_step_directory_is_not_followed(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    look(&cg, V1("/slurm/job_5/step_0/task_0"), "v1/elsewhere");
    run("mkdir -p %s/cg/v1/slurm/job_5 && ln -s ../../elsewhere %s/cg/v1/slurm/job_5/step_0",
        scratch, scratch);
    cpuset_close(&cg.found);
    assert_int_equal(cpuset_find(&cg.step, 123, &cg.found, &cg.error), 0);
    assert_int_equal(cg.found.fd, -1);
}

static void a_process_that_is_gone_is_an_error(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    look(&cg, V2("/x"), NULL);
    struct step_cpuset found;
    struct xc_error error = {0};
    assert_int_equal(cpuset_find(&cg.step, 124, &found, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
    assert_int_equal(found.fd, -1);
    cpuset_close(&found);
}

/* A v1 step directory with what is below it; what is written to cpuset.cpus becomes effective. */
static void make_v1(struct cgroups *cg)
{
    look(cg, V1("/slurm/job_5/step_0/task_0"), "v1/slurm/job_5/step_0");
    put("cg/v1/slurm/job_5/cpuset.effective_cpus", "0-7\n");
    put("cg/v1/slurm/job_5/step_0/cpuset.effective_mems", "0-1\n");
    put("cg/v1/slurm/job_5/step_0/task_0/cpuset.cpus", "0-3\n");
    put("cg/v1/slurm/job_5/step_0/task_1/cpuset.cpus", "0\n");
    put("cg/v1/slurm/job_5/step_0/task_1/deeper/cpuset.cpus", "\n");
    run("ln -s cpuset.cpus %s/cg/v1/slurm/job_5/step_0/cpuset.effective_cpus", scratch);
}

static void expect_file(const char *name, const char *want)
{
    char text[TEXT];
    slurp(name, text);
    assert_true(xc_starts(text, want));
}

static int narrow(const struct step_cpuset *cpuset, const struct xc_set *away,
                  struct xc_error *error)
{
    xc_autoset struct xc_set keep = XC_SET_EMPTY;
    if (cpuset_effective(cpuset, &keep, NULL, error) < 0)
        return -1;
    xc_set_andnot(&keep, away);
    return cpuset_set(cpuset, &keep, error);
}

static void a_v1_cpuset_gets_other_cpus_of_its_job(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    make_v1(&cg);
    xc_autoset struct xc_set keep = XC_SET_EMPTY;
    xc_set_add_range(&keep, 6, 7);
    if (cpuset_set(&cg.found, &keep, &cg.error) < 0)
        fail_msg("%s", cg.error.message);
    expect_file("cg/v1/slurm/job_5/step_0/cpuset.cpus", "6-7");
    expect_file("cg/v1/slurm/job_5/step_0/task_0/cpuset.cpus", "6-7");
}

static void a_v1_cpuset_is_narrowed_from_below(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    make_v1(&cg);
    xc_autoset struct xc_set away = XC_SET_EMPTY, cpus = XC_SET_EMPTY, mems = XC_SET_EMPTY;
    assert_int_equal(cpuset_effective(&cg.found, &cpus, &mems, &cg.error), 0);
    assert_int_equal(xc_set_count(&cpus), 4);
    assert_int_equal(xc_set_count(&mems), 2);
    cpuset_job_cpus(&cg.found, &cpus);
    assert_int_equal(xc_set_count(&cpus), 8);
    xc_set_add(&away, 0);
    if (narrow(&cg.found, &away, &cg.error) < 0)
        fail_msg("%s", cg.error.message);
    expect_file("cg/v1/slurm/job_5/step_0/cpuset.cpus", "1-3");
    expect_file("cg/v1/slurm/job_5/step_0/task_0/cpuset.cpus", "1-3");
    expect_file("cg/v1/slurm/job_5/step_0/task_1/cpuset.cpus", "1-3"); /* nothing was left of it */
    expect_file("cg/v1/slurm/job_5/step_0/task_1/deeper/cpuset.cpus", "\n");
    expect_file("cg/v1/slurm/job_5/cpuset.effective_cpus", "0-7"); /* the job's is never touched */
}

static void directories_of_a_user_in_a_v1_step_cannot_stop_it(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* it takes the directory back */
    xc_cleanup(look_away) struct cgroups cg = {0};
    look(&cg, V1("/slurm/job_5/step_0"), "v1/slurm/job_5/step_0");
    run("cd %s/cg/v1/slurm/job_5/step_0 && ln -s cpuset.cpus cpuset.effective_cpus && "
        "mkdir -p a/1/2/3/4/5/6/7/8/9/10 b/1/2 b/3 && chown -R %d .",
        scratch, NOBODY);
    xc_autoset struct xc_set away = XC_SET_EMPTY;
    xc_set_add(&away, 0);
    assert_int_equal(cpuset_take_back(&cg.found), 1);
    assert_int_equal(cpuset_take_back(&cg.found), 0);
    if (narrow(&cg.found, &away, &cg.error) < 0)
        fail_msg("%s", cg.error.message);
    expect_file("cg/v1/slurm/job_5/step_0/cpuset.cpus", "1-3");
    struct stat st;
    assert_int_equal(fstat(cg.found.fd, &st), 0);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(faccessat(cg.found.fd, "a", F_OK, 0), -1);
    assert_int_equal(faccessat(cg.found.fd, "b", F_OK, 0), -1);
}

static void directories_that_slurm_has_its_tasks_in_stay(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    make_v1(&cg);
    assert_int_equal(cpuset_take_back(&cg.found), 0);
    expect_file("cg/v1/slurm/job_5/step_0/task_1/deeper/cpuset.cpus", "\n");
}

static void a_cpuset_is_not_narrowed_to_nothing(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    make_v1(&cg);
    xc_autoset struct xc_set away = XC_SET_EMPTY;
    xc_set_add_range(&away, 0, 7);
    assert_int_equal(narrow(&cg.found, &away, &cg.error), -1);
    assert_non_null(strstr(cg.error.message, "nothing would be left"));
    expect_file("cg/v1/slurm/job_5/step_0/cpuset.cpus", "0-3");
}

static void a_kernel_that_takes_the_change_and_keeps_the_cpus_is_caught(void **state)
{
    (void)state;
    xc_cleanup(look_away) struct cgroups cg = {0};
    look(&cg, V2("/s/job_5/step_0/user/task_0"), "v2/s/job_5/step_0/user");
    put("cg/v2/s/job_5/step_0/user/cpuset.cpus", "\n");
    xc_autoset struct xc_set away = XC_SET_EMPTY;
    xc_set_add(&away, 0);
    assert_int_equal(narrow(&cg.found, &away, &cg.error), -1);
    assert_non_null(strstr(cg.error.message, "the kernel made it CPUs 0-3"));
    expect_file("cg/v2/s/job_5/step_0/user/cpuset.cpus", "1-3");
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------------- */

static void a_mask_is_read_back_and_a_dead_process_is_an_error(void **state)
{
    (void)state;
    need_two_cpus();
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, one = XC_SET_EMPTY;
    assert_int_equal(xc_affinity_get(0, &cpus), 0);
    cpu_set_t libc;
    assert_int_equal(sched_getaffinity(0, sizeof libc, &libc), 0);
    assert_int_equal(xc_set_count(&cpus), CPU_COUNT(&libc));
    xc_set_add(&one, 1);
    assert_int_equal(xc_affinity_set(0, &one), 0);
    xc_autoset struct xc_set now = XC_SET_EMPTY;
    xc_affinity_get(0, &now);
    assert_true(xc_set_equal(&now, &one));
    assert_int_equal(xc_affinity_set(0, &cpus), 0);
    xc_set_clear(&one);
    assert_int_equal(xc_affinity_set(0, &one), -EINVAL);
    assert_int_equal(xc_affinity_get(INT32_MAX, &now), -ESRCH);
}

static void a_memory_policy_is_read_back(void **state)
{
    (void)state;
    static const enum xc_memory modes[] = {XC_MEMORY_PREFERRED, XC_MEMORY_BIND,
                                           XC_MEMORY_INTERLEAVE, XC_MEMORY_NONE};
    for (size_t i = 0; i < XC_COUNT(modes); i++) {
        xc_autoset struct xc_set node = XC_SET_EMPTY, now = XC_SET_EMPTY;
        enum xc_memory mode = XC_MEMORY_UNSET;
        xc_set_add(&node, 0);
        int rc = task_set_memory(modes[i], &node);
        if (rc == -ENOSYS || rc == -EPERM)
            skip(); /* a kernel without NUMA, a container that may not */
        assert_int_equal(rc, 0);
        assert_int_equal(task_get_memory(&mode, &now), 0);
        assert_int_equal(mode, modes[i]);
        assert_int_equal(xc_set_count(&now), modes[i] == XC_MEMORY_NONE ? 0 : 1);
    }
    xc_autoset struct xc_set far = XC_SET_EMPTY;
    xc_set_add(&far, 60000); /* no machine has it */
    assert_int_equal(task_set_memory(XC_MEMORY_BIND, &far), -EINVAL);
}

/* ---- what steps came to ------------------------------------------------------------------------------- */

static uint64_t steps_of(enum xc_step_result result)
{
    uint64_t results[XC_STEP_RESULTS] = {0};
    xc_step_counts(at("node/run/xcloud/steps.count"), results);
    return results[result];
}

static void what_steps_came_to_is_counted(void **state)
{
    (void)state;
    run("rm -f %s/node/run/xcloud/steps.count", scratch);
    assert_int_equal(xc_step_counts(at("node/run/xcloud/steps.count"), (uint64_t[4]){0}), -1);
    with_launch(bound, .policy = "version: 1\nmode: bind\n");
    play(&bound);
    assert_int_equal(steps_of(XC_STEP_BOUND), 1);
    with_launch(off, .policy = "version: 1\nmode: bind\n", .option = "off");
    play(&off);
    with_launch(observed, .policy = "version: 1\n");
    play(&observed);
    assert_int_equal(steps_of(XC_STEP_OFF), 2);
    with_launch(broken, .policy = "version: [\n");
    play(&broken);
    assert_int_equal(steps_of(XC_STEP_FALLBACK), 1);
    with_launch(refused, .policy = "version: [\n", .start.on_error_refuse = true);
    play(&refused);
    assert_int_equal(steps_of(XC_STEP_REFUSED), 1);
    assert_int_equal(steps_of(XC_STEP_BOUND), 1);
    put("node/run/xcloud/steps.count", "not one of ours, and long enough to be read as one......");
    assert_int_equal(xc_step_counts(at("node/run/xcloud/steps.count"), (uint64_t[4]){0}), -1);
    run("rm -f %s/node/run/xcloud/steps.count", scratch);
}

/* ---- the topology file ------------------------------------------------------------------------------ */

/* Its path on the heap of no one: one at a time. */
static const char *topo_path(void)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s", at("topo.xml"));
    return path;
}

static const char *topo_policy(const char *more)
{
    static char policy[5000];
    snprintf(policy, sizeof policy,
             "version: 1\nmode: bind\ndefaults:\n  topo: {file: %s, proof: refuse%s}\n",
             topo_path(), more);
    return policy;
}

static void put_topo(void)
{
    put("topo.xml", "<system version=\"1\"></system>");
    run("chmod 644 %s", topo_path());
}

static void the_topology_file_is_set_and_proven(void **state)
{
    (void)state;
    put_topo();
    with_launch(launch, .policy = topo_policy(""), .option = "verbose");
    play(&launch);
    assert_int_equal(launch.verdict[0], XC_GO);
    assert_int_equal(launch.verdict[1], XC_GO);
    assert_string_equal(value(&launch, 0, "NCCL_TOPO_FILE"), topo_path());
    assert_string_equal(value(&launch, 1, "NCCL_TOPO_FILE"), topo_path());
    assert_string_equal(value(&launch, 0, "XCLOUD_TOPO_FILE"), topo_path());
    says(&launch, 0, "NCCL's topology file opens\n");
}

static void a_missing_topology_file_refuses_every_task_once(void **state)
{
    (void)state;
    run("rm -f %s", topo_path());
    with_launch(launch, .policy = topo_policy(""));
    play(&launch);
    assert_int_equal(launch.verdict[0], XC_REFUSE);
    assert_int_equal(launch.verdict[1], XC_REFUSE);
    assert_null(value(&launch, 0, "NCCL_TOPO_FILE"));
    says(&launch, 0, "cannot be used: ");
    says(&launch, 0, "topo.proof: refuse");
    assert_string_equal(launch.said[1], "");
}

static void an_images_topology_file_is_replaced_or_kept(void **state)
{
    (void)state;
    put_topo();
    put("image.xml", "<system version=\"2\"></system>");
    run("chmod 644 %s", at("image.xml"));
    char image[4200];
    snprintf(image, sizeof image, "%s", at("image.xml"));
    with_launch(replaced, .policy = topo_policy(""), .option = "explain", .container = true,
                .image = {"NCCL_TOPO_FILE", image});
    play(&replaced);
    assert_string_equal(value(&replaced, 0, "NCCL_TOPO_FILE"), topo_path());
    says(&replaced, 0, "opens inside the container");
    with_launch(kept, .policy = topo_policy(", over_image: keep"), .option = "explain",
                .container = true, .image = {"NCCL_TOPO_FILE", image});
    play(&kept);
    assert_string_equal(value(&kept, 0, "NCCL_TOPO_FILE"), image);
    says(&kept, 0, "the image's own, which the policy keeps");
    run("rm %s", image);
    with_launch(gone, .policy = topo_policy(", over_image: keep"), .container = true,
                .image = {"NCCL_TOPO_FILE", image});
    play(&gone);
    assert_int_equal(gone.verdict[0], XC_REFUSE);
    says(&gone, 0, "inside the container: it is not there");
}

static void another_file_at_the_same_path_is_not_taken_for_it(void **state)
{
    (void)state;
    char other[4200];
    put_topo();
    snprintf(other, sizeof other, "%s", at("other.xml"));
    put("other.xml", "<system version=\"1\"></syst-m>");
    xc_autoclose int fd = open(topo_path(), O_RDONLY | O_CLOEXEC);
    char why[STEP_WHY];
    assert_true(topo_file_good(topo_path(), fd, why));
    assert_false(topo_file_good(other, fd, why));
    assert_non_null(strstr(why, "another file"));
    put("other.xml", "<system version=\"1\"></system>");
    assert_true(topo_file_good(other, fd, why)); /* a copy is as good */
    put("other.xml", "");
    assert_false(topo_file_good(other, -1, why));
    assert_string_equal(why, "it is empty");
    assert_false(topo_file_good("/dev/null", -1, why));
    assert_false(topo_file_good("/", -1, why));
    assert_false(topo_file_good("", -1, why));
}

static void the_jobs_own_topology_file_is_kept(void **state)
{
    (void)state;
    put_topo();
    char own[4200];
    snprintf(own, sizeof own, "%s", at("own.xml"));
    put("own.xml", "<system version=\"1\"> </system>");
    run("chmod 644 %s", own);
    with_launch(launch, .policy = topo_policy(""), .env = {{"NCCL_TOPO_FILE", own}});
    play(&launch);
    assert_int_equal(launch.verdict[0], XC_GO);
    assert_string_equal(value(&launch, 0, "NCCL_TOPO_FILE"), own);
    assert_null(value(&launch, 0, "APPTAINER_BIND"));
}

static void what_the_user_binds_for_apptainer_stays(void **state)
{
    (void)state;
    put_topo();
    char wanted[9000];
    with_launch(launch, .policy = topo_policy(""), .env = {{"SINGULARITY_BIND", "/data,/opt:/o"}});
    play(&launch);
    snprintf(wanted, sizeof wanted, "/data,/opt:/o,%s:%s:ro", topo_path(), topo_path());
    assert_string_equal(value(&launch, 0, "APPTAINER_BIND"), wanted);
    assert_string_equal(value(&launch, 0, "SINGULARITY_BIND"), wanted);
    snprintf(wanted, sizeof wanted, "/mine:%s", topo_path());
    with_launch(own, .policy = topo_policy(""), .env = {{"APPTAINER_BIND", wanted}});
    play(&own);
    assert_string_equal(value(&own, 0, "APPTAINER_BIND"), wanted);
}

static void nothing_is_said_to_hooks_when_nothing_is_set(void **state)
{
    (void)state;
    put_topo();
    static const char *const options[] = {"off", "dry"};
    for (size_t i = 0; i < XC_COUNT(options); i++) {
        with_launch(launch, .policy = topo_policy(""), .option = options[i],
                    .env = {{"XCLOUD_TOPO_FILE", "/left/over"}});
        play(&launch);
        assert_null(value(&launch, 0, "XCLOUD_TOPO_FILE"));
        assert_null(value(&launch, 0, "NCCL_TOPO_FILE"));
    }
}

static void nccl_2428_nics_that_a_container_cannot_open_are_named(void **state)
{
    (void)state;
    run("cd %s/node && mkdir -p sys/class/infiniband_verbs/uverbs0 "
        "sys/class/infiniband_verbs/uverbs1 "
        "dev/infiniband && echo mlx5_0 >sys/class/infiniband_verbs/uverbs0/ibdev && "
        "echo mlx5_1 >sys/class/infiniband_verbs/uverbs1/ibdev && touch dev/infiniband/uverbs0 && "
        "chmod 666 dev/infiniband/uverbs0 && chmod -R a+rX sys/class/infiniband_verbs "
        "dev/infiniband",
        scratch);
    with_launch(launch, .policy = "version: 1\nmode: bind\n", .container = true);
    play(&launch);
    says(&launch, 0, "the container cannot open mlx5_1 below /dev/infiniband");
    with_launch(outside, .policy = "version: 1\nmode: bind\n");
    play(&outside);
    assert_null(strstr(outside.said[0], "cannot open"));
    run("rm -rf %s/node/sys/class/infiniband_verbs %s/node/dev/infiniband", scratch, scratch);
}

static void imex_channels_that_a_container_lacks_are_named(void **state)
{
    (void)state;
    run("mkdir -p %s/node/dev/nvidia-caps-imex-channels", scratch);
    with_launch(inside, .policy = "version: 1\nmode: bind\n", .container = true,
                .hides = "node/dev");
    play(&inside);
    says(&inside, 0, "the container lacks /dev/nvidia-caps-imex-channels");
    with_launch(there, .policy = "version: 1\nmode: bind\n", .container = true);
    play(&there);
    assert_null(strstr(there.said[0], "imex"));
    run("rmdir %s/node/dev/nvidia-caps-imex-channels", scratch);
    with_launch(none, .policy = "version: 1\nmode: bind\n", .container = true, .hides = "node/dev");
    play(&none);
    assert_null(strstr(none.said[0], "imex"));
}

#define launch_test(name) cmocka_unit_test_setup(name, two_cpus)

int main(void)
{
    const struct CMUnitTest tests[] = {
        launch_test(the_library_speaks_one_abi),
        launch_test(each_task_is_bound_beside_its_gpu_and_recorded),
        launch_test(tasks_that_see_different_gpus_follow_their_own),
        launch_test(gpus_and_mig_instances_are_known_by_uuid),
        launch_test(memory_follows_the_gpu_and_is_read_back),
        launch_test(a_task_that_does_not_come_is_not_waited_for_long),
        launch_test(an_id_that_is_no_task_of_the_step_is_left_alone),
        launch_test(a_kill_switch_stops_everything),
        launch_test(observe_sets_nothing_and_says_so_when_asked),
        launch_test(what_steps_came_to_is_counted),
        launch_test(the_topology_file_is_set_and_proven),
        launch_test(a_missing_topology_file_refuses_every_task_once),
        launch_test(an_images_topology_file_is_replaced_or_kept),
        launch_test(another_file_at_the_same_path_is_not_taken_for_it),
        launch_test(the_jobs_own_topology_file_is_kept),
        launch_test(what_the_user_binds_for_apptainer_stays),
        launch_test(nothing_is_said_to_hooks_when_nothing_is_set),
        launch_test(nccl_2428_nics_that_a_container_cannot_open_are_named),
        launch_test(imex_channels_that_a_container_lacks_are_named),
        launch_test(without_a_policy_nothing_is_set),
        launch_test(a_broken_policy_is_named_and_the_job_runs_unbound),
        launch_test(a_policy_that_is_not_roots_is_not_believed),
        launch_test(the_last_good_policy_stands_in_for_a_broken_one),
        launch_test(another_policy_than_at_submission_is_told),
        launch_test(without_a_snapshot_that_can_be_made_the_job_runs_unbound),
        launch_test(verbose_shows_the_masks_as_read_back),
        launch_test(only_the_first_node_speaks_unless_all_are_asked),
        launch_test(dry_shows_the_plan_and_ends_the_task_before_it_runs),
        launch_test(explain_gives_reasons_environment_and_time),
        launch_test(a_wrong_word_is_ignored_with_a_line),
        launch_test(off_and_words_that_are_not_permitted),
        launch_test(ask_binds_with_the_option_never_not_even_then),
        launch_test(strict_refuses_what_others_are_only_told),
        launch_test(a_placement_of_the_users_is_kept),
        launch_test(the_option_replaces_a_placement_and_says_so),
        launch_test(a_program_that_binds_by_itself_is_named),
        launch_test(environment_rules_do_what_they_say),
        launch_test(a_variable_that_cannot_be_set_is_told_and_is_not_ours),
        launch_test(what_an_outer_step_set_is_forgotten_what_the_user_changed_is_his),
        launch_test(without_a_cpuset_housekeeping_is_kept_free_by_affinity),
        launch_test(a_damaged_record_never_crashes_its_reader),
        launch_test(what_is_no_record_is_refused),
        launch_test(the_newest_records_stay_and_those_of_running_steps),
        launch_test(the_steps_directory_is_found_in_every_layout),
        launch_test(a_step_directory_without_the_controller_is_no_cpuset),
        launch_test(a_cpuset_that_slurm_has_not_set_is_told_from_one_that_it_has),
        launch_test(a_link_in_place_of_the_step_directory_is_not_followed),
        launch_test(a_process_that_is_gone_is_an_error),
        launch_test(a_v1_cpuset_gets_other_cpus_of_its_job),
        launch_test(a_v1_cpuset_is_narrowed_from_below),
        launch_test(directories_of_a_user_in_a_v1_step_cannot_stop_it),
        launch_test(directories_that_slurm_has_its_tasks_in_stay),
        launch_test(a_cpuset_is_not_narrowed_to_nothing),
        launch_test(a_kernel_that_takes_the_change_and_keeps_the_cpus_is_caught),
        launch_test(a_mask_is_read_back_and_a_dead_process_is_an_error),
        launch_test(a_memory_policy_is_read_back),
    };
    return cmocka_run_group_tests_name("step", tests, make_node, remove_node);
}
