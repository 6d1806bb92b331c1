/* policy: what does the site want?
 *
 * Reads the site's YAML (grammar: xcloud-policy(5)), strictly: one error with file:line:column, what
 * was expected and the nearest known word. Then answers for one node and one job: struct xc_rules.
 * What is under "finding it" touches the system, the slurm.conf reader reads below a root; the rest is
 * pure.
 *
 * Links libyaml and libc. It runs inside slurmstepd.
 */
#ifndef XCLOUD_POLICY_H
#define XCLOUD_POLICY_H

#include <xcloud/base.h>
#include <xcloud/words.h>

/* ---- values ------------------------------------------------------------------------------------ */

enum xc_mode {
    XC_MODE_OBSERVE, /* report what would be bound and drained; nothing is set. Absent = observe */
    XC_MODE_BIND,    /* bind, never drain */
    XC_MODE_ENFORCE  /* bind and drain */
};
enum xc_default { XC_DEFAULT_AUTO, XC_DEFAULT_ASK, XC_DEFAULT_NEVER };
enum xc_on_error { XC_ON_ERROR_WARN, XC_ON_ERROR_REFUSE };
enum xc_on_fail { XC_FAIL_IGNORE, XC_FAIL_WARN, XC_FAIL_REFUSE, XC_FAIL_DRAIN };
enum xc_env_set { XC_ENV_DEFAULT, XC_ENV_FORCE, XC_ENV_FORBID, XC_ENV_WARN };
enum xc_link { XC_LINK_ANY, XC_LINK_INFINIBAND, XC_LINK_ETHERNET };
enum xc_housekeeping {
    XC_HK_NONE,  /* no housekeeping CPUs */
    XC_HK_SLURM, /* the CPUs that slurm.conf's CpuSpecList/CoreSpecCount reserve on the node */
    XC_HK_LIST
};
enum xc_priority { XC_PRIORITY_AUTO, XC_PRIORITY_OFF, XC_PRIORITY_LIST };
enum xc_unmatched { XC_UNMATCHED_WARN, XC_UNMATCHED_IGNORE };
enum xc_topo_over { XC_TOPO_REPLACE, XC_TOPO_KEEP };

/* What `cpus: host:` keeps on the housekeeping CPUs. */
enum xc_host_what { XC_HOST_SERVICES = 1, XC_HOST_IRQS = 2, XC_HOST_WORKQUEUES = 4 };

/* A CPU list as the policy writes it: the kernel's notation, "all", and a leading "!" (all but).
 * It becomes a set only when a machine's CPUs are known. */
struct xc_cpulist {
    char *text; /* as written, NULL: none */
};
/* online: what "all" means. where: for the error. */
int xc_cpulist_resolve(const struct xc_cpulist *list, const struct xc_set *online,
                       struct xc_set *out, const char *where, struct xc_error *error);

/* ---- the rules in force for one node and one job -------------------------------------------------- */

/* One environment rule whose `when:` holds. value may use ${cores} ${gpus} ${nics} ${local_rank};
 * plan/ fills them in. NULL value with XC_ENV_FORBID. */
struct xc_env_rule {
    char *name, *value, *evidence; /* evidence NULL: none given */
    enum xc_env_set set;
    unsigned line;
};

/* One entry of `topo: map:`: a switch that the machine does not show. */
struct xc_topo_group {
    int numa;            /* OS number of the NUMA node that it is on */
    unsigned gen;        /* PCIe generation of its links, 0: as its devices say */
    char **gpus, **nics; /* PCI addresses; GPUs also by number, NICs by name; NULL: none */
    unsigned line;
};

/* One `checks:` entry; the values other than on_fail belong to the check's own room. */
struct xc_check_rule {
    char *id;
    enum xc_on_fail on_fail;
    char **keys, **values; /* nkeys parameters as text ("deepest", "C6") */
    size_t nkeys;
    unsigned line;
};

/* A number of nodes, a share of all of them, or both, of which the smaller counts. 0: not said. */
struct xc_limit {
    unsigned nodes, percent;
};

