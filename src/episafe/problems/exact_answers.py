"""Exact answers for a known kernel: values, occupancies, greedy policies and the constrained optimum."""

import numpy as np

from episafe.kernels.mixing import admits, nudged_until
from episafe.kernels.simulation import policy_values as policy_values
from episafe.problems.dual_search import Parts, Point, best_mixture
from episafe.types import Array, IntArray


def occupancy(P: Array, policy: Array, initial_state: int) -> Array:
    """w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
    H, S, A = policy.shape
    state_mass = np.zeros(S)
    state_mass[initial_state] = 1.0
    out = np.empty((H, S, A))
    for h in range(H):
        out[h] = state_mass[:, None] * policy[h]
        state_mass = out[h].reshape(S * A) @ P[h].reshape(S * A, S)
    return out


def greedy_actions(P: Array, rewards: Array, weights: Array) -> tuple[IntArray, Array]:
    """Maximiser (H, S) of the weighted value Σ_g weights[g] V^g, and V^g of each g at step 0, shape (S, G).

    Args:
        P: (H, S, A, S).
        rewards: (H, S, A, G), one function g a column.
        weights: (G,).
    """
    H, S, A, G = rewards.shape
    V_next = np.zeros((S, G))
    actions = np.empty((H, S), dtype=np.int64)
    for h in reversed(range(H)):
        Q = rewards[h] + (P[h].reshape(S * A, S) @ V_next).reshape(S, A, G)
        actions[h] = np.argmax(Q @ weights, axis=1)
        V_next = Q[np.arange(S), actions[h]]
    return actions, V_next


def utility_greedy(P: Array, utility: Array) -> tuple[Array, Array]:
    """The policy (H, S, A) of largest utility from every state, and its value at step 0, shape (S,)."""
    actions, V = greedy_actions(P, utility[..., None], np.ones(1))
    return np.eye(utility.shape[2])[actions], V[:, 0]


def optimum(P: Array, reward: Array, utility: Array, threshold: float, initial_state: int) -> tuple[float, Array]:
    """max V^r(s₁) s.t. V^u(s₁) ≥ b by the one-dimensional dual, with a policy (H, S, A) that attains it."""
    rewards = np.stack([reward, utility], axis=-1)

    def best(reward_weight: float, utility_weight: float) -> Point[IntArray]:
        actions, V = greedy_actions(P, rewards, np.array([reward_weight, utility_weight]))
        return float(V[initial_state, 0]), float(V[initial_state, 1]), actions

    value, _, parts, _ = best_mixture(best, threshold)
    return value, _markov_mixture(P, reward, utility, threshold, initial_state, parts)


def _markov_mixture(
    P: Array, reward: Array, utility: Array, threshold: float, initial_state: int, parts: Parts[IntArray]
) -> Array:
    """Markov policy whose occupancy is the mixture's, moved towards the safest one until V^u ≥ b holds in float64."""
    (share_below, below), (share_above, above) = (
        (share, np.eye(utility.shape[2])[actions]) for share, actions in parts
    )
    safest = utility_greedy(P, utility)[0]
    w_below, w_above, w_safest = (occupancy(P, policy, initial_state) for policy in (below, above, safest))
    mass = share_below * w_below + share_above * w_above

    def towards_safest(share: float) -> Array:
        moved = (1 - share) * mass + share * w_safest
        state_mass = moved.sum(axis=-1, keepdims=True)
        return np.where(state_mass > 0, moved / np.where(state_mass > 0, state_mass, 1.0), above)

    def passes(share: float) -> bool:
        V_u = policy_values(P, reward, utility, towards_safest(share), initial_state)[1]
        return share >= 1.0 or bool(admits(V_u, threshold))

    return towards_safest(nudged_until(passes, 0.0))


def lp_optimum(P: Array, reward: Array, utility: Array, threshold: float, initial_state: int) -> float:
    """The same optimum from the occupancy linear program by HiGHS: slow, independent, good to about 1e-7.

    max ⟨w, r⟩  s.t.  ⟨w, u⟩ ≥ b,  Σ_a w_1(s,a) = 1{s = s₁},  Σ_a w_{h+1}(s',a) = Σ_{s,a} P_h(s'|s,a) w_h(s,a)
    """
    import scipy.optimize  # here, because it takes as long to import as all the rest
    import scipy.sparse

    H, S, A, _ = P.shape
    per_step = S * A
    state_mass = scipy.sparse.kron(scipy.sparse.eye_array(S), np.ones((1, A)))
    blocks: list[list[object]] = [[None] * H for _ in range(H)]
    for h in range(H):
        blocks[h][h] = state_mass
        if h:
            blocks[h][h - 1] = scipy.sparse.csr_array(-P[h - 1].reshape(per_step, S).T)
    start = np.zeros(H * S)
    start[initial_state] = 1.0
    solved = scipy.optimize.linprog(
        -reward.ravel(),
        A_ub=-utility.reshape(1, -1),
        b_ub=[-threshold],
        A_eq=scipy.sparse.block_array(blocks, format="csr"),
        b_eq=start,
        method="highs",
    )
    if solved.status != 0:
        raise RuntimeError(f"HiGHS ended without an optimum: {solved.message}")
    return float(-solved.fun)


def linearity_gap(P: Array, phi: Array) -> float:
    """max_{h,s,a} ‖P_h(·|s,a) − φ(s,a)ᵀμ̂_h‖₁ with the least-squares μ̂_h: 0 if and only if P is linear in φ."""
    H, S, A, _ = P.shape
    features = phi.reshape(S * A, -1)
    worst = 0.0
    for h in range(H):
        rows = P[h].reshape(S * A, S)
        mu = np.linalg.lstsq(features, rows, rcond=None)[0]
        worst = max(worst, float(np.abs(rows - features @ mu).sum(axis=1).max()))
    return worst
