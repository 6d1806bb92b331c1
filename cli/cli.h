/* cli: the `xcloud` command, one file a subcommand. What the subcommands share is here. */
#ifndef XCLOUD_CLI_H
#define XCLOUD_CLI_H

#include <unistd.h> /* optind */

#include <xcloud/base.h>
#include <xcloud/node.h>
#include <xcloud/plan.h>
#include <xcloud/policy.h>

/* A subcommand gets its own argv (argv[0] is its name) and returns the exit status:
 * 0 done, 1 the answer is no, 2 usage or input error. */
struct cli_command {
    const char *name, *synopsis, *summary;
    int (*run)(int argc, char **argv);
};

int cli_snapshot(int argc, char **argv);
int cli_capture(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_policy(int argc, char **argv);
int cli_learn(int argc, char **argv); /* xcloud policy learn */
int cli_job(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_topo(int argc, char **argv);
int cli_host(int argc, char **argv);
int cli_nccl(int argc, char **argv);

#define cli_autopolicy xc_cleanup(cli_policy_free) /* struct xc_policy *p = NULL */
#define cli_autorules  xc_cleanup(cli_rules_free)  /* struct xc_rules *r = NULL  */
#define cli_autonode   xc_cleanup(cli_node_free)   /* struct xc_node *n = NULL   */
void cli_policy_free(struct xc_policy **policy);
void cli_rules_free(struct xc_rules **rules);
void cli_node_free(struct xc_node **node);

/* "xcloud: where: message" on stderr; returns 2. */
int cli_fail(const struct xc_error *error);
/* "xcloud COMMAND: text" and the synopsis on stderr; returns 2. */
int cli_usage(const char *command, const char *format, ...) xc_printf(2, 3);

/* What an option of a subcommand sets: a text of the command line, a flag, or (count) one more text. */
struct cli_option {
    const char *name; /* NULL ends a table */
    char letter;      /* 0: it has none */
    const char **text;
    bool *flag;
    size_t *count;
};
enum { CLI_GO = -1 };
/* Reads them; --help prints help. CLI_GO, or the status to exit with when there was help or something
 * wrong, which is said. What is no option begins at argv[optind]. */
int cli_options(const char *command, int argc, char **argv, const struct cli_option *options,
                const char *help);

/* --deadline SECONDS, when it is given; 0, or 2 and it is said. */
int cli_deadline(const char *command, const char *seconds, long *deadline_ms);

/* The machine that a command is about: NULL or "/" is the live one, else a directory or an archive.
 * node_name: Slurm's name of it, NULL: SLURMD_NODENAME, else the host's name (live), else the
 * archive's name without its ending. Both out parameters belong to the caller; root may be NULL. */
int cli_open_machine(const char *machine, const char *node_name, struct xc_root **root,
                     struct xc_node **node, struct xc_error *error);
/* What slurm.conf below root says about that node; false: nothing, and a line on stderr when it is
 * there and cannot be read. Clear out with xc_slurm_node_clear. */
bool cli_slurm_node(struct xc_root *root, const char *machine, const char *name,
                    struct xc_slurm_node *out);
const char *cli_node_name(const char *machine, const char *given, char *buffer, size_t size);
/* Whether a --machine is this one: NULL or "/". */
bool cli_is_live(const char *machine);
/* The text of a policy that a person names: anybody's file, or - for standard input. On the heap. */
char *cli_read_policy(const char *file, size_t *length, struct xc_error *error);
/* Rules in force on that machine: file NULL is the live policy (or the built-in rules when there is
 * none). has_classes (may be NULL): the policy has some, of which none needs to match. */
int cli_rules(const char *file, const struct xc_node *node, const char *node_name,
              const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
              bool *has_classes, struct xc_error *error);
/* What changes when `is` replaces the policy at path, on stdout; machines is NULL-terminated: captured
 * ones, whose plans are compared; node_name: Slurm's name of them, NULL: their files'. */
int cli_policy_changes(const char *path, const struct xc_policy *is, const char *const *machines,
                       const char *node_name, struct xc_error *error);
/* The variables of NCCL, UCX and NVSHMEM that this process has, each with the place that says it. */
void cli_nccl_values(struct xc_text *out);
/* What NCCL would not take as it is meant in the policy's variables, a line each. */
void cli_policy_advice(const struct xc_policy *policy, const char *file, struct xc_text *out);
/* Writes a finished text to stdout; 0, or 2 with a message. */
int cli_print(struct xc_text *text);

#endif
