/* Does each check pass a good machine, fail a bad one, and hold its tongue where it cannot know? A
 * machine is a generated one with a table of files over it and a few edits of each case over that. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/check.h>

#include "../checks/good-host.h"

static char work[] = "/tmp/xcloud-test-check.XXXXXX";

/* ---- a machine with edits ------------------------------------------------------------------------- */

#define EDITS_MAX 12

struct overlay {
    struct xc_root *base;
    const struct host_file *files;
    size_t nfiles;
    const char *const *edits; /* "PATH=CONTENT", "-PATH" (gone, with all below) */
    const char *read[4096];   /* what was read, for the fuzz */
    size_t nread;
    size_t configs; /* configuration spaces of devices that were read to their end */
    bool keep;
};

static bool covers(const char *pattern, size_t length, const char *path)
{
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)length, pattern);
    return xc_glob(text, path);
}

static bool gone(const struct overlay *o, const char *path)
{
    for (size_t i = 0; o->edits && o->edits[i]; i++) {
        const char *edit = o->edits[i];
        char below[512];
        snprintf(below, sizeof below, "%s/*", edit + 1);
        if (edit[0] == '-' && (xc_glob(edit + 1, path) || xc_glob(below, path)))
            return true;
    }
    return false;
}

/* The content over the base: an edit's, else the table's; NULL: the base has the say. */
static const char *over(const struct overlay *o, const char *path)
{
    const char *content = NULL;
    for (size_t i = 0; o->edits && o->edits[i]; i++) {
        const char *equals = strchr(o->edits[i], '=');
        if (o->edits[i][0] == '/' && equals &&
            covers(o->edits[i], (size_t)(equals - o->edits[i]), path))
            content = equals + 1;
    }
    for (size_t i = 0; !content && i < o->nfiles; i++)
        if (xc_streq(o->files[i].path, path) ||
            (strchr(o->files[i].path, '*') && xc_glob(o->files[i].path, path)))
            content = o->files[i].content;
    return content;
}

static int overlay_read(void *self, const char *path, size_t limit, char **out, size_t *length)
{
    struct overlay *o = self;
    if (o->keep && o->nread < XC_COUNT(o->read))
        o->read[o->nread++] = strdup(path);
    o->configs += strstr(path, "/config") != NULL;
    if (gone(o, path))
        return -ENOENT;
    const char *content = over(o, path);
    if (!content) {
        char *text = xc_root_read(o->base, length, NULL, "%s", path);
        *out = text;
        return text ? 0 : -ENOENT;
    }
    (void)limit;
    *out = strdup(content);
    *length = strlen(content);
    return 0;
}

static ssize_t overlay_start(void *self, const char *path, void *buffer, size_t size)
{
    struct overlay *o = self;
    size_t length = 0;
    char *text = NULL;
    int rc = overlay_read(self, path, size, &text, &length);
    o->configs -= strstr(path, "/config") != NULL;
    if (rc == 0)
        memcpy(buffer, text, length < size ? length : size);
    free(text);
    return rc < 0 ? rc : (ssize_t)(length < size ? length : size);
}

/* The name below directory that path has next; its length into *length. */
static const char *next_name(const char *directory, const char *path, size_t *length)
{
    size_t skip = strlen(directory);
    if (strncmp(directory, path, skip) != 0 || path[skip] != '/' || strchr(path, '*'))
        return NULL;
    *length = strcspn(path + skip + 1, "/=");
    return path + skip + 1;
}

