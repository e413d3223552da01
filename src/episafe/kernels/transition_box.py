"""A confidence box of transition kernels, and what policies are worth at best and at worst in it.

The box is {P' : lower ≤ P'_h(s'|s,a) ≤ upper, Σ_{s'} P' = 1}. Where steps share their data it has one step, for all.
The last step of an episode leads nowhere and needs none.

Of several signals g (1 + m, H, S, A) the first, the reward, is taken at its best in the box and the others, the
utilities, at their worst, each by a kernel of its own:

    V̄ʳ_h = Σ_a π(a|s)(r + max_{P'} P'V̄ʳ_{h+1}),      V̲ᵘ_h = Σ_a π(a|s)(u + min_{P'} P'V̲ᵘ_{h+1})
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array

BISECTIONS = 60


class TransitionBox(NamedTuple):
    """`lower` and `upper` (steps, S, A, S), and what `lower` leaves to be given, `left` (steps, S, A)."""

    lower: Array
    upper: Array
    left: Array


@kernel
def tighten(counts, log_term, lower, upper):  # type: ignore[no-untyped-def]
    """Intersect the box, in place, with what counts (steps, S, A, S) allow: for k of n visits that led to s'

    k ln p + (n − k) ln(1 − p) ≥ ln(B(k + ½, n − k + ½)/π) − ln(1/δ'),      log_term = ln(1/δ').
    """
    steps, S, A, _ = counts.shape
    for h in range(steps):
        for s in range(S):
            for a in range(A):
                n = 0.0
                for t in range(S):
                    n += counts[h, s, a, t]
                if n > 0:
                    for t in range(S):
                        low, high = interval(counts[h, s, a, t], n, log_term)
                        lower[h, s, a, t] = max(lower[h, s, a, t], low)
                        upper[h, s, a, t] = min(upper[h, s, a, t], high)


@kernel
def interval(k, n, log_term):  # type: ignore[no-untyped-def]
    """The smallest and largest p of the inequality in `tighten`; ends by bisection lie just outside."""
    least = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi) - log_term
    if k == 0:
        return 0.0, -math.expm1(least / n)
    if k == n:
        return math.exp(least / n), 1.0
    low, inside = 0.0, k / n
    for _ in range(BISECTIONS):
        p = (low + inside) / 2
        if k * math.log(p) + (n - k) * math.log1p(-p) < least:
            low = p
        else:
            inside = p
    high, inside = 1.0, k / n
    for _ in range(BISECTIONS):
        p = (high + inside) / 2
        if p == 1.0 or k * math.log(p) + (n - k) * math.log1p(-p) < least:
            high = p
        else:
            inside = p
    return low, high


@kernel
def greedy_bounds(signals, weights, box):  # type: ignore[no-untyped-def]
    """Actions (H, S) that are greedy for Σ_g weights[g] Q^g, and the values (1 + m, S) of that policy at step 0."""
    (G, H, S, A), steps = signals.shape, box.lower.shape[0]
    actions = np.zeros((H, S), dtype=np.int64)
    V_next, V, Q = np.zeros((G, S)), np.zeros((G, S)), np.zeros(G)
    order = np.zeros((G, S), dtype=np.int64)
    for h in range(H - 1, -1, -1):
        _sort(V_next, order)
        for s in range(S):
            best = -np.inf
            for a in range(A):
                total = 0.0
                for g in range(G):
                    Q[g] = signals[g, h, s, a]
                    if h < H - 1:
                        Q[g] += _next_value(box, (min(h, steps - 1), s, a), V_next, order, g)
                    total += weights[g] * Q[g]
                if total > best:
                    best = total
                    actions[h, s] = a
                    for g in range(G):
                        V[g, s] = Q[g]
        V_next[:] = V
    return actions, V_next


@kernel
def policy_bounds(signals, policy, box):  # type: ignore[no-untyped-def]
    """The values (1 + m, S) of a table (H, S, A) at step 0."""
    (G, H, S, A), steps = signals.shape, box.lower.shape[0]
    V_next, V = np.zeros((G, S)), np.zeros((G, S))
    order = np.zeros((G, S), dtype=np.int64)
    for h in range(H - 1, -1, -1):
        _sort(V_next, order)
        for g in range(G):
            for s in range(S):
                V[g, s] = 0.0
                for a in range(A):
                    if policy[h, s, a] > 0.0:
                        Q = signals[g, h, s, a]
                        if h < H - 1:
                            Q += _next_value(box, (min(h, steps - 1), s, a), V_next, order, g)
                        V[g, s] += policy[h, s, a] * Q
        V_next[:] = V
    return V_next


@kernel
def _sort(V, order):  # type: ignore[no-untyped-def]
    """The next states, those first that the extreme kernel favours: by falling V of signal 0, by rising V of others."""
    order[0] = np.argsort(-V[0], kind="mergesort")
    for g in range(1, V.shape[0]):
        order[g] = np.argsort(V[g], kind="mergesort")


@kernel
def _next_value(box, place, V, order, g):  # type: ignore[no-untyped-def]
    """Σ_{s'} P'(s') V[g, s'] of the row that starts at `lower` and gives what is left to the first of `order`."""
    h, s, a = place
    left, value = box.left[h, s, a], 0.0
    if left < 1.0:
        for t in range(V.shape[1]):
            value += box.lower[h, s, a, t] * V[g, t]
    for i in range(V.shape[1]):
        if left <= 0.0:
            break
        t = order[g, i]
        more = min(left, box.upper[h, s, a, t] - box.lower[h, s, a, t])
        value += more * V[g, t]
        left -= more
    return value
