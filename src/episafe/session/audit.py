"""Audits and explanations: apply a log with a fresh certifier and check each event before it is applied."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from episafe.core.agent import Agent
from episafe.core.errors import DamagedLog
from episafe.core.types import INCUMBENT, Array, Unit
from episafe.session.events import (
    Abandon,
    AlarmRaised,
    Deploy,
    Event,
    LogEvidence,
    NewCandidate,
    Report,
    decode_lines,
    of_numbers,
)
from episafe.session.session import coin_of, open_log, toss
from episafe.session.state import SessionState, identity

TESTS = ("incumbent", "bound", "coin", "drift")  # monitors whose alarms follow from the reports
AGREE = 1e-9  # recomputed numbers agree to this, relative to the larger of 1 and the number


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        passed: whether nothing is wrong.
        findings: the first event that fails, with what and why.
        summary: one sentence.
        notes: what was not checked.
        head: hash of the last event that was read.
    """

    passed: bool
    findings: tuple[str, ...]
    summary: str
    notes: tuple[str, ...]
    head: str

    def __str__(self) -> str:
        lines = [f"{'PASSED' if self.passed else 'FAILED'}. {self.summary}", *self.findings]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def read_lines(location: str | Path, name: str | None = None, since: int = 0) -> Iterator[bytes]:
    """Return the lines of a log from number `since` on without writing anything, without an incomplete last line."""
    if str(location).startswith(("postgresql://", "postgres://")):
        yield from open_log(location, name).read(since)
        return
    path = (Path(location) / name if name else Path(location)) / "log.jsonl"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a session")
    with path.open("rb") as file:
        for line in islice(file, since, None):
            if line.endswith(b"\n"):
                yield line[:-1]


def follow(location: str | Path, name: str | None = None) -> SessionState:
    """Return the state of a session from its log alone, without the problem."""
    state = SessionState()
    state.apply(decode_lines(read_lines(location, name)))
    if state.begin is None:
        raise DamagedLog(f"the log of {name or location} is empty: open the session first")
    return state


def audit(location: str | Path, agent: Agent | None = None, name: str | None = None, head: str | None = None) -> Audit:
    """Check the log of a session: the chain, and that every deployment was allowed by what was proved before it.

    Args:
        location: a folder or a "postgresql://…" address.
        agent: a new agent as the session has; then shares and replays are computed again, too.
        name: the session, on PostgreSQL.
        head: a hash that you kept elsewhere: the log must contain it, so that nothing before it was changed.
    """
    checker = _Checker(SessionState(agent))
    hashes, findings, number = set(), [], 0
    try:
        for event in decode_lines(read_lines(location, name)):
            number = event.number
            checker.check(event)
            checker.state.apply([event])
            hashes.add(event.hash)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        findings.append(f"event {checker.state.number}: {error}")
    if not findings and checker.state.begin is None:
        findings.append("event 0: the log is empty")
    if not findings and head is not None and head not in hashes:
        findings.append(f"event {number}: no event has the hash {head}: events were cut off or changed")
    state = checker.state
    if findings:
        summary = f"{state.number} events are in order; the next one is not."
    else:
        summary = f"{state.number} events, {state.num_deployed} deployments, {state.num_reported} reports: the log is "
        summary += f"intact and all {checker.num_certificates} certificates were reproduced."
    return Audit(not findings, tuple(findings), summary, tuple(dict.fromkeys(checker.notes)), state.head)


