"""What monitors are told of a traced program: kernels, transfers, devices, names, and how many."""

import ctypes.util
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from cuda_double import CudaDouble, endpoint_of

from roofmon import __version__
from roofmon.tracing.endpoints import start_time_of
from roofmon.tracing.trace_protocol import MAX_NAMES, OTHER, TRANSFER_KINDS, Hello


def test_greeting_says_who_speaks(cuda: CudaDouble) -> None:
    before = time.time_ns()
    program = cuda.start()
    monitor = program.attach()
    hello = monitor.events[0]
    assert isinstance(hello, Hello)
    assert (hello.kind, hello.pid, hello.process) == ("trace", program.pid, "program")
    assert hello.start_time == start_time_of(program.pid)
    assert hello.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert hello.library == __version__
    assert [state.state for state in monitor.states] == ["starting", "tracing"]
    assert monitor.states[-1].cupti_version == 130001
    assert monitor.states[-1].cupti_path == str(cuda.build.folder / "libcupti.so.13")
    assert monitor.states[-1].reason == ""
    loaded, since = monitor.states[-1].loaded_ns, monitor.states[-1].since_ns
    assert before < loaded < since < time.time_ns()


def test_state_says_from_when_on_kernels_are_seen(cuda: CudaDouble) -> None:
    program = cuda.start()
    first = program.attach()
    first.detach()
    program.wait_until_detached()
    between = time.time_ns()
    again = program.attach()
    program.do("launch a 1")
    again.wait_for_count(1)
    one, other = first.states[-1], again.states[-1]
    assert one.loaded_ns == other.loaded_ns < one.since_ns < between < other.since_ns
    assert other.since_ns < again.kernels["start_ns"].min()


def test_kernels_have_what_cupti_says_of_them(cuda: CudaDouble) -> None:
    program = cuda.start(duration_ns=5000)
    monitor = program.attach()
    before = time.time_ns()
    program.do("launch _Z3addPf 3", "graph 9 4 2")
    monitor.wait_for_count(11)
    kernels = monitor.kernels
    assert before <= kernels["start_ns"].min() < kernels["end_ns"].max() < time.time_ns()
    assert set((kernels["end_ns"] - kernels["start_ns"]).tolist()) == {5000}
    assert monitor.launches("_Z3addPf") == 3
    assert monitor.launches("g") == 8
    first = kernels[0]
    assert first["grid"].tolist() == [132, 2, 1]
    assert first["block"].tolist() == [128, 2, 1]
    assert [int(first[field]) for field in ("stream", "context", "graph", "device")] == [7, 1, 0, 0]
    assert (first["registers"], first["static_shared"]) == (168, 1024)
    assert (first["dynamic_shared"], first["shared_executed"]) == (200000, 233472)
    of_graph = kernels[kernels["graph"] == 9]
    assert len(of_graph) == 8
    assert len(np.unique(of_graph["correlation"])) == 2  # one a launch of the graph
    assert monitor.drops == 0


