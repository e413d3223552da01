"""The episodes of a simulation as columns, filled batch by batch: what `LiveColumns` is of a live session."""

import math
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from episafe.deployment.batch_frames import recorded_episodes, unfinished_record
from episafe.deployment.episode_tapes import num_episodes
from episafe.deployment.explanation import DeploymentRow, explained
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import stored_problem
from episafe.deployment.live_columns import LATEST, told_task
from episafe.runs.record import Record
from episafe.storage.frames import Frame
from episafe.types import Amount, Episode, amounts

# stands in for a task of which nothing is known, where reports are text
AS_TEXT = SimpleNamespace(report_from=lambda values: (Episode(*values),))


class RunColumns:
    """Columns of a simulation; `take` every frame once, in order.

    Args:
        folder, head: of its journal, which holds the problem where it can be stored.

    Attributes:
        waiting, oldest_missing, abandoned, unannounced: as of a live session; nothing is ever missing here.
        halts: the episodes after which only the incumbent acted, and why.
    """

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        self._folder, self._head = folder, head
        self._batches: list[Frame] = []
        self._length = 0
        self.waiting: dict[int, tuple[int, str]] = {}
        self.abandoned = self.unannounced = 0
        self.oldest_missing = ""
        self.halts: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return self._length

    @property
    def reported(self) -> int:
        """All of them."""
        return self._length

    def take_common(self, kind: int, payload: bytes) -> str:
        """Nothing: batches are few, and all of them are to be taken."""
        return ""

    def take(self, frame: Frame) -> None:
        """Go on by one frame."""
        if frame.kind == Kind.BATCH:
            self._batches.append(frame)
            self._length += num_episodes(frame.arrays)
            self.halts += [(int(k), str(reason)) for k, reason in frame.notes["halts"]]

    def record(self, threshold: Amount) -> Record:
        """All of it as a record."""
        return unfinished_record(self._batches, self._head, self._optimum, threshold)

    @cached_property
    def _problem(self) -> Any:
        return stored_problem(self._folder, self._head)

    @cached_property
    def _optimum(self) -> float:
        return math.nan if self._problem is None else float(self._problem.optimal_value())

    @property
    def task(self) -> Any:
        """What the agent was told; None where the folder does not hold it."""
        return told_task(self._folder, self._head) if self._problem is None else self._problem.task

    @property
    def paths(self) -> list[tuple[Any, Any] | None]:
        """States and actions of each episode; None where they are not known, and of rounds of a bandit."""
        task = self.task
        played = [b.arrays for b in self._batches if "texts" in b.arrays or (task is not None and "rows" in b.arrays)]
        reports = [report(None)[0] for one in played for _, report in recorded_episodes(one, task or AS_TEXT)]
        found = [None if one.states is None else (one.states, one.actions) for one in reports]
        return found or [None] * self._length

    def rows(self, threshold: Amount) -> list[DeploymentRow]:
        """The last episodes, newest first, each with why it was allowed."""
        if not self._length:
            return []
        record = self.record(threshold)
        begins = np.flatnonzero(np.r_[True, np.diff(record.plan_ids) != 0])
        last = range(len(record.sources) - 1, max(len(record.sources) - LATEST, 0) - 1, -1)
        return [_row(record, k, int(begins[np.searchsorted(begins, k, side="right") - 1])) for k in last]


def _row(record: Record, k: int, begun: int) -> DeploymentRow:
    """Episode k, whose plan was first deployed in episode `begun`."""
    bound, b = amounts(record.utility_bounds[k]), amounts(record.threshold)
    weights = [w for w in record.weights[k].tolist() if w]
    said = {
        "plan": int(record.plan_ids[k]), "episode": begun, "learned": begun, "source": str(record.sources[k]),
        "bound": bound.tolist(), "threshold": b.tolist(), "level": record.settings.get("level", "heuristic"),
        "weights": weights if len(weights) > 1 else [],
    }  # fmt: skip
    known = (record.reward_values, record.utility_values) if record.is_exact else _totals(record)
    totals = (float(known[0][k]), *amounts(known[1][k]).tolist())
    return DeploymentRow(
        k, "", str(record.acting[k]), totals, explained(said, None, (None, None), record.constraint_names)
    )


def _totals(record: Record) -> tuple[Any, Any]:
    unknown = np.full(len(record.sources), math.nan)
    found = record.reward_totals, record.utility_totals
    return unknown if found[0] is None else found[0], unknown if found[1] is None else found[1]
