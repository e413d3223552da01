"""Algorithm 2, compiled: plain arrays in, plain arrays out (see model.py). The slow twin is tests/oracles.py."""

import numpy as np
from numba.extending import overload

from episafe.arrays import IntArray
from episafe.compiling import inlined_kernel, kernel, summing_kernel
from episafe.learning.elementary import exp, fma, log
from episafe.learning.model import CountModel, DenseModel, Scales, Support, Work

NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0
SAFE, ZERO, SEARCH = 0, 1, 2  # where a decision comes from
ABOVE, BELOW, TOP, BOTTOM, HALVE, LAST = range(6)  # stages of the search


@kernel
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@kernel
def softmax_step(h, n, steps_left, reward, utility, bonus, scales, lam, Q, pi, sums, V):  # type: ignore[no-untyped-def]
    """Composite softmax at n states of step h (Defs. "Clipped value functions", "Composite softmax policy").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}   V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}           V̄† = π Q̄†
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h}               V̲ᵘ = π Q̲ᵘ
        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)

    The paper counts h from 1 and the code from 0: its H−h is `steps_left`. reward, utility, bonus (H, A, n); `Q`
    (3, A, n) holds P̂V on entry and Q on exit, and row h of `V` (H, 3, n) is written. With w = e^(logit − largest) and
    W = Σ_a w: π = w/W and −Σ π ln π = ln W − Σ w ln w / W. w is left in `pi` (A, n), 1/W in row 1 of `sums` (3, n).
    Loops run over states and write few arrays, and exp and log are straight-line: so all of it vectorises.
    """
    A = pi.shape[0]
    C_r, C_u, C_dagger, B_dagger, kappa, _, _ = scales
    ceiling_u, per_kappa = float(steps_left), 1.0 / kappa
    ceiling_r, ceiling_dagger = ceiling_u * (1.0 + kappa * np.log(A)), ceiling_u * B_dagger
    for a in range(A):
        for i in range(n):
            Q[0, a, i] = reward[h, a, i] + min(max(fma(C_r, bonus[h, a, i], Q[0, a, i]), 0.0), ceiling_r)
        for i in range(n):
            Q[1, a, i] = min(max(fma(C_dagger, bonus[h, a, i], Q[1, a, i]), 0.0), ceiling_dagger)
            Q[1, a, i] += B_dagger * bonus[h, a, i]
        for i in range(n):
            Q[2, a, i] = utility[h, a, i] + min(max(fma(C_u, bonus[h, a, i], Q[2, a, i]), 0.0), ceiling_u)
        for i in range(n):
            pi[a, i] = fma(lam, Q[2, a, i], Q[1, a, i] + Q[0, a, i]) * per_kappa
    for i in range(n):
        sums[0, i] = pi[0, i]
        sums[1, i] = 0.0
        sums[2, i] = 0.0
    for a in range(1, A):
        for i in range(n):
            sums[0, i] = max(sums[0, i], pi[a, i])
    for i in range(n):
        V[h, 0, i] = 0.0
        V[h, 1, i] = 0.0
        V[h, 2, i] = 0.0
    for a in range(A):
        for i in range(n):
            log_weight = pi[a, i] - sums[0, i]
            weight = 0.0 if log_weight < NEGLIGIBLE else exp(log_weight)
            sums[1, i] += weight
            sums[2, i] = fma(weight, log_weight, sums[2, i])
            pi[a, i] = weight
        for g in range(3):
            for i in range(n):
                V[h, g, i] = fma(pi[a, i], Q[g, a, i], V[h, g, i])
    for i in range(n):
        share = 1.0 / sums[1, i]
        sums[2, i] = kappa * (log(sums[1, i]) - sums[2, i] * share)
        sums[1, i] = share
    for g in range(3):
        for i in range(n):
            V[h, g, i] *= sums[1, i]
    for i in range(n):
        V[h, 0, i] += sums[2, i]


@kernel
def clear(Q, n):  # type: ignore[no-untyped-def]
    """P̂V = 0 at n states, into `Q` (3, A, n): there is nothing after the last step."""
    for g in range(3):
        for a in range(Q.shape[1]):
            for i in range(n):
                Q[g, a, i] = 0.0


