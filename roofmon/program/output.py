"""What a program wrote, as lines for a pane: enough of a terminal for progress bars and colours.

Carriage returns, backspaces, tabs and "erase to the end of the line" do what they do; colours and all
other escape sequences are left out, so nothing of the program's reaches the user's terminal.
"""

import codecs
import re
import threading
from collections import deque

_LINES = 2_000
_LONGEST_LINE = 1_000
_TOKEN = re.compile(
    r"\x1b\[(?P<sequence>[0-?]*[ -/]*[@-~])"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"  # strings, as window titles
    r"|\x1b[ -/]*[0-~]"
    r"|(?P<control>[\x00-\x1f\x7f])"
    r"|(?P<text>[^\x00-\x1f\x7f]+)",
    re.DOTALL,
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?\Z")


class Output:
    """The last lines. Written to by one thread, read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._line = ""
        self._column = 0
        self._rest = ""
        self.version = 0
        """Rises with each write, so that a reader knows whether there is something new."""

    def write(self, data: bytes) -> None:
        """Takes what the program wrote, split anywhere."""
        with self._lock:
            text = self._rest + self._decoder.decode(data)
            unfinished = _UNFINISHED.search(text)
            self._rest = text[unfinished.start() :] if unfinished else ""
            for match in _TOKEN.finditer(text, 0, len(text) - len(self._rest)):
                if match["text"]:
                    self._put(match["text"])
                elif match["control"]:
                    self._control(match["control"])
                elif (match["sequence"] or "").endswith("K"):
                    self._line = self._line[: self._column]
            self.version += 1

    def tail(self, count: int) -> list[str]:
        """The last `count` lines; the one being written only when something stands in it."""
        with self._lock:
            lines = [*self._lines, self._line] if self._line else list(self._lines)
        return lines[-count:] if count > 0 else []

    def _put(self, text: str) -> None:
        text = text[: max(0, _LONGEST_LINE - self._column)]
        before = self._line[: self._column].ljust(self._column)
        self._line = before + text + self._line[self._column + len(text) :]
        self._column += len(text)

    def _control(self, control: str) -> None:
        match control:
            case "\n" | "\v" | "\f":
                self._lines.append(self._line.rstrip())
                self._line, self._column = "", 0
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\t":
                self._put(" " * (8 - self._column % 8))
            case _:
                pass
