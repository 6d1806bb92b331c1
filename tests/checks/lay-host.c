/* Lays the files of a healthy HGX H100 host (good-host.h) over the generated machine in a directory:
 * lay-host DIR. libc alone, so that a test can compile it by itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "good-host.h"

static void write_file(const char *directory, const char *path, const char *content)
{
    char full[700];
    snprintf(full, sizeof full, "%s%s", directory, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(full, 0755) < 0 && errno != EEXIST) {
            perror(full);
            exit(2);
        }
        *slash = '/';
    }
    FILE *stream = fopen(full, "w");
    if (!stream || fputs(content, stream) == EOF || fclose(stream) == EOF) {
        perror(full);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: lay-host DIR\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof good_h100 / sizeof *good_h100; i++) {
        const char *path = good_h100[i].path, *star = strstr(path, "/cpu*/");
        for (int cpu = 0; star && cpu < 224; cpu++) {
            char one[300];
            snprintf(one, sizeof one, "%.*s/cpu%d/%s", (int)(star - path), path, cpu, star + 6);
            write_file(argv[1], one, good_h100[i].content);
        }
        if (!star)
            write_file(argv[1], path, good_h100[i].content);
    }
    return 0;
}
