"""What works on this machine, what does not, why, and what to do about it.

Ends with 0 when roofmon can run here, 1 when something that it needs is missing.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from roofmon import __version__
from roofmon.config import config_path, load_config
from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import cache_dir, config_dir, log_path, probes_dir, runtime_dir, themes_dir

_PACKAGES = ("textual", "rich", "plotext", "numpy", "msgspec", "psutil")
_GPU_PATIENCE_S = 10.0
_MARK = {"ok": "✓", "optional": "–", "problem": "✗"}


@dataclass(frozen=True)
class Check:
    """One line: `ok`; `optional`, missing but not needed; or `problem`."""

    subject: str
    state: Literal["ok", "optional", "problem"]
    text: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `roofmon doctor`."""
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--config", type=Path, help="another configuration file")


def run(args: argparse.Namespace) -> int:
    """Print every check."""
    checks = [
        *_program(),
        *_terminal(),
        *_devices(),
        *_tracing(),
        *_files(),
        *_settings(args.config),
    ]
    if args.json:
        print(json.dumps([asdict(c) for c in checks], indent=2))
    else:
        unicode = "utf" in (sys.stdout.encoding or "").lower()
        for check in checks:
            mark = _MARK[check.state] if unicode else check.state.upper()
            print(f"{mark} {check.subject:<14}{check.text}")
            if check.fix:
                print(f"  {'':<14}→ {check.fix}" if unicode else f"  {'':<14}-> {check.fix}")
    return ExitCode.ERROR if any(c.state == "problem" for c in checks) else ExitCode.OK


def _program() -> Iterator[Check]:
    yield Check("roofmon", "ok", f"{__version__}, Python {platform.python_version()}")
    for name in _PACKAGES:
        try:
            yield Check(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, "problem", "not installed", "install roofmon again")


def _terminal() -> Iterator[Check]:
    from roofmon.terminal import draws_unicode, unsuitable

    reason = unsuitable(os.environ, sys.stdin, sys.stderr)
    size = shutil.get_terminal_size()
    if reason:
        yield Check("terminal", "optional", reason, "--once and --json work without one")
    else:
        kind = os.environ.get("TERM", "?")
        yield Check("terminal", "ok", f"{kind}, {size.columns}×{size.lines}")
    if not draws_unicode("auto", getattr(sys.stderr, "encoding", None)):
        yield Check("encoding", "optional", "not UTF-8: ASCII is drawn", "export LANG=C.UTF-8")
    if os.environ.get("NO_COLOR"):
        yield Check("colour", "ok", "NO_COLOR is set: none is used")


def _devices() -> Iterator[Check]:
    from roofmon.telemetry.host import describe_cpu

    cpu = describe_cpu()
    cache = f"{cpu.cache_bytes / 2**20:.0f} MiB" if cpu.cache_bytes else "unknown"
    yield Check("CPU", "ok", f"{cpu.name}, {cpu.cores} cores, last-level cache {cache}")
    yield from _gpus()


def _gpus() -> Iterator[Check]:
    """What the telemetry worker finds; asked in its own process, since a driver call may hang."""
    from roofmon.collector.host_state import HostState
    from roofmon.collector.rungs import nvidia_gpu_present
    from roofmon.collector.workers import start_process

    host = HostState(lambda message: None)
    worker = start_process("roofmon.telemetry.worker", ["--device", "nvidia"], subprocess.DEVNULL)
    end = time.monotonic() + _GPU_PATIENCE_S
    # A sample of everything that was described; where no GPU is found the worker describes the CPU.
    while time.monotonic() < end and not (
        host.devices and host.devices.keys() <= host.samples.keys()
    ):
        if select.select([worker.fileno()], [], [], 0.2)[0]:
            messages = worker.receive()
            if messages is None:
                break
            for message in messages:
                host.take(message)
    worker.end()
    present = nvidia_gpu_present()
    for notice in host.notices:
        yield Check("NVIDIA GPU", "problem" if present else "optional", notice.what, notice.fix)
    if present and not host.gpus and not host.notices:
        yield Check("NVIDIA GPU", "problem", "the driver does not answer", "see nvidia-smi")
    for uuid, gpu in host.gpus.items():
        sample = host.samples.get(uuid)
        point = sample.missing.get("rates", "") if sample else "no sample yet"
        live = f"no live point ({point})" if point else "live point by GPM"
        yield Check(f"GPU {gpu.index}", "ok", f"{gpu.name}, {uuid}, driver {gpu.driver}, {live}")
    if host.gpus and importlib.util.find_spec("cupy") is None:
        fix = (
            "pip install 'roofmon[cuda13]' (cuda12 for an older driver; cuda13-ctk where there is no CUDA "
            "toolkit): measures the GPU's roofs, and lets the demo run on it"
        )
        yield Check("CuPy", "optional", "not installed", fix)


def _tracing() -> Iterator[Check]:
    from roofmon.tracing.inject.build import library_path

    try:
        library = library_path()
    except RoofmonError as error:
        yield Check("tracing", "optional", error.what, error.fix)
    else:
        yield Check("tracing", "ok", f"the library that programs load: {library}")


def _files() -> Iterator[Check]:
    try:
        yield Check("sockets", "ok", str(runtime_dir()))
    except RoofmonError as error:
        yield Check("sockets", "problem", error.what, error.fix)
    cache = cache_dir()
    nearest = next(p for p in (cache, *cache.parents) if p.exists())
    if os.access(nearest, os.W_OK):
        yield Check("cache", "ok", str(cache))
    else:
        fix = "roofs are measured anew at each start; set XDG_CACHE_HOME to keep them"
        yield Check("cache", "optional", f"{cache} cannot be written", fix)
    yield Check("log", "ok", str(log_path() or "nowhere: its folder cannot be written"))


def _settings(path: Path | None) -> Iterator[Check]:
    from roofmon.actions import keymap
    from roofmon.calibration.manifest import load_probes
    from roofmon.themes import load_themes

    config, problems = load_config(path, os.environ, {})
    problems += keymap(config)[1]
    chosen = path or config_path()
    yield Check("configuration", "ok", str(chosen) if chosen.exists() else f"{chosen} (none yet)")
    probes, probe_problems = load_probes([probes_dir(), config_dir() / "probes"])
    yield Check("probes", "ok", f"{len(probes)} of {probes_dir()}")
    themes, theme_problems = load_themes(themes_dir(), config_dir() / "themes")
    yield Check("themes", "ok", ", ".join(sorted(themes)))
    for problem in (*problems, *probe_problems, *theme_problems):
        yield Check("settings", "problem", problem.what, problem.fix)
