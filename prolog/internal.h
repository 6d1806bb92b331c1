/* Private to prolog/: one run of one program. */
#ifndef XCLOUD_PROLOG_INTERNAL_H
#define XCLOUD_PROLOG_INTERNAL_H

#include <xcloud/prolog.h>

/* ---- what the parent knows (program.c) ------------------------------------------------------------- */

struct program {
    enum xc_program kind;
    const char *name; /* "xcloud-prolog" */
    /* options */
    const char *policy, *prefix, *textfile;
    bool report, print, help, version;
    char node[256];         /* Slurm's name */
    const char *slurm_conf; /* SLURM_CONF, NULL without */
    uint32_t job;           /* 0: none */
    struct xc_job_facts facts;
    const char *job_gpus; /* SLURM_JOB_GPUS */
};

/* ---- what parent and children share ------------------------------------------------------------------ */

enum priority { SAY_ERROR = 3, SAY_WARNING = 4, SAY_NOTICE = 5, SAY_INFO = 6 }; /* as syslog */

enum wish {
    WISH_NOTHING,
    WISH_WOULD, /* it failed; mode, arming or the last good policy keep the node */
    WISH_DRAIN
};
enum act {
    ACT_NONE,
    ACT_DRAINED,
    ACT_ALREADY,   /* by us, some time ago */
    ACT_FOREIGN,   /* somebody else's drain: left as it is */
    ACT_REFUSED,   /* the breaker */
    ACT_UNCOUNTED, /* nobody can count, so nothing is drained */
    ACT_FAILED,    /* the breaker allowed it, scontrol did not do it */
    ACT_RESUMED,
    ACT_FORGOTTEN /* it is not drained by us any more */
};

#define SHARED_LINES 49152
struct shared {
    volatile unsigned deadline_ms, act_deadline_ms;
    bool finished; /* the work came to its end */
    bool no_probe; /* an earlier run's question to a device hangs still: none is asked */
    /* what is to be done */
    enum wish wish;
    enum xc_resume resume;
    bool may_be_back; /* a job was started since our drain: somebody may have lifted it */
    char reason[XC_REASON_MAX], checks[512], code[16], class_name[64], hash[17];
    struct xc_limit cluster, class_, job;
    unsigned window_s, jitter_ms;
    char directory[1024];   /* of the slots; "": nodes are counted */
    char class_nodes[2048]; /* host lists, a line each; "" unknown */
    char scontrol[1024];    /* as the policy names it; "": the usual places */
    char housekeeping[4096]; /* CPUs of this machine for the children; "": as they are */
    char textfile[1024], state[1024], pending[1100]; /* counters, and those of this run */
    char mode[16];
    bool armed;
    /* what was done */
    enum act act;
    volatile bool allowed; /* the breaker had counted, and there was room */
    /* lines of "PRIORITY TEXT\n" */
    size_t length;
    char lines[SHARED_LINES];
};

/* A line for slurmd's log and the journal; what does not fit is left out, and that is said. */
void say(struct shared *shared, enum priority priority, const char *format, ...) xc_printf(3, 4);
/* Hands the lines to stderr and to the journal or syslog, without waiting for either. */
void say_all(const struct program *program, const struct shared *shared);

/* A path of ours below the prefix: run_path(p, "stuck") is PREFIX/run/xcloud/stuck. On the heap. */
char *run_path(const struct program *program, const char *name);
char *ledger_path(const struct program *program); /* /var, where it can be written, else /run */

/* Moves the process to the housekeeping CPUs; what cannot be done is left. */
void use_housekeeping(const char *list);

/* ---- the children -------------------------------------------------------------------------------------- */

struct job {
    const struct program *program;
    struct shared *shared;
};
void work_run(void *job);   /* work.c: reads and checks; verdict.c says what follows */
void act_run(void *job);    /* act.c: drains or resumes */

/* ---- after a refusal (backoff.c) ------------------------------------------------------------------------- */

uint64_t random_number(void);
/* Seconds for which this node does not ask again whether it may drain itself for shared->code; 0: it may
 * ask. why: what the answer was. */
unsigned backoff_left(const struct program *program, const struct shared *shared, char *why,
                      size_t size);
/* of_job: another job may ask at once. */
int backoff_begin(const struct program *program, const struct shared *shared, unsigned seconds,
                  bool of_job, const char *why, struct xc_error *error);
void backoff_end(const struct program *program);

/* ---- commands (command.c) ------------------------------------------------------------------------------- */

struct slurm_tools {
    char scontrol[1024], sinfo[1024];
};
/* Where scontrol and sinfo are: as the policy says, as configure found, or in the usual places; files
 * that root trusts alone. */
int find_tools(const char *wanted, struct slurm_tools *out, struct xc_error *error);
/* Runs argv with an empty environment but for SLURM_CONF, PATH and the like; its standard output, at
 * most limit bytes, into out (NULL: not wanted). Status 0 alone is success. */
int run_command(const char *const *argv, const char *slurm_conf, unsigned timeout_ms,
                struct xc_text *out, struct xc_error *error);

/* ---- marks (marks.c) ---------------------------------------------------------------------------------------- */

/* What a job's steps are to be told: "refuse TEXT" and "warn TEXT" lines. Empty: no mark. */
int mark_write(const struct program *program, const char *text, struct xc_error *error);
void mark_remove(const struct program *program);

/* ---- numbers (metrics.c) ------------------------------------------------------------------------------------- */

/* Adds to a counter of this boot: "prolog.would_drain". */
void tally_add(const struct program *program, const char *name, int64_t value);
void tally_put(const struct program *program, const char *name, int64_t value);
/* The text file of what was done: of the findings' file with -acts in its name. */
int metrics_write(const struct program *program, const struct shared *shared,
                  struct xc_error *error);
const char *program_word(enum xc_program kind); /* "prolog" */

/* ---- counters of the checks (counters.c) --------------------------------------------------------------------- */

/* Keeps the counters of a run unless a later run has kept its own. */
int counters_keep(const struct xc_check_state *state, const char *path, struct xc_error *error);
/* The same for counters in a file, which goes. */
int counters_take(const char *pending, const char *path, struct xc_error *error);
/* Removes what runs that were killed have left: files "PATH.PID" whose process is gone. */
void counters_prune(const char *path);

#endif
