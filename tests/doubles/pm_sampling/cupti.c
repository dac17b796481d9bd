/* A libcupti.so.13 with the binary interface of CUPTI 13.4's PM sampling, and a made-up device behind it.
 *
 * The device runs kernels in a fixed schedule that repeats every `period_ns` of the wall clock; each moves
 * its amounts evenly over its execution, so any sample can be computed. One process at a time has the
 * counters, as on a GPU. Parameters that do not fit, or come in the wrong order, are refused.
 */
#include "scenario.h"
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum {
	INVALID_PARAMETER = 1,
	INVALID_OPERATION = 7,
	OUT_OF_MEMORY = 8,
	INVALID_METRIC_NAME = 17,
	HARDWARE_BUSY = 26,
	NOT_SUPPORTED = 27,
	UNKNOWN = 999,
};
enum { LATE = 13, MOST_METRICS = 16, MOST_KERNELS = 16, NAME = 96 };

struct names {
	size_t count;
	char name[MOST_METRICS][NAME];
};

struct sample {
	uint64_t start, end;
	double values[MOST_METRICS];
};

struct image {
	size_t room, populated, completed;
	struct sample samples[];
};

static struct {
	int enabled, configured, started, stale, running, lock;
	struct names metrics;
	const void *config;
	size_t image_size;
	uint64_t interval, next; /* the start of the first sample that was not read */
	int fresh;
	int reads;
	double period, start[MOST_KERNELS], duration[MOST_KERNELS];
	double amount[MOST_KERNELS][MOST_METRICS], rate[MOST_METRICS];
	int kernels;
} device;

#define CHECK(function, size)                                                       \
	do {                                                                        \
		int code = (int)scenario_number("fail." function, 0);               \
		if (code)                                                           \
			return code;                                                \
		if (p->struct_size != (size))                                       \
			return INVALID_PARAMETER;                                   \
	} while (0)

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Whether a list of names `a,b` in the scenario holds this one. */
static int listed(const char *key, const char *name)
{
	char list[2048];
	if (!scenario_text(key, list, sizeof list))
		return 0;
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ","))
		if (!strcmp(word, name))
			return 1;
	return 0;
}

static int any_listed(const char *key)
{
	for (size_t i = 0; i < device.metrics.count; i++)
		if (listed(key, device.metrics.name[i]))
			return 1;
	return 0;
}

static void read_schedule(void)
{
	char key[160];
	device.period = scenario_number("period_ns", 1e6);
	for (device.kernels = 0; device.kernels < MOST_KERNELS; device.kernels++) {
		int k = device.kernels;
		snprintf(key, sizeof key, "kernel%d.start_ns", k);
		device.start[k] = scenario_number(key, -1);
		if (device.start[k] < 0)
			break;
		snprintf(key, sizeof key, "kernel%d.duration_ns", k);
		device.duration[k] = scenario_number(key, 1);
		for (size_t m = 0; m < device.metrics.count; m++) {
			snprintf(key, sizeof key, "kernel%d.%s", k, device.metrics.name[m]);
			device.amount[k][m] = scenario_number(key, 0);
		}
	}
	for (size_t m = 0; m < device.metrics.count; m++) {
		snprintf(key, sizeof key, "rate.%s", device.metrics.name[m]);
		device.rate[m] = scenario_number(key, 0);
	}
}

/* Launches of a kernel, and parts of one, within ns nanoseconds of the beginning of a period. */
static double launches_before(int k, double ns)
{
	double part = (ns - device.start[k]) / device.duration[k];
	return part < 0 ? 0 : part > 1 ? 1 : part;
}

static double counted(size_t metric, uint64_t start, uint64_t end)
{
	uint64_t period = (uint64_t)device.period;
	double whole = (double)(end / period) - (double)(start / period), total = 0;
	for (int k = 0; k < device.kernels; k++)
		total += device.amount[k][metric] *
			 (whole + launches_before(k, (double)(end % period)) -
			  launches_before(k, (double)(start % period)));
	return total + device.rate[metric] * (double)(end - start);
}

/* --- the profiler's host side: names and images ------------------------------------------- */

struct plain {
	size_t struct_size;
	void *priv;
};

API int cuptiProfilerInitialize(struct plain *p)
{
	CHECK("cuptiProfilerInitialize", 16);
	return 0;
}

API int cuptiProfilerDeInitialize(struct plain *p)
{
	CHECK("cuptiProfilerDeInitialize", 16);
	return 0;
}

struct chip_name {
	size_t struct_size;
	void *priv;
	size_t device_index;
	const char *name;
};

API int cuptiDeviceGetChipName(struct chip_name *p)
{
	static char name[64];
	CHECK("cuptiDeviceGetChipName", 32);
	if (p->device_index >= scenario_number("gpus", 1))
		return INVALID_PARAMETER;
	if (!scenario_text("chip", name, sizeof name))
		strcpy(name, "GH100");
	p->name = name;
	return 0;
}

