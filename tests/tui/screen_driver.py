"""The running screen as a test sees it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from made_up import Source
from textual.events import Key
from textual.pilot import Pilot

from roofmon.tui.app import RoofmonApp


class Shown:
    """The running screen: what it reads like, and what to do to it."""

    def __init__(self, app: RoofmonApp, pilot: Pilot[None], source: Source) -> None:
        self.app = app
        self.pilot = pilot
        self.source = source

    @property
    def rows(self) -> list[str]:
        """The lines on the screen, without trailing blanks."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.rows)

    def row(self, part: str) -> str:
        """The first line that holds `part`."""
        return next(row for row in self.rows if part in row)

    @property
    def selected(self) -> str:
        """The selected line of the table."""
        row = next(row for row in reversed(self.rows) if "▸" in row)
        return row.rpartition("▸")[2]

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until they had their effect."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Type a text; quicker than a key at a time."""
        for character in text:
            self.app.post_message(Key(character, character))
        await self.pilot.pause()

    async def publish(self, made: object, state: str = "") -> None:
        """A new snapshot from the source."""
        self.source.publish(made, state)  # type: ignore[arg-type]
        await self.settle()

    async def settle(self) -> None:
        """Wait until what the source has is shown, unless the screen is paused."""
        app, source = self.app, self.source
        for _ in range(200):
            shown = app.frame.snapshot is source.snapshot and app.frame.state == source.state
            if shown or app.choices.paused or app.fault:
                break
            await self.pilot.pause(0.01)
        await self.pilot.pause()


OpenScreen = Callable[..., AbstractAsyncContextManager[Shown]]
