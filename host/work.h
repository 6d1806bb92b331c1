/* What the files of this room share: one run of apply or undo, and the record of what was there before. */
#ifndef XCLOUD_HOST_WORK_H
#define XCLOUD_HOST_WORK_H

#include <string.h>

#include <xcloud/host.h>

/* ---- what was there before (state.c) ------------------------------------------------------------- */

enum host_kind {
    HOST_FILE,   /* a file of the kernel that holds CPUs: was */
    HOST_DROPIN, /* a file of ours for systemd */
    HOST_CPUSET, /* cpuset.cpus of a unit, which systemd writes: was ("-": there was no such file) */
    HOST_THREAD  /* path: its id; was: CPUs; tag: when it was started */
};
struct host_record {
    enum host_kind kind;
    enum xc_host_what part;
    char *path, *was, *tag; /* tag of an interrupt: who uses it */
};
struct host_state {
    struct xc_set cpus; /* all that apply has ever set in this boot: what may be taken back */
    struct host_record *records;
    size_t count, size;
    bool failed; /* without memory */
};
void host_state_clear(struct host_state *state);
/* This boot's; empty when there is none. */
int host_state_read(const struct xc_host_input *in, struct host_state *state,
                    struct xc_error *error);
int host_state_write(const struct xc_host_input *in, const struct host_state *state,
                     struct xc_error *error);
int host_state_remove(const struct xc_host_input *in, struct xc_error *error);
const struct host_record *host_state_find(const struct host_state *state, enum host_kind kind,
                                          const char *path);
/* The first record of a thing is the true one: a second does nothing. */
void host_state_add(struct host_state *state, enum host_kind kind, enum xc_host_what part,
                    const char *path, const char *was, const char *tag);

/* ---- one run ---------------------------------------------------------------------------------------- */

/* Something that apply sets. */
struct host_change {
    enum host_kind kind;
    enum xc_host_what part;
    char *path;       /* within the root */
    char *what;       /* for the report */
    char *was, *want; /* texts as in the file; a drop-in's want is its content, its was NULL */
    char *tag;        /* of an interrupt: who uses it; of a thread: when it was started */
    bool is_so;       /* nothing to write; a drop-in that is wanted must be known, though */
};
struct host {
    const struct xc_host_input *in;
    struct xc_host_report *report;
    struct xc_set housekeeping, training, online;
    char *cpus; /* housekeeping as text */
    struct host_state state;
    struct host_change *changes;
    size_t count, size;
    bool failed;
    bool stale_irqbalance; /* it runs, and has not been told */
};
void host_change(struct host *host, const struct host_change *change); /* copies its texts */
/* A drop-in that is wanted: a change when it is not there already. */
void host_want_dropin(struct host *host, enum xc_host_what part, const char *unit, const char *name,
                      const char *text);

/* A row of the report; the format makes why. */
void host_say(struct xc_host_report *report, enum xc_host_what part, enum xc_host_outcome outcome,
              const char *what, const char *was, const char *now, const char *why, ...)
    xc_printf(7, 8);

/* A parameter of a check as the policy gives it, else as it is built in: the checks and what we set must
 * speak of the same interrupts and slices. NULL: none. */
const char *host_param(const struct xc_host_input *in, const char *check, const char *name);
bool host_matches(const char *patterns, const char *name);
/* A file's CPUs that are online. False: it is missing or no list. */
bool host_read_cpus(const struct host *host, struct xc_set *out, const char *path);
bool host_is_mask(const char *path); /* a hexadecimal mask; else a list */
/* What a mask or list file of the kernel says; -1: it is missing or neither. */
int host_read_back(const struct xc_host_input *in, const char *path, struct xc_set *out);

/* ---- the parts: what would have to be changed ------------------------------------------------------- */

void host_plan_services(struct host *host);
/* After systemd has been told: what became of it. */
void host_judge_services(struct host *host);
void host_plan_irqs(struct host *host);
void host_plan_workqueues(struct host *host);

#define HOST_IRQBALANCE_NAME "10-xcloud-irqs.conf" /* not HOST_DROPIN_NAME: that would hide service.d's */
/* Whether irqbalance runs with other words than these; "": with words of ours. */
bool host_irqbalance_is_stale(struct xc_root *root, const char *cpus);

/* ---- units (units.c) -------------------------------------------------------------------------------- */

#define HOST_DROPIN_NAME "10-xcloud-host.conf"
#define HOST_DROPIN_DIR  "/run/systemd/system"
#define HOST_MARK        "# made by xcloud host apply; xcloud host undo takes it away\n"

/* What unit files say, by unit. */
struct host_unit {
    char *name; /* "sshd.service", "getty@.service"; "service": for all of that type */
    bool pinned; /* the site says AllowedCPUs= or CPUAffinity= */
    bool jobs;   /* it starts slurmd */
    char *slice; /* NULL: not said */
};
struct host_units {
    struct host_unit *list;
    size_t count, size;
    bool failed;
};
void host_units_clear(struct host_units *units);
void host_units_read(struct xc_root *root, struct host_units *units);
/* By name, or an instance by its template's; NULL: none of them says anything of interest. */
const struct host_unit *host_units_find(const struct host_units *units, const char *name);
/* Whether it starts jobs: slurmd by its name, or by what its file says. */
bool host_unit_starts_jobs(const struct host_units *units, const char *name);
/* Whether a unit that starts jobs is to live in this slice at the top, also when it does not run yet. */
bool host_units_put_jobs_into(const struct host_units *units, const char *slice);

/* ---- cgroups (cgroups.c) ---------------------------------------------------------------------------- */

#define HOST_CGROUP "/sys/fs/cgroup"

bool host_cgroup2(struct xc_root *root);
/* Paths below HOST_CGROUP of every service, in whatever slice: service.d is for them all. NULL without
 * memory. */
char **host_service_cgroups(struct xc_root *root);
/* Slices at the top other than system.slice and those that jobs live in, and init.scope. */
char **host_top_cgroups(struct xc_root *root, const char *except, const struct host_units *units);
/* Whether turning the cpuset controller on would go through running jobs. */
bool host_jobs_in_the_way(struct xc_root *root);
/* Records every thread in these cgroups that has bound itself. */
void host_record_threads(struct host *host, char *const *cgroups);
char *host_thread_started(struct xc_root *root, const char *tid); /* NULL: it has ended */
bool host_thread_cpus(struct xc_root *root, const char *tid, struct xc_set *cpus);

/* ---- cgroup v1 (affinity.c) -------------------------------------------------------------------------- */

void host_plan_affinity(struct host *host, const struct host_units *units);
void host_bind_thread(struct host *host, const struct host_change *change);
/* Every thread of the host's own units, but for those that keep what they have; never a job's. */
void host_each_thread(struct xc_root *root, const struct host_units *units,
                      void (*each)(void *ctx, const char *unit, const char *tid), void *ctx);

/* ---- writing (write.c) ------------------------------------------------------------------------------ */

char *host_below(const struct xc_host_input *in, const char *path); /* prefix and path */
int host_write_dropin(const struct xc_host_input *in, const char *path, const char *text,
                      struct xc_error *error);
/* 1: it was ours and is gone; 0: it is not there; -1. */
int host_remove_dropin(const struct xc_host_input *in, const char *path, struct xc_error *error);
int host_write_file(const struct xc_host_input *in, const char *path, const char *text);
/* One apply or undo at a time: the descriptor to be closed, or -1. */
int host_lock(const struct xc_host_input *in, struct xc_error *error);

#endif
