/* What would a right file be for this machine? One <cpu> for each NUMA node that has GPUs or NICs,
 * the switches that join at least two of them, and them. What NCCL reads from the machine itself (CPUs,
 * GPUs, NVLink, ports) is left to it. Where PCI says nothing the policy's map does. */
#include <string.h>

#include <xcloud/plan.h>

#include "topo.h"

struct leaf {
    int numa, group; /* XC_NONE: not known; not in the map */
    bool wanted;
};
struct making {
    const struct xc_node *node;
    const struct xc_rules *rules;
    const struct xc_topo_group *map;
    size_t nmap;
    struct leaf *leaves; /* one for each pci */
    bool *joins;         /* each pci: a bridge that joins two branches with leaves */
    int *numa;           /* each pci: of the first leaf below it */
    unsigned count;      /* elements written */
    struct xc_text *out;
    struct xc_error *error;
};

/* ---- which devices ------------------------------------------------------------------------------- */

static int bad(struct making *m, const struct xc_topo_group *group, const char *format, ...)
    xc_printf(3, 4);
static int bad(struct making *m, const struct xc_topo_group *group, const char *format, ...)
{
    char text[400], where[64] = "topo.map";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (group && group->line)
        snprintf(where, sizeof where, "topo.map (line %u)", group->line);
    return xc_error_set(m->error, XC_EINPUT, where, "%s", text);
}

static int find_gpu(const struct xc_node *node, const char *name)
{
    long number;
    struct xc_bdf bdf;
    if (xc_to_long(name, 0, 255, &number))
        return (size_t)number < node->ngpus ? node->gpus[number].pci : XC_NONE;
    for (size_t i = 0; xc_bdf_parse(name, &bdf) && i < node->ngpus; i++)
        if (xc_bdf_compare(&node->pci[node->gpus[i].pci].bdf, &bdf) == 0)
            return node->gpus[i].pci;
    return XC_NONE;
}

static int find_nic(const struct xc_node *node, const char *name)
{
    struct xc_bdf bdf;
    bool is_bdf = xc_bdf_parse(name, &bdf);
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (nic->pci >= 0 && (xc_streq(nic->rdma, name) || xc_streq(nic->netdev, name) ||
                              (is_bdf && xc_bdf_compare(&node->pci[nic->pci].bdf, &bdf) == 0)))
            return nic->pci;
    }
    return XC_NONE;
}

static void want_devices(struct making *m)
{
    const struct xc_node *node = m->node;
    for (size_t i = 0; i < node->npci; i++)
        m->leaves[i] = (struct leaf){.numa = node->pci[i].numa, .group = XC_NONE};
    for (size_t i = 0; i < node->ngpus; i++)
        m->leaves[node->gpus[i].pci].wanted = true;
    /* whatever a port's state is now: the file outlives it */
    for (size_t i = 0; i < node->nnics; i++)
        if (node->nics[i].pci >= 0 && node->nics[i].rdma[0] &&
            (!m->rules || xc_plan_is_rail(node, m->rules, &node->nics[i])))
            m->leaves[node->nics[i].pci].wanted = true;
}

/* ---- the map ------------------------------------------------------------------------------------- */

static int map_device(struct making *m, int group, const char *name, bool gpu)
{
    const struct xc_topo_group *g = &m->map[group];
    int pci = gpu ? find_gpu(m->node, name) : find_nic(m->node, name);
    if (pci < 0)
        return bad(m, g,
                   "there is no %s \"%.60s\" on this machine, which has %zu GPUs and %zu NICs",
                   gpu ? "GPU" : "NIC", name, m->node->ngpus, m->node->nnics);
    struct leaf *leaf = &m->leaves[pci];
    if (leaf->group >= 0 && leaf->group != group)
        return bad(m, g, "%s \"%.60s\" is below two switches", gpu ? "GPU" : "NIC", name);
    if (m->node->pci[pci].numa >= 0 && m->node->pci[pci].numa != g->numa)
        return bad(m, g, "%s \"%.60s\" is said to be on NUMA node %d; the kernel says %d",
                   gpu ? "GPU" : "NIC", name, g->numa, m->node->pci[pci].numa);
    leaf->group = group;
    leaf->numa = g->numa;
    leaf->wanted = true;
    return 0;
}

static int apply_map(struct making *m)
{
    for (size_t i = 0; i < m->nmap; i++) {
        const struct xc_topo_group *g = &m->map[i];
        int index = xc_node_numa_index(m->node, g->numa);
        if (index < 0 || m->node->numas[index].ncpus == 0)
            return bad(m, g, "NUMA node %d is not here, or has no CPUs", g->numa);
        for (size_t j = 0; g->gpus && g->gpus[j]; j++)
            if (map_device(m, (int)i, g->gpus[j], true) < 0)
                return -1;
        for (size_t j = 0; g->nics && g->nics[j]; j++)
            if (map_device(m, (int)i, g->nics[j], false) < 0)
                return -1;
    }
    return 0;
}