static void add_name(const struct overlay *o, const char *directory, const char *name,
                     size_t length, char **names, size_t *count)
{
    char full[600];
    snprintf(full, sizeof full, "%s/%.*s", directory, (int)length, name);
    if (gone(o, full))
        return;
    for (size_t i = 0; i < *count; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return;
    names[(*count)++] = strndup(name, length);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int overlay_list(void *self, const char *path, char ***out)
{
    struct overlay *o = self;
    size_t count = 0, length;
    const char *name;
    char **names = calloc(8192, sizeof *names);
    if (gone(o, path)) {
        free(names);
        return -ENOENT;
    }
    xc_autonames char **base = xc_root_list(o->base, "%s", path);
    for (char **one = base; one && *one; one++)
        add_name(o, path, *one, strlen(*one), names, &count);
    for (size_t i = 0; i < o->nfiles; i++)
        if ((name = next_name(path, o->files[i].path, &length)))
            add_name(o, path, name, length, names, &count);
    for (size_t i = 0; o->edits && o->edits[i]; i++)
        if (o->edits[i][0] == '/' && (name = next_name(path, o->edits[i], &length)))
            add_name(o, path, name, length, names, &count);
    if (count == 0 && !base) {
        free(names);
        return -ENOENT;
    }
    qsort(names, count, sizeof *names, by_name);
    *out = names;
    return 0;
}

static int overlay_canonical(void *self, const char *path, char **out)
{
    struct overlay *o = self;
    if (gone(o, path))
        return -ENOENT;
    const char *content = over(o, path);
    if (content) {
        *out = strdup(xc_starts(content, "->") ? content + 2 : path);
        return 0;
    }
    *out = xc_root_canonical(o->base, "%s", path);
    if (*out)
        return 0;
    xc_autonames char **names = NULL;
    if (overlay_list(self, path, &names) < 0)
        return -ENOENT;
    *out = strdup(path);
    return 0;
}

/* "untrusted" in a file's content makes it somebody else's. */
static int overlay_trusted(void *self, const char *path)
{
    const char *content = over(self, path);
    return content && strstr(content, "untrusted") ? -EPERM : 0;
}

static const struct xc_root_ops overlay_ops = {.read = overlay_read,
                                               .start = overlay_start,
                                               .list = overlay_list,
                                               .canonical = overlay_canonical,
                                               .trusted = overlay_trusted};

enum machine { H100, GB200, VM, LAPTOP, MACHINES };
static const struct {
    const char *name;
    const struct host_file *files;
    size_t nfiles;
} machines[] = {{"hgx-h100", good_h100, XC_COUNT(good_h100)},
                {"gb200", good_gb200, XC_COUNT(good_gb200)},
                {"flat-vm", NULL, 0},
                {"laptop", NULL, 0}};

static struct xc_root *bases[MACHINES];

/* The policy that the good host was made for. */
static const char h100_policy[] =
    "  expect: { gpus: { count: 8, model: H100-SXM5 }, numa_nodes: 2,\n"
    "            nics: { count: 8, rate: 400Gb/s, link: infiniband } }\n"
    "  cpus: { housekeeping: \"0-3,56-59\", host: [services, irqs, workqueues] }\n"
    "  nics: { compute: { pci: \"15b3:1021\", link: infiniband } }\n"
    "  topo: { file: /etc/nccl/topo.xml }\n"
    "  env: { NCCL_DEBUG: WARN, NCCL_IB_HCA: { set: forbid } }\n";

/* ---- one case ------------------------------------------------------------------------------------- */

struct row {
    const char *check;
    enum machine machine;
    const char
        *says; /* the policy's parameters of the check: "deepest: C6"; NULL: it is not named */
    const char *edits[EDITS_MAX + 1];
    enum xc_check_verdict verdict;
    const char *text;     /* in a line of that verdict */
    const char *policy;   /* instead of h100_policy; "" for none */
    const char *previous; /* "NAME VALUE\n…" of an earlier run, 100 s ago */
    bool job;             /* a job on GPU 2 */
};

struct outcome {
    struct xc_findings findings;
    struct xc_rules *rules;
    struct xc_node *node;
    struct xc_root *root;
    struct xc_check_live live;
    struct xc_check_state previous, next;
    struct overlay overlay;
};

static void clear(struct outcome *o)
{
    xc_findings_clear(&o->findings);
    xc_rules_free(o->rules);
    xc_node_free(o->node);
    xc_root_close(o->root);
    xc_check_live_clear(&o->live);
    xc_check_state_clear(&o->previous);
    xc_check_state_clear(&o->next);
    for (size_t i = 0; i < o->overlay.nread; i++)
        free((char *)o->overlay.read[i]);
}

static struct xc_rules *rules_of(const struct row *row)
{
    char text[4096];
    struct xc_policy *policy = NULL;
    struct xc_rules *rules = NULL;
    struct xc_error error = {0};
    struct xc_who who = {.node = "gpu001"};
    const char *more = row->policy ? row->policy : row->machine == H100 ? h100_policy : "";
    bool empty = !*more && !row->says;
    snprintf(text, sizeof text, "version: 1\n%s%s", empty ? "" : "defaults:\n", more);
    if (row->says)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "  checks: { %s: { %s%son_fail: warn } }\n", row->check, row->says,
                 *row->says ? ", " : "");
    if (xc_policy_parse(text, strlen(text), "row", &policy, &error) < 0 ||
        xc_policy_resolve(policy, &who, NULL, NULL, &rules, &error) < 0 ||
        xc_check_validate(rules, NULL, &error) < 0)
        fail_msg("%s: %s\n%s", row->check, error.message, text);
    xc_policy_free(policy);
    return rules;
}

/* What a live machine's devices and probes would say: files of the machine. */
static void probe(struct outcome *o)
{
    struct xc_check_input input = {.root = o->root, .node = o->node, .rules = o->rules};
    static const char *const all[] = {"cpu", "gpu", "nic", "topo", "exec", "inside", NULL};
    xc_check_live_clear(&o->live);
    xc_check_live_read(o->root, &o->live);
    xc_check_live_probe_only(&input, all, 1000, &o->live);
}

static void open_row(const struct row *row, struct outcome *o)
{
    struct xc_error error = {0};
    struct xc_slurm_node slurm = {0};
    o->overlay = (struct overlay){.base = bases[row->machine],
                                  .files = machines[row->machine].files,
                                  .nfiles = machines[row->machine].nfiles,
                                  .edits = row->edits};
    if (xc_root_new(&overlay_ops, &o->overlay, "overlay", &o->root, &error) < 0)
        fail_msg("%s", error.message);
    bool known = xc_slurm_conf_node(o->root, NULL, "gpu001", &slurm, NULL) == 0 && slurm.found;
    struct xc_node_options options = {.slurm = known ? &slurm : NULL};
    if (xc_node_read(o->root, &options, &o->node, &error) < 0 &&
        xc_node_read(o->root, NULL, &o->node, &error) < 0) /* a reservation that does not fit */
        fail_msg("%s: %s: %s", row->check, error.where, error.message);
    xc_slurm_node_clear(&slurm);
    o->rules = rules_of(row);
    probe(o);
    if (row->previous) {
        char text[4096];
        snprintf(text, sizeof text, "xcloud-counters 1\nboot %s\nat 1000000\n%s", o->node->boot_id,
                 row->previous);
        if (xc_check_state_parse(text, "row", &o->previous, &error) < 0)
            fail_msg("%s: %s", row->check, error.message);
    }
}

static void run_only(const struct row *row, struct outcome *o, const char *only)
{
    static const int gpu_two[] = {2};
    const char *names[] = {only, NULL};
    struct xc_check_job job = {.id = 7, .gpus = gpu_two, .ngpus = 1};
    struct xc_check_input input = {.root = o->root,
                                   .node = o->node,
                                   .rules = o->rules,
                                   .node_name = "gpu001",
                                   .at = XC_AT_CLI,
                                   .live = &o->live,
                                   .previous = &o->previous,
                                   .next = &o->next,
                                   .job = row->job ? &job : NULL};
    struct xc_error error = {0};
    o->next.at_us = 101000000;
    if (xc_check_run(&input, only ? names : NULL, &o->findings, &error) < 0)
        fail_msg("%s", error.message);
}

static enum xc_check_verdict worst(const struct xc_findings *findings)
{
    enum xc_check_verdict verdict = XC_CHECK_NA;
    for (size_t i = 0; i < findings->count; i++)
        if (findings->list[i].verdict > verdict)
            verdict = findings->list[i].verdict;
    return verdict;
}

static bool says(const struct xc_findings *findings, enum xc_check_verdict verdict,
                 const char *text)
{
    for (size_t i = 0; i < findings->count; i++) {
        xc_autotext struct xc_text line = XC_TEXT_INIT;
        xc_finding_line(&findings->list[i], &line);
        if (findings->list[i].verdict == verdict && line.data && strstr(line.data, text))
            return true;
    }
    return false;
}

/* The verdicts that each check of the table has come to, a bit each: noted while the rows run. */
static unsigned verdicts[256];

static unsigned *seen_slot(const struct xc_check *check)
{
    const struct xc_check *all[XC_COUNT(verdicts)];
    size_t count = xc_check_all(all, XC_COUNT(all));
    for (size_t i = 0; i < count; i++)
        if (all[i] == check)
            return &verdicts[i];
    fail_msg("%s is not in the table", check->id);
    return NULL;
}

static unsigned seen_of(const char *id)
{
    return *seen_slot(xc_check_find(id));
}

static unsigned check_rows(const struct row *rows, size_t count)
{
    unsigned failed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        struct outcome *o = calloc(1, sizeof *o);
        open_row(row, o);
        run_only(row, o, row->check);
        *seen_slot(xc_check_find(row->check)) |= 1u << worst(&o->findings);
        if (worst(&o->findings) != row->verdict || !says(&o->findings, row->verdict, row->text)) {
            xc_autotext struct xc_text text = XC_TEXT_INIT;
            xc_findings_text(&o->findings, true, &text);
            print_error("%s, row %zu (%s): wanted %s \"%s\"\n%s", row->check, i,
                        row->edits[0] ? row->edits[0] : "", xc_check_verdict_name(row->verdict),
                        row->text, text.data);
            failed++;
        }
        clear(o);
        free(o);
    }
    return failed;
}

