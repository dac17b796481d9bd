/* Finds CUPTI: the copy in the process, else the program's own, else the one that roofmon brought. A second
 * copy, beside one that the program loads later, would be two profilers in one process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cupti_types.h"
#include "trace.h"

struct cupti cupti;
static bool found;

/* Takes a library for CUPTI if it is one that we know. Others stay loaded: to unload them could do harm. */
static bool take(void *library) {
    Dl_info where;
    const char *missing = NULL;
    if (library == NULL) return false;
#define LOAD(name, parameters)                             \
    *(void **)&cupti.name = dlsym(library, "cupti" #name); \
    if (cupti.name == NULL) missing = "cupti" #name;
    CUPTI_FUNCTIONS(LOAD)
#undef LOAD
    if (missing != NULL) {
        snprintf(session.reason, sizeof session.reason, "a libcupti lacks %s", missing);
        return false;
    }
    if (dladdr(*(void **)&cupti.GetVersion, &where) != 0)
        snprintf(session.path, sizeof session.path, "%s", where.dli_fname);
    if (!CUPTI_WORKED(GetVersion, &session.version)) return false;
    if (session.version < VERSION_OLDEST || session.version >= VERSION_TOO_NEW) {
        snprintf(session.reason, sizeof session.reason,
                 "%.200s has version %u: CUPTI of CUDA 12 or 13 is needed", session.path, session.version);
        return false;
    }
    return found = true;
}

static bool try_library(const char *path) { return take(dlopen(path, RTLD_LAZY | RTLD_LOCAL)); }

/* Calls `use` with the path of every mapped file whose name begins with `name`, until it returns true. */
static bool each_mapped(const char *name, bool (*use)(char *path)) {
    char line[4096 + 128];
    bool done = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && !done && fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/');
        if (path == NULL || strncmp(strrchr(path, '/') + 1, name, strlen(name)) != 0) continue;
        path[strcspn(path, "\n")] = 0;
        done = use(path);
    }
    if (maps != NULL) fclose(maps);
    return done;
}

static bool use_loaded(char *path) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) take(library);
    return library != NULL;
}

static bool try_folder(const char *folder) {
    char path[4096 + 64];
    for (int major = driver_newest_cupti(); major >= 12; major--) {
        snprintf(path, sizeof path, "%s%slibcupti.so.%d", folder, *folder ? "/" : "", major);
        if (try_library(path)) return true;
    }
    return false;
}

static bool use_beside(char *path) {
    static const char *const PLACES[] = {"", "/../extras/CUPTI/lib64", "/../../cuda_cupti/lib"};
    char folder[4096 + 32];
    *strrchr(path, '/') = 0;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        snprintf(folder, sizeof folder, "%s%s", path, PLACES[i]);
        if (try_folder(folder)) return true;
    }
    return false;
}

static bool use_listed(void) {
    char list[sizeof cupti_places], *rest = list, *path;
    strcpy(list, cupti_places);
    while ((path = strsep(&rest, ":")) != NULL)
        if (path[0] == '/' && (try_folder(path) || try_library(path))) return true;
    return false;
}

bool cupti_found(void) {
    /* A wheel that brings its own copy calls it libcupti-….so. */
    if (found || each_mapped("libcupti.so", use_loaded) || each_mapped("libcupti-", use_loaded)) return found;
    if (each_mapped("libcudart", use_beside) || try_folder("") || use_listed()) return true;
    if (session.reason[0] == 0)
        snprintf(session.reason, sizeof session.reason,
                 "no libcupti.so.13 or libcupti.so.12 was found: install CUPTI, or name it in ROOFMON_CUPTI");
    return false;
}
