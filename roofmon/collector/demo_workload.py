"""The bundled workload, started once and beside the collector."""

from collections.abc import Callable
from typing import IO

from roofmon.collector.host_state import HostState
from roofmon.collector.workers import Process, start_process
from roofmon.stream.messages import Message
from roofmon.telemetry.host import read_host


class DemoWorkload:
    """`roofmon.demo` as a process.

    Args:
        host: takes in what it says, and is told when it ends.
        watch: as for telemetry.
        log: where its stderr goes.
        on_cpu: to use no GPU.
    """

    def __init__(
        self,
        host: HostState,
        watch: Callable[[Process, Callable[[Message], None], Callable[[str], None]], None],
        log: IO[bytes] | int,
        *,
        on_cpu: bool,
    ) -> None:
        self._host = host
        self._watch = watch
        self._log = log
        self._on_cpu = on_cpu
        self._started = False
        self._process: Process | None = None

    def start(self) -> None:
        """Start it; does nothing from the second call on."""
        if self._started:
            return
        self._started = True
        host = read_host()
        arguments = ["--until-stdin-closes", "--threads", str(host.cores)]
        if self._on_cpu:
            arguments += ["--backend", "numpy"]
        if host.caches.llc_bytes:
            arguments += ["--llc-bytes", str(host.caches.llc_bytes)]
        self._process = start_process("roofmon.demo", arguments, self._log)
        self._watch(self._process, self._host.take, self._ended)

    def close(self) -> None:
        """End it, where it runs."""
        if self._process is not None:
            self._process.end(at_once=True)

    def _ended(self, problem: str) -> None:
        self._process = None
        self._host.notice(
            "error" if problem else "info",
            f"the demo workload ended ({problem})" if problem else "the demo workload has ended",
        )
