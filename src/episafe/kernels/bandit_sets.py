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

from episafe.kernels.compilation import kernel
from episafe.kernels.mixture import keeps_all, payer_share, solve

CHORDS = 200  # the gap falls by a factor of about four per step, so that 25 are usual
GAP = 1e-13  # relative to the size of the terms: the rounding of a difference in float64
NEWTON = 100  # steps at most; six are usual
SAME = 1e-14  # eigenvalues within this share of the largest belong to its eigenspace


@kernel
def best_policy(f, g, thresholds, safe):  # type: ignore[no-untyped-def]
    """Return the best policy (n,) over arms and the sum of its multipliers; 0 and NaN if there is none.

    f (n,), g (m, n), b (m,). Several limits need the incumbent's probabilities `safe` (n,), which must keep g ≥ b.
    """
    (m, n), best, free = g.shape, 0, True
    for i in range(1, n):
        if f[i] > f[best] or (f[i] == f[best] and g[0, i] > g[0, best]):
            best = i
    for c in range(m):
        free = free and g[c, best] >= thresholds[c]
    policy, lam = np.zeros(n), 0.0
    if free:
        policy[best] = 1.0
    elif m == 1:
        lam = envelope(f, g, thresholds[0], best, policy)
    else:
        lam = simplex_over_arms(f, g, thresholds, safe, policy)
    return policy, lam


@kernel
def means(policy, values):  # type: ignore[no-untyped-def]
    """Return Σ_i π_i values[c, i] for each row c, (m,), always added in this order: what is compared with b."""
    totals = np.zeros(values.shape[0])
    for c in range(values.shape[0]):
        for i in range(values.shape[1]):
            if policy[i] > 0.0:
                totals[c] += policy[i] * values[c, i]
    return totals


@kernel
def envelope(f, g, threshold, best, policy):  # type: ignore[no-untyped-def]
    """Fill `policy` (n,) for one limit and return λ; NaN if no arm has g ≥ b. `best` has the largest f and g < b.

    The answer is the edge above b of the upper hull, between that arm and the arm of largest g. Arms below the chord
    of these two are dropped before sorting.
    """
    g, low, high, n = g[0], best, 0, f.shape[0]
    for i in range(1, n):
        if g[i] > g[high] or (g[i] == g[high] and f[i] > f[high]):
            high = i
    if not g[high] >= threshold:
        return np.nan
    size, kept, edge, order, keys = 0, 0, 1, np.empty(n, dtype=np.int64), np.empty(n)
    for i in range(n):
        above = (f[i] - f[low]) * (g[high] - g[low]) > (f[high] - f[low]) * (g[i] - g[low])
        if above or i in (low, high):
            order[size], keys[size] = i, g[i]
            size += 1
    by_g, candidates = np.argsort(keys[:size]), order[:size].copy()
    for position in range(size):
        i = candidates[by_g[position]]
        if kept > 0 and g[order[kept - 1]] == g[i] and f[order[kept - 1]] >= f[i]:
            continue
        while kept > 1:  # drop arms on or below the chord from the one before them to this one
            left, middle = order[kept - 2], order[kept - 1]
            if (f[middle] - f[left]) * (g[i] - g[left]) > (f[i] - f[left]) * (g[middle] - g[left]):
                break
            kept -= 1
        order[kept] = i
        kept += 1
    while g[order[edge]] < threshold:
        edge += 1
    low, high = order[edge - 1], order[edge]
    share = payer_share(g[low], g[high], threshold)
    policy[low], policy[high] = 1.0 - share, share
    return (f[low] - f[high]) / (g[high] - g[low])


@kernel
def simplex_over_arms(f, g, thresholds, safe, policy):  # type: ignore[no-untyped-def]
    """Fill `policy` (n,) and return the sum of the multipliers; NaN if the incumbent itself does not keep g ≥ b."""
    m, n = g.shape
    scores, lower = np.zeros(1 + n), np.zeros((1 + n, m))
    weights, in_use = np.zeros(1 + n), np.ones(1 + n, dtype=np.int64)
    weights[0], lower[0] = 1.0, means(safe, g)
    for i in range(n):
        scores[0] += safe[i] * f[i]
        scores[1 + i] = f[i]
        for c in range(m):
            lower[1 + i, c] = g[c, i]
    if not keeps_all(weights, lower, thresholds):
        return np.nan
    weights, multipliers = solve(scores, lower, thresholds, in_use, 0)
    for i in range(n):
        policy[i] = weights[1 + i] + weights[0] * safe[i]
    return multipliers.sum()


