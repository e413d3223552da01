"""The ledger: the policies on trial, the wealth of each, and what was deployed and not reported yet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.certify.base import INCUMBENT, PROPOSAL, Deployment
from episafe.checks import TOLERANCE
from episafe.errors import InvalidEpisode
from episafe.kernels.mixture_choice import best_mixture, choose, payers_share, score
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
from episafe.problems.episodic_task import Outside
from episafe.problems.policy import MixturePolicy, Policy
from episafe.storage.state_reader import Saved, State
from episafe.types import Array, IntArray

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


class Ledger:
    """The policies on trial, by row. Row 0 is the incumbent.

    Its bound is known, b + ξ; or it has a sequence of its own, as if it were the first candidate. Candidate
    j = 1, 2, … has δ_j = δ/(j(j+1)), which sum to δ. The wealth and the bound L of each row are in `trials`:
    `kernels.wealth` has the formulas. A deployment counts from when it is made: what is not reported counts at its
    worst, in the order of deployments, and the bound is the best that any prefix of them proves.

    Args:
        incumbent: the policy of row 0.
        known: its bound, b + ξ; None where nobody knows it.
        threshold: b.
        largest: the most that an episode's total utility can be; a bound above it is of no use.
        delta: the probability with which any bound may ever be wrong.
        num_rows: policies on trial at once, with the incumbent and without those that are given a row of their own.
        longest_tail: deployments after one that is not reported; the oldest is then charged for as if lost.
        least_total: what an episode's total utility is at least.
        bet_weights: of the mean of the bets, (B,), which sum to 1; None for equal ones.
        fineness: points of its grid of means while the distance to the incumbent's value falls to 1/e.

    Attributes:
        void: why nothing is proved any more, for ever; "" if all is well.
    """

    void = ""

    def __init__(
        self,
        incumbent: Policy,
        known: float | None,
        threshold: float,
        largest: float,
        delta: float,
        num_rows: int,
        longest_tail: int = LONGEST_TAIL,
        least_total: float = 0.0,
        bet_weights: Array | None = None,
        fineness: float = FINENESS,
    ) -> None:
        self._first_logs = None if bet_weights is None else np.log(len(BETS) * bet_weights)
        self.delta, self.threshold, self._longest_tail = delta, threshold, longest_tail
        self.least_total = least_total
        self._rounding = TOLERANCE * ((threshold if known is None else known) - least_total)
        means = grid_of_means(threshold, known, largest, least_total, fineness)
        self.trials = blank_trials(means, num_rows, least_total)
        self.policies: list[Policy | None] = [incumbent] + [None] * (num_rows - 1)
        self.lams = [math.nan] * num_rows
        self.names = [INCUMBENT] + [""] * (num_rows - 1)
        self.num_candidates = 0
        self.num_shared = num_rows  # rows that a new proposal may take over
        self.pinned = 0  # the row of what was promoted, which none takes over; the incumbent's where nothing was
        self._tails: list[list[Entry]] = [[] for _ in range(num_rows)]
        self._lost: list[set[int]] = [set() for _ in range(num_rows)]
        self._settled_plan = [NO_ID] * num_rows  # of the last deployment before the tail
        self._mixed_up: set[int] = set()  # plans of which nobody knows which report is of which deployment
        if known is None:
            self._begin_row(0, 0.0)
        self.trials.lower[0], self.trials.in_use[0] = least_total if known is None else known, 1

    @property
    def newest(self) -> int:
        """The row of the newest policy."""
        return int(self.trials.newest[0])

    @newest.setter
    def newest(self, row: int) -> None:
        self.trials.newest[0] = row

    @property
    def in_use(self) -> NDArray[np.bool_]:
        """Which rows have a policy, (n,)."""
        used: NDArray[np.bool_] = self.trials.in_use == 1
        return used

    @property
    def lower(self) -> Array:
        """L of every policy, (n,)."""
        return self.trials.lower

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rows have a bound that reaches the threshold, (n,)."""
        reached: NDArray[np.bool_] = self.trials.lower >= self.threshold
        return reached

    @property
    def each(self) -> "tuple[Ledger, ...]":
        """The ledger of every constraint: itself."""
        return (self,)

    @property
    def assured(self) -> Array:
        """L of every policy, (n, 1); the incumbent has b at least."""
        lower = self.trials.lower[:, None].copy()
        lower[0] = max(lower[0, 0], self.threshold)
        return lower

    def trial_weights(self, rows: Sequence[int], may_pay: NDArray[np.bool_]) -> Array:
        """Weights (k, n) that give each of these rows, whose bounds are below b, the most that the check allows, and
        the rest to the row of the largest bound among those that may pay.
        """
        weights, lower = np.zeros((len(rows), len(may_pay))), self.trials.lower.tolist()
        payer = int(np.argmax(np.where(may_pay, self.trials.lower, -np.inf)))
        pays = lower[payer] > self.threshold
        for k, i in enumerate(rows):
            share = float(payers_share(lower[i], lower[payer], self.threshold)) if pays else 1.0
            weights[k, payer], weights[k, i] = share, 1.0 - share
        return weights

    def rewards(self, i: int) -> tuple[float, float]:
        """ΣqR and Σq of row i."""
        total, own = self.trials.rewards[i].tolist()
        return total, own

    def know_rewards(self, i: int, total: float, number: float) -> None:
        """What policy i earns in total in so many episodes, from elsewhere; the reward promised counts beside it."""
        self.trials.rewards[i] = total, number

    def score(self, i: int) -> float:
        """How good policy i seems."""
        return float(score(self.trials, i))

    def begin(self, policy: Policy, name: str, lam: float, guess: float, row: int | None = None) -> int:
        """Put a policy on trial, in this row, or in a free one, or in place of the least useful one; its row."""
        i = self._row() if row is None else row
        self._begin_row(i, guess)
        self.policies[i], self.lams[i], self.names[i] = policy, lam, name or f"{PROPOSAL}{self.num_candidates}"
        self._tails[i], self._lost[i], self._settled_plan[i] = [], set(), NO_ID
        return i

    def add(self, policy: Policy, name: str, guess: float) -> int:
        """Put a policy on trial in a row of its own, which no other takes over; its row."""
        self._widen(len(self.policies) + 1)
        i = len(self.policies) - 1
        self._begin_row(i, guess)
        self.policies[i], self.names[i] = policy, name
        return i

    def share_delta(self) -> None:
        """Let the n candidates that there are have δ_j = (δ/2)(1/(j(j+1)) + 1/(n + 1)): half by their order, and half
        alike. That is what they had together. Nothing where something was deployed already, or a candidate is gone.
        """
        trials, rows = self.trials, np.flatnonzero(self.trials.log_term)
        untouched = not (any(self._tails) or trials.num_factors.any() or trials.logs.any() or trials.absent.any())
        if untouched and len(rows) == self.num_candidates == int(self.in_use[rows].sum()):
            j, n = np.arange(1, len(rows) + 1), len(rows)
            trials.log_term[rows] = np.log(2 * len(BETS) / self.delta / (1 / (j * (j + 1)) + 1 / (n + 1)))

    def try_again(self, i: int, guess: float) -> None:
        """Let policy i, which is on trial, be the newest again, with what is promised of it now."""
        self.trials.guess[i], self.trials.newest[0] = guess, i

    def cap_promises(self, most: float) -> None:
        """Let no policy on trial promise more than this."""
        np.minimum(self.trials.guess, most, out=self.trials.guess)

    @property
    def next_log_term(self) -> float:
        """ln(B/δ_j) of the next candidate."""
        j = self.num_candidates + 1
        return math.log(len(BETS) * j * (j + 1) / self.delta)

    def _begin_row(self, i: int, guess: float) -> None:
        begin_row(self.trials, i, self.next_log_term, guess)
        self.num_candidates += 1
        if self._first_logs is not None:
            self.trials.logs[i] = self._first_logs

    def _widen(self, num_rows: int) -> None:
        """Make room for so many policies."""
        while len(self.policies) < num_rows:
            self.trials = grown(self.trials)
            self.policies.append(None)
            self.lams.append(math.nan)
            self.names.append("")
            self._tails.append([])
            self._lost.append(set())
            self._settled_plan.append(NO_ID)

    def change(self, threshold: float, known: float | None) -> None:
        """Another threshold, and another bound of the incumbent where it is known; what is proved does not depend on
        them. The grid of means stays: a point that began late would prove too much.
        """
        self.threshold = threshold
        self.trials.lower[0] = self.trials.lower[0] if known is None else known

    def pin(self, name: str) -> None:
        """Keep the row of this policy from being taken over."""
        self.pinned = self.names.index(name)

    def withdraw(self, name: str) -> int:
        """End the trial of a policy: nothing is proved of it any more, and its δ_j stays spent. Its row."""
        i = self.names.index(name)
        self.trials.in_use[i], self.trials.lower[i], self.policies[i], self.names[i] = 0, self.least_total, None, ""
        self.trials.absent[i], self._tails[i], self._lost[i], self._settled_plan[i] = 0, [], set(), NO_ID
        self.trials.newest[0] *= int(self.trials.newest[0] != i)
        self.pinned *= int(self.pinned != i)
        return i

    def lose(self, num_candidates: int) -> None:
        """End all trials; up to so many candidates that nobody knows of keep their δ_j.

        An incumbent that has a sequence begins a new one: what is pending, and what is lost, would be at its worst in
        the old one.
        """
        n, trials = len(self.policies), self.trials
        trials.in_use[1:], trials.newest[0], trials.absent[:], trials.lower[1:] = 0, 0, 0, self.least_total
        self.policies[1:], self.names[1:] = [None] * (n - 1), [""] * (n - 1)
        self._tails, self._lost, self._settled_plan = [[] for _ in range(n)], [set() for _ in range(n)], [NO_ID] * n
        self.num_candidates += num_candidates
        self.pinned = 0
        if trials.log_term[0] > 0:
            self._begin_row(0, 0.0)

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

    def bounds(self) -> dict[str, float]:
        """What is proved of each policy on trial, by its name."""
        rows = np.flatnonzero(self.trials.in_use).tolist()
        return {self.names[i]: float(self.trials.lower[i]) for i in rows}

    def policy(self, name: str) -> Policy:
        """The policy on trial that has this name."""
        if name not in self.bounds():
            raise ValueError(f"no policy {name!r} is on trial: there are {', '.join(self.bounds())}")
        found = self.policies[self.names.index(name)]
        assert found is not None
        return found

    def rows_of(self, policy: Policy) -> list[int]:
        """The rows of the components of what is or was deployed; −1 for one that is no longer on trial."""
        return [self._row_of(component) for component in policy.components]

    def rows_of_all(self, policies: Sequence[Policy | None]) -> list[int]:
        """The row of each of these policies; −1 for one that has none."""
        return [NOT_ON_TRIAL if policy is None else self._row_of(policy) for policy in policies]

    def expect(self, deployment: int, rows: Sequence[int], plan: int = NO_ID) -> None:
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
            self._become_void(utility)
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
        self, deployment: int | None, rows: IntArray, utilities: Array, rewards: Array, named: bool = True
    ) -> None:
        """What came of an episode for each of these rows, utility and reward of its own: it counts in full for all."""
        if deployment is None and not any(map(self._tails.__getitem__, rows)):
            credit_rows(self.trials, rows, utilities, rewards)
            return
        for i, utility, reward in zip(rows.tolist(), utilities.tolist(), rewards.tolist(), strict=True):
            self.credit(deployment, [i], [1.0], utility, reward, named)

    def _become_void(self, utility: float) -> None:
        """End all trials for ever: every proof rests on the least total, and an episode had less."""
        self.end(
            f"an episode had a total utility of {utility:.6g}, below the least of {self.least_total:.6g} that every "
            "proof rests on: nothing is certified any more; state a true least_total and begin anew"
        )

    def end(self, why: str) -> None:
        """Prove nothing any more, for ever; the incumbent's own bound, where it is proved and not known, goes too."""
        self.void = self.void or why
        self.lose(0)
        if self.trials.log_term[0] > 0:
            self.trials.reached[0] = len(self.trials.means) - 1

    @property
    def awaits(self) -> bool:
        """Whether deployments count that are not reported, so that reports have a place among them."""
        return any(map(bool, self._tails))

    def evidence_left(self, rows: Sequence[int]) -> Array:
        """How much ln M(b) of each row has still to grow until it reaches ln(1/δ_j), without what is pending."""
        trials, b = self.trials, int(np.searchsorted(self.trials.means, self.threshold))
        wealth = np.exp(trials.logs[rows, b] + trials.absent[rows, None] * LOG_WORST) * trials.products[rows, b]
        left: Array = trials.log_term[rows] - np.log(wealth.sum(axis=1))
        return left

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

    def choose(self, num_episodes: int) -> Deployment:
        """The best mixture whose bound reaches the threshold, after so many episodes."""
        return self.as_deployment(*choose(self.trials, self.threshold, num_episodes))

    def best(self, lower: Array) -> Deployment:
        """The mixture of largest score that these bounds (n,) allow."""
        return self.as_deployment(*best_mixture(self.trials._replace(lower=lower), self.threshold, 0.0)[:4])

    def as_deployment(self, first: int, second: int, weight: float, bound: float) -> Deployment:
        """The mixture weight·first + (1 − weight)·second of two rows."""
        candidate, payer = self.policies[first], self.policies[second]
        assert candidate is not None and payer is not None
        if first == second == 0:
            return Deployment(candidate, "safe", math.nan, math.nan, "no mixture with a candidate seems better")
        if first == second:
            return Deployment(candidate, "search", self.lams[first], bound)
        names = [self.names[first], self.names[second]]
        mixture = MixturePolicy((candidate, payer), (weight, 1 - weight), names)
        return Deployment(mixture, "search", self.lams[first], bound)

    def state(self, policies: PolicyArrays) -> State:
        """The trials, which policies they are of, and what is not reported."""
        tails = [(i, *entry.row()) for i, tail in enumerate(self._tails) for entry in tail]
        current = {entry.plan for tail in self._tails for entry in tail} | set(self._settled_plan)
        lost = [(i, deployment) for i, lost in enumerate(self._lost) for deployment in sorted(lost)]
        own = {
            "policies": np.array([policies.number(policy) for policy in self.policies], dtype=np.int64),
            "lams": np.array(self.lams),
            "names": np.array(self.names, dtype=np.str_),
            "num_candidates": self.num_candidates,
            "tails": np.array(tails, dtype=float).reshape(-1, 6),
            "settled_plans": np.array(self._settled_plan, dtype=np.int64),
            "mixed_up": np.array(sorted(self._mixed_up & current), dtype=np.int64),
            "lost": np.array(lost, dtype=np.int64).reshape(-1, 2),
        }
        trials = {name: array for name, array in self.trials._asdict().items() if name != "least"}  # the task says it
        return {**trials, **own, **({"void": np.array(self.void)} if self.void else {})}

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new ledger with what `state` said."""
        incumbent, known, log_term = self.policies[0], self.trials.lower[0], self.trials.log_term[0]
        names = saved.texts("names", (None,)).tolist()
        n = len(names)
        given = list(filter(None, names))
        if not len(self.policies) <= n < MOST_ROWS or names[0] != INCUMBENT or len(set(given)) < len(given):
            saved.refuse("names", f"of {n} rows do not begin with the incumbent's, or are not each its own")
        self._widen(n)
        self.names, trials = names, self.trials
        if not np.array_equal(saved.numbers("means", trials.means.shape), trials.means):
            saved.refuse("means", "is not the grid of this task")
        rows = saved.wholes("policies", (n,), -1, len(policies)).tolist()
        self.policies = [None if i < 0 else policies[i] for i in rows]
        for name in ("logs", "products", "lower", "log_term", "guess", "rewards"):
            array = getattr(trials, name)
            lowest = {"products": 0.0, "log_term": 0.0, "lower": min(self.least_total, 0.0)}
            array[:] = saved.numbers(name, array.shape, least=lowest.get(name, -np.inf))
        trials.in_use[:] = saved.wholes("in_use", (n,), 0, 2)
        trials.newest[:] = saved.wholes("newest", (1,), 0, n)
        trials.num_factors[:] = saved.wholes("num_factors", (n,), 0, 32)
        trials.absent[:] = saved.wholes("absent", (n,), 0, 2**62)
        trials.reached[:] = saved.wholes("reached", (n,), -1, len(trials.means))
        self.lams = saved.numbers("lams", (n,), nan=True).tolist()
        self.num_candidates = saved.whole("num_candidates")
        self._restore_tails(saved)
        self.void = saved.text("void") if saved.has("void") else ""
        if [int(policy is not None) for policy in self.policies] != trials.in_use.tolist():
            saved.refuse("in_use", "does not say which rows have policies")
        as_told = (trials.log_term[0] > 0) == (log_term > 0) and (log_term > 0 or trials.lower[0] == known)
        if self.policies[0] is not incumbent or not as_told:
            saved.refuse("lower", "does not begin with the incumbent and its b + ξ")

    def _restore_tails(self, saved: Saved) -> None:
        n = len(self.policies)
        self._tails, self._lost = [[] for _ in range(n)], [set() for _ in range(n)]
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

    def _row_of(self, policy: Policy) -> int:
        return next((i for i, on_trial in enumerate(self.policies) if on_trial is policy), NOT_ON_TRIAL)

    def free_row(self) -> int | None:
        """A row that a proposal may take without taking it from another."""
        free = np.flatnonzero(self.trials.in_use[: self.num_shared] == 0)
        return int(free[0]) if len(free) else None

    def _row(self) -> int:
        """A free row, or that of the policy of least score − (b − L)₊, never the incumbent's, nor what was promoted."""
        trials, free = self.trials, self.free_row()
        if free is not None:
            return free
        shortfall = np.maximum(self.threshold - trials.lower, 0)
        trials.newest[0] = 0  # the newest one is now judged by what it did
        worth = np.array([score(trials, i) for i in range(self.num_shared)]) - shortfall[: self.num_shared]
        worth[:1] = worth[self.pinned : self.pinned + 1] = np.inf
        return int(np.argmin(worth))


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
    acted = np.column_stack([_acted(policy, task, states, actions) for policy in mixture.components])
    shares = np.array(mixture.weights, dtype=float)[None]
    if not share_out(acted[None], shares.size, shares):
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
    return [
        1 / task.num_actions if isinstance(state, Outside) else float(policy.probabilities(h, state)[action])
        for h, (state, action) in enumerate(zip(states, actions, strict=False))
    ]