#define PASS    XC_CHECK_PASS
#define WARN    XC_CHECK_WARN
#define FAIL    XC_CHECK_FAIL
#define UNKNOWN XC_CHECK_UNKNOWN
#define NA      XC_CHECK_NA
#define C       "/sys/devices/system/cpu"

#include "../checks/rows.h"
#include "../checks/public-cases.h"

static void every_row_has_its_verdict(void **state)
{
    (void)state;
    assert_int_equal(check_rows(rows, XC_COUNT(rows)), 0);
}

/* The checks that have a verdict for every machine. */
static const struct {
    const char *check, *why;
} never_na[] = {
    {"cpu.count", "every machine has CPUs, and its kernel counts them"},
    {"mem.total", "every machine has memory"},
    {"numa.nodes", "a kernel without NUMA is one node"},
    {"host.cmdline", "every kernel was started with one; isolcpus= is looked for unasked"},
    {"host.environment", "every machine is bare, virtual or a pod"},
    {"self.state", "the programs keep counters on any machine that they run on"},
};

static bool is_never_na(const char *id)
{
    for (size_t i = 0; i < XC_COUNT(never_na); i++)
        if (xc_streq(never_na[i].check, id))
            return true;
    return false;
}

/* Of what the rows and the public reports have really come to. */
static void every_check_was_seen_to_pass_to_fail_and_not_to_apply(void **state)
{
    (void)state;
    const struct xc_check *all[256];
    size_t count = xc_check_all(all, XC_COUNT(all));
    unsigned missing = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned was = seen_of(all[i]->id);
        bool bad = was & (1u << WARN | 1u << FAIL), na = was & 1u << NA;
        const char *lacks = !(was & 1u << PASS) ? "passes"
                            : !bad              ? "fails or warns"
                            : na == is_never_na(all[i]->id)
                                ? na ? "is never n/a, and was" : "is n/a"
                                : NULL;
        if (lacks)
            print_error("%s: no machine on which it %s\n", all[i]->id, lacks);
        missing += lacks != NULL;
    }
    for (size_t i = 0; i < XC_COUNT(never_na); i++)
        assert_non_null(xc_check_find(never_na[i].check));
    assert_int_equal(missing, 0);
}

static void ids_and_codes_are_unique_and_well_formed(void **state)
{
    (void)state;
    const struct xc_check *all[256];
    size_t count = xc_check_all(all, XC_COUNT(all));
    assert_true(count > 40 && count < 128);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(xc_check_find(all[i]->id), all[i]);
        assert_int_equal(strlen(all[i]->code), 5);
        assert_true(all[i]->at != 0 && all[i]->what && all[i]->run);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all[i]->code, all[k]->code);
    }
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static void a_good_machine_has_no_failure_and_no_warning(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {.check = "all", .machine = H100};
    open_row(&row, o);
    run_only(&row, o, NULL);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_findings_text(&o->findings, false, &text);
    if (worst(&o->findings) > XC_CHECK_UNKNOWN)
        fail_msg("%s", text.data);
    assert_true(xc_findings_count(&o->findings, PASS) >= 35);
    clear(o);
    free(o);
}

static bool is_clean(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '"' || *c == '`' || *c == '\\')
            return false;
    return true;
}

static const char *const garbage[] = {
    "",
    "\n",
    "-1",
    "99999999999999999999",
    "0x",
    "\xff\xfe\"'`\\\x01\x7f;$(reboot)\n",
    "4: ACTIVE\n",
    "[",
    "]",
    "[]",
    "=",
    "Include /etc/slurm/slurm.conf\n",
    "include plugstack.conf\n",
    "cpu 1 2 3\n",
    "0-4000000000",
    "MWAIT ",
    "(PCI:",
    "6,9,9,-;NVRM: Xid (PCI:",
    "6,9,9,-;NVRM: Xid (PCI:0): x\n",
    "NVRM version: 1.2",
    "400 Gb/sec (",
    "400 Gb/sec (9999999999999X NDR)",
    "nan",
    "\\\n\\\n\\",
};

/* One CPU's files stand for all. */
static bool is_of_another_cpu(const char *path)
{
    const char *cpu = strstr(path, "/cpu/cpu");
    return cpu && isdigit((unsigned char)cpu[8]) && !(cpu[8] == '0' && cpu[9] == '/');
}

