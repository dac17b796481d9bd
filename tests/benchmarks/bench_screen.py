"""What the live screen costs: first frame, CPU, memory and painted bytes, at 120×40 and 2 Hz.

    python tests/benchmarks/bench_screen.py [--seconds 20] [--only demo|5000]

It runs the real program in a pseudo-terminal and counts the CPU time of its whole process tree, less the
programs that it watches, through /proc. Times need a quiet machine.
"""

import argparse
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

COLUMNS, ROWS = 120, 40
FEED = Path(__file__).with_name("feed_5000.py")
ROOFMON = (sys.executable, "-m", "roofmon")
FIRST_FRAME_LIMIT_S = 60.0
QUIT_LIMIT_S = 10.0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Case:
    """A program to measure.

    Processes whose command line contains `watched`, and their children, are what the screen shows, not
    what it costs. `settle_s` is how long after the first frame the measurement begins: by then the roofs
    have been measured and every kernel has appeared. The first frame is the first that says `started`;
    the live screen with its keys is there when it says `ready`.
    """

    name: str
    command: tuple[str, ...]
    watched: str
    settle_s: float
    started: bytes = b"roofmon"
    ready: bytes = b" quit"


CASES = {
    # Roofs are measured first where none are in the cache, which takes about 15 s.
    "demo": Case("demo", (*ROOFMON, "demo"), "-m roofmon.demo", 30.0),
    "5000": Case(
        "5,000 kernels",
        (*ROOFMON, "live", "--collector", shlex.join([sys.executable, str(FEED)])),
        FEED.name,
        10.0,
    ),
}


@dataclass(frozen=True)
class Cost:
    """What was measured; None where the program ended before."""

    first_frame_s: float | None
    ready_s: float | None
    screen_percent: float | None  # of one core: the screen itself, and all its children together
    children_percent: float | None
    rss_mib: float | None
    painted_bytes_per_s: float | None
    quit_s: float | None


class Processes:
    """The process tree of a program, less what it watches, as /proc shows it."""

    def __init__(self, root: int, watched: str) -> None:
        self._root = root
        self._watched = watched

    def cpu_s(self) -> dict[int, float]:
        """CPU time of each process so far, in s."""
        used = {}
        for pid in self._members():
            if fields := _stat(pid):
                used[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        return used

    def rss_mib(self) -> float:
        """Resident memory of all of them; pages that they share count for each."""
        pages = 0
        for pid in self._members():
            if text := _read(f"/proc/{pid}/statm"):
                pages += int(text.split()[1])
        return pages * _PAGE_BYTES / 2**20

    def _members(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (fields := _stat(int(entry.name))):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        members, waiting = [], [self._root]
        while waiting:
            pid = waiting.pop()
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
            # The screen itself names the feed in its arguments.
            if pid != self._root and self._watched in command:
                continue
            members.append(pid)
            waiting += children.get(pid, [])
        return members


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:  # it has ended meanwhile
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, which may hold spaces and parentheses."""
    text = _read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2 :].split() if text else []


class Terminal:
    """A program in a pseudo-terminal of ours; `pump` plays the terminal."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self.painted = 0
        self.seen = b""
        self.ended = False
        self.started = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(command[0], command, environment)
            finally:  # never back into this program's code
                os._exit(127)
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)

    def pump(self, seconds: float, until: bytes | None = None) -> None:
        """Take what is painted for so long, or until it holds a text, and answer as a terminal would."""
        end = time.perf_counter() + seconds
        while not self.ended and (left := end - time.perf_counter()) > 0:
            if until is not None and until in self.seen:
                return
            if not select.select([self._fd], [], [], left)[0]:
                return
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # how Linux tells that the last process has closed the terminal
                data = b""
            self.ended = not data
            self.painted += len(data)
            self.seen = (self.seen + data)[-65536:]
            if b"\x1b[6n" in data:  # where is the cursor?
                os.write(self._fd, b"\x1b[1;1R")
            if b"\x1b[c" in data:  # what are you?
                os.write(self._fd, b"\x1b[?62;c")

    def seconds_until(self, text: bytes) -> float | None:
        """Seconds from the start until `text` was painted; None where it was not in good time."""
        self.pump(FIRST_FRAME_LIMIT_S, until=text)
        return time.perf_counter() - self.started if text in self.seen else None

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._fd, keys)

    def close(self) -> None:
        """End the program if it still runs; whatever it started ends when it is gone."""
        os.close(self._fd)  # the terminal hangs up, which should be enough
        for number in (signal.SIGTERM, signal.SIGKILL):
            for _ in range(20):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return
                time.sleep(0.1)
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)


def measure(case: Case, seconds: float, environment: dict[str, str]) -> Cost:
    """Run one case and measure it for `seconds` after it has settled."""
    terminal = Terminal(case.command, environment)
    processes = Processes(terminal.pid, case.watched)
    screen = children = rss = rate = quit_s = None
    try:
        first_frame, ready = (terminal.seconds_until(text) for text in (case.started, case.ready))
        terminal.pump(case.settle_s)
        before, painted, begun = processes.cpu_s(), terminal.painted, time.perf_counter()
        terminal.pump(seconds)
        if not terminal.ended:
            took, after = time.perf_counter() - begun, processes.cpu_s()
            percent = {pid: (s - before.get(pid, 0.0)) / took * 100 for pid, s in after.items()}
            screen = percent.pop(terminal.pid)
            children = sum(percent.values())
            rss = processes.rss_mib()
            rate = (terminal.painted - painted) / took
            asked = time.perf_counter()
            terminal.type(b"q")
            terminal.pump(QUIT_LIMIT_S)
            quit_s = time.perf_counter() - asked if terminal.ended else None
        else:
            print(f"{case.name} ended by itself, having said:", terminal.seen[-1000:])
    finally:
        terminal.close()
    return Cost(first_frame, ready, screen, children, rss, rate, quit_s)


def shown(value: float | None, format_spec: str) -> str:
    """A number of the table."""
    return "n/a" if value is None else format(value, format_spec)


def main() -> int:
    """Measure the cases and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=CASES)
    arguments = parser.parse_args()
    print(
        f"{'':16}{'first frame':>12}{'keys':>8}{'screen':>9}{'children':>10}"
        f"{'memory':>10}{'painted':>12}{'q':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="roofmon-bench-") as home:
        # The cache of measured roofs is the user's own: measuring them anew is another benchmark.
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "XDG_CONFIG_HOME": home,
            "XDG_RUNTIME_DIR": home,
        }
        for key, case in CASES.items():
            if arguments.only in (None, key):
                cost = measure(case, arguments.seconds, environment)
                print(
                    f"{case.name:16}{shown(cost.first_frame_s, '.2f'):>10} s"
                    f"{shown(cost.ready_s, '.2f'):>6} s"
                    f"{shown(cost.screen_percent, '.1f'):>7} %"
                    f"{shown(cost.children_percent, '.1f'):>8} %{shown(cost.rss_mib, '.0f'):>6} MiB"
                    f"{shown(cost.painted_bytes_per_s, ',.0f'):>8} B/s"
                    f"{shown(cost.quit_s, '.2f'):>6} s",
                    flush=True,
                )
    print(
        "goals: first frame 0.8 s; screen 6 % with the demo, 10 % with 5,000 kernels; its children\n"
        "(collector and telemetry) 3 %; memory 220 MiB; painted 8,000 B/s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
