/* Faults that others have reported in public, each a test by its name. Included by test-check.c. Those
 * about what a prolog does with a verdict are in tests/slurm/prolog.bats; public-reports lists all. */
/* clang-format off: a case a line, or as few as it needs */

#define PUBLIC(name, ...)                                                                          \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        static const struct row cases[] = {__VA_ARGS__};                                           \
        assert_int_equal(check_rows(cases, XC_COUNT(cases)), 0);                                   \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

PUBLIC(nvsentinel_155_a_gpu_falls_off_the_bus_without_an_xid,
       {"gpu.xid", H100, NULL, {XID("NVRM: The NVIDIA GPU at PCI:0000:3b:00: has fallen off the bus and is not responding")}, FAIL, "has fallen off"},
       {"gpu.count", H100, NULL, {PCI("0000:18:00.0") "/config=\xff\xff\xff\xff"}, FAIL, "has fallen off"},
       {"gpu.count", H100, NULL, {"-/proc/driver/nvidia/gpus/0000:18:00.0"}, FAIL, "the driver does not have it"})

PUBLIC(nvsentinel_1748_thousands_of_xid_45_are_no_fault_of_the_node,
       {"gpu.xid", H100, NULL, {XID("NVRM: Xid (PCI:0000:3b:00): 45, pid=1\n6,11,1,-;NVRM: Xid (PCI:0000:3b:00): 13, x\n"
                                    "6,12,1,-;NVRM: Xid (PCI:0000:3b:00): 31, x\n6,13,1,-;NVRM: Xid (PCI:0000:3b:00): 94, x")}, PASS, "4 of jobs"})

PUBLIC(azurehpc_648_an_xid_that_was_seen_does_not_drain_again,
       {"gpu.xid", H100, NULL, {XID("NVRM: Xid (PCI:0000:3b:00): 79, x")}, FAIL, "Xid 79", .previous = "kmsg.sequence 9\n"},
       {"gpu.xid", H100, NULL, {XID("NVRM: Xid (PCI:0000:3b:00): 79, x")}, PASS, "", .previous = "kmsg.sequence 10\n"})

PUBLIC(soperator_seven_gpus_are_no_other_kind_of_node,
       {"gpu.count", H100, NULL, {"-" PCI("0000:18:00.0"), "-/proc/driver/nvidia/gpus/0000:18:00.0", "-/dev/nvidia0"}, FAIL, "7 GPUs are on PCI; want 8"})

PUBLIC(node_exporter_966_virtual_functions_have_no_counters,
       {"nic.flaps", H100, "", {ROCE "/*/ports/1/counters/*=N/A (no PMA)"}, NA, "no link counters", .previous = "mlx5_3.link_downed 1\n"})

PUBLIC(nvtop_6_an_idle_link_is_slow_and_not_narrow,
       {"gpu.pcie", H100, NULL, {PCI("0000:18:00.0") "/current_link_speed=2.5 GT/s PCIe"}, WARN, "look again under load"},
       {"gpu.pcie", H100, NULL, {PCI("0000:18:00.0") "/current_link_width=4"}, FAIL, "x4"},
       {"gpu.pcie", H100, "slow: fail", {PCI("0000:18:00.0") "/current_link_speed=5.0 GT/s PCIe"}, FAIL, "5 GT/s"})

PUBLIC(nccl_1676_peermem_must_be_loaded_or_the_driver_open,
       {"gpu.gdr", H100, "", {"-/sys/module/nvidia_peermem", "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1.2  x\n"},
        FAIL, "nvidia_peermem is not loaded, the driver is not the open one"},
       {"gpu.gdr", H100, "", {"-/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem/version=1", "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1.2  x\n"},
        PASS, ""})

