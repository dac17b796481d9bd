"""Running the screen from start to end: signals, the way out, and what is said when it failed.

Exit codes: 0 when the user quits (`q` or Ctrl-C), 128 + signal when a signal from outside ends it.
"""

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from roofmon.actions import keymap
from roofmon.config import DEFAULT_THEME, Config
from roofmon.errors import RoofmonError
from roofmon.resources import config_dir, themes_dir
from roofmon.terminal import draws_unicode
from roofmon.themes import load_themes, theme_named
from roofmon.tui.app import RoofmonApp
from roofmon.tui.feed import ConsumerFactory
from roofmon.tui.lifeline import Lifeline

if TYPE_CHECKING:
    from roofmon.program.pty_program import PtyProgram

_log = logging.getLogger("roofmon.tui")
_log.addHandler(logging.NullHandler())  # without one, Python would print to the terminal itself

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_TEXTUALS = (signal.SIGTSTP, signal.SIGCONT)


def make_app(
    consumer: ConsumerFactory,
    config: Config,
    *,
    notice: str = "",
    title: str = "",
    program: "PtyProgram | None" = None,
) -> RoofmonApp:
    """The application as settings and environment ask; what is wrong with them is told on the screen.

    Args:
        consumer: makes the consumer; its argument is what the consumer calls after each change.
        config: settings.
        notice: a line to show at the start.
        title: what is shown (`demo`, a recording's name); "" for the plain live screen.
        program: what `roofmon run` started; its output is shown in a panel of its own.
    """
    keys, problems = keymap(config)
    themes, theme_problems = load_themes(themes_dir(), config_dir() / "themes")
    problems += theme_problems
    try:
        theme = theme_named(themes, config.theme)
    except RoofmonError as error:
        problems.append(error)
        theme = theme_named(themes, DEFAULT_THEME)
    told = [*([notice] if notice else []), *map(str, problems)]
    encoding = getattr(sys.__stderr__, "encoding", None)
    return RoofmonApp(
        consumer,
        config,
        keys,
        themes,
        theme,
        unicode=draws_unicode(config.unicode, encoding),
        colour=not os.environ.get("NO_COLOR"),
        title=title,
        notice=" · ".join(told),
        program=program,
    )


def run(
    consumer: ConsumerFactory,
    config: Config,
    *,
    notice: str = "",
    title: str = "",
    program: "PtyProgram | None" = None,
) -> int:
    """Show the screen until the user or a signal ends it; returns the exit code.

    The arguments are those of `make_app`. Raises RoofmonError when the screen failed; the terminal is
    in order by then.
    """
    for size in ("COLUMNS", "LINES"):
        # Exported by some shells, they would win over the terminal's own size at every resize.
        os.environ.pop(size, None)
    with Lifeline() as lifeline:
        app = make_app(consumer, config, notice=notice, title=title, program=program)
        app.on_leaving = lifeline.pull
        try:
            asyncio.run(_main(app))
        except Exception as error:
            app.fault = app.fault or error
        finally:
            app.feed.close()
            for number in _TEXTUALS:
                # Its handlers would bring the screen back while `roofmon run`'s program goes on.
                signal.signal(number, signal.SIG_DFL)
    if app.fault is not None:
        _log.error("the screen failed", exc_info=app.fault)
        if isinstance(app.fault, RoofmonError):
            raise app.fault
        what = f"the screen failed: {type(app.fault).__name__}: {app.fault}"
        raise RoofmonError(what, "the log has the details")
    return app.return_code or 0


async def _main(app: RoofmonApp) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, app.leave, 128 + number)
    await app.run_async(mouse=False)
