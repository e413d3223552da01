"""The inner problem of linear bandits: max_π E_π[f(a)] s.t. E_π[g_c(a)] ≥ b_c for every limit c. Exact.

It is linear in the policy, so that an optimal policy mixes at most m + 1 actions.

- Finitely many arms, one limit: the upper concave envelope of the points (gᵢ, fᵢ) at the abscissa b.
- Finitely many arms, several limits: the simplex method, which starts at the incumbent.
- A centred ball or ellipsoid, one limit: with x = Lᵀa, M = LLᵀ, and W = L⁻¹Λ⁻¹L⁻ᵀ = VwVᵀ the set is the unit ball of
  y = Vᵀx and ‖a‖_{Λ⁻¹} = ‖y‖_w. There f(y) = pᵀy + c_f‖y‖_w, g(y) = qᵀy − c_g‖y‖_w, and the optimum is
  min_{λ≥0} max_y f(y) + λ(g(y) − b). `chords` closes the duality gap; `maximise` solves the inner step.
"""

import math

import numpy as np

from episafe.kernels.bandit_mixing import keeps_all, share_reaching, solved_program
from episafe.kernels.compilation import kernel

INFEASIBLE = -1
CHORDS = 200  # the gap falls by a factor of about four per step, so that 25 are usual
GAP = 1e-13  # relative to the size of the terms: the rounding of a difference in float64
NEWTON = 100  # steps at most; six are usual
SAME = 1e-14  # eigenvalues within this share of the largest belong to its eigenspace


@kernel
def envelope(f, g, threshold, order):  # type: ignore[no-untyped-def]
    """Return two arms, the share of the second and λ: `low` has g < b and `high` g ≥ b, or both are one arm.

    The arm of largest f is the answer if it has g ≥ b. Else the answer is the edge of the upper hull above b, between
    that arm and the arm of largest g; arms below the chord of these two are dropped before sorting. `order` (n,) is
    scratch space. `high` is INFEASIBLE if no arm has g ≥ b.
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
    size, kept, edge, keys = 0, 0, 1, np.empty(f.shape[0])
    for i in range(f.shape[0]):
        above = (f[i] - f[low]) * (g[high] - g[low]) > (f[high] - f[low]) * (g[i] - g[low])
        if above or i in (low, high):
            order[size], keys[size] = i, g[i]
            size += 1
    by_g, candidates = np.argsort(keys[:size]), order[:size].copy()
    for position in range(size):
        i = candidates[by_g[position]]
        if kept > 0 and g[order[kept - 1]] == g[i] and f[order[kept - 1]] >= f[i]:
            continue
        while kept > 1 and _below(f, g, order[kept - 2], order[kept - 1], i):
            kept -= 1
        order[kept] = i
        kept += 1
    while g[order[edge]] < threshold:
        edge += 1
    low, high = order[edge - 1], order[edge]
    return low, high, share_reaching(g[low], g[high], threshold), (f[low] - f[high]) / (g[high] - g[low])


@kernel
def _below(f, g, left, middle, right):  # type: ignore[no-untyped-def]
    """Return whether `middle` is on or below the chord from `left` to `right`."""
    return (f[middle] - f[left]) * (g[right] - g[left]) <= (f[right] - f[left]) * (g[middle] - g[left])


@kernel
def simplex_over_arms(f, g, thresholds, safe, first, policy):  # type: ignore[no-untyped-def]
    """Fill `policy` (n,) and return the sum of the multipliers; NaN if the incumbent itself does not keep g ≥ b.

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


@kernel
def chords(p, q, w, c_f, c_g, threshold, atoms):  # type: ignore[no-untyped-def]
    """Fill `atoms` (2, d), low and high; return the share of the second, λ, the duality gap, and whether feasible.

    The points `low` (g < b) and `high` (g ≥ b) are maximisers at two λ. The chord between them has a slope λ in
    between, and the maximiser there replaces one of them. The chord at b is a mixture, the dual value an upper bound.
    """
    d = p.shape[0]
    ends, theta = np.empty((2, d)), np.empty(d)
    maximise(p, c_f, w, q, ends)
    _copy(ends, 1, atoms, 0)
    _copy(ends, 1, atoms, 1)
    f_low, g_low = _values(p, q, w, c_f, c_g, atoms, 0)
    if g_low >= threshold:
        return 1.0, 0.0, 0.0, True
    maximise(q, -c_g, w, p, ends)
    _copy(ends, 1, atoms, 1)
    f_high, g_high = _values(p, q, w, c_f, c_g, atoms, 1)
    if not g_high >= threshold:
        return 0.0, np.nan, np.nan, False
    lam, gap = 0.0, np.inf
    for _ in range(CHORDS):
        if not g_high > g_low or f_high >= f_low:
            gap = 0.0  # the two are one point up to rounding
            break
        lam = (f_low - f_high) / (g_high - g_low)
        for i in range(d):
            theta[i] = p[i] + lam * q[i]
        maximise(theta, c_f - lam * c_g, w, q, ends)
        f_0, g_0 = _values(p, q, w, c_f, c_g, ends, 0)
        f_1, g_1 = _values(p, q, w, c_f, c_g, ends, 1)
        gap = max(f_0 + lam * g_0, f_1 + lam * g_1) - (f_low + lam * g_low)
        if gap <= GAP * (abs(f_low) + abs(f_high) + lam * (abs(g_low) + abs(g_high))):
            break
        for end in range(2):
            f, g = (f_0, g_0) if end == 0 else (f_1, g_1)
            if g < threshold and g > g_low:
                _copy(ends, end, atoms, 0)
                f_low, g_low = f, g
            elif threshold <= g < g_high:
                _copy(ends, end, atoms, 1)
                f_high, g_high = f, g
    share = share_reaching(g_low, g_high, threshold) if g_high > g_low else 1.0
    return share, lam, max(gap, 0.0), True


