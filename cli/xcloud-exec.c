/* xcloud-exec: which CPUs, memory and variables does this one worker get? Then it becomes the worker.
 *
 * A launcher like torchrun is one Slurm task that has all GPUs; Slurm and the plugin see only it. The
 * plugin leaves the shares of its workers in XCLOUD_PLAN (grammar: xcloud/plan.h), and this program,
 * started in a worker's place, takes the share of its local rank. It is static, needs no library and
 * no file, and asks the kernel by number, so that it runs in any container image.
 *
 * The plan comes from the environment: it is taken for hostile. It can only narrow what this process
 * may use already.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* include/uapi/linux/mempolicy.h; the C library has no names for them */
#define POLICY_PREFERRED      1
#define POLICY_BIND           2
#define POLICY_INTERLEAVE     3
#define POLICY_PREFERRED_MANY 5 /* Linux 5.15 */

#define CPUS_MAX  65536 /* as XC_SET_LIMIT */
#define NODES_MAX 1024  /* the kernel's largest CONFIG_NODES_SHIFT is 10 */
#define RANK_MAX  1000000
#define WORD_BITS (8 * sizeof(unsigned long))

#define EXIT_REFUSED   1
#define EXIT_USAGE     2
#define EXIT_NO_EXEC   126
#define EXIT_NOT_FOUND 127

struct share {
    unsigned long cpus[CPUS_MAX / WORD_BITS];
    unsigned long nodes[NODES_MAX / WORD_BITS];
    char mode[16]; /* "", preferred, bind, interleave, none */
};

struct state {
    const char *plan;
    long rank, workers; /* -1: not known */
    bool strict, verbose, interpreter;
    char **command; /* what to become */
};

static const char usage[] =
    "usage: xcloud-exec [--rank N] [--plan TEXT] [--strict] [--verbose] [--] PROGRAM "
    "[ARGUMENT...]\n"
    "Binds itself to the share of local rank N (default: LOCAL_RANK and the like) in the plan\n"
    "(default: XCLOUD_PLAN), then becomes PROGRAM. As PYTHON_EXEC of torchrun it becomes the\n"
    "launcher's own Python. See xcloud-exec(1).\n";

/* One write a line, so that the lines of many workers do not mix. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1024] = "xcloud-exec: ";
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    used = strlen(line);
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* nobody listens */
}

/* ---- numbers and lists ---------------------------------------------------------------------------- */

/* A decimal number up to max at *at, which moves behind it; -1: there is none. */
static long take_number(const char **at, long max)
{
    long value = 0;
    if (**at < '0' || **at > '9')
        return -1;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (**at - '0');
        if (value > max)
            return -1;
    }
    return value;
}

static long whole_number(const char *text, long max)
{
    const char *at = text;
    long value = text ? take_number(&at, max) : -1;
    return value >= 0 && *at == '\0' ? value : -1;
}

/* Adds "0-7,56" to a bit set; it ends at a blank, ';' or the end. False: malformed. */
static bool take_list(const char **at, unsigned long *bits, long limit)
{
    for (;;) {
        long first = take_number(at, limit - 1), last = first;
        if (first >= 0 && **at == '-') {
            (*at)++;
            last = take_number(at, limit - 1);
        }
        if (first < 0 || last < first)
            return false;
        for (long i = first; i <= last; i++)
            bits[(size_t)i / WORD_BITS] |= 1UL << ((size_t)i % WORD_BITS);
        if (**at != ',')
            return true;
        (*at)++;
    }
}

static size_t count_bits(const unsigned long *bits, size_t words)
{
    size_t count = 0;
    for (size_t i = 0; i < words; i++)
        count += (size_t)__builtin_popcountl(bits[i]);
    return count;
}

