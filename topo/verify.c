/* Does the file say the truth about this machine? NCCL believes it and says nothing when it is about
 * another one: a bus id that is not here is a branch that nobody uses.
 *
 * In a virtual machine the PCI tree is the hypervisor's story: bridges are not compared, and speeds are
 * hints. */
#include <string.h>

#include <xcloud/plan.h>

#include "topo.h"

struct subject {
    const struct topo_tree *tree;
    const struct xc_node *node;
    const struct xc_rules *rules;
    struct xc_topo_findings *findings;
    int *pci;        /* of each element: its index in node->pci, XC_NONE */
    bool shows_tree; /* the machine's PCI is the real one, and the policy has no other map of it */
};

static const struct topo_element *element(const struct subject *s, int i)
{
    return &s->tree->elements[i];
}

static struct topo_place place_of(const struct topo_element *e, const char *key)
{
    const struct topo_attr *a = topo_attr(e, key);
    return a ? a->place : e->place;
}

static int find_pci(const struct xc_node *node, const char *busid)
{
    struct xc_bdf bdf;
    if (!busid || !xc_bdf_parse(busid, &bdf))
        return XC_NONE;
    for (size_t low = 0, high = node->npci; low < high;) {
        size_t middle = (low + high) / 2;
        int order = xc_bdf_compare(&bdf, &node->pci[middle].bdf);
        if (order == 0)
            return (int)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return XC_NONE;
}

static int gpu_of(const struct xc_node *node, int pci)
{
    for (size_t i = 0; pci >= 0 && i < node->ngpus; i++)
        if (node->gpus[i].pci == pci)
            return (int)i;
    return XC_NONE;
}

static int nic_of(const struct xc_node *node, int pci)
{
    for (size_t i = 0; pci >= 0 && i < node->nnics; i++)
        if (node->nics[i].pci == pci)
            return (int)i;
    return XC_NONE;
}

static const char *bdf_of(const struct xc_node *node, int pci, char text[XC_BDF_TEXT])
{
    return xc_bdf_text(&node->pci[pci].bdf, text);
}

/* The <cpu> that an element is below. */
static const struct topo_element *cpu_of(const struct subject *s, int i)
{
    while (i >= 0 && element(s, i)->kind != TOPO_CPU)
        i = element(s, i)->parent;
    return i >= 0 ? element(s, i) : NULL;
}

static bool is_leaf(const struct subject *s, int i)
{
    for (int c = element(s, i)->first; c >= 0; c = element(s, c)->next)
        if (element(s, c)->kind == TOPO_PCI)
            return false;
    return true;
}

/* ---- L1, L15: is it here? ------------------------------------------------------------------------ */

/* "GPUs 0000:1b:00.0, …; NICs …": what a stale address may have become. */
static void list_devices(const struct xc_node *node, char *out, size_t size)
{
    char text[XC_BDF_TEXT];
    size_t used = (size_t)snprintf(out, size, "here are%s", node->ngpus ? " GPUs" : "");
    for (size_t i = 0; i < node->ngpus && used < size - 60; i++)
        used += (size_t)snprintf(out + used, size - used, "%s %s", i ? "," : "",
                                 bdf_of(node, node->gpus[i].pci, text));
    if (node->nnics && used < size - 60)
        used += (size_t)snprintf(out + used, size - used, "%s NICs", node->ngpus ? ";" : "");
    size_t i = 0;
    for (const char *comma = ""; i < node->nnics && used < size - 60; i++)
        if (node->nics[i].pci >= 0 && node->nics[i].rdma[0]) {
            used += (size_t)snprintf(out + used, size - used, "%s %s", comma,
                                     bdf_of(node, node->nics[i].pci, text));
            comma = ",";
        }
    if (i < node->nnics)
        snprintf(out + used, size - used, ", …");
    if (!node->ngpus && !node->nnics)
        snprintf(out, size, "there are no GPUs and NICs here");
}

static void absent(const struct subject *s, int i)
{
    const struct topo_element *e = element(s, i);
    const char *class = topo_value(e, "class"), *busid = topo_value(e, "busid");
    char shown[TOPO_SHOWN];
    bool known = false, leaf = is_leaf(s, i);
    enum topo_class is = class ? topo_class_of(class, &known) : TOPO_IS_SWITCH;
    struct xc_topo_finding *f;
    if (leaf && (is == TOPO_IS_GPU || is == TOPO_IS_NIC || !class)) {
        f = topo_found(s->findings, "L1", TOPO_ERROR, place_of(e, "busid"),
                       "there is no GPU or NIC %s on this machine", topo_shown(busid, shown));
        topo_nccl(f, "not use this line, and place the device that is meant as the kernel does");
        char list[sizeof f->fix];
        list_devices(s->node, list, sizeof list);
        topo_fix(f, "%s", list);
    } else if (!leaf && s->shows_tree) {
        f = topo_found(s->findings, "L15", TOPO_WARNING, place_of(e, "busid"),
                       "the switch %s is not on this machine, which shows its own",
                       topo_shown(busid, shown));
        topo_nccl(f, "believe it");
        topo_fix(f, "xcloud topo generate");
    }
    if (!leaf && !class) {
        f = topo_found(s->findings, "L15", TOPO_ERROR, e->place,
                       "the switch %s is not on this machine and has no class",
                       topo_shown(busid, shown));
        topo_nccl(f, "end every job that uses what is below it");
        topo_fix(f, "class=\"0x060400\"");
    }
}

/* ---- L2, L3: is it the same thing, at the same place? -------------------------------------------- */

static void differs(const struct subject *s, const struct topo_element *e, const char *key,
                    unsigned is, int digits, const char *nccl)
{
    const char *text = topo_value(e, key);
    char shown[TOPO_SHOWN];
    if (!text || strtoul(text, NULL, 16) == is)
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L2", TOPO_ERROR, place_of(e, key),
                   "%s is %s; the device's is 0x%0*x", key, topo_shown(text, shown), digits, is);
    topo_nccl(f, "%s", nccl);
    topo_fix(f, "the file is another machine's, or leave %s out", key);
}

