"""What is to be calibrated: a device, which probes say something about it, and under which conditions."""

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roofmon.calibration.cache import cpu_conditions, gpu_conditions
from roofmon.calibration.gpu_library import prepare_environment
from roofmon.calibration.probe import Mode, Probe, probes_for
from roofmon.calibration.supervisor import Batch
from roofmon.device_choice import choose, default_device, mark_visible
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling, Conditions
from roofmon.model.session import Notice
from roofmon.telemetry.host import ASSUMED_LLC_BYTES, describe_cpu, read_host
from roofmon.units import mebibytes

Notify = Callable[[Notice], None]
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Target:
    """One device.

    `probes` are all that run on its kind, `not_applicable` says of some why not here. `find_peer` looks for
    the GPU at the other end of NVLink, which takes a while: (UUID, "") or (None, why there is none).
    """

    uuid: str
    probes: list[Probe]
    conditions_of: Callable[[Mode], Conditions]
    bounds: tuple[Ceiling, ...] = ()
    not_applicable: dict[str, str] = field(default_factory=dict)
    find_peer: Callable[[], tuple[str | None, str]] = lambda: (None, "a CPU has no NVLink")

    def batches(
        self, probes: Sequence[Probe], peer: str | None, mode: Mode, scale: float
    ) -> list[Batch]:
        """The processes that measure `probes`: on a GPU one that sees it alone, so that no context is made
        elsewhere, and one that sees its peer as well."""
        cpu = all(probe.device == "cpu" for probe in probes)
        device = ("--device", "cpu" if cpu else self.uuid)
        arguments = (*device, "--mode", mode, "--scale", str(scale))
        if cpu:
            return [Batch(tuple(probes), arguments)]
        alone = tuple(probe for probe in probes if probe.level != "nvlink")
        linked = tuple(probe for probe in probes if probe.level == "nvlink")
        visible = ((alone, self.uuid), (linked, f"{self.uuid},{peer}"))
        return [Batch(some, arguments, prepare_environment(seen)) for some, seen in visible if some]


def find_target(wanted: str, probes: Sequence[Probe], scale: float, notify: Notify) -> Target:
    """The device that a user means: as `device_choice.choose`, or `auto` for the first visible GPU, else
    the CPU. Raises RoofmonError."""
    if wanted == "cpu":
        return _cpu_target(probes, scale, notify)
    # Brings pynvml, which a CPU does not need.
    from roofmon.telemetry.nvidia.calibration_readings import list_gpus

    if _UUID.fullmatch(wanted):
        # As the collector gives it: no need to look at other GPUs, which takes a while.
        return _gpu_target(wanted, probes)
    cpu = describe_cpu()
    try:
        devices = [*list_gpus(), cpu]
    except RoofmonError as problem:
        if wanted != "auto":
            raise
        what = f"{problem.what}: measuring the CPU"
        notify(Notice(severity="info", what=what, fix=problem.fix))
        return _cpu_target(probes, scale, notify)
    marked = mark_visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    uuid = default_device(marked) if wanted == "auto" else choose(marked, wanted)
    if uuid is None or uuid == cpu.uuid:
        return _cpu_target(probes, scale, notify)
    return _gpu_target(uuid, probes)


def _cpu_target(probes: Sequence[Probe], scale: float, notify: Notify) -> Target:
    host = read_host()
    own = probes_for(probes, "cpu")
    not_applicable = {}
    if host.caches.llc_bytes is None:
        what = "the system does not tell the last-level cache"
        not_applicable = {probe.name: what for probe in own if probe.level == "llc"}
        assumed = f"{mebibytes(ASSUMED_LLC_BYTES)} are assumed to size the sets for DRAM"
        notify(Notice(severity="info", what=f"{what}: it gets no roof, and {assumed}"))
    return Target(
        uuid=host.uuid,
        probes=own,
        conditions_of=lambda mode: cpu_conditions(host, probes, mode, scale),
        not_applicable=not_applicable,
    )


def _gpu_target(uuid: str, probes: Sequence[Probe]) -> Target:
    from roofmon.telemetry.nvidia.bounds import WIDTHS
    from roofmon.telemetry.nvidia.calibration_readings import CalibrationReadings, nvlink_peer

    readings = CalibrationReadings(uuid)
    limits = readings.limits()
    device = limits.conditions or Conditions(device=uuid)
    capability = readings.description.compute_capability or ""
    own = probes_for(probes, "cuda")
    not_applicable = {
        probe.name: f"compute capability {capability} has no {probe.precision} tensor cores"
        for probe in own
        if capability in WIDTHS
        and probe.pipe
        and probe.pipe.unit == "tensor"
        and probe.pipe not in WIDTHS[capability]
    }
    if importlib.util.find_spec("cupti") is None:
        why = "cupti-python is not installed: pip install 'roofmon[counters]'"
        not_applicable |= {probe.name: why for probe in own if probe.counter}
    return Target(
        uuid=uuid,
        probes=own,
        conditions_of=lambda mode: gpu_conditions(device, probes, mode),
        bounds=limits.ceilings,
        not_applicable=not_applicable,
        find_peer=lambda: nvlink_peer(uuid, os.environ.get("CUDA_VISIBLE_DEVICES")),
    )
