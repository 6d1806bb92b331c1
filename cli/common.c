/* What subcommands share: the machine that a command is about, the rules on it, and how it fails. */
#include <string.h>
#include <unistd.h>

#include "cli.h"

int cli_fail(const struct xc_error *error)
{
    char text[sizeof(struct xc_error)];
    fprintf(stderr, "xcloud: %s\n", xc_error_text(error, text, sizeof text));
    return 2;
}

int cli_print(struct xc_text *text)
{
    xc_autofree char *string = xc_text_take(text);
    if (!string || fputs(string, stdout) == EOF || fflush(stdout) == EOF) {
        fprintf(stderr, "xcloud: cannot write to standard output\n");
        return 2;
    }
    return 0;
}

void cli_policy_free(struct xc_policy **policy)
{
    xc_policy_free(*policy);
}

void cli_rules_free(struct xc_rules **rules)
{
    xc_rules_free(*rules);
}

void cli_node_free(struct xc_node **node)
{
    xc_node_free(*node);
}

bool cli_is_live(const char *machine)
{
    return !machine || xc_streq(machine, "/");
}

const char *cli_node_name(const char *machine, const char *given, char *buffer, size_t size)
{
    if (given)
        return given;
    if (cli_is_live(machine)) {
        const char *slurm = getenv("SLURMD_NODENAME");
        if (slurm && *slurm)
            return slurm;
        if (gethostname(buffer, size) < 0)
            buffer[0] = '\0';
        buffer[size - 1] = '\0';
        buffer[strcspn(buffer, ".")] = '\0';
        return buffer;
    }
    const char *slash = strrchr(machine, '/');
    snprintf(buffer, size, "%s", slash && slash[1] ? slash + 1 : machine);
    char *tar = strstr(buffer, ".tar");
    if (tar && tar != buffer)
        *tar = '\0';
    return buffer;
}

static void warn(const char *what, const struct xc_error *error)
{
    char text[sizeof *error];
    fprintf(stderr, "xcloud: %s: %s\n", what, xc_error_text(error, text, sizeof text));
}

bool cli_slurm_node(struct xc_root *root, const char *machine, const char *name,
                    struct xc_slurm_node *out)
{
    struct xc_error error = {0};
    const char *conf = cli_is_live(machine) ? getenv("SLURM_CONF") : NULL;
    if (xc_slurm_conf_node(root, conf, name, out, &error) == 0)
        return out->found;
    if (error.code != XC_ENOENT)
        warn("what Slurm reserves is not known", &error);
    return false;
}

/* A reservation that does not fit the machine (a core is offline, slurm.conf is another one's) is
 * said, and does not keep the rest from being known. */
static int read_node(struct xc_root *root, const struct xc_slurm_node *slurm, struct xc_node **node,
                     struct xc_error *error)
{
    struct xc_node_options options = {.slurm = slurm};
    struct xc_error first = {0};
    if (xc_node_read(root, &options, node, &first) == 0)
        return 0;
    options.slurm = NULL;
    if (xc_node_read(root, &options, node, error) < 0)
        return -1;
    warn("what Slurm reserves is not known", &first);
    return 0;
}

int cli_open_machine(const char *machine, const char *node_name, struct xc_root **root,
                     struct xc_node **node, struct xc_error *error)
{
    xc_autoroot struct xc_root *opened = NULL;
    if (xc_machine_open(cli_is_live(machine) ? "/" : machine, XC_MACHINE_LIMIT, &opened, error) < 0)
        return -1;
    char buffer[256];
    const char *name = cli_node_name(machine, node_name, buffer, sizeof buffer);
    struct xc_slurm_node slurm = {0};
    bool known = cli_slurm_node(opened, machine, name, &slurm);
    int rc = read_node(opened, known ? &slurm : NULL, node, error);
    xc_slurm_node_clear(&slurm);
    if (rc < 0)
        return -1;
    if (root) {
        *root = opened;
        opened = NULL;
    }
    return 0;
}

char *cli_read_policy(const char *file, size_t *length, struct xc_error *error)
{
    if (xc_streq(file, "-"))
        return xc_read_fd(STDIN_FILENO, file, XC_POLICY_LIMIT, length, error);
    xc_autofclose FILE *stream = fopen(file, "re");
    if (!stream) {
        xc_error_errno(error, file, "cannot open it");
        return NULL;
    }
    return xc_read_fd(fileno(stream), file, XC_POLICY_LIMIT, length, error);
}

static int load(const char *file, struct xc_policy **policy, struct xc_error *error)
{
    if (!file) {
        struct xc_places places = {.prefix = "", .slurm_conf = getenv("SLURM_CONF")};
        struct xc_policy_source source = {0};
        int rc = xc_policy_load(&places, policy, &source, error);
        if (rc == 0 && source.last_good)
            fprintf(stderr, "xcloud: the last good policy is used: %s\n", source.live_error);
        xc_policy_source_clear(&source);
        return rc;
    }
    size_t length;
    xc_autofree char *text = cli_read_policy(file, &length, error);
    return text ? xc_policy_parse(text, length, file, policy, error) : -1;
}

int cli_rules(const char *file, const struct xc_node *node, const char *node_name,
              const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
              bool *has_classes, struct xc_error *error)
{
    if (has_classes)
        *has_classes = false;
    struct xc_policy *policy = NULL;
    struct xc_error none = {0};
    if (load(file, &policy, &none) < 0) {
        if (file || none.code != XC_ENOENT) {
            if (error)
                *error = none;
            return -1;
        }
        *out = xc_rules_builtin();
        return *out ? 0 : xc_error_nomem(error);
    }
    if (has_classes)
        *has_classes = xc_policy_nclasses(policy) > 0;
    int rc = xc_plan_rules(policy, node, node_name, job, profile, out, error);
    xc_policy_free(policy);
    return rc;
}
