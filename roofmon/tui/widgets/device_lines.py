"""What a device was doing at the last tick, as lines for its panel: the most telling first.

In the small panel a value that is not there costs one line; with `full` its reason is told whole.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roofmon.tui.strips import Line, Piece, bar, wrapped
from roofmon.units import NOT_AVAILABLE, mebibytes, percent, si, significant

if TYPE_CHECKING:
    from roofmon.model.device import DeviceProcess, DeviceSample
    from roofmon.model.roofline import Ceiling
    from roofmon.model.snapshot import Device

_BAR = 5
_LABEL, _FULL_LABEL = len("memory "), len("memory busy ")


def device_lines(device: "Device", width: int, *, full: bool) -> Iterator[Line]:
    """The lines of a device in `width` cells; `full` says that the panel has the whole window."""
    sample = device.sample
    if sample is None:
        yield [(" nothing was sampled yet", "muted")]
    elif sample.lost:
        yield from wrapped(f"LOST: {sample.lost}", width, "error", " ")
        yield from wrapped("other devices go on; it is shown when it answers", width, "muted", " ")
    elif device.description.kind == "cpu":
        yield from _Lines(device, sample, width, full).cpu()
    else:
        yield from _Lines(device, sample, width, full).gpu()


class _Lines:
    """Makes the lines of one sample."""

    def __init__(self, device: "Device", sample: "DeviceSample", width: int, full: bool) -> None:
        self._device, self._sample, self._width, self._full = device, sample, width, full
        self._label = _FULL_LABEL if full else _LABEL

    def cpu(self) -> Iterator[Line]:
        sample = self._sample
        yield from self._bar("load", "load", sample.load)
        yield from self._memory()
        yield from self._clock()
        yield from self._power()
        if sample.event_reasons is not None:
            yield from self._limits()

    def gpu(self) -> Iterator[Line]:
        sample = self._sample
        if sample.sm_busy is None and sample.load is not None and not self._full:
            yield from self._bar("busy", "load", sample.load)
        else:
            known = sample.sm_busy is not None and sample.occupancy is not None
            text = f"{percent(sample.sm_busy)}  occ {percent(sample.occupancy)}" if known else ""
            yield from self._bar("SM", "sm_busy", sample.sm_busy, text)
        yield from self._rates()
        yield from self._link("PCIe", "pcie")
        yield from self._memory()
        yield from self._limits()
        yield from self._power()
        yield from self._clock()
        if sample.nvlink_in_bytes_per_s is not None or self._full:
            yield from self._link("NVLink", "nvlink")
        if self._full:
            if sample.occupancy is None:
                yield from self._fact("occ", None, "occupancy")
            shares = (("GPU", sample.load, "load"), ("memory", sample.memory_busy, "memory_busy"))
            for name, share, key in shares:
                told = None if share is None else f"{percent(share)} (share of time)"
                yield from self._fact(f"{name} busy", told, key)
        yield from self._processes()

    def _rates(self) -> Iterator[Line]:
        """DRAM and pipes; in the small panel the busiest pipe alone."""
        from roofmon.model.roofline import pipe_label
        from roofmon.view import device_point

        point = device_point(self._device)
        assert point is not None
        roofline = self._device.roofline
        if point.bytes_per_s is None:
            yield from self._fact("DRAM", None, "rates")
        else:
            yield self._rate("DRAM", point.bytes_per_s, roofline.bandwidth("dram"), "B/s")
        pipes = sorted(point.rates, key=lambda pipe: (-point.rates[pipe], pipe))
        for pipe in pipes if self._full else pipes[:1]:
            unit = f"{pipe.operation}/s"
            yield self._rate(pipe_label(pipe), point.rates[pipe], roofline.compute(pipe), unit)
        if self._full and point.upper_bound:
            hint = "vector pipes: at most, as if each instruction were an FMA"
            yield from self._fact("", hint, "")

    def _rate(self, name: str, rate: float, roof: "Ceiling | None", unit: str) -> Line:
        from roofmon.view.facts import called, of_roof

        if roof is None:
            return [self._named(name), (si(rate, unit), "")]
        share = rate / roof.value
        text = of_roof(share, roof, 2)
        if self._full:
            text = f"{of_roof(share, roof)}, {percent(share)} of the {called(roof)}"
        return [self._named(name), (bar(share, _BAR), "bar"), (f" {text}", "")]

    def _link(self, name: str, key: str) -> Iterator[Line]:
        sample = self._sample
        into: float | None = getattr(sample, f"{key}_in_bytes_per_s")
        out: float | None = getattr(sample, f"{key}_out_bytes_per_s")
        if into is None and out is None:
            yield from self._fact(name, None, f"{key}_in_bytes_per_s")
            return
        yield from self._fact(name, f"in {si(into, 'B/s')}, out {si(out, 'B/s')}", "")

    def _memory(self) -> Iterator[Line]:
        sample, total = self._sample, self._device.description.memory_bytes
        used = sample.memory_used_bytes
        count = _count(sample)
        if used is None:
            of = f" of {mebibytes(total)}" if total else ""
            yield from self._fact("memory", None, "memory_used_bytes", of)
            return
        text = f"{significant(used / 2**30)} of {mebibytes(total)}" if total else mebibytes(used)
        # With the count there is no room for a bar in the small panel.
        if total and (self._full or not count):
            yield from self._bar("memory", "", used / total, text + count)
        else:
            yield from self._fact("memory", text + count, "")

    def _clock(self) -> Iterator[Line]:
        sample = self._sample
        text = f"{sample.clock_hz / 1e6:.0f} MHz" if sample.clock_hz else None
        memory, mean = sample.memory_clock_hz, sample.mean_clock_hz
        counted = f" ({mean / 1e6:.0f} counted)" if mean else ""
        more = counted + (f", memory {memory / 1e6:.0f} MHz" if memory else "")
        yield from self._fact("clock", text and text + more, "clock_hz", more)

    def _power(self) -> Iterator[Line]:
        sample = self._sample
        heat, limit = sample.temperature_c, sample.power_limit_w
        warmth = "" if heat is None else f", {heat:.0f} °C"
        of = f" of {limit:.0f}" if limit else ""
        text = None if sample.power_w is None else f"{sample.power_w:.0f}{of} W{warmth}"
        yield from self._fact("power", text, "power_w", warmth)
        if heat is None and self._full:
            yield from self._fact("heat", None, "temperature_c")

    def _limits(self) -> Iterator[Line]:
        sample = self._sample
        reasons = sample.event_reasons
        text = None if reasons is None else ", ".join(reasons) or "the clock is not held back"
        yield from self._fact("limits", text, "event_reasons")

    def _processes(self) -> Iterator[Line]:
        processes, name = self._sample.processes, "processes" if self._full else "procs"
        if processes is None and not self._full:
            return
        if not processes:
            text = None if processes is None else "none on this device"
            yield from self._fact(name, text, "processes")
            return
        for process in sorted(processes, key=lambda p: -(p.memory_bytes or 0)):
            yield from self._fact(name, _process(process), "")
            name = ""

    def _bar(self, name: str, field: str, share: float | None, text: str = "") -> Iterator[Line]:
        if share is None:
            yield from self._fact(name, None, field)
            return
        shown = text or percent(share)
        yield [self._named(name), (bar(share, _BAR), "bar"), (f" {shown}", "")]

    def _fact(self, name: str, text: str | None, field: str, more: str = "") -> Iterator[Line]:
        """One fact, or n/a with the reason: whole where the panel is full."""
        role = ""
        if text is None:
            reason = self._sample.missing.get(field, "")
            text = f"{NOT_AVAILABLE}{f' ({reason})' if reason else ''}{more}"
            role = "muted" if self._full else ""
        if not self._full:
            yield [self._named(name), (text, role)]
            return
        first, *others = wrapped(text, self._width - self._label - 1, role) or [[("", "")]]
        yield [self._named(name), *first]
        yield from ([self._named(""), *line] for line in others)

    def _named(self, name: str) -> Piece:
        return f" {name + ' ':<{self._label}}", "muted"


def _process(process: "DeviceProcess") -> str:
    who = " ".join(part for part in (process.name, process.user and f"({process.user})") if part)
    memory = "" if process.memory_bytes is None else mebibytes(process.memory_bytes)
    busy = "" if process.sm_busy is None else f"SM {percent(process.sm_busy)}"
    parts = (f"{process.pid}", who, memory, busy, process.note)
    return "  ".join(part for part in parts if part)


def _count(sample: "DeviceSample") -> str:
    if sample.processes is None:
        return ""
    return f" · {len(sample.processes)} proc{'s' if len(sample.processes) != 1 else ''}"
