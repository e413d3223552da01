"""What a journal tells of a run, without building its agent: its record so far, its halts, and its episodes."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from episafe.deployment.batch_frames import fill, num_episodes, recorded_episodes
from episafe.deployment.folder import LOG, PROBLEM, TOLD, check_file, read_head
from episafe.deployment.frame_kinds import Kind
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.task import Task
from episafe.runs.columns import Columns
from episafe.runs.record import Record, is_complete
from episafe.storage.atomic_files import read_arrays
from episafe.storage.audit_trail import TRAIL
from episafe.storage.frames import Frame, read
from episafe.storage.json_values import from_text
from episafe.types import SOURCES, Amount, Array, Episode, amount, amounts


@dataclass(frozen=True, eq=False)
class History:
    """A run, as its folder tells it.

    Attributes:
        record: one row an episode; of a live session, one a deployment, NaN where nothing was reported.
        halts: the episodes after which only the incumbent acted, and why.
        episodes: states and actions of each episode, None where they are not known; in the order of the record.
        task: what the agent was told, None where the folder does not hold it.
    """

    record: Record
    halts: list[tuple[int, str]]
    episodes: list[tuple[Any, Any] | None]
    task: Any = None


def read_history(folder: Path) -> History:
    """The history that a folder with a journal holds; the last, unfinished frame of one that is open is not there."""
    head = read_head(folder)
    frames = list(read(folder / LOG, head["genesis"]))
    return _live(folder, head, frames) if head["kind"] == "live" else _run(folder, head, frames)


def _run(folder: Path, head: dict[str, Any], frames: list[Frame]) -> History:
    """Of a simulation: the record that it ended with, or the one that its batches make up."""
    batches = [frame for frame in frames if frame.kind == Kind.BATCH]
    problem = LinearCMDP.load(check_file(folder, PROBLEM, head)) if "problem_sha256" in head else None
    task = _told(folder, head) if problem is None else problem.task
    record = Record.load(folder) if is_complete(folder) else _unfinished(folder, head, batches, problem)
    halts = [(int(k), str(reason)) for frame in batches for k, reason in frame.notes["halts"]]
    episodes = [path for frame in batches for path in _paths(frame, task)][: len(record.sources)]
    return History(record, halts, episodes or [None] * len(record.sources), task)


def _paths(frame: Frame, task: Any) -> Iterator[tuple[Any, Any] | None]:
    """States and actions of the episodes of a batch; of rounds of a bandit there are none."""
    if "texts" in frame.arrays or (task is not None and "rows" in frame.arrays):
        for _, report in recorded_episodes(frame.arrays, task or AsText):
            yield _path(report(None)[0])


class AsText:
    """Stands in for a task of which nothing is known, where reports are text."""

    @staticmethod
    def report_from(values: list[Any]) -> tuple[Episode]:
        """The episode that was written."""
        return (Episode(*values),)


def _path(episode: Episode) -> tuple[Any, Any] | None:
    return None if episode.states is None else (episode.states, episode.actions)


def _unfinished(folder: Path, head: dict[str, Any], batches: list[Frame], problem: Any) -> Record:
    """The record of a run that was stopped, as far as it came."""
    if not batches:
        raise ValueError(f"{folder} has no episode yet: go on with `episafe resume {folder}`")
    first, length = batches[0].arrays, sum(num_episodes(frame.arrays) for frame in batches)
    kinds = {"totals": "totals" in first, "changing": "optima" in first, "mixes": False}
    columns = Columns(length, **kinds, num_constraints=first["bounds"].shape[1] - 1)
    for frame in batches:
        fill(columns, frame.arrays, frame.notes["episode"], frame.notes["names"])
    facts, coins, threshold = columns.facts, columns.coins, _threshold(folder)
    return Record(
        **columns.figures,  # type: ignore[arg-type]
        sources=np.array(SOURCES)[facts.sources],
        plan_ids=facts.plan_ids,
        optimum=math.nan if problem is None else float(problem.optimal_value()),
        threshold=threshold,
        settings=_settings(head),
        optima=columns.optima,
        components=None if coins is None else coins.components,
        weights=None if coins is None else coins.weights,
        acting_numbers=None if coins is None else coins.acting,
        acting_names=tuple(columns.names),
        constraint_names=_names(threshold),
    )


def _live(folder: Path, head: dict[str, Any], frames: list[Frame]) -> History:
    """Of a live session: one row a deployment, by the plan that was in force then."""
    task, names, halts = _told(folder, head), dict[str, int](), list[tuple[int, str]]()
    plan: dict[str, Any] = {}
    deployed: list[dict[str, Any]] = []
    for frame in frames:
        notes = frame.notes
        if frame.kind == Kind.PLAN:
            plan = notes
        elif frame.kind == Kind.DEPLOY:
            deployed.append(
                {**plan, "component": notes["component"], "reward": math.nan, "utility": None, "path": None}
            )
        elif frame.kind == Kind.REPORT and notes["deployment"] is not None:
            _note_report(deployed[notes["deployment"]], from_text(notes["values"]), task)
        elif frame.kind == Kind.HALT:
            halts.append((len(deployed) - 1, str(notes.get("reason", ""))))
    if not deployed:
        raise ValueError(f"{folder} has no deployment yet: nothing can be reported of it")
    widest = max(2, *(len(row["weights"]) for row in deployed))
    weights = np.zeros((len(deployed), widest))
    for i, row in enumerate(deployed):
        weights[i, : max(len(row["weights"]), 1)] = row["weights"] or 1.0
    acting = [_acting(row, names) for row in deployed]
    threshold = _threshold(folder)
    unknown = np.full(len(deployed), math.nan)
    bounds, utilities = (_column([row[name] for row in deployed], threshold) for name in ("bounds", "utility"))
    record = Record(
        unknown,
        np.full_like(utilities, math.nan),
        np.array([row["source"] for row in deployed]),
        np.array([row["lam"] for row in deployed], dtype=np.float64),
        bounds,
        np.array([row["plan"] for row in deployed], dtype=np.int64),
        optimum=math.nan,
        threshold=threshold,
        settings={**_settings(head), "live": "yes"},
        reward_totals=np.array([row["reward"] for row in deployed], dtype=np.float64),
        utility_totals=utilities,
        components=np.array([row["component"] or 0 for row in deployed], dtype=np.int64),
        weights=weights,
        acting_numbers=np.array(acting, dtype=np.int32),
        acting_names=tuple(names),
        constraint_names=_names(threshold),
    )
    return History(record, halts, [row["path"] for row in deployed], task)


def _column(rows: list[Any], threshold: Amount) -> Array:
    """One number a row, or (K, m) of m constraints; NaN where a row has none."""
    m = np.size(threshold)
    found = np.full((len(rows), m), math.nan)
    for i, row in enumerate(rows):
        if row is not None:
            found[i] = row
    return found[:, 0] if m == 1 else found


def _names(threshold: Amount) -> tuple[str, ...]:
    """Names of several constraints, which a journal does not keep."""
    return () if np.ndim(threshold) == 0 else tuple(f"constraint {c}" for c in range(1, np.size(threshold) + 1))


def _note_report(row: dict[str, Any], values: list[Any], task: Any) -> None:
    """What was reported of a deployment: totals and path, and who acted if the caller tossed the coin."""
    if len(values) == 3:  # a round of a bandit: action, reward, utility
        row["reward"], row["utility"] = float(np.mean(values[1])), float(np.mean(values[2]))
        return
    episode = Episode(*values)
    row["path"], (row["reward"], row["utility"]) = _path(episode), _totals(episode, task)
    row["component"] = episode.component if row["component"] is None else row["component"]


def _totals(episode: Episode, task: Any) -> tuple[float, Any]:
    """Total reward and utility, one a constraint; what was not seen is looked up in what the agent was told."""
    if episode.total_utility is not None:
        return float(episode.total_reward), episode.total_utility
    if episode.rewards is not None:
        return float(np.sum(episode.rewards)), np.sum(episode.utilities, axis=0)
    if task is None or episode.states is None:
        return math.nan, None
    steps = list(zip(range(task.horizon), episode.states, episode.actions, strict=False))
    utility = sum(task.utility_at(h, s)[a] for h, s, a in steps)
    return float(sum(task.reward_at(h, s)[a] for h, s, a in steps)), utility


def _acting(row: dict[str, Any], names: dict[str, int]) -> int:
    """The number of the name of who acted; −1 where it follows from the source."""
    if not row["names"] or row["component"] is None:
        return -1
    return names.setdefault(str(row["names"][row["component"]]), len(names))


def _told(folder: Path, head: dict[str, Any]) -> Any:
    """The task of a journal that holds one with listed states, else None."""
    arrays: dict[str, Array] = read_arrays(check_file(folder, TOLD, head))[0] if "told_sha256" in head else {}
    return Task.from_arrays(arrays) if "reward" in arrays and "noise" not in arrays else None


def _settings(head: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(head.get("agent_settings", "{}"))
    return {name: value for name, value in said.items() if isinstance(value, str | int | float)}


def _threshold(folder: Path) -> Amount:
    """b, as the trail says it, or one a constraint; NaN before its first line."""
    with (folder / TRAIL).open() as file:
        said = (json.loads(line) for line in file if '"threshold":' in line)
        return amount(amounts(next((line["threshold"] for line in said), math.nan)))
