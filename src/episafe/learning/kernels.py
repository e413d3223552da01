"""Algorithm 2, compiled: plain arrays in, plain arrays out (see model.py). The slow twin is tests/oracles.py."""

import numpy as np
from numba.extending import overload

from episafe.arrays import IntArray
from episafe.compiling import inlined_kernel, lean_kernel
from episafe.learning.elementary import exp, log
from episafe.learning.lanes import LANES, fma, largest, load, root, smallest, spread, store, total, unless_below
from episafe.learning.model import CountModel, DenseModel, Scales, Support, Work

NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0
SAFE, ZERO, SEARCH = 0, 1, 2  # where a decision comes from
ABOVE, BELOW, TOP, BOTTOM, HALVE, LAST = range(6)  # stages of the search


@lean_kernel
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@inlined_kernel
def action_values(reward, utility, beta_r, beta, r, dagger, u, ceiling_r, ceiling_u, scales):  # type: ignore[no-untyped-def]
    """Q̄ʳ, Q̄†, Q̲ᵘ from r, u, β (of the reward, and of the rest) and P̂V (Def. "Clipped value functions").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h}

    The paper counts h from 1 and the code from 0: its H−h is the number of steps left, `ceiling_u`.
    """
    C_r, C_u, C_dagger, B_dagger, _, _, _ = scales
    return (
        reward + smallest(largest(fma(C_r, beta_r, r), 0.0), ceiling_r),
        fma(B_dagger, beta, smallest(largest(fma(C_dagger, beta, dagger), 0.0), B_dagger * ceiling_u)),
        utility + smallest(largest(fma(C_u, beta, u), 0.0), ceiling_u),
    )


@inlined_kernel
def ceilings(steps_left, A, scales):  # type: ignore[no-untyped-def]
    """(H−h)(1+κ ln A) and H−h: what the values of the steps left can come to."""
    return steps_left * (1.0 + scales.kappa * np.log(A)), float(steps_left)


@inlined_kernel
def weight(log_weight):  # type: ignore[no-untyped-def]
    """e^x of x ≤ 0, and 0 where that is negligible."""
    return unless_below(log_weight, NEGLIGIBLE, exp(log_weight))


@lean_kernel
def softmax_step(h, n, steps_left, reward, utility, bonus, scales, lam, Q, pi, share, V):  # type: ignore[no-untyped-def]
    """Composite softmax at n states of step h, eight at a time (Def. "Composite softmax policy").

        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)     V̄ʳ = π(Q̄ʳ − κ ln π)     V̄† = π Q̄†     V̲ᵘ = π Q̲ᵘ

    reward, utility, bonus (H, A, n); `Q` (3, A, n) holds P̂V on entry and Q on exit, and row h of `V` (H, 3, n) is
    written. With w = e^(logit − largest) and W = Σ_a w: π = w/W and −Σ π ln π = ln W − Σ w ln w / W. w is left in `pi`
    (A, n) and 1/W in `share` (n,). There is room for n up to a multiple of eight.
    """
    A, kappa = pi.shape[0], scales.kappa
    ceiling_r, ceiling_u = ceilings(steps_left, A, scales)
    for i in range(0, n, LANES):
        top = spread(-np.inf)
        for a in range(A):
            beta = load(bonus, (h, a, i))
            r, dagger, u = action_values(
                load(reward, (h, a, i)), load(utility, (h, a, i)), beta, beta,
                load(Q, (0, a, i)), load(Q, (1, a, i)), load(Q, (2, a, i)), ceiling_r, ceiling_u, scales,
            )  # fmt: skip
            logit = fma(lam, u, dagger + r) * (1.0 / kappa)
            store(Q, (0, a, i), r)
            store(Q, (1, a, i), dagger)
            store(Q, (2, a, i), u)
            store(pi, (a, i), logit)
            top = largest(top, logit)
        W = w_ln_w = V_r = V_dagger = V_u = spread(0.0)
        for a in range(A):
            log_weight = load(pi, (a, i)) - top
            w = weight(log_weight)
            store(pi, (a, i), w)
            W += w
            w_ln_w = fma(w, log_weight, w_ln_w)
            V_r = fma(w, load(Q, (0, a, i)), V_r)
            V_dagger = fma(w, load(Q, (1, a, i)), V_dagger)
            V_u = fma(w, load(Q, (2, a, i)), V_u)
        per_W = 1.0 / W
        store(share, (i,), per_W)
        store(V, (h, 0, i), fma(V_r, per_W, kappa * (log(W) - w_ln_w * per_W)))
        store(V, (h, 1, i), V_dagger * per_W)
        store(V, (h, 2, i), V_u * per_W)


