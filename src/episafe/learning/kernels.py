"""Algorithm 2, compiled: plain arrays in, plain arrays out (see model.py). The slow twin is tests/oracles.py."""

import numpy as np
from numba.extending import overload

from episafe.arrays import IntArray
from episafe.compiling import kernel, summing_kernel
from episafe.learning.model import CountModel, DenseModel, Work

NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0
SAFE, ZERO, SEARCH = 0, 1, 2  # where a decision comes from


@kernel
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@kernel
def softmax_step(reward, utility, bonus, n, scales, lam, steps_left, Q, pi, V):  # type: ignore[no-untyped-def]
    """Composite softmax at n states (Defs. "Clipped value functions", "Composite softmax policy").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}   V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}           V̄† = π Q̄†
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h}               V̲ᵘ = π Q̲ᵘ
        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)

    The paper counts h from 1 and the code from 0: its H−h is `steps_left`. reward, utility, bonus (A, n); `Q` (3, A, n)
    holds P̂V on entry and Q on exit; `pi` (A, n) and `V` (3, n) are written.
    """
    A = reward.shape[0]
    C_r, C_u, C_dagger, B_dagger, kappa = scales
    ceiling_r, ceiling_dagger = steps_left * (1.0 + kappa * np.log(A)), steps_left * B_dagger
    for a in range(A):
        for i in range(n):
            beta = bonus[a, i]
            Q[0, a, i] = reward[a, i] + min(max(C_r * beta + Q[0, a, i], 0.0), ceiling_r)
            Q[1, a, i] = B_dagger * beta + min(max(C_dagger * beta + Q[1, a, i], 0.0), ceiling_dagger)
            Q[2, a, i] = utility[a, i] + min(max(C_u * beta + Q[2, a, i], 0.0), float(steps_left))
            pi[a, i] = (Q[1, a, i] + Q[0, a, i] + lam * Q[2, a, i]) / kappa
    for i in range(n):
        top = pi[0, i]
        for a in range(1, A):
            top = max(top, pi[a, i])
        total = entropy = 0.0
        for a in range(A):
            log_weight = pi[a, i] - top
            weight = 1.0 if log_weight == 0.0 else 0.0
            if NEGLIGIBLE < log_weight < 0.0:
                weight = np.exp(log_weight)
                entropy -= weight * log_weight
            pi[a, i] = weight
            total += weight
        # −Σ π ln π = ln Σ w + Σ w (−ln w)/Σ w for weights w = π·Σ w
        entropy = entropy / total + np.log(total) if total > 1.0 else 0.0
        V_r = V_dagger = V_u = 0.0
        for a in range(A):
            pi[a, i] /= total
            V_r += pi[a, i] * Q[0, a, i]
            V_dagger += pi[a, i] * Q[1, a, i]
            V_u += pi[a, i] * Q[2, a, i]
        V[0, i], V[1, i], V[2, i] = V_r + kappa * entropy, V_dagger, V_u


@kernel
def clear(Q, n):  # type: ignore[no-untyped-def]
    """P̂V = 0 at n states, into `Q` (3, A, n): there is nothing after the last step."""
    for g in range(3):
        for a in range(Q.shape[1]):
            for i in range(n):
                Q[g, a, i] = 0.0


@summing_kernel
def regress(moments, gram_inv, V_next, n, weights):  # type: ignore[no-untyped-def]
    """w = Λ⁻¹ Σ_j m_j V(s_j) of r, †, u at one step: moments (d, n), V_next (3, n), into `weights` (3, d)."""
    d = gram_inv.shape[0]
    sums = np.empty((3, d))
    for k in range(d):
        for g in range(3):
            total = 0.0
            for j in range(n):
                total += moments[k, j] * V_next[g, j]
            sums[g, k] = total
    for g in range(3):
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += gram_inv[k, m] * sums[g, m]
            weights[g, k] = total


@kernel
def predict(phi, weights, n, Q):  # type: ignore[no-untyped-def]
    """φᵀw of r, †, u at n states: phi (A, d, n), weights (3, d), into `Q` (3, A, n)."""
    for g in range(3):
        for a in range(phi.shape[0]):
            for i in range(n):
                Q[g, a, i] = weights[g, 0] * phi[a, 0, i]
            for k in range(1, phi.shape[1]):
                for i in range(n):
                    Q[g, a, i] += weights[g, k] * phi[a, k, i]


@kernel
def feature_bonus(phi, gram_inv, n, bonus):  # type: ignore[no-untyped-def]
    """β = ‖φ‖_{Λ⁻¹} at n states: phi (A, d, n), gram_inv (d, d), into `bonus` (A, n)."""
    d = phi.shape[1]
    for a in range(phi.shape[0]):
        for i in range(n):
            bonus[a, i] = 0.0
        for k in range(d):
            for m in range(k + 1):
                scale = gram_inv[k, m] if m == k else 2.0 * gram_inv[k, m]
                for i in range(n):
                    bonus[a, i] += scale * phi[a, k, i] * phi[a, m, i]
        for i in range(n):
            bonus[a, i] = np.sqrt(max(bonus[a, i], 0.0))


