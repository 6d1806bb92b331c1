/* Are all CPUs there, may they sleep as deep as they should, and run as fast as they can? */
#include <ctype.h>
#include <inttypes.h>

#include "work.h"

#define CPU "/sys/devices/system/cpu"

/* ---- cpu.count ------------------------------------------------------------------------------------- */

static const struct xc_check_param count_params[] = {
    {"count", XC_PARAM_NUMBER, NULL, "CPUs online", NULL},
    {"cores", XC_PARAM_NUMBER, NULL, "cores online", NULL},
    {"sockets", XC_PARAM_NUMBER, NULL, "sockets", NULL},
    {0},
};

static void wanted_number(const struct xc_check_input *in, struct xc_findings *out,
                          const char *param, size_t have)
{
    long want;
    char number[24];
    if (!chk_param_number(in, param, &want) || (size_t)want == have)
        return;
    snprintf(number, sizeof number, "%ld", want);
    chk_say(out, chk_bad(in),
            (struct chk_words){.want = number,
                               .hint = "look for CPUs that firmware or maxcpus= took away: dmesg, "
                                       "/sys/devices/system/cpu/offline, the BIOS's core count"},
            "%s is %zu", param, have);
}

/* Sockets of one machine have the same number of cores: one that has less lost some. */
static void compare_sockets(const struct xc_check_input *in, struct xc_findings *out)
{
    const struct xc_node *node = in->node;
    xc_autofree unsigned *cores = calloc(node->npackages + 1, sizeof *cores);
    size_t least = 0, most = 0;
    for (size_t i = 0; cores && i < node->ncpus; i++)
        if (node->cpus[i].thread == 0 && node->cpus[i].package >= 0)
            cores[node->cpus[i].package]++;
    for (size_t i = 1; cores && i < node->npackages; i++) {
        least = cores[i] < cores[least] ? i : least;
        most = cores[i] > cores[most] ? i : most;
    }
    if (cores && node->npackages > 1 && cores[least] != cores[most])
        chk_say(out, chk_bad(in), (struct chk_words){.want = "the same in all sockets"},
                "socket %zu has %u cores, socket %zu has %u", least, cores[least], most,
                cores[most]);
}

static void offline_cpus(const struct xc_check_input *in, struct xc_findings *out,
                         const struct xc_set *online)
{
    xc_autofree char *smt = xc_root_read_line(in->root, CPU "/smt/control");
    xc_autoset struct xc_set off = XC_SET_EMPTY;
    for (size_t i = 0; i < in->node->ncpus; i++)
        if (!xc_set_has(online, (size_t)in->node->cpus[i].os))
            xc_set_add(&off, (size_t)in->node->cpus[i].os);
    bool smt_off = xc_streq(smt, "off") || xc_streq(smt, "forceoff");
    if (xc_set_empty(&off) || (smt_off && xc_set_count(&off) <= in->node->ncpus / 2))
        return;
    xc_autofree char *device = chk_cpus(&off);
    chk_say(out, chk_bad(in),
            (struct chk_words){
                .device = device, .want = "online", .hint = "echo 1 > " CPU "/cpuN/online"},
            "%zu CPUs are offline", xc_set_count(&off));
}

static void run_count(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    size_t before = out->count;
    xc_node_online(in->node, &online);
    wanted_number(in, out, "count", xc_set_count(&online));
    wanted_number(in, out, "cores", in->node->ncores);
    wanted_number(in, out, "sockets", in->node->npackages);
    compare_sockets(in, out);
    if (out->count == before)
        offline_cpus(in, out, &online);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu CPUs, %zu cores, %zu sockets",
                xc_set_count(&online), in->node->ncores, in->node->npackages);
}

static const struct xc_check count = {
    .id = "cpu.count",
    .code = "CPU01",
    .what = "all CPUs are online, in sockets of the same size",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = count_params,
    .run = run_count,
};

/* ---- idle states ------------------------------------------------------------------------------------ */

/* How deep a state is, whatever its name and index: Linux lists C6 as C6, C6N, NHM-C6, C2, C3, … */
enum depth { DEPTH_NONE = -1, POLL, C1, C1E, C3, C6, C7, C8, C9, C10, DEPTHS };
static const char *const depth_names[] = {"POLL", "C1", "C1E", "C3", "C6", "C7", "C8", "C9", "C10"};

