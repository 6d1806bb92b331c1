/* xcloud policy: is this file a policy, what does it mean here, and how does it get into force? */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/check.h>

#include "../policy/policy.h"
#include "cli.h"

struct options {
    const char *policy, *node, *machine, *profile, *prefix, *cpus, *job_nodes;
    struct xc_job_facts job;
    bool json, list_keys, has_job;
    const char **machines; /* all --machine, NULL-terminated */
    size_t nmachines;
    int operands;
    char **operand;
};

static const char help[] =
    "usage: xcloud policy check FILE|-\n"
    "           is it a policy? one line, exit 0; or its first error, exit 1\n"
    "       xcloud policy explain [--policy FILE] [--node NAME] [--machine M] [--json]\n"
    "                             [--partition P] [--job-nodes N] [--profile P] [--prefix "
    "DIR]\n"
    "           every value in force and where it comes from\n"
    "       xcloud policy install [--prefix DIR] [--machine M]... [--node N] FILE\n"
    "           check it, show what changes (also in the plans of captured machines), put it\n"
    "           in place\n"
    "       xcloud policy arm [--prefix DIR]\n"
    "           let the installed policy drain nodes\n"
    "       xcloud policy slurm-conf [--cpus LIST] [--policy FILE] [--node NAME] [--machine "
    "M]\n"
    "           the words for slurm.conf that reserve the housekeeping CPUs\n"
    "       xcloud policy learn [--machine M] [--node NAME] [--name CLASS] [--deadline SECONDS]\n"
    "           a policy that says what this good node is\n";

static struct xc_places places_of(const struct options *o)
{
    struct xc_places places = {.prefix = o->prefix ? o->prefix : "",
                               .slurm_conf = o->prefix ? NULL : getenv("SLURM_CONF")};
    return places;
}

/* The answer is no: the error as it is, so that FILE:LINE:COLUMN starts the line for editors. */
static int not_valid(const struct xc_error *error)
{
    char text[sizeof(struct xc_error)];
    fprintf(stderr, "%s\n", xc_error_text(error, text, sizeof text));
    return 1;
}

/* ---- check ----------------------------------------------------------------------------------- */

