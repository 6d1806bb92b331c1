/* Does the deadline hold, does the breaker keep its limit, do only our own drains end, and can hostile
 * texts do harm? */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

#include <xcloud/step.h>

#include "../../prolog/internal.h"

static char work[] = "/tmp/xcloud-test-prolog.XXXXXX";

static const char *path_in(const char *name)
{
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", work, name);
    return path;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the deadline ------------------------------------------------------------------------------------ */

static volatile unsigned deadline = 300;

static enum xc_guard_end guard(void (*run)(void *), void *arg, struct xc_guard *out)
{
    struct xc_error error = {0};
    *out = (struct xc_guard){.work = run, .arg = arg, .title = "test", .deadline_ms = &deadline};
    return xc_guard_run(out, &error);
}

static void leave_mark(void *arg)
{
    *(int *)arg = 42;
}

static void work_that_ends_is_seen(void **state)
{
    (void)state;
    struct xc_guard g;
    int *shared = xc_guard_share(sizeof *shared);
    assert_int_equal(guard(leave_mark, shared, &g), XC_GUARD_DONE);
    assert_int_equal(*shared, 42);
    signal(SIGCHLD, SIG_IGN); /* as a daemon may leave it to us */
    *shared = 0;
    assert_int_equal(guard(leave_mark, shared, &g), XC_GUARD_DONE);
    assert_int_equal(*shared, 42);
}

static void read_fifo(void *arg)
{
    char byte;
    int fd = open(arg, O_RDWR);
    (void)!read(fd, &byte, 1);
}

static void a_fifo_that_never_answers_ends_at_the_deadline(void **state)
{
    (void)state;
    struct xc_guard g;
    char fifo[256];
    snprintf(fifo, sizeof fifo, "%s", path_in("fifo"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int64_t start = now_ms();
    assert_int_equal(guard(read_fifo, fifo, &g), XC_GUARD_LATE);
    int64_t took = now_ms() - start;
    assert_in_range(took, 290, 2000);
    assert_string_equal(g.hangs_in, fifo);
    assert_int_equal(kill(g.child, 0), -1); /* it is gone, and no zombie */
    assert_int_equal(errno, ESRCH);
}

static void wait_longer(void *arg)
{
    volatile unsigned *ms = arg;
    *ms = 2000;
    nanosleep(&(struct timespec){0, 500000000}, NULL);
}

static void the_child_can_ask_for_more_time(void **state)
{
    (void)state;
    unsigned *ms = xc_guard_share(sizeof *ms);
    *ms = 300;
    struct xc_guard g = {.work = wait_longer, .arg = ms, .title = "test", .deadline_ms = ms};
    assert_int_equal(xc_guard_run(&g, NULL), XC_GUARD_DONE);
}

static void crash(void *arg)
{
    (void)arg;
    signal(SIGSEGV, SIG_DFL); /* whatever a checker of memory makes of it */
    raise(SIGSEGV);
}

static void leave_early(void *arg)
{
    (void)arg;
    _exit(3);
}

static void a_crash_is_told_from_an_end(void **state)
{
    (void)state;
    struct xc_guard g;
    assert_int_equal(guard(crash, NULL, &g), XC_GUARD_CRASHED);
    assert_true(WIFSIGNALED(g.status) && WTERMSIG(g.status) == SIGSEGV);
    assert_int_equal(guard(leave_early, NULL, &g), XC_GUARD_CRASHED);
}

static void stay_with_streams(void *arg)
{
    (void)arg;
    (void)!write(STDOUT_FILENO, "x", 1);
    if (fork() == 0) {
        nanosleep(&(struct timespec){5, 0}, NULL);
        _exit(0);
    }
}

/* slurmd waits until its pipe is closed: whatever is left behind must not hold it. */
static void what_is_left_behind_does_not_hold_slurmds_pipe(void **state)
{
    (void)state;
    struct xc_guard g;
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    int saved = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(fds[1], STDOUT_FILENO);
    close(fds[1]);
    enum xc_guard_end end = guard(stay_with_streams, NULL, &g);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(end, XC_GUARD_DONE);
    int64_t start = now_ms();
    assert_int_equal(read(fds[0], &byte, 1), 0); /* the end, and nothing of the child's */
    assert_true(now_ms() - start < 1000);
    close(fds[0]);
    assert_int_equal(g.nleft, 0); /* and it has been ended, too */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static pid_t pausing(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void stuck_children_are_remembered_until_they_end(void **state)
{
    (void)state;
    struct xc_stuck still;
    const char *file = path_in("stuck");
    assert_false(xc_stuck_still(file, &still));
    pid_t question = pausing(), run = pausing();
    assert_int_equal(xc_stuck_remember(file, question, false, "device", NULL), 0);
    assert_true(xc_stuck_still(file, &still));
    assert_true(still.count == 1 && !still.run);
    /* whatever it is called, it is what it is */
    assert_int_equal(xc_stuck_remember(file, run, true, "/x/a question to a device", NULL), 0);
    assert_true(xc_stuck_still(file, &still));
    assert_true(still.count == 2 && still.run);
    char both[200];
    snprintf(both, sizeof both, "process %d: device; process %d: /x/a question to a device",
             (int)question, (int)run);
    assert_string_equal(still.text, both);
    end(run);
    assert_true(xc_stuck_still(file, &still));
    assert_true(still.count == 1 && !still.run);
    pid_t next = pausing();
    assert_int_equal(xc_stuck_remember(file, next, false, "y", NULL), 0);
    size_t length;
    char *text = xc_read_trusted(file, 65536, &length, NULL), gone[32];
    snprintf(gone, sizeof gone, "%d ", (int)run);
    assert_non_null(text);
    assert_null(strstr(text, gone)); /* the ended one is forgotten with the next */
    free(text);
    end(question);
    end(next);
    assert_false(xc_stuck_still(file, &still));
    assert_int_equal(access(file, F_OK), -1);
    /* another process with the same number is not it; garbage is nobody */
    FILE *stream = fopen(file, "w");
    fprintf(stream, "%d 1 run /x\n\n-1 5\nxyz\n99999999999999999999 1 run a\n1 2\n", (int)getpid());
    fclose(stream);
    assert_false(xc_stuck_still(file, &still));
}

static void more_stuck_children_than_there_is_room_for_are_counted(void **state)
{
    (void)state;
    struct xc_stuck still;
    const char *file = path_in("stuck");
    char what[300];
    memset(what, 'x', sizeof what - 1);
    what[sizeof what - 1] = '\0';
    pid_t pids[10];
    for (size_t i = 0; i < XC_COUNT(pids); i++) {
        pids[i] = pausing();
        assert_int_equal(xc_stuck_remember(file, pids[i], i == 9, what, NULL), 0);
    }
    assert_true(xc_stuck_still(file, &still));
    assert_true(still.count == 10 && still.run);
    for (size_t i = 0; i < XC_COUNT(pids); i++)
        end(pids[i]);
    assert_false(xc_stuck_still(file, &still));
}

/* ---- reasons -------------------------------------------------------------------------------------------- */

static void reasons_are_one_harmless_line(void **state)
{
    (void)state;
    char reason[XC_REASON_MAX], text[1000];
    xc_reason_make(reason, "gpu.count: 7 GPUs, want 8 [GPU01]", "hgx-h100", 4711);
    assert_string_equal(reason, "xcloud: gpu.count: 7 GPUs, want 8 [GPU01] (hgx-h100, job 4711)");
    xc_reason_make(reason, "gpu.count: 7 [GPU01]", NULL, 0);
    assert_string_equal(reason, "xcloud: gpu.count: 7 [GPU01] (-)");
    xc_reason_make(reason, "a\n\"b'`$(reboot)\\|c\x01 [X01]", "h", 1);
    assert_null(strpbrk(reason, "\n\"'`$\\|\x01"));
    memset(text, 'y', sizeof text);
    memcpy(text + sizeof text - 9, " [NIC02]", 9);
    xc_reason_make(reason, text, "class", 4294967295u);
    assert_true(strlen(reason) < XC_REASON_MAX);
    assert_non_null(strstr(reason, "(class, job 4294967295)"));
    for (size_t i = 0; i + 3 < sizeof text; i += 3) /* not cut within a character */
        memcpy(text + i, "\xe2\x80\xa6", 3);
    text[600] = '\0';
    xc_reason_make(reason, text, "c", 1);
    const char *end = strstr(reason, " (c, job 1)");
    assert_non_null(end);
    assert_int_equal((unsigned char)end[-1], 0xa6);
}

static void sinfo_is_read_or_refused(void **state)
{
    (void)state;
    struct xc_drains drains;
    struct xc_error error;
    char *lists[] = {"gpu[1-3]", NULL};
    assert_int_equal(
        xc_drains_parse("gpu1|idle|0|none\n"
                        "gpu2|drained|1000|xcloud: gpu.count: 7 | x (a) [GPU01] (hgx, job 12)\n"
                        "gpu2|drained|1000|xcloud: gpu.count: 7 | x (a) [GPU01] (hgx, job 12)\n"
                        "gpu3|draining*|1001|xcloud: by hand\n"
                        "cpu1|down*|5|Not responding\n"
                        "cpu2|drained|1002|dimm\n",
                        lists, &drains, &error),
        0);
    assert_int_equal(drains.nodes, 5);
    assert_int_equal(drains.class_nodes, 3);
    assert_int_equal(drains.count, 3);
    const struct xc_drained *one = xc_drains_find(&drains, "gpu2");
    assert_non_null(one);
    assert_true(one->ours);
    assert_string_equal(one->code, "GPU01");
    assert_string_equal(one->class_name, "hgx");
    assert_int_equal(one->job, 12);
    assert_int_equal(one->at, 1000);
    assert_false(xc_drains_find(&drains, "gpu3")->ours); /* an admin's words are no drain of ours */
    assert_false(xc_drains_find(&drains, "cpu2")->ours);
    assert_null(xc_drains_find(&drains, "gpu1"));
    xc_drains_clear(&drains);
    static const char *const bad[] = {"", "\n", "sinfo: error: down\n", "a|b\n", "a|drained|1\n"};
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        assert_int_equal(xc_drains_parse(bad[i], NULL, &drains, &error), -1);
        assert_int_equal(error.code, XC_EINPUT);
    }
}

/* ---- the breaker ------------------------------------------------------------------------------------------ */

#define NOW 100000

static struct xc_drains drains_of(const char *format, ...) xc_printf(1, 2);
static struct xc_drains drains_of(const char *format, ...)
{
    struct xc_drains drains;
    struct xc_error error = {0};
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (xc_drains_parse(text, NULL, &drains, &error) < 0)
        fail_msg("%s", error.message);
    return drains;
}

static const struct xc_breaker_who who = {
    .node = "n5", .class_name = "hgx", .code = "GPU01", .job = 7};

static void limits_are_the_smaller_and_never_below_one(void **state)
{
    (void)state;
    struct xc_rules rules = {
        .breaker = {.cluster = {8, 1}, .class_ = {0, 10}, .job = {2, 0}, .window_s = 600}};
    struct xc_breaker breaker;
    xc_breaker_limits(&rules, 10000, 50, 4, &breaker);
    assert_int_equal(breaker.cluster, 8);
    assert_int_equal(breaker.class_, 5);
    assert_int_equal(breaker.job, 2);
    xc_breaker_limits(&rules, 300, 0, 4, &breaker);
    assert_int_equal(breaker.cluster, 3);
    assert_int_equal(breaker.class_, 1); /* of an unknown number */
    xc_breaker_limits(&rules, 8, 3, 0, &breaker);
    assert_int_equal(breaker.cluster, 1);
}

static void before_a_drain_others_within_the_window_count(void **state)
{
    (void)state;
    struct xc_breaker_seen seen;
    struct xc_breaker breaker = {.cluster = 4, .class_ = 2, .job = 2, .window_s = 600};
    struct xc_drains drains = drains_of("n1|drained|%d|xcloud: a [GPU01] (hgx, job 7)\n"
                                        "n2|drained|%d|xcloud: a [GPU01] (other, job 8)\n"
                                        "n3|drained|%d|xcloud: a [GPU01] (other, job 9)\n"
                                        "n4|drained|%d|by hand\n"
                                        "n5|idle|0|none\n",
                                        NOW - 10, NOW - 20, NOW - 700, NOW - 5);
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW, &seen), XC_MAY_DRAIN);
    assert_int_equal(seen.count, 2);
    breaker.cluster = 2;
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW, &seen), XC_FULL_CLUSTER);
    breaker.class_ = 1;
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW, &seen), XC_FULL_CLASS);
    breaker.job = 1;
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW, &seen), XC_FULL_JOB);
    struct xc_breaker_who other = who;
    other.code = "NIC02"; /* another finding on the same job's nodes is no pattern */
    breaker = (struct xc_breaker){.cluster = 9, .job = 1, .window_s = 600};
    assert_int_equal(xc_breaker_before(&breaker, &other, &drains, NOW, &seen), XC_MAY_DRAIN);
    xc_drains_clear(&drains);
}

