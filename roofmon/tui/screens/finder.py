"""Finding an action by typing a part of what it does: Ctrl-P, from the registry of actions."""

from collections.abc import Callable, Mapping, Sequence

from textual.app import ComposeResult
from textual.events import Resize

from roofmon.actions import ACTIONS, Action, key_label
from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.screens.base import RoofScreen
from roofmon.tui.strips import Line
from roofmon.tui.widgets.lines import Lines


class FinderScreen(RoofScreen):
    """A line to type in, and the actions that match."""

    def __init__(
        self,
        palette: Palette,
        frame: Frame,
        keymap: Mapping[str, tuple[str, ...]],
        choose: Callable[[str], None],
    ) -> None:
        super().__init__(palette, frame)
        self._keymap = keymap
        self._choose = choose
        self._text = ""
        self._at = 0

    def compose(self) -> ComposeResult:
        """One widget that fills the window."""
        yield _Found(self.palette, self.shown, self)

    def on_resize(self, event: Resize) -> None:
        """Fill the window."""
        styles = self.query_one(_Found).styles
        styles.width, styles.height = event.size.width, event.size.height

    def found(self) -> list[Action]:
        """Actions of which every typed word is in the title, id or description."""
        words = self._text.casefold().split()
        return [
            action
            for action in ACTIONS
            if all(
                w in f"{action.id} {action.title} {action.description}".casefold() for w in words
            )
        ]

    def typed(self, key: str, character: str | None) -> bool:
        """Everything typed is for the line."""
        found = self.found()
        if key == "escape":
            self.dismiss()
            return True
        if key == "enter":
            self.dismiss()
            if found:
                self._choose(found[min(self._at, len(found) - 1)].id)
            return True
        if key in ("down", "up"):
            self._at = max(0, min(len(found) - 1, self._at + (1 if key == "down" else -1)))
        elif key == "backspace":
            self._text = self._text[:-1]
        elif character and character.isprintable():
            self._text, self._at = self._text + character, 0
        self.show(self.shown)
        return True

    def listing(self, height: int) -> Sequence[Line]:
        """The typed line and the actions under it."""
        found = self.found()
        self._at = min(self._at, max(0, len(found) - 1))
        first = max(0, self._at - (height - 3))
        lines: list[Line] = [
            [(" Find an action: ", "title"), (self._text, ""), ("▏", "key")],
            (),
        ]
        for index, action in enumerate(found[first : first + height - 2], first):
            keys = " ".join(key_label(key) for key in self._keymap.get(action.id, ()))
            here = index == self._at
            place = "@selection" if here else ""
            lines.append(
                [
                    (f" {'▸' if here else ' '} {keys or '–':<14}", f"key{place}"),
                    (f"{action.description} ", place),
                ]
            )
        return lines if found else [*lines, [("   nothing matches", "muted")]]


class _Found(Lines):
    """Draws the screen's listing."""

    def __init__(self, palette: Palette, frame: Frame, owner: FinderScreen) -> None:
        super().__init__(palette, frame)
        self._owner = owner

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        return self._owner.listing(height)
