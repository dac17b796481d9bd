"""The workload as its own process: it starts, runs and ends cleanly however it is told to."""

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

COMMAND = [sys.executable, "-m", "roofmon.demo", "--backend", "numpy", "--threads", "2"]
SMALL = ["--scale", "0.01", "--verbose"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=30
    )


@pytest.fixture
def running() -> Iterator[subprocess.Popen[str]]:
    """A workload that is in its rounds, with pipes for stdin and stderr."""
    process = subprocess.Popen(
        [*COMMAND, *SMALL, "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "set-up" in line:
            break
    yield process
    process.kill()
    process.wait()
    process.stderr.close()


def rest_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(running: subprocess.Popen[str], number: signal.Signals) -> None:
    running.send_signal(number)
    assert running.wait(timeout=5) == 0
    assert "Traceback" not in rest_of(running)


def test_it_ends_with_its_parent(running: subprocess.Popen[str]) -> None:
    assert running.poll() is None
    assert running.stdin is not None
    running.stdin.close()
    assert running.wait(timeout=5) == 0
    assert "Traceback" not in rest_of(running)


def test_it_runs_every_kernel_within_its_time() -> None:
    done = run(*SMALL, "--seconds", "1.5")
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr.count("launches, best") == 10
    assert "bytes are declared as llc, not dram" in done.stderr  # a hundredth of four caches


def test_a_signal_before_the_rounds_ends_it() -> None:
    process = subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True)
    try:
        process.wait(timeout=0.15)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    assert process.returncode in (0, -signal.SIGTERM)  # the latter if Python was still starting
    assert errors == ""


@pytest.mark.parametrize(
    "arguments",
    [("--seconds", "0"), ("--scale", "nan"), ("--threads", "-1"), ("--backend", "torch"), ("--x",)],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_asking_for_a_gpu_without_cupy() -> None:
    done = run("--backend", "cupy")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "No module named 'cupy'" in done.stderr
    assert "--backend numpy" in done.stderr


def test_too_little_memory() -> None:
    code = (
        "import resource, sys, numpy; from roofmon.demo.__main__ import main;"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (100 << 20),) * 2);"
        "sys.exit(main(['--backend', 'numpy', '--threads', '1', '--llc-bytes', '67108864']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "not enough memory for the working sets" in done.stderr
