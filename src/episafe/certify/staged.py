"""Staged: a certificate for candidates that are tried one at a time, from the totals of their episodes.

What is tried, and when it is given up, is heuristic; every plan passes the check of `evidence.admits`.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from episafe.certify.evidence import Accounts
from episafe.certify.observation import FIRST_MARGIN, SHORTEST_TRIAL, SOBERNESS, Observation
from episafe.certify.trials import PROPOSAL, Trials
from episafe.core.agent import Candidate, Evidence, Goal, Proposer, plan_of, promise
from episafe.core.errors import InvalidEpisode
from episafe.core.task import Constraint, Task
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.kernels.mixture import best_weights
from episafe.kernels.wealth import LOG_WORST

LEAST_WEIGHT = 1e-3  # with which a trial is taken to begin
LONGEST_TAIL = 2000  # deployments of one policy after one of its that is not reported
LONG = 100  # episodes of a trial after which another proposal is made, in addition to as many as there were before
LEVEL, LEAST_SEEN = 0.05, 10  # of the test that ends a trial; episodes of its own before that
PRIOR = 4.0  # episodes at b, and at the reward of the acting policy, that a candidate starts with
POOLED = 20.0  # episodes of its own that the spread of all candidates counts for in that of each
AHEAD = 1000  # episodes for which a gain lasts, at least; else as many as there were
LEAST_LEFT = 0.1  # of ln(1/δ_j): evidence that is taken to be missing at least
RHO = 0.18  # the radius of a mean is smallest after some tens of values
REWARD = -1  # index of the reward in what was seen of a policy; utility c has index c

ASSUMES = (
    "each episode, given the policy that acts, is independent of all before it; the system does not drift; "
    "policies are frozen, a changed one is a new candidate, and none remembers earlier episodes; the component is "
    "drawn as the weights say, before the episode; every outcome counts for the policy that was drawn, time-outs and "
    "fallbacks included; every total utility is at least the least total; reports are true, and may be late or lost, "
    "for any reason; the incumbent's expected utility is at least the threshold"
)


class Staged(Observation):
    """Candidates are tried one at a time: an episode counts only for the policy that acted, q = 1.

    If a slack is unknown, the incumbent has a sequence of its own and acts alone until it is proved to exceed b. Each
    candidate is tried at the largest weight that the check allows. While none is certified, all are tried; after that,
    only those whose rewards may be better. The certified candidate with the highest mean reward acts. A candidate is
    given up if its utility is below b, or its reward below that of the acting policy.

    Attributes:
        seen: results by policy and signal (n, m + 1, 3): number of episodes, mean, Σ(x − mean)².
        dropped, passed, certified: flags (n,): given up; overtaken, so tried only if it earns more; bounds reach the
            limits.
    """

    name: ClassVar[str] = "rollout"

    def __init__(self, delta: float = 0.05) -> None:
        super().__init__(delta)  # without blocks

    def start(self, task: Task) -> None:
        """Begin with the incumbent alone."""
        self.task = task
        self.trials = Trials(task, Accounts(task, self.delta, 1, longest_tail=LONGEST_TAIL))
        self.seen = np.zeros((1, task.num_constraints + 1, 3))
        self.dropped = self.passed = self.certified = np.zeros(1, dtype=np.bool_)

    def settings(self) -> Settings:
        """Return delta and the statement."""
        slack = " + slack" if all(one.slack is not None for one in self.task.constraints) else ""
        return promise(self.name, self.delta, ASSUMES + slack)

    def goal(self) -> Goal | None:
        """Return the goal of the next proposal; None while a candidate is on trial. Users' candidates come first.

        A proposal whose trial takes longer than all episodes before it does not keep others waiting.
        """
        acting = self._acting()
        racing = [self.accounts.names[i] for i in self._racing(acting)]
        is_long = self.num_episodes >= 2 * self.trial_began + LONG
        if self.invalid_reason or any(not is_long or not name.startswith(PROPOSAL) for name in racing):
            return None
        b, lower = self.task.thresholds, self.assured[acting]
        margin = FIRST_MARGIN * np.maximum(lower - b, 0.0) / math.sqrt(1 + self.num_episodes / SHORTEST_TRIAL)
        number = self.accounts.num_candidates + 1
        first_weight = max(float(((lower - b) / (lower - self.task.least_totals)).min()), LEAST_WEIGHT)
        ahead = float(max(self.num_episodes, AHEAD))
        order = [acting, *(i for i in range(len(self.seen)) if i != acting)]
        seen = tuple((one, self.seen[i].copy()) for i in order if (one := self.trials.policies[i]) is not None)
        return Goal(b + margin, 0.0, SOBERNESS, seen, self.accounts.log_term(number), first_weight, ahead)

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return a proposal to try while no candidate is on trial."""
        goal = self.goal()
        return None if goal is None else self._named(proposer.propose(goal))

    def postpone(self) -> None:
        """Do nothing: the next report asks the proposer again."""

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial. Those before the first deployment share half of δ equally; later ones have δ_j."""
        self._num_added += 1
        self.trial_began = self.num_episodes
        self.trials.add(candidate, 0.0)
        self.seen = np.concatenate([self.seen, np.zeros((1, *self.seen.shape[1:]))])
        flags = self.dropped, self.passed, self.certified
        self.dropped, self.passed, self.certified = (np.append(one, False) for one in flags)
        self._judge()
        self.accounts.share_delta()

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the worst case for the drawn component, or for all components if none is drawn yet."""
        self._plans[deployment] = plan
        names = plan.parts.names if component is None else plan.parts.names[component : component + 1]
        self.accounts.expect(deployment, [row for row in map(self.accounts.row, names) if row >= 0])

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return share 1 for the component that acted, 0 for the others."""
        names, component = plan_of(self._plans, deployment).parts.names, episode.component
        component = 0 if component is None and len(names) == 1 else component
        if component not in range(len(names)):
            raise InvalidEpisode(f"component is {component!r}: give the position in {names} of the policy that acted")
        totals = np.tile(np.asarray(episode.total_utility), (len(names), 1))
        return Evidence(names, np.eye(len(names))[component], totals, np.full(len(names), episode.total_reward or 0.0))

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Credit the policy that acted; the others no longer wait for this deployment."""
        rows, found = self.accounts.known(evidence)
        # the total is that of the acting policy: the least total of another one says nothing of it
        acted, least = found.shares[:, None] > 0, self.accounts.wealth.least[rows]
        utilities = np.where(acted, found.utilities, np.maximum(found.utilities, least))
        self._plans.pop(deployment, None)
        self.accounts.credit(deployment, rows, found.shares, utilities)
        for k in np.flatnonzero(found.shares):
            self._see(rows[k], found.utilities[k], float(found.rewards[k]))
        self.num_episodes += 1
        self._judge()

    def read_log(self, names: Sequence[str], shares: Array, utilities: Array) -> None:
        """Add logged episodes before the first deployment."""
        super().read_log(names, shares, utilities)
        self._judge()

    def proves(self, plan: Plan) -> Array:
        """Return Σ w_i L_i (m,); the incumbent reaches the thresholds, even if its slack is unknown."""
        return self.trials.proves(plan, self.assured)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        super().withdraw(name)
        self._judge()

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other limits; candidates that were given up are judged again."""
        super().change(constraints)
        self._judge(again=True)

    # which candidate to try, and when to give it up

    def _see(self, row: int, utilities: Array, reward: float) -> None:
        """Add the totals of an episode of a row by Welford's update, which gives equal values a spread of exactly 0."""
        seen, values = self.seen[row], np.append(utilities, reward)
        seen[:, 0] += 1
        before = values - seen[:, 1]
        seen[:, 1] += before / seen[:, 0]
        seen[:, 2] += before * (values - seen[:, 1])

    def _judge(self, again: bool = False) -> None:
        """Note the rows that are certified now, those that they overtake, and those that are given up.

        `again`: also judge the rows that were given up before.
        """
        accounts, means = self.accounts, self.seen[:, :, 1]
        certified = np.array([i > 0 and accounts.is_certified(i) for i in range(len(means))])
        if (certified & ~self.certified).any():
            self.passed = self.passed | ~certified
        self.certified = certified
        self.dropped = (self.dropped & (not again)) | (accounts.wealth.in_use == 0)
        best = max(means[i, REWARD] - radius(self.seen[i, REWARD]) for i in (0, self._acting()))
        for i in range(1, len(means)):
            if self.seen[i, REWARD, 0] >= LEAST_SEEN:
                upper = means[i] + [radius(one) for one in self.seen[i]]
                below = (upper[:REWARD] < accounts.thresholds).any() and not certified[i]
                self.dropped[i] |= below or upper[REWARD] < best

    def plan(self) -> Plan:
        """Return the most valuable trial; if there is none, the acting policy alone."""
        if self.invalid_reason:
            return self.fallback(self.invalid_reason)
        acting = self._acting()
        racing = self._racing(acting)
        found = self._trial(racing, acting) if racing else None
        if found is not None:
            first, weights = found
            others = [i for i in (*range(1, len(weights)), 0) if weights[i] > 0 and i != first]
            return self.trials.as_plan([first, *others], weights[[first, *others]].tolist(), self.assured)
        if acting:
            return self.trials.as_plan([acting], [1.0], self.trials.lower)
        return self.fallback("the incumbent's slack is not proved yet" if racing else "no candidate is on trial")

    @property
    def assured(self) -> Array:
        """Return L (n, m); the incumbent reaches the thresholds, even if its slack is unknown."""
        lower = self.trials.lower.copy()
        lower[0] = np.maximum(lower[0], self.accounts.thresholds)
        return lower

    def _acting(self) -> int:
        """Return the certified row with the highest mean reward, the newest of equals, or else the row that pays."""
        rows = np.flatnonzero(self.certified & ~self.dropped).tolist()
        return max(rows, key=lambda i: (self.seen[i, REWARD, 1], i), default=self.trials.base)

    def _racing(self, acting: int) -> list[int]:
        """Return the rows to be tried: not decided, and not overtaken by a row that earns as much."""
        n, mean, deviations = self.seen[:, REWARD].T
        differ = deviations.any() or len(set(mean[n > 0].tolist())) > 1
        return [
            i
            for i in range(1, len(n))
            if not (self.dropped[i] or self.certified[i])
            and (not self.passed[i] or (differ and mean[i] + radius(self.seen[i, REWARD]) > mean[acting]))
        ]

    def _trial(self, racing: list[int], acting: int) -> tuple[int, Array] | None:
        """Return the row with the most valuable trial and the weights; None if the acting policy alone is better."""
        values, rewards, b = self._values(racing, acting), self.seen[:, REWARD, 1], self.accounts.thresholds
        most, found, may_pay = (rewards[acting] if acting else -math.inf), None, ~self.dropped
        may_pay[0] = self.trials.base == 0  # after a promotion the promoted policy pays, and not the incumbent
        payer = int(np.argmax(np.where(may_pay, (self.assured - b).min(axis=1), -np.inf)))
        for i, value in zip(racing, values.tolist(), strict=True):
            own = np.eye(len(rewards))[i]
            scores = np.where(own > 0, value, rewards)
            weights = best_weights(
                scores if acting else own, self.assured, b, (may_pay | (own > 0)).astype(np.int64), payer
            )
            if weights[i] > 0 and weights @ scores > most:
                most, found = weights @ scores, (i, weights)
        return found

    def _values(self, racing: list[int], acting: int) -> Array:
        """Return the value of an episode of each row: its reward, plus its part of the gain that a proof would bring.

        The gain is E(R − R_acting)₊ in all episodes ahead, times the part of its proof that one episode makes. The best
        bet λ ≤ 1 lets ln(1 + λ(X − b)/(b − x₀)) grow by about (V − b)²/2σ², and by no more than its mean.
        """
        now, ahead = float(self.seen[acting, REWARD, 1]), max(self.seen[:, REWARD, 0].sum(), AHEAD)
        shift, error, z = (one[racing] for one in beliefs(self.seen[:, REWARD], now))
        gain = error * normal_parts(z)[0] if error.any() else 1.0
        parts, wealth = [], self.accounts.wealth
        for c, b in enumerate(self.accounts.thresholds.tolist()):
            _, spread, z = (one[racing] for one in beliefs(self.seen[:, c], b))
            first, second = normal_parts(z)
            g = np.minimum((wealth.means[racing, c] < b).sum(axis=1), wealth.means.shape[2] - 1)
            logs = wealth.logs[racing, c, g] + wealth.absent[racing, None] * LOG_WORST
            left = wealth.log_term[racing, c] - np.log((np.exp(logs) * wealth.products[racing, c, g]).sum(axis=1))
            quadratic = second / (self.seen[racing, c, 0] + PRIOR) / 2
            linear = spread * first / np.maximum(b - wealth.least[racing, c], 1e-9 * (1 + abs(b)))
            parts.append(np.minimum(quadratic, linear) / np.maximum(left, LEAST_LEFT))
        worth: Array = now + shift + gain * ahead * np.min(parts, axis=0)
        return worth


