/* Faults that others have reported in public, each a test by its name. Included by test-check.c. */
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
#define VM_TOPO "/opt/topo.xml=<system version=\"1\">\n<cpu numaid=\"0\">\n" \
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

#pragma GCC diagnostic pop

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
