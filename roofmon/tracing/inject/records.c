/* Takes CUPTI's buffers, turns what is in them into records, and keeps those until they are sent.
 *
 * CUPTI calls from the program's threads (a launch that needs a buffer) and from its own worker, so what is
 * done under the lock is short, and CUPTI is never called under it. Everything is bounded: buffers, records
 * that wait, names. What does not fit is counted. A buffer in CUPTI's hands stays as it is until CUPTI gives
 * it back, however long after the detach that may be. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cupti_types.h"
#include "trace.h"

static const uint64_t DAY_NS = 86400ull * 1000000000;

enum {
    BUFFER_BYTES = 128 << 10, /* 600 records */
    LEAST_BYTES = 2 << 10,    /* 9 */
    RECORD_BYTES = 224,       /* of a kernel, more or less */
    PART_OF_FLUSH = 4,        /* so many buffers fill between two flushes */
    RESERVE = 256,            /* until an old CUPTI, which cannot be refused one, has been stopped */
    NAME_SLOTS = 4 * MAX_NAMES,
    RECENT_NAMES = 4096,
    NAMES_BYTES = 16 << 20,
    AT_ONCE = 64, /* records converted before the lock is given up */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    uint8_t *memory;
    size_t bytes;
    bool out;
} buffers[BUFFERS + RESERVE];

static uint32_t arrived; /* records between two flushes; once they get fewer, half as many each time */
static struct batch *batches, *filling; /* two, and the one that is being filled; NULL while detached */
static uint64_t since;
static struct signs signs;

static struct name {
    char *text;
    uint32_t length;
    uint32_t hash;
} names[MAX_NAMES + 1] = {{.text = "(other kernels)", .length = 15}};
static uint32_t name_count = 1;
static size_t name_bytes;
static uint32_t name_slots[NAME_SLOTS]; /* id by hash, 0 where free */
static struct {
    const char *pointer;
    uint32_t id;
} recent[RECENT_NAMES]; /* by where CUPTI keeps the text: spares the hash, not the comparison */

static bool is_name(uint32_t id, const char *text) {
    /* A string that is as long as names may be was cut: only what was kept is compared. */
    return strncmp(names[id].text, text, MAX_NAME_BYTES) == 0;
}

static uint32_t add_name(const char *text, uint32_t hash) {
    size_t length = strnlen(text, MAX_NAME_BYTES);
    if (name_count > MAX_NAMES || name_bytes + length > NAMES_BYTES) return 0;
    char *copy = malloc(length + 1);
    if (copy == NULL) return 0;
    memcpy(copy, text, length);
    copy[length] = 0;
    name_bytes += length;
    names[name_count] = (struct name){copy, (uint32_t)length, hash};
    return name_count++;
}

static uint32_t name_id(const char *text) {
    if (text == NULL) text = "";
    size_t place = ((uintptr_t)text >> 4 ^ (uintptr_t)text >> 16) % RECENT_NAMES;
    if (recent[place].pointer == text && is_name(recent[place].id, text)) return recent[place].id;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < MAX_NAME_BYTES && text[i]; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    size_t slot = hash % NAME_SLOTS;
    for (; name_slots[slot]; slot = (slot + 1) % NAME_SLOTS)
        if (names[name_slots[slot]].hash == hash && is_name(name_slots[slot], text)) break;
    if (!name_slots[slot]) name_slots[slot] = add_name(text, hash);
    if (name_slots[slot]) {
        recent[place].pointer = text;
        recent[place].id = name_slots[slot];
    }
    return name_slots[slot];
}

/* Whether a record is of this session and sound; counts those that are not sound. */
static bool is_good(uint64_t start, uint64_t end, uint32_t device) {
    bool ours = end == 0 || end + DAY_NS > since;
    if (ours && end != 0 && end < since) return false; /* left over from before the attach */
    signs.other_clock |= !ours;
    if (start == 0 || end == 0) signs.timeless++;
    else signs.timeless = 0;
    if (ours && start != 0 && end >= start && end < 1ull << 62 && device < MAX_DEVICES) return true;
    signs.dropped++;
    return false;
}