/* The list of a bit set into text, cut with "..." where it does not fit. */
static const char *list_text(const unsigned long *bits, long limit, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (long i = 0; i < limit; i++) {
        if (!(bits[(size_t)i / WORD_BITS] >> ((size_t)i % WORD_BITS) & 1))
            continue;
        long last = i;
        while (last + 1 < limit &&
               bits[(size_t)(last + 1) / WORD_BITS] >> ((size_t)(last + 1) % WORD_BITS) & 1)
            last++;
        if (used + 32 > size) {
            snprintf(text + used, size - used, ",...");
            return text;
        }
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%ld-%ld" : "%s%ld",
                                 used ? "," : "", i, last);
        i = last;
    }
    return text;
}

/* ---- the plan --------------------------------------------------------------------------------------- */

/* How many shares there are; 0: this is no plan of ours. */
static long count_shares(const char *plan)
{
    if (plan[0] != '1' || plan[1] != ';')
        return 0;
    long count = 1;
    for (const char *at = plan + 2; *at; at++)
        count += *at == ';';
    return count;
}

static const char *share_start(const char *plan, long index)
{
    const char *at = plan + 2;
    for (; index > 0; index--)
        at = strchr(at, ';') + 1;
    return at;
}

static bool variable_name(const char *name, size_t length)
{
    if (length == 0 || (name[0] >= '0' && name[0] <= '9'))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!(name[i] >= 'A' && name[i] <= 'Z') && !(name[i] >= '0' && name[i] <= '9') &&
            name[i] != '_')
            return false;
    return true;
}

/* Variables that would let a plan choose what runs, which only the launcher may. */
static bool forbidden_name(const char *name)
{
    return strncmp(name, "LD_", 3) == 0 || strncmp(name, "SLURM_", 6) == 0 ||
           strncmp(name, "PYTHON", 6) == 0 || strcmp(name, "PATH") == 0;
}

/* NAME=VALUE sets it; NAME?=VALUE?OLD only when it is unset or still the launcher's own OLD. */
static bool set_variable(const char *word, size_t length, bool apply)
{
    char copy[4096];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, word, length);
    copy[length] = '\0';
    char *equals = strchr(copy, '='), *old = NULL;
    if (!equals)
        return false;
    char *end = equals;
    if (equals > copy && equals[-1] == '?') {
        end = equals - 1;
        old = strrchr(equals, '?');
        if (!old)
            return false;
        *old++ = '\0';
    }
    if (!variable_name(copy, (size_t)(end - copy)))
        return false;
    *end = '\0';
    if (forbidden_name(copy) || !apply)
        return true;
    const char *now = getenv(copy);
    if (old && now && strcmp(now, old) != 0)
        return true;
    return setenv(copy, equals + 1, 1) == 0;
}

static bool starts(const char *text, const char *prefix, const char **rest)
{
    size_t length = strlen(prefix);
    *rest = text + length;
    return strncmp(text, prefix, length) == 0;
}

/* One blank-separated word of a share. Lower-case keys of later versions are skipped. */
static bool read_word(const char *word, size_t length, struct share *share, bool variables)
{
    const char *rest;
    if (starts(word, "cpus=", &rest))
        return take_list(&rest, share->cpus, CPUS_MAX) && rest == word + length;
    if (starts(word, "mems=", &rest))
        return take_list(&rest, share->nodes, NODES_MAX) && rest == word + length;
    if (starts(word, "mem=", &rest)) {
        size_t size = (size_t)(word + length - rest);
        if (size >= sizeof share->mode)
            return false;
        memcpy(share->mode, rest, size);
        share->mode[size] = '\0';
        return true;
    }
    if (word[0] >= 'a' && word[0] <= 'z')
        return memchr(word, '=', length) != NULL;
    return set_variable(word, length, variables);
}

/* Adds a share to what is there. variables: sets them as well. */
static bool read_share(const char *at, struct share *share, bool variables)
{
    bool cpus = false;
    while (*at && *at != ';') {
        size_t length = strcspn(at, " ;");
        if (length == 0) {
            at++;
            continue;
        }
        cpus |= strncmp(at, "cpus=", 5) == 0;
        if (!read_word(at, length, share, variables))
            return false;
        at += length;
    }
    return cpus;
}

/* Which shares: one each when there are as many workers, a contiguous part when there are fewer,
 * one for several when there are more. */
