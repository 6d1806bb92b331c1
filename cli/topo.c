/* xcloud topo: is the NCCL topology file right, and what would a right one be? */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/topo.h>

#include "cli.h"

struct request {
    const char *machine, *policy, *node, *output;
    bool json, strict, svg;
    int nfiles;
    char **files;
};

static const char help[] =
    "usage: xcloud topo lint [--strict] [--json] FILE…\n"
    "       xcloud topo verify [--strict] [--json] [MACHINE] [FILE]\n"
    "       xcloud topo generate [MACHINE] [-o FILE]\n"
    "       xcloud topo normalize [-o FILE] FILE\n"
    "       xcloud topo show [--svg] [MACHINE] [-o FILE] [FILE]\n"
    "  MACHINE: [--machine DIR|ARCHIVE] [--policy FILE] [--node NAME]; without it this one.\n"
    "  FILE: - is standard input; without one the policy's topo: file: on the machine.\n"
    "  Exit status: 0 clean, or warnings without --strict; 1 warnings with --strict;\n"
    "  2 errors, usage or input. xcloud-topo(7) explains the findings.\n";

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

/* ---- machines -------------------------------------------------------------------------------------- */

struct subject {
    struct xc_root *root;
    struct xc_node *node;
    struct xc_rules *rules;
};

static void subject_clear(struct subject *subject)
{
    xc_rules_free(subject->rules);
    xc_node_free(subject->node);
    xc_root_close(subject->root);
}
#define autosubject xc_cleanup(subject_clear)

static int open_subject(const struct request *request, struct subject *subject,
                        struct xc_error *error)
{
    char buffer[256];
    const char *name = cli_node_name(request->machine, request->node, buffer, sizeof buffer);
    if (cli_open_machine(request->machine, request->node, &subject->root, &subject->node, error) <
            0 ||
        cli_rules(request->policy, subject->node, name, NULL, NULL, &subject->rules, NULL, error) <
            0)
        return -1;
    return 0;
}

/* The file that was named, or the policy's on that machine; *name is what it is called. */
static char *read_subject(const struct request *request, const struct subject *subject,
                          const char **name, size_t *length, struct xc_error *error)
{
    if (request->nfiles == 1) {
        *name = shown_name(request->files[0]);
        return read_file(request->files[0], length, error);
    }
    *name = subject->rules->topo.file;
    if (*name)
        return xc_root_read(subject->root, length, error, "%s", *name);
    xc_error_set(error, XC_EINPUT, NULL, "%s; name one",
                 subject->rules->topo.none ? "the policy wants no topology file on this machine"
                                           : "the policy names no topology file for this machine");
    return NULL;
}

/* ---- lint and verify ------------------------------------------------------------------------------- */

static int status(const struct request *request, const struct xc_topo_findings *findings)
{
    return findings->errors ? 2 : findings->warnings && request->strict ? 1 : 0;
}

static int fail_about(const char *file, struct xc_error *error)
{
    if (!*error->where && file)
        snprintf(error->where, sizeof error->where, "%.250s", file);
    return cli_fail(error);
}

static int report(const struct request *request, const char *file,
                  const struct xc_topo_findings *findings)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    if (request->json)
        xc_topo_findings_json(findings, file, &text);
    else
        xc_topo_findings_text(findings, file, &text);
    int rc = cli_print(&text);
    return rc ? rc : status(request, findings);
}

static int lint_file(const struct request *request, const char *file)
{
    struct xc_error error = {0};
    struct xc_topo_findings findings = {0};
    size_t length;
    xc_autofree char *bytes = read_file(file, &length, &error);
    int rc = !bytes || xc_topo_lint(bytes, length, &findings, &error) < 0
                 ? fail_about(shown_name(file), &error)
                 : report(request, shown_name(file), &findings);
    xc_topo_findings_clear(&findings);
    return rc;
}

static int lint(const struct request *request)
{
    int worst = 0;
    if (request->nfiles == 0)
        return cli_usage("topo", "lint needs a file");
    for (int i = 0; i < request->nfiles; i++) {
        int rc = lint_file(request, request->files[i]);
        worst = rc > worst ? rc : worst;
    }
    return worst;
}

