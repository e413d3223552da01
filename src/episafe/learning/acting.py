"""The composite softmax policy at any state, compiled, from what a decision left behind (see model.py)."""

import numpy as np
from numba.extending import overload

from episafe.arrays import Array, IntArray
from episafe.compiling import kernel, summing_kernel
from episafe.learning.kernels import average, clear, feature_bonus, is_plain, predict, shaped, softmax_step
from episafe.learning.model import CountModel, DenseModel, Known, Scales, Work


@kernel
def feature_table(known, gram_inv, weights, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): gram_inv (H, d, d), weights (H, 3, d)."""
    H, A, S = known.reward.shape
    bonus, Q, pi, sums, V = (
        np.empty((H, A, S)),
        np.empty((3, A, S)),
        np.empty((A, S)),
        np.empty((3, S)),
        np.empty((H, 3, S)),
    )
    for h in range(H):
        feature_bonus(h, S, 0, known.phi, gram_inv, scales, bonus)
        predict(h, S, 0, known.phi, weights, Q)
        softmax_step(h, S, H - 1 - h, known.reward, known.utility, bonus, scales, lam, Q, pi, sums, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s] * sums[1, s]


@kernel
def unseen_bonus(ridge, scales):  # type: ignore[no-untyped-def]
    """The bonus of counts at n = 0: β = ρ^{-1/2}, and the next value is 0."""
    return shaped(1.0 / np.sqrt(ridge), 0.0, scales)


@kernel
def count_table(known, state_of, size, bonus, Q, ridge, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): bonus (H, A, n), P̂V = Q (H, 3, A, n) at slots."""
    H, A, S = known.reward.shape
    bonus_all, Q_all, pi, sums, V = (
        np.empty((H, A, S)),
        np.empty((3, A, S)),
        np.empty((A, S)),
        np.empty((3, S)),
        np.empty((H, 3, S)),
    )
    for h in range(H):
        clear(Q_all, S)
        for a in range(A):
            for s in range(S):
                bonus_all[h, a, s] = unseen_bonus(ridge, scales)
        for i in range(size[h]):
            s = state_of[h, i]
            for a in range(A):
                bonus_all[h, a, s] = bonus[h, a, i]
                for g in range(3):
                    Q_all[g, a, s] = Q[h, g, a, i]
        softmax_step(h, S, H - 1 - h, known.reward, known.utility, bonus_all, scales, lam, Q_all, pi, sums, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s] * sums[1, s]


@kernel
def count_values(model, size, work, scales, bonus, Q):  # type: ignore[no-untyped-def]
    """P̂V of the values in `work.V` at all slots of all steps, into `Q` (H, 3, A, n), and the bonus in use (H, A, n).

    The bonus is that of the utility, as the last evaluation left it; what that of the reward has more is in `Q`.
    """
    H, _, A, _ = Q.shape
    bonus_r, bonus_u = (work.bonus, work.bonus) if is_plain(scales) else (work.shaped[0], work.shaped[1])
    for h in range(H):
        if h < H - 1:
            average(h, size[h], work.start, work.column, work.share, work.V, work.Q)
        else:
            clear(work.Q, size[h])
        for a in range(A):
            for i in range(size[h]):
                bonus[h, a, i] = bonus_u[h, a, i]
                Q[h, 0, a, i] = work.Q[0, a, i] + scales.C_r * (bonus_r[h, a, i] - bonus_u[h, a, i])
                Q[h, 1, a, i] = work.Q[1, a, i]
                Q[h, 2, a, i] = work.Q[2, a, i]


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
    bonus = np.zeros(work.bonus.shape)
    count_values(model, size, work, scales, bonus, Q)
    count_table(known, state_of, size, bonus, Q, model.ridge, scales, lam, table)


@summing_kernel
def act(h, phi, reward, utility, gram_inv, weights, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state: phi (A, d), reward and utility (1, A, 1), gram_inv (H, d, d), weights (H, 3, d).

    Each row of the symmetric Λ⁻¹ is read once, up to its diagonal, for all actions: at large d the reading is the cost.
    """
    A, d = phi.shape
    bonus, Q = np.zeros((1, A, 1)), np.zeros((3, A, 1))
    for k in range(d):
        for a in range(A):
            half = 0.5 * gram_inv[h, k, k] * phi[a, k]
            for m in range(k):
                half += gram_inv[h, k, m] * phi[a, m]
            bonus[0, a, 0] += 2.0 * half * phi[a, k]
    for a in range(A):
        bonus[0, a, 0] = shaped(np.sqrt(max(bonus[0, a, 0], 0.0)), 1.0, scales)
        for g in range(3):
            for k in range(d):
                Q[g, a, 0] += weights[h, g, k] * phi[a, k]
    return act_on(reward, utility, bonus, Q, scales, lam, steps_left)


@kernel
def act_on(reward, utility, bonus, Q, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state from its reward, utility, bonus (1, A, 1) and P̂V = Q (3, A, 1), which becomes Q."""
    A = reward.shape[1]
    pi, sums, V, out = np.empty((A, 1)), np.empty((3, 1)), np.empty((1, 3, 1)), np.empty(A)
    softmax_step(0, 1, steps_left, reward, utility, bonus, scales, lam, Q, pi, sums, V)
    for a in range(A):
        out[a] = pi[a, 0] * sums[1, 0]
    return out