def refresh(model: DenseModel | CountModel, size: IntArray, work: Work) -> None:
    """Compute what the evaluations of one plan share: the bonuses and, for counts, P̂ row by row."""


@overload(refresh)
def _refresh(model, size, work):  # type: ignore[no-untyped-def]
    return _refresh_dense if model.instance_class is DenseModel else _refresh_counts


def _refresh_dense(model, size, work):  # type: ignore[no-untyped-def]
    for h in range(size.shape[0]):
        feature_bonus(model.phi[h], model.gram_inv[h], size[h], work.bonus[h])


def _refresh_counts(model, size, work):  # type: ignore[no-untyped-def]
    H, A, _ = model.visits.shape
    for h in range(H):
        entry = 0
        for a in range(A):
            for i in range(size[h]):
                work.bonus[h, a, i] = 1.0 / np.sqrt(model.visits[h, a, i] + model.ridge)
                work.start[h, a, i] = entry
                t = model.first[h, a, i]
                while t >= 0:
                    work.column[h, entry] = model.target[h, t]
                    work.share[h, entry] = model.times[h, t] / (model.visits[h, a, i] + model.ridge)
                    entry += 1
                    t = model.following[h, t]
            work.start[h, a, size[h]] = entry


def next_values(model: DenseModel | CountModel, h: int, size: IntArray, work: Work) -> None:
    """P̂_hV of V = work.V[h+1] at all slots of step h, into work.Q."""


@overload(next_values)
def _next_values(model, h, size, work):  # type: ignore[no-untyped-def]
    return _next_values_dense if model.instance_class is DenseModel else _next_values_counts


def _next_values_dense(model, h, size, work):  # type: ignore[no-untyped-def]
    regress(model.moments[h], model.gram_inv[h], work.V[h + 1], size[h + 1], work.weights[h])
    predict(model.phi[h], work.weights[h], size[h], work.Q)


def _next_values_counts(model, h, size, work):  # type: ignore[no-untyped-def]
    for a in range(work.Q.shape[1]):
        for i in range(size[h]):
            r = dagger = u = 0.0
            for entry in range(work.start[h, a, i], work.start[h, a, i + 1]):
                share, j = work.share[h, entry], work.column[h, entry]
                r += share * work.V[h + 1, 0, j]
                dagger += share * work.V[h + 1, 1, j]
                u += share * work.V[h + 1, 2, j]
            work.Q[0, a, i], work.Q[1, a, i], work.Q[2, a, i] = r, dagger, u


@kernel
def evaluate(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    """V̲ᵘ(s₁) of π^λ; the values of r, †, u at all slots are left in `work.V`."""
    H = support.size.shape[0]
    for h in range(H - 1, -1, -1):
        if h < H - 1:
            next_values(model, h, support.size, work)
        else:
            clear(work.Q, support.size[h])
        softmax_step(
            support.reward[h], support.utility[h], work.bonus[h], support.size[h],
            scales, lam, H - 1 - h, work.Q, work.pi, work.V[h],
        )  # fmt: skip
    return work.V[0, 2, 0]


@kernel
def decide(model, support, work, scales, search):  # type: ignore[no-untyped-def]
    """Algorithm 2 for one episode: (source, λ, bound), with the values of the deployed λ left in `work`.

    The λ to evaluate: C_λ (only with the incumbent as fallback), 0, the midpoints, and last the one found, so that the
    bound returned is that of the deployed policy itself. One call of `evaluate` serves all, to be compiled once.
    """
    refresh(model, support.size, work)
    lower, upper = 0.0, search.lam_max
    bound = np.nan
    for t in range(-2 if search.fallback else -1, search.num_halvings + 1):
        lam = (lower + upper) / 2
        if t == -2 or t == search.num_halvings:
            lam = upper
        elif t == -1:
            lam = lower
        bound = evaluate(model, support, work, scales, lam)
        admitted = admits(bound, search.threshold)
        if t == -2 and not admitted:  # Alg. 2, incumbent trigger -> V̲ᵘ(π^{C_λ}) < b
            return SAFE, np.nan, bound
        if t == -1 and admitted:  # Alg. 2, λ = 0 -> V̲ᵘ(π⁰) ≥ b
            return ZERO, 0.0, bound
        if 0 <= t < search.num_halvings:  # Alg. 2, bisection: only admitted λ replace the upper end
            lower, upper = (lower, lam) if admitted else (lam, upper)
    if search.fallback and not admits(bound, search.threshold):
        return SAFE, np.nan, bound
    return SEARCH, upper, bound
