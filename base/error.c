/* How does a failure travel up? Also the small cleanup functions behind the xc_auto* attributes. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/base.h>

void xc_free_ptr(void *pointer_to_pointer)
{
    void *pointer;
    memcpy(&pointer, pointer_to_pointer, sizeof pointer);
    free(pointer);
}

void xc_close_ptr(const int *fd)
{
    if (*fd >= 0) {
        int keep = errno;
        close(*fd);
        errno = keep;
    }
}

void xc_fclose_ptr(FILE **file)
{
    if (*file)
        fclose(*file);
}

int xc_error_set(struct xc_error *error, enum xc_code code, const char *where, const char *format,
                 ...)
{
    if (!error)
        return -1;
    va_list args;
    va_start(args, format);
    error->code = code;
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return -1;
}

/* strlcat: what does not fit is cut. */
static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text), room = size - used - 1, length = strlen(more);
    memcpy(text + used, more, length < room ? length : room);
    text[used + (length < room ? length : room)] = '\0';
}

int xc_error_wrap(struct xc_error *error, const char *format, ...)
{
    if (!error)
        return -1;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    append(error->message, sizeof error->message, ": ");
    append(error->message, sizeof error->message, old);
    return -1;
}

int xc_error_errno(struct xc_error *error, const char *where, const char *action)
{
    int number = errno;
    enum xc_code code = number == ENOENT || number == ENOTDIR ? XC_ENOENT
                        : number == ENOMEM                    ? XC_ENOMEM
                                                              : XC_ESYS;
    return xc_error_set(error, code, where, "%s: %s", action, strerror(number));
}

int xc_error_nomem(struct xc_error *error)
{
    return xc_error_set(error, XC_ENOMEM, NULL, "out of memory");
}

const char *xc_error_text(const struct xc_error *error, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s%s%s", error->where, error->where[0] ? ": " : "", error->message);
    return buffer;
}
