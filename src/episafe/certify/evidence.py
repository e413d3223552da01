"""Evidence and the bounds that it proves. Trusted, together with kernels/wealth.py, and without heuristics.

Section numbers are those of docs/appendix/theory.md.
"""

import math
from collections.abc import Sequence

import numpy as np

from episafe.certify.grid import FINENESS, grid_of_means
from episafe.core.agent import Evidence
from episafe.core.checks import TOLERANCE
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Policy
from episafe.core.task import Task
from episafe.core.types import INCUMBENT, Array, Episode, IntArray, is_outside
from episafe.kernels.wealth import (
    BET_WEIGHTS,
    BETS,
    Wealth,
    credit_episodes,
    credit_rows,
    mixture_bound,
    new_wealth,
    raise_by_prefixes,
    settle,
    share_out,
)
from episafe.kernels.wealth import admits as admits_one

LONGEST_TAIL = 256  # deployments after one that is not reported; the oldest then counts as absent


def admits(bounds: Array, thresholds: Array) -> bool:
    """Return whether bounds (m,) reach every limit. Every deployed plan passes this check (section 2.4)."""
    return len(bounds) == len(thresholds) and all(map(admits_one, bounds.tolist(), thresholds.tolist()))


def shares_of(task: Task, policies: Sequence[Policy], weights: Array, episode: Episode) -> Array:
    """Return q_i = w_i π_i(τ)/Σ_l w_l π_l(τ) of each component of a mixture, (n,): Lemma 1.

    No policy acts at START and ENDED, so these states do not count.
    """
    if len(policies) == 1:
        return np.ones(1)
    if episode.states is None:
        raise InvalidEpisode("the episode has totals only, and its plan is a mixture: report its states and actions")
    actions = np.asarray(episode.actions).tolist()
    if task.is_listed:
        met = np.arange(len(actions)), np.asarray(episode.states)[:-1], episode.actions
        acted = np.stack([policy.table()[met] for policy in policies], axis=-1)[None]
    else:
        steps, certain = enumerate(zip(episode.states, actions, strict=False)), [1.0] * len(policies)
        rows = [
            certain if is_outside(state) else [policy.probabilities(h, state).item(action) for policy in policies]
            for h, (state, action) in steps
        ]
        acted = np.array([rows])
    shares = np.array(weights, dtype=np.float64)[None]
    if not share_out(acted, len(policies), shares):
        raise InvalidEpisode("no component of the deployed plan acts like this: report the episode with its own id")
    return shares[0]


