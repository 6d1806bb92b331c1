/* Is the file itself right? Reads it as NCCL does, and then looks at every element: what NCCL takes
 * without a word and takes wrong. */
#include <ctype.h>
#include <string.h>

#include "topo.h"

/* ---- one reading, or two --------------------------------------------------------------------------- */

/* The first refusal is the one that NCCL meets; what else a person must mend is found by reading on
 * over it. */
static void read_on(const char *bytes, size_t length, struct topo_tree *tree,
                    struct xc_topo_findings *findings)
{
    struct xc_topo_finding first = findings->items[findings->count - 1];
    topo_tree_free(tree);
    xc_topo_findings_clear(findings);
    struct xc_topo_finding *f =
        topo_found(findings, first.id, TOPO_REFUSED, (struct topo_place){first.line, first.column},
                   "%s", first.what);
    if (f)
        *f = first;
    topo_read(bytes, length, true, tree, findings);
}

/* ---- attributes ------------------------------------------------------------------------------------ */

static const char *near_attribute(enum topo_kind kind, const char *key)
{
    return xc_nearest(key, topo_attributes(kind));
}

static bool known_attribute(enum topo_kind kind, const char *key)
{
    for (const char *const *name = topo_attributes(kind); *name; name++)
        if (xc_streq(*name, key))
            return true;
    return false;
}

static void lint_name(const struct topo_element *e, const struct topo_attr *a,
                      struct xc_topo_findings *findings)
{
    char key[TOPO_SHOWN];
    struct xc_topo_finding *f;
    if (strpbrk(a->key, "\t\r\n")) {
        f = topo_found(findings, "D2", TOPO_ERROR, a->place, "a tab inside a tag");
        topo_nccl(f, "take it as part of the attribute's name and not find the attribute");
        topo_fix(f, "one blank between attributes");
    } else if (!a->equals) {
        f = topo_found(findings, "D3", TOPO_ERROR, a->place,
                       "%s has no value, or a blank before '='", topo_shown(a->key, key));
        topo_nccl(f, "take it as empty");
        topo_fix(f, "write name=\"value\"");
    } else if (!known_attribute(e->kind, a->key)) {
        f = topo_found(findings, "D6", TOPO_WARNING, a->place, "<%s> has no attribute %s",
                       topo_name(e->kind), topo_shown(a->key, key));
        topo_nccl(f, "not look at it");
        const char *near = f ? near_attribute(e->kind, a->key) : NULL;
        topo_fix(f, near ? "did you mean %s?" : "take it out", near);
    }
}

static void lint_attributes(const struct topo_element *e, struct xc_topo_findings *findings)
{
    for (unsigned i = 0; i < e->nattrs; i++) {
        const struct topo_attr *a = &e->attrs[i];
        if (!*a->key && !a->equals)
            continue; /* a superfluous blank: counts, and is nothing else */
        if (!*a->key)
            continue; /* the name before it was reported */
        lint_name(e, a, findings);
        if (topo_attr(e, a->key) == a)
            continue;
        struct xc_topo_finding *f = topo_found(findings, "D6", TOPO_ERROR, a->place,
                                               "<%s> has %.40s twice", topo_name(e->kind), a->key);
        topo_nccl(f, "take the first");
        topo_fix(f, "take one out");
    }
}

/* What NCCL writes into an element when it is not there, besides what is in the file. */
static const char *const *nccl_adds(enum topo_kind kind)
{
    static const char *const none[] = {NULL};
    static const char *const gpu[] = {"dev", "sm", "rank", "gdr", "keep", "mlopart", NULL};
    switch (kind) {
    case TOPO_CPU:
    case TOPO_PCI:
    case TOPO_NET:
    case TOPO_NVLINK:
        return topo_attributes(kind);
    case TOPO_GPU:
        return gpu;
    default:
        return none;
    }
}

