/* Any bytes as a topology file: lint, verify, normalize, show and the picture take them, and what lint
 * lets through NCCL's rules allow. See drive.c for how it is run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <xcloud/topo.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const char *const fuzz_corpus[];
const char *const fuzz_corpus[] = {"tests/topo/good", "tests/topo/bad", NULL};

/* A machine with one GPU and one adapter, so that verify has something to compare. */
static const struct xc_pci pci[] = {{.bdf = {.bus = 0x18},
                                     .vendor = 0x10de,
                                     .device = 0x2330,
                                     .class = 0x030200,
                                     .parent = XC_NONE},
                                    {.bdf = {.bus = 0x19},
                                     .vendor = 0x15b3,
                                     .device = 0x1021,
                                     .class = 0x020700,
                                     .parent = XC_NONE}};
static const struct xc_gpu gpus[] = {{.pci = 0, .minor = 0}};
static const struct xc_nic nics[] = {{.pci = 1, .port = 1, .rdma = "mlx5_0"}};
static const struct xc_node node = {
    .npci = 2, .pci = pci, .ngpus = 1, .gpus = gpus, .nnics = 1, .nics = nics};

/* What normalize makes is a file of its own: NCCL takes it, and it is normal already. */
static void normal(const char *bytes, size_t size)
{
    struct xc_text once = XC_TEXT_INIT, twice = XC_TEXT_INIT;
    struct xc_topo_findings findings = {0};
    if (xc_topo_normalize(bytes, size, &once, NULL) == 0 && once.length > 0) {
        if (xc_topo_lint(once.data, once.length, &findings, NULL) == 0 &&
            xc_topo_refused(&findings))
            abort();
        if (xc_topo_normalize(once.data, once.length, &twice, NULL) < 0 ||
            once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0)
            abort();
    }
    xc_topo_findings_clear(&findings);
    xc_text_free(&once);
    xc_text_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct xc_topo_findings findings = {0};
    struct xc_text text = XC_TEXT_INIT;
    if (xc_topo_verify(bytes, size, &node, NULL, &findings, NULL) == 0) {
        xc_topo_findings_text(&findings, "file", &text);
        xc_topo_findings_json(&findings, "file", &text);
    }
    xc_topo_findings_clear(&findings);
    xc_text_free(&text);
    normal(bytes, size);
    xc_topo_show(bytes, size, &node, &text, NULL);
    xc_topo_svg(bytes, size, NULL, &text, NULL);
    xc_text_free(&text);
    return 0;
}
