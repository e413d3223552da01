"""A session: deploys plans, waits for reports, and keeps the log.

A writer takes the lock, applies the events that others appended, decides, appends, and applies its own events. So every
process that has the log open is a replica, and any number of them may deploy and report.
"""

import hashlib
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import episafe2
from episafe2.core.agent import Agent, Candidate
from episafe2.core.checks import TOLERANCE, as_reason
from episafe2.core.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe2.core.policy import Mixture
from episafe2.core.task import Task
from episafe2.core.types import INCUMBENT, Array, Episode, Plan
from episafe2.session.deployment import Deployment
from episafe2.session.events import (
    Abandon,
    AlarmRaised,
    Begin,
    Body,
    Decide,
    Deploy,
    Event,
    Log,
    LogEvidence,
    MemoryLog,
    NewCandidate,
    RecordedEpisode,
    RecordedEvidence,
    Report,
    as_numbers,
    decode_lines,
    encode_lines,
)
from episafe2.session.file_log import FileLog
from episafe2.session.monitors import REMEDIES, Alarm, range_alarms
from episafe2.session.state import SessionState, UnknownPolicy, fingerprint, identity, limits_of

MOST_PENDING = 20_000  # a deployment that is pending while so many later ones were made is abandoned
PLAN = "plan"  # the name of a policy that is no candidate
logger = logging.getLogger("episafe")


def open_log(location: str | Path | None, name: str | None = None) -> Log:
    """Return the log at a folder or a PostgreSQL address; one in memory for None."""
    if location is None:
        return MemoryLog()
    if str(location).startswith(("postgresql://", "postgres://")):
        if not name:
            raise ValueError('a session on PostgreSQL needs a name: es.open(address, agent, name="shop")')
        try:
            from episafe2.session.postgres_log import PostgresLog
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
) -> "Session":
    """Open a session, or begin one.

    Args:
        location: a folder, a "postgresql://…" address, or None for a log in memory.
        agent: a new agent that was built as when the session began.
        name: the session, where one location has several; PostgreSQL needs it.
        false_alarm: the probability of a false alarm of all monitors together; 0 for no tests. Fixed at the beginning.
        timeout: seconds that planning may take before the last plan or the incumbent acts; None for no limit.
    """
    return Session(open_log(location, name), agent, false_alarm=false_alarm, timeout=timeout)


