"""DOPE's problem: the best policy and the best kernel of a confidence box, under a constraint on the utility."""

import numpy as np

from episafe.kernels.extended_value_iteration import Box, Greedy, extended_greedy, extended_occupancy
from episafe.problems.dual_search import Mixture, Parts, Point, best_mixture
from episafe.problems.occupancies import markov_policy
from episafe.types import Array


def optimistic_pessimistic(
    reward: Array, utility: Array, box: Box, threshold: float, initial_state: int
) -> Mixture[Greedy]:
    """max over π and P' in the box of V^r_{P'}(s₁) s.t. V^u_{P'}(s₁) ≥ b: a mixture of two (π, P') pairs.

    The pairs are the vertices of the extended occupancies z_h(s,a,s'), a convex set, so the one-dimensional dual is
    exact. Without a feasible pair, the one of largest utility.
    """

    def best(reward_weight: float, utility_weight: float) -> Point[Greedy]:
        actions, order, V = extended_greedy(reward, utility, box.lower, box.upper, reward_weight, utility_weight)
        return float(V[initial_state, 0]), float(V[initial_state, 1]), (actions, order)

    return best_mixture(best, threshold)


def markov_table(box: Box, parts: Parts[Greedy], initial_state: int) -> Array:
    """π_h(a|s) = Σ_{s'} z_h(s,a,s') / Σ_{a,s'} z_h(s,a,s') of the mixed occupancy z; uniform where that is 0/0."""
    H, S, A = box.bonus.shape
    mass, (steps, states) = np.zeros((H, S, A)), np.indices((H, S))
    for weight, (actions, order) in parts:
        reached = extended_occupancy(box.lower, box.upper, actions, order, initial_state)
        mass[steps, states, actions] += weight * reached
    return markov_policy(mass, elsewhere=1 / A)
