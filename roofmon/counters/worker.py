"""The counters process of one GPU: samples it, attributes the samples to kernels, and lets go when asked.

A process of its own, since a driver call may hang and attribution keeps a core busy for up to 0.15 s a
second. It reads `worker_messages.Batch` and `Order` on stdin and says `State`, `Health` and `Result` on
stdout; it ends when stdin closes, at a signal, or at bytes that are no message. SIGUSR1 frees the counters
at once (`roofmon release`).
"""

import argparse
import faulthandler
import os
import select
import signal
import sys
from pathlib import Path

import msgspec
from threadpoolctl import threadpool_limits

from roofmon.counters.session import CountersSession, Source
from roofmon.counters.worker_messages import MAX_BATCH, Heard, Said
from roofmon.errors import ExitCode, RoofmonError
from roofmon.lifetime import die_with_parent
from roofmon.resources import log_path
from roofmon.stream.framing import Deframer, StreamError
from roofmon.stream.writer import StreamWriter, private_output

IDLE_S = 300.0
_MOST_WAITING = 2 * 2**20  # bytes for a consumer that does not read; what is newer is dropped
BY_HAND = "freed by roofmon release"


def main(arguments: list[str] | None = None) -> int:
    """Run until stdin closes, a signal comes, the reader is gone or `quit`. Returns 0, or 2 for garbage."""
    parser = argparse.ArgumentParser(prog="python -m roofmon.counters.worker", description=__doc__)
    parser.add_argument("--device", metavar="UUID", required=True)
    parser.add_argument("--interval-us", type=int, default=1000, help="of a sample, 100 to 10000")
    parser.add_argument(
        "--idle", type=float, default=IDLE_S, help="seconds without kernels after which to let go"
    )
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="samples from an .npz in place of the GPU's"
    )
    options = parser.parse_args(arguments)
    if not 100 <= options.interval_us <= 10_000:
        parser.error("--interval-us must be between 100 and 10000")
    if not die_with_parent():
        return ExitCode.OK
    faulthandler.enable()  # where a library crashes, the log says in which call
    # One core: on many, the threads of BLAS spin on small matrices, several cores' worth of nothing.
    threadpool_limits(1, "blas")  # type: ignore[no-untyped-call]
    writer = StreamWriter(private_output(log_path()), limit=_MOST_WAITING)

    def open_source() -> Source:
        if options.recording is not None:
            from roofmon.counters.recorded_sampler import RecordedSampler

            return RecordedSampler(options.recording)
        from roofmon.counters.sampler import Sampler

        return Sampler(options.device, options.interval_us)

    def send(said: Said) -> None:
        writer.send(said)  # type: ignore[arg-type]  # frames any struct

    try:
        session = CountersSession(options.device, open_source, send, options.idle)
        return _serve(session, writer)
    except BrokenPipeError:
        return ExitCode.OK
    except RoofmonError as error:
        print(f"roofmon: {error}", file=sys.stderr)
        return error.exit_code


def _serve(session: CountersSession, writer: StreamWriter) -> int:
    wake, wake_write = os.pipe()
    for descriptor in (wake, wake_write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)  # its number arrives through the pipe
    deframer: Deframer[Heard] = Deframer(msgspec.msgpack.Decoder(Heard), limit=MAX_BATCH)
    try:
        wait_s = 0.0
        while not session.done:
            writing = [writer] if writer.backed_up else []
            ready, writable, _ = select.select([0, wake], writing, [], wait_s)
            if writable:
                writer.flush()
            if wake in ready:
                numbers = os.read(wake, 64)
                if set(numbers) - {signal.SIGUSR1}:
                    return ExitCode.OK
                session.release(BY_HAND)
            if 0 in ready:
                data = os.read(0, 1 << 20)
                if not data:
                    return ExitCode.OK
                for message in deframer.feed(data):
                    session.hear(message)
            wait_s = session.step()
    except StreamError as error:
        print(
            f"roofmon: counters: what the collector says cannot be read: {error}", file=sys.stderr
        )
        return ExitCode.USAGE
    finally:
        session.close()
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
