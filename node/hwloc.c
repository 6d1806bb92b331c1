/* Does hwloc see the same machine? An independent witness of what this room reads: packages, cores,
 * PUs, L3s, memory nodes, and where GPUs and NICs are. It compiles with hwloc 2.4 to 2.12, and with
 * 3.0, whose PCI domains and object types it does not depend on. */
#include <hwloc.h>
#include <string.h>

#include <xcloud/node.h>

struct witness {
    const struct xc_node *node;
    hwloc_topology_t topology;
    struct xc_text *report;
};

static void free_topology(hwloc_topology_t *topology)
{
    if (*topology)
        hwloc_topology_destroy(*topology);
}

/* ---- sets --------------------------------------------------------------------------------------------- */

static void from_bitmap(hwloc_const_bitmap_t bitmap, struct xc_set *out)
{
    xc_set_clear(out);
    if (!bitmap)
        return;
    for (int i = hwloc_bitmap_first(bitmap); i >= 0 && i < XC_SET_LIMIT;
         i = hwloc_bitmap_next(bitmap, i))
        xc_set_add(out, (size_t)i);
}

/* One line when the sets differ. */
static void compare_sets(const struct witness *witness, const char *what, int number,
                         const struct xc_set *ours, hwloc_const_bitmap_t theirs)
{
    xc_autoset struct xc_set other = XC_SET_EMPTY;
    from_bitmap(theirs, &other);
    if (xc_set_equal(ours, &other))
        return;
    xc_text_addf(witness->report, "%s %d: CPUs ", what, number);
    xc_text_add_set(witness->report, ours);
    xc_text_add(witness->report, ", hwloc says ");
    xc_text_add_set(witness->report, &other);
    xc_text_add(witness->report, "\n");
}

static int32_t package_of(const struct xc_cpu *cpu)
{
    return cpu->package;
}

static int32_t core_of(const struct xc_cpu *cpu)
{
    return cpu->core;
}

static int32_t l3_of(const struct xc_cpu *cpu)
{
    return cpu->l3;
}

/* Groups of CPUs as a partition: hwloc may count groups in another order, so each of its objects is
 * looked up by its first CPU. */
static void compare_groups(const struct witness *witness, const char *what, hwloc_obj_type_t type,
                           size_t count, int32_t (*group_of)(const struct xc_cpu *))
{
    const struct xc_node *node = witness->node;
    int theirs = hwloc_get_nbobjs_by_type(witness->topology, type);
    if (theirs >= 0 && (size_t)theirs != count)
        xc_text_addf(witness->report, "%s: %zu, hwloc says %d\n", what, count, theirs);
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(witness->topology, type, object))) {
        xc_autoset struct xc_set ours = XC_SET_EMPTY;
        int index = xc_node_cpu_index(node, hwloc_bitmap_first(object->cpuset));
        int32_t group = index >= 0 ? group_of(&node->cpus[index]) : XC_NONE;
        for (size_t i = 0; group >= 0 && i < node->ncpus; i++)
            if (group_of(&node->cpus[i]) == group)
                xc_set_add(&ours, (size_t)node->cpus[i].os);
        compare_sets(witness, what, (int)object->logical_index, &ours, object->cpuset);
    }
}

/* ---- memory nodes ---------------------------------------------------------------------------------------- */

static void compare_numas(const struct witness *witness)
{
    const struct xc_node *node = witness->node;
    int theirs = hwloc_get_nbobjs_by_type(witness->topology, HWLOC_OBJ_NUMANODE);
    if (theirs >= 0 && (size_t)theirs != node->nnumas)
        xc_text_addf(witness->report, "memory nodes: %zu, hwloc says %d\n", node->nnumas, theirs);
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(witness->topology, HWLOC_OBJ_NUMANODE, object))) {
        xc_autoset struct xc_set ours = XC_SET_EMPTY;
        int number = (int)object->os_index, index = xc_node_numa_index(node, number);
        if (index < 0) {
            xc_text_addf(witness->report, "memory node %d: not here, hwloc has it\n", number);
            continue;
        }
        xc_node_numa_cpus(node, number, &ours);
        compare_sets(witness, "memory node", number, &ours, object->cpuset);
        uint64_t memory = object->attr->numanode.local_memory;
        if (memory != node->numas[index].memory)
            xc_text_addf(witness->report, "memory node %d: %llu bytes, hwloc says %llu\n", number,
                         (unsigned long long)node->numas[index].memory, (unsigned long long)memory);
    }
}

/* ---- devices ----------------------------------------------------------------------------------------------- */

static hwloc_obj_t find_pci(hwloc_topology_t topology, const struct xc_bdf *bdf)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_pcidev(topology, object)))
        if (object->attr->pcidev.domain == bdf->domain && object->attr->pcidev.bus == bdf->bus &&
            object->attr->pcidev.dev == bdf->device && object->attr->pcidev.func == bdf->function)
            break;
    return object;
}

