"""Media control: keep a buffer from running empty, with fast service in short supply."""

import numpy as np

from episafe.envs.baseline import stationary
from episafe.envs.options import check_range, check_sizes
from episafe.envs.paper_environments import FAST, buffer_kernel
from episafe.problems.cmdp import LinearCMDP


def media(
    rng: np.random.Generator,
    *,
    num_states: int = 10,
    horizon: int = 10,
    fast_rate: float = 0.9,
    slow_rate: float = 0.1,
    departure_rate: float = 0.8,
    limit: float | None = None,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A media buffer that starts empty; a = 0 is fast service. Reward 1 − [empty], utility 1 − [fast].

    From Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "DOPE" (NeurIPS 2022), by their released code. They
    count costs: the optimum 6.7467 of 10 steps is a reward of 3.2533, and at most 5 fast steps are b = 5.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S, H.
        fast_rate, slow_rate, departure_rate: arrivals under each service, and departures, a step.
        limit: fast steps in an episode, on average; None for H/2, as published.
        slack: of the incumbent; None for 0.4 H, as published: it has a fifth of the limit.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    for name, rate in (("fast_rate", fast_rate), ("slow_rate", slow_rate), ("departure_rate", departure_rate)):
        check_range(name, rate, 0, 1)
    limit = horizon / 2 if limit is None else limit
    check_range("limit", limit, 0, horizon)
    kernel = np.stack([buffer_kernel(rate, departure_rate, num_states - 1) for rate in (fast_rate, slow_rate)], axis=1)
    reward, utility = np.ones((2, num_states, 2))
    reward[0], utility[:, FAST] = 0.0, 0.0
    return stationary(
        kernel, reward, utility, horizon=horizon, threshold=horizon - limit,
        slack=0.4 * horizon if slack is None else slack, time_homogeneous=time_homogeneous,
    )  # fmt: skip
