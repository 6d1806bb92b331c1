/* How does a machine travel? Packs what the readers and the checks look at, and no more, as a tar.xz
 * that `--machine` opens. A file that cannot be read (no permission, a device that is asleep) is left
 * out, as on a machine that does not have it. */
#include <archive.h>
#include <archive_entry.h>
#include <string.h>

#include "capture.h"

#define TOP "xcloud-machine"

struct capture {
    struct xc_root *root;
    struct archive *archive;
    char host[256];
    size_t total;
    struct xc_error *error;
};

/* ---- what is packed ----------------------------------------------------------------------------------- */

/* Files by pattern; * is within a name. No directory of a pattern is a link. */
static const char *const patterns[] = {
    "/sys/devices/system/cpu/present",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/offline",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/kernel_max",
    "/sys/devices/system/cpu/modalias",
    "/sys/devices/system/cpu/smt/*",
    "/sys/devices/system/cpu/cpuidle/*",
    "/sys/devices/system/cpu/intel_pstate/*",
    "/sys/devices/system/cpu/amd_pstate/*",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpu*/online",
    "/sys/devices/system/cpu/cpu*/topology/*",
    "/sys/devices/system/cpu/cpu*/cache/index*/level",
    "/sys/devices/system/cpu/cpu*/cache/index*/type",
    "/sys/devices/system/cpu/cpu*/cache/index*/size",
    "/sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_*",
    "/sys/devices/system/cpu/cpu*/cache/index*/coherency_line_size",
    "/sys/devices/system/cpu/cpu*/cache/index*/number_of_sets",
    "/sys/devices/system/cpu/cpu*/cache/index*/ways_of_associativity",
    "/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_*_freq",
    "/sys/devices/system/cpu/cpu*/cpufreq/base_frequency",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_m*_freq",
    "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
    "/sys/devices/system/cpu/cpu*/acpi_cppc/*_perf",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/name",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/desc",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/latency",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/residency",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/default_status",
    "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
    "/sys/devices/system/cpu/cpu*/microcode/version",
    "/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count",
    "/sys/devices/system/edac/mc/mc*/*_count",
    "/sys/devices/system/edac/mc/mc*/dimm*/dimm_label",
    "/sys/devices/system/edac/mc/mc*/dimm*/dimm_*_count",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/possible",
    "/sys/devices/system/node/has_*",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/cpumap",
    "/sys/devices/system/node/node*/distance",
    "/sys/devices/system/node/node*/meminfo",
    "/sys/devices/system/node/node*/hugepages/*/nr_hugepages",
    "/sys/devices/system/node/node*/hugepages/*/free_hugepages",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/devices/virtual/workqueue/*/cpumask",
    "/sys/hypervisor/type",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/cpuset.*",
    "/sys/fs/cgroup/*/cpuset.cpus*",
    "/sys/fs/cgroup/*/cpuset.mems*",
    "/sys/fs/cgroup/system.slice/slurmstepd.scope/cpuset.cpus*",
    "/sys/fs/cgroup/cpuset/*/cpuset.cpus",
    "/sys/fs/cgroup/cpuset/*/cpuset.mems",
    "/sys/kernel/iommu_groups/*/type",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/irq/*/actions",
    "/sys/module/arm_smmu_v3/parameters/*",
    "/sys/module/nvidia*/version",
    "/sys/module/nvidia*/parameters/*",
    "/sys/module/mlx5_*/version",
    "/sys/module/mlx5_*/parameters/*",
    "/sys/module/ib_*/parameters/*",
    "/sys/module/intel_idle/parameters/*",
    "/sys/module/processor/parameters/*",
    "/proc/meminfo",
    "/proc/interrupts",
    "/proc/irq/default_smp_affinity",
    "/proc/irq/*/smp_affinity_list",
    "/proc/irq/*/effective_affinity_list",
    "/proc/irq/*/node",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/kptr_restrict",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/1/status",
    "/proc/pressure/cpu",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/swappiness",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus/*/numa_status",
    "/proc/driver/nvidia/capabilities/*/mig/*/access",
    "/proc/driver/nvidia/capabilities/mig/*",
    "/etc/xcloud/gpu-kinds",
    "/etc/nccl/*.xml",
    "/run/nvidia-topologyd/virtualTopology.xml",
    "/var/run/nvidia-topologyd/virtualTopology.xml",
};