def radius(seen: Array) -> float:
    """Return the one-sided error of a mean, given (n, mean, Σ(x − mean)²); infinite for n < 2.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021), s the standard
    deviation: s √(2 (nρ² + 1)/(n²ρ²) · ln(√(nρ² + 1)/level)).
    """
    n, _, deviations = seen.tolist()
    if n < 2:
        return math.inf
    s, grows = math.sqrt(deviations / (n - 1)), n * RHO**2 + 1
    return s * math.sqrt(2 * grows / (n * RHO) ** 2 * math.log(math.sqrt(grows) / LEVEL))


def beliefs(seen: Array, at: float) -> tuple[Array, Array, Array]:
    """Return the estimated distance of each row's mean above `at`, its error, and their ratio, 0 without an error.

    `seen` holds n, mean and Σ(x − mean)² by row. The estimate is normal, with `PRIOR` additional values at `at` and a
    spread partly taken from all rows.
    """
    n, mean, deviations = seen.T
    about = deviations + n * PRIOR / (n + PRIOR) * (mean - at) ** 2
    pooled = about.sum() / max(n.sum(), 1.0)
    error = np.sqrt((about + POOLED * pooled) / (n + POOLED) / (n + PRIOR))
    shift = n * (mean - at) / (n + PRIOR)
    return shift, error, np.divide(shift, error, out=np.zeros_like(shift), where=error > 0)


def normal_parts(z: Array) -> tuple[Array, Array]:
    """Return E(z + N)₊ and E(z + N)₊², N standard normal: zΦ + φ and (z² + 1)Φ + zφ."""
    Phi = np.array([math.erfc(-one / math.sqrt(2)) / 2 for one in z.tolist()])
    phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return z * Phi + phi, (z * z + 1) * Phi + z * phi
