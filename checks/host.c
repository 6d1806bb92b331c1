/* Do the host's own services, interrupts and threads stay on the housekeeping CPUs? */
#include <ctype.h>
#include <inttypes.h>

#include "work.h"

/* What the policy asks to keep there (cpus: host:) fails, the rest warns. */
static enum xc_check_verdict strayed(const struct xc_check_input *in, enum xc_host_what what)
{
    return in->rules->cpus.host & (unsigned)what ? XC_CHECK_FAIL : chk_bad(in);
}

static bool matches(const char *patterns, const char *name)
{
    xc_autonames char **list = patterns ? xc_names_split(patterns) : NULL;
    for (char **one = list; one && *one; one++)
        if (xc_glob(*one, name))
            return true;
    return false;
}

/* The value behind "Key:\t" of a status file, up to its line's end; NULL: no such line. On the heap. */
static char *status_value(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0 || line[length] != ':')
            continue;
        line += length + 1;
        line += strspn(line, " \t");
        return strndup(line, strcspn(line, "\n"));
    }
    return NULL;
}

/* ---- host.slices ----------------------------------------------------------------------------------- */

static const struct xc_check_param slices_params[] = {
    {"except", XC_PARAM_NAMES, "slurm*,kubepods*", "slices that jobs live in", NULL},
    {0},
};

struct slices {
    const char *base, *file;
    const struct xc_set *housekeeping;
    size_t judged;
};

static bool find_cgroups(const struct xc_check_input *in, struct slices *slices)
{
    if (xc_root_exists(in->root, "/sys/fs/cgroup/cgroup.controllers")) {
        slices->base = "/sys/fs/cgroup";
        slices->file = "cpuset.cpus.effective";
        return true;
    }
    slices->base = "/sys/fs/cgroup/cpuset";
    slices->file = "cpuset.cpus";
    return xc_root_exists(in->root, "%s/cpuset.cpus", slices->base);
}

static void judge_set(const struct xc_check_input *in, struct xc_findings *out,
                      const struct slices *slices, const char *device, const struct xc_set *cpus,
                      const char *hint)
{
    if (xc_set_subset(cpus, slices->housekeeping))
        return;
    xc_autofree char *have = xc_set_format(cpus), *want = xc_set_format(slices->housekeeping);
    chk_say(out, strayed(in, XC_HOST_SERVICES),
            (struct chk_words){.device = device, .want = want, .hint = hint}, "it may use CPUs %s",
            have ? have : "");
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && xc_streq(text + length - tail, end);
}

/* What a group may use: one without a file of its own has what its parent has, at the top all CPUs. 1
 * known, 0 unknown and said. */
static bool group_cpus(const struct xc_check_input *in, struct xc_findings *out,
                       const struct slices *slices, const char *name, const struct xc_set *parent,
                       struct xc_set *cpus)
{
    xc_autofree char *text =
        xc_root_read_line(in->root, "%s/%s/%s", slices->base, name, slices->file);
    if (!text) {
        xc_set_copy(cpus, parent);
        return true;
    }
    if (xc_set_parse_list(cpus, text, name, NULL) == 0)
        return true;
    chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = name}, "%s is no CPU list",
            slices->file);
    return false;
}

#define SLICE_DEPTH 4 /* slices within slices */

/* Slurm's scope may have the node's name in front; its slurmd starts the jobs. */
static bool is_of_slurm(const char *name)
{
    return ends(name, "slurmstepd.scope") || xc_streq(name, "slurmd.service") ||
           xc_starts(name, "slurmd@");
}

