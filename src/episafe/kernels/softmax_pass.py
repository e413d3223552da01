"""One step of the backward recursion of Algorithm 2, compiled: values, bonuses and the composite softmax.

With features eight states are computed side by side, with counts eight λ. The readable version is algorithms/opse.py.
"""

import numpy as np

from episafe.kernels.compilation import inlined_kernel
from episafe.kernels.exp_log import exp, log
from episafe.kernels.lanes import LANES, fma, lane, largest, load, root, smallest, spread, store, total, unless_below
from episafe.kernels.softmax_arrays import ENTROPY, RELEASED_ENTROPY

LEAST = 1e-300  # a probability below it counts as 0
NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0


@inlined_kernel
def value_limits(steps_left, scales):  # type: ignore[no-untyped-def]
    """Return (H−h)(1+κ ln A), H−h and (H−h−D)₊: what the values of the steps left can reach, and the least utility."""
    left = steps_left + scales.extra_steps
    return left * scales.most_reward, left, max(left - scales.most_lost, 0.0)


@inlined_kernel
def action_values(told, betas, PV, limits, scales):  # type: ignore[no-untyped-def]
    """Return Q̄ʳ, Q̄†, Q̲ᵘ from (r, u), β (of each) and P̂V (Def. "Clipped value functions").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, (H−h−D)₊, H−h}

    D is `scales.most_lost`, infinite in the paper; `scales.C_u` has the sign. The paper counts h from 1.
    """
    (reward, utility), (beta_r, beta, beta_u), (r, dagger, u), (most_r, most, _) = told, betas, PV, limits
    return (
        reward + smallest(largest(fma(scales.C_r, beta_r, r), 0.0), most_r),
        fma(scales.B_dagger, beta, smallest(largest(fma(scales.C_dagger, beta, dagger), 0.0), scales.B_dagger * most)),
        utility_value(utility, beta_u, u, limits, scales),
    )


@inlined_kernel
def utility_value(utility, beta, u, limits, scales):  # type: ignore[no-untyped-def]
    """Return Q̲ᵘ of one limit."""
    return utility + smallest(largest(fma(scales.C_u, beta, u), limits[2]), limits[1])


@inlined_kernel
def softmax_values(Q, i, top, scales):  # type: ignore[no-untyped-def]
    """Return V̄ʳ, V̄†, V̲ᵘ and 1/W from Q (G+1, A, n) at i, whose last row has the logits, `top` the largest of them.

        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)     V̄ʳ = π(Q̄ʳ − κ ln π)     V̄† = π Q̄†     V̲ᵘ = π Q̲ᵘ

    With w = e^(logit − top) and W = Σ_a w: π = w/W and −Σ π ln π = ln W − Σ w ln w / W. w replaces the logits.
    """
    last = Q.shape[0] - 1
    W = w_ln_w = V_r = V_dagger = V_u = spread(0.0)
    for a in range(Q.shape[1]):
        log_weight = load(Q, (last, a, i)) - top
        w = unless_below(log_weight, NEGLIGIBLE, exp(log_weight))
        store(Q, (last, a, i), w)
        W += w
        w_ln_w = fma(w, log_weight, w_ln_w)
        V_r = fma(w, load(Q, (0, a, i)), V_r)
        V_dagger = fma(w, load(Q, (1, a, i)), V_dagger)
        V_u = fma(w, load(Q, (2, a, i)), V_u)
    per_W = 1.0 / W
    entropy = log(W) - w_ln_w * per_W
    if scales.entropy != ENTROPY:
        entropy = other_entropy(Q, i, per_W, scales)
    return fma(V_r, per_W, scales.kappa * entropy), V_dagger * per_W, V_u * per_W, per_W


