/* Which rules are in force for this node and this job? Layers of the tree, highest first: the job's
 * entry, the class, the defaults, the top of the file, and what is built in. Mappings merge key by
 * key; every other value, lists too, is taken whole from the highest layer that has it. */
#include <string.h>

#include "policy.h"

enum { JOB, CLASS, DEFAULTS, TOP, LAYERS };

struct layers {
    const struct xc_yaml *node[LAYERS]; /* NULL: this layer says nothing */
    const char *from[LAYERS];           /* "class hgx-h100" */
};

/* Grows an array of n items by one when n is a power of two or zero. */
static void *grown(void *array, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return array;
    return realloc(array, (n ? 2 * n : 1) * size);
}

static int add_origin(struct xc_rules *rules, const char *key, const char *value, const char *from,
                      unsigned line, struct xc_error *error)
{
    struct xc_origin *origins = grown(rules->origins, rules->norigins, sizeof *origins);
    if (!origins)
        return xc_error_nomem(error);
    rules->origins = origins;
    struct xc_origin origin = {
        .key = strdup(key), .value = strdup(value), .from = strdup(from), .line = line};
    origins[rules->norigins++] = origin;
    return origin.key && origin.value && origin.from ? 0 : xc_error_nomem(error);
}

/* ---- values at fixed places ------------------------------------------------------------------ */

static int apply_value(struct pol_reading *r, const struct pol_key *key,
                       const struct layers *layers, const char *path)
{
    struct xc_yaml builtin = {
        .kind = XC_YAML_SCALAR, .quoted = true, .text = (char *)(uintptr_t)key->builtin};
    const struct xc_yaml *node = key->builtin ? &builtin : NULL;
    const char *from = "built in";
    for (int i = LAYERS - 1; i >= 0; i--) {
        const struct xc_yaml *said = xc_yaml_get(layers->node[i], key->name);
        if (said) {
            node = said;
            from = layers->from[i];
        }
    }
    if (!node)
        return 0;
    r->key = key;
    xc_text_free(&r->said);
    if (key->read(r, node) < 0)
        return -1;
    if (r->said.failed)
        return xc_error_nomem(r->error);
    return add_origin(r->rules, path, r->said.data ? r->said.data : "", from, node->line, r->error);
}

static int apply_keys(struct pol_reading *r, const struct pol_key *table,
                      const struct layers *layers, const char *prefix);

static int apply_key(struct pol_reading *r, const struct pol_key *key, const struct layers *layers,
                     const char *prefix)
{
    char path[128];
    snprintf(path, sizeof path, "%s%s", prefix, key->name);
    if (key->kind == POL_VALUE || (key->kind == POL_ITEMS && key->read))
        return apply_value(r, key, layers, path);
    if (key->kind != POL_MAP)
        return 0;
    struct layers inner = *layers;
    for (int i = 0; i < LAYERS; i++)
        inner.node[i] = xc_yaml_get(layers->node[i], key->name);
    snprintf(path, sizeof path, "%s%s.", prefix, key->name);
    return apply_keys(r, key->members, &inner, path);
}

static int apply_keys(struct pol_reading *r, const struct pol_key *table,
                      const struct layers *layers, const char *prefix)
{
    for (; table->name; table++)
        if (apply_key(r, table, layers, prefix) < 0)
            return -1;
    return 0;
}

static bool in_section(const char *name)
{
    for (const struct pol_key *key = pol_section; key->name; key++)
        if (xc_streq(key->name, name))
            return true;
    return false;
}

/* What stands at the top of the file alone: unmatched, arm_after, breaker. */
static int apply_top(struct pol_reading *r, const struct layers *layers)
{
    struct layers top = {.node = {[TOP] = layers->node[TOP]}, .from = {[TOP] = layers->from[TOP]}};
    for (const struct pol_key *key = pol_top; key->name; key++)
        if (!in_section(key->name) && !key->required && !xc_streq(key->name, "defaults") &&
            apply_key(r, key, &top, "") < 0)
            return -1;
    return 0;
}

/* ---- does it apply? -------------------------------------------------------------------------- */

/* Whether one of the texts of node ("one or a list") matches name. */
static bool any_glob(const struct xc_yaml *node, const char *name)
{
    if (!name)
        return false;
    if (node->kind == XC_YAML_SCALAR)
        return xc_glob(node->text, name);
    for (size_t i = 0; i < node->nchildren; i++)
        if (xc_glob(node->children[i].text, name))
            return true;
    return false;
}

