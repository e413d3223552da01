"""Anytime confidence intervals of one policy's mean utility, from three sums: n, ΣU and ΣU².

For utilities in [0, H] the lower end is that of `confidence_sequence` with every share 1, and the upper end is H minus
the lower end of H − U. For noisy ones, U − E[U] σ-sub-Gaussian, with the same bets λ,

    |mean − ΣU/n| ≤ min_λ σ (ln(B/δ)/λ + nλ/2)/n

which follows from Ville's inequality for exp(λ Σ(U − E U)/σ − nλ²/2); it holds for the average of means that change.
"""

import math

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import BETS, lower_bound


@kernel
def interval(n, total, squares, ceiling, sigma, log_term):  # type: ignore[no-untyped-def]
    """(lower, upper) from n, ΣU, ΣU²; `ceiling` is H, or NaN where utilities are noisy; log_term = ln(B/δ) a side."""
    if n == 0:
        return -np.inf, np.inf
    if math.isnan(ceiling):
        width = np.inf
        for i in range(BETS.shape[0]):
            width = min(width, sigma * (log_term / BETS[i] + 0.5 * n * BETS[i]) / n)
        return total / n - width, total / n + width
    lower = _lower(n, total, squares, log_term)
    upper = ceiling - _lower(n, n * ceiling - total, n * ceiling**2 - 2.0 * ceiling * total + squares, log_term)
    return lower, upper


@kernel
def _lower(n, total, squares, log_term):  # type: ignore[no-untyped-def]
    sums = np.array([[total, n, squares, total, n, 0.0]])
    return lower_bound(sums, 0, log_term)
