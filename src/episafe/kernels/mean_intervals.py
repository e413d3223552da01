"""Anytime confidence intervals of one policy's mean utility, from three sums: n, ΣU and ΣU².

For utilities in [0, H] the lower end is that of `confidence_sequence` with every share 1, and the upper end is H minus
the lower end of H − U. For noisy ones, U − E[U] σ-sub-Gaussian, with the same bets λ,

    |mean − ΣU/n| ≤ min_λ σ (ln(B/δ)/λ + nλ/2)/n

which follows from Ville's inequality for exp(λ Σ(U − E U)/σ − nλ²/2); it holds for the average of means that change.

Drift: such intervals of the incumbent's mean utility from later and later starts on. If nothing drifts, they all meet.
Interval j begins when n_j = 30·1.5^j episodes of the incumbent were seen, interval 0 with the first; it has the share
1/((j+1)(j+2)) of δ, which sum to 1. With probability 1 − δ all of them contain the mean, at all times. So two of them
that do not meet say that the mean has changed. Nothing else about the utilities is assumed.
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
LOOK = 0.02  # it is looked at again when 2 % more episodes were seen: an interval may be asked at any time


@kernel
def interval(n, total, squares, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """(lower, upper) from n, ΣU, ΣU²; `ceiling` is H, or NaN where utilities are noisy; log_term = ln(B/δ) a side."""
    if n == 0:
        return -np.inf, np.inf
    if math.isnan(ceiling):
        width = np.inf
        for i in range(BETS.shape[0]):
            width = min(width, sigma * (log_term / BETS[i] + 0.5 * n * BETS[i]) / n)
        return total / n - width, total / n + width
    lower = _lower(n, total, squares, log_term)
    upper = ceiling - _lower(n, n * ceiling - total, n * ceiling**2 - 2.0 * ceiling * total + squares, log_term)
    return lower, upper


@kernel
def _lower(n, total, squares, log_term):  # type: ignore[no-untyped-def]
    sums = np.array([[total, n, squares, total, n, 0.0]])
    return lower_bound(sums, 0, log_term)


class Drift(NamedTuple):
    """`at_start` (J, 3): n, ΣU, ΣU² when interval j began; `ends` (J, 2): its best lower and upper end so far.

    `counts` (3,): intervals begun, n at which to look again, n at the alarm, 0 if none.
    """

    at_start: Array
    ends: Array
    counts: IntArray


def new_drift() -> Drift:
    """Nothing seen: interval 0 begins with the first episode."""
    ends = np.tile([-np.inf, np.inf], (NUM_STARTS, 1))
    return Drift(np.zeros((NUM_STARTS, 3)), ends, np.array([1, 1, 0]))


@kernel
def compare(drift, sums, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """Look, if it is time to: `sums` (3,) are n, ΣU, ΣU² now; log_term = ln(2B/δ)."""
    n = sums[0]
    if n >= drift.counts[1] and drift.counts[2] == 0:
        drift.counts[1] = int(n + 1 + LOOK * n)
        lowest_upper, highest_lower = np.inf, -np.inf
        for j in range(drift.counts[0]):
            share = math.log((j + 1.0) * (j + 2.0))
            lower, upper = interval(
                n - drift.at_start[j, 0], sums[1] - drift.at_start[j, 1], sums[2] - drift.at_start[j, 2], ceiling,
                sigma, log_term + share,
            )  # fmt: skip
            drift.ends[j, 0], drift.ends[j, 1] = max(drift.ends[j, 0], lower), min(drift.ends[j, 1], upper)
            highest_lower = max(highest_lower, drift.ends[j, 0])
            lowest_upper = min(lowest_upper, drift.ends[j, 1])
        if highest_lower > lowest_upper + ROUNDING:
            drift.counts[2] = int(n)
    j = drift.counts[0]
    if j < NUM_STARTS and n >= FIRST_START * GROWTH ** (j - 1):
        drift.at_start[j, 0], drift.at_start[j, 1], drift.at_start[j, 2] = n, sums[1], sums[2]
        drift.counts[0] += 1
