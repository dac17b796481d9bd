"""The telemetry worker on a real GPU: what it says of it, and its live point beside loops of known work."""

import os
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.roofline import Pipe, Roofline
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import Describe, Message, Roofs, Tick

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent
INTERVAL_S = 0.5
LOOP_S = 3.5


class Worker:
    """The real worker, read by hand: `until` gives every message up to a deadline or a condition."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-m", "roofmon.telemetry.worker", "--device", "nvidia"]
        self.process = subprocess.Popen(
            [*command, "--interval", str(INTERVAL_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "XDG_STATE_HOME": str(state),
                "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            },
        )
        self._deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
        self.devices: dict[str, DeviceDescription] = {}
        self.rooflines: dict[str, Roofline] = {}

    def samples(self, device: str, seconds: float) -> list[DeviceSample]:
        """The samples of a device that come within so many seconds."""
        assert self.process.stdout is not None
        found = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.process.stdout], [], [], left)[0]:
                break
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, "the worker ended"
            for message in self._deframer.feed(data):
                match message:
                    case Describe():
                        self.devices.update({d.uuid: d for d in message.devices})
                    case Roofs():
                        self.rooflines[message.device] = message.roofline
                    case Tick():
                        found += [s for s in message.samples if s.device == device]
        return found


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU: {error}")
    worker = Worker(tmp_path_factory.mktemp("state"))
    worker.samples("", 3.0)
    yield worker
    worker.process.kill()
    worker.process.wait()


@pytest.fixture(scope="module")
def gpu(worker: Worker) -> DeviceDescription:
    """The GPU that programs here use first."""
    found = [d for d in worker.devices.values() if d.kind == "cuda" and d.selected and not d.parent]
    assert found, worker.devices
    return found[0]


def test_it_says_what_the_gpu_is(worker: Worker, gpu: DeviceDescription) -> None:
    print(gpu)
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", gpu.uuid)
    assert gpu.name
    assert gpu.driver
    assert re.fullmatch(r"\d+(\.\d+)+", gpu.driver)
    assert gpu.memory_bytes is not None
    assert gpu.memory_bytes > 2**30
    assert re.fullmatch(r"[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.0", gpu.pci_bus_id or "")


def test_values_are_plausible(worker: Worker, gpu: DeviceDescription) -> None:
    samples = worker.samples(gpu.uuid, 1.6)
    assert len(samples) >= 2
    sample = samples[-1]
    print(sample)
    assert sample.lost == ""
    assert 100e6 <= (sample.clock_hz or 0) <= 4e9
    assert 5 <= (sample.temperature_c or 0) <= 110
    assert 1 <= (sample.power_w or 0) <= 1.3 * (sample.power_limit_w or 2000)
    assert 0 <= (sample.memory_used_bytes or 0) <= (gpu.memory_bytes or 0)
    assert sample.event_reasons is not None
    assert sample.processes is not None
    for field in sample.__struct_fields__:
        if getattr(sample, field) is None:
            assert sample.missing[field], field


def test_it_is_small_and_cheap(worker: Worker, gpu: DeviceDescription) -> None:
    psutil = pytest.importorskip("psutil")
    process = psutil.Process(worker.process.pid)
    before, began = process.cpu_times(), time.monotonic()
    worker.samples(gpu.uuid, 5.0)
    after, seconds = process.cpu_times(), time.monotonic() - began
    share = (after.user + after.system - before.user - before.system) / seconds
    gpus = sum(d.kind == "cuda" for d in worker.devices.values())
    resident = process.memory_info().rss / 2**20
    print(f"{share:.2%} of a core for {gpus} GPUs at 2 Hz, {resident:.0f} MiB")
    assert not any("numpy" in mapping.path for mapping in process.memory_maps())
    # About half of it is the driver library.
    assert resident < 64 + 4 * (gpus - 1)
    assert share <= 0.02 * gpus


def test_the_bounds_of_an_h200(worker: Worker, gpu: DeviceDescription) -> None:
    if gpu.compute_capability != "9.0" or "H200" not in gpu.name:
        pytest.skip(f"{gpu.name} is no H200")
    roofline = worker.rooflines[gpu.uuid]
    assert gpu.cores == 132
    dram = roofline.bandwidth("dram")
    assert dram is not None
    assert dram.value == pytest.approx(4.814e12, rel=0.01)
    for pipe, tera in {
        "vector/fp64": 33.5,
        "vector/fp32": 66.9,
        "vector/fp16": 133.8,
        "tensor/fp64": 66.9,
        "tensor/tf32": 535.3,
        "tensor/bf16": 1070.5,
        "tensor/fp8": 2141.1,
        "tensor/int8": 2141.1,
    }.items():
        ceiling = roofline.compute(Pipe.parse(pipe))
        assert ceiling is not None, pipe
        assert ceiling.value / 1e12 == pytest.approx(tera, rel=0.005), pipe
        assert ceiling.regime == "bound"


# Each prints the rate that it reaches after every half second, so that the same stretch is compared.
_LOOP = """
import sys, time
import torch
torch.backends.cuda.matmul.allow_tf32 = False
kind, seconds = sys.argv[1], float(sys.argv[2])
device = torch.device("cuda:0")
if kind == "add":
    n = 2**27
    a, b = torch.rand(n, device=device), torch.rand(n, device=device)
    c, work = torch.empty_like(a), 12.0 * n
    step = lambda: torch.add(a, b, out=c)
