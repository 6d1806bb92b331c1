/* Which variables does NCCL know, and which release is meant? */
#include <stdlib.h>
#include <string.h>

#include <xcloud/nccl.h>

#define NUMBER XC_NCCL_NUMBER
#define DEBUG  XC_NCCL_DEBUG
#define TUNING XC_NCCL_TUNING
#define OTHER  XC_NCCL_OTHER
#define VARIABLE(name_, since_, gone_, builtin_, flags_, note_)                                    \
    {.name = #name_,                                                                               \
     .since = since_,                                                                              \
     .gone = gone_,                                                                                \
     .builtin = builtin_,                                                                          \
     .flags = flags_,                                                                              \
     .note = note_},
static const struct xc_nccl_variable table[] = {
#include "variables.def"
};

size_t xc_nccl_variables(const struct xc_nccl_variable **out)
{
    *out = table;
    return XC_COUNT(table);
}

static int by_name(const void *key, const void *entry)
{
    return strcmp(key, ((const struct xc_nccl_variable *)entry)->name);
}

const struct xc_nccl_variable *xc_nccl_find(const char *name)
{
    return bsearch(name, table, XC_COUNT(table), sizeof *table, by_name);
}

/* ---- releases --------------------------------------------------------------------------------------- */

/* Numbers between dots; how many there are in *count, the end in *end. */
static bool numbers(const char *text, unsigned out[3], size_t *count, const char **end)
{
    memset(out, 0, 3 * sizeof *out);
    for (*count = 0; *count < 3;) {
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 3)
            return false;
        out[(*count)++] = (unsigned)strtoul(text, NULL, 10);
        text += digits;
        if (*text != '.' || *count == 3)
            break;
        text++;
    }
    *end = text;
    return out[1] < 100 && out[2] < 100;
}

unsigned xc_nccl_release(const char *text)
{
    unsigned n[3];
    size_t count;
    const char *end;
    if (!numbers(text, n, &count, &end) || count < 2 || (*end && *end != '-' && *end != '+'))
        return 0;
    return n[0] * 10000 + n[1] * 100 + n[2];
}

const char *xc_nccl_release_text(unsigned release, char text[XC_NCCL_RELEASE_TEXT])
{
    snprintf(text, XC_NCCL_RELEASE_TEXT, "%u.%u.%u", release / 10000 % 1000, release / 100 % 100,
             release % 100);
    return text;
}

unsigned xc_nccl_library_release(const void *bytes, size_t length)
{
    static const char says[] = "NCCL version ";
    const char *at = bytes, *end = at + length;
    while ((at = memmem(at, (size_t)(end - at), says, sizeof says - 1))) {
        char text[16] = "";
        at += sizeof says - 1;
        for (size_t i = 0; i < sizeof text - 1 && at + i < end && at[i] && !strchr("+ \n", at[i]);
             i++)
            text[i] = at[i];
        unsigned release = xc_nccl_release(text);
        if (release)
            return release;
    }
    return 0;
}

static int bad_rule(const char *rule, const char *at, struct xc_error *error)
{
    xc_error_set(error, XC_EINPUT, "nccl.version",
                 "\"%.60s\" at \"%.20s\"; expected releases with >=, <=, >, <, = or !=, as in "
                 "\">= 2.27, != 2.28.3\"",
                 rule, at);
    return -1;
}

/* One condition; the release is cut to as many numbers as the rule has. */
static bool holds(const char *sign, unsigned have, const unsigned n[3], size_t count)
{
    unsigned unit = count == 1 ? 10000 : count == 2 ? 100 : 1;
    unsigned want = (n[0] * 10000 + n[1] * 100 + n[2]) / unit, mine = have / unit;
    switch (sign[0]) {
    case '>':
        return sign[1] ? mine >= want : mine > want;
    case '<':
        return sign[1] ? mine <= want : mine < want;
    case '!':
        return mine != want;
    default:
        return mine == want;
    }
}

int xc_nccl_allows(const char *rule, unsigned release, bool *allows, struct xc_error *error)
{
    *allows = true;
    for (const char *at = rule;;) {
        char sign[3] = "=";
        at += strspn(at, " ");
        size_t length = strspn(at, "<>=!");
        if (length > 2 || (length == 1 && *at == '!') || (length == 2 && at[1] != '='))
            return bad_rule(rule, at, error);
        if (length > 0)
            snprintf(sign, sizeof sign, "%.*s", (int)length, at);
        at += length;
        at += strspn(at, " ");
        unsigned n[3];
        size_t count;
        if (!numbers(at, n, &count, &at))
            return bad_rule(rule, at, error);
        at += strspn(at, " ");
        if (*at && *at != ',')
            return bad_rule(rule, at, error);
        *allows = *allows && holds(sign, release, n, count);
        if (!*at)
            return 0;
        at++;
    }
}
