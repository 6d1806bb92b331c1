/* What has the site said about its units? AllowedCPUs= and CPUAffinity= in unit files and drop-ins; and
 * which of them start slurmd. */
#include "work.h"

/* Where systemd looks for the system's units (systemd.unit(5)). */
static const char *const unit_dirs[] = {
    "/etc/systemd/system.control",  "/run/systemd/system.control",   "/run/systemd/transient",
    "/run/systemd/generator.early", "/etc/systemd/system",           "/run/systemd/system",
    "/run/systemd/generator",       "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",          "/run/systemd/generator.late",
};

void host_units_clear(struct host_units *units)
{
    for (size_t i = 0; i < units->count; i++) {
        free(units->list[i].name);
        free(units->list[i].slice);
    }
    free(units->list);
    *units = (struct host_units){0};
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && xc_streq(text + length - tail, end);
}

static struct host_unit *unit_of(struct host_units *units, const char *name)
{
    for (size_t i = 0; i < units->count; i++)
        if (xc_streq(units->list[i].name, name))
            return &units->list[i];
    if (units->count == units->size) {
        size_t size = units->size ? 2 * units->size : 32;
        struct host_unit *list = realloc(units->list, size * sizeof *list);
        if (!list) {
            units->failed = true;
            return NULL;
        }
        units->list = list;
        units->size = size;
    }
    char *copy = strdup(name);
    if (!copy) {
        units->failed = true;
        return NULL;
    }
    units->list[units->count] = (struct host_unit){.name = copy};
    return &units->list[units->count++];
}

/* slurmdbd is another thing. */
static bool names_slurmd(const char *line)
{
    for (const char *at = line; (at = strstr(at, "slurmd")); at += 6)
        if (at[6] != 'b')
            return true;
    return false;
}

/* The value behind KEY=, blanks around '=' as systemd allows them; NULL: another line. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return NULL;
    line += length;
    line += strspn(line, " \t");
    if (*line != '=')
        return NULL;
    line++;
    return line + strspn(line, " \t");
}

/* What one file says of its unit. */
struct said {
    bool pinned[2], exec, jobs; /* exec: the line before was of an Exec…= */
    const char *slice;
};

static void judge_line(const char *line, struct said *said)
{
    static const char *const keys[] = {"AllowedCPUs", "CPUAffinity"};
    for (size_t i = 0; i < XC_COUNT(keys); i++) {
        const char *value = value_of(line, keys[i]);
        if (value)
            said->pinned[i] = *value != '\0'; /* an empty one takes back what stands above it */
    }
    const char *slice = value_of(line, "Slice");
    if (slice && *slice)
        said->slice = slice;
    said->exec = xc_starts(line, "Exec");
    said->jobs |= said->exec && names_slurmd(line);
}

static void take_said(struct host_units *units, const char *name, const struct said *said)
{
    bool pinned = said->pinned[0] || said->pinned[1];
    if (!pinned && !said->jobs && !said->slice)
        return;
    struct host_unit *unit = unit_of(units, name);
    if (!unit)
        return;
    unit->pinned |= pinned;
    unit->jobs |= said->jobs;
    if (said->slice && !unit->slice) { /* the directories come in the order of their rank */
        unit->slice = strdup(said->slice);
        units->failed |= !unit->slice;
    }
}

static void judge_file(struct xc_root *root, struct host_units *units, const char *unit,
                       const char *path)
{
    struct said said = {0};
    bool joined = false;
    xc_autofree char *text = xc_root_read(root, NULL, NULL, "%s", path);
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line = xc_trim(line);
        if (*line == '#' || *line == ';')
            continue;
        if (!joined)
            judge_line(line, &said);
        else if (said.exec && names_slurmd(line))
            said.jobs = true;
        joined = ends(line, "\\");
    }
    take_said(units, unit, &said);
}

static bool is_unit(const char *name)
{
    return ends(name, ".service") || ends(name, ".slice") || ends(name, ".scope") ||
           xc_streq(name, "service") || xc_streq(name, "slice") || xc_streq(name, "scope");
}

static void judge_dropins(struct xc_root *root, struct host_units *units, const char *unit,
                          const char *directory)
{
    xc_autonames char **names = xc_root_list(root, "%s", directory);
    for (char **name = names; name && *name; name++) {
        struct xc_text path = XC_TEXT_INIT;
        if (!ends(*name, ".conf") || xc_streq(*name, HOST_DROPIN_NAME))
            continue;
        xc_text_addf(&path, "%s/%s", directory, *name);
        xc_autofree char *full = xc_text_take(&path);
        if (full)
            judge_file(root, units, unit, full);
        units->failed |= !full;
    }
}

static void judge_entry(struct xc_root *root, struct host_units *units, const char *directory,
                        const char *name)
{
    struct xc_text path = XC_TEXT_INIT;
    xc_text_addf(&path, "%s/%s", directory, name);
    xc_autofree char *full = xc_text_take(&path), *unit = strdup(name);
    if (!full || !unit) {
        units->failed = true;
        return;
    }
    if (ends(unit, ".d")) {
        unit[strlen(unit) - 2] = '\0';
        if (is_unit(unit))
            judge_dropins(root, units, unit, full);
    } else if (is_unit(unit)) {
        judge_file(root, units, unit, full);
    }
}

void host_units_read(struct xc_root *root, struct host_units *units)
{
    for (size_t i = 0; i < XC_COUNT(unit_dirs); i++) {
        xc_autonames char **names = xc_root_list(root, "%s", unit_dirs[i]);
        for (char **name = names; name && *name; name++)
            judge_entry(root, units, unit_dirs[i], *name);
    }
}

/* "getty@.service" speaks for getty@tty1.service, "site-.service" for site-agent.service, "service" for
 * all services. */
static bool speaks_for(const char *said, const char *name)
{
    const char *type = strrchr(name, '.'), *dot = strrchr(said, '.');
    if (!type)
        return false;
    if (!dot)
        return xc_streq(said, type + 1);
    size_t length = (size_t)(dot - said);
    if (length == 0 || !xc_streq(dot, type) || (said[length - 1] != '@' && said[length - 1] != '-'))
        return false;
    return strncmp(said, name, length) == 0;
}

const struct host_unit *host_units_find(const struct host_units *units, const char *name)
{
    const struct host_unit *general = NULL;
    for (size_t i = 0; i < units->count; i++) {
        if (xc_streq(units->list[i].name, name))
            return &units->list[i];
        if (speaks_for(units->list[i].name, name))
            general = &units->list[i];
    }
    return general;
}

bool host_unit_starts_jobs(const struct host_units *units, const char *name)
{
    const struct host_unit *unit = host_units_find(units, name);
    return xc_streq(name, "slurmd.service") || xc_starts(name, "slurmd@") || (unit && unit->jobs);
}

/* "site-gpu.slice" is in "site.slice". */
static bool is_below(const char *slice, const char *top)
{
    size_t stem = strlen(top) - strlen(".slice");
    return xc_streq(slice, top) || (strncmp(slice, top, stem) == 0 && slice[stem] == '-');
}

bool host_units_put_jobs_into(const struct host_units *units, const char *slice)
{
    for (size_t i = 0; i < units->count; i++) {
        const struct host_unit *unit = &units->list[i];
        if (unit->slice && ends(slice, ".slice") && is_below(unit->slice, slice) &&
            host_unit_starts_jobs(units, unit->name))
            return true;
    }
    return false;
}
