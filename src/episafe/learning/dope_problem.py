"""DOPE's problem: the best policy and the best kernel of a confidence box, under a constraint on the utility."""

from collections.abc import Sequence

import numpy as np

from episafe.kernels.extended_value_iteration import Greedy, KernelBox, extended_greedy, extended_occupancy
from episafe.kernels.mixing import admits_all, nudged_until
from episafe.problems.cutting_planes import best_mixture_of_several
from episafe.problems.dual_search import Mixture, Point, best_mixture
from episafe.problems.model_answers import markov_policy
from episafe.types import Array

Pairs = Sequence[tuple[float, Greedy]]  # of a policy and a kernel, each with its share


def optimistic_pessimistic(
    reward: Array, utility: Array, box: KernelBox, threshold: float, initial_state: int
) -> Mixture[Greedy]:
    """max over π and P' in the box of V^r_{P'}(s₁) s.t. V^u_{P'}(s₁) ≥ b: a mixture of two (π, P') pairs.

    The pairs are the vertices of the extended occupancies z_h(s,a,s'), a convex set, so the one-dimensional dual is
    exact. Without a feasible pair, the one of largest utility.
    """

    def best(reward_weight: float, utility_weight: float) -> Point[Greedy]:
        actions, order, V = extended_greedy(reward, utility, box.lower, box.upper, reward_weight, utility_weight)
        return float(V[initial_state, 0]), float(V[initial_state, 1]), (actions, order)

    return best_mixture(best, threshold)


def optimistic_pessimistic_of_several(
    reward: Array, utilities: Array, box: KernelBox, thresholds: Array, initial_state: int
) -> tuple[Array, Pairs, Array]:
    """The same under m constraints: utilities (m, H, S, A), thresholds b (m,); at most m + 1 pairs.

    Returns V^u of the mixture (m,), its pairs (π, P') with their shares, and the multipliers (m,).

    Raises:
        Infeasible: no mixture of pairs keeps every constraint.
    """
    signals = np.concatenate([reward[None], utilities])

    def best(weights: Array) -> tuple[Array, Greedy]:
        sought = np.tensordot(weights, signals, axes=1)
        actions, order, _ = extended_greedy(sought, sought, box.lower, box.upper, 1.0, 0.0)
        return signal_values(signals, box, (actions, order), initial_state), (actions, order)

    def utilities_of(parts: Pairs) -> Array:
        each = [share * signal_values(signals[1:], box, pair, initial_state) for share, pair in parts]
        return np.add.reduce(each)

    names = [f"constraint {c}" for c in range(len(thresholds))]
    parts, multipliers, safest_parts, _ = best_mixture_of_several(best, thresholds, names)
    kept, safest = utilities_of(parts), utilities_of(safest_parts)

    def towards_safest(share: float) -> Array:
        return (1 - share) * kept + share * safest

    share = nudged_until(lambda share: share >= 1.0 or admits_all(towards_safest(share), thresholds), 0.0)
    moved = [((1 - share) * w, pair) for w, pair in parts] + [(share * w, pair) for w, pair in safest_parts]
    return towards_safest(share), moved, multipliers


def signal_values(signals: Array, box: KernelBox, pair: Greedy, initial_state: int) -> Array:
    """V of each signal (n, H, S, A) under a pair (π, P')."""
    steps, states = np.indices(signals.shape[1:3])
    reached = extended_occupancy(box.lower, box.upper, *pair, initial_state)
    return (signals[:, steps, states, pair[0]] * reached).sum(axis=(1, 2))


def markov_table(box: KernelBox, parts: Pairs, initial_state: int) -> Array:
    """π_h(a|s) = Σ_{s'} z_h(s,a,s') / Σ_{a,s'} z_h(s,a,s') of the mixed occupancy z; uniform where that is 0/0."""
    H, S, A = box.bonus.shape
    mass, (steps, states) = np.zeros((H, S, A)), np.indices((H, S))
    for weight, (actions, order) in parts:
        reached = extended_occupancy(box.lower, box.upper, actions, order, initial_state)
        mass[steps, states, actions] += weight * reached
    return markov_policy(mass, elsewhere=1 / A)
