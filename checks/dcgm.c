/* What do DCGM's health watches say? They are asked by its own dcgmi: its library speaks to the host
 * engine, waits for it, and is another version on every second node. */
#include <sys/wait.h>
#include <unistd.h>

#include "live.h"

/* "Overall Health | Warning" in a table, or the same in JSON: the first of the three words after it. */
static const char *overall(const char *text)
{
    static const char *const words[] = {"Healthy", "Warning", "Failure"};
    const char *at = strstr(text, "Overall Health"), *found = NULL, *word = NULL;
    for (size_t i = 0; at && i < XC_COUNT(words); i++) {
        const char *here = strstr(at, words[i]);
        if (here && (!found || here < found)) {
            found = here;
            word = words[i];
        }
    }
    return word;
}

int chk_probe_dcgm(const struct xc_check_input *input, unsigned deadline_ms, int out)
{
    static const char *const argv[] = {"dcgmi", "health", "-c", "-j", NULL};
    struct xc_command program = {.path = "/usr/bin/dcgmi", .argv = argv};
    char line[400];
    (void)input;
    if (access(program.path, F_OK) < 0) {
        chk_probe_line(out, "dcgm absent 1");
        chk_probe_line(out, "end");
        return 0;
    }
    /* a little less than what we have: our own end must be told, too */
    xc_commands_run(&program, 1, deadline_ms > 200 ? deadline_ms - 100 : deadline_ms);
    const char *text = program.child.text ? program.child.text : "", *word = overall(text);
    if (!program.child.started)
        chk_probe_line(out, "dcgm incident %s", program.error.message);
    else if (!program.child.ended)
        chk_probe_line(out, "dcgm incident no answer within %u ms", deadline_ms);
    if (word)
        chk_probe_line(out, "dcgm overall %s", word);
    const char *error = strstr(text, "Error");
    chk_one_line(error ? error : word && !xc_streq(word, "Healthy") ? text : "", line, 240);
    if (*line)
        chk_probe_line(out, "dcgm incident %s", line);
    chk_probe_line(out, "end");
    free(program.child.text);
    return 0;
}