static void lint_room(const struct topo_element *e, struct xc_topo_findings *findings)
{
    struct xc_topo_finding *f;
    unsigned all = e->nattrs;
    for (const char *const *name = nccl_adds(e->kind); *name; name++)
        all += !topo_attr(e, *name);
    if (e->extra) {
        f = topo_found(findings, "D5", TOPO_ERROR, e->place,
                       "<%s> has %u attributes (a blank too many counts as one)",
                       topo_name(e->kind), e->nattrs + e->extra);
        topo_nccl(f, "drop all behind the %dth", TOPO_ATTRS);
        topo_fix(f, "take out what NCCL does not need; one blank between attributes");
    } else if (all > TOPO_ATTRS + 1) {
        f = topo_found(findings, "D5", TOPO_ERROR, e->place,
                       "<%s> has %u attributes, and NCCL adds %u of its own", topo_name(e->kind),
                       e->nattrs, all - e->nattrs);
        topo_nccl(f, "write past the end of its array, which has room for %d", TOPO_ATTRS + 1);
        topo_fix(f, "take out what NCCL does not know; one blank between attributes");
    }
}

/* ---- values ---------------------------------------------------------------------------------------- */

/* Today's NCCL has room for all; an image may have an older one. */
static void lint_children(const struct topo_tree *tree, const struct topo_element *e,
                          struct xc_topo_findings *findings)
{
    int children = 0;
    for (int c = e->first; c >= 0; c = tree->elements[c].next)
        children++;
    if (children <= TOPO_CHILDREN)
        return;
    struct xc_topo_finding *f = topo_found(findings, "D5", TOPO_WARNING, e->place,
                                           "<%s> has %d elements", topo_name(e->kind), children);
    topo_nccl(f, "refuse more than %d in one element before its version 2.29", TOPO_CHILDREN);
    topo_fix(f, "keep GPUs and NICs alone, and the switches that join them");
}

static struct topo_place place_of(const struct topo_element *e, const char *key)
{
    const struct topo_attr *a = topo_attr(e, key);
    return a ? a->place : e->place;
}

/* A value that was written as one: a name without '=' has its own finding. */
static const char *written(const struct topo_element *e, const char *key)
{
    const struct topo_attr *a = topo_attr(e, key);
    return a && a->equals ? a->value : NULL;
}

/* An attribute without which NCCL ends the job when it comes to this element. */
static bool lint_missing(const struct topo_element *e, const char *key,
                         struct xc_topo_findings *findings)
{
    if (topo_attr(e, key))
        return false;
    struct xc_topo_finding *f = topo_found(findings, "D14", TOPO_ERROR, e->place, "<%s> has no %s",
                                           topo_name(e->kind), key);
    topo_nccl(f, "end every job that uses what is below it");
    topo_fix(f, "write %s=\"…\"", key);
    return true;
}

static bool is_number(const char *text)
{
    long value;
    if (text[0] == '-')
        text++;
    return xc_to_long(text, 0, 1 << 30, &value) && (text[0] != '0' || text[1] == '\0');
}

/* A whole number that NCCL reads with strtol, which takes what it can and forgets the rest. */
static void lint_number(const struct topo_element *e, const char *key,
                        struct xc_topo_findings *findings)
{
    const char *text = written(e, key);
    char shown[TOPO_SHOWN];
    char *end;
    if (!text)
        return;
    long value = strtol(text, &end, 0);
    if (*text && !*end && value >= INT32_MIN && value <= INT32_MAX)
        return;
    if (xc_streq(key, "link_width") && !*text)
        return; /* NCCL's own dumps have it: x16 */
    struct xc_topo_finding *f = topo_found(findings, "D14", TOPO_ERROR, place_of(e, key),
                                           "%s is %s, no number", key, topo_shown(text, shown));
    topo_nccl(f, "take %d", (int)value);
    topo_fix(f, "a decimal number");
}