static bool any_host(const struct xc_yaml *node, const char *name)
{
    if (!name)
        return false;
    if (node->kind == XC_YAML_SCALAR)
        return xc_hostlist_has(node->text, name, NULL) == 1;
    for (size_t i = 0; i < node->nchildren; i++)
        if (xc_hostlist_has(node->children[i].text, name, NULL) == 1)
            return true;
    return false;
}

static bool any_feature(const struct xc_yaml *node, const char *const *features)
{
    for (; features && *features; features++)
        if (any_glob(node, *features))
            return true;
    return false;
}

/* Every key that is given must match; what is not known matches nothing. */
static bool node_matches(const struct xc_yaml *match, const struct xc_who *who)
{
    for (size_t i = 0; match && i < match->nchildren; i++) {
        const struct xc_yaml *item = &match->children[i];
        bool hit = xc_streq(item->key, "nodes")         ? any_host(item, who->node)
                   : xc_starts(item->key, "feature")    ? any_feature(item, who->features)
                   : xc_streq(item->key, "product")     ? any_glob(item, who->product)
                   : xc_streq(item->key, "vendor")      ? any_glob(item, who->vendor)
                   : xc_streq(item->key, "environment") ? any_glob(item, who->environment)
                                                        : false;
        if (!hit)
            return false;
    }
    return true;
}

static bool job_matches(const struct xc_yaml *when, const struct xc_job_facts *job)
{
    for (size_t i = 0; when && i < when->nchildren; i++) {
        const struct xc_yaml *item = &when->children[i];
        if (!job)
            return false;
        bool hit = xc_streq(item->key, "job_nodes")
                       ? job->job_nodes > 0 && pol_compare_holds(item->text, job->job_nodes)
                   : xc_streq(item->key, "partition")   ? any_glob(item, job->partition)
                   : xc_streq(item->key, "account")     ? any_glob(item, job->account)
                   : xc_streq(item->key, "qos")         ? any_glob(item, job->qos)
                   : xc_streq(item->key, "reservation") ? any_glob(item, job->reservation)
                   : xc_streq(item->key, "user")        ? any_glob(item, job->user)
                   : xc_streq(item->key, "job_name")    ? any_glob(item, job->job_name)
                                                        : false;
        if (!hit)
            return false;
    }
    return true;
}

static const struct xc_yaml *first_class(const struct xc_policy *policy, const struct xc_who *who)
{
    const struct xc_yaml *classes = xc_yaml_get(policy->tree, "classes");
    for (size_t i = 0; classes && i < classes->nchildren; i++)
        if (node_matches(xc_yaml_get(&classes->children[i], "match"), who))
            return &classes->children[i];
    return NULL;
}

static const struct xc_yaml *first_job(const struct xc_policy *policy,
                                       const struct xc_job_facts *job, size_t *index)
{
    const struct xc_yaml *jobs = xc_yaml_get(policy->tree, "jobs");
    for (*index = 0; job && jobs && *index < jobs->nchildren; ++*index)
        if (job_matches(xc_yaml_get(&jobs->children[*index], "when"), job))
            return &jobs->children[*index];
    return NULL;
}

/* ---- environment ----------------------------------------------------------------------------- */

static int add_env(struct xc_rules *rules, const struct xc_yaml *entry, const char *from,
                   struct xc_error *error)
{
    static const char *const sets[] = {"default", "force", "forbid", "warn"};
    const struct xc_yaml *value = entry->kind == XC_YAML_MAP ? xc_yaml_get(entry, "value") : entry;
    const char *word = xc_yaml_text(entry, "set"), *evidence = xc_yaml_text(entry, "evidence");
    enum xc_env_set set = XC_ENV_DEFAULT;
    for (size_t i = 0; word && i < XC_COUNT(sets); i++)
        if (xc_streq(sets[i], word))
            set = (enum xc_env_set)i;
    if (!value || xc_yaml_is_null(value))
        set = XC_ENV_FORBID;
    struct xc_env_rule *env = grown(rules->env, rules->nenv, sizeof *env);
    if (!env)
        return xc_error_nomem(error);
    rules->env = env;
    struct xc_env_rule rule = {.name = strdup(entry->key),
                               .value = set == XC_ENV_FORBID ? NULL : strdup(value->text),
                               .evidence = evidence ? strdup(evidence) : NULL,
                               .set = set,
                               .line = entry->key_line};
    env[rules->nenv++] = rule;
    if (!rule.name || (set != XC_ENV_FORBID && !rule.value) || (evidence && !rule.evidence))
        return xc_error_nomem(error);
    xc_autotext struct xc_text key = XC_TEXT_INIT, said = XC_TEXT_INIT;
    xc_text_addf(&key, "env.%s", rule.name);
    xc_text_addf(&said, "%s%s(%s)", rule.value ? rule.value : "", rule.value ? " " : "", sets[set]);
    if (key.failed || said.failed)
        return xc_error_nomem(error);
    return add_origin(rules, key.data, said.data, from, rule.line, error);
}

