/* host: does the host keep to its own CPUs? Sets what the policy's `cpus: host:` asks for, and takes it
 * back.
 *
 * Services, user sessions, machines, init.scope and PID 1 through systemd's AllowedCPUs=; interrupts,
 * irqbalance and the kernel's unbound work through their files. At boot and by hand, never for a job: no
 * cpuset and no mask of a job's process is written. What was there before is kept in
 * XC_HOST_STATE_FILE before anything is written; it lasts as long as the boot does. Whether all is as it
 * should be is the business of the checks host.* (check.h).
 *
 * Libc alone. All that writes outside of XC_RUN_DIR is in this room.
 */
#ifndef XCLOUD_HOST_H
#define XCLOUD_HOST_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>

#define XC_HOST_STATE_FILE "/run/xcloud/host.state"

/* How the system is written. xc_host_live() is the real one; tests have their own. */
struct xc_host_system {
    void *ctx;
    /* Writes text into a file of the kernel that is there. 0, or -errno. */
    int (*write)(void *ctx, const char *path, const char *text);
    /* `systemctl verb [unit]`. */
    int (*systemctl)(void *ctx, const char *verb, const char *unit, struct xc_error *error);
    /* sched_setaffinity. 0, or -errno. */
    int (*bind)(void *ctx, int tid, const struct xc_set *cpus);
};
const struct xc_host_system *xc_host_live(void);

struct xc_host_input {
    struct xc_root *root; /* what is read */
    const char *prefix;   /* where it is on this machine, in front of every path that is written: ""
                             for the live one */
    const struct xc_host_system *system;
    const struct xc_node *node;
    const struct xc_rules *rules; /* not looked at by undo */
    bool dry;                     /* nothing is written, and the report says what would be */
};

enum xc_host_outcome { /* in the order in which a person wants to read them */
                       XC_HOST_REFUSED,  /* it was asked for, and is not so: why says why */
                       XC_HOST_KEPT,     /* the site has set it by hand, or jobs live there */
                       XC_HOST_EXCUSED,  /* nobody can set it: an interrupt that the kernel manages */
                       XC_HOST_WOULD,    /* dry: it would be set, or restored */
                       XC_HOST_SET,      /* set, and read back */
                       XC_HOST_RESTORED, /* as it was before apply */
                       XC_HOST_IS_SO     /* nothing to do */
};
const char *xc_host_outcome_name(enum xc_host_outcome outcome); /* "refused", "kept", … */
const char *xc_host_part_name(enum xc_host_what part);          /* as in the policy: "services", … */

struct xc_host_row {
    enum xc_host_what part;
    enum xc_host_outcome outcome;
    char *what;      /* "munge.service", "25 eth0-rx-0", "default" */
    char *was, *now; /* CPUs; "" unknown */
    char *why;       /* "" when it needs no words */
};
struct xc_host_report {
    struct xc_host_row *rows;
    size_t count, size;
    char *housekeeping; /* CPU list; NULL: there is nothing to do, and why says why */
    char *why;
    bool dry, failed; /* failed: without memory */
};
void xc_host_report_clear(struct xc_host_report *report);
size_t xc_host_report_count(const struct xc_host_report *report, enum xc_host_outcome outcome);
/* A table in which rows that say the same are one. */
void xc_host_report_text(const struct xc_host_report *report, struct xc_text *out);
void xc_host_report_json(const struct xc_host_report *report, struct xc_text *out);

/* Sets what rules->cpus.host asks for. May be run again at any time, also after it was killed half way:
 * what is so already is left alone. 0 also when some of it was refused (count the rows); -1: wrong input
 * or a file of ours that cannot be read or written; then nothing of the system was changed. */
int xc_host_apply(const struct xc_host_input *input, struct xc_host_report *report,
                  struct xc_error *error);
/* Restores what apply has found, but for what somebody has changed since. Nothing was set in this boot:
 * no rows, and why says so. */
int xc_host_undo(const struct xc_host_input *input, struct xc_host_report *report,
                 struct xc_error *error);

#endif
