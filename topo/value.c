/* What does a value in the file mean to NCCL, and what did a person mean by it? NCCL compares with the
 * beginnings in a table and falls back without a word; its own spelling is the only safe one. */
#include <math.h>
#include <string.h>

#include "topo.h"

enum topo_class topo_class_of(const char *text, bool *known)
{
    static const struct {
        const char *prefix;
        enum topo_class class;
    } classes[] = {
        {"0x060400", TOPO_IS_SWITCH},   {"0x080100", TOPO_IS_SWITCH}, /* ConnectX-8's data direct */
        {"0x068000", TOPO_IS_NVSWITCH}, {"0x068001", TOPO_IS_CPU},
        {"0x03", TOPO_IS_GPU},          {"0x02", TOPO_IS_NIC}};
    *known = true;
    for (size_t i = 0; i < XC_COUNT(classes); i++)
        if (xc_starts(text, classes[i].prefix))
            return classes[i].class;
    *known = false;
    return TOPO_IS_SWITCH;
}

static const struct {
    const char *prefix;
    unsigned speed;
} speeds[] = {
    {"2.5 GT/s", 15},        {"5 GT/s", 30},          {"8 GT/s", 60},
    {"16 GT/s", 120},        {"32 GT/s", 240},        {"5.0 GT/s PCIe", 30},
    {"8.0 GT/s PCIe", 60},   {"16.0 GT/s PCIe", 120}, {"32.0 GT/s PCIe", 240},
    {"64.0 GT/s PCIe", 480},
};
#define GEN3 60

unsigned topo_speed(const char *text, bool *known)
{
    *known = true;
    for (size_t i = 0; i < XC_COUNT(speeds); i++)
        if (xc_starts(text, speeds[i].prefix))
            return speeds[i].speed;
    *known = false;
    return GEN3;
}

const char *topo_speed_text(uint32_t mts)
{
    switch (mts) {
    case 2500:
        return "2.5 GT/s PCIe";
    case 5000:
        return "5.0 GT/s PCIe";
    case 8000:
        return "8.0 GT/s PCIe";
    case 16000:
        return "16.0 GT/s PCIe";
    case 32000:
        return "32.0 GT/s PCIe";
    case 64000:
        return "64.0 GT/s PCIe";
    default:
        return NULL;
    }
}

uint32_t topo_speed_meant(const char *text)
{
    char *end;
    text += strcspn(text, "0123456789");
    double number = *text ? strtod(text, &end) : 0;
    if (!(number > 0 && number < 1000))
        return 0;
    return (uint32_t)lround(number * 1000);
}

double topo_gbytes(unsigned speed, unsigned width)
{
    return (width ? width : 16) * speed / 80.0;
}

/* ---- bus ids ------------------------------------------------------------------------------------- */

static size_t hex_digits(const char *text)
{
    return strspn(text, "0123456789abcdef");
}

bool topo_busid_ok(const char *text)
{
    size_t domain = hex_digits(text);
    if (domain < 4 || domain > 8 || (domain > 4 && text[0] == '0'))
        return false;
    text += domain;
    return text[0] == ':' && hex_digits(text + 1) == 2 && text[3] == ':' &&
           hex_digits(text + 4) == 2 && text[6] == '.' && hex_digits(text + 7) == 1 && !text[8];
}

bool topo_busid_meant(const char *text, char out[XC_BDF_TEXT])
{
    struct xc_bdf bdf;
    char full[40];
    snprintf(full, sizeof full, "%.30s", text);
    if (strlen(text) == 7) /* lspci leaves domain 0 out */
        snprintf(full, sizeof full, "0000:%s", text);
    if (!xc_bdf_parse(full, &bdf))
        return false;
    xc_bdf_text(&bdf, out);
    return true;
}
