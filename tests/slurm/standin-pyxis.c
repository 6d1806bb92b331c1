/* A stand-in for pyxis and enroot in tests: enters a copy of a root file system in user and mount
 * namespaces of its own, in task_init, and runs enroot's hooks with enroot's variables before.
 *
 *   plugstack.conf: required standin.so HOOKS_DIRECTORY
 *   srun --container-image=DIRECTORY [--container-name=NAME] [--container-writable]
 *        [--container-remap-root] [--container-mounts=SRC:DST]
 *
 * As with them: the job's environment goes in, the image's /etc/environment wins, and what the hooks add
 * wins over that; all tasks of a node share one container; a named one that runs is entered, and then
 * no hook runs; the root is read-only unless it has a name or it is asked for otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(standin_pyxis, 1);

enum { IMAGE, NAME, WRITABLE, READONLY, REMAP_ROOT, MOUNTS, NO_HOME, OPTIONS };
static char *given[OPTIONS];
static char hooks[1024]; /* and beside it: names/, of what runs */
static struct {
    _Atomic int turn, pid;
} * shared;

static int on_option(int which, const char *value, int remote)
{
    (void)remote;
    free(given[which]);
    given[which] = strdup(value ? value : "");
    return 0;
}

int slurm_spank_init(spank_t spank, int count, char **values)
{
    static struct spank_option options[OPTIONS] = {
        {(char *)"container-image", (char *)"DIR", (char *)"root file system", 1, IMAGE, on_option},
        {(char *)"container-name", (char *)"NAME", (char *)"its name", 1, NAME, on_option},
        {(char *)"container-writable", NULL, (char *)"writable root", 0, WRITABLE, on_option},
        {(char *)"container-readonly", NULL, (char *)"read-only root", 0, READONLY, on_option},
        {(char *)"container-remap-root", NULL, (char *)"be root", 0, REMAP_ROOT, on_option},
        {(char *)"container-mounts", (char *)"SRC:DST", (char *)"a bind", 1, MOUNTS, on_option},
        {(char *)"no-container-mount-home", NULL, (char *)"nothing", 0, NO_HOME, on_option},
    };
    if (count > 0)
        snprintf(hooks, sizeof hooks, "%s", values[0]);
    for (int i = 0; i < OPTIONS; i++)
        spank_option_register(spank, &options[i]);
    return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **values)
{
    (void)spank;
    (void)count;
    (void)values;
    if (spank_context() == S_CTX_REMOTE)
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return 0;
}

static void die(const char *what)
{
    fprintf(stderr, "standin: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void write_file(const char *path, const char *text, int flags)
{
    int fd = open(path, O_WRONLY | flags, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die(path);
    close(fd);
}

static void make_parents(const char *path)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(copy, 0755);
        *slash = '/';
    }
}

static void run(const char *program, char *const argv[], char *const env[])
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        execve(program, argv, env);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) < 0 || status != 0)
        die(program);
}

/* SRC onto ROOT/DST; only the reachable options of enroot's fstab. */
static void bind(const char *root, const char *from, const char *to, bool readonly, bool noexec)
{
    char target[4096];
    struct stat st;
    snprintf(target, sizeof target, "%s%s", root, to);
    make_parents(target);
    if (stat(from, &st) < 0)
        return;
    if (S_ISDIR(st.st_mode))
        mkdir(target, 0755);
    else
        close(open(target, O_WRONLY | O_CREAT, 0644));
    if (mount(from, target, NULL, MS_BIND | MS_REC, NULL) < 0)
        return;
    if (readonly)
        mount(NULL, target, NULL,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | (noexec ? MS_NOEXEC : 0),
              NULL);
}

static void run_hooks(spank_t spank, const char *root, const char *mounts, const char *environ_file)
{
    char variables[4][4200], **job = NULL, pattern[1100];
    snprintf(variables[0], sizeof variables[0], "ENROOT_ROOTFS=%s", root);
    snprintf(variables[1], sizeof variables[1], "ENROOT_MOUNTS=%s", mounts);
    snprintf(variables[2], sizeof variables[2], "ENROOT_ENVIRON=%s", environ_file);
    snprintf(variables[3], sizeof variables[3], "ENROOT_PID=%d", getpid());
    spank_get_item(spank, S_JOB_ENV, &job);
    size_t count = 0;
    while (job && job[count])
        count++;
    char **env = calloc(count + 5, sizeof *env);
    memcpy(env, job, count * sizeof *env);
    for (size_t i = 0; i < 4; i++)
        env[count + i] = variables[i];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.sh", hooks);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            run(found.gl_pathv[i], (char *[]){found.gl_pathv[i], NULL}, env);
}

