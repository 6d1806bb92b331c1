/* node: machines made from tests/machines are read, asked, written, mapped, packed and judged. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/node.h>
#include <xcloud/policy.h>

#include "../../node/image.h"

static char scratch[64];

/* ---- helpers -------------------------------------------------------------------------------------- */

static void sh(const char *format, ...) xc_printf(1, 2);
static void sh(const char *format, ...)
{
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    xc_autofree char *command = xc_text_take(&text);
    int status = system(command);
    if (status != 0)
        fail_msg("%s: status %d", command, status);
}

/* Paths handed out; they last until the end. */
static struct path {
    struct path *next;
    char text[600];
} * paths;

/* A path below the scratch directory. */
static const char *below(const char *format, ...) xc_printf(1, 2);
static const char *below(const char *format, ...)
{
    struct path *path = calloc(1, sizeof *path);
    assert_non_null(path);
    path->next = paths;
    paths = path;
    int used = snprintf(path->text, sizeof path->text, "%s/", scratch);
    va_list args;
    va_start(args, format);
    vsnprintf(path->text + used, sizeof path->text - (size_t)used, format, args);
    va_end(args);
    return path->text;
}

/* A machine of tests/machines, made on first use: an archive, because ten thousand small files take
 * seconds on some disks; and as a directory, which is read by the same code and by hwloc. */
static const char *machine(const char *name)
{
    const char *path = below("%s.tar", name);
    if (access(path, F_OK) < 0)
        sh("python3 %s/tests/machines/make-machine %s --tar %s", XC_SRCDIR, name, path);
    return path;
}

static const char *directory(const char *name)
{
    const char *path = below("%s", name);
    if (access(path, F_OK) < 0)
        sh("python3 %s/tests/machines/make-machine %s %s", XC_SRCDIR, name, path);
    return path;
}

/* A machine of one's own, afresh each time, from a description. */
static const char *described(const char *name, const char *description)
{
    const char *file = below("%s.machine", name), *path = below("own-%s", name);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs(description, stream);
    fclose(stream);
    sh("rm -rf %s && python3 %s/tests/machines/make-machine %s %s", path, XC_SRCDIR, file, path);
    return path;
}

static void put(const char *directory, const char *path, const char *content)
{
    char full[800];
    snprintf(full, sizeof full, "%s/%s", directory, path);
    unlink(full);
    FILE *stream = fopen(full, "w");
    assert_non_null(stream);
    fputs(content, stream);
    fclose(stream);
}

static struct xc_root *open_root(const char *path)
{
    struct xc_root *root = NULL;
    struct xc_error error = {0};
    if (xc_machine_open(path, XC_MACHINE_LIMIT, &root, &error) < 0)
        fail_msg("%s: %s", path, error.message);
    return root;
}

static struct xc_node *read_with(const char *path, const struct xc_node_options *options)
{
    xc_autoroot struct xc_root *root = open_root(path);
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    if (xc_node_read(root, options, &node, &error) < 0)
        fail_msg("%s: %s: %s", path, error.where, error.message);
    return node;
}

static struct xc_node *read_machine(const char *path)
{
    return read_with(path, NULL);
}

static void assert_set(const struct xc_set *set, const char *expected)
{
    xc_autofree char *text = xc_set_format(set);
    assert_string_equal(text, expected);
}

static int gpu_pci(const struct xc_node *node, size_t gpu)
{
    return node->gpus[gpu].pci;
}

static int nic_index(const struct xc_node *node, const char *rdma)
{
    for (size_t i = 0; i < node->nnics; i++)
        if (xc_streq(node->nics[i].rdma, rdma))
            return (int)i;
    fail_msg("no NIC %s", rdma);
    return -1;
}

static const char *path_to(const struct xc_node *node, size_t gpu, const char *rdma)
{
    return xc_path_name(
        xc_node_path(node, gpu_pci(node, gpu), node->nics[nic_index(node, rdma)].pci));
}

/* ---- questions ------------------------------------------------------------------------------------ */

static void pci_addresses_are_read_in_any_case_and_width(void **state)
{
    (void)state;
    static const char *const good[][2] = {{"0000:1b:00.0", "0000:1b:00.0"},
                                          {"0000:1B:00.7", "0000:1b:00.7"},
                                          {"00000000:9D:1f.3", "0000:9d:1f.3"},
                                          {"12345:00:01.0", "12345:00:01.0"}};
    static const char *const bad[] = {"",
                                      "1b:00.0",
                                      "000:1b:00.0",
                                      "0000:1b:00.8",
                                      "0000:1b:20.0",
                                      "0000:1b:00.0x",
                                      "0000:1b:00",
                                      "0000-1b:00.0",
                                      "123456789:00:00.0",
                                      "0000:1b:0g.0"};
    struct xc_bdf bdf;
    char text[XC_BDF_TEXT];
    for (size_t i = 0; i < XC_COUNT(good); i++) {
        assert_true(xc_bdf_parse(good[i][0], &bdf));
        assert_string_equal(xc_bdf_text(&bdf, text), good[i][1]);
    }
    for (size_t i = 0; i < XC_COUNT(bad); i++)
        assert_false(xc_bdf_parse(bad[i], &bdf));
}

static void cores_nodes_and_distances_are_answered(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("hgx-h100"));
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_set_add_range(&set, 0, 7);
    xc_set_add(&set, 63);
    xc_node_whole_cores(node, &set);
    assert_set(&set, "0-7,63,112-119,175");
    xc_node_numa_cpus(node, 1, &set);
    assert_set(&set, "56-111,168-223");
    xc_node_numa_cpus(node, XC_NONE, &set);
    assert_set(&set, "");
    xc_node_cpu_numas(node, &set);
    assert_set(&set, "0-1");
    assert_int_equal(xc_node_distance(node, 0, 1), 21);
    assert_int_equal(xc_node_distance(node, 1, 1), 10);
    assert_int_equal(xc_node_distance(node, 0, 7), 255);
    assert_int_equal(xc_node_max_cpu(node), 223);
    assert_int_equal(xc_node_cpu_index(node, 224), XC_NONE);
    assert_int_equal(node->cpus[xc_node_cpu_index(node, 112)].thread, 1);
    assert_int_equal(node->cpus[xc_node_cpu_index(node, 112)].core, 0);
    xc_node_free(node);
}

static void pci_paths_are_those_of_nvidia_smi(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("hgx-h100"));
    assert_string_equal(path_to(node, 0, "mlx5_0"), "PIX");
    assert_string_equal(path_to(node, 0, "mlx5_1"), "NODE");
    assert_string_equal(path_to(node, 0, "mlx5_4"), "NODE");
    assert_string_equal(path_to(node, 0, "mlx5_5"), "SYS");
    assert_int_equal(xc_node_path(node, gpu_pci(node, 0), gpu_pci(node, 0)), XC_PATH_PIX);
    assert_int_equal(xc_node_path(node, XC_NONE, gpu_pci(node, 0)), XC_PATH_SYS);
    assert_int_equal(xc_node_path(node, 100000, gpu_pci(node, 0)), XC_PATH_SYS);
    xc_node_free(node);
    node = read_machine(machine("dgx-a100"));
    assert_string_equal(path_to(node, 0, "mlx5_0"), "PIX");
    assert_string_equal(path_to(node, 0, "mlx5_1"), "PXB");
    assert_string_equal(path_to(node, 1, "mlx5_0"), "PXB");
    assert_string_equal(path_to(node, 0, "mlx5_2"), "SYS");
    xc_node_free(node);
    node = read_machine(described("phb", "cores 2\nnuma 0 cores=0-1 memory=1G\n"
                                         "host 0000:00 numa=0 gpu nic\n"
                                         "host 0000:80 numa=-1 flat gpu nic\n"));
    assert_string_equal(path_to(node, 0, "mlx5_0"), "PHB");
    assert_string_equal(path_to(node, 1, "mlx5_1"), "PHB");
    assert_string_equal(path_to(node, 1, "mlx5_0"), "SYS"); /* -1 is unknown, not node 0 */
    xc_node_free(node);
}

