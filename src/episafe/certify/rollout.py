"""Rollout: a staged release with a proof, for opaque policies of which only the totals of episodes are seen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from episafe.certify.evidence import Accounts, components
from episafe.certify.observation import Observation
from episafe.certify.race import Race
from episafe.certify.safe_agent import SafeAgent
from episafe.core.agent import AgentFacts, Candidate, Evidence, Goal, Proposer
from episafe.core.checks import as_array
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import OpaquePolicy, Policy
from episafe.core.task import Constraint, Task, make_constraints
from episafe.core.types import Array, Episode, PerLimit, Plan, Settings

LONGEST_TAIL = 2000  # deployments of one policy after one of its that is not reported

ASSUMES = (
    "each episode, given the policy that acts, is independent of all before it; the system does not drift; "
    "policies are frozen, a changed one is a new candidate, and none remembers earlier episodes; the component is "
    "drawn as the weights say, before the episode; every outcome counts for the policy that was drawn, time-outs and "
    "fallbacks included; every total utility is at least the least total; reports are true, and may be late or lost, "
    "whatever they contain; the incumbent's expected utility is at least the threshold"
)


class Totals(Observation):
    """The certificate of `Rollout`: an episode counts for the policy that acted, q = 1, and for no other.

    Where a slack is unknown, the incumbent has a sequence of its own and acts alone until it is proved to exceed b.
    """

    name: ClassVar[str] = "rollout"
    trials: Race

    def start(self, task: Task) -> None:
        """Begin with the incumbent alone."""
        self.task = task
        self.trials = Race(task, Accounts(task, self.delta, 1, longest_tail=LONGEST_TAIL))

    def settings(self) -> Settings:
        """Return delta and the statement."""
        promise = "every deployed mixture has expected utility at least the threshold, in all episodes together"
        slack = " + slack" if all(one.slack is not None for one in self.task.constraints) else ""
        statement = f"{promise}, with probability {1 - self.delta:g}, if: {ASSUMES}{slack}"
        return {"certifier": self.name, "delta": self.delta, "statement": statement}

    def goal(self) -> Goal | None:
        """Return None: candidates are given, not proposed."""
        return None

    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial. Those before the first deployment share half of δ equally; later ones have δ_j."""
        self.trials.add(candidate)
        self.accounts.share_delta()

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment at its worst for the policy that was drawn; for all that may act, if none was yet."""
        self._plans[deployment] = plan
        names = components(plan)[0]
        names = names if component is None else names[component : component + 1]
        self.accounts.expect(deployment, [row for row in map(self.accounts.row, names) if row >= 0])

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return share 1 for the component that acted, 0 for the others."""
        plan, component = self._plans.get(deployment), episode.component
        if plan is None:
            raise InvalidEpisode(f"deployment {deployment} is unknown or was reported before: report each once")
        names = components(plan)[0]
        component = 0 if component is None and len(names) == 1 else component
        if component not in range(len(names)):
            raise InvalidEpisode(f"component is {component!r}: give the position in {names} of the policy that acted")
        totals = np.tile(np.asarray(episode.total_utility), (len(names), 1))
        return Evidence(names, np.eye(len(names))[component], totals, np.full(len(names), episode.total_reward or 0.0))

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Credit the policy that acted; the others no longer wait for this deployment."""
        rows = np.array([self.accounts.row(name) for name in evidence.names], dtype=np.int64)
        # the total is that of the acting policy: the least total of another one says nothing of it
        others, utilities = evidence.shares == 0, evidence.utilities.copy()
        utilities[others] = np.maximum(utilities, self.accounts.wealth.least[rows])[others]
        known, acted = rows >= 0, int(np.argmax(evidence.shares))
        self._plans.pop(deployment, None)
        self.accounts.credit(deployment, rows[known], evidence.shares[known], utilities[known])
        if known[acted]:
            self.trials.see(rows[acted], evidence.utilities[acted], float(evidence.rewards[acted]))
        self.num_episodes += 1
        self.trials.judge()

    def proves(self, plan: Plan) -> Array:
        """Return Σ w_i L_i (m,); the incumbent reaches the thresholds, also where its slack is unknown."""
        return self.trials.proves(plan, self.trials.assured)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        super().withdraw(name)
        self.trials.judge()

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other limits; candidates that were given up are judged again."""
        super().change(constraints)
        self.trials.judge(again=True)


class Rollout(SafeAgent):
    """Tries candidates beside an incumbent; one acts alone once its utility is proved to reach the threshold.

    Policies are opaque: functions, networks, addresses of services, names. An episode is anything that has a total
    utility. Given the draw, a candidate on trial may itself be below the threshold; the mixture is not.

    Args:
        threshold: b, one number, or one per limit.
        slack: ξ > 0 if the incumbent is known to reach b + ξ; None if it is only known to reach b.
        candidates: policies by name, the likeliest first. `add_candidate` adds more.
        incumbent: what acts today.
        delta: the probability with which some deployed mixture may be below b.
        least_total: a total utility that every episode is certain to reach; an episode below it voids all proofs.
        names: what reports call the limits.

    Example:
        >>> import episafe as es
        >>> agent = es.Rollout(0.9, 0.05, candidates={"v2": "https://v2"}, incumbent="https://v1")
        >>> session = es.open(None, agent)
        >>> d = session.deploy()
        >>> d.plan.policy.names
        ('v2', 'incumbent')
        >>> session.report(d.id, es.Episode.of_totals(utility=1.0, reward=0.3))
    """

    facts = AgentFacts("rollout", "Rollout", "A staged release of opaque policies with a proof, from totals alone")

    def __init__(
        self,
        threshold: PerLimit,
        slack: PerLimit,
        candidates: Mapping[str, object],
        incumbent: object,
        delta: float = 0.05,
        *,
        least_total: PerLimit = 0.0,
        names: Sequence[str] = (),
    ) -> None:
        constraints = make_constraints(None, threshold, slack, names, least_total)
        for one in constraints:
            if one.threshold <= one.least_total:
                said = f"threshold {one.threshold:g} of {one.name} is not above least_total {one.least_total:g}"
                raise InvalidProblem(f"{said}, which every episode reaches: state both as totals of an episode")
        if not isinstance(candidates, Mapping):
            raise InvalidProblem(f'candidates must be policies by name, {{"v2": …}}, got {candidates!r}')
        acting = incumbent if isinstance(incumbent, Policy) else OpaquePolicy(incumbent)
        super().__init__(Task(None, None, constraints, acting), Totals(delta), proposer=Proposer())
        for name, policy in candidates.items():
            self.add_candidate(name, policy)

    def add_candidate(self, name: str, policy: object, least_total: ArrayLike | None = None) -> None:
        """Put a policy on trial from the next plan on; a changed policy is a new candidate.

        `least_total` is a total utility, or one per limit, that each of its episodes is certain to reach.
        """
        super().add_candidate(name, policy)
        if least_total is not None:
            given = np.broadcast_to(least_total, (self.task.num_constraints,))
            self.candidates[-1] = replace(self.candidates[-1], least_totals=as_array("least_total", given, (None,)))
