"""The ledger: the policies on trial, the wealth of each, and what was deployed and not reported yet.

With m constraints every policy has an account for each, at δ_j/m, so that all its bounds hold together with probability
1 − δ_j. What is deployed is the best mixture whose bound reaches every threshold: two policies where there is one
constraint, in closed form; at most m + 1 where there are several, by a small linear program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.certify.base import INCUMBENT, PROPOSAL, Deployment
from episafe.checks import TOLERANCE
from episafe.errors import InvalidEpisode, reason_of
from episafe.kernels.mixture_choice import EPISODES_TO_CERTIFY, best_mixture, choose, payers_share, score
from episafe.kernels.mixture_weights import best_weights, choose_weights, mixture_bound
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
    share_out,
)
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.problems.states import Outside
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Array, IntArray, amount

LONGEST_TAIL = 256  # deployments after one that is not reported; the oldest is then charged for as if lost
FINENESS = 48  # points of the grid while the distance to the incumbent's value falls to 1/e
NO_ID = -1  # of a deployment that nobody counted, which is reported as it is made; and of its plan
SLACK_LOOKED_FOR = 0.02  # of b: how fine the grid is made where the slack is not known
MOST_ROWS = 2**20
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
        self._clear(num_rows)
        self._mixed_up: set[int] = set()  # plans of which nobody knows which report is of which deployment
        if known is None:
            self.begin_row(0, 0.0)
        self.trials.lower[0], self.trials.in_use[0] = least_total if known is None else known, 1

    def _clear(self, num_rows: int) -> None:
        """Nothing is deployed, or forgotten, of any row."""
        self._tails: list[list[Entry]] = [[] for _ in range(num_rows)]
        self._lost: list[set[int]] = [set() for _ in range(num_rows)]
        self._settled_plan = [NO_ID] * num_rows  # of the last deployment before the tail

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
        self._tails[i], self._lost[i], self._settled_plan[i] = [], set(), NO_ID

    def widen(self) -> None:
        """Room for one more policy."""
        self.trials = grown(self.trials)
        self._tails.append([])
        self._lost.append(set())
        self._settled_plan.append(NO_ID)

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
        self._tails[i], self._lost[i], self._settled_plan[i] = [], set(), NO_ID
        self.trials.newest[0] *= int(self.trials.newest[0] != i)

    def lose(self, num_candidates: int) -> None:
        """End all trials; up to so many candidates that nobody knows of keep their δ_j.

        An incumbent that has a sequence begins a new one: what is pending, and what is lost, would be at its worst in
        the old one.
        """
        trials = self.trials
        trials.in_use[1:], trials.newest[0], trials.absent[:], trials.lower[1:] = 0, 0, 0, self.least_total
        self._clear(len(trials.lower))
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
            self._tails[i].append(Entry(deployment, plan, utility=self.least_total))
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
            if not self._has_sequence(i) or (deployment is None and not self._tails[i]):
                credit(self.trials, i, share, utility, reward)
            elif self._enter(i, deployment, share, utility, named):
                self.trials.rewards[i] += share * reward, share
                self._settle(i)

    def credit_each(
        self, deployment: int | None, rows: IntArray, utilities: Array, rewards: Array, named: bool
    ) -> None:
        """What came of an episode for each of these rows, utility and reward of its own: it counts in full for all."""
        if deployment is None and not any(map(self._tails.__getitem__, rows)):
            credit_rows(self.trials, rows, utilities, rewards)
            return
        for i, utility, reward in zip(rows.tolist(), utilities.tolist(), rewards.tolist(), strict=True):
            self.credit(deployment, [i], [1.0], utility, reward, named)

    @property
    def awaits(self) -> bool:
        """Whether deployments count that are not reported, so that reports have a place among them."""
        return any(map(bool, self._tails))

    def _has_sequence(self, i: int) -> bool:
        """Whether row i is proved by what is reported: all but an incumbent whose bound is known."""
        return i != NOT_ON_TRIAL and bool(self.trials.in_use[i]) and bool(self.trials.log_term[i] > 0)

    def _enter(self, i: int, deployment: int | None, share: float, utility: float, named: bool) -> bool:
        """Write a report into its place in the order of deployments; False where it has none."""
        if deployment is None:
            self._tails[i].append(Entry(NO_ID, NO_ID, share, utility, True))
            return True
        if deployment in self._lost[i]:
            if not named:  # which of its plan it is nobody knows, and those after it may be judged without it
                return False
            self._lost[i].remove(deployment)
            self.trials.absent[i] -= 1
            multiply(self.trials, i, share, utility)
            return True
        entry = next((one for one in self._tails[i] if one.deployment == deployment and not one.is_reported), None)
        if entry is None:
            return False
        entry.share, entry.utility, entry.is_reported = share, utility, True
        if not named:
            self._mixed_up.add(entry.plan)
        return True

    def _settle(self, i: int) -> None:
        """Take what is decided off the tail of row i, and see what the prefixes of the rest prove."""
        tail, trials, done = self._tails[i], self.trials, 0
        while done < len(tail) and (tail[done].is_reported or len(tail) - done > self._longest_tail):
            entry = tail[done]
            if entry.is_reported:
                multiply(trials, i, entry.share, entry.utility)
            else:
                trials.absent[i] += 1
                self._lost[i].add(entry.deployment)
            done += 1
            self._settled_plan[i] = entry.plan
            if self._may_end(entry.plan, tail, done):
                raise_bound(trials, i)
        del tail[:done]
        settled = self._may_end(self._settled_plan[i], tail, 0)
        if settled:
            raise_bound(trials, i)
        if not settled or any(entry.is_reported for entry in tail):
            ends = [self._may_end(entry.plan, tail, n + 1) for n, entry in enumerate(tail)]
            shares, utilities = np.array([(entry.share, entry.utility) for entry in tail]).T
            raise_by_prefixes(trials, i, shares.copy(), utilities.copy(), np.array(ends))

    def _may_end(self, plan: int, tail: "list[Entry]", n: int) -> bool:
        """Whether a prefix may end with a deployment of this plan, before tail[n]."""
        return plan not in self._mixed_up or n == len(tail) or tail[n].plan != plan

    def state(self) -> dict[str, Any]:
        """The trials, and what is not reported."""
        tails = [(i, *entry.row()) for i, tail in enumerate(self._tails) for entry in tail]
        current = {entry.plan for tail in self._tails for entry in tail} | set(self._settled_plan)
        lost = [(i, deployment) for i, lost in enumerate(self._lost) for deployment in sorted(lost)]
        own = {
            "num_candidates": self.num_candidates,
            "tails": np.array(tails, dtype=float).reshape(-1, 6),
            "settled_plans": np.array(self._settled_plan, dtype=np.int64),
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
        self._restore_tails(saved)
        self.void = saved.text("void") if saved.has("void") else ""
        if (trials.log_term[0] > 0) != (log_term > 0) or (log_term == 0 and trials.lower[0] != known):
            saved.refuse("lower", "does not begin with the incumbent and its b + ξ")

    def _restore_tails(self, saved: Saved) -> None:
        n = len(self.trials.lower)
        self._clear(n)
        self._settled_plan = saved.wholes("settled_plans", (n,), NO_ID, 2**62).tolist()
        self._mixed_up = set(saved.wholes("mixed_up", (None,), NO_ID, 2**62).tolist())
        for i, deployment, plan, share, utility, is_reported in saved.numbers("tails", (None, 6)).tolist():
            possible = 0 <= i < n and min(deployment, plan) >= NO_ID and 0 <= share <= 1
            possible &= utility >= self.least_total if is_reported else (share, utility) == (1, self.least_total)
            known = {entry.deployment for entry in self._tails[int(i)]} - {NO_ID} if possible else {deployment}
            if deployment in known:
                saved.refuse("tails", f"has deployment {deployment:g} of row {i:g} twice, or not as it can be")
            self._tails[int(i)].append(Entry(int(deployment), int(plan), share, utility, bool(is_reported)))
        for i, deployment in saved.wholes("lost", (None, 2), 0, 2**62).tolist():
            self._lost[min(i, n - 1)].add(deployment)
        if [len(lost) for lost in self._lost] != self.trials.absent.tolist():
            saved.refuse("absent", "does not count the deployments that are lost")


class Ledger:
    """The policies on trial, by row, with an account for each constraint. Row 0 is the incumbent.

    Bounds and utilities are numbers where there is one constraint, and arrays (m,) where there are several.

    Args:
        incumbent: the policy of row 0.
        each: an account for each constraint, made alike but for threshold, known bound and least total, at δ/m.
    """

    def __init__(self, incumbent: Policy, each: Sequence[Account]) -> None:
        self.each, num_rows = tuple(each), len(each[0].trials.lower)
        self.policies: list[Policy | None] = [incumbent] + [None] * (num_rows - 1)
        self.lams = [math.nan] * num_rows
        self.names = [INCUMBENT] + [""] * (num_rows - 1)
        self.num_shared = num_rows  # rows that a new proposal may take over
        self.pinned = 0  # the row of what was promoted, which none takes over; the incumbent's where nothing was

    @property
    def trials(self) -> Any:
        """Those of the first constraint, by which all that is alike in every account is known."""
        return self.each[0].trials

    @property
    def void(self) -> str:
        """Why nothing is proved any more; "" if all is well."""
        return next((one.void for one in self.each if one.void), "")

    @property
    def num_candidates(self) -> int:
        """How many have been on trial."""
        return self.each[0].num_candidates

    @property
    def next_log_term(self) -> float:
        """ln(B/δ_j) of the next candidate."""
        return self.each[0].next_log_term

    @property
    def newest(self) -> int:
        """The row of the newest policy."""
        return int(self.trials.newest[0])

    @newest.setter
    def newest(self, row: int) -> None:
        for one in self.each:
            one.trials.newest[0] = row

    @property
    def in_use(self) -> NDArray[np.bool_]:
        """Which rows have a policy, (n,)."""
        used: NDArray[np.bool_] = self.trials.in_use == 1
        return used

    @property
    def lower(self) -> Array:
        """L of every policy, (n,), or (n, m) of every constraint."""
        return self.trials.lower if len(self.each) == 1 else self._lower()

    def _lower(self) -> Array:
        return np.stack([one.trials.lower for one in self.each], axis=1)

    @property
    def _thresholds(self) -> Array:
        return np.array([one.threshold for one in self.each])

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rows have bounds that reach every threshold, (n,)."""
        return np.logical_and.reduce(self._lower() >= self._thresholds, axis=1)

    @property
    def assured(self) -> Array:
        """L of every policy, (n, m); the incumbent has at least the thresholds, also where its slack is not known."""
        lower = self._lower()
        lower[0] = np.maximum(lower[0], self._thresholds)
        return lower

    def trial_weights(self, rows: Sequence[int], may_pay: NDArray[np.bool_]) -> Array:
        """Weights (k, n) that give each of these rows, which are not certified, the most that every check allows, and
        the rest to those that may pay: to the row of the largest bound, where there is one constraint.
        """
        if len(self.each) > 1:
            assured, wanted = self.assured, np.eye(len(may_pay))
            may_act = (may_pay & self.in_use | wanted.astype(bool)).astype(np.int64)
            return np.array([best_weights(wanted[i], assured, self._thresholds, may_act[i]) for i in rows])
        weights, lower, b = np.zeros((len(rows), len(may_pay))), self.lower.tolist(), self.each[0].threshold
        payer = int(np.argmax(np.where(may_pay, self.lower, -np.inf)))
        pays = lower[payer] > b
        for k, i in enumerate(rows):
            share = float(payers_share(lower[i], lower[payer], b)) if pays else 1.0
            weights[k, payer], weights[k, i] = share, 1.0 - share
        return weights

    def rewards(self, i: int) -> tuple[float, float]:
        """ΣqR and Σq of row i."""
        total, own = self.trials.rewards[i].tolist()
        return total, own

    def know_rewards(self, i: int, total: float, number: float) -> None:
        """What policy i earns in total in so many episodes, from elsewhere; the reward promised counts beside it."""
        for one in self.each:
            one.trials.rewards[i] = total, number

    def score(self, i: int) -> float:
        """How good policy i seems."""
        return float(score(self.trials, i))

    def begin(self, policy: Policy, name: str, lam: float, guess: float) -> int:
        """Put a policy on trial, in a free row or in place of the least useful one; its row."""
        i = self._row()
        for one in self.each:
            one.begin_row(i, guess)
        self.policies[i], self.lams[i], self.names[i] = policy, lam, name or f"{PROPOSAL}{self.num_candidates}"
        return i

    def add(self, policy: Policy, name: str, guess: float) -> int:
        """Put a policy on trial in a row of its own, which no other takes over; its row."""
        i = len(self.policies)
        self._widen(i + 1)
        for one in self.each:
            one.begin_row(i, guess)
        self.policies[i], self.names[i] = policy, name
        return i

    def _widen(self, num_rows: int) -> None:
        """Make room for so many policies."""
        while len(self.policies) < num_rows:
            for one in self.each:
                one.widen()
            self.policies.append(None)
            self.lams.append(math.nan)
            self.names.append("")

    def _row(self) -> int:
        """A free row, or that of the policy of least score − Σ_c (b_c − L_c)₊, never the incumbent's or one pinned."""
        free = np.flatnonzero(self.trials.in_use[: self.num_shared] == 0)
        if len(free):
            return int(free[0])
        shortfall = np.maximum(self._thresholds - self._lower(), 0).sum(axis=1)
        self.newest = 0  # the newest one is now judged by what it did
        rows = [i for i in range(1, self.num_shared) if i != self.pinned]
        return min(rows, key=lambda i: self.score(i) - shortfall[i])

    def share_delta(self) -> None:
        """Let the candidates share δ, half of it alike, before anything is deployed."""
        for one in self.each:
            one.share_delta()

    def try_again(self, i: int, guess: float) -> None:
        """Let policy i, which is on trial, be the newest again, with what is promised of it now."""
        for one in self.each:
            one.trials.guess[i], one.trials.newest[0] = guess, i

    def cap_promises(self, most: float) -> None:
        """Let no policy on trial promise more than this."""
        for one in self.each:
            np.minimum(one.trials.guess, most, out=one.trials.guess)

    def change(self, thresholds: Amount, known: Any) -> None:
        """Other thresholds, and other bounds of the incumbent where they are known; of several constraints one each."""
        several = [(thresholds, known)] if len(self.each) == 1 else zip(thresholds.tolist(), known, strict=True)
        for one, limits in zip(self.each, several, strict=True):
            one.change(*limits)

    def pin(self, name: str) -> None:
        """Keep the row of this policy from being taken over."""
        self.pinned = self.names.index(name)

    def withdraw(self, name: str) -> int:
        """End the trial of a policy: nothing is proved of it any more, and its δ_j stays spent. Its row."""
        i = self.names.index(name)
        for one in self.each:
            one.withdraw(i)
        self.policies[i], self.names[i] = None, ""
        self.pinned *= int(self.pinned != i)
        return i

    def lose(self, num_candidates: int) -> None:
        """End all trials; up to so many candidates that nobody knows of keep their δ_j."""
        for one in self.each:
            one.lose(num_candidates)
        self._forget()

    def end(self, why: str) -> None:
        """Prove nothing any more: where it is so of one constraint, no mixture is proved to keep them all."""
        for one in self.each:
            one.end(why)
        self._forget()

    def _forget(self) -> None:
        """No candidate is on trial."""
        n = len(self.policies) - 1
        self.policies[1:], self.names[1:], self.pinned = [None] * n, [""] * n, 0

    def forecast(self, i: int) -> float:
        """About how many more episodes it takes until every bound of row i reaches its threshold."""
        return max(one.forecast(i) for one in self.each)

    def bounds(self) -> dict[str, Amount]:
        """What is proved of each policy on trial, by its name."""
        lower = self._lower()
        return {self.names[i]: amount(lower[i]) for i in np.flatnonzero(self.in_use).tolist()}

    def policy(self, name: str) -> Policy:
        """The policy on trial that has this name."""
        if name not in self.bounds():
            raise ValueError(f"no policy {name!r} is on trial: there are {', '.join(self.bounds())}")
        found = self.policies[self.names.index(name)]
        assert found is not None
        return found

    def rows_of(self, policy: Policy) -> list[int]:
        """The rows of the components of what is or was deployed; −1 for one that is no longer on trial."""
        return self.rows_of_all(policy.components)

    def rows_of_all(self, policies: Sequence[Policy | None]) -> list[int]:
        """The row of each of these policies; −1 for one that has none."""
        return [NOT_ON_TRIAL if policy is None else self._row_of(policy) for policy in policies]

    def _row_of(self, policy: Policy) -> int:
        return next((i for i, on_trial in enumerate(self.policies) if on_trial is policy), NOT_ON_TRIAL)

    def expect(self, deployment: int, rows: Sequence[int], plan: int = NO_ID) -> None:
        """A deployment of these rows is made; until it is reported it counts at its worst in every constraint."""
        for one in self.each:
            one.expect(deployment, rows, plan)

    def credit(
        self,
        deployment: int | None,
        rows: Sequence[int],
        shares: Sequence[float],
        utility: Amount,
        reward: float,
        named: bool = True,
    ) -> None:
        """What came of a deployment: see `Account.credit`. A total that voids one account ends them all."""
        totals = (utility,) if len(self.each) == 1 else utility.tolist()
        for one, total in zip(self.each, totals, strict=True):
            one.credit(deployment, rows, shares, total, reward, named)
        self._heed_void()

    def credit_each(
        self, deployment: int | None, rows: IntArray, utilities: Array, rewards: Array, named: bool = True
    ) -> None:
        """What came of an episode for each of these rows, utilities (n,), or (n, m), and rewards (n,) of their own."""
        for one, totals in zip(self.each, utilities.reshape(len(rows), -1).T, strict=True):
            one.credit_each(deployment, rows, totals.copy(), rewards, named)
        self._heed_void()

    def _heed_void(self) -> None:
        """Where one account is void, so are the others."""
        if len(self.each) > 1 and self.void:
            self.end(self.void)
        elif self.each[0].void:
            self._forget()

    def choose(self, num_episodes: int) -> Deployment:
        """The best mixture whose bounds reach all thresholds, after so many episodes."""
        if len(self.each) == 1:
            return self._pair(*choose(self.trials, self.each[0].threshold, num_episodes))
        scores, in_use, reach = *self._scores(), num_episodes / EPISODES_TO_CERTIFY
        lower = self._lower()
        return self._mixture(choose_weights(scores, self.newest, lower, self._thresholds, in_use, reach), lower)

    def best(self, lower: Array) -> Deployment:
        """The mixture of largest score that these bounds, (n,) or (n, m), allow."""
        if len(self.each) == 1:
            return self._pair(*best_mixture(self.trials._replace(lower=lower), self.each[0].threshold, 0.0)[:4])
        scores, in_use = self._scores()
        return self._mixture(best_weights(scores, lower, self._thresholds, in_use), lower)

    def _scores(self) -> tuple[Array, IntArray]:
        """How good each policy seems, (n,), and which there are."""
        in_use = self.in_use.astype(np.int64)
        return np.array([self.score(i) if used else 0.0 for i, used in enumerate(in_use.tolist())]), in_use

    def _pair(self, first: int, second: int, weight: float, bound: float) -> Deployment:
        """The mixture weight·first + (1 − weight)·second of two rows."""
        rows = [first] if first == second else [first, second]
        return self.deployed(rows, [weight, 1 - weight][: len(rows)], bound)

    def _mixture(self, weights: Array, lower: Array) -> Deployment:
        """The mixture of these weights (n,), the incumbent last, with these bounds (n, m)."""
        rows = [*(np.flatnonzero(weights[1:] > 0) + 1).tolist(), *([0] if weights[0] > 0 else [])]
        bounds = np.array([mixture_bound(weights, lower, c) for c in range(len(self.each))])
        return self.deployed(rows, weights[rows], bounds)

    def deployed(self, rows: list[int], weights: Any, bound: Amount) -> Deployment:
        """A mixture of rows by their weights, with its bound."""
        policies = [policy for i in rows if (policy := self.policies[i]) is not None]
        if rows == [0]:
            return Deployment(policies[0], "safe", math.nan, math.nan, "no mixture with a candidate seems better")
        mixed = MixturePolicy(policies, weights, [self.names[i] for i in rows]) if len(rows) > 1 else policies[0]
        return Deployment(mixed, "search", self.lams[rows[0]], bound)

    def state(self, policies: PolicyArrays) -> State:
        """Every account with the rows that it is of; of several constraints below their numbers."""
        own = {
            "policies": np.array([policies.number(policy) for policy in self.policies], dtype=np.int64),
            "lams": np.array(self.lams),
            "names": np.array(self.names, dtype=np.str_),
        }
        each = [own | one.state() for one in self.each]
        if len(each) == 1:
            return each[0]
        return {name: array for c, one in enumerate(each) for name, array in under(f"constraint_{c}", one).items()}

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new ledger with what `state` said."""
        incumbent = self.policies[0]
        for c, one in enumerate(self.each):
            said = saved if len(self.each) == 1 else saved.under(f"constraint_{c}")
            names = said.texts("names", (None,)).tolist()
            n, given = len(names), list(filter(None, names))
            if not len(self.policies) <= n < MOST_ROWS or names[0] != INCUMBENT or len(set(given)) < len(given):
                said.refuse("names", f"of {n} rows do not begin with the incumbent's, or are not each its own")
            if c > 0 and names != self.names:
                said.refuse("names", "differ between the constraints")
            self._widen(n)
            self.names, self.lams = names, said.numbers("lams", (n,), nan=True).tolist()
            rows = said.wholes("policies", (n,), -1, len(policies)).tolist()
            self.policies = [None if i < 0 else policies[i] for i in rows]
            one.restore(said)
            if [int(policy is not None) for policy in self.policies] != one.trials.in_use.tolist():
                said.refuse("in_use", "does not say which rows have policies")
            if one.trials.newest[0] != self.newest:
                said.refuse("newest", "differs between the constraints")
        if self.policies[0] is not incumbent:
            saved.refuse("policies", "do not begin with the incumbent")


def ledger_of(task: AnyTask, delta: float, num_rows: int, bet_weights: Array | None = None) -> Ledger:
    """A new ledger for this task: its one account at δ, or one a constraint at δ/m each."""
    m, each = task.num_constraints, []
    for one, slack in zip(task.constraints, known_slacks(task).tolist(), strict=True):
        b, known, least = one.threshold, one.threshold + slack, one.least_total
        means = grid_of_means(b, known, task.horizon, least, FINENESS / math.sqrt(m))
        each.append(Account(means, b, known, delta / m, num_rows, least, bet_weights))
    return Ledger(task.safe_policy, each)


@dataclass(slots=True)
class Entry:
    """One deployment of a plan, in the order in which they were made: share q and utility X once it is reported."""

    deployment: int
    plan: int
    share: float = 1.0
    utility: float = 0.0
    is_reported: bool = False

    def row(self) -> tuple[float, ...]:
        """As numbers."""
        return self.deployment, self.plan, self.share, self.utility, self.is_reported


def shares_of(mixture: Policy, task: Any, states: Any, actions: Any) -> list[float]:
    """The share of each component in an episode, by `share_out`; what they cannot have done is refused."""
    if states is None:
        if len(mixture.components) == 1:
            return [1.0]
        raise InvalidEpisode(
            "the plan is a mixture, and an episode with totals alone does not show who may have acted: report its "
            "states and actions"
        )
    acted, shares = np.empty((1, len(actions), len(mixture.components))), np.array(mixture.weights, dtype=float)[None]
    try:
        for i, policy in enumerate(mixture.components):
            acted[0, :, i] = _acted(policy, task, states, actions)
    except Exception as error:  # of a policy of somebody's own, asked where this episode went
        raise InvalidEpisode(f"nobody can say who may have acted: {reason_of(error)}") from error
    if not share_out(acted, shares.size, shares):
        raise InvalidEpisode("the deployed policy never acts like this: report the episode with its own plan_id")
    found: list[float] = shares[0].tolist()
    return found


def _acted(policy: Policy, task: Any, states: Any, actions: Any) -> Any:
    """π_h(a_h|s_h) at every step; the last state has no action.

    Before an episode begins and after it has ended nobody acts, whatever a policy says: 1/A for every component, so
    that these steps take no part in the shares.
    """
    if task.is_listed:
        return policy.table()[np.arange(len(actions)), np.asarray(states)[: len(actions)], actions]
    steps = list(zip(range(len(actions)), states, np.asarray(actions).tolist(), strict=False))
    inside = [step for step in steps if type(step[1]) is not Outside]
    found = np.full(len(steps), 1 / task.num_actions)
    found[[h for h, _, _ in inside]] = policy.along(inside)
    return found
