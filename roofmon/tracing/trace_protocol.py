"""The wire protocol between a traced program and its monitors: what the injected library sends.

The framing is that of `protocol`, and so is the socket, `PID-STARTTIME.trace.sock`. To connect is to
attach: the library starts CUPTI for the first monitor and lets go after the last. Several monitors, eight
at most, each get everything from the moment they connect; one that sends anything is let go. Messages,
little-endian:

    1  HELLO      first, once. JSON, see `Hello`.
    4  DROPS      u64: records lost for this monitor since it connected, whatever the cause.
    16 KERNELS    one or more records of 72 bytes, `KERNEL_DTYPE`.
    17 NAME       u32 id and the mangled name in UTF-8, once a monitor, before the id is used.
    18 DEVICE     JSON, see `Device`, once a monitor for every device, before the device is used.
    19 TRANSFERS  one or more records of 48 bytes, `TRANSFER_DTYPE`: copies and fills of memory.
    20 STATE      JSON, see `State`: whether records can be expected; after HELLO, and when it changes.

Times are CUPTI's: nanoseconds on the scale of time.time_ns(). A record without a start, or with an end
before its start, is not sent but counted in DROPS. Kernels and transfers that a monitor got, plus its
drops, are all that ran on the GPU while it was connected and the state was `tracing`.

roofmon/tracing/inject/trace.h repeats the constants and layouts; a test compares the two.
"""

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.tracing.protocol import Drops

HELLO = 1
DROPS = 4
KERNELS = 16
NAME = 17
DEVICE = 18
TRANSFERS = 19
STATE = 20

MAX_NAMES = 16_384
"""Names that a program tells apart, with ids from 1; kernels with later ones share `OTHER`, id 0."""
MAX_NAME_BYTES = 16_384
"""Longer mangled names are cut; they cannot be demangled any more."""
MAX_DEVICES = 64
OTHER = "(other kernels)"

KERNEL_DTYPE = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("name", "<u4"),  # id of a NAME
        ("stream", "<u4"),  # CUPTI's number of it, unique in its context
        ("context", "<u4"),
        ("graph", "<u4"),  # of the executable CUDA graph it was launched by; 0 for none
        ("grid", "<u4", 3),
        ("block", "<u2", 3),
        ("device", "<u2"),  # index of a DEVICE
        ("registers", "<u2"),  # a thread
        ("flags", "<u2"),  # 0
        ("static_shared", "<u4"),  # bytes a block
        ("dynamic_shared", "<u4"),  # bytes a block
        ("shared_executed", "<u4"),  # bytes an SM set aside for shared memory; 0 where not known
        ("correlation", "<u4"),  # of the launch; all kernels of one graph launch share it
    ]
)

TRANSFER_DTYPE = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("bytes", "<u8"),
        ("stream", "<u4"),
        ("context", "<u4"),
        ("graph", "<u4"),
        ("correlation", "<u4"),
        ("device", "<u2"),  # index of a DEVICE; the source of a copy between two
        ("peer", "<u2"),  # destination of a copy between two devices, else the same as `device`
        ("kind", "u1"),  # index into TRANSFER_KINDS
        ("flags", "u1"),  # ASYNCHRONOUS
        ("reserved", "<u2"),
    ]
)

TransferKind = Literal[
    "memcpy h2d", "memcpy d2h", "memcpy d2d", "memcpy h2h", "memcpy p2p", "memset", "other"
]
TRANSFER_KINDS: tuple[TransferKind, ...] = (
    "other",
    "memcpy h2d",
    "memcpy d2h",
    "memcpy d2d",
    "memcpy h2h",
    "memcpy p2p",
    "memset",
)
"""Names of the numbers in `kind`. Copies from and to CUDA arrays count as of the device."""
ASYNCHRONOUS = 1


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks. `start_time` is in clock ticks after boot (proc(5), field 22 of stat).

    `pid` is as the program sees it; where `pid_namespace` (an inode) is not the monitor's own, the same
    process has another number here. `library` is the version of the injected library.
    """

    kind: Literal["trace"]
    pid: int
    start_time: int
    process: str
    pid_namespace: int
    clock: Literal["unix_ns"]
    record_type: int
    record_size: int
    transfer_size: int
    library: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Whether records can be expected.

    `starting`: CUPTI is being looked for; `tracing`: records will come; `failed`: CUPTI is missing or
    refused; `yielded`: the program's own profiler took CUPTI over. The last two stay until another monitor
    connects, which is taken as a wish to try again, and `reason` says why. While `tracing`, `reason` says
    what the attach has taken from the program's own profiler, "" for nothing. `cupti_version` is CUPTI's
    own number, 0 where none was found, and `cupti_path` the file it came from. `loaded_ns` is when CUDA
    loaded the library, before any kernel, and `since_ns` when kernels were last begun to be recorded, as of
    time.time_ns(); 0 where there is none.
    """

    state: Literal["starting", "tracing", "failed", "yielded"]
    reason: str = ""
    cupti_version: int = 0
    cupti_path: str = ""
    loaded_ns: int = 0
    since_ns: int = 0


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that records name, and its limits for the theoretical occupancy; 0 where not known.

    `index` is the program's own number of it (CUDA_VISIBLE_DEVICES renumbers), `uuid` as NVML writes it
    ("GPU-…", "MIG-…"), "" where not known. Sizes are in bytes, registers in 32-bit registers.
    """

    index: int
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    warp_size: int = 32
    max_threads_per_sm: int = 0
    max_blocks_per_sm: int = 0
    registers_per_sm: int = 0
    shared_per_sm: int = 0
    shared_per_block_optin: int = 0
    shared_reserved_per_block: int = 0


class Name(msgspec.Struct, frozen=True):
    """The name of kernels, as the compiler mangled it."""

    id: int
    name: str


class Kernels(msgspec.Struct, frozen=True, eq=False):
    """Kernels that ended, in no strict order. `records` has KERNEL_DTYPE and shape (n,)."""

    records: NDArray[np.void]


class Transfers(msgspec.Struct, frozen=True, eq=False):
    """Copies and fills that ended, in no strict order. `records` has TRANSFER_DTYPE and shape (n,)."""

    records: NDArray[np.void]


Event = Hello | State | Device | Name | Kernels | Transfers | Drops
