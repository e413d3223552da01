"""One step of the backward recursion, compiled: values, bonuses and the composite softmax (see model_arrays.py).

With features eight states go side by side, with counts eight λ. The slow twin is tests/oracles.py.
"""

import numpy as np

from episafe.kernels.compilation import inlined_kernel, plain_kernel
from episafe.kernels.exp_log import exp, log
from episafe.kernels.lanes import LANES, fma, largest, load, root, smallest, spread, store, total, unless_below
from episafe.types import Array

NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0


@inlined_kernel
def action_values(told, betas, PV, limits, scales):  # type: ignore[no-untyped-def]
    """Q̄ʳ, Q̄†, Q̲ᵘ from (r, u), β (of the reward, and of the rest) and P̂V (Def. "Clipped value functions").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, (H−h−D)₊, H−h}

    D is `scales.most_lost`, infinite in the paper; −C_u is `scales.utility_bonus`; `limits` are `value_limits`. The
    paper counts h from 1 and the code from 0: its H−h is the number of steps left.
    """
    reward, utility = told
    beta_r, beta = betas
    r, dagger, u = PV
    ceiling_r, ceiling_u, floor_u = limits
    C_r, utility_bonus, C_dagger, B_dagger, _, _, _, _ = scales
    return (
        reward + smallest(largest(fma(C_r, beta_r, r), 0.0), ceiling_r),
        fma(B_dagger, beta, smallest(largest(fma(C_dagger, beta, dagger), 0.0), B_dagger * ceiling_u)),
        utility + smallest(largest(fma(utility_bonus, beta, u), floor_u), ceiling_u),
    )


@inlined_kernel
def value_limits(steps_left, A, scales):  # type: ignore[no-untyped-def]
    """(H−h)(1+κ ln A), H−h and (H−h−D)₊: what the values of the steps left can come to, and the utility's at least."""
    most = float(steps_left)
    return steps_left * (1.0 + scales.kappa * np.log(A)), most, max(most - scales.most_lost, 0.0)


@inlined_kernel
def weight(log_weight):  # type: ignore[no-untyped-def]
    """e^x of x ≤ 0, and 0 where that is negligible."""
    return unless_below(log_weight, NEGLIGIBLE, exp(log_weight))


@inlined_kernel
def enter_values(Q, a, i, values, lam, kappa):  # type: ignore[no-untyped-def]
    """Write Q̄ʳ, Q̄†, Q̲ᵘ of action a and its logit (Q̄† + Q̄ʳ + λQ̲ᵘ)/κ to `Q` (4, A, n) from i on; returns the logit."""
    r, dagger, u = values
    logit = fma(lam, u, dagger + r) * (1.0 / kappa)
    store(Q, (0, a, i), r)
    store(Q, (1, a, i), dagger)
    store(Q, (2, a, i), u)
    store(Q, (3, a, i), logit)
    return logit


@inlined_kernel
def softmax_values(Q, i, top, kappa):  # type: ignore[no-untyped-def]
    """V̄ʳ, V̄†, V̲ᵘ and 1/W from what `enter_values` left, `top` the largest logit (Def. "Composite softmax policy").

        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)     V̄ʳ = π(Q̄ʳ − κ ln π)     V̄† = π Q̄†     V̲ᵘ = π Q̲ᵘ

    With w = e^(logit − largest) and W = Σ_a w: π = w/W and −Σ π ln π = ln W − Σ w ln w / W. w replaces the logits.
    """
    W = w_ln_w = V_r = V_dagger = V_u = spread(0.0)
    for a in range(Q.shape[1]):
        log_weight = load(Q, (3, a, i)) - top
        w = weight(log_weight)
        store(Q, (3, a, i), w)
        W += w
        w_ln_w = fma(w, log_weight, w_ln_w)
        V_r = fma(w, load(Q, (0, a, i)), V_r)
        V_dagger = fma(w, load(Q, (1, a, i)), V_dagger)
        V_u = fma(w, load(Q, (2, a, i)), V_u)
    per_W = 1.0 / W
    return fma(V_r, per_W, kappa * (log(W) - w_ln_w * per_W)), V_dagger * per_W, V_u * per_W, per_W


