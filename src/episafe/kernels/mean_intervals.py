"""Anytime confidence intervals of one policy's mean utility, from n, ΣU and ΣU² and how many episodes are missing.

For utilities in [0, H] the lower end is that of `confidence_sequence` with every share 1, and the upper end is H minus
the lower end of H − U. For noisy ones, U − E[U] σ-sub-Gaussian, with the same bets λ,

    |mean − ΣU/n| ≤ min_λ σ (ln(B/δ)/λ + nλ/2)/n

which follows from Ville's inequality for exp(λ Σ(U − E U)/σ − nλ²/2); it holds for the average of means that change.
A missing episode counts as 0 for the lower end and as H for the upper one: that is the least that its factor can be,
so the interval holds whatever made it missing. Of noisy ones a single missing one may be anything.

Drift: such intervals of the incumbent's mean utility from later and later starts on. If nothing drifts, they all meet.
Interval j begins after n_j = 30·1.5^j deployments in which the incumbent acts, or may, interval 0 with the first: that
is fixed before what comes next, whatever is missing. It has the share 1/((j+1)(j+2)) of δ, which sum to 1. With
probability 1 − δ all of them contain the mean, at all times. So two of them that do not meet say that the mean has
changed. Nothing else about the utilities is assumed.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import BETS, lower_bound
from episafe.types import Array, IntArray

NUM_STARTS = 60  # enough for 10¹¹ episodes
FIRST_START, GROWTH = 30, 1.5
ROUNDING = 1e-9
NOT_ITS = np.inf  # in the place of a utility: the incumbent did not act
LOOK = 0.02  # it is looked at again when 2 % more episodes were seen: an interval may be asked at any time


@kernel
def interval(n, total, squares, missing, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """(lower, upper) from n, ΣU, ΣU² and those missing; `ceiling` is H, or NaN where utilities are noisy.

    log_term = ln(B/δ) a side.
    """
    if n == 0 or (missing > 0 and math.isnan(ceiling)):
        return -np.inf, np.inf
    if math.isnan(ceiling):
        width = np.inf
        for i in range(BETS.shape[0]):
            width = min(width, sigma * (log_term / BETS[i] + 0.5 * n * BETS[i]) / n)
        return total / n - width, total / n + width
    lower = _lower(n + missing, total, squares, log_term)
    below, squares_below = n * ceiling - total, n * ceiling**2 - 2.0 * ceiling * total + squares
    return lower, ceiling - _lower(n + missing, below, squares_below, log_term)


@kernel
def _lower(n, total, squares, log_term):  # type: ignore[no-untyped-def]
    sums = np.array([[total, n, squares, total, n, 0.0]])
    return lower_bound(sums, 0, log_term)


class Drift(NamedTuple):
    """`sums` (4,): n, ΣU, ΣU² and those missing; `at_start` (J, 4): the same when interval j began; `ends` (J, 2): its
    best lower and upper end so far.

    `counts` (4,): intervals begun, n at which to look again, n at the alarm, 0 if none, and deployments in which the
    incumbent acted, or may have; n is of those in which it did, missing ones included.
    """

    sums: Array
    at_start: Array
    ends: Array
    counts: IntArray


def new_drift() -> Drift:
    """Nothing seen: interval 0 begins with the first episode."""
    ends = np.tile([-np.inf, np.inf], (NUM_STARTS, 1))
    return Drift(np.zeros(4), np.zeros((NUM_STARTS, 4)), ends, np.array([1, 1, 0, 0]))


@kernel
def follow(drift, utility, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """Take in the next deployment in which the incumbent acts, or may, and look if it is time to; log_term = ln(2B/δ).

    `utility` is NaN if it is missing, and NOT_ITS if the incumbent did not act after all.
    """
    sums = drift.sums
    drift.counts[3] += 1
    if math.isnan(utility):
        sums[3] += 1.0
    elif utility != NOT_ITS:
        sums[0] += 1.0
        sums[1] += utility
        sums[2] += utility * utility
    n = sums[0] + sums[3]
    if n >= drift.counts[1] and drift.counts[2] == 0:
        drift.counts[1] = int(n + 1 + LOOK * n)
        _compare(drift, n, ceiling, sigma, log_term)
    j = drift.counts[0]
    if j < NUM_STARTS and drift.counts[3] >= FIRST_START * GROWTH ** (j - 1):
        for i in range(4):
            drift.at_start[j, i] = sums[i]
        drift.counts[0] += 1


@kernel
def _compare(drift, n, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """Ask all intervals, and raise the alarm if two of them do not meet."""
    lowest_upper, highest_lower = np.inf, -np.inf
    sums, starts, ends = drift.sums, drift.at_start, drift.ends
    for j in range(drift.counts[0]):
        lower, upper = interval(
            sums[0] - starts[j, 0], sums[1] - starts[j, 1], sums[2] - starts[j, 2], sums[3] - starts[j, 3], ceiling,
            sigma, log_term + math.log((j + 1.0) * (j + 2.0)),
        )  # fmt: skip
        ends[j, 0], ends[j, 1] = max(ends[j, 0], lower), min(ends[j, 1], upper)
        highest_lower, lowest_upper = max(highest_lower, ends[j, 0]), min(lowest_upper, ends[j, 1])
    if highest_lower > lowest_upper + ROUNDING:
        drift.counts[2] = int(n)
