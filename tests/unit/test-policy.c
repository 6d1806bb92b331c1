/* Is a policy read as its man page says? The files of tests/policy are judged here: those in good/ and
 * the examples in etc/policy must load, those in bad/ must give the error of their first line. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/policy.h>

#include "../../policy/yaml.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static char *source_path(const char *name)
{
    const char *top = getenv("srcdir");
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s/%s", top ? top : ".", name);
    return xc_text_take(&text);
}

static char *read_path(const char *path, size_t *length)
{
    xc_autofclose FILE *file = fopen(path, "re");
    struct xc_error error = {0};
    if (!file)
        fail_msg("cannot open %s", path);
    char *text = xc_read_fd(fileno(file), path, XC_POLICY_LIMIT, length, &error);
    if (!text)
        fail_msg("%s", error.message);
    return text;
}

/* Calls visit for each .yaml file of a directory of the source; returns how many there were. */
static int each_file(const char *directory, void (*visit)(const char *path, const char *name))
{
    xc_autofree char *path = source_path(directory);
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort), seen = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(entries[i]->d_name);
        if (length > 5 && strcmp(entries[i]->d_name + length - 5, ".yaml") == 0) {
            struct xc_text full = XC_TEXT_INIT;
            xc_text_addf(&full, "%s/%s", path, entries[i]->d_name);
            visit(full.data, entries[i]->d_name);
            xc_text_free(&full);
            seen++;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return seen;
}

static struct xc_policy *parse(const char *text)
{
    struct xc_policy *policy = NULL;
    struct xc_error error = {0};
    if (xc_policy_parse(text, strlen(text), "test", &policy, &error) < 0)
        fail_msg("%s: %s", error.where, error.message);
    return policy;
}

static struct xc_rules *rules_of(const char *text, const struct xc_who *who,
                                 const struct xc_job_facts *job, const char *profile)
{
    struct xc_policy *policy = parse(text);
    struct xc_rules *rules = NULL;
    struct xc_error error = {0};
    if (xc_policy_resolve(policy, who, job, profile, &rules, &error) < 0)
        fail_msg("%s", error.message);
    xc_policy_free(policy);
    return rules;
}

static const struct xc_origin *origin(const struct xc_rules *rules, const char *key)
{
    for (size_t i = 0; i < rules->norigins; i++)
        if (xc_streq(rules->origins[i].key, key))
            return &rules->origins[i];
    fail_msg("no value %s", key);
    return NULL;
}

static const struct xc_env_rule *env(const struct xc_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->nenv; i++)
        if (xc_streq(rules->env[i].name, name))
            return &rules->env[i];
    return NULL;
}

static const struct xc_who nobody = {0};

/* ---- files ----------------------------------------------------------------------------------- */

static void good_file(const char *path, const char *name)
{
    size_t length;
    xc_autofree char *text = read_path(path, &length);
    struct xc_policy *policy = NULL;
    struct xc_error error = {0};
    if (xc_policy_parse(text, length, name, &policy, &error) < 0)
        fail_msg("%s: %s", error.where, error.message);
    for (size_t i = 0; i <= xc_policy_nclasses(policy); i++) {
        struct xc_rules *rules = NULL;
        assert_int_equal(xc_policy_resolve(policy, &nobody, NULL, NULL, &rules, &error), 0);
        xc_rules_free(rules);
    }
    xc_policy_free(policy);
}

static void good_files_load(void **state)
{
    (void)state;
    assert_true(each_file("tests/policy/good", good_file) >= 1);
    assert_true(each_file("etc/policy", good_file) >= 6);
}

static void bad_file(const char *path, const char *name)
{
    static const char mark[] = "# expect: ";
    size_t length;
    xc_autofree char *text = read_path(path, &length);
    struct xc_policy *policy = NULL;
    struct xc_error error = {0};
    if (xc_policy_parse(text, length, name, &policy, &error) == 0)
        fail_msg("%s is accepted", name);
    char got[sizeof error];
    xc_error_text(&error, got, sizeof got);
    if (!xc_starts(text, mark))
        fail_msg("%s says nothing of its error", name);
    text[strcspn(text, "\n")] = '\0';
    /* NAME:LINE:COLUMN: message */
    if (!xc_starts(got, name) || !xc_streq(got + strlen(name) + 1, text + sizeof mark - 1))
        fail_msg("%s\n  expected %s\n  got      %s", name, text + sizeof mark - 1, got);
}

static void bad_files_give_their_error(void **state)
{
    (void)state;
    assert_true(each_file("tests/policy/bad", bad_file) >= 100);
}

