/* What does a whole program take? prolog-bench NAME RUNS COMMAND [ARGUMENT…]: medians of its wall and
 * CPU time, with those of its children that it has waited for. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double ms_of(struct timeval time)
{
    return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_once(char **command, double *wall, double *cpu)
{
    struct rusage usage;
    int status;
    double start = now_ms();
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
            _exit(127);
        execv(command[0], command);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        fprintf(stderr, "prolog-bench: %s failed\n", command[0]);
        exit(2);
    }
    *wall = now_ms() - start;
    *cpu = ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
}

int main(int argc, char **argv)
{
    int runs = argc > 3 ? atoi(argv[2]) : 0;
    if (runs < 1 || runs > 10000) {
        fprintf(stderr, "usage: prolog-bench NAME RUNS COMMAND [ARGUMENT…]\n");
        return 2;
    }
    double *wall = calloc((size_t)runs, sizeof *wall), *cpu = calloc((size_t)runs, sizeof *cpu);
    if (!wall || !cpu)
        return 2;
    run_once(argv + 3, &wall[0], &cpu[0]); /* what the first one finds cold */
    for (int i = 0; i < runs; i++)
        run_once(argv + 3, &wall[i], &cpu[i]);
    qsort(wall, (size_t)runs, sizeof *wall, by_value);
    qsort(cpu, (size_t)runs, sizeof *cpu, by_value);
    printf("%s, wall\t%.1f\tms\n%s, CPU time\t%.1f\tms\n", argv[1], wall[runs / 2], argv[1],
           cpu[runs / 2]);
    return 0;
}
