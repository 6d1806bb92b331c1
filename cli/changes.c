/* What changes with another policy? Class by class and key by key against the one in place, and on
 * machines that somebody has captured: who would go elsewhere. */
#include <string.h>

#include "../policy/policy.h"
#include "cli.h"

/* ---- keys and values ------------------------------------------------------------------------------ */

static bool same_tree(const struct xc_yaml *a, const struct xc_yaml *b)
{
    bool yes_a, yes_b;
    if (!a || !b)
        return a == b;
    /* on and true, ~ and nothing: the same to YAML, and so to a file that a program wrote anew */
    if (xc_yaml_is_bool(a, &yes_a) && xc_yaml_is_bool(b, &yes_b))
        return yes_a == yes_b;
    if (xc_yaml_is_null(a) && xc_yaml_is_null(b))
        return true;
    if (a->kind != b->kind || a->nchildren != b->nchildren || !xc_streq(a->text, b->text))
        return false;
    for (size_t i = 0; i < a->nchildren; i++) {
        const struct xc_yaml *other =
            a->kind == XC_YAML_MAP ? xc_yaml_get(b, a->children[i].key) : &b->children[i];
        if (!same_tree(&a->children[i], other))
            return false;
    }
    return true;
}

static const struct xc_origin *find_origin(const struct xc_rules *rules, const char *key)
{
    for (size_t i = 0; i < rules->norigins; i++)
        if (xc_streq(rules->origins[i].key, key))
            return &rules->origins[i];
    return NULL;
}

static void change(struct xc_table *table, const char *class_name, const char *key, const char *was,
                   const char *is)
{
    xc_table_row(table);
    xc_table_cell(table, 0, "%s", class_name);
    xc_table_cell(table, 1, "%s", key);
    xc_table_cell(table, 2, "%s", was);
    xc_table_cell(table, 3, "%s", is);
}

/* Values of one class that differ. */
static void compare_rules(struct xc_table *table, const char *class_name,
                          const struct xc_rules *was, const struct xc_rules *is)
{
    for (size_t i = 0; i < was->norigins; i++) {
        const struct xc_origin *old = &was->origins[i], *now = find_origin(is, old->key);
        if (!now || !xc_streq(old->value, now->value))
            change(table, class_name, old->key, old->value, now ? now->value : "-");
    }
    for (size_t i = 0; i < is->norigins; i++)
        if (!find_origin(was, is->origins[i].key))
            change(table, class_name, is->origins[i].key, "-", is->origins[i].value);
}

/* What no list of values shows: whom a class matches, and what waits for a job or a word. */
static void compare_trees(struct xc_table *table, const char *class_name, const struct xc_yaml *was,
                          const struct xc_yaml *is)
{
    static const char *const keys[] = {"match", "profiles", "env"};
    for (size_t i = 0; i < XC_COUNT(keys); i++)
        if (!same_tree(xc_yaml_get(was, keys[i]), xc_yaml_get(is, keys[i])))
            change(table, class_name, keys[i], "", "changed");
}

static int compare_class(struct xc_table *table, const char *name, const struct xc_policy *was,
                         const struct xc_policy *is, struct xc_error *error)
{
    cli_autorules struct xc_rules *old = NULL, *now = NULL;
    const struct xc_yaml *old_class = name ? pol_class(was, name) : NULL;
    const struct xc_yaml *now_class = name ? pol_class(is, name) : NULL;
    const char *shown = name ? name : "(no class)";
    if (name && (!old_class || !now_class)) {
        change(table, shown, "", old_class ? "a class" : "-", now_class ? "a class" : "-");
        return 0;
    }
    if (pol_resolve_class(was, name, &old, error) < 0 ||
        pol_resolve_class(is, name, &now, error) < 0)
        return -1;
    compare_rules(table, shown, old, now);
    compare_trees(table, shown, old_class, now_class);
    return 0;
}

static int compare_policies(struct xc_table *table, const struct xc_policy *was,
                            const struct xc_policy *is, struct xc_error *error)
{
    for (size_t i = 0; i < xc_policy_nclasses(is); i++)
        if (compare_class(table, xc_policy_class_name(is, i), was, is, error) < 0)
            return -1;
    for (size_t i = 0; i < xc_policy_nclasses(was); i++)
        if (!pol_class(is, xc_policy_class_name(was, i)) &&
            compare_class(table, xc_policy_class_name(was, i), was, is, error) < 0)
            return -1;
    if (compare_class(table, NULL, was, is, error) < 0)
        return -1;
    if (!same_tree(xc_yaml_get(was->tree, "jobs"), xc_yaml_get(is->tree, "jobs")))
        change(table, "(all)", "jobs", "", "changed");
    size_t n = xc_policy_nclasses(was);
    bool same_order = n == xc_policy_nclasses(is);
    for (size_t i = 0; same_order && i < n; i++)
        same_order = xc_streq(xc_policy_class_name(was, i), xc_policy_class_name(is, i));
    if (!same_order)
        change(table, "(all)", "classes", "", "the list or its order changed");
    return 0;
}