struct host_initialize {
	size_t struct_size;
	void *priv;
	int type;
	const char *chip;
	const uint8_t *availability;
	struct names *host;
	const char *set;
};

API int cuptiProfilerHostInitialize(struct host_initialize *p)
{
	CHECK("cuptiProfilerHostInitialize", 56);
	if (p->type != 1 || !p->chip)
		return INVALID_PARAMETER;
	p->host = calloc(1, sizeof *p->host);
	return 0;
}

struct host_only {
	size_t struct_size;
	void *priv;
	struct names *host;
};

API int cuptiProfilerHostDeinitialize(struct host_only *p)
{
	CHECK("cuptiProfilerHostDeinitialize", 24);
	free(p->host);
	return 0;
}

struct add_metrics {
	size_t struct_size;
	void *priv;
	struct names *host;
	const char **names;
	size_t count;
};

API int cuptiProfilerHostConfigAddMetrics(struct add_metrics *p)
{
	CHECK("cuptiProfilerHostConfigAddMetrics", 40);
	for (size_t i = 0; i < p->count; i++) {
		if (listed("unknown", p->names[i]) || p->host->count == MOST_METRICS)
			return INVALID_PARAMETER; /* as the real one says */
		snprintf(p->host->name[p->host->count++], NAME, "%s", p->names[i]);
	}
	return 0;
}

struct config_size {
	size_t struct_size;
	void *priv;
	struct names *host;
	size_t size;
};

API int cuptiProfilerHostGetConfigImageSize(struct config_size *p)
{
	CHECK("cuptiProfilerHostGetConfigImageSize", 32);
	p->size = sizeof *p->host;
	return 0;
}

struct config_image {
	size_t struct_size;
	void *priv;
	struct names *host;
	size_t size;
	uint8_t *image;
};

API int cuptiProfilerHostGetConfigImage(struct config_image *p)
{
	CHECK("cuptiProfilerHostGetConfigImage", 40);
	if (p->size < sizeof *p->host)
		return INVALID_PARAMETER;
	memcpy(p->image, p->host, sizeof *p->host);
	return 0;
}

struct evaluate {
	size_t struct_size;
	void *priv;
	struct names *host;
	const struct image *image;
	size_t size, index;
	const char **names;
	size_t count;
	double *values;
};

API int cuptiProfilerHostEvaluateToGpuValues(struct evaluate *p)
{
	CHECK("cuptiProfilerHostEvaluateToGpuValues", 72);
	if (!p->host || p->index >= p->image->completed)
		return INVALID_PARAMETER;
	for (size_t i = 0; i < p->count; i++) {
		size_t m = 0;
		while (m < device.metrics.count && strcmp(device.metrics.name[m], p->names[i]))
			m++;
		if (m == device.metrics.count)
			return INVALID_METRIC_NAME;
		p->values[i] = p->image->samples[p->index].values[m];
	}
	return 0;
}

/* --- the device --------------------------------------------------------------------------- */

struct enable {
	size_t struct_size;
	void *priv;
	size_t device_index;
	void *object;
};

API int cuptiPmSamplingEnable(struct enable *p)
{
	char path[1024];
	CHECK("cuptiPmSamplingEnable", 32);
	if (device.enabled)
		return INVALID_OPERATION;
	device.lock = -1;
	if (scenario_text("lock", path, sizeof path)) {
		device.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (flock(device.lock, LOCK_EX | LOCK_NB)) {
			close(device.lock);
			return HARDWARE_BUSY;
		}
	}
	device.enabled = 1;
	device.configured = device.started = device.stale = device.running = 0;
	p->object = &device;
	return 0;
}

struct object_only {
	size_t struct_size;
	void *priv;
	void *object;
};

API int cuptiPmSamplingDisable(struct object_only *p)
{
	CHECK("cuptiPmSamplingDisable", 24);
	if (p->object != &device)
		return INVALID_PARAMETER;
	if (device.lock >= 0)
		close(device.lock);
	device.enabled = device.running = 0;
	return 0;
}

struct set_config {
	size_t struct_size;
	void *priv, *object;
	size_t size;
	const uint8_t *image;
	size_t buffer;
	uint64_t interval;
	int trigger, append;
};

