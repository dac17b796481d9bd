/* Whether NVLink joins two GPUs. */
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "scenario.h"

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
