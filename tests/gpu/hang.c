/* Preloaded by nvml.bats: whoever asks an NVIDIA device for anything waits for ever, as with a GPU that
 * has fallen off the bus. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...)
{
    char link[32], path[64];
    va_list args;
    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    while (strncmp(path, "/dev/nvidia", strlen("/dev/nvidia")) == 0)
        pause();
    return (int)syscall(SYS_ioctl, fd, request, argument);
}
