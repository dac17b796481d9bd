"""Probes as data: one TOML file says what to run, how its bytes or FLOPs are counted, and from where.

A broken file is named with its line and key, and the good ones load. Neither numpy nor a device is
needed to read, list or hash probes.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from roofmon.calibration.manifest_rules import complaints
from roofmon.calibration.probe import Manifest, Probe
from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import config_dir, probes_dir, read_limited
from roofmon.tomlfile import SIZE_LIMIT, TomlFile, did_you_mean, read_toml
from roofmon.units import clean

_FIX = "correct or remove this file"


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
        manifest = msgspec.convert(file.values, Manifest)
    except msgspec.ValidationError as error:
        raise _invalid(file, str(error)) from None
    probe = Probe(**msgspec.structs.asdict(manifest))
    for key, complaint in complaints(probe, path.stem):
        raise file.problem((key,), f"{key} {complaint}", _FIX)
    if probe.code is None:
        return probe
    return msgspec.structs.replace(probe, source_text=_source_text(file, path.parent / probe.code))


def sources_hash(probes: Iterable[Probe]) -> str:
    """A hash over everything that the probes say and run: part of the cache key."""
    return hashlib.sha256(msgspec.json.encode(list(probes))).hexdigest()[:16]


def _source_text(file: TomlFile, path: Path) -> str:
    try:
        return read_limited(path.resolve(), SIZE_LIMIT).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise file.problem(("code",), f"code: cannot read {path}: {clean(why)}", _FIX) from None


def _invalid(file: TomlFile, message: str) -> RoofmonError:
    """msgspec's complaint with its place. It names the key as `$.key`, or quotes it."""
    if unknown := re.search(r"unknown field `(.+?)`", message):
        key, known = clean(unknown[1], 60), Manifest.__struct_fields__
        return file.problem((unknown[1],), f"there is no key {key!r}", did_you_mean(key, known))
    if missing := re.search(r"required field `(\w+)`", message):
        return file.problem((), f"{missing[1]} is missing", _FIX)
    place = re.search(r" - at `\$\.(\w+)", message)
    key, complaint = (place[1], message[: place.start()]) if place else ("", message)
    return file.problem((key,), clean(f"{key}: {complaint}"), _FIX)
