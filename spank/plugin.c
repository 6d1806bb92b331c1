/* xcloud_bind.so: Slurm's hooks, dispatched by where they run.
 *
 * It is loaded by srun, sbatch, salloc, slurmd and every slurmstepd, so it needs libc alone; what
 * does the work is loaded in slurmstepd only. Installed as `optional`, after pyxis, every hook returns
 * 0: a failing hook would drain nodes (sbatch) or go unnoticed (srun). A refusal is the task's own
 * exit, in task_init.
 */
#include <string.h>

#include "plugin.h"

SPANK_PLUGIN(xcloud_bind, 1);

struct plugin plugin;

static bool submitting(void)
{
    return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

/* Called once or twice (list and environment), the last value wins. Without a value Slurm gives NULL,
 * "" or "(null)", depending on the way it came. */
static int on_option(int val, const char *value, int remote)
{
    (void)val;
    free(plugin.option);
    plugin.option = value ? strdup(value) : NULL;
    plugin.option_given = true;
    return remote || !submitting() ? 0 : submit_option(value);
}

static struct spank_option option = {
    (char *)"xcloud-bind",
    (char *)"[words]",
    (char *)"bind each task to the cores, memory and NICs near its GPU; --xcloud-bind=help lists "
            "the words",
    2, /* the value is optional */
    0,
    on_option,
};

int slurm_spank_init(spank_t spank, int count, char **values)
{
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    args_parse(count, values, &plugin.args);
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
        slurm_error("xcloud-bind: another plugin has taken --xcloud-bind");
    return submitting() ? submit_init() : 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    if (spank_context() == S_CTX_REMOTE)
        stepd_open(spank);
    return 0;
}

int slurm_spank_task_post_fork(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    stepd_post_fork(spank);
    return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    stepd_task_privileged(spank);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    stepd_task_init(spank);
    return 0;
}

int slurm_spank_exit(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    if (spank_context() == S_CTX_REMOTE)
        stepd_close(spank);
    free(plugin.option);
    plugin = (struct plugin){0};
    return 0;
}
