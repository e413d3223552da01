"""Who acted in an episode of a mixture: the share of each component, by the probabilities that each states."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, reason_of
from episafe.kernels.wealth import share_out
from episafe.problems.policy import Policy
from episafe.problems.states import Outside
from episafe.types import Array


def shares_of(mixture: Policy, task: Any, states: Any, actions: Any) -> list[float]:
    """The share of each component in an episode, by `share_out`; what they cannot have done is refused."""
    if states is None:
        if len(mixture.components) == 1:
            return [1.0]
        raise InvalidEpisode(
            "the plan is a mixture, and an episode with totals alone does not show who may have acted: report its "
            "states and actions"
        )
    shares = np.array(mixture.weights, dtype=float)[None]
    try:
        acted = _acted(mixture.components, task, states, actions)
    except Exception as error:  # of a policy of somebody's own, asked where this episode went
        raise InvalidEpisode(f"nobody can say who may have acted: {reason_of(error)}") from error
    if not share_out(acted, shares.size, shares):
        raise InvalidEpisode("the deployed policy never acts like this: report the episode with its own plan_id")
    found: list[float] = shares[0].tolist()
    return found


def _acted(policies: Sequence[Policy], task: Any, states: Any, actions: Any) -> Array:
    """π_h(a_h|s_h) of n policies at every step, (1, H, n); the last state has no action.

    Before an episode begins and after it has ended nobody acts, whatever a policy says: 1/A for all of them, so that
    these steps take no part in the shares.
    """
    found = np.full((1, len(actions), len(policies)), 1 / task.num_actions)
    if task.is_listed:
        met = np.arange(len(actions)), np.asarray(states)[: len(actions)], actions
        found[0] = np.stack([policy.table()[met] for policy in policies], axis=-1)
        return found
    steps = zip(range(len(actions)), states, np.asarray(actions).tolist(), strict=False)
    inside = [step for step in steps if type(step[1]) is not Outside]
    for i, policy in enumerate(policies):
        found[0, [h for h, _, _ in inside], i] = policy.along(inside)
    return found
