/* nccl: what NCCL's variables are, where they come from, and which are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/nccl.h>

/* ---- the table and releases --------------------------------------------------------------------------- */

static void the_table_is_in_order_and_found(void **state)
{
    (void)state;
    const struct xc_nccl_variable *table;
    size_t count = xc_nccl_variables(&table);
    assert_true(count > 250);
    for (size_t i = 1; i < count; i++)
        assert_true(strcmp(table[i - 1].name, table[i].name) < 0);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(xc_nccl_find(table[i].name), &table[i]);
        assert_true(!table[i].gone || table[i].gone > table[i].since);
    }
    assert_null(xc_nccl_find("NCCL_"));
    assert_int_equal(xc_nccl_find("NCCL_MNNVL_ENABLE")->since, 22105);
    assert_int_equal(xc_nccl_find("NCCL_MNNVL")->gone, 22105);
}

static void releases_are_read(void **state)
{
    (void)state;
    char text[XC_NCCL_RELEASE_TEXT];
    assert_int_equal(xc_nccl_release("2.28.9"), 22809);
    assert_int_equal(xc_nccl_release("2.28.9-1"), 22809);
    assert_int_equal(xc_nccl_release("2.28"), 22800);
    assert_int_equal(xc_nccl_release("2"), 0);
    assert_int_equal(xc_nccl_release(""), 0);
    assert_int_equal(xc_nccl_release("2.28.x"), 0);
    assert_int_equal(xc_nccl_release("99999999999999.1"), 0);
    assert_string_equal(xc_nccl_release_text(22809, text), "2.28.9");
    static const char library[] = "\0ELF NCCL version %s\0 NCCL version 2.28.9+cuda13.0\0";
    assert_int_equal(xc_nccl_library_release(library, sizeof library), 22809);
    for (size_t i = 0; i < sizeof library - 14;
         i++) /* cut anywhere before it is whole: none, or a part */
        assert_true(xc_nccl_library_release(library, i) <= 22809);
}

static void a_rule_allows_or_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        unsigned release;
        bool allows;
    } rows[] = {
        {">= 2.27, != 2.28.3", 22706, true},
        {">= 2.27, != 2.28.3", 22803, false},
        {">= 2.27, != 2.28.3", 22605, false},
        {"= 2.27", 22706, true},
        {"2.27", 22802, false},
        {"> 2.27", 22706, false},
        {"> 2.27", 22800, true},
        {"<= 2.27", 22707, true},
        {"<2.27.6", 22705, true},
        {"<2.27.6", 22706, false},
    };
    for (size_t i = 0; i < XC_COUNT(rows); i++) {
        bool allows;
        assert_int_equal(xc_nccl_allows(rows[i].rule, rows[i].release, &allows, NULL), 0);
        if (allows != rows[i].allows)
            fail_msg("%s with %u", rows[i].rule, rows[i].release);
    }
    static const char *const wrong[] = {"",      ">",         "~ 2", "=> 2.27",
                                        "2.27,", "2.27 2.28", "! 2", ">=2.x"};
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        bool allows;
        struct xc_error error = {0};
        if (xc_nccl_allows(wrong[i], 22809, &allows, &error) == 0)
            fail_msg("%s was taken", wrong[i]);
        assert_int_equal(error.code, XC_EINPUT);
    }
}

/* ---- the library -------------------------------------------------------------------------------------------- */

struct places {
    char dir[64], ld[256], prefix[256], path[256];
};

static int from_places(void *ctx, const char *name, char *buffer, size_t size)
{
    const struct places *places = ctx;
    const char *value = xc_streq(name, "LD_LIBRARY_PATH") ? places->ld
                        : xc_streq(name, "VIRTUAL_ENV")   ? places->prefix
                        : xc_streq(name, "PATH")          ? places->path
                                                          : "";
    return *value ? (snprintf(buffer, size, "%s", value), 0) : -1;
}

static void put(const struct places *places, const char *name, const char *bytes, size_t length)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", places->dir, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(xc_make_dirs(path, 0755, NULL), 0);
    *slash = '/';
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

/* The release that is found, as text; "-" when there is no library of these places. */
static const char *found(struct places *places, bool thorough)
{
    static char text[XC_NCCL_RELEASE_TEXT];
    struct xc_nccl_library library;
    if (!xc_nccl_library_find(from_places, places, thorough, &library) ||
        !xc_starts(library.path, places->dir))
        return "-";
    return xc_nccl_release_text(library.release, text);
}

