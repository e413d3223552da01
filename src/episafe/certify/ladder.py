"""Proposals from recent days: fitted to the last traces at several prices of the limit, tested on later days.

This file is heuristic. It needs no law of chance.
"""

from collections import deque

import numpy as np

from episafe.certify.budget import Windows
from episafe.certify.replays import read_trace, replay_statistics
from episafe.certify.traces import TraceProposer
from episafe.core.agent import WEIGHT, Candidate, Goal, Proposer
from episafe.core.checks import require
from episafe.core.policy import Policy
from episafe.core.task import Task
from episafe.core.types import Array, Episode
from episafe.kernels.tabular_optimum import greedy_actions

# All of these were chosen on the road of examples/data/road.csv, days 0 to 250.
PRICES = np.geomspace(0.05, 20.0, 12)  # of a unit of utility in units of reward
MARGINS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75)  # of the incumbent's mean surplus: how far above the limit to aim
FIRST_MARGIN = 2  # its index, before shadows have earned anything
SHRINKAGE = 3.0  # traces that the law of a step over all states counts for in each state
FIRST_FIT, FEW_RECORDS = 5, 10  # traces before the first proposal; records that are better than replays of the fit


class Ladder(Proposer):
    """Proposes from the last days, for systems that drift: one backward induction per price of the limit.

    Each fit is tested on the days after it. The proposal is the mixture of two prices with the most reward whose mean
    utilities over these days exceed the limits by a margin. Each margin has a shadow, a simulated window budget; the
    margin whose shadow earned most is used.

    Args:
        recent: traces that a fit uses.
        tested: days on which a fit is tested; also the length of the shadows' windows.
    """

    def __init__(self, recent: int = 56, tested: int = 28) -> None:
        self.recent, self.tested = recent, tested

    def start(self, task: Task) -> None:
        """Bind the proposer to the task of its agent."""
        require(task.move is not None, "Ladder replays traces: give the problem move=…")
        self.task, self.traces = task, TraceProposer(task)
        self._records: deque[Array] = deque(maxlen=self.tested)  # (prices + 1, 1 + m), the incumbent last
        self._fit: list[Policy] = []  # by price, then the incumbent
        # by margin: simulated windows, the pair of fits that would have been deployed, and what they earned
        self._windows: list[Windows] = []
        self._targets: list[tuple[int, int, float]] = []
        self._earned: list[deque[float]] = []
        self._second: Candidate | None = None  # of a mixture of two

    def restart(self) -> None:
        """Keep only the last traces, because fits and records are about other conditions."""
        self.traces.restart()
        self._records.clear()
        self._fit, self._second = [], None
        self._windows, self._targets, self._earned = [], [], []

    def observe(self, episode: Episode) -> None:
        """Learn from the trace of an episode, and test every fit on it; what was not seen in full teaches nothing."""
        if episode.trace is None or None in read_trace(self.task, episode.trace):
            return
        self.traces.take_in([self.traces.replays.read(episode.trace)])
        if self._fit:
            self._records.append(self.traces.totals(self._fit, self.traces.num_traces - 1)[:, 0])
            self._live(self._records[-1])

    def _live(self, record: Array) -> None:
        """Play a day in the shadow of each margin: `record` (prices + 1, 1 + m), the incumbent last."""
        least = self.task.least_totals
        for windows, (i, j, p), earned in zip(self._windows, self._targets, self._earned, strict=True):
            share, day = windows.share(least, ""), windows.count
            windows.deploy(day, share * least + (1 - share) * windows.x, "")
            made = share * (p * record[i] + (1 - p) * record[j]) + (1 - share) * record[-1]
            windows.settle(day, made[1:])
            earned.append(float(made[0]))

    def fitted(self) -> list[Policy]:
        """Return the optima of the recent law of chance for all prices, and the incumbent.

            V_h(s) = max_a Σ_w p̂_h(w|s) (r + λ Σ_c u_c + V_{h+1}(s')),   p̂_h(w|s) ∝ n_h(s, w) + 3 p̄_h(w)

        The law is by state. So each value of what is known in the morning, as part of the state, has a law of its own.
        """
        self.traces.keep(self.recent)
        kernel, signals, _, as_policy = self.traces.law(SHRINKAGE)
        guard, one_hot = self.traces.guards[0], np.eye(self.task.num_actions or 0)
        allowed = None if guard is None else guard.allowed
        weights = [np.array([1.0, *[price] * self.task.num_constraints]) for price in PRICES]
        tables = [one_hot[greedy_actions(kernel, signals, one, allowed)[0]] for one in weights]
        return [*(as_policy(table, guard) for table in tables), self.task.incumbent]

    def propose(self, goal: Goal) -> Candidate | None:
        """Fit again and return the best proposal by the records; None while there are too few traces.

        If it is a mixture of two prices, the first call returns the safer policy with weight 0, and the next call the
        other.
        """
        if self._second is not None or self.traces.num_traces < FIRST_FIT:
            found, self._second = self._second, None
            return found
        b, self._fit = goal.utilities, self.fitted()
        records = np.array(self._records)
        if len(records) < FEW_RECORDS:
            records = self.traces.totals(self._fit).swapaxes(0, 1)
        means, scale = records.mean(axis=0), np.maximum(records[:, -1, 1:].mean(axis=0) - b, 0.0)
        if not self._windows or (self._windows[0].limit != b).any():
            x = np.maximum(records[:, -1, 1:].min(axis=0), b)
            self._windows = [Windows(self.tested, b, x) for _ in MARGINS]
            self._earned = [deque(maxlen=self.recent) for _ in MARGINS]
        self._targets = [best_pair(means[:-1], b + margin * scale) for margin in MARGINS]
        earned = [sum(one) + (1e-9 if g == FIRST_MARGIN else 0.0) for g, one in enumerate(self._earned)]
        i, j, p = self._targets[int(np.argmax(earned))]
        pair = [(i, {WEIGHT: 0.0}), (j, {WEIGHT: 1.0 - p})] if p < 1 else [(i, {})]
        first, *second = [
            Candidate(
                "", self._fit[k], float(means[k, 0]), "ladder", float(PRICES[k]),
                statistics=replay_statistics(self.task, records[:, k]) | weight,
            )
            for k, weight in pair
        ]  # fmt: skip
        self._second = second[0] if second else None
        return first


def best_pair(means: Array, aim: Array) -> tuple[int, int, float]:
    """Return (i, j, p): weights p and 1 − p for rows i and j of `means` (n, 1 + m), with the most reward at the aim.

    Row i reaches the aim by itself; if no row does, it is the row nearest to the aim.
    """
    above = means[:, 1:] - aim
    best, found = -np.inf, (int(above.min(axis=1).argmax()), 0, 1.0)
    for i in np.flatnonzero((above >= 0).all(axis=1)).tolist():
        for j in range(len(means)):
            lacks = above[j] < 0
            p = float(np.max(above[j][lacks] / (above[j] - above[i])[lacks])) if lacks.any() else 0.0
            if (value := p * means[i, 0] + (1 - p) * means[j, 0]) > best:
                best, found = value, (i, j, p) if 0 < p < 1 else (i, j, 1.0) if p else (j, j, 1.0)
    return found
