"""Recordings: the stream in a file, as it came. `roofmon collect > FILE` makes one as well.

Keyframes make it seekable; a file that ends in the middle of a message (the recorder was killed) is good
up to there.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from roofmon.errors import ExitCode, RoofmonError
from roofmon.stream.framing import Deframer, StreamError
from roofmon.stream.messages import Hello, Keyframe, Message, Tick

_CHUNK = 1 << 20


def create(path: Path) -> int:
    """A new file for a recording, 0600; returns its descriptor. Never overwrites."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise RoofmonError(
            f"{path} exists already", "choose another name; nothing is overwritten", ExitCode.USAGE
        ) from None
    except OSError as error:
        raise RoofmonError(
            f"{path} cannot be written: {error.strerror}", "", ExitCode.USAGE
        ) from None


def read(path: Path) -> Iterator[Message]:
    """The messages of a recording in order, ending early at a damaged or cut place.

    Raises RoofmonError where the file cannot be opened or does not begin like a recording.
    """
    deframer = Deframer(msgspec.msgpack.Decoder(Message))
    begun = False
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                for message in deframer.feed(data):
                    if not begun and not isinstance(message, Hello | Keyframe):
                        raise StreamError("it does not begin with a hello or a keyframe")
                    begun = True
                    yield message
    except OSError as error:
        raise RoofmonError(f"{path} cannot be read: {error.strerror}", "", ExitCode.USAGE) from None
    except StreamError as error:
        if not begun:
            raise RoofmonError(
                f"{path} is not a roofmon recording: {error}",
                "make one with `roofmon record FILE`",
                ExitCode.USAGE,
            ) from None
        return
    if not begun:
        raise RoofmonError(
            f"{path} holds no recording", "make one with `roofmon record FILE`", ExitCode.USAGE
        )


def moment(message: Message) -> int | None:
    """When a message was sent, in ns since the epoch, for those that tell."""
    if isinstance(message, Tick | Hello):
        return message.time_unix_ns
    if isinstance(message, Keyframe):
        return message.tick.time_unix_ns
    return None