/* Parses, and when that works resolves: neither may crash, and an error names its place. */
static void survive(const char *text, size_t length)
{
    /* a copy of the exact size, so that a memory checker sees a read past its end */
    char *exact = malloc(length ? length : 1);
    struct xc_policy *policy = NULL;
    struct xc_error error = {0};
    assert_non_null(exact);
    memcpy(exact, text, length);
    if (xc_policy_parse(exact, length, "f", &policy, &error) < 0) {
        if (!xc_starts(error.where, "f:") || !error.message[0])
            fail_msg("an error without a place: \"%s\" \"%s\"", error.where, error.message);
    } else {
        static const struct xc_job_facts job = {.partition = "dev", .job_nodes = 16};
        struct xc_who who = {.node = "gpu001", .environment = "vm"};
        struct xc_rules *rules = NULL;
        if (xc_policy_resolve(policy, &who, &job, NULL, &rules, &error) < 0)
            fail_msg("accepted, but not resolved: %s: %s", error.where, error.message);
        xc_rules_free(rules);
        xc_policy_free(policy);
    }
    free(exact);
}

static void mutate_file(const char *path, const char *name)
{
    (void)name;
    static const char bytes[] = "\0\n :-[]{}\"'#&*!|>%@`,?~0x\xff";
    size_t length;
    xc_autofree char *text = read_path(path, &length);
    for (size_t i = 0; i <= length; i++)
        survive(text, i);
    for (size_t i = 0; i < length; i++) {
        char keep = text[i];
        for (size_t j = i % 3; j < sizeof bytes - 1; j += 3) { /* a third of them at each byte */
            text[i] = bytes[j];
            survive(text, length);
        }
        text[i] = keep;
    }
}

static void mutilated_files_never_crash(void **state)
{
    (void)state;
    each_file("tests/policy/good", mutate_file);
    each_file("etc/policy", mutate_file);
}

/* ---- what holds where ------------------------------------------------------------------------ */

static void built_in_rules_observe(void **state)
{
    (void)state;
    struct xc_rules *rules = xc_rules_builtin();
    assert_non_null(rules);
    assert_int_equal(rules->mode, XC_MODE_OBSERVE);
    assert_int_equal(rules->cpus.housekeeping, XC_HK_SLURM);
    assert_true(rules->cpus.whole_cores);
    assert_int_equal(rules->cpus.priority, XC_PRIORITY_AUTO);
    assert_int_equal(rules->bind.when, XC_DEFAULT_AUTO);
    assert_int_equal(rules->bind.gpus, XC_GPUS_ORDER);
    assert_int_equal(rules->bind.smt, XC_SMT_ALL);
    assert_int_equal(rules->bind.memory, XC_MEMORY_PREFERRED);
    assert_true(rules->bind.torchrun);
    assert_int_equal(rules->bind.min_share, 1);
    assert_int_equal(rules->bind.on_error, XC_ON_ERROR_WARN);
    assert_int_equal(rules->bind.users_may, 31);
    assert_false(rules->unmatched_warn);
    assert_int_equal(origin(rules, "bind.memory")->line, 0);
    assert_string_equal(origin(rules, "bind.memory")->from, "built in");
    xc_rules_free(rules);
}

static const char layered[] =
    "version: 1\n"
    "mode: bind\n"
    "defaults:\n"
    "  bind: { smt: first, users_may: [disable, smt] }\n"
    "  checks: { cpu.cstate: { deepest: C6, on_fail: drain } }\n"
    "  env: { A: 1, B: 2, C: 3 }\n"
    "  profiles: { fast: { env: { B: 20, P: 1 } } }\n"
    "classes:\n"
    "  - name: gpu\n"
    "    match: { nodes: 'gpu[1-4]', environment: [bare, pod] }\n"
    "    bind: { users_may: [gpus] }\n"
    "    checks: { cpu.cstate: { on_fail: warn }, topo.file: false }\n"
    "    env: { B: 5, C: { value: 9, when: { job_nodes: '>= 8' } }, D: ~ }\n"
    "    profiles: { fast: { env: { B: 50 } } }\n"
    "  - name: rest\n"
    "    match: { nodes: 'gpu*' }\n"
    "    mode: enforce\n"
    "jobs:\n"
    "  - when: { partition: [dev, 'jup*'] }\n"
    "    bind: { default: ask }\n"
    "    env: { A: 100 }\n"
    "  - when: { reservation: 'maint*' }\n"
    "    checks: skip\n"
    "    mode: observe\n";

static void classes_stand_over_defaults_key_by_key(void **state)
{
    (void)state;
    struct xc_who who = {.node = "gpu2", .environment = "pod"};
    struct xc_rules *rules = rules_of(layered, &who, NULL, NULL);
    assert_string_equal(rules->class_name, "gpu");
    assert_int_equal(rules->mode, XC_MODE_BIND);
    assert_int_equal(rules->bind.smt, XC_SMT_FIRST);      /* from defaults */
    assert_int_equal(rules->bind.users_may, XC_MAY_GPUS); /* a list replaces a list */
    assert_string_equal(origin(rules, "bind.users_may")->from, "class gpu");
    assert_int_equal(origin(rules, "bind.users_may")->line, 11);
    assert_string_equal(origin(rules, "mode")->from, "the top");

    assert_int_equal(rules->nchecks, 2);
    assert_string_equal(rules->checks[0].id, "cpu.cstate");
    assert_int_equal(rules->checks[0].on_fail, XC_FAIL_WARN);
    assert_int_equal(rules->checks[0].nkeys, 1); /* deepest stays */
    assert_string_equal(rules->checks[0].values[0], "C6");
    assert_int_equal(rules->checks[1].on_fail, XC_FAIL_IGNORE);

    assert_string_equal(env(rules, "A")->value, "1");
    assert_string_equal(env(rules, "B")->value, "5");
    assert_string_equal(env(rules, "C")->value, "3"); /* the class's does not hold here */
    assert_int_equal(env(rules, "D")->set, XC_ENV_FORBID);
    assert_null(env(rules, "D")->value);
    xc_rules_free(rules);
}

