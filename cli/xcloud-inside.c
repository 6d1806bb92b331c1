/* xcloud-inside: what a process of a job sees, in a program without libraries, so that it runs in any
 * image: the same checks as `xcloud check --inside`, without the site's policy. */
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/check.h>

#define DEADLINE_MS 5000

static int usage(FILE *out, int status)
{
    fputs(
        "usage: xcloud-inside [--json]\n"
        "  What this process can see: CPUs, memory, GPUs, RDMA adapters, IMEX channels, the NCCL\n"
        "  topology file, the other tasks' address, and NCCL's variables. Status 1: something "
        "fails.\n",
        out);
    return status;
}

static int report(const struct xc_findings *findings, bool json)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_check_about about = {0};
    if (json)
        xc_findings_json(findings, &about, &text);
    else
        xc_findings_text(findings, true, &text);
    if (text.failed || fwrite(text.data, 1, text.length, stdout) != text.length || fflush(stdout))
        return 2;
    return xc_findings_count(findings, XC_CHECK_FAIL) > 0;
}

static int run(bool json, struct xc_error *error)
{
    xc_autoroot struct xc_root *root = NULL;
    if (xc_root_open_dir("/", &root, error) < 0)
        return -1;
    struct xc_node *node = xc_check_node_inside(root);
    struct xc_rules *rules = xc_rules_builtin();
    struct xc_check_live live = {.dma_latency_us = -1};
    struct xc_findings findings = {0};
    struct xc_check_input input = {
        .root = root, .node = node, .rules = rules, .at = XC_AT_INSIDE, .live = &live};
    int rc = !node || !rules ? xc_error_nomem(error) : 0;
    if (rc == 0) {
        xc_check_live_probe(&input, DEADLINE_MS, &live);
        rc = xc_check_run(&input, NULL, &findings, error);
    }
    if (rc == 0)
        rc = report(&findings, json);
    xc_findings_clear(&findings);
    xc_check_live_clear(&live);
    xc_rules_free(rules);
    xc_node_free(node);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        if (option == 'j')
            json = true;
        else
            return option == 'h' ? usage(stdout, 0) : usage(stderr, 2);
    if (optind < argc)
        return usage(stderr, 2);
    struct xc_error error = {0};
    int rc = run(json, &error);
    if (rc < 0) {
        char text[sizeof error];
        fprintf(stderr, "xcloud-inside: %s\n", xc_error_text(&error, text, sizeof text));
        return 2;
    }
    return rc;
}
