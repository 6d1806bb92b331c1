/* Does the program find the NCCL topology file, and is it the right one?
 *
 * NCCL says nothing when NCCL_TOPO_FILE names a file that is not there, and runs 2-4 times slower. So
 * the variable is set before anything starts (a container's hook needs it), and again in the task,
 * inside its container, where an image may have a word of its own; and there the file is opened, as
 * the user, and compared with the node's.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define VARIABLE "NCCL_TOPO_FILE"

/* ---- in slurmstepd -------------------------------------------------------------------------------- */

/* What the site's enroot hook reads: it runs before our task_init, inside the container to be. */
static void tell_hook(const struct xc_step *step, const struct xc_step_host *host)
{
    if (step->topo.fd >= 0) {
        host->set(host->ctx, "XCLOUD_TOPO_FILE", step->topo.path);
        if (step->rules->topo.over_image == XC_TOPO_KEEP)
            host->set(host->ctx, "XCLOUD_TOPO_KEEP", "1");
    }
    if (step->rules->bind.torchrun && access(STEP_EXEC, X_OK) == 0)
        host->set(host->ctx, "XCLOUD_EXEC", STEP_EXEC);
    if (access(STEP_INSIDE, X_OK) == 0)
        host->set(host->ctx, "XCLOUD_INSIDE", STEP_INSIDE);
}

/* A bundle (srun --container) is entered after the last hook: nothing can be proven there. */
static bool runs_bundle(const struct xc_step_host *host)
{
    char bundle[16];
    return host->get(host->ctx, "SLURM_CONTAINER", bundle, sizeof bundle) == 0 && bundle[0];
}

void topo_forget_outer(const struct xc_step_host *host)
{
    host->unset(host->ctx, "XCLOUD_TOPO_FILE");
    host->unset(host->ctx, "XCLOUD_TOPO_KEEP");
    host->unset(host->ctx, "XCLOUD_EXEC");
    host->unset(host->ctx, "XCLOUD_INSIDE");
}

void topo_open(struct xc_step *step, const struct xc_step_host *host)
{
    const struct xc_rules *rules = step->rules;
    if (!step->environment || step->observe || step->words.dry || step->kind == XC_STEP_EXTERN)
        return;
    char own[4096];
    if (rules->topo.file && !rules->topo.none) {
        step->topo.path = strdup(rules->topo.file);
        step->topo.bundle = runs_bundle(host);
        if (!step->topo.path)
            return;
        /* the program's view, so never below machine= */
        struct xc_error error = {0};
        step->topo.fd = xc_open_trusted(step->topo.path, &error);
        if (step->topo.fd < 0)
            snprintf(step->topo.trouble, sizeof step->topo.trouble, "%.*s", STEP_WHY - 1,
                     error.message);
        if (host->get(host->ctx, VARIABLE, own, sizeof own) == 0 && own[0] &&
            !xc_streq(own, step->topo.path))
            step->topo.own = strdup(own);
        else if (step->topo.fd >= 0)
            host->set(host->ctx, VARIABLE, step->topo.path);
    }
    tell_hook(step, host);
}

void topo_close(struct xc_step *step)
{
    if (step->topo.fd >= 0)
        close(step->topo.fd);
    free(step->topo.path);
    free(step->topo.own);
}

/* ---- in the task ------------------------------------------------------------------------------------ */

/* Both are read to their end: a few kilobytes. */
static bool same_bytes(int a, int b)
{
    char x[16384], y[16384];
    for (off_t at = 0;;) {
        ssize_t n = pread(a, x, sizeof x, at), m = pread(b, y, sizeof y, at);
        if (n < 0 || n != m || memcmp(x, y, (size_t)n) != 0)
            return false;
        if (n == 0)
            return true;
        at += n;
    }
}

/* Whether path opens here and is a file; and the node's own when node_fd is not -1. why: at least
 * STEP_WHY bytes. */
bool topo_file_good(const char *path, int node_fd, char *why)
{
    struct stat here, there;
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &here) < 0) {
        snprintf(why, STEP_WHY, "%s", errno == ENOENT ? "it is not there" : strerror(errno));
        return false;
    }
    if (!S_ISREG(here.st_mode) || here.st_size == 0) {
        snprintf(why, STEP_WHY, "it is %s", S_ISREG(here.st_mode) ? "empty" : "not a file");
        return false;
    }
    if (node_fd < 0)
        return true;
    if (fstat(node_fd, &there) == 0 &&
        ((here.st_dev == there.st_dev && here.st_ino == there.st_ino) ||
         (here.st_size == there.st_size && same_bytes(fd, node_fd))))
        return true;
    snprintf(why, STEP_WHY, "it is another file than the node's (%lld bytes here, %lld there)",
             (long long)here.st_size, (long long)there.st_size);
    return false;
}

/* Which file NCCL is to read: the policy's, unless the job or, where the policy keeps it, the image
 * says another. *whose tells it. */
static const char *choose(const struct xc_step *step, const char *have, const char **whose)
{
    if (step->topo.own) {
        *whose = "the job's own";
        return step->topo.own;
    }
    if (have && *have && !xc_streq(have, step->topo.path) &&
        step->rules->topo.over_image == XC_TOPO_KEEP) {
        *whose = "the image's own, which the policy keeps";
        return have;
    }
    *whose = NULL;
    return step->topo.placed[0] ? step->topo.placed : step->topo.path;
}

