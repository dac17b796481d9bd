"""What tracing adds to each launch of a program: the one place that says so.

Measured on an H200 (driver 580.159, CUDA 13.0, torch 2.11), with a reader that keeps up.
Each is what `tests/gpu/bench_trace.py` prints of a loop as «x µs a kernel; attached +y µs, after +z µs».
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchCost:
    """Seconds for one launch: untraced, and how much longer while attached and after a detach."""

    untraced_s: float
    attached_s: float
    left_s: float


EAGER = LaunchCost(untraced_s=6.0e-6, attached_s=1.0e-6, left_s=0.6e-6)
"""Launched one by one (loop `eager`): 5.4–6.1 µs became 6.5–7.1, and 6.5–6.6 after the detach."""

IN_GRAPH = LaunchCost(untraced_s=1.06e-6, attached_s=0.42e-6, left_s=math.nan)
"""A kernel of a CUDA graph (loop `tiny`): 100 took 106 µs, and 148 attached; what is left is not known."""


def about(seconds: float) -> str:
    """A cost as it is told: one digit, in µs."""
    return f"{seconds * 1e6:.1g} µs"
