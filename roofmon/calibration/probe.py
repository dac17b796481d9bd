"""What one probe says, and how thoroughly probes can be run."""

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from roofmon.model.roofline import REQUESTED, LevelName, Pipe

Kind: TypeAlias = Literal["bandwidth", "compute"]
DeviceKind: TypeAlias = Literal["cpu", "cuda"]
Mode: TypeAlias = Literal["quick", "full", "thorough"]
MODES: tuple[Mode, ...] = ("quick", "full", "thorough")
"""From hasty to thorough: the most important probes, all of them, all with more time."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a file. All but the first six depend on the backend: see `manifest_rules`.

    Of the probes in one `group` with `roof = true` the best is the ceiling; the others are listed.

    What one launch does, by operation:
        numpy   copy, read, axpy, triad, update: `bytes_per_element` for each element of an array;
                gemm: `flops` for each of the square matrix `sizes`.
        cuda    stream: kernel(T* a, T* b, T* c, u64 n) with as many pointers as `arrays`:
                `bytes_per_element` × n;
                reread: kernel(const T* data, u64 n, u32 passes, T* sink): `bytes_per_element` × n × passes;
                loop: kernel(u32 iterations, T* sink): `bytes_per_element` or `flops` for each thread and
                iteration.
        cublas  gemm: `flops` for the best of `shapes` (m, n, k).
        transfer  transfer: `bytes_per_element` × n through the link that `level` names.
    Bytes are those that the code asks for: no write-allocate traffic. `flops` is a product of numbers and,
    for a gemm, the matrix sizes m, n, k.
    """

    name: str
    title: str
    backend: Literal["numpy", "cuda", "cublas", "transfer"]
    operation: str
    source: str
    group: str
    precision: Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int32"] = "fp64"
    """Of a compute probe the pipe's; of a bandwidth probe what its arrays hold."""
    unit: Literal["vector", "tensor"] = "vector"
    level: LevelName | None = None
    bytes_per_element: int | None = None
    counts: str = REQUESTED
    """What the bytes of the roof count: those that the code asks for, or the hardware counter of this name,
    which is sampled while the kernel runs."""
    flops: str | None = None
    sizes: tuple[int, ...] = ()
    shapes: tuple[tuple[int, int, int], ...] = ()
    code: str | None = None
    """The file with the CUDA C source, beside the manifest."""
    kernel: str | None = None
    """The `extern "C" __global__` function. The results of one that is called copy, scale, add or triad
    are checked to be what STREAM means by that."""
    element_bytes: int | None = None
    """sizeof(T)."""
    block: int | None = None
    """Threads in a block."""
    elements_per_thread: int | None = None
    """The grid covers n with so many elements a thread; else it is `blocks_per_sm` × SMs."""
    blocks_per_sm: int | None = None
    arrays: int | None = None
    shared_bytes: int = 0
    """Dynamic shared memory of a block."""
    roof: bool = True
    quick: bool = False
    order: int = 1000


class Probe(Manifest, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest with the CUDA C text that it names (`source_text`, "" without)."""

    source_text: str = ""

    @property
    def device(self) -> DeviceKind:
        """What kind of device the probe runs on."""
        return "cpu" if self.backend == "numpy" else "cuda"

    @property
    def kind(self) -> Kind:
        """Whether the probe measures byte/s or FLOP/s."""
        compute = self.operation == "gemm" or (self.operation == "loop" and self.flops is not None)
        return "compute" if compute else "bandwidth"

    @property
    def pipe(self) -> Pipe | None:
        """The pipe of a compute probe."""
        return Pipe(self.unit, self.precision) if self.kind == "compute" else None

    @property
    def counter(self) -> str | None:
        """What is sampled while the probe runs, as CUPTI names it; None where nothing is."""
        return None if self.counts == REQUESTED else f"{self.counts}.sum"

    def flop_count(self, m: int = 1, n: int = 1, k: int = 1) -> float:
        """FLOPs of one product of m × k and k × n, or of one iteration of a thread of a loop."""
        sizes = {"m": m, "n": n, "k": k}
        factors = [factor.strip() for factor in (self.flops or "").split("*")]
        return math.prod(float(sizes.get(factor, factor)) for factor in factors)


def probes_of_mode(probes: Iterable[Probe], mode: Mode) -> list[Probe]:
    """The probes that a mode runs."""
    return [probe for probe in probes if probe.quick or mode != "quick"]


def probes_for(probes: Iterable[Probe], device: DeviceKind) -> list[Probe]:
    """Those that run on a kind of device."""
    return [probe for probe in probes if probe.device == device]