@inlined_kernel
def other_entropy(Q, i, per_W, scales):  # type: ignore[no-untyped-def]
    """Return −Σ π² ln π from the w in the last row of Q, as in the released code; 0 without entropy."""
    entropy = spread(0.0)
    for a in range(Q.shape[1] if scales.entropy == RELEASED_ENTROPY else 0):
        pi = load(Q, (Q.shape[0] - 1, a, i)) * per_W
        entropy = entropy - unless_below(pi, LEAST, pi * pi * log(largest(pi, LEAST)))
    return entropy


@inlined_kernel
def further_mean(Q, g, i, per_W):  # type: ignore[no-untyped-def]
    """Return Σ_a π Q_g from the w that `softmax_values` left."""
    V, last = spread(0.0), Q.shape[0] - 1
    for a in range(Q.shape[1]):
        V = fma(load(Q, (last, a, i)), load(Q, (g, a, i)), V)
    return V * per_W


# features


@inlined_kernel
def softmax_step(h, n, terms, scales, lams, scratch, further):  # type: ignore[no-untyped-def]
    """Evaluate the composite softmax at n states of step h, eight at a time.

    `terms` are reward (R', A, n), utility (m, R', A, n) and β (R, A, n); `lams` (m, 1). `scratch`: Q (G+1, A, n), which
    holds P̂V on entry, Q and w on exit; norm (n,) for 1/W; and V (H+1, G, n), of which row h is written.
    """
    (reward, utility, bonus), (Q, norm, V) = terms, scratch
    A, m, per_kappa, s, p = Q.shape[1], 1 + len(further), 1.0 / scales.kappa, row(h, reward), row(h, bonus)
    limits = value_limits(float(V.shape[0] - 2 - h), scales)
    for i in range(0, n, LANES):
        top = spread(-np.inf)
        for a in range(A):
            beta = load(bonus, (p, a, i))
            told = load(reward, (s, a, i)), load(utility, (0, s, a, i))
            PV = load(Q, (0, a, i)), load(Q, (1, a, i)), load(Q, (2, a, i))
            r, dagger, u = action_values(told, (beta, beta, beta), PV, limits, scales)
            store(Q, (0, a, i), r)
            store(Q, (1, a, i), dagger)
            store(Q, (2, a, i), u)
            score = fma(lams[0, 0], u, dagger + r)
            for c in range(1, m):
                u = utility_value(load(utility, (c, s, a, i)), beta, load(Q, (2 + c, a, i)), limits, scales)
                store(Q, (2 + c, a, i), u)
                score = fma(lams[c, 0], u, score)
            logit = score * per_kappa
            store(Q, (2 + m, a, i), logit)
            top = largest(top, logit)
        r, dagger, u, per_W = softmax_values(Q, i, top, scales)
        store(norm, (i,), per_W)
        store(V, (h, 0, i), r)
        store(V, (h, 1, i), dagger)
        store(V, (h, 2, i), u)
        for c in range(1, m):
            store(V, (h, 2 + c, i), further_mean(Q, 2 + c, i, per_W))


@inlined_kernel
def row(h, array):  # type: ignore[no-untyped-def]
    """Return the row of step h: 0 where steps share their data."""
    return min(h, array.shape[0] - 1)


@inlined_kernel
def clear(Q, n):  # type: ignore[no-untyped-def]
    """Set P̂V = 0 at n states: there is nothing after the last step."""
    for g in range(Q.shape[0] - 1):
        for a in range(Q.shape[1]):
            for i in range(0, n, LANES):
                store(Q, (g, a, i), 0.0)


@inlined_kernel
def regress(h, n, moments, gram_inv, V, projected, weights, further):  # type: ignore[no-untyped-def]
    """Compute w_h = Λ_h⁻¹ Σ_j m_j V_{h+1}(s_j) of all values, into row h of `weights` (H, G, d)."""
    p = row(h, gram_inv)
    for k in range(gram_inv.shape[1]):
        r = dagger = u = spread(0.0)
        for j in range(0, n, LANES):
            m_j = load(moments, (p, k, j))
            r = fma(m_j, load(V, (h + 1, 0, j)), r)
            dagger = fma(m_j, load(V, (h + 1, 1, j)), dagger)
            u = fma(m_j, load(V, (h + 1, 2, j)), u)
        projected[0, k], projected[1, k], projected[2, k] = total(r), total(dagger), total(u)
        for g in range(3, 3 + len(further)):
            u = spread(0.0)
            for j in range(0, n, LANES):
                u = fma(load(moments, (p, k, j)), load(V, (h + 1, g, j)), u)
            projected[g, k] = total(u)
    solve(h, gram_inv, projected, weights)


