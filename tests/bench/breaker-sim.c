/* A wrong policy is pushed to 10,000 nodes: how many does it drain? A simulation in virtual time of
 * what xcloud-prolog does, with its own decisions (prolog/breaker.c, prolog/slots.c): breaker-sim
 * [NODES [LIMIT]].
 *
 * Each node starts a job, whose prolog fails, at the beginning (all of them within seconds: one large
 * job, or a maintenance that ends) or some time within the first ten minutes; and again with the next
 * job, every ten minutes or so, or every minute, as long as it is not drained. A node that was refused
 * does not ask again for a while (prolog/backoff.c); one row is without that. Counting and draining are answers of the
 * controller that take between some milliseconds and seconds; what was counted is what was so at a
 * moment in between. Slots are files in a real directory whose listing is as old as a file server's
 * may be. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/prolog.h>

#define WINDOW_S   600
#define HORIZON_US (3600ll * 1000000)
#define BASE       1700000000 /* Unix time of virtual time 0 */

enum mode { NONE, ASKING, COUNTED, SLOTS };
static const char *const mode_names[] = {"no breaker", "always counted", "nodes counted", "slots"};
enum storm { AT_ONCE, SLOW, RETRIED, STORMS };
static const char *const storm_names[] = {"at once", "in 10 min", "every minute"};
#define MINUTES (HORIZON_US / 60000000 + 1)

/* What a node does next. */
enum action { START, COUNT, DRAIN, RECOUNT, UNDO, LOOK, CLAIM };
struct event {
    int64_t at;
    unsigned node;
    enum action action;
};

struct sim {
    enum mode mode;
    enum storm storm;
    unsigned nodes;
    struct xc_breaker breaker;
    uint64_t random;
    struct event *heap;
    size_t nheap;
    struct xc_drained *all; /* by number, which is by name */
    bool *drained;
    int64_t *until;          /* a refused node asks again */
    struct xc_drains drains; /* those that are drained, by name */
    char (*slot)[128];       /* the one that a node has seen free */
    int dir_fd;
    /* results */
    unsigned now_drained, most, at_minute, at_window, most_in_window;
    unsigned counts, drain_calls, undos, refused, by_minute[MINUTES];
    int64_t *times; /* of drains that stayed, for the window */
    unsigned ntimes;
};

static uint64_t random_below(struct sim *sim, uint64_t limit)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random % limit;
}

