"""Where the DRAM traffic goes, in words, in the table's last row, in JSON and in the checklist."""

import json
from dataclasses import replace

import msgspec
import pytest
from builders import GEMM, GPU, NOW_NS, SOFTMAX, gpu, snapshot

from roofmon.diagnosis import Finding, diagnose_kernel, diagnose_session
from roofmon.model.snapshot import Snapshot
from roofmon.model.traffic import Traffic
from roofmon.report.json import snapshot_document
from roofmon.report.text import render_once
from roofmon.view import (
    ViewState,
    build_view,
    columns_for,
    explained_text,
    row_cells,
    traffic_facts,
    untraced,
    untraced_cells,
)

S = 10**9
TRAFFIC = Traffic(
    device=GPU,
    start_unix_ns=NOW_NS - 2 * S,
    end_unix_ns=NOW_NS - S,
    dram_bytes_per_s=2.8e12,
    attributed_bytes_per_s=2.66e12,
    untraced_bytes_per_s=0.112e12,
    gpm_bytes_per_s=2.77e12,
    clock_hz=1.377e9,
)
CONTENDED = {"contended": "bench 815 used the GPU beside it: some of its bytes may not be its own"}


def made(traffic: Traffic | None = TRAFFIC, **changes: object) -> Snapshot:
    kernels = [replace(kernel, device=GPU) for kernel in (GEMM, SOFTMAX)]
    known = {} if traffic is None else {GPU: msgspec.structs.replace(traffic, **changes)}
    return snapshot(*kernels, devices=[gpu()], traffic=known)


def shown(width: int, found: Snapshot, state: ViewState | None = None) -> dict[str, str] | None:
    """Column → text of the row of what nothing traced moved."""
    view = build_view(found, state or ViewState())
    traffic = untraced(view)
    columns = columns_for(width)
    if traffic is None:
        return None
    return dict(zip([c.id for c in columns], untraced_cells(traffic, columns), strict=True))


def test_the_accounting_is_a_ratio_of_the_same_samples_and_of_gpm() -> None:
    assert TRAFFIC.explained == pytest.approx(0.95)
    assert TRAFFIC.untraced_share == pytest.approx(0.04)
    assert TRAFFIC.explained_of_gpm == pytest.approx(2.66 / 2.77)
    assert explained_text(TRAFFIC) == "explains 95 % of DRAM"
    assert traffic_facts(TRAFFIC) == [
        "95 % of DRAM traffic explained",
        "96 % of what GPM counts",
        "untraced 112 GB/s",
    ]


def test_what_is_not_known_says_why_and_is_never_zero() -> None:
    why = {"explained": "the screen is paused"}
    nothing = Traffic(device=GPU, missing=why)
    assert (nothing.explained, nothing.explained_of_gpm, nothing.untraced_share) == (None,) * 3
    assert explained_text(nothing) == "explains n/a of DRAM"
    assert traffic_facts(nothing) == ["DRAM traffic explained n/a: the screen is paused"]
    assert explained_text(None) == ""
    without = msgspec.structs.replace(
        TRAFFIC, gpm_bytes_per_s=None, missing={"gpm_bytes_per_s": "no GPM before Hopper"}
    )
    assert "of GPM's n/a: no GPM before Hopper" in traffic_facts(without)
    idle = msgspec.structs.replace(TRAFFIC, dram_bytes_per_s=0.0)
    assert idle.explained is None


def test_the_row_has_a_rate_and_a_share_and_nothing_of_launches() -> None:
    assert shown(118, made()) == {
        "mark": "–",
        "kernel": "(untraced) 4.0 % of DRAM",
        "time": "–",
        "median": "–",
        "launches": "–",
        "bandwidth": "112",
        "flops": "n/a",
        "intensity": "n/a",
        "roof": "n/a",
        "fraction": "n/a",
        "bound": "others",
        "flag": "",
    }
    # Without a column for it the rate stands beside the share; who it was, where there is room.
    narrow = shown(76, made(others=("bench 815",)))
    assert narrow is not None
    assert "bandwidth" not in narrow
    assert narrow["kernel"] == "(untraced) 112 GB/s, 4.0 % of DRAM"
    wide = shown(118, made(others=("b 8",)))
    assert wide is not None
    assert wide["kernel"] == "(untraced) 4.0 % of DRAM: b 8"


def test_the_row_is_below_the_kernels_whatever_the_order_and_no_part_of_a_filter() -> None:
    for state in (ViewState(sort="kernel"), ViewState(reverse=True)):
        lines = [line.plain for line in render_once(made(), state, 118)]
        at = {
            name: i for i, line in enumerate(lines) for name in ("gemm", "softmax") if name in line
        }
        last = next(i for i, line in enumerate(lines) if "(untraced)" in line)
        header = next(i for i, line in enumerate(lines) if "time %" in line)
        assert last == header + 3, at
    assert shown(118, made(), ViewState(filter="gemm")) is None
    assert shown(118, made(None)) is None
    assert len(build_view(made(), ViewState()).order) == 2  # it is no kernel