static void mend(const struct xc_step *step, struct xc_text *out)
{
    if (step->topo.container && step->topo.fd >= 0)
        xc_text_addf(out,
                     "; install xcloud-bind's enroot hook on the node, or add "
                     "--container-mounts=%s:%s:ro",
                     step->topo.path, step->topo.path);
    else
        xc_text_addf(out, "; the node should have it (xcloud check --only topo)");
}

/* Says what is wrong with the file; what it leads to is the policy's. */
static void complain(const struct xc_step *step, const char *path, const char *whose,
                     const char *why, struct xc_text *lines)
{
    bool refuse = step->rules->topo.proof == XC_FAIL_REFUSE;
    xc_text_addf(lines, "xcloud-bind: %s: the NCCL topology file ", step->node_name);
    xc_text_add_plain(lines, path, 256);
    if (whose)
        xc_text_addf(lines, " (%s)", whose);
    xc_text_addf(
        lines, " cannot be used%s: %s",
        step->topo.container && (whose || step->topo.fd >= 0) ? " inside the container" : "", why);
    if (!whose)
        mend(step, lines);
    xc_text_addf(lines, "%s\n",
                 refuse ? "" : "; NCCL runs without it and says nothing, often much slower");
}

static bool bundle_refused(const struct xc_step *step, struct xc_text *lines)
{
    xc_text_addf(
        lines,
        "xcloud-bind: %s: srun --container starts a bundle that cannot be looked into: its "
        "config.json must mount %s and set " VARIABLE " (xcloud-containers(7))\n",
        step->node_name, step->topo.path);
    return step->rules->topo.proof == XC_FAIL_REFUSE;
}

bool topo_apply(const struct xc_step *step, struct env_writer *env, struct table_slot *slot,
                struct xc_text *lines)
{
    char why[STEP_WHY] = "";
    if (!step->topo.path)
        return true;
    if (step->topo.bundle)
        return !bundle_refused(step, lines);
    xc_autofree char *have = NULL;
    const char *now = env_get(env, VARIABLE), *whose = NULL;
    if (now && !(have = strdup(now)))
        return true;
    const char *path = choose(step, have, &whose);
    bool good = whose || step->topo.fd >= 0;
    if (!good)
        snprintf(why, sizeof why, "%s", step->topo.trouble);
    else
        good = topo_file_good(path, whose ? -1 : step->topo.fd, why);
    if (good || whose) {
        env_assign(env, VARIABLE, path);
        xc_text_add(env->report, VARIABLE "=");
        xc_text_add_plain(env->report, path, 4096);
        xc_text_addf(env->report, " (%s", whose ? whose : "topo.file");
        if (have && !xc_streq(have, path)) {
            xc_text_add(env->report, ", was ");
            xc_text_add_plain(env->report, have, 4096);
        }
        xc_text_addf(env->report, "%s)\n", good ? "; it opens here" : "");
    } else if (have) {
        env->host->unset(env->host->ctx, VARIABLE); /* better none than one that leads nowhere */
    }
    if (good) {
        slot->flags |= XC_REC_TOPO;
        return true;
    }
    if (step->rules->topo.proof == XC_FAIL_IGNORE)
        return true;
    complain(step, path, whose, why, lines);
    return step->rules->topo.proof != XC_FAIL_REFUSE;
}

/* ---- apptainer --------------------------------------------------------------------------------------- */

/* Whether a list of binds (SRC[:DST[:OPTIONS]],…) has path as one of its ends. */
static bool binds(const char *list, const char *path)
{
    size_t length = strlen(path);
    for (const char *at = list; (at = strstr(at, path)); at += length)
        if ((at == list || at[-1] == ',' || at[-1] == ':') &&
            (at[length] == ',' || at[length] == ':' || !at[length]))
            return true;
    return false;
}

/* Appended to what the user has; a bind of his own for the same path stands. Not told of in XCLOUD_ENV:
 * an inner step would take the user's part away with ours, and adding once more changes nothing. */
static void add_bind(struct env_writer *env, const char *name, const char *base, const char *path)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    const char *have = env_get(env, name);
    if (!have && base)
        have = env_get(env, base);
    xc_text_add(&text, have ? have : "");
    if (!have || !binds(have, path))
        xc_text_addf(&text, "%s%s:%s:ro", have && *have ? "," : "", path, path);
    if (!text.failed && text.data)
        env->host->set(env->host->ctx, name, text.data);
}

/* apptainer and singularity are started by the program: all they need travels in the environment.
 * APPTAINER_BIND shadows SINGULARITY_BIND, so what the user has in the latter alone is taken over. */
void topo_apptainer(const struct xc_step *step, struct env_writer *env,
                    const struct table_slot *slot)
{
    bool file = step->topo.path && !step->topo.own && (slot->flags & XC_REC_TOPO);
    const char *exec = env_get(env, "PYTHON_EXEC");
    bool workers = exec && xc_streq(exec, STEP_EXEC);
    if (step->topo.container || !env->set)
        return;
    if (file) {
        add_bind(env, "APPTAINER_BIND", "SINGULARITY_BIND", step->topo.path);
        add_bind(env, "SINGULARITY_BIND", NULL, step->topo.path);
    }
    if (file && step->rules->topo.over_image == XC_TOPO_REPLACE) {
        env_assign(env, "APPTAINERENV_" VARIABLE, step->topo.path);
        env_assign(env, "SINGULARITYENV_" VARIABLE, step->topo.path);
    }
    if (workers) {
        add_bind(env, "APPTAINER_BIND", "SINGULARITY_BIND", STEP_EXEC);
        add_bind(env, "SINGULARITY_BIND", NULL, STEP_EXEC);
    }
}
