/* How is a machine in an archive read without unpacking it? As a tree in memory behind the operations
 * of a root. Archives come from other people: names, links and sizes in them are not believed. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include <xcloud/node.h>

#define LINKS_MAX 40 /* as the kernel */
#define BUCKETS   65536u
#define NOTHING   UINT32_MAX

enum kind { DIRECTORY, REGULAR, LINK };

struct entry {
    char *name;
    char *data; /* content, or a link's target; NUL-terminated */
    size_t length;
    uint32_t parent, first_child, next_sibling, next_in_bucket;
    enum kind kind;
};

struct tree {
    struct entry *entries; /* 0 is the archive's own top */
    size_t count, size;
    uint32_t *buckets;
    uint32_t root;      /* where "/" is */
    size_t used, limit; /* bytes of names, contents and entries */
};

/* ---- the tree ------------------------------------------------------------------------------------- */

static uint32_t *bucket(const struct tree *tree, uint32_t parent, const char *name, size_t length)
{
    uint64_t hash = xc_hash64(name, length) ^ (uint64_t)parent * 0x9e3779b97f4a7c15u;
    return &tree->buckets[(hash ^ hash >> 32) % BUCKETS];
}

static uint32_t find_child(const struct tree *tree, uint32_t parent, const char *name,
                           size_t length)
{
    uint32_t at = *bucket(tree, parent, name, length);
    for (; at != NOTHING; at = tree->entries[at].next_in_bucket) {
        const struct entry *entry = &tree->entries[at];
        if (entry->parent == parent && strncmp(entry->name, name, length) == 0 &&
            entry->name[length] == '\0')
            break;
    }
    return at;
}

static bool spend(struct tree *tree, size_t bytes)
{
    if (bytes > tree->limit - tree->used)
        return false;
    tree->used += bytes;
    return true;
}

static uint32_t add_child(struct tree *tree, uint32_t parent, const char *name, size_t length)
{
    if (!spend(tree, sizeof(struct entry) + length + 1) || tree->count >= NOTHING)
        return NOTHING;
    if (tree->count == tree->size) {
        size_t size = tree->size ? 2 * tree->size : 1024;
        struct entry *entries = realloc(tree->entries, size * sizeof *entries);
        if (!entries)
            return NOTHING;
        tree->entries = entries;
        tree->size = size;
    }
    char *copy = strndup(name, length);
    if (!copy)
        return NOTHING;
    uint32_t at = (uint32_t)tree->count++;
    struct entry *entry = &tree->entries[at];
    *entry = (struct entry){.name = copy,
                            .parent = parent,
                            .first_child = NOTHING,
                            .next_sibling = NOTHING,
                            .next_in_bucket = NOTHING};
    if (at > 0) {
        uint32_t *head = bucket(tree, parent, name, length);
        entry->next_in_bucket = *head;
        *head = at;
        entry->next_sibling = tree->entries[parent].first_child;
        tree->entries[parent].first_child = at;
    }
    return at;
}

static void tree_free(struct tree *tree)
{
    if (!tree)
        return;
    for (size_t i = 0; i < tree->count; i++) {
        free(tree->entries[i].name);
        free(tree->entries[i].data);
    }
    free(tree->entries);
    free(tree->buckets);
    free(tree);
}

static struct tree *tree_new(size_t limit)
{
    struct tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return NULL;
    tree->limit = limit;
    tree->buckets = malloc(BUCKETS * sizeof *tree->buckets);
    if (tree->buckets)
        memset(tree->buckets, 0xff, BUCKETS * sizeof *tree->buckets);
    if (!tree->buckets || add_child(tree, 0, "", 0) == NOTHING) {
        tree_free(tree);
        return NULL;
    }
    return tree;
}

/* ---- answering -------------------------------------------------------------------------------------- */

