/* How is a text put together? A growing string whose failure is checked once, at the end. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <xcloud/base.h>

void xc_text_free(struct xc_text *text)
{
    if (!text)
        return;
    free(text->data);
    *text = (struct xc_text)XC_TEXT_INIT;
}

static bool reserve(struct xc_text *text, size_t more)
{
    if (text->failed)
        return false;
    size_t need = text->length + more + 1;
    if (need <= text->size)
        return true;
    size_t size = text->size ? text->size : 128;
    while (size < need)
        size *= 2;
    char *data = realloc(text->data, size);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->size = size;
    return true;
}

void xc_text_add_n(struct xc_text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count))
        return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void xc_text_add(struct xc_text *text, const char *string)
{
    xc_text_add_n(text, string, strlen(string));
}

void xc_text_addv(struct xc_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (count < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)count))
        return;
    vsnprintf(text->data + text->length, (size_t)count + 1, format, args);
    text->length += (size_t)count;
}

void xc_text_addf(struct xc_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    xc_text_addv(text, format, args);
    va_end(args);
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 127;
}

char *xc_plain(char *string)
{
    for (char *c = string; c && *c; c++)
        if (is_control(*c))
            *c = '?';
    return string;
}

void xc_text_add_plain(struct xc_text *text, const char *string, size_t max)
{
    for (size_t i = 0; string[i] && i < max; i++)
        xc_text_add_n(text, is_control(string[i]) ? "?" : &string[i], 1);
}

int xc_text_read(struct xc_text *text, int fd, size_t limit)
{
    char chunk[16384];
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return text->failed ? -ENOMEM : 0;
        if (text->length + (size_t)got > limit)
            return -EFBIG;
        xc_text_add_n(text, chunk, (size_t)got);
    }
}

char *xc_text_take(struct xc_text *text)
{
    if (!text->failed && !text->data)
        reserve(text, 0);
    if (text->failed) {
        xc_text_free(text);
        return NULL;
    }
    text->data[text->length] = '\0';
    char *data = text->data;
    *text = (struct xc_text)XC_TEXT_INIT;
    return data;
}