#define STATES_MAX 16

struct state {
    enum depth depth;
    long latency_us;
    char name[32];
};
struct idle {
    struct state states[STATES_MAX];
    size_t count;
    int first_cpu;
    char driver[32];
};

static enum depth depth_of_hint(unsigned long hint)
{
    static const enum depth by_class[] = {C1, C3, C6, C7, C8, C9, C10};
    unsigned long class = hint >> 4 & 0xf;
    if (class == 0xf)
        return POLL; /* C0 */
    if (class == 0)
        return hint & 0xf ? C1E : C1;
    return class < XC_COUNT(by_class) ? by_class[class] : C10;
}

/* By MWAIT's hint; by the I/O port that AMD enters its CC6 through; else by the few words that firmware
 * uses. Names come last, and only those that mean one thing. */
static enum depth depth_of(const char *name, const char *desc)
{
    const char *mwait = strstr(desc, "MWAIT ");
    char *end;
    if (strstr(desc, "POLL") || xc_streq(name, "POLL") || xc_streq(name, "C0"))
        return POLL;
    if (mwait) {
        unsigned long hint = strtoul(mwait + 6, &end, 16);
        return end == mwait + 6 ? DEPTH_NONE : depth_of_hint(hint);
    }
    if (strstr(desc, "IOPORT"))
        return C6;
    if (strstr(desc, "HLT") || strstr(desc, "WFI") || xc_streq(name, "WFI") ||
        xc_starts(name, "LPI-0"))
        return C1;
    if (xc_starts(name, "LPI-"))
        return C6;
    if (xc_streq(name, "C1"))
        return C1;
    return DEPTH_NONE;
}

static bool read_state(const struct xc_check_input *in, struct idle *idle, size_t index)
{
    struct state *state = &idle->states[index];
    int cpu = idle->first_cpu;
    xc_autofree char *name =
        xc_root_read_line(in->root, CPU "/cpu%d/cpuidle/state%zu/name", cpu, index);
    if (!name)
        return false;
    xc_autofree char *desc =
        xc_root_read_line(in->root, CPU "/cpu%d/cpuidle/state%zu/desc", cpu, index);
    snprintf(state->name, sizeof state->name, "%s", name);
    state->depth = depth_of(name, desc ? desc : "");
    if (!xc_root_read_long(in->root, &state->latency_us, CPU "/cpu%d/cpuidle/state%zu/latency", cpu,
                           index))
        state->latency_us = -1;
    return true;
}

/* The states as the first CPU has them; all CPUs of these machines have the same. */
static void read_idle(const struct xc_check_input *in, struct idle *idle)
{
    xc_autofree char *driver = xc_root_read_line(in->root, CPU "/cpuidle/current_driver");
    *idle = (struct idle){.first_cpu = -1};
    snprintf(idle->driver, sizeof idle->driver, "%s", driver ? driver : "");
    for (size_t i = 0; i < in->node->ncpus && idle->first_cpu < 0; i++)
        if (in->node->cpus[i].flags & XC_CPU_ONLINE)
            idle->first_cpu = in->node->cpus[i].os;
    while (idle->first_cpu >= 0 && idle->count < STATES_MAX && read_state(in, idle, idle->count))
        idle->count++;
}

static enum depth depth_named(const char *word)
{
    for (int i = 0; i < DEPTHS; i++)
        if (strcasecmp(depth_names[i], word) == 0)
            return (enum depth)i;
    return DEPTH_NONE;
}

static enum depth deepest_listed(const struct idle *idle)
{
    enum depth depth = DEPTH_NONE;
    for (size_t i = 0; i < idle->count; i++)
        if (idle->states[i].depth > depth)
            depth = idle->states[i].depth;
    return depth;
}

