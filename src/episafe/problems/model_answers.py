"""Answers for a model given as arrays, true or estimated: greedy policies and the constrained optimum.

Who may know the true kernel is not decided here: a learner hands over what it has estimated.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.mixing import admits, nudged_until
from episafe.kernels.policy_values import policy_values
from episafe.problems.dual_search import Parts, Point, best_mixture
from episafe.problems.occupancies import Steps, occupancy
from episafe.types import Array, IntArray


class Optimum(NamedTuple):
    """The constrained optimum: its `value`, a policy `table` (H, S, A) that attains it, and the multiplier."""

    value: float
    table: Array
    lam: float


def greedy_actions(P: Steps, rewards: Array, weights: Array) -> tuple[IntArray, Array]:
    """Maximiser (H, S) of the weighted value Σ_g weights[g] V^g, and V^g of each g at step 0, shape (S, G).

    Args:
        P: (H, S, A, S), or H sparse matrices (S·A, S).
        rewards: (H, S, A, G), one function g a column.
        weights: (G,).
    """
    H, S, A, G = rewards.shape
    V_next = np.zeros((S, G))
    actions = np.empty((H, S), dtype=np.int64)
    for h in reversed(range(H)):
        Q = rewards[h] + (P[h].reshape(S * A, S) @ V_next).reshape(S, A, G)
        actions[h] = np.argmax(Q @ weights, axis=1)
        V_next = Q[np.arange(S), actions[h]]
    return actions, V_next


def utility_greedy(P: Steps, utility: Array) -> tuple[Array, Array]:
    """The policy (H, S, A) of largest utility from every state, and its value at step 0, shape (S,)."""
    actions, V = greedy_actions(P, utility[..., None], np.ones(1))
    return np.eye(utility.shape[2])[actions], V[:, 0]


def optimum(
    P: Array, reward: Array, utility: Array, threshold: float, initial_state: int, steps: Steps | None = None
) -> Optimum:
    """max V^r(s₁) s.t. V^u(s₁) ≥ b by the one-dimensional dual, with a policy (H, S, A) that attains it.

    If no policy reaches the threshold it is the one of largest utility, with multiplier ∞. `steps` is P as H sparse
    matrices (S·A, S), where that is faster.
    """
    steps = P if steps is None else steps
    rewards = np.stack([reward, utility], axis=-1)

    def best(reward_weight: float, utility_weight: float) -> Point[IntArray]:
        actions, V = greedy_actions(steps, rewards, np.array([reward_weight, utility_weight]))
        return float(V[initial_state, 0]), float(V[initial_state, 1]), actions

    value, _, parts, lam = best_mixture(best, threshold)
    return Optimum(value, _markov_mixture(P, steps, reward, utility, threshold, initial_state, parts), lam)


def _markov_mixture(
    P: Array,
    steps: Steps,
    reward: Array,
    utility: Array,
    threshold: float,
    initial_state: int,
    parts: Parts[IntArray],
) -> Array:
    """Markov policy whose occupancy is the mixture's, moved towards the safest one until V^u ≥ b holds in float64."""
    (share_below, below), (share_above, above) = (
        (share, np.eye(utility.shape[2])[actions]) for share, actions in parts
    )
    safest = utility_greedy(steps, utility)[0]
    w_below, w_above, w_safest = (occupancy(steps, policy, initial_state) for policy in (below, above, safest))
    mass = share_below * w_below + share_above * w_above

    def towards_safest(share: float) -> Array:
        moved = (1 - share) * mass + share * w_safest
        state_mass = moved.sum(axis=-1, keepdims=True)
        return np.where(state_mass > 0, moved / np.where(state_mass > 0, state_mass, 1.0), above)

    def passes(share: float) -> bool:
        V_u = policy_values(P, reward, utility, towards_safest(share), initial_state)[1]
        return share >= 1.0 or bool(admits(V_u, threshold))

    return towards_safest(nudged_until(passes, 0.0))
