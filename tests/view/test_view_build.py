"""The view: device, selection, filter, numbers of the points, headline, messages."""

import time
from dataclasses import replace

import numpy as np
import pytest
from builders import COPY, CPU, GEMM, GPU, SNAPSHOT, SOFTMAX, Kernel, device, gpu, snapshot

from roofmon.model.roofline import NO_ROOFS
from roofmon.model.snapshot import Device, Snapshot
from roofmon.view import View, ViewState, build_view, columns_for, row_cells, scene


def names(view: View) -> list[str]:
    return [view.table.descriptions[row].name for row in view.order]


def test_most_time_first_and_selected() -> None:
    view = build_view(SNAPSHOT, ViewState())
    assert names(view) == ["gemm", "softmax", "Copy", "nothing"]
    assert view.selected == 2
    assert view.selected_position == 0
    assert view.marks == {2: 1, 4: 2, 1: 3, 3: 4}
    assert view.message == ""
    assert [view.id_at(position) for position in range(view.row_count)] == [2, 4, 1, 3]


def test_headline_is_the_answer() -> None:
    # 580 MB in 164.8 µs are 3.52 TB/s, 80.2 % of 4.39; 1.069 GB in 577.7 µs are 1.85, 42 %.
    view = build_view(SNAPSHOT, ViewState())
    assert view.headline == "gemm: 80 % of the DRAM roof, 3.52 of 4.39 TB/s, headroom 1.2×"
    view = build_view(SNAPSHOT, ViewState(selected=4))
    assert view.headline == "softmax: 42 % of the DRAM roof, 1.85 of 4.39 TB/s, headroom 2.4×"
    view = build_view(SNAPSHOT, ViewState(selected=1))
    assert view.headline.endswith("headroom 1.0×; its FLOPs are not known")
    view = build_view(SNAPSHOT, ViewState(selected=3))
    assert view.headline == "nothing: 1.000µs a launch; its FLOPs and bytes are not known"


def test_headline_when_something_is_missing() -> None:
    unroofed = build_view(snapshot(GEMM, devices=[device(NO_ROOFS)]), ViewState())
    assert unroofed.headline == "gemm: 3.52 TB/s DRAM, 417 TFLOP/s; no roof is measured for it yet"
    integer = Kernel("igemm", median=1e6, flops={"tensor/int8": 4e11})
    headline = build_view(snapshot(integer, devices=[device(NO_ROOFS)]), ViewState()).headline
    assert headline == "igemm: 400 TOP/s; no roof is measured for it yet"
    untimed = replace(GEMM, median=np.nan, extra={"reasons": {"time": "a GPU region is not timed"}})
    view = build_view(snapshot(untimed), ViewState())
    assert view.headline == "gemm: its time is not known: a GPU region is not timed"
    over = replace(COPY, median=50_000)
    view = build_view(snapshot(over), ViewState())
    assert view.headline == (
        "Copy: 196 % of the DRAM roof, 8.60 of 4.39 TB/s: over its roof, see the checklist"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SOFT", ["softmax"]),
        ("m", ["gemm", "softmax"]),
        ("!^(copy|g)", ["gemm", "Copy"]),
        ("!", ["gemm", "softmax", "Copy", "nothing"]),
        (".", []),
    ],
)
def test_filter(text: str, expected: list[str]) -> None:
    view = build_view(SNAPSHOT, ViewState(filter=text))
    assert names(view) == expected
    assert bool(view.message) == (not expected)
    assert view.selected == (None if not expected else {"softmax": 4, "gemm": 2}[expected[0]])


@pytest.mark.parametrize("text", ["!(", "!*", "![", "!(?P<n>", "!a{99999999999999999999}"])
def test_a_faulty_regex_is_told_and_hides_nothing(text: str) -> None:
    view = build_view(SNAPSHOT, ViewState(filter=text))
    assert len(view.order) == 4
    assert view.message.startswith("not a regular expression: ")


def test_selection_stays_while_it_is_shown() -> None:
    assert build_view(SNAPSHOT, ViewState(selected=3, sort="kernel")).selected == 3
    assert build_view(SNAPSHOT, ViewState(selected=3, filter="soft")).selected == 4
    assert build_view(SNAPSHOT, ViewState(selected=99)).selected == 2


