/* What is a policy? A checked tree, its hash and its name; and how rules are freed. */
#include <inttypes.h>
#include <string.h>

#include "policy.h"

int xc_policy_parse(const char *text, size_t length, const char *name, struct xc_policy **out,
                    struct xc_error *error)
{
    if (length > XC_POLICY_LIMIT)
        return xc_error_set(error, XC_EINPUT, name, "it is larger than %u bytes", XC_POLICY_LIMIT);
    struct xc_policy *policy = calloc(1, sizeof *policy);
    char *copy = strdup(name);
    if (!policy || !copy) {
        free(policy);
        free(copy);
        return xc_error_nomem(error);
    }
    policy->name = copy;
    snprintf(policy->hash, sizeof policy->hash, "%016" PRIx64, xc_hash64(text, length));
    if (xc_yaml_parse(text, length, name, &policy->tree, error) < 0 ||
        pol_check(name, policy->tree, error) < 0) {
        xc_policy_free(policy);
        return -1;
    }
    *out = policy;
    return 0;
}

void xc_policy_free(struct xc_policy *policy)
{
    if (!policy)
        return;
    xc_yaml_free(policy->tree);
    free(policy->name);
    free(policy);
}

const char *xc_policy_hash(const struct xc_policy *policy)
{
    return policy->hash;
}

enum xc_mode xc_policy_mode(const struct xc_policy *policy)
{
    const char *mode = xc_yaml_text(policy->tree, "mode");
    return xc_streq(mode, "enforce") ? XC_MODE_ENFORCE
           : xc_streq(mode, "bind")  ? XC_MODE_BIND
                                     : XC_MODE_OBSERVE;
}

size_t xc_policy_nclasses(const struct xc_policy *policy)
{
    const struct xc_yaml *classes = xc_yaml_get(policy->tree, "classes");
    return classes ? classes->nchildren : 0;
}

const char *xc_policy_class_name(const struct xc_policy *policy, size_t index)
{
    if (index >= xc_policy_nclasses(policy))
        return NULL;
    return xc_yaml_text(&xc_yaml_get(policy->tree, "classes")->children[index], "name");
}

int xc_cpulist_resolve(const struct xc_cpulist *list, const struct xc_set *online,
                       struct xc_set *out, const char *where, struct xc_error *error)
{
    xc_set_clear(out);
    if (!list->text)
        return 0;
    if (xc_streq(list->text, "all")) {
        xc_set_copy(out, online);
        return 0;
    }
    bool not_ = list->text[0] == '!';
    xc_autoset struct xc_set named = XC_SET_EMPTY;
    if (xc_set_parse_list(&named, list->text + not_, where, error) < 0)
        return -1;
    if (not_) {
        xc_set_copy(out, online);
        xc_set_andnot(out, &named);
    } else {
        xc_set_copy(out, &named);
    }
    return 0;
}

static void free_env(struct xc_rules *rules)
{
    for (size_t i = 0; i < rules->nenv; i++) {
        free(rules->env[i].name);
        free(rules->env[i].value);
        free(rules->env[i].evidence);
    }
    free(rules->env);
}

static void free_checks(struct xc_rules *rules)
{
    for (size_t i = 0; i < rules->nchecks; i++) {
        struct xc_check_rule *check = &rules->checks[i];
        for (size_t j = 0; j < check->nkeys; j++) {
            free(check->keys[j]);
            free(check->values[j]);
        }
        free(check->keys);
        free(check->values);
        free(check->id);
    }
    free(rules->checks);
}

void xc_rules_free(struct xc_rules *rules)
{
    if (!rules)
        return;
    free(rules->class_name);
    free(rules->cpus.housekeeping_list.text);
    free(rules->cpus.priority_list.text);
    xc_names_free(&rules->nics.pci);
    xc_names_free(&rules->nics.names);
    xc_names_free(&rules->nics.not_);
    xc_names_free(&rules->nics.export_);
    free(rules->topo.file);
    pol_map_free(rules->topo.map, rules->topo.nmap);
    free(rules->nccl_version);
    free(rules->programs.textfile);
    free(rules->checks_root);
    free(rules->breaker.directory);
    xc_names_free(&rules->resume.checks);
    xc_names_free(&rules->class_nodes);
    free_env(rules);
    free_checks(rules);
    for (size_t i = 0; i < rules->norigins; i++) {
        free(rules->origins[i].key);
        free(rules->origins[i].value);
        free(rules->origins[i].from);
    }
    free(rules->origins);
    free(rules);
}
