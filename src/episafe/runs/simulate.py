"""One episode of a known kernel under a known table, by inverse transform sampling."""

import numpy as np
from numba import njit

from episafe.arrays import Array


def cumulative(probabilities: Array) -> Array:
    """Running sums along the last axis."""
    return np.cumsum(probabilities, axis=-1)


@njit(cache=True)
def draw(running, uniform):  # type: ignore[no-untyped-def]
    """Index drawn from running sums (n,): the first whose sum exceeds uniform·total, so never one of probability 0."""
    return np.searchsorted(running, uniform * running[-1], side="right")


@njit(cache=True)
def simulate(policy, kernel, initial_state, action_uniforms, transition_uniforms):  # type: ignore[no-untyped-def]
    """States (H+1,) and actions (H,) from running sums of π (H, S, A) and P (H, S, A, S) and two rows of uniforms."""
    H = policy.shape[0]
    states, actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
    states[0] = initial_state
    for h in range(H):
        actions[h] = draw(policy[h, states[h]], action_uniforms[h])
        states[h + 1] = draw(kernel[h, states[h], actions[h]], transition_uniforms[h])
    return states, actions
