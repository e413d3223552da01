"""Recorded frames, lived through again by a new agent: its plans must come out as they were, to the last bit.

Opening, resuming and auditing a folder are this, and nothing else.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import le
from pathlib import Path
from typing import Any

from episafe.agents.changes import Change
from episafe.certify.base import INCUMBENT
from episafe.deployment.batch_frames import padded, recorded_episodes, sampled_reports, trail_lines
from episafe.deployment.episode_tapes import ReportOf, num_episodes
from episafe.deployment.frame_kinds import EVENTS, Kind, require_frame_kind
from episafe.deployment.incumbent_identity import IncumbentIdentity
from episafe.deployment.journal_folder import LOG
from episafe.deployment.session_book import Book, figures, remember
from episafe.errors import DamagedFile
from episafe.kernels.mixing import admits_all
from episafe.monitors import Alarm, halt_reason
from episafe.monitors.statements import STATEMENTS
from episafe.storage.audit_trail import Trail
from episafe.storage.frames import UNREADABLE, Frame
from episafe.storage.json_values import from_text
from episafe.storage.toml_settings import said_versions
from episafe.types import HELD, Amount, amounts

FIGURES = ("plan", "source", "lam", "bounds", "reason", "log_dets", "weights", "names")


def compare(k: int, recorded: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse the first figure of the plan of episode k that differs; two NaN are alike."""
    for name in (name for name in FIGURES if name in recorded):
        was, now = recorded[name], made[name]
        if not _alike(was, now):
            raise DamagedFile(
                f"{name} of the plan of episode {k} is {was!r} in the journal, and {now!r} when it is made again from "
                "the recorded episodes: the files were changed, or made by other versions of episafe, numpy or numba"
            )


def _is_earlier(recorded: Any, made: list[float], limits: Amount) -> bool:
    """Whether a promoted policy may have had these bounds before: they reach the limits, and have only risen since."""
    return bool(recorded) and admits_all(recorded, limits) and all(map(le, recorded, made))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other) or both_nan


def require_candidates(agent: Any, book: Book, frames: Iterable[Frame]) -> None:
    """A journal knows candidates by their names alone: the agent must have been given each of them."""
    names = [*book.candidates, *(frame.notes.get("name") for frame in frames if frame.kind == Kind.CANDIDATE)]
    missing = [name for name in names if name not in agent.candidates]
    if missing:
        raise ValueError(
            f"the journal has the candidates {missing}, which the agent was not given: build it with them, or call "
            "agent.add_candidate(name, policy) before it is opened; anything may stand in for one that was withdrawn"
        )


