/* The stand-in driver: what CUDA would do with launches, without a GPU. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdint.h>

enum launch_kind { KERNEL, COPY, PEER_COPY, SET };

struct launch {
    enum launch_kind kind;
    const char *name; /* of a kernel */
    uint32_t device, context, stream, graph, correlation;
    uint64_t start, end; /* ns, on the scale of CLOCK_REALTIME */
    uint64_t bytes;
    int copy; /* CUPTI's number for its direction */
    int grid[3], block[3];
};

int cuInit(unsigned flags);

/* Gives the work a time and, unless it has one, a correlation; then tells the profiler of it. */
void driver_launch(struct launch *launch);

/* How the profiler, cupti.c, listens. */
void driver_listen(void (*listener)(const struct launch *));

/* Settings: from $CUDA_DOUBLE ("key=1,other=2"), and from the program while it runs. 0 where not set. */
void driver_set(const char *key, long value);
long driver_get(const char *key);

uint64_t driver_now(void);

#endif
