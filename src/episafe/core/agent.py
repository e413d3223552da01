"""Agents, proposers and certifiers: the three interfaces, and the registry of agents."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from episafe.core.checks import TOLERANCE, as_scale
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import Policy
from episafe.core.task import Constraint, ProblemLike, Task, task_of
from episafe.core.types import INCUMBENT, Array, Document, Episode, Level, Plan, Settings


@dataclass(frozen=True)
class Every:
    """Plan before every episode."""

    growth: ClassVar[float] = -math.inf


@dataclass(frozen=True)
class Doubling:
    """Plan again when ln det Λ_h has grown by more than `growth` at some step since the last plan."""

    growth: float

    def __post_init__(self) -> None:
        as_scale("growth", self.growth, positive=True)


Replanning = Every | Doubling
EVERY = Every()


@dataclass(frozen=True)
class AgentFacts:
    """The facts about a registered agent that commands and sweeps use."""

    name: str  # on the command line and in records
    label: str  # what reports call it
    summary: str  # one line: what it is, and the paper
    kind: Literal["mdp", "bandit"] = "mdp"  # what it plays: episodes or rounds
    colour: str = ""  # how reports draw it, from Okabe and Ito's colour-blind-safe set; "" for any
    # (problem, num_episodes) -> the arguments of its constructor beyond the task; problem -> "" or why it cannot play
    arguments: Callable[[Any, int], dict[str, object]] = lambda problem, num_episodes: {}
    needs: Callable[[Any], str] = lambda problem: ""


AgentType = TypeVar("AgentType", bound="Agent")
AgentFactory = Callable[..., "Agent"]
AGENTS: dict[str, tuple[AgentFacts, AgentFactory]] = {}


def register(**facts: Any) -> Callable[[type[AgentType]], type[AgentType]]:
    """Register an agent class under a name: `@register(name=…, label=…, summary=…)` above the class."""

    def add(cls: type[AgentType]) -> type[AgentType]:
        known = AgentFacts(**facts)
        AGENTS[known.name] = (known, cls)
        if "facts" not in vars(cls):
            cls.facts = known  # the first name of a class that has several
        return cls

    return add


class Agent(ABC):
    """Plans before each episode and learns after it. Subclasses write `decide` and `observe`.

    Args:
        problem: a problem or its task; the agent sees the task only.
        replan: when to plan again.
    """

    facts: ClassVar[AgentFacts] = AgentFacts("", "", "")  # `register` sets it
    level: Level = "heuristic"
    uses_traces: bool = False  # whether episodes must have traces
    certifier: "Certifier | None" = None  # what decides, in agents that separate proposing and certifying
    proposer: "Proposer | None" = None
    candidates: "Sequence[Candidate]" = ()  # given by a user and not on trial yet: `plan` or a session adds them
    _user: str = ""  # what uses the agent: "a run" or "a session"

    def __init__(self, problem: ProblemLike, replan: Replanning = EVERY) -> None:
        self.task, self.replan = task_of(problem), replan
        self._plan: Plan | None = None
        self._changed, self._information_then, self._num_plans = False, np.zeros(0), 0

    def claim(self, user: str) -> None:
        """Reserve the agent for one run or session; raise ValueError if it is already in use."""
        if self._user:
            raise ValueError(f"this agent has been used by {self._user} before: build a new one for {user}")
        self._user = user

    @abstractmethod
    def decide(self) -> Plan:
        """Return a new plan, from the episodes learned so far; `plan` sets its id."""

    @abstractmethod
    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form (`Task.read`)."""

    def information(self) -> Array:
        """Return ln det Λ_h (H,), which `Doubling` uses; empty for agents that have none."""
        return np.zeros(0)

    def plan(self) -> Plan:
        """Return the plan for the next episode: a new one if it is due, else the last one."""
        if self._plan is None or (self._changed and self._is_due()):
            self.adopt(self.decide())
        assert self._plan is not None
        return self._plan

    def _is_due(self) -> bool:
        growth = self.information() - self._information_then
        return self.replan == EVERY or bool((growth > self.replan.growth).any())

    def adopt(self, plan: Plan, number: int = 1) -> None:
        """Use a new plan from now on: the last of `number` new plans."""
        self._num_plans, self._changed = self._num_plans + number, False
        self._plan = replace(plan, id=self._num_plans - 1)
        self._information_then = self.information().copy()

    def learn(self, episode: Episode, plan_id: int | None = None) -> None:
        """Learn from an episode that was played by a plan of this agent."""
        self.take_in(self.task.read(episode))

    def take_in(self, episode: Episode) -> None:
        """Learn from an episode in canonical form, and make a new plan next time if it is due."""
        self.observe(episode)
        self._changed = True

    @property
    def deployed(self) -> Plan | None:
        """Return the plan in force; None before the first."""
        return self._plan

    def incumbent_plan(self, reason: str = "", bounds: Array | None = None) -> Plan:
        """Return the plan that deploys the incumbent."""
        plan = Plan.fallback(self.task, self.level, reason)
        return plan if bounds is None else replace(plan, bounds=bounds)

    def bounds(self) -> dict[str, Array]:
        """Return the lower bounds (m,) that hold for each policy, by name; the incumbent's is assumed."""
        return {INCUMBENT: self.task.stated_utilities}

    def settings(self) -> Settings:
        """Return the settings that a record keeps about the agent, as plain values."""
        return {"agent": self.facts.name or type(self).__name__, "level": self.level, "replan": repr(self.replan)}


