/* libcupti.so.13: the activity interface, fed with the launches of the stand-in driver.
 *
 * It keeps CUPTI's rules: buffers are asked for on the launching thread, one for each thread; they come back
 * on another thread when full, or by a flush; those with a kernel that has not ended only by a forced flush,
 * which leaves its times 0. One pair of callbacks a process: the last to register gets everything. A buffer
 * that is handed out twice, one that is refused before 12.9, and cuptiFinalize, end the program. The settings are listed in ../README.md. */
#define _GNU_SOURCE
#include <pthread.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cuda/driver.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct { /* CUpti_ActivityKernel9 */
    uint32_t kind;
    uint8_t cacheConfig, sharedMemoryConfig;
    uint16_t registersPerThread;
    uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory;
    uint32_t localMemoryPerThread, localMemoryTotal, correlationId;
    int64_t gridId;
    const char *name;
    void *reserved0;
    uint64_t queued, submitted;
    uint8_t launchType, isSharedMemoryCarveoutRequested, sharedMemoryCarveoutRequested, padding;
    uint32_t sharedMemoryExecuted;
    uint64_t graphNodeId;
    uint32_t shmemLimitConfig, graphId;
    void *pAccessPolicyWindow;
    uint32_t channelID, channelType, clusterX, clusterY, clusterZ, clusterSchedulingPolicy;
    uint64_t localMemoryTotal_v2;
} Kernel;

typedef struct { /* CUpti_ActivityMemcpy5 */
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId, runtimeCorrelationId, pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType, pad2;
} Copy;

typedef struct { /* CUpti_ActivityMemcpyPtoP4 */
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t srcDeviceId, srcContextId, dstDeviceId, dstContextId, correlationId;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType, pad;
} PeerCopy;

typedef struct { /* CUpti_ActivityMemset4 */
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
    uint16_t flags, memoryKind;
    uint32_t pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId, channelID, channelType;
    uint8_t isDeviceLaunched, pad2[3];
} Fill;

typedef struct { /* a device's record; only its kind matters here */
    uint32_t kind, flags;
    uint64_t rest[20];
} Device;

enum { MEMCPY = 1, MEMSET = 2, DEVICE = 8, CONCURRENT_KERNEL = 10, MEMCPY2 = 22, KINDS = 64 };
enum { INVALID_KIND = 21, INVALID_PARAMETER = 1, INVALID_OPERATION = 24, MAX_LIMIT = 12 };

struct area { /* a buffer that CUPTI was given */
    struct area *next;
    uint8_t *buffer;
    size_t size, used;
    uint64_t ends; /* the last of its kernels */
    pthread_t thread;
    bool full, asking;
};

typedef void (*requested_function)(uint8_t **, size_t *, size_t *);
typedef void (*completed_function)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct area *areas;
static requested_function requested;
static completed_function completed;
static _Atomic bool enabled[KINDS];
static bool working;
static size_t dropped;
static uint64_t (*_Atomic clock_given)(void);
static unsigned long records;

static int failure(const char *function) {
    char key[64];
    snprintf(key, sizeof key, "skip.%s", function);
    long skip = driver_get(key);
    if (skip > 0) {
        driver_set(key, skip - 1);
        return 0;
    }
    snprintf(key, sizeof key, "fail.%s", function);
    return (int)driver_get(key);
}

#define MAY_FAIL(function)            \
    do {                              \
        int code = failure(function); \
        if (code != 0) return code;   \
    } while (0)

static size_t size_of(uint32_t kind) {
    switch (kind) {
    case CONCURRENT_KERNEL: return sizeof(Kernel);
    case MEMCPY: return sizeof(Copy);
    case MEMCPY2: return sizeof(PeerCopy);
    case MEMSET: return sizeof(Fill);
    case DEVICE: return sizeof(Device);
    default: return 0;
    }
}

/* The times of a record: in the same place in all but the kernel's. */
static uint64_t *times(uint8_t *record) {
    return *(uint32_t *)record == DEVICE ? NULL : &((Kernel *)(void *)record)->start;
}

static void erase_unfinished(struct area *area, uint64_t now, bool hold) {
    for (size_t at = 0; at < area->used; at += size_of(*(uint32_t *)(area->buffer + at))) {
        uint64_t *time = times(area->buffer + at);
        if (time != NULL && (hold || time[1] > now)) time[0] = time[1] = 0;
    }
}

