/* How long do the hooks of a step take, and how much memory? 8 tasks on a generated machine larger than
 * this one: step-bench NODE POLICY [ROUNDS], or step-bench NODE POLICY memory MODULE.
 *
 * The machine's CPUs need not be here: masks and memory policies are asked of the kernel all the same,
 * so that their system calls are paid for, and then taken as if it had agreed. The step's cpuset is a
 * directory of NODE. Lines are WHAT<tab>VALUE<tab>UNIT. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../step/internal.h"

#define TASKS  8
#define STEP   4242
#define SAMPLE 1 /* the task that is looked at */

/* ---- a kernel with the machine's CPUs ---------------------------------------------------------------- */

static unsigned long pretended[XC_SET_LIMIT / 64 / 8]; /* 8192 CPUs, as Linux */
static size_t pretended_bytes;
static int pretended_mode;
static unsigned long pretended_nodes;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long rc = __real_syscall(number, a, b, c, d, e, f);
    switch (number) {
    case SYS_sched_getaffinity:
        memcpy((void *)(uintptr_t)c, pretended, pretended_bytes);
        return (long)pretended_bytes;
    case SYS_sched_setaffinity:
        memset(pretended, 0, sizeof pretended);
        memcpy(pretended, (void *)(uintptr_t)c, (size_t)b);
        return 0;
    case SYS_set_mempolicy:
        pretended_mode = (int)a;
        pretended_nodes = b ? *(unsigned long *)(uintptr_t)b : 0;
        return 0;
    case SYS_get_mempolicy:
        *(int *)(uintptr_t)a = pretended_mode;
        *(unsigned long *)(uintptr_t)b = pretended_nodes;
        return 0;
    default:
        return rc;
    }
}

static void pretend(const struct xc_node *node)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(node, &online);
    memset(pretended, 0, sizeof pretended);
    memcpy(pretended, online.words, online.nwords * sizeof *online.words);
    pretended_bytes = online.nwords * sizeof *online.words;
}

/* ---- a step's host ---------------------------------------------------------------------------------------- */

static int get(void *ctx, const char *name, char *buffer, size_t size)
{
    (void)ctx;
    const char *value = getenv(name);
    if (!value || strlen(value) >= size)
        return -1;
    strcpy(buffer, value);
    return 0;
}

static int set(void *ctx, const char *name, const char *value)
{
    (void)ctx;
    return setenv(name, value, 1);
}

static int unset(void *ctx, const char *name)
{
    (void)ctx;
    return unsetenv(name);
}

static void log_line(const char *line)
{
    fprintf(stderr, "%s", line);
}

static const struct xc_step_host host = {.get = get, .set = set, .unset = unset, .log = log_line};

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static struct xc_step_start start_of(const char *node, const char *policy)
{
    return (struct xc_step_start){.node_name = "gpu001",
                                  .job_id = 1,
                                  .step_id = STEP,
                                  .ntasks = TASKS,
                                  .nnodes = 16,
                                  .node_index = 1,
                                  .policy = policy,
                                  .machine = node};
}

/* ---- the hooks ---------------------------------------------------------------------------------------------- */

enum what { OPEN, POST_FORK, TASK_CPU, TASK_AGAIN, TASK_FAULTS, CLOSE, ALL, TASK_WALL, WHATS };
static const struct {
    const char *name, *unit;
} whats[WHATS] = {
    {"step: open (init_post_opt)", "us"},
    {"step: post_fork, 8 calls", "us"},
    {"step: task_init, CPU time of one", "us"},
    {"step: task_init once more, without the faults", "us"},
    {"step: page faults of a task_init just forked", ""},
    {"step: close (exit)", "us"},
    {"step: all hooks, a CPU for each task", "us"},
    {"step: 8 task_inits on the CPUs here, wall", "us"},
};

struct shared {
    double wall[TASKS], cpu[TASKS], again, faults;
    int verdict[TASKS];
};

static void play_task(struct xc_step *step, int id, int gate, struct shared *shared)
{
    char go;
    if (read(gate, &go, 1) != 0)
        _exit(2);
    struct rusage before, after;
    xc_step_api(XC_STEP_ABI)->task_privileged(step, id, false);
    getrusage(RUSAGE_SELF, &before);
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    shared->verdict[id] = (int)xc_step_api(XC_STEP_ABI)->task_init(step, &host, id);
    shared->cpu[id] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    shared->wall[id] = now(CLOCK_MONOTONIC) - wall;
    getrusage(RUSAGE_SELF, &after);
    if (id != SAMPLE)
        _exit(0);
    shared->faults = (double)(after.ru_minflt - before.ru_minflt);
    cpu = now(CLOCK_THREAD_CPUTIME_ID);
    xc_step_api(XC_STEP_ABI)->task_init(step, &host, id);
    shared->again = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    _exit(0);
}

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (xc_write_atomic(path, text, strlen(text), 0644, NULL) < 0)
        die(path);
}