@dataclass(frozen=True)
class Goal:
    """What a proposer should aim at; the last four fields are for proposers that use the results of whole policies."""

    utilities: Array  # the expected utilities to reach by the proposer's estimate, (m,)
    optimism: float = 0.0  # scale of an extra bonus on the reward, to go and see more
    boldness: float = 1.0  # factor on the proposer's bonus; below 1 for proposals that trust the data
    # every policy so far, the one that acts first: number, mean and Σ(x − mean)² of utilities and reward, (m + 1, 3)
    seen: tuple[tuple[Policy, Array], ...] = ()
    log_term: float = 0.0  # ln(1/δ_j) of the next candidate
    first_weight: float = 1.0  # with which its trial begins
    ahead: float = 0.0  # episodes for which a gain lasts


WEIGHT = "weight"  # a statistic of a proposal that is mixed with the one before it, which waits with weight 0


@dataclass(frozen=True)
class Candidate:
    """A policy to be certified, under the name that mixtures, bounds and logs use."""

    name: str
    policy: Policy
    reward: float = math.nan  # its expected total reward as promised by the proposer; NaN if nothing is promised
    proposer: str = "user"  # who proposed it
    lam: float = math.nan  # the multiplier it was found with; NaN if none
    least_totals: Array | None = None  # totals (m,) that no episode of it falls below; None for those of the task
    statistics: dict[str, float] = field(default_factory=dict)  # for the log, e.g. of recent replays


@dataclass(frozen=True)
class Evidence:
    """The evidence of one report about each candidate: X with share q, in the order of `names`."""

    names: tuple[str, ...]
    shares: Array  # q, the probability that the candidate acted given what happened, (n,); 1 for replays
    utilities: Array  # X, total utilities, (n, m)
    rewards: Array  # total rewards, (n,)
    episode: Episode | None = None  # in canonical form, for certifiers that learn from transitions (Box, FreshData)
    fault: str = ""  # where the episode is not what `move` makes of its trace; "" if nowhere
    surprise: str = ""  # a random input outside the support; "" if nothing

    def where(self, keep: Callable[[str], bool]) -> "Evidence":
        """Return the evidence of the names that `keep` accepts."""
        rows = [i for i, name in enumerate(self.names) if keep(name)]
        shares, utilities, rewards = self.shares[rows], self.utilities[rows], self.rewards[rows]
        names = tuple(self.names[i] for i in rows)
        return replace(self, names=names, shares=shares, utilities=utilities, rewards=rewards)

    def renamed(self, name_of: Callable[[str], str]) -> "Evidence":
        """Return the same evidence under other names."""
        return replace(self, names=tuple(map(name_of, self.names)))

    def __add__(self, other: "Evidence") -> "Evidence":
        """Return what two certifiers read in one report."""
        return Evidence(
            self.names + other.names,
            np.concatenate([self.shares, other.shares]),
            np.concatenate([self.utilities, other.utilities]),
            np.concatenate([self.rewards, other.rewards]),
            self.episode or other.episode,
            self.fault or other.fault,
            self.surprise or other.surprise,
        )


