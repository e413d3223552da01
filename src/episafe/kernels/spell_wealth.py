"""What a bettor earns who believes that deployments have been below a claim *of late*, however good they were before.

Who bets against a claim from the first deployment on (`claim_wealth`) loses so much in good times that a bad spell
after them is seen late or never. So new bettors come in, every EVERY deployments one, the j-th (from 0) with a share
w_j = 1/((j + 1)(j + 2)) of the first unit, Σ w_j = 1. With g_k and λ as in `claim_wealth`,

    R_s = Σ_j w_j Π_{k = EVERY·j}^{s} (1 + λ g_k)

is at most the wealth of all of them, those who are still to come included, which is a supermartingale from 1 if the
claim holds of every deployment; so its mean over the bets ever reaches 1/δ with probability at most δ. Deployments are
taken in their order; one that is missing counts at its best, g = −1.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import BETS
from episafe.types import Array, IntArray

EVERY = 16
MOST = 1e300  # wealth that nobody need count beyond


class Spell(NamedTuple):
    """What the bettors have: `wealth` (B,), R by bets; `counts` (2,): deployments, and how many there were at the
    alarm, 0 before."""

    wealth: Array
    counts: IntArray


def new_spell() -> Spell:
    """Nothing deployed yet."""
    return Spell(np.zeros(len(BETS)), np.zeros(2, dtype=np.int64))


@kernel
def follow_spells(spell, lacks, log_term):  # type: ignore[no-untyped-def]
    """Take in g of deployments in their order, NaN for those that the claim is not about; log_term = ln(1/δ)."""
    for k in range(lacks.shape[0]):
        if math.isnan(lacks[k]):
            continue
        j = spell.counts[0] // EVERY
        joins = 1.0 / ((j + 1.0) * (j + 2.0)) if spell.counts[0] % EVERY == 0 else 0.0
        total = 0.0
        for i in range(BETS.shape[0]):
            spell.wealth[i] = min((spell.wealth[i] + joins) * (1.0 + BETS[i] * lacks[k]), MOST)
            total += spell.wealth[i]
        spell.counts[0] += 1
        if spell.counts[1] == 0 and math.log(max(total / BETS.shape[0], 1e-300)) >= log_term:
            spell.counts[1] = spell.counts[0]
