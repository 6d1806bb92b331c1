/* Are all compute NICs there, up, at full rate, in full slots, and quiet? Only devices that the policy
 * names are asked: reading counters of others floods the kernel's log on some boards. */
#include <ctype.h>
#include <inttypes.h>

#include "links.h"

#define RDMA "/sys/class/infiniband"

static size_t count_compute(const struct xc_check_input *in)
{
    size_t count = 0;
    for (size_t i = 0; i < in->node->nnics; i++)
        count += chk_is_compute(in, i);
    return count;
}

/* ---- nic.count ------------------------------------------------------------------------------------------ */

static const struct xc_check_param count_params[] = {
    {"count", XC_PARAM_NUMBER, NULL, "compute NICs; default: expect: nics: count", NULL},
    {0},
};

/* Selectors that match nothing would let every other check of NICs pass over a node without any. */
static void none_expected(const struct xc_check_input *in, struct xc_findings *out)
{
    bool gpus = in->node->ngpus > 0 || in->rules->expect.has_gpus, any = false;
    for (size_t i = 0; i < in->node->nnics; i++)
        any |= chk_is_rail(in, i);
    if (gpus && !any && chk_names_nics(in))
        chk_say(out, XC_CHECK_WARN,
                (struct chk_words){.hint =
                                       "lspci -nn says what there is; expect: nics: count makes "
                                       "it a failure when they are gone"},
                "the policy names compute NICs (nics: compute:), and none of %zu here is one",
                in->node->nnics);
    else
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "the policy expects no number of NICs");
}

static void run_count(const struct xc_check_input *in, struct xc_findings *out)
{
    long want = (long)in->rules->expect.nic_count;
    char text[24];
    bool asked = chk_param_number(in, "count", &want) || want > 0;
    snprintf(text, sizeof text, "%ld", want);
    if (!asked) {
        none_expected(in, out);
        return;
    }
    size_t have = 0;
    for (size_t i = 0; i < in->node->nnics; i++) /* the description may be older than a failure */
        have += chk_is_rail(in, i) && xc_root_exists(in->root, RDMA "/%s", in->node->nics[i].rdma);
    if (have == (size_t)want)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu compute NICs", have);
    else
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.want = text,
                                   .hint = "lspci -d 15b3: and dmesg say whether a card is gone or "
                                           "its driver failed"},
                "%zu compute NICs", have);
}

static const struct xc_check count = {
    .id = "nic.count",
    .code = "NIC01",
    .what = "all compute NICs are there, with a driver",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = count_params,
    .run = run_count,
};

/* ---- nic.port ------------------------------------------------------------------------------------------- */

static const struct xc_check_param port_params[] = {
    {"rate", XC_PARAM_NUMBER, NULL, "Gb/s of each port; default: expect: nics: rate", NULL},
    {0},
};

struct rate {
    uint32_t mbps;
    unsigned lanes;
    bool sdr;
};

/* "400 Gb/sec (4X NDR)" */
static bool parse_rate(const char *text, struct rate *rate)
{
    char *end;
    double gbps = text ? strtod(text, &end) : 0;
    if (!text || end == text || !(gbps > 0) || gbps > 100000)
        return false;
    const char *open = strchr(end, '(');
    *rate = (struct rate){.mbps = (uint32_t)(gbps * 1000 + 0.5),
                          .lanes = open && isdigit((unsigned char)open[1])
                                       ? (unsigned)strtoul(open + 1, NULL, 10)
                                       : 0,
                          .sdr = open && strstr(open, "SDR")};
    return true;
}

static void port_name(const struct xc_nic *nic, char *text, size_t size)
{
    if (nic->port > 1)
        snprintf(text, size, "%s/%d", nic->rdma, nic->port);
    else
        snprintf(text, size, "%s", nic->rdma);
}

static char *port_file(const struct xc_check_input *in, const struct xc_nic *nic, const char *file)
{
    return xc_root_read_line(in->root, RDMA "/%s/ports/%d/%s", nic->rdma, nic->port, file);
}

static const char *state_hint(const char *state, const char *phys)
{
    if (phys && strstr(phys, "Polling"))
        return "no signal: check the cable, the transceiver and the switch's port";
    if (phys && strstr(phys, "Disabled"))
        return "the port is switched off: ip link set up, or ibportstate enable";
    if (strstr(state, "INIT") || strstr(state, "ARMED"))
        return "the link is up and no subnet manager has configured it: sminfo";
    return "ibstat, mlxlink -d say more";
}

