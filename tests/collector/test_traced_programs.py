"""The real collector with programs that speak the trace protocol: attaching, rows, activity, every end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from watched_gpus import Watched

from roofmon.model.activity import TracedProgram
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column
from roofmon.model.tracing_cost import EAGER, IN_GRAPH
from roofmon.stream.messages import Command
from roofmon.tracing.protocol import HEADER, MAGIC

DOUBLE = Path(__file__).parent.parent / "doubles" / "traced_program.py"
ROOT = Path(__file__).parent.parent.parent
UUID = "GPU-5b1cafe0-0000-0000-0000-000000000000"
AXPY = ["_Z4axpyfPfS_", 300, 100]
GEMM = [
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    500,
    100,
    13,
    1,
    [132, 1, 1],
    [384, 1, 1],
    168,
]


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Directories of the test's own; that of the sockets short, as a socket's path has to be."""
    runtime = tempfile.mkdtemp(prefix="roofmon-test-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIG", "CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    yield
    shutil.rmtree(runtime)


class Traced:
    """A running traced_program.py; `said` are the lines that it has printed."""

    def __init__(self, **options: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(DOUBLE), json.dumps({"name": "train.py", **options})],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.pid = self._process.pid
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        wait_for(lambda: "listening" in self.said)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.strip())

    def state(self, snapshot: Snapshot) -> TracedProgram | None:
        return next((p for p in snapshot.traced if p.pid == self.pid), None)

    def rows(self, snapshot: Snapshot) -> dict[str, int]:
        descriptions = enumerate(snapshot.kernels.descriptions)
        return {d.name: row for row, d in descriptions if d.pid == self.pid}

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def program(private: None) -> Iterator[Callable[..., Traced]]:
    made: list[Traced] = []

    def start(**options: object) -> Traced:
        made.append(Traced(**{"seconds": 60, "kernels": [AXPY, GEMM], **options}))
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.fixture
def watch(private: None) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(*arguments: str) -> Watched:
        made.append(Watched("--device", "cpu", "--no-calibration", *arguments))
        return made[-1]

    yield start
    for one in made:
        one.consumer.close()


Start = Callable[..., Traced]
Watch = Callable[..., Watched]


def is_in(program: Traced, state: str) -> Callable[[Snapshot], bool]:
    def condition(snapshot: Snapshot) -> bool:
        found = program.state(snapshot)
        return found is not None and found.state == state

    return condition


@pytest.mark.slow
def test_a_dormant_program_is_listed_and_not_connected_to(program: Start, watch: Watch) -> None:
    train = program()
    watched = watch()
    snapshot = watched.until(is_in(train, "dormant"))
    rung = next(r for r in snapshot.rungs if r.rung == "tracing")
    assert (rung.state, rung.fix) == ("waiting", "a attaches")
    assert "can be traced" in rung.reason
    assert train.pid not in snapshot.programs
    time.sleep(1.5)  # another look at the sockets
    assert train.said == ["listening"]


def test_kernels_of_an_attached_program(program: Start, watch: Watch) -> None:
    train = program(copies=[["memcpy h2d", 200, 50, 10_000_000]], unseen_ms=60_000)
    watched = watch(f"--attach={train.pid}")
    # Gaps are known a second later than launches.
    snapshot = watched.until(
        lambda s: (
            len(rows := train.rows(s)) == 3
            and bool(np.isfinite(s.kernels.column(Column.GAP_NS)[rows["axpy"]]))
            and UUID in s.activity
            and s.activity[UUID].busy_ns > 0
        )
    )
    table, rows = snapshot.kernels, train.rows(snapshot)
    axpy, gemm, copy = rows["axpy"], rows["nvjet bf16 256×128 TNT"], rows["memcpy h2d"]
    described = table.descriptions[gemm]
    assert table.descriptions[axpy].full_name == "axpy(float, float*, float*)"
    assert (described.grid, described.block) == ((132, 1, 1), (384, 1, 1))
    assert (described.registers, described.occupancy) == (168, 12 / 64)
    assert (described.device, described.process) == (UUID, "train.py")
    assert table.column(Column.MEDIAN_NS)[[axpy, gemm, copy]] == pytest.approx([3e5, 5e5, 2e5])
    assert table.column(Column.GAP_NS)[[axpy, gemm]] == pytest.approx([1e5, 1e5])
    assert table.column(Column.STREAM)[[axpy, gemm]].tolist() == [7, 13]
    assert table.column(Column.GRAPH_SHARE)[[axpy, gemm]].tolist() == [0, 1]
    launches = table.column(Column.LAUNCHES)
    assert launches[axpy] == launches[gemm] == launches[copy]
    # Shares are of the time of kernels: 300 and 500 of 800 µs; the copy's 200 run beside them.
    assert table.time_share[[axpy, gemm, copy]] == pytest.approx([0.375, 0.625, 0.25])
    assert table.bytes["pcie_h2d"].values[copy] == 10_000_000
    assert snapshot.device(UUID) is not None
    assert snapshot.programs[train.pid] == "train.py"
    state = train.state(snapshot)
    assert state is not None
    assert (state.state, state.dropped, state.cupti) == ("attached", 0, "130000 /x.so")
    assert state.reason == ""  # whoever attaches late knows that
    assert state.records >= launches[[axpy, gemm, copy]].sum()