@lean_kernel
def clear(Q, n):  # type: ignore[no-untyped-def]
    """P̂V = 0 at n states, into `Q` (3, A, n): there is nothing after the last step."""
    for g in range(3):
        for a in range(Q.shape[1]):
            for i in range(0, n, LANES):
                store(Q, (g, a, i), 0.0)


@lean_kernel
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
            weights[h, g, k] = 0.0
            for m in range(d):
                weights[h, g, k] = fma(gram_inv[h, k, m], projected[g, m], weights[h, g, k])


@lean_kernel
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


@lean_kernel
def feature_bonus(h, n, p, phi, gram_inv, scales, bonus):  # type: ignore[no-untyped-def]
    """The bonus of β = ‖φ‖_{Λ_h⁻¹} at n states, into row h of `bonus` (H, A, n): row p of phi (·, A, d, n), gram_inv
    (H, d, d). How far next values stray is not asked of features: σ = 1.
    """
    for a in range(phi.shape[1]):
        for i in range(0, n, LANES):
            square = spread(0.0)
            for k in range(phi.shape[2]):
                x, half = load(phi, (p, a, k, i)), spread(0.0)
                for m in range(k):
                    half = fma(gram_inv[h, k, m], load(phi, (p, a, m, i)), half)
                square = fma(x, fma(gram_inv[h, k, k], x, 2.0 * half), square)
            store(bonus, (h, a, i), shaped(root(largest(square, 0.0)), 1.0, scales))


@inlined_kernel
def average(h, a, i, start, column, share, V):  # type: ignore[no-untyped-def]
    """P̂_hV of r, †, u at slot i and action a, from P̂ row by row (see Work) and V (H+1, n, 3, 8), eight λ at once."""
    r = dagger = u = spread(0.0)
    for entry in range(start[h, a, i], start[h, a, i + 1]):
        p, j = share[h, entry], column[h, entry]
        r = fma(p, load(V, (h + 1, j, 0, 0)), r)
        dagger = fma(p, load(V, (h + 1, j, 1, 0)), dagger)
        u = fma(p, load(V, (h + 1, j, 2, 0)), u)
    return r, dagger, u


@lean_kernel
def deviation(h, a, i, g, start, column, share, V):  # type: ignore[no-untyped-def]
    """σ = √(P̂V² − (P̂V)²) of value g at slot i and action a: how far the next value strays; eight λ at once."""
    mean = square = spread(0.0)
    for entry in range(start[h, a, i], start[h, a, i + 1]):
        value = load(V, (h + 1, column[h, entry], g, 0))
        mean = fma(share[h, entry], value, mean)
        square = fma(share[h, entry] * value, value, square)
    return root(largest(square - mean * mean, 0.0))


@inlined_kernel
def bonuses(h, a, i, start, column, share, V, bonus, scales):  # type: ignore[no-untyped-def]
    """The bonuses in use for r and for u at slot i and action a, eight λ at once: β (H, A, n), or as it is shaped."""
    beta_r = beta_u = spread(bonus[h, a, i])
    if scales.curve != 0.0 or scales.spread != 0.0:
        beta_r = shaped(beta_r, deviation(h, a, i, 0, start, column, share, V), scales)
        beta_u = shaped(beta_u, deviation(h, a, i, 2, start, column, share, V), scales)
    return beta_r, beta_u


