"""The screen of sampled counters: what is explained, what untraced, contended rows, a precision to tell."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from made_up import GPU, snapshot
from screen_driver import OpenScreen

from roofmon.model.snapshot import Snapshot
from roofmon.model.table import KernelTable
from roofmon.model.traffic import Traffic
from roofmon.model.work import Provenance
from roofmon.stream.messages import Command

TRAFFIC = Traffic(
    device=GPU,
    dram_bytes_per_s=2.8e12,
    attributed_bytes_per_s=2.66e12,
    untraced_bytes_per_s=0.112e12,
    missing={"gpm_bytes_per_s": "GPM told nothing of the same time"},
)
PIPES = ("tensor/bf16", "tensor/fp16", "tensor/tf32", "tensor/fp8")
REASON = "bench 815 used the GPU beside it: some of its bytes may not be its own"


def counted(traffic: Traffic = TRAFFIC, **first: object) -> Snapshot:
    """The made-up session with counters; `first` changes the description of its first kernel."""
    made = snapshot()
    kernels = made.kernels
    described = (msgspec.structs.replace(kernels.descriptions[0], **first),)
    table = KernelTable(described + kernels.descriptions[1:], kernels.stats, kernels.work)
    return replace(made, kernels=table, traffic={GPU: traffic})


def unclear(told: str = "") -> Snapshot:
    """Its first kernel may be of several precisions, and has no FLOPs until one is told."""
    made = counted(candidates=PIPES, told=told, reasons={"flops": "34 to 137 GFLOP (bf16, …)"})
    flops, moved = made.kernels.work
    values = flops.values.copy()
    values[0] = values[0] if told else np.nan
    work = (replace(flops, values=values), moved)
    return replace(made, kernels=replace(made.kernels, work=work))


@pytest.mark.parametrize(("width", "height"), [(120, 40), (100, 30)])
async def test_the_table_tells_what_is_explained_and_ends_with_what_is_not(
    open_screen: OpenScreen, width: int, height: int
) -> None:
    async with open_screen(width, height, first=counted()) as shown:
        assert "explains 95 % of DRAM" in shown.row("kernels ─")
        last = shown.rows[next(i for i, row in enumerate(shown.rows) if row.startswith("└")) - 1 :]
        assert any("(untraced)" in row for row in last)
        row = shown.row("(untraced)")
        assert "4.0 % of DRAM" in row
        assert "112" in row
        await shown.press("G")  # the last kernel, not that row
        assert "(untraced)" not in shown.selected
        assert "(untraced)" in shown.text
        await shown.press(".", ".", "r")
        assert "(untraced)" in shown.text


async def test_a_small_table_gives_the_row_room_only_where_it_is_much(
    open_screen: OpenScreen,
) -> None:
    async with open_screen(80, 24, first=counted()) as shown:
        assert "(untraced)" not in shown.text
        much = msgspec.structs.replace(TRAFFIC, untraced_bytes_per_s=0.5e12)
        await shown.publish(counted(much))
        assert "(untraced) 500 GB/s, 18 % of DRAM" in shown.text
        assert sum(row.count("µs") for row in shown.rows) >= 4  # kernels still have their rows


async def test_what_cannot_be_told_is_not_applicable_with_its_reason(
    open_screen: OpenScreen,
) -> None:
    nothing = Traffic(device=GPU, missing={"explained": "ncu (99) runs: it may want the counters"})
    async with open_screen(120, 40, first=counted(nothing)) as shown:
        assert "explains n/a of DRAM" in shown.row("kernels ─")
        assert "(untraced)" not in shown.text
        await shown.press("4", "z")
        assert "explained n/a: ncu (99) runs" in shown.text


async def test_a_contended_kernel_is_marked_and_says_who_it_was(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=counted(reasons={"contended": REASON})) as shown:
        assert shown.selected.rstrip("│ ").endswith("!")
        assert "its bytes are contended" in shown.text
        await shown.press("enter")
        assert f"! contended: {REASON}" in shown.row("! contended")


async def test_sampled_bytes_of_l2_have_a_percentage_only_of_a_roof_in_sampled_bytes(
    open_screen: OpenScreen,
) -> None:
    made = counted()
    _, moved = made.kernels.work
    values, counts = 2.0 * moved.values, "lts__t_bytes"
    l2 = replace(moved, key="l2", values=values, provenance=Provenance.SAMPLED, counts=counts)
    made = replace(made, kernels=replace(made.kernels, work=(*made.kernels.work, l2)))
    (device,) = made.devices
    sampled = msgspec.structs.replace(
        next(c for c in device.roofline.ceilings if c.level == "l2"), value=14.4e12, counts=counts
    )
    roofs = msgspec.structs.replace(device.roofline, ceilings=(*device.roofline.ceilings, sampled))
    async with open_screen(100, 30, first=made) as shown:
        await shown.press("enter")
        assert "not measured" in shown.row(" L2  ")
        text = " ".join(shown.text.split())
        assert "n/a: no L2 roof in sampled bytes: roofmon calibrate --full with counters" in text
        await shown.publish(replace(made, devices=(replace(device, roofline=roofs),)))
        assert "L2 sampled 14.4" in shown.row(" L2  ")
        assert "no L2 roof" not in shown.text


async def test_w_tells_the_precision_from_the_table_and_from_the_page(
    open_screen: OpenScreen,
) -> None:
    async with open_screen(120, 40, first=unclear()) as shown:
        kernel = shown.source.snapshot.kernels.descriptions[0].id  # type: ignore[union-attr]
        asked = Command(command="next-precision", device=GPU, kernel=kernel)
        await shown.press("w")
        assert shown.source.sent == [asked]
        assert "its tensor work: the next of bf16, fp16, tf32, fp8, unknown" in shown.text
        await shown.press("enter")
        assert "n/a: 34 to 137 GFLOP" in shown.row("FLOPs")
        assert "w precision" in shown.rows[-1]
        await shown.press("w")
        assert shown.source.sent == [asked, asked]
        await shown.publish(unclear("tensor/bf16"))
        assert "as bf16 by your word" in shown.text
        assert "68.70 GFLOP" in shown.row("FLOPs bf16")


async def test_w_has_nothing_to_tell_where_the_name_tells(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=counted()) as shown:
        await shown.press("w")
        assert "nothing to tell" in shown.text
        await shown.press("enter")
        assert "precision" not in shown.rows[-1].replace(
            "nothing to tell: its name tells its precision", ""
        )
        assert shown.source.sent == []


async def test_the_help_says_what_w_does(open_screen: OpenScreen) -> None:
    async with open_screen(80, 60) as shown:
        await shown.press("?")
        row = shown.row("tensor work")
        assert row.split()[0] == "w"
        assert len(row) <= 80
