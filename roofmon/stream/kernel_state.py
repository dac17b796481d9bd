"""Descriptions and columns of all kernels as the messages so far tell them, in arrays that grow."""

from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.model.histogram import NO_HISTOGRAMS, Histograms
from roofmon.model.kernel import KernelDescription
from roofmon.model.roofline import LEVELS, Pipe
from roofmon.model.stats import BINS
from roofmon.model.table import Column, KernelTable, WorkColumn
from roofmon.model.work import Provenance
from roofmon.stream.framing import StreamError
from roofmon.stream.messages import KernelColumns, WorkValues
from roofmon.units import clean

MAX_KERNELS = 1 << 20
_LEAST_COLUMNS = Column.LAUNCH_RATE + 1  # as the first recordings have
S = TypeVar("S", bound=msgspec.Struct)
Scalar = TypeVar("Scalar", bound=np.generic)


class KernelState:
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
        for kernel in map(cleaned, kernels):
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
            if columns.columns < _LEAST_COLUMNS or len(stats) != columns.columns * len(ids):
                raise StreamError("a tick's statistics do not fit its kernels")
            # A recording may be older, or newer, than this roofmon: columns are only ever added at the end.
            known = min(columns.columns, len(Column))
            rows = self._locate(ids)
            self._stats[:known, rows] = stats.reshape(columns.columns, len(ids))[:known]
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


def cleaned(struct: S) -> S:
    """With every text in it safe to show: a stream may come from anywhere.

    Nearly always nothing is to be changed, and then nothing is copied: 5,000 descriptions in 12 ms.
    """
    changes = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if value and (safe := _safe(value)) is not value:
            changes[name] = safe
    return msgspec.structs.replace(struct, **changes) if changes else struct


def _safe(value: object) -> object:
    """`value` itself where all its texts are safe, else a copy in which they are."""
    match value:
        case str():
            return clean(value)
        case msgspec.Struct():
            return cleaned(value)
        case dict():
            safe = {key: _safe(inner) for key, inner in value.items()}
            return safe if any(safe[key] is not value[key] for key in value) else value
        case tuple():
            copy = tuple(_safe(inner) for inner in value)
            return copy if any(a is not b for a, b in zip(copy, value, strict=True)) else value
    return value


def _doubled(array: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([array, np.full_like(array, np.nan)], axis=-1)


def _array(data: bytes, dtype: type[Scalar]) -> NDArray[Scalar]:
    """The little-endian numbers in `data`."""
    if len(data) % np.dtype(dtype).itemsize:
        raise StreamError("an array in a tick is cut short")
    return np.frombuffer(data, dtype=dtype)
