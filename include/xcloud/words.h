/* words: what a person may write after `--xcloud-bind=`.
 *
 * A comma list of words: on off verbose verbose=all explain dry strict help gpus=order|restrict
 * smt=all|first memory=preferred|bind|interleave|none profile=NAME. It is compiled into the plugin
 * that srun loads, so it needs libc and base/ alone. The enums are also the policy's `bind:` values.
 */
#ifndef XCLOUD_WORDS_H
#define XCLOUD_WORDS_H

#include <xcloud/base.h>

enum xc_gpus { XC_GPUS_UNSET, XC_GPUS_ORDER, XC_GPUS_RESTRICT };
enum xc_smt { XC_SMT_UNSET, XC_SMT_ALL, XC_SMT_FIRST };
enum xc_memory {
    XC_MEMORY_UNSET,
    XC_MEMORY_PREFERRED,
    XC_MEMORY_BIND,
    XC_MEMORY_INTERLEAVE,
    XC_MEMORY_NONE
};
enum xc_verbose { XC_QUIET, XC_VERBOSE, XC_VERBOSE_ALL };

/* What a user may change; the names of the policy's `bind: users_may:`. */
enum xc_may {
    XC_MAY_DISABLE = 1 << 0,
    XC_MAY_SMT = 1 << 1,
    XC_MAY_MEMORY = 1 << 2,
    XC_MAY_GPUS = 1 << 3,
    XC_MAY_PROFILE = 1 << 4,
};

#define XC_PROFILE_MAX 64 /* longest profile name, NUL included */

struct xc_words {
    bool given;   /* the option was used at all (also with an empty value) */
    bool on, off; /* at most one; neither: the policy's default */
    bool explain, dry, strict, help;
    enum xc_verbose verbose;
    enum xc_gpus gpus;
    enum xc_smt smt;
    enum xc_memory memory;
    char profile[XC_PROFILE_MAX]; /* [A-Za-z0-9_.-]+, empty: none */
};

/* Parses an option's value. NULL, "" and "(null)" are the option without a value: given and on
 * (Slurm turns a missing value into either of these on its way, facts: 22.05 to 26.05). A wrong word
 * gives XC_EINPUT, with the valid ones; words are then cleared. Later words win over earlier ones. */
int xc_words_parse(const char *value, struct xc_words *words, struct xc_error *error);

/* Takes out of words what `may` (XC_MAY_*) does not permit. Returns a comma list of what was taken
 * out, on the heap, or NULL when nothing was. verbose, explain, dry, strict and help always stay. */
char *xc_words_permit(struct xc_words *words, unsigned may);

/* The text of `--xcloud-bind=help`: a constant. */
const char *xc_words_help(void);

/* Names as in the policy ("order", "all", "preferred"); "" for unset. */
const char *xc_gpus_name(enum xc_gpus value);
const char *xc_smt_name(enum xc_smt value);
const char *xc_memory_name(enum xc_memory value);

#endif
