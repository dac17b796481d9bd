"""Declares the work of a stretch of code, so that roofmon can draw it: the annotation API.

    with region("softmax", flops=5 * n, bytes=8 * n):
        ...

    @region("decode", level="llc")
    def decode(): ...

One file, standard library only, Python 3.8 or later: it works installed, copied, or put on the path
alone (`roofmon.region` and `region` in one process share one state). A region costs under 1 µs
until a monitor connects and under 5 µs while one listens. The first one starts a sleeping
daemon thread that listens on a Unix socket of this user. What goes over the socket is documented in
roofmon/tracing/protocol.py, whose constants are repeated here.

Mistakes: a description that makes no sense (an unknown level, a name that is no string) raises on the
line that makes the region, with or without a monitor, so it is found the first time that line runs.
Numbers never raise, because they are computed and a long run must not die of one: FLOPs or bytes that
are negative, infinite or no number at all count as unknown, and the monitor says so. Everything else
that fails silences this module, never the program.

Time is wall time from enter to exit. On a GPU that is the launch only (see `on_device`); in a coroutine
or a generator it includes the time suspended.
"""

# pathlib would cost the program 10 ms, attributes in place of globals 0.1 µs a region.
# ruff: noqa: PTH101, PTH102, PTH105, PTH108, PTH116, PTH117, PTH118, PTH119, PTH123, PLW0603

from __future__ import annotations  # for Pythons older than roofmon's own

import atexit
import contextlib
import functools
import itertools
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
from time import perf_counter_ns
from typing import Any, Callable, Iterator, TypeVar  # noqa: UP035

_F = TypeVar("_F", bound=Callable[..., Any])

LEVELS = ("dram", "llc", "l2", "l1", "pcie_h2d", "pcie_d2h")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
UNITS = ("vector", "tensor")

MAGIC, VERSION = 0x4652, 1
HEADER = struct.Struct("<HBBI")
HELLO, DESCRIBE, RECORDS, DROPS = 1, 2, 3, 4
RECORD = struct.Struct("<IHHQQdd")
MAX_DESCRIPTIONS = 4096
MAX_NAME = 256
OTHER = "(other regions)"

_MAX_BUFFERED = 65_536  # records that wait for the sender, 5 MB
_MAX_PENDING = 4 << 20  # bytes that wait for one monitor, half a second of 200,000 records/s
_MAX_MONITORS = 8
_RECORDS_A_MESSAGE = 4096
_FLUSH_MS = 50
_CHECK_MS = 1500  # all that is done while no monitor listens: is the socket still in its place?
_LINGER_MS = 100  # how long the end of the program waits for monitors to take the last records
_NAN = float("nan")

# Descriptions are (name, level, precision, unit); each is in the list before its id is used.
_ids: dict[tuple[str, str, str, str], int] = {}
_latest: dict[str, tuple[int, str, str, str]] = {}  # by name: spares the tuple and its hash, 0.1 µs
_descriptions: list[tuple[int, tuple[str, str, str, str]]] = []
_other = iter([(0, (OTHER, "dram", "fp32", "vector"))])  # goes there too, once, when it is needed
_next_id = itertools.count(1)
_runs_on: dict[str, Any] = {"device": "", "device_name": "", "synchronised": False}
_buffer: list[bytes] = []
_dropped = 0  # records lost because the buffer was full
_recording = False  # a monitor listens; or, in a forked child, the listener has yet to be started
_started = False
_starting, _serving = threading.Lock(), threading.Lock()
_listener: _Listener | None = None
_offset_ns = 0  # from perf_counter_ns, which times, to time_ns, which is sent; taken at each attach
_pack = RECORD.pack


def on_device(device: str, name: str = "", *, synchronised: bool = False) -> None:
    """Says what the regions of this program run on; to be called before the first of them.

    Args:
        device: "cpu", or the UUID of a GPU ("GPU-…"). Unless told, it is the CPU, or a GPU where the
            program has one open.
        name: what the device is called.
        synchronised: whether every region waits for the GPU before it ends. Only then is its wall time
            that of the work; otherwise it is that of the launch, and monitors do not show it.
    """
    _runs_on.update(device=_text(device), device_name=_text(name), synchronised=bool(synchronised))