static void first_matching_class_wins(void **state)
{
    (void)state;
    struct xc_who vm = {.node = "gpu2", .environment = "vm"}, other = {.node = "login1"};
    struct xc_rules *rules = rules_of(layered, &vm, NULL, NULL);
    assert_string_equal(rules->class_name, "rest");
    assert_int_equal(rules->mode, XC_MODE_ENFORCE);
    xc_rules_free(rules);
    rules = rules_of(layered, &other, NULL, NULL);
    assert_null(rules->class_name);
    assert_true(rules->unmatched_warn);
    xc_rules_free(rules);
    rules = rules_of(layered, &nobody, NULL, NULL); /* what is not known matches nothing */
    assert_null(rules->class_name);
    xc_rules_free(rules);
    rules = rules_of("version: 1\nunmatched: false\nclasses: [{name: a, match: {nodes: x}}]\n",
                     &other, NULL, NULL);
    assert_false(rules->unmatched_warn);
    xc_rules_free(rules);
    rules = rules_of("version: 1\nclasses: [{name: a}]\n", &nobody, NULL, NULL);
    assert_string_equal(rules->class_name, "a"); /* no match key: every node */
    xc_rules_free(rules);
}

static void match_looks_at_features_product_and_vendor(void **state)
{
    (void)state;
    static const char text[] = "version: 1\nclasses:\n"
                               "  - { name: f, match: { feature: [h100, a100], vendor: 'NV*' } }\n"
                               "  - { name: p, match: { product: 'DGX*' } }\n";
    static const char *const features[] = {"ib", "a100", NULL};
    struct xc_who who = {.features = features, .vendor = "NVIDIA", .product = "DGXA100"};
    struct xc_rules *rules = rules_of(text, &who, NULL, NULL);
    assert_string_equal(rules->class_name, "f");
    xc_rules_free(rules);
    who.vendor = "Dell";
    rules = rules_of(text, &who, NULL, NULL);
    assert_string_equal(rules->class_name, "p");
    xc_rules_free(rules);
}

static void jobs_come_after_the_class(void **state)
{
    (void)state;
    struct xc_who who = {.node = "gpu2", .environment = "bare"};
    struct xc_job_facts dev = {.partition = "jupyter", .reservation = "maintenance"};
    struct xc_job_facts maint = {.reservation = "maintenance", .job_nodes = 8};
    struct xc_rules *rules = rules_of(layered, &who, &dev, NULL);
    assert_int_equal(rules->bind.when, XC_DEFAULT_ASK);
    assert_string_equal(env(rules, "A")->value, "100");
    assert_string_equal(origin(rules, "env.A")->from, "jobs[0]");
    assert_false(rules->checks_skip); /* the first match alone */
    assert_int_equal(rules->mode, XC_MODE_BIND);
    xc_rules_free(rules);
    rules = rules_of(layered, &who, &maint, NULL);
    assert_true(rules->checks_skip);
    assert_int_equal(rules->mode, XC_MODE_OBSERVE);
    assert_string_equal(env(rules, "C")->value, "9");
    xc_rules_free(rules);
}

static void profiles_stand_over_all_and_unknown_ones_are_refused(void **state)
{
    (void)state;
    struct xc_who who = {.node = "gpu2", .environment = "bare"};
    struct xc_rules *rules = rules_of(layered, &who, NULL, "fast");
    assert_string_equal(env(rules, "B")->value, "50"); /* the class's profile, then the defaults' */
    assert_string_equal(env(rules, "P")->value, "1");
    assert_string_equal(origin(rules, "env.P")->from, "profile fast");
    xc_rules_free(rules);
    struct xc_policy *policy = parse(layered);
    struct xc_error error = {0};
    assert_int_equal(xc_policy_resolve(policy, &who, NULL, "fats", &rules, &error), -1);
    assert_int_equal(error.code, XC_EINPUT);
    assert_non_null(strstr(error.message, "fast"));
    xc_policy_free(policy);
}

