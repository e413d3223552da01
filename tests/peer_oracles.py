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


# ---- Bura et al. 2022


def dope_authors(task: Any, counts: np.ndarray, K: int, delta: float, m: float) -> float | None:
    """The value of the optimistic-pessimistic problem; None where the incumbent is deployed."""
    H, S, A = task.reward.shape
    if counts[0].sum() < m**2 * S**2 * A * H**3 / task.slack**2:
        return None
    L = math.log(2 * S * A * H * K / delta)
    n = np.maximum(counts.sum(axis=3, keepdims=True), 1)
    p = counts / n
    radius = m * np.minimum(1, np.sqrt(4 * p * (1 - p) * L / n) + 14 * L / (3 * n))
    gain = task.reward + H**2 / task.slack * radius.sum(axis=3)
    safety = task.utility - H * radius.sum(axis=3)
    return best_value(
        points(box_rows(empirical(counts), radius, counts), gain, safety, task.initial_state), task.threshold
    )


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


def optdual(
    task: Any, all_counts: list[np.ndarray], K: int, delta: float, m: float
) -> list[tuple[np.ndarray, float, float]]:
    """π_k, λ_k and the V^u that it is promised, for the counts before each episode."""
    H, S, A = task.reward.shape
    rho = H / task.slack
    lam, found = 0.0, []
    for counts in all_counts:
        rows = box_rows(empirical(counts), efroni_radius(counts, K, delta, m), counts)
        policy, V = np.zeros((H, S, A)), np.zeros((S, 2))
        for h in reversed(range(H)):
            here = np.zeros((S, 2))
            for s in range(S):
                best = -math.inf
                for a in range(A):
                    row = max(rows[h, s, a], key=lambda row: np.array(row) @ (V @ [1, lam]))
                    Q = np.array([task.reward[h, s, a], task.utility[h, s, a]]) + np.array(row) @ V
                    if Q @ [1, lam] > best:
                        best, here[s], policy[h, s] = Q @ [1, lam], Q, np.eye(A)[a]
            V = here
        promised = V[task.initial_state, 1]
        found.append((policy, lam, promised))
        lam = max(0.0, lam + (task.threshold - promised) / math.sqrt(H**2 * K / rho**2))
    return found


def clipped(P: np.ndarray, gain: np.ndarray, safety: np.ndarray, limits: list[float], choose: Any) -> Any:
    """Q^r and Q^u, clipped above, of a policy that is chosen row by row; and the policy and V^u at step 0."""
    H, S, A = gain.shape
    Q, policy, V = np.zeros((H, S, A, 2)), np.zeros((H, S, A)), np.zeros((S, 2))
    for h in reversed(range(H)):
        for s, a in itertools.product(range(S), range(A)):
            Q[h, s, a] = [min(g[h, s, a] + P[h, s, a] @ V[:, j], limits[h]) for j, g in enumerate((gain, safety))]
        for s in range(S):
            policy[h, s] = choose(h, s, Q[h, s])
        V = np.array([policy[h, s] @ Q[h, s] for s in range(S)])
    return Q, policy, V[:, 1]


def optprimaldual(
    task: Any, all_counts: list[np.ndarray], K: int, delta: float, m: float
) -> list[tuple[np.ndarray, float, float]]:
    """π_k, λ_k and the clipped V^u of π_k, for the counts before each episode."""
    H, S, A = task.reward.shape
    rho = H / task.slack
    t_policy, t_dual = math.sqrt(2 * math.log(A) / (H**2 * (1 + rho) ** 2 * K)), math.sqrt(H**2 * K / rho**2)
    policy, lam, found = np.full((H, S, A), 1 / A), 0.0, []
    for counts in all_counts:
        bonus = H * efroni_radius(counts, K, delta, m).sum(axis=3)
        limits = [H - h for h in range(H)]
        now = policy
        Q, _, V_u = clipped(
            empirical(counts), task.reward + bonus, task.utility + bonus, limits, lambda h, s, _, now=now: now[h, s]
        )
        found.append((policy, lam, V_u[task.initial_state]))
        policy = policy * np.exp(t_policy * (Q[..., 0] + lam * Q[..., 1]))
        policy = policy / policy.sum(axis=2)[:, :, None]
        lam = max(0.0, lam + (task.threshold - V_u[task.initial_state]) / t_dual)
    return found


