/* Which of the plan's NICs can the program not open inside its container?
 *
 * NCCL takes the HCAs that it can open. One node with fewer of them than the others is a hang without
 * a word (nccl issue 2428), or a job on TCP. The same for the IMEX channel of a multi-node NVLink domain.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* The kernel's verbs device of an RDMA device, "uverbs3"; false: it does not show one. */
static bool verbs_name(const struct xc_step *step, const char *rdma, char *out, size_t size)
{
    xc_autofree char *path = step_below(step, "/sys/class/infiniband_verbs");
    DIR *dir = path ? opendir(path) : NULL;
    bool found = false;
    if (!dir)
        return false;
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char file[300], name[80];
        snprintf(file, sizeof file, "%.255s/ibdev", entry->d_name);
        xc_autoclose int fd = openat(dirfd(dir), file, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
        if (got <= 0)
            continue;
        name[got] = '\0';
        found = xc_streq(xc_trim(name), rdma);
        if (found)
            snprintf(out, size, "%.63s", entry->d_name);
    }
    closedir(dir);
    return found;
}

static bool opens(const struct xc_step *step, const char *rdma)
{
    char verbs[80], path[120];
    if (!verbs_name(step, rdma, verbs, sizeof verbs))
        return true; /* nothing can be said */
    snprintf(path, sizeof path, "/dev/infiniband/%s", verbs);
    xc_autofree char *name = step_below(step, path);
    return !name || access(name, R_OK | W_OK) == 0;
}

static bool seen_before(const struct xc_plan *plan, unsigned task, size_t index)
{
    int nic = plan->tasks[task].nics[index].nic;
    for (unsigned t = 0; t <= task; t++)
        for (size_t i = 0; i < (t == task ? index : plan->tasks[t].nnics); i++)
            if (plan->tasks[t].nics[i].nic == nic)
                return true;
    return false;
}

static void check_nics(const struct xc_step *step, const struct xc_plan *plan, struct xc_text *out)
{
    xc_autotext struct xc_text closed = XC_TEXT_INIT;
    for (unsigned t = 0; t < plan->ntasks; t++)
        for (size_t i = 0; i < plan->tasks[t].nnics; i++) {
            const struct xc_nic *nic = &step->node->nics[plan->tasks[t].nics[i].nic];
            if (nic->rdma[0] && !seen_before(plan, t, i) && !opens(step, nic->rdma))
                xc_text_addf(&closed, "%s%s", closed.length ? ", " : "", nic->rdma);
        }
    if (closed.length)
        xc_text_addf(
            out,
            "xcloud-bind: %s: the container cannot open %s below /dev/infiniband: NCCL would "
            "use fewer HCAs here than elsewhere, which hangs or is slow; "
            "MELLANOX_VISIBLE_DEVICES=all gives them to enroot's containers\n",
            step->node_name, closed.data);
}

#define IMEX "/dev/nvidia-caps-imex-channels"

bool devices_imex(const struct xc_step *step)
{
    xc_autofree char *path = step_below(step, IMEX);
    return path && access(path, F_OK) == 0;
}

void devices_report(const struct xc_step *step, const struct xc_plan *plan, struct xc_text *out)
{
    if (!step->topo.container || !step->environment || step->observe)
        return;
    check_nics(step, plan, out);
    if (step->topo.imex && !devices_imex(step))
        xc_text_addf(out,
                     "xcloud-bind: %s: the container lacks " IMEX ": NVLink to other nodes is not "
                     "used (enroot: --container-mounts=" IMEX ":" IMEX ")\n",
                     step->node_name);
}
