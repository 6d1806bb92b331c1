/* A libnvidia-ml.so.1 that says what FAKE_NVML asks for: "good", "hang" (the second GPU never answers),
 * "crash", "lost" (the second GPU), "mismatch", "errors-hang" (counters of links never come). For
 * tests/checks/run. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *what)
{
    const char *word = getenv("FAKE_NVML");
    return word && strcmp(word, what) == 0;
}

struct pci {
    char legacy[16];
    unsigned numbers[5];
    char bus_id[32];
};
struct field {
    unsigned id, scope;
    long long times[2];
    int type, rc;
    unsigned long long value;
};

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields);
int nvmlDeviceGetTotalEccErrors(void *device, int error, int counter, unsigned long long *out);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);

int nvmlInit_v2(void)
{
    return is("mismatch") ? 18 : 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char devices[2];
    while (index == 1 && is("hang"))
        pause();
    if (index == 1 && is("crash"))
        abort();
    if (index == 1 && is("lost"))
        return 15;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    (void)device;
    strcpy(pci->bus_id, "00000000:18:00.0");
    return 0;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        while (fields[i].id == 161 && is("errors-hang"))
            pause();
        fields[i].type = 1;
        /* one that this GPU does not have, one that this driver does not know */
        fields[i].rc = fields[i].id == 219 ? 3 : fields[i].id == 214 ? 2 : 0;
        fields[i].value = fields[i].id == 91 ? 2 : 0;
    }
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int error, int counter, unsigned long long *out)
{
    (void)device;
    *out = error == 1 && counter == 0 ? 0 : 99;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    (void)device;
    (void)link;
    *active = 1;
    return 0;
}
