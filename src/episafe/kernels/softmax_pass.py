"""One step of the backward recursion of Algorithm 2, compiled: values, bonuses and the composite softmax.

Eight numbers are computed side by side: of eight states with features, for eight λ with counts (see `Work`). The
readable version is algorithms/opse.py.
"""

import numpy as np

from episafe.kernels.compilation import by_model, inlined_kernel
from episafe.kernels.lanes import (
    LANES,
    exp,
    fma,
    largest,
    load,
    log,
    root,
    smallest,
    spread,
    store,
    total,
    unless_below,
)
from episafe.kernels.softmax_arrays import ENTROPY, RELEASED_ENTROPY, Counts, Dense

LEAST = 1e-300  # a probability below it counts as 0
NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0


@inlined_kernel
def value_limits(steps_left, scales):  # type: ignore[no-untyped-def]
    """Return (H−h)(1+κ ln A), H−h and (H−h−D)₊: what the values of the steps left can reach, and the least utility."""
    left = steps_left + scales.extra_steps
    return left * scales.most_reward, left, max(left - scales.most_lost, 0.0)


@inlined_kernel
def clipped(scale, beta, PV, least, most):  # type: ignore[no-untyped-def]
    """Return clip{C β + P̂V, least, most}."""
    return smallest(largest(fma(scale, beta, PV), least), most)


@inlined_kernel
def row(h, array):  # type: ignore[no-untyped-def]
    """Return the row of step h: 0 where steps share their data."""
    return min(h, array.shape[0] - 1)


@inlined_kernel
def shaped(beta, sigma, scales):  # type: ignore[no-untyped-def]
    """Return β(1 − spread + spread·σ) + curve·β²."""
    return beta * (1.0 + scales.spread * (sigma - 1.0) + scales.curve * beta)


def _read_dense(model, array, index, x):  # type: ignore[no-untyped-def]
    return load(array, index + (x,))  # noqa: RUF005  # numba adds tuples


