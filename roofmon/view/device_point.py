"""The device's own point on its roofline, from the counters of the whole device, and where it was before.

Intensity is Σ FLOP/s over pipes ÷ DRAM byte/s. It takes no tracing and sees every program at once. The
history is carried from view to view, as the kernels' numbers are, so that the live screen, a replay and
`--once` draw alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofmon.chart.scene import Place
from roofmon.model.activity import Activity
from roofmon.model.device import DeviceSample
from roofmon.model.roofline import PRECISIONS, UNITS, Pipe, operation_of, pipe_label
from roofmon.model.snapshot import Device, Snapshot
from roofmon.units import si, significant
from roofmon.view.tracing import extended_activity

MARK = "◉"

TRAIL_NS = 60 * 10**9
_STEP_NS = 10**9
"""A trail is 60 s long at one place a second, so 60 places at any rate of ticks."""

_DRAM = "dram"
_PIPES = frozenset(Pipe(unit, precision).key for unit in UNITS for precision in PRECISIONS)
_FEW = 0.05
"""Less of its FLOPs than this in vector pipes does not make the sum an upper bound worth a sign."""


_CLOCK_READS_HIGH = ("power", "thermal", "slowdown")
"""Words of event reasons under which the driver's SM clock overstates the mean one. On an H200 at its power
cap it told 1525 MHz where 1377 MHz of cycles were counted: FLOP/s from it come out up to 13 % high."""


@dataclass(frozen=True)
class DevicePoint:
    """Where a device stands: `flops` FLOP/s over all pipes, `bytes_per_s` of DRAM, None where unknown.

    `intensity` is their ratio in FLOP/byte, None where there is none, and then `why` says why. `rates`
    are FLOP/s by pipe. `upper_bound`: a counter of vector instructions takes each for an FMA, or the
    clock that FLOP/s are computed with reads too high.
    """

    bytes_per_s: float | None = None
    flops: float | None = None
    intensity: float | None = None
    rates: Mapping[Pipe, float] = field(default_factory=dict)
    upper_bound: bool = False
    why: str = ""

    @property
    def place(self) -> Place | None:
        """Its place in the plane."""
        if self.intensity is None or self.flops is None:
            return None
        return self.intensity, self.flops

    @property
    def main_pipe(self) -> Pipe | None:
        """The pipe that most of its FLOPs go through; None where there are none."""
        pipe = max(self.rates, key=self.rates.__getitem__, default=None)
        return pipe if pipe is not None and self.rates[pipe] > 0 else None


def device_point(device: Device) -> DevicePoint | None:
    """The point of a device; None for a device of which no point is to be expected."""
    sample = device.sample
    if sample is None or (device.description.kind == "cpu" and sample.rates is None):
        return None
    if sample.lost:
        return DevicePoint(why=sample.lost)
    if sample.rates is None:
        return DevicePoint(why=sample.missing.get("rates") or "no counter of its pipes and DRAM")
    rates = {Pipe.parse(key): rate for key, rate in sample.rates.items() if key in _PIPES}
    moved = sample.rates.get(_DRAM)
    flops = sum(rates.values()) if rates else None
    vector = sum(rate for pipe, rate in rates.items() if pipe.unit == "vector")
    why = _unplaced(flops, moved)
    return DevicePoint(
        bytes_per_s=moved,
        flops=flops,
        intensity=None if why or not flops or not moved else flops / moved,
        rates=rates,
        upper_bound=bool(flops) and (vector > _FEW * (flops or 0.0) or _clock_reads_high(sample)),
        why=why,
    )


def _clock_reads_high(sample: DeviceSample) -> bool:
    if sample.mean_clock_hz is not None:
        return False  # its FLOP/s are at the clock that was counted
    reasons = " ".join(sample.event_reasons or ())
    return any(word in reasons for word in _CLOCK_READS_HIGH)


def _unplaced(flops: float | None, moved: float | None) -> str:
    if flops is None or moved is None:
        return f"no counter of its {'pipes' if flops is None else 'DRAM'}"
    if flops <= 0:
        return "no FLOPs now" if moved > 0 else "idle"
    return "" if moved > 0 else "no DRAM traffic now"


def point_text(point: DevicePoint) -> str:
    """The point in words: `≤ 186 TFLOP/s, most bf16, at 66.2 FLOP/byte`, or why there is none."""
    if point.place is None:
        return f"no point: {point.why}"
    pipe = point.main_pipe
    most = f" {pipe_label(pipe)}" if pipe and len(point.rates) > 1 else ""
    bound, operation = "≤" if point.upper_bound else "", operation_of(pipe)
    rate = si(point.flops, f"{operation}/s")
    return f"{bound}{rate}{most} at {significant(point.intensity)} {operation}/byte"


@dataclass(frozen=True)
class _Moment:
    time_unix_ns: int
    place: Place


@dataclass(frozen=True)
class History:
    """Where the points of all devices were in the last minute, and what kernels did; immutable."""

    moments: Mapping[str, tuple[_Moment, ...]] = field(default_factory=dict)
    activity: Mapping[str, tuple[Activity, ...]] = field(default_factory=dict)

    def trail(self, device: str) -> tuple[Place, ...]:
        """The places of a device, oldest first."""
        return tuple(moment.place for moment in self.moments.get(device, ()))


def extended(history: History, snapshot: Snapshot) -> History:
    """The history after `snapshot`; the same snapshot again changes nothing.

    Time that runs backwards (another recording, another session) begins it anew.
    """
    moments: dict[str, tuple[_Moment, ...]] = {}
    for device in snapshot.devices:
        uuid, sample = device.description.uuid, device.sample
        point = device_point(device)
        if sample is None or point is None:
            continue
        now = sample.time_unix_ns
        known = history.moments.get(uuid, ())
        if known and now < known[-1].time_unix_ns:
            known = ()
        kept = tuple(m for m in known if m.time_unix_ns >= now - TRAIL_NS)
        due = not kept or now - kept[-1].time_unix_ns >= _STEP_NS
        if point.place is not None and due:
            kept = (*kept, _Moment(now, point.place))[-(TRAIL_NS // _STEP_NS) :]
        if kept:
            moments[uuid] = kept
    return History(moments, extended_activity(history.activity, snapshot))