static uint16_t limited(int32_t value) {
    return value < 0 ? 0 : value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

static void add_kernel(const struct cupti_kernel *from) {
    if (!is_good(from->start, from->end, from->device)) return;
    if (filling->kernel_count == BATCH_KERNELS) {
        signs.dropped++;
        return;
    }
    filling->devices |= 1ull << from->device;
    filling->kernels[filling->kernel_count++] = (struct kernel_record){
        .start_ns = from->start,
        .end_ns = from->end,
        .name = name_id(from->name),
        .stream = from->stream,
        .context = from->context,
        .graph = from->graph,
        .grid = {(uint32_t)from->grid[0], (uint32_t)from->grid[1], (uint32_t)from->grid[2]},
        .block = {limited(from->block[0]), limited(from->block[1]), limited(from->block[2])},
        .device = (uint16_t)from->device,
        .registers = from->registers,
        .static_shared = (uint32_t)from->static_shared,
        .dynamic_shared = (uint32_t)from->dynamic_shared,
        .shared_executed = from->shared_executed,
        .correlation = from->correlation,
    };
}

static void add_transfer(struct transfer_record made, uint32_t device, uint32_t peer) {
    if (!is_good(made.start_ns, made.end_ns, device)) return;
    if (filling->transfer_count == BATCH_TRANSFERS || peer >= MAX_DEVICES) {
        signs.dropped++;
        return;
    }
    filling->devices |= 1ull << device | 1ull << peer;
    made.device = (uint16_t)device;
    made.peer = (uint16_t)peer;
    filling->transfers[filling->transfer_count++] = made;
}

static enum transfer_kind copy_kind(uint8_t copy) {
    switch (copy) {
    case COPY_HTOD:
    case COPY_HTOA: return H2D;
    case COPY_DTOH:
    case COPY_ATOH: return D2H;
    case COPY_HTOH: return H2H;
    case COPY_PTOP: return P2P;
    default: return copy > COPY_ATOH && copy <= COPY_DTOD ? D2D : OTHER;
    }
}

#define TRANSFER(from, what)                                                                     \
    (struct transfer_record) {                                                                   \
        .start_ns = (from)->start, .end_ns = (from)->end, .bytes = (from)->bytes,                \
        .stream = (from)->stream, .context = (from)->context, .graph = (from)->graph,            \
        .correlation = (from)->correlation, .kind = (uint8_t)(what),                             \
        .flags = (from)->flags & RECORD_ASYNCHRONOUS ? FLAG_ASYNCHRONOUS : 0                     \
    }

static void add_record(const void *record) {
    switch (*(const uint32_t *)record) {
    case KIND_CONCURRENT_KERNEL: add_kernel(record); break;
    case KIND_MEMCPY: {
        const struct cupti_memcpy *from = record;
        add_transfer(TRANSFER(from, copy_kind(from->copy)), from->device, from->device);
        break;
    }
    case KIND_MEMCPY2: {
        const struct cupti_memcpy2 *from = record;
        add_transfer(TRANSFER(from, P2P), from->from_device, from->to_device);
        break;
    }
    case KIND_MEMSET: {
        const struct cupti_memset *from = record;
        add_transfer(TRANSFER(from, MEMSET), from->device, from->device);
        break;
    }
    case KIND_DEVICE: signs.pongs++; break;
    }
}

/* Of the next buffer. CUPTI returns one when it is full and all of its kernels have ended: a large one
 * would be late where kernels are few and the program never waits for them, many small ones cost requests
 * where they are many. By what ended and not by what was launched, since launches come in bursts. */
static size_t fitting_bytes(void) {
    const uint32_t now = filling == NULL ? 0 : filling->kernel_count + filling->transfer_count;
    size_t bytes = LEAST_BYTES;
    size_t wanted = (size_t)(now > arrived ? now : arrived) * RECORD_BYTES / PART_OF_FLUSH;
    if (signs.out >= BUFFERS / 2) wanted = BUFFER_BYTES; /* much is in flight: be sparing with buffers */
    while (bytes < wanted && bytes < BUFFER_BYTES) bytes *= 2;
    return bytes;
}

void records_requested(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = NULL;
    *size = *max_records = 0;
    const bool refusable = session.version >= VERSION_REFUSABLE;
    const int most = refusable ? BUFFERS : BUFFERS + RESERVE;
    pthread_mutex_lock(&lock);
    signs.calls++;
    const size_t bytes = fitting_bytes();
    for (int i = 0; i < most && (filling != NULL || !refusable) && *buffer == NULL; i++) {
        if (buffers[i].out) continue;
        if (buffers[i].bytes != bytes) {
            free(buffers[i].memory);
            buffers[i].memory = aligned_alloc(64, bytes);
            buffers[i].bytes = buffers[i].memory == NULL ? 0 : bytes;
        }
        if (buffers[i].memory == NULL) break;
        buffers[i].out = true;
        signs.out++;
        *buffer = buffers[i].memory;
        *size = bytes;
    }
    pthread_mutex_unlock(&lock);
}

static int find_buffer(const uint8_t *memory) {
    for (int i = 0; i < BUFFERS + RESERVE; i++)
        if (buffers[i].memory == memory && buffers[i].out) return i;
    return -1;
}

void records_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&lock);
    int place = find_buffer(buffer);
    if (place < 0) signs.displaced_another = true; /* it is of whom we took CUPTI from: not to be touched */
    pthread_mutex_unlock(&lock);
    if (place < 0) return;
    void *some[AT_ONCE], *record = NULL;
    int result = valid ? CUPTI_SUCCESS : NO_MORE_RECORDS;
    while (result == CUPTI_SUCCESS) {
        int count = 0;
        while (count < AT_ONCE &&
               (result = cupti.ActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS)
            some[count++] = record;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < count && filling != NULL; i++) add_record(some[i]);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    signs.calls++;
    /* After one that is not complete the rest cannot be reached: it was one, or more, that nobody can count. */
    if (result == INVALID_KIND) signs.dropped += filling != NULL;
    else if (result != NO_MORE_RECORDS) signs.unreadable = result;
    buffers[place].out = false;
    signs.out--;
    pthread_mutex_unlock(&lock);
}

