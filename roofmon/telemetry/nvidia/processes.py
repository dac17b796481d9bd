"""The processes on a GPU: NVML tells their numbers and memory, /proc their names and users."""

import functools
import pwd
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.model.device import DeviceProcess
from roofmon.telemetry.nvidia.checks import PERCENT, memory_used
from roofmon.telemetry.nvidia.readings import newest
from roofmon.units import clean

ELSEWHERE = "in another namespace"
_MOST = 512  # a GPU with more processes than this shows the first ones
_PROC = Path("/proc")
_LATELY_US = 3_000_000  # the driver keeps samples of several seconds, each of a sixth to one second

_compute = newest(
    nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2
)
_graphics = newest(
    nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, nvml.nvmlDeviceGetGraphicsRunningProcesses_v2
)


@dataclass(frozen=True)
class Use:
    """That a process kept `share` (0 … 1) of the SMs busy until `time_us` (Unix time in µs)."""

    pid: int
    time_us: int
    share: float


def read_processes(
    handle: Any, total_bytes: int | None, busy: Mapping[int, float] | None = None
) -> tuple[DeviceProcess, ...]:
    """The processes on a device, largest memory first. Raises NVMLError where it cannot tell.

    `busy` is what `read_busy` told.
    """
    found: dict[int, int | None] = {}
    for call in (_compute, _graphics):
        try:
            listed = call(handle)
        except nvml.NVMLError as error:
            # A compute card may not know graphics at all; without the compute list nothing is known.
            if call is _graphics and error.value in (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            ):
                continue
            raise
        found.update({one.pid: one.usedGpuMemory for one in listed})
    return describe_processes(found.items(), total_bytes, busy=busy)


def read_busy(handle: Any) -> dict[int, float]:
    """PID → share of the time (0 … 1) that its kernels ran lately, of processes that worked at all.

    Raises NVMLError where the driver does not tell, as when none did.
    """
    busy: dict[int, float] = {}
    for use in read_use(handle, time.time_ns() // 1000 - _LATELY_US):
        busy[use.pid] = max(busy.get(use.pid, 0.0), use.share)
    return busy


def read_use(handle: Any, since_us: int) -> list[Use]:
    """What the driver sampled of processes since a moment, as far as it is plausible. Raises NVMLError."""
    return [
        Use(sample.pid, sample.timeStamp, sample.smUtil / 100)
        for sample in nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        if PERCENT(sample.smUtil) is None
    ]


def describe_processes(
    found: Iterable[tuple[int, int | None]],
    total_bytes: int | None,
    proc: Path = _PROC,
    busy: Mapping[int, float] | None = None,
) -> tuple[DeviceProcess, ...]:
    """(PID, bytes) pairs as processes; `note` stands where /proc does not know the number.

    `busy` is what `read_busy` told. A process that is not in it did nothing; but only where others here
    are, since in a container the driver may call them by other numbers there than in its list.
    """
    found = list(found)
    told = busy is not None and any(pid in busy for pid, _ in found)
    processes = []
    for pid, used in found[:_MOST]:
        wrong = used is None or memory_used(used, total_bytes)
        name, user = _who(pid, proc)
        processes.append(
            DeviceProcess(
                pid=pid,
                name=name,
                user=user,
                memory_bytes=None if wrong else used,
                sm_busy=busy.get(pid, 0.0) if busy is not None and told else None,
                note="" if name else ELSEWHERE,
            )
        )
    return tuple(sorted(processes, key=lambda p: (-(p.memory_bytes or 0), p.pid)))


def _who(pid: int, proc: Path) -> tuple[str, str]:
    """(name, user) of a process; empty where it cannot be seen from here."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes()[:4096].split(b"\0")
        name = (proc / str(pid) / "comm").read_text(errors="replace").strip()
        user = _user((proc / str(pid)).stat().st_uid)
    except OSError:
        return "", ""
    # Of the arguments only the script is shown: others may hold what is nobody's business.
    if name.startswith("python") and len(words) > 1 and words[1].endswith(b".py"):
        name = f"{name} {words[1].rpartition(b'/')[2].decode(errors='replace')}"
    return clean(name, 80) or str(pid), clean(user, 32)


@functools.cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
