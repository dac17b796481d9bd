"""The kernel table: which source of a quantity is used, shares of time, parts of a table."""

import numpy as np
import pytest
from builders import Kernel, Work, table

from roofmon.model.table import EMPTY_TABLE, Column
from roofmon.model.work import Provenance, Quantity, best, disagreement

COUNTED, IMPORTED, SAMPLED = Provenance.COUNTED, Provenance.IMPORTED, Provenance.SAMPLED
DECLARED, MODELLED, ESTIMATED = Provenance.DECLARED, Provenance.MODELLED, Provenance.ESTIMATED


@pytest.mark.parametrize(
    ("kind", "key", "order"),
    [
        ("flops", "tensor/bf16", [COUNTED, IMPORTED, DECLARED, MODELLED, SAMPLED, ESTIMATED]),
        ("bytes", "dram", [COUNTED, IMPORTED, SAMPLED, DECLARED, MODELLED, ESTIMATED]),
    ],
)
def test_the_best_source_wins_and_the_others_stay(
    kind: str, key: str, order: list[Provenance]
) -> None:
    for first in range(len(order)):
        works = [Work(10.0 + n, p) for n, p in enumerate(order)][first:]
        kernel = Kernel(**{kind: {key: list(reversed(works))}})  # type: ignore[arg-type]
        found = table(kernel)
        chosen = (found.flops if kind == "flops" else found.bytes)[key]
        assert chosen.values[0] == 10.0 + first
        assert chosen.columns[chosen.source[0]].provenance is order[first]
        sources = found.quantities(kind, key, 0)  # type: ignore[arg-type]
        assert [q.provenance for q in sources] == order[first:]


def test_each_kernel_has_its_own_best_source() -> None:
    found = table(
        Kernel(bytes={"dram": [Work(1.0), Work(2.0, SAMPLED, rel_error=0.05)]}),
        Kernel(bytes={"dram": Work(3.0)}),
        Kernel(),
    )
    assert found.bytes["dram"].values[:2].tolist() == [2.0, 3.0]
    assert np.isnan(found.bytes["dram"].values[2])
    assert found.bytes["dram"].source[2] == -1
    assert found.quantities("bytes", "dram", 2) == []
    assert found.quantities("bytes", "l2", 0) == []
    sampled = found.quantities("bytes", "dram", 0)[0]
    assert (sampled.value, sampled.rel_error) == (2.0, 0.05)


def test_values_by_what_their_source_counts() -> None:
    found = table(
        Kernel(bytes={"l2": Work(1.0, SAMPLED, counts="lts__t_bytes")}),
        Kernel(bytes={"l2": Work(2.0)}),
        Kernel(),
    )
    requested = found.bytes["l2"].counting("requested")
    assert np.isnan(requested[[0, 2]]).all()
    assert requested[1] == 2.0
    assert found.bytes["l2"].counting("lts__t_bytes")[0] == 1.0


def test_shares_of_traced_kernels_leave_out_copies_and_regions() -> None:
    found = table(
        Kernel(total=600.0),
        Kernel(total=200.0),
        Kernel(total=400.0, extra={"kind": "memcpy"}),
        Kernel(total=5000.0, extra={"kind": "region"}),
        Kernel(total=7000.0, extra={"kind": "region"}),
    )
    found.stats[Column.INSIDE_TOTAL_NS, 3] = 400.0
    # Kernels are the whole; the copy ran beside them, half of their time was inside the first region.
    assert found.time_share[:4].tolist() == [0.75, 0.25, 0.5, 0.5]
    assert np.isnan(found.time_share[4])
    # Without kernels regions are the whole, as always.
    regions = found.take(np.array([3, 4]))
    assert regions.time_share.tolist() == pytest.approx([5 / 12, 7 / 12])


def quantity(value: float | None, provenance: Provenance, upper: bool = False) -> Quantity:
    return Quantity(value=value, provenance=provenance, upper_bound=upper)


def test_best_of_quantities_prefers_a_known_one() -> None:
    known = quantity(1.0, ESTIMATED)
    assert best("flops", [quantity(None, COUNTED), known]) is known
    nothing = quantity(None, Provenance.UNKNOWN)
    assert best("flops", [nothing]) is nothing
    assert best("flops", []) is None


def test_disagreement_is_relative_to_the_best_source() -> None:
    sources = [quantity(100.0, DECLARED), quantity(80.0, MODELLED), quantity(105.0, SAMPLED)]
    assert disagreement("flops", sources) == pytest.approx(0.20)
    # For bytes the sampled value is the better one.
    assert disagreement("bytes", sources) == pytest.approx(25 / 105)
    assert disagreement("flops", sources[:1]) is None
    assert disagreement("flops", []) is None
    assert disagreement("flops", [quantity(1.0, DECLARED), quantity(None, MODELLED)]) is None


def test_an_upper_bound_above_the_best_source_agrees_with_it() -> None:
    declared = quantity(100.0, DECLARED)
    assert disagreement("flops", [declared, quantity(190.0, SAMPLED, upper=True)]) == 0
    assert disagreement("flops", [declared, quantity(70.0, SAMPLED, upper=True)]) == pytest.approx(
        0.3
    )


def test_zero_against_something_is_a_disagreement() -> None:
    assert disagreement("flops", [quantity(0.0, DECLARED), quantity(5.0, MODELLED)]) == np.inf
    assert disagreement("flops", [quantity(0.0, DECLARED), quantity(0.0, MODELLED)]) == 0


def test_shares_of_time_count_nested_regions_once() -> None:
    # step (100 ns × 10) contains mul (30 ns × 10) wholly; load runs on its own.
    found = table(
        Kernel("step", median=100, launches=10),
        Kernel("mul", median=30, launches=10, outer=0),
        Kernel("load", median=100, launches=10),
    )
    assert found.time_share == pytest.approx([0.5, 0.15, 0.5])
    assert np.isnan(table(Kernel(median=0, launches=0)).time_share).all()
    assert len(EMPTY_TABLE.time_share) == 0


def test_part_of_a_table() -> None:
    found = table(
        Kernel("a", bytes={"dram": 1.0}), Kernel("b", median=5), Kernel("c", bytes={"dram": 3.0})
    )
    for part in (
        found.take(np.array([2, 0])),
        found.take(np.array([True, False, True])).take(np.array([1, 0])),
    ):
        assert [d.name for d in part.descriptions] == ["c", "a"]
        assert part.bytes["dram"].values.tolist() == [3.0, 1.0]
        assert part.row_by_id == {3: 0, 1: 1}
    assert found.take(np.array([1])).column(Column.MEDIAN_NS).tolist() == [5]
    assert len(found.take(np.empty(0, dtype=np.int64))) == 0


def test_bytes_that_count_something_else_do_not_disagree() -> None:
    works = [Work(15.0, SAMPLED, counts="lts__t_bytes"), Work(10.0), Work(9.0, MODELLED)]
    sources = table(Kernel(bytes={"l2": works})).quantities("bytes", "l2", 0)
    assert [q.counts for q in sources] == ["lts__t_bytes", "requested", "requested"]
    assert disagreement("bytes", sources) is None
    assert disagreement("bytes", sources[1:]) == pytest.approx(0.1)
