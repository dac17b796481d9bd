"""What a consumer knows after the messages so far, and the `Snapshot` of it.

Ticks change columns in place; `snapshot` copies them (0.8 MB for 5,000 kernels, under 1 ms), so that a
snapshot never changes under the screen.
"""

from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.model.device import DeviceDescription, DeviceSample
from roofmon.model.histogram import NO_HISTOGRAMS, Histograms
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import LEVELS, NO_ROOFS, Pipe, Roofline
from roofmon.model.session import Notice, Progress, Rung
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.stats import BINS
from roofmon.model.table import Column, KernelTable, WorkColumn
from roofmon.model.work import Provenance
from roofmon.stream.framing import StreamError
from roofmon.stream.messages import (
    VERSION,
    Describe,
    Hello,
    KernelColumns,
    Keyframe,
    Message,
    NoticeMessage,
    ProgressMessage,
    Roofs,
    Status,
    Tick,
    WorkValues,
)
from roofmon.units import clean

MAX_KERNELS = 1 << 20
_NOTICES_KEPT = 50
S = TypeVar("S", bound=msgspec.Struct)
Scalar = TypeVar("Scalar", bound=np.generic)


class StreamState:
    """Applies messages in order. Raises StreamError for one that contradicts the protocol."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self._clear()

    def _clear(self) -> None:
        self._devices: dict[str, DeviceDescription] = {}
        self._samples: dict[str, DeviceSample] = {}
        self._rooflines: dict[str, Roofline] = {}
        self._progress: dict[str, Progress] = {}
        self._kernels = _KernelState()
        self._rungs: tuple[Rung, ...] = ()
        self._programs: dict[int, str] = {}
        self._notices: list[Notice] = []
        self._tick: Tick | None = None

    def apply(self, message: Message) -> bool:
        """Take one message in; True when a new snapshot is worth showing."""
        match message:
            case Hello():
                _check_version(message)
                self.hello = _cleaned(message)
                return False
            case Describe():
                self._describe(message)
                return False
            case Tick():
                self._apply_tick(message)
            case Roofs():
                self._rooflines[message.device] = message.roofline
            case Status():
                self._take_status(message)
            case ProgressMessage():
                self._take_progress(message.progress)
            case NoticeMessage():
                self._notices = [*self._notices, _cleaned(message.notice)][-_NOTICES_KEPT:]
            case Keyframe():
                self._take_keyframe(message)
        return self.hello is not None

    def snapshot(self, stale: str = "") -> Snapshot:
        """Everything known now; `stale` says why it is no longer live."""
        if self.hello is None:
            raise StreamError("the stream has not said hello yet")
        tick = self._tick
        return Snapshot(
            host=self.hello.host,
            time_unix_ns=tick.time_unix_ns if tick else self.hello.time_unix_ns,
            interval_ns=tick.interval_ns if tick else 0,
            started_unix_ns=self.hello.time_unix_ns,
            devices=tuple(
                Device(
                    description,
                    self._samples.get(uuid),
                    self._rooflines.get(uuid, NO_ROOFS),
                    self._progress.get(uuid),
                )
                for uuid, description in self._devices.items()
            ),
            kernels=self._kernels.table(),
            histograms=self._kernels.histograms,
            rungs=self._rungs,
            notices=tuple(self._notices),
            dropped=tick.dropped if tick else 0,
            programs=self._programs,
            stale=stale,
        )

    def _describe(self, message: Describe) -> None:
        for device in message.devices:
            self._devices[device.uuid] = _cleaned(device)
        self._kernels.describe(message.kernels)

    def _apply_tick(self, tick: Tick) -> None:
        if tick.reset:
            self._kernels.reset()
        for sample in tick.samples:
            self._samples[sample.device] = _cleaned(sample)
        self._kernels.update(tick.kernels)
        self._tick = tick

    def _take_progress(self, progress: Progress) -> None:
        if progress.done >= progress.total:
            self._progress.pop(progress.device, None)
        else:
            self._progress[progress.device] = _cleaned(progress)

    def _take_status(self, status: Status) -> None:
        self._rungs = tuple(_cleaned(rung) for rung in status.rungs)
        self._programs = {pid: clean(name) for pid, name in status.programs.items()}

    def _take_keyframe(self, keyframe: Keyframe) -> None:
        _check_version(keyframe.hello)
        self._clear()
        self.hello = _cleaned(keyframe.hello)
        self._describe(keyframe.describe)
        self._apply_tick(keyframe.tick)
        for roofs in keyframe.roofs:
            self._rooflines[roofs.device] = roofs.roofline
        self._take_status(keyframe.status)
        self._notices = [_cleaned(notice) for notice in keyframe.notices]
        for progress in keyframe.progress:
            self._take_progress(progress)


class _KernelState:
    """Descriptions and columns of all kernels, in arrays that grow."""

    def __init__(self) -> None:
        self._descriptions: list[KernelDescription] = []
        self._rows: dict[int, int] = {}
        self._stats = np.full((len(Column), 64), np.nan)
        self._work: dict[tuple[str, str, str, str, bool], tuple[NDArray[np.float64], ...]] = {}
        self.histograms: Histograms = NO_HISTOGRAMS

    def describe(self, kernels: list[KernelDescription]) -> None:
        if len(self._rows) + len(kernels) > MAX_KERNELS:
            raise StreamError(f"more than {MAX_KERNELS} kernels are described")
        for kernel in map(_cleaned, kernels):
            row = self._rows.setdefault(kernel.id, len(self._descriptions))
            if row == len(self._descriptions):
                self._descriptions.append(kernel)
            else:
                self._descriptions[row] = kernel
        while self._stats.shape[1] < len(self._descriptions):
            self._stats = _doubled(self._stats)
            self._work = {
                key: tuple(_doubled(column) for column in columns)
                for key, columns in self._work.items()
            }

    def reset(self) -> None:
        self._stats[:] = np.nan
        self._work.clear()
        self.histograms = NO_HISTOGRAMS

    def update(self, columns: KernelColumns) -> None:
        ids = _array(columns.ids, np.uint32)
        if len(ids):
            stats = _array(columns.stats, np.float64)
            if columns.columns != len(Column) or len(stats) != len(Column) * len(ids):
                raise StreamError("a tick's statistics do not fit its kernels")
            self._stats[:, self._locate(ids)] = stats.reshape(len(Column), len(ids))
        for work in columns.work:
            self._update_work(work)
        histogram_ids = _array(columns.histogram_ids, np.uint32)
        bins = _array(columns.histogram_bins, np.uint16)
        counts = _array(columns.histogram_counts, np.uint32)
        if not len(histogram_ids) == len(bins) == len(counts) or (len(bins) and bins.max() >= BINS):
            raise StreamError("a tick's histogram is not one")
        self.histograms = self.histograms.updated(histogram_ids, bins, counts)

    def _update_work(self, work: WorkValues) -> None:
        try:
            if work.kind == "flops":
                Pipe.parse(work.key)
            elif work.kind != "bytes" or work.key not in LEVELS:
                raise ValueError(f"no such work: {work.kind} {work.key}")
            provenance = Provenance(work.provenance)
        except ValueError as error:
            raise StreamError(str(error)) from None
        rows = self._locate(_array(work.ids, np.uint32))
        values, errors = _array(work.values, np.float64), _array(work.rel_error, np.float32)
        if not len(rows) == len(values) == len(errors):
            raise StreamError("a tick's work does not fit its kernels")
        key = (work.kind, work.key, provenance.value, work.counts, work.upper_bound)
        if key not in self._work:
            size = self._stats.shape[1]
            self._work[key] = (np.full(size, np.nan), np.full(size, np.nan))
        stored = self._work[key]
        stored[0][rows] = values
        stored[1][rows] = errors

    def _locate(self, ids: NDArray[np.uint32]) -> NDArray[np.int64]:
        try:
            return np.fromiter((self._rows[i] for i in ids.tolist()), np.int64, len(ids))
        except KeyError as error:
            raise StreamError(f"kernel {error} has values but no description") from None

    def table(self) -> KernelTable:
        n = len(self._descriptions)
        work = tuple(
            WorkColumn(
                "flops" if kind == "flops" else "bytes",
                key,
                Provenance(provenance),
                values[:n].copy(),
                errors[:n].copy(),
                upper_bound,
                counts,
            )
            for (kind, key, provenance, counts, upper_bound), (values, errors) in self._work.items()
        )
        table = KernelTable(tuple(self._descriptions), self._stats[:, :n].copy(), work)
        ran = table.column(Column.LAUNCHES) > 0
        return table if ran.all() else table.take(ran)


def _cleaned(struct: S) -> S:
    """With every text in it safe to show: a stream may come from anywhere."""
    changes: dict[str, object] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, str):
            changes[name] = clean(value)
        elif isinstance(value, dict) and value:
            changes[name] = {k: clean(v) if isinstance(v, str) else v for k, v in value.items()}
    return msgspec.structs.replace(struct, **changes)


def _check_version(hello: Hello) -> None:
    if hello.version != VERSION:
        raise StreamError(
            f"the collector on {hello.host} speaks version {hello.version} of the stream "
            f"(roofmon {hello.roofmon}), this is version {VERSION}"
        )


def _doubled(array: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([array, np.full_like(array, np.nan)], axis=-1)


def _array(data: bytes, dtype: type[Scalar]) -> NDArray[Scalar]:
    """The little-endian numbers in `data`."""
    if len(data) % np.dtype(dtype).itemsize:
        raise StreamError("an array in a tick is cut short")
    return np.frombuffer(data, dtype=dtype)
