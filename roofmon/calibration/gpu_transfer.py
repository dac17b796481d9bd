"""Copies over PCIe to and from pinned memory, and over NVLink to another GPU's memory."""

from typing import Any

import numpy as np

from roofmon.calibration.gpu_device import Gpu
from roofmon.errors import RoofmonError

_CHECKED = 4096
_PEER = 1  # the second device that CUDA_VISIBLE_DEVICES names for such a probe


class Transfer:
    """Copies of `size` random bytes on our stream, one way. Raises RoofmonError where there is no way."""

    def __init__(self, gpu: Gpu, level: str, size: int) -> None:
        self._gpu = gpu
        self.size = size
        runtime = gpu.runtime
        self._here = gpu.allocate(size)
        gpu.fill(self._here, size, "fp64")
        self._from = self._here.ptr
        if level == "nvlink":
            self._peer = _peer_memory(gpu, size)
            self._to, self._kind = self._peer.ptr, runtime.memcpyDefault
            return
        self._to, self._kind = gpu.pinned(size), runtime.memcpyDeviceToHost
        if level == "pcie_h2d":
            self.launch()  # the random bytes are on the host now
            gpu.wait()
            runtime.memset(self._here.ptr, 0, size)
            self._from, self._to = self._to, self._from
            self._kind = runtime.memcpyHostToDevice

    def launch(self) -> None:
        """Queue one copy."""
        self._gpu.runtime.memcpyAsync(
            self._to, self._from, self.size, self._kind, self._gpu.stream.ptr
        )

    def check(self) -> None:
        """Compare both ends of what arrived with what was sent. Raises ArithmeticError."""
        self._gpu.wait()
        for offset in (0, self.size - _CHECKED):
            sent, arrived = self._bytes(self._from + offset), self._bytes(self._to + offset)
            if not sent.any() or not np.array_equal(sent, arrived):
                raise ArithmeticError("the bytes that arrived are not those that were sent")

    def _bytes(self, address: int) -> "np.ndarray[Any, Any]":
        values = np.empty(_CHECKED, "u1")
        runtime = self._gpu.runtime
        runtime.memcpy(values.ctypes.data, address, _CHECKED, runtime.memcpyDefault)
        return values


def _peer_memory(gpu: Gpu, size: int) -> Any:
    runtime = gpu.runtime
    if runtime.getDeviceCount() <= _PEER or not runtime.deviceCanAccessPeer(0, _PEER):
        raise RoofmonError("CUDA gives no access to the memory of another GPU")
    with gpu.cupy.cuda.Device(_PEER):
        memory = gpu.allocate(size)
    runtime.deviceEnablePeerAccess(_PEER)
    return memory