/* True: the port is active. */
static bool judge_state(const struct xc_check_input *in, struct xc_findings *out,
                        const struct xc_nic *nic, const char *device)
{
    xc_autofree char *state = port_file(in, nic, "state"), *phys = port_file(in, nic, "phys_state");
    if (!state && !xc_root_exists(in->root, RDMA "/%s", nic->rdma)) {
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device,
                                   .want = "ACTIVE",
                                   .hint = "dmesg says why its driver left it"},
                "the device is gone");
        return false;
    }
    if (!state || !isdigit((unsigned char)*state)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = device},
                "the port does not tell its state");
        return false;
    }
    if (strstr(state, "ACTIVE") && !strstr(state, "DEFER"))
        return true;
    chk_say(out, XC_CHECK_FAIL,
            (struct chk_words){.device = device, .want = "ACTIVE", .hint = state_hint(state, phys)},
            "the port is %s%s%s", state + strspn(state, "0123456789: "), phys ? ", " : "",
            phys ? phys + strspn(phys, "0123456789: ") : "");
    return false;
}

static void judge_rate(const struct xc_check_input *in, struct xc_findings *out,
                       const struct xc_nic *nic, const char *device, uint32_t want_mbps)
{
    xc_autofree char *text = port_file(in, nic, "rate");
    struct rate rate;
    char want[32];
    snprintf(want, sizeof want, "%u Gb/s", want_mbps / 1000);
    if (!parse_rate(text, &rate)) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.device = device},
                "the port does not tell its rate");
        return;
    }
    if (want_mbps == 0 || rate.mbps >= want_mbps)
        return;
    if (rate.sdr)
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.device = device,
                                   .want = want,
                                   .hint = "this kernel may not know the speed and then says SDR; "
                                           "ibstat or mlxlink tells the true one"},
                "the rate is shown as %s", text);
    else if (rate.lanes > 0 && rate.lanes < 4 && rate.mbps * 2 == want_mbps)
        chk_say(
            out, XC_CHECK_FAIL,
            (struct chk_words){.device = device,
                               .want = want,
                               .hint = "half of the lanes are down: clean or replace the cable"},
            "the port has half its width: %s", text);
    else
        chk_say(out, XC_CHECK_FAIL,
                (struct chk_words){.device = device,
                                   .want = want,
                                   .hint = "cable, transceiver, or the switch's port speed"},
                "the port runs at %s", text);
}

static void judge_link_layer(const struct xc_check_input *in, struct xc_findings *out,
                             const struct xc_nic *nic, const char *device)
{
    xc_autofree char *have = port_file(in, nic, "link_layer");
    const char *want = in->rules->expect.nic_link == XC_LINK_INFINIBAND ? "InfiniBand"
                       : in->rules->expect.nic_link == XC_LINK_ETHERNET ? "Ethernet"
                                                                        : NULL;
    if (have && want && !xc_streq(have, want))
        chk_say(
            out, XC_CHECK_FAIL,
            (struct chk_words){.device = device,
                               .want = want,
                               .hint = "mlxconfig set LINK_TYPE_P1=1 (InfiniBand) or 2 (Ethernet)"},
            "the port speaks %s", have);
}

/* Without a rate from the policy the ports are compared: one that is slower than the rest. */
static uint32_t wanted_rate(const struct xc_check_input *in)
{
    long gbps;
    uint32_t best = 0;
    if (chk_param_number(in, "rate", &gbps) && gbps < 100000)
        return (uint32_t)gbps * 1000;
    if (in->rules->expect.nic_rate_mbps)
        return in->rules->expect.nic_rate_mbps;
    for (size_t i = 0; i < in->node->nnics; i++)
        if (chk_is_compute(in, i) && in->node->nics[i].rate_mbps > best)
            best = in->node->nics[i].rate_mbps;
    return best;
}

static void run_port(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count;
    if (chk_no_compute(in, out))
        return;
    uint32_t want = wanted_rate(in);
    for (size_t i = 0; i < in->node->nnics; i++) {
        const struct xc_nic *nic = &in->node->nics[i];
        char device[96];
        if (!chk_is_compute(in, i))
            continue;
        port_name(nic, device, sizeof device);
        if (judge_state(in, out, nic, device))
            judge_rate(in, out, nic, device, want);
        judge_link_layer(in, out, nic, device);
    }
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu ports are active at %u Gb/s",
                count_compute(in), want / 1000);
}

