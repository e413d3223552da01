"""Constrained optima of a model given as arrays, true or estimated: the best mixture of attainable points by duality.

The values (r, u_1, …, u_m) that policies attain have a convex hull, and the policy that is best in a given direction
is found by backward induction. A small linear program mixes the points found so far; its multipliers are the next
direction. Each round either proves the mixture best or adds a vertex beyond it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import TOLERANCE
from episafe.core.types import Array, IntArray
from episafe.kernels.mixture import ROUNDING, passing_weights, solve
from episafe.kernels.simulation import policy_values
from episafe.kernels.tabular import policy_bounds
from episafe.kernels.wealth import mixture_bound

Solution = TypeVar("Solution")
Best = Callable[[Array], tuple[Array, Solution]]  # weights (1 + m,) -> values (1 + m,) of largest ⟨weights, values⟩
Parts = list[tuple[float, Solution]]  # solutions, each with its share
Optimum = tuple[Array, Array, Array]  # values (1 + m,), a table (H, S, A) that has them, and multipliers (m,)
Steps = Any  # a kernel by its steps: an array (H, S, A, S), or H sparse matrices (S·A, S)

IMPROVEMENT = 1e-12  # relative; values are sums of at most H numbers in [0, 1], rounded at about 1e-16 each
MAX_ROUNDS = 2000  # never reached in practice (10 to 60 rounds): it only turns a stall into an error
MULTIPLIERS = (0.0, 0.05, 0.2, 0.7, 2.5, 10.0, 40.0)  # directions that a search over a box begins with
KEEP = np.zeros(0)  # weights that keep the policy
NEGLIGIBLE = 1e-12  # weights and multipliers up to this are rounding of the solver


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


def best_mixture(
    best: Best[Solution], thresholds: Array, points: list[tuple[Array, Solution]] | None = None
) -> BestMixture[Solution]:
    """Return the mixture of attainable points that maximises r subject to u_i ≥ b_i for all i.

        max_w Σ_j w_j r_j  s.t.  Σ_j w_j u_ij ≥ b_i   =   min_{λ ≥ 0} max_j r_j + Σ_i λ_i(u_ij − b_i)

    If no mixture keeps the limits, it is the one that misses them by least.

    Args:
        best: the attainable point of largest weighted value, reward first, and what attains it.
        thresholds: b (m,).
        points: those found for other thresholds, to begin with; new ones are added.
    """
    found, m = [] if points is None else points, len(thresholds)
    directions = np.eye(1 + m)
    found += [best(directions[0])] if not found else []
    free, solution = found[0]
    if passes(free[1:], thresholds + TOLERANCE):
        alone = [(1.0, solution)]
        return BestMixture(free, alone, np.zeros(m), alone, thresholds)
    found += [best(direction) for direction in directions[1:]] if len(found) == 1 else []

    def extend(direction: Array, reached: float) -> float:
        """Return how far beyond `reached` a point lies in this direction, and add it if it is new."""
        point = best(direction)
        beyond = float(direction @ point[0]) - reached
        if beyond <= IMPROVEMENT * max(1.0, float(direction.max())) or (values == point[0]).all(axis=1).any():
            return 0.0
        found.append(point)
        return beyond

    def parts(weights: Array) -> Parts[Solution]:
        used = sorted(np.flatnonzero(weights).tolist(), key=lambda j: float((found[j][0][1:] - thresholds).min()))
        return [(float(weights[j]), found[j][1]) for j in used]

    for _ in range(MAX_ROUNDS):
        values = np.array([one for one, _ in found])
        surplus, weights, y = most_surplus(values[:, 1:] - thresholds)
        if y.max() == 1.0 or extend(np.append(0.0, y), surplus + float(y @ thresholds)) <= max(surplus, 0.0):
            break  # half of the largest surplus there is, or the largest; for one limit it was found at the beginning
    safest, safest_values = parts(weights), weights @ values
    if surplus < -TOLERANCE:
        return BestMixture(safest_values, safest, np.where(y > NEGLIGIBLE, np.inf, 0.0), safest, thresholds)
    kept = thresholds - max(TOLERANCE - surplus, 0.0)
    for _ in range(MAX_ROUNDS):
        values = np.array([safest_values, *(one for one, _ in found)])
        scores, utilities = values[:, 0].copy(), values[:, 1:].copy()
        mixed, multipliers = solve(scores, utilities, kept, np.ones(len(values), dtype=np.int64), 0, 0.0)
        used = np.flatnonzero(mixed).tolist()
        if m == 1 and len(used) == 2:  # the slope has fewer roundings, which decide between actions that tie
            (r_0, u_0), (r_1, u_1) = values[used]
            multipliers = np.maximum((r_0 - r_1) / (u_1 - u_0), np.zeros(1))
        direction, reached = np.append(1.0, multipliers), mixed @ values
        if extend(direction, float(direction @ reached)) == 0:
            payer = max(used, key=lambda j: float((utilities[j] - kept).min()))
            mixed = passing_weights(mixed, utilities, kept, payer if passes(utilities[payer], kept) else 0)
            reached = np.array([mixture_bound(mixed, values, g) for g in range(1 + m)])
            mixed[1 : 1 + len(weights)] += mixed[0] * weights
            return BestMixture(reached, parts(mixed[1:]), multipliers, safest, kept)
    raise RuntimeError(f"the cutting planes did not end in {MAX_ROUNDS} rounds; thresholds {thresholds.tolist()}")


def most_surplus(gains: Array) -> tuple[float, Array, Array]:
    """Return max_w min_c Σ_j w_j gain_jc of gains (n, m), its w (n,), and the dual y (m,), Σ y = 1.

    No mixture has Σ_c y_c gain_c > t. So where t < 0, limits with y_c > 0 conflict: one is missed by −t. The program
    mixes in as little as it can of one more policy, which alone has a positive gain.
    """
    (n, m), every = gains.shape, np.ones(1 + len(gains), dtype=np.int64)
    lower = np.vstack([np.ones(m), gains - gains.max() - 1.0])
    weights, duals = solve(np.append(-1.0, np.zeros(n)), lower, np.zeros(m), every, 0, 0.0)
    weights = weights[1:] / weights[1:].sum()
    return float((weights @ gains).min()), weights, duals / duals.sum()


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

    found, table = best_mixture(best, thresholds), np.eye(reward.shape[2])

    def mass(parts: Parts[IntArray]) -> Array:
        return np.add.reduce([share * occupancy(P, table[actions], initial_state) for share, actions in parts])

    elsewhere, share, mixed = table[found.parts[-1][1]], 0.0, mass(found.parts)
    while True:  # with as little of the safest as rounding asks for
        policy = markov_policy(mixed, elsewhere)
        both = [policy_values(P, reward, utility, policy, initial_state) for utility in utilities]
        values = np.array([both[0][0], *(V_u for _, V_u in both)])
        if share == 1.0 or np.isinf(found.multipliers).any() or passes(values[1:], found.kept):
            return values, policy, found.multipliers
        share = min(2.0 * share + ROUNDING, 1.0)
        mixed = (1 - share) * mass(found.parts) + share * mass(found.safest)


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
