"""A session made up for the tests: one GPU with measured roofs, kernels that change a little each tick."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np

from roofmon.model.device import DeviceDescription, DeviceProcess, DeviceSample
from roofmon.model.histogram import Histograms
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import Ceiling, LevelName, Pipe, Roofline
from roofmon.model.session import Rung
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.stats import bin_index
from roofmon.model.table import EMPTY_TABLE, Column, KernelTable, WorkColumn
from roofmon.model.work import Provenance
from roofmon.stream.messages import Command

GPU = "GPU-5b1cafe0"
START_NS = 1_790_000_000_000_000_000

# name, launches per tick, median µs, FLOPs, DRAM bytes (None: not known)
KERNELS: tuple[tuple[str, int, float, float | None, float | None], ...] = (
    ("nvjet_tst_256x128_64x4_2x1_v_bz_TNT", 121, 164.8, 68.7e9, 580e6),
    ("softmax_warp_forward<bf16, 11>", 21, 577.7, 0.17e9, 1086e6),
    ("elementwise_kernel mul<bf16>", 21, 253.1, 0.05e9, 1091e6),
    ("nvjet_tst_128x256_64x4_NNN", 21, 156.5, 68.7e9, 606e6),
    ("flash_fwd_kernel<128, 64, 4>", 14, 212.0, 60.0e9, 142.9e6),
    ("vectorized_add<float, 4>", 9, 186.2, 0.067e9, 806.2e6),
    ("reduce_kernel<512, sum>", 9, 62.9, 0.067e9, 269.4e6),
    ("transpose_copy<float>", 6, 141.0, None, 538.1e6),
    ("gather_rows<float>", 5, 310.0, None, 1196e6),
    ("gemv_bf16<8>", 40, 10.2, 0.033e9, 33.3e6),
    ("tiny_bias<bf16>", 40, 3.1, 0.4e6, 0.6e6),
    ("sgemm_128x128_8x8", 2, 2690.0, 137.4e9, 210e6),
    ("mystery_kernel", 3, 22.0, None, None),
)


def roofline(measured: int = 99) -> Roofline:
    """The roofs of the made-up GPU; only the first `measured` of them."""

    def bandwidth(level: LevelName, value: float) -> Ceiling:
        return Ceiling(
            kind="bandwidth",
            level=level,
            value=value,
            ci_low=value * 0.998,
            ci_high=value * 1.002,
            regime="sustained",
            n=20,
            probe=f"{level}-triad",
            time_unix_s=START_NS / 1e9 - 3 * 3600,
        )

    def compute(pipe: str, value: float) -> Ceiling:
        return Ceiling(
            kind="compute",
            pipe=Pipe.parse(pipe),
            value=value,
            ci_low=value * 0.997,
            ci_high=value * 1.003,
            regime="gemm",
            n=20,
            probe="gemm",
            clock_hz=1.755e9,
            time_unix_s=START_NS / 1e9 - 3 * 3600,
        )

    ceilings = (
        bandwidth("dram", 4.39e12),
        bandwidth("l2", 9.6e12),
        compute("tensor/bf16", 753e12),
        compute("tensor/tf32", 366e12),
        compute("vector/fp32", 65e12),
        compute("tensor/fp8", 1.355e15),
    )
    return Roofline(ceilings=ceilings[:measured])


def snapshot(tick: int = 10, count: int = len(KERNELS), *, roofs: int = 99) -> Snapshot:
    """The session after `tick` half seconds with `count` kernels, each a variant of `KERNELS`."""
    rows = [KERNELS[i % len(KERNELS)] for i in range(count)]
    descriptions = tuple(
        KernelDescription(
            id=i + 1,
            name=name if i < len(KERNELS) else f"{name} #{i // len(KERNELS) + 1}",
            full_name=f"void at::native::{name}(void const*, void*, long)",
            device=GPU,
            pid=4711,
            process="train.py",
            grid=(32768, 1, 1),
            block=(32, 4, 1),
            registers=40,
            shared_bytes=0,
            occupancy=1.0,
            pipe="tensor/bf16" if flops else None,
            level="dram" if moved else None,
            reasons={} if flops else {"flops": "not declared"},
        )
        for i, (name, _, _, flops, moved) in enumerate(rows)
    )
    launches = np.array([row[1] for row in rows]) * float(tick + 1)
    median = (
        np.array([row[2] for row in rows])
        * 1e3
        * (1 + 0.003 * np.sin(1.7 * tick + np.arange(count)))
    )
    stats = np.full((len(Column), count), np.nan)
    stats[Column.LAUNCHES] = launches
    stats[Column.TOTAL_NS] = stats[Column.OUTER_NS] = launches * median
    stats[Column.MEDIAN_NS] = stats[Column.TYPICAL_NS] = median
    for column, factor in (
        (Column.MEDIAN_LOW_NS, 0.998), (Column.MEDIAN_HIGH_NS, 1.002),
        (Column.P05_NS, 0.985), (Column.P95_NS, 1.02),
        (Column.MIN_NS, 0.97), (Column.MAX_NS, 1.1),
    ):  # fmt: skip
        stats[column] = median * factor
    stats[Column.CV] = 0.008
    stats[Column.GAP_NS] = 1900.0
    stats[Column.LAST_END_NS] = START_NS + tick * 500e6
    stats[Column.LAUNCH_RATE] = launches / (tick + 1) * 2
    unknown = np.full(count, np.nan)
    flops = np.array([np.nan if row[3] is None else row[3] for row in rows])
    moved = np.array([np.nan if row[4] is None else row[4] for row in rows])
    table = KernelTable(
        descriptions,
        stats,
        (
            WorkColumn("flops", "tensor/bf16", Provenance.DECLARED, flops, unknown),
            WorkColumn("bytes", "dram", Provenance.SAMPLED, moved, np.full(count, 0.004)),
        ),
    )
    return Snapshot(
        host="node7",
        time_unix_ns=START_NS + tick * 500_000_000,
        interval_ns=500_000_000,
        started_unix_ns=START_NS,
        devices=(device(roofs),),
        kernels=table,
        histograms=_histograms(median, launches),
        rungs=(
            Rung(rung="NVML", state="active"),
            Rung(rung="GPM", state="active"),
            Rung(rung="tracing", state="active", reason="0.6 %"),
            Rung(
                rung="counters", state="unavailable", reason="no permission (ERR_NVGPUCTRPERM)",
                fix="modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0",
            ),
        ),
        programs={4711: "train.py"},
    )  # fmt: skip


def device(roofs: int = 99) -> Device:
    """The made-up GPU, as a collector without counters of the whole device sees it."""
    return Device(
        DeviceDescription(
            uuid=GPU, index=0, name="NVIDIA H200", kind="cuda", cores=132,
            memory_bytes=141 * 2**30, cache_bytes=60 * 2**20, driver="580.159",
        ),
        DeviceSample(
            device=GPU, time_unix_ns=START_NS, clock_hz=1.755e9, memory_clock_hz=3.201e9, load=0.96,
            memory_used_bytes=61 * 2**30, temperature_c=54.0, power_w=698.0,
            event_reasons=("power cap",), missing={"rates": "no GPM on this GPU"},
        ),
        roofline(roofs),
    )  # fmt: skip


def bounds() -> Roofline:
    """The physical bounds of the made-up GPU: 132 SM at 1980 MHz, 6016 bit at 3201 MHz."""

    def bound(value: float, **more: object) -> Ceiling:
        return Ceiling(
            kind="bandwidth" if "level" in more else "compute", value=value, ci_low=value,
            ci_high=value, regime="bound", n=0, probe="bound", **more,  # type: ignore[arg-type]
        )  # fmt: skip

    widths = {
        "vector/fp64": 128, "vector/fp32": 256, "vector/fp16": 512, "tensor/fp64": 256,
        "tensor/tf32": 2048, "tensor/bf16": 4096, "tensor/fp16": 4096, "tensor/fp8": 8192,
        "tensor/int8": 8192,
    }  # fmt: skip
    return Roofline(
        ceilings=(
            bound(2 * 3.201e9 * 6016 / 8, level="dram", memory_clock_hz=3.201e9),
            bound(128 * 132 * 1.98e9, level="l1", clock_hz=1.98e9),
            *(
                bound(width * 132 * 1.98e9, pipe=Pipe.parse(pipe), clock_hz=1.98e9)
                for pipe, width in widths.items()
            ),
        )
    )


PROCESSES = (
    DeviceProcess(pid=4711, name="train.py", user="ada", memory_bytes=58 * 2**30),
    DeviceProcess(pid=815, memory_bytes=3 * 2**30, note="in another namespace"),
    DeviceProcess(pid=99, name="Xorg", user="root"),
)


def gpu(index: int = 0, tick: int = 10, **changes: object) -> Device:
    """One of several made-up GPUs, with counters of the whole device and bounds; its work moves on."""
    uuid = GPU if index == 0 else f"GPU-{index:08x}"
    swing = 1 + 0.25 * np.sin(0.11 * tick + index)
    sample = DeviceSample(
        device=uuid, time_unix_ns=START_NS + tick * 500_000_000, clock_hz=1.755e9,
        memory_clock_hz=3.201e9, load=0.96, memory_busy=0.8, memory_used_bytes=61 * 2**30,
        temperature_c=54.0 + index, power_w=698.0, power_limit_w=700.0,
        event_reasons=("power cap",), pcie_in_bytes_per_s=0.21e9, pcie_out_bytes_per_s=0.04e9,
        sm_busy=0.96, occupancy=0.58, processes=PROCESSES,
        rates={
            "dram": 2.81e12 / swing, "vector/fp64": 0.0, "vector/fp32": 4.1e12, "vector/fp16": 0.0,
            "tensor/fp64": 0.0, "tensor/bf16": 461e12 * swing, "tensor/int8": 0.0,
        },
        missing={
            "nvlink_in_bytes_per_s": "this board has no NVLink",
            "nvlink_out_bytes_per_s": "this board has no NVLink",
        },
    )  # fmt: skip
    description = DeviceDescription(
        uuid=uuid, index=index, name="NVIDIA H200", kind="cuda", cores=132,
        memory_bytes=141 * 2**30, cache_bytes=60 * 2**20, driver="580.159",
        compute_capability="9.0", pci_bus_id=f"00000000:{0x1b + index:02X}:00.0",
    )  # fmt: skip
    return Device(description, msgspec.structs.replace(sample, **changes), bounds())


def gpus(count: int, tick: int = 10) -> Snapshot:
    """A host with `count` GPUs of which the fourth is lost, before any kernel is known."""
    lost = {"lost": "GPU is lost: it has fallen off the bus"}
    return replace(
        snapshot(tick),
        devices=tuple(gpu(i, tick, **(lost if i == 3 else {})) for i in range(count)),
        kernels=EMPTY_TABLE,
        programs={},
        rungs=(Rung(rung="NVML", state="active"), Rung(rung="GPM", state="active")),
    )


def _histograms(median: np.ndarray, launches: np.ndarray) -> Histograms:
    shape = np.array([1, 1, 2, 8, 9, 8, 3, 1, 1, 1])
    ids, bins, counts = [], [], []
    for i, centre in enumerate(bin_index(median).tolist()[:200]):
        ids += [i + 1] * len(shape)
        bins += range(centre - 4, centre - 4 + len(shape))
        counts += (shape * max(1, int(launches[i]) // int(shape.sum()))).tolist()
    return Histograms().updated(np.array(ids), np.array(bins), np.array(counts))


class Source:
    """Has the surface of `stream.consumer.Consumer`; the test says what comes and when."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.snapshot: Snapshot | None = None
        self.state = "starting"
        self.sent: list[Command] = []
        self.started = False
        self.closed = False
        self._on_change = on_change

    def start(self) -> None:
        self.started = True

    def send(self, command: Command) -> bool:
        self.sent.append(command)
        return True

    def close(self) -> None:
        self.closed = True

    def publish(self, snapshot: Snapshot, state: str = "") -> None:
        """A new snapshot is there."""
        self.snapshot, self.state = snapshot, state
        self._on_change()

    def die(self, reason: str) -> None:
        """The collector is gone: the last snapshot stays, marked stale."""
        if self.snapshot is not None:
            self.snapshot = replace(self.snapshot, stale=reason)
        self.state = reason
        self._on_change()
