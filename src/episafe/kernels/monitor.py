"""Wealth of bets against claims about deployments; reports may be delayed or lost for any reason.

Deployment k is turned into a number g_k ≥ −1 whose mean, given the past, is at most 0 if the claim holds. The past is
all plans, draws and outcomes before it, reported or not, and all that decided which reports have arrived. For a bet
λ ∈ (0, 1) the wealth

    W_s = Π_{k ≤ s} (1 + λ g_k),   in the order of deployments,

is a supermartingale that starts at 1, and so is its mean over bets. By Ville's inequality it ever reaches 1/δ with
probability at most δ. A deployment without a report counts at its best, g = −1. The computed wealth of every prefix s
is then at most W_s, so every prefix may be compared with 1/δ.

A claim E[U | past] ≥ c of totals U ≤ H has g = (c − U)/(H − c). A claim that an event has probability p has
g = (1 − p)/p if it happens and −1 if not, and the same for its complement.
"""

import math

import numpy as np

from episafe.kernels.compilation import kernel

BETS = 0.9 * 2.0 ** (-0.75 * np.arange(14))  # from 0.9 to 0.001: the best bet is about √(ln(1/δ)/n)


@kernel
def expect(logs, place, gains):  # type: ignore[no-untyped-def]
    """Write ln(1 + λ g) of one deployment; `logs` (W, R, B), `gains` (R,)."""
    for r in range(gains.shape[0]):
        for i in range(BETS.shape[0]):
            logs[place, r, i] = math.log1p(BETS[i] * gains[r])


@kernel
def outcome(logs, place, claims, utility, ceiling, tolerance, sums):  # type: ignore[no-untyped-def]
    """Put the outcome (m,) of a deployment in the place of the best case, for claims (2m,) that are not NaN.

    `sums` (C, 3) has, for each claim, the number of reports, ΣU and Σ claimed.
    """
    m = utility.shape[0]
    for r in range(claims.shape[0]):
        claimed, seen = claims[r], utility[r % m]
        if not math.isnan(claimed):
            gain = max((claimed - tolerance - seen) / max(ceiling - claimed, tolerance * ceiling), -1.0)
            for i in range(BETS.shape[0]):
                logs[place, r, i] = math.log1p(BETS[i] * gain)
            sums[r, 0] += 1.0
            sums[r, 1] += seen
            sums[r, 2] += claimed


@kernel
def settle(settled, logs, begin, end):  # type: ignore[no-untyped-def]
    """Add the deployments from `begin` to `end` − 1 to `settled` (R, B)."""
    for k in range(begin, end):
        for r in range(settled.shape[0]):
            for i in range(BETS.shape[0]):
                settled[r, i] += logs[k, r, i]


@kernel
def raise_wealth(settled, logs, begin, end, changed, starts, best):  # type: ignore[no-untyped-def]
    """Raise `best` (C,) to ln of the largest mean wealth of a prefix that ends at `changed` or later.

    Deployments `begin` to `end` − 1 follow those in `settled` (R, B). Claim c has the rows starts[c] to
    starts[c + 1] − 1.
    """
    num_bets = BETS.shape[0]
    total = settled.copy()
    for k in range(begin, end):
        for r in range(settled.shape[0]):
            for i in range(num_bets):
                total[r, i] += logs[k, r, i]
        if k < changed:
            continue
        for c in range(best.shape[0]):
            largest, rows = -np.inf, starts[c + 1] - starts[c]
            for r in range(starts[c], starts[c + 1]):
                for i in range(num_bets):
                    largest = max(largest, total[r, i])
            if largest > best[c]:  # a mean is at most the largest
                mean = 0.0
                for r in range(starts[c], starts[c + 1]):
                    for i in range(num_bets):
                        mean += math.exp(total[r, i] - largest)
                best[c] = max(best[c], largest + math.log(mean / (rows * num_bets)))