class Session:
    """A live session. Threads may share it.

    Attributes:
        log: where the events are.
        state: what follows from them.
        agent: plans and learns.
    """

    def __init__(self, log: Log, agent: Agent, *, false_alarm: float = 0.01, timeout: float | None = None) -> None:
        self.log, self.agent, self.timeout = log, agent, timeout
        self.state = SessionState(agent)
        self._mutex = threading.RLock()
        self._latest: Plan | None = None  # of an agent without a certifier
        self._worker: ThreadPoolExecutor | None = None
        self._job: Future[str] | None = None
        self._unlogged: list[str] = []
        self._acting: dict[int, Plan] = {}  # plans of pending deployments made here
        self._transact(lambda: [] if self.state.begin else [self._first_event(false_alarm)])
        self._add_given_candidates()

    def _first_event(self, false_alarm: float) -> Begin:
        task = self.agent.task
        if not 0 <= false_alarm < 1:
            raise InvalidProblem(f"false_alarm must be in [0, 1), got {false_alarm}: give e.g. 0.01, or 0 for no tests")
        return Begin(
            fingerprint(task),
            identity(task.incumbent),
            limits_of(task),
            task.horizon,
            self.agent.settings(),
            float(false_alarm),
            secrets.token_hex(16),
            str(episafe2.__version__),
            task.units.get("reward", ""),
        )

    @property
    def task(self) -> Task:
        """Return the task with the limits that hold now."""
        return self.state.task

    @property
    def head(self) -> str:
        """Return the hash of the last event: keep it elsewhere, and an audit detects every change of the log."""
        return self.state.head

    # writing

    def _follow(self) -> None:
        """Apply the events that others appended."""
        state = self.state
        state.apply(decode_lines(self.log.read(state.number), state.number, state.head))

    def _transact(self, decide: Callable[[], Sequence[Body]]) -> list[Event]:
        """Decide under the lock, by all events so far; append, apply and wait until that is durable."""
        with self._mutex:
            with self.log.lock():
                self._follow()
                notes = [AlarmRaised("log", text, False) for text in self._unlogged]
                lines, events = encode_lines([*decide(), *notes], self.state.number, self.state.head)
                if lines:
                    self.log.append(lines, self.state.number)
            self.state.apply(events)
            self._unlogged.clear()
        if events:
            self.log.sync()
        return events

    def _log_due_alarms(self) -> None:
        """Log what the tests have found."""
        if self.state.due_alarms():
            for event in self._transact(lambda: [_alarm_body(one) for one in self.state.due_alarms()]):
                logger.warning("alarm: %s", event.body)

    def refresh(self) -> None:
        """Apply the events that other processes appended; `deploy` and `report` do so by themselves."""
        with self._mutex:
            self._follow()

    # deploying

    def deploy(self, episode_id: str = "") -> Deployment:
        """Draw the policy for the next episode and log it; a context manager that reports when it is left.

        Args:
            episode_id: your name for the episode. A second call with the name of a pending deployment returns that one.
        """
        made: list[Deployment] = []
        try:
            problem = self._prepare()
            self._transact(lambda: self._decide_deployment(episode_id, problem, made))
        except OSError as error:
            reason = f"the log cannot be written: {error}"
            with self._mutex:
                if len(self._unlogged) < 100:
                    self._unlogged.append(f"a deployment was not logged. {reason}. {REMEDIES['log']}")
            logger.error("episafe: %s", reason)
            return Deployment(self, self.task, None, self._fallback(reason), None, INCUMBENT, np.random.default_rng)
        return made[0]

    def _decide_deployment(self, episode_id: str, problem: str, made: list[Deployment]) -> list[Body]:
        """Return the events of a deployment; its handle is put into `made`."""
        state, found = self.state, self.state.with_episode_id(episode_id) if episode_id else None
        if found is not None and found not in state.pending:
            raise InvalidEpisode(f"episode {episode_id!r} was deployed and ended as {found}: give another episode_id")
        if found is not None:
            body = state.pending[found][0]
            plan = self._acting.get(found, state.plan_of(body))
            made.append(self._handle(body, replace(plan, id=found)))
            return []
        old = state.num_deployed - MOST_PENDING
        events: list[Body] = [
            Abandon(id, f"not reported while {MOST_PENDING} later deployments were made")
            for id in list(state.pending)[:100]
            if id < old
        ]
        plan = replace(self._plan(problem), id=state.num_deployed)
        weights = self._weights(plan)
        component = toss(weights, self._uniform(plan.id))
        body = Deploy(
            plan.id,
            weights,
            component,
            as_numbers(plan.bounds),
            plan.source,
            plan.level,
            plan.reason,
            episode_id,
            as_numbers(np.array([plan.lam]))[0],
        )
        made.append(self._handle(body, plan))
        if component not in state.policies:
            self._acting[plan.id] = plan
            for gone in [id for id in self._acting if id not in state.pending and id != plan.id]:
                del self._acting[gone]
        return [*events, body]

    def _handle(self, body: Deploy, plan: Plan) -> Deployment:
        index = list(body.weights).index(body.component) if isinstance(plan.policy, Mixture) else None
        return Deployment(self, self.task, body.id, plan, index, body.component, lambda: self._generator(body.id))

    def _weights(self, plan: Plan) -> dict[str, float]:
        """Return the weights of a plan by the names that the log knows."""
        if isinstance(plan.policy, Mixture):
            return dict(zip(plan.policy.names, plan.policy.weights.tolist(), strict=True))
        if plan.source == "safe":
            return {INCUMBENT: 1.0}
        return {plan.policy.name if plan.policy.name in self.state.policies else PLAN: 1.0}

    def _uniform(self, deployment: int) -> float:
        """Return the number in [0, 1) that tosses the coin of a deployment: an audit can toss it again."""
        assert self.state.begin is not None
        return coin_of(self.state.begin.salt, deployment)

    def _generator(self, deployment: int) -> np.random.Generator:
        assert self.state.begin is not None
        seed = hashlib.sha256(f"{self.state.begin.salt}:{deployment}:actions".encode()).digest()
        return np.random.default_rng(int.from_bytes(seed[:16], "big"))

    # planning

    def _plan(self, problem: str) -> Plan:
        """Return the plan of the next deployment."""
        state = self.state
        halting = [one for one in state.due_alarms() if one.halts]
        if state.halt_reason or halting:
            return self._fallback(state.halt_reason or halting[0].message)
        try:
            plan = state.certifier.plan() if state.certifier is not None else self._latest
        except Exception as error:
            return self._fallback(f"planning failed: {type(error).__name__}: {error}")
        if plan is None:
            return self._fallback(problem or "no plan was made yet")
        policies = plan.policy.components if isinstance(plan.policy, Mixture) else (plan.policy,)
        unknown = [one.name for one in policies if isinstance(one, UnknownPolicy)]
        if unknown:
            return self._fallback(f"this process does not know the policy {unknown[0]!r}: give it to the agent")
        return replace(plan, reason=problem) if problem and not plan.reason else plan

    def _fallback(self, reason: str) -> Plan:
        """Return the plan that lets the incumbent act: the one fallback of a session."""
        bounds = np.full(self.task.num_constraints, np.nan)
        return Plan(self.task.incumbent, "safe", bounds, self.agent.level, reason)

    def _prepare(self) -> str:
        """Let the agent learn and plan, or propose; return why it could not, or ""."""
        self._add_given_candidates()
        if self.state.halt_reason or not self._is_planning_due():
            return ""
        if self.timeout is None:
            if not self.state.learning.acquire(blocking=self.agent.certifier is None and self._latest is None):
                return ""  # another thread plans: use the last plan
            try:
                with self._mutex:
                    return self._work()
            finally:
                self.state.learning.release()
        with self._mutex:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="episafe-planner")
            if self._job is None or self._job.done():
                self._job = self._worker.submit(self._work_alone)
            job = self._job
        try:
            return job.result(self.timeout)
        except Late:
            return f"planning takes longer than {self.timeout:g} s"

    def _is_planning_due(self) -> bool:
        if self.state.certifier is None:
            return True
        try:
            with self._mutex:
                return self.agent.proposer is not None and self.state.certifier.goal() is not None
        except Exception:
            return True  # `_work` will say why

    def _work_alone(self) -> str:
        with self.state.learning:
            before = self.state.number
            problem = self._work()
            # an error while others changed the certifier says nothing about the planner: try again next time
            return problem if self.state.number == before else ""

    def _work(self) -> str:
        """Learn what waits; then plan, or put a proposal on trial. Return why that failed, or ""."""
        try:
            self.state.learn()
            certifier, proposer = self.agent.certifier, self.agent.proposer
            if certifier is None:
                self._latest = self.agent.plan()
            elif proposer is not None:
                candidate = certifier.consult(proposer)
                if candidate is not None:
                    self._transact(lambda: self._proposal(candidate))
        except OSError:
            raise
        except Exception as error:
            logger.exception("episafe: planning failed")
            return f"planning failed: {type(error).__name__}: {error}"
        return ""

    def _proposal(self, candidate: Candidate) -> list[Body]:
        """Return the event of a proposal, unless another process made one meanwhile."""
        assert self.state.certifier is not None
        if self.state.certifier.goal() is None or candidate.name in self.state.candidates:
            return []
        return [self._candidate_body(replace(candidate, proposer=candidate.proposer or "proposer"))]

    def _candidate_body(self, candidate: Candidate) -> NewCandidate:
        try:
            document = candidate.policy.document()
        except TypeError:
            document = None
        self.state.offer(candidate)
        reward, lam = as_numbers(np.array([candidate.reward, candidate.lam]))
        least = None if candidate.least_totals is None else as_numbers(candidate.least_totals)
        return NewCandidate(candidate.name, candidate.proposer, document, reward, lam, least, candidate.statistics)

    def _add_given_candidates(self) -> None:
        """Log the candidates that a user gave to the agent and that the log does not have."""
        new = [one for one in self.agent.candidates if one.name not in self.state.candidates]
        if new and self.agent.certifier is not None:
            self._transact(lambda: [self._candidate_body(one) for one in new if one.name not in self.state.candidates])

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
        found: list[Alarm] = []
        self._transact(lambda: self._decide_report(deployment, read, overridden, found))
        for alarm in found:
            logger.warning("alarm: %s: %s", alarm.monitor, alarm.message)
        self._log_due_alarms()

    def _decide_report(self, deployment: int | None, read: Episode, overridden: int, found: list[Alarm]) -> list[Body]:
        state = self.state
        body = self._pending(deployment)
        names = list(body.weights)
        index = names.index(body.component)
        if read.component not in (None, index) and len(names) > 1:
            raise InvalidEpisode(
                f"component {read.component} acted by the report, but component {index} ({body.component!r}) was "
                "deployed: let the policy act that deploy() returned"
            )
        episode, certifier, evidence = replace(read, component=index), state.certifier, None
        if certifier is not None and not (overridden and not certifier.uses_traces):
            evidence = RecordedEvidence.of(certifier.evidence(body.id, episode))
        found += range_alarms(episode.total_utility, episode.rewards, self.task.least_totals, self.task.horizon)
        if certifier is not None and certifier.uses_traces:
            found += replay_alarms(self.task, episode)
        found[:] = [one for one in found if not state.is_raised(one.monitor)]
        report = Report(body.id, RecordedEpisode.of(episode), evidence, overridden)
        return [report, *(_alarm_body(one) for one in found)]

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

    def abandon(self, deployment: int | None, reason: str = "abandoned", utility: Any = None) -> None:
        """State that a deployment will never be reported: it stays at its worst. `utility` is its total so far."""
        so_far = None if utility is None else tuple(np.atleast_1d(np.asarray(utility, dtype=np.float64)).tolist())
        self._transact(lambda: [Abandon(self._pending(deployment).id, as_reason(reason), so_far)])

    # decisions

    def promote(self, name: str, *, reason: str) -> None:
        """Let a certified policy act wherever the incumbent would; "incumbent" undoes it."""
        self._transact(lambda: [self._promotion(name, as_reason(reason))])

    def _promotion(self, name: str, reason: str) -> Decide:
        bound = self.bounds().get(name)
        if self.state.certifier is None or bound is None:
            raise ValueError(f"no policy {name!r} is certified: there are {', '.join(self.bounds())}")
        if not (bound >= self.task.thresholds - TOLERANCE).all():
            raise ValueError(
                f"{name!r} is proved to reach {bound.tolist()}, below the limits {self.task.thresholds.tolist()}: "
                "promote a policy whose bounds reach them"
            )
        return Decide("promote", reason, name=name)

    def withdraw(self, name: str, *, reason: str) -> None:
        """End the trial of a candidate; the δ that it spent stays spent."""

        def decide() -> list[Body]:
            if self.state.certifier is None or name == INCUMBENT or name not in self.bounds():
                raise ValueError(f"no candidate {name!r} is on trial: there are {', '.join(self.bounds())}")
            return [Decide("withdraw", as_reason(reason), name=name)]

        self._transact(decide)

    def change(self, *, threshold: Any = None, slack: Any = None, reason: str) -> None:
        """Use other thresholds or slacks from now on, one number or one per limit; proved bounds stay valid.

        A threshold above what the incumbent reaches is refused, unless a person states its slack there.
        """
        self._transact(lambda: [self._change(threshold, slack, as_reason(reason))])

    def _change(self, threshold: Any, slack: Any, reason: str) -> Decide:
        if self.state.certifier is None:
            raise TypeError(f"{type(self.agent).__name__} cannot change its limits: begin a new session")
        m, old = self.task.num_constraints, self.task.constraints
        thresholds = self.task.thresholds if threshold is None else np.broadcast_to(np.asarray(threshold, float), (m,))
        if slack is not None:
            slacks: list[float | None] = np.broadcast_to(np.asarray(slack, float), (m,)).tolist()
        else:
            slacks = [
                None if one.slack is None else one.threshold + one.slack - b
                for one, b in zip(old, thresholds.tolist(), strict=True)
            ]
        for one, b, xi in zip(old, thresholds.tolist(), slacks, strict=True):
            if xi is not None and xi <= 0:
                raise Infeasible(
                    f"the incumbent reaches {one.threshold + (one.slack or 0):g} in {one.name}, not {b:g}: state its "
                    "slack there with slack=…, or promote a better policy"
                )
        self.task.with_limits(thresholds.tolist(), slacks)  # raises if the limits are impossible
        return Decide("change", reason, thresholds=tuple(thresholds.tolist()), slacks=tuple(slacks))

    def halt(self, *, reason: str) -> None:
        """Let the incumbent act until `resume`."""
        self._transact(lambda: [Decide("halt", as_reason(reason))])

    def resume(self, *, reason: str) -> None:
        """End a halt; all monitors restart with their full rate of false alarms."""
        self._transact(lambda: [Decide("resume", as_reason(reason))])

    def add_evidence(self, digest: str, rows: int, proves: dict[str, Array], *, reason: str) -> None:
        """Record a log of earlier episodes that was read, and what it proves by policy. It moves no bound."""
        proved = {name: as_numbers(np.atleast_1d(bound)) for name, bound in proves.items()}
        self._transact(lambda: [LogEvidence(digest, rows, proved, as_reason(reason))])

    # what is known

    def bounds(self) -> dict[str, Array]:
        """Return the proved lower bounds (m,) by policy; the incumbent's is stated."""
        with self._mutex:
            return self.state.bounds()

    def status(self) -> dict[str, Any]:
        """Return what a person should know: limits, policies, missing reports, alarms, decisions, warnings."""
        with self._mutex:
            self._follow()
            found = self.state.status()
        if isinstance(self.log, FileLog):
            found["warnings"] += [f"a torn line was cut off and kept in {path}" for path in self.log.torn]
        found["warnings"] += self._unlogged
        return found

    def export(self, path: str | Path) -> int:
        """Write all reported episodes to a Parquet or CSV file that `es.read_episodes` reads; return how many."""
        from episafe2.data.episodes import write_episodes

        with self._mutex:
            lines = list(self.log.read())
        reports = [event.body for event in decode_lines(lines) if isinstance(event.body, Report)]
        episodes = [one.episode.episode(self.task.is_listed) for one in reports]
        return write_episodes(path, episodes, self.task, [str(one.id) for one in reports])

    def close(self) -> None:
        """Close the log; wait for the planner."""
        if self._worker is not None:
            self._worker.shutdown()
        self.log.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def coin_of(salt: str, deployment: int) -> float:
    """Return a number in [0, 1) that is fixed by the private salt and the deployment."""
    return int.from_bytes(hashlib.sha256(f"{salt}:{deployment}".encode()).digest()[:7], "big") / 2**56


