/* How is one of Slurm's commands run by root? By its absolute path, nearly without an environment,
 * with an end. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "config.h"

#include "internal.h"

#define OUTPUT_LIMIT (64u << 20)

/* ---- where they are ------------------------------------------------------------------------------------ */

static const char *const places[] = {
#ifdef XC_SCONTROL
    XC_SCONTROL,
#endif
    "/usr/bin/scontrol",
    "/usr/local/bin/scontrol",
    "/opt/slurm/bin/scontrol",
    "/opt/slurm/current/bin/scontrol",
    "/usr/sbin/scontrol",
};

static int usable(const char *path, struct xc_error *error)
{
    xc_autoclose int fd = xc_open_trusted(path, error);
    return fd < 0 ? -1 : 0;
}

/* sinfo is beside scontrol. */
static void beside(const char *scontrol, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(scontrol, '/');
    snprintf(out, size, "%.*s%s", (int)(slash - scontrol) + 1, scontrol, name);
}

int find_tools(const char *wanted, struct slurm_tools *out, struct xc_error *error)
{
    out->scontrol[0] = out->sinfo[0] = '\0';
    if (*wanted) {
        if (wanted[0] != '/')
            return xc_error_set(error, XC_EINPUT, wanted, "expected an absolute path");
        beside(wanted, "sinfo", out->sinfo, sizeof out->sinfo);
        snprintf(out->scontrol, sizeof out->scontrol, "%s", wanted);
        return usable(wanted, error);
    }
    struct xc_error why = {0};
    for (size_t i = 0; i < XC_COUNT(places); i++) {
        if (usable(places[i], &why) == 0) {
            snprintf(out->scontrol, sizeof out->scontrol, "%s", places[i]);
            beside(places[i], "sinfo", out->sinfo, sizeof out->sinfo);
            return 0;
        }
        if (why.code != XC_ENOENT)
            break; /* it is there and nobody's whom root trusts */
    }
    if (why.code == XC_ENOENT)
        return xc_error_set(error, XC_ENOENT, NULL,
                            "scontrol is in none of the usual places; the policy can name it: "
                            "checks: self.scontrol: path:");
    if (error)
        *error = why;
    return -1;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static int failed(const char *path, int status, const char *output, struct xc_error *error)
{
    char first[200];
    snprintf(first, sizeof first, "%.*s", output ? (int)strcspn(output, "\n") : 0,
             output ? output : "");
    if (WIFSIGNALED(status))
        return xc_error_set(error, XC_ESYS, path, "it was ended by signal %d", WTERMSIG(status));
    return xc_error_set(error, XC_ESYS, path, "it ended with status %d%s%s", WEXITSTATUS(status),
                        *first ? ": " : "", first);
}

int run_command(const char *const *argv, const char *slurm_conf, unsigned timeout_ms,
                struct xc_text *out, struct xc_error *error)
{
    char conf[4200];
    const char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s", NULL, NULL};
    if (slurm_conf && snprintf(conf, sizeof conf, "SLURM_CONF=%s", slurm_conf) < (int)sizeof conf)
        env[3] = conf;
    struct xc_command command = {.path = argv[0],
                                 .argv = argv,
                                 .env = env,
                                 .limit = OUTPUT_LIMIT,
                                 .errors = true,
                                 .by_path = true};
    xc_commands_run(&command, 1, timeout_ms);
    const struct xc_child *child = &command.child;
    xc_autofree char *text = child->text;
    if (!child->started) {
        if (error)
            *error = command.error;
        errno = child->status;
        return command.error.code ? -1 : xc_error_errno(error, argv[0], "cannot start it");
    }
    if (!child->ended)
        return xc_error_set(error, XC_ESYS, argv[0], "no answer within %u ms", timeout_ms);
    if (!WIFEXITED(child->status) || WEXITSTATUS(child->status) != 0)
        return failed(argv[0], child->status, text, error);
    if (out)
        xc_text_add(out, text ? text : "");
    return text && !(out && out->failed) ? 0 : xc_error_nomem(error);
}
