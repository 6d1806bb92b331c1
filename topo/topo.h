/* topo/, inside: a topology file as NCCL holds it in memory, and how findings are made. */
#ifndef XCLOUD_TOPO_PRIVATE_H
#define XCLOUD_TOPO_PRIVATE_H

#include <xcloud/topo.h>

/* Limits of NCCL 2.30 (src/graph/xml.h and topo.h). It fails when an element more could be read. */
#define TOPO_STRING   254 /* a name or a value, with the character that ends it */
#define TOPO_ATTRS    16
#define TOPO_ELEMENTS 256
#define TOPO_CHILDREN 128  /* of one element, before NCCL 2.29 */
#define TOPO_UNNESTED 4096 /* ours: NCCL calls itself for each level of an unknown element */

enum topo_kind {
    TOPO_SYSTEM,
    TOPO_CPU,
    TOPO_PCI,
    TOPO_GPU,
    TOPO_NIC,
    TOPO_NET,
    TOPO_NVLINK,
    TOPO_C2C,
    TOPO_PCILINK,
    TOPO_KINDS,
    TOPO_UNKNOWN = TOPO_KINDS
};

struct topo_place {
    unsigned line, column;
};
struct topo_attr {
    char key[TOPO_STRING + 1], value[TOPO_STRING + 1];
    bool equals; /* it had an '=' */
    struct topo_place place;
};
struct topo_element {
    enum topo_kind kind;
    int parent, first, next, last; /* indices into elements; XC_NONE */
    struct topo_place place;
    struct topo_attr *attrs;
    unsigned nattrs; /* as NCCL counts: a superfluous blank is an attribute without a name */
    unsigned extra;  /* that NCCL dropped because there was no more room */
};
struct topo_tree {
    struct topo_element *elements;
    int count;
    bool refused; /* reading ended early */
    bool failed;  /* no memory */
};

const char *topo_name(enum topo_kind kind);
/* NCCL's word for the machine's architecture; NULL: it has none, or it is not known. */
const char *topo_arch(const struct xc_node *node);
/* Whether NCCL looks for a child of this kind there; parent TOPO_UNKNOWN: at the top. */
bool topo_belongs(enum topo_kind parent, enum topo_kind child);
/* Attributes that NCCL knows on an element; NULL-terminated. */
const char *const *topo_attributes(enum topo_kind kind);

/* Reads the file as NCCL does: stops where it refuses. lenient: reads on over what NCCL refuses but
 * a person meant, to find what else is wrong. */
void topo_read(const char *bytes, size_t length, bool lenient, struct topo_tree *tree,
               struct xc_topo_findings *findings);
void topo_tree_free(struct topo_tree *tree);
#define topo_autotree xc_cleanup(topo_tree_free)

/* The first attribute of that name, as NCCL takes it, or NULL. */
const struct topo_attr *topo_attr(const struct topo_element *element, const char *key);
const char *topo_value(const struct topo_element *element, const char *key);

/* Lint and tree in one: the tree is empty when NCCL refuses the file. */
int topo_lint(const char *bytes, size_t length, struct topo_tree *tree,
              struct xc_topo_findings *findings, struct xc_error *error);
/* The file for writing another from it: errors of lint are one error. */
int topo_need(const char *bytes, size_t length, struct topo_tree *tree, struct xc_error *error);

/* ---- findings (finding.c) ---------------------------------------------------------------------- */

enum topo_weight { TOPO_WARNING, TOPO_ERROR, TOPO_REFUSED };
/* Adds one, and returns it so that topo_nccl and topo_fix complete it; NULL when it is not kept (they
 * accept NULL). */
struct xc_topo_finding *topo_found(struct xc_topo_findings *findings, const char *id,
                                   enum topo_weight weight, struct topo_place place,
                                   const char *format, ...) xc_printf(5, 6);
void topo_nccl(struct xc_topo_finding *finding, const char *format, ...) xc_printf(2, 3);
void topo_fix(struct xc_topo_finding *finding, const char *format, ...) xc_printf(2, 3);
void topo_sort(struct xc_topo_findings *findings);
/* text in quotes, cut and without what would spoil a terminal. */
#define TOPO_SHOWN 80
const char *topo_shown(const char *text, char buffer[TOPO_SHOWN]);

/* ---- what values mean to NCCL (value.c) ----------------------------------------------------------- */

enum topo_class { TOPO_IS_SWITCH, TOPO_IS_NVSWITCH, TOPO_IS_CPU, TOPO_IS_GPU, TOPO_IS_NIC };
/* As NCCL's table has it; *known false: what it takes when nothing fits. */
enum topo_class topo_class_of(const char *text, bool *known);
/* 100 Mb/s a lane, as NCCL counts; *known false: Gen3 because nothing fits. */
unsigned topo_speed(const char *text, bool *known);
/* The spelling that NCCL knows for a speed in MT/s a lane, or NULL. */
const char *topo_speed_text(uint32_t mts);
/* MT/s that a person meant by text, 0 when no number is in it. */
uint32_t topo_speed_meant(const char *text);
double topo_gbytes(unsigned speed, unsigned width); /* GB/s */
bool topo_busid_ok(const char *text);
/* The way NCCL will ask for it; false when text is no bus id at all. */
bool topo_busid_meant(const char *text, char out[XC_BDF_TEXT]);

/* ---- showing (show.c) ------------------------------------------------------------------------------ */

struct topo_showing {
    const struct topo_tree *tree;
    const struct xc_node *node; /* NULL: names are not known */
    struct xc_text *out;
};
/* "GPU 0000:1b:00.0 gpu0  48.0 GB/s", without a newline. */
void topo_describe(const struct topo_showing *showing, int element);
/* "gpu0", "mlx5_0", else the bus id. */
const char *topo_device(const struct topo_showing *showing, int element, char buffer[TOPO_SHOWN]);
/* The pci elements of a class; returns their count. */
size_t topo_devices(const struct topo_showing *showing, enum topo_class class,
                    int out[TOPO_ELEMENTS]);
/* As NCCL counts in its tree: through one switch, through several, through the CPU, between CPUs. */
enum xc_path topo_path(const struct topo_tree *tree, int a, int b);

#endif
