/* libcuda.so.1: loads the injected library as the driver does, and knows a few devices. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_SETTINGS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char key[64];
    long value;
} settings[MAX_SETTINGS];
static int setting_count;
static void (*_Atomic listening)(const struct launch *);
static atomic_uint correlations;

static void set(const char *key, long value) {
    int i = 0;
    while (i < setting_count && strcmp(settings[i].key, key) != 0) i++;
    if (i == MAX_SETTINGS) abort();
    snprintf(settings[i].key, sizeof settings[i].key, "%s", key);
    settings[i].value = value;
    if (i == setting_count) setting_count++;
}

static void read_environment(void) {
    const char *text = getenv("CUDA_DOUBLE");
    char copy[1024], *rest = copy, *pair;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    while ((pair = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(pair, '=');
        if (equals == NULL) continue;
        *equals = 0;
        set(pair, atol(equals + 1));
    }
}

EXPORT void driver_set(const char *key, long value) {
    pthread_mutex_lock(&lock);
    set(key, value);
    pthread_mutex_unlock(&lock);
}

EXPORT long driver_get(const char *key) {
    static int read;
    long value = 0;
    pthread_mutex_lock(&lock);
    if (!read) read_environment();
    read = 1;
    for (int i = 0; i < setting_count; i++)
        if (strcmp(settings[i].key, key) == 0) value = settings[i].value;
    pthread_mutex_unlock(&lock);
    return value;
}

EXPORT uint64_t driver_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

EXPORT void driver_listen(void (*listener)(const struct launch *)) { listening = listener; }

EXPORT void driver_launch(struct launch *launch) {
    void (*listener)(const struct launch *) = listening;
    if (launch->correlation == 0) launch->correlation = atomic_fetch_add(&correlations, 1) + 1;
    launch->start = driver_now();
    launch->end = launch->start + (uint64_t)driver_get("duration_ns");
    if (listener != NULL) listener(launch);
}

EXPORT int cuInit(unsigned flags) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    int (*initialize)(void);
    (void)flags;
    driver_get("");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (path != NULL && library == NULL && driver_get("complain")) fprintf(stderr, "%s\n", dlerror());
    if (library == NULL) return 0;
    *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (initialize == NULL || initialize() != 1) abort();
    return 0;
}

EXPORT int cuDriverGetVersion(int *version) {
    *version = driver_get("driver") ? (int)driver_get("driver") : 13000;
    return 0;
}

EXPORT int cuDeviceGetCount(int *count) {
    *count = 8;
    return driver_get("starting") ? 3 : 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal > 7) return 101;
    *device = ordinal;
    return 0;
}

EXPORT int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, device == 7 ? "NVIDIA \"H200\"\\\n MIG 1g.18gb" : "NVIDIA H200");
    return 0;
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(16 * i + device);
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    static const int VALUES[][2] = {{10, 32},    {16, 132},    {39, 2048},    {75, 9},     {76, 0},
                                    {81, 233472}, {82, 65536}, {97, 232448}, {106, 32}, {111, 1024}};
    (void)device;
    for (unsigned i = 0; i < sizeof VALUES / sizeof *VALUES; i++)
        if (VALUES[i][0] == attribute) {
            *value = VALUES[i][1];
            return 0;
        }
    return 1;
}
