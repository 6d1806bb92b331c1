/* What do the site's own programs say of the node? `checks: exec.NAME: { path: … }` runs one: 0 is
 * pass, 1 fail, anything else unknown; the first line that it writes is the reason, made harmless. */
#include <ctype.h>
#include <inttypes.h>
#include <sys/wait.h>

#include "live.h"

#define PREFIX "exec."

static const struct xc_check_param program_params[] = {
    {"path", XC_PARAM_TEXT, NULL, "the program; root's along its whole path", NULL},
    {"args", XC_PARAM_NAMES, NULL, "its arguments", NULL},
    {"seconds", XC_PARAM_NUMBER, "3", "after which it is ended, and says unknown", NULL},
    {0},
};

static const struct xc_check site_program;

/* ---- running them --------------------------------------------------------------------------------- */

#define PROGRAMS_MAX 64

struct one {
    const char *name; /* behind "exec." */
    long seconds;
    char **args;       /* owned */
    const char **argv; /* owned; its strings are not */
};

static const char **argv_of(const char *path, char **args)
{
    size_t count = 0;
    while (args && args[count])
        count++;
    const char **argv = calloc(count + 2, sizeof *argv);
    if (argv)
        argv[0] = path;
    for (size_t i = 0; argv && i < count; i++)
        argv[i + 1] = args[i];
    return argv;
}

static void say_program(const struct one *one, const struct xc_command *program, int out)
{
    const struct xc_child *child = &program->child;
    char line[160];
    if (!child->started) {
        chk_probe_line(out, "exec %s refused %s", one->name,
                       program->error.message[0] ? program->error.message
                                                 : strerror(child->status));
        return;
    }
    if (!child->ended)
        chk_probe_line(out, "exec %s late %ld", one->name, one->seconds);
    else if (WIFSIGNALED(child->status))
        chk_probe_line(out, "exec %s signal %d", one->name, WTERMSIG(child->status));
    else
        chk_probe_line(out, "exec %s exit %d", one->name, WEXITSTATUS(child->status));
    const char *text = child->text ? child->text : "";
    xc_autofree char *first = strndup(text, strcspn(text, "\n"));
    chk_one_line(first, line, sizeof line);
    if (*line)
        chk_probe_line(out, "exec %s said %s", one->name, line);
}

int chk_probe_exec(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    struct one ones[PROGRAMS_MAX] = {0};
    struct xc_command programs[PROGRAMS_MAX] = {0};
    size_t count = 0;
    for (size_t i = 0; i < input->rules->nchecks && count < PROGRAMS_MAX; i++) {
        const struct xc_check_rule *rule = &input->rules->checks[i];
        struct xc_check_input in = *input;
        in.check = &site_program;
        in.rule = rule;
        if (!xc_starts(rule->id, PREFIX) || rule->on_fail == XC_FAIL_IGNORE ||
            !chk_param(&in, "path"))
            continue;
        struct one *one = &ones[count];
        one->name = rule->id + strlen(PREFIX);
        chk_param_number(&in, "seconds", &one->seconds);
        one->args = chk_param(&in, "args") ? xc_names_split(chk_param(&in, "args")) : NULL;
        one->argv = argv_of(chk_param(&in, "path"), one->args);
        programs[count] = (struct xc_command){.path = chk_param(&in, "path"),
                                              .argv = one->argv,
                                              .deadline_ms = (unsigned)one->seconds * 1000};
        count++;
    }
    xc_commands_run(programs, count, deadline_ms > 200 ? deadline_ms - 100 : deadline_ms);
    for (size_t i = 0; i < count; i++) {
        say_program(&ones[i], &programs[i], out);
        xc_names_free(&ones[i].args);
        free(ones[i].argv);
        free(programs[i].child.text);
    }
    chk_probe_line(out, "end");
    return 0;
}

/* ---- judging -------------------------------------------------------------------------------------- */

static void judge(struct xc_findings *out, const char *text, const char *who, const char *name,
                  const char *path)
{
    char value[300], said[200] = "";
    int64_t number;
    struct chk_words words = {.device = name, .hint = path};
    chk_live_value(text, who, "said", said, sizeof said);
    const char *colon = *said ? ": " : "";
    if (chk_live_value(text, who, "refused", value, sizeof value))
        chk_say(out, XC_CHECK_UNKNOWN, words, "it was not run: %s", value);
    else if (chk_live_number(text, who, "late", &number))
        chk_say(out, XC_CHECK_UNKNOWN, words, "no answer within %" PRId64 " s%s%s", number, colon,
                said);
    else if (chk_live_number(text, who, "signal", &number))
        chk_say(out, XC_CHECK_UNKNOWN, words, "it ended with signal %" PRId64 "%s%s", number, colon,
                said);
    else if (!chk_live_number(text, who, "exit", &number))
        chk_say(out, XC_CHECK_UNKNOWN, words, "the last health run has not run it");
    else if (number == 0)
        chk_say(out, XC_CHECK_PASS, words, "%s", *said ? said : "exit 0");
    else if (number == 1)
        chk_say(out, XC_CHECK_FAIL, words, "%s", *said ? said : "exit 1");
    else
        chk_say(out, XC_CHECK_UNKNOWN, words, "exit %" PRId64 "%s%s", number,
                number == 127 && !*said ? ": it, or what it starts, cannot be executed" : colon,
                said);
}

static void run_program(const struct xc_check_input *in, struct xc_findings *out)
{
    char who[128];
    if (!in->rule) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "the policy names no programs (exec.NAME)");
        return;
    }
    const char *text = chk_live_text(in, out, XC_PROBE_EXEC, NULL), *path = chk_param(in, "path");
    if (!text)
        return;
    snprintf(who, sizeof who, "exec %.100s", in->rule->id + strlen(PREFIX));
    judge(out, text, who, in->rule->id + strlen(PREFIX), path);
}

static const struct xc_check site_program = {
    .id = "exec.program",
    .code = "EXE01",
    .what = "the site's own programs say that the node is fit (exec.NAME in the policy)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .probes = XC_PROBE_EXEC,
    .on_fail = XC_FAIL_WARN,
    .params = program_params,
    .run = run_program,
};

bool chk_is_program(const struct xc_check *check)
{
    return check == &site_program;
}

bool chk_names_program(const char *id)
{
    return id && xc_starts(id, PREFIX);
}

const struct xc_check *const chk_exec[] = {&site_program, NULL};
