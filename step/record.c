/* What became of a step? Reads the record that its table has left, trusting nothing in it. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static int bad(struct xc_error *error, const char *name)
{
    return xc_error_set(error, XC_EINPUT, name, "it is no step record of this version");
}

/* Whether the sizes in the head describe exactly the file. */
static bool sound(const struct table_head *head, size_t size)
{
    if (memcmp(head->magic, TABLE_MAGIC, sizeof head->magic) != 0 || head->version != XC_STEP_ABI ||
        head->size != size)
        return false;
    if (head->cpu_words > XC_SET_LIMIT / 64 || head->mem_words > XC_SET_LIMIT / 64 ||
        head->max_gpus > 65536 || head->max_nics > 65536)
        return false;
    return head->slots_at >= table_head_bytes(head) && head->slot_size == table_slot_bytes(head) &&
           head->slots_at % 8 == 0 &&
           head->slots_at + (size_t)head->slot_size * head->ntasks == size;
}

static void copy_text(char *to, size_t size, const char *from)
{
    memcpy(to, from, size);
    to[size - 1] = '\0';
}

static int copy_list(int **out, size_t *count, const int32_t *from, uint32_t have, uint32_t most)
{
    *count = have < most ? have : most;
    *out = *count ? malloc(*count * sizeof **out) : NULL;
    if (*count && !*out)
        return -1;
    for (size_t i = 0; i < *count; i++)
        (*out)[i] = from[i];
    return 0;
}

static int read_task(const struct table *table, unsigned index, struct xc_record_task *task)
{
    const struct table_slot *slot = table_slot(table, index);
    task->pid = slot->pid;
    task->done = atomic_load(&slot->seen) >= 2;
    task->mem_mode =
        slot->mem_mode <= XC_MEMORY_NONE ? (enum xc_memory)slot->mem_mode : XC_MEMORY_UNSET;
    task->init_us = slot->init_us;
    slot_get(table, index, &task->cpus, &task->mems);
    return copy_list(&task->gpus, &task->ngpus, slot_gpus(table, index), slot->ngpus,
                     table->head->max_gpus) < 0 ||
                   copy_list(&task->nics, &task->nnics, slot_nics(table, index), slot->nnics,
                             table->head->max_nics) < 0
               ? -1
               : 0;
}

static int read_table(const struct table *table, struct xc_record *out, struct xc_error *error)
{
    const struct table_head *head = table->head;
    *out = (struct xc_record){
        .job_id = head->job_id,
        .step_id = head->step_id,
        .uid = head->uid,
        .flags = head->flags,
        .kind = head->kind <= XC_STEP_EXTERN ? (enum xc_step_kind)head->kind : XC_STEP_TASKS,
        .started_at = head->started_at,
        .ended_at = head->ended_at,
        .stepd_pid = head->stepd_pid,
        .open_us = head->open_us,
        .post_fork_us = head->post_fork_us,
    };
    copy_text(out->node_name, sizeof out->node_name, head->node_name);
    copy_text(out->class_name, sizeof out->class_name, head->class_name);
    copy_text(out->policy_hash, sizeof out->policy_hash, head->policy_hash);
    copy_text(out->words, sizeof out->words, head->words);
    copy_text(out->message, sizeof out->message, head->message);
    table_get_set(table, TABLE_ALLOWED, &out->allowed);
    table_get_set(table, TABLE_TRAINING, &out->training);
    table_get_set(table, TABLE_HOUSEKEEPING, &out->housekeeping);
    out->tasks = calloc(head->ntasks ? head->ntasks : 1, sizeof *out->tasks);
    if (!out->tasks)
        return xc_error_nomem(error);
    for (out->ntasks = 0; out->ntasks < head->ntasks; out->ntasks++) {
        out->flags |= table_slot(table, out->ntasks)->flags &
                      (XC_REC_PLACED | XC_REC_MEMORY | XC_REC_TOPO | XC_REC_REFUSED);
        if (read_task(table, out->ntasks, &out->tasks[out->ntasks]) < 0)
            return xc_error_nomem(error);
    }
    return 0;
}

int xc_record_read(int dir_fd, const char *name, struct xc_record *out, struct xc_error *error)
{
    *out = (struct xc_record){0};
    xc_autoclose int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return xc_error_errno(error, name, "cannot open the record");
    size_t size = (size_t)st.st_size;
    if (!S_ISREG(st.st_mode) || size < sizeof(struct table_head) || size > TABLE_SIZE_MAX)
        return bad(error, name);
    /* a copy: a running step goes on writing */
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return xc_error_errno(error, name, "cannot map the record");
    void *bytes = malloc(size);
    if (bytes)
        memcpy(bytes, map, size);
    munmap(map, size);
    if (!bytes)
        return xc_error_nomem(error);
    struct table table = {.head = bytes, .size = size};
    int rc = sound(table.head, size) ? read_table(&table, out, error) : bad(error, name);
    free(bytes);
    if (rc < 0)
        xc_record_clear(out);
    return rc;
}

void xc_record_clear(struct xc_record *record)
{
    for (unsigned i = 0; i < record->ntasks; i++) {
        xc_set_free(&record->tasks[i].cpus);
        xc_set_free(&record->tasks[i].mems);
        free(record->tasks[i].gpus);
        free(record->tasks[i].nics);
    }
    free(record->tasks);
    xc_set_free(&record->allowed);
    xc_set_free(&record->training);
    xc_set_free(&record->housekeeping);
    *record = (struct xc_record){0};
}
