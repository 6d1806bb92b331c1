/* How does a deadline hold when a read hangs in the kernel? The work is a child's; the parent only
 * waits, and never for a child that does not die. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xcloud/prolog.h>

#define SLICE_MS 50  /* how often a changed deadline is looked at */
#define DYING_MS 200 /* from SIGKILL to the end, when nothing keeps it */

void *xc_guard_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the child ------------------------------------------------------------------------------------- */

/* slurmd waits for the end of its pipe: nobody but the parent may hold it. */
static void drop_streams(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            close(fd);
}

static _Noreturn void be_child(const struct xc_guard *guard, const sigset_t *mask, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* what the work starts ends with it */
    prctl(PR_SET_NAME, guard->title);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, mask, NULL);
    drop_streams();
    guard->work(guard->arg);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------------- */

/* Whether the child has ended within ms. */
static bool ended(struct xc_guard *guard, const sigset_t *chld, int64_t ms)
{
    int64_t end = xc_now_ms() + ms;
    for (;;) {
        pid_t pid = waitpid(guard->child, &guard->status, WNOHANG);
        if (pid == guard->child)
            return true;
        if (pid < 0 && errno != EINTR) { /* somebody else has taken it */
            guard->status = -1;
            return true;
        }
        int64_t left = end - xc_now_ms();
        if (left <= 0)
            return false;
        struct timespec wait = {left / 1000, (left % 1000) * 1000000};
        sigtimedwait(chld, NULL, &wait);
    }
}

static bool in_time(struct xc_guard *guard, const sigset_t *chld)
{
    int64_t start = xc_now_ms();
    for (;;) {
        int64_t left = start + *guard->deadline_ms - xc_now_ms();
        if (left <= 0)
            return ended(guard, chld, 0);
        if (ended(guard, chld, left < SLICE_MS ? left : SLICE_MS))
            return true;
    }
}

/* A system call that hangs has a descriptor as its first argument most of the time: what is it? */
static void look_where(struct xc_guard *guard)
{
    char path[64], text[128] = "", link[200];
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)guard->child);
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    long number;
    unsigned long first;
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 ||
        sscanf(text, "%ld 0x%lx", &number, &first) != 2 || first > 65536)
        return;
    snprintf(path, sizeof path, "/proc/%d/fd/%lu", (int)guard->child, first);
    ssize_t length = readlink(path, link, sizeof link - 1);
    if (length <= 0)
        return;
    link[length] = '\0';
    for (char *c = link; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    snprintf(guard->hangs_in, sizeof guard->hangs_in, "%s", link);
}

/* Processes whose parent we are, or have become when theirs ended. */
static unsigned own_children(pid_t *pids, unsigned most)
{
    char text[1024];
    unsigned count = 0;
    xc_autoclose int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *at = text, *end;
    while (count < most) {
        long pid = strtol(at, &end, 10);
        if (end == at || pid <= 0)
            break;
        pids[count++] = (pid_t)pid;
        at = end;
    }
    return count;
}

/* What the work has started goes with it. Who does not even die of SIGKILL is noted. */
static void end_left(struct xc_guard *guard, const sigset_t *chld)
{
    int64_t end = xc_now_ms() + DYING_MS;
    struct timespec wait = {0, 5000000};
    while ((guard->nleft = own_children(guard->left, XC_COUNT(guard->left))) > 0) {
        for (unsigned i = 0; i < guard->nleft; i++)
            kill(guard->left[i], SIGKILL);
        sigtimedwait(chld, NULL, &wait);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (xc_now_ms() >= end)
            break;
    }
}

static enum xc_guard_end wait_for(struct xc_guard *guard, const sigset_t *chld)
{
    if (in_time(guard, chld))
        return WIFEXITED(guard->status) && WEXITSTATUS(guard->status) == 0 ? XC_GUARD_DONE
                                                                           : XC_GUARD_CRASHED;
    look_where(guard);
    kill(-guard->child, SIGKILL);
    kill(guard->child, SIGKILL); /* it may not have a group of its own yet */
    return ended(guard, chld, DYING_MS) ? XC_GUARD_LATE : XC_GUARD_STUCK;
}

enum xc_guard_end xc_guard_run(struct xc_guard *guard, struct xc_error *error)
{
    sigset_t chld, before;
    pid_t parent = getpid();
    guard->hangs_in[0] = '\0';
    guard->status = 0;
    guard->nleft = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what the work leaves behind becomes ours to end */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* ignored, a child would leave no status */
    sigprocmask(SIG_BLOCK, &chld, &before);
    fflush(NULL);
    guard->child = fork();
    if (guard->child == 0)
        be_child(guard, &before, parent);
    enum xc_guard_end end = XC_GUARD_FAILED;
    if (guard->child < 0)
        xc_error_errno(error, "fork", "cannot start a child");
    else
        end = wait_for(guard, &chld);
    if (guard->child > 0)
        end_left(guard, &chld);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return end;
}

/* ---- children that nothing ends ----------------------------------------------------------------------- */

/* Clock ticks after boot at which the process was started; 0: there is no such process, or it is a
 * zombie, which is none. */
static unsigned long long start_of(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* names may hold blanks and parentheses */
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at)
            return 0;
        at++;
    }
    return strtoull(at, NULL, 10);
}

/* "PID START KIND WHAT": whether that process is there still. */
static bool take_stuck(const char *line, struct xc_stuck *out)
{
    int pid, at = 0;
    unsigned long long start;
    char kind[16];
    if (sscanf(line, "%d %llu %15s %n", &pid, &start, kind, &at) < 3 || at == 0 || pid <= 0 ||
        start == 0 || start_of(pid) != start)
        return false;
    out->run |= !xc_streq(kind, "question");
    size_t used = strlen(out->text);
    snprintf(out->text + used, sizeof out->text - used, "%sprocess %d: %s", used ? "; " : "", pid,
             line + at);
    out->count++;
    return true;
}

/* The lines of those that are there still, with room for another one. */
static void add_living(const char *file, struct xc_text *out)
{
    size_t length;
    xc_autofree char *text = xc_read_trusted(file, 65536, &length, NULL);
    char *rest = text, *line;
    while (text && (line = strsep(&rest, "\n")))
        if (out->length < 60000 && take_stuck(line, &(struct xc_stuck){0}))
            xc_text_addf(out, "%s\n", line);
}

int xc_stuck_remember(const char *file, pid_t pid, bool run, const char *what,
                      struct xc_error *error)
{
    struct xc_text text = XC_TEXT_INIT;
    add_living(file, &text);
    xc_text_addf(&text, "%d %llu %s %.200s\n", (int)pid, start_of(pid), run ? "run" : "question",
                 what);
    size_t length = text.length;
    xc_autofree char *bytes = xc_text_take(&text);
    return bytes ? xc_write_atomic(file, bytes, length, 0644, error) : xc_error_nomem(error);
}

bool xc_stuck_still(const char *file, struct xc_stuck *out)
{
    size_t length;
    struct stat st;
    *out = (struct xc_stuck){0};
    if (lstat(file, &st) < 0)
        return false; /* on most runs */
    xc_autofree char *text = xc_read_trusted(file, 65536, &length, NULL);
    char *rest = text, *line;
    while (text && (line = strsep(&rest, "\n")))
        take_stuck(line, out);
    if (out->count == 0)
        unlink(file);
    return out->count > 0;
}