def _read_counts(model, array, index, x):  # type: ignore[no-untyped-def]
    return spread(array[index + (x // LANES,)])  # noqa: RUF005


@by_model({Dense: _read_dense, Counts: _read_counts})
def read(model, array, index, x):  # type: ignore[no-untyped-def]
    """Return what an array by slots has at x, the place of a slot in V: eight slots, or eight times the same one."""


# r, † and the first utility are summed together, which takes two thirds of the time that single sums take.
def _predict_dense(model, work, scales, h, n, n_after):  # type: ignore[no-untyped-def]
    p, (_, A, d, _), V, (projected, weights) = row(h, model.phi), model.phi.shape, work.V, work.rest
    for k in range(d):
        r = dagger = u = spread(0.0)
        for j in range(0, n_after, LANES):
            m_j = load(model.moments, (p, k, j))
            r = fma(m_j, load(V, (h + 1, 0, j)), r)
            dagger = fma(m_j, load(V, (h + 1, 1, j)), dagger)
            u = fma(m_j, load(V, (h + 1, 2, j)), u)
        projected[0, k], projected[1, k], projected[2, k] = total(r), total(dagger), total(u)
        for g in range(3, 3 + len(work.further)):
            u = spread(0.0)
            for j in range(0, n_after, LANES):
                u = fma(load(model.moments, (p, k, j)), load(V, (h + 1, g, j)), u)
            projected[g, k] = total(u)
    for g in range(projected.shape[0]):
        for k in range(d):
            w = 0.0
            for j in range(d):
                w = fma(model.gram_inv[p, k, j], projected[g, j], w)
            weights[h, g, k] = w
    for a in range(A):
        for i in range(0, n, LANES):
            r = dagger = u = spread(0.0)
            for k in range(d):
                x = load(model.phi, (p, a, k, i))
                r = fma(weights[h, 0, k], x, r)
                dagger = fma(weights[h, 1, k], x, dagger)
                u = fma(weights[h, 2, k], x, u)
            store(work.Q, (0, a, i), r)
            store(work.Q, (1, a, i), dagger)
            store(work.Q, (2, a, i), u)
            for g in range(3, 3 + len(work.further)):
                u = spread(0.0)
                for k in range(d):
                    u = fma(weights[h, g, k], load(model.phi, (p, a, k, i)), u)
                store(work.Q, (g, a, i), u)


def _predict_counts(model, work, scales, h, n, n_after):  # type: ignore[no-untyped-def]
    p, V, (start, column, share) = row(h, model.visits), work.V, work.rest
    floor = value_limits(float(V.shape[0] - 2 - h), scales)[2]
    for a in range(model.visits.shape[1]):
        for i in range(n):
            r, dagger, u = spread(0.0), spread(0.0), spread(floor)
            for entry in range(start[p, a, i], start[p, a, i + 1]):
                x, j = share[p, entry], LANES * column[p, entry]
                r = fma(x, load(V, (h + 1, 0, j)), r)
                dagger = fma(x, load(V, (h + 1, 1, j)), dagger)
                u = fma(x, load(V, (h + 1, 2, j)) - floor, u)
            store(work.Q, (0, a, LANES * i), r)
            store(work.Q, (1, a, LANES * i), dagger)
            store(work.Q, (2, a, LANES * i), u)
            for g in range(3, 3 + len(work.further)):
                u = spread(floor)
                for entry in range(start[p, a, i], start[p, a, i + 1]):
                    u = fma(share[p, entry], load(V, (h + 1, g, LANES * column[p, entry])) - floor, u)
                store(work.Q, (g, a, LANES * i), u)


@by_model({Dense: _predict_dense, Counts: _predict_counts})
def predict(model, work, scales, h, n, n_after):  # type: ignore[no-untyped-def]
    """Write P̂_hV of all values at n slots into Q, from V at the `n_after` slots of the next step.

    With features: w_h = Λ_h⁻¹ Σ_j m_j V_{h+1}(s_j), and φᵀw_h. With counts the shares sum to n/(n + ρ), n the visits;
    what is missing counts for a utility as its least value f: Σ p (V̲ᵘ − f) + f.
    """


def _bonus_dense(model, work, scales, at, g):  # type: ignore[no-untyped-def]
    (_, p, a, x) = at
    return load(work.bonus, (p, a, x))


def _bonus_counts(model, work, scales, at, g):  # type: ignore[no-untyped-def]
    (h, p, a, x), (start, column, share) = at, work.rest
    i = x // LANES
    beta = spread(work.bonus[p, a, i])
    if scales.curve == 0.0 and scales.spread == 0.0:
        return beta
    mean = square = spread(0.0)
    for entry in range(start[p, a, i], start[p, a, i + 1]):
        value = load(work.V, (h + 1, g, LANES * column[p, entry]))
        mean = fma(share[p, entry], value, mean)
        square = fma(share[p, entry] * value, value, square)
    return shaped(beta, root(largest(square - mean * mean, 0.0)), scales)


@by_model({Dense: _bonus_dense, Counts: _bonus_counts})
def bonus_of(model, work, scales, at, g):  # type: ignore[no-untyped-def]
    """Return the bonus of value g: β shaped by σ = √(P̂V² − (P̂V)²) with counts, and by σ = 1 with features."""


@inlined_kernel
def softmax_step(model, slots, work, scales, h, width):  # type: ignore[no-untyped-def]
    """Evaluate the composite softmax of step h at the places 0, 8, … below `width`.

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}      V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}               V̄† = π Q̄†
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, (H−h−D)₊, H−h}            V̲ᵘ = π Q̲ᵘ        π = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)

    D is `scales.most_lost`, infinite in the paper; `scales.C_u` has the sign. The paper counts h from 1. Q holds P̂V on
    entry; on exit it holds Q, and w ∝ π in its last row. Row h of V and 1/Σw are written.
    """
    V, Q, bonus, per_kappa = work.V, work.Q, work.bonus, 1.0 / scales.kappa
    s, p, A, m = row(h, slots.reward), row(h, bonus), Q.shape[1], 1 + len(work.further)
    most_r, most, least = value_limits(float(V.shape[0] - 2 - h), scales)
    for x in range(0, width, LANES):
        top = spread(-np.inf)
        for a in range(A):
            at, score, widest = (h, p, a, x), spread(0.0), spread(0.0)
            for c in range(m):
                beta = bonus_of(model, work, scales, at, 2 + c)
                u = clipped(scales.C_u, beta, load(Q, (2 + c, a, x)), least, most)
                u = u + read(model, slots.utility, (c, s, a), x)
                store(Q, (2 + c, a, x), u)
                score = fma(load(work.lams, (c, 0)), u, score)
                widest = largest(widest, beta)  # the compensation has the largest bonus of all utilities
            beta = bonus_of(model, work, scales, at, 0)
            r = clipped(scales.C_r, beta, load(Q, (0, a, x)), 0.0, most_r) + read(model, slots.reward, (s, a), x)
            dagger = clipped(scales.C_dagger, widest, load(Q, (1, a, x)), 0.0, scales.B_dagger * most)
            dagger = fma(scales.B_dagger, widest, dagger)
            store(Q, (0, a, x), r)
            store(Q, (1, a, x), dagger)
            logit = (score + (dagger + r)) * per_kappa
            store(Q, (2 + m, a, x), logit)
            top = largest(top, logit)
        entropy, per_W, r, dagger, u = weigh(Q, x, top, scales)
        store(work.norm, (x,), per_W)
        store(V, (h, 0, x), fma(scales.kappa, entropy, r * per_W))
        store(V, (h, 1, x), dagger * per_W)
        store(V, (h, 2, x), u * per_W)
        for g in range(3, 2 + m):
            u = spread(0.0)
            for a in range(A):
                u = fma(load(Q, (2 + m, a, x)), load(Q, (g, a, x)), u)
            store(V, (h, g, x), u * per_W)


@inlined_kernel
def weigh(Q, x, top, scales):  # type: ignore[no-untyped-def]
    """Replace the logits by w = e^(logit − top). Return −Σ π ln π = ln W − Σ w ln w / W, 1/W, and Σ w Q of r, †, u."""
    last = Q.shape[0] - 1
    W = w_ln_w = r = dagger = u = spread(0.0)
    for a in range(Q.shape[1]):
        log_weight = load(Q, (last, a, x)) - top
        w = unless_below(log_weight, NEGLIGIBLE, exp(log_weight))
        store(Q, (last, a, x), w)
        W += w
        w_ln_w = fma(w, log_weight, w_ln_w)
        r = fma(w, load(Q, (0, a, x)), r)
        dagger = fma(w, load(Q, (1, a, x)), dagger)
        u = fma(w, load(Q, (2, a, x)), u)
    per_W = 1.0 / W
    entropy = log(W) - w_ln_w * per_W
    if scales.entropy != ENTROPY:  # the released code has −Σ π² ln π
        entropy = spread(0.0)
        for a in range(Q.shape[1] if scales.entropy == RELEASED_ENTROPY else 0):
            pi = load(Q, (last, a, x)) * per_W
            entropy = entropy - unless_below(pi, LEAST, pi * pi * log(largest(pi, LEAST)))
    return entropy, per_W, r, dagger, u
