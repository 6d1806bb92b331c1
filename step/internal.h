/* Private to step/: one step on one node. */
#ifndef XCLOUD_STEP_INTERNAL_H
#define XCLOUD_STEP_INTERNAL_H

#include <stdatomic.h>

#include <xcloud/nccl.h>
#include <xcloud/step.h>

/* ---- the shared table (table.c) ------------------------------------------------------------------ */

/* One mapping, inherited by the tasks: a half that only slurmstepd writes (the tasks protect it), and
 * a slot for each task. Sets are arrays of 64-bit words of one width. */
struct table_head {
    char magic[8];
    uint32_t size, version; /* of the file; XC_STEP_ABI */
    uint32_t job_id, step_id, uid, kind;
    uint32_t ntasks, cpu_words, mem_words, max_gpus, max_nics;
    uint32_t slots_at, slot_size; /* bytes */
    int32_t stepd_pid;
    int64_t started_at, ended_at;
    uint32_t flags; /* XC_REC_* of the step */
    uint32_t open_us, post_fork_us;
    uint32_t job_cores;
    char node_name[256], class_name[128], policy_hash[17], words[256], message[2048];
    /* then: allowed, training, housekeeping (cpu_words each), allowed mems (mem_words) */
};
struct table_slot {
    int32_t pid;
    _Atomic uint32_t seen; /* 1: gpus are published, 2: the task is through; a futex */
    uint32_t flags;        /* XC_REC_* of the task */
    uint32_t mem_mode;
    uint32_t nvisible;     /* what the task sees, published for the others */
    uint32_t ngpus, nnics; /* what the plan gives it */
    uint32_t init_us;
    /* then: cpus, mems, int32 visible[max_gpus], int32 gpus[max_gpus], int32 nics[max_nics] */
};
struct table {
    struct table_head *head;
    size_t size;
    bool file; /* it has a name in the records' directory */
};

enum table_set { TABLE_ALLOWED, TABLE_TRAINING, TABLE_HOUSEKEEPING, TABLE_CPU_SETS };

#define TABLE_MAGIC    "xcstep\n"
#define TABLE_SIZE_MAX (64u << 20)

size_t table_head_bytes(const struct table_head *head); /* with its sets, by the head's counts */
size_t table_slot_bytes(const struct table_head *head); /* of a slot, likewise */
/* Maps a new table in the directory (dir_fd < 0, or a failure to make the file: anonymous). */
int table_make(struct table *table, int dir_fd, const char *name, uint32_t ntasks,
               const struct xc_node *node, struct xc_error *error);
void table_unmap(struct table *table);
void table_protect(struct table *table); /* in a task: slurmstepd's half becomes read-only */
struct table_slot *table_slot(const struct table *table, unsigned task);
void table_put_set(struct table *table, enum table_set which, const struct xc_set *set);
void table_get_set(const struct table *table, enum table_set which, struct xc_set *out);
void table_put_mems(struct table *table, const struct xc_set *set);
void table_get_mems(const struct table *table, struct xc_set *out);
void slot_put(const struct table *table, unsigned task, const struct xc_set *cpus,
              const struct xc_set *mems);
void slot_get(const struct table *table, unsigned task, struct xc_set *cpus, struct xc_set *mems);
int32_t *slot_visible(const struct table *table, unsigned task);
int32_t *slot_gpus(const struct table *table, unsigned task);
int32_t *slot_nics(const struct table *table, unsigned task);
void slot_publish(struct table_slot *slot, uint32_t seen);
/* Waits until the task has come to `seen`, until a time of xc_now_us(); whether it has. */
bool slot_wait(struct table_slot *slot, uint32_t seen, int64_t until_us);
/* Waits until every task has come to `seen`, at most timeout_us in all; whether they have. */
bool table_wait(const struct table *table, uint32_t seen, unsigned timeout_us);
void records_prune(int dir_fd);

/* ---- the topology file ---------------------------------------------------------------------------- */

#define STEP_EXEC   XC_BINDIR "/xcloud-exec"
#define STEP_INSIDE XC_BINDIR "/xcloud-inside"
#define STEP_WHY    160  /* bytes of a reason */
#define STEP_PLACED 1100 /* of a path that policy allows, and a directory */

struct step_ns {
    unsigned long mount, user; /* 0: not known */
};
struct step_topo {
    char *path; /* the policy's; NULL: none is asked for */
    char *own;  /* what the job says instead; NULL: nothing */
    int fd;     /* the node's, opened as root trusts it; -1 */
    char trouble[STEP_WHY]; /* why it is not */
    bool bundle;            /* srun --container: no hook runs inside */
    /* the task's process alone */
    int mount, exec_mount; /* detached; -1 */
    struct step_ns ns;     /* before the container plugin had the task */
    bool container, imex; /* the host has IMEX channels */
    char placed[STEP_PLACED], exec[STEP_PLACED]; /* where they are in the container; "": at path */
};

