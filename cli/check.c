/* xcloud check: is this node, or a captured one, fit? All checks in one command and on one screen. */
#include <getopt.h>
#include <string.h>
#include <time.h>

#include <xcloud/check.h>

#include "cli.h"
#include "views.h"

struct request {
    const char *machine, *policy, *node, *state;
    char **only;
    enum xc_check_at at;
    long deadline_ms; /* of the probes; 0: none are run */
    bool json, prometheus, list, all, exemplar, brief, nagios, inside;
};

enum {
    MACHINE = 256,
    POLICY,
    NODE,
    ONLY,
    AT,
    STATE,
    DEADLINE,
    JSON,
    PROMETHEUS,
    LIST,
    ALL,
    EXEMPLAR,
    BRIEF,
    NAGIOS,
    INSIDE,
    HELP
};

static const struct option long_options[] = {
    {"machine", required_argument, NULL, MACHINE},
    {"policy", required_argument, NULL, POLICY},
    {"node", required_argument, NULL, NODE},
    {"only", required_argument, NULL, ONLY},
    {"family", required_argument, NULL, ONLY},
    {"at", required_argument, NULL, AT},
    {"state", required_argument, NULL, STATE},
    {"deadline", required_argument, NULL, DEADLINE},
    {"json", no_argument, NULL, JSON},
    {"prometheus", no_argument, NULL, PROMETHEUS},
    {"list", no_argument, NULL, LIST},
    {"all", no_argument, NULL, ALL},
    {"exemplar", no_argument, NULL, EXEMPLAR},
    {"brief", no_argument, NULL, BRIEF},
    {"nagios", no_argument, NULL, NAGIOS},
    {"inside", no_argument, NULL, INSIDE},
    {"help", no_argument, NULL, HELP},
    {0},
};

static int usage(FILE *out, int rc)
{
    fputs(
        "usage: xcloud check [--machine DIR|ARCHIVE] [--policy FILE] [--node NAME]\n"
        "                    [--only ID|FAMILY,…] [--at boot|health|prolog|epilog]\n"
        "                    [--state FILE] [--deadline SECONDS] [--all]\n"
        "                    [--inside] [--exemplar]\n"
        "                    [--json | --prometheus | --brief | --nagios]\n"
        "       xcloud check --list [--json]\n"
        "  A line for each finding that is not pass, worst first. --inside: what a process of a\n"
        "  job can see, in its container; --exemplar: step by step as NVIDIA's prescreen.\n"
        "  Exit status: 0 nothing failed, 1 something did, 2 usage or input; with --nagios 0 OK,\n"
        "  1 WARNING, 2 CRITICAL, 3 UNKNOWN. --state keeps counters from run to run.\n",
        out);
    return rc;
}

static int take_at(struct request *request, const char *word)
{
    static const struct {
        const char *name;
        enum xc_check_at at;
    } words[] = {{"boot", XC_AT_BOOT},
                 {"health", XC_AT_HEALTH},
                 {"prolog", XC_AT_PROLOG},
                 {"epilog", XC_AT_EPILOG}};
    for (size_t i = 0; i < XC_COUNT(words); i++)
        if (xc_streq(words[i].name, word)) {
            request->at = words[i].at;
            return 0;
        }
    return cli_usage("check", "--at is \"%.40s\"; expected boot, health, prolog or epilog", word);
}

static bool is_family(const char *name)
{
    const struct xc_check *all[256];
    size_t count = xc_check_all(all, XC_COUNT(all)), length = strlen(name);
    for (size_t i = 0; i < count && i < XC_COUNT(all); i++)
        if (strncmp(all[i]->id, name, length) == 0 && all[i]->id[length] == '.')
            return true;
    return false;
}

