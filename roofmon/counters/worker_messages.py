"""What the counters worker hears on its stdin and says on its stdout, framed like the stream.

The collector says every tick which kernels ran (`Batch`); the worker says every second what each moved
(`Result`), how it is doing (`Health`), and at once whether it has the counters (`State`). Columns travel as
the little-endian bytes of arrays.
"""

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.counters.overlap import Launches

if TYPE_CHECKING:
    from roofmon.counters.results import Attribution

MAX_BATCH = 64 * 2**20
"""Bytes of a frame on stdin; a longer one is garbage. A batch of a million launches takes 20 MB."""
NO_ROW = 1 << 17
"""The kernel id of launches that have no row of their own: they moved something all the same."""


class Batch(msgspec.Struct, frozen=True, tag="batch", kw_only=True):
    """Launches that have ended, in any order; all that began before `until_ns` are in it or earlier ones.

    `kernel` u32, `start_ns` and `end_ns` i64, each (n,), on the clock of the trace. `traced_ns` i64 (t, 2)
    are the times since the last batch in which every launch of the attached programs was traced, and
    `lost_ns` i64 (l, 2) those in which some were lost. `foreign`: another process used the GPU.
    """

    until_ns: int
    kernel: bytes = b""
    start_ns: bytes = b""
    end_ns: bytes = b""
    traced_ns: bytes = b""
    lost_ns: bytes = b""
    foreign: bool = False

    def launches(self) -> Launches:
        """The launches. Raises ValueError where the columns do not fit each other."""
        kernel = np.frombuffer(self.kernel, "<u4").astype(np.int64)
        start, end = (np.frombuffer(data, "<i8") for data in (self.start_ns, self.end_ns))
        if not len(kernel) == len(start) == len(end):
            raise ValueError("the columns of a batch are of different lengths")
        return Launches(kernel, start, end)

    def spans(self, data: bytes) -> NDArray[np.int64]:
        """`traced_ns` or `lost_ns` as an array of shape (n, 2). Raises ValueError."""
        return np.frombuffer(data, "<i8").reshape(-1, 2)


class Order(msgspec.Struct, frozen=True, tag="order", kw_only=True):
    """`release` the counters, `resume` sampling, `quit`."""

    order: Literal["release", "resume", "quit"]
    reason: str = ""


Heard = Batch | Order

CountersState = Literal["starting", "sampling", "released", "unavailable"]


class State(msgspec.Struct, frozen=True, tag="state", kw_only=True):
    """Whether the worker has the counters; why not, and what to do about it."""

    state: CountersState
    reason: str = ""
    fix: str = ""


class Health(msgspec.Struct, frozen=True, tag="health", kw_only=True):
    """How sampling goes, over the last second or so. `cost` is the part of a core that the worker takes.

    `overflows` and `gaps` count since the worker started: samples were lost there. `dropped` are launches
    or samples that found no room here while the other side was late.
    """

    interval_us: float
    samples_per_s: float
    cost: float
    overflows: int = 0
    gaps: int = 0
    dropped: int = 0


class Result(msgspec.Struct, frozen=True, tag="result", kw_only=True):
    """`results.Attribution` after one window: k kernels, c metrics; f64 unless said otherwise."""

    start_ns: int
    end_ns: int
    metrics: list[str]
    kernels: bytes  # i64 (k,)
    launches: bytes  # (k,)
    amounts: bytes  # (k, c), per launch
    errors: bytes  # (k, c)
    groups: bytes  # i64 (k, c); one number ≥ 0 for kernels that cannot be told apart
    together: bytes  # (k, c): of the whole group, per launch
    together_errors: bytes  # (k, c)
    contended: bytes  # bool (k,)
    pooled: bytes  # i64 (p,)
    seconds: float  # of usable samples
    device: bytes  # (c,): all that was counted
    attributed: bytes  # (c,)
    untraced: bytes  # (c,)
    foreign_share: float
    clock_offset_ns: float
    clock_error_ns: float  # NaN while it was never known
    clock_certain: bool
    clock_stepped: bool

    def array(self, name: str) -> NDArray[np.float64]:
        """A column, in its shape. Raises ValueError where it does not fit."""
        kernels, metrics = len(self.kernels) // 8, len(self.metrics)
        integers = name in ("kernels", "groups", "pooled")
        dtype = "<i8" if integers else "?" if name == "contended" else "<f8"
        flat = np.frombuffer(getattr(self, name), dtype)
        if name == "pooled":
            return flat
        if name in ("kernels", "launches", "contended"):
            return flat.reshape(kernels)
        return flat.reshape(
            metrics if name in ("device", "attributed", "untraced") else (kernels, metrics)
        )


Said = State | Health | Result


def result_of(found: "Attribution", start_ns: int, end_ns: int) -> Result:
    """An attribution as a message; the kernel without a row stays here."""
    keep = found.kernels != NO_ROW

    def data(values: NDArray[np.generic], dtype: str = "<f8") -> bytes:
        return values.astype(dtype).tobytes()

    return Result(
        start_ns=start_ns,
        end_ns=end_ns,
        metrics=list(found.metrics),
        kernels=data(found.kernels[keep], "<i8"),
        launches=data(found.launches[keep]),
        amounts=data(found.amounts[keep]),
        errors=data(found.errors[keep]),
        groups=data(found.groups[keep], "<i8"),
        together=data(found.together[keep]),
        together_errors=data(found.together_errors[keep]),
        contended=data(found.contended[keep], "?"),
        pooled=data(found.pooled[found.pooled != NO_ROW], "<i8"),
        seconds=found.traffic.seconds,
        device=data(found.traffic.device),
        attributed=data(found.traffic.attributed),
        untraced=data(found.traffic.untraced),
        foreign_share=found.foreign_share,
        clock_offset_ns=found.clock.offset_ns,
        clock_error_ns=found.clock.error_ns,
        clock_certain=found.clock.certain,
        clock_stepped=found.clock.stepped,
    )
