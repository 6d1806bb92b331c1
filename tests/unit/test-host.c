/* Does host/ set what it should, nothing else, and give it back exactly? On a directory that stands for a
 * machine, with a systemd that does what systemd 252 was seen to do. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/host.h>
#include <xcloud/plan.h>

#define CG    "/sys/fs/cgroup"
#define UNITS "/run/systemd/system"
#define OURS  "10-xcloud-host.conf"
#define ALL   "services, irqs, workqueues"

/* ---- a machine: 16 CPUs, i and i+8 are siblings, 0-3 and 8-11 are on node 0 --------------------------- */

struct machine {
    struct xc_cpu cpus[16];
    struct xc_numa numas[2];
    uint16_t distance[4];
    struct xc_node node;
    char dir[64];
    struct xc_root *root;
    struct xc_rules *rules;
    struct xc_host_system system;
    struct xc_host_report report;
    struct xc_error error;
    /* what was asked of the system */
    unsigned writes, reloads, restarts, binds, steps, die_at;
    int bound;
    char bound_to[64];
};

static char *join(const struct machine *m, const char *path)
{
    static char full[512];
    snprintf(full, sizeof full, "%s%s", m->dir, path);
    return full;
}

static void put(const struct machine *m, const char *path, const char *text)
{
    char *full = join(m, path), *slash = strrchr(full, '/');
    *slash = '\0';
    assert_int_equal(xc_make_dirs(full, 0755, NULL), 0);
    *slash = '/';
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fprintf(f, "%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    fclose(f);
}

static void is(const struct machine *m, const char *path, const char *text)
{
    char *line = xc_root_read_line(m->root, "%s", path);
    if (!xc_streq(line, text))
        print_error("%s\n", path);
    assert_string_equal(line ? line : "(missing)", text ? text : "(missing)");
    free(line);
}

static bool there(const struct machine *m, const char *path)
{
    return access(join(m, path), F_OK) == 0;
}

static void put_cgroup(const struct machine *m, const char *name, const char *cpus)
{
    char path[256];
    snprintf(path, sizeof path, CG "/%s/cpuset.cpus", name);
    put(m, path, cpus);
    strcat(path, ".effective");
    put(m, path, *cpus ? cpus : "0-15");
}

static void put_irq(const struct machine *m, int irq, const char *action, const char *cpus,
                    int numa)
{
    char path[128], text[16];
    snprintf(path, sizeof path, "/sys/kernel/irq/%d/actions", irq);
    put(m, path, action);
    snprintf(path, sizeof path, "/proc/irq/%d/smp_affinity_list", irq);
    put(m, path, cpus);
    snprintf(path, sizeof path, "/proc/irq/%d/node", irq);
    snprintf(text, sizeof text, "%d", numa);
    put(m, path, text);
}

static void put_thread(const struct machine *m, const char *pid, const char *tid, const char *name,
                       const char *cgroup, const char *cpus, const char *start)
{
    char path[128], text[256];
    snprintf(path, sizeof path, "/proc/%s/comm", tid);
    put(m, path, name);
    snprintf(path, sizeof path, "/proc/%s/cgroup", tid);
    snprintf(text, sizeof text, "0::/%s", cgroup);
    put(m, path, text);
    snprintf(path, sizeof path, "/proc/%s/status", tid);
    snprintf(text, sizeof text, "Name:\t%s\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n", name,
             cpus);
    put(m, path, text);
    snprintf(path, sizeof path, "/proc/%s/stat", tid);
    snprintf(text, sizeof text, "%s (a) b) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 %s 9 9", tid,
             start);
    put(m, path, text);
    snprintf(path, sizeof path, "/proc/%s/task/%s/comm", pid, tid);
    put(m, path, name);
}

/* ---- a systemd ------------------------------------------------------------------------------------------ */

/* AllowedCPUs= of the first drop-in of our name: the unit's own before its type's. NULL: none. */
static char *allowed(const struct machine *m, const char *unit)
{
    const char *type = strrchr(unit, '.') + 1;
    char *text = xc_root_read(m->root, NULL, NULL, UNITS "/%s.d/" OURS, unit);
    if (!text && strchr(unit, '@'))
        text = xc_root_read(m->root, NULL, NULL, UNITS "/%.*s.%s.d/" OURS,
                            (int)(strchr(unit, '@') - unit) + 1, unit, type);
    if (!text)
        text = xc_root_read(m->root, NULL, NULL, UNITS "/%s.d/" OURS, type);
    char *value = text ? strstr(text, "\nAllowedCPUs=") : NULL;
    char *out = value ? strndup(value + 13, strcspn(value + 13, "\n")) : NULL;
    free(text);
    return out;
}

static void realize(const struct machine *m, const char *directory)
{
    char **names = xc_root_list(m->root, CG "%s", directory);
    for (char **name = names; name && *name; name++) {
        const char *dot = strrchr(*name, '.');
        char path[256];
        if (!dot || (strcmp(dot, ".service") && strcmp(dot, ".slice") && strcmp(dot, ".scope")))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, *name);
        realize(m, path);
        char *cpus = allowed(m, *name);
        if (cpus)
            put_cgroup(m, path + 1, cpus);
        if (cpus && xc_streq(*name, "init.scope"))
            put_thread(m, "1", "1", "systemd", "init.scope", cpus, "1");
        free(cpus);
    }
    xc_names_free(&names);
}

