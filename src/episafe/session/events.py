"""Events: the eight kinds, their bodies, and the lines of a log.

A log is a sequence of lines. Line n is a JSON object

    {"number": n, "time": "2026-11-18T09:30:00.000000Z", "kind": "deploy", "body": {…}, "previous": "…"}

where `previous` is the SHA-256 of line n − 1 as written, without its line break (64 zeros for line 0). The hash of the
last line is the *head*. `SessionState.apply` gives events their meaning.
"""

import hashlib
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from episafe.core.agent import Evidence
from episafe.core.errors import DamagedLog, InvalidEpisode
from episafe.core.task import Constraint
from episafe.core.types import Array, Document, Episode, Level, Source, Unit

START_HASH = "0" * 64
Numbers = tuple[float | None, ...]  # None for NaN, which JSON cannot say


class Body(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of an event; a subclass per kind."""


class Begin(Body, frozen=True):
    """The first event.

    Attributes:
        task: fingerprint of the task.
        incumbent: name and version of the incumbent.
        limits: the limits, without their utilities.
        horizon: H, if an episode has a fixed number of steps.
        agent: settings of the agent, and of its certifier with the statement.
        monitors: the false-alarm rate of all monitors together; 0 for none.
        salt: the private seed of all draws of components.
        version: version of episafe.
        units: those of the task.
    """

    task: str
    incumbent: str
    limits: tuple[Constraint, ...]
    horizon: int | None
    agent: Document
    monitors: float
    salt: str
    version: str
    units: dict[str, Unit] = {}


class NewCandidate(Body, frozen=True):
    """A policy that may be deployed from now on, as data (`document`) or, if opaque, by its name alone."""

    name: str
    proposer: str = "user"
    document: Document | None = None
    reward: float | None = None
    lam: float | None = None
    least_totals: Numbers | None = None
    statistics: dict[str, float] = {}


class Deploy(Body, frozen=True):
    """A deployment. Its id counts deployments from 0; `component` is the name of the drawn component."""

    id: int
    weights: dict[str, float]
    component: str
    bounds: Numbers
    source: Source = "safe"
    level: Level = "heuristic"
    reason: str = ""
    episode_id: str = ""
    lam: float | None = None

    @property
    def index(self) -> int:
        """Return the position of the component among the weights."""
        return list(self.weights).index(self.component)


class RecordedEpisode(Body, frozen=True):
    """An episode in canonical form."""

    total_utility: tuple[float, ...]
    total_reward: float
    states: tuple[Any, ...] | None = None
    actions: tuple[int, ...] | None = None
    rewards: tuple[float, ...] | None = None
    utilities: tuple[tuple[float, ...], ...] | None = None
    trace: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, episode: Episode) -> "RecordedEpisode":
        """Return the record of an episode that `Task.read` returned."""
        utility, reward = tuple(np.asarray(episode.total_utility).tolist()), float(episode.total_reward or 0.0)
        if episode.states is None:
            return cls(utility, reward, trace=episode.trace)
        return cls(
            utility,
            reward,
            tuple(episode.states.tolist() if isinstance(episode.states, np.ndarray) else episode.states),
            tuple(episode.actions.tolist()),
            tuple(episode.rewards.tolist()),
            tuple(map(tuple, episode.utilities.tolist())),
            episode.trace,
        )

    def episode(self, listed: bool, component: int | None = None) -> Episode:
        """Return the episode in canonical form; states are integers (H+1,) if they are listed."""
        totals: Document = {
            "total_utility": np.array(self.total_utility),
            "total_reward": self.total_reward,
            "component": component,
            "trace": None if self.trace is None else as_value(self.trace),
        }
        if self.states is None:
            return Episode(**totals)
        states: Any = np.array(self.states) if listed else tuple(as_value(one) for one in self.states)
        return Episode(
            states, np.array(self.actions), np.array(self.rewards), np.array(self.utilities, dtype=np.float64), **totals
        )


class RecordedEvidence(Body, frozen=True):
    """What a report says of each candidate: share q, total utilities X, total reward."""

    names: tuple[str, ...]
    shares: tuple[float, ...]
    utilities: tuple[tuple[float, ...], ...]
    rewards: tuple[float, ...]
    fault: str = ""
    surprise: str = ""

    @classmethod
    def of(cls, evidence: Evidence) -> "RecordedEvidence":
        """Return the record of evidence."""
        utilities = tuple(map(tuple, evidence.utilities.tolist()))
        shares, rewards = tuple(evidence.shares.tolist()), tuple(evidence.rewards.tolist())
        return cls(evidence.names, shares, utilities, rewards, evidence.fault, evidence.surprise)

    def evidence(self, num_constraints: int, episode: Episode | None = None) -> Evidence:
        """Return the evidence as arrays; `episode` for certifiers that learn from transitions."""
        utilities = np.array(self.utilities, dtype=np.float64).reshape(len(self.names), num_constraints)
        rewards = np.array(self.rewards)
        return Evidence(self.names, np.array(self.shares), utilities, rewards, episode, self.fault, self.surprise)


class Report(Body, frozen=True):
    """The report of a deployment, and the evidence that is applied. `overridden` counts a person's actions."""

    id: int
    episode: RecordedEpisode
    evidence: RecordedEvidence | None = None
    overridden: int = 0


class LogEvidence(Body, frozen=True):
    """A log of earlier episodes that was read before the first deployment, and what it proves.

    Attributes:
        episodes: a digest of each episode; none counts twice.
        names: the candidates that it counts for.
        shares: q of each candidate and episode, (n, E), in random order, without episodes that count for none.
        utilities: total utilities (n, E, m); (1, E, m) where they are the same for all.
        proves: the bounds (m,) of each candidate after it.
        reason: what the log is, and what the bounds assume.
    """

    episodes: tuple[str, ...]
    names: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    utilities: tuple[tuple[tuple[float, ...], ...], ...]
    proves: dict[str, Numbers]
    reason: str

    def evidence(self) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, shares (n, E) and utilities (n, E, m)."""
        shares, utilities = np.array(self.shares), np.array(self.utilities, dtype=np.float64)
        return self.names, shares, np.broadcast_to(utilities, (*shares.shape, utilities.shape[2]))


class Abandon(Body, frozen=True):
    """A deployment that will not be reported; `utility` is its total so far where utilities cannot be negative."""

    id: int
    reason: str
    utility: tuple[float, ...] | None = None


class Decide(Body, frozen=True):
    """A decision by a person, or by a stated rule (`by`)."""

    what: Literal["promote", "withdraw", "change", "halt", "resume", "restart"]
    reason: str
    by: str = "person"
    name: str = ""
    thresholds: tuple[float, ...] | None = None
    slacks: tuple[float | None, ...] | None = None


class AlarmRaised(Body, frozen=True):
    """What a monitor found; `halts` says whether the incumbent acts until a person resumes."""

    monitor: str
    message: str
    halts: bool


BODIES: dict[str, type[Body]] = {
    "begin": Begin,
    "candidate": NewCandidate,
    "deploy": Deploy,
    "report": Report,
    "evidence": LogEvidence,
    "abandon": Abandon,
    "decide": Decide,
    "alarm": AlarmRaised,
}
KINDS = {body: kind for kind, body in BODIES.items()}


class Event(NamedTuple):
    """One event: its number, its time, its body, and the hash of the line that holds it."""

    number: int
    time: str
    body: Any  # one of BODIES
    hash: str

    @property
    def kind(self) -> str:
        """Return the kind of the event."""
        return KINDS[type(self.body)]


class Log(Protocol):
    """An append-only sequence of lines, shared by threads, processes and (PostgreSQL) machines.

    `append` is called under `lock`. Lines are visible to others once the lock is released, and durable once `sync`
    returns. Between the two a file log lets waiting threads share one fsync.
    """

    def lock(self) -> AbstractContextManager[None]:
        """Return a context in which this process alone writes; leaving it without an error keeps what was appended."""

    def read(self, since: int = 0) -> Iterator[bytes]:
        """Return the lines from number `since` on, without line breaks."""

    def append(self, lines: Sequence[bytes], number: int) -> None:
        """Append the lines of the events from `number` on; raise OSError if they cannot be written."""

    def sync(self) -> None:
        """Return once all that this process appended or read is durable; raise OSError if that fails."""
        return

    def close(self) -> None:
        """Release files and connections, if there are any."""
        return


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    time: str
    kind: str
    body: msgspec.Raw
    previous: str


def _as_json(value: Any) -> Any:
    """Return NumPy values as JSON values; `as_value` is the inverse."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidEpisode(
        f"{value!r} of type {type(value).__name__} cannot be written to the log: let `encode` return numbers, texts, "
        "tuples or arrays"
    )


