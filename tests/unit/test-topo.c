/* Does topo/ hold at its limits: every byte that a file may end at, every mutilation, machines of every
 * shape? What is said of whole files, line by line, is tests/topo/run's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <xcloud/topo.h>

static const char good[] =
    "<!-- a site's file -->\n"
    "<system version=\"1\">\n"
    "  <cpu numaid=\"0\" affinity=\"00000000,0000ffff\" arch=\"x86_64\" "
    "vendor=\"AuthenticAMD\">\n"
    "    <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "      <pci busid=\"0001:00:00.0\" class=\"0x030200\"><gpu dev='0'><nvlink target='x' "
    "count=\"18\"/></gpu></pci>\n"
    "      <pci busid=\"0101:00:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\"/></nic></pci>\n"
    "    </pci>\n"
    "  </cpu>\n"
    "</system>\n";

/* ---- a machine ------------------------------------------------------------------------------------- */

/* Two GPUs and two NICs in domains of their own, on two NUMA nodes, as a cloud shows them. */
struct machine {
    struct xc_cpu cpus[8];
    struct xc_numa numas[2];
    struct xc_pci pci[4];
    struct xc_gpu gpus[2];
    struct xc_nic nics[2];
    struct xc_node node;
};

static struct xc_pci device(uint32_t domain, uint32_t class)
{
    return (struct xc_pci){.bdf.domain = domain,
                           .parent = XC_NONE,
                           .numa = XC_NONE,
                           .root = domain << 8,
                           .class = class,
                           .vendor = class == 0x030200 ? 0x10de : 0x15b3,
                           .max_width = 16,
                           .max_speed_mts = 32000};
}

static void make_machine(struct machine *m)
{
    *m = (struct machine){0};
    for (int i = 0; i < 8; i++)
        m->cpus[i] = (struct xc_cpu){.os = i, .core = i, .numa = i / 4, .flags = XC_CPU_ONLINE};
    for (int i = 0; i < 2; i++) {
        m->numas[i] = (struct xc_numa){.os = i, .ncpus = 4};
        m->pci[i] = device((uint32_t)i + 1, 0x030200);
        m->pci[i + 2] = device((uint32_t)i + 0x101, 0x020700);
        m->gpus[i] = (struct xc_gpu){.pci = i, .minor = i, .numa = XC_NONE};
        m->nics[i] = (struct xc_nic){
            .pci = i + 2, .numa = XC_NONE, .port = 1, .state = XC_PORT_ACTIVE, .rate_mbps = 400000};
        snprintf(m->nics[i].rdma, sizeof m->nics[i].rdma, "mlx5_%d", i);
    }
    m->node = (struct xc_node){.arch = "x86_64",
                               .cpu_vendor = "GenuineIntel",
                               .cpu_family = 6,
                               .cpu_model = 143,
                               .environment = XC_VM,
                               .ncpus = 8,
                               .nnumas = 2,
                               .npci = 4,
                               .ngpus = 2,
                               .nnics = 2,
                               .cpus = m->cpus,
                               .numas = m->numas,
                               .pci = m->pci,
                               .gpus = m->gpus,
                               .nics = m->nics};
}

static struct xc_rules *rules_of(const char *map)
{
    struct xc_policy *policy;
    struct xc_rules *rules = NULL;
    struct xc_error error = {0};
    char text[1024];
    snprintf(text, sizeof text, "version: 1\ndefaults:\n  topo:\n    map: %s\n", map);
    if (xc_policy_parse(text, strlen(text), "map", &policy, &error) < 0 ||
        xc_policy_resolve(policy, &(struct xc_who){0}, NULL, NULL, &rules, &error) < 0)
        fail_msg("%s: %s", error.where, error.message);
    xc_policy_free(policy);
    return rules;
}

/* ---- lint ------------------------------------------------------------------------------------------ */

static struct xc_topo_findings lint(const char *text)
{
    struct xc_topo_findings findings = {0};
    assert_int_equal(xc_topo_lint(text, strlen(text), &findings, NULL), 0);
    return findings;
}

static bool has(const struct xc_topo_findings *findings, const char *id)
{
    for (size_t i = 0; i < findings->count; i++)
        if (xc_streq(findings->items[i].id, id))
            return true;
    return false;
}