/* Jobs live in system.slice (slurmstepd.scope): it stays open, and its services are judged one by one. */
static void judge_children(const struct xc_check_input *in, struct xc_findings *out,
                           struct slices *slices, const char *slice, const struct xc_set *parent,
                           unsigned depth)
{
    xc_autonames char **names = xc_root_list(in->root, "%s/%s", slices->base, slice);
    for (char **name = names; name && *name; name++) {
        bool deeper = ends(*name, ".slice");
        if ((!deeper && !ends(*name, ".service") && !ends(*name, ".scope")) || is_of_slurm(*name) ||
            matches(chk_param(in, "except"), *name))
            continue;
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/%s", slice, *name);
        xc_autofree char *path = xc_text_take(&text);
        if (!path || !group_cpus(in, out, slices, path, parent, &cpus))
            continue;
        slices->judged += !deeper;
        if (deeper && depth < SLICE_DEPTH && !xc_set_subset(&cpus, slices->housekeeping))
            judge_children(in, out, slices, path, &cpus, depth + 1);
        else
            judge_set(in, out, slices, *name, &cpus, "xcloud host apply");
    }
}

static bool has_services(const struct xc_check_input *in, const struct slices *slices,
                         const char *slice)
{
    xc_autonames char **names = xc_root_list(in->root, "%s/%s", slices->base, slice);
    for (char **name = names; name && *name; name++)
        if (ends(*name, ".service"))
            return true;
    return false;
}

static void judge_slice(const struct xc_check_input *in, struct xc_findings *out,
                        struct slices *slices, const char *name)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, online = XC_SET_EMPTY;
    char hint[160];
    xc_node_online(in->node, &online);
    snprintf(hint, sizeof hint, "xcloud host apply, or systemctl set-property %.60s AllowedCPUs=…",
             name);
    if (!group_cpus(in, out, slices, name, &online, &cpus))
        return;
    if (xc_streq(name, "system.slice") && !xc_set_subset(&cpus, slices->housekeeping) &&
        has_services(in, slices, name)) {
        judge_children(in, out, slices, name, &cpus, 0);
        return;
    }
    slices->judged++;
    judge_set(in, out, slices, name, &cpus, hint);
}

static void judge_init(const struct xc_check_input *in, struct xc_findings *out,
                       struct slices *slices)
{
    xc_autofree char *status = xc_root_read(in->root, NULL, NULL, "/proc/1/status");
    xc_autofree char *list = status_value(status, "Cpus_allowed_list");
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!list || xc_set_parse_list(&cpus, list, "/proc/1/status", NULL) < 0)
        return;
    slices->judged++;
    judge_set(in, out, slices, "PID 1", &cpus,
              "CPUAffinity= in system.conf, and AllowedCPUs= of init.scope: restricting "
              "system.slice leaves PID 1 out");
}

/* Jobs live below slurmd's scope: confined to housekeeping with the rest, they have nothing left. */
static void judge_jobs(const struct xc_check_input *in, struct xc_findings *out,
                       const struct slices *slices)
{
    xc_autonames char **names = xc_root_list(in->root, "%s/system.slice", slices->base);
    for (char **name = names; name && *name; name++) {
        xc_autoset struct xc_set cpus = XC_SET_EMPTY;
        if (!ends(*name, "slurmstepd.scope") ||
            !xc_root_read_set(in->root, &cpus, "%s/system.slice/%s/%s", slices->base, *name,
                              slices->file) ||
            xc_set_empty(&cpus) || !xc_set_subset(&cpus, slices->housekeeping))
            continue;
        xc_autofree char *have = xc_set_format(&cpus);
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = *name,
                                   .want = "the training CPUs",
                                   .hint = "give system.slice all CPUs back; xcloud host apply "
                                           "narrows its services instead"},
                "jobs are confined to the housekeeping CPUs %s", have ? have : "");
    }
}

