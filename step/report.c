/* What do people read? The table of who got what, in columns that users of hello_jobstep and xthi
 * know, made of what was read back from the kernel. */
#include <string.h>
#include <unistd.h>

#include "internal.h"

void report_write(const struct xc_text *text)
{
    const char *at = text->data;
    for (size_t left = text->length; left > 0;) {
        ssize_t wrote = write(STDERR_FILENO, at, left);
        if (wrote <= 0)
            return;
        at += wrote;
        left -= (size_t)wrote;
    }
}

static void add_gpus(struct xc_text *text, const struct xc_node *node, const int32_t *gpus,
                     size_t count)
{
    char bdf[XC_BDF_TEXT];
    for (size_t i = 0; i < count; i++)
        if (gpus[i] >= 0 && (size_t)gpus[i] < node->ngpus) {
            xc_text_addf(text, "%s%d", i ? "," : "", gpus[i]);
            if (count == 1)
                xc_text_addf(text, " %s",
                             xc_bdf_text(&node->pci[node->gpus[gpus[i]].pci].bdf, bdf));
        }
    if (count == 0)
        xc_text_add(text, "-");
}

static void add_nics(struct xc_text *text, const struct xc_node *node,
                     const struct xc_plan_task *task)
{
    for (size_t i = 0; i < task->nnics; i++) {
        const struct xc_nic *nic = &node->nics[task->nics[i].nic];
        xc_text_addf(text, "%s%s %s", i ? ", " : "", nic->rdma[0] ? nic->rdma : nic->netdev,
                     xc_path_name(task->nics[i].path));
    }
    if (task->nnics == 0)
        xc_text_add(text, "-");
}

static void numas_of(const struct xc_node *node, const struct xc_set *cpus, struct xc_set *out)
{
    for (ssize_t cpu = xc_set_next(cpus, 0); cpu >= 0; cpu = xc_set_next(cpus, (size_t)cpu + 1)) {
        int index = xc_node_cpu_index(node, (int)cpu);
        if (index >= 0 && node->cpus[index].numa >= 0)
            xc_set_add(out, (size_t)node->cpus[index].numa);
    }
}

static void bound_row(const struct xc_step *step, const struct xc_plan *plan, unsigned task,
                      struct xc_table *table)
{
    const struct table_slot *slot = table_slot(&step->table, task);
    xc_autoset struct xc_set cpus = XC_SET_EMPTY, mems = XC_SET_EMPTY, numas = XC_SET_EMPTY;
    xc_autotext struct xc_text gpus = XC_TEXT_INIT, nics = XC_TEXT_INIT;
    slot_get(&step->table, task, &cpus, &mems);
    numas_of(step->node, &cpus, &numas);
    xc_autofree char *cpu_list = xc_set_format(&cpus), *mem_list = xc_set_format(&mems),
                     *numa_list = xc_set_format(&numas);
    uint32_t most = step->table.head->max_gpus, ngpus = slot->ngpus;
    add_gpus(&gpus, step->node, slot_gpus(&step->table, task), ngpus < most ? ngpus : most);
    add_nics(&nics, step->node, &plan->tasks[task]);
    xc_table_row(table);
    xc_table_cell(table, 0, "%s", step->node_name);
    xc_table_cell(table, 1, "%u", task);
    xc_table_cell(table, 2, "%s", gpus.data ? gpus.data : "");
    xc_table_cell(table, 3, "%s", numa_list ? numa_list : "");
    xc_table_cell(table, 4, "%u", xc_node_count_cores(step->node, &cpus));
    xc_table_cell(table, 5, "%s", cpu_list ? cpu_list : "");
    xc_table_cell(table, 6, "%s", nics.data ? nics.data : "");
    xc_table_cell(table, 7, "%s%s%s", xc_memory_name((enum xc_memory)slot->mem_mode),
                  mem_list && *mem_list ? " " : "", mem_list ? mem_list : "");
}

void report_bound(const struct xc_step *step, const struct xc_plan *plan, struct xc_text *out)
{
    static const char *const titles[] = {"Node",  "Rank",         "GPU", "NUMA",
                                         "Cores", "CPU Affinity", "NIC", "Memory"};
    xc_autotable struct xc_table table;
    xc_table_begin(&table, XC_COUNT(titles));
    xc_table_row(&table);
    for (size_t i = 0; i < XC_COUNT(titles); i++)
        xc_table_cell(&table, i, "%s", titles[i]);
    for (unsigned task = 0; task < plan->ntasks; task++)
        bound_row(step, plan, task, &table);
    xc_table_write(&table, out);
}
