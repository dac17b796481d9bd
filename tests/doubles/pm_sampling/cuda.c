/* A libcuda.so.1 with what it takes to number a GPU by its UUID, driven by the scenario. */
#include "scenario.h"

#define API __attribute__((visibility("default")))

API int cuInit(unsigned flags)
{
	(void)flags;
	return (int)scenario_number("cuInit", 0);
}

API int cuDriverGetVersion(int *version)
{
	*version = (int)scenario_number("driver", 13000);
	return 0;
}

API int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < scenario_number("gpus", 1) ? 0 : 101;
}

/* 32 hexadecimal digits under `uuid`, for the first GPU; else every byte of GPU n is n + 1. */
API int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	char text[64];
	int given = !device && scenario_text("uuid", text, sizeof text);
	for (int i = 0; i < 16; i++) {
		unsigned byte = (unsigned)device + 1;
		if (given)
			sscanf(text + 2 * i, "%2x", &byte);
		uuid[i] = (unsigned char)byte;
	}
	return 0;
}
