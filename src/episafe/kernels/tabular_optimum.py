"""Constrained optima of a model given as arrays, true or estimated: the best mixture of attainable points by duality.

The values (r, u_1, …, u_m) that policies attain have a convex hull, and the policy that is best in a given direction
is found by backward induction. With one limit a secant search on the multiplier is exact: each round either proves the
segment between two vertices best or adds a vertex above it. With several, a small linear program mixes the points
found so far; its multipliers are the next direction.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import TOLERANCE
from episafe.core.types import Array, IntArray
from episafe.kernels.mixture import ROUNDING, payer_share
from episafe.kernels.simulation import policy_values
from episafe.kernels.tabular import policy_bounds

Solution = TypeVar("Solution")
Best = Callable[[Array], tuple[Array, Solution]]  # weights (1 + m,) -> values (1 + m,) of largest ⟨weights, values⟩
Parts = list[tuple[float, Solution]]  # solutions, each with its share
Optimum = tuple[Array, Array, Array]  # values (1 + m,), a table (H, S, A) that has them, and multipliers (m,)
Steps = Any  # a kernel by its steps: an array (H, S, A, S), or H sparse matrices (S·A, S)

IMPROVEMENT = 1e-13  # relative; values are sums of at most H numbers in [0, 1], rounded at about 1e-16 each
MAX_ROUNDS = 2000  # never reached in practice (10 to 60 rounds): it only turns a stall into an error
MULTIPLIERS = (0.0, 0.05, 0.2, 0.7, 2.5, 10.0, 40.0)  # directions that a search over a box begins with
KEEP = np.zeros(0)  # weights that keep the policy
NEGLIGIBLE = 1e-12  # weights and multipliers up to this are rounding of the solver
SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the least that HiGHS accepts


class BestMixture(NamedTuple, Generic[Solution]):
    """The mixture of attainable points with the largest reward that keeps the limits.

    Attributes:
        values: (r, u_1, …, u_m) of the mixture, (1 + m,).
        parts: its solutions, at most m + 1, each with its share; last the one of largest utility.
        multipliers: λ (m,). If no mixture keeps the limits: ∞ for those that conflict, else 0.
        safest: a mixture with at least half of the largest surplus in all limits.
        kept: the limits that are kept, lower than b by at most twice the tolerance where the surplus is below it, (m,).
    """

    values: Array
    parts: Parts[Solution]
    multipliers: Array
    safest: Parts[Solution]
    kept: Array


def passes(bounds: Array, thresholds: Array) -> bool:
    """Return whether every bound reaches its threshold; NaN never does."""
    return bool((bounds >= thresholds).all())


def least_share(check: Callable[[float], bool]) -> float:
    """Return the smallest share that passes, 0, or as little more as rounding asks for; 1 at most."""
    share = 0.0
    while share < 1.0 and not check(share):
        share = 2.0 * share + ROUNDING
    return min(share, 1.0)


def best_mixture(
    best: Best[Solution], thresholds: Array, points: "Points[Solution] | None" = None
) -> BestMixture[Solution]:
    """Return the mixture of attainable points that maximises r subject to u_i ≥ b_i for all i.

        max_w Σ_j w_j r_j  s.t.  Σ_j w_j u_ij ≥ b_i   =   min_{λ ≥ 0} max_j r_j + Σ_i λ_i(u_ij − b_i)

    If no mixture keeps the limits, it is the one that misses them by least.

    Args:
        best: the attainable point of largest weighted value, reward first, and what attains it.
        thresholds: b (m,).
        points: those found for other thresholds, to begin with; only with several limits.
    """
    return _by_secants(best, thresholds) if len(thresholds) == 1 else _by_cutting_planes(best, thresholds, points)


def _by_secants(best: Best[Solution], thresholds: Array) -> BestMixture[Solution]:
    """Solve the problem with one limit."""
    free, solution = best(np.array([1.0, 0.0]))
    if free[1] >= thresholds[0]:
        return BestMixture(free, [(1.0, solution)], np.zeros(1), [(1.0, solution)], thresholds)
    safest, safest_solution = best(np.array([0.0, 1.0]))
    alone = [(1.0, safest_solution)]
    if safest[1] < thresholds[0]:
        return BestMixture(safest, alone, np.full(1, np.inf), alone, thresholds)
    (below, solution_below), (above, solution_above) = (free, solution), (safest, safest_solution)
    for _ in range(MAX_ROUNDS):
        lam = max(0.0, float(below[0] - above[0]) / float(above[1] - below[1]))
        segment = float(below[0] + lam * below[1])
        point, solution = best(np.array([1.0, lam]))
        if point[0] + lam * point[1] - segment <= IMPROVEMENT * max(1.0, abs(segment)):
            share = payer_share(float(below[1]), float(above[1]), float(thresholds[0]))
            parts = [(1.0 - share, solution_below), (share, solution_above)]
            return BestMixture((1.0 - share) * below + share * above, parts, np.array([lam]), alone, thresholds)
        if point[1] >= thresholds[0]:
            above, solution_above = point, solution
        else:
            below, solution_below = point, solution
    raise RuntimeError(f"the dual search did not end in {MAX_ROUNDS} rounds; threshold {thresholds[0]!r}")


def _by_cutting_planes(
    best: Best[Solution], thresholds: Array, points: "Points[Solution] | None"
) -> BestMixture[Solution]:
    """Solve the problem with several limits."""
    found = Points(best, 1 + len(thresholds)) if points is None else points
    for _ in range(MAX_ROUNDS):
        surplus, safe_weights, y = found.most_surplus(thresholds)
        beyond = found.extend(np.append(0.0, y), surplus + float(y @ thresholds))
        if beyond <= max(surplus, 0.0):  # half of the largest surplus there is, or the largest
            break
    safest, safest_values = found.parts(safe_weights), safe_weights @ found.values[: len(safe_weights)]
    if surplus < -TOLERANCE:
        return BestMixture(safest_values, safest, np.where(y > 0, np.inf, 0.0), safest, thresholds)
    kept = thresholds - max(TOLERANCE - surplus, 0.0)
    for _ in range(MAX_ROUNDS):
        reward, weights, multipliers = found.most_reward(kept)
        parts, values = found.parts(weights), weights @ found.values
        if found.extend(np.append(1.0, multipliers), reward + float(multipliers @ kept)) == 0:
            break
    else:
        raise RuntimeError(f"the cutting planes did not end in {MAX_ROUNDS} rounds; thresholds {thresholds.tolist()}")

    def towards_safest(share: float) -> Array:
        return (1 - share) * values + share * safest_values

    share = least_share(lambda share: passes(towards_safest(share)[1:], kept))
    if share > 0:
        parts = [((1 - share) * w, one) for w, one in parts] + [(share * w, one) for w, one in safest]
    return BestMixture(towards_safest(share), parts, multipliers, safest, kept)


class Points(Generic[Solution]):
    """The attainable points found so far, and the linear programs over their mixtures."""

    def __init__(self, best: Best[Solution], size: int) -> None:
        self._best = best
        values, solutions = zip(*(best(direction) for direction in np.eye(size)), strict=True)
        self.values: Array = np.array(values)
        self.solutions: list[Solution] = list(solutions)

    def extend(self, direction: Array, reached: float) -> float:
        """Return how far beyond `reached` a point lies in this direction, and add it if it is new."""
        values, solution = self._best(direction)
        beyond = float(direction @ values) - reached
        known = bool((self.values == values).all(axis=1).any())
        if known or beyond <= IMPROVEMENT * max(1.0, float(direction.max())):
            return 0.0
        self.values = np.vstack([self.values, values])
        self.solutions.append(solution)
        return beyond

    def most_surplus(self, thresholds: Array) -> tuple[float, Array, Array]:
        """Solve max t  s.t.  Σ_j w_j u_ij − t ≥ b_i,  Σ_j w_j = 1: return t, w (n,) and the dual y (m,), Σ y = 1.

        No mixture has Σ_i y_i(u_i − b_i) > t. So where t < 0, limits with y_i > 0 conflict: one is missed by −t.
        """
        n, utilities = len(self.values), self.values[:, 1:].T
        rows = np.hstack([utilities, -np.ones((len(utilities), 1))])
        return _solved(np.append(np.zeros(n), 1.0), rows, thresholds, n)

    def most_reward(self, thresholds: Array) -> tuple[float, Array, Array]:
        """Solve max Σ_j w_j r_j  s.t.  Σ_j w_j u_ij ≥ b_i,  Σ_j w_j = 1: return reward, w (n,) and multipliers (m,)."""
        return _solved(self.values[:, 0], self.values[:, 1:].T, thresholds, len(self.values))

    def parts(self, weights: Array) -> Parts[Solution]:
        """Return the solutions that have a weight."""
        return [(float(weights[j]), self.solutions[j]) for j in np.flatnonzero(weights).tolist()]


def _solved(objective: Array, rows: Array, thresholds: Array, num_points: int) -> tuple[float, Array, Array]:
    """Solve max ⟨objective, x⟩  s.t.  rows·x ≥ thresholds by HiGHS; the first entries of x are weights."""
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


# policies on one kernel


def occupancy(P: Steps, policy: Array, initial_state: int) -> Array:
    """Return w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
    H, S, A = policy.shape
    state_mass = np.zeros(S)
    state_mass[initial_state] = 1.0
    out = np.empty((H, S, A))
    for h in range(H):
        out[h] = state_mass[:, None] * policy[h]
        state_mass = out[h].reshape(S * A) @ P[min(h, len(P) - 1)].reshape(S * A, S)
    return out


