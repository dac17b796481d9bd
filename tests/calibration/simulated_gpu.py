"""A GPU of known rates, as far as `GpuBench` uses one: memory that can be read, kernels of STREAM's that
compute, products that cuBLAS would give, and a clock of its own that work moves on."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

from roofmon.calibration.gpu_fill import KERNELS
from roofmon.calibration.probe import Probe
from roofmon.errors import RoofmonError

DRAM, L2, L1, PCIE = 4e12, 9e12, 33e12, 50e9  # byte/s
FLOPS, GEMM_FLOPS = 60e12, 1e11
CAP_S, SWING_S, SWING = 0.05, 0.7, 0.88
"""After so long under load a power cap holds the GEMMs, and then holds them back too much."""
BASE = 1 << 32
TOTAL = 256 * 2**20
_TYPES = {0: "f4", 1: "f8", 2: "f2", 14: "bf16"}


class Allocation:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class Event:
    def __init__(self, gpu: "SimulatedGpu", at: float) -> None:
        self._gpu, self.at = gpu, at

    @property
    def done(self) -> bool:
        return self._gpu.host_s >= self.at

    def synchronize(self) -> None:
        self._gpu.host_s = max(self._gpu.host_s, self.at)


class SimulatedGpu:
    sms = 4
    l2_bytes = 4 * 2**20
    stream = SimpleNamespace(ptr=0)

    def __init__(self, free_bytes: int = 96 * 2**20) -> None:
        self.host_s = self.device_s = 0.0
        self.faults: set[str] = set()  # kernels that compute wrongly, or write to their sink
        self.efficiency: dict[tuple[int, int, int], float] = {}
        self.sustained: dict[tuple[int, int, int], float] = {}  # once a power cap holds it
        self._rested_s = 0.0
        self._free_bytes = free_bytes
        self._memory = np.zeros(TOTAL, "u1")
        self._next = BASE
        self._computed: set[tuple[object, ...]] = set()
        self.runtime = SimpleNamespace(
            memset=lambda ptr, value, size: self._at(ptr, size).fill(value),
            memcpy=self._memcpy,
            memcpyAsync=self._copy,
            memcpyDefault=4,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
        )
        cublas = SimpleNamespace(
            gemmEx=self._gemm, CUBLASError=ValueError, getVersion=lambda handle: 130100
        )
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(cublas=cublas, get_cublas_handle=lambda: 1)
        )

    def free_bytes(self) -> int:
        return self._free_bytes

    def allocate(self, size: int) -> Allocation:
        if self._next + size > BASE + TOTAL:
            raise RoofmonError("no room")
        self._next += -(-size // 256) * 256
        return Allocation(self._next - -(-size // 256) * 256)

    def pinned(self, size: int) -> int:
        return self.allocate(size).ptr

    def fill(self, memory: Allocation, size: int, precision: str) -> None:
        kind = {"fp64": 1, "fp32": 0, "tf32": 0, "fp16": 2, "bf16": 14}[precision]
        count = size // KERNELS[precision][1]
        numbers = np.random.default_rng(memory.ptr).normal(0, 0.44, min(count, 2**16))
        self._store(memory.ptr, np.resize(numbers, count), kind)
        self._computed.clear()

    def function(self, probe: Probe) -> Probe:
        return probe

    def launch(
        self, probe: Probe, blocks: int, threads: int, arguments: list[Any], shared: int = 0
    ) -> None:
        work, rate = float(probe.bytes_per_element or probe.flop_count()), FLOPS
        match probe.operation:
            case "stream":
                *starts, n = map(int, arguments)
                work, rate = work * n, DRAM
                self._compute(probe, starts, n)
            case "reread":
                work, rate = work * int(arguments[1]) * int(arguments[2]), L2
            case "loop":
                work *= blocks * threads * int(arguments[0])
                rate = FLOPS if probe.flops else L1
        if probe.kernel in self.faults and probe.operation != "stream":
            self._at(int(arguments[-1]), 4).fill(1)
        self._spend(work / rate)

    def record(self) -> Event:
        return Event(self, self.device_s)

    def seconds_between(self, start: Event, end: Event) -> float:
        return end.at - start.at

    def wait(self) -> None:
        self.host_s = max(self.host_s, self.device_s)

    def rest(self, seconds: float) -> None:
        self.wait()
        self.host_s += seconds
        self._rested_s = self.host_s

    def read(self, address: int, count: int, dtype: str) -> "np.ndarray[Any, Any]":
        self.wait()
        return self._at(address, count * np.dtype(dtype).itemsize).view(dtype).copy()

    def broken(self) -> bool:
        return False

    def _at(self, address: int, size: int) -> "np.ndarray[Any, Any]":
        assert address >= BASE, f"{address:#x} is no address"
        assert address + size <= BASE + TOTAL
        return self._memory[address - BASE : address - BASE + size]

    def _spend(self, seconds: float) -> None:
        self.host_s += 5e-6
        self.device_s = max(self.device_s, self.host_s) + seconds

    def _compute(self, probe: Probe, starts: list[int], n: int) -> None:
        size = n * (probe.element_bytes or 0)
        if (probe.kernel, *starts) in self._computed:
            return  # again would give the same
        self._computed.add((probe.kernel, *starts))
        a, *others = (self._at(start, size).view("f8") for start in starts)
        wrong = 1e-9 if probe.kernel in self.faults else 0.0
        match probe.kernel:
            case "copy":
                a[:] = others[0] + wrong
            case "scale":
                a[:] = 0.4 * others[0] + wrong
            case "triad":
                a[:] = others[0] + 0.4 * others[1] + wrong
            case "write":
                a[:] = 0.4

    def _memcpy(self, to: int, address: int, size: int, kind: int) -> None:
        ctypes.memmove(to, self._at(address, size).ctypes.data, size)

    def _copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        if "transfer" not in self.faults and (to, source) not in self._computed:
            self._computed.add((to, source))
            self._at(to, size)[:] = self._at(source, size)
        self._spend(size / PCIE)

    def _gemm(self, handle: int, *arguments: int) -> None:
        """In columns, as cuBLAS: C ← op(A)·op(B), with A given transposed."""
        transposed, plain, m, n, k, _, a, kind, lda, b, _, ldb, _, c, _, ldc, _, _ = arguments
        assert (transposed, plain, lda, ldb, ldc) == (1, 0, k, k, m)
        if (m, n, k, a, b) not in self._computed:
            self._computed = {(m, n, k, a, b)}  # another shape's product is overwritten
            product = self._numbers(b, n * k, kind).reshape(n, k) @ (
                self._numbers(a, m * k, kind).reshape(m, k).T
            )
            self._store(c, product.ravel() + ("gemm" in self.faults), kind)
        shape = (n, m, k)  # by rows it is n × m
        efficiency = self.efficiency.get(shape, 0.5)
        if self.device_s - self._rested_s > CAP_S:
            efficiency = self.sustained.get(shape, efficiency)
        if self.device_s - self._rested_s > SWING_S:
            efficiency *= SWING
        self._spend(2 * m * n * k / (GEMM_FLOPS * efficiency))

    def _numbers(self, address: int, count: int, kind: int) -> "np.ndarray[Any, Any]":
        if _TYPES[kind] == "bf16":
            halves = self._at(address, 2 * count).view("u2").astype("u4")
            return (halves << 16).view("f4").astype("f8")
        size = np.dtype(_TYPES[kind]).itemsize
        return self._at(address, size * count).view(_TYPES[kind]).astype("f8")

    def _store(self, address: int, values: "np.ndarray[Any, Any]", kind: int) -> None:
        if _TYPES[kind] == "bf16":
            halves = (values.astype("f4").view("u4") >> 16).astype("u2")
            self._at(address, 2 * len(values)).view("u2")[:] = halves
        else:
            size = np.dtype(_TYPES[kind]).itemsize
            self._at(address, size * len(values)).view(_TYPES[kind])[:] = values


class SimulatedReadings:
    """Clocks that NVML would tell."""

    bits = 0

    def clock_hz(self) -> float | None:
        return 1.98e9

    def memory_clock_hz(self) -> float | None:
        return 3.2e9

    def event_bits(self) -> int:
        return self.bits
