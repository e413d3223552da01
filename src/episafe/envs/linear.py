"""Synthetic linear CMDPs: more states than features, P_h(s'|s,a) = μ_h(s')ᵀφ(s,a)."""

import math
from typing import Any

import numpy as np

from episafe.envs.options import check_range, check_sizes
from episafe.envs.threshold_draw import Origin, Variant, draw_feasible
from episafe.problems.cmdp import LinearCMDP


def linear(
    rng: np.random.Generator,
    variant: Variant = "released",
    *,
    num_states: int = 100,
    num_actions: int = 3,
    dim: int = 5,
    horizon: int = 4,
    dirichlet: float = 0.1,
    threshold_scale: float = 0.68,
    origin: Origin,
) -> LinearCMDP:
    """A random linear CMDP with φ(s,a) and μ_h^i from Dirichlet distributions.

    Args:
        rng: the environment's own stream.
        variant: "released" divides each of r and u by its largest value, "text" leaves them as drawn.
        num_states: S.
        num_actions: A.
        dim: d.
        horizon: H.
        dirichlet: weight of each entry of both Dirichlet distributions.
        threshold_scale: b over the largest utility.
        origin: kept with the problem.
    """
    check_sizes(num_states=num_states, num_actions=num_actions, dim=dim, horizon=horizon)
    check_range("dirichlet", dirichlet, 0, math.inf)

    def draw() -> dict[str, Any]:
        phi = rng.dirichlet(np.full(dim, dirichlet), (num_states, num_actions))
        mu = rng.dirichlet(np.full(num_states, dirichlet), (horizon, dim))
        reward, utility = (phi @ rng.random((horizon, dim)).T for _ in range(2))
        if variant == "released":
            reward, utility = reward / reward.max(), utility / utility.max()
        return {
            "P": np.einsum("hdt,sad->hsat", mu, phi),
            "reward": np.moveaxis(reward, -1, 0),
            "utility": np.moveaxis(utility, -1, 0),
            "phi": phi,
            "initial_state": int(rng.integers(num_states)),
        }

    return draw_feasible(draw, threshold_scale, origin)