/* Every file that a check reads, with everything in it. */
static void garbage_in_any_file_gives_a_verdict(void **state)
{
    (void)state;
    static const enum machine tried[] = {H100, GB200};
    size_t cases = 0;
    for (size_t m = 0; m < XC_COUNT(tried); m++) {
        const struct xc_check *all[256];
        size_t count = xc_check_all(all, XC_COUNT(all));
        struct row row = {.check = "all",
                          .machine = tried[m],
                          .job = true,
                          .previous = "steal.ticks 0\n",
                          .policy = h100_policy};
        struct outcome *o = calloc(1, sizeof *o);
        open_row(&row, o);
        uint64_t seed = 20261130;
        for (size_t i = 0; i < count; i++) {
            o->overlay.keep = true;
            o->overlay.edits = NULL;
            probe(o);
            run_only(&row, o, all[i]->id);
            o->overlay.keep = false;
            for (size_t r = 0; r < o->overlay.nread; r++) {
                const char *path = o->overlay.read[r];
                for (size_t g = 0; g < 4 && !is_of_another_cpu(path); g++) {
                    char edit[1024];
                    seed = seed * 6364136223846793005u + 1442695040888963407u;
                    snprintf(edit, sizeof edit, "%s=%s", path,
                             garbage[(seed >> 33) % XC_COUNT(garbage)]);
                    const char *edits[] = {edit, NULL};
                    o->overlay.edits = edits;
                    xc_findings_clear(&o->findings);
                    xc_check_state_clear(&o->next);
                    probe(o);
                    run_only(&row, o, all[i]->id);
                    cases++;
                    assert_true(o->findings.count > 0);
                    for (size_t f = 0; f < o->findings.count; f++) {
                        char reason[80];
                        assert_true(is_clean(o->findings.list[f].device));
                        assert_true(is_clean(o->findings.list[f].actual));
                        xc_finding_reason(&o->findings.list[f], reason, sizeof reason);
                        assert_true(strlen(reason) < sizeof reason && is_clean(reason));
                        assert_non_null(strstr(reason, all[i]->code));
                    }
                }
                free((char *)path);
            }
            o->overlay.nread = 0;
        }
        clear(o);
        free(o);
    }
    assert_true(cases > 500);
}

static void texts_for_programs_are_whole(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {
        .check = "all",
        .machine = H100,
        .edits = {"/proc/sys/kernel/numa_balancing=1", "/sys/kernel/irq/24/actions=x\"y\\z"}};
    open_row(&row, o);
    run_only(&row, o, NULL);
    struct xc_check_about about = {.node = "gpu001", .policy_hash = "ab\"c", .time = 5};
    xc_autotext struct xc_text prometheus = XC_TEXT_INIT, json = XC_TEXT_INIT, list = XC_TEXT_INIT;
    xc_findings_prometheus(&o->findings, &about, &prometheus);
    xc_findings_json(&o->findings, &about, &json);
    xc_check_list(true, &list);
    assert_non_null(strstr(prometheus.data,
                           "xcloud_check_status{check=\"numa.balancing\",code=\"NUM02\","
                           "on_fail=\"warn\",device=\"\"} 1\n"));
    assert_null(strstr(prometheus.data, "ab\"c"));
    assert_non_null(strstr(json.data, "\"check\": \"numa.balancing\""));
    assert_non_null(strstr(list.data, "\"id\": \"cpu.cstate\""));
    clear(o);
    free(o);
}

/* ---- the policy ------------------------------------------------------------------------------------- */

static void validation(const char *checks, const char *message)
{
    char text[512];
    struct xc_policy *policy = NULL;
    struct xc_rules *rules = NULL;
    struct xc_error error = {0};
    struct xc_who who = {0};
    snprintf(text, sizeof text, "version: 1\ndefaults:\n  checks:\n    %s\n", checks);
    assert_int_equal(xc_policy_parse(text, strlen(text), "p", &policy, &error), 0);
    assert_int_equal(xc_policy_resolve(policy, &who, NULL, NULL, &rules, &error), 0);
    int rc = xc_check_validate(rules, "p.yaml", &error);
    if (message) {
        char line[sizeof error];
        assert_int_equal(rc, -1);
        xc_error_text(&error, line, sizeof line);
        if (!strstr(line, message))
            fail_msg("\"%s\" does not say \"%s\"", line, message);
    } else if (rc < 0) {
        fail_msg("%s: %s", checks, error.message);
    }
    xc_rules_free(rules);
    xc_policy_free(policy);
}

static void the_policy_names_checks_and_parameters_that_are_there(void **state)
{
    (void)state;
    validation("cpu.cstate: { deepest: C6, limit: c1e }", NULL);
    validation("cpu.cstate: drain", NULL);
    validation("mem.total: { total: 2048, tolerance: 3% }", NULL);
    validation("cpu.turbo: { turbo: yes }", NULL);
    validation("cpu.cstat: drain",
               "p.yaml:4: there is no check \"cpu.cstat\"; did you mean \"cpu.cstate\"?");
    validation("no.such: drain", "there is no check \"no.such\"; xcloud check --list");
    validation("cpu.cstate: { depest: C6 }", "p.yaml:4: cpu.cstate has no \"depest\"; did you mean "
                                             "\"deepest\"?; it has on_fail, deepest, limit");
    validation("cpu.cstate: { deepest: C99 }", "deepest: \"C99\"; expected auto,C1,C1E");
    validation("mem.total: { total: 2T }", "total: \"2T\"; expected a number");
    validation("cpu.turbo: { turbo: maybe }", "expected on or off");
    validation("exec.disks: { path: /opt/disks, args: \"-a,5\", seconds: 2 }", NULL);
    validation("exec.disks: drain", "p.yaml:4: exec.disks needs path:, the absolute path");
    validation("exec.disks: { path: disks }", "exec.disks needs path:, the absolute path");
    validation("exec.disks: { path: /x, second: 2 }", "did you mean \"seconds\"?");
}

/* ---- counters --------------------------------------------------------------------------------------- */

