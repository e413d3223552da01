"""One constraint, one multiplier: the best mixture of attainable points, by a secant search on the dual.

The points (u, r) that policies attain have a concave upper boundary r*(u). Two of its vertices, one on each side of
the threshold, span the optimum; the slope between them is the multiplier that either proves this or finds a vertex
above the segment. Each round adds a vertex, so the search ends, at an exact answer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from episafe.kernels.mixing import mixed, nudged, share_reaching

Solution = TypeVar("Solution")

IMPROVEMENT = 1e-13  # relative; values are sums of at most H numbers in [0, 1], rounded at about 1e-16 each
MAX_ROUNDS = 1000  # never reached in practice (10 rounds at S = 500): it only turns a stall into an error


@dataclass(frozen=True)
class Point(Generic[Solution]):
    """An attainable pair of values and what attains it."""

    reward_value: float
    utility_value: float
    solution: Solution


@dataclass(frozen=True)
class Mixture(Generic[Solution]):
    """(1 − weight)·below + weight·above, optimal with multiplier `lam`."""

    below: Point[Solution]
    above: Point[Solution]
    weight: float
    lam: float

    @property
    def reward_value(self) -> float:
        """Value of the mixture: the optimum."""
        return float(mixed(self.below.reward_value, self.above.reward_value, self.weight))

    @property
    def utility_value(self) -> float:
        """Utility of the mixture."""
        return float(mixed(self.below.utility_value, self.above.utility_value, self.weight))


def best_mixture(best: Callable[[float, float], Point[Solution]], threshold: float) -> Mixture[Solution]:
    """The mixture of attainable points that maximises r subject to u ≥ threshold.

        max_w Σ w_i r_i  s.t.  Σ w_i u_i ≥ b   =   min_{λ ≥ 0} max_i r_i + λ(u_i − b)

    If no point reaches the threshold it is the point of largest utility, with lam = ∞ and `utility_value` below b.

    Args:
        best: (w_r, w_u) ↦ a point that maximises w_r·r + w_u·u.
        threshold: b.
    """
    free = best(1.0, 0.0)
    if free.utility_value >= threshold:
        return Mixture(free, free, 1.0, 0.0)
    safest = best(0.0, 1.0)
    if safest.utility_value < threshold:
        return Mixture(safest, safest, 1.0, math.inf)
    below, above = free, safest
    for _ in range(MAX_ROUNDS):
        gap = above.utility_value - below.utility_value
        lam = max(0.0, (below.reward_value - above.reward_value) / gap)
        segment = below.reward_value + lam * below.utility_value
        point = best(1.0, lam)
        gain = point.reward_value + lam * point.utility_value - segment
        if gain <= IMPROVEMENT * max(1.0, abs(segment)):
            ends = below.utility_value, above.utility_value
            return Mixture(below, above, nudged(*ends, share_reaching(*ends, threshold), threshold), lam)
        if point.utility_value >= threshold:
            above = point
        else:
            below = point
    raise RuntimeError(f"the dual search did not end in {MAX_ROUNDS} rounds; threshold {threshold!r}")
