/* What checks share: saying a finding, asking the policy for a parameter, and a few questions about a
 * machine that more than one family asks. */
#ifndef XCLOUD_CHECKS_WORK_H
#define XCLOUD_CHECKS_WORK_H

#include <string.h>

#include <xcloud/check.h>
#include <xcloud/nccl.h>
#include <xcloud/plan.h>

/* ---- saying ------------------------------------------------------------------------------------- */

struct chk_words {
    const char *device, *want, *hint; /* NULL: none */
};
/* One finding; the format makes `actual`. */
void chk_say(struct xc_findings *out, enum xc_check_verdict verdict, struct chk_words words,
             const char *format, ...) xc_printf(4, 5);
/* What a deviation is: fail when the policy names this check, warn when only we think so. */
enum xc_check_verdict chk_bad(const struct xc_check_input *in);
/* A finding for each of NCCL's variables that does something else than is meant (nccl.c); errors_alone:
 * not those that only want a thought. */
void chk_nccl_say(struct xc_findings *out, const struct xc_nccl_input *input,
                  enum xc_check_verdict verdict, bool errors_alone);
/* "cpu0-3,8" of a set, on the heap. */
char *chk_cpus(const struct xc_set *set);

/* ---- asking ------------------------------------------------------------------------------------- */

/* The policy's entry of a check, or NULL. */
const struct xc_check_rule *chk_rule_of(const struct xc_rules *rules, const char *id);
/* The policy's value, else the built-in one, else NULL. */
const char *chk_param(const struct xc_check_input *in, const char *name);
bool chk_given(const struct xc_check_input *in, const char *name); /* by the policy */
bool chk_param_bool(const struct xc_check_input *in, const char *name);
/* False when neither the policy nor we ask for a number. */
bool chk_param_number(const struct xc_check_input *in, const char *name, long *out);

/* ---- the machine -------------------------------------------------------------------------------- */

bool chk_arm(const struct xc_check_input *in);
/* NVIDIA GPUs: there, or expected. chk_no_nvidia says n/a when not. */
bool chk_has_nvidia(const struct xc_check_input *in);
bool chk_no_nvidia(const struct xc_check_input *in, struct xc_findings *out);
/* For what hypervisors and pods hide: says n/a and returns true when this is not bare metal. */
bool chk_hidden(const struct xc_check_input *in, struct xc_findings *out, const char *what);
/* The housekeeping CPUs. False, and n/a or unknown is said, when the policy has none or they cannot
 * be told. */
bool chk_housekeeping(const struct xc_check_input *in, struct xc_findings *out,
                      struct xc_set *housekeeping);
/* The check that runs the policy's programs, once for each entry exec.NAME. */
bool chk_is_program(const struct xc_check *check);
bool chk_names_program(const char *id);
/* Whether the policy says which NICs are compute NICs, and which they are. */
bool chk_names_nics(const struct xc_check_input *in);
bool chk_is_rail(const struct xc_check_input *in, size_t nic);
/* The same, or every RDMA port when the policy expects NICs without saying which; says n/a when there
 * is none. */
bool chk_is_compute(const struct xc_check_input *in, size_t nic);
bool chk_no_compute(const struct xc_check_input *in, struct xc_findings *out);
/* A word of the kernel's command line: "isolcpus" gives the last value, "" for a word without one.
 * False: it is not there (or there is no command line: *known false). On the heap. */
bool chk_cmdline(const struct xc_check_input *in, const char *word, char **value, bool *known);
/* The chosen word of a file like "always [madvise] never"; on the heap, NULL without one. */
char *chk_bracketed(const char *text);
/* The difference of a counter to the previous run's of this boot; the counter is kept for the next.
 * False: there is no previous one, or it went back. */
bool chk_delta(const struct xc_check_input *in, int64_t now, int64_t *delta, const char *format,
               ...) xc_printf(4, 5);
bool chk_has_previous(const struct xc_check_input *in);
/* There is nothing to compare with yet: unknown; n/a of a captured machine without counters, which has
 * one moment only. */
void chk_first_run(const struct xc_check_input *in, struct xc_findings *out, const char *format, ...)
    xc_printf(3, 4);

/* ---- the families ------------------------------------------------------------------------------- */

extern const struct xc_check *const chk_cpu[];
extern const struct xc_check *const chk_numa[];
extern const struct xc_check *const chk_host[];
extern const struct xc_check *const chk_grace[];
extern const struct xc_check *const chk_gpu[];
extern const struct xc_check *const chk_gpuhealth[];
extern const struct xc_check *const chk_nic[];
extern const struct xc_check *const chk_dcb[];
extern const struct xc_check *const chk_topo[];
extern const struct xc_check *const chk_environment[];
extern const struct xc_check *const chk_inside[];
extern const struct xc_check *const chk_container[];
extern const struct xc_check *const chk_nccl[];
extern const struct xc_check *const chk_slurm[];
extern const struct xc_check *const chk_self[];
extern const struct xc_check *const chk_exec[];
extern const struct xc_check chk_gpu_xid;
extern const struct xc_check chk_gpu_leftovers;
extern const struct xc_check chk_cpu_busy_freq;

#endif
