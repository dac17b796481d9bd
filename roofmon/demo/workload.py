"""The memory that the kernels share, the list of kernels, and the rounds they run in."""

from dataclasses import dataclass, field
from time import perf_counter, sleep

import numpy as np

from roofmon.demo.attention import attention
from roofmon.demo.device import Array, Device
from roofmon.demo.kernel import Kernel
from roofmon.demo.lifetime import Lifetime
from roofmon.demo.matrices import decode_chain, gemm
from roofmon.demo.sizes import Sizes
from roofmon.demo.streaming import reduce_sum, softmax, tiny_add, triad, vector_add
from roofmon.region import region

_TURN_S = 0.04
"""A kernel is launched again until this has passed, so that short ones give many samples as well."""

_MOST_LAUNCHES = 100  # of one turn: more would fill the monitor's stream with the tiny kernel

_REST = 0.05
"""Part of the time left idle, so that a monitor on the same cores is not starved."""

_PATTERN = (1 << 20) + 7
"""Random values that are repeated to fill the source: drawing each would take seconds. An odd number,
so that no two matrices cut from the source are the same."""


@dataclass(slots=True)
class Timings:
    """Durations in seconds of the launches of one kernel."""

    launches: int = 0
    best_s: float = field(default=float("inf"))

    def add(self, duration_s: float) -> None:
        """Counts one launch."""
        self.launches += 1
        self.best_s = min(self.best_s, duration_s)


def build_kernels(device: Device, sizes: Sizes) -> list[Kernel]:
    """Allocates and fills the memory and returns the kernels, the quick ones first.

    All read one source that is never written, of values uniform in (−1, 1), and write one scratch
    memory of the same size: so the demo needs little more than twice the set of one kernel, and no
    value grows from round to round. A check is only good right after a launch of the same kernel.
    """
    source = _random(device, sizes.elements)
    scratch = device.xp.empty(sizes.elements, device.xp.float32)
    kernels = [
        vector_add(device, sizes, source, scratch),
        triad(device, sizes, source, scratch),
        reduce_sum(device, sizes, source),
        decode_chain(device, sizes, source),
        gemm(device, sizes, source, scratch, "fp32", "vector"),
        gemm(device, sizes, source, scratch, "fp64", device.fp64_gemm_unit),
    ]
    if device.half_gemm:
        kernels.append(gemm(device, sizes, source, scratch, "fp16", "tensor"))
    kernels += [
        tiny_add(device, sizes, source),
        softmax(device, sizes, source, scratch),
        *attention(device, sizes, source, scratch),
    ]
    return kernels


def run_rounds(device: Device, kernels: list[Kernel], lifetime: Lifetime) -> dict[str, Timings]:
    """Gives each kernel a turn, over and over, until the lifetime is over.

    Before its first turn a kernel is launched once unseen, to warm it up and check its result: so the
    first kernels are in the monitor while the memory of the last is not even touched. Raises
    RoofmonError for a wrong result.
    """
    timings = {kernel.name: Timings() for kernel in kernels}
    while True:
        for kernel in kernels:
            if not timings[kernel.name].launches and not lifetime.over():
                kernel.launch()
                device.synchronize()
                kernel.check()
            began = perf_counter()
            for _ in range(_MOST_LAUNCHES):
                if lifetime.over():
                    return timings
                timings[kernel.name].add(_launch(device, kernel))
                if perf_counter() - began > _TURN_S:
                    break
            sleep(_REST * (perf_counter() - began))


def _launch(device: Device, kernel: Kernel) -> float:
    """One launch inside its region; returns seconds."""
    [((unit, precision), flops)] = kernel.work.flops.items()
    began = perf_counter()
    with region(
        kernel.name,
        flops=flops,
        bytes=kernel.work.bytes,
        level=kernel.level,
        precision=precision,
        unit=unit,
    ):
        kernel.launch()
        device.synchronize()  # else, on a GPU, the region would time the launch call only
    return perf_counter() - began


def _random(device: Device, elements: int) -> Array:
    """`elements` FP32 values uniform in (−1, 1): a pattern of random values, repeated."""
    xp = device.xp
    draw = np.random.default_rng(20_090_401).random(_PATTERN, dtype=np.float32)
    pattern = xp.asarray(draw * np.float32(2) - np.float32(1))
    source = xp.empty(elements, xp.float32)

    def fill(begin: int, end: int) -> None:
        while begin < end:
            offset = begin % _PATTERN
            count = min(_PATTERN - offset, end - begin)
            source[begin : begin + count] = pattern[offset : offset + count]
            begin += count

    device.parallel(elements, fill)
    device.synchronize()
    return source