@dataclass
class _Checker:
    """Checks each event against the state before it."""

    state: SessionState
    notes: list[str] = field(default_factory=list)
    num_certificates: int = 0

    def check(self, event: Event) -> None:
        """Raise if the event is not allowed."""
        body = event.body
        if isinstance(body, NewCandidate):
            self._candidate(body)
        elif isinstance(body, Deploy):
            self._deploy(body)
        elif isinstance(body, Report):
            self._report(body)
        elif isinstance(body, Abandon) and body.id not in self.state.pending:
            raise ValueError(f"deployment {body.id} is abandoned and not pending")
        elif isinstance(body, LogEvidence):
            self._log(body)
        elif isinstance(body, AlarmRaised) and body.monitor in TESTS:
            self._alarm(body)

    def _alarm(self, body: AlarmRaised) -> None:
        if body.monitor not in {one.monitor for one in self.state.due_alarms()}:
            raise ValueError(f"the alarm {body.monitor!r} does not follow from the reports")

    def _log(self, body: LogEvidence) -> None:
        """Recompute what a log proves; whether its shares are right is seen by reading the log again."""
        state, (names, shares, utilities) = self.state, body.evidence()
        if state.num_deployed or len(set(body.episodes)) < len(body.episodes) or state.logged & set(body.episodes):
            raise ValueError("a log was read after the first deployment, or episodes of it were read before")
        if not ((shares >= 0) & (shares <= 1 + AGREE)).all() or state.certifier is None:
            raise ValueError("a log was read whose shares are not in [0, 1], or that no certifier can read")
        twin = deepcopy(state.certifier)
        twin.read_log(names, shares, utilities)
        for name, bound in twin.bounds().items():
            if name in names and not _agree(bound, of_numbers(body.proves[name])):
                raise ValueError(f"the log proves {bound.tolist()} of {name!r}, recorded is {body.proves[name]}")
        self.notes.append("the shares and replays of logs were not computed again: that needs the logs")

    def _candidate(self, body: NewCandidate) -> None:
        state = self.state
        if body.name == INCUMBENT or (body.name in state.candidates and body.name not in state.bounds()):
            raise ValueError(f"the candidate {body.name!r} exists already and is not on trial")
        self._least_totals(body)
        given = {} if state.agent is None else {one.name: one.policy for one in state.agent.candidates}
        if body.name in given and body.document is not None:
            from episafe.data.policies import policy_of

            if identity(policy_of(body.document, state.task)) != identity(given[body.name]):
                raise ValueError(f"the candidate {body.name!r} of the agent is another policy than the recorded one")

    def _least_totals(self, body: NewCandidate) -> None:
        """Compute the floor of a recorded policy again; one that a user states for an opaque policy is believed."""
        certifier, document = self.state.certifier, body.document
        if self.state.agent is None or certifier is None or document is None or body.least_totals is None:
            return
        from episafe.data.policies import policy_of

        again, recorded = certifier.least_totals(policy_of(document, self.state.task)), of_numbers(body.least_totals)
        if again is not None and not (recorded <= again + AGREE * np.maximum(1, np.abs(again))).all():
            raise ValueError(f"the floor of {body.name!r} is recorded as {recorded.tolist()}, computed again: {again}")

    def _deploy(self, body: Deploy) -> None:
        state, weights = self.state, body.weights
        assert state.begin is not None
        if not weights or min(weights.values()) < 0 or abs(math.fsum(weights.values()) - 1) > AGREE:
            raise ValueError(f"the weights {weights} are not probabilities")
        if toss(weights, coin_of(state.begin.salt, body.id)) != body.component:
            raise ValueError(f"the coin did not draw {body.component!r} from {weights}")
        if set(weights) == {INCUMBENT}:
            return
        halting = [one for one in state.due_alarms() if one.halts]
        if state.halt_reason or halting:
            raise ValueError(f"{body.component!r} is deployed while the session is halted")
        if state.certifier is None:
            self.notes.append(
                "plans of agents without a certifier, and of those that need the problem, are not checked"
            )
            return
        if state.certifier.invalid_reason:
            raise ValueError(f"{list(weights)} are deployed, and nothing is proved: {state.certifier.invalid_reason}")
        self._check_bounds(body)
        self.num_certificates += 1

    def _check_bounds(self, body: Deploy) -> None:
        """Recompute what is proved of a mixture; it must reach the limits by itself."""
        state = self.state
        assert state.certifier is not None
        state.certifier.announce(body.episode_id)
        plan, recorded = state.plan_of(body), of_numbers(body.bounds)
        if refusal := state.certifier.refusal(plan):
            raise ValueError(refusal)
        bounds = state.certifier.proves(plan)
        if not (recorded <= bounds + AGREE * np.maximum(1, np.abs(bounds))).all():
            raise ValueError(f"the recorded bounds {recorded.tolist()} exceed those that are proved, {bounds.tolist()}")

    def _report(self, body: Report) -> None:
        state, episode = self.state, body.episode
        if body.id not in state.pending:
            raise ValueError(f"deployment {body.id} is reported and not pending")
        if episode.utilities is not None:
            totals = np.cumsum(np.array(episode.utilities, dtype=np.float64), axis=0)[-1]
            if not _agree(totals, np.array(episode.total_utility)):
                raise ValueError(f"the utilities sum to {totals.tolist()}, not to {list(episode.total_utility)}")
        if body.evidence is None or state.certifier is None:
            return
        shares = np.array(body.evidence.shares)
        if ((shares < 0) | (shares > 1 + AGREE)).any():
            raise ValueError(f"the shares {shares.tolist()} are not in [0, 1]")
        if not state.certifier.uses_traces and shares.sum() > 1 + AGREE:
            raise ValueError(f"the shares sum to {shares.sum():g}, above 1")
        if state.agent is None:
            self.notes.append("shares and replays were not computed again: that needs the agent")
            return
        component = list(state.pending[body.id][0].weights).index(state.pending[body.id][0].component)
        read = state.task.read(episode.episode(state.task.is_listed, component), encoded=True)
        again = state.evidence_of(body.id, read, body.overridden)
        same = (
            again is not None
            and (again.names, again.fault, again.surprise)
            == (body.evidence.names, body.evidence.fault, body.evidence.surprise)
            and all(
                _agree(np.array(one, dtype=np.float64), np.array(other, dtype=np.float64))
                for one, other in (
                    (again.shares, body.evidence.shares),
                    (again.utilities, body.evidence.utilities),
                    (again.rewards, body.evidence.rewards),
                )
            )
        )
        if not same:
            raise ValueError(f"the evidence of deployment {body.id} is {body.evidence}, computed again it is {again}")


