/* xcloud job: what was bound where, in a running or recent step on this node? */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/step.h>

#include "cli.h"

static const char help[] =
    "usage: xcloud job [--machine DIR] [--json] [ID[.STEP]]\n"
    "  ID[.STEP]      a job or a step of it (STEP: a number, batch, extern, interactive);\n"
    "                 without one: every record on this node, a line each\n"
    "  --machine DIR  the node's root, where plugstack.conf has machine=DIR\n"
    "  --json         for programs\n"
    "What it shows was read back from the kernel when the task was bound; for a running task what "
    "the\n"
    "kernel says now is shown too where it differs.\n";

struct options {
    const char *machine, *wanted;
    bool json;
};

static bool runs(const struct xc_record *record)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", record->stepd_pid);
    return record->ended_at == 0 && record->stepd_pid > 0 && access(path, F_OK) == 0;
}

static const char *state(const struct xc_record *record)
{
    return record->ended_at ? "ended" : runs(record) ? "running" : "lost (slurmstepd is gone)";
}

static const char *when(int64_t seconds, char text[32])
{
    time_t time = (time_t)seconds;
    struct tm parts;
    localtime_r(&time, &parts);
    strftime(text, 32, "%F %T", &parts);
    return text;
}

/* What the kernel says of a running task now; false when it has gone. */
static bool now_allowed(int pid, struct xc_set *out)
{
    char path[64], line[16384];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    xc_autofclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (xc_starts(line, "Cpus_allowed_list:"))
            return xc_set_parse_list(out, line + strlen("Cpus_allowed_list:"), path, NULL) == 0;
    return false;
}

static void add_names(struct xc_text *text, const struct xc_node *node,
                      const struct xc_record_task *task, bool nics)
{
    char bdf[XC_BDF_TEXT];
    size_t count = nics ? task->nnics : task->ngpus;
    const char *comma = "";
    for (size_t i = 0; i < count; i++) {
        int index = nics ? task->nics[i] : task->gpus[i];
        if (nics && node && index >= 0 && (size_t)index < node->nnics)
            xc_text_addf(text, "%s%s", comma, node->nics[index].rdma);
        else if (!nics && node && index >= 0 && (size_t)index < node->ngpus && count == 1)
            xc_text_addf(text, "%d %s", index,
                         xc_bdf_text(&node->pci[node->gpus[index].pci].bdf, bdf));
        else
            xc_text_addf(text, "%s%d", comma, index);
        comma = ",";
    }
    if (count == 0)
        xc_text_add(text, "-");
}

static void add_row(struct xc_table *table, const struct xc_record *record, unsigned rank,
                    const struct xc_node *node, bool running)
{
    const struct xc_record_task *task = &record->tasks[rank];
    xc_autoset struct xc_set now = XC_SET_EMPTY;
    xc_autotext struct xc_text gpus = XC_TEXT_INIT, nics = XC_TEXT_INIT;
    add_names(&gpus, node, task, false);
    add_names(&nics, node, task, true);
    xc_autofree char *cpus = xc_set_format(&task->cpus), *mems = xc_set_format(&task->mems);
    xc_table_row(table);
    xc_table_cell(table, 0, "%u", rank);
    xc_table_cell(table, 1, "%d", task->pid);
    if (!task->done)
        return;
    xc_table_cell(table, 2, "%s", gpus.data);
    xc_table_cell(table, 3, "%s", cpus);
    xc_table_cell(table, 4, "%s%s%s", xc_memory_name(task->mem_mode), *mems ? " " : "", mems);
    xc_table_cell(table, 5, "%s", nics.data);
    if (running && now_allowed(task->pid, &now) && !xc_set_equal(&now, &task->cpus)) {
        xc_autofree char *list = xc_set_format(&now);
        xc_table_cell(table, 6, "now %s", list);
    }
}

static void show(const struct xc_record *record, const char *name, const struct xc_node *node,
                 struct xc_text *out)
{
    static const char *const titles[] = {"Rank", "PID", "GPU", "CPU Affinity", "Memory", "NIC", ""};
    char began[32];
    xc_autofree char *housekeeping = xc_set_format(&record->housekeeping);
    xc_text_addf(out, "step %s on %s: %s, uid %u, since %s, class %s, policy %s\n", name,
                 record->node_name, state(record), record->uid, when(record->started_at, began),
                 record->class_name[0] ? record->class_name : "-",
                 record->policy_hash[0] ? record->policy_hash : "-");
    if (record->words[0])
        xc_text_addf(out, "--xcloud-bind=%s: ", record->words);
    xc_text_addf(out, "%s%s; housekeeping %s%s%s; hooks took %u us\n",
                 record->flags & XC_REC_REFUSED   ? "refused"
                 : record->flags & XC_REC_OBSERVE ? "mode observe, nothing was set"
                 : record->flags & XC_REC_PLACED  ? "bound"
                                                  : "not placed",
                 record->flags & XC_REC_NO_CPUSET ? ", without a cpuset" : "",
                 *housekeeping ? housekeeping : "none",
                 record->flags & XC_REC_NARROWED ? " taken out of the step's cpuset" : "",
                 record->flags & XC_REC_TOPO ? "; NCCL's topology file opens" : "",
                 record->open_us + record->post_fork_us);
    xc_text_add(out, record->message);
    xc_autotable struct xc_table table;
    xc_table_begin(&table, XC_COUNT(titles));
    xc_table_row(&table);
    for (size_t i = 0; i < XC_COUNT(titles); i++)
        xc_table_cell(&table, i, "%s", titles[i]);
    for (unsigned rank = 0; rank < record->ntasks; rank++)
        add_row(&table, record, rank, node, runs(record));
    if (record->ntasks)
        xc_table_write(&table, out);
}

