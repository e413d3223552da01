"""Extended value iteration over a box of transition kernels: the best policy and the best kernel at once.

The box is {P' : lower ≤ P'_h(s'|s,a) ≤ upper, Σ_{s'} P' = 1}. For given values the best row of P' starts at `lower` and
gives the mass that is left to the best next states first, each up to `upper`; the order of the next states is the same
for all (s, a) of a step, so one sort a step is enough.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array, IntArray

Greedy = tuple[IntArray, IntArray]  # a policy and, by the order of next states it favours, a kernel; both (H, S)


class KernelBox(NamedTuple):
    """Confidence set of the kernel: `lower`, `upper`, both (H, S, A, S), `bonus` β (H, S, A) = Σ_{s'} γ."""

    lower: Array
    upper: Array
    bonus: Array


@kernel
def confidence_box(counts, deviation, bias, cap):  # type: ignore[no-untyped-def]
    """Box p̂ ± γ cut to [0, 1] from counts (H, S, A, S), with γ = min{cap, deviation·√(p̂(1−p̂)/(n∨1)) + bias/(n∨1)}.

    Where a pair was never visited p̂ = 0 and the box is all of [0, 1], whatever γ is.
    """
    H, S, A, _ = counts.shape
    lower, upper, bonus = np.zeros((H, S, A, S)), np.ones((H, S, A, S)), np.zeros((H, S, A))
    for h in range(H):
        for s in range(S):
            for a in range(A):
                n = counts[h, s, a].sum()
                unseen = min(cap, bias / max(n, 1))  # the radius of what was never next
                for t in range(S):
                    radius = unseen
                    if counts[h, s, a, t] > 0:
                        p_hat = counts[h, s, a, t] / n
                        radius = min(cap, deviation * np.sqrt(p_hat * (1 - p_hat) / n) + bias / n)
                        lower[h, s, a, t], upper[h, s, a, t] = max(0.0, p_hat - radius), min(1.0, p_hat + radius)
                    elif n > 0:
                        upper[h, s, a, t] = min(1.0, radius)
                    bonus[h, s, a] += radius
    return lower, upper, bonus


@kernel
def extended_greedy(reward, utility, lower, upper, reward_weight, utility_weight):  # type: ignore[no-untyped-def]
    """Best policy and kernel for w_r·r + w_u·u: actions (H, S), the order of next states (H, S), V (S, 2) at step 0."""
    H, S, A = reward.shape
    actions, order = np.zeros((H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int64)
    V_next, V, row = np.zeros((S, 2)), np.zeros((S, 2)), np.empty(S)
    for h in range(H - 1, -1, -1):
        combined = reward_weight * V_next[:, 0] + utility_weight * V_next[:, 1]
        order[h] = np.argsort(-combined, kind="mergesort")
        for s in range(S):
            best = -np.inf
            for a in range(A):
                Q_r, Q_u = reward[h, s, a], utility[h, s, a]
                if h < H - 1:
                    _favour(lower[h, s, a], upper[h, s, a], order[h], row)
                    for t in range(S):
                        Q_r += row[t] * V_next[t, 0]
                        Q_u += row[t] * V_next[t, 1]
                Q = reward_weight * Q_r + utility_weight * Q_u
                if Q > best:
                    best = Q
                    actions[h, s] = a
                    V[s, 0], V[s, 1] = Q_r, Q_u
        V_next[:] = V
    return actions, order, V_next


@kernel
def _favour(lower, upper, order, row):  # type: ignore[no-untyped-def]
    """The row of the box that gives its mass to the first of `order`: lower, upper (S,), into `row` (S,)."""
    left = 1.0
    for t in range(lower.shape[0]):
        row[t] = lower[t]
        left -= lower[t]
    for t in order:
        if left <= 0.0:
            break
        more = min(left, upper[t] - lower[t])
        row[t] += more
        left -= more


@kernel
def extended_occupancy(lower, upper, actions, order, initial_state):  # type: ignore[no-untyped-def]
    """State occupancy (H, S) of the policy `actions` under the kernel of the box that favours `order`."""
    H, S = actions.shape
    mass, row = np.zeros((H, S)), np.empty(S)
    mass[0, initial_state] = 1.0
    for h in range(H - 1):
        for s in range(S):
            if mass[h, s] > 0.0:
                a = actions[h, s]
                _favour(lower[h, s, a], upper[h, s, a], order[h], row)
                for t in range(S):
                    mass[h + 1, t] += mass[h, s] * row[t]
    return mass