static void of_those_that_drained_at_once_the_first_stay(void **state)
{
    (void)state;
    unsigned stay = 0;
    struct xc_breaker_seen seen;
    struct xc_breaker breaker = {.cluster = 3, .window_s = 600};
    struct xc_drains drains = drains_of("n1|drained|%d|xcloud: a [GPU01] (hgx, job 1)\n"
                                        "n2|drained|%d|xcloud: a [GPU01] (hgx, job 1)\n"
                                        "n3|draining|%d|xcloud: a [GPU01] (hgx, job 1)\n"
                                        "n4|drained|%d|xcloud: a [GPU01] (hgx, job 1)\n"
                                        "n5|drained|%d|xcloud: a [GPU01] (hgx, job 1)\n",
                                        NOW, NOW, NOW, NOW, NOW - 1);
    for (int i = 1; i <= 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        struct xc_breaker_who me = {.node = name, .class_name = "hgx", .code = "GPU01", .job = 1};
        bool stays = xc_breaker_after(&breaker, &me, &drains, &seen) == XC_MAY_DRAIN;
        assert_int_equal(stays, i == 5 || i <= 2); /* by time, then by name */
        stay += stays;
    }
    assert_int_equal(stay, 3);
    struct xc_breaker_who gone = {.node = "n9", .class_name = "hgx", .code = "GPU01"};
    assert_int_equal(xc_breaker_after(&breaker, &gone, &drains, &seen), XC_MAY_DRAIN);
    xc_drains_clear(&drains);
}

