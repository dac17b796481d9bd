import subprocess
import sys
from pathlib import Path

import pytest

from roofmon.calibration.lock import device_lock

HOLD = (
    "from roofmon.calibration.lock import device_lock\n"
    "with device_lock('cpu-x'):\n"
    "    print('held', flush=True)\n"
    "    input()"
)


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def hold() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_free_lock_is_taken_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with device_lock("cpu-x") as waited:
        assert not waited
        assert [path.name for path in (tmp_path / "roofmon").iterdir()] == ["calibrate-cpu-x.lock"]
    assert list((tmp_path / "roofmon").iterdir()) == []


def test_the_second_waits_and_is_told_for_whom() -> None:
    waiting: list[int | None] = []
    with hold() as holder:

        def told(pid: int | None) -> None:
            waiting.append(pid)
            assert holder.stdin is not None
            holder.stdin.close()

        with device_lock("cpu-x", told) as waited:
            assert waited
            assert waiting == [holder.pid]


def test_other_devices_do_not_wait() -> None:
    with hold() as holder:
        with device_lock("cpu-y") as waited:
            assert not waited
        holder.kill()


def test_a_holder_that_was_killed_does_not_block() -> None:
    with hold() as holder:
        holder.kill()
        holder.wait()
        with device_lock("cpu-x") as waited:
            assert not waited


def test_waiting_can_be_given_up() -> None:
    with hold() as holder:
        with pytest.raises(InterruptedError), device_lock("cpu-x", stop=lambda: True):
            pass
        holder.kill()
