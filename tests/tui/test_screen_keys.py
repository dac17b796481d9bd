"""Every key does what the registry says it does."""

from dataclasses import replace

from made_up import KERNELS, device, snapshot
from screen_driver import OpenScreen, Shown

from roofmon.actions import ACTIONS
from roofmon.model.session import Progress


def names(shown: Shown) -> list[str]:
    """The kernels of the table from top to bottom, as far as they are written out."""
    known = [name for name, *_ in KERNELS]
    found = []
    for row in shown.rows[17:]:
        found += [name for name in known if f" {name[:20]}" in row][:1]
    return found


async def test_selection_moves_and_stays_with_its_kernel(open_screen: OpenScreen) -> None:
    async with open_screen(120, 24) as shown:
        assert "nvjet_tst_256x128" in shown.selected
        await shown.press("j", "down")
        assert "sgemm_128x128_8x8" in shown.selected
        await shown.press("k")
        assert "softmax_warp_forward" in shown.selected
        await shown.press("G")
        assert "mystery_kernel" in shown.selected
        await shown.press("j")
        assert "mystery_kernel" in shown.selected
        await shown.press("g", "k")
        assert "nvjet_tst_256x128" in shown.selected
        await shown.press("pagedown")
        assert "flash_fwd_kernel" in shown.selected
        await shown.press("pageup", "j")
        assert "softmax_warp_forward" in shown.selected
        await shown.press("full_stop", "full_stop")  # by median, then by launches
        assert "softmax_warp_forward" in shown.selected
        await shown.publish(snapshot(30))
        assert "softmax_warp_forward" in shown.selected


