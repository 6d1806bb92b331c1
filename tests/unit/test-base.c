/* Do errors, texts, sets, lists, roots, owner checks, JSON and tables do what base.h says? */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <xcloud/base.h>

/* ---- a temporary directory ----------------------------------------------------------------------- */

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    umask(022);
    strcpy(scratch, "/tmp/xcloud-base.XXXXXX");
    return mkdtemp(scratch) && chmod(scratch, 0755) == 0 ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    return system(command);
}

/* A path below the scratch directory; a few of them are alive at a time. */
static const char *at(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(at(name), 0644), 0);
}

static void put_dir(const char *name)
{
    assert_int_equal(mkdir(at(name), 0755), 0);
}

static void put_link(const char *target, const char *name)
{
    assert_int_equal(symlink(target, at(name)), 0);
}

static size_t count_entries(const char *name)
{
    struct xc_root *root;
    assert_int_equal(xc_root_open_dir("/", &root, NULL), 0);
    char **names = xc_root_list(root, "%s", at(name));
    assert_non_null(names);
    size_t count = 0;
    while (names[count])
        count++;
    xc_names_free(&names);
    xc_root_close(root);
    return count;
}

static void need_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* ---- errors -------------------------------------------------------------------------------------- */

static void an_error_is_wrapped_and_keeps_code_and_place(void **state)
{
    (void)state;
    struct xc_error error = {0};
    char text[256];
    assert_int_equal(xc_error_set(&error, XC_EOWNER, "file:3:1", "not %d", 7), -1);
    assert_int_equal(xc_error_wrap(&error, "while %s", "reading"), -1);
    assert_int_equal(error.code, XC_EOWNER);
    assert_string_equal(error.message, "while reading: not 7");
    assert_string_equal(xc_error_text(&error, text, sizeof text), "file:3:1: while reading: not 7");
    xc_error_set(&error, XC_EINPUT, NULL, "plain");
    assert_string_equal(xc_error_text(&error, text, sizeof text), "plain");
    assert_int_equal(xc_error_set(NULL, XC_EINPUT, "a", "b"), -1);
    assert_int_equal(xc_error_wrap(NULL, "b"), -1);
}

static void long_error_texts_are_cut_never_overrun(void **state)
{
    (void)state;
    struct {
        struct xc_error error;
        char guard[16];
    } box;
    memset(&box, 'G', sizeof box);
    char big[4096];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    xc_error_set(&box.error, XC_EINPUT, big, "%s", big);
    assert_int_equal(strlen(box.error.where), sizeof box.error.where - 1);
    assert_int_equal(strlen(box.error.message), sizeof box.error.message - 1);
    xc_error_wrap(&box.error, "short");
    assert_int_equal(strlen(box.error.message), sizeof box.error.message - 1);
    assert_true(xc_starts(box.error.message, "short: xxx"));
    xc_error_wrap(&box.error, "%s", big);
    assert_int_equal(strlen(box.error.message), sizeof box.error.message - 1);
    char *room = big;
    room[sizeof box.error.message - 2] = '\0'; /* room for one more character: the colon */
    xc_error_wrap(&box.error, "%s", room);
    assert_int_equal(strlen(box.error.message), sizeof box.error.message - 1);
    for (size_t i = 0; i < sizeof box.guard; i++)
        assert_int_equal(box.guard[i], 'G');
    char one[1];
    assert_string_equal(xc_error_text(&box.error, one, sizeof one), "");
}

static void errno_becomes_a_code_and_its_words(void **state)
{
    (void)state;
    static const struct {
        int number;
        enum xc_code code;
    } cases[] = {{ENOENT, XC_ENOENT}, {ENOTDIR, XC_ENOENT}, {ENOMEM, XC_ENOMEM}, {EIO, XC_ESYS}};
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        errno = cases[i].number;
        xc_error_errno(&error, "/p", "cannot do it");
        assert_int_equal(error.code, cases[i].code);
        assert_true(xc_starts(error.message, "cannot do it: "));
        assert_non_null(strstr(error.message, strerror(cases[i].number)));
    }
}

/* ---- text ---------------------------------------------------------------------------------------- */

static void a_text_grows_and_is_taken_once(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    for (int i = 0; i < 20000; i++)
        xc_text_addf(&text, "%d,", i % 10);
    xc_text_add_n(&text, "a\0b", 3);
    assert_int_equal(text.length, 40003);
    char *taken = xc_text_take(&text);
    assert_memory_equal(taken, "0,1,2,3,", 8);
    assert_memory_equal(taken + 40000, "a\0b", 4);
    free(taken);
    assert_null(text.data);
    taken = xc_text_take(&text);
    assert_string_equal(taken, "");
    free(taken);
}

static void a_failed_text_stays_failed(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    xc_text_add(&text, "before");
    text.failed = true;
    xc_text_add(&text, "after");
    xc_text_addf(&text, "%d", 1);
    assert_int_equal(text.length, 6);
    assert_null(xc_text_take(&text));
    xc_text_free(&text);
    xc_text_free(NULL);
}

/* ---- strings ------------------------------------------------------------------------------------- */

static void null_equals_null_alone(void **state)
{
    (void)state;
    assert_true(xc_streq(NULL, NULL));
    assert_false(xc_streq(NULL, ""));
    assert_false(xc_streq("", NULL));
    assert_true(xc_streq("a", "a"));
    assert_true(xc_starts("abc", ""));
    assert_true(xc_starts("abc", "ab"));
    assert_false(xc_starts("a", "ab"));
}

