/* What does a check know of its last run, and what do a live machine's devices say? */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "live.h"

/* ---- counters ------------------------------------------------------------------------------------- */

#define STATE_HEAD  "xcloud-counters 1"
#define STATE_LIMIT (4u << 20)

void xc_check_state_clear(struct xc_check_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        free(state->counters[i].name);
    free(state->counters);
    *state = (struct xc_check_state){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct xc_counter *)a)->name, ((const struct xc_counter *)b)->name);
}

bool xc_check_state_get(const struct xc_check_state *state, const char *name, int64_t *value)
{
    struct xc_counter key = {.name = (char *)name};
    if (state->count == 0)
        return false;
    const struct xc_counter *found =
        bsearch(&key, state->counters, state->count, sizeof key, by_name);
    if (found)
        *value = found->value;
    return found != NULL;
}

static void add(struct xc_check_state *state, char *name, int64_t value)
{
    if (name && state->count == state->size) {
        size_t size = state->size ? 2 * state->size : 64;
        struct xc_counter *counters = realloc(state->counters, size * sizeof *counters);
        if (counters) {
            state->counters = counters;
            state->size = size;
        }
    }
    if (!name || state->count == state->size) {
        free(name);
        state->failed = true;
        return;
    }
    state->counters[state->count++] = (struct xc_counter){.name = name, .value = value};
}

static char *name_of(const char *format, va_list args)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addv(&text, format, args);
    return xc_text_take(&text);
}

void xc_check_state_set(struct xc_check_state *state, int64_t value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(state, name_of(format, args), value);
    va_end(args);
}

static bool take_line(char *line, struct xc_check_state *out)
{
    char *space = strchr(line, ' '), *end;
    if (!space || space == line)
        return false;
    *space = '\0';
    if (xc_streq(line, "boot")) {
        snprintf(out->boot_id, sizeof out->boot_id, "%s", space + 1);
        return true;
    }
    errno = 0;
    int64_t value = strtoll(space + 1, &end, 10);
    if (errno || end == space + 1 || *end)
        return false;
    if (xc_streq(line, "at"))
        out->at_us = value;
    else
        add(out, strdup(line), value);
    return true;
}

int xc_check_state_parse(const char *text, const char *name, struct xc_check_state *out,
                         struct xc_error *error)
{
    *out = (struct xc_check_state){0};
    xc_autofree char *copy = strdup(text);
    char *rest = copy, *line = copy ? strsep(&rest, "\n") : NULL;
    if (!copy)
        return xc_error_nomem(error);
    if (!xc_streq(line, STATE_HEAD))
        return xc_error_set(error, XC_EINPUT, name, "it does not begin with \"%s\"", STATE_HEAD);
    for (unsigned number = 2; (line = strsep(&rest, "\n")); number++)
        if (*line && !take_line(line, out)) {
            xc_check_state_clear(out);
            return xc_error_set(error, XC_EINPUT, name, "line %u is no counter", number);
        }
    if (out->failed) {
        xc_check_state_clear(out);
        return xc_error_nomem(error);
    }
    if (out->count > 0)
        qsort(out->counters, out->count, sizeof *out->counters, by_name);
    return 0;
}

int xc_check_state_read(const char *path, struct xc_check_state *out, struct xc_error *error)
{
    *out = (struct xc_check_state){0};
    size_t length;
    xc_autofree char *text = xc_read_trusted(path, STATE_LIMIT, &length, error);
    return text ? xc_check_state_parse(text, path, out, error) : -1;
}

int xc_check_state_write(const struct xc_check_state *state, const char *path,
                         struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    if (state->failed)
        return xc_error_nomem(error);
    xc_text_addf(&text, "%s\nboot %s\nat %" PRId64 "\n", STATE_HEAD,
                 state->boot_id[0] ? state->boot_id : "-", state->at_us);
    for (size_t i = 0; i < state->count; i++)
        xc_text_addf(&text, "%s %" PRId64 "\n", state->counters[i].name, state->counters[i].value);
    size_t length = text.length;
    xc_autofree char *bytes = xc_text_take(&text);
    return bytes ? xc_write_atomic(path, bytes, length, 0644, error) : xc_error_nomem(error);
}

bool chk_has_previous(const struct xc_check_input *in)
{
    return in->previous && in->node->boot_id[0] &&
           xc_streq(in->previous->boot_id, in->node->boot_id);
}

bool chk_delta(const struct xc_check_input *in, int64_t now, int64_t *delta, const char *format,
               ...)
{
    va_list args;
    va_start(args, format);
    xc_autofree char *name = name_of(format, args);
    va_end(args);
    int64_t before;
    if (name && in->next)
        xc_check_state_set(in->next, now, "%s", name);
    if (!name || !chk_has_previous(in) || !xc_check_state_get(in->previous, name, &before) ||
        before > now || before < 0)
        return false;
    *delta = now - before;
    return true;
}

void chk_first_run(const struct xc_check_input *in, struct xc_findings *out, const char *format,
                   ...)
{
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    bool still = !in->previous && !xc_root_is_live(in->root);
    chk_say(out, still ? XC_CHECK_NA : XC_CHECK_UNKNOWN, (struct chk_words){0}, "%s%s",
            text.data ? text.data : "", still ? ": a captured machine has one moment only" : "");
}

/* ---- devices -------------------------------------------------------------------------------------- */

#define LOG_LIMIT (16u << 20)

/* All records that the kernel still has. */
static char *read_kmsg(void)
{
    xc_autoclose int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct xc_text text = XC_TEXT_INIT;
    char record[8192 + 1];
    if (fd < 0)
        return NULL;
    while (text.length < LOG_LIMIT) {
        ssize_t got = read(fd, record, sizeof record - 1);
        if (got < 0 && (errno == EPIPE || errno == EINTR))
            continue; /* overwritten while we read: go on with the oldest that is left */
        if (got <= 0)
            break;
        xc_text_add_n(&text, record, (size_t)got);
    }
    return xc_text_take(&text);
}

static long read_latency(void)
{
    xc_autoclose int fd = open("/dev/cpu_dma_latency", O_RDONLY | O_CLOEXEC);
    int32_t value;
    return fd >= 0 && read(fd, &value, sizeof value) == sizeof value && value >= 0 ? value : -1;
}

/* A captured machine's: four bytes as the device gives them, or a number in text. */
static long latency_of(const char *bytes, size_t length)
{
    int32_t value;
    char text[16];
    long number;
    if (length == sizeof value) {
        memcpy(&value, bytes, sizeof value);
        if (value >= 0 && value <= 2000000000 && (value < 0x20202020 || value > 0x39393939))
            return value;
    }
    if (length == 0 || length >= sizeof text)
        return -1;
    memcpy(text, bytes, length);
    text[length] = '\0';
    return xc_to_long(xc_trim(text), 0, 2000000000, &number) ? number : -1;
}

void xc_check_live_read(struct xc_root *root, struct xc_check_live *out)
{
    if (xc_root_is_live(root)) {
        *out = (struct xc_check_live){.log = read_kmsg(), .dma_latency_us = read_latency()};
        return;
    }
    size_t length = 0;
    xc_autofree char *bytes = xc_root_read(root, &length, NULL, "/dev/cpu_dma_latency");
    *out = (struct xc_check_live){.log = xc_root_read(root, NULL, NULL, "/dev/kmsg"),
                                  .dma_latency_us = bytes ? latency_of(bytes, length) : -1};
}

void xc_check_live_clear(struct xc_check_live *live)
{
    free(live->log);
    chk_live_forget(live);
    *live = (struct xc_check_live){.dma_latency_us = -1};
}
