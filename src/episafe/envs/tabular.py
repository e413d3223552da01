"""Synthetic tabular CMDPs: Dirichlet transitions, Bernoulli rewards and utilities, one-hot features."""

import math
from typing import Any

import numpy as np

from episafe.envs.options import check_range, check_sizes
from episafe.envs.threshold_draw import Origin, Variant, draw_feasible
from episafe.problems.cmdp import LinearCMDP

# ℙ(r = 1): the text says 0 with probability 0.1 and 1 otherwise, the released code draws 1 with probability 0.1
PROBABILITY_OF_ONE = {"released": 0.1, "text": 0.9}


def tabular(
    rng: np.random.Generator,
    variant: Variant = "released",
    *,
    num_states: int = 5,
    num_actions: int = 3,
    horizon: int = 4,
    dirichlet: float = 0.1,
    probability_of_one: float | None = None,
    threshold_scale: float = 0.6,
    origin: Origin,
) -> LinearCMDP:
    """A random tabular CMDP.

    Args:
        rng: the environment's own stream.
        variant: decides `probability_of_one` where that is None.
        num_states: S.
        num_actions: A.
        horizon: H.
        dirichlet: weight of each entry of the Dirichlet that P_h(·|s,a) is drawn from.
        probability_of_one: ℙ(r_h(s,a) = 1), independently for each entry; the same for u.
        threshold_scale: b over the largest utility.
        origin: kept with the problem.
    """
    check_sizes(num_states=num_states, num_actions=num_actions, horizon=horizon)
    check_range("dirichlet", dirichlet, 0, math.inf)
    shape = (horizon, num_states, num_actions)
    probability = PROBABILITY_OF_ONE[variant] if probability_of_one is None else probability_of_one
    check_range("probability_of_one", probability, 0, 1)

    def draw() -> dict[str, Any]:
        return {
            "reward": (rng.random(shape) < probability).astype(np.float64),
            "utility": (rng.random(shape) < probability).astype(np.float64),
            "P": rng.dirichlet(np.full(num_states, dirichlet), shape),
            "initial_state": int(rng.integers(num_states)),
        }

    return draw_feasible(draw, threshold_scale, origin)
