"""The state of a session, a fold over its events: `SessionState.apply` alone gives events a meaning."""

import hashlib
import math
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import product
from pkgutil import resolve_name
from typing import Any

import msgspec
import numpy as np

import episafe
from episafe.core.agent import Agent, Candidate, Certifier
from episafe.core.errors import DamagedLog, InvalidProblem
from episafe.core.policy import UNKNOWN, Mixture, OpaquePolicy, Policy
from episafe.core.task import TableFeatures, Task
from episafe.core.types import INCUMBENT, Array, Document, Episode, Plan
from episafe.problems.moves import ListedMove
from episafe.session.events import (
    BODIES,
    START_HASH,
    Abandon,
    AlarmRaised,
    Begin,
    Body,
    Decide,
    Deploy,
    Event,
    LogEvidence,
    NewCandidate,
    RecordedEvidence,
    Report,
    as_recorded,
    of_numbers,
)
from episafe.session.monitors import Monitors

CERTIFIERS = {  # name in settings -> its class, for audits without the agent
    "observation": "observation:Observation",
    "hindsight": "hindsight:Hindsight",
    "box": "box:Box",
    "fresh-data": "fresh_data:FreshData",
    "rollout": "staged:Staged",
    "budget": "guard:Budget",
}
MAY_DIFFER = {"statement", "monitors", "salt", "version", "units"}  # between `begin` and the agent of a later process
LEARN_AT = 10_000  # episodes that wait for the learner at most, so that memory stays bounded
MANY_OVERRIDES = 0.05  # of the reports: status() then warns
RECENT = 500  # reports that the state remembers for people