static void verify_identity(const struct subject *s, int i)
{
    const struct topo_element *e = element(s, i);
    const struct xc_pci *pci = &s->node->pci[s->pci[i]];
    const char *class = topo_value(e, "class");
    char text[16];
    bool known;
    snprintf(text, sizeof text, "0x%06x", pci->class);
    if (class && topo_class_of(class, &known) != topo_class_of(text, &known))
        differs(s, e, "class", pci->class, 6, "take what the kernel says for it");
    differs(s, e, "vendor", pci->vendor, 4, "tune for another device");
    differs(s, e, "device", pci->device, 4, "tune for another device");
}

static void verify_numa(const struct subject *s, int i)
{
    const struct topo_element *cpu = cpu_of(s, i);
    const struct xc_pci *pci = &s->node->pci[s->pci[i]];
    const char *numaid = cpu ? topo_value(cpu, "numaid") : NULL;
    long says;
    char bdf[XC_BDF_TEXT];
    if (!is_leaf(s, i) || pci->numa < 0 || !numaid || !xc_to_long(numaid, 0, 65535, &says) ||
        says == pci->numa)
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L3", TOPO_ERROR, place_of(element(s, i), "busid"),
                   "%s is below numaid %ld; the kernel has it on node %d",
                   bdf_of(s->node, s->pci[i], bdf), says, pci->numa);
    topo_nccl(f, "run its threads and keep its buffers on the wrong node");
    topo_fix(f, "move it below <cpu numaid=\"%d\">", pci->numa);
}

/* ---- L4, L5: NUMA nodes ---------------------------------------------------------------------------- */

static void verify_affinity(const struct subject *s, const struct topo_element *e, int numa)
{
    const char *text = topo_value(e, "affinity");
    xc_autoset struct xc_set says = XC_SET_EMPTY, is = XC_SET_EMPTY;
    if (!text || xc_set_parse_mask(&says, text, "affinity", NULL) < 0 || xc_set_empty(&says))
        return;
    xc_node_numa_cpus(s->node, numa, &is);
    if (xc_set_equal(&says, &is) || says.failed || is.failed)
        return;
    xc_autofree char *said = xc_set_format(&says), *cpus = xc_set_format(&is);
    bool apart = !xc_set_intersects(&says, &is);
    struct xc_topo_finding *f = topo_found(
        s->findings, "L5", apart ? TOPO_ERROR : TOPO_WARNING, place_of(e, "affinity"),
        "affinity is CPUs %.60s; node %d has %.60s", said ? said : "?", numa, cpus ? cpus : "?");
    topo_nccl(f, apart ? "run its threads on another node's CPUs"
                       : "run its threads on the CPUs that the file names");
    topo_fix(f, "leave affinity out: NCCL then asks the kernel");
}

