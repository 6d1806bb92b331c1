/* What do all checks take on a large healthy node? check-bench DIR POLICY [RUNS]: lays the files of a
 * healthy host over the generated hgx-h100 in DIR, then runs the checks on it. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/check.h>

#include "../checks/good-host.h"

static void die(const char *what, const struct xc_error *error)
{
    fprintf(stderr, "check-bench: %s: %s %s\n", what, error->where, error->message);
    exit(2);
}

static void write_file(const char *directory, const char *path, const char *content)
{
    char full[700];
    struct xc_error error = {0};
    snprintf(full, sizeof full, "%s%s", directory, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    if (xc_make_dirs(full, 0755, &error) < 0)
        die("mkdir", &error);
    *slash = '/';
    FILE *stream = fopen(full, "w");
    if (!stream || fputs(content, stream) == EOF || fclose(stream) == EOF) {
        perror(full);
        exit(2);
    }
}

static void write_host(const char *directory)
{
    for (size_t i = 0; i < XC_COUNT(good_h100); i++) {
        const char *path = good_h100[i].path, *star = strstr(path, "/cpu*/");
        for (int cpu = 0; star && cpu < 224; cpu++) {
            char one[300];
            snprintf(one, sizeof one, "%.*s/cpu%d/%s", (int)(star - path), path, cpu, star + 6);
            write_file(directory, one, good_h100[i].content);
        }
        if (!star)
            write_file(directory, path, good_h100[i].content);
    }
}

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median CPU time of a run; only NULL: what input->at says. */
static double measure(const struct xc_check_input *input, const char *const *only, size_t runs,
                      size_t *bad)
{
    double *times = calloc(runs, sizeof *times);
    struct xc_error error = {0};
    for (size_t i = 0; i < runs; i++) {
        struct xc_findings findings = {0};
        double start = cpu_ms();
        if (xc_check_run(input, only, &findings, &error) < 0)
            die("run", &error);
        times[i] = cpu_ms() - start;
        *bad = xc_findings_count(&findings, XC_CHECK_FAIL);
        xc_findings_clear(&findings);
    }
    qsort(times, runs, sizeof *times, by_value);
    double median = times[runs / 2];
    free(times);
    return median;
}

static struct xc_rules *rules_of(const char *file)
{
    struct xc_error error = {0};
    struct xc_policy *policy;
    struct xc_rules *rules;
    struct xc_who who = {.node = "gpu001"};
    size_t length;
    xc_autofree char *text = xc_read_trusted(file, XC_POLICY_LIMIT, &length, &error);
    if (!text || xc_policy_parse(text, length, file, &policy, &error) < 0 ||
        xc_policy_resolve(policy, &who, NULL, NULL, &rules, &error) < 0)
        die("policy", &error);
    xc_policy_free(policy);
    return rules;
}

static void report(const char *what, double ms)
{
    printf("%s\t%.2f\tms\n", what, ms);
}

int main(int argc, char **argv)
{
    long runs = 21;
    struct xc_error error = {0};
    struct xc_root *root;
    struct xc_node *node;
    struct xc_check_live live;
    if (argc < 3 || argc > 4 || (argc > 3 && !xc_to_long(argv[3], 1, 100000, &runs))) {
        fprintf(stderr, "usage: check-bench DIR POLICY [RUNS]\n");
        return 2;
    }
    write_host(argv[1]);
    if (xc_machine_open(argv[1], XC_MACHINE_LIMIT, &root, &error) < 0 ||
        xc_node_read(root, NULL, &node, &error) < 0)
        die("machine", &error);
    xc_check_live_read(root, &live);
    struct xc_rules *rules = rules_of(argv[2]);
    struct xc_check_input input = {
        .root = root, .node = node, .rules = rules, .live = &live, .at = XC_AT_PROLOG};
    size_t bad;
    report("checks: those of a prolog, CPU time", measure(&input, NULL, (size_t)runs, &bad));
    input.at = XC_AT_CLI;
    report("checks: all of them, CPU time", measure(&input, NULL, (size_t)runs, &bad));
    static const char *const singles[] = {"cpu.cstate", "cpu.turbo", "gpu.pcie", "nic.port"};
    for (size_t i = 0; i < XC_COUNT(singles); i++) {
        const char *only[] = {singles[i], NULL};
        char what[64];
        snprintf(what, sizeof what, "checks: %s alone, CPU time", singles[i]);
        report(what, measure(&input, only, (size_t)runs, &bad));
    }
    xc_check_live_clear(&live);
    xc_rules_free(rules);
    xc_node_free(node);
    xc_root_close(root);
    return 0;
}
