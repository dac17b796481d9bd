"""Two snapshots: which kernels changed, by how much, and what else did.

A kernel is the same one when device, name, grid and block are, also after its program was started
again. The ratio of medians is before ÷ after, so over 1 is faster. Columns all the way, as in the
table: on the screen this runs at every tick.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofmon.model.histogram import quantiles
from roofmon.model.kernel import KernelDescription
from roofmon.model.position import locate
from roofmon.model.roofline import Ceiling
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.stats import median_interval_low_ranks
from roofmon.model.table import Array, Column, KernelTable
from roofmon.model.work import Provenance
from roofmon.units import si, significant

LEAST_GAP = 0.005
"""A smaller difference is never called one: the clock alone drifts by as much within a run."""

SAME_WITHIN = 0.02
"""How far a difference must be ruled out before two medians are called the same."""

LEAST_LAUNCHES = 6
"""With fewer no two ranks bound the median at 95 %, so nothing can be said."""

_SAME_WORK = 0.01
_EXACT = (Provenance.COUNTED, Provenance.IMPORTED, Provenance.DECLARED, Provenance.MODELLED)


class Verdict(StrEnum):
    """What became of a kernel, as a shape and words."""

    FASTER = "▲ faster"
    SLOWER = "▼ slower"
    SAME = "= same"
    AMBIGUOUS = "~ ambiguous"
    NEW = "+ new"
    GONE = "− gone"
    NOT_COMPARABLE = "≠ not comparable"


_VERDICTS = tuple(Verdict)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from `before` to `after`, arrays of shape (n,) over the kernels of `after`.

    `match` is the row in `before` (−1: new); medians in ns, those of `after` over what ran since
    `before` where both are of one session; `launches` is the smaller of both counts; `ratio` is
    before ÷ after with its 95 % interval `low` … `high`, NaN where there is none.
    `gone` are the rows of `before` that have no successor, `changed` what else
    differs between the two, one line each.
    """

    before: Snapshot
    after: Snapshot
    match: NDArray[np.int64]
    before_ns: Array
    after_ns: Array
    launches: Array
    ratio: Array
    low: Array
    high: Array
    same_work: NDArray[np.bool_]
    gone: NDArray[np.int64]
    changed: tuple[str, ...]

    @cached_property
    def code(self) -> NDArray[np.int64]:
        """Verdicts as indexes into `tuple(Verdict)`, shape (n,)."""
        matched = self.match >= 0
        few = self.launches < LEAST_LAUNCHES
        gap = np.abs(self.ratio - 1)
        apart = (self.low > 1) | (self.high < 1)
        close = (self.low >= 1 - SAME_WITHIN) & (self.high <= 1 + SAME_WITHIN)
        verdict = np.select(
            [
                ~matched,
                ~np.isfinite(self.ratio) | ~self.same_work,
                ~few & apart & (gap > LEAST_GAP),
                ~few & close,
            ],
            [
                _VERDICTS.index(Verdict.NEW),
                _VERDICTS.index(Verdict.NOT_COMPARABLE),
                np.where(
                    self.ratio > 1,
                    _VERDICTS.index(Verdict.FASTER),
                    _VERDICTS.index(Verdict.SLOWER),
                ),
                _VERDICTS.index(Verdict.SAME),
            ],
            _VERDICTS.index(Verdict.AMBIGUOUS),
        )
        return verdict.astype(np.int64)

    def verdict(self, row: int) -> Verdict:
        """The verdict on a kernel of `after`."""
        return _VERDICTS[int(self.code[row])]

    def reason(self, row: int) -> str:
        """Why the verdict is not a number; "" where it is."""
        match self.verdict(row):
            case Verdict.NOT_COMPARABLE if not self.same_work[row]:
                return "its FLOPs per launch changed: another problem size"
            case Verdict.NOT_COMPARABLE if self.launches[row] == 0:
                return "it has not run since the baseline"
            case Verdict.NOT_COMPARABLE:
                return "its time is not known in both"
            case Verdict.AMBIGUOUS if np.isfinite(self.low[row]):
                return "more launches would tell"
            case Verdict.AMBIGUOUS:
                return "the spread of its time is not known in both"
        return ""

    def gone_descriptions(self) -> tuple[KernelDescription, ...]:
        """The kernels of `before` that are gone."""
        return tuple(self.before.kernels.descriptions[row] for row in self.gone)


