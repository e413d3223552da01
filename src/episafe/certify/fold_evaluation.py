"""A lower bound on the utility of a fixed policy, from transitions that it does not depend on, one fold a step.

    V̲_h(s) = Σ_a π_h(a|s)(u_h(s,a) + L_h(s,a)),   V̲_{H+1} = 0,   L_h(s,a) ≤ P_hV̲_{h+1}(s,a) with probability 1 − δ'

V̲_{h+1} is a function of the folds of later steps alone, so the transitions of fold h are fresh to it: the bound need
hold for one function, where the paper's holds for all that its algorithm might ever meet. docs/theory-certificates.md.
"""

from collections.abc import Sequence

import numpy as np

from episafe.kernels.confidence_sequence import lower_bounds
from episafe.problems.task import Task
from episafe.types import Array, IntArray

RIDGE = 0.1  # ρ of the regression on features; any ρ > 0 is valid


def pessimistic_utility(task: Task, table: Array, folds: Sequence[IntArray], log_term: float) -> float:
    """V̲_1(s₁) of a policy `table` (H, S, A); fold h is an array (n, 3) of (s, a, s') at step h; log_term = ln(1/δ').

    δ' is the probability with which one bound may fail: of a step for features, of a (step, state, action) for one-hot
    ones.
    """
    V_next = np.zeros(task.num_states)
    for h in reversed(range(task.horizon)):
        Q = task.utility[h].copy()
        if h < task.horizon - 1:
            bound = _bound_by_counts if task.phi is None else _bound_by_features
            Q += np.clip(bound(task, folds[h], V_next, log_term), V_next.min(), V_next.max())
        V_next = np.einsum("sa,sa->s", table[h], Q)
    return float(V_next[task.initial_state])


def num_bounds(task: Task) -> int:
    """How many bounds one evaluation rests on."""
    steps = max(task.horizon - 1, 1)
    return steps if task.phi is not None else steps * task.num_states * task.num_actions


def _bound_by_counts(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """L(s,a) (S, A): min V plus the bound of `sequence` on V − min V ≥ 0, each pair by itself, every share 1."""
    n, first, second = (np.zeros((task.num_states, task.num_actions)) for _ in range(3))
    states, actions, values = fold[:, 0], fold[:, 1], (V - V.min())[fold[:, 2]]
    np.add.at(n, (states, actions), 1.0)
    np.add.at(first, (states, actions), values)
    np.add.at(second, (states, actions), values**2)
    sums = np.stack([first, n, second, first, n, np.zeros_like(n)], axis=-1).reshape(-1, 6)
    bounds: Array = V.min() + lower_bounds(sums, log_term).reshape(n.shape)
    return bounds


def _bound_by_features(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """L(s,a) = φᵀŵ − r‖φ‖_{Λ⁻¹}, (S, A), with the self-normalised radius for the one function V:

    ŵ = Λ⁻¹ Σ φ_i V(s'_i),   r = √(ρd) max V + ½(max V − min V) √(ln(det Λ/ρ^d) + 2 ln(1/δ'))
    """
    assert task.phi is not None
    phi, d = task.phi[fold[:, 0], fold[:, 1]], task.dim
    gram = RIDGE * np.eye(d) + phi.T @ phi
    inverse = np.linalg.inv(gram)
    information = np.linalg.slogdet(gram)[1] - d * np.log(RIDGE)
    half_range = (V.max() - V.min()) / 2
    radius = np.sqrt(RIDGE * d) * V.max() + half_range * np.sqrt(information + 2 * log_term)
    width = np.sqrt(np.maximum(np.einsum("sad,de,sae->sa", task.phi, inverse, task.phi), 0))
    bounds: Array = task.phi @ (inverse @ (phi.T @ V[fold[:, 2]])) - radius * width
    return bounds
