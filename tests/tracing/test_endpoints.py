"""Finding sockets, and clearing away those of the dead and only those."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roofmon.tracing.endpoints import find_endpoints, start_time_of


def leave_socket(path):
    """A socket file without a listener, as a killed program leaves it."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return path


@pytest.fixture
def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def found(directory):
    return [e for e in find_endpoints() if e.path.parent == directory]


def test_start_time_is_that_of_the_process_system():
    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rsplit(")", 1)[1].split()
    assert start_time_of(os.getpid()) == int(fields[19])


def test_start_time_of_the_dead_is_unknown(dead_pid):
    assert start_time_of(dead_pid) is None
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert start_time_of(zombie.pid) is None
    zombie.wait()


def test_living_process_is_found_with_its_name(sockets):
    start_time = start_time_of(os.getpid())
    path = sockets / f"{os.getpid()}-{start_time}.region.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        (endpoint,) = found(sockets)
    assert (endpoint.path, endpoint.pid, endpoint.start_time) == (path, os.getpid(), start_time)
    assert endpoint.process == Path("/proc/self/comm").read_text().strip()
    assert endpoint.kind == "region"


def test_socket_that_a_living_process_no_longer_has_is_not_found(sockets):
    path = leave_socket(sockets / f"{os.getpid()}-{start_time_of(os.getpid())}.region.sock")
    assert found(sockets) == []
    assert path.exists()


def test_looking_for_programs_connects_to_none(sockets, dead_pid):
    path = sockets / f"{dead_pid}-5.trace.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        (endpoint,) = [e for e in find_endpoints("trace") if e.path == path]
        assert endpoint.kind == "trace"
        assert found(sockets) == []
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_control_characters_of_a_process_name_are_stripped(start):
    program = start(
        r"""
from region import region
with open("/proc/self/comm", "w") as file: file.write("a\x1b[2Jb")
region("x")
print("ready", flush=True); input()
"""
    )
    program.read()
    assert program.endpoint().process == "a [2Jb"


def test_sockets_of_the_dead_and_of_reused_numbers_are_removed(sockets, dead_pid):
    dead = leave_socket(sockets / f"{dead_pid}-5.region.sock")
    reused = leave_socket(sockets / f"{os.getpid()}-5.region.sock")
    assert found(sockets) == []
    assert not dead.exists()
    assert not reused.exists()


def test_process_of_another_namespace_that_answers_is_kept(sockets, dead_pid):
    path = sockets / f"{dead_pid}-5.region.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        (endpoint,) = found(sockets)
        assert (endpoint.pid, endpoint.process) == (dead_pid, "")
    assert found(sockets) == []
    assert not path.exists()


@pytest.mark.parametrize(
    "name",
    [
        "1.region.sock",
        "0-5.region.sock",
        "1-5.region.sock.bak",
        "1-5.trace.sock",
        "-1-5.region.sock",
    ],
)
def test_other_names_are_left_alone(sockets, name):
    path = leave_socket(sockets / name)
    assert found(sockets) == []
    assert path.exists()


def test_what_is_no_socket_is_left_alone(sockets, dead_pid, tmp_path):
    file = sockets / f"{dead_pid}-5.region.sock"
    file.touch()
    link = sockets / f"{dead_pid}-6.region.sock"
    link.symlink_to(leave_socket(sockets / "target"))
    assert found(sockets) == []
    assert file.exists()
    assert link.is_symlink()


def test_directory_that_others_may_enter_is_not_searched(sockets, dead_pid):
    path = leave_socket(sockets / f"{dead_pid}-5.region.sock")
    sockets.chmod(0o755)
    assert found(sockets) == []
    assert path.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_is_not_touched(sockets, dead_pid):
    path = leave_socket(sockets / f"{dead_pid}-5.region.sock")
    os.chown(path, 65534, -1)
    assert found(sockets) == []
    os.chown(path, 0, -1)
    os.chown(sockets, 65534, -1)
    assert found(sockets) == []
    os.chown(sockets, 0, -1)
    assert path.exists()
    assert found(sockets) == []
    assert not path.exists()
