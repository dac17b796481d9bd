"""The counters worker on a real GPU: samples complete, cost little, take no memory, and are given back."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "counters"))
from counter_accuracy import parts_of, sampled_rows
from counter_ncu import ncu_kernels, run_ncu
from counter_watch import Loads
from counters_process import batch_of, machine, starting, states
from watched_gpus import Watched

from roofmon.counters.metric_sets import DRAM_READ
from roofmon.counters.overlap import Launches
from roofmon.counters.sampler import MOST_COST
from roofmon.model.table import Column
from roofmon.stream.messages import Command

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
needs_ncu = pytest.mark.skipif(shutil.which("ncu") is None, reason="ncu is not on the PATH")


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


@pytest.fixture
def traced(monkeypatch):
    """An unmodified torch program, and a collector that is attached to it."""
    runtime = tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    with machine(alone=True):
        program = Loads(traced=True)
        try:
            program.wait_ready()
            watched = Watched(f"--attach={program.process.pid}")
            try:
                watched.until(lambda s: any(p.state == "attached" for p in s.traced), 30)
                yield program, watched
            finally:
                watched.consumer.close()
        finally:
            program.close()
    shutil.rmtree(runtime, ignore_errors=True)


def rung(snapshot):
    return next(r for r in snapshot.rungs if r.rung == "counters")


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
    print(*process.health, result.metrics, sep="\n")
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


@needs_torch
def test_live_gpu_an_unmodified_torch_program_gets_its_bytes(traced):
    program, watched = traced
    answer = program.run("add", 5.0)
    assert "error" not in answer, answer
    seen = watched.until(
        lambda s: any(t.end_unix_ns > answer["end_ns"] for t in s.traffic.values()), 30
    )
    assert rung(seen).state == "active", rung(seen)
    launches = dict(
        zip(
            [description.id for description in seen.kernels.descriptions],
            seen.kernels.column(Column.LAUNCHES).tolist(),
            strict=True,
        )
    )
    (added,) = parts_of(seen, launches, answer["iterations"])
    print(added, rung(seen))
    assert "add" in added.description.full_name.lower()
    assert added.sampled.bytes == pytest.approx(answer["bytes"], rel=0.05)


@needs_torch
@needs_ncu
def test_live_gpu_ncu_succeeds_meanwhile_and_sampling_comes_back(traced):
    program, watched = traced
    program.run("add", 0.5)
    watched.until(lambda s: rung(s).state == "active", 60)
    code, text, said = run_ncu(shutil.which("ncu"), ["add"])
    meanwhile = rung(watched.consumer.snapshot)
    assert code == 0, said
    moved = [kernel.bytes for kernel in ncu_kernels(text)]
    assert moved == pytest.approx([12 * 2**26] * 2, rel=0.05), text[-1000:]
    assert meanwhile.state == "off", meanwhile  # it waits some seconds for another ncu
    assert "ncu" in meanwhile.reason
    watched.until(lambda s: rung(s).state == "active", 30)
    watched.consumer.send(Command(command="reset"))
    watched.until(lambda s: not len(s.kernels), 20)
    program.start("run add 5")
    watched.until(lambda s: any(r.bytes > 0 for r in sampled_rows(s).values()), 20)