@summing_kernel
def regress(h, n, moments, gram_inv, V, projected, weights):  # type: ignore[no-untyped-def]
    """w_h = Λ_h⁻¹ Σ_j m_j V_{h+1}(s_j) of r, †, u, into row h of `weights` (H, 3, d).

    moments (H, d, n), gram_inv (H, d, d), V (H+1, 3, n); `projected` (3, d) is room for Σ_j m_j V.
    """
    d = gram_inv.shape[1]
    for g in range(3):
        for k in range(d):
            total = 0.0
            for j in range(n):
                total += moments[h, k, j] * V[h + 1, g, j]
            projected[g, k] = total
    for g in range(3):
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += gram_inv[h, k, m] * projected[g, m]
            weights[h, g, k] = total


@kernel
def predict(h, n, p, phi, weights, Q):  # type: ignore[no-untyped-def]
    """φᵀw_h of r, †, u at n states: row p of phi (·, A, d, n), weights (H, 3, d), into `Q` (3, A, n)."""
    d = phi.shape[2]
    for a in range(phi.shape[1]):
        for g in range(3):
            for i in range(n):
                Q[g, a, i] = weights[h, g, 0] * phi[p, a, 0, i]
        for k in range(1, d - 3, 4):
            for g in range(3):
                w0, w1, w2, w3 = weights[h, g, k], weights[h, g, k + 1], weights[h, g, k + 2], weights[h, g, k + 3]
                for i in range(n):
                    near = fma(w0, phi[p, a, k, i], fma(w1, phi[p, a, k + 1, i], Q[g, a, i]))
                    Q[g, a, i] = fma(w2, phi[p, a, k + 2, i], fma(w3, phi[p, a, k + 3, i], near))
        for k in range(d - (d - 1) % 4, d):
            for g in range(3):
                for i in range(n):
                    Q[g, a, i] = fma(weights[h, g, k], phi[p, a, k, i], Q[g, a, i])


@kernel
def shaped(beta, sigma, scales):  # type: ignore[no-untyped-def]
    """The bonus in use, β(1 − spread + spread·σ) + curve·β²: the paper's β at curve = spread = 0."""
    return beta * (1.0 + scales.spread * (sigma - 1.0) + scales.curve * beta)


@kernel
def deviation(h, a, i, g, start, column, share, V):  # type: ignore[no-untyped-def]
    """σ = √(P̂V² − (P̂V)²) of value g at slot i and action a: how far the next value strays."""
    mean = square = 0.0
    for entry in range(start[h, a, i], start[h, a, i + 1]):
        value = V[h + 1, g, column[h, entry]]
        mean += share[h, entry] * value
        square += share[h, entry] * value * value
    return np.sqrt(max(square - mean * mean, 0.0))


@kernel
def feature_bonus(h, n, p, phi, gram_inv, scales, bonus):  # type: ignore[no-untyped-def]
    """The bonus of β = ‖φ‖_{Λ_h⁻¹} at n states, into row h of `bonus` (H, A, n): row p of phi (·, A, d, n), gram_inv
    (H, d, d). How far next values stray is not asked of features: σ = 1.
    """
    for a in range(phi.shape[1]):
        for i in range(n):
            bonus[h, a, i] = 0.0
        for k in range(phi.shape[2]):
            for m in range(k + 1):
                scale = gram_inv[h, k, m] if m == k else 2.0 * gram_inv[h, k, m]
                for i in range(n):
                    bonus[h, a, i] += scale * phi[p, a, k, i] * phi[p, a, m, i]
        for i in range(n):
            bonus[h, a, i] = shaped(np.sqrt(max(bonus[h, a, i], 0.0)), 1.0, scales)


