/* The library itself: opening it, versions, and finding GPUs. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "calls.h"
#include "scenario.h"

static nvml_return init(void)
{
    nvml_return result = begin_unchecked("nvmlInit");
    if (result)
        return result;
    if (!scenario_text("gpus"))
        return NVML_DRIVER_NOT_LOADED;
    open_library();
    return NVML_SUCCESS;
}

API nvml_return nvmlInit_v2(void) { return init(); }

API nvml_return nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return init();
}

API nvml_return nvmlShutdown(void)
{
    nvml_return result = begin_unchecked("nvmlShutdown");
    return result ? result : close_library();
}

API const char *nvmlErrorString(nvml_return result)
{
    static const char *const text[] = {
        [NVML_SUCCESS] = "The operation was successful",
        [NVML_UNINITIALIZED] = "Uninitialized",
        [NVML_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_NOT_SUPPORTED] = "Not Supported",
        [NVML_NOT_FOUND] = "Not Found",
        [NVML_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_GPU_IS_LOST] = "GPU is lost",
        [NVML_MEMORY] = "Insufficient Memory",
        [NVML_VERSION_MISMATCH] = "Argument Version Mismatch",
    };
    const char *found = result < sizeof text / sizeof *text ? text[result] : NULL;
    return found ? found : "Unknown Error";
}

static nvml_return system_text(const char *function, const char *key, char *out, unsigned room)
{
    nvml_return result = begin(function);
    const char *text = scenario_text("%s", key);
    if (result)
        return result;
    if (!text)
        return NVML_NOT_SUPPORTED;
    return (unsigned)snprintf(out, room, "%s", text) < room ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

API nvml_return nvmlSystemGetDriverVersion(char *out, unsigned room)
{
    return system_text("nvmlSystemGetDriverVersion", "driver", out, room);
}

API nvml_return nvmlSystemGetNVMLVersion(char *out, unsigned room)
{
    return system_text("nvmlSystemGetNVMLVersion", "nvml", out, room);
}

static nvml_return cuda_version(const char *function, int *out)
{
    unsigned long long value = 0;
    nvml_return result = begin(function);
    if (result)
        return result;
    if (!scenario_integer(&value, "cuda"))
        return NVML_NOT_SUPPORTED;
    *out = (int)value;
    return NVML_SUCCESS;
}

API nvml_return nvmlSystemGetCudaDriverVersion(int *out)
{
    return cuda_version("nvmlSystemGetCudaDriverVersion", out);
}

API nvml_return nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    return cuda_version("nvmlSystemGetCudaDriverVersion_v2", out);
}

API nvml_return nvmlDeviceGetCount_v2(unsigned *count)
{
    nvml_return result = begin("nvmlDeviceGetCount_v2");
    if (result == NVML_SUCCESS)
        *count = (unsigned)gpu_count();
    return result;
}

API nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *handle)
{
    nvml_return result = begin("nvmlDeviceGetHandleByIndex_v2");
    if (result)
        return result;
    if (index >= (unsigned)gpu_count())
        return NVML_INVALID_ARGUMENT;
    return begin_lookup((int)index, "nvmlDeviceGetHandleByIndex_v2", handle);
}

API nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *handle)
{
    nvml_return result = begin("nvmlDeviceGetHandleByPciBusId_v2");
    for (int gpu = 0; !result && gpu < gpu_count(); gpu++) {
        const char *found = scenario_text("gpu%d.pci", gpu);
        if (found && strcasecmp(found, bus_id) == 0)
            return begin_lookup(gpu, "nvmlDeviceGetHandleByPciBusId_v2", handle);
    }
    return result ? result : NVML_NOT_FOUND;
}

API nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *handle)
{
    const char *function = "nvmlDeviceGetHandleByUUID";
    nvml_return result = begin(function);
    for (int gpu = 0; !result && gpu < gpu_count(); gpu++) {
        const char *found = scenario_text("gpu%d.uuid", gpu);
        if (found && strcmp(found, uuid) == 0)
            return begin_lookup(gpu, function, handle);
        for (int mig = 0; mig < MOST_INSTANCES; mig++) {
            found = scenario_text("gpu%d.mig%d.uuid", gpu, mig);
            if (!found || strcmp(found, uuid) != 0)
                continue;
            result = begin_lookup(gpu, function, handle);
            if (result == NVML_SUCCESS)
                *handle = make_handle(gpu, mig);
            return result;
        }
    }
    return result ? result : NVML_NOT_FOUND;
}