def optpess_primaldual(
    task: Any, all_counts: list[np.ndarray], K: int, delta: float, m: float
) -> list[tuple[np.ndarray, float, float]]:
    """π_k, λ_k/η_k and the clipped V^u of π_k, for the counts before each episode: k − 1 were seen before it."""
    H, S, A = task.reward.shape
    Z, small = math.log(16 * S * S * A * H * K / delta), delta / (S * S * A * H)
    lam, found = 0.0, []
    for counts in all_counts:
        k = counts[0].sum() + 1
        bonus = m * (1 + S * H) * np.sqrt(Z / np.maximum(counts.sum(axis=3), 1))
        weight = lam / (task.slack * H * math.sqrt(k))
        _, policy, V_u = clipped(
            empirical(counts), task.reward + bonus, task.utility + bonus, [H] * H,
            lambda h, s, Q, weight=weight: np.eye(A)[int(np.argmax(Q[:, 0] + weight * Q[:, 1]))],
        )  # fmt: skip
        promised = V_u[task.initial_state]
        found.append((policy, weight, promised))
        pessimism = 5 * H**2 * math.sqrt(S**3 * A) * (math.log(k / small) + 1) / math.sqrt(k * math.log(k / small))
        lam = max(0.0, lam + task.threshold + m * pessimism - promised)
    return found


# ---- Ding et al. 2021


def opdop(
    task: Any, all_counts: list[np.ndarray], K: int, delta: float, m: float
) -> list[tuple[np.ndarray, float, float]]:
    """π^k, the Y^{k−1} that made it, and V_g^k, for the counts before each episode k = 1, 2, …

    α is that of Lemmas 3 and 4, √(ln A)/(H²√K): Theorem 2 prints H²K, with which the proof does not hold.
    """
    H, S, A = task.reward.shape
    alpha, eta, theta, chi = math.sqrt(math.log(A)) / (H**2 * math.sqrt(K)), 1 / math.sqrt(K), 1 / K, 2 * H / task.slack
    beta = m * H * math.sqrt(S * math.log(S * A * H * K / delta))
    policy, Q, Y, V_g = np.full((H, S, A), 1 / A), np.zeros((H, S, A, 2)), 0.0, task.threshold
    found = []
    for counts in all_counts:
        now = np.zeros((H, S, A))
        for h, s in itertools.product(range(H), range(S)):
            mixed = (1 - theta) * policy[h, s] + theta / A
            now[h, s] = mixed * np.exp(alpha * (Q[h, s, :, 0] + Y * Q[h, s, :, 1]))
            now[h, s] /= now[h, s].sum()
        made_by, Y = Y, min(max(0.0, Y + eta * (task.threshold - V_g)), chi)
        n = counts.sum(axis=3) + 1
        gamma = beta * n**-0.5
        P = counts / n[..., None]
        Q, policy, V = clipped(
            P, task.reward + gamma, task.utility + gamma, [H - h for h in range(H)], lambda h, s, _, now=now: now[h, s]
        )
        V_g = float(V[task.initial_state])
        found.append((policy, made_by, V_g))
    return found


# ---- Jin et al. 2020 and Ghosh et al. 2022, one-hot features: Λ = n + 1


def lsvi_ucb(task: Any, counts: np.ndarray, K: int, delta: float, m: float) -> np.ndarray:
    """The greedy policy; actions whose values differ by less than 1e-7 are taken alike."""
    H, S, A = task.reward.shape
    d = S * A
    beta = m * d * H * math.sqrt(math.log(2 * d * K * H / delta))
    policy, V = np.zeros((H, S, A)), np.zeros(S)
    for h in reversed(range(H)):
        here = np.zeros(S)
        for s in range(S):
            Q = np.zeros(A)
            for a in range(A):
                n = counts[h, s, a].sum() + 1
                later = counts[h, s, a] @ V / n + beta / math.sqrt(n)
                Q[a] = task.reward[h, s, a] + min(max(later, 0.0), H - 1 - h)
            best = Q > Q.max() - 1e-7
            policy[h, s], here[s] = best / best.sum(), Q.max()
        V = here
    return policy


def ghosh2022(
    task: Any, all_counts: list[np.ndarray], K: int, delta: float, m: float
) -> list[tuple[np.ndarray, float, float]]:
    """π_k, λ_k and the optimistic V^u of π_k, for the counts before each episode."""
    H, S, A = task.reward.shape
    d = S * A
    beta = m * d * H * math.sqrt(math.log(4 * math.log(A) * d * K * H / delta))
    alpha, eta, largest = K / H, 10 / math.sqrt(K * H**2), 2 * H / task.slack
    lam, found = 0.0, []
    for counts in all_counts:
        policy, V_r, V_u = np.zeros((H, S, A)), np.zeros(S), np.zeros(S)
        for h in reversed(range(H)):
            next_r, next_u = np.zeros(S), np.zeros(S)
            for s in range(S):
                Q_r, Q_u = np.zeros(A), np.zeros(A)
                for a in range(A):
                    n = counts[h, s, a].sum() + 1
                    later = [counts[h, s, a] @ V / n + beta / math.sqrt(n) for V in (V_r, V_u)]
                    left = H - 1 - h
                    Q_r[a] = task.reward[h, s, a] + min(max(later[0], 0.0), left * (1 + math.log(A) / alpha))
                    Q_u[a] = task.utility[h, s, a] + min(max(later[1], 0.0), left)
                logits = alpha * (Q_r + lam * Q_u)
                log_pi = logits - logits.max()
                log_pi = log_pi - math.log(np.exp(log_pi).sum())
                policy[h, s] = np.exp(log_pi)
                next_r[s], next_u[s] = policy[h, s] @ (Q_r - log_pi / alpha), policy[h, s] @ Q_u
            V_r, V_u = next_r, next_u
        promised = float(V_u[task.initial_state])
        found.append((policy, lam, promised))
        lam = min(max(0.0, lam + eta * (task.threshold - promised)), largest)
    return found


