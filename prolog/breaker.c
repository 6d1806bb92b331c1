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

static bool in_window(const struct xc_breaker *breaker, const struct xc_drained *drained,
                      int64_t now)
{
    /* clocks differ a little: what is in the future is now */
    return drained->ours && now - drained->at < (int64_t)breaker->window_s;
}

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

struct counts {
    unsigned cluster, class_, job;
};

/* Counts the others; me not NULL: only those before it. */
static struct counts count_others(const struct xc_breaker *breaker,
                                  const struct xc_breaker_who *who, const struct xc_drains *drains,
                                  const struct xc_drained *me, int64_t now)
{
    struct counts counts = {0};
    for (size_t i = 0; i < drains->count; i++) {
        const struct xc_drained *one = &drains->list[i];
        if (!in_window(breaker, one, now) || xc_streq(one->node, who->node) ||
            (me && !earlier(one, me)))
            continue;
        counts.cluster++;
        counts.class_ += same_class(one, who);
        counts.job += same_job(one, who);
    }
    return counts;
}

static enum xc_breaker_word word_of(const struct xc_breaker *breaker, const struct counts *counts,
                                    unsigned *count)
{
    if (breaker->job && counts->job >= breaker->job) {
        *count = counts->job;
        return XC_FULL_JOB;
    }
    if (breaker->class_ && counts->class_ >= breaker->class_) {
        *count = counts->class_;
        return XC_FULL_CLASS;
    }
    *count = counts->cluster;
    return breaker->cluster && counts->cluster >= breaker->cluster ? XC_FULL_CLUSTER : XC_MAY_DRAIN;
}

enum xc_breaker_word xc_breaker_before(const struct xc_breaker *breaker,
                                       const struct xc_breaker_who *who,
                                       const struct xc_drains *drains, int64_t now, unsigned *count)
{
    struct counts counts = count_others(breaker, who, drains, NULL, now);
    return word_of(breaker, &counts, count);
}

enum xc_breaker_word xc_breaker_after(const struct xc_breaker *breaker,
                                      const struct xc_breaker_who *who,
                                      const struct xc_drains *drains, int64_t now, unsigned *count)
{
    const struct xc_drained *me = xc_drains_find(drains, who->node);
    *count = 0;
    if (!me || !me->ours)
        return XC_MAY_DRAIN; /* somebody else has taken it over */
    struct counts counts = count_others(breaker, who, drains, me, now);
    return word_of(breaker, &counts, count);
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

void xc_breaker_text(enum xc_breaker_word word, const struct xc_breaker *breaker, unsigned count,
                     const struct xc_breaker_who *who, char *text, size_t size)
{
    char window[32];
    time_text(breaker->window_s, window, sizeof window);
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
