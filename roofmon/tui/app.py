"""The application: one slot of the newest snapshot, one message, one reactive; and what keys do.

The first frame is painted before numpy and what builds on it is imported; a thread imports that while the
frame is on the screen. Nothing here ever waits for the collector.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import App
from textual.events import Key, Resize
from textual.reactive import reactive
from textual.timer import Timer

from roofmon.config import Config
from roofmon.themes import Theme
from roofmon.tui.feed import ConsumerFactory, Feed, SnapshotReady, Warm, import_heavy
from roofmon.tui.frame import Choices, Frame, build_frame
from roofmon.tui.keys import press
from roofmon.tui.notices import Notices
from roofmon.tui.output import waits
from roofmon.tui.palette import Palette
from roofmon.tui.program import ProgramWatch
from roofmon.tui.screens.base import RoofScreen
from roofmon.tui.screens.main import MainScreen

if TYPE_CHECKING:
    from roofmon.model.snapshot import Snapshot
    from roofmon.program.pty_program import PtyProgram
    from roofmon.view import ViewState

_SAID_S = 6.0
_OUTPUT_S = 0.25


class RoofmonApp(App[None], inherit_bindings=False):
    """The screen of one consumer.

    Args:
        consumer: makes the consumer.
        config: settings.
        keymap: keys by action, from `actions.keymap`.
        themes: themes by name, to go through.
        theme: the one to begin with.
        unicode: whether more than ASCII may be drawn.
        colour: False under NO_COLOR.
        title: what is shown; "" for the plain live screen.
        notice: a line for the user at the start.
        program: what `roofmon run` started.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS: ClassVar[str] = ""
    # `repaint` would paint all 24 kB of the screen at each tick; comparing snapshots, their arrays.
    snapshot: "reactive[Snapshot | None]" = reactive(
        None, init=False, repaint=False, always_update=True
    )

    def __init__(
        self,
        consumer: ConsumerFactory,
        config: Config,
        keymap: Mapping[str, tuple[str, ...]],
        themes: Mapping[str, Theme],
        theme: Theme,
        *,
        unicode: bool = True,
        colour: bool = True,
        title: str = "",
        notice: str = "",
        program: "PtyProgram | None" = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self.animation_level: Literal["none", "basic", "full"] = "none"
        self.fault: Exception | None = None
        self.on_leaving: Callable[[int], None] = lambda code: None
        self.config, self.keymap, self.themes = config, keymap, themes
        self.palette = Palette(theme, colour=colour, unicode=unicode)
        self.choices = Choices()
        self.view_state: ViewState | None = None
        self._actions = {key: action for action, keys in keymap.items() for key in keys}
        self.notices = Notices(notice)
        self._empty = Frame(title=title)
        self.frame = replace(self._empty, notice=self.notices.newest)
        self.program = None if program is None else ProgramWatch(program)
        self.feed = Feed(consumer, self._announce)
        self.ready = self._leaving = False
        self._next_take = 0.0
        self._later: Timer | None = None
        self._silence: Timer | None = None

    def get_default_screen(self) -> MainScreen:
        """The main screen."""
        return MainScreen(self.palette, self.frame, self.keymap)

    def on_load(self) -> None:
        """Hold the first paint until textual has settled the size: it would paint all four times."""
        self.delay_update(0.04)

    def on_mount(self) -> None:
        """Paint first, then begin."""
        self.call_after_refresh(self._begin)
        if self.program is not None:
            self.set_interval(_OUTPUT_S, self._look_at_program)

    def on_resize(self, event: Resize) -> None:
        """The program's terminal is as large as ours."""
        if self.program is not None:
            self.program.resize(*event.size)

    def _look_at_program(self) -> None:
        shown = self.program.view() if self.program else None
        if shown is not None and not waits(self._driver):
            self._empty = replace(self._empty, program=shown)
            self.frame = replace(self.frame, program=shown)
            if isinstance(self.screen, RoofScreen):
                self.screen.show(self.frame)

    def _announce(self) -> None:
        self.post_message(SnapshotReady())

    def _begin(self) -> None:
        self.feed.start()
        threading.Thread(
            target=import_heavy, args=(self.post_message,), name="imports", daemon=True
        ).start()

    def on_warm(self, message: Warm) -> None:
        """Show what has come meanwhile."""
        if message.error is not None:
            raise message.error
        self.ready = True
        self.take()

    def on_snapshot_ready(self) -> None:
        """Take the newest snapshot, unless a later look is already due."""
        if self.program is not None:
            self.program.start()  # the collector is there
        self.feed.taken()
        if self._later is None:
            self.take()

    def take(self) -> None:
        """Take what the consumer has now; later, if the last frame is still on its way to the terminal
        or was shown less than a tick ago (a fast replay)."""
        self._later = None
        consumer, now = self.feed.consumer, time.monotonic()
        # While the app closes its screens are gone, and ticks still come.
        if consumer is None or not (self.ready and self.is_running):
            return
        if waits(self._driver) or now < self._next_take:
            self._later = self.set_timer(max(0.05, self._next_take - now), self.take)
            return
        # A little early is no reason to wait: ticks come with some jitter.
        self._next_take = now + 0.8 / self.config.refresh_hz
        self._empty = replace(self._empty, state=consumer.state)
        self.snapshot = self.snapshot if self.choices.paused else consumer.snapshot

    def watch_snapshot(self) -> None:
        """Show the snapshot."""
        self.rebuild()

    def rebuild(self, _: None = None) -> None:
        """Build the frame of the present snapshot and choices, and show it on the present screen."""
        frame, snapshot = self._empty, self.snapshot
        if snapshot is not None:
            state = self.view_state or self._first_state()
            frame = build_frame(frame, snapshot, state)
            self.view_state = frame.view.state if frame.view else state
            self.notices.take(snapshot.notices)
        newest, count = self.notices.newest, self.notices.count
        self.frame = replace(frame, notice=newest, notices=count, choices=self.choices)
        if isinstance(self.screen, RoofScreen):
            self.screen.show(self.frame)

    def action_of(self, key: str) -> str | None:
        """The action that a key is for."""
        return self._actions.get(key)

    def _first_state(self) -> "ViewState":
        from roofmon.view import first_state

        return first_state(self.config)

    def look(self, state: "ViewState") -> None:
        """Take over another state of the view, and show it."""
        self.view_state = state
        self.rebuild()

    def choose(self, choices: Choices) -> None:
        """Take over the screen's own choices, and show them."""
        self.choices = choices
        self.rebuild()

    def say(self, text: str) -> None:
        """Answer a key in the last line, for a while."""
        if self._silence is not None:
            self._silence.stop()
        self._silence = self.set_timer(_SAID_S, self._fall_silent)
        self.choose(replace(self.choices, said=text))

    def _fall_silent(self) -> None:
        self.choose(replace(self.choices, said=""))

    def send(self, command: str, pid: int = 0, kernel: int | None = None) -> bool:
        """Ask something of the collector, about the device shown, a program or a kernel; False when it
        cannot be reached."""
        view = self.frame.view
        device = view.device.description.uuid if view and view.device else ""
        return self.feed.send(command, device, pid, kernel)

    def recolour(self, theme: Theme) -> None:
        """Go on with another theme."""
        old = self.palette
        self.palette = Palette(theme, colour=old.colour, unicode=old.unicode)
        for screen in self.screen_stack:
            if isinstance(screen, RoofScreen):
                screen.recolour(self.palette)

    async def on_key(self, event: Key) -> None:
        """Every key that no widget took: all of them."""
        event.prevent_default()
        press(self, event)

    def leave(self, exit_code: int = 0) -> None:
        """End; `on_leaving` hears of it first, so that it can watch over the end."""
        if self._leaving:
            return
        self._leaving = True
        self.on_leaving(exit_code)
        threading.Thread(target=self.feed.close, name="closing", daemon=True).start()
        self.exit(return_code=exit_code)

    def _handle_exception(self, error: Exception) -> None:
        """Keep what went wrong for the one line that is said after the terminal is restored."""
        self.fault = self.fault or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without textual's traceback on the screen; the log gets it."""
        self._close_messages_no_wait()

    def panic(self, *renderables: object) -> None:
        """End without a traceback: textual's input thread calls this when the terminal is gone."""
        self._close_messages_no_wait()
