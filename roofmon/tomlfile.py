"""Reading a TOML file that a person wrote, so that each fault names file, line and key.

`tomllib` forgets where a key stood. What these files hold is one key a line, so a scan of the lines finds
it again: cheaper than a second parser, and at worst (a key inside a multi-line string) it is the line
number of a complaint that is off.
"""

import difflib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofmon.errors import ExitCode, RoofmonError
from roofmon.units import clean

SIZE_LIMIT = 64 * 2**10
"""Bytes. The longest file of this kind is a few kB; a larger one is not what its name says."""

Keys = tuple[str, ...]
"""A key with the tables that hold it: `[keys]` `quit = "Q"` is ("keys", "quit")."""

_DEPTH = 8  # no file of ours nests deeper; ten thousand dots must not cost ten thousand tuples
_WORD = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PATH = rf"{_WORD}(?:\s*\.\s*{_WORD})*"
_TABLE = re.compile(rf"\s*\[\s*({_PATH})\s*\]")
_KEY = re.compile(rf"\s*({_PATH})\s*=")
_PART = re.compile(_WORD)
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True)
class TomlFile:
    """The values of a file, and the line that each key stands on."""

    path: Path
    values: dict[str, Any]
    lines: Mapping[Keys, int] = field(repr=False)

    def place(self, *keys: str) -> str:
        """`FILE:LINE` of a key, of the table around it where it has no line of its own, or `FILE`."""
        for length in range(len(keys), 0, -1):
            if line := self.lines.get(keys[:length]):
                return f"{self.path}:{line}"
        return str(self.path)

    def problem(self, keys: Keys, what: str, fix: str = "") -> RoofmonError:
        """What is wrong with one key, said with its place."""
        return RoofmonError(f"{self.place(*keys)}: {what}", fix, ExitCode.USAGE)


def read_toml(path: Path) -> TomlFile:
    """The file at `path`. Raises RoofmonError where it cannot be read or is not TOML.

    Symbolic links are followed: a dotfile that is a link into a repository is how many people keep
    theirs, and reading it as the user who started us gives away nothing. What is not a regular file
    is refused, since opening a pipe would wait for ever.
    """
    try:
        # O_NONBLOCK matters for pipes only, between the open and the check.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unreadable(path, "it is not a regular file")
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    if len(data) > SIZE_LIMIT:
        raise _unreadable(path, f"it is larger than {SIZE_LIMIT // 1024} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RoofmonError(
            f"{path}:{line}: not UTF-8 text", "save the file as UTF-8", ExitCode.USAGE
        ) from None
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _syntax_error(path, text, str(error)) from None
    return TomlFile(path, values, _key_lines(text))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean "theme"?` for the known word closest to `word`; "" where none is close."""
    # Case aside: Theme is meant as theme.
    folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f'did you mean "{folded[close[0]]}"?' if close else ""


def as_written(value: object) -> str:
    """A value as a complaint shows it: short, on one line, and of a table or a list only that it is one."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return clean(json.dumps(value, ensure_ascii=False, default=str), 60)


def _unreadable(path: Path, why: str) -> RoofmonError:
    return RoofmonError(f"cannot read {path}: {why}", exit_code=ExitCode.USAGE)


def _syntax_error(path: Path, text: str, message: str) -> RoofmonError:
    place = _PLACE.search(message)
    if place is None:
        return RoofmonError(f"{path}: not TOML: {clean(message)}", exit_code=ExitCode.USAGE)
    lines = text.rstrip("\n").split("\n")
    number = int(place[1]) if place[1] else len(lines)
    what = f"{path}:{number}: not TOML: {clean(message[: place.start()])}"
    written = clean(lines[number - 1].strip(), 60) if number <= len(lines) else ""
    return RoofmonError(what, f"the line is: {written}" if written else "", ExitCode.USAGE)


def _key_lines(text: str) -> dict[Keys, int]:
    table: Keys = ()
    lines: dict[Keys, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _TABLE.match(line):
            table = key = _parts(found[1])
        elif found := _KEY.match(line):
            key = table + _parts(found[1])
        else:
            continue
        for length in range(1, min(len(key), _DEPTH) + 1):  # `a.b = 1` is where a stands as well
            lines.setdefault(key[:length], number)
    return lines


def _parts(path: str) -> Keys:
    return tuple(part.strip("\"'") for part in _PART.findall(path))