@inlined_kernel
def solve(h, gram_inv, projected, weights):  # type: ignore[no-untyped-def]
    """Compute w_h = Λ_h⁻¹ x of each row x of `projected` (G, d)."""
    p, d = row(h, gram_inv), gram_inv.shape[1]
    for g in range(projected.shape[0]):
        for k in range(d):
            w = 0.0
            for m in range(d):
                w = fma(gram_inv[p, k, m], projected[g, m], w)
            weights[h, g, k] = w


@inlined_kernel
def predict(h, n, phi, weights, Q, further):  # type: ignore[no-untyped-def]
    """Compute φᵀw_h of all values at n states, into `Q`."""
    p = row(h, phi)
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
            for g in range(3, 3 + len(further)):
                u = spread(0.0)
                for k in range(phi.shape[2]):
                    u = fma(weights[h, g, k], load(phi, (p, a, k, i)), u)
                store(Q, (g, a, i), u)


@inlined_kernel
def shaped(beta, sigma, scales):  # type: ignore[no-untyped-def]
    """Return the bonus in use, β(1 − spread + spread·σ) + curve·β²: the paper's β at curve = spread = 0."""
    return beta * (1.0 + scales.spread * (sigma - 1.0) + scales.curve * beta)


@inlined_kernel
def feature_bonus(p, begin, end, phi, gram_inv, scales, bonus):  # type: ignore[no-untyped-def]
    """Compute the bonus of β = ‖φ‖_{Λ⁻¹} at slots begin..end, eight at a time; σ = 1 with features."""
    for a in range(phi.shape[1]):
        for i in range(begin, end, LANES):
            square = spread(0.0)
            for k in range(phi.shape[2]):
                x, half = load(phi, (p, a, k, i)), spread(0.0)
                for m in range(k):
                    half = fma(gram_inv[p, k, m], load(phi, (p, a, m, i)), half)
                square = fma(x, fma(gram_inv[p, k, k], x, 2.0 * half), square)
            store(bonus, (p, a, i), shaped(root(largest(square, 0.0)), 1.0, scales))


# counts


@inlined_kernel
def average(at, rows, V, floor):  # type: ignore[no-untyped-def]
    """Return P̂_hV of r, †, u at (h, p, a, i), for eight λ: V (H+1, n, G, 8) and the rows of P̂ (see `Work`).

    The shares sum to n/(n + ρ), n the visits. What is missing counts for the utility as its least value f: the result
    is Σ p (V̲ᵘ − f) + f.
    """
    (h, p, a, i), (start, column, share) = at, rows
    r, dagger, u = spread(0.0), spread(0.0), spread(floor)
    for entry in range(start[p, a, i], start[p, a, i + 1]):
        x, j = share[p, entry], column[p, entry]
        r = fma(x, load(V, (h + 1, j, 0, 0)), r)
        dagger = fma(x, load(V, (h + 1, j, 1, 0)), dagger)
        u = fma(x, load(V, (h + 1, j, 2, 0)) - floor, u)
    return r, dagger, u


@inlined_kernel
def further_average(at, g, rows, V, floor):  # type: ignore[no-untyped-def]
    """Return the same of value g."""
    (h, p, a, i), (start, column, share) = at, rows
    u = spread(floor)
    for entry in range(start[p, a, i], start[p, a, i + 1]):
        u = fma(share[p, entry], load(V, (h + 1, column[p, entry], g, 0)) - floor, u)
    return u


