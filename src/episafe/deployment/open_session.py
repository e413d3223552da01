"""`es.open`, and the session that it returns: beside deploying and learning, all that people ask of it and decide."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.checks import as_index, as_reason
from episafe.deployment.episode_export import export_episodes
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal import Journal
from episafe.deployment.journal_folder import holds_journal, read_head, require_no_file
from episafe.deployment.notices import Notices, Reported, tell
from episafe.deployment.session import Session, Sync
from episafe.deployment.session_book import Deployment, Status, now, num_overdue
from episafe.deployment.session_start import (
    begin_journal,
    catch_up,
    require_agent,
    require_kind,
    require_same_agent,
    require_unused,
)
from episafe.monitors import Alarm, monitors_for
from episafe.problems.policy import Component
from episafe.storage.json_values import as_text

CHECKPOINT_AFTER = 1000  # frames that were lived through again


class OpenSession(Session):
    """A session that people have to do with. Safe to call from several threads."""

    @property
    def head(self) -> str:
        """The hash of the last line of the audit trail: keep it elsewhere, and an audit can compare."""
        return "" if self._journal is None else self._journal.trail.head

    def status(self) -> Status:
        """Deployments, reports, and what is missing."""
        with self._lock:
            book, seen = self.book, {} if self.monitors is None else self.monitors.status()
            return Status(book.started - book.passed, book.reported, book.missing, book.oldest,
                          book.abandoned, book.unannounced,
                          list(book.faults), self.stopped, seen, self.agent.promoted,
                          getattr(getattr(self.agent, "certificate", None), "untraced", 0),
                          num_overdue(book.started, book.waiting), book.unnamed)  # fmt: skip

    @property
    def reported_ids(self) -> frozenset[str]:
        """The names of the episodes that were reported, where they were given one."""
        with self._lock:
            return frozenset(self.book.names)

    @property
    def journal_id(self) -> str:
        """What tells its journal from all others, in hexadecimal digits; "" of a session in memory."""
        return "" if self._journal is None else self._journal.genesis

    def was_reported(self, name: str, deployment: int | None = None) -> bool:
        """Whether an episode of this name, and of this deployment, was reported, and is on the disk."""
        with self._lock:
            known = self.book.knows(name, deployment)
        return known and self._is_kept(None)

    def acting(self, deployment: int) -> Any:
        """What acts in a deployment that waits for its report; None where its plan cannot be had any more, where
        exploration was stopped since, or a person has promoted, withdrawn or changed something, and where nothing can
        be kept any more."""
        if os.getpid() != self._process:
            return None
        with self._lock:
            waiting = self.book.require_waiting(as_index("deployment", deployment))
            plan = self._plan_of(deployment, waiting)
            return (
                None if plan is None else self._acting_in(deployment, self.task.component(plan, waiting.component or 0))
            )

    def add_candidate(self, name: str, policy: Any) -> None:
        """`agent.add_candidate`, while other threads deploy and learn; it is on the disk when this returns."""
        self._require_own_process()
        with self._lock:
            self._require_kept("add it")
            before = self.agent.candidates
            try:
                self.agent.add_candidate(name, policy)
            except BaseException as error:
                if self.agent.candidates is not before:  # not refused: it may be half on trial
                    self._break(f"interrupted while a candidate was added: {type(error).__name__}: {error}")
                raise
            with self._writing("a candidate was added"):
                number = self._keep_candidates()
        self._wait_for_disk(number, "add it")

    def begin_candidates(self) -> None:
        """Put those on trial that the agent was given and the journal does not know, but for those withdrawn."""
        for name in self.agent.candidates:
            if name in self.book.candidates:
                continue
            if name in self.book.withdrawn:
                self.agent.drop_candidate(name)
            else:
                self.agent.begin_candidate(name)
        self._keep_candidates()

    def save_policy(self, name: str, path: str | Path) -> None:
        """Write a policy on trial, or the incumbent, as JSON, with what is proved of it here beside it.

        Args:
            name: as `agent.bounds()` has it.
            path: of the file; docs/policies.md has the schema.
        """
        with self._lock:
            agent, bounds = self.agent, self.agent.bounds()
            policy = agent.policy_named(name)
            settings = agent.settings()
            said = {
                "name": name,
                "bound": None if name not in bounds else np.asarray(bounds[name]).tolist(),
                "threshold": np.asarray(agent.task.limits).tolist(),
                "time": now(),
            }
            said |= {key: settings[key] for key in ("level", "delta", "statement") if key in settings}
            said |= {"reports": self.book.reported, "head": self.head}
        Component(policy.policy, name).save(path, said)

    def export_episodes(self, path: str | Path) -> int:
        """`es.export_episodes` of this session's folder; how many there are."""
        self._require_own_process()
        if self._journal is None:
            raise ValueError("a session in memory keeps no episodes: open one with a folder")
        return export_episodes(self._journal.folder, path, self.agent.task)

    def check(self, *report: Any) -> None:
        """Refuse a report of no plan, as of a log, where `learn` would, and learn nothing."""
        with self._lock:
            self.agent.check(*report)
        as_text(self.task.report_values(*report))  # what a journal can hold

    def resume_exploring(self, reason: str) -> None:
        """Let the agent decide again after a halt. Nothing in episafe calls this: it is for a person who knows why.

        If an alarm of the monitors has halted it, all of them begin anew, on what is deployed from now on.

        Args:
            reason: who lets it go on and why; it is kept.
        """
        reason = as_reason(reason)
        self._require_own_process()
        with self._lock:
            if self.broken or not self.book.halted:
                raise ValueError(f"nothing to resume from: {self.broken or 'the agent explores'}")
            with self._writing("the end of a halt was written"):
                self._write_event(Kind.RESUME, reason)
                self.book.resume()
                self._incumbent = None  # what is promoted has another bound when it is halted again
                if self.monitors is not None:
                    self.monitors.go_on()

    def promote(self, name: str, reason: str) -> None:
        """Let a certified policy act when nothing else may; the incumbent goes on paying for trials.

        It acts where the agent has no better plan, while the session is halted by a person, and where planning fails;
        where nothing can be kept, as on a full disk or after a fork, the incumbent does. After an alarm of the monitors
        that halts, the incumbent acts again, since what is proved may not hold, and nothing else can be promoted until
        a person lets the agent go on (`resume_exploring`). No δ is spent.

        Args:
            name: of a policy on trial whose bound reaches the threshold (`agent.bounds()`); "incumbent" to go back. Of
                what is promoted already nothing changes, and the reason is kept.
            reason: who promotes it and why; it is kept.
        """
        reason = as_reason(reason)
        with self._changing("promote it"):
            self.agent.require_promotable(name)
            if self.book.distrusted and name != INCUMBENT:
                raise ValueError(
                    f"{name!r} cannot be promoted after an alarm of the monitors ({self.book.distrusted}): what is "
                    "proved may not hold. Find out why, and resume_exploring(reason) first"
                )
            with self._writing("a promotion was written"):
                self._promote(name, reason)

    def withdraw(self, name: str, reason: str) -> None:
        """End the trial of a policy: it is deployed no more, what was proved of it is gone, and its δ stays spent.

        Args:
            name: of a policy on trial; if it is promoted, the incumbent is again what acts when nothing else may.
            reason: who withdraws it and why; it is kept.
        """
        reason = as_reason(reason)
        with self._changing("withdraw it"):
            self.agent.require_withdrawable(name)
            with self._writing("a withdrawal was written"):
                self._keep_candidates()
                tell("withdraw", name=name, reason=reason)
                self.agent.withdraw(name)  # obeyed at once, whatever becomes of the disk
                self._write(Kind.WITHDRAW, {"name": name, "reason": reason, "time": now()})
                self.book.withdraw(name)
                self._settle_change()

    def change(
        self, reason: str, threshold: Any = None, slack: Any = None, constants: Any = None, cost_limit: Any = None
    ) -> list[str]:
        """Go on with another limit, slack or constants; what does not survive it, in words.

        Bounds survive, for they do not depend on the threshold; without a new slack the incumbent keeps b + ξ of
        before. A folder is opened again with the agent as it was begun: the journal holds the changes.

        Limits and slacks are given as they were stated at first: of `es.from_gymnasium` in the units of the signal, by
        `threshold` where the limit is on a utility and by `cost_limit` where it is on a cost; of all other tasks in
        those of the task, by `threshold`. Journal and status say b of utilities in [0, 1] a step, as `task.limits`.

        Args:
            reason: who changes it and why; it is kept.
            threshold: b, below what the incumbent is known to have; of several constraints one for each, or by names.
            slack: ξ, what the incumbent is known to have above the threshold, or below the cost limit: a statement of
                yours, like the first one.
            constants: of the planner, `agent.constants.replace(…)`; they touch no guarantee here.
            cost_limit: c, above what the incumbent is known to cost; a number, or by names as the threshold.
        """
        reason = as_reason(reason)
        with self._changing("change it"):
            change = self.agent.as_change(threshold, slack, constants, cost_limit)
            with self._writing("a change was written"):
                self._keep_candidates()
                dropped: list[str] = self.agent.change(change)
                said = {"what": "settings", "reason": reason, **change.as_json(), "dropped": dropped}
                tell("change", **{name: said[name] for name in said if name != "what"})
                self._write(Kind.CHANGE, said | {"settings": self.agent.settings(), "time": now()})
                if self._journal is not None:
                    self._journal.trail.restate(self.agent.task.limits, self.agent.settings())
                self._heed([] if self.monitors is None else self.monitors.change(self.agent.task))
                self._settle_change()
        return dropped

    @contextmanager
    def _changing(self, again: str) -> Iterator[None]:
        """Where a person changes what is deployed: one at a time, and only while it can be kept."""
        self._require_own_process()
        try:
            with self._lock:
                self._require_kept(again)
                yield
                self._require_kept(again)
        finally:
            self._tell_alarms()

    def close(self) -> None:
        """Close in good order; `es.open` goes on later."""
        if os.getpid() != self._process:
            return  # the files are the other process's
        with self._lock:
            broken, self.broken = self.broken, self.broken or "the journal is closed"
            if self._journal is None:
                return
            try:
                if not broken:
                    if self._journal.age > 1.0:
                        self._journal.checkpoint(self.parts)
                    self._journal.append(Kind.CLOSE, {"time": now(), **self.book.closing()})
                    self._journal.close()
            finally:
                self._journal.release()

    def __enter__(self) -> "OpenSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(
    folder: str | Path | None,
    agent: Any,
    *,
    sync: Sync = "each",
    false_alarm: float = 0.01,
    incumbent_version: str = "",
    new_incumbent: str = "",
    on_alarm: Callable[[Alarm], Any] | None = None,
    on_plan: Callable[[Deployment], Any] | None = None,
    on_report: Callable[[Reported], Any] | None = None,
) -> OpenSession:
    """Keep the plans and episodes of an agent in `folder`, or go on with those that are there.

    Args:
        folder: of the journal; made if there is none. One process may have it open. None for a session in memory.
        agent: new, built as it was when the journal was begun: what the folder holds is learned again first. Any
            agent, of bandits too.
        sync: "each": plans and reports are on the disk when `plan` and `learn` return. "plans": reports survive the
            process at once, and a loss of power from the next plan on.
        false_alarm: the probability that the monitors, `es.Monitors` or those of bandits, ever raise a false alarm, or
            raise one again after a person let the agent go on; 0 for no monitors. After an alarm that halts only the
            incumbent is deployed, until a person calls `resume_exploring(reason)`.
        incumbent_version: what you call the incumbent, e.g. a tag of its release. Folders know an incumbent given by a
            function by what it does at the states of the reports; with a version they ask for nothing else.
        new_incumbent: who has replaced the incumbent and why; it is kept. Only once, when a folder is opened with
            another incumbent than before, which is refused without it. What is certified begins anew then.
        on_alarm, on_plan, on_report: functions that are told of every alarm, deployment and report of this session,
            once it is kept; what they raise is logged and nothing else (docs/production.md).

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("streaming")
        >>> agent = es.OPSE(cmdp.task, es.Constants.tuned(cmdp.task))
        >>> rng = np.random.default_rng()  # doctest: +SKIP
        >>> with es.open("shop", agent=agent) as session:  # doctest: +SKIP
        ...     deployed = session.deploy(rng)
        ...     session.learn(es.Episode(states, actions), deployment=deployed.id, episode_id="order 1")
        ...     print(session.status().num_missing)
    """
    require_agent(agent)
    require_unused(agent)
    notices = Notices(on_alarm, on_plan, on_report)
    monitors = monitors_for(agent.task, false_alarm) if false_alarm else None
    version, reason = str(incumbent_version), as_reason(new_incumbent) if new_incumbent else ""
    if folder is None:
        return OpenSession(agent, monitors, None, sync, notices)
    folder = Path(folder)
    require_no_file(folder)
    if not holds_journal(folder):
        begin_journal(folder, agent, {"kind": "live", "created": now(), "incumbent": version})
    head = read_head(folder)
    require_kind(folder, head, "live")
    if head.get("fingerprint_but_incumbent") != agent.fingerprint_but_incumbent():
        require_same_agent(folder, head, agent)
    journal = None
    try:
        journal = Journal(folder, agent.settings(), agent.task.limits)
        session = OpenSession(agent, monitors, journal, sync, notices)
        agent.hold_candidates()
        frames = catch_up(session, journal, version=version, new_incumbent=reason)
        session.begin_candidates()
        if len(frames) >= CHECKPOINT_AFTER:  # who is killed again and again never gets to the next one
            journal.checkpoint(session.parts)
        return session
    except BaseException:
        if journal is not None:
            journal.release()
        raise
