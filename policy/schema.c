/* What may stand in a policy? The grammar as tables, and the walk that holds a tree against them.
 * The man page xcloud-policy(5) and etc/policy.schema.json say the same; a test compares the keys. */
#include <string.h>

#include "policy.h"

#define RULE(member)            .stored = true, .offset = offsetof(struct xc_rules, member)
#define VALUE(key_name, reader) .name = key_name, .kind = POL_VALUE, .read = reader
#define WORD(key_name, words, member, text)                                                        \
    .name = key_name, .kind = POL_VALUE, .read = pol_read_choice, .choices = words, RULE(member),  \
    .builtin = text

/* Words are stored as ints through pol_key.offset: their enums must be of that size. */
_Static_assert(sizeof(enum xc_mode) == sizeof(int), "enums are ints");

static const struct pol_choice modes[] = {
    {"observe", XC_MODE_OBSERVE}, {"bind", XC_MODE_BIND}, {"enforce", XC_MODE_ENFORCE}, {0}};
static const struct pol_choice defaults[] = {
    {"auto", XC_DEFAULT_AUTO}, {"ask", XC_DEFAULT_ASK}, {"never", XC_DEFAULT_NEVER}, {0}};
static const struct pol_choice gpus[] = {
    {"order", XC_GPUS_ORDER}, {"restrict", XC_GPUS_RESTRICT}, {0}};
static const struct pol_choice smt[] = {{"all", XC_SMT_ALL}, {"first", XC_SMT_FIRST}, {0}};
static const struct pol_choice memory[] = {{"preferred", XC_MEMORY_PREFERRED},
                                           {"bind", XC_MEMORY_BIND},
                                           {"interleave", XC_MEMORY_INTERLEAVE},
                                           {"none", XC_MEMORY_NONE},
                                           {0}};
static const struct pol_choice on_errors[] = {
    {"warn", XC_ON_ERROR_WARN}, {"refuse", XC_ON_ERROR_REFUSE}, {0}};
static const struct pol_choice proofs[] = {
    {"refuse", XC_FAIL_REFUSE}, {"warn", XC_FAIL_WARN}, {"ignore", XC_FAIL_IGNORE}, {0}};
static const struct pol_choice over_images[] = {
    {"replace", XC_TOPO_REPLACE}, {"keep", XC_TOPO_KEEP}, {0}};
static const struct pol_choice links[] = {
    {"any", XC_LINK_ANY}, {"infiniband", XC_LINK_INFINIBAND}, {"ethernet", XC_LINK_ETHERNET}, {0}};
static const struct pol_choice env_sets[] = {{"default", XC_ENV_DEFAULT},
                                             {"force", XC_ENV_FORCE},
                                             {"forbid", XC_ENV_FORBID},
                                             {"warn", XC_ENV_WARN},
                                             {0}};
static const struct pol_choice unmatched[] = {
    {"warn", XC_UNMATCHED_WARN}, {"ignore", XC_UNMATCHED_IGNORE}, {0}};
const struct pol_choice pol_on_fails[] = {{"drain", XC_FAIL_DRAIN},
                                          {"refuse", XC_FAIL_REFUSE},
                                          {"warn", XC_FAIL_WARN},
                                          {"ignore", XC_FAIL_IGNORE},
                                          {0}};

const struct pol_key pol_when[] = {
    {VALUE("partition", pol_read_patterns)},   {VALUE("account", pol_read_patterns)},
    {VALUE("qos", pol_read_patterns)},         {VALUE("reservation", pol_read_patterns)},
    {VALUE("user", pol_read_patterns)},        {VALUE("job_name", pol_read_patterns)},
    {VALUE("job_nodes", pol_read_comparison)}, {0},
};

