"""What `--once` prints: golden texts, any width, ASCII, no colour, and everything missing."""

import io
import os
from pathlib import Path

import pytest
from builders import GPU, Kernel, Work, device, gpu, snapshot
from rich.cells import cell_len

from roofmon.chart import render
from roofmon.config import Config
from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.roofline import NO_ROOFS
from roofmon.model.session import Notice, Rung
from roofmon.model.snapshot import Snapshot
from roofmon.model.work import Provenance
from roofmon.report.text import chart_lines, print_once, render_once
from roofmon.report.words import fitted, tidy
from roofmon.view import ViewState, build_view, scene

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "ROOFMON_UPDATE_GOLDEN"


def work(
    flops: float, moved: float, microseconds: float, pipe: str = "vector/fp32"
) -> dict[str, object]:
    """The work of kernel that does so many TFLOP/s and moves so many TB/s."""
    seconds = microseconds * 1e-6
    return {
        "median": microseconds * 1e3,
        "flops": {pipe: flops * 1e12 * seconds},
        "bytes": {"dram": moved * 1e12 * seconds},
    }


SNAPSHOT = snapshot(
    Kernel("nvjet bf16 256×128 TNT", launches=1210, **work(417, 3.52, 164.8, "tensor/bf16")),  # type: ignore[arg-type]
    Kernel(
        "softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>",
        median=577_700,
        launches=210,
        flops={"vector/fp32": Work(0.17e9, Provenance.SAMPLED, upper_bound=True)},
        bytes={"dram": [Work(1.086e9, Provenance.SAMPLED), Work(1.074e9, Provenance.MODELLED)]},
    ),
    Kernel("elementwise mul<bf16>", launches=210, gap=1900, **work(0.1, 4.31, 253.1)),  # type: ignore[arg-type]
    Kernel("copy", launches=210, **work(0, 3.9, 253.1)),  # type: ignore[arg-type]
    Kernel("not declared", median=12_500, launches=3),
    devices=[device(clock_hz=1.755e9, load=0.96, memory_used_bytes=61 * 2**30, temperature_c=54.4)],
    dropped=12,
    rungs=(
        Rung(rung="cpu", state="active"),
        Rung(rung="regions", state="active", reason="1 connected"),
        Rung(rung="nvml", state="unavailable", reason="no NVIDIA GPU found here"),
        Rung(rung="gpm", state="unavailable", reason="no NVIDIA GPU found here"),
        Rung(rung="counters", state="off", reason="not permitted", fix="ask an administrator"),
    ),
    notices=(Notice(severity="warning", what="the cache cannot be written", fix="make room"),),
)


def text(found: Snapshot, width: int, unicode: bool = True, **state: object) -> str:
    lines = render_once(found, ViewState(**state), width, unicode)  # type: ignore[arg-type]
    return "\n".join(line.plain for line in lines) + "\n"


@pytest.mark.parametrize(("width", "unicode"), [(80, True), (120, True), (80, False)])
def test_golden(width: int, unicode: bool) -> None:
    """Everything but the chart, whose own tests hold its looks."""
    view = build_view(SNAPSHOT, ViewState())
    canvas = render(scene(view, unicode), width, 15 if width < 100 else 20)
    chart = "\n".join(canvas.characters)
    shown = text(SNAPSHOT, width, unicode)
    assert chart in shown
    found = shown.replace(chart, "(chart)")
    golden = GOLDEN / f"once-{width}{'' if unicode else '-ascii'}.txt"
    if os.environ.get(UPDATE):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8"), f"{UPDATE}=1 writes it anew"


@pytest.mark.parametrize("width", [60, 80, 97, 120, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_nothing_is_wider_than_asked(width: int, unicode: bool) -> None:
    baseline = snapshot(Kernel("gone"), Kernel("copy", median=1e6))
    for more in ({}, {"baseline": baseline, "difference": True}, {"filter": "!("}):
        shown = text(SNAPSHOT, width, unicode, **more)
        assert max(cell_len(line) for line in shown.splitlines()) <= width
        assert unicode or shown.isascii()


def test_difference_says_what_changed() -> None:
    baseline = snapshot(
        Kernel(
            "copy", median=506_200, flops={"vector/fp32": 0.0}, bytes={"dram": 3.9e12 * 253.1e-6}
        ),
        Kernel("gone"),
        devices=[device(clock_hz=1.98e9)],
    )
    shown = text(SNAPSHOT, 120, baseline=baseline, difference=True)
    assert "changed: clock 1,980 → 1,755 MHz" in shown
    assert "▲ faster" in shown
    assert "2.00× [1.97, 2.03]" in shown
    assert "− gone" in shown
    assert "+ new" in shown


def test_why_a_kernel_is_not_on_the_chart() -> None:
    view = build_view(SNAPSHOT, ViewState())
    below = [line.plain for line in chart_lines(view, 100, True)][20:]
    assert below == ["not on the chart: ④ (does no FLOPs), ⑤ (its FLOP/s is unknown)"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (snapshot(devices=[]), "no device yet"),
        (snapshot(), "no kernels yet"),
        (snapshot(Kernel("a"), devices=[device(NO_ROOFS)]), "no roofs: roofmon calibrate"),
        (snapshot(Kernel("a", bytes={"dram": 1e9})), "FLOPs unknown"),
        (snapshot(Kernel("a", flops={"vector/fp32": 1e9})), "bytes unknown"),
        (snapshot(Kernel("a"), stale="the collector died"), "not live: the collector died"),
        (snapshot(Kernel("a"), dropped=5), "5 records dropped"),
        (snapshot(*(Kernel(str(i)) for i in range(25))), "and 5 more kernels"),
    ],
)
def test_whatever_is_missing_is_said(found: Snapshot, expected: str) -> None:
    for width in (80, 120):
        assert expected in text(found, width)


def printed(
    monkeypatch: pytest.MonkeyPatch, config: Config, encoding: str, columns: str = "90"
) -> str:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    print_once(SNAPSHOT, config, stream)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined, no-any-return]


