/* What do slurmstepd and the tasks tell each other, and what stays of it? One mapped file a step. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define WORD_BITS     64
#define PRUNE_AT_ONCE 16

static size_t page_up(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

size_t table_head_bytes(const struct table_head *head)
{
    return sizeof *head + 8 * (TABLE_CPU_SETS * (size_t)head->cpu_words + head->mem_words);
}

size_t table_slot_bytes(const struct table_head *head)
{
    size_t bytes = sizeof(struct table_slot) + 8 * ((size_t)head->cpu_words + head->mem_words) +
                   4 * (2 * (size_t)head->max_gpus + head->max_nics);
    return (bytes + 63) / 64 * 64; /* a cache line each */
}

static uint32_t words_for(int highest)
{
    return (uint32_t)(highest < 0 ? 1 : highest / WORD_BITS + 1);
}

static int highest_numa(const struct xc_node *node)
{
    return node->nnumas ? node->numas[node->nnumas - 1].os : 0;
}

static int map_file(struct table *table, int dir_fd, const char *name)
{
    if (dir_fd < 0)
        return -1;
    /* a step id is used again only after a slurmctld lost its state: the old record goes */
    unlinkat(dir_fd, name, 0);
    xc_autoclose int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    if (fchmod(fd, 0644) < 0 || posix_fallocate(fd, 0, (off_t)table->size) != 0) {
        unlinkat(dir_fd, name, 0);
        return -1;
    }
    void *map = mmap(NULL, table->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        unlinkat(dir_fd, name, 0);
        return -1;
    }
    table->head = map;
    table->file = true;
    return 0;
}

int table_make(struct table *table, int dir_fd, const char *name, uint32_t ntasks,
               const struct xc_node *node, struct xc_error *error)
{
    struct table_head head = {
        .magic = TABLE_MAGIC,
        .version = XC_STEP_ABI,
        .ntasks = ntasks,
        .cpu_words = words_for(node ? xc_node_max_cpu(node) : 0),
        .mem_words = words_for(node ? highest_numa(node) : 0),
        .max_gpus = (uint32_t)(node ? node->ngpus : 0),
        .max_nics = (uint32_t)(node ? node->nnics : 0),
        .stepd_pid = getpid(),
        .started_at = time(NULL),
    };
    head.slots_at = (uint32_t)page_up(table_head_bytes(&head));
    head.slot_size = (uint32_t)table_slot_bytes(&head);
    size_t size = head.slots_at + (size_t)head.slot_size * ntasks;
    if (size > TABLE_SIZE_MAX)
        return xc_error_set(error, XC_EINPUT, NULL, "%u tasks on one node are too many", ntasks);
    head.size = (uint32_t)size;
    *table = (struct table){.size = size};
    if (map_file(table, dir_fd, name) < 0) {
        void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED)
            return xc_error_errno(error, NULL, "cannot map the step's table");
        table->head = map;
    }
    *table->head = head;
    return 0;
}

void table_unmap(struct table *table)
{
    if (table->head)
        munmap(table->head, table->size);
    *table = (struct table){0};
}

void table_protect(struct table *table)
{
    if (table->head)
        mprotect(table->head, table->head->slots_at, PROT_READ);
}

struct table_slot *table_slot(const struct table *table, unsigned task)
{
    return (struct table_slot *)(void *)((char *)table->head + table->head->slots_at +
                                         (size_t)table->head->slot_size * task);
}

/* ---- sets in it ------------------------------------------------------------------------------------ */

static void put(uint64_t *words, uint32_t count, const struct xc_set *set)
{
    memset(words, 0, 8 * (size_t)count);
    for (ssize_t i = xc_set_next(set, 0); i >= 0; i = xc_set_next(set, (size_t)i + 1))
        if ((size_t)i / WORD_BITS < count)
            words[i / WORD_BITS] |= UINT64_C(1) << (i % WORD_BITS);
}

static void get(const uint64_t *words, uint32_t count, struct xc_set *out)
{
    xc_set_clear(out);
    for (size_t w = count; w-- > 0;) /* highest first: the set grows once */
        for (uint64_t rest = words[w]; rest; rest &= rest - 1)
            xc_set_add(out, w * WORD_BITS + (size_t)__builtin_ctzll(rest));
}

/* The memory nodes stand behind the sets of CPUs. */
static uint64_t *head_set(const struct table *table, enum table_set which)
{
    return (uint64_t *)(table->head + 1) + (size_t)which * table->head->cpu_words;
}

void table_put_set(struct table *table, enum table_set which, const struct xc_set *set)
{
    put(head_set(table, which), table->head->cpu_words, set);
}

void table_get_set(const struct table *table, enum table_set which, struct xc_set *out)
{
    get(head_set(table, which), table->head->cpu_words, out);
}

