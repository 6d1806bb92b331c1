/* prolog: the node is fit, or it is drained with a reason.
 *
 * What xcloud-prolog, xcloud-epilog and xcloud-health are made of: a deadline that holds even when a
 * read hangs in the kernel, the breaker that keeps a wrong policy from draining a cluster, the
 * record of what we have drained, and the drain itself. The decisions are pure functions over plain
 * values, so that tests and the simulation (tests/bench/breaker-sim) run the same ones.
 *
 * Unknown is never a failure: trouble of ours, of a tool or of the policy drains no node.
 */
#ifndef XCLOUD_PROLOG_H
#define XCLOUD_PROLOG_H

#include <xcloud/base.h>
#include <xcloud/check.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>

/* ---- the programs -------------------------------------------------------------------------------- */

enum xc_program { XC_PROLOG, XC_EPILOG, XC_HEALTH };
/* The whole program: reads argv and the environment that slurmd gives it, returns its exit status:
 * 0 go on, 1 the node must not be used (it is drained, or Slurm is to drain it), 2 wrong usage. */
int xc_program_main(enum xc_program program, int argc, char **argv);

/* ---- a deadline ---------------------------------------------------------------------------------- */

enum xc_guard_end {
    XC_GUARD_DONE,    /* work returned */
    XC_GUARD_CRASHED, /* the child was ended by a signal, or by something else than its work */
    XC_GUARD_LATE,    /* the deadline passed; the child is killed */
    XC_GUARD_STUCK,   /* the same, and not even SIGKILL has ended it */
    XC_GUARD_FAILED   /* there is no child: error says why */
};
struct xc_guard {
    void (*work)(void *arg); /* in the child */
    void *arg;               /* shared memory (xc_guard_share), or the parent sees nothing of it */
    const char *title;       /* what the process is called while it runs, at most 15 bytes */
    /* Milliseconds; read again and again, so that work may change it once it knows better. */
    const volatile unsigned *deadline_ms;
    /* set by xc_guard_run */
    pid_t child;
    int status;            /* from waitpid, with XC_GUARD_CRASHED */
    char hangs_in[256];    /* the file that a late child was reading, "" unknown */
    pid_t left[8];         /* processes that work has started and that nothing ends */
    unsigned nleft;
};
/* Runs work in a child of its own, which has none of our standard streams and ends with us. What it
 * leaves behind is ended, too. The caller has no other children; its SIGCHLD is blocked meanwhile.
 * Never waits for a process that does not die. */
enum xc_guard_end xc_guard_run(struct xc_guard *guard, struct xc_error *error);
/* Memory that parent and child share, zeroed; NULL without memory. */
void *xc_guard_share(size_t size);

/* A child that not even SIGKILL ends is remembered in a file, so that the next runs do not add to it:
 * a run itself, or a question to a device that it has asked. `what` is one line. */
int xc_stuck_remember(const char *file, pid_t pid, bool run, const char *what,
                      struct xc_error *error);
struct xc_stuck {
    unsigned count;  /* of the remembered that are there still */
    bool run;        /* one of them is a run */
    char text[1024]; /* "process 7: /sys/x; process 9: …": all of them, as far as there is room */
};
/* Whether any of the remembered is still there. Forgets them when none is. */
bool xc_stuck_still(const char *file, struct xc_stuck *out);

/* ---- reasons ------------------------------------------------------------------------------------- */

/* A drain reason of ours:
 *
 *     xcloud: gpu.count: 7 GPUs, want 8 [GPU01] (hgx-h100, job 4711)
 *
 * The fact first, then what other nodes need to know for the breaker. */
#define XC_REASON_PREFIX "xcloud: "
#define XC_REASON_MAX    256
/* finding: what xc_finding_reason gave. class_name NULL: none; job 0: none. */
void xc_reason_make(char reason[XC_REASON_MAX], const char *finding, const char *class_name,
                    uint32_t job);

/* A node that is drained, as sinfo tells. */
struct xc_drained {
    char *node, *reason;
    int64_t at; /* Unix time of the reason */
    bool ours;  /* the reason is one of xc_reason_make; the rest is taken from it */
    char code[16], class_name[64];
    uint32_t job;
};
struct xc_drains {
    struct xc_drained *list;
    size_t count;
    size_t nodes;       /* of the cluster, drained or not */
    size_t class_nodes; /* of those, the ones in the host lists that were asked for */
};
void xc_drains_clear(struct xc_drains *drains);
/* Takes what `sinfo -h -N -o "%N|%T|%H|%E"` prints with SLURM_TIME_FORMAT=%s: a line for each node and
 * partition. class_nodes: host lists whose members are counted, or NULL. XC_EINPUT: it is something
 * else, or empty. */
int xc_drains_parse(const char *text, char *const *class_nodes, struct xc_drains *out,
                    struct xc_error *error);
const struct xc_drained *xc_drains_find(const struct xc_drains *drains, const char *node);

/* ---- the breaker --------------------------------------------------------------------------------- */

/* The policy's limits for one node, in numbers. 0: no limit of that kind. */
struct xc_breaker {
    unsigned cluster, class_, job;
    unsigned window_s;
};
/* A share of a number of nodes that is not known (0) is 1 node. Limits are never below 1. */
void xc_breaker_limits(const struct xc_rules *rules, size_t cluster_nodes, size_t class_nodes,
                       size_t job_nodes, struct xc_breaker *out);