bool records_begin(uint64_t since_ns) {
    /* Large, but of zero pages that cost nothing before they are used. */
    batches = calloc(2, sizeof *batches);
    if (batches == NULL) return false;
    pthread_mutex_lock(&lock);
    filling = batches;
    since = since_ns;
    signs.other_clock = false;
    signs.unreadable = 0;
    pthread_mutex_unlock(&lock);
    return true;
}

void records_end(void) {
    pthread_mutex_lock(&lock);
    filling = NULL;
    signs.displaced_another = false;
    for (int i = 0; i < BUFFERS + RESERVE; i++) {
        if (buffers[i].out) continue;
        free(buffers[i].memory);
        buffers[i].memory = NULL;
        buffers[i].bytes = 0;
    }
    pthread_mutex_unlock(&lock);
    free(batches);
    batches = NULL;
}

const struct batch *records_take(size_t lost) {
    pthread_mutex_lock(&lock);
    struct batch *full = filling;
    signs.dropped += lost;
    if (full != NULL) {
        const uint32_t now = full->kernel_count + full->transfer_count;
        arrived = now > arrived / 2 ? now : arrived / 2;
        filling = full == batches ? batches + 1 : batches;
        filling->kernel_count = filling->transfer_count = 0;
        filling->devices = 0;
        full->names = name_count;
        full->dropped = signs.dropped;
    }
    pthread_mutex_unlock(&lock);
    return full;
}

struct signs records_signs(void) {
    pthread_mutex_lock(&lock);
    struct signs now = signs;
    pthread_mutex_unlock(&lock);
    return now;
}

/* Names never change once they are counted in a batch, so that no lock is needed for them. */
const char *records_name(uint32_t id, size_t *length) {
    *length = names[id].length;
    return names[id].text;
}

/* In a forked child, where CUPTI may still return buffers at its exit. */
void records_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* its owner may not exist here */
    filling = NULL;
}
