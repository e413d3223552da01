"""A journal that is followed from outside, while somebody else writes it: read on as it grows, and never written.

The writer's lock is not asked for, and nothing is read twice. Every frame is verified to follow from the one before
it, as far as that is read.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from episafe.deployment.explanation import Row
from episafe.deployment.frame_kinds import Kind, change_of
from episafe.deployment.journal_folder import LOG, read_head, settings_of
from episafe.deployment.journal_history import is_other, new_threshold, threshold_of
from episafe.deployment.live_columns import LiveColumns
from episafe.deployment.run_columns import RunColumns
from episafe.errors import DamagedFile
from episafe.runs.record import Record
from episafe.storage.frames import Frame, Reader
from episafe.storage.journal_files import Position
from episafe.types import Amount, amounts

EVENTS_SHOWN = 50
COUNTED = (Kind.PLAN, Kind.DEPLOY, Kind.REPORT)  # by far the most frames
UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError)
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


@dataclass
class Standing:
    """Where a journal stands, as far as it was read.

    Attributes:
        halted: why only what is promoted acts; "" while the agent decides.
        promoted: what acts when nothing else may.
        is_closed: whether nobody has it open, as far as it says.
        threshold: the one in force, or one a constraint; NaN before the first plan.
        earlier: thresholds that were changed, and the deployment from which on they held no more.
        num_alarms: how often the monitors said something.
        events: the last ones, alarms among them.
        last_written: the time of the last frame that says one.
    """

    halted: str = ""
    promoted: str = "incumbent"
    is_closed: bool = False
    threshold: Amount = math.nan
    earlier: list[tuple[int, Amount]] = field(default_factory=list)
    num_alarms: int = 0
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_SHOWN))
    last_written: str = ""


class Follower:
    """A journal as far as it was read; `read_on` reads what was written since.

    Args:
        folder: of a journal, live or of a run; it may be in use.

    Attributes:
        columns: its deployments, or episodes of a simulation.
        standing: all else.
        share_read: how much of it was read, from 0 to 1.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.head = read_head(self.folder)
        self.settings = settings_of(self.head)
        self.columns = (LiveColumns if self.head["kind"] == "live" else RunColumns)(self.folder, self.head)
        self.standing, self.share_read = Standing(), 0.0
        self._position: Position | None = None

    def read_on(self, seconds: float = math.inf) -> bool:
        """Read what was written since, for so long at most; whether there was anything.

        A frame that is not whole yet is read next time. `DamagedFile` where frames do not follow from each other.
        """
        reader = Reader(self.folder / LOG, self.head["genesis"], self._position)
        before, until = reader.number, time.monotonic() + seconds
        take_common, standing = self.columns.take_common, self.standing
        try:
            for kind, payload in reader.payloads():
                if when := take_common(kind, payload):
                    standing.last_written = when
                else:
                    self._take(reader.frame(kind, payload))
                if time.monotonic() > until:
                    break
        except UNREADABLE as error:
            raise DamagedFile(f"{reader.path}: frame {reader.number - 1} says what cannot be ({error!r})") from error
        self._position = reader.position if reader.number else None
        size = (self.folder / LOG).stat().st_size - reader.torn
        self.share_read = min(reader.end / size, 1.0) if size else 1.0
        if np.isnan(amounts(self.standing.threshold)).all():
            self.standing.threshold = threshold_of(self.folder)
        return reader.number > before

    @property
    def record(self) -> Record | None:
        """What was read as a record; None before the first deployment."""
        return self.columns.record(self.standing.threshold) if len(self.columns) else None

    def latest(self) -> list[Row]:
        """The last deployments, newest first, each with why it was allowed."""
        return self.columns.rows(self.standing.threshold)

    def _take(self, frame: Frame) -> None:
        kind, notes, standing = frame.kind, frame.notes, self.standing
        self.columns.take(frame)
        standing.last_written = notes.get("time") or standing.last_written
        if kind in COUNTED:
            return
        standing.is_closed = kind == Kind.CLOSE
        self._note_threshold(frame)
        if kind in (Kind.HALT, Kind.LOST):
            standing.halted = str(notes["reason"])
        elif kind == Kind.RESUME:
            standing.halted = ""
        elif kind == Kind.PROMOTE:
            standing.promoted = str(notes["name"])
        for event in _events(frame):
            standing.events.append(event)
            standing.num_alarms += event.is_alarm

    def _note_threshold(self, frame: Frame) -> None:
        """A person may have changed it; of the one before is kept how long it held."""
        standing = self.standing
        was = threshold_of(self.folder) if np.isnan(amounts(standing.threshold)).all() else standing.threshold
        standing.threshold = new_threshold(frame, was)
        if is_other(standing.threshold, was):
            standing.earlier.append((len(self.columns), was))


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
