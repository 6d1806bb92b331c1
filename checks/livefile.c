/* How does what a health run saw reach a prolog that has no time to look? One small file of root's,
 * read as if anybody had written it. */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "live.h"

#define LIVE_HEAD  "xcloud-live 1"
#define LIVE_LIMIT (2u << 20)

/* Every text that is kept, by name. */
static char **named(struct xc_check_live *live, const char *name)
{
    for (size_t i = 0; chk_probes[i].name; i++)
        if (xc_streq(chk_probes[i].name, name))
            return (char **)(void *)((char *)live + chk_probes[i].member);
    return xc_streq(name, "trouble") ? &live->trouble : NULL;
}

static void drop(char **text)
{
    free(*text);
    *text = NULL;
}

void chk_live_forget(struct xc_check_live *live)
{
    for (size_t i = 0; chk_probes[i].name; i++)
        drop(named(live, chk_probes[i].name));
    drop(&live->trouble);
    live->probed_at_us = 0;
    live->boot_id[0] = '\0';
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void add(struct xc_text *text, const char *name, const char *bytes)
{
    if (!bytes)
        return;
    xc_text_addf(text, "text %s %zu\n", name, strlen(bytes));
    xc_text_add(text, bytes);
    xc_text_add(text, "\n");
}

int xc_check_live_save(const struct xc_check_live *live, const char *path, struct xc_error *error)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_check_live *mutable = (struct xc_check_live *)(void *)live;
    if (geteuid() != 0)
        return xc_error_set(error, XC_EOWNER, path, "root alone keeps what a health run saw");
    xc_text_addf(&text, "%s\nboot %s\nat %" PRId64 "\n", LIVE_HEAD,
                 live->boot_id[0] ? live->boot_id : "-", live->probed_at_us);
    for (size_t i = 0; chk_probes[i].name; i++)
        add(&text, chk_probes[i].name, *named(mutable, chk_probes[i].name));
    add(&text, "trouble", live->trouble);
    if (text.failed)
        return xc_error_nomem(error);
    uint64_t hash = xc_hash64(text.data, text.length);
    xc_text_addf(&text, "hash %016" PRIx64 "\n", hash);
    return text.failed ? xc_error_nomem(error)
                       : xc_write_atomic(path, text.data, text.length, 0600, error);
}

/* ---- reading ------------------------------------------------------------------------------------ */

struct reader {
    char *at, *end;
};

/* The next line without its newline; NULL: there is no whole one. */
static char *line_of(struct reader *reader)
{
    char *line = reader->at;
    char *newline = memchr(line, '\n', (size_t)(reader->end - line));
    if (!newline)
        return NULL;
    *newline = '\0';
    reader->at = newline + 1;
    return line;
}

static const char *after(const char *line, const char *word)
{
    return line && xc_starts(line, word) ? line + strlen(word) : NULL;
}

/* "text NAME LENGTH", the bytes and a newline. */
static bool take_text(struct reader *reader, const char *head, struct xc_check_live *out)
{
    char name[16];
    const char *digits = strchr(head, ' ');
    long length;
    if (!digits || (size_t)(digits - head) >= sizeof name ||
        !xc_to_long(digits + 1, 0, LIVE_LIMIT, &length) || reader->end - reader->at <= length ||
        reader->at[length] != '\n' || memchr(reader->at, '\0', (size_t)length))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(digits - head), head);
    char **text = named(out, name);
    if (!text || *text)
        return false; /* not one of ours, or twice */
    *text = strndup(reader->at, (size_t)length);
    reader->at += length + 1;
    return *text != NULL;
}

static int parse(char *bytes, size_t length, const char *path, struct xc_check_live *out,
                 struct xc_error *error)
{
    struct reader reader = {bytes, bytes + length};
    /* "hash " and 16 digits, the last line: before it is taken apart */
    char hash[32] = "";
    if (length > 22)
        snprintf(hash, sizeof hash, "hash %016" PRIx64 "\n", xc_hash64(bytes, length - 22));
    if (length <= 22 || memcmp(bytes + length - 22, hash, 22) != 0)
        return xc_error_set(error, XC_EINPUT, path, "it is cut, or not what xcloud wrote");
    reader.end -= 22;
    const char *head = line_of(&reader), *boot = after(line_of(&reader), "boot "),
               *at = after(line_of(&reader), "at "), *text;
    long when;
    if (!xc_streq(head, LIVE_HEAD) || !boot || strlen(boot) >= sizeof out->boot_id || !at ||
        !xc_to_long(at, 0, INT64_MAX, &when))
        return xc_error_set(error, XC_EINPUT, path, "it does not begin with \"%s\"", LIVE_HEAD);
    snprintf(out->boot_id, sizeof out->boot_id, "%s", boot);
    out->probed_at_us = when;
    while (reader.at < reader.end)
        if (!(text = after(line_of(&reader), "text ")) || !take_text(&reader, text, out))
            return xc_error_set(error, XC_EINPUT, path, "a part of it is not one of ours");
    return 0;
}

static int judge(const struct xc_check_live *live, int64_t max_age_us, const char *path,
                 struct xc_error *error)
{
    struct xc_root *root = NULL;
    if (xc_root_open_dir("/", &root, error) < 0)
        return -1;
    xc_autofree char *boot = xc_root_read_line(root, "/proc/sys/kernel/random/boot_id");
    xc_root_close(root);
    if (!boot || !xc_streq(boot, live->boot_id))
        return xc_error_set(error, XC_EINPUT, path, "it is of another boot");
    int64_t age = xc_boottime_us() - live->probed_at_us;
    if (age < 0 || age > max_age_us)
        return xc_error_set(error, XC_EINPUT, path, "it is %" PRId64 " s old; %" PRId64 " is asked",
                            age / 1000000, max_age_us / 1000000);
    return 0;
}

int xc_check_live_load(const char *path, int64_t max_age_us, struct xc_check_live *out,
                       struct xc_error *error)
{
    size_t length = 0;
    chk_live_forget(out);
    xc_autofree char *bytes = xc_read_trusted(path, LIVE_LIMIT, &length, error);
    if (!bytes)
        return -1;
    int rc = parse(bytes, length, path, out, error);
    if (rc == 0)
        rc = judge(out, max_age_us, path, error);
    if (rc < 0)
        chk_live_forget(out);
    return rc;
}
