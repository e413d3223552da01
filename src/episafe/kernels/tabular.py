"""Compiled passes over tables: extended value iteration, and bounds of policies over a box of kernels.

A box of transition kernels is {P' : lower ≤ P'_h(s'|s,a) ≤ upper, Σ_{s'} P' = 1}. For given values the best row of P'
starts at `lower` and gives the mass that is left to the best next states first, each up to `upper`. The order of the
next states is the same for all (s, a) of a step, so one sort per step is enough.
"""

import math

import numpy as np

from episafe.core.types import IntArray
from episafe.kernels.compilation import kernel

BISECTIONS = 60
Greedy = tuple[IntArray, IntArray]  # a policy and, by the order of next states that it favours, a kernel; both (H, S)


@kernel
def extended_greedy(signals, weights, lower, upper):  # type: ignore[no-untyped-def]
    """Return the best policy and kernel for Σ_g weights[g]·signal g: actions and order of next states (H, S), V_1.

    Signals are (G, H, S, A), V_1 (G, S).
    """
    G, H, S, A = signals.shape
    actions, order = np.zeros((H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int64)
    V_next, V, row, Q = np.zeros((G, S)), np.zeros((G, S)), np.empty(S), np.empty(G)
    for h in range(H - 1, -1, -1):
        combined = np.zeros(S)
        for g in range(G):
            combined += weights[g] * V_next[g]
        order[h] = np.argsort(-combined, kind="mergesort")
        for s in range(S):
            best = -np.inf
            for a in range(A):
                if h < H - 1:
                    _favour(lower[h, s, a], upper[h, s, a], order[h], row)
                total = 0.0
                for g in range(G):
                    Q[g] = signals[g, h, s, a]
                    for t in range(S if h < H - 1 else 0):
                        Q[g] += row[t] * V_next[g, t]
                    total += weights[g] * Q[g]
                if total > best:
                    best, actions[h, s], V[:, s] = total, a, Q
        V_next[:] = V
    return actions, order, V_next


@kernel
def _favour(lower, upper, order, row):  # type: ignore[no-untyped-def]
    """Write the row of the box that gives its mass to the first of `order` into `row`; all (S,)."""
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
    """Return the state occupancy (H, S) of the policy `actions` under the kernel of the box that favours `order`."""
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


@kernel
def tighten(counts, log_term, lower, upper):  # type: ignore[no-untyped-def]
    """Intersect the box in place with the intervals of counts (steps, S, A, S): for k of n visits that led to s'

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
    """Return the smallest and largest p of the inequality in `tighten`; ends by bisection lie just outside."""
    least = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi) - log_term
    if k == 0:
        return 0.0, -math.expm1(least / n)
    if k == n:
        return math.exp(least / n), 1.0
    ends = [0.0, 1.0]
    for i in range(2):
        inside = k / n
        for _ in range(BISECTIONS):
            p = (ends[i] + inside) / 2
            if p == 1.0 or k * math.log(p) + (n - k) * math.log1p(-p) < least:
                ends[i] = p
            else:
                inside = p
    return ends[0], ends[1]


@kernel
def policy_bounds(signals, weights, policy, lower, upper):  # type: ignore[no-untyped-def]
    """Return the bounds (1 + m, S) of a policy table (H, S, A).

    Of the signals (1 + m, H, S, A) the reward is taken at its best in the box, the utilities at their worst, each by a
    kernel of its own. With weights (1 + m,) the policy becomes the greedy one for Σ_g weights[g] Q^g; none keep it.

        V̄ʳ_h = Σ_a π(a|s)(r + max_{P'} P'V̄ʳ_{h+1}),      V̲ᵘ_h = Σ_a π(a|s)(u + min_{P'} P'V̲ᵘ_{h+1})
    """
    G, H, S, A = signals.shape
    V, Q = np.zeros((G, S)), np.empty((G, S, A))
    for h in range(H - 1, -1, -1):
        _extreme_values(signals, h, lower, upper, V, Q)
        for s in range(S if weights.shape[0] > 0 else 0):
            best, action = -np.inf, 0
            for a in range(A):
                total, policy[h, s, a] = 0.0, 0.0
                for g in range(G):
                    total += weights[g] * Q[g, s, a]
                if total > best:
                    best, action = total, a
            policy[h, s, action] = 1.0
        for g in range(G):
            for s in range(S):
                V[g, s] = 0.0
                for a in range(A):
                    V[g, s] += policy[h, s, a] * Q[g, s, a]
    return V


@kernel
def _extreme_values(signals, h, lower, upper, V, Q):  # type: ignore[no-untyped-def]
    """Fill Q (1 + m, S, A) of step h from V (1 + m, S) after it, by the best kernel for signal 0, else by the worst.

    The last step leads nowhere and needs no kernel. The box (steps, S, A, S) has one step if all share their data.
    """
    (G, H, S, A), step, row = signals.shape, min(h, lower.shape[0] - 1), np.empty(signals.shape[2])
    for g in range(G):
        order = np.argsort(-V[g] if g == 0 else V[g], kind="mergesort")
        for s in range(S):
            for a in range(A):
                Q[g, s, a] = signals[g, h, s, a]
                if h < H - 1:
                    _favour(lower[step, s, a], upper[step, s, a], order, row)
                    for t in range(S):
                        Q[g, s, a] += row[t] * V[g, t]
