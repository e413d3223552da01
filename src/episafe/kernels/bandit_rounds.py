"""The world as the run loop sees it: one round of a bandit, for the plain loop and the compiled one."""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.arm_hull import envelope
from episafe.kernels.arm_program import best_over_arms, over_policy
from episafe.kernels.bandit_regression import mean
from episafe.kernels.compilation import kernel
from episafe.kernels.mixing import mixed
from episafe.types import Array

BLOCK = 1_024  # rounds whose noise is drawn together: a run can then begin at any round


class World(NamedTuple):
    """`theta` (1 + m, d): θ_r and every θ_u; the noise R; whether rewards are clicks."""

    theta: Array
    noise: float
    clicks: bool


def luck(seed: int, block: int, num_signals: int = 2) -> tuple[Array, Array]:
    """The luck of a block, choices (BLOCK,) uniform, noise (BLOCK, 1 + m) normal; by the seed and its number alone."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    return rng.random(BLOCK), rng.standard_normal((BLOCK, num_signals))


@kernel
def expected(theta, which, actions, probabilities):  # type: ignore[no-untyped-def]
    """E[θᵀa] of the atoms with their probabilities, θ = theta[which]."""
    total = 0.0
    for i in range(probabilities.shape[0]):
        if probabilities[i] > 0.0:
            total += probabilities[i] * mean(theta, which, actions, i)
    return total


@kernel
def observe(world, actions, row, noise, position, signals):  # type: ignore[no-untyped-def]
    """Into `signals` (1, 1 + m): what is seen when `actions[row]` is played, with the `noise` of a block."""
    for g in range(world.theta.shape[0]):
        signals[0, g] = mean(world.theta, g, actions, row) + world.noise * noise[position, g]
    if world.clicks:
        rate = mean(world.theta, 0, actions, row)
        signals[0, 0] = 1.0 if 0.5 * math.erfc(-noise[position, 0] / math.sqrt(2.0)) < rate else 0.0


@kernel
def optima(theta, thresholds, arms, safe, found):  # type: ignore[no-untyped-def]
    """Fills `found` (K,) with the optimum of each round; NaN where no arm is safe.

    Arms (K·n, d) and incumbents (K·n,) are stacked.
    """
    n, m = safe.shape[0] // found.shape[0], thresholds.shape[0]
    f, g, policy, order = np.empty(n), np.empty((m, n)), np.empty(n), np.empty(n, dtype=np.int64)
    for k in range(found.shape[0]):
        for i in range(n):
            f[i] = mean(theta, 0, arms, k * n + i)
            for c in range(m):
                g[c, i] = mean(theta, 1 + c, arms, k * n + i)
        if m == 1:
            low, high, share, _ = envelope(f, g[0], thresholds[0], order)
            found[k] = np.nan if high < 0 else mixed(f[low], f[high], share)
        else:
            lam = best_over_arms(f, g, thresholds, safe, k * n, policy)
            found[k] = np.nan if math.isnan(lam) else over_policy(policy, f)
