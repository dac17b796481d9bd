"""The screen on a made-up session, driven without a terminal."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from made_up import Source, snapshot
from screen_driver import OpenScreen, Shown

from roofmon.config import Config
from roofmon.program.pty_program import PtyProgram
from roofmon.tui.run import make_app


@pytest.fixture
def open_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenScreen:
    """Opens the screen at a size, after the first snapshot unless `first` is None."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)

    @asynccontextmanager
    async def opened(
        width: int = 120,
        height: int = 40,
        *,
        first: object = "made up",
        config: Config | None = None,
        notice: str = "",
        program: PtyProgram | None = None,
    ) -> AsyncIterator[Shown]:
        sources: list[Source] = []

        def consumer(on_change: Callable[[], None]) -> Source:
            sources.append(Source(on_change))
            return sources[0]

        app = make_app(
            consumer,  # type: ignore[arg-type]
            config or Config(unicode="on", refresh_hz=10),
            notice=notice,
            program=program,
        )
        async with app.run_test(size=(width, height)) as pilot:
            for _ in range(500):
                if app.ready:
                    break
                await pilot.pause(0.01)
            shown = Shown(app, pilot, sources[0])
            if first is not None:
                await shown.publish(snapshot() if first == "made up" else first)
            yield shown
        app.feed.close()

    return opened
