"""A program that can be traced, without a GPU: speaks the trace protocol over a real socket.

    traced_program.py '{"name": "train.py", "seconds": 5, "kernels": [["_Z4axpyPf", 20, 5]], …}'

While a monitor is connected it plays what a GPU would have done since it connected: `kernels`, one after
the other, as [name, µs, µs idle before it, stream (7), graph (0), grid (64,1,1), block (128,1,1), registers
(32), shared (0)], and `copies` beside them, as [kind, µs, µs before it, bytes]. `state` is what it says it
is once it has started, with a `reason`, `namespace` the PID namespace that it says it is in, `unseen_ms`
how long CUDA ran before it was traced. Records come `buffer_s` at a time, as CUPTI's buffers fill. With
`regions` it also has a region around 20 ms at a time, which it declares to wait for the GPU. It prints
what it notices: `listening`, `attached`, `detached`.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np

from roofmon.resources import runtime_dir
from roofmon.tracing import trace_protocol as wire
from roofmon.tracing.protocol import HEADER, MAGIC, VERSION

UUID = "GPU-5b1cafe0-0000-0000-0000-000000000000"
STEP_S = 0.05


def message(kind: int, payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, kind, VERSION, len(payload)) + payload


def told(message_type: int, /, **fields: object) -> bytes:
    return message(message_type, json.dumps(fields).encode())


def start_time() -> int:
    return int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])


def greeting(options: dict) -> bytes:
    hello = told(
        wire.HELLO,
        kind="trace",
        pid=os.getpid(),
        start_time=start_time(),
        process=options["name"],
        pid_namespace=options.get("namespace") or Path("/proc/self/ns/pid").stat().st_ino,
        clock="unix_ns",
        record_type=wire.KERNELS,
        record_size=wire.KERNEL_DTYPE.itemsize,
        transfer_size=wire.TRANSFER_DTYPE.itemsize,
        library="0",
    )
    device = told(
        wire.DEVICE,
        index=0,
        uuid=UUID,
        name="NVIDIA H200",
        compute_capability=[9, 0],
        sm_count=132,
    )
    starting = told(wire.STATE, state="starting")
    now = time.time_ns()
    last = told(
        wire.STATE,
        state=options.get("state", "tracing"),
        reason=options.get("reason", ""),
        cupti_version=130000,
        cupti_path="/x.so",
        loaded_ns=now - int(options.get("unseen_ms", 0) * 1e6),
        since_ns=now,
    )
    return hello + starting + device + last


class Work:
    """What the GPU does: rounds of kernels and copies, from the moment it is asked for."""

    def __init__(self, options: dict) -> None:
        self.names: list[str] = []
        round_ns, rows = 0, []
        for name, us, idle_us, *rest in options.get("kernels", []):
            default = [7, 0, (64, 1, 1), (128, 1, 1), 32, 0]
            stream, graph, grid, block, registers, shared = rest + default[len(rest) :]
            if name not in self.names:
                self.names.append(name)
            round_ns += int(idle_us * 1e3)
            row = np.zeros(1, dtype=wire.KERNEL_DTYPE)
            row["start_ns"], row["end_ns"] = round_ns, round_ns + int(us * 1e3)
            row["name"], row["stream"], row["graph"] = self.names.index(name) + 1, stream, graph
            row["grid"], row["block"], row["registers"] = grid, block, registers
            row["static_shared"] = shared
            rows.append(row)
            round_ns += int(us * 1e3)
        self.round_ns = max(round_ns, 1000)
        self.kernels = np.concatenate(rows) if rows else np.zeros(0, wire.KERNEL_DTYPE)
        self.copies = np.zeros(len(options.get("copies", [])), dtype=wire.TRANSFER_DTYPE)
        for row, (kind, us, before_us, size) in zip(
            self.copies, options.get("copies", []), strict=True
        ):
            row["start_ns"], row["end_ns"] = before_us * 1e3, (before_us + us) * 1e3
            row["kind"], row["bytes"], row["stream"] = wire.TRANSFER_KINDS.index(kind), size, 8
        self.done_ns = 0

    def named(self) -> bytes:
        return b"".join(
            message(wire.NAME, struct.pack("<I", number) + name.encode())
            for number, name in enumerate(self.names, start=1)
        )

    def since(self, now_ns: int) -> tuple[bytes, int, int]:
        """The messages of the rounds that were finished by now, and from when until when they went."""
        begin = self.done_ns
        rounds = (now_ns - begin) // self.round_ns
        self.done_ns += rounds * self.round_ns
        starts = begin + self.round_ns * np.arange(rounds)
        out = b""
        for kind, one in ((wire.KERNELS, self.kernels), (wire.TRANSFERS, self.copies)):
            records = np.tile(one, rounds)
            for field in ("start_ns", "end_ns"):
                records[field] += np.repeat(starts, len(one)).astype(np.uint64)
            most = (1 << 20) // one.itemsize
            for at in range(0, len(records), most):
                out += message(kind, records[at : at + most].tobytes())
        return out, begin, self.done_ns


def _has_left(monitor: socket.socket) -> bool:
    try:
        return not monitor.recv(64)
    except ConnectionResetError:  # it left with records unread
        return True


def main() -> None:
    options = json.loads(sys.argv[1])
    work = Work(options)
    path = runtime_dir() / f"{os.getpid()}-{start_time()}.trace.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(4)
    print("listening", flush=True)
    end = time.monotonic() + options.get("seconds", 3)
    monitor: socket.socket | None = None
    waiting = b""
    region = None
    if options.get("regions"):
        sys.argv[0] = options["name"]
        import roofmon.region as regions

        regions.on_device(UUID, "NVIDIA H200", synchronised=True)
        region = regions.region
    while time.monotonic() < end:
        readable, _, _ = select.select([listener, *([monitor] if monitor else [])], [], [], STEP_S)
        if monitor in readable and _has_left(monitor):
            print("detached", flush=True)
            monitor, waiting = None, b""
        if listener in readable:
            monitor, _ = listener.accept()
            monitor.setblocking(False)
            waiting = greeting(options) + work.named()
            work.done_ns = time.time_ns()
            print("attached", flush=True)
        if region is not None:
            with region("step"):
                time.sleep(0.02)
        if monitor is None:
            continue
        now = time.time_ns()
        filled = now - work.done_ns >= 1e9 * options.get("buffer_s", 0.0)
        if options.get("state", "tracing") == "tracing" and filled:
            waiting += work.since(now)[0]
        try:
            while waiting:
                waiting = waiting[monitor.send(waiting) :]
        except BlockingIOError:
            pass
        except OSError:
            print("detached", flush=True)
            monitor, waiting = None, b""
    path.unlink()


if __name__ == "__main__":
    main()
