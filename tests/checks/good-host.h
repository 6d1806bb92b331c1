/* What a healthy host adds to a generated machine: idle states, frequencies, cgroups, interrupts,
 * driver, Slurm. A table of files, laid over a machine by test-check.c and written into a directory by
 * check-bench.c. cpu* stands for every CPU, "->" for a link. */
#ifndef GOOD_HOST_H
#define GOOD_HOST_H

struct host_file {
    const char *path, *content;
};

#define CPUS "/sys/devices/system/cpu"
#define IDLE CPUS "/cpu*/cpuidle"
#define FREQ CPUS "/cpu*/cpufreq"
#define HK   "0-3,56-59,112-115,168-171"
#define MASK "00000000,00000f00,00000000,000f0000,00000000,0f000000,0000000f"
#define CG   "/sys/fs/cgroup"
#define ROCE "/sys/class/infiniband"

#define STATE(n, name, desc, latency)                                                              \
    {IDLE "/state" n "/name", name}, {IDLE "/state" n "/desc", desc},                              \
        {IDLE "/state" n "/latency", latency}, {IDLE "/state" n "/disable", "0"},                  \
        {IDLE "/state" n "/default_status", "enabled"}, {IDLE "/state" n "/time", "5000000"}
#define PROCESS(pid, name, cpus, memory, cgroup)                                                   \
    {"/proc/" pid "/status",                                                                       \
     "Name:\t" name "\nPid:\t" pid "\n" memory "Cpus_allowed_list:\t" cpus "\n"},                  \
        {"/proc/" pid "/comm", name}, {"/proc/" pid "/cgroup", "0::" cgroup}
#define USER "VmSize:\t  10000 kB\n"
#define RAIL(name, hwmon)                                                                          \
    {ROCE "/" name "/ports/1/counters/link_downed", "1"},                                          \
        {ROCE "/" name "/ports/1/counters/link_error_recovery", "0"},                              \
        {ROCE "/" name "/device/hwmon/" hwmon "/temp1_label", "asic"},                             \
        {ROCE "/" name "/device/hwmon/" hwmon "/temp1_input", "90000"},                            \
        {ROCE "/" name "/device/hwmon/" hwmon "/temp2_label", "Module0"},                          \
        {ROCE "/" name "/device/hwmon/" hwmon "/temp2_input", "51000"}

/* What NVML says of eight GPUs. The first line of a key counts: a case puts its own in front. */
#define NVML_GPU(i, bdf, up)                                                                       \
    "gpu " i " asked 1\ngpu " i " bdf " bdf "\ngpu " i " recovery 0\ngpu " i                       \
    " remap_corrected 0\ngpu " i " remap_uncorrected 1\ngpu " i " remap_pending 0\ngpu " i         \
    " remap_failure 0\ngpu " i " ecc_uncorrected 0\ngpu " i " links 2\nlink " i                     \
    ":0 up 1\nlink " i ":0 replay 5\nlink " i ":0 recovery 0\nlink " i ":1 up " up "\ngpu " i      \
    " fabric_state 3\ngpu " i " fabric_status 0\ngpu " i " fabric_health 0x1aa\ngpu " i            \
    " fabric_cluster 0\ngpu " i " fabric_clique 0\ngpu " i " answered 1\n"
#define NVML_GPUS(last_up)                                                                         \
    "nvml asked 1\nnvml driver 580.159.04\nnvml count 8\n" NVML_GPU("0", "0000:18:00.0", "1")      \
        NVML_GPU("1", "0000:3a:00.0", "1") NVML_GPU("2", "0000:4b:00.0", "1")                      \
            NVML_GPU("3", "0000:5c:00.0", "1") NVML_GPU("4", "0000:9a:00.0", "1")                  \
                NVML_GPU("5", "0000:ba:00.0", "1") NVML_GPU("6", "0000:ca:00.0", "1")              \
                    NVML_GPU("7", "0000:da:00.0", last_up)
#define PROBE "/run/xcloud/probe"

/* The NCCL topology file that is true of the machine. */
#define TOPO_PCI(bdf, class, end)                                                                  \
    "<pci busid=\"" bdf "\" class=\"" class "\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"" end
#define TOPO_PAIR(bridge, gpu, nic)                                                                \
    "    " TOPO_PCI(bridge, "0x060400", ">\n      ") TOPO_PCI(gpu, "0x030200", "/>\n      ")         \
        TOPO_PCI(nic, "0x020700", "/>\n    </pci>\n")
