"""The backward recursion of the paper's released code, on tables of all states (see learning/released_planner.py)."""

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array

# What a plan is made from, at every state and action: P̂ (H, S, A, S), 0 after the last step; of r, †, u, (H, S, A, 3),
# what is known, (r, B†β, u), and what is added to P̂V before it is clipped, (C_r β, C_† β, −C_u β); the limits (H, 3).
Tables = tuple[Array, Array, Array, Array]


@kernel
def evaluate(tables, lam, kappa, entropy, policy):  # type: ignore[no-untyped-def]
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
