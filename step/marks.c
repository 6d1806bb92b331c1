/* What has the prolog left for this job's steps: a word of warning, or a refusal? */
#include <string.h>
#include <sys/stat.h>

#include "internal.h"

#define MARK_LIMIT 16384

/* The texts are a prolog's, made of findings: printable. A file of another owner is none. */
void step_marks(struct xc_step *step)
{
    struct xc_text name = XC_TEXT_INIT;
    xc_text_addf(&name, "%s" XC_MARK_DIR "/%u", step->machine ? step->machine : "", step->job_id);
    xc_autofree char *path = xc_text_take(&name);
    struct stat st;
    size_t length;
    if (!path || lstat(path, &st) < 0)
        return; /* nearly always */
    xc_autofree char *text = xc_read_trusted(path, MARK_LIMIT, &length, NULL);
    char *rest = text, *line;
    while (text && (line = strsep(&rest, "\n"))) {
        bool refuse = xc_starts(line, "refuse ");
        if (refuse)
            tell(step, "%s: refused: %.400s", step->node_name, line + 7);
        else if (xc_starts(line, "warn "))
            tell(step, "%s: %.400s", step->node_name, line + 5);
        step->marked |= refuse;
    }
}

/* Every task refuses, so that none is left waiting; the first one says why. */
enum xc_verdict step_refuse_marked(const struct xc_step *step, int local_id)
{
    if (local_id == 0)
        report_write(&step->told);
    return XC_REFUSE;
}
