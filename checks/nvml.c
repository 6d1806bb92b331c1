/* What does the driver's own library say of each GPU? Runs in a child: every call here may hang with
 * a GPU, and then only the child is lost.
 *
 * libnvidia-ml.so.1 is opened when it is needed and nothing of NVIDIA's is built in: the few types,
 * field ids and functions below are those of NVML's API reference (docs.nvidia.com/deploy/nvml-api),
 * which keeps them stable by putting versions into names and structures. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "live.h"

/* ---- what we use of NVML ------------------------------------------------------------------------ */

typedef struct nvmlDevice_st *nvml_device;
enum {
    NVML_SUCCESS = 0,
    NVML_INVALID_ARGUMENT = 2, /* of a field: this driver is older than it */
    NVML_NOT_SUPPORTED = 3,
    NVML_FUNCTION_NOT_FOUND = 13
};

struct nvml_pci { /* nvmlPciInfo_t, of …GetPciInfo_v3 */
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct nvml_field { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, rc;
    union {
        double d;
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
        int i;
        unsigned short us;
    } value;
};
struct nvml_fabric { /* nvmlGpuFabricInfo_v2_t */
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
/* as NVML's own headers lay them out */
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_field) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(struct nvml_fabric) == 36, "nvmlGpuFabricInfo_v2_t");
#define NVML_FABRIC_V2 ((unsigned)sizeof(struct nvml_fabric) | 2u << 24)

enum { /* NVML_FI_DEV_… */
       FIELD_LINK_COUNT = 91,
       FIELD_REMAP_CORRECTED = 142,
       FIELD_REMAP_UNCORRECTED = 143,
       FIELD_REMAP_PENDING = 144,
       FIELD_REMAP_FAILURE = 145,
       FIELD_LINK_REPLAY = 161,
       FIELD_LINK_RECOVERY = 162,
       FIELD_LINK_CRC = 163,
       FIELD_LINK_RECEIVE_ERRORS = 208,
       FIELD_LINK_RECOVERY_FAILED = 214,
       FIELD_LINK_EFFECTIVE_ERRORS = 219,
       FIELD_RECOVERY_ACTION = 230
};

struct nvml {
    int (*init)(void);
    int (*driver_version)(char *, unsigned);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, nvml_device *);
    int (*pci_info)(nvml_device, struct nvml_pci *);
    int (*fields)(nvml_device, int, struct nvml_field *);
    int (*ecc_total)(nvml_device, int error, int counter, unsigned long long *);
    int (*link_state)(nvml_device, unsigned link, int *active);
    int (*fabric)(nvml_device, struct nvml_fabric *);
};

static bool load(struct nvml *nvml, int out)
{
    const struct {
        const char *name;
        void *function;
        bool needed;
    } all[] = {{"nvmlInit_v2", &nvml->init, true},
               {"nvmlDeviceGetCount_v2", &nvml->count, true},
               {"nvmlDeviceGetHandleByIndex_v2", &nvml->by_index, true},
               {"nvmlSystemGetDriverVersion", &nvml->driver_version, false},
               {"nvmlDeviceGetPciInfo_v3", &nvml->pci_info, true},
               {"nvmlDeviceGetFieldValues", &nvml->fields, false},
               {"nvmlDeviceGetTotalEccErrors", &nvml->ecc_total, false},
               {"nvmlDeviceGetNvLinkState", &nvml->link_state, false},
               {"nvmlDeviceGetGpuFabricInfoV", &nvml->fabric, false}};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        chk_probe_line(out, "nvml load_error %s", dlerror());
        return false;
    }
    for (size_t i = 0; i < XC_COUNT(all); i++) {
        void *function = dlsym(library, all[i].name);
        memcpy(all[i].function, &function, sizeof function);
        if (!function && all[i].needed) {
            chk_probe_line(out, "nvml load_error libnvidia-ml.so.1 has no %s", all[i].name);
            return false;
        }
    }
    return true;
}

/* ---- one GPU ------------------------------------------------------------------------------------ */

struct gpu {
    const struct nvml *nvml;
    nvml_device device;
    unsigned index;
    bool counts; /* the errors of its links are wanted, too */
    int out;
};

