"""The socket of an annotated program: monitors that come, go and stall, forks, ends, bad places."""

import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from roofmon.tracing.endpoints import find_endpoints

STEPS = """
import os, sys, time
from region import region
n = 0
def steps():
    global n
    print("ready", flush=True)
    for line in sys.stdin:
        n += 1
        with region("step", flops=n): pass
        print(n, flush=True)
region("start")
steps()
"""


def steps_seen(monitor):
    return [record["flops"] for record in monitor.named("step")]


def test_monitors_come_and_go(start):
    program = start(STEPS)
    program.read()

    def step():
        program.step()
        program.read()

    step()
    first = program.attach()
    step()
    second = program.attach()
    step()
    first.wait(lambda: steps_seen(first) == [2, 3])
    second.wait(lambda: steps_seen(second) == [3])
    first.connection.close()
    step()
    second.wait(lambda: steps_seen(second) == [3, 4])
    second.connection.close()
    assert second.connection.fileno() == -1
    time.sleep(0.15)  # nobody listens: step 5 is heard by none, then or later
    step()
    third = program.attach()
    step()
    third.wait(lambda: steps_seen(third) == [6])
    program.finish()
    third.wait_for_end()
    assert steps_seen(third) == [6]


def test_monitor_that_never_reads_neither_blocks_nor_grows_the_program(start):
    program = start(
        """
import resource, time
from region import region
region("start")
print("ready", flush=True); input()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
longest, begin = 0, time.perf_counter()
for i in range(500_000):
    with region("busy", flops=i): pass
print(time.perf_counter() - begin)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)
input()
"""
    )
    program.read()
    monitor = program.attach()
    program.step()
    seconds, grown_kib = float(program.read()), int(program.read())
    # 1 to 2.5 s, as with a monitor that reads; the buffers take 4 + 5 MB.
    assert seconds < 10
    assert grown_kib < 40 * 1024
    monitor.wait(lambda: monitor.drops > 0 and monitor.count + monitor.drops == 500_000)
    assert monitor.count > 50_000
    program.step()
    monitor.wait_for_end()
    program.finish()


