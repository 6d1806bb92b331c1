/* step: what happens on a node between the launch of a step and its first instruction.
 *
 * The engine behind the plugin's hooks, in a library of its own (libxcloud-step.so) that the plugin
 * loads in slurmstepd alone. It knows no Slurm header: the plugin hands it what Slurm says. Also the
 * record of a step, which the engine writes and `xcloud job` reads.
 *
 * Which hook does what, and why there: facts of Slurm 22.05 to 26.05, see doc/DESIGN.md.
 */
#ifndef XCLOUD_STEP_H
#define XCLOUD_STEP_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/plan.h>
#include <xcloud/policy.h>

/* ---- the engine, as the plugin sees it ------------------------------------------------------------ */

/* Raised with every change of anything below down to the next rule; the plugin refuses another. */
#define XC_STEP_ABI 2

enum xc_step_kind {
    XC_STEP_TASKS,       /* srun: one task or more on this node */
    XC_STEP_BATCH,       /* the batch script */
    XC_STEP_INTERACTIVE, /* salloc's shell on the node */
    XC_STEP_EXTERN       /* adopted processes (PrologFlags=Contain); has no task of its own */
};

/* What Slurm does for the engine. ctx is valid during the one call it is passed to. */
struct xc_step_host {
    void *ctx;
    /* 0, or -1 when the step's environment lacks name or the value does not fit. */
    int (*get)(void *ctx, const char *name, char *buffer, size_t size);
    int (*set)(void *ctx, const char *name, const char *value);
    int (*unset)(void *ctx, const char *name);
    /* All of the step's environment as it is now, "NAME=VALUE", NULL-terminated; NULL: not known. May
     * itself be NULL. */
    char **(*all)(void *ctx);
    /* A line for slurmd's log. */
    void (*log)(const char *line);
};

struct xc_step_start {
    const char *node_name; /* Slurm's, from slurmstepd's own environment */
    uint32_t job_id, step_id;
    enum xc_step_kind kind;
    uint32_t uid;
    unsigned ntasks;     /* on this node; 0 in the extern step */
    unsigned nnodes;     /* of the job step */
    unsigned node_index; /* of this node in the step: 0 speaks */
    bool option_given;
    const char *option;      /* the option's value, NULL without one */
    const char *program;     /* argv[0] of the step, NULL unknown */
    /* the plugin's arguments in plugstack.conf: root's alone */
    const char *policy;  /* policy=PATH, NULL: the usual places */
    const char *machine; /* machine=DIR: everything about the node is read below it; NULL: "/" */
    bool on_error_refuse;
};

enum xc_verdict {
    XC_GO,
    XC_REFUSE, /* end the task with status 1; why has been said */
    XC_DONE    /* dry: end the task with status 0 */
};

struct xc_step; /* opaque */

struct xc_step_api {
    unsigned abi; /* XC_STEP_ABI */
    /* init_post_opt, root. Never fails a step: what goes wrong is kept and told by task 0. NULL
     * without memory. */
    struct xc_step *(*open)(const struct xc_step_start *start, const struct xc_step_host *host);
    /* task_post_fork, root, in slurmstepd; local_id XC_NONE and pid 0 in the extern step. */
    void (*post_fork)(struct xc_step *step, const struct xc_step_host *host, int local_id,
                      pid_t pid);
    /* task_init_privileged, root, in the task's own process, on the host: in_container says that
     * task_init will be inside a container that Slurm's container plugin has been asked for. */
    void (*task_privileged)(struct xc_step *step, int local_id, bool in_container);
    /* task_init, the user, in the task's own process, inside its container. */
    enum xc_verdict (*task_init)(struct xc_step *step, const struct xc_step_host *host,
                                 int local_id);
    /* exit, root. Frees step. */
    void (*close)(struct xc_step *step, const struct xc_step_host *host);
};

/* The library's only symbol: NULL when it speaks another ABI. */
const struct xc_step_api *xc_step_api(unsigned abi);
typedef const struct xc_step_api *xc_step_api_fn(unsigned abi);

/* ---- marks --------------------------------------------------------------------------------------------- */

/* What xcloud-prolog leaves for the steps of a job: the file PREFIX/run/xcloud/refuse/JOB, root's, with
 * lines "refuse TEXT" (its tasks end with 1, and say TEXT) and "warn TEXT" (task 0 says it).
 * xcloud-epilog takes it away. */
#define XC_MARK_DIR "/run/xcloud/refuse"

/* ---- records ------------------------------------------------------------------------------------------- */

/* A step's shared memory is also its record: the file PREFIX/run/xcloud/steps/JOB.STEP, mapped by
 * slurmstepd and inherited by the tasks, so that what each task read back from the kernel can be
 * seen while it runs and for a while after. One file a step; the newest XC_RECORDS_KEPT stay, and a
 * few more until they are taken away together. */
#define XC_RECORD_DIR   "/run/xcloud/steps"
#define XC_RECORDS_KEPT 64

enum {
    XC_REC_PLACED = 1 << 0,   /* a task's CPUs were set by us */
    XC_REC_MEMORY = 1 << 1,   /* a task's memory policy was set by us */
    XC_REC_NARROWED = 1 << 2, /* housekeeping was taken out of the step's cpuset */
    XC_REC_OBSERVE = 1 << 3,  /* mode observe: nothing was set */
    XC_REC_NO_CPUSET = 1 << 4, /* the step has no cpuset of its own: affinity alone */
    XC_REC_TOPO = 1 << 5,      /* a task opened the NCCL topology file where it runs, and it is the
                                  one that is meant */
    XC_REC_REFUSED = 1 << 6    /* a task was refused */
};

/* How many steps of this boot came to what; written by slurmstepd, read by whoever counts. */
#define XC_STEP_COUNTS_FILE "/run/xcloud/steps.count"
enum xc_step_result {
    XC_STEP_BOUND,
    XC_STEP_FALLBACK, /* to be bound, and something went wrong */
    XC_STEP_OFF,      /* left alone: the policy, its mode or the user wanted it so */
    XC_STEP_REFUSED,
    XC_STEP_RESULTS
};
const char *xc_step_result_name(enum xc_step_result result); /* "bound", … */
int xc_step_counts(const char *path, uint64_t results[XC_STEP_RESULTS]); /* -1: there are none */

/* One task as it was after task_init. */
struct xc_record_task {
    int pid;
    bool done; /* it came through task_init */
    struct xc_set cpus, mems; /* read back from the kernel */
    enum xc_memory mem_mode;  /* read back */
    int *gpus, *nics;         /* indices into the node's arrays */
    size_t ngpus, nnics;
    unsigned init_us; /* without waiting for the other tasks to come */
};
struct xc_record {
    uint32_t job_id, step_id, uid, flags;
    enum xc_step_kind kind;
    int64_t started_at, ended_at; /* Unix time; ended_at 0: running, or slurmstepd was killed */
    int stepd_pid;
    unsigned open_us, post_fork_us;
    char node_name[256], class_name[128], policy_hash[17], words[256];
    char message[2048]; /* what task 0 was told to say */
    struct xc_set allowed, training, housekeeping;
    unsigned ntasks;
    struct xc_record_task *tasks;
};
/* Reads one record; every size in the file is checked. */
int xc_record_read(int dir_fd, const char *name, struct xc_record *out, struct xc_error *error);
void xc_record_clear(struct xc_record *record);

#endif
