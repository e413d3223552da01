"""The ledger: the policies on trial, what is proved of each, and which mixture of them that allows.

With m constraints every policy has an account for each, at δ_j/m, so that all its bounds hold together with probability
1 − δ_j. What is deployed is the best mixture whose bound reaches every threshold: two policies where there is one
constraint, in closed form; at most m + 1 where there are several, by a small linear program.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.certify.account import FINENESS, NO_ID, NOT_ON_TRIAL, Account, grid_of_means
from episafe.certify.base import INCUMBENT, PROPOSAL, Deployable
from episafe.kernels.mixture_choice import EPISODES_TO_CERTIFY, best_mixture, choose, payers_share, score
from episafe.kernels.mixture_weights import best_weights, choose_weights, mixture_bounds
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Array, IntArray, amount

MOST_ROWS = 2**20


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

    def begin(self, policy: Policy, lam: float, guess: float) -> int:
        """Put a proposal on trial and name it, in a free row or in place of the least useful one; its row."""
        i = self._row()
        for one in self.each:
            one.begin_row(i, guess)
        policy.name = f"{PROPOSAL}{self.num_candidates}"
        self.policies[i], self.lams[i], self.names[i] = policy, lam, policy.name
        return i

    def add(self, policy: Policy, guess: float) -> int:
        """Put a policy on trial in a row of its own, which no other takes over; its row."""
        i = len(self.policies)
        self._widen(i + 1)
        for one in self.each:
            one.begin_row(i, guess)
        self.policies[i], self.names[i] = policy, policy.name
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

    def choose(self, num_episodes: int) -> Deployable:
        """The best mixture whose bounds reach all thresholds, after so many episodes."""
        if len(self.each) == 1:
            return self._pair(*choose(self.trials, self.each[0].threshold, num_episodes))
        scores, in_use, reach = *self._scores(), num_episodes / EPISODES_TO_CERTIFY
        lower = self._lower()
        return self._mixture(choose_weights(scores, self.newest, lower, self._thresholds, in_use, reach), lower)

    def best(self, lower: Array) -> Deployable:
        """The mixture of largest score that these bounds, (n,) or (n, m), allow."""
        if len(self.each) == 1:
            return self._pair(*best_mixture(self.trials._replace(lower=lower), self.each[0].threshold, 0.0)[:4])
        scores, in_use = self._scores()
        return self._mixture(best_weights(scores, lower, self._thresholds, in_use), lower)

    def _scores(self) -> tuple[Array, IntArray]:
        """How good each policy seems, (n,), and which there are."""
        in_use = self.in_use.astype(np.int64)
        return np.array([self.score(i) if used else 0.0 for i, used in enumerate(in_use.tolist())]), in_use

    def _pair(self, first: int, second: int, weight: float, bound: float) -> Deployable:
        """The mixture weight·first + (1 − weight)·second of two rows."""
        rows = [first] if first == second else [first, second]
        return self.deployed(rows, [weight, 1 - weight][: len(rows)], bound)

    def _mixture(self, weights: Array, lower: Array) -> Deployable:
        """The mixture of these weights (n,), the incumbent last, with these bounds (n, m)."""
        rows = [*(np.flatnonzero(weights[1:] > 0) + 1).tolist(), *([0] if weights[0] > 0 else [])]
        return self.deployed(rows, weights[rows], mixture_bounds(weights, lower))

    def deployed(self, rows: list[int], weights: Any, bound: Amount) -> Deployable:
        """A mixture of rows by their weights, with its bound."""
        first: Any = self.policies[rows[0]]
        if rows == [0]:
            return Deployable.alone(first, "no mixture with a candidate seems better")
        mixed = self.mixture(rows, weights) if len(rows) > 1 else first
        return Deployable(mixed, "search", self.lams[rows[0]], bound)

    def mixture(self, rows: list[int], weights: Any) -> MixturePolicy:
        """The policies of these rows by their weights."""
        policies = [policy for i in rows if (policy := self.policies[i]) is not None]
        return MixturePolicy(policies, weights, [self.names[i] for i in rows])

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