/* Where a value in force comes from, for `xcloud policy explain`. line 0: built in. */
struct xc_origin {
    char *key;   /* "bind.memory", "env.NCCL_DEBUG" */
    char *value; /* as text */
    char *from;  /* "defaults", "class hgx-h100", "jobs[0]", "profile big-messages", "built in" */
    unsigned line;
};

struct xc_rules {
    enum xc_mode mode;
    char *class_name;    /* NULL: no class matched */
    bool unmatched_warn; /* no class matched and the policy wants to hear of it */
    bool checks_skip;    /* jobs: checks: skip */

    struct {
        enum xc_housekeeping housekeeping;
        struct xc_cpulist housekeeping_list;
        bool whole_cores; /* a sibling of a housekeeping CPU is housekeeping; default true */
        enum xc_priority priority;
        struct xc_cpulist priority_list;
        unsigned host; /* XC_HOST_* */
    } cpus;
    struct {
        enum xc_default when;
        enum xc_gpus gpus;
        enum xc_smt smt;
        enum xc_memory memory;
        bool torchrun;
        unsigned min_share; /* whole cores a rank gets at least; 0: no limit */
        enum xc_on_error on_error;
        unsigned users_may; /* XC_MAY_* */
    } bind;
    struct {
        bool has_gpus, has_nics;
        unsigned gpu_count, nic_count, numa_nodes; /* 0: not said */
        uint16_t gpu_vendor, gpu_device;           /* 0: not said */
        unsigned nic_rate_mbps;                    /* 0: not said */
        enum xc_link nic_link;
    } expect;
    struct {
        /* The compute rails: a NIC is one when every selector that is given matches. */
        char **pci;    /* "15b3:1021" or "15b3:*"; NULL: any */
        char **names;  /* RDMA names with * and ?; NULL: any */
        char **not_;   /* RDMA names, netdevs or BDFs that are none */
        enum xc_link link;
        char **export_; /* variables that get the job-wide or the rank's list; NULL: none */
    } nics;
    struct {
        char *file; /* NULL: not said */
        unsigned line; /* of `file:` */
        bool none;  /* `file: none`: this class must not have one */
        enum xc_topo_over over_image;
        enum xc_on_fail proof; /* IGNORE, WARN or REFUSE */
        struct xc_topo_group *map; /* what the machine's PCI does not say; NULL: nothing */
        size_t nmap;
    } topo;
    struct xc_env_rule *env;
    size_t nenv;
    struct xc_check_rule *checks;
    size_t nchecks;
    char *nccl_version; /* ">= 2.27, != 2.28.3" or NULL */
    struct {
        unsigned deadline_s; /* of the prolog and the epilog, for all that they read */
        unsigned jitter_s;   /* before a drain, at most */
        char *textfile;      /* Prometheus' of the last health run; NULL: none */
    } programs;
    /* Tests: programs look at the machine in this directory; %n is the node's name. NULL: at "/". */
    char *checks_root;
    struct {
        struct xc_limit cluster, class_, job;
        unsigned window_s;
        char *directory; /* shared by all nodes, for slots; NULL: nodes are counted */
    } breaker;
    struct {
        char **checks; /* those that may bring a node back; NULL: off */
        unsigned after, quiet_s; /* clean runs; seconds without a failure */
        unsigned lemon, lemon_s; /* as many drains within: it stays; 0: no limit */
    } resume;
    char **class_nodes; /* host lists of the class's match: nodes; NULL: it has none */
    struct xc_origin *origins;
    size_t norigins;
};
void xc_rules_free(struct xc_rules *rules);

/* ---- a policy ------------------------------------------------------------------------------------ */

/* Who the node is: what `match:` looks at. Any member may be NULL. */
struct xc_who {
    const char *node;                /* Slurm's node name */
    const char *const *features;     /* Slurm features, NULL-terminated */
    const char *product, *vendor;    /* DMI */
    const char *environment;         /* "bare", "vm", "pod" */
};
/* What the job is: what `jobs:` and `when:` look at. Any pointer may be NULL, 0 is unknown. */
struct xc_job_facts {
    const char *partition, *account, *qos, *reservation, *user, *job_name;
    unsigned job_nodes;
};

struct xc_policy; /* opaque */

/* text need not be NUL-terminated; name is the file's name in errors. */
int xc_policy_parse(const char *text, size_t length, const char *name, struct xc_policy **out,
                    struct xc_error *error);
