/* What does `topo: map:` say: which GPUs and NICs share a switch, and on which NUMA node it is? Which
 * device an entry names is known only when a machine is: topo/ looks for it there. */
#include <string.h>

#include "policy.h"

static int read_number(struct pol_reading *r, const struct xc_yaml *node, long min, long max)
{
    long value;
    if (node->kind == XC_YAML_SCALAR && xc_to_long(node->text, min, max, &value) &&
        (node->quoted || pol_number_is_stable(node->text)))
        return 0;
    return pol_bad(r, node, "%s is %s; expected a number from %ld to %ld", r->key->name,
                   node->kind == XC_YAML_SCALAR ? node->text : xc_yaml_kind_name(node), min, max);
}

int pol_read_map_numa(struct pol_reading *r, const struct xc_yaml *node)
{
    return read_number(r, node, 0, 1023);
}

int pol_read_map_gen(struct pol_reading *r, const struct xc_yaml *node)
{
    return read_number(r, node, 1, 6);
}

/* A GPU: its place in the order of PCI addresses, or its PCI address. */
static int check_gpu(struct pol_reading *r, const struct xc_yaml *node)
{
    long number;
    size_t length = strlen(node->text);
    if (xc_to_long(node->text, 0, 255, &number) ||
        (length >= 12 && length <= 16 && strspn(node->text, "0123456789abcdef:.") == length))
        return 0;
    return pol_bad(r, node,
                   "gpus is \"%.60s\"; expected a GPU's number or its PCI address, as 0 or "
                   "\"0001:00:00.0\"",
                   node->text);
}

static int check_nic(struct pol_reading *r, const struct xc_yaml *node)
{
    return *node->text ? 0
                       : pol_bad(r, node,
                                 "nics is \"\"; expected an RDMA name, a netdev or a PCI "
                                 "address");
}

int pol_read_map_gpus(struct pol_reading *r, const struct xc_yaml *node)
{
    char **strings = pol_strings(r, node, check_gpu);
    int rc = strings ? 0 : -1;
    xc_names_free(&strings);
    return rc;
}

int pol_read_map_nics(struct pol_reading *r, const struct xc_yaml *node)
{
    char **strings = pol_strings(r, node, check_nic);
    int rc = strings ? 0 : -1;
    xc_names_free(&strings);
    return rc;
}

/* ---- the whole map --------------------------------------------------------------------------------- */

void pol_map_free(struct xc_topo_group *groups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        xc_names_free(&groups[i].gpus);
        xc_names_free(&groups[i].nics);
    }
    free(groups);
}

static void say_names(struct xc_text *said, const char *what, char *const *names)
{
    for (size_t i = 0; names && names[i]; i++)
        xc_text_addf(said, "%s%s", i ? "," : what, names[i]);
}

static int read_group(struct pol_reading *r, const struct xc_yaml *node, struct xc_topo_group *out)
{
    long numa = 0, gen = 0;
    const struct xc_yaml *gpus = xc_yaml_get(node, "gpus"), *nics = xc_yaml_get(node, "nics");
    xc_yaml_long(node, "numa", &numa);
    xc_yaml_long(node, "gen", &gen);
    out->numa = (int)numa;
    out->gen = (unsigned)gen;
    out->line = node->line;
    if ((gpus && !(out->gpus = pol_strings(r, gpus, check_gpu))) ||
        (nics && !(out->nics = pol_strings(r, nics, check_nic))))
        return -1;
    if ((!out->gpus || !out->gpus[0]) && (!out->nics || !out->nics[0]))
        return pol_bad(r, node, "a switch of map joins nothing; expected gpus:, nics: or both");
    xc_text_addf(&r->said, "%snuma %ld", r->said.length ? "; " : "", numa);
    if (gen)
        xc_text_addf(&r->said, " gen %ld", gen);
    say_names(&r->said, " gpus ", out->gpus);
    say_names(&r->said, " nics ", out->nics);
    return 0;
}

int pol_read_topo_map(struct pol_reading *r, const struct xc_yaml *node)
{
    struct xc_topo_group *groups = calloc(node->nchildren + 1, sizeof *groups);
    if (!groups)
        return xc_error_nomem(r->error);
    pol_map_free(r->rules->topo.map, r->rules->topo.nmap);
    r->rules->topo.map = groups;
    r->rules->topo.nmap = node->nchildren;
    for (size_t i = 0; i < node->nchildren; i++)
        if (read_group(r, &node->children[i], &groups[i]) < 0)
            return -1;
    if (node->nchildren == 0)
        xc_text_add(&r->said, "none");
    return 0;
}
