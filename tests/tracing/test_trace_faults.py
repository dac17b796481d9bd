"""What goes wrong in CUPTI, between CUPTI and another profiler, and with memory: tracing ends or records
count as lost, and the program prints and returns what it does without roofmon."""

import time

import pytest
from cuda_double import CudaDouble, TraceMonitor, wait_for

INSUFFICIENT_PRIVILEGES = 35

FAILING = {
    "cuptiGetTimestamp": 1,
    "cuptiActivitySetAttribute": 1,
    "cuptiActivityRegisterCallbacks": 1,
    "cuptiActivityEnable": 4,
}
"""Functions that an attach needs, and how many of their calls it needs."""


@pytest.mark.parametrize(
    ("function", "skip"), [(name, skip) for name, times in FAILING.items() for skip in range(times)]
)
def test_attach_that_fails_says_where_and_leaves_nothing_on(
    cuda: CudaDouble, function: str, skip: int
) -> None:
    settings = {f"fail__{function}": INSUFFICIENT_PRIVILEGES, f"skip__{function}": skip}
    program = cuda.start(**settings)
    monitor = program.attach("failed")
    reason = monitor.states[-1].reason
    assert reason.startswith(function)
    assert reason.endswith(": CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)")
    program.do("launch a 1000")
    program.do(f"set fail.{function} 0")
    again = program.attach()  # the next monitor tries anew
    monitor.wait(lambda: monitor.state == "tracing")
    program.do("launch a 10", "transfer set 1")
    again.wait_for_count(11)
    monitor.wait_for_count(11)
    cuda.check_unharmed(program, "exit 3")


@pytest.mark.parametrize(
    "function",
    ["cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords"],
)
def test_call_that_begins_to_fail_ends_the_tracing(cuda: CudaDouble, function: str) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10")
    monitor.wait_for_count(10)
    program.do(f"set fail.{function} 999", "launch b 10")
    monitor.wait(lambda: monitor.state == "failed")
    assert monitor.states[-1].reason == f"{function}: CUPTI_ERROR_UNKNOWN (999)"
    program.do(f"set fail.{function} 0", "launch c 10000")
    again = program.attach()
    program.do("launch d 5")
    again.wait(lambda: again.launches("d") == 5)
    cuda.check_unharmed(program, "launch e 5")


@pytest.mark.parametrize("function", ["cuptiActivityDisable", "cuptiActivityEnableAndDump"])
def test_calls_whose_failure_does_no_harm(cuda: CudaDouble, function: str) -> None:
    program = cuda.start(**{f"fail__{function}": 999})
    for _ in range(2):
        monitor = program.attach()
        program.do("launch a 10")
        monitor.wait_for_count(10)
        monitor.detach()
        program.wait_until_detached()
        program.do("launch between 2000")
    cuda.check_unharmed(program)


def test_buffers_that_cannot_be_bounded_are_said_and_used(cuda: CudaDouble) -> None:
    refused = {"fail__cuptiActivitySetAttribute": 999, "skip__cuptiActivitySetAttribute": 1}
    program = cuda.start(**refused)
    monitor = program.attach()
    assert "refuses to bound the GPU memory" in monitor.states[-1].reason
    program.do("launch a 10")
    monitor.wait_for_count(10)
    cuda.check_unharmed(program)


def test_attach_while_the_driver_is_being_initialised_waits_for_it(cuda: CudaDouble) -> None:
    program = cuda.start(fail__cuptiActivitySetAttribute=15)
    monitor = program.attach("starting")
    time.sleep(0.3)  # some attempts
    program.do("set fail.cuptiActivitySetAttribute 0")
    monitor.wait(lambda: monitor.state != "starting")
    assert [state.state for state in monitor.states] == ["starting", "tracing"]
    program.do("launch a 10")
    monitor.wait_for_count(10)
    cuda.check_unharmed(program)


