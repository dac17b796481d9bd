"""Two snapshots compared: who is who, ratios and intervals by hand, verdicts, what else changed."""

import numpy as np
import pytest
from builders import CPU, Kernel, Work, bandwidth, compute, device, histograms, roofline, snapshot

from roofmon.compare import Comparison, Verdict, compare, places, ratio_text
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column
from roofmon.model.work import Provenance


def one(before: Kernel, after: Kernel) -> Comparison:
    return compare(snapshot(before), snapshot(after))


def test_ratio_and_interval_by_hand() -> None:
    # 200 µs ± 3 % → 100 µs ± 4 %: twice as fast. √(ln²1.03 + ln²1.04) = 0.0491 up.
    comparison = one(
        Kernel(median=200e3, low=200e3 / 1.03, high=200e3 * 1.03),
        Kernel(median=100e3, low=100e3 / 1.04, high=100e3 * 1.04),
    )
    assert comparison.ratio[0] == 2.0
    assert comparison.low[0] == pytest.approx(2 * np.exp(-0.04910), rel=1e-4)
    assert comparison.high[0] == pytest.approx(2 * np.exp(0.04910), rel=1e-4)
    assert comparison.verdict(0) is Verdict.FASTER
    assert ratio_text(comparison, 0) == "2.00× [1.90, 2.10]"
    assert (comparison.before_ns[0], comparison.after_ns[0]) == (200e3, 100e3)


def interval(median: float, relative: float, **more: object) -> Kernel:
    return Kernel(median=median, low=median * (1 - relative), high=median * (1 + relative), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (interval(100, 0.01), interval(150, 0.01), Verdict.SLOWER),
        (interval(100, 0.005), interval(100.3, 0.005), Verdict.SAME),
        # Real, but too small to be told from the drift of the clock.
        (interval(100, 0.0001), interval(100.4, 0.0001), Verdict.SAME),
        (interval(100, 0.0001), interval(100.6, 0.0001), Verdict.SLOWER),
        (interval(100, 0.05), interval(103, 0.05), Verdict.AMBIGUOUS),
        # Five launches have no interval, however far apart they are.
        (interval(100, 0.0, launches=5), interval(50, 0.0), Verdict.AMBIGUOUS),
        (interval(100, 0.0), interval(50, 0.0, launches=5), Verdict.AMBIGUOUS),
        (interval(100, np.nan), interval(50, 0.01), Verdict.AMBIGUOUS),
        (interval(np.nan, 0.01), interval(50, 0.01), Verdict.NOT_COMPARABLE),
        (interval(0.0, 0.0), interval(50, 0.01), Verdict.NOT_COMPARABLE),
    ],
)
def test_verdicts(before: Kernel, after: Kernel, verdict: Verdict) -> None:
    comparison = one(before, after)
    assert comparison.verdict(0) is verdict
    explained = verdict in (Verdict.AMBIGUOUS, Verdict.NOT_COMPARABLE)
    assert bool(comparison.reason(0)) == explained


def test_another_problem_size_is_not_comparable_but_fewer_bytes_are() -> None:
    small, large = ({"vector/fp32": Work(x, Provenance.DECLARED)} for x in (1e9, 2e9))
    assert one(Kernel(flops=small), Kernel(flops=large)).verdict(0) is Verdict.NOT_COMPARABLE
    sampled = {"vector/fp32": Work(2e9, Provenance.SAMPLED)}
    assert one(Kernel(flops=small), Kernel(flops=sampled)).verdict(0) is Verdict.SAME
    fused = one(
        Kernel(flops=small, bytes={"dram": 9e9}),
        Kernel(flops=small, bytes={"dram": 3e9}, median=5e5),
    )
    assert fused.verdict(0) is Verdict.FASTER


def test_new_and_gone() -> None:
    comparison = compare(
        snapshot(Kernel("stays"), Kernel("goes")), snapshot(Kernel("comes"), Kernel("stays"))
    )
    assert comparison.verdict(0) is Verdict.NEW
    assert comparison.verdict(1) is Verdict.SAME
    assert [d.name for d in comparison.gone_descriptions()] == ["goes"]
    assert np.isnan(comparison.ratio[0])
    assert ratio_text(comparison, 0) == ""


def test_grid_and_block_tell_kernels_apart() -> None:
    def launch(grid: int, block: int, median: float) -> Kernel:
        return Kernel(median=median, extra={"grid": (grid, 1, 1), "block": (block, 1, 1)})

    comparison = compare(
        snapshot(launch(1, 128, 100.0), launch(2, 128, 400.0), launch(2, 64, 50.0)),
        snapshot(launch(2, 128, 200.0), launch(3, 128, 50.0), launch(2, 64, 25.0)),
    )
    assert comparison.ratio[[0, 2]].tolist() == [2.0, 2.0]
    assert comparison.verdict(1) is Verdict.NEW


