"""TEMPORARY: replaced by kernels/mixture.py."""

import math

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel, plain_kernel

ROUNDING = 2.0**-52
MOST_PIVOTS = 1000
IMPROVEMENT = 1e-12
NEGLIGIBLE = 1e-12
GUARD = 1e-12


@plain_kernel
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@plain_kernel
def mixed(low, high, share):  # type: ignore[no-untyped-def]
    """(1 − share)·low + share·high: the number that certifies, always computed in this one way."""
    return (1.0 - share) * low + share * high


@plain_kernel
def share_reaching(low, high, threshold):  # type: ignore[no-untyped-def]
    """The share of `high` > `low` at which the mixture is at b, up to rounding: (b − low)/(high − low), in [0, 1]."""
    return min(max((threshold - low) / (high - low), 0.0), 1.0)


@plain_kernel
def nudged(low, high, share, threshold):  # type: ignore[no-untyped-def]
    """The smallest share ≥ `share` tried whose mixture passes the check in float64; NaN where `high` itself fails."""
    nudge = 0.0
    while nudge < 2.0:
        tried = min(share + nudge, 1.0)
        if admits(mixed(low, high, tried), threshold):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    return math.nan


@lean_kernel
def mixture_bound(weights, lower, c):  # type: ignore[no-untyped-def]
    """Σ_i w_i L_ic of weights (n,), bounds `lower` (n, m): the number that certifies, always computed in this way."""
    bound = 0.0
    for i in range(weights.shape[0]):
        if weights[i] > 0.0:
            bound += weights[i] * lower[i, c]
    return bound


@lean_kernel
def keeps_all(weights, lower, thresholds):  # type: ignore[no-untyped-def]
    """Whether a mixture passes the check of every constraint."""
    passed = True
    for c in range(thresholds.shape[0]):
        passed = passed and admits(mixture_bound(weights, lower, c), thresholds[c])
    return passed


@kernel
def solved_program(scores, lower, thresholds, in_use):  # type: ignore[no-untyped-def]
    """The same with the multiplier of each constraint, (m,): what a unit of its utility is worth in scores."""
    (n, m), (table, basis) = lower.shape, program(scores, lower, thresholds, in_use)
    climb(table, basis)
    multipliers = np.zeros(m)
    for c in range(m):
        multipliers[c] = max(table[m + 1, n - 1 + c], 0.0)
    return nudged_weights(vertex(table, basis, n), lower, thresholds), multipliers


@kernel
def program(scores, lower, thresholds, in_use):  # type: ignore[no-untyped-def]
    """The table of the simplex method, (m + 2, n + m + 1), and the basis (m + 1,) that stands for policy 0 alone.

    scores (n,), bounds `lower` (n, m), thresholds b (m,), `in_use` (n,) 1 or 0. With w_0 = 1 − Σ_{i>0} w_i it is, for
    x = (w_1, …): max Σ x_i (score_i − score_0) s.t. Σ x_i ≤ 1 and Σ_i x_i (L_0c − L_ic) ≤ L_0c − b_c for all c.
    """
    n, m = lower.shape
    table, basis = np.zeros((m + 2, n + m + 1)), np.arange(n - 1, n + m)
    for i in range(1, n):
        if in_use[i] == 0:
            continue  # a column of zeros never enters
        table[m + 1, i - 1] = scores[0] - scores[i]
        table[m, i - 1] = 1.0
        for c in range(m):
            table[c, i - 1] = lower[0, c] - lower[i, c]
    for row in range(m + 1):
        table[row, n - 1 + row] = 1.0
        table[row, n + m] = 1.0
        if row < m:
            table[row, n + m] = max(lower[0, row] - thresholds[row] - GUARD * max(1.0, abs(thresholds[row])), 0.0)
    return table, basis


@lean_kernel
def climb(table, basis):  # type: ignore[no-untyped-def]
    """Pivot until there is nothing to gain."""
    for _ in range(MOST_PIVOTS):
        if not pivot(table, basis):
            break


@kernel
def vertex(table, basis, n):  # type: ignore[no-untyped-def]
    """The weights (n,) that the basis stands for."""
    weights, rest, last = np.zeros(n), 1.0, table.shape[1] - 1
    for row in range(basis.shape[0]):
        if basis[row] < n - 1 and table[row, last] > NEGLIGIBLE:
            weights[basis[row] + 1] = table[row, last]
            rest -= table[row, last]
    weights[0] = rest if rest > NEGLIGIBLE else 0.0
    return weights


@lean_kernel
def pivot(table, basis):  # type: ignore[no-untyped-def]
    """One step of the simplex method by Bland's rule; False where there is nothing to gain."""
    rows, last = basis.shape[0], table.shape[1] - 1
    entering = -1
    for j in range(last):
        if table[rows, j] < -IMPROVEMENT:
            entering = j
            break
    if entering < 0:
        return False
    leaving, least = -1, np.inf
    for row in range(rows):
        if table[row, entering] > IMPROVEMENT:
            ratio = table[row, last] / table[row, entering]
            if ratio < least or (ratio == least and basis[row] < basis[leaving]):
                leaving, least = row, ratio
    if leaving < 0:
        return False
    scale = table[leaving, entering]
    for j in range(last + 1):
        table[leaving, j] /= scale
    for row in range(rows + 1):
        factor = table[row, entering]
        if row != leaving and factor != 0.0:
            for j in range(last + 1):
                table[row, j] -= factor * table[leaving, j]
    basis[leaving] = entering
    return True


@kernel
def nudged_weights(weights, lower, thresholds):  # type: ignore[no-untyped-def]
    """Weights moved towards policy 0 by as little as lets them pass the check: 0, 1, 3, 7, … roundings."""
    total, nudge, tried = 0.0, 0.0, np.zeros(weights.shape[0])
    for i in range(weights.shape[0]):
        total += weights[i]
    while nudge < 1.0:
        for i in range(weights.shape[0]):
            tried[i] = (1.0 - nudge) * weights[i] / total
        tried[0] += nudge
        if keeps_all(tried, lower, thresholds):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    tried[:] = 0.0
    tried[0] = 1.0
    return tried
