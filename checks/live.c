/* What do the checks of this run need that only running something tells, and did it come? */
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "live.h"

const struct chk_probe chk_probes[] = {
    {"nvml", XC_PROBE_NVML, offsetof(struct xc_check_live, nvml), chk_probe_nvml, chk_has_nvidia},
    {"dcgm", XC_PROBE_DCGM, offsetof(struct xc_check_live, dcgm), chk_probe_dcgm, chk_has_nvidia},
    {"exec", XC_PROBE_EXEC, offsetof(struct xc_check_live, exec), chk_probe_exec, NULL},
    {"spin", XC_PROBE_SPIN, offsetof(struct xc_check_live, spin), chk_probe_spin, NULL},
    {"dcb", XC_PROBE_DCB, offsetof(struct xc_check_live, dcb), chk_probe_dcb, NULL},
    {"hook", XC_PROBE_HOOK, offsetof(struct xc_check_live, hook), chk_probe_hook, chk_hook_wanted},
    {"inside", XC_PROBE_INSIDE, offsetof(struct xc_check_live, inside), chk_probe_inside, NULL},
    {0},
};

static char **text_of(struct xc_check_live *live, const struct chk_probe *probe)
{
    return (char **)(void *)((char *)live + probe->member);
}

/* ---- probing ------------------------------------------------------------------------------------ */

#define PROBES_MAX 16

struct task {
    const struct chk_probe *probe;
    const struct xc_check_input *input;
    unsigned deadline_ms;
};

static int in_child(void *data, int out)
{
    const struct task *task = data;
    return task->probe->run(task->input, task->deadline_ms, out);
}

static bool is_whole(const char *text)
{
    size_t length = strlen(text);
    return xc_streq(text, "end\n") || (length > 4 && xc_streq(text + length - 5, "\nend\n"));
}

/* The text and, when it is not whole, why. What a child has told before it hung is worth keeping. */
static void keep(struct xc_check_live *live, const struct task *task, struct xc_child *child,
                 struct xc_text *trouble)
{
    const char *name = task->probe->name;
    if (!child->started)
        xc_text_addf(trouble, "%s: no process: %s\n", name, strerror(child->status));
    else if (child->text && is_whole(child->text))
        ;
    else if (!child->ended)
        xc_text_addf(trouble, "%s: no answer within %u ms\n", name, task->deadline_ms);
    else if (WIFSIGNALED(child->status))
        xc_text_addf(trouble, "%s: it ended with signal %d\n", name, WTERMSIG(child->status));
    else
        xc_text_addf(trouble, "%s: it ended early\n", name);
    char *end = child->text ? strrchr(child->text, '\n') : NULL;
    if (end) {
        end[1] = '\0'; /* half a line says nothing */
        *text_of(live, task->probe) = child->text;
    } else {
        free(child->text);
    }
    child->text = NULL;
}

static void run_probes(const struct xc_check_input *input, unsigned wanted, unsigned deadline_ms,
                       struct xc_check_live *out)
{
    struct task tasks[PROBES_MAX];
    struct xc_child children[PROBES_MAX];
    size_t count = 0;
    xc_autotext struct xc_text trouble = XC_TEXT_INIT;
    for (size_t i = 0; chk_probes[i].name; i++)
        if ((wanted & chk_probes[i].bit) && count < PROBES_MAX &&
            (!chk_probes[i].wanted || chk_probes[i].wanted(input))) {
            tasks[count] = (struct task){&chk_probes[i], input, deadline_ms};
            children[count] = (struct xc_child){.run = in_child, .data = &tasks[count], .keep = -1};
            count++;
        }
    xc_children_run(children, count, deadline_ms);
    for (size_t i = 0; i < count; i++)
        keep(out, &tasks[i], &children[i], &trouble);
    if (trouble.length > 0)
        out->trouble = xc_text_take(&trouble);
}

static void read_probes(const struct xc_check_input *input, unsigned wanted,
                        struct xc_check_live *out)
{
    for (size_t i = 0; chk_probes[i].name; i++)
        if (wanted & chk_probes[i].bit)
            *text_of(out, &chk_probes[i]) =
                xc_root_read(input->root, NULL, NULL, "/run/xcloud/probe/%s", chk_probes[i].name);
    out->trouble = xc_root_read(input->root, NULL, NULL, "/run/xcloud/probe/trouble");
}