static void run_slices(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY;
    struct slices slices = {.housekeeping = &housekeeping};
    size_t before = out->count;
    if (!chk_housekeeping(in, out, &housekeeping))
        return;
    bool cgroups = find_cgroups(in, &slices);
    xc_autonames char **names = cgroups ? xc_root_list(in->root, "%s", slices.base) : NULL;
    for (char **name = names; name && *name; name++) {
        size_t length = strlen(*name);
        bool slice = length > 6 && xc_streq(*name + length - 6, ".slice");
        if ((slice || xc_streq(*name, "init.scope")) && !matches(chk_param(in, "except"), *name))
            judge_slice(in, out, &slices, *name);
    }
    judge_init(in, out, &slices);
    if (cgroups)
        judge_jobs(in, out, &slices);
    if (out->count != before)
        return;
    if (slices.judged == 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0},
                "no slice and no PID 1 is to be seen");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0},
                "%zu slices and services, and PID 1, stay there", slices.judged - 1);
}

static const struct xc_check slices = {
    .id = "host.slices",
    .code = "HST01",
    .what = "slices, services, init.scope and PID 1 stay on the housekeeping CPUs; jobs do not",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = slices_params,
    .run = run_slices,
};

/* ---- host.irqs ------------------------------------------------------------------------------------- */

static const struct xc_check_param irqs_params[] = {
    {"devices", XC_PARAM_NAMES, "*", "interrupts that must stay there, by name", NULL},
    {"managed", XC_PARAM_NAMES,
     "nvme*q*,virtio*-req*,virtio*-input*,virtio*-output*,megasas*,mpt3sas*,smartpqi*,qla2xxx*",
     "interrupts that the kernel spreads itself and nobody can move", NULL},
    {0},
};

struct irqs {
    struct xc_set cpus;
    struct xc_text names;
    size_t judged, strayed;
};

static void clear_irqs(struct irqs *irqs)
{
    xc_set_free(&irqs->cpus);
    xc_text_free(&irqs->names);
}

static bool irq_cpus(const struct xc_check_input *in, const char *irq,
                     const struct xc_set *housekeeping, struct xc_set *cpus)
{
    xc_autoset struct xc_set asked = XC_SET_EMPTY;
    bool known = xc_root_read_set(in->root, &asked, "/proc/irq/%s/smp_affinity_list", irq);
    if (known && xc_set_subset(&asked, housekeeping)) { /* it moves with the next interrupt */
        xc_set_copy(cpus, &asked);
        return true;
    }
    if (xc_root_read_set(in->root, cpus, "/proc/irq/%s/effective_affinity_list", irq) &&
        !xc_set_empty(cpus))
        return true;
    xc_set_copy(cpus, &asked);
    return known;
}

static void judge_irq(const struct xc_check_input *in, const char *irq,
                      const struct xc_set *housekeeping, struct irqs *irqs)
{
    xc_autofree char *action = xc_root_read_line(in->root, "/sys/kernel/irq/%s/actions", irq);
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (!action || !*action || matches(chk_param(in, "managed"), action) ||
        !matches(chk_param(in, "devices"), action) || !irq_cpus(in, irq, housekeeping, &cpus))
        return;
    irqs->judged++;
    if (xc_set_subset(&cpus, housekeeping))
        return;
    xc_set_or(&irqs->cpus, &cpus);
    if (++irqs->strayed <= 4)
        xc_text_addf(&irqs->names, "%s%s (%s)", irqs->strayed > 1 ? ", " : "", irq, action);
}

static void judge_default(const struct xc_check_input *in, struct xc_findings *out,
                          const struct xc_set *housekeeping, const char *want)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, online = XC_SET_EMPTY;
    xc_autofree char *mask = xc_root_read_line(in->root, "/proc/irq/default_smp_affinity");
    if (!mask)
        return;
    if (xc_set_parse_mask(&cpus, mask, "default_smp_affinity", NULL) < 0) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = "default"},
                "/proc/irq/default_smp_affinity is no mask");
        return;
    }
    xc_node_online(in->node, &online);
    xc_set_and(&cpus, &online); /* the kernel sets bits of CPUs that are not there */
    if (!xc_set_subset(&cpus, housekeeping))
        chk_say(out, strayed(in, XC_HOST_IRQS),
                (struct chk_words){.device = "default",
                                   .want = want,
                                   .hint = "xcloud host apply, or irqaffinity="},
                "new interrupts may go to %zu CPUs", xc_set_count(&cpus));
}

