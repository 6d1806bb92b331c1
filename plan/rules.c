/* Which rules hold on this machine? The policy's answer for what the node says of itself. */
#include <xcloud/plan.h>

int xc_plan_rules(const struct xc_policy *policy, const struct xc_node *node, const char *name,
                  const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
                  struct xc_error *error)
{
    struct xc_who who = {.node = name};
    xc_autonames char **features = node ? xc_names_split(node->features) : NULL;
    if (node) {
        who.features = (const char *const *)features;
        who.product = node->product;
        who.vendor = node->vendor;
        who.environment = xc_environment_name(node->environment);
    }
    return xc_policy_resolve(policy, &who, job, profile, out, error);
}
