"""Lower confidence sequences for the mean utilities of policies that are tried in mixtures.

One policy, m a guess of its mean utility, λ ∈ (0, 1) a bet. In an episode of a mixture with weights w, the policy's
*share* is q = w·π(τ) / Σ_i w_i π_i(τ), the chance that it was the one that acted, given the trajectory τ. With X ≥ 0
the total utility of the episode, E[q(X − m)] = w(V − m), so that Π(1 + λ q(X − m)/m) is a martingale if m = V. By

    ln(1 + λz) ≥ λz − ψ(λ)z²,   z ≥ −1,   ψ(λ) = −ln(1 − λ) − λ

its logarithm is at least a quadratic in x = 1/m with five sums as coefficients:

    −ψ ΣqqXX x² + (λ ΣqX + 2ψ ΣqqX) x − (λ Σq + ψ Σqq)

and every m at which that reaches ln(B/δ), for one of B bets, is too small. docs/theory-certificates.md has the proof.
"""

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel

BETS = 0.9 * 2.0 ** (-0.75 * np.arange(14))  # from bold to 0.001: the best bet is about √(ln(1/δ)/n)
COSTS = -np.log1p(-BETS) - BETS  # ψ(λ)

SUM_QX, SUM_Q, SUM_QQXX, SUM_QQX, SUM_QQ, SUM_QR = range(6)


@lean_kernel
def lower_bound(sums, i, log_term):  # type: ignore[no-untyped-def]
    """The largest m that some bet refutes, 0 if there is none: 1/x for the smaller root x of the quadratic."""
    best = 0.0
    for k in range(BETS.shape[0]):
        bet, cost = BETS[k], COSTS[k]
        square = cost * sums[i, SUM_QQXX]
        linear = bet * sums[i, SUM_QX] + 2.0 * cost * sums[i, SUM_QQX]
        constant = bet * sums[i, SUM_Q] + cost * sums[i, SUM_QQ] + log_term
        discriminant = linear * linear - 4.0 * square * constant
        if linear > 0.0 and discriminant >= 0.0:
            best = max(best, (linear + np.sqrt(discriminant)) / (2.0 * constant))
    return best


@kernel
def lower_bounds(sums, log_term):  # type: ignore[no-untyped-def]
    """`lower_bound` of every row of `sums` (n, 6), (n,)."""
    found = np.empty(sums.shape[0])
    for i in range(sums.shape[0]):
        found[i] = lower_bound(sums, i, log_term)
    return found
