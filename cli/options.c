/* How are a subcommand's options read? A table says what each one sets, and a wrong one is told with the
 * nearest. */
#include <getopt.h>
#include <string.h>

#include "cli.h"

#define OPTIONS_MAX 24
#define FIRST       256 /* of the long options' values; letters are below */

/* The word of the command line that getopt has just refused. */
static const char *refused(char **argv, char letter[3])
{
    if (optopt > 0 && optopt < FIRST) {
        letter[1] = (char)optopt;
        return letter;
    }
    return argv[optind - 1];
}

static int wrong(const char *command, char **argv, const struct cli_option *options)
{
    char letter[] = "-?", name[80];
    const char *names[OPTIONS_MAX + 2] = {"help"}, *word = refused(argv, letter);
    if (optopt == 'h') /* a letter of its own: only --help=VALUE is refused */
        return cli_usage(command, "--help takes no value");
    if (optopt >= FIRST)
        return cli_usage(command, "--%s takes no value", options[optopt - FIRST].name);
    for (size_t i = 0; options[i].name; i++)
        names[i + 1] = options[i].name;
    snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    const char *near = xc_starts(word, "--") ? xc_nearest(name, names) : NULL;
    return cli_usage(command, "%.80s is no option of it%s%s%s", word,
                     near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

static void take(const struct cli_option *option)
{
    if (option->flag)
        *option->flag = true;
    else if (option->count)
        option->text[(*option->count)++] = optarg;
    else
        *option->text = optarg;
}

int cli_options(const char *command, int argc, char **argv, const struct cli_option *options,
                const char *help)
{
    struct option longs[OPTIONS_MAX + 2] = {{0}};
    char letters[2 * OPTIONS_MAX + 4] = ":h";
    size_t count = 0, used = strlen(letters);
    for (; options[count].name && count < OPTIONS_MAX; count++) {
        const struct cli_option *option = &options[count];
        longs[count] = (struct option){.name = option->name,
                                       .has_arg = option->flag ? no_argument : required_argument,
                                       .val = FIRST + (int)count};
        if (option->letter)
            used += (size_t)snprintf(letters + used, sizeof letters - used, "%c%s", option->letter,
                                     option->flag ? "" : ":");
    }
    longs[count] = (struct option){.name = "help", .has_arg = no_argument, .val = 'h'};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        size_t which = c >= FIRST ? (size_t)(c - FIRST) : 0;
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (c == ':')
            return cli_usage(command, "%s needs a value", argv[optind - 1]);
        if (c == '?')
            return wrong(command, argv, options);
        while (c < FIRST && options[which].letter != c)
            which++;
        take(&options[which]);
    }
    return CLI_GO;
}

int cli_deadline(const char *command, const char *seconds, long *deadline_ms)
{
    long number;
    if (!seconds)
        return 0;
    if (!xc_to_long(seconds, 0, 600, &number))
        return cli_usage(command, "--deadline is \"%.40s\"; expected 0 to 600 seconds", seconds);
    *deadline_ms = number * 1000;
    return 0;
}
