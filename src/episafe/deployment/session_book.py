"""The book of a session: which deployments there were, what was reported of them, and whether the agent may explore."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from episafe.deployment.episode_tapes import num_episodes
from episafe.deployment.frame_kinds import Kind, require_frame_kind
from episafe.errors import DamagedFile, InvalidEpisode
from episafe.storage.audit_trail import Trail
from episafe.storage.frames import UNREADABLE, Frame
from episafe.storage.state_reader import State
from episafe.types import HELD, Array, every_constraint

UNDER_WAY = 20  # the last so many deployments may wait for their reports before anybody is warned
FEW_LOST = 0.01  # of all deployments
PLANS_REMEMBERED = 1000  # while frames are lived through again


@dataclass(frozen=True)
class Status:
    """Where a session stands.

    Attributes:
        started: deployments, one for each call of `plan` or `deploy`.
        reported: episodes reported.
        missing: deployments that were not reported, by plan; what is under way is among them.
        oldest_missing: plan and time of the oldest of them, "" if there is none.
        abandoned: deployments that somebody said will never be reported; they are not among the missing.
        unannounced: episodes reported beyond the deployments of their plan, or of no plan, as from a log.
        faults: what went wrong and was recorded, in order.
        stopped: why only the incumbent is deployed; "" while the agent decides.
        monitors: what the monitors have seen, as plain values; empty without them.
        promoted: the name of what acts when nothing else may.
        untraced: reports that do not say what chance brought, where what is proved rests on that; at least so many.
        overdue: of the missing, those with more than 20 later deployments.
        unnamed: reports of no plan and no deployment, made while some deployment waited for its report.
    """

    started: int
    reported: int
    missing: dict[int, int]
    oldest_missing: str
    abandoned: int
    unannounced: int
    faults: list[str]
    stopped: str
    monitors: dict[str, Any]
    promoted: str = "incumbent"
    untraced: int = 0
    overdue: int = 0
    unnamed: int = 0

    def __str__(self) -> str:
        counts = f"{self.num_missing} missing, {self.abandoned} abandoned"
        said = f"{self.started} deployments, {self.reported} reports, {counts}; {self.promoted} acts by default"
        stopped = f"stopped: {self.stopped}" if self.stopped else ""
        return "; ".join(part for part in (said, stopped, self.warning) if part)

    @property
    def num_missing(self) -> int:
        """How many deployments were not reported."""
        return sum(self.missing.values())

    @property
    def warning(self) -> str:
        """What went wrong last, and what missing reports and traces will cost, before it hurts; "" while there is
        nothing to say.

        A deployment without a report counts at its worst: with 2 % of them lost for ever a proof takes 2 to 6 times as
        many episodes, and with 5 % it may never end.
        """
        few = FEW_LOST * max(self.reported, UNDER_WAY)
        said = (
            self._faults if self.faults else "",
            missing_warning(self.started, self.overdue, self.abandoned, self.oldest_missing),
            self._untraced if self.untraced > few else "",
            self._unnamed if self.unnamed > few else "",
        )
        return "; ".join(part for part in said if part)

    @property
    def _faults(self) -> str:
        return f"{len(self.faults)} recorded under `faults`, the last: {self.faults[-1]}"

    @property
    def _unnamed(self) -> str:
        return (
            f"{self.unnamed} reports name no deployment, made while some waited: they teach the planner and prove "
            "nothing, and the deployments stay missing; say which one it is, learn(…, deployment=deployed.id)"
        )

    @property
    def _untraced(self) -> str:
        return (
            f"{self.untraced} of {self.reported} reports do not say what chance brought: each counts at its worst; "
            "report es.Episode(…, trace=(start, (w_1, …, w_H))), or use es.certify.Observation(), which needs none"
        )


def num_overdue(started: int, waiting: Iterable[int]) -> int:
    """How many of the deployments that wait, by their numbers, are not among the last `UNDER_WAY`."""
    return sum(number < started - UNDER_WAY for number in waiting)


def missing_warning(started: int, overdue: int, abandoned: int, oldest: str) -> str:
    """What missing reports will cost; "" while there are few of so many deployments."""
    lost = abandoned + overdue
    if lost <= FEW_LOST * max(started, UNDER_WAY):
        return ""
    return (
        f"{lost} of {started} deployments have no report ({abandoned} abandoned; the oldest that waits: "
        f"{oldest or 'none'}): each counts at its worst until it is reported, so new policies are proved late or "
        "never; report them, or find out why they are lost"
    )


@dataclass(frozen=True)
class Deployment:
    """One deployment: what was decided, and who acts.

    Attributes:
        id: counts the deployments of a session from 0; hand it to `learn` with the report.
        plan: what was decided.
        component: which policy of a mixture acts, as the coin fell; 0 where there is only one.
        policy: what acts.
    """

    id: int
    plan: Any
    component: int
    policy: Any

    @property
    def acting(self) -> str:
        """The name of who acts: "incumbent", a candidate's, a proposal's; "plan-N" of a policy that has none."""
        named = getattr(self.policy, "name", "")
        return named or ("incumbent" if self.plan.source == "safe" else f"plan-{self.plan.id}")


class Waiting(NamedTuple):
    """A deployment without a report: its plan, the component that acts (None if the session tossed no coin), since
    when, and what its caller calls the episode ("" for nothing)."""

    plan: int
    component: int | None
    time: str
    name: str = ""


@dataclass
class Book:
    """All that a session counts. Opening, resuming and auditing fill one from the journal, and so does the session.

    Attributes:
        learned_hash: SHA-256 over the agent's fingerprint and all it has learned from, in their order.
        started, reported, unannounced, abandoned: see `Status`.
        unnamed: see `Status`.
        passed: numbers of deployments that repairs passed over.
        waiting: deployments without a report, by their ids, oldest first.
        called: deployments without a report, by the names that their callers gave the episodes; abandoned ones too,
            until there is another by that name.
        several: names by which more than one deployment was made, an abandoned one and its successor: by the name alone
            nobody knows which of them a report is of.
        names: of the episodes that were reported, where they were given one, and the deployment of each; None for none,
            and where a checkpoint of before does not say it.
        candidates: the names of the policies that somebody put on trial, in that order; anew beside a new incumbent.
        withdrawn: those of them that a person has withdrawn: a new incumbent puts them on trial no more.
        repeats: reports of a plan beyond its deployments.
        newest: the number of the agent's last plan.
        in_force: number and reason of the last plan that was written down.
        changed_at: deployments before a person last changed what acts by default, replays were refuted, or a repair has
            lost something: nobody acts in those any more.
        halted: why exploration was stopped; "" while it goes on.
        distrusted: the alarm since which nobody has let the agent go on; "" if there is none.
        faults: what went wrong.
        versions: that write it now; empty for those that its head names.
    """

    learned_hash: str
    started: int = 0
    reported: int = 0
    unannounced: int = 0
    abandoned: int = 0
    unnamed: int = 0
    passed: int = 0
    waiting: dict[int, Waiting] = field(default_factory=dict)
    called: dict[str, int] = field(default_factory=dict)
    several: dict[str, None] = field(default_factory=dict)
    names: dict[str, int | None] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    repeats: int = 0
    newest: int = -1
    in_force: tuple[int, str] | None = None
    changed_at: int = 0
    halted: str = ""
    distrusted: str = ""
    faults: list[str] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)

    def deploy(self, plan: int, component: int | None, time: str, name: str = "") -> int:
        """One more deployment; its id."""
        number, self.started = self.started, self.started + 1
        self.waiting[number] = Waiting(plan, component, time, name)
        if name in self.called:
            self.several[name] = None
        if name:
            self.called[name] = number
        self.newest = max(self.newest, plan)
        return number

    def match(
        self, agent: Any, plan_id: int | None, deployment: int | None, name: str | None
    ) -> tuple[int | None, int | None, str | None, bool]:
        """Plan and deployment that a report is of, what its episode is called, and whether it is sure which deployment
        that is; an InvalidEpisode where these do not fit what waits.

        Args:
            agent: that shall learn it: what it proves may need to know the deployment.
            plan_id: of the plan, where the report says it.
            deployment: where the report says it.
            name: of the episode, where the report says it.
        """
        if name is not None and name in self.names:
            raise InvalidEpisode(f"episode {name!r} was reported before: nothing was changed")
        if name is not None and deployment is None and plan_id is None:
            self.require_one(name)
            deployment = self.called.get(name)
        if deployment is None:
            deployment, alone = self._deployment_of(agent, plan_id)
            if deployment is None or not alone:
                return plan_id, deployment, self._name_of(deployment, name), False
        waiting = self.require_waiting(deployment)
        if plan_id not in (None, waiting.plan):
            raise InvalidEpisode(f"deployment {deployment} is of plan {waiting.plan}, not of plan {plan_id}")
        return waiting.plan, deployment, self._name_of(deployment, name), True

    def require_one(self, name: str) -> None:
        """Refuse a report by its name alone where more than one deployment was made by that."""
        if name in self.several:
            raise InvalidEpisode(
                f"more than one deployment was made by the name {name!r}, since the first was abandoned: say which one "
                "this is, by learn(…, deployment=…)"
            )

    def _deployment_of(self, agent: Any, plan_id: int | None) -> tuple[int | None, bool]:
        """The deployment that a report of a plan stands for, None if there is none; and whether no other waits.

        By its plan alone a report is believed to be the only one of its deployment. The first one too many shows that
        they are not, and then those that are proved by deployments count no more that do not name theirs.
        """
        if plan_id is None:
            self._require_log(agent)
            return None, False
        if plan_id > self.newest:
            raise InvalidEpisode(f"plan_id {plan_id} was not issued: {self.newest} is the last plan")
        of_plan = [number for number, waiting in self.waiting.items() if waiting.plan == plan_id]
        logged = agent.uses_traces and plan_id == HELD  # it would be taken for a log
        if not of_plan and (agent.learns_in_order or logged):
            raise InvalidEpisode(f"plan {plan_id} has no deployment without a report: it would count twice")
        if len(of_plan) > 1 and agent.needs_names:
            raise InvalidEpisode(
                f"several deployments of plan {plan_id} wait for their reports: say which one this is, by "
                "learn(…, deployment=plan.deployment)"
            )
        if not of_plan or (self.repeats and agent.counts_deployments):
            return None, False
        tossed = {number: self.waiting[number].component is not None for number in of_plan}
        oldest = min(of_plan, key=tossed.__getitem__)  # those with a coin are reported by their ids
        return oldest, len(of_plan) == 1

    def _require_log(self, agent: Any) -> None:
        """Refuse an episode of no deployment after the first one, where it would prove something: whether it came may
        depend on what it says. Traces of before the first plan prove, as a log does."""
        proves = agent.learns_in_order or (agent.uses_traces and self.newest == HELD)
        if proves and self.started:
            raise InvalidEpisode(
                "the agent proves from what it learns here, and since its first deployment it learns from deployments "
                "alone: say which one this is, by learn(…, deployment=deployed.id); logs come before the first one"
            )

    def _name_of(self, deployment: int | None, name: str | None) -> str | None:
        """What an episode is called: as its report says, else as its deployment does."""
        called = "" if deployment is None else self.waiting[deployment].name
        if called and name not in (None, called):
            raise InvalidEpisode(f"deployment {deployment} is of episode {called!r}, not of {name!r}")
        other = deployment if name is None else self.called.get(name, deployment)
        if other != deployment and other in self.waiting:  # whose own report would be taken for one made twice
            raise InvalidEpisode(f"episode {name!r} is that of deployment {other}, not of {deployment}")
        return called or name

    def require_waiting(self, deployment: int) -> Waiting:
        """A deployment without a report; an InvalidEpisode if it is none."""
        if deployment not in self.waiting:
            raise InvalidEpisode(f"deployment {deployment!r} was never made, or was reported or abandoned before")
        return self.waiting[deployment]

    def report(self, deployment: int | None, name: str | None, plan: int | None, values: str) -> None:
        """One report, which the agent has learned from; `values` says all of it."""
        self.learn(f"{plan} {values}\n".encode())
        self.reported += 1
        self.repeats += plan is not None and deployment is None
        if name is not None:
            self.names[name] = deployment
        if deployment is None:
            self.unannounced += 1
            self.unnamed += plan is None and bool(self.waiting)
        else:
            self.called.pop(self.waiting.pop(deployment).name, None)

    def knows(self, name: str, deployment: int | None) -> bool:
        """Whether an episode of this name was reported, and was this deployment, where one is said."""
        if deployment is None or name not in self.names:
            return name in self.names and name not in self.several
        is_over = deployment < self.started and deployment not in self.waiting
        return is_over and self.names[name] in (None, deployment)

    def abandon(self, deployment: int) -> None:
        """A deployment that will never be reported, neither by its number nor by the name of its episode."""
        del self.waiting[deployment]
        self.abandoned += 1

    def add_candidate(self, name: str) -> None:
        """Somebody put a policy on trial, perhaps one that was withdrawn beside an earlier incumbent."""
        self.candidates.append(name)
        self.withdrawn = [other for other in self.withdrawn if other != name]

    def withdraw(self, name: str) -> None:
        """A person has ended a trial."""
        if name in self.candidates:
            self.withdrawn.append(name)
        self.begin_anew()

    def resume(self) -> None:
        """A person lets the agent decide again; in what was deployed before an alarm nobody acts any more."""
        if self.distrusted:
            self.changed_at = self.started
        self.halted = self.distrusted = ""

    def begin_anew(self) -> None:
        """What acts by default has changed: the next plan is written down whatever it is, and nobody acts in what was
        deployed before."""
        self.in_force, self.changed_at = None, self.started

    def ended(self, agent: Any, promoted: str, refuted: str) -> str:
        """What a report has ended, by who was promoted and what was refuted before it: why the promoted policy acts no
        more, "" if it does. Where replays were refuted by it nobody acts in earlier deployments."""
        if agent.refuted != refuted:
            self.changed_at = self.started
        return "" if agent.promoted == promoted else f"what proved {promoted} holds no more"

    def lose(self, notes: Mapping[str, Any]) -> None:
        """Deployments and plans that were made, and are lost; what came of them nobody knows, so exploring stops."""
        if notes["plans"] <= self.newest or notes["deployments"] - notes.get("passed", 0) < self.started:
            raise ValueError("it loses what stands before it")
        passed = notes.get("passed", 0)
        self.abandoned += notes["deployments"] - passed - self.started
        self.passed += passed
        self.started, self.newest = notes["deployments"], notes["plans"] - 1
        self.begin_anew()  # all trials end: nobody acts in what was deployed before
        self.halted = notes["reason"]
        self.faults.append(notes["reason"])

    def count(self, frame: Frame, journal: str) -> None:
        """Take in a frame of a journal of kind "live" or "run", as far as nobody need build the agent for that."""
        kind, notes = frame.kind, frame.notes
        require_frame_kind(frame, journal)
        if kind == Kind.BEGIN and frame.number > 0:
            raise ValueError("a journal begins once")
        if kind == Kind.DEPLOY:
            if notes["id"] != self.started:
                raise ValueError(f"deployment {notes['id']} is not the next one")
            self.deploy(notes["plan"], notes["component"], notes["time"], notes.get("name", ""))
        elif kind == Kind.REPORT:
            self.report(notes["deployment"], notes["id"], notes["plan"], notes["values"])
        elif kind == Kind.ABANDON:
            self.abandon(notes["deployment"])
        elif kind == Kind.LOST:
            self.lose(notes)
        elif kind == Kind.CLOSE and journal == "live" and not self.closing().items() <= notes.items():
            raise ValueError("it was closed over other reports than stand before it")
        elif kind == Kind.BATCH:
            self.reported += num_episodes(frame.arrays)
        elif kind in (Kind.FAULT, Kind.HALT):
            self.faults.append(str(notes.get("reason", "")))

    def learn(self, data: Any) -> None:
        """The agent has learned from this."""
        made = hashlib.sha256(self.learned_hash.encode())
        made.update(data)
        self.learned_hash = made.hexdigest()

    def line(self, trail: Trail, notes: Mapping[str, Any]) -> str:
        """The line of the trail for a plan that is deployed next."""
        return trail.line(notes, self.started, self.reported, self.learned_hash)

    def counts(self) -> dict[str, int]:
        """How many deployments and reports a frame comes after, so that its line of the trail says where it belongs."""
        return {"deployments": self.started, "learned": self.reported}

    def closing(self) -> dict[str, Any]:
        """What a frame says when the session is closed."""
        return {**self.counts(), "state": self.learned_hash}

    @property
    def missing(self) -> dict[int, int]:
        """How many deployments wait, by plan."""
        found: dict[int, int] = {}
        for waiting in self.waiting.values():
            found[waiting.plan] = found.get(waiting.plan, 0) + 1
        return found

    @property
    def oldest(self) -> str:
        """Plan and time of the oldest deployment without a report, "" if there is none."""
        return next((f"plan {waiting.plan} of {waiting.time}" for waiting in self.waiting.values()), "")

    def state(self) -> State:
        """All of it as named arrays."""
        said = {**vars(self), "waiting": list(self.waiting.items())}
        return {"book": np.frombuffer(json.dumps(said).encode(), np.uint8)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        try:
            said = json.loads(state["book"].tobytes())
            said["waiting"] = {number: Waiting(*row) for number, row in said["waiting"]}
            said["names"] = dict.fromkeys(said["names"]) | (said["names"] if isinstance(said["names"], dict) else {})
            said["in_force"] = None if said["in_force"] is None else tuple(said["in_force"])
            read = Book(**said)
        except UNREADABLE as error:
            raise DamagedFile(f"the book of the session cannot be read ({error}): delete the checkpoint") from error
        for name, value in vars(read).items():
            setattr(self, name, value)


def remember(known: dict[int, Any], plans: Iterable[Any], most: int = PLANS_REMEMBERED) -> None:
    """Keep plans by their numbers, those that may still be deployed; the oldest are forgotten."""
    for plan in plans:
        known[plan.id] = plan
        known.pop(plan.id - most, None)


def now() -> str:
    """The time, as frames say it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def figures(agent: Any, plan: Any) -> dict[str, Any]:
    """What a frame says of a plan: all that must come out again."""
    policy = plan.policy
    mixed = hasattr(policy, "names")
    return {
        "plan": plan.id,
        "source": plan.source,
        "lam": float(plan.lam),
        "bounds": np.array(plan.utility_bound, dtype=np.float64, ndmin=1).tolist(),
        "reason": plan.reason,
        "log_dets": log_dets(agent).tolist(),
        "weights": np.asarray(policy.weights).tolist() if mixed else [],
        "names": list(policy.names) if mixed else [],
    }


def proved(agent: Any, plan: Any) -> list[Any]:
    """What is proved of each policy that a plan mixes, when it is put in force; NaN of those that have no bound.

    Of several constraints it is a list for each policy.
    """
    known = agent.bounds() if hasattr(plan.policy, "names") else {}
    nothing = every_constraint(math.nan, agent.task.num_constraints)
    return [np.asarray(known.get(name, nothing)).tolist() for name in plan.policy.names] if known else []


def log_dets(agent: Any) -> Array:
    """ln det Λ_h of each step when the plan in force was made; for agents that count, Σ_{s,a} ln(n ∨ 1)."""
    known: Array = agent.information_then
    return known if known.ndim == 1 else known.reshape(len(known), -1).sum(axis=1)
