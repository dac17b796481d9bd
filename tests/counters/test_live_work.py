"""What the collector makes of attributed counts: bytes and FLOPs of rows, with errors and reasons."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from recording import attribute, load_excerpt, truth

from roofmon.collector.device_traffic import Contention
from roofmon.collector.kernels import KernelRegistry
from roofmon.collector.row_work import Chip
from roofmon.collector.sampled_work import Said, SampledWork
from roofmon.counters.weights import TENSOR
from roofmon.counters.worker_messages import NO_ROW, Result, result_of
from roofmon.model.kernel import KernelDescription
from roofmon.model.table import Column

SMS = 132


def told(found):
    """As it comes out of the pipe."""
    encoded = msgspec.msgpack.encode(result_of(found, 0, 1))
    return msgspec.msgpack.decode(encoded, type=Result)


def take(work, found, capability="9.0", names=None, contention=None):
    names = names or [name for name, _, _ in load_excerpt()[3]]

    def describe(row):
        return KernelDescription(id=row, name=names[row], device="GPU-test")

    more = () if contention is None else (contention,)
    work.take(told(found), describe, Chip(capability, SMS), *more)


def values(work, row, everything=True):
    """(kind, key, upper bound) → value and relative error of one row, as consumers decode it."""
    found = {}
    for column in work.columns(everything=everything, standing=lambda _: True):
        ids = np.frombuffer(column.ids, "<u4").tolist()
        if row in ids:
            at = ids.index(row)
            value = np.frombuffer(column.values, "<f8")[at]
            error = np.frombuffer(column.rel_error, "<f4")[at]
            found[column.kind, column.key, column.upper_bound] = (float(value), float(error))
            assert column.provenance == "sampled"
            assert column.counts == ("lts__t_bytes" if column.key == "l2" else "requested")
    return found


def busiest(found):
    """The row of the kernel that moved most."""
    totals = found.amounts[:, 0] * found.launches
    return int(found.kernels[totals.argmax()])


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32", "fp8"])
def test_a_gemm_gets_its_flops_and_bytes(precision):
    phase, work = f"gemm_{precision}", SampledWork()
    found = attribute(load_excerpt(), phase, 5)
    take(work, found)
    row = busiest(found)
    mine = values(work, row)
    flops, error = mine["flops", f"tensor/{precision}", False]
    assert flops == pytest.approx(truth(load_excerpt(), phase)["flops"], rel=0.01)
    assert 0 < error < 0.05
    at = found.kernels.tolist().index(row)
    assert mine["bytes", "dram", False][0] == pytest.approx(found.amounts[at, :2].sum())
    assert ("bytes", "l2", False) in mine
    assert work.said[row] == Said()


def test_flops_that_need_not_be_fmas_are_an_upper_bound():
    work, found = SampledWork(), attribute(load_excerpt(), "gemm_fp32", 5)
    take(work, found)
    mine = values(work, busiest(found))
    flops, _ = mine["flops", "vector/fp32", True]
    assert flops == pytest.approx(truth(load_excerpt(), "gemm_fp32")["flops"], rel=0.01)
    assert not [key for key in mine if key[1].startswith("tensor")]


def test_a_precision_that_nothing_tells_is_a_range_in_words():
    work, found = SampledWork(), attribute(load_excerpt(), "gemm_bf16", 5)
    row, names = busiest(found), ["my_kernel"] * len(load_excerpt()[3])
    take(work, found, names=names)
    assert not [key for key in values(work, row) if key[1].startswith("tensor")]
    # 2·4096³ = 137.4 GFLOP at bf16: tf32 by mma.sync is a third, fp8 by wgmma twice as much.
    words = work.said[row].reasons["flops"]
    assert words.startswith("45.8 to 275 GFLOP (")
    assert "(bf16, fp16, tf32, fp8, int8): precision not known" in words


def test_an_unknown_architecture_has_bytes_and_a_reason():
    work, found = SampledWork(), attribute(load_excerpt(), "gemm_bf16", 5)
    take(work, found, capability="8.6")
    mine = values(work, busiest(found))
    assert {key[0] for key in mine} == {"bytes"}
    assert "sm_86" in work.said[busiest(found)].reasons["flops"]


def test_kernels_that_cannot_be_told_apart_have_no_values_of_their_own():
    found = attribute(load_excerpt(), "decode_eager_bf16", 5)
    at = found.kernels.tolist().index(busiest(found))
    other = 0 if at else 1
    groups = found.groups.copy()
    groups[[at, other], :2] = 9
    together = found.together.copy()
    together[[at, other], 0] = 50e6
    together[[at, other], 1] = 0.0
    work = SampledWork()
    take(work, found)
    assert values(work, int(found.kernels[at]))["bytes", "dram", False][0] > 30e6
    take(work, replace(found, groups=groups, together=together))
    value, _ = values(work, int(found.kernels[at]), everything=False)["bytes", "dram", False]
    assert np.isnan(value)
    words = work.said[int(found.kernels[at])].reasons["bytes"]
    assert words == "known only together with 1 other kernel: 50 MB at dram per launch of this one"


def test_what_is_known_to_be_little_is_not_told_as_a_number():
    found = attribute(load_excerpt(), "gemm_bf16", 5)
    at, errors = found.kernels.tolist().index(busiest(found)), found.errors.copy()
    errors[at, :2] = found.amounts[at, :2]  # 95 % are twice as much
    work = SampledWork()
    take(work, replace(found, errors=errors))
    row = busiest(found)
    assert ("bytes", "dram", False) not in values(work, row)
    words = work.said[row].reasons["bytes"]
    assert words.startswith("at most 5")  # 181 MB and 1.96 times as much
    assert "MB at dram" in words


def test_a_tensor_kernel_of_little_activity_has_at_most_what_was_counted():
    """As one that multiplies by a vector: it waits for memory."""
    found = attribute(load_excerpt(), "gemm_bf16", 5)
    at, tensor = found.kernels.tolist().index(busiest(found)), found.metrics.index(TENSOR)
    row, amounts = busiest(found), found.amounts.copy()
    amounts[at, tensor] *= 0.04
    work = SampledWork()
    take(work, replace(found, amounts=amounts))
    flops = {key[1:]: value for key, (value, _) in values(work, row).items() if key[0] == "flops"}
    whole = truth(load_excerpt(), "gemm_bf16")["flops"]
    assert flops["tensor/bf16", True] == pytest.approx(0.04 * whole, rel=0.01)
    assert "% busy, of which some may be noise" in work.said[row].reasons["flops"]
    # With a name that tells nothing it is no evidence; with none at all neither.
    names = ["my_kernel"] * len(load_excerpt()[3])
    work = SampledWork()
    take(work, replace(found, amounts=amounts), names=names)
    assert not [key for key in values(work, row) if key[1].startswith("tensor")]
    amounts[at, tensor] = 0.0
    work = SampledWork()
    take(work, replace(found, amounts=amounts))
    assert not [key for key in values(work, row) if key[1].startswith("tensor")]


def test_tensor_work_that_is_mixed_up_is_said():
    found = attribute(load_excerpt(), "gemm_bf16", 5)
    at, tensor = found.kernels.tolist().index(busiest(found)), found.metrics.index(TENSOR)
    groups = found.groups.copy()
    groups[at, tensor] = 0
    work = SampledWork()
    take(work, replace(found, groups=groups))
    assert "tensor work" in work.said[busiest(found)].reasons["flops"]


def test_bytes_of_launches_of_two_sizes_are_divided_by_their_mean_time():
    found = attribute(load_excerpt(), "vector_add_fp32", 5)
    kernels, work = KernelRegistry(), SampledWork()
    for row in range(busiest(found) + 1):
        kernels.add_row(KernelDescription(id=row, name="add", device="GPU-test"))
    kernels.sampled = work

    def launch():
        long = np.array([False, False, True])
        rows = np.full(3, busiest(found))
        start, streams = np.arange(3) * 10**6, np.ones(3, dtype=np.uint64)
        kernels.add_on_gpu(rows, start, np.where(long, 500_000, 100_000), streams, long)

    def typical():
        columns = kernels.columns(10**9, everything=False)
        ids = np.frombuffer(columns.ids, "<u4").tolist()
        stats = np.frombuffer(columns.stats, "<f8").reshape(len(Column), -1)
        return dict(zip(ids, stats[Column.TYPICAL_NS].tolist(), strict=True))

    launch()
    assert typical()[busiest(found)] == pytest.approx(100_000, rel=0.05)
    take(work, found)
    assert typical() == {busiest(found): pytest.approx(700_000 / 3)}
    assert typical() == {}  # nothing new
    launch()
    assert typical() == {busiest(found): pytest.approx(700_000 / 3)}


def test_contended_kernels_keep_their_bytes_and_say_so():
    found = attribute(load_excerpt(), "vector_add_fp32", 5)
    work, row = SampledWork(), busiest(found)
    beside = replace(found, contended=np.ones(len(found.kernels), dtype=bool))
    take(work, beside, contention=Contention("bench 815 used the GPU beside it"))
    assert values(work, row)["bytes", "dram", False][0] == pytest.approx(805e6, rel=0.01)
    assert work.said[row].reasons["contended"] == "bench 815 used the GPU beside it"
    assert work.take_noted() >= {row}
    assert work.take_noted() == set()
    take(work, found)
    assert work.take_noted() >= {row}
    assert "contended" not in work.said[row].reasons  # all is well again
    take(work, found, contention=Contention("GPM counts more", everywhere=True))
    assert work.said[row].reasons["contended"] == "GPM counts more"
    work.reset()
    assert work.take_noted() >= {row}
    assert work.said == {}


def kernel(row, name="my_kernel"):
    return KernelDescription(id=row, name=name, device="GPU-test")


def test_a_precision_that_the_user_tells_is_that_of_all_kernels_of_the_name():
    work, found = SampledWork(), attribute(load_excerpt(), "gemm_bf16", 5)
    row, names = busiest(found), ["my_kernel"] * len(load_excerpt()[3])
    assert not work.next_precision(kernel(row))  # nothing is known of it yet
    take(work, found, names=names)
    # Its vector pipes are not all of its FLOPs, so those are not told either.
    assert not [key for key in values(work, row) if key[0] == "flops"]
    work.take_noted()
    seen = []
    for _ in range(6):
        assert work.next_precision(kernel(row))
        take(work, found, names=names)
        assert row in work.take_noted()
        described = work.described(kernel(row), {"name": "kept"})
        assert described.reasons["name"] == "kept"
        seen.append(described.told)
        tensor = [key[1] for key in values(work, row) if key[1].startswith("tensor/")]
        known = [key for key, (value, _) in values(work, row).items() if np.isfinite(value)]
        assert [key[1] for key in known if key[1] in tensor] == [t for t in [described.told] if t]
    assert seen == [*described.candidates, ""]
    # As bf16 it is what it is; mma.sync or wgmma is not told, so it is a bound.
    work.next_precision(kernel(row))
    take(work, found, names=names)
    flops, _ = values(work, row)["flops", "tensor/bf16", True]
    assert flops == pytest.approx(truth(load_excerpt(), "gemm_bf16")["flops"], rel=0.01)
    work.reset()
    take(work, found, names=names)
    assert work.described(kernel(row), {}).told == "tensor/bf16"  # for the session


def test_where_the_name_tells_the_precision_nothing_is_asked():
    work, found = SampledWork(), attribute(load_excerpt(), "gemm_bf16", 5)
    take(work, found)
    assert work.described(kernel(busiest(found)), {}).candidates == ()
    assert not work.next_precision(kernel(busiest(found)))


def test_only_what_changed_is_sent_and_rows_that_went_are_not():
    found = attribute(load_excerpt(), "vector_add_fp32", 5)
    work, row = SampledWork(), busiest(found)
    take(work, found)
    assert values(work, row, everything=False)
    assert not values(work, row, everything=False)
    assert not work.columns(everything=True, standing=lambda _: False)
    assert values(work, row)
    work.forget([row])
    assert not values(work, row)
    take(work, found)
    work.reset()
    assert not work.columns(everything=True, standing=lambda _: True)


def test_launches_without_a_row_stay_in_the_worker():
    found = attribute(load_excerpt(), "vector_add_fp32", 5)
    kernels = found.kernels.copy()
    kernels[-1] = NO_ROW
    result = told(replace(found, kernels=kernels))
    assert len(result.array("kernels")) == len(kernels) - 1
    assert result.array("amounts").shape == (len(kernels) - 1, len(found.metrics))
