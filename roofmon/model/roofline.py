"""Ceilings and the roofline they form: performance ≤ min(peak compute, intensity × bandwidth).

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009. Everything is in SI units: byte/s, FLOP/s, FLOP/byte, Hz, seconds.
Unknown is None (scalars) or NaN (arrays), never 0.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

LevelName: TypeAlias = Literal["dram", "llc", "l2", "l1", "pcie_h2d", "pcie_d2h", "nvlink"]
LEVELS: tuple[LevelName, ...] = ("dram", "llc", "l2", "l1", "pcie_h2d", "pcie_d2h", "nvlink")
UNITS = ("vector", "tensor")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int32")

Regime: TypeAlias = Literal["sustained", "gemm", "issue", "bound"]
"""How a ceiling was reached: `sustained` bandwidth, the best a library `gemm` sustains, the most the
pipe can `issue`, or a physical `bound` computed from widths and clocks (never measured)."""

REQUESTED = "requested"
"""What a bandwidth ceiling's bytes count unless said otherwise: bytes that the code asked for. A roof
for sampled bytes names the hardware counter instead, since one counter's bytes are not another's."""

_BEST_FIRST: dict[str, int] = {"sustained": 0, "gemm": 1, "issue": 2, "bound": 3}


class Pipe(msgspec.Struct, frozen=True, order=True):
    """An execution pipe: `unit` vector or tensor, and the precision it works in."""

    unit: str
    precision: str

    @property
    def key(self) -> str:
        """The name used in columns and JSON keys: `tensor/bf16`."""
        return f"{self.unit}/{self.precision}"

    @property
    def operation(self) -> str:
        """What its work is counted in: FLOP, or OP where the precision is an integer."""
        return "OP" if self.precision.startswith("int") else "FLOP"

    @classmethod
    def parse(cls, key: str) -> "Pipe":
        """The pipe of `tensor/bf16`. Raises ValueError for names that are not known."""
        unit, _, precision = key.partition("/")
        if unit not in UNITS or precision not in PRECISIONS:
            raise ValueError(f"no such pipe: {key!r} (unit/precision, for example tensor/bf16)")
        return cls(unit, precision)


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured (or physical) limit of a device.

    `value` is the median of `n` samples in byte/s (bandwidth, with `level`) or FLOP/s (compute, with
    `pipe`; of an integer pipe OP/s); `ci_low`, `ci_high` bound it at 95 %. `clock_hz` is the clock that the
    rate follows, held while it was measured. `flags` say what disturbed it: contended, power-capped,
    thermal, not-converged, over-bound, small-set.
    """

    kind: Literal["bandwidth", "compute"]
    value: float
    ci_low: float
    ci_high: float
    regime: Regime
    n: int
    probe: str
    level: LevelName | None = None
    pipe: Pipe | None = None
    counts: str = REQUESTED
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    event_reasons: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    time_unix_s: float = 0.0

    @property
    def per_clock(self) -> float | None:
        """FLOPs or bytes per clock cycle of the device; None where the clock is not known."""
        return self.value / self.clock_hz if self.clock_hz else None

    @property
    def unit(self) -> str:
        """The unit of `value` as it is shown: B/s, FLOP/s, or OP/s of an integer pipe."""
        return "B/s" if self.pipe is None else f"{self.pipe.operation}/s"

    @property
    def name(self) -> str:
        """What the roof is called on screen: `DRAM`, `L2`, `L2 sampled`, `bf16`, `fp32 vector`."""
        if self.pipe is not None:
            return pipe_label(self.pipe)
        return bandwidth_label(self.level or "dram", self.counts)


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What held while the ceilings were measured; a cache entry is valid only under the same."""

    device: str  # UUID of a GPU; for a CPU the model and core count
    driver: str | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig_profile: str | None = None
    probes: str = ""  # hash over the sources of the probes
    threads: int | None = None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies in seconds: one launch to the next of an empty kernel, and a load per level."""

    launch_s: float | None = None
    load_s: Mapping[str, float] = {}


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of one device, with the conditions they were measured under."""

    ceilings: tuple[Ceiling, ...] = ()
    conditions: Conditions | None = None
    latency: Latency = Latency()

    def bandwidth(self, level: str, counts: str = REQUESTED) -> Ceiling | None:
        """The roof of a memory level for bytes counted as `counts`; measured ones before bounds."""
        return _best(
            c
            for c in self.ceilings
            if c.kind == "bandwidth" and c.level == level and c.counts == counts
        )

    def compute(self, pipe: Pipe, regime: str | None = None) -> Ceiling | None:
        """The roof of a pipe; of a given regime, or else the best-founded one there is.

        A tensor pipe's default is the library GEMM it sustains, a vector pipe's the rate it issues:
        a GEMM is not the roof of a vector pipe where an FMA chain was measured too.
        """
        found = [c for c in self.ceilings if c.kind == "compute" and c.pipe == pipe]
        if regime is not None:
            return _best(c for c in found if c.regime == regime)
        if pipe.unit == "vector":
            issue = [c for c in found if c.regime == "issue"]
            return _best(issue or found)
        return _best(found)

    def attainable(
        self, intensity: float, level: str, pipe: Pipe, counts: str = REQUESTED
    ) -> float | None:
        """min(intensity × bandwidth, compute) in FLOP/s at `intensity` FLOP/byte of `level`.

        With only one of the two roofs known it is that roof's limit; with none, None.
        """
        memory, compute = self.bandwidth(level, counts), self.compute(pipe)
        limits = []
        if memory is not None:
            limits.append(intensity * memory.value)
        if compute is not None:
            limits.append(compute.value)
        return min(limits) if limits else None

    def ridge(self, level: str, pipe: Pipe, counts: str = REQUESTED) -> float | None:
        """The intensity in FLOP/byte where both roofs meet: compute / bandwidth."""
        memory, compute = self.bandwidth(level, counts), self.compute(pipe)
        if memory is None or compute is None:
            return None
        return compute.value / memory.value

    def at_clock(
        self, ceiling: Ceiling, clock_hz: float, bound: float | None = None
    ) -> float | None:
        """The roof at the present SM clock: min(rate per clock × clock, physical bound).

        Only pipes and L1/shared memory follow the SM clock; L2 and DRAM have their own, and so keep
        their measured value here. None where the ceiling's own clock is not known.
        """
        if ceiling.kind == "bandwidth" and ceiling.level != "l1":
            return ceiling.value
        per_clock = ceiling.per_clock
        if per_clock is None:
            return None
        scaled = per_clock * clock_hz
        return scaled if bound is None else min(scaled, bound)


NO_ROOFS = Roofline()


def _best(ceilings: Iterable[Ceiling]) -> Ceiling | None:
    return min(ceilings, key=lambda c: (_BEST_FIRST[c.regime], -c.value), default=None)


def time_floor_s(
    roofline: Roofline, flops: Mapping[Pipe, float], bytes_by_level: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """The least time that one launch can take, in seconds.

    Returns: (the largest of bytes/bandwidth over levels and FLOPs/peak over pipes, which assumes
    perfect overlap; Σ FLOPs/peak over pipes, the floor of the compute part when pipes do not overlap).
    Work without a roof, or a roof without work, is left out; None where nothing is left.
    """
    compute = [
        amount / roof.value for pipe, amount in flops.items() if (roof := roofline.compute(pipe))
    ]
    memory = [
        amount / roof.value
        for level, amount in bytes_by_level.items()
        if (roof := roofline.bandwidth(level))
    ]
    both = compute + memory
    return (max(both) if both else None, sum(compute) if compute else None)


def launch_limited_flops(flops_per_launch: float, launch_s: float) -> float:
    """FLOP/s that a kernel of this size cannot pass: its FLOPs over the launch-to-launch time.

    The flat line of the latency-limited region; Yang, Kurth, Williams, "Hierarchical Roofline analysis
    for GPUs", CCPE 32(20), 2020, shows it as a bound of small kernels.
    """
    return flops_per_launch / launch_s


def concurrency_limited_bandwidth(bytes_in_flight: float, load_s: float) -> float:
    """Byte/s that a kernel with this much in flight cannot pass: Little's law, bytes / latency."""
    return bytes_in_flight / load_s


def level_label(level: str) -> str:
    """How a memory level is written on screen."""
    return {"pcie_h2d": "PCIe→", "pcie_d2h": "PCIe←", "nvlink": "NVLink"}.get(level, level.upper())


def bandwidth_label(level: str, counts: str = REQUESTED) -> str:
    """How the roof of a memory level is written on screen, for bytes counted as `counts`."""
    return level_label(level) + ("" if counts == REQUESTED else " sampled")


def operation_of(pipe: Pipe | None) -> str:
    """What a pipe's work is counted in: "FLOP", "OP" for integers; where the pipe is not known, FLOP."""
    return pipe.operation if pipe is not None else "FLOP"


def pipe_label(pipe: Pipe) -> str:
    """How a pipe is written on screen: tensor pipes by precision, vector fp16 and the like in full."""
    natural = "vector" if pipe.precision in ("fp64", "fp32", "int32") else "tensor"
    return pipe.precision if pipe.unit == natural else f"{pipe.precision} {pipe.unit}"