class Proposer:
    """Suggests policies, by any heuristic: the certifier decides what is deployed. This one suggests nothing."""

    def start(self, task: Task) -> None:
        """Bind the proposer to the task of its agent."""

    def observe(self, episode: Episode) -> None:
        """Learn from an episode in canonical form."""

    def propose(self, goal: Goal) -> Candidate | None:
        """Return a candidate that aims at the goal, or None; the certifier gives it a name."""
        return None

    def restart(self) -> None:
        """Forget all but the most recent episodes, because conditions have changed."""

    def policy_of(self, document: Document) -> Policy | None:
        """Return the policy of a document that only this proposer can read; None if it cannot."""
        return None

    def earned(self) -> float:
        """Return an upper bound on a policy's reward from observed data alone; ∞ if the proposer has none."""
        return math.inf


class Certifier(ABC):
    """Decides what may be deployed. It is used by one agent, which calls `start(task)` once."""

    name: ClassVar[str]
    level: Level = "theorem"
    uses_traces: bool = False
    replay_prefix: str | None = None  # before the names of replays in evidence; None if there are none
    parts: "tuple[Certifier, ...]" = ()  # certifiers that it is made of; the first does what it does not do itself
    task: Task
    _void_reason: str = ""

    def start(self, task: Task) -> None:
        """Bind the certifier to the task of its agent."""
        self.task = task
        for part in self.parts:
            part.start(task)

    def use_salt(self, salt: str) -> None:
        """Use this private salt for the random draws of replays; called before the first deployment."""
        for part in self.parts:
            part.use_salt(salt)

    def settings(self) -> Settings:
        """Return the recorded settings, with the statement of the promise and its assumptions."""
        return {"certifier": self.name}

    @abstractmethod
    def add(self, candidate: Candidate) -> None:
        """Put a candidate on trial; only later deployments count as evidence for it."""

    def goal(self) -> Goal | None:
        """Return the goal of the next proposal; None while a trial is under way."""
        return None

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return the candidate to try next, one of those that the proposer offers; None while a trial is under way."""
        goal = self.goal()
        found = None if goal is None else proposer.propose(goal)
        return None if found is None or self.below_floor(found) else found

    def sure_totals(self, candidate: Candidate) -> Array:
        """Return totals (m,) that no episode of a policy falls below."""
        known = candidate.least_totals
        return self.task.least_totals if known is None else np.maximum(known, self.task.least_totals)

    def below_floor(self, candidate: Candidate) -> str:
        """Return why an episode of a policy may be below the `floor` of a limit; "" if none may."""
        if np.isneginf(self.task.floors).all():
            return ""
        for one, least in zip(self.task.constraints, self.sure_totals(candidate).tolist(), strict=True):
            if one.floor is not None and least < one.floor - TOLERANCE * (1 + abs(least)):
                return (
                    f"an episode of {candidate.name!r} may total {least:g}, below the floor {one.floor:g} of {one.name}"
                )
        return ""

    def postpone(self) -> None:
        """Note that the proposer had nothing to propose, so that `goal` can wait before it asks again."""
        for part in self.parts:
            part.postpone()

    def least_totals(self, policy: Policy) -> Array | None:
        """Return the least totals (m,) that are certain under a policy; None if only those of the task are known."""
        return self.parts[0].least_totals(policy) if self.parts else None

    @abstractmethod
    def plan(self) -> Plan:
        """Return the best mixture that may be deployed now, trials included; else the incumbent."""

    def fallback(self, reason: str) -> Plan:
        """Return the plan that deploys the incumbent."""
        return Plan.fallback(self.task, self.level, reason)

    def announce(self, episode_id: str) -> None:
        """Note the id of the next deployment, for certifiers with a calendar; raise if it has no place there."""
        for part in self.parts:
            part.announce(episode_id)

    @abstractmethod
    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the worst case until it is reported."""

    @abstractmethod
    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the evidence of a report about each candidate, without changing any state."""

    @abstractmethod
    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Add evidence: the only call that moves a bound."""

    def abandoned(self, deployment: int) -> None:
        """Note that a deployment will never be reported: it keeps counting as the worst case."""
        for part in self.parts:
            part.abandoned(deployment)

    def replayed_total(self, weights: Mapping[str, float], evidence: Evidence) -> Array | None:
        """Return the replayed total (m,) of a mixture, averaged over the draw; None if it was not replayed."""
        if self.replay_prefix is None:
            return None
        found = {self.replay_prefix + name: weight for name, weight in weights.items()}
        rows = [found.pop(name, 0.0) * u for name, u in zip(evidence.names, evidence.utilities, strict=True)]
        return None if found else np.sum(rows, axis=0)

    def restart(self) -> None:
        """End all trials, because conditions have changed; the δ that they used is not returned."""
        for name in self.bounds():
            if name != INCUMBENT:
                self.withdraw(name)

    @abstractmethod
    def bounds(self) -> dict[str, Array]:
        """Return the proved lower bounds (m,) by candidate; the incumbent's is assumed."""

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) that are proved now for a plan: Σ w_i L_i by name; −∞ if a component is unknown."""
        bounds, parts = self.bounds(), plan.parts
        if not all(name in bounds for name in parts.names):
            return np.full(self.task.num_constraints, -np.inf)
        pairs = zip(parts.names, parts.weights.tolist(), strict=True)
        return np.sum([weight * bounds[name] for name, weight in pairs], axis=0)

    def refusal(self, plan: Plan) -> str:
        """Return why the recorded bounds do not allow a plan to be deployed next; "" if they do."""
        bounds, limits = self.proves(plan), self.task.thresholds
        reaches = (bounds >= limits).all()
        return "" if reaches else f"the plan is proved to reach {bounds.tolist()}, below the limits {limits.tolist()}"

    def replayed(self, episodes: Sequence[Episode]) -> tuple[tuple[str, ...], Array]:
        """Return the candidates and their total utilities (n, E, m) on the traces of logged episodes."""
        return self._first("replays no traces").replayed(episodes)

    def read_log(self, names: Sequence[str], shares: Array, utilities: Array) -> None:
        """Add logged episodes before the first deployment: shares (n, E) and total utilities (n, E, m)."""
        why = "reads no logs: prove a limit with es.prove, and add the policy as a candidate"
        self._first(why).read_log(names, shares, utilities)

    def require_on_trial(self, name: str, *others: str) -> None:
        """Raise ValueError unless a policy is a candidate on trial, or one of `others`."""
        known = self.bounds()
        if name not in others and (name == INCUMBENT or name not in known):
            raise ValueError(f"no policy {name!r} is on trial as a candidate: there are {', '.join(known)}")

    def promote(self, name: str) -> None:
        """Let a certified candidate act wherever the incumbent would."""
        self._first("promotes no candidates").promote(name)

    def withdraw(self, name: str) -> None:
        """End the trial of a candidate; the δ that it used is not returned."""
        self._first("has no candidates to withdraw").withdraw(name)

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other thresholds and slacks from now on; proved bounds do not depend on them."""
        self._first("cannot change its limits").change(constraints)

    def void(self, reason: str) -> None:
        """Note that an assumption was contradicted: from now on nothing is proved."""
        self._void_reason = self._void_reason or reason

    def _first(self, why_not: str) -> "Certifier":
        if not self.parts:
            raise TypeError(f"{type(self).__name__} {why_not}")
        return self.parts[0]

    @property
    def invalid_reason(self) -> str:
        """Return why the certificate is invalid; "" while it is valid."""
        return self._void_reason or next((one.invalid_reason for one in self.parts if one.invalid_reason), "")

    @property
    def warning(self) -> str:
        """Return a warning about the last reports, for people; "" if there is none."""
        return next((one.warning for one in self.parts if one.warning), "")


def promise(
    certifier: str, delta: float, assumes: str, deployed: str = "mixture", window: int | None = None
) -> Settings:
    """Return the settings of a certifier, with the statement that they prove; `window` is the length of its blocks."""
    together = (
        "in all episodes" if window is None else f"in the {window} episodes of a block (nothing is promised of others)"
    )
    promised = f"every deployed {deployed} has expected utility at least the threshold, {together} together"
    statement = f"{promised}, with probability {1 - delta:g}, if: {assumes}"
    blocks = {} if window is None else {"window": window}
    return {"certifier": certifier, "delta": delta, **blocks, "statement": statement}


def plan_of(plans: Mapping[int, Plan], deployment: int) -> Plan:
    """Return the plan of a deployment without a report; raise InvalidEpisode if there is none."""
    if deployment not in plans:
        raise InvalidEpisode(f"deployment {deployment} is unknown or was reported before: report each once")
    return plans[deployment]