static const struct pol_key expect_gpus[] = {
    {VALUE("count", pol_read_gpu_count)},
    {VALUE("model", pol_read_gpu_model)},
    {0},
};
static const struct pol_key expect_nics[] = {
    {VALUE("count", pol_read_nic_count)},
    {VALUE("rate", pol_read_nic_rate)},
    {VALUE("link", pol_read_nic_link), .choices = links, RULE(expect.nic_link)},
    {0},
};
static const struct pol_key expect[] = {
    {.name = "gpus", .kind = POL_MAP, .members = expect_gpus},
    {.name = "nics", .kind = POL_MAP, .members = expect_nics},
    {VALUE("numa_nodes", pol_read_numa_nodes)},
    {0},
};
static const struct pol_key cpus[] = {
    {VALUE("housekeeping", pol_read_housekeeping), .builtin = "slurm"},
    {VALUE("whole_cores", pol_read_flag), RULE(cpus.whole_cores), .builtin = "on"},
    {VALUE("host", pol_read_host)},
    {VALUE("priority", pol_read_priority), .builtin = "auto"},
    {0},
};
static const struct pol_key bind[] = {
    {WORD("default", defaults, bind.when, "auto"), .yes = "auto", .no = "never"},
    {WORD("gpus", gpus, bind.gpus, "order")},
    {WORD("smt", smt, bind.smt, "all")},
    {WORD("memory", memory, bind.memory, "preferred"), .no = "none"},
    {VALUE("torchrun", pol_read_flag), RULE(bind.torchrun), .builtin = "auto"},
    {VALUE("min_share", pol_read_min_share), .builtin = "1 core"},
    {WORD("on_error", on_errors, bind.on_error, "warn")},
    {VALUE("users_may", pol_read_users_may), .builtin = "all"},
    {0},
};
static const struct pol_key compute[] = {
    {VALUE("pci", pol_read_pci), RULE(nics.pci)},
    {VALUE("names", pol_read_strings), RULE(nics.names)},
    {VALUE("not", pol_read_strings), RULE(nics.not_)},
    {WORD("link", links, nics.link, NULL)},
    {0},
};
static const struct pol_key nics[] = {
    {.name = "compute", .kind = POL_MAP, .members = compute},
    {VALUE("export", pol_read_export), RULE(nics.export_)},
    {0},
};
static const struct pol_key topo_map[] = {
    {VALUE("numa", pol_read_map_numa), .required = true},
    {VALUE("gpus", pol_read_map_gpus)},
    {VALUE("nics", pol_read_map_nics)},
    {VALUE("gen", pol_read_map_gen)},
    {0},
};
static const struct pol_key topo[] = {
    {VALUE("file", pol_read_topo_file)},
    {WORD("over_image", over_images, topo.over_image, "replace")},
    {WORD("proof", proofs, topo.proof, "warn"), .no = "ignore"},
    {.name = "map", .kind = POL_ITEMS, .members = topo_map, .read = pol_read_topo_map},
    {0},
};
static const struct pol_key nccl[] = {{VALUE("version", pol_read_nccl_version)}, {0}};
static const struct pol_key programs[] = {
    {VALUE("deadline", pol_read_deadline), .builtin = "2s"},
    {VALUE("jitter", pol_read_jitter), .builtin = "1s"},
    {VALUE("textfile", pol_read_path), RULE(programs.textfile)},
    {0},
};

const struct pol_key pol_env_entry[] = {
    {VALUE("value", pol_read_env_value), .nullable = true},
    {VALUE("set", pol_read_choice), .choices = env_sets},
    {.name = "when", .kind = POL_MAP, .members = pol_when},
    {VALUE("evidence", pol_read_text)},
    {0},
};
static const struct pol_key check_entry[] = {
    {VALUE("on_fail", pol_read_choice), .choices = pol_on_fails, .no = "ignore"},
    {0},
};

static int check_env(struct pol_reading *r, const struct xc_yaml *node);
static int check_checks(struct pol_reading *r, const struct xc_yaml *node);
static int check_profiles(struct pol_reading *r, const struct xc_yaml *node);
static int check_job_checks(struct pol_reading *r, const struct xc_yaml *node);

#define ENV                                                                                        \
    {                                                                                              \
        .name = "env", .kind = POL_NAMED, .read = check_env, .members = pol_env_entry              \
    }
#define MODE                                                                                       \
    {                                                                                              \
        WORD("mode", modes, mode, "observe")                                                       \
    }
static const struct pol_key profile[] = {ENV, {0}};

/* What a class, and so `defaults`, may say. */
const struct pol_key pol_section[] = {
    MODE,
    {.name = "expect", .kind = POL_MAP, .members = expect},
    {.name = "cpus", .kind = POL_MAP, .members = cpus},
    {.name = "bind", .kind = POL_MAP, .members = bind},
    {.name = "checks", .kind = POL_NAMED, .read = check_checks, .members = check_entry},
    {.name = "nics", .kind = POL_MAP, .members = nics},
    {.name = "topo", .kind = POL_MAP, .members = topo},
    ENV,
    {.name = "profiles", .kind = POL_NAMED, .read = check_profiles, .members = profile},
    {.name = "nccl", .kind = POL_MAP, .members = nccl},
    {VALUE("resume", pol_read_resume), .builtin = "off"},
    {.name = "programs", .kind = POL_MAP, .members = programs},
    {VALUE("checks_root", pol_read_path), RULE(checks_root)},
    {0},
};

