"""The access ladder as the collector finds it: each rung with why it stops there, and the fix."""

from collections.abc import Iterator
from pathlib import Path

from roofmon.collector.host_state import HostState
from roofmon.model.session import Rung


def nvidia_gpu_present() -> bool:
    """Whether the kernel driver knows an NVIDIA GPU; asks the file system, not the driver library."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/proc/driver/nvidia/gpus").is_dir()


def ladder(*, telemetry: str, programs: int, host: HostState) -> list[Rung]:
    """The rungs now.

    Args:
        telemetry: "" while samples come, else why they do not.
        programs: how many programs are connected through their regions.
        host: the devices and their samples.
    """
    rungs = [*_nvidia(telemetry, host)] if host.gpus else [_cpu(telemetry)]
    rungs.append(
        Rung(rung="regions", state="active", reason=f"{programs} connected")
        if programs
        else Rung(
            rung="regions",
            state="waiting",
            reason="no program declares its work yet",
            fix="with roofmon.region.region(name, flops=…, bytes=…): in the program",
        )
    )
    reason = "this version does not have it yet" if host.gpus else "no NVIDIA GPU is shown"
    missing = ("tracing", "counters") if host.gpus else ("nvml", "gpm", "tracing", "counters")
    return rungs + [Rung(rung=name, state="unavailable", reason=reason) for name in missing]


def _cpu(problem: str) -> Rung:
    if problem:
        return Rung(rung="cpu", state="unavailable", reason=problem, fix="see the log")
    return Rung(rung="cpu", state="active")


def _nvidia(problem: str, host: HostState) -> Iterator[Rung]:
    samples = [s for uuid in host.gpus if (s := host.samples.get(uuid)) is not None]
    lost = [s.lost for s in samples if s.lost]
    if problem or not samples or len(lost) == len(samples):
        reason = problem or next(iter(lost), "no sample yet")
        yield Rung(rung="nvml", state="unavailable", reason=reason, fix="see the log")
    else:
        some = f", {len(lost)} lost" if lost else ""
        many = "s" if len(samples) > 1 else ""
        yield Rung(rung="nvml", state="active", reason=f"{len(samples)} GPU{many}{some}")
    if any(s.rates for s in samples):
        yield Rung(rung="gpm", state="active")
    else:
        why = [s.missing["rates"] for s in samples if "rates" in s.missing]
        yield Rung(rung="gpm", state="unavailable", reason=next(iter(why), "no sample yet"))