else:
    n, dtype = (8192, torch.bfloat16) if kind == "bf16" else (8192, torch.float32)
    a = torch.randn(n, n, device=device).to(dtype)
    b = torch.randn(n, n, device=device).to(dtype)
    c, work = torch.empty_like(a), 2.0 * n**3
    step = lambda: torch.matmul(a, b, out=c)
step(); torch.cuda.synchronize()
batch = 1
while True:
    began = time.perf_counter()
    for _ in range(batch): step()
    torch.cuda.synchronize()
    if time.perf_counter() - began > 0.05: break
    batch *= 2
print("ready", flush=True)
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < 0.5:
        for _ in range(batch): step()
        torch.cuda.synchronize()
        done += batch
    print(done * work / (time.perf_counter() - began), flush=True)
"""


@pytest.fixture
def loop() -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(kind: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        process = subprocess.Popen(
            [sys.executable, "-c", _LOOP, kind, str(LOOP_S)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("kind", "rate", "unit"),
    [
        ("add", "dram", "byte/s"),
        ("fp32", "vector/fp32", "FLOP/s"),
        ("bf16", "tensor/bf16", "FLOP/s"),
    ],
)
def test_the_live_point_is_where_the_work_is(
    worker: Worker,
    gpu: DeviceDescription,
    loop: Callable[[str], Any],
    kind: str,
    rate: str,
    unit: str,
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    idle = worker.samples(gpu.uuid, 1.1)
    if idle[-1].rates is None:
        pytest.skip(f"no live point here: {idle[-1].missing['rates']}")
    process = loop(kind)
    worker_pid = process.pid
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "ready\n":
        pytest.skip(f"torch cannot use the GPU: {process.communicate()[1].strip()[-300:]}")
    worker.samples(gpu.uuid, 0.8)  # the interval in which the loop began is not of one kind
    samples = worker.samples(gpu.uuid, LOOP_S - 1.4)
    out, _ = process.communicate(timeout=60)
    truth = statistics.median([float(number) for number in out.split()][1:-1])
    seen = [s.rates[rate] for s in samples if s.rates is not None]
    assert len(seen) >= 3
    point = statistics.median(seen)
    busy = statistics.median([s.sm_busy or 0 for s in samples])
    print(
        f"{kind}: the loop did {truth / 1e12:.3f} T{unit}, the point shows {point / 1e12:.3f} "
        f"({point / truth - 1:+.1%}), SMs busy {busy:.0%}, {samples[-1].event_reasons}"
    )
    # At a power cap the driver's clock reads up to 13 % high, and so do FLOP/s computed with it.
    capped = rate != "dram" and any("power" in r for s in samples for r in s.event_reasons or ())
    assert 0.95 * truth < point < (1.16 if capped else 1.05) * truth
    assert any(p.pid == worker_pid or p.note for p in samples[-1].processes or ())