/* ---- reading -------------------------------------------------------------------------------------- */

static const struct expected {
    const char *name;
    size_t ncpus, ncores, npackages, nl3, nnumas, ngpus, nnics;
    const char *gpu_numas, *priority;
    enum xc_environment environment;
    const char *arch;
} machines[] = {
    {"dgx-a100", 256, 128, 2, 32, 8, 8, 10, "3 3 1 1 7 7 5 5", "", XC_BARE, "x86_64"},
    {"hgx-h100", 224, 112, 2, 2, 2, 8, 11, "0 0 0 0 1 1 1 1", "", XC_BARE, "x86_64"},
    {"hgx-h200", 192, 96, 2, 2, 2, 8, 11, "0 0 0 0 1 1 1 1", "", XC_BARE, "x86_64"},
    {"dgx-b300", 256, 128, 2, 2, 2, 8, 9, "0 0 0 0 1 1 1 1",
     "0-3,32-35,64-67,96-99,128-131,160-163,192-195,224-227", XC_BARE, "x86_64"},
    {"gb200", 144, 144, 2, 2, 6, 4, 4, "0 0 1 1", "", XC_BARE, "aarch64"},
    {"flat-vm", 96, 96, 2, 2, 2, 8, 9, "-1 -1 -1 -1 -1 -1 -1 -1", "", XC_VM, "x86_64"},
    {"epyc-8numa", 256, 128, 2, 16, 8, 8, 8, "0 1 2 3 4 5 6 7", "", XC_BARE, "x86_64"},
    {"laptop", 2, 2, 1, 1, 1, 0, 1, "", "", XC_BARE, "x86_64"},
    {"huge", 2048, 1024, 16, 32, 16, 16, 16, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "", XC_BARE,
     "x86_64"},
    {"two-node-2cpu", 2, 2, 2, 2, 2, 2, 2, "1 0", "", XC_BARE, "x86_64"},
    {"mig-h100", 32, 16, 2, 2, 2, 4, 4, "0 0 1 1", "", XC_BARE, "x86_64"},
};

static void check_machine(const struct expected *expected)
{
    struct xc_node *node = read_machine(machine(expected->name));
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    struct xc_text numas = XC_TEXT_INIT;
    print_message("%s\n", expected->name);
    assert_int_equal(node->ncpus, expected->ncpus);
    assert_int_equal(node->ncores, expected->ncores);
    assert_int_equal(node->npackages, expected->npackages);
    assert_int_equal(node->nl3, expected->nl3);
    assert_int_equal(node->nnumas, expected->nnumas);
    assert_int_equal(node->ngpus, expected->ngpus);
    assert_int_equal(node->nnics, expected->nnics);
    for (size_t i = 0; i < node->ngpus; i++) {
        xc_text_addf(&numas, "%s%d", i ? " " : "", node->gpus[i].numa);
        assert_int_equal(node->gpus[i].minor, i);
        assert_int_equal(node->gpus[i].mig, xc_streq(expected->name, "mig-h100"));
        assert_true(xc_starts(node->gpus[i].uuid, "GPU-5ec2e7a1-"));
        assert_int_equal(node->pci[gpu_pci(node, i)].vendor, 0x10de);
        assert_true(node->pci[gpu_pci(node, i)].max_speed_mts >= 16000);
        assert_int_equal(node->pci[gpu_pci(node, i)].max_width, 16);
    }
    xc_autofree char *text = xc_text_take(&numas);
    assert_string_equal(text, expected->gpu_numas);
    xc_node_flagged(node, XC_CPU_PRIORITY, &set);
    assert_set(&set, expected->priority);
    assert_int_equal(node->environment, expected->environment);
    assert_string_equal(node->arch, expected->arch);
    assert_string_equal(node->boot_id, "4c4c4544-0042-3510-8052-b4c04f4e4d32");
    xc_node_free(node);
}

static void every_machine_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < XC_COUNT(machines); i++)
        check_machine(&machines[i]);
}

static void memory_only_nodes_have_no_cpus(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("gb200"));
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_node_cpu_numas(node, &set);
    assert_set(&set, "0-1");
    assert_int_equal(node->numas[5].os, 26);
    assert_int_equal(node->numas[5].ncpus, 0);
    assert_int_equal(node->numas[5].memory >> 30, 184);
    xc_node_free(node);
}

static void network_ports_have_state_rate_and_link(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(described(
        "nics", "cores 2\nnuma 0 cores=0-1 memory=1G\n"
                "host 0000:00 numa=0 nic(net=ib0,ports=2) nic(state=DOWN,rate=200)\n"
                "host 0000:10 numa=0 nic(link=Ethernet,rate=100) eth(rate=25,net=eno1)\n"));
    assert_int_equal(node->nnics, 5);
    const struct xc_nic *nic = &node->nics[0];
    assert_string_equal(nic[0].netdev, "ib0");
    assert_int_equal(nic[0].port, 1);
    assert_int_equal(nic[0].rate_mbps, 400000);
    assert_int_equal(nic[0].link, XC_NIC_INFINIBAND);
    assert_int_equal(nic[1].port, 2);
    assert_string_equal(nic[1].netdev, ""); /* dev_port 0 is the first port's */
    assert_int_equal(nic[2].state, XC_PORT_DOWN);
    assert_int_equal(nic[2].rate_mbps, 200000);
    assert_int_equal(nic[3].link, XC_NIC_ETHERNET);
    assert_string_equal(nic[4].rdma, "");
    assert_string_equal(nic[4].netdev, "eno1");
    assert_int_equal(nic[4].port, 0);
    assert_int_equal(nic[4].rate_mbps, 25000);
    assert_int_equal(nic[4].state, XC_PORT_ACTIVE);
    xc_node_free(node);
}