/* Of files that name a site's hosts, people or secrets, or are long: the lines that are about the machine, by their
 * first word. What Slurm says about nodes stays at home. */
static const struct {
    const char *pattern;
    const char *keys[8];
} filtered[] = {
    {"/etc/slurm/slurm.conf",
     {"TaskPlugin", "PluginDir", "PrologFlags", "KillOnBadExit", "SchedulerParameters",
      "TopologyPlugin", "PlugStackConfig", NULL}},
    {"/etc/slurm/cgroup.conf", {"Constrain*", "CgroupPlugin", NULL}},
    {"/etc/slurm/plugstack.conf", {"include", "required", "optional", NULL}},
    {"/etc/slurm/plugstack.conf.d/*", {"include", "required", "optional", NULL}},
    {"/etc/enroot/enroot.conf", {"ENROOT_ROOTFS_WRITABLE", "ENROOT_REMAP_ROOT", NULL}},
    {"/etc/enroot/enroot.conf.d/*.conf", {"ENROOT_ROOTFS_WRITABLE", "ENROOT_REMAP_ROOT", NULL}},
    {"/etc/enroot/environ.d/*.env", {"NCCL_*", "MELLANOX_VISIBLE_DEVICES", NULL}},
    {"/etc/nccl.conf", {"NCCL_*", NULL}},
    {"/proc/stat", {"cpu", NULL}},
};

static const char *const dmi_files[] = {"product_name",
                                        "product_version",
                                        "product_family",
                                        "sys_vendor",
                                        "board_name",
                                        "board_vendor",
                                        "bios_vendor",
                                        "bios_version",
                                        "bios_date",
                                        "chassis_type",
                                        NULL};
static const char *const pci_files[] = {"class",
                                        "vendor",
                                        "device",
                                        "subsystem_vendor",
                                        "subsystem_device",
                                        "revision",
                                        "numa_node",
                                        "local_cpulist",
                                        "local_cpus",
                                        "enable",
                                        "modalias",
                                        "max_link_speed",
                                        "max_link_width",
                                        "current_link_speed",
                                        "current_link_width",
                                        "d3cold_allowed",
                                        "power/control",
                                        "sriov_numvfs",
                                        "iommu_group/type",
                                        NULL};
static const char *const rdma_files[] = {"fw_ver",    "hca_type", "board_id",
                                         "node_type", "parent",   NULL};
static const char *const port_files[] = {"state", "phys_state", "rate", "link_layer", NULL};
static const char *const net_files[] = {"type", "dev_port", "operstate", "speed",
                                        "mtu",  "carrier",  "duplex",    NULL};
/* Nothing but that they exist: what is_pod of read.c and the checks look for. * in the last name. */
static const char *const marks[] = {"/run/secrets/kubernetes.io",
                                    "/var/run/secrets/kubernetes.io",
                                    "/.dockerenv",
                                    "/run/.containerenv",
                                    "/dev/nvidia*",
                                    "/dev/nvidia-caps-imex-channels/channel*",
                                    "/sys/bus/acpi/devices/NVDA200C*",
                                    "/sys/class/iommu/smmu3*",
                                    "/sys/module/gdrdrv",
                                    "/sys/module/nv_peer_mem",
                                    "/etc/slurm/topology.conf",
                                    "/etc/slurm/topology.yaml",
                                    "/etc/enroot/hooks.d/50-xcloud.sh",
                                    "/usr/bin/enroot",
                                    "/run/nvidia-fabricmanager/nv-fabricmanager.pid",
                                    "/usr/bin/scontrol",
                                    "/usr/local/bin/scontrol",
                                    "/opt/slurm/bin/scontrol",
                                    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*",
                                    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.*",
                                    "/usr/lib64/libnvidia-ml.so.*",
                                    "/usr/lib/slurm/*.so",
                                    "/usr/lib64/slurm/*.so",
                                    "/usr/lib/x86_64-linux-gnu/slurm-wlm/*.so",
                                    "/usr/lib/aarch64-linux-gnu/slurm-wlm/*.so",
                                    "/usr/local/lib/slurm/*.so",
                                    "/opt/slurm/lib/slurm/*.so",
                                    "/var/lib/xcloud/counters",
                                    "/run/xcloud/node.snapshot",
                                    NULL};

