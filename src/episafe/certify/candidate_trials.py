"""Candidates on trial at once: who is tried next, who is dropped, who acts. What is proved of each is in the ledger.

The evidence is the coin alone: an episode counts for the policy that acted, q = 1, and for nobody else.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from episafe.certify.account import Account, grid_of_means
from episafe.certify.base import Deployable
from episafe.certify.ledger import Ledger
from episafe.kernels.mixture_weights import mixture_bounds
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import Policy
from episafe.problems.rollout_task import RolloutTask
from episafe.stats import anytime_radius
from episafe.storage.state_reader import Saved, State
from episafe.types import Amount, Array, amount, amounts

# These decide how soon something is proved, and never the guarantee.
LEVEL = 0.05  # at which a candidate is dropped
SHORTEST_TRIAL = 10  # episodes of its own before that
PRIOR = 4.0  # episodes at b, and at the reward of who acts, that a candidate is taken to have had before its first
POOLED = 20.0  # episodes of its own that the spread of all candidates counts for in that of each
AHEAD = 1000  # episodes for which a gain is taken to last, at least; else as many as there were
LEAST_LEFT = 0.1  # of ln(1/δ_j): how much evidence is taken to be missing at least
LONGEST_TAIL = 2000  # deployments of one policy after one of its that is not reported
HEADROOM = 4.0  # times b: how far a bound can rise where utilities have no largest value
REWARD = -1  # of what is seen of a policy; utility c is at c


class CandidateTrials:
    """The candidates of a rollout, one a row of the ledger, and what came of each: how many episodes, and totals.

    While nobody is certified all are tried, one at a time, mixed with whoever pays for the largest weight: the one
    whose trial is worth most. When one is certified, the others are passed: they go on only if their rewards may be
    better, and who acts may pay for them. One that is added later is tried before anybody acts alone. A candidate is
    dropped if its utility is below b or its reward below that of who acts, by a plain test at level 0.05: dropping
    touches no guarantee.

    Where there are m constraints a candidate has a sequence for each, at δ_j/m, and is certified once all its bounds
    are; the one that is farthest from its proof decides how near the candidate is.

    Args:
        task: threshold, incumbent, slack.
        delta: the probability with which any bound may ever be wrong.
    """

    def __init__(self, task: RolloutTask, delta: float) -> None:
        self.task, m = task, task.num_constraints
        self.ledger = Ledger(task.safe_policy, [self._account(one, delta / m) for one in task.constraints])
        self.seen = np.zeros((1, m + 1, 3))  # of each policy, its utilities and reward: n, mean, Σ(x − mean)²
        self.dropped, self.passed, self.certified = (np.zeros(1, dtype=np.bool_) for _ in range(3))

    def _account(self, one: Any, delta: float) -> Account:
        b, least, most = one.threshold, one.least_total, self.task.utility_max
        known = None if one.slack is None else b + one.slack
        largest = least + HEADROOM * ((known or b) - least) if most is None else most
        means = grid_of_means(b, known, largest, least)
        return Account(means, b, known, delta, 1, least, longest_tail=LONGEST_TAIL)

    def add(self, candidate: Policy) -> None:
        """Put a candidate on trial."""
        self.ledger.add(candidate, 0.0)
        self._widen()

    def _widen(self) -> None:
        n = len(self.ledger.policies)
        self.seen = np.concatenate([self.seen, np.zeros((n - len(self.seen), *self.seen.shape[1:]))])
        self.dropped, self.passed, self.certified = (
            np.concatenate([flags, np.zeros(n - len(flags), dtype=np.bool_)])
            for flags in (self.dropped, self.passed, self.certified)
        )

    def change(self, task: RolloutTask) -> None:
        """Go on with another threshold or slack: what is proved of a policy depends on neither. Who was given up is
        judged anew."""
        self.task = task
        self.ledger.change(task.limits, task.known)
        self.dropped = ~self.ledger.in_use
        self._judge()

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        i = self.ledger.withdraw(name)
        self.dropped[i], self.certified[i] = True, False

    def lose(self, num_candidates: int) -> None:
        """End all trials: deployments are lost, and with them up to so many candidates, whose δ_j stay spent."""
        self.ledger.lose(num_candidates)
        self.dropped[1:], self.certified[:] = True, False

    def deployment(self) -> Deployable:
        """Who is tried next, at the largest weight that the check allows; else who acts alone."""
        if self.ledger.void:
            return Deployable.alone(self.task.safe_policy, self.ledger.void)
        acting = self._acting()
        racing = [i for i in range(1, len(self.dropped)) if self._is_racing(i, acting)]
        weights = self._trial(racing, acting) if racing else None
        if weights is not None:
            return weights
        if acting:
            return self._mixture(acting, np.eye(len(self.dropped))[acting])
        why = "the incumbent is not proved to be above the threshold yet" if racing else "no candidate is on trial"
        return Deployable.alone(self.task.safe_policy, why)

    def _trial(self, racing: list[int], acting: int) -> Deployable | None:
        """The trial that is worth most, paid for by whoever pays for the largest weight, or by who acts; None where
        who acts alone is worth more.
        """
        values, rewards = self._values(racing, acting), self.seen[:, REWARD, 1]
        only_acting = np.arange(len(rewards)) == acting
        most, found = rewards[acting] if acting else -math.inf, None
        for may_pay in (~self.dropped, only_acting) if acting else (~self.dropped,):
            weights = self.ledger.trial_weights(racing, may_pay)
            own = weights[np.arange(len(racing)), racing]
            worth = np.where(own > 0, weights @ rewards + own * (values - rewards[racing]), -math.inf)
            best = int(np.argmax(worth))
            if worth[best] > most:
                most, found = worth[best], (racing[best], weights[best])
        return None if found is None else self._mixture(*found)

    def _mixture(self, first: int, weights: Array) -> Deployable:
        """The mixture of these weights (n,): one row first, the incumbent last."""
        others = [i for i in (*range(1, len(weights)), 0) if weights[i] > 0 and i != first]
        rows = [first, *others]
        bounds = mixture_bounds(weights, self.ledger.assured)
        return Deployable(self.ledger.mixture(rows, weights[rows]), "search", math.nan, amount(bounds))

    def credit(
        self, deployment: int | None, rows: Sequence[int], component: int, utility: Amount, reward: float
    ) -> None:
        """What came of a deployment of these rows, of which this component acted."""
        shares = [float(k == component) for k in range(len(rows))]
        self.ledger.credit(deployment, rows, shares, utility, reward)
        see(self.seen[rows[component]], np.array([*amounts(utility), reward]))
        self._judge()

    def _judge(self) -> None:
        """Who is certified now, who is passed by that, and who is given up."""
        certified = self.ledger.certified
        certified[0] = False
        if (certified & ~self.certified).any():
            self.passed |= ~certified
        self.certified = certified
        self._drop()

    def _drop(self) -> None:
        """Give up those that are below b, or earn less than who acts."""
        best = max(self._mean(i, REWARD) - self._radius(i, REWARD) for i in (0, self._acting()))
        for i in range(1, len(self.dropped)):
            if self.seen[i, REWARD, 0] >= SHORTEST_TRIAL:
                below = any(self._upper(i, c) < one.threshold for c, one in enumerate(self.task.constraints))
                self.dropped[i] |= (below and not self.certified[i]) or self._upper(i, REWARD) < best

    def _acting(self) -> int:
        """The certified candidate of the highest mean reward, the newest of equals; the incumbent if there is none."""
        rows = np.flatnonzero(self.certified & ~self.dropped).tolist()
        return max(rows, key=lambda i: (self._mean(i, REWARD), i), default=0)

    def _is_racing(self, i: int, acting: int) -> bool:
        """Whether candidate i is to be tried: not decided, and not passed by one that earns as much."""
        if self.dropped[i] or self.certified[i]:
            return False
        return not self.passed[i] or (self._rewards_differ() and self._upper(i, REWARD) > self._mean(acting, REWARD))

    def _rewards_differ(self) -> bool:
        """Whether rewards tell anything: all that were seen so far may be the same."""
        n, mean, deviations = self.seen[:, REWARD].T
        return bool(deviations.any() or np.ptp(mean[n > 0]) > 0)

    def _values(self, racing: list[int], acting: int) -> Array:
        """What an episode of each of these rows is worth: its reward, and the gain that it brings nearer.

        That is E(R − R_acting)₊ in all episodes ahead, times the part of its proof that an episode of its own makes;
        where rewards tell nothing, that part alone.
        """
        now, ahead = self._mean(acting, REWARD), max(self.seen[:, REWARD, 0].sum(), AHEAD)
        shift, error = (one[racing] for one in beliefs(self.seen[:, REWARD], now))
        gain = error * normal_parts(shift, error)[0] if error.any() else 1.0
        part = np.min([self._part_of_proof(c, racing, one) for c, one in enumerate(self.ledger.each)], axis=0)
        worth: Array = now + shift + gain * ahead * part
        return worth

    def _part_of_proof(self, c: int, racing: list[int], account: Account) -> Array:
        """Which part of the evidence left for constraint c an episode of each row is taken to bring.

        The best bet λ ≤ 1 makes ln(1 + λ(X − b)/(b − x₀)) grow by about (V − b)²/2σ², and by no more than its mean.
        """
        shift, error = (one[racing] for one in beliefs(self.seen[:, c], account.threshold))
        first, second = normal_parts(shift, error)
        quadratic = second / (self.seen[racing, c, 0] + PRIOR) / 2
        linear = error * first / (account.threshold - account.least_total)
        part: Array = np.minimum(quadratic, linear) / np.maximum(account.evidence_left(racing), LEAST_LEFT)
        return part

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
        """Fill new trials with what `state` said."""
        self.ledger.restore(saved, policies)
        n = len(self.ledger.policies)
        self.seen = saved.numbers("seen", (n, *self.seen.shape[1:]))
        self.dropped, self.passed, self.certified = (
            saved.flags(name, (n,)) for name in ("dropped", "passed", "certified")
        )


def see(seen: Array, values: Array) -> None:
    """One more value of each row (n, mean, Σ(x − mean)²), by Welford's update: equal values have no spread at all."""
    seen[:, 0] += 1
    before = values - seen[:, 1]
    seen[:, 1] += before / seen[:, 0]
    seen[:, 2] += before * (values - seen[:, 1])


def beliefs(seen: Array, at: float) -> tuple[Array, Array]:
    """How far the mean of each row of (n, mean, Σ(x − mean)²) is taken to be above `at`, and the error of that.

    Normal, as after so many more values at `at`, with a spread that is in part that of all rows.
    """
    n, mean, deviations = seen.T
    about = deviations + n * PRIOR / (n + PRIOR) * (mean - at) ** 2
    everyones = about.sum() / max(n.sum(), 1.0)
    error = np.sqrt((about + POOLED * everyones) / (n + POOLED) / (n + PRIOR))
    return n * (mean - at) / (n + PRIOR), error


def normal_parts(shift: Array, error: Array) -> tuple[Array, Array]:
    """E(z + N)₊ and E(z + N)₊² for z = shift/error, N standard normal: zΦ + φ and (z² + 1)Φ + zφ."""
    z = np.divide(shift, error, out=np.zeros_like(shift), where=error > 0)
    Phi = np.array([math.erfc(-one / math.sqrt(2)) / 2 for one in z.tolist()])
    phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return z * Phi + phi, (z * z + 1) * Phi + z * phi