static void choose_shares(const struct state *state, long count, long *first, long *last)
{
    long workers = state->workers > state->rank ? state->workers : count;
    if (workers >= count) {
        *first = state->rank * count / workers;
        *last = *first;
        return;
    }
    long each = count / workers, larger = count % workers, rank = state->rank;
    *first = rank * each + (rank < larger ? rank : larger);
    *last = *first + each + (rank < larger ? 1 : 0) - 1;
}

/* ---- binding ------------------------------------------------------------------------------------------ */

/* Narrows the affinity to the share and reads it back. 0, or -1 with a line said. */
static int bind_cpus(const struct state *state, struct share *share)
{
    unsigned long now[CPUS_MAX / WORD_BITS] = {0};
    char wanted[256], text[256];
    list_text(share->cpus, CPUS_MAX, wanted, sizeof wanted);
    if (syscall(SYS_sched_getaffinity, 0, sizeof now, now) < 0) {
        say("rank %ld: cannot ask for the affinity: %s", state->rank, strerror(errno));
        return -1;
    }
    for (size_t i = 0; i < CPUS_MAX / WORD_BITS; i++)
        share->cpus[i] &= now[i];
    if (count_bits(share->cpus, CPUS_MAX / WORD_BITS) == 0) {
        say("rank %ld: none of its CPUs %s may be used here (%s may): not bound", state->rank,
            wanted, list_text(now, CPUS_MAX, text, sizeof text));
        return -1;
    }
    if (syscall(SYS_sched_setaffinity, 0, sizeof share->cpus, share->cpus) < 0) {
        say("rank %ld: cannot bind to CPUs %s: %s", state->rank, wanted, strerror(errno));
        return -1;
    }
    memset(now, 0, sizeof now);
    if (syscall(SYS_sched_getaffinity, 0, sizeof now, now) < 0 ||
        memcmp(now, share->cpus, sizeof now) != 0) {
        say("rank %ld: asked for CPUs %s, the kernel gave %s", state->rank, wanted,
            list_text(now, CPUS_MAX, text, sizeof text));
        return -1;
    }
    return 0;
}

static int set_policy(int mode, const unsigned long *nodes)
{
    /* the kernel takes one bit less than it is told */
    return (int)syscall(SYS_set_mempolicy, mode, nodes, NODES_MAX + 1UL);
}

/* preferred: of several nodes where the kernel knows that, else of the single one. A kernel before
 * 5.15 and several nodes: left alone, since preferring one of them would fill it for nothing. */
static int bind_memory(const struct state *state, const struct share *share)
{
    char text[256];
    size_t count = count_bits(share->nodes, NODES_MAX / WORD_BITS);
    if (count == 0 || strcmp(share->mode, "none") == 0 || !share->mode[0])
        return 0;
    int rc;
    if (strcmp(share->mode, "bind") == 0)
        rc = set_policy(POLICY_BIND, share->nodes);
    else if (strcmp(share->mode, "interleave") == 0)
        rc = set_policy(POLICY_INTERLEAVE, share->nodes);
    else if ((rc = set_policy(POLICY_PREFERRED_MANY, share->nodes)) < 0 && count == 1)
        rc = set_policy(POLICY_PREFERRED, share->nodes);
    if (rc == 0)
        return 0;
    if (state->verbose || state->strict || state->rank == 0)
        say("rank %ld: memory policy %s of nodes %s is not possible here (%s): left as it is",
            state->rank, share->mode, list_text(share->nodes, NODES_MAX, text, sizeof text),
            strerror(errno));
    return -1;
}

static bool known_mode(const char *mode)
{
    return !mode[0] || !strcmp(mode, "none") || !strcmp(mode, "preferred") ||
           !strcmp(mode, "bind") || !strcmp(mode, "interleave");
}

static void report(const struct state *state, const struct share *share, long first, long last)
{
    char cpus[512], nodes[128];
    list_text(share->cpus, CPUS_MAX, cpus, sizeof cpus);
    list_text(share->nodes, NODES_MAX, nodes, sizeof nodes);
    say("rank %ld: share %ld%s, CPUs %s, memory %s%s%s", state->rank, first,
        last > first ? " and following" : "", cpus, share->mode[0] ? share->mode : "none",
        nodes[0] ? " " : "", nodes);
}

