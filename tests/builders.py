"""Small, readable ways to build the values that tests start from: kernels, roofs, snapshots."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.histogram import Histograms
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Ceiling, Pipe, Roofline
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.stats import bin_index
from roofmon.model.table import Column, KernelTable, WorkColumn
from roofmon.model.work import Provenance

_SESSIONS = itertools.count()
CPU = "cpu-test"
NOW_S = 1_800_000_000.0
NOW_NS = 1_800_000_000 * 10**9


@dataclass(frozen=True)
class Work:
    """One source's value of one quantity, for one kernel."""

    value: float
    provenance: Provenance = Provenance.DECLARED
    upper_bound: bool = False
    rel_error: float = float("nan")
    counts: str = "requested"


Amount = float | Work | Sequence[Work]


@dataclass(frozen=True)
class Kernel:
    """One row. Times in ns; the interval of the median is ±1 % unless `low`, `high` say otherwise."""

    name: str = "kernel"
    median: float = 1e6
    launches: int = 100
    flops: Mapping[str, Amount] = field(default_factory=dict)
    bytes: Mapping[str, Amount] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    cv: float = 0.01
    gap: float = float("nan")
    total: float | None = None
    outer: float | None = None
    last_end: float = float(NOW_NS)
    id: int | None = None
    device: str = CPU
    extra: Mapping[str, Any] = field(default_factory=dict)  # more fields of the description


def table(*kernels: Kernel) -> KernelTable:
    """The table of these kernels; ids count from 1 unless given."""
    descriptions = tuple(
        KernelDescription(
            id=index if k.id is None else k.id, name=k.name, device=k.device, **k.extra
        )
        for index, k in enumerate(kernels, start=1)
    )
    stats = np.full((len(Column), len(kernels)), np.nan)
    for row, k in enumerate(kernels):
        total = k.median * k.launches if k.total is None else k.total
        stats[Column.LAUNCHES, row] = k.launches
        stats[Column.TOTAL_NS, row] = total
        stats[Column.OUTER_NS, row] = total if k.outer is None else k.outer
        stats[Column.MEDIAN_NS, row] = k.median
        stats[Column.MEDIAN_LOW_NS, row] = k.median * 0.99 if k.low is None else k.low
        stats[Column.MEDIAN_HIGH_NS, row] = k.median * 1.01 if k.high is None else k.high
        stats[Column.P05_NS, row] = k.median * 0.98
        stats[Column.P95_NS, row] = k.median * 1.03
        stats[Column.CV, row] = k.cv
        stats[Column.MIN_NS, row] = k.median * 0.97
        stats[Column.MAX_NS, row] = k.median * 1.1
        stats[Column.GAP_NS, row] = k.gap
        stats[Column.LAST_END_NS, row] = k.last_end
        stats[Column.TYPICAL_NS, row] = k.median
        stats[Column.LAUNCH_RATE, row] = 50.0
    return KernelTable(descriptions, stats, _work_columns(kernels))


def _work_columns(kernels: Sequence[Kernel]) -> tuple[WorkColumn, ...]:
    found: dict[tuple[Any, ...], tuple[np.ndarray, np.ndarray]] = {}
    for row, kernel in enumerate(kernels):
        for kind, amounts in (("flops", kernel.flops), ("bytes", kernel.bytes)):
            for key, amount in amounts.items():
                for work in _sources(amount):
                    source = (kind, key, work.provenance, work.upper_bound, work.counts)
                    nothing = (np.full(len(kernels), np.nan), np.full(len(kernels), np.nan))
                    values, errors = found.setdefault(source, nothing)
                    values[row], errors[row] = work.value, work.rel_error
    return tuple(
        WorkColumn(kind, key, provenance, values, errors, upper_bound, counts)
        for (kind, key, provenance, upper_bound, counts), (values, errors) in found.items()
    )


def _sources(amount: Amount) -> Sequence[Work]:
    if isinstance(amount, Work):
        return [amount]
    return [Work(amount)] if isinstance(amount, int | float) else amount


def bandwidth(value: float, level: str = "dram", half: float = 0.003, **more: Any) -> Ceiling:
    """A bandwidth roof of `value` byte/s whose interval is ± `half` of it."""
    return _ceiling(
        value, half, {"kind": "bandwidth", "level": level, "regime": "sustained"} | more
    )


def compute(value: float, pipe: str = "vector/fp32", half: float = 0.005, **more: Any) -> Ceiling:
    """A compute roof of `value` FLOP/s whose interval is ± `half` of it."""
    fields: dict[str, Any] = {"kind": "compute", "pipe": Pipe.parse(pipe), "regime": "gemm"}
    return _ceiling(value, half, fields | more)