static int open_instead(int fd, const char *path)
{
    if (fd >= 0)
        close(fd);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    return fd;
}

/* The step's cgroup, as v2 shows it: what is written to cpuset.cpus is in force. */
static void make_cgroup(const char *node, struct xc_step *step)
{
    char path[4096];
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(step->node, &online);
    xc_autofree char *cpus = xc_set_format(&online);
    snprintf(path, sizeof path, "%s/bench/proc", node);
    if (!cpus || xc_make_dirs(path, 0755, NULL) < 0)
        die(path);
    step->proc_fd = open_instead(step->proc_fd, path);
    snprintf(path, sizeof path, "%s/bench", node);
    step->cgroup_v2_fd = open_instead(step->cgroup_v2_fd, path);
    close(step->cpuset_v1_fd);
    step->cpuset_v1_fd = -1;
    snprintf(path, sizeof path, "%s/bench/job_1", node);
    if (xc_make_dirs(path, 0755, NULL) < 0)
        die(path);
    write_file(path, "cpuset.cpus.effective", cpus);
    snprintf(path, sizeof path, "%s/bench/job_1/step_%d/user", node, STEP);
    if (xc_make_dirs(path, 0755, NULL) < 0)
        die(path);
    write_file(path, "cpuset.cpus", cpus);
    write_file(path, "cpuset.mems.effective", "0-1");
    snprintf(path, sizeof path, "%s/bench/job_1/step_%d/user/cpuset.cpus.effective", node, STEP);
    if (symlink("cpuset.cpus", path) < 0 && errno != EEXIST)
        die(path);
}

static void put_in_cgroup(const char *node, pid_t pid)
{
    char directory[4096], line[128];
    snprintf(directory, sizeof directory, "%s/bench/proc/%d", node, (int)pid);
    snprintf(line, sizeof line, "0::/job_1/step_%d/user/task_0\n", STEP);
    if (xc_make_dirs(directory, 0755, NULL) < 0)
        die(directory);
    write_file(directory, "cgroup", line);
}

static double fork_all(const char *node, struct xc_step *step, int gate[2], struct shared *shared,
                       pid_t pids[TASKS])
{
    double took = 0;
    for (int i = 0; i < TASKS; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork");
        if (pids[i] == 0) {
            close(gate[1]);
            play_task(step, i, gate[0], shared);
        }
        put_in_cgroup(node, pids[i]);
        double began = now(CLOCK_MONOTONIC);
        xc_step_api(XC_STEP_ABI)->post_fork(step, &host, i, pids[i]);
        took += now(CLOCK_MONOTONIC) - began;
    }
    return took;
}

static void one_round(const struct xc_step_start *start, struct shared *shared, double times[WHATS])
{
    const struct xc_step_api *api = xc_step_api(XC_STEP_ABI);
    double began = now(CLOCK_MONOTONIC);
    struct xc_step *step = api->open(start, &host);
    times[OPEN] = now(CLOCK_MONOTONIC) - began;
    if (!step || !step->node || step->failed || !step->place || !step->exclude) {
        fprintf(stderr, "step-bench: open did not prepare a binding: %s\n",
                step && step->told.data ? step->told.data : "");
        exit(2);
    }
    pretend(step->node);
    make_cgroup(start->machine, step);
    int gate[2];
    pid_t pids[TASKS];
    if (pipe(gate) < 0)
        die("pipe");
    times[POST_FORK] = fork_all(start->machine, step, gate, shared, pids);
    if (!(step->table.head->flags & XC_REC_NARROWED))
        fprintf(stderr, "step-bench: not narrowed: %s\n", step->table.head->message);
    close(gate[0]);
    close(gate[1]);
    times[TASK_WALL] = 0;
    for (int i = 0; i < TASKS; i++) {
        waitpid(pids[i], NULL, 0);
        if (shared->verdict[i] != XC_GO)
            fprintf(stderr, "step-bench: task %d was not let go\n", i);
        if (shared->wall[i] > times[TASK_WALL])
            times[TASK_WALL] = shared->wall[i];
    }
    times[TASK_CPU] = shared->cpu[SAMPLE];
    times[TASK_AGAIN] = shared->again;
    times[TASK_FAULTS] = shared->faults;
    began = now(CLOCK_MONOTONIC);
    api->close(step, &host);
    times[CLOSE] = now(CLOCK_MONOTONIC) - began;
    times[ALL] = times[OPEN] + times[POST_FORK] + times[TASK_CPU] + times[CLOSE];
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void hooks(const char *node, const char *policy, size_t rounds)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *times = calloc(rounds * WHATS, sizeof *times);
    if (shared == MAP_FAILED || !times)
        die("memory");
    for (size_t i = 0; i < rounds; i++) {
        struct xc_step_start start = start_of(node, policy);
        start.job_id = (uint32_t)i + 1; /* a record each, as on a node in use */
        double round[WHATS];
        one_round(&start, shared, round);
        for (size_t w = 0; w < WHATS; w++)
            times[w * rounds + i] = round[w];
    }
    for (size_t w = 0; w < WHATS; w++) {
        qsort(times + w * rounds, rounds, sizeof *times, ascending);
        printf("%s\t%.*f\t%s\n", whats[w].name, whats[w].unit[0] ? 1 : 0,
               times[w * rounds + rounds / 2], whats[w].unit);
    }
    free(times);
}

