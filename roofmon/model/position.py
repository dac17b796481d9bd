"""Where kernels stand under a roofline: intensity, what they achieve, the roof that binds, the class.

Vectorised over a whole table, so that 5,000 kernels cost no more than a screenful.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofmon.model.roofline import LEVELS, Ceiling, Pipe, Roofline
from roofmon.model.table import Array, Column, KernelTable

LATENCY_SHARE = 0.50
"""Under this share of every roof a kernel is limited by none of them: latency, or something else."""


class KernelClass(StrEnum):
    """What limits a kernel, as far as the evidence goes."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    LATENCY = "latency/other"
    UNKNOWN = "unknown"


CLASSES: tuple[KernelClass, ...] = tuple(KernelClass)


@dataclass(frozen=True, eq=False)
class LevelPosition:
    """Positions against one memory level, arrays of shape (n,), NaN where unknown.

    `intensity` FLOP/byte, `achieved` byte/s, `attainable` FLOP/s at that intensity, `percent` the
    fraction of what is attainable there (of the bandwidth alone where FLOPs are not known). Without a roof
    that counts what the kernel's bytes count there is no `percent`. `level` is "" where it differs between
    kernels.
    """

    level: str
    intensity: Array
    achieved: Array
    attainable: Array
    percent: Array


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions of all kernels of a table, arrays of shape (n,), NaN where unknown.

    `roof` indexes `roofs`, the ceiling that binds (−1: none known); `fraction` is the achieved share of
    it, `headroom` its inverse; `low`, `high` bound the fraction by the intervals of roof and median.
    `floor_ns` is the least time of a launch under overlap, `serial_floor_ns` the compute part without.
    `code` indexes CLASSES.
    """

    flops: Array  # FLOP/s over all pipes
    levels: dict[str, LevelPosition]
    roofs: tuple[Ceiling, ...]
    roof: NDArray[np.int64]
    fraction: Array
    low: Array
    high: Array
    headroom: Array
    floor_ns: Array
    serial_floor_ns: Array
    code: NDArray[np.int64]

    def roof_of(self, row: int) -> Ceiling | None:
        """The ceiling that binds one kernel."""
        index = int(self.roof[row])
        return self.roofs[index] if index >= 0 else None

    def class_of(self, row: int) -> KernelClass:
        """The class of one kernel."""
        return CLASSES[int(self.code[row])]

    def main_level(self, row: int) -> str | None:
        """The level a kernel's point is drawn against: the one it comes closest to the roof of."""
        index = int(self._main[row])
        return tuple(self.levels)[index] if index >= 0 else None

    def at(self, level: str | None) -> LevelPosition:
        """All kernels against one level; with None each against its main level."""
        if level is not None:
            unknown = np.full(len(self.flops), np.nan)
            return self.levels.get(level) or LevelPosition(
                level, unknown, unknown, unknown, unknown
            )
        rows, found = np.arange(len(self.flops)), tuple(self.levels.values())

        def pick(name: str) -> Array:
            unknown = np.full(len(self.flops), np.nan)
            values: Array = np.stack([*(getattr(p, name) for p in found), unknown])
            picked: Array = values[self._main, rows]
            return picked

        fields = ("intensity", "achieved", "attainable", "percent")
        return LevelPosition("", *(pick(name) for name in fields))

    @cached_property
    def _main(self) -> NDArray[np.int64]:
        """Index into `levels` of each kernel's main level, −1 where it has none, shape (n,)."""
        if not self.levels:
            return np.full(len(self.flops), -1)
        closeness = np.stack(
            [
                np.where(np.isfinite(p.achieved), np.nan_to_num(p.percent, nan=-1.0), -2.0)
                for p in self.levels.values()
            ]
        )
        main: NDArray[np.int64] = np.where(
            closeness.max(axis=0) > -2.0, closeness.argmax(axis=0), -1
        )
        return main


