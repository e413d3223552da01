"""The backward recursion on tables of all listed states, one multiplier at a time: slow, and as the formulas stand.

`count_tables` has P̂ and β of counts. `several_pass` has a multiplier for each of several constraints; with one it is
`backward_pass.py`. `released_pass` is that of the paper's released code (see learning/released_planner.py).
"""

import numpy as np

from episafe.kernels.backward_pass import shaped, visit_bonus
from episafe.kernels.compilation import kernel, lean_kernel
from episafe.types import Array

# What a plan by the released rules is made from: P̂ (H, S, A, S), 0 after the last step; of r, †, u, (H, S, A, 3), what
# is known, (r, B†β, u), and what is added to P̂V before it is clipped, (C_r β, C_† β, −C_u β); and the limits (H, 3).
Tables = tuple[Array, Array, Array, Array]


@lean_kernel
def count_tables(model, size, state_of, P_hat, beta):  # type: ignore[no-untyped-def]
    """P̂ = n(s,a,s')/(n(s,a) + ρ) and β = (n(s,a) + ρ)^{-1/2} at the states seen, into (H, S, A, S) and (H, S, A).

    After the last step nothing follows, also where steps share their data, and its transitions are counted.
    """
    (H, A, _) = model.visits.shape
    for h in range(H):
        for i in range(size[h]):
            s = state_of[h, i]
            for a in range(A):
                beta[h, s, a] = visit_bonus(model.visits[h, a, i], model.ridge)
                t = model.first[h, a, i] if h + 1 < H else -1
                while t >= 0:
                    share = model.times[h, t] / (model.visits[h, a, i] + model.ridge)
                    P_hat[h, s, a, state_of[h + 1, model.target[h, t]]] = share
                    t = model.following[h, t]


@kernel
def several_pass(P_hat, signals, beta, strays, scales, lams, table):  # type: ignore[no-untyped-def]
    """π^λ into `table` (H, S, A), and its values V̄ʳ, V̄†, V̲_1, …, V̲_m at step 0, (2 + m, S). Backward over h:

        Q̄ʳ  = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}      V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄†  = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}              V̄† = π Q̄†
        Q̲_c = u_c + clip{−C_u β + P̂V̲_c, 0, H−h}                 V̲_c = π Q̲_c
        π   = softmax((Q̄† + Q̄ʳ + Σ_c λ_c Q̲_c)/κ)

    P_hat (H, S, A, S), signals r and u (1 + m, H, S, A), β (H, S, A), λ (m,). Each β is `shaped`: where `strays` is
    True by how far its own next value strays; † has the largest of the utilities'.
    """
    (H, S, A, _), m = P_hat.shape, lams.shape[0]
    V, V_next = np.zeros((2 + m, S)), np.zeros((2 + m, S))
    Q, logits, bonus = np.zeros((2 + m, A)), np.zeros(A), np.zeros(2 + m)
    for h in range(H - 1, -1, -1):
        left = float(H - 1 - h)
        ceiling = left * (1.0 + scales.kappa * np.log(A))
        for s in range(S):
            for a in range(A):
                average_all(P_hat, (h, s, a), beta, V_next, strays, scales, Q, bonus)
                Q[0, a] = signals[0, h, s, a] + min(max(scales.C_r * bonus[0] + Q[0, a], 0.0), ceiling)
                dagger = min(max(scales.C_dagger * bonus[1] + Q[1, a], 0.0), scales.B_dagger * left)
                Q[1, a] = scales.B_dagger * bonus[1] + dagger
                logits[a] = Q[0, a] + Q[1, a]
                for c in range(m):
                    ahead = min(max(scales.utility_bonus * bonus[2 + c] + Q[2 + c, a], 0.0), left)
                    Q[2 + c, a] = signals[1 + c, h, s, a] + ahead
                    logits[a] += lams[c] * Q[2 + c, a]
            entropy = softmax_row(logits, scales.kappa, table[h, s])
            for g in range(2 + m):
                V[g, s] = 0.0
                for a in range(A):
                    V[g, s] += table[h, s, a] * Q[g, a]
            V[0, s] += scales.kappa * entropy
        V_next[:] = V
    return V_next


@lean_kernel
def average_all(P_hat, at, beta, V, strays, scales, Q, bonus):  # type: ignore[no-untyped-def]
    """P̂V of the values V (2 + m, S) at one (h, s, a), into `Q` (2 + m, A), and their bonuses (2 + m,)."""
    h, s, a = at
    for g in range(V.shape[0]):
        mean = square = 0.0
        for t in range(V.shape[1]):
            p = P_hat[h, s, a, t]
            mean += p * V[g, t]
            square += p * V[g, t] * V[g, t]
        Q[g, a] = mean
        sigma = np.sqrt(max(square - mean * mean, 0.0)) if strays else 1.0
        bonus[g] = shaped(beta[h, s, a], sigma, scales)
    bonus[1] = bonus[2]
    for g in range(3, V.shape[0]):
        bonus[1] = max(bonus[1], bonus[g])


@kernel
def softmax_row(logits, kappa, row):  # type: ignore[no-untyped-def]
    """softmax(logits/κ) into `row` (A,); its entropy −Σ π ln π."""
    top, total, entropy = logits.max(), 0.0, 0.0
    for a in range(logits.shape[0]):
        row[a] = np.exp((logits[a] - top) / kappa)
        total += row[a]
    for a in range(logits.shape[0]):
        row[a] /= total
        if row[a] > 0.0:
            entropy -= row[a] * np.log(row[a])
    return entropy


@kernel
def released_pass(tables, lam, kappa, entropy, policy):  # type: ignore[no-untyped-def]
    """V̄ʳ, V̄†, V̲ᵘ (S, 3) at the first step of π^λ, which is written to `policy` (H, S, A).

        Q = known + clip{added + P̂V, 0, limit}     π = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)     V = Σ πQ, and V̄ʳ has more:

    −scale·Σ π^power ln π, where `entropy` is (scale, power).
    """
    P_hat, known, added, limits = tables
    (H, S, A), (scale, power) = policy.shape, entropy
    V, V_next, Q, logits = np.zeros((S, 3)), np.zeros((S, 3)), np.zeros((A, 3)), np.zeros(A)
    for h in range(H - 1, -1, -1):
        for s in range(S):
            for a in range(A):
                for g in range(3):
                    ahead = added[h, s, a, g]
                    for t in range(S):
                        ahead += P_hat[h, s, a, t] * V_next[t, g]
                    Q[a, g] = known[h, s, a, g] + min(max(ahead, 0.0), limits[h, g])
                logits[a] = (Q[a, 0] + Q[a, 1] + lam * Q[a, 2]) / kappa
            top, W = logits.max(), 0.0
            for a in range(A):
                W += np.exp(logits[a] - top)
            for g in range(3):
                V[s, g] = 0.0
            for a in range(A):
                log_pi = logits[a] - top - np.log(W)
                pi = np.exp(log_pi)
                policy[h, s, a] = pi
                V[s, 0] -= scale * pi**power * log_pi
                for g in range(3):
                    V[s, g] += pi * Q[a, g]
        V, V_next = V_next, V
    return V_next