/* ---- the topology file ------------------------------------------------------------------------------------ */

/* What a task pays to prove it: the same file through a mount, and a copy whose bytes are compared. */
static void proof(size_t rounds)
{
    char file[] = "/tmp/xcloud-bench-topo.XXXXXX", copy[] = "/tmp/xcloud-bench-copy.XXXXXX";
    static char bytes[20000];
    char why[STEP_WHY];
    memset(bytes, 'x', sizeof bytes);
    int node = mkostemp(file, O_CLOEXEC), other = mkostemp(copy, O_CLOEXEC);
    if (node < 0 || other < 0 || write(node, bytes, sizeof bytes) != (ssize_t)sizeof bytes ||
        write(other, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
        die(file);
    const char *const paths[] = {file, copy};
    static const char *const names[] = {"the node's own", "a copy of 20 kB"};
    for (size_t p = 0; p < 2; p++) {
        double *times = calloc(rounds, sizeof *times);
        for (size_t i = 0; times && i < rounds; i++) {
            struct timespec began, ended;
            clock_gettime(CLOCK_MONOTONIC, &began);
            bool good = topo_file_good(paths[p], node, why);
            clock_gettime(CLOCK_MONOTONIC, &ended);
            if (!good)
                die(why);
            times[i] = (double)(ended.tv_sec - began.tv_sec) * 1e6 +
                       (double)(ended.tv_nsec - began.tv_nsec) / 1e3;
        }
        qsort(times, rounds, sizeof *times, ascending);
        printf("step: the topology file is proven, %s\t%.1f\tus\n", names[p], times[rounds / 2]);
        free(times);
    }
    unlink(file);
    unlink(copy);
    close(node);
    close(other);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static long rollup(const char *key)
{
    char text[8192];
    xc_autoclose int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length < 0)
        die("/proc/self/smaps_rollup");
    text[length] = '\0';
    const char *at = strstr(text, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void memory(const char *node, const char *policy, const char *module)
{
    struct xc_step_start start = start_of(node, policy);
    long dirty = rollup("Private_Dirty:"), rss = rollup("Rss:");
    void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "step-bench: %s\n", dlerror());
        exit(2);
    }
    xc_step_api_fn *ask = NULL;
    void *symbol = dlsym(library, "xc_step_api");
    memcpy(&ask, &symbol, sizeof ask);
    const struct xc_step_api *api = ask(XC_STEP_ABI);
    struct xc_step *step = api->open(&start, &host);
    printf("step: private memory added to slurmstepd\t%ld\tKiB\n",
           rollup("Private_Dirty:") - dirty);
    printf("step: resident memory added, shared pages too\t%ld\tKiB\n", rollup("Rss:") - rss);
    api->close(step, &host);
}

int main(int argc, char **argv)
{
    long rounds = 100;
    if (argc == 5 && xc_streq(argv[3], "memory")) {
        memory(argv[1], argv[2], argv[4]);
        return 0;
    }
    if (argc < 3 || argc > 4 || (argc == 4 && !xc_to_long(argv[3], 1, 100000, &rounds))) {
        fprintf(stderr, "usage: step-bench NODE POLICY [ROUNDS | memory MODULE]\n");
        return 2;
    }
    hooks(argv[1], argv[2], (size_t)rounds);
    proof((size_t)rounds);
    return 0;
}
