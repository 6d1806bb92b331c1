/* xcloud check: is this node, or a captured one, fit? All checks in one command and on one screen. */
#include <string.h>
#include <time.h>

#include <xcloud/check.h>

#include "cli.h"
#include "views.h"

struct request {
    const char *machine, *policy, *node, *state;
    const char *only_text, *at_text, *deadline; /* as they were given */
    char **only;
    enum xc_check_at at;
    long deadline_ms; /* of the probes; 0: none are run */
    bool json, prometheus, list, all, exemplar, brief, nagios, inside;
};

static const char help[] =
    "usage: xcloud check [--machine DIR|ARCHIVE] [--policy FILE] [--node NAME]\n"
    "                    [--only ID|FAMILY,…] [--at boot|health|prolog|epilog]\n"
    "                    [--state FILE] [--deadline SECONDS] [--all]\n"
    "                    [--inside] [--exemplar]\n"
    "                    [--json | --prometheus | --brief | --nagios]\n"
    "       xcloud check --list [--json]\n"
    "  A line for each finding that is not pass, worst first. --inside: what a process of a\n"
    "  job can see, in its container; --exemplar: step by step as NVIDIA's prescreen.\n"
    "  Exit status: 0 nothing failed, 1 something did, 2 usage or input; with --nagios 0 OK,\n"
    "  1 WARNING, 2 CRITICAL, 3 UNKNOWN. --state keeps counters from run to run.\n";

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

static int open_inside(struct run *run, struct xc_error *error)
{
    if (xc_root_open_dir("/", &run->root, error) < 0)
        return -1;
    run->node = xc_check_node_inside(run->root);
    return run->node ? 0 : xc_error_nomem(error);
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
    if ((request->only_text && take_only(request, request->only_text) != 0) ||
        (request->at_text && take_at(request, request->at_text) != 0) ||
        cli_deadline("check", request->deadline, &request->deadline_ms) != 0)
        return 2;
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
    const struct cli_option options[] = {{"machine", .text = &request.machine},
                                         {"policy", .text = &request.policy},
                                         {"node", .text = &request.node},
                                         {"only", .text = &request.only_text},
                                         {"family", .text = &request.only_text},
                                         {"at", .text = &request.at_text},
                                         {"state", .text = &request.state},
                                         {"deadline", .text = &request.deadline},
                                         {"json", .flag = &request.json},
                                         {"prometheus", .flag = &request.prometheus},
                                         {"list", .flag = &request.list},
                                         {"all", .flag = &request.all},
                                         {"exemplar", .flag = &request.exemplar},
                                         {"brief", .flag = &request.brief},
                                         {"nagios", .flag = &request.nagios},
                                         {"inside", .flag = &request.inside},
                                         {0}};
    int rc = cli_options("check", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    rc = optind < argc ? cli_usage("check", "\"%.60s\" is too much", argv[optind])
                       : settle(&request);
    if (rc == 0)
        rc = request.list ? print_list(request.json) : check(&request);
    xc_names_free(&request.only);
    return rc;
}