static void a_software_rdma_device_sits_on_its_netdev(void **state)
{
    (void)state;
    const char *path = described("rxe", "cores 1\nnuma 0 cores=0 memory=1G\n"
                                        "host 0000:00 numa=0 eth(net=eno1)\n");
    sh("mkdir -p %s/sys/class/infiniband/rxe0/ports/1", path);
    put(path, "sys/class/infiniband/rxe0/parent", "eno1\n");
    put(path, "sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    put(path, "sys/class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    struct xc_node *node = read_machine(path);
    assert_int_equal(node->nnics, 1);
    assert_string_equal(node->nics[0].rdma, "rxe0");
    assert_string_equal(node->nics[0].netdev, "eno1");
    assert_int_equal(node->nics[0].rate_mbps, 2500);
    assert_true(node->nics[0].pci >= 0);
    xc_node_free(node);
}

static void offline_cpus_have_no_core(void **state)
{
    (void)state;
    struct xc_node *node =
        read_machine(described("offline", "cores 2\nthreads 2\noffline 2-3\nisolated 1\n"
                                          "caches L3=8M\nnuma 0 cores=0-1 memory=1G\n"));
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    assert_int_equal(node->ncpus, 4);
    assert_int_equal(node->ncores, 2);
    assert_int_equal(node->cpus[2].core, XC_NONE);
    assert_int_equal(node->cpus[2].numa, XC_NONE);
    xc_node_online(node, &set);
    assert_set(&set, "0-1");
    xc_node_whole_cores(node, &set);
    assert_set(&set, "0-1");
    xc_node_flagged(node, XC_CPU_ISOLATED, &set);
    assert_set(&set, "1");
    xc_node_free(node);
}

static void priority_needs_a_clear_minority(void **state)
{
    (void)state;
    static const struct {
        const char *speeds, *priority;
    } cases[] = {
        {"freq max=3600000 perf=36\nfast 0-1 max=4600000 perf=46\n", "0-1"},
        {"freq max=3600000\nfast 3 max=4600000\n", "3"},
        {"freq base=2300000\nfast 4-7 base=4600000\n", "4-7"},
        {"freq base=2300000\nfast 0-4 base=4600000\n", ""}, /* more than half */
        {"freq perf=100\nfast 0-1 perf=105\n", ""},         /* favoured cores of a desktop */
        {"freq max=3600000\n", ""},
        {"fast 0-1 max=4600000\n", ""}, /* the others do not say */
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        char text[300];
        snprintf(text, sizeof text, "cores 8\nnuma 0 cores=0-7 memory=1G\n%s", cases[i].speeds);
        struct xc_node *node = read_machine(described("speeds", text));
        xc_autoset struct xc_set set = XC_SET_EMPTY;
        xc_node_flagged(node, XC_CPU_PRIORITY, &set);
        assert_set(&set, cases[i].priority);
        xc_node_free(node);
    }
}

static void other_devices_can_stand_for_gpus(void **state)
{
    (void)state;
    const char *path = described("kinds", "cores 1\nnuma 0 cores=0 memory=1G\n"
                                          "host 0000:00 numa=0 gpu(vendor=1234,device=1111,"
                                          "class=038000) gpu audio\n");
    struct xc_node *node = read_machine(path);
    assert_int_equal(node->ngpus, 1); /* NVIDIA's, and not its audio function */
    xc_node_free(node);
    sh("mkdir -p %s/etc/xcloud", path);
    put(path, "etc/xcloud/gpu-kinds", "# the emulated ones\n1234:0380\n");
    node = read_machine(path);
    assert_int_equal(node->ngpus, 1);
    assert_int_equal(node->pci[gpu_pci(node, 0)].vendor, 0x1234);
    xc_node_free(node);
    struct xc_node_options options = {0};
    struct xc_gpu_kind *kinds;
    assert_int_equal(xc_gpu_kinds_parse("*:03", &kinds, &options.nkinds, NULL), 0);
    options.kinds = kinds;
    node = read_with(path, &options);
    assert_int_equal(node->ngpus, 2);
    xc_node_free(node);
    free(kinds);
    put(path, "etc/xcloud/gpu-kinds", "nvidia\n");
    xc_autoroot struct xc_root *root = open_root(path);
    struct xc_error error = {0};
    assert_int_equal(xc_node_read(root, NULL, &node, &error), -1);
    assert_non_null(strstr(error.message, "gpu-kinds"));
}

static void wrong_gpu_kinds_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         "10de",  "10de:",         ":03", "10de:3", "10de:030000000",
        "10dex:03", "de:03", "10de:03,zz:03", "*:",  "10de:+3"};
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        struct xc_gpu_kind *kinds = NULL;
        size_t count;
        assert_int_equal(xc_gpu_kinds_parse(bad[i], &kinds, &count, NULL), -1);
    }
}

static void without_the_driver_the_position_is_the_minor(void **state)
{
    (void)state;
    const char *path = described("driver", "cores 1\nnuma 0 cores=0 memory=1G\n"
                                           "host 0000:00 numa=0 gpu(minor=1) gpu(minor=0)\n");
    struct xc_node *node = read_machine(path);
    assert_int_equal(node->gpus[0].minor, 1);
    xc_node_free(node);
    sh("rm %s/proc/driver/nvidia/gpus/0000:01:00.0/information", path);
    node = read_machine(path);
    assert_int_equal(node->gpus[0].minor, XC_NONE);
    assert_string_equal(node->gpus[0].uuid, "");
    xc_node_free(node);
    sh("rm -r %s/proc/driver/nvidia/gpus", path);
    node = read_machine(path);
    assert_int_equal(node->gpus[0].minor, 0);
    assert_string_equal(node->gpus[0].uuid, "");
    xc_node_free(node);
}

static void the_kind_of_cpu_is_in_either_file(void **state)
{
    (void)state;
    static const char *const cpus[] = {"AMD EPYC 7742", "Intel(R) Xeon(R) Platinum 8570"};
    static const char *const vendors[] = {"AuthenticAMD", "GenuineIntel"};
    static const unsigned families[] = {0x17, 6}, models[] = {0x31, 0xcf};
    for (size_t i = 0; i < 4; i++) {
        char text[200], file[800];
        snprintf(text, sizeof text, "cpu %s\nsockets 1\ncores 2\nnuma 0 cores=0-1 memory=1G\n",
                 cpus[i / 2]);
        const char *path = described("kind", text);
        snprintf(file, sizeof file, "%s/sys/devices/system/cpu/modalias", path);
        if (i % 2)
            assert_int_equal(unlink(file), 0); /* an old kernel: /proc/cpuinfo alone */
        struct xc_node *node = read_machine(path);
        assert_string_equal(node->cpu_vendor, vendors[i / 2]);
        assert_int_equal(node->cpu_family, families[i / 2]);
        assert_int_equal(node->cpu_model, models[i / 2]);
        assert_string_equal(node->arch, "x86_64");
        xc_node_free(node);
    }
}

/* ---- broken machines ------------------------------------------------------------------------------ */

/* Reads whatever it is; it may fail with a message, and must not crash. */
static void survives(const char *path)
{
    xc_autoroot struct xc_root *root = open_root(path);
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    if (xc_node_read(root, NULL, &node, &error) < 0)
        assert_true(error.message[0] != '\0');
    xc_node_free(node);
}

