"""Traced programs and activity in words, and the strip of the last minute."""

import math
from dataclasses import replace

import pytest
from builders import (
    GEMM,
    GPU,
    NOW_NS,
    Kernel,
    bandwidth,
    compute,
    device,
    gpu,
    roofline,
    snapshot,
)

from roofmon.model.activity import Activity, TracedProgram
from roofmon.view import (
    ViewState,
    activity_facts,
    build_view,
    program_facts,
    scene,
    strip,
    tracing_cost,
)
from roofmon.view.tracing import STRIP_NS

S = 10**9


def window(begin_s: float, end_s: float, busy: float, **more: int) -> Activity:
    """A stretch of so many seconds from NOW_NS on, busy for a share of it."""
    begin, end = NOW_NS + round(begin_s * S), NOW_NS + round(end_s * S)
    return Activity(
        device=GPU,
        start_unix_ns=begin,
        end_unix_ns=end,
        busy_ns=round(busy * (end - begin)),
        launches=100,
        **more,
    )


def test_what_a_device_did_in_words() -> None:
    assert activity_facts(window(0, 1, 0.83)) == ["busy 83 %", "gaps 17 %"]
    full = window(
        0, 1, 0.5, launch_bound_ns=S // 4, tiny=60, copies_ns=S // 10, hidden_ns=S // 20,
        streams=3, overlap_ns=S // 20,
    )  # fmt: skip
    assert activity_facts(full)[2:] == [
        "launch-bound 25 %",
        "60 % under 10 µs",
        "copies 10 %, 50 % hidden",
        "3 streams, 10 % overlap",
    ]
    assert activity_facts(window(0, 0, 0.0)) == []


def test_how_a_program_is_doing_in_words() -> None:
    dormant = TracedProgram(pid=1, name="a", state="dormant")
    assert program_facts(dormant) == ["can be traced"]
    attached = TracedProgram(
        pid=2,
        name="b",
        state="attached",
        records=12_345,
        records_per_s=4912.4,
        dropped=7,
        cost=0.006,
    )
    assert program_facts(attached) == [
        "attached",
        "4,912 records/s",
        "costs ≈0.6 %",
        "12,345 records",
        "7 dropped",
    ]
    lost = TracedProgram(pid=3, name="c", state="yielded", reason="torch.profiler took over")
    assert program_facts(lost) == ["let go of", "torch.profiler took over"]
    assert tracing_cost(snapshot(traced=(dormant, attached, lost))) == "tracing ≈0.6 %"
    assert tracing_cost(snapshot(traced=(dormant, lost))) == ""


def test_the_strip_of_the_last_minute() -> None:
    # Cells of 15 s: nothing known for 15 s; 30 s busy half the time; then 10 s full and 5 s idle.
    history = [window(15, 45, 0.5), window(45, 55, 1.0), window(55, 60, 0.0)]
    found = strip(history, 4)
    assert math.isnan(found[0])
    assert found[1:] == pytest.approx([0.5, 0.5, 2 / 3])
    assert strip([], 4) == []
    assert strip(history, 0) == []


def test_history_grows_by_what_is_new_and_forgets_what_is_old() -> None:
    state = ViewState()
    for step in range(200):
        now = snapshot(devices=[gpu()], activity={GPU: window(step / 2, step / 2 + 0.5, 0.5)})
        view = build_view(now, state)
        view = build_view(now, replace(state, history=view.history))  # the same snapshot again
        state = replace(state, history=view.history)
    kept = view.history.activity[GPU]
    assert len(kept) == STRIP_NS // (S // 2)
    assert kept[-1] is now.activity[GPU]
    assert view.activity is now.activity[GPU]
    # Another recording begins earlier: nothing of the one before is drawn.
    earlier = snapshot(devices=[gpu()], activity={GPU: window(-100, -99, 0.5)})
    assert len(build_view(earlier, state).history.activity[GPU]) == 1


def test_what_to_do_about_a_gpu_without_kernels() -> None:
    def message(*programs: TracedProgram) -> str:
        return build_view(snapshot(devices=[gpu()], traced=programs), ViewState()).message

    assert "roofmon run --" in message()
    assert "train.py 7 can be traced: a attaches" in message(
        TracedProgram(pid=7, name="train.py", state="dormant")
    )
    assert "no kernel has run yet" in message(
        TracedProgram(pid=7, name="train.py", state="attached")
    )


def test_a_link_is_drawn_for_the_copy_that_is_selected_only() -> None:
    roofs = roofline(
        bandwidth(4.39e12), bandwidth(54e9, "pcie_h2d"), compute(753e12, "tensor/bf16")
    )
    copy = Kernel("memcpy h2d", launches=1, bytes={"pcie_h2d": 1e6}, extra={"kind": "memcpy"})
    found = snapshot(GEMM, copy, devices=[device(roofs)])

    def drawn(selected: int) -> bool:
        view = build_view(found, ViewState(selected=selected))
        return any("PCIe" in roof.name for roof in scene(view, True).roofs)

    assert not drawn(1)
    assert drawn(2)
