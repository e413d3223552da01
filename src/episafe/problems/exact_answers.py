"""Exact answers for a known kernel: those of `model_answers` for the true model, and what only they need."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import InvalidProblem
from episafe.kernels.mixing import admits, nudged_until
from episafe.kernels.policy_values import policy_values as policy_values
from episafe.problems.cutting_planes import best_mixture_of_several, require_reachable
from episafe.problems.model_answers import Optimum as Optimum
from episafe.problems.model_answers import greedy_actions as greedy_actions
from episafe.problems.model_answers import optimum as optimum
from episafe.problems.model_answers import utility_greedy as utility_greedy
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


def lp_optimum(P: Array, reward: Array, utilities: Array, thresholds: Array, initial_state: int) -> float:
    """The same optimum from the occupancy linear program by HiGHS: slow, independent, good to about 1e-7.

    max ⟨w, r⟩  s.t.  ⟨w, u_i⟩ ≥ b_i,  Σ_a w_1(s,a) = 1{s = s₁},  Σ_a w_{h+1}(s',a) = Σ_{s,a} P_h(s'|s,a) w_h(s,a)
    """
    import scipy.optimize  # here, because it takes as long to import as all the rest
    import scipy.sparse

    H, S, A, _ = P.shape
    per_step = S * A
    state_mass = scipy.sparse.kron(scipy.sparse.eye_array(S), np.ones((1, A)))
    blocks: list[list[object]] = [[None] * H for _ in range(H)]
    for h in range(H):
        blocks[h][h] = state_mass
        if h:
            blocks[h][h - 1] = scipy.sparse.csr_array(-P[h - 1].reshape(per_step, S).T)
    start = np.zeros(H * S)
    start[initial_state] = 1.0
    solved = scipy.optimize.linprog(
        -reward.ravel(),
        A_ub=-utilities.reshape(len(utilities), -1),
        b_ub=-thresholds,
        A_eq=scipy.sparse.block_array(blocks, format="csr"),
        b_eq=start,
        method="highs",
    )
    if solved.status != 0:
        raise RuntimeError(f"HiGHS ended without an optimum: {solved.message}")
    return float(-solved.fun)


def linearity_gap(P: Array, phi: Array) -> float:
    """max_{h,s,a} ‖P_h(·|s,a) − φ(s,a)ᵀμ̂_h‖₁ with the least-squares μ̂_h: 0 if and only if P is linear in φ."""
    mu = measures(P, phi)
    return max(float(np.abs(P[h] - phi @ mu[h]).sum(axis=-1).max()) for h in range(len(P)))


def measures(P: Array, phi: Array) -> Array:
    """The least-squares μ̂_h of P_h ≈ φᵀμ_h, of the smallest norm where there are several, shape (H, d, S)."""
    H, S, A, _ = P.shape
    rows = P.reshape(H, S * A, S).transpose(1, 0, 2).reshape(S * A, H * S)
    mu = np.asarray(np.linalg.lstsq(phi.reshape(S * A, -1), rows, rcond=None)[0], dtype=np.float64)
    return mu.reshape(-1, H, S).transpose(1, 0, 2)


def least_norm_bound(P: Array, phi: Array | None) -> float:
    """A B with ‖Σ_s' μ_h(s') g(s')‖₂ ≤ B max g for every g ≥ 0, where P_h = φᵀμ_h; inf where P is not linear in φ.

    For 0 ≤ g ≤ 1 the square of that norm is at most

        Σ_i max{Σ_s' μ_hi(s')⁺, Σ_s' μ_hi(s')⁻}²    and    Σ_{s,s'} (μ_h(s)ᵀμ_h(s'))⁺,

    and B² is the smaller one. Both are d where the entries of μ_h are probability laws, as for one-hot features.
    """
    if phi is None:
        return math.sqrt(P.shape[1] * P.shape[2])
    if linearity_gap(P, phi) > TOLERANCE:
        return math.inf
    mu = measures(P, phi)
    by_rows = np.maximum(np.maximum(mu, 0).sum(axis=-1), np.maximum(-mu, 0).sum(axis=-1))
    squares = [min(float(row @ row), float(np.maximum(m.T @ m, 0).sum())) for row, m in zip(by_rows, mu, strict=True)]
    return math.sqrt(max(squares))