static void garbage_in_any_file_is_survived(void **state)
{
    (void)state;
    static const char *const garbage[] = {"",
                                          "\n",
                                          "-1\n",
                                          "99999999999999999999999\n",
                                          "0-65535\n",
                                          "ffffffff,ffffffff\n",
                                          "0x%n%s%s\n",
                                          "0,1,2,,\n",
                                          "2147483648 1 2 3 4 5 6 7 8 9\n",
                                          "\xff\xfe\x80\n"};
    const char *good = directory("two-node-2cpu"), *path = below("garbage");
    sh("cp -a %s %s && rm -rf %s/run", good, path, path);
    sh("cd %s && find sys proc -type f > %s", path, below("files"));
    FILE *list = fopen(below("files"), "r");
    assert_non_null(list);
    char name[400], before[600];
    size_t count = 0;
    while (fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = '\0';
        snprintf(before, sizeof before, "%s/%s", good, name);
        for (size_t i = 0; i < XC_COUNT(garbage); i++) {
            put(path, name, garbage[i]);
            survives(path);
            count++;
        }
        int fd = open(before, O_RDONLY);
        xc_autofree char *content = xc_read_fd(fd, before, XC_READ_LIMIT, NULL, NULL);
        close(fd);
        put(path, name, content);
    }
    fclose(list);
    assert_true(count > 1000);
    survives(path);
}

static void broken_links_and_directories_are_survived(void **state)
{
    (void)state;
    static const char *const breaks[] = {
        "ln -sfn 0000:13:00.0 sys/bus/pci/devices/0000:13:00.0",
        "ln -sfn ../../../devices sys/bus/pci/devices/0000:13:00.0",
        "ln -sfn / sys/class/infiniband/mlx5_0",
        "ln -sfn mlx5_1 sys/class/infiniband/mlx5_0; ln -sfn mlx5_0 sys/class/infiniband/mlx5_1",
        "rm -r sys/devices/system/node",
        "rm -r sys/devices/system/cpu/cpu1/topology",
        "rm -r sys/bus sys/class",
        "rm sys/devices/system/cpu/online; mkdir sys/devices/system/cpu/online",
        "rm sys/devices/system/cpu/present sys/devices/system/cpu/online",
        "mkfifo sys/devices/system/cpu/smt; ln -sfn smt sys/devices/system/cpu/online",
        "mkdir -p \"sys/class/infiniband/$(printf 'x%.0s' $(seq 200))/ports/1\"",
        "for i in $(seq 0 99); do mkdir -p sys/class/infiniband/r$i/ports/{0,1,255,x}; done",
    };
    const char *path = below("links");
    for (size_t i = 0; i < XC_COUNT(breaks); i++) {
        sh("rm -rf %s; cp -a %s %s && cd %s && bash -c '%s'", path, directory("two-node-2cpu"),
           path, path, breaks[i]);
        survives(path);
    }
}

static void deep_bridges_are_an_error_or_short(void **state)
{
    (void)state;
    const char *path = described("deep", "cores 1\nnuma 0 cores=0 memory=1G\n");
    sh("cd %s && mkdir -p sys/bus/pci/devices && d=sys/devices/pci0000:00 && "
       "for i in $(seq 0 99); do d=$d/$(printf '0000:%%02x:00.0' $i); done && mkdir -p $d && "
       "echo 0x030000 > $d/class && echo 0x10de > $d/vendor && "
       "ln -s ../../../../$d sys/bus/pci/devices/0000:63:00.0",
       path);
    xc_autoroot struct xc_root *root = open_root(path);
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    assert_int_equal(xc_node_read(root, NULL, &node, &error), -1);
    assert_non_null(strstr(error.message, "bridges"));
}

/* ---- snapshots ------------------------------------------------------------------------------------ */

static void assert_same(const struct xc_node *a, const struct xc_node *b)
{
    assert_int_equal(a->ncpus, b->ncpus);
    assert_int_equal(a->ncores, b->ncores);
    assert_int_equal(a->npackages, b->npackages);
    assert_int_equal(a->nl3, b->nl3);
    assert_int_equal(a->nnumas, b->nnumas);
    assert_int_equal(a->npci, b->npci);
    assert_int_equal(a->ngpus, b->ngpus);
    assert_int_equal(a->nnics, b->nnics);
    assert_int_equal(a->environment, b->environment);
    assert_string_equal(a->product, b->product);
    assert_string_equal(a->vendor, b->vendor);
    assert_string_equal(a->arch, b->arch);
    assert_string_equal(a->cpu_vendor, b->cpu_vendor);
    assert_true(a->cpu_family == b->cpu_family && a->cpu_model == b->cpu_model);
    assert_memory_equal(a->cpus, b->cpus, a->ncpus * sizeof *a->cpus);
    assert_memory_equal(a->numas, b->numas, a->nnumas * sizeof *a->numas);
    assert_memory_equal(a->distance, b->distance, a->nnumas * a->nnumas * sizeof *a->distance);
    if (a->npci)
        assert_memory_equal(a->pci, b->pci, a->npci * sizeof *a->pci);
    if (a->nnics)
        assert_memory_equal(a->nics, b->nics, a->nnics * sizeof *a->nics);
    for (size_t i = 0; i < a->ngpus; i++) {
        assert_int_equal(a->gpus[i].pci, b->gpus[i].pci);
        assert_int_equal(a->gpus[i].minor, b->gpus[i].minor);
        assert_int_equal(a->gpus[i].numa, b->gpus[i].numa);
        assert_int_equal(a->gpus[i].mig, b->gpus[i].mig);
    }
}

static void a_snapshot_gives_back_the_machine(void **state)
{
    (void)state;
    const char *file = below("snapshot");
    for (size_t i = 0; i < XC_COUNT(machines); i++) {
        struct xc_node *node = read_machine(machine(machines[i].name)), *mapped = NULL;
        struct xc_error error = {0};
        assert_int_equal(xc_snapshot_write(node, file, &error), 0);
        if (xc_snapshot_map(file, NULL, &mapped, &error) < 0)
            fail_msg("%s", error.message);
        assert_same(node, mapped);
        if (node->ngpus)
            assert_memory_equal(node->gpus, mapped->gpus, node->ngpus * sizeof *node->gpus);
        assert_true(mapped->mapped > 0);
        xc_node_free(node);
        xc_node_free(mapped);
    }
}

