/* check: is this node fit?
 *
 * A check is one function: what is known about a machine in, findings out. It reads through a root
 * alone, starts no process and asks no library, so that any captured machine is checked anywhere by
 * the same code. What only a live machine's devices tell (the kernel's log, the global PM-QoS) is
 * read by the caller (xc_check_live_read) and handed in; so is what only running something tells
 * (NVML, a site's programs: xc_check_live_probe).
 *
 * Ids ("cpu.cstate") and fault codes ("CPU02") are stable; xcloud-checks(7) has an entry for each.
 *
 * Trouble with a file or tool is `unknown`, which is never a failure. What a machine cannot have or
 * show is `n/a`. A fact that the policy asked for and that is not so is `fail`; a fact that is worth
 * knowing and that nobody asked for is `warn`. What a failure leads to is the policy's on_fail.
 */
#ifndef XCLOUD_CHECK_H
#define XCLOUD_CHECK_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>

/* ---- the table ----------------------------------------------------------------------------------- */

enum xc_check_verdict { /* in the order of how bad they are */
                        XC_CHECK_NA,
                        XC_CHECK_PASS,
                        XC_CHECK_UNKNOWN,
                        XC_CHECK_WARN,
                        XC_CHECK_FAIL
};
const char *xc_check_verdict_name(enum xc_check_verdict verdict); /* "n/a", "pass", … */

/* Who runs a check; a set of these in the table, one of them in an input. */
enum xc_check_at {
    XC_AT_BOOT = 1 << 0,
    XC_AT_HEALTH = 1 << 1,
    XC_AT_PROLOG = 1 << 2,
    XC_AT_EPILOG = 1 << 3,
    XC_AT_CLI = 1 << 4,
    XC_AT_INSIDE = 1 << 5 /* in a job's process, in its container, as its user */
};

/* What running it takes. */
enum xc_check_cost {
    XC_COST_FILES,  /* a few files, or one or two for each CPU: below 5 ms on 224 CPUs */
    XC_COST_DEVICE, /* files behind which a device's firmware answers: may hang with it */
    XC_COST_SCAN    /* every process or interrupt: tens of ms on a large node */
};

/* What it cannot do without; told in the list, not enforced: without it a check says unknown. */
enum {
    XC_NEEDS_ROOT = 1 << 0,
    XC_NEEDS_PREVIOUS = 1 << 1, /* the counters of an earlier run of this boot */
    XC_NEEDS_LOG = 1 << 2,      /* the kernel's log */
    XC_NEEDS_JOB = 1 << 3       /* a job's GPUs */
};

enum xc_check_type {
    XC_PARAM_WORD,   /* one of the words */
    XC_PARAM_BOOL,   /* on or off (YAML's booleans) */
    XC_PARAM_NUMBER, /* 0 or more */
    XC_PARAM_CPUS,   /* a CPU list */
    XC_PARAM_NAMES,  /* a comma list of names, * and ? in them */
    XC_PARAM_TEXT
};
struct xc_check_param {
    const char *name;
    enum xc_check_type type;
    const char *builtin; /* NULL: nothing is asked */
    const char *meaning; /* one line, with the unit */
    const char *words;   /* XC_PARAM_WORD: "C1,C1E,C6" */
};

/* What only running something tells; a set of these in the table. */
enum {
    XC_PROBE_NVML = 1 << 0, /* libnvidia-ml's answers */
    XC_PROBE_DCGM = 1 << 1, /* DCGM's health watches */
    XC_PROBE_EXEC = 1 << 2, /* the policy's site programs */
    XC_PROBE_SPIN = 1 << 3, /* frequencies of cores that are kept busy for some ms */
    XC_PROBE_DCB = 1 << 4,  /* PFC of RoCE netdevs, by netlink */
    XC_PROBE_HOOK = 1 << 5, /* a dry run of the enroot hook */
    XC_PROBE_INSIDE = 1 << 6 /* what this process can see and open */
};

