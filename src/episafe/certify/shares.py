"""Who acted in an episode of a mixture: the share of each component, by the probabilities that each states."""

from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, reason_of
from episafe.kernels.wealth import share_out
from episafe.problems.policy import Policy
from episafe.problems.states import Outside


def shares_of(mixture: Policy, task: Any, states: Any, actions: Any) -> list[float]:
    """The share of each component in an episode, by `share_out`; what they cannot have done is refused."""
    if states is None:
        if len(mixture.components) == 1:
            return [1.0]
        raise InvalidEpisode(
            "the plan is a mixture, and an episode with totals alone does not show who may have acted: report its "
            "states and actions"
        )
    acted, shares = np.empty((1, len(actions), len(mixture.components))), np.array(mixture.weights, dtype=float)[None]
    try:
        for i, policy in enumerate(mixture.components):
            acted[0, :, i] = _acted(policy, task, states, actions)
    except Exception as error:  # of a policy of somebody's own, asked where this episode went
        raise InvalidEpisode(f"nobody can say who may have acted: {reason_of(error)}") from error
    if not share_out(acted, shares.size, shares):
        raise InvalidEpisode("the deployed policy never acts like this: report the episode with its own plan_id")
    found: list[float] = shares[0].tolist()
    return found


def _acted(policy: Policy, task: Any, states: Any, actions: Any) -> Any:
    """π_h(a_h|s_h) at every step; the last state has no action.

    Before an episode begins and after it has ended nobody acts, whatever a policy says: 1/A for every component, so
    that these steps take no part in the shares.
    """
    if task.is_listed:
        return policy.table()[np.arange(len(actions)), np.asarray(states)[: len(actions)], actions]
    steps = list(zip(range(len(actions)), states, np.asarray(actions).tolist(), strict=False))
    inside = [step for step in steps if type(step[1]) is not Outside]
    found = np.full(len(steps), 1 / task.num_actions)
    found[[h for h, _, _ in inside]] = policy.along(inside)
    return found
