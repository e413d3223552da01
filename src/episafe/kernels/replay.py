"""Replays of listed problems on traces: which states can be reached, and what a policy is worth on each trace.

A trace is a row of H numbers: the number of the chance value at each step, −1 if it was not seen. `MoveTables` says
where each value leads from each state by each action, −1 for nowhere. Steps share one row if the tables have one only.
"""

from typing import NamedTuple

import numpy as np

from episafe.core.types import Array, IntArray
from episafe.kernels.compilation import kernel


class MoveTables(NamedTuple):
    """Moves given chance: `next_states` and `rewards` (n, S, A, W), `utilities` (n, S, A, W, m), with n = H or 1."""

    next_states: IntArray
    rewards: Array
    utilities: Array


@kernel
def reach(next_states, chances, start, counts):  # type: ignore[no-untyped-def]
    """Add 1 to counts[h, s, w] for each trace of `chances` (E, H) and each state s that some actions lead to."""
    (n, S, A, _), (E, H) = next_states.shape, chances.shape
    here, there = np.empty(S, dtype=np.int64), np.empty(S, dtype=np.int64)
    mark, stamp = np.full(S, -1), 0
    for e in range(E):
        here[0], size = start, 1
        for h in range(H):
            row, w, size_there, stamp = h if n > 1 else 0, chances[e, h], 0, stamp + 1
            if w < 0:
                break
            for k in range(size):
                s = here[k]
                counts[h, s, w] += 1
                for a in range(A):
                    t = next_states[row, s, a, w]
                    if t >= 0 and mark[t] != stamp:
                        mark[t] = stamp
                        there[size_there] = t
                        size_there += 1
            here, there, size = there, here, size_there


@kernel
def replay(tables, chances, start, policies, totals):  # type: ignore[no-untyped-def]
    """Fill `totals` (n, E, 2 + m): E[Σ_h r_h], E[Σ_h u_h] of tables π (n, H, S, A) on each trace, over π's randomness.

        m_{h+1}(s') = Σ_{s,a} m_h(s) π_h(a|s) 1{s' = f(s, a, w_h)},   total = Σ_h Σ_{s,a} m_h(s) π_h(a|s) g(s, a, w_h)

    What cannot be replayed adds nothing from there on, so that totals of utilities are lower bounds. The last column is
    the probability of that. Only states that are reached are visited.
    """
    next_states, rewards, utilities = tables
    (E, H), (_, S, A, _), m = chances.shape, next_states.shape, utilities.shape[4]
    here, there = np.empty(S, dtype=np.int64), np.empty(S, dtype=np.int64)
    mass, mass_there = np.zeros(S), np.zeros(S)
    for j in range(policies.shape[0]):
        for e in range(E):
            here[0], size, mass[start] = start, 1, 1.0
            for g in range(2 + m):
                totals[j, e, g] = 0.0
            for h in range(H):
                row, w, size_there = h if next_states.shape[0] > 1 else 0, chances[e, h], 0
                for k in range(size):
                    s = here[k]
                    weight, mass[s] = mass[s], 0.0
                    for a in range(A):
                        p = weight * policies[j, h, s, a]
                        if p > 0.0:
                            t = next_states[row, s, a, w] if w >= 0 else -1
                            if t < 0:
                                totals[j, e, 1 + m] += p
                                continue
                            totals[j, e, 0] += p * rewards[row, s, a, w]
                            for c in range(m):
                                totals[j, e, 1 + c] += p * utilities[row, s, a, w, c]
                            if mass_there[t] == 0.0:
                                there[size_there] = t
                                size_there += 1
                            mass_there[t] += p
                here, there, size = there, here, size_there
                mass, mass_there = mass_there, mass
            for k in range(size):
                mass[here[k]] = 0.0