/* Where neither the kernel nor the map knows: the only NUMA node there is, or it must be said. */
static int settle_numa(struct making *m)
{
    xc_autoset struct xc_set nodes = XC_SET_EMPTY;
    xc_node_cpu_numas(m->node, &nodes);
    size_t count = xc_set_count(&nodes);
    for (size_t i = 0; i < m->node->npci; i++) {
        struct leaf *leaf = &m->leaves[i];
        char bdf[XC_BDF_TEXT];
        if (!leaf->wanted || leaf->numa >= 0)
            continue;
        if (count != 1)
            return bad(m, NULL,
                       "nobody says which of %zu NUMA nodes %s is on: this machine's PCI does not; "
                       "say it in the policy, as map: [{ numa: 0, gpus: 0, nics: mlx5_0 }, …]",
                       count, xc_bdf_text(&m->node->pci[i].bdf, bdf));
        leaf->numa = (int)xc_set_next(&nodes, 0);
    }
    return nodes.failed ? xc_error_nomem(m->error) : 0;
}

/* ---- bridges ------------------------------------------------------------------------------------- */

/* Marks the bridges above leaves (not those of the map) that join branches; numa: of what is below. */
static void find_bridges(struct making *m)
{
    const struct xc_node *node = m->node;
    xc_autofree int *branch = calloc(node->npci + 1, sizeof *branch);
    if (!branch) {
        m->out->failed = true;
        return;
    }
    for (size_t i = 0; i < node->npci; i++) {
        branch[i] = XC_NONE;
        m->numa[i] = XC_NONE;
    }
    for (size_t i = 0; i < node->npci; i++) {
        if (!m->leaves[i].wanted || m->leaves[i].group >= 0)
            continue;
        int below = (int)i;
        size_t steps = node->npci; /* a parent that goes round ends too */
        for (int p = node->pci[i].parent; p >= 0 && steps--; p = node->pci[p].parent) {
            m->joins[p] |= branch[p] >= 0 && branch[p] != below;
            if (branch[p] < 0)
                m->numa[p] = m->leaves[i].numa;
            branch[p] = below;
            below = p;
        }
        m->numa[i] = m->leaves[i].numa;
    }
}

