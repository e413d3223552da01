"""Slow and obvious reference answers, transcribed from the paper alone.

Nothing here is imported from the library under test. Arrays are float64 and steps are 0-based: the paper's
h = 1..H is h = 0..H-1 here, so the paper's "H - h" (steps left after this one) is written H - 1 - h.

Shapes: phi (S, A, d), P (H, S, A, S), reward and utility (H, S, A), policy (H, S, A), counts (H, S, A, S).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

Episode = tuple[np.ndarray, np.ndarray]
"""One episode: states (H+1,) and actions (H,), both integers."""


class Constants(Protocol):
    """The input line of Alg. 2: lam_max is C_λ, num_halvings is T, ridge is ρ."""

    @property
    def C_r(self) -> float: ...  # noqa: N802
    @property
    def C_u(self) -> float: ...  # noqa: N802
    @property
    def C_dagger(self) -> float: ...  # noqa: N802
    @property
    def B_dagger(self) -> float: ...  # noqa: N802
    @property
    def kappa(self) -> float: ...
    @property
    def lam_max(self) -> float: ...
    @property
    def num_halvings(self) -> int: ...
    @property
    def ridge(self) -> float: ...
    @property
    def curve(self) -> float: ...
    @property
    def spread(self) -> float: ...


# ---------------------------------------------------------------------------------------------------------
# Exact values and constrained optima of a known CMDP
# ---------------------------------------------------------------------------------------------------------


def trajectory_value(P: np.ndarray, policy: np.ndarray, g: np.ndarray, initial_state: int) -> float:
    """V^{π,g}_{P,1}(s₁) = Σ_{trajectories} ℙ(trajectory) · Σ_h g_h(s_h, a_h).

    Par. "Policy and (regularized) value functions" with κ = 0.
    Every trajectory s₁ a₁ … s_H a_H s_{H+1} is visited once, carrying its probability and its sum of g.
    """
    H, S, A = g.shape

    def expected_total(h: int, s: int, probability: float, total: float) -> float:
        if h == H:
            return probability * total
        answer = 0.0
        for a in range(A):
            for next_state in range(S):
                step_probability = float(policy[h, s, a] * P[h, s, a, next_state])
                if step_probability > 0.0:
                    next_total = total + float(g[h, s, a])
                    answer += expected_total(h + 1, next_state, probability * step_probability, next_total)
        return answer

    return expected_total(0, initial_state, 1.0, 0.0)


def _deterministic_value(P: np.ndarray, actions: np.ndarray, g: np.ndarray, initial_state: int) -> float:
    """V_h(s) = g_h(s, a) + Σ_{s'} P_h(s'|s, a) V_{h+1}(s') with a = actions[h, s] and V_{H+1} = 0."""
    H, S, _ = g.shape
    V = np.zeros(S)
    for h in reversed(range(H)):
        next_V = V
        V = np.zeros(S)
        for s in range(S):
            a = actions[h, s]
            V[s] = g[h, s, a] + P[h, s, a] @ next_V
    return float(V[initial_state])


def _all_deterministic_policies(H: int, S: int, A: int) -> Iterator[np.ndarray]:
    """All A^(H·S) tables of actions (H, S)."""
    for choice in itertools.product(range(A), repeat=H * S):
        yield np.array(choice).reshape(H, S)


def brute_force_optimum(
    P: np.ndarray, reward: np.ndarray, utility: np.ndarray, threshold: float, initial_state: int
) -> float:
    """max_{π ∈ Π} V^{π,r}(s₁) such that V^{π,u}(s₁) ≥ b (the value of π* in Sec. "Learning Setup").

    The achievable (V_u, V_r) are the convex hull of those of the deterministic Markov policies, so the best
    feasible point is either one such vertex with V_u ≥ b, or a mixture of two that meets V_u = b exactly.
    Vertices within 1e-12 of b count as feasible. Returns -inf when no vertex is feasible.
    """
    H, S, A = reward.shape
    points = []
    for actions in _all_deterministic_policies(H, S, A):
        V_u = _deterministic_value(P, actions, utility, initial_state)
        V_r = _deterministic_value(P, actions, reward, initial_state)
        points.append((V_u, V_r))
    feasible = [point for point in points if point[0] >= threshold - 1e-12]
    infeasible = [point for point in points if point[0] < threshold - 1e-12]

    best = -np.inf
    for _, V_r in feasible:
        best = max(best, V_r)
    for safe_u, safe_r in feasible:
        for unsafe_u, unsafe_r in infeasible:
            weight = min(1.0, (threshold - unsafe_u) / (safe_u - unsafe_u))
            best = max(best, weight * safe_r + (1.0 - weight) * unsafe_r)
    return float(best)


def lp_optimum(P: np.ndarray, reward: np.ndarray, utility: np.ndarray, threshold: Any, initial_state: int) -> float:
    """max_{w ≥ 0} Σ w r such that Σ w u ≥ b and w is an occupancy measure (eq. "occupancy measure").

    Σ_a w_1(s,a) = 1{s = s₁} and Σ_a w_{h+1}(s',a) = Σ_{s,a} P_h(s'|s,a) w_h(s,a). With several constraints the utility
    is (m, H, S, A) and the threshold (m,).
    """
    H, S, A = reward.shape
    # Block row h says which state mass must be found at step h; block column h holds the w_h(s, a).
    blocks: list[list[Any]] = [[None] * H for _ in range(H)]
    for h in range(H):
        blocks[h][h] = sparse.kron(sparse.identity(S), np.ones((1, A)))
        if h + 1 < H:
            blocks[h + 1][h] = sparse.csr_matrix(-P[h].reshape(S * A, S).T)
    mass = np.zeros((H, S))
    mass[0, initial_state] = 1.0
    result = linprog(
        -reward.reshape(-1),
        A_ub=sparse.csr_matrix(-utility.reshape(-1, H * S * A)),
        b_ub=-np.atleast_1d(threshold),
        A_eq=sparse.bmat(blocks, format="csr"),
        b_eq=mass.reshape(-1),
        bounds=(0.0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status != 0:
        raise RuntimeError(result.message)
    return float(-result.fun)


def box_value(
    signal: np.ndarray, policy: np.ndarray, lower: np.ndarray, upper: np.ndarray, initial_state: int, sign: int
) -> float:
    """The least (sign 1) or largest (sign −1) V(s₁) of a table over a box of kernels: a linear program for each row."""
    H, S, A = signal.shape
    V = np.zeros(S)
    for h in reversed(range(H)):
        Q = signal[h].copy()
        for s, a in itertools.product(range(S), range(A)):
            if h + 1 < H:
                step = min(h, len(lower) - 1)
                bounds = np.stack([lower[step, s, a], upper[step, s, a]], axis=1)
                Q[s, a] += sign * linprog(sign * V, A_eq=np.ones((1, S)), b_eq=[1.0], bounds=bounds).fun
        V = (policy[h] * Q).sum(axis=1)
    return float(V[initial_state])


# ---------------------------------------------------------------------------------------------------------
# Clipped value functions and the composite softmax policy
# ---------------------------------------------------------------------------------------------------------


class Evaluation(NamedTuple):
    """π^{λ} (H, S, A) and its clipped utility, reward and † values at s₁."""

    policy: np.ndarray
    V_u: float
    V_r: float
    V_dagger: float


def gram_matrix(phi: np.ndarray, episodes: Sequence[Episode], h: int, ridge: float) -> np.ndarray:
    """Λ_h = ρ I + Σ_i φ(s_h^i, a_h^i) φ(s_h^i, a_h^i)ᵀ."""
    d = phi.shape[2]
    gram = ridge * np.eye(d)
    for states, actions in episodes:
        feature = phi[states[h], actions[h]]
        gram = gram + np.outer(feature, feature)
    return gram


def elliptical_bonus(phi: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """β_h(s, a) = √(φ(s,a)ᵀ Λ_h⁻¹ φ(s,a)), shape (S, A)."""
    S, A, _ = phi.shape
    bonus = np.zeros((S, A))
    for s in range(S):
        for a in range(A):
            bonus[s, a] = np.sqrt(phi[s, a] @ np.linalg.solve(gram, phi[s, a]))
    return bonus


def predicted_value(
    phi: np.ndarray, episodes: Sequence[Episode], h: int, gram: np.ndarray, V: np.ndarray
) -> np.ndarray:
    """(P̂_h V)(s, a) = φ(s,a)ᵀ Λ_h⁻¹ Σ_i φ(s_h^i, a_h^i) V(s_{h+1}^i), shape (S, A)."""
    S, A, d = phi.shape
    target = np.zeros(d)
    for states, actions in episodes:
        target = target + phi[states[h], actions[h]] * V[states[h + 1]]
    weights = np.linalg.solve(gram, target)
    prediction = np.zeros((S, A))
    for s in range(S):
        for a in range(A):
            prediction[s, a] = phi[s, a] @ weights
    return prediction


def shaped_bonus(
    phi: np.ndarray, episodes: Sequence[Episode], h: int, gram: np.ndarray, V: np.ndarray, constants: Constants
) -> np.ndarray:
    """β(1 − spread + spread·σ) + curve·β² (S, A), σ² = P̂V² − (P̂V)² for one-hot features, 1 for any other."""
    S, A, d = phi.shape
    beta, sigma = elliptical_bonus(phi, gram), np.ones((S, A))
    if d == S * A and np.array_equal(phi.reshape(d, d), np.eye(d)):
        mean, square = (predicted_value(phi, episodes, h, gram, values) for values in (V, V**2))
        sigma = np.sqrt(np.maximum(square - mean**2, 0))
    return np.asarray(beta * (1 - constants.spread + constants.spread * sigma) + constants.curve * beta**2)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """ln softmax(x)_a = (x_a − max x) − ln Σ_{a'} exp(x_{a'} − max x)."""
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))


def composite_softmax(
    phi: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    episodes: Sequence[Episode],
    constants: Constants,
    lam: float,
    initial_state: int,
    utility_sign: int = -1,
) -> Evaluation:
    """Def. "Clipped value functions" under the policy of Def. "Composite softmax policy" (1-based h).

    Q^r_h = r_h + clip{C_r β_h + P̂_h V^r_{h+1}, 0, (H−h)(1 + κ ln A)},  V^r_h = Σ_a π_h (Q^r_h − κ ln π_h)
    Q^†_h = B_† β_h + clip{C_† β_h + P̂_h V^†_{h+1}, 0, B_† (H−h)},      V^†_h = Σ_a π_h Q^†_h
    Q^u_h = u_h + clip{± C_u β_h + P̂_h V^u_{h+1}, 0, H−h},              V^u_h = Σ_a π_h Q^u_h
    π_h(·|s) = softmax((Q^†_h + Q^r_h + λ Q^u_h)(s, ·) / κ),  V_{H+1} = 0;  ± is utility_sign (paper: −).
    """
    H, S, A = reward.shape
    kappa = constants.kappa
    policy = np.zeros((H, S, A))
    V_r, V_dagger, V_u = np.zeros(S), np.zeros(S), np.zeros(S)
    for h in reversed(range(H)):
        left = H - 1 - h
        gram = gram_matrix(phi, episodes, h, constants.ridge)
        beta_r, beta = (shaped_bonus(phi, episodes, h, gram, V, constants) for V in (V_r, V_u))
        next_r = constants.C_r * beta_r + predicted_value(phi, episodes, h, gram, V_r)
        next_dagger = constants.C_dagger * beta + predicted_value(phi, episodes, h, gram, V_dagger)
        next_u = utility_sign * constants.C_u * beta + predicted_value(phi, episodes, h, gram, V_u)
        Q_r = reward[h] + np.clip(next_r, 0.0, left * (1.0 + kappa * np.log(A)))
        Q_dagger = constants.B_dagger * beta + np.clip(next_dagger, 0.0, constants.B_dagger * left)
        Q_u = utility[h] + np.clip(next_u, 0.0, left)
        V_r, V_dagger, V_u = np.zeros(S), np.zeros(S), np.zeros(S)
        for s in range(S):
            log_policy = log_softmax((Q_dagger[s] + Q_r[s] + lam * Q_u[s]) / kappa)
            policy[h, s] = np.exp(log_policy)
            V_r[s] = np.sum(policy[h, s] * (Q_r[s] - kappa * log_policy))
            V_dagger[s] = np.sum(policy[h, s] * Q_dagger[s])
            V_u[s] = np.sum(policy[h, s] * Q_u[s])
    return Evaluation(policy, *(float(V[initial_state]) for V in (V_u, V_r, V_dagger)))


# ---------------------------------------------------------------------------------------------------------
# One episode of planning
# ---------------------------------------------------------------------------------------------------------


class NaivePlan(NamedTuple):
    """What is deployed: source is "safe", "zero" or "search"; utility_bound is the V^u(s₁) behind it."""

    source: str
    lam: float
    utility_bound: float
    policy: np.ndarray


def bisected(evaluate: Callable[[float], Evaluation], constants: Constants, threshold: float) -> NaivePlan:
    """Alg. 2 from λ = 0 on: π⁰ if it passes, else the upper end after T halvings of [0, C_λ]."""
    at_zero = evaluate(0.0)
    if at_zero.V_u >= threshold:
        return NaivePlan("zero", 0.0, at_zero.V_u, at_zero.policy)
    lower, upper = 0.0, float(constants.lam_max)
    for _ in range(constants.num_halvings):
        middle = (lower + upper) / 2.0
        if evaluate(middle).V_u >= threshold:
            upper = middle
        else:
            lower = middle
    deployed = evaluate(upper)
    return NaivePlan("search", upper, deployed.V_u, deployed.policy)


def opse_plan(
    phi: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    episodes: Sequence[Episode],
    constants: Constants,
    threshold: float,
    initial_state: int,
    safe_policy: np.ndarray,
) -> NaivePlan:
    """Alg. 2, one episode: π^safe if V^u[C_λ] < b, else π⁰ if V^u[0] ≥ b, else π^λ by bisection.

    λ is the upper end of the interval, which starts as [0, C_λ], after T halvings.
    The paper deploys λ̄^{(k,T)}, which ignores the last of the T tests; here all T halvings count.
    """

    def evaluate(lam: float) -> Evaluation:
        return composite_softmax(phi, reward, utility, episodes, constants, lam, initial_state)

    at_max = evaluate(constants.lam_max)
    if at_max.V_u < threshold:
        return NaivePlan("safe", float("nan"), at_max.V_u, safe_policy)
    return bisected(evaluate, constants, threshold)


def ghosh_plan(
    phi: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    episodes: Sequence[Episode],
    constants: Constants,
    threshold: float,
    initial_state: int,
) -> NaivePlan:
    """Par. "Implementations of Ghosh et al. (2024) and DOPE": Alg. 2 with + C_u β, C_† = B_† = 0, no π^safe.

    π⁰ if V^u[0] ≥ b, else the upper end after T halvings of [0, C_λ] (C_λ itself if no midpoint ever passed,
    whether or not V^u[C_λ] ≥ b).
    """
    without_dagger = SimpleNamespace(
        C_r=constants.C_r, C_u=constants.C_u, C_dagger=0.0, B_dagger=0.0, kappa=constants.kappa,
        lam_max=constants.lam_max, num_halvings=constants.num_halvings, ridge=constants.ridge, curve=constants.curve,
        spread=constants.spread,
    )  # fmt: skip

    def evaluate(lam: float) -> Evaluation:
        return composite_softmax(phi, reward, utility, episodes, without_dagger, lam, initial_state, +1)

    return bisected(evaluate, constants, threshold)


def released_softmax(
    phi: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    episodes: Sequence[Episode],
    constants: Constants,
    lam: float,
    initial_state: int,
    pessimistic: bool,
) -> Evaluation:
    """`composite_softmax` as the released code has it: compute_softmax_pol, or compute_softmax_pol_Ghosh.

    Limits have H − h with h from 0, so one step more. The entropy is −κ π ln π before it is averaged by π, also of the
    uniform policy "after" the last step, where Q = 0: V^r = κ ln A / A. Ghosh et al. have no entropy and no †.
    """
    H, S, A = reward.shape
    kappa, ent = constants.kappa, constants.kappa if pessimistic else 0.0
    B_dagger = constants.B_dagger if pessimistic else 0.0
    C_dagger, C_u = (constants.C_dagger, -constants.C_u) if pessimistic else (0.0, constants.C_u)
    Q_r, Q_dagger, Q_u = np.zeros((H + 1, S, A)), np.zeros((H + 1, S, A)), np.zeros((H + 1, S, A))
    policy = np.full((H + 1, S, A), 1 / A)
    for h in reversed(range(H)):
        gram = gram_matrix(phi, episodes, h, constants.ridge)
        beta = elliptical_bonus(phi, gram)
        log_next = np.log(np.maximum(policy[h + 1], 1e-300))
        V_r = np.sum(policy[h + 1] * (Q_r[h + 1] - ent * policy[h + 1] * log_next), axis=1)
        V_dagger, V_u = (np.sum(policy[h + 1] * Q[h + 1], axis=1) for Q in (Q_dagger, Q_u))
        next_r = constants.C_r * beta + predicted_value(phi, episodes, h, gram, V_r)
        next_dagger = C_dagger * beta + predicted_value(phi, episodes, h, gram, V_dagger)
        next_u = C_u * beta + predicted_value(phi, episodes, h, gram, V_u)
        Q_r[h] = reward[h] + np.clip(next_r, 0.0, (1 + ent * np.log(A)) * (H - h))
        Q_dagger[h] = B_dagger * beta + np.clip(next_dagger, 0.0, B_dagger * (H - h))
        Q_u[h] = utility[h] + np.clip(next_u, 0.0, H - h)
        for s in range(S):
            policy[h, s] = np.exp(log_softmax((Q_dagger[h, s] + Q_r[h, s] + lam * Q_u[h, s]) / kappa))
    V_r, V_dagger, V_u = (float(policy[0, initial_state] @ Q[0, initial_state]) for Q in (Q_r, Q_dagger, Q_u))
    return Evaluation(policy[:-1], V_u, V_r, V_dagger)


def released_plan(
    phi: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    episodes: Sequence[Episode],
    constants: Constants,
    threshold: float,
    initial_state: int,
    safe_policy: np.ndarray,
    pessimistic: bool,
) -> NaivePlan:
    """The released loops: π^safe first; then T halvings of [0, C_λ] and its upper end, tested if pessimistic."""

    def evaluate(lam: float) -> Evaluation:
        return released_softmax(phi, reward, utility, episodes, constants, lam, initial_state, pessimistic)

    lower, upper = 0.0, float(constants.lam_max)
    for _ in range(constants.num_halvings):
        middle = (lower + upper) / 2.0
        lower, upper = (lower, middle) if evaluate(middle).V_u >= threshold else (middle, upper)
    deployed = evaluate(upper)
    if len(episodes) == 0 or (pessimistic and deployed.V_u < threshold):
        return NaivePlan("safe", float("nan"), deployed.V_u, safe_policy)
    return NaivePlan("search", upper, deployed.V_u, deployed.policy)


# ---------------------------------------------------------------------------------------------------------
# DOPE
# ---------------------------------------------------------------------------------------------------------


def _empirical_kernel(counts: np.ndarray) -> np.ndarray:
    """p̂_h(s'|s,a) = n_h(s,a,s') / (n_h(s,a) ∨ 1), all zero where n_h(s,a) = 0."""
    H, S, A, _ = counts.shape
    kernel = np.zeros((H, S, A, S))
    for h, s, a in itertools.product(range(H), range(S), range(A)):
        kernel[h, s, a] = counts[h, s, a] / max(float(counts[h, s, a].sum()), 1.0)
    return kernel


def dope_radius(counts: np.ndarray) -> np.ndarray:
    """γ_h(s,a,s') = √(p̂(1−p̂)/(n ∨ 1)) + 1/(n ∨ 1), where p̂ = n_h(s,a,s')/(n ∨ 1) and n = n_h(s,a).

    The paper prints the square root alone, up to "∝"; the 1/(n ∨ 1) is the lower-order term of an empirical
    Bernstein radius, without which an unvisited pair would have γ = 0.
    """
    H, S, A, _ = counts.shape
    kernel = _empirical_kernel(counts)
    radius = np.zeros((H, S, A, S))
    for h, s, a in itertools.product(range(H), range(S), range(A)):
        visits = max(float(counts[h, s, a].sum()), 1.0)
        for next_state in range(S):
            p = kernel[h, s, a, next_state]
            radius[h, s, a, next_state] = np.sqrt(p * (1.0 - p) / visits) + 1.0 / visits
    return radius


def _dope_confidence_rows(counts: np.ndarray) -> sparse.csr_matrix:
    """Rows M with M z ≤ 0 ⇔ max(0, p̂−γ) Σ_y z(s,a,y) ≤ z(s,a,s') ≤ min(1, p̂+γ) Σ_y z(s,a,y)."""
    H, S, A, _ = counts.shape
    kernel, radius = _empirical_kernel(counts), dope_radius(counts)
    blocks = []
    for h, s, a in itertools.product(range(H), range(S), range(A)):
        low = np.maximum(0.0, kernel[h, s, a] - radius[h, s, a])
        high = np.minimum(1.0, kernel[h, s, a] + radius[h, s, a])
        total = np.ones((1, S))
        too_little = low[:, None] @ total - np.eye(S)
        too_much = np.eye(S) - high[:, None] @ total
        blocks.append(sparse.csr_matrix(np.vstack([too_little, too_much])))
    return sparse.csr_matrix(sparse.block_diag(blocks))


def _dope_flow_rows(H: int, S: int, A: int) -> sparse.csr_matrix:
    """Rows of Σ_{a,s'} z_h(s,a,s') − Σ_{s̄,ā} z_{h−1}(s̄,ā,s), one per (h, s); no second sum at h = 1."""
    blocks: list[list[Any]] = [[None] * H for _ in range(H)]
    for h in range(H):
        blocks[h][h] = sparse.kron(sparse.identity(S), np.ones((1, A * S)))
        if h > 0:
            blocks[h][h - 1] = -sparse.kron(np.ones((1, S * A)), sparse.identity(S))
    return sparse.csr_matrix(sparse.bmat(blocks))


def dope_lp(
    counts: np.ndarray,
    reward: np.ndarray,
    utility: np.ndarray,
    C_r: float,
    C_u: float,
    threshold: float,
    initial_state: int,
) -> tuple[float, np.ndarray] | None:
    """Eq. "DOPE-optpes" as the extended LP over z_h(s,a,s') = w_h(s,a) P'_h(s'|s,a) ≥ 0.

    max Σ z (r + C_r β) such that Σ z (u − C_u β) ≥ b, z flows from s₁ and P' is within γ of p̂, with
    β_h(s,a) = Σ_{s'} γ_h(s,a,s'). Returns (optimal value, z), or None when infeasible.
    """
    H, S, A, _ = counts.shape
    beta = dope_radius(counts).sum(axis=3)
    gain = np.repeat((reward + C_r * beta).reshape(-1), S)
    safety = np.repeat((utility - C_u * beta).reshape(-1), S)
    confidence = _dope_confidence_rows(counts)
    mass = np.zeros((H, S))
    mass[0, initial_state] = 1.0
    result = linprog(
        -gain,
        A_ub=sparse.vstack([sparse.csr_matrix(-safety.reshape(1, -1)), confidence], format="csr"),
        b_ub=np.concatenate([[-threshold], np.zeros(confidence.shape[0])]),
        A_eq=_dope_flow_rows(H, S, A),
        b_eq=mass.reshape(-1),
        bounds=(0.0, None),
        method="highs",
    )
    if result.status == 2:
        return None
    if result.status != 0:
        raise RuntimeError(result.message)
    return float(-result.fun), result.x.reshape(H, S, A, S)


# ---------------------------------------------------------------------------------------------------------
# Random problems
# ---------------------------------------------------------------------------------------------------------


def random_cmdp(rng: np.random.Generator, S: int, A: int, H: int, d: int | None = None) -> dict[str, Any]:
    """A random CMDP: keys P, reward, utility, phi and initial_state (a random state).

    d=None: one-hot φ (S, A, S·A), P rows ~ Dirichlet(0.5), reward and utility ~ U[0,1].
    Otherwise Assumption "Linear MDP" with φ(s,a) and μ_h^i drawn from Dirichlet(0.5) over d and over S,
    P_h(s'|s,a) = Σ_i μ_h^i(s') φ_i(s,a), r = θ^rᵀφ and u = θ^uᵀφ with θ ~ U[0,1]^d for every step.
    """
    if d is None:
        phi = np.eye(S * A).reshape(S, A, S * A)
        P = rng.dirichlet(np.full(S, 0.5), size=(H, S, A))
        reward = rng.uniform(size=(H, S, A))
        utility = rng.uniform(size=(H, S, A))
    else:
        phi = rng.dirichlet(np.full(d, 0.5), size=(S, A))
        mu = rng.dirichlet(np.full(S, 0.5), size=(H, d))
        P = np.zeros((H, S, A, S))
        reward, utility = np.zeros((H, S, A)), np.zeros((H, S, A))
        for h in range(H):
            P[h] = phi @ mu[h]
            reward[h] = phi @ rng.uniform(size=d)
            utility[h] = phi @ rng.uniform(size=d)
    P = P / P.sum(axis=3, keepdims=True)
    initial_state = int(rng.integers(S))
    return {"P": P, "reward": reward, "utility": utility, "phi": phi, "initial_state": initial_state}


def random_episodes(
    rng: np.random.Generator, cmdp: dict[str, Any], policy: np.ndarray, num_episodes: int
) -> list[Episode]:
    """a_h ~ π_h(·|s_h) and s_{h+1} ~ P_h(·|s_h, a_h) from s₁, num_episodes times over."""
    H, S, A = policy.shape
    episodes = []
    for _ in range(num_episodes):
        states, actions = np.zeros(H + 1, dtype=int), np.zeros(H, dtype=int)
        states[0] = cmdp["initial_state"]
        for h in range(H):
            actions[h] = rng.choice(A, p=policy[h, states[h]])
            states[h + 1] = rng.choice(S, p=cmdp["P"][h, states[h], actions[h]])
        episodes.append((states, actions))
    return episodes


def search_several(evaluate, b, C_lam, T, rules):
    """Return source and λ (m,) for several limits, as kernels/softmax_decision.py does.

    λ = 0 if it passes. Else bisection on the ray λ = t·(1, …, 1), or λ = 0 where C_λ fails on it. Then m times: the
    multiplier whose V̲ᵘ is furthest from b becomes the least that its own limit needs, given the others, which is a
    step of coordinate descent on the dual. Of the λ found that pass all checks, the one of largest V̄ʳ + V̄†.

    Args:
        evaluate: λ (m,) -> V̄ʳ, V̄†, V̲ᵘ (m,) at s₁.
        b, C_lam, T: thresholds (m,), the largest multiplier, halvings.
        rules: whether λ = 0 is tried and the incumbent is the fallback.
    """
    m, best, most = len(b), None, -np.inf

    def surplus(lam):
        return evaluate(lam)[2:] - b

    def bisected(fixed, direction, limits):
        lower, upper = 0.0, C_lam
        for _ in range(T):
            middle = (lower + upper) / 2
            passes = (evaluate(fixed + middle * direction)[2:] >= b)[limits].all()
            lower, upper = (lower, middle) if passes else (middle, upper)
        return fixed + upper * direction

    lam, last = np.zeros(m), np.full(m, C_lam)
    if rules.ends and (evaluate(lam)[2:] >= b).all():
        return "zero", lam
    if (evaluate(last)[2:] >= b).all():
        best = lam = bisected(lam, np.ones(m), slice(None))
        most = evaluate(lam)[:2].sum()
    for _ in range(m):
        distance = np.where((lam > 0) | (surplus(lam) < 0), np.abs(surplus(lam)), 0.0)
        c = int(distance.argmax())
        own, unit = slice(c, c + 1), np.eye(m)[c]
        others = lam * (1 - unit)
        if distance[c] == 0 or evaluate(others + C_lam * unit)[2 + c] < b[c] > evaluate(others)[2 + c]:
            break
        lam = others if evaluate(others)[2 + c] >= b[c] else bisected(others, unit, own)
        V = evaluate(lam)
        if (V[2:] >= b).all() and V[:2].sum() > most:
            best, most = lam, V[:2].sum()
    if best is None:
        return "safe" if rules.fallback else "search", last
    return "search", best
