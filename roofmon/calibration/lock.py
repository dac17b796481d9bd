"""One calibration of a device at a time: two at once would measure each other."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from roofmon.resources import runtime_dir

_RETRY_S = 0.1


@contextlib.contextmanager
def device_lock(
    device: str,
    waiting: Callable[[int | None], None] = lambda pid: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[bool]:
    """Hold the lock of a device. Yields whether it had to be waited for.

    Args:
        device: the device's UUID.
        waiting: called once with the process that holds the lock (None where it is not known).
        stop: asked while waiting; when true, raises InterruptedError.

    Raises: InterruptedError, OSError, RoofmonError (no private runtime directory).
    """
    path = runtime_dir() / f"calibrate-{device}.lock"
    waited = False
    while (descriptor := _try_lock(path)) is None:
        if not waited:
            waited = True
            waiting(_holder(path))
        if stop():
            raise InterruptedError("asked to stop")
        time.sleep(_RETRY_S)
    try:
        yield waited
    finally:
        path.unlink(missing_ok=True)  # while it is still locked: see _try_lock
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """A descriptor of the locked file with our number in it; None while another process holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have removed the file between our open and our lock: then this is a lock
        # on a file that nobody else will find.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _holder(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_bytes()[:16])
    return None