/* The nearest bridge above that is written, XC_NONE: the CPU. */
static int written_above(const struct making *m, int pci)
{
    size_t steps = m->node->npci;
    int p = m->node->pci[pci].parent;
    while (p >= 0 && !m->joins[p] && steps--)
        p = m->node->pci[p].parent;
    return p;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

static uint32_t gen_speed(unsigned gen)
{
    static const uint32_t speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    return speeds[gen < XC_COUNT(speeds) ? gen : 0];
}

static void link_of(const struct making *m, int pci, uint32_t *speed, unsigned *width)
{
    const struct xc_pci *device = &m->node->pci[pci];
    bool bare = m->node->environment == XC_BARE;
    const struct xc_pci *port =
        bare && device->parent >= 0 ? &m->node->pci[device->parent] : device;
    *speed = least(device->max_speed_mts, port->max_speed_mts);
    *width = least(device->max_width, port->max_width);
    if (!topo_speed_text(*speed))
        *speed = 0;
}

/* Of an invented switch: what the policy says, or the fastest of its devices. */
static void link_of_group(const struct making *m, int group, uint32_t *speed, unsigned *width)
{
    *speed = gen_speed(m->map[group].gen);
    *width = 0;
    for (size_t i = 0; i < m->node->npci; i++) {
        uint32_t s;
        unsigned w;
        if (m->leaves[i].group != group)
            continue;
        link_of(m, (int)i, &s, &w);
        if (!m->map[group].gen && s > *speed)
            *speed = s;
        *width = w > *width ? w : *width;
    }
    *width = *width ? *width : 16;
}

static void open_pci(struct making *m, unsigned depth, const char *busid, unsigned class,
                     uint32_t speed, unsigned width, const char *end)
{
    m->count++;
    xc_text_addf(m->out, "%*s<pci busid=\"%s\" class=\"0x%06x\"", (int)depth * 2, "", busid, class);
    if (speed)
        xc_text_addf(m->out, " link_speed=\"%s\"", topo_speed_text(speed));
    if (width)
        xc_text_addf(m->out, " link_width=\"%u\"", width);
    xc_text_add(m->out, end);
}

static void write_leaf(struct making *m, unsigned depth, int pci)
{
    uint32_t speed, group_speed;
    unsigned width, group_width;
    char bdf[XC_BDF_TEXT];
    link_of(m, pci, &speed, &width);
    if (m->leaves[pci].group >= 0) {
        link_of_group(m, m->leaves[pci].group, &group_speed, &group_width);
        speed = speed ? speed : group_speed;
        width = width ? width : group_width;
    }
    open_pci(m, depth, xc_bdf_text(&m->node->pci[pci].bdf, bdf), m->node->pci[pci].class, speed,
             width, "/>\n");
}

/* What hangs below a written bridge, or with above XC_NONE directly at the NUMA node. */
static void write_below(struct making *m, unsigned depth, int above, int numa)
{
    for (size_t i = 0; i < m->node->npci && m->count <= TOPO_ELEMENTS; i++) {
        bool leaf = m->leaves[i].wanted && m->leaves[i].group < 0;
        if ((!leaf && !m->joins[i]) || (above < 0 && m->numa[i] != numa) ||
            written_above(m, (int)i) != above)
            continue;
        if (!m->joins[i]) {
            write_leaf(m, depth, (int)i);
            continue;
        }
        uint32_t speed;
        unsigned width;
        char bdf[XC_BDF_TEXT];
        link_of(m, (int)i, &speed, &width);
        open_pci(m, depth, xc_bdf_text(&m->node->pci[i].bdf, bdf), m->node->pci[i].class, speed,
                 width, ">\n");
        write_below(m, depth + 1, (int)i, numa);
        xc_text_addf(m->out, "%*s</pci>\n", (int)depth * 2, "");
    }
}

static int write_group(struct making *m, int group)
{
    uint32_t speed;
    unsigned width;
    char busid[XC_BDF_TEXT];
    link_of_group(m, group, &speed, &width);
    if (!speed)
        return bad(m, &m->map[group],
                   "its devices do not say how fast their links are; say it, as gen: 5");
    /* a bus of an impossible domain: no machine has it */
    snprintf(busid, sizeof busid, "ffff:%02x:%02x.0", 0xff - (unsigned)(group + 1) / 32,
             (unsigned)(group + 1) % 32);
    open_pci(m, 2, busid, 0x060400, speed, width, ">\n");
    for (size_t i = 0; i < m->node->npci; i++)
        if (m->leaves[i].group == group)
            write_leaf(m, 3, (int)i);
    xc_text_add(m->out, "    </pci>\n");
    return 0;
}

static bool numa_used(const struct making *m, int numa)
{
    for (size_t i = 0; i < m->node->npci; i++)
        if (m->leaves[i].wanted && m->leaves[i].numa == numa)
            return true;
    return false;
}

const char *topo_arch(const struct xc_node *node)
{
    return xc_streq(node->arch, "x86_64")    ? "x86_64"
           : xc_streq(node->arch, "aarch64") ? "arm64"
           : xc_starts(node->arch, "ppc64")  ? "ppc64"
                                             : NULL;
}

/* NCCL adds what is not there to the <cpu> of a GPU that it finds. A network interface that is no PCI
 * device goes below the first <cpu>, whichever that is, and without these NCCL then ends the job. */
static void write_cpu(struct making *m, int numa)
{
    const struct xc_node *node = m->node;
    xc_text_addf(m->out, "  <cpu numaid=\"%d\"", numa);
    const char *arch = topo_arch(node);
    if (arch)
        xc_text_addf(m->out, " arch=\"%s\"", arch);
    if (arch && node->cpu_vendor[0])
        xc_text_addf(m->out, " vendor=\"%s\" familyid=\"%u\" modelid=\"%u\"", node->cpu_vendor,
                     node->cpu_family, node->cpu_model);
    xc_text_add(m->out, ">\n");
}

static int write_all(struct making *m)
{
    xc_text_add(m->out,
                "<!-- Made by xcloud topo generate; xcloud topo verify holds it against the "
                "machine. -->\n<system version=\"1\">\n");
    m->count = 1;
    for (size_t n = 0; n < m->node->nnumas; n++) {
        int numa = m->node->numas[n].os;
        if (!numa_used(m, numa))
            continue;
        m->count++;
        write_cpu(m, numa);
        for (size_t g = 0; g < m->nmap; g++)
            if (m->map[g].numa == numa && write_group(m, (int)g) < 0)
                return -1;
        write_below(m, 2, XC_NONE, numa);
        xc_text_add(m->out, "  </cpu>\n");
    }
    xc_text_add(m->out, "</system>\n");
    return 0;
}

static int make(struct making *m)
{
    if (m->node->ngpus == 0)
        return xc_error_set(m->error, XC_EINPUT, NULL,
                            "this machine has no GPU: there is nothing that NCCL could be told");
    want_devices(m);
    if (apply_map(m) < 0 || settle_numa(m) < 0)
        return -1;
    find_bridges(m);
    if (write_all(m) < 0)
        return -1;
    if (m->count >= TOPO_ELEMENTS)
        return xc_error_set(m->error, XC_ENOTSUP, NULL,
                            "this machine needs more than the %d elements that NCCL reads; say in "
                            "nics: compute: which NICs are rails",
                            TOPO_ELEMENTS - 1);
    return m->out->failed ? xc_error_nomem(m->error) : 0;
}

int xc_topo_generate(const struct xc_node *node, const struct xc_rules *rules, struct xc_text *out,
                     struct xc_error *error)
{
    struct making m = {.node = node,
                       .rules = rules,
                       .map = rules ? rules->topo.map : NULL,
                       .nmap = rules ? rules->topo.nmap : 0,
                       .leaves = calloc(node->npci + 1, sizeof *m.leaves),
                       .joins = calloc(node->npci + 1, sizeof *m.joins),
                       .numa = calloc(node->npci + 1, sizeof *m.numa),
                       .out = out,
                       .error = error};
    int rc = !m.leaves || !m.joins || !m.numa ? xc_error_nomem(error) : make(&m);
    free(m.leaves);
    free(m.joins);
    free(m.numa);
    return rc;
}