static void a_file_that_ends_early_is_refused(void **state)
{
    (void)state;
    size_t end = (size_t)(strstr(good, "</system>") - good) + strlen("</system>");
    size_t start = (size_t)(strchr(good, '\n') - good);
    for (size_t length = 0; length < sizeof good; length++) {
        struct xc_topo_findings findings = {0};
        assert_int_equal(xc_topo_lint(good, length, &findings, NULL), 0);
        /* nothing at all, and the comment alone, is what NCCL takes for no file */
        bool whole = length == 0 || length >= end || (length >= start && length <= start + 1);
        if (xc_topo_refused(&findings) == whole)
            fail_msg("%zu bytes: %s", length, whole ? "refused" : "taken");
        assert_true(findings.errors > 0 || length >= end);
        xc_topo_findings_clear(&findings);
    }
}

static void many_findings_are_counted_and_few_kept(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, "<system version=\"1\">");
    for (int i = 0; i < 1000; i++)
        xc_text_add(&text, "<numa/>");
    xc_text_add(&text, "</system>");
    struct xc_topo_findings findings = lint(text.data);
    assert_int_equal(findings.warnings, 1000);
    assert_int_equal(findings.count, XC_TOPO_SAME);
    assert_int_equal(findings.not_kept, 1000 - XC_TOPO_SAME);
    assert_false(xc_topo_refused(&findings));
    xc_topo_findings_clear(&findings);
    xc_text_free(&text);
}

static void what_is_shown_of_a_file_spoils_no_terminal(void **state)
{
    (void)state;
    struct xc_topo_findings findings =
        lint("<system version=\"1\"><cpu numaid=\"\x1b[2J\"/></system>");
    assert_true(has(&findings, "D14"));
    assert_null(strchr(findings.items[0].what, '\x1b'));
    xc_topo_findings_clear(&findings);
}

static void unknown_elements_cannot_be_too_deep(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    for (size_t i = 0; i < XC_TOPO_LIMIT / 3; i++)
        xc_text_add(&text, "<a>");
    struct xc_topo_findings findings = lint(text.data);
    assert_true(has(&findings, "D5") && xc_topo_refused(&findings));
    xc_topo_findings_clear(&findings);
    xc_text_add(&text, "<a>");
    struct xc_error error = {0};
    assert_int_equal(xc_topo_lint(text.data, text.length, &findings, &error), -1);
    assert_int_equal(error.code, XC_EINPUT);
    xc_text_free(&text);
}

/* ---- mutilation ------------------------------------------------------------------------------------ */

static unsigned long random_state = 1;
static unsigned draw(unsigned below)
{
    random_state = random_state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(random_state >> 33) % below;
}

/* Everything that takes a file takes this one, in a buffer of its exact size. */
static void survive(const char *bytes, size_t length, const struct xc_node *node)
{
    char *exact = malloc(length ? length : 1);
    struct xc_topo_findings findings = {0};
    struct xc_text text = XC_TEXT_INIT, normal = XC_TEXT_INIT;
    assert_non_null(exact);
    memcpy(exact, bytes, length);
    assert_int_equal(xc_topo_verify(exact, length, node, NULL, &findings, NULL), 0);
    xc_topo_findings_text(&findings, "f", &text);
    xc_topo_findings_json(&findings, "f", &text);
    bool refused = xc_topo_refused(&findings);
    xc_topo_findings_clear(&findings);
    if (xc_topo_show(exact, length, node, &text, NULL) == 0)
        assert_false(refused);
    xc_text_free(&text);
    if (xc_topo_svg(exact, length, node, &text, NULL) == 0)
        assert_true(xc_starts(text.data, "<svg ") && !strstr(text.data, "<gpu"));
    if (xc_topo_normalize(exact, length, &normal, NULL) == 0) {
        assert_int_equal(xc_topo_lint(normal.data, normal.length, &findings, NULL), 0);
        if (findings.errors)
            fail_msg("normal, and %s: %s", findings.items[0].what, normal.data);
    }
    xc_topo_findings_clear(&findings);
    xc_text_free(&text);
    xc_text_free(&normal);
    free(exact);
}

