"""What programs do with processes, descriptors and sockets, and what hostile peers do: the program prints
and returns what it does without roofmon, and other monitors get their records."""

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_double import CudaBuild, CudaDouble, TraceMonitor, endpoint_of, wait_for

from roofmon.tracing.endpoints import find_endpoints

ENDS = {"exit 3": 3, "_exit 4": 4, "abort": -signal.SIGABRT, "kill": -signal.SIGKILL}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("attached", [True, False])
def test_program_ends_as_it_would_without_roofmon(
    cuda: CudaDouble, end: str, attached: bool
) -> None:
    program = cuda.start()
    endpoint = program.endpoint()
    monitor = program.attach() if attached else None
    program.do("launch a 100")
    if monitor is not None:
        monitor.wait_for_count(100)
    cuda.check_unharmed(program, "launch b 10", end)
    assert program.process.returncode == ENDS[end]
    if monitor is not None:
        monitor.wait_for_end()
        assert monitor.count == (110 if end.startswith("exit") else 100 + monitor.launches("b"))
    # Those that ran no handlers left their socket; whoever looks for programs removes it.
    assert endpoint not in find_endpoints("trace")
    assert not endpoint.path.exists()


@pytest.mark.parametrize("how", ["exit", "_exit", "exec"])
def test_forked_child_leaves_the_parents_monitors_alone(cuda: CudaDouble, how: str) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10", f"fork {how}", "launch b 20")
    monitor.wait_for_count(30)
    assert monitor.launches("b") == 20
    assert program.endpoint().path.exists()
    cuda.check_unharmed(program, f"fork {how}", "exit 1")
    monitor.wait_for_end()


