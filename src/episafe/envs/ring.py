"""The ring: every step forward is paid and costs one of few moves."""

import numpy as np

from episafe.envs.baseline import stationary
from episafe.envs.options import check_range, check_sizes
from episafe.problems.cmdp import LinearCMDP

STAY, MOVE = 0, 1


def ring(
    rng: np.random.Generator,
    *,
    num_states: int = 3,
    horizon: int = 6,
    limit: float | None = None,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """States 0, …, S − 1 in a ring; to move on from s pays (s + 1)/S, to stay pays nothing. Utility 1 − [moved].

    From Simão, Jansen, Spaan, "AlwaysSafe" (AAMAS 2021), after Zheng and Ratliff 2020, as in the released code of Bura
    et al. 2022, who start at 0 and scale the reward to [0, 1]. The optimum is 2.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S, H.
        limit: moves in an episode, on average; None for H/2, as published.
        slack: of the incumbent; None for 0.4 H, as in Bura et al.: it has a fifth of the limit.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    limit = horizon / 2 if limit is None else limit
    check_range("limit", limit, 0, horizon)
    kernel, states = np.zeros((num_states, 2, num_states)), np.arange(num_states)
    kernel[states, STAY, states] = kernel[states, MOVE, (states + 1) % num_states] = 1.0
    reward, utility = np.zeros((2, num_states, 2))
    reward[:, MOVE], utility[:, STAY] = (states + 1) / num_states, 1.0
    return stationary(
        kernel, reward, utility, horizon=horizon, threshold=horizon - limit,
        slack=0.4 * horizon if slack is None else slack, time_homogeneous=time_homogeneous,
    )  # fmt: skip
