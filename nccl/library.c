/* Which libnccl would a Python program of this process load, and of which release is it?
 *
 * Nothing is run or loaded. Most files say their release by their name (libnccl.so.2 is a link to
 * libnccl.so.2.28.9) or by the package beside them (nvidia_nccl_cu12-2.27.5.dist-info); the others
 * somewhere in their hundreds of megabytes. All is read as the caller, in places that a user or an
 * image has chosen: only regular files are opened, and no more is read than a library can have.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/nccl.h>

#define WHEEL       "/nvidia/nccl/lib/" XC_NCCL_SONAME
#define LIBRARY_MAX (1u << 30) /* the largest so far: 0.4 GB */
#define CHUNK       (1u << 20)
#define OVERLAP     64         /* more than a release with the words before it */
#define CACHE_MAX   (8u << 20) /* of ld.so.cache */
#define ENTRIES_MAX 20000      /* of a directory */
#define LIST_MAX    131072     /* bytes of a variable: the kernel takes no longer one */

/* ---- the release of a file ------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

unsigned xc_nccl_library_named(const char *path)
{
    static const char start[] = "/libnccl.so.";
    const char *name = strrchr(path, '/');
    return name && xc_starts(name, start) ? xc_nccl_release(name + strlen(start)) : 0;
}

static unsigned by_name(const char *path)
{
    xc_autofree char *whole = realpath(path, NULL);
    return whole ? xc_nccl_library_named(whole) : 0;
}

/* An entry of the directory that matches the pattern: the greatest, versions by number. */
static char *entry_of(const char *directory, const char *pattern)
{
    DIR *dir = opendir(directory);
    char *best = NULL;
    if (!dir)
        return NULL;
    struct dirent *entry;
    for (unsigned i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++) {
        if (!xc_glob(pattern, entry->d_name) || (best && strverscmp(entry->d_name, best) <= 0))
            continue;
        free(best);
        best = strdup(entry->d_name);
    }
    closedir(dir);
    return best;
}

/* pip puts the release into the name of the directory that describes its package. */
static unsigned by_package(const char *path)
{
    static const char ending[] = ".dist-info";
    size_t length = strlen(path), tail = strlen(WHEEL);
    if (length <= tail || !xc_streq(path + length - tail, WHEEL))
        return 0;
    xc_autofree char *site = strndup(path, length - tail);
    xc_autofree char *info = site ? entry_of(site, "nvidia_nccl_cu*-*.dist-info") : NULL;
    if (!info)
        return 0;
    info[strlen(info) - strlen(ending)] = '\0';
    return xc_nccl_release(strrchr(info, '-') + 1);
}

static unsigned by_bytes(const char *path)
{
    struct stat st;
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    xc_autofree char *bytes = malloc(CHUNK + 2 * OVERLAP);
    size_t kept = 0;
    for (size_t all = 0; bytes && all < LIBRARY_MAX;) {
        ssize_t got = read(fd, bytes + kept, CHUNK);
        if (got <= 0)
            return 0;
        size_t have = kept + (size_t)got;
        unsigned release = xc_nccl_library_release(bytes, have);
        if (release) {
            /* cut at the end of what was read, its last number may be: read on */
            ssize_t more = read(fd, bytes + have, OVERLAP);
            return more > 0 ? xc_nccl_library_release(bytes, have + (size_t)more) : release;
        }
        kept = have < OVERLAP ? have : OVERLAP;
        memmove(bytes, bytes + have - kept, kept);
        all += (size_t)got;
    }
    return 0;
}

unsigned xc_nccl_library_of(const char *path, bool thorough)
{
    if (!is_file(path))
        return 0;
    unsigned release = by_name(path);
    release = release ? release : by_package(path);
    return release || !thorough ? release : by_bytes(path);
}

/* ---- where it is ------------------------------------------------------------------------------------ */

struct search {
    xc_nccl_get_variable *get;
    void *ctx;
    char *value; /* LIST_MAX bytes */
    struct xc_nccl_library *out;
};

static const char *variable(struct search *search, const char *name)
{
    if (!search->get)
        return getenv(name);
    return search->get(search->ctx, name, search->value, LIST_MAX) == 0 ? search->value : NULL;
}

/* Whether there is one at this path; it is then what has been looked for. */
static bool take(struct search *search, const char *format, ...) xc_printf(2, 3);