/* Why there is no such state: what an admin can change. On the heap. */
static char *why_not_listed(const struct xc_check_input *in, const struct idle *idle)
{
    static const char *const words[] = {"intel_idle.max_cstate", "processor.max_cstate", "idle",
                                        "cpuidle.off"};
    struct xc_text text = XC_TEXT_INIT;
    bool known, any = false;
    long max;
    for (size_t i = 0; i < XC_COUNT(words); i++) {
        xc_autofree char *value = NULL;
        if (chk_cmdline(in, words[i], &value, &known)) {
            xc_text_addf(&text, "%s%s=%s on the kernel's command line", any ? ", " : "", words[i],
                         value);
            any = true;
        }
    }
    if (!any && xc_root_read_long(in->root, &max, "/sys/module/intel_idle/parameters/max_cstate") &&
        max < 9)
        xc_text_addf(&text, "intel_idle's max_cstate is %ld", max);
    else if (!any)
        xc_text_addf(&text, "the driver %s offers none: the BIOS caps C-states",
                     idle->driver[0] ? idle->driver : "(unknown)");
    return xc_text_take(&text);
}

/* ---- cpu.cstate ---------------------------------------------------------------------------------------- */

static const struct xc_check_param cstate_params[] = {
    {"deepest", XC_PARAM_WORD, "auto",
     "every CPU must be able to go at least so deep; auto: as deep as the machine lists",
     "auto,C1,C1E,C3,C6,C7,C8,C9,C10"},
    {"limit", XC_PARAM_WORD, NULL, "no CPU may go deeper", "POLL,C1,C1E,C3,C6,C7,C8,C9,C10"},
    {0},
};

/* What keeps a CPU out of a state, or that nothing does. */
enum bar { USABLE, BIOS, TOOL, GLOBAL_QOS, CPU_QOS, MISSING, BARS };

struct judged {
    struct xc_set cpus[BARS];
    long global_us, cpu_us; /* the limits that bar */
};

/* Microseconds that a CPU may take to wake up; LONG_MAX: no limit. "n/a" is none at all. */
static long cpu_limit(const struct xc_check_input *in, int cpu)
{
    xc_autofree char *text =
        xc_root_read_line(in->root, CPU "/cpu%d/power/pm_qos_resume_latency_us", cpu);
    long value;
    if (text && xc_streq(text, "n/a"))
        return 0;
    return text && xc_to_long(text, 1, 2000000000, &value) ? value : 2000000000;
}

static enum bar bar_of(const struct xc_check_input *in, const struct idle *idle, size_t state,
                       int cpu, long limit_us, struct judged *judged)
{
    long disabled;
    if (!xc_root_read_long(in->root, &disabled, CPU "/cpu%d/cpuidle/state%zu/disable", cpu, state))
        return MISSING;
    if (disabled != 0) {
        xc_autofree char *status =
            xc_root_read_line(in->root, CPU "/cpu%d/cpuidle/state%zu/default_status", cpu, state);
        return xc_streq(status, "disabled") ? BIOS : TOOL;
    }
    long latency = idle->states[state].latency_us;
    if (in->live && in->live->dma_latency_us >= 0 && latency > in->live->dma_latency_us) {
        judged->global_us = in->live->dma_latency_us;
        return GLOBAL_QOS;
    }
    if (latency > limit_us) {
        judged->cpu_us = limit_us;
        return CPU_QOS;
    }
    return USABLE;
}

/* The states that are at least, or more than, so deep: usable if any of them is; else the bar of the
 * deepest. Files are read until one is usable. */
static void judge_cpu(const struct xc_check_input *in, const struct idle *idle, enum depth from,
                      int cpu, struct judged *judged)
{
    enum bar bar = MISSING;
    long limit_us = cpu_limit(in, cpu);
    for (size_t i = idle->count; i-- > 0 && bar != USABLE;) {
        if (idle->states[i].depth < from)
            continue;
        enum bar one = bar_of(in, idle, i, cpu, limit_us, judged);
        if (bar == MISSING || one == USABLE)
            bar = one;
    }
    xc_set_add(&judged->cpus[bar], (size_t)cpu);
}

static void judge_all(const struct xc_check_input *in, const struct idle *idle, enum depth from,
                      struct judged *judged)
{
    for (size_t i = 0; i < in->node->ncpus; i++)
        if (in->node->cpus[i].flags & XC_CPU_ONLINE)
            judge_cpu(in, idle, from, in->node->cpus[i].os, judged);
}

static void clear_judged(struct judged *judged)
{
    for (int i = 0; i < BARS; i++)
        xc_set_free(&judged->cpus[i]);
}

