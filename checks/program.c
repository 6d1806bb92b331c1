/* How is a program of the site's, or of NVIDIA's, run by root? It is opened once, along a path that
 * only root can change, and what was opened is what runs. */
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static int execute(void *data, int out)
{
    struct chk_program *program = data;
    static char *const environment[] = {NULL};
    const char *plain[] = {program->path, NULL};
    const char *const *argv = program->argv ? program->argv : plain;
    dup2(out, STDOUT_FILENO);
    close(out);
    if (chdir("/") < 0)
        return 127;
    /* a script's interpreter opens /dev/fd/N: the descriptor stays open for it */
    fcntl(program->child.keep, F_SETFD, 0);
    fexecve(program->child.keep, (char *const *)(void *)argv, environment);
    return 127;
}

void chk_programs(struct chk_program *programs, size_t count, unsigned deadline_ms)
{
    xc_autofree struct chk_child *children = calloc(count ? count : 1, sizeof *children);
    xc_autofree size_t *owner = calloc(count ? count : 1, sizeof *owner);
    size_t started = 0;
    for (size_t i = 0; i < count; i++) {
        struct chk_program *program = &programs[i];
        program->child =
            (struct chk_child){.keep = xc_open_trusted(program->path, &program->error)};
        if (program->child.keep < 0 || !children || !owner)
            continue;
        program->child.run = execute;
        program->child.data = program;
        program->child.limit = CHK_PROGRAM_TEXT;
        program->child.deadline_ms = program->deadline_ms;
        children[started] = program->child;
        owner[started++] = i;
    }
    if (started > 0)
        chk_children(children, started, deadline_ms);
    for (size_t i = 0; i < started; i++)
        programs[owner[i]].child = children[i];
    for (size_t i = 0; i < count; i++)
        if (programs[i].child.keep >= 0)
            close(programs[i].child.keep);
}

void chk_one_line(const char *text, char *line, size_t size)
{
    size_t used = 0;
    bool blank = true;
    for (const char *c = text ? text : ""; *c && used + 1 < size; c++) {
        unsigned char byte = (unsigned char)*c;
        bool space = byte <= ' ' || byte == 0x7f;
        if (!(space && blank))
            line[used++] = space ? ' ' : byte < 0x7f ? *c : '?';
        blank = space;
    }
    while (used > 0 && line[used - 1] == ' ')
        used--;
    line[used] = '\0';
}
