"""Listed problems replayed on traces: where one can come to, and what a policy is worth, its own randomness integrated.

A trace is a row of numbers, one for each step: c numbers a pair of a step and what chance brings there, −1 what was not
seen. The arrays say where each c leads, from each state by each action.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array, IntArray

UNKNOWN, NOWHERE = -2, -1  # next states: not asked for yet; cannot be replayed


class MoveTables(NamedTuple):
    """How the system moves given chance: `next_states` (C, S, A); `signals` (C, S, A, 1 + m), reward and utilities."""

    next_states: IntArray
    signals: Array


@kernel
def reach(next_states, chances, start, counts, unknown, once):  # type: ignore[no-untyped-def]
    """Add `once` to counts[c, s] for each trace of `chances` (n, H) and each state s that some actions lead to at c.

    Pairs (c, s) whose next states are not known yet are written to `unknown` (m, 2), as many as have room; how many
    were met is returned. Call it with once = 0 until there are none, then with 1.
    """
    n, H = chances.shape
    S, A = next_states.shape[1], next_states.shape[2]
    here, there = np.empty(S, dtype=np.int64), np.empty(S, dtype=np.int64)
    mark, stamp, met = np.full(S, -1), 0, 0
    for i in range(n):
        here[0], size = start, 1
        for h in range(H):
            c, size_there, stamp = chances[i, h], 0, stamp + 1
            if c < 0:
                break
            for k in range(size):
                s = here[k]
                counts[c, s] += once
                if next_states[c, s, 0] == UNKNOWN:
                    if met < unknown.shape[0]:
                        unknown[met, 0], unknown[met, 1] = c, s
                    met += 1
                    continue
                for a in range(A):
                    t = next_states[c, s, a]
                    if t >= 0 and mark[t] != stamp:
                        mark[t] = stamp
                        there[size_there] = t
                        size_there += 1
            here, there, size = there, here, size_there
    return met


@kernel
def expected_totals(tables, chances, start, policy, totals):  # type: ignore[no-untyped-def]
    """Fill `totals` (n, 1 + m): E[Σ_h r_h] and E[Σ_h u_h] of a table π (H, S, A) on each trace, over π's randomness.

        m_{h+1}(s') = Σ_{s,a} m_h(s) π_h(a|s) 1{s' = f(s, a, w_h)},   total = Σ_h Σ_{s,a} m_h(s) π_h(a|s) g(s, a, w_h)

    What cannot be replayed adds nothing from there on, so that totals are lower bounds. Only states that are reached
    are visited.
    """
    next_states, signals = tables
    (n, H), (_, S, A), num_signals = chances.shape, policy.shape, signals.shape[3]
    here, there = np.empty(S, dtype=np.int64), np.empty(S, dtype=np.int64)
    mass, mass_there = np.zeros(S), np.zeros(S)
    for i in range(n):
        here[0], size, mass[start] = start, 1, 1.0
        for g in range(num_signals):
            totals[i, g] = 0.0
        for h in range(H):
            c, size_there = chances[i, h], 0
            if c < 0:
                break
            for k in range(size):
                s = here[k]
                m, mass[s] = mass[s], 0.0
                for a in range(A):
                    p = m * policy[h, s, a]
                    t = next_states[c, s, a]
                    if p > 0.0 and t >= 0:
                        for g in range(num_signals):
                            totals[i, g] += p * signals[c, s, a, g]
                        if mass_there[t] == 0.0:
                            there[size_there] = t
                            size_there += 1
                        mass_there[t] += p
            here, there, size = there, here, size_there
            mass, mass_there = mass_there, mass
        for k in range(size):
            mass[here[k]] = 0.0


@kernel
def follows(tables, chances, states, actions, signals, tolerance):  # type: ignore[no-untyped-def]
    """Whether an episode is what the moves make of a trace (H,): states (H + 1,), actions (H,), signals (H, 1 + m)."""
    for h in range(chances.shape[0]):
        c, s, a = chances[h], states[h], actions[h]
        if c < 0 or tables.next_states[c, s, a] != states[h + 1]:
            return False
        for g in range(signals.shape[1]):
            if not abs(tables.signals[c, s, a, g] - signals[h, g]) <= tolerance:
                return False
    return True


@kernel
def totals_of_all(tables, chances, start, policies, totals):  # type: ignore[no-untyped-def]
    """The same for several tables (P, H, S, A): `totals` (P, n, 1 + m)."""
    for j in range(policies.shape[0]):
        expected_totals(tables, chances, start, policies[j], totals[j])
