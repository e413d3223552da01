"""The inner problem of linear bandits: max_π E_π[f(a)] s.t. E_π[g_c(a)] ≥ b_c for every limit c. Exact.

It is linear in the policy, so that an optimal policy mixes at most m + 1 actions.

- Finitely many arms: the simplex method, which starts at the safest arm or, with several limits, the incumbent.
- A centred ball or ellipsoid, one limit: with x = Lᵀa, M = LLᵀ, and W = L⁻¹Λ⁻¹L⁻ᵀ = VwVᵀ the set is the unit ball of
  y = Vᵀx and ‖a‖_{Λ⁻¹} = ‖y‖_w. There f(y) = pᵀy + c_f‖y‖_w, g(y) = qᵀy − c_g‖y‖_w, and the optimum is
  min_{λ≥0} max_y f(y) + λ(g(y) − b). `chords` closes the duality gap; `maximise` solves the inner step.
"""

import math

import numpy as np

from episafe.core.types import Array
from episafe.kernels.compilation import kernel
from episafe.kernels.mixture import GUARD, passing_weights, payer_share, solve
from episafe.kernels.tabular_optimum import passes

CHORDS = 200  # the gap falls by a factor of about four per step, so that 25 are usual
GAP = 1e-13  # relative to the size of the terms: the rounding of a difference in float64
NEWTON = 100  # steps at most; six are usual
SAME = 1e-14  # eigenvalues within this share of the largest belong to its eigenspace


def best_policy(f: Array, g: Array, thresholds: Array, safe: Array) -> tuple[Array, float]:
    """Return the best policy (n,) over arms and the sum of its multipliers; 0 and NaN if there is none.

    f (n,), g (m, n), b (m,). The incumbent, probabilities `safe` (n,), is one more arm; it must keep several limits.
    """
    lower, scores = np.vstack([means(safe, g), g.T]), np.append(safe @ f, f)
    base = int(np.argmax(lower[:, 0])) if len(thresholds) == 1 else 0
    if not passes(lower[base], thresholds):
        return np.zeros(len(f)), math.nan
    weights, multipliers = solve(scores, lower, thresholds, np.ones(len(scores), dtype=np.int64), base, GUARD)
    weights = passing_weights(weights, lower, thresholds, base)
    return weights[1:] + weights[0] * safe, float(multipliers.sum())


def means(policy: Array, values: Array) -> Array:
    """Return Σ_i π_i values[c, i] for each row c, (m,): what is compared with b."""
    return np.asarray((values * policy).sum(axis=1))


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
