"""The annotation API by itself, in this process and as a lone file."""

import ast
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import roofmon.region as module
from roofmon.region import region
from roofmon.tracing import protocol

SOURCE = Path(module.__file__)


@pytest.fixture(scope="module", autouse=True)
def _listener_of_this_process():
    """The first region makes this process listen: in a place of its own, and no longer than these tests."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(dir="/tmp") as directory,
    ):
        patch.setenv("XDG_RUNTIME_DIR", directory)
        yield
        module._stop()


def test_constants_agree_with_the_protocol():
    for name in ("MAGIC", "VERSION", "HELLO", "DESCRIBE", "RECORDS", "DROPS"):
        assert getattr(module, name) == getattr(protocol, name)
    for name in ("MAX_DESCRIPTIONS", "MAX_NAME", "OTHER"):
        assert getattr(module, name) == getattr(protocol, name)
    assert module.HEADER.format == protocol.HEADER.format
    assert protocol.Level.__args__ == module.LEVELS
    assert protocol.Precision.__args__ == module.PRECISIONS
    assert protocol.Unit.__args__ == module.UNITS


def test_record_layout_agrees_with_the_protocol():
    packed = module.RECORD.pack(7, 2, 1, 10**18, 5, 1.5, 2.5)
    (record,) = np.frombuffer(packed, dtype=protocol.RECORD_DTYPE)
    assert record.item() == (7, 2, 1, 10**18, 5, 1.5, 2.5)


def test_imports_the_standard_library_only():
    imported = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported <= sys.stdlib_module_names | {"__future__"}


def test_parses_as_python_3_8():
    ast.parse(SOURCE.read_text(), feature_version=(3, 8))


def test_importing_it_starts_nothing(tmp_path):
    shutil.copy(SOURCE, tmp_path)
    script = (
        "import region, threading, os; print(threading.active_count(), os.listdir('/proc/self/fd'))"
    )
    with_region = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    plain = script.replace("import region, ", "import ")
    without = subprocess.run(
        [sys.executable, "-c", plain], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert with_region.stdout == without.stdout
    assert with_region.stdout.startswith("1 ")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"name": 5}, TypeError, "a region's name is a string, not 5"),
        ({"name": ["a"]}, TypeError, "a region's name is a string"),
        ({"name": None}, TypeError, "a region's name is a string, not None"),
        ({"name": "a", "level": "ram"}, ValueError, "level 'ram' is none of dram, llc, l2, l1"),
        ({"name": "a", "precision": "fp4"}, ValueError, "precision 'fp4' is none of fp64"),
        ({"name": "a", "unit": ["vector"]}, ValueError, "is none of vector, tensor"),
    ],
)
def test_description_without_sense_raises_every_time(arguments, error, says):
    region("a")  # known descriptions are looked up another way
    for _ in range(2):
        with pytest.raises(error, match=says) as raised:
            region(**arguments)
        assert raised.value.__suppress_context__


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), "many", object()])
def test_numbers_never_raise(number):
    with region("a", flops=number) as r:
        r.bytes = number


def test_same_name_with_another_description_is_another_region():
    ids = {
        region("same").id,
        region("same", level="llc").id,
        region("same", precision="bf16", unit="tensor").id,
        region("same", unit="tensor").id,
    }
    assert len(ids) == 4
    assert region("same").id in ids
    assert region("same", level="".join(["l", "lc"])).id in ids


def test_values_and_exceptions_pass_through():
    @region("add")
    def add(a, *, b=1):
        """Adds."""
        return a + b

    assert add(1, b=2) == 3
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    with pytest.raises(ZeroDivisionError), region("divide"):
        1 / 0  # noqa: B018


def test_async_generator_is_refused_at_decoration():
    async def numbers():
        yield 1

    with pytest.raises(TypeError, match="async generator"):
        region("numbers")(numbers)
