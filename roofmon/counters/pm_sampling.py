"""PM sampling of one GPU through cupti-python's low-level calls.

Its class `Collector` is not used for reading: that makes a counter image and a host object for every
read and an array for every sample, and does not tell whether the hardware buffer overflowed. Here one image
serves as long as the settings do, and a sample costs two calls.
"""

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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


@dataclass(frozen=True, eq=False)
class _Image:
    """Where samples are decoded into, with the parameters of every call for it, made once.

    `values` has shape (slots, counters).
    """

    memory: NDArray[np.uint8]
    values: Floats
    clear: Any
    decode: Any
    info: Any
    sample: Any
    evaluate: Any


class PmSampling:
    """PM sampling enabled on one GPU; nobody else can have its counters meanwhile.

    Good for one configuration: CUPTI 13.4 accepts another one after a stop, and then fails with
    ERROR_UNKNOWN or crashes in one of the next reads.

    Args:
        cupti: the module `cupti.cupti`.
        device_index: CUDA's number of the GPU.

    Every method raises what cupti-python does, `cuptiError` mostly (see `failures.explain`).
    """

    def __init__(self, cupti: Any, device_index: int) -> None:
        self._cupti = cupti
        self._object = self._host = 0
        self._image: _Image | None = None
        self._running = False
        self.configured = False
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
            result = self._cupti.Result
            # What CUPTI 13.4 says of a name that it does not know, and what its documentation says.
            if error.status in (result.ERROR_INVALID_PARAMETER, result.ERROR_INVALID_METRIC_NAME):
                return False
            raise
        finally:
            self._call("profiler_host_deinitialize", p_host_object=host)
        return True

    def start(
        self,
        metrics: tuple[str, ...],
        interval: int,
        buffer_bytes: int,
        slots: int,
        *,
        by_time: bool,
    ) -> None:
        """Begin to sample; once.

        Args:
            interval: in ns with `by_time`, else in cycles of the system clock.
            slots: the most samples of a read; what more has come by then is lost (with 32 for 50 samples
                a read, 43 % of all on an H200). A slot costs 25–90 µs a read, used or not.
        """
        assert not self.configured, "good for one configuration"
        self.configured = True
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
        self._host = self._new_host()
        self._names = _c_names(metrics)
        self._image = self._new_image(slots)
        self._call("pm_sampling_start", p_pm_sampling_object=self._object)
        self._running = True

    def read(self) -> Decoded:
        """The samples that came since the last call."""
        image = self._image
        assert image is not None, "not started"
        cupti, decode, info = self._cupti, image.decode, image.info
        cupti.pm_sampling_counter_data_image_initialize(image.clear.ptr)
        decode.overflow = 0
        cupti.pm_sampling_decode_data(decode.ptr)
        cupti.pm_sampling_get_counter_data_info(info.ptr)
        count = min(info.num_completed_samples, len(image.values))
        start = np.empty(count, dtype=np.int64)
        end = np.empty(count, dtype=np.int64)
        sample, evaluate = image.sample, image.evaluate
        first, stride = image.values.ctypes.data, image.values.strides[0]
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
            image.values[:count].copy(),
            populated=info.num_populated_samples,
            more=decode.decode_stop_reason == full,
            overflow=bool(decode.overflow),
        )

    def close(self) -> None:
        """Give the counters back. What fails here is left: the driver frees what a process had."""
        cupti = self._cupti
        if self._running:
            with contextlib.suppress(cupti.cuptiError):
                self._call("pm_sampling_stop", p_pm_sampling_object=self._object)
        if self._host:
            with contextlib.suppress(cupti.cuptiError):
                self._call("profiler_host_deinitialize", p_host_object=self._host)
        if self._object:
            with contextlib.suppress(cupti.cuptiError):
                self._call("pm_sampling_disable", p_pm_sampling_object=self._object)
        self._object = self._host = 0
        self._running = False
        with contextlib.suppress(cupti.cuptiError):
            self._call("profiler_deinitialize")

    def _new_image(self, slots: int) -> "_Image":
        names, count = ctypes.addressof(self._names), len(self._names)
        size = self._call(
            "pm_sampling_get_counter_data_size",
            p_pm_sampling_object=self._object,
            p_metric_names=names,
            num_metrics=count,
            max_samples=slots,
        ).counter_data_size
        memory = np.zeros(size, dtype=np.uint8)
        image = {"p_counter_data_image": memory.ctypes.data, "counter_data_image_size": size}
        ours = {"p_pm_sampling_object": self._object, **image}
        return _Image(
            memory,
            values=np.zeros((slots, count)),
            clear=self._parameters(
                "pm_sampling_counter_data_image_initialize",
                p_pm_sampling_object=self._object,
                counter_data_size=size,
                p_counter_data=memory.ctypes.data,
            ),
            decode=self._parameters("pm_sampling_decode_data", **ours),
            info=self._parameters("pm_sampling_get_counter_data_info", **image),
            sample=self._parameters("pm_sampling_counter_data_get_sample_info", **ours),
            evaluate=self._parameters(
                "profiler_host_evaluate_to_gpu_values",
                p_host_object=self._host,
                pp_metric_names=names,
                num_metrics=count,
                **image,
            ),
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