def region(
    name: str,
    *,
    flops: float | None = None,
    bytes: float | None = None,
    level: str = "dram",
    precision: str = "fp32",
    unit: str = "vector",
) -> _Region:
    """A context manager and decorator that declares the work of the code it encloses.

    Args:
        name: what the row in the table is called; 4,096 descriptions are told apart, the rest are one.
        flops: floating-point operations of one pass (an FMA is two); None where not known.
        bytes: bytes moved by one pass at `level`; None where not known.
        level: dram, llc, l2, l1, pcie_h2d or pcie_d2h.
        precision: fp64, fp32, tf32, fp16, bf16, fp8 or int8: with `unit`, the pipe that does the FLOPs.
        unit: vector or tensor.

    Work known only later can be set inside: `with region("x") as r: ...; r.flops = 2 * nonzeros`.
    Raises TypeError or ValueError when name, level, precision or unit make no sense.
    """
    made = _Region()  # filled from outside: an __init__ would cost 0.4 µs more
    try:
        made.id, known_level, known_precision, known_unit = _latest[name]
    except (KeyError, TypeError):
        made.id = _identify(name, level, precision, unit)
    else:
        if level is not known_level or precision is not known_precision or unit is not known_unit:
            made.id = _identify(name, level, precision, unit)
    made.flops = flops
    made.bytes = bytes
    made.entered = None
    return made


class _Region:
    __slots__ = ("bytes", "entered", "flops", "id")
    id: int
    flops: float | None
    bytes: float | None
    entered: tuple[int, int, list[int], Any] | None

    def __enter__(self) -> _Region:
        if _recording:
            if not _started:
                _start()
            count = _depth.count
            depth = count[0]
            count[0] = depth + 1
            # Linked to the one before, so that an object may be entered again before it is left.
            self.entered = (perf_counter_ns(), depth, count, self.entered)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        global _dropped
        if self.entered is None:
            return
        end = perf_counter_ns()
        start, depth, count, self.entered = self.entered
        count[0] -= 1
        if not _recording:
            return
        if len(_buffer) >= _MAX_BUFFERED:
            _dropped += 1
            return
        start_ns, duration_ns = start + _offset_ns, end - start
        flops, bytes = (self.flops, self.bytes) if self.id else (None, None)  # 0 mixes levels
        flops = _NAN if flops is None else flops
        bytes = _NAN if bytes is None else bytes
        try:
            record = _pack(self.id, depth, 0, start_ns, duration_ns, flops, bytes)
        except Exception:
            work = _number(flops), _number(bytes)
            record = _pack(self.id, min(depth, 0xFFFF), 0, max(start_ns, 0), duration_ns, *work)
        _buffer.append(record)

    def __call__(self, function: _F) -> _F:
        """Makes every call of a function, coroutine function or generator function a region."""
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)  # as inspect reads them
        if flags & 0x200:
            raise TypeError("region cannot decorate an async generator: put `with region` in it")
        wrapper: Any
        if flags & 0x80:

            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)
        elif flags & 0x20:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return (yield from function(*args, **kwargs))
        else:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return function(*args, **kwargs)

        return functools.wraps(function)(wrapper)  # type: ignore[return-value]

    def _again(self) -> _Region:
        """A region of its own for each call: threads and recursion share the decorated function."""
        made = _Region()
        made.id, made.flops, made.bytes, made.entered = self.id, self.flops, self.bytes, None
        return made


class _Depth(threading.local):
    """How many regions a thread is in: a list of one number, so that a coroutine or generator that is
    continued in another thread still lowers the count that it raised."""

    def __init__(self) -> None:
        self.count = [0]


_depth = _Depth()


def _number(value: Any) -> float:
    """`value` as a number, or a negative one where it is none: the monitor refuses those."""
    try:
        return float(value)
    except Exception:
        return -1.0


def _identify(name: str, level: str, precision: str, unit: str) -> int:
    """The id of a description, a new one at first. Takes no lock: a signal handler may come here too."""
    if not isinstance(name, str):
        raise TypeError(f"a region's name is a string, not {name!r}") from None
    checks = (("level", level, LEVELS), ("precision", precision, PRECISIONS), ("unit", unit, UNITS))
    for what, value, known in checks:
        if value not in known:
            raise ValueError(f"region {what} {value!r} is none of {', '.join(known)}") from None
    if not _started:
        _start()
    description = (name, level, precision, unit)
    found = _ids.get(description)
    if found is None:
        if len(_ids) >= MAX_DESCRIPTIONS:
            _descriptions.extend(_other)
            return 0
        new_id = next(_next_id)
        _descriptions.append((new_id, description))
        found = _ids.setdefault(description, new_id)
    _latest[name] = (found, level, precision, unit)
    return found


