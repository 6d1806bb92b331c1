/* Which GPUs will the program see, in which order?
 *
 * SLURM_STEP_GPUS and CUDA_VISIBLE_DEVICES alone do not tell: with ConstrainDevices and any per-task
 * binding every task reads the same numbers (Slurm 22.05 to 26.05, gres_common.c). access(2) on the
 * device file is refused for devices that the cgroup denies (v1 and v2), and opens nothing.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* Indices of the GPUs whose device file this task may open; all of them when no file is there (a
 * container without devices says nothing). */
static size_t accessible(const struct xc_step *step, int *out)
{
    const struct xc_node *node = step->node;
    size_t count = 0;
    bool any_file = false;
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s/dev/nvidia%24s", step->machine ? step->machine : "", "");
    xc_autofree char *path = xc_text_take(&text);
    char *number = path ? path + strlen(path) - 24 : NULL;
    for (size_t i = 0; path && i < node->ngpus; i++) {
        snprintf(number, 24, "%d", node->gpus[i].minor == XC_NONE ? (int)i : node->gpus[i].minor);
        if (access(path, R_OK | W_OK) == 0)
            out[count++] = (int)i;
        else /* what cgroup v2 denies is not even said to be there (F_OK, Linux 6.18) */
            any_file |= errno == EPERM || errno == EACCES;
    }
    if (any_file || count > 0)
        return count;
    for (size_t i = 0; i < node->ngpus; i++)
        out[i] = (int)i;
    return node->ngpus;
}

/* The GPU of an entry of CUDA_VISIBLE_DEVICES: an index among those that can be opened, a GPU's UUID
 * or a prefix of it, or MIG-GPU-UUID/…; -1 for anything else (CUDA stops there too). */
static int entry_gpu(const struct xc_node *node, const int *open, size_t nopen, const char *entry)
{
    long index;
    if (xc_to_long(entry, 0, 65535, &index))
        return (size_t)index < nopen ? open[index] : XC_NONE;
    const char *uuid = xc_starts(entry, "MIG-GPU-") ? entry + 4 : entry;
    size_t length = strcspn(uuid, "/");
    if (!xc_starts(uuid, "GPU-") || length <= 4)
        return XC_NONE;
    for (size_t i = 0; i < node->ngpus; i++)
        if (strncmp(node->gpus[i].uuid, uuid, length) == 0)
            return (int)i;
    return XC_NONE;
}

/* Whether a list names MIG instances by UUIDs of their own: what they are a part of only the devices tell.
 * (MIG-GPU-UUID/…, before driver 470, says it.) */
static bool names_instances(const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (xc_starts(at, "MIG-") && !xc_starts(at, "MIG-GPU-"))
            return true;
    }
    return false;
}

static bool is_in(const int *list, size_t count, int gpu)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == gpu)
            return true;
    return false;
}

/* The GPUs of a list: two instances of one count once. */
static size_t listed(const struct xc_node *node, const int *open, size_t nopen, char *list,
                     int *out)
{
    size_t count = 0;
    for (char *entry; (entry = strsep(&list, ","));) {
        int gpu = entry_gpu(node, open, nopen, xc_trim(entry));
        if (gpu == XC_NONE)
            break;
        if (!is_in(out, count, gpu))
            out[count++] = gpu;
    }
    return count;
}

/* Whether the step has every CPU that is online and not kept from it. */
static bool whole_machine(const struct xc_step *step)
{
    xc_autoset struct xc_set others = XC_SET_EMPTY, out = XC_SET_EMPTY;
    xc_node_online(step->node, &others);
    table_get_set(&step->table, TABLE_ALLOWED, &out);
    xc_set_andnot(&others, &out);
    table_get_set(&step->table, TABLE_HOUSEKEEPING, &out);
    xc_set_andnot(&others, &out);
    xc_node_flagged(step->node, XC_CPU_SLURM_SPEC, &out);
    xc_set_andnot(&others, &out);
    return xc_set_empty(&others);
}

size_t task_gpus(const struct xc_step *step, const struct xc_step_host *host, int *out)
{
    size_t nopen = step->node->ngpus;
    int *open = calloc(nopen + 1, sizeof *open);
    char list[4096];
    if (!open)
        return 0;
    nopen = accessible(step, open);
    size_t count = 0;
    bool said = host->get(host->ctx, "CUDA_VISIBLE_DEVICES", list, sizeof list) == 0;
    if (!said && nopen == step->node->ngpus && !whole_machine(step)) {
        /* no GPU was asked of Slurm, and none is denied: a part of a node has no claim on any */
        count = 0;
    } else if (!said || names_instances(list)) {
        /* all that can be opened: with ConstrainDevices the parents of the instances */
        memcpy(out, open, nopen * sizeof *out);
        count = nopen;
    } else {
        count = listed(step->node, open, nopen, list, out);
    }
    free(open);
    return count;
}
