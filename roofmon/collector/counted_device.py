"""One GPU whose counters are sampled: its worker, what that said last, and what it is to be told next."""

import time
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from roofmon.collector.counters_process import CountersProcess
from roofmon.collector.device_traffic import DeviceTraffic
from roofmon.collector.workers import Backoff
from roofmon.counters.worker_messages import NO_ROW, Batch, Health, Result, State

Integers = NDArray[np.int64]


class CountedDevice:
    """Its state, and what the next batch for its worker holds.

    `programs` are the ids of the traced processes on it.
    """

    def __init__(self, uuid: str) -> None:
        self.worker: CountersProcess | None = None
        self.backoff = Backoff()
        self.state = State(state="starting")
        self.health: Health | None = None
        self.result: Result | None = None
        self.traffic = DeviceTraffic(uuid)
        self.programs: Collection[int] = ()
        self.heard = time.monotonic()
        self.launches: list[tuple[Integers, Integers, Integers]] = []
        self.lost: list[tuple[int, int]] = []
        self.traced_ns: int | None = None
        self.wanted = False

    @property
    def why_not(self) -> str:
        """Why no traffic is counted now; "" while it is."""
        if self.state.state == "sampling":
            return ""
        return self.state.reason or "the counters are being opened"

    def tell(self, until_ns: int) -> None:
        """Send the launches that came since the last call, and what was traced up to a moment."""
        launches, self.launches = self.launches, []
        self.wanted = self.wanted or bool(launches)
        begin, traced = self.traced_ns, bool(self.programs)
        spans = [(begin, until_ns)] if traced and begin is not None and begin < until_ns else []
        if spans:
            self.traced_ns = until_ns
        if self.worker is None:
            return
        rows, start, end = (
            np.concatenate([part[i] for part in launches] or [np.empty(0, dtype=np.int64)])
            for i in range(3)
        )
        lost, self.lost = self.lost, []
        sent = self.worker.tell(
            Batch(
                until_ns=until_ns,
                kernel=np.where(rows < 0, NO_ROW, rows).astype("<u4").tobytes(),
                start_ns=start.astype("<i8").tobytes(),
                end_ns=end.astype("<i8").tobytes(),
                traced_ns=np.array(spans, "<i8").tobytes(),
                lost_ns=np.array(lost, "<i8").tobytes(),
                foreign=bool(self.traffic.active_others(self.programs)),
            )
        )
        if not sent:
            self.lost = [*lost, *([(int(start.min()), int(end.max()))] if len(start) else [])]
