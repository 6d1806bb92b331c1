/* Private to spank/: the plugin's hooks, split by where they run. */
#ifndef XCLOUD_SPANK_PLUGIN_H
#define XCLOUD_SPANK_PLUGIN_H

#include <slurm/spank.h>

#include <xcloud/step.h>

/* The arguments on the plugstack.conf line: root's alone. */
struct plugin_args {
    const char *policy, *machine;
    bool mode_off, on_error_refuse, kill_on_refuse;
};

/* The plugin's only state: one process loads it for one step. */
struct plugin {
    struct plugin_args args;
    bool option_given;
    char *option; /* NULL: given without a value */
    /* slurmstepd */
    void *library;
    const struct xc_step_api *api;
    struct xc_step *step;
    char trouble[512]; /* why the library is not there; told by local task 0 */
};
extern struct plugin plugin;

/* args.c: policy=PATH machine=DIR mode=off on_error=warn|refuse kill_on_refuse. An unknown one is
 * logged and passed over: a word too much must not stop a cluster. */
void args_parse(int count, char **values, struct plugin_args *args);

/* submit.c: srun, sbatch, salloc, as the user. */
int submit_init(void);
int submit_option(const char *value);

/* stepd.c: slurmstepd. */
void stepd_open(spank_t spank);
void stepd_post_fork(spank_t spank);
void stepd_task_privileged(spank_t spank);
void stepd_task_init(spank_t spank); /* does not return when the task is refused */
void stepd_close(spank_t spank);

#endif
