/* xcloud plan: who would go where, on this machine or on a captured one. Nothing is set. */
#include <ctype.h>
#include <string.h>

#include "cli.h"

struct arguments {
    const char *machine, *policy, *node_name, *tasks, *gpus, *cpus, *mems, *words, *svg;
    bool json;
};

/* What a plan is made of, and freed together. */
struct planning {
    struct xc_node *node;
    struct xc_rules *rules;
    struct xc_words words;
    struct xc_set cpus, mems;
    int *gpus;
    size_t ngpus;
    struct xc_plan *plan;
    char name[256];
    bool has_classes; /* the policy has some */
};

static void planning_clear(struct planning *planning)
{
    xc_plan_free(planning->plan);
    xc_rules_free(planning->rules);
    xc_node_free(planning->node);
    xc_set_free(&planning->cpus);
    xc_set_free(&planning->mems);
    free(planning->gpus);
}

static const char help_text[] =
    "usage: xcloud plan [OPTIONS] --tasks N\n"
    "\n"
    "  --machine M    a captured machine (directory or archive); default: this one\n"
    "  --policy FILE  the site policy; default: the one in force, - is standard input\n"
    "  --node NAME    Slurm's name of the node, for the policy's `match:`\n"
    "  --tasks N      tasks on the node\n"
    "  --gpus LIST    GPUs in the order the tasks see them: 0-3, 3,1, all (default) or none\n"
    "  --cpus LIST    the CPUs that the step may use; default: all\n"
    "  --mems LIST    the memory nodes that it may use; default: all\n"
    "  --words WORDS  what would follow --xcloud-bind=\n"
    "  --json         for programs\n"
    "  --svg FILE     a picture (- is standard output)\n";

/* GPUs keep the order that was given, so a set will not do. */
static int parse_gpus(const char *text, size_t present, struct planning *planning,
                      struct xc_error *error)
{
    const char *list = text;
    bool all = !list || xc_streq(list, "all");
    char everything[32];
    if (xc_streq(list, "none") || (all && present == 0))
        return 0;
    if (all) {
        snprintf(everything, sizeof everything, "0-%zu", present - 1);
        list = everything;
    }
    while (*list) {
        char *end;
        unsigned long first = isdigit((unsigned char)*list) ? strtoul(list, &end, 10) : present;
        unsigned long last = first;
        if (first < present && *end == '-')
            last = isdigit((unsigned char)end[1]) ? strtoul(end + 1, &end, 10) : present;
        if (first >= present || last >= present || last < first || (*end && *end != ',') ||
            (*end == ',' && !end[1]))
            return xc_error_set(error, XC_EINPUT, "--gpus",
                                "\"%s\": expected GPUs of this machine, which has %zu, for example "
                                "0-1 or 3,1, or none",
                                text, present);
        int *larger =
            realloc(planning->gpus, (planning->ngpus + last - first + 1) * sizeof *larger);
        if (!larger)
            return xc_error_nomem(error);
        planning->gpus = larger;
        for (unsigned long gpu = first; gpu <= last; gpu++)
            larger[planning->ngpus++] = (int)gpu;
        list = *end ? end + 1 : end;
    }
    return 0;
}

/* Words that the site does not leave to users do nothing here either. */
static void cut_words(struct planning *planning)
{
    xc_autofree char *taken = xc_words_permit(&planning->words, planning->rules->bind.users_may);
    if (taken)
        fprintf(stderr, "xcloud plan: the policy does not leave these to users: %s\n", taken);
}

