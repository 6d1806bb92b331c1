/* KEY=VALUE files: slurm.conf and cgroup.conf with their includes, nccl.conf, enroot's. */
#ifndef XCLOUD_CHECKS_CONF_H
#define XCLOUD_CHECKS_CONF_H

#include "work.h"

struct chk_conf {
    struct chk_pair {
        char *key, *value;
    } * pairs;
    size_t count, size;
    bool failed;
};
enum {
    CHK_INCLUDES = 1, /* "Include FILE" lines are followed */
    CHK_BLANK = 2     /* "KEY VALUE" is a pair too (enroot.conf) */
};
/* False: the file is not there or cannot be read. Clear it in any case. */
bool chk_conf_read(struct xc_root *root, const char *path, unsigned how, struct chk_conf *out);
/* The last value of a key, in any case of letters; NULL. */
const char *chk_conf_get(const struct chk_conf *conf, const char *key);
void chk_conf_clear(struct chk_conf *conf);
#define chk_autoconf xc_cleanup(chk_conf_clear)

/* Whether a comma list has a word, in any case of letters. */
bool chk_list_has(const char *list, const char *word);
/* slurm.conf: the input's, or where Slurm looks. NULL: there is none. On the heap. */
char *chk_slurm_conf(const struct xc_check_input *in);
/* A file beside slurm.conf. On the heap. */
char *chk_beside(const char *conf, const char *name);

#endif
