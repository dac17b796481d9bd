"""`python -m roofmon.demo`: runs the workload until its time is up, a signal comes, or stdin closes."""

import argparse
import math
import sys
from collections.abc import Sequence
from time import perf_counter

from roofmon.demo.lifetime import Lifetime
from roofmon.errors import ExitCode, RoofmonError
from roofmon.region import on_device


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the workload; returns the exit code."""
    options = _parse(arguments)
    lifetime = Lifetime(until_stdin_closes=options.until_stdin_closes)
    try:
        _run(options, lifetime)
    except RoofmonError as error:
        _say(str(error))
        return error.exit_code
    except MemoryError:  # CuPy's is one, too
        _say("not enough memory for the working sets; choose a smaller --scale")
        return ExitCode.ERROR
    return 0


def _run(options: argparse.Namespace, lifetime: Lifetime) -> None:
    began = perf_counter()
    from roofmon.demo.device import open_device
    from roofmon.demo.sizes import plan_sizes
    from roofmon.demo.workload import build_kernels, run_rounds

    device = open_device(options.backend, options.llc_bytes, options.threads)
    try:
        if device.note:
            _say(device.note)
        sys.argv[0] = "roofmon-demo"  # what monitors call this program
        on_device(device.uuid, device.name, synchronised=True)
        sizes = plan_sizes(device.limits, options.scale)
        if sizes.level(4 * sizes.elements) != "dram":
            _say(
                f"working sets of {4 * sizes.elements >> 20} MiB are less than four times the cache"
                f" ({device.limits.cache_bytes >> 20} MiB): bytes are declared as"
                f" {device.limits.cache_level}, not dram"
            )
        kernels = build_kernels(device, sizes)
        if options.verbose:
            _say(
                f"set-up {perf_counter() - began:.2f} s, {sizes.total_bytes / 2**20:.0f} MiB;"
                f" attention {sizes.heads}×{sizes.seq}×{sizes.head_dim}, GEMM {sizes.gemm_n}"
            )
        if options.seconds is not None:
            lifetime.limit(options.seconds)
        timings = run_rounds(device, kernels, lifetime)
    finally:
        device.close()
    if options.verbose:
        for kernel in kernels:
            taken = timings[kernel.name]
            if not taken.launches:
                continue
            _say(
                f"{kernel.name:18} {taken.launches:6} launches, best {taken.best_s * 1e3:9.3f} ms"
                f" {kernel.work.bytes / taken.best_s / 1e9:9.2f} GB/s ({kernel.level})"
                f" {kernel.work.total_flops / taken.best_s / 1e9:9.2f} GFLOP/s"
            )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m roofmon.demo", description="Run kernels of known work, in rounds."
    )
    parser.add_argument("--backend", choices=("auto", "numpy", "cupy"), default="auto")
    parser.add_argument("--seconds", type=positive_number, help="default: until told to stop")
    parser.add_argument("--scale", type=positive_number, default=1.0, help="of the working sets")
    parser.add_argument("--llc-bytes", type=positive_integer, help="last-level cache of the CPU")
    parser.add_argument("--threads", type=positive_integer, help="default: one a core")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop with the parent")
    parser.add_argument("--verbose", action="store_true", help="print sizes and the best launches")
    return parser.parse_args(arguments)


def positive_number(text: str) -> float:
    """Named for argparse, whose messages call a value by the function that reads it."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return value


def positive_integer(text: str) -> int:
    """Named for argparse as well."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return value


def _say(text: str) -> None:
    print(f"roofmon.demo: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
