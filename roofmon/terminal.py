"""What the terminal can do, found out before textual is imported and without importing it."""

import codecs
from collections.abc import Mapping
from typing import Literal, TextIO


def unsuitable(env: Mapping[str, str], stdin: TextIO | None, stderr: TextIO | None) -> str | None:
    """Why the screen cannot be shown here; None where it can.

    Standard error counts, not standard output: it is what the screen is drawn on, so that output can
    be redirected while the screen is up.
    """
    for stream, name in ((stdin, "standard input"), (stderr, "standard error")):
        if stream is None or stream.closed or not stream.isatty():
            return f"{name} is not a terminal"
    term = env.get("TERM", "")
    if term in ("", "dumb"):
        return f"the terminal cannot place text (TERM={term or 'is not set'})"
    return None


def draws_unicode(setting: Literal["auto", "on", "off"], encoding: str | None) -> bool:
    """Whether to draw with braille, box and circled characters rather than with ASCII.

    `encoding` is that of the stream drawn on; `auto` asks it, since every other encoding than UTF-8 turns
    braille into `\\u28xx`.
    """
    if setting != "auto":
        return setting == "on"
    try:
        return codecs.lookup(encoding or "").name.startswith("utf-8")
    except LookupError:
        return False
