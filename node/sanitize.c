/* What of a text may leave the site? Replaces what tells one machine from another: UUIDs, MACs, GUIDs
 * and the host's name. Numbers keep their form, with zeros, so that what parses still parses. */
#include <ctype.h>
#include <string.h>

#include "capture.h"

/* Groups of hexadecimal digits: how many of which width, with one of these characters between. */
struct shape {
    unsigned widths[8], groups;
    const char *separators;
};
static const struct shape shapes[] = {
    {{8, 4, 4, 4, 12}, 5, "-"},          /* UUID */
    {{4, 4, 4, 4, 4, 4, 4, 4}, 8, ":"},  /* GID, IPv6 */
    {{4, 4, 4, 4}, 4, ":"},              /* GUID */
    {{2, 2, 2, 2, 2, 2, 2, 2}, 8, ":-"}, /* GUID */
    {{2, 2, 2, 2, 2, 2}, 6, ":-"},       /* MAC */
};

/* Length of that shape at text, 0: it is not there. */
static size_t match(const struct shape *shape, const char *text)
{
    const char *at = text;
    char separator = 0;
    for (unsigned group = 0; group < shape->groups; group++) {
        if (group > 0) {
            if (!*at || (separator ? *at != separator : !strchr(shape->separators, *at)))
                return 0;
            separator = *at++;
        }
        for (unsigned digit = 0; digit < shape->widths[group]; digit++)
            if (!isxdigit((unsigned char)*at++))
                return 0;
    }
    return (size_t)(at - text);
}

static bool word_character(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* The host's name as a word of its own at text, whatever its case; a domain behind it goes too. */
static size_t match_host(const char *host, const char *before, const char *text)
{
    size_t length = strlen(host);
    if (length == 0 || (before && word_character(*before)) || strncasecmp(text, host, length) != 0)
        return 0;
    if (text[length] == '.' && isalnum((unsigned char)text[length + 1])) {
        while (word_character(text[length]))
            length++;
        return length;
    }
    return isalnum((unsigned char)text[length]) || text[length] == '-' ? 0 : length;
}

void capture_sanitize(char *text, const char *host, struct xc_text *out)
{
    for (const char *at = text; *at;) {
        size_t length = 0;
        bool inside = at > text && (isxdigit((unsigned char)at[-1]));
        for (size_t i = 0; !inside && length == 0 && i < XC_COUNT(shapes); i++)
            length = match(&shapes[i], at);
        if (length > 0 && isxdigit((unsigned char)at[length]))
            length = 0; /* a longer number */
        for (size_t i = 0; i < length; i++)
            xc_text_add_n(out, isxdigit((unsigned char)at[i]) ? "0" : at + i, 1);
        if (length == 0) {
            length = match_host(host, at > text ? at - 1 : NULL, at);
            if (length > 0)
                xc_text_add(out, "host");
        }
        if (length == 0)
            xc_text_add_n(out, at, length = 1);
        at += length;
    }
}

char *capture_path(const char *path, const char *host)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_autofree char *copy = strdup(path);
    if (!copy)
        return NULL;
    capture_sanitize(copy, xc_starts(path, "/sys/fs/cgroup/") ? host : "", &text);
    return xc_text_take(&text);
}

bool capture_path_tells(const char *path)
{
    size_t run = 0;
    bool zeros = true;
    for (const char *c = path; *c; c++) {
        bool digit = isxdigit((unsigned char)*c);
        run = digit ? run + 1 : 0;
        zeros = run <= 1 ? *c == '0' : zeros && *c == '0';
        if (run >= 12 && !zeros)
            return true;
    }
    return false;
}

/* Parameters that say where a machine boots from or who it is. */
static bool private_parameter(const char *word)
{
    static const char *const patterns[] = {
        "root=*", "BOOTIF=*",  "ip=*",    "nfsroot=*",  "netroot=*", "ks=*",       "inst.*",
        "rd.*",   "systemd.*", "ds=*",    "url=*",      "resume=*",  "hostname=*", "*machine_id*",
        "*uuid*", "*UUID*",    "*token*", "*password*", "*http*"};
    for (size_t i = 0; i < XC_COUNT(patterns); i++)
        if (xc_glob(patterns[i], word))
            return true;
    return false;
}

void capture_cmdline(char *text, const char *host, struct xc_text *out)
{
    char *save = NULL;
    const char *blank = "";
    for (char *word = strtok_r(text, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
        if (xc_streq(word, "--")) /* what follows is init's */
            break;
        xc_text_add(out, blank);
        if (private_parameter(word))
            xc_text_addf(out, "%.*s=REMOVED", (int)strcspn(word, "="), word);
        else
            capture_sanitize(word, host, out);
        blank = " ";
    }
    xc_text_add(out, "\n");
}

/* Lines whose value is cut off behind the colon: a board's serial number in ARM's cpuinfo. */
void capture_without_serial(char *text, const char *host, struct xc_text *out)
{
    char *save = NULL;
    for (char *line = text; line && *line; line = save) {
        char *end = strchr(line, '\n');
        save = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        if (!xc_starts(line, "Serial"))
            capture_sanitize(line, host, out);
        if (end)
            xc_text_add(out, "\n");
    }
}

/* A GPU's information: its UUID becomes the number of the GPU, so that they stay different. */
void capture_gpu_information(char *text, unsigned number, const char *host, struct xc_text *out)
{
    static const char key[] = "GPU UUID:";
    char *line = strstr(text, key);
    if (!line) {
        capture_sanitize(text, host, out);
        return;
    }
    char *value = line + sizeof key - 1, *end = value + strcspn(value, "\n");
    char first = *line, last = *end;
    *line = '\0';
    capture_sanitize(text, host, out);
    *line = first;
    *end = '\0';
    xc_text_addf(out, "%s \t GPU-00000000-0000-0000-0000-%012x", key, number);
    *end = last;
    capture_sanitize(end, host, out);
}
