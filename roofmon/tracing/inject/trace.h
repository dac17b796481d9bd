/* The parts of the injected library, and what it sends: see roofmon/tracing/trace_protocol.py. */
#ifndef ROOFMON_TRACE_H
#define ROOFMON_TRACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ROOFMON_VERSION
#define ROOFMON_VERSION "unknown"
#endif

enum {
    MAGIC = 0x4652,
    PROTOCOL_VERSION = 1,
    MESSAGE_HELLO = 1,
    MESSAGE_DROPS = 4,
    MESSAGE_KERNELS = 16,
    MESSAGE_NAME = 17,
    MESSAGE_DEVICE = 18,
    MESSAGE_TRANSFERS = 19,
    MESSAGE_STATE = 20,
    MAX_NAMES = 16384,
    MAX_NAME_BYTES = 16384,
    MAX_DEVICES = 64,
    FLAG_ASYNCHRONOUS = 1,
};

enum transfer_kind { OTHER, H2D, D2H, D2D, H2H, P2P, MEMSET };

struct kernel_record {
    uint64_t start_ns, end_ns;
    uint32_t name, stream, context, graph;
    uint32_t grid[3];
    uint16_t block[3];
    uint16_t device, registers, flags;
    uint32_t static_shared, dynamic_shared, shared_executed, correlation;
};

struct transfer_record {
    uint64_t start_ns, end_ns, bytes;
    uint32_t stream, context, graph, correlation;
    uint16_t device, peer;
    uint8_t kind, flags;
    uint16_t reserved;
};

_Static_assert(sizeof(struct kernel_record) == 72, "KERNEL_DTYPE");
_Static_assert(sizeof(struct transfer_record) == 48, "TRANSFER_DTYPE");

/* records.c: from CUPTI's buffers to records. CUPTI calls the two callbacks from any thread. */

enum {
    BATCH_KERNELS = 1 << 16,
    BATCH_TRANSFERS = 1 << 14,
    BUFFERS = 384, /* for CUPTI, 48 MiB at most; each thread that launches holds one or two */
};

struct batch {
    uint32_t kernel_count, transfer_count;
    uint32_t names;   /* known when it was taken */
    uint64_t devices; /* bit i: a record names device i */
    uint64_t dropped; /* records lost in this process so far */
    struct kernel_record kernels[BATCH_KERNELS];
    struct transfer_record transfers[BATCH_TRANSFERS];
};

struct signs { /* of how CUPTI does, and whether it still calls us */
    uint64_t calls, pongs;
    uint64_t dropped; /* records lost in this process so far */
    bool displaced_another;
    bool other_clock; /* records came with times of a clock that is not ours */
    int out;          /* buffers in CUPTI's hands; more than BUFFERS where it is an old one */
    int unreadable;   /* why a buffer could not be read, 0 while all could */
    uint32_t timeless; /* records without times since the last one with */
};

void records_requested(uint8_t **buffer, size_t *size, size_t *max_records);
void records_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
bool records_begin(uint64_t since_ns); /* false: no memory */
void records_end(void);
/* The records so far, valid until the next call, NULL while detached; `lost` more were lost on the way. */
const struct batch *records_take(size_t lost);
struct signs records_signs(void);
const char *records_name(uint32_t id, size_t *length);
void records_forked(void);

/* cupti.c: CUPTI's activity records. Called on the library's own thread only. */

enum state { IDLE, STARTING, TRACING, FAILED, YIELDED };

struct session {
    enum state state;
    bool changed;      /* and the monitors have not been told */
    int attempts;      /* to start */
    uint64_t since_ns; /* from when on kernels are seen */
    char reason[400];
    uint32_t version;
    char path[1024];
};

extern struct session session;
void session_start(void); /* ends in TRACING or FAILED, or in STARTING: to be called again */
size_t session_flush(bool forced); /* delivers finished records, by force the others too; how many are lost */
void session_watch(void);          /* with every periodic flush: looks whether CUPTI is still ours */
void session_stop(void);
bool session_worked(int result, const char *function); /* else says why not, and ends it */

/* find_cupti.c */

extern char cupti_places[4096]; /* $ROOFMON_CUPTI: files or folders, separated by colons */
bool cupti_found(void);

/* driver.c */

bool driver_started(void);
int driver_newest_cupti(void);
size_t device_json(unsigned index, char *out, size_t size);

/* monitors.c: who listens. Nothing here blocks. */

enum { MAX_MONITORS = 8 };

struct descriptor { /* programs close descriptors that are not theirs; the inode tells */
    int number;
    uint64_t inode;
};

struct descriptor descriptor_of(int number);
bool descriptor_is_ours(struct descriptor one);
void descriptor_close(struct descriptor *one);

extern pthread_mutex_t sockets_lock; /* held while descriptors come and go, never for long */
int monitors_count(void);
bool monitors_add(int number, uint64_t start_time);
void monitors_tell_state(void);
void monitors_distribute(const struct batch *batch);
bool monitors_serve(void); /* sends what fits, lets go of those that left; whether more is to be sent */
struct pollfd;
int monitors_poll(struct pollfd *entries);
void monitors_close(void);

extern uint64_t loaded_ns; /* when the driver loaded us: no kernel came before */
uint64_t now_ms(void);
uint64_t unix_ns(void);
size_t json_text(char *out, size_t size, const char *text);

#endif