def _start() -> None:
    """Starts to listen, once in a process."""
    global _started, _recording, _listener
    if not _starting.acquire(blocking=False):
        return
    try:
        if not _started:
            _started, _recording = True, False
            # In a setuid program the user's directories are not to be trusted.
            if os.getuid() == os.geteuid() and os.getgid() == os.getegid():
                _listener = _Listener()
                threading.Thread(target=_listener.serve, name="roofmon", daemon=True).start()
                atexit.register(_stop)
    except Exception:
        listener, _listener = _listener, None
        if listener is not None:
            listener.remove()
    finally:
        _starting.release()


def _stop() -> None:
    """At the end of the program: hands over the last records and removes the socket."""
    global _recording, _listener
    if _serving.acquire(timeout=_LINGER_MS / 1000):
        _recording = False
        listener, _listener = _listener, None
        if listener is not None:
            with contextlib.suppress(Exception):
                listener.finish()
            listener.remove()
        _serving.release()


def _forget() -> None:
    """In a forked child: the sockets are the parent's, the child's first region starts its own."""
    global _starting, _serving, _started, _recording, _listener, _dropped
    listener, _listener = _listener, None
    _starting, _serving = threading.Lock(), threading.Lock()
    _started, _recording, _dropped = False, True, 0
    _buffer.clear()
    _depth.count = [0]  # what encloses the fork is reported by the parent
    if listener is not None:
        listener.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _directories() -> Iterator[str]:
    """Where the socket may be, the best place first: directories of this user alone."""
    private = f"roofmon-{os.getuid()}"
    places = [(os.environ.get("XDG_RUNTIME_DIR"), "roofmon")]
    places += [(os.environ.get("TMPDIR"), private), ("/tmp", private)]
    for base, name in places:
        if not base or not os.path.isabs(base):
            continue
        path = os.path.join(base, name)
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            found = os.lstat(path)
            if (
                found.st_uid == os.getuid()
                and stat.S_ISDIR(found.st_mode)
                and not found.st_mode & 0o077
            ):
                yield path


def _listening(path: str) -> socket.socket:
    """A socket that listens at `path`; it appears there when it does, so that nobody is refused."""
    directory, name = os.path.split(path)
    hidden = os.path.join(directory, "." + name)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(hidden):  # of this process before it called exec
            os.unlink(hidden)
        made.setblocking(False)
        made.bind(hidden)  # fails for a path over 107 bytes
        os.chmod(hidden, 0o600)
        made.listen(_MAX_MONITORS)
        os.replace(hidden, path)
    except OSError:
        made.close()
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise
    return made


def _hello(start_time: int) -> bytes:
    script = (getattr(sys, "argv", None) or [""])[0]
    program = script if script[:1] not in ("", "-") else sys.executable or "python"
    hello = {"kind": "region", "pid": os.getpid(), "start_time": start_time, "clock": "unix_ns"}
    hello["process"] = _text(os.path.basename(program))
    hello["pid_namespace"] = os.stat("/proc/self/ns/pid").st_ino
    hello["record_type"], hello["record_size"] = RECORDS, RECORD.size
    hello.update(_runs_on)
    return json.dumps(hello).encode()


