"""Which kernel moved what: counts of the device, split among the kernels that ran while they were counted.

For each sample Σ over kernels of (amount per launch × launches inside the sample) = count, where a launch
that lies partly in a sample counts with that part: each launch of a kernel moves the same amount, evenly
over its execution. The same amount and not the same rate: a launch that took longer because the clock was
lower or another stream ran beside it moved no more for it (with equal rates the residual of GEMMs under a
power cap is four to ten times as large).
"""

import math

import numpy as np
from numpy.typing import NDArray

from roofmon.counters.alignment import SEARCH_NS
from roofmon.counters.bursts import foreign_samples
from roofmon.counters.clocks import ClockFit, ClockOffset
from roofmon.counters.groups import together
from roofmon.counters.nnls import inverse, solve_nonnegative
from roofmon.counters.normal import NormalEquations
from roofmon.counters.overlap import Launches
from roofmon.counters.progress import alone_durations, progress_clocks
from roofmon.counters.results import Attribution, Traffic
from roofmon.counters.samples import Samples, usable
from roofmon.counters.sizes import Sizes, kernel_of
from roofmon.counters.window import LEAST_SAMPLES, POOLED, UNCOVERED, WindowTable
from roofmon.model.stats import Z95
from roofmon.model.traffic import is_much_untraced

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

HALF_LIFE_S = 5.0
"""After this time a window counts half."""

# Standard error of an offset that was never fitted: where it was, it was 0 ± 10 µs.
_UNKNOWN_CLOCK_NS = 10_000.0
_CHANGED = 0.10  # of the prediction: kernels whose work changed this much have no use for the past
_SPOILED = 3.0  # times the largest residual that a window's kernels are known for
# Part of a kernel's executions beside foreign traffic above which nothing of it is clean.
_CONTENDED = 0.5
# Half-width of the 95 % interval of a kernel's traffic up to which bursts of others were told from it.
_TOLD_APART = 0.01
# Foreign rate over traced rate, in idle time, under which others move nothing to speak of, and the part of
# the time that must be idle to see that.
_QUIET, _IDLE = 0.02, 0.02


