"""Which policies on trial to mix, and how: the largest score among the mixtures whose bound reaches the threshold."""

from episafe.kernels.compilation import lean_kernel
from episafe.kernels.mixing import admits, mixed, nudged, share_reaching

# These touch the regret and never the guarantee; set on the released problems of seeds 1000 to 1033.
TRUST = 30.0  # episodes that the promise made for the newest policy counts for; for the others 1
EPISODES_TO_CERTIFY = 1000.0  # of one policy, in round numbers


@lean_kernel
def score(trials, i):  # type: ignore[no-untyped-def]
    """How good policy i seems: its mean reward, with the reward promised as so many more episodes."""
    trust = TRUST if i == trials.newest[0] else 1.0
    return (trials.rewards[i, 0] + trust * trials.guess[i]) / (trials.rewards[i, 1] + trust)


@lean_kernel
def choose(trials, threshold, num_episodes):  # type: ignore[no-untyped-def]
    """(i, j, p, bound) of the mixture p·i + (1−p)·j to deploy; i = j and p = 1 for one policy alone.

    If the newest policy promises more than the best mixture, an episode of it is worth more than its reward: the gain,
    for as many episodes as there were so far, over the episodes that it takes to certify it.
    """
    i, j, p, bound, value = best_mixture(trials, threshold, 0.0)
    gain = score(trials, trials.newest[0]) - value
    if gain > 0.0:
        i, j, p, bound, value = best_mixture(trials, threshold, gain * num_episodes / EPISODES_TO_CERTIFY)
    return i, j, p, bound


@lean_kernel
def payers_share(L_i, L_j, threshold):  # type: ignore[no-untyped-def]
    """1 − p of the largest p at which p·i + (1−p)·j passes the check, L_i < b < L_j; NaN where none does."""
    share = 1.0 - (1.0 - share_reaching(L_i, L_j, threshold))  # so that p = 1 − share, and share = 1 − p to the bit
    return nudged(L_i, L_j, share, threshold)


@lean_kernel
def best_mixture(trials, threshold, bonus):  # type: ignore[no-untyped-def]
    """(i, j, p, bound, value) of the mixture that solves, with `bonus` added to the score of the newest policy,

        max Σ w_i score_i   s.t.   Σ w_i L_i ≥ b

    One constraint, so at most two policies: one below b, and one above that pays for it, p = (L_j − b)/(L_j − L_i).
    """
    n = trials.lower.shape[0]
    first, second, weight, bound, best = 0, 0, 1.0, trials.lower[0], score(trials, 0)
    for i in range(n):
        if trials.in_use[i] == 0:
            continue
        L_i, score_i = trials.lower[i], score(trials, i)
        if i == trials.newest[0]:
            score_i += bonus
        if admits(L_i, threshold):
            if score_i > best:
                first, second, weight, bound, best = i, i, 1.0, L_i, score_i
            continue
        for j in range(n):
            L_j = trials.lower[j]
            if trials.in_use[j] == 0 or L_j <= threshold:
                continue
            share = payers_share(L_i, L_j, threshold)
            value = mixed(score_i, score(trials, j), share)
            if value > best and share < 1.0:
                first, second, weight, bound, best = i, j, 1.0 - share, mixed(L_i, L_j, share), value
    return first, second, weight, bound, best
