/* Which cores does each task get? Whole cores, equally, nearest to its GPUs first.
 *
 * Cores of one NUMA node are alike, so this is a transportation problem between tasks and nodes:
 * every task wants its share, a node has so many cores, and a core costs the distance from the
 * task's GPUs. Successive shortest paths give the least total distance, so no task is starved because
 * it came last; where two ways cost the same, tasks of one node split it evenly. Priority cores are
 * shared out first and apart, so that each task gets its part of them.
 */
#include <string.h>

#include "work.h"

/* A NUMA step outweighs every tie-break: the nearest node number, or a rank's place in the line. */
#define DISTANCE_SHIFT 24
#define LINE_LENGTH    1024

struct flow {
    size_t n, ngroups;
    int64_t *cost;    /* n x ngroups */
    unsigned *amount; /* n x ngroups: cores that a task takes from a group */
    bool *known;      /* n: the task's GPUs say where it belongs */
    unsigned *spare;  /* ngroups: cores that nobody has */
    /* the path search's own */
    int64_t *reach;
    size_t *via, *previous;
};

#define START SIZE_MAX

struct cores {
    const struct xc_node *node;
    struct xc_set usable;
    int *numas; /* the groups: OS node numbers as CPUs name them, XC_NONE included */
    size_t ngroups, total, npriority;
    int *group;         /* by core: its group, XC_NONE: not usable */
    bool *priority;     /* by core */
    size_t *owner;      /* by core: the task of this batch, START: nobody */
    unsigned *load;     /* by core: tasks of earlier batches */
    unsigned *count[2]; /* cores by group: priority, others */
};

/* ---- the cores ------------------------------------------------------------------------------------ */

static void cores_free(struct cores *cores)
{
    xc_set_free(&cores->usable);
    free(cores->numas);
    free(cores->group);
    free(cores->priority);
    free(cores->owner);
    free(cores->load);
    free(cores->count[0]);
    free(cores->count[1]);
}

/* A CPU that is to be shared out. An offline one may have no core. */
static bool is_usable(const struct cores *cores, const struct xc_cpu *cpu)
{
    return cpu->core >= 0 && (size_t)cpu->core < cores->node->ncores &&
           xc_set_has(&cores->usable, (size_t)cpu->os);
}

/* smt: first keeps the first thread of each core, of those that are allowed. */
static void keep_first_threads(struct cores *cores)
{
    for (size_t i = 0; i < cores->node->ncores; i++)
        cores->owner[i] = START;
    for (size_t i = 0; i < cores->node->ncpus; i++) {
        const struct xc_cpu *cpu = &cores->node->cpus[i];
        if (!is_usable(cores, cpu))
            continue;
        size_t *keeper = &cores->owner[cpu->core];
        if (*keeper == START) {
            *keeper = i;
        } else if (cpu->thread < cores->node->cpus[*keeper].thread) {
            xc_set_del(&cores->usable, (size_t)cores->node->cpus[*keeper].os);
            *keeper = i;
        } else {
            xc_set_del(&cores->usable, (size_t)cpu->os);
        }
    }
}

static int group_of(struct cores *cores, int numa)
{
    for (size_t i = 0; i < cores->ngroups; i++)
        if (cores->numas[i] == numa)
            return (int)i;
    cores->numas[cores->ngroups] = numa;
    return (int)cores->ngroups++;
}

