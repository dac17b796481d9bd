"""What the screen says when there is nothing to show yet, while roofs are measured, and when data stops."""

from dataclasses import replace

import msgspec
import pytest
from made_up import device, snapshot
from screen_driver import OpenScreen

from roofmon.config import Config, KeySetting
from roofmon.model.session import Notice, Progress
from roofmon.model.snapshot import Device
from roofmon.model.table import EMPTY_TABLE
from roofmon.tui.app import RoofmonApp
from roofmon.tui.strips import cells


async def test_first_frame_says_that_the_collector_starts(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24, first=None) as shown:
        assert shown.rows[0] == " roofmon  starting collector…"
        assert "starting collector…" in shown.text.split("\n", 1)[1]
        assert "q quit" in shown.rows[-1]
        await shown.press("enter", "j", "d")
        assert "the collector is starting" in shown.rows[-1]


async def test_no_kernels_says_what_to_do(open_screen: OpenScreen) -> None:
    nothing = replace(snapshot(), kernels=EMPTY_TABLE, programs={})
    async with open_screen(80, 24, first=nothing) as shown:
        assert "no kernels yet" in shown.text
        assert "region(name" in shown.text
        assert "no program attached" in shown.rows[0]
        assert "bf16 753T" in shown.text  # the roofs are there all the same
        await shown.press("j", "enter", "k", "G")
        assert "no kernels yet" in shown.text


async def test_roofs_appear_one_by_one_while_they_are_measured(open_screen: OpenScreen) -> None:
    def measuring(done: int) -> object:
        progress = Progress(
            task="measuring roofs", device="GPU-5b1cafe0", done=done, total=6, text="dram-triad"
        )
        return replace(
            snapshot(), kernels=EMPTY_TABLE, devices=(replace(device(done), progress=progress),)
        )

    async with open_screen(120, 40, first=measuring(0)) as shown:
        assert "measuring roofs ▕          ▏ 0 of 6" in shown.rows[0]
        assert "dram-triad" in shown.text
        await shown.publish(measuring(3))
        assert "measuring roofs ▕█████     ▏ 3 of 6" in shown.rows[0]
        assert "DRAM 4.39T" in shown.text
        assert "bf16 753T" in shown.text
        assert "fp32 65T" not in shown.text
        await shown.publish(snapshot())
        assert "fp32 65T" in shown.text
        assert "measuring" not in shown.rows[0]


async def test_stale_data_is_marked_in_words_and_kept(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40) as shown:
        row = shown.selected
        shown.source.die("collector died (exit code 1); starting it again in 2 s")
        await shown.settle()
        assert "STALE  collector died (exit code 1); starting it again in 2 s" in shown.rows[0]
        assert "roofline ─ STALE" in shown.text
        assert shown.selected == row
        await shown.press("enter")
        assert "STALE: collector died" in shown.rows[-1]
        await shown.press("escape")
        await shown.publish(snapshot(11))
        assert "STALE" not in shown.text


async def test_dropped_records_are_counted(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=replace(snapshot(), dropped=1234)) as shown:
        assert "1,234 dropped" in shown.row("┌ kernels")
    async with open_screen(80, 24, first=replace(snapshot(), dropped=1234)) as shown:
        await shown.press("3", "z")
        assert "1,234 records dropped" in shown.text


async def test_newest_notice_with_count_until_escape(open_screen: OpenScreen) -> None:
    notices = (
        Notice(severity="info", what="an older one"),
        Notice(severity="error", what="no permission for counters", fix="roofmon doctor"),
    )
    for size in ((80, 24), (120, 40)):
        async with open_screen(*size, first=replace(snapshot(), notices=notices)) as shown:
            assert "error: no permission for counters; roofmon doctor" in shown.text
            assert "1 of 2" in shown.text or size[0] == 80
            await shown.press("escape")
            assert "no permission for counters;" not in shown.text
            newer = (*notices, Notice(severity="warning", what="something new"))
            await shown.publish(replace(snapshot(), notices=newer))
            assert "warning: something new" in shown.text