/* Adds the entries of one layer that no higher layer had and whose when: holds. */
static int add_env_layer(struct xc_rules *rules, const struct xc_yaml *env,
                         const struct xc_job_facts *job, const char *from, struct xc_error *error)
{
    for (size_t i = 0; env && i < env->nchildren; i++) {
        const struct xc_yaml *entry = &env->children[i];
        bool there = false;
        for (size_t j = 0; j < rules->nenv; j++)
            there |= xc_streq(rules->env[j].name, entry->key);
        if (!there && job_matches(xc_yaml_get(entry, "when"), job) &&
            add_env(rules, entry, from, error) < 0)
            return -1;
    }
    return 0;
}

static int env_by_name(const void *a, const void *b)
{
    return strcmp(((const struct xc_env_rule *)a)->name, ((const struct xc_env_rule *)b)->name);
}

static const struct xc_yaml *profile_of(const struct layers *layers, int layer, const char *profile)
{
    return xc_yaml_get(xc_yaml_get(layers->node[layer], "profiles"), profile);
}

static int unknown_profile(const struct layers *layers, const char *profile, struct xc_error *error)
{
    xc_autotext struct xc_text known = XC_TEXT_INIT;
    for (int i = CLASS; i <= DEFAULTS; i++) {
        const struct xc_yaml *profiles = xc_yaml_get(layers->node[i], "profiles");
        for (size_t j = 0; profiles && j < profiles->nchildren; j++)
            xc_text_addf(&known, "%s%s", known.length ? ", " : "", profiles->children[j].key);
    }
    return xc_error_set(error, XC_EINPUT, NULL,
                        "there is no profile \"%.64s\" for this node; the policy has %s", profile,
                        known.data ? known.data : "none");
}