static int by_number(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

/* Groups in ascending order of node numbers, so that ranks are laid out along them. */
static void find_groups(struct cores *cores)
{
    int last = XC_NONE - 1;
    for (size_t i = 0; i < cores->node->ncpus; i++) {
        const struct xc_cpu *cpu = &cores->node->cpus[i];
        if (cpu->numa != last && is_usable(cores, cpu))
            group_of(cores, last = cpu->numa);
    }
    qsort(cores->numas, cores->ngroups, sizeof *cores->numas, by_number);
}

static void find_cores(struct cores *cores, const struct xc_set *priority)
{
    for (size_t i = 0; i < cores->node->ncores; i++)
        cores->group[i] = XC_NONE;
    for (size_t i = 0; i < cores->node->ncpus; i++) {
        const struct xc_cpu *cpu = &cores->node->cpus[i];
        if (!is_usable(cores, cpu))
            continue;
        if (cores->group[cpu->core] == XC_NONE)
            cores->group[cpu->core] = group_of(cores, cpu->numa);
        if (xc_set_has(priority, (size_t)cpu->os))
            cores->priority[cpu->core] = true;
    }
    for (size_t i = 0; i < cores->node->ncores; i++) {
        if (cores->group[i] == XC_NONE)
            continue;
        cores->total++;
        cores->npriority += cores->priority[i];
        cores->count[cores->priority[i] ? 0 : 1][cores->group[i]]++;
    }
}

static int cores_begin(struct cores *cores, const struct work *work, const struct xc_set *cpus)
{
    const struct xc_node *node = work->node;
    size_t ngroups = node->nnumas + 2; /* and the unknown one */
    cores->node = node;
    cores->numas = calloc(ngroups + node->ncpus, sizeof *cores->numas);
    cores->group = calloc(node->ncores + 1, sizeof *cores->group);
    cores->priority = calloc(node->ncores + 1, sizeof *cores->priority);
    cores->owner = calloc(node->ncores + 1, sizeof *cores->owner);
    cores->load = calloc(node->ncores + 1, sizeof *cores->load);
    xc_set_copy(&cores->usable, cpus);
    xc_autoset struct xc_set priority = XC_SET_EMPTY;
    if (!cores->numas || !cores->group || !cores->priority || !cores->owner || !cores->load ||
        priority_cpus(work, &priority, NULL) < 0)
        return -1;
    if (work->smt == XC_SMT_FIRST)
        keep_first_threads(cores);
    find_groups(cores);
    cores->count[0] = calloc(cores->ngroups + 1, sizeof *cores->count[0]);
    cores->count[1] = calloc(cores->ngroups + 1, sizeof *cores->count[1]);
    if (!cores->count[0] || !cores->count[1])
        return -1;
    find_cores(cores, &priority);
    return cores->usable.failed ? -1 : 0;
}

/* ---- least distance ------------------------------------------------------------------------------- */

static void flow_free(struct flow *flow)
{
    free(flow->cost);
    free(flow->amount);
    free(flow->known);
    free(flow->spare);
    free(flow->reach);
    free(flow->via);
    free(flow->previous);
}

static int flow_begin(struct flow *flow, size_t n, size_t ngroups)
{
    *flow = (struct flow){.n = n, .ngroups = ngroups};
    flow->cost = calloc(n * ngroups + 1, sizeof *flow->cost);
    flow->amount = calloc(n * ngroups + 1, sizeof *flow->amount);
    flow->known = calloc(n + 1, sizeof *flow->known);
    flow->spare = calloc(ngroups + 1, sizeof *flow->spare);
    flow->reach = calloc(ngroups + 1, sizeof *flow->reach);
    flow->via = calloc(ngroups + 1, sizeof *flow->via);
    flow->previous = calloc(ngroups + 1, sizeof *flow->previous);
    return flow->cost && flow->amount && flow->known && flow->spare && flow->reach && flow->via &&
                   flow->previous
               ? 0
               : -1;
}

/* From one task with GPUs: the SLIT distance of its nearest GPU's node, then the nearest number. */
static int64_t distance_cost(const struct cores *cores, const struct xc_gpu_list *list,
                             size_t group)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < list->count; i++) {
        int from = cores->node->gpus[list->gpus[i]].numa;
        if (from == XC_NONE)
            continue;
        int to = cores->numas[group];
        int64_t apart = from > to ? from - to : to - from;
        int64_t cost = ((int64_t)xc_node_distance(cores->node, from, to) << DISTANCE_SHIFT) + apart;
        if (cost < best)
            best = cost;
    }
    return best;
}

static bool known_place(const struct xc_node *node, const struct xc_gpu_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (node->gpus[list->gpus[i]].numa != XC_NONE)
            return true;
    return false;
}

/* Tasks whose place is unknown are laid out along the cores in rank order: the square of the way from
 * a rank's place in that line keeps contiguous ranks together. */
static void fill_costs(struct flow *flow, const struct cores *cores,
                       const struct xc_gpu_list *lists, size_t first, size_t step)
{
    for (size_t m = 0; m < flow->n; m++) {
        const struct xc_gpu_list *list = &lists[first + m * step];
        flow->known[m] = known_place(cores->node, list);
        int64_t place = (int64_t)((2 * m + 1) * LINE_LENGTH / (2 * flow->n));
        size_t before = 0;
        for (size_t g = 0; g < flow->ngroups; g++) {
            size_t here = cores->count[0][g] + cores->count[1][g];
            int64_t middle = (int64_t)((2 * before + here) * LINE_LENGTH / (2 * cores->total));
            before += here;
            flow->cost[m * flow->ngroups + g] = flow->known[m]
                                                    ? distance_cost(cores, list, g)
                                                    : (place - middle) * (place - middle);
        }
    }
}

