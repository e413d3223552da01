"""Choose a mixture of candidates: the largest score among the mixtures whose bounds reach every limit.

    max_w Σ_i w_i score_i   s.t.   Σ_i w_i L_ic ≥ b_c for all c,   Σ_i w_i = 1,   w ≥ 0

With one limit at most two candidates have a weight, in closed form. With m limits a vertex has at most m + 1 weights;
the simplex method begins with the base policy alone, which reaches every limit, and stays among mixtures that do, up to
rounding. The weights that are returned pass the check in float64. Scores are heuristic, the check is not.
"""

from typing import NamedTuple

import numpy as np

from episafe.core.types import Array, IntArray
from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.wealth import admits, mixture_bound

# These change the regret and never the guarantee; set on the released problems of seeds 1000 to 1033.
TRUST = 30.0  # episodes that the reward promised for the newest candidate counts for; 1 for the others
EPISODES_TO_CERTIFY = 1000.0  # of one candidate, in round numbers
ROUNDING = 2.0**-52  # shares are raised by 0, 1, 3, 7, 15, … of it: each step is twice the one before
MOST_PIVOTS = 1000  # Bland's rule ends by itself; a handful is usual
IMPROVEMENT = 1e-12  # of an objective in units of rewards
NEGLIGIBLE = 1e-12  # weights up to this are rounding
GUARD = 1e-12  # of b: what the program asks for beyond it, so that the check passes without another policy


class Ranking(NamedTuple):
    """How good candidates seem: `rewards` (n, 2) are ΣqR and Σq, `guess` (n,) the promised reward, `newest` (1,)."""

    rewards: Array
    guess: Array
    newest: IntArray


@lean_kernel
def score(ranking, i):  # type: ignore[no-untyped-def]
    """Return the mean reward of candidate i, with the promised reward as so many more episodes."""
    trust = TRUST if i == ranking.newest[0] else 1.0
    return (ranking.rewards[i, 0] + trust * ranking.guess[i]) / (ranking.rewards[i, 1] + trust)


@lean_kernel
def reward_row(ranking, i, share, reward):  # type: ignore[no-untyped-def]
    """Add the reward of an episode in which candidate i had this share."""
    ranking.rewards[i, 0] += share * reward
    ranking.rewards[i, 1] += share


@lean_kernel
def payer_share(L_i, L_j, threshold):  # type: ignore[no-untyped-def]
    """Return 1 − p of the largest p at which p·L_i + (1−p)·L_j passes the check, L_i < b < L_j; 1 if none does."""
    share = min(max((threshold - L_i) / (L_j - L_i), 0.0), 1.0)
    share, nudge = 1.0 - (1.0 - share), 0.0  # so that p = 1 − share, and share = 1 − p to the bit
    while nudge < 2.0:
        tried = min(share + nudge, 1.0)
        if admits((1.0 - tried) * L_i + tried * L_j, threshold):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    return 1.0


@lean_kernel
def best_pair(ranking, lower, in_use, base, threshold, bonus):  # type: ignore[no-untyped-def]
    """Return (i, j, p, value) of the best mixture p·i + (1−p)·j for one limit; i = j and p = 1 for one policy.

    One policy is below b and the other, above it, pays: p = (L_j − b)/(L_j − L_i). `bonus` is added to the score of the
    newest candidate. The base policy reaches the limit.
    """
    n = lower.shape[0]
    first, second, weight, best = base, base, 1.0, score(ranking, base)
    for i in range(n):
        if in_use[i] == 0:
            continue
        L_i, score_i = lower[i, 0], score(ranking, i)
        if i == ranking.newest[0]:
            score_i += bonus
        if admits(L_i, threshold):
            if score_i > best:
                first, second, weight, best = i, i, 1.0, score_i
            continue
        for j in range(n):
            L_j = lower[j, 0]
            if in_use[j] == 0 or L_j <= threshold:
                continue
            share = payer_share(L_i, L_j, threshold)
            value = (1.0 - share) * score_i + share * score(ranking, j)
            if value > best and share < 1.0:
                first, second, weight, best = i, j, 1.0 - share, value
    return first, second, weight, best


@lean_kernel
def choose_pair(ranking, lower, in_use, base, threshold, num_episodes):  # type: ignore[no-untyped-def]
    """Return (i, j, p) of the mixture to deploy for one limit.

    If the newest candidate promises more than the best mixture, an episode of it is worth more than its reward: the
    gain, for as many episodes as there were so far, over the episodes that it takes to certify it.
    """
    i, j, p, value = best_pair(ranking, lower, in_use, base, threshold, 0.0)
    gain = score(ranking, ranking.newest[0]) - value
    if gain > 0.0:
        i, j, p, value = best_pair(ranking, lower, in_use, base, threshold, gain * num_episodes / EPISODES_TO_CERTIFY)
    return i, j, p


@lean_kernel
def keeps_all(weights, lower, thresholds):  # type: ignore[no-untyped-def]
    """Return whether a mixture passes the check of every limit."""
    passed = True
    for c in range(thresholds.shape[0]):
        passed = passed and admits(mixture_bound(weights, lower, c), thresholds[c])
    return passed


