"""The deployments of a live session as columns, filled frame by frame. Nobody need build the agent for that."""

import math
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.deployment.explanation import Row, explained
from episafe.deployment.frame_kinds import Kind
from episafe.runs.record import Record
from episafe.storage.frames import Frame
from episafe.storage.json_values import from_text
from episafe.types import SOURCES, Amount, Array, Episode, amounts

LATEST = 20  # deployments of which more is kept than columns
PATHS_REMEMBERED, LONGEST_REMEMBERED = 4096, 1000  # reports whose totals need not be looked up again; characters
NOBODY_KNOWS = -1  # the component or the name of who acted


class InForce(NamedTuple):
    """A plan that was put in force: its row, what its frame says, the deployment that it began with, and how many
    reports there were then."""

    row: int
    notes: Mapping[str, Any]
    first: int
    learned: int


class Latest(NamedTuple):
    """One of the last deployments: its row, number, time and plan, and the caller's name for the episode."""

    row: int
    number: int
    time: str
    plan: InForce
    name: str


class LiveColumns:
    """Columns of a live session; `take` every frame once, in order.

    Args:
        task: what the agent was told, where the folder holds it: totals that were not reported are looked up there.

    Attributes:
        waiting: the row of each deployment without a report, by its number; oldest first.
        reported, abandoned: how many deployments were, and how many never will be.
        unannounced: reports of no deployment, as from a log.
        halts: the rows after which only what was promoted acted, and why.
    """

    def __init__(self, task: Any = None) -> None:
        self._task, self._m = task, 1
        self._plan_rows, self._components, self._acting = array("q"), array("q"), array("i")
        self._totals = array("d")  # of each deployment its reward and m utilities; NaN until they are reported
        self._numbers, self._sources, self._bounds = array("q"), array("b"), array("d")  # of plans; λ and m bounds
        self._weights, self._ends = array("d"), array("q")  # of plans, one after another, and where each ends
        self._deployed_by, self._reported_by = array("q"), array("q")  # how often, by the row of the plan
        self._totals_in = lru_cache(PATHS_REMEMBERED)(self._read_totals)  # few paths are taken again and again
        self._names: dict[str, int] = {}
        self._untossed: dict[int, list[str]] = {}  # names of the plan of rows whose coin the caller tosses
        self._in_force: InForce | None = None
        self._times: dict[int, str] = {}  # of deployments that wait
        self.waiting: dict[int, int] = {}
        self.reported = self.abandoned = self.unannounced = self._started = 0
        self.halts: list[tuple[int, str]] = []
        self._latest: deque[Latest] = deque(maxlen=LATEST)
        self._take: dict[int, Callable[[Mapping[str, Any]], Episode | None]] = {
            Kind.PLAN: self._plan, Kind.DEPLOY: self._deploy, Kind.REPORT: self._report, Kind.ABANDON: self._abandon,
            Kind.LOST: self._lost, Kind.HALT: self._halt,
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self._plan_rows)

    @property
    def oldest_missing(self) -> str:
        """The time of the oldest deployment without a report; "" if there is none."""
        return next(iter(self._times.values()), "")

    def take(self, frame: Frame) -> Episode | None:
        """Go on by one frame; what it reports of a deployment, if it does and is no round of a bandit."""
        how = self._take.get(frame.kind)
        return None if how is None else how(frame.notes)

    def _plan(self, notes: Mapping[str, Any]) -> None:
        self._m = len(notes["bounds"])
        self._unknown = (math.nan,) * (1 + self._m)
        self._in_force = InForce(len(self._numbers), notes, self._started, self.reported + self.unannounced)
        self._numbers.append(notes["plan"])
        self._sources.append(SOURCES.index(notes["source"]))
        self._bounds.extend((notes["lam"], *notes["bounds"]))
        self._weights.extend(notes["weights"] or (1.0,))
        self._ends.append(len(self._weights))
        self._deployed_by.append(0)
        self._reported_by.append(0)

    def _deploy(self, notes: Mapping[str, Any]) -> None:
        plan, row, component = self._in_force, len(self._plan_rows), notes["component"]
        if plan is None:
            raise ValueError("a deployment without a plan")
        self._plan_rows.append(plan.row)
        self._deployed_by[plan.row] += 1
        self._components.append(NOBODY_KNOWS if component is None else component)
        names = plan.notes["names"]
        self._acting.append(self._name(names, component))
        if names and component is None:
            self._untossed[row] = names
        self._totals.extend(self._unknown)
        self.waiting[notes["id"]], self._times[notes["id"]] = row, notes["time"]
        self._started = notes["id"] + 1
        self._latest.append(Latest(row, notes["id"], notes["time"], plan, notes.get("name", "")))

    def _name(self, names: list[str], component: int | None) -> int:
        """The number of the name of who acts; NOBODY_KNOWS where it follows from the source."""
        if not names or component is None:
            return NOBODY_KNOWS
        return self._names.setdefault(str(names[component]), len(self._names))

    def _report(self, notes: Mapping[str, Any]) -> Episode | None:
        number = notes["deployment"]
        if number is None:
            self.unannounced += 1
            return None
        row = self.waiting.pop(number)
        del self._times[number]
        self.reported += 1
        self._reported_by[self._plan_rows[row]] += 1
        text = notes["values"]
        totals, episode = (self._totals_in if len(text) <= LONGEST_REMEMBERED else self._read_totals)(text)
        for i, total in enumerate(totals, row * (1 + self._m)):
            self._totals[i] = total
        if episode is None:
            return None
        if row in self._untossed:
            self._acting[row] = self._name(self._untossed.pop(row), episode.component)
            self._components[row] = NOBODY_KNOWS if episode.component is None else episode.component
        return episode

    def _read_totals(self, text: str) -> tuple[list[float], Episode | None]:
        """Totals that a report says, and its episode; there is none of a round of a bandit: action, reward, utility."""
        values = from_text(text)
        if len(values) == 3:
            utilities = np.reshape(values[2], (-1, self._m)).mean(axis=0)
            return [float(np.mean(values[1])), *utilities.tolist()], None
        episode = Episode(*values)
        return totals_of(episode, self._task, self._m), episode

    def _abandon(self, notes: Mapping[str, Any]) -> None:
        self.waiting.pop(notes["deployment"])
        del self._times[notes["deployment"]]
        self.abandoned += 1

    def _lost(self, notes: Mapping[str, Any]) -> None:
        """A repair: deployments up to here were made, and nobody knows what came of them."""
        self.abandoned += notes["deployments"] - self._started
        self._started = notes["deployments"]
        self._halt(notes)

    def _halt(self, notes: Mapping[str, Any]) -> None:
        self.halts.append((len(self) - 1, str(notes.get("reason", ""))))

    def rows(self, threshold: Amount, level: str) -> list[Row]:
        """The last deployments, newest first, each with why it was allowed."""
        return [self._row(one, threshold, level) for one in reversed(self._latest)]

    def _row(self, one: Latest, threshold: Amount, level: str) -> Row:
        plan, width = one.plan, 1 + self._m
        margin = (np.array(plan.notes["bounds"]) - amounts(threshold)).tolist()
        said = {
            **plan.notes, "bound": plan.notes["bounds"], "threshold": amounts(threshold).tolist(), "level": level,
            "margin": margin if len(margin) > 1 else margin[0], "learned": plan.learned, "episode": plan.first,
        }  # fmt: skip
        counts = self._deployed_by[plan.row], self._reported_by[plan.row]
        why = explained(said, plan.notes.get("proved"), counts)
        totals = tuple(self._totals[one.row * width : (one.row + 1) * width])
        return Row(one.number, one.time, self._who(one), totals, why, one.name)

    def _who(self, one: Latest) -> str:
        """The name of who acts; "" where nobody knows."""
        number, notes = self._acting[one.row], one.plan.notes
        if number != NOBODY_KNOWS:
            return list(self._names)[number]
        if notes["names"]:
            return ""
        return "incumbent" if notes["source"] == "safe" else f"proposal-{notes['plan']}"

    def record(self, threshold: Amount, settings: Mapping[str, Any]) -> Record:
        """All of it as a record, one row a deployment; a copy, so that it stays as it is while this grows."""
        of = np.array(self._plan_rows)
        bounds = np.array(self._bounds).reshape(-1, 1 + self._m)[of]
        totals = np.array(self._totals).reshape(-1, 1 + self._m)
        return Record(
            np.full(len(of), math.nan),
            np.full_like(_column(totals), math.nan),
            np.array(SOURCES)[np.array(self._sources)[of]],
            bounds[:, 0],
            _column(bounds),
            np.array(self._numbers)[of],
            optimum=math.nan,
            threshold=threshold,
            settings={**settings, "live": "yes"},
            reward_totals=totals[:, 0],
            utility_totals=_column(totals),
            components=np.maximum(np.array(self._components), 0),
            weights=self._all_weights()[of],
            acting_numbers=np.array(self._acting, dtype=np.int32),
            acting_names=tuple(self._names),
            constraint_names=constraint_names(threshold),
        )

    def _all_weights(self) -> Array:
        """The weights of all plans, (P, n); (1, 0, …) for one that mixes nothing."""
        ends = np.array(self._ends)
        lengths = np.diff(ends, prepend=0)
        found = np.zeros((len(ends), max(2, int(lengths.max(initial=2)))))
        found[np.arange(found.shape[1]) < lengths[:, None]] = np.array(self._weights)
        return found


