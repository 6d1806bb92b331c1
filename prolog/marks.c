/* What are a job's steps told on this node? A file of root's, which step/marks.c reads. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/step.h>

#include "internal.h"

static char *mark_path(const struct program *program)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s" XC_MARK_DIR "/%u", program->prefix ? program->prefix : "",
                 program->job);
    return xc_text_take(&text);
}

int mark_write(const struct program *program, const char *text, struct xc_error *error)
{
    if (!*text) {
        mark_remove(program); /* an earlier prolog of the same job may have left one */
        return 0;
    }
    xc_autofree char *path = mark_path(program), *directory = path ? strdup(path) : NULL;
    if (!directory)
        return xc_error_nomem(error);
    *strrchr(directory, '/') = '\0';
    return xc_make_dirs(directory, 0755, error) < 0
               ? -1
               : xc_write_atomic(path, text, strlen(text), 0644, error);
}

void mark_remove(const struct program *program)
{
    xc_autofree char *path = program->job ? mark_path(program) : NULL;
    if (path)
        unlink(path);
}
