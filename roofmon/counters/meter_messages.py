"""What the process that meters one counter says (`meter`), framed like the stream."""

import msgspec


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The counter is being sampled."""


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """All samples, in order of time: Unix times in ns, and what was counted between them."""

    start_ns: list[int]
    end_ns: list[int]
    counts: list[float]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The counter cannot be had now, and why; nothing else follows."""

    reason: str


Said = Ready | Counted | Refused
