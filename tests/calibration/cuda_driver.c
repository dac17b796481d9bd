/* A `libcuda.so.1` as far as it is asked before CuPy is loaded, told by the environment what to say. */
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags)
{
    return flags ? 1 : number("ROOFMON_CUDA_INIT", 0);
}

int cuDriverGetVersion(int *version)
{
    *version = number("ROOFMON_CUDA_VERSION", 13000);
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < number("ROOFMON_CUDA_DEVICES", 1) ? 0 : 101;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &number;
    return device ? 101 : number("ROOFMON_CUDA_CONTEXT", 0);
}

/* The digits of CUDA_VISIBLE_DEVICES, as the driver shows the device that was asked for. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    const char *text = getenv("ROOFMON_CUDA_UUID");
    if (!text)
        text = getenv("CUDA_VISIBLE_DEVICES");
    if (device || !text)
        return 101;
    memset(uuid, 0, 16);
    text = strchr(text, '-') + 1;
    for (int digit = 0; *text && digit < 32; text++) {
        if (*text == '-')
            continue;
        int value = *text <= '9' ? *text - '0' : (*text | 32) - 'a' + 10;
        uuid[digit / 2] |= (unsigned char)(value << (digit % 2 ? 0 : 4));
        digit++;
    }
    return 0;
}
