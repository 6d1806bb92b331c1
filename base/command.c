/* How is a program of the site's, of Slurm's or of NVIDIA's run by root? It is opened once, along a path that
 * only root can change, and what was opened is what runs. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <xcloud/base.h>

static int execute(void *data, int out)
{
    struct xc_command *command = data;
    static const char *const nothing[] = {NULL};
    const char *plain[] = {command->path, NULL};
    char *const *argv = (char *const *)(uintptr_t)(command->argv ? command->argv : plain);
    char *const *env = (char *const *)(uintptr_t)(command->env ? command->env : nothing);
    dup2(out, STDOUT_FILENO);
    if (command->errors)
        dup2(out, STDERR_FILENO);
    close(out);
    if (chdir("/") < 0)
        return 127;
    if (command->by_path) {
        execve(command->path, argv, env);
        return 127;
    }
    /* a script's interpreter opens /dev/fd/N: the descriptor stays open for it */
    fcntl(command->child.keep, F_SETFD, 0);
    fexecve(command->child.keep, argv, env);
    return 127;
}

void xc_commands_run(struct xc_command *commands, size_t count, unsigned deadline_ms)
{
    xc_autofree struct xc_child *children = calloc(count ? count : 1, sizeof *children);
    xc_autofree size_t *owner = calloc(count ? count : 1, sizeof *owner);
    size_t started = 0;
    for (size_t i = 0; i < count; i++) {
        struct xc_command *command = &commands[i];
        command->child = (struct xc_child){.keep = xc_open_trusted(command->path, &command->error)};
        if (command->child.keep < 0 || !children || !owner)
            continue;
        command->child.run = execute;
        command->child.data = command;
        command->child.limit = command->limit ? command->limit : XC_COMMAND_TEXT;
        command->child.deadline_ms = command->deadline_ms;
        children[started] = command->child;
        owner[started++] = i;
    }
    if (started > 0)
        xc_children_run(children, started, deadline_ms);
    for (size_t i = 0; i < started; i++)
        commands[owner[i]].child = children[i];
    for (size_t i = 0; i < count; i++)
        if (commands[i].child.keep >= 0)
            close(commands[i].child.keep);
}
