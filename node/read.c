/* What is this machine? Puts the parts together; the parts are cpu.c, numa.c, speed.c, gpu.c, nic.c
 * and pci.c. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include <xcloud/policy.h>

#include "reader.h"

/* ---- what the parts share -------------------------------------------------------------------------- */

int node_read_set(struct node_reader *reader, struct xc_set *out, bool mask, const char *format,
                  ...)
{
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    xc_autofree char *path = xc_text_take(&text);
    if (!path)
        return xc_error_nomem(reader->error);
    struct xc_error error = {0};
    xc_autofree char *content = xc_root_read(reader->root, NULL, &error, "%s", path);
    if (!content && error.code == XC_ENOENT)
        return 0;
    int rc = !content ? -1
             : mask   ? xc_set_parse_mask(out, content, path, &error)
                      : xc_set_parse_list(out, content, path, &error);
    if (rc < 0 && reader->error)
        *reader->error = error;
    return rc < 0 ? -1 : 1;
}

uint32_t node_thousandths(const char *text)
{
    uint64_t value = 0;
    if (!isdigit((unsigned char)*text))
        return 0;
    for (; isdigit((unsigned char)*text) && value < UINT32_MAX; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    value *= 1000;
    if (*text == '.') {
        unsigned place = 100;
        for (text++; isdigit((unsigned char)*text) && place > 0; text++, place /= 10)
            value += (uint64_t)(*text - '0') * place;
    }
    return value <= UINT32_MAX ? (uint32_t)value : 0;
}

void *node_grow(struct node_reader *reader, void *array, size_t count, size_t *size, size_t element)
{
    if (count < *size)
        return array;
    size_t larger = *size ? 2 * *size : 16;
    void *grown = realloc(array, larger * element);
    if (!grown) {
        xc_error_nomem(reader->error);
        return NULL;
    }
    *size = larger;
    return grown;
}

/* ---- who it is ---------------------------------------------------------------------------------------- */

static void copy_line(struct xc_root *root, const char *path, char *to, size_t size)
{
    xc_autofree char *line = xc_root_read_line(root, "%s", path);
    snprintf(to, size, "%s", line ? xc_trim(line) : "");
}

/* Whether a kernel module alias names a CPU feature ("cpu:type:x86,…:feature:,0000,009F"). */
static bool has_feature(const char *modalias, const char *number)
{
    const char *features = strstr(modalias, ":feature:");
    return features && strstr(features, number);
}

/* "ven0000fam0006mod008F": the kernel's X86_VENDOR_ (arch/x86/include/asm/processor.h), in words. */
static void cpu_of_modalias(const char *modalias, struct xc_node *node)
{
    static const struct {
        unsigned number;
        const char *name;
    } vendors[] = {{0, "GenuineIntel"},
                   {2, "AuthenticAMD"},
                   {5, "CentaurHauls"},
                   {9, "HygonGenuine"},
                   {10, "  Shanghai  "}};
    unsigned vendor, family, model;
    if (sscanf(modalias, "cpu:type:x86,ven%4xfam%4xmod%4x", &vendor, &family, &model) != 3)
        return;
    for (size_t i = 0; i < XC_COUNT(vendors); i++)
        if (vendors[i].number == vendor)
            snprintf(node->cpu_vendor, sizeof node->cpu_vendor, "%s", vendors[i].name);
    node->cpu_family = family;
    node->cpu_model = model;
}

/* The first CPU's line "KEY   : VALUE". */
static bool cpuinfo_number(const char *cpuinfo, const char *key, uint32_t *number)
{
    const char *line = strstr(cpuinfo, key);
    return line && sscanf(line + strlen(key), " : %" SCNu32, number) == 1;
}

static void cpu_of_cpuinfo(const char *cpuinfo, struct xc_node *node)
{
    const char *vendor = strstr(cpuinfo, "vendor_id");
    if (vendor && sscanf(vendor, "vendor_id : %15[A-Za-z]", node->cpu_vendor) == 1 &&
        !(cpuinfo_number(cpuinfo, "\ncpu family", &node->cpu_family) &&
          cpuinfo_number(cpuinfo, "\nmodel\t", &node->cpu_model)))
        node->cpu_vendor[0] = '\0';
}

/* modalias is one small line; cpuinfo, which an old kernel or capture has alone, one block a CPU. */
static void read_architecture(struct xc_root *root, struct xc_node *node, bool *virtual)
{
    xc_autofree char *modalias = xc_root_read_line(root, "/sys/devices/system/cpu/modalias");
    char type[sizeof node->arch];
    if (modalias && sscanf(modalias, "cpu:type:%15[a-z0-9_]", type) == 1) {
        snprintf(node->arch, sizeof node->arch, "%s", xc_streq(type, "x86") ? "x86_64" : type);
        cpu_of_modalias(modalias, node);
        *virtual = has_feature(modalias, ",009F"); /* X86_FEATURE_HYPERVISOR */
        return;
    }
    xc_autofree char *cpuinfo = xc_root_read(root, NULL, NULL, "/proc/cpuinfo");
    if (!cpuinfo)
        return;
    if (strstr(cpuinfo, "vendor_id"))
        snprintf(node->arch, sizeof node->arch, "x86_64");
    else if (strstr(cpuinfo, "CPU implementer"))
        snprintf(node->arch, sizeof node->arch, "aarch64");
    cpu_of_cpuinfo(cpuinfo, node);
    *virtual = strstr(cpuinfo, " hypervisor");
}

/* ARM has no CPU flag for it; there the firmware's names say it. */
static bool firmware_is_virtual(const struct xc_node *node)
{
    static const char *const vendors[] = {"QEMU*", "*Xen*", "VMware*", "innotek*"};
    static const char *const products[] = {"KVM*", "*Virtual Machine*", "*Virtual Platform*"};
    for (size_t i = 0; i < XC_COUNT(vendors); i++)
        if (xc_glob(vendors[i], node->vendor))
            return true;
    for (size_t i = 0; i < XC_COUNT(products); i++)
        if (xc_glob(products[i], node->product))
            return true;
    return false;
}

static bool is_pod(struct xc_root *root)
{
    static const char *const marks[] = {"/run/secrets/kubernetes.io",
                                        "/var/run/secrets/kubernetes.io", "/.dockerenv",
                                        "/run/.containerenv"};
    for (size_t i = 0; i < XC_COUNT(marks); i++)
        if (xc_root_exists(root, "%s", marks[i]))
            return true;
    return false;
}

static void read_identity(struct xc_root *root, struct xc_node *node)
{
    bool virtual = false;
    copy_line(root, "/sys/class/dmi/id/product_name", node->product, sizeof node->product);
    copy_line(root, "/sys/class/dmi/id/sys_vendor", node->vendor, sizeof node->vendor);
    read_architecture(root, node, &virtual);
    if (is_pod(root))
        node->environment = XC_POD;
    else if (virtual || firmware_is_virtual(node) || xc_root_exists(root, "/sys/hypervisor/type"))
        node->environment = XC_VM;
    /* also below another root than "/": a pod has the host's at /host */
    copy_line(root, "/proc/sys/kernel/random/boot_id", node->boot_id, sizeof node->boot_id);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

void node_free_reader(struct node_reader *reader)
{
    free(reader->cpus);
    free(reader->cpu_index);
    free(reader->numas);
    free(reader->distance);
    free(reader->pci);
    free(reader->gpus);
    free(reader->nics);
}

/* The finished arrays as a node of one block, checked like a snapshot from outside. */
int node_finish(struct node_reader *reader, struct xc_node *head, struct xc_node **out)
{
    head->ncpus = reader->ncpus;
    head->ncores = reader->ncores;
    head->npackages = reader->npackages;
    head->nl3 = reader->nl3;
    head->nnumas = reader->nnumas;
    head->npci = reader->npci;
    head->ngpus = reader->ngpus;
    head->nnics = reader->nnics;
    head->cpus = reader->cpus;
    head->numas = reader->numas;
    head->distance = reader->distance;
    head->pci = reader->pci;
    head->gpus = reader->gpus;
    head->nics = reader->nics;
    void *bytes;
    size_t length;
    if (xc_node_image(head, &bytes, &length, reader->error) < 0)
        return -1;
    if (xc_node_adopt(bytes, length, false, xc_root_name(reader->root), out, reader->error) < 0) {
        free(bytes);
        return -1;
    }
    return 0;
}

static int read_devices(struct node_reader *reader, const struct xc_node_options *options)
{
    xc_autofree struct xc_gpu_kind *own = NULL;
    const struct xc_gpu_kind *kinds = options ? options->kinds : NULL;
    size_t nkinds = options ? options->nkinds : 0;
    if (nkinds == 0) {
        if (node_gpu_kinds(reader, &own, &nkinds) < 0)
            return -1;
        kinds = own;
    }
    if (node_read_gpus(reader, kinds, nkinds) < 0 || node_read_nics(reader) < 0)
        return -1;
    return node_pci_sort(reader);
}

/* The CPUs that slurm.conf reserves, as flags. */
int node_mark_slurm(struct node_reader *reader, const struct xc_slurm_node *slurm)
{
    struct xc_node node = {
        .cpus = reader->cpus,
        .ncpus = reader->ncpus,
        .ncores = reader->ncores,
        .npackages = reader->npackages,
        .nl3 = reader->nl3,
        .numas = reader->numas,
        .nnumas = reader->nnumas,
    };
    xc_autoset struct xc_set reserved = XC_SET_EMPTY;
    if (xc_node_slurm_spec(&node, slurm, &reserved, reader->error) < 0)
        return -1;
    for (size_t i = 0; i < reader->ncpus; i++)
        if (xc_set_has(&reserved, (size_t)reader->cpus[i].os))
            reader->cpus[i].flags |= XC_CPU_SLURM_SPEC;
    return 0;
}

/* Features that do not fit are left out whole: half a name would be another one. */
void node_copy_features(const struct xc_slurm_node *slurm, struct xc_node *node)
{
    size_t used = 0;
    node->features[0] = '\0';
    for (char **feature = slurm ? slurm->features : NULL; feature && *feature; feature++) {
        size_t length = strlen(*feature);
        if (used + length + 2 > sizeof node->features)
            continue;
        used += (size_t)snprintf(node->features + used, sizeof node->features - used, "%s%s",
                                 used ? "," : "", *feature);
    }
}

int xc_node_read(struct xc_root *root, const struct xc_node_options *options, struct xc_node **out,
                 struct xc_error *error)
{
    struct node_reader reader = {.root = root, .error = error};
    struct xc_node head = {.made_at = (int64_t)time(NULL)};
    head.dynamic_at = head.made_at;
    read_identity(root, &head);
    node_copy_features(options ? options->slurm : NULL, &head);
    int rc = node_read_cpus(&reader);
    if (rc == 0)
        rc = node_read_numas(&reader);
    if (rc == 0)
        rc = node_read_speeds(&reader);
    if (rc == 0)
        rc = read_devices(&reader, options);
    if (rc == 0 && options && options->slurm)
        rc = node_mark_slurm(&reader, options->slurm);
    if (rc == 0)
        rc = node_finish(&reader, &head, out);
    node_free_reader(&reader);
    return rc;
}