/* What a YAML library writes after it read on, off and yes. */
static void booleans_are_words(void **state)
{
    (void)state;
    static const char text[] =
        "version: 1\n"
        "defaults:\n"
        "  cpus: { housekeeping: OFF, priority: false, whole_cores: No, host: [] }\n"
        "  bind: { default: true, memory: false, torchrun: true, users_may: [false, smt],\n"
        "          min_share: false }\n"
        "  topo: { file: false, proof: false }\n"
        "  checks: { a.b: { on_fail: false, deep: yes, text: 'yes' } }\n"
        "  resume: false\n";
    struct xc_rules *rules = rules_of(text, &nobody, NULL, NULL);
    assert_int_equal(rules->cpus.housekeeping, XC_HK_NONE);
    assert_int_equal(rules->cpus.priority, XC_PRIORITY_OFF);
    assert_false(rules->cpus.whole_cores);
    assert_int_equal(rules->bind.when, XC_DEFAULT_AUTO);
    assert_int_equal(rules->bind.memory, XC_MEMORY_NONE);
    assert_true(rules->bind.torchrun);
    assert_int_equal(rules->bind.users_may, XC_MAY_DISABLE | XC_MAY_SMT);
    assert_int_equal(rules->bind.min_share, 0);
    assert_true(rules->topo.none);
    assert_int_equal(rules->topo.proof, XC_FAIL_IGNORE);
    assert_int_equal(rules->checks[0].on_fail, XC_FAIL_IGNORE);
    assert_string_equal(rules->checks[0].values[0], "true");
    assert_string_equal(rules->checks[0].values[1], "yes");
    assert_string_equal(origin(rules, "bind.default")->value, "auto");
    xc_rules_free(rules);
    rules = rules_of("version: 1\ndefaults: { bind: { default: off } }\n", &nobody, NULL, NULL);
    assert_int_equal(rules->bind.when, XC_DEFAULT_NEVER);
    xc_rules_free(rules);
}

static void values_have_their_meaning(void **state)
{
    (void)state;
    size_t length;
    xc_autofree char *path = source_path("tests/policy/good/sketch.yaml");
    xc_autofree char *text = read_path(path, &length);
    struct xc_who who = {.node = "gpu064"};
    struct xc_rules *rules = rules_of(text, &who, NULL, NULL);
    assert_true(rules->expect.has_gpus && rules->expect.has_nics);
    assert_int_equal(rules->expect.gpu_count, 8);
    assert_int_equal(rules->expect.gpu_vendor, 0x10de);
    assert_int_equal(rules->expect.gpu_device, 0x2330);
    assert_int_equal(rules->expect.numa_nodes, 2);
    assert_int_equal(rules->expect.nic_rate_mbps, 400000);
    assert_int_equal(rules->expect.nic_link, XC_LINK_INFINIBAND);
    assert_int_equal(rules->cpus.housekeeping, XC_HK_LIST);
    assert_string_equal(rules->cpus.housekeeping_list.text, "0-7,56-63");
    assert_int_equal(rules->cpus.host, XC_HOST_SERVICES | XC_HOST_IRQS | XC_HOST_WORKQUEUES);
    assert_int_equal(rules->bind.min_share, 2);
    assert_string_equal(rules->nics.pci[0], "15b3:1021");
    assert_string_equal(rules->nics.not_[1], "mlx5_9");
    assert_null(rules->nics.not_[2]);
    assert_string_equal(rules->nics.export_[1], "UCX_NET_DEVICES");
    assert_string_equal(rules->topo.file, "/etc/nccl/topo.xml");
    assert_int_equal(rules->topo.proof, XC_FAIL_REFUSE);
    assert_string_equal(rules->nccl_version, ">= 2.27, != 2.28.3");
    assert_string_equal(env(rules, "OMP_NUM_THREADS")->value, "${cores}");
    assert_null(env(rules, "NCCL_IB_QPS_PER_CONNECTION")); /* no job is known */
    xc_rules_free(rules);
}

static void selectors_are_compared_in_small_letters_and_empty_ones_are_none(void **state)
{
    (void)state;
    static const char text[] = "version: 1\n"
                               "defaults: { nics: { compute: { names: ['mlx5_[0]', a], pci: "
                               "'15B3:101E' }, export: [] } }\n"
                               "classes: [{ name: a, nics: { compute: { names: [] } } }]\n";
    struct xc_rules *rules = rules_of(text, &nobody, NULL, NULL);
    assert_string_equal(rules->nics.pci[0], "15b3:101e");
    assert_null(rules->nics.names); /* the class's empty list replaces the defaults' */
    assert_null(rules->nics.export_);
    assert_string_equal(origin(rules, "nics.compute.names")->value, "none");
    xc_rules_free(rules);
}

static void known_gpu_names_are_pci_ids(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned device;
    } models[] = {{"H100-SXM5", 0x2330}, {"h200-sxm", 0x2335}, {"B200", 0x2901},
                  {"GB200", 0x2941},     {"B300", 0x3182},     {"L40S", 0x26b9}};
    for (size_t i = 0; i < XC_COUNT(models); i++) {
        char text[128];
        snprintf(text, sizeof text, "version: 1\ndefaults: { expect: { gpus: { model: %s } } }\n",
                 models[i].name);
        struct xc_rules *rules = rules_of(text, &nobody, NULL, NULL);
        assert_int_equal(rules->expect.gpu_vendor, 0x10de);
        assert_int_equal(rules->expect.gpu_device, models[i].device);
        xc_rules_free(rules);
    }
}