static const struct xc_check port = {
    .id = "nic.port",
    .code = "NIC02",
    .what = "every port of a compute NIC is active, at full rate, of the right kind",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = port_params,
    .run = run_port,
};

/* ---- nic.pcie ------------------------------------------------------------------------------------------- */

static void run_pcie(const struct xc_check_input *in, struct xc_findings *out)
{
    xc_autofree int32_t *devices = calloc(in->node->nnics + 1, sizeof *devices);
    size_t used = 0;
    if (!devices) {
        out->failed = true;
        return;
    }
    if (chk_no_compute(in, out))
        return;
    for (size_t i = 0; i < in->node->nnics; i++) {
        bool new = chk_is_compute(in, i) && in->node->nics[i].pci >= 0;
        for (size_t k = 0; k < used; k++)
            new &= devices[k] != in->node->nics[i].pci; /* two ports of one function */
        if (new)
            devices[used++] = in->node->nics[i].pci;
    }
    if (used == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "no compute NIC is a PCI device");
    else
        chk_links_run(in, out, devices, used);
}

static const struct xc_check pcie = {
    .id = "nic.pcie",
    .code = "NIC03",
    .what = "the PCIe links of compute NICs, up to the root, are as wide and fast as both ends can",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = chk_link_params,
    .run = run_pcie,
};

/* ---- nic.flaps ------------------------------------------------------------------------------------------ */

static const struct xc_check_param flaps_params[] = {
    {"most", XC_PARAM_NUMBER, "0", "times a link went down between two runs that are accepted",
     NULL},
    {0},
};

struct flaps {
    size_t seen, known;
    long most;
};

static void judge_counter(const struct xc_check_input *in, struct xc_findings *out,
                          const struct xc_nic *nic, const char *file, const char *what,
                          struct flaps *flaps)
{
    xc_autofree char *text = port_file(in, nic, file);
    char device[96];
    long now;
    int64_t delta;
    port_name(nic, device, sizeof device);
    if (!text ||
        !xc_to_long(text, 0, INT64_MAX / 2, &now)) /* "N/A (no PMA)" of virtual functions */
        return;
    flaps->seen++;
    if (!chk_delta(in, now, &delta, "%s.%s", device, strrchr(file, '/') + 1))
        return;
    flaps->known++;
    if (delta > flaps->most)
        chk_say(out, chk_bad(in),
                (struct chk_words){.device = device,
                                   .hint = "cable, transceiver or switch port; mlxlink -d shows "
                                           "its error rates"},
                "%s %" PRId64 " times since the last run", what, delta);
    else if (now == 255)
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.device = device, .hint = "perfquery -R resets it"},
                "%s stands at 255, where it ends", strrchr(file, '/') + 1);
}

static void run_flaps(const struct xc_check_input *in, struct xc_findings *out)
{
    struct flaps flaps = {0};
    size_t before = out->count;
    if (chk_no_compute(in, out))
        return;
    chk_param_number(in, "most", &flaps.most);
    for (size_t i = 0; i < in->node->nnics; i++) {
        if (!chk_is_compute(in, i))
            continue;
        judge_counter(in, out, &in->node->nics[i], "counters/link_downed", "the link went down",
                      &flaps);
        judge_counter(in, out, &in->node->nics[i], "counters/link_error_recovery",
                      "the link recovered from errors", &flaps);
    }
    if (out->count != before)
        return;
    if (flaps.seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "the ports have no link counters");
    else if (flaps.known == 0)
        chk_first_run(in, out, "an earlier run of this boot is needed");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "no link went down");
}

static const struct xc_check flaps = {
    .id = "nic.flaps",
    .code = "NIC04",
    .what = "no link of a compute NIC went down since the last run",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_EPILOG | XC_AT_CLI,
    .needs = XC_NEEDS_PREVIOUS,
    .on_fail = XC_FAIL_WARN,
    .params = flaps_params,
    .run = run_flaps,
};

/* ---- nic.mtu -------------------------------------------------------------------------------------------- */

static const struct xc_check_param mtu_params[] = {
    {"mtu", XC_PARAM_NUMBER, NULL, "bytes; default: the same on all compute NICs", NULL},
    {0},
};