static void lint_affinity(const struct topo_element *e, struct xc_topo_findings *findings)
{
    const char *text = written(e, "affinity");
    char shown[TOPO_SHOWN];
    if (!text)
        return;
    bool ok = true, any = false;
    unsigned groups = 0;
    for (const char *at = text; ok && *at; groups++) {
        at += groups == 0 && xc_starts(at, "0x") ? 2 : 0;
        size_t digits = strspn(at, "0123456789abcdefABCDEF");
        any |= strspn(at, "0") < digits;
        ok = digits >= 1 && digits <= 8 && (!at[digits] || (at[digits] == ',' && at[digits + 1]));
        at += digits + (at[digits] == ',');
    }
    struct xc_topo_finding *f;
    if (!ok) {
        f = topo_found(findings, "D10", TOPO_ERROR, place_of(e, "affinity"),
                       "affinity is %s, no mask of comma-separated groups of 8 hex digits",
                       topo_shown(text, shown));
        topo_nccl(f, "take other CPUs than are meant, or none");
        topo_fix(f, "what /sys/devices/system/node/node%.12s/cpumap says, or no affinity at all",
                 written(e, "numaid") ? written(e, "numaid") : "N");
    } else if (groups > 32) {
        f = topo_found(findings, "D10", TOPO_ERROR, place_of(e, "affinity"),
                       "affinity has %u groups: more than 1024 CPUs", groups);
        topo_nccl(f, "take the first 32 groups as the lowest CPUs");
        topo_fix(f, "leave affinity out");
    } else if (!any) {
        f = topo_found(findings, "D10", TOPO_WARNING, place_of(e, "affinity"),
                       "affinity names no CPU");
        topo_nccl(f, "leave its threads where they are");
        topo_fix(f, "leave affinity out: NCCL then asks the kernel");
    }
}

static void lint_cpu(const struct topo_element *e, struct xc_topo_findings *findings)
{
    const char *numaid = written(e, "numaid"), *arch = written(e, "arch");
    char shown[TOPO_SHOWN];
    struct xc_topo_finding *f;
    if (!lint_missing(e, "numaid", findings) && numaid && !is_number(numaid)) {
        f = topo_found(findings, "D14", TOPO_ERROR, place_of(e, "numaid"),
                       "numaid is %s, no NUMA node's number", topo_shown(numaid, shown));
        topo_nccl(f, "take node %d, and not find it again when the kernel says %d",
                  (int)strtol(numaid, NULL, 0), (int)strtol(numaid, NULL, 0));
        topo_fix(f, "a decimal number without leading zeros");
    } else if (numaid && numaid[0] == '-') {
        f = topo_found(findings, "D14", TOPO_WARNING, place_of(e, "numaid"), "numaid is %.12s",
                       numaid);
        topo_nccl(f, "know neither CPUs nor memory near these devices");
        topo_fix(f, "the NUMA node that they are on; xcloud topo generate with a map");
    }
    if (arch && !xc_streq(arch, "x86_64") && !xc_streq(arch, "arm64") && !xc_streq(arch, "ppc64")) {
        f = topo_found(findings, "D14", TOPO_ERROR, place_of(e, "arch"), "arch is %s",
                       topo_shown(arch, shown));
        topo_nccl(f, "not know the CPU and take the slowest links between sockets");
        topo_fix(f, "x86_64, arm64 or ppc64");
    }
    if (topo_attr(e, "familyid"))
        lint_missing(e, "modelid", findings);
    lint_number(e, "familyid", findings);
    lint_number(e, "modelid", findings);
    lint_affinity(e, findings);
}

