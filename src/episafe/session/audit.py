"""Audits and explanations: apply a log with a fresh certifier and check each event before it is applied."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from episafe.core.agent import Agent
from episafe.core.checks import require
from episafe.core.errors import DamagedLog
from episafe.core.types import INCUMBENT, Array, Document, Unit
from episafe.session.events import (
    START_HASH,
    Abandon,
    AlarmRaised,
    Deploy,
    Event,
    LogEvidence,
    NewCandidate,
    RecordedEvidence,
    Report,
    decode_lines,
    of_numbers,
)
from episafe.session.session import draw_component, open_log, uniform_of
from episafe.session.state import SessionState, is_described_by

TESTS = {"incumbent", "bound", "draw", "drift"}  # monitors whose alarms follow from the reports
AGREE = 1e-9  # recomputed numbers agree to this, relative to the larger of 1 and the number


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        passed: whether there are no findings.
        findings: the first invalid event, with the reason.
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
    require(path.exists(), f"{path} does not exist: give the folder of a session", FileNotFoundError)
    with path.open("rb") as file:
        for line in islice(file, since, None):
            if line.endswith(b"\n"):
                yield line[:-1]


def read_events(
    location: str | Path, name: str | None = None, number: int = 0, head: str = START_HASH
) -> Iterator[Event]:
    """Return the events of a log that follow event `number` − 1 with hash `head`; raise DamagedLog if it is empty."""
    events = decode_lines(read_lines(location, name, number), number, head)
    if number == 0:
        first = next(events, None)
        if first is None:
            raise DamagedLog(f"the log of {name or location} is empty: open the session first")
        yield first
    yield from events


def follow(location: str | Path, name: str | None = None) -> SessionState:
    """Return the state of a session from its log alone, without the problem."""
    state = SessionState()
    state.apply(read_events(location, name))
    return state


def audit(location: str | Path, agent: Agent | None = None, name: str | None = None, head: str | None = None) -> Audit:
    """Check the log of a session: the chain of hashes, and every deployment against the bounds proved before it.

    Args:
        location: a folder or a "postgresql://…" address.
        agent: a new agent, built as for the session; if given, shares and replays are computed again, too.
        name: the session, on PostgreSQL.
        head: a hash that you kept elsewhere; the log must contain it, which shows that nothing before it was changed.
    """
    state, has_head, num_certificates = SessionState(agent), head is None, 0
    notes, findings = list[str](), []
    try:
        for event in read_events(location, name):
            fault = next(_faults(state, event, notes), "")
            require(not fault, fault, DamagedLog)
            is_checked = isinstance(event.body, Deploy) and state.certifier is not None
            num_certificates += is_checked and set(event.body.weights) != {INCUMBENT}
            state.apply([event])
            has_head |= event.hash == head
        require(has_head, f"no event has the hash {head}: events were cut off or changed", DamagedLog)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        findings.append(f"event {state.number}: {error}")
    summary = f"{state.number} events are in order; the next one is invalid."
    if not findings:
        summary = (
            f"{state.number} events, {state.num_deployed} deployments, {state.num_reported} reports: the log is "
            f"intact and all {num_certificates} certificates were reproduced."
        )
    return Audit(not findings, tuple(findings), summary, tuple(dict.fromkeys(notes)), state.head)


# what is wrong with an event, given the state before it; what cannot be checked is noted


def _faults(state: SessionState, event: Event, notes: list[str]) -> Iterator[str]:
    body = event.body
    if isinstance(body, NewCandidate):
        yield from _candidate_faults(state, body)
    elif isinstance(body, Deploy):
        yield from _deploy_faults(state, body, notes)
    elif isinstance(body, Report) and body.id in state.pending:  # else the state refuses it
        yield from _report_faults(state, body, notes)
    elif isinstance(body, LogEvidence):
        yield from _log_faults(state, body, notes)
    elif isinstance(body, AlarmRaised) and body.monitor in TESTS - {one.monitor for one in state.due_alarms()}:
        yield f"the alarm {body.monitor!r} does not follow from the reports"


def _log_faults(state: SessionState, body: LogEvidence, notes: list[str]) -> Iterator[str]:
    """Recompute what a log proves; whether its shares are right is seen by reading the log again."""
    names, shares, utilities = body.evidence()
    if state.num_deployed or len(set(body.episodes)) < len(body.episodes) or state.logged & set(body.episodes):
        yield "a log was read after the first deployment, or episodes of it were read before"
    if not ((shares >= 0) & (shares <= 1 + AGREE)).all():
        yield "a log was read whose shares are not in [0, 1]"
    twin = deepcopy(state.certifier)
    if twin is None:
        yield "a log was read that no certifier can read"
        return
    twin.read_log(names, shares, utilities)
    for name, bound in twin.bounds().items():
        if name in names and not _agree(bound, of_numbers(body.proves[name])):
            yield f"the log proves {bound.tolist()} of {name!r}, but {body.proves[name]} is recorded"
    notes.append("the shares and replays of logs were not computed again: that needs the logs")


def _candidate_faults(state: SessionState, body: NewCandidate) -> Iterator[str]:
    if body.name == INCUMBENT or (body.name in state.candidates and body.name not in state.bounds()):
        yield f"the candidate {body.name!r} exists already and is not on trial"
    given = {} if state.agent is None else {one.name: one.policy for one in state.agent.candidates}
    if state.agent is None or body.document is None or (body.name not in given and body.least_totals is None):
        return  # a floor that a user states for an opaque policy is believed
    from episafe.data.policies import policy_of

    policy = policy_of(body.document, state.task)
    if body.name in given and not is_described_by(given[body.name], body.document):
        yield f"the candidate {body.name!r} of the agent differs from the recorded policy"
    if state.certifier is not None and body.least_totals is not None:
        again, recorded = state.certifier.least_totals(policy), of_numbers(body.least_totals)
        if again is not None and not _reaches(again, recorded):
            yield f"the floor of {body.name!r} is recorded as {recorded.tolist()}, computed again: {again}"


def _deploy_faults(state: SessionState, body: Deploy, notes: list[str]) -> Iterator[str]:
    weights, certifier = body.weights, state.certifier
    if not weights or min(weights.values()) < 0 or abs(math.fsum(weights.values()) - 1) > AGREE:
        yield f"the weights {weights} are not probabilities"
    if draw_component(weights, uniform_of(state.begin.salt, body.id)) != body.component:
        yield f"{body.component!r} is not the component that was drawn from {weights}"
    if set(weights) == {INCUMBENT}:
        return
    if state.halted:
        yield f"{body.component!r} is deployed while the session is halted"
    if certifier is None:
        notes.append("plans are not checked if the agent has no certifier, or needs the problem itself")
        return
    if certifier.invalid_reason:
        yield f"{list(weights)} are deployed, but nothing is proved: {certifier.invalid_reason}"
    certifier.announce(body.episode_id)
    plan, recorded = state.plan_of(body), of_numbers(body.bounds)
    if refusal := certifier.refusal(plan):
        yield refusal
    bounds = certifier.proves(plan)
    if not _reaches(bounds, recorded):
        yield f"the recorded bounds {recorded.tolist()} exceed those that are proved, {bounds.tolist()}"


def _report_faults(state: SessionState, body: Report, notes: list[str]) -> Iterator[str]:
    episode, recorded = body.episode, body.evidence
    if episode.utilities is not None:
        totals = np.cumsum(np.array(episode.utilities, dtype=np.float64), axis=0)[-1]
        if not _agree(totals, np.array(episode.total_utility)):
            yield f"the utilities sum to {totals.tolist()}, not to {list(episode.total_utility)}"
    if recorded is None or state.certifier is None:
        return
    shares = np.array(recorded.shares)
    if ((shares < 0) | (shares > 1 + AGREE)).any():
        yield f"the shares {shares.tolist()} are not in [0, 1]"
    if not state.certifier.uses_traces and shares.sum() > 1 + AGREE:
        yield f"the shares sum to {shares.sum():g}, above 1"
    if state.agent is None:
        notes.append("shares and replays were not computed again: that needs the agent")
        return
    deploy, _ = state.pending[body.id]
    read = state.task.read(episode.episode(state.task.is_listed, deploy.index), encoded=True)
    again = state.evidence_of(body.id, read, body.overridden)
    told = recorded.names, recorded.fault, recorded.surprise
    same = again is not None and (again.names, again.fault, again.surprise) == told
    if again is None or not same or not _agree(_numbers(again), _numbers(recorded)):
        yield f"the evidence of deployment {body.id} is {recorded}, computed again it is {again}"


def _numbers(evidence: RecordedEvidence) -> Array:
    return np.concatenate([evidence.shares, np.ravel(evidence.utilities), evidence.rewards])


def _reaches(bounds: Array, recorded: Array) -> bool:
    """Return whether recorded bounds are at most those computed again; NaN is not."""
    return bool((recorded <= bounds + AGREE * np.maximum(1, np.abs(bounds))).all())


def _agree(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((np.abs(one - other) <= AGREE * np.maximum(1, np.abs(other))).all())


# explanations


def explain(location: str | Path, deployment: int, name: str | None = None) -> tuple[Document, list[str]]:
    """Explain one deployment, its policy, its certificate and its outcome: as facts, and as lines of text."""
    state, facts = SessionState(), Document()
    for event in read_events(location, name):
        body = event.body
        if isinstance(body, Deploy) and body.id == deployment:
            proved = state.bounds()
            facts = msgspec.structs.asdict(body) | {
                "deployment": deployment,
                "event": event.number,
                "time": event.time,
                "proved": {key: proved[key].tolist() if key in proved else None for key in body.weights},
                "limits": {one.name: one.threshold for one in state.task.constraints},
                "halted": state.halted,
                "outcome": None,
            }
        elif facts and isinstance(body, Report | Abandon) and body.id == deployment:
            facts["outcome"] = {"kind": event.kind, "time": event.time, **msgspec.to_builtins(body)}
            break
        state.apply([event])
    text = f"there is no deployment {deployment}: the session has {state.num_deployed}, counted from 0"
    require(facts, text, ValueError)
    task = state.task
    return facts, list(_lines(facts, [task.unit(one.name) for one in task.constraints], task.unit("reward")))


def _lines(facts: Document, units: Sequence[Unit], reward: Unit) -> Iterator[str]:
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
            text = f"expected total {worth} to be {unit.bound} {unit.say(bound, 6)}"
            yield f"{limit}: {text}; the limit is {unit.say(threshold, 6)}."
    for key, bound in facts["proved"].items():
        if bound is not None and len(facts["weights"]) > 1:
            word = "stated" if key == INCUMBENT else "proved"
            yield f"  {key}: {word} {', '.join(unit.say(value, 6) for unit, value in zip(units, bound, strict=True))}."
    outcome = facts["outcome"]
    if outcome is None:
        yield "It has not been reported: it counts as the worst case."
    elif outcome["kind"] == "abandon":
        yield f"It was abandoned ({outcome['reason']}): it counts as the worst case."
    else:
        totals = zip(facts["limits"], units, outcome["episode"]["total_utility"], strict=True)
        reached = ", ".join(f"{limit} {unit.say(total, 6)}" for limit, unit, total in totals)
        yield f"Reported at {outcome['time']}: {reached}, reward {reward.say(outcome['episode']['total_reward'], 6)}."
        if outcome.get("overridden"):
            yield f"A person took {outcome['overridden']} actions: it counts as the worst case."
