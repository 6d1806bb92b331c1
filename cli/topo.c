/* xcloud topo: is the NCCL topology file right, and what would a right one be? */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/topo.h>

#include "cli.h"

struct request {
    const char *machine, *policy, *node, *output;
    bool json, strict;
    int nfiles;
    char **files;
};

enum { MACHINE = 256, POLICY, NODE, JSON, STRICT, HELP };

static const struct option long_options[] = {
    {"machine", required_argument, NULL, MACHINE},
    {"policy", required_argument, NULL, POLICY},
    {"node", required_argument, NULL, NODE},
    {"output", required_argument, NULL, 'o'},
    {"json", no_argument, NULL, JSON},
    {"strict", no_argument, NULL, STRICT},
    {"help", no_argument, NULL, HELP},
    {0},
};

static int usage(FILE *out, int rc)
{
    fputs(
        "usage: xcloud topo lint [--strict] [--json] FILE…\n"
        "  FILE - is standard input. Exit status: 0 clean, or warnings without --strict;\n"
        "  1 warnings with --strict; 2 errors, usage or input. xcloud-topo(7) explains findings.\n",
        out);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* NULL and error when it cannot be read or is too large. */
static char *read_file(const char *name, size_t *length, struct xc_error *error)
{
    xc_autoclose int fd =
        xc_streq(name, "-") ? dup(STDIN_FILENO) : open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        xc_error_errno(error, name, "cannot open it");
        return NULL;
    }
    return xc_read_fd(fd, name, XC_TOPO_LIMIT, length, error);
}

static const char *shown_name(const char *name)
{
    return xc_streq(name, "-") ? "<stdin>" : name;
}

/* ---- lint and verify ------------------------------------------------------------------------------- */

static int status(const struct request *request, const struct xc_topo_findings *findings)
{
    return findings->errors ? 2 : findings->warnings && request->strict ? 1 : 0;
}

static int judge(const struct request *request, const char *file)
{
    struct xc_error error = {0};
    struct xc_topo_findings findings = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    size_t length;
    xc_autofree char *bytes = read_file(file, &length, &error);
    int rc = !bytes || xc_topo_lint(bytes, length, &findings, &error) < 0 ? -1 : 0;
    if (rc < 0) {
        if (!*error.where)
            snprintf(error.where, sizeof error.where, "%.250s", shown_name(file));
        xc_topo_findings_clear(&findings);
        return cli_fail(&error);
    }
    if (request->json)
        xc_topo_findings_json(&findings, shown_name(file), &text);
    else
        xc_topo_findings_text(&findings, shown_name(file), &text);
    rc = status(request, &findings);
    xc_topo_findings_clear(&findings);
    int printed = cli_print(&text);
    return printed ? printed : rc;
}

static int lint(const struct request *request)
{
    int worst = 0;
    if (request->nfiles == 0)
        return cli_usage("topo", "lint needs a file");
    for (int i = 0; i < request->nfiles; i++) {
        int rc = judge(request, request->files[i]);
        worst = rc > worst ? rc : worst;
    }
    return worst;
}

/* ---- the command ----------------------------------------------------------------------------------- */

static int take_option(struct request *request, int option)
{
    switch (option) {
    case MACHINE:
        request->machine = optarg;
        return 0;
    case POLICY:
        request->policy = optarg;
        return 0;
    case NODE:
        request->node = optarg;
        return 0;
    case 'o':
        request->output = optarg;
        return 0;
    case JSON:
        request->json = true;
        return 0;
    case STRICT:
        request->strict = true;
        return 0;
    default:
        return usage(stderr, 2);
    }
}

int cli_topo(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct request *request);
    } verbs[] = {{"lint", lint}};
    const char *names[XC_COUNT(verbs) + 1] = {0};
    struct request request = {0};
    int option;
    while ((option = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1) {
        if (option == HELP || option == 'h')
            return usage(stdout, 0);
        int rc = take_option(&request, option);
        if (rc)
            return rc;
    }
    if (optind == argc)
        return usage(stderr, 2);
    const char *verb = argv[optind++];
    request.files = argv + optind;
    request.nfiles = argc - optind;
    for (size_t i = 0; i < XC_COUNT(verbs); i++) {
        names[i] = verbs[i].name;
        if (xc_streq(verb, verbs[i].name))
            return verbs[i].run(&request);
    }
    const char *near = xc_nearest(verb, names);
    return cli_usage("topo", "there is no \"%.40s\"%s%s%s", verb, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}
