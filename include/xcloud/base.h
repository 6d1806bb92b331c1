/* base: errors, CPU and node sets, reading below a root directory, owner checks, text and JSON.
 *
 * Every room stands on this one; it needs libc alone, because it runs inside srun and slurmstepd.
 *
 * Conventions, here and in every header of the project:
 *  - a function that can fail returns 0 or -1 (or a pointer or NULL) and fills `struct xc_error`,
 *    its last argument, which may be NULL when the caller only wants to know that it failed;
 *  - what a function returns through `**out` or as `char *` belongs to the caller;
 *  - free functions accept NULL, and pointers into a cleared structure;
 *  - sizes are in bytes, frequencies in kHz, times in microseconds, rates in Mb/s.
 */
#ifndef XCLOUD_BASE_H
#define XCLOUD_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* ---- ownership at the declaration ------------------------------------------------------------ */

#define xc_cleanup(fn)  __attribute__((cleanup(fn)))
#define xc_autofree     xc_cleanup(xc_free_ptr)     /* char *p: free(p)                */
#define xc_autoclose    xc_cleanup(xc_close_ptr)    /* int fd: close(fd) if fd >= 0    */
#define xc_autofclose   xc_cleanup(xc_fclose_ptr)   /* FILE *f                         */
#define xc_autoset      xc_cleanup(xc_set_free)     /* struct xc_set s = XC_SET_EMPTY  */
#define xc_autotext     xc_cleanup(xc_text_free)    /* struct xc_text t = XC_TEXT_INIT */
#define xc_autonames    xc_cleanup(xc_names_free)   /* char **names                    */
#define xc_printf(f, a) __attribute__((format(printf, f, a)))

void xc_free_ptr(void *pointer_to_pointer);
void xc_close_ptr(const int *fd);
void xc_fclose_ptr(FILE **file);

#define XC_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- errors ---------------------------------------------------------------------------------- */

enum xc_code {
    XC_OK = 0,
    XC_EINPUT,   /* input (policy, words, list, file) is not what it must be */
    XC_EOWNER,   /* a file that root must trust is owned or writable by somebody else */
    XC_ENOENT,   /* it is not there */
    XC_ENOTSUP,  /* this kernel, machine or build cannot do it */
    XC_ESYS,     /* a system call failed; the message has strerror */
    XC_ENOMEM,
};

/* A plain value: nothing to free. `where` is FILE:LINE:COLUMN, a path, an option, or empty. Longer
 * texts are cut, never overrun. */
struct xc_error {
    enum xc_code code;
    char where[256];
    char message[768];
};

/* Both return -1, so that a caller writes `return xc_error_set(...)`. wrap puts "text: " in front of
 * the message that is already there and keeps its code and place. error may be NULL. */
int xc_error_set(struct xc_error *error, enum xc_code code, const char *where, const char *format,
                 ...) xc_printf(4, 5);
int xc_error_wrap(struct xc_error *error, const char *format, ...) xc_printf(2, 3);
int xc_error_errno(struct xc_error *error, const char *where, const char *action); /* uses errno */
int xc_error_nomem(struct xc_error *error);
/* "where: message" into buffer (size >= 1); returns buffer. */
const char *xc_error_text(const struct xc_error *error, char *buffer, size_t size);

/* ---- text that grows --------------------------------------------------------------------------- */

/* A growing NUL-terminated string. Failure to grow sticks (`failed`) and later appends do nothing,
 * so that it is checked once, at the end, by xc_text_take. */
struct xc_text {
    char *data; /* NULL until the first append */
    size_t length, size;
    bool failed;
};
#define XC_TEXT_INIT {0}

void xc_text_free(struct xc_text *text);
void xc_text_add(struct xc_text *text, const char *string);
void xc_text_add_n(struct xc_text *text, const char *bytes, size_t count);
void xc_text_addf(struct xc_text *text, const char *format, ...) xc_printf(2, 3);
void xc_text_addv(struct xc_text *text, const char *format, va_list args);
/* Control characters become ?; returns string, which may be NULL. */
char *xc_plain(char *string);
/* Somebody's string for people to read: control characters as ?, cut at max bytes. */
void xc_text_add_plain(struct xc_text *text, const char *string, size_t max);
/* Appends what fd gives until its end, at most limit bytes in all. 0, or -errno (EFBIG: there is more);
 * what was read until then stays. */
int xc_text_read(struct xc_text *text, int fd, size_t limit);
/* The string (never NULL on success: "" when nothing was added), owned by the caller; text is reset.
 * NULL when an append had failed. */
char *xc_text_take(struct xc_text *text);

