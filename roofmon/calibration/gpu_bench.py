"""Measuring one probe on this GPU: working sets, time limits, the resulting ceiling with its conditions."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from roofmon.calibration import gpu_sizes as sizes
from roofmon.calibration.ceilings import judged, to_ceiling, widened
from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.gpu_meter import Meter, time_of_counted_byte
from roofmon.calibration.gpu_results import check_sink, check_stream
from roofmon.calibration.gpu_sustained import KeptShapes, SustainedGemm
from roofmon.calibration.gpu_timer import EventTimer
from roofmon.calibration.gpu_transfer import Transfer
from roofmon.calibration.probe import Mode, Probe
from roofmon.calibration.run import NotApplicableError
from roofmon.calibration.timing import HALF_WIDTH, Rule, Timing, time_launches
from roofmon.model.roofline import REQUESTED, Ceiling, Roofline


@dataclass(frozen=True)
class Caps:
    """Seconds that one probe may take: of `tensor`, those that are counted, before a power cap swings."""

    bandwidth: float
    vector: float
    tensor: float


CAPS: Mapping[Mode, Caps] = {
    "quick": Caps(bandwidth=0.12, vector=0.15, tensor=0.2),
    "full": Caps(bandwidth=0.12, vector=0.15, tensor=0.2),
    "thorough": Caps(bandwidth=0.8, vector=0.8, tensor=0.3),
}

_SAMPLES = 20  # ranks 6 to 15 bound the median
_TRANSFER_SAMPLE_S, _TRANSFER_COUNTS = 0.005, 2
_WARM_UP_BYTES = 2**28
_WARM_UP_S = 0.5
_WARM_UP_STEP_S = 0.01
_SINK_BYTES = 64


class GpuBench:
    """Measures probes on an open GPU.

    Args:
        limits: the physical ceilings of this device, and the conditions that hold.
        meter: samples the counter of the probe that has one.
    """

    def __init__(
        self,
        gpu: Gpu,
        mode: Mode,
        clocks: HeldClocks,
        limits: Roofline,
        meter: Meter | None = None,
    ) -> None:
        self._gpu = gpu
        self._caps = CAPS[mode]
        self._clocks = clocks
        self._bounds = limits.ceilings
        self._kept = KeptShapes(limits.conditions)
        self._searches = mode == "thorough"
        self._meter = meter
        self._stream: Any = None  # one allocation that every stream probe divides
        self._stream_bytes = 0
        self._sink = gpu.allocate(_SINK_BYTES)

    def warm_up(self) -> None:
        """Keep the GPU busy until its SM clock is steady, at most `_WARM_UP_S`: it idles at a fifth."""
        size = min(_WARM_UP_BYTES, self._gpu.free_bytes() // 4)
        if size < _SINK_BYTES:
            return
        memory = self._gpu.allocate(size)
        readings: list[float] = []
        end = time.monotonic() + _WARM_UP_S
        while time.monotonic() < end:
            step = time.monotonic() + _WARM_UP_STEP_S
            while time.monotonic() < step:
                self._gpu.fill(memory, size, "fp64")
                self._gpu.wait()
            reading = self._clocks.read()
            if reading is None:
                return
            readings.append(reading)
            if len(readings) >= 3 and max(readings[-3:]) - min(readings[-3:]) <= 0.01 * reading:
                return

    def broken(self) -> bool:
        """Whether nothing more can be measured in this process."""
        return self._gpu.broken()

    def measure(self, probe: Probe) -> Ceiling:
        """Run one probe. Raises NotApplicableError where the counters it needs cannot be had; RoofmonError,
        ArithmeticError or CuPy's error where it gives no result."""
        self._clocks.reset()
        self._gpu.runtime.memset(self._sink.ptr, 0, _SINK_BYTES)
        if probe.operation != "stream":
            self._stream = None  # its memory may be needed
        match probe.operation:
            case "stream":
                ceiling = self._measure_stream(probe)
            case "reread":
                ceiling = self._measure_reread(probe)
            case "loop":
                ceiling = self._measure_loop(probe)
            case "gemm":
                ceiling = self._measure_gemm(probe)
            case _:
                ceiling = self._measure_transfer(probe)
        held = msgspec.structs.replace(
            ceiling,
            memory_clock_hz=self._clocks.memory_clock_hz(),
            event_reasons=self._clocks.reasons(),
            flags=(*self._clocks.flags(), *ceiling.flags),
        )
        return judged(widened(held), self._bounds)

    def _measure_stream(self, probe: Probe) -> Ceiling:
        function = self._gpu.function(probe)
        arrays = probe.arrays or 1
        if self._stream is None:
            self._stream_bytes = 3 * sizes.stream_array_bytes(3, self._gpu.free_bytes())
            self._stream = self._gpu.allocate(self._stream_bytes)
        size = self._stream_bytes // arrays // sizes.ALIGNMENT * sizes.ALIGNMENT
        elements = size // (probe.element_bytes or 1)
        # Anew for each probe: the one before may have left the same number everywhere.
        self._gpu.fill(self._stream, self._stream_bytes, probe.precision)
        starts = [self._stream.ptr + number * size for number in range(arrays)]
        blocks = (
            sizes.covering_blocks(probe, elements)
            if probe.elements_per_thread
            else sizes.resident_blocks(probe, self._gpu.sms)
        )
        arguments = [*map(np.uint64, starts), np.uint64(elements)]
        launch = self._launcher(probe, function, blocks, arguments)
        timing = self._time(probe, launch)
        check_stream(self._gpu, probe, starts, size)
        small = sizes.is_small(size, arrays, self._gpu.l2_bytes)
        amount = (probe.bytes_per_element or 0) * elements
        return to_ceiling(probe, amount, timing, ("small-set",) if small else ())

    def _measure_reread(self, probe: Probe) -> Ceiling:
        function = self._gpu.function(probe)
        size = sizes.reread_bytes(probe, self._gpu.l2_bytes, self._gpu.sms)
        elements = size // (probe.element_bytes or 1)
        memory = self._gpu.allocate(size)
        self._gpu.fill(memory, size, probe.precision)
        blocks = sizes.resident_blocks(probe, self._gpu.sms)

        def launcher(passes: int) -> Callable[[], None]:
            arguments = [np.uint64(memory.ptr), np.uint64(elements), np.uint32(passes)]
            return self._launcher(probe, function, blocks, [*arguments, np.uint64(self._sink.ptr)])

        most = 2**30 // max(1, elements // 1024)  # a kernel may count rows of all passes in 32 bits
        passes = self._iterations(launcher, max(1, most))
        amount = float(probe.bytes_per_element or 0) * elements * passes
        if probe.counts == REQUESTED:
            timing = self._time(probe, launcher(passes))
        else:
            timing, amount = self._time_counted(launcher(passes), amount), 1.0
        check_sink(self._gpu, self._sink.ptr, _SINK_BYTES)
        return to_ceiling(probe, amount, timing)

    def _time_counted(self, launch: Callable[[], None], requested: float) -> Timing:
        """Of one byte that the counter counts while a kernel runs which asks for `requested`."""
        if self._meter is None:
            raise NotApplicableError("there is nothing that could sample its counter")
        timer = self._timer(launch)
        timing = time_of_counted_byte(self._meter, timer.measure, requested, self._clocks.read)
        self._gpu.wait()
        return timing

    def _measure_loop(self, probe: Probe) -> Ceiling:
        function = self._gpu.function(probe)
        blocks = sizes.resident_blocks(probe, self._gpu.sms)

        def launcher(iterations: int) -> Callable[[], None]:
            arguments = [np.uint32(iterations), np.uint64(self._sink.ptr)]
            return self._launcher(probe, function, blocks, arguments)

        iterations = self._iterations(launcher, 2**31)
        timing = self._time(probe, launcher(iterations))
        check_sink(self._gpu, self._sink.ptr, _SINK_BYTES)
        each = (
            probe.flop_count() if probe.kind == "compute" else float(probe.bytes_per_element or 0)
        )
        return to_ceiling(probe, each * blocks * (probe.block or 1) * iterations, timing)

    def _measure_transfer(self, probe: Probe) -> Ceiling:
        size = sizes.transfer_bytes(self._gpu.free_bytes())
        transfer = Transfer(self._gpu, probe.level or "", size)
        # A copy hardly varies, but where the host has other things to do, which can only slow it.
        timings = [
            self._time(probe, transfer.launch, _TRANSFER_SAMPLE_S, Rule.minimum)
            for _ in range(_TRANSFER_COUNTS)
        ]
        timing = min(timings, key=lambda timing: timing.median_s)
        transfer.check()
        per_element = probe.bytes_per_element or 1
        small = ("small-set",) if size < sizes.TRANSFER_BYTES else ()
        return to_ceiling(probe, size // per_element * per_element, timing, small)

    def _measure_gemm(self, probe: Probe) -> Ceiling:
        gemm = SustainedGemm(self._gpu, probe, self._caps.tensor, self._clocks)
        best = None if self._searches else self._kept.get(gemm)
        if best is None:
            best, timing = gemm.search()
            self._kept.keep(gemm, best)
        else:
            timing = gemm.measure(best)
        small = ("small-set",) if len(gemm.shapes) < len(probe.shapes) else ()
        return to_ceiling(probe, probe.flop_count(*best), timing, small)

    def _launcher(
        self, probe: Probe, function: Any, blocks: int, arguments: list[Any]
    ) -> Callable[[], None]:
        threads, shared = probe.block or 1, probe.shared_bytes
        return lambda: self._gpu.launch(function, blocks, threads, arguments, shared)

    def _iterations(self, launcher: Callable[[int], Callable[[], None]], most: int) -> int:
        self._timer(launcher(1)).alone()  # loads the kernel: that takes longer than running it
        return sizes.iterations_for(lambda number: self._timer(launcher(number)).alone(), most)

    def _time(
        self,
        probe: Probe,
        launch: Callable[[], None],
        sample_s: float = sizes.LAUNCH_S,
        minimum: int = _SAMPLES,
    ) -> Timing:
        rule = Rule(
            half_width=HALF_WIDTH[probe.kind],
            cap_s=self._caps.bandwidth if probe.kind == "bandwidth" else self._caps.vector,
            sample_s=sample_s,
            minimum=minimum,
        )
        timing = time_launches(self._timer(launch).measure, rule, self._clocks.read)
        self._gpu.wait()
        return timing

    def _timer(self, launch: Callable[[], None]) -> EventTimer[Any]:
        return EventTimer(launch, self._gpu.record, self._gpu.seconds_between)
