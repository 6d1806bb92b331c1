/* Which variables does a task get, which stay the user's, and how is our own hand known again?
 *
 * XCLOUD_ENV lists what we set with a hash of each value. An inner srun inherits our variables with
 * the job's environment: those that still have our value are ours and computed anew on its node;
 * those that somebody has changed since are the user's.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define VALUE_MAX 131072 /* the kernel takes no longer one (MAX_ARG_STRLEN): a value always fits */

static uint64_t value_hash(const char *value)
{
    return xc_hash64(value, strlen(value));
}

void env_forget_outer(const struct xc_step_host *host)
{
    xc_autofree char *list = malloc(VALUE_MAX), *value = malloc(VALUE_MAX);
    if (!list || !value || host->get(host->ctx, "XCLOUD_ENV", list, VALUE_MAX) < 0)
        return;
    char *rest = list;
    for (char *entry; (entry = strsep(&rest, ","));) {
        char *equals = strchr(entry, '=');
        if (!equals)
            continue;
        *equals = '\0';
        char hash[17];
        if (host->get(host->ctx, entry, value, VALUE_MAX) < 0)
            continue;
        snprintf(hash, sizeof hash, "%016" PRIx64, value_hash(value));
        if (xc_streq(hash, equals + 1))
            host->unset(host->ctx, entry);
    }
    host->unset(host->ctx, "XCLOUD_ENV");
}

struct writer {
    const struct xc_step_host *host;
    struct xc_text ours; /* XCLOUD_ENV */
    struct xc_text *report;
    char *have; /* VALUE_MAX bytes: too many for a stack that the user may have made small */
    bool set;
};

static void assign(struct writer *writer, const char *name, const char *value)
{
    if (!writer->set)
        return;
    if (writer->host->set(writer->host->ctx, name, value) < 0) {
        xc_text_addf(writer->report, "%s: cannot be set\n", name);
        return;
    }
    xc_text_addf(&writer->ours, "%s%s=%016" PRIx64, writer->ours.length ? "," : "", name,
                 value_hash(value));
}

/* One variable by its rule; the line says what became of it. */
static void apply_one(struct writer *writer, const struct xc_plan_env *env)
{
    char *have = writer->have;
    bool present = writer->host->get(writer->host->ctx, env->name, have, VALUE_MAX) == 0;
    bool same = present && xc_streq(have, env->value);
    char from[48] = "the plan";
    if (env->line)
        snprintf(from, sizeof from, "policy line %u", env->line);
    switch (env->set) {
    case XC_ENV_FORBID:
        if (present && writer->set)
            writer->host->unset(writer->host->ctx, env->name);
        if (present)
            xc_text_addf(writer->report, "%s=%s taken away (%s)\n", env->name, have, from);
        return;
    case XC_ENV_WARN:
        if (!same)
            xc_text_addf(writer->report, "%s=%s where %s wants %s\n", env->name,
                         present ? have : "(unset)", from, env->value);
        return;
    case XC_ENV_DEFAULT:
        if (present) {
            xc_text_addf(writer->report, "%s=%s kept, the job's own (%s: %s)\n", env->name, have,
                         from, env->value);
            return;
        }
        break;
    case XC_ENV_FORCE:
        break;
    }
    assign(writer, env->name, env->value);
    xc_text_addf(writer->report, "%s=%s (%s%s%s)\n", env->name, env->value, from,
                 present && !same ? ", was " : "", present && !same ? have : "");
}

void env_apply(const struct xc_step_host *host, const struct xc_plan_task *task, bool placed,
               const char *exec_path, bool set, struct xc_text *report)
{
    xc_autofree char *have = malloc(VALUE_MAX);
    struct writer writer = {.host = host, .report = report, .have = have, .set = set};
    bool workers = false;
    if (!have) {
        xc_text_add(report, "no memory for variables: none is set\n");
        return;
    }
    for (size_t i = 0; i < task->nenv; i++) {
        bool shares = xc_streq(task->env[i].name, "XCLOUD_PLAN");
        if (shares && !placed)
            continue;
        workers |= shares;
        apply_one(&writer, &task->env[i]);
    }
    /* torchrun starts its workers through PYTHON_EXEC: xcloud-exec binds each and goes on */
    if (workers && exec_path && access(exec_path, X_OK) == 0 &&
        host->get(host->ctx, "PYTHON_EXEC", have, VALUE_MAX) < 0)
        assign(&writer, "PYTHON_EXEC", exec_path);
    xc_autofree char *ours = xc_text_take(&writer.ours);
    if (set && ours && *ours)
        host->set(host->ctx, "XCLOUD_ENV", ours);
}
