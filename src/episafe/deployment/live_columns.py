"""The deployments of a live session as columns, filled frame by frame. Nobody need build the agent for that."""

import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.deployment.explanation import DeploymentRow, Explanation, explained
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import TOLD, check_file, constraint_names, settings_of
from episafe.problems.task import Task
from episafe.runs.record import Record
from episafe.storage.atomic_files import read_arrays
from episafe.storage.frames import Frame
from episafe.storage.journal_files import LENGTH
from episafe.storage.json_values import from_text
from episafe.types import SOURCES, Amount, Array, Episode, IntArray, amounts

LATEST = 20  # deployments of which more is kept than columns
PATHS_REMEMBERED, LONGEST_REMEMBERED = 4096, 1000  # reports whose totals need not be looked up again; characters
NOBODY_KNOWS = -1  # the component or the name of who acted
DEPLOY, REPORT = int(Kind.DEPLOY), int(Kind.REPORT)
# What nearly all frames say, byte by byte as a session writes it; every other is read as JSON, which takes longer. A
# text is of printable ASCII, and a number has no 0 before it, or JSON would refuse what is taken here.
NUMBER, TEXT = rb"(?:0|[1-9]\d*)", rb'[^"\\\x00-\x1f\x80-\xff]'
COMMON = {
    DEPLOY: re.compile(
        rb'\[\{"id":(%(n)b),"plan":%(n)b,"component":(%(n)b|null),"time":"(%(t)b+)"(?:,"name":"(%(t)b*)")?\},\[\]\]'
        % {b"n": NUMBER, b"t": TEXT}
    ),
    REPORT: re.compile(
        rb'\[\{"plan":%(n)b,"deployment":(%(n)b),"named":(?:true|false),"id":(?:null|"%(t)b*"),'
        rb'"time":"(%(t)b+)","values":"(%(t)b*)"\},\[\]\]' % {b"n": NUMBER, b"t": TEXT}
    ),
}


class InForce(NamedTuple):
    """A plan that was put in force: its row, what its frame says, the deployment that it began with, and how many
    reports there were then."""

    row: int
    notes: Mapping[str, Any]
    first: int
    learned: int


