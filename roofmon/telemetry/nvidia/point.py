"""The GPU as one point on its roofline: GPM's utilisations turned into byte/s and FLOP/s.

Checked against loops of known work on an H200: 89.9 % of 4.814 TB/s while a vector add moved 4.338 TB/s;
fp32 at 76.3 % of 66.9 TFLOP/s during a GEMM of 50.9. An fp32 utilisation counts instructions that are not
FMAs as well, so its FLOP/s are the most that it can have been.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from roofmon.model import pipes
from roofmon.model.roofline import Pipe
from roofmon.telemetry.nvidia import checks


class Metric(IntEnum):
    """GPM's metric numbers (nvml.h, `nvmlGpmMetricId_t`), those that are read."""

    GRAPHICS = 1
    SM = 2
    OCCUPANCY = 3
    DFMA_TENSOR = 6  # this one, not DMMA (8), moves with fp64 tensor work
    HMMA_TENSOR = 7
    IMMA_TENSOR = 9
    DRAM = 10
    FP64 = 11
    FP32 = 12
    FP16 = 13
    PCIE_TX = 20
    PCIE_RX = 21
    NVLINK_RX = 60
    NVLINK_TX = 61


PIPES: Mapping[Metric, Pipe] = {
    Metric.FP64: pipes.VECTOR_FP64,
    Metric.FP32: pipes.VECTOR_FP32,
    Metric.FP16: pipes.VECTOR_FP16,
    Metric.DFMA_TENSOR: pipes.TENSOR_FP64,
    Metric.HMMA_TENSOR: pipes.TENSOR_BF16,  # fp16 and fp8 work reads as this one too
    Metric.IMMA_TENSOR: pipes.TENSOR_INT8,
}
_LINKS = {
    Metric.PCIE_RX: "pcie_in_bytes_per_s",
    Metric.PCIE_TX: "pcie_out_bytes_per_s",
    Metric.NVLINK_RX: "nvlink_in_bytes_per_s",
    Metric.NVLINK_TX: "nvlink_out_bytes_per_s",
}
_SHARES = {Metric.SM: "sm_busy", Metric.OCCUPANCY: "occupancy"}
FIELDS = ("rates", *_SHARES.values(), *_LINKS.values())
"""The fields of a DeviceSample that GPM gives."""

_ACTIVE_PERCENT = 5
NOT_SAMPLED = "the GPU is busy but its counters read zero: another tool may hold them"


@dataclass(frozen=True)
class Peaks:
    """What utilisations are shares of: DRAM bandwidth in byte/s, SMs, and FLOP per SM and clock by pipe."""

    dram_bytes_per_s: float | None
    sms: int | None
    widths: Mapping[Pipe, int]


@dataclass(frozen=True)
class Point:
    """Fields of a DeviceSample by name, and by name why others have no value.

    `clock_hz` is the SM clock that the FLOP/s in `rates` were computed with.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    clock_hz: float | None = None


def interpret(
    read: Mapping[Metric, float], failed: Mapping[Metric, str], peaks: Peaks, clock_hz: float | None
) -> Point:
    """The point that GPM's values make.

    Args:
        read: percent, or MiB/s for links, by metric.
        failed: why a metric has no value.
        peaks: of the device, or of the slice for a MIG instance.
        clock_hz: the SM clock held; None leaves the pipes without rates.
    """
    read, failed = dict(read), dict(failed)
    for metric, value in list(read.items()):
        check = checks.LINK_MIB_PER_S if metric in _LINKS else checks.GPM_PERCENT
        if problem := check(value):
            failed[metric] = problem
            del read[metric]
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for names, scale in ((_SHARES, 0.01), (_LINKS, float(2**20))):
        for metric, name in names.items():
            if metric in read:
                values[name] = read[metric] * scale
            else:
                missing[name] = failed.get(metric, "GPM did not give it")
    if _not_sampled(read):
        return Point(values, None, {**missing, "rates": NOT_SAMPLED})
    rates = _rates(read, peaks, clock_hz)
    if not rates:
        missing["rates"] = failed.get(Metric.DRAM) or (
            "no physical peak of this GPU is known: its utilisation makes no rate"
        )
    return Point(values, rates or None, missing, clock_hz if rates else None)


def _rates(read: Mapping[Metric, float], peaks: Peaks, clock_hz: float | None) -> dict[str, float]:
    rates = {}
    if Metric.DRAM in read and peaks.dram_bytes_per_s:
        rates["dram"] = read[Metric.DRAM] / 100 * peaks.dram_bytes_per_s
    for metric, pipe in PIPES.items():
        width = peaks.widths.get(pipe)
        if metric in read and width and peaks.sms and clock_hz:
            rates[pipe.key] = read[metric] / 100 * width * peaks.sms * clock_hz
    return rates


def _not_sampled(read: Mapping[Metric, float]) -> bool:
    """Whether the counters read zero although the GPU worked: then zero is no measurement."""
    active = max(read.get(Metric.SM, 0.0), read.get(Metric.GRAPHICS, 0.0)) > _ACTIVE_PERCENT
    return active and not any(read.get(metric) for metric in (Metric.DRAM, *PIPES))
