"""Answers for a model given as arrays, true or estimated: greedy policies, occupancies and constrained optima.

Who may know the true kernel is not decided here: a learner hands over what it has estimated.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from episafe.errors import InvalidProblem
from episafe.kernels.mixing import admits, nudged_until
from episafe.kernels.policy_values import policy_values
from episafe.problems.cutting_planes import best_mixture_of_several, require_reachable
from episafe.problems.dual_search import Point, best_mixture
from episafe.types import Amount, Array, IntArray

Steps = Any  # a kernel by its steps: an array (H, S, A, S), or H sparse matrices (S·A, S)
Parts = Sequence[tuple[float, IntArray]]  # deterministic policies (H, S), each with its share


class Optimum(NamedTuple):
    """The constrained optimum: its `value`, a policy `table` (H, S, A) that attains it, and the multiplier, or (m,)."""

    value: float
    table: Array
    lam: Amount


def occupancy(P: Steps, policy: Array, initial_state: int) -> Array:
    """w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
    H, S, A = policy.shape
    state_mass = np.zeros(S)
    state_mass[initial_state] = 1.0
    out = np.empty((H, S, A))
    for h in range(H):
        out[h] = state_mass[:, None] * policy[h]
        state_mass = out[h].reshape(S * A) @ P[h].reshape(S * A, S)
    return out


def markov_policy(mass: Array, elsewhere: Array | float) -> Array:
    """π_h(a|s) = w_h(s, a) / Σ_a w_h(s, a) of an occupancy (H, S, A); `elsewhere` where that is 0/0."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), elsewhere)


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
    safest = [(1.0, greedy_actions(steps, utility[..., None], np.ones(1))[0])]
    constraint = utility[None], [threshold]
    return Optimum(value, _markov_mixture(P, steps, reward, constraint, initial_state, parts, safest), lam)


def optimum_of_several(
    P: Array, reward: Array, utilities: Array, thresholds: Array, initial_state: int, names: Sequence[str] = ()
) -> Optimum:
    """max V^r(s₁) s.t. V^{u_i}(s₁) ≥ b_i for all i, by cutting planes on the dual: each is a backward induction.

    With one constraint it is `optimum`, bit for bit. The policy has the occupancy of a mixture of at most m + 1
    deterministic ones, and keeps every constraint in float64, or to 2e-9 where no policy has room of 1e-9 in all.

    Args:
        P: (H, S, A, S).
        reward: (H, S, A).
        utilities: (m, H, S, A).
        thresholds: b (m,).
        initial_state: s₁.
        names: what an error calls the constraints; by default their numbers.

    Raises:
        Infeasible: no policy keeps all constraints; it says which ones conflict, and by how much.
    """
    m = len(utilities)
    if m == 0 or np.shape(thresholds) != (m,) or len(names) not in (0, m):
        raise InvalidProblem(
            f"{m} utilities, thresholds {thresholds!r}, names {names!r}: give one of each a constraint"
        )
    names = names or [f"constraint {i}" for i in range(m)]
    if m == 1:
        require_reachable(thresholds[0], utility_greedy(P, utilities[0])[1][initial_state], f" of {names[0]}")
        value, policy, lam = optimum(P, reward, utilities[0], float(thresholds[0]), initial_state)
        return Optimum(value, policy, np.array([lam]))
    rewards = np.stack([reward, *utilities], axis=-1)

    def best(weights: Array) -> tuple[Array, IntArray]:
        actions, V = greedy_actions(P, rewards, weights)
        return V[initial_state], actions

    parts, multipliers, safest, kept = best_mixture_of_several(best, thresholds, names)
    policy = _markov_mixture(P, P, reward, (utilities, kept), initial_state, parts, safest)
    value = float(policy_values(P, reward, utilities[0], policy, initial_state)[0])
    return Optimum(value, policy, multipliers)


def _markov_mixture(
    P: Array,
    steps: Steps,
    reward: Array,
    constraints: tuple[Array, Any],
    initial_state: int,
    parts: Parts,
    safest: Parts,
) -> Array:
    """Markov policy whose occupancy is the mixture's, moved towards the safest one until V^u ≥ b holds in float64.

    Args:
        P, steps, reward, initial_state: the problem.
        constraints: utilities (m, H, S, A) and thresholds (m,).
        parts: the mixture; where it never is, its last policy acts.
        safest: another mixture, of more utility.
    """
    table = np.eye(reward.shape[2])
    mass, w_safest = (
        np.add.reduce([share * occupancy(steps, table[actions], initial_state) for share, actions in mixture])
        for mixture in (parts, safest)
    )
    elsewhere = table[parts[-1][1]]

    def towards_safest(share: float) -> Array:
        return markov_policy((1 - share) * mass + share * w_safest, elsewhere)

    def passes(share: float) -> bool:
        policy = towards_safest(share)
        V_u = (policy_values(P, reward, utility, policy, initial_state)[1] for utility in constraints[0])
        return share >= 1.0 or all(map(admits, V_u, constraints[1]))

    return towards_safest(nudged_until(passes, 0.0))
