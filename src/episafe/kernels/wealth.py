"""Wealth of bets against means: the arithmetic of every lower confidence sequence. Trusted, with certify/evidence.py.

One candidate, μ a guess of its mean utility V, λ ∈ (0, 1) a bet. In an episode of a mixture with weights w, the share
of the candidate is q = w·π(τ) / Σ_i w_i π_i(τ), the probability that it acted given the trajectory τ. X ≥ x₀ is the
total utility of the episode. By Lemma 1, E[q(X − μ)] = w(V − μ), so that the wealth

    W_λ(μ) = Π (1 + λ q ((X − x₀)/(μ − x₀) − 1)),   over the deployments of the candidate, in their order,

is a martingale if μ = V, and so is its mean over B bets. By Lemma 2 every μ at which that mean has reached 1/δ is too
small. A deployment without a report counts as q = 1 and X = x₀: a factor 1 − λ, the least that a factor can be
(Lemma 3). Wealth is kept on a grid of means. It falls with μ, so L is the largest point that any prefix of the
deployments reached. Scalar float64 in deployment order, so that a replay gives the same bits.
docs/appendix/theory.md has the proofs.
"""

from typing import NamedTuple

import numpy as np

from episafe.core.types import Array, IntArray
from episafe.kernels.compilation import kernel, lean_kernel, plain_kernel

# One bold bet for few and steady episodes, flat ones, and small ones for many: the best is about √(ln(1/δ)/n).
BETS = np.concatenate([[0.98], np.linspace(0.9, 0.06, 8), np.geomspace(0.03, 0.0015, 4)])
BET_WEIGHTS = np.repeat([0.4, 0.4 / 8, 0.2 / 4], [1, 8, 4])  # chosen on candidates of seeds that no benchmark reports
LOG_WORST = np.log1p(-BETS)  # the cost of a deployment without a report
NUM_PLAIN = 32  # factors that are multiplied before their logarithm is taken
LARGEST = 1e6  # (X − x₀)/(μ − x₀) counts as this at most, so that a product of 32 factors is finite


class Wealth(NamedTuple):
    """Sequences of n candidates, one per row, against m limits, for G means and B bets. Row 0 is the incumbent.

    Attributes:
        means: the grid, rising, (n, m, G); a shorter grid repeats its last point.
        logs: ln W, without the last factors, (n, m, G, B).
        products: the product of the last factors, (n, m, G, B).
        num_factors: how many these are, (n, m).
        absent: deployments without a report that count besides, (n,).
        log_term: ln(B/δ_j) of each sequence, (n, m); 0 for an incumbent whose utility is stated.
        reached: the largest point of the grid that is proved to be too small, (n, m); −1 if there is none.
        lower: L, (n, m).
        least: x₀, (n, m).
        in_use: 1 if the row has a candidate, else 0, (n,).
    """

    means: Array
    logs: Array
    products: Array
    num_factors: IntArray
    absent: IntArray
    log_term: Array
    reached: IntArray
    lower: Array
    least: Array
    in_use: IntArray


def new_wealth(num_rows: int, num_means: int, least: Array) -> Wealth:
    """Return rows without a candidate, W = 1, against m limits with least totals x₀ (m,)."""
    totals, shape = np.tile(least, (num_rows, 1)), (num_rows, len(least), num_means)
    logs, products = np.zeros((*shape, len(BETS))), np.ones((*shape, len(BETS)))
    counts, rows = np.zeros(totals.shape, dtype=np.int64), np.zeros(num_rows, dtype=np.int64)
    parts = np.ones(shape), logs, products, counts, rows, np.zeros(totals.shape), counts - 1
    return Wealth(*parts, totals.copy(), totals, rows.copy())


@plain_kernel
def admits(bound, threshold):  # type: ignore[no-untyped-def]
    """Return whether a lower bound on the expected utility reaches the limit: L ≥ b (section 2.4). NaN never does."""
    return bound >= threshold


@lean_kernel
def mixture_bound(weights, lower, c):  # type: ignore[no-untyped-def]
    """Return Σ_i w_i L_ic of weights (n,) and bounds (n, m), always added in this order: what certifies (Theorem 1)."""
    bound = 0.0
    for i in range(weights.shape[0]):
        if weights[i] > 0.0:
            bound += weights[i] * lower[i, c]
    return bound


@lean_kernel
def share_out(acted, num_parts, shares):  # type: ignore[no-untyped-def]
    """Fill `shares` (E, n), which hold the weights w_i, with q_i ∝ w_i Π_h π_i(a_h|s_h) of E episodes (Lemma 1).

    `acted` (E, H, n) has π_i(a_h|s_h) of the first `num_parts` policies. The largest share is kept at 1 from step to
    step, because long products underflow. Return False if some episode is impossible under every policy.
    """
    for e in range(shares.shape[0]):
        for h in range(acted.shape[1]):
            largest = 0.0
            for i in range(num_parts):
                shares[e, i] *= acted[e, h, i]
                largest = max(largest, shares[e, i])
            if not largest > 0.0:
                return False
            for i in range(num_parts):
                shares[e, i] /= largest
        total = 0.0
        for i in range(num_parts):
            total += shares[e, i]
        for i in range(num_parts):
            shares[e, i] /= total
    return True