static void trim_takes_blanks_from_both_ends(void **state)
{
    (void)state;
    char both[] = " \t a b\n\r\n", blank[] = " \n", empty[] = "";
    assert_string_equal(xc_trim(both), "a b");
    assert_string_equal(xc_trim(blank), "");
    assert_string_equal(xc_trim(empty), "");
}

static void a_number_is_whole_and_in_its_limits(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        " 1",
                                        "1 ",
                                        "+1",
                                        "1x",
                                        "0x1",
                                        "-",
                                        "--1",
                                        "1\n",
                                        "1.0",
                                        "11",
                                        "-6",
                                        "9223372036854775808",
                                        "99999999999999999999999"};
    long out = 42;
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        assert_false(xc_to_long(wrong[i], -5, 10, &out));
        assert_int_equal(out, 42);
    }
    assert_true(xc_to_long("-5", -5, 10, &out) && out == -5);
    assert_true(xc_to_long("0010", -5, 10, &out) && out == 10);
    assert_false(xc_to_long("-0", 0, 10, &out)); /* no sign before an unsigned one */
    assert_true(xc_to_long("9223372036854775807", 0, INT64_MAX, &out) && out == INT64_MAX);
    assert_true(xc_to_long("-9223372036854775808", INT64_MIN, 0, &out) && out == INT64_MIN);
}

static void the_nearest_word_is_one_that_was_meant(void **state)
{
    (void)state;
    static const char *const words[] = {"verbose", "explain", "strict", "dry", NULL};
    static const char *const none[] = {NULL};
    assert_string_equal(xc_nearest("verbos", words), "verbose");
    assert_string_equal(xc_nearest("exlpain", words), "explain");
    assert_string_equal(xc_nearest("dri", words), "dry");
    assert_null(xc_nearest("housekeeping", words));
    assert_null(xc_nearest("verbose", none));
    char big[300];
    memset(big, 'v', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_null(xc_nearest(big, words));
}

static void the_hash_is_fnv_1a(void **state)
{
    (void)state;
    assert_true(xc_hash64("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(xc_hash64("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(xc_hash64("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

static void a_glob_knows_stars_and_question_marks(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "anything", true},
        {"a*c", "abbc", true},
        {"a*c", "abcd", false},
        {"?", "", false},
        {"?", "x", true},
        {"mlx5_?", "mlx5_10", false},
        {"*a*b*", "xxayyb", true},
        {"*a*b*", "xxbyya", false},
        {"a**", "a", true},
        {"*.txt", "a.txt.txt", true},
        {"[ab]", "a", false},
        {"[ab]", "[ab]", true},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++)
        if (xc_glob(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].name);
}

/* ---- host lists ---------------------------------------------------------------------------------- */

static void host_lists_are_read_as_slurm_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *list, *name;
        int in;
    } cases[] = {
        {"gpu1", "gpu1", 1},
        {"gpu1", "gpu10", 0},
        {"gpu10", "gpu1", 0},
        {"gpu[1-3]", "gpu2", 1},
        {"gpu[1-3]", "gpu4", 0},
        {"gpu[1-3]", "gpu02", 0}, /* the width is part of the name */
        {"gpu[1-3]", "gpu", 0},
        {"gpu[001-064,070],login1", "gpu064", 1},
        {"gpu[001-064,070],login1", "gpu070", 1},
        {"gpu[001-064,070],login1", "gpu065", 0},
        {"gpu[001-064,070],login1", "gpu64", 0},
        {"gpu[001-064,070],login1", "login1", 1},
        {"gpu[001-064,070],login1", "login", 0},
        {"gpu[008-1200]", "gpu1100", 1},
        {"gpu[008-1200]", "gpu0100", 0},
        {"r[1-2]n[01-16]-ib", "r2n16-ib", 1},
        {"r[1-2]n[01-16]-ib", "r2n17-ib", 0},
        {"r[1-2]n[01-16]-ib", "r2n16", 0},
        {"r[1-2][01-16]", "r116", 1}, /* brackets side by side */
        {"r[1-2][01-16]", "r316", 0},
        {"r[1-20]5", "r25", 1}, /* digits behind a bracket */
        {"r[1-20]5", "r2", 0},
        {"login*,cn?", "login-head", 1},
        {"login*,cn?", "cn7", 1},
        {"login*,cn?", "cn77", 0},
        {"*[1-3]", "any12", 1},
        {"*[1-3]", "any14", 0},
        {"n[1-999999999]", "n999999999", 1},
        {"n[1-999999999]", "n9999999999", 0},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        if (xc_hostlist_has(cases[i].list, cases[i].name, &error) != cases[i].in)
            fail_msg("\"%s\" and %s: %s", cases[i].list, cases[i].name, error.message);
    }
}

static void a_host_list_that_cannot_be_read_says_why_for_every_name(void **state)
{
    (void)state;
    static const struct {
        const char *list, *why;
    } cases[] = {
        {"", "an entry is empty"},
        {"a,,b", "an entry is empty"},
        {"a,", "an entry is empty"},
        {",a", "an entry is empty"},
        {"gpu[1-3", "brackets do not match"},
        {"gpu1-3]", "brackets do not match"},
        {"gpu[1-[3]]", "brackets do not match"},
        {"gpu[]", "a bracket holds numbers and ranges"},
        {"gpu[a-b]", "brackets do not match"},
        {"gpu[3-1]", "a bracket holds numbers and ranges"},
        {"gpu[1-]", "a bracket holds numbers and ranges"},
        {"gpu[-1]", "a bracket holds numbers and ranges"},
        {"gpu[1,]", "a bracket holds numbers and ranges"},
        {"gpu[1-2-3]", "a bracket holds numbers and ranges"},
        {"gpu[1234567890]", "a bracket holds numbers and ranges"},
        {"ok1,gpu[2-1]", "a bracket holds numbers and ranges"},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        const char *const names[] = {"gpu1", "x", "ok1", ""};
        for (size_t n = 0; n < XC_COUNT(names); n++)
            if (xc_hostlist_has(cases[i].list, names[n], &error) != -1)
                fail_msg("\"%s\" is taken with %s", cases[i].list, names[n]);
        assert_int_equal(error.code, XC_EINPUT);
        if (!strstr(error.message, cases[i].why))
            fail_msg("\"%s\": %s", cases[i].list, error.message);
        assert_int_equal(xc_hostlist_has(cases[i].list, "x", NULL), -1);
    }
}

/* ---- sets ---------------------------------------------------------------------------------------- */

static void lists_are_read_and_written_as_the_kernel_does(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"\n", ""},
        {"0", "0"},
        {"0-7,56-63\n", "0-7,56-63"},
        {"63,1,0,2", "0-2,63"},
        {" 1 , 3-4 \n", "1,3-4"},
        {"0-3,2-5", "0-5"},
        {"5-5", "5"},
        {"0-30:2/4", "0-1,4-5,8-9,12-13,16-17,20-21,24-25,28-29"},
        {"1-9:1/3", "1,4,7"},
        {"0-9:4/4", "0-9"},
        {"8191,65535", "8191,65535"},
        {"63-64,127-128", "63-64,127-128"},
    };
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        if (xc_set_parse_list(&set, cases[i].in, "here", &error) < 0)
            fail_msg("\"%s\": %s", cases[i].in, error.message);
        xc_autofree char *text = xc_set_format(&set);
        assert_string_equal(text, cases[i].out);
    }
}