static int verify(const struct request *request)
{
    struct xc_error error = {0};
    autosubject struct subject subject = {0};
    struct xc_topo_findings findings = {0};
    const char *name = NULL;
    size_t length;
    if (request->nfiles > 1)
        return cli_usage("topo", "verify takes one file");
    if (open_subject(request, &subject, &error) < 0)
        return cli_fail(&error);
    xc_autofree char *bytes = read_subject(request, &subject, &name, &length, &error);
    int rc =
        !bytes || xc_topo_verify(bytes, length, subject.node, subject.rules, &findings, &error) < 0
            ? fail_about(name, &error)
            : report(request, name, &findings);
    xc_topo_findings_clear(&findings);
    return rc;
}

/* ---- writing a file, and showing one --------------------------------------------------------------- */

static int deliver(const struct request *request, struct xc_text *text)
{
    struct xc_error error = {0};
    if (!request->output || xc_streq(request->output, "-"))
        return cli_print(text);
    return xc_write_atomic(request->output, text->data, text->length, 0644, &error) < 0
               ? cli_fail(&error)
               : 0;
}

/* A file for a machine that shows no switches says no more than NCCL sees without one. */
static void note_flat(const struct subject *subject, const struct xc_text *file)
{
    const struct xc_node *node = subject->node;
    if (node->environment != XC_BARE && node->nnics && !subject->rules->topo.nmap &&
        !strstr(file->data, "class=\"0x0604"))
        fprintf(stderr, "xcloud: this machine shows no switch and the policy has no topo: map: in "
                        "this file no NIC is near a GPU\n");
}

static int generate(const struct request *request)
{
    struct xc_error error = {0};
    autosubject struct subject subject = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    if (request->nfiles)
        return cli_usage("topo", "generate takes no file; -o FILE writes one");
    if (open_subject(request, &subject, &error) < 0 ||
        xc_topo_generate(subject.node, subject.rules, &text, &error) < 0)
        return cli_fail(&error);
    note_flat(&subject, &text);
    return deliver(request, &text);
}

static int normalize(const struct request *request)
{
    struct xc_error error = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    size_t length;
    if (request->nfiles != 1)
        return cli_usage("topo", "normalize takes one file");
    xc_autofree char *bytes = read_file(request->files[0], &length, &error);
    if (!bytes || xc_topo_normalize(bytes, length, &text, &error) < 0)
        return fail_about(shown_name(request->files[0]), &error);
    return deliver(request, &text);
}

static int show(const struct request *request)
{
    struct xc_error error = {0};
    autosubject struct subject subject = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    const char *name = NULL;
    size_t length;
    bool file_alone = request->nfiles == 1 && !request->machine;
    if (request->nfiles > 1)
        return cli_usage("topo", "show takes one file");
    if (!file_alone && open_subject(request, &subject, &error) < 0)
        return cli_fail(&error);
    xc_autofree char *bytes = read_subject(request, &subject, &name, &length, &error);
    if (!bytes ||
        (request->svg ? xc_topo_svg : xc_topo_show)(bytes, length, subject.node, &text, &error) < 0)
        return fail_about(name, &error);
    return deliver(request, &text);
}

/* ---- the command ----------------------------------------------------------------------------------- */

int cli_topo(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct request *request);
    } verbs[] = {{"lint", lint},
                 {"verify", verify},
                 {"generate", generate},
                 {"normalize", normalize},
                 {"show", show}};
    const char *names[XC_COUNT(verbs) + 1] = {0};
    struct request request = {0};
    const struct cli_option options[] = {
        {"machine", .text = &request.machine}, {"policy", .text = &request.policy},
        {"node", .text = &request.node},       {"output", 'o', .text = &request.output},
        {"json", .flag = &request.json},       {"strict", .flag = &request.strict},
        {"svg", .flag = &request.svg},         {0}};
    int rc = cli_options("topo", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    if (optind == argc) {
        fputs(help, stderr);
        return 2;
    }
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