API int cuptiPmSamplingSetConfig(struct set_config *p)
{
	CHECK("cuptiPmSamplingSetConfig", 64);
	if (p->object != &device || p->size != sizeof device.metrics || !p->buffer || device.running)
		return INVALID_PARAMETER;
	device.config = p->image; /* read again at the start, as the real one seems to */
	memcpy(&device.metrics, p->image, sizeof device.metrics);
	if (any_listed("multi_pass") || (p->trigger == 1 && scenario_number("no_time_trigger", 0)))
		return NOT_SUPPORTED;
	/* The system clock runs at 1.5 GHz. */
	device.interval = p->trigger == 1 ? p->interval : p->interval * 2 / 3;
	device.configured = 1;
	device.stale = device.started; /* the real one fails or crashes in the reads that follow */
	read_schedule();
	return 0;
}

API int cuptiPmSamplingStart(struct object_only *p)
{
	CHECK("cuptiPmSamplingStart", 24);
	if (!device.configured || device.running)
		return INVALID_OPERATION;
	memcpy(&device.metrics, device.config, sizeof device.metrics);
	device.running = device.fresh = device.started = 1;
	device.next = now_ns();
	return 0;
}

API int cuptiPmSamplingStop(struct object_only *p)
{
	CHECK("cuptiPmSamplingStop", 24);
	if (!device.running)
		return INVALID_OPERATION;
	device.running = 0;
	return 0;
}

struct data_size {
	size_t struct_size;
	void *priv, *object;
	const char **names;
	size_t count;
	uint32_t samples;
	size_t size;
};

API int cuptiPmSamplingGetCounterDataSize(struct data_size *p)
{
	CHECK("cuptiPmSamplingGetCounterDataSize", 56);
	p->size = device.image_size = sizeof(struct image) + p->samples * sizeof(struct sample);
	return 0;
}

struct image_initialize {
	size_t struct_size;
	void *priv, *object;
	size_t size;
	struct image *image;
};

API int cuptiPmSamplingCounterDataImageInitialize(struct image_initialize *p)
{
	CHECK("cuptiPmSamplingCounterDataImageInitialize", 40);
	if (p->size != device.image_size)
		return UNKNOWN; /* as the real one does with an image of a size before the last */
	p->image->room = (p->size - sizeof(struct image)) / sizeof(struct sample);
	p->image->populated = p->image->completed = 0;
	return 0;
}

struct __attribute__((packed)) decode {
	size_t struct_size;
	void *priv, *object;
	struct image *image;
	size_t size;
	int reason;
	uint8_t overflow;
};

API int cuptiPmSamplingDecodeData(struct decode *p)
{
	struct image *image = p->image;
	uint64_t now = now_ns();
	int never;
	CHECK("cuptiPmSamplingDecodeData", 45);
	if (device.stale)
		return UNKNOWN;
	if (!device.running || !image->room)
		return INVALID_OPERATION;
	if (++device.reads == (int)scenario_number("out_of_memory_at", 0))
		return OUT_OF_MEMORY;
	p->overflow = device.reads == (int)scenario_number("overflow_at", 0);
	for (uint64_t busy = now + (uint64_t)(1e6 * scenario_number("read_ms", 0)); now_ns() < busy;)
		continue;
	never = any_listed("never_complete");
	while (image->populated < image->room && device.next + device.interval <= now) {
		struct sample *sample = &image->samples[image->populated];
		sample->start = device.fresh ? 0 : device.next;
		sample->end = device.next + device.interval;
		for (size_t m = 0; m < device.metrics.count; m++)
			sample->values[m] = counted(m, device.next, sample->end);
		device.next = sample->end;
		device.fresh = 0;
		image->completed += !never;
		image->populated++;
	}
	p->reason = image->populated == image->room ? 1 : 2;
	/* The last of a full image are not complete yet, and never will be. */
	if (p->reason == 1 && image->completed)
		image->completed -= LATE;
	/* What most SMs counted for the first one is missing. */
	if (image->completed && device.reads > 1)
		for (size_t m = 0; m < device.metrics.count; m++)
			if (!strncmp(device.metrics.name[m], "sm", 2))
				image->samples[0].values[m] *= 0.03;
	return 0;
}

struct info {
	size_t struct_size;
	void *priv;
	const struct image *image;
	size_t size, total, populated, completed;
};

API int cuptiPmSamplingGetCounterDataInfo(struct info *p)
{
	CHECK("cuptiPmSamplingGetCounterDataInfo", 56);
	p->total = p->image->room;
	p->populated = p->image->populated;
	p->completed = p->image->completed;
	return 0;
}

struct sample_info {
	size_t struct_size;
	void *priv, *object;
	const struct image *image;
	size_t size, index;
	uint64_t start, end;
};

API int cuptiPmSamplingCounterDataGetSampleInfo(struct sample_info *p)
{
	CHECK("cuptiPmSamplingCounterDataGetSampleInfo", 64);
	if (p->index >= p->image->completed)
		return INVALID_PARAMETER;
	p->start = p->image->samples[p->index].start;
	p->end = p->image->samples[p->index].end;
	return 0;
}