/* One sweep of Bellman and Ford: a task may move a core's worth from g to h to make room in g. */
static bool relax(struct flow *flow)
{
    bool changed = false;
    for (size_t m = 0; m < flow->n; m++) {
        const int64_t *cost = &flow->cost[m * flow->ngroups];
        const unsigned *amount = &flow->amount[m * flow->ngroups];
        for (size_t g = 0; g < flow->ngroups; g++) {
            if (!amount[g] || flow->reach[g] == INT64_MAX)
                continue;
            for (size_t h = 0; h < flow->ngroups; h++) {
                int64_t reach = flow->reach[g] + cost[h] - cost[g];
                if (reach >= flow->reach[h])
                    continue;
                flow->reach[h] = reach;
                flow->via[h] = m;
                flow->previous[h] = g;
                changed = true;
            }
        }
    }
    return changed;
}

/* The group with spare cores that a source reaches most cheaply; START: there is none. */
static size_t cheapest(struct flow *flow, const bool *sources, size_t only)
{
    for (size_t g = 0; g < flow->ngroups; g++)
        flow->reach[g] = INT64_MAX;
    for (size_t m = 0; m < flow->n; m++) {
        if (sources ? !sources[m] : m != only)
            continue;
        for (size_t g = 0; g < flow->ngroups; g++) {
            if (flow->cost[m * flow->ngroups + g] >= flow->reach[g])
                continue;
            flow->reach[g] = flow->cost[m * flow->ngroups + g];
            flow->via[g] = m;
            flow->previous[g] = START;
        }
    }
    size_t best = 0;
    for (size_t g = 1; g < flow->ngroups; g++)
        if (flow->reach[g] < flow->reach[best])
            best = g;
    if (flow->spare[best]) /* moving others cannot be cheaper: what is placed is placed at best */
        return best;
    for (size_t round = 0; round <= flow->ngroups && relax(flow); round++)
        ;
    best = START;
    for (size_t g = 0; g < flow->ngroups; g++)
        if (flow->spare[g] && (best == START || flow->reach[g] < flow->reach[best]))
            best = g;
    return best;
}

/* Moves up to `want` cores along the path that cheapest() found. Returns how many; *who got them. */
static unsigned push(struct flow *flow, size_t end, unsigned want, size_t *who)
{
    unsigned amount = want < flow->spare[end] ? want : flow->spare[end];
    for (size_t g = end; flow->previous[g] != START; g = flow->previous[g]) {
        unsigned held = flow->amount[flow->via[g] * flow->ngroups + flow->previous[g]];
        if (held < amount)
            amount = held;
    }
    flow->spare[end] -= amount;
    size_t g = end;
    for (; flow->previous[g] != START; g = flow->previous[g]) {
        flow->amount[flow->via[g] * flow->ngroups + g] += amount;
        flow->amount[flow->via[g] * flow->ngroups + flow->previous[g]] -= amount;
    }
    *who = flow->via[g];
    flow->amount[*who * flow->ngroups + g] += amount;
    return amount;
}

/* What every task gets for certain, then the remainder of the division, one core to a task, where it
 * is nearest. taken[m] counts. */
static void run(struct flow *flow, const unsigned *base, bool *may_extra, size_t extras,
                unsigned *taken)
{
    size_t who;
    for (size_t m = 0; m < flow->n; m++) {
        taken[m] = 0;
        while (taken[m] < base[m]) {
            size_t end = cheapest(flow, NULL, m);
            if (end == START)
                break;
            taken[m] += push(flow, end, base[m] - taken[m], &who);
        }
    }
    for (; extras > 0; extras--) {
        size_t end = cheapest(flow, may_extra, 0);
        if (end == START)
            break;
        push(flow, end, 1, &who);
        taken[who]++;
        may_extra[who] = false;
    }
}

static int64_t slit(const struct flow *flow, size_t task, size_t group)
{
    return flow->cost[task * flow->ngroups + group] >> DISTANCE_SHIFT;
}

/* What a task has of all groups that are as far away as this one. */
static unsigned level(const struct flow *flow, size_t task, size_t group)
{
    unsigned sum = 0;
    for (size_t g = 0; g < flow->ngroups; g++)
        if (slit(flow, task, g) == slit(flow, task, group))
            sum += flow->amount[task * flow->ngroups + g];
    return sum;
}