static void cpu_lists_become_sets(void **state)
{
    (void)state;
    xc_autoset struct xc_set online = XC_SET_EMPTY, out = XC_SET_EMPTY;
    static const struct {
        const char *list, *set;
    } lists[] = {{"all", "0-15"}, {"!0-7", "8-15"}, {"0,8-9", "0,8-9"}, {"0-15:1/4", "0,4,8,12"}};
    xc_set_add_range(&online, 0, 15);
    for (size_t i = 0; i < XC_COUNT(lists); i++) {
        struct xc_cpulist list = {.text = (char *)(uintptr_t)lists[i].list};
        assert_int_equal(xc_cpulist_resolve(&list, &online, &out, "test", NULL), 0);
        xc_autofree char *text = xc_set_format(&out);
        assert_string_equal(text, lists[i].set);
    }
    struct xc_cpulist none = {0};
    assert_int_equal(xc_cpulist_resolve(&none, &online, &out, "test", NULL), 0);
    assert_true(xc_set_empty(&out));
}

static void json_is_read_as_yaml(void **state)
{
    (void)state;
    static const char text[] =
        "{\"job\": 7, \"cpus\": \"0-7\", \"tasks\": [{\"rank\": 0, \"x\": null}],"
        " \"ok\": true, \"path\": \"a\\/b\\\"\\u00e9\"}";
    struct xc_yaml *tree = NULL;
    struct xc_error error = {0};
    assert_int_equal(xc_yaml_parse(text, strlen(text), "r.json", &tree, &error), 0);
    long number = 0;
    bool ok = false;
    assert_true(xc_yaml_long(tree, "job", &number) && number == 7);
    assert_string_equal(xc_yaml_text(tree, "cpus"), "0-7");
    assert_string_equal(xc_yaml_text(tree, "path"), "a/b\"\xc3\xa9");
    const struct xc_yaml *tasks = xc_yaml_get(tree, "tasks");
    assert_int_equal(tasks->nchildren, 1);
    assert_null(xc_yaml_text(&tasks->children[0], "x"));
    assert_true(xc_yaml_is_bool(xc_yaml_get(tree, "ok"), &ok) && ok);
    assert_null(xc_yaml_get(xc_yaml_get(tree, "missing"), "deeper"));
    xc_yaml_free(tree);
}

static void hash_is_of_the_bytes(void **state)
{
    (void)state;
    struct xc_policy *a = parse("version: 1\n"), *b = parse("version: 1\n\n");
    assert_int_equal(strlen(xc_policy_hash(a)), 16);
    assert_string_not_equal(xc_policy_hash(a), xc_policy_hash(b));
    xc_policy_free(a);
    xc_policy_free(b);
}

/* ---- finding it ------------------------------------------------------------------------------ */

struct site {
    char prefix[64];
    struct xc_places places;
};

static void put(const char *prefix, const char *path, const char *text)
{
    struct xc_text full = XC_TEXT_INIT, directory = XC_TEXT_INIT;
    xc_text_addf(&full, "%s%s", prefix, path);
    xc_text_add_n(&directory, full.data, (size_t)(strrchr(full.data, '/') - full.data));
    struct xc_error error = {0};
    if (xc_make_dirs(directory.data, 0755, &error) < 0 ||
        xc_write_atomic(full.data, text, strlen(text), 0644, &error) < 0)
        fail_msg("%s: %s", error.where, error.message);
    xc_text_free(&full);
    xc_text_free(&directory);
}

static void drop(const char *prefix, const char *path)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, path);
    unlink(full);
}

static int site_setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    umask(022);
    strcpy(site->prefix, "/tmp/test-policy.XXXXXX");
    if (!mkdtemp(site->prefix))
        return -1;
    chmod(site->prefix, 0755);
    site->places.prefix = site->prefix;
    *state = site;
    return 0;
}

static int site_teardown(void **state)
{
    struct site *site = *state;
    static const char *const paths[] = {"/etc/xcloud/policy.yaml",
                                        "/etc/xcloud/disabled",
                                        "/etc/slurm/xcloud-policy.yaml",
                                        "/etc/slurm/slurm.conf",
                                        "/etc/slurm/nodes/gpu.conf",
                                        "/var/lib/xcloud/policy.good",
                                        "/var/lib/xcloud/armed",
                                        "/var/lib/xcloud/seen",
                                        "/var/lib/xcloud",
                                        "/run/xcloud/policy.good",
                                        "/run/xcloud/seen",
                                        "/run/xcloud/armed",
                                        "/run/xcloud/disabled",
                                        "/var/spool/slurmd/conf-cache/slurm.conf"};
    static const char *const directories[] = {"/etc/xcloud",
                                              "/etc/slurm/nodes",
                                              "/etc/slurm",
                                              "/etc",
                                              "/var/lib/xcloud",
                                              "/var/lib",
                                              "/var/spool/slurmd/conf-cache",
                                              "/var/spool/slurmd",
                                              "/var/spool",
                                              "/var",
                                              "/run/xcloud",
                                              "/run",
                                              ""};
    for (size_t i = 0; i < XC_COUNT(paths); i++)
        drop(site->prefix, paths[i]);
    for (size_t i = 0; i < XC_COUNT(directories); i++) {
        char full[256];
        snprintf(full, sizeof full, "%s%s", site->prefix, directories[i]);
        rmdir(full);
    }
    free(site);
    return 0;
}

