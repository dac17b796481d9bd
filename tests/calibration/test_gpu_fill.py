"""What GPU memory is filled with: the CUDA C of the fill kernels, compiled for the CPU and run there."""

import shutil
import subprocess

import numpy as np
import pytest

from roofmon.calibration.gpu_fill import KERNELS, SOURCE

COUNT = 20000
PROGRAM = """
#include <stdio.h>
#define __device__ static
#define __global__
struct index { unsigned x; };
static index gridDim = {1}, blockDim = {1}, blockIdx = {0}, threadIdx = {0};
%s
template <typename T> void print(void (*fill)(T*, u64)) {
    static T numbers[%d];
    fill(numbers, %d);
    fwrite(numbers, sizeof(T), %d, stdout);
}
int main() { print(fill_fp64); print(fill_fp32); print(fill_fp16); print(fill_bf16); }
"""


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, "np.ndarray[tuple[int], np.dtype]"]:
    """The numbers by precision; bf16 as their 16 bits."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler (c++)")
    folder = tmp_path_factory.mktemp("fill")
    (folder / "fill.cc").write_text(PROGRAM % (SOURCE, COUNT, COUNT, COUNT))
    subprocess.run([compiler, "-o", "fill", "fill.cc"], cwd=folder, check=True, timeout=60)
    data = subprocess.run([folder / "fill"], capture_output=True, check=True, timeout=20).stdout
    arrays, start = {}, 0
    for precision, dtype in (("fp64", "f8"), ("fp32", "f4"), ("fp16", "f2"), ("bf16", "u2")):
        size = COUNT * KERNELS[precision][1]
        arrays[precision] = np.frombuffer(data[start : start + size], dtype)
        start += size
    assert start == len(data)
    return arrays


def test_the_numbers_are_bell_shaped_around_zero_and_small(filled: dict[str, np.ndarray]) -> None:
    numbers = filled["fp64"]
    assert np.all(np.abs(numbers) < 2)
    assert abs(np.mean(numbers)) < 0.015
    # σ² of four uniform numbers, 4/12, times the mean square of a uniform one in [½, 1], 7/12.
    assert np.std(numbers) == pytest.approx((4 / 12 * 7 / 12) ** 0.5, rel=0.02)
    # Neighbours have nothing to do with each other.
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.03
    assert len(np.unique(numbers)) > 0.999 * COUNT


def test_their_bits_are_random_down_to_the_last(filled: dict[str, np.ndarray]) -> None:
    for precision, word in (("fp64", "u8"), ("fp32", "u4"), ("fp16", "u2"), ("bf16", "u2")):
        last = filled[precision].view(word) & 1
        assert np.mean(last) == pytest.approx(0.5, abs=0.02), precision


def test_narrower_numbers_are_the_nearest(filled: dict[str, np.ndarray]) -> None:
    single = filled["fp64"].astype("f4")
    assert np.array_equal(filled["fp32"], single)
    normal = np.abs(single) >= 2.0**-14  # smaller ones become zero
    assert np.array_equal(filled["fp16"][normal], single.astype("f2")[normal])
    assert not filled["fp16"][~normal].any()
    brain = (filled["bf16"].astype("u4") << 16).view("f4")
    exponent = np.floor(np.log2(np.abs(single[normal])))
    assert np.all(np.abs(brain - single)[normal] <= 2.0 ** (exponent - 8))  # half of the last bit
