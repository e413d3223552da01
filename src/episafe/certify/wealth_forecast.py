"""What will be proved of a policy after so many traces more, if they are like those that were seen. A heuristic."""

from collections.abc import Sequence

import numpy as np

from episafe.certify.account import Account
from episafe.kernels.mixture_weights import best_weights
from episafe.kernels.wealth import BETS, LARGEST
from episafe.types import Array, IntArray

MOST_TRACES = 256  # that a forecast is made from


def forecast(accounts: Sequence[Account], totals: Array, ahead: int, row: int) -> Array:
    """L (m,) of the policy in this row after so many traces more, by its totals (n, 1 + m) on those that were seen."""
    found = np.zeros(len(accounts))
    for c, one in enumerate(accounts):
        trials, logs = one.trials, one.trials.logs[row] + np.log(one.trials.products[row])
        args = trials.means, logs, totals[:, 1 + c], ahead, trials.log_term[row], one.least_total
        found[c] = max(forecast_bound(*args), trials.lower[row])
    return found


def forecast_of_new(accounts: Sequence[Account], totals: Array, ahead: int, bet_weights: Array) -> Array:
    """The same of a policy that would be the next candidate."""
    found = np.zeros(len(accounts))
    for c, one in enumerate(accounts):
        logs = np.broadcast_to(np.log(len(BETS) * bet_weights), one.trials.logs.shape[1:])
        found[c] = forecast_bound(one.trials.means, logs, totals[:, 1 + c], ahead, one.next_log_term, one.least_total)
    return found


def forecast_bound(means: Array, logs: Array, utilities: Array, ahead: int, log_term: float, least: float) -> float:
    """The largest m of the grid `means` (G,) with Σ_k W_k e^{ahead·mean ln(1 + λ_k(X/m − 1))} ≥ e^{log_term}.

    Args:
        means: the grid.
        logs: ln W_k so far, (G, B).
        utilities: X of the traces that were seen, (n,).
        ahead: how many more.
        log_term: ln(B/δ_j).
        least: x₀, which every X has; what nothing is proved of has it too.
    """
    seen = utilities[:: max(len(utilities) // MOST_TRACES, 1)]
    gain = np.minimum((seen[:, None] - least) / (means - least), LARGEST) - 1.0  # (n, G)
    growth = np.log1p(gain[:, :, None] * BETS).mean(axis=0)
    wealth = logs + ahead * growth
    top = wealth.max(axis=1)
    reached = top + np.log(np.exp(wealth - top[:, None]).sum(axis=1)) >= log_term
    return float(means[np.flatnonzero(reached)[-1]]) if reached.any() else least


def value_of_best(scores: Array, lower: Array, thresholds: Array, in_use: IntArray) -> float:
    """The score of the best mixture that bounds `lower` (n, m) allow."""
    return float(best_weights(scores, lower, thresholds, in_use) @ scores)