@dataclass
class SessionState:
    """What follows from the events of a log. Any split of the events into batches gives the same state.

    Args:
        agent: the agent of the session, not used before; None to follow the log without the problem.

    Attributes:
        number, head: number of the next event and hash of the last.
        begin: the first event.
        task: the task with the limits that hold now.
        certifier: what is proved; None for agents without one.
        policies: what each name acts by.
        offers: policies of this process that `candidate` events to come use in place of their documents.
        pending: deployments without a report, by id, with their time.
        episode_ids: the deployments by the users' names for them.
        tallies: number of deployments and of reports, total reward and utilities (m,), by acting component.
        raised: monitors whose alarm is logged since the tests started.
        halt_reason: why the incumbent acts until a person resumes; "" if nothing is halted.
        changed_candidates: names under which the agent has another policy than the recorded one, which acts.
    """

    agent: Agent | None = None
    number: int = 0
    head: str = START_HASH
    begin: Begin = field(init=False)
    certifier: Certifier | None = None
    candidates: dict[str, NewCandidate] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    offers: dict[str, Policy] = field(default_factory=dict)
    pending: dict[int, tuple[Deploy, str]] = field(default_factory=dict)
    episode_ids: dict[str, int] = field(default_factory=dict)
    num_deployed: int = 0
    num_reported: int = 0
    num_abandoned: int = 0
    num_overridden: int = 0
    halt_reason: str = ""
    promoted: str = ""
    alarms: list[tuple[str, AlarmRaised]] = field(default_factory=list)
    decisions: list[tuple[str, Decide]] = field(default_factory=list)
    raised: set[str] = field(default_factory=set)
    logged: set[str] = field(default_factory=set)
    tallies: dict[str, list[Any]] = field(default_factory=dict)
    recent: deque[Report] = field(default_factory=lambda: deque(maxlen=RECENT))
    first_time: str = ""
    last_time: str = ""
    last_deploy: Deploy | None = None
    learner_fault: str = ""
    changed_candidates: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.agent is not None:
            self.agent.claim("a session")
        self._unlearned: deque[Episode | None] = deque()  # None where the learner restarts
        self.learning = threading.RLock()  # held by the thread that uses the learner
        self._mixture: tuple[list[tuple[str, float]], Mixture] = [], Mixture([OpaquePolicy(UNKNOWN)], [1.0])

    # the meaning of events

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events in order."""
        for event in events:
            if event.number != self.number:
                raise DamagedLog(f"event {self.number} is missing: the next one is {event.number}")
            if (event.number == 0) != (type(event.body) is Begin):
                raise DamagedLog(
                    f"event {event.number} is {event.kind!r}: the first event of a session begins it, once"
                )
            _MEANING[type(event.body)](self, event.body, event.time)
            self.number, self.head, self.last_time = event.number + 1, event.hash, event.time

    def _begin(self, body: Begin, time: str) -> None:
        self.begin, self.first_time = body, time
        if self.agent is None:
            self.task = Task(body.horizon, None, body.limits, OpaquePolicy(UNKNOWN, INCUMBENT), units=body.units)
            self.certifier = certifier_of(body.agent, self.task)
        else:
            self.task, self.certifier = self.agent.task, self.agent.certifier
            check_same(body, self.agent)
        if self.certifier is not None:
            self.certifier.use_salt(body.salt)
        self.policies[INCUMBENT] = self.task.incumbent
        self.monitors = Monitors(self.task.constraints, self.task.horizon, body.monitors)

    def _candidate(self, body: NewCandidate, time: str) -> None:
        if body.name not in self.candidates:
            self.candidates[body.name] = body
            self.policies[body.name] = self._policy_of(body)
        if self.certifier is not None and body.proposer != self.certifier.name:
            least = None if body.least_totals is None else of_numbers(body.least_totals)
            reward, lam = of_numbers((body.reward, body.lam)).tolist()
            policy = self.policies[body.name]
            self.certifier.add(Candidate(body.name, policy, reward, body.proposer, lam, least, body.statistics))

    def _policy_of(self, body: NewCandidate) -> Policy:
        """Return the recorded policy: as the object of this process, if that is the same or nothing is recorded."""
        given = {} if self.agent is None else {one.name: one.policy for one in self.agent.candidates}
        own = self.offers.get(body.name) or given.get(body.name)
        if self.agent is None or body.document is None:
            return own or OpaquePolicy(UNKNOWN, body.name)
        if own is not None and is_described_by(own, body.document):
            return own
        if body.name in given:
            self.changed_candidates.append(body.name)
        made = None if self.agent.proposer is None else self.agent.proposer.policy_of(body.document)
        if made is not None:
            return made
        from episafe.data.policies import policy_of

        return policy_of(body.document, self.task)

    def _deploy(self, body: Deploy, time: str) -> None:
        if body.id != self.num_deployed:
            raise DamagedLog(f"event {self.number} deploys {body.id}: the next deployment is {self.num_deployed}")
        self.num_deployed += 1
        self.pending[body.id] = body, time
        self.last_deploy = body
        if body.episode_id:
            self.episode_ids[body.episode_id] = body.id
        self.tallies.setdefault(body.component, [0, 0, 0.0, np.zeros(self.task.num_constraints)])[0] += 1
        if self.certifier is not None:
            self.certifier.announce(body.episode_id)
            self.certifier.deployed(body.id, self.plan_of(body), body.index)
        self.monitors.deployed(body.id, body.component, body.weights, of_numbers(body.bounds))

    def _report(self, body: Report, time: str) -> None:
        deploy, _ = self._end(body.id)
        utility = np.array(body.episode.total_utility)
        self.num_reported += 1
        self.num_overridden += body.overridden > 0
        self.recent.append(body)
        tally = self.tallies[deploy.component]
        tally[1:] = tally[1] + 1, tally[2] + body.episode.total_reward, tally[3] + utility
        episode = None
        if self.agent is not None:
            episode = body.episode.episode(self.task.is_listed, deploy.index)
            if episode.states is not None:
                self.learn_later(episode)
        if self.certifier is not None:
            if body.evidence is None:
                self.certifier.abandoned(body.id)
            else:
                evidence = body.evidence.evidence(self.task.num_constraints, episode)
                self.certifier.apply(body.id, evidence)
                replayed = self.certifier.replayed_total(deploy.weights, evidence)
                if replayed is not None:
                    self.monitors.replayed(replayed)
        self.monitors.reported(body.id, None if body.overridden else utility)

    def _abandon(self, body: Abandon, time: str) -> None:
        self._end(body.id)
        self.num_abandoned += 1
        if self.certifier is not None:
            self.certifier.abandoned(body.id)
        self.monitors.reported(body.id, None)

    def _evidence(self, body: LogEvidence, time: str) -> None:
        self.logged.update(body.episodes)
        if self.certifier is not None:
            self.certifier.read_log(*body.evidence())

    def _decide(self, body: Decide, time: str) -> None:
        self.decisions.append((time, body))
        certifier = self.certifier
        if body.what == "promote":
            self.promoted = "" if body.name == INCUMBENT else body.name
            if certifier is not None:
                certifier.promote(body.name)
        elif body.what == "withdraw":
            self.promoted = "" if body.name == self.promoted else self.promoted
            if certifier is not None:
                certifier.withdraw(body.name)
        elif body.what == "change":
            self.task = self.task.with_limits(body.thresholds or (), body.slacks or ())
            self.monitors.change(self.task.constraints)
            if certifier is not None:
                certifier.change(self.task.constraints)
        elif body.what == "halt":
            self.halt_reason = body.reason
        else:
            self.halt_reason = "" if body.what == "resume" else self.halt_reason
            self.monitors.restart()
            self.raised.clear()
            if body.what == "restart":
                self._unlearned.append(None)
                if certifier is not None:
                    certifier.restart()

    def _alarm(self, body: AlarmRaised, time: str) -> None:
        self.alarms.append((time, body))
        self.raised.add(body.monitor)
        if body.halts:
            self.halt_reason = f"{body.monitor}: {body.message}"

    def _end(self, deployment: int) -> tuple[Deploy, str]:
        found = self.pending.pop(deployment, None)
        if found is None:
            raise DamagedLog(f"event {self.number} ends deployment {deployment}, which is not pending")
        return found

    # evidence, plans and policies

    def evidence_of(self, deployment: int, episode: Episode, overridden: int) -> RecordedEvidence | None:
        """Return the evidence of a report; changes nothing.

        After actions by a person only the trace is evidence: for every component the episode counts as the worst case.
        """
        if self.certifier is None or (overridden and not self.certifier.uses_traces):
            return None
        seen = replace(episode, states=None, actions=None) if overridden else episode
        return RecordedEvidence.of(self.certifier.evidence(deployment, seen))

    def plan_of(self, body: Deploy) -> Plan:
        """Return the plan of a deployment, by the recorded weights."""
        weights = list(body.weights.items())  # in order: components are known by their position
        if self._mixture[0] != weights:
            names = tuple(body.weights)
            found = [self.policies.get(name) or OpaquePolicy(UNKNOWN, name) for name in names]
            self._mixture = weights, Mixture(found, list(body.weights.values()), names)
        parts, lam = self._mixture[1], math.nan if body.lam is None else body.lam
        policy = parts if len(weights) > 1 else parts.components[0]
        plan = Plan(policy, body.source, of_numbers(body.bounds), body.level, body.reason, lam, body.id)
        plan.__dict__["parts"] = parts  # cached: making them again takes as long as the rest
        return plan

    def due_alarms(self) -> list[AlarmRaised]:
        """Return the alarms that tests have raised and that are not logged yet."""
        return [one for one in self.monitors.alarms() if one.monitor not in self.raised]

    @property
    def halted(self) -> str:
        """Return why the incumbent alone acts: a halt, or an alarm that is not logged yet; "" if it need not."""
        due = [f"{one.monitor}: {one.message}" for one in self.due_alarms() if one.halts]
        return self.halt_reason or "".join(due[:1])

    # the learner

    def learn_later(self, episode: Episode) -> None:
        """Keep an episode for the learner, which may be at work in another thread."""
        self._unlearned.append(episode)
        if len(self._unlearned) >= LEARN_AT and self.learning.acquire(blocking=False):
            try:
                self.learn()
            finally:
                self.learning.release()

    def learn(self) -> None:
        """Let the proposer, or the agent, learn from all episodes that wait; hold `learning` around it.

        An error is kept in `learner_fault`: it must not keep a session from opening.
        """
        if self.agent is None:
            return
        while self._unlearned:
            episode = self._unlearned.popleft()
            try:
                if self.agent.certifier is None and episode is not None:
                    self.agent.take_in(episode)
                elif self.agent.proposer is not None and episode is not None:
                    self.agent.proposer.observe(episode)
                elif self.agent.proposer is not None:
                    self.agent.proposer.restart()
            except Exception as error:
                self.learner_fault = f"{type(error).__name__}: {error}"

    # what is known, for people

    def bounds(self) -> dict[str, Array]:
        """Return the lower bounds (m,) by policy; the incumbent's is stated."""
        if self.certifier is not None:
            return self.certifier.bounds()
        return {INCUMBENT: self.task.stated_utilities}

    def status(self) -> Document:
        """Return the state as plain values."""
        bounds, unit = self.bounds(), self.task.unit
        invalid = "" if self.certifier is None else self.certifier.invalid_reason
        return {
            "events": self.number,
            "head": self.head,
            "since": self.first_time,
            "last_event": self.last_time,
            "agent": self.begin.agent,
            "limits": [
                {"name": one.name, "threshold": one.threshold, "slack": one.slack, "unit": unit(one.name).text}
                for one in self.task.constraints
            ],
            "reward_unit": unit("reward").text,
            "halted": self.halted,
            "invalid": invalid,
            "promoted": self.promoted,
            "deployments": self.num_deployed,
            "reports": self.num_reported,
            "abandoned": self.num_abandoned,
            "overridden": self.num_overridden,
            "pending": len(self.pending),
            "oldest_pending": [
                {"id": id, "component": deploy.component, "time": time, "episode_id": deploy.episode_id}
                for id, (deploy, time) in list(self.pending.items())[:20]
            ],
            "policies": [
                self._policy_status(name, bounds.get(name)) for name in dict.fromkeys([*bounds, *self.tallies])
            ],
            "next_weights": {} if self.last_deploy is None else self.last_deploy.weights,
            "alarms": [{"time": time, **msgspec.to_builtins(body)} for time, body in self.alarms],
            "decisions": [{"time": time, **msgspec.to_builtins(body)} for time, body in self.decisions],
            "monitors": self.monitors.figures() if self.begin.monitors else {},
            "warnings": self._warnings(),
        }

    def _policy_status(self, name: str, bound: Array | None) -> Document:
        on_trial = name != INCUMBENT and bound is not None
        reaches = bound is not None and bool((bound >= self.task.thresholds).all())
        state = "stated" if name == INCUMBENT else "certified" if on_trial and reaches else "on trial"
        deployments, n, reward, utility = self.tallies.get(name, [0, 0, 0.0, None])
        return {
            "name": name,
            "state": "promoted" if name == self.promoted else state if on_trial or name == INCUMBENT else "ended",
            "bounds": None if bound is None else bound.tolist(),
            "deployments": deployments,
            "reports": n,
            "mean_utility": (utility / n).tolist() if n else None,
            "mean_reward": reward / n if n else None,
        }

    def _warnings(self) -> list[str]:
        found = []
        if self.num_overridden > MANY_OVERRIDES * max(self.num_reported, 20):
            found.append(
                f"{self.num_overridden} of {self.num_reported} episodes were overridden: they count as the worst "
                "case, so little can be certified"
            )
        if self.certifier is not None and self.certifier.warning:
            found.append(self.certifier.warning)
        for name in self.changed_candidates:
            found.append(f"the candidate {name!r} of this process differs from the recorded one, which acts: rename it")
        if len(self.pending) > 50:
            found.append(f"{len(self.pending)} deployments are not reported: report or abandon them")
        return found