@inlined_kernel
def stray_bonus(at, g, rows, V, beta, scales):  # type: ignore[no-untyped-def]
    """Return β shaped by σ = √(P̂V² − (P̂V)²) of value g, eight λ at once."""
    (h, p, a, i), (start, column, share) = at, rows
    mean = square = spread(0.0)
    for entry in range(start[p, a, i], start[p, a, i + 1]):
        value = load(V, (h + 1, column[p, entry], g, 0))
        mean = fma(share[p, entry], value, mean)
        square = fma(share[p, entry] * value, value, square)
    return shaped(spread(beta), root(largest(square - mean * mean, 0.0)), scales)


@inlined_kernel
def count_step(h, n, rows, terms, scales, lams, scratch, ridge, state_of, table, further):  # type: ignore[no-untyped-def]
    """Evaluate the composite softmax at n slots of step h, one by one, for eight λ: `lams` (m, 8).

    `scratch`: Q (G+1, A, 8) and V (H+1, n, G, 8), of which row h is written from row h + 1. π of the first λ is written
    to `table` (H, S, A), unless that is empty.
    """
    (reward, utility, bonus), (Q, V) = terms, scratch
    A, m, per_kappa, s, p = Q.shape[1], 1 + len(further), 1.0 / scales.kappa, row(h, reward), row(h, bonus)
    limits, lam = value_limits(float(V.shape[0] - 2 - h), scales), load(lams, (0, 0))
    is_last, writes, shapes = h == V.shape[0] - 2, table.shape[0] > 0, scales.curve != 0.0 or scales.spread != 0.0
    for i in range(n):
        top = spread(-np.inf)
        for a in range(A):
            at, beta = (h, p, a, i), bonus[p, a, i]
            r, dagger, u = spread(0.0), spread(0.0), spread(limits[2])
            if is_last:  # P̂ of the constant V̄ʳ_{H+1}: n/(n + ρ) = 1 − ρβ²
                r = spread(scales.value_after * (1.0 - ridge * beta * beta))
            else:
                r, dagger, u = average(at, rows, V, limits[2])
            beta_r = beta_u = beta_dagger = spread(beta)
            if shapes:
                beta_r, beta_u = stray_bonus(at, 0, rows, V, beta, scales), stray_bonus(at, 2, rows, V, beta, scales)
                beta_dagger = beta_u
                for c in range(1, m):  # the compensation has the largest bonus of all utilities
                    beta_dagger = largest(beta_dagger, stray_bonus(at, 2 + c, rows, V, beta, scales))
            told, betas = (reward[s, a, i], utility[0, s, a, i]), (beta_r, beta_dagger, beta_u)
            r, dagger, u = action_values(told, betas, (r, dagger, u), limits, scales)
            store(Q, (0, a, 0), r)
            store(Q, (1, a, 0), dagger)
            store(Q, (2, a, 0), u)
            score = fma(lam, u, dagger + r)
            for c in range(1, m):
                beta_c = stray_bonus(at, 2 + c, rows, V, beta, scales) if shapes else spread(beta)
                ahead = further_average(at, 2 + c, rows, V, limits[2])
                u = utility_value(utility[c, s, a, i], beta_c, ahead, limits, scales)
                store(Q, (2 + c, a, 0), u)
                score = fma(load(lams, (c, 0)), u, score)
            logit = score * per_kappa
            store(Q, (2 + m, a, 0), logit)
            top = largest(top, logit)
        r, dagger, u, per_W = softmax_values(Q, 0, top, scales)
        store(V, (h, i, 0, 0), r)
        store(V, (h, i, 1, 0), dagger)
        store(V, (h, i, 2, 0), u)
        for c in range(1, m):
            store(V, (h, i, 2 + c, 0), further_mean(Q, 2 + c, 0, per_W))
        if writes:
            for a in range(A):
                table[h, state_of[p, i], a] = Q[2 + m, a, 0] * lane(per_W, 0)
