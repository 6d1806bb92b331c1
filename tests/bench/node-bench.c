/* How long does it take to know a machine? This room against hwloc, in the same run on the same
 * directory: node-bench DIR [RUNS]. With a third argument (read, write, map, refresh, hwloc,
 * hwloc-xml) that one thing is done once, to be counted from outside: strace -f node-bench DIR 1
 * read. */
#include <hwloc.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/node.h>

struct bench {
    const char *directory;
    char snapshot[64], xml[64];
    struct xc_node *node; /* for writing */
};

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void die(const char *what, const struct xc_error *error)
{
    fprintf(stderr, "node-bench: %s: %s %s\n", what, error ? error->where : "",
            error ? error->message : "failed");
    exit(2);
}

static void do_read(struct bench *bench)
{
    struct xc_error error = {0};
    struct xc_root *root;
    if (xc_machine_open(bench->directory, XC_MACHINE_LIMIT, &root, &error) < 0 ||
        xc_node_read(root, NULL, &bench->node, &error) < 0)
        die("read", &error);
    xc_root_close(root);
}

static void do_write(struct bench *bench)
{
    struct xc_error error = {0};
    if (!bench->node)
        do_read(bench);
    if (xc_snapshot_write(bench->node, bench->snapshot, &error) < 0)
        die("write", &error);
}

static void do_map(struct bench *bench)
{
    struct xc_error error = {0};
    struct xc_node *node;
    if (xc_snapshot_map(bench->snapshot, NULL, &node, &error) < 0)
        die("map", &error);
    xc_node_free(node);
}

static void do_refresh(struct bench *bench)
{
    struct xc_error error = {0};
    struct xc_root *root;
    struct xc_node *old, *node;
    if (xc_machine_open(bench->directory, XC_MACHINE_LIMIT, &root, &error) < 0 ||
        xc_snapshot_map(bench->snapshot, NULL, &old, &error) < 0 ||
        xc_node_refresh(root, NULL, old, &node, &error) != 0)
        die("refresh", &error);
    xc_node_free(node);
    xc_node_free(old);
    xc_root_close(root);
}

static hwloc_topology_t load_hwloc(const char *xml)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) < 0 || (xml && hwloc_topology_set_xml(topology, xml) < 0) ||
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0 ||
        hwloc_topology_load(topology) < 0)
        die("hwloc", NULL);
    return topology;
}

static void do_hwloc(struct bench *bench)
{
    (void)bench;
    hwloc_topology_destroy(load_hwloc(NULL));
}

static void do_hwloc_xml(struct bench *bench)
{
    hwloc_topology_destroy(load_hwloc(bench->xml));
}

static const struct task {
    const char *name, *what;
    void (*run)(struct bench *);
} tasks[] = {
    {"read", "read the machine (once a boot)", do_read},
    {"write", "write the snapshot, with fsync", do_write},
    {"map", "map and check the snapshot (each step)", do_map},
    {"refresh", "map it and refresh ports and MIG (each prolog)", do_refresh},
    {"hwloc", "hwloc: load with I/O", do_hwloc},
    {"hwloc-xml", "hwloc: load its XML", do_hwloc_xml},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *bench, const struct task *task, size_t runs,
                    struct xc_table *table)
{
    double *times = calloc(runs, sizeof *times);
    for (size_t i = 0; i < runs; i++) {
        struct xc_node *old = bench->node;
        double start = milliseconds();
        task->run(bench);
        times[i] = milliseconds() - start;
        if (bench->node != old)
            xc_node_free(old);
    }
    qsort(times, runs, sizeof *times, by_value);
    xc_table_row(table);
    xc_table_cell(table, 0, "%s", task->what);
    xc_table_cell(table, 1, "%.3f", times[runs / 2]);
    xc_table_cell(table, 2, "%.3f", times[0]);
    xc_table_cell(table, 3, "%.3f", times[runs - 1]);
    free(times);
}

/* What map and hwloc-xml read, made before anything is timed or counted. */
static void prepare(struct bench *bench)
{
    int fd = mkstemp(bench->snapshot), other = mkstemp(bench->xml);
    if (fd < 0 || other < 0)
        die("mkstemp", NULL);
    close(fd);
    close(other);
    do_write(bench);
    hwloc_topology_t topology = load_hwloc(NULL);
    if (hwloc_topology_export_xml(topology, bench->xml, 0) < 0)
        die("hwloc XML", NULL);
    hwloc_topology_destroy(topology);
}

static void run_all(struct bench *bench, size_t runs)
{
    xc_autotable struct xc_table table;
    struct xc_text text = XC_TEXT_INIT;
    xc_table_begin(&table, 4);
    table.right = 2 | 4 | 8;
    xc_table_row(&table);
    xc_table_cell(&table, 0, "ms, %zu runs", runs);
    xc_table_cell(&table, 1, "median");
    xc_table_cell(&table, 2, "least");
    xc_table_cell(&table, 3, "most");
    prepare(bench);
    for (size_t i = 0; i < XC_COUNT(tasks); i++)
        measure(bench, &tasks[i], runs, &table);
    xc_table_write(&table, &text);
    xc_autofree char *string = xc_text_take(&text);
    fputs(string, stdout);
    unlink(bench->snapshot);
    unlink(bench->xml);
}

int main(int argc, char **argv)
{
    long runs = 21;
    if (argc < 2 || argc > 4 || (argc > 2 && !xc_to_long(argv[2], 1, 100000, &runs))) {
        fprintf(stderr, "usage: node-bench DIR [RUNS [read|write|map|refresh|hwloc|hwloc-xml]]\n");
        return 2;
    }
    struct bench bench = {.directory = argv[1],
                          .snapshot = "/tmp/node-bench-snapshot.XXXXXX",
                          .xml = "/tmp/node-bench-xml.XXXXXX"};
    setenv("HWLOC_FSROOT", argv[1], 1);
    setenv("HWLOC_THISSYSTEM", "0", 1);
    if (argc < 4) {
        run_all(&bench, (size_t)runs);
        xc_node_free(bench.node);
        return 0;
    }
    bool prepared = !xc_streq(argv[3], "read") && !xc_streq(argv[3], "hwloc");
    if (prepared)
        prepare(&bench);
    if (write(STDERR_FILENO, "", 1) < 0) /* a mark in strace's output: counting starts here */
        return 2;
    for (size_t i = 0; i < XC_COUNT(tasks); i++)
        if (xc_streq(argv[3], tasks[i].name))
            tasks[i].run(&bench);
    if (prepared) {
        unlink(bench.snapshot);
        unlink(bench.xml);
    }
    xc_node_free(bench.node);
    return 0;
}
