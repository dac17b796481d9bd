import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from roofmon.telemetry.host import (
    available_memory_bytes,
    describe_cpu,
    quota_cores,
    read_caches,
    read_host,
)


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    values = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}
    return {f"{folder}/{name}": value for name, value in values.items()}


def test_this_machine() -> None:
    host = read_host()
    assert host.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert 1 <= host.cores <= len(host.cpus)
    assert host.memory_bytes == psutil.virtual_memory().total
    assert 0 < available_memory_bytes() <= host.memory_bytes
    description = describe_cpu(host)
    assert (description.uuid, description.kind) == (host.uuid, "cpu")
    assert description.name.isprintable()
    assert description.name.strip()


def test_the_identity_is_the_same_in_another_process_and_follows_the_cores() -> None:
    code = "from roofmon.telemetry.host import read_host; print(read_host().uuid)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == read_host().uuid
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:
        try:
            os.sched_setaffinity(0, {min(cpus)})
            assert read_host().cores == 1
            assert read_host().uuid != other.stdout.strip()
        finally:
            os.sched_setaffinity(0, cpus)


def test_caches_are_summed_over_sockets_and_counted_once(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for cpu in range(4):
        socket = "0-1" if cpu < 2 else "2-3"
        files |= cache(cpu, 0, 1, "Data", "32K", str(cpu))
        files |= cache(cpu, 1, 1, "Instruction", "32K", str(cpu))
        files |= cache(cpu, 2, 2, "Unified", "512K", str(cpu))
        files |= cache(cpu, 3, 3, "Unified", "16M", socket)
    put(tmp_path, files)
    both = read_caches(range(4), tmp_path)
    assert both.llc_bytes == 2 * 16 * 2**20
    assert both.private_bytes == 4 * 512 * 2**10
    assert read_caches([0, 1], tmp_path).llc_bytes == 16 * 2**20


def test_a_second_level_cache_may_be_the_last(tmp_path: Path) -> None:
    put(tmp_path, cache(0, 0, 1, "Data", "64K", "0") | cache(0, 1, 2, "Unified", "1024K", "0-3"))
    caches = read_caches([0], tmp_path)
    assert caches.llc_bytes == 2**20
    assert caches.private_bytes == 0


def test_an_unknown_cache_is_not_zero(tmp_path: Path) -> None:
    assert read_caches([0], tmp_path).llc_bytes is None
    put(tmp_path, cache(0, 0, 1, "Data", "32K", "0") | cache(0, 1, 2, "Unified", "?", "0"))
    assert read_caches([0], tmp_path).llc_bytes is None


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "150000 100000"}, 1.5),
        # The tightest of the cgroups on the way up holds.
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "800000 100000",
                "sys/fs/cgroup/a/cpu.max": "250000 100000",
            },
            2.5,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu:/x",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/x",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_cpu_quotas(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert quota_cores(put(tmp_path, files)) == cores
