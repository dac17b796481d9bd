"""The real collector between stand-ins of NVML, CUPTI and a traced program.

Where the traffic goes and whose it is, the clock that FLOP/s are computed with, a precision that the user
tells.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from counters_process import machine
from nvml_scenarios import h200
from pm_sampling_double import PmSamplingDouble, build_double, needs_cupti_python
from watched_gpus import Watched, is_live, sample_of

from roofmon.counters.metric_sets import DRAM_READ, DRAM_WRITE
from roofmon.counters.weights import CYCLES, TENSOR
from roofmon.stream.messages import Command

pytestmark = [pytest.mark.slow, needs_cupti_python]
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "doubles" / "traced_program.py"
UUID = "GPU-5b1cafe0-0000-0000-0000-000000000000"  # of the device that the program names
# Byte/ns of DRAM all the time, in kernels and between them; SM clocks and tensor cycles per ns.
RATES = {DRAM_READ: 1000, DRAM_WRITE: 500, CYCLES: 1.755, TENSOR: 463}
# µs and µs idle before: kernels run for 800 of 1600 µs.
KERNELS = [["_Z4axpyPfS_", 300, 140], ["_Z4copyPfS_", 500, 660]]
BUSY = 0.5


@pytest.fixture
def counters(nvml, tmp_path, monkeypatch):
    """The stand-in of CUPTI; `nvml` shows the same GPU, at a clock that reads too high."""
    runtime = tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    double = PmSamplingDouble(build_double(tmp_path / "libraries"), tmp_path)
    double.set({"kernel0.start_ns": None, "uuid": UUID.removeprefix("GPU-").replace("-", "")})
    double.set({f"rate.{name}": rate for name, rate in RATES.items()})
    library_path = f"{double.env['LD_LIBRARY_PATH']}:{nvml.env['LD_LIBRARY_PATH']}"
    for name, value in (nvml.env | double.env | {"LD_LIBRARY_PATH": library_path}).items():
        monkeypatch.setenv(name, value)
    nvml.write(
        h200()
        | {
            "gpu0.uuid": UUID,
            "gpu0.sm_clock": 1950,
            "gpu0.event_reasons": 4,
            "gpu0.gpm.hmma_tensor_util": 50.0,
            "gpu0.gpm.fp32_util": 0.0,
            # Of 4.814 TB/s: 1.5, as the samples count.
            "gpu0.gpm.dram_bw_util": 1500 / 48.14,
        }
    )
    with machine():
        yield double
    shutil.rmtree(runtime)


@contextmanager
def tracing(kernels=KERNELS):
    """A collector that traces a program; gives it and the program's process."""
    options = {"name": "train.py", "seconds": 60, "kernels": kernels}
    path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(PROGRAM), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout.readline() == "listening\n"
        watched = Watched(f"--attach={child.pid}")
        try:
            yield watched, child
        finally:
            watched.consumer.close()
            child.kill()


def until(watched, condition):
    return watched.until(condition, 20)


def counted(snapshot):
    """The traffic of the device once a window was counted, GPM beside it."""
    traffic = snapshot.traffic.get(UUID)
    known = traffic is not None and traffic.explained_of_gpm is not None
    return traffic if known else None


def kernel(snapshot, name):
    return next(d for d in snapshot.kernels.descriptions if d.name == name)


def test_live_traffic_is_accounted_for_and_the_rest_is_untraced(counters):
    with tracing() as (watched, _):
        # Nothing is said to be 0 before anything was counted.
        first = until(watched, lambda s: s.traffic)
        assert first.traffic[UUID].explained is None
        assert first.traffic[UUID].missing["explained"]
        traffic = counted(until(watched, counted))
        assert traffic.dram_bytes_per_s == pytest.approx(1.5e12, rel=0.01)
        assert traffic.explained == pytest.approx(BUSY, rel=0.05)
        assert traffic.untraced_share == pytest.approx(1 - BUSY, rel=0.05)
        assert traffic.gpm_bytes_per_s == pytest.approx(1.5e12, rel=0.01)
        assert traffic.explained_of_gpm == pytest.approx(BUSY, rel=0.05)
        watched.consumer.send(Command(command="pause"))
        paused = until(watched, lambda s: s.traffic and s.traffic[UUID].explained is None)
        assert paused.traffic[UUID].missing["explained"] == "the screen is paused"


def test_live_kernels_beside_an_untraced_process_are_contended_and_it_is_named(counters, nvml):
    with tracing() as (watched, child):
        me = os.getpid()
        nvml.set({"gpu0.processes": f"{child.pid}:1048576,{me}:1048576"})
        nvml.set({"gpu0.use": f"{child.pid}:0:40,{me}:0:35"})
        snapshot = until(watched, lambda s: counted(s) and counted(s).others)
        (other,) = counted(snapshot).others
        assert other.endswith(f" {me}")
        snapshot = until(
            watched, lambda s: f"{other} used" in kernel(s, "copy").reasons.get("contended", "")
        )
        assert counted(snapshot).contended == kernel(snapshot, "copy").reasons["contended"]


