"""A kernel of the workload: its declared work, one launch of it, and the check of its result."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from roofmon.demo.device import Array
from roofmon.errors import RoofmonError
from roofmon.model.operators import OperatorWork


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, with its memory.

    Attributes:
        name: as it appears in the monitor.
        work: its least work; the FLOPs are of one pipe.
        level: the level that its bytes are of.
        launch: does the work once; on a GPU it may return before the work is done.
        check: raises RoofmonError if the result of the last launch is wrong.
    """

    name: str
    work: OperatorWork
    level: str
    launch: Callable[[], object]
    check: Callable[[], None]


def sample(size: int, count: int = 64) -> slice:
    """From `count` to nearly twice as many places, evenly over all of `size`; all of them if fewer."""
    return slice(None, None, max(1, size // count))


def expect_close(
    name: str, got: Array, expected: Array, tolerance: float, scale: float | None = None
) -> None:
    """Raises RoofmonError unless |got − expected| ≤ tolerance × scale everywhere; NaN is wrong.

    `scale` is the largest |expected| unless given. Both arrays are on the host, in float64.
    """
    if scale is None:
        scale = float(np.max(np.abs(expected)))
    error = float(np.max(np.abs(got - expected))) / scale
    if not error <= tolerance:
        raise RoofmonError(
            f"demo kernel {name} computed a wrong result: relative error {error:.1e},"
            f" allowed {tolerance:.0e}",
            "check the installation of NumPy, CuPy and their libraries",
        )
