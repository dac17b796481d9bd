/* Finds CUPTI and asks it for records, from the first monitor to the last.
 *
 * All of this runs on the library's own thread. Leaving is disabling and flushing; cuptiFinalize is never
 * called, because it kills programs that have graphs or launch from other threads at that moment. The
 * callbacks are registered at each attach, as another profiler may have registered its own in between.
 *
 * CUPTI has one pair of callbacks a process. When the program's own profiler registers its pair, ours fall
 * silent, as they do when nothing runs. So after some flushes without a call we ask CUPTI for a record of
 * each device: the callbacks are ours if this gets us a request for a buffer, or the record. Only where that
 * has worked twice before, silence after it means that they are not, and we yield. Before 13.0 the record
 * could wait in one buffer with a kernel that runs for long, and would prove nothing. What we enabled stays
 * as it is, since the other profiler uses the same switches. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_types.h"
#include "trace.h"

enum { ATTEMPTS = 750 }; /* half a minute: with many GPUs the driver takes seconds to start */
enum { QUIET = 12, PATIENCE = 8 }; /* flushes, of 40 ms: until we ask, and until we believe the silence */

static const size_t DEVICE_BUFFER_BYTES = 1 << 20, DEVICE_BUFFERS = 32; /* of the program's GPU memory */
static const uint64_t SECOND_NS = 1000000000;
static const int KINDS[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static struct {
#define FIELD(name, parameters) int(*name) parameters;
    CUPTI_FUNCTIONS(FIELD)
#undef FIELD
} cupti;

struct session session;
static bool found;
static struct {
    uint64_t calls, pongs;
    int quiet;   /* flushes since CUPTI called */
    int answers; /* with the second, it is known to answer again and again */
    bool clock_set;
} watch;

int session_next_record(uint8_t *buffer, size_t valid, void **record) {
    return cupti.ActivityGetNextRecord(buffer, valid, record);
}

uint64_t session_dropped(void *context, uint32_t stream) {
    size_t count = 0;
    return cupti.ActivityGetNumDroppedRecords(context, stream, &count) == CUPTI_SUCCESS ? count : 0;
}

/* A monitor that comes with the socket comes while the driver is being initialised. */
static bool early(void) { return session.state != TRACING && ++session.attempts < ATTEMPTS; }

static bool worked(int result, const char *function) {
    const char *words = NULL;
    if (result == CUPTI_SUCCESS) return true;
    if (cupti.GetResultString(result, &words) != CUPTI_SUCCESS || words == NULL) words = "unknown error";
    session.state = result == NOT_INITIALIZED && early() ? STARTING : FAILED;
    session.changed = true;
    snprintf(session.reason, sizeof session.reason, "%s: %s (%d)", function, words, result);
    return false;
}

/* Takes a library for CUPTI if it is one that we know. Others stay loaded: to unload them could do harm. */
static bool take(void *library) {
    uint32_t version = 0;
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
    if (!worked(cupti.GetVersion(&version), "cuptiGetVersion")) return false;
    session.version = version;
    if (version < VERSION_OLDEST || version >= VERSION_TOO_NEW) {
        snprintf(session.reason, sizeof session.reason,
                 "%.200s has version %u: CUPTI of CUDA 12 or 13 is needed", session.path, version);
        return false;
    }
    return found = true;
}

static bool try_library(const char *path) { return take(dlopen(path, RTLD_LAZY | RTLD_LOCAL)); }

/* Calls `use` with the path of every mapped file whose name begins with `name`, until it returns true. */
static bool each_mapped(const char *name, bool (*use)(char *path)) {
    char line[4096 + 128], last[4096] = "";
    bool done = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && !done && fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/'), *base = path ? strrchr(path, '/') + 1 : NULL;
        if (path == NULL || strncmp(base, name, strlen(name)) != 0) continue;
        path[strcspn(path, "\n")] = 0;
        if (strcmp(path, last) == 0) continue;
        snprintf(last, sizeof last, "%s", path);
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

static void *driver_function(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *function = driver ? dlsym(driver, name) : NULL;
    if (driver != NULL) dlclose(driver);
    return function;
}

/* CUPTI is left alone until cuInit, in another thread, is over. */
static bool driver_started(void) {
    int (*count)(int *), devices;
    *(void **)&count = driver_function("cuDeviceGetCount");
    return count == NULL || count(&devices) != DRIVER_NOT_INITIALIZED;
}

/* The newest CUPTI that the driver can serve. */
static int newest_major(void) {
    int (*get)(int *), version = 13000;
    *(void **)&get = driver_function("cuDriverGetVersion");
    if (get != NULL) get(&version);
    return version >= 13000 ? 13 : 12;
}

static bool try_folder(const char *folder) {
    char path[4096 + 64];
    for (int major = newest_major(); major >= 12; major--) {
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
    char *rest = cupti_places, *path;
    while ((path = strsep(&rest, ":")) != NULL) {
        bool used = path[0] == '/' && (try_folder(path) || try_library(path));
        if (rest != NULL) rest[-1] = ':'; /* for the next attach */
        if (used) return true;
    }
    return false;
}

/* The copy in the process, else the program's own, else the one that roofmon brought: a second copy, beside
 * one that the program loads later, would be two profilers in one process. */
static bool find(void) {
    if (found || each_mapped("libcupti.so", use_loaded) || each_mapped("libcupti-", use_loaded)) return found;
    if (each_mapped("libcudart", use_beside) || try_folder("") || use_listed()) return true;
    if (session.reason[0] == 0)
        snprintf(session.reason, sizeof session.reason,
                 "no libcupti.so.13 or libcupti.so.12 was found: install CUPTI, or name it in ROOFMON_CUPTI");
    return false;
}

static void ask(void) {
    if (session.version < VERSION_PER_THREAD) return;
    if (cupti.ActivityEnableAndDump(KIND_DEVICE) == CUPTI_SUCCESS) cupti.ActivityDisable(KIND_DEVICE);
}

static uint64_t unix_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* CUPTI's clock is this one until somebody gives it another: torch.profiler leaves it at the processor's
 * ticks. Each registration spoils a record of every later session, so there is none where times are right. */
static bool set_clock(void) {
    watch.clock_set = true;
    return worked(cupti.ActivityRegisterTimestampCallback(unix_ns), "cuptiActivityRegisterTimestampCallback");
}

static void disable(int kinds) {
    while (kinds-- > 0) cupti.ActivityDisable(KINDS[kinds]);
}

void session_start(void) {
    size_t size = sizeof(size_t), bytes = DEVICE_BUFFER_BYTES, limit = DEVICE_BUFFERS;
    uint64_t since = 0;
    session.reason[0] = 0;
    if (!driver_started()) {
        session.state = early() ? STARTING : FAILED;
        snprintf(session.reason, sizeof session.reason, "the driver did not come to be initialised");
        return;
    }
    session.state = FAILED;
    if (!find()) return;
    if (!worked(cupti.GetTimestamp(&since), "cuptiGetTimestamp")) return;
    watch.clock_set = false;
    if (since + SECOND_NS < unix_ns() || since > unix_ns() + SECOND_NS) {
        if (!set_clock()) return;
        since = unix_ns();
    }
    if (!worked(cupti.ActivitySetAttribute(ATTRIBUTE_DEVICE_BUFFER_SIZE, &size, &bytes),
                "cuptiActivitySetAttribute(DEVICE_BUFFER_SIZE)"))
        return;
    bool bounded = cupti.ActivitySetAttribute(ATTRIBUTE_DEVICE_BUFFER_POOL_LIMIT, &size, &limit) == CUPTI_SUCCESS;
    if (!worked(cupti.ActivityRegisterCallbacks(records_requested, records_completed),
                "cuptiActivityRegisterCallbacks"))
        return;
    /* What was in flight at a detach long ago has its times by now, or never gets them. */
    if (records_stuck()) cupti.ActivityFlushAll(FLUSH_FORCED);
    session_dropped(NULL, 0); /* what was dropped before is not ours */
    if (!records_begin(since)) {
        session.state = FAILED;
        snprintf(session.reason, sizeof session.reason, "the program has no memory to spare for records");
        return;
    }
    int enabled = 0;
    while (enabled < KIND_COUNT && worked(cupti.ActivityEnable(KINDS[enabled]), "cuptiActivityEnable"))
        enabled++;
    if (enabled < KIND_COUNT) {
        disable(enabled);
        records_end();
        return;
    }
    struct signs signs = records_signs();
    watch.calls = signs.calls;
    watch.pongs = signs.pongs;
    watch.answers = 0;
    watch.quiet = QUIET;
    ask();
    /* Else it may be of a copy that was not used. */
    snprintf(session.reason, sizeof session.reason, "%s",
             bounded ? "" : "CUPTI refuses to bound the GPU memory of its buffers");
    session.state = TRACING;
}

void session_stop(void) {
    if (session.state == TRACING) {
        disable(KIND_COUNT);
        cupti.ActivityFlushAll(0);
        records_end();
    }
    session.state = IDLE;
}

void session_watch(void) {
    struct signs signs = records_signs();
    if (session.state != TRACING) return;
    if (signs.displaced_another && session.reason[0] == 0) {
        session.changed = true;
        snprintf(session.reason, sizeof session.reason,
                 "the program's own profiler was running: it sees nothing from the attach on");
    }
    if (signs.pongs != watch.pongs && ++watch.answers == 1) ask();
    watch.pongs = signs.pongs;
    if (signs.other_clock && !watch.clock_set && !set_clock()) {
        disable(KIND_COUNT);
        return;
    }
    watch.quiet = signs.calls == watch.calls ? watch.quiet + 1 : 0;
    watch.calls = signs.calls;
    if (watch.quiet == QUIET) ask();
    if (watch.quiet <= QUIET + PATIENCE) return;
    watch.quiet = 0;
    if (watch.answers < 2) return;
    session.state = YIELDED;
    session.changed = true;
    snprintf(session.reason, sizeof session.reason, "the program's own profiler took CUPTI over");
}

void session_flush(bool forced) {
    size_t lost = 0;
    if (session.state != TRACING) return;
    if (worked(cupti.ActivityFlushAll(forced ? FLUSH_FORCED : 0), "cuptiActivityFlushAll") &&
        worked(cupti.ActivityGetNumDroppedRecords(NULL, 0, &lost), "cuptiActivityGetNumDroppedRecords") &&
        worked(records_signs().unreadable, "cuptiActivityGetNextRecord") && !records_signs().crowded) {
        records_lost(lost);
        return;
    }
    if (session.state == TRACING) {
        session.state = FAILED;
        session.changed = true;
        snprintf(session.reason, sizeof session.reason,
                 "too many records wait for kernels that run for long: CUPTI before 12.9 cannot bear it");
    }
    disable(KIND_COUNT);
}

/* What the driver tells of a device. Needs no context; called between records, not in a callback. */
size_t device_json(unsigned index, char *out, size_t size) {
    static const struct {
        const char *name;
        int attribute;
    } FACTS[] = {{"sm_count", 16},         {"warp_size", 10},        {"max_threads_per_sm", 39},
                 {"shared_per_sm", 81},    {"registers_per_sm", 82}, {"shared_per_block_optin", 97},
                 {"max_blocks_per_sm", 106}, {"shared_reserved_per_block", 111}};
    int (*get)(int *, int), (*get_name)(char *, int, int), (*get_uuid)(unsigned char *, int),
        (*get_attribute)(int *, int, int);
    unsigned char uuid[16];
    char name[256] = "", text[800] = "", shown[64] = "";
    int device = 0, major = 0, minor = 0, value;
    *(void **)&get = driver_function("cuDeviceGet");
    *(void **)&get_name = driver_function("cuDeviceGetName");
    *(void **)&get_uuid = driver_function("cuDeviceGetUuid_v2");
    *(void **)&get_attribute = driver_function("cuDeviceGetAttribute");
    bool known = get != NULL && get(&device, (int)index) == 0;
    if (known && get_name != NULL && get_name(name, sizeof name - 1, device) == 0)
        json_text(text, sizeof text, name);
    if (known && get_uuid != NULL && get_uuid(uuid, device) == 0) {
        char *at = shown + sprintf(shown, strstr(name, " MIG ") ? "MIG-" : "GPU-");
        for (int i = 0; i < 16; i++)
            at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
    known = known && get_attribute != NULL;
    if (known) known = get_attribute(&major, 75, device) == 0 && get_attribute(&minor, 76, device) == 0;
    const char *begin = "{\"index\":%u,\"uuid\":\"%s\",\"name\":\"%s\",\"compute_capability\":[%d,%d]";
    size_t used = (size_t)snprintf(out, size, begin, index, shown, text, major, minor);
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++) {
        if (!known || get_attribute(&value, FACTS[i].attribute, device) != 0) value = 0;
        used += (size_t)snprintf(out + used, size - used, ",\"%s\":%d", FACTS[i].name, value);
    }
    return used + (size_t)snprintf(out + used, size - used, "}");
}
