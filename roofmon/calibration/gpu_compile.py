"""CUDA C to machine code with NVRTC, once: cubins are kept by architecture, compiler, driver and source.

A cache that cannot be read or written costs one notice and the time to compile anew. Neither a GPU nor a
driver is needed.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roofmon.calibration.gpu_library import library_missing
from roofmon.errors import RoofmonError
from roofmon.model.session import Notice
from roofmon.resources import cache_dir, read_limited, write_private
from roofmon.units import clean

_LIMIT = 16 * 2**20
_DIGEST_BYTES = hashlib.sha256().digest_size
_PLACE = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error")


class Compiler:
    """Compiles for one architecture.

    Args:
        cupy: the module.
        capability: (9, 0) for sm_90.
        driver_version: the driver's CUDA version, part of the key.
        notify: takes the one notice about a cache that does not work.

    Raises RoofmonError where NVRTC is missing.
    """

    def __init__(
        self,
        cupy: Any,
        capability: tuple[int, int],
        driver_version: int,
        notify: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        try:
            from cupy.cuda import nvrtc

            version = nvrtc.getVersion()
            architectures = sorted(int(one) for one in nvrtc.getSupportedArchs())
        except Exception as error:  # ImportError, RuntimeError or NVRTCError, by version
            raise library_missing(cupy, "NVRTC", error) from None
        self._nvrtc = nvrtc
        self._notify = notify
        self._told = False
        wanted = 10 * capability[0] + capability[1]
        self._native = wanted in architectures
        # A GPU newer than this NVRTC: the driver compiles the rest, from PTX of the newest it knows.
        known = wanted if self._native else max((a for a in architectures if a < wanted), default=0)
        if not known:
            raise RoofmonError(
                f"NVRTC {version[0]}.{version[1]} does not know compute capability "
                f"{capability[0]}.{capability[1]}",
                "install a CUDA toolkit (or cupy with [ctk]) that does",
            )
        self._options = (
            "--std=c++17",
            f"--gpu-architecture={'sm' if self._native else 'compute'}_{known}",
            *_include_options(cupy),
        )
        self._key = f"{version}|{driver_version}|{self._options}"

    def image(self, source: str, name: str) -> bytes:
        """The cubin (or PTX) of a source; `name` is what messages call it.

        Raises RoofmonError with the compiler's first error, as `name:line: error: …`.
        """
        digest = hashlib.sha256(f"{self._key}|{source}".encode()).hexdigest()[:32]
        path = cache_dir() / "cubins" / f"{digest}.cubin"
        if image := self._read(path):
            return image
        image = self._compile(source, name)
        try:
            write_private(path, hashlib.sha256(image).digest() + image)
        except OSError as error:
            self._tell(f"compiled probes cannot be kept in {path.parent}: {error.strerror}")
        return image

    def _read(self, path: Path) -> bytes | None:
        try:
            data = read_limited(path, _LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(f"the compiled probe {path} cannot be read: {error.strerror or error}")
            return None
        digest, image = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest == hashlib.sha256(image).digest():
            return image
        # A driver that is handed a broken image may do anything.
        self._tell(f"the compiled probe {path} is damaged")
        return None

    def _compile(self, source: str, name: str) -> bytes:
        nvrtc = self._nvrtc
        program = nvrtc.createProgram(source, name, (), ())
        try:
            nvrtc.compileProgram(program, self._options)
            return bytes(nvrtc.getCUBIN(program) if self._native else nvrtc.getPTX(program))
        except nvrtc.NVRTCError as error:
            log = str(nvrtc.getProgramLog(program))
            raise RoofmonError(first_error(log) or f"{name}: {error}") from None
        finally:
            nvrtc.destroyProgram(program)

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            fix = "they are compiled anew each time; remove the file or give write permission"
            self._notify(Notice(severity="warning", what=clean(what), fix=fix))


def first_error(log: str) -> str:
    """The first error of NVRTC's log as `file:line: error: …`; "" where there is none."""
    for line in log.splitlines():
        if _PLACE.match(line):
            return clean(_PLACE.sub(r"\1:\2: error", line), 300)
    return ""


def _include_options(cupy: Any) -> tuple[str, ...]:
    """For a probe of a user that includes a header of CUDA; ours include none."""
    root = cupy.cuda.get_cuda_path()
    return (f"--include-path={root}/include",) if root and (Path(root) / "include").is_dir() else ()
