"""The whole path once, as a user runs it: roofs measured, the workload under them, none above its roof."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofmon.collector.rungs import nvidia_gpu_present

pytestmark = pytest.mark.slow


def test_the_demo_shows_kernels_under_measured_roofs(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ROOFMON_"))}
    # A program of another test may name a GPU that is not there, which would be shown first.
    device = [] if nvidia_gpu_present() else ["--device", "cpu"]
    command = [sys.executable, "-m", "roofmon", "demo", "--once", "--json", "--seconds", "4"]
    result = subprocess.run(
        [*command, *device],
        check=False,
        capture_output=True,
        text=True,
        timeout=58,
        env={**kept, "HOME": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    ceilings = [c for d in document["devices"] for c in d["roofline"]["ceilings"]]
    assert len(ceilings) >= 4
    assert len(document["kernels"]) >= 8
    assert all(c["ci_low"] <= c["value"] <= c["ci_high"] for c in ceilings)
    if any("contended" in c["flags"] for c in ceilings):
        pytest.skip("other programs use the CPU: roofs measured beside them are low, and say so")
    above = {
        kernel["name"]: kernel["position"]["percent_low"]
        for kernel in document["kernels"]
        if (kernel["position"]["percent_low"] or 0) > 105
    }
    assert not above