async def test_faults_in_the_settings_are_told_on_the_screen(open_screen: OpenScreen) -> None:
    config = Config(
        unicode="on",
        theme="roofmon-drak",
        keys={"quti": KeySetting(("x",), "config.toml:3")},
    )
    async with open_screen(160, 40, config=config, notice="told by the command") as shown:
        line = shown.row("warning: ")
        assert "told by the command" in line
        assert 'config.toml:3: there is no action "quti"' in line
        assert "▸①" in shown.text


async def test_remapped_keys_work_and_are_shown(open_screen: OpenScreen) -> None:
    config = Config(unicode="on", keys={"quit": KeySetting(("x",), "config.toml:3")})
    async with open_screen(120, 40, config=config) as shown:
        assert "x quit" in shown.rows[-1]
        await shown.press("q")
        assert shown.app.is_running
        await shown.press("x")
    assert shown.source.closed


async def test_several_devices(open_screen: OpenScreen) -> None:
    second = device()
    description = replace_description(second, uuid="GPU-2", index=1, name="NVIDIA H100")
    both = replace(snapshot(), devices=(device(), description))
    async with open_screen(120, 40, first=both) as shown:
        assert "GPU0 NVIDIA H200" in shown.rows[0]
        await shown.press("right_square_bracket")
        assert "GPU1 NVIDIA H100" in shown.rows[0]
        assert "no kernels on NVIDIA H100" in shown.text
        await shown.press("left_square_bracket")
        assert "GPU0 NVIDIA H200" in shown.rows[0]
        assert "▸①" in shown.text


def replace_description(found: Device, **changes: object) -> Device:
    """The device with some of its description changed."""
    return replace(found, description=msgspec.structs.replace(found.description, **changes))


async def test_missing_numbers_are_na_with_the_reason(open_screen: OpenScreen) -> None:
    found = device()
    assert found.sample is not None
    sample = msgspec.structs.replace(
        found.sample, power_w=None, load=None, missing={"power_w": "no sensor"}
    )
    made = replace(snapshot(), devices=(replace(found, sample=sample),))
    async with open_screen(120, 40, first=made) as shown:
        assert "n/a (no sensor)" in shown.row("│ power ")
        assert "n/a" in shown.row("│ SM ")
        assert "load" not in shown.rows[0]
        assert " 0 %" not in shown.rows[0]


async def test_control_characters_in_names_never_reach_the_terminal(
    open_screen: OpenScreen,
) -> None:
    made = snapshot()
    evil = msgspec.structs.replace(made.kernels.descriptions[0], name="\x1b[2Jevil\x07\u202e")
    table = replace(made.kernels, descriptions=(evil, *made.kernels.descriptions[1:]))
    programs = {4711: "train\x1b]0;x\x07.py"}
    async with open_screen(120, 40, first=replace(made, kernels=table, programs=programs)) as shown:
        for keys in ((), ("enter",)):
            await shown.press(*keys)
            assert "[2Jevil" in shown.text
            assert not set("\x1b\x07\u202e") & set(shown.text)


async def test_wide_names_keep_the_columns(open_screen: OpenScreen) -> None:
    made = snapshot()
    wide = msgspec.structs.replace(made.kernels.descriptions[0], name="行列積" * 12)
    table = replace(made.kernels, descriptions=(wide, *made.kernels.descriptions[1:]))
    async with open_screen(120, 40, first=replace(made, kernels=table)) as shown:
        assert "行列積" in shown.text
        assert {cells(row) for row in shown.rows[1:-1]} == {120}


async def test_screen_that_cannot_be_built_ends_with_the_fault_kept(
    open_screen: OpenScreen,
) -> None:
    async def broken() -> None:
        async with open_screen(120, 40) as shown:
            apps.append(shown.app)
            await shown.publish(replace(snapshot(), kernels=None))
            await shown.pilot.pause()

    apps: list[RoofmonApp] = []
    with pytest.raises(AttributeError):
        await broken()
    assert isinstance(apps[0].fault, AttributeError)