#define TOPO                                                                                       \
    "<system version=\"1\">\n  <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n" TOPO_PAIR("0000:16:00.0", "0000:18:00.0",      \
                                                              "0000:19:00.0")                      \
        TOPO_PAIR("0000:38:00.0", "0000:3a:00.0", "0000:3b:00.0") TOPO_PAIR(                       \
            "0000:49:00.0", "0000:4b:00.0",                                                        \
            "0000:4c:00.0") TOPO_PAIR("0000:5a:00.0", "0000:5c:00.0",                              \
                                      "0000:5d:00.0") "  </cpu>\n  <cpu numaid=\"1\">\n" TOPO_PAIR( \
            "0000:98:00.0", "0000:9a:00.0",                                                        \
            "0000:9b:00.0") TOPO_PAIR("0000:b8:00.0", "0000:ba:00.0", "0000:bb:00.0")              \
            TOPO_PAIR("0000:c8:00.0", "0000:ca:00.0", "0000:cb:00.0")                              \
                TOPO_PAIR("0000:d8:00.0", "0000:da:00.0", "0000:db:00.0") "  </cpu>\n</system>\n"

/* For the generated hgx-h100. */
static const struct host_file good_h100[] = {
    {CPUS "/cpuidle/current_driver", "intel_idle"},
    {CPUS "/smt/control", "on"},
    STATE("0", "POLL", "CPUIDLE CORE POLL IDLE", "0"),
    STATE("1", "C1", "MWAIT 0x00", "1"),
    STATE("2", "C1E", "MWAIT 0x01", "2"),
    STATE("3", "C6", "MWAIT 0x20", "290"),
    {CPUS "/cpu*/power/pm_qos_resume_latency_us", "0"},
    {FREQ "/scaling_driver", "intel_pstate"},
    {FREQ "/scaling_governor", "performance"},
    {FREQ "/energy_performance_preference", "performance"},
    {FREQ "/scaling_max_freq", "3800000"},
    {CPUS "/intel_pstate/status", "active"},
    {CPUS "/intel_pstate/no_turbo", "0"},
    {CPUS "/intel_pstate/max_perf_pct", "100"},
    {CPUS "/cpu*/thermal_throttle/core_throttle_count", "3"},
    {CPUS "/cpu*/thermal_throttle/package_throttle_count", "3"},
    {"/sys/module/intel_idle/parameters/max_cstate", "9"},
    {"/sys/class/powercap/intel-rapl:0/name", "package-0"},
    {"/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "350000000"},
    {"/sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw", "350000000"},
    {"/sys/class/powercap/intel-rapl:0:0/name", "dram"},
    {"/sys/class/powercap/intel-rapl:1/name", "package-1"},
    {"/sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw", "350000000"},
    {"/sys/class/powercap/intel-rapl:1/constraint_0_max_power_uw", "350000000"},
    {"/dev/cpu_dma_latency", "2000000000"},
    {"/dev/kmsg", "6,1,100,-;Linux version 6.8\n6,2,200,-;NVRM: loading NVIDIA UNIX x86_64 Kernel "
                  "Module\n"},
    {"/proc/sys/kernel/numa_balancing", "0"},
    {"/proc/sys/vm/zone_reclaim_mode", "0"},
    {"/proc/meminfo", "MemTotal:  2147483648 kB\nHugePages_Total:       0\nHugetlb:        0 kB\n"},
    {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"},
    {"/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never"},
    {"/sys/devices/system/edac/mc/mc0/ce_count", "7"},
    {"/sys/devices/system/edac/mc/mc0/ue_count", "0"},
    {"/sys/devices/system/edac/mc/mc0/dimm3/dimm_label", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"},
    {"/sys/devices/system/edac/mc/mc0/dimm3/dimm_ce_count", "7"},
    {CG "/cgroup.controllers", "cpuset cpu io memory pids"},
    {CG "/system.slice/cpuset.cpus.effective", HK},
    {CG "/user.slice/cpuset.cpus.effective", HK},
    {CG "/init.scope/cpuset.cpus.effective", HK},
    {CG "/slurm.slice/cpuset.cpus.effective", "0-223"},
    {"/proc/irq/default_smp_affinity", MASK},
    {"/proc/irq/24/smp_affinity_list", "0-3"},
    {"/proc/irq/24/effective_affinity_list", "1"},
    {"/sys/kernel/irq/24/actions", "mlx5_async0@pci:0000:17:00.1"},
    {"/proc/irq/25/smp_affinity_list", "77"},
    {"/proc/irq/25/effective_affinity_list", "77"},
    {"/sys/kernel/irq/25/actions", "nvme0q5"},
    {"/proc/irq/26/smp_affinity_list", "0-223"},
    {"/sys/kernel/irq/26/actions", ""},
    {"/sys/devices/virtual/workqueue/cpumask", MASK},
    PROCESS("1", "systemd", HK, USER, "/init.scope"),
    PROCESS("2", "kthreadd", "0-223", "", "/"),
    PROCESS("812", "rsyslogd", HK, USER, "/system.slice/rsyslog.service"),
    PROCESS("4000", "slurmd", "0-223", USER, "/slurm.slice/slurmd.service"),
    PROCESS("5000", "python", "4-55", USER, "/slurm.slice/slurmstepd.scope/job_7/step_0/user"),
    {"/proc/sys/kernel/perf_event_paranoid", "2"},
    {"/proc/sys/kernel/kptr_restrict", "1"},
    {"/proc/sys/kernel/yama/ptrace_scope", "1"},
    {"/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0"},
    {"/proc/driver/nvidia/version",
     "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
     "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)"},
    {"/proc/driver/nvidia/params", "RegistryDwords: \"PeerMappingOverride=1\""},
    {"/sys/module/nvidia_peermem/version", "580.159.04"},
    {"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04", "ELF"},
    {"/dev/nvidiactl", ""},
    {"/dev/nvidia0", ""},
    {"/dev/nvidia1", ""},
    {"/dev/nvidia2", ""},
    {"/dev/nvidia3", ""},
    {"/dev/nvidia4", ""},
    {"/dev/nvidia5", ""},
    {"/dev/nvidia6", ""},
    {"/dev/nvidia7", ""},
    RAIL("mlx5_0", "hwmon3"),
    RAIL("mlx5_1", "hwmon4"),
    RAIL("mlx5_2", "hwmon5"),
    RAIL("mlx5_3", "hwmon6"),
    RAIL("mlx5_5", "hwmon7"),
    RAIL("mlx5_6", "hwmon8"),
    RAIL("mlx5_7", "hwmon9"),
    RAIL("mlx5_8", "hwmon10"),
    {"/etc/nccl/topo.xml", TOPO},
    {"/etc/enroot/enroot.conf", "ENROOT_ROOTFS_WRITABLE yes\nENROOT_REMAP_ROOT yes"},
    {"/etc/enroot/environ.d/50-nccl.env", "NCCL_IB_HCA=mlx5_0,mlx5_1"},
    {"/etc/nccl.conf", "NCCL_DEBUG=WARN"},
    {"/etc/slurm/slurm.conf",
     "ClusterName=test\nTaskPlugin=task/cgroup,task/affinity\nPluginDir=/usr/lib/slurm\n"
     "PrologFlags=Alloc,Contain\nKillOnBadExit=1\nSchedulerParameters=nohold_on_prolog_fail\n"
     "TopologyPlugin=topology/tree\n"
     "NodeName=gpu[001-064] Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 "
     "CpuSpecList=0-7,112-119"},
    {"/etc/slurm/cgroup.conf", "ConstrainCores=yes\nConstrainDevices=yes"},
    {"/etc/slurm/topology.conf", "SwitchName=leaf1 Nodes=gpu[001-064]"},
    {"/etc/slurm/plugstack.conf", "include /etc/slurm/plugstack.conf.d/*.conf"},
    {"/etc/slurm/plugstack.conf.d/10-pyxis.conf", "required /usr/lib/slurm/spank_pyxis.so"},
    {"/etc/slurm/plugstack.conf.d/20-xcloud.conf", "optional /usr/lib/slurm/xcloud_bind.so"},
    {"/usr/lib/slurm/xcloud_bind.so", "ELF"},
    {"/usr/lib/slurm/mpi_pmix_v4.so", "ELF"},
    {"/usr/bin/scontrol", "ELF"},
    {"/var/lib/xcloud/counters", "xcloud-counters 1"},
    {PROBE "/nvml", NVML_GPUS("1") "end\n"},
    {"/etc/enroot/hooks.d/50-xcloud.sh", "#!/bin/sh"},
    {PROBE "/hook", "hook exit 0\nend\n"},
    {PROBE "/dcgm", "dcgm overall Healthy\nend\n"},
};

/* For the generated gb200. */
static const struct host_file good_gb200[] = {
    {CPUS "/cpuidle/current_driver", "acpi_idle"},
    STATE("0", "LPI-0", "ACPI FFH WFI", "1"),
    STATE("1", "LPI-1", "ACPI FFH", "230"),
    {CPUS "/cpu*/power/pm_qos_resume_latency_us", "0"},
    {FREQ "/scaling_driver", "cppc_cpufreq"},
    {FREQ "/scaling_governor", "performance"},
    {FREQ "/scaling_max_freq", "3420000"},
    {CPUS "/cpufreq/boost", "1"},
    {"/dev/cpu_dma_latency", "2000000000"},
    {"/dev/kmsg", "6,1,1,-;arm-smmu-v3 arm-smmu-v3.0.auto: found companion CMDQV device: NVDA200C:00"},
    {"/sys/bus/acpi/devices/NVDA200C:00/uid", "0"},
    {"/sys/bus/acpi/devices/NVDA200C:01/uid", "1"},
    {"/sys/class/iommu/smmu3.0x0000000011000000/dev", "x"},
    {"/sys/module/arm_smmu_v3/parameters/disable_cmdqv", "N"},
    {"/sys/bus/pci/devices/*/iommu_group/type", "identity"},
    {"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "536870912"},
    {"/proc/cmdline", "BOOT_IMAGE=/vmlinuz init_on_alloc=0 iommu.passthrough=1"},
    {"/proc/driver/nvidia/version",
     "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.159.04  Release Build\n"},
    {"/dev/nvidia-caps-imex-channels/channel0", ""},
    {"/proc/900/comm", "nvidia-imex"},
};

#endif
