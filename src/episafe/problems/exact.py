"""Exact answers for a problem with a known kernel: values, constrained optimum, linearity in φ."""

import math
from collections.abc import Sequence

import numpy as np

from episafe.core.checks import TOLERANCE, distinct_steps, require
from episafe.core.errors import Infeasible
from episafe.core.types import Array
from episafe.kernels import tabular_optimum
from episafe.kernels.simulation import policy_values as _policy_values
from episafe.kernels.tabular_optimum import Optimum, greedy_actions


def policy_values(P: Array, reward: Array, utility: Array, policy: Array, initial_state: int) -> tuple[float, float]:
    """Return (V^r(s₁), V^u(s₁)) of a table (H, S, A)."""
    signals = distinct_steps(P), distinct_steps(reward), distinct_steps(utility)
    V_r, V_u = _policy_values(*signals, np.ascontiguousarray(policy), initial_state)
    return float(V_r), float(V_u)


def utility_greedy(P: Array, utility: Array) -> tuple[Array, Array]:
    """Return the policy (H, S, A) with the largest utility from every state, and its value at step 0, shape (S,)."""
    actions, V = greedy_actions(P, utility[..., None], np.ones(1))
    return np.eye(utility.shape[2])[actions], V[:, 0]


def safest(P: Array, utilities: Sequence[Array], initial_state: int) -> tuple[Array, Array]:
    """Return the policy (H, S, A) with the largest utility, or largest sum of several, and its utilities (m,)."""
    if len(utilities) == 1:
        table, V = utility_greedy(P, utilities[0])
        return table, V[[initial_state]]
    table = utility_greedy(P, np.add.reduce(list(utilities)))[0]
    return table, np.array([policy_values(P, one, one, table, initial_state)[1] for one in utilities])


def require_reachable(threshold: float, largest: float, name: str = "") -> None:
    """Raise if a threshold exceeds the largest utility of any policy."""
    fault = f"threshold {threshold:.12g}{f' of {name}' if name else ''} cannot be reached: the largest utility of any"
    require(threshold <= largest + TOLERANCE, f"{fault} policy is {largest:.12g}; lower the threshold", Infeasible)


def optimum(
    P: Array, reward: Array, utilities: Array, thresholds: Array, initial_state: int, names: Sequence[str] = ()
) -> Optimum:
    """Return max V^r(s₁) s.t. V^{u_i}(s₁) ≥ b_i for all i, and a policy table (H, S, A) that attains it, with λ.

    Utilities are (m, H, S, A), thresholds (m,). Raise Infeasible if no policy keeps all limits, and name those that
    conflict.
    """
    names = names or [f"limit {c + 1}" for c in range(len(utilities))]
    for name, utility, threshold in zip(names, utilities, thresholds, strict=True):
        require_reachable(threshold, utility_greedy(P, utility)[1][initial_state], name)
    values, table, multipliers = tabular_optimum.optimum(
        distinct_steps(P), reward, utilities, thresholds, initial_state
    )
    if len(thresholds) > 1 and np.isinf(multipliers).any():
        conflict = [f"{name} >= {b:.12g}" for name, b, y in zip(names, thresholds, multipliers, strict=True) if y]
        missed = float(np.max(thresholds - values[1:]))
        fault = f"conflict: every policy misses one of them by {missed:.6g} or more; lower thresholds"
        raise Infeasible(f"{' and '.join(conflict)} {fault}")
    return values, table, multipliers


def linear_measures(P: Array, phi: Array) -> tuple[Array, float]:
    """Return the least-squares μ̂_h of P_h ≈ φᵀμ_h, (n, d, S), of smallest norm, and max_{h,s,a} ‖P_h − φᵀμ̂_h‖₁.

    n is 1 if all steps share the same memory, else H. The gap is 0 if and only if P is linear in φ.
    """
    P = distinct_steps(P)
    (_n, S, A, _), rows = P.shape, phi.reshape(-1, phi.shape[2])
    if ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all():  # each pair marks one: group means
        solve = rows.T / np.maximum(rows.sum(axis=0), 1)[:, None]
    else:
        U, scale, V = np.linalg.svd(rows, full_matrices=False)
        kept = scale > scale.max() * max(rows.shape) * np.finfo(np.float64).eps
        solve = (V.T[:, kept] / scale[kept]) @ U.T[kept]
    mu = np.stack([_product(solve, P_h.reshape(S * A, S)) for P_h in P])
    gaps = (
        np.abs(P_h.reshape(S * A, S) - _product(rows, mu_h)).sum(axis=1).max() for P_h, mu_h in zip(P, mu, strict=True)
    )
    return mu, float(max(gaps))


def least_norm_bound(P: Array, phi: Array | None) -> float:
    """Return a B with ‖Σ_s' μ_h(s') g(s')‖₂ ≤ B max g for every g ≥ 0, where P_h = φᵀμ_h; inf if P is not linear in φ.

    For 0 ≤ g ≤ 1 the square of that norm is at most

        Σ_i max{Σ_s' μ_hi(s')⁺, Σ_s' μ_hi(s')⁻}²    and    Σ_{s,s'} (μ_h(s)ᵀμ_h(s'))⁺,

    and B² is the smaller one. Both are d if the entries of μ_h are distributions, as for one-hot features.
    """
    if phi is None:
        return math.sqrt(P.shape[1] * P.shape[2])
    mu, gap = linear_measures(P, phi)
    if gap > TOLERANCE:
        return math.inf
    by_rows = np.maximum(np.maximum(mu, 0).sum(axis=-1), np.maximum(-mu, 0).sum(axis=-1))
    squares = [
        min(float(row @ row), float(np.maximum(_product(m.T, m), 0).sum())) for row, m in zip(by_rows, mu, strict=True)
    ]
    return math.sqrt(max(squares))


def _product(a: Array, b: Array) -> Array:
    """Return a @ b; small products without BLAS, whose threads keep a core busy for 20 ms after each call."""
    small = a.size * b.shape[1] < 4_000_000
    return np.einsum("ij,jk->ik", a, b) if small else a @ b
