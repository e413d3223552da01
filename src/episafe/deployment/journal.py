"""The journal of a session: frames that are on the disk before anybody relies on them, the audit trail beside them, and
checkpoints, which shorten the way back and are never the source.

Frames go to the log first. A line of the trail is written when its frame is on the disk, so that the trail never says
more than the log.
"""

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from episafe.deployment.folder import HEAD, LOG, PROBLEM, TOLD, read_head
from episafe.errors import DamagedFile
from episafe.storage import checkpoint
from episafe.storage.atomic_files import remove_unfinished
from episafe.storage.audit_trail import TRAIL, Trail, TrailFile, broken_at, read_trail
from episafe.storage.frames import Arrays, Frame
from episafe.storage.journal_file import Log
from episafe.storage.state_reader import State


class Kind(IntEnum):
    """What a frame says. docs/journal.md has what each one holds."""

    BEGIN = 1  # which folder this is the journal of
    PLAN = 2  # a plan, before anybody acts on it
    DEPLOY = 3  # one deployment of the plan in force: its id, and its coin if the session tossed it
    REPORT = 4  # one episode, as reported
    BATCH = 5  # episodes of a simulation with their plans
    FAULT = 6  # what went wrong, and what was done
    AIM = 7  # how many episodes a simulation is to have, from here on
    CLOSE = 8  # closed in good order
    HALT = 9  # only the incumbent is deployed from here on
    RESUME = 10  # a person lets the agent explore again
    ABANDON = 11  # a deployment that will never be reported


class Part(Protocol):
    """What a checkpoint holds the state of."""

    def state(self) -> State:
        """All of it as named arrays."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; a refusal changes nothing."""
        ...