static void run_irqs(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY;
    xc_cleanup(clear_irqs) struct irqs irqs = {0};
    if (!chk_housekeeping(in, out, &housekeeping))
        return;
    xc_autofree char *want = xc_set_format(&housekeeping);
    xc_autonames char **names = xc_root_list(in->root, "/proc/irq");
    size_t before = out->count;
    judge_default(in, out, &housekeeping, want);
    for (char **name = names; name && *name; name++)
        if (isdigit((unsigned char)**name))
            judge_irq(in, *name, &housekeeping, &irqs);
    if (irqs.strayed > 0) {
        xc_autofree char *device = chk_cpus(&irqs.cpus);
        chk_say(out, strayed(in, XC_HOST_IRQS),
                (struct chk_words){.device = device,
                                   .want = want,
                                   .hint = "xcloud host apply, or IRQBALANCE_BANNED_CPULIST"},
                "%zu of %zu interrupts come there: %s%s", irqs.strayed, irqs.judged,
                irqs.names.data ? irqs.names.data : "", irqs.strayed > 4 ? ", …" : "");
    }
    if (out->count != before)
        return;
    if (!names)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "/proc/irq is not readable");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu interrupts stay there",
                irqs.judged);
}

static const struct xc_check irqs = {
    .id = "host.irqs",
    .code = "HST02",
    .what = "interrupts come to the housekeeping CPUs; managed ones are excused",
    .cost = XC_COST_SCAN,
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = irqs_params,
    .run = run_irqs,
};

/* ---- host.workqueues --------------------------------------------------------------------------------- */

static void run_workqueues(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY, cpus = XC_SET_EMPTY,
                             online = XC_SET_EMPTY;
    if (!chk_housekeeping(in, out, &housekeeping))
        return;
    xc_autofree char *mask = xc_root_read_line(in->root, "/sys/devices/virtual/workqueue/cpumask");
    if (!mask) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this kernel shows no workqueue mask");
        return;
    }
    if (xc_set_parse_mask(&cpus, mask, "cpumask", NULL) < 0) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "workqueue/cpumask is no mask");
        return;
    }
    xc_node_online(in->node, &online);
    xc_set_and(&cpus, &online);
    xc_autofree char *want = xc_set_format(&housekeeping), *have = xc_set_format(&cpus);
    if (xc_set_subset(&cpus, &housekeeping))
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "unbound work stays on CPUs %s",
                have ? have : "");
    else
        chk_say(out, strayed(in, XC_HOST_WORKQUEUES),
                (struct chk_words){.want = want,
                                   .hint = "xcloud host apply, or write the mask to "
                                           "/sys/devices/virtual/workqueue/cpumask"},
                "the kernel's unbound work may run on CPUs %s", have ? have : "");
}

static const struct xc_check workqueues = {
    .id = "host.workqueues",
    .code = "HST03",
    .what = "the kernel's unbound work stays on the housekeeping CPUs",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .run = run_workqueues,
};

/* ---- host.cmdline ------------------------------------------------------------------------------------ */

static const struct xc_check_param cmdline_params[] = {
    {"require", XC_PARAM_NAMES, NULL, "words that must be there: WORD or WORD=VALUE", NULL},
    {"forbid", XC_PARAM_NAMES, NULL, "words that must not be there: WORD or WORD=VALUE", NULL},
    {0},
};

/* Whether WORD or WORD=VALUE is in force: of a word that is there more than once the last counts. */
static bool has_word(const struct xc_check_input *in, const char *wanted, bool *known)
{
    xc_autofree char *word = strndup(wanted, strcspn(wanted, "=")), *value = NULL;
    const char *equals = strchr(wanted, '=');
    if (!word || !chk_cmdline(in, word, &value, known))
        return false;
    return !equals || xc_streq(value, equals + 1);
}