class Replay:
    """A history that is lived through again.

    Args:
        agent: new, or restored from a checkpoint.
        book: of the same moment.
        trail: of the same moment.
        monitors: of the same moment; None for none.
        folder, head: of the journal.
        incumbent: what is known of it, at the same moment; None where nobody asks.

    Attributes:
        compared: how many plans came out again.
        demoted: why what was promoted acts no more, where a report has ended what proved it and the log does not say
            so; "" if it does.
    """

    def __init__(
        self,
        agent: Any,
        book: Book,
        trail: Trail,
        monitors: Any = None,
        *,
        folder: Path,
        head: Mapping[str, Any],
        incumbent: IncumbentIdentity | None = None,
    ) -> None:
        self.folder, self.head, self.incumbent = folder, head, incumbent
        self.agent, self.book, self.trail, self.monitors = agent, book, trail, monitors
        self.plans: dict[int, Any] = {plan.id: plan for plan in agent.recent_plans()}
        if not agent.task.changes:
            self.plans[HELD] = agent.incumbent_plan("")
        self.compared, self.demoted = 0, ""
        self._path = folder / LOG
        self._num_parallel: int = head.get("num_parallel", 1)  # episodes of one plan that were played before the next
        self._steps: dict[Kind, Callable[[Frame], Sequence[str] | None]] = {  # the lines that they stand for
            Kind.BEGIN: self._begin, Kind.CLOSE: self._close, Kind.AIM: self._aim, Kind.PLAN: self._plan,
            Kind.DEPLOY: self._deploy, Kind.REPORT: self._report, Kind.ABANDON: self._abandon, Kind.BATCH: self._batch,
            Kind.FAULT: self._fault, Kind.HALT: self._halt, Kind.RESUME: self._resume, Kind.CHANGE: self._change,
            Kind.LOST: self._lost, Kind.CANDIDATE: self._candidate, Kind.PROMOTE: self._promote,
            Kind.WITHDRAW: self._withdraw,
        }  # fmt: skip

    def take(self, frames: Iterable[Frame]) -> list[str]:
        """Live through the frames; the lines of the trail that they stand for."""
        return [line for frame in frames for line in self._take(frame)]

    def _take(self, frame: Frame) -> Sequence[str]:
        try:
            require_frame_kind(frame, self.head["kind"])
            lines = self._steps[Kind(frame.kind)](frame) or ()
            return [self.trail.event(EVENTS[Kind(frame.kind)], frame.notes)] if frame.kind in EVENTS else lines
        except DamagedFile:
            raise
        except UNREADABLE as error:
            raise DamagedFile(
                f"{self._path}: frame {frame.number} at byte {frame.offset} says what cannot have happened ({error}): "
                "restore the folder from a copy, or `episafe repair` it"
            ) from error

    def _begin(self, frame: Frame) -> None:
        if frame.number > 0:
            raise ValueError("a journal begins once")

    def _close(self, frame: Frame) -> None:
        if not self.book.closing().items() <= frame.notes.items():
            raise ValueError("it was closed over other reports than stand before it")

    def _aim(self, frame: Frame) -> None:
        if type(frame.notes["num_episodes"]) is not int:
            raise ValueError("it asks for no number of episodes")

    def _fault(self, frame: Frame) -> None:
        self.book.faults.append(frame.notes["reason"])
        if (alarm := frame.notes.get("alarm")) in STATEMENTS and STATEMENTS[alarm].halts:
            said = frame.notes["reason"]
            self._distrust(said.partition(": ")[2] or said)  # what the monitor said, without its name

    def _halt(self, frame: Frame) -> None:
        self._require_place(frame)
        self.book.halted = frame.notes["reason"]

    def _require_place(self, frame: Frame) -> None:
        """A halt and its end say how much was deployed and reported before them; those of earlier versions do not."""
        counts = self.book.counts()
        if any(frame.notes.get(name, count) != count for name, count in counts.items()):
            raise ValueError(f"it was written after other deployments and reports than {counts}")

    def _resume(self, frame: Frame) -> None:
        self._require_place(frame)
        if not self.book.halted:
            raise ValueError("it resumes what was not halted")
        self.book.resume()
        if self.monitors is not None:
            self.monitors.go_on()

    def _lost(self, frame: Frame) -> None:
        notes = frame.notes
        self.book.lose(notes)
        self.agent.lose(notes["plans"], notes["reason"], notes.get("candidates", 0))  # of format 2 from then on

    def _change(self, frame: Frame) -> None:
        what, notes = frame.notes["what"], frame.notes
        if what == "versions":
            self.book.versions = said_versions(notes)
            if self.incumbent is not None:
                self.incumbent.name = notes.get("incumbent_name", self.incumbent.name)
        elif what == "settings":
            self._change_settings(notes)
            self.book.begin_anew()
        elif what != "incumbent":
            raise ValueError(f"it changes {what!r}, of which nothing is known here")
        else:
            self.book.candidates = []  # all are put on trial anew, beside the new one
            self.book.changed_at = self.book.started  # earlier versions went on with the plan that was in force
            if self.incumbent is not None:
                self.incumbent.replace(notes)

    def _change_settings(self, notes: Mapping[str, Any]) -> None:
        """A change by a person: it must follow from what was proved, and drop what it dropped."""
        agent = self.agent
        dropped = agent.change(Change.read(notes))
        if (dropped, agent.settings()) != (notes["dropped"], notes["settings"]):
            raise DamagedFile(f"a change drops {dropped} and leaves {agent.settings()}, and not what is recorded of it")
        self.trail.restate(agent.task.limits, agent.settings())
        self._heed([] if self.monitors is None else self.monitors.change(agent.task))

    def _promote(self, frame: Frame) -> None:
        name = frame.notes["name"]
        self._check_promotion(name, frame.notes["bounds"])
        self.agent.promote(name)
        self.book.begin_anew()
        self.demoted = ""

    def _check_promotion(self, name: str, bounds: list[float]) -> None:
        made = [] if name == INCUMBENT else amounts(self.agent.bounds()[name]).tolist()
        if made != bounds:
            raise DamagedFile(f"{name!r} was promoted on the bound {bounds}, and has {made} by the recorded episodes")

    def _withdraw(self, frame: Frame) -> None:
        self.agent.withdraw(frame.notes["name"])
        self.book.withdraw(frame.notes["name"])

    def _candidate(self, frame: Frame) -> None:
        name = frame.notes["name"]
        if name in self.book.candidates:
            raise ValueError(f"the candidate {name!r} was on trial already")
        self.agent.begin_candidate(name)
        self.book.add_candidate(name)

    def _plan(self, frame: Frame) -> Sequence[str]:
        notes, book = frame.notes, self.book
        self._make(book.started, notes, notes["round"])
        line = book.line(self.trail, notes)
        if self.trail.head != notes["trail"]:
            raise DamagedFile(f"{self._path}: the plan of deployment {book.started} does not follow from what was "
                              "recorded before it: restore the folder from a copy")  # fmt: skip
        book.in_force = (notes["plan"], notes["reason"])
        return [line]

    def _make(self, k: int, notes: Mapping[str, Any], round: int | None) -> Any:
        """The plan of episode k."""
        plan_id, reason, halted = notes["plan"], notes.get("reason"), self.book.halted
        if halted and plan_id != HELD:
            raise ValueError(f"plan {plan_id} was made by an agent that was halted: {halted}")
        if halted and reason not in (None, f"halted: {halted}"):
            raise ValueError(f"the incumbent was deployed for another reason than the halt: {reason}")
        plan = self._plan_of(k, notes, round)
        remember(self.plans, [plan])
        return plan

    def _plan_of(self, k: int, notes: Mapping[str, Any], round: int | None) -> Any:
        """The plan, made again and compared."""
        reason, agent = notes.get("reason", ""), self.agent
        held = notes["plan"] == HELD
        plan = agent.incumbent_plan(reason, round) if held else self._again(reason, bool(notes.get("failed")), round)
        made = figures(agent, plan)
        made["weights"] = padded(made["weights"], len(notes.get("weights", ())))
        if held and _is_earlier(notes.get("bounds"), made["bounds"], agent.task.limits):
            made["bounds"] = notes["bounds"]  # earlier versions kept what was promoted from an earlier halt
        compare(k, notes, made)
        self.compared += 1
        return plan

    def _again(self, reason: str, failed: bool, round: int | None) -> Any:
        """The agent's plan. If it failed then, and would not now, as when memory was short, it fails again."""
        agent = self.agent
        planned = agent.plan if round is None else partial(agent.plan, round)
        if not failed:
            return planned()
        if agent.is_stored:
            before = agent.state()
            plan = planned()
            if plan.reason == reason:
                return plan
            agent.restore(before)
        return agent.fall_back(reason, round)

    def _deploy(self, frame: Frame) -> None:
        notes, book = frame.notes, self.book
        if book.in_force is None or notes["plan"] != book.in_force[0]:
            raise ValueError(f"plan {notes['plan']} was deployed and not in force")
        if notes["id"] != book.started:
            raise ValueError(f"{book.started} deployments stand before the one that is called number {notes['id']}")
        number = book.deploy(notes["plan"], notes["component"], notes["time"], notes.get("name", ""))
        plan = self.plans.get(notes["plan"]) or self.agent.incumbent_plan(book.in_force[1])
        self.agent.expect(plan, number, notes["component"])
        self._heed([] if self.monitors is None else self.monitors.expect(number, plan, notes["component"]))

    def _abandon(self, frame: Frame) -> None:
        self.book.abandon(frame.notes["deployment"])
        self.agent.abandon(frame.notes["deployment"])
        self._heed([] if self.monitors is None else self.monitors.abandon(frame.notes["deployment"]))

    def _report(self, frame: Frame) -> None:
        notes, book = frame.notes, self.book
        plan_id, text = notes["plan"], notes["values"]
        if notes["id"] in book.names:
            raise ValueError(f"episode {notes['id']!r} was reported before")
        deployment, named = notes["deployment"], notes.get("named", False)
        report = self.agent.task.report_from(from_text(text))
        if "incumbent" in notes and self.incumbent is not None:
            self.incumbent.see(report, notes["incumbent"])
        promoted, refuted, void = self.agent.promoted, self.agent.refuted, self.agent.void
        self.learn(report, None if deployment is None else plan_id, deployment, named)
        self.demoted = book.ended(self.agent, promoted, refuted) or self.demoted
        if self.monitors is not None and deployment is not None:
            self._heed(self.monitors.report(deployment, *report) if named else self.monitors.abandon(deployment))
        if self.agent.void != void:  # whether anybody watches or not
            self._distrust(self.agent.void)
        book.report(deployment, notes["id"], plan_id, text)

    def learn(
        self, report: tuple[Any, ...], plan_id: int | None, deployment: int | None = None, named: bool = True
    ) -> None:
        """Let the agent see a report."""
        self.agent.hear(deployment, *report, plan_id=None if plan_id == HELD else plan_id, named=named)

    def _heed(self, alarms: list[Alarm]) -> None:
        self._distrust(halt_reason(alarms))

    def _distrust(self, reason: str) -> None:
        """An alarm that halts; whether the log says what follows from it or not, opening sees to it."""
        self.book.distrusted = self.book.distrusted or reason

    def _batch(self, frame: Frame) -> list[str]:
        """A batch of a simulation: its plans, its episodes, and the halts in between."""
        notes, arrays, book = frame.notes, frame.arrays, self.book
        start, stop = notes["episode"], notes["episode"] + num_episodes(arrays)
        if start != book.started:
            raise ValueError(f"a batch begins at episode {start} and not at {book.started}")
        halts = dict(notes["halts"])
        lines = list(trail_lines(arrays, start, book, halts, self.trail))
        if [self.trail.count, self.trail.head] != notes["trail"]:
            raise DamagedFile(f"{self._path}: the batch at byte {frame.offset} does not match the hash that it carries")
        if "incumbent" in notes and self.incumbent is not None:
            for report, said in zip(sampled_reports(arrays, self.agent.task), notes["incumbent"], strict=True):
                self.incumbent.see(report, said)
        self._play_again(frame, halts)
        book.started = book.reported = stop
        return lines

    def _play_again(self, frame: Frame, halts: Mapping[int, str]) -> None:
        """Plan and learn the episodes of a batch; a plan that is not in the batch must not be made."""
        book, (start, round) = self.book, (frame.notes["episode"], frame.notes["round"])
        plan: Any = self.plans.get(book.newest) or (self.agent.incumbent_plan("") if book.newest == HELD else None)
        for k, (planned, report_of) in enumerate(self._episodes(frame), start):
            now = None if round is None else round + k - start
            if planned is not None:
                plan = self._make(k, planned, now)
            elif not book.halted and k % self._num_parallel == 0:
                plan = self._in_force(k, plan, now)
            book.newest = plan.id
            self.learn(report_of(plan), plan.id)
            self._heed([] if self.monitors is None else self.monitors.watch_report(plan, *report_of(plan)))
            if k in halts:
                book.halted = halts[k]

    def _episodes(self, frame: Frame) -> Iterable[tuple[dict[str, Any] | None, ReportOf]]:
        """Of each episode of a batch the plan that begins with it, None for the last one's, and its report."""
        return recorded_episodes(frame.arrays, self.agent.task)

    def _in_force(self, k: int, plan: Any, round: int | None) -> Any:
        """The plan of episode k, which must be the last one: no other is in the batch."""
        made = self.agent.plan() if round is None else self.agent.plan(round)
        if made.id != self.book.newest:
            raise DamagedFile(f"plan {made.id} is made again before episode {k}, and was not made then")
        return made
