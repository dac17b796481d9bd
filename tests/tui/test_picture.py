"""The picture of the screen, drawn without a terminal."""

import re
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_up import Source, gpus, snapshot

from roofmon.config import Config
from roofmon.errors import RoofmonError
from roofmon.tui.picture import save_picture


class Ticking(Source):
    """Publishes by itself, as a consumer does."""

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for tick in range(100):
            if self.closed:
                break
            self.publish(snapshot(tick))
            time.sleep(0.05)


def test_a_picture_shows_the_screen_after_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "screen.svg"
    save_picture(Ticking, Config(unicode="on"), path, (120, 36), seconds=0.1, keys=("j", "enter"))  # type: ignore[arg-type]
    text = path.read_text()
    assert text.startswith("<svg")
    assert "softmax_warp_forward" in text
    assert "CHECKLIST" in text
    # The mark is a text of its own, one cell (12.2) wide, so that no font can shift the rest.
    assert re.search(r'textLength="12\.2"[^>]*>②</text>', text)
    ElementTree.fromstring(text)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_picture_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RoofmonError, match="cannot be written"):
        save_picture(Ticking, Config(), tmp_path / "file" / "screen.svg", seconds=0.1)  # type: ignore[arg-type]


def test_a_picture_of_a_gpu_needs_no_kernel(tmp_path: Path) -> None:
    class OnlyGpus(Source):
        def start(self) -> None:
            self.publish(gpus(1))

    path = tmp_path / "gpu.svg"
    save_picture(OnlyGpus, Config(unicode="on"), path, (120, 36), seconds=0.1)  # type: ignore[arg-type]
    assert "1.07P" in path.read_text()