def test_how_much_is_much() -> None:
    def much(rate: float, of: float) -> bool:
        return msgspec.structs.replace(
            TRAFFIC, untraced_bytes_per_s=rate, dram_bytes_per_s=of
        ).much_untraced

    assert not TRAFFIC.much_untraced
    assert much(0.15e12, 2.8e12)
    assert not much(0.9e9, 1e9)  # next to nothing moves at all
    assert not Traffic(device=GPU).much_untraced


def test_json_has_the_fields_and_a_row_of_its_own_kind() -> None:
    document = json.loads(json.dumps(snapshot_document(made(others=("bench 815",)))))
    (device,) = document["devices"]
    traffic = device["traffic"]
    assert traffic["explained_percent"] == pytest.approx(95)
    assert traffic["untraced_percent"] == pytest.approx(4)
    assert traffic["explained_of_gpm_percent"] == pytest.approx(266 / 2.77)
    assert (traffic["clock_hz"], traffic["others"]) == (1.377e9, ["bench 815"])
    row = document["kernels"][-1]
    assert (row["name"], row["kind"], row["id"]) == ("(untraced)", "untraced", None)
    assert row["bytes_per_s"] == 0.112e12
    assert row["dram_percent"] == pytest.approx(4)
    assert len(document["kernels"]) == 3
    (bare,) = snapshot_document(made(None))["devices"]
    assert bare["traffic"] is None


def test_once_says_what_is_explained() -> None:
    text = "\n".join(line.plain for line in render_once(made(), ViewState(), 118))
    assert "counters: 95 % of DRAM traffic explained · 96 % of what GPM counts" in text
    assert "counters:" not in "\n".join(
        line.plain for line in render_once(made(None), ViewState(), 118)
    )


def traffic_finding(found: Snapshot) -> Finding | None:
    return next((f for f in diagnose_session(found) if f.rule == "traffic"), None)


def test_the_checklist_says_whether_the_traffic_is_accounted_for() -> None:
    fine = traffic_finding(made())
    assert fine is not None
    assert (fine.status, fine.title) == ("pass", "95 % of DRAM explained")
    assert fine.evidence == (
        "GPU0: kernels 2.66 TB/s of 2.80 TB/s, untraced 112 GB/s; GPM counts 2.77 TB/s"
    )
    much = {"attributed_bytes_per_s": 2.1e12, "untraced_bytes_per_s": 0.7e12}
    bad = traffic_finding(made(**much, others=("bench 815",)))
    assert bad is not None
    assert (bad.status, bad.title) == ("fail", "75 % of DRAM explained")
    assert "untraced 700 GB/s (bench 815)" in bad.evidence
    too_much = traffic_finding(made(attributed_bytes_per_s=3.4e12, untraced_bytes_per_s=0.0))
    assert too_much is not None
    assert too_much.status == "fail"
    assert traffic_finding(made(None)) is None
    assert traffic_finding(made(dram_bytes_per_s=1e8, attributed_bytes_per_s=1e7)) is None
    assert traffic_finding(made(Traffic(device=GPU, missing={"explained": "paused"}))) is None


def test_a_contended_kernel_has_a_mark_and_a_reason_in_its_checklist() -> None:
    beside = replace(SOFTMAX, device=GPU, extra={"reasons": CONTENDED})
    found = snapshot(replace(GEMM, device=GPU), beside, devices=[gpu()])
    view = build_view(found, ViewState())
    columns = columns_for(118)
    at = next(i for i, c in enumerate(columns) if c.id == "flag")
    flags = {
        view.table.descriptions[int(row)].name: row_cells(view, position, columns)[at]
        for position, row in enumerate(view.order)
    }
    assert flags == {"gemm": "", "softmax": "!"}
    rules = {
        view.table.descriptions[row].name: {f.rule: f for f in diagnose_kernel(view, row)}
        for row in range(2)
    }
    finding = rules["softmax"]["contended"]
    assert (finding.status, finding.severity) == ("fail", "error")
    assert finding.evidence == CONTENDED["contended"]
    assert "contended" not in rules["gemm"]
    # Bytes that the program declared are its own, whoever else is there.
    declared = replace(GEMM, device=GPU, extra={"reasons": CONTENDED})
    view = build_view(snapshot(declared, devices=[gpu()]), ViewState())
    assert "contended" not in {f.rule for f in diagnose_kernel(view, 0)}


def test_a_precision_to_be_told_is_asked_for_with_its_key() -> None:
    pipes = ("tensor/bf16", "tensor/tf32")
    asked = replace(
        GEMM,
        device=GPU,
        flops={},
        extra={"candidates": pipes, "grid": (1, 1, 1), "reasons": {"flops": "1 to 2 GFLOP"}},
    )
    view = build_view(snapshot(asked, devices=[gpu()]), ViewState())
    found = next(f for f in diagnose_kernel(view, 0) if f.rule == "work")
    assert found.evidence == "FLOPs: 1 to 2 GFLOP"
    assert found.advice == "w takes its tensor work as one of bf16, tf32"
    (kernel,) = snapshot_document(snapshot(asked, devices=[gpu()]))["kernels"]
    assert (kernel["precisions"], kernel["precision_told"]) == (list(pipes), None)
