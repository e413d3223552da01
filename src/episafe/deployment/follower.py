"""A journal that is followed from outside, while somebody else writes it: read on as it grows, and never written.

The writer's lock is not asked for, and nothing is read twice. Every frame is verified to follow from the one before
it, as far as that is read.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from episafe.deployment.explanation import DeploymentRow
from episafe.deployment.frame_kinds import Kind, change_of
from episafe.deployment.journal_folder import LOG, read_head, settings_of
from episafe.deployment.live_columns import LiveColumns
from episafe.deployment.run_columns import RunColumns
from episafe.errors import DamagedFile
from episafe.runs.record import Record
from episafe.storage.audit_trail import TRAIL, stated_threshold
from episafe.storage.frames import UNREADABLE, Frame, Reader
from episafe.storage.journal_files import Position
from episafe.types import Amount, amount, amounts

EVENTS_SHOWN = 50
COUNTED = (Kind.PLAN, Kind.DEPLOY, Kind.REPORT)  # by far the most frames
SAID = {
    Kind.HALT: "exploring was stopped",
    Kind.RESUME: "exploring goes on",
    Kind.CANDIDATE: "on trial from here on",
    Kind.CLOSE: "closed in good order",
    Kind.LOST: "repaired: what was lost counts at its worst",
}


class Event(NamedTuple):
    """Something that is neither a deployment nor a report: when, what, and whether it asks for a person."""

    time: str
    says: str
    is_alarm: bool = False


class Follower:
    """A journal as far as it was read; `read_on` reads what was written since.

    Args:
        folder: of a journal, live or of a run; it may be in use.
        keeps_paths: whether states and actions of a live session's episodes are kept too.

    Attributes:
        is_live: whether it is that of a live session.
        columns: its deployments, or episodes of a simulation.
        share_read: how much of it was read, from 0 to 1.
        halted: why only what is promoted acts; "" while the agent decides.
        promoted: what acts when nothing else may.
        is_closed: whether nobody has it open, as far as it says.
        threshold: the one in force, or one a constraint; NaN before the first plan.
        earlier: thresholds that a person changed, and the deployment from which on they held no more.
        num_alarms: how often the monitors said something.
        events: the last ones, alarms among them.
        last_written: the time of the last frame that says one.
    """

    def __init__(self, folder: str | Path, keeps_paths: bool = False) -> None:
        self.folder = Path(folder)
        self.head = read_head(self.folder)
        self.settings = settings_of(self.head)
        self.is_live: bool = self.head["kind"] == "live"
        self.columns: LiveColumns | RunColumns = RunColumns(self.folder, self.head)
        if self.is_live:
            self.columns = LiveColumns(self.folder, self.head, keeps_paths)
        self.share_read = 0.0
        self._position: Position | None = None
        self.halted, self.promoted, self.is_closed, self.last_written = "", "incumbent", False, ""
        self.threshold: Amount = math.nan
        self.earlier: list[tuple[int, Amount]] = []
        self.num_alarms, self.events = 0, deque[Event](maxlen=EVENTS_SHOWN)

    def read_on(self, seconds: float = math.inf, on_progress: Callable[[float], object] = lambda share: None) -> bool:
        """Read what was written since, for so long at most; whether there was anything.

        A frame that is not whole yet is read next time. `DamagedFile` where frames do not follow from each other.
        `on_progress` is called with the share of the log that was read.
        """
        reader = Reader(self.folder / LOG, self.head["genesis"], self._position)
        before, until = reader.number, time.monotonic() + seconds
        take_common = self.columns.take_common
        try:
            for kind, payload in reader.payloads():
                if when := take_common(kind, payload):
                    self.last_written = when
                else:
                    self._take(reader.frame(kind, payload))
                on_progress(reader.share)
                if time.monotonic() > until:
                    break
        except UNREADABLE as error:
            raise DamagedFile(f"{reader.path}: frame {reader.number - 1} says what cannot be ({error!r})") from error
        self._position = reader.position if reader.number else None
        size = (self.folder / LOG).stat().st_size - reader.torn
        self.share_read = min(reader.end / size, 1.0) if size else 1.0
        self.threshold = self._known_threshold()
        return reader.number > before

    @property
    def record(self) -> Record | None:
        """What was read as a record; None before the first deployment."""
        return self.columns.record(self.threshold) if len(self.columns) else None

    def latest(self) -> list[DeploymentRow]:
        """The last deployments, newest first, each with why it was allowed."""
        return self.columns.rows(self.threshold)

    def _take(self, frame: Frame) -> None:
        kind, notes = frame.kind, frame.notes
        self.columns.take(frame)
        self.last_written = notes.get("time") or self.last_written
        if kind in COUNTED:
            return
        self.is_closed = kind == Kind.CLOSE
        if kind == Kind.CHANGE and notes.get("thresholds") is not None:
            self._change_threshold(amount(amounts(notes["thresholds"])))
        if kind in (Kind.HALT, Kind.LOST):
            self.halted = str(notes["reason"])
        elif kind == Kind.RESUME:
            self.halted = ""
        elif kind == Kind.PROMOTE:
            self.promoted = str(notes["name"])
        for event in _events(frame):
            self.events.append(event)
            self.num_alarms += event.is_alarm

    def _known_threshold(self) -> Amount:
        """b, or one a constraint: as it is known, else as the trail says it first; NaN before its first line."""
        if not np.isnan(amounts(self.threshold)).all():
            return self.threshold
        with (self.folder / TRAIL).open() as file:
            return stated_threshold(file)

    def _change_threshold(self, threshold: Amount) -> None:
        """A person has changed it; of the one before is kept how long it held."""
        was, self.threshold = self._known_threshold(), threshold
        if not np.isnan(amounts(was)).any() and np.any(amounts(was) != amounts(threshold)):
            self.earlier.append((len(self.columns), was))


def _events(frame: Frame) -> Iterator[Event]:
    """A frame in words; nothing of those that only count."""
    kind, notes = frame.kind, frame.notes
    when, besides = str(notes.get("time") or ""), notes.get("reason") or notes.get("name") or ""
    if kind == Kind.BATCH:
        for k, reason in notes["halts"]:
            yield Event("", f"exploring was stopped after episode {int(k) + 1}: {reason}", True)
    elif kind == Kind.FAULT:
        yield Event(when, str(notes["reason"]), "alarm" in notes)
    elif said := change_of(kind, notes):
        yield Event(when, said)
    elif kind == Kind.CHANGE and notes.get("what") == "incumbent":
        yield Event(when, f"the incumbent was replaced: {besides}")
    elif kind in SAID:
        yield Event(when, f"{SAID[Kind(kind)]}{': ' if besides else ''}{besides}")