static void isolated(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_node_flagged(in->node, XC_CPU_ISOLATED, &cpus);
    if (xc_set_empty(&cpus))
        return;
    xc_autofree char *device = chk_cpus(&cpus);
    chk_say(out, XC_CHECK_WARN,
            (struct chk_words){.device = device,
                               .hint = "take isolcpus= away: a cpuset keeps the host off them and "
                                       "leaves balancing to the job"},
            "isolcpus= takes them out of load balancing: threads without a CPU of their own pile "
            "up on one");
}

static void run_cmdline(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autonames char **require = NULL, **forbid = NULL;
    const char *list;
    bool known = true;
    size_t before = out->count;
    if ((list = chk_param(in, "require")))
        require = xc_names_split(list);
    if ((list = chk_param(in, "forbid")))
        forbid = xc_names_split(list);
    for (char **word = require; word && *word; word++)
        if (!has_word(in, *word, &known) && known)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = *word,
                                       .hint = "add it to GRUB_CMDLINE_LINUX and reboot"},
                    "%s is not on the kernel's command line", *word);
    for (char **word = forbid; word && *word; word++)
        if (has_word(in, *word, &known))
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = *word,
                                       .hint = "take it out of GRUB_CMDLINE_LINUX and reboot"},
                    "%s is on the kernel's command line", *word);
    isolated(in, out);
    if (!known)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "/proc/cmdline is not readable");
    else if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "as it should be");
}

static const struct xc_check cmdline = {
    .id = "host.cmdline",
    .code = "HST04",
    .what = "the kernel's command line has what it should, and no isolcpus=",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = cmdline_params,
    .run = run_cmdline,
};

/* ---- host.strays --------------------------------------------------------------------------------------- */

static const struct xc_check_param strays_params[] = {
    {"except", XC_PARAM_NAMES, "slurmd,slurmstepd*,xcloud*", "processes that may, by name", NULL},
    {"most", XC_PARAM_NUMBER, "0", "processes that are accepted", NULL},
    {0},
};

struct strays {
    struct xc_text names;
    size_t seen, count;
};

static void clear_strays(struct strays *strays)
{
    xc_text_free(&strays->names);
}

/* Kernel threads have no memory of their own. Those for one CPU cannot be moved, and the workqueues'
 * mask is for the others. */
static bool is_kernel_thread(const char *status)
{
    xc_autofree char *memory = status_value(status, "VmSize");
    return memory == NULL;
}

/* Slurm's scope has the jobs, by number or (26.05) SLUID, and "system", which is its own. */
static bool is_in_scope(const char *cgroup)
{
    static const char scope[] = "slurmstepd.scope/";
    const char *at = strstr(cgroup, scope);
    return at && !xc_starts(at + strlen(scope), "system");
}

static bool is_of_a_job(const struct xc_check_input *in, const char *pid)
{
    xc_autofree char *cgroup = xc_root_read(in->root, NULL, NULL, "/proc/%s/cgroup", pid);
    return cgroup && (is_in_scope(cgroup) || strstr(cgroup, "/job_") || strstr(cgroup, "kubepods"));
}

/* 1 it may leave the set, 0 it stays there, -1 the file does not tell. */
static int may_leave(const char *status, const struct xc_set *housekeeping)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_autofree char *list = status_value(status, "Cpus_allowed_list");
    if (!list || xc_set_parse_list(&cpus, list, NULL, NULL) < 0)
        return -1;
    return !xc_set_subset(&cpus, housekeeping);
}

/* Threads bind themselves, and need not stay where their process was put. */
static bool thread_may_leave(const struct xc_check_input *in, const char *pid,
                             const struct xc_set *housekeeping)
{
    xc_autonames char **threads = xc_root_list(in->root, "/proc/%s/task", pid);
    for (char **thread = threads; thread && *thread; thread++) {
        if (xc_streq(*thread, pid))
            continue;
        xc_autofree char *status =
            xc_root_read(in->root, NULL, NULL, "/proc/%s/task/%s/status", pid, *thread);
        if (status && may_leave(status, housekeeping) == 1)
            return true;
    }
    return false;
}

