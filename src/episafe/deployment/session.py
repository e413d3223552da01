"""A live system's journal: every plan is on the disk before it is acted on, every episode before it is acknowledged.

Reports come late, out of order, from many threads, or never; those that never come are counted and shown, because what
is missing may not be missing by chance, and then biases what is certified.
"""

import json
import operator
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from episafe.agents.base import FAILED, Agent, Episode, Plan, as_reason
from episafe.agents.opse import PLANS_REMEMBERED
from episafe.deployment.agent_recipe import recipe, write_recipe
from episafe.deployment.checkpoint import restore_newest, write_checkpoint
from episafe.deployment.folder import Journal, beginning, holds_journal, read_head, refuse_used, write_head
from episafe.deployment.replay import differing
from episafe.deployment.tally import Status, Tally
from episafe.errors import DamagedFile, InvalidEpisode, NotKept
from episafe.monitors import Alarm
from episafe.monitors.base import Watch
from episafe.problems.policy import MixturePolicy
from episafe.runs.tape import StateHash, log_dets
from episafe.storage.audit_trail import Deployed, Trail
from episafe.storage.frames import Frame, Kind
from episafe.storage.json_values import as_text, from_text
from episafe.storage.toml_settings import versions

CHECKPOINT_EVERY = 30.0  # seconds
HELD = -1  # the number of a plan that is not the agent's: the incumbent, because something else went wrong
Sync = Literal["each", "plans"]