static void a_snapshot_of_others_or_of_another_boot_is_refused(void **state)
{
    (void)state;
    const char *file = below("owned"), *link = below("link");
    struct xc_node *node = read_machine(machine("laptop")), *mapped = NULL;
    struct xc_error error = {0};
    assert_int_equal(xc_snapshot_write(node, file, &error), 0);
    assert_int_equal(xc_snapshot_map(file, "another-boot", &mapped, &error), -1);
    assert_int_equal(error.code, XC_EINPUT);
    assert_int_equal(xc_snapshot_map(file, node->boot_id, &mapped, &error), 0);
    xc_node_free(mapped);
    assert_int_equal(chmod(file, 0666), 0);
    assert_int_equal(xc_snapshot_map(file, NULL, &mapped, &error), -1);
    assert_int_equal(error.code, XC_EOWNER);
    if (geteuid() == 0) {
        assert_int_equal(chmod(file, 0644), 0);
        assert_int_equal(chown(file, 12345, 0), 0);
        assert_int_equal(xc_snapshot_map(file, NULL, &mapped, &error), -1);
        assert_int_equal(error.code, XC_EOWNER);
        assert_int_equal(symlink("snapshot", link), 0);
        assert_int_equal(lchown(link, 12345, 0), 0);
        assert_int_equal(xc_snapshot_map(link, NULL, &mapped, &error), -1);
        assert_int_equal(error.code, XC_EOWNER);
    }
    assert_int_equal(xc_snapshot_map(below("nowhere"), NULL, &mapped, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
    xc_node_free(node);
}

/* Asks everything that a plan asks, so that a sanitizer sees each access. */
static void ask_everything(const struct xc_node *node)
{
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    unsigned sum = 0;
    xc_node_online(node, &set);
    xc_node_whole_cores(node, &set);
    for (size_t i = 0; i < node->nnumas; i++) {
        xc_node_numa_cpus(node, node->numas[i].os, &set);
        for (size_t j = 0; j < node->nnumas; j++)
            sum += xc_node_distance(node, node->numas[i].os, node->numas[j].os);
    }
    for (size_t i = 0; i < node->ngpus; i++)
        for (size_t j = 0; j < node->nnics; j++)
            sum += xc_node_path(node, node->gpus[i].pci, node->nics[j].pci) +
                   (unsigned)strlen(node->nics[j].rdma) + (unsigned)strlen(node->gpus[i].uuid);
    assert_true(sum != 1);
}

/* The block is copied to the heap, exactly as long as it is, so that a read beyond it is seen. */
static bool adopt_copy(const char *bytes, size_t length)
{
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    char *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    if (xc_node_adopt(copy, length, false, "fuzz", &node, &error) < 0) {
        assert_true(error.message[0] != '\0');
        free(copy);
        return false;
    }
    ask_everything(node);
    xc_node_free(node);
    return true;
}

static void no_changed_byte_of_a_snapshot_crashes(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0xff, 0x01, 0x80};
    struct xc_node *node = read_machine(machine("two-node-2cpu"));
    xc_autofree void *bytes = NULL;
    size_t length, refused = 0;
    assert_int_equal(xc_node_image(node, &bytes, &length, NULL), 0);
    char *block = bytes;
    assert_true(adopt_copy(block, length));
    for (size_t at = 0; at < length; at++)
        for (size_t flip = 0; flip < XC_COUNT(flips); flip++) {
            block[at] = (char)(block[at] ^ flips[flip]);
            refused += !adopt_copy(block, length);
            block[at] = (char)(block[at] ^ flips[flip]);
        }
    assert_true(refused > 300); /* header, indices and strings are checked */
    for (size_t cut = 0; cut < length; cut++)
        assert_false(adopt_copy(block, cut));
    srand(1);
    for (unsigned round = 0; round < 20000; round++) { /* several bytes at once */
        char changed[16384];
        assert_true(length <= sizeof changed);
        memcpy(changed, block, length);
        for (int i = 0; i < 1 + rand() % 8; i++)
            changed[(size_t)rand() % length] = (char)rand();
        adopt_copy(changed, length);
    }
    xc_node_free(node);
}

/* ---- refresh -------------------------------------------------------------------------------------- */

static int refreshed(const char *path, const struct xc_node *node, struct xc_node **out)
{
    xc_autoroot struct xc_root *root = open_root(path);
    struct xc_error error = {0};
    int rc = xc_node_refresh(root, NULL, node, out, &error);
    if (rc < 0)
        fail_msg("%s", error.message);
    return rc;
}

static void refresh_reads_ports_and_sees_what_it_cannot(void **state)
{
    (void)state;
    const char *path = described("refresh", "cores 2\nmig 1\nnuma 0 cores=0-1 memory=1G\n"
                                            "host 0000:00 numa=0 gpu nic\n");
    struct xc_node *node = read_machine(path), *again = NULL;
    assert_int_equal(refreshed(path, node, &again), 0);
    assert_same(node, again);
    xc_node_free(again);
    put(path, "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    sh("rm -r %s/proc/driver/nvidia/capabilities", path);
    assert_int_equal(refreshed(path, node, &again), 0);
    assert_int_equal(again->nics[0].state, XC_PORT_DOWN);
    assert_int_equal(node->gpus[0].mig, 1);
    assert_int_equal(again->gpus[0].mig, 0);
    xc_node_free(again);
    put(path, "sys/devices/system/cpu/online", "0\n");
    assert_int_equal(refreshed(path, node, &again), 1);
    put(path, "sys/devices/system/cpu/online", "0-1\n");
    sh("mkdir -p %s/sys/class/infiniband/new0/ports/1", path);
    assert_int_equal(refreshed(path, node, &again), 1);
    sh("rmdir -p %s/sys/class/infiniband/new0/ports/1 2>/dev/null; "
       "rm %s/sys/bus/pci/devices/0000:01:00.0",
       path, path);
    assert_int_equal(refreshed(path, node, &again), 1);
    xc_node_free(node);
}

/* ---- archives ------------------------------------------------------------------------------------- */

static const char *const secrets[] = {"secret-host", "SERIAL0123", "b8:3f:d2", "b83f:d203",
                                      "4c4c4544",    "5ec2e7a1",   "b83fd2"};

/* The bytes of a compressed archive, in lower case. */
static char *unpacked(const char *file, size_t *length)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    struct xc_text text = XC_TEXT_INIT;
    char chunk[65536];
    archive_read_support_format_raw(archive);
    archive_read_support_filter_xz(archive);
    assert_int_equal(archive_read_open_filename(archive, file, 65536), ARCHIVE_OK);
    assert_int_equal(archive_read_next_header(archive, &entry), ARCHIVE_OK);
    for (ssize_t got; (got = archive_read_data(archive, chunk, sizeof chunk)) > 0;)
        xc_text_add_n(&text, chunk, (size_t)got);
    archive_read_free(archive);
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] >= 'A' && text.data[i] <= 'Z')
            text.data[i] = (char)(text.data[i] + 32);
    *length = text.length;
    return xc_text_take(&text);
}

static size_t secrets_in(const char *file)
{
    size_t length, found = 0;
    xc_autofree char *bytes = unpacked(file, &length);
    for (size_t i = 0; i < XC_COUNT(secrets); i++) {
        char lower[32];
        for (size_t c = 0; c <= strlen(secrets[i]); c++)
            lower[c] = (char)(secrets[i][c] >= 'A' && secrets[i][c] <= 'Z' ? secrets[i][c] + 32
                                                                           : secrets[i][c]);
        if (memmem(bytes, length, lower, strlen(lower))) {
            print_message("found %s\n", lower);
            found++;
        }
    }
    return found;
}

