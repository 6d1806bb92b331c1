/* Private to policy/: where its files are. */
#ifndef XCLOUD_POLICY_PLACE_H
#define XCLOUD_POLICY_PLACE_H

#include <xcloud/policy.h>

/* PREFIX DIRECTORY/NAME, on the heap; name "" leaves the slash away. */
char *pol_path(const struct xc_places *places, const char *directory, const char *name);
/* Reads the first policy that exists. *path gets its name also when it cannot be used. */
char *pol_read_live(const struct xc_places *places, char **path, size_t *length,
                    struct xc_error *error);
void pol_hash(const void *bytes, size_t length, char hash[17]);

#endif
