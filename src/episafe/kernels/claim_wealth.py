"""Claims E[U_k | past] ≥ c_k about total utilities, and what a bettor earns who does not believe them.

U_k is the total utility of the k-th episode watched, c_k what was claimed of it beforehand. For a bet λ ∈ (0, 1) let

    bounded  U ∈ [0, H]:                  W = Π (1 + λ z_k),            z_k = (c_k − U_k)/(H − c_k) ≥ −1
    noisy    U − E[U] σ-sub-Gaussian:     W = Π exp(λ z_k − λ²/2),      z_k = (c_k − U_k)/σ_k

If the claim holds, E[z_k | past] ≤ 0, and each W is a supermartingale from 1; so is their mean over the bets. By
Ville's inequality the mean ever reaches 1/δ with probability at most δ. Policies, c_k and σ_k may change as they like,
as long as they are fixed before the episode.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import BETS
from episafe.types import Array, IntArray

LEAST_ROOM = 1e-9  # of H: a claim of H itself would divide by 0


class Claim(NamedTuple):
    """`log_wealth` (B,), one a bet; `sums` (2,): ΣU, Σc; `counts` (2,): episodes, and that of the alarm, 0 if none."""

    log_wealth: Array
    sums: Array
    counts: IntArray


def new_claim() -> Claim:
    """A claim that nothing was seen of yet."""
    return Claim(np.zeros(len(BETS)), np.zeros(2), np.zeros(2, dtype=np.int64))


@kernel
def weigh(claim, utility, claimed, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """Take in one episode; `ceiling` is H, or NaN where utilities are noisy with this `sigma`; log_term = ln(1/δ)."""
    claim.sums[0] += utility
    claim.sums[1] += claimed
    claim.counts[0] += 1
    bounded = not math.isnan(ceiling)
    scale = max(ceiling - claimed, LEAST_ROOM * ceiling) if bounded else max(sigma, LEAST_ROOM)
    z = (claimed - utility) / scale
    largest = -np.inf
    for i in range(BETS.shape[0]):
        claim.log_wealth[i] += math.log1p(BETS[i] * z) if bounded else BETS[i] * z - 0.5 * BETS[i] ** 2
        largest = max(largest, claim.log_wealth[i])
    if claim.counts[1] > 0 or largest < log_term:  # a mean is no larger than the largest
        return
    total = 0.0
    for i in range(BETS.shape[0]):
        total += math.exp(claim.log_wealth[i] - largest)
    if largest + math.log(total / BETS.shape[0]) >= log_term:
        claim.counts[1] = claim.counts[0]
