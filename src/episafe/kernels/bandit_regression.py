"""Ridge regression of reward and utilities on actions: Λ = I + Σ aaᵀ, θ̂_g = Λ⁻¹ Σ a g for g = r, u_1, …, u_m. ρ = 1.

And its confidence radius C as it grows; learning/bandit_radius.py says which are proved.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array, IntArray

REFACTOR_EVERY = 500  # observations between fresh inverses, so that rounding does not build up


class BanditRegression(NamedTuple):
    """All that was learned: gram Λ, gram_inv Λ⁻¹ (d, d), sums Σ a r and Σ a u (1 + m, d), ln det Λ (1,), seen (1,)."""

    gram: Array
    gram_inv: Array
    sums: Array
    log_det: Array
    seen: IntArray


def blank(dim: int, num_constraints: int = 1) -> BanditRegression:
    """Nothing learned yet."""
    sums = np.zeros((1 + num_constraints, dim))
    return BanditRegression(np.eye(dim), np.eye(dim), sums, np.zeros(1), np.zeros(1, dtype=np.int64))


class BanditRadius(NamedTuple):
    """C = offset + noise·√(per_log_det·ln det Λ + per_log_count·ln(1 + n) + constant), for n < limit observations."""

    offset: float
    noise: float
    per_log_det: float
    per_log_count: float
    constant: float
    limit: float


@kernel
def absorb(model, actions, row, signals, seen):  # type: ignore[no-untyped-def]
    """Take in the reward and utilities signals[seen] of the action actions[row]; rank one, with a fresh inverse now and
    then."""
    d, width = model.gram.shape[0], model.sums.shape[0]
    image, square = np.empty(d), 0.0
    for i in range(d):
        image[i] = 0.0
        for j in range(d):
            image[i] += model.gram_inv[i, j] * actions[row, j]
        square += image[i] * actions[row, i]
    for g in range(width):
        for i in range(d):
            model.sums[g, i] += signals[seen, g] * actions[row, i]
    for i in range(d):
        for j in range(d):
            model.gram[i, j] += actions[row, i] * actions[row, j]
            model.gram_inv[i, j] -= image[i] * image[j] / (1.0 + square)
    model.log_det[0] += math.log1p(square)
    model.seen[0] += 1
    if model.seen[0] % REFACTOR_EVERY == 0:
        _refactor(model)


@kernel
def _refactor(model):  # type: ignore[no-untyped-def]
    """Λ⁻¹ and ln det Λ from Λ = LLᵀ, symmetric to the bit. Λ ⪰ I, so the factorisation cannot fail."""
    d = model.gram.shape[0]
    L_inv = np.linalg.inv(np.linalg.cholesky(model.gram))
    log_det = 0.0
    for i in range(d):
        log_det -= 2.0 * math.log(L_inv[i, i])
        for j in range(d):
            total = 0.0
            for k in range(max(i, j), d):
                total += L_inv[k, i] * L_inv[k, j]
            model.gram_inv[i, j] = total
    model.log_det[0] = log_det


@kernel
def absorb_all(model, actions, signals):  # type: ignore[no-untyped-def]
    """Take in a batch, in its order; signals (n, 1 + m)."""
    for row in range(actions.shape[0]):
        absorb(model, actions, row, signals, row)


@kernel
def estimates(model):  # type: ignore[no-untyped-def]
    """θ̂_r and every θ̂_u as the rows of (1 + m, d)."""
    d, width = model.gram.shape[0], model.sums.shape[0]
    theta = np.zeros((width, d))
    for g in range(width):
        for i in range(d):
            for j in range(d):
                theta[g, i] += model.gram_inv[i, j] * model.sums[g, j]
    return theta


@kernel
def mean(theta, which, actions, row):  # type: ignore[no-untyped-def]
    """θᵀ actions[row]."""
    total = 0.0
    for j in range(actions.shape[1]):
        total += theta[which, j] * actions[row, j]
    return total


@kernel
def norm(model, actions, row):  # type: ignore[no-untyped-def]
    """β = ‖actions[row]‖_{Λ⁻¹}."""
    d, square = model.gram.shape[0], 0.0
    for i in range(d):
        image = 0.0
        for j in range(d):
            image += model.gram_inv[i, j] * actions[row, j]
        square += image * actions[row, i]
    return math.sqrt(max(square, 0.0))


@kernel
def radius_now(radius, log_det, count):  # type: ignore[no-untyped-def]
    """C after `count` observations."""
    growing = radius.per_log_det * log_det + radius.per_log_count * math.log(1.0 + count)
    return radius.offset + radius.noise * math.sqrt(growing + radius.constant)