async def test_sorting(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        assert "sort: time ▼" in shown.text
        assert names(shown)[:2] == ["nvjet_tst_256x128_64x4_2x1_v_bz_TNT", KERNELS[1][0]]
        await shown.press("full_stop")
        assert "sort: median ▼" in shown.text
        assert names(shown)[0] == "sgemm_128x128_8x8"
        await shown.press("r")
        assert "sort: median ▲" in shown.text
        assert names(shown)[0] == "tiny_bias<bf16>"
        await shown.press("comma", "comma")
        assert "sort: kernel ▼" in shown.text
        assert names(shown)[0] == "elementwise_kernel mul<bf16>"


async def test_filter_is_live_and_escape_clears_it(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press("slash")
        await shown.type("nvj")
        assert "/nvj" in shown.rows[-1]
        assert "kernels ─ 2 of 13" in shown.text
        await shown.press("backspace", "enter")
        assert "filter: nv" in shown.rows[-1]
        assert "kernels ─ 2 of 13" in shown.text
        await shown.press("j", "j")  # keys are keys again
        assert "nvjet_tst_128x256" in shown.selected
        await shown.press("escape")
        assert "kernels ─ 13 of 13" in shown.text
        assert "filter" in shown.rows[-1]  # the footer's word for `/`
        assert "nvjet_tst_128x256" in shown.selected
        await shown.press("slash")
        await shown.type("!^g(at|em)")
        await shown.press("enter")
        assert "kernels ─ 2 of 13" in shown.text
        await shown.press("slash", "ctrl+u")
        await shown.type("!(")
        await shown.press("enter")
        assert "not a regular expression" in shown.text


async def test_filter_that_matches_nothing_says_what_to_do(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        await shown.press("slash")
        await shown.type("zzz")
        assert "no kernel matches 'zzz'" in shown.text


async def test_panels_take_turns_where_they_do_not_fit(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        assert "DRAM 4.39T" in shown.text
        await shown.press("3")
        assert "of 4.39 TB/s; headroom 1.2×" in shown.rows[2]
        assert "▸①" in shown.text
        await shown.press("4")
        assert shown.rows[1].startswith(" busy ")
        await shown.press("tab")
        assert shown.rows[1].split()[:4] == ["#", "device", "MHz", "W"]
        await shown.press("tab")  # to the chart again
        assert "DRAM 4.39T" in shown.text
        await shown.press("shift+tab", "shift+tab")
        assert shown.rows[1].startswith(" busy ")
        await shown.press("2")
        assert "DRAM 4.39T" in shown.text


async def test_full_screen(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press("z")
        assert "roofline" not in shown.text
        assert "mystery_kernel" in shown.text
        await shown.press("1")
        assert "mystery_kernel" not in shown.text
        assert "roofline ─ DRAM" in shown.text
        await shown.press("4")
        assert "modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0" in shown.text
        await shown.press("escape")
        assert "┌ kernels ─ 13 of 13" in shown.text
        assert "┌ roofline ─ DRAM" in shown.text


async def test_drill_down_is_live_and_escape_leaves_it(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press("j", "enter")
        text = shown.text
        for part in (
            "② softmax_warp_forward<bf16, 11>",
            "GPU0 · train.py 4711",
            "32768×1×1 blocks of 32×4×1 · 40 registers",
            "1.086 GB ± 0.4 %            sampled",
            "170.0 MFLOP                 declared",
            "▂███▃",
            "▸ DRAM",
            "CHECKLIST",
        ):
            assert part in text
        assert shown.row("DRAM 4.39 TB/s").startswith(" ▸ DRAM")  # it binds
        before = shown.row(" TIME ")
        await shown.publish(snapshot(25))
        assert shown.row(" TIME ") != before
        assert "546 launches" in shown.text  # 21 a tick, 26 ticks
        await shown.press("escape")
        assert "softmax_warp_forward" in shown.selected
        assert "GB/s" in shown.text


async def test_baseline_and_difference(open_screen: OpenScreen) -> None:
    async with open_screen(160, 40) as shown:
        await shown.press("d")
        assert "no baseline yet" in shown.rows[-1]
        await shown.press("b")
        assert "baseline kept at" in shown.rows[-1]
        await shown.publish(snapshot(40))
        await shown.press("d")
        for title in ("before", "after", "ratio", "verdict"):
            assert title in shown.row(" #  ")
        assert "= same" in shown.text
        assert "nothing else changed" in shown.rows[0]
        assert "− gone" not in shown.text
        await shown.publish(snapshot(41, 6))  # the other seven have not run any more
        assert "− gone" in shown.text
        await shown.press("d")
        assert "verdict" not in shown.text


async def test_pause_freezes_the_screen_and_says_so(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        before = shown.selected
        await shown.press("p")
        assert "PAUSED" in shown.rows[0]
        await shown.publish(snapshot(50))
        assert shown.selected == before
        await shown.press("p")
        await shown.settle()
        assert "PAUSED" not in shown.rows[0]
        assert shown.selected != before
        assert [c.command for c in shown.source.sent] == ["pause", "resume"]


async def test_calibration_asks_first(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        await shown.press("C")
        assert "measure the roofs of GPU0 again?" in shown.rows[-1]
        assert "n no" in shown.rows[-1]
        await shown.press("n")
        assert shown.source.sent == []
        await shown.press("C", "y")
        assert shown.source.sent[0].command == "calibrate"
        assert shown.source.sent[0].device == "GPU-5b1cafe0"
        await shown.press("R")
        assert shown.source.sent[1].command == "reset"


async def test_a_calibration_going_on_can_be_stopped(open_screen: OpenScreen) -> None:
    progress = Progress(task="calibration", device="GPU-5b1cafe0", done=1, total=6)
    measuring = replace(snapshot(), devices=(replace(device(1), progress=progress),))
    async with open_screen(80, 24, first=measuring) as shown:
        await shown.press("C")
        assert "stop measuring the roofs of GPU0?" in shown.rows[-1]
        await shown.press("y")
        sent = [(c.command, c.device) for c in shown.source.sent]
        assert sent == [("stop-calibration", "GPU-5b1cafe0")]


async def test_zoom_and_its_end(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        whole = shown.rows[1:23]
        await shown.press("plus", "plus")
        assert shown.rows[1:23] != whole
        await shown.press("0")
        assert shown.rows[1:23] == whole
        await shown.press("minus")
        assert shown.rows[1:23] != whole
        await shown.press("plus")
        assert shown.rows[1:23] == whole


async def test_help_lists_every_action(open_screen: OpenScreen) -> None:
    async with open_screen(120, 70) as shown:
        await shown.press("question_mark")
        for action in ACTIONS:
            assert action.description in shown.text
        assert "WHAT THE SCREEN MEANS" in shown.text
        await shown.press("question_mark")
        assert "▸①" in shown.text


async def test_help_scrolls(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        await shown.press("question_mark")
        assert " KEYS" in shown.rows[0]
        await shown.press("G")
        assert "against the baseline" in shown.text
        await shown.press("g")
        assert " KEYS" in shown.rows[0]


async def test_finder_does_what_is_chosen(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press("ctrl+p")
        await shown.type("whole")
        await shown.press("enter")
        await shown.pilot.pause()
        assert "roofline" not in shown.text
        await shown.press("ctrl+p")
        await shown.type("qqq")
        assert "nothing matches" in shown.text
        await shown.press("escape")
        assert "▸①" in shown.text


async def test_themes_take_turns(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        before = shown.app.palette.theme.name
        await shown.press("T")
        after = shown.app.palette.theme.name
        assert after != before
        assert f"theme {after}" in shown.rows[-1]
        assert "▸①" in shown.text


async def test_escape_never_quits_and_q_does(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press(*["escape"] * 5)
        assert shown.app.is_running
        assert not shown.source.closed
        await shown.press("q")
    assert shown.source.closed
    assert shown.app.return_code == 0


async def test_ctrl_c_quits_also_while_typing(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        await shown.press("slash", "q", "ctrl+c")
    assert shown.source.closed
    assert shown.app.return_code == 0
