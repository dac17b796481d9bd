"""Reading GPM, the counters that NVML gives to everyone from Hopper on: pairs of samples.

A sample and the metrics between two of them take 1.9 ms together on an H200. Two samples must be 100 ms
apart or more, and are not closer than `interval_s`.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.telemetry.nvidia.library import PERMANENT, raise_if_gone, reason
from roofmon.telemetry.nvidia.point import FIELDS, Metric, Peaks, Point, interpret

SHORTEST_S = 0.1
NEEDS_HOPPER = (
    "GPM needs Hopper or later: this GPU shows no live point of its own; "
    "trace its kernels with `roofmon run`"
)
_FIRST = "the first interval is not over yet"


def supported(gpu: Any) -> str | None:
    """Why a GPU has no GPM; None where it has. Raises NVMLError where the GPU or driver is gone."""
    try:
        return None if nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice else NEEDS_HOPPER
    except nvml.NVMLError as error:
        raise_if_gone(error)
        unsupported = error.value == nvml.NVML_ERROR_NOT_SUPPORTED
        return NEEDS_HOPPER if unsupported else f"no GPM: {reason(error)}"


class Gpm:
    """The GPM of one GPU, or of the MIG instance of it numbered `instance`.

    `why_not` says why there is none; it is set for good when the driver refuses. `peaks` may be replaced
    when a clock limit or the bus changes.
    """

    def __init__(
        self, gpu: Any, instance: int | None, peaks: Peaks, interval_s: float, why_not: str | None
    ) -> None:
        self.peaks = peaks
        self._interval_s = max(SHORTEST_S, interval_s)
        self.why_not = why_not
        self._take: Callable[[Any], object] = (
            (lambda sample: nvml.nvmlGpmSampleGet(gpu, sample))
            if instance is None
            else (lambda sample: nvml.nvmlGpmMigSampleGet(gpu, instance, sample))
        )
        self._samples: list[Any] = []
        self._taken = 0.0
        self._point: Point | None = None
        self._request: Any = None

    def read(self, clock_hz: float | None) -> Point:
        """The point over the time since the last pair. Raises NVMLError where the GPU or driver is gone."""
        if self.why_not is None:
            try:
                self._advance(clock_hz)
            except nvml.NVMLError as error:
                raise_if_gone(error)
                if error.value in PERMANENT:
                    self.why_not = f"no GPM: {reason(error)}"
                self._taken, self._point = 0.0, None
                return _without(f"no GPM: {reason(error)}")
        if self.why_not is not None:
            return _without(self.why_not)
        return self._point or _without(_FIRST)

    def close(self) -> None:
        """Free the samples; to be called while the driver still knows them."""
        for sample in self._samples:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _advance(self, clock_hz: float | None) -> None:
        now = time.monotonic()
        # A hair of tolerance: ticks on a grid of the same length come a little early half of the time.
        if self._taken and now - self._taken < max(SHORTEST_S, 0.9 * self._interval_s):
            return
        if not self._samples:
            self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
            self._request = _request()
        first = not self._taken
        self._samples.reverse()
        self._take(self._samples[1])
        self._taken = now
        if first:
            return
        request = self._request
        request.sample1, request.sample2 = self._samples
        nvml.nvmlGpmMetricsGet(request)
        read: dict[Metric, float] = {}
        failed: dict[Metric, str] = {}
        for metric, answer in zip(Metric, request.metrics, strict=False):
            if answer.nvmlReturn == nvml.NVML_SUCCESS:
                read[metric] = answer.value
            else:
                failed[metric] = reason(nvml.NVMLError(answer.nvmlReturn))
        self._point = interpret(read, failed, self.peaks, clock_hz)


def _request() -> Any:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(Metric)
    for place, metric in enumerate(Metric):
        request.metrics[place].metricId = metric
    return request


def _without(why: str) -> Point:
    return Point(missing=dict.fromkeys(FIELDS, why))