def locate(table: KernelTable, roofline: Roofline) -> Positions:
    """Positions of every kernel of `table` under `roofline`.

    A kernel's floor is the largest of bytes/bandwidth over levels and FLOPs/peak over pipes; the roof
    with the largest floor binds. With FLOPs and bytes both known the class is the side of the ridge that
    this puts it on, `latency/other` under half of every roof. With only one of them known that one still
    places it, and the class is told only when at least half of its roof is reached: below that, the
    missing quantity could be what limits it.
    """
    n = len(table)
    # A launch of no time at all is a clock that did not tick, not an infinite rate.
    seconds = np.where(table.typical_ns > 0, table.typical_ns, np.nan) / 1e9
    roofs: list[Ceiling] = []
    floors: list[Array] = []

    flops_per_launch, pipe_floors, flops_known = _compute_floors(table, roofline, roofs, floors)
    memory_from = len(roofs)
    bytes_known = np.zeros(n, dtype=bool)
    bandwidth: dict[str, Array] = {}  # byte/s of the roof that counts what the row's bytes count
    for level in (name for name in table.bytes if name in LEVELS):
        chosen = table.bytes[level]
        bandwidth[level] = np.full(n, np.nan)
        for counts in sorted({c.counts for c in chosen.columns}):
            roof = roofline.bandwidth(level, counts)
            if roof is None:
                continue
            floor_s = chosen.counting(counts) / roof.value
            roofs.append(roof)
            floors.append(floor_s)
            known = np.isfinite(floor_s)
            bandwidth[level][known] = roof.value
            bytes_known |= known

    stack = np.stack(floors) if floors else np.full((1, n), np.nan)
    filled = np.nan_to_num(stack, nan=-1.0)
    best = filled.max(axis=0) if n else np.empty(0)
    roof_index = np.where(best > 0, filled.argmax(axis=0), -1) if n else np.empty(0, dtype=np.int64)
    floor = np.where(best > 0, best, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = floor / seconds
        achieved_flops = flops_per_launch / seconds
        levels = {
            level: _level_position(
                level,
                table.bytes[level].values,
                roof_values,
                flops_per_launch,
                seconds,
                pipe_floors,
            )
            for level, roof_values in bandwidth.items()
        }
        low, high = _interval(table, roofs, roof_index, fraction)
        headroom = 1.0 / fraction

    is_memory = roof_index >= memory_from
    near = np.nan_to_num(fraction, nan=0.0) >= LATENCY_SHARE
    both = flops_known & bytes_known
    code = np.full(n, CLASSES.index(KernelClass.UNKNOWN))
    placed = (roof_index >= 0) & np.isfinite(fraction) & (both | near)
    side = np.where(
        is_memory, CLASSES.index(KernelClass.MEMORY), CLASSES.index(KernelClass.COMPUTE)
    )
    code = np.where(placed & near, side, code)
    code = np.where(placed & ~near, CLASSES.index(KernelClass.LATENCY), code)
    return Positions(
        flops=achieved_flops,
        levels=levels,
        roofs=tuple(roofs),
        roof=roof_index.astype(np.int64),
        fraction=fraction,
        low=low,
        high=high,
        headroom=headroom,
        floor_ns=floor * 1e9,
        serial_floor_ns=np.where(flops_known, pipe_floors.sum, np.nan) * 1e9,
        code=code.astype(np.int64),
    )


@dataclass(frozen=True, eq=False)
class _PipeFloors:
    """Seconds per launch by pipes, shape (n,), NaN where no pipe has both work and a roof."""

    longest: Array
    sum: Array


def _compute_floors(
    table: KernelTable, roofline: Roofline, roofs: list[Ceiling], floors: list[Array]
) -> tuple[Array, _PipeFloors, NDArray[np.bool_]]:
    n = len(table)
    total = np.zeros(n)
    any_flops = np.zeros(n, dtype=bool)
    roofed = np.zeros(n, dtype=bool)
    longest, serial = np.full(n, np.nan), np.zeros(n)
    for key in sorted(table.flops):
        amount = table.flops[key].values
        known = np.isfinite(amount)
        total += np.where(known, amount, 0.0)
        any_flops |= known
        roof = roofline.compute(Pipe.parse(key))
        if roof is None:
            continue
        floor = amount / roof.value
        roofs.append(roof)
        floors.append(floor)
        longest = np.fmax(longest, floor)
        serial += np.where(known, floor, 0.0)
        roofed |= known
    pipes = _PipeFloors(longest, np.where(roofed, serial, np.nan))
    return np.where(any_flops, total, np.nan), pipes, roofed


def _level_position(
    level: str,
    amount: Array,
    bandwidth: Array,
    flops: Array,
    seconds: Array,
    pipes: _PipeFloors,
) -> LevelPosition:
    intensity = flops / amount
    achieved = amount / seconds
    compute_limit = flops / pipes.longest  # FLOP/s of this mix of pipes when they overlap
    memory_limit = intensity * bandwidth
    # fmin: where only one of the roofs is known it is the limit.
    attainable = np.fmin(memory_limit, compute_limit)
    # Without FLOPs, or with none (a copy has no FLOP/s to compare), bandwidth alone places the kernel.
    percent = np.where(flops > 0, flops / seconds / attainable, achieved / bandwidth)
    percent[np.isnan(bandwidth)] = np.nan
    return LevelPosition(level, intensity, achieved, attainable, percent)


def _interval(
    table: KernelTable, roofs: list[Ceiling], roof_index: NDArray[np.int64], fraction: Array
) -> tuple[Array, Array]:
    """Bounds of the fraction: the interval of the median time combined with that of the roof."""
    if not roofs:
        return fraction.copy(), fraction.copy()
    value = np.array([r.value for r in roofs])[roof_index]
    roof_low = np.array([r.ci_low for r in roofs])[roof_index]
    roof_high = np.array([r.ci_high for r in roofs])[roof_index]
    median = table.column(Column.MEDIAN_NS)
    slower = table.column(Column.MEDIAN_HIGH_NS) / median
    faster = table.column(Column.MEDIAN_LOW_NS) / median
    return fraction * (value / roof_high) / slower, fraction * (value / roof_low) / faster


def aggregate(
    flops_per_launch: Array, bytes_per_launch: Array, launches: Array, total_ns: Array
) -> tuple[float | None, float | None, float | None]:
    """Intensity, FLOP/s and byte/s of several kernels together: Σ work / Σ work, Σ work / Σ time.

    Arrays of shape (n,). A quantity that any of them does not know is unknown for all of them together
    (None); ratios are never averaged.
    """
    seconds = float(np.sum(total_ns)) / 1e9
    flops = float(np.sum(flops_per_launch * launches))
    moved = float(np.sum(bytes_per_launch * launches))
    intensity = flops / moved if np.isfinite(flops) and np.isfinite(moved) and moved > 0 else None
    rate = flops / seconds if np.isfinite(flops) and seconds > 0 else None
    traffic = moved / seconds if np.isfinite(moved) and seconds > 0 else None
    return intensity, rate, traffic