/* ---- a step ------------------------------------------------------------------------------------------ */

struct xc_step {
    /* from Slurm */
    char *node_name, *program, *machine;
    uint32_t job_id, step_id, uid;
    enum xc_step_kind kind;
    unsigned ntasks, nnodes, node_index;
    /* decided in open */
    struct xc_words words;
    struct xc_node *node;        /* NULL: no snapshot; then nothing is placed */
    struct xc_rules *rules;      /* for this node and job */
    struct xc_rules *node_rules; /* for this node and any job: what no job's environment changes */
    bool active;  /* false: kill switch or mode=off; nothing at all is done or said */
    bool observe; /* nothing is set, all is reported */
    bool exclude; /* housekeeping leaves the step's cpuset */
    bool place, memory, environment;
    bool refuse;         /* when something goes wrong the task is ended */
    bool failed;         /* something went wrong in open */
    bool marked;         /* the prolog refuses this job here */
    struct xc_text told; /* lines for task 0, made in open */
    unsigned open_us;
    /* the node's directories, opened before anything of the user runs; -1 when missing */
    int proc_fd, cpuset_v1_fd, cgroup_v2_fd, records_fd;
    struct table table;
    struct step_topo topo;
    /* what the job and the site's enroot say of NCCL; empty when nobody asks */
    struct xc_nccl_values job_values, enroot_values;
    /* post_fork, slurmstepd alone */
    unsigned forked;
};

/* Private flag of the table's head: something went wrong in post_fork. */
#define TABLE_FAILED (1u << 31)
/* Another one: the step's user keeps housekeeping CPUs in its cpuset; no task may begin. */
#define TABLE_DENIED (1u << 30)

/* "batch", "interactive", "extern": steps that have a name and no number; else NULL. */
const char *step_kind_word(enum xc_step_kind kind);
/* An absolute path below the step's machine, on the heap; NULL without memory. */
char *step_below(const struct xc_step *step, const char *path);
/* A line that task 0 tells the user. */
void tell(struct xc_step *step, const char *format, ...) xc_printf(2, 3);

/* open.c */
struct xc_step *step_open(const struct xc_step_start *start, const struct xc_step_host *host);
void step_close(struct xc_step *step, const struct xc_step_host *host);
/* count.c: what this step came to, for metrics. */
void step_count(const struct xc_step *step);
/* marks.c: what the prolog has left for this job; and the answer of a task when that is a refusal. */
void step_marks(struct xc_step *step);
enum xc_verdict step_refuse_marked(const struct xc_step *step, int local_id);
/* snapshot.c: maps the node's snapshot, has it made once when there is none. */
int step_snapshot(const struct xc_step *step, struct xc_node **out, struct xc_error *error);
/* fork.c */
void step_post_fork(struct xc_step *step, const struct xc_step_host *host, int local_id, pid_t pid);
/* init.c */
enum xc_verdict step_task_init(struct xc_step *step, const struct xc_step_host *host, int local_id);

/* ---- cgroups (cgroup.c) ---------------------------------------------------------------------------------- */

/* The cpuset of this step: the directory below which all its tasks are. */
struct step_cpuset {
    int fd; /* of the directory, -1: the step has none of its own */
    bool v1;
    char *path; /* for messages */
    bool deep;  /* the task is in a directory below it */
};
/* From /proc/PID/cgroup (pid 0: our own). -1: cannot be told, with the reason; fd -1 and 0: there is
 * none. */
int cpuset_find(const struct xc_step *step, pid_t pid, struct step_cpuset *out,
                struct xc_error *error);
void cpuset_close(struct step_cpuset *cpuset);
int cpuset_effective(const struct step_cpuset *cpuset, struct xc_set *cpus, struct xc_set *mems,
                     struct xc_error *error);
/* Whether Slurm has said which CPUs the step has. Without ConstrainCores it has on v2 a cpuset with all of
 * the machine's. */
bool cpuset_constrained(const struct step_cpuset *cpuset);
/* CPUs of the job's cpuset, one level up; empty when it cannot be told. */
void cpuset_job_cpus(const struct step_cpuset *cpuset, struct xc_set *cpus);
/* On v1 Slurm gives the step's directory to its user, and a process of his other steps can have made
 * directories in it already: a place with all of its CPUs until it is narrowed, and one that keeps the
 * kernel from narrowing it. It becomes root's, and they go. 1: some were there, -1: some are. */
