/* Where does NCCL look? In the environment, in NCCL_CONF_FILE or else ~/.nccl.conf, in /etc/nccl.conf, in
 * this order (src/misc/param.cc, 2.23 and later). */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xcloud/nccl.h>

#define FILE_MAX (64u << 10)

void xc_nccl_add_environment(struct xc_nccl_values *values, char *const *environment, size_t most,
                             const char *from)
{
    for (; environment && *environment && values->count < most; environment++) {
        const char *equals = strchr(*environment, '=');
        xc_autofree char *name =
            equals ? strndup(*environment, (size_t)(equals - *environment)) : NULL;
        if (name)
            xc_nccl_add(values, name, equals + 1, from);
    }
}

/* A file that a user may put anywhere: read only if it is one. */
static void add_path(struct xc_nccl_values *values, const char *path)
{
    struct stat st;
    size_t length;
    xc_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    xc_autofree char *text = xc_read_fd(fd, path, FILE_MAX, &length, NULL);
    if (text)
        xc_nccl_add_file(values, text, length, path);
}

void xc_nccl_add_conf(struct xc_nccl_values *values, const char *conf_file, const char *home)
{
    if (conf_file) {
        add_path(values, conf_file);
    } else if (home) {
        struct xc_text text = XC_TEXT_INIT;
        xc_text_addf(&text, "%s/.nccl.conf", home);
        xc_autofree char *path = xc_text_take(&text);
        values->failed |= !path;
        if (path)
            add_path(values, path);
    }
    add_path(values, "/etc/nccl.conf");
}
