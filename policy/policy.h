/* policy/, inside: the grammar as data, the functions that read one value, and what a policy is. */
#ifndef XCLOUD_POLICY_PRIVATE_H
#define XCLOUD_POLICY_PRIVATE_H

#include <xcloud/policy.h>

#include "yaml.h"

struct xc_policy {
    char *name;           /* the file, for errors and explanations */
    struct xc_yaml *tree; /* checked against the grammar: reading it again cannot fail */
    char hash[17];
};

/* ---- the grammar ----------------------------------------------------------------------------- */

struct pol_reading;

enum pol_kind {
    POL_VALUE, /* a value with a reader */
    POL_MAP,   /* a mapping with known members; layers merge member by member */
    POL_ITEMS, /* a list of such mappings; with a reader, a value of the layer that has it */
    POL_NAMED, /* a mapping with free names; its reader judges the whole of it */
};

struct pol_choice {
    const char *name;
    int value;
};

struct pol_key {
    const char *name;
    enum pol_kind kind;
    const struct pol_key *members, *more; /* ends with a NULL name; more: a second table or NULL */
    int (*read)(struct pol_reading *r, const struct xc_yaml *node);
    const struct pol_choice *choices; /* of a word; ends with a NULL name */
    const char *yes, *no;             /* the choice that true and false stand for, or NULL */
    bool stored; /* the reader puts the value into struct xc_rules, at offset */
    size_t offset;
    const char *builtin; /* the value when nobody says one, NULL: none */
    bool required, nullable;
};

extern const struct pol_key pol_top[], pol_section[], pol_class_head[], pol_when[], pol_env_entry[];
extern const struct pol_choice pol_on_fails[];

/* One value on its way from the tree into rules. */
struct pol_reading {
    const char *name; /* the file */
    const struct pol_key *key;
    struct xc_rules *rules;
    struct xc_text said; /* the value in the one way to write it, for explanations */
    struct xc_error *error;
};

/* Checks the whole tree against pol_top. */
int pol_check(const char *name, const struct xc_yaml *tree, struct xc_error *error);
/* Every key of the grammar, one path a line: "classes[].bind.memory". */
void pol_list_keys(struct xc_text *out);

/* A class by its name, or NULL. */
const struct xc_yaml *pol_class(const struct xc_policy *policy, const char *name);
/* The rules of a class whatever the node is; NULL: of nodes without a class. */
int pol_resolve_class(const struct xc_policy *policy, const char *name, struct xc_rules **out,
                      struct xc_error *error);

/* Errors about a node or its key: file:line:column and the message. Return -1. */
int pol_bad(struct pol_reading *r, const struct xc_yaml *node, const char *format, ...)
    xc_printf(3, 4);
int pol_bad_key(struct pol_reading *r, const struct xc_yaml *node, const char *format, ...)
    xc_printf(3, 4);
/* A word of choices; true and false where the key allows them. */
int pol_choose(struct pol_reading *r, const struct xc_yaml *node, const struct pol_choice *choices,
               const char *yes, const char *no, int *out);

/* ---- readers of values (values.c) ------------------------------------------------------------ */

int pol_read_choice(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_flag(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_version(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_duration(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_arm_after(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_deadline(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_jitter(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_path(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_name(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_text(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_patterns(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_nodes(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_environment(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_comparison(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_housekeeping(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_priority(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_host(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_min_share(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_users_may(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_gpu_count(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_gpu_model(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_numa_nodes(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_nic_count(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_nic_rate(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_nic_link(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_pci(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_strings(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_export(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_topo_file(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_topo_map(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_map_numa(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_map_gen(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_map_gpus(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_map_nics(struct pol_reading *r, const struct xc_yaml *node);
void pol_map_free(struct xc_topo_group *groups, size_t count);
int pol_read_nccl_version(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_limit(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_resume(struct pol_reading *r, const struct xc_yaml *node);
int pol_read_env_value(struct pol_reading *r, const struct xc_yaml *node);

/* The scalars of "one or a list"; each must be text. Calls check for each (NULL: none); the array is
 * the caller's. NULL: error. */
char **pol_strings(struct pol_reading *r, const struct xc_yaml *node,
                   int (*check)(struct pol_reading *, const struct xc_yaml *));
/* A scalar's text: not null, and nothing that another YAML program would write back differently
 * (an unquoted yes, 010, 1.50). NULL: error. what: "a class name". */
const char *pol_text(struct pol_reading *r, const struct xc_yaml *node, const char *what);

/* ---- what texts mean (words.c's neighbours: texts.c) ----------------------------------------- */

bool pol_seconds(const char *text, unsigned *seconds); /* "15m", "24h", "7d", "90s" */
bool pol_compare_ok(const char *expression);           /* ">= 8, < 64" */
bool pol_compare_holds(const char *expression, unsigned long number);
bool pol_version_ok(const char *expression);        /* ">= 2.27, != 2.28.3" */
bool pol_rate(const char *text, unsigned *mbps);    /* "400Gb/s" */
bool pol_limit(const char *text, struct xc_limit *out); /* "8", "1%", "8 or 1%" */
const char *pol_hostlist_problem(const char *list); /* NULL: it can be read */
const char *pol_cpulist_problem(const char *list);  /* NULL: it can be read */
const char *pol_env_name_problem(const char *name); /* NULL: it may be set */
bool pol_check_id_ok(const char *id);               /* family.name */
bool pol_name_ok(const char *name);                 /* class and profile names */
bool pol_known_export(const char *name);
extern const char *const pol_exports[];
bool pol_gpu_model(const char *text, uint16_t *vendor, uint16_t *device);
void pol_add_gpu_models(struct xc_text *out); /* "A100-SXM4-40GB, …" */
/* Whether YAML 1.1 programs write an unquoted scalar back as it is here. */
bool pol_number_is_stable(const char *text);

#endif
