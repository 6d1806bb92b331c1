/* Which GPUs are there, and what does the driver call them? */
#include <ctype.h>
#include <string.h>

#include "reader.h"

#define NVIDIA    "/proc/driver/nvidia"
#define KIND_FILE "/etc/xcloud/gpu-kinds"

static const struct xc_gpu_kind default_kind = {
    .vendor = 0x10de, .class = 0x030000, .mask = 0xff0000};

/* ---- kinds ------------------------------------------------------------------------------------------ */

static bool hex_number(const char *text, size_t length, uint32_t *out)
{
    char copy[8], *end;
    if (length == 0 || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *out = (uint32_t)strtoul(copy, &end, 16);
    return !*end && isxdigit((unsigned char)copy[0]);
}

/* "10de:0302" */
static bool parse_kind(const char *text, size_t length, struct xc_gpu_kind *kind)
{
    const char *colon = memchr(text, ':', length);
    uint32_t vendor = 0, class;
    if (!colon)
        return false;
    size_t before = (size_t)(colon - text), after = length - before - 1;
    if (!(before == 1 && text[0] == '*') && !(hex_number(text, before, &vendor) && before == 4))
        return false;
    if ((after != 2 && after != 4 && after != 6) || !hex_number(colon + 1, after, &class))
        return false;
    unsigned shift = (unsigned)(6 - after) * 4;
    *kind = (struct xc_gpu_kind){.vendor = (uint16_t)vendor,
                                 .class = class << shift,
                                 .mask = 0xffffffu << shift & 0xffffffu};
    return true;
}

int xc_gpu_kinds_parse(const char *text, struct xc_gpu_kind **kinds, size_t *count,
                       struct xc_error *error)
{
    static const char separators[] = ", \t\n";
    size_t size = 0, used = 0;
    struct xc_gpu_kind *list = NULL;
    for (const char *at = text + strspn(text, separators); *at; at += strspn(at, separators)) {
        size_t length = strcspn(at, separators);
        if (used == size) {
            size = size ? 2 * size : 4;
            struct xc_gpu_kind *larger = realloc(list, size * sizeof *list);
            if (!larger) {
                free(list);
                return xc_error_nomem(error);
            }
            list = larger;
        }
        if (!parse_kind(at, length, &list[used++])) {
            free(list);
            return xc_error_set(error, XC_EINPUT, NULL,
                                "\"%.*s\" is no kind of GPU; expected VENDOR:CLASS in hexadecimal, "
                                "for example 10de:03 or *:0380",
                                length > 60 ? 60 : (int)length, at);
        }
        at += length;
    }
    if (used == 0)
        return xc_error_set(error, XC_EINPUT, NULL, "no kind of GPU is named");
    *kinds = list;
    *count = used;
    return 0;
}

int node_gpu_kinds(struct node_reader *reader, struct xc_gpu_kind **kinds, size_t *nkinds)
{
    *kinds = NULL;
    *nkinds = 0;
    struct xc_error error = {0};
    xc_autofree char *text = xc_root_read(reader->root, NULL, &error, KIND_FILE);
    if (!text && error.code == XC_ENOENT)
        return 0;
    if (!text) {
        if (reader->error)
            *reader->error = error;
        return -1;
    }
    bool comment = false;
    for (char *c = text; *c; c++) {
        comment = *c == '\n' ? false : comment || *c == '#';
        if (comment)
            *c = ' ';
    }
    if (xc_gpu_kinds_parse(text, kinds, nkinds, reader->error) < 0)
        return xc_error_wrap(reader->error, KIND_FILE);
    return 0;
}

/* ---- what the driver says ----------------------------------------------------------------------------- */

/* The value of "Key: \t value" in an information file, cut out in place, or NULL. */
static char *value_of(char *information, const char *key)
{
    for (char *line = information; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (xc_starts(line, key) && line[strlen(key)] == ':') {
            line += strlen(key) + 1;
            line[strcspn(line, "\n")] = '\0';
            return xc_trim(line);
        }
    }
    return NULL;
}

/* The driver shows question marks until it has talked to the GPU. */
static void copy_uuid(struct xc_gpu *gpu, const char *uuid)
{
    size_t length = strlen(uuid);
    if (length >= sizeof gpu->uuid)
        return;
    for (const char *c = uuid; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-')
            return;
    memcpy(gpu->uuid, uuid, length + 1);
}

static void read_information(struct node_reader *reader, struct xc_gpu *gpu, const char *name)
{
    xc_autofree char *text =
        xc_root_read(reader->root, NULL, NULL, NVIDIA "/gpus/%s/information", name);
    xc_autofree char *again = text ? strdup(text) : NULL; /* value_of cuts */
    char *minor = text ? value_of(text, "Device Minor") : NULL;
    char *uuid = again ? value_of(again, "GPU UUID") : NULL;
    long number;
    if (minor && xc_to_long(minor, 0, 65535, &number))
        gpu->minor = (int32_t)number;
    if (uuid)
        copy_uuid(gpu, uuid);
}

/* The kernel has no file that says "MIG mode is on". What it shows is a directory for each GPU
 * instance, so a GPU in MIG mode without an instance counts as one without MIG. */
void node_read_mig(struct node_reader *reader, struct xc_gpu *gpu)
{
    gpu->mig = 0;
    if (gpu->minor < 0)
        return;
    xc_autonames char **names =
        xc_root_list(reader->root, NVIDIA "/capabilities/gpu%d/mig", gpu->minor);
    for (char **name = names; name && *name; name++)
        if (xc_starts(*name, "gi"))
            gpu->mig = 1;
}

/* Directories of gpus/ are BDFs. Without the directory there is no driver: the position stands for
 * the minor, which is what the driver will give. With it, a GPU that is missing has none. */
static void ask_driver(struct node_reader *reader)
{
    xc_autonames char **names = xc_root_list(reader->root, NVIDIA "/gpus");
    for (size_t i = 0; i < reader->ngpus; i++) {
        struct xc_gpu *gpu = &reader->gpus[i];
        if (!names)
            gpu->minor = (int32_t)i;
        for (char **name = names; name && *name; name++) {
            struct xc_bdf bdf;
            if (xc_bdf_parse(*name, &bdf) && xc_bdf_compare(&bdf, &reader->pci[gpu->pci].bdf) == 0)
                read_information(reader, gpu, *name);
        }
        node_read_mig(reader, gpu);
    }
}

/* ---- finding them ------------------------------------------------------------------------------------- */

static bool is_gpu(struct node_reader *reader, const char *bdf, const struct xc_gpu_kind *kinds,
                   size_t nkinds)
{
    long class, vendor;
    if (!xc_root_read_long(reader->root, &class, "/sys/bus/pci/devices/%s/class", bdf))
        return false;
    for (size_t i = 0; i < nkinds; i++)
        if (((uint32_t) class & kinds[i].mask) == kinds[i].class &&
            (kinds[i].vendor == 0 ||
             (xc_root_read_long(reader->root, &vendor, "/sys/bus/pci/devices/%s/vendor", bdf) &&
              vendor == kinds[i].vendor)))
            return true;
    return false;
}

static int add_gpu(struct node_reader *reader, const char *bdf)
{
    xc_autofree char *path = xc_root_canonical(reader->root, "/sys/bus/pci/devices/%s", bdf);
    int32_t pci;
    if (!path)
        return 0; /* it went away, or its link leads nowhere */
    if (node_pci_add(reader, path, &pci) < 0)
        return -1;
    if (pci < 0)
        return 0;
    for (size_t i = 0; i < reader->ngpus; i++)
        if (reader->gpus[i].pci == pci)
            return 0; /* another link to the same function */
    if (reader->ngpus >= XC_NODE_GPUS_MAX)
        return xc_error_set(reader->error, XC_EINPUT, path, "more than %d GPUs", XC_NODE_GPUS_MAX);
    struct xc_gpu *array =
        node_grow(reader, reader->gpus, reader->ngpus, &reader->gpus_size, sizeof *array);
    if (!array)
        return -1;
    reader->gpus = array;
    array[reader->ngpus++] =
        (struct xc_gpu){.pci = pci, .minor = XC_NONE, .numa = reader->pci[pci].numa};
    return 0;
}

/* Insertion by BDF: names of domains with more digits do not sort as text. */
static void sort_gpus(struct node_reader *reader)
{
    for (size_t i = 1; i < reader->ngpus; i++)
        for (size_t j = i; j > 0 && xc_bdf_compare(&reader->pci[reader->gpus[j - 1].pci].bdf,
                                                   &reader->pci[reader->gpus[j].pci].bdf) > 0;
             j--) {
            struct xc_gpu swap = reader->gpus[j];
            reader->gpus[j] = reader->gpus[j - 1];
            reader->gpus[j - 1] = swap;
        }
}

int node_read_gpus(struct node_reader *reader, const struct xc_gpu_kind *kinds, size_t nkinds)
{
    xc_autonames char **names = xc_root_list(reader->root, "/sys/bus/pci/devices");
    struct xc_bdf bdf;
    if (nkinds == 0) {
        kinds = &default_kind;
        nkinds = 1;
    }
    for (char **name = names; name && *name; name++)
        if (xc_bdf_parse(*name, &bdf) && is_gpu(reader, *name, kinds, nkinds) &&
            add_gpu(reader, *name) < 0)
            return -1;
    sort_gpus(reader);
    ask_driver(reader);
    return 0;
}
