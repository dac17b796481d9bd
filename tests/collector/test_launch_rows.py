"""Records of a traced program become rows: by name, launch configuration and device; never too many."""

import numpy as np
import pytest

from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.launches import MOST_STREAMS, LaunchRows
from roofmon.model.table import Column
from roofmon.tracing.demangle import Demangler
from roofmon.tracing.trace_protocol import (
    KERNEL_DTYPE,
    OTHER,
    TRANSFER_DTYPE,
    TRANSFER_KINDS,
    Device,
    Name,
)


def gpu(index: int, capability: tuple[int, int] = (9, 0)) -> Device:
    return Device(
        index=index, uuid=f"GPU-{index}", name="", compute_capability=capability, sm_count=132
    )


@pytest.fixture
def kernels():
    return KernelRegistry()


@pytest.fixture
def launches(kernels):
    demangler = Demangler()
    made = LaunchRows(kernels, demangler, 42, "train.py")
    made.take_device(gpu(0), "GPU-0")
    made.take_device(gpu(1, (99, 0)), "GPU-1")
    made.take_names([Name(0, OTHER), Name(1, "_Z4axpyPf"), Name(2, "gemm"), Name(3, "_Zbad")])
    yield made
    demangler.close()


def records(*rows: dict) -> np.ndarray:
    made = np.zeros(len(rows), dtype=KERNEL_DTYPE)
    for record, fields in zip(made, rows, strict=True):
        values = {"name": 1, "grid": (64, 1, 1), "block": (128, 1, 1), "registers": 32, **fields}
        for name, value in values.items():
            record[name] = value
    return made


def test_a_row_for_each_name_configuration_and_device(kernels, launches):
    same = records({}, {"start_ns": 7, "stream": 9, "graph": 3, "correlation": 5, "context": 2})
    different = records(
        {},
        {"name": 2},
        {"grid": (64, 2, 1)},
        {"block": (64, 1, 1)},
        {"device": 1},
        {"registers": 40},
    )
    assert len(set(launches.of_kernels(same).tolist())) == 1
    rows = launches.of_kernels(different)
    assert len(set(rows.tolist())) == len(rows)
    np.testing.assert_array_equal(launches.of_kernels(different), rows)
    described = {d.id: d for d in kernels.descriptions}
    first, other_device = described[int(rows[0])], described[int(rows[4])]
    assert (first.name, first.full_name) == ("axpy", "axpy(float*)")
    assert (first.kind, first.pid, first.process) == ("kernel", 42, "train.py")
    assert (first.grid, first.block, first.registers) == ((64, 1, 1), (128, 1, 1), 32)
    assert (first.occupancy, first.occupancy_limiter) == (1.0, "")
    assert (first.device, other_device.device) == ("GPU-0", "GPU-1")
    assert other_device.occupancy is None
    assert "not known" in other_device.reasons["occupancy"]


def test_shared_memory_of_both_kinds_counts(kernels, launches):
    record = records({"static_shared": 1024, "dynamic_shared": 47 * 1024, "block": (256, 1, 1)})
    launches.of_kernels(record)
    (row,) = kernels.descriptions
    assert row.shared_bytes == 48 * 1024
    # 228 KiB / (48 + 1 reserved) = 4 blocks of 8 of 64 warps.
    assert (row.occupancy, row.occupancy_limiter) == (0.5, "shared memory")


def test_what_cannot_be_demangled_keeps_its_name_with_the_reason(kernels, launches):
    launches.of_kernels(records({"name": 3}))
    (row,) = kernels.descriptions
    assert row.name == "_Zbad"
    assert "demangled" in row.reasons["name"]


def test_another_connection_may_number_the_names_anew(launches):
    before = launches.of_kernels(records({"name": 1}, {"name": 2}))
    launches.take_names([Name(1, "gemm"), Name(2, "_Z4axpyPf")])
    after = launches.of_kernels(records({"name": 1}, {"name": 2}))
    assert after.tolist() == before.tolist()[::-1]


def test_many_kernels_are_told_apart_in_any_batch(kernels, launches):
    grids = np.random.default_rng(1).integers(1, 5000, 20_000)
    batch = np.concatenate([records({})] * len(grids))
    batch["grid"][:, 0] = grids
    rows = np.concatenate([launches.of_kernels(part) for part in np.array_split(batch, 7)])
    assert len(kernels.descriptions) == len(np.unique(grids))
    grid_of = {d.id: d.grid[0] for d in kernels.descriptions}
    assert [grid_of[row] for row in rows.tolist()] == grids.tolist()


