"""What utilities alone can contradict: the incumbent's promise, the threshold, bounds, steadiness. One pass a batch."""

import math
from typing import NamedTuple

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.claim_wealth import Claim, new_claim, weigh
from episafe.kernels.compilation import kernel
from episafe.kernels.mean_intervals import Drift, compare, interval, new_drift
from episafe.types import Array, IntArray

LOOK = 0.001  # the interval is asked again when 0.1 % more episodes were seen, up to 1000 after each
INCUMBENT, CHECKED = 1, 2  # bits: the incumbent acted; the plan was not the incumbent, and says it was checked


class Promise(NamedTuple):
    """What utilities are compared with.

    `threshold` b; `incumbent` b + ξ, −inf where ξ is unknown; `ceiling` H, NaN where utilities are noisy; `steady`,
    whether the incumbent is to have one mean at all times; `sigma` of its utilities, where they are noisy.
    """

    threshold: float
    incumbent: float
    ceiling: float
    steady: bool = True
    sigma: float = math.nan


class Seen(NamedTuple):
    """All that was seen: `incumbent` (3,) n, ΣU, ΣU²; `interval` (2,); the claims; drift.

    `counts` (4,): episodes watched, the incumbent's, their number at the alarm, 0 if none, and at the next look.
    """

    incumbent: Array
    interval: Array
    threshold: Claim
    bound: Claim
    drift: Drift
    counts: IntArray


def nothing_seen() -> Seen:
    """Before the first episode."""
    ends = np.array([-np.inf, np.inf])
    return Seen(np.zeros(3), ends, new_claim(), new_claim(), new_drift(), np.zeros(4, dtype=np.int64))


class Batch(NamedTuple):
    """Episodes: `utilities` and `bounds` (n,), `who` (n,) in the bits above, `sigmas` (n,), where they are noisy."""

    utilities: Array
    bounds: Array
    who: IntArray
    sigmas: Array


@kernel
def take_in(seen, promise, batch, interval_term, claim_term):  # type: ignore[no-untyped-def]
    """Take in a batch; the terms are ln(2B/δ), two sides and B bets, and ln(1/δ)."""
    H = promise.ceiling
    for k in range(batch.utilities.shape[0]):
        utility = batch.utilities[k]
        seen.counts[0] += 1
        if batch.who[k] & INCUMBENT:
            seen.counts[1] += 1
            seen.incumbent[0] += 1.0
            seen.incumbent[1] += utility
            seen.incumbent[2] += utility * utility
            if seen.counts[1] >= seen.counts[3]:
                _ask(seen, promise, interval_term)
            if promise.steady:
                compare(seen.drift, seen.incumbent, H, promise.sigma, interval_term)
        if batch.who[k] & CHECKED:
            weigh(seen.threshold, utility, promise.threshold, H, batch.sigmas[k], claim_term)
            if not math.isnan(batch.bounds[k]):
                weigh(seen.bound, utility, batch.bounds[k], H, batch.sigmas[k], claim_term)


@kernel
def _ask(seen, promise, log_term):  # type: ignore[no-untyped-def]
    """The interval now, and whether it lies below what is stated."""
    n, total, squares = seen.incumbent[0], seen.incumbent[1], seen.incumbent[2]
    low, high = interval(n, total, squares, promise.ceiling, promise.sigma, log_term)
    seen.interval[0], seen.interval[1] = max(seen.interval[0], low), min(seen.interval[1], high)
    seen.counts[3] = seen.counts[1] + 1 + int(LOOK * n)
    if seen.counts[2] == 0 and seen.interval[1] < promise.incumbent - TOLERANCE:
        seen.counts[2] = seen.counts[1]
