"""Which counters are sampled together: the largest set whose samples complete on this GPU.

The names are those of sm_90; chips know some of them by other names or not at all, so each set is cut down
to the names that CUPTI accepts for the chip before it is tried.
"""

from collections.abc import Callable

from roofmon.counters.weights import CYCLES, DMMA, FMA_HEAVY, FMA_LITE, FP64_PIPE, TENSOR

DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
L2 = "lts__t_bytes.sum"
"""Counts traffic between the two halves of the L2 too: on an H200 1.5 times what streams ask for."""

MEMORY_METRICS = {"dram": (DRAM_READ, DRAM_WRITE), "l2": (L2,)}
"""Level → the counters whose sum is its traffic in bytes."""

_MEMORY = (DRAM_READ, DRAM_WRITE, L2)
SETS: tuple[tuple[str, ...], ...] = (
    # The first holds all that the others do. Complete at 1 ms on an H200 (CUPTI 13.4, driver 580), where a
    # fifth counter beside TENSOR, FP64_PIPE and the two of FMA costs more than all others together. A set
    # with nvlrx__bytes.sum never was.
    (*_MEMORY, TENSOR, DMMA, FP64_PIPE, FMA_HEAVY, FMA_LITE, CYCLES),
    (*_MEMORY, TENSOR, DMMA, CYCLES),
    (*_MEMORY, CYCLES),
    (DRAM_READ, DRAM_WRITE),
)


def candidate_sets(accepted: Callable[[str], bool]) -> list[tuple[str, ...]]:
    """The sets to try, best first, without names that are not accepted and without repeats.

    A set without any traffic is of no use: time that is not attributed by traffic cannot be aligned.
    """
    known = set(filter(accepted, SETS[0]))
    cut = (tuple(name for name in names if name in known) for names in SETS)
    return list(dict.fromkeys(names for names in cut if set(names) & set(_MEMORY)))
