"""What the samples of a device and its telemetry say together: where its traffic went, its true clock."""

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from roofmon.counters.metric_sets import MEMORY_METRICS
from roofmon.counters.weights import CYCLES
from roofmon.counters.worker_messages import Result
from roofmon.model.device import DeviceProcess, DeviceSample
from roofmon.model.traffic import LEAST_BYTES_PER_S, Traffic

S = 10**9
_KEPT_NS = 60 * S  # of telemetry; a window of samples is one to three seconds old when it is told
_MOST_READINGS = 700  # in that time, at ten a second
_LONGEST_NS = 10 * S  # from one reading to the next
_COVERED = 0.8  # of a window: with less telemetry, or fewer usable samples, nothing is compared
_RECENT_NS, _RECENT_S = 6 * S, 10.0
_SAME_CLOCK = 0.10  # by more the driver's clock has moved since the window, whose mean is old then
_PLAUSIBLE = (0.5, 1.1)  # counted clock over the driver's; on an H200 at its power cap 0.9
_GPM_ABOVE = 0.25  # GPM over what is attributed; the two agree within 2 % where nothing else runs
_IN_A_ROW = 2  # windows: GPM tells means of half a second, so that one may hold a load of the next
_ACTIVE = 0.01  # of the time on the SMs; the driver tells whole percents


@dataclass(frozen=True)
class _Reading:
    """What telemetry told of the time since the reading before."""

    time_ns: int
    clock_hz: float | None
    dram_bytes_per_s: float | None


@dataclass(frozen=True)
class _Clock:
    """Mean clocks of one window: by counted cycles, and as the driver told it."""

    counted_hz: float
    told_hz: float
    end_ns: int


@dataclass(frozen=True)
class Contention:
    """Why sampled bytes may hold traffic of others; `everywhere` says that no kernel is free of it."""

    why: str = ""
    everywhere: bool = False


NO_CONTENTION = Contention()


