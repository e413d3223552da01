"""A known kernel under a known table: one episode, by inverse transform sampling, and exact values."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.lanes import LANES, fma, load, spread, total
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


@kernel
def follow(policy, kernel, luck, states, actions):  # type: ignore[no-untyped-def]
    """The same by uniform numbers `luck` (2, H) that were drawn before, for actions and for transitions."""
    for h in range(actions.shape[0]):
        actions[h] = draw(policy[h, states[h]], luck[0, h])
        states[h + 1] = draw(kernel[h, states[h], actions[h]], luck[1, h])


@kernel
def policy_values(P, reward, utility, policy, initial_state):  # type: ignore[no-untyped-def]
    """(V^r(s₁), V^u(s₁)) of a table (H, S, A): the one function whose values are recorded and compared with b.

    V_h(s) = Σ_a π(a|s) g(s,a) + Σ_t (Σ_a π(a|s) P(t|s,a)) V_{h+1}(t), eight t at a time: P is read once.
    """
    H, S, A = policy.shape
    V = np.zeros((H + 1, 2, S))
    whole = S - S % LANES
    for h in range(H - 1, -1, -1):
        first, last = (0, S) if h else (initial_state, initial_state + 1)
        for s in range(first, last):
            V_r = V_u = 0.0
            for a in range(A):
                V_r = fma(policy[h, s, a], reward[h, s, a], V_r)
                V_u = fma(policy[h, s, a], utility[h, s, a], V_u)
            if h < H - 1:
                next_r = next_u = spread(0.0)
                for t in range(0, whole, LANES):
                    p = spread(0.0)
                    for a in range(A):
                        p = fma(policy[h, s, a], load(P, (h, s, a, t)), p)
                    next_r = fma(p, load(V, (h + 1, 0, t)), next_r)
                    next_u = fma(p, load(V, (h + 1, 1, t)), next_u)
                V_r, V_u = V_r + total(next_r), V_u + total(next_u)
                for t in range(whole, S):
                    p_t = 0.0
                    for a in range(A):
                        p_t = fma(policy[h, s, a], P[h, s, a, t], p_t)
                    V_r, V_u = fma(p_t, V[h + 1, 0, t], V_r), fma(p_t, V[h + 1, 1, t], V_u)
            V[h, 0, s], V[h, 1, s] = V_r, V_u
    return V[0, 0, initial_state], V[0, 1, initial_state]