def test_transfers_are_rows_of_their_own_kind(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    for number in range(1, 10):  # CUPTI's directions of copies
        program.do(f"transfer {number} {1000 + number}")
    program.do("transfer peer 7", "transfer set 4096", "transfer 0 1", "transfer 77 1")
    monitor.wait_for_count(13)
    transfers = np.sort(monitor.transfers, order="correlation")
    kinds = [TRANSFER_KINDS[kind].removeprefix("memcpy ") for kind in transfers["kind"]]
    assert kinds[:9] == ["h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h"]
    assert kinds[9:] == ["p2p", "memset", "other", "other"]
    assert transfers["bytes"][:2].tolist() == [1001, 1002]
    assert transfers["bytes"][9:11].tolist() == [7, 4096]
    assert transfers["peer"].tolist() == [0] * 9 + [1, 0, 0, 0]
    assert transfers["flags"][:9].tolist() == [1] * 9
    assert set(monitor.devices) == {0, 1}


def test_devices_are_described_once_and_before_their_kernels(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("device 0", "device 7", "device 0", "device 9")
    monitor.wait_for_count(4)
    assert sorted(monitor.devices) == [0, 7, 9]
    device = monitor.devices[0]
    assert device.uuid == "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0"
    assert (device.name, device.compute_capability, device.sm_count) == ("NVIDIA H200", (9, 0), 132)
    assert (device.max_threads_per_sm, device.max_blocks_per_sm) == (2048, 32)
    assert (device.registers_per_sm, device.shared_per_sm) == (65536, 233472)
    assert (device.shared_per_block_optin, device.shared_reserved_per_block) == (232448, 1024)
    assert monitor.devices[7].uuid.startswith("MIG-07172737-")
    assert monitor.devices[7].name == 'NVIDIA "H200"\\? MIG 1g.18gb'
    unknown = monitor.devices[9]  # one that the driver denies
    assert (unknown.uuid, unknown.name, unknown.compute_capability) == ("", "", (0, 0))
    assert unknown.sm_count == unknown.registers_per_sm == 0


def test_device_with_an_impossible_number_is_a_drop(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("device 64", "device 63")
    monitor.wait_for_count(2)
    assert (monitor.drops, len(monitor.kernels)) == (1, 1)


def test_names_at_one_address_are_told_apart(cuda: CudaDouble) -> None:
    program = cuda.start(one_place=1)
    monitor = program.attach()
    program.do("distinct 300 0")
    monitor.wait_for_count(300)
    assert {monitor.names[number] for number in monitor.kernels["name"].tolist()} == {
        f"kernel{i}" for i in range(300)
    }


def test_names_beyond_the_bound_share_one(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do(f"distinct {MAX_NAMES + 5} 0", "launch kernel7 1")
    monitor.wait_for_count(MAX_NAMES + 6)
    assert monitor.launches(OTHER) == 5
    assert monitor.launches("kernel7") == 2
    assert len(set(monitor.names.values())) == MAX_NAMES + 1


def test_long_names_are_cut_and_their_memory_is_bounded(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("distinct 1100 20000")
    monitor.wait_for_count(1100)
    program.do("launch late 1")
    monitor.wait_for_count(1101)
    assert {len(name) for name in monitor.names.values() if name != OTHER} == {16384}
    assert len(monitor.names) == (16 << 20) // 16384 + 1
    assert (
        monitor.launches(OTHER) >= 1
    )  # the late one; names of 16 MB are more than waits for a monitor


def test_a_program_without_a_monitor_loads_no_cupti(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.do("launch a 10")
    program.endpoint()
    maps = Path(f"/proc/{program.pid}/maps")
    assert "libroofmon_trace" in maps.read_text()
    assert "libcupti" not in maps.read_text()
    tasks = [
        task.joinpath("comm").read_text().strip()
        for task in Path(f"/proc/{program.pid}/task").iterdir()
    ]
    assert sorted(tasks) == ["program", "roofmon-trace"]
    monitor = program.attach()
    assert "libcupti" in maps.read_text()
    monitor.detach()


def test_the_thread_blocks_the_programs_signals(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.endpoint()
    (thread,) = [
        task
        for task in Path(f"/proc/{program.pid}/task").iterdir()
        if task.joinpath("comm").read_text() == "roofmon-trace\n"
    ]
    fields = dict(
        line.split(":\t", 1)
        for line in thread.joinpath("status").read_text().splitlines()
        if ":\t" in line
    )
    blocked = int(fields["SigBlk"], 16)
    assert all(blocked >> (number - 1) & 1 for number in (1, 2, 10, 12, 14, 15, 17, 28))
    assert not any(blocked >> (number - 1) & 1 for number in (4, 7, 8, 11, 31))  # faults


def test_every_launch_of_many_threads_is_counted(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("threads 8 5000")
    monitor.wait_for_count(40_000)
    assert monitor.drops == 0
    assert len(np.unique(monitor.kernels["stream"])) == 8


def test_a_program_that_never_rests_is_seen_soon_with_few_kernels(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    # 16 kernels of 50 ms every 40 ms: all run that were launched in the last round, and the one before.
    program.start("set duration_ns 50000000", "launch slow 480 40000")
    monitor.wait(lambda: monitor.count > 0)
    assert monitor.count < 240
    monitor.wait_for_count(480)
    assert monitor.drops == 0


def test_monitors_get_everything_from_their_connect_on(cuda: CudaDouble) -> None:
    program = cuda.start()
    first = program.attach()
    program.do("launch early 50")
    first.wait_for_count(50)
    second = program.attach()
    program.do("launch late 70")
    first.wait_for_count(120)
    second.wait_for_count(70)
    assert second.launches("early") == 0
    first.detach()
    program.do("launch last 5")
    second.wait_for_count(75)
    assert [state.state for state in second.states] == ["tracing"]


def test_attach_after_detach_starts_again_from_nothing(cuda: CudaDouble) -> None:
    program = cuda.start()
    for attempt in range(3):
        monitor = program.attach()
        program.do(f"launch a {10 + attempt}")
        monitor.wait_for_count(10 + attempt)
        monitor.detach()
        program.wait_until_detached()
        program.do("launch between 1000")
    cuda.check_unharmed(program)


def test_last_records_arrive_when_the_program_ends(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    cuda.check_unharmed(program, "launch a 1234", "exit 7")
    monitor.wait_for_end()
    assert (len(monitor.kernels), monitor.drops) == (1234, 0)
    assert endpoint_of(program.pid) is None
    assert not monitor.connection.endpoint.path.exists()


def test_kernels_that_have_not_ended_are_drops_at_the_end(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 5")
    monitor.wait_for_count(5)
    program.finish("set hold 1", "launch b 3")
    monitor.wait_for_end()
    assert (len(monitor.kernels), monitor.drops) == (5, 3)


def test_what_ran_before_an_attach_is_not_counted(cuda: CudaDouble) -> None:
    program = cuda.start()
    first = program.attach()
    program.do("set hold 1", "launch left 20")
    first.detach()
    program.wait_until_detached()
    second = program.attach()
    program.do("set hold 0", "launch new 6")
    second.wait_for_count(6)
    assert second.launches("left") == 0
    program.do("launch new 1")
    second.wait_for_count(7)


NO_CUPTI_13 = 12040
"""A driver for which the system's own CUPTI 13, if there is one, is too new."""


def test_cupti_of_the_loaders_path_is_found(cuda: CudaDouble) -> None:
    folder = str(cuda.build.other_cupti.parent)
    program = cuda.start(LD_LIBRARY_PATH=folder, driver=NO_CUPTI_13)
    monitor = program.attach()
    program.do("launch a 3")
    monitor.wait_for_count(3)
    assert monitor.states[-1].cupti_version == 28
    assert monitor.states[-1].cupti_path == str(cuda.build.other_cupti)


def test_cupti_beside_the_programs_runtime_comes_before_others(cuda: CudaDouble) -> None:
    program = cuda.start(driver=NO_CUPTI_13)
    program.do(f"load {cuda.build.runtime}")
    monitor = program.attach()
    assert Path(monitor.states[-1].cupti_path).resolve() == cuda.build.other_cupti


def test_cupti_in_the_program_comes_before_all_others(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.do(f"load {cuda.build.other_cupti}")
    monitor = program.attach()
    assert monitor.states[-1].cupti_version == 28
    program.do("launch a 3")
    monitor.wait_for_count(3)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_listed_cupti_is_the_last_resort(cuda: CudaDouble, tmp_path: Path, kind: str) -> None:
    if system_has_cupti_12():
        pytest.skip("this system has a CUPTI 12 of its own")
    cupti = cuda.build.other_cupti
    listed = f"relative:/nonexistent::{cupti if kind == 'file' else cupti.parent}:/nothing"
    program = cuda.start(LD_LIBRARY_PATH=str(tmp_path), driver=NO_CUPTI_13, ROOFMON_CUPTI=listed)
    monitor = program.attach()
    assert monitor.states[-1].cupti_path == str(cupti)


def test_without_cupti_the_state_says_so(cuda: CudaDouble, tmp_path: Path) -> None:
    if system_has_cupti_12():
        pytest.skip("this system has a CUPTI 12 of its own")
    program = cuda.start(LD_LIBRARY_PATH=str(tmp_path), driver=NO_CUPTI_13)
    monitor = program.attach("failed")
    assert monitor.states[-1].reason == (
        "no libcupti.so.13 or libcupti.so.12 was found: install CUPTI, or name it in ROOFMON_CUPTI"
    )
    program.do(f"load {cuda.build.other_cupti}")
    assert program.attach().states[-1].cupti_version == 28  # asked again, and now it is there
    monitor.wait(lambda: monitor.state == "tracing")


@pytest.mark.parametrize("version", [17, 140000])
def test_other_versions_of_cupti_are_refused(cuda: CudaDouble, version: int) -> None:
    program = cuda.start(version=version)
    monitor = program.attach("failed")
    assert f"has version {version}: CUPTI of CUDA 12 or 13 is needed" in monitor.states[-1].reason


def system_has_cupti_12() -> bool:
    return (
        ctypes.util.find_library("cupti") is not None
        and "libcupti.so.12"
        in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    )
