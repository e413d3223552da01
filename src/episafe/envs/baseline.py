"""Incumbents for problems without one: the best policy under stricter constraints, as in Bura et al. 2022."""

from typing import Any

import numpy as np

from episafe.checks import as_scale
from episafe.errors import Infeasible
from episafe.problems import exact_answers
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array


def baseline(P: Array, reward: Array, utility: Array, initial_state: int, threshold: Any, slack: Any) -> Array:
    """The policy (H, S, A) of largest V^r(s₁) with V^u(s₁) ≥ b + slack.

    With several constraints it keeps each; utility is then (m, H, S, A), threshold and slack (m,).
    """
    if np.ndim(threshold):
        slacks = [as_scale("slack", one, positive=True) for one in slack]
        try:
            wanted = np.array(threshold) + np.array(slacks)
            return exact_answers.optimum_of_several(P, reward, utility, wanted, initial_state).policy
        except Infeasible as error:
            raise Infeasible(f"no policy has slacks {slacks}: {error}; lower them, or the thresholds") from error
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
    utility: Any,
    *,
    horizon: int,
    threshold: Any,
    slack: Any,
    names: tuple[str, ...] = (),
    initial_state: int = 0,
    time_homogeneous: bool,
) -> LinearCMDP:
    """A problem of one kernel (S, A, S) for all steps, with a baseline for an incumbent.

    Reward and utility are (S, A), or (H, S, A) where they change. `time_homogeneous` is whether the learner is told.
    With several constraints utilities, thresholds, slacks and `names` are lists.
    """
    P = np.tile(kernel, (horizon, 1, 1, 1))
    several = np.ndim(threshold) > 0
    reward, *utilities = (
        np.ascontiguousarray(np.broadcast_to(signal, P.shape[:3]))
        for signal in (reward, *(utility if several else [utility]))
    )
    told: Any = utilities if several else utilities[0]
    safe_policy = baseline(P, reward, np.asarray(told), initial_state, threshold, slack)
    return LinearCMDP(
        P, reward, told, initial_state=initial_state, threshold=threshold,
        safe_policy=safe_policy, time_homogeneous=time_homogeneous, names=names,
    )  # fmt: skip
