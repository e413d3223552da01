"""Why a plan was deployed, as its journal tells it: who acts, why it was allowed, what it is worth, what came of it."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import LOG, constraint_names, read_head
from episafe.errors import DamagedFile
from episafe.storage.audit_trail import TRAIL, read_trail
from episafe.storage.frames import Frame, Reader
from episafe.storage.json_values import plain
from episafe.types import amounts

BAR = 30  # characters
ROUNDING = 1e-9  # a margin below it is told as that


@dataclass(frozen=True)
class Part:
    """One policy of a plan: its name, its probability, and the utility that was proved of it (NaN where unknown)."""

    name: str
    weight: float
    proved: float


@dataclass(frozen=True)
class Explanation:
    """One plan, explained.

    Attributes:
        plan: its number.
        time: when it was first deployed; "" of a simulation.
        source, level, reason: as in the plan.
        bound, threshold: what was checked against what.
        learned: how many reports there were when it was made.
        parts: the policies that it mixes; one where it mixes nothing.
        deployments, reports: how often it was deployed and reported; None where the folder does not say.
        first: its first deployment.
        constraint: of several, the name of the one that all this is of: the one with the least room.
    """

    plan: int
    time: str
    source: str
    level: str
    reason: str
    bound: float
    threshold: float
    learned: int
    parts: tuple[Part, ...]
    first: int
    deployments: int | None = None
    reports: int | None = None
    constraint: str = ""

    @property
    def is_incumbent(self) -> bool:
        """Whether nothing but the incumbent was deployed."""
        return self.source == "safe"

    @property
    def sentences(self) -> list[str]:
        """Who acted, why that was allowed, what the claim is worth, and what came of it."""
        return [self._who(), self._why(), self._worth(), *([self._outcome()] if self.deployments is not None else [])]

    @property
    def bars(self) -> list[str]:
        """The sum behind the check as a picture of characters; nothing where its terms are not known."""
        if len(self.parts) < 2 or any(math.isnan(part.proved) for part in self.parts):
            return []
        width = max(len(part.name) for part in self.parts)
        most = max(self.threshold, *(part.weight * part.proved for part in self.parts)) or 1.0
        rows = [
            f"{part.name:<{width}}  {_bar(part.weight * part.proved / most)}  "
            f"{100 * part.weight:5.1f} % × {part.proved:.4g}"
            for part in self.parts
        ]
        total = sum(part.weight * part.proved for part in self.parts)
        return [
            *rows,
            f"{'together':<{width}}  {_bar(total / most)}  {total:.4g} ≥ {self.threshold:.4g}, the threshold",
        ]

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for a program; what is not known is null."""
        return dict(plain(asdict(self) | {"sentences": self.sentences}))

    def _who(self) -> str:
        when = f" on {self.time[:16].replace('T', ' ')}" if self.time else ""
        if self.is_incumbent:
            return f"{f'Plan {self.plan}' if self.plan >= 0 else 'Without a plan'}{when}: the incumbent acts."
        if len(self.parts) == 1:
            named = "" if self.parts[0].name == self.source else f" ({self.parts[0].name})"
            return f"Plan {self.plan}{when}: a learned policy acts{named}."
        shares = ", ".join(f"{part.name} with probability {percent(part.weight)}" for part in self.parts)
        nameless = "" if self.time else "; a simulation keeps no names of what it mixes"
        return f"Plan {self.plan}{when}: a coin decides for each episode who acts: {shares}{nameless}."

    def _why(self) -> str:
        if self.is_incumbent:
            missed = f"; the bound of what was proposed, {self.bound:.6g}, is below the threshold {self.threshold:.6g}"
            return (
                f"Why: {self.reason or 'nothing else was proved yet'}{missed if self.bound < self.threshold else ''}."
            )
        tightest = f", in {self.constraint}, which has the least room" if self.constraint else ""
        return (
            f"Why it was allowed: its expected utility is at least {self.bound:.6g}, and {self.threshold:.6g} is the "
            f"threshold (margin {self._margin}){tightest}."
        )

    @property
    def _margin(self) -> str:
        margin = self.bound - self.threshold
        return f"below {ROUNDING:g}" if 0 < margin < ROUNDING else f"{margin:.3g}"

    def _worth(self) -> str:
        worth = {
            "theorem": "proved, for all deployments together, if what the statement assumes is true",
            "calibrated": "validated by simulation on a stated family of problems",
        }.get(self.level, "observed to work, and not proved")
        return f"What that is worth: level {self.level}, {worth}; it rests on {self.learned} reports."

    def _outcome(self) -> str:
        deployments = "1 deployment" if self.deployments == 1 else f"{self.deployments} deployments"
        return f"What came of it: {deployments} from number {self.first} on, {self.reports} of them reported."