static void make_places(struct places *places)
{
    *places = (struct places){.dir = "/tmp/xcloud-nccl.XXXXXX"};
    assert_non_null(mkdtemp(places->dir));
    snprintf(places->ld, sizeof places->ld, "::relative:%s/none:%s/ld", places->dir, places->dir);
    snprintf(places->prefix, sizeof places->prefix, "%s/venv", places->dir);
}

static void remove_places(const struct places *places)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", places->dir);
    assert_int_equal(system(command), 0);
}

#define WHEELS "venv/lib/python3.12/site-packages/"
static void the_library_says_its_release_by_name_package_or_bytes(void **state)
{
    (void)state;
    struct places places;
    char from[400], to[400];
    static char large[3 << 20];
    make_places(&places);
    assert_string_equal(found(&places, true), "-");
    put(&places, WHEELS "nvidia/nccl/lib/libnccl.so.2", "ELF", 3);
    assert_string_equal(found(&places, true), "0.0.0");
    put(&places, WHEELS "nvidia_nccl_cu12-2.9.7.dist-info/METADATA", "x", 1);
    put(&places, WHEELS "nvidia_nccl_cu12-2.27.5.dist-info/METADATA", "x", 1);
    assert_string_equal(found(&places, false), "2.27.5");
    /* LD_LIBRARY_PATH wins; a link's name says it */
    put(&places, "ld/libnccl.so.2.28.9", "ELF", 3);
    snprintf(from, sizeof from, "%s/ld/libnccl.so.2", places.dir);
    assert_int_equal(symlink("libnccl.so.2.28.9", from), 0);
    assert_string_equal(found(&places, false), "2.28.9");
    /* a name that says nothing: the words are somewhere, here across two pieces of what is read */
    assert_int_equal(unlink(from), 0);
    for (size_t cut = 0; cut < 40; cut += 3) {
        memset(large, 'x', sizeof large);
        memcpy(large + (1 << 20) - cut, "NCCL version 2.26.2+cuda12.4", 29);
        put(&places, "ld/libnccl.so.2", large, sizeof large);
        assert_string_equal(found(&places, false), "0.0.0");
        assert_string_equal(found(&places, true), "2.26.2");
    }
    /* the first python3 of PATH, and what is beside it */
    places.ld[0] = places.prefix[0] = '\0';
    snprintf(places.path, sizeof places.path, "bin:%s/venv/bin", places.dir);
    put(&places, "venv/bin/python3", "#!", 2);
    snprintf(to, sizeof to, "%s/venv/bin/python3", places.dir);
    assert_int_equal(chmod(to, 0755), 0);
    assert_string_equal(found(&places, false), "2.27.5");
    remove_places(&places);
}

static void what_is_no_file_is_no_library_and_holds_nobody_up(void **state)
{
    (void)state;
    struct places places;
    char path[400];
    make_places(&places);
    put(&places, "ld/x", "x", 1);
    snprintf(path, sizeof path, "%s/ld/libnccl.so.2", places.dir);
    assert_int_equal(mkfifo(path, 0666), 0);
    alarm(20);
    assert_string_equal(found(&places, true), "-");
    assert_int_equal(xc_nccl_library_of(path, true), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_string_equal(found(&places, true), "-");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path, path), 0);
    assert_string_equal(found(&places, true), "-");
    memset(places.ld, '/', sizeof places.ld - 1);
    memset(places.path, ':', sizeof places.path - 1);
    assert_string_equal(found(&places, true), "-");
    alarm(0);
    remove_places(&places);
}

/* ---- values --------------------------------------------------------------------------------------------- */

static void the_first_place_wins_and_the_others_are_told(void **state)
{
    (void)state;
    struct xc_nccl_values values = {0};
    static const char file[] = "# comment\n NCCL_X=not trimmed\nNCCL_SOCKET_IFNAME==eth0\n"
                               "NCCL_DEBUG=INFO\nPATH=/bin\nnothing\nUCX_TLS=rc";
    xc_nccl_add(&values, "NCCL_DEBUG", "WARN", "environment");
    xc_nccl_add(&values, "HOME", "/root", "environment");
    xc_nccl_add_file(&values, file, sizeof file - 1, "/etc/nccl.conf");
    xc_nccl_sort(&values);
    assert_false(values.failed);
    assert_int_equal(values.count, 3);
    assert_string_equal(xc_nccl_get(&values, "NCCL_DEBUG")->value, "WARN");
    assert_string_equal(xc_nccl_get(&values, "NCCL_DEBUG")->behind,
                        "/etc/nccl.conf line 4 says INFO");
    assert_string_equal(xc_nccl_get(&values, "NCCL_SOCKET_IFNAME")->value, "=eth0");
    assert_string_equal(xc_nccl_get(&values, "UCX_TLS")->from, "/etc/nccl.conf line 7");
    assert_null(xc_nccl_get(&values, "PATH"));
    xc_nccl_values_clear(&values);
}