static void counters_come_back_from_their_file(void **state)
{
    (void)state;
    struct xc_check_state out = {.boot_id = "abc", .at_us = 77}, in = {0};
    struct xc_error error = {0};
    char path[128];
    int64_t value = 0;
    snprintf(path, sizeof path, "%s/counters", work);
    xc_check_state_set(&out, 9, "z.%d", 1);
    xc_check_state_set(&out, -4, "a");
    assert_int_equal(xc_check_state_write(&out, path, &error), 0);
    assert_int_equal(xc_check_state_read(path, &in, &error), 0);
    assert_string_equal(in.boot_id, "abc");
    assert_int_equal(in.at_us, 77);
    assert_true(xc_check_state_get(&in, "z.1", &value) && value == 9);
    assert_true(xc_check_state_get(&in, "a", &value) && value == -4);
    assert_false(xc_check_state_get(&in, "b", &value));
    xc_check_state_clear(&out);
    xc_check_state_clear(&in);
    assert_int_equal(xc_check_state_parse("something else", "f", &in, &error), -1);
    assert_int_equal(xc_check_state_parse("xcloud-counters 1\nx y\n", "f", &in, &error), -1);
    assert_int_equal(xc_check_state_parse("xcloud-counters 1\nx\n", "f", &in, &error), -1);
    assert_int_equal(xc_check_state_read("/nowhere/counters", &in, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
}

static void another_boots_counters_are_not_looked_at(void **state)
{
    (void)state;
    const struct row row = {
        .check = "cpu.throttle", .machine = H100, .previous = "boot other\nthrottle.core.0 0\n"};
    struct outcome *o = calloc(1, sizeof *o);
    open_row(&row, o);
    run_only(&row, o, row.check);
    assert_true(says(&o->findings, UNKNOWN, "an earlier run of this boot"));
    clear(o);
    free(o);
}

static void what_the_policy_ignores_does_not_run(void **state)
{
    (void)state;
    const struct row row = {.check = "numa.balancing",
                            .machine = H100,
                            .policy = "  checks: { numa.balancing: ignore }\n",
                            .edits = {"/proc/sys/kernel/numa_balancing=1"}};
    struct outcome *o = calloc(1, sizeof *o);
    open_row(&row, o);
    run_only(&row, o, NULL);
    assert_false(says(&o->findings, WARN, "numa.balancing") ||
                 says(&o->findings, FAIL, "numa.balancing"));
    xc_findings_clear(&o->findings);
    run_only(&row, o, "numa");
    assert_true(says(&o->findings, FAIL, "numa.balancing"));
    clear(o);
    free(o);
}

static void a_prolog_runs_what_is_quick_and_nothing_when_the_job_skips_checks(void **state)
{
    (void)state;
    const struct row row = {.check = "all", .machine = H100};
    struct outcome *o = calloc(1, sizeof *o);
    struct xc_error error = {0};
    open_row(&row, o);
    struct xc_check_input input = {
        .root = o->root, .node = o->node, .rules = o->rules, .live = &o->live, .at = XC_AT_PROLOG};
    assert_int_equal(xc_check_run(&input, NULL, &o->findings, &error), 0);
    assert_true(o->findings.count >= 15);
    for (size_t i = 0; i < o->findings.count; i++) {
        const struct xc_check *check = o->findings.list[i].check;
        assert_true(check->at & XC_AT_PROLOG);
        /* a scan needs a job here: there is none */
        assert_true(check->cost != XC_COST_SCAN || o->findings.list[i].verdict == NA);
    }
    xc_findings_clear(&o->findings);
    o->rules->checks_skip = true;
    assert_int_equal(xc_check_run(&input, NULL, &o->findings, &error), 0);
    assert_int_equal(o->findings.count, 0);
    input.at = XC_AT_HEALTH; /* not the prolog's business */
    assert_int_equal(xc_check_run(&input, NULL, &o->findings, &error), 0);
    assert_true(o->findings.count > 0);
    clear(o);
    free(o);
}

/* In mount namespaces: this machine's /dev/full as GPU 2, and files that only look like it. */
static void in_private_dev(const char *name, dev_t device)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/dev", "tmpfs", 0, NULL) < 0 ||
        mknod(name, (device ? S_IFCHR : S_IFREG) | 0666, device) < 0)
        _exit(7);
}

/* A process of a user's that has a file open, by a name that is right or wrong. */
static pid_t holder(const char *name, dev_t device, int flags)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        in_private_dev(name, device);
        if (open(name, flags) < 0 || write(ready[1], "r", 1) < 0)
            _exit(7);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static bool somebody_has_gpu_two(void)
{
    static int two[] = {2};
    struct xc_check_job job = {.id = 7, .gpus = two, .ngpus = 1};
    const struct row row = {.check = "gpu.leftovers", .machine = H100};
    static const char *const only[] = {"gpu.leftovers", NULL};
    struct xc_findings findings = {0};
    struct xc_root *live = NULL;
    struct outcome o;
    open_row(&row, &o);
    if (xc_root_open_dir("/", &live, NULL) < 0)
        _exit(8);
    struct xc_check_input input = {
        .root = live, .node = o.node, .rules = o.rules, .at = XC_AT_PROLOG, .job = &job};
    if (xc_check_run(&input, only, &findings, NULL) < 0)
        _exit(8);
    bool has = findings.count == 1 && findings.list[0].verdict == XC_CHECK_FAIL;
    xc_findings_clear(&findings);
    xc_root_close(live);
    clear(&o);
    return has;
}

static bool judged_in_private_dev(dev_t gpu)
{
    int status = 0;
    pid_t judge = fork();
    if (judge == 0) {
        in_private_dev("/dev/nvidia2", gpu);
        _exit(somebody_has_gpu_two());
    }
    waitpid(judge, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status);
}

