/* Columns for people. */
#include <string.h>

#include <xcloud/base.h>

void xc_table_begin(struct xc_table *table, size_t columns)
{
    *table = (struct xc_table){.columns = columns};
}

void xc_table_row(struct xc_table *table)
{
    size_t need = (table->rows + 1) * table->columns;
    if (need > table->size) {
        size_t size = need * 2;
        char **cells = realloc(table->cells, size * sizeof *cells);
        if (!cells) {
            table->failed = true;
            return;
        }
        memset(cells + table->size, 0, (size - table->size) * sizeof *cells);
        table->cells = cells;
        table->size = size;
    }
    table->rows++;
}

void xc_table_cell(struct xc_table *table, size_t column, const char *format, ...)
{
    if (table->rows == 0 || column >= table->columns)
        return;
    struct xc_text text = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&text, format, args);
    va_end(args);
    char **cell = &table->cells[(table->rows - 1) * table->columns + column];
    free(*cell);
    *cell = xc_text_take(&text);
    table->failed |= !*cell;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no column. */
static size_t width(const char *cell)
{
    size_t count = 0;
    for (; cell && *cell; cell++)
        count += ((unsigned char)*cell & 0xc0) != 0x80;
    return count;
}

static size_t column_width(const struct xc_table *table, size_t column)
{
    size_t widest = 0;
    for (size_t row = 0; row < table->rows; row++) {
        size_t w = width(table->cells[row * table->columns + column]);
        if (w > widest)
            widest = w;
    }
    return widest;
}

static void write_row(const struct xc_table *table, size_t row, struct xc_text *out)
{
    size_t pending = 0; /* blanks owed, written only before a cell: none at line ends */
    for (size_t column = 0; column < table->columns; column++) {
        const char *cell = table->cells[row * table->columns + column];
        size_t full = column_width(table, column), have = width(cell);
        bool right = column < 64 && (table->right >> column & 1);
        if (have > 0) {
            xc_text_addf(out, "%*s", (int)(pending + (right ? full - have : 0)), "");
            xc_text_add(out, cell);
            pending = right ? 0 : full - have;
        } else {
            pending += full;
        }
        pending += full ? 2 : 0;
    }
    xc_text_add(out, "\n");
}

void xc_table_write(const struct xc_table *table, struct xc_text *out)
{
    out->failed |= table->failed;
    for (size_t row = 0; row < table->rows; row++)
        write_row(table, row, out);
}

void xc_table_free(struct xc_table *table)
{
    for (size_t i = 0; i < table->size; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct xc_table){0};
}
