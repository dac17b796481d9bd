"""NVML's clock-event reasons in words: why the SM clock is not higher."""

_WORDS = {
    0x1: "idle",
    0x2: "application clocks set",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit (driver)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clocks set",
    0x200: "board limit",
    0x400: "reliability limit",
}


def event_words(bits: int) -> tuple[str, ...]:
    """The reasons in a bit mask of `nvmlDeviceGetCurrentClocksEventReasons`, lowest bit first.

    A bit that is not known here is shown as its number rather than left out.
    """
    set_bits = (1 << n for n in range(bits.bit_length()) if bits >> n & 1)
    return tuple(_WORDS.get(bit, f"reason {bit:#x}") for bit in set_bits)
