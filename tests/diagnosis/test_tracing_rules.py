"""What the checklist says of traced kernels and of tracing itself, on numbers worked out by hand."""

from dataclasses import replace

from builders import GEMM, GPU, NOW_NS, Kernel, device, gpu, snapshot

from roofmon.diagnosis import Finding, diagnose_kernel, diagnose_session
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.snapshot import Device
from roofmon.view import ViewState, build_view

MS = 1_000_000
BUSY = Activity(
    device=GPU,
    start_unix_ns=NOW_NS - 500 * MS,
    end_unix_ns=NOW_NS,
    busy_ns=450 * MS,
    kernels_ns=500 * MS,
    overlap_ns=50 * MS,
    launches=1000,
    streams=2,
)
ON_GPU = replace(GEMM, device=GPU)


def rules(activity: Activity | None, *programs: TracedProgram, on: Device | None = None, **more):
    found = snapshot(
        *more.pop("kernels", [ON_GPU]),
        devices=[on or gpu(load=0.9)],
        activity={GPU: activity} if activity else {},
        traced=programs,
        **more,
    )
    return {f.rule: f for f in diagnose_session(found)}


def changed(**fields: int) -> Activity:
    import msgspec

    return msgspec.structs.replace(BUSY, **fields)


def program(state: str = "attached", **fields: object) -> TracedProgram:
    return TracedProgram(**{"pid": 4711, "name": "train.py", "state": state, **fields})


def statuses(found: dict[str, Finding], *names: str) -> list[str]:
    return [found[name].status for name in names]


def test_a_busy_gpu_passes() -> None:
    found = rules(BUSY, program())
    assert statuses(found, "launch-bound", "idle", "tiny", "streams") == ["pass"] * 4
    assert found["idle"].title == "busy 90 % of the time"
    # 50 of the 450 ms with a kernel had two.
    assert found["streams"].title == "2 streams, 11 % overlap"
    assert not {"kernels-unseen", "copies", "tracing", "tracing-cost"} & found.keys()


def test_launch_bound_stretches() -> None:
    found = rules(changed(launch_bound_ns=200 * MS, busy_ns=90 * MS, kernels_ns=90 * MS))
    finding = found["launch-bound"]
    assert (finding.status, finding.severity) == ("fail", "warning")
    assert finding.title == "launch-bound 40 % of the time"
    # 90 ms over 1000 launches, 90 of 500 ms.
    assert finding.evidence == "GPU0: kernels of 90.00µs on average, busy 18 %"
    assert "graph" in finding.advice
    assert "idle" not in found  # the same again


def test_idle_for_another_reason() -> None:
    found = rules(changed(busy_ns=100 * MS, kernels_ns=100 * MS, late=3))["idle"]
    assert (found.status, found.title) == ("fail", "idle 80 % of the time")
    assert found.evidence.startswith(
        "GPU0: no traced kernel in 80 % of 500.0ms; 3 records came late"
    )


def test_many_tiny_kernels() -> None:
    found = rules(changed(tiny=800, tiny_ns=4 * MS))["tiny"]
    assert (found.status, found.title) == ("fail", "80 % of the kernels under 10 µs")
    assert found.evidence == "GPU0: 800 of 1,000 launches, 0.8 % of the kernels' time"
    # Few launches: 160/s do not matter, however short they are.
    assert rules(changed(launches=80, tiny=70))["tiny"].status == "pass"


def test_copies_beside_kernels_and_alone() -> None:
    exposed = rules(changed(copies=9, copies_ns=100 * MS, hidden_ns=20 * MS))["copies"]
    assert (exposed.status, exposed.title) == ("fail", "16 % of the time is bare copying")
    assert exposed.evidence == "GPU0: copies 20 % of the time, 20 % of that beside kernels"
    hidden = rules(changed(copies=9, copies_ns=100 * MS, hidden_ns=95 * MS))["copies"]
    assert hidden.status == "pass"
    assert "copies" not in rules(changed(copies=1, copies_ns=MS))