static void say_barred(const struct xc_check_input *in, struct xc_findings *out, enum bar bar,
                       const struct judged *judged, const char *want)
{
    static const char *const hints[BARS] = {
        [BIOS] = "enable C-states (C6) in the BIOS, or echo 0 > .../cpuidle/stateN/disable",
        [TOOL] = "a tool did: cpupower idle-set -E, or choose another tuned profile",
        [GLOBAL_QOS] = "fuser -v /dev/cpu_dma_latency names who holds it (tuned's force_latency?)",
        [CPU_QOS] = "echo 0 > " CPU "/cpuN/power/pm_qos_resume_latency_us",
        [MISSING] = "these CPUs do not list it: cpupower -c all idle-info",
    };
    xc_autofree char *device = chk_cpus(&judged->cpus[bar]);
    struct chk_words words = {.device = device, .want = want, .hint = hints[bar]};
    if (bar == BIOS)
        chk_say(out, chk_bad(in), words, "%s is disabled by the BIOS (default_status=disabled)",
                want);
    else if (bar == TOOL)
        chk_say(out, chk_bad(in), words, "%s is disabled by a tool (disable=1)", want);
    else if (bar == GLOBAL_QOS)
        chk_say(out, chk_bad(in), words, "%s is held off: /dev/cpu_dma_latency allows %ld us", want,
                judged->global_us);
    else if (bar == CPU_QOS)
        chk_say(out, chk_bad(in), words, "%s is held off: pm_qos_resume_latency_us allows %ld us",
                want, judged->cpu_us);
    else
        chk_say(out, chk_bad(in), words, "%s is not there", want);
}

static void check_deepest(const struct xc_check_input *in, struct xc_findings *out,
                          const struct idle *idle, enum depth want)
{
    xc_cleanup(clear_judged) struct judged judged = {0};
    const char *name = depth_names[want];
    enum depth have = deepest_listed(idle);
    if (have < want) {
        xc_autofree char *why = why_not_listed(in, idle);
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = name,
                                   .hint = "take the cap away: BIOS C-states, kernel command line"},
                "the deepest state is %s; %s", have < 0 ? "unknown" : depth_names[have],
                why ? why : "");
        return;
    }
    judge_all(in, idle, want, &judged);
    size_t before = out->count;
    for (int bar = BIOS; bar < BARS; bar++)
        if (!xc_set_empty(&judged.cpus[bar]))
            say_barred(in, out, (enum bar)bar, &judged, name);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.want = name},
                "%s is usable on all %zu CPUs%s", name, xc_set_count(&judged.cpus[USABLE]),
                in->live && in->live->dma_latency_us >= 0
                    ? ""
                    : " (/dev/cpu_dma_latency was not readable)");
}

static void check_limit(const struct xc_check_input *in, struct xc_findings *out,
                        const struct idle *idle, enum depth limit)
{
    xc_cleanup(clear_judged) struct judged judged = {0};
    char want[32];
    snprintf(want, sizeof want, "at most %s", depth_names[limit]);
    if (deepest_listed(idle) > limit)
        judge_all(in, idle, limit + 1, &judged);
    if (xc_set_empty(&judged.cpus[USABLE])) {
        chk_say(out, XC_CHECK_PASS, (struct chk_words){.want = want}, "no CPU goes deeper than %s",
                depth_names[limit]);
        return;
    }
    const struct state *deep = &idle->states[0];
    for (size_t i = 0; i < idle->count; i++)
        if (idle->states[i].depth > limit)
            deep = &idle->states[i];
    xc_autofree char *device = chk_cpus(&judged.cpus[USABLE]);
    chk_say(out, chk_bad(in),
            (struct chk_words){.device = device,
                               .want = want,
                               .hint = "intel_idle.max_cstate=, tuned's force_latency, or "
                                       "cpupower idle-set -D LATENCY; then look again: a latency "
                                       "in a profile is no proof"},
            "%s (%s, %s, latency %ld us) is usable", depth_names[deep->depth], deep->name,
            idle->driver, deep->latency_us);
}