static void nccl_conf_file_stands_before_the_homes_file(void **state)
{
    (void)state;
    struct places places;
    char conf[400], fifo[400];
    make_places(&places);
    put(&places, "conf", "NCCL_DEBUG=INFO\nNCCL_NTHREADS=64\n", 33);
    put(&places, ".nccl.conf", "NCCL_DEBUG=WARN\nNCCL_ALGO=Ring\n", 32);
    snprintf(conf, sizeof conf, "%s/conf", places.dir);
    snprintf(fifo, sizeof fifo, "%s/fifo", places.dir);
    assert_int_equal(mkfifo(fifo, 0666), 0);
    struct xc_nccl_values values = {0};
    xc_nccl_add(&values, "NCCL_NTHREADS", "128", "environment");
    xc_nccl_add_conf(&values, conf, places.dir); /* named: the home's is not looked at */
    assert_string_equal(xc_nccl_get(&values, "NCCL_DEBUG")->value, "INFO");
    assert_null(xc_nccl_get(&values, "NCCL_ALGO"));
    assert_string_equal(xc_nccl_get(&values, "NCCL_NTHREADS")->value, "128");
    assert_non_null(strstr(xc_nccl_get(&values, "NCCL_NTHREADS")->behind, "/conf line 2 says 64"));
    xc_nccl_values_clear(&values);
    xc_nccl_add_conf(&values, NULL, places.dir);
    assert_string_equal(xc_nccl_get(&values, "NCCL_ALGO")->value, "Ring");
    xc_nccl_values_clear(&values);
    alarm(20);
    xc_nccl_add_conf(&values, fifo, places.dir);
    assert_null(xc_nccl_get(&values, "NCCL_ALGO"));
    alarm(0);
    xc_nccl_values_clear(&values);
    remove_places(&places);
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
    (void)state;
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_nccl_add(&values, "NCCL_\033[2J", "a\nb\033", "environment");
    struct xc_nccl_input input = {.values = &values};
    assert_int_equal(xc_nccl_lint(&input, &findings, NULL), 0);
    xc_nccl_text(&values, &text);
    xc_nccl_findings_text(&findings, &text);
    assert_null(strchr(text.data, '\033'));
    assert_non_null(strstr(text.data, "=a?b?"));
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
}

/* ---- lint ------------------------------------------------------------------------------------------------- */

/* A node with mlx5_0, mlx5_1 and mlx5_10. */
static const struct xc_nic nics[] = {
    {.rdma = "mlx5_0", .port = 1}, {.rdma = "mlx5_1", .port = 1}, {.rdma = "mlx5_10", .port = 1}};
static const struct xc_node node = {.nnics = 3, .nics = nics};

struct row {
    const char *set[3]; /* NAME=VALUE */
    unsigned release;
    const char *says; /* a part of the one finding of the first; NULL: nothing is found */
};

