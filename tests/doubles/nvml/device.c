/* What a GPU is and does: one key of the scenario for each value; Not Supported without it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "scenario.h"

static nvml_return device_text(nvml_device handle, const char *function, const char *key, char *out,
                               unsigned room)
{
    struct target target;
    nvml_return result = begin_device(handle, function, &target);
    const char *text = result ? NULL : scenario_text("%s.%s", target.prefix, key);
    if (!text)
        return result ? result : NVML_NOT_SUPPORTED;
    return (unsigned)snprintf(out, room, "%s", text) < room ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

static nvml_return device_long(nvml_device handle, const char *function, const char *key,
                               unsigned long long *out)
{
    struct target target;
    nvml_return result = begin_device(handle, function, &target);
    if (result)
        return result;
    return scenario_integer(out, "%s.%s", target.prefix, key) ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

static nvml_return device_number(nvml_device handle, const char *function, const char *key,
                                 unsigned *out)
{
    unsigned long long value = 0;
    nvml_return result = device_long(handle, function, key, &value);
    if (result == NVML_SUCCESS)
        *out = (unsigned)value;
    return result;
}

#define TEXT(function, key)                                                                        \
    API nvml_return function(nvml_device handle, char *out, unsigned room)                         \
    {                                                                                              \
        return device_text(handle, #function, key, out, room);                                     \
    }
#define NUMBER(function, key)                                                                      \
    API nvml_return function(nvml_device handle, unsigned *out)                                    \
    {                                                                                              \
        return device_number(handle, #function, key, out);                                         \
    }
#define LONG_NUMBER(function, key)                                                                 \
    API nvml_return function(nvml_device handle, unsigned long long *out)                          \
    {                                                                                              \
        return device_long(handle, #function, key, out);                                           \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width")
LONG_NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
LONG_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "event_reasons")
#ifndef OLD_LIBRARY
LONG_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "event_reasons")
NUMBER(nvmlDeviceGetNumGpuCores, "cores")
NUMBER(nvmlDeviceGetMemoryBusWidth, "bus_width")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
#endif

API nvml_return nvmlDeviceGetIndex(nvml_device handle, unsigned *index)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetIndex", &target);
    if (result == NVML_SUCCESS)
        *index = (unsigned)(target.mig < 0 ? target.gpu : target.mig);
    return result;
}

API nvml_return nvmlDeviceGetPciInfo_v3(nvml_device handle, struct nvml_pci *pci)
{
    char text[32];
    nvml_return result = device_text(handle, "nvmlDeviceGetPciInfo_v3", "pci", text, sizeof text);
    if (result)
        return result;
    memset(pci, 0, sizeof *pci);
    if (sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return NVML_NOT_SUPPORTED;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", text);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0",
             pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return NVML_SUCCESS;
}

API nvml_return nvmlDeviceGetCudaComputeCapability(nvml_device handle, int *major, int *minor)
{
    char text[16];
    nvml_return result = device_text(handle, "nvmlDeviceGetCudaComputeCapability",
                                     "compute_capability", text, sizeof text);
    if (result == NVML_SUCCESS && sscanf(text, "%d.%d", major, minor) != 2)
        return NVML_NOT_SUPPORTED;
    return result;
}

static const char *const clock_keys[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
static const char *const max_clock_keys[] = {
    "max_graphics_clock", "max_sm_clock", "max_mem_clock", "max_video_clock"};

API nvml_return nvmlDeviceGetClockInfo(nvml_device handle, unsigned type, unsigned *mhz)
{
    return type > 3 ? NVML_INVALID_ARGUMENT
                    : device_number(handle, "nvmlDeviceGetClockInfo", clock_keys[type], mhz);
}

API nvml_return nvmlDeviceGetMaxClockInfo(nvml_device handle, unsigned type, unsigned *mhz)
{
    return type > 3 ? NVML_INVALID_ARGUMENT
                    : device_number(handle, "nvmlDeviceGetMaxClockInfo", max_clock_keys[type], mhz);
}

API nvml_return nvmlDeviceGetClock(nvml_device handle, unsigned type, unsigned id, unsigned *mhz)
{
    return type > 3 || id != 0 ? NVML_INVALID_ARGUMENT
                               : device_number(handle, "nvmlDeviceGetClock", clock_keys[type], mhz);
}

API nvml_return nvmlDeviceGetTemperature(nvml_device handle, unsigned sensor, unsigned *celsius)
{
    return sensor ? NVML_INVALID_ARGUMENT
                  : device_number(handle, "nvmlDeviceGetTemperature", "temperature", celsius);
}

#ifndef OLD_LIBRARY
API nvml_return nvmlDeviceGetTemperatureV(nvml_device handle, struct nvml_temperature *out)
{
    if (out->version != NVML_TEMPERATURE_V1)
        return NVML_VERSION_MISMATCH;
    unsigned celsius = 0;
    nvml_return result =
        device_number(handle, "nvmlDeviceGetTemperatureV", "temperature", &celsius);
    out->celsius = (int)celsius;
    return result;
}
#endif

/* Values of several keys in one call: Not Supported if the first is not there. */
static nvml_return several(nvml_device handle, const char *function, int count,
                           const char *const keys[], unsigned long long values[])
{
    struct target target;
    nvml_return result = begin_device(handle, function, &target);
    for (int n = 0; !result && n < count; n++) {
        values[n] = 0;
        if (!scenario_integer(&values[n], "%s.%s", target.prefix, keys[n]) && n == 0)
            result = NVML_NOT_SUPPORTED;
    }
    return result;
}

