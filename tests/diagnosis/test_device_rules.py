"""What the checklist says of devices: lost, held back, busy without kernels, bounds instead of roofs."""

from dataclasses import replace

from builders import BOUNDS, GEMM, GPU, SOFTMAX, bandwidth, compute, device, gpu, roofline, snapshot

from roofmon.diagnosis import Finding, about, diagnose_kernel, diagnose_session
from roofmon.model.device import DeviceProcess
from roofmon.model.snapshot import Device
from roofmon.view import ViewState, build_view


def rules(*devices: Device, **more: object) -> dict[str, Finding]:
    return {f.rule: f for f in diagnose_session(snapshot(devices=devices, **more))}


def test_a_lost_gpu_is_an_error_and_comes_first() -> None:
    lost = gpu(
        uuid="GPU-b", index=3, lost="it has fallen off the bus", event_reasons=("power cap",)
    )
    first, *others = diagnose_session(snapshot(devices=[gpu(), lost]))
    assert (first.rule, first.status, first.severity) == ("device-lost", "fail", "error")
    assert (first.title, first.device) == ("GPU3 is lost", "GPU-b")
    assert first.evidence == "NVIDIA H200: it has fallen off the bus"
    assert "clock-limited" not in {f.rule for f in others if f.device == "GPU-b"}
    assert "device-lost" not in rules(gpu())


def test_what_holds_the_clock_back_with_numbers() -> None:
    numbers = {"clock_hz": 1.755e9, "power_w": 698.4, "power_limit_w": 700.0, "temperature_c": 54.0}
    found = rules(gpu(event_reasons=("power cap",), **numbers))["clock-limited"]
    assert (found.status, found.severity) == ("fail", "info")
    assert found.title == "clock limited: power cap"
    assert found.evidence == "GPU0: 1755 of 2000 MHz, 698 of 700 W, 54 °C"
    assert "c draws them" in found.advice
    for reason in ("thermal slowdown (hardware)", "power brake", "hardware slowdown"):
        hot = rules(gpu(event_reasons=("power cap", reason)))["clock-limited"]
        assert (hot.status, hot.severity) == ("fail", "warning")
        assert "cooling" in hot.advice
        assert hot.evidence == "GPU0: no numbers known"
    for nothing in ((), ("idle",)):
        assert rules(gpu(event_reasons=nothing))["clock-limited"].status == "pass"
    assert "clock-limited" not in rules(gpu(), device())


def test_busy_without_kernels() -> None:
    using = [DeviceProcess(pid=i, name=f"p{i}") for i in range(4)] + [DeviceProcess(pid=9)]
    found = rules(gpu(load=0.96, processes=tuple(using)))["kernels-unseen"]
    assert (found.status, found.severity) == ("fail", "info")
    assert found.evidence == "GPU0 is 96 % busy: p0, p1, p2 and 2 more"
    assert "region(…)" in found.advice
    assert rules(gpu(load=0.1, sm_busy=0.9))["kernels-unseen"].evidence == "GPU0 is 90 % busy"
    idle, unknown, other = gpu(load=0.4), gpu(), device(load=1.0)
    assert "kernels-unseen" not in rules(idle) | rules(unknown) | rules(other)
    with_kernels = snapshot(replace(GEMM, device=GPU), devices=[gpu(load=0.9)])
    assert "kernels-unseen" not in {f.rule for f in diagnose_session(with_kernels)}


def test_bounds_are_not_measured_roofs() -> None:
    found = rules(gpu())
    assert (found["roofs"].status, found["roofs"].title) == (
        "unknown",
        "roofs are bounds, not measured",
    )
    assert found["roofs"].evidence == "NVIDIA H200: 7 bounds from widths and clocks"
    assert "roofs-age" not in found
    measured = gpu(roofline(*BOUNDS.ceilings, bandwidth(4.39e12), compute(753e12, "tensor/bf16")))
    found = rules(measured)
    assert found["roofs-age"].evidence == "NVIDIA H200: 2 ceilings"
    assert found["roofs-age"].title == "roofs are 1 min old"


def test_a_kernel_against_a_bound() -> None:
    shown = snapshot(replace(SOFTMAX, device=GPU), devices=[gpu(clock_hz=1e9, load=1.0)])
    found = {f.rule: f for f in diagnose_kernel(build_view(shown, ViewState()), 0)}
    assert found["distance"].title == "38 % of the DRAM bound"
    assert (found["roof"].status, found["roof"].title) == ("unknown", "DRAM: a bound, not measured")
    assert "4.81 TB/s" in found["roof"].evidence
    # Half the bound's clock: of a bound no clock was held while it was measured.
    compute_bound = replace(GEMM, device=GPU, flops={"vector/fp32": 9e9}, bytes={"dram": 1e3})
    shown = snapshot(compute_bound, devices=[gpu(clock_hz=1e9, load=1.0)])
    found = {f.rule: f for f in diagnose_kernel(build_view(shown, ViewState()), 0)}
    assert "fp32 bound" in found["distance"].title
    assert "clock" not in found


def test_what_concerns_the_device_shown() -> None:
    limited = {"event_reasons": ("power cap",)}
    devices = [
        gpu(**limited),
        gpu(uuid="b", index=1, **limited),
        gpu(uuid="c", index=2, lost="gone"),
    ]
    findings = about(devices[0], diagnose_session(snapshot(devices=devices)))
    assert {f.device for f in findings if f.status == "fail"} == {GPU, "c"}
    assert {f.rule for f in findings if f.device == ""} == {"live", "dropped"}
