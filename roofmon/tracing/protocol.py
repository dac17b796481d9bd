"""The wire protocol between an annotated program and its monitors; `trace_protocol` is that of traced ones.

The program listens on a Unix stream socket, `PID-STARTTIME.region.sock`, in a directory of its user
(see `endpoints`). It speaks and the monitor only listens; several monitors each get everything from the
moment they connect. A message is a header and a payload, little-endian:

    magic u16 (0x4652) · type u8 · version u8 · length of the payload u32

    1 HELLO     first, once. JSON, see `Hello`: who speaks, and which record it will send.
    2 DESCRIBE  once for every description, before its id is used. JSON, see `Described`.
    3 RECORDS   one or more region records of 40 bytes, `RECORD_DTYPE`.
    4 DROPS     u64: records lost for this monitor since it connected (buffer full, or monitor too slow).

Types from 16 on are those of `trace_protocol`, which shares the framing, HELLO and DROPS; HELLO names the
type of record and its size. Another version of the protocol is refused with its reason.

Times: `start_ns` is on the scale of time.time_ns(), which CUPTI's records and samples share, but is taken
from the monotonic clock plus the distance of the two when the first monitor connected: durations and
distances between records do not jump when the wall clock is set. A region that was entered while nobody
listened is not sent, since its start is not known. A region that raised is sent like any other.

`flops` and `bytes` are NaN where the program did not declare them. What is negative or infinite was
declared by mistake: the reader makes it NaN and sets `UNUSABLE_WORK` in the record's flags, which are 0
on the wire.

roofmon.region, which is copied into places that lack this module, repeats the constants.
"""

import struct
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

MAGIC = 0x4652
VERSION = 1
HEADER = struct.Struct("<HBBI")

HELLO = 1
DESCRIBE = 2
RECORDS = 3
DROPS = 4

MAX_PAYLOAD = 1 << 20
MAX_DESCRIPTIONS = 4096
"""Descriptions that a program tells apart; later ones share `OTHER`, without work."""
MAX_ID = 2 * MAX_DESCRIPTIONS
"""Ids have gaps where two threads met the same description at once, but never this many."""
MAX_NAME = 256
OTHER = "(other regions)"

RECORD_DTYPE = np.dtype(
    [
        ("id", "<u4"),  # of the description
        ("depth", "<u2"),  # regions around it in its thread; 0 for the outermost
        ("flags", "<u2"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("flops", "<f8"),  # of this pass, NaN where not declared
        ("bytes", "<f8"),
    ]
)
UNUSABLE_WORK = 1
"""Flag: FLOPs or bytes were declared, but as a negative or infinite number."""

Level = Literal["dram", "llc", "l2", "l1", "pcie_h2d", "pcie_d2h"]
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Unit = Literal["vector", "tensor"]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks. `start_time` is in clock ticks after boot (proc(5), field 22 of stat).

    `pid` is as the program sees it; where `pid_namespace` (an inode) is not the monitor's own, the same
    process has another number here. `device` is "cpu" or the UUID of a GPU that the regions run on, ""
    where the program did not say; `synchronised` tells that its regions wait for that GPU.
    """

    kind: Literal["region"]
    pid: int
    start_time: int
    process: str
    pid_namespace: int
    clock: Literal["unix_ns"]
    record_type: int
    record_size: int
    device: str = ""
    device_name: str = ""
    synchronised: bool = False


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What records of this `id` are: FLOPs belong to the pipe `unit`/`precision`, bytes to `level`."""

    id: int
    name: str
    level: Level
    precision: Precision
    unit: Unit


class Records(msgspec.Struct, frozen=True, eq=False):
    """Passes that ended, in no strict order. `records` has RECORD_DTYPE and shape (n,)."""

    records: NDArray[np.void]


class Drops(msgspec.Struct, frozen=True):
    """`count` records were lost so far."""

    count: int


Event = Hello | Described | Records | Drops
