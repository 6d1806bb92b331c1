/* Has the kernel's log a new error of a GPU or NVSwitch, and is it the node's fault or a job's? */
#include <inttypes.h>

#include "work.h"

static const struct xc_check_param xid_params[] = {
    {"fatal", XC_PARAM_NAMES, "46,48,62,64,74,79,81,92,95,110,119,120,136,140,143,155,156,158",
     "Xids after which a GPU needs a reset, the node a reboot or a technician", NULL},
    {"job", XC_PARAM_NAMES, "8,13,31,43,45,68,69,94",
     "Xids that jobs cause and that say nothing about the node", NULL},
    {0},
};

enum xid_class { XID_NONE, XID_JOB, XID_OTHER, XID_FATAL };

struct xid_finding {
    char device[XC_BDF_TEXT + 8];
    char text[96];
    enum xid_class class;
    size_t count;
};
#define XIDS_MAX 32
struct xids {
    const struct xc_check_input *in;
    struct xid_finding list[XIDS_MAX];
    size_t count, of_jobs;
    int64_t last_sequence, seen_sequence; /* of this log; of the previous run */
};

static bool number_in(const char *list, long number)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", number);
    xc_autonames char **names = xc_names_split(list);
    for (char **name = names; name && *name; name++)
        if (xc_streq(*name, text))
            return true;
    return false;
}

static enum xid_class class_of(const struct xc_check_input *in, long xid, const char *text)
{
    if (xid ==
        154) { /* "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)" */
        const char *action = strstr(text, "recovery action changed"); /* behind a process's name */
        return strstr(action ? action : text, "to 0x0") ? XID_JOB : XID_FATAL;
    }
    if (number_in(chk_param(in, "fatal"), xid))
        return XID_FATAL;
    return number_in(chk_param(in, "job"), xid) ? XID_JOB : XID_OTHER;
}

static void add_xid(struct xids *xids, const char *device, enum xid_class class, const char *text)
{
    if (class == XID_JOB) {
        xids->of_jobs++;
        return;
    }
    for (size_t i = 0; i < xids->count; i++) {
        struct xid_finding *old = &xids->list[i];
        if (xc_streq(old->device, device) && xc_streq(old->text, text)) {
            old->count++;
            return;
        }
    }
    if (xids->count == XIDS_MAX)
        return;
    struct xid_finding *new = &xids->list[xids->count++];
    *new = (struct xid_finding){.class = class, .count = 1};
    snprintf(new->device, sizeof new->device, "%s", device);
    snprintf(new->text, sizeof new->text, "%s", text);
}

/* "(PCI:0000:3b:00): 79, pid=…" */
static bool device_and_number(const char *at, char device[XC_BDF_TEXT + 8], long *number)
{
    char *end;
    if (!xc_starts(at, "(PCI:"))
        return false;
    at += 5;
    size_t length = strspn(at, "0123456789abcdefABCDEF:.");
    if (length >= XC_BDF_TEXT || at[length] != ')')
        return false;
    snprintf(device, XC_BDF_TEXT + 8, "%.*s", (int)length, at);
    const char *digits = at + length + 1 + strspn(at + length + 1, ": ");
    *number = strtol(digits, &end, 10);
    return end != digits && *number >= 0;
}

/* What the kernel said in a line of /dev/kmsg ("6,1234,5678,-;text") or dmesg ("[ 5.6] text"). The
 * names of processes, programs and cgroups are their users', and can say anything further behind:
 * only how a text begins is the driver's. "": written by a program, or no text. */
static const char *message_of(const char *line)
{
    char *end;
    const char *semicolon;
    unsigned long priority = strtoul(line, &end, 10);
    if (end > line && *end == ',' && (semicolon = strchr(line, ';')))
        return priority < 8 ? semicolon + 1 : "";
    if (*line == '[') {
        const char *close = strchr(line, ']');
        return close ? close + 1 + strspn(close + 1, " ") : "";
    }
    return line;
}

/* "nvidia-nvswitch0: SXid (PCI:…" from "(" on. */
static const char *switch_error(const char *text)
{
    static const char driver[] = "nvidia-nvswitch";
    if (!xc_starts(text, driver))
        return NULL;
    text += sizeof driver - 1;
    text += strspn(text, "0123456789");
    return xc_starts(text, ": SXid ") ? text + 7 : NULL;
}

/* "NVRM: The NVIDIA GPU at PCI:0000:3b:00: has fallen off the bus": a process that is called NVRM has
 * its number in brackets, a cgroup an equals sign before its name. */
static bool fell_off(const char *text)
{
    const char *fallen = xc_starts(text, "NVRM: ") ? strstr(text, "fallen off the bus") : NULL;
    return fallen && strcspn(text, "[=") > (size_t)(fallen - text);
}