/* ---- strings ----------------------------------------------------------------------------------- */

bool xc_streq(const char *a, const char *b);          /* NULL equals NULL alone */
bool xc_starts(const char *string, const char *prefix);
char *xc_trim(char *string);                          /* in place; returns the first non-blank */
/* A whole decimal number in [min, max] and nothing else: no sign before an unsigned one, no blank. */
bool xc_to_long(const char *string, long min, long max, long *out);
/* The entry of a NULL-terminated list nearest to word (edit distance <= 1 + length/3), or NULL. For
 * "did you mean". */
const char *xc_nearest(const char *word, const char *const *known);
uint64_t xc_hash64(const void *bytes, size_t length); /* FNV-1a; tells versions apart, no secret */
/* Whether name matches pattern: '*' and '?' as in fnmatch(3) without slashes or brackets. */
bool xc_glob(const char *pattern, const char *name);
/* Whether name is in a host list in Slurm's notation: "gpu[001-064,070],login*,cn1". 1, 0, or -1 for
 * a list that cannot be read. */
int xc_hostlist_has(const char *list, const char *name, struct xc_error *error);

void xc_names_free(char ***names); /* a NULL-terminated array of strings, each on the heap */
char **xc_names_split(const char *list); /* the entries of a comma list; NULL without memory */

/* ---- sets of CPUs or NUMA nodes ---------------------------------------------------------------- */

/* A set of small non-negative numbers without upper limit; all-zero is the empty set. Growing may
 * fail: `failed` then sticks, and travels into every set computed from this one, so that a plan
 * checks it once at its end. */
struct xc_set {
    unsigned long *words;
    size_t nwords;
    bool failed;
};
#define XC_SET_EMPTY {0}

void xc_set_free(struct xc_set *set);
void xc_set_clear(struct xc_set *set);
void xc_set_add(struct xc_set *set, size_t member);
void xc_set_add_range(struct xc_set *set, size_t first, size_t last);
void xc_set_del(struct xc_set *set, size_t member);
bool xc_set_has(const struct xc_set *set, size_t member);
size_t xc_set_count(const struct xc_set *set);
bool xc_set_empty(const struct xc_set *set);
bool xc_set_equal(const struct xc_set *a, const struct xc_set *b);
bool xc_set_subset(const struct xc_set *inner, const struct xc_set *outer);
bool xc_set_intersects(const struct xc_set *a, const struct xc_set *b);
size_t xc_set_common(const struct xc_set *a, const struct xc_set *b); /* count of a & b */
void xc_set_copy(struct xc_set *to, const struct xc_set *from);
void xc_set_or(struct xc_set *to, const struct xc_set *other);
void xc_set_and(struct xc_set *to, const struct xc_set *other);
void xc_set_andnot(struct xc_set *to, const struct xc_set *other);
/* Lowest member >= from, or -1. for (ssize_t i = xc_set_next(s, 0); i >= 0; i = xc_set_next(s, i+1)) */
ssize_t xc_set_next(const struct xc_set *set, size_t from);

/* Highest number that any list may name; a larger one is an error, so that "0-4000000000" in a file
 * costs no memory. Linux itself allows 8192 CPUs. */
#define XC_SET_LIMIT 65536

/* The kernel's list notation ("0-7,56-63", "0-30:2/4"; "" and "\n" are the empty set). `where` names
 * the source in the error. */
int xc_set_parse_list(struct xc_set *set, const char *list, const char *where,
                      struct xc_error *error);
/* The kernel's mask notation: hexadecimal groups of 32 bits, "00000000,000000ff", "0x" accepted. */
int xc_set_parse_mask(struct xc_set *set, const char *mask, const char *where,
                      struct xc_error *error);
/* "0-7,56-63", "" for the empty set; NULL without memory. */
char *xc_set_format(const struct xc_set *set);
void xc_text_add_set(struct xc_text *text, const struct xc_set *set);

/* A mask as the kernel gives it, low bits first. */
void xc_set_take_mask(struct xc_set *set, const unsigned long *mask, size_t words);
/* A process's CPUs (pid 0: the caller's) asked of the kernel, and set. 0 or -errno; a set that lies
 * partly outside the cpuset "succeeds" with the rest: read it back. */
int xc_affinity_get(pid_t pid, struct xc_set *cpus);
int xc_affinity_set(pid_t pid, const struct xc_set *cpus);

/* CLOCK_MONOTONIC: for deadlines. CLOCK_BOOTTIME, which counts suspended time too: for what is kept
 * between the runs of a boot. */
int64_t xc_now_us(void);
int64_t xc_now_ms(void);
int64_t xc_boottime_us(void);

