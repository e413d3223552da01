"""A session: deploys plans, waits for reports, and keeps the log.

A writer takes the lock, applies the events that others appended, decides, appends, and applies its own events. So every
process that has the log open is a replica, and any number of them may deploy and report.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from episafe.certify.safe_agent import changed_limits
from episafe.core.agent import Agent, Candidate, Certifier
from episafe.core.checks import as_reason, require
from episafe.core.errors import InvalidEpisode
from episafe.core.policy import UNKNOWN, Mixture, OpaquePolicy, Policy
from episafe.core.task import Task
from episafe.core.types import INCUMBENT, Array, Document, Episode, PerLimit, Plan
from episafe.session.deployment import Deployment
from episafe.session.events import (
    Abandon,
    AlarmRaised,
    Body,
    Decide,
    Deploy,
    Event,
    Log,
    LogEvidence,
    MemoryLog,
    NewCandidate,
    RecordedEpisode,
    Report,
    as_numbers,
    decode_lines,
    encode_lines,
    read_again,
)
from episafe.session.file_log import FileLog
from episafe.session.monitors import alarm, range_alarms
from episafe.session.state import SessionState, first_event, identity

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

MOST_PENDING = 20_000  # a deployment that is pending while so many later ones were made is abandoned
PLAN = "plan"  # the name of a policy that is no candidate
Request = list[Any]  # a decision, and what came of it: its events or an error; None before it is committed
logger = logging.getLogger("episafe")


def open_log(location: str | Path | None, name: str | None = None) -> Log:
    """Return the log at a folder or a PostgreSQL address; one in memory for None."""
    if location is None:
        return MemoryLog()
    if str(location).startswith(("postgresql://", "postgres://")):
        if not name:
            raise ValueError('a session on PostgreSQL needs a name: es.open(address, agent, name="shop")')
        try:
            from episafe.session.postgres_log import PostgresLog
        except ImportError as error:
            raise ImportError("PostgreSQL needs psycopg: pip install 'episafe[postgres]'") from error
        return PostgresLog(str(location), name)
    return FileLog(Path(location) / name if name else location)


def open(
    location: str | Path | None,
    agent: Agent,
    name: str | None = None,
    *,
    false_alarm: float = 0.01,
    timeout: float | None = None,
    on_alarm: Literal["halt", "restart"] = "halt",
) -> "Session":
    """Open a session, or begin one.

    Args:
        location: a folder, a "postgresql://…" address, or None for a log in memory.
        agent: a new agent that was built as when the session began.
        name: the session, where one location has several; PostgreSQL needs it.
        false_alarm: the probability of a false alarm of all monitors together; 0 for no tests. Fixed at the beginning.
        timeout: seconds that planning may take before the last plan or the incumbent acts; None for no limit.
        on_alarm: what follows an alarm of the test for drift. "halt": the incumbent acts until a person resumes.
            "restart": all trials end, and the proposer keeps the last 14 traces and proposes again. Bounds of later
            proposals use the δ that is left.
    """
    return Session(open_log(location, name), agent, false_alarm=false_alarm, timeout=timeout, on_alarm=on_alarm)


class Session:
    """A live session. Threads may share it.

    Attributes:
        log: the log of events.
        state: the state that follows from the events.
        agent: plans and learns.
        is_outdated: whether the connection was lost during a commit and another process wrote meanwhile; reopen.
    """

    def __init__(
        self, log: Log, agent: Agent, *, false_alarm: float = 0.01, timeout: float | None = None, on_alarm: str = "halt"
    ) -> None:
        require(on_alarm in ("halt", "restart"), f'on_alarm must be "halt" or "restart", got {on_alarm!r}')
        text = f"false_alarm must be in [0, 1), got {false_alarm}: give e.g. 0.01, or 0 for no tests"
        require(0 <= false_alarm < 1, text)
        self.log, self.agent, self.timeout, self.on_alarm = log, agent, timeout, on_alarm
        self.state = SessionState(agent)
        self._mutex = threading.RLock()
        self._latest: Plan | None = None  # of an agent without a certifier
        self._worker: ThreadPoolExecutor | None = None
        self._job: Future[str] | None = None
        self._late_at = 0.0  # when the job has taken too long
        self._last_parts: tuple[Policy | Mixture | None, list[tuple[str, float, Policy]]] = None, []
        self._has_goal = True  # whether the certifier wants a proposal, as of the last transaction
        self._ask_at = 0  # reports after which the proposer is asked again, when it had nothing to propose
        self._unlogged: list[str] = []  # why deployments could not be logged
        self.is_outdated = False
        self._uncertain: list[bytes] = []  # lines that were applied here, and may not be in the log
        self._turn, self._is_used = threading.Condition(), False  # whether a thread uses the log, for all that wait
        self._waiting: deque[Request] = deque()
        self._acting: dict[int, Plan] = {}  # plans of pending deployments made here, by an agent without a certifier
        self._transact(lambda: [] if self.state.number else [first_event(agent, false_alarm)])
        changed = self.state.changed_candidates[:1]
        text = "is not the policy that the log has under this name; a changed policy is a new candidate"
        require(not changed, f"the candidate {', '.join(map(repr, changed))} {text}: give it another name")
        self._add_given_candidates()

    @property
    def task(self) -> Task:
        """Return the task with the limits that hold now."""
        return self.state.task

    @property
    def head(self) -> str:
        """Return the hash of the last event: keep a copy elsewhere, so that an audit detects every change."""
        return self.state.head

    # writing

    def _follow(self, locked: bool = False) -> None:
        """Apply the events that others appended; under the lock, append again what a failed commit has lost."""
        state, count = self.state, len(self._uncertain)
        if count and not locked:
            return
        lines = self.log.read(state.number - count)
        if count:
            known = list(islice(lines, count))
            if known != self._uncertain[: len(known)]:
                self.is_outdated = True
                raise OSError("another process wrote while the connection was lost: reopen the session")
            if len(known) < count:
                self.log.append(self._uncertain[len(known) :], state.number - count + len(known))
        state.apply(decode_lines(lines, state.number, state.head))

    def _transact(self, decide: Callable[[], Sequence[Body]]) -> list[Event]:
        """Decide under the lock, by all events so far; append, apply and wait until that is durable."""
        state, request = self.state, Request((decide, None))
        self._waiting.append(request)
        with self._transaction(request) as (batch, outcomes):
            for decide_one, _ in batch:
                try:
                    lines = encode_lines(decide_one(), state.number, state.head)
                    events = read_again(lines, state.number, state.head)
                    if lines:
                        self.log.append(lines, state.number)
                    self._uncertain += lines
                    state.apply(events)
                    outcomes.append(events)
                except Exception as error:
                    outcomes.append(error)
                finally:
                    state.offers.clear()  # an event that was not appended may come from another process
        made: list[Event] | Exception = request[1]
        if isinstance(made, Exception):
            raise made
        self.log.sync()  # also what others appended: nothing is decided by what may be lost
        for event in made:
            if isinstance(event.body, AlarmRaised):
                logger.warning("alarm: %s: %s", event.body.monitor, event.body.message)
        return made

    @contextmanager
    def _transaction(self, request: Request) -> Iterator[tuple[list[Request], list[list[Event] | Exception]]]:
        """Give all requests that wait, and a list for what comes of them; none if another thread wrote for this one."""
        batch, outcomes = list[Request](), list[list[Event] | Exception]()
        with self._alone(lambda: request[1] is not None) as is_first:
            if not is_first:
                yield batch, outcomes
                return
            try:
                with self.log.lock(), self._mutex:
                    self._follow(locked=True)
                    batch += self._take_waiting()
                    yield batch, outcomes
                    if self.state.certifier is not None and self.agent.proposer is not None:
                        self._has_goal = self.state.certifier.goal() is not None
            except BaseException as error:
                batch = batch or self._take_waiting()
                told = error if isinstance(error, Exception) else OSError("the writing thread was interrupted")
                outcomes = [told] * len(batch)
                raise
            else:
                self._uncertain = []
            finally:
                for one, outcome in zip(batch, outcomes, strict=True):
                    one[1] = outcome

    @contextmanager
    def _alone(self, is_done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Use the log while no other thread does; gives False if nothing is left to do after the wait."""
        with self._turn:  # threads whose requests are answered leave at once: a plain lock would make them queue
            self._turn.wait_for(lambda: is_done() or not self._is_used)
            if is_done():
                yield False
                return
            self._is_used = True
        try:
            yield True
        finally:
            with self._turn:
                self._is_used = False
                self._turn.notify_all()

    def _take_waiting(self) -> list[Request]:
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _unlogged_alarms(self) -> list[AlarmRaised]:
        reasons = self._unlogged[:]
        return [alarm("log", f"{len(reasons)} deployments were not logged: {one}", halts=False) for one in reasons[-1:]]

    def _log_due_alarms(self) -> None:
        """Log what the tests have found, with the restart that the user's rule asks for, and what was not logged."""
        taken: list[str] = []

        def decide() -> list[Body]:
            due = self.state.due_alarms()
            drifts = [one for one in due if one.monitor == "drift" and self.on_alarm == "restart"]
            kept: list[Body] = [msgspec.structs.replace(one, halts=False) if one in drifts else one for one in due]
            kept += self._unlogged_alarms()
            taken.extend(self._unlogged)
            self._unlogged.clear()
            return kept + [Decide("restart", one.message, by="rule") for one in drifts[:1]]

        if self._unlogged or self.state.due_alarms():
            try:
                self._transact(decide)
            except Exception:
                self._unlogged[:0] = taken
                raise

    def refresh(self) -> None:
        """Apply the events that other processes appended; `deploy` and `report` do so by themselves."""
        with self._alone(), self._mutex:
            self._follow()

    # deploying

    def deploy(self, episode_id: str = "") -> Deployment:
        """Draw the policy for the next episode and log it. As a context manager, report the episode at the end.

        Args:
            episode_id: your name for the episode. A second call with the name of a pending deployment returns that one.
        """
        try:
            if self._unlogged:
                self._log_due_alarms()
            problem = self._prepare()
            events = self._transact(lambda: self._decide_deployment(episode_id, problem))
        except OSError as error:
            reason = f"the log cannot be written: {error}"
            self._unlogged.append(reason)
            logger.error("episafe: %s", reason)
            return Deployment(self, self._fallback(reason))
        return self.deployment(events[-1].body.id if events else self.state.episode_ids[episode_id])

    def _decide_deployment(self, episode_id: str, problem: str) -> list[Body]:
        """Return the events of a deployment, itself the last; none if the episode has one that is pending."""
        state, found = self.state, self.state.episode_ids.get(episode_id)
        if found is not None and found not in state.pending:
            text = f"episode {episode_id!r} is deployment {found}, which was reported or abandoned"
            raise InvalidEpisode(f"{text}: give another episode_id")
        if found is not None:
            return []
        old = state.num_deployed - MOST_PENDING
        events: list[Body] = [
            Abandon(id, f"not reported while {MOST_PENDING} later deployments were made")
            for id in list(state.pending)[:100]
            if id < old
        ]
        if state.certifier is not None:
            state.certifier.announce(episode_id)
        plan = replace(self._plan(problem), id=state.num_deployed)
        parts = self._parts(plan)
        for name, _, policy in parts:
            if state.certifier is not None and name not in state.policies:  # found by the certifier: not put on trial
                named = copy(policy)
                named.name = name
                events.append(self._candidate_body(Candidate(name, named, proposer=state.certifier.name)))
        weights = {name: weight for name, weight, _ in parts}
        component = draw_component(weights, uniform_of(state.begin.salt, plan.id))
        *bounds, lam = as_numbers(np.append(plan.bounds, plan.lam))
        told = plan.source, plan.level, plan.reason, episode_id, lam
        if component == PLAN:
            self._acting = {id: one for id, one in self._acting.items() if id in state.pending} | {plan.id: plan}
        return [*events, Deploy(plan.id, weights, component, tuple(bounds), *told)]

    def _parts(self, plan: Plan) -> list[tuple[str, float, Policy]]:
        """Return names, weights and policies of a plan, by the names that the log knows.

        What the certifier found itself is named by its content: processes that number their plans would collide.
        """
        mixture, certifier = plan.policy, self.state.certifier
        if self._last_parts[0] is mixture:
            return self._last_parts[1]
        found = plan.parts
        names: Sequence[str] = found.names
        if not isinstance(mixture, Mixture) and (certifier is None or mixture is self.task.incumbent):
            names = [INCUMBENT if plan.source == "safe" or mixture is self.task.incumbent else PLAN]
        parts = list(zip(names, found.weights.tolist(), found.components, strict=True))
        if certifier is not None:
            known = self.state.candidates
            for k, (name, weight, policy) in enumerate(parts):
                if name != INCUMBENT and (name not in known or known[name].proposer == certifier.name):
                    parts[k] = f"{certifier.name}-{identity(policy)[-12:]}", weight, policy
        self._last_parts = mixture, parts
        return parts

    def deployment(self, id: int) -> Deployment:
        """Return a new handle of a pending deployment, which any process may have made; it has recorded nothing."""
        if id not in self.state.pending:
            self.refresh()
        with self._mutex:
            body = self._pending(id)
            return Deployment(self, self._acting.get(id) or self.state.plan_of(body), body)

    def generator(self, deployment: int) -> np.random.Generator:
        """Return the generator that draws the actions of a deployment, the same in every process."""
        seed = hashlib.sha256(f"{self.state.begin.salt}:{deployment}:actions".encode()).digest()
        return np.random.default_rng(int.from_bytes(seed[:16], "big"))

    # planning

    def _plan(self, problem: str) -> Plan:
        """Return the plan of the next deployment."""
        state = self.state
        if state.halted:
            return self._fallback(state.halted)
        try:
            plan = state.certifier.plan() if state.certifier is not None else self._latest
        except Exception as error:
            return self._fallback(f"planning failed: {type(error).__name__}: {error}")
        if plan is None:
            return self._fallback(problem or "no plan was made yet")
        policies = plan.policy.components if isinstance(plan.policy, Mixture) else (plan.policy,)
        unknown = [one.name for one in policies if isinstance(one, OpaquePolicy) and one.given is UNKNOWN]
        if unknown:
            return self._fallback(f"this process does not know the policy {unknown[0]!r}: give it to the agent")
        return replace(plan, reason="; ".join(filter(None, (problem, plan.reason)))) if problem else plan

    def _fallback(self, reason: str) -> Plan:
        """Return the plan that lets the incumbent act: the one fallback of a session."""
        return Plan.fallback(self.task, self.agent.level, reason)

    def _prepare(self) -> str:
        """Let the agent learn and plan, or propose; return why it could not, or "". Needs no lock of the log."""
        self._add_given_candidates()
        if self.state.halt_reason:
            return ""
        if self.agent.certifier is not None:  # no lock is taken, so that threads gather for one transaction
            is_asked = self.agent.proposer is not None and self._has_goal
            if not is_asked or self.state.num_reported < self._ask_at:
                return ""
        if self.timeout is None:
            if not self.state.learning.acquire(blocking=self.agent.certifier is None and self._latest is None):
                return ""  # another thread plans: use the last plan
            try:
                return self._work()
            finally:
                self.state.learning.release()
        with self._mutex:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="episafe-planner")
            if self._job is None or self._job.done():
                self._job, self._late_at = self._worker.submit(self._work), time.monotonic() + self.timeout
            job, left = self._job, self._late_at - time.monotonic()  # all deployments wait for one job together
        try:
            return job.result(max(left, 0.0))
        except Late:
            return f"planning takes longer than {self.timeout:g} s"

    def _work(self) -> str:
        """Learn what waits; then plan, or put a proposal on trial. Return why that failed, or ""."""
        with self.state.learning:
            is_planned = False
            try:
                candidate = self._think()
                is_planned = True
                if candidate is not None:
                    self._transact(lambda: [self._candidate_body(candidate)] if self._is_wanted(candidate.name) else [])
            except Exception as error:
                if is_planned and isinstance(error, OSError):
                    raise  # it is the log's; before, it was the planner's
                logger.error("episafe: planning failed", exc_info=error)
                self._latest = None
                return f"planning failed: {type(error).__name__}: {error}"
            return ""

    def _think(self) -> Candidate | None:
        """Learn what waits; then plan, or return a proposal. Other threads use the certifier meanwhile."""
        self.state.learn()
        if self.state.learner_fault:
            raise RuntimeError(f"learning failed ({self.state.learner_fault})")
        certifier, proposer = self.agent.certifier, self.agent.proposer
        if certifier is None:
            self._latest = self.agent.plan()
        if certifier is None or proposer is None:
            return None
        with self._mutex:
            twin, reports = self._twin(), self.state.num_reported
        candidate = twin.consult(proposer)
        if candidate is None:
            with self._mutex:
                self._ask_at = reports + 1 + reports // 20
                certifier.postpone()
        return candidate

    def _is_wanted(self, name: str) -> bool:
        """Return whether a proposal is still to be tried: another process may have made one meanwhile."""
        certifier = self.state.certifier
        if certifier is None or (name in self.state.candidates and name not in certifier.bounds()):
            return False
        return certifier.goal() is not None

    def _candidate_body(self, candidate: Candidate) -> NewCandidate:
        """Return the event of a candidate; one that is tried again has its policy in the log."""
        document = None
        if candidate.name not in self.state.candidates:
            with suppress(TypeError):  # opaque
                document = candidate.policy.document()
            self.state.offers[candidate.name] = candidate.policy
        reward, lam = as_numbers(np.array([candidate.reward, candidate.lam]))
        least = None if candidate.least_totals is None else as_numbers(candidate.least_totals)
        return NewCandidate(candidate.name, candidate.proposer, document, reward, lam, least, candidate.statistics)

    def _add_given_candidates(self) -> None:
        """Log the candidates that a user gave to the agent and that the log does not have."""

        def decide() -> list[Body]:
            new = [one for one in self.agent.candidates if one.name not in self.state.candidates]
            twin = self._twin()
            for one in new:
                twin.add(one)  # raises before it is logged
            return [self._candidate_body(one) for one in new]

        if any(one.name not in self.state.candidates for one in self.agent.candidates):
            self._transact(decide)

    # reporting

    def report(self, deployment: int | None, episode: Episode, *, overridden: int = 0, encoded: bool = False) -> None:
        """Report what happened in a deployment, however late; the first report counts.

        Args:
            deployment: its id.
            episode: what was observed.
            overridden: how many actions a person took in place of the policy.
            encoded: whether the states are encoded already, as `Deployment.episode` returns them.
        """
        read = self.task.read(episode, encoded=encoded)

        def decide() -> list[Body]:
            body = self._pending(deployment)
            index = body.index
            if read.component not in (None, index) and len(body.weights) > 1:
                raise InvalidEpisode(
                    f"the report has component {read.component}, but component {index} ({body.component!r}) was "
                    "deployed: let the policy act that deploy() returned"
                )
            episode = replace(read, component=index)
            evidence = self.state.evidence_of(body.id, episode, overridden)
            found = range_alarms(episode.total_utility, episode.rewards, self.task.least_totals, self.task.horizon)
            if evidence is not None and evidence.fault:
                found.append(alarm("replay", evidence.fault, halts=False))
            if evidence is not None and evidence.surprise:
                found.append(alarm("support", evidence.surprise, halts=False))
            new = [one for one in found if one.monitor not in self.state.raised]
            report = Report(body.id, RecordedEpisode.of(episode), evidence, overridden)
            return [*new, report]  # a disk that is full after the first lines loses no alarm

        self._transact(decide)
        self._log_due_alarms()

    def _pending(self, deployment: int | None) -> Deploy:
        """Return a pending deployment, or raise."""
        if deployment is None:
            raise InvalidEpisode("the deployment was not logged, so its report cannot count: see d.plan.reason")
        found = self.state.pending.get(deployment)
        if found is None:
            known = 0 <= deployment < self.state.num_deployed
            what = "was reported or abandoned before: a report counts once" if known else "does not exist"
            raise InvalidEpisode(f"deployment {deployment} {what}")
        return found[0]

    def abandon(self, deployment: int | None, reason: str = "abandoned", utility: PerLimit = None) -> None:
        """State that a deployment will never be reported: it counts as the worst case. `utility`: its total so far."""
        so_far = None if utility is None else tuple(np.atleast_1d(np.asarray(utility, dtype=np.float64)).tolist())
        text = f"the utility so far must be finite, got {utility!r}"
        require(so_far is None or np.isfinite(so_far).all(), text, InvalidEpisode)
        self._transact(lambda: [Abandon(self._pending(deployment).id, as_reason(reason), so_far)])

    def read(
        self, frame: "IntoDataFrame", *, min_propensity: float | Sequence[float] | None = None, reason: str
    ) -> dict[str, Array]:
        """Add the evidence of a log to the candidates; return their bounds. Call before the first deployment.

        With `Hindsight` each logged trace is replayed under each candidate, and trains the proposer. Other certifiers
        need propensities, as `es.prove` does. Live episodes continue the same sequences with the same delta. The
        candidates on trial must have been fixed without this log, as must the incumbent and its slack.

        Args:
            frame: a data frame as for `es.read_episodes` with chance, or as for `es.prove`.
            min_propensity: as of `es.prove`; None with `Hindsight`.
            reason: a description of the log.
        """
        from episafe.data.prove import logged_episodes, logged_shares

        certifier, task = self._twin(), self.task
        policies = {name: self.state.policies[name] for name in certifier.bounds() if name != INCUMBENT}
        text = "no candidate on trial can be proved from a log: add candidates before you read it"
        require(policies, text, ValueError)
        episodes: list[Episode] = []
        if certifier.uses_traces:
            digests, episodes = logged_episodes(frame, task)
            names, utilities = certifier.replayed(episodes)
            shares, assumes = np.ones(utilities.shape[:2]), certifier.settings()["statement"]
        else:
            digests, shares, totals, assumes = logged_shares(frame, task, list(policies.values()), min_propensity)
            names, utilities = tuple(policies), totals[None]
        counts = shares.any(axis=0)
        told = shares[:, counts].tolist(), utilities[:, counts].tolist()

        def decide() -> list[Body]:
            n, twice = self.state.num_deployed, len(self.state.logged & set(digests))
            require(not n, f"{n} deployments were made: read logs before the first one", ValueError)
            text = f"{twice} of {len(digests)} episodes were read before: an episode counts once"
            require(not twice, text, ValueError)
            body = LogEvidence(tuple(digests), names, *told, {}, f"{as_reason(reason)}. It assumes: {assumes}")
            twin = self._twin()
            twin.read_log(*body.evidence())
            return [msgspec.structs.replace(body, proves={one: as_numbers(twin.bounds()[one]) for one in names})]

        self._transact(decide)
        for episode in episodes:
            self.state.learn_later(episode)
        return self.bounds()

    # decisions

    def _decide(self, body: Decide, action: Callable[[Certifier], None] | None = None) -> None:
        """Log a decision. What it would raise is raised before, by a copy of the certifier."""

        def decide() -> list[Body]:
            if action is not None:
                action(self._twin())
            return [body]

        self._transact(decide)

    def _twin(self) -> Certifier:
        """Return a copy of the certifier, on which something can be tried; policies, the users' own, are not copied."""
        certifier = self.state.certifier
        if certifier is None:
            raise TypeError(f"{type(self.agent).__name__} has no certifier, so its policies cannot be certified")
        return deepcopy(certifier, {id(one): one for one in (certifier.task, *self.state.policies.values())})

    def promote(self, name: str, *, reason: str) -> None:
        """Let a certified policy act wherever the incumbent would; "incumbent" undoes it."""
        self._decide(Decide("promote", as_reason(reason), name=name), lambda certifier: certifier.promote(name))

    def withdraw(self, name: str, *, reason: str) -> None:
        """End the trial of a candidate; the δ that it used is not returned."""
        self._decide(Decide("withdraw", as_reason(reason), name=name), lambda certifier: certifier.withdraw(name))

    def change(self, *, threshold: PerLimit = None, slack: PerLimit = None, reason: str) -> None:
        """Use other thresholds or slacks from now on, one per limit or by name; proved bounds stay valid.

        A threshold above the utility of the incumbent is refused, unless you also state its slack.
        """

        def decide() -> list[Body]:
            limits = changed_limits(self.task.constraints, threshold, slack)
            self._twin().change(self.task.with_limits(*limits).constraints)
            return [Decide("change", as_reason(reason), thresholds=tuple(limits[0]), slacks=tuple(limits[1]))]

        self._transact(decide)

    def halt(self, *, reason: str) -> None:
        """Let the incumbent act until `resume`."""
        self._decide(Decide("halt", as_reason(reason)))

    def resume(self, *, reason: str) -> None:
        """End a halt; all monitors restart with their full rate of false alarms."""
        self._decide(Decide("resume", as_reason(reason)))

    # what is known

    def bounds(self) -> dict[str, Array]:
        """Return the proved lower bounds (m,) by policy; the incumbent's is stated."""
        with self._mutex:
            return self.state.bounds()

    def status(self) -> Document:
        """Return the status: limits, policies, missing reports, alarms, decisions, warnings."""
        self.refresh()
        with self._mutex:
            found = self.state.status()
        if isinstance(self.log, FileLog):
            found["warnings"] += [f"a torn line was cut off and kept in {path}" for path in self.log.torn]
        found["warnings"] += [one.message for one in self._unlogged_alarms()]
        return found

    def export(self, path: str | Path) -> int:
        """Write all reported episodes to a Parquet or CSV file that `es.read_episodes` reads; return how many.

        The column `episode` is the id of the deployment. `episode_id` is yours, and `policy` is the policy that acted.
        Rewards and utilities are those that were recorded, in [0, 1] per step.
        """
        from episafe.data.episodes import write_episodes

        with self._alone():
            bodies = [event.body for event in decode_lines(list(self.log.read()))]
        plans = {one.id: one for one in bodies if isinstance(one, Deploy)}
        reports = [one for one in bodies if isinstance(one, Report)]
        episodes = [one.episode.episode(self.task.is_listed) for one in reports]
        facts = [
            {"episode": str(one.id), "episode_id": plans[one.id].episode_id, "policy": plans[one.id].component}
            for one in reports
        ]
        return write_episodes(path, episodes, self.task, facts)

    def close(self) -> None:
        """Close the log; wait for the planner."""
        if self._worker is not None:
            self._worker.shutdown()
        self.log.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def uniform_of(salt: str, deployment: int) -> float:
    """Return a number in [0, 1) that is fixed by the private salt and the deployment."""
    return int.from_bytes(hashlib.sha256(f"{salt}:{deployment}".encode()).digest()[:7], "big") / 2**56


def draw_component(weights: dict[str, float], uniform: float) -> str:
    """Return the first component whose cumulative weight exceeds the number."""
    total = 0.0
    for name, weight in weights.items():
        total += weight
        if uniform < total:
            return name
    return max(weights, key=weights.__getitem__)