static void judge_process(const struct xc_check_input *in, const char *pid,
                          const struct xc_set *housekeeping, struct strays *strays)
{
    xc_autofree char *status = xc_root_read(in->root, NULL, NULL, "/proc/%s/status", pid);
    if (!status || is_kernel_thread(status))
        return;
    xc_autofree char *name = status_value(status, "Name");
    int leaves = may_leave(status, housekeeping);
    if (!name || leaves < 0)
        return;
    strays->seen++;
    if (matches(chk_param(in, "except"), name) ||
        (!leaves && !thread_may_leave(in, pid, housekeeping)) || is_of_a_job(in, pid))
        return;
    if (++strays->count <= 6)
        xc_text_addf(&strays->names, "%s%s (%s)", strays->count > 1 ? ", " : "", name, pid);
}

static void run_strays(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY;
    xc_cleanup(clear_strays) struct strays strays = {0};
    long most = 0;
    if (!chk_housekeeping(in, out, &housekeeping))
        return;
    chk_param_number(in, "most", &most);
    xc_autonames char **names = xc_root_list(in->root, "/proc");
    for (char **name = names; name && *name; name++)
        if (isdigit((unsigned char)**name))
            judge_process(in, *name, &housekeeping, &strays);
    xc_autofree char *want = xc_set_format(&housekeeping);
    if (strays.seen <= 1)
        chk_say(out, xc_root_is_live(in->root) ? XC_CHECK_UNKNOWN : XC_CHECK_NA,
                (struct chk_words){0}, "no process but PID 1 is to be seen in /proc");
    else if (strays.count > (size_t)most)
        chk_say(out, strayed(in, XC_HOST_SERVICES),
                (struct chk_words){.want = want,
                                   .hint = "xcloud host apply, or AllowedCPUs= in their units; "
                                           "host.slices says which are open"},
                "%zu host processes may run on training CPUs: %s%s", strays.count,
                strays.names.data ? strays.names.data : "", strays.count > 6 ? ", …" : "");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu processes, %zu may leave them",
                strays.seen, strays.count);
}

static const struct xc_check strays = {
    .id = "host.strays",
    .code = "HST05",
    .what = "no host thread may run on training CPUs; jobs and kernel threads are excused",
    .cost = XC_COST_SCAN,
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = strays_params,
    .run = run_strays,
};

/* ---- host.steal ------------------------------------------------------------------------------------------ */

static const struct xc_check_param steal_params[] = {
    {"most", XC_PARAM_NUMBER, "1%", "of CPU time since the last run, taken by the hypervisor",
     NULL},
    {0},
};

