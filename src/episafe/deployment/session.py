"""A session: an agent in use, with its monitors and, if it is kept, its journal. The only place that halts and counts.

With a journal every plan is on the disk before it is acted on, and every episode before it is acknowledged. Reports
come late, out of order, from many threads, or never; those that never come are counted and shown, because what is
missing may not be missing by chance, and then biases what is certified. What people ask of a session and decide is in
open_session.py.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.checks import as_index, as_reason
from episafe.deployment.asked_policy import AskedPolicy
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.incumbent_identity import IncumbentIdentity
from episafe.deployment.journal import Journal, NewFrame
from episafe.deployment.notices import LOGGER, NOBODY, Notices, Reported, tell
from episafe.deployment.session_book import UNDER_WAY, Book, Deployment, Waiting, figures, now, proved, remember
from episafe.errors import Contradiction, InvalidEpisode, NotKept
from episafe.monitors import Alarm, halt_reason, monitors_for
from episafe.monitors.statements import STATEMENTS, Watched
from episafe.storage.json_values import as_text, from_text
from episafe.types import HELD, amounts

BY_NAME = "from now on only reports that name their deployment count, learn(…, deployment=plan.deployment)"
FORKED = "the session was opened before this process was forked"
CHECKPOINT_EVERY = 30.0  # seconds
ASKED = 256  # deployments whose policies' questions are remembered until their report
ANY_LEVEL = 0.01  # of monitors that are asked for ranges alone, which cannot be wrong
Sync = Literal["each", "plans"]
Done = TypeVar("Done")


class Session:
    """An agent in use. Safe to call from several threads.

    If the disk refuses to keep something, or the agent breaks, only the incumbent is deployed from then on, with the
    reason in the plan; nothing that was acknowledged is lost, and opening the folder again goes on from there.

    Args:
        agent: new, built as it was when the journal was begun.
        monitors: what watches it; None for nothing.
        journal: where it is kept; None for a session in memory, with the same rules.
        sync: "each": reports are on the disk when `learn` returns. "plans": with the next plan.
        notices: who is told of plans, reports and alarms.

    Attributes:
        last_plan: the plan that was deployed last by this process; None before the first.
    """

    def __init__(
        self,
        agent: Any,
        monitors: Any = None,
        journal: Journal | None = None,
        sync: Sync = "each",
        notices: Notices = NOBODY,
    ) -> None:
        if sync not in ("each", "plans"):
            raise ValueError(f'sync must be "each" or "plans", got {sync!r}')
        self.agent, self.monitors, self._journal, self._sync = agent, monitors, journal, sync
        head = None if journal is None else journal.head
        self.book = Book(head["fingerprint"] if head else "")
        self.incumbent: Any = IncumbentIdentity(agent.task, head) if head else None  # what a journal knows of it
        self._is_table = getattr(agent.task, "is_listed", False)  # the incumbent: its fingerprint says all of it
        self._plans: dict[int, Any] = {}  # the agent's last ones that were deployed here
        self._asked: dict[int, AskedPolicy] = {}  # what acts in the last deployments, where states are not listed
        self.first_plan = HELD  # that the agent had in force when it was opened: after a repair nobody deployed it yet
        self.last_plan: Any = None
        self._notices, self._has_listeners = notices, notices != NOBODY
        self._untold: list[Alarm] = []  # alarms that nobody was told of yet
        self._unkept_names: set[str] = set()  # of episodes in which the incumbent acts, since nothing could be kept
        if monitors is not None:  # who may have watched an earlier run
            self.book.halted = halt_reason(monitors.standing)
        self.broken = ""  # why nothing can be kept any more
        self._incumbent: Any = None  # the plan that is deployed while it is stopped
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def task(self) -> Any:
        """The task of the agent."""
        return self.agent.task

    @property
    def stopped(self) -> str:
        """Why only the incumbent is deployed; "" while the agent decides."""
        return self.broken or (f"halted: {self.book.halted}" if self.book.halted else "")

    @property
    def parts(self) -> dict[str, Any]:
        """What a checkpoint holds; nothing where the agent cannot be stored, and is replayed from the beginning."""
        if not self.agent.is_stored:
            return {}
        watching: dict[str, Any] = {}
        if self.monitors is not None:
            watching["monitors"] = SimpleNamespace(state=self.monitors.state, restore=self._restore_monitors)
        return {"agent": self.agent, "book": self.book, "incumbent": self.incumbent, **watching}

    def _restore_monitors(self, state: Mapping[str, Any]) -> None:
        """They hold utilities against the limit that the agent, which was restored before, has come to."""
        if self.agent.task is not self.monitors.task:  # changed, or begun anew after a checkpoint of no use
            self.monitors.keep_to(self.agent.task)
        self.monitors.restore(state)
        if not self.book.halted and halt_reason(self.monitors.standing):
            self.monitors.go_on()  # a person let the agent go on, under a version whose monitors stayed deaf

    def decide(self, round: int | None = None) -> Any:
        """The agent's plan, or the incumbent where it may not decide."""
        if not self.stopped:
            return self.agent.plan() if round is None else self.agent.plan(round)
        if self._incumbent is None or self._incumbent.reason != self.stopped or round is not None:
            self._incumbent = self.instead(self.stopped, round)
        return self._incumbent

    def instead(self, reason: str, round: int | None = None) -> Any:
        """What acts when nothing else may: what was promoted. Where nothing can be kept it is the incumbent that the
        task tells: somebody may have opened the folder since and withdrawn what was promoted, or an alarm has."""
        is_kept = not self.broken and os.getpid() == self._process
        return self.agent.incumbent_plan(reason, round) if is_kept else self.agent.told_plan(reason, round)

    def warm_up(self) -> None:
        """Plan once for nothing, so that all is compiled before anybody waits for a plan: what is planned is forgotten,
        since no frame says when it was."""
        if not self.task.changes and self.agent.is_stored:
            before = self.agent.state()
            self.agent.plan()
            self.agent.restore(before)

    def observe(
        self, plan: Any, report: tuple[Any, ...], plan_id: int | None, deployment: int | None = None, named: bool = True
    ) -> list[Alarm]:
        """Let the agent learn a report, and the monitors see it; what they say.

        Args:
            plan: what was deployed just now, and not counted; None for what was, and for a report of no deployment.
            report: what came of it.
            plan_id: of the plan.
            deployment: the number of a deployment that was counted.
            named: whether it is sure which one it was; if not, monitors count it at its best for ever.
        """
        issued, before = None if plan_id == HELD else plan_id, self.contradicted
        if deployment is None:
            self.agent.learn(*report, plan_id=issued)
        else:
            self.agent.hear(deployment, *report, plan_id=issued, named=named)
        try:
            alarms = self._watched(plan, report, deployment, named)
        except InvalidEpisode as error:  # which means that nothing was learned
            raise RuntimeError(f"the monitors refuse what the agent has learned: {error}") from error
        for what, says in self.contradicted.items():  # whether anybody watches or not
            if says != before[what] and not halt_reason(alarms):
                alarms = [*alarms, Alarm(what, says, self.book.reported + 1, STATEMENTS[what].halts)]
        return alarms

    def _watched(self, plan: Any, report: tuple[Any, ...], deployment: int | None, named: bool) -> list[Alarm]:
        """What the monitors say of a report."""
        if self.monitors is None:
            return []
        if deployment is not None:
            return list(self.monitors.report(deployment, *report) if named else self.monitors.abandon(deployment))
        return [] if plan is None else list(self.monitors.watch_report(plan, *report))

    @property
    def contradicted(self) -> dict[Watched, str]:
        """Why what a certificate has proved, or a part of it, holds no more; "" if it does."""
        if getattr(self.agent, "certificate", None) is None:
            return {}
        return {"range": getattr(self.agent, "void", ""), "replay": getattr(self.agent, "refuted", "")}

    def plan(self, round: int | None = None) -> Any:
        """The plan for one more episode: each call is one deployment, and `plan.deployment` its id.

        It is on the disk when this returns. The caller draws who acts, by `plan.policy.draw(rng)`.

        Args:
            round: k, for bandits whose arms change with the round; by default the number of observations.
        """
        return self._deploy(round, None).plan

    def deploy(
        self, rng: np.random.Generator, round: int | None = None, episode_id: str | int | None = None
    ) -> Deployment:
        """One more deployment, its coin tossed: both are on the disk when this returns.

        Args:
            rng: tosses the coin of a mixture. Without a fixed seed where the program is started anew on its folder:
                with one the first coins fall alike at every start, and a mixture is none.
            round: as for `plan`.
            episode_id: a name of yours for the episode, which its report has too. Asked again by the same name, as
                after a lost answer, it is the same deployment, its coin included; if what acts in it cannot be had any
                more, that one is abandoned, and a new one made.

        Returns:
            The deployment. If its id is −1, nothing could be kept: the incumbent acts, and nothing is to be reported.

        Raises:
            InvalidEpisode: the episode was reported before.
        """
        return self._deploy(round, rng, "" if episode_id is None else str(episode_id))

    def _deploy(self, round: int | None, rng: np.random.Generator | None, name: str = "") -> Deployment:
        if os.getpid() != self._process:
            return self._unkept(round, FORKED)
        round = None if round is None else as_index("round", round)
        if round is not None and self.task.changes:
            self.task.require_round(round)
        if rng is not None and not hasattr(rng, "random"):
            raise TypeError(f"deploy needs a numpy Generator for the coin, got {rng!r}")
        made, written = self._in_turn(lambda: self._under_way(name) or self._make(round, rng, name))
        if made.id != HELD and not self._is_kept(written):
            made = self._unkept(round)
        if made.id == HELD:
            self._unkept_names.add(name)
        self.last_plan = made.plan
        if self._is_heard():
            self._notices.plan(made)
        return made

    def _under_way(self, name: str) -> tuple[Deployment, None] | None:
        """The deployment of this name once more; None where there is none, or none that can be acted on."""
        if name in self.book.names:
            raise InvalidEpisode(f"episode {name!r} was reported before: nothing was deployed")
        number = self.book.called.get(name)
        if number not in self.book.waiting or self.broken:
            return None
        waiting = self.book.waiting[number]
        plan, component = self._plan_of(number, waiting), waiting.component or 0
        if plan is None:
            with suppress(NotKept):  # then the incumbent acts
                self.abandon(number)
            return None
        acting = self._acting_in(number, self.task.component(plan, component))
        return Deployment(number, replace(plan, deployment=number), component, acting), None

    def _plan_of(self, deployment: int, waiting: Waiting) -> Any:
        """The plan of a deployment; None where it cannot be had any more, where somebody has halted it since, where a
        person has changed what may act, where the replays that proved it were refuted, and where nothing is kept."""
        if self.broken or deployment < self.book.changed_at or (waiting.plan != HELD and self.book.halted):
            return None
        if waiting.plan == HELD:  # where arms change nobody knows of which round it was
            return None if self.task.changes else self.instead(self.stopped)
        kept = {plan.id: plan for plan in self.agent.recent_plans()} | self._plans
        return kept.get(waiting.plan)

    def _make(self, round: int | None, rng: np.random.Generator | None, name: str) -> tuple[Deployment, int]:
        """One more deployment, written down, and the number of its frame."""
        try:
            plan = self._attempt(round)
            if self.broken:
                return self._unkept(round), 0
            component, policy = (0, plan) if rng is None else self.task.draw(plan, rng)
            number, written = self._write_deployment(plan, round, None if rng is None else component, name)
        except Exception as error:  # whatever went wrong, the incumbent is safe
            self._break(f"the journal cannot be written: {error}")
            return self._unkept(round), 0
        except BaseException as error:  # agent and disk may differ by half a plan
            self._break(f"interrupted while planning: {type(error).__name__}")
            raise
        acting = policy if rng is None else self._acting_in(number, policy)
        return Deployment(number, replace(plan, deployment=number), component, acting), written

    def _acting_in(self, deployment: int, policy: Any) -> Any:
        """What acts in a deployment; where states are not listed it remembers where it is asked."""
        if self.task.read is None:
            return policy
        before = self._asked.get(deployment)
        self._asked[deployment] = AskedPolicy(policy, self.task, {} if before is None else before.states)
        if len(self._asked) > ASKED:
            del self._asked[next(iter(self._asked))]
        return self._asked[deployment]

    def _attempt(self, round: int | None) -> Any:
        """What to deploy: the incumbent too where the agent fails, or was used by somebody else."""
        try:
            plan = self.decide(round)
        except Exception as error:  # the last resort: whatever went wrong, the incumbent is safe
            reason = f"planning failed: {type(error).__name__}: {error}"
            self._note_fault(reason)
            return self.instead(self.stopped or reason, round)
        newest, known = max(self.book.newest, self.first_plan), self._plans.get(self.book.newest, plan)
        if plan.id not in (HELD, newest, newest + 1) or (plan.id == newest and plan is not known):
            self._break(f"plan {plan.id} does not follow plan {newest}: the agent was used outside of its session")
        return plan

    def _unkept(self, round: int | None, reason: str = "") -> Deployment:
        """The incumbent, of which nothing is written down."""
        plan = self.instead(reason or self.broken, round)
        return Deployment(HELD, plan, 0, self.task.component(plan, 0))

    def _write_deployment(self, plan: Any, round: int | None, component: int | None, name: str) -> tuple[int, int]:
        """Write a deployment down, and tell agent and monitors of it; its id, and the number of its frame."""
        book, journal, when = self.book, self._journal, now()
        self._keep_candidates()
        coin = {"id": book.started, "plan": plan.id, "component": component, "time": when}
        frames = [NewFrame(Kind.DEPLOY, coin | ({"name": name} if name else {}))]
        if journal is not None and ((plan.id, plan.reason) != book.in_force or round is not None):
            notes = {**figures(self.agent, plan), "time": when, "round": round, "failed": plan.failed}
            notes |= {"proved": proved(self.agent, plan)} if notes["names"] else {}
            line = book.line(journal.trail, notes)
            frames.insert(0, NewFrame(Kind.PLAN, {**notes, "trail": journal.trail.head}, lines=(line,)))
        written = 0 if journal is None else journal.append_all(frames)
        book.in_force = (plan.id, plan.reason)
        number = book.deploy(plan.id, component, when, name)
        remember(self._plans, [] if plan.id == HELD else [plan], UNDER_WAY)
        self.agent.expect(plan, number, component)
        self._heed([] if self.monitors is None else self.monitors.expect(number, plan, component))
        if journal is not None and journal.age > CHECKPOINT_EVERY:
            journal.checkpoint(self.parts)
        return number, written

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
            deployment: the id of the deployment, in place of its plan: once, however late. A report by its plan alone
                is believed to be the only one of its deployment: after the first that is one too many, those that do
                not name their deployment prove nothing any more. Where several deployments of a plan are under way,
                only a report by its id counts for the monitors.
            episode_id: a name of yours. The same one twice is refused, so that a report may be repeated after a crash.
                A deployment that was made by this name need not be named otherwise.

        Raises:
            InvalidEpisode: it does not fit, was reported before, or says other states than those at which the policy of
                its deployment was asked (`deployed.policy`; where states are not listed); nothing is learned. If it is
                its rewards or utilities that are outside their range, the monitors halt the session.
            NotKept: the disk refused it; report it again when the folder was opened anew.
        """
        self._require_own_process()
        name = None if episode_id is None else str(episode_id) or None  # "" is no name, as for `deploy`
        number, reported = self._in_turn(lambda: self._take_in(report, plan_id, deployment, name))
        if self._sync == "each":
            self._wait_for_disk(number)
        if self._is_heard():
            self._notices.report(reported)

    def _take_in(
        self, report: tuple[Any, ...], plan_id: int | None, deployment: int | None, name: str | None
    ) -> tuple[int, Reported]:
        """Find out what a report is of, and learn it; the number of its frame, and all that is known of it."""
        if name in self._unkept_names:  # on the disk somebody else may have been drawn for it
            raise InvalidEpisode(f"the incumbent acts in episode {name!r}, and nothing of it is kept: report nothing")
        self._require_kept()
        plan_id = None if plan_id is None else as_index("plan_id", plan_id, least=HELD)
        deployment = None if deployment is None else as_index("deployment", deployment)
        is_told = deployment is not None or name in self.book.called  # by its plan it may be of another one
        plan_id, deployment, name, named = self.book.match(self.agent, plan_id, deployment, name)
        if named and deployment is not None:
            report = self.task.with_component(report, self.book.waiting[deployment].component)
            if is_told and deployment in self._asked:
                self._asked[deployment].require_reported(report[0].states)
        reported, text = Reported(deployment, plan_id, report, name), as_text(self.task.report_values(*report))
        with self._writing("a report was written"):
            number = self._learn(reported, text, named)
        if deployment is not None:
            self._asked.pop(deployment, None)
        return number, reported

    def _learn(self, reported: Reported, text: str, named: bool) -> int:
        """Learn a report, which `text` says all of, and write it down; the number of its frame."""
        deployment, plan_id, report, name = reported
        credited = None if deployment is None else plan_id  # beyond the deployments of a plan nothing is proved
        promoted, refuted = self.agent.promoted, self.agent.refuted
        self._keep_candidates()
        read = self.task.report_from(from_text(text))
        try:
            alarms = self.observe(None, read, credited, deployment, named)
        except InvalidEpisode as error:
            self._heed(self._shown_by(error, report))
            raise
        except BaseException as error:  # the agent may be half changed: it must not decide any more
            self._note_fault(f"learning failed: {type(error).__name__}: {error}")
            self._break(f"learning failed: {type(error).__name__}: {error}")
            raise
        notes = {"plan": plan_id, "deployment": deployment, "named": named, "id": name, "time": now(), "values": text}
        if self.incumbent is not None and not self._is_table:
            notes |= self.incumbent.noted(read)
        number = self._write(Kind.REPORT, notes)
        if plan_id is not None and deployment is None and self.agent.counts_deployments and not self.book.repeats:
            self._note_fault(f"a report of plan {plan_id} is one too many: {BY_NAME}")
        self.book.report(deployment, name, plan_id, text)
        ended = self.book.ended(self.agent, promoted, refuted)
        self._heed(alarms)
        self.demote(ended)
        return number

    def _shown_by(self, error: InvalidEpisode, report: tuple[Any, ...]) -> list[Alarm]:
        """The alarm of a refused report that contradicts what is certified, or that fits but for its range, on which
        every certificate rests, whether anybody watches or not. After an alarm that halts nobody need be told again."""
        if self.book.distrusted:
            return []
        if isinstance(error, Contradiction):
            return [Alarm("range", str(error), self.book.reported + 1, STATEMENTS["range"].halts)]
        certifies = getattr(self.agent, "certificate", None) is not None
        watch = self.monitors or (monitors_for(self.task, ANY_LEVEL) if certifies else None)
        return [] if watch is None else watch.refused(*report)

    def abandon(self, deployment: int) -> None:
        """Say that a deployment will never be reported; a report of it is refused from now on."""
        self._require_own_process()
        deployment = as_index("deployment", deployment)
        self._wait_for_disk(self._in_turn(lambda: self._abandon(deployment)))
        tell("abandon", deployment=deployment)

    def _abandon(self, deployment: int) -> int:
        with self._writing("a deployment was abandoned"):
            self.book.require_waiting(deployment)
            self._keep_candidates()
            number = self._write(Kind.ABANDON, {"deployment": deployment, "time": now()})
            self.book.abandon(deployment)
            self._asked.pop(deployment, None)
            self.agent.abandon(deployment)
            self._heed([] if self.monitors is None else self.monitors.abandon(deployment))
        return number

    def _keep_candidates(self) -> int:
        """Write down who was put on trial since the last frame, as what comes next may depend on it; the last frame."""
        number = 0
        for name in self.agent.candidates:
            if name not in self.book.candidates:
                number = self._write(Kind.CANDIDATE, {"name": name, "time": now()})
                tell("candidate", name=name)
                self.book.add_candidate(name)
        return number

    def halt(self, reason: str) -> None:
        """Deploy the incumbent from now on. Learning goes on. Opening the folder again does not undo it.

        Raises:
            NotKept: this session is halted, and the disk does not know: halt it again when the folder was opened anew.
        """
        reason = as_reason(reason)
        self._require_own_process()
        with self._lock:
            if self.broken:
                self.book.halted = reason
                raise NotKept(f"{self.broken}: this session is halted; halt it again when the folder was opened anew")
            with self._writing("a halt was written"):
                self.book.halted = reason  # obeyed at once, whatever becomes of the disk
                self._write_event(Kind.HALT, reason)

    def _heed(self, alarms: list[Alarm]) -> None:
        """Write down what the monitors say, and halt if they ask for it."""
        if alarms:
            self._untold += alarms
            self.distrust(halt_reason(alarms), alarms)

    def distrust(self, reason: str, alarms: Sequence[Alarm] = ()) -> None:
        """Write alarms down. After those that halt, by the `reason` that they give, only what a person has vouched for
        acts: the incumbent, whatever was promoted. All of it is one write: no kill leaves an alarm without its halt."""
        halts, demotes = bool(reason) and not self.book.halted, bool(reason) and self.agent.promoted != INCUMBENT
        self.book.halted = self.book.halted or reason  # obeyed at once, whatever becomes of the disk
        self.book.distrusted = reason or self.book.distrusted
        frames = [self._fault(f"alarm of the monitors, {one.what}: {one.says}", alarm=one.what) for one in alarms]
        if demotes:
            frames.append(self._promotion(INCUMBENT, f"alarm of the monitors: {reason}"))
        if halts:
            frames.append(self._event(Kind.HALT, reason))
        self._append(frames)
        if demotes:
            self._settle_change()
        elif halts:
            self._sync_trail()

    def demote(self, reason: str) -> None:
        """Where a report has ended what proved the promoted policy: the incumbent acts, and both witnesses say so."""
        if reason:
            self._promote(INCUMBENT, reason)

    def _promote(self, name: str, reason: str) -> None:
        promotion = self._promotion(name, reason)
        self._keep_candidates()
        self._append([promotion])
        self.agent.promote(name)
        self._settle_change()

    def _promotion(self, name: str, reason: str) -> NewFrame:
        """The frame of what acts from now on when nothing else may; the incumbent does at once, whatever becomes of the
        disk."""
        bounds = [] if name == INCUMBENT else amounts(self.agent.bounds()[name]).tolist()
        if name == INCUMBENT:
            self.agent.promote(name)
        tell("promote", name=name, reason=reason)
        return NewFrame(Kind.PROMOTE, {"name": name, "reason": reason, "bounds": bounds, "time": now()})

    def _settle_change(self) -> None:
        """The next deployment writes its plan anew; on the disk when this returns, in both witnesses."""
        self.book.begin_anew()
        self._incumbent = None
        self._sync_trail()

    def _sync_trail(self) -> None:
        if self._journal is not None:
            self._journal.sync_trail()

    def _in_turn(self, act: Callable[[], Done]) -> Done:
        """Act while nobody else does. Who asked for alarms is told of them when all is done, also if it ended in an
        error."""
        try:
            with self._lock:
                return act()
        finally:
            self._tell_alarms()

    def _tell_alarms(self) -> None:
        with self._lock:
            told, self._untold = self._untold, []
        for alarm in told:
            self._notices.alarm(alarm)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Where memory and disk change together: if they may differ afterwards, only the incumbent acts. They do not
        where it is a report that was refused: then nothing was changed."""
        try:
            yield
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")
            raise self._not_kept("report this") from error
        except InvalidEpisode:
            raise
        except BaseException as error:
            self._break(f"interrupted while {what}: {type(error).__name__}: {error}")
            raise

    def _is_heard(self) -> bool:
        """Whether anybody wants to know of plans and reports."""
        return self._has_listeners or LOGGER.isEnabledFor(logging.DEBUG)

    def _require_own_process(self) -> None:
        """Before any lock is waited for: after a fork nobody gives it back here."""
        if os.getpid() != self._process:
            raise NotKept(f"{FORKED}: open it in one process, after that")

    def _require_kept(self, again: str = "report this") -> None:
        """Refuse what nobody would remember."""
        if self.broken:
            raise self._not_kept(again)

    def _not_kept(self, again: str) -> NotKept:
        return NotKept(f"{self.broken}: mend the cause, open the folder again and {again} again")

    def _write_event(self, kind: Kind, reason: str) -> None:
        """A halt, or its end: in the log and in the trail, and on the disk when this returns."""
        self._append([self._event(kind, reason)])
        self._sync_trail()

    def _event(self, kind: Kind, reason: str) -> NewFrame:
        """The frame of a halt, or of its end."""
        tell("halt" if kind == Kind.HALT else "resume", reason=reason)
        return NewFrame(kind, {"reason": reason, **self.book.counts(), "time": now()})

    def _write(self, kind: Kind, notes: Mapping[str, Any]) -> int:
        return self._append([NewFrame(kind, notes)])

    def _append(self, frames: Sequence[NewFrame]) -> int:
        """Write frames down, all or none; the number of the last."""
        return 0 if self._journal is None or not frames else self._journal.append_all(frames)

    def _wait_for_disk(self, number: int, again: str = "report this") -> None:
        """Return when a frame is on the disk."""
        if not self._is_kept(number):
            raise self._not_kept(again)

    def _is_kept(self, number: int | None) -> bool:
        """Wait until a frame, or all of them, is on the disk, together with other threads; whether it is."""
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
        try:
            self._append([self._fault(reason)])
        except OSError as error:
            self._break(f"the journal cannot be written: {error}")

    def _fault(self, reason: str, **more: str) -> NewFrame:
        """The frame of what went wrong."""
        self.book.faults.append(reason)
        tell("fault", reason=reason)
        return NewFrame(Kind.FAULT, {"reason": reason, **more, "time": now()})

    def _break(self, reason: str) -> None:
        """Give up writing: what is in memory may be ahead of what is on the disk, so only the incumbent is deployed."""
        if not self.broken:
            tell("broken", reason=reason)
            self.broken = reason
            self.book.faults.append(reason)
        if self._journal is not None:
            self._journal.release()