/* Loads and says from where, or NULL. */
static struct xc_policy *load(const struct site *site, struct xc_policy_source *source,
                              struct xc_error *error)
{
    struct xc_policy *policy = NULL;
    xc_policy_source_clear(source);
    return xc_policy_load(&site->places, &policy, source, error) == 0 ? policy : NULL;
}

static void no_policy_is_enoent(void **state)
{
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    assert_null(load(*state, &source, &error));
    assert_int_equal(error.code, XC_ENOENT);
}

static void the_first_file_that_exists_counts(void **state)
{
    struct site *site = *state;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    put(site->prefix, "/etc/slurm/xcloud-policy.yaml", "version: 1\nmode: bind\n");
    struct xc_policy *policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_int_equal(xc_policy_mode(policy), XC_MODE_BIND);
    assert_non_null(strstr(source.path, "/etc/slurm/xcloud-policy.yaml"));
    xc_policy_free(policy);

    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 1\nmode: enforce\n");
    policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_int_equal(xc_policy_mode(policy), XC_MODE_ENFORCE);
    char hash[17];
    assert_int_equal(xc_policy_live_hash(&site->places, hash, &error), 0);
    assert_string_equal(hash, xc_policy_hash(policy));
    xc_policy_free(policy);
    xc_policy_source_clear(&source);
}

static void a_broken_file_leaves_the_last_good_copy(void **state)
{
    struct site *site = *state;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    static const char good[] = "version: 1\nmode: enforce\n";
    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 1\nmoed: bind\n");
    assert_null(load(site, &source, &error)); /* no copy yet: the live file's error */
    assert_non_null(strstr(error.message, "did you mean \"mode\"?"));

    assert_int_equal(xc_policy_keep(&site->places, good, strlen(good), &error), 0);
    struct xc_policy *policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_true(source.last_good);
    assert_false(source.armed);
    assert_non_null(strstr(source.live_error, "policy.yaml:2:1: unknown key \"moed\""));
    xc_policy_free(policy);

    drop(site->prefix, "/etc/xcloud/policy.yaml"); /* taken away on purpose: so is the copy */
    assert_null(load(site, &source, &error));
    assert_int_equal(error.code, XC_ENOENT);
}

static void others_files_are_not_believed(void **state)
{
    struct site *site = *state;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/etc/xcloud/policy.yaml", site->prefix);
    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 1\n");
    chmod(path, 0666);
    assert_null(load(site, &source, &error));
    assert_int_equal(error.code, XC_EOWNER);
}

static void a_policy_is_armed_by_its_hash(void **state)
{
    struct site *site = *state;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 1\nmode: enforce\n");
    struct xc_policy *policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_false(source.armed);
    assert_int_equal(xc_policy_arm(&site->places, xc_policy_hash(policy), &error), 0);
    xc_policy_free(policy);
    policy = load(site, &source, &error);
    assert_true(source.armed);
    xc_policy_free(policy);
    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 1\nmode: enforce\n# new\n");
    policy = load(site, &source, &error);
    assert_false(source.armed);
    xc_policy_free(policy);
    xc_policy_source_clear(&source);
    assert_int_equal(xc_policy_arm(&site->places, "../../etc/passwd", &error), -1);
}

static void arm_after_counts_from_the_install(void **state)
{
    struct site *site = *state;
    struct xc_policy_source source = {0};
    struct xc_error error = {0};
    static const char text[] = "version: 1\narm_after: 24h\n";
    put(site->prefix, "/etc/xcloud/policy.yaml", text);
    assert_int_equal(xc_policy_keep(&site->places, text, strlen(text), &error), 0);
    struct xc_policy *policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_false(source.armed);
    char seen[64];
    snprintf(seen, sizeof seen, "%s 1000\n", xc_policy_hash(policy));
    put(site->prefix, "/var/lib/xcloud/seen", seen); /* installed long ago */
    xc_policy_free(policy);
    policy = load(site, &source, &error);
    assert_true(source.armed);
    xc_policy_free(policy);
    /* the same bytes again do not start the clock anew */
    assert_int_equal(xc_policy_keep(&site->places, text, strlen(text), &error), 0);
    policy = load(site, &source, &error);
    assert_true(source.armed);
    /* but a clock that was ahead when it was first seen would keep it unarmed */
    snprintf(seen, sizeof seen, "%s 99999999999\n", xc_policy_hash(policy));
    put(site->prefix, "/var/lib/xcloud/seen", seen);
    xc_policy_free(policy);
    policy = load(site, &source, &error);
    assert_false(source.armed);
    assert_int_equal(xc_policy_keep(&site->places, text, strlen(text), &error), 0);
    xc_autofree char *now = NULL;
    size_t length;
    char path[128];
    snprintf(path, sizeof path, "%s/var/lib/xcloud/seen", site->prefix);
    now = xc_read_trusted(path, 64, &length, NULL);
    assert_true(now && xc_starts(now, xc_policy_hash(policy)) &&
                strtol(now + 17, NULL, 10) <= time(NULL));
    xc_policy_free(policy);
    put(site->prefix, "/var/lib/xcloud/seen", "rubbish");
    policy = load(site, &source, &error);
    assert_false(source.armed);
    xc_policy_free(policy);
    xc_policy_source_clear(&source);
}

