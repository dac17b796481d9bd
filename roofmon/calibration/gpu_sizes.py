"""How much a GPU probe works on: working sets, iterations, and what a launch then counts as."""

from collections.abc import Callable

from roofmon.calibration.probe import Probe
from roofmon.errors import RoofmonError
from roofmon.units import mebibytes

ARRAY_BYTES = 2 * 2**30
"""Of a stream array where memory allows: the pause from one launch to the next is then a thousandth."""

SMALLEST_ARRAY_BYTES = 2**30
"""A stream array under this, or all of them under `DRAM_FACTOR` × L2, is said to be small."""

DRAM_FACTOR = 4
L2_SHARE = 1 / 6
"""Of L2 that a reread set fills. On an H200 with 60 MiB: 9.99, 9.56, 9.41, 9.24 TB/s with 1/8, 1/6, 1/4,
1/3. Smaller sets may fit in the L1s together, larger ones do not fit in the half of L2 that is near."""

L1_BYTES_PER_SM = 32 * 1024
"""Of a reread set for L1: fits in the L1 of any GPU."""

LAUNCH_S = 0.002
"""What a launch of a loop or a reread set should take."""

TRANSFER_BYTES = 256 * 2**20

ALIGNMENT = 2**24  # bytes; so that grids come out even
_FREE_SHARE = 0.8
_FIRST_ITERATIONS = 16
_LONG_ENOUGH_S = LAUNCH_S / 4


def stream_array_bytes(arrays: int, free_bytes: int) -> int:
    """Bytes of each of so many stream arrays. Raises RoofmonError where memory has no room for any."""
    size = int(min(ARRAY_BYTES, _FREE_SHARE * free_bytes / arrays)) // ALIGNMENT * ALIGNMENT
    if size == 0:
        raise RoofmonError(
            f"only {mebibytes(free_bytes)} of GPU memory are free", "end other programs on the GPU"
        )
    return size


def is_small(array_bytes: int, arrays: int, l2_bytes: int) -> bool:
    """Whether so many stream arrays are too small to be sure of DRAM's bandwidth."""
    return array_bytes < SMALLEST_ARRAY_BYTES or arrays * array_bytes < DRAM_FACTOR * l2_bytes


def reread_bytes(probe: Probe, l2_bytes: int, sms: int) -> int:
    """Bytes of the set that a `reread` probe reads again and again: whole rounds of its grid.

    A round is one element for each thread; a DRAM set is one stream array.
    """
    wanted = {"l1": L1_BYTES_PER_SM * sms, "dram": ARRAY_BYTES}.get(
        probe.level or "", int(L2_SHARE * l2_bytes)
    )
    each = (probe.element_bytes or 1) * (probe.block or 1) * resident_blocks(probe, sms)
    return max(1, wanted // each) * each


def resident_blocks(probe: Probe, sms: int) -> int:
    """Blocks of a grid that stays: `blocks_per_sm` for each SM, or as many as fit an SM by threads."""
    return sms * (probe.blocks_per_sm or max(1, 2048 // (probe.block or 2048)))


def covering_blocks(probe: Probe, elements: int) -> int:
    """Blocks of a grid whose threads take `elements_per_thread` each."""
    each = (probe.block or 1) * (probe.elements_per_thread or 1)
    return -(-elements // each)


def transfer_bytes(free_bytes: int) -> int:
    """Bytes of one copy. Raises RoofmonError where memory has no room for any."""
    return min(TRANSFER_BYTES, stream_array_bytes(2, free_bytes))


def iterations_for(seconds_of: Callable[[int], float], most: int = 2**31) -> int:
    """Iterations with which a launch takes about `LAUNCH_S`.

    Args:
        seconds_of: the seconds of one launch with so many iterations.
        most: what the kernel's counter can hold.
    """
    iterations = _FIRST_ITERATIONS
    while True:
        seconds = seconds_of(iterations)
        wanted = round(iterations * LAUNCH_S / seconds) if seconds > 0 else 64 * iterations
        if seconds >= _LONG_ENOUGH_S or iterations >= most:
            return min(most, max(1, wanted))
        # What one short launch says is rough: come closer in steps.
        iterations = min(most, max(2 * iterations, min(wanted, 64 * iterations)))