static void take_record(struct xids *xids, const char *line)
{
    static const char xid_words[] = "NVRM: Xid ";
    char device[XC_BDF_TEXT + 8] = "", text[96];
    const char *message = message_of(line), *sxid = switch_error(message);
    const char *xid = xc_starts(message, xid_words) ? message + sizeof xid_words - 1 : NULL;
    long number;
    if (xid && device_and_number(xid, device, &number)) {
        const char *action = strstr(xid, "recovery action changed");
        snprintf(text, sizeof text, "Xid %ld%s%.70s", number, action ? ": " : "",
                 action ? action : "");
        add_xid(xids, device, class_of(xids->in, number, xid), text);
    } else if (sxid && device_and_number(sxid, device, &number)) {
        bool fatal = strstr(sxid, "Fatal") && !strstr(sxid, "Non-fatal");
        snprintf(text, sizeof text, "NVSwitch SXid %ld%s", number, fatal ? ", fatal" : "");
        add_xid(xids, device, fatal ? XID_FATAL : XID_OTHER, text);
    } else if (fell_off(message)) {
        const char *at = strstr(message, "GPU at PCI:");
        if (at)
            snprintf(device, sizeof device, "%.*s", (int)strspn(at + 11, "0123456789abcdefABCDEF:"),
                     at + 11);
        for (size_t n = strlen(device); n > 0 && device[n - 1] == ':'; n--)
            device[n - 1] = '\0';
        add_xid(xids, device, XID_FATAL, "the GPU has fallen off the bus");
    }
}

/* "6,1234,5678,-;text" of /dev/kmsg; -1: a line of dmesg. */
static int64_t sequence_of(const char *line)
{
    long long sequence;
    const char *semicolon = strchr(line, ';');
    return semicolon && sscanf(line, "%*u,%lld,", &sequence) == 1 && sequence >= 0 ? sequence : -1;
}

/* The last load of the driver: what an earlier one said is over. */
static char *since_driver_load(char *log)
{
    char *start = log;
    for (char *at = log; (at = strstr(at, "NVRM: loading NVIDIA")); at++) {
        char *line = at;
        while (line > log && line[-1] != '\n')
            line--;
        if (message_of(line) == at)
            start = line;
    }
    return start;
}

static void take_log(struct xids *xids, char *log)
{
    const struct xc_check_state *previous = xids->in->previous;
    xids->seen_sequence = xids->last_sequence = -1;
    if (chk_has_previous(xids->in))
        xc_check_state_get(previous, "kmsg.sequence", &xids->seen_sequence);
    char *rest = since_driver_load(log), *line;
    while ((line = strsep(&rest, "\n"))) {
        int64_t sequence = *line == ' ' ? -1 : sequence_of(line);
        if (sequence >= 0 && sequence <= xids->seen_sequence)
            continue;
        if (sequence > xids->last_sequence)
            xids->last_sequence = sequence;
        take_record(xids, line);
    }
}

static void say_xids(const struct xids *xids, struct xc_findings *out)
{
    for (size_t i = 0; i < xids->count; i++) {
        const struct xid_finding *x = &xids->list[i];
        char times[32] = "";
        if (x->count > 1)
            snprintf(times, sizeof times, ", %zu times", x->count);
        chk_say(out, x->class == XID_FATAL ? XC_CHECK_FAIL : XC_CHECK_WARN,
                (struct chk_words){.device = x->device,
                                   .hint = x->class == XID_FATAL
                                               ? "reset the GPU or reboot; if it comes back, "
                                                 "nvidia-bug-report.sh and replace"
                                               : "NVIDIA's table of Xids says what it means"},
                "%s in the kernel's log%s", x->text, times);
    }
}

static void run_xid(const struct xc_check_input *in, struct xc_findings *out)
{
    size_t before = out->count;
    if (chk_no_nvidia(in, out))
        return;
    xc_autofree struct xids *xids = calloc(1, sizeof *xids);
    xc_autofree char *log = in->live && in->live->log ? strdup(in->live->log) : NULL;
    if (!log || !xids) {
        bool captured = !xc_root_is_live(in->root);
        chk_say(out, captured ? XC_CHECK_NA : XC_CHECK_UNKNOWN,
                (struct chk_words){.hint = "run it as root"}, "%s",
                captured ? "a captured machine has no kernel log"
                         : "the kernel's log is not readable");
        return;
    }
    xids->in = in;
    take_log(xids, log);
    if (in->next) {
        int64_t last =
            xids->last_sequence > xids->seen_sequence ? xids->last_sequence : xids->seen_sequence;
        xc_check_state_set(in->next, last, "kmsg.sequence");
    }
    say_xids(xids, out);
    if (out->count == before)
        chk_say(out, XC_CHECK_PASS, (struct chk_words){0}, "no new Xid of the GPUs, %zu of jobs",
                xids->of_jobs);
}

const struct xc_check chk_gpu_xid = {
    .id = "gpu.xid",
    .code = "GPU03",
    .what = "no new error of a GPU or NVSwitch in the kernel's log; those of jobs do not count",
    .at = XC_AT_HEALTH | XC_AT_PROLOG | XC_AT_EPILOG | XC_AT_CLI,
    .needs = XC_NEEDS_ROOT | XC_NEEDS_LOG,
    .on_fail = XC_FAIL_WARN,
    .params = xid_params,
    .run = run_xid,
};
