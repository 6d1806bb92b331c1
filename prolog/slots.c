/* How do nodes share a limit without a server? In a directory that all of them see, a slot is a file
 * that only one can make:
 *
 *     KIND.INDEX.GENERATION      cluster.3.17, class-hgx-h100.0.4, job-4711.1.1
 *
 * The highest generation of an index counts. It is free a window after it was made; its successor is
 * made with O_EXCL, so that two nodes that see the same old one do not both get it. A node that is
 * refused leaves refused.N: while more of these are fresh than a few hardware faults explain, no old
 * slot is free again. Times are the directory's own clock, whatever the nodes' are. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/prolog.h>

#define INDEX_MAX 4096
#define STALE     16 /* windows after which a file is nobody's */
#define OLD_PARTS 4  /* generations that are kept: a directory's listing may be old */

/* ---- looking ------------------------------------------------------------------------------------------ */

struct seen {
    unsigned generation[INDEX_MAX]; /* the highest; 0: none */
    bool fresh[INDEX_MAX];          /* made within the window */
    unsigned refused;
};

static bool take_number(const char **at, unsigned *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    unsigned long number = strtoul(*at, &end, 10);
    *at = end;
    *out = (unsigned)number;
    return number <= 1000000000ul;
}

/* "KIND.INDEX.GENERATION" */
static bool parse_name(const char *name, const char *kind, unsigned *index, unsigned *generation)
{
    size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0 || name[length] != '.')
        return false;
    const char *at = name + length + 1;
    if (!take_number(&at, index) || *at++ != '.' || !take_number(&at, generation))
        return false;
    return *at == '\0' && *index<INDEX_MAX && * generation> 0;
}

/* Seconds since the file was made; -1: it has gone. */
static int64_t age_of(int dir_fd, const char *name, int64_t now)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return now > st.st_mtim.tv_sec ? now - st.st_mtim.tv_sec : 0;
}

static void see(int dir_fd, const char *name, const char *kind, unsigned window_s, int64_t now,
                struct seen *seen)
{
    unsigned index, generation;
    if (xc_starts(name, "refused.")) {
        int64_t age = age_of(dir_fd, name, now);
        seen->refused += age >= 0 && age < window_s;
    } else if (parse_name(name, kind, &index, &generation)) {
        int64_t age = age_of(dir_fd, name, now);
        if (age >= 0 && generation > seen->generation[index]) {
            seen->generation[index] = generation;
            seen->fresh[index] = age < window_s;
        }
    } else if (xc_starts(name, "job-") && age_of(dir_fd, name, now) > (int64_t)window_s * STALE) {
        unlinkat(dir_fd, name, 0);
    }
}

static int scan(int dir_fd, const char *kind, unsigned window_s, int64_t now, struct seen *seen,
                struct xc_error *error)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        xc_error_errno(error, "breaker directory", "cannot list it");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir)))
        see(dir_fd, entry->d_name, kind, window_s, now, seen);
    int failed = errno;
    closedir(dir);
    errno = failed;
    return failed ? xc_error_errno(error, "breaker directory", "cannot list it") : 0;
}

/* Nodes that are refused say so in one of these many files, so that the directory stays small. */
static unsigned refused_files(unsigned limit)
{
    return limit < 4 ? 16 : limit < INDEX_MAX / 4 ? 4 * limit : INDEX_MAX;
}

int xc_slots_look(int dir_fd, const char *kind, unsigned limit, unsigned window_s, int64_t now,
                  struct xc_slot_view *out, struct xc_error *error)
{
    xc_autofree struct seen *seen = calloc(1, sizeof *seen);
    *out = (struct xc_slot_view){0};
    if (!seen)
        return xc_error_nomem(error);
    if (scan(dir_fd, kind, window_s, now, seen, error) < 0)
        return -1;
    out->held = seen->refused >= limit + 2;
    if (limit > INDEX_MAX)
        limit = INDEX_MAX;
    for (unsigned i = 0; i < limit; i++) {
        bool taken = seen->generation[i] && (seen->fresh[i] || out->held);
        out->taken += taken;
        if (!taken && !out->free[0])
            snprintf(out->free, sizeof out->free, "%.90s.%u.%u", kind, i, seen->generation[i] + 1);
    }
    return 0;
}

/* ---- taking ------------------------------------------------------------------------------------------- */