#define VM_PCI(bdf, class) TOPO_PCI(bdf, class, "/>\n")
#define VM_TOPO "/opt/topo.xml=<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n" \
    VM_PCI("0001:00:01.0", "0x030200") VM_PCI("0002:00:01.0", "0x030200") VM_PCI("0003:00:01.0", "0x030200") \
    VM_PCI("0008:00:01.0", "0x030200") VM_PCI("0009:00:01.0", "0x030200") VM_PCI("000a:00:01.0", "0x030200") \
    VM_PCI("000b:00:01.0", "0x030200") VM_PCI("000c:00:01.0", "0x030200") VM_PCI("0101:00:01.0", "0x020700") \
    VM_PCI("0102:00:01.0", "0x020700") VM_PCI("0103:00:01.0", "0x020700") VM_PCI("0104:00:01.0", "0x020700") \
    VM_PCI("0105:00:01.0", "0x020700") VM_PCI("0106:00:01.0", "0x020700") VM_PCI("0107:00:01.0", "0x020700") \
    VM_PCI("0108:00:01.0", "0x020700") "</cpu>\n</system>\n"

PUBLIC(nccl_1017_a_virtual_machine_needs_a_topology_file,
       {"topo.file", VM, NULL, {0}, WARN, "hides its PCI tree"},
       {"topo.file", VM, NULL, {VM_TOPO}, PASS, "", .policy = "  topo: { file: /opt/topo.xml }\n"},
       {"topo.file", VM, NULL, {0}, FAIL, "is not there", .policy = "  topo: { file: /opt/topo.xml }\n"})

PUBLIC(tuned_808_a_profiles_latency_is_no_proof,
       {"cpu.cstate", H100, "limit: C1E", {"/dev/cpu_dma_latency=290"}, FAIL, "C6 (C6, intel_idle, latency 290 us) is usable"},
       {"cpu.cstate", H100, "limit: C1E", {"/dev/cpu_dma_latency=289"}, PASS, ""})

PUBLIC(max_cstate_0_hands_over_to_acpi_idle_which_reaches_c6,
       {"cpu.cstate", H100, "limit: C1E",
        {"/proc/cmdline=ro intel_idle.max_cstate=0", C "/cpuidle/current_driver=acpi_idle", C "/cpu*/cpuidle/state2/name=C2",
         C "/cpu*/cpuidle/state2/desc=ACPI FFH MWAIT 0x20", "-" C "/cpu*/cpuidle/state3"}, FAIL, "C6 (C2, acpi_idle"})

PUBLIC(systemd_23748_init_scope_and_pid_1_are_left_out,
       {"host.slices", H100, NULL, {CG "/init.scope/cpuset.cpus.effective=0-223"}, FAIL, "init.scope: it may use CPUs 0-223"},
       {"host.slices", H100, NULL, {"/proc/1/status=Name: systemd\nVmSize: 1 kB\nCpus_allowed_list:\t0-223\n"}, FAIL, "PID 1"})

PUBLIC(nv_kernels_184_strict_translation_costs_most_of_the_io,
       {"grace.iommu", GB200, "", {PCI("0008:01:00.0") "/iommu_group/type=DMA"}, FAIL, "type is DMA"})

PUBLIC(vllm_39361_gpu_memory_is_no_node_of_tasks,
       {"numa.nodes", GB200, "count: 2", {0}, PASS, "2 NUMA nodes with CPUs"},
       {"mem.total", GB200, "total: 960, node: 480", {0}, PASS, "960 GiB"})

PUBLIC(deepep_624_numa_balancing_stalls,
       {"numa.balancing", H100, "", {"/proc/sys/kernel/numa_balancing=1"}, FAIL, "is 1; want 0"})

/* What does not answer is unknown, and unknown drains nobody and brings nobody back. */
PUBLIC(nhc_95_a_stall_is_no_fault,
       {"gpu.health", H100, "", {PROBE "/nvml=nvml asked 1\n", PROBE "/trouble=nvml: no answer within 2000 ms\n"}, UNKNOWN, "no answer within 2000 ms"},
       {"exec.program", H100, "path: /opt/x", {PROBE "/exec=exec program late 3\nend\n"}, UNKNOWN, "no answer within 3 s"})

