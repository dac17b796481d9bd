"""The recording of an H200: an excerpt that is part of the tests, and the whole where it is at hand."""

import csv
import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofmon.counters.attribution import Attributor
from roofmon.counters.overlap import Launches
from roofmon.counters.results import Attribution
from roofmon.counters.samples import Samples, usable
from roofmon.counters.weights import TENSOR

RECORDING = Path(__file__).resolve().parents[2].parent / "shared" / "h200"
BESIDE_NS = 3_000_000

Kernel = tuple[str, str, str]  # name, grid, block
Recording = tuple[Samples, Launches, list[dict], list[Kernel]]


def needs_recording(*names: str) -> pytest.MarkDecorator:
    """Skips a test where these files of the whole recording are missing."""
    missing = [name for name in names if not (RECORDING / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"no recording: {missing} not in {RECORDING}")


def _metrics(names: np.ndarray) -> tuple[str, ...]:
    """Names of counters. Instead of all tensor work HMMA was sampled, the same but for fp64 GEMMs."""
    hmma = "sm__pipe_tensor_op_hmma_cycles_active_realtime.sum"
    return tuple(TENSOR if name == hmma else str(name) for name in names)


@cache
def load_whole() -> Recording:
    """All of it: 80,000 samples and 149,093 launches."""
    with np.load(RECORDING / "pm_200us.npz") as file:
        metrics = _metrics(file["mets"])
        samples = usable(Samples(metrics, file["st"], file["en"], file["rows"].astype(np.float64)))
    with gzip.open(RECORDING / "trace.csv.gz", "rt") as text:
        columns = next(text).strip().split(",")
        table = np.loadtxt(text, delimiter=",", dtype=np.int64)
    at = {name: index for index, name in enumerate(columns)}
    shape = [at[name] for name in ("name_id", "gx", "gy", "gz", "bx", "by", "bz")]
    rows, kernel = np.unique(table[:, shape], axis=0, return_inverse=True)
    names = dict(line.split("\t") for line in (RECORDING / "names.tsv").read_text().splitlines())
    kernels = [
        (names[str(row[0])], "x".join(map(str, row[1:4])), "x".join(map(str, row[4:])))
        for row in rows.tolist()
    ]
    launches = Launches(kernel.ravel(), table[:, at["start_ns"]], table[:, at["end_ns"]])
    truth = (RECORDING / "truth.jsonl").read_text().splitlines()
    return samples, launches, [json.loads(line) for line in truth], kernels


@cache
def load_excerpt() -> Recording:
    """Some of each workload (see make_excerpt.py)."""
    with np.load(Path(__file__).with_name("data") / "h200_excerpt.npz") as file:
        samples, launches, phases, kernels = unpacked(file)
    return samples, launches, phases, [tuple(line.split("\t")) for line in kernels]


def packed(
    samples: Samples, launches: Launches, phases: list[dict], kernels: list[str]
) -> dict[str, Any]:
    """A recording as the arrays of a compressed file."""
    origin = int(min(samples.start_ns[0], launches.start_ns[0]))
    return {
        "origin_ns": origin,
        "metrics": np.array(samples.metrics),
        # Differences compress ten times better than times; all are exact.
        "start_ns": np.diff(samples.start_ns, prepend=origin),
        "length_ns": (samples.end_ns - samples.start_ns).astype(np.int32),
        "values": samples.values.astype(np.float32),
        "kernel": launches.kernel.astype(np.uint16),
        "launch_ns": np.diff(launches.start_ns, prepend=origin),
        "duration_ns": (launches.end_ns - launches.start_ns).astype(np.int32),
        "kernels": np.array(kernels),
        "phases": json.dumps(phases),
    }


def unpacked(file: Mapping[str, Any]) -> tuple[Samples, Launches, list[dict], list[str]]:
    """What was packed."""
    start = file["origin_ns"] + np.cumsum(file["start_ns"])
    samples = Samples(
        _metrics(file["metrics"]),
        start,
        start + file["length_ns"],
        file["values"].astype(np.float64),
    )
    begin = file["origin_ns"] + np.cumsum(file["launch_ns"])
    launches = Launches(file["kernel"].astype(np.int64), begin, begin + file["duration_ns"])
    kernels = [str(kernel) for kernel in file["kernels"]]
    return samples, launches, json.loads(str(file["phases"])), kernels


def rebinned(samples: Samples, factor: int) -> Samples:
    """Samples `factor` times as long; those with a gap in them are left out."""
    count = len(samples) // factor * factor
    values = samples.values[:count].reshape(-1, factor, samples.values.shape[1]).sum(axis=1)
    start, end = samples.start_ns[:count], samples.end_ns[:count]
    sampled = (end - start).reshape(-1, factor).sum(axis=1)
    start, end = start[::factor], end[factor - 1 :: factor]
    return Samples(samples.metrics, start, end, values).take(end - start == sampled)


def window(recording: Recording, phase: str, factor: int = 1) -> tuple[Samples, Launches]:
    """The samples of one workload, and the launches that overlap them."""
    samples, launches, phases, _ = recording
    (found,) = [p for p in phases if p["phase"] == phase]
    inside = samples.take((samples.start_ns >= found["t0"]) & (samples.end_ns <= found["t1"]))
    near = launches.take(
        (launches.end_ns > found["t0"] - BESIDE_NS) & (launches.start_ns < found["t1"] + BESIDE_NS)
    )
    return rebinned(inside, factor), near


def attribute(recording: Recording, phase: str, factor: int = 1) -> Attribution:
    """One workload attributed by itself."""
    samples, launches = window(recording, phase, factor)
    found = Attributor(samples.metrics).window(samples, launches)
    assert found is not None
    return found


def in_order(recording: Recording, factor: int = 1) -> dict[str, Attribution]:
    """All workloads one after the other, as a session meets them: what was known after each."""
    attributor = Attributor(recording[0].metrics)
    known = {}
    for phase in recording[2]:
        found = attributor.window(*window(recording, phase["phase"], factor))
        assert found is not None
        known[phase["phase"]] = found
    return known


def truth(recording: Recording, phase: str) -> dict:
    """What a workload must move and compute in an iteration, and its time."""
    return next(p for p in recording[2] if p["phase"] == phase)


KERNELS = {
    "vector_add_fp32": {"CUDAFunctor_add": 1},
    "reduce_sum_fp32": {"reduce_kernel": 1},
    "softmax_fp32": {"SoftMaxForwardReg": 1},
    "gemm_bf16": {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": 1},
    "gemm_fp16": {"nvjet_sm90_hsh": 1},
    "gemm_fp32": {"f32f32_f32f32_f32": 1},
    "gemm_tf32": {"f32f32_tf32f32_f32": 1},
    "gemm_fp64": {"f64f64_f64f64_f64": 1},
    "gemm_fp8": {"nvjet_sm90_qqtst": 1},
    "attention_standard_bf16": {
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT": 1,
        "MulFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_": 1,
        "softmax_warp_forward": 1,
        "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNN": 1,
    },
    "attention_flash_bf16": {"flash_fwd_kernel": 1},
    "decode_eager_bf16": {"splitK_NNT": 8, "splitKreduce": 8, "silu_kernel": 8},
    "decode_graph_bf16": {"splitK_NNT": 8, "splitKreduce": 8, "silu_kernel": 8},
    "transpose_copy_fp32": {
        "direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5": 1
    },
    "gather_random_fp32": {"cuda_take_put_kernel": 1},
}
"""Part of the name of each workload's kernels → launches in an iteration. The fourth kernel of decode has
the name of the second of attention, with a grid of its own; it moves 8 kB and is left out."""


def row_of(found: Attribution, recording: Recording, part: str) -> int:
    """The row of the kernel whose name holds `part`; of several grids the one with most bytes."""
    kernels = found.kernels.tolist()
    rows = [row for row, kernel in enumerate(kernels) if part in recording[3][kernel][0]]
    return max(rows, key=lambda row: float(found.amounts[row].sum()))


def dram(metrics: tuple[str, ...]) -> list[int]:
    """The columns of DRAM traffic."""
    return [index for index, name in enumerate(metrics) if name.startswith("dram__bytes")]


def kernel_bytes(found: Attribution, recording: Recording, part: str) -> float:
    """DRAM bytes of a launch of the kernel whose name holds `part`, read and written."""
    return float(found.amounts[row_of(found, recording, part), dram(found.metrics)].sum())


def moved(found: Attribution, recording: Recording, phase: str) -> float:
    """DRAM bytes of one iteration of a workload."""
    parts = KERNELS[phase].items()
    return sum(count * kernel_bytes(found, recording, part) for part, count in parts)


def ncu_bytes(part: str) -> tuple[float, float]:
    """Mean DRAM bytes of the launches whose name holds `part`, as Nsight Compute counted them: all, read.

    It has the sectors that L2 got from the device as a percentage of a peak that it does not tell; the
    peak follows from the one kernel of the same report that reads 2^29 bytes once and no more.
    """
    with gzip.open(RECORDING / "seedwl_raw.csv.gz", "rt") as text:
        rows = list(csv.reader(text))
    units = dict(zip(rows[0], rows[1], strict=True))
    launches = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    assert units["dram__bytes.sum.per_second"] == "Tbyte/s"
    assert units["gpu__time_duration.sum"] == "ms"

    def filled(launch: dict[str, str]) -> float:
        percent = float(launch["lts__d_sectors_fill_device.sum.pct_of_peak_sustained_elapsed"])
        clock = float(launch["lts__cycles_elapsed.avg.per_second"])
        return percent * clock * float(launch["gpu__time_duration.sum"])

    scales = [2**29 / filled(e) for e in launches if e["Grid Size"] == "(262144, 1, 1)"]
    scale = sum(scales) / len(scales)
    chosen = [launch for launch in launches if part in launch["Kernel Name"]]
    total = [
        float(e["dram__bytes.sum.per_second"]) * float(e["gpu__time_duration.sum"]) * 1e9
        for e in chosen
    ]
    read = [scale * filled(launch) for launch in chosen]
    return sum(total) / len(total), sum(read) / len(read)
