/* Private to the child that looks: what it has read, and where its two parts meet. */
#ifndef XCLOUD_PROLOG_WORK_H
#define XCLOUD_PROLOG_WORK_H

#include "internal.h"

struct work {
    const struct program *program;
    struct shared *shared;
    struct xc_places places;
    struct xc_policy *policy;
    struct xc_policy_source source;
    struct xc_rules *rules;
    struct xc_root *root;
    struct xc_node *node;
    bool live_root;
    struct xc_check_live live;
    struct xc_check_state previous, next;
    struct xc_findings findings;
    int *job_gpus;
    struct xc_check_job job;
};

/* "ERROR; SO", said. */
void work_trouble(struct work *work, const struct xc_error *error, const char *so);
/* verdict.c: what follows from the findings, into the shared memory, the job's mark and the files of
 * the run. */
void work_conclude(struct work *work);

#endif
