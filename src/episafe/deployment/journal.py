"""The journal of a session: frames that are on the disk before anybody relies on them, the audit trail beside them, and
checkpoints, which shorten the way back and are never the source.

Frames go to the log first. A line of the trail is written when its frame is on the disk, so that the trail never says
more than the log.
"""

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from episafe.deployment.frame_kinds import EVENTS, Kind
from episafe.deployment.journal_folder import HEAD, LOG, PROBLEM, TOLD, read_head
from episafe.errors import DamagedFile
from episafe.storage import checkpoint
from episafe.storage.atomic_files import remove_unfinished
from episafe.storage.audit_trail import TRAIL, Trail, broken_at, read_trail
from episafe.storage.frames import Frame, Reader
from episafe.storage.journal_files import Arrays, CutShort, Gone, HeldFile, Log, Position, TrailFile
from episafe.storage.state_reader import State
from episafe.types import Amount

REMEDY = "restore it from a copy, or `episafe repair` the folder"


class NewFrame(NamedTuple):
    """A frame to be: its kind, plain values, arrays, and the lines of the trail that say the same."""

    kind: Kind
    notes: Mapping[str, Any]
    arrays: Arrays | None = None
    lines: Sequence[str] = ()


class Journal:
    """An open journal.

    Args:
        folder: where it was begun.
        settings: of the agent, as the trail says them.
        threshold: b, or (m,) of several constraints.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], threshold: Amount) -> None:
        self.folder, self.head = folder, read_head(folder)
        self.genesis: str = self.head["genesis"]
        self.trail = Trail(threshold, settings, self.genesis)
        self.noted: list[str] = []  # what was wrong when it was opened
        # lines whose frames may not be on the disk yet: number of the frame, own number, text
        self._pending: list[tuple[int, int, str]] = []
        self._lines = threading.Lock()
        self._known = (0, self.genesis)  # bytes of the trail when the checkpoint was made, and its last hash
        self._checkpointed = time.monotonic()
        with ExitStack() as held:
            self.log = held.enter_context(closing(Log(folder / LOG)))
            self._head = held.enter_context(closing(HeldFile(folder / HEAD)))
            self._file = held.enter_context(closing(TrailFile(folder / TRAIL)))
            held.pop_all()

    def begin(self, parts: Mapping[str, Any]) -> list[Frame]:
        """`restore` each of `parts` from the newest whole checkpoint; the frames that came after it. Without `parts` it
        is all frames, and a checkpoint says only how long the log has been."""
        for name in (HEAD, LOG, TRAIL, PROBLEM, TOLD, *checkpoint.NAMES):
            remove_unfinished(self.folder / name)
        notes = self._restore(parts)
        reader = Reader(self.log.path, self.genesis, _position(notes) if notes else None)
        frames = list(reader)
        self.log.begin(reader.position, reader.torn)
        if notes:
            self.trail.count, self.trail.head = notes["lines"], notes["line"]
            self._known = (notes["trail_bytes"], notes["line"])
        else:
            check_begin(frames, self.genesis, self.log.path)
        if reader.torn:
            self.noted.append(
                f"cut off {reader.torn} bytes of a last frame that is not whole: its write never ended, or it was "
                "spoilt"
            )
        return frames

    def _restore(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Where the checkpoint was made; empty where none is used."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                state, notes = checkpoint.read(self.folder, self._unfit)
        except FileNotFoundError:
            return {}
        except CutShort:
            raise
        except DamagedFile as error:
            self.noted.append(f"no checkpoint could be read, so everything is learned again: {error}")
            return {}
        if not parts:
            return {}
        self.noted += [str(warning.message) for warning in caught]
        blank = {name: part.state() for name, part in parts.items()}
        try:
            for name, part in parts.items():
                part.restore(_below(name, state))
        except (DamagedFile, NotImplementedError, ValueError) as error:
            for name, part in parts.items():
                part.restore(blank[name])
            self.noted.append(f"a checkpoint could not be used, so everything is learned again: {error}")
            return {}
        return notes

    def _unfit(self, notes: Mapping[str, Any]) -> str:
        """Why a checkpoint says nothing of this log, which is the truth; "" if it does."""
        if notes.get("genesis") != self.genesis:
            return "is of another journal"
        try:
            holds = self.log.holds(_position(notes))
        except CutShort:
            raise
        except (KeyError, TypeError, ValueError, OSError) as error:
            return f"names no place in {LOG} ({error})"
        return "" if holds else "is of a copy of this folder that went on otherwise"

    def continue_trail(self, due: Sequence[str]) -> None:
        """Open the trail; since the checkpoint it must be the first of `due`, those of the log; the rest is added."""
        path, (start, _) = self.folder / TRAIL, self._known
        lines, torn = read_trail(path, *self._known)
        n = next((n for n, (a, b) in enumerate(zip(lines, due, strict=False)) if a != b), min(len(lines), len(due)))
        missing = due[n:]
        if n < len(lines):
            if not start and n == broken_at(lines, self.genesis):
                raise DamagedFile(f"{path}: line {n} was changed; {REMEDY}")
            raise DamagedFile(
                f"{path}: line {n} is not what {LOG} says: one of them was cut short or changed; {REMEDY}"
            )
        if not "\n".join(missing).startswith(torn.rstrip("\0")):
            raise DamagedFile(f"{path}: its unfinished last line is not what {LOG} says; {REMEDY}")
        self.log.cut()
        self._file.begin(start + sum(len(line.encode()) + 1 for line in lines), self.trail.count - len(missing))
        if missing or torn:
            self._file.append(missing)
            self.noted.append(f"completed the audit trail by {len(missing)} lines that the journal has")
        for fault in self.noted:
            self.append(Kind.FAULT, {"reason": fault})
        self.sync()

    def append(
        self, kind: Kind, notes: Mapping[str, Any], arrays: Arrays | None = None, lines: Sequence[str] = ()
    ) -> int:
        """`append_all` of one."""
        return self.append_all([NewFrame(kind, notes, arrays, lines)])

    def append_all(self, frames: Sequence[NewFrame]) -> int:
        """Add frames, and the lines of the trail that say the same, all or none; on the disk after `sync` of the number
        that this returns, that of the last.

        Events have a line that says what they say. Where somebody else has changed a file of the journal, an OSError
        says so, and nothing is added.
        """
        self._head.look()
        with self._lines:
            self._file.look()
        said = [[self.trail.event(EVENTS[one.kind], one.notes)] if one.kind in EVENTS else one.lines for one in frames]
        try:
            last = self.log.append_all([one[:3] for one in frames])
        except Gone as error:
            self._bear_witness(error, [line for lines in said for line in lines])
            raise
        placed = [(last + 1 - len(said) + n, line) for n, lines in enumerate(said) for line in lines]
        first = self.trail.count - len(placed)
        with self._lines:
            self._pending += [(frame, first + n, line) for n, (frame, line) in enumerate(placed)]
        return last

    def sync(self, number: int | None = None) -> None:
        """Return when frame `number`, or all of them, is on the disk; its lines follow it, and survive this process."""
        last = self.log.position[0] - 1 if number is None else number
        try:
            self.log.sync(last)
        except Gone as error:
            self._bear_witness(error)
            raise
        with self._lines:
            due = [text for frame, n, text in self._pending if frame <= last and n >= self._file.at[1]]
            if due:
                self._file.append(due)
            self._pending = [line for line in self._pending if line[0] > last]

    def sync_trail(self) -> None:
        """Return when the trail is on the disk too: both witnesses then know."""
        self.sync()
        self._file.sync()

    def _bear_witness(self, error: Gone, lines: Sequence[str] = ()) -> None:
        """Frames of the log are gone. Opened again, it would not know what it lacks; so the trail says it."""
        with self._lines, suppress(OSError):
            known = {"reason": str(error), "frames": self.log.position[0]}
            gone = self.trail.event(EVENTS[Kind.FAULT], known)
            self._file.append([*(text for _, _, text in self._pending), *lines, gone])
            self._file.sync()

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint."""
        return time.monotonic() - self._checkpointed

    def checkpoint(self, parts: Mapping[str, Any]) -> None:
        """Keep the `part.state()` of `parts`, if there are any; nobody may append meanwhile.

        What cannot be stored, or finds no room, is learned again instead: that costs time and loses nothing.
        """
        self._checkpointed = time.monotonic()
        if not parts:
            return
        self.sync_trail()
        frames, size, last = self.log.position
        notes = {"genesis": self.genesis, "frames": frames, "bytes": size, "last": last, "lines": self.trail.count,
                 "line": self.trail.head, "trail_bytes": self._file.at[0]}  # fmt: skip
        with suppress(OSError, ValueError, TypeError, NotImplementedError):
            state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state().items()}
            checkpoint.write(self.folder, state, notes)

    def close(self) -> None:
        """Give files and lock back; what was not synced is."""
        try:
            self.sync_trail()
        finally:
            self.release()

    def release(self) -> None:
        """Give files and lock back as they are."""
        for file in (self.log, self._file, self._head):
            with suppress(OSError):
                file.close()


def check_begin(frames: Sequence[Frame], genesis: str, path: Path) -> None:
    """The log begins as that of this journal."""
    if frames and (frames[0].kind != Kind.BEGIN or frames[0].notes.get("genesis") != genesis):
        raise DamagedFile(f"{path} does not belong to the {HEAD} beside it: restore both from one copy")


def _position(notes: Mapping[str, Any]) -> Position:
    """Where the log was when a checkpoint was made."""
    return notes["frames"], notes["bytes"], notes["last"]


def _below(name: str, state: Mapping[str, Any]) -> State:
    """The entries below `name`, without it."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
