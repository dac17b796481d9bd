"""What is known about a kernel before it has run: its description."""

from typing import Literal

import msgspec

KernelKind = Literal["kernel", "region", "memcpy", "memset"]


class KernelDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The static fields of one row of the table; `id` is unique within a stream.

    Rows group the launches of one program by name and, for GPU kernels, by grid and block. `reasons`
    says, by field or quantity, why something is not available; `contended` in it says why its sampled
    bytes may hold traffic of other programs. `candidates` are the pipes that its tensor work may be of
    where its name does not tell the precision, and `told` the one of them that the user told.
    """

    id: int
    name: str
    device: str  # UUID
    kind: KernelKind = "kernel"
    full_name: str = ""
    pid: int = 0
    process: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    occupancy_limiter: str = ""
    pipe: str | None = None  # the pipe that declared FLOPs belong to, `tensor/bf16`
    level: str | None = None  # the memory level that declared bytes belong to
    candidates: tuple[str, ...] = ()
    told: str = ""
    nested: bool = False  # runs inside another row's region, whose time contains it
    reasons: dict[str, str] = {}