/* Family and model: NCCL looks at Intel's alone (and writes others in a way of its own into dumps). */
static void verify_vendor(const struct subject *s, const struct topo_element *e)
{
    const struct xc_node *node = s->node;
    const char *vendor = topo_value(e, "vendor"), *family = topo_value(e, "familyid"),
               *model = topo_value(e, "modelid");
    char shown[TOPO_SHOWN], shown_model[TOPO_SHOWN];
    struct xc_topo_finding *f;
    if (!vendor || !node->cpu_vendor[0])
        return;
    if (!xc_streq(vendor, node->cpu_vendor)) {
        f = topo_found(s->findings, "L2", TOPO_ERROR, place_of(e, "vendor"),
                       "vendor is %s; this machine's CPUs are of \"%s\"", topo_shown(vendor, shown),
                       node->cpu_vendor);
        topo_nccl(f, "tune for another CPU");
        topo_fix(f, "vendor=\"%s\"", node->cpu_vendor);
    } else if (xc_streq(vendor, "GenuineIntel") && family && model &&
               (strtoul(family, NULL, 0) != node->cpu_family ||
                strtoul(model, NULL, 0) != node->cpu_model)) {
        f = topo_found(s->findings, "L2", TOPO_WARNING, place_of(e, "familyid"),
                       "familyid %s and modelid %s; this machine's CPUs are %u and %u",
                       topo_shown(family, shown), topo_shown(model, shown_model), node->cpu_family,
                       node->cpu_model);
        topo_nccl(f, "tune for another CPU");
        topo_fix(f, "familyid=\"%u\" modelid=\"%u\"", node->cpu_family, node->cpu_model);
    }
}

static void verify_cpu(const struct subject *s, const struct topo_element *e)
{
    const char *numaid = topo_value(e, "numaid"), *arch = topo_value(e, "arch");
    long numa;
    char shown[TOPO_SHOWN];
    struct xc_topo_finding *f;
    const char *is = topo_arch(s->node);
    if (arch && is && !xc_streq(arch, is)) {
        f = topo_found(s->findings, "L2", TOPO_ERROR, place_of(e, "arch"),
                       "arch is %s; this machine is %s", topo_shown(arch, shown), is);
        topo_nccl(f, "tune for another CPU, or end every job");
        topo_fix(f, "arch=\"%s\"", is);
    }
    verify_vendor(s, e);
    if (!numaid || !xc_to_long(numaid, 0, 65535, &numa))
        return;
    int index = xc_node_numa_index(s->node, (int)numa);
    if (index >= 0 && s->node->numas[index].ncpus > 0) {
        verify_affinity(s, e, (int)numa);
        return;
    }
    xc_autoset struct xc_set nodes = XC_SET_EMPTY;
    xc_node_cpu_numas(s->node, &nodes);
    xc_autofree char *list = xc_set_format(&nodes);
    f = topo_found(s->findings, "L4", TOPO_ERROR, place_of(e, "numaid"),
                   index < 0 ? "there is no NUMA node %ld here" : "NUMA node %ld has no CPUs",
                   numa);
    topo_nccl(f, "not know where its threads should run");
    topo_fix(f, "nodes with CPUs are %.80s", list && *list ? list : "not known");
}

/* ---- L6, L7: links ----------------------------------------------------------------------------------- */

static unsigned in_nccls_units(uint32_t mts)
{
    bool known;
    const char *text = topo_speed_text(mts);
    return text ? topo_speed(text, &known) : 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

/* What the link can do: the slower of its two ends, where both are known. */
static void link_of(const struct subject *s, int pci, uint32_t *speed, unsigned *width)
{
    const struct xc_pci *device = &s->node->pci[pci];
    const struct xc_pci *port =
        device->parent >= 0 && s->shows_tree ? &s->node->pci[device->parent] : device;
    *speed = least(device->max_speed_mts, port->max_speed_mts);
    *width = least(device->max_width, port->max_width);
}

static void verify_speed(const struct subject *s, int i, uint32_t mts)
{
    const struct topo_element *e = element(s, i);
    const char *text = topo_value(e, "link_speed");
    unsigned can = in_nccls_units(mts);
    bool known = false;
    unsigned says = text ? topo_speed(text, &known) : 0;
    if (!known || !can || says == can)
        return;
    bool error = says > can && s->shows_tree;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L6", error ? TOPO_ERROR : TOPO_WARNING, place_of(e, "link_speed"),
                   "link_speed is %.40s; the link can do %.1f GT/s", text, mts / 1000.0);
    topo_nccl(f, says > can ? "count on bandwidth that is not there"
                            : "use less of the link than there is");
    topo_fix(f, "link_speed=\"%s\"", topo_speed_text(mts));
}

