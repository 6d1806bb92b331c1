/* Are the priorities that RoCE needs lossless (PFC) and marked (ECN)? PFC is asked by netlink (DCB, as
 * lldptool and dcb do), in a child: the answer comes from the NIC's firmware. */
#include <errno.h>
#include <inttypes.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "live.h"

#define PRIORITIES 8

static bool is_roce(const struct xc_check_input *in, size_t nic)
{
    const struct xc_nic *n = &in->node->nics[nic];
    return chk_is_compute(in, nic) && n->link == XC_NIC_ETHERNET && n->netdev[0];
}

/* ---- in the child: netlink -------------------------------------------------------------------------- */

struct request {
    struct nlmsghdr head;
    struct dcbmsg dcb;
    struct nlattr attr;
    char name[16];
};

static int ask(int fd, const char *netdev)
{
    struct request request = {
        .head = {.nlmsg_len = sizeof request,
                 .nlmsg_type = RTM_GETDCB,
                 .nlmsg_flags = NLM_F_REQUEST},
        .dcb = {.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET},
        .attr = {.nla_len = sizeof(struct nlattr) + 16, .nla_type = DCB_ATTR_IFNAME}};
    snprintf(request.name, sizeof request.name, "%s", netdev);
    return send(fd, &request, sizeof request, 0) == sizeof request ? 0 : -errno;
}

/* The attribute of a type among those of length bytes; its content's length into *size. NULL: none, or
 * the message is not whole. */
static const char *find(const char *attrs, size_t length, unsigned type, size_t *size)
{
    while (length >= sizeof(struct nlattr)) {
        struct nlattr attr;
        memcpy(&attr, attrs, sizeof attr);
        if (attr.nla_len < sizeof attr || attr.nla_len > length)
            return NULL;
        if ((attr.nla_type & NLA_TYPE_MASK) == type) {
            *size = attr.nla_len - sizeof attr;
            return attrs + sizeof attr;
        }
        size_t step = NLA_ALIGN(attr.nla_len);
        if (step >= length)
            return NULL;
        attrs += step;
        length -= step;
    }
    return NULL;
}

void chk_dcb_answer(const char *netdev, const char *message, size_t length, int out)
{
    struct nlmsghdr head;
    size_t size, within;
    if (length < sizeof head)
        return;
    memcpy(&head, message, sizeof head);
    if (head.nlmsg_type == NLMSG_ERROR && length >= sizeof head + sizeof(int)) {
        int code;
        memcpy(&code, message + sizeof head, sizeof code);
        chk_probe_line(out, "dcb %s error %s", netdev, strerror(-code));
        return;
    }
    if (head.nlmsg_len > length || head.nlmsg_len < sizeof head + sizeof(struct dcbmsg))
        return;
    const char *ieee =
        find(message + sizeof head + sizeof(struct dcbmsg),
             head.nlmsg_len - sizeof head - sizeof(struct dcbmsg), DCB_ATTR_IEEE, &size);
    const char *pfc = ieee ? find(ieee, size, DCB_ATTR_IEEE_PFC, &within) : NULL;
    if (pfc && within >= sizeof(struct ieee_pfc)) {
        struct ieee_pfc value;
        memcpy(&value, pfc, sizeof value);
        chk_probe_line(out, "dcb %s pfc 0x%02x", netdev, value.pfc_en);
    }
}

static void one_netdev(int fd, const char *netdev, int out)
{
    _Alignas(struct nlmsghdr) char buffer[16384];
    int code = ask(fd, netdev);
    ssize_t got = code < 0 ? -1 : recv(fd, buffer, sizeof buffer, 0);
    if (got < 0)
        chk_probe_line(out, "dcb %s error %s", netdev, strerror(code < 0 ? -code : errno));
    else
        chk_dcb_answer(netdev, buffer, (size_t)got, out);
}

int chk_probe_dcb(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    struct timeval patience = {.tv_sec = 1};
    xc_autoclose int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    (void)deadline_ms;
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (size_t i = 0; fd >= 0 && i < input->node->nnics; i++)
        if (is_roce(input, i))
            one_netdev(fd, input->node->nics[i].netdev, out);
    chk_probe_line(out, "end");
    return 0;
}

/* ---- nic.pfc ---------------------------------------------------------------------------------------- */

static const struct xc_check_param priorities_params[] = {
    {"priorities", XC_PARAM_NAMES, NULL,
     "those that must be on, and no others: \"3\"; none: no priority; default: as at the other "
     "NICs",
     NULL},
    {0},
};

/* "3,4" as a mask. False: nothing is asked. A word that is no priority asks for what cannot be. */
static bool asked_priorities(const struct xc_check_input *in, unsigned *mask)
{
    const char *said = chk_param(in, "priorities");
    xc_autonames char **names = said ? xc_names_split(said) : NULL;
    *mask = 0;
    for (char **name = names; name && *name; name++) {
        long priority;
        if (xc_to_long(*name, 0, PRIORITIES - 1, &priority))
            *mask |= 1u << priority;
        else if (!xc_streq(*name, "none"))
            *mask |= 1u << PRIORITIES;
    }
    return said != NULL;
}