static int apply_env(struct xc_rules *rules, const struct layers *layers,
                     const struct xc_job_facts *job, const char *profile, struct xc_error *error)
{
    if (profile && *profile) {
        char from[XC_PROFILE_MAX + 16];
        snprintf(from, sizeof from, "profile %s", profile);
        if (!profile_of(layers, CLASS, profile) && !profile_of(layers, DEFAULTS, profile))
            return unknown_profile(layers, profile, error);
        for (int i = CLASS; i <= DEFAULTS; i++)
            if (add_env_layer(rules, xc_yaml_get(profile_of(layers, i, profile), "env"), job, from,
                              error) < 0)
                return -1;
    }
    for (int i = JOB; i <= DEFAULTS; i++)
        if (add_env_layer(rules, xc_yaml_get(layers->node[i], "env"), job, layers->from[i], error) <
            0)
            return -1;
    if (rules->nenv)
        qsort(rules->env, rules->nenv, sizeof *rules->env, env_by_name);
    return 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static struct xc_check_rule *find_check(struct xc_rules *rules, const char *id)
{
    for (size_t i = 0; i < rules->nchecks; i++)
        if (xc_streq(rules->checks[i].id, id))
            return &rules->checks[i];
    return NULL;
}

static struct xc_check_rule *new_check(struct xc_rules *rules, const struct xc_yaml *entry)
{
    struct xc_check_rule *checks = grown(rules->checks, rules->nchecks, sizeof *checks);
    if (!checks)
        return NULL;
    rules->checks = checks;
    struct xc_check_rule *check = &checks[rules->nchecks++];
    *check = (struct xc_check_rule){
        .id = strdup(entry->key), .on_fail = XC_FAIL_WARN, .line = entry->key_line};
    return check->id ? check : NULL;
}

/* One key of a check; on_fail is judged, the others are kept as text. */
static int set_check_key(struct pol_reading *r, struct xc_check_rule *check, const char *key,
                         const struct xc_yaml *node, const char *from)
{
    bool value;
    int on_fail;
    xc_text_free(&r->said);
    if (xc_streq(key, "on_fail")) {
        if (pol_choose(r, node, pol_on_fails, NULL, "ignore", &on_fail) < 0)
            return -1;
        check->on_fail = (enum xc_on_fail)on_fail;
    } else {
        bool is_bool = !node->quoted && xc_yaml_is_bool(node, &value);
        xc_text_add(&r->said, !is_bool ? node->text : value ? "true" : "false");
        char **keys = grown(check->keys, check->nkeys, sizeof *keys);
        check->keys = keys ? keys : check->keys;
        char **values = grown(check->values, check->nkeys, sizeof *values);
        check->values = values ? values : check->values;
        if (!keys || !values || r->said.failed)
            return xc_error_nomem(r->error);
        keys[check->nkeys] = strdup(key);
        values[check->nkeys] = strdup(r->said.data);
        check->nkeys++;
        if (!keys[check->nkeys - 1] || !values[check->nkeys - 1])
            return xc_error_nomem(r->error);
    }
    char path[160];
    snprintf(path, sizeof path, "checks.%s.%s", check->id, key);
    return add_origin(r->rules, path, r->said.data ? r->said.data : "", from, node->line, r->error);
}

/* What each layer says about a check, the highest first; a key counts once. */
static int fill_check(struct pol_reading *r, const struct layers *layers,
                      struct xc_check_rule *check)
{
    bool has_on_fail = false;
    for (int i = CLASS; i <= DEFAULTS; i++) {
        const struct xc_yaml *entry =
            xc_yaml_get(xc_yaml_get(layers->node[i], "checks"), check->id);
        size_t count = !entry ? 0 : entry->kind == XC_YAML_MAP ? entry->nchildren : 1;
        for (size_t j = 0; j < count; j++) {
            bool map = entry->kind == XC_YAML_MAP;
            const struct xc_yaml *node = map ? &entry->children[j] : entry;
            const char *key = map ? node->key : "on_fail";
            bool there = xc_streq(key, "on_fail") && has_on_fail;
            for (size_t k = 0; k < check->nkeys; k++)
                there |= xc_streq(check->keys[k], key);
            if (there)
                continue;
            if (set_check_key(r, check, key, node, layers->from[i]) < 0)
                return -1;
            has_on_fail |= xc_streq(key, "on_fail");
        }
    }
    return 0;
}

static int check_by_id(const void *a, const void *b)
{
    return strcmp(((const struct xc_check_rule *)a)->id, ((const struct xc_check_rule *)b)->id);
}

static int apply_checks(struct pol_reading *r, const struct layers *layers)
{
    const struct xc_yaml *skip = xc_yaml_get(layers->node[JOB], "checks");
    r->rules->checks_skip = skip;
    if (skip && add_origin(r->rules, "checks", "skip", layers->from[JOB], skip->line, r->error) < 0)
        return -1;
    for (int i = CLASS; i <= DEFAULTS; i++) {
        const struct xc_yaml *checks = xc_yaml_get(layers->node[i], "checks");
        for (size_t j = 0; checks && j < checks->nchildren; j++)
            if (!find_check(r->rules, checks->children[j].key) &&
                !new_check(r->rules, &checks->children[j]))
                return xc_error_nomem(r->error);
    }
    for (size_t i = 0; i < r->rules->nchecks; i++)
        if (fill_check(r, layers, &r->rules->checks[i]) < 0)
            return -1;
    if (r->rules->nchecks)
        qsort(r->rules->checks, r->rules->nchecks, sizeof *r->rules->checks, check_by_id);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int apply_all(struct pol_reading *r, const struct layers *layers)
{
    return apply_keys(r, pol_section, layers, "") < 0 || apply_top(r, layers) < 0 ||
                   apply_checks(r, layers) < 0
               ? -1
               : 0;
}

/* The host lists that the class matches by. */
static int copy_class_nodes(struct xc_rules *rules, const struct xc_yaml *class_,
                            struct xc_error *error)
{
    const struct xc_yaml *nodes = xc_yaml_get(xc_yaml_get(class_, "match"), "nodes");
    if (!nodes)
        return 0;
    bool one = nodes->kind == XC_YAML_SCALAR;
    size_t count = one ? 1 : nodes->nchildren;
    rules->class_nodes = calloc(count + 1, sizeof *rules->class_nodes);
    for (size_t i = 0; rules->class_nodes && i < count; i++) {
        rules->class_nodes[i] = strdup(one ? nodes->text : nodes->children[i].text);
        if (!rules->class_nodes[i])
            return xc_error_nomem(error);
    }
    return rules->class_nodes ? 0 : xc_error_nomem(error);
}

static bool ignores_unmatched(const struct xc_policy *policy)
{
    const struct xc_yaml *node = xc_yaml_get(policy->tree, "unmatched");
    bool value = true;
    return node && (xc_streq(node->text, "ignore") || (xc_yaml_is_bool(node, &value) && !value));
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct xc_origin *)a)->key, ((const struct xc_origin *)b)->key);
}