static void the_same_finding_waits_longer_and_longer(void **state)
{
    (void)state;
    struct xc_breaker_seen seen;
    struct xc_breaker breaker = {.cluster = 2, .window_s = 600};
    struct xc_breaker_who other = who;
    other.code = "NIC02";
    struct xc_drains drains = drains_of("n1|drained|%d|xcloud: a [GPU01] (hgx, job 1)\n"
                                        "n2|drained|%d|xcloud: a [GPU01] (hgx, job 2)\n",
                                        NOW - 700, NOW - 700);
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW, &seen), XC_FULL_CLUSTER);
    assert_int_equal(seen.window_s, 1200);
    assert_int_equal(xc_breaker_before(&breaker, &who, &drains, NOW + 500, &seen), XC_MAY_DRAIN);
    /* what others break of waits for nobody */
    assert_int_equal(xc_breaker_before(&breaker, &other, &drains, NOW, &seen), XC_MAY_DRAIN);
    xc_drains_clear(&drains);
}

/* ---- slots -------------------------------------------------------------------------------------------------- */

static int slot_directory(const char *name)
{
    const char *path = path_in(name);
    assert_int_equal(mkdir(path, 0755), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    return fd;
}

static void many_at_once_get_no_more_slots_than_there_are(void **state)
{
    (void)state;
    int fd = slot_directory("many"), got = 0, status;
    for (int i = 0; i < 60; i++)
        if (fork() == 0) {
            char node[16];
            snprintf(node, sizeof node, "n%d", i);
            struct xc_breaker breaker = {.cluster = 7, .class_ = 30, .job = 40, .window_s = 600};
            struct xc_breaker_who me = {.node = node, .class_name = "c", .code = "A01", .job = 3};
            struct xc_slots slots;
            struct xc_breaker_seen seen;
            int word = xc_slots_take(fd, &breaker, &me, &slots, &seen, NULL);
            _exit(word == XC_MAY_DRAIN ? 10 : word == XC_FULL_CLUSTER ? 11 : 12);
        }
    for (int i = 0; i < 60; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WEXITSTATUS(status) >= 10 && WEXITSTATUS(status) <= 12);
        got += WEXITSTATUS(status) == 10;
    }
    assert_int_equal(got, 7);
    close(fd);
}

