"""Which shape of a product is fastest under the power cap, and keeping it up.

A power cap needs 0.3 to 0.5 s to settle after a change of load (seen on an H200 with cuBLAS), and what is
ahead while the GPU is cold may be behind once it is not: shapes draw different power for the same FLOPs.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from roofmon.calibration.gpu_gemm import Shape
from roofmon.calibration.gpu_timer import EventTimer

_SAMPLE_S = 0.01
_TURNS_S, _COUNTED_TURNS = 0.15, 3
_HOLD_S = 0.2
_CLOSE = 0.97


class Contender:
    """One shape of a product.

    Args:
        flops: of one launch.
        span: seconds of so many launches by themselves.
        timer: of launches that follow each other.

    `launches` make a sample, which takes about `sample_s`.
    """

    def __init__(
        self, shape: Shape, flops: float, span: Callable[[int], float], timer: EventTimer[Any]
    ) -> None:
        self.shape = shape
        self.timer = timer
        self._flops = flops
        self._span = span
        span(1)  # loads the kernel
        self.launches = max(1, round(_SAMPLE_S / span(1)))
        self.sample_s = _SAMPLE_S

    def sprint(self) -> float:
        """FLOP/s of one sample."""
        return self._flops * self.launches / self._span(self.launches)

    def hold(self) -> float:
        """FLOP/s in the second half of `_HOLD_S` of work."""
        spent = [self.timer.measure(self.launches)]
        while sum(spent) < _HOLD_S:
            spent.append(self.timer.measure(self.launches))
        self.sample_s = median(spent[len(spent) // 2 :])
        return self._flops * self.launches / self.sample_s


def winner(contenders: Sequence[Contender]) -> Contender:
    """The fastest, with the clock settled under it.

    All take turns first, so that they are compared at the same clock; then the best two, where they are
    close, one after the other.
    """
    turns: list[list[float]] = []
    end = time.monotonic() + _TURNS_S
    while len(turns) < _COUNTED_TURNS or time.monotonic() < end:
        turns.append([contender.sprint() for contender in contenders])
    rates = [median(of_one) for of_one in zip(*turns[-_COUNTED_TURNS:], strict=True)]
    ranked = sorted(zip(rates, contenders, strict=True), key=lambda pair: pair[0], reverse=True)
    close = [contender for rate, contender in ranked[:2] if rate >= _CLOSE * ranked[0][0]]
    held = [(contender.hold(), contender) for contender in reversed(close)]
    best = max(held, key=lambda pair: pair[0])[1]
    if best is not close[0]:
        best.hold()
    return best
