"""The JSON document: the keys that programs rely on, values by hand, null for the unknown."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import (
    CPU,
    GPU,
    NOW_NS,
    Kernel,
    Work,
    bandwidth,
    compute,
    device,
    gpu,
    roofline,
    snapshot,
)

from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceProcess
from roofmon.model.roofline import NO_ROOFS, Conditions
from roofmon.model.session import Notice, Rung
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column
from roofmon.model.work import Provenance
from roofmon.report.json import DIAGNOSED, snapshot_document, write_json

GEMM = Kernel("gemm ×", median=1e6, flops={"tensor/bf16": 417e9}, bytes={"dram": 417e9 / 118})


def written(found: Snapshot) -> dict[str, Any]:
    """The document after a trip through text, as a program reads it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write_json(found, stream)
    stream.seek(0)
    document: dict[str, Any] = json.load(stream)
    return document


def test_traced_programs_activity_and_what_is_known_of_launches() -> None:
    activity = Activity(
        device=GPU, start_unix_ns=NOW_NS - 10**9, end_unix_ns=NOW_NS, busy_ns=25 * 10**7, launches=5
    )
    traced = TracedProgram(pid=7, name="t", state="attached", records=5, cost=0.006)
    kernel = Kernel(device=GPU, extra={"occupancy": 0.5, "occupancy_limiter": "registers"})
    found = snapshot(
        kernel, devices=[gpu(), gpu(uuid="other")], traced=[traced], activity={GPU: activity}
    )
    found.kernels.stats[[Column.STREAMS, Column.STREAM, Column.GRAPH_SHARE], 0] = 2, 7, 0.25
    found.kernels.stats[Column.INSIDE_NS, 0] = 12.0
    document = written(found)
    one, other = document["devices"]
    assert (one["activity"]["busy_percent"], one["activity"]["gaps_percent"]) == (25, 75)
    assert (one["activity"]["launches"], other["activity"]) == (5, None)
    (program,) = document["traced"]
    assert (program["state"], program["cost_percent"], program["reason"]) == ("attached", 0.6, None)
    (row,) = document["kernels"]
    assert (row["occupancy"], row["occupancy_limiter"]) == (0.5, "registers")
    assert (row["streams"], row["stream"], row["graph_percent"]) == (2, 7, 25)
    assert row["kernels_inside_ns"] == 12


def test_the_document() -> None:
    document = written(
        snapshot(
            GEMM,
            rungs=(Rung(rung="nvml", state="unavailable", reason="no GPU", fix="get one"),),
            notices=(Notice(severity="info", what="hello"),),
            programs={4711: "train.py"},
            dropped=3,
        )
    )
    assert document["schema"] == "roofmon.snapshot/1"
    assert (document["host"], document["time_unix_ns"]) == ("host", NOW_NS)
    assert (document["dropped"], document["stale"]) == (3, None)
    assert document["programs"] == [{"pid": 4711, "name": "train.py"}]
    assert document["rungs"] == [
        {"rung": "nvml", "state": "unavailable", "reason": "no GPU", "fix": "get one"}
    ]
    assert document["notices"] == [{"severity": "info", "what": "hello", "fix": ""}]
    (kernel,) = document["kernels"]
    assert (kernel["name"], kernel["device"], kernel["launches"]) == ("gemm ×", CPU, 100)
    assert (kernel["total_ns"], kernel["median_ns"]) == (100_000_000, 1e6)
    assert (kernel["p05_ns"], kernel["p95_ns"]) == (pytest.approx(0.98e6), pytest.approx(1.03e6))
    assert (kernel["cv"], kernel["gap_ns"], kernel["time_percent"]) == (0.01, None, 100.0)
    assert kernel["work"]["flops"] == [
        {
            "unit": "tensor",
            "precision": "bf16",
            "value": 417e9,
            "provenance": "declared",
            "rel_error": None,
            "upper_bound": False,
        }
    ]
    (moved,) = kernel["work"]["bytes"]
    assert (moved["level"], moved["provenance"]) == ("dram", "declared")
    position = kernel["position"]
    assert position["class"] == "memory-bound"
    assert position["percent"] == pytest.approx(80.499, abs=1e-2)
    assert position["roof"] == {"kind": "bandwidth", "level": "dram", "value": 4.39e12}
    (level,) = position["levels"]
    assert level["level"] == "dram"
    assert level["intensity"] == pytest.approx(118)
    assert level["attainable"] == pytest.approx(518.02e12)
    assert level["percent"] == pytest.approx(80.499, abs=1e-2)
    assert kernel["reasons"] == {}


