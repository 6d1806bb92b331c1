/* What did a person write after `--xcloud-bind=`? Also the names of the values that the words and
 * the policy's `bind:` share. Runs in srun, so it takes libc and base/'s errors and strings alone. */
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include <xcloud/words.h>

#define WHERE "--xcloud-bind"

static const char *const gpus_names[] = {"", "order", "restrict"};
static const char *const smt_names[] = {"", "all", "first"};
static const char *const memory_names[] = {"", "preferred", "bind", "interleave", "none"};

const char *xc_gpus_name(enum xc_gpus value)
{
    return (size_t)value < XC_COUNT(gpus_names) ? gpus_names[value] : "";
}

const char *xc_smt_name(enum xc_smt value)
{
    return (size_t)value < XC_COUNT(smt_names) ? smt_names[value] : "";
}

const char *xc_memory_name(enum xc_memory value)
{
    return (size_t)value < XC_COUNT(memory_names) ? memory_names[value] : "";
}

enum kind { ON, OFF, VERBOSE, EXPLAIN, DRY, STRICT, HELP, GPUS, SMT, MEMORY };

static const struct word {
    const char *name;
    enum kind kind;
    int value;
} known_words[] = {
    {"on", ON, 0},
    {"off", OFF, 0},
    {"verbose", VERBOSE, XC_VERBOSE},
    {"verbose=all", VERBOSE, XC_VERBOSE_ALL},
    {"explain", EXPLAIN, 0},
    {"dry", DRY, 0},
    {"strict", STRICT, 0},
    {"help", HELP, 0},
    {"gpus=order", GPUS, XC_GPUS_ORDER},
    {"gpus=restrict", GPUS, XC_GPUS_RESTRICT},
    {"smt=all", SMT, XC_SMT_ALL},
    {"smt=first", SMT, XC_SMT_FIRST},
    {"memory=preferred", MEMORY, XC_MEMORY_PREFERRED},
    {"memory=bind", MEMORY, XC_MEMORY_BIND},
    {"memory=interleave", MEMORY, XC_MEMORY_INTERLEAVE},
    {"memory=none", MEMORY, XC_MEMORY_NONE},
};

#define ALL_WORDS                                                                                  \
    "on, off, verbose, verbose=all, explain, dry, strict, help, gpus=order|restrict, "             \
    "smt=all|first, memory=preferred|bind|interleave|none, profile=NAME"

static void apply(const struct word *word, struct xc_words *words)
{
    switch (word->kind) {
    case ON:
    case OFF:
        words->on = word->kind == ON;
        words->off = word->kind == OFF;
        break;
    case VERBOSE:
        words->verbose = (enum xc_verbose)word->value;
        break;
    case EXPLAIN:
        words->explain = true;
        break;
    case DRY:
        words->dry = true;
        break;
    case STRICT:
        words->strict = true;
        break;
    case HELP:
        words->help = true;
        break;
    case GPUS:
        words->gpus = (enum xc_gpus)word->value;
        break;
    case SMT:
        words->smt = (enum xc_smt)word->value;
        break;
    case MEMORY:
        words->memory = (enum xc_memory)word->value;
        break;
    }
}