static void capture(const char *from, const char *to)
{
    xc_autoroot struct xc_root *root = open_root(from);
    xc_autoclose int fd = open(to, O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct xc_error error = {0};
    assert_true(fd >= 0);
    if (xc_machine_capture(root, fd, &error) < 0)
        fail_msg("%s", error.message);
}

static void a_captured_machine_is_the_same_without_its_secrets(void **state)
{
    (void)state;
    const char *file = below("captured.tar.xz");
    for (size_t i = 0; i < XC_COUNT(machines); i++) {
        if (xc_streq(machines[i].name, "huge"))
            continue; /* nothing new, and half a minute */
        capture(machine(machines[i].name), file);
        struct xc_node *before = read_machine(machine(machines[i].name));
        struct xc_node *after = read_machine(file);
        assert_same(before, after);
        assert_string_equal(after->boot_id, "");
        for (size_t gpu = 0; gpu < after->ngpus; gpu++) {
            char uuid[XC_UUID_TEXT];
            snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012zx", gpu);
            assert_string_equal(after->gpus[gpu].uuid, uuid);
        }
        assert_int_equal(secrets_in(file), 0);
        xc_node_free(before);
        xc_node_free(after);
    }
}

static void an_uncleaned_archive_would_show_the_secrets(void **state)
{
    (void)state;
    const char *file = below("raw.tar.xz");
    sh("python3 %s/tests/machines/make-machine two-node-2cpu --tar %s", XC_SRCDIR, file);
    assert_true(secrets_in(file) >= 5);
}

static void names_and_parameters_that_tell_stay_at_home(void **state)
{
    (void)state;
    const char *path = described(
        "telling", "cores 1\nnuma 0 cores=0 memory=1G\n"
                   "cmdline BOOT_IMAGE=/vmlinuz root=/dev/mapper/secret-host--17-root isolcpus=3 "
                   "ip=10.0.0.5::10.0.0.1 BOOTIF=01-b8-3f-d2-5e-c2-00 name=secret-host-17.example "
                   "intel_idle.max_cstate=1 -- --key 5ec2e7a1\n"
                   "host 0000:00 numa=0 eth(net=enxb83fd25ec200) eth(net=eno1)\n");
    const char *file = below("telling.tar.xz");
    sh("mkdir -p %s/sys/fs/cgroup/secret-host-17_slurmstepd.scope", path);
    put(path, "sys/fs/cgroup/secret-host-17_slurmstepd.scope/cpuset.cpus.effective", "0\n");
    capture(path, file);
    assert_int_equal(secrets_in(file), 0);
    xc_autoroot struct xc_root *root = open_root(file);
    xc_autofree char *cmdline = xc_root_read_line(root, "/proc/cmdline");
    assert_string_equal(cmdline, "BOOT_IMAGE=/vmlinuz root=REMOVED isolcpus=3 ip=REMOVED "
                                 "BOOTIF=REMOVED name=host intel_idle.max_cstate=1");
    assert_true(xc_root_exists(root, "/sys/class/net/eno1/device/class"));
}

/* An archive of these entries: "name", "name>target" a link, "name=target" a hard link, "name/" a
 * directory, "name!" a FIFO. */
static void make_archive(const char *file, const char *const *entries, size_t size)
{
    struct archive *archive = archive_write_new();
    archive_write_set_format_pax_restricted(archive);
    archive_write_add_filter_gzip(archive);
    assert_int_equal(archive_write_open_filename(archive, file), ARCHIVE_OK);
    xc_autofree char *content = malloc(size + 1);
    memset(content, '7', size);
    for (; *entries; entries++) {
        char name[512];
        struct archive_entry *entry = archive_entry_new();
        snprintf(name, sizeof name, "%s", *entries);
        size_t length = strlen(name), special = strcspn(name, ">=!");
        char kind = name[special];
        name[special] = '\0';
        archive_entry_set_pathname(entry, name);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_filetype(entry, AE_IFREG);
        if (kind == '>') {
            archive_entry_set_filetype(entry, AE_IFLNK);
            archive_entry_set_symlink(entry, name + special + 1);
        } else if (kind == '=') {
            archive_entry_set_hardlink(entry, name + special + 1);
        } else if (kind == '!') {
            archive_entry_set_filetype(entry, AE_IFIFO);
        } else if (name[length - 1] == '/') {
            archive_entry_set_filetype(entry, AE_IFDIR);
        } else {
            archive_entry_set_size(entry, (la_int64_t)size);
        }
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        if (!kind && name[length - 1] != '/')
            archive_write_data(archive, content, size);
        archive_entry_free(entry);
    }
    archive_write_close(archive);
    archive_write_free(archive);
}

static void links_in_an_archive_stay_inside_it(void **state)
{
    (void)state;
    static const char *const entries[] = {"top/sys/a/file",
                                          "top/sys/b>../sys/a",
                                          "top/sys/c>/sys/a/file",
                                          "top/sys/out>../../../../../../etc/passwd",
                                          "top/sys/loop>loop",
                                          "top/sys/d>e",
                                          "top/sys/e>d",
                                          "top/sys/hard=top/sys/a/file",
                                          "top/sys/fifo!",
                                          "top/sys/empty/",
                                          NULL};
    const char *file = below("links.tar.gz");
    make_archive(file, entries, 3);
    xc_autoroot struct xc_root *root = open_root(file);
    static const char *const good[] = {"/sys/a/file", "sys/b/file", "/sys/c", "//sys/./b/../hard",
                                       "/../../sys/b//file"};
    for (size_t i = 0; i < XC_COUNT(good); i++) {
        xc_autofree char *content = xc_root_read(root, NULL, NULL, "%s", good[i]);
        assert_non_null(content);
        assert_string_equal(content, "777");
    }
    static const char *const bad[] = {"/sys/out",   "/sys/loop",     "/sys/d",          "/sys/fifo",
                                      "/sys/empty", "/sys/a/file/x", "/top/sys/a/file", "/nothing"};
    for (size_t i = 0; i < XC_COUNT(bad); i++)
        assert_null(xc_root_read(root, NULL, NULL, "%s", bad[i]));
    xc_autofree char *canonical = xc_root_canonical(root, "/sys/b/file");
    assert_string_equal(canonical, "/sys/a/file");
    xc_autonames char **names = xc_root_list(root, "/sys/b");
    assert_string_equal(names[0], "file");
    assert_null(names[1]);
    xc_autonames char **none = xc_root_list(root, "/sys/empty");
    assert_non_null(none);
    assert_null(none[0]);
}

static void absurd_archives_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"a/../../b", NULL}, {"a", "a/b", NULL}, {"a/b", "a", NULL},
        {"a=b", NULL},       {"a>", NULL},       {"a>b", "a/c", NULL},
    };
    const char *file = below("bad.tar.gz");
    struct xc_root *root = NULL;
    struct xc_error error;
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        make_archive(file, bad[i], 3);
        error = (struct xc_error){0};
        assert_int_equal(xc_machine_open(file, XC_MACHINE_LIMIT, &root, &error), -1);
        assert_int_equal(error.code, XC_EINPUT);
    }
    static const char *const large[] = {"a", "b", NULL};
    make_archive(file, large, 1u << 20); /* compresses to nothing */
    assert_int_equal(xc_machine_open(file, 1u << 20, &root, &error), -1);
    assert_non_null(strstr(error.message, "1048576 bytes"));
    assert_int_equal(xc_machine_open(file, 3u << 20, &root, &error), 0);
    xc_root_close(root);
    sh("echo nothing > %s", file);
    assert_int_equal(xc_machine_open(file, XC_MACHINE_LIMIT, &root, &error), -1);
    assert_int_equal(xc_machine_open("/dev/null", XC_MACHINE_LIMIT, &root, &error), -1);
    assert_int_equal(xc_machine_open(below("nowhere"), XC_MACHINE_LIMIT, &root, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
}

static void a_damaged_archive_is_survived(void **state)
{
    (void)state;
    const char *good = below("whole.tar.xz"), *file = below("damaged.tar");
    sh("python3 %s/tests/machines/make-machine laptop --tar %s && xz -dc %s > %s", XC_SRCDIR, good,
       good, below("whole.tar"));
    int fd = open(below("whole.tar"), O_RDONLY);
    size_t length;
    xc_autofree char *bytes = xc_read_fd(fd, "tar", XC_MACHINE_LIMIT, &length, NULL);
    close(fd);
    srand(2);
    for (unsigned round = 0; round < 300; round++) {
        char before[16];
        size_t where[16];
        for (size_t i = 0; i < 16; i++) {
            where[i] = (size_t)rand() % length / 512 * 512 + (size_t)rand() % 160;
            before[i] = bytes[where[i] % length];
            bytes[where[i] % length] = (char)rand();
        }
        FILE *stream = fopen(file, "w");
        fwrite(bytes, 1, round % 2 ? length : (size_t)rand() % length, stream);
        fclose(stream);
        struct xc_root *root = NULL;
        struct xc_node *node = NULL;
        if (xc_machine_open(file, XC_MACHINE_LIMIT, &root, NULL) == 0)
            xc_node_read(root, NULL, &node, NULL);
        xc_node_free(node);
        xc_root_close(root);
        for (size_t i = 16; i-- > 0;)
            bytes[where[i] % length] = before[i];
    }
}

/* ---- hwloc ---------------------------------------------------------------------------------------- */

static void hwloc_sees_the_same_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < XC_COUNT(machines); i++) {
        const char *path = directory(machines[i].name);
        struct xc_node *node = read_machine(path),
                       *packed = read_machine(machine(machines[i].name));
        xc_autotext struct xc_text report = XC_TEXT_INIT;
        struct xc_error error = {0};
        assert_same(node, packed);
        if (xc_node_compare_hwloc(node, path, &report, &error) < 0)
            fail_msg("%s", error.message);
        if (report.length)
            fail_msg("%s:\n%s", machines[i].name, report.data);
        xc_node_free(node);
        xc_node_free(packed);
        sh("rm -rf %s", path);
    }
}

