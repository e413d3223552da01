"""The values of a table in a known kernel, and episodes of it by inverse transform sampling."""

from typing import NamedTuple

import numpy as np

from episafe.core.types import Array
from episafe.kernels.compilation import kernel
from episafe.kernels.lanes import LANES, fma, load, spread, total


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
def policy_values(P, reward, utility, policy, initial_state):  # type: ignore[no-untyped-def]
    """Return (V^r(s₁), V^u(s₁)) of a table (H, S, A): the one function whose values are recorded and compared with b.

    V_h(s) = Σ_a π(a|s) g(s,a) + Σ_t (Σ_a π(a|s) P(t|s,a)) V_{h+1}(t), eight t at a time: P is read once. Steps share
    one row where P (1, S, A, S) or a signal (1, S, A) has one only.
    """
    H, S, A = policy.shape
    V = np.zeros((H + 1, 2, S))
    whole = S - S % LANES
    for h in range(H - 1, -1, -1):
        i, j, k = min(h, P.shape[0] - 1), min(h, reward.shape[0] - 1), min(h, utility.shape[0] - 1)
        first, last = (0, S) if h else (initial_state, initial_state + 1)
        for s in range(first, last):
            V_r = V_u = 0.0
            for a in range(A):
                V_r = fma(policy[h, s, a], reward[j, s, a], V_r)
                V_u = fma(policy[h, s, a], utility[k, s, a], V_u)
            if h < H - 1:
                next_r = next_u = spread(0.0)
                for t in range(0, whole, LANES):
                    p = spread(0.0)
                    for a in range(A):
                        p = fma(policy[h, s, a], load(P, (i, s, a, t)), p)
                    next_r = fma(p, load(V, (h + 1, 0, t)), next_r)
                    next_u = fma(p, load(V, (h + 1, 1, t)), next_u)
                V_r, V_u = V_r + total(next_r), V_u + total(next_u)
                for t in range(whole, S):
                    p_t = 0.0
                    for a in range(A):
                        p_t = fma(policy[h, s, a], P[i, s, a, t], p_t)
                    V_r, V_u = fma(p_t, V[h + 1, 0, t], V_r), fma(p_t, V[h + 1, 1, t], V_u)
            V[h, 0, s], V[h, 1, s] = V_r, V_u
    return V[0, 0, initial_state], V[0, 1, initial_state]


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
    """Do the same as `follow` with two generators, which are never shared."""
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
