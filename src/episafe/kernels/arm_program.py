"""The inner problem over finitely many arms under several constraints: max E[f] s.t. E[g_c] ≥ b_c for all c.

Linear in the policy, so a vertex mixes at most m + 1 arms; the incumbent, with which the simplex method begins, is one.
With one constraint `arm_hull` solves it without.
"""

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.kernels.mixture_weights import keeps_all, solved_program


@lean_kernel
def over_policy(policy, values):  # type: ignore[no-untyped-def]
    """Σ_i π_i values_i, both (n,)."""
    total = 0.0
    for i in range(policy.shape[0]):
        if policy[i] > 0.0:
            total += policy[i] * values[i]
    return total


@kernel
def best_over_arms(f, g, thresholds, safe, first, policy):  # type: ignore[no-untyped-def]
    """Fills `policy` (n,) and returns the sum of the multipliers; NaN where the incumbent does not keep g ≥ b itself.

    f (n,), g (m, n), b (m,); the incumbent's probabilities are safe[first + i].
    """
    m, n = g.shape
    scores, lower = np.zeros(1 + n), np.zeros((1 + n, m))
    for i in range(n):
        share, scores[1 + i] = safe[first + i], f[i]
        if share > 0.0:
            scores[0] += share * f[i]
        for c in range(m):
            lower[1 + i, c] = g[c, i]
            if share > 0.0:
                lower[0, c] += share * g[c, i]
    weights, in_use = np.zeros(1 + n), np.ones(1 + n, dtype=np.int64)
    weights[0] = 1.0
    if not keeps_all(weights, lower, thresholds):
        return np.nan
    weights, multipliers = solved_program(scores, lower, thresholds, in_use)
    for i in range(n):
        policy[i] = weights[1 + i] + weights[0] * safe[first + i]
    return multipliers.sum()