def test_a_busy_gpu_without_kernels_has_its_likely_causes() -> None:
    idle = changed(busy_ns=0, kernels_ns=0, launches=0)

    def advice(activity: Activity | None, *programs: TracedProgram) -> str:
        return rules(activity, *programs, kernels=[])["kernels-unseen"].advice

    assert "roofmon run --" in advice(None)
    assert "roofmon env" in advice(None)
    assert advice(None, program("dormant")) == "train.py 4711 can be traced: a attaches"
    assert "attaches again" in advice(None, program("yielded"))
    assert "first CUDA call" in advice(None, program("starting"))
    assert "another process" in advice(idle, program())
    found = rules(idle, program(), kernels=[])["kernels-unseen"]
    assert found.title == "busy, but no kernels are seen"
    assert found.evidence == "GPU0 is 90 % busy; traced kernels 0.0 % of the time"
    # Also where other kernels ran before; but not where regions alone are known.
    assert "kernels-unseen" in rules(idle, program())
    assert "kernels-unseen" not in rules(None)
    assert "kernels-unseen" not in rules(idle, program(), on=gpu(load=0.2))
    assert "kernels-unseen" not in rules(BUSY, program())


def test_programs_that_are_not_traced_any_more_and_what_tracing_costs() -> None:
    found = rules(None, program("yielded", reason="its callback fell silent"))["tracing"]
    assert (found.status, found.severity) == ("fail", "warning")
    assert found.title == "train.py: its own profiler took over"
    assert found.evidence == "train.py 4711: its callback fell silent"
    assert rules(None, program("failed"))["tracing"].evidence.endswith("no reason was told")
    unseen = rules(None, program(reason="kernels of the first 310ms were not traced"))["tracing"]
    assert (unseen.status, unseen.title) == ("unknown", "train.py: not all is seen")
    assert unseen.evidence == "train.py 4711: kernels of the first 310ms were not traced"
    assert "tracing" not in rules(None, program())
    costly = rules(BUSY, program(cost=0.12, records_per_s=120_000.0))["tracing-cost"]
    assert (costly.status, costly.title) == ("fail", "tracing takes about 12 %")
    assert "120,000 records/s" in costly.evidence
    assert "0.7 µs" in costly.advice


def kernel(on: Device | None = None, **extra: object) -> dict[str, Finding]:
    one = Kernel("k", median=1e5, launches=100, extra=extra)
    found = snapshot(one, devices=[on or device()])
    return {f.rule: f for f in diagnose_kernel(build_view(found, ViewState()), 0)}


def test_occupancy_matters_to_what_waits() -> None:
    extra = {"occupancy": 0.19, "occupancy_limiter": "registers"}
    found = kernel(**extra)["occupancy"]
    assert (found.status, found.title) == ("pass", "occupancy 19 %")
    assert found.evidence == "in theory, limited by registers"
    slow = Kernel("k", median=1e6, flops={"vector/fp32": 1e6}, bytes={"dram": 1e6}, extra=extra)
    view = build_view(snapshot(slow), ViewState())
    waits = {f.rule: f for f in diagnose_kernel(view, 0)}["occupancy"]
    assert (waits.status, waits.severity) == ("fail", "warning")
    assert "occupancy" not in kernel()


def test_a_grid_that_does_not_fill_the_device() -> None:
    h200 = gpu(uuid="cpu-test", about={"cores": 132})
    small = kernel(h200, grid=(33, 2, 1))["grid"]
    assert (small.status, small.title) == ("fail", "66 blocks for 132 SMs")
    assert small.evidence == "50 % of the device has nothing to do"
    assert kernel(h200, grid=(132, 1, 1))["grid"].status == "pass"
    assert "grid" not in kernel(h200)


def test_what_is_asked_of_copies() -> None:
    copy = Kernel("memcpy h2d", median=2000, bytes={"pcie_h2d": 1e5}, extra={"kind": "memcpy"})
    view = build_view(snapshot(copy), ViewState())
    found = {f.rule: f for f in diagnose_kernel(view, 0)}
    assert "short" not in found  # not a kernel to fuse
    assert found["work"].status == "pass"  # a copy has no FLOPs to know


def test_what_is_unknown_of_a_traced_kernel() -> None:
    reason = "times alone do not tell"
    found = kernel(grid=(1, 1, 1), reasons={"flops": reason, "bytes": reason})["work"]
    assert (found.status, found.evidence) == ("unknown", reason)
    assert "counters" in found.advice
