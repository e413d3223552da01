"""What frames, lines and checkpoints say was ever made, whether or not it can be proved that they are right."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from episafe.deployment.frame_kinds import EVENTS, Kind, change_of
from episafe.deployment.session_book import Book
from episafe.errors import DamagedFile
from episafe.storage.atomic_files import read_arrays
from episafe.storage.frames import Frame

MOST = 2**40  # plans or deployments: what says that there were more is damaged
MADE = {"plan": "plans", "plans": "plans", "id": "deployments", "deployment": "deployments", "episode": "deployments",
        "deployments": "deployments", "frames": "frames"}  # fmt: skip
COUNTS = ("plans", "deployments", "frames")  # of all that were made; the others are the number of one


class Witnesses:
    """All that was heard.

    Attributes:
        plans, deployments, frames: how many were made, at least.
        names: of reports, "" for those without one.
        halts: their reasons.
        changes: what people promoted, withdrew and changed.
        added: the names of the policies that somebody put on trial.
        candidates: how many were put on trial or lost, at least: by the frames, or by the lines, which say the same.
    """

    def __init__(self) -> None:
        self.plans = self.deployments = self.frames = 0
        self.names: list[str] = []
        self.halts: list[str] = []
        self.changes: list[str] = []
        self.added: set[str] = set()
        self.candidates = 0

    @property
    def made(self) -> tuple[int, int]:
        """Plans and deployments."""
        return self.plans, self.deployments

    def hear_frames(self, frames: Iterable[Frame]) -> None:
        """Frames that can be read."""
        spent = 0
        for frame in frames:
            notes = dict(frame.notes)
            self.changes += filter(None, [change_of(frame.kind, notes)])
            if frame.kind == Kind.REPORT:
                self.names.append(str(notes.get("id") or ""))
            if frame.kind != Kind.DEPLOY:
                notes.pop("id", None)
            spent += self._hear(notes, EVENTS[Kind(frame.kind)] if frame.kind in EVENTS else "")
        self.candidates = max(self.candidates, spent)

    def hear_lines(self, lines: Iterable[str]) -> None:
        """Lines of a trail; a halt is heard even where the rest of its line cannot be read."""
        spent = 0
        for line in lines:
            try:
                said = json.loads(line)
                spent += self._hear(said, said.get("event", ""))
            except (ValueError, TypeError, AttributeError, RecursionError):
                if '"event":"halt"' in line:
                    self.halts.append("of which only a part of the line is left")
        self.candidates = max(self.candidates, spent)

    def hear_checkpoint(self, path: Path) -> None:
        """What a checkpoint knew, if it can be read."""
        book = Book("")
        try:
            book.restore({"book": read_arrays(path)[0]["book.book"]})
        except (FileNotFoundError, DamagedFile, KeyError):
            return
        self._hear({"plan": book.newest, "deployments": book.started}, "")
        self.added |= set(book.candidates)
        if book.halted:
            self.halts.append(book.halted)

    def _hear(self, said: Mapping[str, Any], event: str) -> int:
        """What a frame or line says; how many candidates it put on trial, or has lost with the incumbent's sequence."""
        for name in said.keys() & MADE.keys():
            if (number := _count(said[name])) is not None:
                made = number if name in COUNTS else number + 1
                setattr(self, MADE[name], max(getattr(self, MADE[name]), made))
        if event in ("halt", "lost"):
            self.halts.append(str(said.get("reason", "")))
        if event == EVENTS[Kind.CANDIDATE]:
            self.added.add(str(said.get("name")))
            return 1
        return 1 + (_count(said.get("candidates")) or 0) if event == EVENTS[Kind.LOST] else 0


def _count(said: Any) -> int | None:
    """A number of things that there can have been; None for anything else."""
    return said if type(said) is int and 0 <= said < MOST else None