static void verify_width(const struct subject *s, int i, unsigned can)
{
    const struct topo_element *e = element(s, i);
    const char *text = topo_value(e, "link_width");
    long says = text ? strtol(text, NULL, 0) : 0;
    says = text && says == 0 ? 16 : says;
    if (!text || says < 0 || !can || (unsigned long)says == can)
        return;
    bool more = (unsigned long)says > can;
    struct xc_topo_finding *f = topo_found(
        s->findings, "L6", more && s->shows_tree ? TOPO_ERROR : TOPO_WARNING,
        place_of(e, "link_width"), "link_width is %ld; the link has %u lanes", says, can);
    topo_nccl(f,
              more ? "count on bandwidth that is not there" : "use less of the link than there is");
    topo_fix(f, "link_width=\"%u\"", can);
}

/* A NIC whose link came up narrower or slower than it can; an idle GPU's is slow on purpose. */
static void verify_degraded(const struct subject *s, int i, uint32_t speed, unsigned width)
{
    const struct xc_pci *pci = &s->node->pci[s->pci[i]];
    char bdf[XC_BDF_TEXT];
    if (nic_of(s->node, s->pci[i]) < 0 || !pci->speed_mts || !pci->width ||
        (pci->speed_mts >= speed && pci->width >= width))
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L7", TOPO_WARNING, place_of(element(s, i), "busid"),
                   "the link of %s runs at %.1f GT/s x%u; it can do %.1f GT/s x%u",
                   bdf_of(s->node, s->pci[i], bdf), pci->speed_mts / 1000.0, pci->width,
                   speed / 1000.0, width);
    topo_nccl(f, "count on bandwidth that is not there");
    topo_fix(f, "reseat the card or its cable, then retrain the link");
}

static void verify_link(const struct subject *s, int i)
{
    uint32_t speed;
    unsigned width;
    if (!s->shows_tree && !is_leaf(s, i))
        return;
    link_of(s, s->pci[i], &speed, &width);
    verify_speed(s, i, speed);
    verify_width(s, i, width);
    if (s->shows_tree)
        verify_degraded(s, i, speed, width);
}

/* ---- L8, L9: is all of the machine in it? ----------------------------------------------------------- */

static bool in_file(const struct subject *s, int pci)
{
    for (int i = 0; i < s->tree->count; i++)
        if (s->pci[i] == pci)
            return true;
    return false;
}

static void verify_complete(const struct subject *s)
{
    char bdf[XC_BDF_TEXT];
    struct topo_place none = {0, 0};
    struct xc_topo_finding *f;
    for (size_t i = 0; i < s->node->ngpus; i++) {
        if (in_file(s, s->node->gpus[i].pci))
            continue;
        f = topo_found(s->findings, "L8", TOPO_ERROR, none, "GPU %zu (%s) is not in the file", i,
                       bdf_of(s->node, s->node->gpus[i].pci, bdf));
        topo_nccl(f, "place it as the kernel does: far from the NICs where that shows no switches");
        topo_fix(f, "add it, or xcloud topo generate");
    }
    for (size_t i = 0; i < s->node->nnics; i++) {
        const struct xc_nic *nic = &s->node->nics[i];
        bool wanted = nic->rdma[0] && nic->pci >= 0 && nic->state == XC_PORT_ACTIVE &&
                      (!s->rules || xc_plan_is_rail(s->node, s->rules, nic));
        if (!wanted || in_file(s, nic->pci))
            continue;
        f = topo_found(s->findings, "L9", TOPO_WARNING, none, "%s (%s) is up and not in the file",
                       nic->rdma, bdf_of(s->node, nic->pci, bdf));
        topo_nccl(f, "place it as the kernel does: far from the GPUs where that shows no switches");
        topo_fix(f, "add it, or say in nics: compute: that it is no rail");
    }
}

/* ---- L10 to L12: what a dump says of NICs -------------------------------------------------------------- */