PUBLIC(nhc_139_a_program_that_cannot_tell_changes_nothing,
       {"exec.program", H100, "path: /opt/curl", {PROBE "/exec=exec program exit 7\nexec program said curl: (7) Failed to connect\nend\n"}, UNKNOWN, "exit 7: curl: (7) Failed"})

PUBLIC(nhc_147_scontrol_is_missed_before_it_is_needed,
       {"self.scontrol", H100, "", {"-/usr/bin/scontrol"}, FAIL, "a node could not be drained with a reason"})

PUBLIC(dcgm_263_a_gpu_that_needs_a_reset_is_not_healthy_because_dcgm_says_so,
       {"gpu.health", H100, NULL, {NVML("gpu 1 recovery 1\n"), PROBE "/dcgm=dcgm overall Healthy\nend\n"}, FAIL, "0000:3a:00.0: the driver says: the GPU must be reset"})

PUBLIC(gpu_monitoring_tools_46_a_gpu_that_hangs_its_driver_is_named,
       {"gpu.health", H100, NULL, {PROBE "/nvml=nvml count 8\n" NVML_GPU("0", "0000:18:00.0", "1") "gpu 1 asked 1\ngpu 1 bdf 0000:3a:00.0\n", PROBE "/trouble=nvml: no answer within 2000 ms\n"},
        UNKNOWN, "0000:3a:00.0: the driver did not answer"})

PUBLIC(nvsentinel_1481_a_card_without_a_bridge_has_no_nvlink_down,
       {"gpu.nvlink", H100, "", {PROBE "/nvml=nvml count 1\ngpu 0 links 12\nlink 0:0 up 0\nlink 0:1 up 0\nlink 0:11 up 0\ngpu 0 answered 1\nend\n"}, NA, "no NVLink is up, and the policy asks for none"})

PUBLIC(node_exporter_2769_other_drivers_have_other_counters,
       {"nic.flaps", H100, "", {"-" ROCE "/*/ports/1/counters"}, NA, "no link counters", .previous = "mlx5_3.link_downed 1\n"})

PUBLIC(open_gpu_kernel_modules_1010_a_link_that_stays_slow_can_be_made_to_fail,
       {"gpu.pcie", H100, "slow: fail", {PCI("0000:18:00.0") "/current_link_speed=5.0 GT/s PCIe"}, FAIL, "5 GT/s"})

PUBLIC(azurehpc_152_a_tool_that_fails_is_no_failing_node,
       {"gpu.dcgm", H100, "", {PROBE "/dcgm=dcgm incident Error: unable to establish a connection\nend\n"}, UNKNOWN, "dcgmi health tells nothing"},
       {"gpu.health", H100, "", {"-" PROBE "/nvml", PROBE "/trouble=nvml: it ended with signal 11\n"}, UNKNOWN, "signal 11"})

/* A GPU of another model, or in another's chassis, is slower by design: numbers are the site's. */
PUBLIC(azurehpc_142_a_threshold_is_the_policys_and_its_classs,
       {"cpu.busy_freq", H100, NULL, {PROBE "/spin=spin 4 mhz 2900\nspin 55 mhz 2890\nend\n"}, PASS, "2890 to 2900 MHz"},
       {"cpu.busy_freq", H100, "least: 2800", {PROBE "/spin=spin 4 mhz 2900\nspin 55 mhz 2890\nend\n"}, PASS, ""},
       {"cpu.busy_freq", H100, "least: 3700", {PROBE "/spin=spin 4 mhz 2900\nspin 55 mhz 2890\nend\n"}, FAIL, "want 3700 MHz"})

PUBLIC(nccl_1939_a_module_that_is_not_registered_is_none,
       {"gpu.gdr", H100, "path: peermem", {"/sys/kernel/mm/memory_peers/other/version=1"}, FAIL, "NICs cannot reach GPU memory that way"},
       {"gpu.gdr", H100, "path: peermem", {"/sys/kernel/mm/memory_peers/nv_mem/version=1"}, PASS, ""})

