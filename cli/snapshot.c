/* xcloud snapshot: what is this machine? Writes it for the steps to read, prints it as JSON, or lets
 * hwloc say whether it is true. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

struct request {
    const char *output, *machine, *node;
    bool refresh, json, hwloc;
};

/* ---- JSON --------------------------------------------------------------------------------------------- */

/* An index or number; null when it is not known. */
static void number_or_null(struct xc_json *json, const char *key, int64_t value)
{
    if (value == XC_NONE)
        xc_json_string(json, key, NULL);
    else
        xc_json_int(json, key, value);
}

static void cpus_json(struct xc_json *json, const struct xc_node *node)
{
    xc_json_array(json, "cpus");
    for (size_t i = 0; i < node->ncpus; i++) {
        const struct xc_cpu *cpu = &node->cpus[i];
        xc_json_object(json, NULL);
        xc_json_int(json, "os", cpu->os);
        xc_json_bool(json, "online", cpu->flags & XC_CPU_ONLINE);
        number_or_null(json, "core", cpu->core);
        number_or_null(json, "package", cpu->package);
        number_or_null(json, "numa", cpu->numa);
        number_or_null(json, "l3", cpu->l3);
        xc_json_int(json, "thread", cpu->thread);
        xc_json_int(json, "max_khz", cpu->max_khz);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void sets_json(struct xc_json *json, const struct xc_node *node)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } sets[] = {{"online", XC_CPU_ONLINE},
                {"priority", XC_CPU_PRIORITY},
                {"slurm_reserved", XC_CPU_SLURM_SPEC},
                {"isolated", XC_CPU_ISOLATED}};
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    for (size_t i = 0; i < XC_COUNT(sets); i++) {
        xc_node_flagged(node, sets[i].flag, &set);
        xc_json_set(json, sets[i].key, &set);
    }
}