static int take_only(struct request *request, const char *list)
{
    xc_names_free(&request->only);
    request->only = xc_names_split(list);
    if (!request->only || !*request->only)
        return cli_usage("check", "--only needs the names of checks or families");
    for (char **name = request->only; *name; name++) {
        if (xc_check_find(*name) || is_family(*name))
            continue;
        const char *near = xc_check_nearest(*name);
        return cli_usage("check", "there is no check \"%.60s\"%s%s%s; --list lists them", *name,
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return 0;
}

static int take_deadline(struct request *request, const char *word)
{
    long seconds;
    if (!xc_to_long(word, 0, 600, &seconds))
        return cli_usage("check", "--deadline is \"%.40s\"; expected 0 to 600 seconds", word);
    request->deadline_ms = seconds * 1000;
    return 0;
}

static int take_option(struct request *request, int option)
{
    const char **texts[] = {&request->machine, &request->policy, &request->node};
    bool *flags[] = {&request->json,     &request->prometheus, &request->list,   &request->all,
                     &request->exemplar, &request->brief,      &request->nagios, &request->inside};
    if (option >= MACHINE && option <= NODE)
        *texts[option - MACHINE] = optarg;
    else if (option >= JSON && option <= INSIDE)
        *flags[option - JSON] = true;
    else if (option == STATE)
        request->state = optarg;
    else if (option == ONLY)
        return take_only(request, optarg);
    else if (option == AT)
        return take_at(request, optarg);
    else if (option == DEADLINE)
        return take_deadline(request, optarg);
    else
        return usage(stderr, 2);
    return 0;
}

static int print_list(bool json)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_check_list(json, &text);
    return cli_print(&text);
}

/* ---- running ------------------------------------------------------------------------------------- */

struct run {
    struct xc_root *root;
    struct xc_node *node;
    struct xc_rules *rules;
    struct xc_check_live live;
    struct xc_check_state previous, next;
    struct xc_findings findings;
    char name[256];
};

static void run_clear(struct run *run)
{
    xc_findings_clear(&run->findings);
    xc_check_state_clear(&run->previous);
    xc_check_state_clear(&run->next);
    xc_check_live_clear(&run->live);
    xc_rules_free(run->rules);
    xc_node_free(run->node);
    xc_root_close(run->root);
}

/* A container may have no /sys: then the process alone is looked at. */
static int open_inside(struct run *run, struct xc_error *error)
{
    if (cli_open_machine(NULL, NULL, &run->root, &run->node, error) == 0)
        return 0;
    if (xc_machine_open("/", XC_MACHINE_LIMIT, &run->root, error) < 0)
        return -1;
    run->node = calloc(1, sizeof *run->node);
    if (!run->node)
        return xc_error_nomem(error);
    run->node->environment = XC_POD;
    return 0;
}

static int open_machine(const struct request *request, struct run *run, struct xc_error *error)
{
    return request->inside
               ? open_inside(run, error)
               : cli_open_machine(request->machine, request->node, &run->root, &run->node, error);
}

static int open_all(const struct request *request, struct run *run, struct xc_error *error)
{
    const char *name = cli_node_name(request->machine, request->node, run->name, sizeof run->name);
    if (name != run->name)
        snprintf(run->name, sizeof run->name, "%s", name);
    if (open_machine(request, run, error) < 0 ||
        cli_rules(request->policy, run->node, run->name, NULL, NULL, &run->rules, NULL, error) <
            0 ||
        xc_check_validate(run->rules, request->policy, error) < 0)
        return -1;
    if (request->state) {
        struct xc_error none = {0};
        if (xc_check_state_read(request->state, &run->previous, &none) < 0 &&
            none.code != XC_ENOENT) {
            char text[sizeof none];
            fprintf(stderr, "xcloud: no earlier counters: %s\n",
                    xc_error_text(&none, text, sizeof text));
        }
    }
    xc_check_live_read(run->root, &run->live);
    return 0;
}

static int run_checks(const struct request *request, struct run *run, struct xc_error *error)
{
    bool live = xc_root_is_live(run->root);
    if (live)
        run->next.at_us = xc_boottime_us();
    struct xc_check_input input = {
        .root = run->root,
        .node = run->node,
        .rules = run->rules,
        .node_name = run->name,
        .slurm_conf = live ? getenv("SLURM_CONF") : NULL,
        .at = request->at,
        .live = &run->live,
        .previous = live || request->state ? &run->previous : NULL,
        .next = &run->next,
    };
    const char *const *only = (const char *const *)request->only;
    if (request->deadline_ms > 0)
        xc_check_live_probe_only(&input, only, (unsigned)request->deadline_ms, &run->live);
    if (xc_check_run(&input, only, &run->findings, error) < 0)
        return -1;
    return request->state ? xc_check_state_write(&run->next, request->state, error) : 0;
}

static int print(const struct request *request, const struct run *run)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_check_about about = {.node = run->name,
                                   .boot_id = run->node->boot_id,
                                   .class_name = run->rules->class_name,
                                   .time = time(NULL)};
    int status = xc_findings_count(&run->findings, XC_CHECK_FAIL) > 0;
    if (request->json)
        xc_findings_json(&run->findings, &about, &text);
    else if (request->prometheus)
        xc_findings_prometheus(&run->findings, &about, &text);
    else if (request->brief)
        view_brief(&run->findings, run->name, &text);
    else if (request->nagios)
        status = view_nagios(&run->findings, &text);
    else if (request->exemplar)
        view_exemplar(&run->findings, &text);
    else
        xc_findings_text(&run->findings, request->all || request->inside, &text);
    bool lines = !request->json && !request->prometheus && !request->brief && !request->nagios;
    if (lines && request->inside && !request->only)
        cli_nccl_values(&text);
    if (lines)
        view_no_certificate(&text);
    int rc = cli_print(&text);
    return rc ? rc : status;
}

