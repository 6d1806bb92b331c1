/* Is a PCIe link as wide and as fast as both its ends can, on every hop from a device to the root? */
#include "links.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static const struct xc_pci *above(const struct xc_node *node, const struct xc_pci *pci)
{
    return pci->parent >= 0 ? &node->pci[pci->parent] : NULL;
}

/* The link's state now: the description of the machine may be of yesterday. */
static void read_link(const struct xc_check_input *in, const char *bdf, struct chk_link *link)
{
    long width;
    link->width = link->mts = 0;
    if (xc_root_read_long(in->root, &width, "/sys/bus/pci/devices/%s/current_link_width", bdf) &&
        width > 0 && width <= 32)
        link->width = (uint32_t)width;
    xc_autofree char *speed =
        xc_root_read_line(in->root, "/sys/bus/pci/devices/%s/current_link_speed", bdf);
    double gts = speed ? strtod(speed, NULL) : 0;
    if (gts > 0 && gts < 1000)
        link->mts = (uint32_t)(gts * 1000 + 0.5);
}

/* A switch's ports and a root port report the link that is below them as their own: a link is read at
 * its lower end, and the next one is that of the switch's upstream port, two functions further up. */
void chk_links_walk(const struct xc_check_input *in, int32_t pci, bool *seen,
                    void (*judge)(const struct chk_link *, void *), void *data)
{
    const struct xc_node *node = in->node;
    const struct xc_pci *device = pci >= 0 ? &node->pci[pci] : NULL;
    for (unsigned hop = 0; device && hop < 32; hop++) {
        size_t index = (size_t)(device - node->pci);
        const struct xc_pci *port = above(node, device);
        struct chk_link link = {
            .pci = device,
            .hop = hop,
            .max_width = port ? least(device->max_width, port->max_width) : device->max_width,
            .max_mts =
                port ? least(device->max_speed_mts, port->max_speed_mts) : device->max_speed_mts,
        };
        if (!seen[index]) {
            seen[index] = true;
            xc_bdf_text(&device->bdf, link.bdf);
            read_link(in, link.bdf, &link);
            judge(&link, data);
        }
        device = port ? above(node, port) : NULL;
    }
}

/* ---- judging --------------------------------------------------------------------------------------- */

struct judging {
    const struct xc_check_input *in;
    struct xc_findings *out;
    const struct chk_best *best;
    long want_width, want_gts; /* 0: not asked */
    bool slow_fails, slow_ignored;
    size_t judged, unknown;
};

static void say_width(struct judging *j, const struct chk_link *link, uint32_t want,
                      const char *why)
{
    char text[32];
    snprintf(text, sizeof text, "x%u", want);
    chk_say(
        j->out, XC_CHECK_FAIL,
        (struct chk_words){.device = link->bdf,
                           .want = text,
                           .hint = "reseat the card or riser, clean the contacts; then replace"},
        "the PCIe link%s is x%u%s", link->hop ? " above it" : "", link->width, why);
}

static void judge_width(struct judging *j, const struct chk_link *link)
{
    const struct chk_best *best = j->best;
    if (link->hop == 0 && j->want_width > 0 && link->width < (uint32_t)j->want_width)
        say_width(j, link, (uint32_t)j->want_width, "");
    else if (link->width < link->max_width)
        say_width(j, link, link->max_width, ", both ends can do more");
    else if (link->hop == 0 && best && link->width < best->width)
        say_width(j, link, best->width, ", others of its kind have more");
}

static void judge_speed(struct judging *j, const struct chk_link *link)
{
    uint32_t want = link->max_mts;
    char text[32];
    if (link->hop == 0 && j->want_gts > 0)
        want = (uint32_t)j->want_gts * 1000;
    else if (link->hop == 0 && j->best && j->best->mts > want)
        want = j->best->mts; /* its slot is slower than its siblings' slots */
    if (link->mts == 0 || link->mts >= want || j->slow_ignored)
        return;
    snprintf(text, sizeof text, "%g GT/s", want / 1000.0);
    chk_say(j->out,
            j->slow_fails || (j->want_gts > 0 && link->hop == 0) ? XC_CHECK_FAIL : XC_CHECK_WARN,
            (struct chk_words){.device = link->bdf,
                               .want = text,
                               .hint = "idle links of some cards run slower: look again under load "
                                       "(lspci -vv, LnkSta)"},
            "the PCIe link%s runs at %g GT/s", link->hop ? " above it" : "", link->mts / 1000.0);
}

static void judge_link(const struct chk_link *link, void *data)
{
    struct judging *j = data;
    if (link->width == 0) {
        j->unknown += link->hop == 0;
        return;
    }
    j->judged++;
    judge_width(j, link);
    judge_speed(j, link);
}

void chk_links_best(const struct xc_check_input *in, const int32_t *devices, size_t count,
                    struct chk_best *best)
{
    for (size_t i = 0; i < count; i++) {
        const struct xc_pci *pci = &in->node->pci[devices[i]];
        best[i] = (struct chk_best){0};
        for (size_t k = 0; k < count; k++) {
            const struct xc_pci *other = &in->node->pci[devices[k]];
            if (other->vendor != pci->vendor || other->device != pci->device)
                continue;
            best[i].width = other->width > best[i].width ? other->width : best[i].width;
            best[i].mts = other->speed_mts > best[i].mts ? other->speed_mts : best[i].mts;
        }
    }
}

const struct xc_check_param chk_link_params[] = {
    {"width", XC_PARAM_NUMBER, NULL, "lanes of each device", NULL},
    {"gts", XC_PARAM_NUMBER, NULL, "GT/s of each device's link", NULL},
    {"slow", XC_PARAM_WORD, "warn", "what a link below the speed of both its ends is",
     "ignore,warn,fail"},
    {0},
};

void chk_links_run(const struct xc_check_input *in, struct xc_findings *out, const int32_t *devices,
                   size_t count)
{
    xc_autofree bool *seen = calloc(in->node->npci + 1, sizeof *seen);
    xc_autofree struct chk_best *best = calloc(count + 1, sizeof *best);
    struct judging j = {.in = in,
                        .out = out,
                        .slow_fails = xc_streq(chk_param(in, "slow"), "fail"),
                        .slow_ignored = xc_streq(chk_param(in, "slow"), "ignore")};
    size_t before = out->count;
    if (!seen || !best) {
        out->failed = true;
        return;
    }
    chk_param_number(in, "width", &j.want_width);
    chk_param_number(in, "gts", &j.want_gts);
    chk_links_best(in, devices, count, best);
    for (size_t i = 0; i < count; i++) {
        j.best = &best[i];
        chk_links_walk(in, devices[i], seen, judge_link, &j);
    }
    if (j.unknown > 0)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0},
                "%zu of %zu devices do not tell their link", j.unknown, count);
    else if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "%zu devices, %zu links", count,
                j.judged);
}