@kernel
def _values(p, q, w, c_f, c_g, points, row):  # type: ignore[no-untyped-def]
    """Return f and g of one row of `points`."""
    f, g, square = 0.0, 0.0, 0.0
    for i in range(p.shape[0]):
        y = points[row, i]
        f += p[i] * y
        g += q[i] * y
        square += w[i] * y * y
    norm = np.sqrt(square)
    return f + c_f * norm, g - c_g * norm


@kernel
def _copy(source, row, target, place):  # type: ignore[no-untyped-def]
    for i in range(source.shape[1]):
        target[place, i] = source[row, i]


@kernel
def maximise(theta, c, w, tilt, ends):  # type: ignore[no-untyped-def]
    """Fill `ends` (2, d) with the maximisers of ϑᵀy + c‖y‖_w over ‖y‖ ≤ 1 that have least and largest tiltᵀy.

    w (d,) > 0 grows. For c > 0, ‖y‖_w = max_{‖z‖≤1} zᵀw^½y turns the maximum of a convex function into a trust-region
    problem: y ∝ ϑᵢ/(ν − c²wᵢ), Σ c²wᵢϑᵢ²/(ν − c²wᵢ)² = 1, ν ≥ c² max w. For c < 0 it is a projection: the same
    equations with ν ≤ 0. Both are one secular equation in the distance δ ≥ 0 of ν from its end. If its left side at
    δ = 0 is at most 1, then for c < 0 the maximum is 0 at y = 0. For c > 0 this is the hard case: the rest of ‖z‖ = 1
    lies in the eigenspace of max w, in any direction; the two returned ends have extreme tilt.
    """
    d = theta.shape[0]
    top, scale = w[d - 1], c * c
    weights, gaps, total = np.empty(d), np.empty(d), 0.0
    if scale == 0.0:  # a linear function: ϑ/‖ϑ‖, or 0 where ϑ = 0
        for i in range(d):
            total += theta[i] * theta[i]
        length = math.sqrt(total) if total > 0.0 else 1.0
        for i in range(d):
            ends[0, i] = ends[1, i] = theta[i] / length
        return
    for i in range(d):
        weights[i] = scale * w[i] * theta[i] * theta[i]
        gap = top - w[i] if c > 0 else w[i]
        gaps[i] = 0.0 if c > 0 and gap <= SAME * top else scale * gap
    delta = secular(weights, gaps)
    if delta == 0.0 and c < 0:
        for i in range(d):
            ends[0, i] = ends[1, i] = 0.0
        return
    for i in range(d):
        y = 0.0 if gaps[i] + delta == 0.0 else theta[i] / (gaps[i] + delta)
        ends[0, i] = ends[1, i] = y
        total += y * y
    if delta == 0.0 and c > 0:
        total += _fill_top(weights, gaps, c, top, tilt, ends)
    length = math.sqrt(total)
    for i in range(d):
        ends[0, i] /= length
        ends[1, i] /= length


@kernel
def _fill_top(weights, gaps, c, top, tilt, ends):  # type: ignore[no-untyped-def]
    """Add the hard case's part along the tilt in the top eigenspace, with either sign; return its squared length.

    y is here in units of c²·max w, so its part in the eigenspace has the length z/(c√max w).
    """
    d = weights.shape[0]
    used, size = 0.0, 0.0
    for i in range(d):
        if gaps[i] > 0.0:
            used += weights[i] / (gaps[i] * gaps[i])
        else:
            size += tilt[i] * tilt[i]
    reach = math.sqrt(max(1.0 - used, 0.0)) / (c * math.sqrt(top))
    for i in range(d):
        if gaps[i] == 0.0:
            share = tilt[i] / math.sqrt(size) if size > 0.0 else (1.0 if i == d - 1 else 0.0)
            ends[0, i], ends[1, i] = -reach * share, reach * share
    return reach * reach


@kernel
def secular(weights, gaps):  # type: ignore[no-untyped-def]
    """Return the root δ > 0 of F(δ) = Σ weightᵢ/(δ + gapᵢ)² = 1, or 0 if F(0) ≤ 1.

    Newton's method on 1/√F, which is nearly linear, between bounds that never cross the root.
    """
    low, high, at_zero = 0.0, 0.0, 0.0
    for i in range(weights.shape[0]):
        high += weights[i]
        if gaps[i] > 0.0:
            at_zero += weights[i] / (gaps[i] * gaps[i])
        else:
            low += weights[i]
    if low == 0.0 and at_zero <= 1.0:
        return 0.0
    low, high = math.sqrt(low), math.sqrt(high)  # F(low) ≥ 1 from the gaps that are 0, F(high) ≤ 1 with all gaps 0
    delta = low if low > 0.0 else 0.5 * high
    for _ in range(NEWTON):
        value, slope = 0.0, 0.0
        for i in range(weights.shape[0]):
            if weights[i] > 0.0:
                term = weights[i] / ((delta + gaps[i]) * (delta + gaps[i]))
                value += term
                slope -= 2.0 * term / (delta + gaps[i])
        if value > 1.0:
            low = delta
        else:
            high = delta
        # with h = F^(−1/2): δ − (h − 1)/h', h' = −½ F' F^(−3/2)
        step = (1.0 / math.sqrt(value) - 1.0) / (-0.5 * slope / (value * math.sqrt(value)))
        moved = delta - step
        if not low < moved < high:
            moved = 0.5 * (low + high)
        if abs(moved - delta) <= 2e-16 * delta:
            return moved
        delta = moved
    return delta
