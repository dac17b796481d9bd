"""The kernel table: order, cells, which columns fit, the columns of difference mode."""

from dataclasses import replace

import pytest
from builders import COPY, GEMM, NOTHING, SNAPSHOT, Kernel, Work, device, snapshot

from roofmon.model.work import Provenance
from roofmon.view import (
    COLUMN_GAP,
    View,
    ViewState,
    build_view,
    columns_for,
    row_cells,
    sortable_columns,
)


def names(view: View) -> list[str]:
    return [view.table.descriptions[row].name for row in view.order]


@pytest.mark.parametrize(
    ("sort", "reverse", "expected"),
    [
        ("kernel", False, ["Copy", "gemm", "nothing", "softmax"]),
        ("kernel", True, ["softmax", "nothing", "gemm", "Copy"]),
        ("median", False, ["softmax", "gemm", "Copy", "nothing"]),
        ("launches", True, ["nothing", "Copy", "softmax", "gemm"]),
        # Unknown values stay last, in either direction.
        ("flops", False, ["gemm", "softmax", "Copy", "nothing"]),
        ("flops", True, ["softmax", "gemm", "Copy", "nothing"]),
        ("fraction", False, ["Copy", "gemm", "softmax", "nothing"]),
        ("bound", False, ["softmax", "gemm", "Copy", "nothing"]),
        ("no such column", False, ["gemm", "softmax", "Copy", "nothing"]),
        ("ratio", False, ["gemm", "softmax", "Copy", "nothing"]),
    ],
)
def test_sorting(sort: str, reverse: bool, expected: list[str]) -> None:
    view = build_view(SNAPSHOT, ViewState(sort=sort, reverse=reverse))
    assert names(view) == expected
    assert view.selected == 2, "the top kernel by time, wherever it stands"


def test_every_sortable_column_sorts() -> None:
    ids = {*sortable_columns(columns_for(300)), *sortable_columns(columns_for(300, True))}
    assert {"kernel", "time", "median", "fraction", "intensity", "bandwidth", "ratio"} <= ids
    for sort in ids:
        assert sorted(names(build_view(SNAPSHOT, ViewState(sort=sort)))) == sorted(
            ["Copy", "gemm", "nothing", "softmax"]
        )


def cells(view: View, width: int = 200) -> dict[str, dict[str, str]]:
    columns = columns_for(width, view.comparison is not None)
    rows = (row_cells(view, position, columns) for position in range(view.row_count))
    return {row[1]: dict(zip([c.id for c in columns], row, strict=True)) for row in rows}


def test_cells() -> None:
    found = cells(build_view(SNAPSHOT, ViewState()))
    assert found["gemm"] == {
        "mark": "1",
        "kernel": "gemm",
        # 199.4 of 199.4 + 121.3 + 10 + 0.007 ms
        "time": "60.3",
        "median": "164.8µs",
        "launches": "1,210",
        "bandwidth": "3,519",
        "flops": "417T",
        "intensity": "118",
        "roof": "DRAM",
        "fraction": "80 %",
        "bound": "memory",
        "flag": "",
        "level": "DRAM",
        "variation": "1.0 %",
        "spread": "161.5µs–169.7µs",
        "gap": "n/a",
        "source": "declared",
    }
    softmax = found["softmax"]
    assert (softmax["flops"], softmax["intensity"]) == ("≤294G", "≤0.159")
    assert (softmax["bound"], softmax["source"]) == ("latency", "sampled")
    copy = found["Copy"]
    assert (copy["flops"], copy["intensity"], copy["flag"]) == ("n/a", "n/a", "✓")
    assert (copy["bound"], copy["source"]) == ("memory", "unknown/declared")
    nothing = found["nothing"]
    unknown = {"bandwidth", "flops", "intensity", "roof", "fraction", "gap", "level"}
    assert {id_ for id_, text in nothing.items() if text == "n/a"} == unknown
    assert nothing["bound"] == "unknown"
    assert nothing["time"] == "<0.1"


@pytest.mark.parametrize(("vector", "flops"), [(0.5e9, "100T"), (2e9, "≤102T")])
def test_a_few_vector_instructions_leave_the_flops_of_a_gemm_as_they_are(vector, flops) -> None:
    at_most = Work(vector, Provenance.SAMPLED, upper_bound=True)
    work = {"tensor/bf16": Work(100e9, Provenance.SAMPLED), "vector/fp32": at_most}
    found = cells(build_view(snapshot(Kernel("gemm", median=1e6, flops=work)), ViewState()))
    assert found["gemm"]["flops"] == flops


