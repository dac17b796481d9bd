"""Compiles the injected library with the system's C compiler, once, into the cache directory.

The result depends on the sources, on this version of roofmon, and on machine and C library: a home that is
shared between different hosts must not give one the library of another.
"""

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from roofmon import __version__
from roofmon.errors import RoofmonError
from roofmon.resources import cache_dir

_SOURCES = Path(__file__).parent
_COMPILERS = ("cc", "gcc", "clang")
_TIME_LIMIT_S = 120
_NAME = "libroofmon_trace.so"
FLAGS = (
    "-std=c11",
    "-O2",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-Wl,-z,nodelete",  # the thread must not lose its code to a dlclose
    "-Wl,-z,now",
    f'-DROOFMON_VERSION="{__version__}"',
)


def sources() -> list[Path]:
    """The C files."""
    return sorted(_SOURCES.glob("*.c"))


def library_path() -> Path:
    """The compiled library, an absolute path; compiles it (a second or two) where it is missing.

    Raises RoofmonError where there is no compiler, or it fails.
    """
    folder = cache_dir().absolute() / "trace"
    library = folder / _key() / _NAME
    if not _is_ours(library):
        try:
            _compile_to(library)
        except OSError as error:
            raise RoofmonError(
                f"the tracing library cannot be written to {folder}: {error.strerror}",
                "set XDG_CACHE_HOME to a directory of yours",
            ) from None
    return library


def _key() -> str:
    files = [*sources(), *sorted(_SOURCES.glob("*.h"))]
    parts = [
        *FLAGS,
        platform.machine(),
        *platform.libc_ver(),
        *(file.read_text() for file in files),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _is_ours(library: Path) -> bool:
    """Whether it is there, and nobody else could have written it: programs will run it."""
    try:
        found = library.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _compile_to(library: Path) -> None:
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise RoofmonError(
            "tracing needs a C compiler once, and none of cc, gcc and clang is on the PATH",
            "install one (apt install gcc, dnf install gcc) or load the module that has it",
        )
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder, _NAME)
        command = [compiler, *FLAGS, "-o", str(made), *map(str, sources()), "-ldl"]
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RoofmonError(f"{compiler} did not finish in {_TIME_LIMIT_S} s") from None
        if result.returncode != 0 or not made.is_file():
            lines = [line for line in result.stderr.splitlines() if "error" in line] or [""]
            raise RoofmonError(
                f"{compiler} cannot compile the tracing library: {lines[0].strip()}",
                "install a C11 compiler with the C library's headers (apt install gcc libc6-dev)",
            )
        made.chmod(0o700)
        made.replace(library)