static const struct row rows[] = {
    {{"NCCL_DEBUG=WARN"}, 22809, NULL},
    {{"NCCL_DEBUG=INFO"}, 22809, "CHECK NCCL_DEBUG: for finding faults"},
    {{"NCCL_DEBUG_SUBSYS=NET"}, 22809, "CHECK NCCL_DEBUG_SUBSYS"},
    {{"NCCL_DEBGU=WARN"}, 22809, "did you mean NCCL_DEBUG?"},
    {{"NCCL_IBEXT_DISABLE=1"}, 22809, NULL}, /* a plugin's */
    {{"NCCL_VERSION=2.21"}, 22809, NULL},    /* an image's */
    {{"NCCL_BLOCKING_WAIT=1"}, 0, "TORCH_NCCL_BLOCKING_WAIT"},
    {{"NCCL_MNNVL=1"}, 22809, "no longer reads it since 2.21.5"},
    {{"NCCL_MNNVL=1"}, 22005, NULL},
    {{"NCCL_PROXY_CPUSET=8"}, 22706, "does not know it yet; it came with 2.28.3"},
    {{"NCCL_IB_TIMEOUT=22"}, 22809, NULL},
    {{"NCCL_IB_TIMEOUT=0x16"}, 22809, NULL},
    {{"NCCL_IB_TIMEOUT=22s"}, 22809, "\"22s\" is no whole number: NCCL reads 22"},
    {{"NCCL_ALGO=Ring"}, 22809, "CHECK NCCL_ALGO"},
    {{"NCCL_ALGO=Rings"}, 22809, "\"Rings\" is none of its words"},
    {{"NCCL_ALGO=^nvls,PAT"}, 22809, "CHECK NCCL_ALGO"},
    {{"NCCL_ALGO=allreduce:Tree;Broadcast:^NVLS"}, 22809, "CHECK NCCL_ALGO"},
    {{"NCCL_ALGO=AllReduces:Tree"}, 22809, "\"AllReduces\" is none of its words"},
    {{"NCCL_PROTO=LL,LL129"}, 22809, "\"LL129\" is none of its words"},
    {{"NCCL_PROTO="}, 22809, "CHECK NCCL_PROTO"},
    {{"NCCL_MIN_NCHANNELS=32"}, 22809, "CHECK NCCL_MIN_NCHANNELS"},
    {{"NCCL_P2P_DISABLE=0"}, 22809, NULL},
    {{"NCCL_P2P_DISABLE=1"}, 22809, "no GPU reads another directly"},
    {{"NCCL_MNNVL_ENABLE=1", "NCCL_CUMEM_ENABLE=0"},
     22809,
     "takes away what multi-node NVLink needs"},
    {{"NCCL_IB_DISABLE=1"}, 22809, "sockets instead"},
    {{"NCCL_IB_HCA=mlx5_0", "NCCL_IB_DISABLE=1"}, 22809, "NCCL_IB_DISABLE=1"},
    {{"NCCL_NET_GDR_LEVEL=5"}, 22809, "meaning has changed"},
    {{"NCCL_NET_GDR_LEVEL=PXB"}, 22809, NULL},
    {{"NCCL_IB_SPLIT_DATA_ON_QPS=1"}, 22809, "does nothing with one QP"},
    {{"NCCL_IB_SPLIT_DATA_ON_QPS=1", "NCCL_IB_QPS_PER_CONNECTION=4"}, 22809, NULL},
    {{"NCCL_IGNORE_CPU_AFFINITY=1"}, 22809, "leave the CPUs"},
    {{"NCCL_PROXY_CPUSET=8-15"}, 22809, "reads the first number alone"},
    {{"NCCL_PROXY_CPUSET=8,9"}, 22809, NULL},
    {{"NCCL_PROXY_CPUSET=8,3"}, 22809, "CPU 3 is none of this task's"},
    {{"NCCL_IB_HCA=mlx5_1"}, 22809, "is a prefix: it takes 2 adapters"},
    {{"NCCL_IB_HCA=^mlx5_1"}, 22809, "is a prefix: it takes 2 adapters"},
    {{"NCCL_IB_HCA==mlx5_1"}, 22809, NULL},
    {{"NCCL_IB_HCA=mlx5"}, 22809, NULL}, /* a prefix that is meant as one */
    {{"NCCL_IB_HCA==mlx5_7:1"}, 22809, "this node has no adapter mlx5_7"},
    {{"NCCL_IB_HCA=^mlx5_7"}, 22809, NULL},
    {{"NCCL_IB_HCA==mlx5_1:1,mlx5_0:1"}, 22809, "not in the order of the rails at mlx5_0"},
    {{"NCCL_TOPO_FILE=/x"}, 22809, NULL},
};

static void play(const struct row *row)
{
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_autoset struct xc_set cpus = XC_SET_EMPTY;
    xc_set_add_range(&cpus, 8, 15);
    for (size_t i = 0; i < XC_COUNT(row->set) && row->set[i]; i++) {
        char *pair = strdup(row->set[i]), *equals = strchr(pair, '=');
        *equals = '\0';
        xc_nccl_add(&values, pair, equals + 1, "environment");
        free(pair);
    }
    struct xc_nccl_input input = {
        .values = &values, .release = row->release, .node = &node, .cpus = &cpus};
    assert_int_equal(xc_nccl_lint(&input, &findings, NULL), 0);
    size_t first = 0;
    for (size_t i = 0; i < findings.count; i++)
        first += xc_streq(findings.list[i].name, values.list[0].name);
    xc_nccl_findings_text(&findings, &text);
    if (first != (row->says != NULL) || (row->says && !strstr(text.data, row->says)))
        fail_msg("%s: found:\n%s", row->set[0], text.data ? text.data : "");
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
}