/* From a few milliseconds to three seconds, mostly short. */
static int64_t latency(struct sim *sim)
{
    return 3000 + (int64_t)random_below(sim, random_below(sim, 10) == 0 ? 3000000 : 200000);
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static void push(struct sim *sim, int64_t at, unsigned node, enum action action)
{
    size_t i = sim->nheap++;
    struct event event = {at, node, action};
    for (; i > 0 && sim->heap[(i - 1) / 2].at > at; i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

static struct event pop(struct sim *sim)
{
    struct event first = sim->heap[0], last = sim->heap[--sim->nheap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < sim->nheap) {
        if (child + 1 < sim->nheap && sim->heap[child + 1].at < sim->heap[child].at)
            child++;
        if (last.at <= sim->heap[child].at)
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

/* ---- the controller ------------------------------------------------------------------------------------------ */

static size_t place_of(const struct sim *sim, const char *node)
{
    size_t low = 0, high = sim->drains.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(sim->drains.list[middle].node, node) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void set_drained(struct sim *sim, unsigned node, bool drained, int64_t at)
{
    struct xc_drained *one = &sim->all[node];
    size_t place = place_of(sim, one->node), after = sim->drains.count - place;
    if (sim->drained[node] == drained)
        return;
    sim->drained[node] = drained;
    one->at = BASE + at / 1000000; /* Slurm's reasons have seconds */
    if (drained) {
        memmove(&sim->drains.list[place + 1], &sim->drains.list[place], after * sizeof *one);
        sim->drains.list[place] = *one;
        sim->drains.count++;
        sim->now_drained++;
    } else {
        memmove(&sim->drains.list[place], &sim->drains.list[place + 1], (after - 1) * sizeof *one);
        sim->drains.count--;
        sim->now_drained--;
    }
    if (sim->now_drained > sim->most)
        sim->most = sim->now_drained;
}

/* ---- a node ----------------------------------------------------------------------------------------------------- */

static struct xc_breaker_who who_is(const struct sim *sim, unsigned node)
{
    /* every node in a job of its own: the limit of one job does not help */
    return (struct xc_breaker_who){
        .node = sim->all[node].node, .class_name = "hgx", .code = "MEM01", .job = node + 1};
}

static void next_job(struct sim *sim, const struct event *event)
{
    int64_t least = sim->storm == RETRIED ? 30000000 : 300000000;
    push(sim, event->at + least + (int64_t)random_below(sim, (uint64_t)least * 2), event->node,
         START);
}

static void refuse(struct sim *sim, const struct event *event)
{
    unsigned nodes = sim->mode == COUNTED ? sim->nodes : 0;
    unsigned wait = xc_breaker_wait_s(nodes, random_below(sim, 1u << 30));
    if (sim->mode == SLOTS && wait > WINDOW_S / 2)
        wait = WINDOW_S / 2;
    if (sim->mode != ASKING)
        sim->until[event->node] = event->at + wait * 1000000ll;
    sim->refused++;
    next_job(sim, event);
}

/* Each is all nodes of the cluster, in one answer. */
static void question(struct sim *sim, const struct event *event)
{
    sim->counts++;
    sim->by_minute[event->at / 60000000]++;
}

/* For the count of a window: by the time of the drain, which has seconds. */
static void stays(struct sim *sim, unsigned node)
{
    sim->times[sim->ntimes++] = (sim->all[node].at - BASE) * 1000000;
}

static void start(struct sim *sim, const struct event *event)
{
    static const enum action firsts[] = {DRAIN, COUNT, COUNT, LOOK};
    if (event->at < sim->until[event->node]) {
        next_job(sim, event);
        return;
    }
    int64_t jitter = (int64_t)random_below(sim, 1000000);
    push(sim, event->at + jitter + latency(sim), event->node, firsts[sim->mode]);
}

static void count(struct sim *sim, const struct event *event)
{
    struct xc_breaker_who who = who_is(sim, event->node);
    struct xc_breaker_seen seen;
    question(sim, event);
    if (xc_breaker_before(&sim->breaker, &who, &sim->drains, BASE + event->at / 1000000, &seen) ==
        XC_MAY_DRAIN) {
        push(sim, event->at + latency(sim), event->node, DRAIN);
    } else {
        refuse(sim, event);
    }
}

static void drain(struct sim *sim, const struct event *event)
{
    sim->drain_calls++;
    set_drained(sim, event->node, true, event->at);
    if (sim->mode == ASKING ||
        sim->mode == COUNTED) /* the rest of its second, then the question's way */
        push(sim, event->at + 1100000 + latency(sim), event->node, RECOUNT);
    else
        stays(sim, event->node);
}

static void recount(struct sim *sim, const struct event *event)
{
    struct xc_breaker_who who = who_is(sim, event->node);
    struct xc_breaker_seen seen;
    question(sim, event);
    if (xc_breaker_after(&sim->breaker, &who, &sim->drains, &seen) == XC_MAY_DRAIN)
        stays(sim, event->node);
    else
        push(sim, event->at + latency(sim), event->node, UNDO);
}

static void undo(struct sim *sim, const struct event *event)
{
    sim->undos++;
    set_drained(sim, event->node, false, event->at);
    refuse(sim, event);
}

static void look(struct sim *sim, const struct event *event)
{
    struct xc_slot_view view;
    int64_t now = BASE + event->at / 1000000;
    if (xc_slots_look(sim->dir_fd, "cluster", sim->breaker.cluster, WINDOW_S, now, &view, NULL) < 0)
        abort();
    if (view.free[0]) {
        snprintf(sim->slot[event->node], sizeof sim->slot[0], "%s", view.free);
        push(sim, event->at + latency(sim), event->node, CLAIM);
        return;
    }
    xc_slots_refuse(sim->dir_fd, sim->breaker.cluster, sim->all[event->node].node, now);
    refuse(sim, event);
}

static void claim(struct sim *sim, const struct event *event)
{
    const char *name = sim->slot[event->node];
    struct timespec at[2] = {{.tv_sec = BASE + event->at / 1000000},
                             {.tv_sec = BASE + event->at / 1000000}};
    int rc = xc_slots_claim(sim->dir_fd, name, sim->all[event->node].node, NULL);
    if (rc < 0)
        abort();
    if (rc == 1)
        utimensat(sim->dir_fd, name, at, 0);
    push(sim, event->at + latency(sim), event->node, rc == 1 ? DRAIN : LOOK);
}

static void handle(struct sim *sim, const struct event *event)
{
    static void (*const actions[])(struct sim *, const struct event *) = {
        start, count, drain, recount, undo, look, claim};
    if (event->action == START && sim->drained[event->node])
        return;
    actions[event->action](sim, event);
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void count_windows(struct sim *sim)
{
    qsort(sim->times, sim->ntimes, sizeof *sim->times, by_time);
    for (unsigned i = 0, first = 0; i < sim->ntimes; i++) {
        while (sim->times[i] - sim->times[first] >= WINDOW_S * 1000000ll)
            first++;
        if (i - first + 1 > sim->most_in_window)
            sim->most_in_window = i - first + 1;
    }
}

static void empty_directory(int dir_fd, const char *path)
{
    char command[300];
    (void)dir_fd;
    snprintf(command, sizeof command, "rm -f '%s'/*", path);
    if (system(command) != 0)
        exit(2);
}

static void simulate(struct sim *sim)
{
    int64_t minute = 60ll * 1000000, window = WINDOW_S * 1000000ll;
    for (unsigned i = 0; i < sim->nodes; i++)
        push(sim,
             (int64_t)random_below(sim, sim->storm == AT_ONCE   ? 2000000
                                        : sim->storm == RETRIED ? 60000000
                                                                : 600000000),
             i, START);
    while (sim->nheap > 0) {
        struct event event = pop(sim);
        if (event.at > minute && !sim->at_minute)
            sim->at_minute = sim->now_drained;
        if (event.at > window && !sim->at_window)
            sim->at_window = sim->now_drained;
        if (event.at > HORIZON_US)
            break;
        handle(sim, &event);
    }
    if (!sim->at_minute)
        sim->at_minute = sim->now_drained;
    if (!sim->at_window)
        sim->at_window = sim->now_drained;
    count_windows(sim);
}

/* The most in one minute, once all have asked for the first time. */
static unsigned most_asked(const struct sim *sim)
{
    unsigned most = 0;
    for (size_t i = sim->storm == SLOW ? 10 : 1; i < MINUTES; i++)
        if (sim->by_minute[i] > most)
            most = sim->by_minute[i];
    return most;
}

static void run(enum mode mode, enum storm storm, unsigned nodes, unsigned limit, const char *path,
                int dir_fd)
{
    struct sim sim = {.mode = mode,
                      .storm = storm,
                      .nodes = nodes,
                      .random = 88172645463325252ull,
                      .breaker = {.cluster = limit, .window_s = WINDOW_S},
                      .dir_fd = dir_fd};
    sim.heap = calloc(nodes + 1, sizeof *sim.heap);
    sim.all = calloc(nodes, sizeof *sim.all);
    sim.drained = calloc(nodes, sizeof *sim.drained);
    sim.until = calloc(nodes, sizeof *sim.until);
    sim.drains.list = calloc(nodes + 1, sizeof *sim.drains.list);
    sim.slot = calloc(nodes, sizeof *sim.slot);
    sim.times = calloc(nodes + 1, sizeof *sim.times);
    sim.drains.nodes = nodes;
    char *names = calloc(nodes, 16);
    if (!sim.heap || !sim.all || !sim.drained || !sim.until || !sim.drains.list || !sim.slot ||
        !sim.times || !names)
        exit(2);
    for (unsigned i = 0; i < nodes; i++) {
        snprintf(names + 16 * i, 16, "n%06u", i % 1000000);
        sim.all[i] = (struct xc_drained){.node = names + 16 * i,
                                         .ours = true,
                                         .code = "MEM01",
                                         .class_name = "hgx",
                                         .job = i + 1};
    }
    empty_directory(dir_fd, path);
    simulate(&sim);
    printf("%-14s %-12s %8u %8u %8u %10u %8u %9u %9u %9u %7u\n", mode_names[mode],
           storm_names[storm], sim.at_minute, sim.at_window, sim.now_drained, sim.most_in_window,
           sim.most, sim.counts, most_asked(&sim), sim.drain_calls, sim.undos);
    free(sim.heap);
    free(sim.all);
    free(sim.drained);
    free(sim.until);
    free(sim.drains.list);
    free(sim.slot);
    free(sim.times);
    free(names);
}

int main(int argc, char **argv)
{
    long nodes = 10000, limit = 8;
    char path[] = "/dev/shm/xcloud-breaker.XXXXXX";
    if (argc > 3 || (argc > 1 && !xc_to_long(argv[1], 1, 100000, &nodes)) ||
        (argc > 2 && !xc_to_long(argv[2], 1, 1000, &limit))) {
        fprintf(stderr, "usage: breaker-sim [NODES [LIMIT]]\n");
        return 2;
    }
    if (!mkdtemp(path)) {
        perror(path);
        return 2;
    }
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    printf(
        "a wrong policy on %ld nodes, breaker: { cluster: %ld, window: 10m }; nodes drained, and "
        "questions to the controller in an hour\n",
        nodes, limit);
    printf("%-14s %-12s %8s %8s %8s %10s %8s %9s %9s %9s %7s\n", "", "jobs start", "1 min",
           "10 min", "1 h", "a window", "at most", "counts", "a minute", "drains", "undone");
    for (int mode = NONE; mode <= SLOTS; mode++)
        for (int storm = mode == ASKING ? RETRIED : AT_ONCE; storm < STORMS; storm++)
            run((enum mode)mode, (enum storm)storm, (unsigned)nodes, (unsigned)limit, path, dir_fd);
    empty_directory(dir_fd, path);
    close(dir_fd);
    rmdir(path);
    return 0;
}