class Attributor:
    """Attributes the samples of one GPU window by window, remembering what earlier ones told.

    Its memory is bounded (see `normal.MOST_COLUMNS`).
    """

    def __init__(self, metrics: tuple[str, ...]) -> None:
        self.metrics = metrics
        self.clock = ClockOffset()
        self._sizes = Sizes()
        self._known = NormalEquations(len(metrics))
        self._contended: dict[int, bool] = {}
        self._solution = np.zeros((0, len(metrics)))  # of what is known
        self._traffic_of = _traffic_metrics(metrics)
        self._passed_over = False

    def window(
        self,
        samples: Samples,
        launches: Launches,
        *,
        traced_ns: Integers | None = None,
        lost_ns: Integers | None = None,
        foreign: bool = False,
    ) -> Attribution | None:
        """Takes one window and tells what is known after it; None where no sample could be used.

        Args:
            samples: in order of time, as they were read.
            launches: every traced launch that overlaps them, on the clock of the trace. Records come
                when a launch has ended, so a window must be old enough to have them all.
            traced_ns, lost_ns: see `samples.usable`; traced time is on the clock of the trace, losses on
                that of the samples.
            foreign: whether another process is known to have used the GPU.
        """
        if traced_ns is not None:
            traced_ns = traced_ns + round(self.clock.offset_ns)
        samples = usable(samples, traced_ns, lost_ns)
        if not len(samples):
            return None
        reach = SEARCH_NS + abs(round(self.clock.offset_ns))
        launches = launches.take(
            (launches.end_ns > samples.start_ns[0] - reach)
            & (launches.start_ns < samples.end_ns[-1] + reach)
        )
        clocks = progress_clocks(launches)
        alone_ns = alone_durations(launches, clocks)
        by_size = self._sizes.of(launches.kernel, alone_ns, foreign=foreign)
        launches = Launches(by_size, launches.start_ns, launches.end_ns)
        clock = self.clock.update(samples, launches, clocks)
        view = WindowTable(samples, launches, round(clock.offset_ns), clocks)
        foreign_mask = self._learn(view, clock)
        return self._describe(view, clock, foreign_mask, foreign)

    def _learn(self, view: WindowTable, clock: ClockFit) -> Mask:
        """Adds the window to what is known, without samples that hold foreign traffic; returns those.

        A window in which known kernels suddenly fit much worse is passed over, but never two in a row:
        either the clocks stepped in its middle, or something did change.
        """
        foreign_mask = np.zeros(len(view.values), dtype=np.bool_)
        covered = view.covered
        if covered.sum() < LEAST_SAMPLES:
            return foreign_mask
        alone = view.fit(covered)
        for _ in range(3):
            residual = view.values[covered] - view.table[covered] @ alone
            found = np.zeros_like(foreign_mask)
            found[covered] = foreign_samples(
                residual @ self._traffic_of,
                view.values[covered] @ self._traffic_of,
                view.launch_samples,
            )
            if (found == foreign_mask).all() or (covered & ~found).sum() < LEAST_SAMPLES:
                break
            foreign_mask = found
            alone = view.fit(covered & ~foreign_mask)
        clean = covered & ~foreign_mask
        self._passed_over = not self._passed_over and self._spoiled(view, clean, alone)
        if self._passed_over:
            return foreign_mask
        if self._changed(view, clean, alone):
            self._known.forget()
        keep = 0.5 ** (view.seconds / HALF_LIFE_S)
        table, values = view.table[clean], view.values[clean]
        self._known.add(view.ids, table, values, keep)
        self._solution = solve_nonnegative(self._known.gram, self._known.products).values
        amounts = self._amounts_of(view)
        self._known.add_residual(view.ids, table, values - table @ amounts)
        error_ns = _UNKNOWN_CLOCK_NS if math.isnan(clock.error_ns) else clock.error_ns
        self._known.add_slip(view.ids, table, view.slip(error_ns)[clean] @ amounts)
        return foreign_mask

    def _amounts_of(self, view: WindowTable) -> Floats:
        """What is known of the columns of a window, shape (columns, c); 0 for those not remembered."""
        found = np.zeros((len(view.ids), len(self.metrics)))
        known = np.isin(view.ids, self._known.ids)
        found[known] = self._solution[np.searchsorted(self._known.ids, view.ids[known])]
        return found

    def _spoiled(self, view: WindowTable, clean: Mask, alone: Floats) -> bool:
        """Whether the window's own fit leaves much more over than its kernels ever did, in traffic."""
        kernels = view.ids >= 0
        here = np.isin(self._known.ids, view.ids[kernels])
        if here.sum() < kernels.sum():
            return False
        most = self._known.variance()[here].max(axis=0, initial=0.0)
        rest = np.square(view.values[clean] - view.table[clean] @ alone).mean(axis=0)
        return bool(((rest > _SPOILED**2 * most) & (self._traffic_of > 0)).any())

    def _changed(self, view: WindowTable, clean: Mask, alone: Floats) -> bool:
        """Whether the past predicts this window's traffic wrongly, where it knows all of its kernels."""
        if not np.isin(view.ids, self._known.ids).all():
            return False
        now = view.table[clean] @ alone @ self._traffic_of
        past = view.table[clean] @ self._amounts_of(view) @ self._traffic_of
        return bool(np.linalg.norm(past - now) > _CHANGED * np.linalg.norm(now))

    def _describe(
        self, view: WindowTable, clock: ClockFit, foreign_mask: Mask, foreign: bool
    ) -> Attribution:
        known = self._known
        traffic = self._traffic(view, foreign_mask)
        much = self._much_is_untraced(view, traffic)
        self._mark_contended(view, foreign_mask, foreign or much, traffic)
        moving = much or (foreign and foreign_mask.any())
        listed = known.ids >= 0
        kernels, which = np.unique(kernel_of(known.ids[listed]), return_inverse=True)
        # Sums over the sizes of a kernel.
        sums = np.zeros((len(kernels), len(which)))
        sums[which, np.arange(len(which))] = 1.0
        launches = known.amounts[listed]
        totals = sums @ (launches[:, np.newaxis] * self._solution[listed])
        whole = inverse(known.gram)
        shape, slips = whole[np.ix_(listed, listed)], (whole @ known.slips)[listed]
        deviation = launches[:, np.newaxis] * np.sqrt(known.variance()[listed])
        slipped = launches[:, np.newaxis] * slips
        covariances = [
            sums @ (shape * np.outer(scale, scale) + np.outer(slip, slip)) @ sums.T
            for scale, slip in zip(deviation.T, slipped.T, strict=True)
        ]
        groups, of_group, of_group_errors = together(totals, covariances)
        number = (sums @ launches)[:, np.newaxis]
        errors = np.sqrt(np.stack([np.diag(c) for c in covariances], axis=1).clip(0.0))
        contended = [self._contended.get(kernel, False) for kernel in kernels.tolist()]
        mixed = Z95 * errors @ self._traffic_of > _TOLD_APART * (totals @ self._traffic_of)
        return Attribution(
            metrics=self.metrics,
            kernels=kernels,
            launches=number[:, 0],
            amounts=totals / number,
            errors=errors / number,
            groups=groups,
            together=of_group / number,
            together_errors=of_group_errors / number,
            contended=np.array(contended, dtype=np.bool_) | (mixed & moving),
            pooled=view.pooled,
            traffic=traffic,
            clock=clock,
            foreign_share=float(foreign_mask.sum() / max(view.covered.sum(), 1)),
        )

    def _traffic(self, view: WindowTable, foreign_mask: Mask) -> Traffic:
        found = self._amounts_of(view)
        moved = view.table.sum(axis=0)[:, np.newaxis] * found
        fitted = view.table[foreign_mask] @ found
        burst = np.maximum((view.values[foreign_mask] - fitted).sum(axis=0), 0.0)
        covered_table = view.table[view.covered]
        idle = covered_table[:, view.ids == UNCOVERED].sum(axis=0) @ found[view.ids == UNCOVERED]
        return Traffic(
            seconds=view.seconds,
            device=view.values.sum(axis=0),
            attributed=moved[view.ids != UNCOVERED].sum(axis=0),
            pooled=moved[view.ids == POOLED].sum(axis=0),
            untraced=view.values[~view.covered].sum(axis=0) + idle + burst,
        )

    def _much_is_untraced(self, view: WindowTable, traffic: Traffic) -> bool:
        untraced, device = (
            float(counts @ self._traffic_of) / view.seconds
            for counts in (traffic.untraced, traffic.device)
        )
        return is_much_untraced(untraced, device)

    def _mark_contended(
        self, view: WindowTable, foreign_mask: Mask, active: bool, traffic: Traffic
    ) -> None:
        """Kernels mostly beside bursts; all of them where others are active and no burst shows them."""
        hidden = active and not foreign_mask.any() and not self._idle_is_quiet(view, traffic)
        kernels, which = np.unique(kernel_of(view.ids), return_inverse=True)
        whole = np.bincount(which, weights=view.table.sum(axis=0))
        beside = np.bincount(which, weights=view.table[foreign_mask].sum(axis=0))
        for kernel, share in zip(
            kernels.tolist(), (beside / whole.clip(1e-300)).tolist(), strict=True
        ):
            self._contended[kernel] = hidden or share > _CONTENDED
        remembered = set(kernel_of(self._known.ids).tolist())
        self._contended = {k: v for k, v in self._contended.items() if k in remembered}

    def _idle_is_quiet(self, view: WindowTable, traffic: Traffic) -> bool:
        """Whether idle time was long enough to see that others move next to nothing in it."""
        if view.idle_seconds < _IDLE * view.seconds or not view.busy_seconds:
            return False
        untraced, attributed = (
            float(counts @ self._traffic_of) for counts in (traffic.untraced, traffic.attributed)
        )
        return untraced / view.idle_seconds <= _QUIET * attributed / view.busy_seconds


def _traffic_metrics(metrics: tuple[str, ...]) -> Floats:
    """1 for each metric that counts traffic of the outermost level there is, shape (c,): DRAM, else L2."""
    for level in ("dram__bytes", "lts__t_bytes", ""):
        chosen = np.array([name.startswith(level) for name in metrics], dtype=np.float64)
        if chosen.any():
            break
    return chosen
