/* May this node drain itself, or do too many already? Pure: limits and what others say in, one word
 * out. A wrong policy, pushed to all nodes, must not take more of them than the limit. */
#include <string.h>

#include <xcloud/prolog.h>

/* ---- limits in numbers ------------------------------------------------------------------------------ */

/* The smaller of both; never below 1. A share of an unknown number is 1. */
static unsigned in_numbers(const struct xc_limit *limit, size_t of)
{
    unsigned number = limit->nodes;
    if (limit->percent) {
        size_t share = of * limit->percent / 100;
        if (share < 1)
            share = 1;
        if (number == 0 || share < number)
            number = (unsigned)share;
    }
    return number;
}

void xc_breaker_limits(const struct xc_rules *rules, size_t cluster_nodes, size_t class_nodes,
                       size_t job_nodes, struct xc_breaker *out)
{
    *out = (struct xc_breaker){
        .cluster = in_numbers(&rules->breaker.cluster, cluster_nodes),
        .class_ = in_numbers(&rules->breaker.class_, class_nodes),
        .job = in_numbers(&rules->breaker.job, job_nodes),
        .window_s = rules->breaker.window_s,
    };
}

/* ---- counting ---------------------------------------------------------------------------------------- */

#define DOUBLINGS 10 /* of the window, at most */

static bool same_class(const struct xc_drained *drained, const struct xc_breaker_who *who)
{
    return xc_streq(drained->class_name, who->class_name ? who->class_name : "");
}

/* One job's nodes count when they say the same: several may break, but not all in the same way. */
static bool same_job(const struct xc_drained *drained, const struct xc_breaker_who *who)
{
    return who->job && drained->job == who->job && xc_streq(drained->code, who->code);
}

/* Which were there before this node: by time, then by name. */
static bool earlier(const struct xc_drained *one, const struct xc_drained *me)
{
    return one->at != me->at ? one->at < me->at : strcmp(one->node, me->node) < 0;
}

struct counting {
    const struct xc_breaker *breaker;
    const struct xc_breaker_who *who;
    const struct xc_drains *drains;
    const struct xc_drained *me; /* not NULL: only what was there before it counts */
    int64_t now;
    unsigned same_window_s; /* for those with this node's finding */
    unsigned cluster, class_, job;
};

static bool counts(const struct counting *c, const struct xc_drained *one)
{
    return one->ours && !xc_streq(one->node, c->who->node) && (!c->me || earlier(one, c->me));
}

/* Clocks differ a little: what is in the future is now. */
static bool within(const struct counting *c, const struct xc_drained *one)
{
    unsigned window = xc_streq(one->code, c->who->code) ? c->same_window_s : c->breaker->window_s;
    return c->now - one->at < (int64_t)window;
}

static unsigned same_window(const struct counting *c)
{
    unsigned same = 0, window = c->breaker->window_s;
    for (size_t i = 0; i < c->drains->count; i++)
        same += counts(c, &c->drains->list[i]) && xc_streq(c->drains->list[i].code, c->who->code);
    unsigned doublings = c->breaker->cluster ? same / c->breaker->cluster : 0;
    for (unsigned i = 0; i < doublings && i < DOUBLINGS && window < 1u << 30; i++)
        window *= 2;
    return window;
}

static enum xc_breaker_word judge(struct counting *c, struct xc_breaker_seen *seen)
{
    const struct xc_breaker *breaker = c->breaker;
    c->same_window_s = same_window(c);
    for (size_t i = 0; i < c->drains->count; i++) {
        const struct xc_drained *one = &c->drains->list[i];
        if (!counts(c, one) || !within(c, one))
            continue;
        c->cluster++;
        c->class_ += same_class(one, c->who);
        c->job += same_job(one, c->who);
    }
    seen->window_s = c->same_window_s;
    seen->count = c->job;
    if (breaker->job && c->job >= breaker->job)
        return XC_FULL_JOB;
    seen->count = c->class_;
    if (breaker->class_ && c->class_ >= breaker->class_)
        return XC_FULL_CLASS;
    seen->count = c->cluster;
    return breaker->cluster && c->cluster >= breaker->cluster ? XC_FULL_CLUSTER : XC_MAY_DRAIN;
}

enum xc_breaker_word xc_breaker_before(const struct xc_breaker *breaker,
                                       const struct xc_breaker_who *who,
                                       const struct xc_drains *drains, int64_t now,
                                       struct xc_breaker_seen *seen)
{
    struct counting counting = {.breaker = breaker, .who = who, .drains = drains, .now = now};
    return judge(&counting, seen);
}

enum xc_breaker_word xc_breaker_after(const struct xc_breaker *breaker,
                                      const struct xc_breaker_who *who,
                                      const struct xc_drains *drains, struct xc_breaker_seen *seen)
{
    const struct xc_drained *me = xc_drains_find(drains, who->node);
    *seen = (struct xc_breaker_seen){.window_s = breaker->window_s};
    if (!me || !me->ours)
        return XC_MAY_DRAIN; /* somebody else has taken it over */
    struct counting counting = {
        .breaker = breaker, .who = who, .drains = drains, .me = me, .now = me->at};
    return judge(&counting, seen);
}

/* ---- for people ---------------------------------------------------------------------------------------- */

static void time_text(unsigned seconds, char *text, size_t size)
{
    if (seconds % 3600 == 0)
        snprintf(text, size, "%u h", seconds / 3600);
    else if (seconds % 60 == 0)
        snprintf(text, size, "%u min", seconds / 60);
    else
        snprintf(text, size, "%u s", seconds);
}

void xc_breaker_text(enum xc_breaker_word word, const struct xc_breaker *breaker,
                     const struct xc_breaker_seen *seen, const struct xc_breaker_who *who,
                     char *text, size_t size)
{
    char window[32];
    unsigned count = seen->count;
    time_text(seen->window_s, window, sizeof window);
    switch (word) {
    case XC_FULL_JOB:
        snprintf(text, size,
                 "%u nodes of job %u say %s already, the limit is %u: this is taken for a fault of "
                 "the policy, not of the nodes",
                 count, who->job, who->code, breaker->job);
        break;
    case XC_FULL_CLASS:
        snprintf(text, size, "%u nodes of class %.63s were drained within %s, the limit is %u",
                 count, who->class_name && *who->class_name ? who->class_name : "-", window,
                 breaker->class_);
        break;
    case XC_FULL_CLUSTER:
        snprintf(text, size, "%u nodes of the cluster were drained within %s, the limit is %u",
                 count, window, breaker->cluster);
        break;
    default:
        snprintf(text, size, "%u of %u nodes were drained within %s", count, breaker->cluster,
                 window);
    }
}
