"""The inner step on the unit ball: max ϑᵀy + c‖y‖_W over ‖y‖ ≤ 1, in the eigenbasis of W. Exact for every sign of c.

For c > 0 a convex function is maximised; ‖y‖_W = max_{‖z‖≤1} zᵀW^½y turns it into a trust-region problem,

    max_{‖z‖≤1} ‖ϑ + cW^½z‖,   y ∝ ϑᵢ/(ν − c²wᵢ),   Σ c²wᵢϑᵢ²/(ν − c²wᵢ)² = 1,   ν ≥ c² max w,

and for c < 0 into the projection of ϑ on the ellipsoid {|c|W^½z}: the same equations with ν ≤ 0. Both are one secular
equation Σ c²wᵢϑᵢ²/(δ + gapᵢ)² = 1 in the distance δ ≥ 0 of ν from its end. Where its left side at δ = 0 is at most 1:

- c > 0, the hard case: ϑ has no part in the top eigenspace E of W and δ = 0; the rest of ‖z‖ = 1 lies in E, in any
  direction. All these are maximisers; the two ends of extreme g are returned.
- c < 0: the maximum is 0, at y = 0.
"""

import math

import numpy as np

from episafe.kernels.compilation import kernel

NEWTON = 100  # steps at most; six are usual
SAME = 1e-14  # eigenvalues within this share of the largest belong to its eigenspace


@kernel
def maximise(theta, c, w, tilt, ends):  # type: ignore[no-untyped-def]
    """Fills `ends` (2, d) with the maximisers of least and largest tiltᵀy; they are one where the maximiser is unique.

    Args: theta ϑ (d,), c, w (d,) > 0 the eigenvalues of W in growing order, tilt (d,): q, or p where q says nothing.
    """
    d = theta.shape[0]
    top, scale = w[d - 1], c * c
    if scale == 0.0:
        _along(theta, ends)
        return
    weights, gaps = np.empty(d), np.empty(d)
    for i in range(d):
        weights[i] = scale * w[i] * theta[i] * theta[i]
        gap = top - w[i] if c > 0 else w[i]
        gaps[i] = 0.0 if c > 0 and gap <= SAME * top else scale * gap
    delta = secular(weights, gaps)
    if delta == 0.0 and c < 0:
        for i in range(d):
            ends[0, i] = ends[1, i] = 0.0
        return
    total = 0.0
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
def _along(theta, ends):  # type: ignore[no-untyped-def]
    """c = 0: the maximiser of a linear function, ϑ/‖ϑ‖; where ϑ = 0 every point is as good, and 0 is one."""
    total = 0.0
    for i in range(theta.shape[0]):
        total += theta[i] * theta[i]
    length = math.sqrt(total) if total > 0.0 else 1.0
    for i in range(theta.shape[0]):
        ends[0, i] = ends[1, i] = theta[i] / length


@kernel
def _fill_top(weights, gaps, c, top, tilt, ends):  # type: ignore[no-untyped-def]
    """The hard case: what is left of ‖z‖ = 1 goes along the tilt within the top eigenspace, with either sign.

    y = ϑ + cW^½z is here in units of c²·max w, as ϑᵢ/(c² max w − c²wᵢ) is, so its part in E has the length z/(c√max w).
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
    """The root δ > 0 of F(δ) = Σ weightᵢ/(δ + gapᵢ)² = 1, or 0 where F(0) ≤ 1.

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
