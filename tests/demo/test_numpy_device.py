"""The thread pool, and the operations of the CPU against plain NumPy."""

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from roofmon.demo.numpy_device import NumpyDevice


@pytest.fixture
def device() -> Iterator[NumpyDevice]:
    device = NumpyDevice(threads=3)
    yield device
    device.close()


@pytest.mark.parametrize("count", [0, 1, 5, 12, 1000])
def test_ranges_cover_all_once(device: NumpyDevice, count: int) -> None:
    seen = np.zeros(count, dtype=int)

    def body(begin: int, end: int) -> None:
        seen[begin:end] += 1

    device.parallel(count, body)
    assert (seen == 1).all()


def test_an_error_in_one_range_is_raised_after_all_have_ended(device: NumpyDevice) -> None:
    done: list[int] = []

    def body(begin: int, end: int) -> None:
        if begin == 0:
            raise ZeroDivisionError("first")
        done.append(end - begin)

    with pytest.raises(ZeroDivisionError, match="first"):
        device.parallel(12, body)
    assert sum(done) == 11
    device.parallel(3, body=lambda begin, end: done.append(100))
    assert done.count(100) == 3  # the pool lives on


def test_triad_over_several_blocks(device: NumpyDevice) -> None:
    b, c = np.random.default_rng(1).random((2, 2_000_003), dtype=np.float32)
    out = np.zeros_like(b)
    device.triad(b, c, 3.0, out)
    np.testing.assert_allclose(out, b.astype(float) + 3 * c.astype(float), rtol=1e-6)


def test_softmax_rows(device: NumpyDevice) -> None:
    x = np.array([[[0, 0, 0, 0], [1000, 1000, -1000, -1000]]], dtype=np.float32)
    device.softmax_rows(x)
    assert x.tolist() == [[[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0]]]


def test_matmul_of_a_shape_that_tiles_do_not_divide(device: NumpyDevice) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((777, 130)), rng.random((130, 901))
    out = np.zeros((777, 901))
    device.matmul(a, b, out)
    np.testing.assert_allclose(out, np.einsum("ik,kj->ij", a, b), rtol=1e-12)


def test_blas_is_held_to_one_thread_only_while_open() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info()]

    before = threads()
    device = NumpyDevice(threads=2)
    assert set(threads()) == {1}
    device.close()
    assert threads() == before


def test_asks_the_system_for_what_is_not_given(device: NumpyDevice) -> None:
    assert device.limits.cache_bytes >= 256 << 10
    assert 0 < device.limits.memory_bytes < 1 << 50
