"""What this CPU is: name, usable cores, caches, memory, and an identity that stays the same.

Read from /proc and /sys. A value that the system does not tell is None; only the working sets of the
calibration replace an unknown cache size by an assumption, and say so.
"""

import hashlib
import math
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from roofmon.model.device import DeviceDescription
from roofmon.units import clean

ASSUMED_LLC_BYTES = 32 * 2**20
"""Taken for the last-level cache where the system does not tell: as large as one core complex of a
server CPU has, so that a DRAM working set of four times as much is seldom too small."""

_ROOT = Path("/")


@dataclass(frozen=True)
class Caches:
    """Cache bytes that the usable cores reach, summed over sockets; None where unknown.

    `private_bytes` is what lies between the first-level and the last-level cache.
    """

    llc_bytes: int | None
    private_bytes: int


@dataclass(frozen=True)
class Host:
    """The CPU device. `cpus` are the logical CPUs that this process may use, `cores` how many of them
    the cgroup quota lets run at once."""

    name: str
    cpus: tuple[int, ...]
    cores: int
    caches: Caches
    memory_bytes: int
    virtual: bool

    @property
    def uuid(self) -> str:
        """An identity of the CPU that survives a reboot and differs between unlike machines."""
        facts = (self.name, platform.machine(), self.cores, self.caches, self.memory_bytes >> 30)
        return "cpu-" + hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def read_host() -> Host:
    """This machine. Takes a few milliseconds; a process needs it once."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    cpuinfo = _text(Path("/proc/cpuinfo"))
    quota = quota_cores()
    return Host(
        name=_model_name(cpuinfo),
        cpus=cpus,
        cores=len(cpus) if quota is None else max(1, min(len(cpus), math.ceil(quota))),
        caches=read_caches(cpus),
        memory_bytes=psutil.virtual_memory().total,
        virtual=bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)),
    )


def describe_cpu(host: Host | None = None) -> DeviceDescription:
    """The CPU as a device of the stream."""
    host = host or read_host()
    return DeviceDescription(
        uuid=host.uuid,
        index=0,
        name=host.name,
        kind="cpu",
        cores=host.cores,
        memory_bytes=host.memory_bytes,
        cache_bytes=host.caches.llc_bytes,
    )


def available_memory_bytes() -> int:
    """Memory that can be taken now without swapping, within the cgroup's limit."""
    available: int = psutil.virtual_memory().available
    for directory in _cgroup_directories("memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit_text, used_text = _text(directory / limit), _text(directory / used)
            if limit_text.isdecimal() and used_text.isdecimal():
                available = min(available, int(limit_text) - int(used_text))
    return max(0, available)


def read_caches(cpus: Iterable[int], root: Path = _ROOT) -> Caches:
    """The caches of these CPUs. Each is summed once: CPUs that share one name the same sharers."""
    sizes: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size"))
            level = _text(index / "level")
            if size and level.isdecimal() and _text(index / "type") != "Instruction":
                scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
                shared = _text(index / "shared_cpu_list") or str(cpu)
                sizes[int(level), shared] = int(size[1]) * scale
    last = max((level for level, _ in sizes), default=0)
    if last < 2:
        return Caches(None, 0)
    return Caches(
        llc_bytes=sum(size for (level, _), size in sizes.items() if level == last),
        private_bytes=sum(size for (level, _), size in sizes.items() if 1 < level < last),
    )


def quota_cores(root: Path = _ROOT) -> float | None:
    """Cores' worth of time that the cgroup's CPU quota allows; None without a quota."""
    quotas = []
    for directory in _cgroup_directories("cpu", root):
        quota, _, period = _text(directory / "cpu.max").partition(" ")
        if not quota:
            quota = _text(directory / "cpu.cfs_quota_us")
            period = _text(directory / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _model_name(cpuinfo: str) -> str:
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    board = _text(Path("/proc/device-tree/model")).strip("\0")
    name = found[1] if found else board or f"{platform.machine()} CPU"
    return clean(" ".join(name.split()), 80)


def _cgroup_directories(controller: str, root: Path = _ROOT) -> list[Path]:
    """Directories whose limits hold for this process: its own cgroup and those above it."""
    directories = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        own = top / path.lstrip("/")
        directories += [own, *(parent for parent in own.parents if parent.is_relative_to(top))]
    return directories