/* The rules when the class and the job's entry are known; either may be NULL. */
static int resolve(const struct xc_policy *policy, const struct xc_yaml *class_,
                   const struct xc_yaml *entry, size_t index, const struct xc_job_facts *job,
                   const char *profile, struct xc_rules **out, struct xc_error *error)
{
    const char *name = xc_yaml_text(class_, "name");
    char from_class[XC_PROFILE_MAX + 16] = "", from_job[32];
    snprintf(from_class, sizeof from_class, "class %s", name ? name : "");
    snprintf(from_job, sizeof from_job, "jobs[%zu]", index);
    struct layers layers = {
        .node = {entry, class_, xc_yaml_get(policy->tree, "defaults"), policy->tree},
        .from = {from_job, from_class, "defaults", "the top"},
    };
    struct xc_rules *rules = calloc(1, sizeof *rules);
    if (!rules)
        return xc_error_nomem(error);
    struct pol_reading r = {.name = policy->name, .rules = rules, .error = error};
    rules->class_name = name ? strdup(name) : NULL;
    rules->unmatched_warn = !class_ && xc_policy_nclasses(policy) > 0 && !ignores_unmatched(policy);
    int rc = name && !rules->class_name ? xc_error_nomem(error) : apply_all(&r, &layers);
    if (rc == 0)
        rc = copy_class_nodes(rules, class_, error);
    if (rc == 0)
        rc = apply_env(rules, &layers, job, profile, error);
    xc_text_free(&r.said);
    if (rc < 0) {
        xc_rules_free(rules);
        return -1;
    }
    qsort(rules->origins, rules->norigins, sizeof *rules->origins, by_key);
    *out = rules;
    return 0;
}

int xc_policy_resolve(const struct xc_policy *policy, const struct xc_who *who,
                      const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
                      struct xc_error *error)
{
    size_t index;
    const struct xc_yaml *entry = first_job(policy, job, &index);
    return resolve(policy, first_class(policy, who), entry, index, job, profile, out, error);
}

const struct xc_yaml *pol_class(const struct xc_policy *policy, const char *name)
{
    const struct xc_yaml *classes = xc_yaml_get(policy->tree, "classes");
    for (size_t i = 0; classes && i < classes->nchildren; i++)
        if (xc_streq(xc_yaml_text(&classes->children[i], "name"), name))
            return &classes->children[i];
    return NULL;
}

int pol_resolve_class(const struct xc_policy *policy, const char *name, struct xc_rules **out,
                      struct xc_error *error)
{
    return resolve(policy, name ? pol_class(policy, name) : NULL, NULL, 0, NULL, NULL, out, error);
}

struct xc_rules *xc_rules_builtin(void)
{
    struct layers nothing = {0};
    struct xc_rules *rules = calloc(1, sizeof *rules);
    if (!rules)
        return NULL;
    struct pol_reading r = {.name = "built in", .rules = rules};
    int rc = apply_all(&r, &nothing);
    xc_text_free(&r.said);
    if (rc < 0) {
        xc_rules_free(rules);
        return NULL;
    }
    qsort(rules->origins, rules->norigins, sizeof *rules->origins, by_key);
    return rules;
}
