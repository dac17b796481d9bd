"""The screen of traced programs: their list, the strip of activity, a launch, a program's output."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from made_up import GPU, START_NS, snapshot
from screen_driver import OpenScreen, Shown

from roofmon.config import Config
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column
from roofmon.program.pty_program import PtyProgram
from roofmon.stream.messages import Command

S = 10**9
TRAIN = TracedProgram(
    pid=4711, name="train.py", state="attached", records=5_000, records_per_s=4912.0, cost=0.006
)
EVAL = TracedProgram(pid=4712, name="eval.py", state="dormant")


def traced(tick: int = 10, *programs: TracedProgram) -> Snapshot:
    end = START_NS + tick * S // 2
    activity = Activity(
        device=GPU,
        start_unix_ns=end - S // 2,
        end_unix_ns=end,
        busy_ns=round(0.83 * S / 2),
        launches=100,
        tiny=60,
        streams=3,
    )
    return replace(snapshot(tick), activity={GPU: activity}, traced=programs or (TRAIN, EVAL))


async def test_the_strip_tells_how_busy_and_how_much_is_gaps(open_screen: OpenScreen) -> None:
    async with open_screen(120, 40, first=traced()) as shown:
        strip = shown.row("gaps 17 %")
        assert "busy 83 %" in strip
        assert "60 % under 10 µs" in strip
        assert "▇" in strip
        before = strip.count("▇")
        for tick in range(11, 15):
            await shown.publish(traced(tick))
        assert shown.row("gaps 17 %").count("▇") > before
        assert "tracing ≈0.6 %" in shown.row("kernels ─")
        await shown.publish(snapshot(20))
        assert "gaps" not in shown.text


async def test_at_80x24_the_first_line_tells_how_busy(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24, first=traced()) as shown:
        assert "gaps" not in shown.text
        await shown.press("4")
        assert "busy 83 %" in shown.text
        assert "eval.py 4712: can be traced" in shown.text


async def test_programs_are_attached_to_after_a_yes_and_detached_at_once(
    open_screen: OpenScreen,
) -> None:
    async with open_screen(100, 30, first=traced()) as shown:
        await shown.press("a")
        assert "attached · 4,912 records/s · costs ≈0.6 %" in shown.row("train.py")
        assert "can be traced" in shown.row("eval.py")
        # Beforehand: what it costs, what the profiler misses, what stays behind.
        assert all(word in shown.text for word in ("2 µs", "torch.profiler", "0.7 µs"))
        await shown.press("j", "enter")
        assert "Attach to eval.py 4712? y / n" in shown.text
        await shown.press("n")
        assert shown.source.sent == []
        await shown.press("enter", "y")
        assert shown.source.sent[-1] == Command(command="attach", device=GPU, pid=4712)
        await shown.press("k", "enter")
        assert shown.source.sent[-1] == Command(command="detach", device=GPU, pid=4711)
        await shown.press("escape")
        assert "PROGRAMS" not in shown.text


async def test_why_a_program_is_not_traced_any_more(open_screen: OpenScreen) -> None:
    lost = msgspec.structs.replace(TRAIN, state="yielded", reason="its own profiler took CUPTI")
    async with open_screen(80, 24, first=traced(10, lost)) as shown:
        await shown.press("a")
        assert "let go of" in shown.row("train.py")
        assert "its own profiler took CUPTI" in shown.text
        await shown.publish(traced(11, EVAL))  # it is live
        assert "train.py" not in shown.text


async def test_without_programs_it_says_how_there_come_some(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24) as shown:
        await shown.press("a")
        assert "roofmon run --" in shown.text
        assert "roofmon env" in shown.text
        await shown.press("enter")
        assert "roofmon env" not in shown.text


async def test_one_key_detaches_from_all(open_screen: OpenScreen) -> None:
    async with open_screen(100, 30, first=traced()) as shown:
        await shown.press("D")
        assert shown.source.sent[-1] == Command(command="detach", device=GPU)
        assert "0.7 µs" in shown.rows[-1]


def described(**changes: object) -> Snapshot:
    """The first kernel with other facts, and what is known of its launches."""
    found = traced()
    first, *others = found.kernels.descriptions
    stats = found.kernels.stats.copy()
    stats[Column.STREAMS, 0], stats[Column.STREAM, 0], stats[Column.GRAPH_SHARE, 0] = 1, 13, 0
    descriptions = (msgspec.structs.replace(first, **changes), *others)
    return replace(found, kernels=replace(found.kernels, descriptions=descriptions, stats=stats))


async def test_the_drill_down_of_a_traced_kernel(open_screen: OpenScreen) -> None:
    facts = {
        "grid": (132, 1, 1),
        "block": (384, 1, 1),
        "registers": 168,
        "shared_bytes": 200_000,
        "occupancy": 12 / 64,
        "occupancy_limiter": "registers",
    }
    async with open_screen(140, 40, first=described(**facts)) as shown:
        await shown.press("enter")
        assert "132×1×1 blocks of 384×1×1 · 168 registers · 200 kB shared" in shown.text
        assert "occupancy 19 % in theory (limited by registers)" in shown.text
        assert "stream 13 · no graph" in shown.text
        assert "gap before each 1.900µs" in shown.text
        await shown.publish(described(occupancy=None, reasons={"occupancy": "limits not known"}))
        assert "occupancy n/a (limits not known)" in shown.text


async def test_the_drill_down_of_a_region_with_kernels(open_screen: OpenScreen) -> None:
    def region(inside_ns: float, **reasons: str) -> Snapshot:
        found = described(kind="region", grid=None, reasons=reasons)
        found.kernels.stats[Column.INSIDE_NS, 0] = inside_ns
        return replace(found, kernels=found.kernels.take(np.array([0])))

    async with open_screen(100, 40, first=region(82_400.0)) as shown:
        await shown.press("enter")
        assert "kernels inside 82.40µs, 50 % of it" in shown.text
        await shown.publish(region(np.nan, kernels="it does not wait"))
        assert "kernels inside n/a: it does not wait" in shown.text


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PtyProgram]:
    """A shell that does what is typed, under `roofmon run`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = PtyProgram(["sh", "-c", "trap 'echo caught' INT; cat"], os.environ, (80, 24))
    yield made
    made.start()
    made.signal(signal.SIGKILL)
    made.wait(5)