/* Every step may be the last one: a run that is killed there. */
static void step(struct machine *m)
{
    if (++m->steps == m->die_at)
        _exit(77);
}

static int fake_systemctl(void *ctx, const char *verb, const char *unit, struct xc_error *error)
{
    struct machine *m = ctx;
    (void)error;
    step(m);
    if (xc_streq(verb, "daemon-reload")) {
        m->reloads++;
        realize(m, "");
    } else {
        assert_string_equal(verb, "try-restart");
        assert_string_equal(unit, "irqbalance.service");
        m->restarts++;
    }
    step(m);
    return 0;
}

static int fake_write(void *ctx, const char *path, const char *text)
{
    struct machine *m = ctx;
    const char *inside = path + strlen(m->dir);
    assert_memory_equal(path, m->dir, strlen(m->dir));
    step(m);
    m->writes++;
    if (strstr(inside, "/irq/40/"))
        return -EIO;
    if (strstr(inside, "/irq/41/"))
        return -ENOSPC;
    if (xc_starts(inside, CG)) {
        char copy[256];
        char *now = xc_root_read_line(m->root, "%s", inside);
        bool emptied = !*text && now && *now;
        free(now);
        if (emptied)
            return -ENOSPC; /* there are processes in it */
        snprintf(copy, sizeof copy, "%s", inside + strlen(CG "/"));
        *strrchr(copy, '/') = '\0';
        put_cgroup(m, copy, text);
    } else {
        put(m, inside, text);
    }
    step(m);
    return 0;
}

static int fake_bind(void *ctx, int tid, const struct xc_set *cpus)
{
    struct machine *m = ctx;
    char *list = xc_set_format(cpus);
    m->binds++;
    m->bound = tid;
    snprintf(m->bound_to, sizeof m->bound_to, "%s", list);
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    snprintf(text, sizeof text, "Name:\tx\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n", list);
    put(m, path, text);
    free(list);
    return 0;
}

/* ---- set up --------------------------------------------------------------------------------------------- */

static void rules(struct machine *m, const char *cpus)
{
    struct xc_policy *policy = NULL;
    char text[512];
    snprintf(text, sizeof text, "version: 1\nmode: bind\ndefaults:\n  cpus: {%s}\n", cpus);
    xc_rules_free(m->rules);
    m->rules = NULL;
    assert_int_equal(xc_policy_parse(text, strlen(text), "p", &policy, &m->error), 0);
    assert_int_equal(xc_plan_rules(policy, &m->node, "lab", NULL, NULL, &m->rules, &m->error), 0);
    xc_policy_free(policy);
}

static void put_host(struct machine *m)
{
    put(m, "/proc/sys/kernel/random/boot_id", "b0");
    put(m, UNITS "/keep", "");
    put(m, CG "/cgroup.controllers", "cpuset cpu");
    put(m, CG "/cgroup.subtree_control", "cpuset cpu");
    put(m, CG "/system.slice/cgroup.subtree_control", "cpuset cpu");
    put_cgroup(m, "init.scope", "");
    put_cgroup(m, "user.slice", "");
    put_cgroup(m, "user.slice/user-7.slice/user@7.service", "");
    put_cgroup(m, "system.slice", "");
    put_cgroup(m, "system.slice/cron.service", "");
    put_cgroup(m, "system.slice/hand.service", "2-3"); /* written by hand into cgroupfs */
    put_cgroup(m, "system.slice/system-getty.slice/getty@tty1.service", "");
    put_cgroup(m, "system.slice/slurmd.service", "");
    put_cgroup(m, "system.slice/lab_slurmstepd.scope", "");
    put_cgroup(m, "system.slice/lab_slurmstepd.scope/job_1/step_0/user", "1-7");
    put_thread(m, "1", "1", "systemd", "init.scope", "0-15", "1");
    put_thread(m, "50", "50", "cron", "system.slice/cron.service", "0-15", "7");
    put_thread(m, "50", "51", "cron", "system.slice/cron.service", "5", "8");
    put_thread(m, "60", "60", "python", "system.slice/lab_slurmstepd.scope/job_1/step_0/user", "1",
               "9");
    put(m, "/sys/devices/system/cpu/possible", "0-15");
    put(m, "/proc/irq/default_smp_affinity", "ffff");
    put(m, "/sys/devices/virtual/workqueue/cpumask", "ffff");
    put_irq(m, 24, "eth0-rx-0", "0-15", 1);
    put_irq(m, 25, "eth0-rx-1", "0", 0);
    put_irq(m, 26, "nvme0q3", "5", 0);
    put_irq(m, 27, "", "0-15", 0);
}

