"""What utilities alone can contradict: the incumbent's promise, the threshold, bounds, steadiness. One pass a batch."""

import math
from typing import NamedTuple

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels import mean_intervals
from episafe.kernels.claim_wealth import (
    OF_BOUND,
    OF_COIN,
    OF_INCUMBENT,
    OF_THRESHOLD,
    Purse,
    against,
    block_of,
    credit,
    judge,
    new_purse,
    open_next,
)
from episafe.kernels.compilation import kernel
from episafe.kernels.mean_intervals import Drift, new_drift
from episafe.types import Array, IntArray

INCUMBENT, CHECKED = 1, 2  # bits: the incumbent acted; the plan was not the incumbent, and says it was checked
NOW = -1  # the place of what is deployed and reported at once


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
    """All that was seen: the purse of those who bet against claims; drift; `counts` (1,): reports watched."""

    purse: Purse
    drift: Drift
    counts: IntArray


def nothing_seen() -> Seen:
    """Before the first deployment."""
    return Seen(new_purse(), new_drift(), np.zeros(1, dtype=np.int64))


class Batch(NamedTuple):
    """Reports: `utilities` (n,), NaN where one does not count; `bounds` (n,); `who` (n,) in the bits above; `sigmas`
    (n,), where they are noisy; `places` (n,) of their deployments; `charged` (n,), the bits that they were pending for.
    """

    utilities: Array
    bounds: Array
    who: IntArray
    sigmas: Array
    places: IntArray
    charged: IntArray


@kernel
def expect(purse, promise, who, bound, coin, oldest):  # type: ignore[no-untyped-def]
    """One more deployment, pending for the claims that it counts for; `coin` is 1 if its coin is not known yet."""
    block = open_next(purse, oldest)
    for claim in range(OF_COIN):
        purse.pending[block, claim] += _counts_for(claim, promise, who, bound)
    purse.pending[block, OF_COIN] += coin
    return purse.size[0] - 1


@kernel
def _counts_for(claim, promise, who, bound):  # type: ignore[no-untyped-def]
    """1 if a deployment counts for a claim of utilities, else 0."""
    if claim == OF_INCUMBENT:
        return int(who & INCUMBENT != 0 and promise.incumbent > -np.inf)
    return int(who & CHECKED != 0 and (claim == OF_THRESHOLD or not math.isnan(bound)))


@kernel
def take_in(seen, promise, batch, oldest, log_term):  # type: ignore[no-untyped-def]
    """Take in a batch of reports; log_term = ln(1/δ)."""
    for k in range(batch.utilities.shape[0]):
        who, charged, place = batch.who[k], batch.charged[k], batch.places[k]
        if place == NOW:
            place, charged = expect(seen.purse, promise, who, batch.bounds[k], 0, oldest), who
        if not math.isnan(batch.utilities[k]):
            seen.counts[0] += 1
            block = block_of(seen.purse, place)
            for claim in range(OF_COIN):
                _settle(seen.purse, claim, promise, batch, k, block, charged, log_term)


@kernel
def _settle(purse, claim, promise, batch, k, block, charged, log_term):  # type: ignore[no-untyped-def]
    """Put the factor of report k in the place of the one of a deployment that is not reported."""
    bound, utility = batch.bounds[k], batch.utilities[k]
    freed, counts = _counts_for(claim, promise, charged, bound), _counts_for(claim, promise, batch.who[k], bound)
    purse.pending[block, claim] -= freed
    if counts:
        claimed, rounding = bound if claim == OF_BOUND else promise.threshold, 0.0
        if claim == OF_INCUMBENT:
            claimed, rounding = promise.incumbent, TOLERANCE
        purse.counts[claim, 0] += 1
        purse.sums[claim, 0] += utility
        purse.sums[claim, 1] += claimed
        credit(purse, block, claim, against(utility, claimed - rounding, promise.ceiling, batch.sigmas[k]))
    if freed or counts:
        judge(purse, claim, block, log_term)


@kernel
def follow(seen, promise, utilities, log_term):  # type: ignore[no-untyped-def]
    """Take in, in their order, deployments in which the incumbent acts, or may: see `mean_intervals.follow`."""
    for k in range(utilities.shape[0]):
        mean_intervals.follow(seen.drift, utilities[k], promise.ceiling, promise.sigma, log_term)
