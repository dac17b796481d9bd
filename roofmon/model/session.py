"""What is said about the monitoring session itself: rungs of the access ladder, notices, progress."""

from typing import Literal, TypeAlias

import msgspec

Severity: TypeAlias = Literal["info", "warning", "error"]


class Rung(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rung of the access ladder: how far it carries, why it stops there, and the exact fix.

    `active`: giving data; `waiting`: works, nothing to show yet; `off`: not wanted now;
    `unavailable`: cannot be had here, see `reason` and `fix`.
    """

    rung: str
    state: Literal["active", "waiting", "off", "unavailable"]
    reason: str = ""
    fix: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the user about the session itself, not about a kernel."""

    severity: Severity
    what: str
    fix: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a long task is; `done` = `total` ends it."""

    task: str
    device: str
    done: int
    total: int
    text: str = ""