/* "cpu  user nice system idle iowait irq softirq steal …", in ticks */
static bool read_stat(const struct xc_check_input *in, int64_t *steal, int64_t *total)
{
    xc_autofree char *line = xc_root_read_line(in->root, "/proc/stat");
    long long v[8];
    if (!line || sscanf(line, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2],
                        &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
        return false;
    *steal = v[7];
    *total = 0;
    for (size_t i = 0; i < XC_COUNT(v); i++) {
        if (v[i] < 0 || v[i] > INT64_MAX / 16)
            return false;
        *total += v[i];
    }
    return true;
}

/* Waiting for a CPU on a machine whose CPUs idle is a sign of the same: told, not judged. */
static double pressure(const struct xc_check_input *in)
{
    xc_autofree char *line = xc_root_read_line(in->root, "/proc/pressure/cpu");
    double average;
    return line && sscanf(line, "some avg10=%lf", &average) == 1 ? average : -1;
}

static void run_steal(const struct xc_check_input *in, struct xc_findings *out)
{
    int64_t steal, total, stolen, passed;
    long most = 1;
    char text[48] = "";
    if (in->node->environment == XC_BARE) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "no hypervisor takes CPU time here");
        return;
    }
    if (!read_stat(in, &steal, &total)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "/proc/stat has no steal time");
        return;
    }
    chk_param_number(in, "most", &most);
    bool known = chk_delta(in, steal, &stolen, "steal.ticks");
    known &= chk_delta(in, total, &passed, "steal.total");
    if (!known || passed == 0) {
        chk_first_run(in, out, "an earlier run of this boot is needed");
        return;
    }
    double waiting = pressure(in), percent = 100.0 * (double)stolen / (double)passed;
    if (waiting >= 0)
        snprintf(text, sizeof text, "; CPU pressure %.1f%%", waiting);
    if (percent > (double)most)
        chk_say(out, chk_bad(in),
                (struct chk_words){.want = "an own CPU for each virtual one",
                                   .hint = "ask the provider: the hypervisor runs something else "
                                           "on these cores"},
                "%.2f%% of CPU time was stolen since the last run%s", percent, text);
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%.2f%% of CPU time was stolen%s",
                percent, text);
}

static const struct xc_check steal = {
    .id = "host.steal",
    .code = "HST06",
    .what = "the hypervisor takes no CPU time away (virtual machines)",
    .at = XC_AT_HEALTH | XC_AT_EPILOG | XC_AT_CLI,
    .needs = XC_NEEDS_PREVIOUS,
    .on_fail = XC_FAIL_WARN,
    .params = steal_params,
    .run = run_steal,
};

/* ---- host.profiling ---------------------------------------------------------------------------------------- */

static const struct xc_check_param profiling_params[] = {
    {"perf", XC_PARAM_NUMBER, "2", "highest kernel.perf_event_paranoid that is accepted", NULL},
    {"kptr", XC_PARAM_NUMBER, "1", "highest kernel.kptr_restrict", NULL},
    {"ptrace", XC_PARAM_NUMBER, "1", "highest kernel.yama.ptrace_scope", NULL},
    {0},
};

static size_t at_most(const struct xc_check_input *in, struct xc_findings *out, const char *param,
                      const char *path, const char *name)
{
    long have, most = 0;
    char want[32], hint[96];
    if (!xc_root_read_long(in->root, &have, "%s", path)) {
        if (xc_root_exists(in->root, "%s", path))
            chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = name}, "it is no number");
        return 0;
    }
    chk_param_number(in, param, &most);
    snprintf(want, sizeof want, "at most %ld", most);
    snprintf(hint, sizeof hint, "sysctl %s=%ld", name, most);
    if (have > most)
        chk_say(out, chk_bad(in), (struct chk_words){.device = name, .want = want, .hint = hint},
                "%s is %ld: users cannot profile their own jobs", name, have);
    return 1;
}

static void run_profiling(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count;
    size_t seen = at_most(in, out, "perf", "/proc/sys/kernel/perf_event_paranoid",
                          "kernel.perf_event_paranoid");
    seen += at_most(in, out, "kptr", "/proc/sys/kernel/kptr_restrict", "kernel.kptr_restrict");
    seen += at_most(in, out, "ptrace", "/proc/sys/kernel/yama/ptrace_scope",
                    "kernel.yama.ptrace_scope");
    if (out->count != before)
        return;
    chk_say(out, seen ? XC_CHECK_PASS : XC_CHECK_NA, (struct chk_words){0}, "%s",
            seen ? "users can run perf and nsys on their own jobs"
                 : "this kernel has no setting against it");
}

static const struct xc_check profiling = {
    .id = "host.profiling",
    .code = "HST07",
    .what = "users can run perf and nsys on their own jobs",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = profiling_params,
    .run = run_profiling,
};

const struct xc_check *const chk_host[] = {&slices, &irqs,  &workqueues, &cmdline,
                                           &strays, &steal, &profiling,  NULL};
