"""The composite softmax policy at any state, from what a decision left behind (see model_arrays.py)."""

import numpy as np

from episafe.kernels.backward_pass import (
    average,
    bonus_of_square,
    bonuses,
    clear,
    feature_bonus,
    predict,
    shaped,
    softmax_step,
    value_limits,
    visit_bonus,
)
from episafe.kernels.compilation import by_model, inlined_kernel, kernel
from episafe.kernels.lanes import LANES, fma, lane, load, spread, store, total
from episafe.kernels.model_arrays import CountModel, DenseModel


@kernel
def feature_table(known, gram_inv, weights, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): gram_inv (H, d, d), weights (H, 3, d)."""
    H, A, n = known.reward.shape
    bonus, Q, norm = np.empty((H, A, n)), np.empty((4, A, n)), np.empty(n)
    terms, room = (known.reward, known.utility, bonus), (Q, norm, np.empty((H, 3, n)))
    for h in range(H):
        feature_bonus(h, n, 0, known.phi, gram_inv, scales, bonus)
        predict(h, n, 0, known.phi, weights, Q)
        softmax_step(h, n, H - 1 - h, terms, scales, lam, room)
        write_row(h, Q, norm, table)


@kernel
def write_row(h, Q, norm, table):  # type: ignore[no-untyped-def]
    """π_h = w/W from w, the last of Q (4, A, n), and 1/W (n,), into `table` (H, S, A)."""
    for s in range(table.shape[1]):
        for a in range(table.shape[2]):
            table[h, s, a] = Q[3, a, s] * norm[s]


@kernel
def unseen_bonus(ridge, scales):  # type: ignore[no-untyped-def]
    """The bonus of counts at n = 0: β = ρ^{-1/2}, and the next value is 0."""
    return shaped(visit_bonus(0.0, ridge), 0.0, scales)


@kernel
def count_table(known, slots, bonus, Q, unseen, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A).

    `slots` are state_of (H, n) and size (H,); at them bonus (H, A, n) and P̂V = Q (H, 3, A, n), elsewhere the bonus
    `unseen` and P̂V = 0.
    """
    (state_of, size), (H, A, n) = slots, known.reward.shape
    beta, PV, norm = np.empty((H, A, n)), np.empty((4, A, n)), np.empty(n)
    terms, room = (known.reward, known.utility, beta), (PV, norm, np.empty((H, 3, n)))
    for h in range(H):
        clear(PV, n)
        for a in range(A):
            for s in range(n):
                beta[h, a, s] = unseen
        for i in range(size[h]):
            s = state_of[h, i]
            for a in range(A):
                beta[h, a, s] = bonus[h, a, i]
                for g in range(3):
                    PV[g, a, s] = Q[h, g, a, i]
        softmax_step(h, n, H - 1 - h, terms, scales, lam, room)
        write_row(h, PV, norm, table)


@kernel
def count_values(size, work, scales, bonus, Q):  # type: ignore[no-untyped-def]
    """P̂V of the values in `work.V` at all slots of all steps, into `Q` (H, 3, A, n), and the bonus in use (H, A, n).

    The bonus is that of the utility; what that of the reward has more is in `Q`.
    """
    H, _, A, _ = Q.shape
    rows, V, chosen = work.rest, work.V, work.lane[0]
    for h in range(H):
        floor_u = value_limits(H - 1 - h, A, scales)[2]
        for a in range(A):
            for i in range(size[h]):
                r, dagger, u = average(h, a, i, rows, V, floor_u)
                beta_r, beta_u = bonuses(h, a, i, rows, V, work.bonus, scales)
                bonus[h, a, i] = lane(beta_u, chosen)
                Q[h, 0, a, i] = lane(fma(scales.C_r, beta_r - beta_u, r), chosen)
                Q[h, 1, a, i] = lane(dagger, chosen)
                Q[h, 2, a, i] = lane(u, chosen)


def _policy_table_dense(model, visited, work, scales, lam, table):  # type: ignore[no-untyped-def]
    feature_table(visited.known, model.gram_inv, work.rest[2], scales, lam, table)


def _policy_table_counts(model, visited, work, scales, lam, table):  # type: ignore[no-untyped-def]
    H, A, n = work.bonus.shape
    size, bonus, Q = visited.support.size, np.empty((H, A, n)), np.empty((H, 3, A, n))
    count_values(size, work, scales, bonus, Q)
    unseen = unseen_bonus(model.ridge, scales)
    count_table(visited.known, (visited.state_of, size), bonus, Q, unseen, scales, lam, table)