static void a_gpu_is_open_by_its_device_number_whatever_a_process_calls_it(void **state)
{
    (void)state;
    const dev_t gpu = makedev(1, 7);
    if (geteuid() != 0)
        skip();
    const struct {
        const char *name;
        dev_t device;
        int flags;
        bool has;
    } cases[] = {{"/dev/nvidia2", gpu, O_RDONLY, true},
                 {"/dev/other", gpu, O_RDONLY, true},
                 {"/dev/nvidia2", gpu, O_PATH, false},
                 {"/dev/nvidia2", 0, O_RDONLY, false},
                 {"/dev/nvidia2", makedev(1, 3), O_RDONLY, false}};
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        pid_t pid = holder(cases[i].name, cases[i].device, cases[i].flags);
        bool has = judged_in_private_dev(gpu);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (has != cases[i].has)
            fail_msg("case %zu: %d", i, has);
    }
}

/* A cgroup as Slurm makes them, of the kind that this kernel has; false: it cannot be made here. */
static bool make_job_cgroup(unsigned job, char *path, size_t size)
{
    char command[400];
    bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    snprintf(path, size,
             v2 ? "/sys/fs/cgroup/xcloud-test-%d/n_slurmstepd.scope/job_%u"
                : "/sys/fs/cgroup/freezer/xcloud-test-%d/uid_1000/job_%u",
             (int)getpid(), job);
    snprintf(command, sizeof command, "mkdir -p %s 2>/dev/null", path);
    return system(command) == 0;
}

static void put_into_cgroup(pid_t pid, const char *path)
{
    char file[300], text[16];
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    int length = snprintf(text, sizeof text, "%d", (int)pid);
    int fd = open(file, O_WRONLY);
    assert_int_equal(write(fd, text, (size_t)length), length);
    close(fd);
}

/* What calls itself the daemon of a job's step, as root or as a user of a setuid program. */
static pid_t daemon_of(unsigned job, uid_t user)
{
    char path[200], title[64];
    snprintf(path, sizeof path, "%s/slurmstepd", work);
    snprintf(title, sizeof title, "slurmstepd: [%u.0]", job);
    unlink(path);
    assert_int_equal(symlink("/bin/sleep", path), 0);
    int started[2];
    char byte;
    assert_int_equal(pipe2(started, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setresuid(user, 0, 0) == 0)
            execl(path, title, "60", NULL);
        _exit(7);
    }
    close(started[1]);
    assert_int_equal(read(started[0], &byte, 1), 0); /* it has been replaced */
    close(started[0]);
    return pid;
}

static void a_job_that_runs_is_known_by_its_cgroup_and_its_daemon(void **state)
{
    (void)state;
    const dev_t gpu = makedev(1, 7);
    char cgroup[200], command[300];
    if (geteuid() != 0)
        skip();
    const struct {
        unsigned job, daemon; /* 0: none */
        uid_t user;
        bool has;
    } cases[] = {
        {8, 8, 0, false}, {8, 0, 0, true}, {8, 9, 0, true}, {8, 8, 1000, true}, {7, 7, 0, true}};
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        if (!make_job_cgroup(cases[i].job, cgroup, sizeof cgroup))
            skip();
        pid_t pid = holder("/dev/nvidia2", gpu, O_RDONLY);
        put_into_cgroup(pid, cgroup);
        pid_t daemon = cases[i].daemon ? daemon_of(cases[i].daemon, cases[i].user) : 0;
        bool has = judged_in_private_dev(gpu);
        for (size_t k = 0; k < 2; k++) {
            pid_t one = k ? daemon : pid;
            if (one) {
                kill(one, SIGKILL);
                waitpid(one, NULL, 0);
            }
        }
        snprintf(command, sizeof command,
                 "cd /sys/fs/cgroup && find . -depth -type d -path '*xcloud-test-%d*' "
                 "-exec rmdir {} +",
                 (int)getpid());
        assert_int_equal(system(command), 0);
        if (has != cases[i].has)
            fail_msg("case %zu: %d", i, has);
    }
}

/* Slurm 26.05: the path has no number; the daemon in the same cgroup has. */
#define SLUID_STEP "/system.slice/n1_slurmstepd.scope/s1A2B3C4D5E/step_0/"
#define SLUID_ROW(daemon, daemons_path, uids, path)                                                \
    {                                                                                              \
        .check = "gpu.leftovers", .machine = H100, .job = true, .edits = {                         \
            "/proc/777/comm=train",                                                                \
            OPEN("777", "2"),                                                                      \
            STEPD("700", daemon, uids),                                                            \
            IN_CGROUP("700", daemons_path),                                                        \
            IN_CGROUP("777", path)                                                                 \
        }                                                                                          \
    }

static void a_job_that_runs_is_known_by_its_sluid(void **state)
{
    (void)state;
    static const struct {
        struct row row;
        enum xc_check_verdict verdict;
    } cases[] = {
        {SLUID_ROW("8", SLUID_STEP "slurm", "0 0 0 0", SLUID_STEP "user/task_0"), PASS},
        /* this job's own, one that has ended, a daemon that is none, a name that is the user's */
        {SLUID_ROW("7", SLUID_STEP "slurm", "0 0 0 0", SLUID_STEP "user/task_0"), FAIL},
        {SLUID_ROW("8", "/system.slice/n1_slurmstepd.scope/s1A2B3C4D5F/step_0/slurm", "0 0 0 0",
                   SLUID_STEP "user/task_0"),
         FAIL},
        {SLUID_ROW("8", SLUID_STEP "slurm", "1000 0 0 0", SLUID_STEP "user/task_0"), FAIL},
        {SLUID_ROW("8", SLUID_STEP "slurm", "0 0 0 0",
                   "/user.slice/user-1000.slice/slurmstepd.scope/s1A2B3C4D5E/x"),
         FAIL},
        {SLUID_ROW("8", "/system.slice/slurmstepd.scope/system", "0 0 0 0",
                   "/system.slice/slurmstepd.scope/system"),
         FAIL},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct outcome *o = calloc(1, sizeof *o);
        open_row(&cases[i].row, o);
        run_only(&cases[i].row, o, "gpu.leftovers");
        if (o->findings.count != 1 || o->findings.list[0].verdict != cases[i].verdict)
            fail_msg("case %zu: %u findings", i, (unsigned)o->findings.count);
        clear(o);
        free(o);
    }
}