static void mask_text(unsigned mask, char text[32])
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i <= PRIORITIES && used < 24; i++)
        if (mask & 1u << i)
            used += (size_t)snprintf(text + used, 32 - used, "%s%u", used ? "," : "", i);
    if (!mask)
        snprintf(text, 32, "none");
}

struct port {
    const char *netdev;
    unsigned mask;
    bool known;
    char why[100]; /* not known */
};

/* Against the policy, else against the first port that is known. */
static void judge(const struct xc_check_input *in, struct xc_findings *out, const char *what,
                  const struct port *ports, size_t count, const char *hint)
{
    unsigned want;
    bool asked = asked_priorities(in, &want);
    size_t known = 0, before = out->count;
    char wanted[32], have[32];
    for (size_t i = 0; i < count; i++)
        if (ports[i].known) {
            want = !asked && known == 0 ? ports[i].mask : want;
            known++;
        }
    mask_text(want, wanted);
    for (size_t i = 0; i < count; i++) {
        mask_text(ports[i].mask, have);
        if (!ports[i].known)
            chk_say(out, asked ? XC_CHECK_UNKNOWN : XC_CHECK_NA,
                    (struct chk_words){.device = ports[i].netdev}, "%s is not shown: %s", what,
                    ports[i].why);
        else if (ports[i].mask != want)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = ports[i].netdev, .want = wanted, .hint = hint},
                    "%s is on at priority %s", what, have);
    }
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%s is on at priority %s of %zu ports",
                what, wanted, known);
}

#define PORTS_MAX 64

static size_t roce_ports(const struct xc_check_input *in, struct port *ports)
{
    size_t count = 0;
    for (size_t i = 0; i < in->node->nnics && count < PORTS_MAX; i++)
        if (is_roce(in, i))
            ports[count++] = (struct port){.netdev = in->node->nics[i].netdev};
    return count;
}

static bool no_roce(const struct xc_check_input *in, struct xc_findings *out, size_t count)
{
    if (count > 0)
        return false;
    if (!chk_no_compute(in, out))
        chk_say(out, XC_CHECK_NA, (struct chk_words){0},
                "the compute NICs are InfiniBand, which loses nothing by itself");
    return true;
}

static void run_pfc(const struct xc_check_input *in, struct xc_findings *out)
{
    struct port ports[PORTS_MAX];
    size_t count = roce_ports(in, ports);
    if (no_roce(in, out, count))
        return;
    const char *text = chk_live_text(in, out, XC_PROBE_DCB, NULL);
    for (size_t i = 0; text && i < count; i++) {
        char who[32];
        int64_t mask;
        snprintf(who, sizeof who, "dcb %s", ports[i].netdev);
        ports[i].known = chk_live_number(text, who, "pfc", &mask);
        ports[i].mask = ports[i].known ? (unsigned)mask & 0xff : 0;
        if (!chk_live_value(text, who, "error", ports[i].why, sizeof ports[i].why))
            snprintf(ports[i].why, sizeof ports[i].why, "the driver or its firmware keeps it");
    }
    if (text)
        judge(in, out, "PFC", ports, count, "mlnx_qos -i, or dcb pfc set; and the switch's side");
}

static const struct xc_check pfc = {
    .id = "nic.pfc",
    .code = "NIC07",
    .what = "RoCE ports have priority flow control where it is wanted (DCB)",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_CLI,
    .probes = XC_PROBE_DCB,
    .on_fail = XC_FAIL_WARN,
    .params = priorities_params,
    .run = run_pfc,
};

/* ---- nic.ecn ---------------------------------------------------------------------------------------- */

/* Both sides must be on: the one that marks (np) and the one that slows down (rp). */
static void read_ecn(const struct xc_check_input *in, struct port *port)
{
    for (unsigned i = 0; i < PRIORITIES; i++) {
        long np, rp;
        if (!xc_root_read_long(in->root, &np, "/sys/class/net/%s/ecn/roce_np/enable/%u",
                               port->netdev, i) ||
            !xc_root_read_long(in->root, &rp, "/sys/class/net/%s/ecn/roce_rp/enable/%u",
                               port->netdev, i))
            continue;
        port->known = true;
        if (np && rp)
            port->mask |= 1u << i;
    }
    snprintf(port->why, sizeof port->why, "this driver has no ecn directory in sysfs");
}

static void run_ecn(const struct xc_check_input *in, struct xc_findings *out)
{
    struct port ports[PORTS_MAX];
    size_t count = roce_ports(in, ports);
    if (no_roce(in, out, count))
        return;
    for (size_t i = 0; i < count; i++)
        read_ecn(in, &ports[i]);
    judge(in, out, "ECN", ports, count,
          "echo 1 > /sys/class/net/IF/ecn/roce_np/enable/PRIORITY, and roce_rp");
}

static const struct xc_check ecn = {
    .id = "nic.ecn",
    .code = "NIC08",
    .what = "RoCE ports mark congestion and slow down for it where it is wanted",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = priorities_params,
    .run = run_ecn,
};

const struct xc_check *const chk_dcb[] = {&pfc, &ecn, NULL};
