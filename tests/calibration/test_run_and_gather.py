"""What a calibration says while it runs, and what it makes of it: the measuring process and its reader."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from roofmon.calibration.bench_messages import (
    Begun,
    BenchMessage,
    Disturbed,
    Failed,
    Inapplicable,
    Measured,
    Phase,
    Said,
)
from roofmon.calibration.gather import Gathered
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Probe
from roofmon.calibration.run import NotApplicableError, measure_all
from roofmon.errors import RoofmonError
from roofmon.model.roofline import Ceiling, Conditions
from roofmon.resources import probes_dir
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs

EVERY = {probe.name: probe for probe in load_probes([probes_dir()])[0]}
TRIAD, L2, FMA = (EVERY[name] for name in ("gpu-dram-triad", "gpu-l2-read", "gpu-fma-fp32"))
CONDITIONS = Conditions(device="GPU-1")


def ceiling(probe: Probe, value: float = 1e12, *flags: str) -> Ceiling:
    return Ceiling(
        kind=probe.kind,
        value=value,
        ci_low=value,
        ci_high=value,
        regime="sustained" if probe.kind == "bandwidth" else "issue",
        n=20,
        probe=probe.name,
        level=probe.level,
        pipe=probe.pipe,
        flags=flags,
    )


@dataclass
class Bench:
    """Gives a ceiling, or raises what it is told to; breaks at one probe."""

    failing: dict[str, Exception] = field(default_factory=dict)
    breaks_at: str = ""
    measured: list[str] = field(default_factory=list)

    def measure(self, probe: Probe) -> Ceiling:
        self.measured.append(probe.name)
        if probe.name in self.failing:
            raise self.failing[probe.name]
        return ceiling(probe)

    def broken(self) -> bool:
        return self.measured[-1] == self.breaks_at


@dataclass
class Load:
    """Others at work, as told at once (one answer a question) or late."""

    answers: list[bool] = field(default_factory=list)
    late: bool = False
    prompt: bool = True
    resource: str = "GPU"

    def begin(self) -> None: ...

    def contended(self) -> bool:
        return self.answers.pop(0) if self.answers else False

    def contended_late(self, began_us: int, ended_us: int) -> bool:
        assert began_us <= ended_us
        return self.late

    def culprit(self) -> str | None:
        return "python (process 7)"


def said(
    bench: Bench, load: Load, probes: Sequence[Probe] = (TRIAD, L2)
) -> tuple[bool, list[BenchMessage]]:
    messages: list[BenchMessage] = []
    return measure_all(bench, load, probes, messages.append), messages


def kinds(messages: Sequence[BenchMessage]) -> list[str]:
    return [type(message).__name__ for message in messages]


def test_each_probe_begins_and_ends() -> None:
    finished, messages = said(Bench(), Load())
    assert finished
    assert kinds(messages) == ["Begun", "Measured", "Phase"] * 2


def test_what_fails_is_told_and_the_next_goes_on() -> None:
    bench = Bench({TRIAD.name: RoofmonError("no room"), L2.name: ValueError("odd")})
    finished, messages = said(bench, Load(), [TRIAD, L2, FMA])
    assert finished
    assert [(m.probe, m.reason) for m in messages if isinstance(m, Failed)] == [
        (TRIAD.name, "no room"),
        (L2.name, "odd"),
    ]
    assert [m.ceiling.probe for m in messages if isinstance(m, Measured)] == [FMA.name]


def test_a_broken_process_measures_nothing_more() -> None:
    bench = Bench({TRIAD.name: RuntimeError("illegal address")}, breaks_at=TRIAD.name)
    finished, messages = said(bench, Load())
    assert not finished
    assert kinds(messages) == ["Begun", "Failed", "Phase"]


def test_what_was_disturbed_is_measured_once_more_where_that_tells_something() -> None:
    # Before the first, during it, not during the second, not when it is repeated.
    bench = Bench()
    _, messages = said(bench, Load([True, True, False, False]))
    assert messages[0] == Disturbed("python (process 7) uses the GPU")
    assert bench.measured == [TRIAD.name, L2.name, TRIAD.name]
    flags = [m.ceiling.flags for m in messages if isinstance(m, Measured)]
    assert flags == [("contended",), (), ()]
    assert not any(isinstance(m, Said) for m in messages)


def test_what_is_told_late_is_marked_late_and_not_repeated() -> None:
    bench = Bench()
    _, messages = said(bench, Load(late=True, prompt=False))
    assert bench.measured == [TRIAD.name, L2.name]
    last = {m.ceiling.probe: m.ceiling.flags for m in messages if isinstance(m, Measured)}
    assert last == {TRIAD.name: ("contended",), L2.name: ("contended",)}
    (verdict,) = [m.notice.what for m in messages if isinstance(m, Said)]
    assert "python (process 7) used the GPU during gpu-dram-triad, gpu-l2-read" in verdict


def gathered(before: Sequence[Ceiling] = ()) -> tuple[Gathered, list[Message]]:
    messages: list[Message] = []
    return Gathered("GPU-1", [TRIAD, L2, FMA], CONDITIONS, messages.append, before), messages


def take_all(into: Gathered, *messages: BenchMessage) -> None:
    for message in messages:
        into.take(message)


def values(messages: Sequence[Message]) -> list[dict[str, float]]:
    return [
        {c.probe: c.value for c in m.roofline.ceilings} for m in messages if isinstance(m, Roofs)
    ]


def test_roofs_grow_and_progress_counts() -> None:
    into, messages = gathered()
    take_all(into, Begun(TRIAD.name), Measured(ceiling(TRIAD, 4e12)), Phase(TRIAD.name, 0.1))
    take_all(into, Begun(L2.name), Failed(L2.name, "wrong"), Phase(L2.name, 0.2))
    take_all(into, Begun(FMA.name), Measured(ceiling(FMA, 6e13)), Phase(FMA.name, 0.3))
    result = into.finish("full", (), {"gpu-nvlink-copy": "no second GPU"})
    assert values(messages) == [{TRIAD.name: 4e12}, {TRIAD.name: 4e12, FMA.name: 6e13}]
    progress = [m.progress for m in messages if isinstance(m, ProgressMessage)]
    assert [(p.done, p.total) for p in progress] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert result.failures == {L2.name: "wrong"}
    assert result.not_applicable == {"gpu-nvlink-copy": "no second GPU"}
    assert result.phases == {TRIAD.name: 0.1, L2.name: 0.2, FMA.name: 0.3}
    assert not result.worth_keeping


def test_what_does_not_apply_here_does_not_keep_a_result_from_being_kept() -> None:
    into, _ = gathered()
    take_all(into, Begun(TRIAD.name), Measured(ceiling(TRIAD)))
    assert into.finish("full", (), {"gpu-nvlink-copy": "no second GPU"}).worth_keeping


def test_a_counter_that_cannot_be_had_is_neither_a_failure_nor_a_warning() -> None:
    bench = Bench({L2.name: NotApplicableError("ncu (7) runs")})
    finished, said_of_it = said(bench, Load(), [TRIAD, L2, FMA])
    assert finished
    assert Inapplicable(L2.name, "ncu (7) runs") in said_of_it
    into, messages = gathered()
    take_all(into, *said_of_it)
    result = into.finish("full", (), {"gpu-nvlink-copy": "no second GPU"})
    assert result.not_applicable == {
        "gpu-nvlink-copy": "no second GPU",
        L2.name: "ncu (7) runs",
    }
    assert [c.probe for c in result.measurements] == [TRIAD.name, FMA.name]
    assert not any(isinstance(m, NoticeMessage) for m in messages)
    assert result.worth_keeping


def test_roofs_of_before_are_shown_until_they_are_measured_or_it_is_over() -> None:
    into, messages = gathered([ceiling(TRIAD, 1e12), ceiling(FMA, 1e13)])
    take_all(into, Begun(TRIAD.name), Measured(ceiling(TRIAD, 4e12)))
    into.finish("full", (), {})
    assert values(messages) == [{TRIAD.name: 4e12, FMA.name: 1e13}, {TRIAD.name: 4e12}]


def test_a_probe_that_fails_the_second_time_keeps_its_first_result() -> None:
    into, messages = gathered()
    take_all(into, Begun(TRIAD.name), Measured(ceiling(TRIAD, 4e12, "contended")))
    take_all(into, Begun(TRIAD.name, True), Failed(TRIAD.name, "died"))
    result = into.finish("full", (), {})
    assert result.failures == {}
    assert [c.value for c in result.measurements] == [4e12]
    assert not any(isinstance(m, NoticeMessage) for m in messages)


def test_others_are_known_of_from_a_word_or_a_mark() -> None:
    tell: list[Callable[[Gathered], None]] = [
        lambda into: into.take(Disturbed("somebody uses the GPU")),
        lambda into: take_all(into, Begun(L2.name), Measured(ceiling(L2, 1e12, "contended"))),
    ]
    for told in tell:
        into, _ = gathered()
        assert not into.disturbed
        told(into)
        assert into.disturbed


def test_too_little_memory_and_too_much_bandwidth_are_told() -> None:
    into, messages = gathered()
    take_all(into, Begun(TRIAD.name), Measured(ceiling(TRIAD, 4e12, "small-set")))
    take_all(into, Begun(FMA.name), Measured(ceiling(FMA, 9e13, "over-bound")))
    result = into.finish("full", (), {})
    told = [m.notice.what for m in messages if isinstance(m, NoticeMessage)]
    assert len(told) == 2
    assert "too little free memory" in told[0]
    assert "gpu-fma-fp32 came out above what the hardware can do" in told[1]
    assert not result.worth_keeping
    good = [msgspec.structs.replace(c, flags=()) for c in result.measurements]
    assert msgspec.structs.replace(result, measurements=tuple(good)).worth_keeping
