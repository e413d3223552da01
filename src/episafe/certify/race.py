"""Candidates on trial at once: who is tried next, who is dropped, who acts. What is proved of each is in the ledger.

The evidence is the coin alone: an episode counts for the policy that acted, q = 1, and for nobody else.
"""

import math
from collections.abc import Sequence

import numpy as np

from episafe.certify.base import Deployment
from episafe.certify.ledger import Ledger
from episafe.kernels.mixing import mixed
from episafe.kernels.mixture_choice import payers_share
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.problems.rollout_task import RolloutTask
from episafe.stats import anytime_radius
from episafe.storage.state_reader import Saved, State
from episafe.types import Array

# These decide how soon something is proved, and never the guarantee.
LEVEL = 0.05  # at which a candidate is dropped
SHORTEST_TRIAL = 10  # episodes of its own before that
OPTIMISM = 0.7  # standard errors by which a candidate is taken to be better than its mean
LEAST_LEFT = 0.1  # of ln(1/δ_j): how much evidence is taken to be missing at least
LONGEST_TAIL = 2000  # deployments of one policy after one of its that is not reported
HEADROOM = 4.0  # times b: how far a bound can rise where utilities have no largest value
UTILITY, REWARD = 0, 1


class Race:
    """The candidates of a rollout, one a row of the ledger, and what came of each: how many episodes, and totals.

    While nobody is certified all are tried, one at a time, mixed with whoever pays for the largest weight: the one that
    seems nearest to its proof. When one is certified, the others are passed: they go on only if their rewards may be
    better. One that is added later is tried before anybody acts alone. A candidate is dropped if its utility is below b
    or its reward below that of who acts, by a plain test at level 0.05: dropping touches no guarantee.

    Args:
        task: threshold, incumbent, slack.
        delta: the probability with which any bound may ever be wrong.
    """

    def __init__(self, task: RolloutTask, delta: float) -> None:
        self.task = task
        known, least = task.threshold if task.known is None else task.known, task.least_total
        largest = least + HEADROOM * (known - least) if task.utility_max is None else task.utility_max
        incumbent = task.safe_policy
        self.ledger = Ledger(incumbent, task.known, task.threshold, largest, delta, 1, LONGEST_TAIL, least)
        self.seen = np.zeros((1, 2, 3))  # of each policy, utility and reward: n, mean, Σ(x − mean)²
        self.dropped, self.passed, self.certified = (np.zeros(1, dtype=np.bool_) for _ in range(3))

    def add(self, candidate: Policy) -> None:
        """Put a candidate on trial."""
        self.ledger.add(candidate, candidate.name, 0.0)
        self._widen()

    def _widen(self) -> None:
        n = len(self.ledger.policies)
        self.seen = np.concatenate([self.seen, np.zeros((n - len(self.seen), 2, 3))])
        self.dropped, self.passed, self.certified = (
            np.concatenate([flags, np.zeros(n - len(flags), dtype=np.bool_)])
            for flags in (self.dropped, self.passed, self.certified)
        )

    def change(self, task: RolloutTask) -> None:
        """Go on with another threshold or slack: what is proved of a policy depends on neither. Who was given up is
        judged anew."""
        self.task = task
        self.ledger.change(task.threshold, task.known)
        self.dropped = self.ledger.trials.in_use == 0
        self._judge()

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        i = self.ledger.withdraw(name)
        self.dropped[i], self.certified[i] = True, False

    def deployment(self) -> Deployment:
        """Who is tried next, at the largest weight that the check allows; else who acts alone."""
        if self.ledger.void:
            return Deployment(self.task.safe_policy, "safe", math.nan, math.nan, self.ledger.void)
        lower, acting = self.ledger.trials.lower, self._acting()
        racing = [i for i in range(1, len(lower)) if self._is_racing(i, acting)]
        payer = int(np.argmax(np.where(self.dropped, -np.inf, lower)))
        if racing and lower[payer] > self.task.threshold:
            tried = max(racing, key=lambda i: self._nearness(i, lower[payer]))
            share = float(payers_share(lower[tried], lower[payer], self.task.threshold))
            if share < 1.0:
                bound = float(mixed(lower[tried], lower[payer], share))
                return self._mixture([tried, payer], [1.0 - share, share], bound)
        if acting:
            return self._mixture([acting], [1.0], float(lower[acting]))
        why = "the incumbent is not proved to be above the threshold yet" if racing else "no candidate is on trial"
        return Deployment(self.task.safe_policy, "safe", math.nan, math.nan, why)

    def _mixture(self, rows: list[int], weights: list[float], bound: float) -> Deployment:
        policies = [policy for i in rows if (policy := self.ledger.policies[i]) is not None]
        mixture = MixturePolicy(policies, weights, [self.ledger.names[i] for i in rows])
        return Deployment(mixture, "search", math.nan, bound)

    def credit(
        self, deployment: int | None, rows: Sequence[int], component: int, utility: float, reward: float
    ) -> None:
        """What came of a deployment of these rows, of which this component acted."""
        shares = [float(k == component) for k in range(len(rows))]
        self.ledger.credit(deployment, rows, shares, utility, reward)
        see(self.seen[rows[component]], np.array([utility, reward]))
        self._judge()

    def _judge(self) -> None:
        """Who is certified now, who is passed by that, and who is given up."""
        certified = self.ledger.trials.lower >= self.task.threshold
        certified[0] = False
        if (certified & ~self.certified).any():
            self.passed |= ~certified
        self.certified = certified
        self._drop()

    def _drop(self) -> None:
        """Give up those that are below b, or earn less than who acts."""
        best = max(self._mean(i, REWARD) - self._radius(i, REWARD) for i in (0, self._acting()))
        for i in range(1, len(self.dropped)):
            if self.seen[i, UTILITY, 0] >= SHORTEST_TRIAL:
                below = not self.certified[i] and self._upper(i, UTILITY) < self.task.threshold
                self.dropped[i] |= below or self._upper(i, REWARD) < best

    def _acting(self) -> int:
        """The certified candidate of the highest mean reward, the newest of equals; the incumbent if there is none."""
        rows = np.flatnonzero(self.certified & ~self.dropped).tolist()
        return max(rows, key=lambda i: (self._mean(i, REWARD), i), default=0)

    def _is_racing(self, i: int, acting: int) -> bool:
        """Whether candidate i is to be tried: not decided, and not passed by one that earns as much."""
        if self.dropped[i] or self.certified[i]:
            return False
        return not self.passed[i] or self._upper(i, REWARD) > self._mean(acting, REWARD)

    def _nearness(self, i: int, payer: float) -> float:
        """How soon candidate i may be certified, as 1/episodes: p (u − b)² / (evidence left), u its mean and a bit.

        Evidence grows by about (V − b)²/2σ² with each of its own episodes, of which there is a share p.
        """
        (n, mean, deviations), b = self.seen[i, UTILITY].tolist(), self.task.threshold
        if n < 2:
            return math.inf
        above: float = mean + OPTIMISM * math.sqrt(deviations / (n - 1) / n) - b
        if above <= 0:
            return above
        weight = 1.0 - float(payers_share(self.ledger.trials.lower[i], payer, b))
        return weight * above * above / max(self.ledger.evidence_left(i), LEAST_LEFT)

    def _mean(self, i: int, signal: int) -> float:
        return float(self.seen[i, signal, 1])

    def _radius(self, i: int, signal: int) -> float:
        n, _, deviations = self.seen[i, signal].tolist()
        return anytime_radius(n, deviations, LEVEL)

    def _upper(self, i: int, signal: int) -> float:
        return self._mean(i, signal) + self._radius(i, signal)

    def state(self, policies: PolicyArrays) -> State:
        """The ledger, and how the candidates stand."""
        own = {name: getattr(self, name) for name in ("seen", "dropped", "passed", "certified")}
        return {**self.ledger.state(policies), **own}

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new race with what `state` said."""
        self.ledger.restore(saved, policies)
        n = len(self.ledger.policies)
        self.seen = saved.numbers("seen", (n, 2, 3))
        self.dropped, self.passed, self.certified = (
            saved.flags(name, (n,)) for name in ("dropped", "passed", "certified")
        )


def see(seen: Array, values: Array) -> None:
    """One more value of each row (n, mean, Σ(x − mean)²), by Welford's update: equal values have no spread at all."""
    seen[:, 0] += 1
    before = values - seen[:, 1]
    seen[:, 1] += before / seen[:, 0]
    seen[:, 2] += before * (values - seen[:, 1])
