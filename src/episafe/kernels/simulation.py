"""A known kernel under a known table: one episode, by inverse transform sampling, and exact values."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.policy_values import policy_values as policy_values
from episafe.types import Array

Streams = tuple[np.random.Generator, np.random.Generator]  # of actions, of transitions; never shared


class Law(NamedTuple):
    """What a loop knows and the agent does not: `P` (H, S, A, S), its running sums, r, u (H, S, A) and s₁."""

    P: Array
    running: Array
    reward: Array
    utility: Array
    initial_state: int


def running_sums(probabilities: Array) -> Array:
    """Sums along the last axis, from which `draw` samples."""
    return np.cumsum(probabilities, axis=-1)


@kernel
def draw(running, uniform):  # type: ignore[no-untyped-def]
    """Index drawn from running sums (n,): the first whose sum exceeds uniform·total, so never one of probability 0."""
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
    """Fill `states` (H+1,) after its first, and `actions` (H,), from running sums of π (H, S, A) and P (H, S, A, S)."""
    for h in range(actions.shape[0]):
        actions[h] = draw(policy[h, states[h]], choices.random())
        states[h + 1] = draw(kernel[h, states[h], actions[h]], transitions.random())


@kernel
def follow(policy, kernel, luck, states, actions):  # type: ignore[no-untyped-def]
    """The same by uniform numbers `luck` (2, H) that were drawn before, for actions and for transitions."""
    for h in range(actions.shape[0]):
        actions[h] = draw(policy[h, states[h]], luck[0, h])
        states[h + 1] = draw(kernel[h, states[h], actions[h]], luck[1, h])


@kernel
def follow_chance(policies, acting, law, next_states, luck, paths):  # type: ignore[no-untyped-def]
    """Episodes of an exogenous problem: running sums of policies (P, H, S, A), of which acting[e] acts in episode e,
    and of the law (n, S, W); next states (n, S, A, W).

    Fills `paths` = states (E, H+1) after the first, actions (E, H) and the numbers of what chance brings (E, H) by
    uniform numbers `luck` = (E, H) for actions, and for chance.
    """
    (states, actions, chances), (choices, brought) = paths, luck
    for e in range(actions.shape[0]):
        for h in range(actions.shape[1]):
            row, s = h if law.shape[0] > 1 else 0, states[e, h]
            actions[e, h] = draw(policies[acting[e], h, s], choices[e, h])
            chances[e, h] = draw(law[row, s], brought[e, h])
            states[e, h + 1] = next_states[row, s, actions[e, h], chances[e, h]]
