"""Incumbents for problems without one: the best policy under a stricter constraint, as in Bura et al. 2022."""

import numpy as np

from episafe.checks import as_scale
from episafe.errors import Infeasible
from episafe.problems import exact_answers
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array


def baseline(P: Array, reward: Array, utility: Array, initial_state: int, threshold: float, slack: float) -> Array:
    """The policy (H, S, A) of largest V^r(s₁) with V^u(s₁) ≥ b + slack."""
    wanted = threshold + as_scale("slack", slack, positive=True)
    largest = float(exact_answers.utility_greedy(P, utility)[1][initial_state])
    if wanted > largest:
        raise Infeasible(
            f"no policy has slack {slack:.12g}: the threshold is {threshold:.12g}, the largest utility {largest:.12g}; "
            "lower the slack, or the threshold"
        )
    return exact_answers.optimum(P, reward, utility, wanted, initial_state)[1]


def stationary(
    kernel: Array,
    reward: Array,
    utility: Array,
    *,
    horizon: int,
    threshold: float,
    slack: float,
    initial_state: int = 0,
    time_homogeneous: bool,
) -> LinearCMDP:
    """A problem of one kernel (S, A, S) for all steps, with a baseline for an incumbent.

    Reward and utility are (S, A), or (H, S, A) where they change. `time_homogeneous` is whether the learner is told.
    """
    P = np.tile(kernel, (horizon, 1, 1, 1))
    reward, utility = (np.ascontiguousarray(np.broadcast_to(signal, P.shape[:3])) for signal in (reward, utility))
    return LinearCMDP(
        P, reward, utility, initial_state=initial_state, threshold=threshold,
        safe_policy=baseline(P, reward, utility, initial_state, threshold, slack), time_homogeneous=time_homogeneous,
    )  # fmt: skip
