/* What does a text in the policy mean: a time, a rate, a list, a comparison, a name? No YAML here and
 * no errors: each function says yes or no, and the caller says where. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "policy.h"

#define DIGITS "0123456789"

/* A number with at most 9 digits at *at, which moves behind it. */
static bool take_number(const char **at, unsigned long *out)
{
    size_t digits = strspn(*at, DIGITS);
    if (digits == 0 || digits > 9)
        return false;
    *out = strtoul(*at, NULL, 10);
    *at += digits;
    return true;
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " ");
}

bool pol_seconds(const char *text, unsigned *seconds)
{
    static const struct {
        char unit;
        unsigned seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    unsigned long number;
    if (!take_number(&text, &number))
        return false;
    text = skip_blanks(text);
    for (size_t i = 0; i < XC_COUNT(units); i++)
        if (text[0] == units[i].unit && text[1] == '\0' && number > 0 &&
            number <= 3650ul * 86400 / units[i].seconds) { /* ten years */
            *seconds = (unsigned)number * units[i].seconds;
            return true;
        }
    return false;
}

bool pol_rate(const char *text, unsigned *mbps)
{
    unsigned long number;
    if (!take_number(&text, &number) || number == 0 || number > 1000000)
        return false;
    text = skip_blanks(text);
    /* a capital B would be bytes: eight times as much */
    if (strcmp(text, "Gb/s") == 0 || strcmp(text, "gb/s") == 0)
        *mbps = (unsigned)number * 1000;
    else if (strcmp(text, "Mb/s") == 0 || strcmp(text, "mb/s") == 0)
        *mbps = (unsigned)number;
    else
        return false;
    return true;
}

/* "8", "1%", "8 or 1%" */
static void take_smaller(unsigned *value, unsigned long number)
{
    if (*value == 0 || number < *value)
        *value = (unsigned)number;
}

bool pol_limit(const char *text, struct xc_limit *out)
{
    *out = (struct xc_limit){0};
    for (;;) {
        unsigned long number;
        if (!take_number(&text, &number) || number == 0 || number > 10000000)
            return false;
        if (*text == '%') {
            if (number > 100)
                return false;
            take_smaller(&out->percent, number);
            text++;
        } else {
            take_smaller(&out->nodes, number);
        }
        if (!*text)
            return true;
        if (strncmp(text, " or ", 4) != 0)
            return false;
        text += 4;
    }
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static const char *const operators[] = {">=", "<=", "!=", "==", ">", "<", "="};

/* The operator at *at, or NULL; *at moves to what follows it. */
static const char *take_operator(const char **at)
{
    for (size_t i = 0; i < XC_COUNT(operators); i++)
        if (xc_starts(*at, operators[i])) {
            *at = skip_blanks(*at + strlen(operators[i]));
            return operators[i];
        }
    return NULL;
}

static bool holds(const char *op, unsigned long left, unsigned long right)
{
    switch (op[0]) {
    case '>':
        return op[1] ? left >= right : left > right;
    case '<':
        return op[1] ? left <= right : left < right;
    case '!':
        return left != right;
    default:
        return left == right;
    }
}

/* All of the comma list must hold. False also for what cannot be read, told by *ok. */
static bool compare(const char *at, unsigned long number, bool *ok)
{
    bool all = true;
    *ok = false;
    for (;;) {
        unsigned long limit;
        at = skip_blanks(at);
        const char *op = take_operator(&at);
        if (!op || !take_number(&at, &limit))
            return false;
        all = all && holds(op, number, limit);
        at = skip_blanks(at);
        if (!*at) {
            *ok = true;
            return all;
        }
        if (*at++ != ',')
            return false;
    }
}

bool pol_compare_ok(const char *expression)
{
    bool ok;
    compare(expression, 0, &ok);
    return ok;
}

bool pol_compare_holds(const char *expression, unsigned long number)
{
    bool ok;
    return compare(expression, number, &ok);
}

bool pol_version_ok(const char *at)
{
    for (;;) {
        unsigned long part;
        at = skip_blanks(at);
        if (!take_operator(&at) || !take_number(&at, &part))
            return false;
        for (int more = 0; *at == '.'; more++) {
            at++;
            if (more == 3 || !take_number(&at, &part))
                return false;
        }
        at = skip_blanks(at);
        if (!*at)
            return true;
        if (*at++ != ',')
            return false;
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What follows a '[': numbers and ranges up to ']'. Returns the problem or NULL. */
static const char *bracket_problem(const char **at)
{
    for (;;) {
        unsigned long low, high;
        if (!take_number(at, &low))
            return "a bracket holds numbers and ranges";
        if (**at == '-') {
            ++*at;
            if (!take_number(at, &high))
                return "a range has no end";
            if (high < low)
                return "a range ends before it starts";
        }
        if (**at == ']') {
            ++*at;
            return NULL;
        }
        if (**at != ',')
            return **at ? "a bracket holds numbers and ranges" : "a bracket is not closed";
        ++*at;
    }
}

const char *pol_hostlist_problem(const char *list)
{
    for (const char *at = list;;) {
        const char *start = at;
        while (*at && *at != ',') {
            if (*at == '[') {
                at++;
                const char *problem = bracket_problem(&at);
                if (problem)
                    return problem;
            } else if (isalnum((unsigned char)*at) || strchr("_.-*?", *at)) {
                at++;
            } else {
                return *at == ']' ? "a bracket is not opened" : "a character is in no node's name";
            }
        }
        if (at == start)
            return "an entry is empty";
        if (!*at)
            return NULL;
        at++;
    }
}

const char *pol_cpulist_problem(const char *list)
{
    if (xc_streq(list, "all"))
        return NULL;
    if (*list == '!')
        list++;
    if (!isdigit((unsigned char)*list))
        return "a list of CPU numbers starts with a digit";
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    struct xc_error error;
    if (xc_set_parse_list(&set, list, "", &error) < 0)
        return "a number or range in it cannot be read";
    return NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

bool pol_name_ok(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= XC_PROFILE_MAX)
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
            return false;
    return true;
}

bool pol_check_id_ok(const char *id)
{
    int dots = 0;
    for (const char *c = id; *c; c++) {
        bool first = c == id || c[-1] == '.';
        if (*c == '.')
            dots++;
        if (*c == '.' ? first
                      : !(islower((unsigned char)*c) ||
                          (!first && (isdigit((unsigned char)*c) || *c == '_'))))
            return false;
    }
    return dots == 1 && id[strlen(id) - 1] != '.' && strlen(id) < 64;
}

const char *pol_env_name_problem(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return "a name starts with a letter or _";
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return "a name holds letters, digits and _";
    if (strlen(name) > 128)
        return "a name has at most 128 characters";
    if (xc_starts(name, "SLURM_"))
        return "Slurm's own variables are not ours to set";
    if (xc_starts(name, "LD_"))
        return "the dynamic linker's variables are refused";
    if (xc_streq(name, "PATH"))
        return "PATH is refused";
    if (xc_starts(name, "XCLOUD_"))
        return "XCLOUD_ is for what xcloud-bind says itself";
    return NULL;
}

const char *const pol_exports[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", NULL};

bool pol_known_export(const char *name)
{
    for (const char *const *known = pol_exports; *known; known++)
        if (xc_streq(*known, name))
            return true;
    return false;
}

/* PCI ids of vendor 10de, each as the driver's list of supported devices has it. A name stands for
 * one id; "A100" would be four. */
static const struct {
    const char *name;
    uint16_t device;
} gpu_models[] = {
    {"V100-SXM2-16GB", 0x1db1},
    {"V100-SXM2-32GB", 0x1db5},
    {"T4", 0x1eb8},
    {"A100-SXM4-40GB", 0x20b0},
    {"A100-SXM4-80GB", 0x20b2},
    {"A100-PCIE-40GB", 0x20f1},
    {"A100-PCIE-80GB", 0x20b5},
    {"A10", 0x2236},
    {"A30", 0x20b7},
    {"H100-SXM5", 0x2330},
    {"H100-PCIE", 0x2331},
    {"H100-NVL", 0x2321},
    {"H200-SXM", 0x2335},
    {"H200-NVL", 0x233b},
    {"GH200", 0x2342},
    {"B200", 0x2901},
    {"GB200", 0x2941},
    {"B300", 0x3182},
    {"GB300", 0x31c2},
    {"L4", 0x27b8},
    {"L40", 0x26b5},
    {"L40S", 0x26b9},
};

static bool take_hex4(const char *text, uint16_t *out)
{
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)text[i]))
            return false;
    char digits[5] = {text[0], text[1], text[2], text[3], '\0'};
    *out = (uint16_t)strtoul(digits, NULL, 16);
    return true;
}

bool pol_gpu_model(const char *text, uint16_t *vendor, uint16_t *device)
{
    for (size_t i = 0; i < XC_COUNT(gpu_models); i++)
        if (strcasecmp(gpu_models[i].name, text) == 0) {
            *vendor = 0x10de;
            *device = gpu_models[i].device;
            return true;
        }
    return strlen(text) == 9 && text[4] == ':' && take_hex4(text, vendor) &&
           take_hex4(text + 5, device) && *vendor != 0 && *device != 0;
}

void pol_add_gpu_models(struct xc_text *out)
{
    for (size_t i = 0; i < XC_COUNT(gpu_models); i++)
        xc_text_addf(out, "%s%s", i ? ", " : "", gpu_models[i].name);
}

/* ---- what YAML programs do to an unquoted text ----------------------------------------------- */

/* Decimal fraction that keeps its text: 0.5, -12.25, 3.0; not 1.50 or 00.5. */
static bool plain_fraction(const char *text)
{
    size_t whole = strspn(text, DIGITS),
           part = text[whole] == '.' ? strspn(text + whole + 1, DIGITS) : 0;
    if (whole == 0 || part == 0 || text[whole + 1 + part] != '\0' || whole + part > 15)
        return false;
    if (text[0] == '0' && whole > 1)
        return false;
    return text[whole + part] != '0' || part == 1;
}

static bool plain_integer(const char *text)
{
    size_t digits = strspn(text, DIGITS);
    return digits > 0 && !text[digits] && (text[0] != '0' || digits == 1);
}

/* Whether every character could be part of a number of YAML 1.1: 0x1F, 1_000, 12:30:45, 1.5e+3. */
static bool looks_like_number(const char *text)
{
    const char *at = text + strspn(text, "+-");
    if (*at == '.')
        return isdigit((unsigned char)at[1]) || strcasecmp(at, ".inf") == 0 ||
               strcasecmp(at, ".nan") == 0;
    if (!isdigit((unsigned char)*at))
        return false;
    if (at[0] == '0' && (at[1] == 'x' || at[1] == 'b'))
        return strspn(at + 2, "0123456789abcdefABCDEF_") == strlen(at + 2);
    if (at[strspn(at, DIGITS "_.:")] == '\0')
        return true;
    /* an exponent is a number only after a dot */
    size_t mantissa = strspn(at, DIGITS "_.");
    return memchr(at, '.', mantissa) && (at[mantissa] == 'e' || at[mantissa] == 'E') &&
           strspn(at + mantissa + 1, DIGITS "+-") == strlen(at + mantissa + 1);
}

/* 1:00.5 and 2001-1-1 are told apart from a version 2.28.3, which has two dots and stays a text. */
bool pol_number_is_stable(const char *text)
{
    if (!looks_like_number(text))
        return true;
    const char *sign = text[0] == '-' ? text + 1 : text;
    if (xc_streq(text, "-0") || (sign != text && plain_integer(sign) && *sign == '0'))
        return false;
    if (plain_integer(sign) || plain_fraction(sign))
        return true;
    const char *dot = strchr(text, '.');
    return dot && strchr(dot + 1, '.') && !strchr(text, ':') && !strchr(text, '_') &&
           isdigit((unsigned char)text[0]);
}