class Opened:
    """An agent with its journal; made by `es.open`. Safe to call from several threads.

    If the disk refuses to keep something, or the agent breaks, only the incumbent is deployed from then on, with the
    reason in the plan; nothing that was acknowledged is lost, and opening the folder again goes on from there.
    """

    def __init__(self, folder: Path, agent: Any, sync: Sync = "each", monitors: Watch | None = None) -> None:
        if sync not in ("each", "plans"):
            raise ValueError(f'sync must be "each" or "plans", got {sync!r}')
        refuse_used(agent)
        if not holds_journal(folder):
            self._begin(folder, agent)
        head = read_head(folder)
        if head["kind"] != self.kind:
            raise ValueError(
                f"{folder} is a journal of kind {head['kind']!r}, not {self.kind!r}: choose another folder"
            )
        if head["fingerprint"] != agent.fingerprint():
            raise ValueError(
                f"{folder} was begun with another agent or task ({_differing(head, agent)}): build both as they were, "
                "or begin a new folder"
            )
        self._sync, self._checkpointed = sync, time.monotonic()
        self._journal = Journal(folder, agent.settings(), agent.task.threshold)
        self._prepare(agent, self._journal.trail, self._journal.log.path, monitors)
        try:
            self._known = restore_newest(self._journal, agent, monitors)
            self._plans.update({plan.id: plan for plan in agent.recent_plans()})
            self._journal.continue_trail([line for frame in self._journal.log.frames for line in self.taken_up(frame)])
        except BaseException:
            self._journal.release()
            raise
        self._journal.log.frames.clear()  # a live system runs for months
        if self._alarmed:  # the process ended between an alarm and its halt
            self._halt(self._alarmed)

    @classmethod
    def for_audit(cls, path: Path, agent: Any, trail: Trail) -> "Opened":
        """One that only takes up frames, and writes nothing."""
        made = cls.__new__(cls)
        made._prepare(agent, trail, path, None)
        return made

    def _prepare(self, agent: Any, trail: Trail, path: Path, monitors: Watch | None) -> None:
        self.agent, self._trail, self._path, self._monitors = agent, trail, path, monitors
        self._stopped, self._broken, self._alarmed = "", False, ""
        self._lock = threading.Lock()
        self._tally, self._state = Tally(), StateHash(agent.fingerprint())
        self._in_force: tuple[int, str] | None = None
        self._plans: dict[int, Any] = {}
        self._newest, self._known = -1, 0

    kind = "live"

    @property
    def task(self) -> Any:
        """The task of the agent."""
        return self.agent.task

    @property
    def head(self) -> str:
        """The hash of the last line of the audit trail: keep it elsewhere, and an audit can compare."""
        return self._trail.head

    @property
    def reported_ids(self) -> frozenset[str]:
        """The names of the episodes that are on the disk, where they were given one."""
        with self._lock:
            return frozenset(self._tally.ids)

    def check(self, episode: Episode) -> None:
        """Refuse an episode that does not fit the task, and learn nothing."""
        self.agent.check(episode)

    def plan(self) -> Plan:
        """The plan for one more episode: each call is one deployment. It is on the disk when this returns."""
        found: Plan = self._deploy(())
        return found

    def learn(self, episode: Episode, plan_id: int | None = None, episode_id: str | int | None = None) -> None:
        """Take in one episode; when this returns, it is on the disk.

        Args:
            episode: what was seen.
            plan_id: the plan that was deployed, however long ago; None for an episode from elsewhere.
            episode_id: a name of yours. The same one twice is refused, so that a report may be repeated after a crash.

        Raises:
            InvalidEpisode: it does not fit, or was reported before; nothing is changed.
            NotKept: the disk refused it; report it again when the folder was opened anew.
        """
        seen = (episode.rewards, episode.utilities)
        self._report([episode.states, episode.actions, *seen, episode.component], plan_id, episode_id)

    def halt(self, reason: str) -> None:
        """Deploy the incumbent from now on. Learning goes on. Opening the folder again does not undo it."""
        with self._lock:
            self._halt(reason)

    def resume_exploring(self, reason: str) -> None:
        """Let the agent decide again after a halt. Nothing in episafe calls this: it is for a person who knows why.

        Args:
            reason: who lets it go on and why; it is kept.
        """
        with self._lock:
            if self._broken or not self._stopped:
                raise ValueError(f"nothing to resume from: {self._stopped or 'the agent explores'}")
            self._journal.log.append(Kind.RESUME, {"reason": as_reason(reason), "time": _now()})
            self._journal.sync()
            self._stopped = ""
            self.agent.resume_exploring()

    def status(self) -> Status:
        """Deployments, reports, and what is missing."""
        with self._lock:
            tally = self._tally
            seen = {} if self._monitors is None else self._monitors.status()
            return Status(tally.started, tally.reported, dict(tally.missing), tally.oldest, tally.unannounced,
                          list(tally.faults), self._stopped, seen)  # fmt: skip

    def close(self) -> None:
        """Close in good order; `es.open` goes on later."""
        with self._lock:
            try:
                if not self._broken:
                    self._checkpoint(1.0)
                    self._journal.log.append(Kind.CLOSE, {"time": _now()})
                    self._journal.close()
            finally:
                self._stopped = self._stopped or "the journal is closed"
                self._broken = True
                self._journal.release()

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, arguments: tuple[Any, ...]) -> Any:
        return self.agent.plan(*arguments)

    def _feed(self, values: list[Any], plan_id: int | None) -> Any:
        """Let the agent learn what `_report` keeps; returns what monitors are shown."""
        episode = Episode(*values)
        self.agent.learn(episode, plan_id=plan_id)
        return episode

    def _alarms(self, plan: Any, seen: Any) -> list[Alarm]:
        """What the monitors say of an episode."""
        found: list[Alarm] = self._monitors.watch(plan, seen)  # type: ignore[union-attr]
        return found

    def _safe_plan(self, reason: str, arguments: tuple[Any, ...]) -> Any:
        return Plan(self.agent.task.safe_policy, "safe", level=self.agent.level, reason=reason, id=HELD)

    def _recipe(self, folder: Path, agent: Any) -> dict[str, str | int | float]:
        assert isinstance(agent, Agent)
        return write_recipe(folder, recipe(agent, None))

    def _begin(self, folder: Path, agent: Any) -> None:
        said: dict[str, str | int | float] = {"kind": self.kind, "fingerprint": agent.fingerprint(), "created": _now()}
        said["agent_settings"] = json.dumps(agent.settings())
        with beginning(folder):
            write_head(folder, said | versions() | self._recipe(folder, agent))

    def _deploy(self, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            try:
                plan = self._attempt(arguments)
                if self._broken:
                    return plan
                self._record(plan, arguments)
            except Exception as error:  # whatever went wrong, the incumbent is safe
                self._break(f"the journal cannot be written: {error}")
                return self._safe_plan(self._stopped, arguments)
            except BaseException as error:  # agent and disk may differ by half a plan
                self._break(f"interrupted while planning: {type(error).__name__}")
                raise
            self._remember(plan)
            return plan

    def _attempt(self, arguments: tuple[Any, ...]) -> Any:
        """The agent's plan, or the incumbent where it may not decide."""
        if self.agent.halted and not self._stopped:  # by somebody who called it, and not this
            self._halt(self.agent.halted)
        if self._stopped:
            return self._safe_plan(self._stopped, arguments)
        try:
            plan = self._make(arguments)
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            reason = f"{FAILED}{type(error).__name__}: {error}"
            self._note_fault(reason)
            return self._safe_plan(reason, arguments)
        if plan.id not in (self._newest, self._newest + 1):
            reason = f"plan {plan.id} does not follow plan {self._newest}: the agent was used outside of its journal"
            self._break(reason)
            return self._safe_plan(reason, arguments)
        return plan

    def _remember(self, plan: Any) -> None:
        """For the monitors; the oldest are forgotten."""
        self._plans[plan.id] = plan
        if plan.id != HELD:
            self._newest = plan.id
            self._plans.pop(plan.id - PLANS_REMEMBERED, None)

    def _refuse_foreign(self, plan_id: int | None) -> None:
        """A report of a plan that was never made."""
        if plan_id is not None and plan_id not in range(self._newest + 1):
            raise InvalidEpisode(f"plan_id {plan_id!r} was not issued by this agent")

    def _record(self, plan: Any, arguments: tuple[Any, ...]) -> None:
        """Write the deployment down; it is on the disk afterwards."""
        journal, when = self._journal, _now()
        if (plan.id, plan.reason) == self._in_force and not arguments:
            journal.log.append(Kind.START, {"plan": plan.id, "time": when})
        else:
            notes = {
                "plan": plan.id, "source": plan.source, "lam": float(plan.lam), "bound": float(plan.utility_bound),
                "log_dets": log_dets(self.agent).tolist(), "time": when, "reason": plan.reason,
                "arguments": list(arguments), "episode": self._tally.started, **_weights(plan),
            }  # fmt: skip
            line = self._trail.line(self._deployed(notes))
            journal.log.append(Kind.PLAN, {**notes, "trail": self._trail.head})
            journal.add_lines([line])
            self._in_force = (plan.id, plan.reason)
        journal.sync()
        self._tally.start(plan.id, when)
        self._checkpoint(CHECKPOINT_EVERY)

    def _checkpoint(self, every: float) -> None:
        """Shorten the way back, now and then."""
        now = time.monotonic()
        if now - self._checkpointed >= every:
            self._journal.sync()
            write_checkpoint(self._journal, self.agent, self._monitors)
            self._checkpointed = now

    def _deployed(self, notes: dict[str, Any]) -> Deployed:
        besides: dict[str, Any] = {name: notes[name] for name in ("time", "reason", "weights") if name in notes}
        figures = (notes["plan"], notes["episode"], notes["source"], notes["lam"], notes["bound"])
        return Deployed(*figures, self._tally.reported, notes["log_dets"], self._state.now(), besides)

    def _report(self, values: list[Any], plan_id: int | None, episode_id: str | int | None) -> None:
        with self._lock:
            if self._broken:
                raise NotKept(f"{self._stopped}: mend the cause, open the folder again and report this again")
            name = None if episode_id is None else str(episode_id)
            if name in self._tally.ids:
                raise InvalidEpisode(f"episode {name!r} was reported before: nothing was changed")
            plan_id, text = _as_plan_id(plan_id), as_text(values)
            values = from_text(text)
            try:
                seen = self._feed(values, None if plan_id == HELD else plan_id)
            except InvalidEpisode:
                raise
            except BaseException as error:  # the agent may be half changed: it must not decide any more
                self._note_fault(f"learning failed: {type(error).__name__}: {error}")
                self._break(f"learning failed: {type(error).__name__}: {error}")
                raise
            try:
                self._keep(text, plan_id, name)
            except OSError as error:
                self._break(f"the journal cannot be written: {error}")
                raise NotKept(
                    f"{self._stopped}: mend the cause, open the folder again and report this again"
                ) from error
            except BaseException as error:  # the agent knows what the disk may not have
                self._break(f"interrupted while a report was written: {type(error).__name__}: {error}")
                raise
            alarms = self._watched(plan_id, seen)
            for alarm in alarms:
                self._note_fault(f"alarm of the monitors, {alarm.what}: {alarm.says}")
            if _halting(alarms) and not self._stopped:
                self._halt(_halting(alarms))

    def _keep(self, text: str, plan_id: int | None, name: str | None) -> None:
        """Write a report down, and count it."""
        self._journal.log.append(Kind.REPORT, {"plan": plan_id, "id": name, "time": _now(), "values": text})
        if self._sync == "each":
            self._journal.sync()
        self._count_report(text, plan_id, name)

    def _count_report(self, text: str, plan_id: int | None, name: str | None) -> None:
        self._state.add(f"{plan_id} {text}\n".encode())
        self._tally.report(plan_id, name)

    def _watched(self, plan_id: int | None, seen: Any) -> list[Alarm]:
        """Show the monitors an episode of a plan; one of no plan, or of one long gone, is not shown."""
        plan = None if plan_id is None else self._plans.get(plan_id)
        return [] if self._monitors is None or plan is None else self._alarms(plan, seen)

    def _halt(self, reason: str) -> None:
        self._stopped = f"halted: {reason}"
        try:
            self._journal.log.append(Kind.HALT, {"reason": reason, "time": _now()})
            self._journal.sync()
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")

    def _note_fault(self, reason: str) -> None:
        self._tally.faults.append(reason)
        try:
            self._journal.fault(reason)
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")

    def _break(self, reason: str) -> None:
        """Give up writing: what is in memory may be ahead of what is on the disk, so only the incumbent is deployed."""
        self._stopped, self._broken = reason, True
        self._tally.faults.append(reason)
        self._journal.release()

    def taken_up(self, frame: Frame) -> list[str]:
        """Go on by one frame; the lines of the trail that it stands for."""
        notes = frame.notes
        try:
            if frame.kind == Kind.PLAN:
                return [self._plan_again(notes, frame.offset >= self._known)]
            if frame.kind == Kind.START:
                if self._in_force is None or notes["plan"] != self._in_force[0]:
                    raise ValueError(f"plan {notes['plan']} was deployed again and not in force")
                self._tally.start(notes["plan"], notes["time"])
            elif frame.kind == Kind.REPORT:
                plan_id, text = notes["plan"], notes["values"]
                if frame.offset >= self._known:
                    seen = self._feed(from_text(text), None if plan_id == HELD else plan_id)
                    self._alarmed = _halting(self._watched(plan_id, seen)) or self._alarmed
                self._count_report(text, plan_id, notes["id"])
            elif frame.kind == Kind.HALT:
                self._stopped, self._alarmed = f"halted: {notes['reason']}", ""
            elif frame.kind == Kind.RESUME:
                self._stopped = ""
                self.agent.resume_exploring()
            elif frame.kind == Kind.FAULT:
                self._tally.faults.append(notes["reason"])
        except DamagedFile:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedFile(f"{self._path}: the frame at byte {frame.offset} says what cannot have "
                              f"happened ({error}): restore the folder from a copy") from error  # fmt: skip
        return []

    def _make_again(self, arguments: tuple[Any, ...], reason: str) -> Any:
        """The agent's plan. If it failed then, and would not now, as when memory was short, it fails again."""
        agent = self.agent
        if not reason.startswith(FAILED):
            return self._make(arguments)
        if agent.is_stored:
            before = agent.state()
            plan = self._make(arguments)
            if plan.reason == reason:
                return plan
            agent.restore(before)
        agent.failed = reason
        try:
            return self._make(arguments)
        finally:
            agent.failed = ""

    def _plan_again(self, notes: dict[str, Any], by_agent: bool) -> str:
        if notes["episode"] != self._tally.started:
            raise DamagedFile(f"{self._path}: {self._tally.started} deployments stand before the one that is called "
                              f"number {notes['episode']}: restore the folder from a copy")  # fmt: skip
        if self._stopped and notes["plan"] != HELD:
            raise DamagedFile(f"{self._path}: plan {notes['plan']} was made by an agent that was "
                              f"{self._stopped}: restore the folder from a copy")  # fmt: skip
        self._newest = max(self._newest, notes["plan"])
        known = ("plan", "source", "lam", "bound", "reason", "log_dets")
        if notes["plan"] != HELD and by_agent:
            plan = self._make_again(tuple(notes["arguments"]), notes["reason"])
            found = (plan.id, plan.source, float(plan.lam), float(plan.utility_bound), plan.reason)
            made = (*found, log_dets(self.agent).tolist(), _weights(plan).get("weights"))
            recorded = tuple(notes[name] for name in known)
            differing(notes["episode"], (*known, "weights"), (*recorded, notes.get("weights")), made)
            self._remember(plan)
        if notes["plan"] == HELD:
            self._remember(self._safe_plan(notes["reason"], tuple(notes["arguments"])))
        line = self._trail.line(self._deployed(notes))
        if self._trail.head != notes["trail"]:
            raise DamagedFile(f"{self._path}: the plan of deployment {notes['episode']} does not follow "
                              "from what was recorded before it: restore the folder from a copy")  # fmt: skip
        self._in_force = (notes["plan"], notes["reason"])
        self._tally.start(notes["plan"], notes["time"])
        return line


def _differing(head: dict[str, Any], agent: Any) -> str:
    """The settings of the agent that are not those of the journal, by name."""
    was, now = json.loads(head.get("agent_settings", "{}")), agent.settings()
    return ", ".join(name for name in now if was.get(name) != now[name]) or "what the task tells"


def _weights(plan: Any) -> dict[str, list[float]]:
    """Those of a mixture, by name; nothing for a policy alone."""
    policy = getattr(plan, "policy", None)
    return {"weights": np.asarray(policy.weights).tolist()} if isinstance(policy, MixturePolicy) else {}


def _halting(alarms: list[Alarm]) -> str:
    """Why to stop exploring; "" if no alarm asks for it."""
    return "; ".join(alarm.says for alarm in alarms if alarm.halts)


def _as_plan_id(value: Any) -> int | None:
    """The number of a plan as a plain one, as it is kept."""
    try:
        return None if value is None else operator.index(value)
    except TypeError as error:
        raise InvalidEpisode(f"plan_id must be a whole number, got {value!r}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
