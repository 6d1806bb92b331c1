/* xcloud nccl: what NCCL will find here, who says it, and what is wrong with it. */
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/nccl.h>

#include "cli.h"

extern char **environ;

struct options {
    const char *library, *release, *policy;
    bool strict, variables;
};

/* ---- the library ------------------------------------------------------------------------------------- */

static unsigned release_of(const char *path)
{
    struct stat st;
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
        return 0;
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return 0;
    unsigned release = xc_nccl_library_release(bytes, (size_t)st.st_size);
    munmap(bytes, (size_t)st.st_size);
    return release;
}

/* The first libnccl of a directory list (LD_LIBRARY_PATH) or of a pattern. */
static unsigned in_list(const char *list, char *path, size_t size)
{
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ":");
        snprintf(path, size, "%.*s/libnccl.so.2", (int)length, at);
        unsigned release = length > 0 ? release_of(path) : 0;
        if (release)
            return release;
        at += length + (at[length] == ':');
    }
    return 0;
}

static unsigned in_pattern(const char *pattern, char *path, size_t size)
{
    glob_t found = {0};
    unsigned release = 0;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !release; i++) {
            snprintf(path, size, "%s", found.gl_pathv[i]);
            release = release_of(path);
        }
    globfree(&found);
    return release;
}

/* Beside the first python3 of PATH, which may be an environment's. */
static unsigned beside_python(char *path, size_t size)
{
    char file[4200], pattern[4300];
    for (const char *at = getenv("PATH"); at && *at;) {
        int length = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/python3", length, at);
        if (length > 0 && access(file, X_OK) == 0) {
            snprintf(pattern, sizeof pattern,
                     "%.*s/../lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2", length, at);
            return in_pattern(pattern, path, size);
        }
        at += length + (at[length] == ':');
    }
    return 0;
}

/* As a Python program would load it: pip's wheel before the system's, LD_LIBRARY_PATH before both. */
static unsigned find_library(char *path, size_t size)
{
    static const char *const places[] = {
        "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
        "/usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
        "/usr/lib/*-linux-gnu/libnccl.so.2",
        "/usr/lib64/libnccl.so.2",
        "/usr/lib/libnccl.so.2",
        "/usr/local/lib/libnccl.so.2",
        "/usr/local/cuda*/lib64/libnccl.so.2"};
    static const char *const roots[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    unsigned release = in_list(getenv("LD_LIBRARY_PATH"), path, size);
    for (size_t i = 0; i < XC_COUNT(roots) && !release; i++) {
        char pattern[4200];
        const char *root = getenv(roots[i]);
        if (!root)
            continue;
        snprintf(pattern, sizeof pattern,
                 "%s/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2", root);
        release = in_pattern(pattern, path, size);
        snprintf(pattern, sizeof pattern, "%s/lib/libnccl.so.2", root);
        release = release ? release : in_pattern(pattern, path, size);
    }
    release = release ? release : beside_python(path, size);
    for (size_t i = 0; i < XC_COUNT(places) && !release; i++)
        release = in_pattern(places[i], path, size);
    return release;
}

static int library(const struct options *options, unsigned *release)
{
    char path[4200] = "", text[XC_NCCL_RELEASE_TEXT];
    if (options->release) {
        *release = xc_nccl_release(options->release);
        if (!*release)
            return cli_usage("nccl", "--release \"%s\"; expected one like 2.28.9",
                             options->release);
        return 0;
    }
    if (options->library) {
        snprintf(path, sizeof path, "%s", options->library);
        *release = release_of(path);
        if (!*release)
            return cli_usage("nccl", "%s is no NCCL library", options->library);
    } else {
        *release = find_library(path, sizeof path);
    }
    if (*release)
        printf("library %s: %s\n", path, xc_nccl_release_text(*release, text));
    else
        puts("library: none found; --library FILE or --release names one");
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

static void help(void)
{
    puts("usage: xcloud nccl [--library FILE | --release X.Y.Z] [--policy FILE] [--strict]\n"
         "       xcloud nccl --variables\n\n"
         "What NCCL, UCX and NVSHMEM find in this environment (in a job, in a container), which "
         "file\n"
         "or variable says it, and what is misspelt, outdated or contradictory.\n\n"
         "  --library FILE   the libnccl to be used; else it is looked for\n"
         "  --release X.Y.Z  its release, without looking\n"
         "  --policy FILE    another policy than the node's\n"
         "  --strict         exit with 1 when there is something to say\n"
         "  --variables      what NCCL's releases know");
}

int cli_nccl(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"library", required_argument, NULL, 'l'},
        {"release", required_argument, NULL, 'r'},
        {"policy", required_argument, NULL, 'p'},
        {"strict", no_argument, NULL, 's'},
        {"variables", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct options options = {0};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;)
        switch (c) {
        case 'l':
            options.library = optarg;
            break;
        case 'r':
            options.release = optarg;
            break;
        case 'p':
            options.policy = optarg;
            break;
        case 's':
            options.strict = true;
            break;
        case 'v':
            options.variables = true;
            break;
        case 'h':
            help();
            return 0;
        case ':':
            return cli_usage("nccl", "%s needs a value", argv[optind - 1]);
        default:
            return cli_usage("nccl", "%s is no option of it", argv[optind - 1]);
        }
    if (optind < argc)
        return cli_usage("nccl", "\"%s\" is too much", argv[optind]);
    return options.variables ? print_variables() : report(&options);
}
