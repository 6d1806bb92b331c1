/* nccl: which NCCL variables will a job have, where do they come from, and which are wrong?
 *
 * NCCL takes a misspelt or outdated variable without a word, and has three places behind the
 * environment: NCCL_CONF_FILE (else ~/.nccl.conf) and /etc/nccl.conf. The effective values are put
 * together here, each with its origin, and held against a table of what NCCL's releases know.
 *
 * Texts in, values and findings out; what is under "where NCCL looks" reads files, as whoever calls it.
 * libc alone; steps use it for `explain`.
 */
#ifndef XCLOUD_NCCL_H
#define XCLOUD_NCCL_H

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/policy.h>

/* ---- what NCCL knows --------------------------------------------------------------------------------- */

enum {
    XC_NCCL_NUMBER = 1 << 0, /* NCCL reads a whole number, and takes its own for anything else */
    XC_NCCL_DEBUG = 1 << 1,  /* for finding faults, not for production */
    XC_NCCL_TUNING = 1 << 2, /* in the place of what NCCL works out for each machine and size */
    XC_NCCL_OTHER = 1 << 3   /* NCCL does not read it */
};
struct xc_nccl_variable {
    const char *name;
    unsigned since, gone; /* releases (22809: 2.28.9); 0: before 2.8.3; still there in 2.30.7 */
    const char *builtin;  /* when it is unset; "": not a plain number */
    unsigned flags;
    const char *note; /* "" for none */
};
size_t xc_nccl_variables(const struct xc_nccl_variable **table); /* ascending by name */
const struct xc_nccl_variable *xc_nccl_find(const char *name);

/* ---- releases -------------------------------------------------------------------------------------------- */

/* "2.28.9", "2.28", "2.28.9-1": 22809, 22800, 22809; 0: it is no release. */
unsigned xc_nccl_release(const char *text);
#define XC_NCCL_RELEASE_TEXT 16
const char *xc_nccl_release_text(unsigned release, char text[XC_NCCL_RELEASE_TEXT]); /* "2.28.9" */
/* The release of a libnccl, which says "NCCL version 2.28.9+cuda13.0" in its bytes; 0: it does not. */
unsigned xc_nccl_library_release(const void *bytes, size_t length);
/* Whether a release is one that `nccl: version:` allows: ">= 2.27, != 2.28.3"; also <, <=, >, =. A
 * number that is cut short stands for all of it: = 2.27 allows 2.27.6. XC_EINPUT. */
int xc_nccl_allows(const char *rule, unsigned release, bool *allows, struct xc_error *error);

/* ---- the library ------------------------------------------------------------------------------------------- */

/* A variable of the process that is meant: 0, or -1 when it is not set or does not fit. */
typedef int xc_nccl_get_variable(void *ctx, const char *name, char *buffer, size_t size);
struct xc_nccl_library {
    char path[4096]; /* "": none was found */
    unsigned release; /* 0: it does not say */
};
/* The libnccl that a Python program of that process would load, if the program does not change what is
 * searched: LD_LIBRARY_PATH, VIRTUAL_ENV, CONDA_PREFIX, beside PATH's python3, the system's. get NULL:
 * of this one. Read as the caller, never run. thorough: when neither its name nor its package says the
 * release, all of it is read: up to a second. false: there is none. */
bool xc_nccl_library_find(xc_nccl_get_variable *get, void *ctx, bool thorough,
                          struct xc_nccl_library *out);
/* The same of one file. */
unsigned xc_nccl_library_of(const char *path, bool thorough);
/* What the name of a file with every link resolved says: libnccl.so.2.28.9; 0: nothing. */
unsigned xc_nccl_library_named(const char *path);
#define XC_NCCL_SONAME "libnccl.so.2"
extern const char *const xc_nccl_directories[]; /* the system's, where packages put it; NULL ends */

/* ---- effective values -------------------------------------------------------------------------------------- */

struct xc_nccl_value {
    char *name, *value;
    char *from;   /* "the job", "policy line 12", "/etc/nccl.conf line 3" */
    char *behind; /* what comes after it and is not used: "/etc/nccl.conf line 3 says 0"; NULL */
    bool evidence_missing; /* a policy's number that nobody has measured */
};
struct xc_nccl_values {
    struct xc_nccl_value *list; /* ascending by name once all is added and sorted */
    size_t count, size;
    bool failed; /* no memory: sticks */
};
/* Whether it is one of those that are told of: NCCL_*, UCX_*, NVSHMEM_*. */
bool xc_nccl_is_ours(const char *name);
/* In the order in which they win: the first of a name stands, a later one is behind it. A name that is
 * not told of is passed over. */
void xc_nccl_add(struct xc_nccl_values *values, const char *name, const char *value,
                 const char *from);
/* A file in NCCL's dialect: NAME=VALUE a line, nothing trimmed, # in the first column alone. */
void xc_nccl_add_file(struct xc_nccl_values *values, const char *text, size_t length,
                      const char *from);
void xc_nccl_sort(struct xc_nccl_values *values);
const struct xc_nccl_value *xc_nccl_get(const struct xc_nccl_values *values, const char *name);
void xc_nccl_values_clear(struct xc_nccl_values *values);

/* ---- where NCCL looks, in its order --------------------------------------------------------------------------- */

/* "NAME=VALUE", NULL-terminated, or NULL; at most `most` values in all. */
void xc_nccl_add_environment(struct xc_nccl_values *values, char *const *environment, size_t most,
                             const char *from);
/* conf_file: NCCL_CONF_FILE, home: HOME; NULL: unset. Files that are none are passed over. */
void xc_nccl_add_conf(struct xc_nccl_values *values, const char *conf_file, const char *home);

/* ---- what is wrong with them ------------------------------------------------------------------------------- */

struct xc_nccl_input {
    const struct xc_nccl_values *values;
    unsigned release;           /* 0: not known */
    const struct xc_node *node; /* NULL: not known */
    const struct xc_rules *rules;
    const struct xc_set *cpus;  /* the CPUs of a task that is bound; NULL: it is not */
};
struct xc_nccl_finding {
    const char *name; /* of the variable; points into values */
    bool error;       /* it does something else than its author believes; else: think about it */
    char what[256], fix[160]; /* fix may be "" */
};
struct xc_nccl_findings {
    struct xc_nccl_finding *list;
    size_t count, size;
    bool failed;
};
int xc_nccl_lint(const struct xc_nccl_input *input, struct xc_nccl_findings *out,
                 struct xc_error *error);
void xc_nccl_findings_clear(struct xc_nccl_findings *findings);

/* A line a value, and a line a finding. */
void xc_nccl_text(const struct xc_nccl_values *values, struct xc_text *out);
void xc_nccl_findings_text(const struct xc_nccl_findings *findings, struct xc_text *out);

#endif
