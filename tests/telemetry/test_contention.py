import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from roofmon.telemetry.contention import ForeignLoad, own_family


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps a core busy, with a name that tries to pass for more fields."""
    script = tmp_path / "x) R 1 \x1b[3"
    script.write_text("#!/bin/sh\nwhile :; do :; done\n")
    script.chmod(0o700)
    process = subprocess.Popen([str(script)])
    yield process
    process.kill()
    process.wait()


def test_the_family_is_this_process_and_those_above() -> None:
    assert {os.getpid(), os.getppid()} <= own_family()


def test_another_process_is_seen_and_named(busy: subprocess.Popen[bytes]) -> None:
    # What other tests start meanwhile may be busier: then once more, with that excluded too.
    for _ in range(20):
        load = ForeignLoad(set(psutil.pids()) - {busy.pid})
        time.sleep(0.4)
        cores = load.cores()
        culprit = load.culprit()
        if culprit is not None and culprit.pid == busy.pid:
            break
    assert cores is not None
    assert cores > 0.2
    assert culprit is not None
    assert culprit.pid == busy.pid
    assert culprit.name == "x) R 1  [3"
    assert 0.2 < culprit.cores <= 1.1


def test_our_own_work_is_not_foreign(busy: subprocess.Popen[bytes]) -> None:
    load = ForeignLoad(psutil.pids())
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass
    # Not how much others used: other tests may run beside this one. But two busy loops that are known
    # would stand above everything.
    assert load.cores() is not None
    culprit = load.culprit()
    assert culprit is None or culprit.pid not in {busy.pid, os.getpid()}