def markov_policy(mass: Array, elsewhere: Array | float) -> Array:
    """Return π_h(a|s) = w_h(s, a) / Σ_a w_h(s, a) of an occupancy (H, S, A); `elsewhere` where that is 0/0."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), elsewhere)


def greedy_actions(
    P: Steps, signals: Array, weights: Array, allowed: NDArray[np.bool_] | None = None
) -> tuple[IntArray, Array]:
    """Return the maximiser (H, S) of Σ_g weights[g] V^g, and V^g of each g at step 0, shape (S, G).

    Args:
        P: (H or 1, S, A, S), or H sparse matrices (S·A, S).
        signals: (H, S, A, G), one function g per column.
        weights: (G,).
        allowed: (H, S, A), the actions to choose from; None for all.
    """
    H, S, A, G = signals.shape
    V_next = np.zeros((S, G))
    actions = np.empty((H, S), dtype=np.int64)
    for h in reversed(range(H)):
        Q = signals[h] + (P[min(h, len(P) - 1)].reshape(S * A, S) @ V_next).reshape(S, A, G)
        score = Q @ weights
        actions[h] = np.argmax(score if allowed is None else np.where(allowed[h], score, -np.inf), axis=1)
        V_next = Q[np.arange(S), actions[h]]
    return actions, V_next


def optimum(P: Array, reward: Array, utilities: Array, thresholds: Array, initial_state: int) -> Optimum:
    """Return max V^r(s₁) s.t. V^{u_i}(s₁) ≥ b_i for all i, its values, a policy table that has them, and λ.

    If no policy keeps the limits, it is the policy that misses them by least, and some multipliers are ∞.

    Args:
        P: (H or 1, S, A, S).
        reward, utilities: (H, S, A), (m, H, S, A).
        thresholds: b (m,).
        initial_state: s₁.
    """
    signals = np.stack([reward, *utilities], axis=-1)

    def best(weights: Array) -> tuple[Array, IntArray]:
        actions, V = greedy_actions(P, signals, weights)
        return V[initial_state], actions

    found = best_mixture(best, thresholds)
    safest = found.safest if len(thresholds) > 1 else [(1.0, best(np.array([0.0, 1.0]))[1])]
    table = np.eye(reward.shape[2])
    mass, w_safest = (
        np.add.reduce([share * occupancy(P, table[actions], initial_state) for share, actions in parts])
        for parts in (found.parts, safest)
    )
    elsewhere = table[found.parts[-1][1]]

    def towards_safest(share: float) -> Array:
        return markov_policy((1 - share) * mass + share * w_safest, elsewhere)

    def values(policy: Array) -> Array:
        both = [policy_values(P, reward, utility, policy, initial_state) for utility in utilities]
        return np.array([both[0][0], *(V_u for _, V_u in both)])

    policy = towards_safest(least_share(lambda share: passes(values(towards_safest(share))[1:], found.kept)))
    return values(policy), policy, found.multipliers


# policies over a box of kernels


class Bounded(NamedTuple):
    """V̄ʳ(s₁), V̲ᵘ(s₁) (m,) over the box of a policy, and its table (H, S, A)."""

    reward: float
    utilities: Array
    table: Array


class BoxProblem:
    """Solves max over π of V̄ʳ(s₁) s.t. V̲ᵘ(s₁) ≥ b, each signal by a kernel of its own from the box.

    Backward induction that is greedy for V̄ʳ + Σ_c λ_c V̲_c is best in that direction where the kernels agree, and
    nearly so elsewhere. So every policy that was found is kept, and a search begins with several λ.

    Args:
        signals: reward and utilities (1 + m, H, S, A).
        lower, upper: the box (steps, S, A, S).
        initial_state: s₁.
    """

    def __init__(self, signals: Array, lower: Array, upper: Array, initial_state: int) -> None:
        self._signals, self._box, self._start = signals, (lower, upper), initial_state
        self._found: dict[bytes, Bounded] = {}

    def bounds(self, table: Array, weights: Array = KEEP) -> Bounded:
        """Return a policy (H, S, A) with its bounds; with weights (1 + m,) the one that is greedy for them."""
        found = np.array(table)
        V = policy_bounds(self._signals, weights, found, *self._box)[:, self._start]
        return Bounded(float(V[0]), V[1:], found)

    def best_mixture(self, thresholds: Array, others: Sequence[Bounded]) -> BestMixture[Bounded]:
        """Return the best mixture of what is found and of `others`, which are preferred where they are as good."""
        m = len(thresholds)
        for lam in MULTIPLIERS:
            for direction in np.ones((1, 1)) if m == 1 else np.vstack([np.eye(m), np.ones(m)]):
                self._look(np.append(1.0, lam * direction))

        def best(weights: Array) -> tuple[Array, Bounded]:
            self._look(weights)
            known = (*others, *self._found.values())
            one = max(known, key=lambda one: float(weights[0] * one.reward + weights[1:] @ one.utilities))
            return np.append(one.reward, one.utilities), one

        return best_mixture(best, thresholds)

    def safest(self, thresholds: Array, others: Sequence[Bounded]) -> Bounded:
        """Return the policy with the largest least surplus, of `others` and of the policies found so far."""
        return max((*others, *self._found.values()), key=lambda one: float((one.utilities - thresholds).min()))

    def _look(self, weights: Array) -> None:
        """Find the policy that is greedy for this direction."""
        one = self.bounds(np.zeros(self._signals.shape[1:]), weights)
        self._found.setdefault(one.table.tobytes(), one)
