/* The part of NVML's binary interface that the double answers: layouts as callers pass them. */
#ifndef DOUBLE_NVML_H
#define DOUBLE_NVML_H

#define API __attribute__((visibility("default")))

typedef unsigned nvml_return;
enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_GPU_IS_LOST = 15,
    NVML_MEMORY = 20,
    NVML_VERSION_MISMATCH = 25,
};

/* Opaque to callers. Here: a number that says which GPU or instance, and since which nvmlInit. */
typedef void *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

#define NVML_MEMORY_V2 0x02000028u
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_utilization {
    unsigned gpu, memory;
};

#define NVML_TEMPERATURE_V1 0x0100000Cu
struct nvml_temperature {
    unsigned version, sensor;
    int celsius;
};

struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
};

struct nvml_process {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

struct nvml_process_utilization {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
};

struct nvml_field {
    unsigned id, scope;
    long long timestamp_us, latency_us;
    unsigned type;
    nvml_return result;
    union {
        double real;
        unsigned long long integer;
    } value;
};

struct nvml_gpm_metric {
    unsigned id;
    nvml_return result;
    double value;
    const char *short_name, *long_name, *unit;
};

struct nvml_gpm_request {
    unsigned version, count;
    struct gpm_sample *first, *second;
    struct nvml_gpm_metric metrics[];
};

struct nvml_gpm_support {
    unsigned version, supported;
};

#endif
