"""Running a calibration from a command: starts the worker, passes its messages on, returns its result."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from roofmon.calibration.results import CalibrationResult
from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.session import Notice
from roofmon.resources import python_module
from roofmon.stream.framing import Deframer, StreamError
from roofmon.stream.messages import Message, NoticeMessage

_ENDING_S = 2.0


def run_worker(
    arguments: Sequence[str] = (),
    on_message: Callable[[Message], None] = lambda message: None,
    log: int | None = None,
) -> CalibrationResult:
    """Calibrate in a process of its own, and wait for it.

    Args:
        arguments: of `python -m roofmon.calibration.worker`, for example `--quick`.
        on_message: takes each message as it comes: progress, growing roofs, notices.
        log: a descriptor for the worker's stderr; None for our own.

    Raises RoofmonError when the worker ends without any roof. KeyboardInterrupt ends the worker too.
    """
    problem: Notice | None = None
    with tempfile.TemporaryDirectory(prefix="roofmon-") as directory:
        output = Path(directory) / "result.json"
        command = [*python_module("roofmon.calibration.worker"), "--output", str(output)]
        with subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        ) as worker:
            try:
                for message in _messages(worker):
                    if isinstance(message, NoticeMessage) and message.notice.severity == "error":
                        problem = message.notice
                    on_message(message)
            finally:
                _end(worker)
        if worker.returncode == 0 and output.exists():
            return msgspec.json.decode(output.read_bytes(), type=CalibrationResult)
    if problem:
        known = worker.returncode in (ExitCode.USAGE, ExitCode.NO_DEVICE)
        code = ExitCode(worker.returncode) if known else ExitCode.ERROR
        raise RoofmonError(problem.what, problem.fix, code)
    raise RoofmonError(f"the calibration gave no roof (worker ended with {worker.returncode})")


def _messages(worker: subprocess.Popen[bytes]) -> Iterator[Message]:
    assert worker.stdout is not None
    deframer: Deframer[Message] = Deframer(msgspec.msgpack.Decoder(Message))
    try:
        while data := worker.stdout.read(65536):
            yield from deframer.feed(data)
    except StreamError as error:
        raise RoofmonError(f"the calibration worker cannot be understood: {error}") from None


def _end(worker: subprocess.Popen[bytes]) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        worker.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        worker.kill()
