/* Sets of CPUs and NUMA nodes: any size, in the kernel's notations. */
#include <ctype.h>
#include <string.h>

#include <xcloud/base.h>

#define WORD_BITS (8 * sizeof(unsigned long))

void xc_set_free(struct xc_set *set)
{
    if (!set)
        return;
    free(set->words);
    *set = (struct xc_set)XC_SET_EMPTY;
}

void xc_set_clear(struct xc_set *set)
{
    if (set->nwords)
        memset(set->words, 0, set->nwords * sizeof *set->words);
}

static bool grow(struct xc_set *set, size_t nwords)
{
    if (nwords <= set->nwords)
        return true;
    unsigned long *words = realloc(set->words, nwords * sizeof *words);
    if (!words) {
        set->failed = true;
        return false;
    }
    memset(words + set->nwords, 0, (nwords - set->nwords) * sizeof *words);
    set->words = words;
    set->nwords = nwords;
    return true;
}

static unsigned long bit(size_t member)
{
    return 1UL << (member % WORD_BITS);
}

void xc_set_add(struct xc_set *set, size_t member)
{
    if (member >= XC_SET_LIMIT)
        set->failed = true;
    else if (grow(set, member / WORD_BITS + 1))
        set->words[member / WORD_BITS] |= bit(member);
}

void xc_set_add_range(struct xc_set *set, size_t first, size_t last)
{
    if (first <= last && last >= XC_SET_LIMIT) {
        set->failed = true;
        last = XC_SET_LIMIT - 1;
    }
    for (size_t i = first; i <= last; i++)
        xc_set_add(set, i);
}

void xc_set_del(struct xc_set *set, size_t member)
{
    if (member / WORD_BITS < set->nwords)
        set->words[member / WORD_BITS] &= ~bit(member);
}

bool xc_set_has(const struct xc_set *set, size_t member)
{
    return member / WORD_BITS < set->nwords && (set->words[member / WORD_BITS] & bit(member));
}

static unsigned long word(const struct xc_set *set, size_t index)
{
    return index < set->nwords ? set->words[index] : 0;
}

static size_t wider(const struct xc_set *a, const struct xc_set *b)
{
    return a->nwords > b->nwords ? a->nwords : b->nwords;
}

size_t xc_set_count(const struct xc_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < set->nwords; i++)
        count += (size_t)__builtin_popcountl(set->words[i]);
    return count;
}

bool xc_set_empty(const struct xc_set *set)
{
    return xc_set_next(set, 0) < 0;
}

bool xc_set_equal(const struct xc_set *a, const struct xc_set *b)
{
    for (size_t i = 0; i < wider(a, b); i++)
        if (word(a, i) != word(b, i))
            return false;
    return true;
}

bool xc_set_subset(const struct xc_set *inner, const struct xc_set *outer)
{
    for (size_t i = 0; i < inner->nwords; i++)
        if (inner->words[i] & ~word(outer, i))
            return false;
    return true;
}

bool xc_set_intersects(const struct xc_set *a, const struct xc_set *b)
{
    return xc_set_common(a, b) > 0;
}

size_t xc_set_common(const struct xc_set *a, const struct xc_set *b)
{
    size_t count = 0;
    for (size_t i = 0; i < a->nwords; i++)
        count += (size_t)__builtin_popcountl(a->words[i] & word(b, i));
    return count;
}

void xc_set_copy(struct xc_set *to, const struct xc_set *from)
{
    if (to == from)
        return;
    to->failed = from->failed;
    if (!grow(to, from->nwords))
        return;
    for (size_t i = 0; i < to->nwords; i++)
        to->words[i] = word(from, i);
}

void xc_set_or(struct xc_set *to, const struct xc_set *other)
{
    to->failed |= other->failed;
    if (!grow(to, other->nwords))
        return;
    for (size_t i = 0; i < other->nwords; i++)
        to->words[i] |= other->words[i];
}

void xc_set_and(struct xc_set *to, const struct xc_set *other)
{
    to->failed |= other->failed;
    for (size_t i = 0; i < to->nwords; i++)
        to->words[i] &= word(other, i);
}

void xc_set_andnot(struct xc_set *to, const struct xc_set *other)
{
    to->failed |= other->failed;
    for (size_t i = 0; i < to->nwords; i++)
        to->words[i] &= ~word(other, i);
}

ssize_t xc_set_next(const struct xc_set *set, size_t from)
{
    size_t index = from / WORD_BITS;
    if (index >= set->nwords)
        return -1;
    unsigned long rest = set->words[index] & (~0UL << (from % WORD_BITS));
    while (!rest) {
        if (++index >= set->nwords)
            return -1;
        rest = set->words[index];
    }
    return (ssize_t)(index * WORD_BITS + (size_t)__builtin_ctzl(rest));
}

