"""Which notice is shown: the newest one that the user has not put away."""

from roofmon.model.session import Notice


class Notices:
    """The screen's own notices and those of the stream; `dismiss` puts the newest away."""

    def __init__(self, own: str) -> None:
        self._own = (Notice(severity="warning", what=own),) if own else ()
        self._all: tuple[Notice, ...] = self._own
        self._dismissed: Notice | None = None

    def take(self, notices: tuple[Notice, ...]) -> None:
        """The notices of a snapshot."""
        self._all = (*self._own, *notices)

    @property
    def newest(self) -> Notice | None:
        """The one to show."""
        newest = self._all[-1] if self._all else None
        return None if newest == self._dismissed else newest

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all)

    def dismiss(self) -> bool:
        """Put the newest away; False when none was shown."""
        shown = self.newest
        self._dismissed = shown or self._dismissed
        return shown is not None