def toss(weights: dict[str, float], uniform: float) -> str:
    """Return the component that the coin draws: the first whose cumulative weight exceeds the number."""
    total = 0.0
    for name, weight in weights.items():
        total += weight
        if uniform < total:
            return name
    return max(weights, key=weights.__getitem__)


def _alarm_body(alarm: Alarm) -> AlarmRaised:
    return AlarmRaised(alarm.monitor, alarm.message, alarm.halts)


def replay_alarms(task: Task, episode: Episode) -> list[Alarm]:
    """Return an alarm if `move` and the trace do not give the states and utilities that were reported."""
    if task.move is None or episode.trace is None or episode.states is None:
        return []
    start, chances = episode.trace
    state: Any = start
    for h, w in enumerate(chances):
        if w is None or not _same(state, episode.states[h]):
            break
        state, _, utility = task.move(h, state, int(episode.actions[h]), w)
        if np.abs(np.atleast_1d(utility) - episode.utilities[h]).max() > TOLERANCE:
            text = f"at step {h} `move` gives the utility {utility}, reported is {episode.utilities[h].tolist()}"
            return [Alarm("replay", f"{text}. {REMEDIES['replay']}", False)]
        if not _same(state, episode.states[h + 1]) and h + 1 < len(chances):
            text = f"after step {h} `move` gives the state {state!r}, reported is {episode.states[h + 1]!r}"
            return [Alarm("replay", f"{text}. {REMEDIES['replay']}", False)]
    return []


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)
