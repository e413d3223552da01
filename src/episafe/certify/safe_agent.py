"""SafeAgent: a proposer that suggests policies and a certifier that decides which of them may be deployed."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

from episafe.certify.family import Family
from episafe.certify.guard import Budget
from episafe.certify.hindsight import Hindsight
from episafe.certify.ladder import Ladder
from episafe.certify.observation import Observation
from episafe.certify.staged import Staged
from episafe.certify.traces import TraceProposer
from episafe.certify.trials import check_name
from episafe.core.agent import Agent, Candidate, Certifier, Proposer, register
from episafe.core.checks import as_number, as_scale
from episafe.core.errors import Infeasible, InvalidProblem
from episafe.core.task import Constraint, ProblemLike, per_limit
from episafe.core.types import INCUMBENT, Array, Episode, PerLimit, Plan, Settings
from episafe.linear.planner import SoftmaxProposer


@register(
    name="safe",
    label="SafeAgent",
    summary="Certified mixtures: Hindsight where chance is exogenous and seen, else Observation",
    colour="#0072B2",
)
class SafeAgent(Agent):
    """Improves on the incumbent and deploys only plans that are proved to keep every limit.

    Each call of `plan()` is a deployment with an id of its own. It counts as the worst case until `learn(episode, id)`.

    Args:
        problem: a problem or its task.
        certifier: decides what may be deployed. None: `Hindsight(delta)` if the task has `move`; if not,
            `Staged(delta)` if there are candidates or a family; `Observation(delta)` otherwise.
        delta: the probability with which some deployed mixture may be below a limit, if no certifier is given.
        candidates: policies by name; they are tried before any proposal.
        family: policies with parameters, `es.Family`; it replaces the planner as proposer.
        floor: a total utility that no episode of a deployed policy may be below, or one per limit; None for no floor.
        proposer: suggests policies. None: the planner, which uses replayed traces if the certifier has them, or
            `Ladder` with a `Budget`.

    Example:
        >>> import episafe as es
        >>> agent = es.SafeAgent(es.make("tabular", seed=0))
        >>> agent.certifier
        Observation(delta=0.05)
    """

    certifier: Certifier
    proposer: Proposer
    candidates: list[Candidate]  # given and not on trial yet: `plan`, or a session, adds them

    def __init__(
        self,
        problem: ProblemLike,
        certifier: Certifier | None = None,
        delta: float = 0.05,
        candidates: Mapping[str, object] | None = None,
        family: Family | None = None,
        *,
        floor: PerLimit = None,
        proposer: Proposer | None = None,
    ) -> None:
        super().__init__(problem)
        if floor is not None:
            floors = per_limit("floor", floor, self.task.limit_names, for_all=True)
            limits = zip(self.task.constraints, floors, strict=True)
            self.task = replace(self.task, constraints=tuple(replace(one, floor=least) for one, least in limits))
        task = self.task
        if certifier is None:
            without_traces = Staged(delta) if candidates or family else Observation(delta)
            certifier = without_traces if task.move is None else Hindsight(delta)
        self.certifier, self.level, self.uses_traces = certifier, certifier.level, certifier.uses_traces
        certifier.start(task)
        told = task.num_actions is not None  # an opaque incumbent is assumed to keep the floor
        if told and (why := certifier.below_floor(Candidate(INCUMBENT, task.incumbent))):
            raise Infeasible(f"{why}: lower the floor, use another incumbent, or state the support")
        if proposer is None and isinstance(certifier, Budget):
            proposer = Proposer() if task.move is None else Ladder()
        elif proposer is None:
            proposer = TraceProposer(task) if certifier.uses_traces else SoftmaxProposer(task)
        self.proposer = family or proposer
        self.proposer.start(task)
        self.candidates = []
        for name, policy in (candidates or {}).items():
            self.add_candidate(name, policy)

    def decide(self) -> Plan:
        """Propose if a proposal is due, and return the best plan that may be deployed; the incumbent if planning
        fails."""
        for given in self.candidates:
            self.certifier.add(given)
        self.candidates.clear()
        try:
            candidate = self.certifier.consult(self.proposer)
            if candidate is not None:
                self.certifier.add(candidate)
            return self.certifier.plan()
        except Exception as error:
            return self.incumbent_plan(f"planning failed: {type(error).__name__}: {error}")

    def plan(self) -> Plan:
        """Return the plan of the next deployment; each call is another deployment."""
        self.certifier.announce(str(self._num_plans))
        self.adopt(self.decide())
        assert self._plan is not None
        self.certifier.deployed(self._plan.id, self._plan)
        return self._plan

    def learn(self, episode: Episode, plan_id: int | None = None) -> None:
        """Learn from the episode of deployment `plan_id`, which is accepted once; None means an episode from a log."""
        read = self.task.read(episode)
        if plan_id is not None:
            self.certifier.apply(plan_id, self.certifier.evidence(plan_id, read))
        self.observe(read)

    def observe(self, episode: Episode) -> None:
        """Let the proposer learn from an episode in canonical form."""
        if episode.states is not None:
            self.proposer.observe(episode)

    def bounds(self) -> dict[str, Array]:
        """Return the proved bounds (m,) of each candidate, and the stated ones of the incumbent."""
        waiting = {one.name: self.task.least_totals for one in self.candidates}
        return self.certifier.bounds() | waiting

    def add_candidate(self, name: str, policy: object) -> None:
        """Put a policy on trial from the next plan on.

        It must not be chosen with the help of episodes that are deployed from now on.
        """
        self._offer(name, policy)

    def _offer(self, name: str, policy: object, stated: Array | None = None) -> None:
        """Add a candidate, with least totals (m,) if they are stated; refuse one that may fall below a floor."""
        check_name(name, tuple(self.bounds()))
        made = copy(self.task.as_policy(policy))
        made.name = name
        least = self.certifier.least_totals(made) if stated is None else stated
        candidate = Candidate(name, made, least_totals=least)
        if why := self.certifier.below_floor(candidate):
            raise InvalidProblem(f"{why}: give another policy; es.Rollout takes a least_total for each")
        self.candidates.append(candidate)

    def promote(self, name: str) -> None:
        """Let a certified candidate act wherever the incumbent would; "incumbent" undoes it."""
        self.certifier.promote(name)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate."""
        others = [one for one in self.candidates if one.name != name]
        if len(others) == len(self.candidates):
            self.certifier.withdraw(name)
        self.candidates[:] = others

    def change(self, threshold: PerLimit = None, slack: PerLimit = None) -> None:
        """Use other thresholds or slacks from now on, one number or one per limit; bounds stay valid."""
        self.task = self.task.with_limits(*changed_limits(self.task.constraints, threshold, slack))
        self.certifier.change(self.task.constraints)

    def settings(self) -> Settings:
        """Return the settings that a record keeps: the certifier, its delta and the statement."""
        limits = {f"slack {one.name}": one.slack for one in self.task.constraints if one.slack is not None}
        least = {f"least_total {one.name}": one.least_total for one in self.task.constraints if one.least_total}
        least |= {f"floor {one.name}": one.floor for one in self.task.constraints if one.floor is not None}
        return {"agent": self.facts.name, "level": self.level, **limits, **least, **self.certifier.settings()}


def changed_limits(
    constraints: Sequence[Constraint], threshold: PerLimit, slack: PerLimit
) -> tuple[list[float], list[float | None]]:
    """Return thresholds and slacks after a change; raise Infeasible if the incumbent does not exceed a threshold.

    A slack that is not given becomes the incumbent's margin above the new threshold; if the old slack is unknown, the
    incumbent is only known to reach the old threshold.
    """
    thresholds: list[float] = []
    slacks: list[float | None] = []
    names = [one.name for one in constraints]
    new = per_limit("threshold", threshold, names), per_limit("slack", slack, names)
    for one, told, xi in zip(constraints, *new, strict=True):
        b = one.threshold if told is None else as_number("threshold", told)
        rest = None if one.slack is None else one.threshold + one.slack - b
        if xi is None and (b > one.threshold if rest is None else rest <= 0):
            raise Infeasible(
                f"the incumbent reaches {one.threshold + (one.slack or 0):g} in {one.name}, not the threshold "
                f"{b:g}: state its slack there, or take another incumbent"
            )
        thresholds.append(b)
        slacks.append(rest if xi is None else as_scale("slack", xi, positive=True))
    return thresholds, slacks