/* A call's error that says something of the GPU; what this GPU or driver does not have is left out. */
static bool good(const struct gpu *gpu, const char *key, int rc)
{
    if (rc != NVML_SUCCESS && rc != NVML_NOT_SUPPORTED && rc != NVML_FUNCTION_NOT_FOUND)
        chk_probe_line(gpu->out, "gpu %u error_%s %d", gpu->index, key, rc);
    return rc == NVML_SUCCESS;
}

static bool good_field(const struct gpu *gpu, const char *key, int rc)
{
    return rc != NVML_INVALID_ARGUMENT && good(gpu, key, rc);
}

static uint64_t field_number(const struct nvml_field *field)
{
    switch (field->type) { /* nvmlValueType_t */
    case 0:
        return (uint64_t)field->value.d;
    case 1:
        return field->value.u;
    case 2:
        return field->value.ul;
    case 5:
        return (uint64_t)(int64_t)field->value.i;
    case 6:
        return field->value.us;
    default:
        return field->value.ull;
    }
}

static bool field(const struct gpu *gpu, const char *key, unsigned id, unsigned scope,
                  uint64_t *value)
{
    struct nvml_field one = {.id = id, .scope = scope};
    if (!gpu->nvml->fields)
        return false;
    int rc = gpu->nvml->fields(gpu->device, 1, &one);
    if (!good_field(gpu, key, rc) || !good_field(gpu, key, one.rc))
        return false;
    *value = field_number(&one);
    return true;
}

static void say_field(const struct gpu *gpu, const char *key, unsigned id)
{
    uint64_t value;
    if (field(gpu, key, id, 0, &value))
        chk_probe_line(gpu->out, "gpu %u %s %" PRIu64, gpu->index, key, value);
}

static void health(const struct gpu *gpu)
{
    unsigned long long errors;
    say_field(gpu, "recovery", FIELD_RECOVERY_ACTION);
    say_field(gpu, "remap_corrected", FIELD_REMAP_CORRECTED);
    say_field(gpu, "remap_uncorrected", FIELD_REMAP_UNCORRECTED);
    say_field(gpu, "remap_pending", FIELD_REMAP_PENDING);
    say_field(gpu, "remap_failure", FIELD_REMAP_FAILURE);
    /* 1: uncorrected; 0: volatile, since the driver was loaded */
    if (gpu->nvml->ecc_total &&
        good(gpu, "ecc_uncorrected", gpu->nvml->ecc_total(gpu->device, 1, 0, &errors)))
        chk_probe_line(gpu->out, "gpu %u ecc_uncorrected %llu", gpu->index, errors);
}

static void link_errors(const struct gpu *gpu, unsigned link)
{
    static const struct {
        const char *key;
        unsigned id;
    } kinds[] = {{"replay", FIELD_LINK_REPLAY}, /* up to Hopper */
                 {"recovery", FIELD_LINK_RECOVERY},
                 {"crc", FIELD_LINK_CRC},
                 {"receive", FIELD_LINK_RECEIVE_ERRORS}, /* from Blackwell on */
                 {"recovery_failed", FIELD_LINK_RECOVERY_FAILED},
                 {"effective", FIELD_LINK_EFFECTIVE_ERRORS}};
    struct nvml_field all[XC_COUNT(kinds)] = {0};
    for (size_t i = 0; i < XC_COUNT(kinds); i++)
        all[i] = (struct nvml_field){.id = kinds[i].id, .scope = link};
    /* one call: each costs the driver half a millisecond, and there may be 144 links */
    if (!gpu->nvml->fields ||
        !good_field(gpu, "link", gpu->nvml->fields(gpu->device, (int)XC_COUNT(kinds), all)))
        return;
    for (size_t i = 0; i < XC_COUNT(kinds); i++)
        if (good_field(gpu, "link", all[i].rc))
            chk_probe_line(gpu->out, "link %u:%u %s %" PRIu64, gpu->index, link, kinds[i].key,
                           field_number(&all[i]));
}

#define LINKS_MAX 36 /* NVML_NVLINK_MAX_LINKS is 18; room for what comes */

