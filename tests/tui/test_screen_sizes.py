"""What the screen shows at each size, and that it takes every resize."""

from pathlib import Path

import pytest
from screen_driver import OpenScreen

from roofmon.config import Config

GOLDEN = Path(__file__).parent / "golden"


async def test_small_terminal_reads_as_intended(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        assert shown.text == (GOLDEN / "main_80x24.txt").read_text().rstrip("\n")


async def test_small_terminal_has_the_promised_lines(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        rows = shown.rows
        assert len(rows) == 24
        assert "GPU0 NVIDIA H200" in rows[0]
        header = next(i for i, row in enumerate(rows) if row.startswith(" #"))
        assert header == 16  # one status line, fifteen of chart
        for title in ("kernel", "time %", "of roof", "bound"):
            assert title in rows[header]
        assert sum("①②③④⑤".find(row[1:2]) >= 0 for row in rows[header + 1 : header + 6]) == 5
        assert rows[22].startswith(" ✗ 80 % of the DRAM roof")
        assert "q quit" in rows[23]
        assert "NVML ✓" in rows[23]


@pytest.mark.parametrize("size", [(100, 24), (80, 40), (120, 36), (120, 40), (200, 60)])
async def test_larger_terminals_show_more(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(*size) as shown:
        text = shown.text
        assert len(shown.rows) == size[1]
        assert max(len(row) for row in shown.rows) <= size[0]
        for part in ("DRAM 4.39T", "bf16 753T", "▸①", "softmax_warp", "NVML ✓", "q quit"):
            assert part in text
        assert ("checklist: ①" in text) == (size[1] >= 30)
        assert ("┌ GPU0 ─ NVIDIA H200" in text) == (size[0] >= 100 and size[1] >= 30)
        assert ("variation  " in text) == (size[0] >= 200)


async def test_tiny_window_says_so_and_recovers(open_screen: OpenScreen) -> None:
    async with open_screen(20, 5) as shown:
        assert [row.strip() for row in shown.rows if row] == ["needs 40×12"]
        await shown.pilot.resize_terminal(30, 20)
        assert "window too small: needs 40×12" in shown.text
        await shown.pilot.resize_terminal(40, 12)
        assert "▸①" in shown.text
        await shown.pilot.resize_terminal(120, 40)
        assert "checklist: ①" in shown.text
        await shown.pilot.resize_terminal(20, 5)
        assert "needs 40×12" in shown.text


async def test_ascii_sends_nothing_else(open_screen: OpenScreen) -> None:
    config = Config(unicode="off", refresh_hz=10)
    async with open_screen(120, 40, config=config) as shown:
        for keys in ("", "z", "4", "z2b", "d", "?"):
            await shown.press(*keys)
            assert shown.text.isascii()
            assert len(shown.text) > 500
        await shown.press("escape", "enter")
        assert shown.text.isascii()
        assert "CHECKLIST" in shown.text
