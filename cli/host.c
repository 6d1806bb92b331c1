/* xcloud host: keeps the host's own services, interrupts and threads on the housekeeping CPUs, shows
 * whether they are, and takes it back. */
#include <string.h>

#include <xcloud/check.h>
#include <xcloud/host.h>

#include "cli.h"

struct request {
    const char *machine, *policy, *node;
    bool dry, json;
};

static const char help[] =
    "usage: xcloud host apply  [--policy FILE] [--node NAME] [--dry-run] [--json] [--machine "
    "M]\n"
    "           services, interrupts and unbound work to the housekeeping CPUs; never a job\n"
    "       xcloud host verify [--policy FILE] [--node NAME] [--json] [--machine M]\n"
    "           are they there, and does Slurm think of the same CPUs?\n"
    "       xcloud host undo   [--dry-run] [--json]\n"
    "           as it was before apply\n"
    "  Exit status: 0 done, 1 something was refused or is not so, 2 usage or input; then "
    "nothing\n"
    "  was set. --machine and mode: observe set nothing. The man page is xcloud-host(8).\n";

/* ---- what all need -------------------------------------------------------------------------------- */

struct run {
    struct xc_root *root;
    struct xc_node *node;
    struct xc_rules *rules;
    char name[256];
};

static void run_clear(struct run *run)
{
    xc_rules_free(run->rules);
    xc_node_free(run->node);
    xc_root_close(run->root);
}

/* The live policy itself: what the host is set to must be what its file says, and no last good copy.
 * 1: there is none, or it is switched off; that is said. */
static int read_live(struct xc_policy **policy, struct xc_error *error)
{
    struct xc_places places = {.prefix = "", .slurm_conf = getenv("SLURM_CONF")};
    struct xc_policy_source source = {0};
    struct xc_error none = {0};
    const char *off = xc_policy_disabled(&places);
    if (off) {
        printf("%s is there: nothing is set\n", off);
        return 1;
    }
    int rc = xc_policy_load(&places, policy, &source, &none);
    if (rc == 0 && source.last_good)
        rc = xc_error_set(error, XC_EINPUT, NULL, "%s", source.live_error);
    else if (rc < 0 && none.code == XC_ENOENT) {
        printf("there is no policy: nothing to do\n");
        rc = 1;
    } else if (rc < 0 && error) {
        *error = none;
    }
    xc_policy_source_clear(&source);
    return rc;
}

static int read_policy(const struct request *request, struct xc_policy **policy,
                       struct xc_error *error)
{
    if (!request->policy)
        return read_live(policy, error);
    size_t length;
    xc_autofree char *text = cli_read_policy(request->policy, &length, error);
    return text ? xc_policy_parse(text, length, request->policy, policy, error) : -1;
}

static int run_open(const struct request *request, struct run *run, struct xc_error *error)
{
    cli_autopolicy struct xc_policy *policy = NULL;
    const char *name = cli_node_name(request->machine, request->node, run->name, sizeof run->name);
    if (name != run->name)
        snprintf(run->name, sizeof run->name, "%s", name);
    int rc = read_policy(request, &policy, error);
    if (rc != 0)
        return rc;
    if (cli_open_machine(request->machine, request->node, &run->root, &run->node, error) < 0 ||
        xc_plan_rules(policy, run->node, run->name, NULL, NULL, &run->rules, error) < 0)
        return -1;
    return xc_check_validate(run->rules, request->policy, error);
}

static int print_report(const struct request *request, const struct xc_host_report *report)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    if (request->json)
        xc_host_report_json(report, &text);
    else
        xc_host_report_text(report, &text);
    int rc = cli_print(&text);
    return rc ? rc : xc_host_report_count(report, XC_HOST_REFUSED) > 0;
}

/* ---- the checks ------------------------------------------------------------------------------------- */

static int check(const struct run *run, const char *const *only, struct xc_findings *findings,
                 struct xc_error *error)
{
    struct xc_check_input input = {
        .root = run->root,
        .node = run->node,
        .rules = run->rules,
        .node_name = run->name,
        .slurm_conf = xc_root_is_live(run->root) ? getenv("SLURM_CONF") : NULL,
        .at = XC_AT_CLI,
    };
    return xc_check_run(&input, only, findings, error);
}