# ---- Li et al. 2023


def mixing_bounds(
    task: Any, counts: np.ndarray, delta: float, m: float, choose: Any
) -> tuple[float, float, np.ndarray]:
    """Ṽ^r(s₁), V̲^u(s₁) and the policy that `choose` makes, state by state, of Q̃^r and Q̲^u."""
    H, S, A = task.reward.shape
    P, policy = empirical(counts), np.zeros((H, S, A))
    high, low = np.zeros((2, S)), np.zeros((2, S))  # of reward and utility
    for h in reversed(range(H)):
        up, down = np.zeros((2, S, A)), np.zeros((2, S, A))
        for j, s, a in itertools.product(range(2), range(S), range(A)):
            g, n, p = (task.reward, task.utility)[j][h, s, a], counts[h, s, a].sum(), P[h, s, a]
            if n == 0:
                up[j, s, a], down[j, s, a] = H, 0
                continue
            beta = math.log(S * A * H / delta) + S * math.log(8 * math.e * (n + 1))
            star = math.log(S * A * H / delta) + math.log(8 * math.e * (n + 1))
            variance = sum(p[t] * (high[j, t] - p @ high[j]) ** 2 for t in range(S))
            spread, gap = 3 * math.sqrt(variance * star / n), p @ (high[j] - low[j])
            up[j, s, a] = min(H, g + m * (spread + 14 * H**2 * beta / n + gap / H) + p @ high[j])
            down[j, s, a] = max(0, g - m * (spread + 22 * H**2 * beta / n + 2 * gap / H) + p @ low[j])
        for s in range(S):
            policy[h, s] = choose(h, s, up[0, s], down[1, s])
        high = np.array([[policy[h, s] @ up[j, s] for s in range(S)] for j in range(2)])
        low = np.array([[policy[h, s] @ down[j, s] for s in range(S)] for j in range(2)])
    return float(high[0, task.initial_state]), float(low[1, task.initial_state]), policy


LAMBDAS = (0, 0.05, 0.2, 0.7, 2.5, 10, 40)


def _candidates(task: Any, counts: np.ndarray, delta: float, m: float) -> Any:
    """The bounds of any table, those of the incumbent, and each candidate with its bounds."""
    A = task.num_actions

    def of(table: np.ndarray) -> tuple[float, float, np.ndarray]:
        return mixing_bounds(task, counts, delta, m, lambda h, s, *_: table[h, s])

    safe = of(task.safe_policy.table())
    safe = safe[0], max(safe[1], task.threshold + task.slack), safe[2]
    greedy = [
        mixing_bounds(task, counts, delta, m, lambda h, s, r, u, lam=lam: np.eye(A)[int(np.argmax(r + lam * u))])
        for lam in LAMBDAS
    ]
    return of, safe, greedy


def first_largest(found: list[tuple[float, Any]]) -> Any:
    """Of pairs (reward, what has it) the first with the largest reward, up to 1e-9."""
    most = max(reward for reward, _ in found)
    return next(one for reward, one in found if reward > most - 1e-9)


def epsmix(task: Any, counts: np.ndarray, delta: float, m: float) -> tuple[float, np.ndarray]:
    """The probability of the candidate of the best coin, and that candidate."""
    b = task.threshold
    _, safe, greedy = _candidates(task, counts, delta / 4, m)
    coins = []
    for reward, utility, policy in greedy:
        rho = 1.0 if utility >= b else (safe[1] - b) / (safe[1] - utility)
        coins.append((rho * reward + (1 - rho) * safe[0], (rho, policy)))
    return first_largest(coins)


