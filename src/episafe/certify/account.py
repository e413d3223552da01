"""An account: the wealth of all policies on trial against one constraint, and deployments not reported yet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.wealth import (
    BETS,
    LOG_WORST,
    begin_row,
    blank_trials,
    credit,
    credit_rows,
    grown,
    multiply,
    raise_bound,
    raise_by_prefixes,
)
from episafe.storage.state_reader import Saved
from episafe.types import Array, IntArray

LONGEST_TAIL = 256  # deployments after one that is not reported; the oldest is then charged for as if lost
FINENESS = 48  # points of the grid while the distance to the incumbent's value falls to 1/e
NO_ID = -1  # of a deployment that nobody counted, which is reported as it is made; and of its plan
SLACK_LOOKED_FOR = 0.02  # of b: how fine the grid is made where the slack is not known
NOT_ON_TRIAL = -1  # the row of a policy that has none


def grid_of_means(
    threshold: float, known: float | None, largest: float, least: float = 0.0, fineness: float = FINENESS
) -> Array:
    """Means to bet against, rising: dense where the weight of a mixture depends on them, with b among them.

    Below b the distance to the incumbent's value v falls by a constant factor from point to point; above b, where a
    policy pays for others by L − b, that difference grows by one. All are above `least`, which every policy has.
    """
    range_ = (1 + SLACK_LOOKED_FOR) * (threshold - least) if known is None else known - least
    spread = max(least + range_ - threshold, range_ / 500)
    falls = max(math.ceil(fineness * math.log(range_ / spread)), 1)
    below = least + (range_ - range_ * (spread / range_) ** (np.arange(1, falls + 1) / falls))
    below[-1] = threshold
    rises = math.ceil(math.log1p(max(largest - threshold, spread) / spread * 4) / math.log1p(4 / fineness))
    above = threshold + spread / 4 * ((1 + 4 / fineness) ** np.arange(1, rises + 1) - 1)
    means = np.concatenate([below, above])
    return means[means > least]


@dataclass(slots=True)
class DeployedShare:
    """One deployment of a plan, in the order in which they were made: share q and utility X once it is reported."""

    deployment: int
    plan: int
    share: float = 1.0
    utility: float = 0.0
    is_reported: bool = False

    def row(self) -> tuple[float, ...]:
        """As numbers."""
        return self.deployment, self.plan, self.share, self.utility, self.is_reported


@dataclass(slots=True)
class Pending:
    """What is not settled of a row.

    Attributes:
        tail: its deployments in their order, from the oldest on that is not reported.
        lost: those before the tail that are charged for as if lost.
        settled_plan: of the last deployment before the tail.
    """

    tail: list[DeployedShare] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    settled_plan: int = NO_ID


class Account:
    """The wealth of every row of the ledger against one constraint, and its deployments that are not reported yet.

    `kernels.wealth` has the formulas; the wealth and the bound L of each row are in `trials`. The incumbent's bound is
    known, b + ξ; or it has a sequence of its own, as if it were the first candidate. Candidate j = 1, 2, … has
    δ_j = δ/(j(j+1)), which sum to δ. A deployment counts from when it is made: what is not reported counts at its
    worst, in the order of deployments, and the bound is the best that any prefix of them proves.

    Args:
        means: the grid of means that are bet against; see `grid_of_means`.
        threshold: b.
        known: what the incumbent has, b + ξ; None where nobody knows it.
        delta: the probability with which any bound may ever be wrong.
        num_rows: policies on trial at once, with the incumbent and without those that are given a row of their own.
        least_total: what an episode's total utility is at least.
        bet_weights: of the mean of the bets, (B,), which sum to 1; None for equal ones.
        longest_tail: deployments after one that is not reported; the oldest is then charged for as if lost.

    Attributes:
        void: why nothing is proved any more, for ever; "" if all is well.
    """

    void = ""

    def __init__(
        self,
        means: Array,
        threshold: float,
        known: float | None,
        delta: float,
        num_rows: int,
        least_total: float = 0.0,
        bet_weights: Array | None = None,
        longest_tail: int = LONGEST_TAIL,
    ) -> None:
        self._first_logs = None if bet_weights is None else np.log(len(BETS) * bet_weights)
        self.delta, self.threshold, self._longest_tail = delta, threshold, longest_tail
        self.least_total = least_total
        self._rounding = TOLERANCE * ((threshold if known is None else known) - least_total)
        self.trials = blank_trials(means, num_rows, least_total)
        self.num_candidates = 0
        self._pending = [Pending() for _ in range(num_rows)]
        self._mixed_up: set[int] = set()  # plans of which nobody knows which report is of which deployment
        if known is None:
            self.begin_row(0, 0.0)
        self.trials.lower[0], self.trials.in_use[0] = least_total if known is None else known, 1

    @property
    def next_log_term(self) -> float:
        """ln(B/δ_j) of the next candidate."""
        j = self.num_candidates + 1
        return math.log(len(BETS) * j * (j + 1) / self.delta)

    def begin_row(self, i: int, guess: float) -> None:
        """A new policy in row i, of which nothing is known but the reward that was promised."""
        begin_row(self.trials, i, self.next_log_term, guess)
        self.num_candidates += 1
        if self._first_logs is not None:
            self.trials.logs[i] = self._first_logs
        self._pending[i] = Pending()

    def widen(self) -> None:
        """Room for one more policy."""
        self.trials = grown(self.trials)
        self._pending.append(Pending())

    def share_delta(self) -> None:
        """Let the n candidates that there are have δ_j = (δ/2)(1/(j(j+1)) + 1/(n + 1)): half by their order, and half
        alike. That is what they had together. Nothing where something was deployed already, or a candidate is gone.
        """
        trials, rows = self.trials, np.flatnonzero(self.trials.log_term)
        untouched = not (self.awaits or trials.num_factors.any() or trials.logs.any() or trials.absent.any())
        if untouched and len(rows) == self.num_candidates == int((trials.in_use[rows] == 1).sum()):
            j, n = np.arange(1, len(rows) + 1), len(rows)
            trials.log_term[rows] = np.log(2 * len(BETS) / self.delta / (1 / (j * (j + 1)) + 1 / (n + 1)))

    def change(self, threshold: float, known: float | None) -> None:
        """Another threshold, and another bound of the incumbent where it is known; what is proved does not depend on
        them. The grid of means stays: a point that began late would prove too much.
        """
        self.threshold = threshold
        self.trials.lower[0] = self.trials.lower[0] if known is None else known

    def withdraw(self, i: int) -> None:
        """Prove nothing of row i any more; its δ_j stays spent."""
        self.trials.in_use[i], self.trials.lower[i], self.trials.absent[i] = 0, self.least_total, 0
        self._pending[i] = Pending()
        self.trials.newest[0] *= int(self.trials.newest[0] != i)

    def lose(self, num_candidates: int) -> None:
        """End all trials; up to so many candidates that nobody knows of keep their δ_j.

        An incumbent that has a sequence begins a new one: what is pending, and what is lost, would be at its worst in
        the old one.
        """
        trials = self.trials
        trials.in_use[1:], trials.newest[0], trials.absent[:], trials.lower[1:] = 0, 0, 0, self.least_total
        self._pending = [Pending() for _ in trials.lower]
        self.num_candidates += num_candidates
        if trials.log_term[0] > 0:
            self.begin_row(0, 0.0)

    def end(self, why: str) -> None:
        """Prove nothing any more, for ever; the incumbent's own bound, where it is proved and not known, goes too."""
        self.void = self.void or why
        self.lose(0)
        if self.trials.log_term[0] > 0:
            self.trials.reached[0] = len(self.trials.means) - 1

    def forecast(self, i: int) -> float:
        """About how many more episodes it takes until L ≥ b in row i, at its present weight; 0 if it is, ∞ if never.

        By the best bet against b: its logarithm has grown so fast with the policy's own episodes.
        """
        trials = self.trials
        if trials.lower[i] >= self.threshold:
            return 0.0
        g = int(np.searchsorted(trials.means, self.threshold))
        wealth = trials.logs[i, g] + np.log(trials.products[i, g]) + trials.absent[i] * LOG_WORST
        best, own = float(wealth.max()), float(trials.rewards[i, 1])
        if own < 1:
            return math.inf if own else 1.0
        if best <= 0:
            return math.inf
        weight = (trials.lower[0] - self.threshold) / (trials.lower[0] - trials.lower[i])
        return float((trials.log_term[i] - best) * own / best / weight)

    def evidence_left(self, rows: Sequence[int]) -> Array:
        """How much ln M(b) of each row has still to grow until it reaches ln(1/δ_j), without what is pending."""
        trials, b = self.trials, int(np.searchsorted(self.trials.means, self.threshold))
        wealth = np.exp(trials.logs[rows, b] + trials.absent[rows, None] * LOG_WORST) * trials.products[rows, b]
        left: Array = trials.log_term[rows] - np.log(wealth.sum(axis=1))
        return left

    def expect(self, deployment: int, rows: Sequence[int], plan: int) -> None:
        """A deployment of these rows is made. Until it is reported it counts at its worst: q = 1, X the least total."""
        for i in filter(self._has_sequence, dict.fromkeys(rows)):
            self._pending[i].tail.append(DeployedShare(deployment, plan, utility=self.least_total))
            self._settle(i)

    def credit(
        self,
        deployment: int | None,
        rows: Sequence[int],
        shares: Sequence[float],
        utility: float,
        reward: float,
        named: bool = True,
    ) -> None:
        """What came of a deployment. One that was made before a row began does not count for it.

        Where it is only known of which plan it was (`named` is False), the reports of that plan may be in any order, so
        that only prefixes with all or none of its deployments prove anything. A policy that is a component twice has
        the sum of its shares: one episode is one factor.
        """
        if utility < self.least_total - self._rounding:
            self.end(
                f"an episode had a total utility of {utility:.6g}, below the least of {self.least_total:.6g} that "
                "every proof rests on: nothing is certified any more; state a true least_total and begin anew"
            )
        utility = max(utility, self.least_total)  # up to rounding, or nothing is proved any more
        for i in dict.fromkeys(rows):
            if i == NOT_ON_TRIAL or not self.trials.in_use[i]:
                continue
            share = min(sum(one for row, one in zip(rows, shares, strict=True) if row == i), 1.0)
            if not self._has_sequence(i) or (deployment is None and not self._pending[i].tail):
                credit(self.trials, i, share, utility, reward)
            elif self._enter(i, deployment, share, utility, named):
                self.trials.rewards[i] += share * reward, share
                self._settle(i)

    def credit_each(
        self, deployment: int | None, rows: IntArray, utilities: Array, rewards: Array, named: bool
    ) -> None:
        """What came of an episode for each of these rows, utility and reward of its own: it counts in full for all."""
        if deployment is None and not any(self._pending[i].tail for i in rows.tolist()):
            credit_rows(self.trials, rows, utilities, rewards)
            return
        for i, utility, reward in zip(rows.tolist(), utilities.tolist(), rewards.tolist(), strict=True):
            self.credit(deployment, [i], [1.0], utility, reward, named)

    @property
    def awaits(self) -> bool:
        """Whether deployments count that are not reported, so that reports have a place among them."""
        return any(one.tail for one in self._pending)

    def _has_sequence(self, i: int) -> bool:
        """Whether row i is proved by what is reported: all but an incumbent whose bound is known."""
        return i != NOT_ON_TRIAL and bool(self.trials.in_use[i]) and bool(self.trials.log_term[i] > 0)

    def _enter(self, i: int, deployment: int | None, share: float, utility: float, named: bool) -> bool:
        """Write a report into its place in the order of deployments; False where it has none."""
        pending = self._pending[i]
        if deployment is None:
            pending.tail.append(DeployedShare(NO_ID, NO_ID, share, utility, True))
            return True
        if deployment in pending.lost:
            if not named:  # which of its plan it is nobody knows, and those after it may be judged without it
                return False
            pending.lost.remove(deployment)
            self.trials.absent[i] -= 1
            multiply(self.trials, i, share, utility)
            return True
        entry = next((one for one in pending.tail if one.deployment == deployment and not one.is_reported), None)
        if entry is None:
            return False
        entry.share, entry.utility, entry.is_reported = share, utility, True
        if not named:
            self._mixed_up.add(entry.plan)
        return True

    def _settle(self, i: int) -> None:
        """Take what is decided off the tail of row i, and see what the prefixes of the rest prove."""
        pending, trials, done = self._pending[i], self.trials, 0
        tail = pending.tail
        while done < len(tail) and (tail[done].is_reported or len(tail) - done > self._longest_tail):
            entry = tail[done]
            if entry.is_reported:
                multiply(trials, i, entry.share, entry.utility)
            else:
                trials.absent[i] += 1
                pending.lost.add(entry.deployment)
            done += 1
            pending.settled_plan = entry.plan
            if self._may_end(entry.plan, tail, done):
                raise_bound(trials, i)
        del tail[:done]
        settled = self._may_end(pending.settled_plan, tail, 0)
        if settled:
            raise_bound(trials, i)
        if not settled or any(entry.is_reported for entry in tail):
            ends = [self._may_end(entry.plan, tail, n + 1) for n, entry in enumerate(tail)]
            shares, utilities = np.array([(entry.share, entry.utility) for entry in tail]).T
            raise_by_prefixes(trials, i, shares.copy(), utilities.copy(), np.array(ends))

    def _may_end(self, plan: int, tail: list[DeployedShare], n: int) -> bool:
        """Whether a prefix may end with a deployment of this plan, before tail[n]."""
        return plan not in self._mixed_up or n == len(tail) or tail[n].plan != plan

    def state(self) -> dict[str, Any]:
        """The trials, and what is not reported."""
        tails = [(i, *entry.row()) for i, one in enumerate(self._pending) for entry in one.tail]
        settled = [one.settled_plan for one in self._pending]
        current = {entry.plan for one in self._pending for entry in one.tail} | set(settled)
        lost = [(i, deployment) for i, one in enumerate(self._pending) for deployment in sorted(one.lost)]
        own = {
            "num_candidates": self.num_candidates,
            "tails": np.array(tails, dtype=float).reshape(-1, 6),
            "settled_plans": np.array(settled, dtype=np.int64),
            "mixed_up": np.array(sorted(self._mixed_up & current), dtype=np.int64),
            "lost": np.array(lost, dtype=np.int64).reshape(-1, 2),
        }
        trials = {name: array for name, array in self.trials._asdict().items() if name != "least"}  # the task says it
        return {**trials, **own, **({"void": np.array(self.void)} if self.void else {})}

    def restore(self, saved: Saved) -> None:
        """Fill a new account, with room for all rows, with what `state` said."""
        trials, n = self.trials, len(self.trials.lower)
        known, log_term = trials.lower[0], trials.log_term[0]
        if not np.array_equal(saved.numbers("means", trials.means.shape), trials.means):
            saved.refuse("means", "is not the grid of this task")
        for name in ("logs", "products", "lower", "log_term", "guess", "rewards"):
            array = getattr(trials, name)
            lowest = {"products": 0.0, "log_term": 0.0, "lower": min(self.least_total, 0.0)}
            array[:] = saved.numbers(name, array.shape, least=lowest.get(name, -np.inf))
        trials.in_use[:] = saved.wholes("in_use", (n,), 0, 2)
        trials.newest[:] = saved.wholes("newest", (1,), 0, n)
        trials.num_factors[:] = saved.wholes("num_factors", (n,), 0, 32)
        trials.absent[:] = saved.wholes("absent", (n,), 0, 2**62)
        trials.reached[:] = saved.wholes("reached", (n,), -1, len(trials.means))
        self.num_candidates = saved.whole("num_candidates")
        self._restore_pending(saved)
        self.void = saved.text("void") if saved.has("void") else ""
        if (trials.log_term[0] > 0) != (log_term > 0) or (log_term == 0 and trials.lower[0] != known):
            saved.refuse("lower", "does not begin with the incumbent and its b + ξ")

    def _restore_pending(self, saved: Saved) -> None:
        n = len(self.trials.lower)
        settled = saved.wholes("settled_plans", (n,), NO_ID, 2**62).tolist()
        self._pending = [Pending(settled_plan=plan) for plan in settled]
        self._mixed_up = set(saved.wholes("mixed_up", (None,), NO_ID, 2**62).tolist())
        for i, deployment, plan, share, utility, is_reported in saved.numbers("tails", (None, 6)).tolist():
            possible = 0 <= i < n and min(deployment, plan) >= NO_ID and 0 <= share <= 1
            possible &= utility >= self.least_total if is_reported else (share, utility) == (1, self.least_total)
            known = {entry.deployment for entry in self._pending[int(i)].tail} - {NO_ID} if possible else {deployment}
            if deployment in known:
                saved.refuse("tails", f"has deployment {deployment:g} of row {i:g} twice, or not as it can be")
            self._pending[int(i)].tail.append(
                DeployedShare(int(deployment), int(plan), share, utility, bool(is_reported))
            )
        for i, deployment in saved.wholes("lost", (None, 2), 0, 2**62).tolist():
            self._pending[min(i, n - 1)].lost.add(deployment)
        if [len(one.lost) for one in self._pending] != self.trials.absent.tolist():
            saved.refuse("absent", "does not count the deployments that are lost")