struct xc_check_input;
struct xc_findings;
struct xc_check {
    const char *id, *code;
    const char *what; /* one line */
    enum xc_check_cost cost;
    unsigned at, needs;
    unsigned probes;                     /* XC_PROBE_*: without their text it says unknown */
    enum xc_on_fail on_fail;             /* when the policy does not say */
    const struct xc_check_param *params; /* ended by one without a name; NULL: none */
    void (*run)(const struct xc_check_input *input, struct xc_findings *findings);
};
/* All of them, by family; returns how many there are, also when they are more than size. */
size_t xc_check_all(const struct xc_check **out, size_t size);
const struct xc_check *xc_check_find(const char *id);
/* The id that is meant by one that is none; NULL: none is near. */
const char *xc_check_nearest(const char *id);

/* Whether every `checks:` entry names a check of the table and parameters that it has, with values
 * of their type. XC_EINPUT with the policy's line and the nearest name. policy: the file's name in
 * the error, NULL: "policy". A policy that does not pass must never fail a node. */
int xc_check_validate(const struct xc_rules *rules, const char *policy, struct xc_error *error);

/* ---- counters between runs ----------------------------------------------------------------------- */

/* Numbers by name, of one boot. A check gets the previous run's and fills the next one's; the caller
 * keeps them in a small text file. */
struct xc_check_state {
    char boot_id[40];
    int64_t at_us; /* CLOCK_BOOTTIME of the run, or 0 */
    struct xc_counter {
        char *name;
        int64_t value;
    } * counters; /* ascending by name once it is finished */
    size_t count, size;
    bool failed; /* without memory */
};
#define XC_CHECK_STATE_FILE "/var/lib/xcloud/counters"
void xc_check_state_clear(struct xc_check_state *state);
bool xc_check_state_get(const struct xc_check_state *state, const char *name, int64_t *value);
void xc_check_state_set(struct xc_check_state *state, int64_t value, const char *name, ...)
    xc_printf(3, 4);
/* XC_ENOENT: there is none yet. A file that is not one of ours is XC_EINPUT. */
int xc_check_state_parse(const char *text, const char *name, struct xc_check_state *out,
                         struct xc_error *error);
int xc_check_state_read(const char *path, struct xc_check_state *out, struct xc_error *error);
int xc_check_state_write(const struct xc_check_state *state, const char *path,
                         struct xc_error *error);

/* ---- running ------------------------------------------------------------------------------------- */

/* What no root can tell. */
struct xc_check_live {
    char *log;           /* records of /dev/kmsg, or dmesg's lines; NULL: not readable */
    long dma_latency_us; /* the global PM-QoS limit in force; -1: not readable */
    /* What the probes said: lines of "WHO INDEX KEY VALUE", the last one "end" when all of it came.
     * NULL: nothing came, or nobody asked. checks/live.h has the words. */
    char *nvml, *dcgm, *exec, *spin, *dcb, *hook, *inside;
    char *trouble; /* "nvml: no answer within 2000 ms\n": of what did not come whole; NULL: none */
    int64_t probed_at_us; /* CLOCK_BOOTTIME of the probes; 0: there were none */
    char boot_id[40];     /* of the boot that they were in */
};
/* Of a captured machine: the same from plain files at /dev/kmsg and /dev/cpu_dma_latency below the
 * root, if it has them. Never fails: what cannot be read is not known. Probes nothing. */
void xc_check_live_read(struct xc_root *root, struct xc_check_live *out);

/* Runs what the checks of input->at (`only` NULL; else those of `only`, as in xc_check_run) need
 * beyond files: all at once, each in a child of its own. At the deadline a child is killed and not
 * waited for: it may never end. Replaces the probes' members of out and leaves log and
 * dma_latency_us, so it comes after xc_check_live_read. Never fails: what did not come has a line in
 * `trouble`, and its check says unknown. A prolog, which keeps a job waiting, runs NVML and the hook
 * alone; DCGM and the site's programs come from the last health run. What the checks of a captured
 * machine need is read from plain files /run/xcloud/probe/NAME below its root ("nvml", ...); nothing
 * is run. */
void xc_check_live_probe(const struct xc_check_input *input, unsigned deadline_ms,
                         struct xc_check_live *out);
void xc_check_live_probe_only(const struct xc_check_input *input, const char *const *only,
                              unsigned deadline_ms, struct xc_check_live *out);

/* The probes' members as a file (atomic, mode 0600, the caller must be root), for programs that have
 * no time to probe: the prolog reads what the last health run saw. */