static void each_trap_is_named_and_nothing_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < XC_COUNT(rows); i++)
        play(&rows[i]);
}

static void what_the_policy_says_is_held_against_it(void **state)
{
    (void)state;
    struct xc_nccl_values values = {0};
    struct xc_nccl_findings findings = {0};
    struct xc_rules *rules = xc_rules_builtin();
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    rules->topo.none = true;
    rules->nccl_version = strdup(">= 2.27, != 2.28.3");
    xc_nccl_add(&values, "NCCL_TOPO_FILE", "/x", "environment");
    struct xc_nccl_input input = {.values = &values, .release = 22803, .rules = rules};
    assert_int_equal(xc_nccl_lint(&input, &findings, NULL), 0);
    xc_nccl_findings_text(&findings, &text);
    assert_non_null(
        strstr(text.data, "the library is 2.28.3; the policy wants >= 2.27, != 2.28.3"));
    assert_non_null(strstr(text.data, "must have none"));
    xc_nccl_findings_clear(&findings);
    xc_nccl_values_clear(&values);
    xc_rules_free(rules);
}

/* ---- faults that others have reported in public ------------------------------------------------------------ */

/* A file forgotten in /etc/nccl.conf: "Dev not found" in every job, and nothing in its environment. */
static void nccl_1008_a_topology_file_left_in_nccl_conf(void **state)
{
    (void)state;
    struct xc_nccl_values values = {0};
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    static const char file[] = "NCCL_TOPO_FILE=/root/old.xml\nNCCL_GRAPH_FILE=/root/graph.xml\n";
    xc_nccl_add(&values, "NCCL_TOPO_FILE", "/etc/nccl/topo.xml", "the job");
    xc_nccl_add_file(&values, file, sizeof file - 1, "/etc/nccl.conf");
    xc_nccl_text(&values, &text);
    assert_string_equal(text.data,
                        "NCCL_TOPO_FILE=/etc/nccl/topo.xml  (the job; /etc/nccl.conf line 1 "
                        "says /root/old.xml)\n"
                        "NCCL_GRAPH_FILE=/root/graph.xml  (/etc/nccl.conf line 2)\n");
    xc_nccl_values_clear(&values);
}

/* Lists of adapters in different orders on two nodes: ibv_modify_qp ends with 110. */
static void ainode_89_adapters_in_another_order(void **state)
{
    (void)state;
    play(&(struct row){
        {"NCCL_IB_HCA==mlx5_10,mlx5_0,mlx5_1"}, 22809, "nodes pair adapters by position"});
}

static void any_bytes_in_a_file_are_survived(void **state)
{
    (void)state;
    uint64_t seed = 42;
    for (int round = 0; round < 2000; round++) {
        char text[200];
        struct xc_nccl_values values = {0};
        struct xc_nccl_findings findings = {0};
        for (size_t i = 0; i < sizeof text; i++) {
            static const char often[] = "NCCL_=\n#,^:-19";
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = seed >> 63 ? (char)(seed >> 40) : often[(seed >> 33) % (sizeof often - 1)];
        }
        memcpy(text, "NCCL_IB_HCA=", 12);
        xc_nccl_add_file(&values, text, sizeof text, "file");
        xc_nccl_sort(&values);
        struct xc_nccl_input input = {.values = &values, .node = &node};
        assert_int_equal(xc_nccl_lint(&input, &findings, NULL), 0);
        xc_nccl_findings_clear(&findings);
        xc_nccl_values_clear(&values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_in_order_and_found),
        cmocka_unit_test(releases_are_read),
        cmocka_unit_test(a_rule_allows_or_does_not),
        cmocka_unit_test(the_library_says_its_release_by_name_package_or_bytes),
        cmocka_unit_test(what_is_no_file_is_no_library_and_holds_nobody_up),
        cmocka_unit_test(the_first_place_wins_and_the_others_are_told),
        cmocka_unit_test(nccl_conf_file_stands_before_the_homes_file),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(each_trap_is_named_and_nothing_else),
        cmocka_unit_test(what_the_policy_says_is_held_against_it),
        cmocka_unit_test(nccl_1008_a_topology_file_left_in_nccl_conf),
        cmocka_unit_test(ainode_89_adapters_in_another_order),
        cmocka_unit_test(any_bytes_in_a_file_are_survived),
    };
    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