static void a_wrong_list_says_what_is_wrong_and_takes_no_memory(void **state)
{
    (void)state;
    static const struct {
        const char *in, *why;
    } cases[] = {
        {"a", "a number is missing"},          {"-1", "a number is missing"},
        {"1,,2", "a number is missing"},       {"1-", "the end of a range is missing"},
        {"3-1", "a range runs backwards"},     {"1,", "it ends with a comma"},
        {"1 2", "a comma is missing"},         {"1;2", "a comma is missing"},
        {"0-4000000000", "larger than 65535"}, {"99999999999999999999999999", "larger than 65535"},
        {"65536", "larger than 65535"},        {"0-9:2", "N-M:USED/GROUP"},
        {"0-9:2/", "N-M:USED/GROUP"},          {"0-9:/2", "N-M:USED/GROUP"},
        {"0-9:0/2", "0 < USED <= GROUP"},      {"0-9:3/2", "0 < USED <= GROUP"},
        {"5:1/2", "a comma is missing"},
    };
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        xc_autoset struct xc_set set = XC_SET_EMPTY;
        if (xc_set_parse_list(&set, cases[i].in, "file:9", &error) != -1)
            fail_msg("\"%s\" is taken", cases[i].in);
        assert_int_equal(error.code, XC_EINPUT);
        assert_string_equal(error.where, "file:9");
        if (!strstr(error.message, cases[i].why))
            fail_msg("\"%s\": %s", cases[i].in, error.message);
        assert_true(set.nwords <= 65536 / 64);
        assert_int_equal(xc_set_parse_list(&set, cases[i].in, "x", NULL), -1);
    }
}

static void masks_are_read_as_the_kernel_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"0", ""},
        {"ff\n", "0-7"},
        {"0xFf", "0-7"},
        {"00000000,000000ff", "0-7"},
        {"1,00000000,80000000", "31,64"},
        {"ff00000000ff", "0-7,40-47"}, /* taskset's, without commas */
    };
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    for (size_t i = 0; i < XC_COUNT(cases); i++) {
        struct xc_error error = {0};
        if (xc_set_parse_mask(&set, cases[i].in, "here", &error) < 0)
            fail_msg("\"%s\": %s", cases[i].in, error.message);
        xc_autofree char *text = xc_set_format(&set);
        assert_string_equal(text, cases[i].out);
    }
    static const char *const wrong[] = {"",    "0x",        "g",           ",",
                                        "1,2", "1,",        "1 1",         "0x0x1",
                                        "-1",  ",00000001", "1,123456789", "1,,00000001"};
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        struct xc_error error = {0};
        if (xc_set_parse_mask(&set, wrong[i], "here", &error) != -1)
            fail_msg("\"%s\" is taken", wrong[i]);
        assert_int_equal(error.code, XC_EINPUT);
    }
    char far[16386 + 2]; /* bit 65536, and longer than any mask */
    memset(far, '0', sizeof far - 1);
    far[0] = '1';
    far[16385] = '\0';
    struct xc_error error = {0};
    assert_int_equal(xc_set_parse_mask(&set, far, "here", &error), -1);
    assert_int_equal(error.code, XC_EINPUT);
    assert_non_null(strstr(error.message, "65535"));
}