static void lint_speed(const struct topo_element *e, struct xc_topo_findings *findings)
{
    const char *text = written(e, "link_speed"), *width = written(e, "link_width");
    char shown[TOPO_SHOWN];
    bool known;
    if (!text)
        return;
    unsigned speed = topo_speed(text, &known);
    if (known)
        return;
    int lanes = width ? (int)strtol(width, NULL, 0) : 0;
    lanes = lanes > 0 && lanes <= 64 ? lanes : 16;
    struct xc_topo_finding *f =
        topo_found(findings, "D8", TOPO_ERROR, place_of(e, "link_speed"),
                   "link_speed is %s, which is not in NCCL's table", topo_shown(text, shown));
    topo_nccl(f, "take PCIe Gen3: %.1f GB/s at x%d", topo_gbytes(speed, (unsigned)lanes), lanes);
    const char *meant = topo_speed_text(topo_speed_meant(text));
    topo_fix(f, "link_speed=\"%s\"", meant ? meant : "32.0 GT/s PCIe");
}

static void lint_busid(const struct topo_element *e, struct xc_topo_findings *findings)
{
    const char *text = written(e, "busid");
    char shown[TOPO_SHOWN], meant[XC_BDF_TEXT];
    if (lint_missing(e, "busid", findings) || !text || topo_busid_ok(text))
        return;
    struct xc_topo_finding *f =
        topo_found(findings, "D9", TOPO_ERROR, place_of(e, "busid"),
                   "busid is %s, not dddd:bb:dd.f in small letters", topo_shown(text, shown));
    topo_nccl(f, "never find the device in the file and place it as the kernel does");
    if (topo_busid_meant(text, meant))
        topo_fix(f, "busid=\"%s\"", meant);
    else
        topo_fix(f, "as the names in /sys/bus/pci/devices");
}

/* An id that no machine has: the switches that people write into files for virtual machines. */
static bool invented(const struct topo_element *e)
{
    const char *busid = written(e, "busid");
    return busid && xc_starts(busid, "ffff:");
}

static void lint_pci(const struct topo_tree *tree, const struct topo_element *e,
                     struct xc_topo_findings *findings)
{
    const char *text = written(e, "class");
    char shown[TOPO_SHOWN];
    bool known = true, nic = false;
    struct xc_topo_finding *f;
    enum topo_class class = text ? topo_class_of(text, &known) : TOPO_IS_SWITCH;
    lint_busid(e, findings);
    lint_speed(e, findings);
    lint_number(e, "link_width", findings);
    if (invented(e))
        lint_missing(e, "class", findings);
    if (invented(e) && !topo_attr(e, "link_speed")) {
        f = topo_found(findings, "D8", TOPO_WARNING, e->place,
                       "an invented switch without link_speed");
        topo_nccl(f, "take PCIe Gen3: 12.0 GB/s at x16");
        topo_fix(f, "link_speed=\"32.0 GT/s PCIe\", or what the real switch has");
    }
    if (!known) {
        f = topo_found(findings, "D14", TOPO_WARNING, place_of(e, "class"),
                       "class is %s, which is not in NCCL's table", topo_shown(text, shown));
        topo_nccl(f, "take it for a switch, where the kernel does not know better");
        topo_fix(f, "class=\"0x060400\" is a switch, \"0x030200\" a GPU, \"0x020000\" a NIC");
    }
    for (int c = e->first; c >= 0; c = tree->elements[c].next)
        nic |= tree->elements[c].kind == TOPO_NIC;
    for (int c = e->first; c >= 0; c = tree->elements[c].next) {
        if (tree->elements[c].kind != TOPO_PCI || (class == TOPO_IS_SWITCH && !nic))
            continue;
        f = topo_found(findings, "D7", TOPO_ERROR, tree->elements[c].place,
                       "<pci> below a <pci> that is no switch");
        topo_nccl(f, "not look below a GPU or a NIC");
        topo_fix(f, "close the element above it first");
    }
}

static void lint_gpu_and_nets(const struct topo_element *e, struct xc_topo_findings *findings)
{
    static const char *const numbers[] = {"dev", "sm", "count", "bw", "speed", "port", "gdr"};
    if (e->kind == TOPO_NVLINK || e->kind == TOPO_PCILINK)
        lint_missing(e, "target", findings);
    if (e->kind == TOPO_NVLINK || e->kind == TOPO_C2C)
        lint_missing(e, "count", findings);
    if (e->kind == TOPO_C2C)
        lint_missing(e, "bw", findings);
    for (size_t i = 0; i < XC_COUNT(numbers); i++)
        lint_number(e, numbers[i], findings);
}