/* True: a verdict is said, there is nothing to judge. */
static bool nothing_to_judge(const struct xc_check_input *in, struct xc_findings *out,
                             const struct idle *idle)
{
    bool none = idle->count == 0 || xc_streq(idle->driver, "none");
    if (none || xc_streq(idle->driver, "haltpoll")) {
        xc_autofree char *value = NULL;
        bool known;
        if (in->node->environment != XC_BARE) {
            chk_hidden(in, out, "idle states");
            return true;
        }
        if (chk_cmdline(in, "idle", &value, &known) ||
            chk_cmdline(in, "cpuidle.off", &value, &known))
            return false;
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "cpupower idle-info"},
                "no idle states are listed (driver %s)",
                idle->driver[0] ? idle->driver : "unknown");
        return true;
    }
    if (deepest_listed(idle) == DEPTH_NONE) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "cpupower idle-info"},
                "no idle state of %s tells how deep it is", idle->driver);
        return true;
    }
    return false;
}

static void run_cstate(const struct xc_check_input *in, struct xc_findings *out)
{
    struct idle idle;
    read_idle(in, &idle);
    if (nothing_to_judge(in, out, &idle))
        return;
    const char *limit = chk_param(in, "limit");
    const char *word = chk_param(in, "deepest");
    if (limit)
        check_limit(in, out, &idle, depth_named(limit));
    if (limit && !chk_given(in, "deepest"))
        return;
    enum depth deepest = depth_named(word);
    if (deepest == DEPTH_NONE) { /* auto */
        deepest = deepest_listed(&idle);
        deepest = deepest < C1 ? C1 : deepest;
    }
    check_deepest(in, out, &idle, deepest);
}

static const struct xc_check cstate = {
    .id = "cpu.cstate",
    .code = "CPU02",
    .what = "every CPU may sleep as deep as it should, and no deeper",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = cstate_params,
    .run = run_cstate,
};

/* ---- cpu.cstate_reached ----------------------------------------------------------------------------------- */

static const struct xc_check_param reached_params[] = {
    {"over", XC_PARAM_NUMBER, "30", "seconds between two runs that are needed for a verdict", NULL},
    {0},
};

/* Each CPU's time in its deepest state grew by so much since the last run. *known: CPUs that
 * have an earlier number; *reached: those whose time grew. */
static int64_t deep_time(const struct xc_check_input *in, const struct idle *idle, size_t *known,
                         size_t *reached)
{
    int64_t total = 0, delta;
    long time;
    *known = *reached = 0;
    for (size_t i = 0; i < in->node->ncpus; i++) {
        int cpu = in->node->cpus[i].os;
        if (!(in->node->cpus[i].flags & XC_CPU_ONLINE) ||
            !xc_root_read_long(in->root, &time, CPU "/cpu%d/cpuidle/state%zu/time", cpu,
                               idle->count - 1))
            continue;
        if (!chk_delta(in, time, &delta, "cstate.%d", cpu))
            continue;
        ++*known;
        *reached += delta > 0;
        total += delta;
    }
    return total;
}

static bool is_limited(const struct xc_check_input *in)
{
    for (size_t i = 0; i < in->rules->nchecks; i++) {
        const struct xc_check_rule *rule = &in->rules->checks[i];
        for (size_t k = 0; xc_streq(rule->id, "cpu.cstate") && k < rule->nkeys; k++)
            if (xc_streq(rule->keys[k], "limit"))
                return true;
    }
    return false;
}

static void run_reached(const struct xc_check_input *in, struct xc_findings *out)
{
    struct idle idle;
    size_t known, reached;
    long over = 30;
    read_idle(in, &idle);
    if (nothing_to_judge(in, out, &idle))
        return;
    if (idle.count == 0 || deepest_listed(&idle) <= C1E) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "no state deeper than C1E is listed");
        return;
    }
    if (is_limited(in)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "the policy keeps CPUs out of deep states");
        return;
    }
    chk_param_number(in, "over", &over);
    const char *name = idle.states[idle.count - 1].name;
    int64_t total = deep_time(in, &idle, &known, &reached);
    int64_t elapsed =
        in->previous && in->next ? (in->next->at_us - in->previous->at_us) / 1000000 : 0;
    if (known == 0 || elapsed < over)
        chk_first_run(in, out, "two runs of this boot, %ld s apart, are needed", over);
    else if (total == 0)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "time in it on an idle node",
                                   .hint = "turbostat --show CPU%c6,Pkg%pc6 on the idle node"},
                "no CPU left %s in %" PRId64 " s", name, elapsed);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu of %zu CPUs were in %s", reached,
                known, name);
}

