"""Arrays that grow."""

import numpy as np

from roofmon.arrays import grown


def test_an_array_grows_by_doubling_and_keeps_what_it_has() -> None:
    array = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert grown(array, 2, np.nan) is array
    larger = grown(array, 3, np.nan)
    assert larger.shape == (2, 64)
    assert larger[:, :2].tolist() == array.tolist()
    assert np.isnan(larger[:, 2:]).all()
    assert grown(larger, 65, 0.0).shape == (2, 128)
    assert grown(larger, 1000, 0.0).shape == (2, 1000)


def test_new_places_of_records_are_like_the_one_given() -> None:
    dtype = np.dtype([("count", np.int64), ("least", np.float64)])
    empty = np.array((0, np.nan), dtype=dtype)
    records = grown(np.zeros(0, dtype=dtype), 1, empty)
    assert records.dtype == dtype
    assert (records["count"] == 0).all()
    assert np.isnan(records["least"]).all()
