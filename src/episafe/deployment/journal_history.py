"""What a journal tells of a run, without building its agent: its record so far, its halts, and its episodes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from episafe.deployment.batch_frames import recorded_episodes, unfinished_record
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import LOG, read_head, stored_problem
from episafe.deployment.live_columns import LiveColumns, told_task
from episafe.runs.record import Record, is_complete
from episafe.storage.audit_trail import TRAIL, stated_threshold
from episafe.storage.frames import Frame, Reader
from episafe.types import Amount, Episode, amount, amounts

# stands in for a task of which nothing is known, where reports are text
AS_TEXT = SimpleNamespace(report_from=lambda values: (Episode(*values),))


@dataclass(frozen=True, eq=False)
class History:
    """A run, as its folder tells it.

    Attributes:
        record: one row an episode; of a live session, one a deployment, NaN where nothing was reported.
        halts: the episodes after which only the incumbent acted, and why.
        episodes: states and actions of each episode, None where they are not known; in the order of the record.
        task: what the agent was told, None where the folder does not hold it.
        earlier: thresholds that a person changed, and the deployment from which on they held no more.
    """

    record: Record
    halts: list[tuple[int, str]]
    episodes: list[tuple[Any, Any] | None]
    task: Any = None
    earlier: Sequence[tuple[int, Amount]] = ()


def read_history(folder: Path, on_progress: Callable[[float], object] = lambda share: None) -> History:
    """The history that a folder with a journal holds; the last, unfinished frame of one that is open is not there.

    `on_progress` is called with the share of the log that was read.
    """
    head = read_head(folder)
    reader, frames = Reader(folder / LOG, head["genesis"]), list[Frame]()
    for frame in reader:
        frames.append(frame)
        on_progress(reader.share)
    return _live(folder, head, frames) if head["kind"] == "live" else _run(folder, head, frames)


def _run(folder: Path, head: dict[str, Any], frames: list[Frame]) -> History:
    """Of a simulation: the record that it ended with, or the one that its batches make up."""
    batches = [frame for frame in frames if frame.kind == Kind.BATCH]
    problem = stored_problem(folder, head)
    task = told_task(folder, head) if problem is None else problem.task
    record = Record.load(folder) if is_complete(folder) else _unfinished(folder, head, batches, problem)
    halts = [(int(k), str(reason)) for frame in batches for k, reason in frame.notes["halts"]]
    episodes = [path for frame in batches for path in _paths(frame, task)][: len(record.sources)]
    return History(record, halts, episodes or [None] * len(record.sources), task)


def _paths(frame: Frame, task: Any) -> Iterator[tuple[Any, Any] | None]:
    """States and actions of the episodes of a batch; of rounds of a bandit there are none."""
    if "texts" in frame.arrays or (task is not None and "rows" in frame.arrays):
        for _, report in recorded_episodes(frame.arrays, task or AS_TEXT):
            yield _path(report(None)[0])


def _path(episode: Episode) -> tuple[Any, Any] | None:
    return None if episode.states is None else (episode.states, episode.actions)


def _unfinished(folder: Path, head: dict[str, Any], batches: list[Frame], problem: Any) -> Record:
    """The record of a run that was stopped, as far as it came."""
    if not batches:
        raise ValueError(f"{folder} has no episode yet: go on with `episafe resume {folder}`")
    optimum = math.nan if problem is None else float(problem.optimal_value())
    return unfinished_record(batches, head, optimum, threshold_of(folder))


def _live(folder: Path, head: dict[str, Any], frames: list[Frame]) -> History:
    """Of a live session: one row a deployment, by the plan that was in force then."""
    columns, threshold = LiveColumns(folder, head), threshold_of(folder)
    paths: dict[int, tuple[Any, Any] | None] = {}
    earlier = list[tuple[int, Amount]]()
    for frame in frames:
        awaited = columns.waiting.get(frame.notes["deployment"]) if frame.kind == Kind.REPORT else None
        episode = columns.take(frame)
        if awaited is not None and episode is not None:
            paths[awaited[0]] = _path(episode)
        was, threshold = threshold, new_threshold(frame, threshold)
        earlier += [(len(columns), was)] if is_other(threshold, was) else []
    if not len(columns):
        raise ValueError(f"{folder} has no deployment yet: nothing can be reported of it")
    episodes = [paths.get(row) for row in range(len(columns))]
    return History(columns.record(threshold), columns.halts, episodes, columns.task, earlier)


def new_threshold(frame: Frame, threshold: Amount) -> Amount:
    """The threshold after a frame: a person may have changed it."""
    if frame.kind != Kind.CHANGE or frame.notes.get("thresholds") is None:
        return threshold
    return amount(amounts(frame.notes["thresholds"]))


def is_other(threshold: Amount, was: Amount) -> bool:
    """Whether a threshold is another than before; not where there was none yet."""
    return not np.isnan(amounts(was)).any() and bool(np.any(amounts(was) != amounts(threshold)))


def threshold_of(folder: Path) -> Amount:
    """b, as the trail says it, or one a constraint; NaN before its first line."""
    with (folder / TRAIL).open() as file:
        return stated_threshold(file)