def _column(rows: NDArray[np.float64]) -> Array:
    """What belongs to constraints, of rows that begin with something else: (K,), or (K, m) of several."""
    return rows[:, 1] if rows.shape[1] == 2 else rows[:, 1:]


def constraint_names(threshold: Amount) -> tuple[str, ...]:
    """Names of several constraints, which a journal does not keep."""
    return () if np.ndim(threshold) == 0 else tuple(f"constraint {c}" for c in range(1, np.size(threshold) + 1))


def totals_of(episode: Episode, task: Any, m: int) -> list[float]:
    """Total reward and m utilities; what was not seen is looked up in what the agent was told, else NaN."""
    if episode.total_utility is not None:
        reward = math.nan if episode.total_reward is None else float(episode.total_reward)
        return [reward, *(np.ravel(episode.total_utility).tolist() if m > 1 else [float(episode.total_utility)])]
    if episode.rewards is not None:
        return [float(np.sum(episode.rewards)), *np.ravel(np.sum(episode.utilities, axis=0)).tolist()]
    if task is None or episode.states is None:
        return [math.nan] * (1 + m)
    steps = list(zip(range(task.horizon), episode.states, episode.actions, strict=False))
    utility = sum(task.utility_at(h, s)[a] for h, s, a in steps)
    return [float(sum(task.reward_at(h, s)[a] for h, s, a in steps)), *np.ravel(utility).tolist()]
