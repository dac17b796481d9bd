/* What is needed of CUPTI's binary interface, so that compiling needs no headers of NVIDIA.
 *
 * The beginnings of four records. CUPTI appends fields from version to version; these sit at the same
 * offsets in all structures from CUPTI 12.0 to 13.5 (kernel versions 9 to 13, copies 5 to 7, peer copies 4,
 * fills 4 and 5), which was compared with the headers of 12.0, 12.4, 12.9, 13.0, 13.4 and 13.5. */
#ifndef ROOFMON_CUPTI_TYPES_H
#define ROOFMON_CUPTI_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum {
    CUPTI_SUCCESS = 0,
    NO_MORE_RECORDS = 12,
    NOT_INITIALIZED = 15,
    INVALID_KIND = 21, /* also: a record that is not complete */
    FLUSH_FORCED = 1,
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_DEVICE = 8,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_MEMCPY2 = 22, /* between devices */
    ATTRIBUTE_DEVICE_BUFFER_SIZE = 0,
    ATTRIBUTE_DEVICE_BUFFER_POOL_LIMIT = 2,
    VERSION_OLDEST = 18,         /* 12.0 */
    VERSION_REFUSABLE = 27,      /* 12.9: those before crash where they are given no buffer */
    VERSION_PER_THREAD = 130000, /* 13.0: by default each thread has an activity buffer of its own */
    VERSION_TOO_NEW = 140000,
    COPY_HTOD = 1,
    COPY_DTOH = 2,
    COPY_HTOA = 3,
    COPY_ATOH = 4,
    COPY_DTOD = 8, /* 5 to 7: between device memory and arrays */
    COPY_HTOH = 9,
    COPY_PTOP = 10,
    RECORD_ASYNCHRONOUS = 1,
    DRIVER_NOT_INITIALIZED = 3, /* of CUDA's driver, not of CUPTI */
};

struct cupti_kernel {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t global_cache[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total;
    uint32_t correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch[4];
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shared_limit;
    uint32_t graph;
};

struct cupti_memcpy {
    uint32_t kind;
    uint8_t copy, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct cupti_memcpy2 {
    uint32_t kind;
    uint8_t copy, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, from_device, from_context, to_device, to_context, correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

struct cupti_memset {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory_kind;
    uint32_t pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
};

#define AT(type, field, offset) \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
AT(cupti_kernel, registers, 6);
AT(cupti_kernel, start, 16);
AT(cupti_kernel, device, 40);
AT(cupti_kernel, grid, 52);
AT(cupti_kernel, static_shared, 76);
AT(cupti_kernel, correlation, 92);
AT(cupti_kernel, name, 104);
AT(cupti_kernel, shared_executed, 140);
AT(cupti_kernel, graph, 156);
AT(cupti_memcpy, bytes, 8);
AT(cupti_memcpy, device, 32);
AT(cupti_memcpy, graph, 72);
AT(cupti_memcpy2, from_device, 44);
AT(cupti_memcpy2, to_device, 52);
AT(cupti_memcpy2, correlation, 60);
AT(cupti_memcpy2, graph, 80);
AT(cupti_memset, bytes, 8);
AT(cupti_memset, flags, 48);
AT(cupti_memset, graph, 72);
#undef AT

typedef void (*cupti_requested)(uint8_t **, size_t *, size_t *);
typedef void (*cupti_completed)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef uint64_t (*cupti_clock)(void);

/* X(name without the leading "cupti", parameters) */
#define CUPTI_FUNCTIONS(X)                                                \
    X(GetVersion, (uint32_t *))                                           \
    X(GetResultString, (int, const char **))                              \
    X(GetTimestamp, (uint64_t *))                                         \
    X(ActivityRegisterCallbacks, (cupti_requested, cupti_completed))      \
    X(ActivityRegisterTimestampCallback, (cupti_clock))                   \
    X(ActivitySetAttribute, (int, size_t *, void *))                      \
    X(ActivityEnable, (int))                                              \
    X(ActivityEnableAndDump, (int))                                       \
    X(ActivityDisable, (int))                                             \
    X(ActivityFlushAll, (uint32_t))                                       \
    X(ActivityGetNextRecord, (uint8_t *, size_t, void **))                \
    X(ActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))

extern struct cupti {
#define FIELD(name, parameters) int(*name) parameters;
    CUPTI_FUNCTIONS(FIELD)
#undef FIELD
} cupti;

/* Calls a function of CUPTI; whether it worked, else `session` says which one did not. */
#define CUPTI_WORKED(name, ...) session_worked(cupti.name(__VA_ARGS__), "cupti" #name)

#endif