static void a_diskless_node_keeps_its_copy_in_run(void **state)
{
    struct site *site = *state;
    struct xc_error error = {0};
    char path[128];
    put(site->prefix, "/var/lib/xcloud",
        "a file where the directory should be: root can write all\n");
    assert_int_equal(xc_policy_keep(&site->places, "version: 1\n", 11, &error), 0);
    snprintf(path, sizeof path, "%s/run/xcloud/policy.good", site->prefix);
    assert_int_equal(access(path, R_OK), 0);
    put(site->prefix, "/etc/xcloud/policy.yaml", "version: 3\n");
    struct xc_policy_source source = {0};
    struct xc_policy *policy = load(site, &source, &error);
    assert_non_null(policy);
    assert_string_equal(source.path, path);
    xc_policy_free(policy);
    xc_policy_source_clear(&source);
}

static void kill_switches_are_seen(void **state)
{
    struct site *site = *state;
    assert_null(xc_policy_disabled(&site->places));
    put(site->prefix, "/run/xcloud/disabled", "");
    assert_string_equal(xc_policy_disabled(&site->places), "/run/xcloud/disabled");
    put(site->prefix, "/etc/xcloud/disabled", "");
    assert_string_equal(xc_policy_disabled(&site->places), "/etc/xcloud/disabled");
}

/* ---- slurm.conf ------------------------------------------------------------------------------ */

static int slurm_node(const struct site *site, const char *name, struct xc_slurm_node *out,
                      struct xc_error *error)
{
    xc_autoroot struct xc_root *root = NULL;
    assert_int_equal(xc_root_open_dir(site->prefix, &root, error), 0);
    return xc_slurm_conf_node(root, NULL, name, out, error);
}

static void slurm_conf_is_read_as_slurm_reads_it(void **state)
{
    struct site *site = *state;
    struct xc_slurm_node node = {0};
    struct xc_error error = {0};
    put(site->prefix, "/etc/slurm/slurm.conf",
        "# NodeName=gpu1 CpuSpecList=9\n"
        "ClusterName=c # CpuSpecList\n"
        "nodename=DEFAULT Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 CoreSpecCount=4\n"
        "INCLUDE nodes/gpu.conf\n"
        "NodeName=login1 CoreSpecCount=0\n"
        "SchedulerParameters=bf_continue,Spec_Cores_First,x\n"
        "PartitionName=p Nodes=ALL Default=YES\n");
    put(site->prefix, "/etc/slurm/nodes/gpu.conf",
        "NodeName=gpu[1-4] \\\n"
        "   CpuSpecList=0-3,56 \\\n"
        "   Feature=\"h100,ib\" RealMemory=1\n"
        "NodeName=DEFAULT SocketsPerBoard=4 Boards=2\n"
        "NodeName=big Features=fat CPUs=512\n");
    assert_int_equal(slurm_node(site, "gpu3", &node, &error), 0);
    assert_true(node.found && node.spec_cores_first);
    xc_autofree char *list = xc_set_format(&node.cpu_spec_list);
    assert_string_equal(list, "0-3,56");
    assert_int_equal(node.core_spec_count, 0); /* the line's CpuSpecList replaces it */
    assert_int_equal(node.sockets, 2);
    assert_int_equal(node.cores_per_socket, 56);
    assert_int_equal(node.threads_per_core, 2);
    assert_string_equal(node.features[0], "h100");
    assert_string_equal(node.features[1], "ib");
    assert_null(node.features[2]);
    assert_int_equal(node.line, 1);
    xc_slurm_node_clear(&node);

    assert_int_equal(slurm_node(site, "big", &node, &error), 0);
    assert_int_equal(node.core_spec_count, 4); /* from DEFAULT */
    assert_int_equal(node.sockets, 8);         /* four on each of two boards */
    xc_slurm_node_clear(&node);
    assert_int_equal(slurm_node(site, "gpu5", &node, &error), 0);
    assert_false(node.found);
    xc_slurm_node_clear(&node);
}

