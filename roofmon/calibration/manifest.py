"""Probes as data: one TOML file says what to run, how its bytes or FLOPs are counted, and from where.

A broken file is named with its line and key, and the good ones load. Neither numpy nor a device is
needed to read, list or hash probes.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.roofline import LevelName, Pipe
from roofmon.resources import config_dir, probes_dir
from roofmon.tomlfile import TomlFile, did_you_mean, read_toml
from roofmon.units import clean

OPERATIONS: Mapping[str, Literal["bandwidth", "compute"]] = {
    "copy": "bandwidth",
    "read": "bandwidth",
    "axpy": "bandwidth",
    "triad": "bandwidth",
    "update": "bandwidth",
    "gemm": "compute",
}
"""What a probe can run, and what kind of roof it gives."""

CPU_LEVELS = ("dram", "llc")
_FIX = "correct or remove this file"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_FACTOR = re.compile(r"[mnk]|[1-9]\d{0,5}(?:\.\d{1,6})?")


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One probe. `bytes_per_element` counts what the code asks for per element of the arrays (no
    write-allocate traffic); `flops` is a product of numbers and the matrix sizes m, n, k.

    Of the probes in one `group` with `roof = true` the best is the ceiling; the others are listed.
    """

    name: str
    title: str
    backend: Literal["numpy"]
    operation: str
    source: str
    group: str
    precision: Literal["fp64", "fp32"] = "fp64"
    level: LevelName | None = None
    bytes_per_element: int | None = None
    flops: str | None = None
    sizes: tuple[int, ...] = ()
    roof: bool = True
    quick: bool = False
    order: int = 1000

    @property
    def kind(self) -> Literal["bandwidth", "compute"]:
        """Whether the probe measures byte/s or FLOP/s."""
        return OPERATIONS[self.operation]

    @property
    def pipe(self) -> Pipe | None:
        """The pipe of a compute probe."""
        return Pipe("vector", self.precision) if self.kind == "compute" else None

    def flop_count(self, m: int, n: int, k: int) -> float:
        """FLOPs of one launch on matrices of m × k and k × n."""
        product = 1.0
        for factor in (self.flops or "").split("*"):
            product *= {"m": m, "n": n, "k": k}.get(factor.strip()) or float(factor)
        return product


def load_probes(
    directories: Iterable[Path] | None = None,
) -> tuple[list[Probe], list[RoofmonError]]:
    """The probes of `directories` (else the bundled and the user's own), by order and name.

    Returns: (probes, problems); each problem names a file that was left out, its line and key.
    """
    if directories is None:
        directories = (probes_dir(), config_dir() / "probes")
    found: dict[str, tuple[Probe, Path]] = {}
    problems: list[RoofmonError] = []
    for path in (path for directory in directories for path in sorted(directory.glob("*.toml"))):
        try:
            probe = read_probe(path)
        except RoofmonError as problem:
            problems.append(problem)
            continue
        if probe.name in found:
            what = f"{path}: the name {probe.name!r} is already used by {found[probe.name][1]}"
            problems.append(RoofmonError(what, "rename one of them", ExitCode.USAGE))
        else:
            found[probe.name] = probe, path
    probes = [probe for probe, _ in found.values()]
    return sorted(probes, key=lambda probe: (probe.order, probe.name)), problems


def read_probe(path: Path) -> Probe:
    """The probe in one file. Raises RoofmonError naming file, line and key."""
    file = read_toml(path)
    try:
        probe = msgspec.convert(file.values, Probe)
    except msgspec.ValidationError as error:
        raise _invalid(file, str(error)) from None
    for key, complaint in _complaints(probe, path.stem):
        raise file.problem((key,), f"{key} {complaint}", _FIX)
    return probe


def sources_hash(probes: Iterable[Probe]) -> str:
    """A hash over everything that the probes say: part of the cache key."""
    return hashlib.sha256(msgspec.json.encode(list(probes))).hexdigest()[:16]


def _complaints(probe: Probe, stem: str) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with it), the first of which is told."""
    if probe.name != stem or not _NAME.fullmatch(probe.name):
        yield "name", f"must be the file's name, {stem!r}, in small letters, digits, - and _"
    for key in ("title", "source", "group"):
        value = getattr(probe, key)
        if not value.strip() or clean(value, 200) != value:
            yield key, "must be one line of text of at most 200 characters"
    if probe.operation not in OPERATIONS:
        yield "operation", f"must be one of {', '.join(OPERATIONS)}"
    elif probe.kind == "bandwidth":
        yield from _bandwidth_complaints(probe)
    else:
        yield from _compute_complaints(probe)


def _bandwidth_complaints(probe: Probe) -> Iterator[tuple[str, str]]:
    if probe.level not in CPU_LEVELS:
        yield "level", f"must be one of {', '.join(CPU_LEVELS)} for {probe.operation!r}"
    if probe.bytes_per_element is None or not 1 <= probe.bytes_per_element <= 1024:
        yield "bytes_per_element", f"must be between 1 and 1024 for {probe.operation!r}"
    for key in ("flops", "sizes"):
        if getattr(probe, key):
            yield key, f"has no meaning for {probe.operation!r}"
    if probe.precision != "fp64":
        yield "precision", "must be fp64 for a bandwidth probe"


def _compute_complaints(probe: Probe) -> Iterator[tuple[str, str]]:
    factors = [factor.strip() for factor in (probe.flops or "").split("*")]
    if not all(_FACTOR.fullmatch(factor) for factor in factors):
        yield "flops", "must be a product of numbers, m, n and k, such as 2*m*n*k"
    if not probe.sizes or not all(16 <= size <= 65536 for size in probe.sizes):
        yield "sizes", "must list matrix sizes between 16 and 65536"
    for key in ("level", "bytes_per_element"):
        if getattr(probe, key) is not None:
            yield key, f"has no meaning for {probe.operation!r}"


def _invalid(file: TomlFile, message: str) -> RoofmonError:
    """msgspec's complaint with its place. It names the key as `$.key`, or quotes it."""
    if unknown := re.search(r"unknown field `(.+?)`", message):
        key, known = clean(unknown[1], 60), Probe.__struct_fields__
        return file.problem((unknown[1],), f"there is no key {key!r}", did_you_mean(key, known))
    if missing := re.search(r"required field `(\w+)`", message):
        return file.problem((), f"{missing[1]} is missing", _FIX)
    place = re.search(r" - at `\$\.(\w+)", message)
    key, complaint = (place[1], message[: place.start()]) if place else ("", message)
    return file.problem((key,), clean(f"{key}: {complaint}"), _FIX)