static void age(int fd, const char *name, int seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= seconds;
    struct timespec times[2] = {now, now};
    assert_int_equal(utimensat(fd, name, times, 0), 0);
}

static enum xc_breaker_word take(int fd, const char *node, struct xc_breaker breaker)
{
    struct xc_slots slots;
    struct xc_breaker_seen seen;
    struct xc_breaker_who me = {.node = node, .class_name = "c", .code = "A01", .job = 3};
    return (enum xc_breaker_word)xc_slots_take(fd, &breaker, &me, &slots, &seen, NULL);
}

static void slots_are_free_again_after_a_window_unless_many_are_refused(void **state)
{
    (void)state;
    int fd = slot_directory("window");
    struct xc_breaker breaker = {.cluster = 1, .window_s = 600};
    assert_int_equal(take(fd, "n1", breaker), XC_MAY_DRAIN);
    assert_int_equal(take(fd, "n2", breaker), XC_FULL_CLUSTER);
    age(fd, "cluster.0.1", 601);
    assert_int_equal(take(fd, "n3", breaker), XC_MAY_DRAIN); /* generation 2 */
    assert_int_equal(faccessat(fd, "cluster.0.2", F_OK, 0), 0);
    age(fd, "cluster.0.2", 601);
    for (int i = 0; i < 12; i++) { /* a storm: more than hardware explains */
        char name[32];
        snprintf(name, sizeof name, "refused.%d", i);
        close(openat(fd, name, O_CREAT | O_WRONLY, 0644));
    }
    assert_int_equal(take(fd, "n4", breaker), XC_FULL_CLUSTER);
    for (int i = 0; i < 16; i++) {
        char name[32];
        snprintf(name, sizeof name, "refused.%d", i);
        if (faccessat(fd, name, F_OK, 0) == 0)
            age(fd, name, 700);
    }
    assert_int_equal(take(fd, "n4", breaker), XC_MAY_DRAIN);
    close(fd);
}

