"""One GPU opened through CuPy: its sizes, memory, modules and events. The context is held until we exit."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from roofmon.calibration import gpu_fill
from roofmon.calibration.gpu_compile import Compiler
from roofmon.calibration.gpu_driver import Driver, same_uuid
from roofmon.calibration.gpu_library import import_cupy
from roofmon.calibration.probe import Probe
from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.session import Notice
from roofmon.units import mebibytes

# Numbers of driver_types.h and cuda.h: cudaDeviceAttr, cudaError, CUfunction_attribute.
_MULTIPROCESSORS, _L2_BYTES, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 38, 75, 76
_NO_MEMORY = 2
_MOST_DYNAMIC_SHARED = 8
_FILL_BLOCKS, _FILL_THREADS = 8, 256
_SHARED_WITHOUT_ASKING = 48 * 1024


class Gpu:
    """The device that CUDA_VISIBLE_DEVICES leaves, which must be `uuid`.

    Args:
        uuid: as NVML names it.
        notify: takes notices.
        phase: called with the name of each step that has ended.

    Raises RoofmonError where the driver, CuPy, a library, the device or its memory is missing.
    """

    def __init__(
        self,
        uuid: str,
        notify: Callable[[Notice], None] = lambda notice: None,
        phase: Callable[[str], None] = lambda name: None,
    ) -> None:
        driver = Driver()
        phase("driver")
        if not same_uuid(uuid, seen := driver.uuid(0)):
            raise RoofmonError(
                f"{uuid} was to be measured, but CUDA shows {seen}",
                "of a GPU in MIG mode name an instance: nvidia-smi -L lists them",
                ExitCode.NO_DEVICE,
            )
        context = driver.create_context(0)
        version = driver.version()
        self.cupy: Any = import_cupy(version)
        phase("import of CuPy")
        context()
        phase("rest of the context")
        self.runtime: Any = self.cupy.cuda.runtime
        self.cupy.cuda.Device(0).use()
        self.sms = self._attribute(_MULTIPROCESSORS)
        self.l2_bytes = self._attribute(_L2_BYTES)
        capability = self._attribute(_CAPABILITY_MAJOR), self._attribute(_CAPABILITY_MINOR)
        self._compiler = Compiler(self.cupy, capability, version, notify)
        phase("NVRTC")
        self.stream: Any = self.cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._modules: dict[str, Any] = {}
        self._pinned = 0, 0  # bytes, address

    def free_bytes(self) -> int:
        """GPU memory that nobody holds."""
        return int(self.runtime.memGetInfo()[0])

    def allocate(self, size: int) -> Any:
        """GPU memory (`ptr`), given back when the object goes. Raises RoofmonError without enough."""
        try:
            return self.cupy.cuda.Memory(size)
        except self.runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            what = f"no room for {mebibytes(size)} in GPU memory"
            raise RoofmonError(what, "end other programs on the GPU") from None

    def pinned(self, size: int) -> int:
        """The address of pinned host memory, the same each time: to pin 256 MiB takes 0.1 s."""
        if self._pinned[0] < size:
            self._pinned = size, int(self.runtime.hostAlloc(size, 0))
        return self._pinned[1]

    def fill(self, memory: Any, size: int, precision: str) -> None:
        """Fill `size` bytes of memory with random numbers; returns before it is done."""
        kernel, number_bytes = gpu_fill.KERNELS[precision]
        fill = self._module(gpu_fill.SOURCE, "fill.cu").get_function(kernel)
        arguments = [np.uint64(memory.ptr), np.uint64(size // number_bytes)]
        self.launch(fill, _FILL_BLOCKS * self.sms, _FILL_THREADS, arguments)

    def function(self, probe: Probe) -> Any:
        """The kernel of a probe. Raises RoofmonError where it does not compile or is not there."""
        module = self._module(probe.source_text, probe.code or probe.name)
        driver = self.cupy.cuda.driver
        try:
            function = module.get_function(probe.kernel)
        except driver.CUDADriverError:
            raise RoofmonError(
                f"{probe.code} has no kernel {probe.kernel!r}",
                f'declare it as: extern "C" __global__ void {probe.kernel}(…)',
            ) from None
        if probe.shared_bytes > _SHARED_WITHOUT_ASKING:
            driver.funcSetAttribute(function.ptr, _MOST_DYNAMIC_SHARED, probe.shared_bytes)
        return function

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: Sequence[np.generic],
        shared_bytes: int = 0,
    ) -> None:
        """Launch a kernel on our stream. Pointers are given as `numpy.uint64`."""
        function(
            (blocks,), (threads,), tuple(arguments), shared_mem=shared_bytes, stream=self.stream
        )

    def record(self) -> Any:
        """An event after all that was launched."""
        event = self.cupy.cuda.Event()
        event.record(self.stream)
        return event

    def seconds_between(self, start: Any, end: Any) -> float:
        """Device time between two events that have happened."""
        return float(self.cupy.cuda.get_elapsed_time(start, end)) / 1000

    def wait(self) -> None:
        """Wait for all that was launched. Raises CuPy's error where it failed."""
        self.stream.synchronize()

    def rest(self, seconds: float) -> None:
        """Wait for all that was launched, then leave the GPU idle for so long."""
        self.wait()
        time.sleep(seconds)

    def read(self, address: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
        """Numbers from GPU memory, after all that was launched."""
        values = np.empty(count, dtype)
        self.wait()
        self.runtime.memcpy(
            values.ctypes.data, address, values.nbytes, self.runtime.memcpyDeviceToHost
        )
        return values

    def broken(self) -> bool:
        """Whether a fault has left a context in which nothing works any more."""
        try:
            self.wait()
            self.runtime.memGetInfo()
        except Exception:
            return True
        return False

    def _attribute(self, number: int) -> int:
        return int(self.runtime.deviceGetAttribute(number, 0))

    def _module(self, source: str, name: str) -> Any:
        if source not in self._modules:
            module = self.cupy.cuda.Module()
            module.load(self._compiler.image(source, name))
            self._modules[source] = module
        return self._modules[source]
