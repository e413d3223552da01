"""The ledgers of several constraints: one a constraint, at δ/m each, with the same policies in the same rows.

Candidate j has δ_j/m for each of its m sequences, so that all its bounds hold together with probability 1 − δ_j. What
is deployed is the best mixture whose bound reaches the threshold of every constraint: at most m + 1 policies, by a
small linear program.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from episafe.certify.base import Deployment
from episafe.certify.ledger import FINENESS, Ledger
from episafe.kernels.mixture_choice import EPISODES_TO_CERTIFY
from episafe.kernels.mixture_weights import best_weights, choose_weights, mixture_bound
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.sampled_problem import AnyTask, known_slacks
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray


class SeveralLedgers:
    """What a `Ledger` is for one constraint, for m of them: bounds, utilities and thresholds are arrays (m,).

    Args:
        each: a ledger for each constraint, made alike but for threshold and known bound, at δ/m.
    """

    def __init__(self, each: Sequence[Ledger]) -> None:
        self.each = tuple(each)
        self.thresholds: Array = np.array([one.threshold for one in self.each])

    @property
    def void(self) -> str:
        """Why nothing is proved any more; "" if all is well."""
        return next((one.void for one in self.each if one.void), "")

    @property
    def policies(self) -> list[Policy | None]:
        """Those on trial, by row."""
        return self.each[0].policies

    @property
    def names(self) -> list[str]:
        """What they are called."""
        return self.each[0].names

    @property
    def lams(self) -> list[float]:
        """Their multipliers."""
        return self.each[0].lams

    @property
    def num_candidates(self) -> int:
        """How many have been on trial."""
        return self.each[0].num_candidates

    @property
    def newest(self) -> int:
        """The row of the newest policy."""
        return self.each[0].newest

    @newest.setter
    def newest(self, row: int) -> None:
        for one in self.each:
            one.newest = row

    @property
    def lower(self) -> Array:
        """L of every policy and constraint, (n, m)."""
        return np.stack([one.trials.lower for one in self.each], axis=1)

    @property
    def assured(self) -> Array:
        """The same; the incumbent has at least the threshold of each, also where its slack is not known."""
        lower = self.lower
        lower[0] = np.maximum(lower[0], self.thresholds)
        return lower

    def trial_weights(self, rows: Sequence[int], may_pay: NDArray[np.bool_]) -> Array:
        """Weights (k, n) that give each of these rows the most that every check allows, and the rest to those that may
        pay."""
        assured, wanted = self.assured, np.eye(len(may_pay))
        may_act = may_pay & self.in_use | wanted.astype(bool)
        return np.array([best_weights(wanted[i], assured, self.thresholds, may_act[i].astype(np.int64)) for i in rows])

    @property
    def in_use(self) -> NDArray[np.bool_]:
        """Which rows have a policy."""
        return self.each[0].in_use

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which rows have a bound that reaches the threshold of every constraint, (n,)."""
        reached: NDArray[np.bool_] = np.logical_and.reduce([one.certified for one in self.each])
        return reached

    def rewards(self, i: int) -> tuple[float, float]:
        """ΣqR and Σq of row i."""
        return self.each[0].rewards(i)

    def know_rewards(self, i: int, total: float, number: float) -> None:
        """What policy i earns in total in so many episodes, from elsewhere."""
        for one in self.each:
            one.know_rewards(i, total, number)

    def score(self, i: int) -> float:
        """How good policy i seems."""
        return self.each[0].score(i)

    def policy(self, name: str) -> Policy:
        """The policy on trial under this name."""
        return self.each[0].policy(name)

    def begin(self, policy: Policy, name: str, lam: float, guess: float) -> int:
        """Put a policy on trial, in a free row or in place of the least useful one; its row."""
        row = self._row()
        for one in self.each:
            one.begin(policy, name, lam, guess, row)
        return row

    def add(self, policy: Policy, name: str, guess: float) -> int:
        """Put a policy on trial in a row of its own."""
        rows = {one.add(policy, name, guess) for one in self.each}
        return rows.pop()

    def share_delta(self) -> None:
        """Let the candidates share δ, before anything is deployed."""
        for one in self.each:
            one.share_delta()

    def _row(self) -> int:
        """A free row, or that of the policy of least score − Σ_c (b_c − L_c)₊, never the incumbent's or one pinned."""
        free = self.each[0].free_row()
        if free is not None:
            return free
        shortfall = np.maximum(self.thresholds - self.lower, 0).sum(axis=1)
        self.newest = 0  # the newest one is now judged by what it did
        rows = [i for i in range(1, self.each[0].num_shared) if i != self.each[0].pinned]
        return min(rows, key=lambda i: self.score(i) - shortfall[i])

    def change(self, thresholds: Array, known: Sequence[float | None]) -> None:
        """Other thresholds, and other bounds of the incumbent where they are known, (m,) each."""
        for one, threshold, bound in zip(self.each, thresholds.tolist(), known, strict=True):
            one.change(threshold, bound)
        self.thresholds = thresholds

    def pin(self, name: str) -> None:
        """Keep the row of this policy from being taken over."""
        for one in self.each:
            one.pin(name)

    def withdraw(self, name: str) -> int:
        """End the trial of a policy; its row."""
        rows = {one.withdraw(name) for one in self.each}
        return rows.pop()

    def lose(self, num_candidates: int) -> None:
        """End all trials; up to so many candidates that nobody knows of keep their δ_j."""
        for one in self.each:
            one.lose(num_candidates)

    def end(self, why: str) -> None:
        """Prove nothing any more: where it is so of one constraint, no mixture is proved to keep them all."""
        for one in self.each:
            one.end(why)

    def forecast(self, i: int) -> float:
        """About how many more episodes it takes until every bound of row i reaches its threshold."""
        return max(one.forecast(i) for one in self.each)

    def bounds(self) -> dict[str, Array]:
        """What is proved of each policy on trial, (m,), by its name."""
        lower = self.lower
        return {self.names[i]: lower[i] for i in np.flatnonzero(self.in_use).tolist()}

    def rows_of(self, policy: Policy) -> list[int]:
        """The rows of the components of what is or was deployed."""
        return self.each[0].rows_of(policy)

    def rows_of_all(self, policies: Sequence[Policy | None]) -> list[int]:
        """The row of each of these policies; −1 for one that has none."""
        return self.each[0].rows_of_all(policies)

    def expect(self, deployment: int, rows: Sequence[int], plan: int = -1) -> None:
        """A deployment of these rows is made; until it is reported it counts at its worst in every constraint."""
        for one in self.each:
            one.expect(deployment, rows, plan)

    def credit(
        self,
        deployment: int | None,
        rows: Sequence[int],
        shares: Sequence[float],
        utility: Array,
        reward: float,
        named: bool = True,
    ) -> None:
        """What came of a deployment; `utility` (m,) has the total of every constraint."""
        for one, total in zip(self.each, utility.tolist(), strict=True):
            one.credit(deployment, rows, shares, total, reward, named)
        if self.void:
            self.end(self.void)

    def credit_each(
        self, deployment: int | None, rows: IntArray, utilities: Array, rewards: Array, named: bool = True
    ) -> None:
        """What came of an episode for each of these rows; `utilities` (n, m)."""
        for one, totals in zip(self.each, utilities.T, strict=True):
            one.credit_each(deployment, rows, totals.copy(), rewards, named)

    def choose(self, num_episodes: int) -> Deployment:
        """The best mixture whose bounds reach all thresholds."""
        n, in_use = len(self.policies), self.in_use.astype(np.int64)
        scores = np.array([self.score(i) if in_use[i] else 0.0 for i in range(n)])
        reach = num_episodes / EPISODES_TO_CERTIFY
        return self.as_deployment(choose_weights(scores, self.newest, self.lower, self.thresholds, in_use, reach))

    def best(self, lower: Array) -> Deployment:
        """The mixture of largest score that these bounds (n, m) allow."""
        n, in_use = len(self.policies), self.in_use.astype(np.int64)
        scores = np.array([self.score(i) if in_use[i] else 0.0 for i in range(n)])
        return self.as_deployment(best_weights(scores, lower, self.thresholds, in_use), lower)

    def as_deployment(self, weights: Array, lower: Array | None = None) -> Deployment:
        """The mixture of these weights (n,), the incumbent last."""
        rows = [*np.flatnonzero(weights[1:] > 0) + 1, *([0] if weights[0] > 0 else [])]
        first, lower = self.policies[rows[0]], self.lower if lower is None else lower
        assert first is not None
        if rows == [0]:
            return Deployment(first, "safe", math.nan, math.nan, "no mixture with a candidate seems better")
        bounds = np.array([mixture_bound(weights, lower, c) for c in range(len(self.thresholds))])
        lam = self.lams[rows[0]]
        if len(rows) == 1:
            return Deployment(first, "search", lam, bounds)
        mixed = [policy for i in rows if (policy := self.policies[i]) is not None]
        mixture = MixturePolicy(mixed, weights[rows], [self.names[i] for i in rows])
        return Deployment(mixture, "search", lam, bounds)

    def state(self, policies: PolicyArrays) -> State:
        """Every ledger, below its number."""
        made: State = {}
        for c, one in enumerate(self.each):
            made |= under(f"constraint-{c}", one.state(policies))
        return made

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill new ledgers with what `state` said."""
        for c, one in enumerate(self.each):
            one.restore(saved.under(f"constraint-{c}"), policies)
        if any(one.names != self.names or one.newest != self.newest for one in self.each):
            saved.refuse("names", "differ between the constraints")


def ledger_of(task: AnyTask, delta: float, num_rows: int, bet_weights: Array | None = None) -> Ledger | SeveralLedgers:
    """A new ledger for this task: one at δ, or one a constraint at δ/m each."""
    m = task.num_constraints
    each = [
        Ledger(
            task.safe_policy, one.threshold + slack, one.threshold, task.horizon, delta / m, num_rows,
            least_total=one.least_total, bet_weights=bet_weights, fineness=FINENESS / math.sqrt(m),
        )
        for one, slack in zip(task.constraints, known_slacks(task).tolist(), strict=True)
    ]  # fmt: skip
    return each[0] if m == 1 else SeveralLedgers(each)
