/* Where do interrupts and the kernel's unbound work go? The default for new interrupts, those that are in
 * use, irqbalance, and the workqueues' mask. */
#include <ctype.h>

#include "work.h"

bool host_read_cpus(const struct host *host, struct xc_set *out, const char *path)
{
    if (!xc_root_read_set(host->in->root, out, "%s", path))
        return false;
    xc_set_and(out, &host->online);
    return true;
}

/* ---- masks ------------------------------------------------------------------------------------------- */

/* "ff,00000003": hexadecimal groups of 32 bits, the highest first. */
static char *mask_of(const struct xc_set *cpus)
{
    struct xc_text text = XC_TEXT_INIT;
    size_t last = 0;
    for (ssize_t i = xc_set_next(cpus, 0); i >= 0; i = xc_set_next(cpus, (size_t)i + 1))
        last = (size_t)i;
    for (size_t group = last / 32 + 1; group-- > 0;) {
        uint32_t bits = 0;
        for (unsigned bit = 0; bit < 32; bit++)
            bits |= xc_set_has(cpus, group * 32 + bit) ? UINT32_C(1) << bit : 0;
        xc_text_addf(&text, group == last / 32 ? "%x" : "%08x", bits);
        if (group > 0)
            xc_text_add(&text, ",");
    }
    return xc_text_take(&text);
}

/* A file that holds one mask. */
static void plan_mask(struct host *host, enum xc_host_what part, const char *path, const char *what)
{
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_autofree char *was = xc_root_read_line(host->in->root, "%s", path);
    if (!was) {
        host_say(host->report, part, XC_HOST_REFUSED, what, "", "", "%s is not there", path);
        return;
    }
    if (xc_set_parse_mask(&cpus, was, path, NULL) < 0) {
        host_say(host->report, part, XC_HOST_REFUSED, what, "", "", "%s is no mask", path);
        return;
    }
    xc_set_and(&cpus, &host->online); /* the kernel sets bits of CPUs that are not there */
    if (xc_set_subset(&cpus, &host->housekeeping)) {
        xc_autofree char *list = xc_set_format(&cpus);
        host_say(host->report, part, XC_HOST_IS_SO, what, list, list, "%s", "");
        return;
    }
    xc_autofree char *mask = mask_of(&host->housekeeping);
    host->failed |= !mask;
    if (mask)
        host_change(host, &(struct host_change){.kind = HOST_FILE,
                                                .part = part,
                                                .path = (char *)(uintptr_t)path,
                                                .what = (char *)(uintptr_t)what,
                                                .was = was,
                                                .want = mask});
}

void host_plan_workqueues(struct host *host)
{
    plan_mask(host, XC_HOST_WORKQUEUES, "/sys/devices/virtual/workqueue/cpumask", "unbound work");
}

/* ---- interrupts -------------------------------------------------------------------------------------- */

/* Housekeeping CPUs of the device's own memory node, when it has some. */
static char *near_cpus(const struct host *host, const char *irq)
{
    long numa;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    if (xc_root_read_long(host->in->root, &numa, "/proc/irq/%s/node", irq) && numa >= 0 &&
        numa < XC_SET_LIMIT) {
        xc_node_numa_cpus(host->in->node, (int)numa, &cpus);
        xc_set_and(&cpus, &host->housekeeping);
    }
    return xc_set_format(xc_set_empty(&cpus) ? &host->housekeeping : &cpus);
}

static void plan_irq(struct host *host, const char *irq)
{
    xc_autofree char *action = xc_root_read_line(host->in->root, "/sys/kernel/irq/%s/actions", irq);
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_autotext struct xc_text path = XC_TEXT_INIT, what = XC_TEXT_INIT;
    if (!action || !*action) /* nobody uses it: the default holds when somebody does */
        return;
    xc_text_addf(&path, "/proc/irq/%s/smp_affinity_list", irq);
    xc_text_addf(&what, "%s %s", irq, action);
    xc_autofree char *was = path.data ? xc_root_read_line(host->in->root, "%s", path.data) : NULL;
    host->failed |= path.failed || what.failed;
    if (!was || host->failed || xc_set_parse_list(&cpus, was, NULL, NULL) < 0)
        return;
    xc_set_and(&cpus, &host->online);
    enum xc_host_outcome outcome =
        host_matches(host_param(host->in, "host.irqs", "managed"), action)    ? XC_HOST_EXCUSED
        : !host_matches(host_param(host->in, "host.irqs", "devices"), action) ? XC_HOST_KEPT
                                                                              : XC_HOST_IS_SO;
    if (outcome != XC_HOST_IS_SO || xc_set_subset(&cpus, &host->housekeeping)) {
        host_say(host->report, XC_HOST_IRQS, outcome, what.data, was, was, "%s",
                 outcome == XC_HOST_EXCUSED ? "the kernel spreads it itself"
                 : outcome == XC_HOST_KEPT  ? "not among host.irqs' devices"
                                            : "");
        return;
    }
    xc_autofree char *want = near_cpus(host, irq);
    host->failed |= !want;
    if (want)
        host_change(host, &(struct host_change){.kind = HOST_FILE,
                                                .part = XC_HOST_IRQS,
                                                .path = path.data,
                                                .what = what.data,
                                                .was = was,
                                                .want = want,
                                                .tag = action});
}

