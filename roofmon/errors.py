"""The one exception that reaches a user: what happened, and what to do about it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; `run` returns the traced program's own instead."""

    OK = 0
    ERROR = 1
    USAGE = 2  # wrong usage or unreadable input
    NO_DEVICE = 3  # no device or no permission
    FINDING = 4  # a finding, only where --fail-on asked for it


class RoofmonError(Exception):
    """A failure that is told to the user as one line, never as a traceback.

    Args:
        what: what happened, naming the file, line or value at fault.
        fix: what the user can do; empty where nothing can be done.
        exit_code: what the command returns.
    """

    def __init__(self, what: str, fix: str = "", exit_code: ExitCode = ExitCode.ERROR) -> None:
        self.what = what
        self.fix = fix
        self.exit_code = exit_code
        super().__init__(f"{what}; {fix}" if fix else what)