static void links(const struct gpu *gpu)
{
    uint64_t count = 0;
    int active;
    if (!gpu->nvml->link_state || !field(gpu, "links", FIELD_LINK_COUNT, 0, &count))
        return;
    chk_probe_line(gpu->out, "gpu %u links %" PRIu64, gpu->index, count);
    for (unsigned link = 0; link < count && link < LINKS_MAX; link++) {
        if (!good(gpu, "link_state", gpu->nvml->link_state(gpu->device, link, &active)))
            continue;
        chk_probe_line(gpu->out, "link %u:%u up %d", gpu->index, link, active);
        if (active && gpu->counts)
            link_errors(gpu, link);
    }
}

static void fabric(const struct gpu *gpu)
{
    struct nvml_fabric info = {.version = NVML_FABRIC_V2};
    if (!gpu->nvml->fabric || !good(gpu, "fabric", gpu->nvml->fabric(gpu->device, &info)))
        return;
    bool cluster = false; /* GPUs of one NVLink domain over several nodes */
    for (size_t i = 0; i < sizeof info.cluster; i++)
        cluster |= info.cluster[i] != 0;
    chk_probe_line(gpu->out, "gpu %u fabric_state %u", gpu->index, info.state);
    chk_probe_line(gpu->out, "gpu %u fabric_status %d", gpu->index, info.status);
    chk_probe_line(gpu->out, "gpu %u fabric_health 0x%x", gpu->index, info.health);
    chk_probe_line(gpu->out, "gpu %u fabric_cluster %d", gpu->index, cluster);
    chk_probe_line(gpu->out, "gpu %u fabric_clique %u", gpu->index, info.clique);
}

static void one_gpu(const struct nvml *nvml, unsigned index, bool counts, int out)
{
    struct gpu gpu = {.nvml = nvml, .index = index, .counts = counts, .out = out};
    struct nvml_pci pci = {0};
    struct xc_bdf bdf;
    char text[XC_BDF_TEXT];
    chk_probe_line(out, "gpu %u asked 1", index); /* the last one, when it hangs */
    if (!good(&gpu, "handle", nvml->by_index(index, &gpu.device)))
        return;
    if (good(&gpu, "pci", nvml->pci_info(gpu.device, &pci))) {
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        if (xc_bdf_parse(pci.bus_id, &bdf))
            chk_probe_line(out, "gpu %u bdf %s", index, xc_bdf_text(&bdf, text));
    }
    health(&gpu);
    links(&gpu);
    fabric(&gpu);
    chk_probe_line(out, "gpu %u answered 1", index);
}

#define GPUS_MAX 64

/* NVML leaves out, without a word, a GPU whose device a cgroup closes to this process. */
static void closed_devices(int out)
{
    unsigned closed = 0;
    char path[32];
    for (unsigned i = 0; i < GPUS_MAX; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", i);
        closed += access(path, R_OK | W_OK) < 0 && (errno == EPERM || errno == EACCES);
    }
    if (closed)
        chk_probe_line(out, "nvml closed %u", closed);
}

/* nvmlShutdown takes 8 ms and gives the child nothing: it ends. */
int chk_probe_nvml(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    struct nvml nvml;
    char version[96] = "";
    unsigned count = 0;
    int rc;
    /* the longest part by far, and a job waits: a prolog leaves it to health */
    bool counts = input->at != XC_AT_PROLOG;
    (void)deadline_ms;
    if (!load(&nvml, out)) {
        chk_probe_line(out, "end");
        return 0;
    }
    chk_probe_line(out, "nvml asked 1");
    if ((rc = nvml.init()) != NVML_SUCCESS) {
        chk_probe_line(out, "nvml init_error %d", rc);
        chk_probe_line(out, "end");
        return 0;
    }
    if (nvml.driver_version && nvml.driver_version(version, sizeof version) == NVML_SUCCESS)
        chk_probe_line(out, "nvml driver %.90s", version);
    if ((rc = nvml.count(&count)) != NVML_SUCCESS)
        chk_probe_line(out, "nvml count_error %d", rc);
    else
        chk_probe_line(out, "nvml count %u", count);
    if (rc == NVML_SUCCESS)
        closed_devices(out);
    for (unsigned i = 0; i < count && i < GPUS_MAX; i++)
        one_gpu(&nvml, i, counts, out);
    chk_probe_line(out, "end");
    return 0;
}