static void numas_json(struct xc_json *json, const struct xc_node *node)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_json_array(json, "numa_nodes");
    for (size_t i = 0; i < node->nnumas; i++) {
        xc_node_numa_cpus(node, node->numas[i].os, &cpus);
        xc_json_object(json, NULL);
        xc_json_int(json, "os", node->numas[i].os);
        xc_json_set(json, "cpus", &cpus);
        xc_json_int(json, "memory", (int64_t)node->numas[i].memory);
        xc_json_array(json, "distance");
        for (size_t j = 0; j < node->nnumas; j++)
            xc_json_int(json, NULL, node->distance[i * node->nnumas + j]);
        xc_json_end(json, ']');
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void bdf_json(struct xc_json *json, const char *key, const struct xc_node *node, int32_t pci)
{
    char text[XC_BDF_TEXT];
    xc_json_string(json, key, pci < 0 ? NULL : xc_bdf_text(&node->pci[pci].bdf, text));
}

static void pci_json(struct xc_json *json, const struct xc_node *node)
{
    xc_json_array(json, "pci");
    for (size_t i = 0; i < node->npci; i++) {
        const struct xc_pci *pci = &node->pci[i];
        char id[16];
        xc_json_object(json, NULL);
        bdf_json(json, "bdf", node, (int32_t)i);
        bdf_json(json, "parent", node, pci->parent);
        snprintf(id, sizeof id, "%04x:%04x", pci->vendor, pci->device);
        xc_json_string(json, "id", id);
        snprintf(id, sizeof id, "%06x", pci->class & 0xffffffu);
        xc_json_string(json, "class", id);
        number_or_null(json, "numa", pci->numa);
        xc_json_int(json, "width", pci->width);
        xc_json_int(json, "max_width", pci->max_width);
        xc_json_int(json, "speed_mts", pci->speed_mts);
        xc_json_int(json, "max_speed_mts", pci->max_speed_mts);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void gpus_json(struct xc_json *json, const struct xc_node *node)
{
    xc_json_array(json, "gpus");
    for (size_t i = 0; i < node->ngpus; i++) {
        const struct xc_gpu *gpu = &node->gpus[i];
        xc_json_object(json, NULL);
        bdf_json(json, "bdf", node, gpu->pci);
        number_or_null(json, "minor", gpu->minor);
        number_or_null(json, "numa", gpu->numa);
        xc_json_bool(json, "mig", gpu->mig);
        xc_json_string(json, "uuid", gpu->uuid[0] ? gpu->uuid : NULL);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void nics_json(struct xc_json *json, const struct xc_node *node)
{
    static const char *const states[] = {"unknown", "down", "init", "armed", "active"};
    static const char *const links[] = {NULL, "infiniband", "ethernet"};
    xc_json_array(json, "nics");
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        xc_json_object(json, NULL);
        xc_json_string(json, "rdma", nic->rdma[0] ? nic->rdma : NULL);
        xc_json_int(json, "port", nic->port);
        xc_json_string(json, "netdev", nic->netdev[0] ? nic->netdev : NULL);
        bdf_json(json, "bdf", node, nic->pci);
        number_or_null(json, "numa", nic->numa);
        xc_json_string(json, "state", states[nic->state]);
        xc_json_int(json, "rate_mbps", nic->rate_mbps);
        xc_json_string(json, "link", links[nic->link]);
        xc_json_array(json, "gpu_paths");
        for (size_t gpu = 0; gpu < node->ngpus; gpu++)
            xc_json_string(json, NULL,
                           xc_path_name(xc_node_path(node, node->gpus[gpu].pci, nic->pci)));
        xc_json_end(json, ']');
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static int print_json(const struct xc_node *node, const char *name)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_json json;
    xc_json_begin(&json, &text, true);
    xc_json_object(&json, NULL);
    xc_json_string(&json, "node", name);
    xc_json_string(&json, "vendor", node->vendor);
    xc_json_string(&json, "features", node->features);
    xc_json_string(&json, "product", node->product);
    xc_json_string(&json, "arch", node->arch);
    xc_json_string(&json, "cpu_vendor", node->cpu_vendor);
    xc_json_int(&json, "cpu_family", node->cpu_family);
    xc_json_int(&json, "cpu_model", node->cpu_model);
    xc_json_string(&json, "environment", xc_environment_name(node->environment));
    xc_json_string(&json, "boot_id", node->boot_id[0] ? node->boot_id : NULL);
    xc_json_int(&json, "made_at", node->made_at);
    xc_json_int(&json, "dynamic_at", node->dynamic_at);
    xc_json_int(&json, "cores", (int64_t)node->ncores);
    xc_json_int(&json, "packages", (int64_t)node->npackages);
    sets_json(&json, node);
    numas_json(&json, node);
    gpus_json(&json, node);
    nics_json(&json, node);
    pci_json(&json, node);
    cpus_json(&json, node);
    xc_json_end(&json, '}');
    xc_text_add(&text, "\n");
    return cli_print(&text);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Where the snapshot goes; NULL: an archive has no such place. On the heap. */
static char *default_output(const struct request *request)
{
    struct stat st;
    if (cli_is_live(request->machine))
        return strdup(XC_SNAPSHOT_FILE);
    if (stat(request->machine, &st) < 0 || !S_ISDIR(st.st_mode))
        return NULL;
    xc_autofree char *full = realpath(request->machine, NULL);
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", full ? full : request->machine, XC_SNAPSHOT_FILE);
    return xc_text_take(&text);
}

/* The old snapshot with its changing part read again; 0 done, 1 it takes a full read. */
static int refresh(const struct request *request, const char *old_file, const char *name,
                   struct xc_node **out, struct xc_error *error)
{
    xc_autoroot struct xc_root *root = NULL;
    if (xc_machine_open(cli_is_live(request->machine) ? "/" : request->machine, XC_MACHINE_LIMIT,
                        &root, error) < 0)
        return -1;
    xc_autofree char *boot = xc_root_read_line(root, "/proc/sys/kernel/random/boot_id");
    struct xc_node *old;
    if (xc_snapshot_map(old_file, boot ? boot : "", &old, NULL) < 0)
        return 1;
    struct xc_slurm_node slurm = {0};
    bool known = cli_slurm_node(root, request->machine, name, &slurm);
    struct xc_node_options options = {.slurm = known ? &slurm : NULL};
    int rc = xc_node_refresh(root, &options, old, out, error);
    xc_slurm_node_clear(&slurm);
    xc_node_free(old);
    return rc < 0 ? 1 : rc; /* a full read says what is wrong */
}

static int write_snapshot(const struct xc_node *node, const char *file, struct xc_error *error)
{
    xc_autofree char *directory = strdup(file);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (!directory)
        return xc_error_nomem(error);
    if (slash && slash != directory) {
        *slash = '\0';
        if (xc_make_dirs(directory, 0755, error) < 0)
            return -1;
    }
    return xc_snapshot_write(node, file, error);
}

/* ---- saying -------------------------------------------------------------------------------------------- */

static int compare(const struct request *request, const struct xc_node *node)
{
    xc_autotext struct xc_text report = XC_TEXT_INIT;
    struct xc_error error = {0};
    struct stat st;
    if (!cli_is_live(request->machine) && (stat(request->machine, &st) < 0 || !S_ISDIR(st.st_mode)))
        return cli_usage("snapshot", "hwloc reads the live machine or a directory, no archive");
    if (xc_node_compare_hwloc(node, cli_is_live(request->machine) ? NULL : request->machine,
                              &report, &error) < 0)
        return cli_fail(&error);
    bool differs = report.length > 0;
    if (!differs)
        xc_text_add(&report, "hwloc agrees: packages, cores, L3s, memory nodes, GPUs and NICs\n");
    int rc = cli_print(&report);
    return rc ? rc : differs;
}

static int say(const struct xc_node *node, const char *name, const char *file, bool refreshed,
               double took)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    size_t active = 0;
    for (size_t i = 0; i < node->nnics; i++)
        active += node->nics[i].state == XC_PORT_ACTIVE;
    xc_text_addf(&text,
                 "%s: %zu CPUs, %zu cores, %zu packages, %zu memory nodes, %zu GPUs, %zu network "
                 "ports (%zu active), %s; %s in %.1f ms, written to %s\n",
                 name, node->ncpus, node->ncores, node->npackages, node->nnumas, node->ngpus,
                 node->nnics, active, xc_environment_name(node->environment),
                 refreshed ? "refreshed" : "read", took, file);
    return cli_print(&text);
}

static int run(const struct request *request)
{
    struct xc_error error = {0};
    char buffer[256];
    const char *name = cli_node_name(request->machine, request->node, buffer, sizeof buffer);
    xc_autofree char *file = request->output ? strdup(request->output) : default_output(request);
    bool writes = request->output || !(request->json || request->hwloc);
    if (writes && !file && access(request->machine, F_OK) < 0) {
        xc_error_errno(&error, request->machine, "cannot open the machine");
        return cli_fail(&error);
    }
    if (writes && !file)
        return cli_usage("snapshot", "an archive has no place for a snapshot: say -o FILE");
    double start = milliseconds();
    struct xc_node *node = NULL;
    int rc = request->refresh && file ? refresh(request, file, name, &node, &error) : 1;
    bool refreshed = rc == 0;
    if (rc == 1)
        rc = cli_open_machine(request->machine, request->node, NULL, &node, &error);
    double took = milliseconds() - start;
    if (rc == 0 && writes)
        rc = write_snapshot(node, file, &error);
    if (rc < 0)
        rc = cli_fail(&error);
    if (rc == 0 && request->json)
        rc = print_json(node, name);
    if (rc == 0 && request->hwloc)
        rc = compare(request, node);
    if (rc == 0 && writes && !request->json)
        rc = say(node, name, file, refreshed, took);
    xc_node_free(node);
    return rc;
}

static const char help[] =
    "usage: xcloud snapshot [-o FILE] [--machine M] [--node NAME] [--refresh] [--json]\n"
    "                       [--compare-hwloc]\n\n"
    "Writes what this machine is to " XC_SNAPSHOT_FILE ", where steps read it.\n\n"
    "  -o, --output FILE   write there instead\n"
    "  --machine M         a captured machine: a directory (the snapshot goes below it) or an\n"
    "                      archive (with -o)\n"
    "  --node NAME         its name in slurm.conf\n"
    "  --refresh           read ports, MIG, online CPUs and Slurm's reservation again, the "
    "rest\n"
    "                      only when the snapshot is of another boot\n"
    "  --json              print it all; written only with -o\n"
    "  --compare-hwloc     print what hwloc sees otherwise (status 1); written only with -o\n";

int cli_snapshot(int argc, char **argv)
{
    struct request request = {0};
    const struct cli_option options[] = {{"output", 'o', .text = &request.output},
                                         {"machine", .text = &request.machine},
                                         {"node", .text = &request.node},
                                         {"refresh", .flag = &request.refresh},
                                         {"json", .flag = &request.json},
                                         {"compare-hwloc", .flag = &request.hwloc},
                                         {0}};
    int rc = cli_options("snapshot", argc, argv, options, help);
    if (rc != CLI_GO)
        return rc;
    if (optind < argc)
        return cli_usage("snapshot", "\"%s\" is too much", argv[optind]);
    return run(&request);
}
