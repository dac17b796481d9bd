"""A picture of the screen as SVG, drawn by the program itself without a terminal."""

import asyncio
import html
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from roofmon.config import Config
from roofmon.errors import RoofmonError
from roofmon.resources import write_private
from roofmon.tui.app import RoofmonApp
from roofmon.tui.feed import ConsumerFactory
from roofmon.tui.run import make_app

if TYPE_CHECKING:
    from roofmon.model.snapshot import Device
    from roofmon.program.pty_program import PtyProgram

_TEXT = re.compile(
    r'(<text [^>]*\bx=")([\d.]+)("[^>]*\btextLength=")([\d.]+)("[^>]*>)([^<]*)</text>'
)
_RUNS = re.compile(r"[ \xa0]+|[!-~]+|[^ -~\xa0]+")


def save_picture(
    consumer: ConsumerFactory,
    config: Config,
    path: Path,
    size: tuple[int, int] = (120, 36),
    *,
    seconds: float = 5.0,
    keys: Sequence[str] = (),
    title: str = "",
    program: "PtyProgram | None" = None,
    limit_s: float = 180.0,
) -> None:
    """Run the screen headless and save what it shows to `path`.

    The picture is taken `seconds` after the roofs are measured and a first kernel has run or, where no
    `program` (as of `roofmon run`) is shown, the device has a point of its own, and after `keys` (named as
    in the settings) were pressed. Raises RoofmonError when nothing to show comes within `limit_s` seconds
    or the file cannot be written.
    """
    app = make_app(consumer, config, title=title, program=program)
    try:
        picture = asyncio.run(_draw(app, size, seconds, keys, limit_s))
    finally:
        app.feed.close()
    try:
        write_private(path, picture.encode())
    except OSError as error:
        what = f"the picture cannot be written to {path}: {error.strerror}"
        raise RoofmonError(what, "name another file") from None


async def _draw(
    app: RoofmonApp, size: tuple[int, int], seconds: float, keys: Sequence[str], limit_s: float
) -> str:
    async with app.run_test(size=size) as pilot:
        end = time.monotonic() + limit_s
        while not _has_something(app):
            if time.monotonic() > end:
                raise RoofmonError("nothing came that could be drawn", "see the log")
            await pilot.pause(0.2)
        await pilot.pause(seconds)
        await pilot.press(*keys)
        await pilot.pause(0.2)
        return _in_place(app.export_screenshot(title="roofmon"))


def _in_place(svg: str) -> str:
    """`svg` with every word, and every run beyond ASCII, as a text of its own, and without web fonts.

    Fonts of the width of a cell rarely have ① or ▸; a viewer takes them from another font, and would
    stretch or squeeze the rest of the line to make up for their width; some drop spaces at the ends. A
    picture must not fetch fonts from anywhere when it is looked at.
    """
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    return _TEXT.sub(_split, svg)


def _split(match: re.Match[str]) -> str:
    before, x, middle, length, after, content = match.groups()
    text = html.unescape(content)
    cell = float(length) / max(1, cell_len(text))
    pieces, at = [], float(x)
    for run in _RUNS.findall(text):
        width = cell_len(run) * cell
        if not run.isspace():
            pieces.append(f"{before}{at:g}{middle}{width:g}{after}{html.escape(run)}</text>")
        at += width
    return "".join(pieces)


def _has_something(app: RoofmonApp) -> bool:
    view = app.frame.view
    return (
        view is not None
        and view.device is not None
        and view.device.progress is None
        and (len(view.table) > 0 or (app.program is None and _has_point(view.device)))
    )


def _has_point(device: "Device") -> bool:
    return bool(device.sample and device.sample.rates)