class Journal:
    """An open journal.

    Args:
        folder: where it was begun.
        settings: of the agent, as the trail says them.
        threshold: b.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], threshold: float) -> None:
        self.folder, self.head = folder, read_head(folder)
        self.genesis: str = self.head["genesis"]
        self.log = Log(folder / LOG, self.genesis)
        self.trail = Trail(threshold, settings, self.genesis)
        self._file: TrailFile | None = None
        self.noted: list[str] = []  # what was wrong when it was opened
        self._pending: list[tuple[int, str]] = []  # lines, each with the number of its frame
        self._writing_lines, self._lines_failed = threading.Lock(), False
        self._known = (0, "")  # bytes of the trail when the checkpoint was made, and its last hash
        self._checkpointed = time.monotonic()

    def begin(self, parts: Mapping[str, Part]) -> list[Frame]:
        """Restore `parts` from the newest whole checkpoint, and return the frames that came after it."""
        for name in (HEAD, PROBLEM, TOLD, *checkpoint.NAMES):
            remove_unfinished(self.folder / name)
        notes, faults = self._restore(parts)
        since = (notes["frames"], notes["bytes"], notes["last"]) if notes else None
        frames, cut = self.log.begin(since)
        if since is None:
            check_begin(frames, self.genesis, self.log.path)
            if not frames:
                self.log.append(Kind.BEGIN, {"genesis": self.genesis})
        else:
            self.trail.count, self.trail.head = notes["lines"], notes["line"]
            self._known = (notes["trail_bytes"], notes["line"])
        if cut:
            faults.append(f"cut off {cut} bytes of an unfinished frame, which nobody was told is kept")
        for fault in faults:
            self.fault(fault)
        return frames

    def _restore(self, parts: Mapping[str, Part]) -> tuple[dict[str, Any], list[str]]:
        """Where the checkpoint was made, empty where none is used, and what was wrong with it."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                state, notes = checkpoint.read(self.folder)
        except FileNotFoundError:
            return {}, []
        except DamagedFile as error:
            return {}, [f"no checkpoint could be read, so everything is learned again: {error}"]
        faults = [str(warning.message) for warning in caught]
        if notes.get("genesis") != self.genesis:
            raise DamagedFile(f"{self.folder}: the checkpoints are of another journal: delete them, or restore a copy")
        blank = {name: part.state() for name, part in parts.items()}
        try:
            for name, part in parts.items():
                part.restore(_below(name, state))
        except (DamagedFile, NotImplementedError, ValueError) as error:
            for name, part in parts.items():
                part.restore(blank[name])
            return {}, [*faults, f"a checkpoint could not be used, so everything is learned again: {error}"]
        return notes, faults

    def continue_trail(self, due: Sequence[str]) -> None:
        """Open the trail; since the checkpoint it must be the first of `due`, those of the log; the rest is added."""
        path, (start, _) = self.folder / TRAIL, self._known
        lines, torn = read_trail(path, *self._known)
        if lines != list(due[: len(lines)]):
            n = next((n for n, (a, b) in enumerate(zip(lines, due, strict=False)) if a != b), len(due))
            if n < len(lines) and not start and n == broken_at(lines, self.genesis):
                raise DamagedFile(f"{path}: line {n} was changed; restore it from a copy, or audit the folder")
            raise DamagedFile(f"{path}: line {n} is not what {LOG} says: one of them was cut short or changed")
        missing = due[len(lines) :]
        self._file = TrailFile(path, start + sum(len(line.encode()) + 1 for line in lines))
        if missing or torn:
            self._file.append(missing)
            self.fault(f"completed the audit trail by {len(missing)} lines that the journal has")
        self.sync()

    def append(
        self, kind: Kind, notes: Mapping[str, Any], arrays: Arrays | None = None, lines: Sequence[str] = ()
    ) -> int:
        """Add a frame, and the lines of the trail that say the same; both are on the disk after `sync`."""
        number = self.log.append(kind, notes, arrays)
        if lines:
            with self._writing_lines:
                self._pending += [(number, line) for line in lines]
        return number

    def fault(self, reason: str) -> None:
        """Record what went wrong."""
        self.noted.append(reason)
        self.append(Kind.FAULT, {"reason": reason})

    def sync(self, number: int | None = None) -> None:
        """Return when frame `number`, or all of them, is on the disk; its lines follow it, and survive this process."""
        self.log.sync(number)
        with self._writing_lines:
            last = self.log.position[0] if number is None else number
            due = [line for frame, line in self._pending if frame <= last]
            if self._file is not None and due and not self._lines_failed:
                self._lines_failed = True  # until they are there: opening completes the trail
                self._file.append(due)
                self._pending, self._lines_failed = self._pending[len(due) :], False

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint."""
        return time.monotonic() - self._checkpointed

    def checkpoint(self, parts: Mapping[str, Part]) -> None:
        """Keep the state of `parts`, if there are any; nobody may append meanwhile.

        What cannot be stored, or finds no room, is learned again instead: that costs time and loses nothing.
        """
        self._checkpointed = time.monotonic()
        if not parts:
            return
        self.sync()
        assert self._file is not None
        self._file.sync()
        frames, size, last = self.log.position
        notes = {"genesis": self.genesis, "frames": frames, "bytes": size, "last": last, "lines": self.trail.count,
                 "line": self.trail.head, "trail_bytes": self._file.size}  # fmt: skip
        with suppress(OSError, ValueError, TypeError, NotImplementedError):
            state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state().items()}
            checkpoint.write(self.folder, state, notes)

    def close(self) -> None:
        """Give files and lock back; what was not synced is."""
        try:
            self.sync()
            if self._file is not None:
                self._file.sync()
        finally:
            self.release()

    def release(self) -> None:
        """Give files and lock back as they are."""
        with suppress(OSError):
            self.log.close()
        if self._file is not None:
            self._file.close()


def check_begin(frames: Sequence[Frame], genesis: str, path: Path) -> None:
    """The log begins as that of this journal."""
    if frames and (frames[0].kind != Kind.BEGIN or frames[0].notes.get("genesis") != genesis):
        raise DamagedFile(f"{path} does not belong to the {HEAD} beside it: restore both from one copy")


def _below(name: str, state: Mapping[str, Any]) -> State:
    """The entries below `name`, without it."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
