/* How fast is a core that has work? Only a busy one shows it: some cores of an idle node are kept busy
 * for some milliseconds each, and their cycles are counted. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "live.h"

static const struct xc_check_param busy_params[] = {
    {"least", XC_PARAM_NUMBER, NULL, "MHz; default: the base frequency, where the kernel tells it",
     NULL},
    {"cpus", XC_PARAM_CPUS, NULL, "the CPUs that are tried; default: two cores of each NUMA node",
     NULL},
    {"ms", XC_PARAM_NUMBER, "10", "for how long each is kept busy", NULL},
    {0},
};

/* ---- in the child: which, and how fast ------------------------------------------------------------- */

#define CPUS_TRIED_MAX 64
#define BUSY_MS_MAX    200

/* The first and the last training core of each NUMA node. */
static void choose(const struct xc_check_input *in, struct xc_set *out)
{
    xc_autoset struct xc_set training = XC_SET_EMPTY, hk = XC_SET_EMPTY, nodes = XC_SET_EMPTY;
    const char *said = chk_param(in, "cpus");
    xc_node_online(in->node, &training);
    if (said) {
        struct xc_cpulist list = {.text = (char *)(void *)said};
        xc_cpulist_resolve(&list, &training, out, NULL, NULL);
        return;
    }
    if (xc_plan_housekeeping(in->node, in->rules, &hk, NULL, NULL) == 0)
        xc_set_andnot(&training, &hk);
    xc_node_cpu_numas(in->node, &nodes);
    for (ssize_t numa = xc_set_next(&nodes, 0); numa >= 0;
         numa = xc_set_next(&nodes, (size_t)numa + 1)) {
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        ssize_t last = -1;
        xc_node_numa_cpus(in->node, (int)numa, &cpus);
        xc_set_and(&cpus, &training);
        for (ssize_t i = xc_set_next(&cpus, 0); i >= 0; i = xc_set_next(&cpus, (size_t)i + 1)) {
            int index = xc_node_cpu_index(in->node, (int)i);
            if (index < 0 || in->node->cpus[index].thread != 0)
                continue;
            if (last < 0)
                xc_set_add(out, (size_t)i);
            last = i;
        }
        if (last >= 0)
            xc_set_add(out, (size_t)last);
    }
}

static bool node_is_busy(struct xc_root *root)
{
    xc_autonames char **names = xc_root_list(root, "/proc");
    for (char **pid = names; pid && *pid; pid++) {
        if (!isdigit((unsigned char)**pid))
            continue;
        xc_autofree char *name = xc_root_read_line(root, "/proc/%s/comm", *pid);
        if (name && xc_streq(name, "slurmstepd"))
            return true;
    }
    return false;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void spin(int64_t ns)
{
    int64_t end = now_ns() + ns;
    do {
        for (int i = 0; i < 1000; i++)
            __asm__ volatile("");
    } while (now_ns() < end);
}

/* Cycles of this thread. Root counts the kernel's share too; others may not. */
static int open_cycles(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_CPU_CYCLES,
                                   .read_format = PERF_FORMAT_TOTAL_TIME_RUNNING,
                                   .disabled = 1,
                                   .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        attr.exclude_kernel = 1;
        fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    }
    return fd;
}

static int pin(int cpu)
{
    xc_autoset struct xc_set one = XC_SET_EMPTY;
    xc_set_add(&one, (size_t)cpu);
    return one.failed ? -ENOMEM : xc_affinity_set(0, &one);
}

/* The first half of the time is for the core to come up to speed. */
static void measure(int events, int cpu, long ms, int out)
{
    struct {
        uint64_t cycles, ns;
    } got = {0, 0};
    int rc = pin(cpu);
    if (rc < 0) {
        chk_probe_line(out, "spin %d error %s", cpu, strerror(-rc));
        return;
    }
    spin(ms * 500000);
    ioctl(events, PERF_EVENT_IOC_RESET, 0);
    ioctl(events, PERF_EVENT_IOC_ENABLE, 0);
    struct {
        uint64_t cycles, ns;
    } before = {0, 0};
    if (read(events, &before, sizeof before) != sizeof before)
        return;
    spin(ms * 500000);
    ioctl(events, PERF_EVENT_IOC_DISABLE, 0);
    if (read(events, &got, sizeof got) == sizeof got && got.ns > before.ns)
        chk_probe_line(out, "spin %d mhz %" PRIu64, cpu,
                       (got.cycles - before.cycles) * 1000 / (got.ns - before.ns));
}