@kernel
def average(h, n, start, column, share, V, Q):  # type: ignore[no-untyped-def]
    """P̂_hV of r, †, u at n slots from P̂ row by row (see Work) and V (H+1, 3, n), into `Q` (3, A, n)."""
    for a in range(Q.shape[1]):
        for i in range(n):
            r = dagger = u = 0.0
            for entry in range(start[h, a, i], start[h, a, i + 1]):
                weight, j = share[h, entry], column[h, entry]
                r += weight * V[h + 1, 0, j]
                dagger += weight * V[h + 1, 1, j]
                u += weight * V[h + 1, 2, j]
            Q[0, a, i], Q[1, a, i], Q[2, a, i] = r, dagger, u


@kernel
def is_plain(scales):  # type: ignore[no-untyped-def]
    """Whether the bonus in use is the paper's β."""
    return scales.curve == 0.0 and scales.spread == 0.0


@kernel
def shape(h, n, start, column, share, V, bonus, scales, bonus_r, bonus_u):  # type: ignore[no-untyped-def]
    """The bonuses in use for r and for u at n slots of step h, into bonus_r and bonus_u (H, A, n)."""
    for a in range(bonus.shape[1]):
        for i in range(n):
            bonus_r[h, a, i] = shaped(bonus[h, a, i], deviation(h, a, i, 0, start, column, share, V), scales)
            bonus_u[h, a, i] = shaped(bonus[h, a, i], deviation(h, a, i, 2, start, column, share, V), scales)


@inlined_kernel
def count_step(  # type: ignore[no-untyped-def]
    h, n, steps_left, start, column, share, reward, utility, bonus_r, bonus_u, scales, lam, Q, V
):  # fmt: skip
    """`average`, then `softmax_step`, slot by slot: for few slots, going through them once counts for more.

    Writes Q (3, A, n), and row h of V (H+1, 3, n) from row h + 1; the other arrays are as there.
    """
    A = Q.shape[1]
    C_r, C_u, C_dagger, B_dagger, kappa, _, _ = scales
    ceiling_u, per_kappa = float(steps_left), 1.0 / kappa
    ceiling_r, ceiling_dagger = ceiling_u * (1.0 + kappa * np.log(A)), ceiling_u * B_dagger
    for i in range(n):
        top = -np.inf
        for a in range(A):
            r = dagger = u = 0.0
            for entry in range(start[h, a, i], start[h, a, i + 1]):
                p, j = share[h, entry], column[h, entry]
                r = fma(p, V[h + 1, 0, j], r)
                dagger = fma(p, V[h + 1, 1, j], dagger)
                u = fma(p, V[h + 1, 2, j], u)
            beta = bonus_u[h, a, i]
            r = reward[h, a, i] + min(max(C_r * bonus_r[h, a, i] + r, 0.0), ceiling_r)
            dagger = B_dagger * beta + min(max(C_dagger * beta + dagger, 0.0), ceiling_dagger)
            u = utility[h, a, i] + min(max(C_u * beta + u, 0.0), ceiling_u)
            Q[0, a, i], Q[1, a, i], Q[2, a, i] = r, dagger, u
            top = max(top, (dagger + r + lam * u) * per_kappa)
        total = entropy = V_r = V_dagger = V_u = 0.0
        for a in range(A):
            r, dagger, u = Q[0, a, i], Q[1, a, i], Q[2, a, i]
            log_weight = (dagger + r + lam * u) * per_kappa - top
            weight = 1.0
            if log_weight != 0.0:  # so also where it is NaN, which must spread
                weight = 0.0 if log_weight < NEGLIGIBLE else exp(log_weight)
                entropy -= weight * log_weight
            total += weight
            V_r += weight * r
            V_dagger += weight * dagger
            V_u += weight * u
        if total != 1.0:
            V_r += kappa * (entropy + total * np.log(total))
            V_r, V_dagger, V_u = V_r / total, V_dagger / total, V_u / total
        V[h, 0, i], V[h, 1, i], V[h, 2, i] = V_r, V_dagger, V_u


@kernel
def padded(n):  # type: ignore[no-untyped-def]
    """n up to a multiple of 16, so that loops over states leave no remainder; there is room for it."""
    return (n + 15) // 16 * 16


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


def evaluate(model: DenseModel | CountModel, support: Support, work: Work, scales: Scales, lam: float) -> float:
    """V̲ᵘ(s₁) of π^λ; the values of r, †, u at all slots are left in `work.V`."""
    return float(evaluate_once(model, support, work, scales, lam))