static void json_list(struct xc_json *json, const char *key, const int *list, size_t count)
{
    xc_json_array(json, key);
    for (size_t i = 0; i < count; i++)
        xc_json_int(json, NULL, list[i]);
    xc_json_end(json, ']');
}

static void show_json(const struct xc_record *record, const char *name, struct xc_json *json)
{
    xc_json_object(json, NULL);
    xc_json_string(json, "step", name);
    xc_json_string(json, "node", record->node_name);
    xc_json_string(json, "state", state(record));
    xc_json_int(json, "uid", record->uid);
    xc_json_int(json, "started_at", record->started_at);
    xc_json_int(json, "ended_at", record->ended_at);
    xc_json_string(json, "class", record->class_name);
    xc_json_string(json, "policy", record->policy_hash);
    xc_json_bool(json, "observe", record->flags & XC_REC_OBSERVE);
    xc_json_bool(json, "refused", record->flags & XC_REC_REFUSED);
    xc_json_bool(json, "narrowed", record->flags & XC_REC_NARROWED);
    xc_json_bool(json, "topology_file", record->flags & XC_REC_TOPO);
    xc_json_string(json, "words", record->words);
    xc_json_set(json, "housekeeping", &record->housekeeping);
    xc_json_set(json, "allowed", &record->allowed);
    xc_json_set(json, "training", &record->training);
    xc_json_string(json, "message", record->message);
    xc_json_array(json, "tasks");
    for (unsigned rank = 0; rank < record->ntasks; rank++) {
        const struct xc_record_task *task = &record->tasks[rank];
        xc_json_object(json, NULL);
        xc_json_int(json, "local_rank", rank);
        xc_json_int(json, "pid", task->pid);
        xc_json_bool(json, "done", task->done);
        xc_json_set(json, "cpus", &task->cpus);
        xc_json_set(json, "mems", &task->mems);
        xc_json_string(json, "mem_mode", xc_memory_name(task->mem_mode));
        json_list(json, "gpus", task->gpus, task->ngpus);
        json_list(json, "nics", task->nics, task->nnics);
        xc_json_int(json, "init_us", task->init_us);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
    xc_json_end(json, '}');
}

/* "7" wants all steps of job 7, "7.0" and "7.batch" that one; NULL wants everything. */
static bool wanted(const char *name, const char *want)
{
    if (!want || xc_streq(name, want))
        return true;
    size_t length = strlen(want);
    return !strchr(want, '.') && xc_starts(name, want) && name[length] == '.';
}

/* 2.0 before 10.0, as a person counts. */
static int by_number(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static int list_records(const struct options *options, const char *directory,
                        const struct xc_node *node)
{
    struct xc_error error = {0};
    xc_autoclose int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    xc_autoroot struct xc_root *root = NULL;
    if (xc_root_open_dir("/", &root, &error) < 0)
        return cli_fail(&error);
    xc_autonames char **names = xc_root_list(root, "%s", directory);
    size_t count = 0;
    while (names && names[count])
        count++;
    if (names)
        qsort(names, count, sizeof *names, by_number);
    xc_autotext struct xc_text out = XC_TEXT_INIT;
    struct xc_json json;
    size_t found = 0;
    xc_json_begin(&json, &out, true);
    if (options->json)
        xc_json_array(&json, NULL);
    for (char **name = names; name && *name; name++) {
        struct xc_record record;
        if (!wanted(*name, options->wanted))
            continue;
        if (xc_record_read(dir, *name, &record, &error) < 0) {
            cli_fail(&error);
            continue;
        }
        if (options->json)
            show_json(&record, *name, &json);
        else if (options->wanted)
            show(&record, *name, node, &out);
        else
            xc_text_addf(&out, "%-16s %-8s uid %-8u %u tasks\n", *name, state(&record), record.uid,
                         record.ntasks);
        xc_record_clear(&record);
        found++;
    }
    if (options->json)
        xc_json_end(&json, ']');
    if (cli_print(&out) != 0)
        return 2;
    if (!found && !options->wanted && !options->json)
        printf("no step has left a record in %s\n", directory);
    if (found || !options->wanted)
        return 0;
    fprintf(stderr, "xcloud job: no record of %s in %s; the newest %d steps of a node are kept\n",
            options->wanted, directory, XC_RECORDS_KEPT);
    return 1;
}

int cli_job(int argc, char **argv)
{
    struct options options = {0};
    const struct cli_option table[] = {
        {"machine", .text = &options.machine}, {"json", .flag = &options.json}, {0}};
    int rc = cli_options("job", argc, argv, table, help);
    if (rc != CLI_GO)
        return rc;
    if (optind < argc)
        options.wanted = argv[optind++];
    if (optind < argc)
        return cli_usage("job", "\"%s\" is too much", argv[optind]);
    const char *prefix = options.machine ? options.machine : "";
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", prefix, XC_RECORD_DIR);
    xc_autofree char *directory = xc_text_take(&text);
    xc_text_addf(&text, "%s%s", prefix, XC_SNAPSHOT_FILE);
    xc_autofree char *snapshot = xc_text_take(&text);
    if (!directory || !snapshot)
        return 2;
    struct xc_node *node = NULL;
    xc_snapshot_map(snapshot, NULL, &node, NULL); /* for names; numbers do without */
    rc = list_records(&options, directory, node);
    xc_node_free(node);
    return rc;
}
