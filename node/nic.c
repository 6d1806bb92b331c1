/* Which network ports are there: RDMA ports, and netdevs on PCI that have no RDMA? */
#include <string.h>

#include "reader.h"

#define RDMA "/sys/class/infiniband"
#define NET  "/sys/class/net"

#define PORTS_MAX 254 /* a port number is one byte of an RDMA address, 255 and 0 are special */

/* ---- one port --------------------------------------------------------------------------------------- */

/* "4: ACTIVE" */
static uint32_t port_state(const char *text)
{
    static const char *const names[] = {"", "1: DOWN", "2: INIT", "3: ARMED", "4: ACTIVE"};
    for (uint32_t state = XC_PORT_DOWN; state <= XC_PORT_ACTIVE; state++)
        if (xc_starts(text, names[state]))
            return state;
    return XC_PORT_UNKNOWN;
}

static uint32_t link_layer(const char *text)
{
    return xc_streq(text, "InfiniBand") ? XC_NIC_INFINIBAND
           : xc_streq(text, "Ethernet") ? XC_NIC_ETHERNET
                                        : 0;
}

static void read_rdma_port(struct node_reader *reader, struct xc_nic *nic)
{
    xc_autofree char *state =
        xc_root_read_line(reader->root, RDMA "/%s/ports/%d/state", nic->rdma, nic->port);
    xc_autofree char *rate =
        xc_root_read_line(reader->root, RDMA "/%s/ports/%d/rate", nic->rdma, nic->port);
    xc_autofree char *link =
        xc_root_read_line(reader->root, RDMA "/%s/ports/%d/link_layer", nic->rdma, nic->port);
    nic->state = state ? port_state(state) : XC_PORT_UNKNOWN;
    nic->rate_mbps = rate ? node_thousandths(rate) : 0; /* "400 Gb/sec (4X NDR)" */
    nic->link = link ? link_layer(link) : 0;
}

static void read_netdev(struct node_reader *reader, struct xc_nic *nic)
{
    xc_autofree char *state = xc_root_read_line(reader->root, NET "/%s/operstate", nic->netdev);
    long value;
    nic->state = !state                       ? XC_PORT_UNKNOWN
                 : xc_streq(state, "up")      ? XC_PORT_ACTIVE
                 : xc_streq(state, "unknown") ? XC_PORT_UNKNOWN
                                              : XC_PORT_DOWN;
    nic->rate_mbps = xc_root_read_long(reader->root, &value, NET "/%s/speed", nic->netdev) &&
                             value > 0 && value <= UINT32_MAX
                         ? (uint32_t)value /* -1 when the link is down */
                         : 0;
    nic->link = 0;
    if (xc_root_read_long(reader->root, &value, NET "/%s/type", nic->netdev)) /* ARPHRD_* */
        nic->link = value == 1 ? XC_NIC_ETHERNET : value == 32 ? XC_NIC_INFINIBAND : 0;
}

void node_read_port(struct node_reader *reader, struct xc_nic *nic)
{
    if (nic->rdma[0])
        read_rdma_port(reader, nic);
    else
        read_netdev(reader, nic);
}

static int add_nic(struct node_reader *reader, const struct xc_nic *nic)
{
    if (reader->nnics >= XC_NODE_NICS_MAX)
        return xc_error_set(reader->error, XC_EINPUT, RDMA, "more than %d network ports",
                            XC_NODE_NICS_MAX);
    struct xc_nic *array =
        node_grow(reader, reader->nics, reader->nnics, &reader->nics_size, sizeof *array);
    if (!array)
        return -1;
    reader->nics = array;
    array[reader->nnics] = *nic;
    node_read_port(reader, &array[reader->nnics++]);
    return 0;
}

/* ---- RDMA devices ----------------------------------------------------------------------------------- */

static bool copy_name(char *to, size_t size, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= size)
        return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c > '~')
            return false;
    memcpy(to, name, length + 1);
    return true;
}

/* The netdev of a port: the one below the device whose dev_port is the port's (counted from 0). */
static void find_netdev(struct node_reader *reader, const char *device, struct xc_nic *nic)
{
    xc_autonames char **names = xc_root_list(reader->root, "%s/net", device);
    for (char **name = names; name && *name; name++) {
        long port = 0;
        xc_root_read_long(reader->root, &port, "%s/net/%s/dev_port", device, *name);
        if (port == nic->port - 1 && copy_name(nic->netdev, sizeof nic->netdev, *name))
            return;
    }
}

