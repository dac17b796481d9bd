"""The access ladder as the collector finds it: each rung with why it stops there, and the fix."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from roofmon.collector.host_state import HostState
from roofmon.model.activity import TracedProgram
from roofmon.model.session import Rung


def nvidia_gpu_present() -> bool:
    """Whether the kernel driver knows an NVIDIA GPU; asks the file system, not the driver library."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/proc/driver/nvidia/gpus").is_dir()


def ladder(
    *,
    telemetry: str,
    programs: int,
    traced: Sequence[TracedProgram],
    counters: Rung,
    host: HostState,
) -> list[Rung]:
    """The rungs now.

    Args:
        telemetry: "" while samples come, else why they do not.
        programs: how many programs are connected through their regions.
        traced: the programs that can be traced.
        counters: how far they carry.
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
    if host.gpus or traced:
        rungs += [_tracing(traced), counters]
    known = {rung.rung for rung in rungs}
    return rungs + [
        Rung(rung=name, state="unavailable", reason="no NVIDIA GPU is shown")
        for name in ("nvml", "gpm", "tracing", "counters")
        if name not in known and not host.gpus
    ]


def _tracing(programs: Sequence[TracedProgram]) -> Rung:
    attached = [p for p in programs if p.state == "attached"]
    if attached:
        return Rung(rung="tracing", state="active", reason=f"{len(attached)} attached")
    if starting := next((p for p in programs if p.state == "starting"), None):
        reason = f"{_called(starting)} has yet to start CUPTI"
        return Rung(rung="tracing", state="waiting", reason=reason)
    if failed := next((p for p in programs if p.state in ("failed", "yielded")), None):
        reason = f"{_called(failed)}: {failed.reason}"
        return Rung(rung="tracing", state="unavailable", reason=reason, fix="a attaches again")
    if programs:
        some = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
        reason = f"{_called(programs[0])}{some} can be traced"
        return Rung(rung="tracing", state="waiting", reason=reason, fix="a attaches")
    return Rung(
        rung="tracing",
        state="waiting",
        reason="no program has the tracing library",
        fix='roofmon run -- COMMAND, or eval "$(roofmon env)" in the shell that starts it',
    )


def _called(program: TracedProgram) -> str:
    return f"{program.name} {program.pid}"


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