@overload(evaluate, jit_options={"forceinline": True})
def _evaluate(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    return _evaluate_dense if model.instance_class is DenseModel else _evaluate_counts


# Both forms unpack their arrays once: taking them from a tuple in the loop costs as much as the arithmetic.
def _evaluate_dense(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    phi, gram_inv, moments, projected, weights = model.phi, model.gram_inv, model.moments, work.projected, work.weights
    size, reward, utility = support.size, support.reward, support.utility
    bonus, V, Q, pi, sums = work.bonus, work.V, work.Q, work.pi, work.sums
    last = size.shape[0] - 1
    for h in range(last, -1, -1):
        n = padded(size[h])
        if h == last:
            clear(Q, n)
        else:
            regress(h, size[h + 1], moments, gram_inv, V, projected, weights)
            predict(h, n, h, phi, weights, Q)
        softmax_step(h, n, last - h, reward, utility, bonus, scales, lam, Q, pi, sums, V)
    return V[0, 2, 0]


def _evaluate_counts(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    start, column, share = work.start, work.column, work.share
    size, reward, utility = support.size, support.reward, support.utility
    bonus, V, Q = work.bonus, work.V, work.Q
    plain = is_plain(scales)
    bonus_r, bonus_u = (bonus, bonus) if plain else (work.shaped[0], work.shaped[1])
    last = size.shape[0] - 1
    for h in range(last, -1, -1):
        n = size[h]
        if not plain:
            shape(h, n, start, column, share, V, bonus, scales, bonus_r, bonus_u)
        count_step(h, n, last - h, start, column, share, reward, utility, bonus_r, bonus_u, scales, lam, Q, V)
    return V[0, 2, 0]


@kernel
def refresh_once(model, size, work, scales):  # type: ignore[no-untyped-def]
    """`refresh` as Python calls it."""
    refresh(model, size, work, scales)


@kernel
def evaluate_once(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    """`evaluate` as Python calls it."""
    return evaluate(model, support, work, scales, lam)


@kernel
def decide(model, support, work, scales, search):  # type: ignore[no-untyped-def]
    """Algorithm 2 for one episode: (source, λ, bound), with the values of the deployed λ left in `work`.

    The λ to evaluate: C_λ (only with the incumbent as fallback), 0, the midpoints, and last the one found, so that the
    bound returned is that of the deployed policy itself. A warm start tries λ·factor and λ/factor of the λ found last
    before all that. One call of `evaluate` serves all, to be compiled once.
    """
    refresh(model, support.size, work, scales)
    cold = TOP if search.fallback else BOTTOM
    stage = ABOVE if search.factor > 1.0 and work.found[0] > 0.0 else cold
    lower, upper, halvings = 0.0, search.lam_max, search.num_halvings
    lam, bound = np.nan, np.nan
    while stage != LAST or lam != upper:
        if stage == ABOVE:
            lam = min(work.found[0] * search.factor, search.lam_max)
        elif stage == BELOW:
            lam = work.found[0] / search.factor
        elif stage == BOTTOM:
            lam = lower
        elif stage == HALVE:
            lam = (lower + upper) / 2
        else:
            lam = upper
        bound = evaluate(model, support, work, scales, lam)
        admitted = admits(bound, search.threshold)
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
        elif stage == ABOVE:
            stage, upper = (BELOW, lam) if admitted else (cold, upper)
        elif stage == BELOW:
            if admitted:
                stage, upper = cold, search.lam_max
            else:  # then as narrow at the end as bisection of [0, C_λ]
                stage, lower = HALVE, lam
                halvings += int(np.ceil(np.log2((upper - lower) / search.lam_max)))
        elif stage == HALVE:  # Alg. 2, bisection: only admitted λ replace the upper end
            lower, upper = (lower, lam) if admitted else (lam, upper)
            halvings -= 1
        if stage == HALVE and halvings <= 0:
            stage = LAST
    work.found[0] = upper
    if search.fallback and not admits(bound, search.threshold):
        return SAFE, np.nan, bound
    return SEARCH, upper, bound