/* ---- into the archive ----------------------------------------------------------------------------------- */

static int write_failed(const struct capture *capture)
{
    const char *why = archive_error_string(capture->archive);
    return xc_error_set(capture->error, XC_ESYS, NULL, "cannot write the archive: %s",
                        why ? why : "unknown");
}

static void free_entry(struct archive_entry **entry)
{
    archive_entry_free(*entry);
}

/* One entry; type AE_IFREG with bytes, AE_IFLNK with a target in bytes, or AE_IFDIR. No owner and no
 * time: the same machine gives the same archive. path is cleaned here, a target was by the caller. */
static int write_entry(struct capture *capture, const char *path, mode_t type, const char *bytes,
                       size_t length)
{
    struct xc_text name = XC_TEXT_INIT;
    xc_autofree char *clean = capture_path(path, capture->host);
    xc_text_addf(&name, "%s%s", TOP, clean ? clean : "");
    xc_autofree char *full = xc_text_take(&name);
    xc_cleanup(free_entry) struct archive_entry *entry = archive_entry_new();
    if (!entry || !full || !clean)
        return xc_error_nomem(capture->error);
    capture->total += length;
    if (capture->total > XC_MACHINE_LIMIT)
        return xc_error_set(capture->error, XC_EINPUT, path, "the machine has more than %u bytes",
                            XC_MACHINE_LIMIT);
    archive_entry_set_pathname(entry, full);
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, type == AE_IFDIR ? 0755 : 0644);
    archive_entry_set_mtime(entry, 0, 0);
    if (type == AE_IFLNK)
        archive_entry_set_symlink(entry, bytes);
    else
        archive_entry_set_size(entry, (la_int64_t)length);
    if (archive_write_header(capture->archive, entry) != ARCHIVE_OK)
        return write_failed(capture);
    if (type == AE_IFREG && length > 0 &&
        archive_write_data(capture->archive, bytes, length) != (la_ssize_t)length)
        return write_failed(capture);
    return 0;
}

static int write_text(struct capture *capture, const char *path, struct xc_text *text)
{
    size_t length = text->length;
    xc_autofree char *bytes = xc_text_take(text);
    return bytes ? write_entry(capture, path, AE_IFREG, bytes, length)
                 : xc_error_nomem(capture->error);
}

/* A text file, if it is there. Bytes behind a NUL are not text and stay here. */
static int pack(struct capture *capture, const char *path)
{
    xc_autofree char *clean = capture_path(path, capture->host);
    if (!clean)
        return xc_error_nomem(capture->error);
    if (capture_path_tells(clean))
        return 0;
    xc_autofree char *content = xc_root_read(capture->root, NULL, NULL, "%s", path);
    struct xc_text text = XC_TEXT_INIT;
    if (!content)
        return 0;
    capture_sanitize(content, capture->host, &text);
    return write_text(capture, path, &text);
}

static int pack_below(struct capture *capture, const char *directory, const char *const *files)
{
    for (; *files; files++) {
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/%s", directory, *files);
        xc_autofree char *path = xc_text_take(&text);
        if (!path)
            return xc_error_nomem(capture->error);
        if (pack(capture, path) < 0)
            return -1;
    }
    return 0;
}