class DeviceTraffic:
    """Of one device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._readings: deque[_Reading] = deque(maxlen=_MOST_READINGS)
        self._processes: tuple[DeviceProcess, ...] = ()
        self._clock: _Clock | None = None
        self._now: Traffic | None = None
        self._taken = 0.0
        self._above = 0  # windows in a row in which GPM counted more than is explained
        self.contention = NO_CONTENTION

    def amended(self, sample: DeviceSample) -> DeviceSample:
        """Takes a sample of telemetry in; with its FLOP/s at the counted clock where that is known."""
        dram = (sample.rates or {}).get("dram")
        self._readings.append(_Reading(sample.time_unix_ns, sample.clock_hz, dram))
        self._processes = sample.processes or ()
        mean = self._mean_clock(sample)
        if mean is None or not sample.rates_clock_hz or sample.rates is None:
            return sample
        factor = mean / sample.rates_clock_hz
        rates = {k: rate if k == "dram" else rate * factor for k, rate in sample.rates.items()}
        missing = {k: why for k, why in sample.missing.items() if k != "mean_clock_hz"}
        return msgspec.structs.replace(
            sample, mean_clock_hz=mean, rates=rates, rates_clock_hz=mean, missing=missing
        )

    def active_others(self, traced: Collection[int]) -> list[DeviceProcess]:
        """Processes that were on the SMs lately and are none of the traced ones, by process id."""
        others = self._others(traced)
        return [p for p in others if p.sm_busy is not None and p.sm_busy >= _ACTIVE]

    def take(self, result: Result, traced: Collection[int]) -> Traffic:
        """What one window of samples says.

        Args:
            traced: the ids of the traced processes on the device.
        """
        self._taken = time.monotonic()
        counts = dict(zip(result.metrics, result.array("device").tolist(), strict=True))
        seconds = result.seconds
        self._take_clock(result, counts.get(CYCLES, 0.0) / seconds if seconds > 0 else 0.0)
        missing: dict[str, str] = {}
        gpm = self._mean(result.start_ns, result.end_ns, "dram_bytes_per_s")
        if gpm is None:
            missing["gpm_bytes_per_s"] = "GPM told nothing of the same time"
        clock = self._clock.counted_hz if self._clock is not None else None
        if clock is None:
            missing["clock_hz"] = "SM cycles are not counted, or telemetry told no clock meanwhile"
        dram = [i for i, name in enumerate(result.metrics) if name in MEMORY_METRICS["dram"]]
        device, attributed, untraced = (
            float(result.array(name)[dram].sum()) / seconds if len(dram) == 2 and seconds else None
            for name in ("device", "attributed", "untraced")
        )
        if device is None:
            why = "the DRAM counters of this GPU are not known"
            missing |= dict.fromkeys((*_RATES, "explained"), why)
        elif device <= 0:
            missing["explained"] = "no DRAM traffic was counted"
        traffic = Traffic(
            device=self._device,
            start_unix_ns=result.start_ns,
            end_unix_ns=result.end_ns,
            dram_bytes_per_s=device,
            attributed_bytes_per_s=attributed,
            untraced_bytes_per_s=untraced,
            gpm_bytes_per_s=gpm,
            clock_hz=clock,
            others=tuple(map(_called, self.active_others(traced))),
            missing=missing,
        )
        self._above = self._above + 1 if _gpm_is_above(traffic, result) else 0
        everywhere = self._above >= _IN_A_ROW
        why = self._contended(result, traced, everywhere)
        self.contention = Contention(why, everywhere)
        self._now = msgspec.structs.replace(traffic, contended=why)
        return self._now

    def now(self, why_not: str) -> Traffic:
        """The last window's, while it is recent. `why_not`: why there is none, "" while samples come."""
        known = self._now
        if not why_not and known is not None and time.monotonic() - self._taken < _RECENT_S:
            return known
        why = why_not or "the first second of samples is not complete"
        if known is not None and not why_not:
            why = "no sample could be used lately"
        return Traffic(
            device=self._device,
            missing=dict.fromkeys((*_RATES, "gpm_bytes_per_s", "clock_hz", "explained"), why),
        )

    def _contended(self, result: Result, traced: Collection[int], everywhere: bool) -> str:
        who = self._suspects(traced)
        # Without numbers: rows are described again whenever this changes.
        if everywhere:
            return f"GPM counts far more DRAM traffic than traced kernels explain: {who}"
        if not result.array("contended").any():
            return ""
        return f"{who} used the GPU beside it: some of its bytes may not be its own"

    def _suspects(self, traced: Collection[int]) -> str:
        active = self.active_others(traced)
        if active:
            return _listed(active)
        others = [p for p in self._others(traced) if p.sm_busy is None]
        return f"perhaps {_listed(others)}" if others else "something that is not traced"

    def _others(self, traced: Collection[int]) -> list[DeviceProcess]:
        listed = {process.pid for process in self._processes}
        # A number of another namespace may be that of a traced program, unless all of those are known.
        all_known = listed.issuperset(traced)
        return [p for p in self._processes if p.pid not in traced and (not p.note or all_known)]

    def _take_clock(self, result: Result, counted_hz: float) -> None:
        told = self._mean(result.start_ns, result.end_ns, "clock_hz")
        low, high = _PLAUSIBLE
        known = told is not None and low * told <= counted_hz <= high * told
        self._clock = _Clock(counted_hz, told or 0.0, result.end_ns) if known else None

    def _mean_clock(self, sample: DeviceSample) -> float | None:
        clock = self._clock
        if clock is None or sample.clock_hz is None:
            return None
        recent = sample.time_unix_ns - clock.end_ns < _RECENT_NS
        same = abs(sample.clock_hz / clock.told_hz - 1) <= _SAME_CLOCK
        return clock.counted_hz if recent and same else None

    def _mean(self, start_ns: int, end_ns: int, field: str) -> float | None:
        """The mean of a field over a stretch of time; None where telemetry did not tell most of it."""
        while self._readings and self._readings[0].time_ns < start_ns - _KEPT_NS:
            self._readings.popleft()
        whole = covered = 0.0
        before: int | None = None
        for reading in self._readings:
            value: float | None = getattr(reading, field)
            if before is not None and value is not None:
                since = max(before, reading.time_ns - _LONGEST_NS, start_ns)
                length = max(0, min(reading.time_ns, end_ns) - since)
                whole += value * length
                covered += length
            before = reading.time_ns
        return whole / covered if covered > _COVERED * (end_ns - start_ns) else None


def _gpm_is_above(traffic: Traffic, result: Result) -> bool:
    """Whether GPM saw far more traffic than is attributed, and what is untraced does not tell why."""
    length = (result.end_ns - result.start_ns) / S
    gpm, attributed = traffic.gpm_bytes_per_s, traffic.attributed_bytes_per_s
    if gpm is None or attributed is None or result.seconds < _COVERED * length:
        return False
    above = gpm > (1 + _GPM_ABOVE) * attributed and gpm - attributed > LEAST_BYTES_PER_S
    return above and not traffic.much_untraced


_RATES = ("dram_bytes_per_s", "attributed_bytes_per_s", "untraced_bytes_per_s")


def _called(process: DeviceProcess) -> str:
    return f"{process.name or 'process'} {process.pid}"


def _listed(processes: Iterable[DeviceProcess]) -> str:
    first, *others = map(_called, processes)
    more = f" and {len(others)} more" if len(others) > 1 else "".join(f" and {o}" for o in others)
    return first + more
