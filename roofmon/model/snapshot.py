"""One moment of a host, complete in itself: devices with their roofs, kernels, rungs, notices.

Live session, recording, demo and imported report all become this value; everything downstream of it is
a pure function.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.histogram import NO_HISTOGRAMS, Histograms
from roofmon.model.roofline import NO_ROOFS, Roofline
from roofmon.model.session import Notice, Progress, Rung
from roofmon.model.table import EMPTY_TABLE, KernelTable
from roofmon.model.traffic import Traffic


@dataclass(frozen=True)
class Device:
    """A device with its latest sample and its roofline."""

    description: DeviceDescription
    sample: DeviceSample | None = None
    roofline: Roofline = NO_ROOFS
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that is known at one moment. `time_unix_ns` is the moment, `interval_ns` since the last tick.

    `stale` holds why the data is no longer live (the collector died, the recording ended), else "".
    """

    host: str
    time_unix_ns: int
    interval_ns: int = 0
    started_unix_ns: int = 0
    devices: tuple[Device, ...] = ()
    kernels: KernelTable = EMPTY_TABLE
    histograms: Histograms = NO_HISTOGRAMS
    rungs: tuple[Rung, ...] = ()
    notices: tuple[Notice, ...] = ()
    dropped: int = 0  # records that were lost on their way from the programs
    programs: Mapping[int, str] = field(default_factory=dict)  # pid → name of attached programs
    traced: tuple[TracedProgram, ...] = ()  # programs that can be traced, attached or not
    activity: Mapping[str, Activity] = field(default_factory=dict)  # of devices with traced kernels
    traffic: Mapping[str, Traffic] = field(default_factory=dict)  # of the same devices
    stale: str = ""

    def device(self, uuid: str) -> Device | None:
        """The device with this UUID."""
        return next((d for d in self.devices if d.description.uuid == uuid), None)