@by_model(kernel, {DenseModel: _policy_table_dense, CountModel: _policy_table_counts})
def policy_table(model, visited, work, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ of the λ evaluated last at every state of a finite task, into `table` (H, S, A)."""


@inlined_kernel
def add_squares(h, a, block, x, gram_inv, squares):  # type: ignore[no-untyped-def]
    """Add to `squares` (·, 8) what eight rows of Λ⁻¹, from `block` on, have in xᵀΛ⁻¹x of rows a to a+3 of x (·, d).

    gram_inv (H, d, d) is symmetric, so that Σ_k x_k·(2 Σ_m Λ⁻¹_km x_m) over the m before the block, and once over the
    block, is all. Four of its rows are read at a time, for four actions: sixteen sums stay in the machine.
    """
    for k in range(block, block + LANES, 4):
        p0 = p1 = p2 = p3 = q0 = q1 = q2 = q3 = r0 = r1 = r2 = r3 = s0 = s1 = s2 = s3 = spread(0.0)
        for m in range(0, block + LANES, LANES):
            if m == block:
                p0, p1, p2, p3 = 2.0 * p0, 2.0 * p1, 2.0 * p2, 2.0 * p3
                q0, q1, q2, q3 = 2.0 * q0, 2.0 * q1, 2.0 * q2, 2.0 * q3
                r0, r1, r2, r3 = 2.0 * r0, 2.0 * r1, 2.0 * r2, 2.0 * r3
                s0, s1, s2, s3 = 2.0 * s0, 2.0 * s1, 2.0 * s2, 2.0 * s3
            x0, x1, x2, x3 = load(x, (a, m)), load(x, (a + 1, m)), load(x, (a + 2, m)), load(x, (a + 3, m))
            row = load(gram_inv, (h, k, m))
            p0, p1, p2, p3 = fma(row, x0, p0), fma(row, x1, p1), fma(row, x2, p2), fma(row, x3, p3)
            row = load(gram_inv, (h, k + 1, m))
            q0, q1, q2, q3 = fma(row, x0, q0), fma(row, x1, q1), fma(row, x2, q2), fma(row, x3, q3)
            row = load(gram_inv, (h, k + 2, m))
            r0, r1, r2, r3 = fma(row, x0, r0), fma(row, x1, r1), fma(row, x2, r2), fma(row, x3, r3)
            row = load(gram_inv, (h, k + 3, m))
            s0, s1, s2, s3 = fma(row, x0, s0), fma(row, x1, s1), fma(row, x2, s2), fma(row, x3, s3)
        p, q, r, s = (p0, p1, p2, p3), (q0, q1, q2, q3), (r0, r1, r2, r3), (s0, s1, s2, s3)
        for b in range(4):
            far = fma(x[a + b, k + 3], s[b], load(squares, (a + b, 0)))
            far = fma(x[a + b, k + 1], q[b], fma(x[a + b, k + 2], r[b], far))
            store(squares, (a + b, 0), fma(x[a + b, k], p[b], far))


@kernel
def act(h, phi, reward, utility, gram_inv, weights, scales, lam):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state: phi (A, d), reward and utility (A,).

    gram_inv (H, d, d) and weights (H, 3, d) have room for d up to a multiple of eight, filled with 0.
    """
    A, d = phi.shape
    x, squares, bonus, Q = np.zeros((A + 3, weights.shape[2])), np.zeros((A + 3, LANES)), np.empty(A), np.empty((3, A))
    for a in range(A):
        for k in range(d):
            x[a, k] = phi[a, k]
    for block in range(0, d, LANES):
        for a in range(0, A, 4):
            add_squares(h, a, block, x, gram_inv, squares)
    for a in range(A):
        bonus[a] = bonus_of_square(total(load(squares, (a, 0))), scales)
        for g in range(3):
            PV = spread(0.0)
            for k in range(0, d, LANES):
                PV = fma(load(weights, (h, g, k)), load(x, (a, k)), PV)
            Q[g, a] = total(PV)
    return act_on(reward, utility, bonus, Q, scales, lam, gram_inv.shape[0] - 1 - h)


@kernel
def act_on(reward, utility, bonus, Q, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state from its reward, utility, bonus (A,) and P̂V = Q (3, A)."""
    A, shape = reward.shape[0], (1, reward.shape[0], LANES)
    r, u, beta, PV = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros((4, A, LANES))
    norm, out = np.empty(LANES), np.empty(A)
    for a in range(A):
        r[0, a, 0], u[0, a, 0], beta[0, a, 0] = reward[a], utility[a], bonus[a]
        for g in range(3):
            PV[g, a, 0] = Q[g, a]
    softmax_step(0, 1, steps_left, (r, u, beta), scales, lam, (PV, norm, np.empty((1, 3, LANES))))
    for a in range(A):
        out[a] = PV[3, a, 0] * norm[0]
    return out
