"""The GEMM that a GPU sustains: of which shape, and how fast once its power cap holds the clock.

Under the cap the shape that does most for a joule is the fastest, which need not be the one that is ahead
at the same clock. So shapes are held one after the other. That takes seconds, but its answer is kept.
"""

import hashlib
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.gpu_gemm import GemmSet, Shape, fitting_shapes
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.gpu_timer import EventTimer
from roofmon.calibration.probe import Probe
from roofmon.calibration.timing import HALF_WIDTH, Rule, Timing, time_launches, without_jumps
from roofmon.model.roofline import Conditions
from roofmon.resources import cache_dir, read_limited, write_private

_FEWEST_SAMPLES = 10
_SAMPLE_S = 0.01
_TURNS_S, _COUNTED_TURNS = 0.25, 3
_CLOSE = 0.92  # of the best rate at one clock: shapes below it do not come first under a cap either
_BLOCK, _BLOCKS, _STEADY = 5, 3, 0.01  # samples; so many blocks of them may differ by so much
_MOST_SETTLE_S = 0.6
_SEARCH_S = 0.2  # counted of each shape
_MOST_SEARCH_S = 4.0  # of one precision: a first calibration has four
_LIMIT = 256  # bytes of a kept shape


class SustainedGemm:
    """Measures the GEMMs of a probe; `shapes` are those that fit into memory.

    Args:
        counted_s: seconds that are counted.

    Raises RoofmonError without cuBLAS or memory.
    """

    def __init__(self, gpu: Gpu, probe: Probe, counted_s: float, clocks: HeldClocks) -> None:
        self.shapes = fitting_shapes(probe.precision, probe.shapes, gpu.free_bytes())
        self._gpu, self._probe, self._counted_s, self._clocks = gpu, probe, counted_s, clocks
        self._matrices = GemmSet(gpu, probe.precision, self.shapes)

    @property
    def key(self) -> str:
        """What the best shape depends on beside the GPU: cuBLAS, precision, the shapes to choose from."""
        return f"{self._matrices.version}|{self._probe.precision}|{self.shapes}"

    def search(self) -> Shape:
        """The shape with the highest sustained rate, of those that are close at one clock. Each shape is
        checked once. Raises ArithmeticError."""
        rates = self._rates_at_one_clock()
        end = time.monotonic() + _MOST_SEARCH_S
        sustained: dict[Shape, float] = {}
        for shape in sorted(rates, key=lambda shape: -rates[shape]):
            if rates[shape] < _CLOSE * max(rates.values()) or time.monotonic() > end:
                break
            sustained[shape] = self._flops(shape) / self._measure(shape, _SEARCH_S).median_s
        return max(sustained, key=lambda shape: sustained[shape])

    def measure(self, shape: Shape) -> Timing:
        """A shape, launched until its rate stays, then counted, and checked. Raises ArithmeticError."""
        return self._measure(shape, self._counted_s)

    def _measure(self, shape: Shape, counted_s: float) -> Timing:
        timer = self._timer(shape)
        timer.alone()  # loads the kernel
        seconds = timer.alone()
        launches = max(1, round(_SAMPLE_S / seconds))
        rule = Rule(
            half_width=HALF_WIDTH["compute"],
            cap_s=1.5 * counted_s,
            minimum=max(_FEWEST_SAMPLES, math.ceil(counted_s / launches / seconds)),
        )

        def count() -> Timing:
            settle(timer.measure, launches)
            self._clocks.reset()
            return time_launches(timer.measure, rule, self._clocks.read, launches=launches)

        timing = without_jumps(count)
        self._gpu.wait()
        self._matrices.check(shape)
        return timing

    def _rates_at_one_clock(self) -> dict[Shape, float]:
        """FLOP/s. The shapes take turns, so that all are compared at the clock that there is."""
        timers = {shape: self._timer(shape) for shape in self.shapes}
        launches: dict[Shape, int] = {}
        for shape, timer in timers.items():
            timer.alone()  # loads the kernel
            launches[shape] = max(1, round(_SAMPLE_S / timer.alone()))
            self._matrices.check(shape)
        turns: list[dict[Shape, float]] = []
        end = time.monotonic() + _TURNS_S
        while len(turns) < _COUNTED_TURNS or time.monotonic() < end:
            turns.append({shape: one.alone(launches[shape]) for shape, one in timers.items()})
        last = turns[-_COUNTED_TURNS:]
        return {
            shape: self._flops(shape) * launches[shape] / median(turn[shape] for turn in last)
            for shape in self.shapes
        }

    def _flops(self, shape: Shape) -> float:
        return self._probe.flop_count(*shape)

    def _timer(self, shape: Shape) -> EventTimer[Any]:
        launch = partial(self._matrices.launch, shape)
        return EventTimer(launch, self._gpu.record, self._gpu.seconds_between)


class KeptShapes:
    """The shapes that were best before, by GPU, driver, power limit and cuBLAS.

    What cannot be read or written is searched for anew.
    """

    def __init__(self, conditions: Conditions | None) -> None:
        known = conditions or Conditions(device="")
        self._key = f"{known.device}|{known.driver}|{known.power_limit_w}|{known.mig_profile}"

    def get(self, gemm: SustainedGemm) -> Shape | None:
        """The best of these shapes, where it is known."""
        try:
            kept = msgspec.json.decode(read_limited(self._path(gemm), _LIMIT), type=Shape)
        except (OSError, msgspec.MsgspecError):
            return None
        return kept if kept in gemm.shapes else None

    def keep(self, gemm: SustainedGemm, best: Shape) -> None:
        """Remember the best of these shapes."""
        try:
            write_private(self._path(gemm), msgspec.json.encode(best))
        except OSError:
            return  # the cubins, which are kept beside it, are told of

    def _path(self, gemm: SustainedGemm) -> Path:
        digest = hashlib.sha256(f"{self._key}|{gemm.key}".encode()).hexdigest()[:32]
        return cache_dir() / "gemm" / f"{digest}.json"


def settle(measure: Callable[[int], float], launches: int) -> None:
    """Launch until the rate stays where it is; `measure` gives the seconds of so many launches."""
    busy_s = 0.0
    blocks: list[float] = []
    while busy_s < _MOST_SETTLE_S:
        block = [measure(launches) for _ in range(_BLOCK)]
        busy_s += sum(block)
        blocks = [*blocks[1 - _BLOCKS :], median(block)]
        if len(blocks) == _BLOCKS and max(blocks) - min(blocks) <= _STEADY * max(blocks):
            return
