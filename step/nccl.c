/* What will NCCL, UCX and NVSHMEM find in this task, who says it, and what is wrong with it? Told to
 * those who ask for `explain`; to all, that its NCCL is a release that the policy does not allow. */
#include <dirent.h>
#include <string.h>

#include <xcloud/nccl.h>

#include "internal.h"

#define FILE_MAX   (64u << 10)
#define VERSION    "XCLOUD_NCCL_VERSION"
#define VALUES_MAX 1000 /* each is looked for among the others, some of the time by root */

/* ---- before anything starts ------------------------------------------------------------------------ */

static void add_environment(const struct xc_step_host *host, const char *from,
                            struct xc_nccl_values *values)
{
    xc_nccl_add_environment(values, host->all ? host->all(host->ctx) : NULL, VALUES_MAX, from);
}

/* What the site's enroot sets in every container; told of only where a task has the same value. */
static void add_enroot(struct xc_step *step)
{
    xc_autofree char *path = step_below(step, "/etc/enroot/environ.d");
    DIR *dir = path ? opendir(path) : NULL;
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        struct xc_text name = XC_TEXT_INIT;
        if (!dot || !xc_streq(dot, ".env"))
            continue;
        xc_text_addf(&name, "%s/%s", path, entry->d_name);
        xc_autofree char *file = xc_text_take(&name);
        size_t length;
        xc_autofree char *text = file ? xc_read_trusted(file, FILE_MAX, &length, NULL) : NULL;
        if (text)
            xc_nccl_add_file(&step->enroot_values, text, length, file);
    }
    closedir(dir);
}

/* xcloud-inside reads the policy's word there: it has no policy of its own. */
static void tell_inside(const struct xc_step *step, const struct xc_step_host *host)
{
    host->unset(host->ctx, VERSION); /* an outer step's */
    if (step->rules->nccl_version && step->environment && !step->observe && !step->words.dry)
        host->set(host->ctx, VERSION, step->rules->nccl_version);
}

void nccl_open(struct xc_step *step, const struct xc_step_host *host)
{
    tell_inside(step, host);
    if (!step->words.explain)
        return;
    add_environment(host, "the job", &step->job_values);
    add_enroot(step);
}

void nccl_close(struct xc_step *step)
{
    xc_nccl_values_clear(&step->job_values);
    xc_nccl_values_clear(&step->enroot_values);
}

/* ---- in the task ------------------------------------------------------------------------------------- */

static void add_conf(const struct xc_step_host *host, struct xc_nccl_values *values)
{
    char conf[4096], home[4096];
    bool has_conf = host->get(host->ctx, "NCCL_CONF_FILE", conf, sizeof conf) == 0;
    bool has_home = host->get(host->ctx, "HOME", home, sizeof home) == 0;
    xc_nccl_add_conf(values, has_conf ? conf : NULL, has_home ? home : NULL);
}

static const struct xc_env_rule *rule_of(const struct xc_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->nenv; i++)
        if (xc_streq(rules->env[i].name, name))
            return &rules->env[i];
    return NULL;
}

/* Ours, when the plan has it with this value; the job's, when it came so; else it has come since. */
static void origin(const struct xc_step *step, const struct xc_plan_task *task,
                   struct xc_nccl_value *value)
{
    const struct xc_nccl_value *job = xc_nccl_get(&step->job_values, value->name);
    const struct xc_nccl_value *enroot = xc_nccl_get(&step->enroot_values, value->name);
    char from[512] = "";
    if (job && xc_streq(job->value, value->value))
        return;
    for (size_t i = 0; task && i < task->nenv && !from[0]; i++)
        if (xc_streq(task->env[i].name, value->name) && task->env[i].value &&
            xc_streq(task->env[i].value, value->value))
            snprintf(from, sizeof from, task->env[i].line ? "policy line %u" : "the plan",
                     task->env[i].line);
    if (xc_streq(value->name, "NCCL_TOPO_FILE") && step->topo.path && !from[0])
        snprintf(from, sizeof from, "topo.file of the policy");
    if (!from[0] && step->topo.container && enroot && xc_streq(enroot->value, value->value))
        snprintf(from, sizeof from, "%.500s", enroot->from);
    const struct xc_env_rule *rule = rule_of(step->rules, value->name);
    value->evidence_missing = xc_starts(from, "policy") && rule && !rule->evidence;
    if (!from[0] && job) { /* it came as another one */
        struct xc_text text = XC_TEXT_INIT;
        xc_text_add(&text, "the job said ");
        xc_text_add_plain(&text, job->value, 256);
        free(value->behind);
        value->behind = xc_text_take(&text);
    }
    char *copy = strdup(from[0]                ? from
                        : step->topo.container ? "the image, or a hook"
                                               : "set on the way");
    if (copy) {
        free(value->from);
        value->from = copy;
    }
}

/* The library by its name or its package: that costs some calls, and the whole of it is not read. */
void nccl_judge(const struct xc_step *step, const struct xc_step_host *host, struct xc_text *out)
{
    struct xc_nccl_library library;
    char text[XC_NCCL_RELEASE_TEXT];
    bool allows = true;
    /* a batch script sets its paths itself; and an image is the same on all nodes */
    if (!step->rules->nccl_version || !step->environment || step->observe ||
        step->kind != XC_STEP_TASKS || (step->topo.container && step->node_index != 0))
        return;
    if (!xc_nccl_library_find(host->get, host->ctx, false, &library) || !library.release ||
        xc_nccl_allows(step->rules->nccl_version, library.release, &allows, NULL) < 0 || allows)
        return;
    xc_text_addf(out, "xcloud-bind: %s: NCCL is %s %s (", step->node_name,
                 xc_nccl_release_text(library.release, text),
                 step->topo.container ? "in the container" : "here");
    xc_text_add_plain(out, library.path, 256);
    xc_text_addf(out, "); the policy wants %s\n", step->rules->nccl_version);
}

static unsigned report_library(const struct xc_step_host *host, struct xc_text *out)
{
    struct xc_nccl_library library;
    char text[XC_NCCL_RELEASE_TEXT];
    if (!xc_nccl_library_find(host->get, host->ctx, true, &library))
        return 0;
    xc_text_add(out, "NCCL's library: ");
    xc_text_add_plain(out, library.path, 256);
    xc_text_addf(out, " (%s)\n",
                 library.release ? xc_nccl_release_text(library.release, text)
                                 : "it does not say its release");
    return library.release;
}

void nccl_report(const struct xc_step *step, const struct xc_step_host *host,
                 const struct xc_plan_task *task, struct xc_text *out)
{
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    add_environment(host, "the job", &values);
    for (size_t i = 0; i < values.count; i++)
        origin(step, task, &values.list[i]);
    add_conf(host, &values);
    xc_nccl_sort(&values);
    struct xc_nccl_input input = {.values = &values,
                                  .release = report_library(host, out),
                                  .node = step->node,
                                  .rules = step->rules,
                                  .cpus = step->place ? &task->cpus : NULL};
    if (!values.failed && xc_nccl_lint(&input, &findings, NULL) == 0) {
        if (values.count > 0)
            xc_text_add(out, "NCCL, UCX and NVSHMEM in rank 0:\n");
        xc_nccl_text(&values, out);
        xc_nccl_findings_text(&findings, out);
    }
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
}
