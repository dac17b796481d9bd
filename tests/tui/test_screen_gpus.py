"""GPUs on the screen: the device's own point, its panel, several devices, loss, bounds, clocks."""

from dataclasses import replace

import builders
import pytest
from made_up import GPU, gpu, gpus, snapshot
from screen_driver import OpenScreen, Shown

from roofmon.config import Config
from roofmon.model.session import Rung
from roofmon.tui.strips import cells


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("count", [1, 2, 8, 16])
async def test_any_number_of_gpus_at_any_size(
    open_screen: OpenScreen, size: tuple[int, int], count: int
) -> None:
    async with open_screen(*size, first=gpus(count)) as shown:
        assert "GPU0 NVIDIA H200  1755 MHz  698/700 W  power cap" in shown.rows[0]
        assert "DRAM 4.81T bound" in shown.text
        assert "◉" in chart(shown)
        for keys in ("4", "z", "5", "z", "1"):
            await shown.press(keys)
            assert len(shown.rows) == size[1]
            assert max(cells(row) for row in shown.rows) <= size[0]
        await shown.press("5")
        last = count - 1
        await shown.press("G")
        assert f"GPU{last} NVIDIA H200" in shown.rows[0]
        assert f"▸ {last:>2} NVIDIA H200" in shown.text
        await shown.press("g")
        assert "▸  0 NVIDIA H200" in shown.text


def chart(shown: Shown) -> str:
    return "\n".join(row for row in shown.rows[1:24] if "◉ GPU" not in row)


async def test_the_status_line_of_a_gpu(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=gpus(1, tick=0)) as shown:
        # At the first tick 461 of 1070.5 TFLOP/s.
        assert shown.rows[0].startswith(
            " roofmon  GPU0 NVIDIA H200  1755 MHz  698/700 W  power cap  54 °C  DRAM 2.81 TB/s  tensor 43 %"
        )
        note = shown.row("┌ roofline")
        assert "roofline ─ DRAM" in note
        # 465.1 / 2.81
        assert "◉ GPU0 ≤465 TFLOP/s bf16 at 166 FLOP/byte" in note  # at its power cap


async def test_the_small_panel_has_the_most_telling_lines(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=gpus(1, tick=0)) as shown:
        right = [row.rpartition("││")[2].strip(" │") for row in shown.rows[2:8]]
        assert right == [
            "SM     ████▊ 96 %  occ 58 %",
            "DRAM   ██▉   2.8 of 4.81 TB/s",
            "bf16   ██▏   0.46 of 1.07 PFLOP/s",
            "PCIe   in 210 MB/s, out 40.0 MB/s",
            "memory 61.0 of 141 GiB · 3 procs",
            "limits power cap",
        ]


async def test_the_full_panel_has_everything_and_scrolls(open_screen: OpenScreen) -> None:
    parts = (
        "DRAM        ██▉   2.81 of 4.81 TB/s, 58 % of the DRAM bound",
        "fp32        ▎     4.10 of 66.9 TFLOP/s, 6.1 % of the fp32 bound",
        "power       698 of 700 W, 54 °C",
        "clock       1755 MHz, memory 3201 MHz",
        "NVLink      n/a (this board has no NVLink)",
        "memory busy 80 % (share of time)",
        "processes   4711  train.py (ada)  58.0 GiB",
        "815  3.00 GiB  in another namespace",
        "PCI 00000000:1B:00.0",
    )
    async with open_screen(120, 40, first=gpus(1, tick=0)) as shown:
        await shown.press("4", "z")
        for part in parts:
            assert part in shown.text
    async with open_screen(80, 24, first=gpus(1, tick=0)) as shown:
        await shown.press("4", "z")
        assert all(part in shown.text for part in parts[:-1])
        assert parts[-1] not in shown.text
        assert "lines below, j scrolls" in shown.rows[22]
        await shown.press("G")
        assert parts[-1] in shown.text
        assert parts[0] not in shown.text
        await shown.press("k", "pageup", "g")
        assert parts[0] in shown.text


async def test_reasons_are_wrapped_not_cut_in_the_full_panel(open_screen: OpenScreen) -> None:
    reason = (
        "this GPU has no GPM (compute capability 8.0; it begins with 9.0), so pipes cannot be told"
    )
    made = gpu(rates=None, sm_busy=None, missing={"rates": reason, "sm_busy": reason})
    async with open_screen(80, 24, first=replace(gpus(1), devices=(made,))) as shown:
        await shown.press("4")
        assert shown.rows[1].startswith(" busy   ████▊ 96 %")
        assert shown.rows[2].startswith(" DRAM   n/a (this GPU has no GPM")
        await shown.press("z")
        text = " ".join(shown.text.split())
        assert f"DRAM n/a ({reason})" in text
        assert f"SM n/a ({reason})" in text
    async with open_screen(120, 40, first=replace(gpus(1), devices=(made,))) as shown:
        assert "no point: this GPU has no GPM" in shown.row("┌ roofline")
        assert "◉" not in shown.text