def test_numbers_stay_with_their_kernels() -> None:
    def ranked(*shares: float) -> Snapshot:
        return snapshot(*(Kernel(str(i), median=share) for i, share in enumerate(shares, start=1)))

    def marks(found: Snapshot, points: int, before: View | None = None) -> View:
        return build_view(found, ViewState(points=points, marks=before.marks if before else {}))

    first = marks(ranked(50, 40, 30, 20), 4)
    assert first.marks == {1: 1, 2: 2, 3: 3, 4: 4}
    # The order changes, the numbers do not.
    second = marks(ranked(20, 30, 40, 50), 4, first)
    assert second.marks == first.marks
    # 5 overtakes 4 by a place, which is not enough; then by two.
    third = marks(ranked(50, 40, 30, 20, 21), 4, second)
    assert third.marks == first.marks
    fourth = marks(ranked(50, 40, 30, 20, 31), 4, third)
    assert fourth.marks == {1: 1, 2: 2, 3: 3, 5: 4}
    # What takes most time has a number at once.
    assert 5 in marks(ranked(50, 40, 30, 20, 99), 4, first).marks
    assert marks(ranked(50, 40, 99), 2, marks(ranked(50, 40), 2)).marks == {1: 1, 3: 2}
    # Kernels that are gone give their numbers back; a smaller chart numbers from 1 as well.
    assert marks(snapshot(Kernel(id=7), Kernel(id=8)), 4, first).marks == {7: 1, 8: 2}
    assert marks(ranked(1, 2, 3, 4), 2, first).marks == {4: 1, 3: 2}
    assert marks(snapshot(), 4, first).marks == {}


def test_messages_when_there_is_nothing_to_show() -> None:
    assert build_view(snapshot(devices=[]), ViewState()).message.startswith("no device yet")
    empty = build_view(snapshot(), ViewState())
    assert empty.message.startswith("no kernels yet: wrap code in")
    assert (empty.selected, empty.headline, empty.row_count) == (None, "", 0)
    two = snapshot(GEMM, devices=[device(), device(uuid="b", name="Other")])
    assert build_view(two, ViewState(device="b")).message == (
        "no kernels on Other: [ and ] go to other devices"
    )
    assert "'xyz'" in build_view(SNAPSHOT, ViewState(filter="xyz")).message


def test_only_the_kernels_of_the_device() -> None:
    other = replace(COPY, device="gpu-b")
    both = snapshot(other, GEMM, devices=[device(uuid="empty"), device(), device(uuid="gpu-b")])
    assert names(build_view(both, ViewState(device=CPU))) == ["gemm"]
    assert names(build_view(both, ViewState(device="gpu-b"))) == ["Copy"]
    assert names(build_view(both, ViewState())) == ["gemm"], "the first device that has kernels"
    assert names(build_view(both, ViewState(device="lost"))) == ["gemm"]
    assert build_view(both, ViewState(device="gpu-b")).table.time_share.tolist() == [1.0]


def test_a_device_that_is_not_there_is_said_and_the_default_shown() -> None:
    host = snapshot(devices=[device(), gpu(uuid="GPU-1a2b-x"), gpu(uuid="GPU-1a3c-y", index=1)])
    assert build_view(host, ViewState(device="1")).device is host.devices[2]
    wrong = build_view(host, ViewState(device="9"))
    assert wrong.device is host.devices[1]
    assert wrong.message.startswith("there is no device '9'; there are: cpu, 0 (GPU-1a2b-x)")
    assert "more than one" in build_view(host, ViewState(device="GPU-1a")).message
    # Devices that have yet to be told are not missing.
    assert "there is no" not in build_view(snapshot(devices=[]), ViewState(device="9")).message


def test_the_device_shown_at_first() -> None:
    hidden, visible = gpu(uuid="GPU-a", about={"selected": False}), gpu(uuid="GPU-b", index=1)

    def first(*devices: Device, kernels: tuple[Kernel, ...] = ()) -> str:
        shown = build_view(snapshot(*kernels, devices=devices), ViewState()).device
        assert shown is not None
        return shown.description.uuid

    assert first(device(), hidden, visible) == "GPU-b"
    assert first(device(), hidden) == "GPU-a"
    assert first(device()) == CPU
    assert first(device(), hidden, visible, kernels=(replace(GEMM, device="GPU-a"),)) == "GPU-a"
    assert first(device(), hidden, visible, kernels=(GEMM,)) == CPU


def test_percentages_of_a_bound_say_so() -> None:
    view = build_view(snapshot(replace(SOFTMAX, device=GPU), devices=[gpu()]), ViewState())
    # 1.069 GB in 577.7 µs is 1.85 TB/s of 4.814.
    assert view.headline.startswith("softmax: 38 % of the DRAM bound, 1.85 of 4.81 TB/s")


def test_five_thousand_kernels_are_quick() -> None:
    rng = np.random.default_rng(3)
    kernels = [
        Kernel(
            f"kernel_{i}",
            median=float(rng.uniform(1e3, 1e6)),
            flops={"vector/fp32" if i % 3 else "tensor/bf16": float(rng.uniform(1e6, 1e9))},
            bytes={"dram": float(rng.uniform(1e6, 1e9))},
        )
        for i in range(5000)
    ]
    large = snapshot(*kernels)
    columns = columns_for(120)

    def build() -> float:
        start = time.process_time()
        view = build_view(replace(large, kernels=replace(large.kernels)), ViewState(filter="9"))
        for position in range(30):
            row_cells(view, position, columns)
        scene(view)
        return time.process_time() - start

    # About 8 ms here; the bound only catches a return to work per row.
    assert min(build() for _ in range(5)) < 0.05