static void mutilated_files_never_crash(void **state)
{
    (void)state;
    static const char *const pieces[] = {"\t",   "\n",     "=",      "\"",    "'",  "<",
                                         ">",    "/",      "<!--",   "-->",   "</", "<?xml?>",
                                         "<pci", "</pci>", "<gpu/>", " a=\"", "  ", "\xef\xbb\xbf",
                                         "<a>",  "</a>",   "numaid", "-1",    "0x", "99999999999"};
    struct machine m;
    make_machine(&m);
    for (int round = 0; round < 6000; round++) {
        char text[sizeof good + 256];
        size_t length = sizeof good - 1;
        memcpy(text, good, length);
        m.node.environment = round % 2 ? XC_VM : XC_BARE;
        for (unsigned n = draw(5); n-- > 0 && length > 40;) {
            size_t at = draw((unsigned)length), cut = draw(12);
            const char *piece = pieces[draw(XC_COUNT(pieces))];
            if (draw(3) == 0) {
                cut = cut < length - at ? cut : length - at;
                memmove(text + at, text + at + cut, length - at - cut);
                length -= cut;
            } else if (draw(5) == 0) {
                text[at] = (char)draw(256);
            } else if (length + strlen(piece) < sizeof text) {
                memmove(text + at + strlen(piece), text + at, length - at);
                memcpy(text + at, piece, strlen(piece));
                length += strlen(piece);
            }
        }
        survive(text, length, &m.node);
    }
}

/* ---- generate -------------------------------------------------------------------------------------- */

static int generate(const struct machine *m, const char *map, struct xc_text *out,
                    struct xc_error *error)
{
    struct xc_rules *rules = rules_of(map);
    *error = (struct xc_error){0};
    xc_text_free(out);
    int rc = xc_topo_generate(&m->node, rules, out, error);
    if (rc == 0) {
        struct xc_topo_findings findings = {0};
        assert_int_equal(xc_topo_verify(out->data, out->length, &m->node, rules, &findings, NULL),
                         0);
        if (findings.count)
            fail_msg("%s %s", findings.items[0].id, findings.items[0].what);
        xc_topo_findings_clear(&findings);
    }
    xc_rules_free(rules);
    return rc;
}

static void refused_map(const char *map, const char *message)
{
    struct machine m;
    make_machine(&m);
    m.pci[3].numa = 1; /* of one NIC the kernel knows it */
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_error error;
    if (generate(&m, map, &text, &error) == 0 || !strstr(error.message, message))
        fail_msg("%s: \"%s\"", map, error.message);
    assert_int_equal(error.code, XC_EINPUT);
}

static void a_wrong_map_is_refused(void **state)
{
    (void)state;
    refused_map("[]", "which of 2 NUMA nodes");
    refused_map("[{ numa: 0, gpus: [0, 1] }]", "which of 2 NUMA nodes 0101:00:00.0");
    refused_map("[{ numa: 2, gpus: 0 }]", "NUMA node 2");
    refused_map("[{ numa: 0, gpus: 2 }]", "there is no GPU \"2\"");
    refused_map("[{ numa: 0, gpus: \"0009:00:00.0\" }]", "there is no GPU");
    refused_map("[{ numa: 0, nics: mlx5_9 }]", "there is no NIC \"mlx5_9\"");
    refused_map("[{ numa: 0, nics: mlx5_0 }, { numa: 1, nics: mlx5_0 }]", "two switches");
    refused_map("[{ numa: 0, nics: mlx5_1 }]", "the kernel says 1");
}

static void the_map_makes_the_file(void **state)
{
    (void)state;
    struct machine m;
    make_machine(&m);
    xc_autotext struct xc_text text = XC_TEXT_INIT, again = XC_TEXT_INIT;
    struct xc_error error;
    const char *map = "[{ numa: 1, gpus: 1, nics: mlx5_1 }, { numa: 0, gpus: 0, nics: mlx5_0 }]";
    if (generate(&m, map, &text, &error) < 0)
        fail_msg("%s", error.message);
    const char *gpu0 = strstr(text.data, "0001:00:00.0"), *gpu1 = strstr(text.data, "0002:00:00.0");
    assert_true(gpu0 && gpu1 && gpu0 < gpu1); /* node 0 first, whatever the map's order */
    assert_non_null(strstr(text.data, "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" "
                                      "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"));
    m.nics[0].state = XC_PORT_DOWN;
    m.cpus[3].flags = 0;
    m.gpus[0].mig = 1;
    assert_int_equal(generate(&m, map, &again, &error), 0);
    assert_string_equal(text.data, again.data); /* what changes from day to day is not in it */
}

static void links_that_nobody_knows_must_be_said(void **state)
{
    (void)state;
    struct machine m;
    make_machine(&m);
    for (int i = 0; i < 4; i++)
        m.pci[i].max_speed_mts = m.pci[i].max_width = 0;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_error error;
    assert_int_equal(
        generate(&m, "[{ numa: 0, gpus: [0, 1], nics: [mlx5_0, mlx5_1] }]", &text, &error), -1);
    assert_non_null(strstr(error.message, "gen: 5"));
    assert_int_equal(
        generate(&m, "[{ numa: 0, gen: 4, gpus: [0, 1], nics: [mlx5_0, mlx5_1] }]", &text, &error),
        0);
    assert_non_null(strstr(text.data, "16.0 GT/s PCIe"));
}

