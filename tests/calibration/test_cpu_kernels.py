import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from roofmon.calibration.cpu_kernels import BLOCK, OPERATIONS, Gemm, Operation, WorkingSet
from roofmon.calibration.team import Team


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(sorted(os.sched_getaffinity(0)), 2)
    yield team
    team.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_computes_what_it_says(team: Team, name: str) -> None:
    elements = 2 * BLOCK + 17  # more than a block, and not a multiple of it
    arrays = OPERATIONS[name].arrays
    working_set = WorkingSet(team, 8 * elements * arrays * 2)
    assert working_set.total_bytes == 8 * elements * arrays * 2
    assert working_set.pass_elements(OPERATIONS[name]) == elements * 2
    working_set.check(OPERATIONS[name])
    assert working_set.launcher(OPERATIONS[name])(3) > 0
    working_set.check(OPERATIONS[name])


def test_a_wrong_kernel_is_found_out(team: Team) -> None:
    def forgets_the_last(a: np.ndarray, c: np.ndarray) -> None:
        np.copyto(c[:-1], a[:-1])

    working_set = WorkingSet(team, 16 * BLOCK)
    copy = OPERATIONS["copy"]
    with pytest.raises(ArithmeticError, match="wrong result"):
        working_set.check(Operation(2, forgets_the_last, copy.expected))
    with pytest.raises(ArithmeticError, match="wrong result"):
        working_set.check(Operation(2, lambda a, b: float(a[1:] @ b[1:]), None))


def test_values_stay_ordinary_over_many_passes(team: Team) -> None:
    working_set = WorkingSet(team, 1000)
    for operation in OPERATIONS.values():
        working_set.launcher(operation)(5000)
        working_set.check(operation)  # would fail on infinities and on NaN


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_product_is_checked(precision: str) -> None:
    gemm = Gemm(100, precision)
    assert gemm.launch(2) > 0
    gemm.check()
    gemm._c[50:, 50:] = 0
    with pytest.raises(ArithmeticError, match="the product is wrong"):
        gemm.check()


def test_a_team_runs_each_part_on_its_own_thread_and_cpu() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    team = Team(cpus, len(cpus))
    seen: dict[int, tuple[int, set[int]]] = {}
    barrier = threading.Barrier(len(cpus), timeout=10)

    def part(thread: int) -> None:
        barrier.wait()  # all at the same time, or this breaks
        seen[thread] = threading.get_ident(), os.sched_getaffinity(0)

    team.run(part)
    team.close()
    assert sorted(seen) == list(range(len(cpus)))
    assert len({ident for ident, _ in seen.values()}) == len(cpus)
    assert [affinity for _, (_, affinity) in sorted(seen.items())] == [{cpu} for cpu in cpus]
    assert os.sched_getaffinity(0) == set(cpus)


def test_a_part_that_fails_is_raised_after_the_others_are_done(team: Team) -> None:
    done = []

    def part(thread: int) -> None:
        if thread == 0:
            raise MemoryError("no room")
        done.append(thread)

    with pytest.raises(MemoryError, match="no room"):
        team.run(part)
    assert done == [1]
    assert team.run(lambda thread: None) > 0