@pytest.mark.parametrize("kernels", [KernelRegistry(most_rows=10)])
def test_kernels_without_a_row_of_their_own_share_one(kernels, launches):
    batch = np.concatenate([records({})] * 100)
    batch["grid"][:, 0] = np.arange(1, 101)
    rows = launches.of_kernels(batch)
    assert launches.full
    assert len(kernels.descriptions) == 11
    other = next(d for d in kernels.descriptions if d.name == OTHER)
    assert (rows == other.id).sum() == 90
    assert other.reasons["flops"]
    copies = np.zeros(1, dtype=TRANSFER_DTYPE)
    copies["kind"] = TRANSFER_KINDS.index("memset")
    assert launches.of_transfers(copies)[0][0] >= 0


def test_copies_are_rows_by_direction_with_their_bytes(kernels, launches):
    copies = np.zeros(5, dtype=TRANSFER_DTYPE)
    kinds = ("memcpy h2d", "memcpy d2d", "memset", "memcpy p2p", "memcpy h2d")
    copies["kind"] = [TRANSFER_KINDS.index(kind) for kind in kinds]
    copies["bytes"] = [100, 100, 100, 100, 300]
    rows, moved = launches.of_transfers(copies)
    assert rows[0] == rows[4]
    assert len(set(rows.tolist())) == 4
    # A copy on the device reads and writes its bytes.
    assert moved.tolist() == [100, 200, 100, 100, 300]
    described = {d.id: d for d in kernels.descriptions}
    found = [(described[row].kind, described[row].level) for row in rows[:4].tolist()]
    assert found == [
        ("memcpy", "pcie_h2d"),
        ("memcpy", "dram"),
        ("memset", "dram"),
        ("memcpy", None),
    ]
    assert "bytes" in described[int(rows[3])].reasons


def test_streams_are_bits_and_the_first_ones_number_is_told(kernels, launches):
    batch = records({"stream": 13}, {"stream": 7}, {"stream": 13})
    rows, bits = launches.of_kernels(batch), launches.stream_bits(batch["stream"])
    assert bits.tolist() == [0b10, 0b01, 0b10] or bits.tolist() == [0b01, 0b10, 0b01]
    kernels.add_on_gpu(rows[:1], np.array([1]), np.array([5]), bits[:1], np.array([False]))
    stats = columns(kernels)
    assert (stats[Column.STREAMS, 0], stats[Column.STREAM, 0]) == (1, 13)
    kernels.add_on_gpu(rows, np.arange(3), np.full(3, 5), bits, np.zeros(3, dtype=bool))
    assert columns(kernels)[Column.STREAMS, 0] == 2


def test_more_streams_than_are_told_apart_share_the_last_bit(launches):
    bits = launches.stream_bits(np.arange(1000, dtype=np.uint32))
    assert len(np.unique(bits)) == MOST_STREAMS
    assert launches.stream_bits(np.array([4_000_000_000], dtype=np.uint32))[0] == 1 << 63


def test_rows_of_ended_runs_make_room_for_those_of_the_next() -> None:
    kernels, demangler = KernelRegistry(most_rows=20), Demangler()
    batch = np.concatenate([records({})] * 15)
    batch["grid"][:, 0] = np.arange(1, 16)
    for run in range(4):  # of five times as many in all
        launches = LaunchRows(kernels, demangler, run, "train.py")
        launches.take_device(gpu(0), "GPU-0")
        launches.take_names([Name(1, "k")])
        rows = launches.of_kernels(batch)
        assert not launches.full
        bits = launches.stream_bits(batch["stream"])
        kernels.add_on_gpu(rows, np.arange(15), np.full(15, 9), bits, np.zeros(15, dtype=bool))
        assert len(ids(kernels)) == 15
        kernels.forget(run, "train.py", ["kernel"])
        kernels.add_gaps(rows, np.full(15, 3.0))  # told late, of launches before the end
        hidden = kernels.columns(10**9, everything=False)
        assert np.frombuffer(hidden.ids, "<u4").tolist() == rows.tolist()
        assert ids(kernels) == kernels.descriptions == []
    launches = LaunchRows(kernels, demangler, 9, "train.py")
    launches.take_device(gpu(0), "GPU-0")
    launches.take_names([Name(1, "k")])
    for _ in range(3):
        batch["grid"][:, 1] += 1
        launches.of_kernels(batch)
    assert launches.full  # 20 at one time
    demangler.close()


def ids(kernels: KernelRegistry) -> list[int]:
    found = np.frombuffer(kernels.columns(10**9, everything=True).ids, "<u4")
    return found.tolist()


def columns(kernels: KernelRegistry) -> np.ndarray:
    found = kernels.columns(10**9, everything=True)
    return np.frombuffer(found.stats).reshape(found.columns, -1)
