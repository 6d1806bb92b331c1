/* What do the words after --xcloud-bind= mean, and how are wrong ones refused? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <xcloud/words.h>

static struct xc_words parse(const char *value)
{
    struct xc_words words;
    struct xc_error error = {0};
    if (xc_words_parse(value, &words, &error) < 0)
        fail_msg("\"%s\": %s", value, error.message);
    return words;
}

static void no_value_means_on(void **state)
{
    (void)state;
    static const char *const values[] = {NULL, "", "(null)"};
    for (size_t i = 0; i < XC_COUNT(values); i++) {
        struct xc_words words = parse(values[i]);
        assert_true(words.given && words.on && !words.off);
    }
}

static void every_word_is_understood(void **state)
{
    (void)state;
    struct xc_words words = parse("verbose=all,explain,dry,strict,help,gpus=restrict,smt=first,"
                                  "memory=interleave,profile=big-messages_2.0");
    assert_true(words.given && !words.on && !words.off);
    assert_true(words.explain && words.dry && words.strict && words.help);
    assert_int_equal(words.verbose, XC_VERBOSE_ALL);
    assert_int_equal(words.gpus, XC_GPUS_RESTRICT);
    assert_int_equal(words.smt, XC_SMT_FIRST);
    assert_int_equal(words.memory, XC_MEMORY_INTERLEAVE);
    assert_string_equal(words.profile, "big-messages_2.0");
    assert_int_equal(parse("memory=preferred").memory, XC_MEMORY_PREFERRED);
    assert_int_equal(parse("memory=bind").memory, XC_MEMORY_BIND);
    assert_int_equal(parse("memory=none").memory, XC_MEMORY_NONE);
    assert_int_equal(parse("smt=all").smt, XC_SMT_ALL);
    assert_int_equal(parse("gpus=order").gpus, XC_GPUS_ORDER);
    assert_int_equal(parse("verbose").verbose, XC_VERBOSE);
}

static void later_words_win(void **state)
{
    (void)state;
    struct xc_words words = parse("on,off");
    assert_true(words.off && !words.on);
    words = parse("off,on");
    assert_true(words.on && !words.off);
    assert_int_equal(parse("smt=first,smt=all").smt, XC_SMT_ALL);
    assert_string_equal(parse("profile=a,profile=b").profile, "b");
}

static void wrong_words_are_named_with_the_nearest_and_all(void **state)
{
    (void)state;
    static const struct {
        const char *value, *says;
    } wrong[] = {
        {"onn", "\"onn\" is no word; did you mean \"on\"?"},
        {"verbos", "did you mean \"verbose\"?"},
        {"memory=prefered", "did you mean \"memory=preferred\"?"},
        {"smt", "\"smt\" is no word"},
        {"ON", "\"ON\" is no word"},
        {"on, verbose", "\" verbose\" is no word; did you mean \"verbose\"?"},
        {"on,,off", "a word is missing"},
        {",", "a word is missing"},
        {"on,", "a word is missing"},
        {"gpus=", "\"gpus=\" is no word"},
        {"on=1", "\"on=1\" is no word"},
        {"\033[31m", "\"?[31m\" is no word"},
        {"(null),on", "\"(null)\" is no word"},
    };
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        struct xc_words words;
        struct xc_error error = {0};
        assert_int_equal(xc_words_parse(wrong[i].value, &words, &error), -1);
        assert_int_equal(error.code, XC_EINPUT);
        assert_string_equal(error.where, "--xcloud-bind");
        if (!strstr(error.message, wrong[i].says))
            fail_msg("\"%s\" gives \"%s\"", wrong[i].value, error.message);
        assert_non_null(strstr(error.message, "memory=preferred|bind|interleave|none"));
        assert_false(words.given || words.on || words.off);
    }
}

static void profile_names_are_checked(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "profile=", "profile=a b", "profile=a/b", "profile=$(x)",
        "profile=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < XC_COUNT(wrong); i++) {
        struct xc_words words;
        struct xc_error error = {0};
        assert_int_equal(xc_words_parse(wrong[i], &words, &error), -1);
        assert_non_null(strstr(error.message, "names no profile"));
        assert_string_equal(words.profile, "");
    }
    assert_int_equal(xc_words_parse("profile=", &(struct xc_words){0}, NULL), -1);
}

static void long_values_do_not_overrun(void **state)
{
    (void)state;
    char value[5000];
    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = '\0';
    struct xc_words words;
    struct xc_error error = {0};
    assert_int_equal(xc_words_parse(value, &words, &error), -1);
    assert_true(strlen(error.message) < sizeof error.message);
}

static void what_users_may_not_is_taken_out_and_named(void **state)
{
    (void)state;
    struct xc_words words = parse("off,smt=first,memory=none,gpus=restrict,profile=p,dry,explain,"
                                  "strict,verbose,help");
    xc_autofree char *taken = xc_words_permit(&words, 0);
    assert_string_equal(taken, "off,smt=first,memory=none,gpus=restrict,profile=p");
    assert_false(words.off);
    assert_int_equal(words.smt, XC_SMT_UNSET);
    assert_int_equal(words.memory, XC_MEMORY_UNSET);
    assert_int_equal(words.gpus, XC_GPUS_UNSET);
    assert_string_equal(words.profile, "");
    assert_true(words.dry && words.explain && words.strict && words.help && words.verbose);

    words = parse("off,smt=first,memory=bind");
    xc_autofree char *one = xc_words_permit(&words, XC_MAY_DISABLE | XC_MAY_MEMORY);
    assert_string_equal(one, "smt=first");
    assert_true(words.off);
    assert_int_equal(words.memory, XC_MEMORY_BIND);

    words = parse("on,smt=all");
    assert_null(xc_words_permit(&words, XC_MAY_SMT));
    assert_true(words.on);
}

static void help_has_every_word(void **state)
{
    (void)state;
    static const char *const all[] = {"  on ",
                                      "  off ",
                                      "  verbose ",
                                      "  verbose=all ",
                                      "  explain ",
                                      "  dry ",
                                      "  strict ",
                                      "  help ",
                                      "  gpus=order ",
                                      "  gpus=restrict ",
                                      "  smt=all ",
                                      "  smt=first ",
                                      "  memory=preferred ",
                                      "  memory=bind ",
                                      "  memory=interleave ",
                                      "  memory=none ",
                                      "  profile=NAME "};
    for (size_t i = 0; i < XC_COUNT(all); i++)
        if (!strstr(xc_words_help(), all[i]))
            fail_msg("help has no \"%s\"", all[i]);
}

static void names_are_the_policys(void **state)
{
    (void)state;
    assert_string_equal(xc_gpus_name(XC_GPUS_RESTRICT), "restrict");
    assert_string_equal(xc_smt_name(XC_SMT_FIRST), "first");
    assert_string_equal(xc_memory_name(XC_MEMORY_INTERLEAVE), "interleave");
    assert_string_equal(xc_memory_name(XC_MEMORY_UNSET), "");
    assert_string_equal(xc_memory_name((enum xc_memory)99), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_value_means_on),
        cmocka_unit_test(every_word_is_understood),
        cmocka_unit_test(later_words_win),
        cmocka_unit_test(wrong_words_are_named_with_the_nearest_and_all),
        cmocka_unit_test(profile_names_are_checked),
        cmocka_unit_test(long_values_do_not_overrun),
        cmocka_unit_test(what_users_may_not_is_taken_out_and_named),
        cmocka_unit_test(help_has_every_word),
        cmocka_unit_test(names_are_the_policys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
