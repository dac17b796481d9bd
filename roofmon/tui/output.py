"""Whether what was painted has reached the terminal."""

from textual.driver import Driver


def waits(driver: Driver | None) -> bool:
    """Whether the last frame still waits in the queue of textual's writer thread.

    On a link of 12 kB/s frames queued up to 23 s; leaving ticks out while output waits keeps the
    screen, and `q`, current. A driver that has no such queue (headless) never makes wait.
    """
    writer = getattr(driver, "_writer_thread", None)
    queue = getattr(writer, "_queue", None)
    return queue is not None and queue.qsize() > 0
