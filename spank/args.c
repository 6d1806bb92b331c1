/* What does root say to the plugin on its line of plugstack.conf? */
#include <string.h>

#include "plugin.h"

static const char *value_of(const char *argument, const char *key)
{
    size_t length = strlen(key);
    return strncmp(argument, key, length) == 0 && argument[length] == '=' ? argument + length + 1
                                                                          : NULL;
}

static bool take_path(const char *argument, const char *key, const char **out)
{
    const char *value = value_of(argument, key);
    if (!value)
        return false;
    if (value[0] == '/')
        *out = value;
    else
        slurm_error("xcloud-bind: plugstack.conf: %s: expected an absolute path", argument);
    return true;
}

/* A word that is one of two; on_second says which. */
static bool take_word(const char *argument, const char *key, const char *first, const char *second,
                      bool *on_second)
{
    const char *value = value_of(argument, key);
    if (!value)
        return false;
    if (xc_streq(value, first) || xc_streq(value, second))
        *on_second = xc_streq(value, second);
    else
        slurm_error("xcloud-bind: plugstack.conf: %s: expected %s or %s", argument, first, second);
    return true;
}

void args_parse(int count, char **values, struct plugin_args *args)
{
    for (int i = 0; i < count; i++) {
        const char *argument = values[i];
        if (xc_streq(argument, "kill_on_refuse"))
            args->kill_on_refuse = true;
        else if (!take_path(argument, "policy", &args->policy) &&
                 !take_path(argument, "machine", &args->machine) &&
                 !take_word(argument, "mode", "policy", "off", &args->mode_off) &&
                 !take_word(argument, "on_error", "warn", "refuse", &args->on_error_refuse))
            slurm_error("xcloud-bind: plugstack.conf: unknown argument %s; known are policy=PATH "
                        "machine=DIR mode=off on_error=warn|refuse kill_on_refuse",
                        argument);
    }
}
