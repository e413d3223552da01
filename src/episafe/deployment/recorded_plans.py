"""Recorded frames, gone through without planning: every plan is held against the check as it was recorded.

What proposed a plan is of no interest here. So this is for folders whose agent nobody can build, and for those of
other versions of episafe, numpy or numba, which may propose otherwise, or round otherwise, and have done no harm.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from episafe.agents.changes import Change
from episafe.certify.base import INCUMBENT
from episafe.checks import TOLERANCE
from episafe.deployment.batch_frames import planned
from episafe.deployment.episode_tapes import ReportOf, num_episodes
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.replay import Replay
from episafe.errors import DamagedFile
from episafe.kernels.mixing import admits_all
from episafe.storage.frames import Frame
from episafe.types import HELD, SOURCES, Amount, Plan, amount, shown

CHECKED = ("zero", "search")  # sources of what must have passed the check


class Unbuilt:
    """In the place of an agent: it learns nothing.

    Args:
        task: what reads reports; None for itself, where nobody has one.
    """

    changes, promoted, refuted, void = False, INCUMBENT, "", ""

    def __init__(self, task: Any = None) -> None:
        self.task = self if task is None else task

    def recent_plans(self) -> list[Any]:
        """None."""
        return []

    def incumbent_plan(self, reason: str, round: int | None = None) -> Plan:
        """A plan without a policy."""
        return Plan(None, "safe", reason=reason, id=HELD)

    def report_from(self, values: list[Any]) -> tuple[Any, ...]:
        """The values themselves."""
        return tuple(values)

    def hear(self, *_: Any, **__: Any) -> None:
        """Nothing is learned, whatever it is told."""

    expect = abandon = lose = begin_candidate = promote = withdraw = hear


class Recorded(Replay):
    """A history whose plans are taken as they were recorded.

    Args:
        threshold: b, or (m,) of several constraints.
        certified: whether its agent deploys only what passed the check; None where nobody knows.
        anew: an agent of this version that learns all that was reported, as episodes of no plan, and by that bounds
            again what was deployed; None for nobody.
        given: as of `Replay`, `Unbuilt` in the place of the agent.

    Attributes:
        checked: plans that are the incumbent or have a bound that reaches the threshold.
        confirmed: plans whose bound, computed anew, reaches the threshold again, up to rounding.
        doubts: those whose bound does not, in words.
    """

    def __init__(self, *given: Any, threshold: Amount, certified: bool | None, anew: Any = None, **known: Any) -> None:
        super().__init__(*given, **known)
        self._threshold, self._certified, self._anew = threshold, certified, anew
        self.checked, self.confirmed, self.doubts = 0, 0, list[str]()

    def _plan_of(self, k: int, notes: Mapping[str, Any], round: int | None) -> Any:
        """The plan, without a policy, if it passes."""
        source, bound, weights = notes["source"], amount(notes["bounds"]), notes.get("weights", [])
        if source not in SOURCES:
            raise ValueError(f"plan {notes['plan']} is from {source!r}")
        if len(weights) and not (min(weights) >= 0 and abs(math.fsum(weights) - 1) <= TOLERANCE):
            raise ValueError(f"the weights of plan {notes['plan']} are {weights}")
        passes = source == "safe" or (source in CHECKED and admits_all(bound, self._threshold))
        if self._certified and not passes:
            raise DamagedFile(
                f"{self._path}: plan {notes['plan']}, deployed from episode {k} on, did not pass the check: its bound "
                f"is {bound!r}, and the threshold {self._threshold!r}"
            )
        self.checked += passes
        plan = Plan(None, source, notes["lam"], bound, id=notes["plan"])
        if self._anew is not None and source in CHECKED:
            self._recheck(k, plan, self._anew.bound_anew(plan.lam))
        return plan

    def _recheck(self, k: int, plan: Plan, bound: Amount) -> None:
        """Hold the bound that this version computes against the threshold."""
        b = self._threshold
        if admits_all(bound, b - TOLERANCE * np.maximum(1.0, np.abs(b))):
            self.confirmed += 1
        else:
            self.doubts.append(
                f"plan {plan.id}, deployed from episode {k} on with the bound {shown(plan.utility_bound)}, has "
                f"the bound {shown(bound)} by this version, below the threshold {shown(b)}"
            )

    def _change_settings(self, notes: Mapping[str, Any]) -> None:
        self._threshold = amount(Change.read(notes).thresholds)
        self.trail.restate(self._threshold, notes["settings"])

    def _check_promotion(self, name: str, bounds: list[float]) -> None:
        if self._certified and name != INCUMBENT and not admits_all(bounds, self._threshold):
            raise DamagedFile(f"{self._path}: {name!r} was promoted on the bound {bounds}, below {self._threshold!r}")

    def _episodes(self, frame: Frame) -> Iterator[tuple[dict[str, Any] | None, ReportOf]]:
        """Of each episode of a batch the plan that begins with it, and its report where somebody learns from it."""
        if self._anew is not None:
            yield from super()._episodes(frame)
            return
        begins = {begin: i for i, begin in enumerate(frame.arrays["begins"].tolist())}
        for k in range(num_episodes(frame.arrays)):
            yield planned(frame.arrays, begins[k]) if k in begins else None, lambda _: ()

    def _in_force(self, k: int, plan: Any, round: int | None) -> Any:
        return plan

    def learn(
        self, report: tuple[Any, ...], plan_id: int | None, deployment: int | None = None, named: bool = True
    ) -> None:
        """Let who stands for the agent see a report, or who bounds anew."""
        if self._anew is None:
            super().learn(report, plan_id, deployment, named)
        else:
            self._anew.learn(*report)


class Predecessor(Unbuilt):
    """In the place of an agent whose incumbent was replaced since. The one with the new incumbent learns what was
    reported, as episodes of no plan: nothing that was certified beside the old one is gone on with.

    It hears which deployments there were, since which of them were reported may depend on what came of them: only what
    was logged before the first plan may prove something anew.

    Args:
        successor: that agent, new.
    """

    def __init__(self, successor: Any) -> None:
        super().__init__(successor.task)
        self._successor, self._planned = successor, False

    def expect(self, plan: Any, deployment: int, component: int | None = None) -> None:
        """One that the successor has not made."""
        self._planned = self._planned or plan.id != HELD
        self._successor.expect(self.incumbent_plan(""), deployment)

    def abandon(self, deployment: int) -> None:
        """It will never be reported to the successor either."""
        self._successor.abandon(deployment)

    def lose(self, num_plans: int, reason: str, num_candidates: int = 0) -> None:
        """Of what is lost nothing will be reported."""
        self._successor.expect(self.incumbent_plan(""), HELD)
        self._successor.abandon(HELD)

    def hear(self, deployment: int | None, *report: Any, plan_id: int | None = None, named: bool = True) -> None:
        """Let the successor see a report."""
        proves = self._successor.uses_traces or self._successor.learns_in_order
        late = self._planned and proves  # no log: whether it came may depend on it
        self._successor.hear(HELD if deployment is None and late else deployment, *report)


def since_incumbent(frames: list[Frame]) -> int:
    """Where the time of the present incumbent begins, after the frame that says so; 0 where there was no other."""
    replaced = [
        n for n, one in enumerate(frames, 1) if one.kind == Kind.CHANGE and one.notes.get("what") == "incumbent"
    ]
    return replaced[-1] if replaced else 0


def learned_before(replay: Replay, frames: list[Frame]) -> list[str]:
    """Let the agent of a replay learn the frames of incumbents that were replaced since; the lines that they stand for.

    Its own plans are numbered after theirs.
    """
    if not frames:
        return []
    agent = replay.agent
    if agent.is_used:
        raise DamagedFile(f"{replay.folder}: the checkpoints are older than the incumbent: delete them")
    known: dict[str, Any] = {"folder": replay.folder, "head": replay.head, "incumbent": replay.incumbent}
    facts = {"threshold": agent.task.limits, "certified": agent.certified}
    lines = Recorded(Predecessor(agent), replay.book, replay.trail, **facts, **known).take(frames)
    agent.succeed(replay.book.newest)
    return lines
