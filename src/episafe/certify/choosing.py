"""Which policies on trial to mix, and how: the largest score among the mixtures whose bound reaches the threshold."""

from episafe.certify.sequence import SUM_Q, SUM_QR
from episafe.compiling import kernel
from episafe.learning.kernels import admits

INSIDE = 1.0 - 1e-12  # keeps the mixture's bound above b in spite of rounding


@kernel
def score(trials, i):  # type: ignore[no-untyped-def]
    """How good policy i seems: its mean reward, with the reward promised as one more episode.

    The newest policy is believed as promised, or an optimistic proposal would never be tried long enough.
    """
    if i == trials.newest[0]:
        return trials.guess[i]
    return (trials.sums[i, SUM_QR] + trials.guess[i]) / (trials.sums[i, SUM_Q] + 1.0)


@kernel
def choose(trials, threshold):  # type: ignore[no-untyped-def]
    """(i, j, p, bound) of the mixture p·i + (1−p)·j to deploy; i = j and p = 1 for one policy alone.

        max Σ w_i score_i   s.t.   Σ w_i L_i ≥ b

    One constraint, so at most two policies: one below b, and one above that pays for it, p = (L_j − b)/(L_j − L_i).
    """
    n = trials.lower.shape[0]
    first, second, weight, bound, best = 0, 0, 1.0, trials.lower[0], score(trials, 0)
    for i in range(n):
        if trials.in_use[i] == 0:
            continue
        L_i, score_i = trials.lower[i], score(trials, i)
        if admits(L_i, threshold):
            if score_i > best:
                first, second, weight, bound, best = i, i, 1.0, L_i, score_i
            continue
        for j in range(n):
            L_j = trials.lower[j]
            if trials.in_use[j] == 0 or L_j <= threshold:
                continue
            p = (L_j - threshold) / (L_j - L_i) * INSIDE
            mixed = p * L_i + (1.0 - p) * L_j
            value = p * score_i + (1.0 - p) * score(trials, j)
            if value > best and admits(mixed, threshold):
                first, second, weight, bound, best = i, j, p, mixed, value
    return first, second, weight, bound
