"""A program in a pseudo-terminal of its own, as a test holds it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

SHOW = Path(__file__).parent / "show_made_up.py"


class Terminal:
    """The screen on the made-up session; `sent` is what it has written to the terminal so far."""

    def __init__(self, *arguments: str, size: tuple[int, int] = (100, 30), **env: str) -> None:
        self.sent = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.pop("NO_COLOR", None)
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", **env)
            os.execv(sys.executable, [sys.executable, str(SHOW), *arguments])
        packed = struct.pack("HHHH", size[1], size[0], 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, packed)
        self.before = termios.tcgetattr(self.master)

    def read(self, seconds: float) -> bytes:
        """Read for a while; returns what came."""
        start = len(self.sent)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                break
            try:
                data = os.read(self.master, 65536)
            except OSError:  # nobody has the other end open any more
                break
            self.sent += data
        return self.sent[start:]

    def wait_for(self, text: str, seconds: float = 15.0) -> None:
        """Read until `text` was painted."""
        end = time.monotonic() + seconds
        while text.encode() not in self.sent:
            assert time.monotonic() < end, f"{text!r} never came: {self.said()[-500:]!r}"
            self.read(0.05)

    def write(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def ended(self, seconds: float, *, reading: bool = True) -> tuple[int, float]:
        """Wait for the end; returns exit code and how long it took."""
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                took = time.monotonic() - start
                if reading:
                    self.read(0.2)
                return os.waitstatus_to_exitcode(status), took
            if reading:
                self.read(0.02)
            else:
                time.sleep(0.02)
        raise AssertionError(f"still running after {seconds} s")

    def is_restored(self) -> bool:
        """Whether modes, cursor and main screen are as they were before."""
        return (
            termios.tcgetattr(self.master) == self.before
            and self.sent.rfind(b"\x1b[?1049l") > self.sent.rfind(b"\x1b[?1049h")
            and self.sent.rfind(b"\x1b[?25h") > self.sent.rfind(b"\x1b[?25l")
        )

    def said(self) -> str:
        """What is written on the main screen after the end, without escape sequences."""
        after = self.sent[self.sent.rfind(b"\x1b[?1049l") :].decode(errors="replace")
        return re.sub(r"\x1b\[[?<>=]?[\d;]*[A-Za-z]|\x18", "", after).strip()

    def close(self) -> None:
        """Make sure that nothing is left."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
