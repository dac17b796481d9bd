"""The counters worker on a real GPU: samples complete, cost little, take no memory, and are given back."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "counters"))
from counters_process import batch_of, starting, states

from roofmon.counters.metric_sets import DRAM_READ
from roofmon.counters.overlap import Launches
from roofmon.counters.sampler import MOST_COST

pytestmark = pytest.mark.gpu


def gpu_value(query, kind="gpu"):
    command = ["nvidia-smi", f"--query-{kind}={query}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")


@pytest.fixture
def uuid():
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi")
    return gpu_value("uuid")[0].strip()


@pytest.fixture
def start(tmp_path):
    yield from starting(tmp_path, alone=True)


def test_live_gpu_samples_come_and_cost_little(start, uuid):
    process = start("--device", uuid)
    process.wait(lambda said: any(s.state in ("sampling", "unavailable") for s in states(said)))
    assert states(process.said)[-1].state == "sampling", process.said
    since, nothing = time.time_ns(), np.empty(0, dtype=np.int64)
    for _ in range(20):  # an idle GPU, or one that is used by others: all of it is untraced
        time.sleep(0.25)
        now = time.time_ns()
        process.tell(batch_of(Launches(nothing, nothing, nothing), now, since))
        since = now
    health, result = process.health[-1], process.results[-1]
    print(health, result.metrics, sep="\n")
    assert health.interval_us == 1000
    assert 900 < health.samples_per_s < 1100
    assert health.overflows == health.gaps == 0
    assert health.cost < MOST_COST + 0.05
    assert DRAM_READ in result.metrics
    assert abs(result.end_ns - time.time_ns()) < 3e9  # the clock of the samples is the wall clock
    pids = gpu_value("pid", "compute-apps")
    assert str(process.process.pid) not in [pid.strip() for pid in pids]  # no context
    assert process.end() == (0, "")


def test_live_gpu_counters_are_free_after_release(start, uuid, tmp_path):
    first = start("--device", uuid)
    first.wait_state("sampling")
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    second = start("--device", uuid, env={"XDG_RUNTIME_DIR": str(other)})
    assert "held by" in second.wait_state("unavailable").reason
    first.order("release", "a test")
    first.wait_state("released")
    second.wait_state("sampling")
