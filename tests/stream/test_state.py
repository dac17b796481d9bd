"""Messages in, snapshot out: what the consumer knows after ticks, keyframes, resets and contradictions."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.device import DeviceDescription, DeviceProcess, DeviceSample
from roofmon.model.kernel import KernelDescription
from roofmon.model.session import Notice, Progress, Rung
from roofmon.model.table import Column
from roofmon.model.traffic import Traffic
from roofmon.stream.framing import StreamError
from roofmon.stream.messages import (
    VERSION,
    Describe,
    Hello,
    KernelColumns,
    Keyframe,
    Message,
    NoticeMessage,
    ProgressMessage,
    Status,
    Tick,
    WorkValues,
)
from roofmon.stream.state import StreamState

HELLO = Hello(version=VERSION, roofmon="0", host="h", pid=1, time_unix_ns=5)


def kernel(number: int) -> KernelDescription:
    return KernelDescription(id=number, name=f"k{number}", device="cpu-1")


def columns(ids: list[int], launches: list[float], **work: list[float]) -> KernelColumns:
    stats = np.full((len(Column), len(ids)), np.nan)
    stats[Column.LAUNCHES] = launches
    stats[Column.TOTAL_NS] = np.array(launches) * 10
    raw_ids = np.array(ids, "<u4").tobytes()
    return KernelColumns(
        ids=raw_ids,
        stats=stats.astype("<f8").tobytes(),
        columns=len(Column),
        work=[
            WorkValues(
                kind="bytes",
                key=level,
                provenance="declared",
                ids=raw_ids,
                values=np.array(values, "<f8").tobytes(),
                rel_error=np.full(len(ids), np.nan, "<f4").tobytes(),
            )
            for level, values in work.items()
        ],
        histogram_ids=raw_ids,
        histogram_bins=np.full(len(ids), 7, "<u2").tobytes(),
        histogram_counts=np.array(launches, "<u4").tobytes(),
    )


def tick(sequence: int, kernels: KernelColumns, **more: object) -> Tick:
    return Tick(sequence=sequence, time_unix_ns=10, interval_ns=3, kernels=kernels, **more)


def state_after(*messages: Message) -> StreamState:
    state = StreamState()
    for message in (HELLO, *messages):
        state.apply(message)
    return state


def test_columns_of_an_older_and_of_a_newer_roofmon_are_read_as_far_as_they_go() -> None:
    whole = columns([0], [4])
    stats = np.frombuffer(whole.stats)
    for count in (Column.LAUNCH_RATE + 1, len(Column) + 3):
        values = np.resize(stats, count)
        changed = msgspec.structs.replace(whole, stats=values.tobytes(), columns=count)
        table = state_after(Describe(kernels=[kernel(0)]), tick(1, changed)).snapshot().kernels
        assert table.column(Column.TOTAL_NS).tolist() == [40]
        if count < len(Column):
            assert np.isnan(table.column(Column.STREAMS)).all()


def test_activity_and_traced_programs_are_those_of_the_last_tick() -> None:
    activity = Activity(device="GPU-1", start_unix_ns=1, end_unix_ns=2)
    program = TracedProgram(pid=7, name="tr\x1bain", state="attached")
    state = state_after(tick(1, columns([], []), activity=[activity], traced=[program]))
    snapshot = state.snapshot()
    assert snapshot.activity == {"GPU-1": activity}
    assert [(p.pid, p.name) for p in snapshot.traced] == [(7, "tr ain")]
    state.apply(tick(2, columns([], [])))
    assert not state.snapshot().activity
    assert not state.snapshot().traced


def test_later_ticks_change_only_the_kernels_they_name() -> None:
    state = state_after(
        Describe(kernels=[kernel(3), kernel(8)]),
        tick(1, columns([3, 8], [1, 2], dram=[100.0, 200.0])),
        tick(2, columns([8], [5])),
    )
    table = state.snapshot().kernels
    assert [d.name for d in table.descriptions] == ["k3", "k8"]
    assert table.column(Column.LAUNCHES).tolist() == [1, 5]
    assert table.bytes["dram"].values.tolist() == [100.0, 200.0]


def test_a_snapshot_does_not_change_when_the_next_tick_comes() -> None:
    state = state_after(Describe(kernels=[kernel(0)]), tick(1, columns([0], [1])))
    before = state.snapshot()
    state.apply(tick(2, columns([0], [9])))
    assert before.kernels.column(Column.LAUNCHES).tolist() == [1]
    assert before.histograms.of(0)[1].tolist() == [1]
    assert state.snapshot().histograms.of(0)[1].tolist() == [9]


def test_reset_hides_kernels_until_they_run_again() -> None:
    state = state_after(
        Describe(kernels=[kernel(0), kernel(1)]),
        tick(1, columns([0, 1], [4, 4], dram=[1.0, 1.0])),
        tick(2, columns([1], [1]), reset=True),
    )
    table = state.snapshot().kernels
    assert [d.name for d in table.descriptions] == ["k1"]
    assert table.bytes == {}


def test_a_keyframe_replaces_everything() -> None:
    state = state_after(Describe(kernels=[kernel(0)]), tick(1, columns([0], [4])))
    state.apply(
        Keyframe(
            hello=HELLO,
            describe=Describe(kernels=[kernel(5)]),
            tick=tick(9, columns([5], [2])),
            roofs=[],
            status=Status(rungs=[], programs={7: "train.py"}),
            notices=[Notice(severity="info", what="n")],
            progress=[Progress(task="calibration", device="cpu-1", done=1, total=3)],
        )
    )
    snapshot = state.snapshot()
    assert [d.name for d in snapshot.kernels.descriptions] == ["k5"]
    assert snapshot.programs == {7: "train.py"}
    assert [n.what for n in snapshot.notices] == ["n"]


def test_progress_is_shown_with_its_device_and_gone_when_done() -> None:
    device = DeviceDescription(uuid="cpu-1", index=0, name="CPU", kind="cpu")
    state = state_after(
        Describe(devices=[device]),
        ProgressMessage(progress=Progress(task="c", device="cpu-1", done=1, total=2)),
    )
    shown = state.snapshot().devices[0].progress
    assert shown is not None
    assert shown.done == 1
    state.apply(ProgressMessage(progress=Progress(task="c", device="cpu-1", done=2, total=2)))
    assert state.snapshot().devices[0].progress is None


def test_many_kernels_and_many_notices_stay_bounded() -> None:
    state = state_after(
        Describe(kernels=[kernel(i) for i in range(1000)]),
        tick(1, columns(list(range(1000)), [1.0] * 1000, dram=[2.0] * 1000)),
    )
    for i in range(500):
        state.apply(NoticeMessage(notice=Notice(severity="info", what=str(i))))
    snapshot = state.snapshot()
    assert len(snapshot.kernels) == 1000
    assert len(snapshot.notices) <= 50
    assert snapshot.notices[-1].what == "499"


BAD = KernelColumns(ids=np.array([0], "<u4").tobytes(), stats=b"\0" * 8, columns=1)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (tick(1, columns([4], [1])), "no description"),
        (tick(1, BAD), "do not fit"),
        (tick(1, KernelColumns(ids=b"\0\0\0")), "cut short"),
        (tick(1, KernelColumns(histogram_ids=b"\0\0\0\0")), "not one"),
        (msgspec.structs.replace(HELLO, version=99), "version 99"),
    ],
)
def test_a_message_against_the_protocol_is_refused(bad: Message, says: str) -> None:
    state = state_after(Describe(kernels=[kernel(0)]))
    with pytest.raises(StreamError, match=says):
        state.apply(bad)


def test_work_of_an_unknown_kind_is_refused() -> None:
    work = WorkValues(
        kind="flops", key="vector/fp7", provenance="declared", ids=b"", values=b"", rel_error=b""
    )
    with pytest.raises(StreamError, match="fp7"):
        state_after(tick(1, KernelColumns(work=[work])))


@settings(max_examples=200)
@given(
    ids=st.binary(max_size=16),
    stats=st.binary(max_size=300),
    count=st.integers(0, 40),
    bins=st.binary(max_size=8),
    counts=st.binary(max_size=16),
)
def test_arrays_of_any_bytes_raise_stream_error_or_are_taken(
    ids: bytes, stats: bytes, count: int, bins: bytes, counts: bytes
) -> None:
    state = state_after(Describe(kernels=[kernel(0)]))
    message = KernelColumns(
        ids=ids,
        stats=stats,
        columns=count,
        histogram_ids=ids,
        histogram_bins=bins,
        histogram_counts=counts,
    )
    try:
        state.apply(tick(1, message))
    except StreamError:
        return
    state.snapshot()


def test_samples_are_kept_per_device() -> None:
    device = DeviceDescription(uuid="cpu-1", index=0, name="CPU", kind="cpu")
    sample = DeviceSample(device="cpu-1", time_unix_ns=1, load=0.5)
    state = state_after(
        Describe(devices=[device]),
        tick(1, KernelColumns(), samples=[sample]),
        tick(2, KernelColumns()),
    )
    assert state.snapshot().devices[0].sample == sample


def test_no_escape_sequence_of_a_stream_reaches_the_screen() -> None:
    evil = "a\x1b]0;owned\x07b\u202e"
    described = KernelDescription(
        id=0, name=evil, device="cpu-1", process=evil, reasons={"time": evil}
    )
    state = state_after(
        msgspec.structs.replace(HELLO, host=evil),
        Describe(
            kernels=[described],
            devices=[DeviceDescription(uuid="cpu-1", index=0, name=evil, kind="cpu")],
        ),
        tick(
            1,
            columns([0], [1]),
            samples=[
                DeviceSample(
                    device="cpu-1",
                    time_unix_ns=1,
                    event_reasons=(evil,),
                    processes=(DeviceProcess(pid=1, name=evil, user=evil),),
                    missing={"load": evil},
                )
            ],
        ),
        NoticeMessage(notice=Notice(severity="info", what=evil, fix=evil)),
        Status(rungs=[Rung(rung="cpu", state="active", reason=evil)], programs={1: evil}),
    )
    shown = state.snapshot()
    texts = repr((shown.host, shown.devices, shown.kernels, shown.notices, shown.rungs))
    assert "owned" in texts
    assert all(bad not in texts + shown.programs[1] for bad in ("\\x1b", "\\x07", "\\u202e"))
    assert "\x1b" not in shown.programs[1]


def test_the_traffic_of_the_last_tick_replaces_that_of_the_one_before() -> None:
    state = StreamState()
    state.apply(HELLO)
    traffic = Traffic(
        device="GPU-1", dram_bytes_per_s=2e9, others=("b\x1b[31mad 7",), missing={"clock_hz": "no"}
    )
    decoded = msgspec.msgpack.decode(
        msgspec.msgpack.encode(Tick(sequence=1, time_unix_ns=1, interval_ns=1, traffic=[traffic])),
        type=Message,
    )
    state.apply(decoded)
    (found,) = state.snapshot().traffic.values()
    assert (found.dram_bytes_per_s, found.attributed_bytes_per_s) == (2e9, None)
    assert "\x1b" not in found.others[0]
    state.apply(Tick(sequence=2, time_unix_ns=2, interval_ns=1))
    assert state.snapshot().traffic == {}
