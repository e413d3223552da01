"""Staged: a certificate for candidates that are tried one at a time, from the totals of their episodes."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from episafe.certify.evidence import Accounts
from episafe.certify.observation import FIRST_MARGIN, SHORTEST_TRIAL, SOBERNESS, Observation
from episafe.certify.race import AHEAD, Race
from episafe.core.agent import Candidate, Evidence, Goal, Proposer, plan_of, promise
from episafe.core.errors import InvalidEpisode
from episafe.core.task import Constraint, Task
from episafe.core.types import Array, Episode, Plan, Settings

LEAST_WEIGHT = 1e-3  # with which a trial is taken to begin
LONGEST_TAIL = 2000  # deployments of one policy after one of its that is not reported

ASSUMES = (
    "each episode, given the policy that acts, is independent of all before it; the system does not drift; "
    "policies are frozen, a changed one is a new candidate, and none remembers earlier episodes; the component is "
    "drawn as the weights say, before the episode; every outcome counts for the policy that was drawn, time-outs and "
    "fallbacks included; every total utility is at least the least total; reports are true, and may be late or lost, "
    "for any reason; the incumbent's expected utility is at least the threshold"
)


class Staged(Observation):
    """Candidates are tried one at a time: an episode counts only for the policy that acted, q = 1.

    If a slack is unknown, the incumbent has a sequence of its own and acts alone until it is proved to exceed b.
    """

    name: ClassVar[str] = "rollout"
    trials: Race

    def __init__(self, delta: float = 0.05) -> None:
        super().__init__(delta)  # without blocks

    def start(self, task: Task) -> None:
        """Begin with the incumbent alone."""
        self.task = task
        self.trials = Race(task, Accounts(task, self.delta, 1, longest_tail=LONGEST_TAIL))

    def settings(self) -> Settings:
        """Return delta and the statement."""
        slack = " + slack" if all(one.slack is not None for one in self.task.constraints) else ""
        return promise(self.name, self.delta, ASSUMES + slack)

    def goal(self) -> Goal | None:
        """Return the goal of the next proposal; None while a candidate is on trial. Users' candidates come first."""
        if self.invalid_reason or not self.trials.is_idle:
            return None
        b, lower = self.task.thresholds, self.trials.assured[self.trials._acting()]
        margin = FIRST_MARGIN * np.maximum(lower - b, 0.0) / math.sqrt(1 + self.num_episodes / SHORTEST_TRIAL)
        number = self.accounts.num_candidates + 1
        first_weight = max(float(((lower - b) / (lower - self.task.least_totals)).min()), LEAST_WEIGHT)
        ahead = float(max(self.num_episodes, AHEAD))
        return Goal(
            b + margin, 0.0, SOBERNESS, self.trials.standing(), self.accounts.log_term(number), first_weight, ahead
        )

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return a proposal to try while no candidate is on trial."""
        goal = self.goal()
        return None if goal is None else self._named(proposer.propose(goal))

    def postpone(self) -> None:
        """Do nothing: the next report asks the proposer again."""

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial. Those before the first deployment share half of δ equally; later ones have δ_j."""
        self._num_added += 1
        self.trials.add(candidate)
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
            self.trials.see(rows[k], found.utilities[k], float(found.rewards[k]))
        self.num_episodes += 1
        self.trials.judge()

    def read_log(self, names: Sequence[str], shares: Array, utilities: Array) -> None:
        """Add logged episodes before the first deployment."""
        super().read_log(names, shares, utilities)
        self.trials.judge()

    def proves(self, plan: Plan) -> Array:
        """Return Σ w_i L_i (m,); the incumbent reaches the thresholds, even if its slack is unknown."""
        return self.trials.proves(plan, self.trials.assured)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        super().withdraw(name)
        self.trials.judge()

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other limits; candidates that were given up are judged again."""
        super().change(constraints)
        self.trials.judge(again=True)
