/* slurmstepd: loads the engine and hands it what Slurm says. */
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

#define LIBRARY XC_LIBDIR "/libxcloud-step.so"

/* Step ids with a meaning; the values are the same in 22.05 to 26.05, the names are not. */
enum { ID_BATCH = -5, ID_EXTERN = -4, ID_INTERACTIVE = -6 };

/* ---- what the engine asks of Slurm ----------------------------------------------------------------- */

static int get(void *ctx, const char *name, char *buffer, size_t size)
{
    return spank_getenv(ctx, name, buffer, (int)size) == ESPANK_SUCCESS ? 0 : -1;
}

static int set(void *ctx, const char *name, const char *value)
{
    return spank_setenv(ctx, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

static int unset(void *ctx, const char *name)
{
    return spank_unsetenv(ctx, name) == ESPANK_SUCCESS ? 0 : -1;
}

static char **all(void *ctx)
{
    char **environment = NULL;
    return spank_get_item(ctx, S_JOB_ENV, &environment) == ESPANK_SUCCESS ? environment : NULL;
}

static void log_line(const char *line)
{
    slurm_info("%s", line);
}

static struct xc_step_host host(spank_t spank)
{
    return (struct xc_step_host){
        .ctx = spank, .get = get, .set = set, .unset = unset, .all = all, .log = log_line};
}

/* ---- the library -------------------------------------------------------------------------------------- */

static bool load(void)
{
    plugin.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!plugin.library) {
        snprintf(plugin.trouble, sizeof plugin.trouble, "%s", dlerror());
        return false;
    }
    xc_step_api_fn *ask = NULL;
    void *symbol = dlsym(plugin.library, "xc_step_api");
    memcpy(&ask, &symbol, sizeof ask); /* ISO C has no cast from object to function */
    plugin.api = ask ? ask(XC_STEP_ABI) : NULL;
    if (plugin.api && plugin.api->abi == XC_STEP_ABI)
        return true;
    snprintf(plugin.trouble, sizeof plugin.trouble,
             "%s is of another version than xcloud_bind.so (ABI %d wanted)", LIBRARY, XC_STEP_ABI);
    plugin.api = NULL;
    return false;
}

/* ---- what Slurm says ------------------------------------------------------------------------------------- */

static uint32_t number(spank_t spank, spank_item_t item)
{
    uint32_t value = 0;
    return spank_get_item(spank, item, &value) == ESPANK_SUCCESS ? value : 0;
}

static enum xc_step_kind kind_of(uint32_t step_id)
{
    switch ((int32_t)step_id) {
    case ID_BATCH:
        return XC_STEP_BATCH;
    case ID_INTERACTIVE:
        return XC_STEP_INTERACTIVE;
    case ID_EXTERN:
        return XC_STEP_EXTERN;
    default:
        return XC_STEP_TASKS;
    }
}

static const char *program(spank_t spank)
{
    char **argv = NULL;
    int argc = 0;
    return spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 ? argv[0]
                                                                                         : NULL;
}

/* "%n" in machine= and policy= is the node's name: several slurmds of one host have one plugstack.
 * false: no memory. */
static bool expand(const char *path, const char *node, char **out)
{
    struct xc_text text = XC_TEXT_INIT;
    *out = NULL;
    if (!path)
        return true;
    for (const char *percent; (percent = strstr(path, "%n")); path = percent + 2) {
        xc_text_add_n(&text, path, (size_t)(percent - path));
        xc_text_add(&text, node ? node : "");
    }
    xc_text_add(&text, path);
    *out = xc_text_take(&text);
    return *out;
}

void stepd_open(spank_t spank)
{
    if (plugin.args.mode_off || !load())
        return;
    const char *node = getenv("SLURMD_NODENAME"); /* slurmstepd's own, set by slurmd */
    xc_autofree char *machine = NULL, *policy = NULL;
    snprintf(plugin.trouble, sizeof plugin.trouble, "out of memory");
    if (!expand(plugin.args.machine, node, &machine) || !expand(plugin.args.policy, node, &policy))
        return; /* "/" in the place of another machine would be wrong */
    uint32_t step_id = number(spank, S_JOB_STEPID);
    struct xc_step_start start = {
        .node_name = node,
        .job_id = number(spank, S_JOB_ID),
        .step_id = step_id,
        .kind = kind_of(step_id),
        .uid = number(spank, S_JOB_UID),
        .ntasks = number(spank, S_JOB_LOCAL_TASK_COUNT),
        .nnodes = number(spank, S_JOB_NNODES),
        .node_index = number(spank, S_JOB_NODEID),
        .option_given = plugin.option_given,
        .option = plugin.option,
        .program = program(spank),
        .policy = policy,
        .machine = machine,
        .on_error_refuse = plugin.args.on_error_refuse,
    };
    struct xc_step_host to = host(spank);
    plugin.step = plugin.api->open(&start, &to);
    if (plugin.step)
        plugin.trouble[0] = '\0';
}

void stepd_post_fork(spank_t spank)
{
    if (!plugin.step)
        return;
    int local_id = XC_NONE;
    pid_t pid = 0;
    if (spank_get_item(spank, S_TASK_ID, &local_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_TASK_PID, &pid) != ESPANK_SUCCESS) {
        local_id = XC_NONE; /* the extern step has no task */
        pid = 0;
    }
    struct xc_step_host to = host(spank);
    plugin.api->post_fork(plugin.step, &to, local_id, pid);
}

/* pyxis's own options and variables: it takes the task into the container in its task_init, before
 * ours. */
static bool container_asked(spank_t spank)
{
    static const char *const names[] = {"container-image", "container-name"};
    static const char *const variables[] = {"PYXIS_CONTAINER_IMAGE", "PYXIS_CONTAINER_NAME"};
    char value[4096];
    for (size_t i = 0; i < XC_COUNT(names); i++) {
        struct spank_option option = {.name = (char *)names[i], .has_arg = 1};
        char *given = NULL;
        if (spank_option_getopt(spank, &option, &given) == ESPANK_SUCCESS ||
            spank_getenv(spank, variables[i], value, sizeof value) != ESPANK_ENV_NOEXIST)
            return true;
    }
    return false;
}

void stepd_task_privileged(spank_t spank)
{
    int local_id = XC_NONE;
    if (plugin.step && spank_get_item(spank, S_TASK_ID, &local_id) == ESPANK_SUCCESS)
        plugin.api->task_privileged(plugin.step, local_id, container_asked(spank));
}

/* srun ends the step as soon as it hears of the first exit: what was said must be there before. */
static void refuse(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    _exit(1); /* a returned -1 of an optional plugin is ignored, and the task would run */
}

/* The engine is missing: said once a node, by its first task. */
static void without_engine(int local_id)
{
    if (local_id == 0)
        dprintf(STDERR_FILENO, "xcloud-bind: %s: %s%s\n",
                getenv("SLURMD_NODENAME") ? getenv("SLURMD_NODENAME") : "node", plugin.trouble,
                plugin.args.on_error_refuse ? "" : "; running unbound");
    if (plugin.args.on_error_refuse)
        refuse();
}

void stepd_task_init(spank_t spank)
{
    int local_id = XC_NONE;
    spank_get_item(spank, S_TASK_ID, &local_id);
    if (!plugin.step) {
        if (plugin.trouble[0])
            without_engine(local_id);
        return;
    }
    struct xc_step_host to = host(spank);
    switch (plugin.api->task_init(plugin.step, &to, local_id)) {
    case XC_REFUSE:
        refuse();
        break;
    case XC_DONE:
        _exit(0);
    case XC_GO:
        break;
    }
}

void stepd_close(spank_t spank)
{
    struct xc_step_host to = host(spank);
    if (plugin.step)
        plugin.api->close(plugin.step, &to);
    if (plugin.library)
        dlclose(plugin.library);
}