def test_print_goes_by_encoding_width_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, Config(), "utf-8") == text(SNAPSHOT, 90)
    assert printed(monkeypatch, Config(), "latin-1") == text(SNAPSHOT, 90, unicode=False)
    assert printed(monkeypatch, Config(unicode="off"), "utf-8") == text(SNAPSHOT, 90, unicode=False)
    level = printed(monkeypatch, Config(level="l2"), "utf-8")
    assert level == text(SNAPSHOT, 90, level="l2")
    assert printed(monkeypatch, Config(), "utf-8", columns="10") == text(SNAPSHOT, 60)


def test_names_from_outside_cannot_reach_the_terminal() -> None:
    shown = text(snapshot(Kernel("evil\x1b[31m\nname\u202e", bytes={"dram": 1e9})), 100)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "evil [31m name" in shown


def test_words() -> None:
    assert tidy("✓ 2.4× ≤ 5 µs → é", False) == "+ 2.4x <= 5 us -> ?"
    assert tidy("a\x07b", True) == "a b"
    assert fitted("kernel", 4) == "ker…"
    assert fitted("kernel", 4, ellipsis="...") == "k..."
    assert fitted("ab", 4, "right") == "  ab"
    assert fitted("漢字漢字", 5) == "漢字…"
    assert fitted("漢字漢字", 4) == "漢 …"
    assert fitted("abc", 0) == ""


GEMM_RATES = {"dram": 2.5e12, "vector/fp32": 120e12, "tensor/bf16": 380e12}


def test_one_gpu_is_told_with_its_point() -> None:
    running = gpu(
        rates=GEMM_RATES, clock_hz=1.755e9, power_w=698.0, power_limit_w=700.0,
        event_reasons=("power cap",), temperature_c=54.0, load=0.96,
    )  # fmt: skip
    shown = text(snapshot(devices=[running]), 120)
    # 380 of 1070 TFLOP/s.
    assert shown.startswith(
        "roofmon  GPU0 NVIDIA H200 on host  1755 MHz  698/700 W  power cap  54 °C  "
        "DRAM 2.50 TB/s  tensor 36 %"
    )
    assert (
        "◉ the device as a whole: ≤500 TFLOP/s bf16 at 200 FLOP/byte, DRAM 2.50 TB/s; an upper bound"
        in shown
    )
    assert "DRAM 4.81T bound" in shown
    assert "clock limited: power cap" in shown
    assert "state" not in shown, "one device needs no overview"
    without = gpu(missing={"rates": "no GPM before Hopper"})
    assert "the device as a whole: no point: no GPM before Hopper" in text(
        snapshot(devices=[without]), 100
    )


@pytest.mark.parametrize("count", [2, 16])
@pytest.mark.parametrize("unicode", [True, False])
def test_several_gpus_have_a_line_each(count: int, unicode: bool) -> None:
    gpus = [
        gpu(uuid=f"GPU-{i:04}", index=i, rates=GEMM_RATES, clock_hz=1.755e9, temperature_c=40.0 + i)
        for i in range(count)
    ]
    gpus[1] = gpu(uuid="GPU-0001", index=1, lost="it has fallen off the bus")
    shown = text(snapshot(devices=gpus), 80, unicode).splitlines()
    assert max(cell_len(line) for line in shown) <= 80
    header = next(i for i, line in enumerate(shown) if "DRAM/s" in line)
    rows = shown[header + 1 : header + 1 + count]
    assert rows[0].split()[:6] == [">", "0", "NVIDIA", "H200", "1755", "n/a"]
    assert rows[1].rstrip() == "   1 NVIDIA H200    lost: it has fallen off the bus"
    assert [row[1:4].strip() for row in rows] == [str(i) for i in range(count)]
    assert any("GPU1 is lost" in line for line in shown)


def test_traced_programs_and_activity_are_told() -> None:
    activity = Activity(
        device=GPU, start_unix_ns=0, end_unix_ns=10**9, busy_ns=83 * 10**7, launches=9, tiny=3
    )
    programs = [
        TracedProgram(pid=7, name="train.py", state="attached", records=5, records_per_s=5.0),
        TracedProgram(pid=8, name="idle", state="dormant"),
    ]
    found = snapshot(devices=[gpu(clock_hz=1e9)], traced=programs, activity={GPU: activity})
    lines = [line.plain for line in render_once(found, ViewState(), 100)]
    assert "kernels busy 83 %" in lines[0]
    assert "kernels of the last tick: busy 83 % · gaps 17 % · 33 % under 10 µs" in lines
    assert "idle 8: can be traced" in lines
    assert any(line.startswith("train.py 7: attached, 5.00 records/s") for line in lines)