/* 0: bound, or as far as it goes; -1: not bound, with a line said by the first worker or by all of
 * them when they were asked to speak. */
static int bind_self(const struct state *state)
{
    static struct share share, again; /* 8 KiB each: not on the stack */
    bool speak = state->verbose || state->strict || state->rank <= 0;
    if (!state->plan) {
        if (speak && (!state->interpreter || state->verbose || state->strict))
            say("no plan: XCLOUD_PLAN is not set; not bound");
        return -1;
    }
    if (state->rank < 0) {
        say("no local rank: none of LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, "
            "SLURM_LOCALID is a number; not bound");
        return -1;
    }
    long count = count_shares(state->plan), first = 0, last = 0;
    if (count > 0)
        choose_shares(state, count, &first, &last);
    bool good = count > 0 && last < count;
    if (count > 0 && !good) {
        say("rank %ld: the plan has %ld shares and the number of workers is not known; not bound",
            state->rank, count);
        return -1;
    }
    for (long i = first; good && i <= last; i++) /* nothing is set before all of it reads well */
        good = read_share(share_start(state->plan, i), &share, false);
    if (!good || !known_mode(share.mode)) {
        if (speak)
            say("XCLOUD_PLAN cannot be read; not bound");
        return -1;
    }
    int rc = bind_cpus(state, &share);
    if (rc == 0 && bind_memory(state, &share) < 0 && state->strict)
        rc = -1;
    if (rc == 0 && first == last) /* the variables of several shares would contradict each other */
        read_share(share_start(state->plan, first), &again, true);
    if (rc == 0 && state->verbose)
        report(state, &share, first, last);
    return rc;
}

/* ---- becoming the program ------------------------------------------------------------------------------ */

static bool is_self(const char *path)
{
    struct stat own, other;
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/* Whether name, looked up as execvp would, is a program other than this one. */
static bool usable_program(const char *name)
{
    if (strchr(name, '/'))
        return access(name, X_OK) == 0 && !is_self(name);
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/local/bin:/bin:/usr/bin"; *at;) {
        char full[PATH_MAX];
        size_t length = strcspn(at, ":");
        int wrote = snprintf(full, sizeof full, "%.*s%s%s", (int)(length < PATH_MAX ? length : 0),
                             at, length ? "/" : "./", name);
        struct stat st;
        if (wrote > 0 && (size_t)wrote < sizeof full && stat(full, &st) == 0 &&
            S_ISREG(st.st_mode) && access(full, X_OK) == 0)
            return !is_self(full);
        at += length + (at[length] == ':');
    }
    return false;
}

/* argv[0] of the parent: the launcher's interpreter as it was called. /proc/PPID/exe would lose a
 * virtual environment. */
static bool parent_program(char *name, size_t size)
{
    char file[64];
    snprintf(file, sizeof file, "/proc/%ld/cmdline", (long)getppid());
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, name, size - 1);
    close(fd);
    if (got <= 0)
        return false;
    name[got] = '\0';
    return strlen(name) < size - 1;
}

static bool names_python(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    return strncmp(base, "python", 6) == 0 || strncmp(base, "pypy", 4) == 0;
}

/* The launcher's Python; where the parent is none (its title was changed, or it is a shell), the
 * python3 in PATH. NULL: there is none. */
static const char *find_interpreter(const struct state *state)
{
    static char name[PATH_MAX];
    if (parent_program(name, sizeof name) && names_python(name) && usable_program(name))
        return name;
    if (state->verbose)
        say("the parent process is no Python: python3 of PATH is taken");
    return usable_program("python3") ? "python3" : NULL;
}

static int become(char **command)
{
    execvp(command[0], command);
    int number = errno;
    say("%s: %s", command[0], strerror(number));
    return number == ENOENT || number == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NO_EXEC;
}