@dataclass(frozen=True)
class DeploymentRow:
    """One deployment, or episode of a simulation, and why it was allowed.

    Attributes:
        number: of the deployment, from 0.
        time: when; "" of a simulation.
        acting: the name of who acts; "" where nobody knows.
        totals: its reward and utilities; NaN where they are not known.
        why: its plan, explained.
        name: what the caller calls the episode.
    """

    number: int
    time: str
    acting: str
    totals: tuple[float, ...]
    why: Explanation
    name: str = ""


def explain(
    folder: str | Path, plan: int | None = None, on_progress: Callable[[float], object] = lambda share: None
) -> Explanation:
    """Why a plan of a journal was deployed; by default the last one. Nobody need build the agent for that.

    Args:
        folder: of a journal, live or of a run; it may be in use.
        plan: its number.
        on_progress: called now and then with the share of the log that was read.
    """
    folder = Path(folder)
    head = read_head(folder)
    lines, _ = read_trail(folder / TRAIL, 0, head["genesis"])
    backwards = (said for said in map(_said, reversed(lines)) if "plan" in said)
    said = next((said for said in backwards if plan in (None, said["plan"])), None)
    if said is None:
        known = [said["plan"] for said in map(_said, lines) if "plan" in said]
        between = f"plans {min(known)} to {max(known)} were deployed" if known else "nothing was deployed yet"
        raise ValueError(f"{folder}: no plan {'' if plan is None else plan} was deployed: {between}")
    frames = list[Frame]()
    if head["kind"] == "live":
        reader = Reader(folder / LOG, head["genesis"])
        for frame in reader:
            on_progress(reader.share)
            if frame.notes.get("plan") == said["plan"]:
                frames.append(frame)
    return _explained(said, frames, constraint_names(head, len(amounts(said["bound"]))))


def _said(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
        return dict(said)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{TRAIL}: a line is no JSON ({error}): see `episafe audit`") from error


def _explained(said: dict[str, Any], frames: list[Frame], constraints: Sequence[str]) -> Explanation:
    """The plan of a line in words; `frames` are those of it, none where there is no log."""
    proved = next((frame.notes["proved"] for frame in frames if frame.notes.get("proved")), None)
    deployments = sum(frame.kind == Kind.DEPLOY for frame in frames)
    reports = sum(frame.kind == Kind.REPORT and frame.notes["deployment"] is not None for frame in frames)
    return explained(said, proved, (deployments, reports) if frames else (None, None), constraints)


def explained(
    said: Mapping[str, Any],
    proved: Sequence[Any] | None,
    counts: tuple[int | None, int | None],
    constraints: Sequence[str],
) -> Explanation:
    """A plan in words.

    Args:
        said: its line of the trail.
        proved: what is proved of each policy that it mixes; None where nobody kept that.
        counts: how often it was deployed and reported; None where nobody knows.
        constraints: the names of several.
    """
    weights = said.get("weights") or []
    c, constraint = _tightest(said, constraints)
    names = said.get("names") or [f"policy {i}" for i, _ in enumerate(weights, 1)]  # simulations keep no names
    known = proved or [math.nan] * len(names)
    parts = [Part(name, weight, _number(bound, c)) for name, weight, bound in zip(names, weights, known, strict=True)]
    alone = Part("incumbent" if said["source"] == "safe" else said["source"], 1.0, _number(said["bound"], c))
    return Explanation(
        said["plan"], said.get("time", ""), said["source"], said["level"], said.get("reason", ""),
        _number(said["bound"], c), _number(said["threshold"], c), said["learned"], tuple(parts) or (alone,),
        said["episode"], *counts, constraint,
    )  # fmt: skip


def _tightest(said: Mapping[str, Any], names: Sequence[str]) -> tuple[int, str]:
    """Of several constraints the one with the least room, and its name; 0 and nothing of one."""
    margins = [_number(said["bound"], c) - _number(said["threshold"], c) for c, _ in enumerate(names)]
    c = min(range(len(names)), key=lambda c: math.inf if math.isnan(margins[c]) else margins[c], default=0)
    return c, names[c] if names else ""


def percent(share: float) -> str:
    """A share that is 0 % only for 0 and 100 % only for all."""
    if 0 < share < 0.001:
        return "below 0.1 %"
    return "above 99.9 %" if 0.999 < share < 1 else f"{100 * share:.4g} %"


def _number(value: Any, c: int = 0) -> float:
    """A number, or the one of constraint c."""
    one = value[c] if isinstance(value, list) else value
    return math.nan if one is None else float(one)


def _bar(share: float) -> str:
    full = round(BAR * min(max(share, 0.0), 1.0))
    return "█" * full + "░" * (BAR - full)