static void lint_element(const struct topo_tree *tree, const struct topo_element *e,
                         struct xc_topo_findings *findings)
{
    lint_attributes(e, findings);
    lint_room(e, findings);
    lint_children(tree, e, findings);
    if (e->kind == TOPO_CPU)
        lint_cpu(e, findings);
    else if (e->kind == TOPO_PCI)
        lint_pci(tree, e, findings);
    else if (e->kind != TOPO_SYSTEM)
        lint_gpu_and_nets(e, findings);
}

/* ---- the whole file -------------------------------------------------------------------------------- */

static bool same_id(const struct topo_element *a, const struct topo_element *b)
{
    const char *key = a->kind == TOPO_PCI   ? "busid"
                      : a->kind == TOPO_CPU ? "numaid"
                      : a->kind == TOPO_NET ? "name"
                                            : NULL;
    return key && a->kind == b->kind && written(a, key) &&
           xc_streq(written(a, key), written(b, key));
}

static bool in_first_system(const struct topo_tree *tree, int i)
{
    while (tree->elements[i].parent >= 0)
        i = tree->elements[i].parent;
    return i == 0;
}

static void lint_duplicate(const struct topo_tree *tree, int i, struct xc_topo_findings *findings)
{
    const struct topo_element *e = &tree->elements[i];
    char shown[TOPO_SHOWN];
    if (!in_first_system(tree, i))
        return;
    for (int j = 0; j < i; j++) {
        if (!same_id(e, &tree->elements[j]))
            continue;
        const char *key = e->kind == TOPO_PCI ? "busid" : e->kind == TOPO_CPU ? "numaid" : "name";
        struct xc_topo_finding *f =
            topo_found(findings, "D11", TOPO_ERROR, place_of(e, key),
                       "%s %s is here twice; line %u has it first", key,
                       topo_shown(topo_value(e, key), shown), tree->elements[j].place.line);
        topo_nccl(f, e->kind == TOPO_CPU ? "take them for two NUMA nodes of one number"
                                         : "look at the first alone");
        topo_fix(f, e->kind == TOPO_CPU ? "one <cpu> for each NUMA node of one machine"
                                        : "take one out");
        return;
    }
}

static void lint_systems(const struct topo_tree *tree, struct xc_topo_findings *findings)
{
    int first = XC_NONE;
    for (int i = 0; i < tree->count; i++) {
        if (tree->elements[i].kind != TOPO_SYSTEM)
            continue;
        if (first >= 0) {
            struct xc_topo_finding *f = topo_found(findings, "D7", TOPO_ERROR,
                                                   tree->elements[i].place, "a second <system>");
            topo_nccl(f, "build its tree from the first alone");
            topo_fix(f, "one <system> for one machine");
        }
        first = i;
    }
    if (first >= 0 || tree->refused)
        return;
    struct xc_topo_finding *f = topo_found(findings, "D4", TOPO_ERROR, (struct topo_place){1, 1},
                                           "no <system> in the file");
    topo_nccl(f, "not use the file and say nothing: all is detected as if it were not there");
    topo_fix(f, "<system version=\"1\"> … </system>");
}

/* NCCL puts a network interface that is no PCI device below the first <cpu>. That one then has to have
 * what NCCL else only looks up for the <cpu> of its own GPU. */
