"""FLOPs of a kernel from what the counters saw of it, as a range as narrow as the evidence allows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from roofmon.counters.precision import Computes
from roofmon.counters.weights import DMMA, MMA_SYNC_FACTOR, TENSOR, WEIGHTS, Weights
from roofmon.model.roofline import Pipe

LEAST_ACTIVITY = 0.05
"""Part of a tensor pipe's peak under which its counter is no evidence: it moves a little in kernels without
a single tensor instruction (2.3 % in a softmax). Where a name says that a kernel has some, it is an upper
bound."""
NO_ACTIVITY = 0.002
"""And the part under which there is none, whatever the name says."""


@dataclass(frozen=True)
class FlopRange:
    """FLOPs of one launch on one pipe: between `low` and `high`.

    `pipe` None means that the precision is not known: the range is over `candidates`. `upper_bound` marks
    instructions that need not be FMAs: the FLOPs are at most `high`, and `low` is 0. `reason` says what is
    missing where the range is not a point.
    """

    pipe: Pipe | None
    low: float
    high: float
    candidates: tuple[Pipe, ...] = ()
    upper_bound: bool = False
    reason: str = ""


def sampled_flops(
    compute_capability: str,
    amounts: Mapping[str, float],
    sm_cycles: float | None,
    told: Computes,
) -> tuple[FlopRange, ...]:
    """The FLOPs of one launch by pipe; empty where nothing is known.

    Args:
        compute_capability: "9.0"; without a row in `weights.WEIGHTS` nothing is known.
        amounts: counts of one launch by metric; metrics that were not sampled are absent.
        sm_cycles: duration × clock × number of SMs, to see how busy a pipe was; None where not known,
            and then any count is evidence.
        told: what the kernel's name says, or the user did.
    """
    weights = WEIGHTS.get(compute_capability)
    if weights is None:
        return ()
    found = []
    for metric, by_pipe in weights.tensor.items():
        count = amounts.get(metric, 0.0)
        if metric == TENSOR:
            count -= amounts.get(DMMA, 0.0)
        activity = tensor_activity(weights, metric, count, sm_cycles)
        if activity >= LEAST_ACTIVITY:
            found.append(_tensor(metric, by_pipe, count, told))
        elif by_pipe.keys() & {told.pipe, *told.among} and activity > NO_ACTIVITY:
            # It waits for memory, or for nobody knows what.
            reason = f"its tensor pipe is {activity:.1%} busy, of which some may be noise"
            most = _tensor(metric, by_pipe, count, told)
            found.append(replace(most, low=0.0, upper_bound=True, reason=reason))
    return (*found, *_vector(weights, amounts))


def tensor_activity(weights: Weights, metric: str, count: float, sm_cycles: float | None) -> float:
    """The part of its peak at which a tensor pipe ran; `sm_cycles` as in `sampled_flops`."""
    if count <= 0:
        return 0.0
    return count / (weights.tensor_per_clock[metric] * sm_cycles) if sm_cycles else math.inf


def _tensor(metric: str, by_pipe: Mapping[Pipe, float], count: float, told: Computes) -> FlopRange:
    candidates = _candidates(by_pipe, told)
    each = [by_pipe[candidate] for candidate in candidates]
    low, high = count * min(each), count * max(each)
    pipe = candidates[0] if low == high else None
    reasons = []
    if len(candidates) > 1:
        names = " or ".join(candidate.precision for candidate in candidates)
        reasons.append("precision not known" if pipe is None else f"{names}, which count alike")
    if metric == TENSOR:
        if told.instruction == "mma.sync":
            low, high = low / MMA_SYNC_FACTOR, high / MMA_SYNC_FACTOR
        elif not told.instruction:
            low /= MMA_SYNC_FACTOR
            reasons.append("mma.sync or wgmma not known")
    return FlopRange(
        pipe,
        low,
        high,
        candidates=candidates if len(candidates) > 1 else (),
        reason="; ".join(reasons),
    )


def _candidates(by_pipe: Mapping[Pipe, float], told: Computes) -> tuple[Pipe, ...]:
    if told.pipe is not None and told.pipe in by_pipe:
        return (told.pipe,)
    return tuple(pipe for pipe in told.among if pipe in by_pipe) or tuple(by_pipe)


def _vector(weights: Weights, amounts: Mapping[str, float]) -> list[FlopRange]:
    """Upper bounds; none for a pipe of which not every counter was sampled."""
    pipes = dict.fromkeys(pipe for by_pipe in weights.vector.values() for pipe in by_pipe)
    found = []
    for pipe in pipes:
        parts = {m: by_pipe[pipe] for m, by_pipe in weights.vector.items() if pipe in by_pipe}
        if all(metric in amounts for metric in parts):
            total = sum(weight * amounts[metric] for metric, weight in parts.items())
            if total > 0:
                reason = "not every instruction of the pipe is an FMA"
                found.append(FlopRange(pipe, 0.0, total, upper_bound=True, reason=reason))
    return found