def test_devices_with_their_ceilings() -> None:
    roofs = roofline(
        bandwidth(20e9, flags=("contended",)),
        compute(1e12, clock_hz=3e9),
        conditions=Conditions(device="model", threads=8),
    )
    (found,) = written(snapshot(devices=[device(roofs, load=0.5)]))["devices"]
    assert (found["uuid"], found["name"], found["kind"], found["driver"]) == (
        CPU,
        "Test CPU",
        "cpu",
        None,
    )
    memory, pipe = found["roofline"]["ceilings"]
    assert (memory["kind"], memory["level"], memory["value"]) == ("bandwidth", "dram", 20e9)
    assert (memory["ci_low"], memory["ci_high"]) == (pytest.approx(19.94e9), pytest.approx(20.06e9))
    assert (memory["regime"], memory["n"], memory["probe"]) == ("sustained", 20, "dram-probe")
    assert (memory["clock_hz"], memory["flags"]) == (None, ["contended"])
    assert "pipe" not in memory
    assert pipe["pipe"] == {"unit": "vector", "precision": "fp32"}
    assert (pipe["regime"], pipe["clock_hz"]) == ("gemm", 3e9)
    assert "level" not in pipe
    assert found["roofline"]["conditions"]["threads"] == 8
    assert found["roofline"]["latency"] == {"launch_s": None, "load_s": {}}
    assert (found["sample"]["load"], found["sample"]["clock_hz"]) == (0.5, None)


def test_all_sources_with_the_one_used_first() -> None:
    works = [Work(2.0), Work(1.0, Provenance.SAMPLED, rel_error=0.1, counts="lts__t_bytes")]
    (kernel,) = written(snapshot(Kernel(bytes={"l2": works})))["kernels"]
    assert [(q["value"], q["provenance"], q["counts"]) for q in kernel["work"]["bytes"]] == [
        (1.0, "sampled", "lts__t_bytes"),
        (2.0, "declared", "requested"),
    ]
    assert kernel["work"]["bytes"][0]["rel_error"] == 0.1


def test_the_unknown_is_null_with_a_reason() -> None:
    nothing = Kernel("nothing", median=np.nan, extra={"reasons": {"time": "not traced"}})
    (kernel,) = written(snapshot(nothing))["kernels"]
    assert kernel["median_ns"] is None
    assert kernel["work"] == {"flops": [], "bytes": []}
    assert kernel["position"]["class"] == "unknown"
    assert kernel["position"]["levels"] == []
    for name in ("percent", "headroom", "flops_per_s", "roof", "floor_ns"):
        assert kernel["position"][name] is None
    assert kernel["reasons"] == {
        "flops": "no source gives its FLOPs",
        "bytes": "no source gives its bytes",
        "time": "not traced",
    }
    (kernel,) = written(snapshot(GEMM, devices=[device(NO_ROOFS)]))["kernels"]
    assert kernel["position"]["percent"] is None
    assert kernel["position"]["levels"][0]["intensity"] == pytest.approx(118)
    assert kernel["reasons"] == {
        "position": "no roof is measured for the pipe or the memory level it uses"
    }


def test_bytes_without_a_roof_that_counts_them_have_no_percentage_and_a_reason() -> None:
    sampled = Work(7.2e9, Provenance.SAMPLED, counts="lts__t_bytes")
    kernel = replace(GEMM, bytes={"dram": 580e6, "l2": sampled})
    (kernel_document,) = written(snapshot(kernel))["kernels"]
    levels = {p["level"]: p["percent"] for p in kernel_document["position"]["levels"]}
    assert levels["dram"] > 0
    assert levels["l2"] is None
    assert kernel_document["reasons"] == {
        "percent_l2": "no L2 roof in sampled bytes: roofmon calibrate --full with counters measures it"
    }