#define XC_CHECK_LIVE_FILE "/run/xcloud/live"
int xc_check_live_save(const struct xc_check_live *live, const char *path, struct xc_error *error);
/* Replaces the probes' members of out, and leaves log and dma_latency_us. The file must be root's.
 * XC_ENOENT: there is none; XC_EINPUT: it is older than max_age_us, of another boot, cut, or not one
 * of ours (out has then no probes). */
int xc_check_live_load(const char *path, int64_t max_age_us, struct xc_check_live *out,
                       struct xc_error *error);
void xc_check_live_clear(struct xc_check_live *live);

/* The machine as a process of a job sees it: a container that shows no /sys is one without CPUs, of which
 * the process alone is known. NULL: no memory. */
struct xc_node *xc_check_node_inside(struct xc_root *root);

struct xc_check_job {
    uint32_t id;
    const int *gpus; /* indices into node->gpus */
    size_t ngpus;
};

struct xc_check_input {
    struct xc_root *root;
    const struct xc_node *node;
    const struct xc_rules *rules;
    const char *node_name;  /* Slurm's; NULL: unknown */
    const char *slurm_conf; /* NULL: the usual places below the root */
    enum xc_check_at at;
    const struct xc_check_live *live;      /* NULL: nothing is known */
    const struct xc_check_state *previous; /* another boot's is not looked at; NULL: counters are not
                                              kept, so there will never be one */
    struct xc_check_state *next;           /* NULL: not wanted */
    const struct xc_check_job *job;        /* NULL: none */
    /* set by xc_check_run for each check */
    const struct xc_check *check;
    const struct xc_check_rule *rule; /* NULL: the policy does not name it */
};

/* Texts have no control characters, quotes, backquotes or backslashes (apostrophes between letters
 * alone) and are short, whatever a machine holds. */
struct xc_finding {
    const struct xc_check *check;
    enum xc_check_verdict verdict;
    enum xc_on_fail on_fail; /* the policy's word for this check */
    char *device;            /* "cpu0-111", "mlx5_3", "0000:1b:00.0"; "" for the machine */
    char *expected, *actual; /* expected may be "" */
    char *hint;              /* what a person can do; "" for none */
};
struct xc_findings {
    struct xc_finding *list;
    size_t count, size;
    bool failed;                        /* without memory */
    const struct xc_check_input *input; /* of the check that runs */
};
void xc_findings_clear(struct xc_findings *findings);
size_t xc_findings_count(const struct xc_findings *findings, enum xc_check_verdict verdict);

/* Runs the checks of input->at, or those of `only` (ids or families, NULL-terminated), in the order
 * of the table. Each gives at least one finding. A check with on_fail: ignore is left out unless
 * `only` names it, and so is all with rules->checks_skip when input->at is the prolog. -1: no
 * memory. */
int xc_check_run(const struct xc_check_input *input, const char *const *only,
                 struct xc_findings *findings, struct xc_error *error);

/* ---- telling ------------------------------------------------------------------------------------- */

/* "FAIL cpu.cstate cpu0-111: C6 is disabled by the BIOS; want C6. Set … [CPU02]" */
void xc_finding_line(const struct xc_finding *finding, struct xc_text *out);
/* "cpu.cstate cpu0-111: C6 is disabled by the BIOS [CPU02]": for a drain reason, at most size - 1
 * bytes and cut at a character. */
void xc_finding_reason(const struct xc_finding *finding, char *buffer, size_t size);
/* The findings that are not pass (all: every one), worst first, and a line that counts them. */
void xc_findings_text(const struct xc_findings *findings, bool all, struct xc_text *out);
struct xc_check_about { /* of a run, for machines to read; NULL: left out */
    const char *node, *boot_id, *policy_hash, *class_name;
    int64_t time; /* Unix time; 0: left out */
};
void xc_findings_json(const struct xc_findings *findings, const struct xc_check_about *about,
                      struct xc_text *out);
/* xcloud_check_status{check,code,device}: 0 pass, 1 warn, 2 fail, 3 unknown, 4 n/a. */
void xc_findings_prometheus(const struct xc_findings *findings, const struct xc_check_about *about,
                            struct xc_text *out);
/* The table for people; json: for programs. */
void xc_check_list(bool json, struct xc_text *out);

#endif