static int set_up(void **state)
{
    struct machine *m = calloc(1, sizeof *m);
    snprintf(m->dir, sizeof m->dir, "/tmp/test-host.XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    for (int i = 0; i < 16; i++)
        m->cpus[i] = (struct xc_cpu){
            .os = i, .core = i % 8, .numa = i % 8 / 4, .thread = i / 8, .flags = XC_CPU_ONLINE};
    for (int i = 0; i < 2; i++)
        m->numas[i] = (struct xc_numa){.os = i, .ncpus = 8};
    m->node = (struct xc_node){.ncpus = 16,
                               .ncores = 8,
                               .npackages = 1,
                               .nnumas = 2,
                               .cpus = m->cpus,
                               .numas = m->numas,
                               .distance = m->distance};
    m->system = (struct xc_host_system){
        .ctx = m, .write = fake_write, .systemctl = fake_systemctl, .bind = fake_bind};
    assert_int_equal(xc_root_open_dir(m->dir, &m->root, &m->error), 0);
    put_host(m);
    rules(m, "housekeeping: \"0,4\", host: [" ALL "]");
    *state = m;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    struct machine *m = *state;
    xc_host_report_clear(&m->report);
    xc_rules_free(m->rules);
    xc_root_close(m->root);
    nftw(m->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(m);
    return 0;
}

static struct xc_host_input input(const struct machine *m)
{
    return (struct xc_host_input){.root = m->root,
                                  .prefix = m->dir,
                                  .system = &m->system,
                                  .node = &m->node,
                                  .rules = m->rules};
}

static int apply(struct machine *m)
{
    struct xc_host_input in = input(m);
    xc_host_report_clear(&m->report);
    return xc_host_apply(&in, &m->report, &m->error);
}

static int undo(struct machine *m)
{
    struct xc_host_input in = input(m);
    in.rules = NULL;
    xc_host_report_clear(&m->report);
    return xc_host_undo(&in, &m->report, &m->error);
}

static struct xc_text *tree;
static size_t skip;

static int add_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)ftw;
    if (strstr(path, "/run/xcloud"))
        return 0;
    xc_text_addf(tree, "%s%s: ", path + skip, flag == FTW_DP ? "/" : "");
    FILE *f = S_ISREG(st->st_mode) ? fopen(path, "r") : NULL;
    for (int c; f && (c = fgetc(f)) != EOF;)
        xc_text_addf(tree, "%c", c);
    if (f)
        fclose(f);
    xc_text_add(tree, "\n");
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every directory and file below the machine's root with its content, but for our own record. */
static char *picture(const struct machine *m)
{
    struct xc_text text = XC_TEXT_INIT, sorted = XC_TEXT_INIT;
    char *lines[4096];
    size_t count = 0;
    tree = &text;
    skip = strlen(m->dir);
    nftw(m->dir, add_file, 16, FTW_DEPTH | FTW_PHYS);
    char *all = xc_text_take(&text);
    for (char *line = strtok(all, "\n"); line && count < 4096; line = strtok(NULL, "\n")) {
        char *cpus = strstr(line, "/cpuset.cpus: 0-15"); /* as much as none said */
        if (cpus)
            cpus[14] = '\0';
        lines[count++] = line;
    }
    qsort(lines, count, sizeof *lines, by_text);
    for (size_t i = 0; i < count; i++)
        xc_text_addf(&sorted, "%s\n", lines[i]);
    free(all);
    return xc_text_take(&sorted);
}

/* Frees both. */
static void same_picture(char *is_now, char *was)
{
    size_t i = 0, line = 0;
    for (; is_now[i] && is_now[i] == was[i]; i++)
        line = is_now[i] == '\n' ? i + 1 : line;
    if (is_now[i] || was[i])
        print_error("is:  %.200s\nwas: %.200s\n", is_now + line, was + line);
    assert_string_equal(is_now, was);
    free(is_now);
    free(was);
}

static const struct xc_host_row *row(const struct machine *m, const char *what)
{
    for (size_t i = 0; i < m->report.count; i++)
        if (xc_streq(m->report.rows[i].what, what))
            return &m->report.rows[i];
    fail_msg("no row for %s", what);
    return NULL;
}

static size_t count(const struct machine *m, enum xc_host_outcome outcome)
{
    return xc_host_report_count(&m->report, outcome);
}

/* ---- what is set ------------------------------------------------------------------------------------------ */

static void all_is_set_and_jobs_are_left_alone(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    assert_int_equal(count(m, XC_HOST_REFUSED), 0);
    is(m, CG "/system.slice/cron.service/cpuset.cpus", "0,4,8,12");
    is(m, CG "/system.slice/hand.service/cpuset.cpus", "0,4,8,12");
    is(m, CG "/system.slice/system-getty.slice/getty@tty1.service/cpuset.cpus", "0,4,8,12");
    is(m, CG "/user.slice/cpuset.cpus", "0,4,8,12");
    is(m, CG "/init.scope/cpuset.cpus", "0,4,8,12");
    /* where jobs live */
    is(m, CG "/system.slice/cpuset.cpus", "");
    is(m, CG "/system.slice/slurmd.service/cpuset.cpus", "");
    is(m, CG "/system.slice/lab_slurmstepd.scope/cpuset.cpus", "");
    is(m, CG "/system.slice/lab_slurmstepd.scope/job_1/step_0/user/cpuset.cpus", "1-7");
    assert_false(there(m, UNITS "/scope.d"));
    assert_true(there(m, UNITS "/slurmd@.service.d/" OURS));
    assert_int_equal(row(m, "slurmd.service")->outcome, XC_HOST_KEPT);
    /* interrupts: near their device; the kernel's own and unused ones are left */
    is(m, "/proc/irq/default_smp_affinity", "1111");
    is(m, "/proc/irq/24/smp_affinity_list", "4,12");
    is(m, "/proc/irq/25/smp_affinity_list", "0");
    is(m, "/proc/irq/26/smp_affinity_list", "5");
    is(m, "/proc/irq/27/smp_affinity_list", "0-15");
    assert_int_equal(row(m, "26 nvme0q3")->outcome, XC_HOST_EXCUSED);
    is(m, "/sys/devices/virtual/workqueue/cpumask", "1111");
    assert_int_equal(m->reloads, 1);
}

static void undo_gives_everything_back(void **state)
{
    struct machine *m = *state;
    char *before = picture(m);
    assert_int_equal(apply(m), 0);
    put_thread(m, "1", "1", "systemd", "init.scope", "0-15", "1"); /* the kernel's part of undo */
    assert_int_equal(undo(m), 0);
    put_thread(m, "1", "1", "systemd", "init.scope", "0-15", "1");
    same_picture(picture(m), before);
    assert_false(there(m, XC_HOST_STATE_FILE));
    assert_int_equal(undo(m), 0);
    assert_non_null(strstr(m->report.why, "nothing has been set"));
}

static void a_second_apply_changes_nothing(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    char *before = picture(m), *record = xc_root_read(m->root, NULL, NULL, XC_HOST_STATE_FILE);
    m->writes = m->reloads = 0;
    assert_int_equal(apply(m), 0);
    same_picture(picture(m), before);
    char *same = xc_root_read(m->root, NULL, NULL, XC_HOST_STATE_FILE);
    assert_string_equal(same, record);
    assert_int_equal(m->writes + m->reloads, 0);
    assert_int_equal(count(m, XC_HOST_SET), 0);
    free(record);
    free(same);
}

/* Apply in a process of its own that is killed at its at-th step; whether it came to its end. */
static bool apply_and_die(struct machine *m, unsigned at)
{
    m->die_at = at;
    m->steps = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(apply(m) == 0 ? 0 : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    m->die_at = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Killed before and after each thing that it does, then run again, then undone. */
static void a_run_that_was_killed_is_finished_by_the_next_and_undone_exactly(void **state)
{
    struct machine *m = *state;
    char *before = picture(m);
    unsigned killed = 0;
    for (unsigned at = 1;; at++) {
        bool done = apply_and_die(m, at);
        killed += !done;
        assert_int_equal(apply(m), 0);
        assert_int_equal(count(m, XC_HOST_REFUSED), 0);
        is(m, CG "/system.slice/cron.service/cpuset.cpus", "0,4,8,12");
        is(m, "/proc/irq/24/smp_affinity_list", "4,12");
        is(m, "/sys/devices/virtual/workqueue/cpumask", "1111");
        assert_int_equal(undo(m), 0);
        put_thread(m, "1", "1", "systemd", "init.scope", "0-15", "1");
        same_picture(picture(m), strdup(before));
        if (done)
            break;
        assert_true(at < 100);
    }
    assert_true(killed >= 6);
    free(before);
}

/* The policy names other CPUs, apply is killed on its way there, and somebody undoes it at once. */
static void a_run_with_another_policy_that_was_killed_is_undone_exactly(void **state)
{
    static const char *const others[] = {"0-1", "0", "2,3,5"};
    struct machine *m = *state;
    char *before = picture(m), text[64];
    unsigned killed = 0;
    for (unsigned at = 1;; at++) {
        rules(m, "housekeeping: \"0,4\", host: [" ALL "]");
        assert_int_equal(apply(m), 0);
        snprintf(text, sizeof text, "housekeeping: \"%s\", host: [" ALL "]", others[at % 3]);
        rules(m, text);
        bool done = apply_and_die(m, at);
        killed += !done;
        assert_int_equal(undo(m), 0);
        put_thread(m, "1", "1", "systemd", "init.scope", "0-15", "1");
        same_picture(picture(m), strdup(before));
        if (done)
            break;
        assert_true(at < 100);
    }
    assert_true(killed >= 6);
    free(before);
}

static void dry_writes_nothing_at_all(void **state)
{
    struct machine *m = *state;
    struct xc_host_input in = input(m);
    char *before = picture(m);
    in.dry = true;
    assert_int_equal(xc_host_apply(&in, &m->report, &m->error), 0);
    same_picture(picture(m), before);
    assert_false(there(m, "/run/xcloud"));
    assert_true(count(m, XC_HOST_WOULD) >= 7);
    assert_int_equal(count(m, XC_HOST_SET), 0);
}

static void nothing_to_do_is_said(void **state)
{
    struct machine *m = *state;
    static const char *const none[][2] = {
        {"housekeeping: none, host: [services]", "no housekeeping"},
        {"housekeeping: slurm, host: [services]", ""},
        {"housekeeping: \"0,4\"", "asks for nothing"},
        {"housekeeping: all, host: [services]", "all CPUs are housekeeping"},
    };
    char *before = picture(m);
    for (size_t i = 0; i < XC_COUNT(none); i++) {
        rules(m, none[i][0]);
        assert_int_equal(apply(m), 0);
        assert_non_null(m->report.why);
        assert_non_null(strstr(m->report.why, none[i][1]));
        assert_null(m->report.housekeeping);
    }
    same_picture(picture(m), before);
}

static void cpus_that_are_not_there_are_an_error(void **state)
{
    struct machine *m = *state;
    char *before = picture(m);
    rules(m, "housekeeping: \"0,99\", host: [services]");
    assert_int_equal(apply(m), -1);
    assert_int_equal(m->error.code, XC_EINPUT);
    assert_non_null(strstr(m->error.message, "99"));
    same_picture(picture(m), before);
}

/* ---- what the site has set --------------------------------------------------------------------------------- */

static void a_unit_that_the_site_has_pinned_keeps_its_cpus(void **state)
{
    struct machine *m = *state;
    put_cgroup(m, "system.slice/weka.service", "6-7");
    put_cgroup(m, "system.slice/dpdk@a.service", "");
    put_cgroup(m, "system.slice/launch.service", "");
    put_cgroup(m, "system.slice/slurmdbd.service", "");
    put_cgroup(m, "system.slice/reset.service", "");
    put(m, "/etc/systemd/system/weka.service.d/cpus.conf", "[Service]\n AllowedCPUs = 6-7\n");
    put(m, "/usr/lib/systemd/system/dpdk@.service", "[Service]\nCPUAffinity=3\n");
    put(m, "/etc/systemd/system/launch.service",
        "[Service]\nExecStart=/bin/sh -c \\\n  /opt/slurm/sbin/slurmd\n");
    put(m, "/usr/lib/systemd/system/slurmdbd.service",
        "[Service]\nExecStart=/usr/sbin/slurmdbd -D\n");
    put(m, "/usr/lib/systemd/system/reset.service",
        "[Service]\nAllowedCPUs=3\n#CPUAffinity=1\nAllowedCPUs=\n");
    assert_int_equal(apply(m), 0);
    is(m, CG "/system.slice/weka.service/cpuset.cpus", "6-7");
    is(m, CG "/system.slice/dpdk@a.service/cpuset.cpus", "");
    is(m, CG "/system.slice/launch.service/cpuset.cpus", "");
    is(m, CG "/system.slice/slurmdbd.service/cpuset.cpus", "0,4,8,12");
    is(m, CG "/system.slice/reset.service/cpuset.cpus", "0,4,8,12");
    assert_int_equal(row(m, "weka.service")->outcome, XC_HOST_KEPT);
    assert_int_equal(row(m, "launch.service")->outcome, XC_HOST_KEPT);
    /* the site thinks again: the exception goes */
    assert_int_equal(unlink(join(m, "/etc/systemd/system/weka.service.d/cpus.conf")), 0);
    assert_int_equal(apply(m), 0);
    is(m, CG "/system.slice/weka.service/cpuset.cpus", "0,4,8,12");
    assert_false(there(m, UNITS "/weka.service.d"));
}

static void a_slice_that_jobs_live_in_or_will_live_in_stays_open(void **state)
{
    struct machine *m = *state;
    put_cgroup(m, "gpu.slice", "");
    put_cgroup(m, "gpu.slice/gpu-jobs.slice/lab_slurmstepd.scope", "");
    put_cgroup(m, "site.slice", "");
    put_cgroup(m, "site.slice/agent.service", "");
    put_cgroup(m, "storage.slice", "");
    /* slurmd is not there yet: apply runs before it at boot */
    put(m, "/etc/systemd/system/slurmd.service.d/slice.conf",
        "[Service]\nSlice=site-slurm.slice\n");
    put(m, "/etc/systemd/system/agent.service", "[Service]\nSlice=site.slice\n");
    assert_int_equal(apply(m), 0);
    is(m, CG "/gpu.slice/cpuset.cpus", "");
    is(m, CG "/site.slice/cpuset.cpus", "");
    is(m, CG "/site.slice/agent.service/cpuset.cpus", "0,4,8,12"); /* by service.d */
    is(m, CG "/storage.slice/cpuset.cpus", "0,4,8,12");
    assert_false(there(m, UNITS "/agent.service.d"));
    assert_int_equal(undo(m), 0);
    is(m, CG "/site.slice/agent.service/cpuset.cpus", "0-15");
    is(m, CG "/storage.slice/cpuset.cpus", "0-15");
    is(m, CG "/user.slice/user-7.slice/user@7.service/cpuset.cpus", "0-15");
}

static void a_drop_in_for_all_services_is_the_sites(void **state)
{
    struct machine *m = *state;
    put(m, "/etc/systemd/system/service.d/cpus.conf", "[Service]\nAllowedCPUs=0-1\n");
    put(m, "/etc/systemd/system/user.slice.d/cpus.conf", "[Slice]\nAllowedCPUs=0-1\n");
    assert_int_equal(apply(m), 0);
    assert_int_equal(row(m, "service.d")->outcome, XC_HOST_KEPT);
    assert_false(there(m, UNITS "/service.d"));
    assert_false(there(m, UNITS "/user.slice.d"));
    is(m, CG "/init.scope/cpuset.cpus", "0,4,8,12");
}

static void what_somebody_has_changed_since_is_left(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    put(m, "/proc/irq/24/smp_affinity_list", "6");
    put(m, "/proc/irq/default_smp_affinity", "1"); /* within what apply set: irqbalance does so */
    put_irq(m, 25, "eth7-rx-1", "4", 0);
    assert_int_equal(undo(m), 0);
    is(m, "/proc/irq/24/smp_affinity_list", "6");
    assert_int_equal(row(m, "24 eth0-rx-0")->outcome, XC_HOST_KEPT);
    is(m, "/proc/irq/default_smp_affinity", "ffff");
}

static void a_service_that_was_started_later_is_given_back_too(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    put_cgroup(m, "system.slice/late.service", "0,4,8,12");
    assert_int_equal(undo(m), 0);
    is(m, CG "/system.slice/late.service/cpuset.cpus", "0-15");
}

static void a_thread_that_had_bound_itself_is_bound_again_unless_it_is_another(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    put_thread(m, "50", "51", "cron", "system.slice/cron.service", "0-15", "8");
    assert_int_equal(undo(m), 0);
    assert_int_equal(m->binds, 1);
    assert_int_equal(m->bound, 51);
    assert_string_equal(m->bound_to, "5");
    put_thread(m, "50", "51", "cron", "system.slice/cron.service", "5", "8");
    assert_int_equal(apply(m), 0);
    put_thread(m, "50", "51", "cron", "system.slice/cron.service", "0-15", "99");
    assert_int_equal(undo(m), 0);
    assert_int_equal(m->binds, 1);
}

/* ---- what cannot be set -------------------------------------------------------------------------------------- */

static void interrupts_that_refuse_are_excused_and_full_ones_are_told(void **state)
{
    struct machine *m = *state;
    put_irq(m, 40, "strange-managed", "3", 0);
    put_irq(m, 41, "mlx5_comp9", "3", 0);
    assert_int_equal(apply(m), 0);
    assert_int_equal(row(m, "40 strange-managed")->outcome, XC_HOST_EXCUSED);
    assert_int_equal(row(m, "41 mlx5_comp9")->outcome, XC_HOST_REFUSED);
    assert_non_null(strstr(row(m, "41 mlx5_comp9")->why, "vector"));
    is(m, "/proc/irq/24/smp_affinity_list", "4,12"); /* the rest goes on */
}

/* On cgroup v1 a process is in one group of each hierarchy. */
static void put_v1(const struct machine *m, const char *pid, const char *tid, const char *name,
                   const char *unit, const char *cpuset, const char *cpus, const char *start)
{
    char path[64], text[256];
    put_thread(m, pid, tid, name, "", cpus, start);
    snprintf(path, sizeof path, "/proc/%s/cgroup", tid);
    snprintf(text, sizeof text, "4:cpuset:/%s\n1:name=systemd:/%s\n0::/%s\n", cpuset, unit, unit);
    put(m, path, text);
}

static void mask_is(const struct machine *m, const char *tid, const char *cpus)
{
    char *status = xc_root_read(m->root, NULL, NULL, "/proc/%s/status", tid);
    char *list = strstr(status, "allowed_list:\t") + 14;
    list[strcspn(list, "\n")] = '\0';
    assert_string_equal(list, cpus);
    free(status);
}

static void on_cgroup_v1_threads_are_bound_and_jobs_are_not(void **state)
{
    struct machine *m = *state;
    assert_int_equal(unlink(join(m, CG "/cgroup.controllers")), 0);
    put_v1(m, "1", "1", "systemd", "init.scope", "", "0-15", "1");
    put_v1(m, "50", "50", "cron", "system.slice/cron.service", "", "0-15", "7");
    put_v1(m, "50", "51", "cron", "system.slice/cron.service", "", "5", "8");
    put_v1(m, "52", "52", "bash", "user.slice/user-0.slice/session-1.scope", "", "0-15", "8");
    put_v1(m, "60", "60", "python", "system.slice/slurmd.service", "slurm/uid_1/job_1/step_0", "1",
           "9");
    put_v1(m, "61", "61", "sshd", "system.slice/ssh.service", "slurm/uid_1/job_1/step_extern",
           "1-7", "9");
    put_v1(m, "62", "62", "slurmd", "system.slice/slurmd.service", "", "0-15", "9");
    put_v1(m, "63", "63", "nginx", "system.slice/docker-1.scope", "docker/1", "0-15", "9");
    assert_int_equal(apply(m), 0);
    assert_int_equal(count(m, XC_HOST_REFUSED), 0);
    static const char *const bound[] = {"1", "50", "51", "52"};
    for (size_t i = 0; i < XC_COUNT(bound); i++)
        mask_is(m, bound[i], "0,4,8,12");
    mask_is(m, "60", "1");
    mask_is(m, "61", "1-7");
    mask_is(m, "62", "0-15");
    mask_is(m, "63", "0-15");
    char *text = xc_root_read(m->root, NULL, NULL, UNITS "/slurmd.service.d/" OURS);
    assert_non_null(strstr(text, "\nCPUAffinity=0-15\n"));
    free(text);
    assert_false(there(m, UNITS "/service.d"));
    put_v1(m, "70", "70", "late", "system.slice/late.service", "", "0,4,8,12", "99");
    assert_int_equal(undo(m), 0);
    mask_is(m, "1", "0-15");
    mask_is(m, "51", "5");
    mask_is(m, "61", "1-7");
    mask_is(m, "70", "0-15");
    assert_false(there(m, UNITS "/slurmd.service.d"));
}

static void without_systemd_or_cgroup_v2_the_rest_is_done(void **state)
{
    struct machine *m = *state;
    assert_int_equal(unlink(join(m, CG "/cgroup.controllers")), 0);
    assert_int_equal(apply(m), 0);
    assert_non_null(strstr(row(m, "cgroup v1")->why, "cgroup v2"));
    is(m, "/proc/irq/default_smp_affinity", "1111");
    assert_int_equal(undo(m), 0);
    is(m, "/proc/irq/default_smp_affinity", "ffff");
    assert_int_equal(unlink(join(m, UNITS "/keep")), 0);
    assert_int_equal(rmdir(join(m, UNITS)), 0);
    assert_int_equal(apply(m), 0);
    assert_non_null(strstr(row(m, "services")->why, "does not run systemd"));
}

static void jobs_without_a_cpuset_are_not_unbound(void **state)
{
    struct machine *m = *state;
    put(m, CG "/system.slice/cgroup.subtree_control", "cpu");
    put_thread(m, "70", "70", "slurmstepd", "system.slice/slurmd.service", "0-15", "3");
    assert_int_equal(apply(m), 0);
    assert_non_null(strstr(row(m, "services")->why, "jobs run"));
    assert_int_equal(m->reloads, 0);
    assert_false(there(m, UNITS "/service.d"));
    put(m, "/proc/70/comm", "sleep");
    assert_int_equal(apply(m), 0);
    assert_int_equal(m->reloads, 1);
}

/* ---- irqbalance ------------------------------------------------------------------------------------------------ */

static void irqbalance_is_told_once(void **state)
{
    struct machine *m = *state;
    put(m, "/usr/lib/systemd/system/irqbalance.service",
        "[Service]\nExecStart=/usr/sbin/irqbalance\n");
    put_thread(m, "80", "80", "irqbalance", "system.slice/irqbalance.service", "0-15", "3");
    put(m, "/proc/80/environ", "A=b");
    assert_int_equal(apply(m), 0);
    assert_int_equal(m->restarts, 1);
    char *text =
        xc_root_read(m->root, NULL, NULL, UNITS "/irqbalance.service.d/10-xcloud-irqs.conf");
    assert_non_null(strstr(text, "Environment=IRQBALANCE_BANNED_CPULIST=1-3,5-7,9-11,13-15\n"));
    assert_non_null(strstr(text, "Environment=IRQBALANCE_BANNED_CPUS=eeee\n"));
    free(text);
    put(m, "/proc/80/environ", "IRQBALANCE_BANNED_CPULIST=1-3,5-7,9-11,13-15");
    FILE *f = fopen(join(m, "/proc/80/environ"), "w"); /* ended by NUL, as the kernel does */
    fwrite("IRQBALANCE_BANNED_CPULIST=1-3,5-7,9-11,13-15", 45, 1, f);
    fclose(f);
    assert_int_equal(apply(m), 0);
    assert_int_equal(m->restarts, 1);
    assert_int_equal(undo(m), 0);
    assert_int_equal(m->restarts, 2);
    assert_false(there(m, UNITS "/irqbalance.service.d"));
}

static void what_the_site_tells_irqbalance_is_kept(void **state)
{
    struct machine *m = *state;
    put(m, "/lib/systemd/system/irqbalance.service", "[Service]\n");
    put(m, "/etc/default/irqbalance",
        "#IRQBALANCE_BANNED_CPUS=ff\nIRQBALANCE_BANNED_CPULIST=1-15\n");
    assert_int_equal(apply(m), 0);
    assert_int_equal(row(m, "irqbalance")->outcome, XC_HOST_KEPT);
    assert_false(there(m, UNITS "/irqbalance.service.d"));
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

static void another_boots_record_is_not_looked_at(void **state)
{
    struct machine *m = *state;
    put(m, XC_HOST_STATE_FILE,
        "xcloud-host "
        "1\nboot\tb1\ncpus\t0\nfile\t2\t/proc/irq/24/smp_affinity_list\t9\teth0-rx-0\n");
    assert_int_equal(undo(m), 0);
    is(m, "/proc/irq/24/smp_affinity_list", "0-15");
    assert_int_equal(apply(m), 0);
    assert_int_equal(undo(m), 0);
    is(m, "/proc/irq/24/smp_affinity_list", "0-15");
}

static void a_record_that_is_not_ours_stops_everything(void **state)
{
    struct machine *m = *state;
    static const char *const wrong[] = {
        "nonsense\n",
        "xcloud-host 1\n",
        "xcloud-host 1\nboot\tb0\ncpus\tx\n",
        "xcloud-host 1\nboot\tb0\ncpus\t0\nfile\t2\t/etc/shadow\t0\t\n",
        "xcloud-host 1\nboot\tb0\ncpus\t0\nfile\t2\t/proc/irq/../../etc/shadow\t0\t\n",
        "xcloud-host 1\nboot\tb0\ncpus\t0\nthread\t1\t0\t0\t1\n",
        "xcloud-host 1\nboot\tb0\ncpus\t0\nfile\t9\t/proc/irq/1/smp_affinity_list\t0\t\n",
        "xcloud-host 1\nboot\tb0\ncpus\t0\nfile\t2\t/proc/irq/1/smp_affinity_list\n",
    };
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        put(m, XC_HOST_STATE_FILE, wrong[i]);
        char *before = picture(m);
        assert_int_equal(apply(m), -1);
        assert_int_equal(m->error.code, XC_EINPUT);
        assert_non_null(strstr(m->error.message, "line"));
        assert_int_equal(undo(m), -1);
        same_picture(picture(m), before);
    }
    put(m, XC_HOST_STATE_FILE, "xcloud-host 1\nboot\tb0\ncpus\t0\n");
    assert_int_equal(chmod(join(m, XC_HOST_STATE_FILE), 0666), 0);
    assert_int_equal(apply(m), -1);
    assert_int_equal(m->error.code, XC_EOWNER);
}

static void what_was_first_there_stays_the_record(void **state)
{
    struct machine *m = *state;
    assert_int_equal(apply(m), 0);
    rules(m, "housekeeping: \"0-1\", host: [" ALL "]");
    assert_int_equal(apply(m), 0);
    is(m, CG "/system.slice/hand.service/cpuset.cpus", "0-1,8-9");
    is(m, "/proc/irq/24/smp_affinity_list", "0-1,8-9");
    rules(m, "housekeeping: \"0-1\", host: [irqs]");
    assert_int_equal(apply(m), 0);
    assert_non_null(strstr(row(m, "services")->why, "no longer asks"));
    assert_int_equal(undo(m), 0);
    is(m, CG "/system.slice/hand.service/cpuset.cpus", "2-3");
    is(m, "/proc/irq/24/smp_affinity_list", "0-15");
}

static void the_report_is_short_for_people_and_whole_for_programs(void **state)
{
    struct machine *m = *state;
    char name[64];
    for (int i = 100; i < 400; i++) {
        snprintf(name, sizeof name, "mlx5_comp%d\x1b[1m", i);
        put_irq(m, i, name, "0-15", 0);
    }
    assert_int_equal(apply(m), 0);
    struct xc_text text = XC_TEXT_INIT, json = XC_TEXT_INIT;
    xc_host_report_text(&m->report, &text);
    xc_host_report_json(&m->report, &json);
    size_t lines = 0;
    for (char *c = text.data; c && *c; c++)
        lines += *c == '\n';
    assert_true(lines < 20);
    assert_non_null(strstr(text.data, "and 296 more"));
    assert_null(strchr(text.data, '\x1b'));
    assert_non_null(strstr(json.data, "399 mlx5_comp399"));
    xc_text_free(&text);
    xc_text_free(&json);
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(all_is_set_and_jobs_are_left_alone),
        test(undo_gives_everything_back),
        test(a_second_apply_changes_nothing),
        test(a_run_that_was_killed_is_finished_by_the_next_and_undone_exactly),
        test(a_run_with_another_policy_that_was_killed_is_undone_exactly),
        test(dry_writes_nothing_at_all),
        test(nothing_to_do_is_said),
        test(cpus_that_are_not_there_are_an_error),
        test(a_unit_that_the_site_has_pinned_keeps_its_cpus),
        test(a_slice_that_jobs_live_in_or_will_live_in_stays_open),
        test(a_drop_in_for_all_services_is_the_sites),
        test(what_somebody_has_changed_since_is_left),
        test(a_service_that_was_started_later_is_given_back_too),
        test(a_thread_that_had_bound_itself_is_bound_again_unless_it_is_another),
        test(interrupts_that_refuse_are_excused_and_full_ones_are_told),
        test(on_cgroup_v1_threads_are_bound_and_jobs_are_not),
        test(without_systemd_or_cgroup_v2_the_rest_is_done),
        test(jobs_without_a_cpuset_are_not_unbound),
        test(irqbalance_is_told_once),
        test(what_the_site_tells_irqbalance_is_kept),
        test(another_boots_record_is_not_looked_at),
        test(a_record_that_is_not_ours_stops_everything),
        test(what_was_first_there_stays_the_record),
        test(the_report_is_short_for_people_and_whole_for_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