@kernel
def chords(p, q, w, c_f, c_g, threshold):  # type: ignore[no-untyped-def]
    """Return two actions (2, d) and the share of the second in the best mixture; NaN if no action has g ≥ b.

    The points `low` (g < b) and `high` (g ≥ b) are maximisers at two λ. The chord between them has a slope λ in
    between, and the maximiser there replaces one of them. The chord at b is a mixture, the dual value an upper bound.
    """
    low = high = maximise(p, c_f, w, q)[1]
    f_low, g_low = _values(p, q, w, c_f, c_g, low)
    if g_low >= threshold:
        return np.stack((low, high)), 1.0
    high = maximise(q, -c_g, w, p)[1]
    f_high, g_high = _values(p, q, w, c_f, c_g, high)
    if not g_high >= threshold:
        return np.stack((low, high)), np.nan
    for _ in range(CHORDS):
        if not g_high > g_low or f_high >= f_low:
            break  # the two are one point up to rounding
        lam = (f_low - f_high) / (g_high - g_low)
        size = abs(f_low) + abs(f_high) + lam * (abs(g_low) + abs(g_high))
        first, last = maximise(p + lam * q, c_f - lam * c_g, w, q)
        (f_0, g_0), (f_1, g_1) = _values(p, q, w, c_f, c_g, first), _values(p, q, w, c_f, c_g, last)
        if max(f_0 + lam * g_0, f_1 + lam * g_1) - (f_low + lam * g_low) <= GAP * size:
            break
        for point, f, g in ((first, f_0, g_0), (last, f_1, g_1)):
            if g < threshold and g > g_low:
                low, f_low, g_low = point, f, g
            elif threshold <= g < g_high:
                high, f_high, g_high = point, f, g
    share = payer_share(g_low, g_high, threshold) if g_high > g_low else 1.0
    return np.stack((low, high)), share


@kernel
def _values(p, q, w, c_f, c_g, y):  # type: ignore[no-untyped-def]
    """Return f and g of a point."""
    norm = math.sqrt((w * y * y).sum())
    return (p * y).sum() + c_f * norm, (q * y).sum() - c_g * norm


@kernel
def maximise(theta, c, w, tilt):  # type: ignore[no-untyped-def]
    """Return the maximisers of ϑᵀy + c‖y‖_w over ‖y‖ ≤ 1 that have least and largest tiltᵀy, (d,) each.

    w (d,) > 0 grows. For c > 0, ‖y‖_w = max_{‖z‖≤1} zᵀw^½y turns the maximum of a convex function into a trust-region
    problem: y ∝ ϑᵢ/(ν − c²wᵢ), Σ c²wᵢϑᵢ²/(ν − c²wᵢ)² = 1, ν ≥ c² max w. For c < 0 it is a projection: the same
    equations with ν ≤ 0. Both are one secular equation in the distance δ ≥ 0 of ν from its end. If its left side at
    δ = 0 is at most 1, then for c < 0 the maximum is 0 at y = 0. For c > 0 this is the hard case: the rest of ‖z‖ = 1
    lies in the eigenspace of max w, in any direction; the two returned ends have extreme tilt.
    """
    top, scale, y, part = w[-1], c * c, theta.copy(), np.zeros(theta.shape[0])
    if scale > 0.0:
        weights = scale * w * theta * theta
        gaps = scale * (top - w) if c > 0 else scale * w
        if c > 0:
            gaps[gaps <= SAME * scale * top] = 0.0
        delta = secular(weights, gaps)
        if delta == 0.0 and c < 0:
            return part, part
        for i in range(y.shape[0]):
            y[i] = theta[i] / (gaps[i] + delta) if gaps[i] + delta > 0.0 else 0.0
        if delta == 0.0:  # y is here in units of c²·max w, so its part in the eigenspace has the length z/(c√max w)
            inside = gaps == 0.0
            part[inside] = tilt[inside]
            if not part.any():
                part[-1] = 1.0
            used = (weights[~inside] / gaps[~inside] ** 2).sum()
            part *= math.sqrt(max(1.0 - used, 0.0) / (part * part).sum()) / (c * math.sqrt(top))
    length = math.sqrt((y * y).sum() + (part * part).sum())
    length = length if length > 0.0 else 1.0  # a constant function
    return (y - part) / length, (y + part) / length


@kernel
def secular(weights, gaps):  # type: ignore[no-untyped-def]
    """Return the root δ > 0 of F(δ) = Σ weightᵢ/(δ + gapᵢ)² = 1, or 0 if F(0) ≤ 1.

    Newton's method on 1/√F, which is nearly linear, between bounds that never cross the root.
    """
    apart = gaps > 0.0
    low, high = math.sqrt(weights[~apart].sum()), math.sqrt(weights.sum())  # F(low) ≥ 1 by the gaps that are 0
    if low == 0.0 and (weights[apart] / gaps[apart] ** 2).sum() <= 1.0:
        return 0.0
    delta = low if low > 0.0 else 0.5 * high
    for _ in range(NEWTON):
        terms = weights / (delta + gaps) ** 2
        value, slope = terms.sum(), -2.0 * (terms / (delta + gaps)).sum()
        if value > 1.0:
            low = delta
        else:
            high = delta
        # with h = F^(−1/2): δ − (h − 1)/h', h' = −½ F' F^(−3/2)
        moved = delta - (1.0 / math.sqrt(value) - 1.0) / (-0.5 * slope / (value * math.sqrt(value)))
        if not low < moved < high:
            moved = 0.5 * (low + high)
        if abs(moved - delta) <= 2e-16 * delta:
            return moved
        delta = moved
    return delta