static void a_slot_of_one_limit_is_given_back_when_another_is_full(void **state)
{
    (void)state;
    int fd = slot_directory("both");
    struct xc_breaker breaker = {.cluster = 1, .class_ = 5, .job = 5, .window_s = 600};
    assert_int_equal(take(fd, "n1", breaker), XC_MAY_DRAIN);
    for (int i = 0; i < 9; i++)
        assert_int_equal(take(fd, "n2", breaker), XC_FULL_CLUSTER);
    breaker.cluster = 2;
    for (int i = 0; i < 3; i++) /* one refused node is no storm */
        age(fd, "cluster.0.1", 601);
    assert_int_equal(take(fd, "n2", breaker), XC_MAY_DRAIN);
    close(fd);
}

/* ---- coming back ------------------------------------------------------------------------------------------------ */

static struct xc_rules resuming(char **checks)
{
    return (struct xc_rules){
        .resume = {.checks = checks, .after = 3, .quiet_s = 900, .lemon = 3, .lemon_s = 604800}};
}

static void a_node_comes_back_after_clean_runs_and_quiet_time(void **state)
{
    (void)state;
    char *checks[] = {"cpu.turbo", "mem.thp", NULL};
    struct xc_rules rules = resuming(checks);
    struct xc_ledger ledger = {0};
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 1000), XC_RESUME_NOTHING);
    xc_ledger_drained(&ledger, "xcloud: x", "cpu.turbo,mem.thp", 1000);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 1100), XC_RESUME_WAIT);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 1200), XC_RESUME_WAIT);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 1300),
                     XC_RESUME_WAIT); /* quiet */
    assert_int_equal(xc_resume_judge(&rules, &ledger, false, false, 1850), XC_RESUME_WAIT);
    assert_int_equal(ledger.clean, 0); /* it starts anew */
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 2000), XC_RESUME_WAIT);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, true, 2100), XC_RESUME_WAIT);
    assert_int_equal(ledger.clean, 1); /* what could not tell counts for nobody */
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 2200), XC_RESUME_WAIT);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 2749), XC_RESUME_WAIT);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 2750), XC_RESUME_NOW);
}

static void only_listed_checks_bring_a_node_back_and_no_lemon(void **state)
{
    (void)state;
    char *checks[] = {"cpu.turbo", NULL};
    struct xc_rules rules = resuming(checks), off = resuming(NULL);
    struct xc_ledger ledger = {0};
    xc_ledger_drained(&ledger, "xcloud: x", "cpu.turbo,gpu.count", 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 10000), XC_RESUME_OFF);
    ledger = (struct xc_ledger){0};
    xc_ledger_drained(&ledger, "xcloud: x", "cpu.turbo", 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(xc_resume_judge(&off, &ledger, true, false, 10000), XC_RESUME_OFF);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 10000), XC_RESUME_NOW);
    for (int i = 0; i < 2; i++)
        xc_ledger_drained(&ledger, "xcloud: x", "cpu.turbo", 10001 + i);
    for (int i = 0; i < 3; i++)
        xc_resume_judge(&rules, &ledger, true, false, 20000);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 20000), XC_RESUME_LEMON);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 604802), XC_RESUME_NOW);
}

static void a_clock_that_was_wrong_keeps_no_node_drained(void **state)
{
    (void)state;
    char *checks[] = {"cpu.turbo", NULL};
    struct xc_rules rules = resuming(checks);
    struct xc_ledger ledger = {0};
    for (int i = 0; i < 3; i++) /* the clock of a battery that is empty: 2038, or the end of time */
        xc_ledger_drained(&ledger, "xcloud: x", "cpu.turbo", i ? INT64_MAX - 5 : 2147483647);
    for (int i = 0; i < 3; i++)
        assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 700000 + i), XC_RESUME_WAIT);
    assert_int_equal(ledger.past[0], 700000);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 700900), XC_RESUME_LEMON);
    assert_int_equal(xc_resume_judge(&rules, &ledger, true, false, 1304801), XC_RESUME_NOW);
}