/* ---- notations ------------------------------------------------------------------------------- */

static int bad_list(struct xc_error *error, const char *where, const char *list, const char *what)
{
    return xc_error_set(error, XC_EINPUT, where,
                        "list \"%.120s\": %s; expected for example 0-7,56-63", list, what);
}

static bool take_number(const char **at, size_t *out)
{
    size_t value = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); (*at)++) {
        value = value * 10 + (size_t)(**at - '0');
        if (value > 1000000)
            value = 1000000; /* beyond the limit, whatever follows */
    }
    *out = value;
    return true;
}

/* One entry: N, N-M, or N-M:USED/GROUP (the first USED of every GROUP numbers). */
static const char *take_entry(struct xc_set *set, const char **at)
{
    size_t first, last, used = 1, group = 1;
    if (!take_number(at, &first))
        return "a number is missing";
    last = first;
    if (**at == '-') {
        (*at)++;
        if (!take_number(at, &last))
            return "the end of a range is missing";
        if (last < first)
            return "a range runs backwards";
        if (**at == ':') {
            (*at)++;
            if (!take_number(at, &used) || *(*at)++ != '/' || !take_number(at, &group))
                return "a stride is written N-M:USED/GROUP";
            if (used == 0 || group < used)
                return "a stride needs 0 < USED <= GROUP";
        }
    }
    if (last >= XC_SET_LIMIT)
        return "a number is larger than 65535";
    for (size_t i = first; i <= last; i++)
        if ((i - first) % group < used)
            xc_set_add(set, i);
    return NULL;
}

int xc_set_parse_list(struct xc_set *set, const char *list, const char *where,
                      struct xc_error *error)
{
    xc_set_clear(set);
    set->failed = false;
    const char *at = list;
    while (isspace((unsigned char)*at))
        at++;
    while (*at) {
        const char *wrong = take_entry(set, &at);
        if (wrong)
            return bad_list(error, where, list, wrong);
        while (isspace((unsigned char)*at))
            at++;
        if (!*at)
            break;
        if (*at++ != ',')
            return bad_list(error, where, list, "a comma is missing");
        while (isspace((unsigned char)*at))
            at++;
        if (!*at)
            return bad_list(error, where, list, "it ends with a comma");
    }
    return set->failed ? xc_error_nomem(error) : 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int xc_set_parse_mask(struct xc_set *set, const char *mask, const char *where,
                      struct xc_error *error)
{
    xc_set_clear(set);
    set->failed = false;
    const char *start = xc_starts(mask, "0x") ? mask + 2 : mask;
    size_t length = strlen(start), position = 0;
    while (length > 0 && isspace((unsigned char)start[length - 1]))
        length--;
    if (length == 0 || length > XC_SET_LIMIT / 3)
        return xc_error_set(error, XC_EINPUT, where, "a CPU mask is empty or too long");
    size_t digits = 0; /* since the last comma */
    for (size_t i = length; i-- > 0;) {
        if (start[i] == ',' && digits == 8 && i > 0) {
            digits = 0;
            continue;
        }
        int value = hex(start[i]);
        if (value < 0 || (start[i] != ',' && digits == 8 && length > 8 && strchr(start, ',')))
            return xc_error_set(error, XC_EINPUT, where,
                                "mask \"%.120s\": expected hexadecimal groups of 32 bits, for "
                                "example 00000000,000000ff",
                                mask);
        if (value && position >= XC_SET_LIMIT)
            return xc_error_set(error, XC_EINPUT, where, "a CPU mask names one above 65535");
        for (size_t b = 0; b < 4; b++)
            if (value & (1 << b))
                xc_set_add(set, position + b);
        position += 4;
        digits++;
    }
    return set->failed ? xc_error_nomem(error) : 0;
}

void xc_text_add_set(struct xc_text *text, const struct xc_set *set)
{
    const char *comma = "";
    for (ssize_t first = xc_set_next(set, 0); first >= 0;) {
        ssize_t last = first;
        while (xc_set_has(set, (size_t)last + 1))
            last++;
        if (last == first)
            xc_text_addf(text, "%s%zd", comma, first);
        else
            xc_text_addf(text, "%s%zd-%zd", comma, first, last);
        comma = ",";
        first = xc_set_next(set, (size_t)last + 1);
    }
}

char *xc_set_format(const struct xc_set *set)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add_set(&text, set);
    return xc_text_take(&text);
}