/* Nagios reads the first line of standard output and knows no other status than its own. */
static int fail(const struct request *request, const struct xc_error *error)
{
    char text[sizeof *error];
    if (!request->nagios)
        return cli_fail(error);
    printf("XCLOUD UNKNOWN - %s\n", xc_error_text(error, text, sizeof text));
    return 3;
}

static int check(const struct request *request)
{
    struct xc_error error = {0};
    struct run run = {.live.dma_latency_us = -1};
    int rc = open_all(request, &run, &error) < 0 || run_checks(request, &run, &error) < 0
                 ? fail(request, &error)
                 : print(request, &run);
    run_clear(&run);
    return rc;
}

/* What the words together ask for. */
static int settle(struct request *request)
{
    unsigned views = (unsigned)request->json + (unsigned)request->prometheus +
                     (unsigned)request->brief + (unsigned)request->nagios;
    if (views > 1 || (views == 1 && request->exemplar))
        return cli_usage("check", "--json, --prometheus, --brief, --nagios and --exemplar are "
                                  "several answers; one is given");
    if (request->inside && request->machine)
        return cli_usage("check", "--inside is about this process, not about another machine");
    if (request->only && request->exemplar)
        return cli_usage("check", "--exemplar has its own checks; --only chooses others");
    if (request->inside)
        request->at = XC_AT_INSIDE;
    if (request->exemplar && !(request->only = view_exemplar_checks(request->inside)))
        return cli_usage("check", "out of memory");
    return 0;
}

int cli_check(int argc, char **argv)
{
    struct request request = {.at = XC_AT_CLI, .deadline_ms = 5000};
    int option, rc = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (option == HELP || option == 'h') {
            xc_names_free(&request.only);
            return usage(stdout, 0);
        }
        rc = take_option(&request, option);
    }
    if (rc == 0 && optind < argc)
        rc = cli_usage("check", "\"%.60s\" is too much", argv[optind]);
    if (rc == 0)
        rc = settle(&request);
    if (rc == 0)
        rc = request.list ? print_list(request.json) : check(&request);
    xc_names_free(&request.only);
    return rc;
}