static bool is_home(const struct flow *flow, size_t task, size_t group)
{
    for (size_t g = 0; g < flow->ngroups; g++)
        if (slit(flow, task, g) < slit(flow, task, group))
            return false;
    return true;
}

static unsigned half(unsigned a, unsigned b)
{
    return a > b ? (a - b) / 2 : 0;
}

/* How many cores of g the task a should give to b for cores of h. The swap must cost nothing. Near
 * cores are shared evenly; where both tasks have GPUs on both nodes, so is each node. */
static unsigned fair_amount(const struct flow *flow, size_t a, size_t b, size_t g, size_t h)
{
    const unsigned *fa = &flow->amount[a * flow->ngroups], *fb = &flow->amount[b * flow->ngroups];
    int64_t gain = slit(flow, a, h) - slit(flow, a, g);
    if (gain < 0 || gain != slit(flow, b, h) - slit(flow, b, g))
        return 0;
    unsigned amount = fa[g] < fb[h] ? fa[g] : fb[h], even;
    if (gain > 0) {
        even = half(level(flow, a, g), level(flow, b, g));
    } else {
        if (!is_home(flow, a, g) || !is_home(flow, b, g))
            return 0;
        even = half(fa[g], fb[g]);
        amount = amount < half(fb[h], fa[h]) ? amount : half(fb[h], fa[h]);
    }
    return amount < even ? amount : even;
}

static bool even_out(struct flow *flow, size_t a, size_t b)
{
    unsigned *fa = &flow->amount[a * flow->ngroups], *fb = &flow->amount[b * flow->ngroups];
    bool changed = false;
    for (size_t g = 0; g < flow->ngroups; g++) {
        for (size_t h = 0; h < flow->ngroups && fa[g] > 0; h++) {
            unsigned amount = h != g && fb[h] ? fair_amount(flow, a, b, g, h) : 0;
            fa[g] -= amount;
            fb[g] += amount;
            fa[h] += amount;
            fb[h] -= amount;
            changed |= amount > 0;
        }
    }
    return changed;
}

static void make_fair(struct flow *flow)
{
    bool changed = true;
    for (size_t pass = 0; changed && pass < flow->n; pass++) {
        changed = false;
        for (size_t a = 0; a < flow->n; a++)
            for (size_t b = 0; b < flow->n; b++)
                if (a != b && flow->known[a] && flow->known[b])
                    changed |= even_out(flow, a, b);
    }
}

/* ---- sharing out ------------------------------------------------------------------------------------ */

/* A group's free core that has the fewest tasks of earlier batches. */
static size_t least_loaded(const struct cores *cores, size_t group)
{
    size_t best = START;
    for (size_t core = 0; core < cores->node->ncores; core++)
        if (cores->group[core] == (int)group && cores->owner[core] == START &&
            (best == START || cores->load[core] < cores->load[best]))
            best = core;
    return best;
}

/* One core a task, and none twice while another of the group has had fewer tasks. */
static void hand_out_one(const struct flow *flow, const struct cores *cores)
{
    for (size_t m = 0; m < flow->n; m++)
        for (size_t g = 0; g < flow->ngroups; g++) {
            size_t core = flow->amount[m * flow->ngroups + g] ? least_loaded(cores, g) : START;
            if (core != START) {
                cores->owner[core] = m;
                cores->load[core]++;
            }
        }
}

/* A group's cores go to its tasks in rank order, so that the masks are easy to read. */
static void hand_out(const struct flow *flow, const struct cores *cores, bool priority)
{
    for (size_t g = 0; g < flow->ngroups; g++) {
        size_t m = 0;
        unsigned given = 0;
        for (size_t core = 0; core < cores->node->ncores; core++) {
            if (cores->group[core] != (int)g || cores->priority[core] != priority)
                continue;
            while (m < flow->n && given == flow->amount[m * flow->ngroups + g]) {
                m++;
                given = 0;
            }
            if (m == flow->n)
                break;
            cores->owner[core] = m;
            given++;
        }
    }
}

