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

#define OURS_MAX  1000   /* variables of an outer step's: more than we ever set */
#define SHOWN_MAX 1024   /* bytes of a value in a report */
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
    char *rest = list, *entry;
    for (unsigned i = 0; i < OURS_MAX && (entry = strsep(&rest, ",")); i++) {
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

int env_begin(struct env_writer *writer, const struct xc_step_host *host, bool set,
              struct xc_text *report)
{
    *writer = (struct env_writer){.host = host, .report = report, .set = set};
    writer->have = malloc(VALUE_MAX);
    if (!writer->have)
        xc_text_add(report, "no memory for variables: none is set\n");
    return writer->have ? 0 : -1;
}

const char *env_get(struct env_writer *writer, const char *name)
{
    return writer->host->get(writer->host->ctx, name, writer->have, VALUE_MAX) == 0 ? writer->have
                                                                                    : NULL;
}

void env_assign(struct env_writer *writer, const char *name, const char *value)
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

/* A name and a value, which may be anybody's: printable. */
static void report_value(struct env_writer *writer, const char *name, const char *before,
                         const char *value)
{
    xc_text_addf(writer->report, "%s%s", name, before);
    xc_text_add_plain(writer->report, value, SHOWN_MAX);
}

/* One variable by its rule; the line says what became of it. */
static void apply_one(struct env_writer *writer, const struct xc_plan_env *env)
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
        if (present) {
            report_value(writer, env->name, "=", have);
            xc_text_addf(writer->report, " taken away (%s)\n", from);
        }
        return;
    case XC_ENV_WARN:
        if (!same) {
            report_value(writer, env->name, "=", present ? have : "(unset)");
            xc_text_addf(writer->report, " where %s wants %s\n", from, env->value);
        }
        return;
    case XC_ENV_DEFAULT:
        if (present) {
            report_value(writer, env->name, "=", have);
            xc_text_addf(writer->report, " kept, the job's own (%s: %s)\n", from, env->value);
            return;
        }
        break;
    case XC_ENV_FORCE:
        break;
    }
    env_assign(writer, env->name, env->value);
    xc_text_addf(writer->report, "%s=%s (%s", env->name, env->value, from);
    if (present && !same)
        report_value(writer, "", ", was ", have);
    xc_text_add(writer->report, ")\n");
}

void env_plan(struct env_writer *writer, const struct xc_plan_task *task, bool placed,
              const char *exec_path, const char *except)
{
    bool workers = false;
    for (size_t i = 0; i < task->nenv; i++) {
        bool shares = xc_streq(task->env[i].name, "XCLOUD_PLAN");
        if ((shares && !placed) || (except && xc_streq(task->env[i].name, except)))
            continue;
        workers |= shares;
        apply_one(writer, &task->env[i]);
    }
    /* torchrun starts its workers through PYTHON_EXEC: xcloud-exec binds each and goes on */
    if (workers && exec_path && access(exec_path, X_OK) == 0 && !env_get(writer, "PYTHON_EXEC"))
        env_assign(writer, "PYTHON_EXEC", exec_path);
}

void env_end(struct env_writer *writer)
{
    xc_autofree char *ours = xc_text_take(&writer->ours);
    if (writer->set && ours && *ours)
        writer->host->set(writer->host->ctx, "XCLOUD_ENV", ours);
    free(writer->have);
    writer->have = NULL;
}
