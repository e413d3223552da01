"""What a bettor earns who does not believe a claim about deployments, whatever delays or loses their reports.

The past of deployment k is: all plans up to it, all that came of the deployments before it, reported or not, and
whatever decided which reports have arrived. What comes of it is turned into a number g_k ≥ −1 whose conditional mean,
given the past, is ≤ 0 if the claim holds. For a bet λ ∈ (0, 1) the wealth

    W_s = Π_{k ≤ s} (1 + λ g_k),   in the order of deployments,

is a supermartingale from 1, and so is its mean over the bets: it ever reaches 1/δ with probability at most δ, by
Ville's inequality. What is not reported counts at its best, g = −1, a factor 1 − λ, so that what is computed of a
prefix s is never more than W_s, and *every* prefix may be held against 1/δ: what is pending after s costs nothing.

A claim E[U | past] ≥ c of total utilities has one row of wealth, with

    bounded  U ∈ [0, H]:                g = (c − U)/(H − c)
    noisy    U − E[U] σ-sub-Gaussian:   g = exp(z/2 − 1/8) − 1,   z = (c − U)/σ

c and σ may change from one deployment to the next, as long as they are fixed before it. `coin_bets` has the coin's.

Deployments lie in at most NUM_BLOCKS blocks of consecutive ones; prefixes that end with a block are looked at. A late
report finds its block, and the factor 1 − λ becomes what it should have been. When blocks run out, those before the
first deployment that is waited for become one, and small neighbours do: fewer prefixes are looked at.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.confidence_sequence import BETS
from episafe.types import Array, IntArray

OF_INCUMBENT, OF_THRESHOLD, OF_BOUND, OF_COIN = range(4)  # the claims
ROWS = np.array([0, 1, 2, 3, 9])  # where the rows of each begin; the coin has six
NUM_BLOCKS = 256
PENDING = np.log1p(-BETS)  # ln of the factor of what is not reported
LEAST_ROOM = 1e-9  # of H: a claim of H itself would divide by 0
LARGEST = 700.0  # of an exponent


class Purse(NamedTuple):
    """What the bettors have, by deployments in their order: N blocks, R rows, C claims, B bets.

    `log_wealth` (N, R, B): Σ ln(1 + λg) of those reported; `pending` (N, C): how many are not, and count; `starts`
    (N,): the first of each block; `sums` (C, 2): ΣU and Σc of those reported; `counts` (C, 2): reports, and how many
    there were at the alarm, 0 before; `size` (2,): deployments, blocks.
    """

    log_wealth: Array
    pending: IntArray
    starts: IntArray
    sums: Array
    counts: IntArray
    size: IntArray


def new_purse() -> Purse:
    """Nothing deployed yet."""
    num_claims, num_rows = len(ROWS) - 1, int(ROWS[-1])
    pending, starts = np.zeros((NUM_BLOCKS, num_claims), dtype=np.int64), np.zeros(NUM_BLOCKS, dtype=np.int64)
    counts = np.zeros((num_claims, 2), dtype=np.int64)
    wealth = np.zeros((NUM_BLOCKS, num_rows, len(BETS)))
    return Purse(wealth, pending, starts, np.zeros((num_claims, 2)), counts, np.array([0, 1]))


@lean_kernel
def against(utility, claimed, ceiling, sigma):  # type: ignore[no-untyped-def]
    """g of a utility; `ceiling` is H, or NaN where utilities are noisy with this `sigma`."""
    if math.isnan(ceiling):
        return math.exp(min(0.5 * (claimed - utility) / max(sigma, LEAST_ROOM) - 0.125, LARGEST)) - 1.0
    return (claimed - utility) / max(ceiling - claimed, LEAST_ROOM * ceiling)


@lean_kernel
def open_next(purse, oldest):  # type: ignore[no-untyped-def]
    """One more deployment, in a block of its own unless nothing is pending; `oldest` is the first that is waited for.

    Returns its block.
    """
    if not _is_pending(purse):
        for b in range(1, purse.size[1]):
            _join(purse, 0, b)
        purse.size[1] = 1
    else:
        if purse.size[1] == NUM_BLOCKS:
            _make_room(purse, oldest)
        purse.starts[purse.size[1]] = purse.size[0]
        purse.size[1] += 1
    purse.size[0] += 1
    return purse.size[1] - 1


@lean_kernel
def _is_pending(purse):  # type: ignore[no-untyped-def]
    for b in range(purse.size[1]):
        for c in range(purse.pending.shape[1]):
            if purse.pending[b, c] > 0:
                return True
    return False


@lean_kernel
def _join(purse, into, b):  # type: ignore[no-untyped-def]
    """Add what block b holds to another one, and leave it empty."""
    for c in range(purse.pending.shape[1]):
        purse.pending[into, c] += purse.pending[b, c]
        purse.pending[b, c] = 0
    for r in range(purse.log_wealth.shape[1]):
        for i in range(BETS.shape[0]):
            purse.log_wealth[into, r, i] += purse.log_wealth[b, r, i]
            purse.log_wealth[b, r, i] = 0.0


@lean_kernel
def _make_room(purse, oldest):  # type: ignore[no-untyped-def]
    """Join the blocks before `oldest`, of which every prefix was looked at; if that is not enough, small neighbours."""
    kept, size, since = 0, purse.size[1], purse.size[0] - oldest
    most = 4 * since // NUM_BLOCKS if since > NUM_BLOCKS // 2 else 0
    for b in range(1, size):
        after = purse.starts[b + 1] if b + 1 < size else purse.size[0]
        if after > oldest and after - purse.starts[kept] > most:
            kept += 1
            purse.starts[kept] = purse.starts[b]
        if kept != b:
            _join(purse, kept, b)
    purse.size[1] = kept + 1


@lean_kernel
def block_of(purse, place):  # type: ignore[no-untyped-def]
    """The block of a deployment."""
    b = purse.size[1] - 1
    while purse.starts[b] > place:
        b -= 1
    return b


@lean_kernel
def credit(purse, block, row, g):  # type: ignore[no-untyped-def]
    """Multiply the wealth of a row by 1 + λg."""
    for i in range(BETS.shape[0]):
        purse.log_wealth[block, row, i] += math.log1p(BETS[i] * g)


@kernel
def best_prefix(purse, claim, block, floor):  # type: ignore[no-untyped-def]
    """ln of the largest wealth of a prefix that ends with `block` or later; −inf if that is below `floor`."""
    first, num_rows = ROWS[claim], ROWS[claim + 1] - ROWS[claim]
    logs, best = np.zeros((num_rows, BETS.shape[0])), -np.inf
    for b in range(purse.size[1]):
        largest = -np.inf
        for r in range(num_rows):
            for i in range(BETS.shape[0]):
                logs[r, i] += purse.log_wealth[b, first + r, i] + purse.pending[b, claim] * PENDING[i]
                largest = max(largest, logs[r, i])
        if b >= block and largest >= floor:  # a mean is no larger than the largest
            total = 0.0
            for r in range(num_rows):
                for i in range(BETS.shape[0]):
                    total += math.exp(logs[r, i] - largest)
            mean = largest + math.log(total / logs.size)
            best = max(best, mean) if mean >= floor else best
    return best


@kernel
def judge(purse, claim, block, log_term):  # type: ignore[no-untyped-def]
    """Raise the alarm of a claim if some prefix that ends with `block` or later has earned 1/δ; log_term = ln(1/δ)."""
    if purse.counts[claim, 1] == 0 and best_prefix(purse, claim, block, log_term) >= log_term:
        purse.counts[claim, 1] = purse.counts[claim, 0]