def test_end_of_the_parent_is_seen_while_a_child_lives(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    (child,) = program.do("fork sleep")
    try:
        program.finish("exit 1")
        monitor.wait_for_end()
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_exec_replaces_the_socket(cuda: CudaDouble) -> None:
    program = cuda.start()
    endpoint = program.endpoint()
    monitor = program.attach()
    program.do("launch before 10")
    monitor.wait_for_count(10)
    program.do("exec")
    monitor.wait_for_end()
    program.wait("ready")
    assert program.endpoint().path == endpoint.path
    again = program.attach()
    program.do("launch after 20")
    again.wait_for_count(20)
    cuda.check_unharmed(program, "exit 2")


@pytest.mark.slow
def test_descriptors_that_the_program_closes_are_not_used_for_another_thing(
    cuda: CudaDouble,
) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10")
    monitor.wait_for_count(10)
    assert program.do("close all", "launch b 1000") == ["strange descriptors 0"]
    wait_for(lambda: monitor.connection.receive() is not None and monitor.connection.closed)
    again = program.attach()  # it listens again
    program.do("launch c 10")
    again.wait(lambda: again.launches("c") == 10)
    cuda.check_unharmed(program)


def test_program_keeps_the_numbers_of_its_descriptors(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    numbers = [int(link.name) for link in Path(f"/proc/{program.pid}/fd").iterdir()]
    assert sorted(number for number in numbers if number < 200) == [0, 1, 2]
    assert len(numbers) == 5  # the socket and the monitor
    monitor.detach()


@pytest.mark.slow
def test_socket_that_vanished_is_put_back(cuda: CudaDouble) -> None:
    program = cuda.start()
    endpoint = program.endpoint()
    shutil.rmtree(endpoint.path.parent)
    assert program.endpoint().path == endpoint.path
    monitor = program.attach()
    program.do("launch a 10")
    monitor.wait_for_count(10)


def test_socket_is_the_users_alone(cuda: CudaDouble) -> None:
    path = cuda.start().endpoint().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("spoiled", ["open to others", "a link", "a file"])
def test_unsafe_directory_is_passed_over(cuda: CudaDouble, runtime: Path, spoiled: str) -> None:
    directory = runtime / "roofmon"
    if spoiled == "open to others":
        directory.mkdir()
        directory.chmod(0o755)
    elif spoiled == "a link":
        (runtime / "target").mkdir(mode=0o700)
        directory.symlink_to(runtime / "target")
    else:
        directory.touch()
    program = cuda.start()
    assert program.endpoint().path.parent == runtime / f"roofmon-{os.getuid()}"
    cuda.check_unharmed(program)


def test_program_without_a_place_for_the_socket_runs_on(cuda: CudaDouble, runtime: Path) -> None:
    long = runtime / ("x" * 90)
    long.mkdir()
    (runtime / f"roofmon-{os.getuid()}").touch()
    program = cuda.start(XDG_RUNTIME_DIR=str(long), TMPDIR=str(runtime))
    cuda.check_unharmed(program, "launch a 10", "exit 9")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program of another user")
def test_library_ignores_itself_in_set_user_id_programs(cuda: CudaDouble, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(cuda.build.program, program)
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    for folder in (cuda.build.folder, *cuda.build.folder.parents[:-2]):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o055)
    started = cuda.start(program=program)
    if Path(f"/proc/{started.pid}/status").read_text().split("Uid:\t0\t")[1].startswith("0"):
        pytest.skip("set-user-id has no effect on this file system")
    assert "libroofmon_trace" in Path(f"/proc/{started.pid}/maps").read_text()
    assert len(list(Path(f"/proc/{started.pid}/task").iterdir())) == 1
    assert started.finish("launch a 10", "exit 6")[0] == 6
    assert endpoint_of(started.pid) is None


HOSTILE = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n" * 1000,
    "one byte": b"x",
    "a message": b"\x52\x46\x01\x01\x02\x00\x00\x00{}",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_peers_that_speak_are_let_go(cuda: CudaDouble, what: str) -> None:
    program = cuda.start()
    monitor = program.attach()
    with connect(program.endpoint().path) as peer:
        peer.sendall(HOSTILE[what])
        wait_for(lambda: is_closed(peer))
    program.do("launch a 10")
    monitor.wait_for_count(10)
    cuda.check_unharmed(program)


def test_no_more_than_eight_are_served(cuda: CudaDouble) -> None:
    program = cuda.start()
    path = program.endpoint().path
    peers = []
    for _ in range(100):
        peers.append(connect(path))
        time.sleep(0.001)
    wait_for(lambda: sum(not is_closed(peer) for peer in peers) == 8)
    program.do("launch a 1000")
    for peer in peers:
        peer.close()
    program.wait_until_detached()
    monitor = program.attach()
    program.do("launch b 10")
    monitor.wait_for_count(10)
    cuda.check_unharmed(program)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can speak as another user")
def test_other_users_are_turned_away(cuda: CudaDouble, runtime: Path) -> None:
    program = cuda.start()
    path = program.endpoint().path
    for opened in (path, path.parent, runtime):  # as if someone had let them in
        opened.chmod(0o777)
    script = (
        "import os, socket, sys; os.setuid(65534); peer = socket.socket(socket.AF_UNIX);"
        "peer.connect(sys.argv[1]); print(len(peer.recv(100)))"
    )
    command = [sys.executable, "-S", "-c", script, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (result.stdout, result.stderr) == ("0\n", "")
    assert "libcupti" not in Path(f"/proc/{program.pid}/maps").read_text()
    cuda.check_unharmed(program)


def test_probing_connections_start_no_tracing_that_stays(cuda: CudaDouble) -> None:
    program = cuda.start()
    path = program.endpoint().path
    for _ in range(20):
        connect(path).close()
    program.wait_until_detached()
    program.do("launch a 100")
    monitor = program.attach()
    program.do("launch b 10")
    monitor.wait_for_count(10)


def test_reader_that_does_not_read_loses_records_and_no_one_else_does(cuda: CudaDouble) -> None:
    program = cuda.start()
    lazy, eager = program.attach(), program.attach()
    total = 0
    for _ in range(5):
        program.do("launch a 40000")
        total += 40_000
        eager.wait(lambda: eager.count >= total)  # noqa: B023
    assert (len(eager.kernels), eager.drops) == (total, 0)
    lazy.wait_for_count(total)
    assert lazy.drops > 0
    assert len(lazy.kernels) > 100_000  # 8 MiB waited for it
    program.do("launch b 10")
    lazy.wait_for_count(total + 10)
    cuda.check_unharmed(program)


def test_monitor_that_is_killed_in_the_middle(cuda: CudaDouble) -> None:
    program = cuda.start()
    watching = program.attach()
    script = (
        "import socket, sys; peer = socket.socket(socket.AF_UNIX); peer.connect(sys.argv[1]);"
        "print(len(peer.recv(10)), flush=True)\nwhile peer.recv(1000): pass"
    )
    command = [sys.executable, "-S", "-c", script, str(program.endpoint().path)]
    victims = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    program.start("threads 4 10000 100")
    for victim in victims:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"10\n"
        victim.kill()
        victim.communicate()
    watching.wait_for_count(40_000)
    assert watching.drops == 0
    program.wait("threads done")
    cuda.check_unharmed(program)


def test_attach_and_detach_many_times_under_load(cuda: CudaDouble) -> None:
    storm(cuda, cycles=12, work="threads 8 2000 2000")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sanitizer", ["", "address,undefined", "thread"])
def test_attach_and_detach_hundreds_of_times_under_load(
    cuda_builds: Callable[[str], CudaBuild], runtime: Path, sanitizer: str
) -> None:
    cuda = CudaDouble(cuda_builds(sanitizer))
    try:
        storm(cuda, cycles=200, work="threads 8 40000 5000")
    finally:
        cuda.close()


def storm(cuda: CudaDouble, cycles: int, work: str) -> None:
    """Monitors that come and go, two at once, some before they were greeted, while threads launch."""
    program = cuda.start()
    program.do("fork exit")
    endpoint = program.endpoint()
    program.start(work)
    received = 0
    for cycle in range(cycles):
        monitors = [TraceMonitor(endpoint) for _ in range(1 + cycle % 2)]
        if cycle % 3:
            monitors[0].wait(lambda: monitors[0].state == "tracing")  # noqa: B023
        if cycle % 3 == 2:
            select.select([monitors[0].connection], [], [], 0.2)
            monitors[0].events += monitors[0].connection.receive()
            received += monitors[0].count
        for monitor in monitors:
            assert monitor.connection.closed is None, monitor.connection.closed
            monitor.detach()
    program.wait(work.split(maxsplit=1)[0] + " done")
    assert received > 0
    program.wait_until_detached()
    last = program.attach()
    program.do("launch last 100")
    last.wait_for_count(100)
    cuda.check_unharmed(program, "launch end 10", "exit 11")


def connect(path: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(path))
    return peer


def is_closed(peer: socket.socket) -> bool:
    """Whether the other side has hung up; what it sent is read."""
    peer.setblocking(False)
    try:
        while peer.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True