/* Every file that a pattern from its component `rest` on matches below directory. */
static int pack_pattern(struct capture *capture, const char *directory, const char *rest)
{
    size_t length = strcspn(rest, "/");
    bool last = rest[length] == '\0';
    char component[64];
    snprintf(component, sizeof component, "%.*s", (int)length, rest);
    xc_autonames char **names = NULL;
    char *const single[] = {component, NULL};
    if (strchr(component, '*')) {
        names = xc_root_list(capture->root, "%s/", directory);
        if (!names)
            return 0;
    }
    for (char *const *name = names ? names : single; *name; name++) {
        if (!xc_glob(component, *name))
            continue;
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/%s", directory, *name);
        xc_autofree char *path = xc_text_take(&text);
        if (!path)
            return xc_error_nomem(capture->error);
        if ((last ? pack(capture, path) : pack_pattern(capture, path, rest + length + 1)) < 0)
            return -1;
    }
    return 0;
}

/* A link at `path` to where it leads, and a directory there. *target: the canonical path, NULL when
 * there is nothing, or nothing that may be told. Where path is no link nothing is written. */
static int pack_link(struct capture *capture, const char *path, char **target)
{
    *target = xc_root_canonical(capture->root, "%s", path);
    if (!*target)
        return 0;
    xc_autofree char *clean = capture_path(*target, capture->host);
    if (!clean)
        return xc_error_nomem(capture->error);
    if (capture_path_tells(clean) || capture_path_tells(path)) {
        free(*target);
        *target = NULL;
        return 0;
    }
    struct xc_text text = XC_TEXT_INIT;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
        xc_text_add(&text, "../");
    xc_text_add(&text, clean + 1);
    xc_autofree char *relative = xc_text_take(&text);
    if (!relative)
        return xc_error_nomem(capture->error);
    if (write_entry(capture, *target, AE_IFDIR, NULL, 0) < 0)
        return -1;
    return xc_streq(path, *target)
               ? 0
               : write_entry(capture, path, AE_IFLNK, relative, strlen(relative));
}

/* ---- the parts ------------------------------------------------------------------------------------------- */

/* The header of configuration space; capabilities behind it may hold a serial number. */
static int pack_config(struct capture *capture, const char *device)
{
    size_t length;
    xc_autofree char *config = xc_root_read(capture->root, &length, NULL, "%s/config", device);
    struct xc_text text = XC_TEXT_INIT;
    if (!config || length < 64)
        return 0;
    xc_text_addf(&text, "%s/config", device);
    xc_autofree char *path = xc_text_take(&text);
    return path ? write_entry(capture, path, AE_IFREG, config, 64) : xc_error_nomem(capture->error);
}

static int pack_pci_device(struct capture *capture, const char *device)
{
    return pack_below(capture, device, pci_files) < 0 ? -1 : pack_config(capture, device);
}

static int pack_ports(struct capture *capture, const char *device)
{
    xc_autonames char **ports = xc_root_list(capture->root, "%s/ports", device);
    for (char **port = ports; port && *port; port++) {
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/ports/%s", device, *port);
        xc_autofree char *path = xc_text_take(&text);
        if (!path)
            return xc_error_nomem(capture->error);
        if (pack_below(capture, path, port_files) < 0)
            return -1;
    }
    return 0;
}

static int pack_device_link(struct capture *capture, const char *device)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s/device", device);
    xc_autofree char *path = xc_text_take(&text);
    xc_autofree char *target = NULL;
    return path ? pack_link(capture, path, &target) : xc_error_nomem(capture->error);
}

static int pack_rdma_device(struct capture *capture, const char *device)
{
    if (pack_below(capture, device, rdma_files) < 0 || pack_ports(capture, device) < 0)
        return -1;
    return pack_device_link(capture, device);
}

static int pack_netdev(struct capture *capture, const char *device)
{
    return pack_below(capture, device, net_files) < 0 ? -1 : pack_device_link(capture, device);
}

