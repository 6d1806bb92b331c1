/* Runs a libFuzzer target without libFuzzer: every file of the directories, then mutations of them, for
 * a number of rounds, the same ones each time. Built with the address and undefined sanitizers.
 *
 *   tests/fuzz/TARGET [ROUNDS] [DIRECTORY …]
 *
 * The same targets under libFuzzer, for a night:
 *   clang -fsanitize=fuzzer,address -Iinclude -D_GNU_SOURCE tests/fuzz/topo-lint.c \
 *       $(find topo base plan policy -name '*.c') node/query.c -lyaml -lm
 *   ./a.out CORPUS tests/topo/good tests/topo/bad
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const char *const fuzz_corpus[]; /* directories below the source, NULL-terminated */

#define SIZE_MAX_INPUT 65536
#define FILES_MAX      4096

struct corpus {
    struct {
        uint8_t *bytes;
        size_t size;
    } files[FILES_MAX];
    size_t count;
};

static uint64_t seed = 1;

static size_t below(size_t limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return limit ? (size_t)(seed >> 33) % limit : 0;
}

static void read_file(struct corpus *corpus, const char *path)
{
    FILE *file = fopen(path, "r");
    uint8_t *bytes = malloc(SIZE_MAX_INPUT);
    if (!file || !bytes || corpus->count == FILES_MAX)
        abort();
    corpus->files[corpus->count].bytes = bytes;
    corpus->files[corpus->count++].size = fread(bytes, 1, SIZE_MAX_INPUT, file);
    fclose(file);
}

static void read_directory(struct corpus *corpus, const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) {
        perror(path);
        exit(2);
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        read_file(corpus, name);
    }
    closedir(dir);
}

/* A byte changed, a piece taken out, doubled, or taken from another file. */
static size_t mutate(const struct corpus *corpus, uint8_t *bytes, size_t size)
{
    static const char often[] = "<>/=\"' \n\t0fF:.-,#{}[]&|*";
    size_t at = below(size), length = below(below(64) + 1);
    length = at + length > size ? size - at : length;
    switch (below(5)) {
    case 0:
        if (size)
            bytes[at] = (uint8_t)below(256);
        return size;
    case 1:
        if (size)
            bytes[at] = (uint8_t)often[below(sizeof often - 1)];
        return size;
    case 2:
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length;
    case 3:
        if (size + length > SIZE_MAX_INPUT)
            return size;
        memmove(bytes + at + length, bytes + at, size - at);
        return size + length;
    default: {
        size_t other = below(corpus->count), from = below(corpus->files[other].size);
        size_t left = corpus->files[other].size - from;
        length = length > left ? left : length;
        length = at + length > size ? size - at : length;
        memcpy(bytes + at, corpus->files[other].bytes + from, length);
        return size;
    }
    }
}

int main(int argc, char **argv)
{
    static struct corpus corpus;
    static uint8_t bytes[SIZE_MAX_INPUT];
    const char *source = getenv("srcdir");
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 20000;
    char path[4096];
    for (int i = 2; i < argc; i++)
        read_directory(&corpus, argv[i]);
    for (size_t i = 0; argc <= 2 && fuzz_corpus[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", source ? source : ".", fuzz_corpus[i]);
        read_directory(&corpus, path);
    }
    if (corpus.count == 0)
        return 2;
    for (size_t i = 0; i < corpus.count; i++)
        LLVMFuzzerTestOneInput(corpus.files[i].bytes, corpus.files[i].size);
    for (long round = 0; round < rounds; round++) {
        size_t which = below(corpus.count), size = corpus.files[which].size;
        memcpy(bytes, corpus.files[which].bytes, size);
        for (size_t i = below(6) + 1; i > 0; i--)
            size = mutate(&corpus, bytes, size);
        uint8_t *exact = malloc(size ? size : 1); /* so that one byte too far is seen */
        memcpy(exact, bytes, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    printf("%zu files, %ld mutations\n", corpus.count, rounds);
    return 0;
}