def test_cupti_is_left_alone_while_the_driver_is_being_initialised(cuda: CudaDouble) -> None:
    program = cuda.start(
        starting=1, fail__cuptiGetVersion=999
    )  # a call of it would end the waiting
    monitor = program.attach("starting")
    time.sleep(0.3)
    program.do("set fail.cuptiGetVersion 0", "set starting 0")
    monitor.wait(lambda: monitor.state != "starting")
    assert [state.state for state in monitor.states] == ["starting", "tracing"]
    program.do("launch a 10")
    monitor.wait_for_count(10)
    cuda.check_unharmed(program)


def test_cupti_that_does_not_tell_its_version_is_not_used(cuda: CudaDouble) -> None:
    program = cuda.start(fail__cuptiGetVersion=999)
    monitor = program.attach("failed")
    assert monitor.states[-1].reason == "cuptiGetVersion: CUPTI_ERROR_UNKNOWN (999)"
    program.do("set fail.cuptiGetVersion 0")
    program.attach()
    cuda.check_unharmed(program, "launch a 10")


def test_error_without_words_is_told_by_its_number(cuda: CudaDouble) -> None:
    program = cuda.start(fail__cuptiActivityEnable=7, fail__cuptiGetResultString=1)
    monitor = program.attach("failed")
    assert monitor.states[-1].reason == "cuptiActivityEnable: unknown error (7)"


def test_bad_times_are_drops(cuda: CudaDouble) -> None:
    program = cuda.start(bad_times=3)
    monitor = program.attach()
    program.do("launch a 3000", "transfer set 8", "transfer peer 8", "transfer 1 8")
    monitor.wait_for_count(3003)
    assert monitor.drops == 1001
    cuda.check_unharmed(program)


def test_attaching_and_detaching_costs_cupti_no_buffers_of_graphs(cuda: CudaDouble) -> None:
    program = cuda.start(leaky=1)
    for _ in range(40):  # of 32
        monitor = program.attach()
        monitor.detach()
        program.wait_until_detached()
    monitor = program.attach()
    program.do("launch a 10", "graph 7 100 5")
    monitor.wait_for_count(510)
    assert monitor.drops == 0
    cuda.check_unharmed(program)


