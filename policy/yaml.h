/* yaml: a YAML (and so JSON) document as a small tree that knows where each thing was written.
 *
 * One document of plain YAML: mappings with text keys, lists and scalars. Anchors, aliases, tags
 * that change a type, duplicate keys, several documents, NUL bytes, deep nesting and very many nodes
 * are errors, so that what a person reads in the file is what the program sees.
 */
#ifndef XCLOUD_POLICY_YAML_H
#define XCLOUD_POLICY_YAML_H

#include <xcloud/base.h>

#define XC_YAML_DEPTH 32
#define XC_YAML_NODES 20000

enum xc_yaml_kind { XC_YAML_SCALAR, XC_YAML_LIST, XC_YAML_MAP };

struct xc_yaml {
    enum xc_yaml_kind kind;
    bool quoted;           /* a scalar in quotes or a block: never null, a boolean or a number */
    unsigned line, column; /* of the value, counted from 1 */
    char *text;            /* a scalar's text, else NULL */
    char *key;             /* the key that it stands under, NULL in a list and at the top */
    unsigned key_line, key_column;
    struct xc_yaml *children; /* in the order of the file */
    size_t nchildren;
};

/* text need not be NUL-terminated; name stands in front of line and column in errors. */
int xc_yaml_parse(const char *text, size_t length, const char *name, struct xc_yaml **out,
                  struct xc_error *error);
void xc_yaml_free(struct xc_yaml *tree);

/* The value under key, or NULL: node may be NULL or no mapping, so that calls can be nested. */
const struct xc_yaml *xc_yaml_get(const struct xc_yaml *node, const char *key);
/* A scalar's text under key, or NULL. */
const char *xc_yaml_text(const struct xc_yaml *node, const char *key);
/* A whole number under key; false when it is missing or none. */
bool xc_yaml_long(const struct xc_yaml *node, const char *key, long *out);
/* Written without quotes as nothing, ~ or null. */
bool xc_yaml_is_null(const struct xc_yaml *node);
/* Whether a scalar is a boolean of YAML 1.1 (true false yes no on off, any case), quoted or not. */
bool xc_yaml_is_bool(const struct xc_yaml *node, bool *value);
const char *xc_yaml_kind_name(const struct xc_yaml *node); /* "a list", "a mapping", "text" */

#endif