def stepmix(task: Any, counts: np.ndarray, delta: float, m: float) -> np.ndarray:
    """The policy to be deployed."""
    b, H = task.threshold, task.horizon
    of, safe, greedy = _candidates(task, counts, delta / (3 * (H + 1)), m)
    found = []
    for candidate in greedy:
        stepped = [candidate]
        while stepped[-1][1] < b:
            j = len(stepped)
            stepped.append(safe if j == H else of(np.concatenate([safe[2][:j], candidate[2][j:]])))
        now, before = stepped[-1], stepped[-2:][0]
        rho = 0.0 if before is now else (now[1] - b) / (now[1] - before[1])
        found.append(((1 - rho) * now[0] + rho * before[0], (1 - rho) * now[2] + rho * before[2]))
    return first_largest(found)


# ---- Wei et al. 2022


def triple_q(task: Any, episodes: Any, K: int, m: float) -> list[tuple[np.ndarray, float]]:
    """The policy before each episode, and Z/η."""
    H, S, A = task.reward.shape
    chi = eta = K**0.2
    iota = m**2 * 128 * math.log(math.sqrt(2 * S * A * H) * K)
    epsilon = 8 * math.sqrt(S * A * H**6 * iota**3) / K**0.2
    frame = math.ceil(K**0.6)
    Q, C, N = (np.full((H, S, A), float(x)) for x in (H, H, 0))
    Z = C_bar = 0.0
    found = []
    for k, (states, actions) in enumerate(episodes):
        greedy = {(h, s): int(np.argmax(Q[h, s] + Z / eta * C[h, s])) for h in range(H) for s in range(S)}
        found.append((np.array([[np.eye(A)[greedy[h, s]] for s in range(S)] for h in range(H)]), Z / eta))
        before_Q, before_C = Q.copy(), C.copy()
        C_bar += C[0, states[0], actions[0]]
        for h in range(H):
            x, a = states[h], actions[h]
            N[h, x, a] += 1
            alpha = (chi + 1) / (chi + N[h, x, a])
            b = 0.25 * math.sqrt(H**2 * iota * (chi + 1) / (chi + N[h, x, a]))
            V = W = 0.0
            if h + 1 < H:
                y = states[h + 1]
                V, W = before_Q[h + 1, y, greedy[h + 1, y]], before_C[h + 1, y, greedy[h + 1, y]]
            Q[h, x, a] = (1 - alpha) * Q[h, x, a] + alpha * (task.reward[h, x, a] + V + b)
            C[h, x, a] = (1 - alpha) * C[h, x, a] + alpha * (task.utility[h, x, a] + W + b)
        if (k + 1) % frame == 0:
            Z = max(0.0, Z + task.threshold + epsilon - C_bar / frame)
            Q, C, N, C_bar = np.full((H, S, A), float(H)), np.full((H, S, A), float(H)), np.zeros((H, S, A)), 0.0
    return found


# ---- OPSE without one of its parts, one-hot features


def ablated(task: Any, counts: np.ndarray, said: Any, part: str) -> tuple[np.ndarray, float, float] | None:
    """The policy, λ and V̲^u of Algorithm 2 without `part`; None for the incumbent."""
    H, S, A = task.reward.shape
    kappa, counted = (1e-10, 1.0) if part == "randomness" else (said.kappa, 0.0 if part == "entropy" else 1.0)
    C_dagger, B_dagger = (0.0, 0.0) if part == "compensation" else (said.C_dagger, said.B_dagger)

    def evaluate(lam: float) -> tuple[np.ndarray, float, float]:
        policy, V = np.zeros((H, S, A)), np.zeros((3, S))
        for h in reversed(range(H)):
            here, left = np.zeros((3, S)), H - 1 - h
            tops = ((1 + counted * kappa * math.log(A)) * left, B_dagger * left, left)
            for s in range(S):
                Q = np.zeros((3, A))
                for a in range(A):
                    n = counts[h, s, a].sum() + said.ridge
                    beta = 1 / math.sqrt(n)
                    known = task.reward[h, s, a], B_dagger * beta, task.utility[h, s, a]
                    for j, scale in enumerate((said.C_r, C_dagger, -said.C_u)):
                        Q[j, a] = known[j] + min(max(scale * beta + counts[h, s, a] @ V[j] / n, 0.0), tops[j])
                logits = (Q[0] + Q[1] + lam * Q[2]) / kappa
                log_pi = logits - logits.max()
                log_pi = log_pi - math.log(np.exp(log_pi).sum())
                policy[h, s] = np.exp(log_pi)
                here[:, s] = Q @ policy[h, s]
                here[0, s] -= counted * kappa * (policy[h, s] @ log_pi)
            V = here
        return policy, lam, float(V[2, task.initial_state])

    if part != "incumbent" and evaluate(said.lam_max)[2] < task.threshold:
        return None
    if evaluate(0.0)[2] >= task.threshold:
        return evaluate(0.0)
    lower, upper = 0.0, said.lam_max
    for _ in range(said.num_halvings):
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if evaluate(middle)[2] >= task.threshold else (middle, upper)
    return evaluate(upper)
