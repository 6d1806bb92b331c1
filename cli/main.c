/* xcloud: dispatches to a subcommand. */
#include <string.h>

#include "config.h"

#include "cli.h"

static const struct cli_command commands[] = {
    {"plan", "[--machine M] [--policy FILE] --tasks N [--gpus LIST] [--cpus LIST] [--words WORDS]",
     "who would go where: the binding of N tasks on this machine or on a captured one", cli_plan},
    {"policy", "check FILE|- | explain | install FILE | arm | slurm-conf | learn",
     "check, explain, install and arm the site policy", cli_policy},
    {"job", "[ID[.STEP]]", "what was bound where in a running or recent job on this node", cli_job},
    {"check", "[--machine M] [--policy FILE] [--only ID,…] [--json|--prometheus|--list]",
     "is this node fit: CPUs, memory, GPUs, NICs and Slurm against the policy", cli_check},
    {"host", "apply | verify | undo [--policy FILE] [--dry-run] [--json]",
     "the host's own services and interrupts on the housekeeping CPUs", cli_host},
    {"topo", "lint FILE… | verify [FILE] | generate | normalize FILE | show [FILE]",
     "is the NCCL topology file right, and what would a right one be", cli_topo},
    {"nccl", "[--library FILE | --release X.Y.Z] [--policy FILE] [--strict]",
     "what NCCL finds in this environment, who says it, and what is wrong with it", cli_nccl},
    {"snapshot", "[-o FILE] [--json]", "write what this machine is, for the steps to read",
     cli_snapshot},
    {"capture", "[-o FILE]", "pack this machine's description, sanitized, for --machine elsewhere",
     cli_capture},
};

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < XC_COUNT(commands); i++)
        if (xc_streq(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static void help(FILE *out)
{
    fprintf(out, "usage: xcloud COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < XC_COUNT(commands); i++)
        fprintf(out, "  xcloud %s %s\n      %s\n", commands[i].name, commands[i].synopsis,
                commands[i].summary);
    fprintf(out, "\nxcloud COMMAND --help says more; the man page is xcloud(1).\n");
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "xcloud %s: ", command);
    vfprintf(stderr, format, args);
    va_end(args);
    const struct cli_command *found = find(command);
    fprintf(stderr, "\nusage: xcloud %s %s\n", command, found ? found->synopsis : "");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    if (xc_streq(argv[1], "--help") || xc_streq(argv[1], "-h") || xc_streq(argv[1], "help")) {
        help(stdout);
        return 0;
    }
    if (xc_streq(argv[1], "--version")) {
        puts("xcloud " PACKAGE_VERSION);
        return 0;
    }
    const struct cli_command *command = find(argv[1]);
    if (!command) {
        const char *names[XC_COUNT(commands) + 1] = {0};
        for (size_t i = 0; i < XC_COUNT(commands); i++)
            names[i] = commands[i].name;
        const char *near = xc_nearest(argv[1], names);
        fprintf(stderr, "xcloud: \"%s\" is no command%s%s%s; xcloud --help lists them\n", argv[1],
                near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        return 2;
    }
    return command->run(argc - 1, argv + 1);
}
