/* Asks CUPTI for records, from the first monitor to the last.
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
#include <stdio.h>

#include "cupti_types.h"
#include "trace.h"

enum { ATTEMPTS = 750 }; /* half a minute: with many GPUs the driver takes seconds to start */
enum { QUIET = 12, PATIENCE = 8 }; /* flushes, of 40 ms: until we ask, and until we believe the silence */

static const size_t DEVICE_BUFFER_BYTES = 1 << 20, MOST_DEVICE_BUFFERS = 256; /* of the program's GPU memory */
static size_t device_buffers = 32;
static const uint64_t SECOND_NS = 1000000000;
/* Kernels are enabled last and disabled first: while CUPTI records kernels alone, it does not get back the
 * buffers of graphs on the GPU (github.com/parca-dev/parcagpu/issues/23). */
static const int KINDS[] = {KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET, KIND_CONCURRENT_KERNEL};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

struct session session;
static struct {
    uint64_t calls, pongs;
    int quiet;   /* flushes since CUPTI called */
    int answers; /* with the second, it is known to answer again and again */
    uint32_t timeless; /* records without times since the last one with */
    int starved;       /* flushes that brought such ones only */
    bool clock_set;
} watch;

/* A monitor that comes with the socket comes while the driver is being initialised. */
static bool early(void) { return session.state != TRACING && ++session.attempts < ATTEMPTS; }

bool session_worked(int result, const char *function) {
    const char *words = NULL;
    if (result == CUPTI_SUCCESS) return true;
    if (cupti.GetResultString(result, &words) != CUPTI_SUCCESS || words == NULL) words = "unknown error";
    session.state = result == NOT_INITIALIZED && early() ? STARTING : FAILED;
    session.changed = true;
    snprintf(session.reason, sizeof session.reason, "%s: %s (%d)", function, words, result);
    return false;
}

static void ask(void) {
    if (session.version < VERSION_PER_THREAD) return;
    if (cupti.ActivityEnableAndDump(KIND_DEVICE) == CUPTI_SUCCESS) cupti.ActivityDisable(KIND_DEVICE);
}

/* CUPTI's clock is this one until somebody gives it another: torch.profiler leaves it at the processor's
 * ticks. Each registration spoils a record of every later session, so there is none where times are right. */
static bool set_clock(void) {
    watch.clock_set = true;
    return CUPTI_WORKED(ActivityRegisterTimestampCallback, unix_ns);
}

static bool bound_device_buffers(void) {
    size_t size = sizeof device_buffers;
    return cupti.ActivitySetAttribute(ATTRIBUTE_DEVICE_BUFFER_POOL_LIMIT, &size, &device_buffers) ==
           CUPTI_SUCCESS;
}

/* Where CUPTI has used up its buffers on the GPU, kernels have no times, and those of graphs no record: then
 * it gets more of them. False where it may have no more. */
static bool make_room(uint32_t timeless) {
    if (timeless != watch.timeless) watch.starved = timeless > watch.timeless ? watch.starved + 1 : 0;
    watch.timeless = timeless;
    if (watch.starved < PATIENCE) return true;
    watch.starved = 0;
    if (device_buffers >= MOST_DEVICE_BUFFERS) return false;
    device_buffers *= 2;
    return bound_device_buffers();
}

static void disable(int kinds) {
    while (kinds-- > 0) cupti.ActivityDisable(KINDS[kinds]);
}

static void tell(enum state state, const char *reason) {
    session.state = state;
    session.changed = true;
    snprintf(session.reason, sizeof session.reason, "%s", reason);
}

void session_start(void) {
    size_t size = sizeof(size_t), bytes = DEVICE_BUFFER_BYTES, lost;
    uint64_t since = 0;
    session.reason[0] = 0;
    if (!driver_started()) {
        session.state = early() ? STARTING : FAILED;
        snprintf(session.reason, sizeof session.reason, "the driver did not come to be initialised");
        return;
    }
    session.state = FAILED;
    if (!cupti_found() || !CUPTI_WORKED(GetTimestamp, &since)) return;
    watch.clock_set = false;
    if (since + SECOND_NS < unix_ns() || since > unix_ns() + SECOND_NS) {
        if (!set_clock()) return;
        since = unix_ns();
    }
    if (!CUPTI_WORKED(ActivitySetAttribute, ATTRIBUTE_DEVICE_BUFFER_SIZE, &size, &bytes)) return;
    bool bounded = bound_device_buffers();
    if (!CUPTI_WORKED(ActivityRegisterCallbacks, records_requested, records_completed)) return;
    /* What was in flight at a detach long ago has its times by now, or never gets them. */
    if (records_signs().out > BUFFERS / 4) cupti.ActivityFlushAll(FLUSH_FORCED);
    cupti.ActivityGetNumDroppedRecords(NULL, 0, &lost); /* what was dropped before is not ours */
    if (!records_begin(since)) {
        snprintf(session.reason, sizeof session.reason, "the program has no memory to spare for records");
        return;
    }
    for (int i = 0; i < KIND_COUNT; i++) {
        if (CUPTI_WORKED(ActivityEnable, KINDS[i])) continue;
        disable(i);
        records_end();
        return;
    }
    session.since_ns = unix_ns();
    struct signs signs = records_signs();
    watch.calls = signs.calls;
    watch.pongs = signs.pongs;
    watch.answers = 0;
    watch.timeless = signs.timeless;
    watch.starved = 0;
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
    if (signs.displaced_another && session.reason[0] == 0)
        tell(TRACING, "the program's own profiler was running: it sees nothing from the attach on");
    if (signs.pongs != watch.pongs && ++watch.answers == 1) ask();
    watch.pongs = signs.pongs;
    if (signs.other_clock && !watch.clock_set && !set_clock()) {
        disable(KIND_COUNT);
        return;
    }
    if (!make_room(signs.timeless)) {
        tell(FAILED, "CUPTI has no room left for the times of kernels: restart the program to trace it");
        disable(KIND_COUNT);
        return;
    }
    watch.quiet = signs.calls == watch.calls ? watch.quiet + 1 : 0;
    watch.calls = signs.calls;
    if (watch.quiet == QUIET) ask();
    if (watch.quiet <= QUIET + PATIENCE) return;
    watch.quiet = 0;
    if (watch.answers < 2) return;
    tell(YIELDED, "the program's own profiler took CUPTI over");
}

size_t session_flush(bool forced) {
    size_t lost = 0;
    if (session.state != TRACING) return 0;
    if (CUPTI_WORKED(ActivityFlushAll, forced ? FLUSH_FORCED : 0) &&
        CUPTI_WORKED(ActivityGetNumDroppedRecords, NULL, 0, &lost) &&
        session_worked(records_signs().unreadable, "cuptiActivityGetNextRecord") &&
        records_signs().out <= BUFFERS)
        return lost;
    if (session.state == TRACING)
        tell(FAILED, "too many records wait for kernels that run for long: CUPTI before 12.9 cannot bear it");
    disable(KIND_COUNT);
    return lost;
}