_encoder = msgspec.json.Encoder(enc_hook=_as_json)
_line_decoder = msgspec.json.Decoder(_Line)
_body_decoders = {kind: msgspec.json.Decoder(body) for kind, body in BODIES.items()}


def encode_lines(bodies: Iterable[Body], number: int, head: str) -> list[bytes]:
    """Return the lines of bodies that follow event `number` − 1 with hash `head`."""
    time = datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    lines = []
    for body in bodies:
        line = _encoder.encode(_Line(number, time, KINDS[type(body)], msgspec.Raw(_encoder.encode(body)), head))
        head = hashlib.sha256(line).hexdigest()
        lines.append(line)
        number += 1
    return lines


def read_again(lines: Sequence[bytes], number: int, head: str) -> list[Event]:
    """Return the events as readers will decode these lines; raise InvalidEpisode if they cannot."""
    try:
        events = list(decode_lines(lines, number, head))
    except DamagedLog as error:
        raise InvalidEpisode(f"nothing was written, because it could not be read again: {error.__cause__}") from error
    for event in events:
        if isinstance(event.body, Report):
            event.body.episode.episode(listed=False)
    return events


def decode_lines(lines: Iterable[bytes], number: int = 0, head: str = START_HASH) -> Iterator[Event]:
    """Return the events of lines from event `number` on; raise DamagedLog where the chain breaks."""
    for line in lines:
        try:
            found = _line_decoder.decode(line)
            if found.number != number:
                raise DamagedLog(f"event {number} of the log is missing: the line has number {found.number}")
            if found.previous != head:
                raise DamagedLog(f"event {number} does not follow event {number - 1}: one of them was changed")
            body = _body_decoders[found.kind].decode(found.body)
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError) as error:
            raise DamagedLog(
                f"event {number} of the log cannot be read ({error}): restore the log from a backup"
            ) from error
        head = hashlib.sha256(line).hexdigest()
        yield Event(number, found.time, body, head)
        number += 1


