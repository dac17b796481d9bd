"""The messages of the stream, and how one is framed.

A frame is a 4-byte little-endian length and that many bytes of msgpack. Static facts travel once
(`Describe`), values as columns (`Tick`): arrays are raw little-endian bytes inside the message, which a
consumer takes with `numpy.frombuffer`. A `Keyframe` holds everything, so that a consumer can start (or
a recording be entered) there. This module imports neither numpy nor anything of a device: the workers
speak the same framing.
"""

import msgspec

from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import REQUESTED, Roofline
from roofmon.model.session import Notice, Progress, Rung
from roofmon.model.traffic import Traffic

VERSION = 1
MAX_MESSAGE = 64 * 2**20
"""A longer frame is garbage or an attack; a keyframe of 5,000 kernels takes about 2 MB."""


class Hello(msgspec.Struct, frozen=True, tag="hello", kw_only=True):
    """The first message: who speaks. A consumer refuses another `version`."""

    version: int
    roofmon: str
    host: str
    pid: int
    time_unix_ns: int


class Describe(msgspec.Struct, frozen=True, tag="describe", kw_only=True):
    """Static facts about kernels and devices, each sent once before it is first used."""

    kernels: list[KernelDescription] = []
    devices: list[DeviceDescription] = []


class WorkValues(msgspec.Struct, frozen=True, tag=False, kw_only=True):
    """One quantity of work from one source: `ids` u32, `values` f64, `rel_error` f32 (NaN unknown)."""

    kind: str
    key: str
    provenance: str
    ids: bytes
    values: bytes
    rel_error: bytes
    upper_bound: bool = False
    counts: str = REQUESTED


class KernelColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the kernels that changed.

    `ids` u32 (n,); `stats` f64 (columns, n) in the order of `model.table.Column`, row-major;
    `histogram_ids` u32, `histogram_bins` u16, `histogram_counts` u32, each (m,), cumulative counts.
    """

    ids: bytes = b""
    stats: bytes = b""
    columns: int = 0
    work: list[WorkValues] = []
    histogram_ids: bytes = b""
    histogram_bins: bytes = b""
    histogram_counts: bytes = b""


class Tick(msgspec.Struct, frozen=True, tag="tick", kw_only=True):
    """What changed since the last tick. `sequence` rises by one each; a gap means ticks were dropped.

    `reset` says that statistics began anew: kernels not in this tick have none. `activity` and `traffic`
    are of every device with traced kernels, `traced` are all programs that can be traced: they replace
    the last tick's.
    """

    sequence: int
    time_unix_ns: int
    interval_ns: int
    samples: list[DeviceSample] = []
    kernels: KernelColumns = KernelColumns()
    dropped: int = 0
    reset: bool = False
    activity: list[Activity] = []
    traced: list[TracedProgram] = []
    traffic: list[Traffic] = []


class Roofs(msgspec.Struct, frozen=True, tag="roofs", kw_only=True):
    """The whole roofline of a device, sent when a ceiling was added or changed."""

    device: str
    roofline: Roofline


class Status(msgspec.Struct, frozen=True, tag="status", kw_only=True):
    """The access ladder and the attached programs, sent when they change."""

    rungs: list[Rung]
    programs: dict[int, str]


class ProgressMessage(msgspec.Struct, frozen=True, tag="progress", kw_only=True):
    """How far a long task is."""

    progress: Progress


class NoticeMessage(msgspec.Struct, frozen=True, tag="notice", kw_only=True):
    """A line for the user."""

    notice: Notice


class Keyframe(msgspec.Struct, frozen=True, tag="keyframe", kw_only=True):
    """Everything at one moment; replaces all that a consumer holds."""

    hello: Hello
    describe: Describe
    tick: Tick
    roofs: list[Roofs]
    status: Status
    notices: list[Notice]
    progress: list[Progress]


Message = Hello | Describe | Tick | Roofs | Status | ProgressMessage | NoticeMessage | Keyframe


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a consumer may ask of the collector on its stdin, framed like the messages."""

    # calibrate, stop-calibration, pause, resume, reset, attach, detach, next-precision, quit
    command: str
    device: str = ""
    thorough: bool = False
    pid: int = 0  # of the program to attach to or detach from; 0 detaches from all
    kernel: int | None = None  # the row whose tensor work is to be taken as of its next precision
