"""Several constraints, a multiplier each: the best mixture of attainable points, by cutting planes on the dual.

The values (r, u_1, …, u_m) that policies attain have a convex hull, and for any direction the policy that is best in it
can be found. A small linear program mixes the points found so far; its multipliers are the next direction, which either
proves the mixture best or finds a point beyond it. With one constraint `dual_search` does this by secants, exactly.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import Infeasible
from episafe.types import Array

Solution = TypeVar("Solution")

IMPROVEMENT = 1e-13  # relative to the largest weight; values are sums of at most H numbers in [0, 1]
SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the least that HiGHS takes
NEGLIGIBLE = 1e-12  # weights and multipliers up to this are rounding of the solver
MAX_ROUNDS = 2000  # 10 to 60 are usual at m = 3: it only turns a stall into an error

Best = Callable[[Array], tuple[Array, Solution]]  # weights (1 + m,) ↦ values (1 + m,) of largest ⟨weights, values⟩
Parts = list[tuple[float, Solution]]  # solutions, each with its share


def best_mixture_of_several(
    best: Best[Solution], thresholds: Array, names: Sequence[str]
) -> tuple[Parts[Solution], Array, Parts[Solution], Array]:
    """The mixture of attainable points that maximises r subject to u_i ≥ b_i for all i.

        max_w Σ_j w_j r_j  s.t.  Σ_j w_j u_ij ≥ b_i   =   min_{λ ≥ 0} max_j r_j + Σ_i λ_i(u_ij − b_i)

    Args:
        best: the attainable point of largest weighted value, reward first, and what attains it.
        thresholds: b (m,).
        names: what an error calls the constraints.

    Returns:
        Its parts, at most m + 1; λ (m,); another mixture, the safest, which has at least half of the largest room there
        is in all constraints; and the thresholds that are kept (m,), lower than b by up to twice the tolerance where
        that room is below it.
    """
    found = Points(best, 1 + len(thresholds))
    for name, threshold, largest in zip(names, thresholds, found.utilities.max(axis=1), strict=True):
        require_reachable(threshold, largest, f" of {name}")
    for _ in range(MAX_ROUNDS):
        room, safest, y = found.most_room(thresholds)
        beyond = found.extend(np.append(0.0, y), room + float(y @ thresholds))
        if beyond <= max(room, 0.0):  # half of the largest room there is, or the largest
            break
    if room < -TOLERANCE:
        least = " and ".join(f"{names[i]} >= {thresholds[i]:.12g}" for i in np.flatnonzero(y).tolist())
        raise Infeasible(f"{least} conflict: every policy misses one of them by {-room:.6g} or more; lower thresholds")
    reachable = thresholds - max(TOLERANCE - room, 0.0)
    for _ in range(MAX_ROUNDS):
        reward, weights, multipliers = found.most_reward(reachable)
        if found.extend(np.append(1.0, multipliers), reward + float(multipliers @ reachable)) == 0:
            return found.parts(weights), multipliers, found.parts(safest), reachable
    raise RuntimeError(f"the cutting planes did not end in {MAX_ROUNDS} rounds; thresholds {thresholds.tolist()}")


class Points(Generic[Solution]):
    """The attainable points found so far, and the linear programs over their mixtures."""

    def __init__(self, best: Best[Solution], size: int) -> None:
        self._best = best
        values, solutions = zip(*(best(direction) for direction in np.eye(size)), strict=True)
        self.values: Array = np.array(values)
        self.solutions: list[Solution] = list(solutions)

    @property
    def utilities(self) -> Array:
        """(m, n): a row a constraint, a column a point."""
        return self.values[:, 1:].T

    def extend(self, direction: Array, reached: float) -> float:
        """How far beyond `reached` attainable points lie in this direction; the farthest is added, if it is new."""
        values, solution = self._best(direction)
        beyond = float(direction @ values) - reached
        known = bool((self.values == values).all(axis=1).any())
        if known or beyond <= IMPROVEMENT * max(1.0, float(direction.max())):
            return 0.0
        self.values = np.vstack([self.values, values])
        self.solutions.append(solution)
        return beyond

    def most_room(self, thresholds: Array) -> tuple[float, Array, Array]:
        """max t  s.t.  Σ_j w_j u_ij − t ≥ b_i,  Σ_j w_j = 1: t, w (n,) and the dual y (m,), which sums to 1.

        No mixture has Σ_i y_i(u_i − b_i) > t. So where t < 0, constraints with y_i > 0 conflict: one is missed by −t.
        """
        m, n = self.utilities.shape
        objective = np.append(np.zeros(n), 1.0)
        return _solved(objective, np.hstack([self.utilities, -np.ones((m, 1))]), thresholds, n)

    def most_reward(self, thresholds: Array) -> tuple[float, Array, Array]:
        """max Σ_j w_j r_j  s.t.  Σ_j w_j u_ij ≥ b_i,  Σ_j w_j = 1: the reward, w (n,) and the multipliers (m,)."""
        return _solved(self.values[:, 0], self.utilities, thresholds, len(self.values))

    def parts(self, weights: Array) -> Parts[Solution]:
        """The solutions that have a weight."""
        return [(float(weights[j]), self.solutions[j]) for j in np.flatnonzero(weights).tolist()]


def _solved(objective: Array, rows: Array, thresholds: Array, num_points: int) -> tuple[float, Array, Array]:
    """max ⟨objective, x⟩  s.t.  rows·x ≥ thresholds, where the first entries of x are weights: by HiGHS."""
    import scipy.optimize  # here, because it takes as long to import as all the rest

    others = len(objective) - num_points
    solved = scipy.optimize.linprog(
        -objective,
        A_ub=-rows,
        b_ub=-thresholds,
        A_eq=np.append(np.ones(num_points), np.zeros(others))[None],
        b_eq=[1.0],
        bounds=[(0, None)] * num_points + [(None, None)] * others,
        method="highs-ds",  # the dual simplex: its solutions are vertices, with at most m + 1 weights
        options=SOLVER,
    )
    if solved.status != 0:
        raise RuntimeError(f"HiGHS ended without an optimum: {solved.message}")
    weights, multipliers = (
        np.where(x > NEGLIGIBLE, x, 0.0) for x in (solved.x[:num_points], -solved.ineqlin.marginals)
    )
    return float(-solved.fun), weights / weights.sum(), multipliers


def require_reachable(threshold: float, largest: float, of: str) -> None:
    """Refuse a threshold above the largest utility of any policy; `of` says whose it is, as `Constraint.of`."""
    if threshold > largest + TOLERANCE:
        raise Infeasible(
            f"threshold {threshold:.12g}{of} cannot be reached: the largest utility of any policy is {largest:.12g}; "
            "lower the threshold"
        )