static int become_interpreter(const struct state *state, int argc, char **argv)
{
    const char *program = find_interpreter(state);
    if (!program) {
        say("started as an interpreter, but neither the launcher's Python nor a python3 is found");
        return EXIT_NOT_FOUND;
    }
    char **command = calloc((size_t)argc + 1, sizeof *command);
    if (!command) {
        say("out of memory");
        return EXIT_NO_EXEC;
    }
    memcpy(command, argv, (size_t)argc * sizeof *command);
    command[0] = (char *)program;
    return become(command);
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static bool flag(const char *name)
{
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

/* Rank and number of workers come from the same launcher. */
static void read_launcher(struct state *state)
{
    static const char *const names[][2] = {
        {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
        {"SLURM_LOCALID", NULL},
    };
    bool given = state->rank >= 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        long rank = whole_number(getenv(names[i][0]), RANK_MAX);
        long workers = names[i][1] ? whole_number(getenv(names[i][1]), RANK_MAX) : -1;
        if (given ? workers < 0 : rank < 0)
            continue;
        if (!given)
            state->rank = rank;
        state->workers = workers;
        return;
    }
}

static bool is_option(const char *argument)
{
    static const char *const options[] = {"--",        "--rank",    "--plan", "--strict",
                                          "--verbose", "--version", "--help"};
    const char *rest;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(argument, options[i]) == 0)
            return true;
    return starts(argument, "--rank=", &rest) || starts(argument, "--plan=", &rest);
}

/* A launcher that takes this for Python starts it as `xcloud-exec -u train.py`: the first argument is
 * an option, and none of ours, which all have two dashes. With two dashes it must be what PYTHON_EXEC
 * names, so that a slip of the finger is an error instead. */
static bool as_interpreter(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] != '-' || is_option(argv[1]))
        return false;
    const char *python = getenv("PYTHON_EXEC");
    return argv[1][1] != '-' || (python && strcmp(python, argv[0]) == 0);
}

static int wrong(const char *what, const char *value)
{
    say("%s%s%s", what, value ? ": " : "", value ? value : "");
    fputs(usage, stderr);
    return EXIT_USAGE;
}

/* The value of --name VALUE or --name=VALUE; NULL: argv[*i] is another option. */
static const char *option_value(char **argv, int argc, int *i, const char *name)
{
    const char *rest;
    if (!starts(argv[*i], name, &rest))
        return NULL;
    if (*rest == '=')
        return rest + 1;
    if (*rest != '\0')
        return NULL;
    return *i + 1 < argc ? argv[++*i] : "";
}

/* -1: go on; else the status to exit with. */
static int parse(int argc, char **argv, struct state *state)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *value;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0 ? EXIT_USAGE : 0;
        if (strcmp(argv[i], "--strict") == 0) {
            state->strict = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            state->verbose = true;
        } else if ((value = option_value(argv, argc, &i, "--rank"))) {
            state->rank = whole_number(value, RANK_MAX);
            if (state->rank < 0)
                return wrong("--rank takes a local rank, not", value);
        } else if ((value = option_value(argv, argc, &i, "--plan"))) {
            state->plan = value;
        } else {
            return wrong("no such option", argv[i]);
        }
    }
    if (i >= argc)
        return wrong("a program is missing", NULL);
    state->command = argv + i;
    return -1;
}

int main(int argc, char **argv)
{
    struct state state = {.plan = getenv("XCLOUD_PLAN"), .rank = -1, .workers = -1};
    state.strict = flag("XCLOUD_EXEC_STRICT");
    state.verbose = flag("XCLOUD_EXEC_VERBOSE");
    state.interpreter = as_interpreter(argc, argv);
    if (!state.interpreter) {
        int status = parse(argc, argv, &state);
        if (status >= 0)
            return status;
    }
    read_launcher(&state);
    if (bind_self(&state) < 0 && state.strict)
        return EXIT_REFUSED;
    unsetenv("XCLOUD_PLAN"); /* it is used up: what this worker starts inherits the binding */
    if (state.interpreter)
        return become_interpreter(&state, argc, argv);
    return become(state.command);
}