class Accounts:
    """One account per limit and candidate: its wealth, its bound, and its deployments without a report.

    The incumbent is row 0. Its bound is stated, b + ξ; if the slack is unknown, it has a sequence of its own, like the
    first candidate. Candidate j = 1, 2, … has δ_j = δ/(j(j+1)), δ_j/m for each limit (sections 2.4 and 6). A deployment
    counts as the worst case until it is reported (section 2.3).

    Args:
        task: the limits and the incumbent's utility.
        delta: the probability with which any bound may ever be wrong.
        num_rows: the number of rows at the beginning; `widen` adds more.
        bet_weights: weights of the bets, (B,), which sum to 1; None for `BET_WEIGHTS`.
        longest_tail: deployments of a row after one that is not reported, at most.
        largest: the largest total utility of an episode; None if unknown.
        fineness: points of the grid per factor e of the distance to the incumbent's utility.

    Attributes:
        names: the candidates by row; "" for a free row.
        wealth: the sequences.
        num_candidates: the number of candidates so far, j of the last one.
        tails: by row, deployments since the oldest one without a report, each with its report or None.
        invalid_reason: why the certificate is invalid; "" while it is valid.
    """

    def __init__(
        self, task: Task, delta: float, num_rows: int, bet_weights: Array | None = None,
        longest_tail: int = LONGEST_TAIL, largest: float | None = None, fineness: float = FINENESS,
    ) -> None:  # fmt: skip
        m = task.num_constraints
        self.delta, self.thresholds, self._longest_tail = delta / m, task.thresholds.copy(), longest_tail
        self._first_logs = np.log(len(BETS) * (BET_WEIGHTS if bet_weights is None else bet_weights))
        self._constraints, self._largest, self._fineness = task.constraints, largest, fineness
        self._size = max(len(self.grid(c, one.least_total)) for c, one in enumerate(task.constraints))
        self.wealth = self._blank(num_rows)
        self.names = [INCUMBENT] + [""] * (num_rows - 1)
        self.tails: list[dict[int, tuple[float, Array] | None]] = [{} for _ in range(num_rows)]
        self._absent: list[set[int]] = [set() for _ in range(num_rows)]
        self.num_candidates, self.invalid_reason, self._deployed = 0, "", False
        self.wealth.in_use[0] = 1
        self._rounding = TOLERANCE * (task.stated_utilities - task.least_totals)
        if any(one.slack is None for one in task.constraints):
            self.begin(0, INCUMBENT)
        stated = [one.slack is not None for one in task.constraints]
        self.wealth.lower[0, stated], self.wealth.log_term[0, stated] = task.stated_utilities[stated], 0.0

    def grid(self, c: int, least: float) -> Array:
        """Return the means to bet against in limit c, for a candidate with this least total."""
        return grid_of_means(self._constraints[c], least, self._largest, self._fineness)

    def _blank(self, num_rows: int) -> Wealth:
        least = np.array([one.least_total for one in self._constraints])
        return new_wealth(num_rows, self._size, least)

    def widen(self) -> int:
        """Add a row for one more candidate; return it."""
        more = self._blank(1)
        self.wealth = Wealth._make(np.concatenate(both) for both in zip(self.wealth, more, strict=True))
        self.names.append("")
        self.tails.append({})
        self._absent.append(set())
        return len(self.names) - 1

    def log_term(self, j: int) -> float:
        """Return ln(B m/δ_j) of candidate j, δ_j = δ/(j(j+1)), Σ_j δ_j = δ (Theorem 1)."""
        return math.log(len(BETS) * j * (j + 1) / self.delta)

    def begin(self, row: int, name: str, least_totals: Array | None = None) -> None:
        """Begin the sequences of a new candidate in a row, W = 1. Only later deployments count (section 2.3, rule 2).

        Args:
            row: the row; bounds of the previous candidate in this row are discarded, its δ_j stays spent.
            name: the name of the candidate.
            least_totals: totals (m,) that every episode of it reaches, as a fact; None for those of the task.
        """
        wealth = self.wealth
        for c, one in enumerate(self._constraints):
            least = one.least_total if least_totals is None else max(float(least_totals[c]), one.least_total)
            grid = self.grid(c, least)[: self._size]  # longer than that of row 0 if the slack is tiny
            last = grid[-1] if len(grid) else least + 1.0  # empty if `least` is above every grid point
            wealth.means[row, c] = np.concatenate([grid, np.full(self._size - len(grid), last)])
            wealth.least[row, c] = wealth.lower[row, c] = least
        wealth.logs[row], wealth.products[row], wealth.num_factors[row] = self._first_logs, 1.0, 0
        wealth.absent[row], wealth.reached[row], wealth.in_use[row] = 0, -1, 1
        needs_proof = not (wealth.least[row] >= self.thresholds).all()  # else x₀ is enough, and no δ is spent
        self.num_candidates += needs_proof
        wealth.log_term[row] = self.log_term(self.num_candidates) if needs_proof else math.inf
        self.names[row], self.tails[row], self._absent[row] = name, {}, set()

    def share_delta(self) -> None:
        """Give the n candidates so far δ_j = (δ/2)(1/(j(j+1)) + 1/(n + 1)), before the first deployment.

        The sum is the same as before, δ·n/(n + 1) (section 2.4)."""
        spent = self.wealth.log_term.any(axis=1) & np.isfinite(self.wealth.log_term).all(axis=1)
        rows = np.flatnonzero(spent & (self.wealth.in_use == 1))
        if len(rows) == self.num_candidates and not self._deployed:
            j, n = np.arange(1, len(rows) + 1), len(rows)
            terms = np.log(2 * len(BETS) / self.delta / (1 / (j * (j + 1)) + 1 / (n + 1)))
            self.wealth.log_term[rows] = np.where(self.wealth.log_term[rows] > 0, terms[:, None], 0.0)

    def row(self, name: str) -> int:
        """Return the row of a candidate; −1 if it has none."""
        return self.names.index(name) if name in self.names and name else -1

    def known(self, evidence: Evidence) -> tuple[IntArray, Evidence]:
        """Return the rows (R,) of the candidates on trial, and their evidence."""
        found = evidence.where(lambda name: self.row(name) >= 0)
        return np.array([self.row(name) for name in found.names], dtype=np.int64), found

    @property
    def rows(self) -> list[int]:
        """Return the rows that have a candidate, the incumbent included."""
        return [i for i, used in enumerate(self.wealth.in_use.tolist()) if used]

    def bounds(self) -> dict[str, Array]:
        """Return the bounds (m,) of each candidate, by name."""
        return {self.names[i]: self.wealth.lower[i].copy() for i in self.rows}

    def bounds_of(self, weights: Array, lower: Array | None = None) -> Array:
        """Return Σ_i w_i L_i (m,) for weights by row (n,): the bounds of a mixture (section 2.4)."""
        lower = self.wealth.lower if lower is None else lower
        return np.array([mixture_bound(weights, lower, c) for c in range(lower.shape[1])])

    def is_certified(self, row: int) -> bool:
        """Return whether the bounds of a row reach every limit."""
        return admits(self.wealth.lower[row], self.thresholds)

    def expect(self, deployment: int, rows: Sequence[int]) -> None:
        """Count a deployment of these rows as the worst case until it is reported: q = 1, X = x₀ (Lemma 3)."""
        self._deployed = True
        for i in dict.fromkeys(rows):
            if self.wealth.in_use[i] and self.wealth.log_term[i].any():
                self.tails[i][deployment] = None
                if len(self.tails[i]) > self._longest_tail:
                    self._settle(i)

    def credit(self, deployment: int, rows: IntArray, shares: Array, utilities: Array) -> None:
        """Add the evidence of a report for rows (R,): shares (R,) and utilities (R, m), at the place of its deployment.

        A deployment counts once, and only for sequences that had begun (section 2.3, rules 1 and 2). A total below x₀
        makes all bounds invalid (section 2.6).
        """
        if self.invalid_reason:
            return
        least = self.wealth.least[rows]
        wrong = utilities < least - self._rounding
        if wrong.any():
            self.end(
                f"a total of {utilities[wrong][0]:.6g} is below the least total {least[wrong][0]:.6g}: give a true one"
            )
            return
        utilities, at_once = np.maximum(utilities, least), []
        for k, i in enumerate(rows.tolist()):
            tail = self.tails[i]
            if deployment in tail and tail[deployment] is None:
                if len(tail) == 1:
                    del tail[deployment]
                    at_once.append(k)
                else:
                    tail[deployment] = float(shares[k]), utilities[k]
                    self._settle(i)
            elif deployment in self._absent[i]:
                self._absent[i].remove(deployment)
                self.wealth.absent[i] -= 1
                settle(self.wealth, i, float(shares[k]), utilities[k])
                self._settle(i)
        if at_once:
            credit_rows(self.wealth, rows[at_once], shares[at_once], utilities[at_once])

    def read_log(self, rows: IntArray, shares: Array, utilities: Array) -> None:
        """Add logged episodes to rows (R,) before the first deployment: shares (R, E) and utilities (R, E, m).

        Their order must not depend on their outcomes, because the best prefix counts.
        """
        least = self.wealth.least[rows][:, None]
        if (utilities < least - self._rounding).any():
            self.end(f"a logged total of {utilities.min():.6g} is below the least total: state a true least_total")
            return
        told = np.ascontiguousarray(shares), np.ascontiguousarray(np.maximum(utilities, least))
        credit_episodes(self.wealth, rows, *told)

    def _settle(self, i: int) -> None:
        """Move the decided part of the tail of row i into the product, and raise the bound by prefixes of the rest.

        More than `longest_tail` deployments after one without a report, it counts as absent: a factor 1 − λ that is
        kept apart, so that its report can still take its place (section 2.3, rule 5).
        """
        tail = self.tails[i]
        while tail:
            deployment, report = next(iter(tail.items()))
            if report is None and len(tail) <= self._longest_tail:
                break
            if report is None:
                self.wealth.absent[i] += 1
                self._absent[i].add(deployment)
            else:
                settle(self.wealth, i, *report)
            del tail[deployment]
        if any(report is not None for report in tail.values()):
            worst = 1.0, self.wealth.least[i]
            reports = [worst if report is None else report for report in tail.values()]
            raise_by_prefixes(
                self.wealth, i, np.array([share for share, _ in reports]), np.array([X for _, X in reports])
            )

    def change(self, thresholds: Array, stated: Array) -> None:
        """Use other thresholds and, where the incumbent's utility is stated, other stated utilities (m,).

        Bounds depend on neither (section 2.4). The grid stays, because a point that began late would prove too much.
        """
        self.thresholds = thresholds.copy()
        known = self.wealth.log_term[0] == 0
        self.wealth.lower[0, known] = stated[known]

    def withdraw(self, row: int) -> None:
        """End the sequences of a row; its δ_j stays spent (section 2.4)."""
        self.wealth.in_use[row], self.wealth.absent[row] = 0, 0
        self.wealth.lower[row] = self.wealth.least[row]
        self.names[row], self.tails[row], self._absent[row] = "", {}, set()

    def end(self, reason: str) -> None:
        """Note that an assumption of the proofs is false: all bounds are invalid (section 2.6)."""
        self.invalid_reason = self.invalid_reason or reason
        for row in self.rows[1:]:
            self.withdraw(row)
        self.wealth.lower[0] = np.where(self.wealth.log_term[0] > 0, self.wealth.least[0], self.wealth.lower[0])
