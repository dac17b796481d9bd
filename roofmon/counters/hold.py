"""Who of this user holds the counters of a GPU: a locked file with the process id in it.

The lock goes with the process, however it ends; the file stays, so that two never lock two files.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from roofmon.resources import runtime_dir

_PREFIX, _SUFFIX = "counters-", ".lock"


class Hold:
    """The lock of one GPU, taken and given back any number of times."""

    def __init__(self, uuid: str) -> None:
        self._path = runtime_dir() / f"{_PREFIX}{uuid}{_SUFFIX}"
        self._descriptor: int | None = None

    def take(self) -> int | None:
        """Take it; the process that has it where that is another one (0 where it does not say)."""
        if self._descriptor is not None:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _pid_in(descriptor)
            os.close(descriptor)
            return holder
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._descriptor = descriptor
        return None

    def give_back(self) -> None:
        """Give it back, where we have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holders() -> dict[str, int]:
    """GPU → the process of this user that holds its counters."""
    found = {}
    for path in sorted(runtime_dir().glob(f"{_PREFIX}*{_SUFFIX}")):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)] = _pid_in(descriptor)
            finally:
                os.close(descriptor)
    return found


def is_counters_worker(pid: int) -> bool:
    """Whether a process is a worker of ours, and so may be sent its signal."""
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"roofmon.counters.worker" in words


def _pid_in(descriptor: int) -> int:
    try:
        return int(os.pread(descriptor, 16, 0))
    except ValueError:
        return 0
