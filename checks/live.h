/* The probes: what only running something tells, as text that a check can read back.
 *
 * A probe's child writes lines of words, "WHO INDEX KEY VALUE…", and "end" as the last one. Values
 * have no control characters. A text without "end" is as far as the child came. */
#ifndef XCLOUD_CHECKS_LIVE_H
#define XCLOUD_CHECKS_LIVE_H

#include "work.h"

/* ---- the probes --------------------------------------------------------------------------------- */

struct chk_probe {
    const char *name; /* "nvml" */
    unsigned bit;
    size_t member; /* offset of its text in struct xc_check_live */
    int (*run)(const struct xc_check_input *input, unsigned deadline_ms, int out);
    bool (*wanted)(const struct xc_check_input *input); /* whether there is what it asks; NULL: yes */
};
extern const struct chk_probe chk_probes[]; /* ended by one without a name */

int chk_probe_nvml(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_dcgm(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_exec(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_spin(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_dcb(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_inside(const struct xc_check_input *input, unsigned deadline_ms, int out);
int chk_probe_hook(const struct xc_check_input *input, unsigned deadline_ms, int out);
bool chk_hook_wanted(const struct xc_check_input *input);

/* What the kernel answered about a netdev, as lines; whatever the bytes are. */
void chk_dcb_answer(const char *netdev, const char *message, size_t length, int out);
/* The probes that the checks of a run need. */
unsigned chk_probes_of(const struct xc_check_input *input, const char *const *only);
/* Drops the probes' members. */
void chk_live_forget(struct xc_check_live *live);

/* A line's worth of text without anything that could end a line or a string somewhere. */
void chk_one_line(const char *text, char *line, size_t size);
/* One line of a probe's text: control characters of the value become blanks, it is one write. */
void chk_probe_line(int out, const char *format, ...) xc_printf(2, 3);

/* ---- reading them back -------------------------------------------------------------------------- */

/* The text of the running check's probe. NULL: n/a or unknown was said. *whole (may be NULL): it has
 * come to its end; else `trouble` says why not. */
const char *chk_live_text(const struct xc_check_input *in, struct xc_findings *out, unsigned probe,
                          bool *whole);
/* Why a probe's text did not come whole: "no answer within 2000 ms"; on the heap, "" without. */
char *chk_live_trouble(const struct xc_check_input *in, unsigned probe);
/* The value of the line "PREFIX KEY VALUE" into buffer; false: there is none. */
bool chk_live_value(const char *text, const char *prefix, const char *key, char *buffer,
                    size_t size);
bool chk_live_number(const char *text, const char *prefix, const char *key, int64_t *out);

#endif
