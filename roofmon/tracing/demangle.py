"""Demangled and short names of kernels, made by a process of its own.

The demangler is the C++ runtime's (`demangle_worker`), the one that c++filt and debuggers use. Names come
from outside: a crafted one of a kilobyte can expand to gigabytes, or make a search go on and on. So it
works in a process with a bound on its memory, which is given a second for a name, and half a minute for
all that take long. What fails keeps its mangled name, with the reason.
"""

import os
import select
import subprocess
import time
from collections.abc import Sequence

import msgspec

from roofmon.resources import python_module

_PATIENCE_S = 1.0
_PATIENCE_IN_ALL_S = 30.0
_STARTS = 4
"""A worker that died this often is not started again: the names would have to be made to kill it."""
_BATCH = 200
_LONGEST_SHORT = 80
NO_WORKER = "the demangler fails here: see the log"
TOO_SLOW = "it could not be demangled: the demangler gave up"
UNKNOWN = "it could not be demangled: not known to this machine's C++ runtime"


class Demangled(msgspec.Struct, frozen=True):
    """`full` is the name in full, or as it came with the `reason` why; `short` is for the table."""

    full: str
    short: str
    reason: str = ""


class Demangler:
    """Demangles names in batches, and remembers nothing: whoever asks keeps the answers."""

    def __init__(self, log: int = subprocess.DEVNULL) -> None:
        self._log = log
        self._worker: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._spent_s = 0.0

    def demangle(self, names: Sequence[str]) -> list[Demangled]:
        """The names in full and in short, in the same order; a second at most for each that resists."""
        found = {name: _as_it_is(name, "") for name in names}
        asked = [name for name in found if name.isprintable() and "\t" not in name]
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            found.update(zip(batch, self._ask(batch), strict=True))
        return [found[name] for name in names]

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.communicate()

    def _ask(self, names: list[str]) -> list[Demangled]:
        """Asks for the batch; where the worker fails, for the rest of it after the name at fault."""
        answers: list[Demangled] = []
        while len(answers) < len(names):
            if self._worker is None and not self._start():
                left = names[len(answers) :]
                return answers + [_as_it_is(name, NO_WORKER) for name in left]
            rest = names[len(answers) :]
            began = time.monotonic()
            lines = self._exchange("".join(f"{name}\n" for name in rest).encode(), len(rest))
            # Thousands of names take a fraction of a second.
            self._spent_s += time.monotonic() - began
            if self._spent_s > _PATIENCE_IN_ALL_S:
                self.close()
            answers += map(_answer, rest, lines)
            if len(lines) < len(rest):
                self.close()
                answers.append(_as_it_is(rest[len(lines)], TOO_SLOW))
        return answers

    def _start(self) -> bool:
        if self._starts >= _STARTS or self._spent_s > _PATIENCE_IN_ALL_S:
            return False
        self._starts += 1
        self._worker = subprocess.Popen(
            python_module("roofmon.tracing.demangle_worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        os.set_blocking(self._worker.stdin.fileno(), False)
        os.set_blocking(self._worker.stdout.fileno(), False)
        # Its own start is not counted as time spent on a name.
        select.select([self._worker.stdout], [], [], 5.0)
        return True

    def _exchange(self, question: bytes, count: int) -> list[str]:
        """Writes and reads side by side, since either pipe may fill; ends early with what has come."""
        worker = self._worker
        assert worker is not None
        assert worker.stdin is not None
        assert worker.stdout is not None
        deadline = time.monotonic() + _PATIENCE_S
        answered = 0
        answer, waiting = bytearray(), memoryview(question)
        while answered < count:
            writable = [worker.stdin] if waiting else []
            left = max(0.0, deadline - time.monotonic())
            ready, free, _ = select.select([worker.stdout], writable, [], left)
            if not ready and not free:
                break
            try:
                if free:
                    waiting = waiting[os.write(worker.stdin.fileno(), waiting) :]
                if ready:
                    data = os.read(worker.stdout.fileno(), 1 << 16)
                    if not data:
                        break
                    answer += data
                    if answered < (answered := answer.count(b"\n")):
                        deadline = time.monotonic() + _PATIENCE_S
            except OSError:
                break
        whole = answer[: answer.rfind(b"\n") + 1].decode(errors="replace")
        return [line.lstrip("\r") for line in whole.split("\n")[:-1]]


def _answer(name: str, line: str) -> Demangled:
    """What the worker says of a name: its short form and, where it was mangled, the full one."""
    short, _, full = line.partition("\t")
    unknown = not full and name.startswith("_Z")
    return Demangled(full or name, short or name, UNKNOWN if unknown else "")


def _as_it_is(name: str, reason: str) -> Demangled:
    short = name if len(name) <= _LONGEST_SHORT else f"{name[: _LONGEST_SHORT - 1]}…"
    return Demangled(name, short, reason)
