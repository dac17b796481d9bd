"""What a GPU did over a stretch of time, as far as its traced programs tell; and how they are traced."""

from typing import Literal, TypeAlias

import msgspec

from roofmon.model.tracing_cost import EAGER, IN_GRAPH, about

TraceState: TypeAlias = Literal["dormant", "starting", "attached", "yielded", "failed"]


BEFOREHAND = (
    f"While attached, each launch takes about {about(EAGER.attached_s)} longer "
    f"({about(IN_GRAPH.attached_s)} in a CUDA graph), and the program's own "
    "profiler (torch.profiler) sees no kernels.",
    f"After detaching, about {about(EAGER.left_s)} a launch stay until the program ends "
    f"({about(IN_GRAPH.left_s)} in a graph): nothing for kernels of 100 µs, "
    f"{EAGER.left_share} of a loop that launches every {about(EAGER.untraced_s)}, "
    f"{IN_GRAPH.left_share} of a graph of kernels of {about(IN_GRAPH.untraced_s)}.",
)
"""What has to be said before a program is attached to."""


class TracedProgram(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that has the tracing library, and how it is doing.

    `dormant`: it can be attached to and costs nothing; `starting`: attached, no word from it yet;
    `attached`: its records come; `yielded`: its own profiler took over; `failed`: see `reason`. Rates are
    records/s over the last tick; `dropped` are records lost since the monitor started. `cost` estimates
    the share of the program's time that tracing takes (0 … 1).
    """

    pid: int
    name: str
    state: TraceState
    reason: str = ""
    records: int = 0
    records_per_s: float = 0.0
    dropped: int = 0
    cost: float = 0.0
    cupti: str = ""  # version and path of the CUPTI that it uses


class Activity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What traced kernels and copies did on one device between two moments; all times in ns.

    What is not traced is not in here: idle means that no traced kernel ran. `busy_ns` is the time with
    at least one kernel, `kernels_ns` the sum of all kernels' time, so more where they overlap, and
    `overlap_ns` the time with at least two. A stretch of launches no more than a millisecond apart is
    launch-bound if its gaps take longer than its kernels: `launch_bound_ns` is the length of those.
    `tiny` counts launches under 10 µs, which took `tiny_ns`. `copies_ns` is the time with at least one
    copy (or fill), of which `hidden_ns` was under a kernel. `late` counts what was told too late for its
    own stretch, as of a kernel longer than a second: busy is too low then.
    """

    device: str  # UUID
    start_unix_ns: int
    end_unix_ns: int
    busy_ns: int = 0
    kernels_ns: int = 0
    overlap_ns: int = 0
    launches: int = 0
    launch_bound_ns: int = 0
    tiny: int = 0
    tiny_ns: int = 0
    copies: int = 0
    copies_ns: int = 0
    hidden_ns: int = 0
    streams: int = 0
    late: int = 0

    @property
    def length_ns(self) -> int:
        """The length of the stretch."""
        return self.end_unix_ns - self.start_unix_ns

    @property
    def busy(self) -> float:
        """The share of the time (0 … 1) in which a kernel ran; NaN for no time at all."""
        return self.busy_ns / self.length_ns if self.length_ns > 0 else float("nan")

    @property
    def idle(self) -> float:
        """The share of the time (0 … 1) between kernels."""
        return 1.0 - self.busy

    @property
    def launch_bound(self) -> float:
        """The share of the time (0 … 1) in launch-bound stretches."""
        return self.launch_bound_ns / self.length_ns if self.length_ns > 0 else float("nan")