def compare(before: Snapshot, after: Snapshot) -> Comparison:
    """What changed from `before` to `after`.

    The interval of the ratio joins those of both medians as independent errors of the logarithm.
    Kernels whose exactly known FLOPs per launch differ by over 1 % ran another problem: not comparable.
    """
    match, gone = _match(before.kernels, after.kernels)
    old = _matched(before.kernels.stats, match)
    new = _since(before, after, match)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(
            (old[Column.MEDIAN_NS] > 0) & (new[Column.MEDIAN_NS] > 0),
            old[Column.MEDIAN_NS] / new[Column.MEDIAN_NS],
            np.nan,
        )
        down = np.hypot(
            np.log(old[Column.MEDIAN_NS] / old[Column.MEDIAN_LOW_NS]),
            np.log(new[Column.MEDIAN_HIGH_NS] / new[Column.MEDIAN_NS]),
        )
        up = np.hypot(
            np.log(old[Column.MEDIAN_HIGH_NS] / old[Column.MEDIAN_NS]),
            np.log(new[Column.MEDIAN_NS] / new[Column.MEDIAN_LOW_NS]),
        )
        worked = _matched(_exact_flops(before.kernels)[None], match)[0]
        works = _exact_flops(after.kernels)
        same_work = ~(np.abs(works - worked) > _SAME_WORK * np.fmax(works, worked))
    return Comparison(
        before=before,
        after=after,
        match=match,
        before_ns=old[Column.MEDIAN_NS],
        after_ns=new[Column.MEDIAN_NS],
        launches=np.fmin(old[Column.LAUNCHES], new[Column.LAUNCHES]),
        ratio=ratio,
        low=ratio * np.exp(-down),
        high=ratio * np.exp(up),
        same_work=same_work,
        gone=gone,
        changed=tuple(_changes(before, after)),
    )


def _since(before: Snapshot, after: Snapshot, match: NDArray[np.int64]) -> Array:
    """Statistics of `after` in which rows that go on from `before` hold only what ran since then.

    Statistics of a session are cumulative: without this a kernel that is changed while its program runs
    would be compared with a mixture of its old and new self. Their difference is in the histograms.
    """
    stats = after.kernels.stats
    if (before.host, before.started_unix_ns) != (after.host, after.started_unix_ns):
        return stats
    ids = np.array([d.id for d in after.kernels.descriptions], dtype=np.int64)
    old_ids = np.array([*(d.id for d in before.kernels.descriptions), -1], dtype=np.int64)
    launches = stats[Column.LAUNCHES] - _matched(before.kernels.stats, match)[Column.LAUNCHES]
    goes_on = (match >= 0) & (old_ids[match] == ids) & (launches >= 0)
    if not goes_on.any():
        return stats
    stats = stats.copy()
    rows = np.flatnonzero(goes_on)
    stats[Column.LAUNCHES, rows] = launches[rows]
    stats[Column.MEDIAN_NS : Column.MEDIAN_HIGH_NS + 1, rows] = np.nan
    ran = rows[launches[rows] > 0]
    keys, counts = after.histograms.since(before.histograms)
    present = np.isin(ids[ran], (keys >> np.uint64(16)).astype(np.int64))
    ran = ran[present]
    if len(ran):
        last = launches[ran] - 1
        low = median_interval_low_ranks(launches[ran].astype(np.int64))
        stats[Column.MEDIAN_NS : Column.MEDIAN_HIGH_NS + 1, ran] = quantiles(
            keys,
            counts,
            ids[ran],
            np.stack([last / 2, low, last - low]),
            stats[Column.MIN_NS, ran],
            stats[Column.MAX_NS, ran],
        )
    return stats


def places(snapshot: Snapshot, level: str | None = None) -> tuple[Array, Array]:
    """Intensity (against `level`, or each kernel's main one) and FLOP/s of all kernels, shape (n,)."""
    table = snapshot.kernels
    intensity, flops = np.full(len(table), np.nan), np.full(len(table), np.nan)
    of = np.array([d.device for d in table.descriptions])
    for device in snapshot.devices:
        rows = np.flatnonzero(of == device.description.uuid)
        positions = locate(table.take(rows), device.roofline)
        intensity[rows], flops[rows] = positions.at(level).intensity, positions.flops
    return intensity, flops


