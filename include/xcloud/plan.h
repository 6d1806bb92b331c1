/* plan: who goes where?
 *
 * Pure: from a machine, the rules in force and a request to CPUs, memory nodes, GPUs, NICs and
 * environment for each task, with the reasons. The same request gives the same plan, on a laptop and
 * inside slurmstepd. Libc alone.
 */
#ifndef XCLOUD_PLAN_H
#define XCLOUD_PLAN_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>
#include <xcloud/words.h>

/* The rules on a machine: xc_policy_resolve for what node says of itself (DMI, environment, Slurm's
 * features). node NULL: its name alone is known. */
int xc_plan_rules(const struct xc_policy *policy, const struct xc_node *node, const char *name,
                  const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
                  struct xc_error *error);

/* A task's GPUs in the order the program sees them: indices into node->gpus. */
struct xc_gpu_list {
    const int *gpus;
    size_t count;
};

struct xc_request {
    const struct xc_node *node;
    const struct xc_rules *rules;
    const struct xc_words *words; /* already cut down to what the user may; NULL: none */
    const struct xc_set *cpus;    /* the step's effective cpuset, OS numbers; NULL: all online. May
                                     still hold housekeeping CPUs */
    const struct xc_set *mems;    /* the step's effective memory nodes; NULL: all with CPUs */
    unsigned ntasks;              /* on this node, >= 1 */
    struct xc_gpu_list visible;   /* what every task sees, when tasks is NULL */
    const struct xc_gpu_list *tasks; /* ntasks entries: tasks see different GPUs; or NULL */
    bool terse; /* nobody reads the plan: no xc_plan_task.why, no XC_NOTE_INFO about it, no unused */
    unsigned env_of; /* 1 + the task whose env alone is wanted; 0: all */
    unsigned job_cores; /* cores of the job on this node beyond the step's, for the hint; 0 unknown */
};

enum xc_note_kind {
    XC_NOTE_INFO, /* about the site, not the job: for reports alone */
    XC_NOTE_HINT, /* advice with the option that mends it */
    XC_NOTE_WARN, /* something could not be done as asked; `strict` makes it a refusal */
};
struct xc_note {
    enum xc_note_kind kind;
    int task; /* local rank, XC_NONE: the node */
    char *text;
};
struct xc_plan_nic {
    int nic; /* index into node->nics */
    enum xc_path path;
};
struct xc_plan_env {
    const char *name; /* points into rules or is a constant */
    char *value;      /* NULL with XC_ENV_FORBID: take it away */
    enum xc_env_set set;
    unsigned line; /* of the policy; 0: from the plan itself (NIC lists, XCLOUD_PLAN) */
};
struct xc_plan_task {
    struct xc_set cpus; /* never empty when the request had a CPU */
    unsigned cores;     /* whole or partial cores in cpus */
    struct xc_set priority; /* CPUs among them with priority turbo */
    struct xc_set mems; /* memory nodes of mem_mode; empty with XC_MEMORY_NONE */
    enum xc_memory mem_mode;
    int *gpus; /* indices into node->gpus, program order */
    size_t ngpus;
    struct xc_plan_nic *nics;
    size_t nnics;
    struct xc_plan_env *env;
    size_t nenv;
    char **why; /* NULL-terminated reasons for people */
};
struct xc_plan {
    struct xc_set housekeeping; /* on this machine, whole cores; not only the step's */
    struct xc_set training;     /* request.cpus without housekeeping; what the cpuset becomes. Equal
                                   to request.cpus when excluding would leave nothing or break
                                   min_share (a note says so) */
    struct xc_set unused;       /* training CPUs in no task */
    unsigned ntasks;
    struct xc_plan_task *tasks;
    char *shares; /* XCLOUD_PLAN of the first task that has several GPUs, for reports; NULL: there is
                     none. Each such task has its own in env */
    struct xc_note *notes;
    size_t nnotes;
    bool narrowed; /* training differs from request.cpus */
};

int xc_plan_make(const struct xc_request *request, struct xc_plan **out, struct xc_error *error);
void xc_plan_free(struct xc_plan *plan);

/* The housekeeping CPUs of a machine under these rules. note gets a line (heap) when they cannot be
 * told as asked (housekeeping: slurm without a reservation), else NULL; note may be NULL. */
int xc_plan_housekeeping(const struct xc_node *node, const struct xc_rules *rules,
                         struct xc_set *out, char **note, struct xc_error *error);

/* Whether a port is one of the compute NICs: RDMA, and all that `nics: compute:` selects. */
bool xc_plan_is_rail(const struct xc_node *node, const struct xc_rules *rules,
                     const struct xc_nic *nic);

/* The plan for people and for programs. gpu and NIC names come from node. `machine` is a name. */
void xc_plan_table(const struct xc_plan *plan, const struct xc_node *node, struct xc_text *out);
void xc_plan_json(const struct xc_plan *plan, const struct xc_node *node, const char *machine,
                  struct xc_json *json);
void xc_plan_svg(const struct xc_plan *plan, const struct xc_node *node, const char *machine,
                 struct xc_text *out); /* programs only */

/* ---- XCLOUD_PLAN ------------------------------------------------------------------------------------ */

/* The shares for the workers of one task, as text that survives an environment:
 *
 *   1;cpus=8-19,64-75 mems=0 mem=preferred [NAME=VALUE …];cpus=…
 *
 * a version, then one share a GPU in the order the program sees them, separated by ';'. A share is
 * blank-separated KEY=VALUE: cpus, mems (lists in the kernel's notation), mem (preferred, bind,
 * interleave, none), then variables in upper case for that worker: NAME=VALUE, or NAME?=VALUE?OLD to set
 * it only where it is unset or still the task's own value OLD. No value holds blanks, ';' or '?'. */
#define XC_SHARES_VERSION "1"

#endif