static const struct pol_key match[] = {
    {VALUE("nodes", pol_read_nodes)},
    {VALUE("feature", pol_read_patterns)},
    {VALUE("features", pol_read_patterns)},
    {VALUE("product", pol_read_patterns)},
    {VALUE("vendor", pol_read_patterns)},
    {VALUE("environment", pol_read_environment)},
    {0},
};
const struct pol_key pol_class_head[] = {
    {VALUE("name", pol_read_name), .required = true},
    {.name = "match", .kind = POL_MAP, .members = match},
    {0},
};
static const struct pol_key job[] = {
    {.name = "when", .kind = POL_MAP, .members = pol_when},
    MODE,
    {.name = "bind", .kind = POL_MAP, .members = bind},
    {VALUE("checks", check_job_checks)},
    ENV,
    {0},
};
static const struct pol_key breaker[] = {
    {VALUE("cluster", pol_read_limit), RULE(breaker.cluster), .builtin = "8 or 1%"},
    {VALUE("class", pol_read_limit), RULE(breaker.class_)},
    {VALUE("job", pol_read_limit), RULE(breaker.job), .builtin = "2"},
    {VALUE("window", pol_read_duration), RULE(breaker.window_s), .builtin = "10m"},
    {VALUE("directory", pol_read_path), RULE(breaker.directory)},
    {0},
};
const struct pol_key pol_top[] = {
    {VALUE("version", pol_read_version), .required = true},
    MODE,
    {VALUE("arm_after", pol_read_arm_after)},
    {.name = "defaults", .kind = POL_MAP, .members = pol_section},
    {.name = "classes", .kind = POL_ITEMS, .members = pol_class_head, .more = pol_section},
    {VALUE("unmatched", pol_read_choice), .choices = unmatched, .yes = "warn", .no = "ignore",
     .builtin = "warn"},
    {.name = "jobs", .kind = POL_ITEMS, .members = job},
    {.name = "breaker", .kind = POL_MAP, .members = breaker},
    {VALUE("resume", pol_read_resume)},
    {0},
};

/* ---- holding a tree against the tables ------------------------------------------------------- */

static int check_node(struct pol_reading *r, const struct pol_key *key, const struct xc_yaml *node);

#define KEYS_MAX 24 /* of the longest pair of tables, for a message */

/* Names of both tables into names, NULL-terminated; returns their count. */
static size_t key_names(const struct pol_key *members, const struct pol_key *more,
                        const char *names[KEYS_MAX + 1])
{
    size_t count = 0;
    for (; members && members->name && count < KEYS_MAX; members++)
        names[count++] = members->name;
    for (; more && more->name && count < KEYS_MAX; more++)
        names[count++] = more->name;
    names[count] = NULL;
    return count;
}

static const struct pol_key *find_key(const struct pol_key *table, const char *name)
{
    for (; table && table->name; table++)
        if (xc_streq(table->name, name))
            return table;
    return NULL;
}

/* A key that is right elsewhere, or no key at all. */
static const char *where_else(const char *key, const struct pol_key *members)
{
    if (key[0] >= '0' && key[0] <= '9')
        return "; a list with commas in it stands in quotes";
    if (members == pol_top && find_key(pol_section, key))
        return "; it stands below defaults: or in a class";
    if (members != pol_top && pol_check_id_ok(key))
        return "; a check stands below checks:";
    return "";
}

static int unknown_key(struct pol_reading *r, const struct xc_yaml *child,
                       const struct pol_key *members, const struct pol_key *more, const char *in)
{
    const char *names[KEYS_MAX + 1];
    size_t count = key_names(members, more, names);
    xc_autotext struct xc_text list = XC_TEXT_INIT;
    for (size_t i = 0; i < count; i++)
        xc_text_addf(&list, "%s%s", i ? ", " : "", names[i]);
    const char *near = xc_nearest(child->key, names);
    return pol_bad_key(r, child, "unknown key \"%.60s\" in %s; expected %s%s%s%s", child->key, in,
                       list.data ? list.data : "", near ? "; did you mean \"" : "",
                       near ? near : "", near ? "\"?" : where_else(child->key, members));
}