static void strange_machines_are_survived(void **state)
{
    (void)state;
    struct machine m;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    struct xc_error error;
    make_machine(&m);
    m.pci[0].parent = 1; /* a tree that goes round */
    m.pci[1].parent = 0;
    m.pci[2].parent = 2;
    for (int i = 0; i < 4; i++)
        m.pci[i].numa = 0;
    struct xc_rules *rules = rules_of("[]");
    (void)xc_topo_generate(&m.node, rules, &text, &error); /* whatever it says: it ends */
    xc_rules_free(rules);
    make_machine(&m);
    m.node.ngpus = 0;
    assert_int_equal(generate(&m, "[]", &text, &error), -1);
    make_machine(&m);
    m.node.nnumas = 1; /* nothing needs to be said where there is one node */
    assert_int_equal(generate(&m, "[]", &text, &error), 0);
}

/* ---- known failures of others ------------------------------------------------------------------------ */

static void verify_finds(const char *text, const char *id, bool expected)
{
    struct machine m;
    make_machine(&m);
    struct xc_topo_findings findings = {0};
    assert_int_equal(xc_topo_verify(text, strlen(text), &m.node, NULL, &findings, NULL), 0);
    if (has(&findings, id) != expected)
        fail_msg("%s %s of %s", id, expected ? "is not said" : "is said", text);
    xc_topo_findings_clear(&findings);
}

#define FILE_OF(attributes, devices)                                                               \
    "<system version=\"1\"><cpu numaid=\"0\"" attributes ">" devices "</cpu></system>"

/* nccl#977, nccl#1674, nccl-tests#256: the host's bus ids copied into the machine */
static void nccl_977_host_bus_ids_in_a_vm(void **state)
{
    (void)state;
    verify_finds(FILE_OF("", "<pci busid=\"0000:1b:00.0\" class=\"0x030200\"/>"), "L1", true);
    verify_finds(FILE_OF("", "<pci busid=\"0001:00:00.0\" class=\"0x030200\"/>"), "L1", false);
}

/* nccl#379: a file without the CPU's attributes: NCCL fills them in where it finds a GPU, and nowhere else;
 * and not half of them */
static void nccl_379_no_arch(void **state)
{
    (void)state;
    struct xc_topo_findings findings = lint(FILE_OF("", ""));
    assert_true(findings.count == 1 && has(&findings, "D15"));
    xc_topo_findings_clear(&findings);
    findings = lint(FILE_OF(" familyid=\"6\"", ""));
    assert_true(has(&findings, "D14"));
    xc_topo_findings_clear(&findings);
}

/* nccl#1843, nccl#921, nccl#1102: a dump holds only what the run used */
static void nccl_1843_a_dump_of_one_gpu(void **state)
{
    (void)state;
    const char *dump = FILE_OF(" host_hash=\"0x1\"",
                               "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_width=\"0\">"
                               "<gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"/></pci>");
    verify_finds(dump, "L8", true);
    verify_finds(dump, "D12", true);
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    assert_int_equal(xc_topo_normalize(dump, strlen(dump), &text, NULL), 0);
    assert_string_equal(text.data, "<system version=\"1\">\n  <cpu numaid=\"0\">\n    <pci "
                                   "busid=\"0001:00:00.0\" class=\"0x030200\"/>\n  </cpu>\n"
                                   "</system>\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_ends_early_is_refused),
        cmocka_unit_test(many_findings_are_counted_and_few_kept),
        cmocka_unit_test(what_is_shown_of_a_file_spoils_no_terminal),
        cmocka_unit_test(unknown_elements_cannot_be_too_deep),
        cmocka_unit_test(mutilated_files_never_crash),
        cmocka_unit_test(a_wrong_map_is_refused),
        cmocka_unit_test(the_map_makes_the_file),
        cmocka_unit_test(links_that_nobody_knows_must_be_said),
        cmocka_unit_test(strange_machines_are_survived),
        cmocka_unit_test(nccl_977_host_bus_ids_in_a_vm),
        cmocka_unit_test(nccl_379_no_arch),
        cmocka_unit_test(nccl_1843_a_dump_of_one_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
