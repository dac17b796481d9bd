"""Measuring one probe on this CPU: sizes of the working sets, time limits, the resulting ceiling."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from threadpoolctl import ThreadpoolController

from roofmon.calibration.ceilings import to_ceiling
from roofmon.calibration.cpu_kernels import OPERATIONS, Gemm, WorkingSet
from roofmon.calibration.probe import Mode, Probe
from roofmon.calibration.team import Team
from roofmon.calibration.timing import HALF_WIDTH, Rule, Timing, time_launches
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling
from roofmon.telemetry.cpu import read_clock_hz, why_no_clock
from roofmon.telemetry.host import ASSUMED_LLC_BYTES, Host, available_memory_bytes

DRAM_FACTOR = 4
"""A DRAM set is so many last-level caches: of what a pass leaves behind, the next finds nothing."""

LLC_SHARE = 3 / 8
"""Share of the last-level cache that its probes fill: the bandwidth was flat up to a half of 32 MiB shared
by 2 cores, and of 300 MiB by 16, and fell beyond. The size of the second-level caches is added, so that
the set does not fit in those."""

_SAMPLE_S = 0.02  # starting a team costs about 50 µs: 0.3 % of this
_PILOT_SIZE, _PILOT_LAUNCHES = 256, 5  # 1 ms each; on a busy machine one in two took 50 ms
_PATIENCE_S = 4.0


@dataclass(frozen=True)
class Caps:
    """Seconds that one probe may take."""

    bandwidth: float
    compute: float


CAPS: Mapping[Mode, Caps] = {
    "quick": Caps(bandwidth=0.25, compute=0.6),
    "full": Caps(bandwidth=0.4, compute=1.5),
    "thorough": Caps(bandwidth=3.0, compute=12.0),
}


class CpuBench:
    """Measures probes on all usable cores. `scale` shrinks sets, matrices and caps, for tests."""

    def __init__(self, host: Host, mode: Mode, scale: float = 1.0) -> None:
        self._host = host
        self._caps = CAPS[mode]
        self._scale = scale
        self._clock = None if why_no_clock(host) else read_clock_hz
        self._team = Team(host.cpus, host.cores)
        self._blas = ThreadpoolController()  # type: ignore[no-untyped-call]
        self._dram: WorkingSet | None = None

    def close(self) -> None:
        """Give the memory and the threads back."""
        self._dram = None
        self._team.close()

    def broken(self) -> bool:
        """Never: what Python raises leaves the process sound."""
        return False

    def measure(self, probe: Probe) -> Ceiling:
        """Run one probe.

        Raises: RoofmonError, MemoryError or ArithmeticError where it gives no result.
        """
        if probe.kind == "compute":
            # A set for DRAM is not needed any more, and its memory may be.
            self._dram = None
            with self._blas.limit(limits=self._host.cores, user_api="blas"):
                return self._compute(probe)
        # The read-only kernel is a BLAS call, and the team already has a thread on every core.
        with self._blas.limit(limits=1, user_api="blas"):
            return self._bandwidth(probe)

    def _bandwidth(self, probe: Probe) -> Ceiling:
        operation = OPERATIONS[probe.operation]
        flags: tuple[str, ...] = ()
        if probe.level == "llc":
            working_set = self._llc_set()
        else:
            working_set = self._dram = self._dram or self._dram_set()
            if working_set.total_bytes < 0.99 * DRAM_FACTOR * self._llc_bytes():
                flags = ("small-set",)
        working_set.check(operation)
        cap_s = self._caps.bandwidth * self._scale
        timing = self._time(probe, working_set.launcher(operation), cap_s)
        moved = (probe.bytes_per_element or 0) * working_set.pass_elements(operation)
        return to_ceiling(probe, moved, timing, flags)

    def _llc_bytes(self) -> int:
        return self._host.caches.llc_bytes or ASSUMED_LLC_BYTES

    def _dram_set(self) -> WorkingSet:
        wanted = DRAM_FACTOR * self._llc_bytes() * self._scale
        return WorkingSet(self._team, int(min(wanted, available_memory_bytes() / 4)))

    def _llc_set(self) -> WorkingSet:
        caches = self._host.caches
        if caches.llc_bytes is None:
            raise RoofmonError("the system does not tell the size of the last-level cache")
        size = (LLC_SHARE * caches.llc_bytes + caches.private_bytes) * self._scale
        return WorkingSet(self._team, int(size))

    def _compute(self, probe: Probe) -> Ceiling:
        """The fastest of the probe's matrix sizes, sought in the first half of the time.

        By their best launches, in turns: those are the least disturbed, where sizes differ by a few percent
        and a noisy machine by tens.
        """
        began = time.monotonic()
        cap_s = self._caps.compute * self._scale
        gemms, rates = self._fitting(probe, cap_s)
        while len(gemms) > 1 and time.monotonic() < began + cap_s / 2:
            for size, gemm in gemms.items():
                rates[size] = max(rates[size], self._rate(probe, gemm))
        gemm = gemms[max(gemms, key=rates.__getitem__)]
        left_s = max(0.0, began + cap_s - time.monotonic())
        launches = max(1, round(_SAMPLE_S * rates[gemm.size] / _flops(probe, gemm)))
        timing = self._time(probe, gemm.launch, left_s, launches)
        return to_ceiling(probe, _flops(probe, gemm), timing)

    def _fitting(self, probe: Probe, cap_s: float) -> tuple[dict[int, Gemm], dict[int, float]]:
        """Products by size that fit in time and memory, each checked, with a first FLOP/s."""
        pilot = Gemm(_PILOT_SIZE, probe.precision)
        rate = max(self._rate(probe, pilot) for _ in range(_PILOT_LAUNCHES))
        gemms: dict[int, Gemm] = {}
        rates: dict[int, float] = {}
        for size in sorted({max(16, round(size * self._scale)) for size in probe.sizes}):
            # The rate of the last size predicts the time of the next. The smallest may take all of the
            # cap, so that a busy machine still has a roof; a larger one must leave time for samples.
            predicted_s = probe.flop_count(size, size, size) / rate
            if predicted_s > (cap_s / 10 if gemms else max(cap_s, _PATIENCE_S)):
                break
            if Gemm.bytes_needed(size) > available_memory_bytes() / 2:
                break
            gemms[size] = Gemm(size, probe.precision)
            gemms[size].launch(1)
            gemms[size].check()
            rates[size] = rate = self._rate(probe, gemms[size])
        if not gemms:
            raise RoofmonError(
                f"every matrix size takes too long or too much memory here ({cap_s:g} s)",
                "add a smaller one to sizes",
            )
        return gemms, rates

    def _rate(self, probe: Probe, gemm: Gemm) -> float:
        return _flops(probe, gemm) / gemm.launch(1)

    def _time(
        self, probe: Probe, measure: Callable[[int], float], cap_s: float, launches: int = 0
    ) -> Timing:
        rule = Rule(half_width=HALF_WIDTH[probe.kind], cap_s=cap_s, sample_s=_SAMPLE_S)
        return time_launches(measure, rule, self._clock, launches=launches)


def _flops(probe: Probe, gemm: Gemm) -> float:
    return probe.flop_count(gemm.size, gemm.size, gemm.size)