@kernel
def least_totals(tables, possible, policy, horizon, start, sure):  # type: ignore[no-untyped-def]
    """Return the least total utilities (m,) of a policy π (H, S, A) over all traces of the support, by induction:

        x_h(s) = min_w Σ_a π_h(a|s) (u_h(s, a, w) + x_{h+1}(f_h(s, a, w)))

    over the w that are `possible` (n, S, W); with `sure` also the least over the actions that π takes. No trace brings
    less, because what comes later is taken at its worst in each state by itself.
    """
    next_states, _, utilities = tables
    n, S, A, W, m = utilities.shape
    ahead = np.zeros((S, m))
    for h in range(horizon - 1, -1, -1):
        row, now = h if n > 1 else 0, np.full((S, m), np.inf)
        for s in range(S):
            for w in range(W):
                if possible[row, s, w]:
                    for c in range(m):
                        total, worst = 0.0, np.inf
                        for a in range(A):
                            p = policy[h, s, a]
                            if p > 0.0:
                                t, value = next_states[row, s, a, w], 0.0  # where move fails, nothing more is certain
                                if t >= 0:
                                    value = utilities[row, s, a, w, c] + ahead[t, c]
                                total += p * value
                                worst = min(worst, value)
                        now[s, c] = min(now[s, c], worst if sure else total)
        ahead = now
    return ahead[start]


@kernel
def follows(tables, chances, states, actions, signals, tolerance):  # type: ignore[no-untyped-def]
    """Return whether an episode, states (H + 1,), actions (H,), signals (H, 1 + m), is what a trace leads to."""
    next_states, rewards, utilities = tables
    for h in range(chances.shape[0]):
        row, s, a, w = h if next_states.shape[0] > 1 else 0, states[h], actions[h], chances[h]
        if w < 0 or next_states[row, s, a, w] != states[h + 1]:
            return False
        if not abs(rewards[row, s, a, w] - signals[h, 0]) <= tolerance:
            return False
        for c in range(utilities.shape[4]):
            if not abs(utilities[row, s, a, w, c] - signals[h, 1 + c]) <= tolerance:
                return False
    return True


@kernel
def add_moves(tables, weights, P, signals):  # type: ignore[no-untyped-def]
    """Add the moves of each chance value with its weight (n, S, W) to P (n, S, A, S) and signals (n, S, A, 1 + m)."""
    next_states, rewards, utilities = tables
    n, S, W = weights.shape
    for h in range(n):
        row = h if next_states.shape[0] > 1 else 0
        for s in range(S):
            for w in range(W):
                weight = weights[h, s, w]
                if weight > 0.0:
                    for a in range(P.shape[2]):
                        t = next_states[row, s, a, w]
                        if t >= 0:
                            P[h, s, a, t] += weight
                            signals[h, s, a, 0] += weight * rewards[row, s, a, w]
                            for c in range(utilities.shape[4]):
                                signals[h, s, a, 1 + c] += weight * utilities[row, s, a, w, c]


def forecast_bound(
    means: Array,
    logs: Array,
    bets: Array,
    utilities: Array,
    ahead: float,
    log_term: float,
    least: float,
    largest: float,
) -> float:
    """Return the largest μ of the grid with Σ_k W_k e^{ahead·mean ln(1 + λ_k((X − x₀)/(μ − x₀) − 1))} ≥ e^{log_term}.

    By bisection, because the wealth falls with μ. `least` if it reaches no point.

    Args:
        means: the grid, (G,).
        logs: ln W_k so far, (G, B).
        bets: λ (B,).
        utilities: X of the traces so far, (n,); the next ones are taken to be like them.
        ahead: how many more.
        log_term: ln(B/δ_j).
        least: x₀.
        largest: the most that (X − x₀)/(μ − x₀) counts as.
    """
    low, high = -1, len(means)  # the largest point reached, the least that is not
    while high - low > 1:
        g = (low + high) // 2
        gains = np.minimum((utilities - least) / (means[g] - least), largest) - 1.0
        wealth = logs[g] + ahead * np.log1p(np.outer(bets, gains)).mean(axis=1)
        low, high = (g, high) if np.logaddexp.reduce(wealth) >= log_term else (low, g)
    return float(means[low]) if low >= 0 else least