/* The entry that a path leads to, every link resolved within the root; 0 or -errno. */
static int resolve(const struct tree *tree, const char *path, uint32_t *out)
{
    char rest[PATH_MAX], joined[PATH_MAX];
    uint32_t at = tree->root;
    unsigned links = 0;
    if (snprintf(rest, sizeof rest, "%s", path) >= (int)sizeof rest)
        return -ENAMETOOLONG;
    for (const char *name = rest; *(name += strspn(name, "/"));) {
        size_t length = strcspn(name, "/");
        const char *after = name + length;
        if (tree->entries[at].kind != DIRECTORY)
            return -ENOTDIR;
        if (length == 2 && name[0] == '.' && name[1] == '.') {
            at = at == tree->root ? at : tree->entries[at].parent;
        } else if (!(length == 1 && name[0] == '.')) {
            uint32_t child = find_child(tree, at, name, length);
            if (child == NOTHING)
                return -ENOENT;
            if (tree->entries[child].kind == LINK) {
                const char *target = tree->entries[child].data;
                if (++links > LINKS_MAX)
                    return -ELOOP;
                if (snprintf(joined, sizeof joined, "%s/%s", target, after) >= (int)sizeof joined)
                    return -ENAMETOOLONG;
                at = target[0] == '/' ? tree->root : at;
                memcpy(rest, joined, strlen(joined) + 1);
                name = rest;
                continue;
            }
            at = child;
        }
        name = after;
    }
    *out = at;
    return 0;
}