@kernel
def best_weights(scores, lower, thresholds, in_use, base):  # type: ignore[no-untyped-def]
    """Return the weights (n,) that solve the program and pass the check; the base alone where nothing else does."""
    weights = climb(program(scores, lower, thresholds, in_use, base, GUARD), scores.shape[0], base)
    return passing_weights(weights, lower, thresholds, base)


@kernel
def solve(scores, lower, thresholds, in_use, base, guard):  # type: ignore[no-untyped-def]
    """Return the weights (n,) that solve the program, and the multipliers: what a unit of each utility is worth, (m,).

    Rounding may let them miss a limit, if there is no guard.
    """
    (n, m), table = lower.shape, program(scores, lower, thresholds, in_use, base, guard)
    weights, multipliers = climb(table, n, base), np.zeros(m)
    for c in range(m):
        multipliers[c] = max(table[m + 1, n + c], 0.0)
    return weights, multipliers


@kernel
def choose_weights(scores, newest, lower, thresholds, in_use, base, reach):  # type: ignore[no-untyped-def]
    """Return the weights (n,) to deploy; a newest candidate that promises more has `reach` times the gain as bonus."""
    n, gain = scores.shape[0], scores[newest]
    weights = climb(program(scores, lower, thresholds, in_use, base, GUARD), n, base)
    for i in range(n):
        gain -= weights[i] * scores[i]
    if newest != base and newest > 0 and in_use[newest] == 1 and gain > 0.0:
        raised = scores.copy()
        raised[newest] += gain * reach
        weights = climb(program(raised, lower, thresholds, in_use, base, GUARD), n, base)
    return passing_weights(weights, lower, thresholds, base)


@kernel
def program(scores, lower, thresholds, in_use, base, guard):  # type: ignore[no-untyped-def]
    """Return the table of the simplex method (m + 2, n + m + 2), with the basis that stands for the base alone.

    With w_base = 1 − Σ x_i it is: max Σ x_i (score_i − score_base) s.t. Σ x_i ≤ 1 and, for all c,
    Σ_i x_i (L_base,c − L_ic) ≤ L_base,c − b_c − guard·max{1, |b_c|}.
    """
    n, m = lower.shape
    table = np.zeros((m + 2, n + m + 2))
    for i in range(n):
        if in_use[i] == 0 or i == base:
            continue  # a column of zeros never enters
        table[m + 1, i] = scores[base] - scores[i]
        table[m, i] = 1.0
        for c in range(m):
            table[c, i] = lower[base, c] - lower[i, c]
    for row in range(m + 1):
        table[row, n + row] = 1.0
        table[row, n + m + 1] = 1.0
        if row < m:
            limit = thresholds[row] + guard * max(1.0, abs(thresholds[row]))
            table[row, n + m + 1] = max(lower[base, row] - limit, 0.0)
    return table


@kernel
def climb(table, n, base):  # type: ignore[no-untyped-def]
    """Return the weights (n,) of the optimum: pivot by Bland's rule until there is nothing to gain."""
    rows, last = table.shape[0] - 1, table.shape[1] - 1
    basis = np.arange(n, n + rows)
    for _ in range(MOST_PIVOTS):
        entering, leaving, least = 0, -1, np.inf
        while entering < last and table[rows, entering] >= -IMPROVEMENT:
            entering += 1
        for row in range(rows if entering < last else 0):
            if table[row, entering] > IMPROVEMENT:
                ratio = table[row, last] / table[row, entering]
                if ratio < least or (ratio == least and basis[row] < basis[leaving]):
                    leaving, least = row, ratio
        if leaving < 0:
            break
        scale, basis[leaving] = table[leaving, entering], entering
        for j in range(last + 1):
            table[leaving, j] /= scale
        for row in range(rows + 1):
            factor = table[row, entering]
            if row != leaving and factor != 0.0:
                for j in range(last + 1):
                    table[row, j] -= factor * table[leaving, j]
    weights, rest = np.zeros(n), 1.0
    for row in range(rows):
        if basis[row] < n and table[row, last] > NEGLIGIBLE:
            weights[basis[row]] = table[row, last]
            rest -= table[row, last]
    weights[base] = rest if rest > NEGLIGIBLE else 0.0
    return weights


@kernel
def passing_weights(weights, lower, thresholds, base):  # type: ignore[no-untyped-def]
    """Return weights moved towards the base by as little as lets them pass the check: 0, 1, 3, 7, … roundings."""
    total, nudge, tried = 0.0, 0.0, np.zeros(weights.shape[0])
    for i in range(weights.shape[0]):
        total += weights[i]
    while nudge < 1.0:
        for i in range(weights.shape[0]):
            tried[i] = (1.0 - nudge) * weights[i] / total
        tried[base] += nudge
        if keeps_all(tried, lower, thresholds):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    tried[:] = 0.0
    tried[base] = 1.0
    return tried
