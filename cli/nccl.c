/* xcloud nccl: what NCCL will find here, who says it, and what is wrong with it. */
#include <string.h>

#include <xcloud/nccl.h>

#include "cli.h"

extern char **environ;

struct options {
    const char *library, *release, *policy;
    bool strict, variables;
};

/* ---- the library ------------------------------------------------------------------------------------- */

static int library(const struct options *options, unsigned *release)
{
    struct xc_nccl_library found = {0};
    char text[XC_NCCL_RELEASE_TEXT];
    if (options->release) {
        *release = xc_nccl_release(options->release);
        if (!*release)
            return cli_usage("nccl", "--release \"%s\"; expected one like 2.28.9",
                             options->release);
        return 0;
    }
    if (options->library) {
        snprintf(found.path, sizeof found.path, "%s", options->library);
        found.release = xc_nccl_library_of(options->library, true);
        if (!found.release)
            return cli_usage("nccl", "%s is no NCCL library", options->library);
    } else if (!xc_nccl_library_find(NULL, NULL, true, &found)) {
        puts("library: none found; --library FILE or --release names one");
        return 0;
    }
    *release = found.release;
    printf("library %s: %s\n", found.path,
           found.release ? xc_nccl_release_text(found.release, text)
                         : "it does not say its release; --release names it");
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static void collect(struct xc_nccl_values *values)
{
    xc_nccl_add_environment(values, environ, SIZE_MAX, "environment");
    xc_nccl_add_conf(values, getenv("NCCL_CONF_FILE"), getenv("HOME"));
    xc_nccl_sort(values);
}

void cli_nccl_values(struct xc_text *out)
{
    struct xc_nccl_values values = {0};
    collect(&values);
    if (!values.failed)
        xc_nccl_text(&values, out);
    xc_nccl_values_clear(&values);
}

/* The CPUs of a process that is bound: fewer than the machine has. */
static bool own_cpus(const struct xc_node *node, struct xc_set *out)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    if (!node || xc_affinity_get(0, out) < 0)
        return false;
    xc_node_online(node, &online);
    return !xc_set_subset(&online, out);
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static int print_variables(void)
{
    const struct xc_nccl_variable *table;
    char since[XC_NCCL_RELEASE_TEXT], gone[XC_NCCL_RELEASE_TEXT];
    size_t count = xc_nccl_variables(&table);
    for (size_t i = 0; i < count; i++)
        printf("%s%s%s%s%s%s%s\n", table[i].name, table[i].since ? "  since " : "",
               table[i].since ? xc_nccl_release_text(table[i].since, since) : "",
               table[i].gone ? "  until " : "",
               table[i].gone ? xc_nccl_release_text(table[i].gone, gone) : "",
               *table[i].note ? "  " : "", table[i].note);
    return 0;
}

static int report(const struct options *options)
{
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    struct xc_error error = {0};
    xc_autoroot struct xc_root *root = NULL;
    cli_autonode struct xc_node *node = NULL;
    cli_autorules struct xc_rules *rules = NULL;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    unsigned release = 0;
    if (library(options, &release) != 0)
        return 2;
    /* in a container the machine may not show all of itself: then its part is left out */
    if (cli_open_machine(NULL, NULL, &root, &node, &error) < 0)
        node = NULL;
    char buffer[256];
    if (node && cli_rules(options->policy, node, cli_node_name(NULL, NULL, buffer, sizeof buffer),
                          NULL, NULL, &rules, NULL, &error) < 0)
        return cli_fail(&error);
    collect(&values);
    struct xc_nccl_input input = {.values = &values,
                                  .release = release,
                                  .node = node,
                                  .rules = rules,
                                  .cpus = own_cpus(node, &cpus) ? &cpus : NULL};
    int rc = values.failed || xc_nccl_lint(&input, &findings, &error) < 0 ? -1 : 0;
    if (rc == 0) {
        xc_nccl_text(&values, &text);
        xc_nccl_findings_text(&findings, &text);
        if (values.count == 0)
            xc_text_add(&text, "no variable of NCCL, UCX or NVSHMEM is set\n");
    }
    size_t wrong = findings.count;
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
    if (rc < 0)
        return cli_fail(&error);
    rc = cli_print(&text);
    return rc ? rc : options->strict && wrong ? 1 : 0;
}

static const char help[] =
    "usage: xcloud nccl [--library FILE | --release X.Y.Z] [--policy FILE] [--strict]\n"
    "       xcloud nccl --variables\n\n"
    "What NCCL, UCX and NVSHMEM find in this environment (in a job, in a container), which "
    "file\n"
    "or variable says it, and what is misspelt, outdated or contradictory.\n\n"
    "  --library FILE   the libnccl to be used; else it is looked for\n"
    "  --release X.Y.Z  its release, without looking\n"
    "  --policy FILE    another policy than the node's\n"
    "  --strict         exit with 1 when there is something to say\n"
    "  --variables      what NCCL's releases know\n";

int cli_nccl(int argc, char **argv)
{
    struct options options = {0};
    const struct cli_option table[] = {
        {"library", .text = &options.library},     {"release", .text = &options.release},
        {"policy", .text = &options.policy},       {"strict", .flag = &options.strict},
        {"variables", .flag = &options.variables}, {0}};
    int rc = cli_options("nccl", argc, argv, table, help);
    if (rc != CLI_GO)
        return rc;
    if (optind < argc)
        return cli_usage("nccl", "\"%s\" is too much", argv[optind]);
    return options.variables ? print_variables() : report(&options);
}