async def shows(shown: Shown, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, shown.text
        await shown.pilot.pause(0.05)


async def test_a_programs_output_has_a_panel(open_screen: OpenScreen, program: PtyProgram) -> None:
    async with open_screen(120, 40, first=traced(), program=program) as shown:
        program.type(b"hello\n")
        await shows(shown, lambda: "hello" in shown.text)
        assert "output ─ sh · running" in shown.text
        assert program.path.name in shown.row("output ─")
        program.signal(signal.SIGKILL)
        await shows(shown, lambda: "ended with 137" in shown.text)


async def test_the_output_takes_turns_in_a_small_window(
    open_screen: OpenScreen, program: PtyProgram
) -> None:
    async with open_screen(80, 24, first=traced(), program=program) as shown:
        program.type(b"hello\n")
        await shown.press("6")
        await shows(shown, lambda: "hello" in shown.text)
        assert "output ─ sh · running" in shown.text
        await shown.press("tab")  # from the last panel to the first
        assert "hello" not in shown.text
        await shown.press("shift+tab")
        assert "hello" in shown.text


async def test_without_a_program_tab_knows_no_output(open_screen: OpenScreen) -> None:
    async with open_screen(80, 24, first=traced()) as shown:
        for _ in range(6):
            await shown.press("tab")
            assert "roofmon run -- COMMAND shows" not in shown.text
        await shown.press("6")
        assert "roofmon run -- COMMAND shows" in shown.text


async def test_ctrl_c_goes_to_the_program_first(
    open_screen: OpenScreen, program: PtyProgram
) -> None:
    async with open_screen(120, 40, first=traced(), program=program) as shown:
        await shown.press("ctrl+c")
        await shows(shown, lambda: "caught" in shown.text or program.exit_code is not None)
        assert "Ctrl-C went to the program" in shown.text
        assert shown.app.is_running
        await shown.press("ctrl+c")
        assert shown.app.return_code == 0


async def test_the_programs_terminal_is_as_large_as_the_screen(
    open_screen: OpenScreen, program: PtyProgram
) -> None:
    async with open_screen(132, 43, first=traced(), program=program) as shown:
        size = os.get_terminal_size(program._master)
        assert (size.columns, size.lines) == (132, 43)
        await shown.pilot.resize_terminal(90, 30)
        await shows(shown, lambda: os.get_terminal_size(program._master).columns == 90)


async def test_what_is_said_of_tracing_can_be_said_in_ascii(open_screen: OpenScreen) -> None:
    config = Config(unicode="off", refresh_hz=10)
    async with open_screen(120, 40, first=traced(), config=config) as shown:
        for key in ("", "a"):
            await shown.press(*key)
            assert shown.text.isascii()
            assert "?0." not in shown.text