/* A copy for a message: cut, and without what would disturb a terminal or a log. */
static const char *printable(const char *text, size_t length, char *buffer, size_t size)
{
    size_t count = length < size - 1 ? length : size - 1;
    for (size_t i = 0; i < count; i++)
        buffer[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
    buffer[count] = '\0';
    return buffer;
}

static int bad_word(const char *text, size_t length, struct xc_error *error)
{
    char shown[80];
    printable(text, length, shown, sizeof shown);
    if (length == 0)
        return xc_error_set(error, XC_EINPUT, WHERE,
                            "a word is missing before or after a comma; the words are %s",
                            ALL_WORDS);
    const char *names[XC_COUNT(known_words) + 2] = {0};
    for (size_t i = 0; i < XC_COUNT(known_words); i++)
        names[i] = known_words[i].name;
    names[XC_COUNT(known_words)] = "profile=NAME";
    const char *near = xc_nearest(shown, names);
    return xc_error_set(error, XC_EINPUT, WHERE, "\"%s\" is no word%s%s%s; the words are %s", shown,
                        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                        ALL_WORDS);
}

static int take_profile(const char *name, size_t length, struct xc_words *words,
                        struct xc_error *error)
{
    char shown[80];
    size_t good = 0;
    while (good < length &&
           (isalnum((unsigned char)name[good]) || (name[good] && strchr("_.-", name[good]))))
        good++;
    if (length == 0 || good < length || length >= sizeof words->profile)
        return xc_error_set(error, XC_EINPUT, WHERE,
                            "\"profile=%s\" names no profile: a name is 1 to %d letters, digits, "
                            "'_', '.' or '-'",
                            printable(name, length, shown, sizeof shown), XC_PROFILE_MAX - 1);
    memcpy(words->profile, name, length);
    words->profile[length] = '\0';
    return 0;
}

static int take_word(const char *text, size_t length, struct xc_words *words,
                     struct xc_error *error)
{
    static const char profile[] = "profile=";
    size_t prefix = sizeof profile - 1;
    if (length >= prefix && memcmp(text, profile, prefix) == 0)
        return take_profile(text + prefix, length - prefix, words, error);
    for (size_t i = 0; i < XC_COUNT(known_words); i++) {
        const struct word *word = &known_words[i];
        if (strlen(word->name) == length && memcmp(word->name, text, length) == 0) {
            apply(word, words);
            return 0;
        }
    }
    return bad_word(text, length, error);
}

int xc_words_parse(const char *value, struct xc_words *words, struct xc_error *error)
{
    *words = (struct xc_words){.given = true};
    if (!value || !*value || strcmp(value, "(null)") == 0) {
        words->on = true;
        return 0;
    }
    for (const char *at = value;;) {
        size_t length = strcspn(at, ",");
        if (take_word(at, length, words, error) < 0) {
            *words = (struct xc_words){0};
            return -1;
        }
        if (!at[length])
            return 0;
        at += length + 1;
    }
}

/* ---- what the policy lets a user change ------------------------------------------------------ */

/* Five words at most: the longest list is shorter than this. */
struct taken {
    char text[64 + XC_PROFILE_MAX + 64];
};

static void add_taken(struct taken *taken, const char *key, const char *value)
{
    size_t used = strlen(taken->text);
    snprintf(taken->text + used, sizeof taken->text - used, "%s%s%s", used ? "," : "", key, value);
}

char *xc_words_permit(struct xc_words *words, unsigned may)
{
    struct taken taken = {""};
    if (words->off && !(may & XC_MAY_DISABLE)) {
        add_taken(&taken, "off", "");
        words->off = false;
    }
    if (words->smt != XC_SMT_UNSET && !(may & XC_MAY_SMT)) {
        add_taken(&taken, "smt=", xc_smt_name(words->smt));
        words->smt = XC_SMT_UNSET;
    }
    if (words->memory != XC_MEMORY_UNSET && !(may & XC_MAY_MEMORY)) {
        add_taken(&taken, "memory=", xc_memory_name(words->memory));
        words->memory = XC_MEMORY_UNSET;
    }
    if (words->gpus != XC_GPUS_UNSET && !(may & XC_MAY_GPUS)) {
        add_taken(&taken, "gpus=", xc_gpus_name(words->gpus));
        words->gpus = XC_GPUS_UNSET;
    }
    if (words->profile[0] && !(may & XC_MAY_PROFILE)) {
        add_taken(&taken, "profile=", words->profile);
        words->profile[0] = '\0';
    }
    return taken.text[0] ? strdup(taken.text) : NULL;
}

const char *xc_words_help(void)
{
    return "--xcloud-bind[=WORD,...]  bind this step's tasks to CPUs, memory and NICs near their "
           "GPUs\n"
           "\n"
           "  on                 bind (the same as the option without a value)\n"
           "  off                no placement and no environment; host CPUs stay excluded\n"
           "  verbose            print the first node's binding, and what is unusual on the "
           "others\n"
           "  verbose=all        print every node's binding\n"
           "  explain            also say which rule of the policy each value comes from\n"
           "  dry                print the plan for the real allocation, run nothing\n"
           "  strict             end the step where it cannot be bound as asked\n"
           "  help               print this text and run nothing\n"
           "  gpus=order         rank i goes with visible GPU i; every GPU stays visible\n"
           "  gpus=restrict      each rank sees its own GPUs only (peer access may be lost)\n"
           "  smt=all            every hardware thread of a rank's cores\n"
           "  smt=first          one hardware thread of each core\n"
           "  memory=preferred   near memory first, other nodes when it is full\n"
           "  memory=bind        near memory only\n"
           "  memory=interleave  pages in turn over the near nodes\n"
           "  memory=none        leave the memory policy alone\n"
           "  profile=NAME       a set of variables that the site's policy offers\n"
           "\n"
           "Later words win over earlier ones. The policy says which of them a user may use:\n"
           "xcloud policy explain shows it.\n";
}
