/* Who shares a GPU: processes on it, and the instances (MIG) that it is cut into. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "scenario.h"

/* Reads `PID:BYTES,PID:n/a,…`; returns how many there are, and fills up to `room`. */
static unsigned parse(const char *text, const struct target *target, struct nvml_process *out,
                      unsigned room)
{
    unsigned count = 0;
    unsigned long long gpu_instance = 0xFFFFFFFF, compute_instance = 0xFFFFFFFF;
    scenario_integer(&gpu_instance, "%s.gpu_instance", target->prefix);
    scenario_integer(&compute_instance, "%s.compute_instance", target->prefix);
    while (*text) {
        char *end;
        unsigned pid = (unsigned)strtoul(text, &end, 10);
        if (end == text)
            break;
        text = *end == ':' ? end + 1 : end;
        unsigned long long bytes = strtoull(text, &end, 10);
        if (end == text)
            bytes = ~0ull; /* not available */
        if (count < room)
            out[count] = (struct nvml_process){pid, bytes, (unsigned)gpu_instance,
                                               (unsigned)compute_instance};
        count++;
        text = end + strcspn(end, ",");
        text += *text == ',';
    }
    return count;
}

static nvml_return processes(nvml_device handle, const char *function, const char *key,
                             unsigned *count, struct nvml_process *out)
{
    struct target target;
    nvml_return result = begin_device(handle, function, &target);
    const char *text = result ? NULL : scenario_text("%s.%s", target.prefix, key);
    if (!text)
        return result ? result : NVML_NOT_SUPPORTED;
    unsigned room = out ? *count : 0;
    *count = parse(text, &target, out, room);
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESSES(function, key)                                                                   \
    API nvml_return function(nvml_device handle, unsigned *count, struct nvml_process *out)        \
    {                                                                                              \
        return processes(handle, #function, key, count, out);                                      \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "processes")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_processes")
#ifndef OLD_LIBRARY
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "processes")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes")
#endif

/* Reads `PID:TIME_US:PERCENT,…` of the key `use`, leaving out what is not after `since`. Time 0 is now. */
static unsigned parse_use(const char *text, unsigned long long since,
                          struct nvml_process_utilization *out, unsigned room)
{
    unsigned count = 0;
    struct nvml_process_utilization one = {0};
    for (; sscanf(text, "%u:%llu:%u", &one.pid, &one.time_us, &one.sm) == 3; text++) {
        if (one.time_us == 0 || one.time_us > since) {
            if (count < room)
                out[count] = one;
            count++;
        }
        text += strcspn(text, ",");
        if (!*text)
            break;
    }
    return count;
}

API nvml_return nvmlDeviceGetProcessUtilization(nvml_device handle,
                                                struct nvml_process_utilization *out,
                                                unsigned *count, unsigned long long since)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetProcessUtilization", &target);
    const char *text = result ? NULL : scenario_text("%s.use", target.prefix);
    if (!text)
        return result ? result : NVML_NOT_SUPPORTED;
    unsigned room = out ? *count : 0;
    *count = parse_use(text, since, out, room);
    if (*count == 0)
        return NVML_NOT_FOUND;
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvml_return nvmlDeviceGetMigMode(nvml_device handle, unsigned *now, unsigned *pending)
{
    struct target target;
    unsigned long long mode = 0;
    nvml_return result = begin_device(handle, "nvmlDeviceGetMigMode", &target);
    if (result)
        return result;
    if (!scenario_integer(&mode, "%s.mig", target.prefix))
        return NVML_NOT_SUPPORTED;
    *now = *pending = (unsigned)mode;
    return NVML_SUCCESS;
}

API nvml_return nvmlDeviceGetMaxMigDeviceCount(nvml_device handle, unsigned *count)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetMaxMigDeviceCount", &target);
    if (result == NVML_SUCCESS)
        *count = scenario_text("%s.mig", target.prefix) ? MOST_INSTANCES - 1 : 0;
    return result;
}

API nvml_return nvmlDeviceGetMigDeviceHandleByIndex(nvml_device handle, unsigned index,
                                                    nvml_device *out)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetMigDeviceHandleByIndex", &target);
    if (result)
        return result;
    if (target.mig >= 0 || index >= MOST_INSTANCES)
        return NVML_INVALID_ARGUMENT;
    if (!scenario_text("%s.mig%u.uuid", target.prefix, index))
        return NVML_NOT_FOUND;
    *out = make_handle(target.gpu, (int)index);
    return NVML_SUCCESS;
}

API nvml_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device handle, nvml_device *out)
{
    struct target target;
    nvml_return result =
        begin_device(handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &target);
    if (result)
        return result;
    if (target.mig < 0)
        return NVML_INVALID_ARGUMENT;
    *out = make_handle(target.gpu, -1);
    return NVML_SUCCESS;
}

API nvml_return nvmlDeviceIsMigDeviceHandle(nvml_device handle, unsigned *is)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceIsMigDeviceHandle", &target);
    if (result == NVML_SUCCESS)
        *is = target.mig >= 0;
    return result;
}

static nvml_return instance_number(nvml_device handle, const char *function, const char *key,
                                   unsigned *out)
{
    struct target target;
    unsigned long long value = 0;
    nvml_return result = begin_device(handle, function, &target);
    if (result)
        return result;
    if (target.mig < 0 || !scenario_integer(&value, "%s.%s", target.prefix, key))
        return NVML_NOT_SUPPORTED;
    *out = (unsigned)value;
    return NVML_SUCCESS;
}

API nvml_return nvmlDeviceGetGpuInstanceId(nvml_device handle, unsigned *out)
{
    return instance_number(handle, "nvmlDeviceGetGpuInstanceId", "gpu_instance", out);
}

API nvml_return nvmlDeviceGetComputeInstanceId(nvml_device handle, unsigned *out)
{
    return instance_number(handle, "nvmlDeviceGetComputeInstanceId", "compute_instance", out);
}

/* Answers for instances only, as the library does. */
API nvml_return nvmlDeviceGetAttributes_v2(nvml_device handle, struct nvml_attributes *out)
{
    struct target target;
    unsigned long long value = 0;
    nvml_return result = begin_device(handle, "nvmlDeviceGetAttributes_v2", &target);
    if (result)
        return result;
    if (target.mig < 0 || !scenario_integer(&value, "%s.multiprocessors", target.prefix))
        return NVML_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->multiprocessors = (unsigned)value;
    scenario_integer(&value, "%s.gpu_slices", target.prefix);
    out->gpu_instance_slices = (unsigned)value;
    scenario_integer(&value, "%s.compute_slices", target.prefix);
    out->compute_instance_slices = (unsigned)value;
    if (scenario_integer(&value, "%s.memory_total", target.prefix))
        out->memory_mib = value >> 20;
    return NVML_SUCCESS;
}