static int check_members(struct pol_reading *r, const struct xc_yaml *map,
                         const struct pol_key *members, const struct pol_key *more, const char *in)
{
    if (map->kind != XC_YAML_MAP)
        return pol_bad(r, map, "%s is %s; expected a mapping (key: value)", in,
                       xc_yaml_kind_name(map));
    for (size_t i = 0; i < map->nchildren; i++) {
        const struct xc_yaml *child = &map->children[i];
        const struct pol_key *key = find_key(members, child->key);
        key = key ? key : find_key(more, child->key);
        if (!key)
            return unknown_key(r, child, members, more, in);
        if (check_node(r, key, child) < 0)
            return -1;
    }
    for (const struct pol_key *key = members; key->name; key++)
        if (key->required && !xc_yaml_get(map, key->name))
            return pol_bad(r, map, "%s has no \"%s\"; expected it", in, key->name);
    return 0;
}

static int check_items(struct pol_reading *r, const struct pol_key *key, const struct xc_yaml *list)
{
    if (list->kind != XC_YAML_LIST)
        return pol_bad(r, list, "%s is %s; expected a list (- …)", key->name,
                       xc_yaml_kind_name(list));
    for (size_t i = 0; i < list->nchildren; i++) {
        char in[64];
        snprintf(in, sizeof in, "%s[%zu]", key->name, i);
        if (check_members(r, &list->children[i], key->members, key->more, in) < 0)
            return -1;
    }
    return 0;
}

static int check_node(struct pol_reading *r, const struct pol_key *key, const struct xc_yaml *node)
{
    switch (key->kind) {
    case POL_MAP:
        return check_members(r, node, key->members, key->more, key->name);
    case POL_ITEMS:
        if (check_items(r, key, node) < 0)
            return -1;
        if (!key->read)
            return 0;
        break;
    case POL_NAMED:
        if (node->kind != XC_YAML_MAP)
            return pol_bad(r, node, "%s is %s; expected a mapping (key: value)", key->name,
                           xc_yaml_kind_name(node));
        break;
    case POL_VALUE:
        if (xc_yaml_is_null(node) && key->nullable)
            return 0;
        if (xc_yaml_is_null(node))
            return pol_bad(r, node, "%s has no value; expected one, or no key", key->name);
        break;
    }
    const struct pol_key *outer = r->key;
    r->key = key;
    xc_text_free(&r->said);
    int rc = key->read(r, node);
    r->key = outer;
    return rc;
}

/* ---- mappings with free names ---------------------------------------------------------------- */

static int check_env_entry(struct pol_reading *r, const struct xc_yaml *entry)
{
    const char *problem = pol_env_name_problem(entry->key);
    bool yes;
    const struct xc_yaml name = {.kind = XC_YAML_SCALAR, .text = entry->key};
    if (!problem && xc_yaml_is_bool(&name, &yes))
        problem = "an unquoted key that YAML reads as true or false";
    if (problem)
        return pol_bad_key(r, entry,
                           "\"%.60s\" cannot be set: %s; expected a variable as NCCL_DEBUG",
                           entry->key, problem);
    if (xc_yaml_is_null(entry))
        return 0;
    if (entry->kind == XC_YAML_SCALAR)
        return pol_read_env_value(r, entry);
    if (entry->kind == XC_YAML_LIST)
        return pol_bad(r, entry, "%.60s is a list; expected a value, or { value: …, set: … }",
                       entry->key);
    if (check_members(r, entry, pol_env_entry, NULL, entry->key) < 0)
        return -1;
    const struct xc_yaml *value = xc_yaml_get(entry, "value");
    const char *set = xc_yaml_text(entry, "set");
    bool null = value && xc_yaml_is_null(value), forbid = xc_streq(set, "forbid");
    if (!forbid && (!value || (null && set)))
        return pol_bad(r, entry, "%.60s has no value; expected value: …, or set: forbid",
                       entry->key);
    if (value && !null && forbid)
        return pol_bad(r, value, "%.60s is forbidden and has a value; expected one of the two",
                       entry->key);
    return 0;
}

static int check_env(struct pol_reading *r, const struct xc_yaml *node)
{
    for (size_t i = 0; i < node->nchildren; i++)
        if (check_env_entry(r, &node->children[i]) < 0)
            return -1;
    return 0;
}