static bool take(struct search *search, const char *format, ...)
{
    char *path = search->out->path;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path, sizeof search->out->path, format, args);
    va_end(args);
    if (length > 0 && (size_t)length < sizeof search->out->path && is_file(path))
        return true;
    path[0] = '\0';
    return false;
}

/* pip's below a root: lib/python3.11/site-packages, on Debian dist-packages. */
static bool in_python(struct search *search, const char *root)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%.4000s/lib", root);
    xc_autofree char *python = entry_of(directory, "python3*");
    return python && (take(search, "%s/%s/site-packages" WHEEL, directory, python) ||
                      take(search, "%s/%s/dist-packages" WHEEL, directory, python));
}

static bool in_environment(struct search *search, const char *name)
{
    char root[PATH_MAX];
    const char *value = variable(search, name);
    if (!value || *value != '/' || strlen(value) >= sizeof root)
        return false;
    strcpy(root, value);
    return in_python(search, root) || take(search, "%s/lib/" XC_NCCL_SONAME, root);
}

/* LD_LIBRARY_PATH's directories; of PATH's the first that has a python3, whose own libraries are meant. */
static bool in_list(struct search *search, const char *name, bool python)
{
    char file[PATH_MAX];
    const char *at = variable(search, name);
    for (size_t length; at && *at; at += length + (at[length] == ':')) {
        length = strcspn(at, ":");
        if (*at != '/' || length > sizeof file - 32)
            continue; /* relative to a directory that nobody knows yet */
        if (!python && take(search, "%.*s/" XC_NCCL_SONAME, (int)length, at))
            return true;
        snprintf(file, sizeof file, "%.*s/python3", (int)length, at);
        if (python && access(file, X_OK) == 0) {
            strcpy(strrchr(file, '/'), "/..");
            return in_python(search, file);
        }
    }
    return false;
}

/* What ldconfig has written down: glibc's format of 2.2 and later, also behind the one before it. */
static bool in_cache(struct search *search)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    const size_t head = 48, entry = 24;
    size_t length;
    struct stat st;
    xc_autoclose int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    xc_autofree char *file = xc_read_fd(fd, "ld.so.cache", CACHE_MAX, &length, NULL);
    const char *base = file ? memmem(file, length, magic, sizeof magic - 1) : NULL;
    if (!base)
        return false;
    size_t left = length - (size_t)(base - file);
    uint32_t count = 0;
    if (left >= head)
        memcpy(&count, base + sizeof magic - 1, sizeof count);
    for (size_t i = 0; i < count && head + (i + 1) * entry <= left; i++) {
        uint32_t name, path; /* where they are; the file ends with a NUL, as xc_read_fd gives it */
        memcpy(&name, base + head + i * entry + 4, sizeof name);
        memcpy(&path, base + head + i * entry + 8, sizeof path);
        if (name < left && path < left && xc_streq(base + name, XC_NCCL_SONAME) &&
            take(search, "%s", base + path))
            return true;
    }
    return false;
}

const char *const xc_nccl_directories[] = {"/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/usr/lib64",
                                           "/usr/lib",
                                           "/usr/local/lib",
                                           "/usr/local/cuda/lib64",
                                           NULL};

static bool in_system(struct search *search)
{
    for (const char *const *directory = xc_nccl_directories; *directory; directory++)
        if (take(search, "%s/" XC_NCCL_SONAME, *directory))
            return true;
    return false;
}

bool xc_nccl_library_find(xc_nccl_get_variable *get, void *ctx, bool thorough,
                          struct xc_nccl_library *out)
{
    *out = (struct xc_nccl_library){0};
    xc_autofree char *value = malloc(LIST_MAX);
    struct search search = {.get = get, .ctx = ctx, .value = value, .out = out};
    if (!value ||
        !(in_list(&search, "LD_LIBRARY_PATH", false) || in_environment(&search, "VIRTUAL_ENV") ||
          in_environment(&search, "CONDA_PREFIX") || in_list(&search, "PATH", true) ||
          in_python(&search, "/usr/local") || in_python(&search, "/usr") || in_cache(&search) ||
          in_system(&search)))
        return false;
    out->release = xc_nccl_library_of(out->path, thorough);
    return true;
}