/* A model without cleverness: one bool a member. */
#define MODEL 3000
struct model {
    bool in[MODEL];
};
static uint64_t seed = 20240607;

static unsigned rnd(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % below;
}

static void fill(struct xc_set *set, struct model *model)
{
    xc_set_clear(set);
    memset(model, 0, sizeof *model);
    unsigned limit = rnd(8) ? 1 + rnd(MODEL - 1) : 1 + rnd(70); /* sets of different widths */
    for (unsigned runs = rnd(12); runs-- > 0;) {
        unsigned first = rnd(limit), last = first + rnd(90);
        if (last >= limit)
            last = limit - 1;
        xc_set_add_range(set, first, last);
        for (unsigned i = first; i <= last; i++)
            model->in[i] = true;
    }
    for (unsigned some = rnd(20); some-- > 0;) {
        unsigned member = rnd(limit);
        if (rnd(2))
            xc_set_add(set, member);
        else
            xc_set_del(set, member);
        model->in[member] = xc_set_has(set, member);
    }
}

static void same(const struct xc_set *set, const struct model *model)
{
    size_t count = 0;
    ssize_t next = xc_set_next(set, 0);
    for (size_t i = 0; i < MODEL; i++) {
        assert_int_equal(xc_set_has(set, i), model->in[i]);
        count += model->in[i];
        if (model->in[i]) {
            assert_int_equal(next, i);
            next = xc_set_next(set, i + 1);
        }
    }
    assert_int_equal(next, -1);
    assert_int_equal(xc_set_count(set), count);
    assert_int_equal(xc_set_empty(set), count == 0);
    assert_false(set->failed);
}

static void compare_pair(const struct xc_set *a, const struct model *ma, const struct xc_set *b,
                         const struct model *mb)
{
    size_t common = 0;
    bool equal = true, subset = true;
    for (size_t i = 0; i < MODEL; i++) {
        common += ma->in[i] && mb->in[i];
        equal &= ma->in[i] == mb->in[i];
        subset &= !ma->in[i] || mb->in[i];
    }
    assert_int_equal(xc_set_common(a, b), common);
    assert_int_equal(xc_set_intersects(a, b), common > 0);
    assert_int_equal(xc_set_equal(a, b), equal);
    assert_int_equal(xc_set_subset(a, b), subset);
}

static void every_operation_agrees_with_a_naive_model(void **state)
{
    (void)state;
    xc_autoset struct xc_set a = XC_SET_EMPTY, b = XC_SET_EMPTY, c = XC_SET_EMPTY;
    static struct model ma, mb, mc;
    for (int round = 0; round < 300; round++) {
        fill(&a, &ma);
        fill(&b, &mb);
        same(&a, &ma);
        compare_pair(&a, &ma, &b, &mb);
        xc_set_copy(&c, &a);
        same(&c, &ma);
        compare_pair(&c, &ma, &a, &ma);
        switch (round % 3) {
        case 0:
            xc_set_or(&c, &b);
            break;
        case 1:
            xc_set_and(&c, &b);
            break;
        default:
            xc_set_andnot(&c, &b);
        }
        for (size_t i = 0; i < MODEL; i++)
            mc.in[i] = round % 3 == 0   ? ma.in[i] || mb.in[i]
                       : round % 3 == 1 ? ma.in[i] && mb.in[i]
                                        : ma.in[i] && !mb.in[i];
        same(&c, &mc);
        compare_pair(&c, &mc, &b, &mb);
        xc_autofree char *list = xc_set_format(&c);
        assert_int_equal(xc_set_parse_list(&b, list, "list", NULL), 0);
        same(&b, &mc);
    }
}

static void operations_on_the_same_set_are_sound(void **state)
{
    (void)state;
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_set_add_range(&set, 60, 70);
    xc_set_copy(&set, &set);
    xc_set_or(&set, &set);
    xc_set_and(&set, &set);
    assert_int_equal(xc_set_count(&set), 11);
    assert_true(xc_set_subset(&set, &set) && xc_set_equal(&set, &set));
    xc_set_andnot(&set, &set);
    assert_true(xc_set_empty(&set));
    xc_set_free(NULL);
}

static void beyond_the_limit_fails_and_the_failure_travels(void **state)
{
    (void)state;
    xc_autoset struct xc_set bad = XC_SET_EMPTY, to = XC_SET_EMPTY;
    xc_set_add(&bad, XC_SET_LIMIT);
    assert_true(bad.failed);
    void (*const all[])(struct xc_set *, const struct xc_set *) = {xc_set_copy, xc_set_or,
                                                                   xc_set_and, xc_set_andnot};
    for (size_t i = 0; i < XC_COUNT(all); i++) {
        to.failed = false;
        all[i](&to, &bad);
        assert_true(to.failed);
    }
    xc_set_add(&to, 3); /* sticks */
    xc_set_clear(&to);
    assert_true(to.failed);
    assert_int_equal(xc_set_parse_list(&to, "1", "x", NULL), 0); /* a new value, a new start */
    assert_false(to.failed);
    xc_set_add_range(&to, 0, SIZE_MAX); /* and takes no time */
    assert_true(to.failed);
    xc_set_del(&to, SIZE_MAX);
    assert_false(xc_set_has(&to, SIZE_MAX));
    assert_int_equal(xc_set_next(&to, SIZE_MAX), -1);
}