def as_numbers(values: Array) -> Numbers:
    """Return an array as numbers that JSON can say: None for NaN."""
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def of_numbers(values: Numbers) -> Array:
    """Return numbers as an array: NaN for None."""
    return np.array([math.nan if value is None else value for value in values])


def as_recorded(value: Document | Body) -> Document:
    """Return a mapping or a body as the log has it."""
    found: Document = msgspec.json.decode(_encoder.encode(value))
    return found


def as_value(value: Any) -> Any:
    """Return the state or chance that a JSON value describes: lists are tuples, arrays are marked."""
    if isinstance(value, list | tuple):
        return tuple(map(as_value, value))
    if isinstance(value, dict):
        if value.keys() != {"array", "dtype"}:
            raise InvalidEpisode(f"the log does not keep mappings, got {value!r}: give a tuple or an array")
        array = np.array(value["array"], dtype=value["dtype"])
        array.setflags(write=False)
        return array
    return value


class MemoryLog(Log):
    """A log in memory: for simulations and tests. Nothing survives the process."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._mutex = threading.RLock()

    def lock(self) -> AbstractContextManager[Any]:
        """Return a context in which one thread writes."""
        return self._mutex

    def read(self, since: int = 0) -> Iterator[bytes]:
        """Return the lines from number `since` on."""
        return iter(self.lines[since:])

    def append(self, lines: Sequence[bytes], number: int) -> None:
        """Append lines."""
        self.lines.extend(lines)
