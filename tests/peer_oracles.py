"""Slow and obvious versions of the peers in `episafe.agents`, written from their formulas alone.

Nothing here is imported from the library under test. Shapes are those of `oracles.py`: P (H, S, A, S), reward and
utility (H, S, A), policies (H, S, A), counts (H, S, A, S); steps are 0-based. Problems are so small that all
deterministic policies, and all vertices of a box of kernels, can be listed.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

Point = tuple[float, float]


def empirical(counts: np.ndarray) -> np.ndarray:
    """n(s,a,s')/n(s,a), and 1/S where n(s,a) = 0."""
    H, S, A, _ = counts.shape
    P = np.full((H, S, A, S), 1 / S)
    for h, s, a in itertools.product(range(H), range(S), range(A)):
        if counts[h, s, a].sum() > 0:
            P[h, s, a] = counts[h, s, a] / counts[h, s, a].sum()
    return P


def values(P: np.ndarray, g: np.ndarray, policy: np.ndarray, start: int) -> float:
    """V^{π,g}(s₁) by backward induction."""
    V = np.zeros(g.shape[1])
    for h in reversed(range(g.shape[0])):
        V = np.array(
            [sum(policy[h, s, a] * (g[h, s, a] + P[h, s, a] @ V) for a in range(g.shape[2])) for s in range(len(V))]
        )
    return float(V[start])


def points(rows: Any, reward: np.ndarray, utility: np.ndarray, start: int) -> list[Point]:
    """(V^u, V^r) at s₁ of every deterministic choice of an action and of one of `rows[h, s, a]` everywhere."""
    H, S, A = reward.shape
    after: list[list[Point]] = [[(0.0, 0.0)] for _ in range(S)]
    for h in reversed(range(H)):
        here: list[list[Point]] = []
        for s in range(S):
            found = []
            for a in range(A):
                if h == H - 1:
                    found.append((utility[h, s, a], reward[h, s, a]))
                    continue
                for row, later in itertools.product(rows[h, s, a], itertools.product(*after)):
                    gains = np.array(row) @ np.array(later)
                    found.append((utility[h, s, a] + gains[0], reward[h, s, a] + gains[1]))
            here.append(found)
        after = here
    return after[start]


def best_value(attainable: list[Point], threshold: float) -> float | None:
    """The largest V^r of a mixture of two points with V^u ≥ b; None where no point reaches b."""
    u, r = np.array(attainable).T
    above = u >= threshold
    if not above.any():
        return None
    best = float(r[above].max())
    if not above.all():
        u_a, r_a, u_b, r_b = u[above][:, None], r[above][:, None], u[~above], r[~above]
        share = (threshold - u_b) / (u_a - u_b)
        best = max(best, float((share * r_a + (1 - share) * r_b).max()))
    return best


def box_rows(P: np.ndarray, radius: np.ndarray, counts: np.ndarray) -> Any:
    """The vertices of the box around each row: lower bounds, then all that is left to the first of some order."""
    rows = np.empty(P.shape[:3], dtype=object)
    for place in np.ndindex(*P.shape[:3]):
        seen = counts[place].sum() > 0
        lower = np.clip(P[place] - radius[place], 0, 1) if seen else np.zeros(P.shape[3])
        upper = np.clip(P[place] + radius[place], 0, 1) if seen else np.ones(P.shape[3])
        found = []
        for order in itertools.permutations(range(P.shape[3])):
            row = lower.copy()
            for t in order:
                row[t] += min(upper[t] - row[t], 1 - row.sum())
            found.append(tuple(row))
        rows[place] = list(dict.fromkeys(found))
    return rows


def kernel_rows(P: np.ndarray) -> Any:
    """P as the only row everywhere."""
    rows = np.empty(P.shape[:3], dtype=object)
    for place in np.ndindex(*P.shape[:3]):
        rows[place] = [tuple(P[place])]
    return rows


# ---- Liu et al. 2021


def optpess_lp(
    task: Any, counts: np.ndarray, K: int, delta: float, m: float
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """The signals of the problem, and its value; None where the incumbent is deployed."""
    H, S, A = task.reward.shape
    Z = math.log(16 * S * S * A * H * K / delta)
    beta = np.array([m * math.sqrt(Z / max(n, 1)) for n in counts.sum(axis=3).ravel()]).reshape(H, S, A)
    cost = 1 - task.utility + (1 + S * H) * beta  # the paper's form: V^c ≤ τ, V^c(π⁰) = c⁰
    gain = task.reward + (1 + S * H + 4 * H * (1 + S * H) / task.slack) * beta
    limit, known = H - task.threshold, H - task.threshold - task.slack
    P = empirical(counts)
    if values(P, cost, task.safe_policy.table(), task.initial_state) >= (limit + known) / 2:
        return gain, 1 - cost, None
    found = points(kernel_rows(P), gain, -cost, task.initial_state)
    return gain, 1 - cost, best_value(found, -limit)


# ---- Efroni et al. 2020


def efroni_radius(counts: np.ndarray, K: int, delta: float, m: float) -> np.ndarray:
    """2√(p̂(1−p̂)L/(n∨1)) + 14L/(3(n∨1)), L = ln(6SAHK/δ), with p̂ = 0 where n = 0."""
    H, S, A, _ = counts.shape
    L = math.log(6 * S * A * H * K / delta)
    n = np.maximum(counts.sum(axis=3, keepdims=True), 1)
    p = counts / n
    return m * (2 * np.sqrt(p * (1 - p) * L / n) + 14 * L / (3 * n))


def optcmdp(task: Any, counts: np.ndarray, K: int, delta: float, m: float) -> float | None:
    """The value of the extended linear program."""
    rows = box_rows(empirical(counts), efroni_radius(counts, K, delta, m), counts)
    return best_value(points(rows, task.reward, task.utility, task.initial_state), task.threshold)


def optcmdp_bonus(
    task: Any, counts: np.ndarray, K: int, delta: float, m: float
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """The signals of the problem on P̂, and its value."""
    bonus = task.horizon * efroni_radius(counts, K, delta, m).sum(axis=3)
    gain, safety = task.reward + bonus, task.utility + bonus
    found = points(kernel_rows(empirical(counts)), gain, safety, task.initial_state)
    return gain, safety, best_value(found, task.threshold)