@inlined_kernel
def softmax_step(h, n, steps_left, terms, scales, lam, room):  # type: ignore[no-untyped-def]
    """Composite softmax at n states of step h, eight at a time, by `action_values` and `softmax_values`.

    `terms` are reward, utility and bonus β, (H, A, n); `room` is Q (4, A, n), which holds P̂V on entry, Q and w on exit,
    norm (n,) for 1/W, and V (H, 3, n), of which row h is written. There is room for n up to a multiple of eight.
    """
    (reward, utility, bonus), (Q, norm, V) = terms, room
    A, kappa = Q.shape[1], scales.kappa
    limits = value_limits(steps_left, A, scales)
    for i in range(0, n, LANES):
        top = spread(-np.inf)
        for a in range(A):
            beta = load(bonus, (h, a, i))
            told = load(reward, (h, a, i)), load(utility, (h, a, i))
            PV = load(Q, (0, a, i)), load(Q, (1, a, i)), load(Q, (2, a, i))
            values = action_values(told, (beta, beta), PV, limits, scales)
            top = largest(top, enter_values(Q, a, i, values, lam, kappa))
        r, dagger, u, per_W = softmax_values(Q, i, top, kappa)
        store(norm, (i,), per_W)
        store(V, (h, 0, i), r)
        store(V, (h, 1, i), dagger)
        store(V, (h, 2, i), u)


@inlined_kernel
def clear(Q, n):  # type: ignore[no-untyped-def]
    """P̂V = 0 at n states, into `Q` (3, A, n): there is nothing after the last step."""
    for g in range(3):
        for a in range(Q.shape[1]):
            for i in range(0, n, LANES):
                store(Q, (g, a, i), 0.0)


@inlined_kernel
def regress(h, n, moments, gram_inv, V, projected, weights):  # type: ignore[no-untyped-def]
    """w_h = Λ_h⁻¹ Σ_j m_j V_{h+1}(s_j) of r, †, u, into row h of `weights` (H, 3, d).

    moments (H, d, n), 0 beyond the states seen, gram_inv (H, d, d), V (H+1, 3, n); `projected` (3, d) is room for
    Σ_j m_j V.
    """
    d = gram_inv.shape[1]
    for k in range(d):
        r = dagger = u = spread(0.0)
        for j in range(0, n, LANES):
            m_j = load(moments, (h, k, j))
            r = fma(m_j, load(V, (h + 1, 0, j)), r)
            dagger = fma(m_j, load(V, (h + 1, 1, j)), dagger)
            u = fma(m_j, load(V, (h + 1, 2, j)), u)
        projected[0, k], projected[1, k], projected[2, k] = total(r), total(dagger), total(u)
    for g in range(3):
        for k in range(d):
            w = 0.0
            for m in range(d):
                w = fma(gram_inv[h, k, m], projected[g, m], w)
            weights[h, g, k] = w


@inlined_kernel
def predict(h, n, p, phi, weights, Q):  # type: ignore[no-untyped-def]
    """φᵀw_h of r, †, u at n states: row p of phi (·, A, d, n), weights (H, 3, d), into `Q` (3, A, n)."""
    for a in range(phi.shape[1]):
        for i in range(0, n, LANES):
            r = dagger = u = spread(0.0)
            for k in range(phi.shape[2]):
                x = load(phi, (p, a, k, i))
                r = fma(weights[h, 0, k], x, r)
                dagger = fma(weights[h, 1, k], x, dagger)
                u = fma(weights[h, 2, k], x, u)
            store(Q, (0, a, i), r)
            store(Q, (1, a, i), dagger)
            store(Q, (2, a, i), u)


@inlined_kernel
def shaped(beta, sigma, scales):  # type: ignore[no-untyped-def]
    """The bonus in use, β(1 − spread + spread·σ) + curve·β²: the paper's β at curve = spread = 0."""
    return beta * (1.0 + scales.spread * (sigma - 1.0) + scales.curve * beta)


@plain_kernel
def visit_bonus(visits, ridge):  # type: ignore[no-untyped-def]
    """β = (n(s,a) + ρ)^{-1/2}: ‖φ‖_{Λ⁻¹} of one-hot features, for which Λ is diagonal."""
    return 1.0 / np.sqrt(visits + ridge)


def elliptical_bonus(phi: Array, gram_inv: Array) -> Array:
    """β = ‖φ‖_{Λ⁻¹} of features (n, d), one row each; gram_inv (d, d). Kernels have `bonus_of_square`."""
    squares = np.einsum("nk,km,nm->n", phi, gram_inv, phi)
    beta: Array = np.sqrt(np.maximum(squares, 0.0))
    return beta