static const struct xc_check reached = {
    .id = "cpu.cstate_reached",
    .code = "CPU03",
    .what = "CPUs were in the deepest idle state between two runs",
    .at = XC_AT_HEALTH | XC_AT_CLI,
    .needs = XC_NEEDS_PREVIOUS,
    .on_fail = XC_FAIL_WARN,
    .params = reached_params,
    .run = run_reached,
};

/* ---- cpu.turbo --------------------------------------------------------------------------------------------- */

static const struct xc_check_param turbo_params[] = {
    {"turbo", XC_PARAM_BOOL, "on", "whether turbo must be on or off", NULL},
    {"governor", XC_PARAM_WORD, "performance",
     "performance: that governor, or powersave of intel_pstate or amd_pstate with the preference "
     "performance; any: not looked at",
     "performance,any"},
    {0},
};

static void switches(const struct xc_check_input *in, struct xc_findings *out, bool want)
{
    long no_turbo, boost, percent;
    const char *wanted = want ? "turbo on" : "turbo off";
    if (xc_root_read_long(in->root, &no_turbo, CPU "/intel_pstate/no_turbo") &&
        (no_turbo == 0) != want)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = wanted,
                                   .hint = want ? "echo 0 > " CPU "/intel_pstate/no_turbo; if that "
                                                  "is refused, enable Turbo Mode in the BIOS"
                                                : "echo 1 > " CPU "/intel_pstate/no_turbo"},
                "turbo is %s (intel_pstate no_turbo=%ld)", want ? "off" : "on", no_turbo);
    if (xc_root_read_long(in->root, &boost, CPU "/cpufreq/boost") && (boost != 0) != want)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = wanted,
                                   .hint = want ? "echo 1 > " CPU "/cpufreq/boost"
                                                : "echo 0 > " CPU "/cpufreq/boost"},
                "turbo is %s (cpufreq boost=%ld)", want ? "off" : "on", boost);
    if (want && xc_root_read_long(in->root, &percent, CPU "/intel_pstate/max_perf_pct") &&
        percent < 100)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "100",
                                   .hint = "echo 100 > " CPU "/intel_pstate/max_perf_pct"},
                "intel_pstate's max_perf_pct is %ld", percent);
}

/* Whether a powersave governor is no brake: the hardware chooses, and the preference says fast. */
static bool prefers_speed(const struct xc_check_input *in, int cpu)
{
    xc_autofree char *driver =
        xc_root_read_line(in->root, CPU "/cpu%d/cpufreq/scaling_driver", cpu);
    xc_autofree char *epp =
        xc_root_read_line(in->root, CPU "/cpu%d/cpufreq/energy_performance_preference", cpu);
    bool hardware =
        xc_streq(driver, "intel_pstate") || xc_starts(driver ? driver : "", "amd-pstate");
    return hardware && (xc_streq(epp, "performance") || xc_streq(epp, "0"));
}

struct speeds {
    struct xc_set slow, capped; /* by governor, by scaling_max_freq */
    char governor[32];
    long cap_khz, max_khz;
    size_t known;
};

static void clear_speeds(struct speeds *speeds)
{
    xc_set_free(&speeds->slow);
    xc_set_free(&speeds->capped);
}

static void look_at_cpu(const struct xc_check_input *in, const struct xc_cpu *cpu, bool governor,
                        bool cap, struct speeds *speeds)
{
    xc_autofree char *name =
        xc_root_read_line(in->root, CPU "/cpu%d/cpufreq/scaling_governor", cpu->os);
    long khz;
    speeds->known += name != NULL;
    if (governor && name && !xc_streq(name, "performance") &&
        !(xc_streq(name, "powersave") && prefers_speed(in, cpu->os))) {
        xc_set_add(&speeds->slow, (size_t)cpu->os);
        snprintf(speeds->governor, sizeof speeds->governor, "%s", name);
    }
    if (cap && cpu->max_khz > 0 &&
        xc_root_read_long(in->root, &khz, CPU "/cpu%d/cpufreq/scaling_max_freq", cpu->os) &&
        khz < (long)cpu->max_khz / 100 * 99) { /* drivers round */
        xc_set_add(&speeds->capped, (size_t)cpu->os);
        speeds->cap_khz = khz;
        speeds->max_khz = (long)cpu->max_khz;
    }
}

