"""The real collector measures the roofs of the GPU shown, and says why where it cannot."""

import ctypes.util
from pathlib import Path

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import H200, gpu, gpu_uuid, host
from watched_gpus import watching

from roofmon.model.snapshot import Snapshot
from roofmon.stream.messages import Command

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("cuda") is not None, reason="there is a CUDA driver here"
)
NO_DRIVER = "no CUDA driver was found"


def said(snapshot: Snapshot, severity: str) -> bool:
    return any(n.what.startswith(NO_DRIVER) and n.severity == severity for n in snapshot.notices)


def test_without_a_cuda_driver_bounds_stand_and_the_cpu_is_left_in_peace(
    nvml: NvmlDouble, tmp_path: Path
) -> None:
    nvml.write(host(2) | gpu(0, H200) | gpu(1, H200))
    with watching(nvml, tmp_path, calibrate=True) as watched:
        # Nobody asked for it: a warning. Whoever asks gets an error.
        snapshot = watched.until(lambda s: said(s, "warning"), 30)
        assert watched.consumer.send(Command(command="calibrate", device=gpu_uuid(1)))
        snapshot = watched.until(lambda s: said(s, "error") and not s.devices[0].progress, 30)
    assert not any("ended early" in notice.what for notice in snapshot.notices)
    regimes = {
        d.description.kind: {ceiling.regime for ceiling in d.roofline.ceilings}
        for d in snapshot.devices
    }
    assert regimes == {"cuda": {"bound"}, "cpu": set()}
