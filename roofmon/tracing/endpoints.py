"""Finds the sockets of this user's programs, and clears away those of programs that died.

A socket is `PID-STARTTIME.region.sock` (annotations) or `PID-STARTTIME.trace.sock` (the injected library):
the start time tells a process from a later one with the same number. It lies in `$XDG_RUNTIME_DIR/roofmon`,
or in `roofmon-UID` under the temporary directory where that is missing (batch jobs, containers, logout
without linger). Program and monitor may disagree about those variables, so the kernel's list of sockets is
asked as well. Nothing is connected to here: to a traced program, a connection is an attach.
"""

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from roofmon.units import clean

Kind = Literal["region", "trace"]

_NAMES: dict[Kind, re.Pattern[str]] = {
    kind: re.compile(rf"([1-9]\d{{0,9}})-(\d{{1,20}})\.{kind}\.sock", re.ASCII)
    for kind in ("region", "trace")
}
_UNIX_SOCKETS = Path("/proc/net/unix")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A socket on which a program listens: one that is annotated, or can be traced.

    `pid` and `start_time` (clock ticks after boot) are as the program sees them. `process` is its name;
    empty where no such process exists here, as for a container that shares the directory.
    """

    path: Path
    pid: int
    start_time: int
    process: str
    kind: Kind = "region"


def find_endpoints(kind: Kind = "region") -> list[Endpoint]:
    """The programs that can be connected to, by PID. Removes sockets that dead programs left behind."""
    found = [
        endpoint
        for directory in _runtime_directories()
        for path in _entries(directory)
        if (endpoint := _endpoint(path, kind)) is not None
    ]
    return sorted(found, key=lambda endpoint: (endpoint.pid, endpoint.start_time))


def _runtime_directories() -> list[Path]:
    """Where sockets may be: existing directories that belong to this user and that nobody else enters."""
    uid = os.getuid()
    shared = [os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"]
    temporary = [os.environ.get("TMPDIR"), "/tmp"]
    places = [Path(base, "roofmon") for base in shared if base]
    places += [Path(base, f"roofmon-{uid}") for base in temporary if base]
    places += _directories_of_listeners()
    return [place for place in dict.fromkeys(places) if place.is_absolute() and _is_private(place)]


def _directories_of_listeners() -> Iterator[Path]:
    try:
        lines = _UNIX_SOCKETS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        if line.endswith((".region.sock", ".trace.sock")):
            path = Path(line.split(maxsplit=7)[-1])
            if path.parent.name in ("roofmon", f"roofmon-{os.getuid()}"):
                yield path.parent


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _endpoint(path: Path, kind: Kind) -> Endpoint | None:
    match = _NAMES[kind].fullmatch(path.name)
    try:
        found = path.lstat()
    except OSError:
        return None
    if match is None or not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        return None
    pid, start_time = int(match[1]), int(match[2])
    alive = start_time_of(pid) == start_time
    # A program in another PID namespace looks dead from here, but its socket is bound. One that called exec
    # is alive, but its socket is not bound: it is not there, and a new one may be about to take its place.
    if not _is_bound(path):
        if not alive:
            path.unlink(missing_ok=True)
        return None
    process = _process_name(pid) if alive else ""
    return Endpoint(path=path, pid=pid, start_time=start_time, process=process, kind=kind)


def start_time_of(pid: int) -> int | None:
    """When process `pid` started, in clock ticks after boot; None where it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # The name before it may hold anything; fields[0] is the state, field 3 of proc(5).
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else int(fields[19])


def _process_name(pid: int) -> str:
    try:
        return clean(Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n"))
    except OSError:
        return ""


def _is_bound(path: Path) -> bool:
    """Whether a process has this socket open. Asks with the wrong type of socket, which the kernel refuses
    without telling the process: "connection refused" where there is none, "wrong type" where there is.
    (gVisor refuses datagram sockets either way.)"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True