def _key(d: KernelDescription) -> tuple[object, ...]:
    return d.device, d.name, d.grid, d.block


def _match(before: KernelTable, after: KernelTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of `before` for those of `after`, and rows of `before` without a successor.

    Of several programs with the same kernel the same process is taken, else the one that ran last:
    after a restart old and new rows are both compared with what was there at the baseline.
    """
    ended = np.nan_to_num(before.column(Column.LAST_END_NS), nan=0.0)
    by_process: dict[tuple[object, ...], int] = {}
    by_key: dict[tuple[object, ...], int] = {}
    for row in np.argsort(ended, kind="stable").tolist():
        key = _key(before.descriptions[row])
        by_key[key] = by_process[(before.descriptions[row].pid, key)] = row
    keys = [_key(d) for d in after.descriptions]
    match = [
        by_process.get((d.pid, key), by_key.get(key, -1))
        for d, key in zip(after.descriptions, keys, strict=True)
    ]
    left = by_key.keys() - set(keys)
    return np.array(match, dtype=np.int64), np.array(
        sorted(by_key[k] for k in left), dtype=np.int64
    )


def _matched(columns: Array, match: NDArray[np.int64]) -> Array:
    """Columns of shape (c, m) rearranged to (c, n) by `match`, NaN where it is −1."""
    unknown = np.full((len(columns), 1), np.nan)
    matched: Array = np.concatenate([columns, unknown], axis=1)[:, match]
    return matched


def _exact_flops(table: KernelTable) -> Array:
    """FLOPs per launch from sources that do not vary between runs, NaN without one, shape (n,)."""
    total = np.full(len(table), np.nan)
    for chosen in table.flops.values():
        exact = np.array([c.provenance in _EXACT for c in chosen.columns] + [False])
        values = np.where(exact[chosen.source], chosen.values, np.nan)
        total = np.where(np.isnan(total), values, total + np.nan_to_num(values))
    return total


def _changes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    if before.host != after.host:
        yield f"host {before.host} → {after.host}"
    for new in after.devices:
        old = before.device(new.description.uuid)
        if old is None:
            yield f"{new.description.name} is new"
            continue
        if old.description.driver != new.description.driver:
            yield f"driver {old.description.driver} → {new.description.driver}"
        yield from _clock_change(old, new)
        yield from _roof_changes(old, new)
    for old in before.devices:
        if after.device(old.description.uuid) is None:
            yield f"{old.description.name} is gone"


def _clock_change(old: Device, new: Device) -> Iterator[str]:
    then = old.sample.clock_hz if old.sample else None
    now = new.sample.clock_hz if new.sample else None
    if then and now and abs(now / then - 1) > 0.02:
        yield f"clock {significant(then / 1e6, 4)} → {significant(now / 1e6, 4)} MHz"


def _roof_changes(old: Device, new: Device) -> Iterator[str]:
    def roofs(device: Device) -> dict[tuple[object, ...], Ceiling]:
        return {(c.probe, c.name, c.regime, c.counts): c for c in device.roofline.ceilings}

    earlier = roofs(old)
    for key, roof in roofs(new).items():
        was = earlier.get(key)
        if was is None or (was.ci_high >= roof.ci_low and was.ci_low <= roof.ci_high):
            continue
        then, now = si(was.value, was.unit), si(roof.value, roof.unit)
        yield f"{roof.name} roof {then} → {now} ({roof.probe})"


def ratio_text(comparison: Comparison, row: int) -> str:
    """The ratio with its interval: `1.86× [1.84, 1.88]`; "" where there is none."""
    ratio, low, high = (float(a[row]) for a in (comparison.ratio, comparison.low, comparison.high))
    if not np.isfinite(ratio):
        return ""
    interval = (
        f" [{significant(low)}, {significant(high)}]"
        if np.isfinite(low) and np.isfinite(high)
        else ""
    )
    return f"{significant(ratio)}×{interval}"
