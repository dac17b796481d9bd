"""From records of a traced program to rows: one for each kernel with its launch configuration.

Two hundred thousand records a second come, of a few thousand different launches: a record is matched by one
number mixed from its name, device, grid, block and registers, and only what is new is looked at one by
one.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.collector.kernels import KernelRegistry
from roofmon.model.kernel import KernelDescription, KernelKind
from roofmon.tracing.demangle import Demangler
from roofmon.tracing.occupancy import Limits, limits_of, occupancy
from roofmon.tracing.trace_protocol import (
    KERNEL_DTYPE,
    MAX_DEVICES,
    MAX_NAMES,
    OTHER,
    TRANSFER_KINDS,
    Device,
    Name,
)
from roofmon.units import clean

Rows = NDArray[np.int64]

MOST_STREAMS = 64
"""Streams of a program that are told apart; the last bit stands for all later ones."""
_UNKNOWN_WORK = "what a kernel does is not known from its times alone"
# Grid, block, device, registers and flags are three whole words of a record.
_WORD = 8
_FIRST_WORD = KERNEL_DTYPE.fields["grid"][1] // _WORD if KERNEL_DTYPE.fields else 0
_WORDS = 3
_QUICK_BITS = 16
# What bytes of a copy are of, and how often they pass there: a copy on the device reads and writes.
_LEVELS = {
    "memcpy h2d": ("pcie_h2d", 1),
    "memcpy d2h": ("pcie_d2h", 1),
    "memcpy d2d": ("dram", 2),
    "memset": ("dram", 1),
}


class LaunchRows:
    """The rows of one traced program; they outlive its connections.

    Args:
        kernels: where the rows go.
        demangler: for the names.
        pid, process: the program.
    """

    def __init__(
        self, kernels: KernelRegistry, demangler: Demangler, pid: int, process: str
    ) -> None:
        self._kernels = kernels
        self._demangler = demangler
        self._pid, self.process = pid, process
        self.full = False
        self.devices: dict[int, str] = {}  # index → UUID
        self._limits: dict[int, Limits | None] = {}
        self._names: list[str] = [OTHER]
        self._places: dict[str, int] = {OTHER: 0}
        self._name_of_id = np.zeros(MAX_NAMES + 1, dtype=np.uint64)
        self._described: dict[int, tuple[str, str, str]] = {0: (OTHER, "", "")}
        self._keys = np.empty(0, dtype=np.uint64)  # ascending
        self._rows: Rows = np.empty(0, dtype=np.int64)
        # Nearly all records are found here at once, by the first bits of their key.
        self._quick_keys = np.zeros(1 << _QUICK_BITS, dtype=np.uint64)
        self._quick_rows = np.zeros(1 << _QUICK_BITS, dtype=np.int64)
        self._other: dict[int, int | None] = {}
        self._transfers: dict[tuple[int, int], int | None] = {}
        self._streams: list[int] = []
        self._stream_bits = np.full(1 << 16, -1, dtype=np.int64)
        random = np.random.default_rng()
        self._mix = random.integers(0, 2**63, 1 + _WORDS, dtype=np.uint64) * 2 + 1

    def take_device(self, device: Device, uuid: str) -> None:
        """A device that records will name."""
        self.devices[device.index] = uuid
        self._limits[device.index] = limits_of(device)

    def take_names(self, names: Sequence[Name]) -> None:
        """Names that records will name; the same may come again under another number."""
        new = list(dict.fromkeys(n.name for n in names if n.name not in self._places))
        for mangled, found in zip(new, self._demangler.demangle(new), strict=True):
            place = self._places[mangled] = len(self._names)
            self._names.append(mangled)
            full = clean(found.full, 16_384)
            self._described[place] = (clean(found.short), full, found.reason)
        for name in names:
            self._name_of_id[name.id] = self._places[name.name]

    def stream_bits(self, streams: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """A word with one bit set for each stream number, shape (n,)."""
        at = np.minimum(streams, len(self._stream_bits) - 1)
        bits = self._stream_bits[at]
        if len(unknown := np.flatnonzero(bits < 0)):
            for number in np.unique(at[unknown]).tolist():
                if len(self._streams) < MOST_STREAMS:
                    self._streams.append(number)
                self._stream_bits[number] = len(self._streams) - 1
            bits = self._stream_bits[at]
        words: NDArray[np.uint64] = np.uint64(1) << bits.astype(np.uint64)
        return words

    def of_kernels(self, records: NDArray[np.void]) -> Rows:
        """The row of each record of KERNEL_DTYPE, shape (n,); −1 where there is none."""
        words = records.view(np.uint64).reshape(len(records), -1)
        keys = self._name_of_id[records["name"]] * self._mix[0]
        for number in range(_WORDS):
            keys += words[:, _FIRST_WORD + number] * self._mix[number + 1]
        quick = (keys >> np.uint64(64 - _QUICK_BITS)).astype(np.int64)
        rows: Rows = self._quick_rows[quick]
        slow = np.flatnonzero(self._quick_keys[quick] != keys)
        if len(slow):
            rows[slow] = self._find(keys[slow], records, slow)
            self._quick_keys[quick[slow]] = keys[slow]
            self._quick_rows[quick[slow]] = rows[slow]
        return rows

    def _find(
        self, keys: NDArray[np.uint64], records: NDArray[np.void], which: NDArray[np.int64]
    ) -> Rows:
        """The rows of some keys, those of `records[which]`; of new ones made from the records."""
        at = np.searchsorted(self._keys, keys)
        known = at < len(self._keys)
        known[known] = self._keys[at[known]] == keys[known]
        if not known.all():
            new, first = np.unique(keys[~known], return_index=True)
            rows, of_new = np.empty(len(new), dtype=np.int64), which[~known][first]
            for number in np.argsort(first).tolist():  # numbered as they came
                rows[number] = self._row(records[of_new[number]])
            places = np.searchsorted(self._keys, new)
            self._keys = np.insert(self._keys, places, new)
            self._rows = np.insert(self._rows, places, rows)
            at = np.searchsorted(self._keys, keys)
        found: Rows = self._rows[at]
        return found

    def of_transfers(self, records: NDArray[np.void]) -> tuple[Rows, NDArray[np.float64]]:
        """The row of each record of TRANSFER_DTYPE, −1 where there is none, and the bytes that pass at
        its level, shape (n,) each."""
        rows = np.full(len(records), -1, dtype=np.int64)
        moved = records["bytes"].astype(np.float64)
        kinds = records["kind"].astype(np.int64)
        which = records["device"].astype(np.int64) << 8 | kinds
        for code in np.unique(which).tolist():
            device, kind = code >> 8, code & 0xFF
            name = TRANSFER_KINDS[kind] if kind < len(TRANSFER_KINDS) else "other"
            if (device, kind) not in self._transfers:
                self._transfers[device, kind] = self._transfer_row(device, name)
            row = self._transfers[device, kind]
            mine = which == code
            rows[mine] = -1 if row is None else row
            moved[mine] *= _LEVELS.get(name, ("", 1))[1]
        return rows, moved

    def _row(self, record: np.void) -> int:
        device = min(int(record["device"]), MAX_DEVICES)
        name, full, reason = self._described[int(self._name_of_id[record["name"]])]
        block = tuple(int(size) for size in record["block"])
        registers = int(record["registers"])
        shared = int(record["static_shared"]) + int(record["dynamic_shared"])
        limits = self._limits.get(device)
        reasons = {"flops": _UNKNOWN_WORK, "bytes": _UNKNOWN_WORK}
        if reason:
            reasons["name"] = reason
        fraction, limiter = None, ""
        if limits is None:
            reasons["occupancy"] = "the limits of this compute capability are not known"
        else:
            threads = block[0] * block[1] * block[2]
            found = occupancy(limits, threads, registers, shared, int(record["shared_executed"]))
            fraction, limiter = found.fraction, found.limiter
            if found.reason:
                reasons["occupancy"] = found.reason
        row = self._add(
            device,
            "kernel",
            name,
            full_name=full,
            grid=tuple(int(size) for size in record["grid"]),
            block=block,
            registers=registers,
            shared_bytes=shared,
            occupancy=fraction,
            occupancy_limiter=limiter,
            reasons=reasons,
        )
        return self._other_row(device) if row is None else row

    def _other_row(self, device: int) -> int:
        """Where launches go that have no row of their own; −1 where there is not even room for that."""
        self.full = True
        if device not in self._other:
            reason = "these are launches of many kernels"
            reasons = dict.fromkeys(("flops", "bytes", "occupancy"), reason)
            self._other[device] = self._add(device, "kernel", OTHER, reasons=reasons, spare=True)
        row = self._other[device]
        return -1 if row is None else row

    def _transfer_row(self, device: int, name: str) -> int | None:
        kind: KernelKind = "memset" if name == "memset" else "memcpy"
        level = _LEVELS.get(name, (None, 1))[0]
        reasons = {"flops": "a copy does none"}
        if level is None:
            reasons["bytes"] = "it is not known which memories they passed"
        return self._add(device, kind, name, level=level, reasons=reasons, spare=True)

    def _add(
        self, device: int, kind: KernelKind, name: str, *, spare: bool = False, **fields: object
    ) -> int | None:
        description = KernelDescription(
            id=0,
            name=name,
            kind=kind,
            device=self.devices.get(device, ""),
            pid=self._pid,
            process=self.process,
        )
        description = msgspec.structs.replace(description, **fields)
        return self._kernels.add_row(description, self._streams, spare=spare)
