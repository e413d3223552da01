"""Job scheduling: get the work done without sending it to the machine at the dear hours."""

import numpy as np

from episafe.checks import TOLERANCE
from episafe.envs.baseline import stationary
from episafe.envs.options import check_range, check_sizes
from episafe.problems.cmdp import LinearCMDP

WAIT, SEND = 0, 1
DEAR = slice(2, 6)  # steps 3 to 6, counted from 1


def jobs(
    rng: np.random.Generator,
    *,
    num_jobs: int = 9,
    horizon: int = 10,
    done: tuple[float, float, float] = (0.1, 0.1, 0.8),
    threshold: float = 3.5,
    slack: float = 0.5,
    time_homogeneous: bool = False,
) -> LinearCMDP:
    """A full stack of jobs; a = 1 sends two of them to a machine, which does both, one or none.

    From Ghosh, Zhou, Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in Model-free RL"
    (AISTATS 2024), appendix K.1. Reward 1 − 0.9 a at steps 3 to 6, else 1 − 0.2 a; utility is half of the jobs done.
    The optimum is 9.1765, the largest utility 4.4998. They have no incumbent: the slack is ours.

    Args:
        rng: not used: nothing is drawn.
        num_jobs, horizon: jobs at the start, S − 1; H.
        done: probabilities that the machine does 0, 1, 2 jobs.
        threshold: b, half of the jobs to be done, on average.
        slack: of the incumbent, the best policy of utility b + slack.
        time_homogeneous: whether the learner is told that jobs are done at every step alike.
    """
    check_sizes(num_jobs=num_jobs, horizon=horizon)
    check_range("threshold", threshold, 0, horizon)
    if len(done) != 3 or min(done) < 0 or abs(sum(done) - 1) > TOLERANCE:
        raise ValueError(f"done must be three probabilities that sum to 1, of 0, 1 and 2 jobs, got {done!r}")
    kernel, states = np.zeros((num_jobs + 1, 2, num_jobs + 1)), np.arange(num_jobs + 1)
    kernel[states, WAIT, states] = 1.0
    for count, probability in enumerate(done):
        kernel[:, SEND] += probability * np.eye(num_jobs + 1)[np.maximum(states - count, 0)]
    reward = np.ones((horizon, num_jobs + 1, 2))
    reward[:, :, SEND] = 1 - 0.2
    reward[DEAR, :, SEND] = 1 - 0.9
    utility = (states[:, None] - kernel @ states) / 2
    return stationary(
        kernel, reward, utility, horizon=horizon, threshold=threshold, slack=slack, initial_state=num_jobs,
        time_homogeneous=time_homogeneous,
    )  # fmt: skip
