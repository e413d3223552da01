"""Exact answers for a known kernel: those of `model_answers` for the true model, and what only they need."""

import math

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.policy_values import policy_values as policy_values
from episafe.problems.model_answers import Optimum as Optimum
from episafe.problems.model_answers import greedy_actions as greedy_actions
from episafe.problems.model_answers import optimum as optimum
from episafe.problems.model_answers import optimum_of_several as optimum_of_several
from episafe.problems.model_answers import utility_greedy as utility_greedy
from episafe.types import Array


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
    return _gap(P, phi, measures(P, phi))


def _gap(P: Array, phi: Array, mu: Array) -> float:
    (_, S, A, _), rows = P.shape, phi.reshape(-1, phi.shape[2])
    return max(
        float(np.abs(P_h.reshape(S * A, S) - rows @ mu_h).sum(axis=1).max()) for P_h, mu_h in zip(P, mu, strict=True)
    )


def measures(P: Array, phi: Array) -> Array:
    """The least-squares μ̂_h of P_h ≈ φᵀμ_h, of the smallest norm where there are several, shape (H, d, S)."""
    H, S, A, _ = P.shape
    rows, marks = P.reshape(H, S * A, S).transpose(1, 0, 2).reshape(S * A, H * S), phi.reshape(S * A, -1)
    if ((marks == 0) | (marks == 1)).all() and (marks.sum(axis=1) == 1).all():  # each pair marks one: group means
        mu: Array = marks.T @ rows / np.maximum(marks.sum(axis=0), 1)[:, None]
    else:
        mu = np.asarray(np.linalg.lstsq(marks, rows, rcond=None)[0], dtype=np.float64)
    return mu.reshape(-1, H, S).transpose(1, 0, 2)


def least_norm_bound(P: Array, phi: Array | None) -> float:
    """A B with ‖Σ_s' μ_h(s') g(s')‖₂ ≤ B max g for every g ≥ 0, where P_h = φᵀμ_h; inf where P is not linear in φ.

    For 0 ≤ g ≤ 1 the square of that norm is at most

        Σ_i max{Σ_s' μ_hi(s')⁺, Σ_s' μ_hi(s')⁻}²    and    Σ_{s,s'} (μ_h(s)ᵀμ_h(s'))⁺,

    and B² is the smaller one. Both are d where the entries of μ_h are probability laws, as for one-hot features.
    """
    if phi is None:
        return math.sqrt(P.shape[1] * P.shape[2])
    mu = measures(P, phi)
    if _gap(P, phi, mu) > TOLERANCE:
        return math.inf
    by_rows = np.maximum(np.maximum(mu, 0).sum(axis=-1), np.maximum(-mu, 0).sum(axis=-1))
    squares = [min(float(row @ row), float(np.maximum(m.T @ m, 0).sum())) for row, m in zip(by_rows, mu, strict=True)]
    return math.sqrt(max(squares))
