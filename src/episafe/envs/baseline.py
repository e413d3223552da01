"""Incumbents for problems without one: the best policy under stricter constraints, as in Bura et al. 2022."""

from typing import Any

import numpy as np

from episafe.checks import as_scale
from episafe.envs.options import check_range
from episafe.errors import Infeasible
from episafe.problems import exact_answers
from episafe.problems.cmdp import LinearCMDP
from episafe.types import Array


def baseline(P: Array, reward: Array, utility: Array, initial_state: int, threshold: Any, slack: Any) -> Array:
    """The policy (H, S, A) of largest V^r(s₁) with V^u(s₁) ≥ b + slack.

    With several constraints it keeps each; utility is then (m, H, S, A), threshold and slack (m,).
    """
    slacks = [as_scale("slack", one, positive=True) for one in np.atleast_1d(slack).tolist()]
    thresholds, utilities = np.atleast_1d(threshold), utility if np.ndim(threshold) else utility[None]
    try:
        wanted = thresholds + np.array(slacks)
        return exact_answers.optimum_of_several(P, reward, utilities, wanted, initial_state).table
    except Infeasible as error:
        told = [f"{xi:.12g} above the threshold {b:.12g}" for xi, b in zip(slacks, thresholds, strict=True)]
        raise Infeasible(f"no policy has slack {' and '.join(told)}: {error}, or the slack") from error


def stationary(
    kernel: Array,
    reward: Array,
    utility: Any,
    *,
    horizon: int,
    threshold: Any,
    slack: Any,
    initial_state: int = 0,
    **told: Any,
) -> LinearCMDP:
    """A problem of one kernel (S, A, S) for all steps, with a baseline for an incumbent; `told` is what else it has.

    Reward and utility are (S, A), or (H, S, A) where they change; lists of several constraints, as thresholds and
    slacks are.
    """
    P = np.tile(kernel, (horizon, 1, 1, 1))
    several = np.ndim(threshold) > 0
    reward, *utilities = (
        np.ascontiguousarray(np.broadcast_to(signal, P.shape[:3]))
        for signal in (reward, *(utility if several else [utility]))
    )
    each: Any = utilities if several else utilities[0]
    incumbent = baseline(P, reward, np.asarray(each), initial_state, threshold, slack)
    return LinearCMDP(P, reward, each, None, initial_state, threshold, incumbent, **told)


def limited(kernel: Array, reward: Array, utility: Array, limit: float, *, horizon: int, **told: Any) -> LinearCMDP:
    """The same with utility 1 − cost, where an episode may cost `limit` on average: b = H − limit."""
    check_range("limit", limit, 0, horizon)
    return stationary(kernel, reward, utility, horizon=horizon, threshold=horizon - limit, **told)