void xc_check_live_probe_only(const struct xc_check_input *input, const char *const *only,
                              unsigned deadline_ms, struct xc_check_live *out)
{
    unsigned wanted = chk_probes_of(input, only);
    if (!only && input->at == XC_AT_PROLOG)
        wanted &= XC_PROBE_NVML | XC_PROBE_HOOK; /* a job waits: the others are the health run's */
    chk_live_forget(out);
    if (!xc_root_is_live(input->root)) {
        read_probes(input, wanted, out);
        return;
    }
    out->probed_at_us = xc_boottime_us();
    snprintf(out->boot_id, sizeof out->boot_id, "%s", input->node->boot_id);
    run_probes(input, wanted, deadline_ms, out);
}

void xc_check_live_probe(const struct xc_check_input *input, unsigned deadline_ms,
                         struct xc_check_live *out)
{
    xc_check_live_probe_only(input, NULL, deadline_ms, out);
}

/* ---- in the children ---------------------------------------------------------------------------- */

void chk_probe_line(int out, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    size_t size = (size_t)length < sizeof line - 1 ? (size_t)length : sizeof line - 2;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    line[size++] = '\n';
    if (write(out, line, size) < 0)
        _exit(1); /* nobody reads it any more */
}

void chk_one_line(const char *text, char *line, size_t size)
{
    size_t used = 0;
    bool blank = true;
    for (const char *c = text ? text : ""; *c && used + 1 < size; c++) {
        unsigned char byte = (unsigned char)*c;
        bool space = byte <= ' ' || byte == 0x7f;
        if (!(space && blank))
            line[used++] = space ? ' ' : byte < 0x7f ? *c : '?';
        blank = space;
    }
    while (used > 0 && line[used - 1] == ' ')
        used--;
    line[used] = '\0';
}

/* ---- reading them back -------------------------------------------------------------------------- */

static const struct chk_probe *probe_of(unsigned bit)
{
    const struct chk_probe *probe = chk_probes;
    while (probe[1].name && probe->bit != bit)
        probe++;
    return probe;
}

char *chk_live_trouble(const struct xc_check_input *in, unsigned bit)
{
    const char *name = probe_of(bit)->name;
    size_t length = strlen(name);
    const char *line = in->live ? in->live->trouble : NULL;
    for (; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, length) == 0 && xc_starts(line + length, ": "))
            return strndup(line + length + 2, strcspn(line + length + 2, "\n"));
    return strdup("");
}

const char *chk_live_text(const struct xc_check_input *in, struct xc_findings *out, unsigned bit,
                          bool *whole)
{
    const struct chk_probe *probe = probe_of(bit);
    const char *text = in->live ? *text_of((struct xc_check_live *)(void *)in->live, probe) : NULL;
    xc_autofree char *why = chk_live_trouble(in, bit);
    if (whole)
        *whole = text && is_whole(text);
    if (text)
        return text;
    if (!xc_root_is_live(in->root) && !(why && *why))
        chk_say(out, XC_CHECK_NA, (struct chk_words){0}, "only a running machine tells it (%s)",
                probe->name);
    else if (why && *why)
        chk_say(out, XC_CHECK_UNKNOWN, (struct chk_words){0}, "%s: %s", probe->name, why);
    else
        chk_say(out, XC_CHECK_UNKNOWN,
                (struct chk_words){.hint = "xcloud-health looks, and keeps what it saw for the "
                                           "prolog"},
                "no health run of late has looked (%s)", probe->name);
    return NULL;
}

bool chk_live_value(const char *text, const char *prefix, const char *key, char *buffer,
                    size_t size)
{
    char start[256];
    int length = snprintf(start, sizeof start, "%s %s ", prefix, key);
    for (const char *line = text; line && *line && length > 0 && (size_t)length < sizeof start;
         line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, start, (size_t)length) == 0) {
            snprintf(buffer, size, "%.*s", (int)strcspn(line + length, "\n"), line + length);
            return true;
        }
    return false;
}

bool chk_live_number(const char *text, const char *prefix, const char *key, int64_t *out)
{
    char value[32], *end;
    if (!chk_live_value(text, prefix, key, value, sizeof value) || !*value)
        return false;
    long long number = strtoll(value, &end, 0);
    if (*end)
        return false;
    *out = number;
    return true;
}
