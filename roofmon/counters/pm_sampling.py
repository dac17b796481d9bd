"""PM sampling of one GPU through cupti-python's low-level calls.

Its class `Collector` is not used for reading: that makes a counter image and a host object for every
read and an array for every sample, and does not tell whether the hardware buffer overflowed. Here one image
serves a whole session, and a sample costs two calls.
"""

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SLOTS = 32
"""Samples in an image: preparing one costs 25–90 µs a slot, used or not, and what does not fit stays in the
hardware buffer for the next."""
# cupti-python's one irregular name.
_CLASSES = {"profiler_deinitialize": "ProfilerDeInitialize"}


@dataclass(frozen=True, eq=False)
class Decoded:
    """Samples as they came: times in ns, shape (s,), values of shape (s, c).

    `populated` counts samples with anything in them, complete or not; `more`: the image was full.
    """

    start_ns: Integers
    end_ns: Integers
    values: Floats
    populated: int
    more: bool
    overflow: bool


class PmSampling:
    """PM sampling enabled on one GPU; nobody else can have its counters meanwhile.

    Args:
        cupti: the module `cupti.cupti`.
        device_index: CUDA's number of the GPU.

    Every method raises what cupti-python does, `cuptiError` mostly (see `failures.explain`).
    """

    def __init__(self, cupti: Any, device_index: int) -> None:
        self._cupti = cupti
        self._object = self._host = 0
        self._running = False
        self._call("profiler_initialize")
        try:
            named = self._call("device_get_chip_name", device_index=device_index)
            self.chip = str(named.p_chip_name)
            enabled = self._call("pm_sampling_enable", device_index=device_index)
            self._object = enabled.p_pm_sampling_object
        except Exception:
            self.close()
            raise

    def accepts(self, *metrics: str) -> bool:
        """Whether the chip has all of these counters. Raises where CUPTI fails for another reason."""
        host = self._new_host()
        try:
            with _names(metrics) as names:
                self._add_metrics(host, names, len(metrics))
        except self._cupti.cuptiError as error:
            if error.status == self._cupti.Result.ERROR_INVALID_METRIC_NAME:
                return False
            raise
        finally:
            self._call("profiler_host_deinitialize", p_host_object=host)
        return True

    def configure(
        self, metrics: tuple[str, ...], interval: int, buffer_bytes: int, *, by_time: bool
    ) -> None:
        """Say what to sample. `interval` is in ns with `by_time`, else in cycles of the system clock."""
        self.stop()
        # Kept, as cupti-python itself keeps it: CUPTI does not say whether it reads it again at the start.
        self._config = image = self._config_image(metrics)
        mode = self._cupti.PmSamplingTriggerMode
        self._call(
            "pm_sampling_set_config",
            p_pm_sampling_object=self._object,
            config_size=len(image),
            p_config=image.ctypes.data,
            hardware_buffer_size=buffer_bytes,
            sampling_interval=interval,
            trigger_mode=mode.GPU_TIME_INTERVAL if by_time else mode.GPU_SYSCLK_INTERVAL,
            hw_buffer_append_mode=self._cupti.PmSamplingHardwareBufferAppendMode.KEEP_OLDEST,
        )
        self._prepare(metrics)

    def start(self) -> None:
        """Begin to sample."""
        self._call("pm_sampling_start", p_pm_sampling_object=self._object)
        self._running = True

    def stop(self) -> None:
        """Stop sampling, where it runs."""
        if self._running:
            self._running = False
            self._call("pm_sampling_stop", p_pm_sampling_object=self._object)

    def read(self) -> Decoded:
        """The samples that came since the last call, at most `_SLOTS`."""
        cupti, decode, info = self._cupti, self._decode, self._info
        cupti.pm_sampling_counter_data_image_initialize(self._clear.ptr)
        decode.overflow = 0
        cupti.pm_sampling_decode_data(decode.ptr)
        cupti.pm_sampling_get_counter_data_info(info.ptr)
        count = min(info.num_completed_samples, _SLOTS)
        start = np.empty(count, dtype=np.int64)
        end = np.empty(count, dtype=np.int64)
        sample, evaluate = self._sample, self._evaluate
        first, stride = self._values.ctypes.data, self._values.strides[0]
        for index in range(count):
            sample.sample_index = index
            cupti.pm_sampling_counter_data_get_sample_info(sample.ptr)
            start[index], end[index] = sample.start_timestamp, sample.end_timestamp
            evaluate.range_index = index
            evaluate.p_metric_values = first + index * stride
            cupti.profiler_host_evaluate_to_gpu_values(evaluate.ptr)
        full = cupti.PmSamplingDecodeStopReason.COUNTER_DATA_FULL
        return Decoded(
            start,
            end,
            self._values[:count].copy(),
            populated=info.num_populated_samples,
            more=decode.decode_stop_reason == full,
            overflow=bool(decode.overflow),
        )

    def close(self) -> None:
        """Give the counters back. What fails here is left: the driver frees what a process had."""
        cupti = self._cupti
        with contextlib.suppress(cupti.cuptiError):
            self.stop()
        if self._host:
            with contextlib.suppress(cupti.cuptiError):
                self._call("profiler_host_deinitialize", p_host_object=self._host)
        if self._object:
            with contextlib.suppress(cupti.cuptiError):
                self._call("pm_sampling_disable", p_pm_sampling_object=self._object)
        self._object = self._host = 0
        with contextlib.suppress(cupti.cuptiError):
            self._call("profiler_deinitialize")

    def _prepare(self, metrics: tuple[str, ...]) -> None:
        """Make the image and the parameters of every call in `read`, once."""
        if not self._host:
            self._host = self._new_host()
        self._names, count = _c_names(metrics), len(metrics)
        names = ctypes.addressof(self._names)
        size = self._call(
            "pm_sampling_get_counter_data_size",
            p_pm_sampling_object=self._object,
            p_metric_names=names,
            num_metrics=count,
            max_samples=_SLOTS,
        ).counter_data_size
        self._image = np.zeros(size, dtype=np.uint8)
        self._values = np.zeros((_SLOTS, count))
        image = {"p_counter_data_image": self._image.ctypes.data, "counter_data_image_size": size}
        self._clear = self._parameters(
            "pm_sampling_counter_data_image_initialize",
            p_pm_sampling_object=self._object,
            counter_data_size=size,
            p_counter_data=self._image.ctypes.data,
        )
        ours = {"p_pm_sampling_object": self._object, **image}
        self._decode = self._parameters("pm_sampling_decode_data", **ours)
        self._info = self._parameters("pm_sampling_get_counter_data_info", **image)
        self._sample = self._parameters("pm_sampling_counter_data_get_sample_info", **ours)
        self._evaluate = self._parameters(
            "profiler_host_evaluate_to_gpu_values",
            p_host_object=self._host,
            pp_metric_names=names,
            num_metrics=count,
            **image,
        )

    def _config_image(self, metrics: tuple[str, ...]) -> NDArray[np.uint8]:
        host = self._new_host()
        try:
            with _names(metrics) as names:
                self._add_metrics(host, names, len(metrics))
                size = self._call(
                    "profiler_host_get_config_image_size", p_host_object=host
                ).config_image_size
                image = np.zeros(size, dtype=np.uint8)
                self._call(
                    "profiler_host_get_config_image",
                    p_host_object=host,
                    p_config_image=image.ctypes.data,
                    config_image_size=size,
                )
        finally:
            self._call("profiler_host_deinitialize", p_host_object=host)
        return image

    def _new_host(self) -> int:
        """The side of CUPTI that knows metrics by name, for this chip."""
        kind = int(self._cupti.ProfilerType.PM_SAMPLING)
        made = self._call("profiler_host_initialize", profiler_type=kind, p_chip_name=self.chip)
        return int(made.p_host_object)

    def _add_metrics(self, host: int, names: int, count: int) -> None:
        self._call(
            "profiler_host_config_add_metrics",
            p_host_object=host,
            pp_metric_names=names,
            num_metrics=count,
        )

    def _call(self, function: str, **fields: object) -> Any:
        """Call a function of CUPTI; returns its parameters, in which it answers."""
        parameters = self._parameters(function, **fields)
        getattr(self._cupti, function)(parameters.ptr)
        return parameters

    def _parameters(self, function: str, **fields: object) -> Any:
        name = _CLASSES.get(function) or "".join(part.title() for part in function.split("_"))
        parameters = getattr(self._cupti, f"{name}Params")()
        parameters.struct_size = getattr(self._cupti, f"{function.upper()}_PARAMS_STRUCT_SIZE")
        for field, value in fields.items():
            setattr(parameters, field, value)
        return parameters


def _c_names(names: tuple[str, ...]) -> Any:
    """A C array of strings; they live as long as it does."""
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


@contextlib.contextmanager
def _names(names: tuple[str, ...]) -> Any:
    array = _c_names(names)
    yield ctypes.addressof(array)
