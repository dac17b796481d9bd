"""The workload on a GPU: the same kernels, checked the same way."""

import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Any:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no GPU: {error}")
    from roofmon.demo.cupy_device import CupyDevice

    return CupyDevice()


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_results_are_right(device: Any, scale: float) -> None:
    from roofmon.demo.sizes import plan_sizes
    from roofmon.demo.workload import build_kernels

    sizes = plan_sizes(device.limits, scale)
    kernels = build_kernels(device, sizes)
    assert "gemm_fp16" in {kernel.name for kernel in kernels}
    for kernel in kernels:
        kernel.launch()
        device.synchronize()
        kernel.check()


def test_softmax_rows_matches_numpy(device: Any) -> None:
    import numpy as np

    x = np.random.default_rng(1).normal(size=(3, 5, 1000)).astype(np.float32) * 20
    on_gpu = device.xp.asarray(x)
    device.softmax_rows(on_gpu)
    powers = np.exp(x.astype(float) - x.max(axis=-1, keepdims=True))
    expected = powers / powers.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(device.to_host(on_gpu), expected, atol=1e-6)


def test_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "roofmon.demo", "--backend", "cupy", "--verbose"]
    done = subprocess.run(
        [*command, "--seconds", "2"], check=False, capture_output=True, text=True, timeout=120
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    print(done.stderr)  # the rates, for whoever runs this with -s
    assert done.returncode == 0
    assert done.stderr.count("launches, best") == 11