void table_put_mems(struct table *table, const struct xc_set *set)
{
    put(head_set(table, TABLE_CPU_SETS), table->head->mem_words, set);
}

void table_get_mems(const struct table *table, struct xc_set *out)
{
    get(head_set(table, TABLE_CPU_SETS), table->head->mem_words, out);
}

static uint64_t *slot_sets(const struct table *table, unsigned task)
{
    return (uint64_t *)(table_slot(table, task) + 1);
}

void slot_put(const struct table *table, unsigned task, const struct xc_set *cpus,
              const struct xc_set *mems)
{
    uint64_t *words = slot_sets(table, task);
    put(words, table->head->cpu_words, cpus);
    put(words + table->head->cpu_words, table->head->mem_words, mems);
}

void slot_get(const struct table *table, unsigned task, struct xc_set *cpus, struct xc_set *mems)
{
    const uint64_t *words = slot_sets(table, task);
    get(words, table->head->cpu_words, cpus);
    get(words + table->head->cpu_words, table->head->mem_words, mems);
}

int32_t *slot_visible(const struct table *table, unsigned task)
{
    return (int32_t *)(slot_sets(table, task) + table->head->cpu_words + table->head->mem_words);
}

int32_t *slot_gpus(const struct table *table, unsigned task)
{
    return slot_visible(table, task) + table->head->max_gpus;
}

int32_t *slot_nics(const struct table *table, unsigned task)
{
    return slot_gpus(table, task) + table->head->max_gpus;
}

/* ---- waiting for each other -------------------------------------------------------------------------- */

void slot_publish(struct table_slot *slot, uint32_t seen)
{
    atomic_store(&slot->seen, seen);
    syscall(SYS_futex, &slot->seen, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool slot_wait(struct table_slot *slot, uint32_t seen, int64_t until_us)
{
    for (uint32_t have; (have = atomic_load(&slot->seen)) < seen;) {
        int64_t now = xc_now_us();
        if (now >= until_us)
            return false;
        struct timespec left = {.tv_sec = (time_t)((until_us - now) / 1000000),
                                .tv_nsec = (long)((until_us - now) % 1000000) * 1000};
        syscall(SYS_futex, &slot->seen, FUTEX_WAIT, have, &left, NULL, 0);
    }
    return true;
}

bool table_wait(const struct table *table, uint32_t seen, unsigned timeout_us)
{
    int64_t until = xc_now_us() + timeout_us;
    for (unsigned task = 0; task < table->head->ntasks; task++)
        if (!slot_wait(table_slot(table, task), seen, until))
            return false;
    return true;
}

/* ---- records ------------------------------------------------------------------------------------------- */

struct aged {
    char *name;
    struct timespec when;
};

static int newest_first(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;
    if (x->when.tv_sec != y->when.tv_sec)
        return x->when.tv_sec < y->when.tv_sec ? 1 : -1;
    return x->when.tv_nsec < y->when.tv_nsec ? 1 : x->when.tv_nsec > y->when.tv_nsec ? -1 : 0;
}

static bool runs(int dir_fd, const char *name)
{
    struct table_head head;
    xc_autoclose int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || read(fd, &head, sizeof head) != (ssize_t)sizeof head)
        return false;
    char stepd[64];
    snprintf(stepd, sizeof stepd, "/proc/%d", head.stepd_pid);
    return head.ended_at == 0 && head.stepd_pid > 0 && access(stepd, F_OK) == 0;
}

/* Names alone are cheap; each record's time is only asked for when enough of them are too many. */
static bool too_many(DIR *dir)
{
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    rewinddir(dir);
    return count > XC_RECORDS_KEPT + PRUNE_AT_ONCE;
}

/* Keeps the newest XC_RECORDS_KEPT and those of running steps; some more stay for a while. */
void records_prune(int dir_fd)
{
    int copy = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        if (copy >= 0)
            close(copy);
        return;
    }
    struct aged *all = NULL;
    size_t count = 0, size = 0;
    bool many = too_many(dir);
    for (struct dirent *entry; many && (entry = readdir(dir));) {
        struct stat st;
        if (entry->d_name[0] == '.' || fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (count == size) {
            size = size ? 2 * size : 2 * XC_RECORDS_KEPT;
            struct aged *larger = realloc(all, size * sizeof *all);
            if (!larger)
                break;
            all = larger;
        }
        all[count].name = strdup(entry->d_name);
        if (!all[count].name)
            break;
        all[count++].when = st.st_mtim;
    }
    closedir(dir);
    if (count > XC_RECORDS_KEPT) {
        qsort(all, count, sizeof *all, newest_first);
        for (size_t i = XC_RECORDS_KEPT; i < count; i++)
            if (!runs(dir_fd, all[i].name))
                unlinkat(dir_fd, all[i].name, 0);
    }
    for (size_t i = 0; i < count; i++)
        free(all[i].name);
    free(all);
}
