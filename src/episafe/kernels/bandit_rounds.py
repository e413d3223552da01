"""The world as the run loop sees it: one round of a bandit, for the plain loop and the compiled one."""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.arm_hull import envelope
from episafe.kernels.compilation import kernel
from episafe.kernels.mixing import mixed
from episafe.types import Array

BLOCK = 1_024  # rounds whose noise is drawn together: a run can then begin at any round


class World(NamedTuple):
    """`theta` (2, d): θ_r, θ_u; the noise R; whether rewards are clicks."""

    theta: Array
    noise: float
    clicks: bool


def luck(seed: int, block: int) -> tuple[Array, Array]:
    """The luck of one block, choices (BLOCK,) uniform, noise (BLOCK, 2) normal; by the seed and its number alone."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    return rng.random(BLOCK), rng.standard_normal((BLOCK, 2))


@kernel
def expected(theta, which, actions, probabilities):  # type: ignore[no-untyped-def]
    """E[θᵀa] of the atoms with their probabilities, θ = theta[which]."""
    total = 0.0
    for i in range(probabilities.shape[0]):
        if probabilities[i] > 0.0:
            total += probabilities[i] * mean(theta, which, actions, i)
    return total


@kernel
def mean(theta, which, actions, row):  # type: ignore[no-untyped-def]
    """θᵀ actions[row]."""
    total = 0.0
    for j in range(actions.shape[1]):
        total += theta[which, j] * actions[row, j]
    return total


@kernel
def observe(world, actions, row, noise, position):  # type: ignore[no-untyped-def]
    """Reward and utility seen when `actions[row]` is played, with the `noise` of a block."""
    reward, utility = mean(world.theta, 0, actions, row), mean(world.theta, 1, actions, row)
    if world.clicks:
        seen = 1.0 if 0.5 * math.erfc(-noise[position, 0] / math.sqrt(2.0)) < reward else 0.0
    else:
        seen = reward + world.noise * noise[position, 0]
    return seen, utility + world.noise * noise[position, 1]


@kernel
def optima(theta, threshold, arms, num_arms, found):  # type: ignore[no-untyped-def]
    """Fills `found` (m,) with the optimum of each round, arms (m·n, d) stacked; NaN where no arm is safe."""
    f, g, order = np.empty(num_arms), np.empty(num_arms), np.empty(num_arms, dtype=np.int64)
    for k in range(found.shape[0]):
        for i in range(num_arms):
            f[i], g[i] = mean(theta, 0, arms, k * num_arms + i), mean(theta, 1, arms, k * num_arms + i)
        low, high, share, _ = envelope(f, g, threshold, order)
        found[k] = np.nan if high < 0 else mixed(f[low], f[high], share)
