"""Trials: which mixture of candidates to deploy, and how soon a candidate will be certified. Heuristic.

The bounds of the candidates are in `Accounts`; every plan that is made here passes the check of `evidence.admits`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from episafe.certify.evidence import Accounts, admits
from episafe.core.agent import Candidate, Evidence
from episafe.core.policy import Mixture, Policy
from episafe.core.task import Task
from episafe.core.types import INCUMBENT, Array, IntArray, Plan
from episafe.kernels.mixture import EPISODES_TO_CERTIFY, Ranking, choose_pair, choose_weights
from episafe.kernels.mixture import score as score_of
from episafe.kernels.wealth import LOG_WORST

PROPOSAL = "proposal-"  # names of proposals begin with it, names of given candidates do not
PAYS = "pays"  # a statistic of proposals that aim at utility alone, to pay for the trials of others
SMALL = 0.05  # of the episodes: where trials begin with a smaller weight, a policy that pays for more is sought first
MOST_PAYERS = 3  # that are tried, at most; both set on problems of seeds 1000 to 1023


class Trials:
    """Candidates on trial, by row of the accounts, with their observed or promised rewards.

    Args:
        task: the limits and the incumbent.
        sets: accounts of the candidates, in the same rows. A candidate's own least totals are those of the last set;
            in the others its sequences begin at the least totals of the task.
        observed: accounts that have rows of their own for these candidates, if there are any.

    Attributes:
        accounts: the last set.
        policies: the policies, by row; None for a free row.
        lams: the multiplier of each, by row.
        ranking: rewards so far, promised rewards, and the newest row.
        base: the row that acts if no mixture is better: the incumbent's or that of a promoted candidate.
        paying: the row of the newest candidate if its purpose is to pay for others; else 0.
    """

    def __init__(self, task: Task, *sets: Accounts, observed: Accounts | None = None) -> None:
        n = len(sets[-1].names)
        self.task, self.sets, self._observed, self.num_shared, self.base = task, list(sets), observed, n, 0
        self.paying = self._num_payers = 0
        self.policies: list[Policy | None] = [task.incumbent] + [None] * (n - 1)
        self.lams = [math.nan] * n
        self.ranking = Ranking(np.zeros((n, 2)), np.zeros(n), np.zeros(1, dtype=np.int64))

    @property
    def accounts(self) -> Accounts:
        """Return the last set."""
        return self.sets[-1]

    @property
    def newest(self) -> int:
        """Return the row of the newest candidate; the incumbent's if there is none."""
        return int(self.ranking.newest[0])

    @newest.setter
    def newest(self, row: int) -> None:
        self.ranking.newest[0] = row

    @property
    def lower(self) -> Array:
        """Return the largest bound of each candidate, (n, m); all sets together hold at δ."""
        proved: Array = reduce(np.maximum, [one.wealth.lower for one in self.sets])
        if self._observed is not None:
            proved = proved.copy()
            for i in self.accounts.rows[1:]:
                row = self._observed.row(self.accounts.names[i])
                if row > 0:
                    proved[i] = np.maximum(proved[i], self._observed.wealth.lower[row])
        return proved

    def score(self, row: int) -> float:
        """Return the heuristic score of a candidate."""
        return float(score_of(self.ranking, row))

    def listed(self, rows: Sequence[int]) -> tuple[list[str], list[Policy]]:
        """Return the names and the policies in these rows."""
        names = [self.accounts.names[i] for i in rows]
        return names, [policy for i in rows if (policy := self.policies[i]) is not None]

    def add(self, candidate: Candidate, guess: float) -> int:
        """Put a candidate on trial; return its row. A proposal may take the row of the least useful one, if any."""
        shares = candidate.name.startswith(PROPOSAL) and self.num_shared > 1
        row = self._shared_row() if shares else self._own_row()
        for one in self.sets:
            one.begin(row, candidate.name, candidate.least_totals if one is self.accounts else None)
        self.policies[row], self.lams[row] = candidate.policy, candidate.lam
        self.ranking.rewards[row], self.ranking.guess[row], self.newest = 0.0, guess, row
        self.paying = row if PAYS in candidate.statistics else 0
        self._num_payers += self.paying > 0
        return row

    def first_weights(self) -> Array:
        """Return min_c (L_c − b_c)/(L_c − x₀_c), (n,): the first weight of a new candidate that the row allows.

        It is −∞ for a row that is not certified.
        """
        b, least = self.accounts.thresholds, self.task.least_totals
        paid = [
            ((lower - b) / (lower - least)).min() if used and admits(lower, b) else -math.inf
            for lower, used in zip(self.lower, self.accounts.wealth.in_use.tolist(), strict=True)
        ]
        return np.array(paid)

    def seeks_payer(self) -> bool:
        """Return whether a policy with a large utility should be tried first: no policy pays for a weight of 5 % yet.

        With a first weight of ξ/(b + ξ) a trial takes 1/weight times as many episodes. A certified policy with more
        utility than the incumbent pays for later trials with (L − b)/L.
        """
        return self._num_payers < MOST_PAYERS and bool(self.first_weights().max() < SMALL)

    def _own_row(self) -> int:
        self.policies.append(None)
        self.lams.append(math.nan)
        rewards, guess, newest = self.ranking
        self.ranking = Ranking(np.concatenate([rewards, np.zeros((1, 2))]), np.append(guess, 0.0), newest)
        for one in self.sets:
            one.widen()
        return len(self.policies) - 1

    def _shared_row(self) -> int:
        """Return a free row, or the row with the least score − Σ_c (b_c − L_c)₊.

        It is never the row of the incumbent, of the promoted candidate, or of a policy that pays when the incumbent
        cannot.
        """
        in_use = self.accounts.wealth.in_use[: self.num_shared]
        if not in_use.all():
            return int(np.argmin(in_use))
        shortfall = np.maximum(self.accounts.thresholds - self.lower, 0).sum(axis=1)
        self.newest = 0  # the newest one is now judged by what it earned
        paid = self.first_weights()
        payer = int(np.argmax(paid)) if self.base == 0 and paid[0] < SMALL else 0
        rows = [i for i in range(1, self.num_shared) if i not in (self.base, payer)]
        return min(rows, key=lambda i: self.score(i) - shortfall[i])

    def begin_block(self) -> None:
        """Begin the sequences of all candidates again, with the full δ; the one that seems best has the largest δ_j."""
        for accounts in self.sets:
            accounts.num_candidates = 0
            for i in sorted(accounts.rows[1:], key=self.score, reverse=True):
                accounts.begin(i, accounts.names[i], accounts.wealth.least[i])

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate, if it has one."""
        row = self.accounts.row(name)
        if row > 0:
            for one in self.sets:
                one.withdraw(row)
            self.policies[row] = None
            self.newest = self.newest if self.newest != row else 0
            self.base = self.base if self.base != row else 0

    def promote(self, name: str) -> None:
        """Let a certified candidate act wherever the incumbent would; "incumbent" undoes it."""
        row = self.accounts.row(name)
        if row and not admits(self.lower[row], self.accounts.thresholds):
            proved = self.lower[row].tolist()
            raise ValueError(f"{name!r} is proved to reach {proved}, below the limits: promote certified policies only")
        self.base = row

    def _payers(self) -> tuple[IntArray, int]:
        """Return which rows may have a weight, (n,), and the row that acts if no mixture is better.

        After a promotion the incumbent has no weight, while the promoted bounds reach the limits.
        """
        base = self.base if self.base and admits(self.lower[self.base], self.accounts.thresholds) else 0
        in_use = self.accounts.wealth.in_use.copy()
        in_use[0] = base == 0
        return in_use, base

    def choose(self, num_episodes: int) -> Plan:
        """Return the mixture with the largest score that the bounds allow.

        An episode of the newest candidate has an additional value, which grows with the number of episodes so far.
        """
        (in_use, base), b, lower = self._payers(), self.accounts.thresholds, self.lower
        if len(b) == 1:
            i, j, p = choose_pair(self.ranking, lower, in_use, base, b[0], num_episodes)
            return self.as_plan([i], [1.0], lower) if i == j else self.as_plan([i, j], [p, 1.0 - p], lower)
        scores = np.array([self.score(i) if used else 0.0 for i, used in enumerate(in_use.tolist())])
        weights = choose_weights(scores, self.newest, lower, b, in_use, base, num_episodes / EPISODES_TO_CERTIFY)
        rows = [i for i in (*range(1, len(weights)), 0) if weights[i] > 0]
        return self.as_plan(rows, weights[rows].tolist(), lower)

    def as_plan(self, rows: Sequence[int], weights: Sequence[float], lower: Array) -> Plan:
        """Return the plan that deploys these rows, if it passes the check; else the incumbent."""
        by_row = np.zeros(len(lower))
        by_row[list(rows)] = weights
        bounds = self.accounts.bounds_of(by_row, lower)
        if list(rows) == [0] or not admits(bounds, self.accounts.thresholds):
            return Plan.fallback(self.task, "theorem", "no mixture with a candidate seems better")
        names, policies = self.listed(rows)
        deployed = policies[0] if len(rows) == 1 else Mixture(policies, weights, names)
        return Plan(deployed, "search", bounds, "theorem", lam=self.lams[rows[0]])

    def proves(self, plan: Plan, lower: Array) -> Array:
        """Return the bound of a plan from bounds (n, m), computed as in the check; −∞ if a component has no row."""
        rows, by_row = [self.accounts.row(name) for name in plan.parts.names], np.zeros(len(lower))
        by_row[rows] = plan.parts.weights
        return self.accounts.bounds_of(by_row, lower) if min(rows) >= 0 else np.full(lower.shape[1], -np.inf)

    def credit(self, rows: IntArray, evidence: Evidence) -> None:
        """Add the rewards of an episode to rows (R,), by their shares."""
        parts = evidence.shares.tolist(), evidence.rewards.tolist()
        for row, share, reward in zip(rows.tolist(), *parts, strict=True):
            self.ranking.rewards[row] += share * reward, share

    def forecast(self, row: int) -> float:
        """Return an estimate of the episodes until every bound of a row reaches its limit; ∞ if never.

        It uses the growth of the logarithm of the best bet against b with the candidate's own episodes.
        """
        return max(self._forecast(row, c) for c in range(len(self.accounts.thresholds)))

    def _forecast(self, i: int, c: int) -> float:
        wealth, b = self.accounts.wealth, self.accounts.thresholds[c]
        if wealth.lower[i, c] >= b:
            return 0.0
        g = int(np.searchsorted(wealth.means[i, c], b))
        logs = wealth.logs[i, c, g] + np.log(wealth.products[i, c, g]) + wealth.absent[i] * LOG_WORST
        best, own = float(logs.max()), float(self.ranking.rewards[i, 1])
        if own < 1:
            return math.inf if own else 1.0
        if best <= 0:
            return math.inf
        weight = (wealth.lower[0, c] - b) / (wealth.lower[0, c] - wealth.lower[i, c])
        return float((wealth.log_term[i, c] - best) * own / best / weight)


def named(candidate: Candidate | None, number: int) -> Candidate | None:
    """Return a proposal, if there is one, with the name of candidate `number`."""
    if candidate is None:
        return None
    candidate.policy.name = f"{PROPOSAL}{number}"
    return replace(candidate, name=candidate.policy.name)


def check_name(name: str, known: Sequence[str]) -> None:
    """Raise if a candidate of a user cannot have this name."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a candidate needs a name, got {name!r}: give a text that is not empty")
    if name in known or name == INCUMBENT or name.startswith(PROPOSAL) or ":" in name:
        raise ValueError(f"the name {name!r} is taken or reserved: give another; a changed policy is a new candidate")
