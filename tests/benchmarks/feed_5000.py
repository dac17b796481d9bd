"""Speaks the stream on stdout as a busy collector would: 5,000 kernels, 200 of which change in each tick.

    roofmon live --collector "python tests/benchmarks/feed_5000.py"

Kernels are made up but plausible: durations from 2 µs to 5 ms with 2 % spread, work that puts them all over
the roofline of a large GPU, histograms as a collector keeps them. The draws are seeded: every run is alike.
"""

import argparse
import os
import select
import sys
import time

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon import __version__
from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Ceiling, Pipe, Roofline
from roofmon.model.session import Rung
from roofmon.model.stats import bin_index
from roofmon.model.table import Column
from roofmon.stream.framing import Deframer
from roofmon.stream.messages import (
    VERSION,
    Command,
    Describe,
    Hello,
    KernelColumns,
    Keyframe,
    Roofs,
    Status,
    Tick,
    WorkValues,
)
from roofmon.stream.writer import StreamWriter, private_output

DEVICE = "GPU-00000000-0000-4000-8000-000000005000"
DRAM_BYTES_PER_S, L2_BYTES_PER_S, BF16_FLOPS, FP32_FLOPS = 4.39e12, 9.6e12, 753e12, 65e12
LAUNCHES_A_TICK = 50
KEYFRAME_S = 30.0

Ids = NDArray[np.uint32]


