"""One episode of a known kernel under a known table, by inverse transform sampling."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array

Streams = tuple[np.random.Generator, np.random.Generator]  # of actions, of transitions; never shared


class World(NamedTuple):
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