class _Listener:
    """The socket, the thread that serves it, and the monitors that are connected."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            start_time = int(file.read().rpartition(b")")[2].split()[19])
        self.name = f"{os.getpid()}-{start_time}.region.sock"
        self.hello = _hello(start_time)
        self.monitors: list[_Monitor] = []
        self.next_check = 0.0
        self.socket: socket.socket | None = None
        self.path = ""
        self.bind()

    def bind(self) -> None:
        """Listens in the first place where that works; where none does, the next check tries again."""
        for directory in _directories():
            path = os.path.join(directory, self.name)
            with contextlib.suppress(OSError):
                self.socket, self.path = _listening(path), path
                return

    def serve(self) -> None:
        """The thread: sleeps, accepts monitors, hands over records, keeps the socket in its place."""
        global _recording
        try:
            # Signals are the program's: one that it blocks and waits for must not end up here.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                self.sleep(_FLUSH_MS if self.monitors else _CHECK_MS)
                with _serving:
                    if self is not _listener:
                        return
                    self.accept()
                    self.send()
                    if time.monotonic() > self.next_check:
                        self.next_check = time.monotonic() + _CHECK_MS / 1000
                        if not os.path.lexists(self.path):
                            if self.socket is not None:
                                self.socket.close()
                            self.socket = None
                            self.bind()
        except Exception:
            _recording = False
            self.remove()

    def sleep(self, limit_ms: int) -> None:
        """Until a monitor comes, goes or can take more, or for `limit_ms`."""
        poll = select.poll()
        if self.socket is not None:
            poll.register(self.socket, select.POLLIN)
        for monitor in self.monitors:
            poll.register(
                monitor.socket, select.POLLIN | (select.POLLOUT if monitor.pending else 0)
            )
        poll.poll(limit_ms)

    def accept(self) -> None:
        global _recording, _offset_ns
        while self.socket is not None:
            try:
                made, _ = self.socket.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor to spare: the next attempt must not come at once
                time.sleep(_FLUSH_MS / 1000)
                return
            peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", peer)[1] != os.getuid() or len(self.monitors) >= _MAX_MONITORS:
                made.close()
                continue
            self.send()  # what is buffered is for those who were here
            if not self.monitors:
                _offset_ns = time.time_ns() - perf_counter_ns()
            self.monitors.append(_Monitor(made, self.hello))
            _recording = True

    def send(self) -> None:
        """Hands what is buffered to every monitor, while the program's threads go on appending."""
        global _recording
        records = _buffer[:]
        del _buffer[: len(records)]
        for monitor in self.monitors[:]:
            try:
                monitor.send(records)
            except OSError:
                monitor.socket.close()
                self.monitors.remove(monitor)
        if not self.monitors:
            _recording = False

    def finish(self) -> None:
        """Hands over the last records, waiting a moment for slow monitors."""
        until = time.monotonic() + _LINGER_MS / 1000
        self.send()
        while any(monitor.pending for monitor in self.monitors) and time.monotonic() < until:
            self.sleep(5)
            self.send()

    def remove(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        for opened in (self.socket, *(monitor.socket for monitor in self.monitors)):
            if opened is not None:
                opened.close()


class _Monitor:
    """One connected monitor: what it has been told and the bytes that it has yet to take."""

    def __init__(self, connected: socket.socket, hello: bytes) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.pending = bytearray()
        self.described = 0
        self.dropped, self.told, self.before = 0, 0, _dropped
        self.add(HELLO, hello)

    def add(self, kind: int, payload: bytes) -> None:
        self.pending += HEADER.pack(MAGIC, kind, VERSION, len(payload)) + payload

    def send(self, records: list[bytes]) -> None:
        """Adds what is new and sends what fits; raises OSError where the monitor has gone."""
        try:
            if not self.socket.recv(4096):  # a monitor has nothing to say but that it leaves
                raise ConnectionResetError
        except BlockingIOError:
            pass
        # Their ids are in use only after they are in the list, so that these are all that are needed.
        for new_id, (name, level, precision, unit) in _descriptions[self.described :]:
            self.described += 1
            described = {"id": new_id, "name": _text(name), "level": level}
            described.update(precision=precision, unit=unit)
            self.add(DESCRIBE, json.dumps(described).encode())
        for first in range(0, len(records), _RECORDS_A_MESSAGE):
            some = records[first : first + _RECORDS_A_MESSAGE]
            if len(self.pending) < _MAX_PENDING:
                self.add(RECORDS, b"".join(some))
            else:
                self.dropped += len(some)
        drops = self.dropped + _dropped - self.before
        if drops > self.told and len(self.pending) < _MAX_PENDING:
            self.told = drops
            self.add(DROPS, struct.pack("<Q", drops))
        try:
            while self.pending:
                del self.pending[: self.socket.send(self.pending, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass


def _text(name: str) -> str:
    """`name` as it goes over the wire: of bounded length, without what UTF-8 cannot say."""
    return name[:MAX_NAME].encode("utf-8", "replace").decode()


# Imported under two names, this file would listen twice in one place: the first copy serves both.
_this = sys.modules.get(__name__)
if _this is not None:
    _first = sys.modules.setdefault("_roofmon_region", _this)
    region, on_device = _first.region, _first.on_device
