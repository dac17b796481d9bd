"""`roofmon run`, `attach` and `env` as commands, on a CUDA program without a GPU."""

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from command_lines import words_of
from cuda_double import CudaDouble, cuda, cuda_builds

__all__ = ["cuda", "cuda_builds"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]
INJECTION = "CUDA_INJECTION64_PATH"


@pytest.fixture
def runtime(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sockets' directory, of the commands and of this process; a socket's path has to be short."""
    directory = tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp")
    environment["XDG_RUNTIME_DIR"] = directory
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    environment.pop(INJECTION, None)
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Starts `roofmon ARGUMENTS` with pipes, and kills it after the test."""
    made: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "roofmon", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment, **variables},
            )
        )
        return made[-1]

    yield run
    for process in made:
        process.kill()
        process.communicate()


def test_env_prints_lines_that_a_shell_takes(
    roofmon: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    # A place with all that a shell might trip over.
    cache = tmp_path / "it's a $cache; `x`"
    done = roofmon("env", env={"XDG_CACHE_HOME": str(cache)})
    assert (done.returncode, done.stderr) == (0, "")
    script = f'{done.stdout}printf %s "${INJECTION}"'
    for shell in ("sh", "bash"):
        if shutil.which(shell):
            taken = subprocess.run(
                [shell, "-c", script], capture_output=True, text=True, check=True
            )
            library = Path(taken.stdout)
            assert library.is_file()
            assert library.is_relative_to(cache)


def test_env_can_bring_the_annotation_api_alone(roofmon: Run, tmp_path: Path) -> None:
    before = str(tmp_path / "mine")
    done = roofmon(
        "env", "--region", env={"PYTHONPATH": before, "XDG_DATA_HOME": str(tmp_path / "d")}
    )
    (line,) = [line for line in done.stdout.splitlines() if "PYTHONPATH" in line]
    paths = (
        shlex.split(line.removeprefix("export "))[0].removeprefix("PYTHONPATH=").split(os.pathsep)
    )
    assert paths[0] == before
    assert [path.name for path in Path(paths[-1]).iterdir()] == ["region.py"]
    code = "from region import region; import sys; print('roofmon' in sys.modules)"
    command = [sys.executable, "-c", code]
    path = {**os.environ, "PYTHONPATH": paths[-1], "XDG_RUNTIME_DIR": str(tmp_path)}
    result = subprocess.run(command, env=path, capture_output=True, text=True, check=True, cwd="/")
    assert result.stdout == "False\n"


def test_another_tools_library_comes_first(roofmon: Run) -> None:
    for command in (["env"], ["run", "--once", "--", "true"]):
        done = roofmon(*command, env={INJECTION: "/opt/nsight/libToolsInjection64.so"})
        assert done.returncode == 2
        assert "libToolsInjection64.so already" in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "nothing to run"),
        (["run", "--once", "--", "no-such-program-at-all"], "cannot be started"),
        (["attach"], "required: pid"),
        (["attach", "4194305"], "no process 4194305"),
        (["attach", "x"], "invalid int"),
    ],
)
def test_wrong_usage_is_one_line(roofmon: Run, arguments: list[str], says: str) -> None:
    done = roofmon(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_attach_says_what_a_program_without_the_library_needs(roofmon: Run, runtime: Path) -> None:
    for variables, says in (
        ({}, "started without the tracing library, which cannot be added later"),
        ({INJECTION: "/opt/other.so"}, "another tool's library"),
        ({INJECTION: "/x/libroofmon_trace.so"}, "has not loaded it yet"),
    ):
        environment = {k: v for k, v in os.environ.items() if k != INJECTION}
        program = subprocess.Popen(["sleep", "60"], env=environment | variables)
        try:
            done = roofmon("attach", str(program.pid))
        finally:
            program.kill()
            program.wait()
        assert f"sleep ({program.pid})" in done.stderr
        assert says in done.stderr
        if "yet" not in says:
            assert "roofmon run -- COMMAND" in done.stderr


@pytest.mark.slow
def test_run_prints_the_kernels_of_a_program_and_ends_like_it(
    start: Start, cuda: CudaDouble
) -> None:
    variables = cuda.environment(traced=False, duration_ns=5000)
    process = start(
        *("run", "--json", "--device", "cpu", "--", str(cuda.build.program)),
        **{name: variables[name] for name in ("LD_LIBRARY_PATH", "CUDA_DOUBLE")},
    )
    assert process.stdin is not None
    assert process.stderr is not None
    said = process.stderr.readline()
    while "ready" not in (line := process.stderr.readline()):
        assert line, said
    for _ in range(30):  # over the time that attaching may take here
        process.stdin.write("launch _Z3addPf 50\ntransfer 1 4096\ngraph 3 10 2\n")
        process.stdin.flush()
        time.sleep(0.1)
    out, err = process.communicate("exit 9\n", timeout=40)
    assert process.returncode == 9, err
    rows = {row["name"]: row for row in json.loads(out)["kernels"]}
    assert rows["add"]["launches"] >= 50
    assert rows["add"]["full_name"] == "add(float*)"
    assert rows["g"]["launches"] >= 20
    assert rows["g"]["graph_percent"] == 100
    assert rows["memcpy h2d"]["work"]["bytes"][0]["value"] == 4096
    assert "torch.profiler" in said
    assert "launch done" in err  # the program's own output
    path = Path(err.strip().splitlines()[-1].rpartition(" ")[2])
    assert path.read_text().count("launch done") == 30
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
)
def test_run_returns_the_programs_exit_code(roofmon: Run, script: str, code: int) -> None:
    done = roofmon("run", "--once", "--device", "cpu", "--seconds", "1", "--", "sh", "-c", script)
    assert done.returncode == code
    assert done.stdout.startswith("roofmon")


