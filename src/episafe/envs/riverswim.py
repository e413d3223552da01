"""RiverSwim with few strokes: the reward is far up a river, and swimming tires."""

import numpy as np

from episafe.envs.baseline import stationary
from episafe.envs.options import check_range, check_sizes
from episafe.problems.cmdp import LinearCMDP

LEFT, RIGHT = 0, 1


def riverswim(
    rng: np.random.Generator,
    *,
    num_states: int = 6,
    horizon: int = 20,
    limit: float | None = None,
    slack: float | None = None,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A river from its mouth, 0, to S − 1: left goes with the current, right against it. Utility 1 − [right].

    The river is that of Osband, Russo, Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling"
    (NeurIPS 2013), after Strehl and Littman 2008; the limit on strokes is ours.

    Args:
        rng: not used: nothing is drawn.
        num_states, horizon: S ≥ 2, H.
        limit: strokes to the right in an episode, on average; None for H/2.
        slack: of the incumbent, the best policy of so many strokes less; None for H/4.
        time_homogeneous: whether the learner is told that all steps are alike.
    """
    check_sizes(num_states=num_states, horizon=horizon)
    if num_states < 2:
        raise ValueError("num_states must be at least 2: a river has a mouth and an upper end")
    limit = horizon / 2 if limit is None else limit
    check_range("limit", limit, 0, horizon)
    kernel, last = np.zeros((num_states, 2, num_states)), num_states - 1
    for s in range(num_states):
        kernel[s, LEFT, max(s - 1, 0)] = 1.0
        if 0 < s < last:
            kernel[s, RIGHT, s - 1 : s + 2] = 0.05, 0.6, 0.35
    kernel[0, RIGHT, :2], kernel[last, RIGHT, -2:] = (0.4, 0.6), (0.4, 0.6)
    reward, utility = np.zeros((2, num_states, 2))
    reward[0, LEFT], reward[last, RIGHT], utility[:, LEFT] = 0.005, 1.0, 1.0
    return stationary(
        kernel, reward, utility, horizon=horizon, threshold=horizon - limit,
        slack=horizon / 4 if slack is None else slack, time_homogeneous=time_homogeneous,
    )  # fmt: skip