@lean_kernel
def count_step(h, n, steps_left, start, column, share, reward, utility, bonus, scales, lams, Q, V):  # type: ignore[no-untyped-def]
    """`softmax_step` for counts: at n slots, one by one, with eight λ at once, `lams` (8,).

    Writes row h of V (H+1, n, 3, 8) from row h + 1. `Q` (4, A, 8) is room for Q and logits; the rest is as there.
    """
    A, kappa, lam = Q.shape[1], scales.kappa, load(lams, (0,))
    ceiling_r, ceiling_u = ceilings(steps_left, A, scales)
    for i in range(n):
        top = spread(-np.inf)
        for a in range(A):
            r, dagger, u = average(h, a, i, start, column, share, V)
            beta_r, beta_u = bonuses(h, a, i, start, column, share, V, bonus, scales)
            r, dagger, u = action_values(
                reward[h, a, i], utility[h, a, i], beta_r, beta_u, r, dagger, u, ceiling_r, ceiling_u, scales
            )
            logit = fma(lam, u, dagger + r) * (1.0 / kappa)
            store(Q, (0, a, 0), r)
            store(Q, (1, a, 0), dagger)
            store(Q, (2, a, 0), u)
            store(Q, (3, a, 0), logit)
            top = largest(top, logit)
        W = w_ln_w = V_r = V_dagger = V_u = spread(0.0)
        for a in range(A):
            log_weight = load(Q, (3, a, 0)) - top
            w = weight(log_weight)
            W += w
            w_ln_w = fma(w, log_weight, w_ln_w)
            V_r = fma(w, load(Q, (0, a, 0)), V_r)
            V_dagger = fma(w, load(Q, (1, a, 0)), V_dagger)
            V_u = fma(w, load(Q, (2, a, 0)), V_u)
        per_W = 1.0 / W
        store(V, (h, i, 0, 0), fma(V_r, per_W, kappa * (log(W) - w_ln_w * per_W)))
        store(V, (h, i, 1, 0), V_dagger * per_W)
        store(V, (h, i, 2, 0), V_u * per_W)


def refresh(model: DenseModel | CountModel, size: IntArray, work: Work, scales: Scales) -> None:
    """Compute what the evaluations of one plan share: the bonuses and, for counts, P̂ row by row."""


@overload(refresh)
def _refresh(model, size, work, scales):  # type: ignore[no-untyped-def]
    return _refresh_dense if model.instance_class is DenseModel else _refresh_counts


def _refresh_dense(model, size, work, scales):  # type: ignore[no-untyped-def]
    for h in range(size.shape[0]):
        feature_bonus(h, size[h], h, model.phi, model.gram_inv, scales, work.bonus)


def _refresh_counts(model, size, work, scales):  # type: ignore[no-untyped-def]
    H, A, _ = model.visits.shape
    for h in range(H):
        entry = 0
        for a in range(A):
            for i in range(size[h]):
                work.start[h, a, i] = entry
                work.bonus[h, a, i] = 1.0 / np.sqrt(model.visits[h, a, i] + model.ridge)
                t = model.first[h, a, i]
                while t >= 0:
                    work.column[h, entry] = model.target[h, t]
                    work.share[h, entry] = model.times[h, t] / (model.visits[h, a, i] + model.ridge)
                    entry += 1
                    t = model.following[h, t]
            work.start[h, a, size[h]] = entry


def evaluate(model: DenseModel | CountModel, support: Support, work: Work, scales: Scales) -> None:
    """V̲ᵘ(s₁) of π^λ for each λ of `work.lams`, into `work.bounds`; the values at all slots are left in `work.V`."""


@overload(evaluate)
def _evaluate(model, support, work, scales):  # type: ignore[no-untyped-def]
    return _evaluate_dense if model.instance_class is DenseModel else _evaluate_counts


# Both forms unpack their arrays once: taking them from a tuple in the loop costs as much as the arithmetic.
def _evaluate_dense(model, support, work, scales):  # type: ignore[no-untyped-def]
    phi, gram_inv, moments, projected, weights = model.phi, model.gram_inv, model.moments, work.projected, work.weights
    size, reward, utility = support.size, support.reward, support.utility
    bonus, V, Q, pi, norm = work.bonus, work.V, work.Q, work.pi, work.norm
    last, lam = size.shape[0] - 1, work.lams[0]
    for h in range(last, -1, -1):
        if h == last:
            clear(Q, size[h])
        else:
            regress(h, size[h + 1], moments, gram_inv, V, projected, weights)
            predict(h, size[h], h, phi, weights, Q)
        softmax_step(h, size[h], last - h, reward, utility, bonus, scales, lam, Q, pi, norm, V)
    work.bounds[0] = V[0, 2, 0]


def _evaluate_counts(model, support, work, scales):  # type: ignore[no-untyped-def]
    start, column, share = work.start, work.column, work.share
    size, reward, utility = support.size, support.reward, support.utility
    bonus, V, Q, lams = work.bonus, work.V, work.Q, work.lams
    last = size.shape[0] - 1
    for h in range(last, -1, -1):
        count_step(h, size[h], last - h, start, column, share, reward, utility, bonus, scales, lams, Q, V)
    store(work.bounds, (0,), load(V, (0, 0, 2, 0)))


