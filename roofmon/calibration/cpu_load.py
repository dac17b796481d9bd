"""Who else works on the CPU while it is measured."""

import psutil

from roofmon.telemetry.contention import ForeignLoad, own_family


class CpuLoad:
    """Tells what processes other than ours and our ancestors do, from when it is made on."""

    resource = "CPU"
    prompt = True

    def __init__(self) -> None:
        self._load = ForeignLoad(own_family())

    def begin(self) -> None:
        """A probe begins."""
        self._load.cores()

    def contended(self) -> bool:
        """Whether others used enough since `begin` to lower a result by a few percent."""
        cores = self._load.cores()
        return cores is not None and cores > max(0.2, 0.05 * (psutil.cpu_count() or 1))

    def contended_late(self, began_us: int, ended_us: int) -> bool:
        """Never: what there was, `contended` has told."""
        return False

    def culprit(self) -> str | None:
        """The process with the most CPU time so far."""
        worst = self._load.culprit()
        return str(worst) if worst else None
