"""Runs the real command in directories of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_double import nvml, nvml_libraries

from roofmon.resources import probes_dir

__all__ = ["nvml", "nvml_libraries"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty home, and one probe only, so that a calibration takes a second."""
    runtime, probes = tmp_path / "run", tmp_path / "probes"
    runtime.mkdir(mode=0o700)
    probes.mkdir()
    shutil.copy(probes_dir() / "copy.toml", probes)
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ROOFMON_", "NO_COLOR"))
    }
    return {
        **kept,
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(runtime),
        "ROOFMON_PROBES": str(probes),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }


@pytest.fixture
def roofmon(environment: dict[str, str]) -> Run:
    """`roofmon ARGUMENTS`, with no terminal; `env` overrides variables."""

    def run(
        *arguments: str, env: dict[str, str] | None = None, timeout: float = 50
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "roofmon", *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**environment, **(env or {})},
        )

    return run
