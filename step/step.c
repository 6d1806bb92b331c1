/* The library's one door, and what its files ask of a step. */
#include "internal.h"

static const struct xc_step_api api = {
    .abi = XC_STEP_ABI,
    .open = step_open,
    .post_fork = step_post_fork,
    .task_privileged = container_prepare,
    .task_init = step_task_init,
    .close = step_close,
};

__attribute__((visibility("default"))) const struct xc_step_api *xc_step_api(unsigned abi)
{
    return abi == XC_STEP_ABI ? &api : NULL;
}

const char *step_kind_word(enum xc_step_kind kind)
{
    return kind == XC_STEP_BATCH         ? "batch"
           : kind == XC_STEP_INTERACTIVE ? "interactive"
           : kind == XC_STEP_EXTERN      ? "extern"
                                         : NULL;
}

char *step_below(const struct xc_step *step, const char *path)
{
    struct xc_text text = XC_TEXT_INIT;
    xc_text_addf(&text, "%s%s", step->machine ? step->machine : "", path);
    return xc_text_take(&text);
}

void tell(struct xc_step *step, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_text_add(&step->told, "xcloud-bind: ");
    xc_text_addv(&step->told, format, args);
    xc_text_add(&step->told, "\n");
    va_end(args);
}
