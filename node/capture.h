/* What a capture takes out of the texts that it packs. */
#ifndef XCLOUD_NODE_CAPTURE_H
#define XCLOUD_NODE_CAPTURE_H

#include <xcloud/node.h>

/* All append text to out without what tells one machine from another; host "" is unknown. They may
 * cut text in place. */
void capture_sanitize(char *text, const char *host, struct xc_text *out);
void capture_cmdline(char *text, const char *host, struct xc_text *out);
void capture_without_serial(char *text, const char *host, struct xc_text *out);
void capture_gpu_information(char *text, unsigned number, const char *host, struct xc_text *out);
/* A path as it is packed: a virtual machine's PCI buses are below directories named by UUIDs, and a
 * scope of systemd may have the host's name. On the heap, NULL without memory. */
char *capture_path(const char *path, const char *host);
/* Whether a path still has a MAC or a GUID in it ("enxb83fd25ec200"); it then stays at home. */
bool capture_path_tells(const char *path);

#endif
