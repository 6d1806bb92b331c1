/* Do the probes come back whatever happens in them, and does what they said survive its file? */
#include <errno.h>
#include <fcntl.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../checks/live.h"

static char work[] = "/tmp/xcloud-test-live.XXXXXX";

/* ---- children ------------------------------------------------------------------------------------- */

static int says_hello(void *data, int out)
{
    chk_probe_line(out, "hello %d", *(int *)data);
    return 3;
}
static int hangs(void *data, int out)
{
    chk_probe_line(out, "so far");
    if (write(out, "half", 4) < 0)
        return 1;
    for (bool forever = true; forever; forever = data == NULL)
        pause();
    return 0;
}
static int crashes(void *data, int out)
{
    (void)data;
    chk_probe_line(out, "before");
    raise(SIGSEGV);
    return 0;
}
static int floods(void *data, int out)
{
    for (bool forever = true; forever; forever = data == NULL)
        chk_probe_line(out, "again and again and again");
    return 0;
}
/* leaves somebody behind who holds the pipe */
static int leaves_one_behind(void *data, int out)
{
    (void)data;
    if (fork() == 0) {
        setsid();
        alarm(3);
        for (;;)
            pause();
    }
    chk_probe_line(out, "gone");
    return 0;
}
static int lists_descriptors(void *data, int out)
{
    (void)data;
    for (int fd = 0; fd < 64; fd++)
        if (fd != out && fcntl(fd, F_GETFD) >= 0)
            chk_probe_line(out, "%d", fd);
    return 0;
}

static long ms_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

static void children_come_back_whatever_they_do(void **state)
{
    (void)state;
    struct timespec start;
    int number = 7;
    struct xc_child children[] = {
        {.run = says_hello, .data = &number, .keep = -1},
        {.run = hangs, .keep = -1},
        {.run = crashes, .keep = -1},
        {.run = floods, .keep = -1, .limit = 1000},
        {.run = leaves_one_behind, .keep = -1},
    };
    clock_gettime(CLOCK_MONOTONIC, &start);
    xc_children_run(children, XC_COUNT(children), 400);
    assert_in_range(ms_since(&start), 390, 2000);
    assert_string_equal(children[0].text, "hello 7\n");
    assert_true(children[0].ended && WEXITSTATUS(children[0].status) == 3);
    assert_string_equal(children[1].text, "so far\nhalf");
    assert_false(children[1].ended);
    assert_string_equal(children[2].text, "before\n");
    assert_true(children[2].ended && WIFSIGNALED(children[2].status));
    assert_int_equal(strlen(children[3].text), 1000);
    assert_true(children[3].cut && !children[3].ended);
    assert_string_equal(children[4].text, "gone\n");
    assert_true(children[4].ended);
    for (size_t i = 0; i < XC_COUNT(children); i++)
        free(children[i].text);
}

static void children_that_are_done_cost_no_deadline(void **state)
{
    (void)state;
    struct timespec start;
    int number = 1;
    struct xc_child children[] = {{.run = says_hello, .data = &number, .keep = -1},
                                  {.run = leaves_one_behind, .keep = -1}};
    clock_gettime(CLOCK_MONOTONIC, &start);
    xc_children_run(children, XC_COUNT(children), 60000);
    assert_true(ms_since(&start) < 10000);
    for (size_t i = 0; i < XC_COUNT(children); i++)
        free(children[i].text);
}

