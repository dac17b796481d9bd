"""The checklist: what each rule says, on numbers worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import (
    CPU,
    GPU,
    H200,
    NOW_S,
    Kernel,
    Work,
    bandwidth,
    compute,
    device,
    gpu,
    roofline,
    snapshot,
)
from msgspec.structs import replace as replace_struct

from roofmon.diagnosis import Finding, diagnose_kernel, diagnose_session
from roofmon.model.roofline import NO_ROOFS, Latency
from roofmon.model.session import Progress
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.work import Provenance
from roofmon.view import ViewState, build_view

# 1 GB in 1 ms is 1 of 4.39 TB/s; ridge fp32 at 65 / 4.39 = 14.8 FLOP/byte.
SLOW = Kernel("slow", median=1e6, launches=100, flops={"vector/fp32": 1e9}, bytes={"dram": 1e9})
AT_ROOF = replace(SLOW, name="at roof", bytes={"dram": 4.2e9})


def checks(*kernels: Kernel, on: Device | None = None, **more: object) -> dict[str, Finding]:
    """What the rules say about the first kernel."""
    found = snapshot(*kernels, devices=[on or device()], **more)
    view = build_view(found, ViewState())
    return {finding.rule: finding for finding in diagnose_kernel(view, 0)}


def session(found: Snapshot) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnose_session(found)}


def test_distance_and_gain() -> None:
    found = checks(SLOW)["distance"]
    assert (found.status, found.severity) == ("fail", "warning")
    assert found.title == "23 % of the DRAM roof"
    # 1 ms − 1/4.39 ms = 772.2 µs a launch, 77.22 ms in 100 launches.
    assert found.evidence == "1.00 of 4.39 TB/s; headroom 4.4×, 772.2µs a launch, 77.22ms in all"
    assert found.gain_ns == pytest.approx(77.22e6, rel=1e-4)
    assert found.kernel == 1
    assert found.device == CPU
    near = checks(AT_ROOF)["distance"]
    assert (near.status, near.title, near.gain_ns) == ("pass", "96 % of the DRAM roof", 0.0)
    assert "distance" not in checks(SLOW, on=device(NO_ROOFS))


def test_pipes_without_overlap_have_another_floor() -> None:
    # 376.5 GFLOP bf16 and 26 GFLOP fp32: 0.5 and 0.4 ms.
    mixed = Kernel(median=1e6, flops={"tensor/bf16": 376.5e9, "vector/fp32": 26e9})
    assert checks(mixed)["distance"].evidence.endswith("floor 900.0µs if its pipes do not overlap")
    assert "overlap" not in checks(SLOW)["distance"].evidence


def test_position() -> None:
    found = checks(AT_ROOF)["position"]
    assert (found.status, found.title) == ("pass", "memory-bound")
    assert found.evidence == "0.238 FLOP/byte; ridge DRAM, fp32 at 14.8"
    assert checks(SLOW)["position"].title == "latency/other"
    half = checks(Kernel(median=1e6, bytes={"dram": 1e9}))["position"]
    assert (half.status, half.evidence) == ("unknown", "its FLOPs are not known")
    bare = checks(SLOW, on=device(NO_ROOFS))["position"]
    assert bare.evidence == "no roof is measured for the pipe or the memory level it uses"
    untimed = replace(SLOW, median=np.nan, extra={"reasons": {"time": "not traced"}})
    assert checks(untimed)["position"].evidence == "its time is not known: not traced"


def test_sampled_bytes_of_l2_meet_the_roof_in_sampled_bytes_alone() -> None:
    sampled = Work(7.2e9, Provenance.SAMPLED, counts="lts__t_bytes")
    kernel = Kernel(median=1e6, flops={"vector/fp32": 1e9}, bytes={"l2": sampled})
    found = checks(kernel, on=device(roofline(bandwidth(9.6e12, "l2"))))
    assert found["position"].evidence == (
        "no L2 roof in sampled bytes: roofmon calibrate --full with counters measures it"
    )
    assert "distance" not in found
    counted = bandwidth(14.4e12, "l2", counts="lts__t_bytes")
    roofs = roofline(bandwidth(9.6e12, "l2"), counted, compute(65e12))
    found = checks(kernel, on=device(roofs))
    assert found["distance"].title == "50 % of the L2 sampled roof"
    # 65 over 14.4, and not over 9.6.
    assert found["position"].evidence == "0.139 FLOP/byte; ridge L2 sampled, fp32 at 4.51"


def test_over_its_roof() -> None:
    found = checks(replace(SLOW, bytes={"dram": 5e9}))["over-roof"]
    assert (found.status, found.severity, found.title) == ("fail", "error", "over the DRAM roof")
    # 5 / 4.39 = 114 %; ÷ 1.003 ÷ 1.01 = 112 %.
    assert found.evidence.startswith("114 % of the DRAM roof, 5.00 of 4.39 TB/s; still 112 %")
    within = checks(replace(SLOW, bytes={"dram": 4.43e9}))["over-roof"]
    assert (within.status, within.title) == ("pass", "at its roof within the error")
    assert "over-roof" not in checks(SLOW)
    compute_bound = checks(Kernel(median=1e6, flops={"vector/fp32": 90e9}))["over-roof"]
    assert "FLOPs declared" in compute_bound.advice


def test_over_the_physical_bound_is_an_error_of_the_data() -> None:
    # 66.9 TFLOP/s at 1980 MHz, so 50.7 at 1500 MHz.
    bound = compute(66.9e12, half=0, regime="bound", clock_hz=1.98e9)
    on = gpu(roofline(compute(40e12, clock_hz=1.5e9), bound), clock_hz=1.5e9, load=1.0)
    found = checks(Kernel(median=1e6, device=GPU, flops={"vector/fp32": 55e9}), on=on)["over-roof"]
    assert (found.severity, found.title) == ("error", "impossible: over its bound")
    assert "nothing passes 50.7 TFLOP/s" in found.evidence
    # The clock of an idle GPU is not that of the kernel.
    idle = gpu(roofline(compute(40e12, clock_hz=1.5e9), bound), clock_hz=0.3e9, load=0.0)
    found = checks(Kernel(median=1e6, device=GPU, flops={"vector/fp32": 55e9}), on=idle)[
        "over-roof"
    ]
    assert found.title == "over the fp32 roof"


def test_a_sustained_roof_may_be_passed_honestly() -> None:
    roof = compute(753e12, "tensor/bf16", regime="gemm", clock_hz=1.5e9, flags=("power-capped",))
    kernel = Kernel(median=1e6, device=GPU, flops={"tensor/bf16": 850e9})
    burst = checks(kernel, on=gpu(roofline(roof), clock_hz=1.98e9, load=1.0))["over-roof"]
    assert burst.severity == "info"
    assert burst.advice == (
        "the clock is 1,980 MHz now; the roof was sustained at 1,500 MHz: a burst before the power cap"
    )
    capped = checks(kernel, on=gpu(roofline(roof), clock_hz=1.5e9, load=1.0))["over-roof"]
    assert (capped.severity, "zeros" in capped.advice) == ("info", True)
    free = checks(
        kernel, on=gpu(roofline(compute(753e12, "tensor/bf16", regime="gemm")), load=1.0)
    )["over-roof"]
    assert (free.severity, "measure the roofs again" in free.advice) == ("error", True)


def test_over_its_roof_because_the_set_fits_in_the_cache() -> None:
    cached = device(roofline(bandwidth(20e9)))
    cached = replace(
        cached,
        description=type(cached.description)(
            uuid=CPU, index=0, name="CPU", kind="cpu", cache_bytes=32 * 2**20
        ),
    )
    small = Kernel(median=100e3, bytes={"dram": 4 * 2**20})
    assert checks(small, on=cached)["over-roof"].advice == (
        "its 4.00 MiB fit in the 32.0 MiB cache: declare that level instead of dram"
    )


def test_what_each_class_calls_for() -> None:
    low = checks(AT_ROOF)["low-intensity"]
    # 14.806 / 0.2381 = 62.2
    assert (low.title, low.status) == ("few FLOPs a byte: 0.24", "fail")
    assert low.evidence.startswith("fp32 could do 62× the work")
    assert "fuse" in low.advice
    vector = checks(Kernel(median=1e6, flops={"vector/fp32": 60e9}, bytes={"dram": 1e6}))
    assert vector["faster-pipe"].title == "the bf16 roof is higher"
    # 753 / 65 = 11.6
    assert vector["faster-pipe"].evidence == "753 TFLOP/s, 12× that of fp32"
    assert "low-intensity" not in vector
    tensor = checks(Kernel(median=1e6, flops={"tensor/bf16": 700e9}, bytes={"dram": 1e6}))
    assert "faster-pipe" not in tensor
    slow = checks(SLOW)["latency"]
    assert (slow.status, slow.title) == ("fail", "far from every roof: latency?")
    assert slow.evidence == "23 % of DRAM, 1.5 % of fp32; 1.000ms a launch, 100 launches"
    assert "parallelism" in slow.advice
    assert "latency" not in checks(AT_ROOF)


def test_launch_latency_is_named_where_it_is_known() -> None:
    launches = device(roofline(*H200.ceilings, latency=Latency(launch_s=4e-6)))
    tiny = Kernel(median=9e3, flops={"vector/fp32": 1e6}, bytes={"dram": 1e6})
    assert checks(tiny, on=launches)["latency"].advice == (
        "a launch alone takes 4.000µs: fewer, larger launches"
    )
    assert "parallelism" in checks(SLOW, on=launches)["latency"].advice


def test_is_it_worth_it() -> None:
    # 100 of 125 ms: 1 / (1 − 0.8) = 5; at the roof 1 / (1 − 0.8 × 0.7722) = 2.62.
    found = checks(SLOW, Kernel(median=250e3))["worth-it"]
    assert (found.status, found.title) == ("pass", "80 % of the time")
    assert found.evidence == "at most 5.00× faster in all, 2.62× at its roof"
    assert found.advice == ""
    small = checks(replace(SLOW, launches=1), replace(SLOW, name="big"))["worth-it"]
    assert (small.status, small.title) == ("fail", "only 1.0 % of the time")
    assert small.advice == "big has more to gain: 77.22ms in all"
    # A share of 10 % is worth a look, but another one first.
    tenth = checks(replace(SLOW, launches=10), replace(SLOW, name="big"))["worth-it"]
    assert (tenth.status, tenth.advice[:3]) == ("pass", "big")
    assert checks(replace(SLOW, total=np.nan, outer=0))["worth-it"].status == "unknown"


def test_variation() -> None:
    found = checks(replace(SLOW, cv=0.25))["variation"]
    assert (found.status, found.title) == ("fail", "variation 25 %")
    # The builder's p05 and p95 are 2 % below and 3 % above the median.
    assert found.evidence == "980.0µs–1.030ms (p05–p95) over 100 launches"
    assert checks(SLOW)["variation"].status == "pass"
    assert checks(replace(SLOW, launches=5))["variation"].status == "unknown"
    assert checks(replace(SLOW, cv=np.nan))["variation"].status == "unknown"


def test_short_kernels_and_gaps() -> None:
    short = checks(Kernel(median=2500))["short"]
    assert (short.status, short.title) == ("fail", "short: 2.500µs a launch")
    assert checks(Kernel(median=10_000))["short"].status == "pass"
    gaps = checks(Kernel(median=20e3, launches=50, gap=30e3))["gaps"]
    assert (gaps.status, gaps.gain_ns) == ("fail", 1.5e6)
    assert gaps.evidence == "30.00µs idle before each 20.00µs; 1.500ms in all"
    assert checks(Kernel(median=20e3, gap=10e3))["gaps"].status == "pass"
    assert "gaps" not in checks(SLOW), "not measured is not 'no gaps'"


def test_unknown_work_says_how_to_declare_it() -> None:
    found = checks(Kernel('my "kernel"'))["work"]
    assert (found.status, found.title) == ("unknown", "FLOPs and bytes unknown")
    assert found.advice == 'with region("my \\"kernel\\"", flops=…, bytes=…):'
    half = checks(Kernel("k", bytes={"dram": 1.5e9}))["work"]
    assert (half.title, half.advice) == (
        "FLOPs unknown",
        'with region("k", flops=…, bytes=1.5e+09):',
    )
    told = checks(Kernel("k", extra={"reasons": {"flops": "not a number"}}))["work"]
    assert told.evidence == "FLOPs: not a number"
    full = checks(SLOW)["work"]
    assert (full.status, full.evidence) == (
        "pass",
        "1.00 GFLOP fp32 declared, 1.00 GB DRAM declared",
    )


def test_sources_that_disagree() -> None:
    works = [Work(1e9, Provenance.SAMPLED), Work(0.88e9), Work(1.05e9, Provenance.MODELLED)]
    found = checks(Kernel(bytes={"dram": works}))["sources"]
    assert (found.status, found.severity, found.title) == ("fail", "error", "sources 12 % apart")
    assert found.evidence == "DRAM: sampled 1.00 GB, declared 880 MB, modelled 1.05 GB"
    agreeing = checks(Kernel(bytes={"dram": [works[0], works[2]]}))["sources"]
    assert (agreeing.status, agreeing.title) == ("pass", "sources 5.0 % apart")
    assert "sources" not in checks(SLOW)
    upper = [Work(1e9), Work(1.9e9, Provenance.SAMPLED, upper_bound=True)]
    assert checks(Kernel(flops={"vector/fp32": upper}))["sources"].status == "pass"


def test_work_within_another_region() -> None:
    found = checks(replace(SLOW, outer=25e6))["nested"]
    assert found.evidence == "75.00ms of 100.0ms is part of another row's time"
    assert "nested" not in checks(SLOW)


@pytest.mark.parametrize("flag", ["contended", "not-converged", "over-bound", "small-set"])
def test_a_roof_that_was_disturbed(flag: str) -> None:
    roof = replace_struct(bandwidth(4.39e12, flags=(flag,)), ci_low=4.2e12)  # 4.3 % under
    doubtful = device(roofline(roof, *H200.ceilings[1:]))
    found = checks(SLOW, on=doubtful)["roof"]
    assert (found.status, found.severity, found.title) == ("fail", "warning", f"DRAM roof {flag}")
    whole = session(snapshot(devices=[doubtful]))["roofs-sound"]
    assert (whole.status, whole.title) == ("fail", "doubtful roofs: 1")
    assert f"DRAM ({flag})" in whole.evidence


def test_a_roof_whose_measurement_ran_out_of_time_is_sound_when_its_interval_is_narrow() -> None:
    roof = bandwidth(4.39e12, flags=("not-converged",))
    assert checks(SLOW, on=device(roofline(roof, *H200.ceilings[1:])))["roof"].status == "pass"


def test_a_sound_roof() -> None:
    found = checks(SLOW)["roof"]
    assert found.status == "pass"
    assert found.evidence == "4.38 TB/s–4.40 TB/s, n = 20, 1 min ago, dram-probe"
    capped = device(roofline(bandwidth(4.39e12, flags=("power-capped",))))
    assert checks(SLOW, on=capped)["roof"].status == "pass"


def test_the_clock_moved() -> None:
    busy = Kernel(median=1e6, flops={"vector/fp32": 60e9})
    found = checks(busy, on=device(clock_hz=1.782e9))["clock"]
    assert (found.status, found.title) == ("fail", "clock 10 % down")
    assert checks(busy, on=device(clock_hz=1.95e9))["clock"].status == "pass"
    assert "clock" not in checks(busy), "the present clock is not known"
    assert "clock" not in checks(busy, on=device(clock_hz=1e9, load=0.1)), "an idle clock"
    assert "clock" not in checks(SLOW, on=device(clock_hz=1e9)), "DRAM does not follow it"
    assert session(snapshot(devices=[device(clock_hz=1e9)]))["clock"].status == "fail"


def test_session() -> None:
    found = session(snapshot(SLOW, AT_ROOF))
    assert {rule: f.status for rule, f in found.items()} == {
        "most-to-gain": "fail",
        "live": "pass",
        "dropped": "pass",
        "roofs-age": "pass",
        "roofs-sound": "pass",
    }
    gain = found["most-to-gain"]
    assert (gain.kernel, gain.gain_ns) == (1, pytest.approx(77.22e6, rel=1e-4))
    assert gain.evidence.startswith("slow: 77.22ms of 100.0ms")
    assert "most-to-gain" not in session(snapshot())
    assert "most-to-gain" not in session(snapshot(SLOW, devices=[device(NO_ROOFS)]))


def on_gpu(name: str, share: float, median: float, moved: float | None) -> Kernel:
    """A row of a GPU that took this share of 10 s; `moved` bytes a launch, None where unknown."""
    known = {} if moved is None else {"dram": moved}
    kind = {"kind": name} if name == "memset" else {}
    return Kernel(
        name,
        median=median,
        launches=int(10e9 * share / median),
        bytes=known,
        device=GPU,
        extra=kind,
    )


H200_GPU = gpu(H200)
UNKNOWN = on_gpu("gemm", 0.7, 1e6, None)
ADD = on_gpu("add", 0.29, 0.4e6, 0.4e-3 * 4.3e12)  # at 98 % of the DRAM roof


def test_a_tiny_memset_is_nothing_to_begin_with() -> None:
    memset = on_gpu("memset", 0.0003, 2100, 4)
    found = session(snapshot(UNKNOWN, ADD, memset, devices=[H200_GPU]))
    assert "most-to-gain" not in found
    lost = found["work-unknown"]
    # Of kernels alone: 7 of 9.9 s; copies and sets run beside them.
    assert (lost.status, lost.title) == ("unknown", "71 % of time has unknown work")
    assert lost.evidence == "GPU0: 7.000s of 9.900s in 1 of 2 kernels, most in gemm"
    assert "region(" in lost.advice
    assert lost.device == GPU
    for row in range(3):
        view = build_view(snapshot(UNKNOWN, ADD, memset, devices=[H200_GPU]), ViewState())
        told = {f.rule: f for f in diagnose_kernel(view, row)}
        assert told["worth-it"].advice == "", told["worth-it"]


def test_a_gain_is_told_from_two_percent_of_the_time_on() -> None:
    # 100 µs at 10 % of the DRAM roof: 90 % of its time is to gain.
    slow = 0.1 * 100e-6 * 4.39e12
    for share, is_told in ((0.021, False), (0.025, True)):  # 0.9 × share of (0.98 + share)
        rows = (ADD, on_gpu("rest", 0.69, 1e6, 4.3e9), on_gpu("slow", share, 100e3, slow))
        found = session(snapshot(*rows, devices=[H200_GPU]))
        assert ("most-to-gain" in found) is is_told, share
        assert "work-unknown" not in found
    assert found["most-to-gain"].kernel == 3


def test_what_any_launch_takes_is_not_to_gain() -> None:
    # All the time is in launches of 2 µs that move 4 bytes: no roof makes them shorter.
    empty = on_gpu("memset", 1.0, 2000, 4)
    assert "most-to-gain" not in session(snapshot(empty, devices=[H200_GPU]))
    found = {
        f.rule: f
        for f in diagnose_kernel(build_view(snapshot(empty, devices=[H200_GPU]), ViewState()), 0)
    }
    distance = found["distance"]
    assert (distance.severity, distance.gain_ns) == ("info", 0.0)
    assert distance.evidence.endswith(
        "its 2.000µs are what any launch takes, however little it does"
    )
    assert distance.advice == "fewer, larger launches"
    adds = replace(empty, name="add", extra={}, flops={"vector/fp32": 1.0})
    view = build_view(snapshot(adds, devices=[H200_GPU]), ViewState())
    latency = {f.rule: f for f in diagnose_kernel(view, 0)}["latency"]
    assert (latency.severity, latency.advice) == ("info", "fewer, larger launches")
    # A memset of 8 µs that moves nothing much has 6 µs to gain in each launch.
    longer = on_gpu("memset", 1.0, 8000, 4)
    gain = session(snapshot(longer, devices=[H200_GPU]))["most-to-gain"]
    assert gain.gain_ns == pytest.approx(0.75 * 10e9)
    # A region of a program on the CPU is no launch.
    region = replace(empty, device=CPU, extra={"kind": "region"})
    assert session(snapshot(region))["most-to-gain"].gain_ns == pytest.approx(10e9, rel=1e-3)


def test_unknown_work_may_be_the_most_to_gain() -> None:
    rows = (on_gpu("gemm", 0.5, 1e6, None), on_gpu("slow", 0.4, 1e6, 2e9))
    view = build_view(snapshot(*rows, devices=[H200_GPU]), ViewState())
    told = {f.rule: f for f in diagnose_kernel(view, 0)}
    assert told["worth-it"].advice == "", "it may have 5 s to gain, slow has 2"


def test_integer_operations_are_no_flops() -> None:
    roofs = roofline(bandwidth(4.39e12), compute(1.5e15, "tensor/int8"))
    kernel = Kernel("k", median=1e6, flops={"tensor/int8": 0.9e12}, device=GPU)
    view = build_view(snapshot(kernel, devices=[gpu(roofs)]), ViewState())
    told = {f.rule: f.evidence for f in diagnose_kernel(view, 0)}
    assert told["distance"].startswith("0.900 of 1.50 POP/s")
    assert told["roof"].startswith("1.49 POP/s–1.51 POP/s")
    both = replace(kernel, bytes={"dram": 1e6})
    view = build_view(snapshot(both, devices=[gpu(roofs)]), ViewState())
    told = {f.rule: f.evidence for f in diagnose_kernel(view, 0)}
    assert told["work"] == "900 GOP int8 declared, 1.00 MB DRAM declared"


def test_session_that_lost_records_or_its_collector() -> None:
    lost = session(snapshot(SLOW, dropped=1234))["dropped"]
    assert (lost.status, lost.title) == ("fail", "1,234 records dropped")
    assert lost.evidence == "1,234 lost, 100 launches seen"
    stale = session(snapshot(stale="the collector died"))["live"]
    assert (stale.status, stale.severity, stale.evidence) == ("fail", "error", "the collector died")


def test_roofs_that_are_old_missing_or_on_their_way() -> None:
    old = device(roofline(bandwidth(1e12, time_unix_s=NOW_S - 40 * 86400), compute(1e12)))
    found = session(snapshot(devices=[old]))["roofs-age"]
    assert (found.status, found.title) == ("fail", "roofs are 40 d old")
    undated = device(roofline(bandwidth(1e12, time_unix_s=0.0)))
    assert session(snapshot(devices=[undated]))["roofs-age"].status == "unknown"
    bare = device(NO_ROOFS)
    found = session(snapshot(devices=[bare]))["roofs"]
    assert (found.status, found.title) == ("unknown", "no roofs are measured")
    busy = replace(bare, progress=Progress(task="t", device=CPU, done=2, total=6))
    assert session(snapshot(devices=[busy]))["roofs"].evidence == "Test CPU: 2 of 6 probes"
    assert session(snapshot(devices=[])).keys() == {"live", "dropped"}


EVERYTHING: Sequence[Kernel] = (
    SLOW,
    AT_ROOF,
    Kernel(median=1e6, flops={"tensor/bf16": 376.5e9, "vector/fp32": 26e9}, gap=2e6, cv=1.0),
    Kernel(median=2e3, launches=3, bytes={"dram": [Work(1e9), Work(0.0, Provenance.MODELLED)]}),
    Kernel(median=1e6, flops={"vector/fp32": 64e9}, bytes={"dram": 0.0, "l2": 1e3}, outer=0),
    Kernel(median=np.nan, launches=0),
    Kernel(median=0.0, flops={"vector/fp32": 0.0}, bytes={"dram": 0.0}),
    Kernel(median=1e12, flops={"vector/fp64": 1e9}, bytes={"l1": 5.0}, total=0),
    Kernel(
        flops={"vector/fp64": 1e9},
        bytes={"l2": Work(1e9, Provenance.SAMPLED, counts="lts__t_bytes")},
    ),
)


@pytest.mark.parametrize("on", [device(clock_hz=1e9, load=0.9), device(NO_ROOFS), None])
def test_findings_fit_and_come_in_order(on: Device | None) -> None:
    found = snapshot(*EVERYTHING, devices=[on] if on else [], dropped=7)
    view = build_view(found, ViewState())
    lists = [diagnose_kernel(view, row) for row in range(len(EVERYTHING))]
    for findings in [*lists, diagnose_session(found)]:
        assert findings
        for finding in findings:
            assert len(finding.title) <= 30, finding.title
            assert "nan" not in finding.title + finding.evidence
            assert "\n" not in finding.evidence + finding.advice
            assert finding.evidence
            assert finding.gain_ns >= 0
        rank = {"fail": 0, "unknown": 1, "pass": 2}
        grade = {"error": 0, "warning": 1, "info": 2}
        keys = [(rank[f.status], grade[f.severity], -f.gain_ns) for f in findings]
        assert keys == sorted(keys)
