"""The programs of the benchmark of the counters, and the watch around the traced one."""

from dataclasses import dataclass
from typing import Any

from asked_program import core_apart
from counter_accuracy import Part, parts_of
from counter_watch import Loads, Seen, Watch

SETTLE_S = 15.0
"""A launch is in a result at most this late: ten seconds until it is told, and one of a window."""


class UnavailableError(Exception):
    """What a section needs is not here."""


@dataclass(frozen=True)
class Phase:
    """A workload that ran, the kernels that it launched, and when it was looked at."""

    answer: dict[str, Any]
    parts: list[Part]
    seen: Seen


class Bench:
    """The programs, to be started by `restart`, and the watch around the traced one."""

    program: Loads
    beside: Loads  # where it was asked for

    def __init__(self, seconds: float, *, with_beside: bool) -> None:
        self._core = core_apart()
        self._with_beside = with_beside
        self.seconds = seconds
        self.phases: dict[str, Phase] = {}
        self.costs: list[float] = []
        self._watch: Watch | None = None
        self._problems: dict[int, str] = {}  # why samples of some length are not to be had
        self._programs: list[Loads] = []

    def restart(self) -> None:
        """Start the programs, anew where they run. Raises ProgramError, RoofmonError."""
        self.close()
        self.program = self._start(traced=True, core=self._core)
        if self._with_beside:
            self.beside = self._start(traced=False)
        for program in self._programs:
            program.wait_ready()

    def watch(self, interval_us: int, *, fresh: bool = False) -> Watch:
        """A watch whose counters are sampled. A fresh one knows nothing of what ran before."""
        known = self._watch
        usable = known is not None and not known.failure and known.interval_us == interval_us
        if known is not None and usable and not fresh:
            return known
        if interval_us in self._problems:
            raise UnavailableError(self._problems[interval_us])
        self.unwatch()
        watch = self._watch = Watch(self.program.process.pid, interval_us)
        if watch.wait(lambda seen: seen.attached, 20) is None:
            states = watch.seen.snapshot.traced if watch.seen is not None else ()
            self.unwatch()
            raise UnavailableError(f"the program is not traced: {watch.failure or states}")
        self.program.run("add", 0.05)  # the worker is started with the first kernel
        if problem := watch.wait_sampling():
            self.unwatch()
            self._problems[interval_us] = problem
            raise UnavailableError(problem)
        return watch

    def unwatch(self) -> None:
        """Detach, and give the counters back."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            if said := watch.log():
                print(f"  the worker said: {said}", flush=True)

    def run(self, watch: Watch, names: list[str], seconds: float) -> dict[str, Phase]:
        """Workloads one after the other; each is looked at when all of it has been attributed."""
        answers = []
        for name in names:
            answer = self.program.run(name, seconds)
            if "error" in answer:
                print(f"  {name}: n/a, {answer['error']}")
            else:
                answers.append(answer)
        if not answers:
            return {}
        last_ns = answers[-1]["end_ns"]
        if watch.wait(lambda seen: seen.counted_ns > last_ns, SETTLE_S) is None:
            raise UnavailableError(watch.failure or "the watch stands still")
        found = {}
        for answer in answers:
            seen = next(s for s in watch.history if s.counted_ns > answer["end_ns"])
            launches = watch.launches(answer["start_ns"], answer["end_ns"])
            parts = parts_of(seen.snapshot, launches, answer["iterations"])
            found[answer["name"]] = Phase(answer, parts, seen)
        return found

    def close(self) -> None:
        """End the programs and the watch."""
        self.unwatch()
        while self._programs:
            self._programs.pop().close()

    def _start(self, *, traced: bool, core: int | None = None) -> Loads:
        self._programs.append(Loads(traced=traced, core=core))
        return self._programs[-1]