/* ---- reading below a root directory ------------------------------------------------------------ */

/* All that the project reads about a machine is read through a root: "/" on the live machine, a
 * directory of a captured one, or an archive in memory. Paths are absolute within the root
 * ("/sys/devices/..."); symbolic links are resolved within it and cannot leave it
 * (openat2(2), RESOLVE_IN_ROOT; before Linux 5.6 a directory root is refused and "/" works). */
struct xc_root;

/* What a root is made of. base/ implements directories; node/ adds archives. A file's content, a
 * directory's entries or a link are given for canonical or non-canonical paths alike; 0 or -errno. */
struct xc_root_ops {
    /* At most limit bytes into a new NUL-terminated buffer. -EFBIG when there is more. */
    int (*read)(void *self, const char *path, size_t limit, char **out, size_t *length);
    /* The first bytes, at most size, into buffer; their number, or -errno. No more is read of the file
     * than that. NULL: read() is good enough, as in an archive. */
    ssize_t (*start)(void *self, const char *path, void *buffer, size_t size);
    /* Names without "." and "..", sorted by bytes, NULL-terminated. */
    int (*list)(void *self, const char *path, char ***names);
    /* The path with every link resolved, absolute within the root. */
    int (*canonical)(void *self, const char *path, char **out);
    /* 0: root (or the caller) owns the file and others cannot write it; -EPERM; NULL: nobody can
     * tell, as in an archive. */
    int (*trusted)(void *self, const char *path);
    void (*close)(void *self);
};
int xc_root_new(const struct xc_root_ops *ops, void *self, const char *name, struct xc_root **out,
                struct xc_error *error);
int xc_root_open_dir(const char *path, struct xc_root **out, struct xc_error *error);
void xc_root_close(struct xc_root *root);
void xc_root_close_ptr(struct xc_root **root);
#define xc_autoroot xc_cleanup(xc_root_close_ptr)
const char *xc_root_name(const struct xc_root *root); /* as opened: "/", "dgx-h100.tar.xz" */
bool xc_root_is_live(const struct xc_root *root);     /* it is "/" */

#define XC_READ_LIMIT (4u << 20) /* files of sysfs, procfs and configuration are smaller */

/* Whole file, NUL-terminated, on the heap; length may be NULL. NULL and error otherwise; XC_ENOENT
 * when it is not there. The format makes the path. */
char *xc_root_read(struct xc_root *root, size_t *length, struct xc_error *error, const char *format,
                   ...) xc_printf(4, 5);
/* The first bytes of a file, for where reading on costs: a PCI device answers each four of them itself.
 * Their number, or -1. */
ssize_t xc_root_read_start(struct xc_root *root, void *buffer, size_t size, const char *format, ...)
    xc_printf(4, 5);
/* A file's one number; false (and *out untouched) when it is missing or no number. Base 0: 0x... */
bool xc_root_read_long(struct xc_root *root, long *out, const char *format, ...) xc_printf(3, 4);
/* A file's first line without its newline, on the heap, or NULL. */
char *xc_root_read_line(struct xc_root *root, const char *format, ...) xc_printf(2, 3);
/* A list or mask file as a set; false when missing or malformed. */
bool xc_root_read_set(struct xc_root *root, struct xc_set *out, const char *format, ...)
    xc_printf(3, 4);
/* Entries of a directory, sorted; NULL when it is missing. */
char **xc_root_list(struct xc_root *root, const char *format, ...) xc_printf(2, 3);
/* Absolute path within the root with every link resolved, or NULL when it is missing. */
char *xc_root_canonical(struct xc_root *root, const char *format, ...) xc_printf(2, 3);
bool xc_root_exists(struct xc_root *root, const char *format, ...) xc_printf(2, 3);
/* Whether root may trust the file: on the live machine as xc_open_trusted, below a directory by the
 * file's own owner and mode. XC_EOWNER, XC_ENOENT, XC_ENOTSUP (nobody can tell). */
int xc_root_trusted(struct xc_root *root, const char *path, struct xc_error *error);

/* ---- files that root trusts -------------------------------------------------------------------- */

/* Opens a regular file that decides what root does. Every component of the path must be a directory
 * owned by root that others cannot write (a sticky one of root is accepted, /tmp or a ConfigMap
 * volume: others cannot replace what root owns in it), the file likewise; symbolic links are followed only when
 * root owns them, and each target's components are judged the same. Returns the descriptor
 * (O_CLOEXEC) or -1 with XC_EOWNER, XC_ENOENT or XC_ESYS. When the caller is not root, its own uid
 * counts as an owner too, so that a user can try a policy of his own. */
