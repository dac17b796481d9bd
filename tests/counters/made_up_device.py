"""A device with known truth: kernels on streams that share its bandwidth, and samples of what they moved.

Time advances from one event to the next (a kernel starts, is half done or ends; a foreign burst begins or
ends), with constant rates in between, so what was moved is exact. Kernels that together ask for more than
the device can give are all slowed by the same factor, as is anything foreign: launches of one kernel move
the same bytes, but take longer beside others.
"""

from dataclasses import dataclass, field

import numpy as np

from roofmon.counters.metric_sets import DRAM_READ
from roofmon.counters.overlap import Launches
from roofmon.counters.samples import Samples
from roofmon.counters.weights import TENSOR

T0 = 1_796_007_743_000_000_000
BANDWIDTH = 4400.0  # byte/ns


@dataclass
class Kernel:
    """Of one launch: duration alone in ns, bytes, FLOPs; `front` is the part moved in the first half."""

    duration_ns: float
    bytes: float
    flops: float = 0.0
    front: float = 0.5


# Eight kernels of 5 to 300 µs: streaming, compute-bound, cached; three move next to nothing.
EIGHT = [
    Kernel(300e3, 1000e6, 0.0, 0.52),
    Kernel(160e3, 120e6, 9e10, 0.55),
    Kernel(90e3, 330e6, 1e9, 0.48),
    Kernel(60e3, 40e6, 3e10, 0.6),
    Kernel(30e3, 105e6, 0.0, 0.5),
    Kernel(14e3, 40e6, 5e8, 0.5),
    Kernel(8e3, 1e6, 1e8, 0.5),
    Kernel(5e3, 12e6, 0.0, 0.5),
]


@dataclass
class Run:
    """What happened: launches (times of the device), and totals moved at each event."""

    kernel: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=lambda: [0.0])
    moved: list[tuple[float, float, float]] = field(default_factory=lambda: [(0.0, 0.0, 0.0)])

    def launches(self, shift_ns: float = 0.0) -> Launches:
        """As a trace whose clock is behind the samples' by `shift_ns`."""
        times = np.round(np.array([self.start, self.end]) - shift_ns).astype(np.int64) + T0
        return Launches(np.array(self.kernel, dtype=np.int64), times[0], times[1])

    def samples(self, step_ns: float, noise: float = 0.0, seed: int = 0) -> Samples:
        """Traffic and FLOPs in samples of about `step_ns`, with noise relative to each count."""
        random = np.random.default_rng(seed)
        edges = np.arange(0.0, self.times[-1], step_ns)
        edges[1:] += random.integers(-1, 2, len(edges) - 1)
        moved = np.array(self.moved)
        totals = np.stack([np.interp(edges, self.times, moved[:, i]) for i in range(2)], axis=1)
        counts = np.diff(totals, axis=0)
        counts *= 1 + noise * random.standard_normal(counts.shape)
        edges = edges.astype(np.int64) + T0
        names = (DRAM_READ, TENSOR)
        return Samples(names, edges[:-1], edges[1:], np.maximum(counts, 0))

    def foreign_bytes(self) -> float:
        """What the foreign process moved in all."""
        return self.moved[-1][2]


def run_device(
    seconds, kernels, order, streams=1, gap_ns=1000.0, foreign=(), foreign_rate=0.0, seed=0
):
    """Runs kernels until `seconds` have passed.

    Args:
        order: called with a random generator, gives the next kernel's number.
        foreign: (start, end) in ns of the bursts in which another process asks for `foreign_rate`, byte/ns.
    """
    random = np.random.default_rng(seed)
    result = Run()
    bursts = [edge for burst in foreign for edge in burst]
    done = [1.0] * streams  # progress of each stream's kernel
    current = [-1] * streams
    begins = [random.exponential(gap_ns) for _ in range(streams)]
    now, burst, bytes_moved, flops, foreign_bytes = 0.0, 0, 0.0, 0.0, 0.0
    while now < seconds * 1e9:
        rates = {}
        for s in range(streams):
            if current[s] >= 0:
                kernel = kernels[current[s]]
                share = kernel.front if done[s] < 0.5 else 1 - kernel.front
                rates[s] = 2 * share * kernel.bytes / kernel.duration_ns
        while burst < len(bursts) and bursts[burst] <= now:
            burst += 1
        asked = foreign_rate if burst % 2 else 0.0
        speed = min(1.0, BANDWIDTH / max(sum(rates.values()) + asked, 1e-9))
        waits = [begins[s] - now for s in range(streams) if current[s] < 0]
        for s in rates:
            left = (0.5 if done[s] < 0.5 else 1.0) - done[s]
            waits.append(left * kernels[current[s]].duration_ns / speed)
        if burst < len(bursts):
            waits.append(bursts[burst] - now)
        step = max(min(waits), 1e-6)
        now += step
        for s, rate in rates.items():
            kernel = kernels[current[s]]
            part = step * speed / kernel.duration_ns
            done[s] += part
            if abs(done[s] - 0.5) < 1e-9:
                done[s] = 0.5
            bytes_moved += rate * speed * step
            flops += kernel.flops * part
            if done[s] > 1 - 1e-9:
                result.end.append(now)
                result.start.append(begins[s])
                result.kernel.append(current[s])
                current[s], begins[s] = -1, now + random.exponential(gap_ns)
        bytes_moved += asked * speed * step
        foreign_bytes += asked * speed * step
        for s in range(streams):
            if current[s] < 0 and begins[s] <= now + 1e-6:
                current[s], done[s] = order(random), 0.0
        result.times.append(now)
        result.moved.append((bytes_moved, flops, foreign_bytes))
    return result


def shuffled(count):
    """The next of `count` kernels, at random."""
    return lambda random: int(random.integers(count))
