"""Ticks are left out while the terminal has not taken the last frame."""

import os
import time
from types import SimpleNamespace

from textual.drivers._writer_thread import WriterThread

from roofmon.tui.output import waits


def test_output_waits_until_the_terminal_has_taken_it() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        thread = WriterThread(file)
        driver = SimpleNamespace(_writer_thread=thread)  # what textual's terminal driver holds
        thread.start()
        assert not waits(driver)  # type: ignore[arg-type]
        thread.write("x" * 300_000)  # more than a pipe takes
        thread.write("y")
        time.sleep(0.05)
        assert waits(driver)  # type: ignore[arg-type]
        taken = 0
        while taken < 300_001:
            taken += len(os.read(reader, 65536))
        thread.stop()
        assert not waits(driver)  # type: ignore[arg-type]
    os.close(reader)


def test_a_driver_without_a_queue_never_makes_wait() -> None:
    assert not waits(None)
    assert not waits(SimpleNamespace())  # type: ignore[arg-type]
