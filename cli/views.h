/* The other ways in which xcloud check tells what it found. */
#ifndef XCLOUD_CLI_VIEWS_H
#define XCLOUD_CLI_VIEWS_H

#include <xcloud/check.h>

/* The checks that answer NVIDIA's prescreen, step by step; inside: those of a process in a container,
 * too. NULL-terminated, the caller's; NULL without memory. */
char **view_exemplar_checks(bool inside);
void view_exemplar(const struct xc_findings *findings, struct xc_text *out);
/* "gpu001: FAIL: 2 failed, …; cpu.cstate cpu0-111: C6 is …" */
void view_brief(const struct xc_findings *findings, const char *node, struct xc_text *out);
/* One line with performance data; returns Nagios' status: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. */
int view_nagios(const struct xc_findings *findings, struct xc_text *out);
/* A pass is no certificate. */
void view_no_certificate(struct xc_text *out);

#endif
