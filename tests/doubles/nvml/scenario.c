#include "scenario.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_KEY = 160 };

struct entry {
    const char *key, *value;
};

/* One reading of the file. Never changed, never freed: a call that hangs may still look at it. */
struct table {
    size_t count;
    struct entry *entries;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

static _Atomic(struct table *) current;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

/* Turns `\xNN` into the byte, so that names can hold what a text file cannot. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        char digits[3] = {0};
        if (from[0] == '\\' && from[1] == 'x' && isxdigit((unsigned char)from[2]) &&
            isxdigit((unsigned char)from[3])) {
            memcpy(digits, from + 2, 2);
            *to = (char)strtol(digits, NULL, 16);
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static void add(struct table *table, char *line)
{
    char *equals = strchr(line, '=');
    if (!equals || line[0] == '#')
        return;
    *equals = '\0';
    struct entry *more = realloc(table->entries, (table->count + 1) * sizeof *more);
    if (!more)
        return;
    char *value = strdup(trim(equals + 1));
    unescape(value);
    more[table->count] = (struct entry){strdup(trim(line)), value};
    table->entries = more;
    table->count++;
}

static bool same(const struct table *table, const struct stat *file)
{
    return table && table->inode == file->st_ino && table->size == file->st_size &&
           table->changed.tv_sec == file->st_mtim.tv_sec &&
           table->changed.tv_nsec == file->st_mtim.tv_nsec;
}

static void read_file(const char *path, const struct stat *status)
{
    FILE *file = fopen(path, "re");
    struct table *table = file ? calloc(1, sizeof *table) : NULL;
    if (table) {
        table->inode = status->st_ino;
        table->size = status->st_size;
        table->changed = status->st_mtim;
        char *line = NULL;
        size_t room = 0;
        while (getline(&line, &room, file) >= 0)
            add(table, line);
        free(line);
        atomic_store(&current, table);
    }
    if (file)
        fclose(file);
}

void scenario_refresh(void)
{
    const char *path = getenv("ROOFMON_NVML_SCENARIO");
    struct stat status;
    if (!path || stat(path, &status) != 0 || same(atomic_load(&current), &status))
        return;
    pthread_mutex_lock(&reading);
    if (!same(atomic_load(&current), &status))
        read_file(path, &status);
    pthread_mutex_unlock(&reading);
}

static const char *find(const char *format, va_list arguments)
{
    char key[LONGEST_KEY];
    vsnprintf(key, sizeof key, format, arguments);
    const struct table *table = atomic_load(&current);
    for (size_t n = table ? table->count : 0; n > 0; n--)
        if (strcmp(table->entries[n - 1].key, key) == 0)
            return table->entries[n - 1].value;
    return NULL;
}

const char *scenario_text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *text = find(format, arguments);
    va_end(arguments);
    return text;
}

bool scenario_integer(unsigned long long *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *text = find(format, arguments);
    va_end(arguments);
    if (text)
        *value = strtoull(text, NULL, 0); /* a minus sign wraps, as garbage from a driver does */
    return text != NULL;
}

bool scenario_real(double *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *text = find(format, arguments);
    va_end(arguments);
    if (text)
        *value = strtod(text, NULL);
    return text != NULL;
}
