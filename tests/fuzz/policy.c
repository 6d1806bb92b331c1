/* Any bytes as a policy: it loads, or says where it does not; what loads gives rules for any node. */
#include <stdint.h>
#include <stdlib.h>

#include <xcloud/check.h>
#include <xcloud/policy.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const char *const fuzz_corpus[];
const char *const fuzz_corpus[] = {"tests/policy/good", "tests/policy/bad", "etc/policy", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xc_policy *policy = NULL;
    struct xc_error error = {0};
    if (xc_policy_parse((const char *)data, size, "policy", &policy, &error) < 0) {
        if (!error.message[0] || policy)
            abort();
        return 0;
    }
    const struct xc_who who = {.node = "gpu001", .product = "DGXH100", .environment = "bare"};
    const struct xc_job_facts job = {.partition = "dev", .job_nodes = 8};
    const struct xc_job_facts *jobs[] = {NULL, &job};
    for (size_t i = 0; i < XC_COUNT(jobs); i++) {
        struct xc_rules *rules = NULL;
        if (xc_policy_resolve(policy, &who, jobs[i], "big-messages", &rules, &error) == 0)
            (void)xc_check_validate(rules, "policy", &error);
        xc_rules_free(rules);
    }
    xc_policy_free(policy);
    return 0;
}
