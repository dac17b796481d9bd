"""Arrays that grow."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_LEAST = 64

T = TypeVar("T", bound=np.generic)


def grown(array: NDArray[T], size: int, fill: Any) -> NDArray[T]:
    """`array` with room for `size` along its last axis, new places filled with `fill`.

    At least doubles where it grows, so that growing one by one costs a few copies an element in all.
    """
    length = array.shape[-1]
    if size <= length:
        return array
    larger = np.empty((*array.shape[:-1], max(size, 2 * length, _LEAST)), dtype=array.dtype)
    larger[..., :length] = array
    larger[..., length:] = fill
    return larger
