"""Play episodes of a known kernel under a known table, by inverse transform sampling."""

from typing import NamedTuple

import numpy as np

from episafe.core.types import Array
from episafe.kernels.compilation import kernel
from episafe.kernels.policy_values import policy_values as policy_values


class Law(NamedTuple):
    """What a loop knows and the agent does not: `P` (H or 1, S, A, S), its running sums, r, u (m, …) and s₁."""

    P: Array
    running: Array
    reward: Array
    utility: Array
    initial_state: int


def running_sums(probabilities: Array) -> Array:
    """Return the sums along the last axis, from which `draw` samples."""
    return np.cumsum(probabilities, axis=-1)


@kernel
def draw(running, uniform):  # type: ignore[no-untyped-def]
    """Return the first index whose running sum exceeds uniform·total; its probability is never 0."""
    mark = uniform * running[running.shape[0] - 1]
    low, high = 0, running.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if running[middle] > mark:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def simulate(policy, kernel, choices, transitions, states, actions):  # type: ignore[no-untyped-def]
    """Fill `states` (H+1,) after its first, and `actions` (H,), from running sums of π (H, S, A) and P (H, S, A, S).

    P is (1, S, A, S) where steps share it. `choices` and `transitions` are two generators, which are never shared.
    """
    for h in range(actions.shape[0]):
        row = min(h, kernel.shape[0] - 1)
        actions[h] = draw(policy[h, states[h]], choices.random())
        states[h + 1] = draw(kernel[row, states[h], actions[h]], transitions.random())


@kernel
def follow(policy, kernel, uniform, states, actions):  # type: ignore[no-untyped-def]
    """Do the same with uniform numbers (2, H) that were drawn before: for actions, and for transitions."""
    for h in range(actions.shape[0]):
        row = min(h, kernel.shape[0] - 1)
        actions[h] = draw(policy[h, states[h]], uniform[0, h])
        states[h + 1] = draw(kernel[row, states[h], actions[h]], uniform[1, h])


@kernel
def follow_chance(policies, acting, law, next_states, uniform, paths):  # type: ignore[no-untyped-def]
    """Play E episodes of an exogenous problem; policy acting[e] acts in episode e.

    Args:
        policies: running sums of π, (n, H, S, A).
        acting: positions in `policies`, (E,).
        law: running sums of the law of chance, (H or 1, S, W).
        next_states: (H or 1, S, A, W).
        uniform: two arrays (E, H) of uniform numbers: for actions, and for chance.
        paths: filled: states (E, H+1) after the first, actions (E, H), and the number of each chance value (E, H).
    """
    (states, actions, chances), (choices, brought) = paths, uniform
    for e in range(actions.shape[0]):
        for h in range(actions.shape[1]):
            row, s = h if law.shape[0] > 1 else 0, states[e, h]
            actions[e, h] = draw(policies[acting[e], h, s], choices[e, h])
            chances[e, h] = draw(law[row, s], brought[e, h])
            states[e, h + 1] = next_states[row, s, actions[e, h], chances[e, h]]
