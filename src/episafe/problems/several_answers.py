"""The constrained optimum of a model given as arrays, true or estimated, under several constraints."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from episafe.errors import InvalidProblem
from episafe.kernels.mixing import admits, nudged_until
from episafe.kernels.policy_values import policy_values
from episafe.problems.cutting_planes import best_mixture_of_several, require_reachable
from episafe.problems.model_answers import greedy_actions, optimum, utility_greedy
from episafe.problems.occupancies import markov_policy, occupancy
from episafe.types import Array, IntArray

Parts = Sequence[tuple[float, IntArray]]  # deterministic policies (H, S), each with its share


class OptimumOfSeveral(NamedTuple):
    """max V^r(s₁) under m constraints: the value, a policy (H, S, A) that attains it, the multipliers (m,)."""

    value: float
    policy: Array
    multipliers: Array


def optimum_of_several(
    P: Array, reward: Array, utilities: Array, thresholds: Array, initial_state: int, names: Sequence[str] = ()
) -> OptimumOfSeveral:
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
        require_reachable(utility_greedy(P, utilities[0])[1][[initial_state]], thresholds, names)
        value, policy, lam = optimum(P, reward, utilities[0], float(thresholds[0]), initial_state)
        return OptimumOfSeveral(value, policy, np.array([lam]))
    rewards = np.stack([reward, *utilities], axis=-1)

    def best(weights: Array) -> tuple[Array, IntArray]:
        actions, V = greedy_actions(P, rewards, weights)
        return V[initial_state], actions

    parts, multipliers, safest, kept = best_mixture_of_several(best, thresholds, names)
    policy = _markov_mixture(P, reward, (utilities, kept), initial_state, parts, safest)
    value = float(policy_values(P, reward, utilities[0], policy, initial_state)[0])
    return OptimumOfSeveral(value, policy, multipliers)


def _markov_mixture(
    P: Array,
    reward: Array,
    constraints: tuple[Array, Array],
    initial_state: int,
    parts: Parts,
    safest: Parts,
) -> Array:
    """Markov policy whose occupancy is the mixture's, moved towards the safest one until V^u ≥ b holds in float64.

    Args:
        P, reward, initial_state: the problem.
        constraints: utilities (m, H, S, A) and thresholds (m,).
        parts: the mixture; where it never is, its last policy acts.
        safest: another mixture, of more utility.
    """
    table = np.eye(reward.shape[2])
    mass, w_safest = (
        np.add.reduce([share * occupancy(P, table[actions], initial_state) for share, actions in mixture])
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
