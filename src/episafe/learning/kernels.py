"""Compiled loops of the softmax planner: plain arrays in, plain arrays out. Their slow twin is tests/oracles.py.

States are stood for by *slots*: slot i of step h is the i-th distinct state seen at that step, so nothing here has the
size of the state space. Slot 0 of step 0 is the initial state. The last axis of values, length 3, is r, †, u.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from episafe.arrays import Array, IntArray


class Scales(NamedTuple):
    """Constants of the backward recursion; `utility_bonus` is −C_u for pessimism and +C_u for optimism."""

    C_r: float
    utility_bonus: float
    C_dagger: float
    B_dagger: float
    kappa: float


class Support(NamedTuple):
    """What is known at the visited states: `size` (H,) slots a step; `reward`, `utility`, `bonus` (H, n, A)."""

    size: IntArray
    reward: Array
    utility: Array
    bonus: Array


class DenseModel(NamedTuple):
    """P̂V(s,a) = φ(s,a)ᵀ Λ_h⁻¹ Σ_j m_j V(s_j): `phi` (H, n, A, d), `gram_inv` (H, d, d), `moments` (H, n, d).

    m_j = Σ φ(s_h^i, a_h^i) over the episodes i that went on to slot j of step h+1.
    """

    phi: Array
    gram_inv: Array
    moments: Array


class CountModel(NamedTuple):
    """P̂V(s,a) = Σ_j n_h(s,a,s_j) V(s_j) / (n_h(s,a) + ρ): the same for one-hot features, where Λ_h is diagonal.

    Transition t < `num_transitions[h]` of step h has `ends[h, t]` = (slot, action, slot at step h+1) and was seen
    `times[h, t]` times; `bonus` (H, n, A) is (n_h(s,a) + ρ)^{-1/2}.
    """

    ends: IntArray
    times: Array
    num_transitions: IntArray
    bonus: Array


@njit(cache=True)
def admits(utility_bound: float, threshold: float) -> bool:
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@njit(cache=True)
def softmax_row(reward, utility, bonus, Q, scales, lam, steps_left, pi, V):  # type: ignore[no-untyped-def]
    """Composite softmax at one state (Defs. "Clipped value functions", "Composite softmax policy").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}   V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}           V̄† = π Q̄†
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h}               V̲ᵘ = π Q̲ᵘ
        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)

    The paper counts h from 1 and the code from 0: its H−h is `steps_left`. `Q` (A, 3) holds P̂V on entry and Q on exit;
    `pi` (A,) and `V` (3,) are written.
    """
    A = reward.shape[0]
    kappa = scales.kappa
    ceiling_r = steps_left * (1.0 + kappa * np.log(A))
    ceiling_dagger = steps_left * scales.B_dagger
    top = -np.inf
    for a in range(A):
        beta = bonus[a]
        Q[a, 0] = reward[a] + min(max(scales.C_r * beta + Q[a, 0], 0.0), ceiling_r)
        Q[a, 1] = scales.B_dagger * beta + min(max(scales.C_dagger * beta + Q[a, 1], 0.0), ceiling_dagger)
        Q[a, 2] = utility[a] + min(max(scales.utility_bonus * beta + Q[a, 2], 0.0), float(steps_left))
        pi[a] = (Q[a, 1] + Q[a, 0] + lam * Q[a, 2]) / kappa
        top = max(top, pi[a])
    total = 0.0
    for a in range(A):
        total += np.exp(pi[a] - top)
    log_total = np.log(total)
    V[0] = V[1] = V[2] = 0.0
    for a in range(A):
        log_pi = (pi[a] - top) - log_total  # top first: the rest is small, so that π sums to 1 to the last bit or two
        pi[a] = np.exp(log_pi)
        V[0] += pi[a] * (Q[a, 0] - kappa * log_pi)
        V[1] += pi[a] * Q[a, 1]
        V[2] += pi[a] * Q[a, 2]


@njit(cache=True)
def regress(moments, gram_inv, V_next, num_next, weights):  # type: ignore[no-untyped-def]
    """w = Λ⁻¹ Σ_j m_j V(s_j) of r, †, u at one step: moments (n, d), V_next (n, 3), into `weights` (3, d)."""
    d = gram_inv.shape[0]
    target = np.zeros((3, d))
    for j in range(num_next):
        for k in range(d):
            for g in range(3):
                target[g, k] += moments[j, k] * V_next[j, g]
    weights[:] = 0.0
    for g in range(3):
        for k in range(d):
            for m in range(d):
                weights[g, k] += gram_inv[k, m] * target[g, m]


@njit(cache=True)
def predict(phi, weights, Q):  # type: ignore[no-untyped-def]
    """φ(s,·)ᵀw of r, †, u at one state: phi (A, d), weights (3, d), into `Q` (A, 3)."""
    for a in range(phi.shape[0]):
        for g in range(3):
            total = 0.0
            for k in range(phi.shape[1]):
                total += phi[a, k] * weights[g, k]
            Q[a, g] = total


@njit(cache=True)
def bonus_row(phi, gram_inv, bonus):  # type: ignore[no-untyped-def]
    """β(s,·) = ‖φ(s,·)‖_{Λ⁻¹} at one state: phi (A, d), gram_inv (d, d), into `bonus` (A,)."""
    d = phi.shape[1]
    for a in range(phi.shape[0]):
        total = 0.0
        for k in range(d):
            inner = 0.0
            for m in range(d):
                inner += gram_inv[k, m] * phi[a, m]
            total += phi[a, k] * inner
        bonus[a] = np.sqrt(max(total, 0.0))


@njit(cache=True)
def bonuses(phi, gram_inv, size, bonus):  # type: ignore[no-untyped-def]
    """β at every visited state: phi (H, n, A, d), gram_inv (H, d, d), size (H,), into `bonus` (H, n, A)."""
    for h in range(phi.shape[0]):
        for i in range(size[h]):
            bonus_row(phi[h, i], gram_inv[h], bonus[h, i])


def next_values(model: Any, h: int, V_next: Array, size: IntArray, Q: Array) -> None:
    """P̂_hV at all slots of step h, into `Q` (n, A, 3); compiled for either model."""


@overload(next_values)
def _next_values(model, h, V_next, size, Q):  # type: ignore[no-untyped-def]
    return _next_values_dense if model.instance_class is DenseModel else _next_values_counts


def _next_values_dense(model, h, V_next, size, Q):  # type: ignore[no-untyped-def]
    weights = np.empty((3, model.gram_inv.shape[1]))
    regress(model.moments[h], model.gram_inv[h], V_next, size[h + 1], weights)
    for i in range(size[h]):
        predict(model.phi[h, i], weights, Q[i])


def _next_values_counts(model, h, V_next, size, Q):  # type: ignore[no-untyped-def]
    Q[: size[h]] = 0.0
    for t in range(model.num_transitions[h]):
        i, a, j = model.ends[h, t, 0], model.ends[h, t, 1], model.ends[h, t, 2]
        weight = model.times[h, t] * model.bonus[h, i, a] ** 2  # β² = 1/(n + ρ)
        for g in range(3):
            Q[i, a, g] += weight * V_next[j, g]


@njit(cache=True)
def evaluate(model, support, scales, lam, V):  # type: ignore[no-untyped-def]
    """V̲ᵘ(s₁) of π^λ; the values of r, †, u at all slots are left in `V` (H+1, n, 3), whose last step is zero."""
    H, n, A = support.reward.shape
    Q = np.zeros((n, A, 3))
    pi = np.empty(A)
    for h in range(H - 1, -1, -1):
        if h < H - 1:
            next_values(model, h, V[h + 1], support.size, Q)
        for i in range(support.size[h]):
            softmax_row(
                support.reward[h, i], support.utility[h, i], support.bonus[h, i],
                Q[i], scales, lam, H - 1 - h, pi, V[h, i],
            )  # fmt: skip
    return V[0, 0, 2]


@njit(cache=True)
def bisect(model, support, scales, threshold, lam_max, num_halvings, V):  # type: ignore[no-untyped-def]
    """Upper end of [0, lam_max] after `num_halvings` halvings (Alg. 2, the search): only admitted λ replace it."""
    lower, upper = 0.0, lam_max
    for _ in range(num_halvings):
        middle = (lower + upper) / 2
        if admits(evaluate(model, support, scales, middle, V), threshold):
            upper = middle
        else:
            lower = middle
    return upper


@njit(cache=True)
def softmax_table(reward, utility, bonus, Q, scales, lam):  # type: ignore[no-untyped-def]
    """π^λ (H, S, A) from β (H, S, A) and P̂V (H, S, A, 3) at every state; `Q` is overwritten."""
    H, S, A = reward.shape
    table = np.empty((H, S, A))
    V = np.empty(3)
    for h in range(H):
        for s in range(S):
            softmax_row(reward[h, s], utility[h, s], bonus[h, s], Q[h, s], scales, lam, H - 1 - h, table[h, s], V)
    return table


@njit(cache=True)
def everywhere(phi, gram_inv, weights):  # type: ignore[no-untyped-def]
    """β (H, S, A) and P̂V (H, S, A, 3) at every state: phi (S, A, d), gram_inv (H, d, d), weights (H, 3, d)."""
    S, A, _ = phi.shape
    H = gram_inv.shape[0]
    bonus = np.empty((H, S, A))
    Q = np.empty((H, S, A, 3))
    for h in range(H):
        for s in range(S):
            bonus_row(phi[s], gram_inv[h], bonus[h, s])
            predict(phi[s], weights[h], Q[h, s])
    return bonus, Q


@njit(cache=True)
def absorb(phi, slots, actions, gram, gram_inv, log_det, moments):  # type: ignore[no-untyped-def]
    """Add one episode to the regression: Λ ← Λ + φφᵀ, its inverse and ln det by the rank-one formulas, m_j ← m_j + φ.

    phi (H, n, A, d); slots, actions (H,); gram, gram_inv (H, d, d); log_det (H,); moments (H, n, d).
    """
    H, d = gram.shape[0], gram.shape[1]
    direction = np.empty(d)
    for h in range(H):
        x = phi[h, slots[h], actions[h]]
        scale = 1.0
        for k in range(d):
            direction[k] = 0.0
            for m in range(d):
                direction[k] += gram_inv[h, k, m] * x[m]
            scale += x[k] * direction[k]
        for k in range(d):
            for m in range(d):
                gram[h, k, m] += x[k] * x[m]
                gram_inv[h, k, m] -= direction[k] * direction[m] / scale
        log_det[h] += np.log(scale)
        if h < H - 1:
            for k in range(d):
                moments[h, slots[h + 1], k] += x[k]