/* ---- machines ------------------------------------------------------------------------------------- */

/* The plan of a task a GPU (or one task) under a policy, as text. */
static int plan_under(const struct xc_policy *policy, const struct xc_node *node, const char *name,
                      struct xc_text *out, bool *matched, struct xc_error *error)
{
    cli_autorules struct xc_rules *rules = NULL;
    if (xc_plan_rules(policy, node, name, NULL, NULL, &rules, error) < 0)
        return -1;
    *matched |= rules->class_name || xc_policy_nclasses(policy) == 0;
    int *gpus = calloc(node->ngpus + 1, sizeof *gpus);
    if (!gpus)
        return xc_error_nomem(error);
    for (size_t i = 0; i < node->ngpus; i++)
        gpus[i] = (int)i;
    struct xc_request request = {.node = node,
                                 .rules = rules,
                                 .ntasks = node->ngpus ? (unsigned)node->ngpus : 1,
                                 .visible = {.gpus = gpus, .count = node->ngpus}};
    struct xc_plan *plan = NULL;
    int rc = xc_plan_make(&request, &plan, error);
    if (rc == 0)
        xc_plan_table(plan, node, out);
    xc_plan_free(plan);
    free(gpus);
    return rc;
}

static int compare_on_machine(const char *machine, const char *node_name,
                              const struct xc_policy *was, const struct xc_policy *is,
                              struct xc_text *out, struct xc_error *error)
{
    char buffer[256];
    const char *name = cli_node_name(machine, node_name, buffer, sizeof buffer);
    bool matched = false;
    cli_autonode struct xc_node *node = NULL;
    xc_autotext struct xc_text before = XC_TEXT_INIT, after = XC_TEXT_INIT;
    if (cli_open_machine(machine, NULL, NULL, &node, error) < 0 ||
        plan_under(was, node, name, &before, &matched, error) < 0 ||
        plan_under(is, node, name, &after, &matched, error) < 0)
        return -1;
    if (!matched)
        xc_text_addf(out,
                     "%s: no class matches this node, before or after: its defaults are planned "
                     "(--node NAME is Slurm's name of it)\n",
                     name);
    if (xc_streq(before.data, after.data))
        xc_text_addf(out, "%s: the same plan\n", name);
    else
        xc_text_addf(out, "%s was planned\n%s%s is planned\n%s", name, before.data, name,
                     after.data);
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------------- */

static int write_changes(const struct xc_policy *was, const struct xc_policy *is,
                         const char *const *machines, const char *node_name, struct xc_text *out,
                         struct xc_error *error)
{
    xc_autotable struct xc_table table;
    xc_table_begin(&table, 4);
    change(&table, "CLASS", "KEY", "WAS", "IS");
    if (compare_policies(&table, was, is, error) < 0)
        return -1;
    if (table.rows == 1)
        xc_text_add(out, "no value changes\n");
    else
        xc_table_write(&table, out);
    for (; *machines; machines++)
        if (compare_on_machine(*machines, node_name, was, is, out, error) < 0)
            return -1;
    return 0;
}

int cli_policy_changes(const char *path, const struct xc_policy *is, const char *const *machines,
                       const char *node_name, struct xc_error *error)
{
    struct xc_error why = {0};
    size_t length;
    cli_autopolicy struct xc_policy *was = NULL;
    xc_autofree char *text = xc_read_trusted(path, XC_POLICY_LIMIT, &length, &why);
    if (!text || xc_policy_parse(text, length, path, &was, &why) < 0) {
        char shown[sizeof(struct xc_error)];
        if (why.code == XC_ENOENT)
            printf("%s is new: nothing is compared\n", path);
        else
            printf("the file in place cannot be compared: %s\n",
                   xc_error_text(&why, shown, sizeof shown));
        return 0;
    }
    xc_autotext struct xc_text out = XC_TEXT_INIT;
    if (write_changes(was, is, machines, node_name, &out, error) < 0)
        return -1;
    return cli_print(&out) == 0 ? 0 : xc_error_set(error, XC_ESYS, NULL, "cannot write");
}