def test_cupti_that_has_no_room_for_times_gets_more_of_it(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10", "set lost_buffers 100", "graph 7 100 5")  # 32, 64, 128

    def timed() -> bool:
        program.do("launch b 1")
        return monitor.launches("b") > 0

    monitor.wait(timed)
    assert monitor.state == "tracing"
    assert monitor.drops > 0
    dropped, seen = monitor.drops, int((monitor.kernels["graph"] != 0).sum())
    program.do("launch c 10", "graph 8 100 5")
    monitor.wait(lambda: monitor.launches("c") == 10)
    monitor.wait(lambda: (monitor.kernels["graph"] != 0).sum() == seen + 500)
    assert monitor.drops == dropped
    cuda.check_unharmed(program)


def test_cupti_that_gives_no_times_any_more_is_told_of(cuda: CudaDouble) -> None:
    program = cuda.start(lost_buffers=1000)
    monitor = program.attach()

    def failed() -> bool:
        program.do("launch a 1")
        return monitor.state == "failed"

    monitor.wait(failed)
    assert monitor.states[-1].reason == (
        "CUPTI has no room left for the times of kernels: restart the program to trace it"
    )
    cuda.check_unharmed(program, "launch b 10")


def test_records_that_cupti_lost_are_drops(cuda: CudaDouble) -> None:
    program = cuda.start(lose=5)
    monitor = program.attach()
    program.do("threads 4 1000")
    monitor.wait_for_count(4000)
    assert monitor.drops >= 800 - 4  # the answer to our own question may be among the lost
    cuda.check_unharmed(program)


def test_buffers_are_bounded_while_nothing_ends(cuda: CudaDouble) -> None:
    program = cuda.start(hold=1)
    monitor = program.attach()
    program.do("launch a 200000")
    assert resident_bytes(program.pid) < 150e6
    program.do("set hold 0")
    monitor.wait_for_count(200_000)
    assert monitor.drops > 0
    assert len(monitor.kernels) > 0
    program.do("launch b 100")
    monitor.wait_for_count(200_100)
    assert monitor.launches("b") == 100
    cuda.check_unharmed(program)


def test_old_cupti_is_stopped_before_it_would_be_refused_a_buffer(cuda: CudaDouble) -> None:
    """Before 12.9 CUPTI crashes where it is given none, and so does the stand-in."""
    program = cuda.start(version=26, hold=1)
    monitor = program.attach()
    program.do("launch a 100000", "launch a 100000 1")
    monitor.wait(lambda: monitor.state == "failed")
    assert "too many records wait" in monitor.states[-1].reason
    program.do("set hold 0", "launch b 100")
    again = program.attach()
    program.do("launch c 100")
    again.wait(lambda: again.launches("c") == 100)
    again.detach()
    monitor.detach()
    program.wait_until_detached()
    program.do("set fail.cuptiActivityDisable 999")
    program.attach().detach()  # what cannot be switched off goes on asking for buffers
    program.wait_until_detached()
    cuda.check_unharmed(program, "launch d 100000")


def test_buffers_whose_kernels_never_get_their_times_come_back(cuda: CudaDouble) -> None:
    program = cuda.start()
    for _ in range(4):
        monitor = program.attach()
        program.do(f"set duration_ns {10**18}", "launch a 60000", "set duration_ns 0")
        monitor.detach()  # each leaves 95 of the 256 buffers with CUPTI
        program.wait_until_detached()
    monitor = program.attach()
    program.do("launch b 60000")
    monitor.wait(lambda: monitor.launches("b") == 60_000)
    assert monitor.drops == 0
    cuda.check_unharmed(program)


def test_record_that_is_not_complete_is_a_drop(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("set fail.cuptiActivityGetNextRecord 21", "launch a 10")
    monitor.wait(lambda: monitor.drops > 0)
    program.do("set fail.cuptiActivityGetNextRecord 0", "launch b 10")
    monitor.wait(lambda: monitor.launches("b") == 10)
    assert monitor.state == "tracing"
    cuda.check_unharmed(program)


def test_no_memory_for_buffers_or_monitors(cuda: CudaDouble) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10")
    monitor.wait_for_count(10)
    program.do("limit 0", "launch b 50000")
    monitor.wait_for_count(50_010)
    assert monitor.drops > 0
    late = program.attach()
    late.detach()
    cuda.check_unharmed(program)


def test_no_memory_for_records_is_told(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.do("load libcupti.so.13", "limit 3000000")  # records take 11 MB
    monitor = program.attach("failed")
    assert monitor.states[-1].reason == "the program has no memory to spare for records"
    cuda.check_unharmed(program, "launch a 10")


def test_no_memory_for_a_monitor_ends_the_connection(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.do("limit 0")
    monitor = TraceMonitor(program.endpoint())

    def refused() -> (
        bool
    ):  # by a closed connection; or told, where the C library had memory in reserve
        monitor.events += monitor.connection.receive()
        return monitor.connection.closed is not None or monitor.state == "failed"

    wait_for(refused)
    cuda.check_unharmed(program, "launch a 10")


def test_late_buffers_find_their_place(cuda: CudaDouble) -> None:
    """CUPTI's own thread returns full buffers when the monitor has long gone, and another has come."""
    program = cuda.start(late_ms=150)
    for _ in range(3):
        monitor = program.attach()
        program.do("launch a 3000")
        monitor.detach()
        program.wait_until_detached()
        program.do("launch between 2000")
    last = program.attach()
    program.do("launch last 2000")
    last.wait(lambda: last.launches("last") == 2000)
    assert last.launches("between") == 0
    assert last.drops == 0
    cuda.check_unharmed(program)


def test_exit_does_not_wait_for_a_flush_that_hangs(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.attach()
    program.do("set stuck_ms 15000")
    time.sleep(0.1)  # the thread is in it
    began = time.monotonic()
    cuda.check_unharmed(program, "launch a 10", "exit 5")
    assert time.monotonic() - began < 10


def test_profiler_of_the_program_sees_all_before_and_after(cuda: CudaDouble) -> None:
    program = cuda.start()
    assert program.do("profile start", "launch a 200", "profile stop") == ["profiled 200"]
    monitor = program.attach()
    program.do("launch b 10")
    monitor.wait_for_count(10)
    monitor.detach()
    program.wait_until_detached()
    assert program.do("profile start", "launch c 200", "profile stop") == ["profiled 200"]
    cuda.check_unharmed(program)


@pytest.mark.parametrize("own_timestamp", [0, 1])
def test_clock_that_the_programs_profiler_left_is_set_right(
    cuda: CudaDouble, own_timestamp: int
) -> None:
    """torch.profiler gives CUPTI the processor's ticks for a clock, and leaves it so."""
    program = cuda.start(own_timestamp=own_timestamp)
    program.do("profile start", "launch a 10", "profile stop")
    monitor = program.attach()
    before = time.time_ns()
    program.do("launch b 100")
    monitor.wait_for_count(100)
    assert monitor.drops == (100 if own_timestamp else 0)  # where only the records can tell

    def clock_is_right() -> bool:
        program.do("launch c 1")
        return monitor.launches("c") > 0

    monitor.wait(clock_is_right)
    program.do("launch d 2000")
    monitor.wait(lambda: monitor.launches("d") == 2000)
    assert before < monitor.kernels["start_ns"].min()
    assert monitor.kernels["end_ns"].max() < time.time_ns()
    cuda.check_unharmed(program)


def test_attach_notices_that_it_displaced_a_profiler(cuda: CudaDouble) -> None:
    program = cuda.start()
    program.do("profile start", "launch a 200")
    monitor = program.attach()
    monitor.wait(lambda: monitor.states[-1].reason != "")
    assert monitor.states[-1].state == "tracing"
    assert monitor.states[-1].reason == (
        "the program's own profiler was running: it sees nothing from the attach on"
    )
    program.do("launch b 10")
    monitor.wait(lambda: monitor.launches("b") == 10)
    assert program.finish()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_displaced_library_yields_and_says_so(cuda: CudaDouble, busy: bool) -> None:
    program = cuda.start()
    monitor = program.attach()
    program.do("launch a 10")
    monitor.wait_for_count(10)
    program.do("profile start")
    program.start("launch b 80000 200" if busy else "launch b 100")
    monitor.wait(lambda: monitor.state == "yielded")
    assert monitor.states[-1].reason == "the program's own profiler took CUPTI over"
    program.wait("launch done")
    (profiled,) = program.do("profile stop")
    # What had begun in a buffer of ours is lost to the other profiler, up to one buffer.
    assert int(profiled.split()[1]) >= (79_000 if busy else 100)
    monitor.detach()
    program.wait_until_detached()
    assert program.do("profile start", "launch c 50", "profile stop") == ["profiled 50"]
    again = program.attach()  # on the user's word it takes over again
    program.do("launch d 20")
    again.wait(lambda: again.launches("d") == 20)
    assert program.finish()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"hold": 1}, {"version": 28, "global": 1, "hold": 1}, {"tells_once": 1}],
    ids=["idle", "long", "old", "tells once"],
)
def test_silence_alone_is_no_displacement(cuda: CudaDouble, settings: dict[str, int]) -> None:
    """An idle program, a kernel that runs for long, that with a CUPTI that has one buffer for all, and one
    that does not answer twice."""
    program = cuda.start(**settings)
    monitor = program.attach()
    program.do("launch a 5")
    time.sleep(2.5)  # four times what it takes to yield
    program.do("set hold 0", "launch b 5")
    monitor.wait_for_count(10)
    assert monitor.state == "tracing"
    cuda.check_unharmed(program)


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096