static int add_ports(struct node_reader *reader, struct xc_nic *nic, const char *device)
{
    xc_autonames char **ports = xc_root_list(reader->root, RDMA "/%s/ports", nic->rdma);
    bool given = nic->netdev[0] != '\0';
    for (char **port = ports; port && *port; port++) {
        long number;
        if (!xc_to_long(*port, 1, PORTS_MAX, &number))
            continue;
        nic->port = (int32_t)number;
        if (!given) {
            nic->netdev[0] = '\0';
            if (device)
                find_netdev(reader, device, nic);
        }
        if (add_nic(reader, nic) < 0)
            return -1;
    }
    return 0;
}

/* A device has a link to its PCI function. A software one (rxe, siw) names its netdev instead. */
static int add_rdma(struct node_reader *reader, const char *name)
{
    struct xc_nic nic = {.pci = XC_NONE, .numa = XC_NONE};
    if (!copy_name(nic.rdma, sizeof nic.rdma, name))
        return 0;
    xc_autofree char *device = xc_root_canonical(reader->root, RDMA "/%s/device", name);
    if (!device) {
        xc_autofree char *parent = xc_root_read_line(reader->root, RDMA "/%s/parent", name);
        if (parent && copy_name(nic.netdev, sizeof nic.netdev, parent))
            device = xc_root_canonical(reader->root, NET "/%s/device", parent);
    }
    if (device && node_pci_add(reader, device, &nic.pci) < 0)
        return -1;
    if (nic.pci >= 0)
        nic.numa = reader->pci[nic.pci].numa;
    return add_ports(reader, &nic, device);
}

/* ---- netdevs without RDMA --------------------------------------------------------------------------- */

static bool known(const struct node_reader *reader, const char *netdev, int32_t pci)
{
    for (size_t i = 0; i < reader->nnics; i++)
        if (xc_streq(reader->nics[i].netdev, netdev) ||
            (reader->nics[i].rdma[0] && reader->nics[i].pci == pci))
            return true;
    return false;
}

/* Network controllers alone (PCI class 02): a USB stick's netdev hangs below a PCI function too. */
static int add_netdev(struct node_reader *reader, const char *name)
{
    struct xc_nic nic = {.pci = XC_NONE};
    xc_autofree char *device = xc_root_canonical(reader->root, NET "/%s/device", name);
    if (!device || !strstr(device, "/pci") || !copy_name(nic.netdev, sizeof nic.netdev, name))
        return 0;
    size_t before = reader->npci;
    if (node_pci_add(reader, device, &nic.pci) < 0)
        return -1;
    if (nic.pci < 0)
        return 0;
    const struct xc_pci *pci = &reader->pci[nic.pci];
    if (pci->class >> 16 != 0x02 || known(reader, name, nic.pci)) {
        if (pci->class >> 16 != 0x02)
            reader->npci = before; /* nothing else refers to what was added */
        return 0;
    }
    nic.numa = pci->numa;
    return add_nic(reader, &nic);
}

/* ---- all of them ------------------------------------------------------------------------------------ */

struct sortable {
    struct xc_nic nic;
    bool has_pci;
    struct xc_bdf bdf;
};

static int by_place(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    int order = (int)y->has_pci - (int)x->has_pci;
    if (order == 0)
        order = xc_bdf_compare(&x->bdf, &y->bdf);
    if (order == 0)
        order = (x->nic.port > y->nic.port) - (x->nic.port < y->nic.port);
    if (order == 0)
        order = strcmp(x->nic.rdma, y->nic.rdma);
    return order ? order : strcmp(x->nic.netdev, y->nic.netdev);
}

/* By BDF and port; those without a PCI function last. */
static int sort_nics(struct node_reader *reader)
{
    if (reader->nnics == 0)
        return 0;
    xc_autofree struct sortable *list = calloc(reader->nnics, sizeof *list);
    if (!list)
        return xc_error_nomem(reader->error);
    for (size_t i = 0; i < reader->nnics; i++) {
        list[i].nic = reader->nics[i];
        list[i].has_pci = reader->nics[i].pci >= 0;
        if (list[i].has_pci)
            list[i].bdf = reader->pci[reader->nics[i].pci].bdf;
    }
    qsort(list, reader->nnics, sizeof *list, by_place);
    for (size_t i = 0; i < reader->nnics; i++)
        reader->nics[i] = list[i].nic;
    return 0;
}

int node_read_nics(struct node_reader *reader)
{
    xc_autonames char **rdma = xc_root_list(reader->root, RDMA);
    for (char **name = rdma; name && *name; name++)
        if (add_rdma(reader, *name) < 0)
            return -1;
    xc_autonames char **nets = xc_root_list(reader->root, NET);
    for (char **name = nets; name && *name; name++)
        if (add_netdev(reader, *name) < 0)
            return -1;
    return sort_nics(reader);
}
