"""What the CPU probes run: NumPy operations on all cores, on random data, each checked once.

Bandwidth operations are single passes of one NumPy call over a large slice for every thread, since
NumPy releases the interpreter lock inside a call: with many small calls the threads wait for the lock
instead of for memory (blocks of 64 KiB reached a third of the bandwidth on two cores). Only the triad
needs a temporary, and is blocked so that this stays in cache; on many cores it still waits for the lock,
and is listed rather than the roof there.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofmon.calibration.team import Team

Array = NDArray[np.float64]
SCALE = 1.0000001  # not 1, and so close to it that a thousand passes neither overflow nor vanish
BLOCK = (
    131072  # elements of the triad's temporary, 1 MiB: 16 threads got 56 GB/s, with 256 KiB 31 GB/s
)
_CHECKED = 1000
_RANDOM = (
    131_071  # random elements, repeated: a third of the time of drawing all; odd, so rows differ
)


@dataclass(frozen=True)
class Operation:
    """One pass over the first `arrays` of a thread's arrays. `expected` gives, from the elements before
    the pass, (the array written, its elements after it); None for an operation that only reads."""

    arrays: int
    run: Callable[..., float | None]
    expected: Callable[..., tuple[int, Array]] | None


def _copy(a: Array, c: Array) -> None:
    np.copyto(c, a)


def _read(a: Array, b: Array) -> float:
    return float(np.dot(a, b))


def _axpy(a: Array, b: Array) -> None:
    np.subtract(b, a, out=b)


def _update(a: Array) -> None:
    np.multiply(a, SCALE, out=a)


def _triad(a: Array, b: Array, c: Array) -> None:
    scaled = np.empty(BLOCK)
    for start in range(0, len(a), BLOCK):
        part = slice(start, start + BLOCK)
        temporary = scaled[: len(c[part])]
        np.multiply(c[part], SCALE, out=temporary)
        np.add(b[part], temporary, out=a[part])


OPERATIONS: Mapping[str, Operation] = {
    "copy": Operation(2, _copy, lambda a, c: (1, a)),
    "read": Operation(2, _read, None),
    "axpy": Operation(2, _axpy, lambda a, b: (1, b - a)),
    "update": Operation(1, _update, lambda a: (0, a * SCALE)),
    "triad": Operation(3, _triad, lambda a, b, c: (0, b + SCALE * c)),
}


class WorkingSet:
    """Random doubles, a part for each thread, first touched by the thread that uses it.

    An operation sees its part as so many arrays of equal length, so that every operation moves through
    all `total_bytes`, whatever the number of its arrays.
    """

    def __init__(self, team: Team, total_bytes: int) -> None:
        self.team = team
        self.elements = max(3 * _CHECKED, total_bytes // 8 // team.size)  # of each thread's part
        self.total_bytes = 8 * self.elements * team.size
        self._parts: list[Array] = [np.empty(0)] * team.size

        def fill(thread: int) -> None:
            random = np.random.default_rng(thread).random(_RANDOM)
            self._parts[thread] = np.resize(random, self.elements)

        team.run(fill)

    def pass_elements(self, operation: Operation) -> int:
        """Elements of an array that one pass works on, all threads together."""
        return self.elements // operation.arrays * self.team.size

    def launcher(self, operation: Operation) -> Callable[[int], float]:
        """Runs that many passes on every thread, without waiting in between; returns the seconds."""

        def measure(passes: int) -> float:
            def work(thread: int) -> None:
                arrays = self._arrays(thread, operation)
                for _ in range(passes):
                    operation.run(*arrays)

            return self.team.run(work)

        return measure

    def check(self, operation: Operation) -> None:
        """Run one pass and compare with plain NumPy. Raises ArithmeticError where they differ."""

        def work(thread: int) -> None:
            arrays = self._arrays(thread, operation)
            if operation.expected is None:
                expected = sum(
                    float((x * y).sum()) for x, y in zip(*map(_blocks, arrays), strict=True)
                )
                correct = math.isclose(operation.run(*arrays) or 0.0, expected, rel_tol=1e-9)
            else:
                ends = np.array([0, len(arrays[0]) - 1])
                at = np.random.default_rng(thread).integers(0, len(arrays[0]), _CHECKED)
                at = np.concatenate([ends, at])
                written, after = operation.expected(*(array[at] for array in arrays))
                operation.run(*arrays)
                correct = np.array_equal(arrays[written][at], after)
            if not correct:
                raise ArithmeticError("the kernel computed a wrong result")

        self.team.run(work)

    def _arrays(self, thread: int, operation: Operation) -> list[Array]:
        length = self.elements // operation.arrays
        part = self._parts[thread]
        return [part[i * length : (i + 1) * length] for i in range(operation.arrays)]


def _blocks(array: Array) -> list[Array]:
    return np.array_split(array, max(1, len(array) // BLOCK))


class Gemm:
    """C ← A·B on random matrices of one size; the product is checked once (Freivalds' algorithm)."""

    def __init__(self, size: int, precision: str) -> None:
        self.size = size
        kind = {"fp64": "f8", "fp32": "f4"}[precision]
        random = (np.random.default_rng(size).random(_RANDOM) - 0.5).astype(kind)
        self._a = np.resize(random, (size, size))
        self._b = np.resize(random[::-1], (size, size))
        self._x = np.resize(random, size)
        self._c = np.empty((size, size), kind)
        # Rounding grows with the root of the size; a wrong block gives an error near 1.
        self._tolerance = 100 * float(np.finfo(kind).eps) * size**0.5

    @staticmethod
    def bytes_needed(size: int) -> int:
        """Memory for the three matrices and the check, at most."""
        return 4 * 8 * size * size

    def launch(self, launches: int) -> float:
        """Compute the product that many times; returns the seconds."""
        start = time.perf_counter()
        for _ in range(launches):
            np.matmul(self._a, self._b, out=self._c)
        return time.perf_counter() - start

    def check(self) -> None:
        """Compare C·x with A·(B·x). Raises ArithmeticError where they differ."""
        expected = self._a @ (self._b @ self._x)
        error = np.linalg.norm(self._c @ self._x - expected) / np.linalg.norm(expected)
        if not error <= self._tolerance:
            raise ArithmeticError(f"the product is wrong by {error:.1e}")