def test_program_survives_a_monitor_that_dies_even_with_sigpipe_at_default(start):
    program = start("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + STEPS)
    program.read()
    for _ in range(3):
        monitor = program.attach()
        monitor.connection.close()
        for _ in range(5):
            program.step()
            program.read()
            time.sleep(0.03)
    with socket.socket(
        socket.AF_UNIX
    ) as deaf:  # as good as dead, which only the last send can tell
        deaf.connect(str(program.endpoint().path))
        deaf.recv(4096)
        deaf.shutdown(socket.SHUT_RD)
        program.step()
        program.finish()


def test_more_monitors_than_it_takes_are_turned_away(start):
    program = start(STEPS)
    program.read()
    monitors = [program.attach() for _ in range(8)]
    ninth = program.connect()
    ninth.wait_for_end()
    program.step()
    program.read()
    for monitor in monitors:
        monitor.wait(lambda monitor=monitor: steps_seen(monitor) == [1])
    program.finish()


def test_forked_child_has_its_own_socket(start, sockets):
    program = start(
        """
import os, time
import region as sender
from region import region
made = region("child")
@region("decorated")
def decorated(): pass
print("ready", flush=True); input()
with region("parent"): pass
with region("around"):
    child = os.fork()
    if child == 0:
        decorated()
        print(os.getpid(), flush=True); input()
        with made: pass
        decorated()
        until = time.monotonic() + 20
        while time.monotonic() < until and (
            sender._buffer or any(monitor.pending for monitor in sender._listener.monitors)
        ):
            time.sleep(0.01)
        os._exit(0)
    os.waitpid(child, 0)
with region("parent"): pass
"""
    )
    program.read()
    parent = program.attach()
    program.step()
    pid = int(program.read())
    assert pid != program.pid
    child = program.attach(pid)
    program.step()
    child.wait_for_end()
    assert sorted(record["name"] for record in child.records) == ["child", "decorated"]
    assert [record["depth"] for record in child.records] == [0, 0]
    parent.wait_for_end()
    assert [record["name"] for record in parent.records] == ["parent", "around", "parent"]
    program.finish()
    # The child left by os._exit, which runs no handlers: its socket stays until a monitor clears it, which
    # another one on this machine may have done already.
    assert {path.name.split("-")[0] for path in sockets.iterdir()} <= {str(pid)}
    find_endpoints()
    assert list(sockets.iterdir()) == []


def test_forked_child_that_makes_no_region_listens_nowhere(start, sockets):
    program = start(
        """
import os
from region import region
region("x")
if os.fork() == 0:
    print("child", flush=True); input()
    os._exit(0)
input()
"""
    )
    assert program.read() == "child"
    assert [path.name.split("-")[0] for path in sockets.iterdir()] == [str(program.pid)]


def test_program_started_by_exec_listens_again(start):
    program = start(
        """
import os, sys
from region import region
region("x")
print("ready", flush=True); input()
if "again" not in sys.argv:
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[4], "again"])
with region("second life"): pass
"""
    )
    program.read()
    program.attach()
    program.step()
    program.read()
    monitor = program.attach()
    program.step()
    monitor.wait_for_end()
    assert [record["name"] for record in monitor.records] == ["second life"]


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_socket_is_private_and_removed_at_the_end(start, sockets, end):
    program = start(
        f"""
import os, signal, sys
from region import region
region("x")
print("ready", flush=True); input()
try:
    {end or "pass"}
except KeyboardInterrupt:
    pass
"""
    )
    program.read()
    (path,) = sockets.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    program.step()
    program.finish()
    assert list(sockets.iterdir()) == []


def test_socket_of_a_killed_program_is_cleared_away(start, sockets):
    program = start(STEPS)
    program.read()
    program.endpoint()
    program.process.kill()
    program.process.wait()
    assert len(list(sockets.iterdir())) == 1
    assert program.pid not in [endpoint.pid for endpoint in find_endpoints()]
    assert list(sockets.iterdir()) == []


def test_vanished_path_is_bound_again_and_connections_stay(start, runtime):
    program = start(STEPS)
    program.read()
    monitor = program.attach()
    program.endpoint().path.unlink()
    (runtime / "roofmon").rmdir()
    second = program.attach()
    program.step()
    for each in (monitor, second):
        each.wait(lambda each=each: steps_seen(each) == [1])
    program.finish()


@pytest.mark.parametrize("spoil", ["open to others", "symlink", "missing", "too long"])
def test_unsafe_place_is_not_used(start, runtime, tmp_path, monkeypatch, spoil):
    place = runtime / "run"
    if spoil == "too long":
        place = runtime / ("long" * 30)
    if spoil != "missing":
        place.mkdir()
    if spoil == "open to others":
        (place / "roofmon").mkdir(mode=0o755)
    if spoil == "symlink":
        (runtime / "elsewhere").mkdir(mode=0o700)
        (place / "roofmon").symlink_to(runtime / "elsewhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    program = start(STEPS)
    program.read()
    assert program.endpoint().path.parent == runtime / f"roofmon-{os.getuid()}"
    program.finish()


def test_monitor_finds_a_program_whose_variables_it_does_not_have(start, runtime, monkeypatch):
    (runtime / "job").mkdir()
    program = start(STEPS, XDG_RUNTIME_DIR="", TMPDIR=str(runtime / "job"))
    program.read()
    assert program.endpoint().path.is_relative_to(runtime / "job")
    program.finish()


def test_program_without_descriptors_to_spare_runs_on_and_listens_later(start):
    program = start(
        """
import os, resource
from region import region
few = [os.dup(1), os.dup(1)]  # enough to start with, too few to accept
resource.setrlimit(resource.RLIMIT_NOFILE, (few[-1] + 1, 4096))
os.close(few[-1])
with region("x"): pass
cpu = os.times()
print("ready", flush=True); input()
with region("x"): pass
spent = os.times()
print(spent.user + spent.system - cpu.user - cpu.system, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
input()
with region("late"): pass
"""
    )
    assert program.read() == "ready"
    monitor = program.connect()
    time.sleep(0.3)
    program.step()
    assert float(program.read()) < 0.1
    monitor.wait(lambda: bool(monitor.events))
    program.step()
    monitor.wait_for_end()
    assert [record["name"] for record in monitor.records] == ["late"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another identity")
def test_setuid_program_is_silent(start, sockets):
    os.chown(sockets, 65534, -1)
    program = start(
        """
import os
from region import region
os.setreuid(65534, 0)  # as a program of root's that user 65534 runs
with region("x"): pass
print("ready", flush=True); input()
"""
    )
    program.read()
    assert list(sockets.iterdir()) == []


def test_signals_stay_the_programs(start):
    program = start(
        """
import os, signal
from region import region
region("x")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # whose default action is to kill
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
"""
    )
    program.finish()


def test_two_copies_in_one_program_listen_once(start, tmp_path, sockets):
    package = tmp_path / "roofmon"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "region.py").write_text((tmp_path / "region.py").read_text())
    program = start(
        """
import region, roofmon.region
assert region is not roofmon.region and region.region is roofmon.region.region
region.region("x")
print("ready", flush=True); input()
with roofmon.region.region("x"): pass
"""
    )
    program.read()
    assert len(list(sockets.iterdir())) == 1
    monitor = program.attach()
    program.step()
    monitor.wait_for_end()
    assert monitor.count == 1
    program.finish()


def test_killing_signal_leaves_what_the_next_monitor_clears(start, sockets):
    program = start(STEPS)
    program.read()
    program.process.send_signal(signal.SIGTERM)
    program.process.wait()
    find_endpoints()
    assert list(Path(sockets).iterdir()) == []