/* Each entry of a directory of links: the link, and what pack_one takes from where it leads. */
static int pack_links(struct capture *capture, const char *directory,
                      int (*pack_one)(struct capture *, const char *))
{
    xc_autonames char **names = xc_root_list(capture->root, "%s", directory);
    for (char **name = names; name && *name; name++) {
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/%s", directory, *name);
        xc_autofree char *path = xc_text_take(&text);
        xc_autofree char *target = NULL;
        if (!path)
            return xc_error_nomem(capture->error);
        if (pack_link(capture, path, &target) < 0 || (target && pack_one(capture, target) < 0))
            return -1;
    }
    return 0;
}

static int pack_gpus(struct capture *capture)
{
    xc_autonames char **names = xc_root_list(capture->root, "/proc/driver/nvidia/gpus");
    for (char **name = names; name && *name; name++) {
        struct xc_text path = XC_TEXT_INIT, text = XC_TEXT_INIT;
        xc_text_addf(&path, "/proc/driver/nvidia/gpus/%s/information", *name);
        xc_autofree char *file = xc_text_take(&path);
        xc_autofree char *content =
            file ? xc_root_read(capture->root, NULL, NULL, "%s", file) : NULL;
        if (!content)
            continue;
        capture_gpu_information(content, (unsigned)(name - names), capture->host, &text);
        if (write_text(capture, file, &text) < 0)
            return -1;
    }
    return 0;
}

/* A file that one of the special functions above cleans. */
static int pack_cleaned(struct capture *capture, const char *path,
                        void (*clean)(char *, const char *, struct xc_text *))
{
    xc_autofree char *content = xc_root_read(capture->root, NULL, NULL, "%s", path);
    struct xc_text text = XC_TEXT_INIT;
    if (!content)
        return 0;
    clean(content, capture->host, &text);
    return write_text(capture, path, &text);
}

static int mark(struct capture *capture, const char *path)
{
    return xc_root_exists(capture->root, "%s", path) ? write_entry(capture, path, AE_IFREG, "", 0)
                                                     : 0;
}

static int pack_mark(struct capture *capture, const char *pattern)
{
    const char *last = strrchr(pattern, '/');
    if (!strchr(last, '*'))
        return mark(capture, pattern);
    int length = (int)(last - pattern);
    xc_autonames char **names = xc_root_list(capture->root, "%.*s", length, pattern);
    for (char **name = names; name && *name; name++) {
        struct xc_text text = XC_TEXT_INIT;
        if (!xc_glob(last + 1, *name) || xc_streq(*name, "nvidia-caps-imex-channels"))
            continue;
        xc_text_addf(&text, "%.*s/%s", length, pattern, *name);
        xc_autofree char *path = xc_text_take(&text);
        if (!path)
            return xc_error_nomem(capture->error);
        if (mark(capture, path) < 0)
            return -1;
    }
    return 0;
}

static int pack_marks(struct capture *capture)
{
    for (const char *const *pattern = marks; *pattern; pattern++)
        if (pack_mark(capture, *pattern) < 0)
            return -1;
    return 0;
}

/* ---- files of which some lines travel --------------------------------------------------------------------- */

static bool travels(const char *line, const char *const *keys)
{
    char word[64];
    line += strspn(line, " \t");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(line, "= \t"), line);
    for (; *keys; keys++)
        if (xc_glob(*keys, word))
            return true;
    return false;
}

static int pack_filtered_file(struct capture *capture, const char *path, const char *const *keys)
{
    xc_autofree char *content = xc_root_read(capture->root, NULL, NULL, "%s", path);
    struct xc_text kept = XC_TEXT_INIT, text = XC_TEXT_INIT;
    char *rest = content, *line;
    if (!content)
        return 0;
    while ((line = strsep(&rest, "\n")))
        if (travels(line, keys))
            xc_text_addf(&kept, "%s\n", line);
    xc_autofree char *lines = xc_text_take(&kept);
    if (!lines)
        return xc_error_nomem(capture->error);
    capture_sanitize(lines, capture->host, &text);
    return write_text(capture, path, &text);
}