int xc_open_trusted(const char *path, struct xc_error *error);
/* The content of such a file, at most limit bytes; NULL and error otherwise. */
char *xc_read_trusted(const char *path, size_t limit, size_t *length, struct xc_error *error);
/* Whole content of an open descriptor; NULL and error otherwise. */
char *xc_read_fd(int fd, const char *name, size_t limit, size_t *length, struct xc_error *error);
/* Replaces path with bytes: temporary file beside it, fsync, rename. mode as for open(2). */
int xc_write_atomic(const char *path, const void *bytes, size_t length, mode_t mode,
                    struct xc_error *error);
/* mkdir -p with mode for the ones it makes. */
int xc_make_dirs(const char *path, mode_t mode, struct xc_error *error);

/* ---- children with a deadline ------------------------------------------------------------------ */

/* Code, or somebody else's program, that may never come back. */
#define XC_CHILD_TEXT (256u << 10)
struct xc_child {
    /* Runs in the child: what it writes to `out` is its text. stdin and stderr are /dev/null; no
     * other descriptor is open but `keep`. Returns the exit status. */
    int (*run)(void *data, int out);
    void *data;
    int keep;             /* a descriptor that the child needs, or -1 */
    unsigned deadline_ms; /* its own, when it is shorter than that of all; 0: none */
    size_t limit;         /* bytes of text at most, the rest is lost; 0: XC_CHILD_TEXT */
    char *text;           /* out: never NULL but without memory */
    int status;           /* out: of wait(2), when `ended` */
    bool ended;           /* out: false: it was killed at the deadline and not waited for */
    bool cut;             /* out: there was more than limit */
    bool started;         /* out: false: no process (errno in status) */
    /* private */
    int pid, fd, pidfd;
    struct xc_text read;
};
/* Runs all at once, each in a session of its own, and returns when all have ended, at the latest after
 * deadline_ms. */
void xc_children_run(struct xc_child *children, size_t count, unsigned deadline_ms);

/* A program, opened once, from a path that root trusts; what was opened is what runs. */
#define XC_COMMAND_TEXT 4096
struct xc_command {
    const char *path;
    const char *const *argv; /* NULL-terminated, [0] too; NULL: the path alone */
    const char *const *env;  /* NULL-terminated; NULL: an empty environment */
    unsigned deadline_ms;    /* its own, when it is shorter than that of all; 0: none */
    size_t limit;            /* bytes of text; 0: XC_COMMAND_TEXT */
    bool errors;             /* what it writes to stderr is text, too */
    bool by_path;            /* it is run by its path: a wrapper may look beside itself */
    struct xc_error error;   /* out: why it was not run, when child.started is false */
    struct xc_child child;   /* out: how it ended and what it wrote */
};
/* Runs all at once. Every `child.text` belongs to the caller. */
void xc_commands_run(struct xc_command *commands, size_t count, unsigned deadline_ms);

/* ---- JSON -------------------------------------------------------------------------------------- */

/* Writes JSON into a text: commas, quotes and escapes are its business; indentation by 2 when pretty.
 * key is NULL inside an array and at the top. */
struct xc_json {
    struct xc_text *out;
    unsigned depth;
    bool comma, pretty;
};
void xc_json_begin(struct xc_json *json, struct xc_text *out, bool pretty);
void xc_json_object(struct xc_json *json, const char *key);
void xc_json_array(struct xc_json *json, const char *key);
void xc_json_end(struct xc_json *json, char bracket); /* '}' or ']' */
void xc_json_string(struct xc_json *json, const char *key, const char *value); /* NULL: null */
void xc_json_int(struct xc_json *json, const char *key, int64_t value);
void xc_json_bool(struct xc_json *json, const char *key, bool value);
void xc_json_set(struct xc_json *json, const char *key, const struct xc_set *set); /* "0-7,9" */

/* ---- columns ----------------------------------------------------------------------------------- */

/* A table for people: cells are added row by row, columns are as wide as their widest cell, two
 * blanks between, no blanks at line ends. Rows may be shorter than the first. */
struct xc_table {
    char **cells; /* rows * columns, NULL = empty */
    size_t columns, rows, size;
    bool failed;
    uint64_t right; /* bit c: column c is right-aligned */
};
void xc_table_begin(struct xc_table *table, size_t columns);
void xc_table_row(struct xc_table *table);
void xc_table_cell(struct xc_table *table, size_t column, const char *format, ...) xc_printf(3, 4);
void xc_table_write(const struct xc_table *table, struct xc_text *out);
void xc_table_free(struct xc_table *table);
#define xc_autotable xc_cleanup(xc_table_free)

#endif