def _agree(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((np.abs(one - other) <= AGREE * np.maximum(1, np.abs(other))).all())


def explain(location: str | Path, deployment: int, name: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """Explain one deployment, its policy, its certificate and its outcome: as facts, and as lines of text."""
    state, facts = SessionState(), dict[str, Any]()
    for event in decode_lines(read_lines(location, name)):
        body = event.body
        if isinstance(body, Deploy) and body.id == deployment:
            facts = _facts_of_plan(state, body) | {"event": event.number, "time": event.time}
        elif facts and isinstance(body, Report | Abandon) and body.id == deployment:
            facts["outcome"] = {"kind": event.kind, "time": event.time, **msgspec.to_builtins(body)}
            break
        state.apply([event])
    if not facts:
        raise ValueError(f"there is no deployment {deployment}: the session has {state.num_deployed}, counted from 0")
    assert state.begin is not None
    return facts, list(_lines(facts, [one.unit for one in state.begin.limits], state.begin.reward_unit))


def _facts_of_plan(state: SessionState, body: Deploy) -> dict[str, Any]:
    proved = {key: bound.tolist() for key, bound in state.bounds().items()}
    return {
        "deployment": body.id,
        "component": body.component,
        "weights": body.weights,
        "bounds": list(body.bounds),
        "proved": {key: proved.get(key) for key in body.weights},
        "limits": {one.name: one.threshold for one in state.task.constraints},
        "reason": body.reason,
        "level": body.level,
        "episode_id": body.episode_id,
        "halted": state.halt_reason,
        "outcome": None,
    }


def _lines(facts: dict[str, Any], units: Sequence[Unit], reward: Unit) -> Iterator[str]:
    yield f"Deployment {facts['deployment']} of {facts['time']}: {facts['component']} acted."
    if len(facts["weights"]) > 1:
        shares = ", ".join(f"{key} {weight:.1%}" for key, weight in facts["weights"].items())
        yield f"It was drawn from a mixture: {shares}."
    if facts["reason"]:
        yield f"Reason: {facts['reason']}."
    if set(facts["weights"]) == {INCUMBENT}:
        yield "The incumbent is assumed to keep every limit."
    for (limit, threshold), unit, bound in zip(facts["limits"].items(), units, facts["bounds"], strict=True):
        if bound is not None:
            worth = "proved" if facts["level"] == "theorem" else "estimated"
            said = f"expected total {worth} to be {unit.bound} {unit.say(bound, 6)}"
            yield f"{limit}: {said}; the limit is {unit.say(threshold, 6)}."
    for key, bound in facts["proved"].items():
        if bound is not None and len(facts["weights"]) > 1:
            word = "stated" if key == INCUMBENT else "proved"
            yield f"  {key}: {word} {', '.join(unit.say(value, 6) for unit, value in zip(units, bound, strict=True))}."
    outcome = facts["outcome"]
    if outcome is None:
        yield "It has not been reported: it counts at its worst."
    elif outcome["kind"] == "abandon":
        yield f"It was abandoned ({outcome['reason']}): it counts at its worst."
    else:
        totals = zip(facts["limits"], units, outcome["episode"]["total_utility"], strict=True)
        reached = ", ".join(f"{limit} {unit.say(total, 6)}" for limit, unit, total in totals)
        yield f"Reported at {outcome['time']}: {reached}, reward {reward.say(outcome['episode']['total_reward'], 6)}."
        if outcome.get("overridden"):
            yield f"A person took {outcome['overridden']} actions: it counts at its worst."