def test_a_restarted_program_is_compared_with_what_was_there() -> None:
    def run(pid: int, median: float, end: float = 1.0) -> Kernel:
        return Kernel(median=median, last_end=end, extra={"pid": pid})

    # Row of the old process, still listed, and of the new one.
    comparison = compare(snapshot(run(10, 100.0)), snapshot(run(10, 100.0), run(11, 50.0)))
    assert [comparison.verdict(row) for row in (0, 1)] == [Verdict.SAME, Verdict.FASTER]
    assert len(comparison.gone) == 0
    # Of two processes the same one counts, else the one that ran last.
    baseline = snapshot(run(10, 100.0, end=5.0), run(12, 300.0, end=9.0))
    comparison = compare(baseline, snapshot(run(10, 100.0), run(13, 100.0)))
    assert comparison.ratio.tolist() == [1.0, 3.0]


def test_nothing_against_nothing() -> None:
    comparison = compare(snapshot(), snapshot())
    assert len(comparison.code) == len(comparison.gone) == 0
    assert comparison.changed == ()
    assert compare(snapshot(), snapshot(Kernel())).verdict(0) is Verdict.NEW
    assert len(compare(snapshot(Kernel()), snapshot()).gone) == 1


def test_what_else_changed() -> None:
    def machine(bytes_per_s: float, clock: float, name: str = CPU):  # type: ignore[no-untyped-def]
        integer = compute(1000 * bytes_per_s, "tensor/int8")
        roofs = roofline(bandwidth(bytes_per_s), compute(1e12), integer)
        return device(roofs, uuid=name, clock_hz=clock)

    before = snapshot(devices=[machine(20e9, 3.0e9), machine(1e9, 1e9, "other")])
    after = snapshot(devices=[machine(18e9, 2.4e9)])
    assert compare(before, after).changed == (
        "clock 3,000 → 2,400 MHz",
        "DRAM roof 20.0 GB/s → 18.0 GB/s (dram-probe)",
        "int8 roof 20.0 TOP/s → 18.0 TOP/s (int8-probe)",
        "Test CPU is gone",
    )
    assert compare(before, before).changed == ()
    # Within both intervals (± 0.3 %) a roof is the same one; within 2 % so is the clock.
    near = snapshot(devices=[machine(20.1e9, 3.03e9), machine(1e9, 1e9, "other")])
    assert compare(before, near).changed == ()


def test_places_of_kernels_on_their_own_devices() -> None:
    found = snapshot(
        Kernel(median=1e6, flops={"vector/fp32": 4e9}, bytes={"dram": 2e9, "l2": 8e9}),
        Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes={"dram": 4e9}, device="other"),
        Kernel(median=1e6),
        Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes={"dram": 1e9}, device="nowhere"),
        devices=[device(), device(uuid="other")],
    )
    # On the H200's roofs the first one comes closest to L2 (8 of 9.6 TB/s).
    intensity, flops = places(found)
    assert intensity[:2].tolist() == [0.5, 0.25]
    assert flops[:2] == pytest.approx([4e12, 1e12])
    assert np.isnan(intensity[2:]).all()
    assert np.isnan(flops[2:]).all()
    assert places(found, "dram")[0][0] == 2.0


def session_at(launches: dict[float, int]) -> Snapshot:
    """One kernel in one session; the medians of its table are over all its launches."""
    kernel = Kernel(median=1e6, launches=sum(launches.values()), id=7)
    at = snapshot(kernel, started_unix_ns=1, histograms=histograms({7: launches}))
    at.kernels.stats[Column.MIN_NS] = 4e5
    return at


def test_within_a_session_only_what_ran_since_the_baseline_counts() -> None:
    """100 launches of 1 ms, then 50 of 0.5 ms: over all of them the median would still be 1 ms."""
    found = compare(session_at({1e6: 100}), session_at({5e5: 50, 1e6: 100}))
    assert found.before_ns[0] == 1e6
    assert found.after_ns[0] == pytest.approx(5e5, rel=0.005)
    assert found.launches[0] == 50
    assert found.verdict(0) is Verdict.FASTER


def test_a_kernel_that_did_not_run_since_the_baseline_says_so() -> None:
    found = compare(session_at({1e6: 100}), session_at({1e6: 100}))
    assert found.verdict(0) is Verdict.NOT_COMPARABLE
    assert found.reason(0) == "it has not run since the baseline"
