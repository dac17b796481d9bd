"""The real collector with a traced program and a stand-in of libcupti: bytes reach the snapshot."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from counters_process import machine
from pm_sampling_double import PmSamplingDouble, build_double, needs_cupti_python
from watched_gpus import Watched

from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE
from roofmon.stream.messages import Command

pytestmark = [pytest.mark.slow, needs_cupti_python]
ROOT = Path(__file__).parents[2]
UUID = "5b1cafe0" + 24 * "0"  # of the device that the program names
PROGRAM = ROOT / "tests" / "doubles" / "traced_program.py"


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device that reads 1000 and writes 500 byte/ns all the time."""
    runtime = tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    double = PmSamplingDouble(build_double(tmp_path / "libraries"), tmp_path)
    rates = {f"rate.{DRAM_READ}": 1000, f"rate.{DRAM_WRITE}": 500}
    double.set({"kernel0.start_ns": None, "uuid": UUID, **rates})
    for name, value in double.env.items():
        monkeypatch.setenv(name, value)
    with machine():
        yield double
    shutil.rmtree(runtime)


@pytest.fixture
def program(device):
    options = {"name": "train.py", "seconds": 60}
    options["kernels"] = [["_Z4axpyfPfS_", 300, 140], ["_Z4copyPfS_", 500, 730]]
    command = [sys.executable, str(PROGRAM), json.dumps(options)]
    path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as child:
        assert child.stdout.readline() == "listening\n"
        yield child
        child.kill()


def rung(snapshot):
    return next(r for r in snapshot.rungs if r.rung == "counters")


def sampled(snapshot):
    """Name of each kernel → its sampled DRAM bytes."""
    found = {}
    for column in snapshot.kernels.work:
        if (column.kind, column.key, column.provenance) == ("bytes", "dram", "sampled"):
            for description, value in zip(
                snapshot.kernels.descriptions, column.values, strict=True
            ):
                if np.isfinite(value):
                    found[description.name] = float(value)
    return found


def test_live_sampled_bytes_reach_the_snapshot(program, device):
    watched = Watched("--device", "cpu", "--no-calibration", f"--attach={program.pid}")
    try:
        snapshot = watched.until(lambda s: len(sampled(s)) == 2 and "samples/s" in rung(s).reason)
        # 300 and 500 µs at 1500 byte/ns.
        assert sampled(snapshot) == pytest.approx({"axpy": 450e6, "copy": 750e6}, rel=0.05)
        assert rung(snapshot).state == "active"
        watched.consumer.send(Command(command="pause"))
        snapshot = watched.until(lambda s: rung(s).state == "off")
        assert rung(snapshot).reason == "the screen is paused"
        watched.consumer.send(Command(command="resume"))
        watched.until(lambda s: rung(s).state == "active")
        watched.consumer.send(Command(command="reset"))
        watched.until(lambda s: len(sampled(s)) == 2)
    finally:
        watched.consumer.close()
