/* What every call begins with: hanging, failing, the library's state, the GPU's presence. */
#ifndef DOUBLE_CALLS_H
#define DOUBLE_CALLS_H

#include "nvml.h"

/* A GPU, or an instance of it (`mig` >= 0). `prefix` begins its keys: "gpu0", "gpu0.mig1". */
struct target {
    int gpu, mig;
    char prefix[24];
};

enum { MOST_GPUS = 16, MOST_INSTANCES = 8 };

nvml_return begin(const char *function);
nvml_return begin_device(nvml_device handle, const char *function, struct target *target);

/* Hangs and fails the way the scenario asks for this function, whatever the library's state. */
nvml_return begin_unchecked(const char *function);

/* nvmlInit and nvmlShutdown are counted. Handles are void once the count began anew. */
void open_library(void);
nvml_return close_library(void);

int gpu_count(void);
nvml_device make_handle(int gpu, int mig);
/* Same as begin_device, for a GPU that is looked up rather than given by its handle. */
nvml_return begin_lookup(int gpu, const char *function, nvml_device *handle);

#endif
