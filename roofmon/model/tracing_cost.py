"""What tracing adds to each launch of a program: the one place that says so.

Measured on an H200 (driver 580.159, CUDA 13.0, torch 2.11), with a reader that keeps up.
Each is what `tests/gpu/bench_trace.py` prints of a loop as «x µs a kernel; attached +y µs, after +z µs».
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchCost:
    """Seconds for one launch: untraced, and how much longer while attached and after a detach."""

    untraced_s: float
    attached_s: float
    left_s: float

    @property
    def left_share(self) -> str:
        """What stays after a detach, of the time of a loop that does nothing else."""
        return f"{100 * self.left_s / self.untraced_s:.0f} %"


EAGER = LaunchCost(untraced_s=7.2e-6, attached_s=1.6e-6, left_s=0.7e-6)
"""Launched one by one (loop `eager`): the median of four runs, 6.5–7.6 µs; +1.5–1.7 µs; +0.6–0.8 µs."""

IN_GRAPH = LaunchCost(untraced_s=0.93e-6, attached_s=0.40e-6, left_s=0.04e-6)
"""A kernel of a CUDA graph of 100 (loop `tiny`): 0.93–0.99 µs; +0.36–0.53 µs; +0.03–0.04 µs."""


def about(seconds: float) -> str:
    """A cost as it is told: one digit, in µs."""
    return f"{seconds * 1e6:.1g} µs"