PUBLIC(nccl_820_the_file_must_be_in_the_container_and_true_of_the_machine,
       {"inside.topo", H100, NULL, {IN("env NCCL_TOPO_FILE = /etc/nccl/topo.xml\n"), "-/etc/nccl"}, FAIL, "NCCL_TOPO_FILE does not open here"},
       {"topo.file", H100, NULL, {"/etc/nccl/topo.xml=<system version=\"1\">\n<cpu numaid=\"0\">\n" TOPO_PCI("0000:99:00.0", "0x030200", "/>\n") "</cpu>\n</system>\n"}, FAIL, "0000:99:00.0"})

PUBLIC(gvisor_14526_deep_states_can_be_forbidden,
       {"cpu.cstate", H100, "limit: C1E", {0}, FAIL, "C6 (C6, intel_idle, latency 290 us) is usable; want at most C1E"})

PUBLIC(soperator_2684_an_empty_library_passes_nothing,
       {"gpu.health", H100, NULL, {PROBE "/nvml=nvml load_error /usr/lib/libnvidia-ml.so.1: file too short\nend\n"}, FAIL, "does not load"},
       {"gpu.nvlink", H100, NULL, {PROBE "/nvml=nvml load_error /usr/lib/libnvidia-ml.so.1: file too short\nend\n"}, UNKNOWN, "see gpu.health"})

PUBLIC(ubuntu_slurm_4_a_prolog_directory_that_is_not_there,
       {"slurm.programs", H100, NULL, {"/etc/slurm/slurm.conf=Prolog=/etc/slurm/prolog.d/*.sh\n"}, FAIL, "/etc/slurm/prolog.d/*.sh is not on this node"},
       {"slurm.programs", H100, NULL, {"/etc/slurm/slurm.conf=Prolog=/etc/slurm/prolog.d/*.sh\n", "/etc/slurm/prolog.d/readme=x"}, FAIL, "is not on this node"})

#pragma GCC diagnostic pop

