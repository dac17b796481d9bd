"""Which kernels the samples cannot tell apart: those are known only together."""

import numpy as np
from numpy.typing import NDArray

from roofmon.model.stats import Z95

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_KNOWN = 0.25
"""A kernel is told from others when the half-width of its 95 % interval is at most this part of it …"""

NEGLIGIBLE = 0.01
"""… or at most this part of what all kernels moved."""

_CANCELS = 0.9  # of its own variance: a kernel that adds more than this cancels nothing


def inseparable_groups(totals: Floats, covariance: Floats) -> Integers:
    """Numbers of the groups that kernels are in, shape (k,); −1 for a kernel that stands alone.

    Kernels that always run in the same proportions have errors that cancel in their sum. So the kernel
    with the largest error is joined with the ones whose errors cancel most, until their sum is known;
    those that it is known without are left out again. A kernel whose error nothing cancels stands alone
    with it. Only kernels that are not known by themselves are ever joined.

    Args:
        totals: what each kernel moved in all its launches, shape (k,).
        covariance: of the totals, shape (k, k).
    """
    floor = NEGLIGIBLE * float(totals.sum())

    def known(members: list[int]) -> bool:
        variance = max(float(covariance[np.ix_(members, members)].sum()), 0.0)
        total = float(totals[members].sum())
        return bool(Z95 * variance**0.5 <= max(LEAST_KNOWN * total, floor))

    labels = np.full(len(totals), -1, dtype=np.int64)
    variances = np.diag(covariance)
    half = Z95 * np.sqrt(variances.clip(0.0))
    unknown = np.flatnonzero(half > np.maximum(LEAST_KNOWN * totals, floor)).tolist()
    while unknown:
        group = [max(unknown, key=lambda index: float(variances[index]))]
        others = [index for index in unknown if index not in group]
        while others and not known(group):
            adds = variances[others] + 2 * covariance[np.ix_(group, others)].sum(axis=0)
            best = int(adds.argmin())
            if adds[best] > _CANCELS * variances[others[best]]:
                break
            group.append(others.pop(best))
        if known(group):
            for member in list(group):
                without = [index for index in group if index != member]
                if without and known(without):
                    group = without
            labels[group] = labels.max(initial=-1) + 1
            unknown = [index for index in unknown if index not in group]
        else:
            unknown.remove(group[0])
    return labels


def together(totals: Floats, covariances: list[Floats]) -> tuple[Integers, Floats, Floats]:
    """Groups of kernels by each counter, and the total of each kernel's group with its error.

    Args:
        totals: what each kernel moved in all its launches, shape (k, c).
        covariances: of the totals of each counter, c of shape (k, k).
    """
    groups = np.full(totals.shape, -1, dtype=np.int64)
    whole, errors = totals.copy(), np.zeros_like(totals)
    for side, covariance in enumerate(covariances):
        errors[:, side] = np.sqrt(np.diag(covariance).clip(0.0))
        groups[:, side] = inseparable_groups(totals[:, side], covariance)
        for number in range(groups[:, side].max(initial=-1) + 1):
            members = groups[:, side] == number
            whole[members, side] = totals[members, side].sum()
            errors[members, side] = np.sqrt(covariance[np.ix_(members, members)].sum().clip(0.0))
    return groups, whole, errors
