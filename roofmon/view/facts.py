"""Small facts about one kernel that table, headline and checklist tell alike, and how they are written."""

import numpy as np

from roofmon.model.position import Positions
from roofmon.model.roofline import REQUESTED, Ceiling, Pipe, Roofline, level_label
from roofmon.model.snapshot import Device
from roofmon.model.table import Column, KernelTable
from roofmon.units import si, significant

_FEW = 0.01  # of the FLOPs: within what three digits show
_PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def missing_work(table: KernelTable, row: int) -> list[str]:
    """What of a kernel's work no source knows: of "FLOPs", "bytes". A copy has only bytes to tell."""
    kinds = [("bytes", table.bytes)]
    if table.descriptions[row].kind not in ("memcpy", "memset"):
        kinds.insert(0, ("FLOPs", table.flops))
    return [
        name
        for name, chosen in kinds
        if not any(np.isfinite(c.values[row]) for c in chosen.values())
    ]


def roofless_levels(roofline: Roofline, table: KernelTable, row: int) -> dict[str, str]:
    """Memory levels that have a roof, but none that counts what a kernel's bytes count: level → why there
    is no percentage of it."""
    found = {}
    for level, chosen in table.bytes.items():
        counts = chosen.counts_of(row)
        others = any(c.level == level and c.regime != "bound" for c in roofline.ceilings)
        if not others or not np.isfinite(chosen.values[row]) or roofline.bandwidth(level, counts):
            continue
        how = "requested" if counts == REQUESTED else "sampled"
        found[level] = f"no {level_label(level)} roof in {how} bytes"
        if counts != REQUESTED:
            found[level] += ": roofmon calibrate --full with counters measures it"
    return found


def how_to_measure(device: Device) -> str:
    """What gives a device without roofs some."""
    return f"roofmon calibrate --device {device_number(device)} measures them"


def device_called(device: Device) -> str:
    """A device in a sentence: `GPU0`, `the CPU`."""
    description = device.description
    return "the CPU" if description.kind == "cpu" else f"GPU{description.index}"


def device_number(device: Device) -> str:
    """A device as `--device` takes it, short."""
    description = device.description
    if description.kind == "cpu":
        return "cpu"
    return description.uuid if description.parent else str(description.index)


def is_over_roof(positions: Positions, row: int) -> bool:
    """Whether a kernel is over the roof that binds it by more than both intervals explain."""
    return bool(positions.low[row] > 1)


def is_contended(table: KernelTable, row: int) -> bool:
    """Whether its sampled bytes may hold traffic of other programs."""
    return "contended" in table.descriptions[row].reasons


def of_roof(fraction: float, roof: Ceiling, digits: int = 3) -> str:
    """What is achieved of a roof, in the roof's unit: `1.85 of 4.39 TB/s`."""
    text = si(roof.value, roof.unit)
    scale = _PREFIXES.get(text.split(" ")[1][0], 1.0)
    return f"{significant(fraction * roof.value / scale, digits)} of {text}"


def called(roof: Ceiling) -> str:
    """What a percentage is of: `DRAM roof`, or `DRAM bound` where it was computed and not measured."""
    return f"{roof.name} {'bound' if roof.regime == 'bound' else 'roof'}"


def headroom(fraction: float) -> str:
    """How many times faster the roof allows: `2.4×`."""
    return f"{significant(1 / fraction, 2)}×"


def unknown_time(table: KernelTable, row: int) -> str:
    """Why the time of a launch is not known; "" where it is."""
    if table.typical_ns[row] > 0:
        return ""
    return table.descriptions[row].reasons.get("time", "no launch was timed")


def is_nested(table: KernelTable, row: int) -> bool:
    """Whether a kernel runs, at least at times, inside another row's region, whose time contains it."""
    outer, total = table.column(Column.OUTER_NS)[row], table.column(Column.TOTAL_NS)[row]
    return table.descriptions[row].nested or bool(outer < 0.999 * total)


def flops_are_upper_bound(table: KernelTable, row: int) -> bool:
    """Whether over a hundredth of a kernel's FLOPs come from a source that can only overstate them."""
    known = [c for c in table.flops.values() if c.source[row] >= 0]
    whole = sum(float(c.values[row]) for c in known)
    most = (float(c.values[row]) for c in known if c.columns[c.source[row]].upper_bound)
    return sum(most) > _FEW * whole


def main_pipe(table: KernelTable, row: int) -> Pipe | None:
    """The pipe that most of a kernel's FLOPs go through."""
    amounts = {key: float(c.values[row]) for key, c in table.flops.items()}
    known = {key: amount for key, amount in amounts.items() if np.isfinite(amount)}
    return Pipe.parse(max(known, key=known.__getitem__)) if known else None