int chk_probe_spin(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    struct xc_check_input in = *input;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    long ms = 10;
    size_t tried = 0;
    in.check = xc_check_find("cpu.busy_freq");
    in.rule = chk_rule_of(input->rules, "cpu.busy_freq");
    chk_param_number(&in, "ms", &ms);
    ms = ms < 2 ? 2 : ms > BUSY_MS_MAX ? BUSY_MS_MAX : ms;
    int events = open_cycles();
    if (node_is_busy(input->root))
        chk_probe_line(out, "spin node busy 1");
    else if (events < 0)
        chk_probe_line(out, "spin node error %s", strerror(errno));
    else
        choose(&in, &cpus);
    int64_t end = now_ns() + ((int64_t)deadline_ms - 100) * 1000000;
    for (ssize_t cpu = xc_set_next(&cpus, 0);
         cpu >= 0 && tried < CPUS_TRIED_MAX && now_ns() + ms * 1000000 < end;
         cpu = xc_set_next(&cpus, (size_t)cpu + 1), tried++)
        measure(events, (int)cpu, ms, out);
    chk_probe_line(out, "end");
    return 0;
}

/* ---- judging -------------------------------------------------------------------------------------- */

struct measured {
    int cpu[CPUS_TRIED_MAX];
    long mhz[CPUS_TRIED_MAX];
    size_t count;
};

static void read_measured(const char *text, struct measured *out)
{
    out->count = 0;
    for (const char *line = text; *line && out->count < CPUS_TRIED_MAX;
         line += strcspn(line, "\n"), line += *line == '\n')
        if (sscanf(line, "spin %d mhz %ld", &out->cpu[out->count], &out->mhz[out->count]) == 2 &&
            out->cpu[out->count] >= 0 && out->cpu[out->count] < XC_SET_LIMIT &&
            out->mhz[out->count] >= 0 && out->mhz[out->count] < 100000)
            out->count++;
}

static bool least_of(const struct xc_check_input *in, int cpu, long *least)
{
    long khz;
    if (chk_param_number(in, "least", least))
        return true;
    if (!xc_root_read_long(in->root, &khz, "/sys/devices/system/cpu/cpu%d/cpufreq/base_frequency",
                           cpu) ||
        khz <= 0)
        return false;
    *least = khz / 1000 * 97 / 100; /* counters and clocks are not that exact */
    return true;
}

static int by_size(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* CPUs below the least, and those far below the others. */
static void judge(const struct xc_check_input *in, struct xc_findings *out,
                  const struct measured *m)
{
    xc_autoset struct xc_set slow = XC_SET_EMPTY;
    long sorted[CPUS_TRIED_MAX], least, wanted = 0, slowest = 0;
    memcpy(sorted, m->mhz, m->count * sizeof *sorted);
    qsort(sorted, m->count, sizeof *sorted, by_size);
    long median = sorted[m->count / 2];
    for (size_t i = 0; i < m->count; i++) {
        long want = median * 80 / 100;
        if (least_of(in, m->cpu[i], &least) && least > want)
            want = least;
        if (m->mhz[i] >= want)
            continue;
        xc_set_add(&slow, (size_t)m->cpu[i]);
        wanted = want > wanted ? want : wanted;
        slowest = slowest == 0 || m->mhz[i] < slowest ? m->mhz[i] : slowest;
    }
    if (xc_set_empty(&slow)) {
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%ld to %ld MHz on %zu busy CPUs",
                sorted[0], sorted[m->count - 1], m->count);
        return;
    }
    char want[48];
    xc_autofree char *device = chk_cpus(&slow);
    snprintf(want, sizeof want, "%ld MHz", wanted);
    chk_say(out, chk_bad(in),
            (struct chk_words){.device = device,
                               .want = want,
                               .hint = "cpu.turbo, cpu.power and cpu.throttle may say why; "
                                       "turbostat shows each core under load"},
            "a busy core runs at %ld MHz; the middle one at %ld", slowest, median);
}

static void run_busy(const struct xc_check_input *in, struct xc_findings *out)
{
    struct measured measured;
    char why[200] = "";
    bool whole;
    const char *text = chk_live_text(in, out, XC_PROBE_SPIN, &whole);
    if (!text)
        return;
    if (chk_live_value(text, "spin node", "busy", why, sizeof why)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "a job runs here: only an idle node is tried");
        return;
    }
    if (chk_live_value(text, "spin node", "error", why, sizeof why)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "cycles cannot be counted here: %s%s",
                why, in->node->environment == XC_VM ? " (a virtual machine without a PMU)" : "");
        return;
    }
    read_measured(text, &measured);
    if (measured.count == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "no CPU could be tried");
    else
        judge(in, out, &measured);
}

const struct xc_check chk_cpu_busy_freq = {
    .id = "cpu.busy_freq",
    .code = "CPU08",
    .what = "cores that are kept busy for some ms run as fast as they should (idle nodes alone)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH,
    .probes = XC_PROBE_SPIN,
    .on_fail = XC_FAIL_WARN,
    .params = busy_params,
    .run = run_busy,
};
