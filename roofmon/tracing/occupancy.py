"""Theoretical occupancy of a launch, and what limits it.

The warps that can be resident on a streaming multiprocessor, of the most it holds, as far as registers,
shared memory and the size of the block allow: the calculation of CUDA's occupancy calculator. Register
files are split between four partitions, registers are given to warps in units of 256, shared memory to
blocks in units of 128 byte (256 before Ampere) on top of what the system reserves for each block.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from roofmon.tracing.trace_protocol import Device

_KIB = 1024
_WARP = 32
_PARTITIONS = 4
_REGISTER_UNIT = 256
_MOST_REGISTERS = 255
"""The most registers that the compiler gives to a thread; the hardware counts up to 256."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one streaming multiprocessor holds: warps, blocks, 32-bit registers, shared memory in bytes."""

    warps: int
    blocks: int
    shared_bytes: int
    registers: int = 65_536
    shared_unit: int = 128
    shared_reserved: int = _KIB  # for each block


def _before_ampere(warps: int, blocks: int, shared_bytes: int) -> Limits:
    return Limits(
        warps=warps, blocks=blocks, shared_bytes=shared_bytes, shared_unit=256, shared_reserved=0
    )


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the units of allocation
# and the blocks of 11.0 and 12.x from the header of the occupancy calculator in CUDA 13.0.
LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "7.0": _before_ampere(64, 32, 96 * _KIB),
        "7.2": _before_ampere(64, 32, 96 * _KIB),
        "7.5": _before_ampere(32, 16, 64 * _KIB),
        "8.0": Limits(warps=64, blocks=32, shared_bytes=164 * _KIB),
        "8.6": Limits(warps=48, blocks=16, shared_bytes=100 * _KIB),
        "8.7": Limits(warps=48, blocks=16, shared_bytes=164 * _KIB),
        "8.9": Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
        "9.0": Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
        "10.0": Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
        "10.3": Limits(warps=64, blocks=32, shared_bytes=228 * _KIB),
        "11.0": Limits(warps=48, blocks=24, shared_bytes=228 * _KIB),
        "12.0": Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
        "12.1": Limits(warps=48, blocks=24, shared_bytes=100 * _KIB),
    }
)


class Occupancy(msgspec.Struct, frozen=True):
    """`fraction` of the warps (0 … 1) that can be resident, and what keeps more of them away, all of it.

    `limiter` is "" at full occupancy. `fraction` is None where it is not known, with the `reason`.
    """

    fraction: float | None
    limiter: str = ""
    reason: str = ""


def limits_of(device: Device) -> Limits | None:
    """The limits of a device: what its driver told, the table for the rest; None where neither knows it."""
    known = LIMITS.get("{}.{}".format(*device.compute_capability))
    if known is None:
        return None
    return msgspec.structs.replace(
        known,
        warps=device.max_threads_per_sm // device.warp_size or known.warps,
        blocks=device.max_blocks_per_sm or known.blocks,
        registers=device.registers_per_sm or known.registers,
        shared_bytes=device.shared_per_sm or known.shared_bytes,
        shared_reserved=device.shared_reserved_per_block or known.shared_reserved,
    )


def occupancy(
    limits: Limits, threads: int, registers: int, shared_bytes: int, shared_per_sm: int = 0
) -> Occupancy:
    """The theoretical occupancy of blocks of `threads` threads with `registers` each.

    `shared_bytes` is static and dynamic shared memory of a block. `shared_per_sm` is what the driver set
    aside for shared memory on this launch; 0 where that is not known, then all that there is counts.
    """
    if threads <= 0 or registers > _MOST_REGISTERS:
        return Occupancy(None, reason=f"no such launch: {threads} threads, {registers} registers")
    warps = -(-threads // _WARP)
    shared = _rounded_up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    # A figure under what one block needs is no figure of this launch.
    capacity = shared_per_sm if shared <= shared_per_sm <= limits.shared_bytes else 0
    room = {
        "registers": _blocks_by_registers(limits, warps, registers),
        "shared memory": (capacity or limits.shared_bytes) // shared if shared else limits.blocks,
        "blocks per SM": limits.blocks,
        "block size": limits.warps // warps,
    }
    blocks = min(room.values())
    limiter = " and ".join(name for name, most in room.items() if most == blocks)
    if blocks == 0:
        return Occupancy(None, reason=f"its {limiter} does not fit this device's limits")
    fraction = blocks * warps / limits.warps
    return Occupancy(fraction, "" if fraction == 1 else limiter)


def _blocks_by_registers(limits: Limits, warps: int, registers: int) -> int:
    if registers == 0:
        return limits.blocks
    of_a_warp = _rounded_up(registers * _WARP, _REGISTER_UNIT)
    return limits.registers // _PARTITIONS // of_a_warp * _PARTITIONS // warps


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
