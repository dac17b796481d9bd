"""The rules that keep the parts apart: who may import what, and what no part may do at all.

Imports are read from the syntax tree (also those inside functions), which names the file at fault, and then
checked once more in a process that really imports, which sees what comes in by way of others.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "roofmon"
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}

DRIVER_PARTS = ("telemetry", "tracing", "counters", "calibration")
GPU_LIBRARIES = {"cupy", "cupti", "pynvml"}
ONLY_IN = {
    "textual": ("roofmon.tui",),
    "pynvml": ("roofmon.telemetry.nvidia",),
    "cupti": ("roofmon.counters",),
    "cupy": ("roofmon.calibration", "roofmon.demo"),
    "plotext": ("roofmon.chart",),
}


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def imports(module: str) -> set[str]:
    """Every module that `module` names in an import, wherever in the file."""
    found = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{FILES[module]}:{node.lineno}: relative import"
            # `from roofmon import x` may name a module, `from roofmon.x import y` a thing in one.
            found |= {node.module or "", *(f"{node.module}.{a.name}" for a in node.names)}
    return found


def calls(module: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(TREES[module]) if isinstance(node, ast.Call))


def loaded_by(code: str) -> set[str]:
    """What a fresh interpreter has imported after `code`, less what it has without it."""
    return modules_after(code) - modules_after("")


def modules_after(code: str) -> set[str]:
    listing = "import json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", f"{code}\n{listing}"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=50
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def import_all(*packages: str) -> str:
    """Code that imports every module of `packages`; those of a GPU only where its library is."""
    names = [name for name in FILES if any(inside(name, package) for package in packages)]
    return (
        "import importlib\n"
        f"for name in {[name for name in names if not name.endswith('__main__')]}:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        f"        if error.name not in {GPU_LIBRARIES}: raise"
    )


def test_the_model_needs_numpy_and_msgspec_alone() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "msgspec"}
    theirs = {"typing_extensions"}  # msgspec takes it where it is installed
    for module in FILES:
        if inside(module, "roofmon.model"):
            for name in imports(module):
                assert name.split(".")[0] in allowed or inside(name, "roofmon.model"), module
    loaded = loaded_by(import_all("roofmon.model"))
    assert {name for name in loaded if inside(name, "roofmon")} == {
        "roofmon",
        *(name for name in FILES if inside(name, "roofmon.model")),
    }
    others = {name.split(".")[0] for name in loaded} - allowed - {"roofmon"} - theirs
    assert {name for name in others if "cython" not in name} == set()


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_stays_where_it_belongs(library: str) -> None:
    for module, path in FILES.items():
        if not any(inside(module, package) for package in ONLY_IN[library]):
            assert not {name for name in imports(module) if inside(name, library)}, path


def test_the_screen_never_touches_what_touches_a_driver() -> None:
    def touches(name: str) -> bool:
        return any(inside(name, f"roofmon.{part}") for part in DRIVER_PARTS)

    for module, path in FILES.items():
        if inside(module, "roofmon.tui"):
            assert not {name for name in imports(module) if touches(name)}, path
    loaded = loaded_by(import_all("roofmon.tui"))
    assert not {name for name in loaded if touches(name)}
    assert not {n for n in loaded if n.split(".")[0] in GPU_LIBRARIES}


def test_without_the_screen_nothing_loads_textual() -> None:
    packages = {".".join(name.split(".")[:2]) for name in FILES} - {"roofmon", "roofmon.tui"}
    loaded = loaded_by(import_all(*packages))
    assert not {name for name in loaded if inside(name, "textual")}


def test_the_screen_can_be_painted_before_numpy_is_there() -> None:
    loaded = loaded_by("import roofmon.tui.run")
    assert not {"numpy", "plotext", "psutil"} & loaded


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["demo", "--help"]])
def test_help_is_instant(arguments: list[str]) -> None:
    loaded = loaded_by(
        "import contextlib, roofmon.cli.main\n"
        f"with contextlib.suppress(SystemExit): roofmon.cli.main.main({arguments!r})"
    )
    assert not {"textual", "numpy", "rich", "plotext", "psutil"} & loaded


def test_the_command_is_there_as_a_module() -> None:
    command = [sys.executable, "-m", "roofmon", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert "demo" in result.stdout


def test_region_works_copied_alone_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    assert {name.split(".")[0] for name in imports("roofmon.region")} <= sys.stdlib_module_names
    (tmp_path / "region.py").write_bytes((PACKAGE / "region.py").read_bytes())
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from region import region\n"
        "with region('softmax', flops=5, bytes=8): pass\n"
        "@region('decode')\n"
        "def decode(): return 42\n"
        "print(decode(), 'roofmon' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert result.stdout == "42 False\n"
    assert result.stderr == ""


def test_files_of_the_screen_stay_small() -> None:
    for module, path in FILES.items():
        if inside(module, "roofmon.tui"):
            limit = 250 if path.name == "app.py" else 300
            assert len(path.read_text().splitlines()) < limit, path


def test_every_file_says_what_it_owns() -> None:
    for module, tree in TREES.items():
        assert ast.get_docstring(tree), f"{FILES[module]} has no docstring"


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell() -> None:
    modules = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    functions = {"eval", "exec", "os.system", "os.popen", "subprocess.getoutput"}
    for module, path in FILES.items():
        assert not {name.split(".")[0] for name in imports(module)} & modules, path
        for call in calls(module):
            place = f"{path}:{call.lineno}"
            assert ast.unparse(call.func) not in functions, place
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert keywords.get("shell", "False") == "False", place
            assert keywords.get("allow_pickle", "False") == "False", place


def test_no_network_port_is_opened() -> None:
    for module, path in FILES.items():
        modules = {"http.server", "socketserver", "asyncio.start_server", "xmlrpc"}
        assert not imports(module) & modules, path
        names = {node.attr for node in ast.walk(TREES[module]) if isinstance(node, ast.Attribute)}
        assert not names & {"AF_INET", "AF_INET6", "create_server", "start_server"}, path


def test_nothing_names_a_place_on_someones_machine() -> None:
    home = re.compile(r"(?<![\w.$}~])/(?:home|Users|root|work|mnt)/\w")
    texts = [ROOT / name for name in ("Makefile", ".ci/run", "pyproject.toml", "README.md")]
    for folder in ("roofmon", "tests", "probes", "themes"):
        texts += (
            p for p in (ROOT / folder).rglob("*") if p.is_file() and p.parent.name[0] not in "_."
        )
    for path in filter(Path.exists, texts):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            assert not home.search(line), f"{path}:{number}"