class Kernels:
    """The state of all kernels; `run` launches some of them again."""

    def __init__(self, count: int, seed: int = 5000) -> None:
        self._random = np.random.default_rng(seed)
        self.ids: Ids = np.arange(1, count + 1, dtype=np.uint32)
        self._typical_ns = 10 ** self._random.uniform(3.3, 6.7, count)
        # Never over a roof: achieved = share × what is attainable at this intensity.
        share = self._random.uniform(0.1, 0.98, count)
        intensity = 10 ** self._random.uniform(-1.5, 3, count)
        attainable = np.minimum(intensity * DRAM_BYTES_PER_S, BF16_FLOPS)
        self._flops = share * attainable * self._typical_ns / 1e9
        self._bytes = self._flops / intensity
        self._launches = np.zeros(count)
        self._total_ns = np.zeros(count)
        self._last_end_ns = np.zeros(count)
        self._rate = np.zeros(count)
        self._counts: dict[tuple[int, int], int] = {}

    def describe(self) -> list[KernelDescription]:
        """The static fields of all kernels."""
        names = (
            "nvjet_tst_{0}x128_bf16",
            "softmax_warp_forward<bf16, {0}>",
            "elementwise_{0}<bf16>",
        )
        return [
            KernelDescription(
                id=int(i),
                name=names[int(i) % 3].format(int(i)),
                device=DEVICE,
                full_name=f"void at::native::{names[int(i) % 3].format(int(i))}(Params const&)",
                pid=4711,
                process="train.py",
                grid=(int(i) % 2048 + 1, 1, 1),
                block=(128, 1, 1),
                registers=40,
                shared_bytes=0,
                pipe="tensor/bf16",
                level="dram",
            )
            for i in self.ids
        ]

    def run(self, rows: NDArray[np.int64], now_ns: int, interval_s: float) -> KernelColumns:
        """Launch the kernels of `rows`; returns their new statistics."""
        spread = self._random.normal(1.0, 0.02, (len(rows), LAUNCHES_A_TICK))
        durations = self._typical_ns[rows, None] * spread
        self._launches[rows] += LAUNCHES_A_TICK
        self._total_ns[rows] += durations.sum(axis=1)
        self._last_end_ns[rows] = now_ns
        self._rate[rows] = LAUNCHES_A_TICK / interval_s
        ids = np.repeat(self.ids[rows], LAUNCHES_A_TICK)
        pairs, counts = np.unique(
            np.stack([ids, bin_index(durations.ravel())]), axis=1, return_counts=True
        )
        for pair, count in zip(map(tuple, pairs.T.tolist()), counts.tolist(), strict=True):
            self._counts[pair] = self._counts.get(pair, 0) + count
        changed = [(i, b, self._counts[i, b]) for i, b in pairs.T.tolist()]
        return self._columns(rows, np.array(changed, dtype=np.int64))

    def everything(self) -> KernelColumns:
        """All statistics, as a keyframe has them."""
        counts = [(i, b, count) for (i, b), count in self._counts.items()]
        return self._columns(np.arange(len(self.ids)), np.array(counts, dtype=np.int64))

    def _columns(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> KernelColumns:
        median = self._typical_ns[rows]
        stats = np.full((len(Column), len(rows)), np.nan)
        stats[Column.LAUNCHES] = self._launches[rows]
        stats[Column.TOTAL_NS] = stats[Column.OUTER_NS] = self._total_ns[rows]
        stats[Column.MEDIAN_NS] = stats[Column.TYPICAL_NS] = median
        stats[Column.MEDIAN_LOW_NS], stats[Column.MEDIAN_HIGH_NS] = median * 0.998, median * 1.002
        stats[Column.P05_NS], stats[Column.P95_NS] = median * 0.967, median * 1.033
        stats[Column.MIN_NS], stats[Column.MAX_NS] = median * 0.93, median * 1.07
        stats[Column.CV], stats[Column.GAP_NS] = 0.02, 1900.0
        stats[Column.LAST_END_NS] = self._last_end_ns[rows]
        stats[Column.LAUNCH_RATE] = self._rate[rows]
        ids = self.ids[rows].tobytes()
        unsure = np.full(len(rows), 0.01, dtype=np.float32).tobytes()
        work = [
            WorkValues(
                kind=kind,
                key=key,
                provenance=provenance,
                ids=ids,
                values=values[rows].tobytes(),
                rel_error=unsure,
            )
            for kind, key, provenance, values in (
                ("flops", "tensor/bf16", "modelled", self._flops),
                ("bytes", "dram", "sampled", self._bytes),
            )
        ]
        return KernelColumns(
            ids=ids,
            stats=stats.tobytes(),
            columns=len(Column),
            work=work,
            histogram_ids=counts[:, 0].astype(np.uint32).tobytes(),
            histogram_bins=counts[:, 1].astype(np.uint16).tobytes(),
            histogram_counts=counts[:, 2].astype(np.uint32).tobytes(),
        )


def roofline() -> Roofline:
    """The roofs of a large GPU, with a plausible interval around each."""

    def ceiling(kind: str, value: float, regime: str, **what: object) -> Ceiling:
        fields = {"kind": kind, "value": value, "regime": regime, "n": 20, "probe": "made-up"}
        bounds = {"ci_low": value * 0.998, "ci_high": value * 1.002, "clock_hz": 1.755e9}
        return msgspec.convert({**fields, **bounds, **what}, Ceiling)

    return Roofline(
        ceilings=(
            ceiling("bandwidth", DRAM_BYTES_PER_S, "sustained", level="dram"),
            ceiling("bandwidth", L2_BYTES_PER_S, "sustained", level="l2"),
            ceiling("compute", BF16_FLOPS, "gemm", pipe=Pipe("tensor", "bf16")),
            ceiling("compute", FP32_FLOPS, "issue", pipe=Pipe("vector", "fp32")),
        )
    )


class Feed:
    """Writes keyframes and ticks until the consumer goes away."""

    def __init__(self, writer: StreamWriter, kernels: Kernels) -> None:
        self._writer = writer
        self._kernels = kernels
        self._describe = Describe(
            kernels=kernels.describe(),
            devices=[
                DeviceDescription(
                    uuid=DEVICE, index=0, name="5,000 kernels", kind="cuda", cores=132
                )
            ],
        )
        self._hello = Hello(
            version=VERSION,
            roofmon=__version__,
            host="feed",
            pid=os.getpid(),
            time_unix_ns=time.time_ns(),
        )
        self._sequence = 0
        self._keyframe_due = 0.0

    def tick(self, rows: NDArray[np.int64], interval_s: float) -> None:
        """Launch the kernels of `rows` and tell of it."""
        now_ns = time.time_ns()
        columns = self._kernels.run(rows, now_ns, interval_s)
        keyframe = self._writer.needs_keyframe or time.monotonic() >= self._keyframe_due
        self._sequence += 1
        tick = Tick(
            sequence=self._sequence,
            time_unix_ns=now_ns,
            interval_ns=round(interval_s * 1e9),
            samples=[DeviceSample(device=DEVICE, time_unix_ns=now_ns, clock_hz=1.755e9, load=0.97)],
            kernels=self._kernels.everything() if keyframe else columns,
        )
        if not keyframe:
            self._writer.send(tick)
            return
        self._keyframe_due = time.monotonic() + KEYFRAME_S
        self._writer.send(
            Keyframe(
                hello=self._hello,
                describe=self._describe,
                tick=tick,
                roofs=[Roofs(device=DEVICE, roofline=roofline())],
                status=Status(
                    rungs=[Rung(rung="tracing", state="active")], programs={4711: "train.py"}
                ),
                notices=[],
                progress=[],
            )
        )


def asked_to_quit(commands: Deframer[Command], wait_s: float) -> bool:
    """Wait so long for the consumer; True when it closed our stdin or asked us to end."""
    if not select.select([0], [], [], max(0.0, wait_s))[0]:
        return False
    data = os.read(0, 4096)
    return not data or any(command.command == "quit" for command in commands.feed(data))


def main() -> int:
    """Feed until the consumer goes away."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("--changed", type=int, default=200)
    parser.add_argument("--hz", type=float, default=2.0)
    arguments = parser.parse_args()
    writer = StreamWriter(private_output())
    kernels = Kernels(arguments.kernels)
    feed = Feed(writer, kernels)
    commands = Deframer(msgspec.msgpack.Decoder(Command), limit=4096)
    random = np.random.default_rng(1)
    interval = 1 / arguments.hz
    due = time.monotonic()
    rows = np.arange(arguments.kernels)  # each runs once, so that all are in the table
    try:
        while True:
            feed.tick(rows, interval)
            rows = random.choice(arguments.kernels, arguments.changed, replace=False)
            due = max(due + interval, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                writer.flush()
                if asked_to_quit(commands, min(left, 0.05)):
                    return 0
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
