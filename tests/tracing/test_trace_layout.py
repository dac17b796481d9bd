"""The library's C structures against the decoder's, and NVIDIA's headers where they are installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from roofmon.tracing import trace_protocol as wire
from roofmon.tracing.inject import build
from roofmon.tracing.protocol import MAGIC, MAX_PAYLOAD, VERSION

INJECT = Path(build.__file__).parent

CONSTANTS = {
    "MAGIC": MAGIC,
    "PROTOCOL_VERSION": VERSION,
    "MESSAGE_HELLO": wire.HELLO,
    "MESSAGE_DROPS": wire.DROPS,
    "MESSAGE_KERNELS": wire.KERNELS,
    "MESSAGE_NAME": wire.NAME,
    "MESSAGE_DEVICE": wire.DEVICE,
    "MESSAGE_TRANSFERS": wire.TRANSFERS,
    "MESSAGE_STATE": wire.STATE,
    "MAX_NAMES": wire.MAX_NAMES,
    "MAX_NAME_BYTES": wire.MAX_NAME_BYTES,
    "MAX_DEVICES": wire.MAX_DEVICES,
    "FLAG_ASYNCHRONOUS": wire.ASYNCHRONOUS,
    **{
        name: wire.TRANSFER_KINDS.index(kind)
        for name, kind in {
            "OTHER": "other",
            "H2D": "memcpy h2d",
            "D2H": "memcpy d2h",
            "D2D": "memcpy d2d",
            "H2H": "memcpy h2h",
            "P2P": "memcpy p2p",
            "MEMSET": "memset",
        }.items()
    },
}

RECORDS = {"kernel_record": wire.KERNEL_DTYPE, "transfer_record": wire.TRANSFER_DTYPE}

CUPTI_FIELDS = {
    "kernel": (
        "CUpti_ActivityKernel",
        {
            "kind": "kind",
            "registers": "registersPerThread",
            "start": "start",
            "end": "end",
            "device": "deviceId",
            "context": "contextId",
            "stream": "streamId",
            "grid": "gridX",
            "block": "blockX",
            "static_shared": "staticSharedMemory",
            "dynamic_shared": "dynamicSharedMemory",
            "correlation": "correlationId",
            "name": "name",
            "shared_executed": "sharedMemoryExecuted",
            "graph": "graphId",
        },
    ),
    "memcpy": ("CUpti_ActivityMemcpy", {"copy": "copyKind", "flags": "flags"}),
    "memcpy2": (
        "CUpti_ActivityMemcpyPtoP",
        {
            "copy": "copyKind",
            "flags": "flags",
            "from_device": "srcDeviceId",
            "to_device": "dstDeviceId",
        },
    ),
    "memset": ("CUpti_ActivityMemset", {"flags": "flags"}),
}
COMMON = {
    "kind": "kind",
    "bytes": "bytes",
    "start": "start",
    "end": "end",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
    "graph": "graphId",
}
CUPTI_CONSTANTS = {
    "OUR_SUCCESS": "CUPTI_SUCCESS",
    "NO_MORE_RECORDS": "CUPTI_ERROR_MAX_LIMIT_REACHED",
    "NOT_INITIALIZED": "CUPTI_ERROR_NOT_INITIALIZED",
    "INVALID_KIND": "CUPTI_ERROR_INVALID_KIND",
    "FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "KIND_MEMCPY": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "KIND_MEMSET": "CUPTI_ACTIVITY_KIND_MEMSET",
    "KIND_DEVICE": "CUPTI_ACTIVITY_KIND_DEVICE",
    "KIND_CONCURRENT_KERNEL": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "KIND_MEMCPY2": "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "ATTRIBUTE_DEVICE_BUFFER_SIZE": "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE",
    "ATTRIBUTE_DEVICE_BUFFER_POOL_LIMIT": "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT",
    "COPY_HTOD": "CUPTI_ACTIVITY_MEMCPY_KIND_HTOD",
    "COPY_DTOH": "CUPTI_ACTIVITY_MEMCPY_KIND_DTOH",
    "COPY_HTOA": "CUPTI_ACTIVITY_MEMCPY_KIND_HTOA",
    "COPY_ATOH": "CUPTI_ACTIVITY_MEMCPY_KIND_ATOH",
    "COPY_DTOD": "CUPTI_ACTIVITY_MEMCPY_KIND_DTOD",
    "COPY_HTOH": "CUPTI_ACTIVITY_MEMCPY_KIND_HTOH",
    "COPY_PTOP": "CUPTI_ACTIVITY_MEMCPY_KIND_PTOP",
    "RECORD_ASYNCHRONOUS": "CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC",
}


def test_records_on_the_wire_are_laid_out_as_the_decoder_reads_them(tmp_path: Path) -> None:
    lines = [f'printf("%d\\n", (int){name});' for name in CONSTANTS]
    for struct, dtype in RECORDS.items():
        lines.append(f'printf("%zu\\n", sizeof(struct {struct}));')
        assert dtype.names is not None
        for field in dtype.names:
            lines.append(f'printf("%zu\\n", offsetof(struct {struct}, {field}));')
            lines.append(f'printf("%zu\\n", sizeof((struct {struct}){{0}}.{field}));')
    printed = run_c(tmp_path, '#include "trace.h"', lines, [INJECT])
    expected = [*CONSTANTS.values()]
    for dtype in RECORDS.values():
        expected.append(dtype.itemsize)
        for field, offset in described(dtype):
            expected += [offset, dtype[field].itemsize]
    assert printed == expected


def test_messages_fit_the_payload_limit() -> None:
    source = (INJECT / "monitors.c").read_text()
    match = re.search(r"RECORDS_A_MESSAGE = (\d+)", source)
    assert match is not None
    assert int(match[1]) * wire.KERNEL_DTYPE.itemsize <= MAX_PAYLOAD
    assert wire.MAX_NAME_BYTES + 4 <= MAX_PAYLOAD


def test_cuptis_records_are_laid_out_as_in_its_headers(tmp_path: Path) -> None:
    """Against every version of the structures; other releases were compared by hand, see cupti_types.h."""
    headers = cupti_headers()
    if headers is None:
        pytest.skip("no CUPTI headers: set CUDA_HOME to a CUDA toolkit")
    text = "".join(path.read_text() for path in headers.glob("cupti_activity*.h"))
    checks = [
        f'_Static_assert({ours} == (int){theirs}, "{theirs}");'
        for ours, theirs in CUPTI_CONSTANTS.items()
    ]
    for ours, (theirs, fields) in CUPTI_FIELDS.items():
        versions = [int(number) for number in re.findall(rf"^}} {theirs}(\d+);", text, re.M)]
        assert max(versions) >= OLDEST[ours]
        for field, name in (fields if ours == "kernel" else COMMON | fields).items():
            for number in (n for n in versions if n >= OLDEST[ours]):
                offset = (
                    f"offsetof(struct cupti_{ours}, {field}) == offsetof({theirs}{number}, {name})"
                )
                checks.append(f'_Static_assert({offset}, "{theirs}{number}.{name}");')
    # Both have an enumerator of this name.
    begin = (
        "#include <cupti.h>\n#define CUPTI_SUCCESS OUR_SUCCESS\n"
        '#include "cupti_types.h"\n#undef CUPTI_SUCCESS'
    )
    assert run_c(tmp_path, begin, [], [INJECT, headers], "\n".join(checks)) == []


OLDEST = {"kernel": 9, "memcpy": 5, "memcpy2": 4, "memset": 4}
"""The structures of CUPTI 12.0."""


def described(dtype: np.dtype) -> list[tuple[str, int]]:
    assert dtype.fields is not None
    return [(name, place[1]) for name, place in dtype.fields.items()]


def cupti_headers() -> Path | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for folder in (Path(home, "include"), Path(home, "extras/CUPTI/include")):
        if (folder / "cupti.h").is_file() and Path(home, "include", "cuda.h").is_file():
            return folder
    return None


def run_c(
    folder: Path, begin: str, lines: list[str], includes: list[Path], checks: str = ""
) -> list[int]:
    """The numbers that a C program prints whose `main` is `lines`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the layout is compared with a C compiler (cc)")
    body = "\n".join(lines)
    source = folder / "layout.c"
    headers = f"{begin}\n#include <stddef.h>\n#include <stdio.h>\n"
    source.write_text(f"{headers}{checks}\nint main(void) {{\n{body}\nreturn 0; }}\n")
    search = [f"-I{include}" for include in includes]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", *search, "-o", folder / "layout", source]
    subprocess.run(command, check=True, timeout=60)
    result = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True)
    return [int(line) for line in result.stdout.split()]
