"""One constraint, one multiplier: the best mixture of attainable points, by a secant search on the dual.

The points (u, r) that policies attain have a concave upper boundary r*(u). Two of its vertices, one on each side of
the threshold, span the optimum; the slope between them is the multiplier that either proves this or finds a vertex
above the segment. Each round adds a vertex, so the search ends, at an exact answer.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from episafe.kernels.mixing import mixed, nudged, share_reaching

Solution = TypeVar("Solution")

IMPROVEMENT = 1e-13  # relative; values are sums of at most H numbers in [0, 1], rounded at about 1e-16 each
MAX_ROUNDS = 1000  # never reached in practice (10 rounds at S = 500): it only turns a stall into an error


Point = tuple[float, float, Solution]  # an attainable pair of reward and utility, and what attains it
Parts = tuple[tuple[float, Solution], tuple[float, Solution]]  # two solutions, each with its share
Mixture = tuple[float, float, Parts[Solution], float]  # reward and utility of the parts, the parts, and the multiplier


def best_mixture(best: Callable[[float, float], Point[Solution]], threshold: float) -> Mixture[Solution]:
    """The mixture of attainable points that maximises r subject to u ≥ threshold.

        max_w Σ w_i r_i  s.t.  Σ w_i u_i ≥ b   =   min_{λ ≥ 0} max_i r_i + λ(u_i − b)

    If no point reaches the threshold it is the point of largest utility, with multiplier ∞ and a utility below b.

    Args:
        best: (w_r, w_u) ↦ a point that maximises w_r·r + w_u·u.
        threshold: b.
    """
    free = best(1.0, 0.0)
    if free[1] >= threshold:
        return _mix(free, free, 1.0, 0.0)
    safest = best(0.0, 1.0)
    if safest[1] < threshold:
        return _mix(safest, safest, 1.0, math.inf)
    below, above = free, safest
    for _ in range(MAX_ROUNDS):
        (r_below, u_below, _), (r_above, u_above, _) = below, above
        lam = max(0.0, (r_below - r_above) / (u_above - u_below))
        segment = r_below + lam * u_below
        r, u, _ = point = best(1.0, lam)
        if r + lam * u - segment <= IMPROVEMENT * max(1.0, abs(segment)):
            share = share_reaching(u_below, u_above, threshold)
            return _mix(below, above, nudged(u_below, u_above, share, threshold), lam)
        below, above = (below, point) if u >= threshold else (point, above)
    raise RuntimeError(f"the dual search did not end in {MAX_ROUNDS} rounds; threshold {threshold!r}")


def _mix(below: Point[Solution], above: Point[Solution], weight: float, lam: float) -> Mixture[Solution]:
    reward, utility = (float(mixed(below[g], above[g], weight)) for g in (0, 1))
    return reward, utility, ((1 - weight, below[2]), (weight, above[2])), lam
