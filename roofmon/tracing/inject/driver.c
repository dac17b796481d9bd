/* What the CUDA driver tells, asked through the copy that the program has loaded; needs no context. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cupti_types.h"
#include "trace.h"

static void *driver_function(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *function = driver ? dlsym(driver, name) : NULL;
    if (driver != NULL) dlclose(driver);
    return function;
}

#define DRIVER_FUNCTION(name, parameters) \
    int(*name) parameters;                \
    *(void **)&name = driver_function(#name)

/* CUPTI is left alone until cuInit, in another thread, is over. */
bool driver_started(void) {
    int devices;
    DRIVER_FUNCTION(cuDeviceGetCount, (int *));
    return cuDeviceGetCount == NULL || cuDeviceGetCount(&devices) != DRIVER_NOT_INITIALIZED;
}

/* The newest CUPTI that the driver can serve. */
int driver_newest_cupti(void) {
    int version = 13000;
    DRIVER_FUNCTION(cuDriverGetVersion, (int *));
    if (cuDriverGetVersion != NULL) cuDriverGetVersion(&version);
    return version >= 13000 ? 13 : 12;
}

/* Called between records, not in a callback. */
size_t device_json(unsigned index, char *out, size_t size) {
    static const struct {
        const char *name;
        int attribute;
    } FACTS[] = {{"sm_count", 16},         {"warp_size", 10},        {"max_threads_per_sm", 39},
                 {"shared_per_sm", 81},    {"registers_per_sm", 82}, {"shared_per_block_optin", 97},
                 {"max_blocks_per_sm", 106}, {"shared_reserved_per_block", 111}};
    DRIVER_FUNCTION(cuDeviceGet, (int *, int));
    DRIVER_FUNCTION(cuDeviceGetName, (char *, int, int));
    DRIVER_FUNCTION(cuDeviceGetUuid_v2, (unsigned char *, int));
    DRIVER_FUNCTION(cuDeviceGetAttribute, (int *, int, int));
    unsigned char uuid[16];
    char name[256] = "", text[600] = "", shown[64] = "";
    int device = 0, major = 0, minor = 0, value;
    bool known = cuDeviceGet && cuDeviceGetName && cuDeviceGetUuid_v2 && cuDeviceGetAttribute &&
                 cuDeviceGet(&device, (int)index) == 0;
    if (known && cuDeviceGetName(name, sizeof name - 1, device) == 0) json_text(text, sizeof text, name);
    if (known && cuDeviceGetUuid_v2(uuid, device) == 0) {
        char *at = shown + sprintf(shown, strstr(name, " MIG ") ? "MIG-" : "GPU-");
        for (int i = 0; i < 16; i++)
            at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
    if (known && cuDeviceGetAttribute(&major, 75, device) == 0) cuDeviceGetAttribute(&minor, 76, device);
    const char *begin = "{\"index\":%u,\"uuid\":\"%s\",\"name\":\"%s\",\"compute_capability\":[%d,%d]";
    size_t used = (size_t)snprintf(out, size, begin, index, shown, text, major, minor);
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++) {
        if (!known || cuDeviceGetAttribute(&value, FACTS[i].attribute, device) != 0) value = 0;
        used += (size_t)snprintf(out + used, size - used, ",\"%s\":%d", FACTS[i].name, value);
    }
    return used + (size_t)snprintf(out + used, size - used, "}");
}