/* ---- roots --------------------------------------------------------------------------------------- */

static void make_machine(void)
{
    put_dir("m");
    put_dir("m/sys");
    put_dir("m/sys/devices");
    put("m/sys/devices/number", "0x10\n");
    put("m/sys/devices/list", "0-3,8\n");
    put("m/sys/devices/junk", "12 monkeys\n");
    put("m/sys/devices/lines", "first\nsecond\n");
    put("secret", "outside\n");
    put_link("../../secret", "m/sys/up");
    put_link("/secret", "m/sys/top");
    put_link("../../../../../../../../etc", "m/sys/etc");
    put_link("/sys/devices", "m/sys/class");
    put_link("loop", "m/sys/loop");
    put_link("/proc/self/root/etc/passwd", "m/sys/magic");
    assert_int_equal(mkfifo(at("m/sys/fifo"), 0644), 0);
}

static void a_directory_root_reads_and_cannot_be_left(void **state)
{
    (void)state;
    make_machine();
    struct xc_error error = {0};
    xc_autoroot struct xc_root *root = NULL;
    if (xc_root_open_dir(at("m"), &root, &error) < 0 && error.code == XC_ENOTSUP)
        skip(); /* Linux before 5.6 */
    assert_non_null(root);
    assert_string_equal(xc_root_name(root), at("m"));
    assert_false(xc_root_is_live(root));
    static const char *const outside[] = {"/sys/up",    "/sys/top",      "/sys/etc/passwd",
                                          "/sys/magic", "/../../secret", "/sys/loop"};
    for (size_t i = 0; i < XC_COUNT(outside); i++) {
        if (xc_root_exists(root, "%s", outside[i]))
            fail_msg("%s leaves the root", outside[i]);
        assert_null(xc_root_read(root, NULL, &error, "%s", outside[i]));
        assert_null(xc_root_canonical(root, "%s", outside[i]));
    }
    xc_autofree char *canonical = xc_root_canonical(root, "/sys/class/%s", "number");
    assert_string_equal(canonical, "/sys/devices/number");
    xc_autofree char *top = xc_root_canonical(root, "/sys/..");
    assert_string_equal(top, "/");
}

static void a_root_reads_numbers_lines_sets_and_directories(void **state)
{
    (void)state;
    xc_autoroot struct xc_root *root = NULL;
    if (xc_root_open_dir(at("m"), &root, NULL) < 0)
        skip();
    long number = 7;
    assert_true(xc_root_read_long(root, &number, "/sys/class/number") && number == 16);
    assert_false(xc_root_read_long(root, &number, "/sys/class/junk"));
    assert_false(xc_root_read_long(root, &number, "/sys/class/none"));
    assert_int_equal(number, 16);
    xc_autofree char *line = xc_root_read_line(root, "/sys/devices/lines");
    assert_string_equal(line, "first");
    assert_null(xc_root_read_line(root, "/sys/devices/none"));
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    assert_true(xc_root_read_set(root, &set, "/sys/devices/list"));
    assert_int_equal(xc_set_count(&set), 5);
    assert_false(xc_root_read_set(root, &set, "/sys/devices/junk"));
    xc_autonames char **names = xc_root_list(root, "/sys/devices");
    static const char *const want[] = {"junk", "lines", "list", "number", NULL};
    for (size_t i = 0; i < XC_COUNT(want); i++)
        assert_true(xc_streq(names[i], want[i]));
    assert_null(xc_root_list(root, "/sys/devices/number"));
    size_t length = 0;
    xc_autofree char *whole = xc_root_read(root, &length, NULL, "/sys/devices/lines");
    assert_int_equal(length, 13);
    assert_string_equal(whole, "first\nsecond\n");
    char first[8] = "";
    assert_int_equal(xc_root_read_start(root, first, 5, "/sys/devices/%s", "lines"), 5);
    assert_string_equal(first, "first");
    assert_int_equal(xc_root_read_start(root, first, sizeof first, "/sys/devices/number"), 5);
    static const char *const none[] = {"/sys/devices", "/sys/fifo", "/sys/none", "/sys/up"};
    for (size_t i = 0; i < XC_COUNT(none); i++)
        assert_int_equal(xc_root_read_start(root, first, sizeof first, "%s", none[i]), -1);
}

static void what_is_no_file_of_a_sane_size_is_refused_at_once(void **state)
{
    (void)state;
    xc_autoroot struct xc_root *root = NULL;
    if (xc_root_open_dir(at("m"), &root, NULL) < 0)
        skip();
    struct xc_error error = {0};
    assert_null(xc_root_read(root, NULL, &error, "/sys/fifo")); /* and does not wait for a writer */
    assert_int_equal(error.code, XC_ESYS);
    assert_null(xc_root_read(root, NULL, &error, "/sys/devices"));
    assert_int_equal(error.code, XC_ESYS);
    assert_null(xc_root_read(root, NULL, &error, "/sys/none"));
    assert_int_equal(error.code, XC_ENOENT);
    assert_string_equal(error.where, "/sys/none");
    put("m/big", "");
    assert_int_equal(truncate(at("m/big"), XC_READ_LIMIT), 0);
    size_t length = 0;
    xc_autofree char *full = xc_root_read(root, &length, &error, "/big");
    assert_non_null(full);
    assert_int_equal(length, XC_READ_LIMIT);
    assert_int_equal(truncate(at("m/big"), XC_READ_LIMIT + 1), 0);
    assert_null(xc_root_read(root, NULL, &error, "/big"));
    assert_non_null(strstr(error.message, strerror(EFBIG)));
}