def test_live_only_a_process_that_is_at_work_is_a_rival(counters, nvml):
    # Kernels without a pause between them: their bytes could hold anything, and nothing is untraced.
    with tracing([["_Z4copyPfS_", 500, 0]]) as (watched, child):
        me = os.getpid()
        nvml.set({"gpu0.processes": f"{child.pid}:1048576,{me}:1048576"})
        nvml.set({"gpu0.use": f"{child.pid}:0:40,{me}:0:0"})
        snapshot = until(watched, counted)
        assert counted(snapshot).explained == pytest.approx(1, abs=0.01)
        assert (counted(snapshot).others, counted(snapshot).contended) == ((), "")
        assert "contended" not in kernel(snapshot, "copy").reasons
        nvml.set({"gpu0.use": f"{child.pid}:0:40,{me}:0:35"})
        until(watched, lambda s: str(me) in kernel(s, "copy").reasons.get("contended", ""))
        nvml.set({"gpu0.use": f"{child.pid}:0:40"})
        until(watched, lambda s: "contended" not in kernel(s, "copy").reasons)
        # GPM sees traffic that the samples do not: whose it is nobody can tell.
        nvml.set({"gpu0.gpm.dram_bw_util": 80.0})
        snapshot = until(watched, lambda s: "contended" in kernel(s, "copy").reasons)
        assert kernel(snapshot, "copy").reasons["contended"].startswith("GPM counts far more")


def test_live_flop_rates_follow_the_clock_that_is_counted(counters, nvml):
    with tracing() as (watched, _):
        told = until(watched, lambda s: is_live(s, UUID) and sample_of(s, UUID).rates)
        rates = 0.5 * 4096 * 132
        assert sample_of(told, UUID).rates["tensor/bf16"] == pytest.approx(rates * 1.95e9, rel=1e-3)
        counted_now = until(watched, lambda s: sample_of(s, UUID).mean_clock_hz)
        sample = sample_of(counted_now, UUID)
        assert sample.clock_hz == 1.95e9
        assert sample.mean_clock_hz == pytest.approx(1.755e9, rel=1e-3)
        assert sample.rates["tensor/bf16"] == pytest.approx(rates * 1.755e9, rel=1e-3)
        assert sample.rates["dram"] == pytest.approx(1.5e12, rel=1e-3)
        # A clock that has moved since is not that of the last window.
        nvml.set({"gpu0.sm_clock": 1200})
        moved = until(watched, lambda s: sample_of(s, UUID).rates_clock_hz == 1.2e9)
        assert sample_of(moved, UUID).mean_clock_hz is None
        assert sample_of(moved, UUID).rates["tensor/bf16"] == pytest.approx(rates * 1.2e9, rel=1e-3)


def test_live_the_user_tells_a_precision(counters):
    def pipes(snapshot):
        """Pipe → FLOPs of a launch of `copy`, as far as known."""
        row = next(r for r, d in enumerate(snapshot.kernels.descriptions) if d.name == "copy")
        known = {key: float(c.values[row]) for key, c in snapshot.kernels.flops.items()}
        return {key: value for key, value in known.items() if np.isfinite(value)}

    with tracing() as (watched, _):
        snapshot = until(
            watched,
            lambda s: any(d.candidates for d in s.kernels.descriptions if d.name == "copy"),
        )
        asked = kernel(snapshot, "copy")
        assert asked.candidates == (
            *("tensor/bf16", "tensor/fp16", "tensor/tf32"),
            *("tensor/fp8", "tensor/int8"),
        )
        assert (asked.told, pipes(snapshot)) == ("", {})
        assert "(bf16, fp16, tf32, fp8, int8): precision not known" in asked.reasons["flops"]
        counts = 463 * 500e3
        for pipe, weight in (
            ("bf16", 1024),
            ("fp16", 1024),
            ("tf32", 512),
            ("fp8", 2048),
            ("int8", 2048),
        ):
            watched.consumer.send(Command(command="next-precision", kernel=asked.id))
            told = until(watched, lambda s, pipe=pipe: kernel(s, "copy").told == f"tensor/{pipe}")
            told = until(watched, lambda s, pipe=pipe: f"tensor/{pipe}" in pipes(s))
            assert pipes(told) == {f"tensor/{pipe}": pytest.approx(counts * weight, rel=0.05)}
            assert kernel(told, "axpy").told == ""
        watched.consumer.send(Command(command="next-precision", kernel=asked.id))
        again = until(watched, lambda s: kernel(s, "copy").told == "" and not pipes(s))
        assert "precision not known" in kernel(again, "copy").reasons["flops"]