@inlined_kernel
def bonus_of_square(square, scales):  # type: ignore[no-untyped-def]
    """The bonus of β = ‖φ‖_{Λ⁻¹} from φᵀΛ⁻¹φ. How far next values stray is not asked of features: σ = 1."""
    return shaped(root(largest(square, 0.0)), 1.0, scales)


@inlined_kernel
def feature_bonus(h, n, p, phi, gram_inv, scales, bonus):  # type: ignore[no-untyped-def]
    """The bonus of β = ‖φ‖_{Λ_h⁻¹} at n states, into row h of `bonus` (H, A, n): row p of phi (·, A, d, n), gram_inv
    (H, d, d).
    """
    for a in range(phi.shape[1]):
        for i in range(0, n, LANES):
            square = spread(0.0)
            for k in range(phi.shape[2]):
                x, half = load(phi, (p, a, k, i)), spread(0.0)
                for m in range(k):
                    half = fma(gram_inv[h, k, m], load(phi, (p, a, m, i)), half)
                square = fma(x, fma(gram_inv[h, k, k], x, 2.0 * half), square)
            store(bonus, (h, a, i), bonus_of_square(square, scales))


@inlined_kernel
def average(h, a, i, rows, V, floor_u):  # type: ignore[no-untyped-def]
    """P̂_hV of r, †, u at slot i and action a, from V (H+1, n, 3, 8) and the rows of P̂ (see `Work`), eight λ at once.

    The shares sum to n/(n + ρ), n the visits. What is missing counts for the utility as the least that it can be, f:
    it is Σ p (V̲ᵘ − f) + f.
    """
    start, column, share = rows
    r, dagger, u = spread(0.0), spread(0.0), spread(floor_u)
    for entry in range(start[h, a, i], start[h, a, i + 1]):
        p, j = share[h, entry], column[h, entry]
        r = fma(p, load(V, (h + 1, j, 0, 0)), r)
        dagger = fma(p, load(V, (h + 1, j, 1, 0)), dagger)
        u = fma(p, load(V, (h + 1, j, 2, 0)) - floor_u, u)
    return r, dagger, u


@inlined_kernel
def deviation(h, a, i, g, rows, V):  # type: ignore[no-untyped-def]
    """σ = √(P̂V² − (P̂V)²) of value g at slot i and action a: how far the next value strays; eight λ at once."""
    start, column, share = rows
    mean = square = spread(0.0)
    for entry in range(start[h, a, i], start[h, a, i + 1]):
        value = load(V, (h + 1, column[h, entry], g, 0))
        mean = fma(share[h, entry], value, mean)
        square = fma(share[h, entry] * value, value, square)
    return root(largest(square - mean * mean, 0.0))


@inlined_kernel
def bonuses(h, a, i, rows, V, bonus, scales):  # type: ignore[no-untyped-def]
    """The bonuses in use for r and for u at slot i and action a, eight λ at once: β (H, A, n), or as it is shaped."""
    beta_r = beta_u = spread(bonus[h, a, i])
    if scales.curve != 0.0 or scales.spread != 0.0:
        beta_r = shaped(beta_r, deviation(h, a, i, 0, rows, V), scales)
        beta_u = shaped(beta_u, deviation(h, a, i, 2, rows, V), scales)
    return beta_r, beta_u


@inlined_kernel
def count_step(h, n, rows, terms, scales, lams, Q, V):  # type: ignore[no-untyped-def]
    """`softmax_step` for counts: at n slots, one by one, with eight λ at once, `lams` (8,).

    Writes row h of V (H+1, n, 3, 8) from row h + 1. `Q` (4, A, 8) is room for Q and w; the rest is as there.
    """
    reward, utility, bonus = terms
    A, kappa, lam = Q.shape[1], scales.kappa, load(lams, (0,))
    limits = value_limits(V.shape[0] - 2 - h, A, scales)
    for i in range(n):
        top = spread(-np.inf)
        for a in range(A):
            PV, betas = average(h, a, i, rows, V, limits[2]), bonuses(h, a, i, rows, V, bonus, scales)
            values = action_values((reward[h, a, i], utility[h, a, i]), betas, PV, limits, scales)
            top = largest(top, enter_values(Q, a, 0, values, lam, kappa))
        r, dagger, u, _ = softmax_values(Q, 0, top, kappa)
        store(V, (h, i, 0, 0), r)
        store(V, (h, i, 1, 0), dagger)
        store(V, (h, i, 2, 0), u)
