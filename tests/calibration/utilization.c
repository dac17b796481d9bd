/* What only a calibration asks NVML: who used a GPU lately, and whether NVLink joins two of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "scenario.h"

struct use {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
};

/* Reads `PID:TIME_US:PERCENT,…` of the key `use`, leaving out what is not after `since`. */
static unsigned parse(const char *text, unsigned long long since, struct use *out, unsigned room)
{
    unsigned count = 0;
    struct use one = {0};
    for (; sscanf(text, "%u:%llu:%u", &one.pid, &one.time_us, &one.sm) == 3; text++) {
        if (one.time_us > since) {
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

API nvml_return nvmlDeviceGetProcessUtilization(nvml_device handle, struct use *out,
                                                unsigned *count, unsigned long long since)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlDeviceGetProcessUtilization", &target);
    const char *text = result ? NULL : scenario_text("%s.use", target.prefix);
    if (!text)
        return result ? result : NVML_NOT_SUPPORTED;
    unsigned room = out ? *count : 0;
    *count = parse(text, since, out, room);
    if (*count == 0)
        return NVML_NOT_FOUND;
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* `nvlink_to` lists the numbers of the GPUs at the other ends. */
API nvml_return nvmlDeviceGetP2PStatus(nvml_device one, nvml_device other, unsigned index,
                                       unsigned *status)
{
    struct target from, to;
    nvml_return result = begin_device(one, "nvmlDeviceGetP2PStatus", &from);
    if (result == NVML_SUCCESS)
        result = begin_device(other, "nvmlDeviceGetP2PStatus", &to);
    if (result != NVML_SUCCESS)
        return result;
    char number[8];
    snprintf(number, sizeof number, "%d", to.gpu);
    const char *text = scenario_text("%s.nvlink_to", from.prefix);
    enum { OK = 0, NOT_SUPPORTED = 5, NVLINK = 2 };
    *status = index == NVLINK && text && strstr(text, number) ? OK : NOT_SUPPORTED;
    return NVML_SUCCESS;
}
