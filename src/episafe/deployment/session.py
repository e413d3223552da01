"""A session: an agent in use, with its monitors and, if it is kept, its journal. The only place that halts and counts.

With a journal every plan is on the disk before it is acted on, and every episode before it is acknowledged. Reports
come late, out of order, from many threads, or never; those that never come are counted and shown, because what is
missing may not be missing by chance, and then biases what is certified.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from episafe.checks import as_index, as_reason
from episafe.deployment.journal import Journal, Kind, Part
from episafe.deployment.session_book import Book, Deployment, Status, Waiting, figures, now, remember
from episafe.errors import InvalidEpisode, NotKept
from episafe.monitors import Alarm, halt_reason
from episafe.storage.json_values import as_text, from_text
from episafe.types import HELD

AGAIN = "mend the cause, open the folder again and report this again"
FORKED = "the session was opened before this process was forked"
CHECKPOINT_EVERY = 30.0  # seconds
Sync = Literal["each", "plans"]


class Session:
    """An agent in use; made by `es.open`. Safe to call from several threads.

    If the disk refuses to keep something, or the agent breaks, only the incumbent is deployed from then on, with the
    reason in the plan; nothing that was acknowledged is lost, and opening the folder again goes on from there.

    Args:
        agent: new, built as it was when the journal was begun.
        monitors: what watches it; None for nothing.
        journal: where it is kept; None for a session in memory, with the same rules.
        sync: "each": reports are on the disk when `learn` returns. "plans": with the next plan.
    """

    def __init__(self, agent: Any, monitors: Any = None, journal: Journal | None = None, sync: Sync = "each") -> None:
        if sync not in ("each", "plans"):
            raise ValueError(f'sync must be "each" or "plans", got {sync!r}')
        self.agent, self.monitors, self._journal, self._sync = agent, monitors, journal, sync
        self.book = Book(agent.fingerprint() if journal is not None else "")
        raised = [] if monitors is None else monitors.alarms  # by an earlier run that they watched
        self.book.halted = halt_reason(raised)
        self.broken = ""  # why nothing can be kept any more
        self._plans: dict[int, Any] = {}
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def task(self) -> Any:
        """The task of the agent."""
        return self.agent.task

    @property
    def head(self) -> str:
        """The hash of the last line of the audit trail: keep it elsewhere, and an audit can compare."""
        return "" if self._journal is None else self._journal.trail.head

    @property
    def reported_ids(self) -> frozenset[str]:
        """The names of the episodes that were reported, where they were given one."""
        with self._lock:
            return frozenset(self.book.names)

    @property
    def stopped(self) -> str:
        """Why only the incumbent is deployed; "" while the agent decides."""
        return self.broken or (f"halted: {self.book.halted}" if self.book.halted else "")

    @property
    def parts(self) -> dict[str, Part]:
        """What a checkpoint holds; nothing where the agent cannot be stored, and is replayed from the beginning."""
        if not self.agent.is_stored:
            return {}
        watching = {} if self.monitors is None else {"monitors": self.monitors}
        return {"agent": self.agent, "book": self.book, **watching}

    def decide(self, round: int | None = None) -> Any:
        """The agent's plan, or the incumbent where it may not decide."""
        if self.stopped:
            return self._held(round)
        return self.agent.plan() if round is None else self.agent.plan(round)

    def _held(self, round: int | None) -> Any:
        """The incumbent; the same plan again where nothing has changed."""
        kept = self._plans.get(HELD)
        if kept is None or kept.reason != self.stopped or round is not None:
            self._plans[HELD] = kept = self.agent.incumbent_plan(self.stopped, round)
        return kept

    def observe(self, plan: Any, report: tuple[Any, ...], plan_id: int | None) -> list[Alarm]:
        """Let the agent learn a report of a plan, and the monitors see it; what they say.

        A report of no plan, or of one long gone, is not shown to them.
        """
        self.agent.learn(*report, plan_id=None if plan_id == HELD else plan_id)
        if self.monitors is None or plan is None:
            return []
        alarms: list[Alarm] = self.monitors.watch_report(plan, *report)
        return alarms

    def plan(self, round: int | None = None) -> Any:
        """The plan for one more episode: each call is one deployment, and `plan.deployment` its id.

        It is on the disk when this returns. The caller draws who acts, by `plan.policy.draw(rng)`.

        Args:
            round: k, for bandits whose arms change with the round; by default the number of observations.
        """
        return self._deploy(round, None).plan

    def deploy(self, rng: np.random.Generator, round: int | None = None) -> Deployment:
        """One more deployment, its coin tossed: both are on the disk when this returns.

        Args:
            rng: tosses the coin of a mixture.
            round: as for `plan`.
        """
        return self._deploy(round, rng)

    def learn(
        self,
        *report: Any,
        plan_id: int | None = None,
        deployment: int | None = None,
        episode_id: str | int | None = None,
    ) -> None:
        """Take in one episode; when this returns, it is on the disk.

        Args:
            report: what was seen: an `es.Episode`; of a bandit action, reward and utility.
            plan_id: the plan that was deployed, however long ago; None for an episode from elsewhere.
            deployment: the id of the deployment, in place of its plan: once, however late.
            episode_id: a name of yours. The same one twice is refused, so that a report may be repeated after a crash.

        Raises:
            InvalidEpisode: it does not fit, or was reported before; nothing is changed.
            NotKept: the disk refused it; report it again when the folder was opened anew.
        """
        self._require_own_process()
        with self._lock:
            if self.broken:
                raise NotKept(f"{self.broken}: {AGAIN}")
            name = None if episode_id is None else str(episode_id)
            if name is not None and name in self.book.names:
                raise InvalidEpisode(f"episode {name!r} was reported before: nothing was changed")
            plan_id, deployment, report = self._matched(plan_id, deployment, report)
            number = self._learn(report, plan_id, deployment, name)
        if self._sync == "each" and not self._is_kept(number):
            raise NotKept(f"{self.broken}: {AGAIN}")

    def abandon(self, deployment: int) -> None:
        """Say that a deployment will never be reported; a report of it is refused from now on."""
        self._require_own_process()
        with self._lock:
            deployment = as_index("deployment", deployment)
            self._require_waiting(deployment)
            with self._writing("a deployment was abandoned"):
                number = self._write(Kind.ABANDON, {"deployment": deployment, "time": now()})
                self.book.abandon(deployment)
        if not self._is_kept(number):
            raise NotKept(f"{self.broken}: {AGAIN}")

    def check(self, *report: Any) -> None:
        """Refuse a report that does not fit the task, and learn nothing."""
        self.agent.check(*report)

    def halt(self, reason: str) -> None:
        """Deploy the incumbent from now on. Learning goes on. Opening the folder again does not undo it.

        Raises:
            NotKept: this session is halted, and the disk does not know: halt it again when the folder was opened anew.
        """
        self._require_own_process()
        with self._lock:
            self.book.halted = as_reason(reason)  # obeyed at once, whatever becomes of the disk
            if self.broken:
                raise NotKept(f"{self.broken}: this session is halted; halt it again when the folder was opened anew")
            with self._writing("a halt was written"):
                self._write_event(Kind.HALT, "halt", reason)

    def resume_exploring(self, reason: str) -> None:
        """Let the agent decide again after a halt. Nothing in episafe calls this: it is for a person who knows why.

        Args:
            reason: who lets it go on and why; it is kept.
        """
        reason = as_reason(reason)
        self._require_own_process()
        with self._lock:
            if self.broken or not self.book.halted:
                raise ValueError(f"nothing to resume from: {self.broken or 'the agent explores'}")
            with self._writing("the end of a halt was written"):
                self._write_event(Kind.RESUME, "resume", reason)
                self.book.halted = ""

    def status(self) -> Status:
        """Deployments, reports, and what is missing."""
        with self._lock:
            book, seen = self.book, {} if self.monitors is None else self.monitors.status()
            return Status(book.started, book.reported, book.missing, book.oldest, book.abandoned, book.unannounced,
                          list(book.faults), self.stopped, seen)  # fmt: skip

    def close(self) -> None:
        """Close in good order; `es.open` goes on later."""
        if os.getpid() != self._process:
            return  # the files are the other process's
        with self._lock:
            try:
                if self._journal is not None and not self.broken:
                    if self._journal.age > 1.0:
                        self._journal.checkpoint(self.parts)
                    self._journal.append(Kind.CLOSE, {"time": now()})
                    self._journal.close()
            finally:
                self.broken = self.broken or "the journal is closed"
                if self._journal is not None:
                    self._journal.release()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remember(self, plans: Iterable[Any]) -> None:
        """For the monitors, which must know the plan of a report; the oldest are forgotten."""
        remember(self._plans, plans)

    def _deploy(self, round: int | None, rng: np.random.Generator | None) -> Deployment:
        if os.getpid() != self._process:
            return self._unkept(round, FORKED)
        round = None if round is None else as_index("round", round)
        if rng is not None and not hasattr(rng, "random"):
            raise TypeError(f"deploy needs a numpy Generator for the coin, got {rng!r}")
        with self._lock:
            try:
                plan = self._attempt(round)
                if self.broken:
                    return self._unkept(round)
                component, policy = (0, plan) if rng is None else self.agent.task.draw(plan, rng)
                number, written = self._write_deployment(plan, round, None if rng is None else component)
            except Exception as error:  # whatever went wrong, the incumbent is safe
                self._break(f"the journal cannot be written: {error}")
                return self._unkept(round)
            except BaseException as error:  # agent and disk may differ by half a plan
                self._break(f"interrupted while planning: {type(error).__name__}")
                raise
        if not self._is_kept(written):
            return self._unkept(round)
        return Deployment(number, replace(plan, deployment=number), component, policy)

    def _attempt(self, round: int | None) -> Any:
        """What to deploy: the incumbent too where the agent fails, or was used by somebody else."""
        try:
            plan = self.decide(round)
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            reason = f"planning failed: {type(error).__name__}: {error}"
            self._note_fault(reason)
            return self.agent.incumbent_plan(reason, round)
        if plan.id not in (HELD, self.book.newest, self.book.newest + 1):
            newest = self.book.newest
            self._break(f"plan {plan.id} does not follow plan {newest}: the agent was used outside of its session")
        return plan

    def _unkept(self, round: int | None, reason: str = "") -> Deployment:
        """The incumbent, of which nothing is written down."""
        plan = self.agent.incumbent_plan(reason or self.broken, round)
        return Deployment(HELD, plan, 0, plan.policy)

    def _write_deployment(self, plan: Any, round: int | None, component: int | None) -> tuple[int, int]:
        """Write a deployment down; its id, and the number of its frame."""
        book, journal, when = self.book, self._journal, now()
        if journal is not None and ((plan.id, plan.reason) != book.in_force or round is not None):
            notes = {**figures(self.agent, plan), "time": when, "round": round, "failed": plan.failed}
            line = journal.trail.line(book.deployed(notes))
            journal.append(Kind.PLAN, {**notes, "trail": journal.trail.head}, lines=[line])
        book.in_force = (plan.id, plan.reason)
        self.remember([plan])
        coin = {"id": book.started, "plan": plan.id, "component": component, "time": when}
        written = self._write(Kind.DEPLOY, coin)
        number = book.deploy(plan.id, component, when)
        if journal is not None and journal.age > CHECKPOINT_EVERY:
            journal.checkpoint(self.parts)
        return number, written

    def _matched(
        self, plan_id: Any, deployment: int | None, report: tuple[Any, ...]
    ) -> tuple[int | None, int | None, tuple[Any, ...]]:
        """Plan and deployment that a report is of, and the report with the component that acted."""
        plan_id = None if plan_id is None else as_index("plan_id", plan_id, least=HELD)
        if deployment is None:
            return plan_id, self.book.deployment_of(plan_id), report
        deployment = as_index("deployment", deployment)
        waiting = self._require_waiting(deployment)
        if plan_id not in (None, waiting.plan):
            raise InvalidEpisode(f"deployment {deployment} is of plan {waiting.plan}, not of plan {plan_id}")
        return waiting.plan, deployment, self.agent.task.with_component(report, waiting.component)

    def _require_waiting(self, deployment: int) -> Waiting:
        if deployment not in self.book.waiting:
            raise InvalidEpisode(f"deployment {deployment!r} was never made, or was reported or abandoned before")
        return self.book.waiting[deployment]

    def _learn(self, report: tuple[Any, ...], plan_id: int | None, deployment: int | None, name: str | None) -> int:
        """Learn a report and write it down; the number of its frame."""
        text = as_text(self.agent.task.report_values(*report))
        plan = None if plan_id is None else self._plans.get(plan_id)
        try:
            alarms = self.observe(plan, self.agent.task.report_from(from_text(text)), plan_id)
        except InvalidEpisode:
            raise
        except BaseException as error:  # the agent may be half changed: it must not decide any more
            self._note_fault(f"learning failed: {type(error).__name__}: {error}")
            self._break(f"learning failed: {type(error).__name__}: {error}")
            raise
        asked = halt_reason(alarms)
        with self._writing("a report was written"):
            halts = bool(asked) and not self.book.halted
            self.book.halted = self.book.halted or asked  # obeyed at once, whatever becomes of the disk
            notes = {"plan": plan_id, "deployment": deployment, "id": name, "time": now(), "values": text}
            number = self._write(Kind.REPORT, notes)
            self.book.report(deployment, name, f"{plan_id} {text}\n")
            for alarm in alarms:
                self._note_fault(f"alarm of the monitors, {alarm.what}: {alarm.says}")
            if halts:
                self._write_event(Kind.HALT, "halt", asked)
        return number

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Where memory and disk change together: if they may differ afterwards, only the incumbent acts."""
        try:
            yield
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")
            raise NotKept(f"{self.broken}: {AGAIN}") from error
        except BaseException as error:
            self._break(f"interrupted while {what}: {type(error).__name__}: {error}")
            raise

    def _require_own_process(self) -> None:
        """Before any lock is waited for: after a fork nobody gives it back here."""
        if os.getpid() != self._process:
            raise NotKept(f"{FORKED}: open it in one process, after that")

    def _write_event(self, kind: Kind, what: str, reason: str) -> None:
        """A halt, or its end: in the log and in the trail, and on the disk when this returns."""
        if self._journal is not None and not self.broken:
            when = now()
            line = self._journal.trail.event(what, reason=reason, time=when)
            self._journal.append(kind, {"reason": reason, "time": when}, lines=[line])
            self._journal.sync()

    def _write(self, kind: Kind, notes: Mapping[str, Any]) -> int:
        return 0 if self._journal is None else self._journal.append(kind, notes)

    def _is_kept(self, number: int) -> bool:
        """Wait until a frame is on the disk, together with other threads; whether it is."""
        if self._journal is None:
            return True
        try:
            self._journal.sync(number)
        except OSError as error:
            with self._lock:
                self._break(f"the journal cannot be written: {error}")
            return False
        return True

    def _note_fault(self, reason: str) -> None:
        self.book.faults.append(reason)
        try:
            self._write(Kind.FAULT, {"reason": reason})
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")

    def _break(self, reason: str) -> None:
        """Give up writing: what is in memory may be ahead of what is on the disk, so only the incumbent is deployed."""
        self.broken = self.broken or reason
        self.book.faults.append(reason)
        if self._journal is not None:
            self._journal.release()
