/* GPU performance monitoring: two samples of one device, and the metrics between them. */
#ifndef OLD_LIBRARY
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "scenario.h"

struct gpm_sample {
    struct target target;
    double taken_s; /* 0: not taken yet */
};

/* Metric numbers of NVML and the ends of their keys; the order is that of the numbers. */
static const struct {
    unsigned id;
    const char *key;
} metrics[] = {
    {1, "graphics_util"},     {2, "sm_util"},           {3, "sm_occupancy"},
    {4, "integer_util"},      {5, "any_tensor_util"},   {6, "dfma_tensor_util"},
    {7, "hmma_tensor_util"},  {8, "dmma_tensor_util"},  {9, "imma_tensor_util"},
    {10, "dram_bw_util"},     {11, "fp64_util"},        {12, "fp32_util"},
    {13, "fp16_util"},        {20, "pcie_tx_mib_s"},    {21, "pcie_rx_mib_s"},
    {60, "nvlink_rx_mib_s"},  {61, "nvlink_tx_mib_s"},
};

API nvml_return nvmlGpmQueryDeviceSupport(nvml_device handle, struct nvml_gpm_support *out)
{
    struct target target;
    unsigned long long supported = 0;
    nvml_return result = begin_device(handle, "nvmlGpmQueryDeviceSupport", &target);
    if (result)
        return result;
    if (out->version != 1)
        return NVML_VERSION_MISMATCH;
    scenario_integer(&supported, "gpu%d.gpm", target.gpu);
    out->supported = (unsigned)supported;
    return NVML_SUCCESS;
}

API nvml_return nvmlGpmSampleAlloc(struct gpm_sample **out)
{
    nvml_return result = begin("nvmlGpmSampleAlloc");
    if (result)
        return result;
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_MEMORY;
}

API nvml_return nvmlGpmSampleFree(struct gpm_sample *sample)
{
    nvml_return result = begin("nvmlGpmSampleFree");
    if (result == NVML_SUCCESS)
        free(sample);
    return result;
}

static nvml_return take(const struct target *target, struct gpm_sample *sample)
{
    unsigned long long supported = 0;
    struct timespec now;
    scenario_integer(&supported, "gpu%d.gpm", target->gpu);
    if (!supported)
        return NVML_NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *sample = (struct gpm_sample){*target, (double)now.tv_sec + (double)now.tv_nsec / 1e9};
    return NVML_SUCCESS;
}

API nvml_return nvmlGpmSampleGet(nvml_device handle, struct gpm_sample *sample)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlGpmSampleGet", &target);
    if (result)
        return result;
    return target.mig < 0 ? take(&target, sample) : NVML_INVALID_ARGUMENT;
}

/* `handle` is the GPU's: the instance is told by its number. */
API nvml_return nvmlGpmMigSampleGet(nvml_device handle, unsigned gpu_instance,
                                    struct gpm_sample *sample)
{
    struct target target;
    nvml_return result = begin_device(handle, "nvmlGpmMigSampleGet", &target);
    if (result)
        return result;
    for (int mig = 0; target.mig < 0 && mig < MOST_INSTANCES; mig++) {
        unsigned long long number;
        if (scenario_integer(&number, "gpu%d.mig%d.gpu_instance", target.gpu, mig) &&
            number == gpu_instance) {
            struct target instance;
            result = begin_device(make_handle(target.gpu, mig), "nvmlGpmMigSampleGet", &instance);
            return result ? result : take(&instance, sample);
        }
    }
    return NVML_INVALID_ARGUMENT;
}

static nvml_return metric(const struct target *target, unsigned id, double *value)
{
    for (size_t n = 0; n < sizeof metrics / sizeof *metrics; n++)
        if (metrics[n].id == id)
            return scenario_real(value, "%s.gpm.%s", target->prefix, metrics[n].key)
                       ? NVML_SUCCESS
                       : NVML_NOT_SUPPORTED;
    return NVML_NOT_SUPPORTED;
}

/* Refuses samples that make no interval: not taken, of two devices, or in the wrong order. */
API nvml_return nvmlGpmMetricsGet(struct nvml_gpm_request *request)
{
    nvml_return result = begin("nvmlGpmMetricsGet");
    if (result)
        return result;
    if (request->version != 1)
        return NVML_VERSION_MISMATCH;
    const struct gpm_sample *first = request->first, *second = request->second;
    if (!first || !second || first->taken_s == 0 || second->taken_s <= first->taken_s ||
        strcmp(first->target.prefix, second->target.prefix) != 0)
        return NVML_INVALID_ARGUMENT;
    for (unsigned n = 0; n < request->count; n++) {
        struct nvml_gpm_metric *out = &request->metrics[n];
        out->value = 0;
        out->result = metric(&second->target, out->id, &out->value);
    }
    return NVML_SUCCESS;
}
#endif
