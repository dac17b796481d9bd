"""Demangles and shortens names: one a line comes in on stdin; out goes the short one, a tab, and the name
in full, or nothing after the tab where it is not mangled or cannot be demangled.

It uses `__cxa_demangle` of the C++ runtime that is installed. It says `\\r` once it is ready. Ends when its
stdin closes.
"""

import contextlib
import ctypes
import resource
import sys
from collections.abc import Callable

from roofmon.tracing.names import short_name

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
_MEMORY = 512 * 2**20
_LONGEST = 32 * 1024
"""Longer demangled names are of no use to anyone and would fill the stream."""


def main() -> int:
    """Serve until stdin closes."""
    # Any allocation over it fails, and the demangler says that it failed.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    demangle = _demangler()
    sys.stdout.buffer.write(b"\r")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        name = line.rstrip(b"\n")
        full = demangle(name) if name.startswith(b"_Z") else b""
        short = short_name((full or name).decode(errors="replace")).encode()
        answer = b"\t".join(
            text.replace(b"\n", b" ").replace(b"\t", b" ") for text in (short, full)
        )
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
    return 0


def _demangler() -> Callable[[bytes], bytes]:
    """The runtime's function; one that always fails where there is no runtime."""
    for library in _LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            function = ctypes.CDLL(library).__cxa_demangle
            break
    else:
        return lambda name: b""
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    status = ctypes.c_int()

    def demangle(name: bytes) -> bytes:
        pointer = function(name, None, None, ctypes.byref(status))
        if not pointer:
            return b""
        found = ctypes.string_at(pointer)
        free(pointer)
        return found if len(found) <= _LONGEST else b""

    return demangle


if __name__ == "__main__":
    sys.exit(main())