static void slurm_conf_errors_say_where(void **state)
{
    struct site *site = *state;
    struct xc_slurm_node node = {0};
    struct xc_error error = {0};
    assert_int_equal(slurm_node(site, "a", &node, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
    put(site->prefix, "/etc/slurm/slurm.conf", "x=1\nNodeName=a CpuSpecList=0-\n");
    assert_int_equal(slurm_node(site, "a", &node, &error), -1);
    assert_string_equal(error.where, "/etc/slurm/slurm.conf:2");
    put(site->prefix, "/etc/slurm/slurm.conf", "NodeName=a CoreSpecCount=two\n");
    assert_int_equal(slurm_node(site, "a", &node, &error), -1);
    assert_non_null(strstr(error.message, "\"two\" is no number"));
    put(site->prefix, "/etc/slurm/slurm.conf", "NodeName=a[1- CPUs=2\n");
    assert_int_equal(slurm_node(site, "a1", &node, &error), -1);
    assert_string_equal(error.where, "/etc/slurm/slurm.conf:1");
    put(site->prefix, "/etc/slurm/slurm.conf", "Include slurm.conf\n");
    assert_int_equal(slurm_node(site, "a", &node, &error), -1);
    assert_non_null(strstr(error.message, "deeper than"));
}

static void configless_cache_is_read(void **state)
{
    struct site *site = *state;
    struct xc_slurm_node node = {0};
    struct xc_error error = {0};
    put(site->prefix, "/var/spool/slurmd/conf-cache/slurm.conf", "NodeName=n CoreSpecCount=2");
    assert_int_equal(slurm_node(site, "n", &node, &error), 0);
    assert_true(node.found);
    assert_int_equal(node.core_spec_count, 2);
    xc_slurm_node_clear(&node);
}

/* A root whose every file has the same bytes. */
struct one_file {
    const char *bytes;
    size_t length;
};

static int one_read(void *self, const char *path, size_t limit, char **out, size_t *length)
{
    const struct one_file *file = self;
    (void)path;
    (void)limit;
    *out = malloc(file->length + 1);
    memcpy(*out, file->bytes, file->length);
    (*out)[file->length] = '\0';
    *length = file->length;
    return 0;
}

static int one_canonical(void *self, const char *path, char **out)
{
    (void)self;
    *out = strdup(path);
    return 0;
}

static void mutilated_slurm_conf_never_crashes(void **state)
{
    (void)state;
    static const struct xc_root_ops ops = {.read = one_read, .canonical = one_canonical};
    static const char conf[] =
        "NodeName=DEFAULT Boards=2 SocketsPerBoard=1 # x\n"
        "SchedulerParameters=\"a,spec_cores_first\"\n"
        "NodeName=a[1-2,5],b CpuSpecList=0-3 \\\n Features=x,y CoresPerSocket=4\n"
        "  include  more.conf\n";
    static const char bytes[] = "\n =,#\\\"[]-9x\xff";
    char text[sizeof conf];
    struct one_file file = {.bytes = text};
    xc_autoroot struct xc_root *root = NULL;
    assert_int_equal(xc_root_new(&ops, &file, "memory", &root, NULL), 0);
    for (size_t i = 0; i < sizeof conf - 1; i++)
        for (size_t j = 0; j < sizeof bytes; j++) {
            struct xc_slurm_node node = {0};
            struct xc_error error = {0};
            memcpy(text, conf, sizeof conf);
            text[i] = bytes[j];
            file.length = j == 0 ? i : sizeof conf - 1; /* once cut, else one byte other */
            if (xc_slurm_conf_node(root, NULL, "a2", &node, &error) < 0)
                assert_true(error.message[0]);
            xc_slurm_node_clear(&node);
        }
}

#define SITE_TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_load),
        cmocka_unit_test(bad_files_give_their_error),
        cmocka_unit_test(mutilated_files_never_crash),
        cmocka_unit_test(built_in_rules_observe),
        cmocka_unit_test(classes_stand_over_defaults_key_by_key),
        cmocka_unit_test(first_matching_class_wins),
        cmocka_unit_test(match_looks_at_features_product_and_vendor),
        cmocka_unit_test(jobs_come_after_the_class),
        cmocka_unit_test(profiles_stand_over_all_and_unknown_ones_are_refused),
        cmocka_unit_test(booleans_are_words),
        cmocka_unit_test(values_have_their_meaning),
        cmocka_unit_test(selectors_are_compared_in_small_letters_and_empty_ones_are_none),
        cmocka_unit_test(known_gpu_names_are_pci_ids),
        cmocka_unit_test(cpu_lists_become_sets),
        cmocka_unit_test(json_is_read_as_yaml),
        cmocka_unit_test(hash_is_of_the_bytes),
        SITE_TEST(no_policy_is_enoent),
        SITE_TEST(the_first_file_that_exists_counts),
        SITE_TEST(a_broken_file_leaves_the_last_good_copy),
        SITE_TEST(others_files_are_not_believed),
        SITE_TEST(a_policy_is_armed_by_its_hash),
        SITE_TEST(arm_after_counts_from_the_install),
        SITE_TEST(a_diskless_node_keeps_its_copy_in_run),
        SITE_TEST(kill_switches_are_seen),
        SITE_TEST(slurm_conf_is_read_as_slurm_reads_it),
        SITE_TEST(slurm_conf_errors_say_where),
        SITE_TEST(configless_cache_is_read),
        cmocka_unit_test(mutilated_slurm_conf_never_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
