"""The values of a policy in a model that is given by arrays."""

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.lanes import LANES, fma, load, spread, total


@kernel
def policy_values(P, reward, utility, policy, initial_state):  # type: ignore[no-untyped-def]
    """Return (V^r(s₁), V^u(s₁)) of a table (H, S, A): the one function whose values are recorded and compared with b.

    V_h(s) = Σ_a π(a|s) g(s,a) + Σ_t (Σ_a π(a|s) P(t|s,a)) V_{h+1}(t), eight t at a time: P is read once. Steps share
    one row where P (1, S, A, S) or a signal (1, S, A) has one only.
    """
    H, S, A = policy.shape
    V = np.zeros((H + 1, 2, S))
    whole = S - S % LANES
    for h in range(H - 1, -1, -1):
        i, j, k = min(h, P.shape[0] - 1), min(h, reward.shape[0] - 1), min(h, utility.shape[0] - 1)
        first, last = (0, S) if h else (initial_state, initial_state + 1)
        for s in range(first, last):
            V_r = V_u = 0.0
            for a in range(A):
                V_r = fma(policy[h, s, a], reward[j, s, a], V_r)
                V_u = fma(policy[h, s, a], utility[k, s, a], V_u)
            if h < H - 1:
                next_r = next_u = spread(0.0)
                for t in range(0, whole, LANES):
                    p = spread(0.0)
                    for a in range(A):
                        p = fma(policy[h, s, a], load(P, (i, s, a, t)), p)
                    next_r = fma(p, load(V, (h + 1, 0, t)), next_r)
                    next_u = fma(p, load(V, (h + 1, 1, t)), next_u)
                V_r, V_u = V_r + total(next_r), V_u + total(next_u)
                for t in range(whole, S):
                    p_t = 0.0
                    for a in range(A):
                        p_t = fma(policy[h, s, a], P[i, s, a, t], p_t)
                    V_r, V_u = fma(p_t, V[h + 1, 0, t], V_r), fma(p_t, V[h + 1, 1, t], V_u)
            V[h, 0, s], V[h, 1, s] = V_r, V_u
    return V[0, 0, initial_state], V[0, 1, initial_state]
