#include "calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "scenario.h"

#define MARK 0x4E564D4Cull /* in the upper half of a handle: other pointers are told apart */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint references, epoch;
static atomic_ullong generation;

/* The driver that is loaded: another number after `driver_generation` changed under us. */
static unsigned long long driver_generation(void)
{
    unsigned long long now = 0;
    scenario_integer(&now, "driver_generation");
    return now;
}

void open_library(void)
{
    pthread_mutex_lock(&opening);
    if (references == 0) {
        epoch++;
        generation = driver_generation();
    }
    references++;
    pthread_mutex_unlock(&opening);
}

nvml_return close_library(void)
{
    pthread_mutex_lock(&opening);
    bool open = references > 0;
    if (open)
        references--;
    pthread_mutex_unlock(&opening);
    return open ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

/* Appends one line to the file in ROOFMON_NVML_CALLS, in one write, so that threads do not mix. */
static void record(const char *function, const char *prefix)
{
    const char *path = getenv("ROOFMON_NVML_CALLS");
    char line[128];
    struct timespec now;
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%lld.%09ld %s %s\n", (long long)now.tv_sec,
                          now.tv_nsec, function, prefix);
    if (write(file, line, (size_t)length) != length)
        perror(path);
    close(file);
}

/* The function's name without `_v2`, `_v3`: a fault without a version is one of all versions. */
static void strip_version(char *name)
{
    char *end = strrchr(name, '_');
    if (end && end[1] == 'v')
        *end = '\0';
}

/* What the scenario says of `kind` ("fail", "hang") for a function. */
static const char *fault(const char *prefix, const char *kind, const char *function)
{
    char base[64];
    snprintf(base, sizeof base, "%s", function);
    strip_version(base);
    const char *exact = scenario_text("%s%s.%s", prefix, kind, function);
    const char *any = exact ? exact : scenario_text("%s%s.%s", prefix, kind, base);
    return any ? any : scenario_text("%s%s", prefix, kind);
}

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Sleeps as long as the scenario asks (below zero: for ever) and still asks. No lock is held. */
static void hang(const char *prefix, const char *function)
{
    const struct timespec slice = {.tv_nsec = 10000000};
    const double began = monotonic();
    const char *text;
    while ((text = fault(prefix, "hang", function))) {
        double seconds = strtod(text, NULL);
        if (seconds >= 0 && monotonic() - began >= seconds)
            return;
        nanosleep(&slice, NULL);
        scenario_refresh();
    }
}

static nvml_return hang_or_fail(const char *prefix, const char *function)
{
    hang(prefix, function);
    const char *text = fault(prefix, "fail", function);
    return text ? (nvml_return)strtoul(text, NULL, 0) : NVML_SUCCESS;
}

static nvml_return check_open(void)
{
    return references > 0 && generation == driver_generation() ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

nvml_return begin_unchecked(const char *function)
{
    scenario_refresh();
    record(function, "");
    return hang_or_fail("", function);
}

nvml_return begin(const char *function)
{
    nvml_return result = begin_unchecked(function);
    return result ? result : check_open();
}

int gpu_count(void)
{
    unsigned long long count = 0;
    scenario_integer(&count, "gpus");
    return count < MOST_GPUS ? (int)count : MOST_GPUS;
}

nvml_device make_handle(int gpu, int mig)
{
    uint64_t which = (uint64_t)(epoch & 0xFFFF) << 16 | (uint64_t)gpu << 8 | (uint64_t)(mig + 1);
    return (nvml_device)(uintptr_t)(MARK << 32 | which);
}

/* A GPU's own faults: it hangs, is lost, or fails in this function. */
static nvml_return begin_gpu(int gpu, const char *function)
{
    char prefix[24];
    unsigned long long lost = 0;
    snprintf(prefix, sizeof prefix, "gpu%d.", gpu);
    nvml_return result = hang_or_fail(prefix, function);
    if (result)
        return result;
    scenario_integer(&lost, "gpu%d.lost", gpu);
    return lost || gpu >= gpu_count() ? NVML_GPU_IS_LOST : check_open();
}

nvml_return begin_device(nvml_device handle, const char *function, struct target *target)
{
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    target->gpu = (int)(bits >> 8 & 0xFF);
    target->mig = (int)(bits & 0xFF) - 1;
    const char *format = target->mig < 0 ? "gpu%d" : "gpu%d.mig%d";
    snprintf(target->prefix, sizeof target->prefix, format, target->gpu, target->mig);
    scenario_refresh();
    record(function, target->prefix);
    nvml_return result = hang_or_fail("", function);
    result = result ? result : check_open();
    if (result)
        return result;
    if (bits >> 32 != MARK || (bits >> 16 & 0xFFFF) != (epoch & 0xFFFF))
        return NVML_INVALID_ARGUMENT;
    result = begin_gpu(target->gpu, function);
    if (result || target->mig < 0)
        return result;
    if (!scenario_text("%s.uuid", target->prefix))
        return NVML_INVALID_ARGUMENT; /* the instance was destroyed */
    char prefix[sizeof target->prefix + 1];
    snprintf(prefix, sizeof prefix, "%s.", target->prefix);
    return hang_or_fail(prefix, function);
}

nvml_return begin_lookup(int gpu, const char *function, nvml_device *handle)
{
    nvml_return result = begin_gpu(gpu, function);
    if (result == NVML_SUCCESS)
        *handle = make_handle(gpu, -1);
    return result;
}
