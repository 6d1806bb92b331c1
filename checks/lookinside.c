/* What can this process see? In a job's container: which CPUs, memory, devices and variables it got,
 * as any user and without tools. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xcloud/nccl.h>

#include "live.h"

extern char **environ;

struct xc_node *xc_check_node_inside(struct xc_root *root)
{
    struct xc_node *node = NULL;
    if (xc_node_read(root, NULL, &node, NULL) == 0)
        return node;
    node = calloc(1, sizeof *node);
    if (node)
        node->environment = XC_POD;
    return node;
}

static void affinity(int out)
{
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_affinity_get(0, &set);
    xc_autofree char *text = xc_set_format(&set);
    if (text && *text)
        chk_probe_line(out, "inside process cpus %s", text);
}

static void memory_nodes(struct xc_root *root, int out)
{
    static const char key[] = "Mems_allowed_list:";
    xc_autofree char *text = xc_root_read(root, NULL, NULL, "/proc/self/status");
    char *line = text ? strstr(text, key) : NULL;
    if (line) {
        line += sizeof key - 1;
        line += strspn(line, " \t");
        chk_probe_line(out, "inside process mems %.*s", (int)strcspn(line, "\n"), line);
    }
}

static void limit(int out, const char *name, int resource)
{
    struct rlimit value;
    if (getrlimit((__rlimit_resource_t)resource, &value) != 0)
        return;
    if (value.rlim_cur == RLIM_INFINITY)
        chk_probe_line(out, "inside limit %s unlimited", name);
    else
        chk_probe_line(out, "inside limit %s %llu", name, (unsigned long long)value.rlim_cur);
}

static void shared_memory(int out)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) == 0)
        chk_probe_line(out, "inside process shm %llu",
                       (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_frsize);
    else
        chk_probe_line(out, "inside process shm 0");
}

/* Opened and closed again: what a cgroup denies or an image lacks shows only so. */
static void device(int out, const char *kind, const char *directory, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        chk_probe_line(out, "inside %s %s opens", kind, name);
    else
        chk_probe_line(out, "inside %s %s %s", kind, name, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void devices(struct xc_root *root, int out, const char *kind, const char *directory,
                    const char *pattern)
{
    xc_autonames char **names = xc_root_list(root, "%s", directory);
    for (char **name = names; name && *name; name++)
        if (xc_glob(pattern, *name) && strlen(*name) < 64)
            device(out, kind, directory, *name);
}

static void variables(int out)
{
    static const char *const wanted[] = {"NCCL_*",       "UCX_*",           "NVSHMEM_*",
                                         "CUDA_*",       "NVIDIA_*",        "MELLANOX_*",
                                         "MASTER_*",     "WORLD_SIZE",      "RANK",
                                         "LOCAL_RANK",   "OMP_*",           "KMP_AFFINITY",
                                         "GOMP_*",       "SLURM_JOB_ID",    "SLURM_STEP_ID",
                                         "SLURM_NTASKS", "SLURM_NNODES",    "SLURM_LOCALID",
                                         "SLURM_PROCID", "SLURM_JOB_GPUS",  "SLURM_CPUS_PER_TASK",
                                         "SLURM_NODEID", "SLURM_STEP_GPUS", "XCLOUD_*"};
    for (char **entry = environ; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        char name[64];
        if (length == 0 || length >= sizeof name || (*entry)[length] != '=')
            continue;
        memcpy(name, *entry, length);
        name[length] = '\0';
        for (size_t i = 0; i < XC_COUNT(wanted); i++)
            if (xc_glob(wanted[i], name))
                chk_probe_line(out, "env %s = %.900s", name, *entry + length + 1);
    }
}

/* As it would be loaded; read to its end where nothing shorter says the release. */
static void library(int out)
{
    struct xc_nccl_library found;
    char text[XC_NCCL_RELEASE_TEXT];
    if (!xc_nccl_library_find(NULL, NULL, true, &found))
        return;
    chk_probe_line(out, "inside nccl path %.900s", found.path);
    if (found.release)
        chk_probe_line(out, "inside nccl release %s", xc_nccl_release_text(found.release, text));
}

int chk_probe_inside(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    (void)deadline_ms;
    affinity(out);
    memory_nodes(input->root, out);
    limit(out, "memlock", RLIMIT_MEMLOCK);
    limit(out, "nofile", RLIMIT_NOFILE);
    shared_memory(out);
    variables(out);
    library(out);
    devices(input->root, out, "hca", "/dev/infiniband", "uverbs*");
    devices(input->root, out, "cm", "/dev/infiniband", "rdma_cm");
    devices(input->root, out, "imex", "/dev/nvidia-caps-imex-channels", "channel*");
    devices(input->root, out, "control", "/dev", "nvidiactl");
    devices(input->root, out, "control", "/dev", "nvidia-uvm");
    devices(input->root, out, "gpu", "/dev", "nvidia?"); /* last: a sick GPU hangs here */
    devices(input->root, out, "gpu", "/dev", "nvidia??");
    chk_probe_line(out, "end");
    return 0;
}