static void say_speeds(const struct xc_check_input *in, struct xc_findings *out,
                       const struct speeds *speeds)
{
    if (!xc_set_empty(&speeds->slow)) {
        xc_autofree char *device = chk_cpus(&speeds->slow);
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .want = "performance",
                                   .hint = "cpupower frequency-set -g performance"},
                "the governor is %s", speeds->governor);
    }
    if (!xc_set_empty(&speeds->capped)) {
        xc_autofree char *device = chk_cpus(&speeds->capped);
        char want[32];
        snprintf(want, sizeof want, "%ld kHz", speeds->max_khz);
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .want = want,
                                   .hint = "cpupower frequency-set -u with cpuinfo_max_freq"},
                "scaling_max_freq is %ld kHz", speeds->cap_khz);
    }
}

static void run_turbo(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_cleanup(clear_speeds) struct speeds speeds = {0};
    bool want = chk_param_bool(in, "turbo");
    bool governor = xc_streq(chk_param(in, "governor"), "performance");
    size_t before = out->count;
    switches(in, out, want);
    for (size_t i = 0; i < in->node->ncpus; i++)
        if (in->node->cpus[i].flags & XC_CPU_ONLINE)
            look_at_cpu(in, &in->node->cpus[i], governor, want, &speeds);
    say_speeds(in, out, &speeds);
    if (out->count != before)
        return;
    if (speeds.known == 0) {
        if (!chk_hidden(in, out, "frequencies"))
            chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "cpupower frequency-info"},
                    "there is no cpufreq driver");
        return;
    }
    chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "turbo %s, %zu CPUs unrestrained",
            want ? "on" : "off", speeds.known);
}

static const struct xc_check turbo = {
    .id = "cpu.turbo",
    .code = "CPU04",
    .what = "turbo is on, no CPU is capped, the governor is no brake",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = turbo_params,
    .run = run_turbo,
};

/* ---- cpu.throttle ------------------------------------------------------------------------------------------ */

static const struct xc_check_param throttle_params[] = {
    {"most", XC_PARAM_NUMBER, "0", "events between two runs that are accepted", NULL},
    {0},
};

struct throttled {
    struct xc_set cpus;
    int64_t events;
    size_t seen, known;
};

static void clear_throttled(struct throttled *t)
{
    xc_set_free(&t->cpus);
}

/* Siblings share a core's counter, all CPUs of a socket its package's: one of each is read. */
static void add_throttle(const struct xc_check_input *in, int cpu, const char *what,
                         struct throttled *t)
{
    long now;
    int64_t delta;
    if (!xc_root_read_long(in->root, &now, CPU "/cpu%d/thermal_throttle/%s_throttle_count", cpu,
                           what))
        return;
    t->seen++;
    if (!chk_delta(in, now, &delta, "throttle.%s.%d", what, cpu))
        return;
    t->known++;
    if (delta > 0)
        xc_set_add(&t->cpus, (size_t)cpu);
    t->events += delta;
}

static void run_throttle(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_cleanup(clear_throttled) struct throttled t = {0};
    long most = 0;
    int32_t package = -1;
    chk_param_number(in, "most", &most);
    for (size_t i = 0; i < in->node->ncpus; i++) {
        const struct xc_cpu *cpu = &in->node->cpus[i];
        if (!(cpu->flags & XC_CPU_ONLINE) || cpu->thread != 0)
            continue;
        add_throttle(in, cpu->os, "core", &t);
        if (cpu->package > package)
            add_throttle(in, cpu->os, "package", &t);
        package = cpu->package > package ? cpu->package : package;
    }
    if (t.seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine counts no throttling");
    else if (t.known == 0)
        chk_first_run(in, out, "an earlier run of this boot is needed");
    else if (t.events > most) {
        xc_autofree char *device = chk_cpus(&t.cpus);
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .hint = "look at inlet temperature, fans, heat sinks: ipmitool "
                                           "sensor, turbostat"},
                "throttled by heat %" PRId64 " times since the last run", t.events);
    } else {
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%" PRId64 " events since the last run",
                t.events);
    }
}