/* One check, as often as the policy names a program; each with its own consequence. */
static void every_program_of_the_site_has_its_finding(void **state)
{
    (void)state;
    const struct row row = {
        .check = "exec.disks",
        .machine = H100,
        .policy =
            "  checks: { exec.disks: { path: /opt/disks, on_fail: drain }, exec.fans: { path: "
            "/opt/fans }, exec.off: { path: /opt/off, on_fail: ignore } }\n",
        .edits = {PROBE "/exec=exec fans exit 0\nexec disks exit 1\nexec off exit 1\nend\n"}};
    struct outcome *o = calloc(1, sizeof *o);
    open_row(&row, o);
    run_only(&row, o, NULL);
    size_t seen = 0;
    for (size_t i = 0; i < o->findings.count; i++) {
        const struct xc_finding *f = &o->findings.list[i];
        if (!xc_streq(f->check->id, "exec.program"))
            continue;
        bool disks = xc_streq(f->device, "disks");
        assert_true(disks || xc_streq(f->device, "fans"));
        assert_int_equal(f->verdict, disks ? FAIL : PASS);
        assert_int_equal(f->on_fail, disks ? XC_FAIL_DRAIN : XC_FAIL_WARN);
        seen++;
    }
    assert_int_equal(seen, 2);
    xc_findings_clear(&o->findings);
    run_only(&row, o, "exec.fans");
    assert_int_equal(o->findings.count, 1);
    assert_string_equal(o->findings.list[0].device, "fans");
    clear(o);
    free(o);
}

/* A prolog knows the machine from a snapshot of the boot. */
static void what_went_away_since_the_description_is_missed(void **state)
{
    (void)state;
    static const char *const edits[] = {"-/*/0000:18:00.0", "-/sys/class/infiniband/mlx5_3", NULL};
    const struct row row = {.check = "gpu.count", .machine = H100};
    struct outcome *o = calloc(1, sizeof *o);
    open_row(&row, o);
    o->overlay.edits = edits;
    run_only(&row, o, "gpu.count");
    assert_true(says(&o->findings, FAIL, "0000:18:00.0: it is gone from PCI"));
    run_only(&row, o, "nic");
    assert_true(says(&o->findings, FAIL, "7 compute NICs; want 8"));
    assert_true(says(&o->findings, FAIL, "mlx5_3: the device is gone"));
    clear(o);
    free(o);
}

/* ---- a captured machine is the same machine ------------------------------------------------------------ */

