/* What does the plan look like, to a person and to a program? */
#include <string.h>

#include <xcloud/plan.h>

static const char *gpu_bdf(const struct xc_node *node, int gpu, char text[XC_BDF_TEXT])
{
    int pci = node->gpus[gpu].pci;
    if (pci < 0 || (size_t)pci >= node->npci)
        return "?";
    return xc_bdf_text(&node->pci[pci].bdf, text);
}

static const char *nic_bdf(const struct xc_node *node, int nic, char text[XC_BDF_TEXT])
{
    int pci = node->nics[nic].pci;
    if (pci < 0 || (size_t)pci >= node->npci)
        return "?";
    return xc_bdf_text(&node->pci[pci].bdf, text);
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void number_or_null(struct xc_json *json, const char *key, int number)
{
    if (number == XC_NONE)
        xc_json_string(json, key, NULL);
    else
        xc_json_int(json, key, number);
}

static void json_devices(const struct xc_plan_task *task, const struct xc_node *node,
                         struct xc_json *json)
{
    char bdf[XC_BDF_TEXT];
    xc_json_array(json, "gpus");
    for (size_t i = 0; i < task->ngpus; i++) {
        xc_json_object(json, NULL);
        xc_json_int(json, "index", task->gpus[i]);
        xc_json_string(json, "bdf", gpu_bdf(node, task->gpus[i], bdf));
        number_or_null(json, "numa", node->gpus[task->gpus[i]].numa);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
    xc_json_array(json, "nics");
    for (size_t i = 0; i < task->nnics; i++) {
        xc_json_object(json, NULL);
        xc_json_string(json, "name", node->nics[task->nics[i].nic].rdma);
        xc_json_string(json, "bdf", nic_bdf(node, task->nics[i].nic, bdf));
        xc_json_string(json, "path", xc_path_name(task->nics[i].path));
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
}

static void json_task(const struct xc_plan_task *task, size_t rank, const struct xc_node *node,
                      struct xc_json *json)
{
    xc_json_object(json, NULL);
    xc_json_int(json, "local_rank", (int64_t)rank);
    xc_json_set(json, "cpus", &task->cpus);
    xc_json_int(json, "cores", task->cores);
    xc_json_set(json, "mems", &task->mems);
    xc_json_string(json, "mem_mode", xc_memory_name(task->mem_mode));
    json_devices(task, node, json);
    xc_json_object(json, "env");
    for (size_t i = 0; i < task->nenv; i++)
        if (task->env[i].set == XC_ENV_DEFAULT || task->env[i].set == XC_ENV_FORCE)
            xc_json_string(json, task->env[i].name, task->env[i].value);
    xc_json_end(json, '}');
    xc_json_array(json, "why");
    for (size_t i = 0; task->why && task->why[i]; i++)
        xc_json_string(json, NULL, task->why[i]);
    xc_json_end(json, ']');
    xc_json_set(json, "priority", &task->priority);
    xc_json_end(json, '}');
}

static const char *kind_name(enum xc_note_kind kind)
{
    return kind == XC_NOTE_WARN ? "warning" : kind == XC_NOTE_HINT ? "hint" : "info";
}

void xc_plan_json(const struct xc_plan *plan, const struct xc_node *node, const char *machine,
                  struct xc_json *json)
{
    xc_json_object(json, NULL);
    xc_json_string(json, "machine", machine);
    xc_json_set(json, "housekeeping", &plan->housekeeping);
    xc_json_array(json, "tasks");
    for (size_t i = 0; i < plan->ntasks; i++)
        json_task(&plan->tasks[i], i, node, json);
    xc_json_end(json, ']');
    xc_json_set(json, "unused_cpus", &plan->unused);
    xc_json_set(json, "training", &plan->training);
    xc_json_bool(json, "narrowed", plan->narrowed);
    xc_json_string(json, "shares", plan->shares);
    xc_json_array(json, "notes");
    for (size_t i = 0; i < plan->nnotes; i++) {
        xc_json_object(json, NULL);
        xc_json_string(json, "kind", kind_name(plan->notes[i].kind));
        number_or_null(json, "local_rank", plan->notes[i].task);
        xc_json_string(json, "text", plan->notes[i].text);
        xc_json_end(json, '}');
    }
    xc_json_end(json, ']');
    xc_json_end(json, '}');
}

/* ---- the table ------------------------------------------------------------------------------------- */

enum column { RANK, GPU, NUMA, CORES, CPUS, PRIORITY, NIC, MEMORY, NCOLUMNS };

/* Columns that no row would fill are left out. */
struct layout {
    size_t at[NCOLUMNS];
    size_t count;
};

static struct layout lay_out(const struct xc_plan *plan)
{
    bool priority = false, nics = false, gpus = false;
    for (size_t i = 0; i < plan->ntasks; i++) {
        priority |= !xc_set_empty(&plan->tasks[i].priority);
        nics |= plan->tasks[i].nnics > 0;
        gpus |= plan->tasks[i].ngpus > 0;
    }
    struct layout layout = {.count = 0};
    for (size_t c = 0; c < NCOLUMNS; c++) {
        bool shown = c == PRIORITY ? priority : c == NIC ? nics : c == GPU ? gpus : true;
        layout.at[c] = shown ? layout.count++ : SIZE_MAX;
    }
    return layout;
}

/* One GPU with its address, several by number alone. */
static void gpu_cell(const struct xc_plan_task *task, const struct xc_node *node,
                     struct xc_table *table, size_t column)
{
    struct xc_text gpus = XC_TEXT_INIT;
    char bdf[XC_BDF_TEXT];
    for (size_t i = 0; i < task->ngpus; i++) {
        if (task->ngpus == 1)
            xc_text_addf(&gpus, "%d %s", task->gpus[i], gpu_bdf(node, task->gpus[i], bdf));
        else
            xc_text_addf(&gpus, "%s%d", i ? "," : "", task->gpus[i]);
    }
    xc_autofree char *list = xc_text_take(&gpus);
    table->failed |= !list;
    xc_table_cell(table, column, "%s", task->ngpus ? list : "-");
}

/* The nodes of its cores; which node its GPUs are on is in the reasons. */
static void numa_cell(const struct xc_plan_task *task, const struct xc_node *node,
                      struct xc_table *table, size_t column)
{
    xc_autoset struct xc_set nodes = XC_SET_EMPTY;
    bool unknown = false;
    for (size_t i = 0; i < node->ncpus; i++) {
        const struct xc_cpu *cpu = &node->cpus[i];
        if (!xc_set_has(&task->cpus, (size_t)cpu->os))
            continue;
        if (cpu->numa == XC_NONE)
            unknown = true;
        else
            xc_set_add(&nodes, (size_t)cpu->numa);
    }
    xc_autofree char *list = xc_set_format(&nodes);
    table->failed |= !list || nodes.failed;
    xc_table_cell(table, column, "%s%s", list ? list : "", unknown ? "?" : "");
}

static void nic_cell(const struct xc_plan_task *task, const struct xc_node *node,
                     struct xc_table *table, size_t column)
{
    struct xc_text text = XC_TEXT_INIT;
    enum xc_path farthest = XC_PATH_PIX;
    for (size_t i = 0; i < task->nnics; i++) {
        const struct xc_nic *nic = &node->nics[task->nics[i].nic];
        if (task->nnics <= 4)
            xc_text_addf(&text, "%s%s", i ? "," : "", nic->rdma);
        else if (i == 0)
            xc_text_addf(&text, "%zu NICs", task->nnics);
        if (task->nics[i].path > farthest)
            farthest = task->nics[i].path;
    }
    xc_autofree char *names = xc_text_take(&text);
    table->failed |= !names;
    if (names)
        xc_table_cell(table, column, "%s%s%s", task->nnics ? names : "-", task->nnics ? " " : "",
                      task->nnics ? xc_path_name(farthest) : "");
}

static void set_cell(struct xc_table *table, size_t column, const struct xc_set *set)
{
    xc_autofree char *list = xc_set_format(set);
    table->failed |= !list;
    if (list)
        xc_table_cell(table, column, "%s", *list ? list : "-");
}

static void task_row(const struct xc_plan_task *task, size_t rank, const struct xc_node *node,
                     struct xc_table *table, const struct layout *layout)
{
    xc_table_row(table);
    xc_table_cell(table, layout->at[RANK], "%zu", rank);
    if (layout->at[GPU] != SIZE_MAX)
        gpu_cell(task, node, table, layout->at[GPU]);
    numa_cell(task, node, table, layout->at[NUMA]);
    xc_table_cell(table, layout->at[CORES], "%u", task->cores);
    set_cell(table, layout->at[CPUS], &task->cpus);
    if (layout->at[PRIORITY] != SIZE_MAX)
        set_cell(table, layout->at[PRIORITY], &task->priority);
    if (layout->at[NIC] != SIZE_MAX)
        nic_cell(task, node, table, layout->at[NIC]);
    xc_autofree char *mems = xc_set_format(&task->mems);
    table->failed |= !mems;
    xc_table_cell(table, layout->at[MEMORY], "%s%s%s", xc_memory_name(task->mem_mode),
                  mems && *mems ? " " : "", mems ? mems : "");
}

static void write_rows(const struct xc_plan *plan, const struct xc_node *node, struct xc_text *out)
{
    static const char *const heads[NCOLUMNS] = {"Rank",         "GPU",      "NUMA", "Cores",
                                                "CPU Affinity", "Priority", "NIC",  "Memory"};
    struct layout layout = lay_out(plan);
    xc_autotable struct xc_table table;
    xc_table_begin(&table, layout.count);
    table.right = UINT64_C(1) << layout.at[RANK] | UINT64_C(1) << layout.at[CORES];
    xc_table_row(&table);
    for (size_t c = 0; c < NCOLUMNS; c++)
        if (layout.at[c] != SIZE_MAX)
            xc_table_cell(&table, layout.at[c], "%s", heads[c]);
    for (size_t i = 0; i < plan->ntasks; i++)
        task_row(&plan->tasks[i], i, node, &table, &layout);
    xc_table_write(&table, out);
}

static void write_sets(const struct xc_plan *plan, struct xc_text *out)
{
    if (xc_set_empty(&plan->housekeeping)) {
        xc_text_add(out, "housekeeping: none\n");
    } else {
        xc_text_add(out, "housekeeping ");
        xc_text_add_set(out, &plan->housekeeping);
        xc_text_add(out, xc_set_intersects(&plan->housekeeping, &plan->training)
                             ? " NOT kept free, see below\n"
                             : " kept free\n");
    }
}

static void write_why(const struct xc_plan *plan, struct xc_text *out)
{
    for (size_t i = 0; i < plan->ntasks; i++) {
        char **why = plan->tasks[i].why;
        xc_text_addf(out, "rank %zu: ", i);
        for (size_t k = 0; why && why[k]; k++)
            xc_text_addf(out, "%s%s", k ? "; " : "", why[k]);
        xc_text_add(out, "\n");
    }
}

static const char *set_word(enum xc_env_set set)
{
    return set == XC_ENV_FORCE ? "force" : set == XC_ENV_WARN ? "warn" : "if unset";
}

/* A rank need not have what another has: CUDA_VISIBLE_DEVICES is not set for MIG instances. */
static const char *value_of(const struct xc_plan_task *task, const char *name)
{
    for (size_t i = 0; i < task->nenv; i++)
        if (xc_streq(task->env[i].name, name))
            return task->env[i].value;
    return NULL;
}

static bool same_everywhere(const struct xc_plan *plan, const struct xc_plan_env *env)
{
    for (size_t i = 1; i < plan->ntasks; i++)
        if (!xc_streq(value_of(&plan->tasks[i], env->name), env->value))
            return false;
    return true;
}

/* The variables of task 0; the values of all ranks where they differ, '-' for one that has none.
 * XCLOUD_PLAN is shown elsewhere. */
static void write_environment(const struct xc_plan *plan, struct xc_text *out)
{
    for (size_t v = 0; v < plan->tasks[0].nenv; v++) {
        const struct xc_plan_env *env = &plan->tasks[0].env[v];
        if (xc_streq(env->name, "XCLOUD_PLAN"))
            continue;
        if (!env->value) {
            xc_text_addf(out, "%s is %s", env->name,
                         env->set == XC_ENV_FORBID ? "taken away" : "warned of");
        } else {
            bool same = same_everywhere(plan, env);
            xc_text_addf(out, "%s=%s", env->name, env->value);
            for (size_t i = 1; !same && i < plan->ntasks; i++) {
                const char *value = value_of(&plan->tasks[i], env->name);
                xc_text_addf(out, " | %s", value ? value : "-");
            }
            xc_text_addf(out, " (%s", set_word(env->set));
        }
        if (env->line)
            xc_text_addf(out, "%spolicy line %u", env->value ? ", " : " (", env->line);
        xc_text_add(out, env->value || env->line ? ")\n" : "\n");
    }
}

/* XCLOUD_PLAN, a share a line. */
static void write_shares(const struct xc_plan_task *task, size_t rank, struct xc_text *out)
{
    const char *plan = value_of(task, "XCLOUD_PLAN");
    const char *share = plan ? strchr(plan, ';') : NULL;
    if (!share)
        return;
    xc_text_addf(out, "for the workers of rank %zu (XCLOUD_PLAN):\n", rank);
    while (share) {
        size_t length = strcspn(share + 1, ";");
        xc_text_add(out, "  ");
        xc_text_add_n(out, share + 1, length);
        xc_text_add(out, "\n");
        share = share[1 + length] ? share + 1 + length : NULL;
    }
}

void xc_plan_table(const struct xc_plan *plan, const struct xc_node *node, struct xc_text *out)
{
    write_sets(plan, out);
    write_rows(plan, node, out);
    if (!xc_set_empty(&plan->unused)) {
        xc_text_add(out, "unused CPUs: ");
        xc_text_add_set(out, &plan->unused);
        xc_text_add(out, "\n");
    }
    for (size_t i = 0; i < plan->nnotes; i++)
        xc_text_addf(out, "%s: %s\n", kind_name(plan->notes[i].kind), plan->notes[i].text);
    xc_text_add(out, "\n");
    write_why(plan, out);
    write_environment(plan, out);
    for (size_t i = 0; i < plan->ntasks; i++)
        write_shares(&plan->tasks[i], i, out);
}