@pytest.mark.slow
def test_run_without_a_terminal_prints_once(roofmon: Run) -> None:
    done = roofmon("run", "--device", "cpu", "--", "sh", "-c", "echo hello; exit 5")
    assert done.returncode == 5
    assert "not a terminal" in done.stderr
    assert "hello" in done.stderr
    assert done.stdout.startswith("roofmon")


@pytest.mark.slow
def test_a_signal_to_run_goes_to_the_program(start: Start) -> None:
    script = "trap 'echo caught; exit 6' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--once", "--device", "cpu", "--", "sh", "-c", script)
    assert process.stderr is not None
    while "ready" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 6
    assert "caught" in err


@pytest.mark.slow
def test_nothing_is_left_where_run_is_killed(start: Start) -> None:
    process = start("run", "--once", "--device", "cpu", "--", "sh", "-c", "echo ready; sleep 60")
    assert process.stderr is not None
    while "ready" not in process.stderr.readline():
        assert process.poll() is None
    end = time.monotonic() + 20
    children: list[psutil.Process] = []
    while not any("sleep" in words_of(child) for child in children):
        assert time.monotonic() < end, children  # the shell says it is ready before it starts sleep
        children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


@pytest.mark.slow
def test_attach_shows_a_program_and_leaves_it_unharmed(start: Start, cuda: CudaDouble) -> None:
    program = cuda.start(duration_ns=5000)
    program.endpoint()
    process = start("attach", str(program.pid), "--json", "--seconds", "3")
    while process.poll() is None:
        program.do("launch gemm 20")
        time.sleep(0.1)
    out, err = process.communicate()
    assert process.returncode == 0, err
    document = json.loads(out)
    assert [row["name"] for row in document["kernels"]] == ["gemm"]
    (traced,) = [p for p in document["traced"] if p["pid"] == program.pid]
    assert (traced["state"], traced["dropped"]) == ("attached", 0)
    assert "torch.profiler" in err
    program.wait_until_detached()
    cuda.check_unharmed(program)