int xc_slots_claim(int dir_fd, const char *name, const char *node, struct xc_error *error)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        return 0;
    if (fd < 0)
        return xc_error_errno(error, "breaker directory", "cannot make a slot");
    char line[300];
    int length = snprintf(line, sizeof line, "%.250s\n", node);
    bool written = write(fd, line, (size_t)length) == length;
    /* a slot that could not be written counts all the same: the name is what matters */
    close(fd);
    (void)written;
    unsigned generation = 0;
    const char *dot = strrchr(name, '.'), *at = dot ? dot + 1 : "";
    if (dot && take_number(&at, &generation) && generation > OLD_PARTS) {
        char old[160];
        snprintf(old, sizeof old, "%.*s.%u", (int)(dot - name), name, generation - OLD_PARTS);
        unlinkat(dir_fd, old, 0);
    }
    return 1;
}

int64_t xc_slots_now(int dir_fd, const char *node, struct xc_error *error)
{
    char name[300];
    struct stat st;
    snprintf(name, sizeof name, ".now.%.200s.%d", node, (int)getpid());
    xc_autoclose int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return xc_error_errno(error, "breaker directory", "cannot write in it");
    int rc = fstat(fd, &st);
    unlinkat(dir_fd, name, 0);
    return rc == 0 ? st.st_mtim.tv_sec
                   : xc_error_errno(error, "breaker directory", "cannot tell its time");
}

void xc_slots_refuse(int dir_fd, unsigned limit, const char *node, int64_t now)
{
    char name[64];
    snprintf(name, sizeof name, "refused.%u",
             (unsigned)(xc_hash64(node, strlen(node)) % refused_files(limit)));
    xc_autoclose int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    struct timespec at[2] = {{.tv_sec = now}, {.tv_sec = now}};
    if (fd >= 0)
        futimens(fd, now ? at : NULL);
}

void xc_slots_release(int dir_fd, const struct xc_slots *slots)
{
    for (unsigned i = 0; i < slots->count; i++)
        unlinkat(dir_fd, slots->names[i], 0);
}

#define TRIES 64 /* others may be faster that many times */

/* 1: got one; 0: none is free; -1. */
static int take_one(int dir_fd, const char *kind, unsigned limit, const struct xc_breaker *breaker,
                    const char *node, struct xc_slots *out, struct xc_breaker_seen *seen,
                    struct xc_error *error)
{
    for (unsigned tries = 0; tries < TRIES; tries++) {
        struct xc_slot_view view;
        int64_t now = xc_slots_now(dir_fd, node, error);
        if (now < 0 || xc_slots_look(dir_fd, kind, limit, breaker->window_s, now, &view, error) < 0)
            return -1;
        seen->count = view.taken;
        if (!view.free[0])
            return 0;
        int rc = xc_slots_claim(dir_fd, view.free, node, error);
        if (rc == 1)
            snprintf(out->names[out->count++], sizeof out->names[0], "%s", view.free);
        if (rc != 0)
            return rc;
    }
    return 0; /* so many at once: it is full */
}

int xc_slots_take(int dir_fd, const struct xc_breaker *breaker, const struct xc_breaker_who *who,
                  struct xc_slots *out, struct xc_breaker_seen *seen, struct xc_error *error)
{
    char class_kind[96], job_kind[64];
    snprintf(class_kind, sizeof class_kind, "class-%.63s", who->class_name ? who->class_name : "");
    snprintf(job_kind, sizeof job_kind, "job-%u-%.15s", who->job, who->code);
    const struct {
        const char *kind;
        unsigned limit;
        enum xc_breaker_word full;
    } kinds[XC_SLOTS_MAX] = {
        {job_kind, who->job ? breaker->job : 0, XC_FULL_JOB},
        {class_kind, breaker->class_, XC_FULL_CLASS},
        {"cluster", breaker->cluster, XC_FULL_CLUSTER},
    };
    *out = (struct xc_slots){0};
    *seen = (struct xc_breaker_seen){.window_s = breaker->window_s};
    for (size_t i = 0; i < XC_COUNT(kinds); i++) {
        if (kinds[i].limit == 0)
            continue;
        int rc =
            take_one(dir_fd, kinds[i].kind, kinds[i].limit, breaker, who->node, out, seen, error);
        if (rc == 1)
            continue;
        xc_slots_release(dir_fd, out);
        out->count = 0;
        if (rc < 0)
            return -1;
        xc_slots_refuse(dir_fd, breaker->cluster ? breaker->cluster : kinds[i].limit, who->node, 0);
        return (int)kinds[i].full;
    }
    return XC_MAY_DRAIN;
}