static void the_live_root_is_the_machine(void **state)
{
    (void)state;
    xc_autoroot struct xc_root *root = NULL;
    assert_int_equal(xc_root_open_dir("/", &root, NULL), 0);
    assert_true(xc_root_is_live(root));
    assert_true(xc_root_exists(root, "/proc/self/status"));
    struct xc_root *none = NULL;
    struct xc_error error = {0};
    assert_int_equal(xc_root_open_dir(at("nothing"), &none, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
    assert_int_equal(xc_root_open_dir(at("secret"), &none, &error), -1);
    assert_null(none);
    xc_root_close(NULL);
}

/* ---- trusted files ------------------------------------------------------------------------------- */

static void opens(const char *path)
{
    struct xc_error error = {0};
    int fd = xc_open_trusted(path, &error);
    if (fd < 0)
        fail_msg("%s: %s", path, error.message);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
}

static void refuses(const char *path, enum xc_code code, const char *why)
{
    struct xc_error error = {0};
    if (xc_open_trusted(path, &error) >= 0)
        fail_msg("%s is opened", path);
    assert_string_equal(error.where, path);
    if (error.code != code || !strstr(error.message, why))
        fail_msg("%s: code %d: %s", path, error.code, error.message);
    assert_int_equal(xc_open_trusted(path, NULL), -1);
}

static void a_file_is_trusted_when_all_of_its_path_is(void **state)
{
    (void)state;
    put_dir("t");
    put("t/file", "content");
    opens(at("t/file"));
    opens(at("t/../t/./file"));
    refuses("relative/file", XC_EINPUT, "absolute");
    refuses("", XC_EINPUT, "absolute");
    refuses("/", XC_EINPUT, "names no file");
    refuses(at("t/none"), XC_ENOENT, strerror(ENOENT));
    refuses(at("t/file/below"), XC_ENOENT, strerror(ENOTDIR));
    refuses(at("t"), XC_EOWNER, "regular file");
    assert_int_equal(mkfifo(at("t/fifo"), 0644), 0);
    refuses(at("t/fifo"), XC_EOWNER, "regular file");
    assert_int_equal(chmod(at("t/file"), 0664), 0);
    refuses(at("t/file"), XC_EOWNER, "0664");
    assert_int_equal(chmod(at("t/file"), 0602), 0);
    refuses(at("t/file"), XC_EOWNER, "writable");
    assert_int_equal(chmod(at("t/file"), 0644), 0);
    assert_int_equal(chmod(at("t"), 0775), 0);
    refuses(at("t/file"), XC_EOWNER, "directory on its path is writable");
    assert_int_equal(chmod(at("t"), 0757), 0);
    refuses(at("t/file"), XC_EOWNER, "directory on its path is writable");
    assert_int_equal(chmod(at("t"), 01777), 0); /* sticky: others cannot replace it */
    opens(at("t/file"));
    assert_int_equal(chmod(at("t"), 0755), 0);
}

/* A rename elsewhere makes the kernel answer EAGAIN to a walk over "..": a file that is there must not
 * seem missing because of it. */
static void renames_elsewhere_hide_no_file(void **state)
{
    (void)state;
    put_dir("r");
    put_dir("r/a");
    put_dir("r/b");
    put("r/b/file", "7");
    put_link("../b/file", "r/a/link");
    put("other", "x");
    xc_autofree char *from = strdup(at("other"));
    xc_autofree char *to = strdup(at("another"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    for (bool there = false; pid == 0; there = !there)
        if (rename(there ? to : from, there ? from : to) < 0)
            _exit(1);
    xc_autoroot struct xc_root *root = NULL;
    unsigned missed = 0;
    int rc = xc_root_open_dir(at("r"), &root, NULL);
    for (unsigned i = 0; rc == 0 && i < 300000; i++) {
        long value = 0;
        missed += !xc_root_read_long(root, &value, "/a/link") || value != 7;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(rc, 0);
    assert_int_equal(missed, 0);
}

static void links_of_a_trusted_path_are_judged_the_same(void **state)
{
    (void)state;
    put_dir("l");
    put_dir("l/open");
    put("l/open/file", "x");
    put("l/file", "x");
    put_link("file", "l/near");
    put_link(at("l/near"), "l/far"); /* absolute, through another link */
    put_link("../l/open", "l/dir");
    opens(at("l/near"));
    opens(at("l/far"));
    opens(at("l/dir/file"));
    assert_int_equal(chmod(at("l/open"), 0777), 0);
    refuses(at("l/dir/file"), XC_EOWNER, "directory on its path");
    put_link("loop", "l/loop");
    refuses(at("l/loop"), XC_EINPUT, "too many symbolic links");
    put_link("pong", "l/ping");
    put_link("ping", "l/pong");
    refuses(at("l/ping"), XC_EINPUT, "too many symbolic links");
    put_link("gone", "l/dangling");
    refuses(at("l/dangling"), XC_ENOENT, strerror(ENOENT));
}

static void what_another_user_owns_is_refused(void **state)
{
    (void)state;
    need_root();
    put_dir("o");
    put("o/file", "x");
    put_link("file", "o/link");
    opens(at("o/link"));
    assert_int_equal(lchown(at("o/link"), 65534, 65534), 0);
    refuses(at("o/link"), XC_EOWNER, "a link on its path belongs to uid 65534");
    assert_int_equal(chown(at("o/file"), 65534, 65534), 0);
    refuses(at("o/file"), XC_EOWNER, "it belongs to uid 65534");
    assert_int_equal(chown(at("o/file"), 0, 65534), 0); /* the group may be any that cannot write */
    opens(at("o/file"));
    assert_int_equal(chown(at("o"), 65534, 65534), 0);
    refuses(at("o/file"), XC_EOWNER, "directory on its path belongs to uid 65534");
    assert_int_equal(chmod(at("o"), 01755), 0); /* a sticky one of somebody else as well */
    refuses(at("o/file"), XC_EOWNER, "directory on its path belongs to uid 65534");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char path[8192];
    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    struct xc_error error = {0};
    assert_int_equal(xc_open_trusted(path, &error), -1);
    assert_int_equal(error.code, XC_EINPUT);
    path[300] = '\0'; /* one name longer than NAME_MAX */
    assert_int_equal(xc_open_trusted(path, &error), -1);
}

static void a_trusted_file_is_read_up_to_its_limit(void **state)
{
    (void)state;
    put("limited", "12345");
    size_t length;
    struct xc_error error = {0};
    xc_autofree char *text = xc_read_trusted(at("limited"), 5, &length, &error);
    assert_string_equal(text, "12345");
    assert_int_equal(length, 5);
    assert_null(xc_read_trusted(at("limited"), 4, &length, &error));
    assert_int_equal(error.code, XC_EINPUT);
    assert_non_null(strstr(error.message, "larger than 4 bytes"));
}

/* ---- files that are replaced --------------------------------------------------------------------- */

static void a_file_is_replaced_whole_with_its_mode(void **state)
{
    (void)state;
    put_dir("w");
    struct stat st;
    struct xc_error error = {0};
    assert_int_equal(xc_write_atomic(at("w/f"), "one", 3, 0600, &error), 0);
    assert_int_equal(stat(at("w/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    ino_t before = st.st_ino;
    int old = open(at("w/f"), O_RDONLY);
    mode_t mask = umask(077); /* the mode is what was asked for, whatever the mask */
    assert_int_equal(xc_write_atomic(at("w/f"), "second", 6, 0644, &error), 0);
    umask(mask);
    assert_int_equal(stat(at("w/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_not_equal(st.st_ino, before);
    assert_int_equal(st.st_size, 6);
    char text[8] = "";
    assert_int_equal(read(old, text, 7), 3); /* a reader of the old one keeps it */
    assert_string_equal(text, "one");
    close(old);
    assert_int_equal(count_entries("w"), 1);
}

static void a_failed_replacement_leaves_nothing_behind(void **state)
{
    (void)state;
    put_dir("f");
    put_dir("f/directory");
    put("f/directory/full", "");
    struct xc_error error = {0};
    assert_int_equal(xc_write_atomic(at("f/directory"), "x", 1, 0644, &error), -1);
    assert_int_equal(error.code, XC_ESYS);
    assert_string_equal(error.where, at("f/directory"));
    assert_int_equal(count_entries("f"), 1);
    assert_int_equal(xc_write_atomic(at("f/none/file"), "x", 1, 0644, &error), -1);
    assert_int_equal(error.code, XC_ENOENT);
}

static void directories_are_made_on_the_way(void **state)
{
    (void)state;
    struct xc_error error = {0};
    struct stat st;
    assert_int_equal(xc_make_dirs(at("d/e/f"), 0755, &error), 0);
    assert_int_equal(xc_make_dirs(at("d/e/f"), 0755, &error), 0);
    assert_int_equal(stat(at("d/e/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    put("d/file", "");
    assert_int_equal(xc_make_dirs(at("d/file/below"), 0755, &error), -1);
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_is_escaped_and_has_its_commas(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    struct xc_json json;
    xc_autoset struct xc_set set = XC_SET_EMPTY;
    xc_set_add_range(&set, 0, 7);
    xc_json_begin(&json, &text, false);
    xc_json_object(&json, NULL);
    xc_json_string(&json, "a\"b", "q\" b\\ n\n t\t c\x01 d\x7f \xc3\xa9");
    xc_json_string(&json, "none", NULL);
    xc_json_array(&json, "list");
    xc_json_int(&json, NULL, INT64_MIN);
    xc_json_bool(&json, NULL, true);
    xc_json_object(&json, NULL);
    xc_json_end(&json, '}');
    xc_json_array(&json, NULL);
    xc_json_end(&json, ']');
    xc_json_end(&json, ']');
    xc_json_set(&json, "set", &set);
    xc_json_end(&json, '}');
    xc_autofree char *out = xc_text_take(&text);
    assert_string_equal(out, "{\"a\\\"b\":\"q\\\" b\\\\ n\\n t\\u0009 c\\u0001 d\\u007f \xc3\xa9\","
                             "\"none\":null,\"list\":[-9223372036854775808,true,{},[]],"
                             "\"set\":\"0-7\"}");
}

static void pretty_json_is_indented(void **state)
{
    (void)state;
    struct xc_text text = XC_TEXT_INIT;
    struct xc_json json;
    xc_json_begin(&json, &text, true);
    xc_json_object(&json, NULL);
    xc_json_array(&json, "a");
    xc_json_int(&json, NULL, 1);
    xc_json_int(&json, NULL, 2);
    xc_json_end(&json, ']');
    xc_json_array(&json, "b");
    xc_json_end(&json, ']');
    xc_json_end(&json, '}');
    xc_autofree char *out = xc_text_take(&text);
    assert_string_equal(out, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}\n");
}

/* ---- tables -------------------------------------------------------------------------------------- */

static void a_table_aligns_its_columns(void **state)
{
    (void)state;
    xc_autotable struct xc_table table;
    struct xc_text text = XC_TEXT_INIT;
    xc_table_begin(&table, 4);
    table.right = 1 << 1;
    xc_table_row(&table);
    xc_table_cell(&table, 0, "Name");
    xc_table_cell(&table, 1, "Count");
    xc_table_cell(&table, 2, "Last");
    xc_table_row(&table);
    xc_table_cell(&table, 0, "\xc3\xa9t\xc3\xa9"); /* three characters in five bytes */
    xc_table_cell(&table, 1, "%d", 7);
    xc_table_cell(&table, 2, "x");
    xc_table_row(&table);
    xc_table_cell(&table, 0, "longer");
    xc_table_row(&table);
    xc_table_cell(&table, 2, "y");
    xc_table_cell(&table, 2, "z");    /* the last one counts */
    xc_table_cell(&table, 4, "lost"); /* no such column */
    xc_table_write(&table, &text);
    xc_autofree char *out = xc_text_take(&text);
    assert_string_equal(out, "Name    Count  Last\n"
                             "\xc3\xa9t\xc3\xa9         7  x\n"
                             "longer\n"
                             "               z\n");
}

static void an_empty_table_writes_nothing(void **state)
{
    (void)state;
    xc_autotable struct xc_table table;
    xc_autotext struct xc_text text = XC_TEXT_INIT;
    xc_table_begin(&table, 2);
    xc_table_cell(&table, 0, "no row yet");
    xc_table_write(&table, &text);
    assert_int_equal(text.length, 0);
    table.failed = true;
    xc_table_write(&table, &text);
    assert_true(text.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_wrapped_and_keeps_code_and_place),
        cmocka_unit_test(long_error_texts_are_cut_never_overrun),
        cmocka_unit_test(errno_becomes_a_code_and_its_words),
        cmocka_unit_test(a_text_grows_and_is_taken_once),
        cmocka_unit_test(a_failed_text_stays_failed),
        cmocka_unit_test(null_equals_null_alone),
        cmocka_unit_test(trim_takes_blanks_from_both_ends),
        cmocka_unit_test(a_number_is_whole_and_in_its_limits),
        cmocka_unit_test(the_nearest_word_is_one_that_was_meant),
        cmocka_unit_test(the_hash_is_fnv_1a),
        cmocka_unit_test(a_glob_knows_stars_and_question_marks),
        cmocka_unit_test(host_lists_are_read_as_slurm_writes_them),
        cmocka_unit_test(a_host_list_that_cannot_be_read_says_why_for_every_name),
        cmocka_unit_test(lists_are_read_and_written_as_the_kernel_does),
        cmocka_unit_test(a_wrong_list_says_what_is_wrong_and_takes_no_memory),
        cmocka_unit_test(masks_are_read_as_the_kernel_writes_them),
        cmocka_unit_test(every_operation_agrees_with_a_naive_model),
        cmocka_unit_test(operations_on_the_same_set_are_sound),
        cmocka_unit_test(beyond_the_limit_fails_and_the_failure_travels),
        cmocka_unit_test(a_directory_root_reads_and_cannot_be_left),
        cmocka_unit_test(a_root_reads_numbers_lines_sets_and_directories),
        cmocka_unit_test(what_is_no_file_of_a_sane_size_is_refused_at_once),
        cmocka_unit_test(the_live_root_is_the_machine),
        cmocka_unit_test(a_file_is_trusted_when_all_of_its_path_is),
        cmocka_unit_test(renames_elsewhere_hide_no_file),
        cmocka_unit_test(links_of_a_trusted_path_are_judged_the_same),
        cmocka_unit_test(what_another_user_owns_is_refused),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
        cmocka_unit_test(a_trusted_file_is_read_up_to_its_limit),
        cmocka_unit_test(a_file_is_replaced_whole_with_its_mode),
        cmocka_unit_test(a_failed_replacement_leaves_nothing_behind),
        cmocka_unit_test(directories_are_made_on_the_way),
        cmocka_unit_test(json_is_escaped_and_has_its_commas),
        cmocka_unit_test(pretty_json_is_indented),
        cmocka_unit_test(a_table_aligns_its_columns),
        cmocka_unit_test(an_empty_table_writes_nothing),
    };
    return cmocka_run_group_tests_name("base", tests, make_scratch, remove_scratch);
}