static int tree_read(void *self, const char *path, size_t limit, char **out, size_t *length)
{
    const struct tree *tree = self;
    uint32_t at;
    int rc = resolve(tree, path, &at);
    if (rc < 0)
        return rc;
    const struct entry *entry = &tree->entries[at];
    if (entry->kind != REGULAR)
        return -EISDIR;
    if (entry->length > limit)
        return -EFBIG;
    char *copy = malloc(entry->length + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, entry->data, entry->length + 1);
    *out = copy;
    *length = entry->length;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int tree_list(void *self, const char *path, char ***names)
{
    const struct tree *tree = self;
    uint32_t at;
    size_t count = 0, used = 0;
    int rc = resolve(tree, path, &at);
    if (rc < 0)
        return rc;
    if (tree->entries[at].kind != DIRECTORY)
        return -ENOTDIR;
    for (uint32_t child = tree->entries[at].first_child; child != NOTHING;
         child = tree->entries[child].next_sibling)
        count++;
    xc_autonames char **list = calloc(count + 1, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (uint32_t child = tree->entries[at].first_child; child != NOTHING;
         child = tree->entries[child].next_sibling) {
        list[used] = strdup(tree->entries[child].name);
        if (!list[used++])
            return -ENOMEM;
    }
    qsort(list, count, sizeof *list, by_name);
    *names = list;
    list = NULL;
    return 0;
}

static void add_path(const struct tree *tree, uint32_t at, struct xc_text *out)
{
    uint32_t chain[PATH_MAX / 2];
    size_t depth = 0;
    for (; at != tree->root && depth < XC_COUNT(chain); at = tree->entries[at].parent)
        chain[depth++] = at;
    while (depth > 0)
        xc_text_addf(out, "/%s", tree->entries[chain[--depth]].name);
}

static int tree_canonical(void *self, const char *path, char **out)
{
    const struct tree *tree = self;
    uint32_t at;
    int rc = resolve(tree, path, &at);
    if (rc < 0)
        return rc;
    struct xc_text text = XC_TEXT_INIT;
    add_path(tree, at, &text);
    if (text.length == 0)
        xc_text_add(&text, "/");
    *out = xc_text_take(&text);
    return *out ? 0 : -ENOMEM;
}

static void tree_close(void *self)
{
    tree_free(self);
}

static const struct xc_root_ops tree_ops = {
    .read = tree_read,
    .list = tree_list,
    .canonical = tree_canonical,
    .close = tree_close,
};

/* ---- filling it ------------------------------------------------------------------------------------- */

struct loading {
    struct tree *tree;
    const char *file;
    struct xc_error *error;
};

static int too_large(const struct loading *loading)
{
    return xc_error_set(loading->error, XC_EINPUT, loading->file,
                        "it holds more than %zu bytes, or memory ran out", loading->tree->limit);
}

static int bad_name(const struct loading *loading, const char *name, const char *what)
{
    return xc_error_set(loading->error, XC_EINPUT, loading->file, "its entry \"%.200s\" %s", name,
                        what);
}

/* The entry of that name, made with the directories above it. NOTHING: error is set. `*made`: its
 * kind is still to be said. */
static uint32_t place(const struct loading *loading, const char *path, bool *made)
{
    uint32_t at = 0;
    unsigned depth = 0;
    *made = false;
    for (const char *name = path; *(name += strspn(name, "/")); name += strcspn(name, "/")) {
        size_t length = strcspn(name, "/");
        if (length == 1 && name[0] == '.')
            continue;
        if ((length == 2 && name[0] == '.' && name[1] == '.') || length > NAME_MAX ||
            ++depth > 128) {
            bad_name(loading, path, "has \"..\" in its name, or a name too long or too deep");
            return NOTHING;
        }
        if (loading->tree->entries[at].kind != DIRECTORY) {
            bad_name(loading, path, "is below something that is no directory");
            return NOTHING;
        }
        uint32_t child = find_child(loading->tree, at, name, length);
        *made = child == NOTHING;
        if (child == NOTHING)
            child = add_child(loading->tree, at, name, length);
        if (child == NOTHING) {
            too_large(loading);
            return NOTHING;
        }
        at = child;
    }
    return at;
}

/* Gives an entry its content, which it takes over. The last one of a name counts, as in tar. */
static int set_content(const struct loading *loading, const char *path, enum kind kind, char *data,
                       size_t length)
{
    bool made;
    uint32_t at = place(loading, path, &made);
    if (at == NOTHING || !data) {
        free(data);
        return at == NOTHING ? -1 : too_large(loading);
    }
    struct entry *entry = &loading->tree->entries[at];
    if (at == 0 || (!made && entry->kind == DIRECTORY)) {
        free(data);
        return bad_name(loading, path, "is a directory and something else");
    }
    free(entry->data);
    entry->kind = kind;
    entry->data = data;
    entry->length = length;
    return 0;
}

static int add_link(const struct loading *loading, const char *path, const char *target)
{
    size_t length = target ? strlen(target) : 0;
    if (length == 0 || length >= PATH_MAX)
        return bad_name(loading, path, "is a link to nothing");
    if (!spend(loading->tree, length))
        return too_large(loading);
    return set_content(loading, path, LINK, strdup(target), length);
}

/* A second name of a file that came before; the content is copied. */
static int add_hard_link(const struct loading *loading, const char *path, const char *target)
{
    uint32_t at = 0;
    for (const char *name = target; *(name += strspn(name, "/")); name += strcspn(name, "/")) {
        if (strcspn(name, "/") == 1 && name[0] == '.')
            continue;
        at = find_child(loading->tree, at, name, strcspn(name, "/"));
        if (at == NOTHING)
            break;
    }
    if (at == NOTHING || loading->tree->entries[at].kind != REGULAR)
        return bad_name(loading, path, "is a link to a file that is not there");
    size_t length = loading->tree->entries[at].length;
    if (!spend(loading->tree, length))
        return too_large(loading);
    char *copy = malloc(length + 1);
    if (copy)
        memcpy(copy, loading->tree->entries[at].data, length + 1);
    return set_content(loading, path, REGULAR, copy, length);
}

static int archive_failed(const struct loading *loading, struct archive *archive)
{
    const char *why = archive_error_string(archive);
    return xc_error_set(loading->error, XC_EINPUT, loading->file, "cannot read the archive: %s",
                        why ? why : "unknown");
}

static int add_file(const struct loading *loading, struct archive *archive, const char *path)
{
    struct xc_text text = XC_TEXT_INIT;
    char chunk[65536];
    for (;;) {
        ssize_t got = archive_read_data(archive, chunk, sizeof chunk);
        if (got < 0) {
            xc_text_free(&text);
            return archive_failed(loading, archive);
        }
        if (got == 0)
            break;
        if (!spend(loading->tree, (size_t)got)) {
            xc_text_free(&text);
            return too_large(loading);
        }
        xc_text_add_n(&text, chunk, (size_t)got);
    }
    size_t length = text.length;
    return set_content(loading, path, REGULAR, xc_text_take(&text), length);
}

/* Devices, FIFOs and sockets are left out: nothing that we read is one. */
static int add_entry(const struct loading *loading, struct archive *archive,
                     struct archive_entry *entry)
{
    const char *path = archive_entry_pathname(entry);
    bool made;
    if (!path)
        return bad_name(loading, "?", "has a name that cannot be read");
    if (archive_entry_hardlink(entry))
        return add_hard_link(loading, path, archive_entry_hardlink(entry));
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return add_file(loading, archive, path);
    case AE_IFLNK:
        return add_link(loading, path, archive_entry_symlink(entry));
    case AE_IFDIR: {
        uint32_t at = place(loading, path, &made);
        if (at == NOTHING)
            return -1;
        if (loading->tree->entries[at].kind != DIRECTORY)
            return bad_name(loading, path, "is a directory and something else");
        return 0;
    }
    default:
        return 0;
    }
}

static void free_archive(struct archive **archive)
{
    archive_read_free(*archive);
}

static int load(const struct loading *loading)
{
    xc_cleanup(free_archive) struct archive *archive = archive_read_new();
    if (!archive)
        return xc_error_nomem(loading->error);
    archive_read_support_format_tar(archive);
    archive_read_support_filter_gzip(archive);
    archive_read_support_filter_bzip2(archive);
    archive_read_support_filter_xz(archive);
    archive_read_support_filter_lzma(archive);
    archive_read_support_filter_lz4(archive);
    archive_read_support_filter_zstd(archive);
    if (archive_read_open_filename(archive, loading->file, 65536) != ARCHIVE_OK)
        return archive_failed(loading, archive);
    for (;;) {
        struct archive_entry *entry;
        int rc = archive_read_next_header(archive, &entry);
        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_failed(loading, archive);
        if (add_entry(loading, archive, entry) < 0)
            return -1;
    }
}

/* "dgx-h100/sys/…": a top directory that is alone, and not itself /sys or /proc, is the root. */
static void find_root(struct tree *tree)
{
    uint32_t only = tree->entries[0].first_child;
    if (only == NOTHING || tree->entries[only].next_sibling != NOTHING)
        return;
    const struct entry *entry = &tree->entries[only];
    if (entry->kind == DIRECTORY && !xc_streq(entry->name, "sys") && !xc_streq(entry->name, "proc"))
        tree->root = only;
}

int xc_machine_open(const char *path, size_t limit, struct xc_root **out, struct xc_error *error)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return xc_error_errno(error, path, "cannot open the machine");
    if (S_ISDIR(st.st_mode))
        return xc_root_open_dir(path, out, error);
    if (!S_ISREG(st.st_mode))
        return xc_error_set(error, XC_EINPUT, path, "a machine is a directory or a tar archive");
    struct tree *tree = tree_new(limit);
    struct loading loading = {.tree = tree, .file = path, .error = error};
    if (!tree)
        return xc_error_nomem(error);
    if (load(&loading) < 0) {
        tree_free(tree);
        return -1;
    }
    find_root(tree);
    if (xc_root_new(&tree_ops, tree, path, out, error) < 0) {
        tree_free(tree);
        return -1;
    }
    return 0;
}
