"""The GEMM that a GPU sustains: of which shape, and how fast once its power cap holds the clock.

From rest a power cap lets the highest clock through for some hundredths of a second, then holds one that it
can keep up, and after about 0.7 s, when its mean over time has come to the limit, swings around that: on an
H200 once a second, first by 12 %, in the end between 2 and 5 % below. What is held from rest repeats within
a percent; what is counted amid the swings does not. So every shape starts from rest, and is counted before
they begin.
"""

import hashlib
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.gpu_gemm import GemmSet, Shape, fitting_shapes
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.gpu_timer import EventTimer
from roofmon.calibration.probe import Probe
from roofmon.calibration.timing import HALF_WIDTH, Rule, Timing, time_launches
from roofmon.model.roofline import Conditions
from roofmon.resources import cache_dir, read_limited, write_private

_SAMPLE_S = 0.01
_REST_S = 0.2  # after 0.1 s an H200 still swung in every fourth GEMM, after 0.2 s in none
_BLOCK, _BLOCKS, _STEADY = 5, 3, 0.01  # samples; so many blocks of them may differ by so much
_MOST_SETTLE_S = 0.3
_JUMP, _COUNTS = 0.02, 2  # half-width above which the clock jumped meanwhile; counts at most
_MOST_SEARCH_S = 5.0  # of one precision: a first calibration has four
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

    def search(self) -> tuple[Shape, Timing]:
        """The shape with the highest rate, and its seconds. Raises ArithmeticError."""
        end = time.monotonic() + _MOST_SEARCH_S
        timings: dict[Shape, Timing] = {}
        for shape in self.shapes:
            timings[shape] = self.measure(shape)
            if time.monotonic() > end:
                break
        return max(
            timings.items(), key=lambda timed: self._probe.flop_count(*timed[0]) / timed[1].median_s
        )

    def measure(self, shape: Shape) -> Timing:
        """A shape from rest, launched until its rate stays, then counted, and checked.

        Raises ArithmeticError.
        """
        launch = partial(self._matrices.launch, shape)
        timer = EventTimer(launch, self._gpu.record, self._gpu.seconds_between)
        timer.alone()  # loads the kernel
        seconds = timer.alone()
        launches = max(1, round(_SAMPLE_S / seconds))
        rule = Rule(
            half_width=HALF_WIDTH["compute"],
            cap_s=1.5 * self._counted_s,
            minimum=max(Rule.minimum, math.ceil(self._counted_s / launches / seconds)),
        )

        def count() -> Timing:
            self._gpu.rest(_REST_S)
            settle(timer.measure, launches)
            self._clocks.reset()
            return time_launches(timer.measure, rule, self._clocks.read, launches=launches)

        timing = without_jumps(count)
        self._gpu.wait()
        self._matrices.check(shape)
        return timing


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


def without_jumps(count: Callable[[], Timing]) -> Timing:
    """What `count` tells; what it tells the next time where its interval shows a jump meanwhile."""
    for _ in range(_COUNTS):
        timing = count()
        if timing.high_s - timing.low_s <= 2 * _JUMP * timing.median_s:
            break
    return timing