static void hwloc_tells_when_it_sees_another(void **state)
{
    (void)state;
    static const char *const pairs[][3] = {
        {"hgx-h100", "laptop", "core"},
        {"dgx-a100", "mig-h100", "L3"},
        {"gb200", "mig-h100", "memory nodes: 6, hwloc says 2"},
        {"two-node-2cpu", "laptop", "GPU 0000:13:00.0: hwloc does not have it"},
    };
    for (size_t i = 0; i < XC_COUNT(pairs); i++) {
        struct xc_node *node = read_machine(machine(pairs[i][0]));
        xc_autotext struct xc_text report = XC_TEXT_INIT;
        assert_int_equal(xc_node_compare_hwloc(node, directory(pairs[i][1]), &report, NULL), 0);
        assert_non_null(report.data);
        if (!strstr(report.data, pairs[i][2]))
            fail_msg("%s against %s:\n%s", pairs[i][0], pairs[i][1], report.data);
        xc_node_free(node);
    }
    struct xc_node *node = read_machine(machine("two-node-2cpu"));
    ((struct xc_gpu *)node->gpus)[0].numa = 0; /* a lie about one place */
    xc_autotext struct xc_text report = XC_TEXT_INIT;
    assert_int_equal(xc_node_compare_hwloc(node, directory("two-node-2cpu"), &report, NULL), 0);
    assert_string_equal(report.data, "GPU 0000:13:00.0: near CPUs 0, hwloc says 1\n");
    xc_node_free(node);
}

/* ---- Slurm's numbers ------------------------------------------------------------------------------ */

static void abstract(const struct xc_node *node, const char *os, const char *expected)
{
    xc_autoset struct xc_set in = XC_SET_EMPTY, out = XC_SET_EMPTY, back = XC_SET_EMPTY;
    struct xc_slurm_node slurm = {.found = true};
    assert_int_equal(xc_set_parse_list(&in, os, NULL, NULL), 0);
    assert_int_equal(xc_node_abstract_ids(node, &in, &out, NULL), 0);
    assert_set(&out, expected);
    slurm.cpu_spec_list = out;
    assert_int_equal(xc_node_slurm_spec(node, &slurm, &back, NULL), 0);
    xc_node_whole_cores(node, &in);
    assert_true(xc_set_equal(&in, &back));
}

static void slurm_counts_socket_core_thread(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("hgx-h100"));
    abstract(node, "0-7,56-63,112-119,168-175", "0-15,112-127");
    abstract(node, "0-7,56-63", "0-15,112-127"); /* whole cores */
    abstract(node, "223", "222-223");
    xc_autoset struct xc_set os = XC_SET_EMPTY, out = XC_SET_EMPTY;
    struct xc_error error = {0};
    xc_set_add(&os, 224);
    assert_int_equal(xc_node_abstract_ids(node, &os, &out, &error), -1);
    assert_non_null(strstr(error.message, "224"));
    xc_node_free(node);
    node = read_machine(described("adjacent", "sockets 2\ncores 4\nthreads 2\nnumbering adjacent\n"
                                              "numa 0 cores=0-3 memory=1G\n"
                                              "numa 1 cores=4-7 memory=1G\n"));
    abstract(node, "2-3,8", "2-3,8-9");
    xc_node_free(node);
}

/* OS CPUs that go round the sockets ("0 2 4 6" on socket 0), as some firmware numbers them. */
static void slurm_counts_by_place_not_by_number(void **state)
{
    (void)state;
    const char *path = described("round", "sockets 2\ncores 4\nnuma 0 cores=0-3 memory=1G\n"
                                          "numa 1 cores=4-7 memory=1G\n");
    for (int cpu = 0; cpu < 8; cpu++) {
        char file[100];
        snprintf(file, sizeof file, "sys/devices/system/cpu/cpu%d/topology/package_cpus_list", cpu);
        put(path, file, cpu % 2 ? "1,3,5,7\n" : "0,2,4,6\n");
    }
    put(path, "sys/devices/system/node/node0/cpulist", "0,2,4,6\n");
    put(path, "sys/devices/system/node/node1/cpulist", "1,3,5,7\n");
    struct xc_node *node = read_machine(path);
    abstract(node, "0,2", "0-1");
    abstract(node, "1", "4");
    xc_node_free(node);
}

static void reserved(const struct xc_node *node, struct xc_slurm_node slurm, const char *expected)
{
    xc_autoset struct xc_set out = XC_SET_EMPTY;
    struct xc_error error = {0};
    slurm.found = true;
    if (xc_node_slurm_spec(node, &slurm, &out, &error) < 0)
        fail_msg("%s", error.message);
    assert_set(&out, expected);
}

static void core_spec_count_goes_round_the_sockets(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("hgx-h100"));
    reserved(node, (struct xc_slurm_node){0}, "");
    reserved(node, (struct xc_slurm_node){.core_spec_count = 1}, "111,223");
    reserved(node, (struct xc_slurm_node){.core_spec_count = 4}, "54-55,110-111,166-167,222-223");
    reserved(node, (struct xc_slurm_node){.core_spec_count = 3, .spec_cores_first = true},
             "0-1,56,112-113,168");
    xc_node_free(node);
}

