"""What a probe's keys must be, by its backend and operation."""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from roofmon.calibration.probe import Manifest, Probe
from roofmon.model.roofline import REQUESTED
from roofmon.units import clean

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "numpy": ("copy", "read", "axpy", "triad", "update", "gemm"),
    "cuda": ("stream", "reread", "loop"),
    "cublas": ("gemm",),
    "transfer": ("transfer",),
}
"""What each backend can run."""

LEVELS: Mapping[str, tuple[str, ...]] = {
    "numpy": ("dram", "llc"),
    "cuda": ("dram", "l2", "l1"),
    "transfer": ("pcie_h2d", "pcie_d2h", "nvlink"),
}
COUNTERS: Mapping[str, str] = {"l2": "lts__t_bytes"}
"""Level → the counter that its traffic is sampled by, where that does not count requested bytes."""

CUBLAS_PRECISIONS = ("fp64", "tf32", "fp16", "bf16")
VALUE_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2}
"""Numbers that an array of a CUDA kernel can be filled with."""

_COMMON = {"name", "title", "backend", "operation", "source", "group", "roof", "quick", "order"}
_LAUNCH = {"code", "kernel", "element_bytes", "block", "blocks_per_sm", "shared_bytes"}
_MEANINGFUL: Mapping[tuple[str, str], set[str]] = {
    ("numpy", "gemm"): {"flops", "sizes", "precision"},
    ("cuda", "stream"): _LAUNCH
    | {"level", "bytes_per_element", "precision", "arrays", "elements_per_thread"},
    ("cuda", "reread"): _LAUNCH | {"level", "bytes_per_element", "precision", "counts"},
    ("cuda", "loop"): _LAUNCH | {"level", "bytes_per_element", "flops", "precision", "unit"},
    ("cublas", "gemm"): {"flops", "shapes", "precision", "unit"},
}
_BYTES_ALONE = {"level", "bytes_per_element"}

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_CODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}\.cu")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,120}")
_NUMBER = r"[1-9]\d{0,5}(?:\.\d{1,6})?"
_FACTOR = re.compile(_NUMBER)
_MATRIX_FACTOR = re.compile(rf"[mnk]|{_NUMBER}")


def complaints(probe: Probe, stem: str) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with it), the first of which is told; `stem` is the file's name."""
    if probe.name != stem or not _NAME.fullmatch(probe.name):
        yield "name", f"must be the file's name, {stem!r}, in small letters, digits, - and _"
    for key in ("title", "source", "group"):
        value = getattr(probe, key)
        if not value.strip() or clean(value, 200) != value:
            yield key, "must be one line of text of at most 200 characters"
    if probe.operation not in OPERATIONS[probe.backend]:
        known = ", ".join(OPERATIONS[probe.backend])
        yield "operation", f"must be one of {known} for the backend {probe.backend!r}"
        return
    yield from _numpy_or_link(probe) if probe.backend in ("numpy", "transfer") else _gpu(probe)
    meaningful = _MEANINGFUL.get((probe.backend, probe.operation), _BYTES_ALONE) | _COMMON
    yield from _meaningless(probe, (k for k in _defaults() if k not in meaningful))


def _numpy_or_link(probe: Probe) -> Iterator[tuple[str, str]]:
    if probe.kind == "bandwidth":
        yield from _bytes(probe, 1024)
        if probe.precision != "fp64":
            yield "precision", "must be fp64 for a bandwidth probe"
        return
    yield from _flops(probe, _MATRIX_FACTOR)
    if probe.precision not in ("fp64", "fp32"):
        yield "precision", "must be fp64 or fp32 for the backend 'numpy'"
    if not probe.sizes or not all(16 <= size <= 65536 for size in probe.sizes):
        yield "sizes", "must list matrix sizes between 16 and 65536"


