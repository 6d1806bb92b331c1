/* Is a node in a host list? Slurm's notation: names, ranges in brackets, several brackets in a name;
 * and * and ? as a convenience. */
#include <ctype.h>
#include <string.h>

#include <xcloud/base.h>

static int bad(struct xc_error *error, const char *list, const char *what)
{
    return xc_error_set(error, XC_EINPUT, NULL,
                        "host list \"%.200s\": %s; expected for example gpu[001-064,070],login1",
                        list, what);
}

/* One range of a bracket, "001-064" or "7", at *at. A number matches when its text at name has the
 * width of the range (zero-padded) or no leading zero. Returns matched length of name, 0 for none. */
static int match_range(const char **at, const char *name, size_t *matched)
{
    const char *text = *at;
    size_t width = strspn(text, "0123456789");
    if (width == 0 || width > 9)
        return -1;
    unsigned long low = strtoul(text, NULL, 10), high = low;
    text += width;
    if (*text == '-') {
        text++;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 9)
            return -1;
        high = strtoul(text, NULL, 10);
        text += digits;
        if (high < low)
            return -1;
    }
    *at = text;
    size_t have = strspn(name, "0123456789");
    if (have >= width && have <= 9 && (have == width || name[0] != '0')) {
        unsigned long number = strtoul(name, NULL, 10);
        if (number >= low && number <= high)
            *matched = have;
    }
    return 0;
}

/* Matches pattern up to end against name; 1, 0 or -1. */
static int match(const char *list, const char *pattern, const char *end, const char *name,
                 struct xc_error *error)
{
    while (pattern < end) {
        if (*pattern == '[') {
            size_t matched = 0;
            const char *at = pattern + 1;
            do {
                if (match_range(&at, name, &matched) < 0)
                    return bad(error, list, "a bracket holds numbers and ranges");
            } while (*at == ',' && at++);
            if (*at != ']')
                return bad(error, list, "a bracket is not closed");
            if (!matched)
                return 0;
            name += matched;
            pattern = at + 1;
        } else if (*pattern == '*') {
            for (const char *rest = name;; rest++) {
                int found = match(list, pattern + 1, end, rest, error);
                if (found != 0 || !*rest)
                    return found;
            }
        } else if (*name && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else {
            return 0;
        }
    }
    return *name == '\0';
}

/* The end of the entry that starts at list: a comma outside brackets, or the end. NULL: malformed. */
static const char *entry_end(const char *list)
{
    bool inside = false;
    for (; *list && (inside || *list != ','); list++) {
        if (*list == '[') {
            if (inside)
                return NULL;
            inside = true;
        } else if (*list == ']') {
            if (!inside)
                return NULL;
            inside = false;
        } else if (inside && !isdigit((unsigned char)*list) && *list != '-' && *list != ',') {
            return NULL;
        }
    }
    return inside ? NULL : list;
}

int xc_hostlist_has(const char *list, const char *name, struct xc_error *error)
{
    int found = 0;
    for (const char *entry = list;;) {
        const char *end = entry_end(entry);
        if (!end)
            return bad(error, list, "brackets do not match");
        if (end == entry)
            return bad(error, list, "an entry is empty");
        int hit = match(list, entry, end, name, error);
        if (hit < 0)
            return -1;
        found |= hit;
        if (!*end)
            return found;
        entry = end + 1;
    }
}