@pytest.mark.slow
def test_records_that_come_late_are_waited_for(program: Start, watch: Watch) -> None:
    train = program(buffer_s=2.5)
    watched = watch(f"--attach={train.pid}")
    snapshot = watched.until(lambda s: UUID in s.activity and s.activity[UUID].busy > 0.7)
    for _ in range(4):  # all of it is there from then on
        later = snapshot.activity[UUID].end_unix_ns
        snapshot = watched.until(
            lambda s: UUID in s.activity and s.activity[UUID].end_unix_ns > later  # noqa: B023
        )
        assert snapshot.activity[UUID].busy == pytest.approx(0.8, abs=0.05)
        assert snapshot.activity[UUID].late == 0


@pytest.mark.slow
def test_activity_of_the_device(program: Start, watch: Watch) -> None:
    # A round is 100 + 300 + 100 + 500 µs, of which a copy of 200 has 50 before the first kernel.
    train = program(copies=[["memcpy h2d", 200, 50, 1]])
    watched = watch(f"--attach={train.pid}")
    watched.until(lambda s: UUID in s.activity and s.activity[UUID].busy > 0.7)
    snapshot = watched.until(lambda s: UUID in s.activity and s.activity[UUID].launches > 100)
    activity = snapshot.activity[UUID]
    assert activity.busy == pytest.approx(0.8, abs=0.05)
    assert activity.hidden_ns / activity.copies_ns == pytest.approx(0.75, abs=0.05)
    assert (activity.tiny, activity.overlap_ns, activity.streams) == (0, 0, 2)
    state = train.state(snapshot)
    assert state is not None
    # 3,000 records/s, one of three from a graph.
    cost = 2_000 * EAGER.attached_s + 1_000 * IN_GRAPH.attached_s
    assert state.cost == pytest.approx(cost, rel=0.5)


@pytest.mark.slow
def test_regions_of_the_same_program_tell_their_kernels_time(program: Start, watch: Watch) -> None:
    train = program(regions=True)
    watched = watch(f"--attach={train.pid}")

    def told(snapshot: Snapshot) -> bool:
        row = train.rows(snapshot).get("step")
        return (
            row is not None
            and bool(np.isfinite(snapshot.kernels.column(Column.INSIDE_NS)[row]))
            and bool(snapshot.kernels.column(Column.LAUNCHES)[row] > 100)
        )

    snapshot = watched.until(told)
    table, rows = snapshot.kernels, train.rows(snapshot)
    step = rows["step"]
    # The GPU is busy 80 % of any time, also of that in a region: of the mean, as that of the kernels' time
    # is one too, and a machine that has much to do makes some passes long.
    mean = table.column(Column.TOTAL_NS)[step] / table.column(Column.LAUNCHES)[step]
    assert table.column(Column.INSIDE_NS)[step] / mean == pytest.approx(0.8, abs=0.15)
    assert 0 < table.time_share[step] < 1
    assert table.descriptions[step].device == UUID


@pytest.mark.slow
def test_attach_and_detach_again_and_again_keep_the_rows(program: Start, watch: Watch) -> None:
    train = program()
    watched = watch()
    watched.until(is_in(train, "dormant"))

    def more_than(before: float) -> Callable[[Snapshot], bool]:
        return lambda s: (
            is_in(train, "attached")(s)
            and len(train.rows(s)) == 2
            and bool(s.kernels.column(Column.LAUNCHES).sum() > before)
        )

    before = 0.0
    for _ in range(3):
        assert watched.consumer.send(Command(command="attach", pid=train.pid))
        watched.until(more_than(before))
        assert watched.consumer.send(Command(command="detach", pid=train.pid))
        snapshot = watched.until(is_in(train, "dormant"))
        before = snapshot.kernels.column(Column.LAUNCHES).sum()
        assert len(train.rows(snapshot)) == 2
        wait_for(lambda: train.said[-1] == "detached")
    assert train.said == ["listening", *["attached", "detached"] * 3]


@pytest.mark.slow
def test_several_programs_at_once(program: Start, watch: Watch) -> None:
    one, other, third = program(name="one"), program(name="other"), program(name="third")
    watched = watch(f"--attach={one.pid}", f"--attach={other.pid}")
    snapshot = watched.until(lambda s: len(one.rows(s)) == len(other.rows(s)) == 2)
    assert not third.rows(snapshot)
    assert is_in(third, "dormant")(snapshot)
    assert {one.pid, other.pid} <= snapshot.programs.keys()
    assert watched.consumer.send(Command(command="detach"))  # from all
    snapshot = watched.until(lambda s: is_in(one, "dormant")(s) and is_in(other, "dormant")(s))
    # Programs of other tests with regions are seen as well.
    assert not {one.pid, other.pid} & snapshot.programs.keys()