@lean_kernel
def refresh_once(model, size, work, scales):  # type: ignore[no-untyped-def]
    """`refresh` as Python calls it."""
    refresh(model, size, work, scales)


@lean_kernel
def evaluate_once(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    """`evaluate` at one λ, as Python calls it: V̲ᵘ(s₁)."""
    work.lams[:] = lam
    work.lane[0] = 0
    evaluate(model, support, work, scales)
    return work.bounds[0]


@lean_kernel
def look_ahead(lams, lam, lower, upper, at_an_end):  # type: ignore[no-untyped-def]
    """The λ to evaluate together: λ alone if there is room for one, else what three halvings may ask for.

    These are the upper end and the seven midpoints of [lower, upper], its halves and its quarters, each the very number
    that bisection comes to; where an end is asked for, the lower end takes the place of the last of them.
    """
    if lams.shape[0] == 1:
        lams[0] = lam
        return
    lams[0], lams[4] = upper, (lower + upper) / 2
    lams[2], lams[6] = (lower + lams[4]) / 2, (lams[4] + upper) / 2
    lams[1], lams[3] = (lower + lams[2]) / 2, (lams[2] + lams[4]) / 2
    lams[5], lams[7] = (lams[4] + lams[6]) / 2, lower if at_an_end else (lams[6] + upper) / 2


@lean_kernel
def position(lams, lam):  # type: ignore[no-untyped-def]
    """Where λ is among those evaluated last, −1 if it is not."""
    for lane in range(lams.shape[0]):
        if lams[lane] == lam:
            return lane
    return -1


@lean_kernel
def decide(model, support, work, scales, search):  # type: ignore[no-untyped-def]
    """Algorithm 2 for one episode: (source, λ, bound), with the values of the deployed λ left in `work`.

    The λ asked for: C_λ (only with the incumbent as fallback), 0, the midpoints, and last the one found, so that the
    bound returned is that of the deployed policy itself. A warm start begins with the bracket [λ/factor, λ·factor] of
    the λ found last. What was evaluated ahead is not evaluated again.
    """
    refresh(model, support.size, work, scales)
    work.lams[:] = np.nan
    cold = TOP if search.fallback else BOTTOM
    stage, lower, upper, halvings = cold, 0.0, search.lam_max, search.num_halvings
    if search.factor > 1.0 and work.found[0] > 0.0:
        stage, lower, upper = ABOVE, work.found[0] / search.factor, min(work.found[0] * search.factor, search.lam_max)
    while True:
        lam = upper
        if stage == HALVE:
            lam = (lower + upper) / 2
        elif stage in (BELOW, BOTTOM):
            lam = lower
        if position(work.lams, lam) < 0:
            look_ahead(work.lams, lam, lower, upper, stage != HALVE)
            evaluate(model, support, work, scales)
        work.lane[0] = position(work.lams, lam)
        bound = work.bounds[work.lane[0]]
        admitted = admits(bound, search.threshold)
        if stage == LAST:
            break
        if stage == TOP:
            if not admitted:  # Alg. 2, incumbent trigger -> V̲ᵘ(π^{C_λ}) < b
                work.found[0] = np.nan
                return SAFE, np.nan, bound
            stage = BOTTOM
        elif stage == BOTTOM:
            if admitted:  # Alg. 2, λ = 0 -> V̲ᵘ(π⁰) ≥ b
                work.found[0] = np.nan
                return ZERO, 0.0, bound
            stage = HALVE
        elif stage == ABOVE and admitted:
            stage = BELOW
        elif stage == BELOW and not admitted:  # then as narrow at the end as bisection of [0, C_λ]
            stage = HALVE
            halvings += int(np.ceil(np.log2((upper - lower) / search.lam_max)))
        elif stage == HALVE:  # Alg. 2, bisection: only admitted λ replace the upper end
            lower, upper = (lower, lam) if admitted else (lam, upper)
            halvings -= 1
        else:  # the λ found last is of no use
            stage, lower, upper = cold, 0.0, search.lam_max
        if stage == HALVE and halvings <= 0:
            stage = LAST
    work.found[0] = upper
    if search.fallback and not admitted:
        return SAFE, np.nan, bound
    return SEARCH, upper, bound