static void write_file(const char *directory, const char *path, const char *content)
{
    char full[700];
    struct xc_error error = {0};
    snprintf(full, sizeof full, "%s%s", directory, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    if (xc_make_dirs(full, 0755, &error) < 0)
        fail_msg("%s: %s", full, error.message);
    *slash = '/';
    unlink(full);
    FILE *stream = fopen(full, "w");
    assert_non_null(stream);
    fputs(content, stream);
    fclose(stream);
}

/* Two of the machine's CPUs stand for all in the files of the table with cpu*. */
static void write_host(const char *directory, const struct xc_node *node)
{
    for (size_t i = 0; i < XC_COUNT(good_h100); i++) {
        const char *star = strstr(good_h100[i].path, "/cpu*/");
        for (size_t c = 0; star && c < node->ncpus; c++) {
            char path[300];
            snprintf(path, sizeof path, "%.*s/cpu%d/%s", (int)(star - good_h100[i].path),
                     good_h100[i].path, node->cpus[c].os, star + 6);
            write_file(directory, path, good_h100[i].content);
        }
        if (!star)
            write_file(directory, good_h100[i].path, good_h100[i].content);
    }
}

static void run_machine(const char *path, struct outcome *o)
{
    struct xc_error error = {0};
    const struct row row = {.check = "all", .machine = H100};
    struct xc_slurm_node slurm = {0};
    if (xc_machine_open(path, XC_MACHINE_LIMIT, &o->root, &error) < 0)
        fail_msg("%s: %s", path, error.message);
    bool known = xc_slurm_conf_node(o->root, NULL, "gpu001", &slurm, NULL) == 0 && slurm.found;
    struct xc_node_options options = {.slurm = known ? &slurm : NULL};
    assert_int_equal(xc_node_read(o->root, &options, &o->node, &error), 0);
    xc_slurm_node_clear(&slurm);
    xc_check_live_read(o->root, &o->live);
    o->rules = rules_of(&row);
    run_only(&row, o, NULL);
}

static void a_captured_machine_gets_the_same_verdicts(void **state)
{
    (void)state;
    char directory[128], archive[128], command[400];
    struct outcome *own = calloc(1, sizeof *own), *packed = calloc(1, sizeof *packed);
    struct xc_error error = {0};
    snprintf(directory, sizeof directory, "%s/dir", work);
    snprintf(archive, sizeof archive, "%s/packed.tar.xz", work);
    snprintf(command, sizeof command, "python3 %s/tests/machines/make-machine hgx-h100 %s",
             XC_SRCDIR, directory);
    assert_int_equal(system(command), 0);
    const struct row row = {.check = "all", .machine = H100};
    struct outcome *shape = calloc(1, sizeof *shape);
    open_row(&row, shape);
    write_host(directory, shape->node);
    clear(shape);
    free(shape);
    run_machine(directory, own);
    FILE *stream = fopen(archive, "w");
    assert_int_equal(xc_machine_capture(own->root, fileno(stream), &error), 0);
    fclose(stream);
    run_machine(archive, packed);
    /* the kernel's log, processes, Slurm's words about nodes and what NICs' firmware must be asked
     * for stay at home */
    static const char *const home[] = {"gpu.xid", "host.strays", "slurm.cpuspec", "nic.flaps",
                                       "nic.optics"};
    unsigned differences = 0;
    assert_int_equal(own->findings.count, packed->findings.count);
    for (size_t i = 0; i < own->findings.count; i++) {
        const struct xc_finding *a = &own->findings.list[i], *b = &packed->findings.list[i];
        bool excused = false;
        for (size_t h = 0; h < XC_COUNT(home); h++)
            excused |= xc_streq(a->check->id, home[h]);
        if (a->check != b->check || (a->verdict != b->verdict && !excused)) {
            print_error("%s: %s, captured: %s %s\n", a->check->id,
                        xc_check_verdict_name(a->verdict), xc_check_verdict_name(b->verdict),
                        b->actual);
            differences++;
        }
    }
    assert_int_equal(differences, 0);
    clear(own);
    clear(packed);
    free(own);
    free(packed);
}

/* ---------------------------------------------------------------------------------------------------- */

static int make_machines(void **state)
{
    (void)state;
    if (!mkdtemp(work))
        return -1;
    for (size_t i = 0; i < MACHINES; i++) {
        char command[400], path[128];
        struct xc_error error = {0};
        snprintf(path, sizeof path, "%s/%s.tar", work, machines[i].name);
        snprintf(command, sizeof command, "python3 %s/tests/machines/make-machine %s --tar %s",
                 XC_SRCDIR, machines[i].name, path);
        if (system(command) != 0 || xc_machine_open(path, XC_MACHINE_LIMIT, &bases[i], &error) < 0)
            return -1;
    }
    return 0;
}

static int remove_machines(void **state)
{
    (void)state;
    char command[128];
    for (size_t i = 0; i < MACHINES; i++)
        xc_root_close(bases[i]);
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_its_verdict),
        cmocka_unit_test(nvsentinel_155_a_gpu_falls_off_the_bus_without_an_xid),
        cmocka_unit_test(nvsentinel_1748_thousands_of_xid_45_are_no_fault_of_the_node),
        cmocka_unit_test(azurehpc_648_an_xid_that_was_seen_does_not_drain_again),
        cmocka_unit_test(soperator_seven_gpus_are_no_other_kind_of_node),
        cmocka_unit_test(node_exporter_966_virtual_functions_have_no_counters),
        cmocka_unit_test(nvtop_6_an_idle_link_is_slow_and_not_narrow),
        cmocka_unit_test(nccl_1676_peermem_must_be_loaded_or_the_driver_open),
        cmocka_unit_test(nccl_1017_a_virtual_machine_needs_a_topology_file),
        cmocka_unit_test(tuned_808_a_profiles_latency_is_no_proof),
        cmocka_unit_test(max_cstate_0_hands_over_to_acpi_idle_which_reaches_c6),
        cmocka_unit_test(systemd_23748_init_scope_and_pid_1_are_left_out),
        cmocka_unit_test(nv_kernels_184_strict_translation_costs_most_of_the_io),
        cmocka_unit_test(vllm_39361_gpu_memory_is_no_node_of_tasks),
        cmocka_unit_test(deepep_624_numa_balancing_stalls),
        cmocka_unit_test(nhc_95_a_stall_is_no_fault),
        cmocka_unit_test(nhc_139_a_program_that_cannot_tell_changes_nothing),
        cmocka_unit_test(nhc_147_scontrol_is_missed_before_it_is_needed),
        cmocka_unit_test(nhc_161_no_check_starts_a_process),
        cmocka_unit_test(parallelcluster_6777_a_prolog_runs_neither_dcgm_nor_programs),
        cmocka_unit_test(dcgm_263_a_gpu_that_needs_a_reset_is_not_healthy_because_dcgm_says_so),
        cmocka_unit_test(gpu_monitoring_tools_46_a_gpu_that_hangs_its_driver_is_named),
        cmocka_unit_test(nvsentinel_1481_a_card_without_a_bridge_has_no_nvlink_down),
        cmocka_unit_test(node_exporter_2769_other_drivers_have_other_counters),
        cmocka_unit_test(open_gpu_kernel_modules_1010_a_link_that_stays_slow_can_be_made_to_fail),
        cmocka_unit_test(azurehpc_152_a_tool_that_fails_is_no_failing_node),
        cmocka_unit_test(azurehpc_142_a_threshold_is_the_policys_and_its_classs),
        cmocka_unit_test(nccl_1939_a_module_that_is_not_registered_is_none),
        cmocka_unit_test(nccl_820_the_file_must_be_in_the_container_and_true_of_the_machine),
        cmocka_unit_test(gvisor_14526_deep_states_can_be_forbidden),
        cmocka_unit_test(soperator_2684_an_empty_library_passes_nothing),
        cmocka_unit_test(soperator_2773_no_check_is_ever_renamed),
        cmocka_unit_test(ubuntu_slurm_4_a_prolog_directory_that_is_not_there),
        cmocka_unit_test(every_check_was_seen_to_pass_to_fail_and_not_to_apply),
        cmocka_unit_test(nhc_141_reads_grow_with_the_cpus_and_no_faster),
        cmocka_unit_test(node_exporter_3434_counters_of_unnamed_nics_are_not_read),
        cmocka_unit_test(ids_and_codes_are_unique_and_well_formed),
        cmocka_unit_test(a_good_machine_has_no_failure_and_no_warning),
        cmocka_unit_test(garbage_in_any_file_gives_a_verdict),
        cmocka_unit_test(texts_for_programs_are_whole),
        cmocka_unit_test(the_policy_names_checks_and_parameters_that_are_there),
        cmocka_unit_test(counters_come_back_from_their_file),
        cmocka_unit_test(another_boots_counters_are_not_looked_at),
        cmocka_unit_test(what_the_policy_ignores_does_not_run),
        cmocka_unit_test(a_prolog_runs_what_is_quick_and_nothing_when_the_job_skips_checks),
        cmocka_unit_test(a_gpu_is_open_by_its_device_number_whatever_a_process_calls_it),
        cmocka_unit_test(a_job_that_runs_is_known_by_its_cgroup_and_its_daemon),
        cmocka_unit_test(a_job_that_runs_is_known_by_its_sluid),
        cmocka_unit_test(every_program_of_the_site_has_its_finding),
        cmocka_unit_test(what_went_away_since_the_description_is_missed),
        cmocka_unit_test(a_captured_machine_gets_the_same_verdicts),
    };
    return cmocka_run_group_tests_name("check", tests, make_machines, remove_machines);
}
