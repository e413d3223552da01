"""The inner problem over finitely many arms: max E[f] s.t. E[g_c] ≥ b_c for every constraint c. Exact, no LP solver.

It is linear in the policy, so a vertex mixes at most m + 1 arms. With one constraint the optimum is the upper concave
envelope of the points (gᵢ, fᵢ) at the abscissa b. With several the simplex method finds it; it begins with the
incumbent, which is one more choice.
"""

from typing import Any

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.mixing import share_reaching
from episafe.kernels.mixture_weights import keeps_all, solved_program
from episafe.types import Array

INFEASIBLE = -1


def solve(f: Any, g: Any, threshold: float) -> Array | None:
    """Probabilities (n,) of the best mixture with E[g] ≥ b, or None where no arm has g ≥ b.

    Example:
        >>> solve([1.0, 0.0], [0.0, 1.0], 0.25).tolist()
        [0.75, 0.25]
    """
    f, g = np.ascontiguousarray(f, dtype=np.float64), np.ascontiguousarray(g, dtype=np.float64)
    order = np.empty(len(f), dtype=np.int64)
    low, high, share, _ = envelope(f, g, threshold, order)
    if high == INFEASIBLE:
        return None
    probabilities = np.zeros(len(f))
    probabilities[low] = 1 - share
    probabilities[high] += share
    return probabilities


@kernel
def envelope(f, g, threshold, order):  # type: ignore[no-untyped-def]
    """Two arms, the share of the second and λ: `low` has g < b and `high` g ≥ b, or both are one arm.

    The arm of largest f is the answer if it has g ≥ b. Otherwise the edge of the upper hull over b is, between that arm
    and the arm of largest g; arms below the chord of these two cannot be on the hull and are dropped before sorting, so
    the cost is O(n + m log m) with m arms left. `order` (n,) is room to work in.
    """
    low, high = 0, 0
    for i in range(1, f.shape[0]):
        if f[i] > f[low] or (f[i] == f[low] and g[i] > g[low]):
            low = i
        if g[i] > g[high] or (g[i] == g[high] and f[i] > f[high]):
            high = i
    if g[low] >= threshold:
        return low, low, 1.0, 0.0
    if not g[high] >= threshold:
        return low, INFEASIBLE, 0.0, np.nan
    size = _hull(f, g, low, high, order)
    edge = 1
    while g[order[edge]] < threshold:
        edge += 1
    low, high = order[edge - 1], order[edge]
    assert size > edge
    return low, high, share_reaching(g[low], g[high], threshold), (f[low] - f[high]) / (g[high] - g[low])


@kernel
def _hull(f, g, low, high, order):  # type: ignore[no-untyped-def]
    """Vertices of the upper hull from `low` to `high` by growing g, into `order`; returns how many."""
    size = 0
    for i in range(f.shape[0]):
        above = (f[i] - f[low]) * (g[high] - g[low]) > (f[high] - f[low]) * (g[i] - g[low])
        if above or i in (low, high):
            order[size] = i
            size += 1
    _sort(order, size, f, g)
    kept = 0
    for position in range(size):
        i = order[position]
        if kept > 0 and g[order[kept - 1]] == g[i]:
            continue  # of arms with one g only the one of largest f, which comes first
        while kept > 1 and _below(f, g, order[kept - 2], order[kept - 1], i):
            kept -= 1
        order[kept] = i
        kept += 1
    return kept


@kernel
def _below(f, g, left, middle, right):  # type: ignore[no-untyped-def]
    """Whether `middle` is on or below the chord from `left` to `right`."""
    return (f[middle] - f[left]) * (g[right] - g[left]) <= (f[right] - f[left]) * (g[middle] - g[left])


@kernel
def _sort(order, size, f, g):  # type: ignore[no-untyped-def]
    """Heap sort of order[:size] by g upwards, then f downwards, in place."""
    for start in range(size // 2 - 1, -1, -1):
        _sink(order, start, size, f, g)
    for end in range(size - 1, 0, -1):
        order[0], order[end] = order[end], order[0]
        _sink(order, 0, end, f, g)


@kernel
def _sink(order, start, end, f, g):  # type: ignore[no-untyped-def]
    parent = start
    while 2 * parent + 1 < end:
        child = 2 * parent + 1
        if child + 1 < end and _before(f, g, order[child], order[child + 1]):
            child += 1
        if not _before(f, g, order[parent], order[child]):
            return
        order[parent], order[child] = order[child], order[parent]
        parent = child


@kernel
def _before(f, g, i, j):  # type: ignore[no-untyped-def]
    return g[i] < g[j] or (g[i] == g[j] and f[i] > f[j])


@lean_kernel
def over_policy(policy, values):  # type: ignore[no-untyped-def]
    """Σ_i π_i values_i, both (n,)."""
    total = 0.0
    for i in range(policy.shape[0]):
        if policy[i] > 0.0:
            total += policy[i] * values[i]
    return total


@kernel
def best_over_arms(f, g, thresholds, safe, first, policy):  # type: ignore[no-untyped-def]
    """Fills `policy` (n,) and returns the sum of the multipliers; NaN where the incumbent does not keep g ≥ b itself.

    f (n,), g (m, n), b (m,); the incumbent's probabilities are safe[first + i].
    """
    m, n = g.shape
    scores, lower = np.zeros(1 + n), np.zeros((1 + n, m))
    for i in range(n):
        share, scores[1 + i] = safe[first + i], f[i]
        if share > 0.0:
            scores[0] += share * f[i]
        for c in range(m):
            lower[1 + i, c] = g[c, i]
            if share > 0.0:
                lower[0, c] += share * g[c, i]
    weights, in_use = np.zeros(1 + n), np.ones(1 + n, dtype=np.int64)
    weights[0] = 1.0
    if not keeps_all(weights, lower, thresholds):
        return np.nan
    weights, multipliers = solved_program(scores, lower, thresholds, in_use)
    for i in range(n):
        policy[i] = weights[1 + i] + weights[0] * safe[first + i]
    return multipliers.sum()