/* Puts the CPUs of the cores that a batch owns into its tasks. */
static void collect(const struct cores *cores, size_t first, size_t step,
                    struct xc_plan_task *tasks)
{
    for (size_t core = 0; core < cores->node->ncores; core++)
        if (cores->owner[core] != START)
            tasks[first + cores->owner[core] * step].cores++;
    for (size_t i = cores->node->ncpus; i-- > 0;) { /* the highest first: a set grows once */
        const struct xc_cpu *cpu = &cores->node->cpus[i];
        size_t m = is_usable(cores, cpu) ? cores->owner[cpu->core] : START;
        if (m == START)
            continue;
        struct xc_plan_task *task = &tasks[first + m * step];
        xc_set_add(&task->cpus, (size_t)cpu->os);
        if (cores->priority[cpu->core])
            xc_set_add(&task->priority, (size_t)cpu->os);
    }
}

/* Shares of one kind of cores (0 priority, 1 the others): base each, and the rest. have[] is what a
 * task has of the first kind; `each` is what every task gets in all. */
static void run_kind(struct flow *flow, const struct cores *cores, int kind, size_t total,
                     size_t each, const unsigned *have, unsigned *base, bool *may, unsigned *taken)
{
    size_t sure = 0;
    for (size_t m = 0; m < flow->n; m++) {
        base[m] = have[m] < each ? (unsigned)(each - have[m]) : 0;
        may[m] = have[m] <= each;
        sure += base[m];
    }
    memset(flow->amount, 0, flow->n * flow->ngroups * sizeof *flow->amount);
    memcpy(flow->spare, cores->count[kind], flow->ngroups * sizeof *flow->spare);
    run(flow, base, may, total > sure ? total - sure : 0, taken);
    make_fair(flow);
    hand_out(flow, cores, kind == 0);
}

/* The tasks first, first + step, ... each get at least a core of their own. */
static int share_batch(const struct cores *cores, const struct xc_gpu_list *lists, size_t first,
                       size_t step, size_t n, struct xc_plan_task *tasks)
{
    struct flow flow;
    unsigned *numbers = calloc(3 * n, sizeof *numbers);
    bool *may = calloc(n, sizeof *may);
    int rc = flow_begin(&flow, n, cores->ngroups);
    if (rc == 0 && numbers && may) {
        unsigned *base = numbers, *have = numbers + n, *taken = numbers + 2 * n;
        for (size_t i = 0; i < cores->node->ncores; i++)
            cores->owner[i] = START;
        fill_costs(&flow, cores, lists, first, step);
        if (step > 1) { /* more tasks than cores: one core each, the nearest */
            for (size_t m = 0; m < n; m++)
                base[m] = 1;
            for (size_t g = 0; g < cores->ngroups; g++)
                flow.spare[g] = cores->count[0][g] + cores->count[1][g];
            run(&flow, base, may, 0, taken);
            hand_out_one(&flow, cores);
        } else {
            if (cores->npriority)
                run_kind(&flow, cores, 0, cores->npriority, cores->npriority / n, have, base, may,
                         taken);
            memcpy(have, taken, n * sizeof *have);
            run_kind(&flow, cores, 1, cores->total - cores->npriority, cores->total / n, have, base,
                     may, taken);
        }
        collect(cores, first, step, tasks);
    } else {
        rc = -1;
    }
    flow_free(&flow);
    free(numbers);
    free(may);
    return rc;
}

int share_cores(const struct work *work, const struct xc_set *cpus, const struct xc_gpu_list *lists,
                size_t n, struct xc_plan_task *tasks)
{
    struct cores cores = {0};
    int rc = cores_begin(&cores, work, cpus);
    /* more tasks than cores: rounds of at most a task a core, neighbours in different rounds */
    size_t rounds = rc == 0 && cores.total ? (n + cores.total - 1) / cores.total : 0;
    for (size_t i = 0; rc == 0 && i < rounds; i++)
        rc = share_batch(&cores, lists, i, rounds, (n - i + rounds - 1) / rounds, tasks);
    for (size_t i = 0; i < n; i++)
        if (tasks[i].cpus.failed || tasks[i].priority.failed)
            rc = -1;
    cores_free(&cores);
    return rc;
}

int priority_cpus(const struct work *work, struct xc_set *out, struct xc_error *error)
{
    const struct xc_rules *rules = work->rules;
    if (rules->cpus.priority == XC_PRIORITY_OFF)
        return 0;
    if (rules->cpus.priority == XC_PRIORITY_AUTO) {
        xc_node_flagged(work->node, XC_CPU_PRIORITY, out);
        return out->failed ? xc_error_nomem(error) : 0;
    }
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(work->node, &online);
    return xc_cpulist_resolve(&rules->cpus.priority_list, &online, out, "cpus.priority", error);
}