static int unknown_in_resume(const char *id, const char *file, struct xc_error *error)
{
    const char *near = xc_check_nearest(id);
    return xc_error_set(error, XC_EINPUT, file,
                        "resume: checks: there is no check \"%.60s\"%s%s%s; xcloud check --list "
                        "lists them",
                        id, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* `checks:` belongs to the checks' own room: every class, and nodes without one. */
static int check_checks(const struct xc_policy *policy, const char *file, struct xc_error *error)
{
    size_t classes = xc_policy_nclasses(policy);
    for (size_t i = 0; i <= classes; i++) {
        cli_autorules struct xc_rules *rules = NULL;
        const char *name = i < classes ? xc_policy_class_name(policy, i) : NULL;
        if (pol_resolve_class(policy, name, &rules, error) < 0 ||
            xc_check_validate(rules, file, error) < 0)
            return -1;
        for (char **id = rules->resume.checks; id && *id; id++)
            if (!xc_check_find(*id))
                return unknown_in_resume(*id, file, error);
    }
    return 0;
}

static int check(struct options *o)
{
    struct xc_error error = {0};
    if (o->list_keys) {
        xc_autotext struct xc_text keys = XC_TEXT_INIT;
        pol_list_keys(&keys);
        return cli_print(&keys);
    }
    if (o->operands != 1)
        return cli_usage("policy", "check takes one file, or - for standard input");
    const char *file = o->operand[0];
    size_t length;
    xc_autofree char *text = cli_read_policy(file, &length, &error);
    if (!text)
        return cli_fail(&error);
    cli_autopolicy struct xc_policy *policy = NULL;
    const char *name = xc_streq(file, "-") ? "standard input" : file;
    if (xc_policy_parse(text, length, name, &policy, &error) < 0 ||
        check_checks(policy, name, &error) < 0)
        return not_valid(&error);
    xc_autotext struct xc_text advice = XC_TEXT_INIT;
    cli_policy_advice(policy, name, &advice);
    if (advice.length)
        fputs(advice.data, stderr);
    size_t classes = xc_policy_nclasses(policy);
    printf("ok: %zu class%s, hash %s\n", classes, classes == 1 ? "" : "es", xc_policy_hash(policy));
    return fflush(stdout) == EOF ? 2 : 0;
}

/* ---- explain --------------------------------------------------------------------------------- */

/* The policy that is meant: --policy, or the live one. NULL policy and 0: there is none. */
static int load(const struct options *o, struct xc_policy **policy, struct xc_policy_source *source,
                struct xc_error *error)
{
    if (o->policy) {
        size_t length;
        xc_autofree char *text = cli_read_policy(o->policy, &length, error);
        source->path = strdup(o->policy);
        return text && source->path ? xc_policy_parse(text, length, o->policy, policy, error) : -1;
    }
    struct xc_places places = places_of(o);
    struct xc_error why = {0};
    int rc = xc_policy_load(&places, policy, source, &why);
    if (rc < 0 && why.code == XC_ENOENT)
        return 0;
    if (rc < 0 && error)
        *error = why;
    return rc;
}

/* Rules on the node that the options name. With --node alone only its name and Slurm's features are
 * known: this machine's product says nothing about another node. */
static int rules_for(const struct options *o, const struct xc_policy *policy, char *name,
                     size_t size, struct xc_rules **rules, struct xc_error *error)
{
    if (!policy) {
        *rules = xc_rules_builtin();
        return *rules ? 0 : xc_error_nomem(error);
    }
    xc_autoroot struct xc_root *root = NULL;
    cli_autonode struct xc_node *node = NULL;
    const char *known = cli_node_name(o->machine, o->node, name, size);
    if (known != name)
        snprintf(name, size, "%s", known);
    bool named = o->node && !o->machine;
    if (!named && cli_open_machine(o->machine, o->node, &root, &node, error) < 0)
        return -1;
    if (named && xc_root_open_dir("/", &root, error) < 0)
        return -1;
    struct xc_slurm_node slurm = {0};
    if (xc_slurm_conf_node(root, o->machine ? NULL : getenv("SLURM_CONF"), name, &slurm, NULL) < 0)
        slurm.features = NULL;
    struct xc_who who = {
        .node = name,
        .features = (const char *const *)slurm.features,
        .product = node ? node->product : NULL,
        .vendor = node ? node->vendor : NULL,
        .environment = node ? xc_environment_name(node->environment) : NULL,
    };
    int rc = xc_policy_resolve(policy, &who, o->has_job ? &o->job : NULL, o->profile, rules, error);
    xc_slurm_node_clear(&slurm);
    return rc;
}

static void explain_json(const struct xc_policy *policy, const struct xc_policy_source *source,
                         const char *node, const struct xc_rules *rules, struct xc_text *out)
{
    struct xc_json json;
    xc_json_begin(&json, out, true);
    xc_json_object(&json, NULL);
    xc_json_string(&json, "policy", source->path);
    xc_json_string(&json, "hash", policy ? xc_policy_hash(policy) : NULL);
    xc_json_bool(&json, "armed", source->armed);
    xc_json_bool(&json, "last_good", source->last_good);
    xc_json_string(&json, "live_error", source->live_error);
    xc_json_string(&json, "node", node);
    xc_json_string(&json, "class", rules->class_name);
    xc_json_array(&json, "values");
    for (size_t i = 0; i < rules->norigins; i++) {
        const struct xc_origin *origin = &rules->origins[i];
        xc_json_object(&json, NULL);
        xc_json_string(&json, "key", origin->key);
        xc_json_string(&json, "value", origin->value);
        xc_json_string(&json, "from", origin->from);
        xc_json_int(&json, "line", origin->line);
        xc_json_end(&json, '}');
    }
    xc_json_end(&json, ']');
    xc_json_end(&json, '}');
    xc_text_add(out, "\n");
}

static void explain_table(const struct xc_policy_source *source, const struct xc_rules *rules,
                          struct xc_text *out)
{
    xc_autotable struct xc_table table;
    xc_table_begin(&table, 4);
    xc_table_row(&table);
    static const char *const heads[] = {"KEY", "VALUE", "FROM", "WHERE"};
    for (size_t i = 0; i < XC_COUNT(heads); i++)
        xc_table_cell(&table, i, "%s", heads[i]);
    for (size_t i = 0; i < rules->norigins; i++) {
        const struct xc_origin *origin = &rules->origins[i];
        xc_table_row(&table);
        xc_table_cell(&table, 0, "%s", origin->key);
        xc_table_cell(&table, 1, "%s", origin->value);
        xc_table_cell(&table, 2, "%s", origin->from);
        if (origin->line)
            xc_table_cell(&table, 3, "%s:%u", source->path, origin->line);
    }
    xc_table_write(&table, out);
}

/* Variables that wait for a job: a person who looks for them finds no row. */
static void explain_waiting(const struct xc_yaml *layer, const struct xc_rules *rules,
                            struct xc_text *out)
{
    const struct xc_yaml *env = xc_yaml_get(layer, "env");
    for (size_t i = 0; env && i < env->nchildren; i++) {
        const struct xc_yaml *entry = &env->children[i], *when = xc_yaml_get(entry, "when");
        bool in_force = false;
        for (size_t j = 0; j < rules->nenv; j++)
            in_force |= rules->env[j].line == entry->key_line;
        if (in_force || !when)
            continue;
        xc_text_addf(out, "not in force: env.%s of line %u, only when", entry->key,
                     entry->key_line);
        for (size_t j = 0; j < when->nchildren; j++) {
            const struct xc_yaml *item = &when->children[j];
            xc_text_addf(out, "%s %s", j ? " and" : "", item->key);
            if (item->text)
                xc_text_addf(out, " %s", item->text);
            for (size_t k = 0; k < item->nchildren; k++)
                xc_text_addf(out, "%s %s", k ? " or" : "", item->children[k].text);
        }
        xc_text_add(out, "\n");
    }
}

static void explain_head(const struct xc_policy *policy, const struct xc_policy_source *source,
                         const char *node, const struct xc_rules *rules, bool live,
                         struct xc_text *out)
{
    if (!policy) {
        xc_text_addf(out, "There is no policy: what is built in holds.\n\n");
        return;
    }
    xc_text_addf(out, "policy  %s, hash %s%s\n", source->path, xc_policy_hash(policy),
                 !live           ? ""
                 : source->armed ? ", armed"
                                 : ", not armed: it drains nothing");
    if (source->last_good)
        xc_text_addf(out, "        the last good copy; the live file does not load: %s\n",
                     source->live_error);
    xc_text_addf(out, "node    %s, %s%s\n\n", node,
                 rules->class_name ? "class " : "no class matches",
                 rules->class_name ? rules->class_name : "");
}

static int explain(struct options *o)
{
    struct xc_error error = {0};
    struct xc_policy_source source = {0};
    cli_autopolicy struct xc_policy *policy = NULL;
    cli_autorules struct xc_rules *rules = NULL;
    char name[256] = "";
    if (o->operands != 0)
        return cli_usage("policy", "explain takes no file; --policy FILE names one");
    if (load(o, &policy, &source, &error) < 0 ||
        rules_for(o, policy, name, sizeof name, &rules, &error) < 0) {
        xc_policy_source_clear(&source);
        return cli_fail(&error);
    }
    xc_autotext struct xc_text out = XC_TEXT_INIT;
    if (o->json) {
        explain_json(policy, &source, name, rules, &out);
    } else {
        explain_head(policy, &source, name, rules, !o->policy, &out);
        explain_table(&source, rules, &out);
        if (policy && rules->class_name)
            explain_waiting(pol_class(policy, rules->class_name), rules, &out);
        if (policy)
            explain_waiting(xc_yaml_get(policy->tree, "defaults"), rules, &out);
    }
    xc_policy_source_clear(&source);
    return cli_print(&out);
}

/* ---- install --------------------------------------------------------------------------------- */

static char *installed_path(const struct options *o)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", o->prefix ? o->prefix : "", XC_POLICY_FILE);
    return xc_text_take(&text);
}

static int put_in_place(const struct options *o, const char *path, const char *text, size_t length,
                        struct xc_error *error)
{
    struct xc_places places = places_of(o);
    xc_autofree char *directory = strdup(path);
    if (!directory)
        return xc_error_nomem(error);
    *strrchr(directory, '/') = '\0';
    umask(022); /* srun and users read it; so must they pass its directories */
    if (xc_make_dirs(directory, 0755, error) < 0 ||
        xc_write_atomic(path, text, length, 0644, error) < 0)
        return -1;
    if (xc_policy_keep(&places, text, length, error) < 0)
        return xc_error_wrap(error, "%s is in place, but its last good copy is not", path);
    return 0;
}

static int install(struct options *o)
{
    struct xc_error error = {0};
    if (o->operands != 1)
        return cli_usage("policy", "install takes one file");
    size_t length;
    xc_autofree char *text = cli_read_policy(o->operand[0], &length, &error);
    xc_autofree char *path = installed_path(o);
    if (!text || !path)
        return cli_fail(&error);
    cli_autopolicy struct xc_policy *policy = NULL;
    if (xc_policy_parse(text, length, o->operand[0], &policy, &error) < 0 ||
        check_checks(policy, o->operand[0], &error) < 0)
        return not_valid(&error);
    if (cli_policy_changes(path, policy, o->machines, o->node, &error) < 0 ||
        put_in_place(o, path, text, length, &error) < 0)
        return cli_fail(&error);

    struct xc_places places = places_of(o);
    struct xc_policy_source source = {0};
    cli_autopolicy struct xc_policy *live = NULL;
    if (xc_policy_load(&places, &live, &source, &error) < 0)
        return cli_fail(&error);
    const char *after = xc_yaml_text(policy->tree, "arm_after");
    unsigned seconds;
    bool arms_itself = after && pol_seconds(after, &seconds);
    printf("installed %s, hash %s\n", path, xc_policy_hash(policy));
    if (source.armed)
        printf("it is armed: it may drain nodes where its mode is enforce\n");
    else
        printf("it binds jobs as its mode says, and only reports what it would drain, until xcloud "
               "policy arm%s%s\n",
               arms_itself ? " or, by itself, after " : "", arms_itself ? after : "");
    if (source.last_good || !xc_streq(source.path, path))
        printf("note: %s is in force, not this file\n", source.path);
    xc_policy_source_clear(&source);
    return fflush(stdout) == EOF ? 2 : 0;
}

static int arm(struct options *o)
{
    struct xc_error error = {0};
    struct xc_places places = places_of(o);
    struct xc_policy_source source = {0};
    cli_autopolicy struct xc_policy *policy = NULL;
    if (o->operands != 0)
        return cli_usage("policy", "arm takes no file: it arms the installed policy");
    if (xc_policy_load(&places, &policy, &source, &error) < 0)
        return cli_fail(&error);
    int rc = 0;
    if (source.last_good) {
        fprintf(stderr, "xcloud: nothing is armed, the live policy does not load: %s\n",
                source.live_error);
        rc = 1;
    } else if (check_checks(policy, source.path, &error) < 0) {
        rc = not_valid(&error); /* the programs would check nothing */
    } else {
        umask(022);
        rc = xc_policy_arm(&places, xc_policy_hash(policy), &error) < 0 ? cli_fail(&error) : 0;
        if (rc == 0)
            printf("armed %s, hash %s: it may drain nodes where its mode is enforce\n", source.path,
                   xc_policy_hash(policy));
    }
    xc_policy_source_clear(&source);
    return rc;
}

/* ---- slurm-conf ------------------------------------------------------------------------------ */

static int policy_rules(const struct options *o, struct xc_rules **rules, struct xc_error *error)
{
    struct xc_policy_source source = {0};
    cli_autopolicy struct xc_policy *policy = NULL;
    char name[256];
    int rc = load(o, &policy, &source, error);
    xc_policy_source_clear(&source);
    return rc < 0 ? -1 : rules_for(o, policy, name, sizeof name, rules, error);
}

/* OS CPUs to reserve: --cpus, or what the policy's housekeeping lists. */
static int wanted_cpus(const struct options *o, const struct xc_node *node, const char *name,
                       struct xc_set *out, struct xc_error *error)
{
    xc_autoset struct xc_set online = XC_SET_EMPTY;
    cli_autorules struct xc_rules *rules = NULL;
    xc_node_online(node, &online);
    struct xc_cpulist list = {.text = (char *)(uintptr_t)o->cpus};
    const char *where = "--cpus";
    bool whole = true;
    if (!o->cpus) {
        if (policy_rules(o, &rules, error) < 0)
            return -1;
        if (rules->cpus.housekeeping != XC_HK_LIST)
            return xc_error_set(error, XC_EINPUT, "cpus.housekeeping",
                                "the policy lists no CPUs for %s (%s%s); --cpus LIST names them",
                                name, rules->class_name ? "class " : "no class matches",
                                rules->class_name ? rules->class_name : "");
        list = rules->cpus.housekeeping_list;
        where = "cpus.housekeeping";
        whole = rules->cpus.whole_cores;
    } else if (pol_cpulist_problem(o->cpus)) {
        return xc_error_set(error, XC_EINPUT, where, "\"%.80s\": %s; expected CPUs as 0-7,56-63",
                            o->cpus, pol_cpulist_problem(o->cpus));
    }
    if (xc_cpulist_resolve(&list, &online, out, where, error) < 0)
        return -1;
    if (!xc_set_subset(out, &online))
        return xc_error_set(error, XC_EINPUT, where,
                            "%s names CPUs that this machine does not have", list.text);
    if (whole)
        xc_node_whole_cores(node, out);
    return out->failed ? xc_error_nomem(error) : 0;
}

static int slurm_conf(struct options *o)
{
    struct xc_error error = {0};
    cli_autonode struct xc_node *node = NULL;
    xc_autoset struct xc_set os = XC_SET_EMPTY, ids = XC_SET_EMPTY;
    char buffer[256];
    if (o->operands != 0)
        return cli_usage("policy", "slurm-conf takes no file");
    const char *name = cli_node_name(o->machine, o->node, buffer, sizeof buffer);
    if (cli_open_machine(o->machine, o->node, NULL, &node, &error) < 0 ||
        wanted_cpus(o, node, name, &os, &error) < 0 ||
        xc_node_abstract_ids(node, &os, &ids, &error) < 0)
        return cli_fail(&error);
    xc_autofree char *list = xc_set_format(&ids), *cpus = xc_set_format(&os);
    if (!list || !cpus)
        return cli_fail(&(struct xc_error){.code = XC_ENOMEM, .message = "out of memory"});
    fprintf(stderr, "OS CPUs %s; add to the NodeName line of %s:\n", cpus, name);
    printf("CpuSpecList=%s\n", list);
    return fflush(stdout) == EOF ? 2 : 0;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(struct options *o);
} subcommands[] = {
    {"check", check}, {"explain", explain},       {"install", install},
    {"arm", arm},     {"slurm-conf", slurm_conf},
};

/* What the options say of a job, and the last of several machines. */
static int settle(struct options *o)
{
    long number = 0;
    if (o->job_nodes && !xc_to_long(o->job_nodes, 1, 1000000, &number))
        return cli_usage("policy", "--job-nodes is \"%.40s\"; expected a number", o->job_nodes);
    o->job.job_nodes = (unsigned)number;
    o->has_job = o->job_nodes || o->job.partition;
    o->machine = o->nmachines > 0 ? o->machines[o->nmachines - 1] : NULL;
    return 0;
}

int cli_policy(int argc, char **argv)
{
    if (argc < 2) {
        fputs(help, stderr);
        return 2;
    }
    const char *name = argv[1];
    if (xc_streq(name, "--help") || xc_streq(name, "-h") || xc_streq(name, "help")) {
        fputs(help, stdout);
        return 0;
    }
    if (xc_streq(name, "learn"))
        return cli_learn(argc - 1, argv + 1);
    xc_autofree const char **machines = calloc((size_t)argc + 1, sizeof *machines);
    if (!machines)
        return 2;
    struct options o = {.machines = machines};
    const struct cli_option options[] = {{"policy", .text = &o.policy},
                                         {"node", .text = &o.node},
                                         {"machine", .text = machines, .count = &o.nmachines},
                                         {"json", .flag = &o.json},
                                         {"partition", .text = &o.job.partition},
                                         {"job-nodes", .text = &o.job_nodes},
                                         {"profile", .text = &o.profile},
                                         {"prefix", .text = &o.prefix},
                                         {"cpus", .text = &o.cpus},
                                         {"list-keys", .flag = &o.list_keys},
                                         {0}};
    int rc = cli_options("policy", argc - 1, argv + 1, options, help);
    if (rc != CLI_GO || (rc = settle(&o)) != 0)
        return rc;
    o.operands = argc - 1 - optind;
    o.operand = argv + 1 + optind;
    for (size_t i = 0; i < XC_COUNT(subcommands); i++)
        if (xc_streq(subcommands[i].name, name))
            return subcommands[i].run(&o);
    const char *names[XC_COUNT(subcommands) + 2] = {"learn"};
    for (size_t i = 0; i < XC_COUNT(subcommands); i++)
        names[i + 1] = subcommands[i].name;
    const char *near = xc_nearest(name, names);
    return cli_usage("policy", "\"%.40s\" is no subcommand%s%s%s", name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}