static int pack_filtered(struct capture *capture, const char *pattern, const char *const *keys)
{
    const char *last = strrchr(pattern, '/');
    if (!strchr(last, '*'))
        return pack_filtered_file(capture, pattern, keys);
    xc_autonames char **names = xc_root_list(capture->root, "%.*s", (int)(last - pattern), pattern);
    for (char **name = names; name && *name; name++) {
        struct xc_text text = XC_TEXT_INIT;
        if (!xc_glob(last + 1, *name))
            continue;
        xc_text_addf(&text, "%.*s/%s", (int)(last - pattern), pattern, *name);
        xc_autofree char *path = xc_text_take(&text);
        if (!path)
            return xc_error_nomem(capture->error);
        if (pack_filtered_file(capture, path, keys) < 0)
            return -1;
    }
    return 0;
}

static int pack_power_zone(struct capture *capture, const char *zone)
{
    static const char *const files[] = {"name", "constraint_0_power_limit_uw",
                                        "constraint_0_max_power_uw", NULL};
    return pack_below(capture, zone, files);
}

static int pack_all(struct capture *capture)
{
    for (size_t i = 0; i < XC_COUNT(patterns); i++)
        if (pack_pattern(capture, "", patterns[i] + 1) < 0)
            return -1;
    if (pack_below(capture, "/sys/class/dmi/id", dmi_files) < 0 ||
        pack_links(capture, "/sys/bus/pci/devices", pack_pci_device) < 0 ||
        pack_links(capture, "/sys/class/infiniband", pack_rdma_device) < 0 ||
        pack_links(capture, "/sys/class/net", pack_netdev) < 0 || pack_gpus(capture) < 0 ||
        pack_cleaned(capture, "/proc/cmdline", capture_cmdline) < 0 ||
        pack_cleaned(capture, "/proc/cpuinfo", capture_without_serial) < 0)
        return -1;
    for (size_t i = 0; i < XC_COUNT(filtered); i++)
        if (pack_filtered(capture, filtered[i].pattern, filtered[i].keys) < 0)
            return -1;
    return pack_links(capture, "/sys/class/powercap", pack_power_zone) < 0 ? -1
                                                                           : pack_marks(capture);
}

/* ---- the archive ----------------------------------------------------------------------------------------- */

static void find_host(struct capture *capture)
{
    xc_autofree char *name = xc_root_read_line(capture->root, "/proc/sys/kernel/hostname");
    if (!name)
        name = xc_root_read_line(capture->root, "/etc/hostname");
    snprintf(capture->host, sizeof capture->host, "%s", name ? xc_trim(name) : "");
    capture->host[strcspn(capture->host, ".")] = '\0';
    if (xc_streq(capture->host, "localhost") || xc_streq(capture->host, "(none)"))
        capture->host[0] = '\0';
}

static void free_archive(struct archive **archive)
{
    archive_write_free(*archive);
}

int xc_machine_capture(struct xc_root *root, int fd, struct xc_error *error)
{
    xc_cleanup(free_archive) struct archive *archive = archive_write_new();
    if (!archive)
        return xc_error_nomem(error);
    struct capture capture = {.root = root, .archive = archive, .error = error};
    find_host(&capture);
    if (archive_write_set_format_pax_restricted(archive) != ARCHIVE_OK ||
        archive_write_add_filter_xz(archive) != ARCHIVE_OK ||
        archive_write_set_filter_option(archive, "xz", "compression-level", "3") != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(archive, 1) !=
            ARCHIVE_OK || /* a pipe gets no zeros */
        archive_write_open_fd(archive, fd) != ARCHIVE_OK)
        return write_failed(&capture);
    if (pack_all(&capture) < 0)
        return -1;
    return archive_write_close(archive) == ARCHIVE_OK ? 0 : write_failed(&capture);
}