API nvml_return nvmlDeviceGetUtilizationRates(nvml_device handle, struct nvml_utilization *out)
{
    static const char *const keys[] = {"gpu_busy", "memory_busy"};
    unsigned long long values[2];
    nvml_return result = several(handle, "nvmlDeviceGetUtilizationRates", 2, keys, values);
    if (result == NVML_SUCCESS)
        *out = (struct nvml_utilization){(unsigned)values[0], (unsigned)values[1]};
    return result;
}

API nvml_return nvmlDeviceGetEccMode(nvml_device handle, unsigned *now, unsigned *pending)
{
    nvml_return result = device_number(handle, "nvmlDeviceGetEccMode", "ecc", now);
    *pending = *now;
    return result;
}

static const char *const memory_keys[] = {"memory_total", "memory_used", "memory_reserved"};

/* A first version has no place for what the driver holds back: it counts it as used. */
API nvml_return nvmlDeviceGetMemoryInfo(nvml_device handle, struct nvml_memory *out)
{
    unsigned long long values[3];
    nvml_return result = several(handle, "nvmlDeviceGetMemoryInfo", 3, memory_keys, values);
    if (result == NVML_SUCCESS) {
        unsigned long long used = values[1] + values[2];
        *out = (struct nvml_memory){values[0], values[0] - used, used};
    }
    return result;
}

#ifndef OLD_LIBRARY
API nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device handle, struct nvml_memory_v2 *out)
{
    if (out->version != NVML_MEMORY_V2)
        return NVML_VERSION_MISMATCH;
    unsigned long long values[3];
    nvml_return result = several(handle, "nvmlDeviceGetMemoryInfo_v2", 3, memory_keys, values);
    if (result == NVML_SUCCESS) {
        out->total = values[0];
        out->used = values[1];
        out->reserved = values[2];
        out->free = values[0] - values[1] - values[2];
    }
    return result;
}
#endif

API nvml_return nvmlDeviceGetPcieThroughput(nvml_device handle, unsigned counter, unsigned *out)
{
    static const char *const keys[] = {"pcie_tx_kib_s", "pcie_rx_kib_s"};
    return counter > 1 ? NVML_INVALID_ARGUMENT
                       : device_number(handle, "nvmlDeviceGetPcieThroughput", keys[counter], out);
}

/* Links below `nvlinks` are up; there are 18, as on Hopper. */
API nvml_return nvmlDeviceGetNvLinkState(nvml_device handle, unsigned link, unsigned *active)
{
    unsigned links = 0;
    nvml_return result = device_number(handle, "nvmlDeviceGetNvLinkState", "nvlinks", &links);
    *active = link < links;
    return result == NVML_SUCCESS && link >= 18 ? NVML_INVALID_ARGUMENT : result;
}

API nvml_return nvmlDeviceGetFieldValues(nvml_device handle, int count, struct nvml_field *fields)
{
    enum { UNSIGNED_LONG_LONG = 3 };
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetFieldValues", &target);
    for (int n = 0; !result && n < count; n++) {
        struct nvml_field *field = &fields[n];
        field->type = UNSIGNED_LONG_LONG;
        field->result = NVML_SUCCESS;
        if (!scenario_integer(&field->value.integer, "%s.field.%u", target.prefix, field->id))
            field->result = NVML_NOT_SUPPORTED;
    }
    return result;
}