/* ---- irqbalance ------------------------------------------------------------------------------------------ */

static const char *const irqbalance_confs[] = {"/etc/default/irqbalance",
                                               "/etc/sysconfig/irqbalance", "/etc/irqbalance.env"};

/* Whether the site itself has banned CPUs; where. EnvironmentFile= wins over Environment=. */
static const char *banned_by_site(struct xc_root *root)
{
    for (size_t i = 0; i < XC_COUNT(irqbalance_confs); i++) {
        xc_autofree char *text = xc_root_read(root, NULL, NULL, "%s", irqbalance_confs[i]);
        for (char *line = text, *next; line; line = next) {
            next = strchr(line, '\n');
            if (next)
                *next++ = '\0';
            line = xc_trim(line);
            const char *equals = strchr(line, '=');
            if (xc_starts(line, "IRQBALANCE_BANNED_CPU") && equals && equals[1])
                return irqbalance_confs[i];
        }
    }
    return NULL;
}

static bool has_irqbalance(struct xc_root *root)
{
    static const char *const units[] = {"/etc/systemd/system/irqbalance.service",
                                        "/usr/lib/systemd/system/irqbalance.service",
                                        "/lib/systemd/system/irqbalance.service"};
    for (size_t i = 0; i < XC_COUNT(units); i++)
        if (xc_root_exists(root, "%s", units[i]))
            return true;
    return false;
}

#define BANNED "IRQBALANCE_BANNED_CPULIST="

bool host_irqbalance_is_stale(struct xc_root *root, const char *cpus)
{
    bool stale = false;
    xc_autonames char **names = xc_root_list(root, "/proc");
    for (char **name = names; name && *name && !stale; name++) {
        if (!isdigit((unsigned char)**name))
            continue;
        xc_autofree char *command = xc_root_read_line(root, "/proc/%s/comm", *name);
        if (!xc_streq(command, "irqbalance"))
            continue;
        size_t length = 0;
        const char *told = "";
        xc_autofree char *environ = xc_root_read(root, &length, NULL, "/proc/%s/environ", *name);
        for (char *at = environ; at && at < environ + length; at += strlen(at) + 1)
            if (xc_starts(at, BANNED))
                told = at + strlen(BANNED);
        stale = !xc_streq(told, cpus);
    }
    return stale;
}

static void plan_irqbalance(struct host *host)
{
    struct xc_root *root = host->in->root;
    const char *site = banned_by_site(root);
    if (!has_irqbalance(root)) {
        host_say(host->report, XC_HOST_IRQS, XC_HOST_IS_SO, "irqbalance", "", "", "not installed");
        return;
    }
    if (site) {
        host_say(host->report, XC_HOST_IRQS, XC_HOST_KEPT, "irqbalance", "", "",
                 "%s bans CPUs itself: it must name all but the housekeeping CPUs", site);
        return;
    }
    xc_autofree char *list = xc_set_format(&host->training), *mask = mask_of(&host->training);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    /* releases before 1.8 know the mask alone */
    xc_text_addf(&text,
                 HOST_MARK "[Service]\nEnvironment=" BANNED
                           "%s\nEnvironment=IRQBALANCE_BANNED_CPUS=%s\n",
                 list ? list : "", mask ? mask : "");
    host->failed |= !list || !mask || text.failed;
    if (host->failed)
        return;
    host_want_dropin(host, XC_HOST_IRQS, "irqbalance.service", HOST_IRQBALANCE_NAME, text.data);
    host->stale_irqbalance = host_irqbalance_is_stale(root, list);
    if (!host->stale_irqbalance)
        host_say(host->report, XC_HOST_IRQS, XC_HOST_IS_SO, "irqbalance", "", "",
                 "told, or does not run");
}

void host_plan_irqs(struct host *host)
{
    plan_mask(host, XC_HOST_IRQS, "/proc/irq/default_smp_affinity", "default");
    plan_irqbalance(host);
    xc_autonames char **names = xc_root_list(host->in->root, "/proc/irq");
    for (char **name = names; name && *name; name++)
        if (isdigit((unsigned char)**name))
            plan_irq(host, *name);
}
