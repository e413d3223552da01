"""The composite softmax policy at any state, compiled, from what a decision left behind (see model.py)."""

import numpy as np
from numba.extending import overload

from episafe.arrays import Array, IntArray
from episafe.compiling import kernel
from episafe.learning.kernels import clear, feature_bonus, next_values, predict, softmax_step
from episafe.learning.model import CountModel, DenseModel, Known, Scales, Work


@kernel
def feature_table(known, gram_inv, weights, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): gram_inv (H, d, d), weights (H, 3, d)."""
    H, A, S = known.reward.shape
    bonus, Q, pi, V = np.empty((A, S)), np.empty((3, A, S)), np.empty((A, S)), np.empty((3, S))
    for h in range(H):
        feature_bonus(known.phi, gram_inv[h], S, bonus)
        predict(known.phi, weights[h], S, Q)
        softmax_step(known.reward[h], known.utility[h], bonus, S, scales, lam, H - 1 - h, Q, pi, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s]


@kernel
def count_table(known, state_of, size, bonus, Q, ridge, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): bonus (H, A, n), P̂V = Q (H, 3, A, n) at slots."""
    H, A, S = known.reward.shape
    bonus_all, Q_all, pi, V = np.empty((A, S)), np.empty((3, A, S)), np.empty((A, S)), np.empty((3, S))
    for h in range(H):
        clear(Q_all, S)
        for a in range(A):
            for s in range(S):
                bonus_all[a, s] = 1.0 / np.sqrt(ridge)
        for i in range(size[h]):
            s = state_of[h, i]
            for a in range(A):
                bonus_all[a, s] = bonus[h, a, i]
                for g in range(3):
                    Q_all[g, a, s] = Q[h, g, a, i]
        softmax_step(known.reward[h], known.utility[h], bonus_all, S, scales, lam, H - 1 - h, Q_all, pi, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s]


@kernel
def count_values(model, size, work, Q):  # type: ignore[no-untyped-def]
    """P̂V of the values in `work.V` at all slots of all steps, into `Q` (H, 3, A, n); 0 at the last step."""
    for h in range(size.shape[0] - 1):
        next_values(model, h, size, work)
        for g in range(3):
            for a in range(Q.shape[2]):
                for i in range(size[h]):
                    Q[h, g, a, i] = work.Q[g, a, i]


def policy_table(
    model: DenseModel | CountModel,
    known: Known,
    state_of: IntArray,
    size: IntArray,
    work: Work,
    scales: Scales,
    lam: float,
    table: Array,
) -> None:
    """π^λ of the λ evaluated last at every state of a finite task, into `table` (H, S, A)."""


@overload(policy_table)
def _policy_table(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    return _policy_table_dense if model.instance_class is DenseModel else _policy_table_counts


def _policy_table_dense(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    feature_table(known, model.gram_inv, work.weights, scales, lam, table)


def _policy_table_counts(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    Q = np.zeros((size.shape[0], 3, work.pi.shape[0], work.pi.shape[1]))
    count_values(model, size, work, Q)
    count_table(known, state_of, size, work.bonus, Q, model.ridge, scales, lam, table)


@kernel
def act(phi, reward, utility, gram_inv, weights, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state: phi (A, d, 1), reward and utility (A, 1), gram_inv (d, d), weights (3, d) of its step."""
    A = phi.shape[0]
    bonus, Q = np.empty((A, 1)), np.empty((3, A, 1))
    feature_bonus(phi, gram_inv, 1, bonus)
    predict(phi, weights, 1, Q)
    return act_on(reward, utility, bonus, Q, scales, lam, steps_left)


@kernel
def act_on(reward, utility, bonus, Q, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state from its reward, utility, bonus (A, 1) and P̂V = Q (3, A, 1), which becomes Q."""
    A = reward.shape[0]
    pi, V, out = np.empty((A, 1)), np.empty((3, 1)), np.empty(A)
    softmax_step(reward, utility, bonus, 1, scales, lam, steps_left, Q, pi, V)
    for a in range(A):
        out[a] = pi[a, 0]
    return out