static long mtu_of(const struct xc_check_input *in, size_t nic)
{
    long mtu;
    const char *netdev = in->node->nics[nic].netdev;
    return *netdev && xc_root_read_long(in->root, &mtu, "/sys/class/net/%s/mtu", netdev) && mtu > 0
               ? mtu
               : 0;
}

static void run_mtu(const struct xc_check_input *in, struct xc_findings *out)
{
    long want = 0, have;
    size_t before = out->count, seen = 0;
    char text[24];
    if (chk_no_compute(in, out))
        return;
    bool asked = chk_param_number(in, "mtu", &want);
    for (size_t i = 0; !asked && i < in->node->nnics; i++)
        if (chk_is_compute(in, i) && (have = mtu_of(in, i)) > want)
            want = have;
    snprintf(text, sizeof text, "%ld", want);
    for (size_t i = 0; i < in->node->nnics; i++) {
        if (!chk_is_compute(in, i) || (have = mtu_of(in, i)) == 0)
            continue;
        seen++;
        if (have != want)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = in->node->nics[i].netdev,
                                       .want = text,
                                       .hint = "ip link set mtu; the switches must know it too"},
                    "the MTU is %ld%s", have, asked ? "" : ", others have more");
    }
    if (out->count != before)
        return;
    if (seen == 0)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "no compute NIC has a network interface");
    else
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu interfaces at %ld", seen, want);
}

static const struct xc_check mtu = {
    .id = "nic.mtu",
    .code = "NIC05",
    .what = "the interfaces of compute NICs have the MTU that they should, and all the same",
    .at = XC_AT_BOOT | XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = mtu_params,
    .run = run_mtu,
};

/* ---- nic.optics ----------------------------------------------------------------------------------------- */

static const struct xc_check_param optics_params[] = {
    {"most", XC_PARAM_NUMBER, "75", "degrees Celsius of a transceiver that are accepted", NULL},
    {0},
};

/* The hottest sensor whose label names a module; thousandths of a degree, -1: none. */
static long module_heat(const struct xc_check_input *in, const char *rdma)
{
    long heat = -1, one;
    xc_autonames char **monitors = xc_root_list(in->root, RDMA "/%s/device/hwmon", rdma);
    for (char **monitor = monitors; monitor && *monitor; monitor++)
        for (unsigned i = 1; i <= 16; i++) {
            xc_autofree char *label = xc_root_read_line(
                in->root, RDMA "/%s/device/hwmon/%s/temp%u_label", rdma, *monitor, i);
            if (label && strcasestr(label, "module") &&
                xc_root_read_long(in->root, &one, RDMA "/%s/device/hwmon/%s/temp%u_input", rdma,
                                  *monitor, i) &&
                one > heat && one < 200000)
                heat = one;
        }
    return heat;
}

static void run_optics(const struct xc_check_input *in, struct xc_findings *out)
{
    long most = 75;
    size_t before = out->count, seen = 0;
    char want[32];
    if (chk_no_compute(in, out))
        return;
    chk_param_number(in, "most", &most);
    snprintf(want, sizeof want, "at most %ld C", most);
    for (size_t i = 0; i < in->node->nnics; i++) {
        long heat = chk_is_compute(in, i) ? module_heat(in, in->node->nics[i].rdma) : -1;
        if (heat < 0)
            continue;
        seen++;
        if (heat > most * 1000)
            chk_say(out, chk_bad(in),
                    (struct chk_words){.device = in->node->nics[i].rdma,
                                       .want = want,
                                       .hint = "airflow at the cage; hot lasers flap"},
                    "its transceiver has %ld C", heat / 1000);
    }
    if (out->count != before)
        return;
    chk_say(out, seen ? XC_CHECK_PASS : XC_CHECK_NA, (struct chk_words){0},
            seen ? "%zu transceivers" : "%zu compute NICs show a transceiver's temperature", seen);
}

static const struct xc_check optics = {
    .id = "nic.optics",
    .code = "NIC06",
    .what = "no transceiver of a compute NIC is too hot, where the kernel shows it",
    .cost = XC_COST_DEVICE,
    .at = XC_AT_HEALTH | XC_AT_CLI,
    .on_fail = XC_FAIL_WARN,
    .params = optics_params,
    .run = run_optics,
};

const struct xc_check *const chk_nic[] = {&count, &port, &pcie, &flaps, &mtu, &optics, NULL};
