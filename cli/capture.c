/* xcloud capture: packs this machine's description, sanitized, for --machine elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define DEFAULT_FILE "xcloud-machine.tar.xz" /* without the host's name: it travels */

/* Into a temporary file beside path, so that a failure leaves no half archive. */
static int capture_to_file(struct xc_root *root, const char *path, struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s.XXXXXX", path);
    xc_autofree char *temporary = xc_text_take(&text);
    if (!temporary)
        return xc_error_nomem(error);
    xc_autoclose int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return xc_error_errno(error, path, "cannot make a temporary file beside it");
    int rc = xc_machine_capture(root, fd, error);
    if (rc == 0 && (fchmod(fd, 0644) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0))
        rc = xc_error_errno(error, path, "cannot write it");
    if (rc < 0)
        unlink(temporary);
    return rc;
}

static int run(const char *machine, const char *output)
{
    struct xc_error error = {0};
    xc_autoroot struct xc_root *root = NULL;
    bool to_stdout = xc_streq(output, "-");
    struct stat st;
    if (to_stdout && isatty(STDOUT_FILENO))
        return cli_usage("capture", "an archive is not for a terminal");
    if (xc_machine_open(machine ? machine : "/", XC_MACHINE_LIMIT, &root, &error) < 0)
        return cli_fail(&error);
    int rc = to_stdout ? xc_machine_capture(root, STDOUT_FILENO, &error)
                       : capture_to_file(root, output, &error);
    if (rc < 0)
        return cli_fail(&error);
    if (!to_stdout && stat(output, &st) == 0)
        printf("%s: %lld bytes, without serials, MACs, GUIDs, UUIDs and host names; "
               "xcloud plan --machine %s reads it\n",
               output, (long long)st.st_size, output);
    return 0;
}

static const char help[] =
    "usage: xcloud capture [-o FILE] [--machine DIR]\n\n"
    "Packs what xcloud reads of this machine as a tar.xz archive, without serial numbers, "
    "MACs,\n"
    "GUIDs, UUIDs and host names. Every command reads it with --machine FILE.\n\n"
    "  -o, --output FILE   default " DEFAULT_FILE "; - is standard output\n"
    "  --machine DIR       capture from another root directory\n";

int cli_capture(int argc, char **argv)
{
    const char *output = DEFAULT_FILE, *machine = NULL;
    const struct cli_option options[] = {
        {"output", 'o', .text = &output}, {"machine", .text = &machine}, {0}};
    int rc = cli_options("capture", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    if (optind < argc)
        return cli_usage("capture", "\"%s\" is too much", argv[optind]);
    return run(machine, output);
}