int cpuset_take_back(const struct step_cpuset *cpuset);
/* Makes the step's CPUs keep, which is not empty and lies in its job's: on v1 in the directories below
 * it first. */
int cpuset_set(const struct step_cpuset *cpuset, const struct xc_set *keep, struct xc_error *error);

/* ---- the kernel's word for a task (kernel.c) --------------------------------------------------------------- */

/* Sets the memory policy by the ladder preferred-many -> preferred -> none; bind and interleave as
 * they are. Returns 0 or -errno of the last try. */
int task_set_memory(enum xc_memory mode, const struct xc_set *mems);
int task_get_memory(enum xc_memory *mode, struct xc_set *mems);

/* ---- a task's GPUs (gpus.c) ---------------------------------------------------------------------------------- */

/* Indices into node->gpus in the order the program will see them; out has room for node->ngpus. */
size_t task_gpus(const struct xc_step *step, const struct xc_step_host *host, int *out);

/* ---- environment (env.c) ------------------------------------------------------------------------------------------ */

/* Takes away what an outer step of ours has set (XCLOUD_ENV), so that this node's is computed anew. */
void env_forget_outer(const struct xc_step_host *host);
/* Sets variables, with a line of report for each, and remembers them for XCLOUD_ENV. */
struct env_writer {
    const struct xc_step_host *host;
    struct xc_text ours; /* XCLOUD_ENV */
    struct xc_text *report;
    char *have; /* for one value: too long for a stack that the user may have made small */
    bool set;   /* false: nothing is set, all is reported */
};
int env_begin(struct env_writer *writer, const struct xc_step_host *host, bool set,
              struct xc_text *report); /* -1: no memory, said in the report */
/* A variable of the step as it is now, until the next call; NULL: unset. */
const char *env_get(struct env_writer *writer, const char *name);
void env_assign(struct env_writer *writer, const char *name, const char *value);
/* The plan's variables but `except`. Not placed: without XCLOUD_PLAN. exec_path: what PYTHON_EXEC
 * becomes, NULL: it is left alone. */
void env_plan(struct env_writer *writer, const struct xc_plan_task *task, bool placed,
              const char *exec_path, const char *except);
void env_end(struct env_writer *writer); /* writes XCLOUD_ENV */

/* ---- the topology file and containers (topo.c, container.c) ------------------------------------------------ */

/* In slurmstepd: takes away an outer step's words for the hook, and says this step's. */
void topo_forget_outer(const struct xc_step_host *host);
void topo_open(struct xc_step *step, const struct xc_step_host *host);
void topo_close(struct xc_step *step);
/* Whether path opens here and is a file; and the node's own, when node_fd is not -1. why: STEP_WHY bytes. */
bool topo_file_good(const char *path, int node_fd, char *why);
/* In the task: sets the variable and proves the file. false: the policy refuses the task; why is in
 * lines, for one task of the node to say. */
bool topo_apply(const struct xc_step *step, struct env_writer *env, struct table_slot *slot,
                struct xc_text *lines);
void topo_apptainer(const struct xc_step *step, struct env_writer *env,
                    const struct table_slot *slot);

/* In the task's process, as root, before the container plugin. */
void container_prepare(struct xc_step *step, int local_id, bool in_container);
/* Inside: local task 0 places what is missing; then every task finds it. */
void container_enter(struct xc_step *step, int local_id);
void container_find(struct xc_step *step);
#define CONTAINER_ELSEWHERE 3
void container_elsewhere(const struct xc_step *step, const char *path, size_t index, char *out,
                         size_t size);

/* ---- devices inside a container (devices.c) ------------------------------------------------------------------ */

bool devices_imex(const struct xc_step *step); /* there are IMEX channels where this is called */
/* Lines about the plan's NICs and IMEX channels that are on the node and not in the container. */
void devices_report(const struct xc_step *step, const struct xc_plan *plan, struct xc_text *out);

/* ---- NCCL's variables and library (nccl.c) ---------------------------------------------------------------- */

void nccl_open(struct xc_step *step, const struct xc_step_host *host);
void nccl_close(struct xc_step *step);
/* A line when the library that the task would load is none that the policy allows. */
void nccl_judge(const struct xc_step *step, const struct xc_step_host *host, struct xc_text *out);
void nccl_report(const struct xc_step *step, const struct xc_step_host *host,
                 const struct xc_plan_task *task, struct xc_text *out);

/* ---- words for people (report.c) ------------------------------------------------------------------------------------ */

void report_write(const struct xc_text *text); /* to the task's stderr */
/* Table of this node's tasks as read back. */
void report_bound(const struct xc_step *step, const struct xc_plan *plan, struct xc_text *out);

#endif