static void the_record_of_drains_survives_and_garbage_does_not(void **state)
{
    (void)state;
    struct xc_ledger ledger = {0}, back;
    struct xc_error error = {0};
    const char *file = path_in("drained");
    assert_int_equal(xc_ledger_read(file, &back, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
    for (int i = 0; i < 50; i++)
        xc_ledger_drained(&ledger, "xcloud: cpu.turbo: x y [CPU04] (h, job 1)", "cpu.turbo,a.b",
                          i + 1);
    ledger.clean = 2;
    ledger.lemon = true;
    assert_int_equal(xc_ledger_write(&ledger, file, &error), 0);
    assert_int_equal(xc_ledger_read(file, &back, &error), 0);
    assert_memory_equal(&ledger, &back, sizeof ledger);
    static const char *const bad[] = {"",
                                      "xcloud-drained 2\n",
                                      "xcloud-drained 1\nclean x\n",
                                      "xcloud-drained 1\nclean -1\n",
                                      "xcloud-drained 1\nreason\n",
                                      "xcloud-drained 1\nwhat 1\n",
                                      "xcloud-drained 1\npast 9z\n"};
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        FILE *stream = fopen(file, "w");
        fputs(bad[i], stream);
        fclose(stream);
        assert_int_equal(xc_ledger_read(file, &back, &error), -1);
        assert_false(back.drained);
    }
}

/* ---- files of several runs at once ---------------------------------------------------------------------------------- */

static void the_run_that_began_last_has_the_last_word(void **state)
{
    (void)state;
    struct xc_check_state old = {.at_us = 100}, new = {.at_us = 200}, back;
    snprintf(old.boot_id, sizeof old.boot_id, "boot");
    snprintf(new.boot_id, sizeof new.boot_id, "boot");
    xc_check_state_set(&old, 5, "kmsg.sequence");
    xc_check_state_set(&new, 9, "kmsg.sequence");
    const char *file = path_in("counters");
    int64_t value = 0;
    assert_int_equal(counters_keep(&new, file, NULL), 0);
    assert_int_equal(counters_keep(&old, file, NULL), 0);
    assert_int_equal(xc_check_state_read(file, &back, NULL), 0);
    assert_true(xc_check_state_get(&back, "kmsg.sequence", &value));
    assert_int_equal(value, 9);
    xc_check_state_clear(&back);
    snprintf(old.boot_id, sizeof old.boot_id, "next"); /* another boot counts from its own start */
    assert_int_equal(xc_check_state_write(&old, path_in("pending"), NULL), 0);
    assert_int_equal(counters_take(path_in("pending"), file, NULL), 0);
    assert_int_equal(access(path_in("pending"), F_OK), -1);
    assert_int_equal(xc_check_state_read(file, &back, NULL), 0);
    assert_true(xc_check_state_get(&back, "kmsg.sequence", &value));
    assert_int_equal(value, 5);
    xc_check_state_clear(&back);
    xc_check_state_clear(&old);
    xc_check_state_clear(&new);
}

static void counters_of_runs_that_were_killed_go(void **state)
{
    (void)state;
    struct xc_check_state counters = {.at_us = 1};
    char killed[32], alive[32];
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(killed, sizeof killed, "counters.prolog.%d", (int)pid);
    snprintf(alive, sizeof alive, "counters.prolog.%d", (int)getpid());
    const char *keeps[] = {alive, "counters.prolog", "counters.prolog.lock", "counters.health.1"};
    assert_int_equal(xc_check_state_write(&counters, path_in(killed), NULL), 0);
    for (size_t i = 0; i < XC_COUNT(keeps); i++)
        assert_int_equal(xc_check_state_write(&counters, path_in(keeps[i]), NULL), 0);
    counters_prune(path_in("counters.prolog"));
    assert_int_equal(access(path_in(killed), F_OK), -1);
    for (size_t i = 0; i < XC_COUNT(keeps); i++) {
        assert_int_equal(access(path_in(keeps[i]), F_OK), 0);
        unlink(path_in(keeps[i]));
    }
}

static void counts_of_many_programs_at_once_are_whole(void **state)
{
    (void)state;
    struct program program = {.kind = XC_PROLOG, .name = "xcloud-prolog", .prefix = work};
    struct xc_check_state back;
    int64_t value = 0;
    assert_int_equal(xc_make_dirs(path_in("run/xcloud"), 0755, NULL), 0);
    for (int i = 0; i < 20; i++)
        if (fork() == 0) {
            for (int k = 0; k < 5; k++)
                tally_add(&program, "prolog.runs", 1);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    assert_int_equal(xc_check_state_read(path_in("run/xcloud/tally"), &back, NULL), 0);
    assert_true(xc_check_state_get(&back, "prolog.runs", &value));
    assert_int_equal(value, 100);
    xc_check_state_clear(&back);
}

static void refused_nodes_ask_seldom_and_not_together(void **state)
{
    (void)state;
    static const struct {
        size_t nodes;
        unsigned least, most;
    } cases[] = {
        {0, 45, 75}, {1, 22, 38}, {100, 22, 38}, {10000, 1500, 2500}, {1000000, 2700, 4500}};
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        unsigned low = UINT_MAX, high = 0;
        for (uint64_t random = 0; random < 20000; random += 7) {
            unsigned wait = xc_breaker_wait_s(cases[i].nodes, random);
            low = wait < low ? wait : low;
            high = wait > high ? wait : high;
        }
        if (low < cases[i].least || high > cases[i].most || high - low < cases[i].least / 2)
            fail_msg("%zu nodes: %u to %u s", cases[i].nodes, low, high);
    }
}

static void a_refusal_holds_for_its_policy_finding_and_job(void **state)
{
    (void)state;
    struct program program = {.kind = XC_PROLOG, .prefix = work, .job = 7};
    struct shared *shared = xc_guard_share(sizeof *shared);
    char why[500];
    strcpy(shared->hash, "abc");
    strcpy(shared->code, "MEM01");
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    assert_int_equal(backoff_begin(&program, shared, 100, false, "8 nodes\nwere", NULL), 0);
    unsigned left = backoff_left(&program, shared, why, sizeof why);
    assert_true(left > 97 && left <= 100);
    assert_string_equal(why, "8 nodes?were");
    program.job = 8;
    assert_true(backoff_left(&program, shared, why, sizeof why) > 0);
    strcpy(shared->code, "GPU01"); /* another finding may be hardware */
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    strcpy(shared->code, "MEM01");
    strcpy(shared->hash, "abd"); /* the limit may be another */
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    assert_int_equal(backoff_begin(&program, shared, 100, true, "of the job", NULL), 0);
    assert_true(backoff_left(&program, shared, why, sizeof why) > 0);
    program.job = 9;
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    program.job = 8;
    assert_int_equal(backoff_begin(&program, shared, 0, true, "over", NULL), 0);
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    assert_int_equal(backoff_begin(&program, shared, 1000000, false, "another boot", NULL), 0);
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    static const char *const bad[] = {"", "xcloud-refused 2\nuntil 9999999\n",
                                      "xcloud-refused 1\nuntil x\n", "xcloud-refused 1\nuntil"};
    for (size_t i = 0; i < XC_COUNT(bad); i++) {
        assert_int_equal(
            xc_write_atomic(path_in("run/xcloud/refused"), bad[i], strlen(bad[i]), 0644, NULL), 0);
        assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
    }
    assert_int_equal(backoff_begin(&program, shared, 100, false, "x", NULL), 0);
    backoff_end(&program);
    assert_int_equal(backoff_left(&program, shared, why, sizeof why), 0);
}

static void marks_come_and_go(void **state)
{
    (void)state;
    struct program program = {.kind = XC_PROLOG, .prefix = work, .job = 77};
    const char *file = path_in("run/xcloud/refuse/77");
    assert_int_equal(mark_write(&program, "", NULL), 0);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(mark_write(&program, "refuse x\nwarn y\n", NULL), 0);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(mark_write(&program, "", NULL), 0); /* a later prolog of the job has no word */
    assert_int_equal(access(file, F_OK), -1);
    mark_remove(&program); /* an epilog may run twice */
}

static void what_is_said_stays_within_its_room(void **state)
{
    (void)state;
    struct shared *shared = xc_guard_share(sizeof *shared);
    say(shared, SAY_ERROR, "a\nb\x1b[2Jc");
    assert_memory_equal(shared->lines, "3 a b [2Jc\n", 11);
    for (int i = 0; i < 2000; i++)
        say(shared, SAY_INFO, "%0*d", 100, i);
    assert_true(shared->length <= SHARED_LINES);
    assert_non_null(strstr(shared->lines, "more was to be said"));
    size_t length = shared->length;
    say(shared, SAY_INFO, "%0*d", 100, 1);
    assert_int_equal(shared->length, length);
}

/* ---- commands ----------------------------------------------------------------------------------------------------------- */

static const char *script(const char *name, const char *body, mode_t mode)
{
    const char *path = path_in(name);
    FILE *stream = fopen(path, "w");
    fprintf(stream, "#!/bin/sh\n%s\n", body);
    fclose(stream);
    chmod(path, mode);
    return path;
}

static void commands_have_an_end_and_no_environment(void **state)
{
    (void)state;
    struct xc_error error = {0};
    xc_autotext struct xc_text out = XC_TEXT_INIT;
    setenv("EVIL", "1", 1);
    const char *argv[] = {script("env", "env | grep -v ^_= | grep -v ^PWD= | sort | xargs", 0755),
                          NULL};
    assert_int_equal(run_command(argv, "/etc/s.conf", 5000, &out, &error), 0);
    assert_string_equal(
        out.data, "LC_ALL=C PATH=/usr/bin:/bin SLURM_CONF=/etc/s.conf SLURM_TIME_FORMAT=%s\n");
    const char *hang[] = {script("hang", "exec sleep 20", 0755), NULL};
    int64_t start = now_ms();
    assert_int_equal(run_command(hang, NULL, 200, NULL, &error), -1);
    assert_true(now_ms() - start < 3000);
    assert_non_null(strstr(error.message, "no answer within 200 ms"));
    const char *fails[] = {script("fails", "echo slurm is down >&2; exit 3", 0755), NULL};
    assert_int_equal(run_command(fails, NULL, 5000, NULL, &error), -1);
    assert_non_null(strstr(error.message, "status 3: slurm is down"));
    const char *open[] = {script("open", "exit 0", 0777), NULL};
    assert_int_equal(run_command(open, NULL, 5000, NULL, &error), -1);
    assert_int_equal(error.code, XC_EOWNER);
    struct slurm_tools tools;
    assert_int_equal(find_tools("bin/scontrol", &tools, &error), -1);
    assert_int_equal(find_tools("/nowhere/scontrol", &tools, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
}

/* ---- the programs as a whole ---------------------------------------------------------------------------------------------- */

static int program_main(const char *node)
{
    const char *policy = path_in("policy.yaml");
    char *argv[] = {"xcloud-prolog", "--prefix", work, "--policy", (char *)(uintptr_t)policy, NULL};
    setenv("SLURMD_NODENAME", node, 1);
    setenv("SLURM_JOB_ID", "5", 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        _exit(xc_program_main(XC_PROLOG, 5, argv));
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void hostile_surroundings_end_with_zero(void **state)
{
    (void)state;
    FILE *stream = fopen(path_in("policy.yaml"), "w");
    fputs("version: 1\nmode: enforce\ndefaults:\n  checks_root: /nowhere/%n\n", stream);
    fclose(stream);
    static const char *const nodes[] = {"n1", "../../etc", "a b", "-n", "", "$(id)", "a\nb"};
    for (size_t i = 0; i < XC_COUNT(nodes); i++)
        assert_int_equal(program_main(nodes[i]), 0);
    setenv("SLURM_JOB_GPUS", "0,1,,x,99999999999999999999,-1,MIG-1/2", 1);
    setenv("SLURM_JOB_ID", "99999999999999999999999", 1);
    stream = fopen(path_in("policy.yaml"), "w");
    fputs("version: 1\nmode: enforce\ndefaults:\n  checks: { mem.total: { total: 999999, on_fail: "
          "drain } }\n",
          stream);
    fclose(stream);
    assert_int_equal(program_main("n1"), 0); /* it fails, and is not armed */
}

static int make_work(void **state)
{
    (void)state;
    return mkdtemp(work) && chmod(work, 0755) == 0 ? 0 : -1;
}

static int remove_work(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_that_ends_is_seen),
        cmocka_unit_test(a_fifo_that_never_answers_ends_at_the_deadline),
        cmocka_unit_test(the_child_can_ask_for_more_time),
        cmocka_unit_test(a_crash_is_told_from_an_end),
        cmocka_unit_test(what_is_left_behind_does_not_hold_slurmds_pipe),
        cmocka_unit_test(stuck_children_are_remembered_until_they_end),
        cmocka_unit_test(more_stuck_children_than_there_is_room_for_are_counted),
        cmocka_unit_test(reasons_are_one_harmless_line),
        cmocka_unit_test(sinfo_is_read_or_refused),
        cmocka_unit_test(limits_are_the_smaller_and_never_below_one),
        cmocka_unit_test(before_a_drain_others_within_the_window_count),
        cmocka_unit_test(of_those_that_drained_at_once_the_first_stay),
        cmocka_unit_test(the_same_finding_waits_longer_and_longer),
        cmocka_unit_test(many_at_once_get_no_more_slots_than_there_are),
        cmocka_unit_test(slots_are_free_again_after_a_window_unless_many_are_refused),
        cmocka_unit_test(a_slot_of_one_limit_is_given_back_when_another_is_full),
        cmocka_unit_test(a_node_comes_back_after_clean_runs_and_quiet_time),
        cmocka_unit_test(only_listed_checks_bring_a_node_back_and_no_lemon),
        cmocka_unit_test(a_clock_that_was_wrong_keeps_no_node_drained),
        cmocka_unit_test(the_record_of_drains_survives_and_garbage_does_not),
        cmocka_unit_test(the_run_that_began_last_has_the_last_word),
        cmocka_unit_test(counters_of_runs_that_were_killed_go),
        cmocka_unit_test(counts_of_many_programs_at_once_are_whole),
        cmocka_unit_test(refused_nodes_ask_seldom_and_not_together),
        cmocka_unit_test(a_refusal_holds_for_its_policy_finding_and_job),
        cmocka_unit_test(marks_come_and_go),
        cmocka_unit_test(what_is_said_stays_within_its_room),
        cmocka_unit_test(commands_have_an_end_and_no_environment),
        cmocka_unit_test(hostile_surroundings_end_with_zero),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