/* NodeName lines, and what slurmd 22.05.8 answered to them on the same machine. */
static void slurm_conf_means_what_slurmd_says(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        struct xc_slurm_node conf; /* count of CoreSpecCount, sockets, cores, threads, CPUs */
        const char *list, *slurmd;
    } cases[] = {
        {"hgx-h100",
         {.sockets = 2, .cores_per_socket = 56, .threads_per_core = 2, .cpus = 224},
         "0-15,112-127",
         "0-7,56-63,112-119,168-175"},
        {"hgx-h100",
         {.sockets = 2, .cores_per_socket = 56, .threads_per_core = 2, .cpus = 224},
         "3,56-57",
         "1,28,113,140"},
        {"hgx-h100",
         {.sockets = 2, .cores_per_socket = 56, .threads_per_core = 1, .cpus = 112},
         "3,56-57",
         "28,113,140"},
        {"hgx-h100",
         {.sockets = 2, .cores_per_socket = 56, .threads_per_core = 2, .cpus = 112},
         "3,56-57",
         "3,56-57,115,168-169"},
        {"hgx-h100", {.cpus = 224}, "3,56-57", "28,113,140"},
        {"hgx-h100", {.cpus = 224, .core_spec_count = 3}, NULL, "111,222-223"},
        {"hgx-h100",
         {.sockets = 2,
          .cores_per_socket = 56,
          .threads_per_core = 1,
          .cpus = 112,
          .core_spec_count = 3},
         NULL,
         "55,139,167"},
        {"hgx-h100",
         {.sockets = 2, .cores_per_socket = 56, .threads_per_core = 2, .core_spec_count = 4},
         NULL,
         "54-55,110-111,166-167,222-223"},
        {"dgx-a100",
         {.sockets = 2, .cores_per_socket = 64, .threads_per_core = 2, .core_spec_count = 5},
         NULL,
         "62-63,125-127,190-191,253-255"},
        {"dgx-a100", /* SlurmdParameters=numa_node_as_socket */
         {.sockets = 8, .cores_per_socket = 16, .threads_per_core = 2, .core_spec_count = 5},
         NULL,
         "63,79,95,111,127,191,207,223,239,255"},
        {"epyc-8numa", /* l3cache_as_socket */
         {.sockets = 16, .cores_per_socket = 8, .threads_per_core = 2, .core_spec_count = 3},
         NULL,
         "111,119,127,239,247,255"},
        {"gb200",
         {.sockets = 2, .cores_per_socket = 72, .threads_per_core = 1},
         "71-72,100",
         "71-72,100"},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_node *node = read_machine(machine(cases[i].machine));
        struct xc_slurm_node conf = cases[i].conf;
        if (cases[i].list)
            assert_int_equal(xc_set_parse_list(&conf.cpu_spec_list, cases[i].list, NULL, NULL), 0);
        reserved(node, conf, cases[i].slurmd);
        xc_set_free(&conf.cpu_spec_list);
        xc_node_free(node);
    }
}

static void slurm_conf_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    struct xc_node *node = read_machine(machine("hgx-h100"));
    struct xc_slurm_node bad[] = {
        {.core_spec_count = 112},
        {.core_spec_count = 1, .sockets = 4, .cores_per_socket = 56, .threads_per_core = 2},
        {.core_spec_count = 1, .sockets = 4000000000u, .cores_per_socket = 4000000000u},
        {.core_spec_count = 1, .threads_per_core = 4000000000u},
        {.core_spec_count = 1, .cpus = 225},
        {.core_spec_count = 1, .sockets = 1},
        {0}};
    xc_set_add(&bad[XC_COUNT(bad) - 1].cpu_spec_list, 224);
    xc_autoset struct xc_set out = XC_SET_EMPTY;
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        struct xc_error error = {0};
        assert_int_equal(xc_node_slurm_spec(node, &bad[i], &out, &error), -1);
        assert_int_equal(error.code, XC_EINPUT);
    }
    xc_set_free(&bad[XC_COUNT(bad) - 1].cpu_spec_list);
    xc_node_free(node);
}

static void what_slurm_reserves_is_flagged(void **state)
{
    (void)state;
    struct xc_slurm_node slurm = {.found = true};
    xc_set_add_range(&slurm.cpu_spec_list, 0, 15);
    struct xc_node_options options = {.slurm = &slurm};
    struct xc_node *node = read_with(machine("hgx-h100"), &options);
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_node_flagged(node, XC_CPU_SLURM_SPEC, &set);
    assert_set(&set, "0-7,112-119");
    xc_node_free(node);
    xc_set_free(&slurm.cpu_spec_list);
}

/* ---- all of them ----------------------------------------------------------------------------------- */

static int make_scratch(void **state)
{
    (void)state;
    struct statvfs fs;
    bool memory = statvfs("/dev/shm", &fs) == 0 && fs.f_bavail * fs.f_bsize > 1u << 30;
    snprintf(scratch, sizeof scratch, "%s/xcloud-test-node.XXXXXX", memory ? "/dev/shm" : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    sh("rm -rf %s", scratch);
    while (paths) {
        struct path *next = paths->next;
        free(paths);
        paths = next;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pci_addresses_are_read_in_any_case_and_width),
        cmocka_unit_test(cores_nodes_and_distances_are_answered),
        cmocka_unit_test(pci_paths_are_those_of_nvidia_smi),
        cmocka_unit_test(every_machine_is_read),
        cmocka_unit_test(memory_only_nodes_have_no_cpus),
        cmocka_unit_test(network_ports_have_state_rate_and_link),
        cmocka_unit_test(a_software_rdma_device_sits_on_its_netdev),
        cmocka_unit_test(offline_cpus_have_no_core),
        cmocka_unit_test(priority_needs_a_clear_minority),
        cmocka_unit_test(other_devices_can_stand_for_gpus),
        cmocka_unit_test(wrong_gpu_kinds_are_refused),
        cmocka_unit_test(without_the_driver_the_position_is_the_minor),
        cmocka_unit_test(the_kind_of_cpu_is_in_either_file),
        cmocka_unit_test(garbage_in_any_file_is_survived),
        cmocka_unit_test(broken_links_and_directories_are_survived),
        cmocka_unit_test(deep_bridges_are_an_error_or_short),
        cmocka_unit_test(a_snapshot_gives_back_the_machine),
        cmocka_unit_test(a_snapshot_of_others_or_of_another_boot_is_refused),
        cmocka_unit_test(no_changed_byte_of_a_snapshot_crashes),
        cmocka_unit_test(refresh_reads_ports_and_sees_what_it_cannot),
        cmocka_unit_test(a_captured_machine_is_the_same_without_its_secrets),
        cmocka_unit_test(an_uncleaned_archive_would_show_the_secrets),
        cmocka_unit_test(names_and_parameters_that_tell_stay_at_home),
        cmocka_unit_test(links_in_an_archive_stay_inside_it),
        cmocka_unit_test(absurd_archives_are_refused),
        cmocka_unit_test(a_damaged_archive_is_survived),
        cmocka_unit_test(hwloc_sees_the_same_machines),
        cmocka_unit_test(hwloc_tells_when_it_sees_another),
        cmocka_unit_test(slurm_counts_socket_core_thread),
        cmocka_unit_test(slurm_counts_by_place_not_by_number),
        cmocka_unit_test(core_spec_count_goes_round_the_sockets),
        cmocka_unit_test(slurm_conf_means_what_slurmd_says),
        cmocka_unit_test(slurm_conf_that_does_not_fit_is_an_error),
        cmocka_unit_test(what_slurm_reserves_is_flagged),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
