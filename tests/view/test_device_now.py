"""What a device is doing now, in words: for the status line, and a line a device."""

from dataclasses import replace

from builders import BOUNDS, bandwidth, compute, device, gpu, roofline

from roofmon.model.session import Progress
from roofmon.view import OVERVIEW, device_now, overview_cells


def test_facts_come_most_telling_first_and_the_unknown_is_left_out() -> None:
    running = gpu(
        clock_hz=1.755e9, load=0.96, power_w=698.4, power_limit_w=700.0, temperature_c=54.0,
        event_reasons=("power cap", "thermal limit (driver)"), memory_used_bytes=61 * 2**30,
        rates={"dram": 2.81e12, "tensor/bf16": 535e12, "vector/fp32": 4e12},
    )  # fmt: skip
    assert device_now(running) == [
        "1755 MHz",
        "698/700 W",
        "power cap, thermal limit (driver)",
        "54 °C",
        "DRAM 2.81 TB/s",
        "tensor 50 %",
        "memory 61.0 GiB",
    ]
    vector = gpu(rates={"dram": 0.0, "vector/fp32": 33.5e12}, about={"memory_bytes": 141 * 2**30})
    assert device_now(vector) == ["DRAM 0 B/s", "fp32 50 %"]
    assert device_now(gpu(load=0.5)) == ["load 50 %"]
    assert device_now(gpu()) == []
    assert device_now(gpu(lost="gone", clock_hz=1e9)) == ["LOST: gone"]
    assert device_now(replace(gpu(), sample=None)) == []


def test_a_share_is_of_the_measured_roof_and_there_is_none_without_a_roof() -> None:
    rates = {"dram": 1e12, "tensor/bf16": 376.5e12}
    measured = gpu(roofline(*BOUNDS.ceilings, compute(753e12, "tensor/bf16")), rates=rates)
    assert device_now(measured)[-1] == "tensor 50 %"
    assert device_now(gpu(roofline(bandwidth(4.39e12)), rates=rates)) == ["DRAM 1.00 TB/s"]


def test_the_line_of_a_device() -> None:
    def cells(**sample: object) -> dict[str, str]:
        found = gpu(index=7, about={"memory_bytes": 141 * 2**30}, **sample)
        titles = [column.title for column in OVERVIEW]
        return dict(zip(titles, overview_cells(found), strict=True))

    known = cells(
        clock_hz=1.755e9, power_w=698.4, power_limit_w=700.0, temperature_c=54.4, load=0.96,
        memory_used_bytes=61 * 2**30, event_reasons=("power cap",),
        rates={"dram": 2.81e12, "vector/fp32": 51e12},
    )  # fmt: skip
    assert known == {
        "#": "7",
        "device": "NVIDIA H200",
        "MHz": "1755",
        "W": "698/700",
        "°C": "54",
        "busy": "96 %",
        "DRAM/s": "2.81T",
        "FLOP/s": "≤51.0T fp32",
        "GiB": "61/141",
        "state": "power cap",
    }
    unknown = cells()
    assert {unknown[t] for t in ("MHz", "W", "°C", "busy", "DRAM/s", "FLOP/s", "GiB")} == {"n/a"}
    assert cells(lost="gone")["state"] == "lost: gone"
    widths = {column.title: column.width for column in OVERVIEW if column.title != "state"}
    assert all(len(known[title]) <= width for title, width in widths.items())


def test_lines_of_other_devices() -> None:
    slice_ = gpu(about={"parent": "GPU-x", "mig_profile": "1g.18gb"})
    assert overview_cells(slice_)[:2] == ["0", "↳ 1g.18gb"]
    assert overview_cells(device())[:2] == ["CPU", "Test CPU"]
    progress = Progress(task="measuring roofs", device="x", done=2, total=9)
    assert overview_cells(replace(gpu(), progress=progress))[-1] == "measuring roofs 2/9"
    assert overview_cells(replace(gpu(), sample=None))[-1] == "nothing was sampled yet"