@lean_kernel
def multiply(wealth, i, c, share, utility):  # type: ignore[no-untyped-def]
    """Multiply 1 + λ q((X − x₀)/(μ − x₀) − 1) into every wealth of row i and limit c above the bound already proved."""
    G, B, least = wealth.logs.shape[2], wealth.logs.shape[3], wealth.least[i, c]
    for g in range(wealth.reached[i, c] + 1, G if share > 0.0 else 0):  # without a share every factor is 1
        gain = share * (min((utility - least) / (wealth.means[i, c, g] - least), LARGEST) - 1.0)
        for k in range(B):
            wealth.products[i, c, g, k] *= 1.0 + BETS[k] * gain
    wealth.num_factors[i, c] += 1
    if wealth.num_factors[i, c] == NUM_PLAIN:
        for g in range(wealth.reached[i, c] + 1, G):
            for k in range(B):
                wealth.logs[i, c, g, k] += np.log(wealth.products[i, c, g, k])
                wealth.products[i, c, g, k] = 1.0
        wealth.num_factors[i, c] = 0


@lean_kernel
def log_wealth(wealth, i, c, g):  # type: ignore[no-untyped-def]
    """Return ln Σ_k W_k at point g of the grid; it refutes the point if it is at least ln(B/δ_j)."""
    total = 0.0
    for k in range(BETS.shape[0]):
        log = wealth.logs[i, c, g, k] + wealth.absent[i] * LOG_WORST[k]
        total += np.exp(log) * wealth.products[i, c, g, k]
    return np.log(total)


@lean_kernel
def raise_bound(wealth, i, c):  # type: ignore[no-untyped-def]
    """Raise L to the largest point of the grid with Σ_k W_k ≥ B/δ_j (Lemma 2)."""
    while wealth.reached[i, c] + 1 < wealth.means.shape[2]:
        g = wealth.reached[i, c] + 1
        if not log_wealth(wealth, i, c, g) >= wealth.log_term[i, c]:
            return
        wealth.reached[i, c], wealth.lower[i, c] = g, wealth.means[i, c, g]


@lean_kernel
def credit(wealth, i, c, share, utility):  # type: ignore[no-untyped-def]
    """Add a reported deployment to row i and limit c, when none of the row is pending: Lemma 2."""
    if wealth.log_term[i, c] > 0.0:  # else the incumbent's utility is stated
        multiply(wealth, i, c, share, utility)
        g = wealth.reached[i, c] + 1
        if share > 0.0 and g < wealth.means.shape[2] and utility > wealth.means[i, c, g]:  # else no wealth has grown
            raise_bound(wealth, i, c)


@kernel
def credit_rows(wealth, rows, shares, utilities):  # type: ignore[no-untyped-def]
    """Add one deployment to rows (R,), with shares (R,) and utilities (R, m)."""
    for k in range(rows.shape[0]):
        for c in range(wealth.lower.shape[1]):
            credit(wealth, rows[k], c, shares[k], utilities[k, c])


@kernel
def credit_episodes(wealth, rows, shares, utilities):  # type: ignore[no-untyped-def]
    """Add E deployments, one after another, to rows (R,), with shares (R, E) and utilities (R, E, m)."""
    for k in range(rows.shape[0]):
        for e in range(shares.shape[1]):
            for c in range(wealth.lower.shape[1]):
                credit(wealth, rows[k], c, shares[k, e], utilities[k, e, c])


@kernel
def credit_log(wealth, i, shares, utilities):  # type: ignore[no-untyped-def]
    """Multiply E logged episodes into row i, shares (E,) and utilities (E, m). Bounds stay: the last wealth decides."""
    for c in range(wealth.lower.shape[1]):
        for e in range(shares.shape[0]):
            multiply(wealth, i, c, shares[e], utilities[e, c])


@kernel
def settle(wealth, i, share, utilities):  # type: ignore[no-untyped-def]
    """Add the oldest deployment of row i that is not in the product, utilities (m,): the next prefix of Lemma 3."""
    for c in range(wealth.lower.shape[1]):
        if wealth.log_term[i, c] > 0.0:
            multiply(wealth, i, c, share, utilities[c])
            raise_bound(wealth, i, c)


@kernel
def raise_by_prefixes(wealth, i, shares, utilities):  # type: ignore[no-untyped-def]
    """Raise every bound of row i by the best prefix of the deployments that follow (Lemma 3).

    shares (E,) and utilities (E, m), in deployment order; q = 1 and X = x₀ for what is not reported.
    """
    logs = np.empty(BETS.shape[0])
    for c in range(wealth.lower.shape[1]):
        again, least = wealth.log_term[i, c] > 0.0, wealth.least[i, c]
        while again and wealth.reached[i, c] + 1 < wealth.means.shape[2]:
            g, again = wealth.reached[i, c] + 1, False
            mean = wealth.means[i, c, g]
            for k in range(BETS.shape[0]):
                log = wealth.logs[i, c, g, k] + np.log(wealth.products[i, c, g, k])
                logs[k] = log + wealth.absent[i] * LOG_WORST[k]
            for e in range(shares.shape[0]):
                gain, total = shares[e] * (min((utilities[e, c] - least) / (mean - least), LARGEST) - 1.0), 0.0
                for k in range(BETS.shape[0]):
                    logs[k] += np.log(1.0 + BETS[k] * gain)
                    total += np.exp(logs[k])
                if np.log(total) >= wealth.log_term[i, c]:
                    wealth.reached[i, c], wealth.lower[i, c], again = g, mean, True
                    break
