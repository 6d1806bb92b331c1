/* How does code run that may never come back? In children: all at once, killed at a deadline, and
 * not waited for then, since a process that hangs in the kernel does not even die. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xcloud/base.h>

/* ---- in the child ------------------------------------------------------------------------------- */

static void close_others(int out, int keep)
{
    long most = sysconf(_SC_OPEN_MAX);
    int low = out < keep || keep < 0 ? out : keep, high = low == out ? keep : out;
    if (syscall(SYS_close_range, 3, low - 1, 0) == 0) {
        if (high >= 0)
            syscall(SYS_close_range, low + 1, high - 1, 0);
        syscall(SYS_close_range, (high >= 0 ? high : low) + 1, ~0u, 0);
        return;
    }
    for (int fd = 3; fd < (most > 0 && most < 65536 ? (int)most : 65536); fd++)
        if (fd != out && fd != keep)
            close(fd);
}

/* The caller's signals, terminal and descriptors are not ours. SIGALRM ends a child whose parent was
 * killed before it could do it. */
static void leave_parent(const struct xc_child *child, int out, unsigned deadline_ms)
{
    static const struct rlimit no_core = {0, 0};
    sigset_t none;
    sigemptyset(&none);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(deadline_ms / 1000 + 2);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    close_others(out, child->keep);
}

/* ---- in the parent ------------------------------------------------------------------------------ */

static void start(struct xc_child *child, unsigned deadline_ms)
{
    int ends[2];
    child->fd = child->pid = child->pidfd = -1;
    child->text = NULL;
    child->ended = child->cut = child->started = false;
    child->read = (struct xc_text)XC_TEXT_INIT;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        child->status = errno;
        return;
    }
    /* never below 3: those are /dev/null in the child */
    int out = ends[1] > 2 ? ends[1] : fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    child->pid = out < 0 ? -1 : fork();
    if (child->pid == 0) {
        leave_parent(child, out, deadline_ms);
        _exit(child->run(child->data, out));
    }
    child->status = errno;
    child->started = child->pid > 0;
    if (out != ends[1] && out >= 0)
        close(out);
    close(ends[1]);
    if (!child->started) {
        close(ends[0]);
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child->fd = ends[0];
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
}

static void take(struct xc_child *child)
{
    char buffer[16384];
    size_t limit = child->limit ? child->limit : XC_CHILD_TEXT;
    ssize_t got = 1;
    /* not forever: one that never stops writing must not keep us from the deadline */
    for (int round = 0; round < 16 && (got = read(child->fd, buffer, sizeof buffer)) > 0; round++) {
        size_t room = child->read.length < limit ? limit - child->read.length : 0;
        size_t keep = (size_t)got < room ? (size_t)got : room;
        child->cut |= keep < (size_t)got;
        if (keep > 0)
            xc_text_add_n(&child->read, buffer, keep);
    }
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        close(child->fd);
        child->fd = -1;
    }
}

/* Whether it still runs. What it has started goes with it, while its number is still its own. */
static bool reap(struct xc_child *child)
{
    siginfo_t info = {0};
    if (!child->started || child->ended)
        return false;
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == 0)
        return true;
    kill(-child->pid, SIGKILL);
    waitpid(child->pid, &child->status, WNOHANG);
    child->ended = true;
    return false;
}

#define TICK_MS 5 /* how late the end of a child may be seen where there is no pidfd (before 5.3) */

/* How long it may go on by its own deadline; 0: no longer. */
static int64_t own_left(const struct xc_child *child, int64_t begun)
{
    int64_t left = begun + child->deadline_ms - xc_now_ms();
    return child->deadline_ms == 0 ? INT64_MAX : left > 0 ? left : 0;
}

/* What it wrote is there; others may hold the pipe. */
static void stop_reading(struct xc_child *child)
{
    if (child->fd >= 0)
        take(child);
    if (child->fd >= 0)
        close(child->fd);
    child->fd = -1;
}

/* Whether any still runs. Each has two places in fds: its pipe and its end. *wait: ms at most until
 * something may have to be done. */
static bool go_on(struct xc_child *children, size_t count, int64_t begun, struct pollfd *fds,
                  int64_t *wait)
{
    bool running = false;
    for (size_t i = 0; i < count; i++) {
        struct xc_child *child = &children[i];
        int64_t left = own_left(child, begun);
        bool alive = reap(child) && left > 0;
        if (!alive)
            stop_reading(child);
        else if (child->pidfd < 0 && *wait > TICK_MS)
            *wait = TICK_MS;
        if (alive && left < *wait)
            *wait = left;
        running |= alive;
        fds[2 * i] = (struct pollfd){.fd = child->fd, .events = POLLIN};
        fds[2 * i + 1] = (struct pollfd){.fd = alive ? child->pidfd : -1, .events = POLLIN};
    }
    return running;
}

static void finish(struct xc_child *child)
{
    if (child->started && !child->ended) {
        kill(-child->pid, SIGKILL);
        kill(child->pid, SIGKILL); /* before its setsid() */
    }
    if (child->fd >= 0)
        close(child->fd);
    if (child->pidfd >= 0)
        close(child->pidfd);
    child->fd = child->pidfd = -1;
    child->text = xc_text_take(&child->read);
    xc_text_free(&child->read);
}

void xc_children_run(struct xc_child *children, size_t count, unsigned deadline_ms)
{
    int64_t begun = xc_now_ms(), end = begun + deadline_ms;
    xc_autofree struct pollfd *fds = calloc(count ? 2 * count : 1, sizeof *fds);
    struct sigaction before, plain = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &plain, &before); /* ignored, it would take their statuses away */
    for (size_t i = 0; i < count; i++)
        start(&children[i], deadline_ms);
    for (;;) {
        int64_t wait = end - xc_now_ms();
        if (!fds || !go_on(children, count, begun, fds, &wait) || wait <= 0)
            break;
        poll(fds, 2 * count, (int)wait);
        for (size_t i = 0; i < count; i++)
            if (children[i].fd >= 0 && fds[2 * i].revents)
                take(&children[i]);
    }
    for (size_t i = 0; i < count; i++)
        finish(&children[i]);
    sigaction(SIGCHLD, &before, NULL);
}
