/* A worker for tests: prints the CPUs that it may run on. Built with another C library than the host's. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[4096];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "Cpus_allowed_list:", 18) == 0)
            printf("worker %s", line + 19);
    return 0;
}