/* Takes out an area that is to be returned; those that are not full only for a flush. */
static struct area *take(bool flush, bool forced) {
    bool hold = driver_get("hold") != 0;
    uint64_t now = driver_now();
    pthread_mutex_lock(&lock);
    struct area **at = &areas;
    while (*at != NULL) {
        bool wanted = ((*at)->full || (flush && (*at)->used > 0)) && !(*at)->asking;
        if (wanted && (forced || (!hold && (*at)->ends <= now))) break;
        at = &(*at)->next;
    }
    struct area *found = *at;
    if (found != NULL) {
        *at = found->next;
        if (forced) erase_unfinished(found, now, hold);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_back(bool flush, bool forced) {
    struct area *area;
    while ((area = take(flush, forced)) != NULL) {
        completed(NULL, 0, area->buffer, area->size, area->used);
        free(area);
    }
}

static void *work(void *unused) {
    for (;;) {
        usleep(5000 + 1000 * (unsigned)driver_get("late_ms"));
        give_back(false, false);
    }
    return unused;
}

static struct area *find(pthread_t thread) {
    struct area *area = areas;
    while (area != NULL && (area->full || !pthread_equal(area->thread, thread))) area = area->next;
    return area;
}

static uint32_t version(void) { return driver_get("version") ? (uint32_t)driver_get("version") : VERSION; }

/* Called and left with the lock held; another thread may use it in between. */
static struct area *ask(pthread_t thread) {
    struct area *made = calloc(1, sizeof *made);
    size_t most = 0;
    made->thread = thread;
    pthread_mutex_unlock(&lock);
    requested(&made->buffer, &made->size, &most);
    if (made->buffer != NULL) memset(made->buffer, 0, made->size);
    pthread_mutex_lock(&lock);
    if (made->buffer == NULL) {
        if (version() < 27) abort();
        free(made);
        return NULL;
    }
    for (struct area *other = areas; other != NULL; other = other->next)
        if (other->buffer == made->buffer) abort();
    made->next = areas;
    return areas = made;
}

static void put(const void *record, size_t size, uint64_t end) {
    static pthread_t everyone;
    pthread_t thread = driver_get("global") ? everyone : pthread_self();
    pthread_mutex_lock(&lock);
    long lose = driver_get("lose");
    struct area *area = find(thread);
    if (area != NULL && area->used + size > area->size) {
        area->full = true;
        area = NULL;
    }
    if (area == NULL && requested != NULL) area = ask(thread);
    if (area == NULL || (lose > 0 && ++records % (unsigned long)lose == 0)) {
        dropped++;
    } else {
        memcpy(area->buffer + area->used, record, size);
        area->used += size;
        if (end > area->ends) area->ends = end;
    }
    pthread_mutex_unlock(&lock);
}

static void spoil(uint64_t *start, uint64_t *end) {
    static unsigned long count;
    long every = driver_get("bad_times");
    if (every <= 0 || ++count % (unsigned long)every != 0) return;
    if (count / (unsigned long)every % 2) *start = *end = 0;
    else *end = *start - 1;
}

static int compare(const void *first, const void *second) { return strcmp(first, second); }

/* Where CUPTI has the text of a name: the same place for equal names, kept as long as the module. */
static const char *kept(const char *name) {
    static void *all;
    static char only[1 << 16];
    if (name == NULL) return NULL;
    if (driver_get("one_place")) return strcpy(only, name);
    pthread_mutex_lock(&lock);
    char **found = tfind(name, &all, compare);
    const char *result = *(found ? found : (char **)tsearch(strdup(name), &all, compare));
    pthread_mutex_unlock(&lock);
    return result;
}

/* Kernels that are recorded alone cost CUPTI a buffer on the GPU: here each such moment, there each graph. */
static void lose_buffer(void) {
    if (driver_get("leaky") && enabled[CONCURRENT_KERNEL] && !enabled[MEMCPY])
        driver_set("lost_buffers", driver_get("lost_buffers") + 1);
}

static void on_launch(const struct launch *launch) {
    struct launch one = *launch;
    if (clock_given != NULL) {
        uint64_t shift = clock_given() - driver_now();
        one.start += shift;
        one.end += shift;
    }
    spoil(&one.start, &one.end);
    if (driver_get("lost_buffers") && driver_get("lost_buffers") >= driver_get("pool_limit")) {
        if (one.graph != 0) return;
        one.start = one.end = 0;
    }
    if (one.kind == KERNEL && enabled[CONCURRENT_KERNEL]) {
        Kernel record = {.kind = CONCURRENT_KERNEL,
                         .registersPerThread = 168,
                         .start = one.start,
                         .end = one.end,
                         .deviceId = one.device,
                         .contextId = one.context,
                         .streamId = one.stream,
                         .gridX = one.grid[0],
                         .gridY = one.grid[1],
                         .gridZ = one.grid[2],
                         .blockX = one.block[0],
                         .blockY = one.block[1],
                         .blockZ = one.block[2],
                         .staticSharedMemory = 1024,
                         .dynamicSharedMemory = 200000,
                         .correlationId = one.correlation,
                         .name = kept(one.name),
                         .sharedMemoryExecuted = 233472,
                         .graphId = one.graph};
        put(&record, sizeof record, one.end);
        if (driver_get("one_place")) give_back(true, false);
    } else if (one.kind == COPY && enabled[MEMCPY]) {
        Copy record = {.kind = MEMCPY,
                       .copyKind = (uint8_t)one.copy,
                       .flags = 1,
                       .bytes = one.bytes,
                       .start = one.start,
                       .end = one.end,
                       .deviceId = one.device,
                       .contextId = one.context,
                       .streamId = one.stream,
                       .correlationId = one.correlation,
                       .graphId = one.graph};
        put(&record, sizeof record, one.end);
    } else if (one.kind == PEER_COPY && enabled[MEMCPY2]) {
        PeerCopy record = {.kind = MEMCPY2,
                           .copyKind = 10,
                           .bytes = one.bytes,
                           .start = one.start,
                           .end = one.end,
                           .deviceId = one.device,
                           .contextId = one.context,
                           .streamId = one.stream,
                           .srcDeviceId = one.device,
                           .dstDeviceId = one.device + 1,
                           .correlationId = one.correlation,
                           .graphId = one.graph};
        put(&record, sizeof record, one.end);
    } else if (one.kind == SET && enabled[MEMSET]) {
        Fill record = {.kind = MEMSET,
                       .bytes = one.bytes,
                       .start = one.start,
                       .end = one.end,
                       .deviceId = one.device,
                       .contextId = one.context,
                       .streamId = one.stream,
                       .correlationId = one.correlation,
                       .graphId = one.graph};
        put(&record, sizeof record, one.end);
    }
}

EXPORT int cuptiGetVersion(uint32_t *number) {
    MAY_FAIL("cuptiGetVersion");
    *number = version();
    return 0;
}

EXPORT int cuptiGetResultString(int result, const char **text) {
    MAY_FAIL("cuptiGetResultString");
    *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

EXPORT int cuptiGetTimestamp(uint64_t *timestamp) {
    MAY_FAIL("cuptiGetTimestamp");
    *timestamp = clock_given != NULL && !driver_get("own_timestamp") ? clock_given() : driver_now();
    return 0;
}

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) {
    MAY_FAIL("cuptiActivityRegisterTimestampCallback");
    if (clock == NULL) return INVALID_PARAMETER;
    clock_given = clock;
    return 0;
}

EXPORT int cuptiActivityRegisterCallbacks(requested_function first, completed_function second) {
    MAY_FAIL("cuptiActivityRegisterCallbacks");
    if (first == NULL || second == NULL) return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    requested = first;
    completed = second;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cuptiActivitySetAttribute(int attribute, size_t *size, void *value) {
    MAY_FAIL("cuptiActivitySetAttribute");
    if ((attribute != 0 && attribute != 2) || *size != sizeof(size_t)) return INVALID_PARAMETER;
    driver_set(attribute ? "pool_limit" : "buffer_size", (long)*(size_t *)value);
    return 0;
}

EXPORT int cuptiActivityEnable(int kind) {
    MAY_FAIL("cuptiActivityEnable");
    if (kind < 0 || kind >= KINDS || size_of((uint32_t)kind) == 0) return INVALID_KIND;
    pthread_mutex_lock(&lock);
    enabled[kind] = true;
    lose_buffer();
    pthread_t thread;
    if (!working) working = pthread_create(&thread, NULL, work, NULL) == 0;
    pthread_mutex_unlock(&lock);
    driver_listen(on_launch);
    return 0;
}

EXPORT int cuptiActivityEnableAndDump(int kind) {
    MAY_FAIL("cuptiActivityEnableAndDump");
    Device record = {.kind = DEVICE};
    int code = cuptiActivityEnable(kind);
    static bool told;
    if (code == 0 && kind == DEVICE && !(told && driver_get("tells_once"))) put(&record, sizeof record, 0);
    told = true;
    return code;
}

EXPORT int cuptiActivityDisable(int kind) {
    MAY_FAIL("cuptiActivityDisable");
    pthread_mutex_lock(&lock);
    enabled[kind] = false;
    lose_buffer();
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flag) {
    MAY_FAIL("cuptiActivityFlushAll");
    if (completed == NULL) return INVALID_OPERATION;
    if (driver_get("stuck_ms")) usleep(1000 * (unsigned)driver_get("stuck_ms"));
    give_back(true, flag & 1);
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    MAY_FAIL("cuptiActivityGetNextRecord");
    uint8_t *next = *record == NULL ? buffer : *record + size_of(*(uint32_t *)(void *)*record);
    if (next >= buffer + valid) return MAX_LIMIT;
    *record = next;
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    (void)context;
    (void)stream;
    MAY_FAIL("cuptiActivityGetNumDroppedRecords");
    pthread_mutex_lock(&lock);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cuptiFinalize(void) { abort(); }
