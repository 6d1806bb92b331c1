/* Is a node in a host list? Slurm's notation: names, ranges in brackets, several brackets in a name;
 * and * and ? as a convenience. */
#include <string.h>

#include <xcloud/base.h>

#define DIGITS     "0123456789"
#define DIGITS_MAX 9

static int bad(struct xc_error *error, const char *list, const char *what)
{
    return xc_error_set(error, XC_EINPUT, NULL,
                        "host list \"%.200s\": %s; expected for example gpu[001-064,070],login1",
                        list, what);
}

struct range {
    unsigned long low, high;
    size_t width; /* digits of low as written: gpu[001-064] names no gpu1 */
};

/* Reads "001-064" or "7"; returns the text behind it, or NULL when it is none. */
static const char *take_range(const char *text, struct range *out)
{
    size_t width = strspn(text, DIGITS);
    if (width == 0 || width > DIGITS_MAX)
        return NULL;
    *out = (struct range){.low = strtoul(text, NULL, 10), .width = width};
    out->high = out->low;
    text += width;
    if (*text != '-')
        return text;
    size_t digits = strspn(++text, DIGITS);
    if (digits == 0 || digits > DIGITS_MAX)
        return NULL;
    out->high = strtoul(text, NULL, 10);
    return out->high < out->low ? NULL : text + digits;
}

/* Whether the bracket whose content starts at text holds the number that name's first `have`
 * characters are. */
static bool bracket_has(const char *text, const char *name, size_t have)
{
    unsigned long number = 0;
    for (size_t i = 0; i < have; i++)
        number = number * 10 + (unsigned long)(name[i] - '0');
    for (struct range range; (text = take_range(text, &range)); text++) {
        bool padded = have == range.width || (have > range.width && name[0] != '0');
        if (padded && number >= range.low && number <= range.high)
            return true;
        if (*text != ',')
            return false;
    }
    return false;
}

/* Whether pattern up to end, which was checked, matches name. */
static bool match(const char *pattern, const char *end, const char *name)
{
    for (; pattern < end; pattern++, name++) {
        if (*pattern == '[') {
            const char *behind = strchr(pattern, ']') + 1;
            /* digits may follow the bracket, or another bracket: every length is tried */
            for (size_t have = strspn(name, DIGITS); have > 0; have--)
                if (have <= DIGITS_MAX && bracket_has(pattern + 1, name, have) &&
                    match(behind, end, name + have))
                    return true;
            return false;
        }
        if (*pattern == '*') {
            for (; *name; name++)
                if (match(pattern + 1, end, name))
                    return true;
            return match(pattern + 1, end, name);
        }
        if (!*name || (*pattern != '?' && *pattern != *name))
            return false;
    }
    return *name == '\0';
}

/* The end of the entry that starts at list, a comma outside brackets or the end of the list; NULL
 * and what is wrong with it. */
static const char *entry_end(const char *list, const char **wrong)
{
    const char *at = list;
    for (; *at && *at != ','; at++) {
        if (*at == ']') {
            *wrong = "brackets do not match";
            return NULL;
        }
        if (*at != '[')
            continue;
        size_t inside = strspn(at + 1, DIGITS "-,");
        if (at[1 + inside] != ']') {
            *wrong = "brackets do not match";
            return NULL;
        }
        struct range range;
        const char *text = at + 1;
        while ((text = take_range(text, &range)) && *text == ',')
            text++;
        if (!text || *text != ']') {
            *wrong = "a bracket holds numbers and ranges";
            return NULL;
        }
        at = text;
    }
    *wrong = "an entry is empty";
    return at == list ? NULL : at;
}

int xc_hostlist_has(const char *list, const char *name, struct xc_error *error)
{
    int found = 0;
    for (const char *entry = list;;) {
        const char *wrong;
        const char *end = entry_end(entry, &wrong);
        if (!end)
            return bad(error, list, wrong);
        found |= match(entry, end, name);
        if (!*end)
            return found;
        entry = end + 1;
    }
}
