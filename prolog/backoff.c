/* May a node that was refused ask again? Counting asks the controller, and when a policy is wrong for
 * all nodes, all their prologs fail, again with each job: what was the answer a moment ago is the answer
 * still. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define HEAD           "xcloud-refused 1"
#define ASKED_A_SECOND 5 /* by all nodes of a cluster together */
#define LEAST_S        30
#define MOST_S         3600
#define UNKNOWN_S      60 /* where nobody knows how many nodes there are */

unsigned xc_breaker_wait_s(size_t nodes, uint64_t random)
{
    size_t wait = nodes ? nodes / ASKED_A_SECOND : UNKNOWN_S;
    wait = wait < LEAST_S ? LEAST_S : wait > MOST_S ? MOST_S : wait;
    return (unsigned)(wait - wait / 4 + random % (wait / 2 + 1));
}

uint64_t random_number(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed[2] = {(uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30, (uint64_t)getpid()};
    return xc_hash64(seed, sizeof seed);
}

/* ---- what is remembered ----------------------------------------------------------------------------- */

/* An answer holds for the policy and the finding that were refused; that of a job's limit for the job. */
struct refusal {
    int64_t until_s; /* CLOCK_BOOTTIME; the file is of this boot */
    char policy[17], code[16], why[500];
    long job; /* 0: any */
};

static int64_t now_s(void)
{
    return xc_boottime_us() / 1000000;
}

static bool take_line(char *line, struct refusal *out)
{
    char *value = strchr(line, ' ');
    long number;
    if (!value)
        return false;
    *value++ = '\0';
    if (xc_streq(line, "until") && xc_to_long(value, 0, __LONG_MAX__, &number))
        out->until_s = number;
    else if (xc_streq(line, "job") && xc_to_long(value, 0, 4294967295l, &number))
        out->job = number;
    else if (xc_streq(line, "policy"))
        snprintf(out->policy, sizeof out->policy, "%s", value);
    else if (xc_streq(line, "code"))
        snprintf(out->code, sizeof out->code, "%s", value);
    else if (xc_streq(line, "why"))
        snprintf(out->why, sizeof out->why, "%s", value);
    else
        return false;
    return true;
}

static bool read_refusal(const struct program *program, struct refusal *out)
{
    size_t length;
    xc_autofree char *path = run_path(program, "refused");
    xc_autofree char *text = path ? xc_read_trusted(path, 4096, &length, NULL) : NULL;
    char *rest = text, *line = text ? strsep(&rest, "\n") : NULL;
    *out = (struct refusal){0};
    if (!xc_streq(line, HEAD))
        return false;
    while ((line = strsep(&rest, "\n")))
        if (*line && !take_line(line, out))
            return false;
    return true;
}

/* ---- asking and telling ------------------------------------------------------------------------------- */

unsigned backoff_left(const struct program *program, const struct shared *shared, char *why,
                      size_t size)
{
    struct refusal refusal;
    if (!read_refusal(program, &refusal))
        return 0;
    int64_t left = refusal.until_s - now_s();
    bool same = xc_streq(refusal.policy, shared->hash) && xc_streq(refusal.code, shared->code) &&
                (refusal.job == 0 || refusal.job == (long)program->job);
    if (!same || left <= 0 || left > 2 * MOST_S) /* of another boot, where /run is kept */
        return 0;
    snprintf(why, size, "%s", refusal.why);
    return (unsigned)left;
}

int backoff_begin(const struct program *program, const struct shared *shared, unsigned seconds,
                  bool of_job, const char *why, struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_autofree char *path = run_path(program, "refused");
    xc_text_addf(&text, HEAD "\nuntil %" PRId64 "\npolicy %s\ncode %s\njob %u\nwhy ",
                 now_s() + seconds, shared->hash, shared->code, of_job ? program->job : 0);
    xc_text_add_plain(&text, why, 400);
    xc_text_add(&text, "\n");
    size_t length = text.length;
    xc_autofree char *bytes = xc_text_take(&text);
    return path && bytes ? xc_write_atomic(path, bytes, length, 0644, error)
                         : xc_error_nomem(error);
}

void backoff_end(const struct program *program)
{
    xc_autofree char *path = run_path(program, "refused");
    if (path)
        unlink(path);
}
