"""What the processes around a test are."""

import psutil


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none where it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
