"""Reads what the injected library sends from a traced program. The program is not trusted: whatever it
sends, nothing is raised past this module, and memory stays within one message and the names."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from roofmon.tracing import trace_protocol as wire
from roofmon.tracing.endpoints import Endpoint
from roofmon.tracing.reader import Connection, Frames, ProtocolError, read_drops, read_json
from roofmon.tracing.trace_protocol import Device, Event, Hello, Kernels, Name, State, Transfers
from roofmon.units import clean

_LATEST_NS = 1 << 62  # so that differences of times are int64
_MOST_NAMES_BYTES = 32 << 20  # twice what the library keeps
_MAX_TEXT = 512


class TraceDecoder:
    """Bytes, split anywhere, to events.

    What comes out keeps the promises of `trace_protocol`: every record's name and device were given
    before it, times are in order and fit an int64, kinds are known, reserved fields are 0.
    """

    def __init__(self) -> None:
        self._frames = Frames(
            "start the program again, so that it loads the library of this roofmon"
        )
        self._greeted = False
        self._named = np.zeros(wire.MAX_NAMES + 1, dtype=np.bool_)
        self._names_bytes = 0
        self._devices = np.zeros(wire.MAX_DEVICES, dtype=np.bool_)
        self._readers: dict[int, Callable[[bytearray], Event]] = {
            wire.HELLO: _hello,
            wire.DROPS: read_drops,
            wire.KERNELS: self._kernels,
            wire.NAME: self._name,
            wire.DEVICE: self._device,
            wire.TRANSFERS: self._transfers,
            wire.STATE: _state,
        }

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes.

        Raises ProtocolError at the first message that is wrong; the events before it were yielded.
        """
        for kind, payload in self._frames.feed(data):
            if self._greeted == (kind == wire.HELLO):
                raise ProtocolError("it does not begin with one HELLO")
            self._greeted = True
            yield self._event(kind, payload)

    def _event(self, kind: int, payload: bytearray) -> Event:
        read = self._readers.get(kind)
        if read is None:
            raise ProtocolError(f"message type {kind} is not known")
        return read(payload)

    def _name(self, payload: bytearray) -> Name:
        number = int.from_bytes(payload[:4], "little")
        if len(payload) < 4 or number >= len(self._named) or self._named[number]:
            raise ProtocolError(f"name {number} is out of range or given twice")
        self._names_bytes += len(payload)
        if len(payload) - 4 > wire.MAX_NAME_BYTES or self._names_bytes > _MOST_NAMES_BYTES:
            raise ProtocolError("its names are too long")
        self._named[number] = True
        text = clean(payload[4:].decode(errors="replace"), wire.MAX_NAME_BYTES).strip()
        return Name(number, text or "(unnamed)")

    def _device(self, payload: bytearray) -> Device:
        device = read_json(payload, Device)
        if not 0 <= device.index < len(self._devices) or self._devices[device.index]:
            raise ProtocolError(f"device {device.index} is out of range or given twice")
        if any(isinstance(fact, int) and not 0 <= fact < 1 << 31 for fact in _facts(device)):
            raise ProtocolError(f"device {device.index} has an impossible size")
        self._devices[device.index] = True
        return msgspec.structs.replace(device, uuid=_text(device.uuid), name=_text(device.name))

    def _kernels(self, payload: bytearray) -> Kernels:
        records = _records(payload, wire.KERNEL_DTYPE)
        names = records["name"]
        if names.max() >= len(self._named) or not self._named[names].all():
            raise ProtocolError("a kernel has a name that was not given")
        self._check_devices(records["device"])
        records["flags"] = 0
        return Kernels(records)

    def _transfers(self, payload: bytearray) -> Transfers:
        records = _records(payload, wire.TRANSFER_DTYPE)
        self._check_devices(records["device"])
        self._check_devices(records["peer"])
        if records["bytes"].max() >= _LATEST_NS:
            raise ProtocolError("a transfer has an impossible size")
        records["kind"][records["kind"] >= len(wire.TRANSFER_KINDS)] = 0
        records["flags"] &= wire.ASYNCHRONOUS
        records["reserved"] = 0
        return Transfers(records)

    def _check_devices(self, devices: NDArray[np.uint16]) -> None:
        if devices.max() >= len(self._devices) or not self._devices[devices].all():
            raise ProtocolError("a record has a device that was not described")


class TraceConnection(Connection[Event]):
    """A connection to one program that can be traced: making one attaches, closing it detaches."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, TraceDecoder())


def _hello(payload: bytearray) -> Hello:
    hello = read_json(payload, Hello)
    sizes = (wire.KERNELS, wire.KERNEL_DTYPE.itemsize, wire.TRANSFER_DTYPE.itemsize)
    if (hello.record_type, hello.record_size, hello.transfer_size) != sizes:
        raise ProtocolError(
            f"its records have type {hello.record_type} and "
            f"{hello.record_size} and {hello.transfer_size} bytes"
        )
    return msgspec.structs.replace(
        hello, process=_text(hello.process), library=_text(hello.library)
    )


def _state(payload: bytearray) -> State:
    state = read_json(payload, State)
    return msgspec.structs.replace(
        state, reason=_text(state.reason), cupti_path=_text(state.cupti_path)
    )


def _records(payload: bytearray, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    if not payload or len(payload) % dtype.itemsize:
        raise ProtocolError(f"{len(payload)} bytes are not whole records")
    records = np.frombuffer(payload, dtype=dtype)
    start, end = records["start_ns"], records["end_ns"]
    if start.min() == 0 or (end < start).any() or end.max() >= _LATEST_NS:
        raise ProtocolError("a record has an impossible time")
    return records


def _facts(device: Device) -> tuple[object, ...]:
    return (*msgspec.structs.astuple(device), *device.compute_capability)


def _text(value: str) -> str:
    return clean(value, _MAX_TEXT).strip()