static void apply(spank_t spank, const char *root, const char *mounts, const char *environ_file)
{
    char line[8192], from[2048], to[2048], type[64], words[512];
    FILE *file = fopen(mounts, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%2047s %2047s %63s %511s", from, to, type, words) == 4)
            bind(root, from, to, strstr(words, ",ro,"), strstr(words, "noexec"));
    if (given[MOUNTS] && sscanf(given[MOUNTS], "%2047[^:]:%2047s", from, to) == 2)
        bind(root, from, to, false, false);
    char **argv = NULL;
    int argc = 0;
    if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 &&
        argv[0][0] == '/')
        bind(root, argv[0], argv[0], false, false); /* a batch script */
    file = fopen(environ_file, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *equals = strchr(line, '=');
        line[strcspn(line, "\n")] = '\0';
        if (equals) {
            *equals = '\0';
            spank_setenv(spank, line, equals + 1, 1);
        }
    }
}

static void enter_namespaces(void)
{
    char map[64];
    uid_t uid = getuid();
    gid_t gid = getgid();
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        die("unshare");
    write_file("/proc/self/setgroups", "deny", 0);
    snprintf(map, sizeof map, "%u %u 1", given[REMAP_ROOT] ? 0 : uid, uid);
    write_file("/proc/self/uid_map", map, 0);
    snprintf(map, sizeof map, "%u %u 1", given[REMAP_ROOT] ? 0 : gid, gid);
    write_file("/proc/self/gid_map", map, 0);
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        die("mount /");
}

static void start(spank_t spank)
{
    char root[4096], mounts[4200], environ_file[4200], path[4200];
    snprintf(root, sizeof root, "%s.copies/XXXXXX", given[IMAGE]);
    if (!mkdtemp(root))
        die(root);
    snprintf(path, sizeof path, "%s/.", given[IMAGE]);
    run("/bin/cp",
        (char *[]){(char *)"cp", (char *)"-a", (char *)"--no-preserve=ownership", path, root, NULL},
        NULL);
    enter_namespaces();
    if (mount(root, root, NULL, MS_BIND, NULL) < 0)
        die(root);
    static const char *const shown[] = {"/proc", "/sys", "/dev"}, *const empty[] = {"/tmp",
                                                                                    "/var/run"};
    for (size_t i = 0; i < 3; i++)
        bind(root, shown[i], shown[i], false, false);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", root, empty[i]);
        mkdir(path, 0755);
        if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") < 0)
            die(path);
    }
    snprintf(mounts, sizeof mounts, "%s.fstab", root);
    snprintf(environ_file, sizeof environ_file, "%s.environ", root);
    snprintf(path, sizeof path, "%s/etc/environment", root);
    write_file(mounts, "", O_CREAT);
    run("/bin/cp", (char *[]){(char *)"cp", path, environ_file, NULL}, NULL);
    run_hooks(spank, root, mounts, environ_file);
    apply(spank, root, mounts, environ_file);
    if (!given[WRITABLE] && !given[NAME] &&
        mount(NULL, root, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        die("read-only root");
    if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        die("pivot_root");
}

static bool join(int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int user = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
    int mnt = open(path, O_RDONLY | O_CLOEXEC);
    if (user < 0 || mnt < 0)
        return false;
    if (setns(user, CLONE_NEWUSER) < 0 || setns(mnt, CLONE_NEWNS) < 0 || chdir("/") < 0)
        die("setns");
    return true;
}

static void names_file(char *path, size_t size)
{
    snprintf(path, size, "%s/../names/%s", hooks, given[NAME]);
}

/* A named container that runs. */
static bool join_named(void)
{
    char path[2048];
    int pid = 0;
    names_file(path, sizeof path);
    FILE *file = fopen(path, "r");
    return file && fscanf(file, "%d", &pid) == 1 && kill(pid, 0) == 0 && join(pid);
}

int slurm_spank_task_init(spank_t spank, int count, char **values)
{
    (void)count;
    (void)values;
    char path[2048], pid[16];
    if (!given[IMAGE] && !given[NAME])
        return 0;
    if (atomic_fetch_add(&shared->turn, 1) > 0) {
        while (!atomic_load(&shared->pid))
            usleep(1000);
        if (!join(atomic_load(&shared->pid)))
            die("the first task's container");
        return 0;
    }
    if (!given[NAME] || !join_named()) {
        if (!given[IMAGE]) {
            errno = ENOENT;
            die(given[NAME]);
        }
        snprintf(pid, sizeof pid, "%d", getpid());
        if (given[NAME]) {
            names_file(path, sizeof path);
            write_file(path, pid, O_CREAT | O_TRUNC);
        }
        start(spank);
    }
    atomic_store(&shared->pid, getpid());
    return 0;
}