_MEANING: dict[type[Body], Callable[[SessionState, Any, str], None]] = {
    body: vars(SessionState)[f"_{kind}"] for kind, body in BODIES.items()
}


def certifier_of(settings: Document, task: Task) -> Certifier | None:
    """Return a fresh certifier by recorded settings; None if there was none, or if it needs the problem."""
    with suppress(InvalidProblem):
        certifier = _unstarted(settings)
        if certifier is not None:
            certifier.start(task)
        return certifier
    return None


def _unstarted(settings: Document) -> Certifier | None:
    """Return a certifier with the recorded arguments."""
    if settings.get("certifier") == "both":
        return resolve_name("episafe.certify.guard:Both")(*map(_unstarted, settings["parts"]))
    if settings.get("certifier") not in CERTIFIERS:
        return None
    kind = resolve_name(f"episafe.certify.{CERTIFIERS[settings['certifier']]}")
    return kind(**{argument: settings[argument] for argument in signature(kind).parameters if argument in settings})


def fingerprint(task: Task) -> str:
    """Return a hash of what the task says besides limits and incumbent: sizes, start, signals, features, support."""
    phi = task.features.phi if isinstance(task.features, TableFeatures) else None
    moves = (task.move.next_states, task.move.utilities) if isinstance(task.move, ListedMove) else ()
    tables = [one for one in (task.reward, task.utilities, phi, *moves) if isinstance(one, np.ndarray)]
    places = product(range(task.horizon or 0), range(task.num_states or 0)) if task.support and not moves else ()
    parts = [
        repr((task.horizon, task.num_actions, task.num_states, task.initial_state, task.time_homogeneous)),
        repr([one.name for one in task.constraints]),
        f"{type(task.features).__name__} {task.dim} {task.move is not None} {task.carry is not None} {task.norm_bound}",
        repr([list(task.support(*place)) for place in places]) if task.support is not None else "",
        *(hashlib.sha256(np.ascontiguousarray(one).tobytes()).hexdigest() for one in tables),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def identity(policy: Policy) -> str:
    """Return the name of a policy with a hash of its data; its name alone if it is opaque."""
    try:
        data = msgspec.json.encode(policy.document())
    except TypeError:
        return policy.name or type(policy).__name__
    return f"{policy.name or 'table'} {hashlib.sha256(data).hexdigest()[:16]}"


def is_described_by(policy: Policy, document: Document) -> bool:
    """Return whether a recorded document is that of the policy; False if the policy is opaque."""
    with suppress(TypeError):
        return as_recorded(policy.document()) == document
    return False


def first_event(agent: Agent, false_alarm: float) -> Begin:
    """Return the event that begins a session with an agent."""
    task = agent.task
    limits = tuple(replace(one, utility=None) for one in task.constraints)
    told = fingerprint(task), identity(task.incumbent), limits, task.horizon, agent.settings()
    return Begin(*told, false_alarm, secrets.token_hex(16), str(episafe.__version__), dict(task.units))


def check_same(body: Begin, agent: Agent) -> None:
    """Raise if a session was begun with another task, incumbent, limits or settings."""
    begun, new = (as_recorded(one) for one in (body, first_event(agent, 0.0)))
    was, told = begun | begun["agent"], new | new["agent"]
    for name in was | told:
        if name not in MAY_DIFFER and was.get(name) != told.get(name):
            raise InvalidProblem(
                f"the session began with {name} = {was.get(name)!r}, the agent has {told.get(name)!r}: build the agent "
                "as at the beginning, or begin a new session. The log has later changes of limits"
            )