static int check_check(struct pol_reading *r, const struct xc_yaml *entry)
{
    if (!pol_check_id_ok(entry->key))
        return pol_bad_key(r, entry,
                           "\"%.60s\" is no check; expected family.name in small letters, as "
                           "cpu.cstate",
                           entry->key);
    if (entry->kind == XC_YAML_SCALAR)
        return check_node(r, check_entry, entry);
    if (entry->kind != XC_YAML_MAP)
        return pol_bad(r, entry, "%s is %s; expected on_fail: … and the check's own keys",
                       entry->key, xc_yaml_kind_name(entry));
    for (size_t i = 0; i < entry->nchildren; i++) {
        const struct xc_yaml *child = &entry->children[i];
        bool yes;
        if (xc_streq(child->key, "on_fail")) {
            if (check_node(r, check_entry, child) < 0)
                return -1;
            continue;
        }
        if (!pol_name_ok(child->key))
            return pol_bad_key(r, child, "\"%.60s\" is no key of a check; expected a word",
                               child->key);
        if (child->kind == XC_YAML_SCALAR && xc_yaml_is_bool(child, &yes))
            continue;
        if (!pol_text(r, child, child->key))
            return -1;
    }
    return 0;
}

static int check_checks(struct pol_reading *r, const struct xc_yaml *node)
{
    for (size_t i = 0; i < node->nchildren; i++)
        if (check_check(r, &node->children[i]) < 0)
            return -1;
    return 0;
}

static int check_profiles(struct pol_reading *r, const struct xc_yaml *node)
{
    for (size_t i = 0; i < node->nchildren; i++) {
        const struct xc_yaml *entry = &node->children[i];
        bool yes;
        const struct xc_yaml name = {.kind = XC_YAML_SCALAR, .text = entry->key};
        if (!pol_name_ok(entry->key) || xc_yaml_is_bool(&name, &yes))
            return pol_bad_key(r, entry,
                               "\"%.60s\" is no profile's name; expected at most %d letters, "
                               "digits, '_', '.' or '-'",
                               entry->key, XC_PROFILE_MAX - 1);
        if (check_members(r, entry, profile, NULL, entry->key) < 0)
            return -1;
    }
    return 0;
}

static int check_job_checks(struct pol_reading *r, const struct xc_yaml *node)
{
    static const struct pol_choice words[] = {{"skip", 1}, {0}};
    int value;
    return pol_choose(r, node, words, NULL, "skip", &value);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Names that later parts refer to must not be there twice. */
static int check_class_names(struct pol_reading *r, const struct xc_yaml *classes)
{
    for (size_t i = 0; classes && i < classes->nchildren; i++)
        for (size_t j = 0; j < i; j++) {
            const struct xc_yaml *name = xc_yaml_get(&classes->children[i], "name");
            const struct xc_yaml *first = xc_yaml_get(&classes->children[j], "name");
            if (xc_streq(name->text, first->text))
                return pol_bad(r, name, "the class \"%.60s\" is here twice; line %u has it first",
                               name->text, first->line);
        }
    return 0;
}

int pol_check(const char *name, const struct xc_yaml *tree, struct xc_error *error)
{
    struct xc_rules *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return xc_error_nomem(error);
    struct pol_reading r = {.name = name, .rules = scratch, .error = error};
    int rc = check_members(&r, tree, pol_top, NULL, "the policy");
    if (rc == 0)
        rc = check_class_names(&r, xc_yaml_get(tree, "classes"));
    xc_text_free(&r.said);
    xc_rules_free(scratch);
    return rc;
}

static void list_keys(const struct pol_key *table, const char *path, struct xc_text *out)
{
    for (; table && table->name; table++) {
        xc_autotext struct xc_text here = XC_TEXT_INIT;
        xc_text_addf(&here, "%s%s", path, table->name);
        if (here.failed) {
            out->failed = true;
            return;
        }
        xc_text_addf(out, "%s\n", here.data);
        xc_text_add(&here, table->kind == POL_ITEMS   ? "[]."
                           : table->kind == POL_NAMED ? ".*."
                                                      : ".");
        list_keys(table->members, here.data, out);
        list_keys(table->more, here.data, out);
    }
}

void pol_list_keys(struct xc_text *out)
{
    list_keys(pol_top, "", out);
}