def test_findings_name_their_kernel() -> None:
    document = written(snapshot(GEMM, replace(GEMM, name="b", id=77)))
    kernels = {f["kernel"] for f in document["findings"]}
    assert kernels == {None, 1, 77}
    assert {f["rule"] for f in document["findings"] if f["kernel"] == 77} >= {"distance", "work"}
    first = document["findings"][0]
    assert first.keys() == {
        *(
            "rule",
            "status",
            "severity",
            "title",
            "evidence",
            "advice",
            "gain_ns",
            "kernel",
            "device",
        )
    }


def test_many_kernels_are_all_there_but_only_the_top_ones_are_diagnosed() -> None:
    kernels = [Kernel(str(i), median=1e3 + i) for i in range(DIAGNOSED + 5)]
    document = snapshot_document(snapshot(*kernels))
    assert len(document["kernels"]) == DIAGNOSED + 5
    assert document["kernels"][0]["name"] == str(DIAGNOSED + 4)
    assert document["kernels_without_findings"] == 5
    assert len({f["kernel"] for f in document["findings"]} - {None}) == DIAGNOSED


def test_empty_and_stale() -> None:
    document = written(snapshot(devices=[], stale="the collector died"))
    assert (document["devices"], document["kernels"]) == ([], [])
    assert document["stale"] == "the collector died"
    assert document["findings"][0]["evidence"] == "the collector died"
    two = snapshot(GEMM, replace(GEMM, device="b"), devices=[device(uuid="b"), device()])
    assert [k["device"] for k in written(two)["kernels"]] == ["b", CPU]


def test_what_a_gpu_is_doing_and_its_own_point() -> None:
    rates = {"dram": 2.5e12, "tensor/bf16": 480e12, "vector/fp32": 20e12}
    known = {"clock_hz": 1.755e9, "memory_busy": 0.8, "occupancy": 0.58, "pcie_in_bytes_per_s": 2e8}
    process = DeviceProcess(pid=815, memory_bytes=2**30, note="in another namespace")
    missing = {"nvlink_in_bytes_per_s": "this board has no NVLink"}
    made = gpu(rates=rates, processes=(process,), missing=missing, power_w=float("nan"), **known)
    (found,) = written(snapshot(devices=[made]))["devices"]
    sample = found["sample"]
    assert {name: sample[name] for name in known} == known
    assert sample["rates"] == rates
    assert sample["processes"] == [
        {
            "pid": 815,
            "name": "",
            "user": "",
            "memory_bytes": 2**30,
            "sm_busy": None,
            "note": "in another namespace",
        }
    ]
    assert (sample["nvlink_in_bytes_per_s"], sample["missing"]) == (None, missing)
    assert (sample["lost"], sample["power_w"]) == (None, None)
    assert found["point"] == {
        "intensity": 200.0,
        "flops_per_s": 500e12,
        "bytes_per_s": 2.5e12,
        "rates": {"tensor/bf16": 480e12, "vector/fp32": 20e12},
        "upper_bound": False,
        "reason": None,
    }
    bounds = [c for c in found["roofline"]["ceilings"] if c["regime"] == "bound"]
    assert [c["value"] for c in bounds if c.get("level") == "dram"] == [4.814e12]


def test_points_that_are_missing() -> None:
    old = gpu(missing={"rates": "no GPM before Hopper"})
    lost = gpu(uuid="b", index=1, lost="it has fallen off the bus")
    first, second, cpu = written(snapshot(devices=[old, lost, device()]))["devices"]
    assert first["point"]["reason"] == "no GPM before Hopper"
    assert {first["point"][k] for k in ("intensity", "flops_per_s", "bytes_per_s")} == {None}
    assert (first["sample"]["rates"], first["sample"]["processes"]) == (None, None)
    assert (second["sample"]["lost"], second["point"]["reason"]) == (
        "it has fallen off the bus",
    ) * 2
    assert cpu["point"] is None
