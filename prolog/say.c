/* Who hears of it? slurmd's log (stderr) and the journal, or syslog where there is none. Nothing here
 * waits: a full log is no reason to hold a job. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

#define JOURNAL "/run/systemd/journal/socket"
#define SYSLOG  "/dev/log"
#define DAEMON  3 /* syslog's facility */

static const char full[] = "4 more was to be said, and there is no room for it\n";

void say(struct shared *shared, enum priority priority, const char *format, ...)
{
    char line[1400];
    va_list args;
    va_start(args, format);
    int length = snprintf(line, sizeof line, "%d ", (int)priority);
    vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    size_t size = strlen(line);
    size_t used = shared->length;
    if (used + size + 1 + sizeof full > SHARED_LINES) {
        if (used + sizeof full <= SHARED_LINES &&
            (used < sizeof full - 1 ||
             memcmp(shared->lines + used - (sizeof full - 1), full, sizeof full - 1) != 0)) {
            memcpy(shared->lines + used, full, sizeof full - 1);
            shared->length = used + sizeof full - 1;
        }
        return;
    }
    line[size++] = '\n';
    memcpy(shared->lines + used, line, size);
    shared->length = used + size; /* last: the parent may look at any time */
}

static int open_log(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

struct log {
    const struct program *program;
    int fd;
    bool journal;
};

static void log_line(const struct log *log, int priority, const char *text)
{
    char message[2048];
    int length =
        log->journal
            ? snprintf(message, sizeof message,
                       "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nSYSLOG_PID=%d\nSLURM_JOB_ID=%u\n"
                       "MESSAGE=%s\n",
                       priority, log->program->name, (int)getpid(), log->program->job, text)
            : snprintf(message, sizeof message, "<%d>%s[%d]: %s", DAEMON * 8 + priority,
                       log->program->name, (int)getpid(), text);
    if (length > 0 && (size_t)length < sizeof message)
        (void)!send(log->fd, message, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* slurmd reads its end of the pipe until it is closed; a person's terminal may be stopped. */
static void print_line(const struct program *program, const char *text)
{
    char line[2048];
    int length = snprintf(line, sizeof line, "%s: %s\n", program->name, text);
    if (length > 0)
        (void)!write(STDERR_FILENO, line,
                     (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

void say_all(const struct program *program, const struct shared *shared)
{
    size_t length = shared->length < SHARED_LINES ? shared->length : SHARED_LINES - 1;
    xc_autofree char *copy = calloc(1, length + 1);
    if (!copy || length == 0)
        return;
    memcpy(copy, shared->lines, length);
    struct log log = {.program = program, .fd = open_log(JOURNAL), .journal = true};
    if (log.fd < 0)
        log = (struct log){.program = program, .fd = open_log(SYSLOG)};
    char *rest = copy, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (line[0] < '0' || line[0] > '7' || line[1] != ' ')
            continue;
        print_line(program, line + 2);
        if (log.fd >= 0)
            log_line(&log, line[0] - '0', line + 2);
    }
    if (log.fd >= 0)
        close(log.fd);
}