@pytest.mark.slow
def test_a_program_is_attached_to_with_all_that_it_starts(private: None, watch: Watch) -> None:
    options = json.dumps({"name": "rank", "seconds": 60, "kernels": [AXPY], "unseen_ms": 310})
    command = [sys.executable, str(DOUBLE), options]
    # As launchers of several ranks do: each in a session of its own.
    code = (
        "import subprocess, sys\n"
        f"ranks = [subprocess.Popen({command!r}, start_new_session=True) for _ in range(2)]\n"
        "sys.stdin.read()\n"
        "for rank in ranks: rank.kill()"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        watched = watch(f"--attach-tree={launcher.pid}")
        snapshot = watched.until(
            lambda s: [p.state for p in s.traced if p.name == "rank"] == ["attached"] * 2
        )
        assert list(snapshot.programs.values()).count("rank") == 2
        unseen = "kernels of the first 310.0ms after it loaded CUDA were not traced"
        assert [p.reason for p in snapshot.traced if p.name == "rank"] == [unseen] * 2
    finally:
        launcher.communicate()
    watched.until(lambda s: [n.what.endswith(unseen) for n in s.notices].count(True) == 2)


@pytest.mark.slow
@pytest.mark.parametrize(("state", "severity"), [("failed", "error"), ("yielded", "warning")])
def test_a_library_that_gives_up_is_told_and_left_alone(
    program: Start, watch: Watch, state: str, severity: str
) -> None:
    train = program(state=state, reason="the reason why")
    watched = watch(f"--attach={train.pid}")
    snapshot = watched.until(lambda s: is_in(train, state)(s) and bool(s.notices))
    found = train.state(snapshot)
    assert found is not None
    assert found.reason == "the reason why"
    notice = next(n for n in snapshot.notices if "the reason why" in n.what)
    assert notice.severity == severity
    wait_for(lambda: train.said == ["listening", "attached", "detached"])
    time.sleep(1.5)
    assert train.said[-1] == "detached"  # not attached to again by itself
    assert watched.consumer.send(Command(command="attach", pid=train.pid))
    wait_for(lambda: train.said.count("attached") == 2)


@pytest.mark.slow
def test_a_program_that_ends_leaves_its_rows_until_it_runs_again(
    program: Start, watch: Watch
) -> None:
    train = program()
    watched = watch(f"--attach={train.pid}")
    watched.until(lambda s: len(train.rows(s)) == 2)
    train.signal(signal.SIGKILL)
    snapshot = watched.until(lambda s: train.state(s) is None and train.pid not in s.programs)
    assert len(train.rows(snapshot)) == 2
    again = program()
    assert watched.consumer.send(Command(command="attach", pid=again.pid))
    snapshot = watched.until(lambda s: len(again.rows(s)) == 2)
    assert not train.rows(snapshot)


@pytest.mark.slow
def test_a_peer_that_speaks_nonsense_costs_only_itself(
    program: Start, watch: Watch, private: None
) -> None:
    import socket

    train = program()
    start = Path(f"/proc/{os.getpid()}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    path = Path(os.environ["XDG_RUNTIME_DIR"], "roofmon", f"{os.getpid()}-{start}.trace.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        watched = watch(f"--attach={train.pid}", f"--attach={os.getpid()}")
        peer, _ = listener.accept()
        with peer:
            peer.sendall(HEADER.pack(MAGIC, 99, 77, 1 << 30) + b"x" * 1000)
            snapshot = watched.until(
                lambda s: any(p.pid == os.getpid() and p.state == "failed" for p in s.traced)
            )
    assert "version 77" in next(p.reason for p in snapshot.traced if p.pid == os.getpid())
    watched.until(lambda s: len(train.rows(s)) == 2)


@pytest.mark.slow
def test_a_program_of_a_container_says_that_its_pid_is_of_another_namespace(
    program: Start, watch: Watch
) -> None:
    train = program(namespace=1)
    watched = watch(f"--attach={train.pid}")
    snapshot = watched.until(is_in(train, "attached"))
    assert snapshot.programs[train.pid] == "train.py (other PID namespace)"


@pytest.mark.slow
def test_reset_begins_anew_while_records_come(program: Start, watch: Watch) -> None:
    train = program()
    watched = watch(f"--attach={train.pid}")
    many = watched.until(lambda s: s.kernels.column(Column.LAUNCHES).sum() > 1000)
    assert watched.consumer.send(Command(command="reset"))
    fewer = watched.until(
        lambda s: (
            0 < s.kernels.column(Column.LAUNCHES).sum() < many.kernels.column(Column.LAUNCHES).sum()
        )
    )
    assert len(train.rows(fewer)) == 2