void xc_policy_free(struct xc_policy *policy);
/* Hash of the file's bytes: 16 hex digits; the same that the plugin computes in srun. */
const char *xc_policy_hash(const struct xc_policy *policy);
enum xc_mode xc_policy_mode(const struct xc_policy *policy); /* the top-level mode */
size_t xc_policy_nclasses(const struct xc_policy *policy);
const char *xc_policy_class_name(const struct xc_policy *policy, size_t index);

/* The rules for a node and, when job is not NULL, a job; profile NULL or "": none. An unknown profile
 * is XC_EINPUT with the known ones. */
int xc_policy_resolve(const struct xc_policy *policy, const struct xc_who *who,
                      const struct xc_job_facts *job, const char *profile, struct xc_rules **out,
                      struct xc_error *error);
/* The rules of no policy at all: mode observe, everything built in. Never NULL but without memory. */
struct xc_rules *xc_rules_builtin(void);

/* ---- finding it ----------------------------------------------------------------------------------- */

#define XC_POLICY_FILE      "/etc/xcloud/policy.yaml"
#define XC_POLICY_IN_SLURM  "xcloud-policy.yaml" /* its name in the directory of slurm.conf */
#define XC_POLICY_LIMIT     (1u << 20)
#define XC_STATE_DIR        "/var/lib/xcloud" /* last good copy, armed hash; diskless: XC_RUN_DIR */
#define XC_RUN_DIR          "/run/xcloud"

/* Where the parts are: "" or the root of a machine (plugstack `machine=`), put in front of the
 * /etc, /var and /run paths above. */
struct xc_places {
    const char *prefix;     /* "" for the live machine */
    const char *policy;     /* plugstack or command line `policy=`: an absolute path, or NULL */
    const char *slurm_conf; /* SLURM_CONF, or NULL: /etc/slurm/slurm.conf. Its directory is searched */
};

struct xc_policy_source {
    char *path;       /* the file that was read */
    char *live_error; /* why the live file does not load, when `last_good`; else NULL */
    bool last_good;   /* it is the last good copy: bind jobs, report verdicts, drain nothing */
    bool armed;       /* its hash was armed (or arm_after has passed): it may drain */
};
void xc_policy_source_clear(struct xc_policy_source *source);

/* Looks in places->policy, XC_POLICY_FILE, the directory of slurm.conf, in this order; the first
 * that exists counts. When it does not load, the last good copy is taken and source says why. -1:
 * nothing can be used; XC_ENOENT when there is no policy at all. */
int xc_policy_load(const struct xc_places *places, struct xc_policy **out,
                   struct xc_policy_source *source, struct xc_error *error);
/* The bytes of the live file's hash alone (srun's side, no parsing); 17 bytes into hash. */
int xc_policy_live_hash(const struct xc_places *places, char hash[17], struct xc_error *error);
/* Keeps text as the last good copy (root alone; atomic). */
int xc_policy_keep(const struct xc_places *places, const char *text, size_t length,
                   struct xc_error *error);
int xc_policy_arm(const struct xc_places *places, const char *hash, struct xc_error *error);
/* Whether a kill switch is thrown: returns its path (static) or NULL. */
const char *xc_policy_disabled(const struct xc_places *places);

/* ---- slurm.conf ------------------------------------------------------------------------------------ */

/* What a NodeName line says about one node; abstract CPU ids as Slurm counts them (socket, core,
 * thread in this order), turned into OS CPUs by node/. */
struct xc_slurm_node {
    bool found;
    struct xc_set cpu_spec_list; /* abstract ids */
    unsigned core_spec_count;
    bool spec_cores_first; /* SlurmdParameters or SchedulerParameters spec_cores_first */
    unsigned sockets, cores_per_socket, threads_per_core, cpus; /* 0: not said */
    char **features;
    unsigned line; /* of the NodeName that said it */
};
void xc_slurm_node_clear(struct xc_slurm_node *node);
/* conf NULL: SLURM_CONF's default and the configless cache. node_name must be given. */
int xc_slurm_conf_node(struct xc_root *root, const char *conf, const char *node_name,
                       struct xc_slurm_node *out, struct xc_error *error);

#endif
