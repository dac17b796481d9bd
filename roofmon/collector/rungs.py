"""The access ladder as the collector finds it: each rung with why it stops there, and the fix."""

from pathlib import Path

from roofmon.model.session import Rung

_NEEDS_GPU = ("nvml", "gpm", "tracing", "counters")


def nvidia_gpu_present() -> bool:
    """Whether the kernel driver knows an NVIDIA GPU; asks the file system, not the driver library."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/proc/driver/nvidia/gpus").is_dir()


def ladder(*, telemetry: str, programs: int, gpu_present: bool) -> list[Rung]:
    """The rungs now.

    Args:
        telemetry: "" while samples come, else why they do not.
        programs: how many programs are connected through their regions.
        gpu_present: whether this machine has an NVIDIA GPU.
    """
    rungs = [
        Rung(rung="cpu", state="active")
        if not telemetry
        else Rung(rung="cpu", state="unavailable", reason=telemetry, fix="see the log")
    ]
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
    reason = (
        "this version does not read NVIDIA GPUs yet" if gpu_present else "no NVIDIA GPU found here"
    )
    rungs += [Rung(rung=name, state="unavailable", reason=reason) for name in _NEEDS_GPU]
    return rungs