def _gpu(probe: Probe) -> Iterator[tuple[str, str]]:
    if probe.backend == "cublas":
        yield from _cublas(probe)
        return
    if probe.operation == "loop" and (probe.flops is None) == (probe.bytes_per_element is None):
        yield "operation", "'loop' needs either flops or bytes_per_element"
    if probe.kind == "compute":
        yield from _flops(probe, _FACTOR)
        yield from _meaningless(probe, ["level"])
    else:
        yield from _bytes(probe, 65536)
        yield from _meaningless(probe, ["unit"])
    yield from _launch(probe)
    counter = COUNTERS.get(probe.level or "")
    if probe.counts not in (REQUESTED, counter):
        known = f"{REQUESTED} or {counter}" if counter else REQUESTED
        yield "counts", f"must be {known} for the level {probe.level!r}"
    if probe.operation != "loop":
        size = VALUE_BYTES.get(probe.precision)
        if size is None or (probe.element_bytes or 0) % size:
            yield "precision", "must be fp64, fp32 or fp16, and whole numbers of it an element"
    if probe.operation == "stream":
        if probe.arrays is None or not 1 <= probe.arrays <= 3:
            yield "arrays", "must be between 1 and 3 for 'stream'"
        if (probe.elements_per_thread is None) == (probe.blocks_per_sm is None):
            yield "operation", "'stream' needs either elements_per_thread or blocks_per_sm"


def _launch(probe: Probe) -> Iterator[tuple[str, str]]:
    if probe.code is None or not _CODE.fullmatch(probe.code):
        yield "code", "must name a .cu file beside this one"
    if probe.kernel is None or not _IDENTIFIER.fullmatch(probe.kernel):
        yield "kernel", "must name a function of that file"
    if probe.element_bytes not in (2, 4, 8, 16):
        yield "element_bytes", "must be 2, 4, 8 or 16"
    if probe.block is None or probe.block % 32 or not 32 <= probe.block <= 1024:
        yield "block", "must be a multiple of 32 between 32 and 1024"
    for key, most in (("elements_per_thread", 1024), ("blocks_per_sm", 64)):
        value = getattr(probe, key)
        if value is not None and not 1 <= value <= most:
            yield key, f"must be between 1 and {most}"
    if not 0 <= probe.shared_bytes <= 262144:
        yield "shared_bytes", "must be between 0 and 262144"


def _cublas(probe: Probe) -> Iterator[tuple[str, str]]:
    yield from _flops(probe, _MATRIX_FACTOR)
    if probe.precision not in CUBLAS_PRECISIONS:
        yield "precision", f"must be one of {', '.join(CUBLAS_PRECISIONS)} for 'cublas'"
    if probe.unit != "tensor":
        yield "unit", "must be tensor for the backend 'cublas'"
    sizes = [size for shape in probe.shapes for size in shape]
    if not 1 <= len(probe.shapes) <= 32 or not all(16 <= size <= 65536 for size in sizes):
        yield "shapes", "must list 1 to 32 shapes [m, n, k] of sizes between 16 and 65536"


def _bytes(probe: Probe, most: int) -> Iterator[tuple[str, str]]:
    if probe.level not in LEVELS[probe.backend]:
        known = ", ".join(LEVELS[probe.backend])
        yield "level", f"must be one of {known} for {probe.operation!r}"
    if probe.bytes_per_element is None or not 1 <= probe.bytes_per_element <= most:
        yield "bytes_per_element", f"must be between 1 and {most} for {probe.operation!r}"


def _flops(probe: Probe, factor: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    if not all(factor.fullmatch(one.strip()) for one in (probe.flops or "").split("*")):
        sizes = ", m, n and k, such as 2*m*n*k" if factor is _MATRIX_FACTOR else ", such as 2*16"
        yield "flops", f"must be a product of numbers{sizes}"


def _meaningless(probe: Probe, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    for key in keys:
        if getattr(probe, key) != _defaults()[key]:
            yield key, f"has no meaning for {probe.operation!r}"


def _defaults() -> dict[str, object]:
    fields = msgspec.structs.fields(Manifest)
    return {field.name: field.default for field in fields if not field.required}
