"""Lower confidence sequences for the mean utilities of policies that are tried in mixtures, by their exact wealth.

One policy, m a guess of its mean utility, λ ∈ (0, 1) a bet. In an episode of a mixture with weights w, the policy's
*share* is q = w·π(τ) / Σ_i w_i π_i(τ), the chance that it was the one that acted, given the trajectory τ. With X ≥ 0
the total utility of the episode, E[q(X − m)] = w(V − m), so that the wealth

    W_λ(m) = Π (1 + λ q(X/m − 1)),   over the policy's deployments, in their order

is a martingale if m = V, and so is its mean over B bets. Every m at which that mean has reached 1/δ is too small. An
episode that is not reported counts as q = 1 and X = 0, a factor 1 − λ: that is the least a factor can be, so the wealth
can only be too small. It is kept for a grid of means; wealth falls with m, so L is the largest point of the grid that
was ever reached, at any prefix of the deployments. Where X ≥ x₀ is known, all of this is about X − x₀, V − x₀ and
m − x₀ in place of X, V and m. docs/theory-certificates.md has the proof.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.types import Array, IntArray

BETS = np.concatenate([[0.98], 0.9 * 2.0 ** (-0.75 * np.arange(13))])  # to 0.0018: the best is about √(ln(1/δ)/n)
LOG_WORST = np.log1p(-BETS)  # what an episode that is not reported costs
NUM_PLAIN = 32  # factors that are multiplied before their logarithm is taken
LARGEST = 1e6  # X/m counts as this at most, so that a product of so many factors is finite


class Trials(NamedTuple):
    """What is known of the policies on trial, one a row; row 0 is the incumbent.

    `means` (G,): the grid, rising; `logs` (n, G, B): ln W but for the last factors, which are in `products` (n, G, B),
    `num_factors` (n,) of them; `absent` (n,): deployments without a report that count besides; `log_term` (n,):
    ln(B/δ), 0 for an incumbent whose bound is known; `reached` (n,): the largest point of the grid that is too small,
    −1 if none is; `lower` (n,): L; `rewards` (n, 2): ΣqR and Σq, R the total reward; `guess` (n,): the reward that was
    promised; `in_use` (n,): 1 or 0; `newest` (1,): the row of the newest policy; `least` (1,): x₀, which every X has.
    """

    means: Array
    logs: Array
    products: Array
    num_factors: IntArray
    absent: IntArray
    log_term: Array
    reached: IntArray
    lower: Array
    rewards: Array
    guess: Array
    in_use: IntArray
    newest: IntArray
    least: Array


def blank_trials(means: Array, num_rows: int, least: float = 0.0) -> Trials:
    """Room for so many policies, none of them there yet; every episode has a total utility of at least `least`."""
    shape = (num_rows, len(means), len(BETS))
    whole = [np.zeros(num_rows, dtype=np.int64) for _ in range(3)]
    return Trials(
        np.asarray(means, dtype=float), np.zeros(shape), np.ones(shape), whole[0], whole[1], np.zeros(num_rows),
        np.full(num_rows, -1), np.full(num_rows, least), np.zeros((num_rows, 2)), np.zeros(num_rows), whole[2],
        np.zeros(1, dtype=np.int64), np.array([least], dtype=float),
    )  # fmt: skip


def grown(trials: Trials) -> Trials:
    """The same trials with room for one more policy."""
    more = blank_trials(trials.means, 1, float(trials.least[0]))
    by_row = [name for name in Trials._fields if name not in ("means", "newest", "least")]
    return trials._replace(**{name: np.concatenate([getattr(trials, name), getattr(more, name)]) for name in by_row})


@lean_kernel
def begin_row(trials, i, log_term, guess):  # type: ignore[no-untyped-def]
    """A new policy in row i, of which nothing is known but the reward that was promised."""
    G, B = trials.logs.shape[1], trials.logs.shape[2]
    for g in range(G):
        for k in range(B):
            trials.logs[i, g, k], trials.products[i, g, k] = 0.0, 1.0
    trials.num_factors[i], trials.absent[i], trials.reached[i], trials.lower[i] = 0, 0, -1, trials.least[0]
    trials.rewards[i, 0], trials.rewards[i, 1] = 0.0, 0.0
    trials.log_term[i], trials.guess[i], trials.in_use[i], trials.newest[0] = log_term, guess, 1, i


@lean_kernel
def share_out(acted, num_parts, shares):  # type: ignore[no-untyped-def]
    """q_i ∝ w_i Π_h π_i(a_h|s_h) of so many policies in each of E episodes, into `shares` (E, n), which hold the w_i.

    acted (E, H, n) has the π_i(a_h|s_h). The largest is kept at 1 from step to step: long products would come out as 0.
    Returns whether every episode is one that some policy may have acted in.
    """
    for e in range(shares.shape[0]):
        for h in range(acted.shape[1]):
            largest = 0.0
            for i in range(num_parts):
                shares[e, i] *= acted[e, h, i]
                largest = max(largest, shares[e, i])
            if not largest > 0.0:
                return False
            for i in range(num_parts):
                shares[e, i] /= largest
        total = 0.0
        for i in range(num_parts):
            total += shares[e, i]
        for i in range(num_parts):
            shares[e, i] /= total
    return True


@lean_kernel
def credit(trials, i, share, utility, reward):  # type: ignore[no-untyped-def]
    """Add an episode with total `utility` X and total `reward` R to policy i, whose share in it was q."""
    trials.rewards[i, 0] += share * reward
    trials.rewards[i, 1] += share
    if trials.log_term[i] > 0.0:  # else it has no sequence: the incumbent's bound is what the task says
        multiply(trials, i, share, utility)
        g = trials.reached[i] + 1
        if share > 0.0 and g < trials.means.shape[0] and utility > trials.means[g]:  # else no wealth has grown
            raise_bound(trials, i)


@kernel
def credit_rows(trials, rows, utilities, rewards):  # type: ignore[no-untyped-def]
    """Add an episode to each of these rows (n,), with a share of 1 and a utility and a reward (n,) of its own."""
    for k in range(rows.shape[0]):
        credit(trials, rows[k], 1.0, utilities[k], rewards[k])


@kernel
def credit_all(trials, rows, shares, utilities, rewards):  # type: ignore[no-untyped-def]
    """Add episodes to each of these rows (R,), one after another: share, utility and reward (R, n) of each."""
    for k in range(rows.shape[0]):
        for e in range(shares.shape[1]):
            credit(trials, rows[k], shares[k, e], utilities[k, e], rewards[k, e])


@lean_kernel
def multiply(trials, i, share, utility):  # type: ignore[no-untyped-def]
    """One more factor of every wealth that may still be needed: those above the bound already proved."""
    G, B, least = trials.logs.shape[1], trials.logs.shape[2], trials.least[0]
    for g in range(trials.reached[i] + 1, G if share > 0.0 else 0):  # without a share every factor is 1
        gain = share * (min((utility - least) / (trials.means[g] - least), LARGEST) - 1.0)
        for k in range(B):
            trials.products[i, g, k] *= 1.0 + BETS[k] * gain
    trials.num_factors[i] += 1
    if trials.num_factors[i] == NUM_PLAIN:
        for g in range(trials.reached[i] + 1, G):
            for k in range(B):
                trials.logs[i, g, k] += np.log(trials.products[i, g, k])
                trials.products[i, g, k] = 1.0
        trials.num_factors[i] = 0


@lean_kernel
def log_wealth(trials, i, g):  # type: ignore[no-untyped-def]
    """ln Σ_k W_k of policy i at point g of the grid; enough against it if it is ln(B/δ)."""
    total = 0.0
    for k in range(BETS.shape[0]):
        log = trials.logs[i, g, k] + trials.absent[i] * LOG_WORST[k]
        total += np.exp(log) * trials.products[i, g, k]
    return np.log(total)


@lean_kernel
def raise_bound(trials, i):  # type: ignore[no-untyped-def]
    """Go on to the largest point of the grid whose wealth has reached 1/δ: Σ_k W_k ≥ B/δ."""
    while trials.reached[i] + 1 < trials.means.shape[0]:
        g = trials.reached[i] + 1
        if not log_wealth(trials, i, g) >= trials.log_term[i]:
            return
        trials.reached[i], trials.lower[i] = g, trials.means[g]


@kernel
def raise_by_prefixes(trials, i, shares, utilities, ends):  # type: ignore[no-untyped-def]
    """The same for the prefixes of the deployments that follow, (n,) each; q = 1 and X = 0 for what is not reported.

    `ends` (n,): with which of them a prefix may end.
    """
    logs, again, least = np.empty(BETS.shape[0]), True, trials.least[0]
    while again and trials.reached[i] + 1 < trials.means.shape[0]:
        g, again = trials.reached[i] + 1, False
        for k in range(BETS.shape[0]):
            logs[k] = trials.logs[i, g, k] + np.log(trials.products[i, g, k]) + trials.absent[i] * LOG_WORST[k]
        for n in range(shares.shape[0]):
            ratio, total = (utilities[n] - least) / (trials.means[g] - least), 0.0
            gain = shares[n] * (min(ratio, LARGEST) - 1.0)
            for k in range(BETS.shape[0]):
                logs[k] += np.log(1.0 + BETS[k] * gain)
                total += np.exp(logs[k])
            if ends[n] and np.log(total) >= trials.log_term[i]:
                trials.reached[i], trials.lower[i], again = g, trials.means[g], True
                break