static int make(const struct arguments *arguments, unsigned ntasks, struct planning *planning,
                struct xc_error *error)
{
    if ((arguments->words && xc_words_parse(arguments->words, &planning->words, error) < 0) ||
        cli_open_machine(arguments->machine, arguments->node_name, NULL, &planning->node, error) <
            0)
        return -1;
    char buffer[sizeof planning->name];
    snprintf(planning->name, sizeof planning->name, "%s",
             cli_node_name(arguments->machine, arguments->node_name, buffer, sizeof buffer));
    if (cli_rules(arguments->policy, planning->node, planning->name, NULL, planning->words.profile,
                  &planning->rules, &planning->has_classes, error) < 0)
        return -1;
    cut_words(planning);
    if (parse_gpus(arguments->gpus, planning->node->ngpus, planning, error) < 0 ||
        (arguments->cpus &&
         xc_set_parse_list(&planning->cpus, arguments->cpus, "--cpus", error) < 0) ||
        (arguments->mems &&
         xc_set_parse_list(&planning->mems, arguments->mems, "--mems", error) < 0))
        return -1;
    struct xc_request request = {
        .node = planning->node,
        .rules = planning->rules,
        .words = &planning->words,
        .cpus = arguments->cpus ? &planning->cpus : NULL,
        .mems = arguments->mems ? &planning->mems : NULL,
        .ntasks = ntasks,
        .visible = {.gpus = planning->gpus, .count = planning->ngpus},
    };
    return xc_plan_make(&request, &planning->plan, error);
}

static int write_picture(const struct planning *planning, const char *file, struct xc_error *error)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_plan_svg(planning->plan, planning->node, planning->name, &text);
    if (xc_streq(file, "-"))
        return cli_print(&text);
    if (text.failed)
        return xc_error_nomem(error);
    return xc_write_atomic(file, text.data, text.length, 0644, error);
}

/* What would come between this plan and a job: said above it. */
static void add_doubts(const struct planning *planning, struct xc_text *out)
{
    const struct xc_rules *rules = planning->rules;
    if (rules->mode == XC_MODE_OBSERVE)
        xc_text_add(out, "mode observe: nothing would be set; in mode bind this would be\n");
    else if (planning->words.off || rules->bind.when == XC_DEFAULT_NEVER)
        xc_text_addf(out, "not bound (%s): tasks keep what Slurm sets; bound they would have\n",
                     planning->words.off ? "off" : "the policy's bind: default: never");
    if (!rules->class_name && planning->has_classes && rules->unmatched_warn)
        xc_text_addf(out,
                     "no class of the policy matches node %s: its defaults hold (--node NAME)\n",
                     planning->name);
}

static int write_plan(const struct arguments *arguments, const struct planning *planning,
                      struct xc_error *error)
{
    if (arguments->svg)
        return write_picture(planning, arguments->svg, error);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    if (arguments->json) {
        struct xc_json json;
        xc_json_begin(&json, &text, true);
        xc_plan_json(planning->plan, planning->node, planning->name, &json);
    } else {
        add_doubts(planning, &text);
        xc_plan_table(planning->plan, planning->node, &text);
    }
    return cli_print(&text);
}

/* Slurm allows 512 tasks on a node. More than this is a slip of the finger, and would take long. */
#define TASKS_MAX 4096

int cli_plan(int argc, char **argv)
{
    struct arguments arguments = {0};
    const struct cli_option options[] = {{"machine", .text = &arguments.machine},
                                         {"policy", .text = &arguments.policy},
                                         {"node", .text = &arguments.node_name},
                                         {"tasks", 'n', .text = &arguments.tasks},
                                         {"gpus", .text = &arguments.gpus},
                                         {"cpus", .text = &arguments.cpus},
                                         {"mems", .text = &arguments.mems},
                                         {"words", .text = &arguments.words},
                                         {"json", .flag = &arguments.json},
                                         {"svg", .text = &arguments.svg},
                                         {0}};
    int status = cli_options("plan", argc, argv, options, help_text);
    if (status != CLI_GO)
        return status;
    if (optind < argc)
        return cli_usage("plan", "\"%s\" is no option", argv[optind]);
    if (arguments.json && arguments.svg)
        return cli_usage("plan", "--json and --svg exclude each other");
    long ntasks;
    if (!arguments.tasks || !xc_to_long(arguments.tasks, 1, TASKS_MAX, &ntasks))
        return cli_usage("plan", "--tasks takes a number of tasks, 1 to %d", TASKS_MAX);
    xc_cleanup(planning_clear) struct planning planning = {0};
    struct xc_error error = {0};
    if (make(&arguments, (unsigned)ntasks, &planning, &error) < 0)
        return cli_fail(&error);
    status = write_plan(&arguments, &planning, &error);
    return status < 0 ? cli_fail(&error) : status;
}
