"""What the process that measures says to the one that watches it, framed like the stream."""

import msgspec

from roofmon.model.roofline import Ceiling
from roofmon.model.session import Notice


class Phase(msgspec.Struct, frozen=True, tag="phase"):
    """A step has ended: what it was, and how long it took."""

    name: str
    seconds: float


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A probe begins; `again` where it was measured before. Until the next message of its end, a death or
    a silence of the process is this probe's fault."""

    probe: str
    again: bool = False


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """The result of a probe; a later one replaces it."""

    ceiling: Ceiling


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A probe gives no result."""

    probe: str
    reason: str


class Inapplicable(msgspec.Struct, frozen=True, tag="inapplicable"):
    """A probe has nothing to measure with here, and that is no failure."""

    probe: str
    reason: str


class Disturbed(msgspec.Struct, frozen=True, tag="disturbed"):
    """Before the first probe, somebody else is at work already: who, as a sentence."""

    who: str


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A notice for the user."""

    notice: Notice


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing can be measured here at all: a RoofmonError."""

    what: str
    fix: str
    exit_code: int


BenchMessage = Phase | Begun | Measured | Failed | Inapplicable | Disturbed | Said | Refused