static void lint_first_cpu(const struct topo_tree *tree, struct xc_topo_findings *findings)
{
    static const char *const keys[] = {"arch", "vendor", "familyid", "modelid"};
    const struct topo_element *e = tree->elements, *end = e + tree->count;
    while (e < end && e->kind != TOPO_CPU)
        e++;
    if (e == end)
        return;
    const char *arch = topo_value(e, "arch"), *vendor = topo_value(e, "vendor");
    size_t needed = arch && !xc_streq(arch, "x86_64")             ? 1
                    : vendor && !xc_streq(vendor, "GenuineIntel") ? 2
                                                                  : XC_COUNT(keys);
    for (size_t i = 0; i < needed; i++) {
        if (topo_value(e, keys[i]) || (i == 3 && topo_value(e, "familyid"))) /* D14 says that */
            continue;
        struct xc_topo_finding *f = topo_found(findings, "D15", TOPO_WARNING, e->place,
                                               "the first <cpu> has no %s", keys[i]);
        topo_nccl(f, "end a job whose network is no PCI device (bond, VLAN, virtio, veth, a VM's), "
                     "in ranks with a GPU elsewhere");
        topo_fix(f, "write arch, and on x86 vendor, familyid and modelid, as xcloud topo generate "
                    "does");
        return;
    }
}

/* Elements of one run, and room for those that NCCL adds: its own GPU and every NIC in each rank. */
static void lint_run(const struct topo_tree *tree, struct xc_topo_findings *findings)
{
    int run = 0, first = XC_NONE, gpus = 0, nics = 0;
    struct xc_topo_finding *f;
    for (int i = 0; i < tree->count; i++) {
        const struct topo_element *e = &tree->elements[i];
        const char *class = topo_value(e, "class");
        bool leaf = e->kind == TOPO_PCI && e->first < 0 && class;
        gpus += leaf && xc_starts(class, "0x03");
        nics += leaf && xc_starts(class, "0x02");
        if (e->kind >= TOPO_GPU && run++ == 0)
            first = i;
    }
    if (run) {
        f = topo_found(findings, "D12", TOPO_WARNING, tree->elements[first].place,
                       "%d elements that describe one run (gpu, nic, net, nvlink, c2c)", run);
        topo_nccl(f, "believe them where it would look at the machine, also when they are old");
        topo_fix(f, "keep cpu and pci elements alone: xcloud topo normalize");
    }
    /* at least those of a GPU and a NIC that are not in the file: cpu, pci, gpu; pci, nic, net */
    int adds = gpus + nics > 3 ? 2 * (gpus + nics) : 6;
    if (tree->count + adds <= TOPO_ELEMENTS || tree->refused)
        return;
    f = topo_found(findings, "D5", TOPO_WARNING, (struct topo_place){0, 0},
                   "%d elements (%d GPUs, %d NICs), and NCCL adds some %d", tree->count, gpus, nics,
                   adds);
    topo_nccl(f, "end every job when they are more than %d", TOPO_ELEMENTS);
    topo_fix(f, "leave out switches that join nothing");
}

int topo_lint(const char *bytes, size_t length, struct topo_tree *tree,
              struct xc_topo_findings *findings, struct xc_error *error)
{
    *tree = (struct topo_tree){0};
    if (length > XC_TOPO_LIMIT)
        return xc_error_set(error, XC_EINPUT, NULL, "the file is larger than %u bytes",
                            XC_TOPO_LIMIT);
    topo_read(bytes, length, false, tree, findings);
    bool refused = tree->refused;
    if (refused && !tree->failed && !findings->failed)
        read_on(bytes, length, tree, findings);
    for (int i = 0; i < tree->count; i++) {
        lint_element(tree, &tree->elements[i], findings);
        lint_duplicate(tree, i, findings);
    }
    tree->refused |= refused;
    lint_systems(tree, findings);
    lint_first_cpu(tree, findings);
    lint_run(tree, findings);
    topo_sort(findings);
    return tree->failed || findings->failed ? xc_error_nomem(error) : 0;
}

int xc_topo_lint(const char *bytes, size_t length, struct xc_topo_findings *findings,
                 struct xc_error *error)
{
    topo_autotree struct topo_tree tree;
    return topo_lint(bytes, length, &tree, findings, error);
}