/* Who wants to drain itself, and for what. */
struct xc_breaker_who {
    const char *node, *class_name; /* class_name NULL or "": none */
    const char *code;              /* of the finding */
    uint32_t job;                  /* 0: none */
};
enum xc_breaker_word { XC_MAY_DRAIN, XC_FULL_CLUSTER, XC_FULL_CLASS, XC_FULL_JOB };
struct xc_breaker_seen {
    unsigned count;    /* nodes that the limit which is named (or the cluster's) has seen */
    unsigned window_s; /* within this time */
};
/* Before a drain: is there room among the nodes that are drained within the window? For nodes that say
 * the same the window is twice as long with each `cluster` of them that are drained still: hardware
 * does not break in one way everywhere, policies do. */
enum xc_breaker_word xc_breaker_before(const struct xc_breaker *breaker,
                                       const struct xc_breaker_who *who,
                                       const struct xc_drains *drains, int64_t now,
                                       struct xc_breaker_seen *seen);
/* After the own drain, when `drains` is of a later second than it: may it stay? Of all that drained
 * at once the first ones stay, by time and name, so that all agree. A node that is not among the
 * drains may "stay". */
enum xc_breaker_word xc_breaker_after(const struct xc_breaker *breaker,
                                      const struct xc_breaker_who *who,
                                      const struct xc_drains *drains,
                                      struct xc_breaker_seen *seen);
/* For how many seconds a node that was refused does not ask again: all nodes of the cluster together ask
 * the controller some five times a second, whatever fails on them. nodes 0: unknown. random: any number,
 * so that they do not ask together. */
unsigned xc_breaker_wait_s(size_t nodes, uint64_t random);
/* "8 nodes of the cluster were drained within 10 min, the limit is 8", for people. */
void xc_breaker_text(enum xc_breaker_word word, const struct xc_breaker *breaker,
                     const struct xc_breaker_seen *seen, const struct xc_breaker_who *who,
                     char *text, size_t size);

/* ---- slots --------------------------------------------------------------------------------------- */

/* In a directory that all nodes share, a drain needs a slot of each limit: a file that only one node
 * can make (O_EXCL). A slot is free again a window after it was made; while more nodes are refused
 * than a few, none is freed: then it is the policy, not hardware. */
#define XC_SLOTS_MAX 3
struct xc_slots {
    char names[XC_SLOTS_MAX][128];
    unsigned count;
};
/* What a node sees in the directory: the next free slot of one limit. */
struct xc_slot_view {
    char free[128]; /* its name; "" : none is free */
    unsigned taken; /* slots that are */
    bool held;      /* the refused keep old slots from being free */
};
/* now: Unix time by the directory's own clock (xc_slots_now). kind: "cluster", "class-NAME",
 * "job-ID". */
int xc_slots_look(int dir_fd, const char *kind, unsigned limit, unsigned window_s, int64_t now,
                  struct xc_slot_view *out, struct xc_error *error);
/* 1: it is ours; 0: another node was faster; -1: error. */
int xc_slots_claim(int dir_fd, const char *name, const char *node, struct xc_error *error);
/* A refused node says so. now 0: by the directory's clock. */
void xc_slots_refuse(int dir_fd, unsigned limit, const char *node, int64_t now);
int64_t xc_slots_now(int dir_fd, const char *node, struct xc_error *error); /* -1: error */
/* All limits at once: XC_MAY_DRAIN and the slots, or the limit that has none. -1: nobody can tell. */
int xc_slots_take(int dir_fd, const struct xc_breaker *breaker, const struct xc_breaker_who *who,
                  struct xc_slots *out, struct xc_breaker_seen *seen, struct xc_error *error);
void xc_slots_release(int dir_fd, const struct xc_slots *slots);

/* ---- what we have drained -------------------------------------------------------------------------- */

/* One node's record of its own drains, kept over reboots. */
#define XC_LEDGER_FILE "/var/lib/xcloud/drained"
#define XC_LEDGER_PAST 32 /* drains that are remembered */
struct xc_ledger {
    bool drained;                  /* we have drained it, and nobody has said that it is back */
    char reason[XC_REASON_MAX];    /* as we wrote it */
    char checks[512];              /* comma list: those that had failed */
    unsigned clean;                /* runs without a failure since */
    int64_t last_bad;              /* Unix time of the last run that was not clean, or the drain */
    int64_t past[XC_LEDGER_PAST];  /* Unix times of drains, the newest first; 0: none */
    bool lemon;                    /* it has been said that it stays drained */
};
/* XC_ENOENT: there is none. */
int xc_ledger_read(const char *path, struct xc_ledger *out, struct xc_error *error);
int xc_ledger_write(const struct xc_ledger *ledger, const char *path, struct xc_error *error);
void xc_ledger_drained(struct xc_ledger *ledger, const char *reason, const char *checks,
                       int64_t now);

enum xc_resume {
    XC_RESUME_NOTHING, /* it is not drained by us */
    XC_RESUME_OFF,     /* the policy does not ask for it, or not for these checks */
    XC_RESUME_WAIT,    /* not yet: runs or time are missing */
    XC_RESUME_LEMON,   /* it has been drained too often */
    XC_RESUME_NOW      /* if its reason is still ours */
};
/* Takes one health run into the ledger and says what follows. clean: of the checks in
 * ledger->checks each passed, and none that drains failed; unclear: one of them could not tell, which
 * counts for neither side. */
enum xc_resume xc_resume_judge(const struct xc_rules *rules, struct xc_ledger *ledger, bool clean,
                               bool unclear, int64_t now);

#endif