def test_flags_of_rows_over_their_roof_and_nested_ones() -> None:
    found = cells(
        build_view(
            snapshot(
                Kernel("over", median=1e6, bytes={"dram": 5e9}),
                Kernel("within", median=1e6, low=0.8e6, high=1.2e6, bytes={"dram": 5e9}),
                Kernel("inner", outer=0),
            ),
            ViewState(),
        )
    )
    assert found["over"]["flag"] == ">"
    assert found["within"]["flag"] == "✓"
    assert "↳ inner" in found


def test_one_level_for_all() -> None:
    both = Kernel("both", median=1e6, flops={"vector/fp32": 4e9}, bytes={"dram": 1e9, "l2": 8e9})
    own = cells(build_view(snapshot(both, COPY), ViewState()))["both"]
    assert (own["level"], own["intensity"], own["bandwidth"]) == ("L2", "0.500", "8,000")
    dram = build_view(snapshot(both, COPY), ViewState(level="dram"))
    shown = cells(dram)["both"]
    assert (shown["level"], shown["intensity"], shown["bandwidth"]) == ("DRAM", "4.00", "1,000")
    l2 = cells(build_view(snapshot(both, COPY), ViewState(level="l2")))["Copy"]
    assert l2["bandwidth"] == "n/a"


@pytest.mark.parametrize("difference", [False, True])
@pytest.mark.parametrize("width", [78, 80, 118, 120, 198, 200])
def test_columns_fill_the_width(width: int, difference: bool) -> None:
    columns = columns_for(width, difference)
    assert sum(c.width for c in columns) + COLUMN_GAP * (len(columns) - 1) == width
    assert columns[1].id == "kernel"


def test_narrow_tables_keep_what_matters() -> None:
    assert [c.id for c in columns_for(80)] == [
        *("mark", "kernel", "time", "median", "bandwidth", "fraction", "bound", "flag")
    ]
    assert [c.id for c in columns_for(45)] == ["mark", "kernel", "time", "fraction", "bound"]
    assert columns_for(1)[1].width == 1
    assert "intensity" in [c.id for c in columns_for(120)]


def test_difference_mode() -> None:
    baseline = snapshot(replace(COPY, median=200_000), GEMM, Kernel("old", median=3e6))
    view = build_view(SNAPSHOT, ViewState(baseline=baseline, difference=True, sort="ratio"))
    assert names(view)[:2] == ["Copy", "gemm"]
    assert view.row_count == 5
    found = cells(view)
    assert (found["Copy"]["before"], found["Copy"]["median"]) == ("200.0µs", "100.0µs")
    assert found["Copy"]["verdict"] == "▲ faster"
    # ± 1 % on both: √2 · ln 1.01 = 0.01407 (up with ln 1/0.99 on one side).
    assert found["Copy"]["ratio"] == "2.00× [1.97, 2.03]"
    assert found["gemm"]["verdict"] == "= same"
    assert found["softmax"]["verdict"] == "+ new"
    assert found["softmax"]["ratio"] == "n/a"
    assert found["old"]["verdict"] == "− gone"
    assert (found["old"]["before"], found["old"]["median"]) == ("3.000ms", "")
    assert view.id_at(4) is None
    with pytest.raises(IndexError):
        row_cells(view, 5, columns_for(80, True))
    assert build_view(SNAPSHOT, ViewState(baseline=baseline)).comparison is None
    assert build_view(SNAPSHOT, ViewState(difference=True)).comparison is None


def test_difference_on_one_of_two_devices() -> None:
    devices = [device(), device(uuid="b")]
    before = snapshot(
        replace(COPY, device="b", median=300.0), GEMM, replace(NOTHING, device="b"), devices=devices
    )
    after = snapshot(GEMM, replace(COPY, device="b", median=100.0), devices=devices)
    view = build_view(after, ViewState(device="b", baseline=before, difference=True, sort="ratio"))
    found = cells(view)
    assert found["Copy"]["ratio"].startswith("3.00×")
    assert found["nothing"]["verdict"] == "− gone"
    assert len(found) == 2