static bool has_memory_only(const struct xc_node *node)
{
    for (size_t i = 0; i < node->nnumas; i++)
        if (node->numas[i].ncpus == 0)
            return true;
    return false;
}

/* Near which CPUs a device is in hwloc's tree. A device on a memory node without CPUs hangs above all
 * of them there, while we name the nearest node that has some: that is no difference. */
static void compare_place(const struct witness *witness, const char *what, int32_t pci,
                          int32_t numa)
{
    const struct xc_node *node = witness->node;
    char bdf[XC_BDF_TEXT];
    xc_bdf_text(&node->pci[pci].bdf, bdf);
    hwloc_obj_t device = find_pci(witness->topology, &node->pci[pci].bdf);
    if (!device) {
        xc_text_addf(witness->report, "%s %s: hwloc does not have it\n", what, bdf);
        return;
    }
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(witness->topology, device);
    xc_autoset struct xc_set ours = XC_SET_EMPTY, theirs = XC_SET_EMPTY;
    from_bitmap(place->cpuset, &theirs);
    if (has_memory_only(node) && (xc_set_empty(&theirs) || place->depth == 0))
        return;
    if (numa == XC_NONE)
        xc_node_online(node, &ours);
    else
        xc_node_numa_cpus(node, numa, &ours);
    if (xc_set_equal(&ours, &theirs))
        return;
    xc_text_addf(witness->report, "%s %s: near CPUs ", what, bdf);
    xc_text_add_set(witness->report, &ours);
    xc_text_add(witness->report, ", hwloc says ");
    xc_text_add_set(witness->report, &theirs);
    xc_text_add(witness->report, "\n");
}

static void compare_devices(const struct witness *witness)
{
    const struct xc_node *node = witness->node;
    for (size_t i = 0; i < node->ngpus; i++)
        compare_place(witness, "GPU", node->gpus[i].pci, node->gpus[i].numa);
    for (size_t i = 0; i < node->nnics; i++)
        if (node->nics[i].pci >= 0)
            compare_place(witness, "NIC", node->nics[i].pci, node->nics[i].numa);
    for (size_t i = 0; i < node->npci; i++) {
        hwloc_obj_t device = find_pci(witness->topology, &node->pci[i].bdf);
        char bdf[XC_BDF_TEXT];
        if (device && device->attr->pcidev.vendor_id != node->pci[i].vendor)
            xc_text_addf(witness->report, "PCI %s: vendor %04x, hwloc says %04x\n",
                         xc_bdf_text(&node->pci[i].bdf, bdf), node->pci[i].vendor,
                         (unsigned)device->attr->pcidev.vendor_id);
    }
}

/* ---- loading ----------------------------------------------------------------------------------------------- */

static int load(const char *directory, hwloc_topology_t *topology, struct xc_error *error)
{
    static const char *const components[] = {"x86",  "gl",   "opencl",   "cuda",
                                             "nvml", "rsmi", "levelzero"};
    /* Plugins are loaded by the first init, before any of them can be switched off: so this goes by
     * the environment, and this function is for programs, not for libraries. */
    if (setenv("HWLOC_PLUGINS_BLACKLIST",
               "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,"
               "hwloc_levelzero.so",
               1) < 0 ||
        (directory &&
         (setenv("HWLOC_FSROOT", directory, 1) < 0 || setenv("HWLOC_THISSYSTEM", "0", 1) < 0)))
        return xc_error_nomem(error);
    if (!directory) {
        unsetenv("HWLOC_FSROOT");
        unsetenv("HWLOC_THISSYSTEM");
    }
    if (hwloc_topology_init(topology) < 0)
        return xc_error_errno(error, "hwloc", "cannot start it");
    for (size_t i = 0; i < XC_COUNT(components); i++)
        hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      components[i]);
    hwloc_topology_set_flags(*topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(*topology) < 0)
        return xc_error_errno(error, "hwloc", "it cannot read the machine");
    return 0;
}

int xc_node_compare_hwloc(const struct xc_node *node, const char *directory, struct xc_text *report,
                          struct xc_error *error)
{
    xc_cleanup(free_topology) hwloc_topology_t topology = NULL;
    if (load(directory, &topology, error) < 0)
        return -1;
    struct witness witness = {.node = node, .topology = topology, .report = report};
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    xc_node_online(node, &online);
    compare_sets(&witness, "machine", 0, &online, hwloc_topology_get_topology_cpuset(topology));
    compare_groups(&witness, "package", HWLOC_OBJ_PACKAGE, node->npackages, package_of);
    compare_groups(&witness, "core", HWLOC_OBJ_CORE, node->ncores, core_of);
    compare_groups(&witness, "L3", HWLOC_OBJ_L3CACHE, node->nl3, l3_of);
    compare_numas(&witness);
    compare_devices(&witness);
    return report->failed ? xc_error_nomem(error) : 0;
}
