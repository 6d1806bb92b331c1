/* What was there before apply? A text file of this boot, written before anything is set. */
#include <errno.h>
#include <unistd.h>

#include "work.h"

#define HEAD "xcloud-host 1"

static const char *const kind_names[] = {"file", "dropin", "cpuset", "thread"};

static void clear_record(struct host_record *record)
{
    free(record->path);
    free(record->was);
    free(record->tag);
}

void host_state_clear(struct host_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        clear_record(&state->records[i]);
    free(state->records);
    xc_set_free(&state->cpus);
    *state = (struct host_state){0};
}

const struct host_record *host_state_find(const struct host_state *state, enum host_kind kind,
                                          const char *path)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->records[i].kind == kind && xc_streq(state->records[i].path, path))
            return &state->records[i];
    return NULL;
}

/* A record is a line of fields with tabs between. */
static char *field(const char *text)
{
    char *copy = strdup(text ? text : "");
    for (char *c = copy; c && *c; c++)
        if (*c == '\t' || *c == '\n')
            *c = ' ';
    return copy;
}

void host_state_add(struct host_state *state, enum host_kind kind, enum xc_host_what part,
                    const char *path, const char *was, const char *tag)
{
    const struct host_record *old = host_state_find(state, kind, path);
    if (old && (kind != HOST_THREAD || xc_streq(old->tag, tag)))
        return;
    if (state->count == state->size) {
        size_t size = state->size ? 2 * state->size : 32;
        struct host_record *records = realloc(state->records, size * sizeof *records);
        if (!records) {
            state->failed = true;
            return;
        }
        state->records = records;
        state->size = size;
    }
    struct host_record *record = &state->records[state->count];
    *record = (struct host_record){
        .kind = kind, .part = part, .path = field(path), .was = field(was), .tag = field(tag)};
    if (!record->path || !record->was || !record->tag) {
        clear_record(record);
        state->failed = true;
        return;
    }
    state->count++;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static char *boot_id(const struct xc_host_input *in)
{
    return xc_root_read_line(in->root, "/proc/sys/kernel/random/boot_id");
}

int host_state_write(const struct xc_host_input *in, const struct host_state *state,
                     struct xc_error *error)
{
    xc_autofree char *path = host_below(in, XC_HOST_STATE_FILE), *directory = NULL;
    xc_autofree char *boot = boot_id(in);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, HEAD "\nboot\t%s\ncpus\t", boot ? boot : "");
    xc_text_add_set(&text, &state->cpus);
    xc_text_add(&text, "\n");
    for (size_t i = 0; i < state->count; i++) {
        const struct host_record *r = &state->records[i];
        xc_text_addf(&text, "%s\t%d\t%s\t%s\t%s\n", kind_names[r->kind], (int)r->part, r->path,
                     r->was, r->tag);
    }
    directory = host_below(in, XC_RUN_DIR);
    if (!path || !directory || text.failed || state->failed || state->cpus.failed)
        return xc_error_nomem(error);
    if (xc_make_dirs(directory, 0755, error) < 0)
        return -1;
    return xc_write_atomic(path, text.data, text.length, 0644, error);
}

int host_state_remove(const struct xc_host_input *in, struct xc_error *error)
{
    xc_autofree char *path = host_below(in, XC_HOST_STATE_FILE);
    if (!path)
        return xc_error_nomem(error);
    return unlink(path) < 0 && errno != ENOENT ? xc_error_errno(error, path, "cannot remove it")
                                               : 0;
}

static int wrong(unsigned line, struct xc_error *error)
{
    return xc_error_set(error, XC_EINPUT, XC_HOST_STATE_FILE,
                        "line %u is not what xcloud host apply writes; what was there before is "
                        "not known: remove the file, and reboot to get the system's own settings",
                        line);
}

/* What undo will write to is one of the places that apply sets. */
static bool is_ours(enum host_kind kind, const char *path)
{
    long tid;
    if (strstr(path, "/../"))
        return false;
    switch (kind) {
    case HOST_FILE:
        return xc_starts(path, "/proc/irq/") || xc_starts(path, "/sys/devices/virtual/workqueue/");
    case HOST_DROPIN:
        return xc_starts(path, HOST_DROPIN_DIR "/");
    case HOST_CPUSET:
        return xc_starts(path, HOST_CGROUP "/");
    case HOST_THREAD:
        return xc_to_long(path, 1, INT32_MAX, &tid);
    }
    return false;
}

static bool take_record(struct host_state *state, char *line)
{
    char *fields[5] = {line};
    for (size_t i = 1; i < XC_COUNT(fields); i++) {
        char *tab = strchr(fields[i - 1], '\t');
        if (!tab)
            return false;
        *tab = '\0';
        fields[i] = tab + 1;
    }
    long part;
    if (!xc_to_long(fields[1], XC_HOST_SERVICES, XC_HOST_WORKQUEUES, &part))
        return false;
    for (size_t kind = 0; kind < XC_COUNT(kind_names); kind++)
        if (xc_streq(kind_names[kind], fields[0]) && is_ours((enum host_kind)kind, fields[2])) {
            host_state_add(state, (enum host_kind)kind, (enum xc_host_what)part, fields[2],
                           fields[3], fields[4]);
            return true;
        }
    return false;
}

/* Lines 1 to 3; 1: of another boot. */
static int take_head(struct host_state *state, unsigned number, const char *line, const char *boot,
                     struct xc_error *error)
{
    if (number == 1)
        return xc_streq(line, HEAD) ? 0 : wrong(number, error);
    if (number == 2)
        return !xc_starts(line, "boot\t")             ? wrong(number, error)
               : xc_streq(line + 5, boot ? boot : "") ? 0
                                                      : 1;
    if (!xc_starts(line, "cpus\t") || xc_set_parse_list(&state->cpus, line + 5, NULL, NULL) < 0)
        return wrong(number, error);
    return 0;
}

static int parse(struct host_state *state, char *text, const char *boot, struct xc_error *error)
{
    unsigned number = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (++number > 3) {
            if (!take_record(state, line))
                return wrong(number, error);
            continue;
        }
        int rc = take_head(state, number, line, boot, error);
        if (rc != 0)
            return rc;
    }
    return number < 3 ? wrong(number + 1, error) : 0;
}

int host_state_read(const struct xc_host_input *in, struct host_state *state,
                    struct xc_error *error)
{
    struct xc_error none = {0};
    xc_autofree char *boot = boot_id(in);
    xc_autofree char *text = xc_root_read(in->root, NULL, &none, "%s", XC_HOST_STATE_FILE);
    if (!text) {
        if (none.code == XC_ENOENT)
            return 0;
        if (error)
            *error = none;
        return -1;
    }
    if (xc_root_trusted(in->root, XC_HOST_STATE_FILE, error) < 0)
        return -1;
    int rc = parse(state, text, boot, error);
    bool failed = state->failed || state->cpus.failed;
    if (rc != 0 || failed)
        host_state_clear(state);
    return rc < 0 ? -1 : failed ? xc_error_nomem(error) : 0;
}