/* mej/nhc#161: what asks the controller, or any program, can hang with it. */
static void nhc_161_no_check_starts_a_process(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {.check = "all", .machine = H100, .job = true};
    open_row(&row, o);
    run_only(&row, o, NULL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    clear(o);
    free(o);
}

/* aws-parallelcluster#6777: DCGM in a prolog, and "Prolog hung on node". */
static void parallelcluster_6777_a_prolog_runs_neither_dcgm_nor_programs(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {.check = "all",
                            .machine = H100,
                            .policy = "  checks: { exec.disks: { path: /opt/disks } }\n",
                            .edits = {PROBE "/exec=exec disks exit 0\nend\n"}};
    open_row(&row, o);
    struct xc_check_input input = {.root = o->root, .node = o->node, .rules = o->rules};
    input.at = XC_AT_PROLOG;
    xc_check_live_probe(&input, 1000, &o->live);
    assert_non_null(o->live.nvml);
    assert_true(!o->live.dcgm && !o->live.exec && !o->live.spin);
    input.at = XC_AT_HEALTH;
    xc_check_live_probe(&input, 1000, &o->live);
    assert_true(o->live.dcgm && o->live.exec);
    clear(o);
    free(o);
}

/* soperator#2773: a reason was renamed, and the drains under its old name were never lifted. */
static void soperator_2773_no_check_is_ever_renamed(void **state)
{
    (void)state;
    static const char *const codes[] = {
        "CPU01 cpu.count", "CPU02 cpu.cstate", "CPU03 cpu.cstate_reached", "CPU04 cpu.turbo",
        "CPU05 cpu.throttle", "CPU06 cpu.power", "CPU07 cpu.priority", "CPU08 cpu.busy_freq",
        "NUM01 numa.nodes", "NUM02 numa.balancing", "NUM03 numa.reclaim", "MEM01 mem.total",
        "MEM02 mem.edac", "MEM03 mem.thp", "MEM04 mem.hugepages", "HST01 host.slices",
        "HST02 host.irqs", "HST03 host.workqueues", "HST04 host.cmdline", "HST05 host.strays",
        "HST06 host.steal", "HST07 host.profiling", "HST08 host.environment", "GRC01 grace.cmdqv",
        "GRC02 grace.iommu", "GRC03 grace.page_size", "GRC04 grace.init_on_alloc",
        "GPU01 gpu.count", "GPU02 gpu.pcie", "GPU03 gpu.xid", "GPU04 gpu.leftovers",
        "GPU05 gpu.mig", "GPU06 gpu.driver", "GPU07 gpu.imex", "GPU08 gpu.gdr", "GPU09 gpu.health",
        "GPU10 gpu.nvlink", "GPU11 gpu.fabric", "GPU12 gpu.dcgm", "NIC01 nic.count",
        "NIC02 nic.port", "NIC03 nic.pcie", "NIC04 nic.flaps", "NIC05 nic.mtu", "NIC06 nic.optics",
        "NIC07 nic.pfc", "NIC08 nic.ecn", "TOP01 topo.file", "TOP02 topo.hook",
        "CTR01 container.enroot", "NCL01 nccl.conf", "NCL02 nccl.version", "SLM01 slurm.cpuspec",
        "SLM02 slurm.constrain", "SLM03 slurm.plugstack", "SLM04 slurm.kill_on_bad_exit",
        "SLM05 slurm.prolog_flags", "SLM06 slurm.topology", "SLM07 slurm.pmix",
        "SLM08 slurm.programs", "EXE01 exec.program", "SLF01 self.scontrol", "SLF02 self.cgroup",
        "SLF03 self.state", "INS01 inside.affinity", "INS02 inside.memory", "INS03 inside.gpus",
        "INS04 inside.hcas", "INS05 inside.imex", "INS06 inside.topo", "INS07 inside.rendezvous",
        "INS08 inside.env", "INS09 inside.nccl",
    };
    for (size_t i = 0; i < XC_COUNT(codes); i++) {
        char id[64], code[8];
        assert_int_equal(sscanf(codes[i], "%7s %63s", code, id), 2);
        const struct xc_check *check = xc_check_find(id);
        if (!check || !xc_streq(check->code, code))
            fail_msg("%s was %s", id, code);
    }
    const struct xc_check *all[256];
    assert_int_equal(xc_check_all(all, XC_COUNT(all)), XC_COUNT(codes)); /* a new one is added here */
}

/* mej/nhc#141: a check that reads a file again for each CPU takes 10 s on a large node. */
static void nhc_141_reads_grow_with_the_cpus_and_no_faster(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {.check = "all", .machine = H100};
    open_row(&row, o);
    o->overlay.keep = true;
    run_only(&row, o, NULL);
    size_t of_cpus = 0;
    for (size_t i = 0; i < o->overlay.nread; i++) {
        of_cpus += strstr(o->overlay.read[i], "/cpu/cpu") != NULL;
        assert_string_not_equal(o->overlay.read[i], "/proc/cpuinfo");
    }
    assert_true(of_cpus > 4 * 224 && of_cpus < 8 * 224);
    assert_true(o->overlay.nread - of_cpus < 400);
    assert_int_equal(o->overlay.configs, 0); /* each would be a thousand questions to a device */
    clear(o);
    free(o);
}

/* node_exporter#3434, gpud#1164: reading counters of the fabric manager's own NICs floods the log. */
static void node_exporter_3434_counters_of_unnamed_nics_are_not_read(void **state)
{
    (void)state;
    struct outcome *o = calloc(1, sizeof *o);
    const struct row row = {.check = "nic", .machine = H100};
    open_row(&row, o);
    o->overlay.keep = true;
    run_only(&row, o, "nic");
    size_t seen = 0;
    for (size_t i = 0; i < o->overlay.nread; i++) {
        seen += strstr(o->overlay.read[i], "/counters/") != NULL;
        assert_null(strstr(o->overlay.read[i], "infiniband/mlx5_4/"));
        assert_null(strstr(o->overlay.read[i], "infiniband/mlx5_9/"));
    }
    assert_int_equal(seen, 16);
    clear(o);
    free(o);
}
