/* Running a program that somebody else has written, as root: opened once, from a path that root
 * trusts, with an empty environment, a deadline and no more than some bytes of output. */
#ifndef XCLOUD_CHECKS_PROGRAM_H
#define XCLOUD_CHECKS_PROGRAM_H

#include "live.h"

struct chk_program {
    const char *path;
    const char *const *argv; /* NULL-terminated, [0] too; NULL: the path alone */
    unsigned deadline_ms;    /* its own, when it is shorter than that of all; 0: none */
    struct xc_error error;   /* out: why it was not run, when child.started is false */
    struct chk_child child;  /* out: how it ended and what it wrote to stdout */
};
#define CHK_PROGRAM_TEXT 4096
/* Runs all at once. Every `child.text` belongs to the caller. */
void chk_programs(struct chk_program *programs, size_t count, unsigned deadline_ms);
/* A line's worth of text without anything that could end a line or a string somewhere. */
void chk_one_line(const char *text, char *line, size_t size);

#endif
