"""Observation: a certificate from the total utilities of deployed episodes, without any model of the system."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from episafe.certify.evidence import Accounts, shares_of
from episafe.certify.grid import FINENESS
from episafe.certify.trials import PAYS, PROPOSAL, Trials, named
from episafe.core.agent import Candidate, Certifier, Evidence, Goal, Proposer, plan_of, promise
from episafe.core.checks import TOLERANCE, as_count, as_probability
from episafe.core.task import Constraint, Task
from episafe.core.types import INCUMBENT, Array, Episode, Plan, Settings

# These change the regret and never the guarantee; set on the released problems of seeds 1000 to 1063, and on
# inventory, battery and cloud of seeds 1000 to 1011.
NUM_ROWS = 6  # policies on trial at once, with the incumbent
SHORTEST_TRIAL = 60  # episodes
TRIAL_SHARE = 0.5  # a trial lasts half as long as all episodes before it, if that is longer
LOOKS = 6  # times in a trial at which it may end
ENOUGH = 20  # episodes of its own after which a candidate that loses its bets is given up
PATIENCE, LONG = 1.0, 1000  # a candidate that will be certified in as many episodes as there were, or in so many, stays
EARLY = 2  # proposals that are made in any case: the first knows nothing
FIRST_MARGIN = 0.2  # of the slack: how far above b the first proposal aims
MARGINS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7)  # of the slack: those that later proposals choose from
AHEAD = 6.0  # times the episodes so far: the horizon for which they choose
BOLD, SOBER, CURIOUS = range(3)
KINDS = (BOLD, SOBER, CURIOUS, BOLD)  # of proposals, in turn
SOBERNESS = 0.1  # of the reward's bonus: a sober proposal takes what seems best, a bold one explores
OPTIMISM = 0.3  # a curious proposal is optimistic in the utility too, else what was never tried never is
THIN = 0.1  # per step: where less than this can be earned the bonus of the reward shrinks with it,
LEAST_BOLD = 0.05  # to this part; both set on FrozenLake 8×8 of seeds 100 to 111
FEW = 3  # episodes of its own that say something of a candidate's reward
DISCOUNT = 0.35  # of the amount by which the last proposal of the same kind fell short of its promise
EXPLORES = "explores"  # a statistic of proposals whose promised reward means nothing
EARNED = "earned"  # a statistic of proposals where rewards are thin: no promise is believed beyond it

ASSUMES = (
    "each episode is independent of all before it given its plan, and the system does not drift; the component is "
    "drawn as the weights say and acts with the probabilities that it states; every total utility is at least the "
    "least total; the incumbent's expected utility is at least threshold + slack; reports are true, and may be late or "
    "lost, for any reason"
)


class Observation(Certifier):
    """Every deployed mixture has expected utility at least b, in all episodes together, with probability 1 − delta.

    It does not assume features, Markov states, a fixed start or a known utility; `settings()` states what it assumes.
    The promise is about the mixture: a candidate on trial may be below b by itself.

    Args:
        delta: the probability with which some deployed mixture may be below b.
        window: n, to forget: after every n deployments all bounds begin again with the full delta, and the promise is
            for each block of n deployments by itself. None for one promise for all episodes.
    """

    name: ClassVar[str] = "observation"

    def __init__(self, delta: float = 0.05, window: int | None = None) -> None:
        self.delta, self.window = as_probability("delta", delta), None if window is None else as_count("window", window)
        self.num_deployed = self._num_added = 0  # deployments; candidates so far, by which proposals are named
        self.num_episodes = self.trial_began = self.trial_ends = 0
        self._promised = math.nan  # the reward of the newest candidate, by its proposer
        self._shortfalls = np.zeros((len(set(KINDS)), 2))  # of each kind: how far the last one fell short, and when
        self._plans: dict[int, Plan] = {}
        self._wanted, self._looks, self._asked = True, 0, -1  # whether a candidate is; looks so far; the last one asked

    def __repr__(self) -> str:
        return f"{type(self).__name__}(delta={self.delta:g}{'' if self.window is None else f', window={self.window}'})"

    def start(self, task: Task) -> None:
        """Bind the certifier to a task."""
        self.task, m = task, task.num_constraints
        task.slacks  # noqa: B018  # raises if one is unknown
        largest = None if task.horizon is None else float(task.horizon)
        accounts = Accounts(task, self.delta, NUM_ROWS, largest=largest, fineness=FINENESS / math.sqrt(m))
        self.trials = Trials(task, accounts)

    @property
    def accounts(self) -> Accounts:
        """Return the accounts that hold the bounds."""
        return self.trials.accounts

    @property
    def begins_block(self) -> bool:
        """Return whether a block of `window` deployments is complete, so that the next deployment begins another."""
        return self.window is not None and self.num_deployed % self.window == 0

    @property
    def number_of_next(self) -> int:
        """Return the number of the next candidate, by which proposals are named."""
        return self._num_added + 1

    def settings(self) -> Settings:
        """Return delta and the statement."""
        return promise(self.name, self.delta, ASSUMES, window=self.window)

    # when to try which candidate

    @property
    def episodes_to_look(self) -> int:
        """Return how many episodes remain until the trial may end; 0 if it may end now."""
        if self.trial_ends == self.trial_began:
            return 0
        look = max((self.trial_ends - self.trial_began) // LOOKS, 1)
        return look if self.num_episodes == self.trial_began else (self.trial_began - self.num_episodes) % look

    def look(self) -> None:
        """Check whether the newest candidate is decided or its trial is over, so that another one is wanted.

        No other one is wanted while an earlier one is nearly certified, because its trial continues. `apply` calls
        this, so the result depends only on the reports.
        """
        trials, i = self.trials, self.trials.newest
        if self.episodes_to_look:
            return
        self._looks += 1
        if i == 0 or self.accounts.is_certified(i):
            self._wanted = True
        elif self.num_episodes < self.trial_ends or trials.paying == i:  # all others wait for one that pays
            self._wanted = trials.forecast(i) == math.inf and trials.ranking.rewards[i, 1] >= ENOUGH
        else:
            nearest = self._nearest() if self.accounts.num_candidates >= EARLY else 0
            self._wanted, trials.newest = nearest == 0, nearest or i

    def _nearest(self) -> int:
        """Return the row with the largest gain per episode that it still needs; 0 if none is near."""
        trials, longest = self.trials, PATIENCE * max(self.num_episodes, LONG)
        certified = {i: self.accounts.is_certified(i) for i in self.accounts.rows}
        best = max(trials.score(i) for i, is_certified in certified.items() if is_certified)
        found, most = 0, 0.0
        for i in (i for i, is_certified in certified.items() if not is_certified):
            total, own = trials.ranking.rewards[i].tolist()
            if own < 1:
                continue
            remaining = trials.forecast(i)
            gain = (total / own - best) / (remaining + SHORTEST_TRIAL)
            if remaining <= longest and gain > most:
                found, most = i, gain
        return found

    def goal(self) -> Goal | None:
        """Return b + (ξ/5)(1 + k/60)^{-1/2}: a margin that shrinks as a confidence bound does.

        Return None while a trial is under way, or if the proposer was asked since the last check.
        """
        if not self._wanted or self._asked == self._looks or self.invalid_reason:
            return None
        margin = FIRST_MARGIN * self.task.slacks / math.sqrt(1 + self.num_episodes / SHORTEST_TRIAL)
        kind = self._kind(self.accounts.num_candidates)
        optimism, boldness = OPTIMISM if kind == CURIOUS else 0.0, SOBERNESS if kind == SOBER else 1.0
        return Goal(self.task.thresholds + margin, optimism, boldness)

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return a proposal to try, or None.

        With one limit, choose the proposal with the largest forecast reward, among several margins above b. While no
        reward was seen, choose the proposal that explores most. If rewards are rare, the bonus is smaller, and
        predicted rewards are cut to what all episodes so far allow.
        """
        goal = self.goal()
        if goal is None:
            return None
        self._asked = self._looks
        if self.trials.seeks_payer():
            most = float(self.task.horizon or 1)  # all the utility there is; its reward does not matter
            found = self._named(proposer.propose(Goal(np.full(self.task.num_constraints, most))), **{PAYS: 1.0})
            return None if found is None else replace(found, reward=most)
        if self.task.num_constraints > 1 or self.num_episodes < SHORTEST_TRIAL:
            return self._named(proposer.propose(goal))
        horizon = self.task.horizon or 1
        earned = proposer.earned()
        if earned <= TOLERANCE * horizon:
            return self._named(proposer.propose(Goal(self.task.least_totals)), **{EXPLORES: 1.0})
        richness, believed = earned / (THIN * horizon), self.trials.ranking.guess.copy()
        if richness >= 1:
            return self._named(self._best(proposer, goal))
        self._cut_promises(earned)
        found = self._best(proposer, replace(goal, boldness=goal.boldness * max(richness, LEAST_BOLD)))
        self.trials.ranking.guess[:] = believed  # `add` cuts them
        return self._named(found, **{EARNED: earned})

    def postpone(self) -> None:
        """Do not ask for a proposal again before the next check."""
        self._asked = self._looks

    def _cut_promises(self, earned: float) -> None:
        guess = self.trials.ranking.guess
        np.minimum(guess, earned, out=guess)

    def _best(self, proposer: Proposer, goal: Goal) -> Candidate | None:
        """Return the proposal, at one of several margins, that is forecast to earn most."""
        best, found, task = -math.inf, None, self.task
        for share in MARGINS:
            candidate = proposer.propose(replace(goal, utilities=task.thresholds + share * task.slacks))
            if candidate is not None:
                worth = self._worth(candidate.reward, float(task.thresholds[0] + share * task.slacks[0]))
                if worth > best:
                    best, found = worth, candidate
        return found

    def _named(self, candidate: Candidate | None, **more: float) -> Candidate | None:
        found = named(candidate, self.number_of_next)
        if found is None or self.below_floor(found):
            return None
        return replace(found, statistics={**found.statistics, **more})

    def _worth(self, reward: float, utility: float) -> float:
        """Return what a policy with this reward and utility earns in future episodes, including the policy that pays.

        After n episodes of its own its bound is about σ√(2 ln(B/δ_j)/n) below its utility. The difference to b is paid
        for by a policy whose bound L is above b, with a share of difference/(difference + L − b).
        """
        horizon, b = self.task.horizon or 1, self.task.thresholds[0]
        spread = min(math.sqrt(horizon), horizon - self.task.least_totals[0]) / 2
        n, number = AHEAD * self.num_episodes * np.arange(1, 9) / 8, self.accounts.num_candidates + 1
        bounds = utility - spread * np.sqrt(2 * self.accounts.log_term(number) / n)
        lacking = float(np.maximum(b - bounds, 0.0).mean())
        surplus = {j: self.trials.lower[j, 0] - b for j in self.accounts.rows}
        paid = [
            lacking / (lacking + over) * max(reward - self.trials.score(j), 0.0)
            for j, over in surplus.items()
            if over > 0
        ]
        return reward - min(paid, default=0.0)

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial; a user's candidate or an early proposal is assumed to earn the largest reward."""
        self._num_added += 1
        if EARNED in candidate.statistics:
            self._cut_promises(candidate.statistics[EARNED])
        is_proposal = candidate.name.startswith(PROPOSAL)
        guess, promised = float(self.task.horizon or 1), math.nan
        if is_proposal:
            self._compare_with_promise()
            if self.num_episodes >= SHORTEST_TRIAL and math.isfinite(candidate.reward):
                shortfall, when = self._shortfalls[self._kind(self.accounts.num_candidates)].tolist()
                discount = DISCOUNT * shortfall * math.sqrt(when / max(self.num_episodes, 1))
                guess = candidate.reward - discount
                promised = math.nan if {EXPLORES, PAYS} & candidate.statistics.keys() else candidate.reward
        self.trials.add(candidate, guess)
        # no proposal is asked for during the trial of the newest candidate
        length = max(SHORTEST_TRIAL, math.floor(TRIAL_SHARE * self.num_episodes))
        self._promised, self.trial_began, self.trial_ends = promised, self.num_episodes, self.num_episodes + length
        self._wanted = False

    def _compare_with_promise(self) -> None:
        """Note by how much the last proposal, if it is on trial, falls short of its promised reward."""
        i, number = self.trials.newest, self.accounts.num_candidates
        reward, own = self.trials.ranking.rewards[i].tolist()
        is_last = self.accounts.names[i] == f"{PROPOSAL}{number}"
        if is_last and math.isfinite(self._promised) and own >= FEW:
            self._shortfalls[self._kind(number - 1)] = max(self._promised - reward / own, 0.0), self.num_episodes

    @staticmethod
    def _kind(number: int) -> int:
        return KINDS[number % len(KINDS)]

    # deployments and evidence

    def plan(self) -> Plan:
        """Return the best mixture whose bounds reach the limits; the incumbent if the certificate is invalid."""
        return self.fallback(self.invalid_reason) if self.invalid_reason else self.trials.choose(self.num_episodes)

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the worst case for every component of its plan."""
        self._plans[deployment] = plan
        self.accounts.expect(deployment, [row for row in map(self.accounts.row, plan.parts.names) if row >= 0])
        self.num_deployed += 1
        if self.begins_block:
            self.trials.begin_block()

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the share of each component and the total utility. Raise if no component could act like this."""
        plan = plan_of(self._plans, deployment)
        n, shares = len(plan.parts.names), shares_of(self.task, plan.parts.components, plan.parts.weights, episode)
        rewards = np.full(n, float(episode.total_reward or 0.0))
        return Evidence(plan.parts.names, shares, np.array([episode.total_utility] * n), rewards)

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Credit the components that are still on trial."""
        self._plans.pop(deployment, None)
        rows, found = self.accounts.known(evidence)
        self.accounts.credit(deployment, rows, found.shares, found.utilities)
        self.trials.credit(rows, found)
        self.num_episodes += 1
        self.look()

    def read_log(self, names: Sequence[str], shares: Array, utilities: Array) -> None:
        """Add logged episodes before the first deployment: shares (n, E) and total utilities (n, E, m)."""
        self.accounts.read_log(np.array([self.accounts.row(name) for name in names]), shares, utilities)

    def abandoned(self, deployment: int) -> None:
        """Forget the plan of a deployment that will never be reported; it keeps counting as the worst case."""
        self._plans.pop(deployment, None)

    def bounds(self) -> dict[str, Array]:
        """Return the bounds (m,) of each candidate."""
        return self.accounts.bounds()

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) that are proved for a plan now, computed as in the check."""
        return self.trials.proves(plan, self.trials.lower)

    def promote(self, name: str) -> None:
        """Let a certified candidate act wherever the incumbent would."""
        self.require_on_trial(name, INCUMBENT)
        self.trials.promote(name)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate; if it was the newest, ask for another one."""
        self.require_on_trial(name)
        self.trials.withdraw(name)
        if not self.trials.newest:
            self.trial_began = self.trial_ends = self.num_episodes
            self._promised = math.nan
            self.look()

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds and slacks from now on."""
        self.task = self.trials.task = replace(self.task, constraints=tuple(constraints))
        self.accounts.change(self.task.thresholds, self.task.stated_utilities)

    def void(self, reason: str) -> None:
        """Note that the certificate is invalid."""
        self.accounts.end(reason)

    @property
    def invalid_reason(self) -> str:
        """Return why the certificate is invalid; "" while it is valid."""
        return self.accounts.invalid_reason
