"""What a driver's value can be at all. Drivers have been seen to say 2147483632 % and −1 °C.

Each check returns what is wrong with a value, or None where it may stand.
"""

from collections.abc import Callable

OVER = 1.05
"""How far a rate may lie over its physical bound before it is taken for garbage: clocks and counters
are not read at the same moment."""


def within(low: float, high: float, unit: str) -> Callable[[float], str | None]:
    """A check that a value lies in [low, high]; also wrong where it is not a number."""

    def check(value: float) -> str | None:
        if low <= value <= high:
            return None
        return f"the driver said {value:.12g} {unit}, out of {low:g} … {high:g}"

    return check


PERCENT = within(0, 100, "%")
GPM_PERCENT = within(0, 100 * OVER, "%")
CLOCK_MHZ = within(1, 20_000, "MHz")
MEMORY_CLOCK_MHZ = within(1, 50_000, "MHz")
TEMPERATURE_C = within(0, 130, "°C")
POWER_MW = within(0, 5_000_000, "mW")
EVENT_BITS = within(0, 0xFFFF, "(clock-event reasons)")
LINK_MIB_PER_S = within(0, 4_000_000, "MiB/s")  # NVLink 5 of one GPU: 0.9 TB/s each way
PCIE_KIB_PER_S = within(0, 250_000_000, "KiB/s")  # PCIe 7.0 ×16: 242 GB/s
CORES = within(1, 1_000_000, "cores")
BUS_BITS = within(1, 65_536, "bit")
MEMORY_BYTES = within(2**20, 2**50, "bytes of memory")


def memory_used(used: int, total: int | None) -> str | None:
    """What is wrong with `used` bytes of memory of a device that has `total`."""
    if used < 0 or (total is not None and used > total):
        return f"the driver said {used} bytes are used, of {total}"
    return None