async def test_a_lost_gpu_among_others(open_screen: OpenScreen) -> None:
    why = "GPU is lost: it has fallen off the bus"
    async with open_screen(80, 24, first=gpus(8)) as shown:
        assert shown.rows[22].startswith(" ✗ GPU3 is lost")
        await shown.press("5")
        assert f"lost: {why}" in shown.row("  3 NVIDIA")
        assert "power cap" in shown.row("  4 NVIDIA")
        await shown.press("right_square_bracket", "j", "j")
        assert f"GPU3 NVIDIA H200  LOST: {why}" in shown.rows[0]
        await shown.press("4")
        assert f"LOST: {why}" in shown.rows[1]
        # And it comes back.
        healthy = replace(gpus(8, 11), devices=tuple(gpu(i, 11) for i in range(8)))
        await shown.publish(healthy)
        assert "lost" not in shown.text.casefold()
        assert "GPU3 NVIDIA H200  1755 MHz" in shown.rows[0]


async def test_sixteen_gpus_scroll_on_a_small_terminal(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24, first=gpus(16)) as shown:
        await shown.press("5")
        assert "  0 NVIDIA" in shown.text
        assert " 15 NVIDIA" not in shown.text
        await shown.press(*"jjjjjjjjjjjjjjj")
        assert "▸ 15 NVIDIA" in shown.text
        assert "  0 NVIDIA" not in shown.text
        await shown.press("j")
        assert "▸ 15 NVIDIA" in shown.text
        await shown.press("z")
        assert "  0 NVIDIA" in shown.text
        assert "▸ 15 NVIDIA" in shown.text


async def test_the_trail_grows_and_stays_with_its_device(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=gpus(2, 0)) as shown:
        for tick in range(2, 12, 2):
            await shown.publish(gpus(2, tick))
        assert shown.app.view_state is not None
        history = shown.app.view_state.history
        assert len(history.trail(GPU)) == 6
        assert len(history.trail("GPU-00000001")) == 6
        await shown.press("right_square_bracket", "j", "T")
        assert len(shown.app.view_state.history.trail(GPU)) == 6


async def test_lines_at_the_present_clock(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=gpus(1)) as shown:
        assert "at 1755 MHz" not in shown.text
        await shown.press("c")
        # 1070.5 × 1755 / 1980; the other pipes do next to nothing.
        assert "bf16 949T at 1755 MHz" in shown.text
        await shown.press("c")
        assert "at 1755 MHz" not in shown.text
        await shown.publish(replace(gpus(1), devices=(gpu(clock_hz=None),)))
        await shown.press("c")
        assert "clock is not known" in shown.rows[-1]


async def test_measured_roofs_take_the_place_of_bounds(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=gpus(1)) as shown:
        assert "roofs: bounds, not measured" in shown.rows[-1]
        await shown.publish(snapshot())
        assert "roofs measured 3 h ago" in shown.rows[-1]
        assert " bound " not in chart(shown)


async def test_details_of_sources_give_way_to_the_age_of_the_roofs(open_screen: OpenScreen) -> None:
    told = {"nvml": "1 GPU", "gpm": "", "tracing": "1 attached", "counters": "988 samples/s"}
    rungs = (
        *(Rung(rung=name, state="active", reason=reason) for name, reason in told.items()),
        Rung(rung="regions", state="waiting", reason="no program declares any"),
    )
    async with open_screen(120, 40, first=replace(snapshot(), rungs=rungs)) as shown:
        assert (
            "tracing ✓  counters ✓ 988 samples/s  regions …  roofs measured 3 h ago"
            in shown.rows[-1]
        )
    async with open_screen(160, 40, first=replace(snapshot(), rungs=rungs)) as shown:
        assert "nvml ✓ 1 GPU  gpm ✓  tracing ✓ 1 attached" in shown.rows[-1]


async def test_gpus_in_ascii(open_screen: OpenScreen) -> None:
    config = Config(unicode="off", refresh_hz=10)
    async with open_screen(120, 40, first=gpus(4), config=config) as shown:
        assert "@ GPU0" in shown.row("+ roofline")
        for key in ("5", "z", "4"):
            await shown.press(key)
            assert shown.text.isascii()


async def test_integer_operations_are_no_flops(open_screen: OpenScreen) -> None:
    kernel = builders.Kernel(
        "igemm", median=1e6, flops={"tensor/int8": 0.9e12}, bytes={"dram": 1e9}, device=builders.GPU
    )
    roofs = builders.roofline(builders.bandwidth(4.39e12), builders.compute(1.5e15, "tensor/int8"))
    made = builders.gpu(roofs, rates={"dram": 1e12, "tensor/int8": 750e12})
    async with open_screen(120, 40, first=builders.snapshot(kernel, devices=[made])) as shown:
        assert "0.75 of 1.50 POP/s" in shown.text  # the device
        await shown.press("4", "z")
        assert "int8" in shown.row("1.50 POP/s ± 0.5 %")  # its roofs
        await shown.press("z", "1", "enter")
        assert "900 TOP/s" in shown.row("int8 1.50 POP/s")
        assert "900.0 GOP" in shown.row("OPs int8")
        assert "FLOP/s" not in shown.text
