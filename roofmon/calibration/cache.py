"""Calibrations kept between runs: one JSON file for each set of conditions.

Reading needs neither numpy nor a device, so that valid roofs are drawn at once. A cache that cannot be
read or written costs one notice and nothing else.
"""

import contextlib
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from roofmon.calibration.manifest import sources_hash
from roofmon.calibration.probe import Mode, Probe, probes_for, probes_of_mode
from roofmon.calibration.results import CalibrationResult
from roofmon.model.roofline import Conditions
from roofmon.model.session import Notice
from roofmon.resources import cache_dir, read_limited, write_private
from roofmon.telemetry.host import Host
from roofmon.units import clean

_LIBRARIES = (
    ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    ("nvidia-cublas", "nvidia-cublas-cu12"),
    ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    ("cupti-python",),
)

_LIMIT = 2**20


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    conditions: Conditions
    result: CalibrationResult


def cpu_conditions(
    host: Host, probes: Iterable[Probe], mode: Mode, scale: float = 1.0
) -> Conditions:
    """Under what a calibration of this CPU is valid. numpy's version stands for the BLAS it brings."""
    at_scale = "" if scale == 1.0 else f"×{scale:g}"
    chosen = probes_of_mode(probes_for(probes, "cpu"), mode)
    return Conditions(
        device=host.uuid,
        driver=f"numpy {importlib.metadata.version('numpy')}",
        probes=f"{mode}{at_scale}-{sources_hash(chosen)}",
        threads=host.cores,
    )


def gpu_conditions(device: Conditions, probes: Iterable[Probe], mode: Mode) -> Conditions:
    """Under what a calibration of a GPU is valid: what NVML says of the device, and what is run on it."""
    chosen = probes_of_mode(probes_for(probes, "cuda"), mode)
    run = f"{mode}-{sources_hash(chosen)}"
    return msgspec.structs.replace(device, probes=f"{run}, {library_versions()}")


def library_versions() -> str:
    """The versions of what GPU probes run on: CuPy and, where they came from PyPI, cuBLAS and NVRTC; and
    cupti-python, without which no counter is sampled.

    Those of a CUDA toolkit are not told without loading them, which takes longer than reading a cache.
    """
    found = []
    for names in _LIBRARIES:
        for name in names:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found.append(f"{name} {importlib.metadata.version(name)}")
                break
    return ", ".join(found)


def load_best(
    conditions_of: Callable[[Mode], Conditions],
    modes: Iterable[Mode],
    notify: Callable[[Notice], None] = lambda notice: None,
) -> CalibrationResult | None:
    """The first valid calibration of `modes`."""
    for mode in modes:
        if result := load_cached(conditions_of(mode), notify):
            return result
    return None


def load_cached(
    conditions: Conditions, notify: Callable[[Notice], None] = lambda notice: None
) -> CalibrationResult | None:
    """The calibration kept for exactly these conditions; a broken file is told and ignored."""
    path = cache_path(conditions)
    try:
        entry = msgspec.json.decode(read_limited(path, _LIMIT), type=_Entry)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        notify(_notice(f"the calibration kept in {path} cannot be read", error))
        return None
    return entry.result if entry.conditions == conditions else None


def store(
    conditions: Conditions,
    result: CalibrationResult,
    notify: Callable[[Notice], None] = lambda notice: None,
) -> None:
    """Keep a calibration, unless something spoiled it."""
    if not result.worth_keeping:
        return
    path = cache_path(conditions)
    try:
        write_private(path, msgspec.json.encode(_Entry(conditions, result)))
    except OSError as error:
        notify(_notice(f"the calibration cannot be kept in {path}", error))


def cache_path(conditions: Conditions) -> Path:
    """The file for these conditions."""
    key = hashlib.sha256(msgspec.json.encode(conditions)).hexdigest()[:24]
    return cache_dir() / "calibration" / f"{key}.json"


def _notice(what: str, error: Exception) -> Notice:
    return Notice(
        severity="warning",
        what=clean(f"{what}: {error}"),
        fix="the roofs are measured anew each time; remove the file or give write permission",
    )