def _ceiling(value: float, half: float, fields: Mapping[str, Any]) -> Ceiling:
    name = fields.get("level") or fields["pipe"].precision
    defaults = {
        "n": 20,
        "probe": f"{name}-probe",
        "time_unix_s": NOW_S - 60,
        "ci_low": value * (1 - half),
        "ci_high": value * (1 + half),
    }
    return Ceiling(value=value, **{**defaults, **fields})


def roofline(*ceilings: Ceiling, **more: Any) -> Roofline:
    """A roofline of these ceilings."""
    return Roofline(ceilings=ceilings, **more)


H200 = roofline(
    bandwidth(4.39e12),
    bandwidth(9.6e12, "l2"),
    compute(753e12, "tensor/bf16", clock_hz=1.755e9),
    compute(866e12, "tensor/bf16", regime="issue", clock_hz=1.755e9),
    compute(65e12, "vector/fp32", regime="issue", clock_hz=1.98e9),
)
"""Roofs of one H200, rounded. Ridges: bf16 171.5 FLOP/byte, fp32 14.8 FLOP/byte, both on DRAM."""


def device(
    roofs: Roofline = H200, uuid: str = CPU, name: str = "Test CPU", **sample: Any
) -> Device:
    """A device with a sample taken now."""
    description = DeviceDescription(uuid=uuid, index=0, name=name, kind="cpu", cores=8)
    return Device(description, DeviceSample(device=uuid, time_unix_ns=NOW_NS, **sample), roofs)


GPU = "GPU-00000000-test"
BOUNDS = roofline(
    *(
        _ceiling(
            value, 0.0, {"regime": "bound", "n": 0, "probe": "bound", "time_unix_s": 0.0} | place
        )
        for value, place in (
            (4.814e12, {"kind": "bandwidth", "level": "dram", "memory_clock_hz": 3.2e9}),
            (33.5e12, {"kind": "bandwidth", "level": "l1", "clock_hz": 2e9}),
            (33.5e12, {"kind": "compute", "pipe": Pipe("vector", "fp64"), "clock_hz": 2e9}),
            (67e12, {"kind": "compute", "pipe": Pipe("vector", "fp32"), "clock_hz": 2e9}),
            (134e12, {"kind": "compute", "pipe": Pipe("vector", "fp16"), "clock_hz": 2e9}),
            (535e12, {"kind": "compute", "pipe": Pipe("tensor", "tf32"), "clock_hz": 2e9}),
            (1070e12, {"kind": "compute", "pipe": Pipe("tensor", "bf16"), "clock_hz": 2e9}),
        )
    )
)
"""Physical bounds of one H200, rounded, at a clock of 2 GHz."""


def gpu(
    roofs: Roofline = BOUNDS,
    uuid: str = GPU,
    index: int = 0,
    about: Mapping[str, Any] | None = None,
    **sample: Any,
) -> Device:
    """A GPU with a sample taken now; `about` are more fields of its description."""
    description = DeviceDescription(
        **{"uuid": uuid, "index": index, "name": "NVIDIA H200", "kind": "cuda", **(about or {})}
    )
    fields = {"device": uuid, "time_unix_ns": NOW_NS, **sample}
    return Device(description, DeviceSample(**fields), roofs)


def snapshot(*kernels: Kernel, devices: Sequence[Device] | None = None, **more: Any) -> Snapshot:
    """A snapshot taken at NOW_NS, of a session of its own; its one device has the roofs of `H200`."""
    fields = {"started_unix_ns": NOW_NS - 60 * 10**9 - next(_SESSIONS), **more}
    return Snapshot(
        host="host",
        time_unix_ns=NOW_NS,
        interval_ns=500_000_000,
        devices=(device(),) if devices is None else tuple(devices),
        kernels=table(*kernels),
        **fields,
    )


def histograms(launches: Mapping[int, Mapping[float, int]]) -> Histograms:
    """Histograms from launches by duration in ns, by kernel id."""
    flat = [(k, ns, n) for k, durations in launches.items() for ns, n in durations.items()]
    ids, durations, counts = (np.array(column) for column in zip(*flat, strict=True))
    return Histograms().updated(ids, bin_index(durations), counts)


GEMM = Kernel(
    "gemm", median=164_800, launches=1210, flops={"tensor/bf16": 68.7e9}, bytes={"dram": 580e6}
)
SOFTMAX = Kernel(
    "softmax",
    median=577_700,
    launches=210,
    flops={"vector/fp32": Work(0.17e9, Provenance.SAMPLED, upper_bound=True)},
    bytes={"dram": Work(1.069e9, Provenance.SAMPLED)},
)
COPY = Kernel("Copy", median=100_000, launches=100, bytes={"dram": 430e6})
NOTHING = Kernel("nothing", median=1000, launches=7)
SNAPSHOT = snapshot(COPY, GEMM, NOTHING, SOFTMAX)
"""On the H200's roofs: 80 % of DRAM, 42 % of DRAM and upper-bound FLOPs, 98 % without FLOPs, no work."""