static const struct xc_nic *nic_named(const struct xc_node *node, const char *name)
{
    for (size_t i = 0; i < node->nnics; i++)
        if (xc_streq(node->nics[i].rdma, name) || xc_streq(node->nics[i].netdev, name))
            return &node->nics[i];
    return NULL;
}

static void verify_net(const struct subject *s, int i)
{
    const struct topo_element *e = element(s, i);
    const char *name = topo_value(e, "name"), *speed = topo_value(e, "speed");
    const struct xc_nic *nic = name && *name ? nic_named(s->node, name) : NULL;
    char shown[TOPO_SHOWN], bdf[XC_BDF_TEXT];
    struct xc_topo_finding *f;
    int above = e->parent;
    while (above >= 0 && element(s, above)->kind != TOPO_PCI)
        above = element(s, above)->parent;
    if (name && !nic) {
        f = topo_found(s->findings, "L10", TOPO_ERROR, place_of(e, "name"),
                       "there is no NIC %s on this machine", topo_shown(name, shown));
        topo_nccl(f, "not use this line");
        topo_fix(f, "take gpu, nic and net elements out: xcloud topo normalize");
    } else if (nic && nic->pci >= 0 && (above < 0 || s->pci[above] != nic->pci)) {
        f = topo_found(s->findings, "L10", TOPO_ERROR, place_of(e, "name"),
                       "%s is %s here, and below another device in the file", name,
                       bdf_of(s->node, nic->pci, bdf));
        topo_nccl(f, "look for it by name and place it where the file says");
        topo_fix(f, "take gpu, nic and net elements out: xcloud topo normalize");
    }
    if (nic && speed && nic->rate_mbps && strtol(speed, NULL, 0) != (long)nic->rate_mbps) {
        f = topo_found(s->findings, "L11", TOPO_WARNING, place_of(e, "speed"),
                       "speed is %s; the port runs at %u Mb/s", topo_shown(speed, shown),
                       nic->rate_mbps);
        topo_nccl(f, "believe the file");
        topo_fix(f, "leave speed out");
    }
}

static void verify_gdr(const struct subject *s, const struct topo_element *e)
{
    const char *gdr = topo_value(e, "gdr");
    if (!gdr || strtol(gdr, NULL, 0) != 0)
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L12", TOPO_WARNING, place_of(e, "gdr"), "gdr is 0");
    topo_nccl(f, "not use GPUDirect RDMA with it, whatever the machine can");
    topo_fix(f, "leave gdr out");
}

/* ---- L13, L16: what a dump says of its own machine ----------------------------------------------------- */

/* Compute capability by PCI device id (pci.ids: the ids of a chip are one block); 0: not known. */
static unsigned sm_of(uint16_t device)
{
    static const struct {
        uint16_t first, last;
        unsigned sm;
    } chips[] = {
        {0x1d80, 0x1dff, 70},  /* GV100 */
        {0x1e80, 0x1eff, 75},  /* TU104 */
        {0x2080, 0x20ff, 80},  /* GA100 */
        {0x2200, 0x227f, 86},  /* GA102 */
        {0x2300, 0x237f, 90},  /* GH100 */
        {0x2680, 0x27ff, 89},  /* AD102 to AD104 */
        {0x2900, 0x29ff, 100}, /* GB100 */
        {0x3180, 0x31ff, 103}, /* GB102 */
    };
    for (size_t i = 0; i < XC_COUNT(chips); i++)
        if (device >= chips[i].first && device <= chips[i].last)
            return chips[i].sm;
    return 0;
}

static void verify_sm(const struct subject *s, int i)
{
    const struct topo_element *e = element(s, i);
    const char *sm = topo_value(e, "sm");
    int gpu = e->parent >= 0 ? gpu_of(s->node, s->pci[e->parent]) : XC_NONE;
    if (!sm || gpu < 0 || s->node->pci[s->node->gpus[gpu].pci].vendor != 0x10de)
        return;
    uint16_t device = s->node->pci[s->node->gpus[gpu].pci].device;
    char shown[TOPO_SHOWN];
    unsigned real = sm_of(device);
    if (real == 0 || strtol(sm, NULL, 0) == (long)real)
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L13", TOPO_ERROR, place_of(e, "sm"),
                   "sm is %s; this GPU (10de:%04x) has %u", topo_shown(sm, shown), device, real);
    topo_nccl(f, "believe the file, and tune for another GPU");
    topo_fix(f, "take gpu, nic and net elements out: xcloud topo normalize");
}

