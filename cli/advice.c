/* Which of the policy's variables would NCCL not take as they are meant? Advice for `xcloud policy check`:
 * a variable that is wrong is no error of the policy's grammar. */
#include <string.h>

#include <xcloud/nccl.h>

#include "../policy/policy.h"
#include "cli.h"

/* NAME: VALUE, or NAME: { value: VALUE, … }; NULL: it has none (set: forbid). */
static const char *value_of(const struct xc_yaml *entry)
{
    const struct xc_yaml *value = entry->kind == XC_YAML_MAP ? xc_yaml_get(entry, "value") : entry;
    if (!value || value->kind != XC_YAML_SCALAR)
        return NULL;
    return strstr(value->text, "${") ? "1" : value->text; /* it becomes a number */
}

static void advise(const struct xc_yaml *env, const char *file, struct xc_text *out)
{
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    for (size_t i = 0; env && i < env->nchildren; i++) {
        const char *value = value_of(&env->children[i]);
        char where[32];
        snprintf(where, sizeof where, "%u", env->children[i].key_line);
        if (value)
            xc_nccl_add(&values, env->children[i].key, value, where);
    }
    struct xc_nccl_input input = {.values = &values};
    if (!values.failed && xc_nccl_lint(&input, &findings, NULL) == 0)
        for (size_t i = 0; i < findings.count; i++) {
            const struct xc_nccl_finding *f = &findings.list[i];
            const struct xc_nccl_value *value = xc_nccl_get(&values, f->name);
            if (!f->error) /* the site has its reasons */
                continue;
            xc_text_addf(out, "%s:%s: %s: %s%s%s\n", file, value ? value->from : "?", f->name,
                         f->what, *f->fix ? "; " : "", f->fix);
        }
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
}

/* A layer (defaults, a class, an entry of jobs) and its profiles. */
static void advise_layer(const struct xc_yaml *layer, const char *file, struct xc_text *out)
{
    advise(xc_yaml_get(layer, "env"), file, out);
    const struct xc_yaml *profiles = xc_yaml_get(layer, "profiles");
    for (size_t i = 0; profiles && i < profiles->nchildren; i++)
        advise(xc_yaml_get(&profiles->children[i], "env"), file, out);
}

void cli_policy_advice(const struct xc_policy *policy, const char *file, struct xc_text *out)
{
    static const char *const lists[] = {"classes", "jobs"};
    const struct xc_yaml *defaults = xc_yaml_get(policy->tree, "defaults");
    if (defaults)
        advise_layer(defaults, file, out);
    for (size_t l = 0; l < XC_COUNT(lists); l++) {
        const struct xc_yaml *list = xc_yaml_get(policy->tree, lists[l]);
        for (size_t i = 0; list && i < list->nchildren; i++)
            advise_layer(&list->children[i], file, out);
    }
}