class LiveColumns:
    """Columns of a live session; `take` every frame once, in order.

    Args:
        folder, head: of its journal, which holds what the agent was told where states are listed: totals that were not
            reported are looked up there.
        keeps_paths: whether states and actions are kept too.

    Attributes:
        task: what the agent was told, else None.
        waiting: the row and the time of each deployment without a report, by its number; oldest first.
        reported, abandoned: how many deployments were, and how many never will be.
        unannounced: reports of no deployment, as from a log.
        halts: the rows after which only what was promoted acted, and why.
    """

    def __init__(self, folder: Path, head: dict[str, Any], keeps_paths: bool = False) -> None:
        self.task, self._head, self._m = told_task(folder, head), head, 1
        self._paths: dict[int, tuple[Any, Any]] | None = {} if keeps_paths else None
        self._plan_rows, self._components = array("q"), array("q")
        self._totals = array("d")  # of each deployment its reward and m utilities; NaN until they are reported
        self._numbers, self._sources, self._bounds = array("q"), array("b"), array("d")  # of plans; λ and m bounds
        self._weights, self._ends = array("d"), array("q")  # of plans, one after another, and where each ends
        self._names: dict[str, int] = {}  # of all components, numbered
        self._parts: list[list[int]] = []  # of plans: their components' names; none where the source says who acts
        self._deployed_by, self._reported_by = array("q"), array("q")  # how often, by the row of the plan
        self._totals_in = lru_cache(PATHS_REMEMBERED)(self._read_totals)  # few paths are taken again and again
        self._in_force: InForce | None = None
        self.waiting: dict[int, tuple[int, str]] = {}
        self.reported = self.abandoned = self.unannounced = self._started = 0
        self.halts: list[tuple[int, str]] = []
        self._latest: deque[tuple[int, InForce, int, str, str]] = deque(maxlen=LATEST)  # row, plan, number, time, name
        self._take: dict[int, Callable[[Mapping[str, Any]], None]] = {
            Kind.PLAN: self._plan, Kind.DEPLOY: self._deploy, Kind.REPORT: self._report, Kind.ABANDON: self._abandon,
            Kind.LOST: self._lost, Kind.HALT: self._halt,
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self._plan_rows)

    @property
    def next_number(self) -> int:
        """The number of the next deployment, which is how many there were, and those that repairs passed over."""
        return self._started

    @property
    def oldest_missing(self) -> str:
        """The time of the oldest deployment without a report; "" if there is none."""
        return next(iter(self.waiting.values()), (0, ""))[1]

    @property
    def paths(self) -> list[tuple[Any, Any] | None]:
        """States and actions of each deployment; None where they were not reported, or nobody wants to know them."""
        return [(self._paths or {}).get(row) for row in range(len(self))]

    def take(self, frame: Frame) -> None:
        """Go on by one frame."""
        if frame.kind in self._take:
            self._take[frame.kind](frame.notes)

    def take_common(self, kind: int, payload: bytes) -> str:
        """Go on by one frame of the two most frequent forms; its time, or "" for any other, which is to be taken."""
        found = COMMON[kind].fullmatch(payload, LENGTH.size) if kind in COMMON else None
        if found is None or LENGTH.unpack_from(payload)[0] != len(payload) - LENGTH.size:
            return ""
        if kind == DEPLOY:
            number, component, when, name = found.groups(b"")
            time: str = when.decode()
            self._deployed(int(number), NOBODY_KNOWS if component == b"null" else int(component), time, name.decode())
        else:
            number, when, values = found.groups()
            time = when.decode()
            self._reported(int(number), values.decode())
        return time

    def _plan(self, notes: Mapping[str, Any]) -> None:
        self._m = len(notes["bounds"])
        self._unknown = array("d", (math.nan,) * (1 + self._m))
        self._in_force = InForce(len(self._numbers), notes, self._started, self.reported + self.unannounced)
        self._numbers.append(notes["plan"])
        self._sources.append(SOURCES.index(notes["source"]))
        self._bounds.extend((notes["lam"], *notes["bounds"]))
        self._weights.extend(notes["weights"] or (1.0,))
        self._ends.append(len(self._weights))
        self._parts.append([self._names.setdefault(str(name), len(self._names)) for name in notes["names"]])
        self._deployed_by.append(0)
        self._reported_by.append(0)

    def _deploy(self, notes: Mapping[str, Any]) -> None:
        component = NOBODY_KNOWS if notes["component"] is None else notes["component"]
        self._deployed(notes["id"], component, notes["time"], notes.get("name", ""))

    def _deployed(self, number: int, component: int, when: str, name: str = "") -> None:
        plan, row = self._in_force, len(self._plan_rows)
        if plan is None:
            raise ValueError("a deployment without a plan")
        self._plan_rows.append(plan.row)
        self._deployed_by[plan.row] += 1
        self._components.append(component)
        self._totals.extend(self._unknown)
        self.waiting[number] = row, when
        self._started = number + 1
        self._latest.append((row, plan, number, when, name))

    def _report(self, notes: Mapping[str, Any]) -> None:
        if notes["deployment"] is None:
            self.unannounced += 1
        else:
            self._reported(notes["deployment"], notes["values"])

    def _reported(self, number: int, text: str) -> None:
        row, _ = self.waiting.pop(number)
        plan, width = self._plan_rows[row], 1 + self._m
        self.reported += 1
        self._reported_by[plan] += 1
        totals, episode = (self._totals_in if len(text) <= LONGEST_REMEMBERED else self._read_totals)(text)
        self._totals[row * width : (row + 1) * width] = totals
        if self._components[row] == NOBODY_KNOWS and self._parts[plan] and episode and episode.component is not None:
            self._components[row] = episode.component  # the caller has tossed the coin
        if self._paths is not None and episode and episode.states is not None:
            self._paths[row] = episode.states, episode.actions

    def _read_totals(self, text: str) -> "tuple[array[float], Episode | None]":
        """Totals that a report says, and its episode; there is none of a round of a bandit: action, reward, utility."""
        values = from_text(text)
        if len(values) == 3:
            utilities = np.reshape(values[2], (-1, self._m)).mean(axis=0)
            return array("d", (float(np.mean(values[1])), *utilities.tolist())), None
        episode = Episode(*values)
        return array("d", totals_of(episode, self.task, self._m)), episode

    def _abandon(self, notes: Mapping[str, Any]) -> None:
        self.waiting.pop(notes["deployment"])
        self.abandoned += 1

    def _lost(self, notes: Mapping[str, Any]) -> None:
        """A repair: deployments up to here were made, and nobody knows what came of them."""
        self.abandoned += notes["deployments"] - notes.get("passed", 0) - self._started
        self._started = notes["deployments"]
        self._halt(notes)

    def _halt(self, notes: Mapping[str, Any]) -> None:
        self.halts.append((len(self) - 1, str(notes.get("reason", ""))))

    def rows(self, threshold: Amount) -> list[DeploymentRow]:
        """The last deployments, newest first, each with why it was allowed."""
        b = amounts(threshold)
        return [
            DeploymentRow(number, when, *self._acted(row, plan, b), name)
            for row, plan, number, when, name in reversed(self._latest)
        ]

    def _acted(self, row: int, plan: InForce, b: Array) -> tuple[str, tuple[float, ...], Explanation]:
        """Who acted in a row, what came of it, and why it was allowed."""
        width = 1 + self._m
        said = {
            **plan.notes, "bound": plan.notes["bounds"], "threshold": b.tolist(),
            "level": settings_of(self._head).get("level", "heuristic"), "learned": plan.learned, "episode": plan.first,
        }  # fmt: skip
        counts = self._deployed_by[plan.row], self._reported_by[plan.row]
        why = explained(said, plan.notes.get("proved"), counts, constraint_names(self._head, self._m))
        return self._who(row, plan.notes), tuple(self._totals[row * width : (row + 1) * width]), why

    def _who(self, row: int, plan: Mapping[str, Any]) -> str:
        """The name of who acts; "" where nobody knows."""
        if plan["names"]:
            component = self._components[row]
            return "" if component == NOBODY_KNOWS else str(plan["names"][component])
        return "incumbent" if plan["source"] == "safe" else f"proposal-{plan['plan']}"

    def record(self, threshold: Amount) -> Record:
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
            settings={**settings_of(self._head), "live": "yes"},
            reward_totals=totals[:, 0],
            utility_totals=_column(totals),
            components=np.maximum(np.array(self._components), 0),
            weights=self._all_weights()[of],
            acting_numbers=self._acting(of),
            acting_names=tuple(self._names),
            constraint_names=constraint_names(self._head, self._m),
        )

    def _acting(self, of: IntArray) -> NDArray[np.int32]:
        """The number of the name of who acted in each deployment of plans `of`, (K,)."""
        components, lengths = np.array(self._components), np.array([len(parts) for parts in self._parts])
        numbers = np.array([*chain.from_iterable(self._parts), NOBODY_KNOWS], dtype=np.int32)
        known = (components != NOBODY_KNOWS) & (lengths[of] > 0)
        return numbers[np.where(known, (np.cumsum(lengths) - lengths)[of] + components, NOBODY_KNOWS)]

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


def told_task(folder: Path, head: dict[str, Any]) -> Any:
    """The task of a journal that holds one with listed states, else None."""
    arrays: dict[str, Array] = read_arrays(check_file(folder, TOLD, head))[0] if "told_sha256" in head else {}
    return Task.from_arrays(arrays) if "reward" in arrays and "noise" not in arrays else None


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