static void verify_host_hash(const struct subject *s, const struct topo_element *e)
{
    if (!topo_value(e, "host_hash"))
        return;
    struct xc_topo_finding *f =
        topo_found(s->findings, "L16", TOPO_WARNING, place_of(e, "host_hash"),
                   "host_hash is one host's, of the run that wrote the file");
    topo_nccl(f, "before 2.27 believe it, and mix up the nodes of a multi-node NVLink domain");
    topo_fix(f, "leave host_hash out");
}

/* ---- L14: who shares a switch ---------------------------------------------------------------------------- */

static bool share_in_file(const struct subject *s, int a, int b)
{
    for (int i = element(s, a)->parent; i >= 0 && element(s, i)->kind == TOPO_PCI;
         i = element(s, i)->parent)
        for (int j = element(s, b)->parent; j >= 0; j = element(s, j)->parent)
            if (i == j)
                return true;
    return false;
}

static void verify_pair(const struct subject *s, int gpu, int nic)
{
    enum xc_path path = xc_node_path(s->node, s->pci[gpu], s->pci[nic]);
    bool share = path <= XC_PATH_PXB, says = share_in_file(s, gpu, nic);
    char a[XC_BDF_TEXT], b[XC_BDF_TEXT];
    if (share == says)
        return;
    struct xc_topo_finding *f = topo_found(
        s->findings, "L14", TOPO_WARNING, place_of(element(s, nic), "busid"),
        "GPU %s and NIC %s %s", bdf_of(s->node, s->pci[gpu], a), bdf_of(s->node, s->pci[nic], b),
        share ? "share a switch, and not in the file" : "share no switch, and do in the file");
    topo_nccl(f, share ? "not use GPUDirect RDMA between them"
                       : "take the NIC for near and send through the CPU");
    topo_fix(f, "xcloud topo generate");
}

static void verify_pairs(const struct subject *s)
{
    for (int i = 0; i < s->tree->count && s->shows_tree; i++)
        for (int j = 0; gpu_of(s->node, s->pci[i]) >= 0 && j < s->tree->count; j++)
            if (nic_of(s->node, s->pci[j]) >= 0)
                verify_pair(s, i, j);
}

/* ---- all of it --------------------------------------------------------------------------------------------- */

static void verify_element(const struct subject *s, int i)
{
    const struct topo_element *e = element(s, i);
    if (e->kind == TOPO_CPU)
        verify_cpu(s, e);
    else if (e->kind == TOPO_NET)
        verify_net(s, i);
    if (e->kind == TOPO_NET || e->kind == TOPO_GPU)
        verify_gdr(s, e);
    if (e->kind == TOPO_GPU)
        verify_sm(s, i);
    if (e->kind == TOPO_CPU)
        verify_host_hash(s, e);
    if (e->kind != TOPO_PCI || !topo_busid_ok(topo_value(e, "busid") ? topo_value(e, "busid") : ""))
        return;
    if (s->pci[i] < 0) {
        absent(s, i);
        return;
    }
    verify_identity(s, i);
    verify_numa(s, i);
    verify_link(s, i);
}

int xc_topo_verify(const char *bytes, size_t length, const struct xc_node *node,
                   const struct xc_rules *rules, struct xc_topo_findings *findings,
                   struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    if (topo_lint(bytes, length, &tree, findings, error) < 0)
        return -1;
    if (xc_topo_refused(findings))
        return 0;
    xc_autofree int *pci = calloc(TOPO_ELEMENTS, sizeof *pci);
    if (!pci)
        return xc_error_nomem(error);
    struct subject s = {.tree = &tree,
                        .node = node,
                        .rules = rules,
                        .findings = findings,
                        .pci = pci,
                        .shows_tree = node->environment == XC_BARE && !(rules && rules->topo.nmap)};
    for (int i = 0; i < tree.count; i++)
        pci[i] = tree.elements[i].kind == TOPO_PCI
                     ? find_pci(node, topo_value(&tree.elements[i], "busid"))
                     : XC_NONE;
    for (int i = 0; i < tree.count; i++)
        verify_element(&s, i);
    verify_complete(&s);
    verify_pairs(&s);
    topo_sort(findings);
    return findings->failed ? xc_error_nomem(error) : 0;
}
