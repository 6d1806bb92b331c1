/* Small questions about strings: equal, a number, near a known word, matching a pattern. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include <xcloud/base.h>

bool xc_streq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool xc_starts(const char *string, const char *prefix)
{
    return strncmp(string, prefix, strlen(prefix)) == 0;
}

char *xc_trim(char *string)
{
    while (isspace((unsigned char)*string))
        string++;
    size_t length = strlen(string);
    while (length > 0 && isspace((unsigned char)string[length - 1]))
        length--;
    string[length] = '\0';
    return string;
}

bool xc_to_long(const char *string, long min, long max, long *out)
{
    bool negative = string[0] == '-' && min < 0;
    if (!isdigit((unsigned char)string[negative ? 1 : 0]))
        return false;
    char *end;
    errno = 0;
    long value = strtol(string, &end, 10);
    if (errno != 0 || *end != '\0' || value < min || value > max)
        return false;
    *out = value;
    return true;
}

#define WORD_MAX 64

/* Levenshtein distance of words shorter than WORD_MAX; longer ones are near to nothing. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la >= WORD_MAX || lb >= WORD_MAX)
        return SIZE_MAX;
    size_t row[WORD_MAX];
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best < replace ? best : replace;
        }
    }
    return row[lb];
}

const char *xc_nearest(const char *word, const char *const *known)
{
    const char *best = NULL;
    size_t nearest = 1 + strlen(word) / 3;
    for (; *known; known++) {
        size_t d = distance(word, *known);
        if (d <= nearest && (!best || d < nearest)) {
            best = *known;
            nearest = d;
        }
    }
    return best;
}

uint64_t xc_hash64(const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

bool xc_glob(const char *pattern, const char *name)
{
    const char *star = NULL, *resume = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

void xc_names_free(char ***names)
{
    if (!*names)
        return;
    for (char **name = *names; *name; name++)
        free(*name);
    free(*names);
    *names = NULL;
}

char **xc_names_split(const char *list)
{
    size_t count = 0, most = 2;
    for (const char *at = list; *at; at++)
        most += *at == ',';
    xc_autonames char **names = calloc(most, sizeof *names);
    while (names && *list) {
        size_t length = strcspn(list, ",");
        if (length && !(names[count++] = strndup(list, length)))
            return NULL;
        list += length + (list[length] == ',');
    }
    char **out = names;
    names = NULL;
    return out;
}
