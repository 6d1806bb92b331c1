/* Questions about a machine that more than one family of checks asks. */
#include "work.h"

char *chk_cpus(const struct xc_set *set)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, "cpu");
    xc_text_add_set(&text, set);
    return xc_text_take(&text);
}

bool chk_arm(const struct xc_check_input *in)
{
    return xc_streq(in->node->arch, "aarch64");
}

#define NVIDIA 0x10de

bool chk_has_nvidia(const struct xc_check_input *in)
{
    for (size_t i = 0; i < in->node->ngpus; i++)
        if (in->node->pci[in->node->gpus[i].pci].vendor == NVIDIA)
            return true;
    return in->node->ngpus == 0 && in->rules->expect.gpu_vendor == NVIDIA;
}

bool chk_no_nvidia(const struct xc_check_input *in, struct xc_findings *out)
{
    bool none = !chk_has_nvidia(in);
    if (none)
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "this machine has no NVIDIA GPUs");
    return none;
}

bool chk_hidden(const struct xc_check_input *in, struct xc_findings *out, const char *what)
{
    if (in->node->environment == XC_BARE)
        return false;
    chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "a %s does not show %s",
            in->node->environment == XC_VM ? "virtual machine" : "pod", what);
    return true;
}

bool chk_housekeeping(const struct xc_check_input *in, struct xc_findings *out,
                      struct xc_set *housekeeping)
{
    xc_autofree char *note = NULL;
    struct xc_error error = {0};
    if (xc_plan_housekeeping(in->node, in->rules, housekeeping, &note, &error) < 0) {
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){.hint = "mend cpus: housekeeping:"},
                "the housekeeping CPUs cannot be told: %s", error.message);
        return false;
    }
    if (xc_set_empty(housekeeping)) {
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "%s",
                note ? note : "the policy has no housekeeping CPUs");
        return false;
    }
    return true;
}

bool chk_names_nics(const struct xc_check_input *in)
{
    const struct xc_rules *rules = in->rules;
    return (rules->nics.pci && *rules->nics.pci) || (rules->nics.names && *rules->nics.names) ||
           (rules->nics.not_ && *rules->nics.not_) || rules->nics.link != XC_LINK_ANY;
}

bool chk_is_rail(const struct xc_check_input *in, size_t nic)
{
    return xc_plan_is_rail(in->node, in->rules, &in->node->nics[nic]);
}

/* Compute NICs by the policy's selectors; without any, all RDMA ports if it expects NICs. */
bool chk_is_compute(const struct xc_check_input *in, size_t nic)
{
    return (chk_names_nics(in) || in->rules->expect.has_nics) && chk_is_rail(in, nic);
}

/* nic.count says if that is wrong. */
bool chk_no_compute(const struct xc_check_input *in, struct xc_findings *out)
{
    for (size_t i = 0; i < in->node->nnics; i++)
        if (chk_is_compute(in, i))
            return false;
    chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "%s",
            chk_names_nics(in) || in->rules->expect.has_nics
                ? "this machine has none of the policy's compute NICs"
                : "the policy names no compute NICs (nics: compute:)");
    return true;
}

/* Takes the next word off *at; quotes keep blanks together, as in the kernel. NULL at the end, and at
 * "--", behind which words are init's. */
static char *next_word(char **at)
{
    char *p = *at + strspn(*at, " \t\n"), *start = p;
    bool quoted = false;
    for (; *p && (quoted || !strchr(" \t\n", *p)); p++)
        if (*p == '"')
            quoted = !quoted;
    if (p == start)
        return NULL;
    *at = *p ? p + 1 : p;
    *p = '\0';
    return xc_streq(start, "--") ? NULL : start;
}

static void drop_quotes(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != '"')
            *to++ = *from;
    *to = '\0';
}

bool chk_cmdline(const struct xc_check_input *in, const char *word, char **value, bool *known)
{
    xc_autofree char *text = xc_root_read(in->root, NULL, NULL, "/proc/cmdline");
    size_t length = strlen(word);
    char *at = text, *one, *last = NULL;
    *value = NULL;
    *known = text != NULL;
    while (text && (one = next_word(&at))) {
        drop_quotes(one);
        if (strncmp(one, word, length) == 0 && (one[length] == '=' || !one[length]))
            last = one[length] ? one + length + 1 : one + length;
    }
    *value = last ? strdup(last) : NULL;
    return *value != NULL;
}

char *chk_bracketed(const char *text)
{
    const char *open = text ? strchr(text, '[') : NULL;
    const char *close = open ? strchr(open, ']') : NULL;
    return close ? strndup(open + 1, (size_t)(close - open - 1)) : NULL;
}