static const struct xc_check throttle = {
    .id = "cpu.throttle",
    .code = "CPU05",
    .what = "no core or socket was throttled by heat since the last run",
    .at = XC_AT_HEALTH | XC_AT_EPILOG | XC_AT_CLI,
    .needs = XC_NEEDS_PREVIOUS,
    .on_fail = XC_FAIL_WARN,
    .params = throttle_params,
    .run = run_throttle,
};

/* ---- cpu.power ---------------------------------------------------------------------------------------------- */

static const struct xc_check_param power_params[] = {
    {"least", XC_PARAM_NUMBER, NULL, "watts that a socket may draw for long; default: its TDP",
     NULL},
    {0},
};

#define RAPL "/sys/class/powercap"

static bool rapl_package(const struct xc_check_input *in, const char *zone, struct xc_findings *out)
{
    xc_autofree char *name = xc_root_read_line(in->root, RAPL "/%s/name", zone);
    long limit, tdp = 0, least;
    if (!name || !xc_starts(name, "package") ||
        !xc_root_read_long(in->root, &limit, RAPL "/%s/constraint_0_power_limit_uw", zone))
        return false;
    xc_root_read_long(in->root, &tdp, RAPL "/%s/constraint_0_max_power_uw", zone);
    if (chk_param_number(in, "least", &least))
        tdp = least * 1000000;
    if (tdp <= 0)
        return false;
    char want[32];
    snprintf(want, sizeof want, "%ld W", tdp / 1000000);
    if (limit < tdp)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = name,
                                   .want = want,
                                   .hint = "a power cap of BMC, BIOS or powercap holds the socket "
                                           "back: ipmitool dcmi power get_limit, powercap-set"},
                "the long-term power limit is %ld W", limit / 1000000);
    return true;
}

static void run_power(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autonames char **zones = xc_root_list(in->root, RAPL);
    size_t before = out->count, known = 0;
    for (char **zone = zones; zone && *zone; zone++)
        known += rapl_package(in, *zone, out);
    if (out->count != before)
        return;
    if (known == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "no power limit of a socket is shown (powercap)");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu sockets at their TDP or above",
                known);
}

static const struct xc_check power = {
    .id = "cpu.power",
    .code = "CPU06",
    .what = "no socket's power limit is below its TDP",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = power_params,
    .run = run_power,
};

/* ---- cpu.priority ------------------------------------------------------------------------------------------- */

static void run_priority(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set have = XC_SET_EMPTY, want = XC_SET_EMPTY, online = XC_SET_EMPTY;
    struct xc_error error = {0};
    xc_node_flagged(in->node, XC_CPU_PRIORITY, &have);
    xc_node_online(in->node, &online);
    if (in->rules->cpus.priority != XC_PRIORITY_LIST) {
        xc_autofree char *list = xc_set_format(&have);
        chk_say(out, xc_set_empty(&have) ? XC_CHECK_NA : XC_CHECK_PASS, (struct chk_words){0},
                "the policy lists no priority cores; this machine has %s",
                xc_set_empty(&have) ? "none"
                : list              ? list
                                    : "");
        return;
    }
    if (xc_cpulist_resolve(&in->rules->cpus.priority_list, &online, &want, "cpus.priority",
                           &error) < 0) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "mend cpus: priority:"},
                "the priority cores cannot be told: %s", error.message);
        return;
    }
    xc_autofree char *list = xc_set_format(&want);
    xc_set_andnot(&want, &have);
    if (xc_set_empty(&want)) {
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s are priority cores",
                list ? list : "");
        return;
    }
    xc_autofree char *device = chk_cpus(&want);
    chk_say(out, chk_bad(in),
            (struct chk_words){.device = device,
                               .want = "a higher turbo than the other cores",
                               .hint = "intel-speed-select turbo-freq enable -a, or Priority Core "
                                       "Turbo in the BIOS"},
            "the kernel sees no priority for them");
}

static const struct xc_check priority = {
    .id = "cpu.priority",
    .code = "CPU07",
    .what = "the policy's priority cores (PCT, SST-TF) turbo above the others",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_priority,
};

const struct xc_check *const chk_cpu[] = {&count, &cstate,   &reached,           &turbo, &throttle,
                                          &power, &priority, &chk_cpu_busy_freq, NULL};