static void a_caller_that_ignores_its_children_gets_their_statuses(void **state)
{
    (void)state;
    int number = 1;
    struct xc_child child = {.run = says_hello, .data = &number, .keep = -1};
    struct sigaction after;
    signal(SIGCHLD, SIG_IGN);
    xc_children_run(&child, 1, 10000);
    assert_true(child.ended && WIFEXITED(child.status) && WEXITSTATUS(child.status) == 3);
    sigaction(SIGCHLD, NULL, &after);
    assert_ptr_equal(after.sa_handler, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    free(child.text);
}

/* What a program starts and leaves behind goes with it. */
static void a_program_leaves_nobody_behind(void **state)
{
    (void)state;
    char text[400], mark[300];
    snprintf(mark, sizeof mark, "%s/mark", work);
    snprintf(text, sizeof text, "#!/bin/sh\n(sleep 1; echo x > %s) &\nexit 0\n", mark);
    struct xc_command program = {.path = NULL};
    char path[300];
    snprintf(path, sizeof path, "%s/leaves.sh", work);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    program.path = path;
    xc_commands_run(&program, 1, 5000);
    assert_true(program.child.ended && WEXITSTATUS(program.child.status) == 0);
    free(program.child.text);
    usleep(1500000);
    assert_int_equal(access(mark, F_OK), -1);
}

static void a_child_has_nothing_of_ours_open(void **state)
{
    (void)state;
    int ours = open("/dev/null", O_RDONLY), kept = dup(ours); /* without O_CLOEXEC */
    char want[32];
    struct xc_child child = {.run = lists_descriptors, .keep = kept};
    xc_children_run(&child, 1, 5000);
    snprintf(want, sizeof want, "0\n1\n2\n%d\n", kept);
    assert_string_equal(child.text, want);
    free(child.text);
    close(ours);
    close(kept);
}

/* ---- programs ------------------------------------------------------------------------------------- */

static const char *script(const char *name, const char *text, mode_t mode)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", work, name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static struct xc_command run_script(const char *path, unsigned deadline_ms)
{
    struct xc_command program = {.path = path};
    xc_commands_run(&program, 1, deadline_ms);
    return program;
}

static void a_program_has_no_environment_and_says_what_it_says(void **state)
{
    (void)state;
    setenv("XCLOUD_SECRET", "x", 1);
    struct xc_command program = run_script(
        script("env.sh", "#!/bin/sh\n/usr/bin/env | /usr/bin/grep -c SECRET\npwd\nexit 4\n", 0755),
        5000);
    assert_string_equal(program.child.text, "0\n/\n");
    assert_int_equal(WEXITSTATUS(program.child.status), 4);
    free(program.child.text);
}

static void a_program_that_others_can_write_is_not_run(void **state)
{
    (void)state;
    struct xc_command program = run_script(script("loose.sh", "#!/bin/sh\nexit 0\n", 0777), 5000);
    assert_false(program.child.started);
    assert_int_equal(program.error.code, XC_EOWNER);
    program = run_script("/nowhere/at/all", 5000);
    assert_false(program.child.started);
    assert_int_equal(program.error.code, XC_ENOENT);
    program = run_script(script("plain.sh", "#!/bin/sh\nexit 0\n", 0644), 5000);
    assert_true(program.child.started && WEXITSTATUS(program.child.status) == 127);
    free(program.child.text);
}

static void what_a_program_says_is_one_line(void **state)
{
    (void)state;
    char line[16];
    chk_one_line(" a\t\n\033[1mb \xff\n\n", line, sizeof line);
    assert_string_equal(line, "a [1mb ?");
    chk_one_line("0123456789abcdefghij", line, sizeof line);
    assert_string_equal(line, "0123456789abcde");
    chk_one_line(NULL, line, sizeof line);
    assert_string_equal(line, "");
}

/* ---- the whole ------------------------------------------------------------------------------------ */

/* However soon the deadline comes, what is there is a text or nothing, and each miss has its line. */
static void a_probe_that_was_cut_short_leaves_a_reason(void **state)
{
    (void)state;
    struct xc_root *root = NULL;
    struct xc_node *node = NULL;
    struct xc_error error = {0};
    static const char *const only[] = {"gpu.health", "inside", NULL};
    struct xc_check_live live = {.dma_latency_us = -1};
    if (xc_machine_open("/", XC_MACHINE_LIMIT, &root, &error) < 0 ||
        xc_node_read(root, NULL, &node, &error) < 0)
        fail_msg("%s", error.message);
    struct xc_rules *rules = xc_rules_builtin();
    struct xc_check_input input = {.root = root, .node = node, .rules = rules};
    if (node->ngpus == 0) { /* nobody is asked for what is neither there nor expected */
        xc_check_live_probe_only(&input, only, 20000, &live);
        assert_null(live.nvml);
        assert_null(live.trouble);
    }
    rules->expect.has_gpus = true;
    rules->expect.gpu_count = 8;
    rules->expect.gpu_vendor = 0x10de;
    for (unsigned deadline_ms = 0; deadline_ms < 12; deadline_ms++) {
        xc_check_live_probe_only(&input, only, deadline_ms, &live);
        assert_true(live.nvml || (live.trouble && strstr(live.trouble, "nvml: ")));
        assert_true(live.inside || (live.trouble && strstr(live.trouble, "inside: ")));
        assert_null(live.dcgm);
        assert_true(live.probed_at_us > 0 && live.boot_id[0]);
    }
    xc_check_live_probe_only(&input, only, 20000, &live);
    assert_null(live.trouble);
    assert_non_null(strstr(live.inside, "\nend\n"));
    xc_check_live_clear(&live);
    xc_rules_free(rules);
    xc_node_free(node);
    xc_root_close(root);
}

/* ---- DCB ------------------------------------------------------------------------------------------ */

static int ask_lo(void *data, int out)
{
    (void)data;
    struct xc_nic nic = {.pci = XC_NONE, .port = 1, .link = XC_NIC_ETHERNET, .netdev = "lo"};
    struct xc_node node = {.nics = &nic, .nnics = 1};
    struct xc_rules rules = {.expect = {.has_nics = true}};
    struct xc_check_input input = {.node = &node, .rules = &rules};
    snprintf(nic.rdma, sizeof nic.rdma, "rxe0");
    return chk_probe_dcb(&input, 1000, out);
}

static void a_netdev_without_dcb_says_so(void **state)
{
    (void)state;
    struct xc_child child = {.run = ask_lo, .keep = -1};
    xc_children_run(&child, 1, 5000);
    assert_non_null(strstr(child.text, "dcb lo error "));
    assert_non_null(strstr(child.text, "\nend\n"));
    free(child.text);
}

struct message {
    struct nlmsghdr head;
    struct dcbmsg dcb;
    struct nlattr ieee, pfc;
    struct ieee_pfc value;
    char rest[256];
} __attribute__((packed));
struct bytes {
    const char *at;
    size_t length;
};

static int take_answer(void *data, int out)
{
    const struct bytes *bytes = data;
    chk_dcb_answer("eth0", bytes->at, bytes->length, out);
    return 0;
}

/* In a child, from memory that ends where the message ends. */
static char *answer_of(const void *message, size_t length)
{
    xc_autofree char *copy = malloc(length ? length : 1);
    memcpy(copy, message, length);
    struct bytes bytes = {copy, length};
    struct xc_child child = {.run = take_answer, .data = &bytes, .keep = -1};
    xc_children_run(&child, 1, 5000);
    assert_true(child.ended && WIFEXITED(child.status));
    return child.text;
}

static void what_the_kernel_answers_is_read_with_care(void **state)
{
    (void)state;
    struct message message = {
        .head = {.nlmsg_len = offsetof(struct message, rest), .nlmsg_type = RTM_GETDCB},
        .ieee = {.nla_len = 2 * sizeof(struct nlattr) + sizeof(struct ieee_pfc),
                 .nla_type = DCB_ATTR_IEEE | NLA_F_NESTED},
        .pfc = {.nla_len = sizeof(struct nlattr) + sizeof(struct ieee_pfc),
                .nla_type = DCB_ATTR_IEEE_PFC},
        .value = {.pfc_en = 0x18}};
    xc_autofree char *good = answer_of(&message, offsetof(struct message, rest));
    assert_string_equal(good, "dcb eth0 pfc 0x18\n");
    for (size_t cut = 0; cut < offsetof(struct message, rest); cut += 5)
        free(answer_of(&message, cut));
    message.pfc.nla_len = 2; /* would never end */
    xc_autofree char *zero = answer_of(&message, offsetof(struct message, rest));
    assert_string_equal(zero, "");
    message.pfc.nla_len = 60000;
    xc_autofree char *beyond = answer_of(&message, offsetof(struct message, rest));
    assert_string_equal(beyond, "");
}

/* ---- the file ------------------------------------------------------------------------------------- */

static int64_t boot_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fill(struct xc_check_live *live)
{
    struct xc_root *root = NULL;
    assert_int_equal(xc_root_open_dir("/", &root, NULL), 0);
    xc_autofree char *boot = xc_root_read_line(root, "/proc/sys/kernel/random/boot_id");
    xc_root_close(root);
    *live = (struct xc_check_live){.dma_latency_us = -1, .probed_at_us = boot_us()};
    snprintf(live->boot_id, sizeof live->boot_id, "%s", boot);
    live->nvml = strdup("nvml count 1\ntext nvml 3\nend\n");
    live->dcgm = strdup("");
    live->trouble = strdup("spin: no answer within 5 ms\n");
}

static const char *live_file(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/live", work);
    return path;
}

static void what_was_seen_comes_back(void **state)
{
    (void)state;
    struct xc_check_live out, in = {.log = strdup("kept"), .dma_latency_us = 5};
    struct xc_error error = {0};
    struct stat st;
    if (geteuid() != 0)
        skip();
    fill(&out);
    if (xc_check_live_save(&out, live_file(), &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(stat(live_file(), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    for (int i = 0; i < 2; i++) /* over what is there already */
        if (xc_check_live_load(live_file(), 60000000, &in, &error) < 0)
            fail_msg("%s", error.message);
    assert_string_equal(in.nvml, out.nvml);
    assert_string_equal(in.dcgm, "");
    assert_string_equal(in.trouble, out.trouble);
    assert_string_equal(in.log, "kept");
    assert_int_equal(in.dma_latency_us, 5);
    assert_true(in.probed_at_us == out.probed_at_us);
    xc_check_live_clear(&in);
    xc_check_live_clear(&out);
}

static void wont_load(const char *message, enum xc_code code)
{
    struct xc_check_live in = {.dma_latency_us = -1, .nvml = strdup("old")};
    struct xc_error error = {0};
    assert_int_equal(xc_check_live_load(live_file(), 60000000, &in, &error), -1);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, message))
        fail_msg("\"%s\" does not say \"%s\"", error.message, message);
    assert_null(in.nvml);
    xc_check_live_clear(&in);
}

static void what_is_old_or_of_another_boot_does_not_count(void **state)
{
    (void)state;
    struct xc_check_live live;
    if (geteuid() != 0)
        skip();
    unlink(live_file());
    wont_load("", XC_ENOENT);
    fill(&live);
    live.probed_at_us -= 61000000;
    assert_int_equal(xc_check_live_save(&live, live_file(), NULL), 0);
    wont_load("s old", XC_EINPUT);
    live.probed_at_us = boot_us() + 100000000; /* of the future */
    assert_int_equal(xc_check_live_save(&live, live_file(), NULL), 0);
    wont_load("s old", XC_EINPUT);
    live.probed_at_us = boot_us();
    live.boot_id[3] ^= 1;
    assert_int_equal(xc_check_live_save(&live, live_file(), NULL), 0);
    wont_load("another boot", XC_EINPUT);
    assert_int_equal(chmod(live_file(), 0666), 0);
    wont_load("writable", XC_EOWNER);
    xc_check_live_clear(&live);
}

static void put_file(const char *bytes, size_t length)
{
    int fd = open(live_file(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    close(fd);
}

/* Every cut, every changed byte, and heads with a right hash that lie about what comes. */
static void a_file_that_is_not_whole_is_an_error(void **state)
{
    (void)state;
    struct xc_check_live live;
    struct xc_error error = {0};
    if (geteuid() != 0)
        skip();
    fill(&live);
    unlink(live_file());
    assert_int_equal(xc_check_live_save(&live, live_file(), NULL), 0);
    size_t length;
    xc_autofree char *bytes = xc_read_trusted(live_file(), 1 << 20, &length, &error);
    assert_non_null(bytes);
    for (size_t cut = 0; cut < length; cut++) {
        put_file(bytes, cut);
        wont_load("", XC_EINPUT);
    }
    for (size_t i = 0; i < length; i++) {
        xc_autofree char *copy = malloc(length);
        memcpy(copy, bytes, length);
        copy[i] ^= 0x11;
        put_file(copy, length);
        wont_load("", XC_EINPUT);
    }
    xc_check_live_clear(&live);
}

static void a_file_that_lies_is_an_error(void **state)
{
    (void)state;
    static const char *const lies[] = {
        "",
        "xcloud-live 1\n",
        "xcloud-live 2\nboot b\nat 5\n",
        "xcloud-live 1\nboot b\nat -5\n",
        "xcloud-live 1\nboot b\nat 5\ntext nvml 4294967295\nx\n",
        "xcloud-live 1\nboot b\nat 5\ntext nvml 3\nabc",
        "xcloud-live 1\nboot b\nat 5\ntext nvml 2\nabc\n",
        "xcloud-live 1\nboot b\nat 5\ntext log 2\nab\n",
        "xcloud-live 1\nboot b\nat 5\ntext 2\nab\n",
        "xcloud-live 1\nboot b\nat 5\ntext aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 2\nab\n",
        "xcloud-live 1\nboot b\nat 5\ntext nvml 2\nab\ntext nvml 2\nab\n",
        "xcloud-live 1\nboot 0123456789012345678901234567890123456789\nat 5\n",
    };
    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < XC_COUNT(lies); i++) {
        char text[512];
        int length = snprintf(text, sizeof text, "%shash %016llx\n", lies[i],
                              (unsigned long long)xc_hash64(lies[i], strlen(lies[i])));
        put_file(text, (size_t)length);
        wont_load("", XC_EINPUT);
    }
}

static int make_work(void **state)
{
    (void)state;
    return mkdtemp(work) && chmod(work, 0755) == 0 ? 0 : -1;
}

static int remove_work(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_come_back_whatever_they_do),
        cmocka_unit_test(children_that_are_done_cost_no_deadline),
        cmocka_unit_test(a_caller_that_ignores_its_children_gets_their_statuses),
        cmocka_unit_test(a_program_leaves_nobody_behind),
        cmocka_unit_test(a_child_has_nothing_of_ours_open),
        cmocka_unit_test(a_program_has_no_environment_and_says_what_it_says),
        cmocka_unit_test(a_program_that_others_can_write_is_not_run),
        cmocka_unit_test(what_a_program_says_is_one_line),
        cmocka_unit_test(a_probe_that_was_cut_short_leaves_a_reason),
        cmocka_unit_test(a_netdev_without_dcb_says_so),
        cmocka_unit_test(what_the_kernel_answers_is_read_with_care),
        cmocka_unit_test(what_was_seen_comes_back),
        cmocka_unit_test(what_is_old_or_of_another_boot_does_not_count),
        cmocka_unit_test(a_file_that_is_not_whole_is_an_error),
        cmocka_unit_test(a_file_that_lies_is_an_error),
    };
    return cmocka_run_group_tests_name("live", tests, make_work, remove_work);
}