static int verify(const struct request *request, struct run *run, struct xc_error *error)
{
    static const char *const only[] = {"host.slices", "host.irqs",     "host.workqueues",
                                       "host.strays", "slurm.cpuspec", NULL};
    struct xc_findings findings = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_check_about about = {
        .node = run->name, .boot_id = run->node->boot_id, .class_name = run->rules->class_name};
    int rc = check(run, only, &findings, error);
    if (rc == 0 && request->json)
        xc_findings_json(&findings, &about, &text);
    else if (rc == 0)
        xc_findings_text(&findings, true, &text);
    if (rc == 0)
        rc = cli_print(&text);
    if (rc == 0 && xc_findings_count(&findings, XC_CHECK_FAIL) > 0)
        rc = 1;
    xc_findings_clear(&findings);
    return rc;
}

/* Where Slurm and the policy do not think of the same CPUs, and the words that mend it. */
static void say_slurm(const struct run *run)
{
    static const char *const only[] = {"slurm.cpuspec", NULL};
    xc_autoset struct xc_set housekeeping = XC_SET_EMPTY, ids = XC_SET_EMPTY;
    struct xc_findings findings = {0};
    struct xc_error error = {0};
    if (check(run, only, &findings, &error) < 0 || findings.count == 0 ||
        (findings.list[0].verdict != XC_CHECK_WARN && findings.list[0].verdict != XC_CHECK_FAIL) ||
        xc_plan_housekeeping(run->node, run->rules, &housekeeping, NULL, &error) < 0 ||
        xc_node_abstract_ids(run->node, &housekeeping, &ids, &error) < 0) {
        xc_findings_clear(&findings);
        return;
    }
    xc_autofree char *list = xc_set_format(&ids);
    printf("Slurm: %s: %s; NodeName=%s … CpuSpecList=%s in slurm.conf mends it\n",
           findings.list[0].device, findings.list[0].actual, run->name, list ? list : "");
    xc_findings_clear(&findings);
}

/* ---- the verbs -------------------------------------------------------------------------------------- */

static int apply(const struct request *request, struct run *run, struct xc_error *error)
{
    struct xc_host_report report = {0};
    bool observe = run->rules->mode == XC_MODE_OBSERVE, live = cli_is_live(request->machine);
    struct xc_host_input input = {.root = run->root,
                                  .prefix = "",
                                  .system = xc_host_live(),
                                  .node = run->node,
                                  .rules = run->rules,
                                  .dry = request->dry || observe || !live};
    int rc = xc_host_apply(&input, &report, error);
    if (rc == 0 && observe && report.housekeeping && !request->json)
        printf("mode observe: nothing is set\n");
    if (rc == 0)
        rc = print_report(request, &report);
    if (rc >= 0 && rc < 2 && report.housekeeping && !request->json)
        say_slurm(run);
    if (rc == 1 && input.dry)
        rc = 0; /* a report that was asked for */
    xc_host_report_clear(&report);
    return rc;
}

static int undo(const struct request *request, struct xc_error *error)
{
    xc_autoroot struct xc_root *root = NULL;
    struct xc_host_report report = {0};
    if (request->machine || request->policy)
        return cli_usage("host", "undo takes no --machine and no --policy");
    if (xc_root_open_dir("/", &root, error) < 0)
        return -1;
    struct xc_host_input input = {
        .root = root, .prefix = "", .system = xc_host_live(), .dry = request->dry};
    int rc = xc_host_undo(&input, &report, error);
    if (rc == 0)
        rc = print_report(request, &report);
    xc_host_report_clear(&report);
    return rc;
}

static int with_policy(const struct request *request,
                       int (*verb)(const struct request *, struct run *, struct xc_error *),
                       struct xc_error *error)
{
    struct run run = {0};
    int rc = run_open(request, &run, error);
    rc = rc > 0 ? 0 : rc == 0 ? verb(request, &run, error) : rc;
    run_clear(&run);
    return rc;
}

int cli_host(int argc, char **argv)
{
    struct request request = {0};
    struct xc_error error = {0};
    const struct cli_option options[] = {
        {"machine", .text = &request.machine}, {"policy", .text = &request.policy},
        {"node", .text = &request.node},       {"dry-run", .flag = &request.dry},
        {"json", .flag = &request.json},       {0}};
    int rc = cli_options("host", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    if (optind + 1 != argc)
        return cli_usage("host", "%s; expected apply, verify or undo",
                         optind < argc ? "too many words" : "what to do is missing");
    const char *verb = argv[optind];
    if (xc_streq(verb, "apply"))
        rc = with_policy(&request, apply, &error);
    else if (xc_streq(verb, "verify") && !request.dry)
        rc = with_policy(&request, verify, &error);
    else if (xc_streq(verb, "undo"))
        rc = undo(&request, &error);
    else
        return cli_usage("host", "\"%.40s\": expected apply, verify or undo%s", verb,
                         request.dry ? " (--dry-run is of apply and undo)" : "");
    return rc < 0 ? cli_fail(&error) : rc;
}
